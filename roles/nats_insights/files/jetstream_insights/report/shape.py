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


def _of(form: str, **named: str) -> tuple[ColumnShape, ...]:
    return tuple(ColumnShape(name, title, form) for name, title in named.items())


_FLEET, _DAY, DOMAIN = ColumnShape("fleet", "fleet"), ColumnShape("day", "day"), ColumnShape("domain", "domain")
_GROUP = (DOMAIN, *_of("text", kind="kind", account="account", stream="stream", consumer="consumer"))
_FOUND = (
    _FLEET,
    DOMAIN,
    *_of("severity", severity="severity"),
    *_of(
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
    *_of("number", value="value", threshold="threshold"),
    *_of("text", unit="unit"),
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
            *_of("time", taken="snapshot"),
            *_of("count", servers="servers"),
            *_of("list", missing="missing"),
            *_of("flag", complete="complete"),
            *_of("list", versions="versions"),
            *_of("text", meta_leader="meta leader"),
            *_of("count", connections="clients", streams="streams", consumers="consumers", messages="messages"),
            *_of("bytes", bytes="data", replica_bytes="on all replicas"),
            *_of("count", leaderless_streams="streams without leader", leaderless_consumers="consumers without leader"),
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
            *_of("severity", severity="severity"),
            *_of("flag", new="new"),
            *_of("text", kind="kind", title="cause", impact="impact"),
            *_of("time", since="open since"),
            *_of("list", servers="servers"),
            *_of("count", unavailable="unavailable", degraded="degraded", findings="findings"),
            *_of("list", evidence="evidence", commands="remedies"),
            *_of("flag", shell="commands", hygiene="hygiene"),
        ),
    ),
    TableShape(
        "findings",
        "Findings",
        "Open problems.",
        "findings.findings",
        (*_FOUND, *_of("time", since="open since", taken="seen"), *_of("text", remedy="remedy")),
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
        (*_FOUND, *_of("time", since="since", taken="last seen")),
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
            *_of("text", day="day"),
            *_of("count", critical="critical", warning="warning", info="info"),
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
            *_of("text", reason="muted because"),
            *_of("time", until="until", since="since", taken="seen"),
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
            *_of("text", text="reason"),
            *_of("count", findings="findings"),
            *_of("list", checks="checks", servers="servers"),
            *_of("time", since="since"),
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
            *_of("text", check="check"),
            *_of("severity", severity="severity"),
            *_of("text", title="finding"),
            *_of("count", failed="failed", critical="critical", unknown="unknown", passed="passed"),
            *_of("time", taken="seen"),
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
            *_of("text", server="server", cluster="cluster", zone="zone", version="version"),
            *_of("flag", answered="answered"),
            *_of("text", health="health"),
            *_of("count", connections="clients", streams="streams", stream_leaders="leads"),
            *_of("bytes", storage="stored", reserved_storage="reserved", max_storage="limit", mem="memory"),
            *_of("number", cpu="CPU %"),
            *_of("seconds", uptime="up", rtt="round trip", clock_offset="clock"),
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
            *_of("text", server="server", cluster="cluster", zone="zone"),
            *_of(
                "count",
                stream_leaders="stream leaders",
                consumer_leaders="consumer leaders",
                replicas="replicas",
                consumer_replicas="consumer replicas",
            ),
            *_of("bytes", bytes="stored", led_bytes="led"),
            *_of("number", write_msgs="messages/s"),
            *_of("bytes", write_bytes="bytes/s"),
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
            *_of("text", cluster="cluster", scope="over", measure="measure"),
            *_of("number", max="most"),
            *_of("text", max_name="on"),
            *_of(
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
            *_of("text", day="day"),
            *_of("count", hour="hour"),
            *_of("number", in_msgs="messages/s received"),
            *_of("bytes", in_bytes="bytes/s received"),
            *_of("number", api_requests="API requests/s"),
            *_of("count", api_errors="API errors", connections="clients"),
            *_of("count", num_pending="messages pending", num_ack_pending="messages not acknowledged"),
            *_of("count", elections="elections"),
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
            *_of("text", day="day"),
            *_of("count", hour="hour"),
            *_of("text", scope="of", resource="resource", name="name"),
            *_of("number", used="used", limit="limit"),
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
            *_of("text", scope="of", name="name", resource="resource", state="state"),
            *_of("amount", used="used", limit="limit"),
            *_of("percent", used_ratio="used/limit"),
            *_of("amount", slope="per day", change_7_p10="in 7 days p10", change_7_p90="p90"),
            *_of("amount", change_30_p10="in 30 days p10", change_30_p90="p90"),
            *_of("number", full_p10="days to full p10", full_p50="p50", full_p90="p90"),
            *_of("text", confidence="band"),
            *_of("count", backtests="backtests"),
            *_of("percent", error_p50="error p50", error_p90="error p90", coverage="in the band"),
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
            *_of("text", cluster="cluster", scope="fails", name="name"),
            *_of("bytes", need="to be placed", free="free on the others", after="left"),
            *_of("count", servers_left="servers left", unplaced="replicas without a server"),
            *_of("flag", has_space="enough space", fits="redundant again"),
            *_of("number", days="days until space is short"),
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
            *_of("time", begin="from", end="to"),
            *_of("text", leader="leader", state="state"),
            *_of("list", behind="behind"),
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
            *_of("text", leader="leader"),
            *_of("list", leaders="leaders"),
            *_of("count", elections="elections", counted="outside storms"),
            *_of("number", flap="flap score"),
            *_of("seconds", dwell_p50="dwell p50"),
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
            *_of("text", server="server"),
            *_of("time", begin="from", end="to"),
            *_of("count", groups="groups", streams="streams", consumers="consumers"),
            *_of("text", cause="cause"),
            *_of("flag", maintenance="maintenance"),
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
            *_of("text", incident="incident"),
            *_GROUP,
            *_of("text", server="server"),
            *_of("time", begin="from", end="to", last="last seen"),
            *_of("seconds", seconds="lasted"),
            *_of("flag", began_before="from the day before", continues="continues", maintenance="maintenance"),
            *_of("list", causes="candidates"),
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
            *_of("text", server="server"),
            *_of("time", start="start"),
            *_of("seconds", down="down at most"),
            *_of("text", old_version="version before", version="version"),
            *_of("flag", maintenance="maintenance"),
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
            *_of("percent", quorum_ratio="with quorum", leader_ratio="with leader", redundant_ratio="redundant"),
            *_of("number", budget_used="budget used"),
            *_of("flag", met="SLO met"),
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
            *_of("text", account="account", stream="stream", cluster="cluster", leader="leader"),
            *_of("count", num_replicas="replicas"),
            *_of("text", storage="storage"),
            *_of("count", messages="messages"),
            *_of("bytes", bytes="data", write_bytes="bytes/s"),
            *_of("count", consumers="consumers", num_deleted="deleted"),
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
            *_of("text", account="account", stream="stream"),
            *_of("time", last_backup="last backup", last_proven="last proven restore"),
            *_of("seconds", restore_seconds="restored in"),
            *_of("text", problem="not saved because", drill_problem="not restored because"),
            *_of("flag", excluded="excluded"),
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
            *_of("text", account="account", stream="stream", consumer="consumer", state="state"),
            *_of("count", num_pending="pending", num_ack_pending="open"),
            *_of("number", pending_slope="grows/s", ack_rate="acknowledged/s"),
            *_of("seconds", catch_up="until caught up", stuck_seconds="stuck for"),
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
            *_of("text", account="account", stream="stream", server="server", leader="leader"),
            *_of("count", compared="compared", differing="differing", lagging="lagging"),
            *_of("percent", share="share"),
            *_of("flag", diverged="diverged", behind="behind"),
            *_of("time", begin="since"),
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
            *_of("text", account="account"),
            *_of("number", connections="clients"),
            *_of("count", received_msgs="messages in", sent_msgs="messages out"),
            *_of("bytes", received_bytes="bytes in", sent_bytes="bytes out", storage="stored", byte_hours="byte hours"),
            *_of("percent", coverage="observed"),
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
            *_of("time", taken="seen"),
            *_of(
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
