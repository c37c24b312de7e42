# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the documents of a membership plan: the order of the steps, their hosts, and their gates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import Cluster, JetStreamSummary
from ansible_collections.natsops.jetstream.plugins.module_utils.placement.membership_plan import (
    KEEP,
    REPLACE,
    SCALE_IN,
    SCALE_OUT,
    InventoryServer,
    MembershipOptions,
    plan_membership,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.placement.membership_steps import (
    StepOptions,
    first_gate,
    next_operation,
    result_lines,
    step_documents,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.placement.scale_in import ScaleInRules
from support.clusters import cluster, meta, server

FIVE = ["n1", "n2", "n3", "n4", "n5"]
THREE = FIVE[:3]
RULES = ScaleInRules()
OPTIONS = StepOptions(tolerate=("meta_pending",), began=1795254003)


def live(names: list[str], known: list[str] | None = None) -> Cluster:
    """Return a cluster of servers that respond; `known` are the members of its meta group, by default the same
    servers."""
    room = JetStreamSummary(max_storage=1000, max_memory=100)
    made = cluster(names)
    return replace(made, servers=tuple(server(name, summary=room) for name in names), meta=meta(known or names))


def hosts(names: list[str]) -> tuple[InventoryServer, ...]:
    return tuple(InventoryServer(f"{name}.example.com", name, "C1") for name in names)


def steps(
    among: Cluster, request: MembershipOptions, rules: ScaleInRules = RULES, options: StepOptions = OPTIONS
) -> list[dict[str, Any]]:
    made = plan_membership(among, request, rules)
    assert made.refusals == ()
    return step_documents(made, request, rules, options)


def actions(documents: list[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """Return the action and the servers of each step."""
    return [(document["action"], document["servers"]) for document in documents]


def gate_names(gate: dict[str, Any] | None) -> tuple[list[str], list[str], list[str]] | None:
    """Return the expected, tolerated and stopped servers of a gate."""
    if gate is None:
        return None
    assert gate["tolerate"][0] == "meta_pending"
    return [member["server_name"] for member in gate["expected"]], gate["tolerate"][1:], gate["stop_servers"]


def leave(*names: str, **options: Any) -> MembershipOptions:
    return MembershipOptions(SCALE_IN, "the cluster C1", hosts(THREE), hosts(list(names)), **options)


def test_each_leaver_has_a_gate_before_its_stop_and_after_its_removal() -> None:
    """n6 is down but still a member, n5 and n4 are running, and n7 has left already."""
    among, request = live(FIVE, known=[*FIVE, "n6"]), leave("n4", "n5", "n6", "n7")
    made = plan_membership(among, request, RULES)
    documents = steps(among, request)
    order = [document["servers"][0] for document in documents[:-1]]
    assert set(order[:2]) == {"n6", "n7"} and set(order[2:]) == {"n4", "n5"}
    begin = first_gate(made, request, OPTIONS).as_dict()
    assert gate_names(begin) == (["n1", "n2", "n3", *order[2:]], ["n6"], [])
    gates = {document["servers"][0]: document["gates"] for document in documents[:-1]}
    assert gates["n7"] == {}
    assert gates["n6"].keys() == {"after"}
    assert gate_names(gates["n6"]["after"]) == (["n1", "n2", "n3", *order[2:]], [], [])
    first, last = order[2:]
    assert gate_names(gates[first]["before"]) == (["n1", "n2", "n3", last, first], ["n6", first], [first])
    assert gate_names(gates[first]["after"]) == (["n1", "n2", "n3", last], ["n6"], [])
    assert gate_names(gates[last]["before"]) == (["n1", "n2", "n3", last], ["n6", last], [last])
    assert gate_names(gates[last]["after"]) == (["n1", "n2", "n3"], ["n6"], [])
    # A gate before a stop must see the problems of the stop, and never relies on the gate after the last step.
    assert all(gates[name]["before"]["stop_policy"] == "fail" for name in (first, last))
    assert not any(gates[name]["before"]["shared"] for name in (first, last))


@pytest.mark.parametrize(
    ("operation", "options", "tolerated"),
    [(REPLACE, {"replace": "n3.example.com"}, ["n3"]), (SCALE_OUT, {}, []), (KEEP, {}, [])],
)
def test_only_a_replacement_tolerates_its_server(operation: str, options: dict[str, Any], tolerated: list[str]) -> None:
    among = live(["n1", "n2"], known=["n1", "n2", "n3"])
    request = MembershipOptions(operation, "the cluster C1", hosts(["n1", "n2", "n3"]), **options)
    made = plan_membership(among, request, RULES)
    assert gate_names(first_gate(made, request, OPTIONS).as_dict()) == (["n1", "n2"], tolerated, [])


def test_servers_leave_before_the_others_are_deployed() -> None:
    documents = steps(live(FIVE), leave("n4", "n5"))
    assert actions(documents) == [("decommission", ["n4"]), ("decommission", ["n5"]), ("deploy", THREE)]
    assert [document["title"] for document in documents] == [
        "step 1 of 3: decommission n4",
        "step 2 of 3: decommission n5",
        "step 3 of 3: deploy the inventory",
    ]
    assert documents[1]["progress"] == {
        "title": "step 2 of 3: decommission n5",
        "step": 2,
        "steps": 3,
        "began": 1795254003,
    }
    assert documents[0]["remaining"] == [f"{name}.example.com" for name in ["n5", *THREE]]


def test_only_reachable_hosts_take_part_in_their_decommissioning() -> None:
    dead = steps(live(FIVE[:4], known=FIVE), leave("n5", "n4", reachable_hosts=frozenset(["n4.example.com"])))
    assert [(step["servers"], step["hosts"]) for step in dead[:-1]] == [(["n5"], []), (["n4"], ["n4.example.com"])]
    unlisted = replace(leave("n4"), leaving=(InventoryServer("", "n4", "C1"),))
    assert steps(live(THREE, known=FIVE[:4]), unlisted)[0]["hosts"] == []


def test_a_running_server_gets_no_new_replicas_and_is_emptied_before_its_stop() -> None:
    running, down, gone = (
        steps(among, leave("n4"))[0] for among in (live(FIVE[:4]), live(THREE, known=FIVE[:4]), live(THREE))
    )
    assert [step["exclude_first"] for step in (running, down, gone)] == [True, False, False]
    emptied = [(step["drain"]["leaders"], step["drain"]["replicas"]) for step in (running, down, gone)]
    assert emptied == [(True, True), (True, True), (False, False)]


@pytest.mark.parametrize("policy", ["fail", "move"])
@pytest.mark.parametrize("accepted", [[], ["APP/ORDERS"]])
def test_only_accepted_losses_are_allowed(policy: str, accepted: list[str]) -> None:
    rules = ScaleInRules(r1_policy=policy, accept_loss=frozenset(accepted))
    running = steps(live(FIVE[:4]), leave("n4"), rules)[0]
    down = steps(live(THREE, known=FIVE[:4]), leave("n4"), rules)[0]
    # A loss accepted for a dead server does not allow moves with losses off a running one.
    assert running["drain"]["accept_loss"] is (policy == "move")
    assert down["drain"]["accept_loss"] is bool(accepted)


@pytest.mark.parametrize("rebalance", [False, True])
def test_new_servers_join_before_the_deployment(rebalance: bool) -> None:
    request = MembershipOptions(SCALE_OUT, "the cluster C1", hosts(FIVE))
    options = replace(OPTIONS, rebalance=rebalance, wait_timeout=7, stall_timeout=5)
    documents = steps(live(THREE), request, options=options)
    assert actions(documents) == [("join", ["n4", "n5"]), ("deploy", FIVE), *[("rebalance", FIVE)] * rebalance]
    gate = documents[0]["gates"]["after"]
    assert gate_names(gate) == (FIVE, [], [])
    assert (gate["required"], gate["wait_timeout"], gate["stall_timeout"]) == (True, 7, 5)
    assert documents[0]["hosts"] == ["n4.example.com", "n5.example.com"]
    assert actions(steps(live(FIVE), request)) == [("deploy", FIVE)]


def test_a_server_returns_before_the_deployment() -> None:
    request = MembershipOptions(REPLACE, "the cluster C1", hosts(THREE), replace="n3.example.com")
    documents = steps(live(["n1", "n2"], known=THREE), request)
    assert actions(documents) == [("join", ["n3"]), ("deploy", THREE)]
    assert gate_names(documents[0]["gates"]["after"]) == (THREE, [], [])
    assert next_operation(request) == ""
    # An interrupted run has already started the server.
    assert actions(steps(live(THREE), request)) == [("deploy", THREE)]


def test_a_dead_server_is_removed_by_a_second_plan_once_its_replacement_has_joined() -> None:
    members, leaving = hosts(["n1", "n2", "n4"]), hosts(["n3"])
    request = MembershipOptions(
        REPLACE, "the cluster C1", members, leaving, replace="n3.example.com", replacement="n4.example.com"
    )
    (join,) = steps(live(["n1", "n2"], known=THREE), request)
    assert (join["action"], join["servers"]) == ("join", ["n4"])
    # The dead server is still a member while its replacement joins.
    assert gate_names(join["gates"]["after"]) == (["n1", "n2", "n4"], ["n3"], [])
    assert next_operation(request) == SCALE_IN
    then = replace(request, operation=SCALE_IN, reachable_hosts=frozenset())
    documents = steps(live(["n1", "n2", "n4"], known=[*THREE, "n4"]), then)
    assert actions(documents) == [("decommission", ["n3"]), ("deploy", ["n1", "n2", "n4"])]
    assert documents[0]["gates"].keys() == {"after"}
    assert next_operation(then) == ""


def test_a_refused_plan_and_one_that_changes_no_members_have_no_steps() -> None:
    refused = leave("n3", "n4")
    made = plan_membership(live(FIVE[:4]), refused, RULES)
    assert made.refusals and step_documents(made, refused, RULES, OPTIONS) == []
    assert steps(live(THREE), MembershipOptions(KEEP, "the cluster C1", hosts(THREE))) == []


def test_result_of_a_replacement_names_the_losses() -> None:
    returned = MembershipOptions(REPLACE, replace="n3")
    lost = "Restore or delete, because their only replica is lost: APP/A, APP/B."
    assert result_lines(returned, []) == ["n3 is back in service."]
    assert result_lines(returned, ["APP/A", "APP/B"]) == ["n3 is back in service.", lost]
    renamed = replace(returned, replacement="n4", leaving=(InventoryServer("n3", "n3"),))
    assert result_lines(renamed, []) == ["n4 replaced n3: remove n3 from the inventory."]
    unlisted = replace(renamed, leaving=(InventoryServer("", "n3"),))
    assert result_lines(unlisted, []) == ["n4 replaced n3."]
    assert result_lines(leave("n4"), ["APP/A"]) == []
