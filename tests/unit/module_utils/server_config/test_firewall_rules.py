# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.firewall import (
    firewall_rules,
    related_servers,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.topology import (
    Around,
    Topology,
    topology,
)

HOSTS = {
    "a1": {"ansible_host": "10.0.0.1", "group_names": ["east"]},
    "a2": {"ansible_host": "10.0.0.2", "nats_server_cluster_route_address": "10.1.0.2", "group_names": ["east"]},
    "b1": {"ansible_host": "10.0.1.1", "group_names": ["west"]},
    "gone": {"ansible_host": "10.0.0.9", "group_names": ["east"]},
    "leaf": {"ansible_host": "10.0.2.1", "nats_server_leafnode_hub_group": "east", "group_names": ["edge"]},
}
CONFIG: dict[str, Any] = {
    "port": 4222,
    "http": "127.0.0.1:8222",
    "cluster": {"port": 6222},
    "gateway": {"port": 7222},
    "leafnodes": {"port": 7422},
    "websocket": {"port": 8443},
    "mqtt": {"port": 1883},
}


def servers() -> Topology:
    around = Around(supercluster=["a1", "a2", "b1"], groups={"east": ["a1", "a2"], "west": ["b1"]})
    seen = {"supercluster_groups": ["east", "west"], "cluster": "east"}
    return topology(["a1", "a2"], HOSTS, "a1", seen, around)


def sources(config: dict[str, Any] | None = None, **more: Any) -> dict[int, list[str]]:
    leaving, leaves = related_servers(HOSTS, "a1", ["gone"], ["east"], ["a1", "a2", "b1"])
    rules = firewall_rules(CONFIG if config is None else config, servers(), leaving, leaves, **more)
    return {rule["port"]: rule["sources"] for rule in rules}


def test_each_listener_accepts_its_peers_of_the_inventory() -> None:
    """A listener also accepts peers that are leaving, from any of their addresses. A listener on loopback needs no
    rule."""
    own, other, gone = ["10.0.0.1", "10.1.0.2", "10.0.0.2"], ["10.0.1.1"], ["10.0.0.9"]
    assert sources() == {
        1883: [],
        4222: [*own, *other, *gone],
        6222: [*own, *gone],
        7222: [*other, *gone],
        7422: ["10.0.2.1"],
        8443: [],
    }


def test_further_sources_and_ports_are_named_by_the_operator() -> None:
    allow = {"client": ["10.8.0.0/16"], "mqtt": ["10.9.0.0/16"], "cluster": ["n9.example"], "monitoring": ["10.0.9.9"]}
    found = sources({**CONFIG, "http": "0.0.0.0:8222"}, allow=allow, ports={"7777": ["10.0.9.9"]})
    assert found[8443] == ["10.8.0.0/16"]
    assert found[1883] == ["10.9.0.0/16"]
    assert found[8222] == found[7777] == ["10.0.9.9"]
    assert found[4222][-1] == "10.8.0.0/16"
    assert found[6222][-1] == "n9.example"


@pytest.mark.parametrize(
    "options, message",
    [
        ({"allow": {"clients": []}}, "nats_server_firewall_allow has clients, which is not a listener: use client, "),
        ({"ports": {"ssh": []}}, "nats_server_firewall_ports: 'ssh' is not a port"),
        ({"ports": {70000: []}}, "70000 is not a port"),
        ({"ports": {6222: []}}, "nats_server_firewall_ports lists 6222, the port of the listener cluster"),
    ],
)
def test_rules_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sources(**options)


def test_a_server_that_leaves_needs_not_be_in_the_inventory() -> None:
    assert related_servers(HOSTS, "a1", ["nowhere"], [], list(HOSTS)) == ([], [])
