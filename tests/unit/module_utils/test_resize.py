# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which streams get how many replicas, where, and which may not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils._model import (
    Cluster,
    Consumer,
    JetStreamSummary,
    Stream,
)
from ansible_collections.natsops.jetstream.plugins.module_utils._resize import (
    FOLLOW,
    Resize,
    Wanted,
    plan_resize,
    unmatched,
)
from clusters import cluster, consumer, server, stream  # type: ignore[import-not-found, unused-ignore]

FIVE = ["n1", "n2", "n3", "n4", "n5"]


def there(*streams: Stream, room: int = 1000) -> Cluster:
    summary = JetStreamSummary(max_storage=room)
    return replace(cluster(FIVE, *streams), servers=tuple(server(name, summary=summary) for name in FIVE))


def own(owner: str, name: str, members: list[str]) -> Consumer:
    return replace(consumer(owner, name, members), info={"config": {"num_replicas": len(members)}})


def one(among: Cluster, num_replicas: int, **options: Any) -> Resize:
    (found,) = plan_resize(among, [Wanted("APP", "A", num_replicas, **options)])
    return found


def test_patterns_choose_and_the_first_entry_counts() -> None:
    among = there(stream("A1", ["n1"]), stream("A2", ["n1", "n2", "n3"]), stream("B", ["n2"]))
    wanted = [Wanted("APP", "A1", 5), Wanted("APP", "A*", 3), Wanted("OTHER", "*", 3), Wanted("APP", "C?", 3)]
    found = plan_resize(among, wanted)
    assert [(change.stream, change.before, change.after, len(change.gains)) for change in found] == [("A1", 1, 5, 4)]
    assert unmatched(among, wanted) == ["OTHER/*", "APP/C?"]


def test_each_change_takes_its_room_from_the_next() -> None:
    streams = [replace(stream(name, ["n1"]), max_bytes=600) for name in ("A", "B", "C")]
    found = plan_resize(there(*streams), [Wanted("APP", "*", 3)])
    assert [len(change.gains) for change in found] == [2, 2, 0]
    assert "has 400 bytes of file storage free" in found[2].refused and "0 can (none)" in found[2].refused


def test_what_gets_fewer_goes_first() -> None:
    found = plan_resize(
        there(stream("A", ["n1"]), stream("B", ["n1", "n2", "n3"])), [Wanted("APP", "A", 3), Wanted("APP", "B", 1)]
    )
    assert [change.stream for change in found] == ["B", "A"]


def test_a_stream_that_is_not_in_step_is_refused() -> None:
    assert "n3" in one(there(stream("A", ["n1", "n2", "n3"], behind=("n3",))), 1).refused
    assert "leader" in one(there(stream("A", ["n1", "n2", "n3"], led=False)), 1).refused
    assert one(there(stream("A", ["n1", "n2", "n3"])), 1).refused == ""


def test_consumers_with_a_number_of_their_own() -> None:
    members = ["n1", "n2", "n3"]
    consumers = (own("A", "three", members), own("A", "one", ["n1"]), consumer("A", "follower", members))
    among = there(replace(stream("A", members), consumers=consumers))
    assert one(among, 1).consumers == (("three", 1),)
    assert one(among, 5).consumers == ()
    assert one(among, 5, consumers=FOLLOW).consumers == (("three", 0), ("one", 0))
    assert one(among, 3, consumers=FOLLOW).before == 3, "only consumers change"
    assert plan_resize(among, [Wanted("APP", "A", 3)]) == []
