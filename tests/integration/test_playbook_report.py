# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the playbook natsops.jetstream.report against real clusters, healthy and broken."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.catalogue import Catalogue
from ansible_collections.natsops.jetstream.plugins.module_utils.health.diagnosis import diagnose
from ansible_collections.natsops.jetstream.plugins.module_utils.reporting.report import report_data
from ansible_collections.natsops.jetstream.plugins.module_utils.reporting.report_page import report_page
from support.module_runs import form
from support.nats_processes import (
    APP_PASSWORD,
    ONE_VERSION,
    SYS_PASSWORD,
    SYS_USER,
    NatsProcesses,
    free_ports,
    run_playbook,
)

pytestmark = pytest.mark.playbook

ALL = [
    "servers",
    "clusters",
    "jetstream",
    "leaders",
    "meta",
    "streams",
    "consumers",
    "accounts",
    "connections",
    "connections_per_server",
    "routes",
    "gateways",
    "leafnodes",
    "cpu",
    "mem",
    "health",
    "expiry",
]
#: A catalogue as left behind by a backup run and a drill.
CATALOGUE = (
    Catalogue()
    .saved("APP/ORDERS", "2026-11-23T02:00:00Z")
    .proven("APP/ORDERS", {"time": "2026-11-23T03:00:00Z", "ok": True, "seconds": 2.5})
)


def report(target: Path, *arguments: str, **variables: Any) -> tuple[str, dict[str, Any]]:
    """Run the playbook and return its output and its JSON."""
    extra = json.dumps({"report_json": str(target), **variables})
    result = run_playbook("report", "-e", extra, *arguments)
    assert result.returncode == 0, result.stdout + result.stderr
    assert SYS_PASSWORD not in result.stdout
    return result.stdout, json.loads(target.read_text())


def inventory(cluster: NatsProcesses, target: Path, *absent: str) -> str:
    """Write an inventory like one for the role, with hosts that are unreachable over SSH and the system user's
    password."""
    hosts = {
        **{name: {"nats_server_port": port} for name, port in cluster.ports.items()},
        **{name: {"nats_server_port": 1} for name in absent},
    }
    variables = {
        "ansible_host": "127.0.0.1",
        "ansible_port": 1,
        "nats_server_cluster_name": cluster.cluster,
        "nats_server_jetstream_store_dir": "/nats",
        "nats_server_system_password": SYS_PASSWORD,
    }
    target.write_text(json.dumps({"nats": {"hosts": hosts, "vars": variables}}))
    return str(target)


def table(data: dict[str, Any], name: str) -> dict[str, Any]:
    return next(item for item in data["tables"] if item["name"] == name)


@ONE_VERSION
def test_last_backups_and_last_proven_restores(healthy: NatsProcesses, tmp_path: Path) -> None:
    backups = tmp_path / "backup"
    backups.mkdir()
    given = {"report": "backups", "nats_connection": healthy.sys_connection()}

    def refused(**more: Any) -> str:
        done = run_playbook("report", "-e", json.dumps({**given, **more}))
        assert done.returncode != 0
        return " ".join(done.stdout.split())

    assert "set nats_cluster_backup_directory or report_backup_directory" in refused()
    assert "has never saved anything there" in refused(report_backup_directory=str(backups))
    (backups / "catalogue.json").write_text("{")
    assert "it is not JSON" in refused(report_backup_directory=str(backups))
    (backups / "catalogue.json").write_text(CATALOGUE.text())
    text, data = report(tmp_path / "report.json", **given, nats_cluster_backup_directory=str(backups))
    rows = {row["stream"]: row for row in table(data, "backups")["rows"]}
    assert (rows["ORDERS"]["saved"], rows["ORDERS"]["proven"]) == ("2026-11-23T02:00:00Z", "2026-11-23T03:00:00Z")
    assert rows["EVENTS"]["saved"] is None
    assert " never saved: " in text and "APP/EVENTS" in text


@ONE_VERSION
def test_every_report_of_a_healthy_cluster_without_an_inventory(
    healthy: NatsProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NATS_URL", ",".join(healthy.urls))
    monkeypatch.setenv("NATS_USER", SYS_USER)
    monkeypatch.setenv("NATS_PASSWORD", SYS_PASSWORD)
    text, data = report(tmp_path / "report.json", report="all", nats_expected_servers=healthy.names)
    assert [item["name"] for item in data["tables"]] == ALL
    assert data["problems"] == []
    streams = table(data, "streams")
    assert {row["stream"] for row in streams["rows"]} >= {"ORDERS", "EVENTS"}
    every, once = table(data, "jetstream")["totals"]
    assert once["streams"] == len(streams["rows"])
    assert every["streams"] == sum(len(row["members"]) for row in streams["rows"]) > once["streams"]
    (worker,) = [row for row in table(data, "consumers")["rows"] if row["consumer"] == "worker"]
    leading = {row["server"]: row["consumers"] for row in table(data, "leaders")["rows"]}
    assert leading[worker["leader"]] == 1
    assert table(data, "health")["totals"][0]["status"] == "ok: 3 / not ok: 0"
    # Every server has the three pooled routes and the route of the system account to each other server.
    assert len(table(data, "routes")["rows"]) == 3 * 2 * 4
    assert "$SYS" in {row["account"] for row in table(data, "accounts")["rows"]}
    for words in ("│ every replica", "│ each stream once", "No gateways", "No leaf nodes", f"{worker['leader']}*"):
        assert words in text


@ONE_VERSION
def test_a_report_of_one_account_with_the_inventory_and_a_limit(healthy: NatsProcesses, tmp_path: Path) -> None:
    hosts = inventory(healthy, tmp_path / "inventory.yml", "n9")
    options = {
        "report": "jetstream,streams,routes",
        "report_account": "APP",
        "report_stream": "ORDERS",
        "report_cluster": "C1",
        # No server has loaded this configuration yet.
        "nats_server_config": {"cluster": {"compression": "s2_fast"}},
    }
    text, data = report(tmp_path / "report.json", "-v", "-i", hosts, "--limit", "n2,n9", **options)
    assert (data["servers"], data["not_answering"]) == (["n2"], ["n9"])
    assert "NOT ANSWERING: n9" in text
    assert [row["stream"] for row in table(data, "streams")["rows"]] == ["ORDERS"]
    held = table(data, "jetstream")
    assert held["title"] == "JetStream Summary for Account APP"
    assert [row["server"] for row in held["rows"]] == ["n2", "n9"]
    routes = table(data, "routes")
    assert {row["server"] for row in routes["rows"]} == {"n2", "n9"}
    assert {row["compression"] for row in routes["rows"] if row["server"] == "n2"} == {"off"}
    assert routes["notes"] == [
        f"Routes between {one} and {other}: compression off, but s2_fast is configured."
        for one, other in sorted(tuple(sorted(("n2", name))) for name in healthy.names if name != "n2")
    ]


@ONE_VERSION
def test_a_report_for_a_user_of_an_account(healthy: NatsProcesses, tmp_path: Path) -> None:
    """The report has the same tables about the account as a system user's report."""
    own = {"report_as": "account", "nats_connection": healthy.app_connection()}
    text, data = report(tmp_path / "account.json", **own)
    assert APP_PASSWORD not in text
    assert [item["name"] for item in data["tables"]] == ["streams", "consumers"]
    assert (data["problems"], data["not_answering"]) == ([], [])
    every = {"report": "streams,consumers", "report_account": "APP", "nats_connection": healthy.sys_connection()}
    _text, seen = report(tmp_path / "system.json", **every)
    for name, key in (("streams", "stream"), ("consumers", "consumer")):
        mine, theirs = ({row[key]: row for row in table(one, name)["rows"]} for one in (data, seen))
        assert mine.keys() == theirs.keys() != set()
        for subject, row in mine.items():
            assert row == theirs[subject]
    done = run_playbook("report", "-e", json.dumps({**own, "report": "jetstream"}))
    assert done.returncode != 0
    assert "jetstream: this report requires a user of the system account" in " ".join(done.stdout.split())


def test_dead_servers_leaderless_streams_and_a_lost_meta_leader_are_shown(
    make_cluster: Callable[..., NatsProcesses], run_module: Any, tmp_path: Path
) -> None:
    cluster = form(make_cluster(["n1", "n2", "n3", "n4", "n5"]), run_module)
    made = cluster.add_stream("LOST", 3)["cluster"]
    survivor, dead = made["leader"], [peer["name"] for peer in made["replicas"]]
    others = [name for name in cluster.names if name not in (survivor, *dead)]
    # Two of the stream's three replicas are lost, and with them three of the five members of the meta group.
    cluster.kill(*dead, others[0])
    deadline = time.monotonic() + 40
    while True:
        info = run_module("nats_cluster_info", cluster.sys_connection(), timeout=2)
        if info["meta"]["leader"] is None and info["streams"][0]["leader"] is None:
            break
        assert time.monotonic() < deadline, info
        time.sleep(0.3)

    hosts = inventory(cluster, tmp_path / "inventory.yml")
    mark = {"server": others[0], "by": "ops", "since": 1.0, "until": 2.0, "reason": "new disk"}
    entered = {"version": 1, "time": "2026-11-24T10:00:00.000Z", "run": "r", "cluster": "C1", "data": mark}
    journal = tmp_path / "journal.jsonl"
    journal.write_text(json.dumps({**entered, "event": "maintenance_entered"}) + "\n")
    tables = ["servers", "jetstream", "streams"]
    text, data = report(tmp_path / "report.json", "-i", hosts, report=tables, nats_cluster_journal=str(journal))
    assert f"{others[0]} is in maintenance since 1970-01-01T00:00:01Z by ops until" in text
    assert "maintenance_overdue" in {problem["code"] for problem in data["problems"]}
    assert data["not_answering"] == sorted([*dead, others[0]])
    assert f"NOT ANSWERING: {', '.join(data['not_answering'])}" in text
    (stream,) = table(data, "streams")["rows"]
    assert stream["replicas"].startswith("NO LEADER: ")
    assert survivor in stream["members"]
    assert "WARNING: 1 without a leader" in text
    assert table(data, "leaders")["totals"][0]["streams"] == 1
    # 2.10 no longer reports the names of the other members, only their number.
    rows = {row["name"]: row["online"] for row in table(data, "meta")["rows"]}
    assert {name for name, online in rows.items() if online} == {survivor, others[1]}
    assert "has no leader (no server leads it). It has 5 members, 2 of them answered, and 3 must be up" in text


@pytest.fixture
def supercluster(version: str, tmp_path: Path) -> Iterator[NatsProcesses]:
    """The clusters C1 and C2 with one server each, and a leafnode of C1; the system user of C1 sees C1 and C2."""
    gateway, remote, leaf = free_ports(3)
    remotes = ", ".join(
        f'{{name: C{number}, url: "nats://127.0.0.1:{port}"}}' for number, port in ((1, gateway), (2, remote))
    )

    def gateways(name: str, port: int) -> str:
        return f'gateway {{ name: {name}, listen: "127.0.0.1:{port}", gateways: [{remotes}] }}\n'

    made = []
    for name, names, extra in (
        ("C1", ["n1"], gateways("C1", gateway) + f'leafnodes {{ listen: "127.0.0.1:{leaf}" }}'),
        ("C2", ["m1"], gateways("C2", remote)),
        (
            "L1",
            ["l1"],
            f'leafnodes {{ remotes: [{{url: "nats-leaf://app:{APP_PASSWORD}@127.0.0.1:{leaf}", account: APP}}] }}',
        ),
    ):
        folder = tmp_path / name
        folder.mkdir()
        jetstream = [] if name == "L1" else names
        made.append(NatsProcesses(version, folder, names, cluster=name, extra=extra, jetstream=jetstream))
        made[-1].start()
    try:
        yield made[0]
    finally:
        for cluster in made:
            cluster.kill()


def test_gateways_and_leaf_nodes_of_a_supercluster(supercluster: NatsProcesses, run_module: Any) -> None:
    connection = {**supercluster.sys_connection(), "timeout": 2}
    endpoints = ["varz", "routez", "gatewayz", "leafz", "statsz"]
    deadline = time.monotonic() + 30
    while True:
        info = run_module("nats_cluster_info", connection, expected_servers=["n1", "m1"])
        servers = run_module("nats_server_info", connection, endpoints=endpoints)
        if "servers" in info and "servers" in servers:
            data = report_data(info, servers, ["servers", "gateways", "leafnodes"])
            if len(table(data, "gateways")["rows"]) == 4 and len(table(data, "leafnodes")["rows"]) == 1:
                break
        assert time.monotonic() < deadline, (info, servers)
        time.sleep(0.3)
    clusters = {row["cluster"]: (row["gateways"], row["inbound_gateways"]) for row in table(data, "clusters")["rows"]}
    assert clusters == {"C1": (1, 1), "C2": (1, 1)}
    kinds = [
        (row["server"], row["name"], row["kind"], row["connection"].split()[0])
        for row in table(data, "gateways")["rows"]
    ]
    assert sorted(kinds) == [
        ("m1", "C2", "Inbound", "C1"),
        ("m1", "C2", "Outbound", "C1"),
        ("n1", "C1", "Inbound", "C2"),
        ("n1", "C1", "Outbound", "C2"),
    ]
    (leaf,) = table(data, "leafnodes")["rows"]
    assert (leaf["server"], leaf["account"]) == ("n1", "APP")
    assert "Super Cluster Report" in report_page(data).text
    gateways = next(check for check in diagnose(info, servers)["checks"] if check["check"] == "gateways")
    assert (gateways["status"], gateways["summary"]) == ("ok", "2 servers, 2 clusters")
