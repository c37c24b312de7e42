# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The reports of the nats command, built from the results of nats_cluster_info and nats_server_info. Pure.

`report_data` builds the reports as plain data for programs; `report_page` formats that data as tables for operators.
Columns are those of natscli (cli/server_report_command.go, server_list_command.go, stream_command.go,
consumer_command.go)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..backup.catalogue import parse_catalogue
from ..backup.protection import protections
from ..health.cause import ClusterContext, inventory_sources, scene_of_info
from ..health.causes import parse_problem, root_causes
from ..health.rules import split_tolerated
from ..maintenance import Mark, known_problems, mark_texts
from ..nats.account_names import account_id
from ..nats.model import api_level
from .report_table import ReportColumn, ReportSource, ReportTable, Row, grouped, sums
from .traffic_tables import account_tables, connection_tables, gateway_tables, leafnode_tables, route_tables

SCHEMA = 1
DEFAULT_REPORTS = ("servers", "jetstream")
#: The reports available to a user of an account.
ACCOUNT_TABLES = ("streams", "consumers", "backups")


def _servers(source: ReportSource) -> list[ReportTable]:
    columns = (
        ReportColumn("name", "Name"),
        ReportColumn("cluster", "Cluster"),
        ReportColumn("host", "Host"),
        ReportColumn("version", "Version"),
        ReportColumn("jetstream", "JS"),
        ReportColumn("connections", "Conns", "number"),
        ReportColumn("subscriptions", "Subs", "number"),
        ReportColumn("routes", "Routes", "number"),
        ReportColumn("gateways", "GWs", "number"),
        ReportColumn("mem", "Mem", "bytes"),
        ReportColumn("cpu", "CPU %", "percent"),
        ReportColumn("cores", "Cores", "number"),
        ReportColumn("slow_consumers", "Slow", "number"),
        ReportColumn("uptime", "Uptime", "seconds"),
        ReportColumn("rtt", "RTT", "seconds"),
    )
    rows = [{column.key: server.get(column.key) for column in columns} for server in source.servers]
    for row, server in zip(rows, source.servers):
        row["jetstream"] = server.get("domain") or server["jetstream"]
    clusters = grouped(source.servers, "cluster")
    total: Row = {
        "name": "",
        "cluster": len(clusters),
        "host": len(source.servers),
        "version": "differ" if len({server["version"] for server in source.servers}) > 1 else "",
        "jetstream": sum(server["jetstream"] for server in source.servers),
        "routes": "differ" if any(len({one["routes"] for one in group}) > 1 for group in clusters.values()) else "",
        "gateways": "differ" if len({server["gateways"] for server in source.servers}) > 1 else "",
        **sums(source.servers, "connections", "subscriptions", "mem", "slow_consumers"),
    }
    cluster_columns = (
        ReportColumn("cluster", "Cluster"),
        ReportColumn("servers", "Node Count", "number"),
        ReportColumn("gateways", "Outgoing Gateways", "number"),
        ReportColumn("inbound_gateways", "Incoming Gateways", "number"),
        ReportColumn("connections", "Connections", "number"),
    )
    cluster_rows: list[Row] = [
        {"cluster": name, "servers": len(group), **sums(group, "gateways", "inbound_gateways", "connections")}
        for name, group in sorted(clusters.items())
    ]
    cluster_total = {"cluster": "", **sums(cluster_rows, "servers", "gateways", "inbound_gateways", "connections")}
    return [
        ReportTable("servers", "Server Overview", columns, rows + source.absent_rows("name"), [total]),
        ReportTable("clusters", "Cluster Overview", cluster_columns, cluster_rows, [cluster_total]),
    ]


_STORED = ("streams", "consumers", "messages", "bytes", "memory", "storage")
#: Bytes that streams with max_bytes reserve, whether written or not, and a server's limits for reservations and usage.
_LIMITS = ("reserved_storage", "max_storage")
_API = ("api_total", "api_errors", "pending")


def _jetstream(source: ReportSource) -> list[ReportTable]:
    """Return the usage and the leaders of each server, and the meta group."""
    held = _held_by_account(source) if source.account else _held(source)
    leader = source.meta.get("leader")
    domains = any(server.get("domain") for server in source.servers)
    columns = [
        ReportColumn("server", "Server"),
        ReportColumn("cluster", "Cluster"),
        *([ReportColumn("domain", "Domain")] if domains else []),
        ReportColumn("streams", "Streams", "number"),
        ReportColumn("consumers", "Consumers", "number"),
        ReportColumn("messages", "Messages", "number"),
        ReportColumn("bytes", "Bytes", "bytes"),
        ReportColumn("memory", "Memory", "bytes"),
        ReportColumn("storage", "File", "bytes"),
        *([] if source.account else [ReportColumn("reserved_storage", "Reserved", "bytes")]),
        *([] if source.account else [ReportColumn("max_storage", "File Limit", "bytes")]),
        ReportColumn("api_total", "API Req", "number"),
        ReportColumn("api_errors", "API Err", "number"),
        ReportColumn("pending", "Pending", "number"),
    ]
    rows = [
        {
            "server": server["name"],
            "meta_leader": server["name"] == leader,
            "cluster": server["cluster"],
            "domain": server.get("domain", ""),
            **{key: held[server["name"]].get(key) for key in (*_STORED, *_LIMITS, *_API)},
        }
        for server in source.servers
        if server["name"] in held
    ]
    once: Row = {
        "server": "each stream once",
        "streams": len(source.streams),
        "consumers": len(list(source.consumers)),
        **sums(source.streams, "messages", "bytes"),
        **{
            kind: sum(stream["bytes"] for stream in source.streams if stream["storage"] == storage)
            for kind, storage in (("memory", "memory"), ("storage", "file"))
        },
    }
    title = "JetStream Summary" + (f" for Account {source.account}" if source.account else "")
    tables = [
        ReportTable(
            "jetstream",
            title,
            columns,
            rows + source.absent_rows(),
            [{"server": "every replica", **sums(rows, *_STORED, *_LIMITS, *_API)}, once],
            ["API Err counts the requests that a server refused since its start, such as those for a missing stream."]
            if any(row.get("api_errors") for row in rows)
            else [],
        ),
        _leaders(source),
    ]
    return [*tables, _meta(source)]


def _held(source: ReportSource) -> dict[str, Mapping[str, Any]]:
    return {server["name"]: server["js"] for server in source.servers if server.get("js")}


def _held_by_account(source: ReportSource) -> dict[str, Mapping[str, Any]]:
    """Return the usage of one account on each server: its replicas, as JSZ counts them for that account."""
    held: dict[str, Mapping[str, Any]] = {}
    for server, jsz in source.read("jsz"):
        if jsz is None or jsz.get("disabled"):
            continue
        details = [
            item for item in jsz.get("account_details") or () if source.account in (account_id(item), item["name"])
        ]
        streams = [stream for item in details for stream in item.get("stream_detail") or ()]
        held[server["name"]] = {
            "streams": len(streams),
            "consumers": sum(len(stream.get("consumer_detail") or ()) for stream in streams),
            "messages": sum(stream["state"]["messages"] for stream in streams),
            "bytes": sum(stream["state"]["bytes"] for stream in streams),
            "memory": sum(item.get("memory", 0) for item in details),
            "storage": sum(item.get("storage", 0) for item in details),
            "api_total": sum((item.get("api") or {}).get("total", 0) for item in details),
            "api_errors": sum((item.get("api") or {}).get("errors", 0) for item in details),
            "pending": (server.get("js") or {}).get("pending"),
        }
    return held


def _leaders(source: ReportSource) -> ReportTable:
    """Return how many streams and consumers each server leads. A consumer and its stream may have different leaders."""
    columns = (
        ReportColumn("server", "Server"),
        ReportColumn("cluster", "Cluster"),
        ReportColumn("streams", "Stream Leaders", "number"),
        ReportColumn("consumers", "Consumer Leaders", "number"),
    )
    streams = [stream["leader"] for stream in source.streams]
    consumers = [consumer["leader"] for _stream, consumer in source.consumers]
    rows: list[Row] = [
        {
            "server": server["name"],
            "cluster": server["cluster"],
            "streams": streams.count(server["name"]),
            "consumers": consumers.count(server["name"]),
        }
        for server in source.servers
        if server["jetstream"]
    ]
    totals: list[Row] = []
    if None in streams or None in consumers:
        totals.append({"server": "NO LEADER", "streams": streams.count(None), "consumers": consumers.count(None)})
    return ReportTable("leaders", "Leaders of Streams and Consumers", columns, rows, totals)


def _meta(source: ReportSource) -> ReportTable:
    """Return the members of the meta group as its leader reports them, or the known members if there is no leader."""
    columns = (
        ReportColumn("name", "Name"),
        ReportColumn("id", "ID"),
        ReportColumn("leader", "Leader"),
        ReportColumn("current", "Current"),
        ReportColumn("online", "Online"),
        ReportColumn("active", "Active", "seconds"),
        ReportColumn("lag", "Lag", "number"),
    )
    meta = source.meta
    if not meta:
        return ReportTable("meta", "RAFT Meta Group", columns, (), notes=["No JetStream meta group was found."])
    title = f"RAFT Meta Group, {meta['quorum']} of {meta['size']} make a quorum"
    if meta["leader"] is not None:
        return ReportTable(
            "meta", title, columns, [{**peer, "leader": "yes" if peer["leader"] else ""} for peer in meta["replicas"]]
        )
    answering = {server["name"] for server in source.info["servers"]}
    rows = [{"name": name, "leader": "", "online": name in answering} for name in meta["members"]]
    claims = meta.get("leaders") or ()
    why = f"{', '.join(claims)} all claim to lead it" if claims else "no server leads it"
    up = len([name for name in meta["members"] if name in answering])
    note = (
        f"WARNING: the meta group has no leader ({why}). It has {meta['size']} members, {up} of them answered, and "
        f"{meta['quorum']} must be up: until then no stream or consumer can be created, changed or moved."
    )
    return ReportTable("meta", title, columns, rows, notes=[note])


def _streams(source: ReportSource) -> list[ReportTable]:
    columns = (
        ReportColumn("account", "Account", grouped=True),
        ReportColumn("stream", "Stream"),
        ReportColumn("storage", "Storage"),
        ReportColumn("placement", "Placement"),
        ReportColumn("consumers", "Consumers", "number"),
        ReportColumn("messages", "Messages", "number"),
        ReportColumn("bytes", "Bytes", "bytes"),
        ReportColumn("lost", "Lost", "number"),
        ReportColumn("num_deleted", "Deleted", "number"),
        ReportColumn("api_level", "API Level", "number"),
        ReportColumn("replicas", "Replicas"),
    )
    rows: list[Row] = [
        {
            **{key: stream[key] for key in ("storage", "messages", "bytes", "num_deleted", "api_level")},
            "account": stream["account_name"],
            "stream": stream["name"],
            "placement": _placement(stream["placement"]),
            "consumers": len(stream["consumers"]),
            "lost": stream["lost_messages"],
            **_group(stream),
        }
        for stream in source.streams
    ]
    once: Row = {
        "account": "each stream once",
        "stream": len(rows),
        **sums(rows, "consumers", "messages", "bytes", "lost", "num_deleted"),
    }
    copies = [len(stream["members"]) for stream in source.streams]
    every: Row = {
        "account": "every replica",
        "stream": sum(copies),
        "consumers": sum(len(consumer["members"]) for _stream, consumer in source.consumers),
        "messages": sum(row["messages"] * count for row, count in zip(rows, copies)),
        "bytes": sum(row["bytes"] * count for row, count in zip(rows, copies)),
    }
    return [ReportTable("streams", "Stream Report", columns, rows, [every, once], _marks(rows))]


def _backups(source: ReportSource) -> list[ReportTable]:
    """Return when each stream was last saved and last restored successfully in a drill."""
    if source.catalogue is None:
        raise ValueError("the report backups needs the catalogue of a result of nats_backup_info")
    columns = (
        ReportColumn("account", "Account", grouped=True),
        ReportColumn("stream", "Stream"),
        ReportColumn("saved", "Last Backup"),
        ReportColumn("proven", "Last Proven Restore"),
        ReportColumn("restore_seconds", "Restored In", "seconds"),
        ReportColumn("problem", "Problem"),
    )
    found = protections(source.catalogue, [(stream["account"], stream["name"]) for stream in source.streams])
    names = source.account_names
    rows: list[Row] = [
        {
            **one.as_dict(),
            "account": names.get(one.account, one.account_name),
            "problem": "; ".join(
                text
                for text in ("excluded from the backups" if one.excluded else "", one.problem, one.drill_problem)
                if text
            ),
        }
        for one in found
    ]
    notes = [
        f"WARNING: {len(names):,} never {word}: {', '.join(names)}"
        for word, names in (
            ("saved", [one.label for one in found if not one.saved and not one.excluded]),
            ("proven to restore", [one.label for one in found if one.saved and not one.proven and not one.excluded]),
        )
        if names
    ]
    return [ReportTable("backups", "Backups of Streams", columns, rows, notes=notes)]


def _consumers(source: ReportSource) -> list[ReportTable]:
    columns = (
        ReportColumn("account", "Account", grouped=True),
        ReportColumn("stream", "Stream", grouped=True),
        ReportColumn("consumer", "Consumer"),
        ReportColumn("mode", "Mode"),
        ReportColumn("ack_policy", "Ack Policy"),
        ReportColumn("ack_wait", "Ack Wait", "seconds"),
        ReportColumn("num_ack_pending", "Ack Pending", "number"),
        ReportColumn("max_ack_pending", "of at most", "number"),
        ReportColumn("num_waiting", "Pulls Waiting", "number"),
        ReportColumn("num_redelivered", "Redelivered", "number"),
        ReportColumn("num_pending", "Unprocessed", "number"),
        ReportColumn("unprocessed", "% of Stream", "percent"),
        ReportColumn("ack_floor", "Ack Floor", "number"),
        ReportColumn("api_level", "API Level", "number"),
        ReportColumn("replicas", "Replicas"),
    )
    keys = (
        *("ack_policy", "ack_wait", "num_ack_pending", "max_ack_pending", "num_waiting", "num_redelivered"),
        *("num_pending", "ack_floor", "api_level"),
    )
    rows: list[Row] = [
        {
            **{key: consumer[key] for key in keys},
            "account": stream["account_name"],
            "stream": stream["name"],
            "consumer": consumer["name"],
            "mode": ("Pull" if consumer["pull"] else "Push") + (", paused" if consumer["paused"] else ""),
            "unprocessed": min(100, 100 * consumer["num_pending"] // stream["messages"]) if stream["messages"] else 0,
            **_group(consumer),
        }
        for stream, consumer in source.consumers
    ]
    total: Row = {
        "account": "",
        "consumer": len(rows),
        **sums(rows, "num_ack_pending", "num_redelivered", "num_pending"),
    }
    return [ReportTable("consumers", "Consumer Report", columns, rows, [total], _marks(rows))]


def _health(source: ReportSource) -> list[ReportTable]:
    columns = (
        ReportColumn("server", "Server", grouped=True),
        ReportColumn("cluster", "Cluster", grouped=True),
        ReportColumn("domain", "Domain", grouped=True),
        ReportColumn("status", "Status", grouped=True),
        ReportColumn("type", "Type"),
        ReportColumn("error", "Error"),
    )
    rows: list[Row] = []
    healthy = errors = 0
    for server, healthz in source.read("healthz"):
        base = {"server": server["name"], "cluster": server["cluster"], "domain": server.get("domain", "")}
        if healthz is None:
            rows.append({**base, "status": "UNKNOWN", "type": "", "error": "the server did not report its health"})
            continue
        status = f"{healthz.get('status', '')} ({healthz.get('status_code', '')})"
        found = healthz.get("errors") or ([{"error": healthz["error"]}] if healthz.get("error") else [])
        healthy += healthz.get("status") == "ok"
        errors += len(found)
        rows += [
            {**base, "status": status, "type": one.get("type", ""), "error": one.get("error", "")} for one in found
        ]
        if not found:
            rows.append({**base, "status": status, "type": "", "error": ""})
    total: Row = {
        "server": len(source.servers),
        "cluster": len({server["cluster"] for server in source.servers}),
        "status": f"ok: {healthy} / not ok: {len(source.servers) - healthy}",
        "error": errors,
    }
    return [ReportTable("health", "Health Report", columns, rows + source.absent_rows(), [total])]


def _expiry(source: ReportSource) -> list[ReportTable]:
    """Return the JWTs that expire, the earliest first; see accounts/expiry.py."""
    found = source.info.get("jwts")
    if found is None:
        raise ValueError("expiry: the result of nats_cluster_info has no JWTs: set its option jwts")
    columns = (
        ReportColumn("kind", "JWT"),
        ReportColumn("account_name", "Account"),
        ReportColumn("role", "Role"),
        ReportColumn("name", "Name"),
        ReportColumn("expires_at", "Expires"),
        ReportColumn("connections", "Connections", "number"),
        ReportColumn("severity", "Severity"),
    )
    rows = [row for row in found["expiring"] if source.account in (None, row["account"], row["account_name"])]
    notes = [*(row["text"] for row in rows if row["severity"]), *found["unknown"]]
    if not found["operator_mode"]:
        notes.append("The servers are not in operator mode: there are no JWTs.")
    return [ReportTable("expiry", "JWTs That Expire", columns, rows, notes=notes)]


def _usage(name: str, title: str, unit: str) -> Callable[[ReportSource], list[ReportTable]]:
    def make(source: ReportSource) -> list[ReportTable]:
        columns = (
            ReportColumn("server", "Server"),
            ReportColumn("cluster", "Cluster"),
            ReportColumn(name, title, unit),
            ReportColumn(name, "", "bar"),
        )
        rows: list[Row] = [
            {"server": server["name"], "cluster": server["cluster"], name: server[name]}
            for server in sorted(source.servers, key=lambda one: -one[name])
        ]
        heading = f"{'Memory' if name == 'mem' else 'CPU'} Usage"
        return [ReportTable(name, heading, columns, rows + source.absent_rows(), [{"server": "", **sums(rows, name)}])]

    return make


#: Report → the functions that build its tables.
REPORTS: dict[str, Callable[[ReportSource], list[ReportTable]]] = {
    "servers": _servers,
    "jetstream": _jetstream,
    "streams": _streams,
    "consumers": _consumers,
    "accounts": account_tables,
    "backups": _backups,
    "connections": connection_tables,
    "routes": route_tables,
    "gateways": gateway_tables,
    "leafnodes": leafnode_tables,
    "cpu": _usage("cpu", "CPU %", "percent"),
    "mem": _usage("mem", "Mem", "bytes"),
    "health": _health,
    "expiry": _expiry,
}


def report_data(
    info: Mapping[str, Any],
    server_info: Mapping[str, Any] | None = None,
    reports: Sequence[str] = DEFAULT_REPORTS,
    cluster: str | None = None,
    account: str | None = None,
    server_names: Sequence[str] | None = None,
    catalogue: Mapping[str, Any] | None = None,
    route_compression: str | Mapping[str, Any] | None = None,
    consumer_info: Mapping[str, Any] | None = None,
    marks: Mapping[str, Mark] | None = None,
    inventory: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the reports as data: schema, servers that responded and that did not, tables, problems and their root
    causes.

    `info` is the result of nats_cluster_info, or of nats_stream_info, which supports the reports ACCOUNT_TABLES, and
    then `consumer_info` is the result of nats_consumer_info. `server_info` is the result of nats_server_info with the
    endpoints that the reports need. `cluster` and `server_names` restrict the tables; if `account` is set, both results
    were read for this account. `catalogue`: the catalogue of the backups, as returned by nats_backup_info.
    `route_compression`: the configured `cluster.compression` of all servers, None if unknown. `marks`: the servers in
    maintenance; each is a problem, and problems that only they cause are omitted. `inventory`: the sources that the
    printed commands name. Raises ValueError for an unknown
    report, and for an endpoint or a catalogue that was not read."""
    _require_reports(reports, only_account="view" in info)
    if "view" in info:
        info = _info_of_account(info, consumer_info or {})
    answering = {server["name"] for server in info["servers"]}
    wanted = None if server_names is None else set(server_names)
    source = ReportSource(
        info=info,
        account=account,
        catalogue=None if catalogue is None else parse_catalogue(catalogue),
        route_compression=route_compression,
        **_selected(info, cluster, account, wanted),
        **_replies(server_info or {}),
    )
    tables = [one.as_dict() for name in reports for one in REPORTS[name](source)]
    marks, now = marks or {}, time.time()
    away = mark_texts(marks, now)
    sources = inventory_sources(inventory)
    if "view" in info:
        context = ClusterContext(answered=_online(info), inventory=sources)
    else:
        context = scene_of_info(info, maintenance=away, inventory=sources)
    problems, _excused = split_tolerated([parse_problem(one) for one in info.get("problems") or ()], marks)
    problems += known_problems(marks.values(), now, answering)
    causes = root_causes(problems, context)
    return {
        "schema": SCHEMA,
        "cluster": cluster,
        "account": account,
        "servers": [server["name"] for server in source.servers],
        "not_answering": list(source.absent),
        "tables": tables,
        "problems": [problem.as_dict() for problem in problems],
        "causes": [cause.as_dict() for cause in causes],
    }


def _require_reports(reports: Sequence[str], only_account: bool) -> None:
    """Raise ValueError for an unknown report, and for one that the user of an account cannot read."""
    unknown = [name for name in reports if name not in REPORTS]
    if unknown:
        raise ValueError(f"there is no report {', '.join(unknown)}; there are: {', '.join(REPORTS)}")
    beyond = [name for name in reports if only_account and name not in ACCOUNT_TABLES]
    if beyond:
        raise ValueError(f"{', '.join(beyond)}: this report requires a user of the system account")


def _selected(
    info: Mapping[str, Any], cluster: str | None, account: str | None, wanted: set[str] | None
) -> dict[str, Any]:
    """Return the servers and streams of a cluster, an account, and the `wanted` servers (None for all)."""
    answering = {server["name"] for server in info["servers"]}
    known = {*info.get("missing", ()), *((info.get("meta") or {}).get("members") or ())}
    return {
        "servers": [
            server
            for server in info["servers"]
            if cluster in (None, server["cluster"]) and (wanted is None or server["name"] in wanted)
        ],
        "streams": [
            stream
            for stream in info.get("streams", ())
            if cluster in (None, stream["cluster"])
            and account in (None, stream["account"], stream["account_name"])
            and (wanted is None or wanted & set(stream["members"]))
        ],
        "absent": sorted(known - answering if wanted is None else (known | wanted) & wanted - answering),
    }


def _replies(server_info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the replies of nats_server_info by server, and the names of the endpoints that were requested."""
    endpoints = {server["name"]: server for server in server_info.get("servers", ())}
    requested = {key for row in endpoints.values() for key in row}
    requested |= {one["endpoint"] for one in server_info.get("incomplete", ())}
    return {"endpoints": endpoints, "requested": frozenset(requested)}


def _info_of_account(streams: Mapping[str, Any], consumers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results of nats_stream_info and nats_consumer_info in the form of nats_cluster_info, without
    servers."""
    consumers_by_stream = grouped([*consumers.get("consumers", ())], "stream")
    return {
        "view": streams["view"],
        "servers": [],
        "streams": [
            {
                **stream,
                **{key: stream["config"].get(key) for key in ("storage", "retention", "num_replicas")},
                **{key: stream["state"].get(key) or 0 for key in ("messages", "bytes", "num_deleted")},
                "account": stream["account"] or "",
                "account_name": stream["account_name"] or "",
                "lost_messages": len((stream["state"].get("lost") or {}).get("msgs") or ()),
                "placement": stream["config"].get("placement") or {},
                "api_level": api_level(stream["config"]),
                "consumers": [_consumer_of_account(one) for one in consumers_by_stream.get(stream["name"], ())],
            }
            for stream in streams["streams"]
        ],
        "problems": [*streams["problems"], *consumers.get("problems", ())],
    }


def _consumer_of_account(consumer: Mapping[str, Any]) -> dict[str, Any]:
    config = consumer["config"]
    return {
        **consumer,
        "pull": not config.get("deliver_subject"),
        "ack_policy": config.get("ack_policy", "none"),
        "ack_wait": config.get("ack_wait") or 0,
        "max_ack_pending": config.get("max_ack_pending") or 0,
        "num_waiting": consumer.get("num_waiting") or 0,
        "paused": bool(consumer.get("paused")),
        "ack_floor": (consumer.get("ack_floor") or {}).get("stream_seq", 0),
        "api_level": api_level(config),
    }


def _online(info: Mapping[str, Any]) -> frozenset[str]:
    """Return the servers that are in contact with leaders."""
    groups = [group for stream in info["streams"] for group in (stream, *stream["consumers"])]
    return frozenset(replica["name"] for group in groups for replica in group["replicas"] if replica["online"])


def _placement(placement: Mapping[str, Any]) -> str:
    parts = [f"cluster: {placement['cluster']}"] if placement.get("cluster") else []
    return " ".join([*parts, *([f"tags: {', '.join(placement['tags'])}"] if placement.get("tags") else [])])


def _group(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return the replicas of a group as text: `*` leads, `!` is unavailable or behind, `?` is unknown because there is
    no leader."""
    if group["leader"] is None:
        names = [f"{name}?" for name in group["members"]]
        why = f"{len(group['leaders'])} LEADERS" if group["leaders"] else "NO LEADER"
        return {"leader": None, "members": list(group["members"]), "replicas": f"{why}: {', '.join(names)}"}
    peers = [
        peer["name"] + ("*" if peer["leader"] else "" if peer["current"] and peer["online"] else "!")
        for peer in group["replicas"]
    ]
    return {"leader": group["leader"], "members": list(group["members"]), "replicas": ", ".join(peers)}


def _marks(rows: Sequence[Row]) -> list[str]:
    """Return the meanings of the marks used in the column of replicas, and the number of groups without a leader."""
    text = "".join(row["replicas"] for row in rows)
    meanings = (("*", "leads"), ("!", "is unavailable or behind"), ("?", "unknown, because there is no leader"))
    notes = ["; ".join(f"{mark} {meaning}" for mark, meaning in meanings if mark in text)] if text else []
    leaderless = sum(row["leader"] is None for row in rows)
    if leaderless:
        notes.append(f"WARNING: {leaderless} without a leader: they accept and deliver no messages.")
    return notes
