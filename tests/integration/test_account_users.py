# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the operator users that the role creates in JetStream accounts, on a real server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nats
import nats.errors
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.accounts import Connections, account_users
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import (
    Call,
    Client,
    ConnectionOptions,
    NatsFailure,
    Observed,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.jetstream_api import JetStreamApi
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import INBOX_PREFIX
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.account_admins import (
    operators,
    with_operators,
)
from support.documents import CHECKOUT
from support.single_server import running

ACCOUNTS: dict[str, dict[str, Any]] = {
    "APP": {"jetstream": True, "users": [{"user": "app", "password": "app-pass"}]},
    "OTHER": {"jetstream": "enabled"},
    "CORE": {"users": [{"user": "core", "password": "core-pass"}]},
}


def test_an_operator_manages_streams_of_its_account_and_nothing_else(version: str, tmp_path: Path) -> None:
    config = {
        "jetstream": {"store_dir": str(tmp_path / "store")},
        "accounts": with_operators(ACCOUNTS, "op-pass", "operator-"),
    }
    with running(version, config, tmp_path) as server:
        url = f"nats://127.0.0.1:{server.port}"
        own = ConnectionOptions((url,), "core", "core-pass", timeout=1)
        with Connections(own, account_users(own, operators(ACCOUNTS, "op-pass", "operator-"))) as connections:
            assert connections.accounts == ("APP", "OTHER")
            connections.account("APP").create_stream({"name": "ORDERS", "subjects": ["orders.>"]})
            assert connections.account("APP").stream_names() == ["ORDERS"]
            assert connections.account("OTHER").stream_names() == []
        with Client(ConnectionOptions((url,), "operator-APP", "op-pass", timeout=1)) as client:
            with pytest.raises(NatsFailure) as refused:
                client.request(Call("orders.new", b"{}"))
            assert refused.value.code == "permission"
            for others in ("_INBOX.>", "_INBOX.other.>", "orders.>"):
                with pytest.raises(NatsFailure) as refused:
                    client.observe([others], 0.1, lambda _seen: False)
                assert refused.value.code == "permission"
        with Client(ConnectionOptions((url,), "app", "app-pass")) as client:
            assert b'"seq":1' in client.request(Call("orders.new", b"{}")).body.replace(b" ", b"")


def subjects_seen(client: Client, act: Callable[[], object]) -> set[str]:
    """Return the subjects that a client subscribed to `>` receives while `act` runs at least once."""
    seen: list[str] = []

    def on_message(message: Observed) -> bool:
        seen.append(message.subject)
        return seen.count("orders.marker") > 1

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(client.observe, [">"], 20, on_message)
        while not watching.done():
            act()
        watching.result()
    return set(seen)


@pytest.mark.parametrize("guarded", [False, True])
def test_applications_see_an_operator_work_unless_they_are_denied_it(
    version: str, tmp_path: Path, guarded: bool
) -> None:
    """Applications receive the operator's requests, to which they could reply, and also the replies
    (docs/security.md)."""
    denied = {"default_permissions": {"subscribe": {"deny": ["$JS.API.>", f"{INBOX_PREFIX}.>"]}}}
    accounts = {**ACCOUNTS, "APP": {**ACCOUNTS["APP"], **(denied if guarded else {})}}
    config = {
        "jetstream": {"store_dir": str(tmp_path / "store")},
        "accounts": with_operators(accounts, "op-pass", "operator-"),
    }
    with running(version, config, tmp_path) as server:
        address = f"nats://127.0.0.1:{server.port}"
        options = ConnectionOptions((address,), "app", "app-pass", timeout=5, inbox_prefix="_INBOX")
        operator = ConnectionOptions((address,), "operator-APP", "op-pass", timeout=5)
        with Client(options) as watcher, Client(options) as application, Client(operator) as client:
            api = JetStreamApi(client, "APP")
            watcher.connect()

            def act() -> None:
                assert application.publish([Call("orders.marker")]) == [None]
                assert api.stream_names() == []

            seen = subjects_seen(watcher, act)
            assert ("$JS.API.STREAM.NAMES" in seen) != guarded
            assert any(subject.startswith(f"{INBOX_PREFIX}.") for subject in seen) != guarded
            # The application can still use JetStream after the denial.
            own = JetStreamApi(application, "APP")
            own.create_stream({"name": "OWN", "subjects": ["own"]})
            assert api.stream_names() == own.stream_names() == ["OWN"]


def guide_permissions() -> dict[str, list[str]]:
    """Return the subjects that docs/security.md allows the three applications of its table."""
    text = (CHECKOUT / "docs/security.md").read_text()
    rows = re.findall(r"^\| (publishes|reads|gets) [^|]*\| ([^|]*) \|$", text, re.MULTILINE)
    return {kind: re.findall(r"`([^`]+)`", subjects) for kind, subjects in rows}


def test_permissions_of_the_guide_are_sufficient_and_needed(version: str, tmp_path: Path) -> None:
    told = guide_permissions()
    assert set(told) == {"publishes", "reads", "gets"}
    users = [
        {
            "user": kind,
            "password": "p",
            "permissions": {
                "publish": {"allow": subjects},
                "subscribe": {"allow": ["_INBOX.>"], "deny": [f"{INBOX_PREFIX}.>"]},
            },
        }
        for kind, subjects in told.items()
    ]
    account = {"jetstream": True, "users": [{"user": "admin", "password": "p"}, *users]}
    config = {"jetstream": {"store_dir": str(tmp_path / "store")}, "accounts": {"APP": account}}

    async def work(url: str) -> None:
        clients = {kind: await nats.connect(url, user=kind, password="p") for kind in ("admin", *told)}
        try:
            streams = clients["admin"].jetstream()
            await streams.add_stream(name="ORDERS", subjects=["orders.>"])
            await streams.add_consumer("ORDERS", durable_name="billing", ack_policy="explicit")
            await streams.create_key_value(bucket="settings", direct=True)

            assert (await clients["publishes"].jetstream().publish("orders.new", b"1")).seq == 1
            reader = await clients["reads"].jetstream().pull_subscribe_bind("billing", "ORDERS")
            (message,) = await reader.fetch(1, timeout=5)
            await message.ack_sync(timeout=5)
            assert (await streams.consumer_info("ORDERS", "billing")).ack_floor.stream_seq == 1
            bucket = await clients["gets"].jetstream().key_value("settings")
            await bucket.put("rate", b"10")
            assert (await bucket.get("rate")).value == b"10"

            for kind in ("reads", "gets"):
                with pytest.raises(nats.errors.Error):
                    await clients[kind].jetstream(timeout=0.5).publish("orders.new", b"2")
            with pytest.raises(nats.errors.Error):
                await clients["publishes"].jetstream(timeout=0.5).purge_stream("ORDERS")
        finally:
            for client in clients.values():
                await client.close()

    with running(version, config, tmp_path) as server:
        asyncio.run(work(f"nats://127.0.0.1:{server.port}"))
