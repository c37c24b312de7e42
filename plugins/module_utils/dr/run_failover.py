# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Failover: the copies of streams replace their origins, and each step is verified before the next one.

Progress is recorded at the site before each step, so a later run can resume an interrupted one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Callable, Optional

from ..backup.consumer_places import place_consumers
from ..backup.manifest import without_server_metadata
from ..backup.restore_rules import position, recreated_config
from ..backup.store import utc_now
from ..nats.client import NatsFailure
from ..nats.jetstream_api import JetStreamApi
from ..screen import Page, blocks
from ..waiting import wait_until
from .failover import (
    DEAD,
    END_MIRROR,
    PERMISSIONS,
    SUBJECTS,
    TAKE_OVER,
    FailoverOptions,
    FailoverPlan,
    FailoverRefusal,
    again,
    durable,
    floor_at,
    plan_failover,
    plan_lines,
    promise,
    promoted_config,
    require_still,
    take_over_config,
)
from .reader import Pair, Records, read_pair, source_sequence
from .record import CONSUMERS, DONE, FENCE, PROMOTE, Checkpoint, Failover, fenced_subject, is_fenced, saved_consumer
from .run_status import StatusRow, read_status
from .status import Protected, SideReading, serves_promoted

#: Seconds between two samples.
_INTERVAL = 0.3


@dataclass(frozen=True)
class FailoverTimeouts:
    """All values are seconds. `wait`: for copying, until the site has everything that the origin has, or another stream
    has everything that the mirror has. `watch`: for monitoring an origin whose clients may not publish."""

    wait: float
    watch: float


@dataclass
class Work:
    """The work on one stream: its plan, or the progress of an earlier run, or nothing if the failover is complete."""

    row: StatusRow
    records: Records
    plan: Optional[FailoverPlan]
    record: Optional[Failover]

    @property
    def protected(self) -> Protected:
        return self.row.status.protected

    @property
    def done(self) -> bool:
        return self.record is not None and self.record.done


def plan_work(pair: Pair, streams: Sequence[Protected], wanted: FailoverOptions) -> list[Work]:
    """Return the steps to fail over each stream. Raises NatsFailure that names every stream that cannot fail over."""
    work, refused = [], []
    for row in read_status(pair, streams):
        try:
            work.append(_work(pair, row, wanted))
        except FailoverRefusal as refusal:
            refused.append((row.status.protected.name, refusal))
    if refused:
        reasons = "; ".join(f"{name}: {refusal}" for name, refusal in refused)
        raise NatsFailure(
            refused[0][1].code,
            f"{len(refused)} of {len(streams)} streams cannot fail over, nothing was changed: {reasons}",
        )
    return work


def _work(pair: Pair, row: StatusRow, wanted: FailoverOptions) -> Work:
    if row.records is None:
        raise FailoverRefusal("no_copy", row.status.problems[0])
    record = row.failover
    api = pair.site.api(row.status.protected.account)
    if record is not None and (record.phase in (CONSUMERS, DONE) or _is_promoted(api, record)):
        return Work(row, row.records, None, record)
    checkpoint = row.checkpoint
    protected = row.status.protected
    if record is not None:
        # The origin may have been fenced since then, and then no longer reports its data.
        checkpoint = Checkpoint(record.started, 0, 0, record.origin_config, record.consumers)
        protected = replace(protected, subjects=record.subjects)
    status = replace(row.status, protected=protected)
    plan = plan_failover(status, row.origin, row.site, checkpoint, api.release(), pair.origin.name, wanted)
    require_room(api, plan, wanted)
    return Work(row, row.records, plan, record)


def _is_promoted(api: JetStreamApi, record: Failover) -> bool:
    """Return whether an earlier run promoted the stream but was interrupted before recording it."""
    info = api.find_stream(record.target) if record.phase == PROMOTE else None
    return info is not None and serves_promoted(info["config"], record)


def require_room(api: JetStreamApi, plan: FailoverPlan, wanted: FailoverOptions) -> None:
    """Raise FailoverRefusal if another stream already has the subjects or the name of the stream to promote."""
    others = {name for subject in plan.subjects for name in api.stream_names(subject)}
    others -= {plan.protected.copy, plan.target}
    if plan.protected.stream in others and wanted.fence in (SUBJECTS, DEAD):
        # If both sides are in one JetStream, the fence removes the subjects of this stream.
        others.discard(plan.protected.stream)
    if others:
        raise FailoverRefusal("overlap", f"subjects of {plan.target} belong to {', '.join(sorted(others))} at the site")
    if plan.method == TAKE_OVER:
        info = api.find_stream(plan.target)
        sources = [entry["name"] for entry in ((info or {}).get("config") or {}).get("sources") or ()]
        if info is not None and sources != [plan.protected.copy]:
            raise FailoverRefusal(
                "exists", f"stream {plan.target} already exists at the site; choose another name with `promoted`"
            )


def planned_page(pair: Pair, work: Sequence[Work]) -> Page:
    """Return the planned steps for operators."""
    losing = {
        place
        for place, one in enumerate(work)
        if one.plan is not None and (one.plan.promised.messages or not one.plan.promised.known)
    }
    return blocks([_planned_lines(pair, one) for one in work], losing)


def _planned_lines(pair: Pair, work: Work) -> list[str]:
    if work.plan is not None:
        return plan_lines(work.plan, pair.origin.name, pair.site.name)
    if work.record is not None and work.done:
        return [f"{work.protected.name}: {work.record.target} replaced the origin at {work.record.finished}"]
    if work.record is not None:
        return [f"{work.protected.name}: continues with the step {work.record.phase} of {work.record.started}"]
    return []


def fail_over(pair: Pair, work: Work, wanted: FailoverOptions, timeouts: FailoverTimeouts) -> dict[str, Any]:
    """Complete the work on one stream, and return its row of the module's result. Raises NatsFailure."""
    try:
        return FailoverRun(pair, work, wanted, timeouts).run()
    except FailoverRefusal as refusal:
        raise NatsFailure(refusal.code, f"{work.protected.name}: {refusal}") from refusal


class FailoverRun:
    """The steps of one stream's failover."""

    def __init__(self, pair: Pair, work: Work, wanted: FailoverOptions, timeouts: FailoverTimeouts) -> None:
        self._pair = pair
        self._work = work
        self._wanted = wanted
        self._timeouts = timeouts
        self._protected = work.protected
        self._site = pair.site.api(self._protected.account)
        self._origin = pair.origin.api(self._protected.account)
        self._steps: list[str] = []

    def run(self) -> dict[str, Any]:
        """Complete the work, and return the row of the module's result. Raises NatsFailure and FailoverRefusal."""
        record = self._work.record
        if self._work.plan is not None:
            record = self._fence(self._work.plan, record)
        if record is None:
            raise FailoverRefusal("no_copy", "it has no plan")
        if record.phase == PROMOTE:
            record = self._promote(record)
        if record.phase == CONSUMERS:
            record = self._create_consumers(record)
        return self._result(record)

    def _keep(self, record: Failover) -> Failover:
        config = self._work.row.site.info["config"] if self._work.row.site.info else {}
        self._work.records.keep(self._protected.stream, config, record)
        return record

    # --- fence ----------------------------------------------------------------------------------------------------------

    def _fence(self, plan: FailoverPlan, begun: Optional[Failover]) -> Failover:
        record = begun or self._keep(
            Failover(
                phase=FENCE,
                started=utc_now(),
                fence=plan.fence,
                method=plan.method,
                target=plan.target,
                subjects=plan.subjects,
                promised=promise(plan.promised),
                position=0,
                last_copied=0,
                consumers=plan.consumers,
                origin_config=plan.origin_config,
            )
        )
        if plan.fence == SUBJECTS:
            self._take_subjects(plan)
        elif plan.fence == PERMISSIONS:
            self._watch()
        elif plan.fence == DEAD:
            self._release_subjects(plan)
        self._steps.append(f"fenced ({plan.fence})")
        origin, site = self._read() if plan.fence == DEAD else self._caught_up(plan)
        complete = plan.fence != DEAD and not origin.problem and origin.oldest is None
        consumers = record.consumers
        if not origin.problem and not origin.unknown and self._wanted.consumers:
            consumers = tuple(saved_consumer(info) for _name, info in sorted(origin.consumers.items()))
        # The expected loss of the first run counts, because later runs read an origin that is already fenced.
        return self._keep(
            replace(
                record,
                phase=PROMOTE,
                fence=plan.fence,
                position=site.position or 0,
                consumers=consumers,
                complete=complete,
            )
        )

    def _take_subjects(self, plan: FailoverPlan) -> None:
        name = self._protected.stream
        config = self._origin.stream(name)["config"]
        if not is_fenced(config, name):
            fenced = {**without_server_metadata(config), "subjects": [fenced_subject(name)]}
            self._origin.update_stream(fenced)
        seen = wait_until(lambda: self._origin.stream(name), lambda info: is_fenced(info["config"], name), 10)
        if not seen.done:
            raise FailoverRefusal(
                "not_fenced", f"stream {name} of the origin still has its subjects {seen.value['config']['subjects']}"
            )

    def _watch(self) -> None:
        name = self._protected.stream
        before = self._origin.stream(name)["state"]["last_seq"]
        time.sleep(self._timeouts.watch)
        require_still(before, self._origin.stream(name)["state"]["last_seq"], self._protected, self._timeouts.watch)

    def _release_subjects(self, plan: FailoverPlan) -> None:
        """Remove the subjects of a stream without living servers, if it is in the same JetStream as its copy: the meta
        group alone makes this change, and no server of the stream is left to respond."""
        name = self._protected.stream

        def holding() -> list[str]:
            return [found for subject in plan.subjects for found in self._site.stream_names(subject) if found == name]

        if name in (plan.protected.copy, plan.target) or not holding():
            return
        fenced = {**without_server_metadata(plan.origin_config), "name": name, "subjects": [fenced_subject(name)]}
        try:
            self._site.update_stream(fenced)
        except NatsFailure as failure:
            if failure.code not in ("timeout", "no_responders"):
                raise
        if not wait_until(holding, lambda names: not names, 10).done:
            raise FailoverRefusal("overlap", f"stream {name} of the origin still has the subjects of {plan.target}")

    def _caught_up(self, plan: FailoverPlan) -> tuple[SideReading, SideReading]:
        """Return both sides once the site has everything that the origin has; if this fails, give the origin its
        subjects back."""

        def complete(found: tuple[SideReading, SideReading]) -> bool:
            origin, site = found
            return not origin.problem and not site.problem and origin.oldest is None

        seen = wait_until(self._read, complete, self._timeouts.wait, _INTERVAL)
        origin, site = seen.value
        if seen.done or self._wanted.allow_loss:
            return origin, site
        lacking = (
            origin.problem or f"it lacks the origin's messages after sequence {site.position}, up to {origin.last_seq}"
        )
        undone = "the origin continues as before"
        if plan.fence == SUBJECTS:
            config = self._origin.stream(self._protected.stream)["config"]
            subjects = plan.origin_config["subjects"]
            self._origin.update_stream({**without_server_metadata(config), "subjects": subjects})
            undone = f"the origin has its subjects again ({', '.join(subjects)})"
        self._work.records.forget_failover(self._protected.stream)
        raise FailoverRefusal(
            "not_caught_up",
            f"the site does not catch up within {self._timeouts.wait:g} seconds: {lacking}. Nothing was promoted, and "
            f"{undone}. Repair the link between the sites, wait longer, or accept the loss with `allow_loss`",
        )

    def _read(self) -> tuple[SideReading, SideReading]:
        (found,) = read_pair(self._pair, self._protected.account, [self._protected])
        return found

    # --- promote --------------------------------------------------------------------------------------------------------

    def _promote(self, record: Failover) -> Failover:
        if record.method == TAKE_OVER:
            self._take_over(record)
        info = self._site.stream(record.target)
        config = info["config"]
        if config.get("mirror") or config.get("sources"):
            last = info["state"]["last_seq"]
            if record.method == END_MIRROR and last < record.position:
                raise FailoverRefusal(
                    "behind", f"{record.target} has messages up to {last}, but had them up to {record.position}"
                )
            info = self._site.update_stream(promoted_config(without_server_metadata(config), record))
        else:
            last = self._last_copied(record)
        wanted = list(record.subjects)
        seen = wait_until(
            lambda: self._site.stream(record.target)["config"],
            lambda found: not found.get("mirror") and not found.get("sources") and found.get("subjects") == wanted,
            10,
        )
        if not seen.done:
            raise FailoverRefusal(
                "not_promoted", f"{record.target} has the subjects {seen.value.get('subjects')} instead of {wanted}"
            )
        self._steps.append(f"promoted ({record.method})")
        position = max(record.position, last) if record.method == END_MIRROR else record.position
        return self._keep(replace(record, phase=CONSUMERS, position=position, last_copied=last))

    def _last_copied(self, record: Failover) -> int:
        """Return the sequence of the last message from the origin in a stream that an earlier run promoted."""
        if record.method == END_MIRROR:
            return record.position
        return self._mapped(record, record.position)

    def _take_over(self, record: Failover) -> None:
        """Make another stream take over all messages of the mirror."""
        mirror = self._site.stream(self._protected.copy)
        info = self._site.find_stream(record.target)
        if info is None:
            config = without_server_metadata(mirror["config"])
            wanted = take_over_config(config, record.target, mirror["state"]["first_seq"])
            info = self._site.create_stream(wanted)
        if not info["config"].get("sources"):
            return
        expected = mirror["state"]["messages"]
        seen = wait_until(
            lambda: int(self._site.stream(record.target)["state"]["messages"]),
            lambda count: count >= expected,
            self._timeouts.wait,
            _INTERVAL,
        )
        if seen.value != expected:
            raise FailoverRefusal(
                "incomplete",
                f"{record.target} has {seen.value} messages, but {self._protected.copy} has {expected}. Nothing was "
                "promoted; run this again to wait longer. If the number does not change, messages with the same id "
                "were stored within 0.1 seconds and are dropped; restore a backup of the mirror instead",
            )

    # --- consumers --------------------------------------------------------------------------------------------------------

    def _create_consumers(self, record: Failover) -> Failover:
        info = self._site.stream(record.target)
        replicas = info["config"].get("num_replicas") or 1
        there = {row["name"]: row for row in self._site.consumers(record.target).rows}
        wanted = {entry["name"]: self._consumer_config(record, entry, replicas) for entry in durable(record.consumers)}
        for name, config in wanted.items():
            if name not in there:
                self._site.save_consumer(record.target, config, "create")
        # Consumers created by an earlier run may have delivered messages since, so they are kept.
        wrong = place_consumers(
            self._site, record.target, wanted, int(info["state"]["last_seq"]), "limits", self._timeouts.wait
        )
        if wrong:
            raise FailoverRefusal(
                "consumers_missing", f"consumers of {record.target} are not ready: {'; '.join(wrong)}"
            )
        self._steps.append(f"{len(wanted)} consumers")
        return self._keep(replace(record, phase=DONE, finished=utc_now()))

    def _consumer_config(self, record: Failover, entry: Mapping[str, Any], replicas: int) -> dict[str, Any]:
        floor = self._mapped(record, floor_at(entry, record.position))
        moved = {**entry, "config": without_server_metadata(entry["config"]), "ack_floor": {"stream_seq": floor}}
        config = recreated_config(moved, "limits")
        if (config.get("num_replicas") or 0) > replicas:
            config["num_replicas"] = 0
        return config

    def _mapped(self, record: Failover, sequence: int) -> int:
        """Return the sequence in the promoted stream of the last message that is at or before this sequence of the
        origin."""
        if record.method == END_MIRROR:
            return sequence
        return sequence_in(self._site, record.target, sequence)

    def _result(self, record: Failover) -> dict[str, Any]:
        info = self._site.stream(record.target)
        state = info["state"]
        rows = {row["name"]: row for row in self._site.consumers(record.target).rows}
        consumers = [
            {
                "name": entry["name"],
                "origin_floor": entry["ack_floor"]["stream_seq"],
                "floor": position(rows[entry["name"]]) if entry["name"] in rows else None,
                "again": again(entry, record.position),
            }
            for entry in durable(record.consumers)
        ]
        return {
            "name": self._protected.name,
            "stream": record.target,
            "changed": bool(self._steps),
            "steps": self._steps,
            "fence": record.fence,
            "method": record.method,
            "subjects": list(record.subjects),
            "promised": record.promised,
            "complete": record.complete,
            "position": record.position,
            "last_copied": record.last_copied,
            "messages": state["messages"],
            "first_seq": state["first_seq"],
            "last_seq": state["last_seq"],
            "consumers": consumers,
        }


def last_at_or_before(
    find_source: Callable[[int], Optional[tuple[int, int]]], first: int, last: int, sequence: int
) -> int:
    """Return the last sequence of this stream whose message had at most the given sequence at its source; if there is
    none, the sequence before the first.

    `find_source(number)`: the sequences in this stream and in the source of the first message at or after a number,
    None if no such message came from a source. Both sequences increase together, so a binary search works.
    """
    low, high = max(first, 1) - 1, last
    while low < high:
        middle = (low + high + 1) // 2
        found = find_source(middle)
        if found is not None and found[1] <= sequence:
            low = max(middle, found[0])
        else:
            high = middle - 1
    return low


def sequence_in(api: JetStreamApi, stream: str, sequence: int) -> int:
    """Return the stream's sequence of the last message that had at most this sequence at its source."""
    if not sequence:
        return 0
    state = api.stream(stream)["state"]
    return last_at_or_before(
        lambda number: next_source(api, stream, number), state["first_seq"], state["last_seq"], sequence
    )


def next_source(api: JetStreamApi, stream: str, number: int) -> Optional[tuple[int, int]]:
    """Return the sequence of the first message at or after a number, and its sequence at its source."""
    message = api.first_message(stream, seq=number)
    if message is None:
        return None
    source = source_sequence(message)
    return None if source is None else (int(message["seq"]), source)


def done_page(rows: Sequence[Mapping[str, Any]]) -> Page:
    """Return the expected loss and the result, for operators."""
    return blocks([_done_lines(row) for row in rows], {place for place, row in enumerate(rows) if not row["complete"]})


def _done_lines(row: Mapping[str, Any]) -> list[str]:
    name = row["name"]
    lines = [
        f"{name}: expected loss: {row['promised']['text']}",
        f"{name}: result: {row['messages']} messages in {row['stream']}, sequences {row['first_seq']} to "
        f"{row['last_seq']}; all that the origin stored up to sequence {row['position']}",
    ]
    if row["complete"]:
        lines.append(f"{name}: nothing is lost: the site has all messages of its fenced origin")
    for consumer in row["consumers"]:
        repeated = f", up to {consumer['again']} messages redelivered" if consumer["again"] else ""
        lines.append(
            f"{name}: consumer {consumer['name']}: ack floor {consumer['floor']}, at the origin "
            f"{consumer['origin_floor']}{repeated}"
        )
    return lines
