# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A healthy fleet as rows of the silver and gold tables, and for each check the changes that make it fail.

Each change applies to its own copy of the fleet, named after the check. One Spark job evaluates all copies.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.capture import ENDPOINTS
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.schema import HEALTH, JSZ, VARZ

Row = dict[str, Any]
Rows = dict[str, list[Row]]

#: Snapshots over a day; checks of a single moment use the last snapshot.
END = datetime(2026, 11, 21, 18, tzinfo=timezone.utc)
STEPS = 6
LAST = STEPS - 1
STEP = timedelta(hours=4)
SERVERS = ("n1", "n2", "n3", "n4", "n5")
GIB = 1 << 30
HEALTHY = "healthy"


def at(step: int) -> datetime:
    return END - (LAST - step) * STEP


def snapshot(step: int) -> str:
    return f"{at(step):%Y%m%dT%H%M%S.%fZ}-000000"


def reported(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


#: Tables of external systems, with the columns that checks name, as described in docs/reference/insights_tables.md.
GOLD = {
    "account_limits": "fleet string, snapshot string, taken timestamp, account string, max_conn bigint, max_leaf bigint, "
    "max_subs bigint, expired boolean, expires timestamp",
    "leadership": "fleet string, day date, kind string, account string, stream string, consumer string, leaders array<string>, "
    "snapshots int, counted int, most_in_10m int, flap double",
    "advisories": "fleet string, taken timestamp, time timestamp, account string, stream string, consumer string, server string, "
    "cluster string, kind string, dropped bigint, stream_seq bigint",
    "restarts": "fleet string, day date, server string, taken timestamp, maintenance boolean",
    "changes": "fleet string, day date, taken timestamp, "
    + ", ".join(f"{name} string" for name in ("object", "account", "stream", "field", "what")),
    "storms": "fleet string, day date, storm string, server string, `begin` timestamp, `end` timestamp, groups int, streams int, "
    "consumers int, cause string, maintenance boolean",
    "divergence": "fleet string, day date, account string, stream string, server string, leader string, compared int, "
    "in_a_row int, `begin` timestamp, diverged boolean, behind boolean, messages bigint, leader_messages bigint, "
    "last_seq bigint, leader_last_seq bigint, share double, tolerance double",
    "incidents": "fleet string, day date, incident string, kind string, account string, stream string, consumer string, "
    "server string, `begin` timestamp, continues boolean, "
    "causes array<struct<cause:string,server:string,at:timestamp,detail:string>>",
    "consumer_lag": "fleet string, day date, account string, stream string, consumer string, state string, snapshots int, "
    "durable boolean, "
    "num_pending bigint, num_ack_pending bigint, ack_rate double, ingest_rate double, pending_slope double, trend double, "
    "catch_up double, stuck_seconds double",
    "capacity": "fleet string, day date, scope string, resource string, name string, cluster string, state string, `limit` "
    "double, "
    "used_ratio double, changed boolean, slope double, full_p10 double, full_p50 double, full_p90 double, confidence string, "
    "backtests int, at_limit string",
    "headroom": "fleet string, day date, snapshot string, taken timestamp, cluster string, scope string, name string, "
    "servers_left int, need double, replicas int, unplaced int, free double, largest double, has_space boolean, slope double, "
    "days double",
}
GOLD |= {name: f"domain string, {columns}" for name, columns in GOLD.items() if name not in ("restarts", "storms")}


def peer(name: str, **more: Any) -> Row:
    return {
        "name": name,
        "peer": f"id-{name}",
        "current": True,
        "offline": False,
        "active": 350_000_000,
        "lag": 0,
        **more,
    }


#: Fields of VARZ for which silver has no column.
_VARZ = {
    "http_host": "127.0.0.1",
    "http_port": 8222,
    "cluster": {"cluster_port": 6222, "tls_required": True},
    "leaf": {"port": 7422, "tls_required": True},
}
#: A server that connects to hubs as a leafnode, as VARZ reports it.
_SPOKE = {"varz_extra": {**_VARZ, "leaf": {"remotes": [{"urls": ["hub:7422"]}, {"urls": ["hub:7422"]}]}}}


def _server(name: str, number: int, moment: datetime, step: int) -> Row:
    row = {
        "server_id": f"ID{name}",
        "server": name,
        "cluster": "C1",
        "version": "2.15.1",
        "received": reported(moment),
        "domain": "",
        "tags": [f"az:{'abcde'[number]}", "ssd"],
        "jetstream": True,
        "rtt": 0.001,
        "clock_offset": 0.0,
        "known_servers": 5,
        "start": reported(at(0) - timedelta(days=9)),
        "now": reported(moment),
        "tls_cert_not_after": "2028-01-01T00:00:00Z",
        "config_digest": f"sha256:{name}",
        "system_account": "SYS",
        "cpu": 40.0,
        "mem": 100_000_000,
        "cores": 4,
        "gomaxprocs": 4,
        "gomemlimit": 8 * GIB,
        "connections": 100,
        "max_connections": 65536,
        "max_payload": 1 << 20,
        "total_connections": 1000 + step,
        "routes": 16,
        "remotes": 4,
        "leafnodes": 0,
        "slow_consumers": 0,
        "stalled_clients": 0,
        "stale_connections": 0,
        "auth_required": True,
        "tls_required": True,
        "js_store_dir": "/data",
        "js_unique_tag": "az:",
        "js_sync_interval": 10.0,
        "js_sync_always": False,
        "route_pool_size": 3,
        "js_memory": 0,
        "js_storage": 2 * GIB,
        "js_reserved_storage": 3 * GIB,
        "js_max_memory": GIB,
        "js_max_storage": 1000 * GIB,
        "js_ha_assets": 10,
        "js_max_ha_assets": 2000,
        "js_streams": 12,
        "js_consumers": 2,
        "js_api_total": 1000 * step,
        "js_api_errors": step,
        "js_api_inflight": 0,
        "js_api_level": 5,
        "meta_leader": "n1",
        "meta_size": 5,
        "health": "ok",
        "health_code": 200,
        "varz_reported": True,
        "jsz_reported": True,
        "healthz_reported": True,
        "varz_extra": _VARZ,
    }
    if name == "n1":
        others = [peer(other) for other in SERVERS if other != name]
        row |= {"meta_replicas": others, "meta_pending": 0, "meta_quorum_needed": 3, "meta_snapshot_duration": 0.1}
    return row


def _group(led_by: str, hosts: tuple[str, ...]) -> Row:
    return {
        "cluster": "C1",
        "leader": led_by,
        "leaders": [led_by],
        "hosts": list(hosts),
        "members": list(hosts),
        "views": [led_by],
        "peers": [peer(name) for name in hosts if name != led_by],
        "num_replicas": len(hosts),
        "quorum": len(hosts) // 2 + 1,
        "created": reported(at(0) - timedelta(days=9)),
        "leader_since": reported(at(0) - timedelta(days=8)),
        "config_hash": "1",
    }


def _stream(name: str, moment: datetime, step: int) -> Row:
    mirrored: Row = {"mirror": {"name": "S"}} if name == "MIRROR" else {"duplicate_window": 120_000_000_000}
    return {
        "account": "A",
        "stream": name,
        "messages": 2000,
        "bytes": 1 << 20,
        "first_seq": 1,
        "last_seq": 2000 + step,
        "num_subjects": 10,
        "num_deleted": 0,
        "consumer_count": 1,
        "first_ts": reported(moment - timedelta(days=1)),
        "last_ts": reported(moment),
        "raft_group": f"S-{name}",
        "config": mirrored,
        "lost_messages": 0,
        "lost_bytes": 0,
        "storage": "file",
        "retention": "limits",
        "discard": "old",
        "max_bytes": GIB,
        "max_msgs": -1,
        "max_consumers": -1,
        "max_age": 7 * 86400.0,
        "placement_cluster": "C1",
        "placement_tags": ["ssd"],
        "metadata": {"io.nats.monitor.enabled": "true", "_nats.req.level": "1"},
    }


def _consumer(moment: datetime, step: int) -> Row:
    return {
        "account": "A",
        "stream": "S",
        "consumer": "worker",
        "num_ack_pending": 1,
        "num_redelivered": 0,
        "num_waiting": 1,
        "num_pending": 10,
        "paused": False,
        "delivered_consumer_seq": 1000,
        "delivered_stream_seq": 1990 + step,
        "ack_floor_stream_seq": 1989 + step,
        "last_delivered": reported(moment),
        "last_acked": reported(moment),
        "raft_group": "C-worker",
        "durable": True,
        "pull": True,
        "ack_policy": "explicit",
        "max_deliver": 5,
        "max_ack_pending": 1000,
        "max_waiting": 512,
        "metadata": {"io.nats.monitor.enabled": "true", "_nats.req.level": "1"},
        "stream_replicas": 3,
        "config": "{}",
    }


def _replicas(row: Row, group: Row, more: Row) -> Iterator[Row]:
    shared = {
        key: value for key, value in group.items() if key not in ("leaders", "hosts", "members", "views", "quorum")
    }
    for name in group["hosts"]:
        leads = name == group["leader"]
        yield {
            **row,
            **shared,
            "server": name,
            "server_id": f"ID{name}",
            "version": "2.15.1",
            "is_leader": leads,
            "is_backed": leads,
            "peers": group["peers"] if leads else None,
            **more,
        }


def _moment(step: int) -> Rows:
    moment = at(step)
    hosts = ("n1", "n2", "n3")
    rows: Rows = {name: [] for name in ("streams", "stream_replicas", "consumers", "consumer_replicas", "failures")}
    rows["servers"] = [_server(name, number, moment, step) for number, name in enumerate(SERVERS)]
    rows["snapshots"] = [
        {
            "ended": reported(moment + timedelta(seconds=2)),
            "source": "test",
            "servers": 5,
            "servers_known": 5,
            "missing": [],
            "complete": True,
            "failures": 0,
            "clock_offset_min": 0.0,
            "clock_offset_median": 0.0,
            "clock_offset_max": 0.0,
            "slowest_rtt": 0.001,
            "asked": list(ENDPOINTS),
        }
    ]
    rows["meta_peers"] = [
        {
            "server_id": "IDn1",
            "server": "n1",
            "cluster": "C1",
            "leader": "n1",
            "cluster_size": 5,
            "by_leader": True,
            "peer": name,
            "current": True,
            "offline": False,
            "active": 0.3,
            "lag": 0,
        }
        for name in SERVERS
    ]
    for name, led_by, holding in (("S", "n1", hosts), ("MIRROR", "n2", ("n2", "n4", "n5"))):
        group = _group(led_by, holding)
        row = _stream(name, moment, step)
        rows["streams"].append(row | group)
        rows["stream_replicas"] += _replicas(row, group, _mirror() if name == "MIRROR" else {})
    group = _group("n3", hosts)
    rows["consumers"] = [_consumer(moment, step) | group]
    rows["consumer_replicas"] = list(_replicas(_consumer(moment, step), group, {}))
    rows["raft_groups"] = [
        {
            "server_id": f"ID{name}",
            "server": name,
            "cluster": "C1",
            "account": "$SYS",
            "raft_group": "_meta_",
            "state": "LEADER" if name == "n1" else "FOLLOWER",
            "leader": "n1",
            "wal_error": "",
            "size": 5,
            "quorum_needed": 3,
            "committed": 100,
            "applied": 100,
            "term": 7,
            "overrun": False,
            "paused": False,
            "catching_up": False,
            "ipq_proposal_len": 0,
            "ipq_entry_len": 0,
            "ipq_resp_len": 0,
            "ipq_apply_len": 0,
            "wal_bytes": 1000,
            "wal_messages": 10,
        }
        for name in SERVERS
    ]
    place = {"server_id": "IDn1", "server": "n1", "cluster": "C1"}
    network = place | {"rtt": 0.001}
    rows["routes"] = [network | {"cid": 7, "remote_id": "IDn2", "remote_name": "n2", "pending_size": 0}]
    rows["gateways"] = [
        network
        | {
            "server": name,
            "server_id": f"ID{name}",
            "gateway": "C1",
            "direction": "outbound",
            "name": "IDn1",
            "configured": True,
            "cid": 9,
            "pending_bytes": 0,
        }
        for name in SERVERS
    ]
    rows["leafnodes"] = [network | {"cid": 11, "name": "leaf", "account": "A"}]
    line = {"server": "n1", "cluster": "C1", "time": reported(moment), "text": "Server is ready", "kind": "started"}
    rows["server_events"] = [line | {"lines": 1}]
    rows["connections"] = [
        place
        | {
            "account": "A",
            "kind": "Client",
            "lang": "go",
            "lang_version": "1.40",
            "connections": 3,
            "young": 0,
            "rtt_max": 0.002,
            "pending_bytes": 0,
            "pending_bytes_max": 0,
            "stalls": 0,
        }
    ]
    rows["drift"] = [
        {
            "server": "documents on ctl",
            "account": "A",
            "document": "orders",
            "checked": reported(moment - timedelta(hours=2)),
            "assets": 12,
            "drifting": 0,
            "reason": "",
        }
    ]
    rows["backups"] = [
        {
            "server": "backups on ctl",
            "account": "A",
            "stream": name,
            "excluded": False,
            "saved": reported(moment - timedelta(hours=2)),
            "problem": "",
            "drilled": reported(moment - timedelta(days=9)),
            "drill_problem": "",
            "future_backup": "",
            "proven": reported(moment - timedelta(days=9)),
            "restore_seconds": 2.0,
        }
        for name in ("S", "MIRROR")
    ]
    rows["accounts"] = [
        {
            "server_id": "IDn1",
            "server": "n1",
            "cluster": "C1",
            "account": name,
            "connections": many,
            "leafnodes": 0,
            "num_subscriptions": 10,
            "slow_consumers": 0,
            "total_conns": 100 + step,
            "js_memory": 0,
            "js_storage": stored,
            "js_reserved_memory": 0,
            "js_reserved_storage": 10 * GIB,
        }
        for name, many, stored in (("A", 3, GIB), ("SYS", 1, 0), ("$G", 0, 0))
    ]
    rows["account_limits"] = [
        {
            "account": name,
            "max_conn": 100,
            "max_leaf": 10,
            "max_subs": -1,
            "expired": False,
            "expires": "2028-01-01T00:00:00Z",
            "extra": {"imports": [{"subject": "orders.>", "account": "B", "invalid": False, "share": False}]},
        }
        for name in ("A", "SYS", "$G")
    ]
    rows["jwts"] = [
        {
            "server": "JWTs",
            "account": "A",
            "kind": "user",
            "role": "app",
            "subject": "UA",
            "name": "shop",
            "connections": 3,
            "expires": reported(END + timedelta(days=60)),
            "urgency": "",
            "text": "far away",
        }
    ]
    for found in rows.values():
        for made in found:
            made.update({"snapshot": snapshot(step), "taken": reported(moment)})
    return rows


def _advisory(kind: str, **about: Any) -> Row:
    return {"kind": kind, "taken": reported(END), "time": reported(END), "stream_seq": 7, **about}


def _gold() -> Rows:
    key = {"day": f"{END:%Y-%m-%d}"}
    consumer = {"account": "A", "stream": "S", "consumer": "worker"}
    asset = key | {"scope": "server", "name": "n1", "cluster": "C1"}
    led = {"leaders": ["n1"], "snapshots": 6, "counted": 0, "most_in_10m": 0, "flap": 0.0}
    return {
        "leadership": [
            key | led | {"kind": "stream", "account": "A", "stream": "S", "consumer": ""},
            key | led | consumer | {"kind": "consumer"},
        ],
        "advisories": [
            _advisory("stream_leader_elected", account="A", stream="S", server="n1", cluster="C1"),
            _advisory("consumer_leader_elected", **consumer, server="n1", cluster="C1"),
        ],
        "restarts": [key | {"server": "n1", "taken": reported(at(3)), "maintenance": False}],
        "incidents": [
            key
            | {
                "incident": "no_leader",
                "kind": "stream",
                "account": "A",
                "stream": "S",
                "consumer": "",
                "server": "",
                "begin": reported(at(2)),
                "continues": False,
                "causes": [{"cause": "server_missing", "server": "n9", "at": reported(at(2)), "detail": ""}],
            }
        ],
        "changes": [
            key | {"taken": reported(at(3)), "object": "server", "what": "reload", "field": "config_load_time"}
        ],
        "storms": [
            key
            | {
                "storm": "n1@t",
                "server": "n1",
                "begin": reported(at(4)),
                "end": reported(END),
                "groups": 9,
                "streams": 5,
                "consumers": 4,
                "cause": "upgrade",
                "maintenance": False,
            }
        ],
        "divergence": [
            key
            | {
                "account": "A",
                "stream": "S",
                "server": "n2",
                "leader": "n1",
                "compared": 6,
                "in_a_row": 0,
                "diverged": False,
                "behind": False,
                "messages": 2000,
                "leader_messages": 2000,
                "last_seq": 2000,
                "leader_last_seq": 2000,
                "share": 0.0,
                "tolerance": 10.0,
            }
        ],
        "consumer_lag": [
            key
            | consumer
            | {
                "state": "current",
                "snapshots": 6,
                "num_pending": 10,
                "num_ack_pending": 1,
                "pending_slope": 0.0,
                "trend": 0.0,
                "ingest_rate": 10.0,
                "ack_rate": 10.0,
            },
            key
            | consumer
            | {
                "consumer": "late",
                "state": "catching_up",
                "snapshots": 6,
                "num_pending": 10,
                "pending_slope": -1.0,
                "trend": -1.0,
                "catch_up": 10.0,
                "ingest_rate": 10.0,
                "ack_rate": 20.0,
            },
        ],
        "capacity": [
            asset
            | {
                "resource": "file",
                "state": "growing",
                "limit": 1e12,
                "used_ratio": 0.1,
                "changed": False,
                "slope": 1e6,
                "full_p10": 100.0,
                "full_p50": 200.0,
                "full_p90": 300.0,
                "confidence": "tested",
                "backtests": 20,
            },
            {
                **asset,
                "scope": "stream",
                "name": "A/RING",
                "resource": "file",
                "state": "growing",
                "limit": 1e9,
                "used_ratio": 0.1,
                "full_p10": 100.0,
                "full_p50": 200.0,
                "at_limit": "removes",
                "backtests": 1,
            },
        ],
        "headroom": [
            asset
            | {
                "snapshot": snapshot(LAST),
                "taken": reported(END),
                "servers_left": 4,
                "need": 1e9,
                "free": 1e12,
                "largest": 1e9,
                "replicas": 3,
                "unplaced": 0,
                "has_space": True,
                "slope": 1e6,
                "days": 100.0,
            }
        ],
    }


# --- changes ----------------------------------------------------------------------------------------------------------------

Values = Mapping[str, Any] | Callable[[int], Mapping[str, Any]]


@dataclass(frozen=True)
class Change:
    """New values for the rows of a table that match `where`; a function receives the number of the snapshot."""

    table: str
    values: Values
    where: Mapping[str, Any] = field(default_factory=dict)

    def apply(self, rows: Rows, step: int) -> None:
        for row in rows[self.table]:
            if all(row.get(key) == value for key, value in self.where.items()):
                row.update(copy.deepcopy(dict(self.values(step) if callable(self.values) else self.values)))


@dataclass(frozen=True)
class Drop:
    """Rows that are removed from a table; with `steps`, only in these snapshots."""

    table: str
    where: Mapping[str, Any]
    steps: tuple[int, ...] = tuple(range(STEPS))

    def apply(self, rows: Rows, step: int) -> None:
        if step in self.steps:
            rows[self.table] = [
                row for row in rows[self.table] if any(row.get(key) != value for key, value in self.where.items())
            ]


@dataclass(frozen=True)
class Case:
    """The changes that make a check fail, and the subject of its finding if it is not the usual one."""

    changes: tuple[Change | Drop, ...]
    subject: Mapping[str, str] = field(default_factory=dict)


def change(table: str, values: Values, **where: Any) -> Change:
    return Change(table, values, where)


def case(
    table: str, values: Values, *more: Change | Drop, where: Mapping[str, Any] | None = None, **subject: str
) -> Case:
    """Return a case in which one row has these values: the row of the first server, of stream S, of the consumer, …"""
    about = {"account": "$SYS", **subject} if table == "raft_groups" else subject
    return Case((Change(table, values, FIRST.get(table, {}) if where is None else where), *more), about)


#: Tables that are empty if an endpoint is not queried: silver tables, and the gold tables that are computed from them.
_ENDPOINT_TABLES = {
    "jsz": (
        *("meta_peers", "streams", "stream_replicas", "consumers", "consumer_replicas"),
        *("leadership", "incidents", "changes", "storms", "divergence", "consumer_lag", "capacity", "headroom"),
    ),
    "raftz": ("raft_groups",),
    "routez": ("routes",),
    "gatewayz": ("gateways",),
    "leafz": ("leafnodes",),
    "accstatz": ("accounts",),
    "accountz": ("account_limits",),
    "connz": ("connections", "jwts"),
}
_SERVER_FIELDS = {"jsz": JSZ, "varz": VARZ, "healthz": HEALTH}


def without(endpoint: str) -> tuple[Change | Drop, ...]:
    """Return the changes that result from never querying an endpoint."""
    server_fields = _SERVER_FIELDS.get(endpoint)
    columns = [] if server_fields is None else [*(one.name for one in server_fields.fields), f"{endpoint}_reported"]
    held = {"js_memory", "js_storage", "js_reserved_memory", "js_reserved_storage"} if endpoint == "jsz" else ()
    return (
        change("snapshots", {"asked": [name for name in ENDPOINTS if name != endpoint]}),
        change("servers", dict.fromkeys([*columns, *(["varz_extra"] if endpoint == "varz" else [])])),
        change("accounts", dict.fromkeys(held)),
        *(Drop(table, {}) for table in _ENDPOINT_TABLES.get(endpoint, ())),
    )


FIRST: dict[str, Mapping[str, Any]] = {
    "servers": {"server": "n1"},
    "raft_groups": {"server": "n1"},
    "streams": {"stream": "S"},
    "backups": {"stream": "S"},
    "stream_replicas": {"stream": "S", "server": "n1"},
    "consumer_replicas": {"server": "n1"},
    "accounts": {"account": "A"},
    "meta_peers": {"peer": "n2"},
    "gateways": {"server": "n1"},
    "consumer_lag": {"consumer": "worker"},
}
_HIDDEN = {"name": "n3", "peer": "id-n3", "current": False, "offline": False, "active": 60_000_000_000, "lag": 0}
_BEHIND = {"peers": [peer("n2"), _HIDDEN]}
_MIRROR = {"stream": "MIRROR"}
_SERVER_ASSET, _RING = {"scope": "server"}, {"name": "A/RING"}
_LEADS_MIRROR = {"stream": "MIRROR", "server": "n2"}


#: Limits with which a stream never removes messages.
_ENDLESS = {"max_bytes": -1, "max_age": 0.0}


def _leaving(first_ts: timedelta = timedelta(days=1), **values: Any) -> Callable[[int], Row]:
    """Return the state of a stream that stores its last 300 messages and receives 200 between two snapshots. `first_ts`:
    the age of the first one."""
    return lambda step: {
        "last_seq": 2000 + 200 * step,
        "first_seq": 1701 + 200 * step,
        "messages": 300,
        "first_ts": reported(at(step) - first_ts),
        **values,
    }


def _rolled(place: int) -> Callable[[int], Row]:
    """Return a server that restarts after each snapshot in which it leads the meta group. The first two servers take turns."""
    return lambda step: {
        "meta_leader": SERVERS[step % 2],
        "start": reported(at(step - 1 - (step - 1 - place) % 2) + STEP * 0.9),
    }


def _mirror(**values: Any) -> Row:
    return {"mirror": {"name": "S", "lag": 0, "active": 1_000_000_000, **values}}


def _in_burst(behind: int, rate: int = 5000) -> Callable[[int], Row]:
    """Return the state of a year-old stream `behind` seconds before the last reply. Each snapshot has 72 million more
    messages, written at this rate."""
    return lambda step: {
        "first_ts": reported(END - timedelta(days=365)),
        "last_seq": 30_000_000 + 72_000_000 * step - rate * behind,
    }


def _answered(behind: int) -> Callable[[int], Row]:
    return lambda step: {"received": reported(at(step) - timedelta(seconds=behind))}


def _watched(**values: str) -> Row:
    return {
        "metadata": {
            "io.nats.monitor.enabled": "true",
            **{f"io.nats.monitor.{key.replace('_', '-')}": value for key, value in values.items()},
        }
    }


def _leaderless() -> Row:
    return {"leader": None, "leaders": [], "views": [], "peers": None}


CASES: dict[str, Case] = {
    "FLEET_101": case("snapshots", {"complete": False, "servers": 4, "missing": ["n9"]}),
    "FLEET_102": case("snapshots", {"clock_offset_median": -7.0}),
    "FLEET_103": case("snapshots", lambda step: {"ended": reported(at(step) + timedelta(seconds=45))}),
    "FLEET_104": case("snapshots", {"slowest_rtt": 1.5}),
    "SERVER_001": case("servers", {"health": "unavailable", "health_code": 503, "health_error": "no meta leader"}),
    "SERVER_002": case("servers", {"version": "2.14.0"}),
    "SERVER_003": case("servers", {"cpu": 395.0}),
    "SERVER_004": case("servers", lambda step: {"slow_consumers": 3 + step}),
    "SERVER_005": case("servers", {"js_storage": 950 * GIB}),
    "SERVER_006": case("servers", {"domain": "my hub"}),
    "SERVER_007": case("servers", {"auth_required": False}),
    "SERVER_008": case(
        "servers", {"varz_extra": {"cluster": {"tls_cert_not_after": reported(END + timedelta(days=20))}}}
    ),
    "SERVER_101": case("servers", {"js_reserved_storage": 950 * GIB}),
    "SERVER_102": case("servers", {"js_store_dir": "/tmp/nats/jetstream"}),
    "SERVER_103": case("servers", {"js_max_storage": 1_071_234_564_096}),
    "SERVER_104": case("servers", {"js_sync_interval": 120.0}),
    "SERVER_105": case("servers", {"gomemlimit": None}),
    "SERVER_106": case("servers", {"connections": 60000}),
    "SERVER_107": case("servers", {"remotes": 3}),
    "SERVER_108": case("servers", {"routes": 15}),
    "SERVER_109": case("servers", {"clock_offset": 0.8}),
    "SERVER_110": case("servers", {"server": "n2"}, where={"server": "n1"}, server="n2"),
    "SERVER_111": case("servers", {"system_account": "$SYS"}),
    "SERVER_112": case("servers", {"leafnodes": 2}),
    "SERVER_113": case("servers", {"tags": ["ssd"]}),
    "SERVER_114": case("servers", {"js_api_inflight": 900}),
    "SERVER_115": case("servers", {"js_ha_assets": 990, "js_max_ha_assets": 1000}),
    "SERVER_116": case("servers", {"tls_required": None}),
    "SERVER_117": case("servers", {"varz_extra": {**_VARZ, "cluster": {"cluster_port": 6222}}}),
    "SERVER_118": case("servers", {"max_payload": 64 << 20}),
    "SERVER_119": case("servers", {"mem": 99 * GIB // 10, "gomemlimit": 10 * GIB}),
    "SERVER_120": case("servers", {"varz_extra": {**_VARZ, "http_host": "0.0.0.0"}}),
    "HOST_101": case("servers", {"config_digest": "sha256:old"}),
    "HOST_102": case("servers", {"connections": 70000}),
    "HOST_103": case("servers", {"server": "plain"}, server="plain"),
    "HOST_104": case("servers", {"js_max_storage": 5000 * GIB}),
    "CLUSTER_001": case("servers", {"mem": 900_000_000}),
    "CLUSTER_002": case("gateways", {"configured": False}),
    "CLUSTER_003": case("servers", {"js_ha_assets": 1500}),
    "CLUSTER_004": case("servers", {"cluster": "C 1"}, where={}, cluster="C 1"),
    "CLUSTER_101": case("streams", {"num_replicas": 5}),
    "CLUSTER_102": case("servers", {"js_unique_tag": "rack:"}),
    "CLUSTER_103": case("servers", {"tags": ["az:a"]}, where={}),
    "CLUSTER_104": case("servers", {"js_max_storage": 500 * GIB}),
    "CLUSTER_105": case("streams", {"leader": "n1", "leaders": ["n1"]}, where={}),
    "CLUSTER_106": case("servers", {"js_streams": 60}),
    "CLUSTER_107": case("servers", {"js_storage": 60 * GIB}),
    "CLUSTER_108": case("servers", {"connections": 900}),
    "CLUSTER_109": case(
        "servers", {"js_storage": 90 * GIB, "tags": ["az:a"]}, change("servers", {"tags": ["az:b"]}, server="n5")
    ),
    "CLUSTER_110": case(
        "servers",
        {"tags": ["az:a"]},
        *(change("servers", {"tags": ["az:a"]}, server=name) for name in ("n2", "n3")),
        change("servers", {"tags": ["az:b"]}, server="n4"),
        where={"server": "n1"},
    ),
    "CLUSTER_111": case("servers", {"max_payload": 8 << 20}),
    "GATEWAY_101": case("servers", {"cluster": "C2"}, where={"server": "n5"}),
    "META_001": case("meta_peers", {"offline": True}, server="n2"),
    "META_002": case("servers", {"meta_leader": ""}, where={"server": "n4"}),
    "META_101": case("servers", {"meta_size": 6}, where={}),
    "META_102": case(
        "servers",
        {"meta_replicas": [peer("n2"), peer("n3"), *(peer(name, active=60_000_000_000) for name in ("n4", "n5"))]},
    ),
    "META_103": case("meta_peers", {"lag": 5000}, server="n2"),
    "META_104": case("servers", {"meta_size": 4}, where={"server": "n4"}),
    "META_105": case("meta_peers", {"peer": "ghost"}, server="ghost"),
    "META_106": case("servers", {"meta_replicas": [peer("n2"), peer("n3"), peer("n4")], "meta_size": 4}),
    "META_107": case("servers", {"meta_pending": 900}),
    "META_108": case("servers", {"meta_snapshot_duration": 9.0}),
    "META_109": case(
        "servers", {"tags": ["az:a"]}, change("servers", {"tags": ["az:a"]}, server="n3"), where={"server": "n2"}
    ),
    "RAFT_101": case("raft_groups", {"wal_error": "no space left"}),
    "RAFT_102": case("raft_groups", {"committed": 900}),
    "RAFT_103": case("raft_groups", {"ipq_apply_len": 5000}),
    "RAFT_104": case("raft_groups", {"wal_bytes": 20 * GIB}),
    "RAFT_105": case("raft_groups", {"leader": "", "state": "CANDIDATE"}),
    "RAFT_106": case("raft_groups", {"overrun": True}),
    "RAFT_107": case("raft_groups", {"catching_up": True}),
    "RAFT_108": case("raft_groups", {"quorum_needed": 2}),
    "JETSTREAM_001": case("stream_replicas", {"last_seq": 1000}, where={"stream": "S", "server": "n2"}),
    "JETSTREAM_002": case("streams", {"num_subjects": 2_000_000}),
    "JETSTREAM_003": case("streams", {"bytes": 1020 << 20}),
    "JETSTREAM_004": case("stream_replicas", _watched(msgs_critical="2000")),
    "JETSTREAM_005": case("consumers", _watched(unprocessed_critical="10")),
    "STREAM_101": case("streams", _leaderless()),
    "STREAM_102": case("streams", {"leader": None, "leaders": ["n1", "n2"], "peers": None}),
    "STREAM_103": case("streams", {"num_replicas": 1, "peers": []}),
    "STREAM_104": case("streams", _BEHIND),
    "STREAM_105": case("streams", {"peers": [peer("n2")]}),
    "STREAM_106": case("streams", {"peers": [peer("n2"), peer("n3", current=False, lag=900)]}),
    "STREAM_107": case("streams", {"lost_messages": 3}),
    "STREAM_108": case("streams", {"num_deleted": 5_000_000}),
    "STREAM_109": case("streams", {"num_replicas": 2, "peers": [peer("n2")]}),
    "STREAM_110": case("streams", {"max_bytes": -1, "max_age": 0.0}),
    "STREAM_111": case("streams", {"storage": "memory", "num_replicas": 1}),
    "STREAM_112": case("streams", {"first_ts": reported(END - timedelta(days=8))}),
    "STREAM_113": case("streams", {"cluster": "C2"}),
    "STREAM_114": case("streams", {"consumer_count": 5000}),
    "STREAM_116": case("servers", {"tags": ["az:b", "ssd"]}),
    "STREAM_117": case("stream_replicas", {"messages": 500}, where={"stream": "S", "server": "n3"}),
    "STREAM_118": case("servers", {"tags": ["az:c"]}, where={"server": "n3"}),
    "STREAM_119": case("stream_replicas", _mirror(lag=50000), where=_LEADS_MIRROR, stream="MIRROR"),
    "STREAM_120": case("stream_replicas", _mirror(active=-1), where=_LEADS_MIRROR, stream="MIRROR"),
    "STREAM_121": case("streams", {"peers": [peer("n2"), peer("n3"), peer("n4")]}),
    "STREAM_122": case("stream_replicas", {"metadata": {"_nats.req.level": "9"}}, where={"stream": "S"}),
    "STREAM_123": case(
        "streams",
        {"first_ts": reported(END - timedelta(hours=1)), "last_ts": reported(END), "last_seq": 400_000_000},
    ),
    "STREAM_124": case("streams", {"retention": "interest", "consumer_count": 0}),
    "CONSUMER_115": case("consumer_replicas", {"metadata": {"_nats.req.level": "9"}}, where={}),
    "CONSUMER_116": case("consumers", {"num_replicas": 1}),
    "CONSUMER_101": case("consumers", _leaderless()),
    "CONSUMER_102": case("consumers", {"leader": None, "leaders": ["n1", "n2"], "peers": None}),
    "CONSUMER_103": case("consumers", _BEHIND),
    "CONSUMER_104": case("consumers", {"peers": [peer("n2")]}),
    "CONSUMER_105": case("consumers", {"num_ack_pending": 950}),
    "CONSUMER_106": case("consumers", {"num_redelivered": 200, "num_ack_pending": 500}),
    "CONSUMER_107": case("consumers", {"num_pending": 2_000_000}),
    "CONSUMER_108": case(
        "consumers", {"num_waiting": 0, "last_delivered": reported(END - timedelta(hours=5)), "last_acked": None}
    ),
    "CONSUMER_109": case("consumers", {"paused": True}),
    "CONSUMER_110": case("consumers", {"num_waiting": 500}),
    "CONSUMER_111": case("consumers", {"delivered_stream_seq": 9000}),
    "CONSUMER_112": case("streams", {"first_seq": 1999}),
    "CONSUMER_113": case("consumer_replicas", {"ack_floor_stream_seq": 100}),
    "CONSUMER_114": case("consumers", {"max_deliver": -1, "num_redelivered": 1}),
    "ACCOUNTS_001": case("accounts", {"connections": 95}),
    "ACCOUNTS_101": case("accounts", {"js_storage": 99 * GIB // 10}),
    "ACCOUNTS_202": case("accounts", lambda step: {"slow_consumers": 3 + step}),
    "ACCOUNTS_201": case(
        "connections",
        {"young": 3},
        change("servers", lambda step: {"total_connections": 5000 * step}, server="n1"),
    ),
    "ACCOUNTS_106": case(
        "account_limits",
        {"extra": {"imports": [{"subject": "orders.>", "account": "gone", "invalid": True, "share": False}]}},
        where={"account": "A"},
    ),
    "ACCOUNTS_107": case(
        "accounts",
        {"js_reserved_storage": None},
        change("accounts", {"js_storage": 5}, account="$G"),
    ),
    "ACCOUNTS_103": case("accounts", {"js_storage": 5}, where={"account": "SYS"}, account="SYS"),
    "ACCOUNTS_105": case("account_limits", {"expires": reported(END + timedelta(days=5))}, where={"account": "A"}),
    "ACCOUNTS_108": case("jwts", {"urgency": "warning", "text": "3 connections will be closed"}),
    "ACCOUNTS_104": case("accounts", {"connections": 5}, where={"account": "$G"}, account="$G"),
    "CONN_101": case("connections", {"pending_bytes_max": 1 << 24}),
    "CONN_102": case("connections", {"rtt_max": 0.4}),
    "ROUTE_101": case("routes", {"rtt": 0.2}),
    "ROUTE_102": case("routes", {"pending_size": 1 << 24}),
    "GATEWAY_102": case("gateways", {"pending_bytes": 1 << 24}),
    "GATEWAY_103": case("gateways", {"configured": False}),
    "LEAF_001": case("leafnodes", {"name": "my leaf"}),
    "LEAF_102": case("servers", {**_SPOKE, "leafnodes": 1}),
    "LEAF_101": case("leafnodes", {"rtt": 0.9}),
    # --- over a time --------------------------------------------------------------------------------------------------------
    "FLEET_201": Case((Drop("snapshots", {}, (2, 3)),)),
    "SERVER_201": case("servers", lambda step: {"server_id": "IDn1" if step < 3 else "IDnew"}),
    "SERVER_202": case("servers", lambda step: {"server_id": f"ID{step}"}),
    "SERVER_204": case("servers", lambda step: {"js_api_errors": 50 * step}),
    "SERVER_205": case("servers", lambda step: {"mem": 100_000_000 * (1 + step)}),
    "SERVER_206": case("servers", lambda step: {"config_digest": "sha256:a" if step < 3 else "sha256:b"}),
    "SERVER_207": case("servers", lambda step: {"health": "error" if step in (1, 2) else "ok"}),
    "SERVER_208": Case((Drop("servers", {"server": "n4"}, (2, 3)),), {"server": "n4"}),
    "SERVER_209": case("servers", lambda step: {"js_max_storage": (1000 - step) * GIB}),
    "SERVER_210": case("servers", lambda step: {"js_disabled": step > 3}),
    "SERVER_211": case("servers", {"cpu": 300.0}),
    "SERVER_212": case("servers", lambda step: {"total_connections": 5000 * step}),
    "SERVER_213": case("servers", lambda step: {"stalled_clients": 100 * step}),
    "SERVER_214": case("servers", lambda step: {"stale_connections": 50 * step}),
    "SERVER_215": case("servers", lambda step: {"connections": 1000 if step < 3 else 10}),
    "SERVER_216": case("advisories", {"kind": "api_limit_reached", "dropped": 900}, where={"consumer": "worker"}),
    "SERVER_217": case("advisories", {"kind": "server_out_of_space"}, where={"consumer": "worker"}),
    "SERVER_218": case("advisories", {"kind": "meta_rescue"}, where={"consumer": "worker"}),
    "SERVER_221": case("server_events", {"kind": "no_space"}),
    "SERVER_222": case("server_events", {"kind": "storage"}),
    "SERVER_223": case("server_events", {"kind": "authentication"}),
    "SERVER_224": case("server_events", {"kind": "slow"}),
    "SERVER_225": case("server_events", {"kind": "route"}),
    "SERVER_226": case("server_events", {"kind": "no_leader"}),
    "ROUTE_201": case("routes", lambda step: {"cid": step}),
    "GATEWAY_201": case("gateways", lambda step: {"cid": step}),
    "LEAF_201": case("leafnodes", lambda step: {"cid": step}),
    "LEAF_202": Case((Drop("leafnodes", {}, (4, 5)),)),
    "META_201": case("servers", lambda step: {"meta_leader": SERVERS[step % 2]}, where={}),
    "META_202": case("servers", lambda step: {"meta_leader": "" if step == 2 else "n1"}, where={}),
    "META_203": case("servers", lambda step: {"meta_size": 5 if step else 7}, where={}),
    "CLUSTER_201": case("storms", {"cause": "unknown"}),
    "STREAM_201": case("leadership", {"flap": 6.0, "counted": 8}, where={"kind": "stream"}, consumer=""),
    "CONSUMER_201": case("leadership", {"flap": 6.0, "counted": 8}, where={"kind": "consumer"}),
    "RAFT_201": case("raft_groups", lambda step: {"term": 7 + 5 * step}),
    "RAFT_202": case("raft_groups", lambda step: {"wal_bytes": (1 + step) * GIB}),
    "RAFT_203": case("raft_groups", {"committed": 900}),
    "STREAM_202": case("streams", lambda step: {"last_seq": 2000 if step < LAST - 1 else 1500}),
    "STREAM_212": case("streams", lambda step: {**_ENDLESS, "first_seq": 1 if step < 3 else 500}),
    "STREAM_216": case("streams", lambda step: {"first_seq": 1 if step < 3 else 1900}),
    "STREAM_214": case("incidents", {"stream": "GONE", "continues": True}, where={}, stream="GONE"),
    "STREAM_217": case(
        "streams",
        lambda step: {"last_seq": 2000 if step < 3 else 100, "created": reported(at(0 if step < 3 else 3))},
        where={"stream": "S"},
        stream="MIRROR",
    ),
    "STREAM_213": case("stream_replicas", {"last_seq": 0}, where=_LEADS_MIRROR, stream="MIRROR"),
    "STREAM_203": case("streams", lambda step: _leaderless() if step == 2 else {}),
    "STREAM_204": case("streams", {"members": ["n1", "n2", "n3", "n4"]}),
    "STREAM_205": case("changes", {"object": "stream", "account": "A", "stream": "S", "what": "config"}),
    "STREAM_206": case("stream_replicas", {**_mirror(lag=500), "last_seq": 100}, where=_LEADS_MIRROR, stream="MIRROR"),
    "STREAM_209": case(
        "stream_replicas",
        lambda step: {**_mirror(lag=500 * (step == 3)), "last_ts": reported(at(step) - timedelta(hours=1))},
        where=_LEADS_MIRROR,
        stream="MIRROR",
    ),
    "ASSETS_101": case(
        "drift", {"drifting": 1, "reason": "different from the document: 1 of 12 assets: stream S: change"}
    ),
    "ASSETS_102": case("drift", {"checked": reported(END - timedelta(hours=30))}),
    "BACKUP_101": case("backups", {"saved": None, "problem": "it has no leader"}),
    "BACKUP_102": case("backups", {"problem": "it has no leader"}),
    "BACKUP_103": case("backups", {"saved": reported(END - timedelta(hours=30))}),
    "BACKUP_104": case("backups", {"proven": None, "drilled": None}),
    "BACKUP_105": case("backups", {"drill_problem": "3 messages are missing", "restore_seconds": None}),
    "BACKUP_106": case("backups", {"future_backup": "A/S@20991231T000000"}),
    "STREAM_207": case("divergence", {"diverged": True, "messages": 1800}, server="n2"),
    "STREAM_208": case("divergence", {"behind": True, "last_seq": 100}, server="n2"),
    "CONSUMER_202": case("consumer_lag", {"state": "stuck", "stuck_seconds": 7200.0}),
    "CONSUMER_203": case("consumer_lag", {"state": "growing", "trend": 1.0, "pending_slope": 3.0, "num_pending": 5000}),
    "CONSUMER_204": case("consumer_lag", {"catch_up": 200_000.0}, where={"consumer": "late"}, consumer="late"),
    "CONSUMER_205": case(
        "consumers", {"num_waiting": 0, "num_pending": 0, "delivered_stream_seq": 1990, "ack_floor_stream_seq": 1989}
    ),
    "CONSUMER_209": case(
        "consumer_lag", {"state": "growing", "num_pending": 600_000, "ingest_rate": 1.0, "ack_rate": 0.5}
    ),
    "CONSUMER_210": case("advisories", {"kind": "max_deliver"}, where={"consumer": "worker"}),
    "CONSUMER_213": case("advisories", {"kind": "consumer_group_unpinned"}, where={"consumer": "worker"}),
    "STREAM_215": case("advisories", {"kind": "stream_batch_abandoned"}, where={"consumer": None}, consumer=""),
    "CONSUMER_211": case("advisories", {"kind": "consumer_quorum_lost"}, where={"consumer": "worker"}),
    "CONSUMER_212": case("advisories", {"kind": "terminated"}, where={"consumer": "worker"}),
    "STREAM_210": case("streams", {"last_seq": 2000, "consumer_count": 0, "messages": 2000}, where={"stream": "S"}),
    "STREAM_211": case("advisories", {"kind": "stream_quorum_lost"}, where={"consumer": None}, consumer=""),
    "CONSUMER_206": case("consumers", {"num_redelivered": 2, "ack_floor_stream_seq": 1989}),
    "CONSUMER_207": case("consumers", lambda step: {"ack_floor_stream_seq": 1989 - 100 * step}),
    "CONSUMER_208": case("consumers", lambda step: _leaderless() if step == 2 else {}),
    "CAPACITY_201": case("capacity", {"full_p10": 5.0, "full_p50": 10.0}, where=_SERVER_ASSET),
    "CAPACITY_202": case("capacity", {"changed": True}, where=_SERVER_ASSET),
    "CAPACITY_203": case("headroom", {"has_space": False}),
    "CAPACITY_204": case("headroom", {"days": 5.0}),
    "CAPACITY_205": case("capacity", {"full_p10": 5.0, "full_p50": 10.0}, where=_RING),
    "CAPACITY_206": case("headroom", {"servers_left": 2, "unplaced": 1}),
}

#: Fleets in which a fact is unknown or a deviation is configured: for each check, its result and the subject.
OTHERS: dict[str, tuple[tuple[Change | Drop, ...], dict[str, tuple[str, Mapping[str, str]]]]] = {
    "two clusters": (
        (
            change("servers", {"cluster": "C2"}, server="n5"),
            change("gateways", {"gateway": "C2"}),
            change("consumers", {"num_pending": 0}),
        ),
        {"GATEWAY_101": ("pass", {"cluster": "C1"})},
    ),
    "numbers that limits are compared with are missing": (
        (
            change("accounts", {"connections": None}, account="A"),
            change("servers", {"js_streams": None}, server="n1"),
            change("streams", {"messages": 2, "last_ts": None}, stream="S"),
        ),
        {
            "ACCOUNTS_001": ("unknown", {"account": "A"}),
            "HOST_102": ("unknown", {"server": "n1"}),
            "STREAM_123": ("unknown", {"stream": "S"}),
        },
    ),
    "a server did not report VARZ": (
        (change("servers", dict.fromkeys(("js_unique_tag", "varz_reported", "varz_extra")), server="n5"),),
        {
            **{code: ("unknown", {"cluster": "C1"}) for code in ("CLUSTER_102", "CLUSTER_103", "CLUSTER_110")},
            **{code: ("unknown", {"server": "n5"}) for code in ("SERVER_113", "SERVER_116", "SERVER_117")},
        },
    ),
    "a server reported nothing of itself": (
        (
            change(
                "servers",
                dict.fromkeys(("cpu", "gomaxprocs", "gomemlimit", "health", "tls_cert_not_after", "now")),
                server="n1",
            ),
        ),
        {code: ("unknown", {"server": "n1"}) for code in ("SERVER_001", "SERVER_003", "SERVER_008", "SERVER_105")},
    ),
    "a leafnode that reaches both of its hubs": (
        (change("servers", {**_SPOKE, "leafnodes": 2}, server="n1"),),
        {"LEAF_102": ("pass", {"server": "n1"})},
    ),
    "accounts with limits": (
        (change("accounts", {"js_storage": 5}, account="$G"),),
        {"ACCOUNTS_107": ("pass", {"account": "A"})},
    ),
    "a work queue with a worker": (
        (change("streams", {"retention": "workqueue"}, stream="S"),),
        {"STREAM_124": ("pass", {"stream": "S"})},
    ),
    "no login is required": (
        (change("servers", {"auth_required": False}), change("accounts", {"connections": 5}, account="$G")),
        {"SERVER_007": ("fail", {"server": "n1"})},
    ),
    "two servers": (
        tuple(Drop("servers", {"server": name}) for name in SERVERS[2:]),
        {"SERVER_109": ("unknown", {"server": "n1"})},
    ),
    "a stream that any server may lead": (
        (change("streams", {"leader": None, "leaders": [], "views": ["n9"], "peers": None}, stream="S"),),
        {code: ("unknown", {"stream": "S"}) for code in ("STREAM_101", "STREAM_104", "STREAM_105", "STREAM_106")},
    ),
    "a replica that did not report": (
        (Drop("stream_replicas", {"stream": "S", "server": "n3"}),),
        {code: ("unknown", {"stream": "S"}) for code in ("JETSTREAM_001", "STREAM_117", "STREAM_116")},
    ),
    "the meta leader did not report": (
        (Drop("servers", {"server": "n1"}),),
        {code: ("unknown", {}) for code in ("META_102", "META_106", "META_107")},
    ),
    "gateways were not queried": (
        (
            change("servers", {"cluster": "C2"}, server="n5"),
            *without("gatewayz"),
        ),
        {code: ("unknown", {"cluster": "C1"}) for code in ("CLUSTER_002", "GATEWAY_101")},
    ),
    "gateways were not reported": (
        (Drop("gateways", {"server": "n1"}),),
        {"CLUSTER_002": ("unknown", {"cluster": "C1"})},
    ),
    "a busy stream whose servers replied one after the other": (
        (
            change("stream_replicas", {"last_seq": 100_000_000, "received": reported(END)}, stream="S"),
            change(
                "stream_replicas",
                {"last_seq": 99_975_000, "received": reported(END - timedelta(seconds=25))},
                stream="S",
                server="n2",
            ),
            change("streams", {"last_seq": 100_000_000}, stream="S"),
            change("consumers", {"delivered_stream_seq": 100_020_000}),
        ),
        {"JETSTREAM_001": ("pass", {"stream": "S"}), "CONSUMER_111": ("pass", {"consumer": "worker"})},
    ),
    "a stream of five messages": (
        (
            change("stream_replicas", {"last_seq": 5}, stream="S"),
            change("stream_replicas", {"last_seq": 4}, stream="S", server="n2"),
        ),
        {"JETSTREAM_001": ("pass", {"stream": "S"})},
    ),
    "the skipped messages of a filter are ignored": (
        (
            change("streams", {"first_seq": 1999}, stream="S"),
            change("consumers", {"config": '{"filter_subjects": ["rare.>", "seldom"]}'}),
        ),
        {},
    ),
    "a work queue keeps unread messages": (
        (change("streams", {"first_seq": 1999, "retention": "workqueue"}, stream="S"),),
        {},
    ),
    "nothing was delivered yet": (
        (
            change(
                "consumers",
                {"delivered_stream_seq": 0, "last_delivered": None, **_watched(last_delivery_critical="5m")},
            ),
        ),
        {code: ("unknown", {"consumer": "worker"}) for code in ("CONSUMER_112", "JETSTREAM_005")},
    ),
    "the asset has a threshold of its own": (
        (
            change(
                "streams",
                {"bytes": 1020 << 20, "metadata": {"natsops.insights.jetstream_003_bytes": "99.9"}},
                stream="S",
            ),
        ),
        {"JETSTREAM_003": ("pass", {"stream": "S"})},
    ),
    "the asset has a threshold as for nats server check": (
        (
            change("streams", {"metadata": {"io.nats.monitor.peer-seen-critical": "2m"}}, stream="S"),
            change("streams", {"peers": [peer("n4"), peer("n5", active=60_000_000_000)]}),
        ),
        {"STREAM_104": ("pass", {"stream": "S"}), "STREAM_106": ("fail", {"stream": "MIRROR"})},
    ),
    "the asset is not to be judged": (
        (
            change(
                "streams",
                {"num_deleted": 5_000_000, "metadata": {"natsops.insights.skip": "STREAM_101, STREAM_108"}},
                stream="S",
            ),
        ),
        {"STREAM_108": ("pass", {"stream": "MIRROR"})},
    ),
    **{
        f"the asset's threshold is {wrong}": (
            (change("streams", {"metadata": {"natsops.insights.jetstream_003_bytes": wrong}}, stream="S"),),
            {"JETSTREAM_003": ("unknown", {"stream": "S"})},
        )
        for wrong in ("NaN", "Infinity", "1e999", "-5")
    },
    "the asset's threshold is not a number": (
        (change("streams", {"metadata": {"natsops.insights.jetstream_003_bytes": "many"}}, stream="S"),),
        {"JETSTREAM_003": ("unknown", {"stream": "S"})},
    ),
    "the asset's threshold has a unit that there is not": (
        (change("streams", {"metadata": {"natsops.insights.jetstream_003_bytes": "90d"}}, stream="S"),),
        {"JETSTREAM_003": ("unknown", {"stream": "S"})},
    ),
    "its backup has a threshold of its own": (
        (
            change(
                "backups", {"saved": reported(END - timedelta(hours=30)), "proven": reported(END - timedelta(days=99))}
            ),
            change("streams", {"metadata": {"natsops.insights.backup_103_age": "8d"}}, stream="S"),
        ),
        {
            "BACKUP_103": ("pass", {"stream": "S"}),
            "BACKUP_104": ("fail", {"stream": "S"}),
        },
    ),
    "a stream is excluded from the backups": (
        (change("backups", {"excluded": True, "saved": None}, stream="S"),),
        {"BACKUP_101": ("pass", {"stream": "MIRROR"})},
    ),
    "snapshots have no catalogue": (
        tuple(Drop("backups", {"stream": name}) for name in ("S", "MIRROR")),
        {f"BACKUP_10{number}": ("unknown", {}) for number in range(1, 6)},
    ),
    "servers reported a young stream one after the other": (
        (
            change(
                "streams",
                {"last_seq": 110_000, "first_ts": reported(END - timedelta(seconds=110)), "last_ts": reported(END)},
                stream="S",
            ),
            change("consumer_replicas", {"delivered_stream_seq": 110_000, "received": reported(END)}),
            change(
                "consumer_replicas",
                {"delivered_stream_seq": 100_000, "received": reported(END - timedelta(seconds=10))},
                server="n2",
            ),
        ),
        {"CONSUMER_113": ("pass", {"consumer": "worker"})},
    ),
    "a Raft group of a stream": (
        (change("raft_groups", {"account": "A", "raft_group": "S-S", "leader": ""}, server="n1"),),
        {"RAFT_105": ("fail", {"server": "n1", "name": "stream S"})},
    ),
    "a server that does not answer is far away": (
        (change("routes", {"rtt": 0.2}), Drop("servers", {"server": "n2"})),
        {"ROUTE_101": ("none", {})},
    ),
    "messages may be kept for ever": (
        (
            change("streams", {"first_ts": reported(END - timedelta(days=8)), "config": {"allow_msg_ttl": True}}),
            change("streams", {"max_age": 0.0}, stream="MIRROR"),
        ),
        {"STREAM_112": ("none", {})},
    ),
    "keys are overwritten": (
        (change("streams", {"first_seq": 1999, "config": {"max_msgs_per_subject": 1}}, stream="S"),),
        {"CONSUMER_112": ("none", {})},
    ),
    "a sealed stream": (
        (change("streams", {**_ENDLESS, "config": {"sealed": True}}, stream="S"),),
        {"STREAM_110": ("none", {"stream": "S"})},
    ),
    "raftz was not requested": (
        tuple(Drop("raft_groups", {"server": name}) for name in SERVERS),
        {"RAFT_101": ("unknown", {})},
    ),
}

#: Other such fleets, with every snapshot.
OTHERS_OVER_TIME: dict[str, tuple[tuple[Change | Drop, ...], dict[str, tuple[str, Mapping[str, str]]]]] = {
    "a planned restart": (
        (
            change("servers", lambda step: {"server_id": "IDn1" if step < 3 else "IDnew"}, server="n1"),
            change("restarts", {"maintenance": True}),
        ),
        {"SERVER_201": ("pass", {"server": "n1"})},
    ),
    "critical in the last snapshot alone": (
        (
            change("streams", lambda step: {"leaders": ["n1", "n2"]} if step == LAST else {}, stream="S"),
            change("streams", lambda step: {"lost_messages": 3 * (step == LAST)}, stream="S"),
            change("consumers", lambda step: {"leaders": ["n1", "n2"]} if step >= LAST - 1 else {}),
        ),
        {
            "STREAM_102": ("pass", {"stream": "S"}),
            "STREAM_107": ("fail", {"stream": "S"}),
            "CONSUMER_102": ("fail", {"consumer": "worker"}),
        },
    ),
    "raftz was not queried": (
        tuple(Drop("raft_groups", {"server": name}) for name in SERVERS),
        {f"RAFT_20{number}": ("unknown", {}) for number in (1, 2, 3)},
    ),
    "a stream's Raft group votes again and again": (
        (
            change(
                "raft_groups",
                lambda step: {"account": "A", "raft_group": "S-S", "term": 7 + 9 * step},
                server="n1",
            ),
        ),
        {"RAFT_201": ("fail", {"server": "n1", "name": "stream S"})},
    ),
    "a replica differs since yesterday": (
        (change("divergence", {"compared": 1, "in_a_row": 5, "diverged": True, "messages": 1800}, server="n2"),),
        {"STREAM_207": ("fail", {"server": "n2"})},
    ),
    "a replica that differed yesterday was not compared": (
        (change("divergence", {"compared": 0, "in_a_row": 5, "diverged": True}, server="n2"),),
        {"STREAM_207": ("unknown", {"server": "n2"})},
    ),
    "a consumer that is at its end": (
        (change("consumers", {"num_pending": 0}),),
        {"CONSUMER_205": ("pass", {"consumer": "worker"})},
    ),
    "an abandoned consumer": (
        (
            change(
                "consumers",
                {"num_waiting": 0, "last_delivered": reported(END - timedelta(hours=5)), "last_acked": None},
            ),
            change("consumer_lag", {"state": "stuck", "stuck_seconds": 7200.0}, consumer="worker"),
        ),
        {"CONSUMER_108": ("fail", {"consumer": "worker"})},
    ),
    "memory fills after a start": (
        (
            change(
                "servers",
                lambda step: {"mem": 100_000_000 * (1 + step), "server_id": "IDn1" if step < LAST else "IDnew"},
                server="n1",
            ),
        ),
        {"SERVER_205": ("unknown", {"server": "n1"})},
    ),
    "a burst while servers report one after the other": (
        (
            *(
                change("stream_replicas", values(behind), stream="S", server=server)
                for server, behind in (("n1", 0), ("n2", 10), ("n3", 5))
                for values in (_in_burst, _answered)
            ),
            change("streams", _in_burst(10), stream="S"),
            change("consumers", lambda step: {"delivered_stream_seq": 30_000_000 + 72_000_000 * step}),
        ),
        {"JETSTREAM_001": ("pass", {"stream": "S"}), "CONSUMER_111": ("pass", {"consumer": "worker"})},
    ),
    "a burst while the collector's clock was set to later": (
        (
            # The 72 million messages were written in 20 minutes instead of four hours.
            change("snapshots", lambda step: {"clock_offset_median": -(4 * 3600 - 1200.0) * (step == LAST)}),
            *(
                change("stream_replicas", values, stream="S", server=server)
                for server, behind in (("n1", 0), ("n2", 10), ("n3", 5))
                for values in (_in_burst(behind, 60_000), _answered(behind))
            ),
            change("streams", _in_burst(10, 60_000), stream="S"),
        ),
        {"JETSTREAM_001": ("pass", {"stream": "S"})},
    ),
    "messages of a subject were purged from a stream without limits": (
        (
            change(
                "streams",
                lambda step: {**_ENDLESS, "messages": 2000 + step - (0, 0, 0, 900, 900, 900)[step]},
                stream="S",
            ),
        ),
        {"STREAM_212": ("fail", {"stream": "S"})},
    ),
    "few messages were deleted from a stream without limits": (
        (change("streams", lambda step: {**_ENDLESS, "messages": 2000 + step - (0, 0, 0, 5, 5, 5)[step]}, stream="S"),),
        {"STREAM_212": ("pass", {"stream": "S"})},
    ),
    "lost messages, after which its sequence rose above the former one": (
        (change("streams", lambda step: {"last_seq": (2000, 2000, 1500, 1600, 2100, 2200)[step]}, stream="S"),),
        {"STREAM_202": ("fail", {"stream": "S"})},
    ),
    "the last snapshot shows less": (
        (
            change("streams", lambda step: {"last_seq": 1500} if step == LAST else {}, stream="S"),
            change("consumers", lambda step: {"ack_floor_stream_seq": 1500} if step == LAST else {}),
        ),
        {"STREAM_202": ("pass", {"stream": "S"}), "CONSUMER_207": ("pass", {"consumer": "worker"})},
    ),
    "the collector's clock was set back": (
        (
            change("snapshots", lambda step: {"sequence": step if step < LAST - 1 else step - LAST}),
            change("streams", lambda step: {"last_seq": 1500} if step >= LAST - 1 else {}, stream="S"),
            change("consumers", lambda step: {"ack_floor_stream_seq": 1500} if step >= LAST - 1 else {}),
        ),
        {"STREAM_202": ("pass", {"stream": "S"}), "CONSUMER_207": ("pass", {"consumer": "worker"})},
    ),
    "a counter fell within a start": (
        (
            change("servers", lambda step: {"slow_consumers": (50, 50, 0, 3, 3, 3)[step]}, server="n1"),
            change("accounts", lambda step: {"slow_consumers": (50, 50, 0, 3, 3, 3)[step]}, account="A"),
        ),
        {"SERVER_004": ("fail", {"server": "n1"}), "ACCOUNTS_202": ("fail", {"account": "A"})},
    ),
    "the first day of a lake": (
        (
            change("capacity", {"state": "unknown", "changed": None, "slope": None, "full_p10": None}),
            change("headroom", {"slope": None, "days": None}),
        ),
        {
            **{f"CAPACITY_20{number}": ("unknown", {"name": "server n1 file"}) for number in (1, 2)},
            "CAPACITY_203": ("pass", {}),
            "CAPACITY_204": ("unknown", {}),
            "CAPACITY_205": ("unknown", {}),
        },
    ),
    "three servers with streams of three replicas": (
        (change("headroom", {"servers_left": 2, "unplaced": 3, "need": 0.0}),),
        {"CAPACITY_203": ("none", {}), "CAPACITY_204": ("none", {}), "CAPACITY_206": ("fail", {})},
    ),
    "three servers, and one stream that two servers can hold": (
        (change("headroom", {"servers_left": 2, "unplaced": 2, "has_space": False}),),
        {"CAPACITY_203": ("fail", {}), "CAPACITY_204": ("none", {}), "CAPACITY_206": ("fail", {})},
    ),
    "growth that no storage can hold, on a server whose streams are limited": (
        (change("capacity", {"state": "limited", "full_p10": None}, **_SERVER_ASSET),),
        {"CAPACITY_201": ("pass", {"name": "server n1 file"})},
    ),
    "a stream that removes its oldest messages is full": (
        (change("capacity", {"state": "full", "full_p10": 0.0}, **_RING),),
        {"CAPACITY_201": ("none", {"name": "stream A/RING file"}), "CAPACITY_205": ("pass", {})},
    ),
    "a full stream loses unprocessed messages": (
        (change("capacity", {"state": "full", "full_p10": 0.0, "at_limit": "loses"}, **_RING),),
        {"CAPACITY_201": ("fail", {"name": "stream A/RING file"}), "CAPACITY_205": ("none", {})},
    ),
    "all snapshots of the day were taken within seconds": (
        (change("snapshots", lambda step: {"taken": reported(END - timedelta(seconds=5 * (LAST - step)))}),),
        {"FLEET_201": ("unknown", {})},
    ),
    "a server was unhealthy once": (
        (change("servers", lambda step: {"health": "error" if step == 2 else "ok"}, server="n1"),),
        {"SERVER_207": ("pass", {"server": "n1"})},
    ),
    "a server was removed on purpose": (
        (Drop("servers", {"server": "n4"}, (3, 4, 5)), Drop("meta_peers", {"peer": "n4"}, (3, 4, 5))),
        {"SERVER_208": ("pass", {"server": "n4"})},
    ),
    "a consumer that lived for a moment": (
        (
            change("consumers", {"durable": False}),
            change("consumer_lag", {"snapshots": 1, "durable": False}, consumer="worker"),
            Drop("consumers", {"consumer": "worker"}, (0, 1, 3, 4, 5)),
        ),
        {f"CONSUMER_20{number}": ("none", {"consumer": "worker"}) for number in range(1, 10)},
    ),
    "each leader of the meta group restarts": (
        tuple(change("servers", _rolled(place), server=name) for place, name in enumerate(SERVERS)),
        {"META_201": ("pass", {})},
    ),
    "a consumer that was recovered from 2.10": (
        (change("consumers", lambda step: {"created": reported(at(0) + timedelta(milliseconds=step))}),),
        {"CONSUMER_207": ("pass", {"consumer": "worker"})},
    ),
    "streams without limits, and a mirror of one that stored nothing": (
        (
            change("streams", {**_ENDLESS, "last_seq": 2000}),
            change("stream_replicas", {"last_seq": 0}, **_LEADS_MIRROR),
        ),
        {"STREAM_212": ("pass", {"stream": "S"}), "STREAM_213": ("pass", {"stream": "MIRROR"})},
    ),
    **{
        f"messages leave a stream: {name}": (
            (change("streams", _leaving(**values), stream="S"),),
            {"STREAM_216": (result, {"stream": "S"})},
        )
        for name, result, values in (
            ("max_age", "pass", {"max_age": 4 * 3600.0, "first_ts": timedelta(hours=4)}),
            ("max_age or a purge", "pass", {"max_age": 12 * 3600.0, "first_ts": timedelta(hours=11)}),
            ("max_msgs", "pass", {"max_msgs": 300}),
            ("max_bytes", "pass", {"bytes": GIB - 1000}),
            ("roll-ups", "none", {"config": {"allow_rollup_hdrs": True}}),
            ("acknowledgements", "none", {"retention": "workqueue"}),
            ("a purge, publishing was rejected before", "fail", {"max_msgs": 300, "discard": "new"}),
            ("a purge before max_age", "fail", {"max_age": 24 * 3600.0, "first_ts": timedelta(hours=11)}),
        )
    },
    "no leader at the end, and the server that replies is behind": (
        (
            change("streams", lambda step: {"leader": None, "last_seq": 5} if step == LAST else {}, stream="S"),
            change("consumers", lambda step: {"leader": None, "ack_floor_stream_seq": 5} if step == LAST else {}),
        ),
        {"STREAM_202": ("pass", {"stream": "S"}), "CONSUMER_207": ("pass", {"consumer": "worker"})},
    ),
}

#: The subject of a finding, unless a case names a different one.
SUBJECT = {"cluster": "C1", "server": "n1", "account": "A", "stream": "S", "consumer": "worker"}


def fleet(name: str, over_time: bool, changes: tuple[Change | Drop, ...] = ()) -> Rows:
    """Return the rows of a fleet, with every snapshot or only the last one."""
    rows: Rows = {}
    for step in range(STEPS) if over_time else (LAST,):
        moment_rows = _moment(step)
        for one in changes:
            if one.table in moment_rows:
                one.apply(moment_rows, step)
        for table, found in moment_rows.items():
            rows.setdefault(table, []).extend(found)
    gold = _gold()
    for one in changes:
        if one.table in gold:
            one.apply(gold, LAST)
    rows |= gold
    for found in rows.values():
        for row in found:
            row["fleet"] = name
    return rows
