# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds clusters as plain data, with short builders and hypothesis strategies."""

from __future__ import annotations

from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import (
    CONSUMER,
    META,
    STREAM,
    Cluster,
    Consumer,
    Health,
    JetStreamSummary,
    MetaGroup,
    Peer,
    RaftGroup,
    Server,
    Stream,
)
from hypothesis import strategies as st


def server(name: str, **changes: object) -> Server:
    values = {
        "id": f"N{name}",
        "cluster": "C1",
        "jetstream": True,
        "summary": JetStreamSummary(),
        "health": Health("ok"),
    }
    return Server(name=name, **{**values, **changes})  # type: ignore[arg-type]


def group(kind: str, subject: str, members: list[str], behind: tuple[str, ...] = (), led: bool = True) -> RaftGroup:
    """Return a group led by its first member, with the members in `behind` out of step."""
    peers = tuple(Peer(name, current=name not in behind) for name in members[1:]) if led else ()
    return RaftGroup(
        kind=kind,
        subject=subject,
        size=len(members),
        leaders=(members[0],) if led else (),
        peers=peers,
        members=tuple(sorted(members)),
        hosts=tuple(sorted(members)),
        cluster="C1",
    )


def stream(name: str, members: list[str], behind: tuple[str, ...] = (), led: bool = True) -> Stream:
    return Stream("APP", name, group(STREAM, f"stream APP/{name}", members, behind, led))


def consumer(owner: str, name: str, members: list[str]) -> Consumer:
    return Consumer("APP", owner, name, group(CONSUMER, f"consumer APP/{owner}/{name}", members))


def meta(members: list[str], behind: tuple[str, ...] = ()) -> MetaGroup:
    return MetaGroup(group(META, "meta group", members, behind), dict.fromkeys(members, members[0]))


def cluster(names: list[str], *streams: Stream) -> Cluster:
    """Return a healthy cluster of these servers, with the first one as the leader of the meta group."""
    return Cluster(tuple(server(name) for name in sorted(names)), meta(names), streams)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Clusters of 3 to 7 servers with R1, R3 and R5 streams; any replica may be out of step and any group leaderless. A
    server that leads nothing may be unresponsive while the leaders still regard it as present."""
    names = [f"n{number}" for number in range(1, draw(st.integers(3, 7)) + 1)]

    def members(size: int) -> list[str]:
        return draw(st.permutations(names))[:size]

    def some(of: list[str]) -> tuple[str, ...]:
        return tuple(draw(st.lists(st.sampled_from(of), max_size=2, unique=True)))

    streams = []
    for number in range(draw(st.integers(0, 6))):
        size = draw(st.sampled_from([size for size in (1, 3, 5) if size <= len(names)]))
        placed = members(size)
        streams.append(stream(f"S{number}", placed, some(placed), draw(st.booleans()) or size == 1))
    placed = members(len(names))
    leaders = {placed[0], *(name for item in streams for name in item.group.leaders)}
    silent = some([name for name in names if name not in leaders] or [""])
    answering = tuple(server(name) for name in names if name not in silent)
    return Cluster(answering, meta(placed, some(placed[1:])), tuple(streams))
