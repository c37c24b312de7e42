# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A single server becomes a cluster of three without losing its streams."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from support.role_cluster import APP_PASSWORD, APP_USER, RoleCluster, create, publish, words

pytestmark = pytest.mark.playbook

REFUSED = "jetstream.store_dir: the server has run standalone and has 1 stream in its store"


def messages(cluster: RoleCluster) -> int:
    """Return how many messages the stream ORDERS has."""

    async def read() -> int:
        async with await nats.connect(cluster.urls, user=APP_USER, password=APP_PASSWORD) as client:
            return (await client.jetstream().stream_info("ORDERS")).state.messages

    return asyncio.run(read())


async def delete(cluster: RoleCluster, name: str) -> None:
    async with await nats.connect(cluster.urls, user=APP_USER, password=APP_PASSWORD) as client:
        await client.jetstream().delete_stream(name)


def without_users(cluster: RoleCluster, act: Callable[[Client], Awaitable[object]]) -> None:
    """Run an action as a client that logs in without a user."""

    async def connected() -> None:
        async with await nats.connect(cluster.urls) as client:
            await act(client)

    asyncio.run(connected())


def test_streams_survive_as_documented(tmp_path: Path) -> None:
    """docs/operations.md, "One server becomes a cluster": without these steps, the cluster would delete the streams of
    n1 after 30 s, and the first accounts would lock out clients without an account."""
    cluster = RoleCluster(tmp_path, ["n1"], "2.15.1")
    cluster.variables["nats_cluster_backup_directory"] = str(tmp_path / "backup")
    config = tmp_path / "n1/etc/nats-server.conf"
    store = tmp_path / "n1/store/jetstream"
    try:
        cluster.playbook("deploy", nats_server_accounts={})
        without_users(cluster, lambda client: client.jetstream().add_stream(name="OLD", subjects=["OLD.>"]))
        issuer = "ABJHLOVMPA4CI6R5KLNGOB4GSLNIY7IOUPAJC4YFNDLQVIOBYQGUWVLA"
        callout = {"authorization": {"auth_callout": {"issuer": issuer, "account": "APP", "auth_users": [APP_USER]}}}
        refused = words(cluster.playbook("deploy", fails=True, nats_server_config=callout).output)
        assert "no client could reach the 1 stream of the account $G" in refused
        assert "auth_users: lacks sys of the system account" in refused and "nothing was changed" in refused
        without_users(cluster, lambda client: client.jetstream().delete_stream("OLD"))
        cluster.playbook("deploy")
        create(cluster, "ORDERS", 1, subjects=["ORDERS.>"])
        publish(cluster, "ORDERS.new", 50, 10)
        cluster.playbook("backup")
        before = config.read_bytes()
        # A restart of the only server deletes the streams in its memory.
        create(cluster, "CACHE", 1, subjects=["CACHE.>"], storage="memory")
        publish(cluster, "CACHE.new", 5, 10)
        refused = words(cluster.playbook("restart", fails=True).output)
        assert "stream APP/CACHE exists only in the memory of n1: its 5 message(s) are lost in the restart" in refused
        assert "no server was touched" in refused
        asyncio.run(delete(cluster, "CACHE"))
        cluster.add("n2")
        cluster.add("n3")
        # The deployment changes nothing, whether or not the server is running.
        refused = words(cluster.playbook("deploy", fails=True, nats_server_accounts={}).output)
        assert REFUSED in refused and "accounts.APP: is not configured, but this server has 1 stream of it" in refused
        refused = words(cluster.playbook("scale_out", fails=True).output)
        assert "n1 runs without a cluster" in refused and "One server becomes a cluster" in refused
        pid = cluster.pid("n1")
        os.kill(pid, signal.SIGTERM)
        while cluster.pid("n1"):
            os.sched_yield()
        refused = words(cluster.playbook("deploy", fails=True).output)
        assert REFUSED in refused and "nothing was changed" in refused
        assert config.read_bytes() == before
        assert cluster.pids() == {"n1": 0, "n2": 0, "n3": 0}
        assert not (tmp_path / "n2/etc/nats-server.conf").exists()

        store.rename(store.with_name("jetstream.before"))
        cluster.playbook("deploy")
        cluster.playbook("restore", nats_cluster_restore_streams=["*"])
        assert messages(cluster) == 50

        # Any other change that would leave the stores behind is also refused.
        cluster.hosts["n2"]["nats_server_jetstream_store_dir"] = str(tmp_path / "elsewhere")
        refused = words(cluster.playbook("deploy", fails=True, nats_server_system_account="SYS").output)
        assert f"jetstream.store_dir: changes, but {tmp_path}/n2/store holds" in refused
        assert "the meta group of this server belongs to $SYS" in refused

        # A new cluster name is refused, even while all its servers are down.
        cluster.kill()
        refused = words(cluster.playbook("deploy", fails=True, nats_server_cluster_name="C9").output)
        assert "the store belongs to 'C1'" in refused
        assert cluster.pids() == {"n1": 0, "n2": 0, "n3": 0}
    finally:
        cluster.kill()
