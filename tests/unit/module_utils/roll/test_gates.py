# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests when a passed gate covers the next one: every combination of the steps between them, and each way in which the
passed gate verified less."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from itertools import product

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.roll.batches import Rolling, batch_documents
from ansible_collections.natsops.jetstream.plugins.module_utils.roll.gates import (
    Coverage,
    Gate,
    Steps,
    gate_covers,
    parse_gate,
)
from hypothesis import given
from hypothesis import strategies as st

NAMES = ["n1", "n2", "n3"]
VERSIONS = dict.fromkeys(NAMES, "2.15.1")
#: A gate that verified the stop of n2, and the same gate as a requirement.
GATE = Gate(
    stop_servers=frozenset({"n2"}),
    expected_servers=frozenset(NAMES),
    tolerate=frozenset({"n3"}),
    maintenance=frozenset({"n3"}),
    r1_policy="fail",
    max_lag=200,
    samples=4,
    span=5,
    versions=VERSIONS,
)
OPTIONS = {
    "drain_clients": True,
    "samples": 4,
    "span": 10.0,
    "span_between": 5.0,
    "tolerate": ["consumer_no_leader"],
}


def requested(arguments: dict[str, object], versions: dict[str, str]) -> Gate:
    """Return the gate with the arguments of a plan, as the gate module evaluates it."""
    names = ("stop_servers", "tolerate", "r1_policy", "samples", "span")
    common = {"expected_servers": NAMES, "maintenance": [], "max_lag": 200, "versions": versions}
    return parse_gate({**common, **{name: arguments[name] for name in names}})


@pytest.mark.parametrize("before", ["2.10.27", "2.15.1", None])
@pytest.mark.parametrize("now", ["2.10.27", "2.15.1", None])
@pytest.mark.parametrize("r1_policy", ["accept", "fail", "move"])
def test_every_combination_of_steps_and_versions(r1_policy: str, before: str | None, now: str | None) -> None:
    """`before`: the version of n2 in the last sample of the gate after batch 1; `now`: its version in the plan."""
    shared = 0
    for drain, restore, hooks in product([True, False], repeat=3):
        rolling = Rolling(
            {**OPTIONS, "drain": drain, "restore_leaders": restore, "hooks": hooks},
            r1_policy,
            began=0,
            versions={"n1": "2.15.1", **({"n2": now} if now else {})},
        )
        first, second = batch_documents([["n1"], ["n2"]], {"n1": "h1", "n2": "h2"}, rolling)
        sampled = {"n1": "2.15.1", **({"n2": before} if before else {})}
        passed = requested(first["gates"]["after"], sampled)
        gate = second["gates"]["before"]
        previous = gate["previous"]
        found = gate_covers(passed, requested(gate, previous["versions"]), Steps(**previous["steps"]))
        allowed = drain and not restore and not hooks and r1_policy != "move"
        assert found.covered == (allowed and now is not None and before == now), found.reason
        assert found.reason
        assert gate["previous_host"] == "h1"
        # The plan announces the decision of the module if the server still runs the same version.
        assert gate["shared"] == (allowed and now is not None)
        if found.covered:
            shared += 1
            assert second["drain"]["leaders"], "the gate `drained` precedes the stop"
            assert second["gates"]["drained"]["stop_servers"] == ["n2"]
            assert first["gates"]["after"]["stop_servers"] == ["n2"]
        else:
            assert not gate_covers(None, requested(gate, previous["versions"]), Steps(**previous["steps"])).covered
    assert shared == (1 if r1_policy != "move" and now is not None and before == now else 0)


def test_gate_covers_itself() -> None:
    assert gate_covers(GATE, GATE, Steps()) == Coverage(
        True, "the gate after the last batch also evaluated this stop, and nothing has changed since"
    )
    assert parse_gate(GATE.as_dict()) == GATE


@pytest.mark.parametrize(
    ("previous", "reason"),
    [
        (None, "no gate has passed"),
        (replace(GATE, stop_servers=frozenset()), "did not evaluate the stop of n2"),
        (replace(GATE, stop_servers=frozenset({"n1"})), "did not evaluate the stop of n2"),
        (replace(GATE, expected_servers=frozenset({"n1", "n2"})), "did not expect n3"),
        (replace(GATE, maintenance=frozenset()), "different servers in maintenance: n3"),
        (replace(GATE, maintenance=frozenset({"n1", "n3"})), "different servers in maintenance: n1"),
        (replace(GATE, tolerate=frozenset({"n1", "n3"})), "tolerated n1"),
        (replace(GATE, r1_policy="accept"), "accepted unavailable single replicas"),
        (replace(GATE, max_lag=201), "accepted replicas that are 201 entries behind"),
        (replace(GATE, samples=3), "took 3 sample(s) in 5 s"),
        (replace(GATE, span=4.5), "took 4 sample(s) in 4.5 s"),
        (replace(GATE, versions={**VERSIONS, "n2": "2.10.27"}), "another version than the plan, or none, on n2"),
        (replace(GATE, versions=None), "another version than the plan, or none, on n2"),
    ],
)
def test_gate_that_verified_less_is_not_shared(previous: Gate | None, reason: str) -> None:
    found = gate_covers(previous, GATE, Steps())
    assert not found.covered and reason in found.reason


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        (Steps(drain=False), "no sample is taken right before the stop"),
        (Steps(move_single_replicas=True), "single replicas move"),
        (Steps(restore_leaders=True), "leaders are restored"),
        (Steps(hooks=True), "a hook runs"),
    ],
)
def test_step_in_between_separates_gates(steps: Steps, reason: str) -> None:
    found = gate_covers(GATE, GATE, steps)
    assert not found.covered and reason in found.reason


def test_gate_without_a_stop_is_never_covered() -> None:
    nothing = replace(GATE, stop_servers=frozenset())
    assert not gate_covers(GATE, nothing, Steps()).covered


names = st.frozensets(st.sampled_from([*NAMES, "n4"]))
versions = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["2.10.27", "2.15.1"]))
gates = st.builds(
    Gate,
    stop_servers=names,
    expected_servers=names,
    tolerate=names,
    maintenance=names,
    r1_policy=st.sampled_from(["accept", "fail"]),
    max_lag=st.integers(0, 3),
    samples=st.integers(1, 3),
    span=st.integers(0, 3),
    versions=versions,
)


fields = st.frozensets(st.sampled_from([field.name for field in dataclasses.fields(Gate)]), max_size=2)
steps = st.sampled_from([Steps(), *(Steps(*flags) for flags in product([True, False], repeat=4))])


@given(gates, gates, fields, steps)
def test_covering_gate_accepts_no_state_that_the_next_gate_refuses(
    previous: Gate, other: Gate, different: frozenset[str], steps: Steps
) -> None:
    gate = replace(previous, **{name: getattr(other, name) for name in different})
    if not gate_covers(previous, gate, steps).covered:
        return
    assert steps == Steps()
    assert gate.stop_servers and gate.stop_servers <= previous.stop_servers
    assert gate.expected_servers <= previous.expected_servers
    assert previous.tolerate <= gate.tolerate and previous.maintenance == gate.maintenance
    assert (previous.r1_policy, gate.r1_policy) != ("accept", "fail")
    assert previous.max_lag <= gate.max_lag
    assert previous.samples >= gate.samples and previous.span >= gate.span
    assert all((previous.versions or {})[name] == (gate.versions or {})[name] for name in gate.stop_servers)
