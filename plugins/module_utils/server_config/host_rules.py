# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about the host of a server: its unit, its running process, its store and its file systems. Pure: no I/O."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..nats.account_names import GLOBAL_ACCOUNT
from ..nats.model import peer_id
from ..nats.server_versions import index_writer, parse_series, unreadable_files
from ..problem import ConfigProblem
from ..screen import some_names
from ..units import counted, human_bytes
from .account_admins import has_jetstream
from .case import Case, bytes_or, error, get_block, get_jetstream, warning

VOLATILE_FILESYSTEMS = {"tmpfs", "ramfs", "devtmpfs"}
NETWORK_FILESYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "ceph", "afs", "lustre", "9p", "virtiofs"} | {
    f"fuse.{name}" for name in ("ceph", "glusterfs", "sshfs", "s3fs", "rclone", "juicefs", "gcsfuse")
}
#: Options of a systemd service that concern its start, its stop and its user.
_SERVICE_OPTIONS = {
    "ExecStart", "ExecStop", "ExecReload", "Type", "User", "Group", "DynamicUser", "RootDirectory", "RootImage", "KillSignal",
    "KillMode", "FinalKillSignal", "SendSIGKILL", "TimeoutSec", "TimeoutStartSec", "TimeoutStopSec",
}  # fmt: skip


def extra_files(case: Case) -> Iterator[ConfigProblem]:
    """Extra files are stored next to the configuration and must not replace the role's own files."""
    for name in case.extra_files:
        if name in case.role_files:
            yield error("nats_server_extra_files", f"{name} is a file that the role writes: choose another name")
        elif not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
            yield error("nats_server_extra_files", f"{name!r} is not a file name, such as hub.creds")


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
    return [name for name in drop_in["options"] if name in _SERVICE_OPTIONS]


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
    memory = bytes_or(block.get("max_memory_store"), 0)
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
    wanted, total = bytes_or(block.get("max_file_store"), 0), int(filesystem.get("size_total") or 0)
    if total and wanted > total:
        yield error(
            "jetstream.max_file_store",
            f"{human_bytes(wanted)} exceed the size of the file system {mount}, {human_bytes(total)}",
        )


def _filesystem(directory: str, filesystems: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the file system that contains a directory: the one with the longest mount point above it."""
    path = posixpath.normpath(directory) + "/"
    above = [fs for fs in filesystems if path.startswith(fs["mount"].rstrip("/") + "/")]
    return max(above, key=lambda fs: len(fs["mount"].rstrip("/")), default=None)
