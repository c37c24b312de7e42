# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The reports of the nats command, built from the results of nats_cluster_info and nats_server_info. Pure.

`report_data` builds the reports as plain data for programs; `report_page` formats that data as tables for operators.
Columns are those of natscli (cli/server_report_command.go, server_list_command.go, stream_command.go,
consumer_command.go)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.backup.catalogue import Catalogue, parse_catalogue
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.protection import protections
from ansible_collections.natsops.jetstream.plugins.module_utils.health.causes import (
    Scene,
    parse_problem,
    root_causes,
    scene_of_info,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.health.routes import compression_notes
from ansible_collections.natsops.jetstream.plugins.module_utils.health.rules import split_tolerated
from ansible_collections.natsops.jetstream.plugins.module_utils.maintenance import Mark, known_problems, mark_texts
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.account_names import account_id
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import api_level
from ansible_collections.natsops.jetstream.plugins.module_utils.screen import (
    Page,
    blocks,
    cut,
    fitting,
    names_line,
    page,
    paragraphs,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.table import table_page
from ansible_collections.natsops.jetstream.plugins.module_utils.units import human_bytes, human_seconds

SCHEMA = 1
DEFAULT_REPORTS = ("servers", "jetstream")
#: The reports available to a user of an account.
ACCOUNT_TABLES = ("streams", "consumers", "backups")

_BAR_WIDTH = 30

Row = dict[str, Any]


@dataclass(frozen=True)
class Column:
    """A column: the key of its values, its heading, and how a value is written (text, number, bytes, seconds, percent,
    bar). A `grouped` value is shown only if it differs from the row above."""

    key: str
    title: str
    unit: str = "text"
    grouped: bool = False

    def as_dict(self) -> dict[str, Any]:
        return {"key": self.key, "title": self.title, "unit": self.unit, "grouped": self.grouped}


@dataclass(frozen=True)
class Table:
    """One table as data. Sizes are bytes, times seconds. `totals` are rows with a label in the first column, and
    `notes` are sentences below the table."""

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    totals: Sequence[Row] = ()
    notes: Sequence[str] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "columns": [column.as_dict() for column in self.columns],
            "rows": list(self.rows),
            "totals": list(self.totals),
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Source:
    """The filtered input of the reports. `absent`: expected servers that did not respond. `endpoints`: server → its row
    of nats_server_info; `requested`: the requested endpoints. `catalogue`: the catalogue of the backups, None if it was
    not read. `route_compression`: the configuration of the servers."""

    info: Mapping[str, Any]
    servers: Sequence[Mapping[str, Any]]
    streams: Sequence[Mapping[str, Any]]
    absent: Sequence[str] = ()
    endpoints: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    requested: frozenset[str] = frozenset()
    account: str | None = None
    catalogue: Catalogue | None = None
    route_compression: str | Mapping[str, Any] | None = None

    @property
    def meta(self) -> Mapping[str, Any]:
        return self.info.get("meta") or {}

    @property
    def account_names(self) -> dict[str, str]:
        """Return account identity → display name for accounts with streams; other endpoints have only the identity."""
        return {stream["account"]: stream["account_name"] for stream in self.info.get("streams") or ()}

    @property
    def consumers(self) -> Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        """Yield each consumer with its stream."""
        for stream in self.streams:
            for consumer in stream["consumers"]:
                yield stream, consumer

    def read(self, endpoint: str) -> Iterable[tuple[Mapping[str, Any], Mapping[str, Any] | None]]:
        """Yield each server with its reply to one endpoint, or None if it has not replied.

        Raises ValueError if nats_server_info was not called with this endpoint."""
        if endpoint not in self.requested and self.servers:
            raise ValueError(
                f"{endpoint} is missing: server_info must be a result of nats_server_info with this endpoint"
            )
        for server in self.servers:
            yield server, self.endpoints.get(server["name"], {}).get(endpoint)

    def absent_rows(self, key: str = "server") -> list[Row]:
        return [{key: name, "answers": False} for name in self.absent]


# --- the reports ------------------------------------------------------------------------------------------------------


def _servers(source: Source) -> list[Table]:
    columns = (
        Column("name", "Name"),
        Column("cluster", "Cluster"),
        Column("host", "Host"),
        Column("version", "Version"),
        Column("jetstream", "JS"),
        Column("connections", "Conns", "number"),
        Column("subscriptions", "Subs", "number"),
        Column("routes", "Routes", "number"),
        Column("gateways", "GWs", "number"),
        Column("mem", "Mem", "bytes"),
        Column("cpu", "CPU %", "percent"),
        Column("cores", "Cores", "number"),
        Column("slow_consumers", "Slow", "number"),
        Column("uptime", "Uptime", "seconds"),
        Column("rtt", "RTT", "seconds"),
    )
    rows = [{column.key: server.get(column.key) for column in columns} for server in source.servers]
    for row, server in zip(rows, source.servers):
        row["jetstream"] = server.get("domain") or server["jetstream"]
    clusters = _by(source.servers, "cluster")
    total: Row = {
        "name": "",
        "cluster": len(clusters),
        "host": len(source.servers),
        "version": "differ" if len({server["version"] for server in source.servers}) > 1 else "",
        "jetstream": sum(server["jetstream"] for server in source.servers),
        "routes": "differ" if any(len({one["routes"] for one in group}) > 1 for group in clusters.values()) else "",
        "gateways": "differ" if len({server["gateways"] for server in source.servers}) > 1 else "",
        **_sums(source.servers, "connections", "subscriptions", "mem", "slow_consumers"),
    }
    cluster_columns = (
        Column("cluster", "Cluster"),
        Column("servers", "Node Count", "number"),
        Column("gateways", "Outgoing Gateways", "number"),
        Column("inbound_gateways", "Incoming Gateways", "number"),
        Column("connections", "Connections", "number"),
    )
    cluster_rows: list[Row] = [
        {"cluster": name, "servers": len(group), **_sums(group, "gateways", "inbound_gateways", "connections")}
        for name, group in sorted(clusters.items())
    ]
    cluster_total = {"cluster": "", **_sums(cluster_rows, "servers", "gateways", "inbound_gateways", "connections")}
    return [
        Table("servers", "Server Overview", columns, rows + source.absent_rows("name"), [total]),
        Table("clusters", "Cluster Overview", cluster_columns, cluster_rows, [cluster_total]),
    ]


_STORED = ("streams", "consumers", "messages", "bytes", "memory", "storage")
#: Bytes that streams with max_bytes reserve, whether written or not, and a server's limits for reservations and usage.
_LIMITS = ("reserved_storage", "max_storage")
_API = ("api_total", "api_errors", "pending")


def _jetstream(source: Source) -> list[Table]:
    """Return the usage and the leaders of each server, and the meta group."""
    held = _held_by_account(source) if source.account else _held(source)
    leader = source.meta.get("leader")
    domains = any(server.get("domain") for server in source.servers)
    columns = [
        Column("server", "Server"),
        Column("cluster", "Cluster"),
        *([Column("domain", "Domain")] if domains else []),
        Column("streams", "Streams", "number"),
        Column("consumers", "Consumers", "number"),
        Column("messages", "Messages", "number"),
        Column("bytes", "Bytes", "bytes"),
        Column("memory", "Memory", "bytes"),
        Column("storage", "File", "bytes"),
        *([] if source.account else [Column("reserved_storage", "Reserved", "bytes")]),
        *([] if source.account else [Column("max_storage", "File Limit", "bytes")]),
        Column("api_total", "API Req", "number"),
        Column("api_errors", "API Err", "number"),
        Column("pending", "Pending", "number"),
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
        **_sums(source.streams, "messages", "bytes"),
        **{
            kind: sum(stream["bytes"] for stream in source.streams if stream["storage"] == storage)
            for kind, storage in (("memory", "memory"), ("storage", "file"))
        },
    }
    title = "JetStream Summary" + (f" for Account {source.account}" if source.account else "")
    tables = [
        Table(
            "jetstream",
            title,
            columns,
            rows + source.absent_rows(),
            [{"server": "every replica", **_sums(rows, *_STORED, *_LIMITS, *_API)}, once],
        ),
        _leaders(source),
    ]
    return [*tables, _meta(source)]


def _held(source: Source) -> dict[str, Mapping[str, Any]]:
    return {server["name"]: server["js"] for server in source.servers if server.get("js")}


def _held_by_account(source: Source) -> dict[str, Mapping[str, Any]]:
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


def _leaders(source: Source) -> Table:
    """Return how many streams and consumers each server leads. A consumer and its stream may have different leaders."""
    columns = (
        Column("server", "Server"),
        Column("cluster", "Cluster"),
        Column("streams", "Stream Leaders", "number"),
        Column("consumers", "Consumer Leaders", "number"),
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
    return Table("leaders", "Leaders of Streams and Consumers", columns, rows, totals)


def _meta(source: Source) -> Table:
    """Return the members of the meta group as its leader reports them, or the known members if there is no leader."""
    columns = (
        Column("name", "Name"),
        Column("id", "ID"),
        Column("leader", "Leader"),
        Column("current", "Current"),
        Column("online", "Online"),
        Column("active", "Active", "seconds"),
        Column("lag", "Lag", "number"),
    )
    meta = source.meta
    if not meta:
        return Table("meta", "RAFT Meta Group", columns, (), notes=["No JetStream meta group was found."])
    title = f"RAFT Meta Group, {meta['quorum']} of {meta['size']} make a quorum"
    if meta["leader"] is not None:
        return Table(
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
    return Table("meta", title, columns, rows, notes=[note])


def _streams(source: Source) -> list[Table]:
    columns = (
        Column("account", "Account", grouped=True),
        Column("stream", "Stream"),
        Column("storage", "Storage"),
        Column("placement", "Placement"),
        Column("consumers", "Consumers", "number"),
        Column("messages", "Messages", "number"),
        Column("bytes", "Bytes", "bytes"),
        Column("lost", "Lost", "number"),
        Column("num_deleted", "Deleted", "number"),
        Column("api_level", "API Level", "number"),
        Column("replicas", "Replicas"),
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
        **_sums(rows, "consumers", "messages", "bytes", "lost", "num_deleted"),
    }
    copies = [len(stream["members"]) for stream in source.streams]
    every: Row = {
        "account": "every replica",
        "stream": sum(copies),
        "consumers": sum(len(consumer["members"]) for _stream, consumer in source.consumers),
        "messages": sum(row["messages"] * count for row, count in zip(rows, copies)),
        "bytes": sum(row["bytes"] * count for row, count in zip(rows, copies)),
    }
    return [Table("streams", "Stream Report", columns, rows, [every, once], _marks(rows))]


def _backups(source: Source) -> list[Table]:
    """Return when each stream was last saved and last restored successfully in a drill."""
    if source.catalogue is None:
        raise ValueError("the report backups needs the catalogue of a result of nats_backup_info")
    columns = (
        Column("account", "Account", grouped=True),
        Column("stream", "Stream"),
        Column("saved", "Last Backup"),
        Column("proven", "Last Proven Restore"),
        Column("restore_seconds", "Restored In", "seconds"),
        Column("problem", "Problem"),
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
    return [Table("backups", "Backups of Streams", columns, rows, notes=notes)]


def _consumers(source: Source) -> list[Table]:
    columns = (
        Column("account", "Account", grouped=True),
        Column("stream", "Stream", grouped=True),
        Column("consumer", "Consumer"),
        Column("mode", "Mode"),
        Column("ack_policy", "Ack Policy"),
        Column("ack_wait", "Ack Wait", "seconds"),
        Column("num_ack_pending", "Ack Pending", "number"),
        Column("num_redelivered", "Redelivered", "number"),
        Column("num_pending", "Unprocessed", "number"),
        Column("unprocessed", "of Stream", "percent"),
        Column("ack_floor", "Ack Floor", "number"),
        Column("api_level", "API Level", "number"),
        Column("replicas", "Replicas"),
    )
    keys = ("ack_policy", "ack_wait", "num_ack_pending", "num_redelivered", "num_pending", "ack_floor", "api_level")
    rows: list[Row] = [
        {
            **{key: consumer[key] for key in keys},
            "account": stream["account_name"],
            "stream": stream["name"],
            "consumer": consumer["name"],
            "mode": "Pull" if consumer["pull"] else "Push",
            "unprocessed": min(100, 100 * consumer["num_pending"] // stream["messages"]) if stream["messages"] else 0,
            **_group(consumer),
        }
        for stream, consumer in source.consumers
    ]
    total: Row = {
        "account": "",
        "consumer": len(rows),
        **_sums(rows, "num_ack_pending", "num_redelivered", "num_pending"),
    }
    return [Table("consumers", "Consumer Report", columns, rows, [total], _marks(rows))]


_TRAFFIC = ("in_msgs", "out_msgs", "in_bytes", "out_bytes", "subscriptions")
_TRAFFIC_COLUMNS = (
    Column("in_msgs", "In Msgs", "number"),
    Column("out_msgs", "Out Msgs", "number"),
    Column("in_bytes", "In Bytes", "bytes"),
    Column("out_bytes", "Out Bytes", "bytes"),
    Column("subscriptions", "Subs", "number"),
)


def _accounts(source: Source) -> list[Table]:
    groups = _by(_connection_rows(source), "account")
    rows: list[Row] = [
        {"account": name, "connections": len(group), **_sums(group, *_TRAFFIC)}
        for name, group in sorted(groups.items())
    ]
    columns = (Column("account", "Account"), Column("connections", "Connections", "number"), *_TRAFFIC_COLUMNS)
    total = {"account": "", **_sums(rows, "connections", *_TRAFFIC)}
    return [Table("accounts", f"{len(rows)} Accounts Overview", columns, rows, [total], _silent(source, "connz"))]


def _connections(source: Source) -> list[Table]:
    rows = sorted(_connection_rows(source), key=lambda row: (-row["subscriptions"], row["server"], row["cid"]))
    columns = [
        Column("cid", "CID"),
        Column("name", "Name"),
        Column("server", "Server"),
        Column("cluster", "Cluster"),
        Column("address", "IP"),
        Column("account", "Account"),
        Column("uptime", "Uptime"),
        *_TRAFFIC_COLUMNS,
    ]
    if any(row["reason"] for row in rows):
        columns.append(Column("reason", "Reason"))
    counts = _by(rows, "server")
    per_server = [
        {"server": server["name"], "cluster": server["cluster"], "connections": len(counts.get(server["name"], ()))}
        for server in source.servers
    ]
    total = {"cid": "", "name": f"{len(rows):,} connections", **_sums(rows, *_TRAFFIC)}
    server_columns = (
        Column("server", "Server"),
        Column("cluster", "Cluster"),
        Column("connections", "Connections", "number"),
    )
    return [
        Table(
            "connections",
            "Connections by Subscriptions",
            columns,
            rows,
            [total],
            _silent(source, "connz"),
        ),
        Table(
            "connections_per_server",
            "Connections per Server",
            server_columns,
            per_server + source.absent_rows(),
            [{"server": "", **_sums(per_server, "connections")}],
        ),
    ]


def _connection_rows(source: Source) -> list[Row]:
    names = source.account_names
    return [
        {
            "cid": one["cid"],
            "kind": one.get("kind", ""),
            "name": one.get("name") or one.get("mqtt_client") or "",
            "server": server["name"],
            "cluster": server["cluster"],
            "address": _address(one),
            "account": names.get(one.get("account", ""), one.get("account", "")),
            "uptime": one.get("uptime", ""),
            **{key: one.get(key, 0) for key in _TRAFFIC},
            "reason": one.get("reason", ""),
        }
        for server, connz in source.read("connz")
        for one in (connz or {}).get("connections") or ()
        if source.account in (None, one.get("account"), names.get(one.get("account", "")))
    ]


def _gateways(source: Source) -> list[Table]:
    columns = (
        Column("server", "Server", grouped=True),
        Column("name", "Name", grouped=True),
        Column("port", "Port", grouped=True),
        Column("kind", "Kind", grouped=True),
        Column("connection", "Connection"),
        Column("id", "ID"),
        Column("uptime", "Uptime"),
        Column("rtt", "RTT"),
        Column("bytes", "Bytes", "bytes"),
        Column("accounts", "Accounts", "number"),
    )
    rows: list[Row] = []
    for server, gatewayz in source.read("gatewayz"):
        if gatewayz is None or not gatewayz.get("name"):
            continue
        outbound = sorted((gatewayz.get("outbound_gateways") or {}).items())
        inbound = [
            (name, one) for name, many in sorted((gatewayz.get("inbound_gateways") or {}).items()) for one in many
        ]
        for kind, counter, remotes in (("Inbound", "in_bytes", inbound), ("Outbound", "out_bytes", outbound)):
            for name, one in remotes:
                connection = one.get("connection") or {}
                rows.append(
                    {
                        "server": server["name"],
                        "name": gatewayz["name"],
                        "port": gatewayz.get("port"),
                        "kind": kind,
                        "connection": f"{name} {_address(connection)}",
                        "id": f"gid:{connection.get('cid', '')}",
                        "uptime": connection.get("uptime", ""),
                        "rtt": connection.get("rtt", ""),
                        "bytes": connection.get(counter, 0),
                        "accounts": len(one.get("accounts") or ()),
                    }
                )
    total: Row = {
        "server": len({row["server"] for row in rows}),
        "name": len({row["name"] for row in rows}),
        "connection": len(rows),
        **_sums(rows, "bytes"),
    }
    title, silent = "Super Cluster Report", _silent(source, "gatewayz")
    if not rows:
        return [Table("gateways", title, columns, (), notes=silent or ["No gateways: this is not a supercluster."])]
    return [Table("gateways", title, columns, rows + source.absent_rows(), [total], silent)]


def _routes(source: Source) -> list[Table]:
    columns = (
        Column("server", "Server", grouped=True),
        Column("cluster", "Cluster", grouped=True),
        Column("name", "Name", grouped=True),
        Column("account", "Account"),
        Column("address", "Address"),
        Column("id", "ID"),
        Column("uptime", "Uptime"),
        Column("rtt", "RTT"),
        Column("compression", "Compressed"),
        Column("subscriptions", "Subs", "number"),
        Column("in_bytes", "Bytes In", "bytes"),
        Column("out_bytes", "Bytes Out", "bytes"),
    )
    rows = sorted(
        (
            {
                "server": server["name"],
                "cluster": server["cluster"],
                "name": one.get("remote_name", ""),
                "account": one.get("account", ""),
                "address": _address(one),
                "id": f"rid:{one.get('rid', '')}",
                "uptime": one.get("uptime", ""),
                "rtt": one.get("rtt", ""),
                "compression": one.get("compression", ""),
                **{key: one.get(key, 0) for key in ("subscriptions", "in_bytes", "out_bytes")},
            }
            for server, routez in source.read("routez")
            for one in (routez or {}).get("routes") or ()
        ),
        key=lambda row: (row["server"], row["cluster"], row["name"], row["account"], row["id"]),
    )
    total: Row = {
        "server": len({row["server"] for row in rows}),
        "cluster": len({row["cluster"] for row in rows}),
        "address": len(rows),
        **_sums(rows, "subscriptions", "in_bytes", "out_bytes"),
    }
    notes = [*_silent(source, "routez"), *compression_notes(rows, source.route_compression)]
    return [Table("routes", "Cluster Report", columns, [*rows, *source.absent_rows()], [total], notes)]


def _leafnodes(source: Source) -> list[Table]:
    columns = (
        Column("server", "Server", grouped=True),
        Column("name", "Name"),
        Column("account", "Account"),
        Column("address", "Address"),
        Column("rtt", "RTT"),
        Column("in_msgs", "Msgs In", "number"),
        Column("out_msgs", "Msgs Out", "number"),
        Column("in_bytes", "Bytes In", "bytes"),
        Column("out_bytes", "Bytes Out", "bytes"),
        Column("subscriptions", "Subs", "number"),
        Column("compression", "Compressed"),
        Column("is_spoke", "Spoke"),
    )
    names = source.account_names
    rows: list[Row] = [
        {
            "server": server["name"],
            "name": one.get("name", ""),
            "account": names.get(one.get("account", ""), one.get("account", "")),
            "address": _address(one),
            "rtt": one.get("rtt", ""),
            **{key: one.get(key, 0) for key in _TRAFFIC},
            "compression": one.get("compression", ""),
            "is_spoke": bool(one.get("is_spoke")),
        }
        for server, leafz in source.read("leafz")
        for one in (leafz or {}).get("leafs") or ()
        if source.account in (None, one.get("account"), names.get(one.get("account", "")))
    ]
    silent = _silent(source, "leafz")
    if not rows:
        return [Table("leafnodes", "Leafnode Report", columns, (), notes=silent or ["No leaf nodes are connected."])]
    total = {"server": "", "name": len(rows), **_sums(rows, *_TRAFFIC)}
    return [Table("leafnodes", "Leafnode Report", columns, rows + source.absent_rows(), [total], silent)]


def _health(source: Source) -> list[Table]:
    columns = (
        Column("server", "Server", grouped=True),
        Column("cluster", "Cluster", grouped=True),
        Column("domain", "Domain", grouped=True),
        Column("status", "Status", grouped=True),
        Column("type", "Type"),
        Column("error", "Error"),
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
    return [Table("health", "Health Report", columns, rows + source.absent_rows(), [total])]


def _expiry(source: Source) -> list[Table]:
    """Return the JWTs that expire, the earliest first; see accounts/expiry.py."""
    found = source.info.get("jwts")
    if found is None:
        raise ValueError("expiry: the result of nats_cluster_info has no JWTs: set its option jwts")
    columns = (
        Column("kind", "JWT"),
        Column("account_name", "Account"),
        Column("role", "Role"),
        Column("name", "Name"),
        Column("expires_at", "Expires"),
        Column("connections", "Connections", "number"),
        Column("severity", "Severity"),
    )
    rows = [row for row in found["expiring"] if source.account in (None, row["account"], row["account_name"])]
    notes = [*(row["text"] for row in rows if row["severity"]), *found["unknown"]]
    if not found["operator_mode"]:
        notes.append("The servers are not in operator mode: there are no JWTs.")
    return [Table("expiry", "JWTs That Expire", columns, rows, notes=notes)]


def _usage(name: str, title: str, unit: str) -> Callable[[Source], list[Table]]:
    def make(source: Source) -> list[Table]:
        columns = (
            Column("server", "Server"),
            Column("cluster", "Cluster"),
            Column(name, title, unit),
            Column(name, "", "bar"),
        )
        rows: list[Row] = [
            {"server": server["name"], "cluster": server["cluster"], name: server[name]}
            for server in sorted(source.servers, key=lambda one: -one[name])
        ]
        heading = f"{'Memory' if name == 'mem' else 'CPU'} Usage"
        return [Table(name, heading, columns, rows + source.absent_rows(), [{"server": "", **_sums(rows, name)}])]

    return make


#: Report → the functions that build its tables.
REPORTS: dict[str, Callable[[Source], list[Table]]] = {
    "servers": _servers,
    "jetstream": _jetstream,
    "streams": _streams,
    "consumers": _consumers,
    "accounts": _accounts,
    "backups": _backups,
    "connections": _connections,
    "routes": _routes,
    "gateways": _gateways,
    "leafnodes": _leafnodes,
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
) -> dict[str, Any]:
    """Return the reports as data: schema, servers that responded and that did not, tables, problems and their root
    causes.

    `info` is the result of nats_cluster_info, or of nats_stream_info, which supports the reports ACCOUNT_TABLES, and
    then `consumer_info` is the result of nats_consumer_info. `server_info` is the result of nats_server_info with the
    endpoints that the reports need. `cluster` and `server_names` restrict the tables; if `account` is set, both results
    were read for this account. `catalogue`: the catalogue of the backups, as returned by nats_backup_info.
    `route_compression`: the configured `cluster.compression` of all servers, None if unknown. `marks`: the servers in
    maintenance; each is a problem, and problems that only they cause are omitted. Raises ValueError for an unknown
    report, and for an endpoint or a catalogue that was not read."""
    unknown = [name for name in reports if name not in REPORTS]
    if unknown:
        raise ValueError(f"there is no report {', '.join(unknown)}; there are: {', '.join(REPORTS)}")
    if "view" in info:
        beyond = [name for name in reports if name not in ACCOUNT_TABLES]
        if beyond:
            raise ValueError(f"{', '.join(beyond)}: this report requires a user of the system account")
        info = _info_of_account(info, consumer_info or {})
    answering = {server["name"] for server in info["servers"]}
    known = {*info.get("missing", ()), *((info.get("meta") or {}).get("members") or ())}
    wanted = None if server_names is None else set(server_names)
    server_info = server_info or {}
    endpoints = {server["name"]: server for server in server_info.get("servers", ())}
    requested = {key for row in endpoints.values() for key in row} | {
        one["endpoint"] for one in server_info.get("incomplete", ())
    }
    source = Source(
        info=info,
        servers=[
            server
            for server in info["servers"]
            if cluster in (None, server["cluster"]) and (wanted is None or server["name"] in wanted)
        ],
        streams=[
            stream
            for stream in info.get("streams", ())
            if cluster in (None, stream["cluster"])
            and account in (None, stream["account"], stream["account_name"])
            and (wanted is None or wanted & set(stream["members"]))
        ],
        absent=sorted(known - answering if wanted is None else (known | wanted) & wanted - answering),
        endpoints=endpoints,
        requested=frozenset(requested),
        account=account,
        catalogue=None if catalogue is None else parse_catalogue(catalogue),
        route_compression=route_compression,
    )
    tables = [one.as_dict() for name in reports for one in REPORTS[name](source)]
    marks, now = marks or {}, time.time()
    away = mark_texts(marks, now)
    scene = Scene(answered=_online(info)) if "view" in info else scene_of_info(info, maintenance=away)
    problems, _excused = split_tolerated([parse_problem(one) for one in info.get("problems") or ()], marks)
    problems += known_problems(marks.values(), now, answering)
    causes = root_causes(problems, scene)
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


def _info_of_account(streams: Mapping[str, Any], consumers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results of nats_stream_info and nats_consumer_info in the form of nats_cluster_info, without
    servers."""
    consumers_by_stream = _by([*consumers.get("consumers", ())], "stream")
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
        "ack_floor": (consumer.get("ack_floor") or {}).get("stream_seq", 0),
        "api_level": api_level(config),
    }


def _online(info: Mapping[str, Any]) -> frozenset[str]:
    """Return the servers that are in contact with leaders."""
    groups = [group for stream in info["streams"] for group in (stream, *stream["consumers"])]
    return frozenset(replica["name"] for group in groups for replica in group["replicas"] if replica["online"])


def report_page(data: Mapping[str, Any]) -> Page:
    """Return the tables of `report_data` and all problems as text for operators."""
    return fitting(lambda most: _report_page(data, most))


def _report_page(data: Mapping[str, Any], most: int) -> Page:
    parts = [_table_page(one, most) for one in data["tables"]]
    if data["not_answering"]:
        parts.append(names_line("NOT ANSWERING: ", data["not_answering"]))
    return paragraphs([*parts, _causes_page(data)])


def _causes_page(data: Mapping[str, Any]) -> Page:
    """Return the root causes of the problems as text, or a single line if there are none."""
    if not data["problems"]:
        return page("No problems found.")
    counts = Counter(one["severity"] for one in data["problems"])
    count = ", ".join(f"{number} {severity}{'' if number == 1 else 's'}" for severity, number in sorted(counts.items()))
    lines = [_cause_lines(number, cause, cause["evidence"]) for number, cause in enumerate(data["causes"], 1)]
    brief = [_cause_lines(number, cause, cause["evidence"][:1]) for number, cause in enumerate(data["causes"], 1)]
    causes = Page(blocks(lines, what="cause").lines, blocks(brief, what="cause").screen)
    return page(f"Problems ({count}), by root cause:") + causes


def _cause_lines(number: int, cause: Mapping[str, Any], evidence: Sequence[str]) -> list[str]:
    return [
        f"  {number}. {cause['severity']}: {cause['title']}",
        *(f"       {message}" for message in evidence if message != cause["title"]),
        *(f"     $ {command}" for command in cause["commands"]),
    ]


# --- writing ----------------------------------------------------------------------------------------------------------


def _table_page(data: Mapping[str, Any], most: int) -> Page:
    columns, rows, notes = data["columns"], data["rows"], data["notes"]
    if not rows and notes:
        return _notes_page(notes, page(data["title"]))
    # The largest value sets the length of a bar. For CPU, the maximum is at least 100 %, otherwise an idle cluster
    # would appear busy.
    scale = {
        column["key"]: max(
            [100.0 if column["key"] == "cpu" else 0.0, *(float(row.get(column["key"]) or 0) for row in rows)]
        )
        for column in columns
        if column["unit"] == "bar"
    }
    headings = [column["title"] for column in columns]
    totals = [[_written(column, row, {}) for column in columns] for row in data["totals"]]
    bad = {place for place, row in enumerate(rows) if _is_bad(row)}
    found = table_page(data["title"], headings, rows, totals, bad, lambda chosen: _cells(columns, chosen, scale), most)
    if data["name"] == "clusters" and len(rows) == 1:
        # The totals of the servers already contain these values.
        found = Page(found.lines)
    if data["name"] == "health" and not bad:
        found = Page(found.lines, (f"{data['title']}: {data['totals'][0]['status']}",))
    if data["name"] == "meta" and not bad and not notes:
        leader = next((row["name"] for row in rows if row["leader"]), "no server")
        found = Page(found.lines, (f"{data['title']}: {leader} leads, all {len(rows)} are online and current",))
    return _notes_page(notes, found)


def _notes_page(notes: Sequence[str], above: Page) -> Page:
    return above + Page(tuple(notes), tuple(cut(note) for note in notes))


def _is_bad(row: Mapping[str, Any]) -> bool:
    """Return whether a row needs attention; a screen shows such rows before the others."""
    if False in (row.get("answers"), row.get("online"), row.get("current")):
        return True
    if "replicas" in row and (row["leader"] is None or "!" in row["replicas"]):
        return True
    return bool(row.get("lost") or row.get("error") or row.get("problem"))


def _cells(
    columns: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]], scale: Mapping[str, float]
) -> list[list[Any]]:
    body: list[list[Any]] = []
    above: Mapping[str, Any] = {}
    for row in rows:
        cells = [_written(column, row, scale) for column in columns]
        if row.get("answers") is False:
            cells[1] = "NO ANSWER"
        for index, column in enumerate(columns):
            if not column["grouped"] or row.get(column["key"]) != above.get(column["key"]):
                break
            cells[index] = ""
        above = row
        body.append(cells)
    return body


def _written(column: Mapping[str, Any], row: Mapping[str, Any], scale: Mapping[str, float]) -> Any:
    value, unit = row.get(column["key"]), column["unit"]
    if unit == "bar":
        most = scale.get(column["key"], 0)
        return "█" * round(_BAR_WIDTH * float(value or 0) / most) if most else ""
    if column["key"] in ("name", "server") and row.get("meta_leader"):
        return f"{value}*"
    if isinstance(value, (str, bool)) or value is None:
        return value
    if unit == "bytes":
        return human_bytes(value)
    if unit == "seconds":
        return human_seconds(value)
    return f"{value:.0f}" if unit == "percent" else f"{value:,}" if isinstance(value, int) else str(value)


# --- helpers ----------------------------------------------------------------------------------------------------------


def _sums(rows: Iterable[Mapping[str, Any]], *keys: str) -> dict[str, Any]:
    kept = list(rows)
    return {key: sum(row.get(key) or 0 for row in kept) for key in keys}


def _by(rows: Iterable[Mapping[str, Any]], key: str) -> dict[str, list[Mapping[str, Any]]]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row[key], []).append(row)
    return groups


def _address(connection: Mapping[str, Any]) -> str:
    host = str(connection.get("ip", ""))
    return f"[{host}]:{connection.get('port', '')}" if ":" in host else f"{host}:{connection.get('port', '')}"


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


def _silent(source: Source, endpoint: str) -> list[str]:
    names = [server["name"] for server, answer in source.read(endpoint) if answer is None]
    return [f"WARNING: {', '.join(names)} did not return {endpoint} and are not counted."] if names else []
