# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Exported documents: their values, the assets that they leave out, and refused exports."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import yaml
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.config import (
    CONSUMER_FIELDS,
    STREAM_FIELDS,
    expected_consumer,
    origin,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.document import parse_document
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.export import (
    Export,
    ExportRequest,
    buckets_with_entries,
    entry_key,
    entry_problem,
    export_document,
    export_page,
    export_summary,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.ownership import marks
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.plan import LiveAssets, LiveEntry
from ansible_collections.natsops.jetstream.plugins.module_utils.documents import (
    InvalidDocument,
    dump_yaml,
    load_yaml,
)
from hypothesis import given
from hypothesis import strategies as st

REQUEST = ExportRequest("d", "A")
Info = dict[str, Any]


def reported(body: str, mark: bool = True, release: tuple[int, int] = (2, 15)) -> LiveAssets:
    """Return the assets of a document as servers report them."""
    document = parse_document(f"document: d\ncluster: C1\naccount: A\n{body}")
    streams: dict[str, Info] = {}
    consumers: dict[str, dict[str, Info]] = {}
    for stream in document.streams.values():
        copied = document.streams.get(origin(stream.config))
        config = stream.effective(None, release, bool(copied.config["allow_direct"]) if copied else None)
        config["metadata"] = {**config["metadata"], **(marks(document, STREAM_FIELDS, config) if mark else {})}
        streams[stream.name] = {"config": {**config, "name": stream.name}, "state": {"num_subjects": 0}}
        for consumer in stream.consumers.values():
            own = expected_consumer(consumer.config, consumer.given, config)
            own["metadata"] = {**own["metadata"], **(marks(document, CONSUMER_FIELDS, own) if mark else {})}
            info = {"name": consumer.name, "config": {**own, "durable_name": consumer.name}}
            consumers.setdefault(stream.name, {})[consumer.name] = info
    return LiveAssets("C1", release, streams, consumers)


def with_stream(live: LiveAssets, name: str, **config: Any) -> LiveAssets:
    """Return the assets with a stream's configuration changed."""
    info = live.streams[name]
    return replace(live, streams={**live.streams, name: {**info, "config": {**info["config"], **config}}})


def reasons(found: Export) -> Mapping[str, str]:
    return {one.name: one.reason for one in found.omitted}


def test_only_values_that_differ_from_the_defaults_are_stated_in_units() -> None:
    body: dict[str, dict[str, Any]] = {
        "streams": {
            "S": {
                "subjects": ["s.>"],
                "max_bytes": "50GiB",
                "max_age": "7d",
                "replicas": 3,
                "consumer_limits": {"inactive_threshold": "1h"},
                "consumers": {
                    "all": {},
                    "none": {"ack_policy": "none", "sample_freq": "50%", "backoff": ["1s", "90s"], "max_deliver": 3},
                },
            },
            "PLAIN": {},
        },
        "mirrors": {"M": {"of": "S"}, "F": {"of": {"name": "X", "external": {"api": "$JS.d.API"}}}},
        "kv": {"b": {"history": 5, "ttl": "1h", "mirror": "c"}, "c": {"sources": ["e", "KV_KV_x"]}},
        "objects": {"o": {"description": "files"}},
    }
    found = export_document(REQUEST, reported(dump_yaml(body)))
    assert {key: value for key, value in found.content.items() if key in body} == {
        **body,
        "kv": {"b": body["kv"]["b"], "c": {"sources": ["KV_KV_x", "e"]}},
    }
    assert found.omitted == [] and found.unmarked == 0
    first, second, *_rest = found.text.splitlines()
    assert first.startswith("# yaml-language-server: $schema=https://") and second == "---"
    assert load_yaml(found.text) == found.content


def test_unmarked_assets_are_adopted() -> None:
    body = "streams: {S: {subjects: [s], consumers: {c: {}}}, T: {}}\nkv: {b: {}}"
    unmarked = reported(body, mark=False)
    found = export_document(REQUEST, unmarked)
    assert found.content["adopt"] == ["S", "T", "b"]
    assert export_summary(found) == "2 streams, 1 kv, 1 consumers; 4 to adopt"
    marked = reported(body)
    mixed = replace(marked, consumers=unmarked.consumers)
    assert export_document(REQUEST, mixed).content["adopt"] == ["S/c"]
    assert "adopt" not in export_document(REQUEST, marked).content


def test_owning_document_a_different_name_leaves_all_marked_assets_alone() -> None:
    live = reported("streams: {S: {consumers: {c: {}}}}")
    with pytest.raises(InvalidDocument) as caught:
        export_document(ExportRequest("other", "A"), live)
    assert list(caught.value.problems) == [
        "account A has no assets that the document could declare",
        "stream S: it belongs to document d",
    ]


def test_streams_that_no_document_can_declare_are_omitted_with_the_reason() -> None:
    live = reported("streams: {S: {}, T: {consumers: {c: {}, d: {}}}}\nkv: {b: {}, c: {}}\nobjects: {o: {}}")
    live = with_stream(live, "KV_b", max_msgs=10)
    live = with_stream(live, "KV_c", subjects=["elsewhere"])
    live = with_stream(live, "OBJ_o", max_msgs_per_subject=1)
    live = replace(
        live,
        streams={**live.streams, "$MQTT_msgs": {"config": {"name": "$MQTT_msgs", "subjects": ["$MQTT.msgs.>"]}}},
        consumers={
            **live.consumers,
            "KV_c": {"w": {"name": "w", "config": {"durable_name": "w"}}},
            "S": {"e": {"name": "e", "config": {"name": "e"}}, "m": {"config": {"durable_name": "m", "direct": True}}},
        },
    )
    info = live.consumers["T"]["d"]
    info["config"]["replay_policy"] = "original"
    info["config"]["deliver_policy"] = "by_start_sequence"
    found = export_document(REQUEST, live)
    assert found.content["streams"] == {
        "S": {},
        "T": {"consumers": {"c": {}, "d": {"deliver_policy": "by_start_sequence", "replay_policy": "original"}}},
    }
    assert reasons(found) == {
        "$MQTT_msgs": "servers manage it",
        "b": "a document would change it: max_msgs: 10 → -1",
        "c": 'a document would change it: subjects: ["elsewhere"] → ["$KV.c.>"]',
        "KV_c/w": "a document cannot declare consumers of buckets",
        "o": "a document would change it: max_msgs_per_subject: 1 → -1",
    }
    assert any("$MQTT_msgs" in line and "servers manage it" in line for line in export_page(found).lines)


def test_paused_consumer_is_exported_without_its_pause() -> None:
    live = reported("streams: {S: {consumers: {c: {}}}}")
    live.consumers["S"]["c"]["config"]["pause_until"] = "2030-01-01T00:00:00Z"
    assert export_document(REQUEST, live).content["streams"] == {"S": {"consumers": {"c": {}}}}


def test_nothing_is_exported_while_a_selected_asset_has_no_leader() -> None:
    live = reported("streams: {S: {}, T: {}}")
    live = replace(live, unknown={"U": "no leader"}, unknown_consumers={"T/c": "no leader"})
    with pytest.raises(InvalidDocument) as caught:
        export_document(REQUEST, live)
    assert [one.split(":")[0] for one in caught.value.problems] == ["T/c", "U"]
    only_s = ExportRequest("d", "A", streams=("S*",))
    assert export_document(only_s, live).content["streams"] == {"S": {}}


def test_names_of_brackets_are_selected_literally() -> None:
    live = reported('streams: {"A[1]": {}, A1: {}}')
    assert set(export_document(ExportRequest("d", "A", ("A[1]",)), live).content["streams"]) == {"A[1]"}


def test_entries_are_declared_with_the_mode_of_their_bucket() -> None:
    live = reported("kv: {a: {}, b: {}, c: {}}")
    entries = {("KV_a", "x"): b"yes", ("KV_a", "y.z"): b"1", ("KV_b", "x"): b"", ("KV_c", "x"): b"secret"}
    live = replace(live, entries={key: LiveEntry(1, value) for key, value in entries.items()})
    found = export_document(ExportRequest("d", "A", seed=("a", "b"), own=("b",)), live)
    assert found.content["kv"] == {
        "a": {"entries": {"x": {"value": "yes"}, "y.z": {"value": "1"}}},
        "b": {"entries": {"x": {"value": "", "mode": "own"}}},
        "c": {},
    }
    assert "secret" not in found.text
    assert found.counts()["entries"] == 3


def test_buckets_with_too_many_keys_and_mirrors_are_left_out() -> None:
    live = reported("kv: {a: {}, b: {}, m: {mirror: a}, n: {}}")
    live.streams["KV_b"]["state"]["num_subjects"] = 3
    found, omitted = buckets_with_entries(ExportRequest("d", "A", seed=("[abm]", "a", "b", "m")), live, 2)
    assert found == {"KV_a": "a"}
    assert [(one.name, one.reason) for one in omitted] == [
        ("b/>", "it has 3 keys, more than 2"),
        ("m/>", "a mirror is read-only; export the entries of its origin"),
    ]


def test_values_that_a_document_cannot_contain() -> None:
    assert entry_problem(b"12345", 4) == "it has 5 bytes, more than 4"
    assert entry_problem(b"\xff", 4) == "its value is not text"
    assert entry_problem("é".encode(), 4) == ""
    assert entry_key("b", "$KV.b.x.y") == "x.y"


def test_export_of_a_large_account_is_fast() -> None:
    names = [f"S{number:03}" for number in range(300)]
    consumers = {f"c{number}": {"filter_subjects": ["a"], "ack_wait": "10s"} for number in range(3)}
    body = {"streams": {name: {"max_age": "7d", "replicas": 3, "consumers": consumers} for name in names}}
    live = reported(yaml.safe_dump(body), mark=False)
    start = time.process_time()
    found = export_document(REQUEST, live)
    assert time.process_time() - start < 20
    assert found.counts()["consumers"] == 900


@given(
    st.dictionaries(
        st.text(max_size=5), st.text(max_size=20) | st.booleans() | st.integers() | st.lists(st.text(max_size=5))
    )
)
def test_written_yaml_is_read_as_the_same_content(content: dict[str, Any]) -> None:
    assert load_yaml(dump_yaml(content)) == content
