# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests findings about backups, from a catalogue that a real run wrote, and compares them with the results of
nats_check; also tests how many seconds mirrors and sources are behind."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.catalogue import Catalogue
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.drill import BackupDrillOptions, drill
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.protection import protections
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.retention import Retention
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.run_backup import BackupRequest, save_streams
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.store import BackupStore, DirectoryStore
from ansible_collections.natsops.jetstream.plugins.module_utils.health.check_result import prepare
from ansible_collections.natsops.jetstream.plugins.module_utils.health.checks import check_backup
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.accounts import Connections, account_users
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import Client, ConnectionOptions
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.jetstream_api import TransferPace
from ansible_collections.natsops.jetstream.plugins.module_utils.progress import Progress
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.capture import CaptureOptions, collect
from jetstream_insights import silver
from jetstream_insights.cli import DONE, main
from jetstream_insights.findings import REGISTRY
from jetstream_insights.findings.evaluate import judge, single_results
from jetstream_insights.findings.period_views import seconds_behind, stream_periods
from jetstream_insights.findings.registry import CheckSettings, Registry
from jetstream_insights.gold_job import make_gold
from jetstream_insights.lake import Lake
from jetstream_insights.silver_job import empty
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from support.lakes import few_gold_tables, few_silver_tables
from support.nats_processes import SYS_PASSWORD, SYS_USER, NatsProcesses, binary

VERSION = "2.15.1"
BACKUP_CHECKS = {code for code, check in REGISTRY.checks.items() if check.view == "backups"}


# --- from a run to the report ---------------------------------------------------------------------------------------------


def back_up(cluster: NatsProcesses, store: BackupStore, *exclude: str) -> None:
    own = ConnectionOptions(tuple(cluster.urls), SYS_USER, SYS_PASSWORD, timeout=5)
    users = account_users(own, [{**user, "nkey_seed": None} for user in cluster.account_users()])
    wanted = BackupRequest(store, tuple(users), ["*"], exclude, "contents", TransferPace(30.0), Retention())
    with Connections(own, users) as connections:
        assert save_streams(connections, wanted, Progress(None, None), check_mode=False).failure is None


def snapshot(cluster: NatsProcesses, lake: Path, directory: Path) -> dict[str, Any]:
    wanted = CaptureOptions(lake, "test", ("jsz", "varz", "healthz"), cluster.names, backups=DirectoryStore(directory))
    with Client(ConnectionOptions(tuple(cluster.urls), SYS_USER, SYS_PASSWORD, timeout=5)) as client:
        return collect(client, wanted)[1]


def test_real_backup_catalogue_yields_findings_and_a_report(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One stream is saved and verified by a drill, one only saved, one excluded, and one created later."""
    few = few_gold_tables("report_backups", "report_fleet")
    few_silver_tables(monkeypatch, "backups", "consumers", "meta_peers", "server_names", "servers", "streams")
    backups, lake, output = tmp_path / "backup", tmp_path / "lake", tmp_path / "report"
    cluster = NatsProcesses(VERSION, tmp_path, ["n1"], cluster="")
    cluster.start()
    try:
        for stream in ("PROVEN", "SAVED", "SCRATCH"):
            cluster.add_stream(stream, 1)
            cluster.app_request(f"{stream}.a", {"some": "thing"})
        back_up(cluster, DirectoryStore(backups), "APP/SCRATCH")
        wanted = BackupDrillOptions(DirectoryStore(backups), "APP/PROVEN", binary(VERSION), tmp_path, 60.0, 60.0)
        proof = drill(wanted, check_mode=False)["proof"]
        cluster.add_stream("LATER", 1)
        first = snapshot(cluster, lake, tmp_path / "nowhere")
        (backups / "catalogue.json").chmod(0o644)
        damaged = tmp_path / "damaged"
        damaged.mkdir()
        (damaged / "catalogue.json").write_text("{")
        second = snapshot(cluster, lake, damaged)
        third = snapshot(cluster, lake, backups)
    finally:
        cluster.kill()
    for manifest, rows, complete in ((first, 4, True), (second, 0, False), (third, 4, True)):
        assert (manifest["tables"]["backups"]["rows"], manifest["complete"]) == (rows, complete), manifest
    (failure,) = second["quoted_failures"]
    assert failure["endpoint"] == "backups"
    assert "damaged/catalogue.json cannot be read: it is not JSON" in failure["description"]

    thresholds = tmp_path / "thresholds.json"
    thresholds.write_text(json.dumps({"skip": sorted(set(REGISTRY.checks) - BACKUP_CHECKS)}))
    day = third["snapshot"][:8]
    span = ["--from", f"{day[:4]}-{day[4:6]}-{day[6:]}", "--lake", str(lake), "--master", "local[1]"]
    assert main(["silver", *span]) == DONE
    hour = _hour(third)
    assert make_gold(Lake(spark, str(lake)), [hour.date()], lambda _text: None, wanted=few).made == 1
    assert main(["findings", *span, "--thresholds", str(thresholds)]) == DONE
    assert main(["report", *span, "--output", str(output)]) == DONE
    capsys.readouterr()

    content = json.loads((output / "report.json").read_text())["tables"]

    def table(name: str) -> list[dict[str, Any]]:
        names = [column[0] for column in content[name]["columns"]]
        return [dict(zip(names, row)) for row in content[name]["rows"]]

    shown = {row["stream"]: row for row in table("backups")}
    assert {name: row["excluded"] for name, row in shown.items()} == {
        "LATER": False,
        "SAVED": False,
        "PROVEN": False,
        "SCRATCH": True,
    }
    assert shown["PROVEN"]["last_proven"] == proof["time"][:19] + "Z"
    assert shown["PROVEN"]["restore_seconds"] == pytest.approx(proof["seconds"])
    assert shown["SAVED"]["last_backup"] and not shown["SAVED"]["last_proven"]
    assert not shown["LATER"]["last_backup"]

    # These rows are from the hour's last snapshot.
    found = {(row["check"], row["stream"]): row for row in table("findings")}
    assert set(found) == {("BACKUP_101", "LATER"), ("BACKUP_104", "SAVED")}
    assert found["BACKUP_101", "LATER"]["remedy"] == (
        "playbook `backup` with `nats_cluster_backup_streams: [APP/LATER]`; if it needs none, "
        "`nats_cluster_backup_exclude`"
    )
    assert found["BACKUP_104", "SAVED"]["text"] == "no drill has ever restored it"
    assert "`nats_cluster_backup_drill_stream: APP/SAVED`" in found["BACKUP_104", "SAVED"]["remedy"]

    # These rows are from the two other snapshots.
    silver = Lake(spark, str(lake)).read("silver", "backups", [hour])
    assert silver is not None
    assert {row["extra"] for row in silver.collect()} == {None}
    reported = silver.where(F.col("snapshot") == first["snapshot"]).collect()
    assert {row["problem"] for row in reported} == {f"there is no {tmp_path}/nowhere/catalogue.json"}
    assert {row["saved"] for row in reported} == {None}


def _hour(manifest: Mapping[str, Any]) -> datetime:
    return datetime.strptime(manifest["snapshot"][:11], "%Y%m%dT%H").replace(tzinfo=timezone.utc)


# --- as nats_check judges -------------------------------------------------------------------------------------------------

NOW = datetime(2026, 11, 21, 18, tzinfo=timezone.utc)


def ago(**since: float) -> str:
    return (NOW - timedelta(**since)).isoformat().replace("+00:00", "Z")


def made(ok: bool, **since: float) -> dict[str, Any]:
    return {
        "time": ago(**since),
        "ok": ok,
        "reason": "" if ok else "3 messages are missing",
        "seconds": 1.0 if ok else None,
    }


#: The history of a stream's backups, and its worst finding.
STORIES: dict[str, tuple[Callable[[Catalogue, str], Catalogue], str]] = {
    "well": (lambda one, name: one.saved(name, ago(hours=25)).proven(name, made(True, days=89)), "OK"),
    "late": (lambda one, name: one.saved(name, ago(hours=27)).proven(name, made(True, days=1)), "WARNING"),
    "old": (lambda one, name: one.saved(name, ago(hours=51)).proven(name, made(True, days=1)), "CRITICAL"),
    "failed": (
        lambda one, name: one.saved(name, ago(hours=2)).failed(name, "no leader").proven(name, made(True, days=1)),
        "CRITICAL",
    ),
    "never": (lambda one, name: one.failed(name, "no leader"), "CRITICAL"),
    "unproven": (lambda one, name: one.saved(name, ago(hours=2)), "WARNING"),
    "long_ago": (lambda one, name: one.saved(name, ago(hours=2)).proven(name, made(True, days=91)), "WARNING"),
    "broken": (
        lambda one, name: (
            one.saved(name, ago(hours=2)).proven(name, made(True, days=2)).proven(name, made(False, days=1))
        ),
        "CRITICAL",
    ),
}


def test_findings_equal_nats_check_for_the_same_catalogue(spark: SparkSession, tmp_path: Path) -> None:
    catalogue = Catalogue()
    for name, (story, _status) in STORIES.items():
        catalogue = story(catalogue, f"APP/{name}")
    key = {"fleet": "f", "snapshot": f"{NOW:%Y%m%dT%H%M%S.%fZ}-000000", "taken": NOW.isoformat()}
    rows = {"backups": [{**key, **one.as_dict()} for one in protections(catalogue)], "snapshots": [key]}
    lake = Lake(spark, str(tmp_path))
    read = ("backups", "consumers", "failures", "servers", "snapshots", "streams")
    tables = {name: empty(lake, name) for name in read}
    for name, found in rows.items():
        path = tmp_path / f"{name}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in found))
        tables[name] = spark.read.schema(tables[name].schema).json(str(path))
    only = Registry({code: REGISTRY.checks[code] for code in BACKUP_CHECKS})
    parts = judge(tables, [key["snapshot"]], only, CheckSettings())
    judged = [row for part in parts for row in single_results(part.rows).collect()]

    given = {"directory": "/d", "age_warn": "26h", "age_critical": "50h", "proof_warn": "90d", "proof_critical": None}
    for name, (_story, status) in STORIES.items():
        options = prepare("backup", {**given, "streams": [f"APP/{name}"]})
        assert check_backup(options, catalogue, NOW).status == status, name
        severities = {row["severity"] for row in judged if row["stream"] == name and row["result"] == "fail"}
        worst = "CRITICAL" if "critical" in severities else "WARNING" if severities else "OK"
        assert worst == status, (name, severities)
    assert {row["result"] for row in judged} == {"pass", "fail"}


# --- how far behind in seconds --------------------------------------------------------------------------------------------


def origin(name: str = "O", lag: int = 0, active: float = 1.0, **more: Any) -> dict[str, Any]:
    return {"name": name, "lag": lag, "active": int(active * 1e9), **more}


EXTERNAL: dict[str, Any] = {"external": {"api": "$JS.far.API", "deliver": ""}}
#: The origins in two snapshots an hour apart, the last sequences of the stream, and the seconds behind at the second
#: snapshot. The origin O stores 3,600 messages an hour; the stream's last message is 1,000 seconds old.
CASES: dict[str, tuple[str, list[list[dict[str, Any]]], tuple[int, int], float | None]] = {
    "in_step": ("mirror", [[origin()], [origin()]], (0, 3600), 1.0),
    "behind": ("mirror", [[origin()], [origin(lag=600)]], (0, 3000), 600.0),
    # No message that the stream lacks is older than its last message.
    "far_behind": ("mirror", [[origin()], [origin(lag=3000)]], (0, 600), 1000.0),
    "behind_source": ("source", [[origin()], [origin(lag=3000)]], (0, 600), 3000.0),
    # Its origin is not in the snapshots, and stored twice as many messages.
    "elsewhere": ("mirror", [[origin(**EXTERNAL)], [origin(lag=1200, **EXTERNAL)]], (0, 6000), 600.0),
    "filtered": ("source", [[origin(filter_subject="a")], [origin(lag=100, filter_subject="a")]], (0, 260), 1000.0),
    "the_worst_counts": ("source", [[origin(), origin(**EXTERNAL)], [origin(lag=5), origin(lag=50)]], (0, 3600), 50.0),
    "quiet_origin": ("mirror", [[origin(lag=3, **EXTERNAL)], [origin(lag=3, **EXTERNAL)]], (7, 7), 1000.0),
    "dead_origin": ("mirror", [[origin()], [origin(active=5000)]], (0, 0), 5000.0),
    "never_heard": ("mirror", [[origin()], [{**origin(), "active": -1}]], (0, 3600), None),
    "not_reported": ("mirror", [[origin()], []], (0, 3600), None),
}


def test_lag_is_reported_in_seconds(spark: SparkSession, tmp_path: Path) -> None:
    begin = NOW - timedelta(hours=1)
    led: list[dict[str, Any]] = []
    stored = []
    for step, taken in enumerate((begin, NOW)):
        key = {"fleet": "f", "snapshot": str(step), "taken": taken.isoformat(), "domain": "", "account": "A"}
        stored.append({**key, "stream": "O", "last_seq": 3600 * step})
        for name, (kind, origins, sequences, _seconds) in CASES.items():
            wanted = max(len(step_origins) for step_origins in origins)
            row = {**key, "stream": name, "last_seq": sequences[step], "origins": origins[step], "replicates": wanted}
            mirrored = {"mirrored": "O"} if kind == "mirror" else {}
            led.append({**row, **mirrored, "last_ts": (taken - timedelta(seconds=1000)).isoformat()})

    def frame(name: str, schema: str, rows: list[dict[str, Any]]) -> DataFrame:
        path = tmp_path / f"{name}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return spark.read.schema(schema).json(str(path))

    lake = Lake(spark, str(tmp_path))
    origins_type = empty(lake, "stream_replicas").schema["sources"].dataType.simpleString()
    same = (
        "fleet string, snapshot string, taken timestamp, domain string, account string, stream string, last_seq bigint"
    )
    reported = frame("led", f"{same}, origins {origins_type}, replicates int, mirrored string, last_ts timestamp", led)
    streams = frame("stored", silver.COLUMNS["streams"], stored)
    snapshots = frame("snapshots", silver.COLUMNS["snapshots"], stored)
    periods = stream_periods({"streams": streams, "snapshots": snapshots})
    made = seconds_behind(reported, periods).where("snapshot = '1'").collect()
    found = {row["stream"]: row["behind"] for row in made}
    wrong = {
        name: (found.get(name), seconds)
        for name, (_kind, _origins, _sequences, seconds) in CASES.items()
        if found.get(name) != (None if seconds is None else pytest.approx(seconds))
    }
    assert not wrong
