# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the typed JetStream API with real servers: listings longer than a page, errors from the servers, and missing
replies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.accounts import Connections, account_users
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import (
    Client,
    ConnectionOptions,
    NatsFailure,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.jetstream_api import JetStreamApi
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.meta_api import MetaApi
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.system_api import read_servers
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from support.nats_processes import NatsProcesses


def options(cluster: NatsProcesses, system: bool) -> ConnectionOptions:
    connection = cluster.sys_connection() if system else cluster.app_connection()
    return ConnectionOptions(tuple(connection["servers"]), connection["user"], connection["password"], timeout=2)


@pytest.fixture
def api(healthy: NatsProcesses) -> Iterator[JetStreamApi]:
    with Client(replace(options(healthy, system=False), timeout=30)) as client:
        yield JetStreamApi(client, "APP")


def test_listings_are_read_to_their_end(api: JetStreamApi, healthy: NatsProcesses) -> None:
    made = [f"PAGE{number:03}" for number in range(300)]
    config = {"num_replicas": 1, "storage": "memory", "retention": "limits", "discard": "old"}
    creations = [(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], **config}) for name in made]
    try:
        assert not [failed for failed in api.call_many(creations, 120) if isinstance(failed, NatsFailure)]
        listing = api.streams()
        assert not listing.unknown
        assert {info["config"]["name"] for info in listing.rows} == {"ORDERS", "EVENTS", *made}
        assert set(api.stream_names()) == {"ORDERS", "EVENTS", *made}
        assert api.stream_names("PAGE007.x") == ["PAGE007"]
        assert [info["name"] for info in api.consumers("ORDERS").rows] == ["worker"]
        assert api.consumer_names("ORDERS") == ["worker"]
    finally:
        api.call_many([(f"STREAM.DELETE.{name}", None) for name in made], 120)
        assert wait_until(lambda: set(api.stream_names()), lambda names: not names.intersection(made), 60).done


def test_errors_are_the_servers_own(api: JetStreamApi) -> None:
    with pytest.raises(NatsFailure) as refused:
        api.stream("NOTHERE")
    assert (refused.value.code, refused.value.err_code, refused.value.account) == ("api_error", 10059, "APP")
    assert refused.value.description == "stream not found: APP/NOTHERE (JetStream error 10059)"
    assert api.find_stream("NOTHERE") is None
    assert api.find_consumer("ORDERS", "absent") is None
    with pytest.raises(NatsFailure):
        api.find_consumer("NOTHERE", "absent")


def test_silence_names_its_likely_causes(healthy: NatsProcesses) -> None:
    with Client(options(healthy, system=False)) as client, pytest.raises(NatsFailure) as silent:
        MetaApi(client).step_down()
    assert silent.value.code in ("timeout", "no_responders")
    assert "no meta leader, or the wrong account" in silent.value.description
    with Client(options(healthy, system=True)) as system, pytest.raises(NatsFailure) as refused:
        JetStreamApi(system).streams()
    assert refused.value.err_code == 10039


def test_an_accounts_user_sees_every_server(healthy: NatsProcesses) -> None:
    # Other tests reload n1, after which only n1 replies to its clients (test_stepdown.py).
    with Client(replace(options(healthy, system=False), servers=(healthy.url("n2"),))) as client:
        seen = {server.name: (server.cluster, server.jetstream) for server in read_servers(client)}
    assert seen == dict.fromkeys(("n1", "n2", "n10"), ("C1", True))


def test_accounts_have_users_of_their_own(healthy: NatsProcesses) -> None:
    own = options(healthy, system=True)
    with Connections(own, account_users(own, healthy.account_users())) as connections:
        assert [info["config"]["name"] for info in connections.account("EXTRA1").streams().rows] == ["LOG1"]
        with pytest.raises(NatsFailure) as unknown:
            connections.account("ABSENT")
    assert "no user for account ABSENT" in unknown.value.description
    twice = [*healthy.account_users(), {"account": "APP", "user": "x", "password": "y"}]
    with pytest.raises(NatsFailure, match="two users for account APP"):
        account_users(own, twice)
