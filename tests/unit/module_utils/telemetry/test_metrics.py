# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the metrics: their values for known clusters, their number, which depends only on the servers, and the limits
of lists."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.expiry import Expiry
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.drift import DocumentDrift, Drift
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.catalogue import Catalogue
from ansible_collections.natsops.jetstream.plugins.module_utils.health.cause import KINDS, build_context
from ansible_collections.natsops.jetstream.plugins.module_utils.health.causes import root_causes
from ansible_collections.natsops.jetstream.plugins.module_utils.health.rules import (
    Expectations,
    StopPolicy,
    health_problems,
    stop_problems,
    stoppable_servers,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.maintenance import Mark
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import Cluster, Health, JetStreamSummary
from ansible_collections.natsops.jetstream.plugins.module_utils.problem import ERROR, WARNING
from ansible_collections.natsops.jetstream.plugins.module_utils.roll.journal import Journal, Run
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.metrics import (
    MAX_JWTS,
    METRICS,
    STATES,
    Exposition,
    Fault,
    FaultList,
    Sweep,
    backup_metrics,
    cause_metrics,
    cluster_metrics,
    drift_metrics,
    journal_metrics,
    jwt_metrics,
    report_metrics,
)
from hypothesis import given
from hypothesis import strategies as st
from support.clusters import cluster, clusters, consumer, server, stream

NAMES = ["n1", "n2", "n3"]

EXPIRING = Expiry("user", "ADLW5Q2H6YQO", "ORDERS", "app", "UDXB2VGZ", "shop", 1_800_000_000, 12, ERROR, "closed")


def values(out: Exposition, name: str) -> dict[tuple[str, ...], float]:
    return next((dict(samples) for metric, samples in out.families() if metric.name == name), {})


def read(live: Cluster, expected: Iterable[str] = (), **changes: Any) -> Sweep:
    names = frozenset(expected)
    problems = health_problems(live, Expectations(names or None, names or None))
    return Sweep(live, problems, expected=dict.fromkeys(names, "C1"), **changes)


def metrics(reading: Sweep, looks: int = 1, limit: int = 10) -> Exposition:
    faults = FaultList(limit)
    for number in range(looks):
        out = Exposition("test")
        cluster_metrics(out, reading, faults, number)
    return out


def test_a_healthy_cluster() -> None:
    orders = stream("ORDERS", NAMES)
    live = cluster(NAMES, replace(orders, consumers=(consumer("ORDERS", "worker", NAMES),)), stream("ONE", ["n2"]))
    out = metrics(read(live, NAMES), looks=2)
    assert values(out, "natsops_server_can_stop") == {("C1", name): 1 for name in NAMES}
    assert values(out, "natsops_servers_stoppable") == {("C1",): 3}
    assert values(out, "natsops_servers") == {("C1", "answered"): 3, ("C1", "missing"): 0, ("C1", "maintenance"): 0}
    states = values(out, "natsops_groups")
    assert {key: count for key, count in states.items() if count} == {
        ("C1", "stream", "ok"): 2,
        ("C1", "consumer", "ok"): 1,
    }
    assert len(states) == 2 * len(STATES)
    assert values(out, "natsops_group_quorum_margin_min") == {
        ("C1", "meta", "3"): 1,
        ("C1", "stream", "3"): 1,
        ("C1", "stream", "1"): 0,
        ("C1", "consumer", "3"): 1,
    }
    assert set(values(out, "natsops_groups_without_margin").values()) == {0}
    assert values(out, "natsops_meta_leader_known") == {(): 1}
    two = metrics(read(cluster(NAMES, stream("TWO", NAMES[:2]))))
    assert values(two, "natsops_group_quorum_margin_min")[("C1", "stream", "2")] == 0
    assert set(values(two, "natsops_groups_without_margin").values()) == {0}
    assert values(out, "natsops_asset_at_fault") == {}


def test_a_dead_server() -> None:
    """The dead server's groups have no spare replica, no other server can be stopped, and a stream without a leader is
    named from the second sample on."""
    live = cluster(NAMES, stream("ORDERS", NAMES), stream("LOST", NAMES, led=False))
    live = replace(live, servers=live.servers[:2])
    reading = read(live, NAMES)
    first = metrics(reading)
    assert values(first, "natsops_server_up") == {("C1", "n1"): 1, ("C1", "n2"): 1, ("C1", "n3"): 0}
    assert values(first, "natsops_servers")[("C1", "missing")] == 1
    assert values(first, "natsops_servers_stoppable") == {("C1",): 0}
    assert values(first, "natsops_groups_without_margin")[("C1", "stream", "3")] == 2
    assert values(first, "natsops_groups")[("C1", "stream", "no_leader")] == 1
    assert values(first, "natsops_asset_at_fault") == {}
    named = values(metrics(reading, looks=2), "natsops_asset_at_fault")
    assert named[("C1", "stream", "APP", "LOST", "", "no_leader")] == 1
    out = Exposition("test")
    cause_metrics(out, root_causes(reading.problems, build_context(live, {})))
    assert values(out, "natsops_root_causes")[("servers_down", ERROR)] == 1
    assert len(values(out, "natsops_root_causes")) == 2 * len(KINDS)


def test_a_server_in_maintenance_is_excused() -> None:
    live = replace(cluster(NAMES, stream("ORDERS", NAMES)), servers=cluster(NAMES).servers[:2])
    problems = health_problems(live, Expectations(frozenset(NAMES), frozenset(NAMES)))
    mark = Mark("n3", "ops", 0.0, 4e9)
    out = metrics(Sweep(live, (), problems, dict.fromkeys(NAMES, "C1"), {"n3": mark}))
    assert values(out, "natsops_servers")[("C1", "maintenance")] == 1
    assert values(out, "natsops_servers")[("C1", "missing")] == 0
    assert values(out, "natsops_groups")[("C1", "stream", "tolerated")] == 1
    assert values(out, "natsops_maintenance_until_timestamp_seconds") == {("n3",): 4e9}


def test_a_ghost_belongs_to_the_cluster_that_reports_it() -> None:
    errors = ("JetStream consumer 'APP > ORDERS > gone' consumer not found",)
    ill = [server(name, uptime=99.0, health=Health("unavailable", 503, errors)) for name in NAMES]
    live = replace(cluster(NAMES, stream("ORDERS", NAMES)), servers=tuple(ill))
    out = metrics(read(live, NAMES), looks=2)
    assert values(out, "natsops_groups")[("C1", "consumer", "ghost")] == 1
    assert values(out, "natsops_asset_at_fault") == {("C1", "consumer", "APP", "ORDERS", "gone", "ghost"): 1}
    assert set(values(out, "natsops_server_healthy").values()) == {1}


def test_certificates_configuration_and_findings_are_of_varz() -> None:
    def varz(name: str, payload: int) -> dict[str, Any]:
        return {
            "server_name": name,
            "now": "2026-11-24T00:00:00Z",
            "tls_cert_not_after": "2026-11-27T00:00:00Z",
            "cluster": {"tls_cert_not_after": "2027-11-24T00:00:00Z"},
            "config_load_time": "2026-11-20T10:00:00.5Z",
            "config_digest": f"sha256:{name}",
            "max_payload": payload,
        }

    live = cluster(NAMES[:2])
    out = metrics(Sweep(live, varz={"Nn1": varz("n1", 1), "Nn2": varz("n2", 2)}))
    ends = values(out, "natsops_server_certificate_expiry_timestamp_seconds")
    assert ends[("C1", "n1", "cluster")] - ends[("C1", "n1", "server")] == 362 * 86400
    assert values(out, "natsops_findings") == {
        ("C1", "certificate", "critical"): 2,
        ("C1", "config_differs", "warning"): 1,
    }
    assert values(out, "natsops_server_config_info")[("C1", "n2", "sha256:n2")] == 1


def test_a_silent_source_counts_with_any_lag() -> None:
    infos: list[dict[str, Any]] = [
        {"mirror": {"name": "A", "lag": 7, "active": 100}},
        {"sources": [{"name": "A", "lag": 0, "active": -1}, {"name": "B", "active": 1, "error": {"code": 1}}]},
    ]
    streams = [replace(stream(f"S{number}", NAMES), info=info) for number, info in enumerate(infos)]
    out = metrics(read(cluster(NAMES, *streams)))
    assert values(out, "natsops_source_lag_max") == {("C1",): 7}
    assert values(out, "natsops_sources") == {("C1", "ok"): 1, ("C1", "silent"): 1, ("C1", "failing"): 1}


def test_chosen_streams_have_series_up_to_the_limit() -> None:
    streams = [replace(stream(f"S{number}", NAMES), messages=number, max_bytes=number) for number in range(20)]
    out = metrics(read(cluster(NAMES, *streams), selected=["APP/S1*"]), limit=5)
    assert values(out, "natsops_stream_messages") == {
        ("C1", "APP", name): float(name[1:]) for name in ("S1", "S10", "S11", "S12", "S13")
    }
    assert values(out, "natsops_assets_omitted") == {("at_fault",): 0, ("selected",): 6}
    assert values(metrics(read(cluster(NAMES, *streams))), "natsops_stream_messages") == {}


@given(clusters())
def test_a_server_can_stop_when_the_gate_would_let_it(live: Cluster) -> None:
    policy = StopPolicy()
    assert stoppable_servers(live, policy) == {
        name: not any(problem.severity == ERROR for problem in stop_problems(live, [name], policy))
        for name in live.names
    }


@given(clusters(), st.integers(0, 3), st.integers(1, 4))
def test_the_number_of_series_follows_from_the_servers(live: Cluster, limit: int, times: int) -> None:
    """Ten times as many streams yield the same number of series, except for the series of faults, whose number is
    limited."""
    more = tuple(
        replace(one, name=f"{one.name}-{copy}", group=replace(one.group, subject=f"{one.group.subject}-{copy}"))
        for one in live.streams
        for copy in range(10 * times)
    )
    few, many = (metrics(read(one), 2, limit) for one in (live, replace(live, streams=(*live.streams, *more))))
    assert len(values(many, "natsops_asset_at_fault")) <= limit
    assert many.series - len(values(many, "natsops_asset_at_fault")) == few.series - len(
        values(few, "natsops_asset_at_fault")
    )


FAULTS = st.builds(
    Fault,
    st.sampled_from(["C1", "C2"]),
    st.sampled_from(["stream", "consumer"]),
    st.just("APP"),
    st.sampled_from([f"S{number}" for number in range(6)]),
    st.just(""),
    st.sampled_from(STATES[:-2]),
)


@given(st.integers(0, 4), st.lists(st.sets(FAULTS, max_size=12), min_size=2, max_size=6))
def test_the_list_of_faults_holds_no_more_than_its_limit(limit: int, looks: list[set[Fault]]) -> None:
    """A fault that was seen only once is not in the list. A fault that was seen twice is listed or counted; the worst
    faults come first."""
    faults = FaultList(limit, linger=1000)
    seen: dict[Fault, int] = {}
    shown: set[Fault] = set()
    for now, found in enumerate(looks):
        rows, omitted = faults.look(found, now)
        for fault in list(seen):
            if fault not in found and fault not in shown:
                del seen[fault]
        for fault in found:
            seen[fault] = seen.get(fault, 0) + 1
            if seen[fault] > 1:
                shown.add(fault)
        assert len(rows) <= limit
        assert len(rows) + omitted == len(shown)
        assert {fault for fault, _present in rows} <= shown
        assert all(present == (fault in found) for fault, present in rows)
        assert [fault for fault, present in rows if present] == sorted(found & shown, key=lambda one: one.order)[:limit]


def test_a_fault_ends_with_a_good_value() -> None:
    fault = Fault("C1", "stream", "APP", "S", "", "no_leader")
    faults = FaultList(5, linger=600)
    assert [faults.look([fault], now)[0] for now in (0, 30)] == [[], [(fault, True)]]
    assert faults.look([], 60)[0] == [(fault, False)]
    assert faults.look([], 629)[0] == [(fault, False)]
    assert faults.look([], 630)[0] == []


def test_labels_are_the_metrics_own() -> None:
    with pytest.raises(ValueError, match="natsops_up has the labels"):
        Exposition("test").add("natsops_up", 1, cluster="C1")


def test_names_follow_the_rules_of_prometheus() -> None:
    for metric in METRICS:
        assert re.fullmatch(r"natsops(_[a-z0-9]+)+", metric.name), metric.name
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert not {"fleet", "instance", "job"} & set(metric.labels), metric.name
        assert metric.about.endswith("."), metric.name
    assert len({metric.name for metric in METRICS}) == len(METRICS)


# --- Operations, backups and their files
# -----------------------------------------------------------------------------------


def test_an_operation_by_its_journal() -> None:
    out = Exposition("test")
    run = Run("r", 100.0, 160.0, batch=3, batches=5, began=150.0, took=(20.0, 30.0))
    journal_metrics(out, Journal({"C1": run}), now=160.0)
    assert values(out, "natsops_roll_in_progress") == {("C1",): 1}
    # There are three batches of 25 s; the first began 10 s ago.
    assert values(out, "natsops_roll_left_seconds") == {("C1",): 65}
    assert (values(out, "natsops_roll_batch"), values(out, "natsops_roll_batches")) == ({("C1",): 3}, {("C1",): 5})


def test_backups_by_their_catalogue() -> None:
    catalogue = Catalogue(exclude=("APP/TEMP",))
    catalogue = catalogue.saved("APP/A", "2026-11-23T02:00:00Z").saved("APP/B", "2026-11-24T02:00:00Z")
    catalogue = catalogue.failed("APP/B", "no quorum").saved("APP/TEMP", "2020-01-01T00:00:00Z")
    catalogue = catalogue.proven("APP/A", {"time": "2026-11-24T03:00:00Z", "ok": True, "seconds": 1.5})
    out = Exposition("test")
    backup_metrics(out, catalogue)
    assert values(out, "natsops_backup_streams") == {("saved",): 1, ("failed",): 1, ("never",): 0, ("excluded",): 1}
    assert values(out, "natsops_backup_proofs") == {("proven",): 1, ("failed",): 0, ("never",): 1}
    oldest = values(out, "natsops_backup_oldest_timestamp_seconds")[()]
    assert values(out, "natsops_backup_newest_timestamp_seconds")[()] - oldest == 86400
    assert values(out, "natsops_backup_newest_proof_timestamp_seconds")[()] - oldest == pytest.approx(25 * 3600, abs=1)


def test_series_of_jwts_are_the_earliest_of_each_account_and_role() -> None:
    later = replace(EXPIRING, subject="UB", expires=1_900_000_000, connections=5, severity=WARNING)
    far = replace(EXPIRING, role="report", expires=2_000_000_000, connections=3, severity="")
    operators = [
        Expiry("operator", "", "", "", f"O{number}", "", 2_100_000_000 + number, 0, "", "") for number in range(2)
    ]
    accounts = [replace(EXPIRING, kind="account", account_name=f"A{number}", role="") for number in range(MAX_JWTS)]
    out = Exposition("test")
    jwt_metrics(out, [EXPIRING, later, far, *operators])
    assert values(out, "natsops_jwt_expiry_timestamp_seconds") == {
        ("user", "ORDERS", "app"): 1_800_000_000,
        ("user", "ORDERS", "report"): 2_000_000_000,
        ("operator", "", ""): 2_100_000_000,
    }
    assert values(out, "natsops_jwt_expiring_connections") == {
        ("user", "ORDERS", "app", "error"): 12,
        ("user", "ORDERS", "app", "warning"): 5,
    }
    many = Exposition("test")
    jwt_metrics(many, [*accounts, later])
    assert len(values(many, "natsops_jwt_expiry_timestamp_seconds")) == MAX_JWTS
    assert ("user", "ORDERS", "app") not in values(many, "natsops_jwt_expiry_timestamp_seconds")


DRIFT = Drift(
    datetime(2026, 11, 29, 2, tzinfo=timezone.utc),
    [
        DocumentDrift("orders", "C1", "APP", "", 12, 2, ["stream S: change"]),
        DocumentDrift("billing", "C1", "APP", "no room", 3, 0, []),
    ],
)


def test_drift_by_document() -> None:
    out = Exposition("test")
    drift_metrics(out, DRIFT)
    drifting = {("C1", "APP", "orders"): 2, ("C1", "APP", "billing"): 0}
    assert values(out, "natsops_assets_drifting") == drifting
    assert values(out, "natsops_assets_compared")["C1", "APP", "orders"] == 12
    assert values(out, "natsops_assets_plan_refused") == {(): 1}
    assert values(out, "natsops_assets_compared_timestamp_seconds") == {(): DRIFT.checked.timestamp()}


def report(**tables: tuple[list[str], list[list[Any]]]) -> dict[str, Any]:
    return {
        "generated": "2026-11-24T00:00:00Z",
        "tables": {
            name: {"columns": [[column, "", ""] for column in columns], "rows": rows}
            for name, (columns, rows) in tables.items()
        },
    }


def test_findings_and_forecasts_of_the_last_report() -> None:
    checks = ["fleet", "check", "severity", "failed", "critical", "taken"]
    capacity = ["fleet", "scope", "name", "resource", "full_p10", "full_p50", "full_p90"]
    content = report(
        checks=(
            checks,
            [
                ["test", "SERVER_003", "warning", 5, 2, "2026-11-24T02:00:00Z"],
                ["test", "SERVER_003", "warning", 9, 9, "2026-11-24T01:00:00Z"],
                ["test", "META_001", "critical", 1, 0, "2026-11-24T01:00:00Z"],
                ["another", "META_001", "critical", 7, 7, "2026-11-24T03:00:00Z"],
            ],
        ),
        causes=(["fleet", "kind"], [["test", "servers_down"], ["another", "snapshots_stopped"]]),
        capacity=(
            capacity,
            [["test", "server", "n1", "file", 3.5, None, 9.0], ["test", "stream", "APP/ORDERS", "file", 1.0, 1.0, 1.0]],
        ),
    )
    out = Exposition("test")
    report_metrics(out, content)
    assert values(out, "natsops_insights_report_timestamp_seconds")[()] == 1795478400
    assert values(out, "natsops_insights_snapshots_stopped")[()] == 0
    assert values(out, "natsops_insights_findings") == {
        ("SERVER_003", "critical"): 2,
        ("SERVER_003", "warning"): 3,
        ("META_001", "critical"): 1,
    }
    assert values(out, "natsops_insights_full_days") == {
        ("server", "n1", "file", "p10"): 3.5,
        ("server", "n1", "file", "p90"): 9.0,
    }


def test_report_of_a_fleet_without_recent_snapshots() -> None:
    out = Exposition("test")
    report_metrics(out, report(causes=(["fleet", "kind"], [["test", "snapshots_stopped"]])))
    assert values(out, "natsops_insights_snapshots_stopped")[()] == 1


def test_each_metric_is_fed() -> None:
    """The metrics of the sweep itself are excluded: test_exporter tests them with real servers."""
    worker = replace(consumer("ORDERS", "worker", NAMES), durable=True)
    orders = replace(
        stream("ORDERS", NAMES), consumers=(worker,), max_bytes=1, info={"mirror": {"name": "A", "lag": 1}}
    )
    summary = JetStreamSummary(storage=1, reserved_storage=1, max_storage=1)
    live = cluster(NAMES, orders, stream("LOST", NAMES, led=False))
    live = replace(live, servers=tuple(replace(one, summary=summary) for one in live.servers[:2]))
    tls = {"tls_cert_not_after": "2026-11-27T00:00:00Z", "now": "2026-11-25T00:00:00Z"}
    varz = {"config_load_time": "2026-11-20T10:00:00.5Z", "config_digest": "sha256:1", **tls}
    marks = {"n3": Mark("n3", "ops", 0.0, 4e9)}
    out = metrics(read(live, NAMES, selected=["*"], varz={"Nn1": varz}, marks=marks), looks=2)
    cause_metrics(out, ())
    journal_metrics(out, Journal({"C1": Run("r", 100.0, 160.0, batch=3, batches=5, began=150.0, took=(20.0,))}), 160.0)
    catalogue = Catalogue().saved("APP/A", "2026-11-23T02:00:00Z")
    backup_metrics(out, catalogue.proven("APP/A", {"time": "2026-11-24T03:00:00Z", "ok": True, "seconds": 1.5}))
    drift_metrics(out, DRIFT)
    columns = ["fleet", "check", "severity", "failed", "critical", "taken"]
    capacity = ["fleet", "scope", "name", "resource", "full_p10", "full_p50", "full_p90"]
    checks = (columns, [["test", "META_001", "critical", 1, 0, "2026-11-24T01:00:00Z"]])
    jwt_metrics(out, [EXPIRING])
    report_metrics(out, report(checks=checks, capacity=(capacity, [["test", "server", "n1", "file", 1.0, 2.0, 3.0]])))
    fed = {metric.name for metric, samples in out.families() if samples}
    sweep_metrics = {
        metric.name for metric in METRICS if re.match("natsops_(sweep|up|failure|input|series)", metric.name)
    }
    assert {metric.name for metric in METRICS} - fed == sweep_metrics
