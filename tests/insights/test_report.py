# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report: its structure, the protection against code in reported names, and its behaviour in a real browser."""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import io
import json
import re
import struct
import zlib
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta, timezone
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from jetstream_insights.cli import FOUND, main
from jetstream_insights.collection import module_util
from jetstream_insights.findings import REGISTRY
from jetstream_insights.gold_job import usual_intervals
from jetstream_insights.lake import GOLD_FORMAT, SILVER_FORMAT, Lake, columns, place
from jetstream_insights.report.causes import CODES, IMPACT, Newest, with_causes
from jetstream_insights.report.content import (
    LastReport,
    _filled,
    _read_rows,
    _trend,
    account_names,
    last_report,
    plain,
    read_content,
    with_joined_incidents,
)
from jetstream_insights.report.page import packed, page
from jetstream_insights.report.plain import csv_text, markdown, quoted, show
from jetstream_insights.report.shape import (
    BY_NAME,
    FORMAT,
    HYGIENE,
    KINDS,
    TABLES,
    dicts,
    filled,
    first_steps,
    verdict,
    with_account_names,
    without_single_domain,
)
from pyspark.sql import Row, SparkSession
from support import browsing
from support.lakes import DAY, SPAN, SYNTHETIC, Golden

#: A stream name that contains an attack on the report's readers.
HOSTILE = "</script><img src=x onerror=\"document.title='owned'\">"
FORMULA = "=HYPERLINK(0)"
BEGIN = datetime(2026, 11, 21, tzinfo=timezone.utc)
GIB = 1 << 30


def moment(hours: float) -> str:
    return f"{BEGIN + timedelta(hours=hours):%Y-%m-%dT%H:%M:%SZ}"


def rows(name: str, *of: dict[str, Any]) -> dict[str, Any]:
    """Return a table of the report whose rows have the given values, and null in all other columns."""
    table = BY_NAME[name]
    known = {column.name for column in table.columns}
    assert all(set(row) <= known for row in of), name
    made = [[{"fleet": "prod", **row}.get(column.name) for column in table.columns] for row in of]
    return filled(table, made, len(made))


def content() -> dict[str, Any]:
    finding = {"since": moment(18), "taken": moment(18)}
    servers = [f"n{number}" for number in range(1, 6)]
    tables = {
        "fleets": rows(
            "fleets",
            {
                "taken": moment(18),
                "servers": 5,
                "missing": ["n9"],
                "complete": False,
                "versions": ["2.15.1"],
                "streams": 12,
                "consumers": 30,
                "messages": 1_234_567,
                "bytes": 20 * GIB,
                "replica_bytes": 60 * GIB,
                "connections": 77,
                "meta_leader": "n1",
            },
        ),
        "findings": rows(
            "findings",
            {
                **finding,
                "severity": "critical",
                "check": "STREAM_101",
                "text": "no server leads it",
                "account": "A",
                "stream": HOSTILE,
            },
            {**finding, "severity": "warning", "check": "SERVER_001", "text": "health is error", "server": FORMULA},
            {**finding, "severity": "info", "check": "STREAM_103", "text": "1 replica | on `n1`", "stream": "S"},
            *(
                {**finding, "severity": "info", "check": "STREAM_103", "text": "1 replica", "stream": f"S{number}"}
                for number in range(300)
            ),
        ),
        "unknown": rows(
            "unknown", {"text": "no host was read (docs/insights.md)", "findings": 66, "checks": ["HOST_101"]}
        ),
        "fixed": rows(
            "fixed", {**finding, "severity": "critical", "check": "META_002", "text": "no server leads the meta group"}
        ),
        "checks": rows(
            "checks",
            {
                "check": "STREAM_101",
                "severity": "critical",
                "title": "A stream has no leader",
                "failed": 1,
                "critical": 1,
                "unknown": 0,
                "passed": 11,
                "taken": moment(18),
            },
        ),
        "trend": rows(
            "trend", *({"day": f"2026-11-{day}", "critical": 1, "warning": day, "info": 3} for day in (20, 21))
        ),
        "load": rows(
            "load",
            *(
                {
                    "server": name,
                    "cluster": "C1",
                    "zone": f"az{number % 3}",
                    "stream_leaders": 3 * number,
                    "bytes": number * GIB,
                }
                for number, name in enumerate(servers)
            ),
        ),
        "activity": rows(
            "activity",
            *(
                {
                    "day": "2026-11-21",
                    "hour": hour,
                    "in_msgs": 100.0 + hour,
                    "num_pending": 7,
                    "elections": 12 if hour == 9 else 0,
                }
                for hour in range(19)
                if hour != 4
            ),
        ),
        "usage": rows(
            "usage",
            *(
                {
                    "day": f"2026-11-{20 + hour // 24}",
                    "hour": hour % 24,
                    "scope": scope,
                    "resource": "file",
                    "name": name,
                    "used": (100 + hour) * GIB,
                    "limit": 400.0 * GIB,
                }
                for hour in range(44)
                for scope, name in (("cluster", "C1"), ("server", HOSTILE))
            ),
        ),
        "capacity": rows(
            "capacity",
            {
                "scope": "cluster",
                "name": "C1",
                "resource": "file",
                "state": "growing",
                "used": 143.0 * GIB,
                "limit": 400.0 * GIB,
                "used_ratio": 0.36,
                "slope": 12.0 * GIB,
                "change_7_p10": 40.0 * GIB,
                "change_7_p90": 130.0 * GIB,
                "change_30_p10": 150.0 * GIB,
                "change_30_p90": 720.0 * GIB,
                "full_p10": 10.7,
                "full_p50": 21.4,
                "full_p90": 51.4,
            },
        ),
        "leadership": rows(
            "leadership", {"kind": "stream", "account": "APP", "stream": "S1", "leader": "n2", "elections": 2}
        ),
        "timeline": rows(
            "timeline",
            {"kind": "meta", "begin": moment(0), "end": moment(18), "leader": "n1", "state": "ok"},
            {
                "kind": "stream",
                "account": "A",
                "stream": HOSTILE,
                "begin": moment(0),
                "end": moment(9),
                "leader": "n1",
                "state": "ok",
            },
            {
                "kind": "stream",
                "account": "A",
                "stream": HOSTILE,
                "begin": moment(9),
                "end": moment(18),
                "state": "no_leader",
            },
        ),
        "incidents": rows(
            "incidents",
            {
                "incident": "no_leader",
                "kind": "stream",
                "account": "A",
                "stream": HOSTILE,
                "begin": moment(9),
                "last": moment(18),
                "seconds": 32400.0,
                "continues": True,
                "causes": ["server_missing n9"],
            },
        ),
        "streams": rows(
            "streams",
            *(
                {"account": "A", "stream": name, "num_replicas": 3, "bytes": size}
                for name, size in ((HOSTILE, 5), ("S10", 30), ("S9", 200))
            ),
        ),
    }
    return grouped(
        {
            "format": FORMAT,
            "title": f"Fleet {HOSTILE}",
            "day": "2026-11-21",
            "generated": moment(19),
            "notes": [HOSTILE],
            "tables": tables,
        }
    )


def grouped(report: dict[str, Any], meant: Sequence[Any] = ()) -> dict[str, Any]:
    """Return the report with the causes of its findings."""
    return {**report, "tables": with_causes(report["tables"], dicts(report, "findings"), meant)}


class Reader(HTMLParser):
    """Collects the elements of a page and the text of its scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.inside = tag == "script"
        if self.inside:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = False

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.scripts[-1] += data


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    return reader


def test_page_is_one_file_without_external_resources() -> None:
    text = page(content())
    reader = read(text)
    for tag, attributes in reader.elements:
        assert tag not in ("link", "img", "iframe", "object", "base"), tag
        assert not {"src", "href", "srcset", "action"} & set(attributes), (tag, attributes)
        assert not any(name.startswith("on") for name in attributes), attributes
    _data, library, script = reader.scripts
    # The chart library runs unmodified, and is allowed by its hash as well.
    assert not re.search(r"innerHTML|insertAdjacent|document\.write|eval\(|fetch\(|import\(|XMLHttpRequest", library)
    policy = next(str(found["content"]) for _tag, found in reader.elements if "http-equiv" in found)
    for part in (library, script):
        digest = hashlib.sha256(part.encode()).digest()
        assert f"'sha256-{base64.b64encode(digest).decode()}'" in policy
    assert "Leon Sorokin" in text and "Permission is hereby granted" in text
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|fetch\(|import\(|XMLHttpRequest", script
    )
    assert re.findall(r"https?://[^\"' ]+", script) == ["http://www.w3.org/2000/svg"]
    assert "@media print" in text and "prefers-color-scheme: dark" in text
    assert "@DATA@" not in text and "@SCRIPT_HASH@" not in text


def test_reported_names_are_escaped_in_the_page_and_complete_in_its_data() -> None:
    given = content()
    text = page(given)
    assert HOSTILE not in text
    reader = read(text)
    assert [tag for tag, _attributes in reader.elements].count("script") == 3
    held = json.loads(gzip.decompress(base64.b64decode(reader.scripts[0])))
    assert {name: table.pop("beyond") for name, table in held["tables"].items()}["findings"] == "findings.csv"
    assert set(held.pop("hygiene")) < set(REGISTRY.checks)
    assert held == given
    with pytest.raises(ValueError, match="JSON compliant"):
        packed({"tables": {}, "a": float("nan")})


def test_markdown_and_csv_show_names_unchanged() -> None:
    text = markdown(content())
    assert "1 critical, 1 warning, 1 info, for 303 findings. 66 unknown results for 1 reason. 1 fixed finding." in text
    assert "\\<\\/script" not in text and "\\</script\\>" in text
    assert "1 replica \\| on \\`n1\\`" in text
    assert "… and 283 more." in text
    assert "## Elections" in text
    # Only the worst findings, without the notes.
    assert text.index("## Do now") < text.index("\n1. ") < text.index("\n2. ") < text.index("## Fleet")
    assert "\n3. " not in text
    # Code is shown unchanged; in all other text, HTML is escaped.
    assert not re.search(r"(?<!\\)[<>]", re.sub(r"(?<!\\)`[^`]*`", "", text))
    table = list(csv.DictReader(io.StringIO(csv_text(content()["tables"]["findings"]))))
    assert table[0]["stream"] == HOSTILE
    assert table[1]["server"] == f"'{FORMULA}"
    assert quoted("a\nb|c") == "a b\\|c"
    assert [show(value, kind) for value, kind in ((None, "text"), ("", "text"), ([], "list"))] == ["–"] * 3
    assert [
        show(value, kind) for value, kind in ((1536, "bytes"), (0.5, "percent"), (90, "seconds"), (["a", "b"], "list"))
    ] == [
        "1.5 KiB",
        "50.0 %",
        "1.5 min",
        "a, b",
    ]
    assert show(0, "count") == "0"


def test_each_command_of_the_report_can_be_copied() -> None:
    commands = ["journalctl -u nats-server -g 'route|TLS' -n 20  # on n1 | n2", "nats stream info 'a`b' -s 'x  y'"]
    advice = ["the client; `nats_stream`", "recreate it"]
    tables = {
        "causes": rows(
            "causes",
            {"severity": "critical", "title": "down", "findings": 1, "commands": commands, "shell": True},
            {"severity": "warning", "title": "slow", "findings": 1, "commands": advice, "shell": False},
        )
    }
    text = markdown({"title": "T", "day": "d", "generated": "g", "notes": [], "tables": tables}).splitlines()
    copied = [
        "`journalctl -u nats-server -g 'route|TLS' -n 20` \\# on n1 \\| n2",
        "``nats stream info 'a`b' -s 'x  y'``",
    ]
    assert [line[5:] for line in text if line.startswith("   - ")] == [*copied, *map(quoted, advice)]
    (cell,) = [line for line in text if line.startswith("| critical")]
    assert cell.endswith(f"| {copied[0].replace('route|', 'route' + chr(92) + '|')} {copied[1]} |")
    assert next(line for line in text if line.startswith("| warning")).endswith(
        "the client; \\`nats\\_stream\\`; recreate it |"
    )
    found = [row["commands"] for row in csv.DictReader(io.StringIO(csv_text(tables["causes"])))]
    assert found == ["\n".join(commands), "\n".join(advice)]


def test_verdict_is_the_worst_failed_severity() -> None:
    said = {"worst": "critical", "critical": 1, "warning": 1, "info": 1, "findings": 303, "unknown": 66, "fixed": 1}
    assert verdict(content()) == said
    assert verdict({"tables": {}})["worst"] == "none"


def found(check: str, **more: Any) -> dict[str, Any]:
    severity = REGISTRY.checks[check].severity
    return {"check": check, "severity": severity, "text": f"text of {check}", **more}


def find_causes(
    *findings: dict[str, Any],
    missing: tuple[str, ...] = (),
    meant: Sequence[Any] = (),
    changes: Sequence[dict[str, Any]] = (),
) -> list[dict[str, Any]]:
    """Return the causes of findings in a fleet of five servers in which these servers are missing."""
    names = [f"n{number}" for number in range(1, 6)]
    tables = {
        "fleets": rows(
            "fleets", {"taken": moment(18), "servers": 5, "missing": list(missing), "complete": not missing}
        ),
        "servers": rows(
            "servers",
            *(
                {"server": name, "cluster": "C1", "version": "2.15.1", "answered": name not in missing}
                for name in names
            ),
        ),
        "findings": rows("findings", *findings),
        "changes": rows("changes", *changes),
    }
    return list(dicts(grouped({"tables": tables}, meant), "causes"))


def test_a_dead_server_explains_its_thousand_symptoms() -> None:
    """The dead server explains nothing else: a stream whose members all respond has a separate fault."""
    streams = [{"account": "A", "stream": f"S{number}"} for number in range(400)]
    symptoms = [
        found("FLEET_101"),
        found("META_105", server="n4"),
        found("META_102"),
        found("SERVER_107", server="n1"),
        found("SERVER_208", server="n4"),
        *(found("STREAM_101", **one, value=1.0, threshold=2.0) for one in streams[:100]),
        *(found("CONSUMER_101", **one, consumer="c", value=1.0, threshold=2.0) for one in streams[:100]),
        *(found("STREAM_106", **one, peer="n5") for one in streams[100:]),
        *(found("STREAM_104", **one) for one in streams[100:]),
        *(found("CONSUMER_103", **one, consumer="c") for one in streams[100:]),
    ]
    own = [
        found("STREAM_101", account="A", stream="OWN", value=2.0, threshold=2.0),
        found("STREAM_106", account="A", stream="SLOW", peer="n2"),
        found("STREAM_110", account="A", stream="S1"),
    ]
    causes = find_causes(*symptoms, *own, missing=("n4", "n5"))
    assert [(cause["kind"], cause["severity"], cause["findings"]) for cause in causes] == [
        ("servers_down", "critical", len(symptoms)),
        ("asset_fault", "critical", 1),
        ("catching_up", "warning", 1),
        ("", "warning", 1),
    ]
    dead = causes[0]
    assert dead["servers"] == ["n4", "n5"]
    assert dead["title"].startswith(
        "n4 and n5 do not answer: 100 streams and 100 consumers have no quorum, 601 miss a replica"
    )
    assert any(command.startswith("systemctl status nats-server") for command in dead["commands"])
    assert "stream A/OWN" in causes[1]["title"] and "n2" in causes[2]["title"]


def test_a_paused_server_explains_its_groups_and_they_are_named() -> None:
    """Neither a consumer of a leaderless stream nor a running server is a separate cause."""
    (cause,) = find_causes(
        found("FLEET_101"),
        found("META_105", server="n4"),
        found("CONSUMER_103", account="A", stream="S", consumer="c", peer="n4"),
        found("RAFT_105", server="n1", account="A", name="stream S"),
        found("STREAM_214", account="A", stream="SOLO", peer="n4", value=0.0, threshold=1.0),
        missing=("n4",),
    )
    assert (cause["kind"], cause["findings"]) == ("servers_down", 5)
    title = "n4 does not answer: stream A/S and stream A/SOLO have no quorum, consumer A/S/c misses a replica"
    assert cause["title"] == title


STREAM = {"domain": "", "account": "A", "stream": "S"}


@pytest.mark.parametrize(
    ("findings", "title"),
    [
        (
            [found("SERVER_212", server="n1"), found("ACCOUNTS_201", account="A", name="Client go 1")],
            "A (Client go 1): text of ACCOUNTS_201 (and 1 more of this kind)",
        ),
        (
            [found("CONN_101", server="n1"), found("SERVER_004", server="n1"), found("ACCOUNTS_202", account="A")],
            "A: text of ACCOUNTS_202 (and 2 more of this kind)",
        ),
        (
            [found("RAFT_201", server="n2", account="A", name="stream S"), found("STREAM_201", **STREAM)],
            "stream A/S: text of STREAM_201",
        ),
        (
            [found("STREAM_203", **STREAM), found("STREAM_201", **STREAM)],
            "stream A/S: text of STREAM_201",
        ),
        (
            [found("CAPACITY_201", domain="", name="stream A/S messages"), found("JETSTREAM_003", **STREAM)],
            "stream A/S: text of JETSTREAM_003",
        ),
        (
            [found("CONSUMER_114", **STREAM, consumer="c"), found("CONSUMER_105", **STREAM, consumer="c")],
            "consumer A/S/c: text of CONSUMER_105",
        ),
    ],
)
def test_checks_of_one_fault_are_one_cause(findings: list[dict[str, Any]], title: str) -> None:
    remedies = [{**finding, "remedy": f"remedy of {finding['check']}"} for finding in findings]
    (cause,) = find_causes(*remedies)
    assert (cause["title"], cause["findings"]) == (title, len(findings))
    assert cause["commands"][0] == f"remedy of {title.split()[title.split().index('of') + 1]}"


def test_delivery_faults_of_different_consumers_are_different_causes() -> None:
    causes = find_causes(
        found("CONSUMER_105", **STREAM, consumer="c"),
        found("CONSUMER_114", **STREAM, consumer="c"),
        found("CONSUMER_114", **STREAM, consumer="other"),
    )
    assert [(cause["severity"], cause["findings"]) for cause in causes] == [("warning", 2), ("info", 1)]


def test_removed_origin_explains_its_mirror() -> None:
    """A removed stream of the same name in another account does not explain the mirror's fault."""
    removed = {"object": "stream", "what": "removed", "domain": "", "account": "A", "stream": "ORIGIN"}
    failing = found("STREAM_120", **STREAM, peer="ORIGIN", remedy="diagnose")
    (cause,) = find_causes(failing, found("STREAM_206", **STREAM), changes=[{**removed, "taken": moment(17)}])
    assert cause["title"].startswith(f"stream A/S: its origin ORIGIN was removed at {moment(17)}; ")
    assert cause["findings"] == 2
    assert "`nats_restore` brings ORIGIN back" in cause["commands"][0]
    (cause,) = find_causes(failing, changes=[{**removed, "account": "B", "taken": moment(17)}])
    assert cause["title"] == "stream A/S: text of STREAM_120"


def test_server_without_jetstream_since_a_new_configuration_is_one_cause() -> None:
    causes = find_causes(
        found("SERVER_210", server="n4"), found("SERVER_206", server="n4"), found("SERVER_206", server="n1")
    )
    assert [(cause["kind"], cause["servers"]) for cause in causes] == [("storage", ["n4"]), ("", ["n1"])]
    assert causes[0]["title"] == "JetStream is not running on n4 since its configuration changed"
    assert causes[0]["commands"][0].startswith("ansible-playbook natsops.jetstream.deploy --check --diff")


def test_servers_without_jetstream_explain_the_groups_without_a_leader() -> None:
    asset = {"account": "A", "stream": "S", "value": 1.0, "threshold": 2.0}
    off = [found("SERVER_210", server=name) for name in ("n4", "n5")]
    groups = [found("STREAM_101", **asset), found("CONSUMER_101", **asset, consumer="c"), found("META_002")]
    others = [found("SERVER_107", server="n1"), found("CONSUMER_202", account="A", stream="T", consumer="c")]
    causes = find_causes(*groups, *off, *others)
    assert (causes[0]["kind"], causes[0]["servers"]) == ("storage", ["n4", "n5"])
    assert (causes[0]["unavailable"], causes[0]["findings"], len(causes)) == (2, 5, 3)
    whole = {**asset, "value": 3.0}
    assert len(find_causes(found("STREAM_101", **whole), *off)) == 2


@pytest.mark.parametrize(
    ("servers", "hours", "severity"),
    [
        (("n4", "n5"), (17, 19), "info"),
        # One or both of the outages were planned, but for a different time.
        (("n4",), (17, 19), "critical"),
        (("n4", "n5"), (16, 17), "critical"),
    ],
)
def test_planned_outages_are_a_note(servers: tuple[str, ...], hours: tuple[int, int], severity: str) -> None:
    begin, end = (datetime.fromisoformat(moment(hour).replace("Z", "+00:00")).timestamp() for hour in hours)
    window = module_util("roll.journal").Window(servers, begin, end, "in maintenance by ops (new disks)")
    gone = [found("FLEET_101"), *(found("META_105", server=name) for name in ("n4", "n5"))]
    (cause,) = find_causes(*gone, missing=("n4", "n5"), meant=[window])
    assert (cause["kind"], cause["severity"]) == ("servers_down", severity)
    assert cause["title"].endswith("(in maintenance by ops (new disks))") == (severity == "info")


def test_causes_are_ranked_by_impact_and_new_after_the_last_report() -> None:
    lost = [{"account": "A", "stream": f"S{number}", "value": 2.0, "threshold": 2.0} for number in range(2)]
    findings = [
        {**found("JETSTREAM_003", account="A", stream="FULL"), "since": moment(12)},
        *({**found("STREAM_101", **one), "since": moment(17)} for one in lost),
        {**found("SERVER_105", server="n1"), "since": moment(1)},
    ]
    tables = {"fleets": rows("fleets", {"taken": moment(18)}), "findings": rows("findings", *findings)}
    made = with_causes(tables, dicts({"tables": tables}, "findings"), previous={"prod": moment(15)})
    causes = list(dicts({"tables": made}, "causes"))
    assert [(row["unavailable"], row["new"], row["since"], row["hygiene"]) for row in causes] == [
        (2, True, moment(17), False), (0, False, moment(12), False), (0, False, moment(1), True),
    ]  # fmt: skip
    assert [row["impact"] for row in causes] == [
        "Unavailable: 2 streams.", IMPACT["JETSTREAM_003"], f"{REGISTRY.checks['SERVER_105'].title}.",
    ]  # fmt: skip
    # The evidence never repeats the cause.
    assert not any(line in row["title"] for row in causes for line in row["evidence"])
    assert len(first_steps({"tables": made})) == 2
    unknown = with_causes(tables, dicts({"tables": tables}, "findings"))
    assert {row["new"] for row in dicts({"tables": unknown}, "causes")} == {None}
    assert set(IMPACT) | HYGIENE <= set(REGISTRY.checks)


def test_incident_over_midnight_is_one_row() -> None:
    lost = {"incident": "no_leader", "kind": "stream", "account": "A", "stream": "S"}
    yesterday = {**lost, "begin": moment(-2), "last": moment(-0.1), "seconds": 6840.0, "continues": True}
    today = {
        **lost,
        "begin": moment(0.1),
        "end": moment(1),
        "seconds": 3240.0,
        "continues": False,
        "began_before": True,
    }
    later = {**lost, "begin": moment(5), "end": moment(6), "seconds": 3600.0, "continues": False}
    made = with_joined_incidents(rows("incidents", later, today, yesterday))
    found_ = list(dicts({"tables": {"incidents": made}}, "incidents"))
    assert [(row["begin"], row["end"], row["seconds"], row["continues"]) for row in found_] == [
        (moment(-2), moment(1), 10800.0, False), (moment(5), moment(6), 3600.0, False),
    ]  # fmt: skip
    assert made["total"] == 2


def test_last_report_is_read_from_the_folder(tmp_path: Path) -> None:
    assert last_report(tmp_path) == LastReport()
    file = tmp_path / "report.json"
    file.write_text(json.dumps(content()))
    assert last_report(tmp_path) == LastReport(moment(19), {"prod": moment(18)})
    for broken in ("{", "[]", '{"tables": {}}'):
        file.write_text(broken)
        assert last_report(tmp_path) == LastReport()


def test_report_has_the_events_of_its_span_and_a_trend(spark: SparkSession) -> None:
    table = BY_NAME["fixed"]
    nulls = [f"CAST(NULL AS STRING) AS {column.name}" for column in table.columns if column.name != "taken"]
    fixed = spark.range(3).selectExpr(
        "'fixed' AS state", f"timestamp '{BEGIN:%Y-%m-%d}' + make_interval(0, 0, 0, 0, id * 12) AS taken", *nulls
    )
    assert _filled(table, fixed, BEGIN + timedelta(hours=6))["total"] == 2
    counted = [
        ("prod", moment(hour), check, severity, failed, critical)
        for hour, check, severity, failed, critical in (
            (1, "STREAM_101", "critical", 9, 9), (2, "STREAM_101", "critical", 3, 2),
            (2, "STREAM_103", "info", 5, 0), (25, "STREAM_103", "info", 4, 0),
        )
    ]  # fmt: skip
    frame = spark.createDataFrame(
        counted, "fleet string, taken string, check string, severity string, failed long, critical long"
    )
    made = _trend(frame.withColumn("taken", frame.taken.cast("timestamp"))).orderBy("day").collect()
    assert [tuple(row) for row in made] == [("prod", "2026-11-21", 2, 1, 5), ("prod", "2026-11-22", 0, 0, 4)]


def test_report_has_the_daily_tables_of_every_day_of_its_span(spark: SparkSession, tmp_path: Path) -> None:
    lake, table = Lake(spark, str(tmp_path)), BY_NAME["accounts"]
    days = [DAY + timedelta(days=number) for number in range(3)]
    for day in days:
        rows_of_day = spark.createDataFrame(
            [{"fleet": "prod", "day": day, "account": "A"}], columns("gold", "account_usage")
        )
        rows_of_day.write.parquet(f"{tmp_path}/gold/account_usage/run=r/{place(day)}")
        lake.repoint("gold", day, {"format": GOLD_FORMAT, "run": "r", "inputs": []})
    for hours, shown in ((6, days[1:]), (24, days[2:])):
        begin = datetime.combine(days[1], time(), timezone.utc) + timedelta(hours=hours)
        frame = _read_rows(lake, table, days[2], begin)
        assert frame is not None
        assert sorted(row["day"] for row in dicts({"tables": {"accounts": _filled(table, frame)}}, "accounts")) == [
            *map(str, shown)
        ]
    daily = {table.name for table in TABLES if table.daily}
    assert daily == {"leadership", "availability", "consumer_lag", "divergence", "accounts"}


@pytest.mark.parametrize(
    ("hours", "usual", "stopped"),
    [(18.9, 60, False), (19.1, 60, True), (18 + 71, 86_400, False), (18 + 73, 86_400, True)],
)
def test_report_of_today_warns_that_snapshots_have_stopped(hours: float, usual: float, stopped: bool) -> None:
    tables = {"fleets": rows("fleets", {"taken": moment(18), "servers": 5, "missing": [], "complete": True})}
    now = BEGIN + timedelta(hours=hours)
    # A fresh snapshot of one fleet does not hide that another fleet has none.
    newest = {"prod": Newest(BEGIN + timedelta(hours=18), usual), "alive": Newest(now)}
    content = {"tables": with_causes(tables, [], now=now, newest=newest)}
    assert [(cause["fleet"], cause["kind"], cause["severity"]) for cause in dicts(content, "causes")] == (
        [("prod", "snapshots_stopped", "critical")] if stopped else []
    )
    assert verdict(content)["worst"] == ("critical" if stopped else "none")
    # A day in the past expects no further snapshots.
    assert not list(dicts({"tables": with_causes(tables, [], newest=newest)}, "causes"))


def test_a_collector_that_died_weeks_ago_makes_a_critical_report(
    spark: SparkSession, golden: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """If there are no tables for the default time, the report shows the last day, with a critical cause."""
    command = ["report", "--lake", str(golden.path), "--output", str(tmp_path), "--fail-on", "critical"]
    assert main(command) == FOUND
    printed = capsys.readouterr()
    done = json.loads(printed.out)
    assert (done["day"], done["worst"]) == (str(DAY), "critical")
    assert "FOUND: critical root cause of fleet" in printed.err and f"read {tmp_path}/report.html" in printed.err
    content = json.loads((tmp_path / "report.json").read_text())
    stopped = {cause["fleet"]: cause for cause in dicts(content, "causes") if cause["kind"] == "snapshots_stopped"}
    assert len(stopped) == 4
    assert stopped[SYNTHETIC]["title"].startswith(f"the last snapshot of {SYNTHETIC} was taken {DAY}T02:00:00Z")
    # The intervals between the snapshots are 600 s, 3,000 s and 3,600 s.
    assert usual_intervals(Lake(spark, str(golden.path)))[SYNTHETIC] == 3000.0
    (note,) = content["notes"]
    assert note.startswith("There are no findings of 2") and f": this report shows {DAY}, the last day with" in note
    # The age of the last snapshot is measured now, even if --to is in the future; a period of the past has no such check.
    assert main([*command, "--to", f"{datetime.now(timezone.utc) + timedelta(days=9):%Y-%m-%d}"]) == FOUND
    main([*command, *SPAN])
    past = json.loads((tmp_path / "report.json").read_text())
    assert past["notes"] == [] and "snapshots_stopped" not in {cause["kind"] for cause in dicts(past, "causes")}
    main([*command, "--retired", SYNTHETIC])
    retired = json.loads((tmp_path / "report.json").read_text())
    left = {cause["fleet"] for cause in dicts(retired, "causes") if cause["kind"] == "snapshots_stopped"}
    assert left == {*stopped} - {SYNTHETIC}


def test_remedy_of_the_check_is_the_fallback() -> None:
    (cause,) = find_causes(
        *(found("CONSUMER_112", account="A", stream=f"S{number}", remedy="acknowledge") for number in range(9))
    )
    assert (cause["kind"], cause["commands"], cause["findings"]) == ("", ["acknowledge"], 9)


def test_incomplete_snapshot_of_running_servers_does_not_report_a_dead_server() -> None:
    (cause,) = find_causes(found("FLEET_101"))
    assert (cause["kind"], cause["servers"], cause["severity"]) == ("", [], "critical")


def test_fleets_do_not_explain_each_other() -> None:
    tables = {
        "fleets": rows("fleets", {"fleet": "east", "missing": ["n4"]}, {"fleet": "west", "missing": []}),
        "servers": rows("servers", *({"fleet": fleet, "server": "n1", "answered": True} for fleet in ("east", "west"))),
    }
    lost = {**found("STREAM_101", account="A", stream="S", value=1.0, threshold=2.0)}
    failing = rows("findings", *({**lost, "fleet": fleet} for fleet in ("east", "west")))
    report = grouped({"tables": {**tables, "findings": failing}})
    kinds = {row["fleet"]: row["kind"] for row in dicts(report, "causes")}
    assert kinds == {"east": "servers_down", "west": "asset_fault"}


@pytest.mark.parametrize(("domain", "several"), [("hub", False), ("edge", True), ("", True)])
def test_domains_are_named_only_if_there_are_several(domain: str, several: bool) -> None:
    """The domains of servers that did not respond are unknown."""
    servers: list[dict[str, Any]] = [
        {"server": "n1", "domain": "hub", "answered": True},
        {"server": "e1", "domain": domain, "answered": True},
        {"server": "n9", "domain": None, "answered": False},
    ]
    lost = [{**found("STREAM_101", account="A", stream="S", value=2.0, threshold=2.0), "domain": "hub"}]
    lost.append({**found("META_002"), "domain": "hub"})
    report = grouped({"tables": {"servers": rows("servers", *servers), "findings": rows("findings", *lost)}})
    titles = " ".join(row["title"] for row in dicts(report, "causes"))
    assert ("stream A@hub/S" in titles, "meta group of the domain hub" in titles) == (several, several)
    shown = {"tables": without_single_domain(report["tables"])}
    for table in ("servers", "findings"):
        assert [("domain" in row) for row in dicts(shown, table)] == [several] * len(report["tables"][table]["rows"])
    assert [row["server"] for row in dicts(shown, "servers")] == ["n1", "e1", "n9"]
    assert [row["check"] for row in dicts(shown, "findings")] == ["STREAM_101", "META_002"]


def test_gate_codes_belong_to_existing_checks() -> None:
    assert set(CODES) <= set(REGISTRY.checks)


def test_values_become_json() -> None:
    at = datetime(2026, 11, 21, 18, tzinfo=timezone.utc)
    cause = Row(cause="restart", server="n1", at=at, detail=None)
    assert [plain(value) for value in (at, date(2026, 11, 21), float("nan"), [cause], None)] == [
        "2026-11-21T18:00:00Z",
        "2026-11-21",
        None,
        ["restart n1 2026-11-21T18:00:00Z"],
        None,
    ]


def test_report_tables_have_unique_columns_of_known_kinds() -> None:
    assert len(BY_NAME) == len(TABLES)
    for table in TABLES:
        names = [column.name for column in table.columns]
        assert len(set(names)) == len(names), table.name
        assert {column.kind for column in table.columns} <= set(KINDS), table.name


# --- in a browser ---------------------------------------------------------------------------------------------------------------


def test_browser_shows_tables_and_charts_and_runs_only_the_page_script(tmp_path: Path) -> None:
    # The script sorts the streams by size, filters the findings, selects another asset, and returns the resulting page.
    script = """
      const rows = (name) => [...document.querySelectorAll(`[data-rows=${name}] tbody tr`)].map((row) => row.textContent);
      const head = (name,
      title) => [...document.querySelectorAll(`[data-rows=${name}] th button`)].find((b) => b.textContent === title);
      const to = (tab) => document.getElementById(`to-${tab}`).click();
      // A tab is built when it is shown first.
      seen.cut = [];
      for (const tab of ["hygiene", "capacity", "assets", "history", "now"]) {
        to(tab);
        for (const box of document.querySelectorAll(`#tab-${tab} .scroll`)) {
          if (box.scrollWidth > box.clientWidth) seen.cut.push(box.parentElement.dataset.rows);
        }
      }
      seen.shown = [...document.querySelectorAll("[role=tabpanel]")].filter((panel) => !panel.hidden).map((panel) => panel.id);
      Object.assign(seen, { title: document.title, images: document.querySelectorAll("#main img, header img").length,
        sections: [...document.querySelectorAll("section")].map((section) => section.id), all: rows("hygiene-findings").length });
      head("streams", "data").click(); seen.largest = rows("streams").map((row) => row.includes("S9"));
      head("streams", "stream").click(); seen.byName = rows("streams").map((row) => row.slice(1, 4));
      seen.sorted = document.querySelectorAll("[data-rows=streams] th[aria-sort=ascending]").length;
      to("hygiene");
      const filter = document.querySelector("input[data-table=hygiene-findings]");
      filter.value = "replica S29"; filter.dispatchEvent(new Event("input")); seen.filtered = rows("hygiene-findings").length;
      filter.value = ""; filter.dispatchEvent(new Event("input"));
      const chip = [...document.querySelectorAll("#findings .controls button")].find((b) => b.textContent === "warning");
      chip.click(); seen.warnings = rows("findings"); chip.click();
      document.querySelector("#hygiene-findings > div > button").click(); seen.more = rows("hygiene-findings").length;
      seen.bands = document.querySelectorAll("#usage path.band").length;
      const asset = document.querySelector("#usage select"); seen.assets = asset.options.length;
      asset.selectedIndex = 1; asset.dispatchEvent(new Event("change"));
      seen.noForecast = document.querySelectorAll("#usage path.band").length;
      seen.hostile = document.querySelector("#usage figcaption").textContent;
      seen.plots = [...document.querySelectorAll("#activity figcaption")].map((caption) => caption.textContent);
      await null; // uPlot draws in a microtask.
      const drawn = document.querySelector("#activity canvas");
      const pixels = drawn.getContext("2d").getImageData(0, 0, drawn.width, drawn.height).data;
      seen.ink = pixels.filter((value, index) => index % 4 === 3 && value > 0).length;
      const box = document.querySelector("[data-rows=hygiene-findings] .scroll");
      box.style.width = "300px"; box.scrollLeft = 200; seen.scrolled = box.scrollLeft;
      seen.stays = box.querySelector("td").getBoundingClientRect().left - box.getBoundingClientRect().left;
      seen.page = document.documentElement.scrollWidth <= window.innerWidth;
      [...document.querySelectorAll("[data-rows=findings] button.link")].find((b) => b.textContent.includes("img")).click();
      const dialog = document.querySelector("dialog[open]");
      seen.about = [...dialog.querySelectorAll("h2, h3")].map((head) => head.textContent);
      seen.mine = [...dialog.querySelectorAll("tbody")].map((body) => body.rows.length);
      seen.address = location.hash;
      dialog.querySelector("form button").click();
      [...document.querySelectorAll("[data-rows=leadership] button.link")].find((b) => b.textContent === "n2").click();
      seen.server = [...document.querySelectorAll("dialog[open] h2, dialog[open] h3")].map((head) => head.textContent);
      document.querySelector("dialog[open] form button").click();
      seen.commands = [...document.querySelectorAll("#do-now .command code")].map((code) => code.textContent);
      seen.lanes = document.querySelectorAll("#timeline svg rect").length;
      seen.bars = document.querySelectorAll("#load svg rect").length;
      seen.now = [...document.querySelectorAll("#do-now li")].map((item) => item.textContent);
      const tiles = [...document.querySelectorAll("#summary .tile")].map((tile) => tile.textContent);
      seen.tiles = tiles.length; seen.unknown = tiles.find((text) => text.includes("unknown")); seen.worst = tiles[0];
      seen.elsewhere = document.querySelector("#causes .about").textContent;
      seen.first = document.querySelector("#main").firstElementChild.id;
      seen.incidents = document.querySelectorAll("#incidents svg rect").length;
    """
    seen = browsing.seen(tmp_path, page(content()), script)
    assert (seen["title"], seen["images"]) == (f"Fleet {HOSTILE}", 0)
    shown = [
        *("do-now", "causes", "findings", "fixed"),
        *("hygiene-causes", "hygiene-findings", "unknown", "checks"),
        *("usage", "capacity", "load"),
        *("fleets", "streams"),
        *("trend", "activity", "incidents", "timeline", "leadership"),
    ]
    assert seen["shown"] == ["tab-now"]
    # Nothing is cut off at 1,280 pixels.
    assert seen["cut"] == []
    assert seen["sections"] == shown
    # The page opens with the actions; it shows how many reasons there are for 66 unknown checks.
    assert (seen["first"], seen["unknown"]) == ("tab-now", "66unknown results, reasons: 1")
    assert (seen["worst"], "Root causes under Hygiene: 1." in seen["elsewhere"]) == ("1critical root causes", True)
    assert [HOSTILE in seen["now"][0], FORMULA in seen["now"][1], len(seen["now"])] == [True, True, 2]
    assert (seen["all"], seen["more"]) == (25, 301)
    assert seen["largest"] == [True, False, False]
    assert seen["byName"][1:] == ["S93", "S10"]  # with the number of their replicas
    assert seen["sorted"] == 1
    assert seen["filtered"] == 11  # S29, S290 to S299
    assert len(seen["warnings"]) == 1 and "SERVER_001" in seen["warnings"][0]
    assert (seen["bands"], seen["assets"], seen["noForecast"]) == (1, 2, 0)
    assert HOSTILE in seen["hostile"]
    assert seen["plots"] == [
        "messages/s received: 118; at most 118",
        "messages pending: 7; at most 7",
        "elections an hour: 0; at most 12",
    ]
    assert seen["ink"] > 500  # a line, and its axes
    # Wide tables scroll in their own box, while the first column stays visible.
    assert seen["scrolled"] == 200 and seen["page"] and 0 <= seen["stays"] <= 2
    assert seen["about"] == [f"A / {HOSTILE}", "Findings", "Leaders", "Incidents", "Streams"]
    assert seen["mine"] == [1, 2, 1, 1]
    assert seen["address"].startswith("#stream/prod//A/%3C%2Fscript")
    assert seen["server"] == ["n2", "Load of the servers", "Elections"]
    # Comments are not copied.
    assert seen["commands"] and not any("#" in command for command in seen["commands"])
    assert (seen["lanes"], seen["bars"], seen["incidents"], seen["tiles"]) == (3, 5, 1, 11)


def luminance(path: Path) -> tuple[float, float]:
    """Return the mean brightness (0 to 1) of an 8-bit RGB or RGBA image, and its spread: text on a background has
    both."""
    data = path.read_bytes()
    width, height, _depth, kind = struct.unpack(">IIBB", data[16:26])
    channels = {2: 3, 6: 4}[kind]
    packed, at = b"", 8
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        if data[at + 4 : at + 8] == b"IDAT":
            packed += data[at + 8 : at + 8 + size]
        at += size + 12
    raw, stride, above = zlib.decompress(packed), width * channels, bytearray(width * channels)
    values: list[int] = []
    for line in range(height):
        filtering, row = raw[line * (stride + 1)], bytearray(raw[line * (stride + 1) + 1 : (line + 1) * (stride + 1)])
        for index in range(stride):
            left = row[index - channels] if index >= channels else 0
            corner = above[index - channels] if index >= channels else 0
            row[index] = (row[index] + _predicted(filtering, left, above[index], corner)) & 255
        above = row
        values += row[1::channels][:: max(1, width // 200)]  # the green channel suffices
    mean = sum(values) / len(values) / 255
    return mean, (max(values) - min(values)) / 255


def _predicted(filtering: int, left: int, up: int, corner: int) -> int:
    if filtering < 4:
        return (0, left, up, (left + up) // 2)[filtering]
    guess = left + up - corner
    return min((left, up, corner), key=lambda value: abs(guess - value))


@pytest.mark.parametrize("dark", [False, True])
def test_page_is_legible_in_light_and_dark_mode(tmp_path: Path, dark: bool) -> None:
    image = tmp_path / "report.png"
    browsing.browse(
        tmp_path,
        page(content()),
        "--virtual-time-budget=5000",
        f"--screenshot={image}",
        "--window-size=500,400",
        *(["--blink-settings=preferredColorScheme=0"] if dark else []),
    )
    mean, spread = luminance(image)
    assert (mean < 0.35) if dark else (mean > 0.8)
    assert spread > 0.6


def test_page_is_printable(tmp_path: Path) -> None:
    paper = tmp_path / "report.pdf"
    browsing.browse(tmp_path, page(content()), "--virtual-time-budget=5000", f"--print-to-pdf={paper}")
    assert paper.read_bytes().startswith(b"%PDF")
    assert paper.stat().st_size > 20_000


def test_report_reads_the_account_names_of_its_period(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, str(tmp_path))
    begin = datetime.combine(DAY, time(6), timezone.utc)
    for number, hour in enumerate((begin, begin + timedelta(hours=20))):
        limits = {"fleet": "prod", "taken": hour, "account": f"KEY{number}", "name_tag": f"APP{number}"}
        frame = spark.createDataFrame([limits], columns("silver", "account_limits"))
        frame.write.parquet(f"{tmp_path}/silver/account_limits/run=r/{place(hour)}")
        lake.repoint("silver", hour, {"format": SILVER_FORMAT, "run": "r", "inputs": [], "quarantined": 0})
    span = (begin, begin + timedelta(days=1))
    found = read_content(lake, DAY + timedelta(days=1), "T", lambda _text: None, span=span)
    assert found["account_names"] == {"KEY0": "APP0", "KEY1": "APP1"}


def test_report_shows_account_names_instead_of_keys(spark: SparkSession) -> None:
    app, one, other = (f"A{letter * 55}" for letter in "BCD")
    reported = [
        ("prod", app, 'APP "1"', BEGIN),
        ("prod", app, "before", BEGIN - timedelta(hours=1)),
        ("prod", one, "TWIN", BEGIN),
        ("prod", other, "TWIN", BEGIN),
        ("prod", "$G", "$G", BEGIN),
        ("prod", "STATIC", None, BEGIN),
    ]
    limits = spark.createDataFrame(reported, "fleet string, account string, name_tag string, taken timestamp")
    names = account_names(limits)
    assert names == {app: 'APP "1"'}
    assert account_names(None) == {}
    known = {"account_names": names, "tables": {"a": [app, f"stream {app}/S", one, f"x{app}", 1]}}
    assert with_account_names(known) == {"tables": {"a": ['APP "1"', 'stream APP "1"/S', one, f"x{app}", 1]}}
