# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the file of --checks: each error names its line, no job starts with an invalid check, and muted findings
return."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from jetstream_insights.cli import DONE, REFUSED, main
from jetstream_insights.files import LakeError
from jetstream_insights.findings import REGISTRY
from jetstream_insights.findings.checks_file import ChecksFileError, Mute, read_checks
from jetstream_insights.findings.document import views_page
from jetstream_insights.findings.own_checks import columns_of_views, verify
from jetstream_insights.findings_job import read_thresholds
from jetstream_insights.report.causes import with_causes
from jetstream_insights.report.muted import with_muted
from jetstream_insights.report.shape import BY_NAME, dicts, filled, verdict
from pyspark.sql import SparkSession

CHECKOUT = Path(__file__).resolve().parents[2]
EXAMPLE = CHECKOUT / "docs/examples/insights_checks.yml"
VIEWS = CHECKOUT / "docs/reference/insights_views.md"

#: A valid check, as one line of YAML.
RIGHT = "code: OWN_001, title: t, severity: info, subject: streams, remedy: r"

WRONG = {
    "checks: {": "1: not YAML",
    "- 1": "1: the file must be a mapping",
    "skipped: []": "1: unknown key skipped. Known: checks",
    "thresholds:\n  server_003_cpu: .nan": "2: server_003_cpu must be a number of at least 0, not .nan",
    "thresholds:\n  server_003_cpu: -1": "2: server_003_cpu must be a number of at least 0, not -1",
    "thresholds:\n  server_003_cpu: .inf": "2: server_003_cpu must be a number of at least 0",
    "thresholds:\n  server_003_cpu: true": "2: server_003_cpu must be a number of at least 0, not true",
    "thresholds:\n\n  no_such: 1": "3: no check has the threshold no_such, see docs/reference/insights_checks.md",
    "severities:\n  NO_001: info": "2: the check NO_001 does not exist",
    "severities:\n  STREAM_103: fatal": "2: the severity fatal does not exist. Known: critical, warning, info",
    "skip: [STREAM_103,\n  NO_001]": "2: the check NO_001 does not exist",
    "skip: []\nskip: []": "2: skip is given twice",
    "checks:\n- code: OWN_001": "2: a check lacks title, severity, subject, expression, remedy",
    f"checks:\n- {{{RIGHT}, expression: a > 1, when: b}}": "2: unknown key when of a check",
    f"checks:\n- {{{RIGHT.replace('OWN_001', 'STREAM_103')}, expression: a}}": "2: STREAM_103 is the code of a built-in",
    f"checks:\n- {{{RIGHT.replace('OWN_001', 'own')}, expression: a}}": "2: the code own must be capital letters",
    f"checks:\n- {{{RIGHT.replace('streams', 'stream')}, expression: a}}": "2: the subject stream does not exist. Known: ",
    f"checks:\n- {{{RIGHT}, expression: 'a > :limit'}}": "2: :limit is not a threshold",
    f"checks:\n- {{{RIGHT}, expression: a > 1, threshold: 1}}": "2: the threshold is not used: write :threshold",
    f"checks:\n- {{{RIGHT}, expression: a -- b}}": "2: expression must not contain --",
    f"checks:\n- {{{RIGHT}, expression: 'a > (SELECT 1)'}}": "2: expression must not use SELECT",
    f"checks:\n- {{{RIGHT}, expression: raise_error('x')}}": "2: expression must not use raise_error",
    f"checks:\n- {{{RIGHT}, expression: ' '}}": "2: expression must be a text that is not empty",
    "mute:\n- {check: STREAM_103, until: 2027-01-01}": "2: a mute lacks reason",
    "mute:\n- {check: STREAM_103, reason: r, until: soon}": "2: until must be a day or a time",
    "mute:\n- {check: STREAM_103, reason: r, until: 2027-01-01, subject: {topic: x}}": "2: unknown key topic of subject",
}


@pytest.fixture
def checks(tmp_path: Path) -> Path:
    return tmp_path / "checks.yml"


@pytest.mark.parametrize("text", WRONG)
def test_an_error_names_the_line_and_the_remedy(checks: Path, text: str) -> None:
    checks.write_text(text)
    with pytest.raises(ChecksFileError) as refused:
        read_checks(checks)
    assert f"{checks}:{WRONG[text]}" in str(refused.value)


def test_all_errors_are_listed_on_one_screen(checks: Path) -> None:
    checks.write_text("skip:\n" + "".join(f"- NO_{number:03}\n" for number in range(13)))
    with pytest.raises(ChecksFileError) as refused:
        read_checks(checks)
    lines = str(refused.value).splitlines()
    assert (len(lines), lines[-1]) == (11, "and 3 more errors")
    with pytest.raises(ChecksFileError, match="No such file"):
        read_checks(checks.with_name("none.yml"))


def test_the_example_changes_the_documented_checks(checks: Path) -> None:
    found = read_checks(EXAMPLE)
    assert [check.code for check in found.own] == ["PAY_001", "PAY_002"]
    assert found.registry.checks["STREAM_103"].severity == "warning"
    assert REGISTRY.checks["STREAM_103"].severity == "info"
    assert found.settings.thresholds == {"server_003_cpu": 80.0, "pay_002_threshold": 600.0}
    assert found.settings.skip == {"SERVER_104"}
    # The mute is still in force on its last day.
    assert [f"{mute.until:%Y-%m-%dT%H:%M}" for mute in found.mutes] == ["2027-03-31T23:59"]
    checks.write_text("")
    assert read_checks(checks).own == read_checks(None).own == []


def test_thresholds_of_two_files_do_not_overrule_each_other(tmp_path: Path) -> None:
    thresholds = tmp_path / "thresholds.json"
    thresholds.write_text(json.dumps({"pay_001_threshold": 5, "skip": ["STREAM_103"]}))
    found = read_thresholds(thresholds, read_checks(EXAMPLE))
    assert found.thresholds["pay_001_threshold"] == 5.0 and found.thresholds["server_003_cpu"] == 80.0
    assert found.skip == {"STREAM_103", "SERVER_104"}
    thresholds.write_text(json.dumps({"server_003_cpu": 5}))
    with pytest.raises(LakeError, match="the file of --checks sets these, too: server_003_cpu"):
        read_thresholds(thresholds, read_checks(EXAMPLE))


def test_muted_findings_are_listed_and_return(checks: Path) -> None:
    now = datetime(2026, 11, 28, 6, tzinfo=timezone.utc)
    found = [
        {"check": "STREAM_103", "severity": "critical", "account": "AKEY", "stream": stream, "text": "one replica"}
        for stream in ("TMP_1", "TMP_2", "KEEP")
    ]
    found.append({**found[0], "check": "STREAM_110"})
    table = BY_NAME["findings"]
    rows = [[{"fleet": "prod", **row}.get(column.name) for column in table.columns] for row in found]
    mute = Mute("STREAM_103", "old cluster", now, {"account": "TEST", "stream": "TMP_*"})

    def shown(at: datetime) -> tuple[list[Any], list[Any], dict[str, Any]]:
        tables = with_muted({"findings": filled(table, rows, len(rows))}, [mute], {"AKEY": "TEST"}, at)
        report = {"tables": with_causes(tables, dicts({"tables": tables}, "findings"))}
        assert tables["findings"]["total"] == len(tables["findings"]["rows"])
        muted = [(row["stream"], row["reason"], row["until"]) for row in dicts(report, "muted")]
        return muted, [(row["check"], row["stream"]) for row in dicts(report, "findings")], verdict(report)

    muted, failing, said = shown(now - timedelta(seconds=1))
    end = "2026-11-28T06:00:00Z"
    assert muted == [("TMP_1", "old cluster", end), ("TMP_2", "old cluster", end)]
    assert failing == [("STREAM_103", "KEEP"), ("STREAM_110", "TMP_1")]
    assert said["findings"] == 2
    assert shown(now)[0] == [] and len(shown(now)[1]) == 4


def test_spark_verifies_expressions_before_any_job(
    spark: SparkSession, checks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verify(spark, read_checks(EXAMPLE))
    wrong = {
        "bogus > 1": "the view streams has no column bogus",
        "num_replica > 1": "no column num_replica (similar: num_replicas",
        "num_replicas": "compare it with something",
        "count(*) > 1": "Spark refuses it",
        "num_replicas >": "Syntax error",
    }
    lines = [f"- {{{RIGHT.replace('001', f'00{n}')}, expression: {e!r}}}" for n, e in enumerate(wrong)]
    lines.append(f'- {{{RIGHT.replace("001", "009")}, expression: num_replicas > 1, text: "{{nothing}} of it"}}')
    checks.write_text("\n".join(["checks:", *lines]))
    lake = tmp_path / "lake"
    assert main(["silver", "findings", "--lake", str(lake), "--checks", str(checks)]) == REFUSED
    said = capsys.readouterr().err
    for line, problem in enumerate([*wrong.values(), "no column nothing"], 2):
        (found,) = [part for part in said.splitlines() if f"{checks}:{line}: " in part]
        assert problem in found
    assert not lake.exists()


def test_files_are_verified_without_a_lake(
    spark: SparkSession,
    checks: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thresholds = tmp_path / "thresholds.json"
    thresholds.write_text('{"stream_103_replicas": 1, "skip": ["STREAM_110"]}')
    assert main(["verify", "--checks", str(EXAMPLE), "--thresholds", str(thresholds)]) == DONE
    own = read_checks(EXAMPLE)
    counts = {"checks": len(own.own), "thresholds": len(own.settings.thresholds) + 1}
    assert json.loads(capsys.readouterr().out) == {"job": "verify", **counts, "skip": len(own.settings.skip) + 1}
    checks.write_text(f"checks:\n- {{{RIGHT}, expression: bogus > 1}}\n")
    assert main(["verify", "--checks", str(checks)]) == REFUSED
    assert f"FAILED: no job was started: {checks}:2: expression of" in capsys.readouterr().err

    def no_session(*_given: object) -> None:
        raise AssertionError("Spark is only needed for the expressions of own checks")

    monkeypatch.setattr("jetstream_insights.cli.session", no_session)
    checks.write_text("severities: {STREAM_103: high}\n")
    assert main(["verify", "--checks", str(checks)]) == REFUSED
    assert f"{checks}:1: the severity high does not exist" in capsys.readouterr().err
    checks.write_text("skip: [STREAM_103]\n")
    assert main(["verify", "--checks", str(checks)]) == DONE
    for wrong in (["verify", "--lake", str(tmp_path)], ["verify", "silver", "--lake", str(tmp_path)], ["silver"]):
        with pytest.raises(SystemExit, match="2"):
            main(wrong)


def test_the_columns_of_the_views_are_documented(spark: SparkSession) -> None:
    differing = set(VIEWS.read_text().splitlines()) ^ set(views_page(columns_of_views(spark)).splitlines())
    assert not differing, "run make views"
