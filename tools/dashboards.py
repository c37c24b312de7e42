# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the dashboard of the exporter's metrics for Grafana 11 and newer, extensions/grafana/natsops.json.

python tools/dashboards.py           writes the file (`make docs`)
python tools/dashboards.py --check   writes nothing; exits 1 when it is stale
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import count

from generated import ROOT, write_or_check
from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    DataTransformerConfig,
    Threshold,
    ThresholdsMode,
    VariableRefresh,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

FILE = ROOT / "extensions/grafana/natsops.json"
_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
#: The filter of every expression: the fleet selected above the panels.
_FLEET = 'fleet="$fleet"'
NUMBER, LINES, ROWS = "number", "lines", "rows"
_SIZES = {NUMBER: (4, 4), LINES: (8, 12), ROWS: (8, 24)}


@dataclass(frozen=True)
class Panel:
    """A panel. `queries`: legend → expression. `unit`: a Grafana unit. `bad`: the panel is red from this value on;
    `least`: the panel is red below this value."""

    title: str
    kind: str
    about: str
    queries: dict[str, str]
    unit: str = "short"
    bad: float | None = None
    least: float | None = None


def of(metric: str, *matchers: str) -> str:
    """Return the selector of a metric for the selected fleet."""
    return f"{metric}{{{', '.join((_FLEET, *matchers))}}}"


def _left(metric: str) -> str:
    return f"min({of(metric)}) - time()"


def _age(metric: str) -> str:
    return f"time() - {of(metric)}"


_WITHOUT_QUORUM = 'state=~"no_leader|no_quorum|leader_disputed"'

ROWS_OF_PANELS: dict[str, tuple[Panel, ...]] = {
    "Now": (
        Panel("Readable", NUMBER, "Whether the servers could be queried.", {"": of("natsops_up")}, least=1),
        Panel(
            "Root causes",
            NUMBER,
            "Root causes of the current problems.",
            {"": f"sum({of('natsops_root_causes')})"},
            bad=1,
        ),
        Panel(
            "Without quorum",
            NUMBER,
            "Streams and consumers that accept no messages.",
            {"": f"sum({of('natsops_groups', _WITHOUT_QUORUM)})"},
            bad=1,
        ),
        Panel(
            "No margin",
            NUMBER,
            "Groups that would lose their quorum with one more failure.",
            {"": f"sum({of('natsops_groups_without_margin')})"},
            bad=1,
        ),
        Panel(
            "Servers that can stop",
            NUMBER,
            "One at a time, without a group losing its quorum.",
            {"": f"sum({of('natsops_servers_stoppable')})"},
            least=1,
        ),
        Panel("In maintenance", NUMBER, "Servers.", {"": f"sum({of('natsops_maintenance')}) or vector(0)"}),
        Panel(
            "Root causes by kind",
            LINES,
            "The same grouping as the health gate's.",
            {"{{kind}} ({{severity}})": f"{of('natsops_root_causes')} > 0"},
        ),
        Panel(
            "Servers by state",
            LINES,
            "Answered, missing, in maintenance.",
            {"{{cluster}} {{state}}": of("natsops_servers")},
        ),
        Panel(
            "Faulty assets",
            ROWS,
            "Faulty streams and consumers that have separate series.",
            {"": f"{of('natsops_asset_at_fault')} == 1"},
        ),
    ),
    "Raft groups": (
        Panel(
            "Streams and consumers by state",
            LINES,
            "Those that are not ok.",
            {"{{cluster}} {{kind}} {{state}}": of("natsops_groups", 'state!="ok"') + " > 0"},
        ),
        Panel(
            "Quorum margin",
            LINES,
            "Members in step beyond the quorum, in the group with the fewest.",
            {"{{cluster}} {{kind}} R{{replicas}}": of("natsops_group_quorum_margin_min")},
        ),
        Panel(
            "Replica lag",
            LINES,
            "Raft entries by which the slowest replica is behind its leader.",
            {"{{cluster}} {{kind}}": of("natsops_group_lag_max")},
        ),
        Panel(
            "Mirror and source lag",
            LINES,
            "Messages by which the slowest mirror or source is behind its origin.",
            {"{{cluster}}": of("natsops_source_lag_max")},
        ),
        Panel(
            "Leaders by server",
            LINES,
            "Streams and consumers that each server leads.",
            {"{{server}}": f"sum by (server) ({of('natsops_server_leaders')})"},
        ),
        Panel(
            "Pending requests of the meta leader",
            LINES,
            "JetStream API requests.",
            {"waiting": of("natsops_meta_pending")},
        ),
    ),
    "Servers": (
        Panel(
            "File storage",
            LINES,
            "Share of the storage that JetStream may use.",
            {
                "{{server}}": f"{of('natsops_server_storage_used_bytes')} / {of('natsops_server_storage_limit_bytes')}",
            },
            unit="percentunit",
        ),
        Panel(
            "Days until full",
            LINES,
            "The median of the last forecast.",
            {"{{scope}} {{name}} {{resource}}": of("natsops_insights_full_days", 'quantile="p50"')},
            unit="d",
        ),
        Panel("Uptime", LINES, "Since the last start.", {"{{server}}": of("natsops_server_uptime_seconds")}, unit="s"),
        Panel(
            "Certificates",
            LINES,
            "Remaining validity of each certificate.",
            {"{{server}} {{listener}}": f"{of('natsops_server_certificate_expiry_timestamp_seconds')} - time()"},
            unit="s",
        ),
    ),
    "Operations": (
        Panel("In progress", NUMBER, "Operations.", {"": f"sum({of('natsops_roll_in_progress')}) or vector(0)"}),
        Panel("Batch", NUMBER, "In the last operation.", {"{{cluster}}": of("natsops_roll_batch")}),
        Panel("Batches", NUMBER, "In the last operation.", {"{{cluster}}": of("natsops_roll_batches")}),
        Panel("Left", NUMBER, "Estimated remaining time.", {"{{cluster}}": of("natsops_roll_left_seconds")}, unit="s"),
        Panel(
            "Failed", NUMBER, "Whether the last operation failed.", {"{{cluster}}": of("natsops_roll_failed")}, bad=1
        ),
        Panel(
            "Maintenance ends",
            NUMBER,
            "Time until the first maintenance is due to end.",
            {"": _left("natsops_maintenance_until_timestamp_seconds")},
            unit="s",
            least=0,
        ),
    ),
    "Protection": (
        Panel(
            "Oldest backup",
            NUMBER,
            "Age of the last backup of the stream that has gone longest without one.",
            {"": _age("natsops_backup_oldest_timestamp_seconds")},
            unit="s",
        ),
        Panel(
            "Newest proof",
            NUMBER,
            "Time since the last proven restore.",
            {"": _age("natsops_backup_newest_proof_timestamp_seconds")},
            unit="s",
        ),
        Panel("Streams by backup", LINES, "By the catalogue.", {"{{state}}": of("natsops_backup_streams")}),
        Panel("Streams by last drill", LINES, "By the catalogue.", {"{{state}}": of("natsops_backup_proofs")}),
    ),
    "Documents of assets": (
        Panel(
            "Differing assets",
            NUMBER,
            "Assets that differ from their document.",
            {"{{account}} {{document}}": of("natsops_assets_drifting")},
            bad=1,
        ),
        Panel(
            "Compared",
            NUMBER,
            "Time since documents and assets were last compared.",
            {"": _age("natsops_assets_compared_timestamp_seconds")},
            unit="s",
            bad=26 * 3600,
        ),
    ),
}


def _thresholds(panel: Panel) -> dashboard.ThresholdsConfig:
    green, red = Threshold(color="green"), Threshold(color="red")
    if panel.bad is not None:
        steps = [green, Threshold(color="red", value=panel.bad)]
    elif panel.least is not None:
        steps = [red, Threshold(color="green", value=panel.least)]
    else:
        steps = [green]
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)


def _built(panel: Panel) -> stat.Panel | timeseries.Panel | table.Panel:
    found: stat.Panel | timeseries.Panel | table.Panel
    if panel.kind == NUMBER:
        found = stat.Panel().unit(panel.unit).thresholds(_thresholds(panel))
    elif panel.kind == LINES:
        legend = common.VizLegendOptions().display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM)
        found = timeseries.Panel().unit(panel.unit).legend(legend.show_legend(True))
    else:
        left_out = dict.fromkeys(("Time", "Value", "__name__", "fleet", "instance", "job"), True)
        found = table.Panel().with_transformation(
            DataTransformerConfig(id_val="organize", options={"excludeByName": left_out})
        )
    height, width = _SIZES[panel.kind]
    found = found.title(panel.title).description(panel.about).datasource(_SOURCE).height(height).span(width)
    for number, (legend_format, expression) in enumerate(panel.queries.items()):
        query = prometheus.Dataquery().ref_id(chr(ord("A") + number)).expr(expression).datasource(_SOURCE)
        if panel.kind == LINES:
            query = query.range().legend_format(legend_format)
        else:
            query = query.instant().legend_format(legend_format)
        if panel.kind == ROWS:
            query = query.format(PromQueryFormat.TABLE)
        found = found.with_target(query)
    return found


def text() -> str:
    """Return the content of the file."""
    made = (
        dashboard.Dashboard("NATS JetStream")
        .uid("natsops-jetstream")
        .description("Written from tools/dashboards.py of natsops.jetstream.")
        .tags(["nats", "jetstream"])
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .refresh("30s")
        .time("now-6h", "now")
        .timezone("browser")
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(
            dashboard.QueryVariable("fleet")
            .label("Fleet")
            .query("label_values(natsops_up, fleet)")
            .datasource(_SOURCE)
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        )
    )
    numbers = count(1)
    for title, row in ROWS_OF_PANELS.items():
        made = made.with_row(dashboard.Row(title).id(next(numbers)))
        for panel in row:
            made = made.with_panel(_built(panel).id(next(numbers)))
    return JSONEncoder(sort_keys=True, indent=2).encode(made.build()) + "\n"


if __name__ == "__main__":
    sys.exit(write_or_check(FILE, text(), sys.argv[1:]))
