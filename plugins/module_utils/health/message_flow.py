# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of a smoke test: whether messages flow between all servers, and through the addresses advertised to
clients. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations

#: Maximum number of lines of a failure, and how many of them may be about pairs of servers.
MAX_LINES, MAX_PAIRS = 16, 6

#: Addresses that a server reports if it listens on all interfaces (server.go setInfoHostPort).
_ANY_ADDRESS = ("0.0.0.0", "::")


@dataclass(frozen=True)
class Announcement:
    """A server's announcement at login (INFO): its `name`, its `own` address (`host:port`), and all addresses of its
    cluster that clients may connect to (`advertised`; none with no_advertise). `jetstream`: whether JetStream is
    enabled."""

    name: str
    own: str
    advertised: tuple[str, ...] = ()
    jetstream: bool = False

    @property
    def explicit(self) -> bool:
        """Return whether the server's own address was configured (client_advertise, or a host to listen on), rather
        than all interfaces."""
        return self.own.rpartition(":")[0].strip("[]") not in _ANY_ADDRESS


@dataclass(frozen=True)
class Address:
    """An address advertised to clients. `server`: the server that a connection to the address reached; if empty,
    `reason` explains why none was reached."""

    address: str
    server: str = ""
    reason: str = ""


@dataclass(frozen=True)
class StreamTest:
    """The test of a stream with this number of `replicas`. If it is 0, the test was skipped because of `reason`;
    otherwise `reason` is the failure, empty if the test passed."""

    replicas: int = 0
    reason: str = ""

    @property
    def failed(self) -> bool:
        return self.replicas > 0 and bool(self.reason)


@dataclass(frozen=True)
class Flow:
    """The observations of a smoke test. `expected`: names of the expected servers. `announced`: the announcements of
    the servers that were reached. `unreached`: URL → the reason. `addresses`: the further addresses advertised to
    clients. `endpoints`: the connections that exchanged messages; `received`: for each endpoint, the endpoints whose
    messages it received."""

    expected: frozenset[str] = frozenset()
    announced: tuple[Announcement, ...] = ()
    unreached: Mapping[str, str] = field(default_factory=dict)
    addresses: tuple[Address, ...] = ()
    endpoints: tuple[str, ...] = ()
    received: Mapping[str, Collection[str]] = field(default_factory=dict)
    stream: StreamTest = StreamTest()

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Return all pairs of sender and receiver; a single endpoint is its own receiver."""
        ends = self.endpoints
        return [(ends[0], ends[0])] if len(ends) == 1 else list(permutations(ends, 2))

    @property
    def broken_pairs(self) -> list[tuple[str, str]]:
        """Return the pairs whose message did not arrive."""
        return [(sender, receiver) for sender, receiver in self.pairs if sender not in self.received.get(receiver, ())]

    @property
    def names(self) -> frozenset[str]:
        """Return the names of the servers that were reached."""
        return frozenset(one.name for one in self.announced)


def addresses_to_try(announced: Sequence[Announcement], tried: Collection[str]) -> list[str]:
    """Return the advertised addresses that have not been tried yet, each once, in order.

    If a reload changes client_advertise, the server keeps advertising the old address until its next start; the address
    that it actually uses has been tried already.
    """
    advertised = dict.fromkeys(
        address
        for one in announced
        for address in (*one.advertised, *((one.own,) if one.explicit and one.advertised else ()))
    )
    return [address for address in advertised if address not in tried]


def flow_warnings(flow: Flow) -> list[str]:
    """Return possibly intended deviations: unreachable interface addresses of servers that are reachable at other
    addresses."""
    owners = _owners(flow.announced)
    silent = [one for one in flow.addresses if not one.server and one.address not in owners]
    if not silent or not _all_reached(flow):
        return []
    names = ", ".join(one.address for one in silent[:4]) + (", ..." if len(silent) > 4 else "")
    return [f"{names}, also advertised to clients, are unreachable from here; client_advertise chooses one address"]


def flow_failures(flow: Flow) -> list[str]:
    """Return the failures, the most fundamental first; empty if every test passed."""
    lines = [f"{url}: {reason}" for url, reason in flow.unreached.items()]
    owners = _owners(flow.announced)
    for one in flow.addresses:
        if not one.server and one.address in owners:
            lines.append(f"{owners[one.address]} advertises {one.address} to clients: {one.reason}")
        elif not one.server and not _all_reached(flow):
            lines.append(f"{one.address} is advertised to clients: {one.reason}")
        elif one.server and one.server not in flow.expected | flow.names:
            lines.append(
                f"{one.address} is advertised to clients but leads to {one.server}, a server of another cluster"
            )
    missing = sorted(flow.expected - flow.names - {one.server for one in flow.addresses})
    if missing and not flow.unreached:
        lines.append(f"no address leads to {', '.join(missing)}")
    lines += _pair_lines(flow)
    if flow.stream.failed:
        lines.append(f"a stream of {flow.stream.replicas} replica(s): {flow.stream.reason}")
    if len(lines) > MAX_LINES:
        lines = [*lines[: MAX_LINES - 1], f"and {len(lines) - MAX_LINES + 1} more"]
    return lines


def _owners(announced: Sequence[Announcement]) -> dict[str, str]:
    """Return the server to which each address was assigned."""
    return {one.own: one.name for one in announced if one.explicit}


def _all_reached(flow: Flow) -> bool:
    return flow.expected <= flow.names and not flow.unreached


def _pair_lines(flow: Flow) -> list[str]:
    lines = list(_broken(flow))
    more = len(lines) - MAX_PAIRS
    return lines if more <= 0 else [*lines[:MAX_PAIRS], f"and {more} more pairs of servers"]


def _broken(flow: Flow) -> Iterator[str]:
    """Yield a line for each server that is cut off, then for each other pair."""
    broken = set(flow.broken_pairs)
    ends = flow.endpoints
    if len(ends) == 1 and broken:
        yield f"{ends[0]} does not deliver a message to the client that sent it"
        return
    cut_off = [one for one in ends if all({(one, other), (other, one)} <= broken for other in ends if other != one)]
    if len(cut_off) == len(ends) > 2:
        yield f"no message passes between any two servers ({', '.join(ends)})"
        return
    alone = cut_off if len(ends) > 2 else []
    for one in alone:
        yield f"{one} exchanges no message with any other server"
    reported = set(alone)
    for sender, receiver in flow.broken_pairs:
        if sender in reported or receiver in reported:
            continue
        if (receiver, sender) not in broken:
            yield f"messages from {sender} do not reach {receiver}"
        elif sender < receiver:
            yield f"{sender} and {receiver} exchange no messages"
