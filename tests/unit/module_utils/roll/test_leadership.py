# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests which servers may lead, which of them can, and how a step-down is completed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import (
    META,
    STREAM,
    MetaGroup,
    Peer,
    RaftGroup,
    Server,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.roll import step_down as step_down_module
from ansible_collections.natsops.jetstream.plugins.module_utils.roll.leadership import (
    FITS,
    REFUSED,
    SINGLE,
    STEP_DOWN,
    LeaderConstraints,
    LeadershipPlan,
    leader_by_majority,
    plan_group,
    supports_placement,
    unknown_names,
    with_targets,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.roll.step_down import Reading, StepDownJob, step_down

NAMES = ("n1", "n2", "n3")


def server(name: str, version: str = "2.15.1", cluster: str = "C1", tags: tuple[str, ...] = ()) -> Server:
    return Server(name=name, id=name.upper(), version=version, cluster=cluster, tags=tags)


def servers(version: str = "2.15.1", names: Sequence[str] = NAMES) -> dict[str, Server]:
    return {name: server(name, version) for name in names}


def group(leader: str | None = "n1", names: Sequence[str] = NAMES, **states: Peer) -> RaftGroup:
    """Return a group; `states` contains the members that are not simply in step."""
    peers = tuple(states.get(name, Peer(name, current=True)) for name in names if name != leader)
    leaders = () if leader is None else (leader,)
    return RaftGroup(STREAM, "stream A/S", len(names), leaders, peers if leader else (), tuple(names))


@pytest.mark.parametrize(
    ("constraints", "action", "reason"),
    [
        (LeaderConstraints(away_from=frozenset(["n2"])), FITS, ""),
        (LeaderConstraints(preferred="n1"), FITS, ""),
        (LeaderConstraints(away_from=frozenset(["n1"])), STEP_DOWN, ""),
        (LeaderConstraints(force=True), STEP_DOWN, ""),
        (LeaderConstraints(preferred="n4"), REFUSED, "n4 is not one of its members (n1, n2, n3)"),
        (
            LeaderConstraints(preferred="n1", force=True),
            REFUSED,
            "n1 is excluded; n2 is not n1; n3 is not n1",
        ),
        (LeaderConstraints(away_from=frozenset(NAMES)), REFUSED, "none of its members may lead"),
        (LeaderConstraints(cluster="C2"), REFUSED, "n1 is in cluster C1; n2 is in cluster C1; n3 is in cluster C1"),
        (LeaderConstraints(tags=("az:2",)), REFUSED, "n2 has no tag az:2"),
    ],
)
def test_the_leader_is_judged_by_the_wish(constraints: LeaderConstraints, action: str, reason: str) -> None:
    plan = plan_group(group(), constraints, servers())
    assert plan.action == action
    assert reason in plan.reason
    assert not plan.transient


@pytest.mark.parametrize(
    ("found", "constraints", "reason"),
    [
        (
            group(None),
            LeaderConstraints(force=True),
            "no leader; 2 of its 3 members must be up and agree (known: n1, n2, n3)",
        ),
        (
            replace(group(), leaders=("n1", "n2")),
            LeaderConstraints(force=True),
            "more than one server claims to lead: n1, n2",
        ),
        (group(n2=Peer("n2", current=True, offline=True)), LeaderConstraints(preferred="n2"), "n2 is offline"),
        (
            group(n2=Peer("n2", lag=900, active=0.5)),
            LeaderConstraints(preferred="n2"),
            "n2 is not current (900 entries behind, last seen",
        ),
        (
            group(n2=Peer("n2", current=True, active=4.0)),
            LeaderConstraints(preferred="n2"),
            "last seen 4.0 s ago",
        ),
        (group(n2=Peer("n2", active=1e9)), LeaderConstraints(preferred="n2"), "not seen yet"),
        (group(names=("n1", "n9")), LeaderConstraints(force=True), "n9 did not answer"),
        (
            group(names=("n1", "n2", "n3", "n4", "n5"), n3=Peer("n3"), n4=Peer("n4", current=True)),
            LeaderConstraints(preferred="n2"),
            "only 2 of its 5 members are in step, but an election needs 3",
        ),
    ],
)
def test_temporary_states_are_refused_for_now(found: RaftGroup, constraints: LeaderConstraints, reason: str) -> None:
    plan = plan_group(found, constraints, servers())
    assert (plan.action, plan.transient) == (REFUSED, True)
    assert reason in plan.reason


def test_a_single_replica_cannot_be_led_by_another_server() -> None:
    plan = plan_group(group(names=("n1",)), LeaderConstraints(force=True), servers())
    assert (plan.action, plan.reason) == (SINGLE, "a single replica, on n1, which is excluded")
    assert plan_group(group(names=("n1",)), LeaderConstraints(preferred="n1"), servers()).action == FITS


def test_names_match_completely_and_tags_in_lower_case() -> None:
    there = [server("n1", tags=("az:1",)), server("n10", tags=("az:2",))]
    assert unknown_names(LeaderConstraints(preferred="n10", tags=("AZ:2",), cluster="C1"), there, ()) == []
    assert unknown_names(LeaderConstraints(preferred="n2"), there, ["n2"]) == []
    assert unknown_names(LeaderConstraints(away_from=frozenset(["n"])), there, ()) == [
        "away_from: there is no server named n (there are: n1, n10)"
    ]
    assert len(unknown_names(LeaderConstraints("n3", frozenset(["n4"]), "c1", ("az:3",)), there, ())) == 4
    byname = {item.name: item for item in there}
    plan = plan_group(group("n1", ("n1", "n10")), LeaderConstraints(away_from=frozenset(["n1"])), byname)
    assert plan.candidates == ("n10",)
    assert (
        plan_group(group("n10", ("n1", "n10")), LeaderConstraints(away_from=frozenset(["n1"])), byname).action == FITS
    )
    assert plan_group(group("n1", ("n1", "n10")), LeaderConstraints(tags=("Az:2",)), byname).candidates == ("n10",)
    assert (
        "its cluster and tags are unknown"
        in plan_group(group("n1", ("n1", "n10")), LeaderConstraints(tags=("az:2",)), {}).reason
    )


@pytest.mark.parametrize(
    ("version", "expected"), [("2.10.27", False), ("2.11.0-RC.1", True), ("2.15.1", True), ("3.0.0", True)]
)
def test_a_preferred_leader_needs_2_11(version: str, expected: bool) -> None:
    assert bool(supports_placement([server("n1", version)])) is expected


def test_new_leaders_are_spread() -> None:
    constraints = LeaderConstraints(away_from=frozenset(["n1"]))
    plans = [plan_group(group(), constraints, servers()) for _number in range(5)]
    spread = [plan.target for plan in with_targets(plans, NAMES, ["n1"] * 5 + ["n2"] * 2)]
    assert spread == ["n3", "n3", "n2", "n3", "n2"]
    assert [plan.expected for plan in with_targets(plans[:1], (), ())] == [None]
    avoiding = [replace(plan, constraints=LeaderConstraints(avoid=frozenset(["n3"]))) for plan in plans]
    assert {plan.target for plan in with_targets(avoiding, NAMES, ["n2"] * 9)} == {"n2"}
    nowhere_else = [replace(plan, constraints=LeaderConstraints(avoid=frozenset(NAMES))) for plan in plans]
    assert [plan.target for plan in with_targets(nowhere_else, NAMES, ["n1"] * 5 + ["n2"] * 2)] == spread
    only = plan_group(group(), LeaderConstraints(preferred="n3"), servers("2.10.27"))
    assert with_targets([only], (), ())[0].expected == "n3"


def test_a_majority_must_name_the_meta_leader() -> None:
    meta = replace(group(names=("n1", "n2", "n3", "n4", "n5")), kind=META)
    views = {"n1": "n1", "n2": "n1", "n3": "n1", "n4": "", "n5": "n9"}
    assert leader_by_majority(MetaGroup(meta, views)).leader == "n1"
    assert leader_by_majority(MetaGroup(meta, {**views, "n3": "n9"})).leader is None
    assert leader_by_majority(MetaGroup(meta, views, quorum_needed=4)).leader is None
    assert leader_by_majority(MetaGroup(replace(meta, leaders=("n1", "n9")), views)).leaders == ("n1", "n9")


# --- completing a step-down -----------------------------------------------------------------------------------------


class Script:
    """Groups whose leaders follow a script: each accepted request advances that group to its next reading."""

    def __init__(self, **readings: list[Reading]) -> None:
        self.readings = readings
        self.asked: list[tuple[str, Any]] = []
        self.refusals: dict[str, NatsFailure] = {}
        self.without_leader = 0

    def read(self, keys: Sequence[str]) -> list[Reading]:
        return [self.readings[key][0] for key in keys]

    def ask(self, requests: Sequence[tuple[str, Mapping[str, Any]]]) -> list[NatsFailure | None]:
        self.without_leader = max(self.without_leader, len(requests))
        answers = []
        for key, body in requests:
            self.asked.append((key, body.get("placement", {}).get("preferred")))
            if len(self.readings[key]) > 1:
                self.readings[key].pop(0)
            answers.append(self.refusals.get(key))
        return answers


def jobs_for(script: Script, constraints: LeaderConstraints, there: Mapping[str, Server]) -> list[StepDownJob[str]]:
    plans: dict[str, LeadershipPlan] = {}
    for key, readings in script.readings.items():
        first = readings[0]
        assert isinstance(first, RaftGroup)
        plans[key] = plan_group(first, constraints, there)
    planned = with_targets(list(plans.values()), supports_placement(there.values()), ())
    return [StepDownJob(key, plan) for key, plan in zip(plans, planned)]


def run(
    script: Script, jobs: list[StepDownJob[str]], there: Mapping[str, Server], wait_timeout: float, concurrency: int = 1
) -> None:
    step_down(script, jobs, there, supports_placement(there.values()), wait_timeout, concurrency)


def test_an_older_leader_steps_down_until_a_suitable_one_leads() -> None:
    script = Script(a=[group("n1"), group("n3"), group("n1"), group("n2")])
    (job,) = jobs_for(script, LeaderConstraints(preferred="n2"), servers("2.10.27"))
    run(script, [job], servers("2.10.27"), 5)
    assert (job.done, job.failed, job.attempts, job.leader) == (True, None, 3, "n2")
    assert script.asked == [("a", None)] * 3


def test_chance_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_down_module, "POLL_SECONDS", 0)
    script = Script(a=[group("n1"), group("n3")] * 50)
    (job,) = jobs_for(script, LeaderConstraints(preferred="n2"), servers("2.10.27"))
    run(script, [job], servers("2.10.27"), 60)
    assert job.attempts == 20
    assert job.failed == "n1 leads after 20 step-downs"


def test_a_preferred_leader_that_is_passed_over_is_tried_three_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_down_module, "POLL_SECONDS", 0)
    script = Script(a=[group("n1"), group("n3")] * 50)
    (job,) = jobs_for(script, LeaderConstraints(preferred="n2"), servers())
    run(script, [job], servers(), 60)
    assert script.asked == [("a", "n2")] * 3
    assert job.failed == "n3 leads after 3 step-downs"


def test_a_leader_that_stays_is_given_time() -> None:
    script = Script(a=[group("n1")])
    (job,) = jobs_for(script, LeaderConstraints(preferred="n2"), servers())
    run(script, [job], servers(), 0.5)
    assert job.attempts == 1
    assert job.failed == "n1 leads 0.5 s and 1 step-down later"


def test_changes_by_other_operators_are_kept() -> None:
    script = Script(a=[group("n2")], b=[group("n3"), group("n2")])
    plan = plan_group(group("n1"), LeaderConstraints(force=True), servers())
    jobs = [StepDownJob(key, plan) for key in ("a", "b")]
    run(script, jobs, servers(), 5)
    assert [job.done for job in jobs] == [True, True]
    assert [job.attempts for job in jobs] == [0, 0]
    assert script.asked == []


def test_failures_of_one_group_leave_the_others() -> None:
    gone = NatsFailure("api_error", "stream not found", err_code=10059)
    script = Script(
        a=[group("n1"), group("n2")],
        b=[group("n1"), gone],
        c=[group("n1"), NatsFailure("timeout", "no reply")],
        d=[group("n1"), group("n2")],
        e=[group("n1")],
    )
    script.refusals = {
        "d": NatsFailure("timeout", "no reply"),
        "e": NatsFailure("api_error", "preferred server is already leader", err_code=10005),
    }
    jobs = jobs_for(script, LeaderConstraints(preferred="n2"), servers())
    run(script, jobs, servers(), 1, concurrency=2)
    outcome = {job.key: (job.done, job.attempts, job.failed) for job in jobs}
    assert outcome == {
        "a": (True, 1, None),
        "b": (False, 1, "stream not found"),
        "c": (False, 1, "it has no leader 1 s and 1 step-down later (last trouble: no reply)"),
        "d": (True, 1, None),
        "e": (False, 0, "n1 leads 1 s and 0 step-downs later (last trouble: preferred server is already leader)"),
    }
    assert script.without_leader <= 2


def test_unreached_condition_is_reported() -> None:
    script = Script(a=[group("n1")], b=[group("n1")])
    jobs = jobs_for(script, LeaderConstraints(preferred="n2"), servers())
    run(script, jobs, servers(), 0.2, concurrency=1)
    assert jobs[1].failed == "was not reached within 0.2 s"
    assert [key for key, _preferred in script.asked] == ["a"]
