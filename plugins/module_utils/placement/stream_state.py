# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stream and its consumers as reported by their leaders, and the reasons why they cannot be changed now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..health.rules import group_problems
from ..nats.jetstream_api import JetStreamApi
from ..nats.model import Consumer, RaftGroup, Stream
from ..nats.replies import consumer_group, stream_group


@dataclass(frozen=True)
class StreamState:
    """A stream and its consumers as reported by their leaders. `unknown`: consumers without a leader. `status`: the
    server's reason for waiting during a move (2.15)."""

    stream: Stream
    unknown: tuple[str, ...] = ()
    status: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.stream.account, self.stream.name

    @property
    def label(self) -> str:
        return self.stream.label

    @property
    def group(self) -> RaftGroup:
        return self.stream.group

    @property
    def moving(self) -> bool:
        """Return whether members are being exchanged; until the exchange ends, a group has more members than replicas
        up to 2.14."""
        return (
            self.group.moving
            or len(self.group.members) > self.group.size
            or any(consumer.group.moving for consumer in self.stream.consumers)
        )

    @property
    def short(self) -> bool:
        """Return whether the stream has fewer members than replicas, and no change is in progress."""
        return self.group.leader is not None and not self.moving and len(self.group.members) < self.group.size

    def hosted_by(self, server: str) -> bool:
        """Return whether the server has a replica of the stream or of one of its consumers."""
        return any(server in group.members for group in self.stream.groups)

    def as_dict(self) -> dict[str, Any]:
        """Return the state for a module's result: members of the stream and of each consumer."""
        return {
            "leader": self.group.leader,
            "members": list(self.group.members),
            "num_replicas": self.group.size,
            "consumers": {consumer.name: list(consumer.group.members) for consumer in self.stream.consumers},
        }


def read_state(api: JetStreamApi, name: str, names: Mapping[str, str]) -> StreamState:
    """Return the state of one stream of the account. `names`: server names by peer ID. Raises NatsFailure."""
    account = api.account or ""
    info = api.stream(name)
    config, stored = info.get("config") or {}, info.get("state") or {}
    listing = api.consumers(name)
    consumers = tuple(
        Consumer(account, name, row["name"], consumer_group(api.label, row, config, names))
        for row in sorted(listing.rows, key=lambda row: str(row["name"]))
    )
    stream = Stream(
        account,
        name,
        stream_group(api.label, info, names),
        consumers,
        storage=config.get("storage", ""),
        retention=config.get("retention", ""),
        messages=stored.get("messages", 0),
        size=stored.get("bytes", 0),
        info=info,
        max_bytes=max(0, config.get("max_bytes", 0)),
        placement_tags=tuple((config.get("placement") or {}).get("tags") or ()),
    )
    desired = (info.get("cluster") or {}).get("desired") or {}
    return StreamState(stream, tuple(sorted(listing.unknown)), (desired.get("status") or {}).get("description", ""))


def unsettled(state: StreamState, source: str | None = None) -> list[str]:
    """Return the conditions that are still missing until every group is complete, in step and without the server; empty
    if none are.

    Up to 2.14, the group of a consumer keeps an additional member after PEER.REMOVE, which does not harm the stream."""
    return [
        *problems(state),
        *(f"{source} is still a member of {group.subject}" for group in state.stream.groups if source in group.members),
        *(f"consumer {state.label}/{name} has no leader" for name in state.unknown),
    ]


def problems(state: StreamState, answered: frozenset[str] | None = None, apart_from: str | None = None) -> list[str]:
    """Return the problems of a stream's groups that the absence of this one server does not explain."""
    reasons = [item.message for item in group_problems(state.group, answered) if item.servers != (apart_from,)]
    for group in (consumer.group for consumer in state.stream.consumers):
        too_many = len(group.members) > group.size
        reasons += [
            item.message
            for item in group_problems(group, answered)
            if item.servers != (apart_from,) and not (too_many and item.code == "consumer_replica_count")
        ]
    return reasons
