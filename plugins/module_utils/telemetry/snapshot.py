# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A snapshot of a fleet's telemetry as JSON lines in the bronze layer of a lake.

The servers' replies are split at their lists: one line for each server, stream replica, consumer replica, connection,
…, so no reader has to keep a complete document in memory, and a broken line costs only one row. docs/internals/lake.md
describes the layout; the reader is roles/nats_insights/files/jetstream_insights."""

from __future__ import annotations

import json
import secrets
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from ..accounts.expiry import Logins, evaluate
from ..accounts.fields import moment_words
from ..nats.account_names import account_id
from ..nats.failures import NatsFailure
from ..nats.model import Server
from ..redaction import without_secrets
from . import json_text
from .lake_store import LAKE, DirectoryLake, LakeStore
from .schema import TABLES
from .snapshot_files import FILE_SIZE, JsonLines, Origin, SnapshotTable, write_durably
from .typed_columns import TypedTable

__all__ = [
    "FORGOTTEN_AFTER",
    "FORMATS",
    "JSON",
    "JWTS",
    "LAKE",
    "PARQUET",
    "Origin",
    "SnapshotLine",
    "SnapshotWriter",
    "endpoint_rows",
    "expiry_rows",
    "message_origin",
    "meta_members",
    "servers_summary",
    "timestamp",
    "with_limits",
]

#: The formats in which a snapshot can be written, and the format version of its manifest: readers of older versions
#: would misread a newer one.
JSON, PARQUET = "json", "parquet"
FORMATS = {JSON: 1, PARQUET: 2}

#: The table with the expiry of the JWTs that VARZ, ACCOUNTZ and CONNZ contain in operator mode.
JWTS = "jwts"

#: The endpoints whose reply is only a list, each with its key.
_LISTS = {"connz": "connections", "routez": "routes", "leafz": "leafs", "accstatz": "account_statz"}

#: Details of assets and Raft groups, which contain no secrets and are by far the most numerous, so they are not
#: searched for secrets. For hosts, the number of passwords is counted.
_HARMLESS = ("jsz_streams", "jsz_consumers", "raftz", "hosts")

#: Maximum number of failures that a manifest quotes; all failures are counted, and each is a line of its endpoint.
_QUOTED_FAILURES = 50


class SnapshotLine(NamedTuple):
    """A future line: its table, its identity in addition to the server, and the data that the server reported, which
    may be a `json_text.Text`."""

    table: str
    keys: Mapping[str, Any]
    data: Any


def timestamp(moment: datetime) -> str:
    """Return a time as RFC 3339 in UTC with microseconds."""
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def message_origin(server: Server, domain: str, arrived: datetime | None = None) -> Origin:
    """Return the server as the origin of rows that arrived at this time, by default now. `domain`: see nats/model.py
    domains."""
    received = timestamp(arrived or datetime.now(timezone.utc))
    return Origin(server.id, server.name, server.cluster, server.version, received, domain)


def endpoint_rows(endpoint: str, data: dict[str, Any], first: bool = True) -> Iterator[SnapshotLine]:
    """Yield the rows of a server's reply, or of one page of it. `first`: whether the figures of the server itself have
    not been recorded yet.

    The lists are removed from `data`, which must not be used afterwards."""
    if endpoint == "jsz":
        accounts = data.pop("account_details", None) or ()
        if first:
            yield SnapshotLine("jsz", {}, data)
        for account in accounts:
            yield from _account_rows(account)
    elif endpoint == "raftz":
        for account, groups in data.items():
            for name, group in (groups or {}).items():
                yield SnapshotLine("raftz", {"account": account, "raft_group": name}, group)
    elif endpoint == "gatewayz":
        for name, gateway in (data.get("outbound_gateways") or {}).items():
            keys = {"gateway": name, "direction": "outbound", "configured": bool(gateway.get("configured"))}
            yield SnapshotLine("gatewayz", keys, gateway.get("connection") or {})
        for name, gateways in (data.get("inbound_gateways") or {}).items():
            for gateway in gateways or ():
                keys = {"gateway": name, "direction": "inbound", "configured": bool(gateway.get("configured"))}
                yield SnapshotLine("gatewayz", keys, gateway.get("connection") or {})
    elif endpoint == "ipqueuesz":
        for name, queue in data.items():
            yield SnapshotLine("ipqueuesz", {"queue": name}, queue)
    elif endpoint == "accountz":
        detail = data.get("account_detail") or {}
        yield SnapshotLine("accountz", {"account": detail.get("account_name")}, with_limits(detail))
    elif endpoint in _LISTS:
        for item in data.get(_LISTS[endpoint]) or ():
            yield SnapshotLine(endpoint, {"account": item.get("acc")} if endpoint == "accstatz" else {}, item)
    else:
        yield SnapshotLine(endpoint, {}, data)


def expiry_rows(logins: Logins, now: float) -> Iterator[SnapshotLine]:
    """Yield the names, the public keys, the expiry and the effect of the JWTs in use. `now`: seconds since 1970."""
    for one in evaluate(logins, now):
        data = {
            **{name: getattr(one, name) for name in ("kind", "account_name", "role", "subject", "name", "connections")},
            "expires": moment_words(one.expires),
            "urgency": one.severity,
            "text": one.text,
        }
        yield SnapshotLine(JWTS, {"account": one.account}, data)


def with_limits(detail: dict[str, Any]) -> dict[str, Any]:
    """Return the part of an account's details that a snapshot stores; the JWT is reduced to the limits and the
    expiry."""
    claim = detail.pop("decoded_jwt", None) or {}
    if claim:
        detail["expires"] = claim.get("exp")
        detail["limits"] = (claim.get("nats") or {}).get("limits")
    return detail


def _account_rows(account: dict[str, Any]) -> Iterator[SnapshotLine]:
    """Yield an account's rows of JSZ. A consumer also gets values that only its stream's detail contains: its Raft
    group, and the settings that determine the number of its replicas (consumer.go ConsumerConfig.replicas)."""
    name = account_id(account)
    streams = account.pop("stream_detail", None) or ()
    yield SnapshotLine("jsz_accounts", {"account": name}, account)
    if json_text.is_text(streams):
        yield from _stream_rows(name, streams)
        return
    for stream in streams:
        config = stream.get("config") or {}
        groups = {item.get("name"): item.get("raft_group") for item in stream.pop("consumer_raft_groups", None) or ()}
        consumers = stream.pop("consumer_detail", None) or ()
        yield SnapshotLine("jsz_streams", {"account": name}, stream)
        for consumer in consumers:
            keys = {
                "account": name,
                "raft_group": groups.get(consumer.get("name")),
                "stream_replicas": config.get("num_replicas"),
                "stream_retention": config.get("retention"),
            }
            yield SnapshotLine("jsz_consumers", keys, consumer)


def _stream_rows(account: str, streams: json_text.Text) -> Iterator[SnapshotLine]:
    """Yield the same rows as `_account_rows`, from the unparsed text of an account's `stream_detail`."""
    keys = {"account": account}
    for stream in json_text.list_of_members(streams):
        groups = json_text.read(stream.pop("consumer_raft_groups", b"null")) or ()
        consumers = json_text.items(stream.pop("consumer_detail", b"[]"))
        yield SnapshotLine("jsz_streams", keys, json_text.joined(stream))
        if not consumers:
            continue
        raft_groups_by_name = {item.get("name"): item.get("raft_group") for item in groups}
        replicas, retention = json_text.replicas_and_retention(stream.get("config", b"{}"))
        stream_settings = {"stream_replicas": replicas, "stream_retention": retention}
        for consumer in consumers:
            group = raft_groups_by_name.get(json_text.read_name(consumer))
            yield SnapshotLine("jsz_consumers", {"account": account, "raft_group": group, **stream_settings}, consumer)


class SnapshotWriter:
    """Writes one snapshot: rows are written to a local directory that no reader opens, and everything is stored in the
    lake at the end, the manifest last. `lake`: a directory or a LakeStore; `form`: JSON lines, or typed columns in Parquet.

    Raises NatsFailure with the code LAKE if writing fails, and MissingLibrary if a library for Parquet is not installed."""

    def __init__(
        self, lake: Path | LakeStore, fleet: str, started: datetime, name: str | None = None, form: str = JSON
    ) -> None:
        self._form = form
        self.started = started.astimezone(timezone.utc)
        self.name = name or f"{self.started:%Y%m%dT%H%M%S.%fZ}-{secrets.token_hex(3)}"
        self.fleet = fleet
        self._lake = lake if isinstance(lake, LakeStore) else DirectoryLake(lake)
        self._place = f"date={self.started:%Y-%m-%d}/hour={self.started:%H}"
        self._tables: dict[str, SnapshotTable] = {}
        self._quoted: list[dict[str, Any]] = []
        self._domains: set[str] = set()
        self._file_size = FILE_SIZE

    def __enter__(self) -> SnapshotWriter:
        with self._disk():
            self._incoming = self._lake.staging(self.name)
        return self

    def __exit__(self, *exc_info: object) -> None:
        shutil.rmtree(self._incoming, ignore_errors=True)

    @property
    def failures(self) -> int:
        """Return the number of missing replies."""
        return sum(table.failures for table in self._tables.values())

    def add(self, origin: Origin, row: SnapshotLine) -> None:
        """Write one row."""
        name, keys, data = row
        self._domains.add(origin.domain)
        try:
            table = self._tables.get(name) or self._new_table(name)
            table.add(origin, keys, data if name in _HARMLESS else without_secrets(data))
        except OSError as error:
            raise self._refused(error) from error

    def fail(self, table: str, origin: Origin, failure: NatsFailure) -> None:
        """Record that a server did not respond, and the reason."""
        error = {"code": failure.code, "description": failure.description, "subject": failure.subject}
        self._domains.add(origin.domain)
        with self._disk():
            (self._tables.get(table) or self._new_table(table)).fail(origin, error)
        if len(self._quoted) < _QUOTED_FAILURES:
            self._quoted.append({"endpoint": table, "server": origin.server, **error})

    def sequence(self) -> int:
        """Return a number higher than that of each earlier snapshot of this lake: the microseconds since
        1970, or the last number plus one if the clock has been set back. The numbers show the order of the snapshots."""
        with self._disk():
            return self._lake.next_sequence(int(self.started.timestamp() * 1e6))

    def publish(self, **manifest: Any) -> tuple[str, dict[str, Any]]:
        """Store the files and then the manifest; return the path or the URL of the manifest, and its content."""
        with self._disk():
            for table in self._tables.values():
                table.close()
            tables = {name: self._publish(table) for name, table in sorted(self._tables.items())}
            content = {
                "format": FORMATS[self._form],
                "snapshot": self.name,
                "fleet": self.fleet,
                "started": timestamp(self.started),
                "ended": timestamp(datetime.now(timezone.utc)),
                **manifest,
                # This key also shows that the lines contain the domain; the lines of older collectors do not.
                "domains": sorted(self._domains),
                "failures": self.failures,
                "quoted_failures": self._quoted,
                "tables": tables,
            }
            path = f"manifest/{self._place}/{self.name}.json"
            incoming = self._incoming / "manifest.json"
            write_durably(incoming, json.dumps(content, separators=(",", ":")).encode())
            self._lake.store(incoming, path)
        return self._lake.place(path), content

    def _new_table(self, name: str) -> SnapshotTable:
        where = (self._incoming, name, f"{name}/{self._place}/{self.name}", self._file_size)
        envelope = {"snapshot": self.name, "fleet": self.fleet}
        table: SnapshotTable = (
            TypedTable(envelope, self.started, TABLES[name], *where)
            if self._form == PARQUET
            else JsonLines(envelope, *where)
        )
        self._tables[name] = table
        return table

    def _publish(self, table: SnapshotTable) -> dict[str, Any]:
        for number, file in enumerate(table.files):
            self._lake.store(table.draft(number), file.path)
        files = [{"path": file.path, "rows": file.rows, "bytes": file.size} for file in table.files]
        unknown = {} if table.unknown is None else {"unknown": table.unknown}
        return {"rows": table.rows, "failures": table.failures, **unknown, "files": files}

    @contextmanager
    def _disk(self) -> Iterator[None]:
        """Convert a disk error into a failure for operators."""
        try:
            yield
        except OSError as error:
            raise self._refused(error) from error

    def _refused(self, error: OSError) -> NatsFailure:
        what = f"cannot write the snapshot below {self._lake.local}: {error.strerror or error}"
        return NatsFailure(LAKE, f"{what}. No part of it was published.")


def meta_members(jsz: Mapping[str, Any], name: str) -> set[str]:
    """Return the members of a meta group according to the JSZ of its leader.

    A member is given by its name, or by its ID if the leader has never had contact with it. The result is empty if the
    JSZ is from another server, whose view may be outdated.
    """
    meta = jsz.get("meta_cluster")
    if not isinstance(meta, dict) or meta.get("leader") != name:
        return set()
    replicas = meta.get("replicas")
    peers = [peer for peer in replicas if isinstance(peer, dict)] if isinstance(replicas, list) else []
    names = ((str(peer.get("name") or ""), str(peer.get("peer") or "")) for peer in peers)
    return {name, *(known if known and " " not in known else peer for known, peer in names)}


#: Seconds after which the other servers have forgotten a server that ended without notice (server.go: orphMax and
#: chkOrph).
FORGOTTEN_AFTER = 150 + 90


def servers_summary(
    servers: list[Server], missing: tuple[str, ...], failures: int, members: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the manifest's summary of the servers: how many responded, which are missing, their versions and clocks,
    and whether any data is missing. Clock offsets and round trips are in seconds; an offset is how far a server's clock
    is ahead of the collector's. After a restart, the killed process of a server may still be listed, so the number of
    servers is not conclusive if some have just started. Therefore the names of the `members` that the meta leaders
    report are compared, too."""
    offsets = [server.clock_offset for server in servers] or [0.0]
    young = sum(server.uptime < FORGOTTEN_AFTER for server in servers)
    named = {server.name for server in servers}
    known = max(
        max((server.known_servers for server in servers), default=0) - young, len(servers) + len({*members} - named)
    )
    return {
        "servers": len(servers),
        "servers_known": known,
        "missing": list(missing),
        "complete": bool(servers) and not missing and not failures and known == len(servers),
        "versions": dict(sorted(Counter(server.version for server in servers).items())),
        "clock_offset": {"min": min(offsets), "median": round(median(offsets), 6), "max": max(offsets)},
        "slowest_rtt": max((server.rtt for server in servers), default=0.0),
    }
