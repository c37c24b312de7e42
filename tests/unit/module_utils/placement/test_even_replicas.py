# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replicas are moved until no allowed move helps, and the promised result is compared with every possible placement."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ansible_collections.natsops.jetstream.plugins.module_utils.placement.even_replicas import (
    BYTES,
    GOALS,
    HA_ASSETS,
    WRITE_BYTES,
    BalanceLimits,
    BalanceStep,
    PlacedGroup,
    ReplicaHost,
    even_replicas,
)
from hypothesis import given, settings
from hypothesis import strategies as st

ROOM = {"file": 10**9}


def host(name: str, **changes: object) -> ReplicaHost:
    return ReplicaHost(name, **{"room": ROOM, **changes})  # type: ignore[arg-type]


def placed(
    members: Sequence[str], names: Sequence[str], size: float = 1, rate: float = 0, **changes: object
) -> PlacedGroup:
    values = {"able": frozenset(names), "tagged": frozenset(names), "size": int(size), "need": int(size)}
    return PlacedGroup(frozenset(members), (float(size), float(rate), 1.0), **{**values, **changes})  # type: ignore[arg-type]


def ended(groups: Sequence[PlacedGroup], steps: Sequence[BalanceStep]) -> list[set[str]]:
    """Return the members of each group after the steps. Each step moves a replica to a server that has none of the
    group."""
    members = [set(group.members) for group in groups]
    for step in steps:
        assert step.source in members[step.group] and step.target not in members[step.group]
        members[step.group] = members[step.group] - {step.source} | {step.target}
    return members


def loads(
    groups: Sequence[PlacedGroup], members: Sequence[set[str]], names: Sequence[str], goal: int
) -> dict[str, float]:
    return {name: sum(group.weights[goal] for group, mine in zip(groups, members) if name in mine) for name in names}


def squares(carried: dict[str, float]) -> float:
    return sum(load * load for load in carried.values())


def optimum(groups: Sequence[PlacedGroup], names: Sequence[str]) -> float:
    """Return the minimum sum of squared bytes over all placements."""
    reached = {(0.0,) * len(names)}
    for group in groups:
        size = group.weights[BYTES]
        reached = {
            # Servers are interchangeable, because each of them may have any replica.
            tuple(sorted(load + size * (at in chosen) for at, load in enumerate(carried)))
            for carried in reached
            for chosen in itertools.combinations(range(len(names)), len(group.members))
        }
    return min(sum(load * load for load in carried) for carried in reached)


@st.composite
def small(draw: st.DrawFn, sizes: st.SearchStrategy[int]) -> tuple[list[str], list[PlacedGroup]]:
    names = [f"n{number}" for number in range(1, draw(st.integers(2, 4)) + 1)]
    groups = []
    for _number in range(draw(st.integers(1, 5))):
        members = draw(st.permutations(names))[: draw(st.integers(1, len(names)))]
        groups.append(placed(members, names, draw(sizes)))
    return names, groups


@settings(deadline=None)
@given(small(st.just(3)))
def test_replicas_of_equal_size_end_at_the_optimum_by_the_fewest_moves(
    case: tuple[list[str], list[PlacedGroup]],
) -> None:
    names, groups = case
    steps = even_replicas(groups, [host(name) for name in names])
    before = loads(groups, [set(group.members) for group in groups], names, BYTES)
    after = loads(groups, ended(groups, steps), names, BYTES)
    assert squares(after) == optimum(groups, names)
    average = sum(before.values()) / len(names)
    # From each server, the load above the rounded-up share must be moved away; to each server, the load missing from
    # the rounded-down share must be moved.
    most, least = -(-average // 3) * 3, average // 3 * 3
    needed = max(
        sum(max(0.0, load - most) for load in before.values()), sum(max(0.0, least - load) for load in before.values())
    )
    assert 3 * len(steps) == needed


@settings(deadline=None)
@given(small(st.integers(1, 20)))
def test_other_sizes_end_as_near_to_the_optimum_as_is_promised(case: tuple[list[str], list[PlacedGroup]]) -> None:
    names, groups = case
    members = ended(groups, even_replicas(groups, [host(name) for name in names]))
    after = loads(groups, members, names, BYTES)
    for here, there in itertools.permutations(names, 2):
        movable = [group.weights[BYTES] for group, mine in zip(groups, members) if here in mine and there not in mine]
        assert after[here] - after[there] <= min(movable, default=0), (here, there)
    largest = max(group.weights[BYTES] for group in groups)
    assert squares(after) <= optimum(groups, names) + len(names) * largest**2 / 4


@st.composite
def guarded(draw: st.DrawFn) -> tuple[list[ReplicaHost], list[PlacedGroup], BalanceLimits]:
    """Servers in zones, some with little space or few free assets, and groups with their own tags and unique tags."""
    names = [f"n{number}" for number in range(1, draw(st.integers(3, 6)) + 1)]
    hosts = [
        host(
            name,
            zone=draw(st.sampled_from("abc")),
            room={"file": draw(st.integers(0, 40))},
            asset_room=draw(st.sampled_from([0.0, 1.0, 3.0, float("inf")])),
            receives=draw(st.integers(0, 4)) > 0,
        )
        for name in names
    ]
    groups = []
    for _number in range(draw(st.integers(1, 8))):
        members = draw(st.permutations(names))[: draw(st.integers(1, 3))]
        unique = draw(st.sampled_from([None, {item.name: item.zone for item in hosts}]))
        able = frozenset(draw(st.lists(st.sampled_from(names), unique=True))) | frozenset(members)
        groups.append(
            placed(
                members,
                names,
                draw(st.integers(1, 20)),
                draw(st.integers(0, 9)),
                able=able,
                unique=unique,
                movable=draw(st.integers(0, 5)) > 0,
                tagged=draw(st.sampled_from([able, frozenset()])),
            )
        )
    limits = BalanceLimits(
        draw(st.sampled_from([0.0, 0.1, 0.5])),
        draw(st.sampled_from([None, 0, 2])),
        draw(st.sampled_from([None, 0, 15])),
    )
    return hosts, groups, limits


def refused(
    hosts: Sequence[ReplicaHost],
    groups: Sequence[PlacedGroup],
    members: Sequence[set[str]],
    room: dict[str, float],
    assets: dict[str, float],
    step: BalanceStep,
) -> str:
    """Return the hard goal that the step violates, judged from the definitions alone; "" if it violates none."""
    by_name = {item.name: item for item in hosts}
    group, mine, target = groups[step.group], members[step.group], by_name[step.target]
    later = mine - {step.source} | {step.target}
    if not group.movable or not target.receives or step.source not in mine or step.target in mine:
        return "member"
    if step.target not in group.able:
        return "tags"
    if len({by_name[name].zone for name in later}) < len({by_name[name].zone for name in mine}):
        return "zones"
    if group.unique and group.unique[step.target] in {group.unique[name] for name in mine - {step.source}}:
        return "unique_tag"
    if group.need > room[step.target]:
        return "room"
    if group.weights[HA_ASSETS] > assets[step.target]:
        return "assets"
    rivals = {
        name
        for name in group.able - mine - {step.target}
        if not group.unique or group.unique[name] not in {group.unique[other] for other in mine - {step.source}}
    }
    return "tagged" if step.target not in group.tagged and rivals else ""


def gain(before: dict[str, float], weight: float, step: BalanceStep) -> float:
    return weight * (before[step.source] - before[step.target] - weight)


@settings(deadline=None)
@given(guarded())
def test_each_step_keeps_the_hard_goals_and_helps_and_none_is_left_that_would(
    case: tuple[list[ReplicaHost], list[PlacedGroup], BalanceLimits],
) -> None:
    hosts, groups, limits = case
    names = [item.name for item in hosts]
    members = [set(group.members) for group in groups]
    room = {item.name: float(item.room["file"]) for item in hosts}
    assets = {item.name: item.asset_room for item in hosts}
    steps = even_replicas(groups, hosts, limits)
    assert steps == even_replicas(groups, hosts, limits)
    fair = [sum(loads(groups, members, names, goal).values()) / len(names) for goal in GOALS]
    for step in steps:
        assert refused(hosts, groups, members, room, assets, step) == ""
        group = groups[step.group]
        now = [loads(groups, members, names, goal) for goal in GOALS]
        assert gain(now[step.goal], group.weights[step.goal], step) > 0
        for earlier in range(step.goal):
            weight, share, off = group.weights[earlier], fair[earlier], limits.tolerance
            within = (
                now[earlier][step.source] - weight >= share * (1 - off) - 1e-6
                and now[earlier][step.target] + weight <= share * (1 + off) + 1e-6
            )
            assert within or gain(now[earlier], weight, step) >= -1e-6
        members[step.group] = members[step.group] - {step.source} | {step.target}
        room[step.target] -= group.need
        assets[step.target] -= group.weights[HA_ASSETS]
    moved = sum(groups[step.group].size for step in steps)
    assert limits.moves is None or len(steps) <= limits.moves
    assert limits.size is None or moved <= limits.size
    if limits.moves is not None or limits.size is not None or any(step.goal != BYTES for step in steps):
        return
    after = loads(groups, members, names, BYTES)
    for index, (source, target) in itertools.product(range(len(groups)), itertools.permutations(names, 2)):
        step = BalanceStep(index, source, target, BYTES)
        outside = after[source] > fair[BYTES] * (1 + limits.tolerance) or after[target] < fair[BYTES] * (
            1 - limits.tolerance
        )
        if outside and not refused(hosts, groups, members, room, assets, step):
            weight, least = groups[index].weights[BYTES], limits.tolerance * fair[BYTES]
            assert after[source] - after[target] <= weight + least + 1e-6, step


def test_the_goals_come_in_their_order_and_within_the_tolerance() -> None:
    names = ["n1", "n2"]
    # Bytes are balanced, but writes and assets are not. A tolerance of 10 % of the bytes lets one replica move.
    groups = [placed(["n1"], names, 10, 100), *(placed(["n1"], names, 100, 5) for _number in range(4))]
    groups += [placed(["n2"], names, 410, 0)]
    hosts = [host(name) for name in names]
    (step,) = even_replicas(groups, hosts, BalanceLimits(0.1))[:1]
    assert (step.goal, step.group) == (WRITE_BYTES, 0)
    assert [step.goal for step in even_replicas(groups, hosts, BalanceLimits(0.0))] == []
    only_assets = [placed(["n1"], names, 0) for _number in range(4)]
    assert [step.goal for step in even_replicas(only_assets, hosts)] == [HA_ASSETS, HA_ASSETS]


def test_larger_servers_get_more_and_quiet_ones_first() -> None:
    names = ["n1", "n2", "n3"]
    groups = [placed(["n1"], names) for _number in range(12)]
    uneven = [host("n1", share=1.0), host("n2", share=2.0), host("n3", share=1.0)]
    members = ended(groups, [step for step in even_replicas(groups, uneven) if step.goal == BYTES])
    assert loads(groups, members, names, BYTES) == {"n1": 3, "n2": 6, "n3": 3}
    busy = [host("n1"), host("n2", connections=9), host("n3", connections=1)]
    assert even_replicas(groups, busy)[0].target == "n3"


def test_bytes_that_move_are_bytes_that_must() -> None:
    names = ["n1", "n2", "n3", "n4", "n5"]
    groups = [placed(["n1", "n2", "n3"], names, 100 + number) for number in range(30)]
    steps = even_replicas(groups, [host(name) for name in names], BalanceLimits(0.02))
    before = loads(groups, [set(group.members) for group in groups], names, BYTES)
    after = loads(groups, ended(groups, steps), names, BYTES)
    assert max(after.values()) <= 1.02 * sum(after.values()) / 5
    assert sum(groups[step.group].size for step in steps) == sum(max(0, before[name] - after[name]) for name in names)
