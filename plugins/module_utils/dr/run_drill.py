# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A failover drill: carries out the steps of `dr_failover` with a throw-away copy of the site's data, which is compared
and removed.

The drill does not query the origin, and changes neither the origin nor the copy at the site."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

from ..backup.manifest import without_server_metadata
from ..backup.restore_rules import position
from ..backup.store import utc_now
from ..nats.client import Call, NatsFailure
from ..nats.error_codes import MESSAGE_NOT_FOUND
from ..screen import Page, blocks
from ..waiting import wait_until
from .drill import (
    Counted,
    another,
    drill_config,
    drill_lines,
    drill_method,
    drill_name,
    drill_subject,
    is_left,
    isolated,
    isolated_consumer,
    miscounted,
    no_room,
    plan_line,
    sample,
    stream_bytes,
)
from .failover import (
    DEAD,
    TAKE_OVER,
    FailoverOptions,
    FailoverPlan,
    FailoverRefusal,
    durable,
    floor_at,
    plan_failover,
    promise,
)
from .reader import Pair, Records, read_site, source_sequence
from .record import PROMOTE, Drill, Failover, next_drill
from .run_failover import FailoverRun, FailoverTimeouts, Work, require_room, sequence_in
from .run_status import StatusRow
from .status import MIRROR, Protected, SideReading, copy_kind, judge

_INTERVAL = 0.3
#: Seconds to wait until a throw-away copy has been deleted.
_GONE = 30.0
#: A placeholder, because the origin is not queried.
_NOT_ASKED = SideReading(problem="a drill does not query the origin")


@dataclass(frozen=True)
class SiteDrillOptions:
    """The options of a drill. `wait`: seconds until a throw-away copy has the site's messages. `compared`: maximum
    number of messages of a stream whose contents are compared. `consumers`: whether the failover would create
    consumers."""

    wait: float
    compared: int
    consumers: bool = True


@dataclass
class Rehearsal:
    """The rehearsal of one stream, or the reason why its failover would be refused now."""

    row: StatusRow
    method: str = ""
    plan: Optional[FailoverPlan] = None
    refusal: str = ""

    @property
    def protected(self) -> Protected:
        return self.row.status.protected


def plan_drills(pair: Pair, streams: Sequence[Protected], wanted: SiteDrillOptions) -> list[Rehearsal]:
    """Return the rehearsal of each stream, in the same order. Raises NatsFailure if the site does not respond."""
    found: dict[Protected, Rehearsal] = {}
    for account in dict.fromkeys(one.account for one in streams):
        account_streams = [one for one in streams if one.account == account]
        sites = read_site(pair.site, account, account_streams)
        silent = next((site.problem for site in sites if site.problem), "")
        if silent:
            raise NatsFailure("site_silent", f"{pair.site.name} does not answer: {silent}", account=account)
        records = Records(pair.site, account)
        for one, site in zip(account_streams, sites):
            found[one] = _planned(pair, records, one, site, wanted)
    return [found[one] for one in streams]


def _planned(
    pair: Pair, records: Records, protected: Protected, site: SideReading, wanted: SiteDrillOptions
) -> Rehearsal:
    checkpoint, failover = records.checkpoint(protected.stream), records.failover(protected.stream)
    status = judge(protected, _NOT_ASKED, site, checkpoint, failover)
    made = Rehearsal(StatusRow(_NOT_ASKED, site, records, checkpoint, failover, status))
    api = pair.site.api(protected.account)
    dead = FailoverOptions(DEAD, pair.origin.name, consumers=wanted.consumers)
    try:
        if failover is not None:
            raise FailoverRefusal("failed_over", "the site has replaced the origin, or is about to")
        release = api.release()
        plan = plan_failover(status, _NOT_ASKED, site, checkpoint, release, pair.origin.name, dead)
        require_room(api, plan, dead)
        config = (site.info or {})["config"]
        left = api.find_stream(drill_name(protected.stream))
        if left is not None and not is_left(left["config"], protected.stream):
            raise FailoverRefusal(
                "exists", f"stream {drill_name(protected.stream)} exists and was not created by a drill"
            )
        full = no_room(api.info(), config, stream_bytes(site.info))
        if full:
            raise FailoverRefusal("no_room", full)
    except FailoverRefusal as refusal:
        made.refusal = str(refusal)
        return made
    made.plan, made.method = plan, drill_method(config, protected.stream, release)
    return made


def planned_page(pair: Pair, found: Sequence[Rehearsal]) -> Page:
    """Return the planned steps for operators."""
    lines = [
        f"{one.protected.name}: the failover would be refused: {one.refusal}"
        if one.plan is None
        else plan_line(
            one.protected.name,
            pair.site.name,
            one.plan.method,
            stream_bytes(one.row.site.info),
            ((one.row.site.info or {}).get("config") or {}).get("num_replicas") or 1,
            [entry["name"] for entry in durable(one.plan.consumers)],
        )
        for one in found
    ]
    return blocks([[line] for line in lines], {place for place, one in enumerate(found) if one.plan is None})


def rehearse(pair: Pair, rehearsal: Rehearsal, wanted: SiteDrillOptions) -> dict[str, Any]:
    """Rehearse the failover of one stream, record the drill, and return its row of the module's result. Raises
    NatsFailure if the record could not be written or the throw-away copy could not be removed."""
    protected, records, site = rehearsal.protected, rehearsal.row.records, rehearsal.row.site
    compared = 0
    drill = Drill(utc_now(), False, rehearsal.refusal, "", 0, site.position or 0, 0, 0.0, 0.0)
    if rehearsal.plan is not None and records is not None:
        run = _DrillRun(pair, rehearsal, records, rehearsal.plan, wanted)
        try:
            with run.cleaned_up():
                drill = run.drill()
            compared = run.compared
        except FailoverRefusal as refusal:
            drill = replace(drill, method=rehearsal.plan.method, reason=str(refusal))
        except NatsFailure as failure:
            if failure.code == "left_behind":
                raise
            drill = replace(drill, method=rehearsal.plan.method, reason=failure.description)
    if records is not None and site.info is not None:
        drill = next_drill(records.drill(protected.stream), drill)
        records.keep(protected.stream, site.info["config"], drill)
    row = {"name": protected.name, "stream": protected.stream, "copy": protected.copy, "compared": compared}
    return {**row, "drill": as_dict(drill), "lines": drill_lines(protected.name, pair.site.name, drill, compared)}


def as_dict(drill: Drill) -> dict[str, Any]:
    """Return a drill for the result of a module."""
    return dict(vars(drill))


class _DrillRun(FailoverRun):
    """Carries out the steps of a failover with a throw-away copy. No progress is recorded: remains of an earlier run
    are removed, not resumed."""

    def __init__(
        self, pair: Pair, rehearsal: Rehearsal, records: Records, plan: FailoverPlan, wanted: SiteDrillOptions
    ) -> None:
        super().__init__(
            pair,
            Work(rehearsal.row, records, plan, None),
            FailoverOptions(DEAD, pair.origin.name, consumers=wanted.consumers),
            FailoverTimeouts(wanted.wait, 0.0),
        )
        self._rehearsal, self._plan = rehearsal, plan
        self._how = wanted
        self._target = drill_name(self._protected.stream)
        self._copy: Mapping[str, Any] = rehearsal.row.site.info or {}
        self._mirrors = rehearsal.method != TAKE_OVER
        self.compared = 0

    def _keep(self, record: Failover) -> Failover:
        return record

    @contextlib.contextmanager
    def cleaned_up(self) -> Iterator[None]:
        """Remove the throw-away copy before and after the drill. Raises NatsFailure left_behind."""
        self._remove()
        try:
            yield
        finally:
            self._remove()

    def _remove(self) -> None:
        api, name = self._site, self._target

        def gone() -> bool:
            info = api.find_stream(name)
            if info is not None and is_left(info["config"], self._protected.stream):
                api.delete_stream(name)
            return info is None

        try:
            done, why = wait_until(gone, bool, _GONE).done, "it still exists"
        except NatsFailure as failure:
            done, why = False, failure.description
        if not done:
            raise NatsFailure(
                "left_behind",
                f"the throw-away copy {name} of {self._protected.name} cannot be removed ({why}); delete it",
            )

    def drill(self) -> Drill:
        """Perform the drill and return the result of the failover. Raises FailoverRefusal and NatsFailure for any obstacle to
        taking over."""
        started = time.monotonic()
        self._fill()
        filled = time.monotonic()
        origin_config = isolated(self._plan.origin_config)
        record = self._promote(
            Failover(
                phase=PROMOTE,
                started=utc_now(),
                fence=DEAD,
                method=self._rehearsal.method,
                target=self._target,
                subjects=(drill_subject(self._protected.stream),),
                promised=promise(self._plan.promised),
                position=self._rehearsal.row.site.position or 0,
                last_copied=0,
                consumers=self._plan.consumers,
                origin_config=origin_config,
            )
        )
        # Messages continue to arrive until the mirror ends.
        held = self._site.stream(self._target)["state"]
        record = self._create_consumers(record)
        served = time.monotonic()
        self._require_messages(held)
        consumers = self._require_floors(record)
        self._require_served(held)
        return Drill(
            time=utc_now(),
            ok=True,
            reason="",
            method=self._plan.method,
            messages=held["messages"],
            position=record.position,
            consumers=consumers,
            copied=round(filled - started, 3),
            seconds=round(served - filled, 3),
        )

    def _fill(self) -> None:
        """Fill the throw-away copy with the site's current messages."""
        state = self._copy["state"]
        config = without_server_metadata(self._copy["config"])
        self._site.create_stream(
            drill_config(config, self._protected.stream, self._rehearsal.method, state["first_seq"])
        )

        def has_all(found: Mapping[str, Any]) -> bool:
            if self._mirrors:
                return bool(found["last_seq"] >= state["last_seq"])
            return bool(found["messages"] >= state["messages"])

        seen = wait_until(lambda: self._site.stream(self._target)["state"], has_all, self._how.wait, _INTERVAL)
        if not seen.done:
            raise FailoverRefusal(
                "not_filled",
                f"the throw-away copy has {seen.value['messages']} of {state['messages']} messages after "
                f"{self._how.wait:g} seconds; allow more time (wait_timeout)",
            )

    def _take_over(self, record: Failover) -> None:
        """Do nothing: `_fill` has already waited for the copy's messages, and the copy keeps receiving new ones."""

    def _consumer_config(self, record: Failover, entry: Mapping[str, Any], replicas: int) -> dict[str, Any]:
        return isolated_consumer(super()._consumer_config(record, entry, replicas), self._protected.stream)

    def _mapped(self, record: Failover, sequence: int) -> int:
        """Return the sequence in the throw-away copy for a sequence of the origin. Unless the site's copy is a mirror,
        its sequences and those of the throw-away copy differ from the origin's."""
        name = self._protected.copy
        if copy_kind(self._copy["config"], self._protected.stream) != MIRROR:
            sequence = sequence_in(self._site, name, sequence)
        return sequence if self._mirrors else sequence_in(self._site, self._target, sequence)

    # --- Comparison ---------------------------------------------------------------------------------------------------

    def _require_messages(self, held: Mapping[str, Any]) -> None:
        """Raise FailoverRefusal unless the throw-away copy, up to its last message, has the messages of the site's copy."""
        last = held["last_seq"] if self._mirrors or not held["messages"] else self._source(held["last_seq"])
        wrong = miscounted(held["messages"], self._counted(last)) or self._differing(held)
        if wrong:
            raise FailoverRefusal("not_proven", wrong)

    def _counted(self, last: int) -> Counted:
        name, before = self._protected.copy, self._copy["state"]
        now = self._site.stream(name)["state"]
        # A consumer is created to count the following messages; no message is fetched from it. Messages that arrived
        # after the state was read make `after` smaller.
        probe = {
            "ack_policy": "none",
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": last + 1,
            "inactive_threshold": int(_GONE * 1e9),
            "num_replicas": 1,
            "mem_storage": True,
        }
        made = self._site.call(f"CONSUMER.CREATE.{name}", {"stream_name": name, "config": probe})
        with contextlib.suppress(NatsFailure):  # the mirror ends by itself
            self._site.delete_consumer(name, made["name"])
        return Counted(before["messages"] + max(0, last - before["last_seq"]), now["messages"] - made["num_pending"])

    def _differing(self, held: Mapping[str, Any]) -> str:
        sequences = sample(held["first_seq"], held["last_seq"], self._how.compared) if held["messages"] else []
        drilled = self._messages(self._target, sequences)
        numbers = [number if self._mirrors else source_sequence(message) for number, message in drilled.items()]
        copied = self._messages(self._protected.copy, [number for number in numbers if number])
        for number, message in zip(numbers, drilled.values()):
            original = copied.get(number or 0)
            if original is None:
                continue  # removed since then, by the site or by the origin's limits
            wrong = another(original, message)
            if wrong:
                return f"the {wrong} of message {number} differs from the site's copy"
            self.compared += 1
        return ""

    def _messages(self, stream: str, sequences: Sequence[int]) -> dict[int, dict[str, Any]]:
        requests: list[tuple[str, Optional[Mapping[str, Any]]]] = [
            (f"STREAM.MSG.GET.{stream}", {"seq": sequence}) for sequence in sequences
        ]
        found = {}
        for sequence, answer in zip(sequences, self._site.call_many(requests)):
            if not isinstance(answer, NatsFailure):
                found[sequence] = answer["message"]
            elif answer.err_code != MESSAGE_NOT_FOUND:
                raise answer
        return found

    def _source(self, sequence: int) -> int:
        return source_sequence(self._messages(self._target, [sequence])[sequence]) or 0

    def _require_floors(self, record: Failover) -> int:
        """Return the number of consumers. Raises FailoverRefusal unless each consumer is at its starting position."""
        rows = {row["name"]: row for row in self._site.consumers(self._target).rows}
        wanted = durable(record.consumers)
        for entry in wanted:
            name, floor = entry["name"], self._mapped(record, floor_at(entry, record.position))
            if name not in rows:
                raise FailoverRefusal("not_proven", f"consumer {name} is missing")
            if position(rows[name]) != floor:
                raise FailoverRefusal("not_proven", f"consumer {name} is at {position(rows[name])} instead of {floor}")
        return len(wanted)

    def _require_served(self, held: Mapping[str, Any]) -> None:
        """Raise FailoverRefusal unless the promoted stream acknowledges a message and stores it under its next sequence."""
        client = self._pair.site.connections.client(self._protected.account)
        reply = client.request(Call(drill_subject(self._protected.stream), b"drill"))
        ack = json.loads(reply.body or b"{}")
        if (ack.get("stream"), ack.get("seq")) != (self._target, held["last_seq"] + 1):
            raise FailoverRefusal("not_proven", f"the promoted stream acknowledged a message with {json.dumps(ack)}")
