# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests which versions may follow each other: the cases in upstream's guides, and properties of any two releases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.health.raft_features import common_flags
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import Cluster, JetStreamSummary
from ansible_collections.natsops.jetstream.plugins.module_utils.problem import ERROR, Problem
from ansible_collections.natsops.jetstream.plugins.module_utils.roll.version_rules import (
    VersionRules,
    api_level,
    flag_problems,
    flags_to_turn_off,
    parse,
    skipped_minors,
    version_problems,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.screen import cut
from hypothesis import given, settings
from hypothesis import strategies as st
from support.clusters import (
    cluster,
    consumer,
    server,
    stream,
)

NAMES = ["n1", "n2", "n3"]
RELEASES = [
    "2.9.10",
    "2.9.22",
    "2.10.0",
    "2.10.27",
    "2.11.0",
    "2.11.9",
    "2.12.0",
    "2.12.5",
    "2.14.0",
    "2.14.7",
    "2.15.1",
]
SERIES = ["2.9", "2.10", "2.11", "2.12", "2.14", "2.15"]

releases = st.sampled_from(RELEASES)


def running(
    *versions: str, stream_config: dict[str, Any] | None = None, level: int = 0, **consumer_config: Any
) -> Cluster:
    """Return n1, n2, n3 with these versions (the last version applies to the remaining servers), a stream, and its
    consumer."""
    of = {name: versions[min(number, len(versions) - 1)] for number, name in enumerate(NAMES)}
    reader = replace(consumer("ORDERS", "reader", NAMES), info={"config": consumer_config})
    config = {"config": {"name": "ORDERS", **(stream_config or {})}}
    orders = replace(stream("ORDERS", NAMES), info=config, api_level=level, consumers=(reader,))
    state: Cluster = cluster(NAMES, orders)
    return replace(state, servers=tuple(server(name, version=of[name]) for name in NAMES))


def codes(problems: list[Problem]) -> set[tuple[str, str]]:
    return {(problem.code, problem.severity) for problem in problems}


@pytest.mark.parametrize(
    ("version", "target", "found"),
    [
        ("2.10.27", "2.10.27", set()),
        ("2.9.10", "2.10.27", set()),
        ("2.10.27", "2.10.29", set()),
        ("2.12.15", "2.14.5", set()),
        ("2.14.7", "2.15.1", set()),
        ("2.14.5", "2.15.1", {("roll_best_start", "warning")}),
        ("2.15.0-RC.1", "2.15.0", set()),
        (
            "2.10.27",
            "2.15.1",
            {
                ("roll_skipped_minor", "error"),
                ("roll_best_start", "warning"),
                ("roll_unreadable_entries", "warning"),
            },
        ),
        ("2.10.29", "2.10.27", {("roll_downgrade", "error")}),
        ("2.15.0", "2.15.0-RC.1", {("roll_downgrade", "error")}),
        ("2.11.17", "2.10.27", {("roll_downgrade", "error"), ("roll_state_rebuild", "warning")}),
        ("2.12.15", "2.11.9", {("roll_downgrade", "error"), ("roll_state_rebuild", "warning")}),
        (
            "2.12.15",
            "2.11.8",
            {("roll_downgrade", "error"), ("roll_downgrade_floor", "error"), ("roll_state_rebuild", "warning")},
        ),
        ("2.10.27", "2.9.22", {("roll_downgrade", "error"), ("roll_state_rebuild", "warning")}),
        (
            "2.10.27",
            "2.9.10",
            {("roll_downgrade", "error"), ("roll_downgrade_floor", "error"), ("roll_state_rebuild", "warning")},
        ),
        ("2.15.1", "2.14.7", {("roll_downgrade", "error")}),
        ("", "2.10.27", {("roll_version_unknown", "error")}),
        ("devel", "2.10.27", {("roll_version_unknown", "error")}),
        ("v2.10.27", "2.10.29", set()),
        ("2.10.29+fork", "2.10.27", {("roll_downgrade", "error")}),
        ("2.15.1", "3.0.0", {("roll_version_unknown", "error")}),
    ],
)
def test_jumps(version: str, target: str, found: set[tuple[str, str]]) -> None:
    assert codes(version_problems(running(version), NAMES, VersionRules(target))) == found


def test_accepted_problems_become_warnings() -> None:
    rules = VersionRules("2.12.5", allow_skipped_minors=True, allow_downgrade=True)
    problems = version_problems(running("2.15.1"), NAMES, rules)
    assert codes(problems) == {
        (code, "warning")
        for code in ("roll_skipped_minor", "roll_downgrade", "roll_state_rebuild", "roll_unreadable_entries")
    }
    assert "2.15.1 to 2.12.5 skips 1 minor release(s)" in problems[0].message
    assert "2.14 first, accepted by allow_skipped_minors" in problems[0].message
    assert problems[0].servers == tuple(NAMES)


def test_no_permission_excuses_files_that_cannot_be_read() -> None:
    for version, target in (("2.10.27", "2.9.10"), ("2.15.1", "2.10.27")):
        rules = VersionRules(target, allow_skipped_minors=True, allow_downgrade=True)
        errors = [item for item in version_problems(running(version), NAMES, rules) if item.severity == ERROR]
        assert [problem.code for problem in errors] == ["roll_downgrade_floor"]


MIRROR = {"mirror": {"name": "ORIGIN"}}
SOURCES = {"sources": [{"name": "ORIGIN"}]}
FLAG = ["js_raft_delete_range"]
OFF = {"js_raft_delete_range": False}
ENTRIES = "roll_unreadable_entries"


def unreadable(
    state: Cluster, target: str, names: Sequence[str] = ("n1", "n2", "n3"), flags: dict[str, bool] | None = None
) -> list[tuple[str, str]]:
    """Return the severity and the flag of the Raft entries that some members could not read."""
    rules = VersionRules(target, allow_skipped_minors=True, allow_downgrade=True, feature_flags=flags or {})
    return [(one.severity, one.subject) for one in version_problems(state, names, rules) if one.code == ENTRIES]


@pytest.mark.parametrize(
    ("version", "target", "config", "flags", "found"),
    [
        # The flag is on by default since 2.15, and its entries can be read since 2.14.
        ("2.10.27", "2.15.1", MIRROR, {}, "error"),
        ("2.12.15", "2.15.0", MIRROR, {}, "error"),
        ("2.12.15", "2.15.1", MIRROR, OFF, ""),
        ("2.14.0", "2.15.1", MIRROR, {}, ""),
        ("2.12.15", "2.14.7", MIRROR, {}, ""),
        ("2.12.15", "2.14.7", MIRROR, {"js_raft_delete_range": True}, "error"),
        ("2.10.27", "2.12.15", MIRROR, {"js_raft_delete_range": True}, ""),
        # This is a downgrade to a version that cannot read the entries.
        ("2.15.1", "2.12.15", MIRROR, {}, "error"),
        ("2.15.1", "2.14.7", MIRROR, {}, ""),
        # No server writes these entries for other streams until a mirror is created.
        ("2.12.15", "2.15.1", {}, {}, "warning"),
        ("2.12.15", "2.15.1", SOURCES, {}, "warning"),
    ],
)
def test_entries_that_older_members_cannot_read(
    version: str, target: str, config: dict[str, Any], flags: dict[str, bool], found: str
) -> None:
    state = running(version, stream_config=config)
    assert unreadable(state, target, flags=flags) == ([(found, "js_raft_delete_range")] if found else [])


def test_entries_of_a_flag_that_is_off_by_default() -> None:
    state = running("2.14.7", stream_config=SOURCES)
    assert unreadable(state, "2.15.1") == []
    assert unreadable(state, "2.15.1", flags={"js_snapshot_sources": True}) == [("error", "js_snapshot_sources")]


def test_a_canary_is_refused_and_a_mixture_is_ended() -> None:
    state = running("2.12.15", stream_config=MIRROR)
    assert unreadable(state, "2.15.1", ["n1"]) == [("error", "js_raft_delete_range")]
    mixed = running("2.15.1", "2.15.1", "2.12.15", stream_config=MIRROR)
    assert unreadable(mixed, "2.15.1", ["n3"]) == [("warning", "js_raft_delete_range")]
    # One of the two servers remains on the old version.
    half = running("2.15.1", "2.12.15", "2.12.15", stream_config=MIRROR)
    assert unreadable(half, "2.15.1", ["n2"]) == [("error", "js_raft_delete_range")]
    # The only server that writes these entries stops, and can still read its own entries.
    assert unreadable(half, "2.14.7", ["n1"]) == [("warning", "js_raft_delete_range")]
    assert unreadable(half, "2.12.15", ["n1"]) == [("error", "js_raft_delete_range")]
    # The flags that a server reports determine the result, not its version.
    off = [
        replace(one, feature_flags=frozenset({"js_raft_delete_range"})) if one.version == "2.15.1" else one
        for one in mixed.servers
    ]
    assert unreadable(replace(mixed, servers=tuple(off)), "2.15.1", ["n3"], OFF) == []


def test_servers_that_are_not_running_are_judged_by_their_installed_version() -> None:
    state = running("2.12.15", stream_config=MIRROR)
    without = replace(state, servers=state.servers[:2])

    def found(version: str, target: str, flags: dict[str, bool] | None = None) -> set[tuple[str, str]]:
        return codes(
            version_problems(without, ["n3"], VersionRules(target, feature_flags=flags or {}), {"n3": version})
        )

    stopped = found("2.12.15", "2.15.1")
    assert {("roll_skipped_minor", "error"), (ENTRIES, "error")} <= stopped
    assert "roll_version_unknown" not in {code for code, _severity in stopped}
    assert ("roll_downgrade", "error") in found("2.12.15", "2.12.14")
    assert found("2.12.15", "2.12.15") == set()
    # No running server reports the streams on its disk.
    assert ("roll_version_unknown", "error") in found("2.12.15", "2.11.17")
    assert ("roll_version_unknown", "error") not in found("2.12.15", "2.12.14")


def test_new_servers_are_judged_next_to_the_running_ones() -> None:
    def found(running_version: str, target: str, level: int = 0, **flags: bool) -> set[tuple[str, str]]:
        state = running(running_version, stream_config=MIRROR, level=level)
        state = replace(state, servers=state.servers[:2])
        return codes(version_problems(state, ["n4"], VersionRules(target, feature_flags=flags), {"n4": ""}))

    # The version skips no release, but would write entries on which the other servers panic, or lack a feature that
    # their streams use.
    mixed = ("roll_mixed_versions", "warning")
    assert found("2.12.15", "2.15.1") == {(ENTRIES, "error"), mixed}
    assert found("2.12.15", "2.15.1", **OFF) == {mixed}
    assert found("2.12.15", "2.12.15", level=2) == set()
    assert found("2.12.15", "2.11.17", level=2) == {mixed, ("roll_api_level", "error")}
    assert found("2.15.1", "2.12.15") == {mixed, (ENTRIES, "error")}


def test_which_flags_are_off_next_to_older_servers() -> None:
    def off(version: str, target: str, stopped: dict[str, str] | None = None) -> list[str]:
        state = running(version)
        gone = replace(state, servers=state.servers[:2]) if stopped is not None else state
        return flags_to_turn_off(gone, "n1", target, stopped)

    flag = FLAG
    assert off("2.10.27", "2.15.1") == off("2.12.15", "2.15.1") == flag
    # The target version does not turn the flag on, or all servers can read the entries.
    assert off("2.10.27", "2.14.7") == off("2.14.0", "2.15.1") == []
    # n3 is down: its version is unknown, too old, or new enough.
    assert off("2.14.7", "2.15.1", {}) == off("2.15.1", "2.15.1", {"n3": "2.10.27"}) == flag
    assert off("2.14.7", "2.15.1", {"n3": "2.14.7"}) == off("2.14.7", "2.15.1", {"n3": ""}) == []
    # The others write the entries already.
    assert off("2.15.1", "2.15.1", {}) == []
    alone = replace(running("2.10.27"), servers=running("2.10.27").servers[:1], meta=None)
    assert flags_to_turn_off(alone, "n1", "2.15.1") == []


def with_flag(state: Cluster, *values: bool) -> Cluster:
    flag = frozenset(FLAG)
    pairs = zip(state.servers, values)
    servers = [replace(one, feature_flags=flag, enabled_flags=flag if on else frozenset()) for one, on in pairs]
    return replace(state, servers=tuple(servers))


def test_replacement_of_dead_server_keeps_flag_of_the_others() -> None:
    """n3 died and leaves; n4 joins. Unknown versions of leaving servers do not count."""
    state = running("2.15.1")
    gone = replace(state, servers=state.servers[:2])
    joining = {"n4": ""}
    assert flags_to_turn_off(with_flag(gone, True, True), "n4", "2.15.1", joining, leaving=["n3"]) == []
    # Without an operation that removes n3, the running servers prove the same.
    assert flags_to_turn_off(with_flag(gone, True, True), "n4", "2.15.1", joining) == []
    one_on = with_flag(gone, True, False)
    assert flags_to_turn_off(one_on, "n4", "2.15.1", joining) == FLAG
    assert flags_to_turn_off(one_on, "n4", "2.15.1", joining, leaving=["n3"]) == []
    # The others run with the flag off, so n4 does as well; it would otherwise be the only writer.
    assert flags_to_turn_off(with_flag(gone, False, False), "n4", "2.15.1", joining, leaving=["n3"]) == FLAG
    # A leaving server that answers still reads the entries.
    assert flags_to_turn_off(running("2.15.1", "2.15.1", "2.12.15"), "n4", "2.15.1", joining, leaving=["n3"]) == FLAG


@pytest.mark.parametrize(
    ("versions", "values", "common"),
    [
        (["2.15.1"], [True, True, False], FLAG),
        (["2.15.1"], [True, False, False], []),
        (["2.15.1"], [False, False, False], []),
        (["2.15.1", "2.15.1", "2.12.15"], [True, True, False], []),
    ],
)
def test_common_flags_are_on_in_most_servers_and_readable_by_all(
    versions: list[str], values: list[bool], common: list[str]
) -> None:
    assert common_flags(with_flag(running(*versions), *values)) == common


@pytest.mark.parametrize("value", [True, "yes"])
def test_flags_that_older_servers_cannot_bear_are_refused(value: object) -> None:
    config = {"feature_flags": {"js_raft_delete_range": value, "js_snapshot_sources": False}}
    servers = [{"name": "n1", "version": "2.15.1"}, {"name": "n2", "version": "2.12.15"}, {"name": "n3", "version": ""}]
    (problem,) = flag_problems(config, servers)
    assert problem["option"] == "feature_flags.js_raft_delete_range" and problem["severity"] == "error"
    assert problem["message"].startswith("servers before 2.14.0 (n2) would panic at every start")
    for harmless in ({"feature_flags": {"js_raft_delete_range": False}}, {"feature_flags": None}, {}):
        assert list(flag_problems(harmless, servers)) == []
    assert list(flag_problems(config, servers[:1])) == []


def test_one_server_or_one_replica_reads_its_own_entries() -> None:
    state = running("2.12.15", stream_config=MIRROR)
    alone = replace(state, servers=state.servers[:1])
    assert unreadable(alone, "2.15.1", ["n1"]) == []
    single = replace(stream("M", ["n1"]), info={"config": {"name": "M", **MIRROR}})
    assert unreadable(replace(state, streams=(single,)), "2.15.1") == [("warning", "js_raft_delete_range")]


def test_the_refusal_names_servers_streams_and_the_remedy() -> None:
    state = running("2.12.15", stream_config=MIRROR)
    rules = VersionRules("2.15.1", allow_skipped_minors=True)
    (message,) = [one.message for one in version_problems(state, NAMES, rules) if one.code == ENTRIES]
    assert message.startswith(
        "replicated mirrors make servers before 2.14.0 panic at every start: first set nats_server_config"
    )
    # The remedy is on the first line, because a screen cuts off long lines.
    assert "{feature_flags: {js_raft_delete_range: false}}" in cut(message)
    assert "at risk: n1, n2, n3 by APP/ORDERS" in message


def test_assets_that_need_a_newer_api_level_stand_in_the_way() -> None:
    state = running("2.12.15", stream_config={"allow_msg_counter": True, "allow_msg_ttl": True}, level=2)
    rules = VersionRules("2.11.17", allow_downgrade=True)
    found = [problem for problem in version_problems(state, NAMES, rules) if problem.severity == ERROR]
    assert [(problem.code, problem.subject, problem.servers) for problem in found] == [
        ("roll_api_level", "stream APP/ORDERS", ())
    ]
    assert found[0].message == (
        "stream APP/ORDERS needs API level 2 (allow_msg_ttl, allow_msg_counter), that is nats-server 2.12.0 or later; "
        "2.11.17 has level 1 and would put it offline"
    )
    older = version_problems(state, NAMES, replace(rules, target="2.10.27", allow_skipped_minors=True))
    assert "has level 0 and would load it without the unsupported parts" in older[-1].message


def test_consumers_are_named_too() -> None:
    state = running("2.11.17", priority_groups=["a"], pause_until="2030-01-01T00:00:00Z")
    orders = state.streams[0]
    paused = replace(orders.consumers[0], api_level=1)
    state = replace(state, streams=(replace(orders, consumers=(paused,)),))
    found = version_problems(state, NAMES, VersionRules("2.10.27", allow_downgrade=True))[-1]
    assert (found.code, found.subject) == ("roll_api_level", "consumer APP/ORDERS/reader")
    assert "API level 1 (pause_until, priority_groups)" in found.message


def test_reported_level_of_a_target_server_counts() -> None:
    state = running("2.12.15", "2.11.17", level=2)
    told = tuple(
        replace(item, summary=JetStreamSummary(api_level=2)) if item.version == "2.11.17" else item
        for item in state.servers
    )
    rules = VersionRules("2.11.17", allow_downgrade=True)
    assert ("roll_api_level", "error") in codes(version_problems(state, NAMES, rules))
    assert ("roll_api_level", "error") not in codes(version_problems(replace(state, servers=told), NAMES, rules))


@pytest.mark.parametrize(
    ("stream_config", "consumer_config", "word"),
    [
        ({"compression": "s2"}, {}, "its files could not be read"),
        ({"subject_transform": {"src": "a", "dest": "b"}}, {}, "subject transforms"),
        ({"sources": [{"name": "X", "subject_transforms": [{"src": "a", "dest": "b"}]}]}, {}, "subject transforms"),
        ({"consumer_limits": {"max_ack_pending": 5}}, {}, "consumer_limits"),
        ({"metadata": {"owner": "me"}}, {}, "metadata"),
        ({}, {"filter_subjects": ["a", "b"]}, "would deliver every message"),
    ],
)
def test_features_of_2_10_prevent_2_9(
    stream_config: dict[str, Any], consumer_config: dict[str, Any], word: str
) -> None:
    state = running("2.10.27", stream_config=stream_config, **consumer_config)
    problems = version_problems(state, NAMES, VersionRules("2.9.25", allow_downgrade=True))
    found = [problem for problem in problems if problem.severity == ERROR]
    assert [problem.code for problem in found] == ["roll_unknown_option"]
    assert word in found[0].message
    assert codes(version_problems(state, NAMES, VersionRules("2.10.20", allow_downgrade=True))) == {
        ("roll_downgrade", "warning")
    }


def test_servers_metadata_and_defaults_are_not_in_the_way_of_2_9() -> None:
    plain = {
        "compression": "none",
        "consumer_limits": {},
        "metadata": {"_nats.req.level": "0"},
        "sources": [{"name": "X"}],
    }
    state = running("2.10.27", stream_config=plain)
    assert codes(version_problems(state, NAMES, VersionRules("2.9.25", allow_downgrade=True))) == {
        ("roll_downgrade", "warning"),
        ("roll_state_rebuild", "warning"),
    }


def test_an_interrupted_run_resumes_from_a_mixed_cluster() -> None:
    state = running("2.10.27", "2.9.10")
    assert version_problems(state, NAMES, VersionRules("2.10.27")) == []
    skipping = version_problems(running("2.15.1", "2.10.27"), NAMES, VersionRules("2.15.1"))
    assert [problem.servers for problem in skipping if problem.code == "roll_skipped_minor"] == [("n2", "n3")]


def test_servers_that_are_left_behind_are_named() -> None:
    problems = version_problems(running("2.9.10"), ["n1", "n2"], VersionRules("2.10.27"))
    assert [(problem.code, problem.severity, problem.servers) for problem in problems] == [
        ("roll_mixed_versions", "warning", ("n3",))
    ]
    assert "n3 would stay at 2.9.10 while the others run 2.10.27" in problems[0].message


def test_a_server_that_did_not_answer_is_reported() -> None:
    problems = version_problems(running("2.10.27"), [*NAMES, "n4"], VersionRules("2.10.27"))
    assert [(problem.code, problem.severity, problem.servers) for problem in problems] == [
        ("roll_version_unknown", "warning", ("n4",))
    ]


def test_2_13_does_not_exist() -> None:
    assert skipped_minors("2.12.5", "2.14.0") == []
    assert skipped_minors("2.10.27", "2.15.1") == ["2.11", "2.12", "2.14"]
    assert skipped_minors("2.15.1", "2.10.27") == ["2.14", "2.12", "2.11"]


def test_api_levels() -> None:
    assert [api_level(version) for version in ("2.10.29", "2.11.0", "2.12.4", "2.12.5", "2.14.5", "2.15.1")] == [
        0,
        1,
        2,
        3,
        4,
        5,
    ]
    assert api_level("2.16.0") is None


def test_an_unknown_level_is_not_an_obstacle() -> None:
    state = running("2.17.0", level=6)
    rules = VersionRules("2.16.0", allow_downgrade=True)
    assert codes(version_problems(state, NAMES, rules)) == {("roll_downgrade", "warning")}


@settings(deadline=None)
@given(st.lists(releases, min_size=3, max_size=3), releases, st.integers(0, 6))
def test_permission_only_removes_errors(versions: list[str], target: str, level: int) -> None:
    state = running(*versions, level=level)
    strict = version_problems(state, NAMES, VersionRules(target))
    lenient = version_problems(state, NAMES, VersionRules(target, True, True))
    assert [(item.code, item.subject) for item in strict] == [(item.code, item.subject) for item in lenient]
    assert {item for item in lenient if item.severity == ERROR} <= {item for item in strict if item.severity == ERROR}
    assert all(item.code not in ("roll_downgrade", "roll_skipped_minor") for item in lenient if item.severity == ERROR)


@settings(deadline=None)
@given(st.lists(releases, min_size=3, max_size=3), releases, st.integers(0, 6))
def test_server_already_on_the_target_is_not_a_reason(versions: list[str], target: str, level: int) -> None:
    there = {name for name, version in zip(NAMES, versions) if version == target}
    for problem in version_problems(running(*versions, level=level), NAMES, VersionRules(target)):
        assert there.isdisjoint(problem.servers)


@settings(deadline=None)
@given(releases, releases, st.integers(0, 6))
def test_an_upgrade_is_refused_only_for_skipped_versions(version: str, target: str, level: int) -> None:
    problems = version_problems(running(version, level=level), NAMES, VersionRules(target))
    errors = {problem.code for problem in problems if problem.severity == ERROR}
    far = abs(SERIES.index(version.rpartition(".")[0]) - SERIES.index(target.rpartition(".")[0])) > 1
    assert ("roll_skipped_minor" in errors) == far
    if parse(version) <= parse(target):
        assert errors <= {"roll_skipped_minor"}
    else:
        assert "roll_downgrade" in errors


@settings(deadline=None)
@given(releases, releases)
def test_a_skip_becomes_legal_steps(version: str, target: str) -> None:
    steps = [version, *(f"{series}.99" for series in skipped_minors(version, target)), target]
    for here, there in zip(steps, steps[1:]):
        assert "roll_skipped_minor" not in {
            item.code for item in version_problems(running(here), NAMES, VersionRules(there))
        }
