# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Failback: returns the site's writes since a failover to the origin, and verifies each step before the next one.

The configurations of both streams show the progress: the origin is fenced, it sources the site, the site is fenced, the
origin serves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

from ..backup.consumer_places import place_consumers
from ..backup.manifest import without_server_metadata
from ..backup.restore_rules import recreated_config
from ..backup.store import utc_now
from ..nats.client import NatsFailure
from ..nats.error_codes import MESSAGE_NOT_FOUND
from ..nats.jetstream_api import JetStreamApi
from ..nats.stored_message import header_values
from ..screen import Page, blocks, some_names
from ..waiting import wait_until
from .failback import has_source, returned_config, returning_config, returning_floor
from .failover import END_MIRROR, FailoverRefusal, durable
from .reader import Pair, source_sequence
from .record import Failback, Failover, fenced_subject, is_fenced, saved_consumer
from .run_failover import last_at_or_before, next_source
from .run_status import StatusRow, read_status
from .status import Protected

#: Number of messages after and before the failover whose message IDs are compared, because producers may have sent
#: these messages to both sides.
_COMPARED, _BEFORE = 20_000, 1000


def plan_failback(pair: Pair, streams: Sequence[Protected]) -> list[StatusRow]:
    """Return the streams that can return to the origin. Raises NatsFailure with the name of every stream that cannot
    return."""
    rows, refused = read_status(pair, streams), []
    for row in rows:
        reason = _why_not(row)
        if reason:
            refused.append(f"{row.status.protected.name}: {reason}")
    if refused:
        raise NatsFailure(
            "no_failback",
            "\n".join([f"{len(refused)} of {len(rows)} streams cannot fail back, nothing was changed:", *refused]),
        )
    return rows


def _why_not(row: StatusRow) -> str:
    if row.records is None:
        return row.status.problems[0]
    if row.failover is None:
        return "the site has not replaced the origin"
    if not row.failover.done:
        return "the failover is not complete; run it again"
    if row.origin.problem or row.origin.info is None:
        return (
            f"the origin does not answer: {row.origin.problem}"
            if row.origin.problem
            else "the origin has no such stream"
        )
    if row.origin.info["state"]["last_seq"] < row.failover.position:
        return (
            f"the origin has messages up to {row.origin.last_seq}, but had them up to {row.failover.position} at the "
            "failover: it was recreated. Delete its stream, and protect the site's stream with a mirror there instead"
        )
    return ""


def planned_page(pair: Pair, rows: Sequence[StatusRow]) -> Page:
    """Return the plan for operators."""
    found: list[list[str]] = []
    worst: set[int] = set()
    for row, failover in [(row, row.failover) for row in rows if row.failover is not None]:
        name, stream = row.status.protected.name, row.status.protected.stream
        begun = row.records.failback(stream) if row.records else None
        # After an interrupted run, the origin may already have some of the site's messages.
        stranded = (begun.origin_last if begun else row.origin.last_seq) - failover.position
        subjects = failover.origin_config.get("subjects") or failover.subjects
        if row.returned:
            found.append(
                [f"{name}: {stream} of {pair.origin.name} serves again; the record of the failover is removed"]
            )
            continue
        lines = [
            f"{name}: {stream} of {pair.origin.name} is fenced and receives the messages of {failover.target} of "
            f"{pair.site.name} after sequence {failover.last_copied}",
            f"{name}: then {failover.target} is fenced, and {stream} accepts messages on {', '.join(subjects)} again",
        ]
        if stranded:
            lines.append(f"{name}: at most {stranded} messages exist only at the origin and stay there")
            worst.add(len(found))
        found.append(lines)
    return blocks(found, worst)


def fail_back(pair: Pair, row: StatusRow, wait: float) -> dict[str, Any]:
    """Return one stream to the origin, and return its row of the module's result. Raises NatsFailure."""
    try:
        return _FailbackRun(pair, row, wait).run()
    except FailoverRefusal as refusal:
        raise NatsFailure(refusal.code, f"{row.status.protected.name}: {refusal}") from refusal


class _FailbackRun:
    def __init__(self, pair: Pair, row: StatusRow, wait: float) -> None:
        if row.failover is None or row.records is None:
            raise FailoverRefusal("not_failed_over", "it has not failed over")
        self._pair, self._row, self._wait = pair, row, wait
        self._failover: Failover = row.failover
        self._records = row.records
        self._protected = row.status.protected
        self._stream, self._target = self._protected.stream, row.failover.target
        self._site = pair.site.api(self._protected.account)
        self._origin = pair.origin.api(self._protected.account)

    def run(self) -> dict[str, Any]:
        record = self._records.failback(self._stream)
        if self._row.returned and record is not None and not self._missing(record):
            return self._finish(record, self._origin.stream(self._stream), [])
        self._fence(self._origin, self._stream, self._stream)
        record = record or self._begin()
        self._bring(record)
        serving = self._site.stream(self._target)["config"]
        # An interrupted run may already have fenced the site.
        subjects = list(self._failover.subjects) if is_fenced(serving, self._stream) else serving.get("subjects")
        try:
            self._wait_for(self._site.stream(self._target)["state"]["last_seq"])
            self._fence(self._site, self._target, self._stream)
            self._wait_for(self._site.stream(self._target)["state"]["last_seq"])
            missing = self._missing(record)
            if missing:
                raise FailoverRefusal(
                    "incomplete",
                    f"{len(missing)} messages of the site did not reach the origin, such as sequence {missing[0]} of "
                    "the site: the origin drops a message if it stored the same id less than 0.1 seconds before. Nothing "
                    "was switched; the site serves again",
                )
            consumers = self._move_consumers(record)
        except (FailoverRefusal, NatsFailure):
            self._update(self._site, self._target, {"subjects": subjects})
            raise
        self._origin.update_stream(
            returned_config(without_server_metadata(self._origin.stream(self._stream)["config"]), self._failover)
        )
        wanted = list(self._failover.origin_config.get("subjects") or self._failover.subjects)
        seen = wait_until(
            lambda: self._origin.stream(self._stream),
            lambda info: info["config"].get("subjects") == wanted and not has_source(info["config"], self._target),
            10,
        )
        if not seen.done:
            raise FailoverRefusal(
                "not_returned", f"{self._stream} has the subjects {seen.value['config'].get('subjects')}"
            )
        return self._finish(record, seen.value, consumers)

    def _finish(
        self, record: Failback, info: Mapping[str, Any], consumers: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Remove the records, and return the row of the module's result."""
        self._records.forget_failover(self._stream)
        state = info["state"]
        return {
            "name": self._protected.name,
            "stream": self._stream,
            "returned": state["last_seq"] - record.origin_last,
            "stranded": record.origin_last - self._failover.position,
            "twice": list(record.twice),
            "messages": state["messages"],
            "last_seq": state["last_seq"],
            "consumers": list(consumers),
        }

    def _update(self, api: JetStreamApi, stream: str, changes: Mapping[str, Any]) -> None:
        api.update_stream({**without_server_metadata(api.stream(stream)["config"]), **changes})

    def _fence(self, api: JetStreamApi, stream: str, name: str) -> None:
        if not is_fenced(api.stream(stream)["config"], name):
            self._update(api, stream, {"subjects": [fenced_subject(name)]})
        seen = wait_until(lambda: api.stream(stream)["config"], lambda config: is_fenced(config, name), 10)
        if not seen.done:
            raise FailoverRefusal("not_fenced", f"stream {stream} still has its subjects {seen.value.get('subjects')}")

    def _begin(self) -> Failback:
        info = self._origin.stream(self._stream)
        last = int(info["state"]["last_seq"])
        floors = {
            row["name"]: saved_consumer(row)["ack_floor"]["stream_seq"]
            for row in self._consumers(self._origin, self._stream)
        }
        here = self._site.stream(self._target)["state"]["last_seq"]
        before, since = self._failover.position, self._failover.last_copied
        only = _ids(self._origin, self._stream, before + 1 - _BEFORE, min(last, before + _COMPARED))
        new = _ids(self._site, self._target, since + 1, min(here, since + _COMPARED))
        record = Failback(utc_now(), last, floors, tuple(sorted(only & new)))
        self._records.keep(self._stream, self._site.stream(self._target)["config"], record)
        return record

    def _bring(self, record: Failback) -> None:
        config = without_server_metadata(self._origin.stream(self._stream)["config"])
        if not has_source(config, self._target):
            domain = self._pair.site.domain if self._pair.site.domain != self._pair.origin.domain else None
            returning = returning_config(config, self._stream, self._failover, domain)
            self._forget_ids(returning["duplicate_window"])
            self._origin.update_stream(returning)

    def _forget_ids(self, window: int) -> None:
        """Make the origin drop the message IDs that are older than `window` nanoseconds; otherwise it would reject
        messages that producers sent again to the site.

        Changing the window starts a purge, but the purge may still use the previous window and so take effect only
        after that window has passed (stream.go updateWithAdvisory, purgeMsgIds). A second change starts from a window
        that is already short, so its purge takes effect soon.
        """
        for shortened in (window + 1_000_000, window):
            self._update(self._origin, self._stream, {"duplicate_window": shortened})

    def _wait_for(self, wanted: int) -> None:
        """Wait until the origin has the site's message with this sequence, or at least every message up to this
        sequence that the site still has."""

        def reached() -> int:
            message = self._origin.last_message(self._stream)
            return (source_sequence(message) or 0) if message else 0

        if (
            wanted <= self._failover.last_copied
            or self._site.first_message(self._target, seq=self._failover.last_copied + 1) is None
        ):
            return
        seen = wait_until(reached, lambda sequence: sequence >= wanted, self._wait, 0.3)
        if not seen.done and self._site.first_message(self._target, seq=seen.value + 1) is not None:
            raise FailoverRefusal(
                "not_caught_up",
                f"the origin has the site's messages up to sequence {seen.value} of {wanted} after {self._wait:g} "
                "seconds. The site still serves; run this again to continue",
            )

    def _missing(self, record: Failback) -> list[int]:
        """Return the sequences of the site's messages that the origin lacks."""
        here = self._site.stream(self._target)["state"]
        last = int(self._origin.stream(self._stream)["state"]["last_seq"])
        if last - record.origin_last == here["last_seq"] - self._failover.last_copied:
            return []  # each message was copied at most once
        begin, origin_at = max(self._failover.last_copied + 1, here["first_seq"]), record.origin_last + 1
        returned: set[Optional[int]] = set()
        while origin_at <= last:
            end = min(origin_at + _COMPARED - 1, last)
            returned.update(map(source_sequence, _messages(self._origin, self._stream, origin_at, end)))
            origin_at = end + 1
        lacking = [sequence for sequence in range(begin, here["last_seq"] + 1) if sequence not in returned]
        # Messages that were deleted at the site do not count as missing.
        return [sequence for sequence in lacking if _messages(self._site, self._target, sequence, sequence)]

    def _consumers(self, api: JetStreamApi, stream: str) -> list[Mapping[str, Any]]:
        listing = api.consumers(stream)
        if listing.unknown:
            raise FailoverRefusal(
                "leaderless", f"consumers whose leader does not answer: {', '.join(sorted(listing.unknown))}"
            )
        return list(listing.rows)

    def _move_consumers(self, record: Failback) -> list[dict[str, Any]]:
        last = int(self._origin.stream(self._stream)["state"]["last_seq"])

        def find_written(sequence: int) -> int:
            return last_at_or_before(
                lambda number: next_source(self._origin, self._stream, number), record.origin_last + 1, last, sequence
            )

        def find_copied(sequence: int) -> int:
            if self._failover.method == END_MIRROR or not sequence:
                return sequence
            found = next_source(self._site, self._target, sequence)
            return found[1] if found else 0

        rows = []
        configs = {}
        there = {row["name"] for row in self._consumers(self._origin, self._stream)}
        for info in durable(self._consumers(self._site, self._target)):
            entry = saved_consumer(info)
            name, at_site = entry["name"], entry["ack_floor"]["stream_seq"]
            moved = returning_floor(
                record.floors.get(name, 0), at_site, self._failover, record.origin_last, find_copied, find_written
            )
            config = {**without_server_metadata(entry["config"])}
            for key in ("opt_start_seq", "opt_start_time"):
                config.pop(key, None)
            config["deliver_policy"] = "all"
            if name in there:
                self._origin.delete_consumer(self._stream, name)
            placed = {**entry, "config": config, "ack_floor": {"stream_seq": moved.floor}}
            configs[name] = recreated_config(placed, "limits")
            self._origin.save_consumer(self._stream, configs[name], "create")
            rows.append({"name": name, "site_floor": at_site, "floor": moved.floor, "again": moved.again})
        wrong = place_consumers(self._origin, self._stream, configs, last, "limits", self._wait)
        if wrong:
            reason = f"consumers of {self._stream} at the origin are not ready: {'; '.join(wrong)}"
            raise FailoverRefusal("consumers_missing", f"{reason}. Nothing was switched; the site serves again")
        return rows


def _messages(api: JetStreamApi, stream: str, first: int, last: int) -> list[Mapping[str, Any]]:
    sequences = range(max(first, 1), last + 1)
    answers = api.call_many([(f"STREAM.MSG.GET.{stream}", {"seq": sequence}) for sequence in sequences])
    found = []
    for answer in answers:
        if not isinstance(answer, NatsFailure):
            found.append(answer["message"])
        elif answer.err_code != MESSAGE_NOT_FOUND:
            raise answer
    return found


def _ids(api: JetStreamApi, stream: str, first: int, last: int) -> set[str]:
    found: set[str] = set()
    for message in _messages(api, stream, first, last):
        found.update(header_values(message, "Nats-Msg-Id"))
    return found


def done_page(rows: Sequence[Mapping[str, Any]]) -> Page:
    """Return the result for operators."""
    worst = {place for place, row in enumerate(rows) if row["stranded"] or row["twice"]}
    return blocks([_done_lines(row) for row in rows], worst)


def _done_lines(row: Mapping[str, Any]) -> list[str]:
    name = row["name"]
    lines = [f"{name}: {row['returned']} messages returned; {row['stream']} serves with {row['messages']}"]
    if row["stranded"]:
        lines.append(
            f"{name}: at most {row['stranded']} messages existed only at the origin and precede the returned messages"
        )
    if row["twice"]:
        lines.append(f"{name}: stored on both sides and therefore twice: ids {some_names(row['twice'], 20)}")
    for consumer in row["consumers"]:
        repeated = f", up to {consumer['again']} messages redelivered" if consumer["again"] else ""
        lines.append(f"{name}: consumer {consumer['name']}: ack floor {consumer['floor']}{repeated}")
    return lines
