# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the report of a smoke test."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import permutations

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.health.message_flow import (
    MAX_LINES,
    Address,
    Announcement,
    Flow,
    StreamTest,
    addresses_to_try,
    flow_failures,
    flow_warnings,
)

NAMES = ("n1", "n2", "n3")
ADVERTISED = tuple(f"10.0.0.{number}:4222" for number in (1, 2, 3))


def flow(names: tuple[str, ...] = NAMES, lost: Collection[tuple[str, str]] = ()) -> Flow:
    """Return servers that were reached at the addresses that they announce, with these messages lost between them."""
    received = {
        name: {other for other in names if other != name and (other, name) not in lost} if len(names) > 1 else {name}
        for name in names
    }
    announced = tuple(Announcement(name, f"10.0.0.{number}:4222", ADVERTISED) for number, name in enumerate(names, 1))
    return Flow(frozenset(names), announced, endpoints=names, received=received)


@pytest.mark.parametrize("names", [NAMES, NAMES[:2], NAMES[:1]])
def test_where_all_arrives_nothing_is_wrong(names: tuple[str, ...]) -> None:
    sound = flow(names)
    assert len(sound.pairs) == max(1, len(names) * (len(names) - 1))
    assert sound.broken_pairs == []
    assert flow_failures(sound) == flow_warnings(sound) == []


@pytest.mark.parametrize(
    ("lost", "lines"),
    [
        ([("n1", "n2")], ["messages from n1 do not reach n2"]),
        ([("n1", "n2"), ("n2", "n1")], ["n1 and n2 exchange no messages"]),
        (
            [("n1", "n2"), ("n2", "n1"), ("n3", "n2"), ("n2", "n3")],
            ["n2 exchanges no message with any other server"],
        ),
        (list(permutations(NAMES, 2)), ["no message passes between any two servers (n1, n2, n3)"]),
    ],
)
def test_pairs_that_are_cut(lost: list[tuple[str, str]], lines: list[str]) -> None:
    assert flow_failures(flow(lost=lost)) == lines


def test_two_servers_and_one() -> None:
    assert flow_failures(flow(NAMES[:2], [("n1", "n2"), ("n2", "n1")])) == ["n1 and n2 exchange no messages"]
    assert flow_failures(replace(flow(NAMES[:1]), received={})) == [
        "n1 does not deliver a message to the client that sent it"
    ]


def test_addresses_are_tried_once_and_not_again() -> None:
    announced = flow().announced
    assert addresses_to_try(announced, ()) == list(ADVERTISED)
    assert addresses_to_try(announced, ADVERTISED[:2]) == [ADVERTISED[2]]
    # A reload can change the address that n1 announces, unless clients should use a single address.
    assert addresses_to_try([Announcement("n1", "10.9.9.9:4222", ADVERTISED)], ADVERTISED) == ["10.9.9.9:4222"]
    assert addresses_to_try([Announcement("n1", "10.9.9.9:4222")], ()) == []
    everywhere = Announcement("n4", "0.0.0.0:4222", ("10.0.0.4:4222", "172.17.0.1:4222"))
    assert not everywhere.explicit and not Announcement("n5", "[::]:4222").explicit
    assert addresses_to_try([everywhere], ()) == ["10.0.0.4:4222", "172.17.0.1:4222"]


def test_a_chosen_address_has_to_work_and_one_of_many_interfaces_is_a_warning() -> None:
    silent = Address(ADVERTISED[1], reason="nothing listens there")
    assert flow_failures(replace(flow(), addresses=(silent,))) == [
        "n2 advertises 10.0.0.2:4222 to clients: nothing listens there"
    ]
    anywhere = tuple(replace(one, own="0.0.0.0:4222") for one in flow().announced)
    bridge = replace(flow(), announced=anywhere, addresses=(Address("172.17.0.1:4222", reason="no answer"),))
    assert flow_failures(bridge) == []
    assert flow_warnings(bridge) == [
        "172.17.0.1:4222, also advertised to clients, are unreachable from here; client_advertise chooses one address"
    ]
    # One of these addresses may be the only way to a server that was not reached.
    lost = replace(bridge, expected=frozenset({*NAMES, "n4"}))
    assert flow_warnings(lost) == []
    assert flow_failures(lost) == [
        "172.17.0.1:4222 is advertised to clients: no answer",
        "no address leads to n4",
    ]


def test_an_address_that_leads_elsewhere() -> None:
    assert flow_failures(replace(flow(), addresses=(Address("10.9.9.9:4222", "x1"),))) == [
        "10.9.9.9:4222 is advertised to clients but leads to x1, a server of another cluster"
    ]
    # A load balancer may lead to any of these servers.
    assert flow_failures(replace(flow(), addresses=(Address("10.9.9.9:4222", "n3"),))) == []


def test_causes_come_first() -> None:
    found = replace(
        flow(lost=[("n1", "n2")]),
        unreached={"nats://n4:4222": "nothing listens there"},
        expected=frozenset({*NAMES, "n4"}),
        stream=StreamTest(3, "no reply within 5 s"),
    )
    assert flow_failures(found) == [
        "nats://n4:4222: nothing listens there",
        "messages from n1 do not reach n2",
        "a stream of 3 replica(s): no reply within 5 s",
    ]


def test_a_stream_that_was_not_tested_is_not_a_failure() -> None:
    assert flow_failures(replace(flow(), stream=StreamTest(reason="the account has no JetStream"))) == []


def test_a_failure_fits_a_screen() -> None:
    names = tuple(f"n{number}" for number in range(1, 41))
    lost = {
        (sender, receiver)
        for sender, receiver in permutations(names, 2)
        if (7 * int(sender[1:]) + int(receiver[1:])) % 3
    }
    unreached = {f"nats://m{number}:4222": "nothing listens there" for number in range(30)}
    assert len(flow_failures(replace(flow(names, lost), unreached=unreached))) == MAX_LINES
    assert len(flow_failures(flow(names, lost))) <= 7
