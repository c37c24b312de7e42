# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests where a server listens according to its configuration."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.listeners import (
    listeners,
    monitor_url,
    peer_ports,
    split_address,
)


@pytest.mark.parametrize(
    "text, address",
    [
        ("127.0.0.1:4222", ("127.0.0.1", 4222)),
        (4222, ("", 4222)),
        (":4222", ("", 4222)),
        ("[::1]:4222", ("::1", 4222)),
    ],
)
def test_split_address(text: Any, address: tuple[str, int]) -> None:
    assert split_address(text) == address


def test_listeners_are_reachable_from_the_host_itself() -> None:
    config = {
        "listen": "0.0.0.0:4333",
        "cluster": {"port": 6222, "host": "10.0.0.1"},
        "http": 8222,
        "leafnodes": {"remotes": []},
        "websocket": {"port": 443},
    }
    assert [(item["name"], item["host"], item["port"]) for item in listeners(config)] == [
        ("client", "127.0.0.1", 4333),
        ("cluster", "10.0.0.1", 6222),
        ("websocket", "127.0.0.1", 443),
        ("monitoring", "127.0.0.1", 8222),
    ]
    assert listeners({"port": -1}) == []


@pytest.mark.parametrize(
    "config, url",
    [
        ({"http": "0.0.0.0:8222"}, "http://127.0.0.1:8222"),
        ({"https": "10.0.0.1:8222", "http_base_path": "/nats/"}, "https://10.0.0.1:8222/nats"),
        ({"http_port": 8222}, "http://127.0.0.1:8222"),
        ({"http": "[::1]:8222"}, "http://[::1]:8222"),
        ({}, ""),
    ],
)
def test_monitor_url(config: dict[str, Any], url: str) -> None:
    assert monitor_url(config) == url


MEMBERS = [{"host": f"h{n}", "server_name": f"n{n}"} for n in (1, 2, 3)]


def test_ports_of_the_other_servers_are_routes_at_home_and_gateways_elsewhere() -> None:
    def one(name: str, cluster: str) -> dict[str, Any]:
        ends = {
            "route_address": f"r-{name}",
            "cluster_port": 6222,
            "gateway_address": f"g-{name}",
            "gateway_port": 7222,
        }
        return {"server_name": name, "cluster": cluster, **ends}

    servers = [one("a1", "A"), one("a2", "A"), one("b1", "B")]
    assert peer_ports(servers, "a1") == [
        {"server_name": "a2", "listener": "cluster", "host": "r-a2", "port": 6222},
        {"server_name": "b1", "listener": "gateway", "host": "g-b1", "port": 7222},
    ]
    assert peer_ports(servers, "") == []
