# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests units, normal form, and the comparison of configurations."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.assets import buckets
from ansible_collections.natsops.jetstream.plugins.module_utils.assets import config as rules
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.config import (
    CONSUMER_FIELDS,
    STREAM_FIELDS,
    ConfigKey,
    OptionError,
)
from hypothesis import given, settings
from hypothesis import strategies as st

S = 10**9
NEW, OLD = (2, 15), (2, 10)


def stream(**config: Any) -> dict[str, Any]:
    """Return a stream's configuration in normal form."""
    return rules.normal_config(STREAM_FIELDS, {"subjects": ["a.>"], "duplicate_window": 120 * S, **config})


def consumer(**config: Any) -> dict[str, Any]:
    return rules.normal_config(CONSUMER_FIELDS, {"ack_policy": "explicit", **config})


def desired(**params: Any) -> dict[str, Any]:
    return rules.desired_fields(STREAM_FIELDS, params)


# --- units and normal form --------------------------------------------------------------------------------------------


def test_people_and_servers_mean_the_same() -> None:
    assert desired(max_bytes="10GiB", max_msg_size="-1", max_age="1d", duplicate_window="90", max_msgs=0) == {
        "max_bytes": 10 * 2**30,
        "max_msg_size": -1,
        "max_age": 86400 * S,
        "duplicate_window": 90 * S,
        "max_msgs": -1,
    }
    assert desired(max_bytes="512MB")["max_bytes"] == 512 * 2**20
    assert desired(max_bytes="1K")["max_bytes"] == 1000
    assert desired(max_age="-1") == {"max_age": 0}
    assert desired(metadata={"a": True, "b": 1}) == {"metadata": {"a": "true", "b": "1"}}
    assert desired(placement={"cluster": None, "tags": ["b", "a"]}) == {"placement": {"tags": ["a", "b"]}}
    assert desired(placement={"cluster": None, "tags": None}) == {"placement": None}
    assert desired(subjects=None, max_age=None) == {}
    times = rules.desired_fields(CONSUMER_FIELDS, {"opt_start_time": "2026-01-01 01:00:00.5+01:00", "pause_until": ""})
    assert times == {"opt_start_time": "2026-01-01T00:00:00.500000Z", "pause_until": None}


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"max_bytes": "10 apples"}, "max_bytes: '10 apples' is not a size"),
        ({"max_age": "soon"}, "max_age: 'soon' is not a duration"),
        ({"consumer_limits": {"inactive_threshold": "x"}}, "consumer_limits.inactive_threshold: 'x' is not a duration"),
        (
            {"sources": [{"name": "A"}, {"name": "B", "opt_start_time": "x"}]},
            r"sources\[1\].opt_start_time: 'x' is not a time",
        ),
        (
            {"sources": [{"name": "A", "opt_start_time": "9999-12-31T23:59:59-14:00"}]},
            r"sources\[0\].opt_start_time: '9999-12-31T23:59:59-14:00' is not a time",
        ),
        ({"sources": [{"filter_subject": "a"}]}, r"sources\[0\]: name must be given"),
        ({"republish": {"src": "a", "dest": None}}, "republish: dest must be given"),
        (
            {"metadata": {"_nats.ver": "1"}},
            "metadata: _nats.ver: keys that begin with _nats. are reserved for the server",
        ),
    ],
)
def test_errors_name_the_option(params: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        desired(**params)


def test_values_added_by_servers_are_ignored() -> None:
    plain = stream(mirror={"name": "A", "external": {"api": "x"}}, placement=None)
    told = stream(
        description="",
        placement={},
        sources=[],
        mirror={"name": "A", "opt_start_seq": 0, "external": {"api": "x", "deliver": ""}},
        max_msgs=-1,
        consumer_limits={},
        metadata={"_nats.level": "5", "_nats.req.level": "0", "_nats.ver": "2.15.1"},
        unknown_to_us=1,
    )
    assert plain == told
    assert consumer(filter_subject="a") == consumer(filter_subjects=["a"])
    assert consumer(sample_freq="50") == consumer(sample_freq="50%")
    assert consumer(max_ack_pending=-1) != consumer(max_ack_pending=0)


_NAME = st.text("abc", min_size=1, max_size=3)
_DURATIONS = st.sampled_from(["0", "-1", "5", "1s", "90s", "2m", "1h30m", "1d", "2w"])
_SIZES = st.sampled_from(["0", "-1", "1000", "1K", "1KB", "64MiB", "10GiB"])
_TIMES = st.sampled_from(["", "2026-01-31T08:00:00Z", "2026-01-31T09:00:00+01:00", "2026-01-31 08:00:00.25"])


def _values(item: ConfigKey) -> st.SearchStrategy[Any]:
    """Return the values that a task may give for a field."""
    plain: dict[str, st.SearchStrategy[Any]] = {
        "text": st.one_of(st.just(""), _NAME),
        "percent": st.sampled_from(["", "10", "10%"]),
        "number": st.integers(-1, 1000),
        "size": _SIZES,
        "duration": _DURATIONS,
        "durations": st.lists(_DURATIONS, max_size=3),
        "time": _TIMES,
        "flag": st.booleans(),
        "names": st.lists(_NAME, max_size=3),
        "map": st.dictionaries(_NAME, st.one_of(_NAME, st.integers(), st.booleans()), max_size=3),
    }
    if item.kind == "choice":
        return st.sampled_from(item.choices)
    if item.kind == "object":
        return _objects(item)
    if item.kind == "objects":
        return st.lists(_objects(item), max_size=3)
    return plain[item.kind]


def _objects(item: ConfigKey) -> st.SearchStrategy[dict[str, Any]]:
    needed = {part.name: _NAME for part in item.fields if part.required}
    free = {part.name: st.one_of(st.none(), _values(part)) for part in item.fields if not part.required}
    return st.fixed_dictionaries({**free, **needed})


def _params(fields: tuple[ConfigKey, ...]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({item.name: st.one_of(st.none(), _values(item)) for item in fields})


def _as_server(fields: tuple[ConfigKey, ...], config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration as a server reports it: some defaults explicit, others omitted, lists in any order."""
    told: dict[str, Any] = {}
    for item in fields:
        value = config[item.name]
        if item.kind in ("names", "objects") and value:
            value = list(reversed(value))
        if value is not None and not (item.kind == "text" and not value):
            told[item.name] = value
    told["metadata"] = {"_nats.ver": "2.15.1", "_nats.level": "5", **config["metadata"]}
    return told


@pytest.mark.parametrize("fields", [STREAM_FIELDS, CONSUMER_FIELDS])
def test_the_servers_view_of_a_desired_configuration_is_that_configuration(fields: tuple[ConfigKey, ...]) -> None:
    @settings(max_examples=40, deadline=None)
    @given(_params(fields))
    def check(params: dict[str, Any]) -> None:
        desired = rules.desired_fields(fields, params)
        new = rules.merge(rules.normal_config(fields, {}), desired)
        sent = rules.request(fields, {"name": "X"}, new, desired, NEW)
        assert rules.normal_config(fields, sent) == new
        assert rules.normal_config(fields, _as_server(fields, new)) == new
        assert rules.changed_keys(new, rules.merge(new, desired)) == []

    check()


# --- requests ---------------------------------------------------------------------------------------------------------


def test_a_request_changes_only_its_keys() -> None:
    raw = {
        "name": "S",
        "subjects": ["b", "a"],
        "placement": {"cluster": "C1"},
        "mirror": {"name": "A", "opt_start_time": "2026-01-01T00:00:00+02:00"},
        "strange": 1,
        "metadata": {"a": "b", "_nats.req.level": "0"},
    }
    new = {**rules.normal_config(STREAM_FIELDS, raw), "max_msgs": 5, "placement": None, "metadata": {"c": "d"}}
    sent = rules.request(STREAM_FIELDS, raw, new, ["max_msgs", "placement", "metadata"], NEW)
    kept = {key: raw[key] for key in ("name", "subjects", "mirror", "strange")}
    assert sent == {**kept, "max_msgs": 5, "metadata": {"c": "d", "_nats.req.level": "0"}}


def test_request_has_only_fields_that_the_server_supports() -> None:
    new = stream(allow_msg_ttl=False, persist_mode="default")
    assert rules.request(STREAM_FIELDS, {"name": "S"}, new, ["allow_msg_ttl", "persist_mode"], OLD) == {"name": "S"}
    assert rules.request(STREAM_FIELDS, {}, new, ["allow_msg_ttl", "persist_mode"], NEW) == {
        "allow_msg_ttl": False,
        "persist_mode": "default",
    }


@pytest.mark.parametrize(
    ("config", "needed"),
    [
        (stream(allow_msg_ttl=True), ["allow_msg_ttl needs nats-server 2.11"]),
        (stream(persist_mode="async"), ["persist_mode=async needs nats-server 2.12"]),
        (stream(persist_mode="default", allow_batched=False), []),
        (
            stream(sources=[{"name": "A", "consumer": {"name": "c", "deliver_subject": "d"}}]),
            ["sources.consumer needs nats-server 2.14"],
        ),
    ],
)
def test_features_name_their_minimum_version(config: dict[str, Any], needed: list[str]) -> None:
    assert rules.too_new(STREAM_FIELDS, config, OLD) == needed
    assert rules.too_new(STREAM_FIELDS, config, NEW) == []


def test_choices_name_their_minimum_version() -> None:
    config = consumer(priority_policy="prioritized", ack_policy="flow_control")
    assert rules.too_new(CONSUMER_FIELDS, config, (2, 11)) == [
        "ack_policy=flow_control needs nats-server 2.14",
        "priority_policy=prioritized needs nats-server 2.12",
    ]
    assert rules.too_new(CONSUMER_FIELDS, consumer(priority_policy="overflow"), (2, 11)) == []


# --- the server's defaults --------------------------------------------------------------------------------------------


def test_server_defaults_of_a_stream() -> None:
    def made(config: dict[str, Any], release: rules.Release = NEW) -> dict[str, Any]:
        return rules.expected_stream("S", rules.normal_config(STREAM_FIELDS, config), {}, release)

    assert (made({})["subjects"], made({})["duplicate_window"]) == (["S"], 120 * S)
    assert made({"max_age": 30 * S})["duplicate_window"] == 30 * S
    assert made({"mirror": {"name": "A"}})["subjects"] == []
    assert made({"mirror": {"name": "A"}})["duplicate_window"] == 0
    assert made({"sources": [{"name": "A"}]})["duplicate_window"] == 0
    assert made({"sources": [{"name": "A"}]}, OLD)["duplicate_window"] == 120 * S
    sealed = made({"sealed": True, "max_age": 30 * S, "allow_rollup_hdrs": True})
    assert (sealed["max_age"], sealed["discard"], sealed["deny_purge"], sealed["allow_rollup_hdrs"]) == (
        0,
        "new",
        True,
        False,
    )
    with pytest.raises(OptionError, match="duplicate_window: must not exceed max_age"):
        rules.expected_stream("S", stream(max_age=S), {"duplicate_window": 2 * S}, NEW)


def test_server_defaults_of_a_consumer() -> None:
    limits = stream(consumer_limits={"max_ack_pending": 7, "inactive_threshold": 60 * S})
    made = rules.expected_consumer(consumer(), {}, limits)
    assert (made["max_waiting"], made["ack_wait"]) == (512, 30 * S)
    assert (made["max_ack_pending"], made["inactive_threshold"]) == (7, 60 * S)
    push = rules.expected_consumer(consumer(deliver_subject="d", ack_policy="none"), {}, stream())
    assert (push["max_waiting"], push["ack_wait"], push["max_ack_pending"]) == (0, 0, 0)
    flow = rules.expected_consumer(consumer(deliver_subject="d", ack_policy="flow_control"), {}, stream())
    assert (flow["flow_control"], flow["idle_heartbeat"], flow["ack_wait"]) == (True, S, 0)
    with pytest.raises(OptionError, match="flow_control: with ack_policy=flow_control"):
        rules.expected_consumer(consumer(ack_policy="flow_control"), {"flow_control": False}, stream())


def test_a_pause_that_is_over_is_none() -> None:
    paused = consumer(pause_until="2026-01-01T00:00:00Z")
    assert rules.without_past_pause(paused, "2025-12-31T23:59:59Z") == paused
    assert rules.without_past_pause(paused, "2026-01-01T00:00:00Z")["pause_until"] is None


def kv(**params: Any) -> dict[str, Any]:
    return buckets.kv_desired("b", rules.desired_fields(buckets.KV_FIELDS, params))


def test_the_options_of_a_bucket_are_its_streams() -> None:
    assert kv(history=5, ttl="30s", max_value_size="1KB", limit_marker_ttl="1m") == {
        "max_msgs_per_subject": 5,
        "max_age": 30 * S,
        "max_msg_size": 1024,
        "subject_delete_marker_ttl": 60 * S,
        "duplicate_window": 30 * S,
    }
    assert kv(ttl="0")["duplicate_window"] == kv(ttl="1d")["duplicate_window"] == 120 * S
    assert kv() == {}
    with pytest.raises(OptionError, match="history: must be from 1 to 64, not 65"):
        kv(history=65)
    with pytest.raises(OptionError, match="not the name of a bucket"):
        buckets.require_bucket("a.b")


def test_buckets_name_buckets() -> None:
    assert kv(mirror={"name": "a"}) == {"mirror": {"name": "KV_a"}}
    assert kv(mirror={"name": None}) == {"mirror": None, "subjects": ["$KV.b.>"]}
    assert kv(mirror={"name": "KV_a", "external": {"api": "x"}})["mirror_direct"] is True
    far = {"name": "b", "external": {"api": "x"}}
    mapped = [{"src": "$KV.a.>", "dest": "$KV.b.>"}]
    assert kv(sources=[{"name": "a"}]) == {"sources": [{"name": "KV_a", "subject_transforms": mapped}]}
    assert kv(sources=[far]) == {"sources": [{**far, "name": "KV_b"}]}
    assert kv(sources=[{"name": "a", "filter_subject": "$KV.a.x"}])["sources"][0].get("subject_transforms") is None


def test_a_new_bucket_is_one() -> None:
    made = stream(**buckets.kv_defaults("b", {}))
    assert buckets.is_kv("b", made)
    assert not buckets.is_kv("c", made)
    assert buckets.is_kv(
        "c", stream(subjects=[], mirror={"name": "KV_b"}, **buckets.kv_defaults("c", {"mirror": {"name": "x"}}))
    )
    assert buckets.is_object("b", stream(**buckets.object_defaults("b")))
    assert not buckets.is_object("b", made)
