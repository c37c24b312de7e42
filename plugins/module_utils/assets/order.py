# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order in which a plan changes the assets of an account. Pure.

Consumers that must go are deleted first, streams last. A stream gives up subjects before another one stores them, so no
two streams overlap at any moment."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..screen import printable
from .buckets import kv_stream, object_stream
from .document import KV, OBJECTS

CREATE, CHANGE, DELETE = "create", "change", "delete"
CONSUMER, ENTRY = "consumer", "entry"

PHASES = (
    DELETE_CONSUMERS := "delete consumers",
    "update streams",
    "create streams",
    "consumers",
    "mirrors and sources",
    "buckets",
    "entries",
    "delete streams",
)


@dataclass(frozen=True)
class Action:
    """The planned action on one asset. `accepted`: whether the plan carries it out. `position`: the place of its stream
    in the documents. `copied`, `copies`: the streams of the account that a stream mirrors or sources before and after
    the action."""

    kind: str
    name: str
    action: str
    phase: str
    accepted: bool
    position: int = 0
    copied: frozenset[str] = frozenset()
    copies: frozenset[str] = frozenset()

    @property
    def label(self) -> str:
        """Return the name of the asset, unique in its account, such as `consumer ORDERS/billing`."""
        return f"{self.kind} {printable(self.name)}"

    @property
    def stream(self) -> str:
        return stream_name(self.kind, self.name)


def stream_name(kind: str, name: str) -> str:
    """Return the stream that an asset of a plan is, or belongs to."""
    head = name.partition("/")[0]
    return kv_stream(head) if kind in (KV, ENTRY) else object_stream(head) if kind == OBJECTS else head


def ordered_steps(
    actions: Sequence[Action], waits: Mapping[str, Iterable[str]]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the accepted actions in their order, and the streams that wait for each other.

    `waits`: stream → the streams that must first give up subjects. `after` of a step: the labels of the actions that it
    needs."""
    finder = _Needs(actions, waits)
    needs = {place: finder.of(one) for place, one in enumerate(actions)}
    places = {one.label: place for place, one in enumerate(actions)}
    followers: dict[int, list[int]] = {}
    missing = {place: len(found) for place, found in needs.items()}
    for place, found in needs.items():
        for needed in found:
            followers.setdefault(places[needed.label], []).append(place)

    def rank(place: int) -> tuple[int, int, str, int]:
        one = actions[place]
        return PHASES.index(one.phase), one.position, one.name, place

    ready = [rank(place) for place, count in missing.items() if not count]
    heapq.heapify(ready)
    done: list[int] = []
    while ready:
        place = heapq.heappop(ready)[-1]
        done.append(place)
        for follower in followers.get(place, ()):
            missing[follower] -= 1
            if not missing[follower]:
                heapq.heappush(ready, rank(follower))
    blocked = sorted(actions[place].stream for place in missing.keys() - set(done) if waits.get(actions[place].stream))
    steps = [
        {
            "phase": one.phase,
            "kind": one.kind,
            "name": printable(one.name),
            "action": one.action,
            "after": [needed.label for needed in needs[place]],
        }
        for place, one in ((place, actions[place]) for place in done)
        if one.accepted
    ]
    return steps, list(dict.fromkeys(blocked))


class _Needs:
    """Finds the actions that each action needs. An action that the plan does not carry out counts only if the other one
    would be wrong without it."""

    def __init__(self, actions: Sequence[Action], waits: Mapping[str, Iterable[str]]) -> None:
        self._waits = waits
        self._streams = {one.stream: one for one in actions if one.kind not in (CONSUMER, ENTRY)}
        self._deletions: dict[str, list[Action]] = {}
        self._copies: dict[str, list[Action]] = {}
        for one in actions:
            if one.phase == DELETE_CONSUMERS and one.accepted:
                self._deletions.setdefault(one.stream, []).append(one)
            for origin in one.copied:
                self._copies.setdefault(origin, []).append(one)

    def of(self, one: Action) -> list[Action]:
        """Return the actions that an action needs."""
        return [] if one.phase == DELETE_CONSUMERS else list(dict.fromkeys(self._find(one)))

    def _find(self, one: Action) -> Iterator[Action]:
        yield from self._deletions.get(one.stream, ())
        own = self._streams.get(one.stream)
        if one.kind in (CONSUMER, ENTRY):
            if own is not None and own.accepted:
                yield own
        elif one.action == DELETE:
            yield from (other for other in self._copies.get(one.stream, ()) if other is not one)
        else:
            names = dict.fromkeys([*self._waits.get(one.stream, ()), *sorted(one.copies)])
            for name in names:
                other = self._streams.get(name)
                if other is not None and (name in self._waits.get(one.stream, ()) or other.action == CREATE):
                    yield other
