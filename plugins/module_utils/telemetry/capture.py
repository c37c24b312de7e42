# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Takes snapshots from one pass over the servers, or from an archive of `nats audit gather`."""

from __future__ import annotations

import hashlib
import json
import socket
import time
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ..accounts.expiry import Logins
from ..assets.drift import read_drift
from ..backup.catalogue import FILE as CATALOGUE
from ..backup.catalogue import Catalogue, CatalogueError, read_catalogue
from ..backup.protection import protections
from ..backup.store import BackupStore
from ..nats.client import Client, NatsFailure
from ..nats.model import UNREADABLE, Server, domains
from ..nats.replies import parse_server
from ..nats.system_api import Answer, SystemApi, new_accounts
from ..times import parse_time
from ..versions import reported_version
from . import json_text
from .lake_store import LakeStore
from .server_log import log_lines
from .snapshot import (
    JSON,
    JWTS,
    LAKE,
    Origin,
    SnapshotLine,
    SnapshotWriter,
    endpoint_rows,
    expiry_rows,
    message_origin,
    meta_members,
    servers_summary,
    timestamp,
)

#: The requests to each server, in order: replies that are compared between servers come first, so they are from about
#: the same time. Each request has its options and the first version that supports it.
ENDPOINTS: dict[str, tuple[dict[str, Any], tuple[int, int, int]]] = {
    "jsz": ({"accounts": True, "streams": True, "consumer": True, "config": True, "raft": True}, (0, 0, 0)),
    "raftz": ({}, (2, 10, 26)),
    "varz": ({}, (0, 0, 0)),
    "healthz": ({"details": True}, (2, 9, 0)),
    "ipqueuesz": ({}, (2, 10, 26)),
    "routez": ({}, (0, 0, 0)),
    "gatewayz": ({}, (0, 0, 0)),
    "leafz": ({}, (0, 0, 0)),
    "accstatz": ({}, (2, 9, 0)),
    "accountz": ({}, (0, 0, 0)),
    "connz": ({"auth": True}, (0, 0, 0)),
}

#: The tables that are read from the catalogue of backups, from the comparison of assets with their documents, and from
#: data about hosts that servers do not report.
BACKUPS = "backups"
DRIFT = "drift"
HOSTS = "hosts"

#: Number of servers that are queried at the same time. At most one page of each is in memory.
_AT_ONCE = 16

#: The system account's own Raft groups, including the meta group, are reported without the account's name.
_SYSTEM = ""

#: The artifacts of an audit archive (jsm.go audit/archive/tag.go) that contain the reply of an endpoint.
_ARTIFACTS = {
    "variables": "varz",
    "health": "healthz",
    "jetstream_info": "jsz",
    "connections": "connz",
    "routes": "routez",
    "gateways": "gatewayz",
    "leafs": "leafz",
    "account_raftz": "raftz",
}
_MANIFEST = "capture/misc/manifest.json"
_METADATA = "capture/misc/audit_gather_metadata.json"

#: Maximum size in bytes of an artifact to read, because an archive is not trusted.
_LARGEST_ARTIFACT = 512 << 20


@dataclass(frozen=True)
class CaptureOptions:
    """The requested content of a snapshot, and its destination. `deadline`: seconds after which no further request is
    sent. `logs`: a folder with one file of log lines for each server, named after the server. `backups`: the directory
    of backups with their catalogue. `form`: one of snapshot.FORMATS. `hosts`: host data that no server reports
    (`unreported` of nats_server_host_info), each with its `server`. `drift`: the file of assets_drift."""

    lake: Path | LakeStore
    fleet: str
    endpoints: Collection[str]
    expected: Collection[str] = ()
    deadline: float = 60.0
    logs: Path | None = None
    backups: BackupStore | None = None
    form: str = JSON
    hosts: Sequence[Mapping[str, Any]] = ()
    drift: Path | None = None


def collect(client: Client, wanted: CaptureOptions) -> tuple[str, dict[str, Any]]:
    """Take a snapshot of all servers and return the path or the URL of its manifest, and its content.

    A missing reply is recorded as a line with the failure, to distinguish unknown values from absent ones. Raises
    NatsFailure if no server responds, or with code LAKE if the snapshot cannot be written."""
    return _Pass(client, wanted).run()


class _Pass:
    def __init__(self, client: Client, wanted: CaptureOptions) -> None:
        self._api = SystemApi(client, deadline=time.monotonic() + wanted.deadline, decode=json_text.document)
        self._client = client
        self._wanted = wanted
        self._seconds: dict[str, float] = {}
        self._accounts: dict[str, set[str]] = {}
        self._streams: set[tuple[str, str]] = set()
        self._domains: dict[str, str] = {}
        self._members: set[str] = set()
        self._backed_up = ""
        self._logins = Logins()

    def run(self) -> tuple[str, dict[str, Any]]:
        started = datetime.now(timezone.utc)
        discovery = self._api.discover(self._wanted.expected)
        servers = list(discovery.servers)
        self._domains = domains(servers)
        # Backups are for the JetStream that this connection reaches.
        self._backed_up = self._client.options.jetstream_domain or self._domains.get(self._client.identity[0], "")
        with SnapshotWriter(self._wanted.lake, self._wanted.fleet, started, form=self._wanted.form) as writer:
            self._writer = writer
            for server in servers:
                writer.add(self._origin(server), SnapshotLine("servers", {}, _described(server)))
            for name in discovery.missing:
                failure = NatsFailure("server_missing", f"expected server {name} did not answer", server=name)
                writer.fail("servers", Origin("", name, received=timestamp(datetime.now(timezone.utc))), failure)
            for endpoint, (_options, since) in ENDPOINTS.items():
                if endpoint in self._wanted.endpoints:
                    before = time.monotonic()
                    self._read(endpoint, [server for server in servers if reported_version(server.version) >= since])
                    self._seconds[endpoint] = round(time.monotonic() - before, 3)
            self._write_expiries()
            if self._wanted.logs is not None:
                self._read_logs(servers, self._wanted.logs)
            for host in self._wanted.hosts:
                found = {key: value for key, value in host.items() if value is not None}
                writer.add(self._named(servers, found.pop("server")), SnapshotLine(HOSTS, {}, found))
            if self._wanted.backups is not None:
                self._read_backups(self._wanted.backups)
            if self._wanted.drift is not None:
                self._read_drift(self._wanted.drift)
            summary = servers_summary(servers, discovery.missing, writer.failures, self._members)
            return writer.publish(source="nats_snapshot", sequence=writer.sequence(), **summary, seconds=self._seconds)

    def _origin(self, server: Server, arrived: datetime | None = None) -> Origin:
        return message_origin(server, self._domains[server.id], arrived)

    def _named(self, servers: Sequence[Server], name: str) -> Origin:
        """Return the origin of a row that was read on a server's host; the server itself may not have responded."""
        known = next((server for server in servers if server.name == name), None)
        now = datetime.now(timezone.utc)
        return self._origin(known, now) if known else Origin("", name, received=timestamp(now))

    def _read(self, endpoint: str, servers: Sequence[Server]) -> None:
        """Read one endpoint of all servers, several servers at the same time."""
        if endpoint == "accstatz":
            self._read_account_statistics(servers)
            return
        if endpoint == "accountz":
            self._read_account_limits(servers)
            return
        for start in range(0, len(servers), _AT_ONCE):
            some = servers[start : start + _AT_ONCE]
            if endpoint == "raftz":
                for account in sorted(set().union({_SYSTEM}, *(self._accounts.get(server.id, ()) for server in some))):
                    holding = [server for server in some if account in (_SYSTEM, *self._accounts.get(server.id, ()))]
                    self._read_some(endpoint, holding, {"account": account} if account else {})
            else:
                self._read_some(endpoint, some, ENDPOINTS[endpoint][0])

    def _read_some(self, endpoint: str, servers: Sequence[Server], options: Mapping[str, Any]) -> None:
        """Read one endpoint of some servers, page by page."""
        new = {server.id for server in servers}
        try:
            for server, page in self._api.pages(servers, endpoint.upper(), options):
                self._take(endpoint, server, page, server.id in new)
                new.discard(server.id)
        except NatsFailure as failure:
            self._nobody(endpoint, servers, failure)

    def _nobody(self, endpoint: str, servers: Sequence[Server], failure: NatsFailure) -> None:
        """Record that none of these servers could be queried, or that the list of servers may be incomplete."""
        if failure.code == LAKE:
            raise failure
        for server in servers:
            self._writer.fail(endpoint, self._origin(server), failure)

    def _read_account_statistics(self, servers: Sequence[Server]) -> None:
        try:
            self._api.gather_account_statistics(servers, lambda server, answer: self._take("accstatz", server, answer))
        except NatsFailure as failure:
            self._nobody("accstatz", servers, failure)

    def _read_account_limits(self, servers: Sequence[Server]) -> None:
        """Read each account of a domain once: its limits are the same on all servers, but a server lists an account
        only after using it."""
        read: set[tuple[str, str]] = set()
        for server in servers:
            listing = self._api.ask([server], "ACCOUNTZ")[server.id]
            if isinstance(listing, NatsFailure):
                self._take("accountz", server, listing)
                continue
            for account in listing.get("accounts") or ():
                named = (self._domains[server.id], account)
                if named not in read:
                    answer = self._api.ask([server], "ACCOUNTZ", {"account": account})[server.id]
                    self._take("accountz", server, answer)
                    read.add(named)

    def _read_logs(self, servers: Sequence[Server], folder: Path) -> None:
        """Write the lines of the servers' logs that were copied to this machine, one file for each server."""
        for path in sorted(folder.iterdir()):
            origin = self._named(servers, path.stem)
            for line in log_lines(path):
                self._writer.add(origin, SnapshotLine("server_log", {}, line))

    def _read_backups(self, store: BackupStore) -> None:
        """Write, for each stream, when it was last saved and last restored successfully in a drill; if JSZ is not
        available, for the streams that the last runs found."""
        # These rows have no server name, even if the host has the same name as a server.
        now = timestamp(datetime.now(timezone.utc))
        here = Origin("", f"backups on {socket.gethostname()}", received=now, domain=self._backed_up)
        try:
            catalogue = read_catalogue(store.read(CATALOGUE))
            nothing = ""
        except FileNotFoundError:
            # A missing catalogue is treated as empty, which nats_check also reports as critical.
            catalogue, nothing = Catalogue(), f"there is no {store.place(CATALOGUE)}"
        except (OSError, UnicodeDecodeError, CatalogueError) as error:
            reason = f"{store.place(CATALOGUE)} cannot be read: {error}"
            self._writer.fail(BACKUPS, here, NatsFailure("damaged", reason))
            return
        for one in protections(catalogue, self._streams or None):
            # As in replies from servers, unknown values are omitted from a row.
            found = {key: value for key, value in one.as_dict().items() if value is not None}
            keys = {key: found.pop(key) for key in ("account", "stream")}
            self._writer.add(here, SnapshotLine(BACKUPS, keys, {**found, "problem": nothing or one.problem}))

    def _read_drift(self, path: Path) -> None:
        """Write the last comparison of each document with its assets."""
        now = timestamp(datetime.now(timezone.utc))
        here = Origin("", f"documents on {socket.gethostname()}", received=now, domain=self._backed_up)
        try:
            drift = read_drift(path.read_text(encoding="utf-8", errors="replace"))
        except (OSError, ValueError) as error:
            self._writer.fail(DRIFT, here, NatsFailure("damaged", f"{path} cannot be read: {error}"))
            return
        for one in drift.documents:
            found = {"checked": timestamp(drift.checked), "assets": one.assets, "drifting": one.drifting}
            keys = {"account": one.account, "document": one.document}
            self._writer.add(here, SnapshotLine(DRIFT, keys, {**found, "reason": one.reason}))

    def _note_jwts(self, row: SnapshotLine) -> None:
        """Add the JWTs of a reply, which its row will not contain, to those whose expiry is written."""
        if row.table == "varz":
            for token in row.data.get("trusted_operators_jwt") or ():
                self._logins.add_operator(str(token))
        elif row.table == "accountz" and row.data.get("jwt"):
            self._logins.add_account(str(row.keys["account"]), str(row.data["jwt"]))
        elif row.table == "connz":
            self._logins.add_connection(row.data)

    def _write_expiries(self) -> None:
        """Write the expiry of the JWTs in use."""
        now = datetime.now(timezone.utc)
        # The rows apply to all servers, so they have neither a server nor a domain.
        here = Origin("", "JWTs", received=timestamp(now))
        for line in self._logins.unknown:
            self._writer.fail(JWTS, here, NatsFailure("bad_reply", line))
        for row in expiry_rows(self._logins, now.timestamp()):
            self._writer.add(here, row)

    def _take(self, endpoint: str, server: Server, page: Answer, first: bool = True) -> None:
        if isinstance(page, NatsFailure):
            self._writer.fail(endpoint, self._origin(server), page)
            return
        origin = self._origin(server, self._api.arrived.get(server.id))
        if endpoint == "jsz" and first:
            self._members |= meta_members(page, server.name)
        for row in endpoint_rows(endpoint, page, first):
            if row.table == "jsz_accounts":
                self._accounts.setdefault(server.id, set()).add(row.keys["account"])
            elif row.table == "jsz_streams" and self._wanted.backups is not None and origin.domain == self._backed_up:
                name = json_text.read_name(row.data) if json_text.is_text(row.data) else row.data["name"]
                self._streams.add((row.keys["account"], name or ""))
            self._note_jwts(row)
            self._writer.add(origin, row)


def _described(server: Server) -> dict[str, Any]:
    """Return the known facts about a server that responded."""
    described = server.as_dict()
    del described["js"], described["health"]
    return {**described, "known_servers": server.known_servers}


# --- archives of `nats audit gather` ------------------------------------------------------------------------------------


def import_archive(archive: Path, lake: Path | LakeStore, fleet: str, form: str = JSON) -> tuple[str, dict[str, Any]]:
    """Write an archive of `nats audit gather` as a snapshot and return the path or the URL of its manifest, and its content.

    The name of the snapshot depends on its fleet and the archive's entire content: importing the archive again replaces
    the snapshot, while different content of the same moment, or a different fleet, creates another one. An archive does
    not show how clocks differ. Raises NatsFailure invalid_option if the file is not such an archive, and LAKE if the
    snapshot cannot be written.
    """
    try:
        zipped = zipfile.ZipFile(archive)
        listing = json.loads(zipped.read(_MANIFEST))
        tags = {path: {tag["Name"]: tag["Value"] for tag in found} for path, found in listing.items()}
        taken = parse_time(json.loads(zipped.read(_METADATA))["capture_timestamp"])
    except (OSError, zipfile.BadZipFile, AttributeError, KeyError, TypeError, ValueError) as error:
        reason = f"archive: {archive} is not a readable archive of `nats audit gather`: {error}"
        raise NatsFailure("invalid_option", reason) from error
    content = json.dumps([fleet, sorted((member.filename, member.CRC) for member in zipped.infolist())])
    name = f"{taken:%Y%m%dT%H%M%S.%fZ}-{hashlib.sha256(content.encode()).hexdigest()[:6]}"
    with zipped, SnapshotWriter(lake, fleet, taken, name, form) as writer:
        servers, members = _write_artifacts(zipped, tags, writer)
        unknown = {"clock_offset": None, "slowest_rtt": None}
        summary = servers_summary(servers, (), writer.failures, members)
        return writer.publish(source="nats audit gather", **{**summary, **unknown})


def _write_artifacts(
    zipped: zipfile.ZipFile, tags: Mapping[str, Mapping[str, str]], writer: SnapshotWriter
) -> tuple[list[Server], set[str]]:
    """Write the archive's replies; return the servers that sent them, and the members that meta leaders reported."""
    servers: dict[str, Server] = {}
    members: set[str] = set()
    accounts: dict[str, set[str]] = {}
    known = _domains(zipped, tags)
    for path, endpoint, name, cluster in _artifacts(tags):
        try:
            document = _artifact(zipped, path)
            server = parse_server(document["server"], {}, 0.0)
            reported = timestamp(parse_time(str(document["server"]["time"])))
            data = document.get("data") or {}
            first = endpoint != "jsz" or server.id not in accounts
            if endpoint == "jsz":
                members |= meta_members(data, server.name)
                new_accounts(data, accounts.setdefault(server.id, set()))
            rows = list(endpoint_rows(endpoint, data, first))
        except (*UNREADABLE, zipfile.BadZipFile) as error:
            failure = NatsFailure("bad_reply", f"{path} cannot be read: {error}")
            writer.fail(endpoint, Origin("", name, cluster), failure)
            continue
        domain = known.get(server.id, server.domain)
        origin = Origin(server.id, server.name, server.cluster, server.version, reported, domain)
        if server.id not in servers:
            servers[server.id] = server
            writer.add(origin, SnapshotLine("servers", {}, {**_described(server), "rtt": None, "clock_offset": None}))
        for row in rows:
            writer.add(origin, row)
    return list(servers.values()), members


def _domains(zipped: zipfile.ZipFile, tags: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the domain of each server in the archive, by server ID; VARZ names the clusters that the gateways reach."""
    servers = []
    for path, endpoint, _name, _cluster in _artifacts(tags):
        if endpoint == "varz":
            try:
                document = _artifact(zipped, path)
                reached = (document.get("data") or {}).get("gateway") or {}
                servers.append(parse_server(document["server"], {"gateways": reached.get("gateways")}, 0.0))
            except (*UNREADABLE, zipfile.BadZipFile):
                continue  # a broken artifact is reported when it is written
    return domains(servers)


def _artifacts(tags: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str, str, str]]:
    """Yield the path, the endpoint, the server's name and the cluster of each artifact that is a reply, in order."""
    for path, named in sorted(tags.items()):
        endpoint = _ARTIFACTS.get(str(named.get("artifact_type", "")))
        if endpoint is not None:
            yield path, endpoint, str(named.get("server", "")), str(named.get("cluster", ""))


def _artifact(zipped: zipfile.ZipFile, path: str) -> dict[str, Any]:
    """Return a reply in its envelope. Raises KeyError, ValueError or BadZipFile if it is broken."""
    if zipped.getinfo(path).file_size > _LARGEST_ARTIFACT:
        raise ValueError("it is larger than 512 MiB")
    document = json.loads(zipped.read(path))
    if not isinstance(document, dict) or not isinstance(document.get("server"), dict):
        raise ValueError("it does not name its server")
    return document
