# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reader of streaming queries of the data source ``jetstream``. It limits batches with the admission control that PySpark has
since 4.2, so an older PySpark cannot import this file."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from jetstream_insights.source import LAST, PartitionReader, first_sequence, ranges
from jetstream_insights.stream_client import LeaderState, lost, recreated, shortened, stream_state
from jetstream_insights.stream_connection import SourceError, StreamConnection, TransientError

#: Seconds for which a stream's state is cached: a query without a trigger interval requests it a hundred times a second.
STATE_AGE = 0.2

#: An offset: the stream's name and `created`, the last sequence that was read, and `initial`, the sequence before the query's
#: start, which Spark requests again when it repeats the first batch.
Offset = dict[str, Any]


class StreamReader(PartitionReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads new messages. One object plans on the driver; others read partitions, and do not connect for planning."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema)
        if self.settings.end != LAST:
            raise SourceError("option end is for batch queries (read); a streaming query ends with its trigger")
        self._connection: StreamConnection | None = None
        self._state: LeaderState | None = None
        self._asked = 0.0
        self._until: int | None = None

    def stop(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def initialOffset(self) -> Offset:
        state = self._now()
        before = first_sequence(self._connected(), self.settings, state) - 1
        return self._offset(state, before, before)

    def getDefaultReadLimit(self) -> ReadLimit:
        messages, size = self.settings.max_messages_per_trigger, self.settings.max_bytes_per_trigger
        if messages is None:
            return ReadAllAvailable() if size is None else ReadMaxBytes(size)
        return ReadMaxRows(messages)

    def prepareForTriggerAvailableNow(self) -> None:
        self._until = self._now().last

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        self._check_name(start)
        state, begin, initial = self._now(), start["sequence"], start["initial"]
        if state.last < begin and state.created == start["created"]:
            state = self._caught_up(begin)
        if state.created != start["created"] or state.last < begin:
            self._lose(
                recreated(self.settings.stream, start["created"], state.created)
                if state.created != start["created"]
                else shortened(self.settings.stream, state.last, begin)
            )
            begin = initial = state.first - 1
        if state.first > begin + 1:
            self._lose(lost(self.settings.stream, begin + 1, state.first))
            begin = state.first - 1
        last = state.last if self._until is None else min(state.last, self._until)
        if isinstance(limit, ReadMaxRows):
            last = min(last, begin + limit.max_rows)
        elif isinstance(limit, ReadMaxBytes) and state.bytes:
            last = min(last, begin + max(1, int(limit.max_bytes / state.bytes_per_sequence)))
        return self._offset(state, max(last, begin), initial)

    def reportLatestOffset(self) -> Offset | None:
        state = self._state
        return None if state is None else self._offset(state, state.last, 0)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        self._check_name(end)
        first = start["sequence"] + 1
        if (start["created"], start["initial"]) != (end["created"], end["initial"]) or first > end["sequence"] + 1:
            # The offsets start differently: the stream was recreated, or the first batch is repeated.
            first = end["initial"] + 1
        if first > end["sequence"]:
            return []
        state = self._now()
        if end["created"] != state.created:
            self._lose(recreated(self.settings.stream, end["created"], state.created))
            return []
        if state.last < end["sequence"]:
            state = self._caught_up(end["sequence"])
        if state.first > first:
            self._lose(lost(self.settings.stream, first, min(state.first, end["sequence"] + 1)))
        return ranges(self.settings, state, max(first, state.first), end["sequence"])

    def _offset(self, state: LeaderState, sequence: int, initial: int) -> Offset:
        return {"stream": self.settings.stream.name, "created": state.created, "sequence": sequence, "initial": initial}

    def _check_name(self, offset: Offset) -> None:
        name = self.settings.stream.name
        if offset["stream"] != name:
            raise SourceError(
                f"the checkpoint belongs to stream {offset['stream']}; to read {name}, give the query its own checkpoint"
            )

    def _lose(self, why: str) -> None:
        if self.settings.fail_on_data_loss:
            raise SourceError(why)

    def _connected(self) -> StreamConnection:
        if self._connection is None:
            self._connection = StreamConnection(self.settings.login)
        return self._connection

    def _now(self) -> LeaderState:
        if self._state is None or time.monotonic() - self._asked > STATE_AGE:
            connection = self._connected()
            self._state = connection.with_retries(lambda: stream_state(connection, self.settings.stream))
            self._asked = time.monotonic()
        return self._state

    def _caught_up(self, sequence: int) -> LeaderState:
        """Return the state once it has reached a sequence, otherwise when the retry time is over: a newly elected leader may
        still be applying its log."""
        connection, found = self._connected(), self._now()

        def caught_up() -> LeaderState:
            nonlocal found
            found = stream_state(connection, self.settings.stream)
            if found.last < sequence:
                raise TransientError("not yet")
            return found

        try:
            self._state = connection.with_retries(caught_up)
        except SourceError:
            self._state = found
        return self._state
