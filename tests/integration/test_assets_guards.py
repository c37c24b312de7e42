# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every guard of a plan of assets fires on real servers, and nats_assets_apply then leaves the asset unchanged.

tests/unit/module_utils/assets has the guards that need no server: mirrors with subjects, overlaps inside documents, two
documents with one asset, and empty templates. test_assets_apply_module has those of a run: stale plans, entries of
other clients, and check mode."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.jetstream_api import JetStreamApi
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from support.application import application_api
from support.asset_team import Document, Result, Team, states
from support.module_runs import Runner, form
from support.nats_processes import NatsProcesses

pytestmark = pytest.mark.usefixtures("tidy")


def row(plan: Result, name: str) -> dict[str, Any]:
    (found,) = [one for one in plan["assets"] if one["name"] == name]
    return dict(found)


def reasons(found: dict[str, Any]) -> str:
    return "; ".join([*found["problems"], *(one["message"] for one in found["costs"]), *found["notes"]])


def live(api: JetStreamApi) -> dict[str, Any]:
    """Return the configuration, creation and messages of each stream, and its consumers."""
    return {
        info["config"]["name"]: (
            info["config"],
            info["created"],
            info["state"]["messages"],
            [(one["name"], one["config"], one["created"]) for one in api.consumers(info["config"]["name"]).rows],
        )
        for info in api.streams().rows
    }


def keep_messages(api: JetStreamApi, stream: str, subject: str, count: int = 4) -> None:
    for _number in range(count):
        api.store(subject, b"x" * 10)


WORK: Document = {"retention": "workqueue", "consumers": {"a": {"filter_subjects": ["S.a"]}}, "subjects": ["S.*"]}
INTEREST: Document = {"retention": "interest", "consumers": {"a": {}, "b": {}}}

#: The declared stream before, the messages in it, the stream afterwards, the asset of the guard, its state and reason.
CASES: dict[str, tuple[Document, int, Document, str, str, str]] = {
    "stream is never replaced": ({}, 2, {"storage": "memory"}, "S", "refused", "a plan never replaces a stream"),
    "consumer is never replaced": (
        {"consumers": {"c": {}}},
        2,
        {"consumers": {"c": {"deliver_policy": "new"}}},
        "S/c",
        "refused",
        "deliver_policy.*a new consumer under this name would forget 0 acknowledgements",
    ),
    "lowered max_msgs": ({}, 4, {"max_msgs": 1}, "S", "needs confirmation", "max_msgs: 1 deletes 3 of 4 messages"),
    "consumer of a work queue": (
        WORK,
        4,
        {**WORK, "consumers": {}},
        "S/a",
        "needs confirmation",
        "4 messages of the work queue stay unprocessed",
    ),
    "consumer of an interest stream": (
        INTEREST,
        4,
        {**INTEREST, "consumers": {"a": {}}},
        "S/b",
        "needs confirmation",
        "those that no other consumer needs are deleted",
    ),
    "last consumer of an interest stream": (
        {**INTEREST, "consumers": {"a": {}}},
        4,
        {**INTEREST, "consumers": {}},
        "S/a",
        "needs confirmation",
        "it is the last consumer .*deletes 4 messages",
    ),
    "max_consumers": (
        {"consumers": {"a": {}, "b": {}}},
        0,
        {"max_consumers": 1, "consumers": {"a": {}}},
        "S",
        "refused",
        "max_consumers: 1, but it has 2 consumers",
    ),
    "replicas above the servers": (
        {},
        0,
        {"replicas": 3, "placement": {"tags": ["node:n1"]}},
        "S",
        "refused",
        "it needs 3 servers with the tags node:n1 in cluster C1, which has 1",
    ),
    "tag without servers": ({}, 0, {"placement": {"tags": ["none"]}}, "S", "refused", "which has 0"),
    "sealed stream": ({}, 1, {"description": "new"}, "S", "refused", "the stream is sealed"),
    "discard policy": ({}, 1, {"discard": "new", "max_msgs": 9}, "S", "needs confirmation", "discard: new rejects"),
    "subjects": (
        {"subjects": ["S", "T"]},
        1,
        {"subjects": ["S"]},
        "S",
        "needs confirmation",
        "publishes to T are no longer stored",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_guard_fires_and_the_asset_stays(api: JetStreamApi, team: Team, name: str) -> None:
    before, messages, after, asset, state, reason = CASES[name]
    # Deleting one of few assets exceeds the limit of a fifth, which is a guard of its own.
    others: Document = {f"OTHER{number}": {} for number in range(5)}
    team.make({"prune": "owned", "streams": {"S": before, **others}})
    subject = before.get("subjects", ["S"])[0].replace("*", "a")
    keep_messages(api, "S", subject, messages)
    if name == "sealed stream":
        api.update_stream({**api.stream("S")["config"], "sealed": True})
    kept = live(api)
    body = {"prune": "never" if name == "max_consumers" else "owned", "streams": {"S": after, **others}}
    plan = team.plan(body)
    found = row(plan, asset)
    assert (found["state"], bool(re.search(reason, reasons(found)))) == (state, True), reasons(found)
    assert asset not in [step["name"] for step in plan["steps"]]
    assert team.done(plan, body)["changed"] is False
    assert live(api) == kept


def test_fields_newer_than_the_servers_are_refused(api: JetStreamApi, team: Team, version: str) -> None:
    body: Document = {"streams": {"S": {"allow_atomic": True}}}
    plan = team.plan(body)
    if version.startswith("2.10"):
        assert row(plan, "S")["problems"] == ["allow_atomic needs nats-server 2.12; the oldest server supports 2.10"]
        assert team.done(plan, body)["changed"] is False
        assert api.stream_names() == []
    else:
        team.done(plan, body)
        assert api.stream("S")["config"]["allow_atomic"] is True


def test_assets_of_other_owners_are_left_alone(api: JetStreamApi, five: NatsProcesses, team: Team) -> None:
    five.add_stream("TERRAFORM", 1, metadata={"managed-by": "terraform"})
    five.add_stream("UNMARKED", 1)
    team.make({"document": "other", "streams": {"OTHER": {"subjects": ["other"]}}})
    kept = live(api)
    streams = {name: {"subjects": [f"{name}.new"]} for name in ("TERRAFORM", "UNMARKED", "OTHER")}
    body: Document = {"prune": "all", "streams": streams}
    plan = team.plan(body)
    assert states(plan) == {"stream TERRAFORM": "foreign", "stream UNMARKED": "refused", "stream OTHER": "foreign"}
    assert team.done(plan, body)["changed"] is False
    assert live(api) == kept


def test_stream_that_overlaps_a_live_one_is_refused_as_a_rename(api: JetStreamApi, team: Team) -> None:
    team.make({"prune": "owned", "streams": {"OLD": {"subjects": ["s.>"]}, "KEPT": {}}})
    keep_messages(api, "OLD", "s.a")
    renamed: Document = {"prune": "owned", "streams": {"NEW": {"subjects": ["s.>"]}, "KEPT": {}}}
    plan = team.plan(renamed, confirm_delete=["OLD"])
    found = row(plan, "NEW")
    assert found["problems"] == ["NEW.subjects: s.> overlaps s.> of OLD (JetStream error 10065)"]
    assert found["notes"][-1] == "a stream cannot be renamed: OLD has the same subjects; copy it first"
    # The deletion has its own guards: the name, and a backup.
    assert "list OLD in confirm_delete" in team.refused("unconfirmed_deletion", plan, renamed)
    assert api.stream("OLD")["state"]["messages"] == 4


def test_more_than_a_fifth_is_never_deleted(api: JetStreamApi, team: Team) -> None:
    team.make({"prune": "owned", "streams": {name: {} for name in "ABCDE"}})
    smaller: Document = {"prune": "owned", "streams": {name: {} for name in "ABC"}}
    plan = team.plan(smaller)
    assert plan["problems"][0].startswith("document team would delete 2 of its 5 assets, more than 20 %: D, E")
    assert "more than 20 %" in team.refused("stale", plan, smaller)
    assert sorted(api.stream_names()) == list("ABCDE")


def test_ephemeral_consumers_are_never_pruned(api: JetStreamApi, team: Team) -> None:
    team.make({"prune": "all", "streams": {"S": {}}})
    made = api.call("CONSUMER.CREATE.S", {"stream_name": "S", "config": {"ack_policy": "explicit"}})
    body: Document = {"prune": "all", "streams": {"S": {"description": "new"}}}
    plan = team.plan(body)
    assert states(plan) == {"stream S": "change"}
    team.done(plan, body)
    assert api.consumer_names("S") == [made["name"]]


def test_plan_ignores_server_values(api: JetStreamApi, team: Team) -> None:
    consumers: Document = {"c": {"backoff": ["1s", "5s"], "max_deliver": 3}, "push": {"deliver_subject": "to.push"}}
    body: Document = {
        "streams": {"S": {"max_age": "1m", "allow_direct": True, "consumers": consumers}},
        "mirrors": {"M": {"of": "S"}},
        "kv": {"b": {"ttl": "30s"}},
        "objects": {"o": {}},
    }
    team.make(body)
    assert set(states(team.plan(body)).values()) == {"same"}
    assert api.stream("S")["config"]["duplicate_window"] == 60_000_000_000
    assert api.stream("M")["config"]["mirror_direct"] is True
    assert api.consumer("S", "c")["config"]["ack_wait"] == 1_000_000_000


def test_limits_of_the_account_stop_the_plan(make_cluster: Callable[..., NatsProcesses], run_module: Runner) -> None:
    limits = {"APP": "{ max_streams: 2, max_file: 10MB }"}
    servers = form(make_cluster(["n1", "n2", "n3"], account_limits=limits), run_module)
    team = Team(servers, run_module)
    many: Document = {"streams": {name: {} for name in "ABC"}}
    big: Document = {"streams": {"A": {"max_bytes": "6MiB", "replicas": 2}}}
    for body, problem in (
        (many, "the account's limit max_streams is 2: 0 are used, and the plan adds 3"),
        (big, "the account's limit max_storage is 10MiB: 0 are used, and the plan adds 12MiB"),
    ):
        plan = team.plan(body)
        assert plan["problems"] == [problem]
        assert problem in team.refused("stale", plan, body)
    with application_api(servers.app_connection()) as api:
        assert api.stream_names() == []


def test_stream_without_a_leader_is_refused(make_cluster: Callable[..., NatsProcesses], run_module: Runner) -> None:
    servers = form(make_cluster(["n1", "n2", "n3"]), run_module)
    team = Team(servers, run_module)
    team.make({"streams": {"S": {}, "T": {"replicas": 3}}})
    with application_api(servers.app_connection()) as api:
        leader = str(api.stream("S")["cluster"]["leader"])
    body: Document = {"streams": {"S": {"description": "new"}, "T": {"replicas": 3}}}
    plan = team.plan(body)
    servers.kill(leader)
    team.connection["servers"] = [servers.url(name) for name in servers.names if name != leader]

    def meta_leader_answers() -> bool:
        with contextlib.suppress(NatsFailure), application_api(servers.app_connection()) as api:
            return "S" in api.stream_names()
        return False

    def without_leader() -> Result:
        return team.plan(body)

    # The server that was killed may have been the meta leader too.
    assert wait_until(meta_leader_answers, bool, 30).done
    seen = wait_until(without_leader, lambda found: row(found, "S")["state"] == "refused", 30)
    assert "its state is unknown" in row(seen.value, "S")["problems"][0]
    assert "stream S of account APP: its state is unknown" in team.refused("stale", plan, body)


def test_replicas_without_room_are_refused_before_any_change(
    make_cluster: Callable[..., NatsProcesses], run_module: Runner
) -> None:
    servers = form(make_cluster(["n1", "n2", "n3"]), run_module)
    team = Team(servers, run_module)
    # Each server has room for 256 MiB.
    sizes = {**{f"BIG{number}": "200MiB" for number in range(3)}, **{f"S{number}": "40MiB" for number in range(3)}}
    streams: Document = {name: {"max_bytes": size} for name, size in sizes.items()}
    team.make({"streams": streams})
    body: Document = {
        "streams": {**streams, "S0": {**streams["S0"], "replicas": 3}, "BIG0": {**streams["BIG0"], "description": "x"}}
    }
    plan = team.plan(body)
    assert states(plan)["stream S0"] == "change"
    assert "APP/S0 cannot have 3 replica(s)" in team.refused("obstacle", plan, body)
    with application_api(servers.app_connection()) as api:
        assert api.stream("BIG0")["config"].get("description", "") == ""
