# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the modules of streams, consumers and buckets with real servers: each change is predicted, made and reported
once."""

from __future__ import annotations

import asyncio
import importlib
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any, Callable

import nats
import pytest
import yaml
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import (
    Call,
    Client,
    ConnectionOptions,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.jetstream_api import JetStreamApi
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from support.asset_changes import Run, publish
from support.nats_processes import NatsProcesses, binary, free_ports

pytestmark = pytest.mark.usefixtures("tidy")

OLD = "2.10.27"
MODULES = "ansible_collections.natsops.jetstream.plugins.modules"


# --- streams ----------------------------------------------------------------------------------------------------------


def test_a_stream_from_its_creation_to_its_deletion(change: Run, run: Run, api: JetStreamApi) -> None:
    made = change(
        "stream",
        stream="ORDERS",
        subjects=["orders.b.>", "orders.a.>"],
        max_age="1d",
        max_bytes="64MiB",
        max_msg_size="1KB",
        num_replicas=3,
        description="all orders",
        metadata={"team": "shop", "tier": 1},
        consumer_limits={"max_ack_pending": 500, "inactive_threshold": "1h"},
        republish={"dest": "again.>"},
        compression="s2",
        placement={"cluster": "C1"},
    )
    assert made["before"] is None
    assert made["after"]["max_age"] == 86400 * 10**9
    assert made["after"]["metadata"] == {"team": "shop", "tier": "1"}
    assert len(api.stream("ORDERS")["cluster"]["replicas"]) == 2
    assert made["diff"]["after"]["max_bytes"] == 64 * 2**20
    assert "discard" not in made["diff"]["after"]

    updated = change(
        "stream",
        stream="ORDERS",
        max_age="48h",
        metadata={},
        republish={},
        consumer_limits={},
        placement={},
        subjects=["orders.a.>", "orders.b.>", "orders.c"],
        discard="new",
        duplicate_window="30s",
    )
    assert updated["diff"] == {
        "before": {
            "subjects": ["orders.a.>", "orders.b.>"],
            "max_age": 86400 * 10**9,
            "discard": "old",
            "duplicate_window": 120 * 10**9,
            "placement": {"cluster": "C1"},
            "republish": {"dest": "again.>"},
            "consumer_limits": {"inactive_threshold": 3600 * 10**9, "max_ack_pending": 500},
            "metadata": {"team": "shop", "tier": "1"},
        },
        "after": {
            "subjects": ["orders.a.>", "orders.b.>", "orders.c"],
            "max_age": 2 * 86400 * 10**9,
            "discard": "new",
            "duplicate_window": 30 * 10**9,
            "placement": None,
            "republish": None,
            "consumer_limits": None,
            "metadata": {},
        },
    }
    assert updated["after"]["max_bytes"] == 64 * 2**20
    # Omitted options keep their values; 0 or -1 removes limits.
    assert change("stream", stream="ORDERS", max_age="0", max_bytes=-1)["after"]["description"] == "all orders"

    gone = change_absent(run, "stream", stream="ORDERS")
    assert gone["before"]["name"] == "ORDERS"


def change_absent(run: Run, name: str, **options: Any) -> dict[str, Any]:
    predicted = run(name, check_mode=True, state="absent", **options)
    real = run(name, state="absent", **options)
    assert real["changed"], real
    assert predicted["changed"], predicted
    assert (predicted["diff"], predicted["before"]) == (real["diff"], real["before"])
    again = run(name, state="absent", **options)
    assert (again["changed"], again["before"], again["after"]) == (False, None, None)
    return real


def test_a_minimal_stream_gets_the_servers_defaults(change: Run) -> None:
    assert change("stream", stream="PLAIN")["after"]["subjects"] == ["PLAIN"]
    # A duplicate window that would outlast the messages is shortened with their maximum age.
    assert change("stream", stream="PLAIN", max_age="1m")["diff"]["after"] == {
        "max_age": 60 * 10**9,
        "duplicate_window": 60 * 10**9,
    }


def test_replicas_grow_and_shrink_and_are_seen(change: Run, refused: Run, api: JetStreamApi) -> None:
    change("stream", stream="GROW", subjects=["grow.>"])
    publish(api, "grow.x", 5)
    change("stream", stream="GROW", num_replicas=3)
    assert [peer["current"] for peer in api.stream("GROW")["cluster"]["replicas"]] == [True, True]
    told = refused("stream", "dangerous", stream="GROW", num_replicas=1)
    assert "num_replicas: 3 → 1 (fewer_replicas)" in told["msg"]
    shrunk = change("stream", stream="GROW", num_replicas=1, allow=["fewer_replicas"])
    assert shrunk["dangers"] == [{"kind": "fewer_replicas", "message": "num_replicas: 3 → 1"}]
    assert not api.stream("GROW")["cluster"].get("replicas")
    assert api.stream("GROW")["state"]["messages"] == 5


def test_a_scaling_that_is_not_done_is_waited_for_by_the_next_run(
    change: Run, run: Run, refused: Run, api: JetStreamApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    change("stream", stream="SLOW", subjects=["slow.>"])
    find = JetStreamApi.find_stream
    readings = 0

    def behind(self: JetStreamApi, name: str) -> Any:
        """A replica that is catching up until the fifth reading."""
        nonlocal readings
        info = find(self, name)
        for peer in (info or {}).get("cluster", {}).get("replicas") or ():
            readings += 1
            peer.update(current=readings > 8, active=1)
        return info

    with monkeypatch.context() as patch:
        patch.setattr(JetStreamApi, "find_stream", behind)
        stopped = run("stream", stream="SLOW", num_replicas=3, wait_timeout=0.01)
        assert stopped["failure"]["code"] == "not_seen", stopped
        assert "it is configured as requested, but not complete after 0.01 s" in stopped["msg"]
        readings = 0
        told = run("stream", stream="SLOW", num_replicas=5)
        assert told["failure"]["code"] == "not_settled", told
        readings = 0
        resumed = run("stream", stream="SLOW", num_replicas=3)
        assert resumed["changed"] is False, resumed
        assert readings > 8


def test_a_stream_is_moved_and_scaled_in_two_steps(change: Run, api: JetStreamApi) -> None:
    change("stream", stream="MOVE", subjects=["move.>"])
    change("stream", stream="MOVE", num_replicas=3, placement={"cluster": "C1"})
    assert len(api.stream("MOVE")["cluster"]["replicas"]) == 2


def test_server_refusals_keep_their_wording(run: Run) -> None:
    result = run("stream", stream="NOWHERE", placement={"tags": ["moon"]})
    assert result["failure"]["err_code"] == 10005
    assert "tags not matched" in result["msg"]


def test_immutable_stream_settings_are_refused(change: Run, refused: Run, version: str, api: JetStreamApi) -> None:
    change("stream", stream="FIXED", subjects=["fixed.>"], deny_purge=True, first_seq=100, max_consumers=5)
    config = api.stream("FIXED")["config"]
    desired = {
        "storage": "memory",
        "retention": "workqueue",
        "deny_purge": False,
        "first_seq": 7,
        "mirror": {"name": "ORDERS"},
    }
    told = refused("stream", "immutable", stream="FIXED", description="new", **desired)
    for key in desired:
        assert f"{key}: " in told["msg"]
    assert "storage: file → memory" in told["msg"]
    if version == OLD:
        assert "max_consumers: 5 → 6" in refused("stream", "immutable", stream="FIXED", max_consumers=6)["msg"]
    else:
        change("stream", stream="FIXED", max_consumers=6)
        config["max_consumers"] = 6
    assert api.stream("FIXED")["config"] == config


def test_features_that_the_servers_lack_are_refused(change: Run, refused: Run, version: str, api: JetStreamApi) -> None:
    new = {"allow_msg_ttl": True, "subject_delete_marker_ttl": "1m", "allow_atomic": True, "allow_batched": True}
    if version == OLD:
        told = refused("stream", "unsupported", stream="NEW", **new)
        assert "allow_msg_ttl needs nats-server 2.11" in told["msg"]
        assert "allow_batched needs nats-server 2.14" in told["msg"]
        assert api.find_stream("NEW") is None
        change("stream", stream="NEW", allow_msg_ttl=False, persist_mode="default")
        return
    made = change("stream", stream="NEW", **new)
    assert made["after"]["allow_rollup_hdrs"] is True
    assert made["diff"]["after"]["allow_rollup_hdrs"] is True
    back = refused("stream", "immutable", stream="NEW", allow_msg_ttl=False, subject_delete_marker_ttl="0")
    assert "allow_msg_ttl: True → False (cannot be disabled again)" in back["msg"]
    contradiction = refused("stream", "invalid_option", stream="NEW", allow_rollup_hdrs=False)
    assert "allow_rollup_hdrs: with subject_delete_marker_ttl the server sets it to True" in contradiction["msg"]
    change("stream", stream="COUNTERS", allow_msg_counter=True, allow_direct=True)
    change("stream", stream="FAST", persist_mode="async")
    change("stream", stream="LATER", allow_msg_schedules=True)


def test_changes_that_remove_messages_are_refused(change: Run, refused: Run, api: JetStreamApi) -> None:
    change("stream", stream="FULL", subjects=["full.>", "other"])
    publish(api, "full.a", 3)
    publish(api, "full.b", 2)
    publish(api, "other", 1)
    time.sleep(0.1)  # the messages must be older than the shortest age below
    for desired, why in (
        ({"max_msgs": 4}, "max_msgs: 4 deletes 2 of 6 messages"),
        ({"max_bytes": 300}, "max_bytes: 300 deletes messages"),
        ({"max_msgs_per_subject": 2}, "max_msgs_per_subject: 2 deletes messages: a subject has 3"),
        ({"max_age": "100ms"}, "max_age: 0.1 s deletes"),
        ({"retention": "interest"}, "retention interest removes messages"),
        ({"subjects": ["full.>"]}, "subjects that it would no longer accept: other"),
    ):
        assert why in refused("stream", "dangerous", stream="FULL", **desired)["msg"]
    assert api.stream("FULL")["state"]["messages"] == 6
    change("stream", stream="FULL", max_msgs=6, max_bytes="1MB", max_msgs_per_subject=3, max_age="1h")
    change("stream", stream="FULL", subjects=["full.>", "*"])
    # A full stream that refuses new messages does not remove any.
    change("stream", stream="FULL", max_msgs=4, discard="new")
    assert api.stream("FULL")["state"]["messages"] == 6
    change("stream", stream="FULL", discard="old", allow=["data_loss"])
    assert api.stream("FULL")["state"]["messages"] == 4


def test_purge_removes_the_selected_messages(change: Run, refused: Run, run: Run, api: JetStreamApi) -> None:
    change("stream", stream="DIRTY", subjects=["dirty.>"])
    assert run("stream", stream="DIRTY", state="purged")["changed"] is False
    publish(api, "dirty.a", 4)
    publish(api, "dirty.b", 4)
    assert "(data_loss)" in refused("stream", "dangerous", stream="DIRTY", state="purged")["msg"]
    purged = {"stream": "DIRTY", "state": "purged", "allow": ["data_loss"]}
    # Without the state, the option would do nothing.
    for state in ("present", "absent"):
        refused("stream", "invalid_option", stream="DIRTY", state=state, purge={"keep": 1})
    for option in ("reset", "unpin"):
        refused("consumer", "invalid_option", stream="DIRTY", consumer="c", **{option: {}})
    # An empty selection, such as from an empty variable, does not select everything.
    for nothing in ({"filter": ""}, {"seq": 0}, {"keep": 0}):
        refused("stream", "invalid_option", **purged, purge=nothing)
    assert api.stream("DIRTY")["state"]["messages"] == 8
    assert change("stream", **purged, purge={"filter": "dirty.a", "keep": 1})["purged"] == 3
    assert change("stream", **purged, purge={"seq": 6})["purged"] == 2
    assert change("stream", **purged, purge={"filter": "dirty.b", "seq": 7})["purged"] == 1
    assert change("stream", **purged, purge={"keep": 1})["purged"] == 1
    whole = change("stream", **purged)
    assert (whole["purged"], whole["diff"]) == (1, {"before": {"messages": 1}, "after": {"messages": 0}})
    assert run("stream", stream="NOTHERE", state="purged")["failure"]["code"] == "not_found"


def test_deletion_of_used_assets_is_refused(
    change: Run, refused: Run, run: Run, api: JetStreamApi, five: NatsProcesses
) -> None:
    change("stream", stream="ORIGIN", subjects=["origin.>"])
    change("stream", stream="COPY", mirror={"name": "ORIGIN"})
    change("stream", stream="SUM", sources=[{"name": "ORIGIN", "filter_subject": "origin.a"}])
    five.add_consumer("ORIGIN", "worker")
    publish(api, "origin.a")
    told = refused("stream", "dangerous", stream="ORIGIN", state="absent", allow=["foreign"])
    assert "it holds 1 message (data_loss)" in told["msg"]
    assert "streams that mirror or source it: COPY, SUM (in_use)" in told["msg"]
    assert "allow: [data_loss, in_use]" in told["msg"]
    again = refused("stream", "dangerous", stream="ORIGIN", state="absent", allow=["data_loss"])
    assert again["msg"] == told["msg"]
    change_absent(run, "stream", stream="ORIGIN", allow=["data_loss", "in_use"])


def test_mirrors_and_sources(change: Run, refused: Run, version: str) -> None:
    change("stream", stream="A", subjects=["a.>"], allow_direct=True)
    transform = [{"src": "a.y.>", "dest": "y.>"}, {"src": "a.x.>", "dest": "x.>"}]
    mirror = {"name": "A", "opt_start_time": "2026-01-01 02:00:00+02:00", "subject_transforms": transform}
    assert change("stream", stream="M", mirror=mirror)["after"]["mirror_direct"] is True
    refused("stream", "invalid_option", stream="M", mirror_direct=False)
    sources = [
        {"name": "A", "filter_subject": "a.b", "opt_start_seq": 1},
        {"name": "B", "external": {"api": "$JS.hub.API"}},
    ]
    change("stream", stream="S", sources=sources)
    change("stream", stream="S", sources=sources[1:], subjects=["s.>"])
    assert "can only be removed" in refused("stream", "immutable", stream="M", mirror={"name": "S"})["msg"]
    if version == OLD:
        refused("stream", "immutable", stream="M", mirror={})
    else:
        assert (
            "cannot become a mirror again (irreversible)"
            in refused("stream", "dangerous", stream="M", mirror={})["msg"]
        )
        ended = change("stream", stream="M", mirror={}, subjects=["m.>"], allow=["irreversible"])
        assert "mirror" not in ended["after"]


def test_a_sealed_stream_stays_as_it_is(change: Run, refused: Run, api: JetStreamApi) -> None:
    assert "a new stream cannot be sealed" in refused("stream", "invalid_option", stream="SEALED", sealed=True)["msg"]
    change("stream", stream="SEALED", subjects=["sealed.>"], max_age="1h")
    publish(api, "sealed.a")
    refused("stream", "dangerous", stream="SEALED", sealed=True)
    sealed = change("stream", stream="SEALED", sealed=True, allow=["irreversible"])
    assert sealed["diff"]["after"]["discard"] == "new"
    assert (
        "sealed: True → False (cannot be disabled again)"
        in refused("stream", "immutable", stream="SEALED", sealed=False)["msg"]
    )
    assert (
        "with sealed the server sets it to 0"
        in refused("stream", "invalid_option", stream="SEALED", max_age="1d")["msg"]
    )
    told = refused("stream", "immutable", stream="SEALED", state="purged", allow=["data_loss"])
    assert "it cannot be purged: sealed, deny_purge" in told["msg"]


def test_assets_of_other_tools_are_unchanged(change: Run, refused: Run) -> None:
    assert "belongs to a key-value bucket (foreign)" in refused("stream", "dangerous", stream="KV_config")["msg"]
    change("stream", stream="THEIRS", metadata={"managed-by": "terraform"})
    assert (
        "belongs to terraform (metadata managed-by)"
        in refused("stream", "dangerous", stream="THEIRS", description="x")["msg"]
    )
    refused("stream", "dangerous", stream="THEIRS", state="absent")
    change("stream", stream="THEIRS", description="x", metadata={"managed-by": "terraform"})
    change("stream", stream="THEIRS", description="y", allow=["foreign"])


def test_a_lone_server_has_no_replicas(run_module: Run, version: str, tmp_path: Path) -> None:
    port = free_ports(1)[0]
    command = [
        binary(version),
        "-js",
        "-sd",
        str(tmp_path),
        "-a",
        "127.0.0.1",
        "-p",
        str(port),
        "-l",
        str(tmp_path / "log"),
    ]
    connection = {"servers": [f"nats://127.0.0.1:{port}"]}
    with subprocess.Popen(command) as server:
        try:
            make = partial(run_module, "nats_stream", connection, stream="LONE")
            made = wait_until(make, lambda result: "changed" in result, 20)
            assert made.value["changed"] is True
            told = run_module("nats_stream", connection, stream="LONE", num_replicas=3)
            assert told["failure"]["code"] == "unsupported", told
            assert "the server is not part of a cluster" in told["msg"]
            assert run_module("nats_stream", connection, stream="LONE", max_msgs=5)["changed"] is True
        finally:
            server.kill()


def test_a_system_user_with_the_accounts_user(five: NatsProcesses, run_module: Run) -> None:
    connection = five.sys_connection()
    made = run_module("nats_stream", connection, stream="MINE", account="OTHER", account_users=five.account_users())
    assert made["changed"], made
    gone = run_module(
        "nats_stream", connection, stream="MINE", state="absent", account="OTHER", account_users=five.account_users()
    )
    assert gone["changed"], gone
    refused = run_module("nats_stream", connection, stream="MINE", account="ABSENT", account_users=five.account_users())
    assert "no user for account ABSENT" in refused["msg"]


def test_two_operators_at_once(
    five: NatsProcesses, run: Run, change: Run, api: JetStreamApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    change("stream", stream="SHARED", subjects=["shared.>"])
    theirs = iter(range(1, 100))
    find, update = JetStreamApi.find_stream, JetStreamApi.update_stream

    def interfering(self: JetStreamApi, name: str) -> Any:
        """Simulate an operator who changes the asset before the module does, each time."""
        info = find(self, name)
        assert info is not None
        update(self, {**info["config"], "max_consumers": -1, "max_msgs": next(theirs)})
        return info

    with monkeypatch.context() as patch:
        patch.setattr(JetStreamApi, "find_stream", interfering)
        result = run("stream", stream="SHARED", description="mine")
    assert result["failure"]["code"] == "conflict", result
    assert "nothing was changed" in result["msg"]
    assert "description" not in api.stream("SHARED")["config"]

    def overwriting(self: JetStreamApi, config: Any) -> Any:
        """Simulate an operator who changes the asset after the module."""
        update(self, config)
        return update(self, {**config, "description": "theirs"})

    with monkeypatch.context() as patch:
        patch.setattr(JetStreamApi, "update_stream", overwriting)
        result = run("stream", stream="SHARED", description="mine", wait_timeout=1)
    assert result["failure"]["code"] == "conflict", result
    assert "description is theirs, not mine" in result["msg"]


# --- consumers --------------------------------------------------------------------------------------------------------


@pytest.fixture
def orders(five: NatsProcesses) -> str:
    five.add_stream("ORDERS", 3, consumer_limits={"inactive_threshold": 3600 * 10**9})
    return "ORDERS"


def test_a_pull_consumer_from_its_creation_to_its_deletion(
    change: Run, run: Run, api: JetStreamApi, orders: str
) -> None:
    worker = {"stream": orders, "consumer": "worker"}
    made = change(
        "consumer",
        **worker,
        filter_subjects=["ORDERS.b", "ORDERS.a"],
        backoff=["10s", "1m"],
        max_deliver=5,
        sample_freq="50%",
        max_bytes="512KB",
        max_expires="30s",
        metadata={"team": "shop"},
    )
    assert made["after"]["ack_policy"] == "explicit"
    assert made["diff"]["after"]["inactive_threshold"] == 3600 * 10**9
    assert made["after"]["ack_wait"] == 10 * 10**9
    desired = {"filter_subject": "ORDERS.c", "max_ack_pending": -1, "backoff": [], "ack_wait": "1m", "num_replicas": 3}
    updated = change("consumer", **worker, **desired)
    assert updated["diff"]["after"] == {
        "ack_wait": 60 * 10**9,
        "backoff": [],
        "filter_subjects": ["ORDERS.c"],
        "max_ack_pending": -1,
        "num_replicas": 3,
    }
    assert updated["after"]["metadata"] == {"team": "shop"}
    assert len(api.consumer(orders, "worker")["cluster"]["replicas"]) == 2
    assert change("consumer", **worker, num_replicas=1, allow=["fewer_replicas"])["dangers"]
    change("consumer", **worker, filter_subjects=[], max_deliver=-1, sample_freq="")
    change_absent(run, "consumer", **worker)
    assert run("consumer", stream="NOTHERE", consumer="worker", state="absent")["changed"] is False


def test_a_push_consumer(change: Run, orders: str) -> None:
    push = {
        "stream": orders,
        "consumer": "push",
        "deliver_subject": "to.me",
        "idle_heartbeat": "5s",
        "flow_control": True,
    }
    change("consumer", **push, ack_policy="none", deliver_group="us", rate_limit_bps=10_000_000, headers_only=True)
    change("consumer", **{**push, "deliver_subject": "to.you"})
    change(
        "consumer",
        stream=orders,
        consumer="old",
        deliver_policy="by_start_time",
        opt_start_time="2026-01-01T00:00:00+01:00",
    )


def test_immutable_consumer_settings_are_refused(change: Run, refused: Run, orders: str, api: JetStreamApi) -> None:
    worker = {"stream": orders, "consumer": "worker"}
    change("consumer", **worker)
    config = api.consumer(orders, "worker")["config"]
    desired = {
        "deliver_policy": "new",
        "ack_policy": "all",
        "deliver_subject": "x",
        "mem_storage": True,
        "max_waiting": 5,
    }
    told = refused("consumer", "immutable", **worker, **desired, description="new")
    assert all(f"{key}: " in told["msg"] for key in desired)
    assert "ack_policy: explicit → all" in told["msg"]
    assert "with backoff" in refused("consumer", "invalid_option", **worker, ack_wait="1m", backoff=["1s"])["msg"]
    assert refused("consumer", "api_error", stream="NOTHERE", consumer="x")["failure"]["err_code"] == 10059
    assert api.consumer(orders, "worker")["config"] == config


def test_consumer_is_paused_and_resumed(
    change: Run, refused: Run, run: Run, orders: str, version: str, api: JetStreamApi
) -> None:
    worker = {"stream": orders, "consumer": "worker"}
    change("consumer", **worker)
    if version == OLD:
        told = refused(
            "consumer", "unsupported", **worker, pause_until="2040-01-01T00:00:00Z", priority_policy="overflow"
        )
        assert "pause_until needs nats-server 2.11" in told["msg"]
        assert "priority_policy=overflow needs nats-server 2.11" in told["msg"]
        assert run("consumer", **worker, pause_until="")["changed"] is False
        return
    paused = change("consumer", **worker, pause_until="2040-01-01 01:00:00+01:00", description="paused")
    assert paused["diff"]["after"] == {"description": "paused", "pause_until": "2040-01-01T00:00:00Z"}
    assert api.consumer(orders, "worker")["paused"] is True
    assert change("consumer", **worker, pause_until="")["diff"]["after"] == {"pause_until": None}
    assert run("consumer", **worker, pause_until="2020-01-01T00:00:00Z")["changed"] is False
    change("consumer", stream=orders, consumer="born_paused", pause_until="2040-01-01T00:00:00Z")
    group = {"priority_groups": ["a"], "priority_policy": "pinned_client", "priority_timeout": "1m"}
    change("consumer", stream=orders, consumer="pinned", **group)
    change("consumer", stream=orders, consumer="first", priority_groups=["a"], priority_policy="prioritized")
    change("consumer", stream=orders, consumer="flow", ack_policy="flow_control", deliver_subject="flow.x")


def test_a_consumer_in_use_is_not_deleted(
    change: Run, refused: Run, run: Run, five: NatsProcesses, orders: str, api: JetStreamApi
) -> None:
    worker = {"stream": orders, "consumer": "worker"}
    change("consumer", **worker)
    publish(api, "ORDERS.a")
    app = five.app_connection()
    with Client(ConnectionOptions(tuple(app["servers"]), app["user"], app["password"], timeout=5)) as client:
        client.request_many([Call("$JS.API.CONSUMER.MSG.NEXT.ORDERS.worker")])
    told = refused("consumer", "dangerous", **worker, state="absent")
    assert "1 message delivered but not acknowledged (in_use)" in told["msg"]
    change_absent(run, "consumer", **worker, allow=["in_use"])
    five.add_stream("INTEREST", 1, retention="interest")
    change("consumer", stream="INTEREST", consumer="only")
    publish(api, "INTEREST.a", 2)
    told = refused("consumer", "dangerous", stream="INTEREST", consumer="only", state="absent")
    assert "2 messages to deliver" in told["msg"]


# --- buckets ----------------------------------------------------------------------------------------------------------


def with_client(five: NatsProcesses, work: Callable[[Any], Any]) -> Any:
    """Return the result of a coroutine that uses nats-py's own JetStream client."""

    async def connected() -> Any:
        app = five.app_connection()
        connection = await nats.connect(app["servers"], user=app["user"], password=app["password"])
        try:
            return await work(connection.jetstream())
        finally:
            await connection.close()

    return asyncio.run(connected())


def test_a_key_value_bucket_works_with_the_clients(
    change: Run, refused: Run, run: Run, api: JetStreamApi, five: NatsProcesses, version: str
) -> None:
    made = change(
        "kv_bucket",
        bucket="config",
        history=3,
        ttl="1m",
        max_value_size="1KB",
        num_replicas=3,
        republish={"dest": "kv.>"},
    )
    mine = made["after"]

    async def use(js: Any) -> list[str]:
        kv = await js.key_value("config")
        for value in (b"1", b"2", b"3", b"4"):
            await kv.put("a.b", value)
        await kv.put("a.c", b"x")
        await kv.put("d", b"x")
        assert (await kv.get("a.b")).value == b"4"
        assert len(await kv.history("a.b")) == 3
        await js.create_key_value(bucket="theirs", history=3, ttl=60, max_value_size=1024, replicas=3, direct=True)
        return await _keys(js, "config", 3)

    assert with_client(five, use) == ["a.b", "a.c", "d"]
    theirs = api.stream("KV_theirs")["config"]
    del mine["republish"]
    for key, value in mine.items():
        if key not in ("name", "subjects", "metadata", "allow_msg_ttl"):
            assert theirs[key] == value, key
    assert run("kv_bucket", bucket="theirs", history=3, ttl="60")["changed"] is False

    # The duplicate window changes with the age, as clients would set it.
    assert change("kv_bucket", bucket="config", ttl="1h", history=5)["diff"]["after"] == {
        "max_age": 3600 * 10**9,
        "max_msgs_per_subject": 5,
        "duplicate_window": 120 * 10**9,
    }
    assert "a subject has 3 (data_loss)" in refused("kv_bucket", "dangerous", bucket="config", history=2)["msg"]
    assert "must be from 1 to 64" in refused("kv_bucket", "invalid_option", bucket="config", history=65)["msg"]
    assert "not the name of a bucket" in refused("kv_bucket", "invalid_option", bucket="a.b")["msg"]
    if version == OLD:
        told = refused("kv_bucket", "unsupported", bucket="config", limit_marker_ttl="1m")
        assert "limit_marker_ttl needs nats-server 2.11" in told["msg"]
    else:
        change("kv_bucket", bucket="config", limit_marker_ttl="1m")
    refused("kv_bucket", "invalid_option", bucket="config", state="purged", keys="", allow=["data_loss"])
    assert change("kv_bucket", bucket="config", state="purged", keys="a.>", allow=["data_loss"])["purged"] == 4
    assert with_client(five, lambda js: _keys(js, "config", 1)) == ["d"]
    assert "it holds 1 message (" in refused("kv_bucket", "dangerous", bucket="config", state="absent")["msg"]
    change_absent(run, "kv_bucket", bucket="config", allow=["data_loss"])


async def _keys(js: Any, bucket: str, expected: int, deadline: float = 10) -> list[str]:
    """Return a bucket's keys. A watcher may read from a replica that has yet to apply acknowledged writes."""
    end = time.monotonic() + deadline
    while True:
        try:
            keys = sorted(await (await js.key_value(bucket)).keys())
        except nats.js.errors.NoKeysError:
            keys = []
        if len(keys) == expected or time.monotonic() > end:
            return keys
        await asyncio.sleep(0.1)


def test_buckets_copy_buckets(change: Run, api: JetStreamApi, five: NatsProcesses) -> None:
    change("kv_bucket", bucket="one")
    change("kv_bucket", bucket="copy", mirror={"name": "one"})
    change("kv_bucket", bucket="sum", sources=[{"name": "one"}, {"name": "KV_other"}])

    async def put(js: Any) -> None:
        await (await js.key_value("one")).put("k", b"v")

    with_client(five, put)
    for stream in ("KV_copy", "KV_sum"):
        wait_until(partial(api.stream, stream), lambda info: info["state"]["messages"] == 1, 10)
        assert api.stream(stream)["state"]["messages"] == 1
    assert with_client(five, lambda js: _keys(js, "sum", 1)) == ["k"]


def test_an_object_bucket_works_with_the_clients(
    change: Run, refused: Run, run: Run, api: JetStreamApi, five: NatsProcesses
) -> None:
    made = change("object_bucket", bucket="files", max_bytes="8MiB", num_replicas=3, ttl="1d", metadata={"team": "a"})

    async def use(js: Any) -> bytes:
        store = await js.object_store("files")
        await store.put("report", b"x" * 300_000)
        await js.create_object_store("theirs", max_bytes=8 * 2**20, replicas=3, ttl=86400)
        return (await store.get("report")).data

    assert with_client(five, use) == b"x" * 300_000
    theirs = api.stream("OBJ_theirs")["config"]
    for key, value in made["after"].items():
        if key not in ("name", "subjects", "metadata"):
            assert theirs[key] == value, key
    assert change("object_bucket", bucket="files", state="purged", allow=["data_loss"])["purged"] > 2
    sealed = change("object_bucket", bucket="files", sealed=True, ttl="0", allow=["irreversible"])
    assert sealed["after"]["sealed"] is True
    change_absent(run, "object_bucket", bucket="files")


def test_stream_that_is_not_a_bucket_is_not_changed(refused: Run, five: NatsProcesses) -> None:
    five.add_stream("KV_odd", 1)
    five.add_stream("OBJ_odd", 1)
    for name in ("kv_bucket", "object_bucket"):
        for state in ("present", "absent", "purged"):
            assert "are not those of such a bucket" in refused(name, "not_a_bucket", bucket="odd", state=state)["msg"]


# --- examples ---------------------------------------------------------------------------------------------------------


def test_the_examples_run(five: NatsProcesses, run_module: Run, version: str, tmp_path: Path) -> None:
    names = ("stream", "consumer", "kv_bucket", "kv_entry", "kv_entry_info", "object_bucket", "object", "object_info")
    for name in (f"nats_{noun}" for noun in names):
        module = importlib.import_module(f"{MODULES}.{name}")
        for task in yaml.safe_load(module.EXAMPLES):
            if version == OLD and "(needs" in task["name"]:
                continue
            options = task[f"natsops.jetstream.{name}"]
            connection = five.sys_connection() if options.pop("user") == "sys" else five.app_connection()
            del options["servers"], options["password"]
            for user in options.get("account_users", ()):
                user["password"] = user_connection(five, user["user"])["password"]
            if name == "nats_consumer":
                run_module("nats_stream", connection, stream="ORDERS", subjects=["orders.>"])
                if options.get("state") == "unpinned":
                    group = {"priority_groups": ["workers"], "priority_policy": "pinned_client"}
                    run_module(name, connection, stream="ORDERS", consumer=options["consumer"], **group)
            if name.startswith("nats_kv_entry"):
                run_module("nats_kv_bucket", connection, bucket=options["bucket"])
            if name in ("nats_object", "nats_object_info"):
                run_module("nats_object_bucket", connection, bucket=options["bucket"])
            for option in {"src", "dest"} & options.keys():
                options[option] = str(tmp_path / Path(options[option]).name)
                (tmp_path / "prices.csv").write_text("1")
            result = run_module(name, connection, **options)
            assert not result.get("failed"), (task["name"], result)


def user_connection(five: NatsProcesses, user: str) -> dict[str, Any]:
    return next(item for item in five.account_users() if item["user"] == user)
