# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Approved plans of assets: order, stale plans, remaining steps, deletions, and the course after failures."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.apply import (
    DONE,
    FAILED,
    SKIPPED,
    AssetsApproval,
    Course,
    deletion_refusals,
    difference,
    open_actions,
    open_lines,
    plan_problems,
    remaining_steps,
    stale_reasons,
    steps_page,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.document import AssetsDocument
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.plan import (
    LiveAssets,
    LiveEntry,
    make_plan,
    revision,
)
from support.asset_plans import document, live, live_consumer, live_stream

Plan = dict[str, Any]
NOW = datetime(2026, 11, 29, 12, tzinfo=timezone.utc)


def plan(of: AssetsDocument, state: LiveAssets, confirm: Collection[str] = (), delete: Collection[str] = ()) -> Plan:
    """Return a plan as it is read from a file."""
    return dict(json.loads(json.dumps(make_plan([of], {"A": state}, confirm, delete))))


def replanned(approved: Plan, of: AssetsDocument, state: LiveAssets) -> Plan:
    return make_plan([of], {"A": state}, *AssetsApproval(approved).names("A"))


def reasons(approved: Plan, of: AssetsDocument, state: LiveAssets) -> list[str]:
    return stale_reasons(approved, replanned(approved, of, state))


def remaining(approved: Plan, of: AssetsDocument, state: LiveAssets) -> list[tuple[str, str]]:
    return [(step["action"], step["name"]) for step in remaining_steps(approved, replanned(approved, of, state))]


def steps(found: Plan) -> list[tuple[str, list[str]]]:
    return [(f"{step['action']} {step['kind']} {step['name']}", step["after"]) for step in found["steps"]]


# --- Order ------------------------------------------------------------------------------------------------------------


def test_consumers_and_entries_follow_their_stream_and_copies_follow_their_origin() -> None:
    wanted = document(
        "streams: {S: {subjects: [s.>]}}\nmirrors: {A: {of: B, consumers: {c: {}}}, B: {of: S}}\n"
        "kv: {b: {entries: {k: {value: v}}}}\n"
    )
    assert steps(plan(wanted, live())) == [
        ("create stream S", []),
        ("create stream B", ["stream S"]),
        ("create stream A", ["stream B"]),
        ("create consumer A/c", ["stream A"]),
        ("create key-value bucket b", []),
        ("create entry b/k", ["key-value bucket b"]),
    ]


def test_stream_is_deleted_after_its_mirror_was_promoted() -> None:
    before = document("prune: owned\nstreams: {S: {subjects: [s.>]}}\nmirrors: {M: {of: S}}")
    now = document("prune: owned\nstreams: {M: {subjects: [m.>]}}")
    state = live(live_stream(before, "S"), live_stream(before, "M", subjects=[]))
    found = plan(now, state, confirm=["M"], delete=["S"])
    assert steps(found) == [("change stream M", []), ("delete stream S", ["stream M"])]
    unconfirmed = plan(now, state, delete=["S"])
    assert steps(unconfirmed) == [("delete stream S", ["stream M"])]
    assert open_actions(unconfirmed, unconfirmed["steps"]) == {("A", "stream M"): "needs confirmation"}
    assert open_lines(unconfirmed, unconfirmed["steps"]) == ["A: stream M is needs confirmation"]


def test_streams_of_one_prune_are_deleted_before_their_origin() -> None:
    before = document("prune: owned\nstreams: {A: {subjects: [a.>]}, K: {subjects: [k]}}\nmirrors: {M: {of: A}}")
    now = document("prune: owned\nstreams: {K: {subjects: [k]}}")
    state = live(live_stream(before, "A"), live_stream(before, "M", subjects=[]), live_stream(before, "K"))
    found = plan(now, state, delete=["A", "M"])
    assert steps(found) == [("delete stream M", []), ("delete stream A", ["stream M"])]


def test_consumers_are_deleted_before_their_stream_changes() -> None:
    before = document("prune: owned\nstreams: {S: {subjects: [s.>], consumers: {old: {}}}}")
    now = document("prune: owned\nstreams: {S: {subjects: [s.>], max_age: 7d, consumers: {new: {}}}}")
    state = live(live_stream(before, "S"), consumers={"S": {"old": live_consumer(before, "S", "old")}})
    assert steps(plan(now, state, delete=["S/old"])) == [
        ("delete consumer S/old", []),
        ("change stream S", ["consumer S/old"]),
        ("create consumer S/new", ["consumer S/old", "stream S"]),
    ]


def test_new_origin_that_waits_for_its_copy_is_refused() -> None:
    before = document("streams: {S: {subjects: [s, x]}}")
    now = document("streams: {S: {subjects: [s], sources: [N]}, N: {subjects: [x]}}")
    found = plan(now, live(live_stream(before, "S")), confirm=["S"])
    assert found["problems"] == [
        "streams exchange subjects: N; remove the subjects in one plan and add them in the next"
    ]


# --- Stale plans ------------------------------------------------------------------------------------------------------

ONE = document("streams: {S: {subjects: [s.>], consumers: {c: {}}}}")
WIDER = document("streams: {S: {subjects: [s.>, t.>], description: wide, consumers: {c: {}}}}")


def present(messages: int = 5, consumer: bool = True, **config: Any) -> LiveAssets:
    consumers = {"S": {"c": live_consumer(ONE, "S", "c")}} if consumer else {}
    return live(live_stream(ONE, "S", messages, **config), consumers=consumers)


def test_plan_is_not_stale_on_unchanged_assets_and_more_messages() -> None:
    approved = plan(WIDER, present(5))
    assert reasons(approved, WIDER, present(9000)) == []
    assert remaining(approved, WIDER, present(9000)) == [("change", "S")]


def test_plan_is_stale_if_its_stream_has_a_different_setting() -> None:
    approved = plan(WIDER, present())
    assert reasons(approved, WIDER, present(max_msgs=7)) == ["stream S of account A: it has changed since"]


def test_metadata_of_servers_is_not_part_of_a_revision() -> None:
    info = live_stream(ONE, "S")
    upgraded = {**info, "config": {**info["config"], "metadata": {**info["config"]["metadata"], "_nats.ver": "2.15.1"}}}
    assert revision(info) == revision(upgraded)
    assert revision(info) != revision({**info, "config": {**info["config"], "max_msgs": 7}})


def test_plan_is_stale_if_its_stream_was_recreated() -> None:
    approved = plan(WIDER, present())
    other = live_stream(ONE, "S", 5)
    recreated = live({**other, "created": "2026-02-02T00:00:00Z"}, consumers={"S": {"c": live_consumer(ONE, "S", "c")}})
    assert reasons(approved, WIDER, recreated) == ["stream S of account A: it has changed since"]


def test_plan_is_stale_if_a_different_asset_drifted() -> None:
    approved = plan(WIDER, present())
    drifted = live(
        live_stream(ONE, "S", 5), consumers={"S": {"c": live_consumer(ONE, "S", "c", ack_wait=5_000_000_000)}}
    )
    assert reasons(approved, WIDER, drifted) == ["consumer S/c of account A: the plan does not list the action change"]


def test_plan_is_stale_if_its_stream_was_deleted() -> None:
    approved = plan(WIDER, present())
    assert reasons(approved, WIDER, live())[0] == ("stream S of account A: the action is now create instead of change")


def test_plan_is_stale_if_the_first_message_arrived_for_a_limit() -> None:
    limited = document("streams: {S: {subjects: [s.>], max_msgs: 3, consumers: {c: {}}}}")
    approved = plan(limited, present(2))
    assert remaining(approved, limited, present(2)) == [("change", "S")]
    assert reasons(approved, limited, present(9)) == [
        "stream S of account A: the plan does not list that max_msgs: 3 deletes 6 of 9 messages: the oldest, "
        "sequences 1 to 6 (the stream has 1 to 9)"
    ]


def test_announced_cost_may_grow_while_messages_arrive() -> None:
    limited = document("streams: {S: {subjects: [s.>], max_msgs: 3, consumers: {c: {}}}}")
    assert reasons(plan(limited, present(9), confirm=["S"]), limited, present(50)) == []


def test_deletion_is_stale_if_messages_arrived() -> None:
    before = document("prune: owned\nstreams: {S: {subjects: [s.>]}, T: {subjects: [t.>]}}")
    now = document("prune: owned\nstreams: {T: {subjects: [t.>]}}")

    def pruned(messages: int) -> LiveAssets:
        return live(live_stream(before, "S", messages), live_stream(before, "T"))

    approved = plan(now, pruned(5), delete=["S"])
    assert reasons(approved, now, pruned(5)) == []
    assert reasons(approved, now, pruned(6)) == ["stream S of account A: it has 6 messages, and the plan lists 5"]
    assert remaining(approved, now, live(live_stream(before, "T"))) == []


def test_plan_is_stale_without_a_leader() -> None:
    approved = plan(WIDER, present())
    found = reasons(approved, WIDER, live(live_stream(ONE, "S", 5), unknown={"S": "no leader"}))
    assert found == ["stream S of account A: its state is unknown: no leader"]


def test_changed_and_missing_documents_are_named() -> None:
    approved = plan(WIDER, present())
    assert reasons(approved, ONE, present()) == ["document d has changed"]
    both = make_plan([WIDER, document("streams: {X: {}}", "e")], {"A": present()}, (), ())
    assert stale_reasons(both, replanned(approved, WIDER, present())) == ["document e is missing"]


def test_values_that_are_not_plans_are_refused() -> None:
    assert plan_problems({}) == ["the plan has version None, and this collection needs 1"]
    assert plan_problems({"version": 1}) == ["the plan has no valid problems, documents, steps, assets"]
    assert plan_problems({**plan(ONE, live()), "problems": ["wrong cluster"]}) == ["wrong cluster"]


def test_plan_for_the_wrong_cluster_is_stale() -> None:
    approved = plan(WIDER, present())
    elsewhere = live(live_stream(ONE, "S", 5), consumers={"S": {"c": live_consumer(ONE, "S", "c")}}, cluster="C2")
    assert reasons(approved, WIDER, elsewhere) == ["document d is for cluster C1, but the connected server is in C2"]


# --- Resuming ---------------------------------------------------------------------------------------------------------


def test_finished_steps_are_not_repeated() -> None:
    approved = plan(WIDER, live())
    assert remaining(approved, WIDER, live()) == [("create", "S"), ("create", "S/c")]
    half = live(live_stream(WIDER, "S"))
    assert reasons(approved, WIDER, half) == []
    assert remaining(approved, WIDER, half) == [("create", "S/c")]
    whole = live(live_stream(WIDER, "S"), consumers={"S": {"c": live_consumer(WIDER, "S", "c")}})
    assert (reasons(approved, WIDER, whole), remaining(approved, WIDER, whole)) == ([], [])


def test_stream_that_changed_in_part_is_resumed() -> None:
    moved = document("streams: {S: {subjects: [s.>], replicas: 3, placement: {tags: [ssd]}, consumers: {c: {}}}}")

    def led(**config: Any) -> LiveAssets:
        info = {**live_stream(ONE, "S", 5, **config), "cluster": {"name": "C1", "leader": "n1", "replicas": []}}
        return live(info, consumers={"S": {"c": live_consumer(ONE, "S", "c")}})

    approved = plan(moved, led())
    half = led(placement={"tags": ["ssd"]})
    assert reasons(approved, moved, half) == []
    assert remaining(approved, moved, half) == [("change", "S")]


def test_entry_that_was_written_since_is_stale_and_a_finished_one_is_not() -> None:
    wanted = document("kv: {b: {entries: {k: {value: v, mode: own}}}}")
    bucket = live_stream(wanted, "KV_b", 1)

    def entry(revision: int, value: bytes) -> LiveAssets:
        return live(bucket, entries={("KV_b", "k"): LiveEntry(revision, value)})

    approved = plan(wanted, entry(4, b"old"))
    assert remaining(approved, wanted, entry(4, b"old")) == [("change", "b/k")]
    assert reasons(approved, wanted, entry(5, b"other")) == ["entry b/k of account A: it has changed since"]
    assert reasons(approved, wanted, entry(6, b"old")) == ["entry b/k of account A: it has changed since"]
    assert (reasons(approved, wanted, entry(5, b"v")), remaining(approved, wanted, entry(5, b"v"))) == ([], [])


def test_unconfirmed_changes_are_not_made() -> None:
    limited = document("streams: {S: {subjects: [s.>], max_msgs: 3, consumers: {c: {}}}}")
    approved = plan(limited, present(9))
    assert (reasons(approved, limited, present(9)), remaining(approved, limited, present(9))) == ([], [])


# --- Deletions --------------------------------------------------------------------------------------------------------

DELETED = [{"account": "A", "kind": "stream", "name": "OLD", "action": "delete"}]
MESSAGES = {("A", "OLD"): 5}


def refusals(backup: timedelta | None = None, messages: int = 5, **names: Collection[str]) -> list[str]:
    backups = {} if backup is None else {("A", "OLD"): (NOW - backup).isoformat()}
    return deletion_refusals(DELETED, {("A", "OLD"): messages}, backups, AssetsApproval({}, **names), NOW)


def test_stream_with_messages_needs_its_name_and_a_recent_backup() -> None:
    assert refusals() == [
        "stream OLD of account A has 5 messages: list OLD in confirm_delete",
        "stream OLD of account A has no backup: back it up, or list OLD in confirm_without_backup",
    ]
    assert refusals(timedelta(hours=23), deletions=["OLD"]) == []
    assert refusals(timedelta(hours=25), deletions=["OLD"]) == [
        "stream OLD of account A: the last backup, of 2026-11-28T11:00:00+00:00, is older than 24 hours: back it up, or "
        "list OLD in confirm_without_backup"
    ]
    assert refusals(deletions=["OLD"], without_backup=["OLD"]) == []


def test_empty_stream_needs_neither_name_nor_backup() -> None:
    assert refusals(messages=0) == []


# --- Course -----------------------------------------------------------------------------------------------------------


def step(name: str, *after: str) -> dict[str, Any]:
    return {"account": "A", "kind": "stream", "name": name, "action": "create", "after": list(after)}


def test_dependants_of_a_failed_step_are_skipped_and_others_continue() -> None:
    course = Course({})
    course.record(step("S"), FAILED, "no room")
    assert course.obstacle(step("M", "stream S")) == "it needs stream S, which was not changed"
    course.record(step("M", "stream S"), SKIPPED, course.obstacle(step("M", "stream S")))
    assert course.obstacle(step("N", "stream M")) == "it needs stream M, which was not changed"
    assert course.obstacle(step("T")) == ""
    course.record(step("T"), DONE)
    assert course.failure() == (
        "1 change failed, 1 were skipped, and 1 were made. Fix the causes and run the same plan again\n"
        "stream S of account A: no room\nstream M of account A: it needs stream S, which was not changed"
    )


def test_step_waits_for_an_action_that_is_not_confirmed() -> None:
    course = Course({("A", "stream S"): "needs confirmation"})
    assert course.obstacle(step("M", "stream S")) == "it needs stream S, which is needs confirmation"
    assert course.obstacle({**step("M", "stream S"), "account": "B"}) == ""
    assert course.failure() == ""


def test_no_step_of_an_account_starts_after_its_connection_failed() -> None:
    course = Course({})
    course.record(step("S"), FAILED, "no server answers")
    course.unreachable.add("A")
    assert course.obstacle(step("T")) == "the connection has failed"
    assert course.obstacle({**step("T"), "account": "B"}) == ""


def test_diff_and_page_show_the_changes() -> None:
    approved = plan(WIDER, present())
    todo = remaining_steps(approved, replanned(approved, WIDER, present()))
    found = difference(todo)
    assert found["before"]["stream S of account A"]["subjects"] == ["s.>"]
    assert found["after"]["stream S of account A"]["description"] == "wide"
    assert difference([{**DELETED[0], "changes": []}]) == {"before": {"stream OLD of account A": {}}, "after": {}}
    lines = "\n".join(steps_page(todo, ["A: stream T is refused"]).lines)
    assert "│ A       │ stream │ S    │ change │" in lines
    assert "A: stream T is refused" in lines
    assert list(steps_page([]).lines) == ["Nothing changes."]


@pytest.mark.parametrize("size", [1500])
def test_order_of_many_steps_is_quick(size: int) -> None:
    wanted = document("streams: {" + ", ".join(f"S{one}: {{consumers: {{c: {{}}}}}}" for one in range(size // 2)) + "}")
    found = plan(wanted, live())
    assert len(found["steps"]) == size
