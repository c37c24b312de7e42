# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A hub of three servers and a leafnode with JetStream of its own, from one inventory; modules reach both by their domains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Runner
from role_cluster import APP_PASSWORD, APP_USER, RoleCluster, words

HUB, LEAF = ["n1", "n2", "n3"], "l1"


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoleCluster]:
    """The deployed hub and its leafnode."""
    made = RoleCluster(tmp_path_factory.mktemp("leaf"), [*HUB, LEAF], "2.15.1")
    made.groups = {"hub": HUB, "branch": [LEAF]}
    del made.variables["nats_server_cluster_name"]
    for name in HUB:
        # A port of its own for each: they are on one machine.
        users = [{"user": "branch", "password": "p@ss#2", "account": "APP"}]
        listener = {"host": "127.0.0.1", "port": made.hosts[name]["nats_server_gateway_port"], "authorization": {"users": users}}
        own = {"nats_server_cluster_group": "hub", "nats_server_jetstream_domain": "hub", "nats_server_leafnodes": listener}
        made.hosts[name].update(own)
    made.hosts[LEAF].update(
        nats_server_cluster_group="branch",
        nats_server_jetstream_domain="branch",
        nats_server_leafnode_hub_group="hub",
        nats_server_leafnode_remotes=[{"account": "APP", "user": "branch", "password": "p@ss#2"}],
    )
    try:
        made.playbook("deploy")
        yield made
    finally:
        made.kill()


def application(sites: RoleCluster, host: str) -> dict[str, Any]:
    return {"servers": [sites.url(host)], "user": APP_USER, "password": APP_PASSWORD}


def test_the_leafnode_is_connected_to_its_account(sites: RoleCluster, run_module: Runner) -> None:
    system = {**sites.system(), "servers": [sites.url(name) for name in HUB]}
    info = run_module("nats_server_info", system, endpoints=["leafz"])
    leafs = [leaf for server in info["servers"] for leaf in server["leafz"]["leafs"]]
    assert [(leaf["name"], leaf["account"]) for leaf in leafs] == [(LEAF, "APP")]


def test_a_second_deployment_changes_nothing(sites: RoleCluster) -> None:
    sites.deploy_changes_nothing()


def test_streams_of_both_domains_are_managed_from_either_side(sites: RoleCluster, run_module: Runner) -> None:
    for domain, host, replicas in (("hub", LEAF, 3), ("branch", "n1", 1)):
        across = {**application(sites, host), "jetstream_domain": domain}
        wanted = {"stream": f"OF_{domain}", "subjects": [f"{domain}.>"], "num_replicas": replicas}
        assert run_module("nats_stream", across, **wanted).get("changed")
        assert not run_module("nats_stream", across, **wanted)["changed"]
    for host, own in (("n1", "OF_hub"), (LEAF, "OF_branch")):
        found = run_module("nats_stream_info", application(sites, host))
        assert [stream["name"] for stream in found["streams"]] == [own]
    nowhere = run_module("nats_stream_info", {**application(sites, LEAF), "jetstream_domain": "nowhere", "timeout": 1})
    assert nowhere["failed"]
    assert "no JetStream of the domain nowhere answers" in nowhere["msg"]


def test_a_mirror_across_domains_tells_its_lag(sites: RoleCluster, run_module: Runner) -> None:
    mirror = {"name": "OF_branch", "external": {"api": "$JS.branch.API"}}
    run_module("nats_stream", application(sites, "n1"), stream="COPY", mirror=mirror, num_replicas=3)
    (copy,) = run_module("nats_stream_info", application(sites, "n1"), stream="COPY")["streams"]
    assert copy["config"]["mirror"]["external"]["api"] == "$JS.branch.API"


def test_the_domain_of_the_hub_is_refused_on_the_leafnode(sites: RoleCluster) -> None:
    pids = sites.pids()
    sites.hosts[LEAF]["nats_server_jetstream_domain"] = "hub"
    try:
        output = words(sites.playbook("deploy", fails=True).output)
    finally:
        sites.hosts[LEAF]["nats_server_jetstream_domain"] = "branch"
    assert "'hub' is also that of n1" in output
    assert sites.pids() == pids
