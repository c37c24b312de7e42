# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds all problems of a desired configuration at once. Pure: no I/O.

Most rules are those of nats-server's validateOptions (server/server.go), which `nats-server -t` does not run, so the
server would refuse to start only after its files had been changed. The other rules follow from the behaviour of
clusters."""

from __future__ import annotations

import difflib
import ipaddress
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import peer_id
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.server_versions import (
    index_writer,
    parse_series,
    unreadable_files,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.problem import ConfigProblem
from ansible_collections.natsops.jetstream.plugins.module_utils.screen import some_names
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.account_admins import has_jetstream
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.listeners import bound, is_loopback
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.passwords import (
    BcryptError,
    check_password,
    is_hash,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.schema import SCHEMA, Key
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.syntax import (
    Note,
    Path,
    examine,
    identity,
    leaves,
    show,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.topology import boolean
from ansible_collections.natsops.jetstream.plugins.module_utils.units import (
    counted,
    duration_seconds,
    human_bytes,
    size_bytes,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.versions import parse_version, supports

SYSTEM_ACCOUNT = "$SYS"
GLOBAL_ACCOUNT = "$G"
DEFAULT_MAX_PAYLOAD = 1024 * 1024
DEFAULT_MAX_PENDING = 64 * 1024 * 1024
LARGE_PAYLOAD = 8 * 1024 * 1024
DEFAULT_LAME_DUCK, DEFAULT_GRACE, MIN_LAME_DUCK = 120.0, 10.0, 30.0
POOL_SIZES_MAY_DIFFER = ("2.11.2",)
MAX_RTT_THRESHOLDS = 4
LISTENERS = ("cluster", "gateway", "leafnodes", "websocket", "mqtt")
COMPRESSION_MODES = (
    {"on", "enabled", "true", "off", "disabled", "false", "not supported", "not_supported", "accept"}
    | {"auto", "fast", "better", "best"}
    | {"s2_auto", "s2_fast", "s2_better", "s2_best"}
)
#: Headers of the WebSocket handshake (validateWebsocketOptions).
RESERVED_HEADERS = {"host", "content-length", "connection", "upgrade", "nats-no-masking"}
CONNECTION_TYPES = {"STANDARD", "WEBSOCKET", "LEAFNODE", "LEAFNODE_WS", "MQTT", "MQTT_WS", "IN_PROCESS"}
VOLATILE_FILESYSTEMS = {"tmpfs", "ramfs", "devtmpfs"}
NETWORK_FILESYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "ceph", "afs", "lustre", "9p", "virtiofs"} | {
    f"fuse.{name}" for name in ("ceph", "glusterfs", "sshfs", "s3fs", "rclone", "juicefs", "gcsfuse")
}
#: Options of a systemd service that concern its start, its stop and its user.
_OF_THE_UNIT = {
    "ExecStart", "ExecStop", "ExecReload", "Type", "User", "Group", "DynamicUser", "RootDirectory", "RootImage", "KillSignal",
    "KillMode", "FinalKillSignal", "SendSIGKILL", "TimeoutSec", "TimeoutStartSec", "TimeoutStopSec",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A normalised configuration and its context; see the filter nats_config_problems for the fields."""

    config: dict[str, Any]
    version: str
    members: list[dict[str, Any]]
    filesystems: list[dict[str, Any]]
    memtotal: int
    running: dict[str, Any]
    store: dict[str, Any]
    loaded_store: dict[str, Any]
    live_members: list[str]
    take_over: bool
    process_runs: bool
    config_file: str
    cluster_size: int | None
    require_mount: bool
    service_backend: str
    drop_ins: list[dict[str, Any]]
    gateway: Any
    supercluster: list[dict[str, Any]]
    hub: list[dict[str, Any]]
    loaded: dict[str, Any]
    own_users: dict[str, Any]
    extra_files: list[str]
    role_files: list[str]
    selinux: dict[str, Any]

    def block(self, name: str) -> dict[str, Any] | None:
        """Return a top-level block, or None if it is absent or not a mapping."""
        return get_block(self.config, name)

    @property
    def jetstream(self) -> dict[str, Any] | None:
        """Return the jetstream block (empty for a bare `jetstream: true`), or None if JetStream is off."""
        return get_jetstream(self.config)

    @property
    def cluster_name(self) -> str | None:
        """Return the name of the cluster."""
        return get_cluster_name(self.config)

    @property
    def accounts(self) -> dict[str, Any]:
        """Return the accounts with their blocks."""
        return {name: block for name, block in (self.block("accounts") or {}).items() if isinstance(block, dict)}

    @property
    def system_account(self) -> str:
        """Return the name of the system account."""
        return str(self.config.get("system_account") or SYSTEM_ACCOUNT)

    @property
    def jetstream_members(self) -> list[dict[str, Any]]:
        """Return the members that run JetStream."""
        return [member for member in self.members if member.get("jetstream")]

    @property
    def meta_members(self) -> list[dict[str, Any]]:
        """Return the servers of the meta group: all servers of all clusters that run JetStream."""
        return [member for member in self.supercluster if member.get("jetstream")] or self.jetstream_members


def get_block(config: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Return a top-level block of a normalised configuration, or None if it is absent or not a mapping."""
    value = config.get(name)
    return value if isinstance(value, dict) else None


def get_jetstream(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the jetstream block (empty for a bare `jetstream: true`), or None if JetStream is off."""
    block = get_block(config, "jetstream")
    if block is not None:
        return None if block.get("enabled") is False or block.get("disabled") is True else block
    value = config.get("jetstream")
    return {} if value is True or str(value).lower() in ("enabled", "enable") else None


def get_cluster_name(config: Mapping[str, Any]) -> str | None:
    """Return the name of the cluster or, if it has none, that of the gateway, as nats-server does."""
    return (get_block(config, "cluster") or {}).get("name") or (get_block(config, "gateway") or {}).get("name")


def config_problems(config: Mapping[str, Any], context: Mapping[str, Any] | None = None) -> list[ConfigProblem]:
    """Return `[{severity, option, message}]`, errors first; severity is error or warning, option a path of the configuration."""
    case, notes = make_case(config, context or {})
    found = [(error if note.is_error else warning)(show(note.path), note.text) for note in notes]
    for rule in RULES:
        found += rule(case)
    return sorted(found, key=lambda problem: problem["severity"] != "error")


def make_case(config: Mapping[str, Any], context: Mapping[str, Any]) -> tuple[Case, list[Note]]:
    """Return the case for the rules, and the notes from converting the values to their types."""
    normal, notes = examine(config)
    size = context.get("cluster_size")
    case = Case(
        config=normal,
        version=_version(context.get("version")),
        members=list(context.get("members") or []),
        filesystems=list(context.get("filesystems") or []),
        memtotal=int(context.get("memtotal") or 0),
        running=dict(context.get("running") or {}),
        store=dict(context.get("store") or {}),
        loaded_store=dict(context.get("loaded_store") or {}),
        live_members=[str(name) for name in context.get("live_members") or []],
        take_over=boolean(context.get("take_over", True)),
        process_runs=boolean(context.get("process_runs", True)),
        config_file=str(context.get("config_file") or "its configuration file"),
        cluster_size=None if size in (None, "") else int(str(size)),
        require_mount=boolean(context.get("require_mount", False)),
        service_backend=str(context.get("service_backend") or "auto"),
        drop_ins=list(context.get("drop_ins") or []),
        gateway=context.get("gateway") or None,
        supercluster=list(context.get("supercluster") or []),
        hub=list(context.get("hub") or []),
        loaded=examine(context.get("loaded") or {})[0],
        own_users=dict(context.get("own_users") or {}),
        extra_files=list(context.get("extra_files") or []),
        selinux=dict(context.get("selinux") or {}),
        role_files=list(context.get("role_files") or []),
    )
    return case, notes


def error(option: str, message: str) -> ConfigProblem:
    """Return a problem that must be solved before a deployment."""
    return {"severity": "error", "option": option, "message": message}


def warning(option: str, message: str) -> ConfigProblem:
    """Return a problem that does not prevent a deployment but deserves attention."""
    return {"severity": "warning", "option": option, "message": message}


def _version(value: Any) -> str:
    """Return the version if it is valid (not `latest` or the like), otherwise None."""
    try:
        parse_version(str(value or ""))
    except ValueError:
        return ""
    return str(value)


# --- Keys -----------------------------------------------------------------------------------------------------------


def unknown_keys(case: Case) -> Iterator[ConfigProblem]:
    """Keys must be in the schema and supported by this version."""
    for path, parent, name in _keys(case.config, SCHEMA, ()):
        key = parent.child(name)
        option = show((*path, name))
        if key is None:
            near = difflib.get_close_matches(name.lower(), parent.names, 1)
            hint = f"; the nearest known key is {near[0]}" if near else ""
            yield warning(option, f"is not a known key here{hint}. nats-server rejects unknown keys")
        elif case.version and not supports(key.since, case.version):
            first = " or ".join(key.since)
            yield error(option, f"needs nats-server {first} or newer, the version is {case.version}")
    if "consumer_replicas" in (case.block("mqtt") or {}):
        yield error("mqtt.consumer_replicas", "is deprecated, and nats-server -t rejects it: remove it")


def _keys(value: Any, key: Key | None, path: Path) -> Iterator[tuple[Path, Key, str]]:
    if key is None or not key.children:
        return
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _keys(item, key, (*path, identity(item, index, key)))
    elif isinstance(value, dict):
        for name, item in value.items():
            yield path, key, name
            yield from _keys(item, key.child(name), (*path, name))


def extra_files(case: Case) -> Iterator[ConfigProblem]:
    """Extra files are stored next to the configuration and must not replace the role's own files."""
    for name in case.extra_files:
        if name in case.role_files:
            yield error("nats_server_extra_files", f"{name} is a file that the role writes: choose another name")
        elif not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
            yield error("nats_server_extra_files", f"{name!r} is not a file name, such as hub.creds")


# --- Names ----------------------------------------------------------------------------------------------------------


def names(case: Case) -> Iterator[ConfigProblem]:
    """Names must be set, must agree with each other, and must not contain spaces."""
    cluster, gateway = case.block("cluster"), case.block("gateway")
    for option, name in (
        ("server_name", case.config.get("server_name")),
        ("cluster.name", (cluster or {}).get("name")),
        ("gateway.name", (gateway or {}).get("name")),
    ):
        if name and re.search(r"\s", name):
            yield error(option, f"{name!r} contains white space, which nats-server rejects")
    if cluster is not None and case.jetstream is not None:
        if not case.config.get("server_name"):
            yield error(
                "server_name", "is required for JetStream in a cluster: it determines the identity of the Raft peer"
            )
        if not case.cluster_name:
            yield error("cluster.name", "is required for JetStream in a cluster")
    if cluster and gateway and cluster.get("name") and gateway.get("name") and cluster["name"] != gateway["name"]:
        yield error(
            "gateway.name", f"{gateway['name']!r} differs from cluster.name {cluster['name']!r}; they must be equal"
        )
    if gateway is not None:
        if not gateway.get("name"):
            yield error("gateway.name", "is required")
        if not gateway.get("port") and not gateway.get("listen"):
            yield error("gateway.port", "is required (7222 by convention)")
        for index, remote in enumerate(gateway.get("gateways") or []):
            if isinstance(remote, dict) and not (remote.get("url") or remote.get("urls")):
                yield error(f"gateway.gateways[{remote.get('name', index)}]", "has no url")


def left_to_its_own_unit(case: Case) -> Iterator[ConfigProblem]:
    """A server that the role does not manage yet is started by its existing unit."""
    if not case.take_over and not case.process_runs:
        yield error(
            "nats_server_take_over",
            f"it is false, but nats-server is not running on this host. Start its own unit "
            f"with {case.config_file}, or set nats_server_take_over to true",
        )


def drop_ins_of_others(case: Case) -> Iterator[ConfigProblem]:
    """The role controls the start and stop of a server, so other drop-ins may only add limits and hardening."""
    for drop_in in case.drop_ins if case.take_over else []:
        decided = decided_by_the_unit(drop_in)
        if decided:
            yield error(
                "nats_server_service_overrides",
                f"{drop_in['path']} sets {', '.join(decided)} over the role's unit: the server might then not stop "
                "through lame duck mode, or not start as intended. Move the needed options to this variable and "
                "remove the file",
            )


def decided_by_the_unit(drop_in: Mapping[str, Any]) -> list[str]:
    """Return the options of a drop-in that concern the start, the stop and the user of the server."""
    return [name for name in drop_in["options"] if name in _OF_THE_UNIT]


def identity_of_running_server(case: Case) -> Iterator[ConfigProblem]:
    """server_name and cluster.name must be those of the running server; if the server is stopped, cluster.name must be
    that of its store."""
    has = case.running.get("server_name")
    wants = case.config.get("server_name")
    if has and wants and has != wants:
        yield error(
            "server_name",
            f"the running server is named {has!r}, but the configuration has {wants!r}. A JetStream server must keep "
            "its name: its Raft peer id derives from it, and a new name adds a peer while the old one still counts "
            "for the quorum",
        )
    belongs_to, server = (case.running.get("cluster") or {}).get("name"), "running server"
    if not case.running and case.store.get("peers") is not None:
        # The streams' assignments in the meta group's log contain the cluster's name, or several names in a
        # supercluster.
        belongs_to, server = (case.loaded.get("cluster") or {}).get("name"), "store"
        clusters = case.store.get("clusters") or []
        if not belongs_to and len(clusters) == 1 and not case.supercluster:
            belongs_to = clusters[0]
    if belongs_to and case.cluster_name and belongs_to != case.cluster_name:
        yield error(
            "cluster.name",
            f"the {server} belongs to {belongs_to!r}, but the configuration has {case.cluster_name!r}. A cluster must "
            "keep its name: placement refers to it, so streams' replicas could not be moved or replaced",
        )


def foreign_store(case: Case) -> Iterator[ConfigProblem]:
    """The streams on the disk must belong to the meta group that the server joins. A meta group deletes all other
    streams at the start or 30 seconds later, as orphans (jetstream_cluster.go checkForOrphans)."""
    streams, peers = int(case.store.get("streams") or 0), case.store.get("peers")
    if case.jetstream is None or case.block("cluster") is None or not (streams or peers is not None):
        return
    name = str(case.config.get("server_name") or "")
    held = f"{counted(streams, 'stream')} in its store, which the cluster would delete 30 seconds after the start"
    remedy = (
        "Back them up (natsops.jetstream.backup, or rescue for a server that is not running), move the directory "
        "jetstream of the "
        "store away, deploy, and restore (natsops.jetstream.restore)"
    )
    if peers is None:
        yield error("jetstream.store_dir", f"the server has run standalone and has {held}. {remedy}")
        return
    own = peer_id(name)
    if not streams:
        held, remedy = "its members, which the cluster would wait for", "Move the directory jetstream of the store away"
    if peers and own not in peers:
        members = {peer_id(str(one.get("server_name"))) for one in (*case.members, *case.supercluster)}
        whose = "another server of this cluster" if members & set(peers) else "another cluster"
        yield error(
            "jetstream.store_dir",
            f"belongs to {whose} ({name} is not a member of its meta group): the server has "
            f"{held}. If it was renamed, restore its old name (nats_server_name). Otherwise: "
            f"{remedy[0].lower()}{remedy[1:]}",
        )
    elif case.live_members and name not in case.live_members and not case.process_runs:
        yield error(
            "jetstream.store_dir",
            f"has the meta group of a cluster that {name} has left, or of another cluster: {name} is not a member of the "
            f"running one ({some_names(case.live_members)}), and has {held}. {remedy}",
        )


def store_of_newer_version(case: Case) -> Iterator[ConfigProblem]:
    """A stopped server must start with a version that supports the files of its store. If the binary was removed or
    replaced, only the files show which version wrote them."""
    series = parse_series(case.version)
    index_format = int(case.store.get("index_format") or 0)
    if case.jetstream is None or case.process_runs or series is None or index_format <= series.index_format:
        return
    writer = index_writer(index_format)
    newer = f"nats-server {writer.name} or later" if writer else "a newer nats-server"
    unknown = "it is unknown whether this version supports their streams and consumers"
    why = unreadable_files(index_format, case.version) or unknown
    yield error(
        "jetstream.store_dir",
        f"has files of {newer}, but {case.version} would start with them: {why}. Start the server with the version that "
        "wrote them (nats_server_version), or move the directory jetstream of the store away",
    )


def left_store(case: Case) -> Iterator[ConfigProblem]:
    """A server must not start without the data in its previous directory: streams with one replica would be empty,
    which no server reports, and its Raft groups would forget their votes."""
    held = case.loaded_store
    streams = int(held.get("streams") or 0)
    if not streams and held.get("peers") is None:
        return
    path = held["path"]
    holds = f"{path} holds {counted(streams, 'stream') if streams else 'its part of the meta group'}"
    if case.jetstream is None:
        leave = "Let the server leave (natsops.jetstream.scale_in)" if case.block("cluster") else "Back its streams up"
        yield error(
            "jetstream",
            f"is disabled, but {holds}: its replicas would be missing, and the meta group would still count the "
            "server. "
            f"{leave}, rename {path}/jetstream, and deploy again",
        )
    elif case.process_runs or case.store.get("accounts") != held.get("accounts"):
        yield error(
            "jetstream.store_dir",
            f"changes, but {holds}: the server would start without it, and streams of one replica would come back empty. Take "
            f"the server out of service (natsops.jetstream.maintenance_enter), move {path}/jetstream to the new directory, "
            "deploy, and return it to service (maintenance_leave)",
        )


def renamed_system_account(case: Case) -> Iterator[ConfigProblem]:
    """The log of the meta group is in the directory of the system account. If that account is renamed, the meta group
    starts empty, and deletes all streams 30 seconds later, as orphans (jetstream_cluster.go checkForOrphans)."""
    holders = case.store.get("system_accounts") or []
    if case.jetstream is None or ("operator" in case.config and not case.config.get("system_account")):
        return
    if holders and case.system_account not in holders:
        yield error(
            "system_account",
            f"is {case.system_account}, but the meta group of this server belongs to {' and '.join(holders)}: the server would "
            "start with an empty meta group, which deletes all streams after 30 seconds. Keep the name "
            "(nats_server_system_account)",
        )


def unreachable_streams(case: Case) -> Iterator[ConfigProblem]:
    """If an account is removed or no longer has JetStream, its streams stay on the disk, but no client can reach them
    and no server reports them. If the account was not in the loaded configuration either, the problem is only a
    warning."""
    if case.jetstream is None:
        return
    by_key = "operator" in case.config
    serving = set() if by_key else {name for name, block in case.accounts.items() if has_jetstream(block)}
    served = {name for name, block in (get_block(case.loaded, "accounts") or {}).items() if has_jetstream(block or {})}
    changes_mode = by_key != ("operator" in case.loaded)
    for name, streams in sorted((case.store.get("accounts") or {}).items()):
        known = name in serving or name == GLOBAL_ACCOUNT or (by_key and re.fullmatch("A[A-Z2-7]{55}", name))
        if known or not streams:
            continue
        state = "has no JetStream" if name in case.accounts and not by_key else "is not configured"
        report = error if not case.loaded or changes_mode or name in served else warning
        yield report(
            f"accounts.{name}",
            f"{state}, but this server has {counted(int(streams), 'stream')} of it: no client can reach them, and no report "
            "lists them. Keep the account with JetStream, or back its streams up and delete them first",
        )


def lost_encryption_key(case: Case) -> Iterator[ConfigProblem]:
    """nats-server cannot read data that was encrypted with a key other than its current or previous key."""
    before = (get_jetstream(case.loaded) or {}).get("encryption_key")
    block = case.jetstream
    empty = not case.store.get("streams") and case.store.get("peers") is None
    if (
        block is None
        or not before
        or empty
        or before in (block.get("encryption_key"), block.get("prev_encryption_key"))
    ):
        return
    remedy = (
        "Set nats_server_jetstream_prev_encryption_key to the previous key"
        if block.get("encryption_key")
        else "Restore it: a store stays encrypted"
    )
    yield error(
        "jetstream.encryption_key",
        f"{'changes' if block.get('encryption_key') else 'is removed'}, and the server could not read its store. {remedy}",
    )


# --- Limits, listeners, monitoring ----------------------------------------------------------------------------------


def lame_duck(case: Case) -> Iterator[ConfigProblem]:
    """The lame duck duration has a minimum, and must be longer than the grace period."""
    duration = _seconds(case.config.get("lame_duck_duration"), DEFAULT_LAME_DUCK)
    grace = _seconds(case.config.get("lame_duck_grace_period"), DEFAULT_GRACE)
    if duration < MIN_LAME_DUCK:
        yield error(
            "lame_duck_duration", f"{duration:g}s is less than the {MIN_LAME_DUCK:g}s that nats-server requires"
        )
    if grace >= duration:
        yield error("lame_duck_grace_period", f"{grace:g}s must be less than lame_duck_duration, {duration:g}s")


def payload(case: Case) -> Iterator[ConfigProblem]:
    """A message must fit into max_pending."""
    size = _bytes(case.config.get("max_payload"), DEFAULT_MAX_PAYLOAD)
    pending = _bytes(case.config.get("max_pending"), DEFAULT_MAX_PENDING)
    if size > pending:
        yield error("max_payload", f"{human_bytes(size)} exceed max_pending, {human_bytes(pending)}")
    elif size > LARGE_PAYLOAD:
        yield warning(
            "max_payload", "more than 8MB is discouraged by nats-server: large messages stall their connection"
        )


def monitoring(case: Case) -> Iterator[ConfigProblem]:
    """Monitoring uses either HTTP or HTTPS, not both; HTTPS uses the certificate of the client listener."""
    plain = case.config.get("http") or case.config.get("http_port")
    encrypted = case.config.get("https") or case.config.get("https_port")
    if plain and encrypted:
        yield error("https", "http and https cannot both be set")
    if encrypted and not case.config.get("tls"):
        yield error("https", "needs the top-level tls block, whose certificate it uses")


def certificates(case: Case) -> Iterator[ConfigProblem]:
    """A listener with TLS must present a certificate. nats-server accepts a block without one, but then no client can
    connect."""
    blocks = [("tls", case.config.get("tls"))]
    blocks += [(f"{name}.tls", (case.block(name) or {}).get("tls")) for name in LISTENERS]
    for option, block in blocks:
        if not isinstance(block, dict) or not block:
            continue
        if option == "leafnodes.tls" and not leafnodes_listen(case):
            continue
        if not (block.get("cert_file") and block.get("key_file")) and not block.get("certs"):
            yield error(
                option,
                "has no certificate (cert_file and key_file, or certs), so no connection could be made. Add one, or "
                "set "
                "nats_server_tls_source",
            )


def leafnodes_listen(case: Case) -> bool:
    """Return whether leafnodes may connect: a block that only has remotes opens no port."""
    block = case.block("leafnodes") or {}
    return any(block.get(name) is not None for name in ("listen", "host", "port"))


def listeners(case: Case) -> Iterator[ConfigProblem]:
    """`listen` must not contradict host or port, because it would be arbitrary which of them applies."""
    blocks = [("", case.config), *((f"{name}.", case.block(name) or {}) for name in LISTENERS)]
    for prefix, block in blocks:
        if block.get("listen") is None:
            continue
        host, port = _host_port(block["listen"])
        if block.get("port") is not None and port != str(block["port"]):
            yield error(
                f"{prefix}listen", f"{block['listen']!r} and {prefix}port {block['port']} contradict each other"
            )
        if block.get("host") is not None and host != block["host"]:
            yield error(
                f"{prefix}listen", f"{block['listen']!r} and {prefix}host {block['host']!r} contradict each other"
            )


def cluster_on_loopback(case: Case) -> Iterator[ConfigProblem]:
    """The cluster listener must not be on loopback if other members are on other machines, because no route could
    connect."""
    cluster = case.block("cluster") or {}
    host = cluster.get("host") or (_host_port(cluster["listen"])[0] if cluster.get("listen") is not None else "")
    own = case.config.get("server_name")
    elsewhere = [
        m["server_name"] for m in case.members if m["server_name"] != own and not is_loopback(m["route_address"])
    ]
    if host and is_loopback(host) and elsewhere:
        option = "cluster.listen" if cluster.get("listen") is not None else "cluster.host"
        yield error(option, f"{host} is reachable from this host only, but {', '.join(elsewhere)} must connect to it")


def advertised(case: Case) -> Iterator[ConfigProblem]:
    """Clients must be able to learn the addresses of other servers."""
    if case.config.get("client_advertise") and (case.block("cluster") or {}).get("no_advertise"):
        yield warning(
            "client_advertise",
            f"{case.config['client_advertise']} reaches no client: cluster.no_advertise keeps servers from advertising",
        )


def port_collisions(case: Case) -> Iterator[ConfigProblem]:
    """Two members, or two listeners of one member, must not use the same address and port."""
    taken: dict[tuple[str, int], str] = {}
    listened = {"client_port": "address", "cluster_port": "route_address"}
    if case.supercluster:
        listened["gateway_port"] = "gateway_address"
    for member in case.supercluster or case.members:
        for kind, address in listened.items():
            place = (_one_spelling(str(member[address])), int(member[kind]))
            host = member.get("host", member["server_name"])
            named = "" if host == member["server_name"] else f" (host {host})"
            user = f"{kind.replace('_', ' ')} of {member['server_name']}{named}"
            if place in taken and place[1] > 0:
                yield error(
                    kind,
                    f"{place[0]}:{place[1]} is both the {taken[place]} and the {user}: remove one of two names for the same host "
                    "from the inventory, or give each server its own address or port",
                )
            taken.setdefault(place, user)
    yield from _own_collisions(case)


def _own_collisions(case: Case) -> Iterator[ConfigProblem]:
    try:
        own = bound(case.config)
    except ValueError:
        return
    for index, (name, host, port) in enumerate(own):
        for other, other_host, other_port in own[:index]:
            if port == other_port and (host == other_host or not host or not other_host):
                yield error(
                    f"{name}.port" if isinstance(case.config.get(name), dict) else name,
                    f"{port} is also the port of the listener {other}: nats-server would exit at its start",
                )


def _one_spelling(address: str) -> str:
    """Return the canonical form of an address: DNS ignores case and a final dot, and hosts may write the same address
    differently."""
    try:
        return ipaddress.ip_address(address.strip("[]")).compressed
    except ValueError:
        return address.lower().rstrip(".")


def compression(case: Case) -> Iterator[ConfigProblem]:
    """Compression modes and thresholds must be valid (validateAndNormalizeCompressionOption)."""
    leafnodes = case.block("leafnodes") or {}
    places = [("cluster", case.block("cluster") or {}), ("leafnodes", leafnodes)]
    places += [(f"leafnodes.remotes[{i}]", r) for i, r in enumerate(_blocks(leafnodes.get("remotes")))]
    for where, block in places:
        value = block.get("compression")
        mode = value.get("mode", "") if isinstance(value, dict) else value
        if value is None:
            continue
        if str(mode).lower() not in COMPRESSION_MODES:
            known = "off, accept, s2_fast, s2_better, s2_best, s2_auto"
            yield error(f"{where}.compression", f"{mode!r} is not a supported mode ({known})")
        thresholds = [_seconds(t, 0) for t in (value.get("rtt_thresholds") or [])] if isinstance(value, dict) else []
        used = [threshold for threshold in thresholds if threshold]
        if used != sorted(used):
            yield error(f"{where}.compression.rtt_thresholds", "must ascend")
        if thresholds and (not used or len(thresholds) > MAX_RTT_THRESHOLDS):
            yield error(
                f"{where}.compression.rtt_thresholds",
                f"must list 1 to {MAX_RTT_THRESHOLDS} durations, not all of them 0",
            )


# --- JetStream ------------------------------------------------------------------------------------------------------


def domain(case: Case) -> Iterator[ConfigProblem]:
    """A domain is one token of a subject, and is required if leafnodes extend the cluster."""
    name = (case.jetstream or {}).get("domain")
    if name and re.search(r"[.*>\s]", name):
        yield error("jetstream.domain", f"{name!r} may not contain '.', '*', '>' or white space")
    if case.jetstream is not None and case.block("leafnodes") is not None and not name:
        yield warning(
            "jetstream.domain",
            "set a domain when leafnodes are used, or both sides may treat each other as one cluster",
        )


def jetstream_options(case: Case) -> Iterator[ConfigProblem]:
    """Check values that nats-server checks only when it starts."""
    block = case.jetstream or {}
    hint = block.get("extension_hint")
    if hint and hint.lower() not in ("will_extend", "no_extend"):
        yield error("jetstream.extension_hint", f"{hint!r} is neither will_extend nor no_extend")
    if block.get("prev_encryption_key") and not block.get("encryption_key"):
        yield error("jetstream.prev_encryption_key", "has no effect without jetstream.encryption_key")
    if block.get("store_dir") and case.config.get("store_dir"):
        yield error("store_dir", "is set at the top level and in jetstream; nats-server accepts only one")


def storage(case: Case) -> Iterator[ConfigProblem]:
    """Check the location of the streams, and whether the storage limits fit there."""
    block = case.jetstream
    if block is None:
        return
    directory = block.get("store_dir") or case.config.get("store_dir")
    if not directory:
        yield error("jetstream.store_dir", "is required: nats-server would keep the streams in a temporary directory")
        return
    if not posixpath.isabs(directory):
        yield error("jetstream.store_dir", f"{directory!r} is not an absolute path")
        return
    if case.service_backend == "systemd" and re.match(r"(/var)?/tmp(/|$)", posixpath.normpath(directory)):
        yield error("jetstream.store_dir", f"{directory} is lost at each restart: the service has a private /tmp")
    filesystem = _filesystem(directory, case.filesystems)
    if filesystem:
        yield from _filesystem_problems(directory, filesystem, case, block)
    if block.get("max_file_store") is None:
        yield warning(
            "jetstream.max_file_store",
            "is not set: nats-server uses 75 % of the free space at each start, so the limit changes between starts",
        )
    memory = _bytes(block.get("max_memory_store"), 0)
    if case.memtotal and memory > case.memtotal:
        yield error(
            "jetstream.max_memory_store",
            f"{human_bytes(memory)} exceed the host's memory, {human_bytes(case.memtotal)}",
        )


def selinux_type(case: Case) -> Iterator[ConfigProblem]:
    """On hosts with SELinux in enforcing mode, systemd starts a service only from an executable of type bin_t (systemd:
    203/EXEC)."""
    label, directory = case.selinux.get("binary_type"), case.selinux.get("install_dir")
    if case.selinux.get("mode") == "enforcing" and case.service_backend == "systemd" and label and label != "bin_t":
        pattern = f"'{directory}/[^/]+/bin(/.*)?'"
        yield error(
            "nats_server_install_dir",
            f"SELinux is enforcing, and its policy gives executables below {directory} the type {label}, which systemd cannot"
            f" start as a service. Use /opt/nats-server, or run on the host: semanage fcontext -a -t bin_t {pattern}",
        )


def _filesystem_problems(
    directory: str, filesystem: dict[str, Any], case: Case, block: dict[str, Any]
) -> Iterator[ConfigProblem]:
    mount, kind = filesystem["mount"], str(filesystem.get("fstype") or "")
    if kind in VOLATILE_FILESYSTEMS:
        yield error(
            "jetstream.store_dir", f"{directory} is on {mount}, a {kind} in memory: its streams are lost in a reboot"
        )
    if kind in NETWORK_FILESYSTEMS:
        yield warning(
            "jetstream.store_dir",
            f"{directory} is on {mount}, a network file system ({kind}): JetStream waits for each of its writes, and file locks"
            " and fsync may not hold. Use a local SSD",
        )
    if mount == "/" and case.require_mount:
        yield error("jetstream.store_dir", f"{directory} is on the root file system, but a separate mount is required")
    elif mount == "/" and case.service_backend == "systemd":
        yield warning(
            "jetstream.store_dir",
            f"{directory} is on the root file system: a full store stops the host's other services as well. Use a file system of"
            " its own; nats_server_jetstream_require_mount refuses this one",
        )
    if disks := filesystem.get("rotating_disks"):
        yield warning(
            "jetstream.store_dir",
            f"{directory} is on {', '.join(disks)}, a rotating disk: JetStream waits for each write. Use an SSD",
        )
    wanted, total = _bytes(block.get("max_file_store"), 0), int(filesystem.get("size_total") or 0)
    if total and wanted > total:
        yield error(
            "jetstream.max_file_store",
            f"{human_bytes(wanted)} exceed the size of the file system {mount}, {human_bytes(total)}",
        )


def unique_tag(case: Case) -> Iterator[ConfigProblem]:
    """unique_tag must be the same on all JetStream servers and match a tag of each of them."""
    if case.jetstream is None:
        return
    wanted = {str(member["unique_tag"]) for member in case.meta_members if member.get("unique_tag")}
    without = [m["server_name"] for m in case.meta_members if wanted and not m.get("unique_tag")]
    if len(wanted) > 1 or without:
        said = ", ".join(f"{m['server_name']} {m.get('unique_tag') or 'none'}" for m in case.meta_members)
        yield error("jetstream.unique_tag", f"must be the same on all JetStream servers, but is: {said}")
    prefix = case.jetstream.get("unique_tag")
    tags = [str(tag).lower() for tag in case.config.get("server_tags") or []]
    if prefix and not any(tag.startswith(str(prefix).strip().lower()) for tag in tags):
        yield error(
            "jetstream.unique_tag", f"no tag of this server begins with {prefix!r}, so no stream could be placed on it"
        )


# --- The complete cluster --------------------------------------------------------------------------------------------


def membership(case: Case) -> Iterator[ConfigProblem]:
    """Check the members' names, their number, and that the number of JetStream servers is odd."""
    for name, count in Counter(member["server_name"] for member in case.members).items():
        if count > 1:
            hosts = ", ".join(member["host"] for member in case.members if member["server_name"] == name)
            yield error("server_name", f"{name!r} is the name of several servers: {hosts}")
        if re.search(r"\s", name):
            yield error("server_name", f"{name!r} contains white space")
    if case.cluster_size is not None and case.members and len(case.members) != case.cluster_size:
        yield error(
            "nats_server_cluster_size",
            f"is {case.cluster_size}, but the inventory has {len(case.members)} members: it may be incomplete, or a "
            "host may be missing",
        )
    if case.block("cluster") is not None and (case.gateway is None or case.supercluster):
        option = "nats_server_supercluster_groups" if case.supercluster else "nats_server_cluster_members"
        yield from _quorum(option, len(case.meta_members))


def _quorum(option: str, servers: int) -> Iterator[ConfigProblem]:
    if not servers:
        return
    quorum = servers // 2 + 1
    if servers < 3:
        yield warning(
            option, f"{servers} JetStream servers do not survive the loss of one (quorum {quorum}): use at least 3"
        )
    elif servers % 2 == 0:
        yield warning(
            option,
            f"{servers} JetStream servers need {quorum} for a quorum and survive the loss of only {servers - quorum}, as "
            f"{servers - 1} servers would; if a network partition splits them in half, neither half has a quorum. Add one "
            "(a small arbiter that holds no streams is enough: nats_server_arbiter) or leave one out",
        )


def loss_of_a_site(case: Case) -> Iterator[ConfigProblem]:
    """Check whether the meta group survives the loss of each cluster of a supercluster, and of each zone of a cluster."""
    servers = case.meta_members
    quorum = len(servers) // 2 + 1
    sites = [("cluster", str(member.get("cluster"))) for member in case.supercluster if member.get("jetstream")]
    if len(servers) >= 3:
        zones = [member for member in servers if member.get("zone")]
        sites += [("zone", f"{member['zone']} of {member.get('cluster')}") for member in zones]
    for (kind, name), count in Counter(sites).items():
        left = len(servers) - count
        if left < quorum and (kind == "cluster" or count > 1):
            option = "nats_server_supercluster_groups" if kind == "cluster" else "nats_server_zone"
            yield warning(
                option,
                f"the loss of the {kind} {name} ({count} of {len(servers)} JetStream servers) leaves {left}, fewer than the "
                f"quorum of {quorum}: until it returns nothing can be created, changed or moved, in any cluster. "
                "Spread the "
                f"servers over at least three {kind}s; one with only an arbiter (nats_server_arbiter) is enough",
            )


def small_clusters(case: Case) -> Iterator[ConfigProblem]:
    """All replicas of a stream are in one cluster, even in a supercluster, so each cluster needs enough servers."""
    servers = Counter(
        str(one.get("cluster")) for one in case.supercluster if one.get("jetstream") and not one.get("arbiter")
    )
    for name, count in servers.items():
        if count < 3:
            yield warning(
                "nats_server_supercluster_groups",
                f"the cluster {name} has {count} JetStream server{'s' if count > 1 else ''}: a stream there has at most as many "
                "replicas, which do not survive the loss of a server. Use three",
            )


def zones(case: Case) -> Iterator[ConfigProblem]:
    """With unique_tag, a stream has at most one replica in each zone, and none on a server without a zone."""
    members = [member for member in case.jetstream_members if not member.get("arbiter")]
    written = {str(member["zone"]) for member in members if member.get("zone")}
    named = {zone.strip().lower() for zone in written}
    if case.jetstream is None or not case.jetstream.get("unique_tag") or not named:
        return
    if len(named) < len(written):
        yield error(
            "nats_server_zone",
            f"{', '.join(sorted(written))}: nats-server reads tags in lower case, so some of these zones are the same. Write "
            "each zone consistently",
        )
    without = sorted(member["server_name"] for member in members if not member.get("zone"))
    if without:
        yield error("nats_server_zone", f"is not set for {', '.join(without)}: no stream could be placed there")
    if len(named) < min(3, len(members)):
        yield warning(
            "nats_server_zone",
            f"the {len(members)} servers are in {len(named)} zones ({', '.join(sorted(named))}): with jetstream.unique_tag a "
            f"stream has at most one replica in a zone, so more than {len(named)} replicas are refused",
        )


def route_pool(case: Case) -> Iterator[ConfigProblem]:
    """Check the pool of routes and the pinned accounts."""
    cluster = case.block("cluster") or {}
    pinned = cluster.get("accounts") or []
    if pinned and int(cluster.get("pool_size") or 0) < 0:
        yield error("cluster.pool_size", "a negative value (no pooling) cannot be combined with cluster.accounts")
    for account, count in Counter(pinned).items():
        if count > 1:
            yield error("cluster.accounts", f"lists {account!r} twice")
    known = {*case.accounts, case.system_account, SYSTEM_ACCOUNT, GLOBAL_ACCOUNT}
    for account in sorted(set(pinned) - known):
        if "operator" not in case.config:
            yield error("cluster.accounts", f"pins the account {account!r}, which does not exist")
    sizes = {member.get("pool_size") for member in case.members}
    if len(sizes) > 1 and case.version and not supports(POOL_SIZES_MAY_DIFFER, case.version):
        yield error(
            "cluster.pool_size",
            f"differs between the members; up to nats-server 2.11.1 (here {case.version}) such servers drop their routes",
        )


def routes(case: Case) -> Iterator[ConfigProblem]:
    """At the first start, the number of routes determines the size of the meta group."""
    listed = (case.block("cluster") or {}).get("routes") or []
    servers = len(case.jetstream_members)
    linked = (case.block("leafnodes") or {}).get("remotes")
    if case.jetstream is not None and case.block("cluster") is not None and not listed and not linked:
        yield error("cluster.routes", "JetStream in a cluster needs a route, even if only to the server itself")
        return
    if case.jetstream is not None and case.gateway is None and servers > max(2, len(listed)):
        yield warning(
            "cluster.routes",
            f"lists {len(listed)} of {servers} JetStream servers: at the first start the meta group assumes "
            f"{max(2, len(listed))} servers and may elect a leader without the others. Route style all avoids this",
        )


def route_credentials(case: Case) -> Iterator[ConfigProblem]:
    """Routes and gateways send their own credentials, and allow only one user."""
    for where in ("cluster", "gateway"):
        block = (case.block(where) or {}).get("authorization")
        if not isinstance(block, dict):
            continue
        for name in ("users", "token"):
            if name in block:
                yield error(
                    f"{where}.authorization.{name}",
                    "is rejected by nats-server: all routes share one user and password",
                )
        password = block.get("password")
        if not password or not is_hash(password):
            continue
        option = f"{where}.authorization.password"
        urls = (case.block("cluster") or {}).get("routes") or []
        sent = [unquote(urlsplit(url).password or "") for url in urls]
        if where == "gateway" or not sent or not all(sent) or password in sent:
            yield error(
                option, "is a bcrypt hash, but servers send this password to each other: use the plain password"
            )
        else:
            yield warning(
                option, "is a bcrypt hash: routes that servers learn from each other by gossip will be rejected"
            )


# --- Accounts and users ---------------------------------------------------------------------------------------------


def system_account(case: Case) -> Iterator[ConfigProblem]:
    """The system account must exist, be reachable and stay free of JetStream."""
    if "operator" in case.config:
        return
    name = case.system_account
    block = case.accounts.get(name)
    if name != SYSTEM_ACCOUNT and block is None:
        yield error("system_account", f"{name!r} is not among the accounts")
    elif not (block or {}).get("users"):
        yield warning(
            f"accounts.{name}.users",
            "is empty: no user can log in to the system account, so neither the health gate nor reloads over NATS work "
            "(nats_server_system_password)",
        )
    if block and block.get("jetstream") not in (None, False, "disabled", "disable"):
        yield error(
            f"accounts.{name}.jetstream", "JetStream does not belong in the system account: use another account"
        )
    if (
        case.block("leafnodes") is not None
        and case.block("gateway") is not None
        and not case.config.get("system_account")
    ):
        yield error("system_account", "must be set explicitly when there are both leafnodes and a gateway")


def users(case: Case) -> Iterator[ConfigProblem]:
    """Users need unique names, credentials, and passwords within bcrypt's limits."""
    seen: dict[str, str] = {}
    for where, user in _users(case):
        name = user.get("user") or user.get("nkey")
        if not name:
            yield error(where, "has neither user nor nkey")
            continue
        if name in seen:
            yield error(
                where, f"the name {name!r} is already used by {seen[name]}; names must be unique across accounts"
            )
        seen.setdefault(name, where)
        if user.get("user") and not user.get("password") and not _maps_certificates(case):
            yield error(where, "has no password: anyone could log in with this name")
        unknown = {str(kind).upper() for kind in user.get("allowed_connection_types") or []} - CONNECTION_TYPES
        if unknown:
            yield error(
                f"{where}.allowed_connection_types", f"nats-server does not support {', '.join(sorted(unknown))}"
            )
    block = case.block("authorization") or {}
    if block.get("user") or block.get("token"):
        what = "user" if block.get("user") else "token"
        if block.get("users") or any(account.get("users") for account in case.accounts.values()):
            yield error(
                f"authorization.{what}", "cannot be combined with users, neither in authorization nor in accounts"
            )


def auth_callout(case: Case) -> Iterator[ConfigProblem]:
    """The collection's own users must be able to log in without the auth callout service, which is a client of the
    cluster and starts after it.

    While the service is down, a server refuses all users except auth_users, either in all accounts or only in
    allowed_accounts (auth.go).
    """
    callout = (case.block("authorization") or {}).get("auth_callout")
    if not isinstance(callout, dict) or "operator" in case.config:
        return
    option = "authorization.auth_callout.auth_users"
    passing, scope = set(callout.get("auth_users") or ()), callout.get("allowed_accounts") or ()

    def refused(account: str) -> list[str]:
        named = [
            user.get("user") or user.get("nkey") for user in _blocks((case.accounts.get(account) or {}).get("users"))
        ]
        return [str(name) for name in named if name not in passing] if not scope or account in scope else []

    system = refused(case.system_account)
    needed = case.own_users.get("system")
    every = len(system) == len(_blocks((case.accounts.get(case.system_account) or {}).get("users")))
    if needed in system or (not needed and system and every):
        yield error(
            option,
            f"lacks {needed or ' and '.join(system)} of the system account: while the callout's service is down, and at each "
            "start of all servers, the health gate and every other playbook could not log in. Add it, or leave the account "
            "out of allowed_accounts",
        )
    delegated = {name for account in case.accounts if account != case.system_account for name in refused(account)}
    operators = delegated & set(case.own_users.get("operators") or ())
    if operators:
        yield warning(
            option,
            f"lacks {', '.join(sorted(operators))}: while the callout's service is down, the playbooks cannot read, back up or "
            "restore the streams of these accounts",
        )
    if delegated - operators:
        yield warning(
            option,
            f"lacks {', '.join(sorted(delegated - operators))}: the callout's service decides on these logins, and passwords and "
            "permissions in the accounts have no effect",
        )


def own_users_behind_proxy(case: Case) -> Iterator[ConfigProblem]:
    """The collection's own users must log in to the servers directly, not through a proxy."""
    own = {case.own_users.get("system"), *(case.own_users.get("operators") or ())} - {None, ""}
    for where, user in _users(case):
        if user.get("proxy_required") and user.get("user") in own:
            yield error(
                f"{where}.proxy_required", "would lock out the playbooks, which connect to the servers without a proxy"
            )


def first_accounts(case: Case) -> Iterator[ConfigProblem]:
    """If no accounts are configured, every client uses the account $G, mostly without a user. Adding the first account
    takes JetStream away from $G, and adding the first user locks out clients without a user (server.go
    globalAccountOnly, auth.go configureAuthorization)."""
    if not case.loaded or "operator" in case.loaded or "operator" in case.config:
        return
    streams = int((case.store.get("accounts") or {}).get(GLOBAL_ACCOUNT) or 0)
    if streams and case.jetstream is not None and not _other_accounts(case.loaded) and _other_accounts(case.config):
        yield error(
            "accounts",
            "are the first, and JetStream then works only in them: no client could reach the "
            f"{counted(streams, 'stream')} of "
            "the account $G here, which would stay on the disk. Back them up (nats_stream_backup, without a user), delete them, "
            "deploy, and restore them into an account (nats_stream_restore)",
        )
    if not _has_users(case.loaded) and _has_users(case.config) and not case.config.get("no_auth_user"):
        connected = int(case.running.get("connections") or 0)
        now = f" ({counted(connected, 'client')} connected now)" if connected else ""
        yield warning(
            "accounts",
            f"have the first users: clients that log in without a user are then rejected{now}. Give them the rights of "
            "a "
            "user with nats_server_config: {no_auth_user: NAME}",
        )


def passwords(case: Case) -> Iterator[ConfigProblem]:
    """Passwords must be suitable for bcrypt; the messages do not contain them."""
    for leaf in leaves(case.config):
        if leaf.key is None or not leaf.key.bcrypt or is_hash(leaf.value):
            continue
        try:
            check_password(leaf.value)
        except BcryptError as problem:
            yield error(show(leaf.path), str(problem))


def no_auth_user(case: Case) -> Iterator[ConfigProblem]:
    """no_auth_user must be one of the users."""
    known = {user.get("user") for _where, user in _users(case)} | {user.get("nkey") for _where, user in _users(case)}
    for option, block in (("", case.config), ("websocket.", case.block("websocket")), ("mqtt.", case.block("mqtt"))):
        name = (block or {}).get("no_auth_user")
        if name and "operator" in case.config:
            yield error(f"{option}no_auth_user", "cannot be combined with an operator")
        elif name and name not in known:
            yield error(f"{option}no_auth_user", f"{name!r} is not a user of authorization or of an account")


def mqtt_and_websocket(case: Case) -> Iterator[ConfigProblem]:
    """Check the requirements of MQTT and WebSocket."""
    mqtt, websocket = case.block("mqtt"), case.block("websocket")
    linked = any(case.block(name) is not None for name in ("cluster", "gateway", "leafnodes"))
    if mqtt is not None:
        if not case.config.get("server_name") and (
            case.block("cluster") is not None or case.block("gateway") is not None
        ):
            yield error("server_name", "is required for MQTT in a cluster")
        if case.jetstream is None and not linked:
            yield error("mqtt", "needs JetStream, on this server or on a connected server")
        yield from _mqtt_storage(case, mqtt)
    if websocket is not None:
        yield from _websocket(case, websocket)
    has_users = any(True for _user in _users(case))
    for name, block in (("mqtt", mqtt), ("websocket", websocket)):
        own = (block or {}).get("authorization")
        if has_users and isinstance(own, dict) and (own.get("user") or own.get("token")):
            yield error(f"{name}.authorization", "its own user or token cannot be combined with users elsewhere")


def _mqtt_storage(case: Case, block: dict[str, Any]) -> Iterator[ConfigProblem]:
    """nats-server stores MQTT sessions and messages in streams of the client's account, `$MQTT_sess` and others."""
    if case.jetstream is None or block.get("js_domain"):
        return
    others = [account for name, account in case.accounts.items() if name != case.system_account]
    if others and "operator" not in case.config and not any(map(has_jetstream, others)):
        yield error("mqtt", "needs an account with JetStream, which stores the sessions of its clients")
    cluster = case.block("cluster")
    needed, listed = min(3, len(case.jetstream_members)), len((cluster or {}).get("routes") or ())
    if cluster is not None and block.get("stream_replicas") is None and listed < needed:
        yield warning(
            "mqtt.stream_replicas",
            f"is not set, and nats-server takes the number of routes, {listed}: the sessions of MQTT clients would have "
            f"{counted(max(1, listed), 'replica')}. Set it to {needed}",
        )


def _is_web_address(value: Any) -> bool:
    url = urlsplit(str(value))
    return url.scheme in ("http", "https") and bool(url.hostname)


def _websocket(case: Case, block: dict[str, Any]) -> Iterator[ConfigProblem]:
    if not block.get("no_tls") and not block.get("tls"):
        yield error("websocket.tls", "is required, unless websocket.no_tls is true")
    origins = block.get("allowed_origins") or ()
    for origin in [origins] if isinstance(origins, str) else origins:
        if not _is_web_address(origin):
            yield error("websocket.allowed_origins", f"{origin!r} is not a URL such as https://www.example.com")
    if block.get("jwt_cookie") and not {"operator", "trusted_keys"} & set(case.config):
        yield error("websocket.jwt_cookie", "needs an operator, because the cookie holds a JWT")
    for name in block.get("headers") or ():
        if name.lower() in RESERVED_HEADERS or name.lower().startswith("sec-websocket-"):
            yield error("websocket.headers", f"{name} belongs to the handshake, and nats-server rejects it")


def leafnodes(case: Case) -> Iterator[ConfigProblem]:
    """Accounts to which leafnodes bind must exist, and the listener has either one user or a list of users."""
    block = case.block("leafnodes")
    if block is None or "operator" in case.config:
        return
    known = {*case.accounts, GLOBAL_ACCOUNT, SYSTEM_ACCOUNT, case.system_account}
    authorization: dict[str, Any] = block.get("authorization") or {}
    bound = [("leafnodes.authorization.account", authorization.get("account"))]
    bound += [
        (f"leafnodes.authorization.users[{user.get('user')}].account", user.get("account"))
        for user in _blocks(authorization.get("users"))
    ]
    bound += [
        (f"leafnodes.remotes[{i}].account", remote.get("account"))
        for i, remote in enumerate(_blocks(block.get("remotes")))
    ]
    for option, account in bound:
        if account and account not in known:
            yield error(option, f"the account {account!r} does not exist")
    if authorization.get("users") and (authorization.get("user") or authorization.get("nkey")):
        yield error("leafnodes.authorization", "has both a single user and a list of users")


def remotes(case: Case) -> Iterator[ConfigProblem]:
    """Check the URLs of leafnode remotes, and their HTTP proxies (validateLeafNode), which nats-server uses only for
    WebSocket."""
    for index, remote in enumerate(_blocks((case.block("leafnodes") or {}).get("remotes"))):
        option = f"leafnodes.remotes[{index}]"
        urls = remote.get("urls") or ()
        urls = [urls] if isinstance(urls, str) else [*urls]
        schemes = [urlsplit(str(url)).scheme for url in [*urls, remote.get("url")] if url]
        web = [scheme for scheme in schemes if scheme in ("ws", "wss")]
        if web and len(web) < len(schemes):
            yield error(f"{option}.urls", "mix ws:// or wss:// with other URLs, which nats-server rejects")
        proxy = remote.get("proxy")
        if not isinstance(proxy, dict) or not proxy.get("url"):
            continue
        if not _is_web_address(proxy["url"]):
            yield error(f"{option}.proxy.url", "is not a URL such as http://proxy.example.com:3128")
        if bool(proxy.get("username")) != bool(proxy.get("password")):
            yield error(f"{option}.proxy", "needs both username and password, or neither")
        if schemes and not web:
            yield error(
                f"{option}.proxy", "is used only for ws:// and wss:// URLs: connect to the hub's WebSocket listener"
            )
        elif "wss" in web and not remote.get("tls"):
            yield error(f"{option}.tls", "is required for a wss:// URL behind a proxy, for instance with ca_file")


def hub(case: Case) -> Iterator[ConfigProblem]:
    """A leafnode must not be mistaken for a part of its hub: it needs a different cluster, different server names, and
    a different JetStream domain."""
    names = sorted({member["server_name"] for member in case.hub} & {member["server_name"] for member in case.members})
    if names:
        yield error(
            "nats_server_leafnode_hub_group", f"{', '.join(names)} would be leafnodes of a hub with the same names"
        )
    if case.cluster_name in {str(member["cluster"]) for member in case.hub}:
        yield error(
            "cluster.name", f"{case.cluster_name!r} is also the cluster of the hub: nats-server rejects such a leafnode"
        )
    if case.jetstream is None:
        return
    own = case.jetstream.get("domain")
    for server in (member for member in case.hub if member.get("jetstream")):
        if server.get("domain") == own:
            which = (
                f"{own!r} is also the domain of {server['server_name']}"
                if own
                else "neither this server nor the hub has one"
            )
            yield error(
                "jetstream.domain",
                f"{which}: both would form one JetStream, in which the leafnode is only an observer. Give each its "
                "own domain",
            )
            return


RULES: tuple[Callable[[Case], Iterator[ConfigProblem]], ...] = (
    unknown_keys,
    extra_files,
    names,
    selinux_type,
    left_to_its_own_unit,
    drop_ins_of_others,
    identity_of_running_server,
    foreign_store,
    store_of_newer_version,
    left_store,
    renamed_system_account,
    unreachable_streams,
    lost_encryption_key,
    membership,
    loss_of_a_site,
    small_clusters,
    zones,
    port_collisions,
    cluster_on_loopback,
    advertised,
    route_pool,
    routes,
    route_credentials,
    certificates,
    listeners,
    monitoring,
    lame_duck,
    payload,
    compression,
    storage,
    domain,
    jetstream_options,
    unique_tag,
    system_account,
    users,
    auth_callout,
    own_users_behind_proxy,
    first_accounts,
    passwords,
    no_auth_user,
    mqtt_and_websocket,
    leafnodes,
    remotes,
    hub,
)


# --- Helpers ----------------------------------------------------------------------------------------------------------


def _seconds(value: Any, default: float) -> float:
    return default if value is None else duration_seconds(value)


def _bytes(value: Any, default: int) -> int:
    return default if value is None else size_bytes(value)


def _blocks(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _users(case: Case) -> Iterator[tuple[str, dict[str, Any]]]:
    places = [("authorization", case.block("authorization") or {})]
    places += [(f"accounts.{name}", block) for name, block in case.accounts.items()]
    for where, block in places:
        for index, user in enumerate(_blocks(block.get("users"))):
            yield f"{where}.users[{user.get('user') or user.get('nkey') or index}]", user


def _other_accounts(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the accounts of a normalised configuration, except the system account."""
    system = str(config.get("system_account") or SYSTEM_ACCOUNT)
    return {name: block for name, block in (get_block(config, "accounts") or {}).items() if name != system}


def _has_users(config: Mapping[str, Any]) -> bool:
    """Return whether a normalised configuration has users outside the system account. Only those lock out clients that
    log in without a user."""
    authorization = get_block(config, "authorization") or {}
    if any(authorization.get(key) for key in ("users", "user", "token", "auth_callout")):
        return True
    return any(isinstance(block, dict) and block.get("users") for block in _other_accounts(config).values())


def _maps_certificates(case: Case) -> bool:
    """Return whether a listener takes the user from a client certificate, so the user needs no password."""
    blocks: list[dict[str, Any]] = [case.config, *(case.block(name) or {} for name in LISTENERS)]
    listeners_tls = [block.get("tls") for block in blocks]
    return any(isinstance(tls, dict) and tls.get("verify_and_map") for tls in listeners_tls)


def _host_port(listen: Any) -> tuple[str, str]:
    host, _colon, port = str(listen).rpartition(":")
    return host.strip("[]"), port


def _filesystem(directory: str, filesystems: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the file system that contains a directory: the one with the longest mount point above it."""
    path = posixpath.normpath(directory) + "/"
    above = [fs for fs in filesystems if path.startswith(fs["mount"].rstrip("/") + "/")]
    return max(above, key=lambda fs: len(fs["mount"].rstrip("/")), default=None)
