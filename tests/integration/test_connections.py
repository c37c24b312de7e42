# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs nats_connection_info and nats_connection_kick with real clients, which reconnect as clients do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import nats
import pytest
from nats.aio.client import Client as NatsPyClient
from support.module_runs import Runner
from support.nats_processes import APP_PASSWORD, NatsProcesses, free_ports


class Clients:
    """Clients of account APP in a separate event loop, which `alive` runs. Each client connects to its first server.
    `notices` counts the lame duck notices that the clients received."""

    def __init__(self, cluster: NatsProcesses) -> None:
        self.cluster = cluster
        self.loop = asyncio.new_event_loop()
        self.clients: list[NatsPyClient] = []
        self.closed: list[asyncio.Event] = []
        self.notices = 0

    def connect(self, count: int, server: str, name: str, user: str = "app", reconnect: bool = False) -> None:
        async def told() -> None:
            self.notices += 1

        async def tell(closed: asyncio.Event) -> None:
            closed.set()

        async def ignore(_error: Exception) -> None:
            """Ignore the disconnections that the test causes."""

        async def all_of_them() -> None:
            for _number in range(count):
                closed = asyncio.Event()
                client = await nats.connect(
                    self.cluster.url(server),
                    user=user,
                    password=APP_PASSWORD,
                    name=name,
                    error_cb=ignore,
                    allow_reconnect=reconnect,
                    reconnect_time_wait=0.1,
                    lame_duck_mode_cb=told,
                    closed_cb=partial(tell, closed),
                )
                await client.subscribe(f"{name}.>")
                await client.flush()
                self.clients.append(client)
                self.closed.append(closed)

        self.loop.run_until_complete(all_of_them())

    def alive(self) -> int:
        """Return how many clients are connected, which means that their server replies to their ping. Everything that
        the server sent before has been read."""

        async def answered(client: NatsPyClient, closed: asyncio.Event) -> bool:
            # nats-py does not report a missing reply.
            tries = [asyncio.ensure_future(client.flush(timeout=5)), asyncio.ensure_future(closed.wait())]
            await asyncio.wait(tries, return_when=asyncio.FIRST_COMPLETED)
            for attempt in tries:
                attempt.cancel()
            await asyncio.gather(*tries, return_exceptions=True)
            return client.is_connected

        async def all_of_them() -> int:
            return sum(await asyncio.gather(*(answered(*one) for one in zip(self.clients, self.closed))))

        return self.loop.run_until_complete(all_of_them())

    def close(self) -> None:
        async def all_of_them() -> None:
            await asyncio.gather(*(client.close() for client in self.clients))

        self.loop.run_until_complete(all_of_them())
        self.loop.close()


@pytest.fixture
def clients(five: NatsProcesses, run_module: Runner) -> Iterator[Clients]:
    """Clients for a test, created once all servers list each other and no earlier client is left."""
    deadline = time.monotonic() + 15
    while True:
        found = run_module("nats_connection_info", five.sys_connection())
        others = {row["account"] for row in found["connections"]}.intersection(five.accounts)
        if len(found["servers"]) == len(five.names) and not others:
            break
        assert time.monotonic() < deadline, found
    made = Clients(five)
    yield made
    made.close()


def rows(result: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(row["server"], row["account"], row["name"]) for row in result["connections"]]


def test_connections_by_filter(five: NatsProcesses, clients: Clients, run_module: Runner) -> None:
    clients.connect(3, "n1", "alpha")
    clients.connect(2, "n2", "beta")
    clients.connect(1, "n2", "gamma", user="other")
    system = five.sys_connection()

    def found(**filters: Any) -> list[tuple[str, str, str]]:
        result = run_module("nats_connection_info", system, **filters)
        assert (result["changed"], result["missing"], result["incomplete"]) == (False, [], [])
        assert result["total"] == sum(server["connections"] for server in result["servers"])
        return rows(result)

    alpha, beta, gamma = ("n1", "APP", "alpha"), ("n2", "APP", "beta"), ("n2", "OTHER", "gamma")
    assert found(account="APP") == [alpha, alpha, alpha, beta, beta]
    assert found(name="*a", auth_user="other") == [gamma]
    assert found(name="alph") == []
    assert found(name="al?ha", limit=2) == [alpha, alpha]
    assert found(account="APP", subject="beta.x") == [beta, beta]
    assert found(account="APP", server_names=["n2"]) == [beta, beta]
    assert found(account="APP", cluster="C2") == []
    assert found(account="APP", ip="127.0.0.0/8", kind=["client"], lang="python3") == [alpha, alpha, alpha, beta, beta]
    assert found(account="APP", ip="10.0.0.1") == found(account="APP", kind=["leafnode"]) == []
    assert found(account="APP", version="0.*") == found(account="APP", pending_bytes=1) == []
    assert found(account="APP", subscriptions=2) == []
    assert found(account="APP", idle=3600) == []
    clients.alive()
    assert found(name="gamma", idle=0.1, subscriptions=1) == [gamma]


def test_figures_order_and_secrets(five: NatsProcesses, clients: Clients, version: str, run_module: Runner) -> None:
    clients.connect(2, "n1", "alpha")

    async def publish() -> None:
        await clients.clients[1].publish("no.subscriber", b"x" * 500)
        await clients.clients[1].flush()

    clients.loop.run_until_complete(publish())
    result = run_module("nats_connection_info", five.sys_connection(), account="APP", sort="in_bytes")
    first, second = result["connections"]
    assert (first["in_msgs"], first["in_bytes"], second["in_bytes"]) == (1, 500, 0)
    assert (first["user"], first["kind"], first["type"], first["state"]) == ("app", "client", "nats", "open")
    assert 0 <= first["idle"] <= first["uptime"] < 60
    assert first["rtt"] is None or 0 < first["rtt"] < 5
    assert "jwt" not in first
    totals = {server["name"]: (server["connections"], server["in_bytes"]) for server in result["servers"]}
    assert totals == {"n1": (2, 500), **dict.fromkeys(("n2", "n3", "n4", "n5"), (0, 0))}
    missing = run_module("nats_connection_info", five.sys_connection(), server_names=["n1", "n9"], timeout=1)
    assert missing["missing"] == ["n9"]
    refused = run_module("nats_connection_info", five.sys_connection(), subject="a.b")
    assert "the open connections of one account" in refused["msg"]
    assert run_module("nats_connection_info", five.app_connection())["failure"]["code"] == "wrong_account"


def test_kick_by_filter(five: NatsProcesses, clients: Clients, run_module: Runner) -> None:
    clients.connect(3, "n1", "victim")
    clients.connect(2, "n1", "bystander")
    system = five.sys_connection()
    asked = {"account": "APP", "name": "victim"}
    predicted = run_module("nats_connection_kick", system, check_mode=True, **asked)
    assert (predicted["changed"], len(predicted["kicked"]), clients.alive()) == (True, 3, 5)
    done = run_module("nats_connection_kick", system, rate=50, **asked)
    assert (done["changed"], done["left"]) == (True, 0)
    assert [row["cid"] for row in done["kicked"]] == [row["cid"] for row in predicted["kicked"]]
    assert done["diff"] == predicted["diff"]
    assert {row["reason"] for row in done["kicked"]} == {"Kicked"}
    assert clients.alive() == 2
    again = run_module("nats_connection_kick", system, **asked)
    assert (again["changed"], again["kicked"]) == (False, [])
    closed = run_module("nats_connection_info", system, state="closed", **asked)
    assert {(row["reason"], row["state"]) for row in closed["connections"]} >= {("Kicked", "closed")}


def test_kicks_are_throttled_and_limited(five: NatsProcesses, clients: Clients, run_module: Runner) -> None:
    clients.connect(4, "n1", "victim")
    started = time.monotonic()
    done = run_module("nats_connection_kick", five.sys_connection(), name="victim", rate=4, max_kicks=3)
    assert time.monotonic() - started >= 0.5
    assert (len(done["kicked"]), clients.alive(), clients.notices) == (3, 1, 0)


def test_clients_get_a_notice_before_they_are_kicked(five: NatsProcesses, clients: Clients, run_module: Runner) -> None:
    clients.connect(3, "n1", "victim")
    clients.connect(1, "n1", "bystander")
    started = time.monotonic()
    done = run_module("nats_connection_kick", five.sys_connection(), name="victim", rate=10, notice=1)
    assert time.monotonic() - started >= 1.2
    assert (len(done["kicked"]), clients.alive(), clients.notices) == (3, 1, 3)


def test_clients_that_come_back_to_the_same_server_are_kicked_again(
    make_cluster: Callable[..., NatsProcesses], run_module: Runner
) -> None:
    """The cluster has no other server, so each round finds the clients again until the maximum number of rounds is
    reached."""
    lone = make_cluster(["lone"], cluster="", jetstream=[])
    clients = Clients(lone)
    asked = {"name": "victim", "rate": 50, "rounds": 3}

    def kick(**options: Any) -> dict[str, Any]:
        """The clients reconnect only while their loop is running."""
        work = clients.loop.run_in_executor(
            None, lambda: run_module("nats_connection_kick", lone.sys_connection(), **asked, **options)
        )
        return clients.loop.run_until_complete(work)

    try:
        clients.connect(2, "lone", "victim", reconnect=True)
        done = kick(max_kicks=5)
    finally:
        clients.close()
    assert (done["changed"], done["left"], len(done["kicked"])) == (True, 0, 5)
    assert len({row["cid"] for row in done["kicked"]}) == 5
    assert done["waited"] > 2
    assert done["servers"][0]["connections"] == 2
    assert (
        "rounds: must be 1 or more"
        in run_module("nats_connection_kick", lone.sys_connection(), **{**asked, "rounds": 0})["msg"]
    )


def test_the_system_account_is_never_kicked(five: NatsProcesses, run_module: Runner) -> None:
    for filters in ({"lang": "python3"}, {"account": "$SYS"}, {"name": "natsops*"}, {"balance": True}):
        result = run_module("nats_connection_kick", five.sys_connection(), **filters)
        assert (result["changed"], result["kicked"]) == (False, [])


def test_nonsensical_kicks_are_refused(five: NatsProcesses, clients: Clients, run_module: Runner) -> None:
    clients.connect(1, "n1", "safe")

    def refusal(**options: Any) -> str:
        result = run_module("nats_connection_kick", five.sys_connection(), **options)
        assert result["failed"], result
        return result["msg"]

    assert "at least one filter" in refusal()
    assert "at least one filter" in refusal(idle=0, kind=["client", "leafnode"])
    assert "name the one server" in refusal(cid=5)
    assert "all servers of a cluster take part" in refusal(balance=True, server_names=["n1"])
    assert "rate" in refusal(name="safe", rate=0)
    assert "none was closed: n9 did not answer" in refusal(name="safe", server_names=["n1", "n9"], timeout=1)
    refused = run_module("nats_connection_kick", five.app_connection(), name="safe")
    assert refused["failure"]["code"] == "wrong_account"
    assert clients.alive() == 1


def test_balance(five: NatsProcesses, clients: Clients, run_module: Runner) -> None:
    clients.connect(12, "n1", "crowd", reconnect=True)
    clients.connect(1, "n2", "few", reconnect=True)
    system = five.sys_connection()
    predicted = run_module("nats_connection_kick", system, check_mode=True, balance=True, account="APP")
    assert [(server["name"], server["connections"], server["share"]) for server in predicted["servers"]] == [
        ("n1", 12, 3),
        ("n2", 1, 3),
        ("n3", 0, 3),
        ("n4", 0, 3),
        ("n5", 0, 3),
    ]
    assert (len(predicted["kicked"]), {row["server"] for row in predicted["kicked"]}) == (9, {"n1"})
    done = run_module("nats_connection_kick", system, balance=True, account="APP", rate=100)
    assert [row["cid"] for row in done["kicked"]] == [row["cid"] for row in predicted["kicked"]]
    # The clients reconnect, most of them to other servers, which they choose themselves.
    deadline = time.monotonic() + 10
    while clients.alive() < 13:
        assert time.monotonic() < deadline
    after = run_module("nats_connection_kick", system, check_mode=True, balance=True, account="APP")
    counts = {server["name"]: server["connections"] for server in after["servers"]}
    assert (sum(counts.values()), counts["n1"] < 12) == (13, True)
    assert len(after["kicked"]) < 9


def test_leafnodes_are_kicked_only_on_request(make_cluster: Callable[..., NatsProcesses], run_module: Runner) -> None:
    (port,) = free_ports(1)
    hub = make_cluster(["hub"], cluster="", extra=f'leafnodes {{ listen: "127.0.0.1:{port}" }}')
    remote = f'{{ url: "nats-leaf://app:{APP_PASSWORD}@127.0.0.1:{port}", account: APP }}'
    leaf = f"leafnodes {{ remotes: [{remote}], reconnect: 1 }}"
    make_cluster(["leaf"], cluster="", jetstream=[], extra=leaf)
    system = hub.sys_connection()

    def leafnodes(*not_these: int) -> list[int]:
        deadline = time.monotonic() + 10
        while True:
            result = run_module("nats_connection_info", system, kind=["leafnode"], account="APP")
            cids = [row["cid"] for row in result.get("connections", ()) if row["cid"] not in not_these]
            if cids or time.monotonic() > deadline:
                return cids

    (before,) = leafnodes()
    assert not run_module("nats_connection_kick", system, account="APP")["changed"]
    done = run_module("nats_connection_kick", system, account="APP", kind=["leafnode"])
    assert [(row["cid"], row["kind"], row["reason"]) for row in done["kicked"]] == [(before, "leafnode", "Kicked")]
    assert len(leafnodes(before)) == 1
