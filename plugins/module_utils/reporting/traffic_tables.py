# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tables about connections, routes, gateways and leafnodes. Pure: no I/O."""

from __future__ import annotations

from ansible_collections.natsops.jetstream.plugins.module_utils.health.routes import compression_notes
from ansible_collections.natsops.jetstream.plugins.module_utils.reporting.report_table import (
    Column,
    Row,
    Source,
    Table,
    address,
    grouped,
    silent_notes,
    sums,
)

_TRAFFIC = ("in_msgs", "out_msgs", "in_bytes", "out_bytes", "subscriptions")
_TRAFFIC_COLUMNS = (
    Column("in_msgs", "In Msgs", "number"),
    Column("out_msgs", "Out Msgs", "number"),
    Column("in_bytes", "In Bytes", "bytes"),
    Column("out_bytes", "Out Bytes", "bytes"),
    Column("subscriptions", "Subs", "number"),
)


def account_tables(source: Source) -> list[Table]:
    groups = grouped(_connection_rows(source), "account")
    rows: list[Row] = [
        {"account": name, "connections": len(group), **sums(group, *_TRAFFIC)} for name, group in sorted(groups.items())
    ]
    columns = (Column("account", "Account"), Column("connections", "Connections", "number"), *_TRAFFIC_COLUMNS)
    total = {"account": "", **sums(rows, "connections", *_TRAFFIC)}
    return [Table("accounts", f"{len(rows)} Accounts Overview", columns, rows, [total], silent_notes(source, "connz"))]


def connection_tables(source: Source) -> list[Table]:
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
    counts = grouped(rows, "server")
    per_server = [
        {"server": server["name"], "cluster": server["cluster"], "connections": len(counts.get(server["name"], ()))}
        for server in source.servers
    ]
    total = {"cid": "", "name": f"{len(rows):,} connections", **sums(rows, *_TRAFFIC)}
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
            silent_notes(source, "connz"),
        ),
        Table(
            "connections_per_server",
            "Connections per Server",
            server_columns,
            per_server + source.absent_rows(),
            [{"server": "", **sums(per_server, "connections")}],
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


def gateway_tables(source: Source) -> list[Table]:
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
        return [Table("gateways", title, columns, (), notes=silent or ["No gateways: this is not a supercluster."])]
    return [Table("gateways", title, columns, rows + source.absent_rows(), [total], silent)]


def route_tables(source: Source) -> list[Table]:
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
    return [Table("routes", "Cluster Report", columns, [*rows, *source.absent_rows()], [total], notes)]


def leafnode_tables(source: Source) -> list[Table]:
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
        return [Table("leafnodes", "Leafnode Report", columns, (), notes=silent or ["No leaf nodes are connected."])]
    total = {"server": "", "name": len(rows), **sums(rows, *_TRAFFIC)}
    return [Table("leafnodes", "Leafnode Report", columns, rows + source.absent_rows(), [total], silent)]
