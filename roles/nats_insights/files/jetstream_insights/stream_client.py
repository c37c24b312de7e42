# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Access to the messages of a stream by sequence, without Spark.

Any replica may answer, and it may be behind. So the end of a range is accepted only after a message at or beyond it has arrived,
or after the stream's leader reports that there is none. See docs/spark-source.md.
"""

from __future__ import annotations

import base64
import contextlib
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ansible_collections.natsops.jetstream.plugins.module_utils.times import epoch_nanoseconds

from jetstream_insights.stream_connection import (
    NO_MESSAGE,
    NO_STREAM,
    Login,
    SourceError,
    StreamConnection,
    TransientError,
    bare_address,
    header_status,
)

#: Messages and bytes of one request: enough to keep the overhead low, even over a slow network, and few enough to hold in memory.
#: Only a single larger message exceeds the bytes.
BATCH_MESSAGES, BATCH_BYTES = 16384, 8 * 1024 * 1024

#: Maximum number of requests for single messages before the reader returns the messages it has.
ONE_BY_ONE = 256

#: Seconds that a pull waits in the server for messages, and after which the server removes a consumer without pulls.
PULL_EXPIRES, CONSUMER_THRESHOLD = 2.0, 60.0

#: The ways to read messages, see `reading_way`.
BATCHES, CONSUMER, SINGLE = "batches of direct get", "an ephemeral consumer", "one message at a time"

_ACK = b"$JS.ACK."

#: Statuses that end a pull normally: no message, no more within its time, the next message exceeds the remaining bytes, or all
#: messages were delivered and bytes remain (server/consumer.go).
_PULL_ENDS = ("404", "408", "409 Message Size Exceeds MaxBytes", "409 Batch Completed")


# --- streams --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StreamSelection:
    """A stream and the subjects of the messages to read; all messages without subjects."""

    name: str
    subjects: tuple[str, ...] = ()

    @property
    def filter(self) -> str:
        """Return the filter for servers: the only subject, or all, which the reader then matches itself. Direct get supports one
        subject, and a consumer with several (2.10.27) skips the first message of a stream that has lost its first ones."""
        return self.subjects[0] if len(self.subjects) == 1 else ">"


@dataclass(frozen=True)
class LeaderState:
    """A stream's state from its leader: creation time, first and last sequence, and the way to read it."""

    created: str
    first: int
    last: int
    bytes: int
    way: str

    @property
    def bytes_per_sequence(self) -> float:
        """Return the mean number of bytes of a sequence; a removed message counts with none."""
        return self.bytes / max(1, self.last - self.first + 1)


def stream_state(connection: StreamConnection, stream: StreamSelection) -> LeaderState:
    """Return the state of a stream. Raises SourceError and TransientError."""
    answer = connection.request(f"STREAM.INFO.{stream.name}", {})
    if "error" in answer:
        servers = ", ".join(bare_address(server) for server in connection.login.servers)
        if answer["error"].get("err_code") == NO_STREAM:
            raise SourceError(f"there is no stream {stream.name} in this account (of {servers})")
        raise SourceError(f"stream {stream.name} of {servers}: {answer['error'].get('description')}")
    config, state = answer["config"], answer["state"]
    return LeaderState(
        created=answer["created"],
        first=max(1, state["first_seq"]),
        last=state["last_seq"],
        bytes=state["bytes"],
        way=reading_way(config, connection.version),
    )


def reading_way(config: dict[str, Any], version: tuple[int, int]) -> str:
    """Return the way to read a stream.

    Batches of direct get (2.11) leave nothing behind and affect no other client, but the stream must allow them. A consumer has
    no side effects only if acknowledgements do not remove messages (limits).
    """
    if config.get("allow_direct") and version >= (2, 11):
        return BATCHES
    return CONSUMER if config.get("retention", "limits") == "limits" else SINGLE


def next_message(connection: StreamConnection, stream: StreamSelection, first: int) -> dict[str, Any] | None:
    """Return the first message of the stream from `first` on, as stored by the leader (seq, subject, hdrs, data, time); None if
    there is none. Raises SourceError and TransientError."""
    answer = connection.request(f"STREAM.MSG.GET.{stream.name}", {"seq": first, "next_by_subj": stream.filter})
    error = answer.get("error")
    if error is None:
        message: dict[str, Any] = answer["message"]
        return message
    if error.get("err_code") != NO_MESSAGE:
        raise SourceError(f"stream {stream.name}: {error.get('description')}")
    return None


def sequence_at(connection: StreamConnection, stream: StreamSelection, state: LeaderState, nanoseconds: int) -> int:
    """Return the sequence that separates the messages stored before that time from those at that time or later."""
    low, high = state.first, state.last + 1
    every = StreamSelection(stream.name)
    while low < high:
        middle = (low + high) // 2
        message = connection.with_retries(lambda seq=middle: next_message(connection, every, seq))  # type: ignore[misc]
        if message is None or message["seq"] >= high or epoch_nanoseconds(message["time"]) >= nanoseconds:
            high = middle
        else:
            low = message["seq"] + 1
    return low


# --- reading ----------------------------------------------------------------------------------------------------------------


@dataclass
class Rows:
    """Messages in the order of their sequences. `times`: nanoseconds since 1970, or the server's text; `headers`: as stored, with
    the line of the protocol version."""

    subjects: list[bytes] = field(default_factory=list)
    sequences: list[int] = field(default_factory=list)
    times: list[int] | list[bytes] = field(default_factory=list)
    headers: list[bytes | None] = field(default_factory=list)
    data: list[bytes] = field(default_factory=list)

    def keep(self, indexes: Sequence[int]) -> Rows:
        """Return some of the messages."""
        columns: list[Any] = [self.subjects, self.sequences, self.times, self.headers, self.data]
        return Rows(*([column[index] for index in indexes] for column in columns))


class Reader(Protocol):
    """A way to read a stream."""

    def fetch(self, first: int, count: int) -> Rows:
        """Return up to `count` messages from `first` on, without gaps other than those of the answering replica; none if it has
        none. Raises SourceError and TransientError."""

    def close(self) -> None:
        """Remove everything that the reader has created."""


class _Batches:
    """Direct get of many messages at once. Each message names its predecessor, so losses in transit are detected."""

    def __init__(self, connection: StreamConnection, stream: StreamSelection) -> None:
        self._connection = connection
        self._stream = stream
        self._subject = f"{connection.login.api_prefix}.DIRECT.GET.{stream.name}"

    def fetch(self, first: int, count: int) -> Rows:
        reported: list[tuple[bytes, bytes]] = []
        ended: list[str] = []

        def take(_subject: bytes, _reply: bytes, data: bytes, headers: bytes | None) -> bool:
            if headers is None:
                return False
            status = header_status(headers)
            if status and b"\r\nNats-Sequence: " not in headers:  # a publisher's message may have a status, too
                ended.append(status)
                return True
            reported.append((headers, data))
            return b"\r\nNats-Num-Pending: " not in headers  # an older server sends one message

        # The server ends a batch after the message that reaches the bytes.
        question = {"seq": first, "batch": count, "max_bytes": BATCH_BYTES, "next_by_subj": self._stream.filter}
        self._connection.collect(self._subject, question, take)
        if ended and ended[0] not in ("204", "404"):
            raise TransientError(f"{self._stream.name} returns no batch now (status {ended[0]})")
        return self._rows(reported)

    def _rows(self, reported: Sequence[tuple[bytes, bytes]]) -> Rows:
        rows, before = Rows(), 0
        times: list[bytes] = []
        for headers, data in reported:
            # The server's own headers are the last ones, in this order (stream.go getDirectRequest).
            lines = headers.rsplit(b"\r\n", 8)
            if lines[5].startswith(b"Nats-Num-Pending: "):
                stored, _stream, subject, sequence, moment, _pending, previous = lines[:7]
                if int(previous[20:]) != before:
                    raise TransientError(f"messages of {self._stream.name} were lost in transit")
            else:
                stored, _stream, subject, sequence, moment = headers.rsplit(b"\r\n", 6)[:5]
            before = int(sequence[15:])
            rows.subjects.append(subject[14:])
            rows.sequences.append(before)
            times.append(moment[17:])
            rows.headers.append(stored if len(stored) > 8 else None)
            rows.data.append(data)
        rows.times = times
        return rows

    def close(self) -> None:
        """Do nothing: direct get creates nothing."""


class _Pulls:
    """An ephemeral consumer without acknowledgements. The server counts its deliveries, so losses in transit are detected."""

    def __init__(self, connection: StreamConnection, stream: StreamSelection) -> None:
        self._connection = connection
        self._stream = stream
        self._name = ""
        self._next = 0
        self._delivered = 0

    def fetch(self, first: int, count: int) -> Rows:
        try:
            if (not self._name or first != self._next) and not self._create(first):
                return Rows()
            rows = self._pull(count, BATCH_BYTES)
            if rows is None:  # the next message alone is larger
                rows = self._pull(1, None)
            return rows or Rows()
        except TransientError:
            self.close()
            raise

    def _create(self, first: int) -> int:
        """Create a consumer that begins at a sequence; return the number of its messages."""
        self.close()
        self._name, self._next, self._delivered = f"spark-{secrets.token_hex(8)}", first, 0
        config: dict[str, Any] = {
            "name": self._name,
            "description": "reads a range of sequences for Spark",
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": first,
            "ack_policy": "none",
            "inactive_threshold": int(CONSUMER_THRESHOLD * 1e9),
            "num_replicas": 1,
            "mem_storage": True,
        }
        if self._stream.filter != ">":
            config["filter_subjects"] = [self._stream.filter]
        request = {"stream_name": self._stream.name, "action": "create", "config": config}
        answer = self._connection.request(f"CONSUMER.CREATE.{self._stream.name}.{self._name}", request)
        if "error" in answer:
            self._name = ""
            raise SourceError(f"stream {self._stream.name} cannot be read: {answer['error'].get('description')}")
        return int(answer.get("num_pending", 0))

    def _pull(self, count: int, most_bytes: int | None) -> Rows | None:
        """Return the messages of one pull, within the limits of messages and bytes; None if the next message has more bytes."""
        reported: list[tuple[bytes, list[bytes], bytes, bytes | None]] = []
        ended: list[str] = []
        size = 0

        def take(subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> bool:
            nonlocal size
            if reply.startswith(_ACK):
                tokens = reply.split(b".")
                # $JS.ACK.stream.consumer.…, or with domain and account before the stream and a token at the end (ADR-15).
                reported.append((subject, tokens[2:9] if len(tokens) == 9 else tokens[4:11], data, headers))
                # The server counts these bytes (server/consumer.go). It sends no status if a message fills them exactly.
                size += len(subject) + len(reply) + len(headers or b"") + len(data)
                return len(reported) == count or reported[-1][1][6] == b"0" or size == most_bytes
            if headers is not None:
                ended.append(headers.partition(b"\r\n")[0][9:].decode("utf-8", "replace"))
            return headers is not None

        request = {"batch": count, "expires": int(PULL_EXPIRES * 1e9), "max_bytes": most_bytes or 0}
        subject = f"{self._connection.login.api_prefix}.CONSUMER.MSG.NEXT.{self._stream.name}.{self._name}"
        self._connection.collect(subject, request, take, PULL_EXPIRES + self._connection.login.timeout)
        if ended and not ended[0].startswith(_PULL_ENDS):
            raise TransientError(f"the consumer of {self._stream.name} cannot be read now (status {ended[0]})")
        if not reported and ended and ended[0].startswith("409"):
            return None
        rows = Rows()
        times: list[int] = []
        for to, (_stream, consumer, _times, sequence, number, moment, _pending), data, headers in reported:
            self._delivered += 1
            if int(number) != self._delivered or consumer.decode() != self._name:
                raise TransientError(f"messages of {self._stream.name} were lost in transit")
            rows.subjects.append(to)
            rows.sequences.append(int(sequence))
            times.append(int(moment))
            rows.headers.append(headers)
            rows.data.append(data)
        rows.times = times
        if rows.sequences:
            self._next = rows.sequences[-1] + 1
        return rows

    def close(self) -> None:
        name, self._name = self._name, ""
        if name:
            with contextlib.suppress(TransientError, SourceError):  # the server removes it after the threshold
                self._connection.request(f"CONSUMER.DELETE.{self._stream.name}.{name}", {})


class _Singles:
    """The leader's messages one by one: slow, but always possible."""

    def __init__(self, connection: StreamConnection, stream: StreamSelection) -> None:
        self._connection = connection
        self._stream = stream

    def fetch(self, first: int, count: int) -> Rows:
        rows = Rows()
        times: list[bytes] = []
        size = 0
        for _message in range(min(count, ONE_BY_ONE)):
            message = next_message(self._connection, self._stream, first) if size < BATCH_BYTES else None
            if message is None:
                break
            first = message["seq"] + 1
            rows.subjects.append(message["subject"].encode())
            rows.sequences.append(message["seq"])
            times.append(message["time"].encode())
            stored = base64.b64decode(message.get("hdrs") or "")
            rows.headers.append(stored or None)
            rows.data.append(base64.b64decode(message.get("data") or ""))
            size += len(stored) + len(rows.data[-1])
        rows.times = times
        return rows

    def close(self) -> None:
        """Do nothing: single requests create nothing."""


_WAYS: dict[str, type[_Batches] | type[_Pulls] | type[_Singles]] = {
    BATCHES: _Batches,
    CONSUMER: _Pulls,
    SINGLE: _Singles,
}


@dataclass(frozen=True)
class Range:
    """Sequences from `first` to `last`, both included, of a stream that was created at `created`."""

    first: int
    last: int
    created: str = ""
    way: str = BATCHES


def read_range(login: Login, stream: StreamSelection, wanted: Range, fail_on_data_loss: bool) -> Iterator[Rows]:
    """Yield the messages of a range in order. Raises SourceError, also if the stream has been recreated, and with
    `fail_on_data_loss` if messages were removed before they were read."""
    if wanted.first > wanted.last:
        return
    with StreamConnection(login) as connection:
        reader: Reader = _WAYS[wanted.way](connection, stream)
        try:
            yield from _read(connection, reader, stream, wanted, fail_on_data_loss)
        finally:
            reader.close()


def _read(
    connection: StreamConnection, reader: Reader, stream: StreamSelection, wanted: Range, fail_on_data_loss: bool
) -> Iterator[Rows]:
    position = wanted.first

    def fetch() -> Rows:
        rows = reader.fetch(position, min(BATCH_MESSAGES, wanted.last - position + 1))
        if not rows.sequences:
            message = next_message(connection, stream, position)
            if message is not None and message["seq"] <= wanted.last:
                raise TransientError(
                    f"no replica of {stream.name} returns message {message['seq']}, which its leader has"
                )
        return rows

    while position <= wanted.last:
        rows = connection.with_retries(fetch)
        sequences = rows.sequences
        if fail_on_data_loss and (not sequences or sequences[-1] - position + 1 > len(sequences)):
            _refuse_loss(connection, stream, wanted, _first_gap(position, sequences))
        if not sequences:
            break
        position = sequences[-1] + 1
        indexes = _wanted(rows, stream, wanted.last)
        yield rows if len(indexes) == len(sequences) else rows.keep(indexes)
    state = connection.with_retries(lambda: stream_state(connection, stream))
    if state.created != wanted.created:
        raise SourceError(recreated(stream, wanted.created, state.created))


def _first_gap(position: int, sequences: Sequence[int]) -> int:
    for sequence in sequences:
        if sequence != position:
            break
        position += 1
    return position


def _refuse_loss(connection: StreamConnection, stream: StreamSelection, wanted: Range, gap: int) -> None:
    state = connection.with_retries(lambda: stream_state(connection, stream))
    if gap <= wanted.last and state.created == wanted.created and state.first > gap:
        raise SourceError(lost(stream, gap, min(state.first, wanted.last + 1)))


def _wanted(rows: Rows, stream: StreamSelection, last: int) -> Sequence[int]:
    """Return the indexes of the messages that are in the range and match the subjects."""
    within = (
        range(len(rows.sequences))
        if rows.sequences[-1] <= last
        else [index for index, sequence in enumerate(rows.sequences) if sequence <= last]
    )
    if len(stream.subjects) < 2:
        return within
    return [index for index in within if any(matches(rows.subjects[index].decode(), one) for one in stream.subjects)]


def matches(subject: str, pattern: str) -> bool:
    """Return whether a subject matches a pattern with the wildcards * and >."""
    have, want = subject.split("."), pattern.split(".")
    if want[-1] == ">":
        return len(have) >= len(want) and all(w in ("*", h) for h, w in zip(have, want[:-1]))
    return len(have) == len(want) and all(w in ("*", h) for h, w in zip(have, want))


def lost(stream: StreamSelection, expected: int, first: int) -> str:
    """Return the error message for removed messages."""
    return (
        f"stream {stream.name} now begins at sequence {first}, but {expected} is the next to read: up to {first - expected} "
        "messages were removed before they were read, by limits, a purge or consumers. Set fail_on_data_loss to false to "
        "continue without them"
    )


def recreated(stream: StreamSelection, then: str, now: str) -> str:
    """Return the error message for a stream that was recreated under the same name."""
    return (
        f"stream {stream.name} was deleted and recreated: it was created at {now}, but the messages read so far are from the one "
        f"created at {then}. Set fail_on_data_loss to false to read the new one from its first message"
    )


def shortened(stream: StreamSelection, last: int, read: int) -> str:
    """Return the error message for a stream that ends before the last sequence that was read."""
    return (
        f"stream {stream.name} ends at sequence {last}, but {read} was already read: it lost its end, or was restored from an "
        "older backup. Set fail_on_data_loss to false to read it from its first message again"
    )
