# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests how peers of streams and of the meta group are removed, moved and evacuated, on clusters in which servers fail
in the process."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import peer_id
from ansible_collections.natsops.jetstream.plugins.module_utils.placement import replica_moves
from ansible_collections.natsops.jetstream.plugins.module_utils.placement.rules import PlacementResult
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from ansible_collections.natsops.jetstream.plugins.modules import nats_server_evacuate
from support.load import Load, LoadPlan, patiently, publish_stored
from support.module_runs import Runner, form
from support.nats_processes import APP_PASSWORD, APP_USER, NatsProcesses

NAMES = [f"n{number}" for number in range(1, 6)]
MESSAGES = 500


def members(cluster: NatsProcesses, stream: str, account: str = "APP") -> list[str]:
    """Return the members of a stream's group, the leader first. Wait for a leader first."""
    for _attempt in range(60):
        view = cluster.app_request(f"$JS.API.STREAM.INFO.{stream}", account=account)["cluster"]
        if view.get("leader"):
            return [view["leader"], *sorted(peer["name"] for peer in view.get("replicas") or ())]
        time.sleep(0.25)
    raise AssertionError(f"{stream} has no leader")


def stored(cluster: NatsProcesses, stream: str) -> int:
    return int(cluster.app_request(f"$JS.API.STREAM.INFO.{stream}")["state"]["messages"])


async def _fill(cluster: NatsProcesses, stream: str) -> None:
    import nats

    connection = await nats.connect(
        [cluster.url(name) for name in cluster.processes], user="app", password=APP_PASSWORD
    )
    jetstream = connection.jetstream()

    async def put(number: int) -> None:
        # Some servers may not have the interest of a new stream yet.
        await patiently(partial(publish_stored, jetstream, f"{stream}.x", b"x" * 200, str(number)))

    await asyncio.gather(*map(put, range(MESSAGES)))
    await connection.close()


async def _delete(cluster: NatsProcesses, stream: str) -> None:
    """Delete a stream. If it no longer exists, it was deleted by a request whose reply was lost."""
    import nats
    from nats.js.errors import NotFoundError

    connection = await nats.connect(
        [cluster.url(name) for name in cluster.processes], user="app", password=APP_PASSWORD
    )

    async def delete() -> None:
        with contextlib.suppress(NotFoundError):
            await connection.jetstream(timeout=2).delete_stream(stream)

    await patiently(delete)
    await connection.close()


class Peers:
    """The modules that this file tests, on one cluster."""

    def __init__(self, cluster: NatsProcesses, run_module: Runner) -> None:
        self.cluster = cluster
        self._run = run_module

    def run(self, name: str, check_mode: Any = False, **options: Any) -> dict[str, Any]:
        connection = {**self.cluster.sys_connection(), "timeout": options.pop("timeout", 2)}
        if name != "nats_meta_peer":
            options.setdefault("account_users", self.cluster.account_users())
        return self._run(name, connection, check_mode, **options)

    def stream(self, check_mode: Any = False, **options: Any) -> dict[str, Any]:
        if not options.get("all_accounts"):
            options.setdefault("account", "APP")
        return self.run("nats_stream_peer", check_mode, **{"wait_timeout": 40, **options})

    def add(self, name: str, replicas: int, **config: Any) -> list[str]:
        """Create a stream with messages and a consumer that has the same number of replicas; return the stream's
        members, the leader first."""
        self.cluster.add_stream(name, replicas, **config)
        self.cluster.add_consumer(name, "worker")
        asyncio.run(_fill(self.cluster, name))
        return members(self.cluster, name)

    def delete(self, *names: str) -> None:
        for name in names:
            asyncio.run(_delete(self.cluster, name))

    def consumer(self, stream: str, name: str = "worker") -> list[str]:
        view = self.cluster.app_request(f"$JS.API.CONSUMER.INFO.{stream}.{name}")["cluster"]
        return sorted(filter(None, [view.get("leader"), *(peer["name"] for peer in view.get("replicas") or ())]))


def ready(cluster: NatsProcesses, run_module: Runner) -> Peers:
    """Return the cluster once its meta leader has received heartbeats from every server, so any of them can be
    chosen."""
    peers = Peers(form(cluster, run_module), run_module)
    cluster.add_stream("EVERYWHERE", len(cluster.names))
    peers.delete("EVERYWHERE")
    return peers


@pytest.fixture(scope="module")
def tagged(version: str, tmp_path_factory: pytest.TempPathFactory, run_module: Runner) -> Iterator[Peers]:
    """Five servers, each with its own tag."""
    cluster = NatsProcesses(version, tmp_path_factory.mktemp("peers"), NAMES, accounts={"APP": "app", "OTHER": "other"})
    for name in NAMES:
        cluster.write_config(name, f'server_tags: ["node:{name}", "ssd"]')
    cluster.start()
    try:
        yield ready(cluster, run_module)
    finally:
        cluster.kill()


def ok(result: dict[str, Any]) -> dict[str, Any]:
    assert not result.get("failed"), result
    return result


def test_a_running_server_hands_its_replica_over(tagged: Peers) -> None:
    before = tagged.add("ORDERS", 3)
    leader = before[0]
    asked = {"stream": "ORDERS", "server_name": leader}
    predicted = ok(tagged.stream(check_mode=True, **asked))
    assert predicted["changed"]
    assert members(tagged.cluster, "ORDERS") == before
    assert leader not in predicted["after"]["APP/ORDERS"]["members"]
    result = ok(tagged.stream(**asked))
    assert (result["changed"], result["moving"], result["methods"]) == (True, False, {"APP/ORDERS": "evacuate"})
    after = members(tagged.cluster, "ORDERS")
    assert sorted(after) == result["after"]["APP/ORDERS"]["members"] == tagged.consumer("ORDERS")
    assert len(after) == 3
    assert leader not in after
    assert set(before[1:]) < set(after)
    assert result["progress"][-1]["done"]
    assert min(len(sample["members"]) for sample in result["progress"] if sample["leader"]) == 3
    assert stored(tagged.cluster, "ORDERS") == MESSAGES
    again = ok(tagged.stream(**asked))
    assert (again["changed"], again["before"]) == (False, again["after"])
    tagged.delete("ORDERS")


def test_unknown_server_is_refused(tagged: Peers) -> None:
    tagged.add("ORDERS", 3)
    for options in ({"server_name": "N1"}, {"server_name": ""}, {"state": "moved", "from": "n1", "to": "n.*"}):
        refused = tagged.stream(stream="ORDERS", **options)
        assert refused["failure"]["code"] == "invalid_option", refused
        assert "is not a server of the cluster, which has n1, n2, n3, n4, n5" in refused["msg"]
    tagged.delete("ORDERS")


def test_a_leader_that_does_not_change_keeps_its_replica(tagged: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tagged.add("ORDERS", 3)
    monkeypatch.setattr(replica_moves, "ELECTION_SECONDS", 0.0)
    refused = tagged.stream(stream="ORDERS", server_name=before[0])
    assert refused["failure"]["code"] == "step_down_failed", refused
    assert "stream ORDERS (account APP): was not reached within 0 s" in refused["msg"]
    assert "No replica of stream APP/ORDERS was moved." in refused["msg"]
    assert members(tagged.cluster, "ORDERS") == before
    tagged.delete("ORDERS")


def test_server_that_may_have_unreported_replicas_is_not_evacuated(tagged: Peers) -> None:
    [host] = tagged.add("ALONE", 1)
    tagged.cluster.kill(host)
    server = next(iter(tagged.cluster.processes))

    def refused(run: Callable[..., dict[str, Any]]) -> None:
        # While there is no meta leader, requests get no reply.
        seen = wait_until(run, lambda said: said.get("failure", {}).get("code") == "stream_unknown", 30)
        assert seen.done and "no leader for ALONE of account APP" in seen.value["msg"], seen.value

    # The list of streams arrives after four seconds, during which the meta leader waits for the missing server.
    refused(partial(tagged.stream, server_name=server, timeout=6))
    refused(partial(tagged.run, "nats_server_evacuate", server_name=server, replicas=True, timeout=6))
    tagged.cluster.start(host)
    assert members(tagged.cluster, "ALONE") == [host]
    tagged.delete("ALONE")


def test_a_single_replica_moves_with_its_data_or_not_at_all(tagged: Peers) -> None:
    [host] = tagged.add("EVENTS", 1)
    refused = tagged.stream(stream="EVENTS", server_name=host, method="remove")
    assert refused["failure"]["code"] == "data_would_be_lost"
    assert f"all {MESSAGES} messages of stream APP/EVENTS, consumer APP/EVENTS/worker" in refused["msg"]
    assert members(tagged.cluster, "EVENTS") == [host]
    accept = {}
    if tagged.cluster.version.startswith("2.10."):
        unsafe = tagged.stream(stream="EVENTS", server_name=host)
        assert unsafe["failure"]["code"] == "data_would_be_lost"
        assert "before 2.15 may lose messages published during the move" in unsafe["msg"]
        accept = {"accept_loss": True}
    result = ok(tagged.stream(stream="EVENTS", server_name=host, **accept))
    assert result["methods"] == {"APP/EVENTS": "evacuate"}
    [new] = members(tagged.cluster, "EVENTS")
    assert new != host
    assert (stored(tagged.cluster, "EVENTS"), tagged.consumer("EVENTS")) == (MESSAGES, [new])
    tagged.delete("EVENTS")


def test_a_move_to_one_server(tagged: Peers) -> None:
    before = tagged.add("ORDERS", 3, placement={"tags": ["ssd"]})
    spare = [name for name in NAMES if name not in before]
    asked = {"state": "moved", "stream": "ORDERS", "from": before[1], "to": spare[1]}
    wanted = sorted({*before, spare[1]} - {before[1]})
    assert ok(tagged.stream(True, **asked))["after"]["APP/ORDERS"]["members"] == wanted
    result = ok(tagged.stream(**asked))
    assert (result["changed"], sorted(members(tagged.cluster, "ORDERS"))) == (True, wanted)
    config = tagged.cluster.app_request("$JS.API.STREAM.INFO.ORDERS")["config"]
    assert config["placement"]["tags"] == ["ssd"]
    assert not ok(tagged.stream(**asked))["changed"]
    wrong = tagged.stream(state="moved", stream="ORDERS", **{"from": spare[0], "to": before[1]})
    assert wrong["failure"]["code"] == "not_a_member"
    member = tagged.stream(state="moved", stream="ORDERS", **{"from": before[0], "to": before[2]})
    assert "is already a member" in member["msg"]
    tagged.delete("ORDERS")


def test_no_server_fits(tagged: Peers) -> None:
    before = tagged.add("LARGE", 3, max_bytes=50_000_000)
    placement = {"tags": [f"node:{before[0]}"]}
    tagged.add("PINNED", 1, placement=placement)
    result = tagged.stream(stream="PINNED", server_name=before[0], accept_loss=True)
    assert result["failure"]["code"] == "no_spare_server"
    for name in NAMES:
        if name != before[0]:
            assert (
                f"{name} does not have the tag node:{before[0]}, which the stream's placement requires" in result["msg"]
            )
    assert members(tagged.cluster, "PINNED") == [before[0]]
    everything = tagged.stream(server_name=before[0])
    assert everything["failed"]
    assert "PINNED" in everything["msg"]
    assert members(tagged.cluster, "LARGE") == before
    tagged.delete("PINNED")
    cleared = ok(tagged.stream(server_name=before[0], all_accounts=True))
    assert before[0] not in members(tagged.cluster, "LARGE")
    assert cleared["changed"]
    assert not ok(tagged.stream(server_name=before[0], all_accounts=True))["changed"]
    tagged.delete("LARGE")


def test_a_move_that_is_not_waited_for_is_continued_and_can_be_cancelled(tagged: Peers) -> None:
    before = tagged.add("ORDERS", 3)
    started = ok(tagged.stream(stream="ORDERS", server_name=before[1], wait=False))
    assert started["changed"]
    done = ok(tagged.stream(stream="ORDERS", server_name=before[1]))
    assert before[1] not in done["after"]["APP/ORDERS"]["members"]
    assert not ok(tagged.stream(state="cancelled", stream="ORDERS"))["changed"]
    tagged.delete("ORDERS")


def led(cluster: NatsProcesses, names: list[str]) -> dict[str, str]:
    """Return who leads each of these streams."""
    return {name: members(cluster, name)[0] for name in names}


def test_leaders_leave_a_server_and_come_back(tagged: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"S{number}" for number in range(9)]
    for name in names:
        tagged.cluster.add_stream(name, 3)
    tagged.cluster.add_consumer(names[0], "worker")
    # ALONE starts on a server that also has replicas of other streams, and has no placement afterwards, so it can be
    # moved.
    beside = {"tags": [f"node:{members(tagged.cluster, names[0])[0]}"]}
    alone = tagged.cluster.add_stream("ALONE", 1, placement=beside)["config"]
    tagged.cluster.app_request("$JS.API.STREAM.UPDATE.ALONE", {**alone, "placement": None})
    leaders = led(tagged.cluster, [*names, "ALONE"])
    server = leaders["ALONE"]
    tagged.cluster.add_stream("OTHERS", 3, account="OTHER")
    account = {"account_users": tagged.cluster.account_users()[:1]}
    hosts_other = members(tagged.cluster, "OTHERS", "OTHER")[0]
    refused = tagged.run("nats_server_evacuate", server_name=hosts_other, **account)
    assert "no user for OTHER" in refused["msg"]
    assert "OTHERS" not in str(refused.get("after"))

    asked = {"server_name": server, "wait_timeout": 40}
    single = tagged.run("nats_server_evacuate", **asked, r1_policy="fail")
    assert (single["failure"]["code"], single["stuck"]) == (
        "infeasible",
        [{"asset": "stream APP/ALONE (replica)", "reason": "is the only replica"}],
    )
    predicted = ok(tagged.run("nats_server_evacuate", True, **asked))
    assert led(tagged.cluster, [*names, "ALONE"]) == leaders
    move_leaders: Callable[..., list[str]] = replica_moves.move_leaders
    with monkeypatch.context() as patch:
        patch.setattr(nats_server_evacuate, "move_leaders", lambda *given: move_leaders(*given[:4], 0.0, *given[5:]))
        hasty = tagged.run("nats_server_evacuate", **asked)
    assert hasty["failure"]["code"] == "evacuation_not_done", hasty
    assert f"{server} is not fully evacuated: " in hasty["msg"]
    assert "(account APP): was not reached within 0 s" in hasty["msg"]
    assert "Run it again to continue" in hasty["msg"]
    result = ok(tagged.run("nats_server_evacuate", **asked))
    assert result["after"] == predicted["after"]
    assert result["after"]["leaders"] == ["stream APP/ALONE"]
    assert result["after"]["replicas"] == result["before"]["replicas"]
    assert server not in led(tagged.cluster, names).values()
    assert not ok(tagged.run("nats_server_evacuate", **asked))["changed"]

    back = {"server_name": server, "state": "present", "wait_timeout": 60}
    share = ok(tagged.run("nats_server_evacuate", True, **back))
    assert share["changed"]
    late = tagged.run("nats_server_evacuate", **{**back, "wait_timeout": 1e-9})
    assert late.get("failure", {}).get("code") == "step_down_failed", late
    assert f"{server} does not lead its share: " in late["msg"]
    other = tagged.run("nats_server_evacuate", **back, replicas=True)
    assert "replicas, r1_policy, accept_loss and avoid_servers are for state=absent" in other["msg"]
    result = ok(tagged.run("nats_server_evacuate", **back))
    assert result["after"]["leaders"] == share["after"]["leaders"]
    assert server in led(tagged.cluster, names).values()
    assert not ok(tagged.run("nats_server_evacuate", **back))["changed"]

    accept = {"accept_loss": tagged.cluster.version.startswith("2.10.")}
    moved = ok(tagged.run("nats_server_evacuate", **asked, r1_policy="move", **accept))
    assert moved["after"]["leaders"] == []
    assert led(tagged.cluster, ["ALONE"])["ALONE"] != server
    wrong = tagged.run("nats_server_evacuate", server_name="n9")
    assert wrong["failure"]["code"] == "unknown_name"
    tagged.delete(*names, "ALONE")
    tagged.cluster.app_request("$JS.API.STREAM.DELETE.OTHERS", account="OTHER")


def test_a_server_is_emptied_under_load(tagged: Peers) -> None:
    single = {} if tagged.cluster.version.startswith("2.10.") else {"LOAD1": 1}

    async def work() -> None:
        load = Load(
            tagged.cluster.urls, APP_USER, APP_PASSWORD, LoadPlan({"LOAD3": 3, **single}, producers=1, timeout=1)
        )
        await load.prepare()
        running = asyncio.create_task(load.run())

        async def until(enough: Callable[[], bool]) -> None:
            end = time.monotonic() + 30
            while not enough():
                assert time.monotonic() < end, load.report()
                await asyncio.sleep(0.05)

        await until(lambda: load.report().acknowledged > 0)
        server = (await asyncio.to_thread(members, tagged.cluster, [*single, "LOAD3"][0]))[0]

        def evacuate(check_mode: bool = False) -> dict[str, Any]:
            asked = {"server_name": server, "replicas": True, "wait_timeout": 60}
            return ok(tagged.run("nats_server_evacuate", check_mode, **asked))

        predicted = await asyncio.to_thread(evacuate, True)
        result = await asyncio.to_thread(evacuate)
        await until(lambda: load.report().acknowledged > 50)
        load.stop()
        await running
        assert result["after"] == predicted["after"] == {"meta_leader": False, "leaders": [], "replicas": []}
        assert {f"APP/{name}" for name in single} < set(result["methods"])
        assert set(result["methods"].values()) == {"evacuate"}
        assert 'server_tags: ["!jetstream"]' in str(result["warnings"])
        assert await load.verify() == []
        again = await asyncio.to_thread(evacuate)
        assert (again["changed"], again["before"]) == (False, result["after"])

    asyncio.run(work())
    tagged.delete("LOAD3", *single, "KV_LOAD_KV")


def test_a_killed_server_is_replaced(tagged: Peers) -> None:
    before = tagged.add("ORDERS", 3)
    killed = before[0]
    tagged.cluster.kill(killed)
    late = tagged.stream(state="moved", stream="ORDERS", **{"from": killed, "to": next(iter({*NAMES} - {*before}))})
    assert late["failure"]["code"] == "unsupported"
    result = ok(tagged.stream(stream="ORDERS", server_name=killed))
    assert result["methods"] == {"APP/ORDERS": "remove"}
    after = members(tagged.cluster, "ORDERS")
    assert (len(after), killed in after, killed in tagged.consumer("ORDERS")) == (3, False, False)
    assert stored(tagged.cluster, "ORDERS") == MESSAGES
    assert not ok(tagged.stream(stream="ORDERS", server_name=killed))["changed"]
    tagged.cluster.start(killed)


def test_three_servers(
    make_cluster: Callable[..., NatsProcesses], run_module: Runner, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """The cluster has no spare server, so no replica can be moved; a removal that the server carried out only in part
    is detected and repaired. Then a server dies and is removed from the meta group."""
    names = ["n1", "n2", "n3"]
    peers = ready(make_cluster(names), run_module)
    before = peers.add("ORDERS", 3)
    asked = {"stream": "ORDERS", "server_name": before[1]}
    refused = peers.stream(**asked)
    assert refused["failure"]["code"] == "no_spare_server"
    assert "there is no other server" in refused["msg"]
    assert members(peers.cluster, "ORDERS") == before
    stuck = peers.run("nats_server_evacuate", server_name=before[0], replicas=True)
    assert stuck["failure"]["code"] == "infeasible"
    assert [item["asset"] for item in stuck["stuck"]] == [
        "consumer APP/ORDERS/worker (replica)",
        "stream APP/ORDERS (replica)",
    ]
    assert members(peers.cluster, "ORDERS") == before
    partial = ok(peers.run("nats_server_evacuate", server_name=before[0], replicas=True, allow_partial=True))
    assert (partial["changed"], partial["stuck"], partial["after"]["leaders"]) == (True, stuck["stuck"], [])

    with monkeypatch.context() as patch:
        patch.setattr(replica_moves, "evaluate_candidates", lambda *_arguments: PlacementResult(("n9",), {}))
        broken = peers.stream(**asked, method="remove")
    assert broken["failure"]["err_code"] == 10075
    left = [name for name in names if name != before[1]]
    if version.startswith("2.10."):
        assert broken["failure"]["code"] == "group_short"
        assert f"has 2 of 3 replicas now: {', '.join(left)}" in broken["msg"]
        assert broken["after"]["APP/ORDERS"]["members"] == left
        assert peers.stream(**asked)["failure"]["code"] == "group_short"
        repaired = ok(peers.stream(**asked, repair=True))
        assert (repaired["repaired"], repaired["changed"]) == (["APP/ORDERS"], True)
        assert f"one of them on {before[1]}" in str(repaired["warnings"])
    else:
        assert "Its group is unchanged: n1, n2, n3" in broken["msg"]
    assert sorted(members(peers.cluster, "ORDERS")) == names
    assert stored(peers.cluster, "ORDERS") == MESSAGES

    online = peers.run("nats_meta_peer", server_name="n3")
    assert online["failure"]["code"] == "server_online"
    nobody = ok(peers.run("nats_meta_peer", server_name="n30"))
    assert not nobody["changed"] and "n30 is not a member of the meta group" in str(nobody["warnings"])
    leader = ok(peers.run("nats_meta_peer", server_name="n30"))["before"]["leader"]
    first, second = (name for name in names if name != leader)
    peers.cluster.kill(first)
    hosting = peers.run("nats_meta_peer", server_name=first)
    assert hosting["failure"]["code"] == "server_has_assets"
    assert "stream APP/ORDERS, consumer APP/ORDERS/worker" in hosting["msg"]
    fatal = peers.run("nats_meta_peer", server_name=second, force=True, force_assets=True)
    assert fatal["failure"]["code"] == "meta_quorum_lost"
    assert f"2 members would remain, 2 of them must be up, but 1 are ({leader})" in fatal["msg"]
    peers.delete("ORDERS")
    predicted = ok(peers.run("nats_meta_peer", True, peer_id=peer_id(first)))
    assert ok(peers.run("nats_meta_peer", server_name="n30"))["before"]["cluster_size"] == 3
    removed = ok(peers.run("nats_meta_peer", server_name=first))
    assert removed["after"] == predicted["after"]
    assert removed["after"]["cluster_size"] == 2
    assert sorted(removed["after"]["members"].values()) == sorted([leader, second]) == removed["agree"]
    assert "the meta group stops at the next failure" in str(removed["warnings"])
    assert not ok(peers.run("nats_meta_peer", peer_id=peer_id(first)))["changed"]
