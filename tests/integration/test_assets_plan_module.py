# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs nats_assets_plan on real servers: a plan after creation is empty, and counted costs are real deletions."""

from __future__ import annotations

import time
from typing import Any, Callable

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.assets import config as rules
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.buckets import kv_subject
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.document import read_document
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.jetstream_api import JetStreamApi
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from support.asset_documents import HEAD, create, publish, zoo
from support.module_runs import Runner
from support.nats_processes import NatsProcesses

pytestmark = pytest.mark.usefixtures("tidy")

Plan = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def plan(five: NatsProcesses, run_module: Runner) -> Plan:
    def planned(*documents: dict[str, Any], system: bool = False, **options: Any) -> dict[str, Any]:
        connection = five.app_connection()
        if system:
            connection = {**five.sys_connection(), "account_users": five.account_users()}
        given = [{**HEAD, **one} for one in documents]
        result = run_module("nats_assets_plan", connection, documents=given, **options)
        assert result.get("changed") is False, result
        return result

    return planned


def states(found: dict[str, Any]) -> dict[str, str]:
    """Return the states of the assets, except those that no document declares."""
    return {row["name"]: row["state"] for row in found["plan"]["assets"] if row["state"] != "extra"}


@pytest.mark.parametrize("system", [False, True])
def test_zoo_of_every_field_is_created_and_then_unchanged(
    api: JetStreamApi, plan: Plan, version: str, system: bool
) -> None:
    body = zoo(version)
    before = plan(body, system=system)
    assert set(states(before).values()) == {"create", "same"}, before["lines"]
    assert states(before)["settings/old"] == "same"
    create(api, body)
    publish(api, kv_subject("settings", "rate"), b"9")
    after = plan(body, system=system)
    changed = {name: state for name, state in states(after).items() if state != "same"}
    assert changed == {"settings/rate": "change"}, after["lines"]
    assert after["plan"]["problems"] == []
    publish(api, kv_subject("settings", "rate"), b"10")
    unchanged = plan(body, system=system)
    assert set(states(unchanged).values()) == {"same"}
    assert unchanged["plan"]["fingerprint"] == plan(body, system=system)["plan"]["fingerprint"]


def test_fields_of_newer_servers_are_refused_before_the_servers_ignore_them(plan: Plan, version: str) -> None:
    found = plan({"streams": {"S": {"allow_atomic": True}}}, system=True)
    old = version.startswith("2.10")
    assert states(found) == {"S": "refused" if old else "create"}
    assert found["plan"]["assets"][0]["problems"] == (
        ["allow_atomic needs nats-server 2.12; the oldest server supports 2.10"] if old else []
    )


def test_plan_names_more_replicas_than_servers(plan: Plan) -> None:
    one_server = {"replicas": 3, "placement": {"tags": ["node:n1"]}}
    found = plan({"streams": {"S": one_server, "T": {"placement": {"tags": ["nowhere"]}}}}, system=True)
    assert [row["problems"][0] for row in found["plan"]["assets"]] == [
        "it needs 3 servers with the tags node:n1 in cluster C1, which has 1",
        "it needs 1 server with the tags nowhere in cluster C1, which has 0",
    ]


@pytest.mark.parametrize(
    "limit",
    [{"max_msgs": 13}, {"max_bytes": 1500}, {"max_age": "1s"}, {"max_msgs_per_subject": 3}],
    ids=["max_msgs", "max_bytes", "max_age", "max_msgs_per_subject"],
)
def test_counted_costs_are_the_messages_that_the_server_deletes(
    api: JetStreamApi, plan: Plan, limit: dict[str, Any]
) -> None:
    # 2.10.27 does not enforce a limit per subject on stored messages if there was none before.
    base = {"subjects": ["s.*"], "duplicate_window": "500ms", "max_msgs_per_subject": 1000}
    create(api, {"streams": {"S": base}})
    for number in range(40):
        publish(api, f"s.{number % 4}")
    api.call("STREAM.MSG.DELETE.S", {"seq": 7})
    if "max_age" in limit:
        oldest = time.monotonic()
        while time.monotonic() - oldest < 1.2:
            publish(api, "s.9")
    before = api.stream("S")["state"]["messages"]
    body = {"streams": {"S": {**base, **limit}}}
    (row,) = plan(body)["plan"]["assets"]
    assert row["state"] == "needs confirmation", row
    (cost,) = row["costs"]
    (row,) = plan(body, confirm=["S"])["plan"]["assets"]
    assert row["state"] == "change"
    if "max_age" in limit:
        # Messages keep aging between the plan and the change, so only those of the plan are certain.
        assert 39 <= cost["count"] < before
        return
    desired = read_document({**HEAD, **body}).streams["S"].config
    raw = api.stream("S")["config"]
    keys = [next(iter(limit))]
    api.update_stream(rules.request(rules.STREAM_FIELDS, raw, desired, keys, api.release()))
    left = wait_until(lambda: api.stream("S")["state"]["messages"], lambda found: found < before, 10)
    assert before - (left.value or 0) == cost["count"]


def test_removed_consumer_of_an_interest_stream_costs_the_counted_messages(api: JetStreamApi, plan: Plan) -> None:
    base = {"retention": "interest", "consumers": {"a": {}}}
    create(api, {"streams": {"S": base}})
    for _number in range(5):
        publish(api, "S")
    found = plan({"prune": "owned", "streams": {"S": {"retention": "interest"}}})
    (row,) = [one for one in found["plan"]["assets"] if one["kind"] == "consumer"]
    assert (row["state"], [cost["count"] for cost in row["costs"]]) == ("needs confirmation", [5])
    api.delete_consumer("S", "a")
    assert api.stream("S")["state"]["messages"] == 0


def test_unmarked_and_foreign_streams(api: JetStreamApi, five: NatsProcesses, plan: Plan) -> None:
    five.add_stream("MINE", 1)
    five.add_stream("THEIRS", 1, metadata={"managed-by": "terraform"})
    streams = {"MINE": {"subjects": ["MINE.>"]}, "THEIRS": {"subjects": ["THEIRS.>"]}}
    assert states(plan({"streams": streams})) == {"MINE": "refused", "THEIRS": "foreign"}
    assert states(plan({"streams": streams, "adopt": ["MINE"]}))["MINE"] == "change"


def test_plan_of_a_wrong_cluster_or_account_is_refused(plan: Plan, five: NatsProcesses, run_module: Runner) -> None:
    found = plan({"cluster": "C2", "streams": {"S": {}}})
    assert found["plan"]["problems"] == ["document team is for cluster C2, but the connected server is in C1"]
    other = {**HEAD, "account": "OTHER", "streams": {"S": {}}}
    refused = run_module("nats_assets_plan", five.app_connection(), documents=[other])
    assert refused["failed"] and refused["failure"]["code"] == "wrong_account"


def test_errors_of_all_documents_are_reported_at_once(five: NatsProcesses, run_module: Runner) -> None:
    refused = run_module(
        "nats_assets_plan", five.app_connection(), documents=["", {**HEAD, "streams": {"S": {"x": 1}}}]
    )
    assert refused["failure"]["code"] == "invalid_option"
    assert "document 1: the document is empty" in refused["msg"]
    assert "document 2: streams.S.x: unknown key" in refused["msg"]


def test_plan_changes_nothing_on_the_servers(api: JetStreamApi, plan: Plan) -> None:
    create(api, {"streams": {"S": {"consumers": {"c": {}}}}})
    before = [(row["config"], row["created"]) for row in api.streams().rows]
    plan({"prune": "all", "streams": {"S": {"max_age": "1h"}, "T": {}}}, confirm_delete=["S/c"], confirm=["S"])
    assert [(row["config"], row["created"]) for row in api.streams().rows] == before
    assert api.consumer_names("S") == ["c"]
