# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests which servers are members of a cluster, and the routes and gateways between servers."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.topology import (
    Around,
    gateways,
    leaf_remotes,
    members,
    routes,
    supercluster_hosts,
    topology,
)

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
        "host": "n1", "server_name": "n1", "cluster": None, "address": "10.0.0.1",
        "route_address": "10.0.0.1", "cluster_port": 6222, "gateway_address": "10.0.0.1", "gateway_port": 7222,
        "leafnode_address": "10.0.0.1", "leafnode_port": 7422, "domain": None,
        "client_port": 4222, "monitoring": "",
        "jetstream": True, "arbiter": False, "zone": "a", "unique_tag": "az:", "pool_size": None,
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
    with pytest.raises(ValueError, match="nats_server_name of n1 is 'x' here, but 'n1' for the other hosts"):
        members(["n1"], HOSTVARS, "n1", {"server_name": "x"})
    assert members(["n1"], HOSTVARS, "n1", {"server_name": "n1", "zone": "a"})


@pytest.mark.parametrize(
    ("names", "hostvars", "message"),
    [
        (["n1", "n9"], HOSTVARS, "lists n9, which is not in the inventory"),
        (["a"], {"a": {"nats_server_name": "{{ undefined }}-c1"}}, "nats_server_name of a cannot be resolved"),
        (["a"], {"a": {"nats_server_port": "x"}}, "nats_server_port: 'x' is not a port"),
    ],
)
def test_missing_values_are_reported(names: list[str], hostvars: dict[str, Any], message: str) -> None:
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


SITES: dict[str, dict[str, Any]] = {
    "e1": {"ansible_host": "10.1.0.1"},
    "e2": {"ansible_host": "fd00::2", "nats_server_gateway_port": "7333"},
    "w1": {
        "ansible_host": "10.2.0.1",
        "nats_server_gateway_address": "west.example.com",
        "nats_server_cluster_name": "WEST",
    },
}


def find_gateways(
    clusters: dict[str, list[str]],
    hostvars: dict[str, dict[str, Any]],
    host: str,
    seen: dict[str, Any],
    authorization: dict[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Return the gateways of the clusters' hosts, as the inventory defines them."""
    return gateways(topology([host], hostvars, host, seen, Around(groups=clusters))["clusters"], authorization)


def test_gateways_list_every_cluster_alike_on_every_host() -> None:
    clusters = {"east": ["e1", "e2"], "west": ["w1"]}
    expected = [
        {"name": "east", "urls": ["nats://10.1.0.1:7222", "nats://[fd00::2]:7333"]},
        {"name": "WEST", "urls": ["nats://west.example.com:7222"]},
    ]
    for host in SITES:
        assert find_gateways(clusters, SITES, host, {}) == expected
    (_east, west) = find_gateways(clusters, SITES, "e1", {"gateway_port": 9222}, {"user": "u", "password": "p@"})
    assert west["urls"] == ["nats://u:p%40@west.example.com:9222"]


@pytest.mark.parametrize(
    ("clusters", "changes", "message"),
    [
        ({"east": ["e1"], "west": []}, {}, "the group west of nats_server_supercluster_groups has no hosts"),
        ({"east": ["e1"], "west": ["w1", "e1"]}, {}, "differs within the group west: 'WEST' on w1; 'west' on e1"),
        ({"east": ["e1", "e2"], "west": ["e2"]}, {}, "e2 is in both groups east and west"),
        (
            {"east": ["e1"], "west": ["w1"]},
            {"w1": {"nats_server_name": "e1"}},
            "e1 is in both groups east and west",
        ),
        ({"east": ["e1"], "west": ["w1"]}, {"w1": {"nats_server_cluster_name": "east"}}, "both form the cluster east"),
        ({"east": ["e1", "x"]}, {}, "lists x, which is not in the inventory"),
    ],
)
def test_indistinguishable_clusters_are_refused(
    clusters: dict[str, list[str]], changes: dict[str, dict[str, Any]], message: str
) -> None:
    hostvars = {host: {**values, **changes.get(host, {})} for host, values in SITES.items()}
    with pytest.raises(ValueError, match=message):
        find_gateways(clusters, hostvars, "e1", {})


def test_a_server_that_leaves_keeps_its_gateways_and_the_others_do_without_it() -> None:
    around = Around(groups={"east": ["e1", "e2"], "west": ["w1"]}, leaving=["e2", "w1"])

    def clusters(host: str) -> dict[str, list[str]]:
        found = topology([host], SITES, host, {}, around)["clusters"]
        return {cluster["group"]: [server["host"] for server in cluster["servers"]] for cluster in found}

    assert clusters("e1") == {"east": ["e1"]}
    assert clusters("w1") == {"east": ["e1", "e2"], "west": ["w1"]}


def test_clients_of_the_own_cluster_come_first() -> None:
    around = Around(supercluster=["w1", "e1", "e2"], groups={"east": ["e1", "e2"], "west": ["w1"]}, client_scheme="tls")
    found = topology(["e1", "e2"], SITES, "e1", {}, around)
    assert found["client_urls"] == ["tls://10.1.0.1:4222", "tls://[fd00::2]:4222", "tls://10.2.0.1:4222"]
    assert [server["host"] for server in found["supercluster"]] == ["w1", "e1", "e2"]
    alone = topology(["e1", "e2"], SITES, "e1", {}, Around())
    assert alone["supercluster"] == alone["servers"] == members(["e1", "e2"], SITES, "e1", {})
    assert (alone["clusters"], alone["hub"]) == ([], [])


def test_the_variables_of_a_host_are_gathered_once() -> None:
    asked = []

    class Counting(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            asked.append(name)
            return super().__getitem__(name)

    topology(["e1", "e2"], Counting(SITES), "e1", {}, Around(supercluster=list(SITES), groups={"east": ["e1", "e2"]}))
    assert sorted(asked) == sorted(SITES)


def test_a_member_belongs_to_the_group_of_the_supercluster_that_it_is_in() -> None:
    hostvars = {
        "e1": {"group_names": ["nats", "east"]},
        "w1": {"group_names": ["west"], "nats_server_cluster_name": "W"},
    }
    seen = {"supercluster_groups": ["east", "west"], "cluster": "east"}
    assert [one["cluster"] for one in members(["e1", "w1"], hostvars, "e1", seen)] == ["east", "W"]
    assert [one["cluster"] for one in members(["e1"], hostvars, "e1", {"cluster": "C1"})] == ["C1"]


def test_remote_gets_the_urls_of_all_hub_servers() -> None:
    variables = {
        "h1": {"nats_server_leafnodes": {"listen": "0.0.0.0:7400"}},
        "h2": {"nats_server_leafnode_address": "::2"},
    }
    hub = members(["h1", "h2"], variables, "leaf", {"cluster": "hub"})
    assert leaf_remotes(hub, [{"account": "A", "user": "s", "password": "p@"}, {"url": "nats-leaf://x:1"}]) == [
        {"account": "A", "urls": ["nats-leaf://s:p%40@h1:7400", "nats-leaf://s:p%40@[::2]:7422"]},
        {"url": "nats-leaf://x:1"},
    ]
    tls = [one["tls"] for one in leaf_remotes(hub, [{"account": "A"}, {"tls": {"verify": False}}], {"verify": True})]
    assert tls == [{"verify": True}, {"verify": False}]
    with pytest.raises(ValueError, match="nats_server_leafnode_hub_group is a group without hosts"):
        leaf_remotes([], [{"account": "A"}])


def test_monitoring_address_that_other_hosts_cannot_resolve_is_empty() -> None:
    hosts = {"n1": {"nats_server_http": "127.0.0.1:8223"}, "n2": {"nats_server_http": "{{ own }}:8222"}, "n3": {}}
    found = members(list(hosts), hosts, "n1", {"monitoring": "127.0.0.1:8222"})
    assert [one["monitoring"] for one in found] == ["127.0.0.1:8223", "", ""]
    seen = members(list(hosts), hosts, "n3", {"monitoring": "127.0.0.1:8222"})
    assert seen[2]["monitoring"] == "127.0.0.1:8222"


@pytest.mark.parametrize(
    ("groups", "leaving", "hosts"),
    [
        (["east", "west"], [], ["e1", "e2", "w1"]),
        (["east", "west"], ["e2"], ["e1", "w1"]),
        ([], ["e2"], ["own"]),
        (["east"], ["e1", "e2"], ["own"]),
    ],
)
def test_hosts_of_a_supercluster(groups: list[str], leaving: list[str], hosts: list[str]) -> None:
    """Without a supercluster, its hosts are those of the cluster."""
    membership = {"supercluster_groups": groups, "cluster_members": ["own"], "cluster_leaving": leaving}
    assert supercluster_hosts(membership, {"east": ["e1", "e2"], "west": ["e2", "w1"]}) == hosts


def test_supercluster_refuses_a_group_that_the_inventory_does_not_have() -> None:
    membership = {"supercluster_groups": ["east", "wset"], "cluster_members": [], "cluster_leaving": []}
    with pytest.raises(
        ValueError, match="nats_server_supercluster_groups lists wset, which the inventory does not have"
    ):
        supercluster_hosts(membership, {"east": ["e1"]})
