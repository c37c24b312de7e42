# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests nats_snapshot and the playbook natsops.jetstream.snapshot with real clusters."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from unittest import mock

from ansible_collections.natsops.jetstream.plugins.module_utils.backup.catalogue import Catalogue
from ansible_collections.natsops.jetstream.plugins.module_utils.nats import system_api
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.snapshot import (
    Origin,
    SnapshotLine,
    SnapshotWriter,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.times import parse_time
from support.module_runs import Runner
from support.nats_processes import APP_PASSWORD, SYS_PASSWORD, NatsProcesses, run_playbook
from support.snapshots import snapshot_lines


def read(result: dict[str, Any]) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """Return the manifest of a snapshot and its lines by table."""
    path = Path(result["manifest"])
    manifest = json.loads(path.read_text())
    lines = snapshot_lines(path)
    for name, found in lines.items():
        text = json.dumps(found)
        assert SYS_PASSWORD not in text
        assert APP_PASSWORD not in text
        assert len(found) == manifest["tables"][name]["rows"] + manifest["tables"][name]["failures"]
    return manifest, lines


def test_snapshot_equals_the_modules_view(
    healthy: NatsProcesses, version: str, run_module: Runner, tmp_path: Path
) -> None:
    """Each page contains two accounts; there are five accounts and the system account."""
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "n1.log").write_text("[7] 2026/11/21 18:41:00.123456 [INF] Server is ready\n")
    with mock.patch.object(system_api, "_ACCOUNTS_PER_PAGE", 2):
        result = run_module(
            "nats_snapshot",
            healthy.sys_connection(),
            lake=str(tmp_path),
            fleet="test",
            expected_servers=healthy.names,
            fail_on_incomplete=True,
            logs=str(logs),
        )
    assert (result.get("msg"), result["changed"], result["complete"], result["answered"]) == (None, True, True, 3)
    manifest, lines = read(result)
    assert (manifest["fleet"], manifest["versions"], manifest["failures"]) == ("test", {version: 3}, 0)
    assert abs(manifest["clock_offset"]["max"]) < 1
    assert manifest["sequence"] == int(parse_time(manifest["started"]).timestamp() * 1e6)
    cluster = run_module("nats_cluster_info", healthy.sys_connection())
    assert sorted((line["account"], line["data"]["name"], line["server"]) for line in lines["jsz_streams"]) == sorted(
        (stream["account"], stream["name"], member) for stream in cluster["streams"] for member in stream["members"]
    )
    (worker,) = [consumer for stream in cluster["streams"] for consumer in stream["consumers"]]
    assert {(line["data"]["name"], line["raft_group"] or worker["raft_group"]) for line in lines["jsz_consumers"]} == {
        ("worker", worker["raft_group"])
    }
    for table in ("servers", "jsz", "varz", "healthz"):
        assert sorted(line["server"] for line in lines[table]) == ["n1", "n10", "n2"], table
    assert {line["version"] for line in lines["varz"]} == {version}
    # Each server has three pooled routes and one of the system account to each of the two others.
    assert len(lines["routez"]) == 3 * 2 * 4
    assert {line["account"] for line in lines["accstatz"]} >= {"APP", "$SYS"}
    limits = [line["account"] for line in lines["accountz"]]
    assert len(limits) == len(set(limits)) >= 6
    assert {line["data"]["is_system"] for line in lines["accountz"] if line["account"] == "$SYS"} == {True}
    assert [(line["server"], bool(line["server_id"])) for line in lines["server_log"]] == [("n1", True)]
    assert any(line["data"]["name"] == "natsops.jetstream" for line in lines["connz"])
    groups = {(line["account"], line["raft_group"], line["server"]) for line in lines["raftz"]}
    assert {("$SYS", "_meta_", name) for name in healthy.names} <= groups
    assert {group for account, group, _server in groups if account == "APP"} >= {worker["raft_group"]}


def test_missing_values_are_reported(healthy: NatsProcesses, run_module: Runner, tmp_path: Path) -> None:
    connection = {**healthy.sys_connection(), "timeout": 1}
    options = {"lake": str(tmp_path), "expected_servers": ["n1", "n9"]}
    result = run_module("nats_snapshot", connection, **options, endpoints=["varz"])
    assert (result["complete"], result["missing"], result["rows"]["varz"]) == (False, ["n9"], 3)
    _manifest, lines = read(result)
    (silent,) = [line for line in lines["servers"] if "failure" in line]
    assert (silent["server"], silent["failure"]["code"]) == ("n9", "server_missing")
    refused = run_module("nats_snapshot", connection, **options, endpoints=["varz"], fail_on_incomplete=True)
    assert refused["failed"]
    assert (refused["failure"]["code"], "n9" in refused["msg"], Path(refused["manifest"]).is_file()) == (
        "incomplete",
        True,
        True,
    )


def test_the_deadline_bounds_it(healthy: NatsProcesses, run_module: Runner, tmp_path: Path) -> None:
    """The deadline has passed once the servers are found."""
    result = run_module("nats_snapshot", healthy.sys_connection(), lake=str(tmp_path), deadline=0.001)
    assert (result["complete"], result["answered"]) == (False, 3)
    assert {item["code"] for item in result["failures"]} == {"deadline"}
    assert result["rows"]["servers"] == 3
    assert result["rows"]["jsz"] == result["rows"]["connz"] == 0


def test_check_mode_writes_nothing(healthy: NatsProcesses, run_module: Runner, tmp_path: Path) -> None:
    result = run_module("nats_snapshot", healthy.sys_connection(), True, lake=str(tmp_path))
    assert (result["changed"], result["complete"], result["answered"], result["manifest"]) == (True, True, 3, "")
    assert list(tmp_path.iterdir()) == []


def test_another_account_is_refused(healthy: NatsProcesses, run_module: Runner, tmp_path: Path) -> None:
    result = run_module("nats_snapshot", healthy.app_connection(), lake=str(tmp_path))
    assert result["failure"]["code"] in ("wrong_account", "permission")
    assert list(tmp_path.iterdir()) == []


def test_the_collector_takes_one_without_ansible(healthy: NatsProcesses, tmp_path: Path) -> None:
    """Runs the timer's command: a single file, without an installed collection."""
    collection = Path(system_api.__file__).parents[3]
    roles = collection / "roles"
    prefix = "ansible_collections/natsops/jetstream/plugins/module_utils"
    sources = [
        f"{collection}/plugins/module_utils={prefix}",
        f"{roles}/nats_insights/files/collector/collect.py=__main__.py",
    ]
    packed = [tmp_path / "collect.pyz", tmp_path / "again.pyz"]
    for target in packed:
        subprocess.run(
            [sys.executable, str(roles / "nats_program" / "files" / "pack.py"), str(target), *sources],
            check=True,
        )
    assert packed[0].read_bytes() == packed[1].read_bytes()
    settings = {"lake": str(tmp_path / "lake"), "fleet": "test", "endpoints": [], "deadline": 60.0, "backups": ""}

    def collected(expected: list[str], **connection: Any) -> subprocess.CompletedProcess[str]:
        told = {**settings, "expected_servers": expected, "connection": {**healthy.sys_connection(), **connection}}
        (tmp_path / "snapshot.json").write_text(json.dumps(told))
        command = [sys.executable, "-I", str(packed[0]), str(tmp_path / "snapshot.json")]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = collected(healthy.names)
    assert (done.returncode, done.stderr) == (0, "")
    assert "3 servers" in done.stdout
    settings["backups"] = str(tmp_path)
    assert collected(healthy.names).returncode == 0
    assert len(list((tmp_path / "lake" / "bronze" / "backups").rglob("*.jsonl.gz"))) == 1
    done = collected(["n9"], timeout=1)
    assert (done.returncode, done.stderr) == (4, "incomplete: n9\n")
    done = collected([], password="wrong")
    assert done.returncode == 1
    assert "no snapshot: " in done.stderr
    assert len(list((tmp_path / "lake" / "bronze" / "manifest").rglob("*.json"))) == 3


def test_rows_have_the_arrival_time_of_the_answer(healthy: NatsProcesses, run_module: Runner, tmp_path: Path) -> None:
    """A row does not have the time at which the reply was written: servers are queried at the same time, but their
    replies are written one after another."""
    written: dict[str, datetime] = {}
    add = SnapshotWriter.add

    def noted(self: SnapshotWriter, origin: Origin, row: SnapshotLine) -> None:
        written.setdefault(row.table, datetime.now(timezone.utc))
        add(self, origin, row)

    with mock.patch.object(SnapshotWriter, "add", noted):
        result = run_module("nats_snapshot", healthy.sys_connection(), lake=str(tmp_path))
    manifest, lines = read(result)
    for table in ("varz", "jsz", "healthz"):
        received = [parse_time(line["received"]) for line in lines[table]]
        assert len(received) == len(healthy.names)
        assert parse_time(manifest["started"]) <= min(received) <= max(received) <= written[table]


def test_the_catalogue_of_backups_is_taken_along(healthy: NatsProcesses, run_module: Runner, tmp_path: Path) -> None:
    """The snapshot has a row for each stream in the catalogue; an unreadable catalogue is a failure, and a missing one
    means that there is no backup."""
    backups, lake = tmp_path / "backup", str(tmp_path / "lake")
    backups.mkdir()

    def taken(**options: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        result = run_module("nats_snapshot", healthy.sys_connection(), lake=lake, backups=str(backups), **options)
        return result, read(result)[1]["backups"]

    result, lines = taken()
    streams = {(line["account"], line["stream"]) for line in lines}
    assert ("APP", "ORDERS") in streams
    assert len(streams) == len(lines) == result["rows"]["backups"]
    assert {(line["data"].get("saved"), line["data"]["problem"]) for line in lines} == {
        (None, f"there is no {backups}/catalogue.json")
    }
    catalogue = Catalogue().saved("APP/ORDERS", "2026-11-23T02:00:00Z").saved("APP/GONE", "2026-11-23T02:00:00Z")
    (backups / "catalogue.json").write_text(catalogue.text())
    result, lines = taken()
    assert result["complete"]
    assert {(line["account"], line["stream"]) for line in lines} == streams
    assert [line["stream"] for line in lines if line["data"].get("saved")] == ["ORDERS"]
    assert {line["server"].partition(" on ")[0] for line in lines} == {"backups"}
    # Without the servers' streams, the snapshot contains those of the catalogue.
    assert [line["stream"] for line in taken(endpoints=["varz"])[1]] == ["GONE", "ORDERS"]
    (backups / "catalogue.json").write_text("{")
    result, lines = taken()
    assert (result["complete"], result["rows"]["backups"]) == (False, 0)
    assert [line["failure"]["code"] for line in lines] == ["damaged"]
    assert "catalogue.json cannot be read: it is not JSON" in result["failures"][0]["description"]


def test_snapshot_contains_the_drift_of_each_document(
    healthy: NatsProcesses, run_module: Runner, tmp_path: Path
) -> None:
    file = tmp_path / "drift.json"

    def taken() -> tuple[dict[str, Any], list[dict[str, Any]]]:
        lake = str(tmp_path / "lake")
        result = run_module("nats_snapshot", healthy.sys_connection(), lake=lake, drift=str(file), endpoints=["varz"])
        return result, read(result)[1]["drift"]

    document = {"document": "orders", "cluster": "C1", "account": "APP", "problem": "", "assets": 3, "drifting": 1}
    content = {"version": 1, "checked": "2026-11-29T02:00:00Z", "documents": [{**document, "differing": ["stream S"]}]}
    file.write_text(json.dumps(content))
    result, (line,) = taken()
    assert result["complete"]
    assert (line["account"], line["document"]) == ("APP", "orders")
    assert line["data"] == {
        "checked": "2026-11-29T02:00:00.000000Z",
        "assets": 3,
        "drifting": 1,
        "reason": "different from the document: 1 of 3 assets: stream S",
    }
    file.unlink()
    result, (line,) = taken()
    assert not result["complete"] and line["failure"]["code"] == "damaged"
    assert "drift.json cannot be read" in line["failure"]["description"]


def test_the_playbook_takes_a_snapshot(healthy: NatsProcesses, tmp_path: Path) -> None:
    backups = tmp_path / "backup"
    backups.mkdir()
    (backups / "catalogue.json").write_text(Catalogue().saved("APP/ORDERS", "2026-11-23T02:00:00Z").text())
    variables = {
        "nats_connection": healthy.sys_connection(),
        "nats_expected_servers": healthy.names,
        "nats_insights_lake": str(tmp_path / "lake"),
        "nats_insights_fleet": "test",
        "nats_cluster_backup_directory": str(backups),
    }
    extra = tmp_path / "variables.json"
    extra.write_text(json.dumps(variables))
    done = run_playbook("snapshot", "-e", f"@{extra}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 servers answered all requests" in done.stdout
    (manifest,) = (tmp_path / "lake" / "bronze" / "manifest").rglob("*.json")
    assert json.loads(manifest.read_text())["fleet"] == "test"
    _manifest, lines = read({"manifest": str(manifest)})
    assert [line["stream"] for line in lines["backups"] if line["data"].get("saved")] == ["ORDERS"]


def test_the_playbook_brings_the_logs(healthy: NatsProcesses, tmp_path: Path) -> None:
    hosts = {
        name: {"ansible_connection": "local", "nats_insights_log_file": str(healthy.directory / f"{name}.log")}
        for name in healthy.names[:2]
    }
    inventory = tmp_path / "inventory.json"
    inventory.write_text(json.dumps({"nats": {"hosts": hosts}}))
    variables = {
        "nats_connection": healthy.sys_connection(),
        "nats_insights_lake": str(tmp_path / "lake"),
        "nats_insights_log_minutes": 5,
        "nats_insights_endpoints": ["varz"],
        "nats_insights_become": False,
        "ansible_python_interpreter": sys.executable,
    }
    done = run_playbook("snapshot", "-i", str(inventory), "-e", json.dumps(variables), TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (tmp_path / "lake" / "bronze" / "manifest").rglob("*.json")
    _manifest, lines = read({"manifest": str(path)})
    ready = [line["server"] for line in lines["server_log"] if "Server is ready" in line["data"]["text"]]
    assert set(ready) == set(healthy.names[:2])
    # The recorded time does not depend on this host's time zone.
    said = [parse_time(line["data"]["time"]) for line in lines["server_log"] if "[INF]" in line["data"]["text"]]
    written = (healthy.directory / "n1.log").stat().st_ctime
    assert 0 <= written - min(at.timestamp() for at in said) < 1800
    assert not list(tmp_path.glob("*.logs"))


def test_playbook_reads_facts_of_hosts(healthy: NatsProcesses, tmp_path: Path) -> None:
    """The playbook reads facts from each reachable host; the snapshot also contains the server of an unreachable
    host."""
    hosts: dict[str, dict[str, Any]] = {
        name: {"ansible_connection": "local", "nats_server_config_file": str(healthy.config_file(name))}
        for name in healthy.names[:2]
    }
    hosts[healthy.names[2]] = {"ansible_host": "127.0.0.1", "ansible_port": 1}
    inventory = tmp_path / "inventory.json"
    inventory.write_text(json.dumps({"nats": {"hosts": hosts}}))
    variables = {
        "nats_connection": healthy.sys_connection(),
        "nats_insights_endpoints": ["varz"],
        "nats_insights_become": False,
        "ansible_python_interpreter": sys.executable,
    }

    def taken(**more: Any) -> dict[str, list[dict[str, Any]]]:
        lake = tmp_path / f"lake-{len(more)}"
        given = {**variables, "nats_insights_lake": str(lake), **more}
        done = run_playbook("snapshot", "-i", str(inventory), "-e", json.dumps(given))
        assert done.returncode == 0, done.stdout + done.stderr
        reason = f"HOST_101 to HOST_104 are unknown for the server of {healthy.names[2]}: "
        assert (reason in " ".join(done.stdout.split())) == ("nats_insights_read_hosts" not in more)
        (path,) = (lake / "bronze" / "manifest").rglob("*.json")
        return read({"manifest": str(path)})[1]

    lines = taken()
    assert {line["server"] for line in lines["varz"]} == set(healthy.names)
    told = {line["server"]: line["data"] for line in lines["hosts"]}
    assert set(told) == set(healthy.names[:2])
    for line in lines["varz"]:
        if line["server"] in told:
            assert told[line["server"]].get("config_digest") == line["data"].get("config_digest")
            assert line["server_id"] in {host["server_id"] for host in lines["hosts"]}
    assert all(host["open_files"] > 0 and host["disk_free"] > 0 for host in told.values())
    # This server's users have passwords that are not hashed.
    assert all(host["plaintext_passwords"] > 0 for host in told.values())
    assert "hosts" not in taken(nats_insights_read_hosts=False)


def test_a_lake_not_set_for_the_host_of_the_jobs_is_refused_before_the_snapshot(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.json"
    servers_group = {"hosts": {"n1": {}}, "vars": {"nats_insights_lake": str(tmp_path / "lake")}}
    inventory.write_text(json.dumps({"nats": servers_group}))
    done = run_playbook("insights", "-i", str(inventory))
    assert done.returncode != 0
    assert "not set for localhost, where the jobs run" in done.stdout
    assert "Take a snapshot" not in done.stdout


def test_variables_of_the_jobs_that_are_set_only_for_servers_are_refused_before_the_snapshot(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.json"
    thresholds: dict[str, Any] = {"nats_insights_thresholds": {"skip": []}}
    endpoints = {"nats_insights_endpoints": ["varz"]}
    servers_group = {"hosts": {"n1": thresholds, "n2": {}}, "vars": {"nats_insights_title": "T", **endpoints}}
    inventory.write_text(json.dumps({"nats": servers_group}))
    done = run_playbook("insights", "-i", str(inventory))
    assert done.returncode != 0
    said = " ".join(done.stdout.split())
    assert "sets nats_insights_thresholds, nats_insights_title only for servers, so the jobs on localhost" in said
    assert "Take a snapshot" not in done.stdout
    # With the group all, the jobs use them: without a reachable server, only the snapshot fails.
    everywhere = {"vars": {"nats_insights_title": "T", **thresholds}}
    inventory.write_text(json.dumps({"nats": servers_group, "all": everywhere}))
    done = run_playbook("insights", "-i", str(inventory))
    assert done.returncode != 0 and "only for servers" not in done.stdout and "Take a snapshot" in done.stdout
