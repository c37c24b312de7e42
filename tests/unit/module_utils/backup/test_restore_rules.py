# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests which streams can be saved and restored, and the losses of a restored stream."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.archive import (
    ENTRIES,
    TAR,
    TAR_END,
    ArchiveEntry,
    encode_entry,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.archive_contents import (
    ArchivedConsumer,
    read_head,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.manifest import Manifest
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.restore_rules import (
    GIB,
    RestoreChanges,
    RestorePlan,
    RestoreRefusal,
    Target,
    backup_caveats,
    backup_problem,
    begins_early,
    consumers_part,
    differences,
    is_later,
    largest_archive,
    longest_archive,
    may_drift,
    plan_restore,
    position,
    recreated_config,
    redeliveries,
    repeats_sources,
    require_restored,
    sources_caveat,
    too_few_pending,
    wanted_config,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.host import s2
from ansible_collections.natsops.jetstream.plugins.module_utils.host.s2 import PlainReader

CONFIG = {
    "name": "S",
    "subjects": ["S.>"],
    "num_replicas": 3,
    "placement": {"cluster": "C1"},
    "duplicate_window": 120 * 10**9,
}
CONTENTS = {"messages": 5, "bytes": 900, "largest": 100, "first_seq": 1, "last_seq": 9, "exact": True}
FULL = {"messages": 100, "first_seq": 1, "last_seq": 100}
HERE = Target("2.15.1", 1 << 20)


def consumer(
    name: str, floor: int = 4, in_archive: bool | None = True, pending: int = 0, **config: Any
) -> dict[str, Any]:
    return {
        "name": name,
        "config": {"durable_name": name, "deliver_policy": "all", **config},
        "delivered": {"consumer_seq": floor + pending, "stream_seq": floor + pending},
        "ack_floor": {"consumer_seq": floor, "stream_seq": floor},
        "num_ack_pending": pending,
        "redelivered": pending,
        "in_archive": in_archive,
    }


def manifest(*consumers: dict[str, Any], **more: Any) -> Manifest:
    found = {"format": ENTRIES, "contents": CONTENTS, **more}
    return Manifest("S", CONFIG, {}, "stream.tar.s2", consumers=consumers, **found)


@pytest.mark.parametrize(
    ("version", "drifts"),
    [
        ("2.10.27", True),
        ("2.11.11", True),
        ("2.11.12", False),
        ("2.12.2", True),
        ("2.12.3", False),
        ("2.14.0", False),
        ("2.15.1", False),
    ],
)
def test_versions_whose_snapshots_let_replicas_drift(version: str, drifts: bool) -> None:
    assert may_drift(version) is drifts
    assert bool(backup_caveats({"num_replicas": 3}, version)) is drifts
    assert backup_caveats({"num_replicas": 1}, version) == []
    assert backup_caveats({"num_replicas": 3, "deny_delete": True, "deny_purge": True}, version) == []


def test_unsavable_streams_are_refused() -> None:
    assert backup_problem({"storage": "memory"}, (), "2.14.3") == (
        "unsupported",
        "nats-server 2.14.3 cannot back up a stream in memory; 2.15 can",
    )
    assert backup_problem({"storage": "memory"}, (), "2.15.0") is None
    problem = backup_problem({"storage": "file"}, {"b", "a"}, "2.15.1")
    assert problem is not None
    assert problem[0] == "leaderless"
    assert "consumers without a leader: a, b." in problem[1]


def test_restore_plan_of_saved_streams() -> None:
    plan = plan_restore(
        manifest(consumer("a"), consumer("b", in_archive=False), consumer("c", in_archive=None)), RestoreChanges(), HERE
    )
    assert plan.config == CONFIG
    assert [entry["name"] for entry in plan.recreate] == ["b", "c"]
    assert (plan.lowered, plan.strip) == ((), False)


def test_requested_changes_are_applied() -> None:
    changes = RestoreChanges("COPY", ["copy.>"], 1, {"cluster": None, "tags": None}, False)
    plan = plan_restore(manifest(consumer("a")), changes, HERE)
    assert plan.config == {
        **{key: CONFIG[key] for key in ("duplicate_window",)},
        "name": "COPY",
        "subjects": ["copy.>"],
        "num_replicas": 1,
    }
    assert (plan.recreate, plan.strip) == ((), True)
    assert plan_restore(manifest(), RestoreChanges(placement={"cluster": "C2", "tags": None}), HERE).config[
        "placement"
    ] == {"cluster": "C2"}


def test_copy_under_another_name_belongs_to_no_document() -> None:
    marks = {"managed-by": "natsops", "natsops.document": "apps", "natsops.hash": "1f"}
    marked = replace(manifest(), config={**CONFIG, "metadata": {**marks, "team": "a"}})
    assert wanted_config(marked, RestoreChanges("COPY"))["metadata"] == {"team": "a"}
    assert "metadata" not in wanted_config(
        replace(marked, config={**CONFIG, "metadata": marks}), RestoreChanges("COPY")
    )
    for same in (RestoreChanges(), RestoreChanges(str(CONFIG["name"]))):
        assert wanted_config(marked, same)["metadata"] == {**marks, "team": "a"}


@pytest.mark.parametrize(("most", "replicas", "expected"), [(1, 1, True), (2, 2, True), (3, 3, False), (5, 3, False)])
def test_the_most_replicas(most: int, replicas: int, expected: bool) -> None:
    plan = plan_restore(manifest(), RestoreChanges(max_replicas=most), HERE)
    assert plan.config["num_replicas"] == replicas
    assert any(f"it gets {replicas} replicas instead of 3" in caveat for caveat in plan.caveats) == expected


def test_isolation_keeps_stored_data_and_disables_actions() -> None:
    kept = {
        "name": "S",
        "compression": "s2",
        "max_msg_size": 100,
        "first_seq": 7,
        "deny_delete": True,
        "allow_direct": True,
    }
    connected = {
        "subjects": ["$JS.EVENT.ADVISORY.>"],
        "subject_transform": {"src": ">", "dest": "a.>"},
        "mirror": {"name": "O"},
        "mirror_direct": True,
        "sources": [{"name": "O"}],
        "republish": {"src": ">", "dest": "b.>"},
        "placement": {"tags": ["ssd"]},
    }
    acting = {
        "max_age": 10**9,
        "max_msgs": 9,
        "max_bytes": 10**12,
        "max_msgs_per_subject": 1,
        "retention": "workqueue",
        "allow_msg_schedules": True,
        "allow_msg_ttl": True,
        "subject_delete_marker_ttl": 10**9,
        "discard": "new",
        "discard_new_per_subject": True,
    }
    saved = replace(manifest(), config={**kept, **connected, **acting, "num_replicas": 3, "storage": "memory"})
    plan = plan_restore(saved, RestoreChanges(num_replicas=1, isolated=True), HERE)
    assert plan.config == {**kept, "num_replicas": 1, "storage": "file"}


def test_expired_messages_may_be_missing_with_any_configuration() -> None:
    saved = replace(manifest(), config={**CONFIG, "allow_msg_ttl": True})
    plan = plan_restore(saved, RestoreChanges(isolated=True), HERE)
    assert "allow_msg_ttl" not in plan.config
    assert differences(saved, plan, {**STATE, "messages": 4, "first_seq": 2}, []) == []


@pytest.mark.parametrize(
    ("saved", "changes", "target", "code", "reason"),
    [
        (
            {},
            RestoreChanges("T"),
            replace(HERE, overlapping=("S", "X")),
            "overlap",
            "subjects of stream T belong to S, X",
        ),
        ({}, RestoreChanges(), replace(HERE, version="2.14.5"), "unsupported", "cannot be read by 2.14.5"),
        ({"format": TAR}, RestoreChanges("T"), HERE, "unsupported", "only be restored under its own name S"),
        ({}, RestoreChanges(), replace(HERE, max_payload=99), "unsupported", "a message of 100 bytes"),
    ],
)
def test_invalid_restores_are_refused(
    saved: dict[str, Any], changes: RestoreChanges, target: Target, code: str, reason: str
) -> None:
    with pytest.raises(RestoreRefusal, match=reason) as caught:
        plan_restore(manifest(**saved), changes, target)
    assert caught.value.code == code


@pytest.mark.parametrize("archive_format", [TAR, ENTRIES])
def test_consumers_with_more_replicas_than_their_stream(archive_format: str) -> None:
    many, few = consumer("many", num_replicas=3), consumer("few", num_replicas=1)
    plan = plan_restore(manifest(many, few, format=archive_format), RestoreChanges(num_replicas=1), HERE)
    assert plan.lowered == ("many",)
    # An archive from 2.14 or earlier is uploaded without its consumers.
    assert plan.strip is (archive_format == TAR)
    recreated = {entry["name"]: entry["config"]["num_replicas"] for entry in plan.recreate}
    assert recreated == ({"many": 0, "few": 1} if archive_format == TAR else {})


def test_redelivered_messages() -> None:
    more = {**consumer("more", floor=5, pending=1), "redelivered": 80}
    anew = {**consumer("anew", pending=1), "delivered": {"consumer_seq": 7, "stream_seq": 7}}
    assert redeliveries([consumer("a", floor=5, pending=3), more, consumer("idle", floor=5), anew], ["anew"]) == [
        "messages delivered but not acknowledged are delivered again: a (3)",
        "messages above the ack floor are delivered again, including acknowledged messages: more (up to 80), anew (up to 3)",
    ]


def test_duplicates_from_sources_are_counted() -> None:
    assert (repeats_sources("2.14.3"), repeats_sources("2.15.1")) == (False, True)
    assert sources_caveat({}) == []
    assert sources_caveat({"A": 2, "B": 1}) == [
        "up to 3 messages arrive twice, from sources that are also restored: A (2), B (1)"
    ]
    assert is_later("2026-11-23T02:00:00.5Z", "2026-11-23T02:00:00Z")
    assert not is_later("2026-11-23T02:00:00Z", "2026-11-23T02:00:00.5Z")


def test_caveats() -> None:
    saved = manifest(consumer("a", pending=3), consumer("b"))
    window, pending = plan_restore(saved, RestoreChanges(), HERE).caveats
    assert "duplicate window of 2m" in window
    assert pending == "messages delivered but not acknowledged are delivered again: a (3)"
    assert plan_restore(replace(saved, format=TAR), RestoreChanges(consumers=False), HERE).caveats == ()
    # A stream that never stored a message has no message ids to lose, unlike a stream whose messages were all deleted.
    for contents, last_seq, expected in ((None, 0, False), (None, 9, True), ({**CONTENTS, "last_seq": 0}, 0, False)):
        empty = replace(
            saved, contents=contents, state={"messages": 0, "first_seq": last_seq + 1, "last_seq": last_seq}
        )
        assert (
            any("message ids" in caveat for caveat in plan_restore(empty, RestoreChanges(), HERE).caveats) is expected
        )
    (crash,) = plan_restore(replace(saved, format=TAR, crashed=True), RestoreChanges(consumers=False), HERE).caveats
    assert crash.endswith("did not stop cleanly: messages deleted just before may reappear")
    ephemeral = {**consumer("e", in_archive=False), "config": {"name": "e"}}
    lacking = replace(manifest(ephemeral, format=TAR), config={**CONFIG, "retention": "interest"})
    assert plan_restore(lacking, RestoreChanges(), HERE).caveats == (
        "ephemeral consumers that are not in the archive must be recreated by their clients: e",
        "until its missing consumers are recreated, a stream with retention interest may drop messages",
    )


def test_a_recreated_consumer_begins_after_its_floor() -> None:
    made = recreated_config(consumer("a", 4, deliver_policy="by_start_time", opt_start_time="then"), "limits")
    assert made == {"name": "a", "durable_name": "a", "deliver_policy": "by_start_sequence", "opt_start_seq": 5}
    assert recreated_config(consumer("a", 0), "limits")["deliver_policy"] == "all"
    assert recreated_config(consumer("a", 4), "workqueue")["deliver_policy"] == "all"
    # The consumer was created when the stream was empty, so it must receive all messages that arrived since.
    made_early = recreated_config(consumer("a", 0, deliver_policy="new"), "limits")
    assert (made_early["deliver_policy"], made_early["opt_start_seq"]) == ("by_start_sequence", 1)
    assert position({"config": made, "ack_floor": {"stream_seq": 0}}) == 4
    assert position({"config": made, "ack_floor": {"stream_seq": 8}}) == 8
    assert position({"config": {"deliver_policy": "all"}, "ack_floor": {}}) == 0


@pytest.mark.parametrize(
    ("config", "delivered", "last_seq", "early"),
    [
        ({"opt_start_seq": 61}, 9, 100, True),
        ({"opt_start_seq": 61}, 60, 100, False),
        # The consumer's first message may have been deleted, or may not have arrived yet.
        ({"opt_start_seq": 61}, 80, 100, False),
        ({"opt_start_seq": 61}, 50, 50, False),
        ({"opt_start_seq": 61}, 49, 50, True),
        ({"deliver_policy": "all"}, 0, 100, False),
    ],
)
def test_a_consumer_begins_where_it_was_put(config: dict[str, Any], delivered: int, last_seq: int, early: bool) -> None:
    info = {"config": {"deliver_policy": "by_start_sequence", **config}, "delivered": {"stream_seq": delivered}}
    assert begins_early(info, last_seq) is early


@pytest.mark.parametrize(
    ("delivered", "pending", "config", "few"),
    [
        (60, 40, {}, False),
        (60, 39, {}, True),
        # The consumer receives all existing messages, possibly including earlier ones: the stream lacks 21 to 25 and
        # begins at 11.
        (0, 85, {}, False),
        (0, 84, {}, True),
        (60, 0, {"filter_subject": "S.1"}, False),
        (60, 0, {"filter_subjects": ["S.1", "S.2"]}, False),
        (0, 0, {"filter_subject": "S.1"}, True),
        (0, 1, {"filter_subject": "S.1"}, False),
        (0, 0, {"filter_subject": "S.2"}, False),
        (0, 0, {"filter_subjects": ["S.1", "S.2"], "deliver_policy": "new"}, True),
        (60, 0, {"deliver_policy": "last_per_subject"}, False),
        (100, 0, {}, False),
    ],
)
def test_consumer_counts_the_messages_of_its_stream(
    delivered: int, pending: int, config: dict[str, Any], few: bool
) -> None:
    info = {**consumer("a", **config), "delivered": {"stream_seq": delivered}, "num_pending": pending}
    state = {"messages": 85, "first_seq": 11, "last_seq": 100} if delivered == 0 else FULL
    found = too_few_pending(state, [info], ["S.1"])
    assert bool(found) is few
    if few and delivered:
        assert found == ["consumer a has 39 pending messages; at least 40 were expected"]


def test_consumers_without_a_position_in_the_archive_are_recreated() -> None:
    fresh = consumer("fresh", floor=0, deliver_policy="new")
    for entries, recreated in (
        ([fresh, consumer("other")], ["fresh", "other"]),
        ([consumer("moved", deliver_policy="new")], []),
        ([consumer("all", floor=0)], []),
    ):
        for archive in (TAR, ENTRIES):
            found = plan_restore(manifest(*entries, format=archive), RestoreChanges(), HERE)
            names = [entry["name"] for entry in found.recreate]
            assert (found.strip, names) == ((bool(recreated), recreated) if archive == TAR else (False, []))


def test_the_consumers_of_an_archive_with_other_replicas() -> None:
    def entry(name: str) -> tuple[ArchiveEntry, ArchivedConsumer]:
        document = {
            "config": {"name": name, "num_replicas": 3},
            "state": {"ack_floor": {"stream_seq": 4}, "pending": {"5": {}}},
        }
        return ArchiveEntry(f"consumers/{name}".encode(), 7, 0, 0, json.dumps(document).encode()), ArchivedConsumer(
            name, {}, {}, {}, 0
        )

    plan = RestorePlan({}, (), ("many",), False)
    part = consumers_part(ENTRIES, {"consumer_count": 2, "first_seq": 1}, [entry("many"), entry("few")], plan)
    reader = PlainReader(io.BytesIO(s2.STREAM_ID + b"".join(s2.plain_chunks(part))))
    state, found = read_head(reader)
    assert state == {"consumer_count": 2, "first_seq": 1}
    assert [(one.name, one.config["num_replicas"], one.pending) for _entry, one in found] == [
        ("many", 0, 1),
        ("few", 3, 1),
    ]
    assert found[1][0] == entry("few")[0]
    assert consumers_part(TAR, {}, (), plan) == TAR_END
    without = consumers_part(ENTRIES, {"consumer_count": 2}, [entry("many")], replace(plan, strip=True))
    assert without == encode_entry(b"state.json", 0, b'{"consumer_count": 0}')


STATE = {"messages": 5, "first_seq": 1, "last_seq": 9}


@pytest.mark.parametrize(
    ("state", "config", "found"),
    [
        ({}, {}, []),
        ({"messages": 4}, {}, ["messages is 4 instead of 5"]),
        ({"first_seq": 2, "last_seq": 8}, {}, ["last_seq is 8 instead of 9", "first_seq is 2 instead of 1"]),
        ({"messages": 4, "first_seq": 3}, {"max_age": 1}, []),
        ({"messages": 4, "first_seq": 3}, {"max_msgs": 4}, []),
        (
            {"messages": 4, "first_seq": 3},
            {"max_msgs": -1},
            ["messages is 4 instead of 5", "first_seq is 3 instead of 1"],
        ),
        ({"messages": 6}, {"max_age": 1}, ["messages is 6 instead of 5"]),
        ({"last_seq": 8}, {"max_age": 1}, ["last_seq is 8 instead of 9"]),
    ],
)
def test_a_restored_stream_is_compared(state: dict[str, Any], config: dict[str, Any], found: list[str]) -> None:
    plan = RestorePlan({**CONFIG, **config}, (), (), False)
    assert differences(manifest(), plan, {**STATE, **state}, []) == found


def test_a_stream_that_never_had_a_message() -> None:
    empty = manifest(contents={**CONTENTS, "messages": 0, "first_seq": 0, "last_seq": 0})
    state = {"messages": 0, "first_seq": 1, "last_seq": 0}
    assert differences(empty, RestorePlan(CONFIG, (), (), False), state, []) == []


def test_restored_consumers_are_compared() -> None:
    saved = manifest(consumer("a"), consumer("b"), consumer("c"), {**consumer("e"), "config": {"name": "e"}})
    plan = RestorePlan(CONFIG, (), (), False)
    there = [consumer("a", 3), consumer("b", 4), consumer("c", 7)]
    assert differences(saved, plan, STATE, there) == ["consumer a has the ack floor 3 instead of 4"]
    assert differences(saved, plan, STATE, there[1:]) == ["consumer a is missing"]
    stripped = replace(plan, strip=True)
    assert differences(saved, stripped, STATE, []) == []


@pytest.mark.parametrize(
    ("info", "consumers", "reason"),
    [
        ({"config": {**CONFIG, "allow_msg_ttl": False}, "state": STATE}, [consumer("a")], ""),
        ({"config": {**CONFIG, "num_replicas": 1}, "state": STATE}, [consumer("a")], "num_replicas differs"),
        (
            {"config": CONFIG, "state": {**STATE, "last_seq": 10, "messages": 6}},
            [consumer("a")],
            "last_seq is 10 instead of 9",
        ),
    ],
)
def test_existing_stream_is_kept_only_if_it_equals_the_backup(
    info: dict[str, Any], consumers: list[dict[str, Any]], reason: str
) -> None:
    saved = manifest(consumer("a"))
    plan = plan_restore(saved, RestoreChanges(), HERE)
    if not reason:
        require_restored(saved, plan, info, consumers)
        return
    with pytest.raises(RestoreRefusal, match=rf"stream S exists and differs from the backup \({reason}") as caught:
        require_restored(saved, plan, info, consumers)
    assert caught.value.code == "exists"


def test_server_metadata_is_not_a_difference() -> None:
    mine = {"owner": "me"}
    saved = replace(manifest(consumer("a")), config={**CONFIG, "metadata": mine})
    plan = plan_restore(saved, RestoreChanges(), HERE)
    added = {**mine, "_nats.ver": "2.15.1", "_nats.level": "5", "_nats.req.level": "0"}
    require_restored(saved, plan, {"config": {**CONFIG, "metadata": added}, "state": STATE}, [consumer("a")])
    with pytest.raises(RestoreRefusal, match="metadata differs"):
        require_restored(
            saved, plan, {"config": {**CONFIG, "metadata": {"owner": "you"}}, "state": STATE}, [consumer("a")]
        )


def test_a_stream_that_ends_below_its_backup_is_unfinished() -> None:
    """A restore that is killed leaves an empty stream that accepts messages."""
    saved = manifest(consumer("a"))
    plan = plan_restore(saved, RestoreChanges(), HERE)
    for state in ({}, {**STATE, "last_seq": 8}):
        with pytest.raises(
            RestoreRefusal, match=r"stream S exists and ends at sequence \d, before the end of its backup \(9\)"
        ) as caught:
            require_restored(saved, plan, {"config": CONFIG, "state": state}, [])
        assert caught.value.code == "unfinished"


def test_a_stream_that_took_new_messages_or_lacks_consumers_is_unfinished() -> None:
    """The empty stream of an interrupted restore accepts messages, and may in time have as many as its backup."""
    saved = replace(manifest(consumer("a")), taken="2026-11-20T10:00:00Z", state={"last_ts": "2026-11-20T09:59:00.5Z"})
    plan = plan_restore(saved, RestoreChanges(), HERE)
    state = {**STATE, "messages": 15, "first_seq": 1, "last_seq": 15, "first_ts": "2026-11-20T10:07:00.123456789Z"}
    with pytest.raises(
        RestoreRefusal, match="its message 1 was stored after the backup, which also has that sequence"
    ) as caught:
        require_restored(saved, plan, {"config": CONFIG, "state": state}, [consumer("a")])
    assert caught.value.code == "unfinished"
    # The stream continued, and may have removed all messages that the backup contains.
    for harmless in ({"first_ts": "2026-11-20T09:00:00Z"}, {"first_seq": 10, "messages": 6}):
        with pytest.raises(RestoreRefusal) as caught:
            require_restored(saved, plan, {"config": CONFIG, "state": {**state, **harmless}}, [consumer("a")])
        assert caught.value.code == "exists"
    with pytest.raises(RestoreRefusal, match=r"exists without 1 consumer of its backup \(a\)") as caught:
        require_restored(saved, plan, {"config": CONFIG, "state": STATE}, [])
    assert caught.value.code == "unfinished"


def test_message_stored_during_the_backup_belongs_to_the_stream() -> None:
    """A bucket with one revision per key has only messages of the load that continued while it was saved."""
    state = {**STATE, "messages": 1, "first_seq": 9, "last_seq": 9}
    saved = replace(
        manifest(),
        contents=state,
        taken="2026-11-20T10:00:00Z",
        state={"last_ts": "2026-11-20T09:59:59Z"},
        seconds=2.5,
    )
    plan = plan_restore(saved, RestoreChanges(), HERE)
    require_restored(saved, plan, {"config": CONFIG, "state": {**state, "first_ts": "2026-11-20T10:00:01Z"}}, [])
    with pytest.raises(RestoreRefusal, match="its message 9 was stored after the backup"):
        require_restored(saved, plan, {"config": CONFIG, "state": {**state, "first_ts": "2026-11-20T10:00:03Z"}}, [])


def test_first_seq_is_left_out_where_a_server_would_empty_the_stream() -> None:
    saved = replace(manifest(consumer("a")), config={**CONFIG, "first_seq": 1000})
    kept = plan_restore(saved, RestoreChanges(), HERE)
    assert kept.config["first_seq"] == 1000 and not [text for text in kept.caveats if "first_seq" in text]
    affected = plan_restore(saved, RestoreChanges(), replace(HERE, keeps_first_seq=False))
    assert "first_seq" not in affected.config
    assert [text for text in affected.caveats if "without first_seq (1000)" in text]


@pytest.mark.parametrize(
    ("config", "state", "most"),
    [
        ({}, {"last_seq": 0, "bytes": 0}, GIB),
        # This is a bucket whose blocks contain a thousand versions of its only key.
        ({}, {"last_seq": 1000, "bytes": 100}, GIB + 2 * (1000 * (1024 + 8192) + 100)),
        ({"first_seq": 1 << 60}, {"last_seq": (1 << 60) + 4, "bytes": 100}, GIB + 2 * (5 * (1024 + 8192) + 100)),
        ({}, {"last_seq": 1 << 60, "bytes": GIB}, 128 * GIB),
    ],
)
def test_the_largest_archive(config: dict[str, Any], state: dict[str, Any], most: int) -> None:
    assert largest_archive(config, state, 1024) == most


def test_the_longest_archive() -> None:
    assert longest_archive({"bytes": 0}, None) == 6 * 3600
    assert longest_archive({"bytes": GIB}, None) == 6 * 3600 + 16 * 1024
    assert longest_archive({"bytes": GIB}, 1 << 10) == 6 * 3600 + 16 * (1 << 20)
