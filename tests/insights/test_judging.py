# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the path from a snapshot of a real cluster to the findings and the files of a report, on the command line."""

from __future__ import annotations

import json
import re
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import pytest
from jetstream_insights.cli import DONE, FOUND, REFUSED, journal_windows, main, maintenance_window
from jetstream_insights.files import LakeError
from jetstream_insights.findings import REGISTRY
from jetstream_insights.findings.registry import CheckSettings
from jetstream_insights.findings_job import read_hosts, read_thresholds
from jetstream_insights.gold.common import Maintenance
from jetstream_insights.gold_job import touches
from jetstream_insights.lake import Lake
from pyspark.sql import SparkSession
from support.lakes import few_silver_tables
from support.snapshots import HOUR, recorded, write_snapshot

EXAMPLE = Path(__file__).resolve().parents[2] / "docs/examples/insights_checks.yml"
#: Only a few checks, which Spark plans in seconds; test_findings.py runs all of them.
CHECKS = {"HOST_102", "STREAM_201", "META_002", "SERVER_101", "SERVER_104", "RAFT_201"}


def test_findings_and_report_of_a_recorded_cluster(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    few_silver_tables(monkeypatch, "servers", "streams", "meta_peers", "raft_groups", "hosts")
    write_snapshot(tmp_path / "lake", recorded("2.15.1"))
    lake = Lake(spark, str(tmp_path / "lake"))
    span = ["--lake", str(tmp_path / "lake"), "--from", "2026-11-21", "--to", "2026-11-22", "--master", "local[1]"]
    hosts = tmp_path / "hosts.json"
    hosts.write_text(json.dumps([{"server": "n1", "open_files": 100}]))
    thresholds = tmp_path / "thresholds.json"
    thresholds.write_text(json.dumps({"skip": sorted(set(REGISTRY.checks) - CHECKS)}))

    def did(job: str, *more: str) -> dict[str, object]:
        assert main([job, *span, *more]) == DONE
        reported: dict[str, object] = json.loads(capsys.readouterr().out.splitlines()[-1])
        return reported

    assert did("silver")["made"] == 1
    given = ("--thresholds", str(thresholds), "--hosts", str(hosts))
    assert did("findings", *given)["made"] == 1
    first = lake.pointer("findings", HOUR.date())
    again = did("findings", *given)
    assert (again["made"], again["fresh"], lake.pointer("findings", HOUR.date())) == (0, 1, first)

    found = lake.read_days("findings", "findings", [HOUR.date()])
    counts = lake.read_days("findings", "findings_summary", [HOUR.date()])
    assert found is not None and counts is not None
    rows = [row.asDict() for row in found.collect()]
    assert "pass" not in {row["result"] for row in rows}
    # The limit of open files is known for n1; the job gold has not run.
    assert {(row["server"], row["result"]) for row in rows if row["check"] == "HOST_102"} == {
        ("n1", "fail"), ("n2", "unknown"), ("n3", "unknown"),
    }  # fmt: skip
    assert {row["text"] for row in rows if row["check"] == "STREAM_201"} == {"there is no table leadership"}
    assert {row["text"] for row in rows if row["check"] == "RAFT_201"} == {"the snapshot did not request raftz"}
    totals = {row["check"]: row.asDict() for row in counts.collect()}
    assert set(totals) == CHECKS
    assert (totals["META_002"]["failed"], totals["META_002"]["passed"]) == (0, 1)

    # The rows of the hosts in the snapshots themselves.
    assert did("findings", *given[:2])["made"] == 1
    known = lake.read_days("findings", "findings", [HOUR.date()])
    assert known is not None
    assert {row["text"] for row in known.where("check = 'HOST_102'").collect()} == {
        "no host was read (docs/insights.md)"
    }
    tell = {**recorded("2.15.1"), "more": {"hosts": {"open_files": 100}}}
    write_snapshot(tmp_path / "lake", tell, HOUR + timedelta(minutes=1))
    assert did("silver")["made"] == did("findings", *given[:2])["made"] == 1
    known = lake.read_days("findings", "findings", [HOUR.date()])
    assert known is not None
    reported = known.where("check = 'HOST_102' AND result = 'fail'").select("server").collect()
    assert sorted(row["server"] for row in reported) == ["n1", "n2", "n3"]

    # Different thresholds lead to different findings.
    thresholds.write_text(json.dumps({"skip": sorted(set(REGISTRY.checks) - CHECKS | {"SERVER_104"})}))
    assert did("findings", *given)["made"] == 1

    found = lake.read_days("findings", "findings", [HOUR.date()])
    assert found is not None
    reasons = [row["text"] for row in found.where("result = 'unknown'").collect()]
    unknown, reasons = len(reasons), sorted(set(reasons))

    output = tmp_path / "report"
    verdict = did("report", "--output", str(output), "--title", "Test <fleet>")
    written = {path.name for path in output.iterdir()}
    assert {"report.html", "report.json", "report.md", "causes.csv", "findings.csv", "checks.csv"} <= written
    content = json.loads((output / "report.json").read_text())
    assert content["notes"] == ["There is no gold of 2026-11-21: run the job gold first."]
    assert content["tables"]["findings"]["total"] == len(content["tables"]["findings"]["rows"])
    # HOST_102 has a result for n1 only; for the other servers it is unknown, with one row for each reason.
    assert (verdict["findings"], verdict["unknown"]) == (content["tables"]["findings"]["total"], unknown)
    assert len(content["tables"]["unknown"]["rows"]) == len(reasons) < unknown
    # HOST_102 is a warning, so a script that requests warnings or findings of lower severity receives it.
    assert verdict["worst"] == "warning"
    for severity, status in (("critical", DONE), ("warning", FOUND), ("info", FOUND)):
        assert main(["report", *span, "--output", str(output), "--fail-on", severity]) == status
    assert "<title>NATS JetStream fleet</title>" in (output / "report.html").read_text()

    # Run the example of docs/insights.md for all accounts, and a check that divides by zero, whose result is unknown.
    checks, (line, *_rest) = tmp_path / "checks.yml", re.findall(r"\n    expression: .*", EXAMPLE.read_text())
    divides = (
        EXAMPLE.read_text().split("\n  - ")[1].replace("PAY_001", "PAY_003").replace(line, f"{line} / (bytes - bytes)")
    )
    text = EXAMPLE.read_text().replace("checks:\n", f"checks:\n  - {divides}", 1).replace("account = 'PAY'", "true")
    checks.write_text(text + "  - {check: PAY_001, subject: {stream: 'E*'}, reason: tests, until: 2999-01-01}\n")
    assert did("findings", *given, "--checks", str(checks))["made"] == 1
    assert did("findings", *given, "--checks", str(checks))["fresh"] == 1
    found = lake.read_days("findings", "findings", [HOUR.date()])
    assert found is not None
    own = found.where("check LIKE 'PAY%'").select("check", "result", "text", "stream", "severity").collect()
    assert {(row["check"], row["result"]) for row in own} == {
        ("PAY_001", "fail"), ("PAY_002", "unknown"), ("PAY_003", "unknown"),
    }  # fmt: skip
    did("report", "--output", str(output), "--checks", str(checks))
    tables = json.loads((output / "report.json").read_text())["tables"]
    muted = [row for row in tables["muted"]["rows"] if "PAY_001" in row]
    failing = [row for row in tables["findings"]["rows"] if "PAY_001" in row]
    assert len(muted) == sum(row["check"] == "PAY_001" for row in own) and not failing


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"server_003_cpus": 80}', "server_003_cpus"),
        ("[1]", "an object"),
        ("{", "JSON|Expecting"),
        ('{"server_003_cpu": 80, "server_003_cpu": 99}', "given twice: server_003_cpu"),
        (None, "No such file"),
    ],
)
def test_unknown_thresholds_are_refused_before_reading(
    tmp_path: Path, content: str | None, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "thresholds.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(LakeError, match=reason):
        read_thresholds(path)
    assert main(["findings", "--lake", "/nowhere", "--thresholds", str(path)]) == REFUSED
    assert str(path) in capsys.readouterr().err
    assert read_thresholds(None) == CheckSettings()


@pytest.mark.parametrize(
    "content",
    [
        '{"server": "n1"}',
        '[{"server": "n1", "open_files": -1}]',
        '[{"open_files": 1}]',
        '[{"server": "n1", "files": 1}]',
        '[{"server": "n1", "open_files": "1"}]',
    ],
)
def test_invalid_hosts_files_are_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "hosts.json"
    path.write_text(content)
    with pytest.raises(LakeError, match="not a list of objects"):
        read_hosts(path)
    path.write_text('[{"server": "n1", "open_files": 1}]')
    assert read_hosts(path) == [("n1", None, 1, None, None)]


def test_journal_marks_planned_events(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = tmp_path / "C1.jsonl"
    assert list(journal_windows(None)) == list(journal_windows(journal)) == []
    assert f"There is no journal {journal} yet" in capsys.readouterr().err
    roll = {"version": 1, "run": "r1", "cluster": "C1", "hosts": ["n1"]}
    times = ("2026-11-21T10:00:00.000Z", "2026-11-21T10:05:00.000Z")
    events = [{**roll, "time": time, "event": event} for time, event in zip(times, ("batch_started", "batch_done"))]
    journal.write_text("".join(json.dumps(event) + "\n" for event in events))
    (window,) = map(maintenance_window, journal_windows(journal))
    begin = datetime(2026, 11, 21, 10, tzinfo=timezone.utc)
    assert window == Maintenance(begin, begin + timedelta(minutes=5), ("n1",))
    touched = [day for day in range(18, 26) if touches(window, date(2026, 11, day))]
    assert touched == [20, 21, 22]
    with pytest.raises(LakeError, match="--journal"):
        journal_windows(tmp_path)


def test_only_the_report_requires_an_output() -> None:
    for arguments in (["report"], ["findings", "--output", "x"], ["findings", "--fail-on", "info"]):
        with pytest.raises(SystemExit, match="2"):
            main([*arguments, "--lake", "/nowhere"])
