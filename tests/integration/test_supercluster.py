# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A supercluster of three clusters (one also has a server without JetStream, one has only an arbiter) is
deployed, restarted, reduced and extended."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import nats
import pytest
from support.load import patiently, publish_stored
from support.module_runs import Runner
from support.nats_processes import VERSIONS
from support.quorum_watch import META, watching
from support.role_cluster import APP_PASSWORD, APP_USER, SYSTEM_PASSWORD, RoleCluster, create, meta_members, words

pytestmark = pytest.mark.playbook

MIRROR = Path(__file__).parents[2] / "docs" / "examples" / "mirror.yml"
CLUSTERS = {"east": ["n1", "core"], "central": ["n2"], "west": ["n3"]}


def supercluster(root: Path, clusters: dict[str, list[str]], version: str) -> RoleCluster:
    """Return a supercluster that has not been deployed yet."""
    made = RoleCluster(root, [host for hosts in clusters.values() for host in hosts], version)
    made.groups = {name: list(hosts) for name, hosts in clusters.items()}
    del made.variables["nats_server_cluster_name"]
    made.variables["nats_server_supercluster_groups"] = list(clusters)
    made.variables["nats_server_gateway_authorization"] = {"user": "gateway", "password": "p@ss#1"}
    return made


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoleCluster]:
    """The deployed supercluster; its tests must run in order."""
    made = supercluster(tmp_path_factory.mktemp("sites"), CLUSTERS, "2.15.1")
    made.hosts["core"]["nats_server_jetstream"] = False
    made.hosts["n2"]["nats_server_arbiter"] = True
    with made.deployed():
        create(made, "EAST", 1, placement={"cluster": "east"})
        yield made


def application(sites: RoleCluster) -> dict[str, Any]:
    """Return the modules' connection as the application's user."""
    return {"servers": sites.urls, "user": APP_USER, "password": APP_PASSWORD}


def test_a_second_deployment_changes_nothing(sites: RoleCluster) -> None:
    sites.deploy_changes_nothing()


def test_the_report_shows_all_clusters_and_both_kinds_of_servers(sites: RoleCluster) -> None:
    output = sites.playbook("report").output
    assert re.search(r"│ core +│ east +│ 127.0.0.1 +│ 2.15.1 +│ no ", output)
    assert re.search(r"│ n1 +│ east +│ 127.0.0.1 +│ 2.15.1 +│ yes ", output)
    for told in ("east", "central", "west", "2 of 3 make a quorum", "No problems found."):
        assert told in output


def test_mirror_in_a_different_cluster_reports_its_lag(sites: RoleCluster) -> None:
    """The mirror has the options that the documents show."""

    async def publish() -> None:
        client = await nats.connect(sites.url("n1"), user=APP_USER, password=APP_PASSWORD)
        jetstream = client.jetstream()
        for _number in range(20):
            await patiently(partial(publish_stored, jetstream, "orders.new", b"", uuid.uuid4().hex))
        # A mirror that could not reach its origin at once retries after ten seconds.
        while (await patiently(partial(jetstream.stream_info, "ORDERS_WEST"))).state.messages < 20:
            await asyncio.sleep(0.1)
        await client.close()

    def mirrored() -> str:
        return words(sites.playbook(str(MIRROR), replicas=1, nats_connection=application(sites)).output)

    assert "ORDERS_WEST has 0 messages in west and is 0 behind ORDERS" in mirrored()
    asyncio.run(asyncio.wait_for(publish(), 60))
    again = mirrored()
    assert "ORDERS_WEST has 20 messages in west and is 0 behind ORDERS" in again
    assert "changed=0" in again


def test_an_arbiter_votes_and_takes_no_stream(sites: RoleCluster, run_module: Runner) -> None:
    refused = run_module("nats_stream", application(sites), stream="CENTRAL", placement={"cluster": "central"})
    assert refused["failed"]
    assert "no suitable peers" in refused["msg"]
    assert meta_members(run_module, sites) == ["n1", "n2", "n3"]


def test_a_reload_restarts_nothing(sites: RoleCluster) -> None:
    pids = sites.pids()
    sites.playbook("reload")
    assert sites.pids() == pids


def test_a_restart_goes_through_all_clusters_one_server_at_a_time(sites: RoleCluster) -> None:
    pids = sites.pids()
    output = words(sites.playbook("restart").output)
    assert all(sites.pid(name) not in (0, pid) for name, pid in pids.items())
    assert "batch 4 of 4" in output


@pytest.mark.chaos
def test_a_lost_cluster_stops_a_restart_and_a_deployment_brings_it_back(sites: RoleCluster, run_module: Runner) -> None:
    pids = sites.pids()
    sites.kill("n3")
    asked = {"detail": "servers", "expected_servers": ["n1", "n2", "n3"]}
    lost = run_module("nats_cluster_info", {**sites.system(), "timeout": 2}, **asked)
    assert lost["meta"]["leader"] in ("n1", "n2")
    assert "n3" in lost["missing"]
    output = words(sites.playbook("restart", fails=True, nats_cluster_gate_timeout=15).output)
    assert "n3" in output
    assert sites.pids() == {**pids, "n3": 0}
    sites.playbook("deploy")
    again = sites.pids()
    assert again.pop("n3") not in (0, pids.pop("n3"))
    assert again == pids


@pytest.mark.chaos
def test_cluster_is_added_and_removed(sites: RoleCluster, run_module: Runner) -> None:
    sites.add("n4")
    sites.groups["north"] = ["n4"]
    sites.variables["nats_server_supercluster_groups"] = [*CLUSTERS, "north"]
    output = words(sites.playbook("scale_out").output)
    assert "New in the supercluster of east, central, west, north: n4" in output
    assert "4 JetStream servers need 3 for a quorum" in output
    assert meta_members(run_module, sites) == ["n1", "n2", "n3", "n4"]
    create(sites, "NORTH", 1, placement={"cluster": "north"})

    leaving: dict[str, Any] = {"nats_server_cluster_leaving": ["n4"], "nats_server_remove_data": True}
    assert "stream APP/NORTH (R1 on n4)" in words(sites.playbook("scale_in", fails=True, **leaving).output)
    run_module("nats_stream", application(sites), stream="NORTH", placement={"cluster": "east"})
    sites.playbook("scale_in", **leaving)
    assert meta_members(run_module, sites) == ["n1", "n2", "n3"]
    del sites.hosts["n4"], sites.groups["north"]
    sites.variables["nats_server_supercluster_groups"] = list(CLUSTERS)
    sites.deploy_changes_nothing()


def gateway_tls(run_module: Runner, sites: RoleCluster) -> list[bool]:
    """Return, for each server, whether its outbound gateway connections use TLS."""
    servers = run_module("nats_server_info", sites.system(), endpoints=["gatewayz"])["servers"]
    return [
        "tls_version" in one["connection"]
        for server in servers
        for one in server["gatewayz"]["outbound_gateways"].values()
    ]


@pytest.mark.chaos
@pytest.mark.parametrize("version", VERSIONS)
def test_gateways_get_tls_one_server_at_a_time(version: str, tmp_path: Path, run_module: Runner) -> None:
    """No cluster loses its connection to another, although with so few servers no order of restarts alone would keep a
    quorum."""
    made = supercluster(tmp_path, {"east": ["n1", "n4"], "central": ["n2"], "west": ["n3"]}, version)
    try:
        made.playbook("deploy")
        create(made, "EAST", 1, placement={"cluster": "east"})
        assert gateway_tls(run_module, made) == [False] * 8
        made.variables.update(nats_server_tls_source="ca", nats_server_tls_ca_dir=str(tmp_path / "ca"))
        made.variables["nats_server_tls_for_clients"] = False
        pids = made.pids()
        refused = words(made.playbook("deploy", "--limit", "n1,n4,n2", fails=True).output)
        assert "The run excludes n3" in refused
        assert made.pids() == pids
        with watching({name: made.url(name) for name in made.hosts}, "sys", SYSTEM_PASSWORD, tmp_path) as samples:
            output = words(made.playbook("deploy").output)
        assert "gateway.tls is added" in output
        assert max(len(sample["away"][META]) for sample in samples) == 1
        assert len(samples) > 50
        assert gateway_tls(run_module, made) == [True] * 8
        assert not set(made.pids().values()) & set(pids.values())
        made.deploy_changes_nothing()
    finally:
        made.kill()
