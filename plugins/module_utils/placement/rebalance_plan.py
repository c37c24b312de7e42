# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rebalance plan as a document: it runs exactly as approved, or not at all if the cluster has changed. Pure: no I/O.

The fingerprint covers the input of the plan: the servers with their tags, the meta leader's limits, and the replicated
streams with their servers, replicas and placement. The fingerprint omits sizes, because they change all the time and
are checked again when a move starts, and streams with one replica, because they are not moved. Moves of the plan that
are done or in progress are ignored, so an interrupted run resumes its plan.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..nats.model import Cluster, Stream
from .rebalance import RebalancePlan, ReplicaMove
from .rules import asset_limit, unique_tag

SCHEMA, VERSION = "natsops.jetstream.rebalance_plan", 1

_Key = tuple[str, str]


class PlanRefused(ValueError):
    """Why a plan must not be carried out. `code` is for programs."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def plan_document(cluster: Cluster, name: str, plan: RebalancePlan, made: str) -> dict[str, Any]:
    """Return the plan for a file. `made`: the time of planning, RFC 3339."""
    streams = _replicated(cluster, name)
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "cluster": name,
        "made": made,
        "fingerprint": fingerprint(cluster, name),
        "moves": [
            {**move.as_dict(), "members": sorted(streams[move.account, move.stream].group.members)}
            for move in plan.moves
        ],
        "bytes_moved": plan.bytes_moved,
        "before": {server: load.as_dict() for server, load in plan.before.items()},
        "after": {server: load.as_dict() for server, load in plan.after.items()},
    }


def fingerprint(cluster: Cluster, name: str, members: Mapping[_Key, frozenset[str]] | None = None) -> str:
    """Return the SHA-256 of the plan's input. `members`: servers of streams, used instead of the current ones."""
    known = members or {}
    content = {
        "cluster": name,
        "unique_tag": unique_tag(cluster),
        "max_ha_assets": asset_limit(cluster),
        "servers": sorted(
            [server.name, server.jetstream, sorted(tag.lower() for tag in server.tags)]
            for server in cluster.servers
            if server.cluster == name
        ),
        "streams": [
            [
                *key,
                stream.group.size,
                stream.storage,
                sorted(stream.placement_tags),
                sorted(known.get(key, stream.group.members)),
            ]
            for key, stream in sorted(_replicated(cluster, name).items())
        ],
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def remaining_moves(document: Mapping[str, Any], cluster: Cluster, name: str) -> list[ReplicaMove]:
    """Return the moves of the plan that are not done yet, including those in progress. Raises PlanRefused."""
    moves = _read_moves(document, name)
    streams = _replicated(cluster, name)
    begins: dict[_Key, frozenset[str]] = {}
    ways: dict[_Key, list[frozenset[str]]] = {}
    for move, members in moves:
        key = move.account, move.stream
        way = ways.setdefault(key, [begins.setdefault(key, members)])
        way.append(way[-1] - {move.source} | {move.target})
    done = {key: _steps_done(streams.get(key), key, way) for key, way in ways.items()}
    if fingerprint(cluster, name, begins) != document.get("fingerprint"):
        raise PlanRefused(
            "plan_outdated",
            f"the plan of {document.get('made')} is for a different state of cluster {name}: a server, its tags, a "
            "limit, or a replicated stream has been added, removed, moved or changed since. Create a new plan",
        )
    left = []
    for move, _members in moves:
        key = move.account, move.stream
        if done[key]:
            done[key] -= 1
        else:
            left.append(move)
    return left


def _read_moves(document: Mapping[str, Any], name: str) -> list[tuple[ReplicaMove, frozenset[str]]]:
    """Return the moves of the document with the servers that each stream had. Raises PlanRefused for a different
    document."""
    if document.get("schema") != SCHEMA:
        raise PlanRefused("plan_invalid", f"this is not a rebalance plan (schema {document.get('schema')!r})")
    if document.get("version") != VERSION:
        raise PlanRefused(
            "plan_invalid",
            f"the plan has version {document.get('version')!r}, but this release runs only {VERSION}. Create a new "
            "plan",
        )
    if document.get("cluster") != name:
        raise PlanRefused("plan_invalid", f"the plan is for cluster {document.get('cluster')}, not for {name}")
    try:
        return [
            (
                ReplicaMove(
                    str(item["account"]),
                    str(item["stream"]),
                    str(item["from"]),
                    str(item["to"]),
                    int(item["bytes"]),
                    float(item["seconds"]),
                    str(item["goal"]),
                ),
                frozenset(map(str, item["members"])),
            )
            for item in document["moves"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise PlanRefused("plan_invalid", f"the plan's moves cannot be read: {error!r}") from error


def _steps_done(stream: Stream | None, key: _Key, way: Sequence[frozenset[str]]) -> int:
    """Return how many of the stream's moves are done. `way`: its servers before the first move and after each move."""
    label = "/".join(key)
    if stream is None:
        raise PlanRefused(
            "plan_outdated", f"stream {label} of the plan is gone or no longer replicated. Create a new plan"
        )
    members = frozenset(stream.group.members)
    for done in reversed(range(len(way))):
        if members == way[done]:
            return done
    on_the_move = stream.group.moving or len(members) > stream.group.size
    for done, (here, there) in enumerate(zip(way, way[1:])):
        if on_the_move and members <= here | there:
            return done
    raise PlanRefused(
        "plan_outdated",
        f"stream {label} is on {', '.join(sorted(members))}, but the plan expects it on {', '.join(sorted(way[0]))}. "
        "Create a new plan",
    )


def _replicated(cluster: Cluster, name: str) -> dict[_Key, Stream]:
    return {
        (stream.account, stream.name): stream
        for stream in cluster.streams
        if stream.group.cluster == name and stream.group.size > 1
    }
