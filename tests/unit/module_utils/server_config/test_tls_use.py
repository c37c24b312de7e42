# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests which connections use the TLS files of the role."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.filter.nats_tls_use import nats_tls_use
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.tls_use import tls_use

OPTIONS: dict[str, Any] = {
    "address": "n1",
    "port": 4222,
    "tls": None,
    "tls_for_clients": True,
    "clustered": "True",
    "cluster_tls": None,
    "tls_for_cluster": True,
    "cluster_route_address": "r1",
    "cluster_port": 6222,
    "supercluster_groups": [],
    "gateway": None,
    "gateway_address": "g1",
    "leafnodes": None,
    "leafnode_address": "l1",
}


@pytest.mark.parametrize(
    ("changes", "names", "between_servers"),
    [
        ({}, ["n1", "r1"], True),
        ({"cluster_route_address": "n1"}, ["n1"], True),
        ({"tls": {"cert_file": "/x"}}, ["r1"], True),
        ({"tls": {}}, ["r1"], True),
        ({"tls_for_clients": "False"}, ["r1"], True),
        ({"clustered": False, "supercluster_groups": ["east"]}, ["n1"], False),
        ({"cluster_tls": {"cert_file": "/x"}}, ["n1"], False),
        ({"cluster_tls": {"timeout": 2}}, ["n1", "r1"], True),
        ({"tls_for_cluster": False}, ["n1"], False),
        ({"supercluster_groups": ["east"]}, ["n1", "r1", "g1"], True),
        ({"gateway": {}}, ["n1", "r1", "g1"], True),
        ({"leafnodes": {"port": 7422}}, ["n1", "r1", "l1"], True),
        ({"leafnodes": {"remotes": []}}, ["n1", "r1"], True),
    ],
)
def test_names_are_those_of_connections_with_the_files(
    changes: dict[str, Any], names: list[str], between_servers: bool
) -> None:
    found = tls_use({**OPTIONS, **changes})
    assert (found["names"], found["between_servers"]) == (names, between_servers)


def test_listeners_of_clients_and_routes_show_the_certificate() -> None:
    client, route = {"host": "n1", "port": 4222}, {"host": "r1", "port": 6222, "tls_first": True}
    assert nats_tls_use(OPTIONS)["listeners"] == [client, route]
    assert nats_tls_use({**OPTIONS, "tls_for_clients": False})["listeners"] == [route]
    assert nats_tls_use({**OPTIONS, "clustered": False})["listeners"] == [client]
