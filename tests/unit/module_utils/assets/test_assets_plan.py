# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans of assets: states, costs, and each guard."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.costs import Counts
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.document import AssetsDocument
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.plan import (
    LiveAssets,
    LiveEntry,
    make_plan,
    questions,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.plan_page import plan_page, summary
from support.asset_plans import SECOND, document, live, live_consumer, live_stream

Info = dict[str, Any]


def plan(of: AssetsDocument | list[AssetsDocument], state: LiveAssets, **names: Collection[str]) -> dict[str, Any]:
    documents = of if isinstance(of, list) else [of]
    return make_plan(documents, {"A": state}, names.get("confirm", ()), names.get("delete", ()))


def row(found: Mapping[str, Any], name: str) -> dict[str, Any]:
    (one,) = [item for item in found["assets"] if item["name"] == name]
    return dict(one)


def costs(found: Mapping[str, Any], name: str) -> list[tuple[str, int | None]]:
    return [(one["message"], one["count"]) for one in row(found, name)["costs"]]


OLDEST = ": the oldest, sequences 1 to {} (the stream has 1 to 1000)"
ONE = document("streams: {S: {subjects: [s.>], consumers: {c: {}}}}")


def test_new_assets_are_created_in_order() -> None:
    wanted = document(
        "streams: {S: {subjects: [s.>], consumers: {c: {}}}, T: {sources: [S]}}\n"
        "mirrors: {M: {of: S}}\nkv: {b: {entries: {k: {value: v}}}}\n"
    )
    found = plan(wanted, live())
    assert {one["state"] for one in found["assets"]} == {"create"}
    assert [(step["phase"], step["name"]) for step in found["steps"]] == [
        ("create streams", "S"),
        ("consumers", "S/c"),
        ("mirrors and sources", "T"),
        ("mirrors and sources", "M"),
        ("buckets", "b"),
        ("entries", "b/k"),
    ]
    assert {"path": "subjects", "from": None, "to": ["s.>"]} in row(found, "S")["changes"]


def test_time_of_the_deleted_messages_is_shown() -> None:
    state = {"last_seq": 1200, "first_ts": "2026-11-29T22:01:02.123456789Z", "last_ts": "2026-11-29T23:00:00Z"}
    info = live_stream(ONE, "S")
    info["state"].update({"messages": 1000, "bytes": 100000, **state})
    found = plan(document("streams: {S: {subjects: [s.>], consumers: {c: {}}, max_msgs: 10}}"), live(info))
    times = "stored from 2026-11-29T22:01:02Z to 2026-11-29T23:00:00Z"
    assert costs(found, "S")[0][0].endswith(
        f"deletes 990 of 1000 messages: the oldest, from sequence 1 on (the stream has 1 to 1200, {times})"
    )


def test_single_replica_that_the_document_does_not_choose_is_noted() -> None:
    wanted = document(
        "streams: {S: {subjects: [s.>]}, ONE: {replicas: 1}}\nmirrors: {M: {of: S}}\n"
        "kv: {b: {}, three: {replicas: 3}}\nobjects: {o: {}}\n"
    )
    found = plan(wanted, live())
    noted = {one["name"] for one in found["assets"] if any("one replica" in note for note in one["notes"])}
    assert noted == {"S", "M", "b", "o"} and {one["state"] for one in found["assets"]} == {"create"}
    alone = plan(wanted, live(cluster=""))
    assert not any(one["notes"] for one in alone["assets"])


def test_declared_assets_are_the_same() -> None:
    state = live(live_stream(ONE, "S"), consumers={"S": {"c": live_consumer(ONE, "S", "c")}})
    found = plan(ONE, state)
    assert [one["state"] for one in found["assets"]] == ["same", "same"]
    assert (found["steps"], found["problems"]) == ([], [])
    assert summary(found) == "2 same"
    assert list(plan_page(found).lines) == ["Nothing changes."]


def test_server_defaults_and_server_metadata_are_not_drift() -> None:
    info = live_stream(ONE, "S", duplicate_window=120 * SECOND, max_msg_size=-1, first_seq=0)
    info["config"]["metadata"]["_nats.level"] = "3"
    consumer = live_consumer(ONE, "S", "c", ack_wait=30 * SECOND, max_ack_pending=1000, max_waiting=512)
    consumer["config"]["metadata"]["_nats.ver"] = "2.15.1"
    found = plan(ONE, live(info, consumers={"S": {"c": consumer}}))
    assert [one["state"] for one in found["assets"]] == ["same", "same"]


def test_change_has_old_and_new_values_in_words() -> None:
    wanted = document("streams: {S: {subjects: [s.>], max_age: 7d, max_bytes: 1GiB}}")
    found = plan(wanted, live(live_stream(wanted, "S", max_age=3600 * SECOND, max_bytes=-1)))
    assert [one for one in row(found, "S")["changes"] if not one["path"].startswith("metadata")] == [
        {"path": "max_bytes", "from": -1, "to": "1GiB"},
        {"path": "max_age", "from": "1h", "to": "7d"},
    ]
    assert row(found, "S")["state"] == "change"
    assert row(found, "S")["notes"] == ["it was changed outside the document"]


def test_removing_a_field_from_the_document_is_a_change() -> None:
    found = plan(ONE, live(live_stream(ONE, "S", max_age=3600 * SECOND)))
    assert {"path": "max_age", "from": "1h", "to": 0} in row(found, "S")["changes"]


@pytest.mark.parametrize(
    ("given", "before", "counts", "expected"),
    [
        ("max_msgs: 10", {}, Counts(), ("max_msgs: 10 deletes 990 of 1000 messages" + OLDEST.format(990), 990)),
        (
            "max_bytes: 10000",
            {},
            Counts(),
            ("max_bytes: 10000 deletes about 900 of 1000 messages" + OLDEST.format(900), 900),
        ),
        ("max_age: 1h", {}, Counts(expired=7), ("max_age: 1h deletes 7 of 1000 messages" + OLDEST.format(7), 7)),
        (
            "max_msgs_per_subject: 2",
            {},
            Counts(subjects={"s.a": 5, "s.b": 2, "s.c": 3}),
            ("max_msgs_per_subject: 2 deletes 4 of 1000 messages: the oldest of each subject", 4),
        ),
        (
            "retention: interest",
            {},
            Counts(),
            ("retention: interest without consumers deletes 1000 of 1000 messages", 1000),
        ),
        (
            "{discard: new, max_msgs: 2000}",
            {"max_msgs": 2000},
            Counts(),
            ("discard: new rejects publishes while a limit is reached: max_msgs is 50% full", None),
        ),
        ("max_msg_size: 1KiB", {}, Counts(), ("max_msg_size: publishes of more than 1KiB are rejected", None)),
        (
            "duplicate_window: 1s",
            {"duplicate_window": 120 * SECOND},
            Counts(),
            ("duplicate_window: 1s: messages sent again later are stored twice", None),
        ),
        (
            "max_consumers: -1",
            {"subjects": ["s.>", "t"]},
            Counts(subjects={}),
            ("publishes to t are no longer stored", None),
        ),
        ("replicas: 1", {"num_replicas": 3}, Counts(), ("num_replicas: 3 → 1", None)),
        (
            "max_consumers: -1",
            {"sources": [{"name": "T"}]},
            Counts(),
            ("sources: the positions in T are lost; adding them again starts over", None),
        ),
    ],
)
def test_costs_of_a_change_need_confirmation(
    given: str, before: Info, counts: Counts, expected: tuple[str, int | None]
) -> None:
    settings = given.strip("{}")
    wanted = document(f"streams: {{S: {{subjects: [s.>], {settings}}}}}")
    raw = {"max_msgs": -1, "max_bytes": -1, "max_age": 0, "max_msgs_per_subject": -1, "retention": "limits"}
    raw |= {"discard": "old", "max_msg_size": -1}
    info = live_stream(wanted, "S", 1000, **{**raw, **before})
    info["cluster"] = {
        "name": "C1",
        "leader": "n1",
        "replicas": [
            {"name": f"n{number}", "current": True, "active": 0}
            for number in range(2, before.get("num_replicas", 1) + 1)
        ],
    }
    state = live(info, counts={"S": counts})
    found = plan(wanted, state)
    assert (row(found, "S")["state"], found["steps"]) == ("needs confirmation", [])
    assert expected in costs(found, "S")
    assert row(plan(wanted, state, confirm=["S"]), "S")["state"] == "change"


def test_only_lowered_limits_are_counted() -> None:
    wanted = document("streams: {S: {max_age: 1h, max_msgs_per_subject: 5}}")
    info = live_stream(wanted, "S", 10, max_age=0, max_msgs_per_subject=-1)
    assert questions([wanted], live(info)) == {"S": (True, 3600 * SECOND)}
    assert questions([wanted], live(live_stream(wanted, "S", 10))) == {}
    assert questions([wanted], live(live_stream(wanted, "S", 0, max_age=0))) == {}


@pytest.mark.parametrize(
    ("given", "before", "reason"),
    [
        ("storage: memory", {"storage": "file"}, "storage: file → memory (the storage cannot be changed)"),
        ("retention: workqueue", {"retention": "limits"}, "retention: limits → workqueue"),
        ("deny_delete: false", {"deny_delete": True}, "deny_delete: True → False (cannot be disabled again)"),
    ],
)
def test_impossible_change_is_refused_and_never_a_replacement(given: str, before: Info, reason: str) -> None:
    wanted = document(f"streams: {{S: {{{given}}}}}")
    found = plan(wanted, live(live_stream(wanted, "S", **before)), confirm=["S"], delete=["S"])
    (problem,) = row(found, "S")["problems"]
    assert problem.startswith(reason) and problem.endswith("a plan never replaces a stream")
    assert (row(found, "S")["state"], found["steps"]) == ("refused", [])


def test_impossible_change_of_a_consumer_counts_the_forgotten_acknowledgements() -> None:
    wanted = document("streams: {S: {consumers: {c: {ack_policy: all}}}}")
    consumer = live_consumer(wanted, "S", "c", ack_policy="explicit")
    consumer |= {"delivered": {"consumer_seq": 50}, "num_ack_pending": 8}
    found = plan(wanted, live(live_stream(wanted, "S"), consumers={"S": {"c": consumer}}))
    assert row(found, "S/c")["problems"] == [
        "ack_policy: explicit → all (cannot be changed); a new consumer under this name would forget 42 acknowledgements"
    ]


def test_sealed_stream_is_refused_unless_declared() -> None:
    assert any(
        "the stream is sealed" in one
        for one in row(plan(ONE, live(live_stream(ONE, "S", sealed=True))), "S")["problems"]
    )
    new = document("streams: {S: {sealed: true}}")
    assert row(plan(new, live()), "S")["problems"] == ["a new stream cannot be sealed: it could store no messages"]


def test_field_newer_than_the_oldest_server_is_refused() -> None:
    wanted = document("streams: {S: {allow_msg_ttl: true, consumers: {c: {priority_policy: prioritized}}}}")
    found = plan(wanted, live(release=(2, 10)))
    assert row(found, "S")["problems"] == ["allow_msg_ttl needs nats-server 2.11; the oldest server supports 2.10"]
    assert row(plan(wanted, live(release=(2, 11))), "S/c")["problems"] == [
        "priority_policy=prioritized needs nats-server 2.12; the oldest server supports 2.11"
    ]


@pytest.mark.parametrize(
    ("metadata", "owner"),
    [
        ({"managed-by": "terraform"}, "it belongs to terraform (metadata managed-by)"),
        ({"app.kubernetes.io/managed-by": "Helm"}, "it belongs to Helm (metadata app.kubernetes.io/managed-by)"),
        ({"managed-by": "natsops", "natsops.document": "other"}, "it belongs to document other"),
    ],
)
def test_foreign_assets_are_named_and_left_alone(metadata: dict[str, str], owner: str) -> None:
    info = live_stream(ONE, "S", mark=False, metadata=metadata, max_age=1)
    found = plan(ONE, live(info))
    assert (row(found, "S")["state"], row(found, "S")["notes"]) == ("foreign", [owner])
    assert row(found, "S/c")["problems"] == ["its stream S is foreign"]
    everything = document("prune: all\nstreams: {T: {}}")
    found = plan(everything, live(info), delete=["S"])
    assert row(found, "S")["state"] == "foreign"


def test_unmarked_asset_must_be_adopted() -> None:
    info = live_stream(ONE, "S", mark=False)
    assert row(plan(ONE, live(info)), "S")["problems"] == [
        "it exists, but no document owns it; list it under adopt to take it over"
    ]
    adopting = document("adopt: [S]\nstreams: {S: {subjects: [s.>]}}")
    found = row(plan(adopting, live(info)), "S")
    assert (found["state"], found["notes"]) == ("change", ["adopted"])
    assert {one["path"] for one in found["changes"]} == {
        "metadata.managed-by",
        "metadata.natsops.document",
        "metadata.natsops.hash",
    }


BOTH = document("streams: {S: {subjects: [s.>]}, OLD: {subjects: [old]}}")


@pytest.mark.parametrize(
    ("prune", "state"), [("never", "extra"), ("owned", "needs confirmation"), ("all", "needs confirmation")]
)
def test_stream_that_left_the_document(prune: str, state: str) -> None:
    now = document(f"prune: {prune}\nstreams: {{S: {{subjects: [s.>]}}}}")
    infos = live_stream(BOTH, "S"), live_stream(BOTH, "OLD", 5)
    found = plan(now, live(*infos))
    assert row(found, "OLD")["state"] == state
    shown = "\n".join(plan_page(found).lines)
    # The page names the action that a confirmation permits, and the streams that no document declares.
    assert ("No document declares these assets:" in shown) == (prune == "never") and "OLD" in shown
    assert ("stream OLD: delete, needs confirmation" in shown) == (prune != "never")
    found = plan(now, live(*infos), delete=["OLD"])
    assert row(found, "OLD")["state"] == ("extra" if prune == "never" else "delete")
    if prune != "never":
        assert costs(found, "OLD") == [("it holds 5 messages", 5)]
        assert found["steps"][-1]["phase"] == "delete streams"


def test_unmarked_streams_are_deleted_only_with_prune_all_and_by_name() -> None:
    infos = live_stream(BOTH, "S"), live_stream(BOTH, "OLD", mark=False)
    owned = document("prune: owned\nstreams: {S: {subjects: [s.>]}}")
    assert row(plan(owned, live(*infos), delete=["OLD"]), "OLD")["state"] == "extra"
    everything = document("prune: all\nstreams: {S: {subjects: [s.>]}}")
    assert row(plan(everything, live(*infos)), "OLD")["state"] == "needs confirmation"
    assert row(plan(everything, live(*infos), delete=["OLD"]), "OLD")["state"] == "delete"


@pytest.mark.parametrize("name", ["KV_b", "OBJ_b", "$MQTT_sess"])
def test_streams_of_buckets_and_mqtt_are_deleted_only_if_listed(name: str) -> None:
    everything = document("prune: all\nstreams: {S: {subjects: [s.>]}}")
    other = live_stream(BOTH, "OLD", mark=False)
    other["config"]["name"] = name
    state = live(live_stream(BOTH, "S"), other)
    assert (row(plan(everything, state), name)["state"], row(plan(everything, state), name)["action"]) == ("extra", "")
    assert row(plan(everything, state, delete=[name]), name)["state"] == "delete"


def test_more_than_a_fifth_of_the_assets_is_never_deleted_without_names() -> None:
    names = [f"S{number}" for number in range(10)]
    before = document("streams: {" + ", ".join(f"{name}: {{}}" for name in names) + "}")
    state = live(*(live_stream(before, name) for name in names))
    few = document("prune: owned\nstreams: {" + ", ".join(f"{name}: {{}}" for name in names[2:]) + "}")
    assert plan(few, state)["problems"] == []
    fewer = document("prune: owned\nstreams: {" + ", ".join(f"{name}: {{}}" for name in names[3:]) + "}")
    assert plan(fewer, state)["problems"] == [
        "document d would delete 3 of its 10 assets, more than 20 %: S0, S1, S2; check the document, or list each name "
        "in confirm_delete"
    ]
    assert plan(fewer, state, delete=["S0"])["problems"] == []


@pytest.mark.parametrize(
    ("retention", "left", "expected"),
    [
        ("workqueue", {"num_pending": 7}, ("7 messages of the work queue stay unprocessed", 7)),
        (
            "interest",
            {"num_pending": 7},
            (
                "it is the last consumer (retention interest): deletes 9 messages, and new messages are not stored",
                9,
            ),
        ),
    ],
)
def test_removed_consumer_of_a_workqueue_or_interest_stream(
    retention: str, left: Info, expected: tuple[str, int]
) -> None:
    before = document(f"streams: {{S: {{retention: {retention}, consumers: {{c: {{}}}}}}}}")
    now = document(f"prune: owned\nstreams: {{S: {{retention: {retention}}}}}")
    consumer = {**live_consumer(before, "S", "c"), **left}
    state = live(live_stream(before, "S", 9), consumers={"S": {"c": consumer}})
    found = plan(now, state)
    assert row(found, "S/c")["state"] == "needs confirmation"
    assert costs(found, "S/c") == [expected]


def test_ephemeral_consumers_are_never_pruned() -> None:
    everything = document("prune: all\nstreams: {S: {subjects: [s.>]}}")
    consumer = {**live_consumer(ONE, "S", "c"), "name": "x1"}
    consumer["config"]["durable_name"] = ""
    found = plan(everything, live(live_stream(everything, "S"), consumers={"S": {"x1": consumer}}), delete=["S/x1"])
    assert [one["name"] for one in found["assets"]] == ["S"]


def test_max_consumers_below_the_live_count_is_refused() -> None:
    wanted = document("streams: {S: {max_consumers: 1}}")
    consumers = {name: {**live_consumer(ONE, "S", "c"), "name": name} for name in ("a", "b")}
    found = plan(wanted, live(live_stream(wanted, "S", max_consumers=-1), consumers={"S": consumers}))
    assert row(found, "S")["problems"] == ["max_consumers: 1, but it has 2 consumers"]


def test_rename_is_refused_as_overlap_and_named() -> None:
    new = document("prune: owned\nstreams: {NEW: {subjects: [s.>]}}")
    found = row(plan(new, live(live_stream(ONE, "S", 3)), delete=["S"]), "NEW")
    assert found["problems"] == ["NEW.subjects: s.> overlaps s.> of S (JetStream error 10065)"]
    assert found["notes"][-1] == "a stream cannot be renamed: S has the same subjects; copy it first"


def test_stream_shrinks_before_another_grows_into_its_subjects() -> None:
    before = document("streams: {A: {subjects: [a]}, Z: {subjects: [z, x]}}")
    now = document("streams: {A: {subjects: [a, x]}, Z: {subjects: [z]}}")
    state = live(live_stream(before, "A"), live_stream(before, "Z"))
    assert [step["name"] for step in plan(now, state, confirm=["Z"])["steps"]] == ["Z", "A"]
    swapped = document("streams: {A: {subjects: [z, x]}, Z: {subjects: [a]}}")
    assert "streams exchange subjects: A, Z" in plan(swapped, state)["problems"][0]


def test_replicas_and_tags_without_enough_servers_are_refused() -> None:
    servers = [("n1", "C1", frozenset({"ssd"})), ("n2", "C1", frozenset()), ("n3", "C2", frozenset({"ssd"}))]
    wanted = document("streams: {S: {replicas: 3}, T: {replicas: 2, placement: {tags: [ssd]}}, U: {replicas: 2}}")
    found = plan(wanted, live(servers=servers))
    assert row(found, "S")["problems"] == ["it needs 3 servers in cluster C1, which has 2"]
    assert row(found, "T")["problems"] == ["it needs 2 servers with the tags ssd in cluster C1, which has 1"]
    assert row(found, "U")["state"] == "create"


def test_exhausted_limits_of_the_account_are_reported() -> None:
    wanted = document("streams: {S: {replicas: 3, max_bytes: 6GiB}, T: {max_bytes: 1GiB}}")
    usage = {"storage": 0, "reserved_storage": 0, "streams": 1, "limits": {"max_storage": 10 << 30, "max_streams": 2}}
    assert plan(wanted, live(usage=usage))["problems"] == [
        "the account's limit max_storage is 10GiB: 0 are used, and the plan adds 19GiB",
        "the account's limit max_streams is 2: 1 are used, and the plan adds 2",
    ]
    tiers = {"tiers": {"R3": {"limits": {"max_storage": 10 << 30, "max_streams": 5, "max_bytes_required": True}}}}
    found = plan(wanted, live(usage=tiers))
    assert found["problems"] == []
    assert row(found, "T")["problems"] == ["the account has no limits for R1 (JetStream error 10120)"]
    without = document("streams: {S: {replicas: 3}}")
    assert row(plan(without, live(usage=tiers)), "S")["problems"] == [
        "max_bytes: the account requires it (JetStream error 10113)"
    ]


def test_placement_and_replicas_are_changed_in_two_updates() -> None:
    wanted = document("streams: {S: {replicas: 3, placement: {tags: [a]}}}")
    found = plan(wanted, live(live_stream(wanted, "S", num_replicas=1, placement=None)))
    assert row(found, "S")["notes"][0] == "placement and replicas change in two updates"


def test_stream_and_consumer_without_a_leader_are_refused() -> None:
    found = plan(ONE, live(unknown={"S": "no leader reported its state"}))
    assert row(found, "S")["problems"] == ["its state is unknown: no leader reported its state"]
    assert row(found, "S/c")["problems"] == ["its state is unknown: its stream has no leader"]
    found = plan(ONE, live(live_stream(ONE, "S"), unknown_consumers={"S/c": "no leader"}))
    assert row(found, "S/c")["problems"] == ["its state is unknown: no leader"]


def test_document_of_another_cluster_is_refused() -> None:
    found = plan(ONE, live(cluster="C2"))
    assert found["problems"] == ["document d is for cluster C1, but the connected server is in C2"]


ENTRIES = document("kv: {b: {entries: {s: {value: x}, o: {value: x, mode: own}, a: {mode: absent}}}}")


@pytest.mark.parametrize(
    ("value", "states"),
    [
        (b"x", {"b/s": "same", "b/o": "same", "b/a": "delete"}),
        (b"y", {"b/s": "same", "b/o": "change", "b/a": "delete"}),
        (None, {"b/s": "create", "b/o": "create", "b/a": "same"}),
    ],
)
def test_entries_by_mode(value: bytes | None, states: dict[str, str]) -> None:
    entries = {("KV_b", key): LiveEntry(7, value) for key in "soa"}
    found = plan(ENTRIES, live(live_stream(ENTRIES, "KV_b"), entries=entries))
    assert {one["name"]: one["state"] for one in found["assets"] if one["kind"] == "entry"} == states
    assert {one["revision"] for one in found["assets"] if one["kind"] == "entry"} == {"7"}


def test_plan_contains_no_values_of_entries() -> None:
    secret = document("kv: {b: {entries: {k: {value: hunter2, mode: own}}}}")
    entries = {("KV_b", "k"): LiveEntry(7, b"hunter1")}
    found = plan(secret, live(live_stream(secret, "KV_b"), entries=entries))
    assert row(found, "b/k")["state"] == "change"
    assert "hunter" not in str(found)


def test_pause_is_kept_unless_the_document_sets_it() -> None:
    paused = live_consumer(ONE, "S", "c", pause_until="2036-01-01T00:00:00Z")
    state = live(live_stream(ONE, "S"), consumers={"S": {"c": paused}})
    assert row(plan(ONE, state), "S/c")["state"] == "same"


def test_fingerprint_depends_on_configurations_and_not_on_traffic() -> None:
    wanted = document("streams: {S: {max_msgs: 1}}")
    first, later = (plan(wanted, live(live_stream(wanted, "S", number, max_msgs=-1))) for number in (5, 6))
    assert first["fingerprint"] == later["fingerprint"]
    other = plan(wanted, live(live_stream(wanted, "S", 5, max_msgs=4)))
    assert first["fingerprint"] != other["fingerprint"]


def test_plan_of_a_large_account_is_quick_and_fits_on_a_screen() -> None:
    parts = ", ".join(
        f"S{number}: {{subjects: [s{number}.>], consumers: {{a: {{}}, b: {{}}, c: {{}}}}}}" for number in range(300)
    )
    wanted = document(f"streams: {{{parts}}}")
    state = live(
        *(live_stream(wanted, name, max_age=5) for name in wanted.streams),
        consumers={name: {one: live_consumer(wanted, name, one) for one in "abc"} for name in wanted.streams},
    )
    started = time.process_time()
    found = plan(wanted, state)
    assert time.process_time() - started < 5
    assert summary(found) == "300 change, 900 same"
    assert len(plan_page(found).screen) <= 60
