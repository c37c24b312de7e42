# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The structure of the report: tables with their columns, which content.py reads and page.py and plain.py show."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jetstream_insights.findings.registry import SEVERITIES

#: Format number of report.json; raised if a reader of the old format would misread the new one.
FORMAT = 1

#: Display formats of values. `bytes` and `seconds` are scaled, `percent` is a share of 1, `amount` has the unit of `resource`.
KINDS = (
    "text",
    "list",
    "count",
    "number",
    "amount",
    "bytes",
    "seconds",
    "percent",
    "time",
    "flag",
    "severity",
)


@dataclass(frozen=True)
class ColumnShape:
    """A column of the report: its name in the table of the lake, its title, and its kind."""

    name: str
    title: str
    kind: str = "text"


@dataclass(frozen=True)
class TableShape:
    """A table of the report.

    `source`: layer and table of the lake; empty for a table computed from others. `only`: the condition for rows, and `order`:
    their order, as Spark SQL; rows beyond `most` are left out, and their number is reported. `whole`: only the page leaves them
    out. `thinned`: beyond `most` rows only every second, third, … hour is kept. `days`: days of history; 0: the report's day.
    `shown`: whether it is shown as a table, not only as a chart.
    `since`: for a table of events, Spark SQL for the end of an event: the report has all events of its span, also those of
    earlier days. `daily`: the report has the rows of all days that its span touches.
    """

    name: str
    title: str
    about: str
    source: str
    columns: tuple[ColumnShape, ...]
    order: tuple[str, ...] = ()
    only: str = ""
    most: int = 2000
    whole: bool = False
    thinned: bool = False
    days: int = 0
    shown: bool = True
    since: str = ""
    daily: bool = False


def _columns(form: str, **named: str) -> tuple[ColumnShape, ...]:
    return tuple(ColumnShape(name, title, form) for name, title in named.items())


_FLEET, _DAY, DOMAIN = ColumnShape("fleet", "fleet"), ColumnShape("day", "day"), ColumnShape("domain", "domain")
_GROUP = (DOMAIN, *_columns("text", kind="kind", account="account", stream="stream", consumer="consumer"))
_FOUND = (
    _FLEET,
    DOMAIN,
    *_columns("severity", severity="severity"),
    *_columns(
        "text",
        check="check",
        text="finding",
        cluster="cluster",
        server="server",
        account="account",
        stream="stream",
        consumer="consumer",
        name="name",
        peer="at fault",
    ),
    *_columns("number", value="value", threshold="threshold"),
    *_columns("text", unit="unit"),
)
_WORST_FIRST = (
    "CASE severity WHEN 'critical' THEN 0 WHEN 'warning' THEN 1 ELSE 2 END",
    "check",
    "server",
    "stream",
)

TABLES: tuple[TableShape, ...] = (
    TableShape(
        "fleets",
        "Fleet",
        "The last snapshot of the day.",
        "gold.report_fleet",
        (
            _FLEET,
            *_columns("time", taken="snapshot"),
            *_columns("count", servers="servers"),
            *_columns("list", missing="missing"),
            *_columns("flag", complete="complete"),
            *_columns("list", versions="versions"),
            *_columns("text", meta_leader="meta leader"),
            *_columns("count", connections="clients", streams="streams", consumers="consumers", messages="messages"),
            *_columns("bytes", bytes="data", replica_bytes="on all replicas"),
            *_columns(
                "count", leaderless_streams="streams without leader", leaderless_consumers="consumers without leader"
            ),
        ),
        ("fleet",),
    ),
    TableShape(
        "causes",
        "Root causes",
        "The causes of the findings, the worst first; each finding has one.",
        "",
        (
            _FLEET,
            *_columns("severity", severity="severity"),
            *_columns("flag", new="new"),
            *_columns("text", kind="kind", title="cause", impact="impact"),
            *_columns("time", since="open since"),
            *_columns("list", servers="servers"),
            *_columns("count", unavailable="unavailable", degraded="degraded", findings="findings"),
            *_columns("list", evidence="evidence", commands="remedies"),
            *_columns("flag", shell="commands", hygiene="hygiene"),
        ),
    ),
    TableShape(
        "findings",
        "Findings",
        "Open problems.",
        "findings.findings",
        (*_FOUND, *_columns("time", since="open since", taken="seen"), *_columns("text", remedy="remedy")),
        _WORST_FIRST,
        only="state = 'open' AND result = 'fail'",
        most=5000,
        whole=True,
    ),
    TableShape(
        "fixed",
        "Fixed",
        "Findings that have ended.",
        "findings.findings",
        (*_FOUND, *_columns("time", since="since", taken="last seen")),
        ("taken DESC", *_WORST_FIRST),
        only="state = 'fixed'",
        most=1000,
        since="taken",
    ),
    TableShape(
        "trend",
        "Trend",
        "Failed checks in the last snapshot of each day, by severity.",
        "findings.findings_summary",
        (
            _FLEET,
            *_columns("text", day="day"),
            *_columns("count", critical="critical", warning="warning", info="info"),
        ),
        ("fleet", "day"),
        days=14,
        shown=False,
    ),
    TableShape(
        "muted",
        "Muted",
        "Findings that --checks mutes: they count nowhere else until the end.",
        "",
        (
            *_FOUND[:-2],
            *_columns("text", reason="muted because"),
            *_columns("time", until="until", since="since", taken="seen"),
        ),
        most=1000,
    ),
    TableShape(
        "unknown",
        "Unknown",
        "Reasons for inconclusive checks, which never count as passes.",
        "findings.findings_unknown",
        (
            _FLEET,
            *_columns("text", text="reason"),
            *_columns("count", findings="findings"),
            *_columns("list", checks="checks", servers="servers"),
            *_columns("time", since="since"),
        ),
        ("findings DESC", "text"),
        most=1000,
    ),
    TableShape(
        "checks",
        "Checks",
        "Number of failures, passes and unknown results of each check.",
        "findings.findings_summary",
        (
            _FLEET,
            *_columns("text", check="check"),
            *_columns("severity", severity="severity"),
            *_columns("text", title="finding"),
            *_columns("count", failed="failed", critical="critical", unknown="unknown", passed="passed"),
            *_columns("time", taken="seen"),
        ),
        ("failed = 0", "CASE severity WHEN 'critical' THEN 0 WHEN 'warning' THEN 1 ELSE 2 END", "failed DESC", "check"),
    ),
    TableShape(
        "servers",
        "Servers",
        "As they reported in the last snapshot.",
        "gold.report_servers",
        (
            _FLEET,
            DOMAIN,
            *_columns("text", server="server", cluster="cluster", zone="zone", version="version"),
            *_columns("flag", answered="answered"),
            *_columns("text", health="health"),
            *_columns("count", connections="clients", streams="streams", stream_leaders="leads"),
            *_columns("bytes", storage="stored", reserved_storage="reserved", max_storage="limit", mem="memory"),
            *_columns("number", cpu="CPU %"),
            *_columns("seconds", uptime="up", rtt="round trip", clock_offset="clock"),
        ),
        ("fleet", "answered", "cluster", "server"),
    ),
    TableShape(
        "load",
        "Load of the servers",
        "Leaders, replicas and data of each server; rates over the day.",
        "gold.load",
        (
            _FLEET,
            DOMAIN,
            *_columns("text", server="server", cluster="cluster", zone="zone"),
            *_columns(
                "count",
                stream_leaders="stream leaders",
                consumer_leaders="consumer leaders",
                replicas="replicas",
                consumer_replicas="consumer replicas",
            ),
            *_columns("bytes", bytes="stored", led_bytes="led"),
            *_columns("number", write_msgs="messages/s"),
            *_columns("bytes", write_bytes="bytes/s"),
        ),
        ("fleet", "cluster", "server"),
    ),
    TableShape(
        "balance",
        "Balance",
        "Distribution over servers and zones; distance 0: no improvement is possible.",
        "gold.balance",
        (
            _FLEET,
            DOMAIN,
            *_columns("text", cluster="cluster", scope="over", measure="measure"),
            *_columns("number", max="most"),
            *_columns("text", max_name="on"),
            *_columns(
                "number",
                mean="mean",
                min="least",
                max_to_mean="most/mean",
                cov="CoV",
                gini="Gini",
                optimum="optimum",
                distance="distance",
            ),
        ),
        ("fleet", "distance DESC NULLS LAST"),
    ),
    TableShape(
        "activity",
        "Activity",
        "Hour by hour, without hours that no snapshot reported.",
        "gold.activity",
        (
            _FLEET,
            *_columns("text", day="day"),
            *_columns("count", hour="hour"),
            *_columns("number", in_msgs="messages/s received"),
            *_columns("bytes", in_bytes="bytes/s received"),
            *_columns("number", api_requests="API requests/s"),
            *_columns("count", api_errors="API errors", connections="clients"),
            *_columns("count", num_pending="messages pending", num_ack_pending="messages not acknowledged"),
            *_columns("count", elections="elections"),
        ),
        ("fleet", "day", "hour"),
        most=10000,
        days=14,
        shown=False,
    ),
    TableShape(
        "usage",
        "Usage",
        "Hour by hour.",
        "gold.usage",
        (
            _FLEET,
            DOMAIN,
            *_columns("text", day="day"),
            *_columns("count", hour="hour"),
            *_columns("text", scope="of", resource="resource", name="name"),
            *_columns("number", used="used", limit="limit"),
        ),
        ("scope = 'server'", "fleet", "scope", "name", "day", "hour"),
        only="scope IN ('cluster', 'zone', 'server') AND resource = 'file'",
        most=40000,
        thinned=True,
        days=14,
        shown=False,
    ),
    TableShape(
        "capacity",
        "Capacity",
        "Days until full: p10 has a 10 % chance of an earlier time.",
        "gold.capacity",
        (
            _FLEET,
            DOMAIN,
            *_columns("text", scope="of", name="name", resource="resource", state="state"),
            *_columns("amount", used="used", limit="limit"),
            *_columns("percent", used_ratio="used/limit"),
            *_columns("amount", slope="per day", change_7_p10="in 7 days p10", change_7_p90="p90"),
            *_columns("amount", change_30_p10="in 30 days p10", change_30_p90="p90"),
            *_columns("number", full_p10="days to full p10", full_p50="p50", full_p90="p90"),
            *_columns("text", confidence="band"),
            *_columns("count", backtests="backtests"),
            *_columns("percent", error_p50="error p50", error_p90="error p90", coverage="in the band"),
        ),
        ("full_p10 IS NULL", "full_p10", "used_ratio DESC NULLS LAST"),
    ),
    TableShape(
        "headroom",
        "Failure headroom",
        "Whether the remaining servers can take over the replicas of a failed server or zone.",
        "gold.headroom",
        (
            _FLEET,
            DOMAIN,
            *_columns("text", cluster="cluster", scope="fails", name="name"),
            *_columns("bytes", need="to be placed", free="free on the others", after="left"),
            *_columns("count", servers_left="servers left", unplaced="replicas without a server"),
            *_columns("flag", has_space="enough space", fits="redundant again"),
            *_columns("number", days="days until space is short"),
        ),
        ("fleet", "fits", "after"),
    ),
    TableShape(
        "timeline",
        "Leaders",
        "Leaders of each group over time.",
        "gold.timeline",
        (
            _FLEET,
            *_GROUP,
            *_columns("time", begin="from", end="to"),
            *_columns("text", leader="leader", state="state"),
            *_columns("list", behind="behind"),
        ),
        ("fleet", "kind <> 'meta'", "kind", "account", "stream", "consumer", "`begin`"),
        only="kind = 'meta' OR state <> 'ok' OR run > 1 OR `before` IS NULL",
        most=8000,
        shown=False,
        since="`end`",
    ),
    TableShape(
        "leadership",
        "Elections",
        "Groups that changed their leader, by day, the most frequent first.",
        "gold.leadership",
        (
            _FLEET,
            _DAY,
            *_GROUP,
            *_columns("text", leader="leader"),
            *_columns("list", leaders="leaders"),
            *_columns("count", elections="elections", counted="outside storms"),
            *_columns("number", flap="flap score"),
            *_columns("seconds", dwell_p50="dwell p50"),
        ),
        ("flap DESC NULLS LAST", "elections DESC"),
        only="elections > 0",
        daily=True,
    ),
    TableShape(
        "storms",
        "Storms",
        "Many groups left a server at once.",
        "gold.storms",
        (
            _FLEET,
            *_columns("text", server="server"),
            *_columns("time", begin="from", end="to"),
            *_columns("count", groups="groups", streams="streams", consumers="consumers"),
            *_columns("text", cause="cause"),
            *_columns("flag", maintenance="maintenance"),
        ),
        ("`begin`",),
        since="`end`",
    ),
    TableShape(
        "incidents",
        "Incidents",
        "Periods without a leader, a quorum, a replica or a server, with possible causes.",
        "gold.incidents",
        (
            _FLEET,
            *_columns("text", incident="incident"),
            *_GROUP,
            *_columns("text", server="server"),
            *_columns("time", begin="from", end="to", last="last seen"),
            *_columns("seconds", seconds="lasted"),
            *_columns("flag", began_before="from the day before", continues="continues", maintenance="maintenance"),
            *_columns("list", causes="candidates"),
        ),
        ("seconds DESC",),
        most=2000,
        since="coalesce(`end`, last)",
    ),
    TableShape(
        "restarts",
        "Restarts",
        "Servers that started.",
        "gold.restarts",
        (
            _FLEET,
            *_columns("text", server="server"),
            *_columns("time", start="start"),
            *_columns("seconds", down="down at most"),
            *_columns("text", old_version="version before", version="version"),
            *_columns("flag", maintenance="maintenance"),
        ),
        ("start",),
        since="start",
    ),
    TableShape(
        "availability",
        "Availability",
        "Time with a quorum, by day, the worst first.",
        "gold.availability",
        (
            _FLEET,
            _DAY,
            *_GROUP,
            *_columns("percent", quorum_ratio="with quorum", leader_ratio="with leader", redundant_ratio="redundant"),
            *_columns("number", budget_used="budget used"),
            *_columns("flag", met="SLO met"),
        ),
        ("quorum_ratio", "redundant_ratio"),
        most=1000,
        daily=True,
    ),
    TableShape(
        "streams",
        "Streams",
        "The largest first.",
        "gold.report_streams",
        (
            _FLEET,
            DOMAIN,
            *_columns("text", account="account", stream="stream", cluster="cluster", leader="leader"),
            *_columns("count", num_replicas="replicas"),
            *_columns("text", storage="storage"),
            *_columns("count", messages="messages"),
            *_columns("bytes", bytes="data", write_bytes="bytes/s"),
            *_columns("count", consumers="consumers", num_deleted="deleted"),
        ),
        ("bytes DESC NULLS LAST",),
    ),
    TableShape(
        "backups",
        "Backups",
        "Last backup and last proven restore of each stream, missing ones first.",
        "gold.report_backups",
        (
            _FLEET,
            DOMAIN,
            *_columns("text", account="account", stream="stream"),
            *_columns("time", last_backup="last backup", last_proven="last proven restore"),
            *_columns("seconds", restore_seconds="restored in"),
            *_columns("text", problem="not saved because", drill_problem="not restored because"),
            *_columns("flag", excluded="excluded"),
        ),
        ("excluded", "last_backup IS NOT NULL", "last_proven IS NOT NULL", "last_backup", "account", "stream"),
    ),
    TableShape(
        "consumer_lag",
        "Consumers that are behind",
        "Stuck, growing, redelivering or behind, by day.",
        "gold.consumer_lag",
        (
            _FLEET,
            _DAY,
            DOMAIN,
            *_columns("text", account="account", stream="stream", consumer="consumer", state="state"),
            *_columns("count", num_pending="pending", num_ack_pending="open"),
            *_columns("number", pending_slope="grows/s", ack_rate="acknowledged/s"),
            *_columns("seconds", catch_up="until caught up", stuck_seconds="stuck for"),
        ),
        (
            "CASE state WHEN 'stuck' THEN 0 WHEN 'redelivering' THEN 1 WHEN 'growing' THEN 2 ELSE 3 END",
            "num_pending DESC",
        ),
        only="state NOT IN ('current', 'unknown')",
        daily=True,
    ),
    TableShape(
        "divergence",
        "Replicas that differ",
        "From their leader, at the same last message or far behind it, by day.",
        "gold.divergence",
        (
            _FLEET,
            _DAY,
            DOMAIN,
            *_columns("text", account="account", stream="stream", server="server", leader="leader"),
            *_columns("count", compared="compared", differing="differing", lagging="lagging"),
            *_columns("percent", share="share"),
            *_columns("flag", diverged="diverged", behind="behind"),
            *_columns("time", begin="since"),
        ),
        ("NOT diverged", "share DESC NULLS LAST"),
        only="diverged OR behind",
        daily=True,
    ),
    TableShape(
        "accounts",
        "Accounts",
        "Usage by day.",
        "gold.account_usage",
        (
            _FLEET,
            _DAY,
            DOMAIN,
            *_columns("text", account="account"),
            *_columns("number", connections="clients"),
            *_columns("count", received_msgs="messages in", sent_msgs="messages out"),
            *_columns(
                "bytes", received_bytes="bytes in", sent_bytes="bytes out", storage="stored", byte_hours="byte hours"
            ),
            *_columns("percent", coverage="observed"),
        ),
        ("storage DESC NULLS LAST",),
        daily=True,
    ),
    TableShape(
        "changes",
        "Changes",
        "Configuration, versions, members and limits.",
        "gold.changes",
        (
            _FLEET,
            DOMAIN,
            *_columns("time", taken="seen"),
            *_columns(
                "text",
                object="object",
                server="server",
                account="account",
                stream="stream",
                consumer="consumer",
                what="change",
                field="field",
                old="before",
                new="after",
            ),
        ),
        ("taken DESC",),
        most=1000,
        since="taken",
    ),
)
BY_NAME = {table.name: table for table in TABLES}

#: Checks of configuration, redundancy and backups, whose findings are not outages. The page shows them in a tab.
HYGIENE = frozenset(
    {
        *(f"ACCOUNTS_{number}" for number in (103, 104, 105, 106, 107)),
        *(f"BACKUP_{number}" for number in (101, 103, 104, 106)),
        *(f"CLUSTER_{number}" for number in ("002", "003", "004", 102, 103, 104, 110, 111)),
        *(f"CONSUMER_{number}" for number in (109, 114, 116, 205)),
        *(f"HOST_{number}" for number in (101, 102, 103, 104)),
        *("GATEWAY_103", "JETSTREAM_002", "LEAF_001", "META_101", "META_109"),
        *(f"SERVER_{number}" for number in ("002", "006", "007", "008", 101, 102, 103, 104, 105, 109, 111, 112, 113)),
        *(f"SERVER_{number}" for number in (116, 117, 118, 120, 206)),
        *(f"STREAM_{number}" for number in (103, 108, 109, 110, 111, 113, 114, 116, 118, 123, 124, 205, 210)),
    }
)

#: The content of report.json.
Content = Mapping[str, Any]


def filled(table: TableShape, rows: Sequence[Sequence[Any]], total: int) -> dict[str, Any]:
    """Return a table of the report with its rows."""
    return {
        "title": table.title,
        "about": table.about,
        "columns": [[column.name, column.title, column.kind] for column in table.columns],
        "rows": [list(row) for row in rows],
        "total": total,
        "shown": table.shown,
    }


#: The public key of an account.
_ACCOUNT_KEY = re.compile(r"\bA[A-Z2-7]{55}\b")


def with_account_names(content: Content) -> dict[str, Any]:
    """Return the content for readers: with the names of accounts instead of their public keys."""
    names = content.get("account_names") or {}

    def account_name(found: re.Match[str]) -> str:
        return json.dumps(names.get(found[0], found[0]), ensure_ascii=False)[1:-1]

    shown = {key: value for key, value in content.items() if key != "account_names"}
    result: dict[str, Any] = json.loads(_ACCOUNT_KEY.sub(account_name, json.dumps(shown, ensure_ascii=False)))
    return result


def without_single_domain(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables without the column of the JetStream domain unless they have several domains."""
    named = {table: [column[0] for column in of["columns"]] for table, of in tables.items()}
    at = {table: names.index(DOMAIN.name) for table, names in named.items() if DOMAIN.name in names}
    if len({row[index] for table, index in at.items() for row in tables[table]["rows"]} - {None}) > 1:
        return dict(tables)

    def left(table: str, items: Sequence[Any]) -> list[Any]:
        return [item for index, item in enumerate(items) if index != at.get(table)]

    return {
        table: {**of, "columns": left(table, of["columns"]), "rows": [left(table, row) for row in of["rows"]]}
        for table, of in tables.items()
    }


def dicts(content: Content, name: str) -> Iterator[dict[str, Any]]:
    """Yield a table's rows by the names of its columns; nothing for a missing table."""
    table = content["tables"].get(name)
    if table is not None:
        names = [column[0] for column in table["columns"]]
        for row in table["rows"]:
            yield dict(zip(names, row))


def first_steps(content: Content) -> list[dict[str, Any]]:
    """Return the causes to begin with: the worst three above the severity info, without warnings in the tab Hygiene."""
    urgent = (row for row in dicts(content, "causes") if row["severity"] != "info")
    return [row for row in urgent if row["severity"] == "critical" or not row["hygiene"]][:3]


def step_title(content: Content, step: Mapping[str, Any]) -> str:
    """Return the title of a first step, which begins with the fleet in a report of several fleets."""
    fleets = {row["fleet"] for name in ("fleets", "causes") for row in dicts(content, name)}
    return f"{step['fleet']}: {step['title']}" if len(fleets) > 1 else str(step["title"])


def verdict(content: Content) -> dict[str, Any]:
    """Return the summary of the report: the worst severity that failed, the number of root causes of each severity, so one dead
    server counts once and not a thousand times, and the numbers of unknown and fixed findings."""
    counts = dict.fromkeys(SEVERITIES, 0)
    findings = 0
    for row in dicts(content, "causes"):
        counts[row["severity"]] += 1
        findings += row["findings"]
    unknown = sum(row["findings"] for row in dicts(content, "unknown"))
    worst = next((severity for severity in SEVERITIES if counts[severity]), "none")
    fixed = content["tables"].get("fixed", {"total": 0})["total"]
    return {"worst": worst, **counts, "findings": findings, "unknown": unknown, "fixed": fixed}
