# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the rules about changes of streams and consumers: refusals, dangers, owners, and groups in progress."""

from __future__ import annotations

from typing import Any, Optional

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.assets import change_rules
from ansible_collections.natsops.jetstream.plugins.module_utils.assets import config as rules
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.config import (
    CONSUMER_FIELDS,
    STREAM_FIELDS,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.replies import consumer_group, stream_group

S = 10**9
NEW = (2, 15)


def stream(**config: Any) -> dict[str, Any]:
    """Return a stream's configuration in normal form."""
    return rules.normal_config(STREAM_FIELDS, {"subjects": ["a.>"], "duplicate_window": 120 * S, **config})


def consumer(**config: Any) -> dict[str, Any]:
    return rules.normal_config(CONSUMER_FIELDS, {"ack_policy": "explicit", **config})


@pytest.mark.parametrize(
    ("old", "new", "release", "refused"),
    [
        ({}, {"storage": "memory"}, NEW, "storage: file → memory"),
        ({}, {"retention": "workqueue"}, NEW, "retention: limits → workqueue"),
        ({"retention": "workqueue"}, {"retention": "limits"}, NEW, "retention: workqueue → limits"),
        ({"retention": "interest"}, {"retention": "limits"}, NEW, None),
        ({}, {"max_consumers": 5}, (2, 11), "max_consumers: -1 → 5"),
        ({}, {"max_consumers": 5}, (2, 12), None),
        ({"mirror": {"name": "A"}}, {"mirror": {"name": "B"}}, NEW, "mirror: "),
        ({"mirror": {"name": "A"}}, {"mirror": None}, (2, 11), "mirror: "),
        ({"mirror": {"name": "A"}}, {"mirror": None}, (2, 12), None),
        ({"deny_delete": True}, {"deny_delete": False}, NEW, "deny_delete: True → False"),
        ({"deny_delete": False}, {"deny_delete": True}, NEW, None),
        ({"first_seq": 5}, {"first_seq": 6}, NEW, "first_seq: 5 → 6"),
        ({}, {"max_msgs": 5, "num_replicas": 3, "subjects": ["b"], "allow_direct": True}, NEW, None),
    ],
)
def test_immutable_stream_settings(
    old: dict[str, Any], new: dict[str, Any], release: rules.Release, refused: Optional[str]
) -> None:
    told = change_rules.fixed_in_stream(stream(**old), stream(**{**old, **new}), release)
    assert len(told) == (refused is not None)
    assert all(line.startswith(refused or "") for line in told)


def test_immutable_consumer_settings() -> None:
    def told(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
        return [line.split(":")[0] for line in change_rules.fixed_in_consumer(consumer(**old), consumer(**new))]

    assert told({}, {"ack_policy": "all", "deliver_policy": "new"}) == ["deliver_policy", "ack_policy"]
    assert told({}, {"deliver_subject": "a"}) == ["deliver_subject"]
    assert told({"deliver_subject": "a"}, {"deliver_subject": "b"}) == []
    assert told({}, {"max_deliver": 5, "filter_subject": "a", "metadata": {"a": "b"}}) == []


# --- dangerous changes
# -------------------------------------------------------------------------------------------------

_FULL = {"messages": 10, "bytes": 1000}


@pytest.mark.parametrize(
    ("old", "new", "kinds"),
    [
        ({}, {"max_msgs": 9}, ["data_loss"]),
        ({}, {"max_msgs": 10}, []),
        ({}, {"max_msgs": 9, "discard": "new"}, []),
        ({"max_msgs": 9, "discard": "new"}, {"discard": "old"}, ["data_loss"]),
        ({"max_msgs": 5}, {"max_msgs": 9}, []),
        ({}, {"max_bytes": 999}, ["data_loss"]),
        ({}, {"max_age": 59 * S}, ["data_loss"]),
        ({}, {"max_age": 60 * S}, []),
        ({"max_age": 30 * S}, {"max_age": 40 * S}, []),
        ({}, {"max_msgs_per_subject": 6}, ["data_loss"]),
        ({}, {"max_msgs_per_subject": 7}, []),
        ({}, {"retention": "interest"}, ["data_loss"]),
        ({"retention": "interest"}, {"retention": "limits"}, []),
        ({}, {"subjects": ["a.x", "b"]}, ["in_use"]),
        ({}, {"subjects": [">"]}, []),
        ({"subjects": ["a.>", "empty.>"]}, {"subjects": ["a.>"]}, []),
        ({"num_replicas": 3}, {"num_replicas": 1}, ["fewer_replicas"]),
        ({"num_replicas": 1}, {"num_replicas": 3}, []),
        ({}, {"sealed": True}, ["irreversible"]),
        ({"mirror": {"name": "A"}}, {"mirror": None}, ["irreversible"]),
        ({}, {"max_msgs": 1, "sealed": True, "description": "x"}, ["data_loss", "irreversible"]),
    ],
)
def test_dangers_of_a_change(old: dict[str, Any], new: dict[str, Any], kinds: list[str]) -> None:
    before, after = stream(**old), stream(**{**old, **new})
    subjects = {"a.x": 7, "a.y": 3}
    assert [danger.kind for danger in change_rules.stream_dangers(before, after, _FULL, 60.0, subjects)] == kinds
    # An empty stream has no data to lose.
    empty = {danger.kind for danger in change_rules.stream_dangers(before, after, {"messages": 0}, 0.0, {})}
    assert not empty & {"data_loss", "in_use"}


def test_too_many_subjects_to_count_are_dangerous() -> None:
    for new in (stream(max_msgs_per_subject=5), stream(subjects=["a.x"])):
        assert change_rules.asks_for_subjects(stream(), new)
        assert change_rules.stream_dangers(stream(), new, _FULL, 60.0, None)
    assert not change_rules.asks_for_subjects(stream(), stream(subjects=["a.>", "b"], max_msgs=1))


def test_dangers_of_a_deletion() -> None:
    idle = {"name": "idle"}
    waiting, bound = {"name": "w", "num_waiting": 2}, {"name": "b", "push_bound": True}
    pending = {"name": "p", "num_ack_pending": 1}
    assert change_rules.deletion_dangers({}, 0, [idle], []) == []
    told = change_rules.deletion_dangers({}, 5, [idle, waiting, bound, pending], ["COPY"])
    assert [danger.message for danger in told] == [
        "it holds 5 messages",
        "it has active consumers: b, p, w",
        "streams that mirror or source it: COPY",
    ]
    assert change_rules.consumer_deletion_dangers({**idle, "num_pending": 3}, stream()) == []
    interest = change_rules.consumer_deletion_dangers({**idle, "num_pending": 3}, stream(retention="interest"))
    assert [danger.kind for danger in interest] == ["data_loss"]


def test_dependents_are_those_of_the_same_account() -> None:
    configs: list[dict[str, Any]] = [
        {"name": "M", "mirror": {"name": "A"}},
        {"name": "S", "sources": [{"name": "B"}, {"name": "A"}]},
        {"name": "FAR", "mirror": {"name": "A", "external": {"api": "x"}}},
        {"name": "A"},
        {"name": "N", "mirror": {"name": "AA"}},
    ]
    assert change_rules.dependents("A", configs) == ["M", "S"]


def test_whose_an_asset_is() -> None:
    theirs = stream(metadata={"managed-by": "terraform"})
    assert change_rules.owner("S", stream(), {}) == ""
    assert change_rules.owner("S", None, {}) == ""
    assert change_rules.owner("KV_a", stream(), {}) == "a key-value bucket"
    assert change_rules.owner("$MQTT_msgs", stream(), {}) == "the servers' MQTT"
    assert change_rules.owner("S", theirs, {"metadata": {"x": "y"}}) == "terraform (metadata managed-by)"
    assert change_rules.owner("S", theirs, {"metadata": {"managed-by": "terraform"}}) == ""
    marks = {"managed-by": "natsops", "natsops.document": "orders"}
    assert change_rules.owner("S", stream(metadata=marks), {"metadata": {"managed-by": "natsops"}}) == "document orders"
    assert change_rules.owner("S", stream(metadata=marks), {"metadata": marks}) == ""


def test_a_consumer_without_a_number_has_the_streams_replicas() -> None:
    assert change_rules.replica_dangers(consumer(), consumer(num_replicas=1), 3)[0].message == "num_replicas: 3 → 1"
    assert change_rules.replica_dangers(consumer(num_replicas=3), consumer(), 3) == []


def test_a_group_that_must_not_be_changed_now() -> None:
    def told(replicas: int, cluster: dict[str, Any], short: bool = False) -> str:
        return change_rules.unsettled(
            stream_group("A", {"config": {"name": "S", "num_replicas": replicas}, "cluster": cluster}), short
        )

    current, behind = {"name": "n2", "current": True}, {"name": "n3", "current": False, "active": 60 * S}
    assert told(2, {"leader": "n1", "replicas": [current]}) == ""
    assert "no leader" in told(2, {"replicas": [current]})
    assert "n3" in told(3, {"leader": "n1", "replicas": [current, behind]}, short=True)
    assert "2 of 3 replicas" in told(3, {"leader": "n1", "replicas": [current]})
    assert told(3, {"leader": "n1", "replicas": [current]}, short=True) == ""
    assert "moved" in told(2, {"leader": "n1", "replicas": [current], "desired": {"replicas": []}})
    info = {
        "config": {"durable_name": "c"},
        "cluster": {"leader": "n1", "replicas": [current, {**current, "name": "n4"}]},
    }
    assert change_rules.unsettled(consumer_group("A", info, {"num_replicas": 2})) == ""


def test_a_group_on_its_way_is_not_one_without_a_server() -> None:
    def told(*peers: dict[str, Any], **cluster: Any) -> bool:
        info = {
            "config": {"name": "S", "num_replicas": 2},
            "cluster": {"leader": "n1", "replicas": list(peers), **cluster},
        }
        return change_rules.in_progress(stream_group("A", info))

    assert not told({"name": "n2", "current": True})
    assert not told({"name": "n2", "current": False, "active": S, "lag": 3})
    assert told({"name": "n2", "current": False, "active": S})
    assert not told({"name": "n2", "current": False, "active": 60 * S})
    assert not told({"name": "n2", "current": False, "offline": True})
    assert told()
    assert told({"name": "n2", "current": True}, desired={"replicas": []})


# --- buckets ----------------------------------------------------------------------------------------------------------
