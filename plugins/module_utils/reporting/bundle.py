# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The content of a bundle: the replies of all responding servers, the hosts' parts, the roll journal and the findings."""

from __future__ import annotations

import base64
import getpass
import json
import tarfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any, Callable

from ..host.evidence import INDEX as EVIDENCE
from ..nats.account_names import SYSTEM_ACCOUNT, account_id
from ..nats.client import Client, ConnectionOptions, NatsFailure
from ..nats.model import Server
from ..nats.system_api import SystemApi
from ..redaction import Redactor, without_secrets
from ..telemetry.capture import ENDPOINTS
from ..telemetry.snapshot import timestamp, with_limits
from ..units import human_bytes
from ..versions import reported_version
from .bundle_archive import UNCLUSTERED, BundleWriter
from .cluster_info import CLUSTER_INFO_SPEC, read_cluster_info

#: The requests to each server, most important first: endpoint, type of the artifact (jsm.go audit/archive/tag.go),
#: options, and the first version that supports the endpoint. Subscriptions are counted but not listed, because subjects
#: are data.
_SERVER_ARTIFACTS: tuple[tuple[str, str, dict[str, Any], tuple[int, int, int]], ...] = (
    ("VARZ", "variables", {}, (0, 0, 0)),
    ("HEALTHZ", "health", *ENDPOINTS["healthz"]),
    ("JSZ", "jetstream_info", *ENDPOINTS["jsz"]),
    ("STATSZ", "statistics", {}, (0, 0, 0)),
    ("ROUTEZ", "routes", {}, (0, 0, 0)),
    ("GATEWAYZ", "gateways", {}, (0, 0, 0)),
    ("LEAFZ", "leafs", {}, (0, 0, 0)),
    ("ACCOUNTZ", "accounts", {}, (0, 0, 0)),
    ("CONNZ", "connections", {}, (0, 0, 0)),
    ("SUBSZ", "subs", {}, (0, 0, 0)),
    ("EXPVARZ", "exp_variables", {}, (2, 10, 26)),
)

#: The profiles: name → the requested debug levels, 0 for the binary format. Profiles of other levels are texts.
PROFILES: dict[str, tuple[int, ...]] = {
    "goroutine": (1, 2),
    "heap": (0,),
    "allocs": (0,),
    "mutex": (0,),
    "block": (0,),
    "threadcreate": (0,),
    "cpu": (0,),
}
_CPU_SECONDS = 15

#: Maximum size in bytes of a host file to read, because the host's archive is not trusted.
_LARGEST = 256 << 20

#: Number of bytes read from the end of the roll journal.
_JOURNAL = 4 << 20


@dataclass(frozen=True)
class HostPart:
    """A host's part. `failure`: why the host did not respond."""

    server: str
    failure: str = ""


@dataclass(frozen=True)
class BundleContents:
    """The requested content of a bundle. `work`: a folder with SERVER.tar.gz for each host and optionally
    journal.jsonl. `deadline`: seconds after which no further server is queried."""

    expected: Sequence[str] = ()
    profiles: Sequence[str] = ()
    deadline: float = 120.0
    hosts: Sequence[HostPart] = ()
    work: Path | None = None
    journal: Path | None = None
    versions: Mapping[str, str] | None = None


def bundle(
    options: ConnectionOptions, path: Path, contents: BundleContents, redactor: Redactor, max_size: int
) -> dict[str, Any]:
    """Write a bundle and return its index, with `servers`: the servers that responded. If no server responds, the
    bundle contains only the hosts' parts."""
    taken = datetime.now(timezone.utc)
    with BundleWriter(path, redactor, max_size, taken) as writer:
        servers: list[Server] = []
        try:
            with Client(options) as client:
                servers = _Servers(client, writer, contents, taken).write()
        except NatsFailure as failure:
            if failure.code in ("bundle", "invalid_option"):
                raise
            writer.miss("servers", f"the cluster cannot be queried: {failure.description}")
        if redactor.too_short:
            reason = f"{redactor.too_short} secrets are too short to search for; they are redacted only by their keys"
            writer.miss("redaction", reason)
        _add_journal(writer, contents)
        for host in contents.hosts:
            _add_host(writer, contents.work, host)
        first = servers[0] if servers else None
        metadata = {
            "capture_timestamp": timestamp(taken),
            "connected_server_name": first.name if first else "",
            "connected_server_version": first.version if first else "",
            "connect_url": ",".join(options.servers),
            "user_name": _user(),
            "version": "natsops.jetstream",
        }
        about = {
            "servers": [server.name for server in servers],
            "expected": list(contents.expected),
            "hosts": [host.server for host in contents.hosts],
            "versions": dict(contents.versions or {}),
            "server_versions": {server.name: server.version for server in servers},
        }
        return writer.publish(metadata, about)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


class _Servers:
    """Queries all servers at the same time, one request after another, and writes the replies as they arrive."""

    def __init__(self, client: Client, writer: BundleWriter, contents: BundleContents, taken: datetime) -> None:
        self._client = client
        self._writer = writer
        self._contents = contents
        self._until = time.monotonic() + contents.deadline
        self._api = SystemApi(client, deadline=self._until)
        #: server ID → its accounts
        self._accounts: dict[str, set[str]] = {}

    def write(self) -> list[Server]:
        """Write everything and return the servers that responded."""
        discovery = self._api.discover(self._contents.expected)
        servers = list(discovery.servers)
        for name in discovery.missing:
            self._writer.miss("server", "it did not answer", name)
        self._write_findings()
        for endpoint, artifact, options, since in _SERVER_ARTIFACTS:
            able = self._able(servers, endpoint, since)
            self._each(able, endpoint, options, partial(self._write_page, artifact))
        self._write_accounts(servers)
        for name in self._contents.profiles:
            for debug in PROFILES[name]:
                self._write_profiles(servers, name, debug)
        return servers

    def _able(self, servers: Sequence[Server], endpoint: str, since: tuple[int, int, int]) -> list[Server]:
        """Return the servers that support an endpoint; all others are recorded without sending a request."""
        able = [server for server in servers if reported_version(server.version) >= since]
        for server in servers:
            if server not in able:
                self._writer.miss(endpoint, f"nats-server {server.version} does not have this endpoint", server.name)
        return able

    def _each(
        self,
        servers: Sequence[Server],
        endpoint: str,
        options: Mapping[str, Any],
        write: Callable[[Server, dict[str, Any]], None],
        item: str = "",
    ) -> None:
        """Write each page of each server's reply, or the reason why the request failed."""
        try:
            for server, page in self._api.pages(servers, endpoint, options):
                if isinstance(page, NatsFailure):
                    self._writer.miss(item or endpoint, page.description, server.name)
                else:
                    write(server, page)
        except NatsFailure as failure:
            if failure.code == "bundle":
                raise
            for server in servers:
                self._writer.miss(item or endpoint, failure.description, server.name)

    def _write_page(self, artifact: str, server: Server, page: dict[str, Any]) -> None:
        if artifact == "accounts":
            self._accounts.setdefault(server.id, set()).update(page.get("accounts") or ())
        tags = {"cluster": server.cluster or UNCLUSTERED, "server": server.name, "artifact_type": artifact}
        self._writer.page(tags, _enveloped(server, _cleaned(artifact, page)))
        if artifact == "jetstream_info":
            for account in page.get("account_details") or ():
                for stream in account.get("stream_detail") or ():
                    named = {**tags, "account": account_id(account), "stream": stream["name"]}
                    # These artifacts contain only the stream, without the envelope (gather.go captureAccountStreams).
                    self._writer.page({**named, "artifact_type": "stream_info"}, without_secrets(stream))

    def _write_accounts(self, servers: Sequence[Server]) -> None:
        """Write each server's data of each of its accounts."""
        raft, queues = (self._able(servers, name, ENDPOINTS[name.lower()][1]) for name in ("RAFTZ", "IPQUEUESZ"))
        for account in sorted(set().union(*self._accounts.values())):
            knowing = [server for server in servers if account in self._accounts.get(server.id, ())]
            asked = (
                ("ACCOUNTZ", "account_info", {"account": account}, knowing),
                ("RAFTZ", "account_raftz", {"account": account}, [one for one in knowing if one in raft]),
            )
            for endpoint, artifact, options, able in asked:
                self._account_pages(account, able, endpoint, artifact, options)
        for server in queues:
            system = self._system_account(server)
            self._account_pages(system, [server], "IPQUEUESZ", "account_ipqueues", {"all": True})

    def _account_pages(
        self, account: str, servers: Sequence[Server], endpoint: str, artifact: str, options: Mapping[str, Any]
    ) -> None:
        def write(server: Server, page: dict[str, Any]) -> None:
            tags = {"account": account, "cluster": server.cluster or UNCLUSTERED, "server": server.name}
            if page:
                self._writer.page({**tags, "artifact_type": artifact}, _enveloped(server, _cleaned(artifact, page)))

        self._each(servers, endpoint, options, write, f"{endpoint} of {account}")

    def _system_account(self, server: Server) -> str:
        """Return the account under which an archive lists the queues of a server, which belong to no account."""
        return SYSTEM_ACCOUNT if SYSTEM_ACCOUNT in self._accounts.get(server.id, ()) else self._client_account()

    def _client_account(self) -> str:
        return self._api.own_account() or SYSTEM_ACCOUNT

    def _write_profiles(self, servers: Sequence[Server], name: str, debug: int) -> None:
        """Write a profile of each server. A CPU profile takes most of the time allowed for a reply."""
        label = f"{name}_{debug}" if debug else name
        options: dict[str, Any] = {"name": name, "debug": debug}
        if name == "cpu":
            left = min(self._until - time.monotonic(), self._client.options.timeout)
            options["duration"] = int(max(1.0, min(_CPU_SECONDS, left - 2)) * 1e9)

        def write(server: Server, page: dict[str, Any]) -> None:
            refused, encoded = page.get("error"), page.get("profile")
            if refused or not encoded:
                self._writer.miss(f"profile {label}", str(refused or "the server did not send it"), server.name)
                return
            tags = {"cluster": server.cluster or UNCLUSTERED, "server": server.name, "profile_name": label}
            self._writer.profile(tags, base64.b64decode(encoded))

        self._each(servers, "PROFILEZ", options, write, f"profile {label}")

    def _write_findings(self) -> None:
        """Write the cluster's problems according to the rules of the health gate."""
        params = {name: spec.get("default") for name, spec in CLUSTER_INFO_SPEC.items()}
        params["expected_servers"] = list(self._contents.expected) or None
        try:
            found = read_cluster_info(self._client, params)
        except NatsFailure as failure:
            self._writer.miss("findings", failure.description)
            return
        self._writer.special(
            "findings", {name: found[name] for name in ("problems", "raft_silent", "missing") if name in found}
        )


def _enveloped(server: Server, data: Any) -> dict[str, Any]:
    """Return a reply in the envelope in which a server sends it (events.go ServerInfo)."""
    moment = datetime.now(timezone.utc) + timedelta(seconds=server.clock_offset)
    info = {
        "name": server.name,
        "host": server.host,
        "id": server.id,
        "cluster": server.cluster,
        "domain": server.domain,
        "ver": server.version,
        "tags": list(server.tags),
        "jetstream": server.jetstream,
        "time": timestamp(moment),
    }
    return {"server": {key: value for key, value in info.items() if value not in ("", [])}, "data": data}


#: The number of levels of arbitrary names above the keys, for each artifact that has such levels.
_NAMED = {"account_raftz": 2, "account_ipqueues": 1}


def _cleaned(artifact: str, data: dict[str, Any]) -> Any:
    """Return a reply without the values of secret keys and without the command line, which may also contain secrets."""
    if artifact == "exp_variables":
        data = {key: value for key, value in data.items() if key != "cmdline"}
    if artifact == "account_info":
        detail = data.get("account_detail")
        data = {**data, "account_detail": with_limits(dict(detail))} if detail else data
    if artifact == "gateways":
        return _clean_gateways(data)
    return _clean_below(data, _NAMED.get(artifact, 0))


def _clean_below(value: Any, levels: int) -> Any:
    if levels and isinstance(value, dict):
        return {name: _clean_below(item, levels - 1) for name, item in value.items()}
    return without_secrets(value)


def _clean_gateways(data: dict[str, Any]) -> dict[str, Any]:
    """Return the reply of GATEWAYZ, in which the keys of the gateways are names of clusters."""
    named = {key: _clean_below(data[key], 1) for key in ("outbound_gateways", "inbound_gateways") if key in data}
    return {**without_secrets({key: value for key, value in data.items() if key not in named}), **named}


def _add_journal(writer: BundleWriter, contents: BundleContents) -> None:
    """Write the end of the roll journal."""
    if contents.journal is None:
        return
    try:
        with contents.journal.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _JOURNAL))
            text = file.read().decode(errors="replace")
    except OSError as error:
        writer.miss("roll journal", f"{contents.journal}: {error.strerror}")
        return
    writer.text(
        "capture/misc/roll_journal.jsonl", text if size <= _JOURNAL else text.partition("\n")[2], "roll journal"
    )


def _add_host(writer: BundleWriter, work: Path | None, host: HostPart) -> None:
    """Write a host's part; the host's archive is untrusted, so only its text files are used."""
    path = work / f"{host.server}.tar.gz" if work else None
    if host.failure or path is None or not path.exists():
        writer.miss("host", host.failure or "it sent nothing", host.server)
        return
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isfile() else None
                parts = member.name.split("/")
                if file is None or any(part in ("", ".", "..") for part in parts):
                    continue
                if member.size > _LARGEST:
                    writer.note_cut(
                        member.name, f"it was left out because it is larger than {human_bytes(_LARGEST)}", host.server
                    )
                    continue
                text = file.read().decode(errors="replace")
                if member.name == EVIDENCE:
                    _add_evidence(writer, host.server, json.loads(text))
                else:
                    writer.text(f"host/{host.server}/{member.name}", text, member.name, host.server)
    except (OSError, EOFError, ValueError, tarfile.TarError) as error:
        writer.miss("host", f"{path.name} is only partly readable: {error}", host.server)


def _add_evidence(writer: BundleWriter, server: str, reported: Mapping[str, Any]) -> None:
    for one in reported.get("missing") or ():
        writer.miss(str(one.get("item")), str(one.get("reason")), server)
    for one in reported.get("cut") or ():
        writer.note_cut(str(one.get("item")), str(one.get("reason")), server)


def summary(index: Mapping[str, Any], path: Path, size: int) -> list[str]:
    """Return a summary of the bundle for operators: at most 25 lines."""
    expected = sorted({*index["expected"], *index["servers"]})
    lines = [
        f"{path}: {human_bytes(size)}, {len(index['files'])} files",
        f"{len(index['servers'])} of {len(expected)} servers answered; "
        f"{sum(not _is_silent(index, host) for host in index['hosts'])} of {len(index['hosts'])} hosts did",
    ]
    for title, key in (("missing", "missing"), ("in part", "cut")):
        lines += _grouped(title, index[key])
    return lines


def _is_silent(index: Mapping[str, Any], host: str) -> bool:
    return any(one["item"] == "host" and one["server"] == host for one in index["missing"])


#: Maximum lines of the summary for missing parts, and for truncated parts.
_LINES = 10


def _grouped(title: str, rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return a line for each part and reason, with all servers that it concerns; servers and hosts that are missing
    completely come first."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        found.setdefault((row["item"], row["reason"]), []).append(row["server"])
    order = sorted(found.items(), key=lambda item: (item[0][0] not in ("servers", "server", "host"), item[0]))
    lines = []
    for (item, reason), servers in order:
        where = ", ".join(sorted({server for server in servers if server}))
        lines.append(f"{title}: {item}{' of ' + where if where else ''}: {reason}"[:200])
    if len(lines) > _LINES:
        lines = [*lines[: _LINES - 1], f"{title}: {len(lines) - _LINES + 1} more, see capture/misc/bundle.json"]
    return lines
