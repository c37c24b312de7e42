# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The properties of each version of nats-server: its series, whether upstream still maintains it, and its defects.
Pure.

This module is the only place for facts about versions. The preflight and the restart plan derive warnings from it, the
upgrade rules and the root causes read it, and `make docs` generates docs/reference/server_versions.md from it. Each
entry needs a source: a release note, a pull request with its releases from the tags, the server's source, or a test
run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..versions import parse_version, reported_version

#: Number of series that get patches at the same time (docs.nats.io/release-notes): a new series ends the support of the
#: oldest one.
MAINTAINED = 2


@dataclass(frozen=True)
class Series:
    """A minor release. `released`: year and month of its first version. `best_start`: the version that its upgrade
    guide recommends upgrading from. `index_format`: the format of the index.db that its servers write for each stream
    and Raft log (filestore.go fullStateVersion), 0 if they write none; a server that does not support the format reads
    all blocks at its first start. `oldest_return`: the oldest version that a server can be downgraded to; `because`:
    the reason. `files`: whether older versions damage the files of this series."""

    name: str
    released: str
    best_start: str = ""
    index_format: int = 0
    oldest_return: str = ""
    because: str = ""
    files: bool = False

    @property
    def numbers(self) -> tuple[int, int]:
        """Return the two numbers of the series' name."""
        major, minor = self.name.split(".")
        return int(major), int(minor)


#: Oldest first. Version 2.13 does not exist.
SERIES = (
    Series("2.9", "2022-09"),
    Series(
        "2.10",
        "2023-09",
        index_format=1,
        oldest_return="2.9.22",
        because="servers before 2.9.22 load 2.10's tombstones as messages: deleted messages return, and writes fail",
        files=True,
    ),
    Series("2.11", "2025-03", index_format=2),
    Series(
        "2.12",
        "2025-09",
        index_format=3,
        oldest_return="2.11.9",
        because="servers before 2.11.9 load unsupported assets instead of putting them offline",
    ),
    Series("2.14", "2026-04", index_format=4),
    Series("2.15", "2026-09", best_start="2.14.7", index_format=4),
)


@dataclass(frozen=True)
class Defect:
    """A defect of some versions. `effect`: a sentence without its full stop. `affected`: the first and last version of
    each affected range. `fixed`: the first fixed version of each series; later series are also fixed. `needs`: the
    configuration key without which the defect cannot occur."""

    name: str
    effect: str
    affected: tuple[tuple[str, str], ...]
    fixed: tuple[str, ...]
    source: str
    needs: str = ""

    def affects(self, version: str) -> bool:
        """Return whether this version has the defect; False if the text is not a version."""
        have = reported_version(version)
        return any(parse_version(first) <= have <= parse_version(last) for first, last in self.affected)

    def fixes(self, versions: Iterable[str]) -> list[str]:
        """Return the fixed versions that are newer than any of these."""
        oldest = min(reported_version(version) for version in versions)
        return [version for version in self.fixed if parse_version(version) > oldest]


RAFT_SILENT = Defect(
    "raft_silent",
    "a server occasionally starts raft-silent: its messages to Raft peers are dropped until it is restarted",
    (("2.10.23", "2.10.29"),),
    ("2.11.0",),
    "sendq.go may look up the system account before server.go has stored it; tried on 2.10.27",
)

RESTORED_UNHEALTHY = Defect(
    "restored_unhealthy",
    "healthz reports a replicated stream unhealthy after its restore, until the server that led it then restarts",
    (("2.10.17", "2.11.5"),),
    ("2.11.6",),
    "nats-server#7019; tried on 2.10.27",
)

UNSTORED_ACKNOWLEDGED = Defect(
    "unstored_acknowledged",
    "a message resent with its Nats-Msg-Id before it is stored is acknowledged with sequence 0 and is lost when the "
    "leader changes",
    (("2.10.14", "2.10.29"),),
    ("2.11.0",),
    "jetstream_cluster.go processClusteredInboundMsg; tried on 2.10.27 and 2.15.1",
)

FIRST_SEQ_PURGED = Defect(
    "first_seq_purged",
    "a restarting server loses all messages of a file-backed stream whose first message has exactly the sequence "
    "set as first_seq",
    (("2.10.0", "2.10.27"), ("2.11.0", "2.11.1")),
    ("2.10.28", "2.11.2"),
    "nats-server#6753; tried on 2.10.27 and 2.15.1",
)

DEFECTS = (
    RAFT_SILENT,
    RESTORED_UNHEALTHY,
    UNSTORED_ACKNOWLEDGED,
    FIRST_SEQ_PURGED,
    Defect(
        "ghost_consumer",
        "a consumer that a work queue stream rejects may stay in the meta group without existing on any server, and "
        "healthz fails on all servers",
        (("2.9.0", "2.12.8"), ("2.14.0", "2.14.0")),
        ("2.12.9", "2.14.1"),
        "nats-server#8123, fixed by #8126",
    ),
    Defect(
        "snapshot_drift",
        "while a stream is backed up, its leader rejects deletes and purges that the followers apply, so the replicas differ",
        (("2.9.0", "2.11.11"), ("2.12.0", "2.12.2")),
        ("2.11.12", "2.12.3"),
        "nats-server#7655",
    ),
    Defect(
        "removed_replica_returns",
        "a replica removed from a stream while its server is running may be added again",
        (("2.9.0", "2.12.9"), ("2.14.0", "2.14.1")),
        ("2.12.10", "2.14.2"),
        "nats-server#8258",
    ),
    Defect(
        "refused_removal_applied",
        "removing a replica without a server to take its place is refused (10075), but the stream loses it anyway",
        (("2.9.0", "2.14.5"),),
        ("2.15.1",),
        "jetstream_cluster.go removePeerFromStreamLocked; tried on 2.10.27 and 2.15.1",
    ),
    Defect(
        "meta_removal_uncommitted",
        "removing a server from the meta group is acknowledged before a quorum has agreed",
        (("2.9.0", "2.11.11"), ("2.12.0", "2.12.2")),
        ("2.11.12", "2.12.3"),
        "nats-server#7581",
    ),
    Defect(
        "unreadable_entries",
        "in a cluster with a 2.15 server, this server panics at every start once there is a replicated mirror, unless "
        "newer servers run with feature_flags: {js_raft_delete_range: false}",
        (("2.9.0", "2.12.99"),),
        ("2.14.0",),
        "nats-server#8045, #8520; tried on 2.10.27 and 2.15.1",
    ),
    Defect(
        "leafnode_crash",
        "anyone who can reach the leafnode port can crash the server without logging in",
        (("2.9.0", "2.11.14"), ("2.12.0", "2.12.5")),
        ("2.11.15", "2.12.6"),
        "CVE-2026-33218",
        needs="leafnodes",
    ),
    Defect(
        "no_auth_user_bypass",
        "with no_auth_user, anyone who can reach a route or leafnode port bypasses its login",
        (("2.9.0", "2.11.15"), ("2.12.0", "2.12.6")),
        ("2.11.16", "2.12.7"),
        "NATS advisory 2026-16",
        needs="no_auth_user",
    ),
)


def parse_series(version: str) -> Series | None:
    """Return the series of a version, or None if it is not in the table."""
    return next((series for series in SERIES if series.numbers == reported_version(version)[:2]), None)


def index_writer(index_format: int) -> Series | None:
    """Return the oldest series that writes this format of index.db, or None if the format is unknown."""
    return next((series for series in SERIES if index_format and series.index_format == index_format), None)


def unreadable_files(index_format: int, version: str) -> str:
    """Return why a server of this version would damage a store with this format of index.db, or an empty text if it
    would not."""
    have = reported_version(version)
    for series in SERIES:
        if series.files and index_format >= series.index_format and have < parse_version(series.oldest_return):
            return series.because if have[0] else ""
    return ""


def maintained() -> list[str]:
    """Return the names of the series that upstream patches, newest first."""
    return [series.name for series in SERIES[: -MAINTAINED - 1 : -1]]


def end_of_life(version: str) -> str:
    """Return the month since which the series of a version has had no patches (`2025-09`); empty if it still gets
    patches, or if the text is not a version."""
    numbers = reported_version(version)[:2]
    later = [series for series in SERIES if series.numbers > numbers]
    return later[MAINTAINED - 1].released if numbers[0] and len(later) >= MAINTAINED else ""


def version_warnings(versions: Iterable[str], config: Mapping[str, Any] | None = None) -> list[str]:
    """Return the warnings for these versions, one line for each series and each defect.

    `config`: the servers' configuration. If it is not given, defects that affect only some configurations are omitted.
    """
    known = sorted({version for version in versions if reported_version(version)[0]}, key=reported_version)
    ended: dict[str, list[str]] = {}
    for version in known:
        if end_of_life(version):
            ended.setdefault(end_of_life(version), []).append(version)
    lines = [
        f"nats-server {_list(names)}: end-of-life since {since}; upstream maintains {_list(maintained())}"
        for since, names in ended.items()
    ]
    for defect in DEFECTS:
        names = [version for version in known if defect.affects(version)]
        if names and (not defect.needs or (config or {}).get(defect.needs)):
            lines.append(f"nats-server {_list(names)}: {defect.effect}; fixed in {_list(defect.fixes(names))}")
    return lines


def _list(names: Iterable[str]) -> str:
    return " and ".join(names)
