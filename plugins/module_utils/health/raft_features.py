# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The feature flags with which a server writes Raft entries that older members cannot read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Callable

from ..nats.model import Cluster, Server
from ..versions import reported_version


@dataclass(frozen=True)
class RaftFeature:
    """A feature flag with which a server writes Raft entries that older members of the group cannot read.

    `read_since`: the first version that can read the entries. `on_since`: the first version that writes them by
    default, None if the flag must be set. `streams`: a description of the replicated streams that use them; `uses`:
    whether a stream with this configuration is one of these. `effect`: the effect on an older member. Source:
    server/feature_flags.go."""

    flag: str
    read_since: tuple[int, int, int]
    on_since: tuple[int, int, int] | None
    streams: str
    uses: Callable[[Mapping[str, Any]], bool]
    effect: str

    def is_written_by(self, version: str, flags: Mapping[str, bool]) -> bool:
        """Return whether a server of this version with these flags writes the entries."""
        numbers = reported_version(version)
        on = self.on_since is not None and numbers >= self.on_since
        return numbers >= self.read_since and flags.get(self.flag, on)


RAFT_FEATURES = (
    RaftFeature(
        "js_raft_delete_range",
        (2, 14, 0),
        (2, 15, 0),
        "mirrors",
        lambda config: bool(config.get("mirror")),
        "panic at every start",
    ),
    RaftFeature(
        "js_snapshot_sources",
        (2, 15, 0),
        None,
        "streams with sources",
        lambda config: bool(config.get("sources")),
        "reject snapshots",
    ),
)


def common_flags(cluster: Cluster) -> list[str]:
    """Return the flags that most JetStream servers have on, if all servers that answer can read the entries.

    A member that does not answer gains nothing from a server that turns such a flag off, because the others write the
    entries anyway."""
    members = [server for server in cluster.servers if server.jetstream]
    found = []
    for feature in RAFT_FEATURES:
        writers = [one for one in members if feature.is_written_by(one.version, enabled_flags(one))]
        readable = all(reported_version(one.version) >= feature.read_since for one in members)
        if readable and len(writers) * 2 > len(members):
            found.append(feature.flag)
    return found


def is_mostly_turned_off(feature: RaftFeature, cluster: Cluster) -> bool:
    """Return whether most JetStream servers that have this flag on by default run with the flag off."""
    by_default = [one for one in cluster.servers if one.jetstream and feature.is_written_by(one.version, {})]
    off = [one for one in by_default if not feature.is_written_by(one.version, enabled_flags(one))]
    return len(off) * 2 > len(by_default)


def proposes_delete_ranges(cluster: Cluster) -> bool:
    """Return whether a running server may write entries to a replicated mirror that make a member before 2.14 panic."""
    feature = RAFT_FEATURES[0]
    writers = any(feature.is_written_by(server.version, enabled_flags(server)) for server in cluster.servers)
    return writers and bool(streams_with(feature, cluster))


def streams_with(feature: RaftFeature, cluster: Cluster) -> list[str]:
    """Return the labels of the replicated streams that use this feature."""
    return sorted(
        stream.label
        for stream in cluster.streams
        if stream.group.size > 1 and feature.uses(stream.info.get("config") or {})
    )


def enabled_flags(server: Server) -> dict[str, bool]:
    """Return the feature flags that a server reports, and whether each is on."""
    return {flag: flag in server.enabled_flags for flag in server.feature_flags}
