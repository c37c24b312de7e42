# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests which servers are raft-silent, and when a server has joined the meta group."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.health.raft_silence import (
    meta_contact,
    raft_silent_servers,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import Cluster, Peer
from support.clusters import consumer, meta, server, stream

NAMES = ["n1", "n2", "n3"]


def state(uptime: float = 100, leader: bool = True, **changes: object) -> Cluster:
    """Return three servers with n1 as the leader; `uptime` is the uptime of n3, and `changes` apply to n1's view of
    n3."""
    made = meta(NAMES)
    seen = Peer("n3", **{"current": True, "active": 0.5, **changes})  # type: ignore[arg-type]
    peers = (Peer("n2", current=True, active=0.5), seen) if leader else ()
    group = replace(made.group, peers=peers, leaders=("n1",) if leader else ())
    servers = tuple(server(name, uptime=uptime if name == "n3" else 1000.0) for name in NAMES)
    return Cluster(servers, replace(made, group=group))


@pytest.mark.parametrize(
    ("cluster", "silent"),
    [
        (state(), []),
        (state(active=10.0), []),
        (state(active=10.1), ["n3"]),
        (state(active=1e9), ["n3"]),
        (state(uptime=15, active=1e9), []),
        (replace(state(active=1e9), servers=(server("n1", uptime=99.0),)), []),
        (state(leader=False), []),
        (replace(state(), meta=None), []),
    ],
)
def test_raft_silent_is_a_server_that_answers_and_that_the_leader_does_not_hear(
    cluster: Cluster, silent: list[str]
) -> None:
    assert raft_silent_servers(cluster) == silent


@pytest.mark.parametrize(
    ("version", "uptime", "follows", "silent"),
    [
        ("2.10.27", 100, "n1", ["n3"]),
        ("2.10.27", 10, "n1", []),
        # A server that was removed from the group.
        ("2.11.9", 100, "n1", []),
        # A server of a different meta group.
        ("2.10.27", 100, "n7", []),
    ],
)
def test_raft_silent_server_of_a_first_start_is_not_a_member(
    version: str, uptime: float, follows: str, silent: list[str]
) -> None:
    made = state(uptime=uptime)
    assert made.meta is not None
    group = replace(made.meta.group, peers=made.meta.group.peers[:1])
    lacking = replace(made.meta, group=group, views={**made.meta.views, "n3": follows})
    servers = tuple(replace(one, version=version) for one in made.servers)
    assert raft_silent_servers(Cluster(servers, lacking)) == silent


@pytest.mark.parametrize(
    ("active", "silent"),
    # A member that was just added has had no contact with the leader yet.
    [(0.5, []), (10.1, ["n3"]), (1e9, [])],
)
def test_one_group_may_be_silent_alone(active: float, silent: list[str]) -> None:
    made = stream("S", NAMES)
    peers = (Peer("n2", current=True, active=0.5), Peer("n3", active=active))
    received = replace(state(), streams=(made,))
    assert raft_silent_servers(received) == []
    for_stream = replace(made, group=replace(made.group, peers=peers))
    assert raft_silent_servers(replace(state(), streams=(for_stream,))) == silent
    worker = consumer("S", "c", NAMES)
    for_consumer = replace(made, consumers=(replace(worker, group=replace(worker.group, peers=peers)),))
    assert raft_silent_servers(replace(state(), streams=(for_consumer,))) == silent


@pytest.mark.parametrize(
    ("cluster", "in_step", "joined", "raft_silent"),
    [
        (state(), True, True, False),
        (state(active=2.4), True, True, False),
        (state(active=2.5), True, False, True),
        # A contact from before the server's start belongs to its previous process.
        (state(uptime=1, active=1.5), False, False, True),
        # n3 is behind, but only a server that was down must be in step.
        (state(current=False), False, True, False),
        (state(current=False), True, False, True),
        (state(leader=False), False, False, True),
        (replace(state(), servers=()), False, False, False),
        (replace(state(), meta=None), False, False, False),
    ],
)
def test_a_server_has_joined_once_the_leader_hears_it(
    cluster: Cluster, in_step: bool, joined: bool, raft_silent: bool
) -> None:
    contact = meta_contact(cluster, "n3", in_step)
    assert (contact.joined, contact.raft_silent) == (joined, raft_silent)
    assert bool(contact.reason) != joined


def test_the_leader_itself_has_joined_and_a_server_unknown_to_all_members_has_not() -> None:
    assert meta_contact(state(), "n1", True).joined
    assert not meta_contact(state(uptime=0), "n3", True).joined
    unknown = replace(state(), servers=(*state().servers, server("n4", uptime=100.0)))
    contact = meta_contact(unknown, "n4", False)
    assert contact.raft_silent
    assert contact.reason == "n4 answers requests, but the meta leader n1 has received nothing from it since its start"
    assert "(there is none)" in meta_contact(state(leader=False), "n3", False).reason
