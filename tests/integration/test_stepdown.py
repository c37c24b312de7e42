# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests step-downs of the meta leader, of streams and of consumers, on five real servers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import nats
import nats.errors
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from support.load import patiently, publish_stored
from support.module_runs import Runner, form
from support.nats_processes import APP_PASSWORD, VERSIONS, NatsProcesses, binary

Step = Callable[..., dict[str, Any]]


def current_leader(cluster: NatsProcesses, stream: str, consumer: str | None = None, account: str = "APP") -> str:
    """Return the current leader, as the leader itself reports it."""
    kind, name = ("STREAM", stream) if consumer is None else ("CONSUMER", f"{stream}.{consumer}")
    return cluster.app_request(f"$JS.API.{kind}.INFO.{name}", account=account)["cluster"]["leader"]


def peer_names(cluster: NatsProcesses, stream: str, consumer: str | None = None, account: str = "APP") -> list[str]:
    kind, name = ("STREAM", stream) if consumer is None else ("CONSUMER", f"{stream}.{consumer}")
    view = cluster.app_request(f"$JS.API.{kind}.INFO.{name}", account=account)["cluster"]
    return [peer["name"] for peer in view.get("replicas") or ()]


def meta_leader(cluster: NatsProcesses, run_module: Runner) -> str:
    return run_module("nats_cluster_info", cluster.sys_connection(), detail="servers")["meta"]["leader"]


def meta_leader_of_all(cluster: NatsProcesses, run_module: Runner) -> str:
    """Return the meta leader once every other server is in step: after an election, servers contact the leader one by
    one."""

    def in_step(meta: dict[str, Any]) -> bool:
        current = [peer["name"] for peer in meta["replicas"] if peer["current"]]
        return bool(meta["leader"]) and sorted(current) == cluster.names

    seen = wait_until(
        lambda: run_module("nats_cluster_info", cluster.sys_connection(), detail="servers")["meta"], in_step, 30
    )
    assert seen.done, seen.value
    return str(seen.value["leader"])


@pytest.fixture
def streams(five: NatsProcesses) -> Iterator[Callable[..., str]]:
    """Create streams, and delete them after the test."""
    made: list[tuple[str, str]] = []

    def make(name: str, replicas: int = 3, account: str = "APP", **config: Any) -> str:
        made.append((name, account))
        return five.add_stream(name, replicas, account, **config)["cluster"]["leader"]

    yield make
    for name, account in made:
        five.app_request(f"$JS.API.STREAM.DELETE.{name}", account=account)


@pytest.fixture
def meta(five: NatsProcesses, run_module: Runner) -> Step:
    return lambda **options: run_module("nats_meta_stepdown", five.sys_connection(), **options)


@pytest.fixture
def step(five: NatsProcesses, run_module: Runner) -> Step:
    """Run a step-down module for streams or consumers as the system user, with a user of each account."""

    def run(module: str, **options: Any) -> dict[str, Any]:
        if not options.get("all_accounts"):
            options["account"] = "APP"
        return run_module(module, five.sys_connection(), account_users=five.account_users(), **options)

    return run


def fits(result: dict[str, Any], version: str) -> None:
    """Check that the preferred server leads after at most as many step-downs as this version may need."""
    assert result["changed"], result
    assert result["failed"] is None
    assert result["attempts"] == 1 if version != "2.10.27" else 1 <= result["attempts"] <= 40


# --- meta -------------------------------------------------------------------------------------------------------------


def test_meta_preferred(five: NatsProcesses, meta: Step, run_module: Runner, version: str) -> None:
    before = meta_leader_of_all(five, run_module)
    wanted = next(name for name in five.names if name != before)
    foreseen = meta(preferred=wanted, check_mode=True, _ansible_diff=True)
    assert foreseen["changed"], foreseen
    assert foreseen["diff"] == {"before": {"meta leader": before}, "after": {"meta leader": wanted}}
    assert meta_leader(five, run_module) == before
    done = meta(preferred=wanted, _ansible_diff=True)
    fits({"failed": None, **done}, version)
    assert (done["before"], done["after"]) == ({"leader": before}, {"leader": wanted})
    assert done["diff"] == foreseen["diff"]
    assert meta_leader(five, run_module) == wanted
    again = meta(preferred=wanted)
    assert not again["changed"]
    assert again["attempts"] == 0
    assert again["after"] == {"leader": wanted}


def test_meta_away_from_and_force(five: NatsProcesses, meta: Step, run_module: Runner) -> None:
    before = meta_leader_of_all(five, run_module)
    allowed = sorted(name for name in five.names if name != before)[:2]
    away = [name for name in five.names if name not in allowed]
    done = meta(away_from=away)
    assert done["changed"], done
    assert sorted(done["candidates"]) == allowed
    assert done["after"]["leader"] in allowed
    assert not meta(away_from=away)["changed"]
    forced = meta(force=True)
    assert forced["changed"]
    assert forced["attempts"] == 1
    assert forced["after"]["leader"] not in (None, forced["before"]["leader"])
    assert meta_leader(five, run_module) == forced["after"]["leader"]


@pytest.mark.parametrize(
    ("wish", "code", "message"),
    [
        ({}, "invalid_option", "nothing is requested"),
        ({"preferred": "n1", "away_from": ["n1"]}, "invalid_option", "also in away_from"),
        ({"preferred": "n"}, "unknown_name", "no server named n (there are: n1, n2, n3, n4, n5)"),
        ({"away_from": ["n1", "n11"]}, "unknown_name", "no server named n11 (there are: n1, n2, n3, n4, n5)"),
        ({"placement": {"cluster": "C"}}, "unknown_name", "no cluster named C (there are: C1)"),
        ({"placement": {"tags": ["ssd"]}}, "unknown_name", "no server has the tag ssd (there are: node:n1, "),
        (
            {"away_from": ["n1", "n2", "n3", "n4", "n5"]},
            "step_down_refused",
            "none of its members may lead: n1 is excluded",
        ),
    ],
)
def test_meta_refuses(
    wish: dict[str, Any], code: str, message: str, five: NatsProcesses, meta: Step, run_module: Runner
) -> None:
    before = meta_leader_of_all(five, run_module)
    refused = meta(**wish)
    assert refused["failed"]
    assert refused["failure"]["code"] == code
    assert message in refused["msg"]
    assert meta_leader(five, run_module) == before


def test_step_downs_that_are_not_seen_in_time(
    five: NatsProcesses, meta: Step, step: Step, streams: Callable[..., str], run_module: Runner
) -> None:
    before = meta_leader_of_all(five, run_module)
    late = meta(away_from=[before], wait_timeout=1e-9)
    assert late["failure"]["code"] == "step_down_failed", late
    assert late["msg"].startswith("the meta group has no suitable leader: was not reached within")
    assert meta_leader(five, run_module) == before
    leader = streams("SD")
    late = step("nats_stream_stepdown", stream="SD", away_from=[leader], wait_timeout=1e-9)
    assert late["failure"]["code"] == "step_down_failed", late
    assert "was not reached within" in late["msg"] and current_leader(five, "SD") == leader


def test_a_server_without_a_cluster_has_no_leaders(
    make_cluster: Callable[..., NatsProcesses], run_module: Runner
) -> None:
    alone = make_cluster(["n1"], cluster="")
    alone.add_stream("SD", 1)
    refused = run_module("nats_meta_stepdown", alone.sys_connection(), force=True)
    assert refused["failure"]["code"] == "not_clustered", refused
    assert "no server that answered (n1) is in a JetStream meta group" in refused["msg"]
    refused = run_module("nats_stream_stepdown", alone.app_connection(), stream="SD", force=True)
    assert "stream SD: a single replica, on n1, which is excluded" in refused["msg"], refused


def test_no_account_is_not_all_accounts(five: NatsProcesses, run_module: Runner) -> None:
    asked = {"all_accounts": True, "account_users": [], "away_from": ["n1"]}
    refused = run_module("nats_stream_stepdown", five.sys_connection(), **asked)
    assert "all_accounts: account_users has no account" in refused["msg"]


def test_meta_needs_the_system_account(five: NatsProcesses, run_module: Runner) -> None:
    refused = run_module("nats_meta_stepdown", five.app_connection(), force=True, timeout=2)
    assert refused["failure"]["code"] == "wrong_account"
    assert "Use the credentials of a user of the system account" in refused["msg"]


# --- streams ----------------------------------------------------------------------------------------------------------


def test_stream_preferred(five: NatsProcesses, step: Step, streams: Callable[..., str], version: str) -> None:
    before = streams("SD")
    wanted = max(peer_names(five, "SD"))
    label = "stream SD (account APP)"
    foreseen = step("nats_stream_stepdown", stream="SD", preferred=wanted, check_mode=True, _ansible_diff=True)
    assert foreseen["changed"], foreseen
    assert foreseen["diff"] == {"before": {label: before}, "after": {label: wanted}}
    assert current_leader(five, "SD") == before
    done = step("nats_stream_stepdown", stream="SD", preferred=wanted, _ansible_diff=True)
    fits(done["results"][0], version)
    assert done["diff"] == foreseen["diff"]
    assert done["totals"] == {"groups": 1, "changed": 1, "skipped": 0, "refused": 0, "failed": 0}
    assert current_leader(five, "SD") == wanted
    again = step("nats_stream_stepdown", stream="SD", preferred=wanted)
    assert not again["changed"]
    assert again["results"][0]["after"] == {"leader": wanted}


def test_an_accounts_own_user_is_enough(five: NatsProcesses, streams: Callable[..., str], run_module: Runner) -> None:
    before = streams("SD")
    forced = run_module("nats_stream_stepdown", five.app_connection(), stream="SD", force=True)
    assert forced["changed"], forced
    assert forced["results"][0]["attempts"] == 1
    assert forced["results"][0]["before"] == {"leader": before}
    assert forced["results"][0]["after"] == {"leader": current_leader(five, "SD")} != {"leader": before}


def test_an_accounts_own_user_is_enough_after_a_reload(
    healthy: NatsProcesses, run_module: Runner, request: pytest.FixtureRequest
) -> None:
    """A server that has reloaded its configuration does not forward other servers' replies to the user."""
    assert run_module("nats_server_reload", healthy.sys_connection(), server_name="n1")["changed"]
    healthy.add_stream("ALONE", 3)
    request.addfinalizer(lambda: healthy.app_request("$JS.API.STREAM.DELETE.ALONE"))
    over_n1 = {**healthy.app_connection(), "servers": [healthy.url("n1")]}
    wanted = peer_names(healthy, "ALONE").pop()
    done = run_module("nats_stream_stepdown", over_n1, stream="ALONE", preferred=wanted)
    assert done["results"][0]["after"] == {"leader": wanted}, done
    assert current_leader(healthy, "ALONE") == wanted
    refused = run_module("nats_stream_stepdown", over_n1, stream="ALONE", placement={"tags": ["ssd"]})
    # Sometimes 2.15.1 forwards the other servers' replies again.
    assert refused["failure"]["code"] in ("wrong_account", "unknown_name")
    unknown = run_module("nats_stream_stepdown", over_n1, stream="ALONE", preferred="n3")
    assert "there is no server named n3" in unknown["msg"]


def test_all_streams_leave_a_server(five: NatsProcesses, step: Step, streams: Callable[..., str], version: str) -> None:
    for number in range(6):
        streams(f"SD{number}", account="APP" if number % 2 else "OTHER")
    streams("SDALONE", 1)
    alone = current_leader(five, "SDALONE")
    led = {
        f"SD{number}": current_leader(five, f"SD{number}", account="APP" if number % 2 else "OTHER")
        for number in range(6)
    }
    meant = {name for name, leader in led.items() if leader == alone} | {"SDALONE"}
    foreseen = step("nats_stream_stepdown", away_from=[alone], all_accounts=True, check_mode=True)
    done = step("nats_stream_stepdown", away_from=[alone], all_accounts=True, concurrency=2)
    for result in (foreseen, done):
        assert {item["stream"] for item in result["results"]} == meant, result
        assert result["totals"]["skipped"] == 1
        assert result["totals"]["changed"] == len(meant) - 1
    if version != "2.10.27":
        assert [item["after"] for item in foreseen["results"]] == [item["after"] for item in done["results"]]
    for number in range(6):
        assert current_leader(five, f"SD{number}", account="APP" if number % 2 else "OTHER") != alone
    skipped = next(item for item in done["results"] if item["stream"] == "SDALONE")
    assert skipped["skipped"] == f"a single replica, on {alone}, which is excluded"
    again = step("nats_stream_stepdown", away_from=[alone], all_accounts=True)
    assert not again["changed"]
    assert again["totals"]["groups"] == 1
    refused = step("nats_stream_stepdown", away_from=[alone], all_accounts=True, r1="fail")
    assert refused["failure"]["code"] == "step_down_refused"


def test_streams_are_refused_together(five: NatsProcesses, step: Step, streams: Callable[..., str]) -> None:
    before = streams("SD")
    alone = streams("SDALONE", 1)
    away = sorted({before, alone})
    refused = step("nats_stream_stepdown", streams=["SD", "SDALONE"], away_from=away)
    assert refused["failure"]["code"] == "step_down_refused"
    assert f"stream SDALONE (account APP): a single replica, on {alone}" in refused["msg"]
    assert refused["totals"] == {"groups": 2, "changed": 0, "skipped": 0, "refused": 1, "failed": 0}
    assert not refused["changed"]
    assert current_leader(five, "SD") == before
    outside = next(name for name in five.names if name not in [before, *peer_names(five, "SD")])
    refused = step("nats_stream_stepdown", stream="SD", preferred=outside)
    assert f"stream SD (account APP): {outside} is not one of its members" in refused["msg"]
    refused = step("nats_stream_stepdown", stream="SD", away_from=[before, *peer_names(five, "SD")])
    assert "none of its members may lead" in refused["msg"]
    assert current_leader(five, "SD") == before


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ({"stream": "NOTHERE", "force": True}, "api_error", "stream NOTHERE (account APP): stream not found"),
        ({"stream": "SD*", "force": True}, "invalid_option", "'SD*' is not the name of one asset"),
        (
            {"force": True},
            "invalid_option",
            "without stream or streams, away_from must name the servers whose leaders step down",
        ),
        ({"streams": [], "away_from": ["n1"]}, "invalid_option", "the list is empty"),
        ({"stream": "SD", "all_accounts": True, "force": True}, "invalid_option", "all_accounts: excludes"),
        (
            {"stream": "SD", "all_consumers": True, "all_accounts": True, "away_from": ["n1"]},
            "invalid_option",
            "all_accounts: excludes account and the name of a stream or consumer",
        ),
        ({"stream": "SD", "consumer": "w*", "force": True}, "invalid_option", "'w*' is not the name of one asset"),
        ({"stream": "SD", "consumers": [], "away_from": ["n1"]}, "invalid_option", "consumers: the list is empty"),
        (
            {"stream": "SD", "all_consumers": True, "force": True},
            "invalid_option",
            "without consumer or consumers, away_from must name the servers whose leaders step down",
        ),
        (
            {"streams": ["SD"], "all_consumers": True, "force": True},
            "invalid_option",
            "all_consumers: excludes streams",
        ),
        (
            {"stream": "SD", "consumer": "worker", "all_consumers": True, "force": True},
            "invalid_option",
            "all_consumers: excludes consumer",
        ),
        ({"stream": "SD", "force": True, "concurrency": 0}, "invalid_option", "concurrency"),
        ({"away_from": ["n11"]}, "unknown_name", "no server named n11"),
        ({"stream": "SD", "preferred": "n"}, "unknown_name", "no server named n "),
    ],
)
def test_stream_options_are_checked(
    options: dict[str, Any], code: str, message: str, step: Step, streams: Callable[..., str]
) -> None:
    streams("SD", 1)
    refused = step("nats_stream_stepdown", **options)
    assert refused["failed"]
    assert refused["failure"]["code"] == code
    assert message in refused["msg"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"consumer": "worker"}, "missing parameter(s) required by 'consumer': stream"),
        ({"consumers": ["worker"]}, "missing parameter(s) required by 'consumers': stream"),
        ({"streams": ["SD"], "consumer": "worker"}, "missing parameter(s) required by 'consumer': stream"),
        ({"stream": "SD", "streams": ["SD"]}, "parameters are mutually exclusive: stream|streams"),
        (
            {"stream": "SD", "consumer": "worker", "consumers": ["worker"]},
            "parameters are mutually exclusive: consumer|consumers",
        ),
    ],
)
def test_options_that_select_different_assets_are_refused(options: dict[str, Any], message: str, step: Step) -> None:
    refused = step("nats_stream_stepdown", force=True, **options)
    assert refused["failed"] and message in refused["msg"], refused


def test_the_system_user_alone_owns_no_stream(five: NatsProcesses, run_module: Runner) -> None:
    refused = run_module("nats_stream_stepdown", five.sys_connection(), stream="SD", force=True)
    assert refused["failure"]["err_code"] == 10039, refused
    assert "selects the owning account with account and sets a user of it in account_users" in refused["msg"]


# --- consumers --------------------------------------------------------------------------------------------------------


def test_consumers(five: NatsProcesses, step: Step, streams: Callable[..., str], version: str) -> None:
    streams("SD", 5)
    for name, replicas in (("worker", 3), ("other", 5)):
        five.add_consumer("SD", name, num_replicas=replicas)
    config = {"inactive_threshold": 60_000_000_000}
    ephemeral = five.app_request("$JS.API.CONSUMER.CREATE.SD", {"stream_name": "SD", "config": config})
    before = current_leader(five, "SD", "worker")
    wanted = max(peer_names(five, "SD", "worker"))
    outside = next(name for name in five.names if name not in [before, *peer_names(five, "SD", "worker")])
    refused = step("nats_stream_stepdown", stream="SD", consumer="worker", preferred=outside)
    assert f"consumer worker of stream SD (account APP): {outside} is not one of its members" in refused["msg"]
    assert step("nats_stream_stepdown", stream="SD", consumer="worker", preferred=wanted, check_mode=True)["changed"]
    assert current_leader(five, "SD", "worker") == before
    fits(step("nats_stream_stepdown", stream="SD", consumer="worker", preferred=wanted)["results"][0], version)
    assert current_leader(five, "SD", "worker") == wanted
    assert not step("nats_stream_stepdown", stream="SD", consumer="worker", preferred=wanted)["changed"]
    alone = ephemeral["cluster"]["leader"]
    away = sorted({wanted, alone})
    done = step("nats_stream_stepdown", all_consumers=True, away_from=away)
    assert not done.get("failed"), done
    skipped = [item["consumer"] for item in done["results"] if item["skipped"]]
    assert skipped == [ephemeral["name"]]
    for name in ("worker", "other"):
        assert current_leader(five, "SD", name) not in away
    assert not step("nats_stream_stepdown", stream="SD", all_consumers=True, away_from=away)["changed"]
    missing = step("nats_stream_stepdown", stream="SD", consumer="absent", force=True)
    assert missing["failure"]["err_code"] == 10014
    assert "consumer absent of stream SD (account APP): consumer not found" in missing["msg"]


# --- servers that are down, and tags ----------------------------------------------------------------------------------


def until(module: Callable[[], dict[str, Any]], message: str) -> None:
    """Run a module, which must fail, until it refuses with this reason, for at most 30 s.

    Until the last server notices that the others are down, a forced step-down is attempted and fails.
    """
    deadline = time.monotonic() + 30
    while True:
        refused = module()
        assert refused.get("failed"), refused
        if message in refused["msg"] or time.monotonic() > deadline:
            break
    assert (refused["failure"]["code"], message in refused["msg"]) == ("step_down_refused", True), refused


@pytest.fixture
def zones(version: str, tmp_path: Path, run_module: Runner) -> Iterator[NatsProcesses]:
    """Three servers for this test, each with its own tag."""
    cluster = NatsProcesses(version, tmp_path, ["n1", "n2", "n10"])
    for number, name in enumerate(cluster.names, 1):
        cluster.write_config(name, f'server_tags: ["az:{number}"]')
    try:
        cluster.start()
        yield form(cluster, run_module)
    finally:
        cluster.kill()


def test_tags_and_dead_servers(zones: NatsProcesses, run_module: Runner) -> None:
    def meta(**options: Any) -> dict[str, Any]:
        return run_module("nats_meta_stepdown", zones.sys_connection(), **options)

    def own(**options: Any) -> dict[str, Any]:
        return run_module("nats_stream_stepdown", zones.app_connection(), stream="SD", **options)

    zones.add_stream("SD", 3)
    for step in (meta, own):
        where = {"cluster": "C1", "tags": ["AZ:3"]}
        assert not step(placement=where).get("failed")
        assert not step(placement=where)["changed"]
        assert not step(preferred="n10")["changed"]
        assert step(preferred="n1")["changed"]
    assert meta_leader(zones, run_module) == current_leader(zones, "SD") == "n1"

    zones.kill("n10")
    refused = own(preferred="n10", wait_timeout=1)
    assert refused["failure"]["code"] == "step_down_refused", refused
    assert "stream SD: no suitable member is in step with the leader n1: n10 did not answer" in refused["msg"]
    assert meta_leader(zones, run_module) == current_leader(zones, "SD") == "n1"

    zones.kill("n2")
    for step, what in ((own, "stream SD"), (meta, "the meta group")):
        until(partial(step, force=True, wait_timeout=1), f"{what}: no leader; 2 of its 3 members must be up")


@pytest.fixture
def upgrading(tmp_path: Path, run_module: Runner) -> Iterator[NatsProcesses]:
    """Three servers in the middle of an upgrade."""
    old, new = VERSIONS
    cluster = NatsProcesses(old, tmp_path, ["n1", "n2", "n10"])
    try:
        for name, version in zip(cluster.names, (old, new, new)):
            cluster._binary = binary(version)
            cluster.start(name)
        yield form(cluster, run_module)
    finally:
        cluster.kill()


def test_mixed_versions(upgrading: NatsProcesses, run_module: Runner) -> None:
    upgrading.add_stream("SD", 3)
    upgrading.add_consumer("SD", "worker")
    connection = upgrading.sys_connection()
    account = {"account": "APP", "account_users": upgrading.account_users(), "stream": "SD"}
    for name in [*upgrading.names, "n1"]:
        done = run_module("nats_meta_stepdown", connection, preferred=name)
        assert done.get("after") == {"leader": name}, done
        for asset in ({}, {"consumer": "worker"}):
            done = run_module("nats_stream_stepdown", connection, preferred=name, **account, **asset)
            assert done["results"][0]["after"] == {"leader": name}, done


# --- forbidden outcomes ---------------------------------------------------------------------------------------------


class Publisher(threading.Thread):
    """Publishes numbered messages one by one until stopped. Each message has an id and is repeated until it is
    acknowledged."""

    def __init__(self, cluster: NatsProcesses, stream: str) -> None:
        super().__init__()
        self._cluster, self._stream = cluster, stream
        self._stop_it = threading.Event()
        self.acknowledged: list[int] = []

    def run(self) -> None:
        asyncio.run(self._publish())

    async def _publish(self) -> None:
        connection = await nats.connect(self._cluster.urls, user="app", password=APP_PASSWORD)
        stream = connection.jetstream(timeout=1)
        number = 0
        while not self._stop_it.is_set():
            with contextlib.suppress(nats.errors.Error, nats.js.errors.Error):
                await publish_stored(stream, f"{self._stream}.x", str(number).encode(), str(number))
                self.acknowledged.append(number)
                number += 1
        await connection.close()

    def finish(self) -> list[int]:
        self._stop_it.set()
        self.join()
        return self.acknowledged


def stored(cluster: NatsProcesses, stream: str) -> list[int]:
    """Return the numbers of all messages in the stream, in order."""

    async def read() -> list[int]:
        connection = await nats.connect(cluster.urls, user="app", password=APP_PASSWORD)
        try:
            jetstream = connection.jetstream()
            consumer = await patiently(partial(jetstream.subscribe, f"{stream}.>", ordered_consumer=True))
            total = (await patiently(partial(jetstream.stream_info, stream))).state.messages
            return [int((await consumer.next_msg(timeout=5)).data) for _number in range(total)]
        finally:
            await connection.close()

    return asyncio.run(read())


def test_no_acknowledged_message_is_lost(five: NatsProcesses, step: Step, streams: Callable[..., str]) -> None:
    streams("SD")
    publisher = Publisher(five, "SD")
    publisher.start()
    led = set()
    try:
        for _round in range(6):
            reached = len(publisher.acknowledged)
            led.add(step("nats_stream_stepdown", stream="SD", force=True)["results"][0]["after"]["leader"])
            deadline = time.monotonic() + 15
            while len(publisher.acknowledged) < reached + 20 and time.monotonic() < deadline:
                time.sleep(0.05)
            assert len(publisher.acknowledged) >= reached + 20
    finally:
        acknowledged = publisher.finish()
    assert len(led) >= 2
    kept = stored(five, "SD")
    assert kept == sorted(set(kept))
    assert set(acknowledged) <= set(kept)


# --- all of a cluster -------------------------------------------------------------------------------------------------


def test_the_leaders_are_spread(
    five: NatsProcesses, streams: Callable[..., str], step: Step, run_module: Runner
) -> None:
    """Twelve streams and six consumers of a stream with five replicas, all led by one server."""
    names = [f"LR{number}" for number in range(12)]
    for name in names:
        streams(name, 5)
    for number in range(6):
        five.add_consumer("LR0", f"C{number}", num_replicas=5)
    rebalance = partial(
        run_module,
        "nats_leader_rebalance",
        five.sys_connection(),
        account_users=five.account_users(),
        cluster="C1",
        sample=0,
    )

    def all_led_by_one() -> Any:
        step("nats_stream_stepdown", streams=names, preferred="n1")
        step("nats_stream_stepdown", stream="LR0", consumers=[f"C{number}" for number in range(6)], preferred="n1")
        return rebalance(check_mode=True, _ansible_diff=True)

    # Followers that get no CPU time miss their leader's heartbeats and elect another leader.
    whole = {"streams": 12, "consumers": 6, "bytes_per_second": 0}
    foreseen = wait_until(all_led_by_one, lambda result: result["before"]["n1"] == whole, 60).value
    assert foreseen["changed"] and foreseen["before"]["n1"] == whole
    assert rebalance(cluster="C9")["failure"]["code"] == "cluster_missing"
    assert rebalance(max_step_downs=-1)["failure"]["code"] == "invalid_option"
    nobody = rebalance(account_users=[])
    assert (nobody["moves"], len(nobody["left"]["no user of account APP is configured"])) == ([], 18)
    # 12 = 3 + 3 + 2 + 2 + 2; n1 keeps its maximum.
    assert len([move for move in foreseen["moves"] if move["consumer"] is None]) == 9
    assert len([move for move in foreseen["moves"] if move["consumer"] is not None]) == 4
    assert {current_leader(five, name) for name in names} == {"n1"}
    few = rebalance(check_mode=True, max_step_downs=5)
    assert len(few["moves"]) == 5 and few["after"]["n1"]["streams"] + few["after"]["n1"]["consumers"] == 13

    made = rebalance(_ansible_diff=True)
    assert (made["moves"], made["diff"], made["left"]) == (foreseen["moves"], foreseen["diff"], {})
    # Leaders that are elected in the meantime are moved back.
    again = wait_until(rebalance, lambda result: not result["changed"], 60).value
    assert (again["changed"], again["moves"]) == (False, [])
    led = [current_leader(five, name) for name in names]
    assert sorted(led.count(name) for name in five.names) == [2, 2, 2, 3, 3]
    consumed = [current_leader(five, "LR0", f"C{number}") for number in range(6)]
    assert sorted(consumed.count(name) for name in five.names) == [1, 1, 1, 1, 2]
    assert again["lines"][0] == "The leaders are distributed as evenly as their groups allow"


def test_write_load_is_balanced(
    five: NatsProcesses, streams: Callable[..., str], step: Step, run_module: Runner
) -> None:
    """n1 and n2 lead two of four streams each; only those of n1 get messages."""
    names = [f"WR{number}" for number in range(4)]
    for name in names:
        streams(name, 5)
    for leader, pair in (("n1", names[:2]), ("n2", names[2:])):
        step("nats_stream_stepdown", streams=pair, preferred=leader)
    others = [name for name in five.names if name not in ("n1", "n2")]
    writing = threading.Event()

    async def write() -> None:
        connection = await nats.connect(five.urls, user="app", password=APP_PASSWORD)
        try:
            while not writing.is_set():
                for name in names[:2]:
                    await patiently(partial(connection.jetstream().publish, f"{name}.a", bytes(1000)))
        finally:
            await connection.close()

    thread = threading.Thread(target=lambda: asyncio.run(write()))
    thread.start()
    try:
        found = run_module(
            "nats_leader_rebalance",
            five.sys_connection(),
            account_users=five.account_users(),
            cluster="C1",
            sample=2,
            check_mode=True,
        )
    finally:
        writing.set()
        thread.join()
    moved = {move["stream"] for move in found["moves"]}
    assert len(found["moves"]) == 2 and len(moved & set(names[:2])) == 1 and len(moved & set(names[2:])) == 1
    assert all(move["to"] in others for move in found["moves"])
    assert found["before"]["n1"]["bytes_per_second"] > 1.5 * found["after"]["n1"]["bytes_per_second"] > 0
