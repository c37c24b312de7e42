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
