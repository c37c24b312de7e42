# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every check fails and passes as it should, and reports if the data does not suffice."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.health.rules import Limits
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import Peer
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.capture import ENDPOINTS
from jetstream_insights import silver
from jetstream_insights.fields import Bronze
from jetstream_insights.findings import REGISTRY
from jetstream_insights.findings.cluster_checks import IN_STEP, LAG, SEEN
from jetstream_insights.findings.document import page
from jetstream_insights.findings.evaluate import RESULTS, Part, judge, single_results, summary
from jetstream_insights.findings.lifetime import findings
from jetstream_insights.findings.registry import (
    NAMING,
    NO_VALUE,
    Check,
    CheckSettings,
    Registry,
    ThresholdError,
    addressed,
    settings,
    text_sql,
)
from jetstream_insights.findings.subjects import VIEWS
from jetstream_insights.findings.views import MAKE
from jetstream_insights.lake import Lake
from pyspark.sql import DataFrame, Row, SparkSession
from support.findings_cases import (
    CASES,
    GOLD,
    HEALTHY,
    LAST,
    OTHERS,
    OTHERS_OVER_TIME,
    SUBJECT,
    Rows,
    fleet,
    snapshot,
    without,
)

#: The thresholds are lowered, because there are only six snapshots and three leaders.
SETTINGS = CheckSettings(
    {
        **{f"server_{number}_samples": 6.0 for number in (205, 207, 211)},
        "server_208_samples": 3.0,
        "server_202_within": 86400.0,
        "meta_201_within": 86400.0,
        "cluster_105_least": 1.0,
        "consumer_213_changes": 0.0,
        **{f"{check}_reconnects": 3.0 for check in ("route_201", "gateway_201", "leaf_201")},
        **{f"server_22{number}_lines": 3.0 for number in (3, 4, 5, 6)},
    }
)
Result = tuple[str, frozenset[tuple[str, str]]]


@pytest.fixture(scope="module")
def schemas(spark: SparkSession) -> dict[str, Any]:
    """Return the schemas of the silver tables, as the silver job makes them, and of the other tables."""
    lines = Bronze(Lake(spark, "/nowhere").lines([]))
    made: dict[str, DataFrame] = {}
    for name, table in silver.TABLES.items():
        made[name] = table.make(*(lines for _source in table.bronze), *(made[source] for source in table.silver))
    found: dict[str, Any] = {name: frame.schema for name, frame in made.items()}
    return {
        **GOLD,
        **found,
        "snapshots": silver.COLUMNS["snapshots"],
        "failures": silver.failures(lines).schema,
    }


def create_tables(spark: SparkSession, schemas: Mapping[str, Any], folder: Path, rows: Rows) -> dict[str, DataFrame]:
    """Return the rows as tables. A column that does not exist in any table is a mistake in the test."""
    tables = {}
    for name, schema in schemas.items():
        path = folder / f"{name}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows.get(name, ())))
        tables[name] = spark.read.schema(schema).json(str(path))
        if "domain" in tables[name].columns:
            tables[name] = tables[name].na.fill("", ["domain"])
        unknown = {key for row in rows.get(name, ()) for key in row} - set(tables[name].columns)
        assert not unknown, (name, unknown)
    return tables


def add(to: Rows, more: Rows) -> None:
    for name, found in more.items():
        to.setdefault(name, []).extend(found)


def host_facts(servers: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the hosts' rows of these servers; the host named plain has plain-text passwords in its file."""
    return [
        {
            **{name: row[name] for name in ("fleet", "snapshot", "taken", "server")},
            "config_digest": "sha256:n1" if row["server"] == "plain" else f"sha256:{row['server']}",
            "open_files": 65536,
            "plaintext_passwords": 2 if row["server"] == "plain" else 0,
            "disk_free": 2000 << 30,
        }
        for row in servers
    ]


@pytest.fixture(scope="module")
def judged(
    spark: SparkSession, schemas: Mapping[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Row]]:
    """Return all results by fleet."""
    rows: Rows = {}
    add(rows, fleet(HEALTHY, over_time=True))
    for code, case in CASES.items():
        add(rows, fleet(code, VIEWS[REGISTRY.checks[code].view].period, case.changes))
    for endpoint in ENDPOINTS:
        add(rows, fleet(endpoint, True, without(endpoint)))
    for others, over_time in ((OTHERS, False), (OTHERS_OVER_TIME, True)):
        for name, (changes, _expected) in others.items():
            add(rows, fleet(name, over_time, changes))
    silent = {
        "endpoint": "jsz",
        "code": "timeout",
        "description": "no answer in time",
        "server": "n2",
        "server_id": "IDn2",
    }
    mark = {"fleet": "a server is silent", "snapshot": snapshot(LAST), "taken": rows["snapshots"][-1]["taken"]}
    add(rows, fleet("a server is silent", over_time=False))
    rows["failures"] = [{**silent, **mark}, {**silent, **mark, "endpoint": "servers", "server": "n9", "server_id": ""}]
    rows["failures"].append(
        {**silent, **mark, "fleet": "gateways were not reported", "endpoint": "gatewayz", "server": "n1"}
    )
    rows["hosts"] = host_facts(rows["servers"])
    tables = create_tables(spark, schemas, tmp_path_factory.mktemp("findings"), rows)
    found: dict[str, list[Row]] = defaultdict(list)
    for part in judge(tables, [snapshot(LAST)], REGISTRY, SETTINGS):
        for row in confirmed(part).collect():
            found[row["fleet"]].append(row)
    return found


def confirmed(part: Part) -> DataFrame:
    """Return the results, compared with those of the previous snapshot. The findings job compares only grave failures."""
    return single_results(part.confirm(part.rows, part.grave) if part.grave else part.rows)


def results(rows: list[Row], code: str) -> set[Result]:
    """Return the results of a check and their subjects, without names that combine several names."""
    return {
        (row["result"], frozenset((name, row[name]) for name in SUBJECT if row[name] is not None))
        for row in rows
        if row["check"] == code
    }


def subject(check: Check, named: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    found = {name: SUBJECT[name] for name in VIEWS[check.view].keys if name in SUBJECT}
    return frozenset((name, value) for name, value in {**found, **named}.items() if value)


def test_every_check_fails_only_on_its_cases(judged: dict[str, list[Row]]) -> None:
    wrong = {}
    for code, check in REGISTRY.checks.items():
        failed = {about for result, about in results(judged[code], code) if result == "fail"}
        if failed != {subject(check, CASES[code].subject)}:
            wrong[code] = sorted(map(sorted, failed)), [row["text"] for row in judged[code] if row["check"] == code][:3]
    assert not wrong


def test_every_check_passes_on_a_healthy_fleet(judged: dict[str, list[Row]]) -> None:
    assert [(row["check"], row["result"], row["text"]) for row in judged[HEALTHY] if row["result"] != "pass"] == []
    passed = {row["check"] for row in judged[HEALTHY]}
    elsewhere = {
        code
        for name, (_changes, expected) in {**OTHERS, **OTHERS_OVER_TIME}.items()
        for code, (result, _about) in expected.items()
        if result == "pass"
    }
    assert set(REGISTRY.checks) - passed <= elsewhere


def test_missing_facts_give_unknown_results(judged: dict[str, list[Row]]) -> None:
    wrong = {}
    for name, (_changes, expected) in {**OTHERS, **OTHERS_OVER_TIME}.items():
        for code, (result, about) in expected.items():
            found = [
                row
                for row in judged[name]
                if row["check"] == code and all(row[key] == value for key, value in about.items())
            ]
            if {row["result"] for row in found} != ({result} - {"none"}) or any(
                row["result"] != "pass" and not row["text"] for row in found
            ):
                wrong[name, code] = [(row["result"], row["text"]) for row in found]
    assert not wrong
    assert not [
        row for row in judged["the asset is not to be judged"] if row["check"] == "STREAM_108" and row["stream"] == "S"
    ]
    for name in (
        "the skipped messages of a filter are ignored",
        "a work queue keeps unread messages",
    ):
        assert "CONSUMER_112" not in {row["check"] for row in judged[name]}
    assert "CONSUMER_202" not in {
        row["check"] for row in judged["an abandoned consumer"] if row["consumer"] == "worker"
    }
    assert "ACCOUNTS_104" not in {row["check"] for row in judged["no login is required"]}
    # A day with a single snapshot: checks over time are unknown, unless a gold table or a log has the data.
    thin = {row["check"] for row in judged["two clusters"] if row["result"] == "unknown"}
    over_time = {code for code, check in REGISTRY.checks.items() if VIEWS[check.view].period}
    gold_checks = {code for code in over_time if {*VIEWS[REGISTRY.checks[code].view].tables} & {*GOLD, "server_events"}}
    # The streams in that fleet have limits, and the mirror has messages.
    assert over_time - gold_checks - {"STREAM_212", "STREAM_213"} <= thin
    (reason,) = {
        row["text"]
        for row in judged["the asset's threshold is not a number"]
        if row["check"] == "JETSTREAM_003" and row["text"]
    }
    assert reason == "its metadata cannot be read: jetstream_003_bytes"


def test_a_server_that_did_not_answer_is_unknown_to_every_check_that_needs_it(judged: dict[str, list[Row]]) -> None:
    rows = [
        row
        for row in judged["a server is silent"]
        if row["result"] == "unknown" and row["kind"] == "server" and row["text"]
    ]
    silent_checks = {row["check"] for row in rows if row["server"] == "n2" and "did not answer jsz" in row["text"]}
    assert {"STREAM_101", "JETSTREAM_003", "META_002"} <= silent_checks
    assert not {"CONN_101", "ROUTE_101", "FLEET_101"} & silent_checks
    missing = {row["check"] for row in rows if row["server"] == "n9"}
    assert missing == {
        code for code, check in REGISTRY.checks.items() if not VIEWS[check.view].period and check.view != "snapshots"
    }


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_checks_of_an_unrequested_endpoint_are_unknown(judged: dict[str, list[Row]], endpoint: str) -> None:
    """All checks of the healthy fleet still have results, none fails, and only the checks of this endpoint name it."""
    found = defaultdict(set)
    for row in judged[endpoint]:
        found[row["check"]].add(row["result"])
    assert {row["check"] for row in judged[HEALTHY]} - set(found) == set()
    assert not [row for row in judged[endpoint] if row["result"] == "fail"]
    reason = f"the snapshot did not request {endpoint}"
    named = {row["check"] for row in judged[endpoint] if row["text"] == reason}
    alone = {code for code, check in REGISTRY.checks.items() if {*VIEWS[check.view].endpoints} == {endpoint}}
    there = {"clusters", "meta"}  # tables of servers
    assert {code for code in alone if VIEWS[REGISTRY.checks[code].view].name not in there} <= named
    assert {result for code in named for result in found[code]} <= {"unknown"}


def test_severity_rises_and_texts_are_readable(judged: dict[str, list[Row]]) -> None:
    empty = {
        row["text"] for rows in judged.values() for row in rows if row["text"] and re.search(": *(;|$)", row["text"])
    }
    assert empty == set()
    (cpu,) = [row for row in judged["SERVER_003"] if row["check"] == "SERVER_003" and row["result"] == "fail"]
    assert (cpu["value"], cpu["threshold"], cpu["text"]) == (98.75, 90.0, "uses 98.8 % of each of 4 cores")
    (sync,) = [row for row in judged["SERVER_104"] if row["check"] == "SERVER_104" and row["result"] == "fail"]
    assert (sync["severity"], sync["text"]) == ("info", "the disk is synced every 2.0 min")
    (full,) = [row for row in judged["JETSTREAM_003"] if row["check"] == "JETSTREAM_003" and row["result"] == "fail"]
    # Only limits that the stream has are shown.
    assert (full["severity"], full["text"]) == ("warning", "1020.0 MiB of 1.0 GiB, discard old")
    (behind,) = [row for row in judged["JETSTREAM_001"] if row["check"] == "JETSTREAM_001" and row["result"] == "fail"]
    assert (behind["peer"], behind["value"]) == ("n2", 1005.0)
    grave = {
        row["check"]: row for row in judged["critical in the last snapshot alone"] if row["severity"] == "critical"
    }
    assert grave["CONSUMER_102"]["result"] == "fail"
    (first,) = [
        row
        for row in judged["critical in the last snapshot alone"]
        if row["check"] == "STREAM_107" and row["result"] == "fail"
    ]
    assert (first["severity"], first["text"]) == ("warning", "3 messages (0 B) are lost; not in the snapshot before")
    assert first["remedy"].startswith("`nats_stream_stepdown` (`account: A, stream: S`) to")
    cut_off = {row["check"]: row["value"] for row in judged["a counter fell within a start"] if row["result"] == "fail"}
    assert cut_off == {"SERVER_004": 3, "ACCOUNTS_202": 3}
    (filled,) = [row for row in judged["ACCOUNTS_101"] if row["check"] == "ACCOUNTS_101" and row["result"] == "fail"]
    assert (filled["severity"], filled["text"]) == ("critical", "9.9 GiB of 10.0 GiB on disk")
    for rows in judged.values():
        for row in rows:
            assert (row["text"] is None) == (row["result"] == "pass"), row
            assert row["since"] <= row["taken"]


def test_missing_tables_give_unknown_results_and_counts_add_up(
    spark: SparkSession, schemas: Mapping[str, Any], tmp_path: Path
) -> None:
    few = Registry()
    few.add(*(REGISTRY.checks[code] for code in ("HOST_101", "STREAM_201", "SERVER_007", "SERVER_003")))
    tables = create_tables(spark, schemas, tmp_path, fleet("few", False, CASES["SERVER_003"].changes))
    for name in ("hosts", "leadership"):
        del tables[name]
    parts = judge(tables, [snapshot(LAST)], few, CheckSettings(skip=frozenset({"SERVER_007"})))
    made = reduce(DataFrame.unionByName, map(confirmed, parts)).cache()
    rows = {row["check"]: row.asDict() for row in summary(made, few).collect()}
    kept = findings(made, summary(made, few), few.checks).collect()
    made.unpersist()
    assert set(rows) == {"HOST_101", "STREAM_201", "SERVER_003"}
    assert [rows["SERVER_003"][name] for name in ("failed", "critical", "unknown", "passed")] == [1, 1, 0, 4]
    assert rows["HOST_101"]["unknown"] == rows["STREAM_201"]["unknown"] == 1
    assert {(row["check"], row["text"]) for row in kept if row["result"] == "unknown"} == {
        ("HOST_101", "no host was read (docs/insights.md)"),
        ("STREAM_201", "there is no table leadership"),
    }
    assert len(kept) == 3
    assert tuple(made.columns) == RESULTS


def test_views_read_only_their_declared_tables(spark: SparkSession, schemas: Mapping[str, Any], tmp_path: Path) -> None:
    """The findings job reads only the declared tables of the views whose checks are enabled."""
    tables = create_tables(spark, schemas, tmp_path, {})
    undeclared = {}
    for view in VIEWS.values():
        declared = {name: tables[name] for name in {*view.tables, "failures", "servers", "snapshots"}}
        try:
            MAKE[view.name](declared)
        except KeyError as error:
            undeclared[view.name] = str(error)
    assert not undeclared


# --- without Spark ------------------------------------------------------------------------------------------------------------


def test_every_check_has_a_case_and_a_remedy() -> None:
    assert set(CASES) == set(REGISTRY.checks)
    assert len(REGISTRY.checks) >= 180
    for code, check in REGISTRY.checks.items():
        assert re.fullmatch(r"[A-Z]+_\d{3}", code)
        assert check.severity in ("critical", "warning", "info")
        assert check.view in VIEWS
        for text in (check.title, check.rationale, check.remedy, check.source, check.text):
            assert text, code
        keys = {threshold.key for threshold in check.thresholds}
        used = set(
            re.findall(
                r"(?<![\w:]):([a-z_]+)", " ".join((check.fails, check.worse, check.knows, check.value, check.against))
            )
        )
        assert used <= keys, code
        assert keys <= used, f"{code}: a threshold is not used"


def test_registry_has_all_checks_of_nats_audit() -> None:
    audit = {
        "ACCOUNTS": 1,
        "CLUSTER": 4,
        "JETSTREAM": 5,
        "LEAF": 1,
        "META": 2,
        "SERVER": 8,
    }
    wanted = {f"{suite}_{number:03}" for suite, many in audit.items() for number in range(1, many + 1)}
    assert len(wanted) == 21
    assert {code for code in REGISTRY.checks if int(code[-3:]) < 100} == wanted


def test_remedies_name_existing_modules_and_options() -> None:
    root = Path(__file__).parents[2]
    modules = {path.stem for path in (root / "plugins" / "modules").glob("*.py")}
    playbooks = {path.stem for path in (root / "playbooks").glob("*.yml")}
    variables = "".join(path.read_text() for path in (root / "roles").glob("*/defaults/main.yml")) + "".join(
        path.read_text() for path in (root / "roles").glob("*/meta/argument_specs.yml")
    )
    for code, check in REGISTRY.checks.items():
        for name in re.findall(r"(?:playbooks?|or|and|with) `([a-z_]+)`", check.remedy):
            assert name in playbooks | modules or name in variables or not name.startswith("nats_"), (code, name)
        for name in re.findall(r"playbook `([a-z_]+)`", check.remedy):
            assert name in playbooks, (code, name)
        for name in re.findall(r"`(nats_[a-z_]+)`", check.remedy):
            assert name in modules or re.search(rf"\b{name}\b", variables), (code, name)
        acts = [
            name
            for name in re.findall(r"`([a-z_]+)`", check.remedy)
            if name in modules | playbooks or (name.startswith("nats_") and re.search(rf"\b{name}:", variables))
        ]
        assert acts, f"{code}: its remedy names no module, playbook or variable"


def test_measured_values_are_steady_and_counts_or_settings_are_not() -> None:
    steady = {code for code, check in REGISTRY.checks.items() if check.steady}
    assert {
        "CAPACITY_201",
        "SERVER_003",
        "JETSTREAM_003",
        "CONN_101",
        "BACKUP_103",
        "STREAM_203",
        "CONSUMER_202",
    } <= steady
    # Checks of counts and of configured values have no margin. Checks that also depend on another threshold or on
    # another server have no margin, either.
    for code in ("STREAM_114", "STREAM_201", "SERVER_118", "SERVER_104", "CLUSTER_104", "CLUSTER_105", "SERVER_107"):
        assert code not in steady
    for code in steady:
        assert all(threshold.default > 0 for threshold in REGISTRY.checks[code].thresholds), code


def test_subject_fields_are_options_of_modules_and_playbooks() -> None:
    root = Path(__file__).parents[2]
    shared = "".join(path.read_text() for path in (root / "plugins" / "doc_fragments").glob("*.py"))
    variables = "".join(path.read_text() for path in (root / "roles").glob("*/meta/argument_specs.yml"))
    mentioned = set(re.findall(r"`([a-z_]+)`", " ".join(check.remedy for check in REGISTRY.checks.values())))
    assert set(NAMING) <= mentioned
    for name, options in ((name, options) for name, choices in NAMING.items() for options in choices):
        module = root / "plugins" / "modules" / f"{name}.py"
        known = module.read_text() + shared if module.exists() else variables
        for option in re.findall(r"(\w+): \[?\{", options):
            assert re.search(rf"^ +{option}:$", known, re.MULTILINE), (name, option)
    remedy = "`nats_stream` with `max_age`; `nats_stream` again; `nats_consumer`; `replace`"
    assert addressed(remedy, ("account", "stream")) == (
        "`nats_stream` (`account: {account}, stream: {stream}`) with `max_age`; `nats_stream` again; `nats_consumer`; `replace`"
    )
    remedy = "`nats_stream_stepdown`"
    assert addressed(remedy, ("account", "stream")) == f"{remedy} (`account: {{account}}, stream: {{stream}}`)"
    assert addressed(remedy, ("account", "stream", "consumer")) == (
        f"{remedy} (`account: {{account}}, stream: {{stream}}, consumer: {{consumer}}`)"
    )


def test_unknown_thresholds_are_refused() -> None:
    given = settings(REGISTRY, {"server_003_cpu": 80, "skip": ["STREAM_103"]})
    assert (given.thresholds, given.skip) == ({"server_003_cpu": 80.0}, frozenset({"STREAM_103"}))
    for wrong, said in (
        ({"server_003_cpus": 80}, r"the threshold server_003_cpus \(similar: server_003_cpu[,)]"),
        *(({"server_003_cpu": value}, "not a number") for value in ("80", True, None, -5, float("nan"), float("inf"))),
        ({"skip": ["SERVER_999"]}, "SERVER_999"),
        ([], "object"),
    ):
        with pytest.raises(ThresholdError, match=said):
            settings(REGISTRY, wrong)


def test_peer_is_in_step_like_in_the_health_gate(spark: SparkSession) -> None:
    known = [
        Peer("n2", current=current, offline=offline, active=active, lag=lag)
        for current in (True, False)
        for offline in (True, False)
        for active in (0.0, 0.2, 5.0, 5.1)
        for lag in (0, 3, 200, 201)
    ]
    reported = [(peer.current, peer.offline, int(peer.active * 1e9), peer.lag) for peer in known]
    frame = spark.createDataFrame(reported, "current boolean, offline boolean, active bigint, lag bigint")
    counts = IN_STEP.replace(":seen", str(SEEN.default)).replace(":lag", str(LAG.default)).replace("p.", "")
    found = [row.counts for row in frame.selectExpr(f"{counts} AS counts").collect()]
    assert found == [Limits().in_step(peer) for peer in known]
    assert {True, False} == set(found)


def test_every_compared_value_has_a_unit() -> None:
    valued = {code: check for code, check in REGISTRY.checks.items() if check.value != NO_VALUE}
    assert [code for code, check in valued.items() if not check.measured_in] == []
    units = {
        code: REGISTRY.checks[code].measured_in for code in ("CONSUMER_105", "CONSUMER_106", "HOST_102", "CAPACITY_201")
    }
    assert units == {"CONSUMER_105": "%", "CONSUMER_106": "messages", "HOST_102": "files", "CAPACITY_201": "days"}


def test_texts_become_expressions() -> None:
    assert (
        text_sql("it's {a|percent}")
        == "concat('it\\'s ', coalesce(format_string('%.1f %%', 100 * CAST(a AS DOUBLE)), '?'))"
    )


def test_counted_nouns_are_singular_for_one(spark: SparkSession) -> None:
    text = text_sql("{n|count streams} with {n|count replicas} and {n|count entries}")
    found = spark.sql(f"SELECT {text} FROM VALUES (1), (1200) AS t(n)").collect()
    assert [row[0] for row in found] == [
        "1 stream with 1 replica and 1 entry", "1,200 streams with 1,200 replicas and 1,200 entries",
    ]  # fmt: skip


def test_page_of_checks_gives_units() -> None:
    assert {"- value: in %", "- value: in messages"} <= set(page().splitlines())


def test_duplicate_check_codes_are_refused() -> None:
    with pytest.raises(ValueError, match="SERVER_001"):
        Registry({"SERVER_001": REGISTRY.checks["SERVER_001"]}).add(REGISTRY.checks["SERVER_001"])
