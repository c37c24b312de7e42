# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The subjects of findings: the views that checks test. views.py computes their rows."""

from __future__ import annotations

from jetstream_insights.findings.registry import View
from jetstream_insights.keys import ACCOUNT, CLUSTER, CONSUMER, DOMAIN, STREAM

#: The columns that name a subject, null if they do not apply. `name`: any other kind, such as a Raft group or a kind of client.
SUBJECT = (*DOMAIN, "cluster", "server", "account", "stream", "consumer", "name")

_CONNECTION = ("cluster", "server", "name")

_ALL = (
    View("snapshots", "fleet", (), ("snapshots",), ()),
    View("servers", "server", ("cluster", "server"), ("servers", "streams", "consumers"), (), reported="true"),
    View("hosts", "server", ("cluster", "server"), ("servers", "hosts"), ()),
    View(
        "clusters",
        "cluster",
        CLUSTER,
        ("servers", "snapshots", "streams", "gateways", "failures"),
        ("jsz", "gatewayz"),
        reported="true",
    ),
    View("meta", "meta group", DOMAIN, ("servers",), ("jsz",), reported="bool_or(meta_size IS NOT NULL)"),
    View("meta_members", "meta member", (*DOMAIN, "server"), ("meta_peers", "servers"), ("jsz",)),
    View(
        "raft_groups",
        "raft member",
        (*CLUSTER, "server", "account", "name"),
        ("raft_groups", "stream_replicas", "consumer_replicas"),
        ("raftz",),
        reported="bool_or(meta_size IS NOT NULL)",
    ),
    View("streams", "stream", STREAM, ("streams",), ("jsz",), reported="sum(js_streams) > 0", overridden=True),
    View("stream_leaders", "stream", STREAM, ("stream_replicas",), ("jsz",), overridden=True),
    View(
        "stream_copies",
        "stream",
        STREAM,
        ("stream_replicas", "servers"),
        ("jsz",),
        reported="sum(js_streams) > 0",
        overridden=True,
    ),
    View(
        "consumers",
        "consumer",
        CONSUMER,
        ("consumers", "streams"),
        ("jsz",),
        reported="sum(js_consumers) > 0",
        overridden=True,
    ),
    View(
        "consumer_copies",
        "consumer",
        CONSUMER,
        ("consumer_replicas", "servers", "streams"),
        ("jsz",),
        reported="sum(js_consumers) > 0",
        overridden=True,
    ),
    View(
        "backups",
        "stream",
        STREAM,
        ("backups", "streams"),
        ("jsz", "backups"),
        reported="sum(js_streams) > 0",
        overridden=True,
    ),
    View(
        "accounts",
        "account",
        ACCOUNT,
        ("accounts", "account_limits", "servers"),
        ("accstatz", "jsz"),
        reported="true",
    ),
    View(
        "connections",
        "clients",
        ("cluster", "server", "account", "name"),
        ("connections",),
        ("connz",),
        reported="sum(connections) > 0",
    ),
    View("routes", "route", _CONNECTION, ("routes", "servers"), ("routez",), reported="sum(routes) > 0"),
    View("gateways", "gateway", _CONNECTION, ("gateways",), ("gatewayz",)),
    View("leafnodes", "leafnode", _CONNECTION, ("leafnodes",), ("leafz",), reported="sum(leafnodes) > 0"),
    View("server_periods", "server", ("cluster", "server"), ("servers", "snapshots", "meta_peers"), (), period=True),
    View("server_restarts", "server", ("cluster", "server"), ("servers", "restarts"), (), period=True),
    View("server_logs", "server", ("cluster", "server"), ("servers", "server_events"), (), period=True),
    View("advised", "asset", CONSUMER, ("advisories",), (), period=True),
    View("advised_servers", "server", ("cluster", "server"), ("advisories",), (), period=True),
    View("account_periods", "account", ACCOUNT, ("accounts",), ("accstatz",), period=True, reported="true"),
    View("client_periods", "clients", (*ACCOUNT, "name"), ("connections", "servers"), ("connz",), period=True),
    View("route_periods", "route", _CONNECTION, ("routes",), ("routez",), period=True, reported="sum(routes) > 0"),
    View("gateway_periods", "gateway", _CONNECTION, ("gateways",), ("gatewayz",), period=True),
    View(
        "leafnode_periods",
        "leafnode",
        (*ACCOUNT, "name"),
        ("leafnodes", "snapshots"),
        ("leafz",),
        period=True,
        reported="sum(leafnodes) > 0",
    ),
    View("snapshot_periods", "fleet", (), ("snapshots",), (), period=True),
    View("meta_periods", "meta group", DOMAIN, ("meta_peers", "servers"), ("jsz",), period=True),
    View(
        "stream_periods",
        "stream",
        STREAM,
        ("streams",),
        ("jsz",),
        period=True,
        reported="sum(js_streams) > 0",
        overridden=True,
    ),
    View("origin_periods", "stream", STREAM, ("streams", "stream_replicas"), ("jsz",), period=True, overridden=True),
    View(
        "consumer_periods",
        "consumer",
        CONSUMER,
        ("consumers",),
        ("jsz",),
        period=True,
        reported="sum(js_consumers) > 0",
        overridden=True,
    ),
    View(
        "raft_periods",
        "raft member",
        (*CLUSTER, "server", "account", "name"),
        ("raft_groups",),
        ("raftz",),
        period=True,
        reported="bool_or(meta_size IS NOT NULL)",
    ),
    View("leadership", "raft group", CONSUMER, ("streams", "leadership", "consumers"), ("jsz",), period=True),
    View("outages", "stream", STREAM, ("streams", "incidents", "snapshots"), ("jsz",), period=True),
    View("storms", "server", ("server", "name"), ("streams", "storms"), ("jsz",), period=True),
    View("divergence", "stream", ("server", *STREAM), ("streams", "divergence"), ("jsz",), period=True),
    View("consumer_lag", "consumer", CONSUMER, ("consumers", "consumer_lag", "streams"), ("jsz",), period=True),
    View("capacity", "asset", (*CLUSTER, "name"), ("streams", "capacity"), ("jsz",), period=True),
    View("headroom", "asset", (*CLUSTER, "name"), ("streams", "headroom"), ("jsz",), period=True),
)
VIEWS = {view.name: view for view in _ALL}
