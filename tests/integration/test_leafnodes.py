# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A hub of three servers and a leafnode with its own JetStream, deployed from one inventory; modules reach both by
their domains. Also tests a cluster that binds the system account of another one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.module_runs import Runner, form
from support.nats_processes import NatsProcesses, free_ports
from support.role_cluster import APP_PASSWORD, APP_USER, RoleCluster
from support.snapshots import snapshot_lines

pytestmark = pytest.mark.playbook

HUB, LEAF = ["n1", "n2", "n3"], "l1"
#: Accounts that the leafnode binds, with the users of the hub's listener.
BOUND = {"APP": "branch", "$SYS": "branch-sys"}


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoleCluster]:
    """The deployed hub and its leafnode."""
    made = RoleCluster(tmp_path_factory.mktemp("leaf"), [*HUB, LEAF], "2.15.1")
    made.groups = {"hub": HUB, "branch": [LEAF]}
    del made.variables["nats_server_cluster_name"]
    for name in HUB:
        # Each server needs its own port, because all servers are on one machine.
        users = [{"user": user, "password": "p@ss#2", "account": account} for account, user in BOUND.items()]
        listener = {
            "host": "127.0.0.1",
            "port": made.hosts[name]["nats_server_gateway_port"],
            "authorization": {"users": users},
        }
        own = {
            "nats_server_cluster_group": "hub",
            "nats_server_jetstream_domain": "hub",
            "nats_server_leafnodes": listener,
        }
        made.hosts[name].update(own)
    made.hosts[LEAF].update(
        nats_server_cluster_group="branch",
        nats_server_jetstream_domain="branch",
        nats_server_leafnode_hub_group="hub",
        nats_server_leafnode_remotes=[
            {"account": account, "user": user, "password": "p@ss#2"} for account, user in BOUND.items()
        ],
    )
    with made.deployed():
        yield made


def until(what: Callable[[], bool], shown: Callable[[], Any] = lambda: None) -> None:
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end, shown()
        time.sleep(0.2)


def application(sites: RoleCluster, host: str) -> dict[str, Any]:
    return {"servers": [sites.url(host)], "user": APP_USER, "password": APP_PASSWORD}


def test_the_leafnode_is_connected_to_its_accounts(sites: RoleCluster, run_module: Runner) -> None:
    system = {**sites.system(), "servers": [sites.url(name) for name in HUB]}

    def connected() -> list[tuple[str, str]]:
        info = run_module("nats_server_info", system, server_names=HUB, endpoints=["leafz"])
        leafs = [leaf for server in info["servers"] for leaf in server["leafz"].get("leafs") or ()]
        return sorted((leaf["name"], leaf["account"]) for leaf in leafs)

    until(lambda: connected() == [(LEAF, "$SYS"), (LEAF, "APP")], connected)


def test_each_side_counts_its_own_servers_only(sites: RoleCluster, run_module: Runner) -> None:
    for names in (HUB, [LEAF]):
        system = {**sites.system(), "servers": [sites.url(names[0])]}
        assert {one["name"] for one in run_module("nats_server_info", system)["servers"]} == {*HUB, LEAF}
        assert [one["name"] for one in run_module("nats_cluster_info", system)["servers"]] == names
        assert run_module("nats_cluster_health", system, expected_servers=names, wait=False)["healthy"]


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


def test_a_mirror_across_domains_reports_its_lag(sites: RoleCluster, run_module: Runner) -> None:
    mirror = {"name": "OF_branch", "external": {"api": "$JS.branch.API"}}
    run_module("nats_stream", application(sites, "n1"), stream="COPY", mirror=mirror, num_replicas=3)
    (copy,) = run_module("nats_stream_info", application(sites, "n1"), stream="COPY")["streams"]
    assert copy["config"]["mirror"]["external"]["api"] == "$JS.branch.API"


def test_either_side_of_a_system_account_that_is_bound_is_a_cluster_of_its_own(
    version: str, tmp_path: Path, run_module: Runner
) -> None:
    """The two sides have different domains. Without extension_hint, the branch would have no JetStream until it first
    contacted its hub."""
    (port,) = free_ports(1)
    hub = NatsProcesses(version, tmp_path / "hub", ["n1", "n2"], cluster="hub", jetstream_options="domain: hub")
    remote = f'leafnodes {{ remotes: [{{ url: "nats-leaf://leaf:pw@127.0.0.1:{port}", account: "$SYS" }}] }}'
    branch = NatsProcesses(version, tmp_path / "branch", ["l1", "l2"], cluster="branch", extra=remote)

    def names_in(cluster: NatsProcesses) -> set[str]:
        found = run_module("nats_server_info", cluster.sys_connection(), endpoints=[])
        return {server["name"] for server in found.get("servers", ())}

    def leader(of: NatsProcesses) -> str | None:
        info = run_module("nats_cluster_info", of.sys_connection(), detail="servers")
        assert {server["name"] for server in info["servers"]} <= set(of.names)
        return (info["meta"] or {}).get("leader")

    for cluster in (hub, branch):
        cluster.directory.mkdir()
    try:
        branch.jetstream_options = "domain: branch"
        branch.start()
        # A server in observer mode cannot become leader, so the branch elects none while it has no contact with its
        # hub.
        until(lambda: all("metadata controller Observer Mode on" in branch.log(name) for name in branch.names))
        until(lambda: names_in(branch) == set(branch.names), lambda: names_in(branch))
        assert leader(branch) is None
        for name in branch.names:
            branch.stop(name)
            branch.jetstream_options = "domain: branch, extension_hint: no_extend"
            branch.write_config(name)
        branch.start()
        form(branch, run_module)

        users = 'authorization { users: [{ user: leaf, password: pw, account: "$SYS" }] }'
        hub.write_config("n1", f'leafnodes {{ listen: "127.0.0.1:{port}", {users} }}')
        hub.start()
        form(hub, run_module)
        until(lambda: names_in(hub) == {*hub.names, *branch.names}, lambda: names_in(hub))
        for cluster in (hub, branch):
            asked = {"expected_servers": cluster.names, "cluster": cluster.cluster}
            gate = run_module("nats_cluster_health", cluster.sys_connection(), **asked, span=3)
            assert gate["healthy"], gate["msg"]
            assert gate["servers"] == cluster.names
            assert leader(cluster) in cluster.names
            del asked["cluster"]
            assert run_module("nats_cluster_health", cluster.sys_connection(), **asked, span=3)["healthy"]
            info = run_module("nats_cluster_info", cluster.sys_connection())
            assert info["problems"] == []
            assert sorted(info["meta"]["members"]) == cluster.names
            facts = run_module("nats_cluster_facts", cluster.sys_connection())
            assert [found["name"] for found in facts["ansible_facts"]["nats_cluster"]["clusters"]] == [cluster.cluster]
            # The account has a stream with this name in each domain.
            cluster.add_stream("TELEMETRY", 1)
            taken = run_module(
                "nats_snapshot", cluster.sys_connection(), lake=str(tmp_path / "lake"), fleet=cluster.cluster
            )
            assert (taken.get("msg"), taken["answered"]) == (None, 4)
        lines = snapshot_lines(Path(taken["manifest"]))
        homes = {name: of.cluster for of in (hub, branch) for name in of.names}
        for table in ("servers", "varz", "jsz", "accstatz"):
            assert {line["server"]: line["domain"] for line in lines[table]} == homes, table
        streams = [(line["domain"], line["data"]["name"]) for line in lines["jsz_streams"]]
        assert sorted(streams) == [("branch", "TELEMETRY"), ("hub", "TELEMETRY")]
    finally:
        for cluster in (hub, branch):
            cluster.kill()
