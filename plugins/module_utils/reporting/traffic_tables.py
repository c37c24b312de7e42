# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tables about connections, routes, gateways and leafnodes. Pure: no I/O."""

from __future__ import annotations

from ..health.routes import compression_notes
from .report_table import ReportColumn, ReportSource, ReportTable, Row, address, grouped, silent_notes, sums

_TRAFFIC = ("in_msgs", "out_msgs", "in_bytes", "out_bytes", "subscriptions")
_TRAFFIC_COLUMNS = (
    ReportColumn("in_msgs", "In Msgs", "number"),
    ReportColumn("out_msgs", "Out Msgs", "number"),
    ReportColumn("in_bytes", "In Bytes", "bytes"),
    ReportColumn("out_bytes", "Out Bytes", "bytes"),
    ReportColumn("subscriptions", "Subs", "number"),
)


def account_tables(source: ReportSource) -> list[ReportTable]:
    groups = grouped(_connection_rows(source), "account")
    rows: list[Row] = [
        {"account": name, "connections": len(group), **sums(group, *_TRAFFIC)} for name, group in sorted(groups.items())
    ]
    columns = (
        ReportColumn("account", "Account"),
        ReportColumn("connections", "Connections", "number"),
        *_TRAFFIC_COLUMNS,
    )
    total = {"account": "", **sums(rows, "connections", *_TRAFFIC)}
    return [
        ReportTable("accounts", f"{len(rows)} Accounts Overview", columns, rows, [total], silent_notes(source, "connz"))
    ]


def connection_tables(source: ReportSource) -> list[ReportTable]:
    rows = sorted(_connection_rows(source), key=lambda row: (-row["subscriptions"], row["server"], row["cid"]))
    columns = [
        ReportColumn("cid", "CID"),
        ReportColumn("name", "Name"),
        ReportColumn("server", "Server"),
        ReportColumn("cluster", "Cluster"),
        ReportColumn("address", "IP"),
        ReportColumn("account", "Account"),
        ReportColumn("uptime", "Uptime"),
        *_TRAFFIC_COLUMNS,
    ]
    if any(row["reason"] for row in rows):
        columns.append(ReportColumn("reason", "Reason"))
    counts = grouped(rows, "server")
    per_server = [
        {"server": server["name"], "cluster": server["cluster"], "connections": len(counts.get(server["name"], ()))}
        for server in source.servers
    ]
    total = {"cid": "", "name": f"{len(rows):,} connections", **sums(rows, *_TRAFFIC)}
    server_columns = (
        ReportColumn("server", "Server"),
        ReportColumn("cluster", "Cluster"),
        ReportColumn("connections", "Connections", "number"),
    )
    return [
        ReportTable(
            "connections",
            "Connections by Subscriptions",
            columns,
            rows,
            [total],
            silent_notes(source, "connz"),
        ),
        ReportTable(
            "connections_per_server",
            "Connections per Server",
            server_columns,
            per_server + source.absent_rows(),
            [{"server": "", **sums(per_server, "connections")}],
        ),
    ]


def _connection_rows(source: ReportSource) -> list[Row]:
    names = source.account_names
    return [
        {
            "cid": one["cid"],
            "kind": one.get("kind", ""),
            "name": one.get("name") or one.get("mqtt_client") or "",
            "server": server["name"],
            "cluster": server["cluster"],
            "address": address(one),
            "account": names.get(one.get("account", ""), one.get("account", "")),
            "uptime": one.get("uptime", ""),
            **{key: one.get(key, 0) for key in _TRAFFIC},
            "reason": one.get("reason", ""),
        }
        for server, connz in source.read("connz")
        for one in (connz or {}).get("connections") or ()
        if source.account in (None, one.get("account"), names.get(one.get("account", "")))
    ]


def gateway_tables(source: ReportSource) -> list[ReportTable]:
    columns = (
        ReportColumn("server", "Server", grouped=True),
        ReportColumn("name", "Name", grouped=True),
        ReportColumn("port", "Port", grouped=True),
        ReportColumn("kind", "Kind", grouped=True),
        ReportColumn("connection", "Connection"),
        ReportColumn("id", "ID"),
        ReportColumn("uptime", "Uptime"),
        ReportColumn("rtt", "RTT"),
        ReportColumn("bytes", "Bytes", "bytes"),
        ReportColumn("accounts", "Accounts", "number"),
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
                        "connection": f"{name} {address(connection)}",
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
        **sums(rows, "bytes"),
    }
    title, silent = "Super Cluster Report", silent_notes(source, "gatewayz")
    if not rows:
        return [
            ReportTable("gateways", title, columns, (), notes=silent or ["No gateways: this is not a supercluster."])
        ]
    return [ReportTable("gateways", title, columns, rows + source.absent_rows(), [total], silent)]


def route_tables(source: ReportSource) -> list[ReportTable]:
    columns = (
        ReportColumn("server", "Server", grouped=True),
        ReportColumn("cluster", "Cluster", grouped=True),
        ReportColumn("name", "Name", grouped=True),
        ReportColumn("account", "Account"),
        ReportColumn("address", "Address"),
        ReportColumn("id", "ID"),
        ReportColumn("uptime", "Uptime"),
        ReportColumn("rtt", "RTT"),
        ReportColumn("compression", "Compressed"),
        ReportColumn("subscriptions", "Subs", "number"),
        ReportColumn("in_bytes", "Bytes In", "bytes"),
        ReportColumn("out_bytes", "Bytes Out", "bytes"),
    )
    rows = sorted(
        (
            {
                "server": server["name"],
                "cluster": server["cluster"],
                "name": one.get("remote_name", ""),
                "account": one.get("account", ""),
                "address": address(one),
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
        **sums(rows, "subscriptions", "in_bytes", "out_bytes"),
    }
    notes = [*silent_notes(source, "routez"), *compression_notes(rows, source.route_compression)]
    return [ReportTable("routes", "Cluster Report", columns, [*rows, *source.absent_rows()], [total], notes)]


def leafnode_tables(source: ReportSource) -> list[ReportTable]:
    columns = (
        ReportColumn("server", "Server", grouped=True),
        ReportColumn("name", "Name"),
        ReportColumn("account", "Account"),
        ReportColumn("address", "Address"),
        ReportColumn("rtt", "RTT"),
        ReportColumn("in_msgs", "Msgs In", "number"),
        ReportColumn("out_msgs", "Msgs Out", "number"),
        ReportColumn("in_bytes", "Bytes In", "bytes"),
        ReportColumn("out_bytes", "Bytes Out", "bytes"),
        ReportColumn("subscriptions", "Subs", "number"),
        ReportColumn("compression", "Compressed"),
        ReportColumn("is_spoke", "Spoke"),
    )
    names = source.account_names
    rows: list[Row] = [
        {
            "server": server["name"],
            "name": one.get("name", ""),
            "account": names.get(one.get("account", ""), one.get("account", "")),
            "address": address(one),
            "rtt": one.get("rtt", ""),
            **{key: one.get(key, 0) for key in _TRAFFIC},
            "compression": one.get("compression", ""),
            "is_spoke": bool(one.get("is_spoke")),
        }
        for server, leafz in source.read("leafz")
        for one in (leafz or {}).get("leafs") or ()
        if source.account in (None, one.get("account"), names.get(one.get("account", "")))
    ]
    silent = silent_notes(source, "leafz")
    if not rows:
        return [
            ReportTable("leafnodes", "Leafnode Report", columns, (), notes=silent or ["No leaf nodes are connected."])
        ]
    total = {"server": "", "name": len(rows), **sums(rows, *_TRAFFIC)}
    return [ReportTable("leafnodes", "Leafnode Report", columns, rows + source.absent_rows(), [total], silent)]
