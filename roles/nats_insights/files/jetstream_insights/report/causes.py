# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The findings of a report under their root causes, by the same function that the health gate and the playbook diagnose use.

A server that does not answer explains the problems of all its groups. During planned maintenance the cause
is only a note. Findings about a group without a leader do not name its members: missing servers of its fleet, and those without
JetStream, explain it if too few of its members answered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from ansible_collections.natsops.jetstream.plugins.module_utils.times import parse_time

from jetstream_insights.collection import module_util
from jetstream_insights.findings import REGISTRY
from jetstream_insights.findings.registry import SEVERITIES
from jetstream_insights.keys import STREAM
from jetstream_insights.report.shape import BY_NAME, HYGIENE, TABLES, dicts, filled

#: Checks that find consequences of a cause, with the live gate's codes for them. Any other check is only about its own subject,
#: and all its findings are one cause.
CODES = {
    "FLEET_101": "server_missing",
    "SERVER_001": "server_unhealthy",
    "SERVER_107": "server_lacks_routes",
    "SERVER_207": "server_unhealthy_again",
    "SERVER_208": "server_often_missing",
    "SERVER_210": "jetstream_disabled",
    "GATEWAY_101": "gateway_missing",
    "META_001": "meta_peer_missing",
    "META_002": "meta_no_leader",
    "META_102": "meta_replica_behind",
    "META_103": "meta_replica_behind",
    "META_105": "meta_peer_missing",
    "META_107": "meta_pending",
    "META_202": "meta_was_leaderless",
    "JETSTREAM_001": "stream_replica_behind",
    "STREAM_101": "stream_no_leader",
    "STREAM_102": "stream_leader_disputed",
    "STREAM_104": "stream_replica_behind",
    "STREAM_105": "stream_replica_count",
    "STREAM_106": "stream_replica_behind",
    "STREAM_117": "stream_replica_behind",
    "STREAM_121": "stream_moving",
    "STREAM_203": "stream_was_leaderless",
    "STREAM_214": "stream_no_leader",
    "STREAM_208": "stream_replica_behind",
    "CONSUMER_101": "consumer_no_leader",
    "CONSUMER_102": "consumer_leader_disputed",
    "CONSUMER_103": "consumer_replica_behind",
    "CONSUMER_104": "consumer_replica_count",
    "CONSUMER_113": "consumer_replica_behind",
    "CONSUMER_202": "consumer_stuck",
    "CONSUMER_208": "consumer_was_leaderless",
    "RAFT_105": "raft_no_leader",
}
#: Checks that observe one fault from several sides, by the code of their common cause. The first one gives its title.
SAME_FAULT = {
    "client_storm": ("ACCOUNTS_201", "SERVER_212"),
    "slow_clients": ("ACCOUNTS_202", "SERVER_004", "CONN_101", "SERVER_213"),
    "leader_flapping": ("STREAM_201", "CONSUMER_201", "RAFT_201"),
}
#: Checks of a consumer's delivery. Several findings of the same consumer have one cause, that of the first check.
DELIVERY = (
    "CONSUMER_202",
    "CONSUMER_209",
    "CONSUMER_105",
    "CONSUMER_203",
    "CONSUMER_108",
    "CONSUMER_107",
    "CONSUMER_106",
    "CONSUMER_206",
    "CONSUMER_204",
    "CONSUMER_114",
)
#: Checks of forecasts, and those that find an asset full, by the scope of its forecast, which then has the same cause.
_FORECASTS = ("CAPACITY_201", "CAPACITY_205")
_FULL = {"stream": "JETSTREAM_003", "account": "ACCOUNTS_101", "server": "SERVER_005"}
#: Checks of streams and consumers that keep changing their leader, and those that see an election while it is in progress.
_FLAPPING = ("STREAM_201", "CONSUMER_201")
_ELECTIONS = ("STREAM_101", "STREAM_203", "CONSUMER_101", "CONSUMER_208")
#: Checks of mirrors and sources that fail when an origin is removed. They name the origins as `peer`.
_ORIGIN_CHECKS = ("STREAM_120", "STREAM_206", "STREAM_209", "STREAM_119")
_ORIGIN_REMOVED = (
    "`nats_restore` brings {origin} back from its last backup; otherwise remove the mirror or source from {subject} "
    "(`nats_stream`)"
)
#: The code of each check, and its place among the checks of the same fault.
_FAULTS = {check: (code, place) for code, checks in SAME_FAULT.items() for place, check in enumerate(checks)}
#: Findings about a server that depends on another one.
_DEPENDENT_FINDINGS = ("server_lacks_routes", "meta_no_leader", "meta_was_leaderless")
#: An error in the gate is critical here.
_SEVERITY = {"critical": "error"}
#: The consequences of failed checks whose streams and consumers are still available.
IMPACT = {
    "ACCOUNTS_101": "At the limit publishing to all streams of the account is rejected.",
    "BACKUP_101": "After a loss nothing can be restored.",
    "BACKUP_102": "A restore only brings back an older state.",
    "CAPACITY_201": "When it is full, publishing is rejected, or unprocessed messages are removed.",
    "CAPACITY_205": "At the limit the oldest messages are removed.",
    "CONSUMER_101": "The consumer delivers no messages.",
    "CONSUMER_105": "The consumer delivers nothing until messages are acknowledged.",
    "CONSUMER_202": "No message of this consumer is processed.",
    "CONSUMER_203": "Messages are processed later and later.",
    "CONSUMER_209": "The consumer never processes the messages that the stream removes.",
    "JETSTREAM_003": "At the limit publishing is rejected, or the oldest messages are removed.",
    "META_002": "Streams and consumers cannot be created or changed, and no replica moves.",
    "META_102": "If another server is lost, streams and consumers cannot be created or changed.",
    "RAFT_101": "The group cannot store messages on this server.",
    "SERVER_102": "A restart of the host or of the unit deletes the messages.",
    "SERVER_107": "Clients of this server do not reach all others, and its replicas fall behind.",
    "SERVER_210": "The replicas on this server are missing.",
    "STREAM_107": "Acknowledged messages are missing.",
    "STREAM_120": "The copy lacks all messages since then.",
    "STREAM_202": "Acknowledged messages are missing.",
    "STREAM_206": "The copy lacks all messages since then.",
    "STREAM_207": "Consumers read different messages after the next election.",
    "STREAM_214": "The messages can be neither read nor written.",
    "STREAM_217": "The copy lacks all messages since then.",
}
#: Maximum number of pieces of evidence, and of remedies, that a cause shows.
_EVIDENCE, _REMEDIES = 3, 2
#: Seconds without a snapshot after which a fleet's collector counts as stopped, and the multiple of its usual interval if longer.
STOPPED, _MISSED = 3600, 3

Row = Mapping[str, Any]


class Newest(NamedTuple):
    """The time of a fleet's newest snapshot, and the usual seconds between its snapshots, 0 if unknown."""

    taken: datetime
    usual: float = 0.0


def with_causes(
    tables: Mapping[str, Any],
    failing: Iterable[Row],
    meant: Sequence[Any] = (),
    now: datetime | None = None,
    newest: Mapping[str, Newest] | None = None,
    previous: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the report's tables in their order, with that of the root causes. `failing`: all findings that failed, by the names
    of their columns; `meant`: windows of the journal (roll/journal.py); `now`: the time for a report of the present,
    which also needs the `newest` snapshot of each fleet on any day; `previous`: the last snapshot of each fleet in the last
    report, after which a cause is new."""
    made = {**tables, "causes": _causes_table(tables, failing, meant, now, newest or {}, previous or {})}
    return {table.name: made[table.name] for table in TABLES if table.name in made}


def _causes_table(
    tables: Mapping[str, Any],
    failing: Iterable[Row],
    meant: Sequence[Any],
    now: datetime | None,
    newest: Mapping[str, Newest],
    previous: Mapping[str, str],
) -> dict[str, Any]:
    by_fleet: dict[str, list[Row]] = {}
    for row in failing:
        by_fleet.setdefault(row["fleet"], []).append(row)
    content = {"tables": tables}
    made = [cause for fleet in sorted(by_fleet) for cause in _causes(fleet, by_fleet[fleet], content, meant)]
    made += _stopped(newest, now) if now else []
    for cause in made:
        before = previous.get(cause["fleet"])
        cause["new"] = None if before is None or cause["since"] is None else cause["since"] > before
    made.sort(key=_rank)
    table = BY_NAME["causes"]
    return filled(table, [[row[column.name] for column in table.columns] for row in made[: table.most]], len(made))


def _rank(cause: Row) -> tuple[Any, ...]:
    """Return the order of the causes: by severity, hygiene last, then by the number of affected assets."""
    impact = (-cause["unavailable"], -cause["degraded"], -cause["findings"])
    return (SEVERITIES.index(cause["severity"]), cause["hygiene"], *impact)


def _stopped(newest: Mapping[str, Newest], now: datetime) -> list[dict[str, Any]]:
    """Return a critical cause for each fleet whose collector stopped. Checks cannot find it: they need snapshots."""
    return [
        {
            "fleet": fleet,
            "severity": "critical",
            "kind": "snapshots_stopped",
            "title": f"the last snapshot of {fleet} was taken {last.taken:%Y-%m-%dT%H:%M:%SZ}: "
            "nothing is known of the time since",
            "impact": "Faults since then are in no report. Check the snapshot timer, or the schedule of the playbook snapshot.",
            "since": f"{last.taken:%Y-%m-%dT%H:%M:%SZ}",
            "servers": [],
            "unavailable": 0,
            "degraded": 0,
            "findings": 0,
            "evidence": [],
            "shell": True,
            "hygiene": False,
            "commands": ["systemctl status nats-insights-snapshot.timer nats-insights-snapshot.service"],
        }
        for fleet, last in sorted(newest.items())
        if (now - last.taken).total_seconds() > max(STOPPED, _MISSED * last.usual)
    ]


def _causes(
    fleet: str, rows: Sequence[Row], content: Mapping[str, Any], meant: Sequence[Any]
) -> Iterable[dict[str, Any]]:
    causes = module_util("health.causes")
    missing = _names(row["missing"] for row in dicts(content, "fleets") if row["fleet"] == fleet)
    servers = [row for row in dicts(content, "servers") if row["fleet"] == fleet]
    context = causes.ClusterContext(
        answered=frozenset(row["server"] for row in servers if row["answered"] is not False) - missing,
        clusters={row["server"]: row["cluster"] or "" for row in servers},
        versions={row["server"]: row["version"] or "" for row in servers},
    )
    changes = [row for row in dicts(content, "changes") if row["fleet"] == fleet]
    disabled = frozenset(row["server"] for row in rows if row["check"] == "SERVER_210")
    rows = _coded(rows, changes, missing, disabled)
    members = _members_behind(rows)
    problems = []
    found: dict[int, Row] = {}
    several = len({row["domain"] for row in servers} - {None}) > 1
    for row in rows:
        problem = _problem(causes, row, missing, disabled, members, several)
        found[id(problem)] = row
        problems.append(problem)
    away = _away(fleet, content, meant)
    for cause in causes.root_causes(problems, context):
        why = sorted({away[server] for server in cause.servers if server in away})
        excused = bool(cause.servers) and set(cause.servers) <= away.keys()
        mine = [found[id(problem)] for problem in cause.problems]
        worst = "info" if excused else min((row["severity"] for row in mine), key=SEVERITIES.index)
        # Several checks of one subject are not more of this kind.
        one_subject = cause.kind == "unknown" and len({problem.subject for problem in cause.problems}) == 1
        fault = cause.problems[0].message if one_subject else cause.title
        title = f"{fault} ({'; '.join(why)})" if excused else fault
        # A problem that only a check finds has the check's remedy.
        remedies = [*dict.fromkeys(str(row["remedy"]) for row in mine if row.get("remedy"))][:_REMEDIES]
        advised = cause.kind == "unknown" and bool(remedies)
        unavailable, degraded = _suffering(cause.problems)
        yield {
            "fleet": fleet,
            "severity": worst,
            # A finding without another explanation is its own cause.
            "kind": "" if cause.kind == "unknown" else cause.kind,
            "title": title,
            "impact": _impact(unavailable, degraded, mine),
            "since": min((row["since"] for row in mine if row.get("since")), default=None),
            "servers": list(cause.servers),
            "unavailable": len(unavailable),
            "degraded": len(degraded),
            "findings": len(cause.problems),
            # The title of a single finding is its own evidence.
            "evidence": [line for line in cause.evidence if line not in title][:_EVIDENCE],
            "commands": remedies if advised else list(cause.commands),
            "shell": not advised,
            "hygiene": all(row["check"] in HYGIENE for row in mine),
        }


def _suffering(problems: Iterable[Any]) -> tuple[set[str], set[str]]:
    """Return the streams and consumers that are unavailable, and the others that have less redundancy than they should."""
    unavailable, degraded = set(), set()
    for problem in problems:
        if problem.code.startswith(("stream_", "consumer_", "raft_")):
            if problem.code.endswith("_no_leader"):
                unavailable.add(problem.subject)
            elif problem.code.endswith(("_replica_behind", "_replica_count")):
                degraded.add(problem.subject)
    return unavailable, degraded - unavailable


def _counted(assets: Collection[str]) -> str:
    """Return how many assets there are of each kind, such as `2 streams and 1 consumer`."""
    counted = module_util("units").counted
    kinds = Counter("consumer" if asset.startswith("consumer ") else "stream" for asset in assets)
    return " and ".join(counted(number, kind) for kind, number in sorted(kinds.items(), reverse=True))


def _impact(unavailable: Collection[str], degraded: Collection[str], rows: Sequence[Row]) -> str:
    """Return the consequence in one or two sentences: that for the assets, otherwise that of the worst check or its title."""
    parts = []
    if unavailable:
        parts.append(f"Unavailable: {_counted(unavailable)}.")
    if degraded:
        parts.append(f"Another failure can stop {_counted(degraded)}.")
    if parts:
        return " ".join(parts)
    worst = min(rows, key=lambda row: SEVERITIES.index(row["severity"]))
    check = REGISTRY.checks.get(worst["check"])
    return IMPACT.get(worst["check"]) or (f"{check.title}." if check else "")


def _away(fleet: str, content: Mapping[str, Any], meant: Sequence[Any]) -> dict[str, str]:
    """Return the servers in planned maintenance at the time of the fleet's last snapshot, with the reason."""
    looks = [row["taken"] for row in dicts(content, "fleets") if row["fleet"] == fleet and row["taken"]]
    times = [parse_time(look).timestamp() for look in looks]
    return {
        server: window.why
        for window in meant
        if any(window.begin <= time <= window.end for time in times)
        for server in window.servers
    }


def _names(lists: Iterable[Iterable[str] | None]) -> frozenset[str]:
    return frozenset(name for names in lists for name in names or ())


def _coded(rows: Sequence[Row], changes: Sequence[Row], missing: frozenset[str], disabled: frozenset[str]) -> list[Row]:
    """Return the findings with the `code` of their cause, null for a cause of its own. Findings of one fault
    are in the order of their checks. `missing`: servers that explain groups without a leader; `disabled`: servers without
    JetStream."""
    delivery: dict[_Key, str] = {}
    for check in DELIVERY:
        for row in rows:
            if row["check"] == check:
                delivery.setdefault(_consumer(row), check)
    removed = _removed_origins(rows, changes)
    full = {_full_asset(row): row["check"] for row in rows if row["check"] in _FULL.values()}
    flapping = {_consumer(row) for row in rows if row["check"] in _FLAPPING}
    coded: list[tuple[int, Row]] = []
    for row in rows:
        check = row["check"]
        code, place = _FAULTS.get(check, (CODES.get(check), 0))
        more: Row = {}
        if check in DELIVERY:
            first, place = delivery[_consumer(row)], DELIVERY.index(check)
            code = CODES.get(first, first.lower())
        elif check == "SERVER_206" and row["server"] in disabled:
            code = "server_reconfigured"
        elif check in _ORIGIN_CHECKS and _group(row) in removed:
            code, more = "origin_removed", _with_removal(row, removed[_group(row)])
        elif check in _FORECASTS and _full_asset(row) in full:
            code, place = full[_full_asset(row)].lower(), 1
        elif check in _ELECTIONS and not missing and _consumer(row) in flapping:
            code, place = "leader_flapping", len(SAME_FAULT["leader_flapping"])
        coded.append((place, {**row, **more, "code": code}))
    coded.sort(key=lambda item: (SEVERITIES.index(item[1]["severity"]), item[0]))
    return [row for _place, row in coded]


_Key = tuple[Any, ...]


def _consumer(row: Row) -> _Key:
    return (*_group(row), row["consumer"])


def _full_asset(row: Row) -> _Key:
    """Return the scope and the name of a full asset, as forecasts name it."""
    if row["check"] in _FORECASTS:
        return (row["domain"], *str(row["name"]).split(" ")[:2])
    names = (row["server"],) if row["server"] else (row["account"], row["stream"])
    scope = next(scope for scope, check in _FULL.items() if check == row["check"])
    return row["domain"], scope, "/".join(str(name) for name in names if name)


def _removed_origins(rows: Sequence[Row], changes: Sequence[Row]) -> dict[_Key, dict[str, str]]:
    """Return the removed origins of the streams that findings call cut off, with the times of their removal."""
    gone = {_group(row): row["taken"] for row in changes if (row["object"], row["what"]) == ("stream", "removed")}
    found: dict[_Key, dict[str, str]] = {}
    for row in rows:
        for origin in _peers(row) if row["check"] in _ORIGIN_CHECKS else ():
            removal = gone.get((*_group(row)[:-1], origin))
            if removal:
                found.setdefault(_group(row), {})[origin] = removal
    return found


def _with_removal(row: Row, origins: Mapping[str, str]) -> Row:
    names = " and ".join(sorted(origins))
    return {
        "text": f"its origin {names} was removed at {min(origins.values())}; {row['text']}",
        "remedy": _ORIGIN_REMOVED.format(origin=names, subject=row["stream"]),
    }


#: The stream whose members a finding is about, with its domain; that of its consumers, too. The meta group has none.
_Group = tuple[Any, ...]


def _group(row: Row) -> _Group:
    return tuple(row[name] for name in STREAM)


def _members_behind(rows: Iterable[Row]) -> dict[_Group, set[str]]:
    """Return the members of each stream, and of the meta groups, that findings report as missing or behind."""
    found: dict[_Group, set[str]] = {}
    for row in rows:
        code = row["code"] or ""
        names = [row["server"]] if code.startswith("meta_") else _peers(row)
        if code.endswith(("_replica_behind", "_peer_missing")):
            found.setdefault(_group(row), set()).update(filter(None, names))
    return found


def _peers(row: Row) -> list[str]:
    """Return the servers at fault according to a finding, apart from its subject."""
    return str(row["peer"] or "").split(", ") if row["peer"] else []


def _problem(
    causes: Any,
    row: Row,
    missing: frozenset[str],
    disabled: frozenset[str],
    members: Mapping[_Group, set[str]],
    several: bool,
) -> Any:
    code = row["code"]
    # Servers without JetStream have routes, but take part in no group.
    inactive = {*missing, *(disabled if code not in ("server_lacks_routes", "consumer_stuck") else ())}
    subject, servers, absent = _subject(row, several), [row["server"]] if row["server"] else [], set()
    if code == "server_missing":
        # A snapshot may lack answers although all servers are up.
        code, servers = (code, sorted(missing)) if missing else (None, [])
    elif code in _DEPENDENT_FINDINGS or (code and code.endswith("_was_leaderless")):
        servers, absent = [], inactive
    elif code and code.endswith(("_no_leader", "_stuck")):
        unseen = row["value"] is not None and row["threshold"] is not None and row["value"] < row["threshold"]
        absent = inactive if unseen or code in ("raft_no_leader", "consumer_stuck") else set()
        absent.update(_peers(row))
        servers = []
    elif code and code.endswith(("_replica_behind", "_replica_count", "_moving")):
        absent = {row["server"]} if row["server"] else set(members.get(_group(row), ()))
        servers = sorted(absent)
    named = f"{subject} of the domain {row['domain']}" if several and subject == _META and row["domain"] else subject
    message = f"{named}: {row['text']}" if subject else str(row["text"])
    data = {
        "code": code or str(row["check"]).lower(),
        "severity": _SEVERITY.get(row["severity"], row["severity"]),
        "subject": subject,
        "message": message,
        "servers": servers,
        "absent": sorted(absent),
    }
    return causes.parse_problem(data)


_META = "meta group"


def _subject(row: Row, several: bool) -> str:
    """Return the subject of a finding, named as in the gate. `several`: with several domains, the account is followed by its
    domain, as in EDGE@berlin."""
    account = f"{row['account']}@{row['domain']}" if several and row["account"] and row["domain"] else row["account"]
    if row["stream"]:
        kind = "consumer" if row["consumer"] else "stream"
        return f"{kind} {'/'.join(str(part) for part in (account, row['stream'], row['consumer']) if part)}"
    if str(row["check"]).startswith("META_"):
        return _META
    if str(row["check"]).startswith("RAFT_") and row["name"]:
        kind, _space, name = str(row["name"]).partition(" ")
        # The group is at fault, or a member of it; a server that is up is not.
        return _META if kind == "_meta_" else f"{kind} {account}/{name}" if name else f"Raft group {account}/{kind}"
    if str(row["check"]).startswith("CAPACITY_") and row["name"]:
        scope, _space, asset = str(row["name"]).partition(" ")
        named = asset.partition(" ")[0]
        return f"stream {named}" if scope == "stream" else named
    if row["check"] == "ACCOUNTS_201":
        return f"{account} ({row['name']})"
    return str(row["server"] or account or row["cluster"] or row["name"] or row["fleet"] or "")
