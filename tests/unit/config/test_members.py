# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The members of a cluster and the routes between them."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils._members import members, routes

HOSTVARS: dict[str, dict[str, Any]] = {
    "n1": {"ansible_host": "10.0.0.1", "nats_server_zone": "a"},
    "n2": {"ansible_host": "fd00::2", "nats_server_cluster_port": "7222", "nats_server_name": "second"},
    "n3": {
        "nats_server_jetstream": "False",
        "nats_server_listen": "0.0.0.0:5222",
        "nats_server_cluster_route_address": "r3",
    },
}


def test_members_come_from_the_inventory_and_the_known_defaults() -> None:
    first, second, third = members(["n1", "n2", "n3"], HOSTVARS, "n1", {})
    assert first == {
        "host": "n1", "server_name": "n1", "address": "10.0.0.1", "route_address": "10.0.0.1", "cluster_port": 6222,
        "client_port": 4222, "jetstream": True, "zone": "a", "unique_tag": "az:", "pool_size": None,
    }  # fmt: skip
    assert (second["server_name"], second["cluster_port"], second["unique_tag"]) == ("second", 7222, None)
    assert (third["jetstream"], third["client_port"], third["route_address"], third["address"]) == (
        False,
        5222,
        "r3",
        "n3",
    )


def test_a_port_that_the_play_sets_holds_for_all_and_one_of_the_inventory_for_its_host() -> None:
    seen = {"cluster_port": "9222", "client_port": 4333}
    assert [m["cluster_port"] for m in members(["n1", "n2"], HOSTVARS, "n1", seen)] == [9222, 7222]
    assert [m["cluster_port"] for m in members(["n1", "n2"], HOSTVARS, "n2", {"cluster_port": "7222"})] == [6222, 7222]


def test_a_name_that_the_other_hosts_would_not_see_is_refused() -> None:
    with pytest.raises(ValueError, match="nats_server_name of n1 is 'x' here, but the other hosts see 'n1'"):
        members(["n1"], HOSTVARS, "n1", {"server_name": "x"})
    assert members(["n1"], HOSTVARS, "n1", {"server_name": "n1", "zone": "a"})


@pytest.mark.parametrize(
    ("names", "hostvars", "message"),
    [
        (["n1", "n9"], HOSTVARS, "lists n9, which the inventory does not have"),
        (["a"], {"a": {"nats_server_name": "{{ undefined }}-c1"}}, "nats_server_name of a cannot be resolved"),
        (["a"], {"a": {"nats_server_port": "x"}}, "nats_server_port: 'x' is not a port"),
    ],
)
def test_what_is_missing_is_said(names: list[str], hostvars: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        members(names, hostvars, names[0], {})


def test_routes_list_everybody_with_brackets_and_encoded_credentials() -> None:
    everybody = members(["n1", "n2", "n3"], HOSTVARS, "n1", {})
    assert routes(everybody) == ["nats-route://10.0.0.1:6222", "nats-route://[fd00::2]:7222", "nats-route://r3:6222"]
    assert routes(everybody[:1], authorization={"user": "u:x", "password": "p@/ ü"}) == [
        "nats-route://u%3Ax:p%40%2F%20%C3%BC@10.0.0.1:6222"
    ]


def test_seeds_are_members_addresses_or_urls() -> None:
    everybody = members(["n1", "n2"], HOSTVARS, "n1", {})
    seeds = ["n2", "other", "other:1", "fd00::9", "[fd00::9]:1", "nats://u:p@x:1"]
    assert routes(everybody, "seeds", seeds) == [
        "nats-route://[fd00::2]:7222",
        "nats-route://other:6222",
        "nats-route://other:1",
        "nats-route://[fd00::9]:6222",
        "nats-route://[fd00::9]:1",
        "nats://u:p@x:1",
    ]
    with pytest.raises(ValueError, match="nats_server_cluster_seeds is empty"):
        routes(everybody, "seeds", [])
    with pytest.raises(ValueError, match="all or seeds"):
        routes(everybody, "mesh")
