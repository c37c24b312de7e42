# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the alert rules in Prometheus' own promtool: each rule fires for its condition, and none fires for a healthy
fleet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from support.alerts import ALERTS, CHECK_ALERTS, RULES, promtool, runbook

#: The labels of a server's series.
JWT = 'fleet="f",kind="user",account="ORDERS",role="app"'
SERVER = 'fleet="f",cluster="C1",server="n1"'
DOCUMENT = 'fleet="f",cluster="C1",account="APP",document="orders"'
#: The samples are taken at 0 s of Unix time, in 1970.
DAY = 86400
#: The series of a healthy fleet; a test case replaces or adds some.
HEALTHY = {
    'natsops_findings{fleet="f",cluster="C1",code="config_differs",severity="note"}': 1,
    'natsops_up{fleet="f"}': 1,
    f"natsops_server_up{{{SERVER}}}": 1,
    'natsops_groups{fleet="f",cluster="C1",kind="stream",state="ok"}': 9,
    'natsops_groups{fleet="f",cluster="C1",kind="stream",state="no_leader"}': 0,
    'natsops_groups_without_margin{fleet="f",cluster="C1",kind="stream",replicas="3"}': 0,
    'natsops_meta_leader_known{fleet="f"}': 1,
    'natsops_meta_pending{fleet="f"}': 0,
    'natsops_root_causes{fleet="f",kind="storage",severity="error"}': 0,
    f"natsops_server_storage_used_bytes{{{SERVER}}}": 10,
    f"natsops_server_storage_limit_bytes{{{SERVER}}}": 100,
    f'natsops_server_certificate_expiry_timestamp_seconds{{{SERVER},listener="server"}}': 300 * DAY,
    'natsops_sources{fleet="f",cluster="C1",state="silent"}': 0,
    'natsops_roll_in_progress{fleet="f",cluster="C1"}': 0,
    'natsops_roll_failed{fleet="f",cluster="C1"}': 0,
    'natsops_roll_event_timestamp_seconds{fleet="f",cluster="C1"}': 0,
    'natsops_backup_streams{fleet="f",state="saved"}': 9,
    'natsops_backup_streams{fleet="f",state="failed"}': 0,
    'natsops_backup_oldest_timestamp_seconds{fleet="f"}': 0,
    'natsops_backup_proofs{fleet="f",state="failed"}': 0,
    f"natsops_assets_drifting{{{DOCUMENT}}}": 0,
    'natsops_assets_plan_refused{fleet="f"}': 0,
    'natsops_assets_compared_timestamp_seconds{fleet="f"}': 0,
    'natsops_insights_report_timestamp_seconds{fleet="f"}': 0,
    'natsops_insights_snapshots_stopped{fleet="f"}': 0,
    'natsops_insights_findings{fleet="f",check="SERVER_003",severity="critical"}': 0,
    'natsops_insights_findings{fleet="f",check="SERVER_008",severity="warning"}': 4,
    'natsops_insights_full_days{fleet="f",scope="server",name="n1",resource="file",quantile="p10"}': 90,
    'natsops_input_readable{fleet="f",input="journal"}': 1,
    'natsops_assets_omitted{fleet="f",list="at_fault"}': 0,
}


def cause(kind: str) -> dict[str, float]:
    return {f'natsops_root_causes{{fleet="f",kind="{kind}",severity="error"}}': 1}


def groups(state: str) -> dict[str, float]:
    return {f'natsops_groups{{fleet="f",cluster="C1",kind="stream",state="{state}"}}': 3}


#: The series that make each alert fire; None removes one.
FIRES: dict[str, dict[str, Any]] = {
    "NatsopsClusterUnreachable": {'natsops_up{fleet="f"}': 0},
    "NatsopsExporterAbsent": {'natsops_up{fleet="f"}': None},
    "NatsopsServerDown": {f"natsops_server_up{{{SERVER}}}": 0},
    "NatsopsSiteDown": cause("site_down"),
    "NatsopsQuorumLost": groups("no_leader"),
    "NatsopsMetaLeaderless": {'natsops_meta_leader_known{fleet="f"}': 0},
    "NatsopsMetaOverloaded": {'natsops_meta_pending{fleet="f"}': 101},
    "NatsopsNoQuorumMargin": {
        'natsops_groups_without_margin{fleet="f",cluster="C1",kind="stream",replicas="3"}': 2,
    },
    "NatsopsReplicasBehind": groups("replica_behind"),
    "NatsopsAssetBroken": groups("ghost"),
    "NatsopsMoveStuck": groups("moving"),
    "NatsopsStorageFault": cause("storage"),
    "NatsopsStorageNearlyFull": {f"natsops_server_storage_used_bytes{{{SERVER}}}": 91},
    "NatsopsStorageFillsUp": {
        'natsops_insights_full_days{fleet="f",scope="server",name="n1",resource="file",quantile="p10"}': 6,
    },
    "NatsopsVersionDefect": cause("version_defect"),
    "NatsopsRoutesCut": cause("routes_cut"),
    "NatsopsServerFault": cause("server_fault"),
    "NatsopsMembershipDiffers": cause("membership"),
    "NatsopsUnknownFault": cause("unknown"),
    "NatsopsSourceSilent": {'natsops_sources{fleet="f",cluster="C1",state="silent"}': 1},
    "NatsopsMaintenanceOverdue": {
        'natsops_maintenance_until_timestamp_seconds{fleet="f",server="n1"}': -1,
        'natsops_maintenance{fleet="f",server="n1"}': 1,
    },
    "NatsopsCertificateExpires": {
        f'natsops_server_certificate_expiry_timestamp_seconds{{{SERVER},listener="server"}}': 20 * DAY,
    },
    "NatsopsCertificateExpiresSoon": {
        f'natsops_server_certificate_expiry_timestamp_seconds{{{SERVER},listener="server"}}': 3 * DAY,
    },
    "NatsopsJwtExpires": {f'natsops_jwt_expiring_connections{{{JWT},severity="warning"}}': 12},
    "NatsopsJwtExpiresSoon": {f'natsops_jwt_expiring_connections{{{JWT},severity="error"}}': 0},
    "NatsopsConfigurationDiffers": {
        'natsops_findings{fleet="f",cluster="C1",code="config_differs",severity="warning"}': 1,
    },
    "NatsopsRunStalled": {'natsops_roll_in_progress{fleet="f",cluster="C1"}': 1},
    "NatsopsRunFailed": {'natsops_roll_failed{fleet="f",cluster="C1"}': 1},
    "NatsopsBackupFailed": {'natsops_backup_streams{fleet="f",state="failed"}': 1},
    "NatsopsBackupOld": {'natsops_backup_oldest_timestamp_seconds{fleet="f"}': -DAY},
    "NatsopsBackupTooOld": {'natsops_backup_oldest_timestamp_seconds{fleet="f"}': -2 * DAY},
    "NatsopsRestoreFailed": {'natsops_backup_proofs{fleet="f",state="failed"}': 1},
    "NatsopsAssetsDrift": {f"natsops_assets_drifting{{{DOCUMENT}}}": 2},
    "NatsopsAssetsRefused": {'natsops_assets_plan_refused{fleet="f"}': 1},
    "NatsopsAssetsNotCompared": {'natsops_assets_compared_timestamp_seconds{fleet="f"}': -2 * DAY},
    "NatsopsInsightsJobsStopped": {'natsops_insights_report_timestamp_seconds{fleet="f"}': -2 * DAY},
    "NatsopsInsightsSnapshotsStopped": {'natsops_insights_snapshots_stopped{fleet="f"}': 1},
    "NatsopsInputUnreadable": {'natsops_input_readable{fleet="f",input="journal"}': 0},
    "NatsopsFaultsOmitted": {'natsops_assets_omitted{fleet="f",list="at_fault"}': 1},
    **{
        alert.name: {f'natsops_insights_findings{{fleet="f",check="{alert.check}",severity="critical"}}': 1}
        for alert in CHECK_ALERTS
    },
}
#: A value beyond the critical threshold is also beyond that of the warning, so both alerts fire.
ALSO = {
    "NatsopsCertificateExpiresSoon": {"NatsopsCertificateExpires"},
    "NatsopsBackupTooOld": {"NatsopsBackupOld"},
}
#: The time at which the alerts are evaluated, which is after the longest `for`, and the interval between two samples.
MINUTES, STEP = 8 * 60, 10


def series(changes: dict[str, Any]) -> list[dict[str, str]]:
    shown = {name: value for name, value in {**HEALTHY, **changes}.items() if value is not None}
    return [{"series": name, "values": f"{value}x{MINUTES}"} for name, value in shown.items()]


def case(changes: dict[str, Any], *firing: str) -> dict[str, Any]:
    """Return a promtool test: with these series, exactly these alerts fire."""
    return {
        "interval": f"{STEP}m",
        "input_series": series(changes),
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": f"{MINUTES}m",
                "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in firing],
            }
        ],
    }


def run(directory: Path, tests: list[dict[str, Any]], step: int = STEP) -> None:
    """Run tests of the published rules, which are evaluated at this interval in minutes."""
    (directory / "tests.yml").write_text(
        yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": f"{step}m", "tests": tests})
    )
    done = promtool("test", "rules", str(directory / "tests.yml"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_takes_the_rules() -> None:
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", str(RULES))
    assert (done.returncode, f"{len(ALERTS) + len(CHECK_ALERTS)} rules found" in done.stdout) == (0, True), (
        done.stdout + done.stderr
    )


def test_each_alert_fires_only_for_its_condition(tmp_path: Path) -> None:
    assert FIRES.keys() == {alert.name for alert in (*ALERTS, *CHECK_ALERTS)}
    run(tmp_path, [case({}), *(case(changes, name, *ALSO.get(name, ())) for name, changes in FIRES.items())])


def test_a_server_that_is_down_for_five_minutes(tmp_path: Path) -> None:
    """The alert contains the texts for the person on call. The alert does not fire during maintenance, and ends with
    the outage."""
    alert = {
        "exp_labels": {"severity": "warning", "fleet": "f", "cluster": "C1", "server": "n1"},
        "exp_annotations": {
            "summary": "A server does not answer",
            "description": "n1 of C1 does not answer.",
            "runbook_url": runbook("No server answers"),
        },
    }
    up = f"natsops_server_up{{{SERVER}}}"
    test = {
        "interval": "1m",
        "input_series": [*series({up: None}), {"series": up, "values": "1 0x9 1x20"}],
        "alert_rule_test": [
            {"eval_time": f"{minutes}m", "alertname": "NatsopsServerDown", "exp_alerts": alerts}
            for minutes, alerts in ((0, []), (5, []), (6, [alert]), (10, [alert]), (11, []))
        ],
    }
    marked = {'natsops_maintenance{fleet="f",server="n1"}': 1, up: 0}
    run(tmp_path, [test, {**case(marked), "interval": "1m"}], step=1)
