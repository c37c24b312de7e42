# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests which servers may leave service, compared with the rule itself on random clusters; also marks, refusals, and
the table of all hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.health.cause import build_context
from ansible_collections.natsops.jetstream.plugins.module_utils.health.causes import refusal, root_causes
from ansible_collections.natsops.jetstream.plugins.module_utils.health.rules import StopPolicy, stop_problems
from ansible_collections.natsops.jetstream.plugins.module_utils.health.sampling import evaluate
from ansible_collections.natsops.jetstream.plugins.module_utils.maintenance import (
    Mark,
    known_problems,
    parse_mark,
    parse_marks,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import Cluster
from ansible_collections.natsops.jetstream.plugins.module_utils.problem import ERROR, WARNING
from ansible_collections.natsops.jetstream.plugins.module_utils.roll.maintenance import (
    MaintenanceOptions,
    host_state,
    plan_entry,
    roll_problems,
    status,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.screen import MAX_FAIL_LINES, MAX_WIDTH
from hypothesis import given
from hypothesis import strategies as st
from support.clusters import cluster, clusters, meta, server, stream

NAMES = ["n1", "n2", "n3"]
FIVE = [*NAMES, "n4", "n5"]
NOW = 1_800_000_000.0
MARK = Mark("n3", "ops@ctl", NOW - 3600, NOW + 3600, "new disk")
REQUEST = MaintenanceOptions("ops@ctl", NOW + 4 * 3600, "new disk")


def records() -> st.SearchStrategy[dict[str, Any]]:
    """Return records that a file written by another program may contain."""
    values = st.sampled_from(
        [None, "", "x", "1e9", 0, -1, 2**70, 1.5, float("nan"), float("inf"), True, [], [1], {"a": 1}]
    )
    return st.dictionaries(st.sampled_from(["server", "by", "since", "until", "reason", "held"]), values)


def without_n3(*streams: str, names: Sequence[str] = (*NAMES,)) -> Cluster:
    """Return the cluster while n3 is out of service: the replicas on n3 are unavailable."""
    left = [name for name in names if name != "n3"]
    made = tuple(stream(name, [*left[:2], "n3"], behind=("n3",)) for name in streams)
    return Cluster(tuple(server(name) for name in left), meta([*left, "n3"], behind=("n3",)), made)


def errors(found: Any) -> list[tuple[str, str]]:
    return [(problem.code, problem.subject) for problem in found if problem.severity == ERROR]


class TestEntry:
    def test_one_of_three_may_go(self) -> None:
        live = cluster(NAMES, stream("ORDERS", NAMES), stream("ALONE", ["n3"]))
        plan = plan_entry(live, {"n3": True}, {}, REQUEST, NOW)
        assert errors(plan.problems) == []
        assert plan.entering == ("n3",)
        assert plan.marks == (Mark("n3", "ops@ctl", NOW, NOW + 4 * 3600, "new disk"),)
        assert plan.lines == (
            "n3 goes out of service until 2027-01-15T12:00:00Z (by ops@ctl: new disk)",
            "while n3 is stopped: 2 streams and consumers have reduced redundancy, 1 need a new leader",
            "unavailable during maintenance, because n3 has their only replica: stream APP/ALONE",
        )
        moved = plan_entry(live, {"n3": True}, {}, replace(REQUEST, r1="move"), NOW)
        assert "moved first, because n3 has their only replica: stream APP/ALONE" in moved.lines
        assert errors(moved.problems) == []
        kept = plan_entry(live, {"n3": True}, {}, replace(REQUEST, r1="fail"), NOW)
        assert errors(kept.problems) == [("stop_r1", "stream APP/ALONE")]

    def test_messages_in_the_memory_of_the_server_alone_are_not_given_up_unasked(self) -> None:
        cache = replace(stream("CACHE", ["n3"]), storage="memory", messages=20)
        live = cluster(NAMES, cache, replace(stream("EMPTY", ["n3"]), storage="memory"))
        plan = plan_entry(live, {"n3": True}, {}, REQUEST, NOW)
        assert errors(plan.problems) == [("roll_memory_lost", "stream APP/CACHE")]
        single = next(one for one in plan.problems if one.code == "stop_r1")
        assert "exists only in the memory of n3: its 20 message(s) are lost when it stops" in single.message
        for accepted in (replace(REQUEST, accept_loss=frozenset(["APP/CACHE"])), replace(REQUEST, r1="move")):
            assert errors(plan_entry(live, {"n3": True}, {}, accepted, NOW).problems) == []

    def test_a_disabled_gate_excuses_no_lost_messages(self) -> None:
        cache = replace(stream("CACHE", ["n1"]), storage="memory", messages=20)
        counted = replace(
            stream("COUNTED", ["n1"]), storage="file", messages=9, first_seq=7, info={"config": {"first_seq": 7}}
        )
        live = cluster(NAMES, cache, counted)
        live = replace(live, servers=tuple(replace(one, version="2.10.27") for one in live.servers))
        expected = [("roll_memory_lost", "stream APP/CACHE"), ("roll_first_seq", "stream APP/COUNTED")]
        plan = plan_entry(live, {"n1": True}, {}, REQUEST, NOW)
        assert errors(plan.problems) == expected
        for r1 in ("accept", "move"):
            assert errors(plan_entry(live, {"n1": True}, {}, replace(REQUEST, r1=r1), NOW, False).problems) == expected

    def test_a_second_one_is_refused_and_the_first_is_named_with_the_groups_and_peers(self) -> None:
        live = without_n3("ORDERS")
        plan = plan_entry(live, {"n2": True}, {"n3": MARK}, REQUEST, NOW)
        assert errors(plan.problems) == [
            ("stop_breaks_quorum", "meta group"),
            ("stop_breaks_quorum", "stream APP/ORDERS"),
        ]
        text = refusal(
            "Maintenance is refused.", plan.problems, build_context(live, {}, ["n2"], {"n3": MARK.text(NOW)})
        )
        assert text.startswith("Maintenance is refused.\n1. n3 is in maintenance since ")
        assert "by ops@ctl until 2027-01-15T09:00:00Z (new disk): the stop would take the quorum of" in text
        assert "stopping n2 would leave stream APP/ORDERS (R3) with 1 of 3 members in step (n1, n3 out of step)" in text
        assert "maintenance_leave --limit n3" in text
        assert len(text.splitlines()) <= MAX_FAIL_LINES
        assert all(len(line) <= MAX_WIDTH for line in text.splitlines())

    def test_two_of_five_servers_may_be_stopped_but_not_three(self) -> None:
        live = without_n3(names=FIVE)
        assert errors(plan_entry(live, {"n2": True}, {"n3": MARK}, REQUEST, NOW).problems) == []
        both = plan_entry(live, {"n2": True, "n4": True}, {"n3": MARK}, REQUEST, NOW)
        assert errors(both.problems) == [("stop_breaks_quorum", "meta group")]

    def test_server_out_of_service_keeps_its_mark_except_for_a_new_end(self) -> None:
        live = without_n3("ORDERS")
        again = plan_entry(live, {"n3": False}, {"n3": MARK}, MaintenanceOptions("ops2", NOW + 60, "else"), NOW)
        assert (again.entering, again.marks, errors(again.problems)) == ((), (MARK,), [])
        assert again.lines == (MARK.text(NOW),)
        longer = plan_entry(live, {"n3": False}, {"n3": MARK}, replace(REQUEST, until=NOW + 9000, renew=True), NOW)
        assert longer.marks == (replace(MARK, until=NOW + 9000),)

    def test_an_interrupted_entry_resumes(self) -> None:
        live = cluster(NAMES, stream("ORDERS", NAMES))
        assert plan_entry(live, {"n3": True}, {"n3": MARK}, REQUEST, NOW).entering == ("n3",)
        loose = replace(MARK, held=False)
        assert plan_entry(without_n3(), {"n3": False}, {"n3": loose}, REQUEST, NOW).entering == ("n3",)

    def test_a_server_without_a_cluster(self) -> None:
        plan = plan_entry(None, {"n1": True}, {}, REQUEST, NOW)
        assert (plan.entering, errors(plan.problems), len(plan.lines)) == (("n1",), [], 2)
        assert plan.lines[1].startswith("could not check whether streams in memory would lose their messages: ")
        down = plan_entry(None, {"n1": False}, {}, REQUEST, NOW)
        assert down.lines[1:] == ("n1 is not running and will be prevented from starting",)
        assert plan_entry(None, {"n1": False}, {"n1": replace(MARK, server="n1")}, REQUEST, NOW).entering == ()

    @given(clusters(), st.data())
    def test_no_plan_that_is_not_refused_takes_a_quorum(self, live: Cluster, data: st.DataObject) -> None:
        """The test applies only the wording of the rule: the remaining members that are in step must be a quorum in
        each affected group."""
        names = sorted({name for group in live.groups() for name in group.members} | live.names)
        wanted = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
        away = data.draw(st.sets(st.sampled_from(names)))
        marks = {name: replace(MARK, server=name) for name in sorted(away)}
        plan = plan_entry(live, {name: name in live.names for name in wanted}, marks, REQUEST, NOW)
        stopped = {name for name in wanted if name in live.names}
        assert stopped <= set(plan.entering)
        assert [mark.server for mark in plan.marks] == wanted
        if errors(plan.problems):
            return
        for group in live.groups():
            if group.size == 1 or not stopped & set(group.members):
                continue
            sound = {peer.name for peer in group.peers if peer.current} & live.names | set(group.leaders)
            assert len(group.leaders) == 1
            assert len(sound - stopped) >= group.quorum


class TestWhatIsKnown:
    def test_a_gate_excuses_and_names_a_server_in_maintenance(self) -> None:
        params: dict[str, Any] = {
            "expected_servers": NAMES, "expected_jetstream_servers": None, "expected_clusters": {}, "cluster": None,
            "assets": True, "max_lag": 200, "max_active": 5.0, "tolerate": [], "stop_servers": [], "r1_policy": "accept",
        }  # fmt: skip
        live = without_n3("ORDERS")
        assert {problem.code for problem in evaluate(live, params).errors} >= {
            "server_missing",
            "stream_replica_behind",
        }
        told = evaluate(live, {**params, "maintenance": [{**MARK.as_dict(), "until": 2**33}]})
        assert told.errors == ()
        assert [(problem.code, problem.severity) for problem in told.warnings] == [("maintenance", WARNING)]
        assert [cause.kind for cause in told.causes] == ["maintenance"]
        stop = evaluate(live, {**params, "maintenance": [{**MARK.as_dict(), "until": 1}], "stop_servers": ["n2"]})
        assert {problem.code for problem in stop.errors} == {"stop_breaks_quorum"}
        assert [problem.code for problem in stop.warnings] == ["maintenance_overdue"]
        assert [(cause.kind, cause.stuck) for cause in stop.causes] == [("maintenance", True)]

    def test_a_crash_beside_it_is_a_cause_of_its_own(self) -> None:
        live = without_n3("ORDERS", names=FIVE)
        live = replace(live, servers=tuple(one for one in live.servers if one.name != "n2"))
        found = [*stop_problems(live, ["n1"], StopPolicy()), *known_problems([MARK], NOW)]
        causes = root_causes(found, build_context(live, {}, ["n1"], {"n3": MARK.text(NOW)}))
        assert {cause.kind for cause in causes if cause.severity == ERROR} == {"servers_down"}
        assert [cause.servers for cause in causes] == [("n2",), ("n3",)]

    def test_a_roll_is_refused_if_it_needs_the_server_in_maintenance(self) -> None:
        live = without_n3("ORDERS")
        assert roll_problems(live, [["n1"], ["n2"]], {}, NOW) == []
        found = roll_problems(live, [["n1"], ["n2"]], {"n3": MARK}, NOW)
        assert [problem.code for problem in found] == ["maintenance", *["stop_breaks_quorum"] * 4]
        assert errors(roll_problems(without_n3(names=FIVE), [["n1"], ["n2"]], {"n3": MARK}, NOW)) == []

    @given(records())
    def test_any_record_is_a_mark_and_an_invalid_one_has_expired(self, record: dict[str, Any]) -> None:
        mark = parse_mark(record, "n3")
        assert mark.server and mark.by
        assert mark.text(NOW)
        assert parse_mark(mark.as_dict()) == mark
        if not isinstance(record.get("until"), (int, float, str)):
            assert mark.overdue(NOW)

    def test_the_last_record_of_a_server_counts(self) -> None:
        assert parse_marks([MARK.as_dict(), {**MARK.as_dict(), "by": "else"}])["n3"].by == "else"


@pytest.mark.parametrize("running, record, state", [
    (None, None, "unknown"),
    (True, None, "in_service"),
    (False, None, "stopped"),
    (False, MARK.as_dict(), "in_maintenance"),
    (False, {**MARK.as_dict(), "until": NOW}, "overdue"),
    (False, {}, "stopped"),
    (True, MARK.as_dict(), "running"),
])  # fmt: skip
def test_states_of_a_host(running: bool | None, record: dict[str, Any] | None, state: str) -> None:
    found = {"maintenance": record, **({} if running is None else {"process": {"running": running}})}
    assert host_state(found, NOW) == state
    told = status({"h3": found}, {"h3": "n3"}, NOW)
    assert [(row["server_name"], row["state"]) for row in told["hosts"]] == [("n3", state)]
    assert bool(told["findings"]) == (state in {"unknown", "stopped", "overdue", "running"})
    text = "\n".join(told["lines"])
    assert all(finding in text for finding in told["findings"])
    assert ("ops@ctl" in text) == bool(record)
