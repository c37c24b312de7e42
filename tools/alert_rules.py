# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the alert rules for Prometheus, extensions/prometheus/natsops.rules.yml, from the table of alerts in this file
and from the registry of insights checks.

    python tools/alert_rules.py           writes the file (`make docs`)
    python tools/alert_rules.py --check   writes nothing; exits 1 if it is stale

The collection is imported from ANSIBLE_COLLECTIONS_PATH.

Each kind of root cause has an alert or a reason why it has none, and each alert has a section in
docs/troubleshooting.md. For an insights check, that section is its entry in the reference, which has the rule and the
remedy.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from typing import Any

import yaml
from generated import ROOT, anchor, write_or_check

sys.path += [str(ROOT / "roles/nats_insights/files"), os.environ["ANSIBLE_COLLECTIONS_PATH"].split(os.pathsep)[0]]

# None of these modules imports Spark.
from ansible_collections.natsops.jetstream.plugins.module_utils.thresholds import (
    BACKUP_HOURS,
    COMPARED_HOURS,
    EXPIRY_DAYS,
    MAX_META_PENDING,
    STORAGE_PERCENT,
)
from jetstream_insights.findings import REGISTRY
from jetstream_insights.findings.registry import CRITICAL as GRAVE
from jetstream_insights.findings.registry import Check

RULES = ROOT / "extensions/prometheus/natsops.rules.yml"
CRITICAL, WARNING, INFO = "critical", "warning", "info"
_HEAD = """\
# Written by `make docs` from tools/alert_rules.py. Alerts of the metrics of playbook natsops.jetstream.exporter.
# yamllint disable rule:line-length
"""


@dataclass(frozen=True)
class Alert:
    """A rule. `summary` is the same for all alerts that it groups, `description` has labels and `$value`. `section`:
    the section of docs/troubleshooting.md. `causes`: the kinds of root causes (health/causes.py) that it reports."""

    name: str
    expr: str
    wait: str
    severity: str
    summary: str
    description: str
    section: str
    causes: tuple[str, ...] = ()
    check: str = ""

    @property
    def runbook(self) -> str:
        """Return the URL of the instructions."""
        return (
            _address(f"docs/reference/insights_checks.md#{self.check.lower()}") if self.check else runbook(self.section)
        )


def _cause(name: str, kind: str, wait: str, severity: str, summary: str, section: str) -> Alert:
    return Alert(
        name,
        f'sum by (fleet) (natsops_root_causes{{kind="{kind}"}}) > 0',
        wait,
        severity,
        summary,
        f"{summary} in fleet {{{{ $labels.fleet }}}}: natsops.jetstream.diagnose has the details.",
        section,
        (kind,),
    )


_SPACE = "Messages are refused because of space"
_QUORUM = "A stream takes no messages"
_BEHIND = "A replica stays behind"
_JWT_EFFECT = (
    "A JWT of kind {{ $labels.kind }} (account {{ $labels.account }}, role {{ $labels.role }}) expires; {{ $value }} "
    "connections are then closed."
)
_BACKUP_AGE = "The oldest last backup of a stream of fleet {{ $labels.fleet }} is {{ $value | humanizeDuration }} old."
_BROKEN = "A consumer, a replica or a move is broken"
_STOPPED = "A run stops in the middle"
_UNPROTECTED = "Backups fail or are old"
_DRIFT = "Assets differ from their document"
_LOOK = "An alert fires"

ALERTS: tuple[Alert, ...] = (
    Alert(
        "NatsopsClusterUnreachable",
        "natsops_up == 0",
        "2m",
        CRITICAL,
        "The servers cannot be queried",
        "No server of fleet {{ $labels.fleet }} can be queried; natsops_failure and the exporter's journal have the "
        "reason.",
        "No server answers",
        ("cluster_unreachable",),
    ),
    Alert(
        "NatsopsExporterAbsent",
        "absent(natsops_up)",
        "10m",
        WARNING,
        "The exporter is missing",
        "No fleet is monitored: check that nats-exporter is running and scraped.",
        _LOOK,
    ),
    Alert(
        "NatsopsServerDown",
        "natsops_server_up == 0 unless on (fleet, server) natsops_maintenance",
        "5m",
        WARNING,
        "A server does not answer",
        "{{ $labels.server }} of {{ $labels.cluster }} does not answer.",
        "No server answers",
        ("servers_down",),
    ),
    _cause("NatsopsSiteDown", "site_down", "2m", CRITICAL, "No server of a cluster answers", "No server answers"),
    Alert(
        "NatsopsQuorumLost",
        'sum by (fleet, cluster, kind) (natsops_groups{state=~"no_leader|no_quorum|leader_disputed"}) > 0',
        "1m",
        CRITICAL,
        "Streams or consumers have no quorum",
        "{{ $value }} groups ({{ $labels.kind }}) of {{ $labels.cluster }} have no leader or no quorum.",
        _QUORUM,
    ),
    Alert(
        "NatsopsMetaLeaderless",
        "natsops_meta_leader_known == 0",
        "1m",
        CRITICAL,
        "The meta group has no leader",
        "In fleet {{ $labels.fleet }} nothing can be created, changed or deleted.",
        "Nothing can be created, changed or deleted",
        ("meta_group",),
    ),
    Alert(
        "NatsopsMetaOverloaded",
        f"natsops_meta_pending > {MAX_META_PENDING}",
        "10m",
        WARNING,
        "The meta leader has pending requests",
        "The meta leader of fleet {{ $labels.fleet }} has {{ $value }} pending JetStream API requests.",
        "Nothing can be created, changed or deleted",
        ("meta_group",),
    ),
    Alert(
        "NatsopsNoQuorumMargin",
        "sum by (fleet, cluster, kind) (natsops_groups_without_margin) > 0",
        "30m",
        WARNING,
        "One more failure would cost a quorum",
        "{{ $value }} groups ({{ $labels.kind }}) of {{ $labels.cluster }} would lose their quorum with one more failure.",
        _BEHIND,
        ("catching_up",),
    ),
    Alert(
        "NatsopsReplicasBehind",
        'sum by (fleet, cluster, kind) (natsops_groups{state=~"replica_behind|replica_count"}) > 0',
        "30m",
        WARNING,
        "Replicas are behind or missing",
        "{{ $value }} groups ({{ $labels.kind }}) of {{ $labels.cluster }} do not have all replicas in step.",
        _BEHIND,
        ("catching_up",),
    ),
    Alert(
        "NatsopsAssetBroken",
        'sum by (fleet, cluster, kind) (natsops_groups{state=~"unhealthy|ghost"}) > 0',
        "15m",
        WARNING,
        "Streams or consumers are faulty",
        "{{ $value }} groups ({{ $labels.kind }}) of {{ $labels.cluster }} are faulty: natsops_asset_at_fault lists them.",
        _BROKEN,
        ("asset_fault",),
    ),
    Alert(
        "NatsopsMoveStuck",
        'sum by (fleet, cluster, kind) (natsops_groups{state="moving"}) > 0',
        "6h",
        WARNING,
        "Replica moves do not finish",
        "{{ $value }} groups ({{ $labels.kind }}) of {{ $labels.cluster }} are being moved.",
        _BROKEN,
        ("catching_up",),
    ),
    _cause("NatsopsStorageFault", "storage", "2m", CRITICAL, "A server has no storage to write to", _SPACE),
    Alert(
        "NatsopsStorageNearlyFull",
        f"natsops_server_storage_used_bytes / natsops_server_storage_limit_bytes > {STORAGE_PERCENT.critical / 100}",
        "15m",
        WARNING,
        "A server's storage is nearly full",
        "{{ $labels.server }} of {{ $labels.cluster }} uses {{ $value | humanizePercentage }} of its file storage.",
        _SPACE,
    ),
    Alert(
        "NatsopsStorageFillsUp",
        'natsops_insights_full_days{scope="server",quantile="p10"} < 7',
        "1h",
        WARNING,
        "A server's storage fills up within a week",
        "{{ $labels.name }} may be full ({{ $labels.resource }}) in {{ $value }} days, with a probability of 10 %.",
        _SPACE,
    ),
    _cause(
        "NatsopsVersionDefect",
        "version_defect",
        "10m",
        WARNING,
        "A server is affected by a defect of its version",
        _BEHIND,
    ),
    _cause("NatsopsRoutesCut", "routes_cut", "5m", CRITICAL, "Servers cannot reach one another", _BEHIND),
    _cause("NatsopsServerFault", "server_fault", "10m", WARNING, "A server is not healthy", _LOOK),
    _cause(
        "NatsopsMembershipDiffers",
        "membership",
        "30m",
        WARNING,
        "The inventory and the cluster differ",
        "A run is refused",
    ),
    _cause("NatsopsUnknownFault", "unknown", "15m", WARNING, "A problem has no known cause", _LOOK),
    Alert(
        "NatsopsSourceSilent",
        'sum by (fleet, cluster) (natsops_sources{state=~"silent|failing"}) > 0',
        "15m",
        WARNING,
        "Mirrors or sources receive nothing from their origin",
        "{{ $value }} mirrors and sources of {{ $labels.cluster }} are silent or failing.",
        _BROKEN,
    ),
    Alert(
        "NatsopsMaintenanceOverdue",
        "natsops_maintenance_until_timestamp_seconds < time()",
        "10m",
        WARNING,
        "Maintenance of a server is overdue",
        "{{ $labels.server }} is still in maintenance.",
        "A server was forgotten in maintenance",
    ),
    Alert(
        "NatsopsCertificateExpires",
        f"natsops_server_certificate_expiry_timestamp_seconds - time() < {EXPIRY_DAYS.warning} * 86400",
        "1h",
        WARNING,
        f"A certificate expires within {EXPIRY_DAYS.warning} days",
        "The certificate of {{ $labels.server }} ({{ $labels.listener }}) expires in {{ $value | humanizeDuration }}.",
        "A certificate expires",
    ),
    Alert(
        "NatsopsCertificateExpiresSoon",
        f"natsops_server_certificate_expiry_timestamp_seconds - time() < {EXPIRY_DAYS.critical} * 86400",
        "10m",
        CRITICAL,
        f"A certificate expires within {EXPIRY_DAYS.critical} days",
        "The certificate of {{ $labels.server }} ({{ $labels.listener }}) expires in {{ $value | humanizeDuration }}.",
        "A certificate expires",
    ),
    Alert(
        "NatsopsJwtExpires",
        'natsops_jwt_expiring_connections{severity="warning"} >= 0',
        "1h",
        WARNING,
        "JWTs expire soon",
        _JWT_EFFECT,
        "A JWT expires",
    ),
    Alert(
        "NatsopsJwtExpiresSoon",
        'natsops_jwt_expiring_connections{severity="error"} >= 0',
        "10m",
        CRITICAL,
        "JWTs expire very soon, or have expired",
        _JWT_EFFECT,
        "A JWT expires",
    ),
    Alert(
        "NatsopsConfigurationDiffers",
        'natsops_findings{code=~"config_differs|versions_differ|clocks_differ",severity=~"warning|critical"} > 0',
        "1h",
        WARNING,
        "Servers differ from one another",
        "{{ $labels.code }}: {{ $value }} findings in {{ $labels.cluster }}; natsops.jetstream.diagnose explains them.",
        "Servers differ",
    ),
    Alert(
        "NatsopsRunStalled",
        "natsops_roll_in_progress == 1 and time() - natsops_roll_event_timestamp_seconds > 3600",
        "5m",
        WARNING,
        "An operation makes no progress",
        "The operation of {{ $labels.cluster }} has written no event for an hour: it may have been killed.",
        _STOPPED,
    ),
    Alert(
        "NatsopsRunFailed",
        "natsops_roll_failed == 1",
        "0m",
        WARNING,
        "An operation failed",
        "The last operation of {{ $labels.cluster }} failed; its journal has the reason.",
        _STOPPED,
    ),
    Alert(
        "NatsopsBackupFailed",
        'natsops_backup_streams{state=~"failed|never"} > 0',
        "1h",
        WARNING,
        "Streams are not saved",
        "{{ $value }} streams of fleet {{ $labels.fleet }} are not saved ({{ $labels.state }}).",
        _UNPROTECTED,
    ),
    Alert(
        "NatsopsBackupOld",
        f"time() - natsops_backup_oldest_timestamp_seconds > {BACKUP_HOURS.warning} * 3600",
        "1h",
        WARNING,
        f"A backup is older than {BACKUP_HOURS.warning} hours",
        _BACKUP_AGE,
        _UNPROTECTED,
    ),
    Alert(
        "NatsopsBackupTooOld",
        f"time() - natsops_backup_oldest_timestamp_seconds > {BACKUP_HOURS.critical} * 3600",
        "1h",
        CRITICAL,
        f"A backup is older than {BACKUP_HOURS.critical} hours",
        _BACKUP_AGE,
        _UNPROTECTED,
    ),
    Alert(
        "NatsopsRestoreFailed",
        'natsops_backup_proofs{state="failed"} > 0',
        "1h",
        WARNING,
        "A backup could not be restored in a drill",
        "{{ $value }} streams of fleet {{ $labels.fleet }} could not be restored.",
        _UNPROTECTED,
    ),
    Alert(
        "NatsopsAssetsDrift",
        "natsops_assets_drifting > 0",
        "0m",
        WARNING,
        "Assets differ from their document",
        "{{ $value }} assets of account {{ $labels.account }} differ from document {{ $labels.document }}.",
        _DRIFT,
    ),
    Alert(
        "NatsopsAssetsRefused",
        "natsops_assets_plan_refused == 1",
        "0m",
        WARNING,
        "Documents of assets cannot be carried out",
        "The plan of the documents of fleet {{ $labels.fleet }} is refused; the playbook assets_plan shows the reason.",
        _DRIFT,
    ),
    Alert(
        "NatsopsAssetsNotCompared",
        f"time() - natsops_assets_compared_timestamp_seconds > {COMPARED_HOURS} * 3600",
        "1h",
        WARNING,
        "Documents have not been compared with their assets",
        "The last comparison in fleet {{ $labels.fleet }} is {{ $value | humanizeDuration }} old.",
        _DRIFT,
    ),
    Alert(
        "NatsopsInsightsJobsStopped",
        "time() - natsops_insights_report_timestamp_seconds > 2 * 86400",
        "1h",
        WARNING,
        "The jobs of the insights have stopped",
        "The last report is {{ $value | humanizeDuration }} old: read the journal of nats-insights-jobs, or check the "
        "schedule of the playbook insights.",
        _LOOK,
    ),
    Alert(
        "NatsopsInsightsSnapshotsStopped",
        "natsops_insights_snapshots_stopped > 0",
        "1m",
        WARNING,
        "Snapshots of the insights have stopped",
        "The last report of fleet {{ $labels.fleet }} has no recent snapshot: read the journal of "
        "nats-insights-snapshot, or check the schedule of the playbook snapshot.",
        _LOOK,
    ),
    Alert(
        "NatsopsInputUnreadable",
        "natsops_input_readable == 0",
        "1h",
        WARNING,
        "The exporter cannot read a file that it was given",
        "{{ $labels.input }} cannot be read; the exporter's journal has the reason.",
        _LOOK,
    ),
    Alert(
        "NatsopsFaultsOmitted",
        'natsops_assets_omitted{list="at_fault"} > 0',
        "30m",
        INFO,
        "Some faults have no series",
        "{{ $value }} faulty streams and consumers have no separate series.",
        _LOOK,
    ),
)


def _check(check: Check) -> Alert:
    """Return the alert for a check; it fires if the last report has critical findings of the check."""
    # A remedy may refer to values of a finding, which the metric does not contain.
    remedy = re.sub(r"\{(\w+)\}", lambda match: match[1].upper(), check.remedy)
    return Alert(
        f"NatsopsInsights{check.code.replace('_', '').capitalize()}",
        f'sum by (fleet) (natsops_insights_findings{{check="{check.code}",severity="critical"}}) > 0',
        "1h",
        WARNING,
        check.title,
        f"{{{{ $value }}}} critical findings {check.code} in fleet {{{{ $labels.fleet }}}}. Remedy: {remedy}.",
        _LOOK,
        check=check.code,
    )


#: One alert for each check that may have critical findings.
CHECK_ALERTS = tuple(_check(one) for one in REGISTRY.checks.values() if one.severity == GRAVE or one.worse)

#: The kinds of root causes without an alert, and the reasons.
SILENT = {
    "maintenance": "no fault: NatsopsMaintenanceOverdue fires when it lasts too long",
    "request": "an objection to a requested stop; the exporter requests none",
}


def runbook(section: str) -> str:
    """Return the URL of a section of docs/troubleshooting.md."""
    return _address(f"docs/troubleshooting.md#{anchor(section)}")


def _address(document: str) -> str:
    repository = yaml.safe_load((ROOT / "galaxy.yml").read_text())["repository"]
    return f"{repository}/blob/main/{document}"


def rules() -> dict[str, Any]:
    """Return the content of the rules file."""
    return {
        "groups": [
            {
                "name": name,
                "rules": [
                    {
                        "alert": alert.name,
                        "expr": alert.expr,
                        "for": alert.wait,
                        "labels": {"severity": alert.severity},
                        "annotations": {
                            "summary": alert.summary,
                            "description": alert.description,
                            "runbook_url": alert.runbook,
                        },
                    }
                    for alert in alerts
                ],
            }
            for name, alerts in (("natsops", ALERTS), ("natsops-insights", CHECK_ALERTS))
        ]
    }


class _Indented(yaml.SafeDumper):
    """Indents lists, as yamllint requires."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def text() -> str:
    return f"---\n{_HEAD}" + yaml.dump(rules(), Dumper=_Indented, sort_keys=False, width=100, allow_unicode=True)


if __name__ == "__main__":
    sys.exit(write_or_check(RULES, text(), sys.argv[1:]))
