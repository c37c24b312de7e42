# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs nats_assets_info on real servers: a plan of the exported document is empty, and entries are exported only from the
selected buckets."""

from __future__ import annotations

from typing import Any, Callable

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.assets import config as rules
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.buckets import kv_subject
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.document import parse_document, read_document
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.ownership import marks, only_marks
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.jetstream_api import JetStreamApi
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from support.asset_documents import HEAD, create, publish, zoo
from support.module_runs import Runner
from support.nats_processes import NatsProcesses

pytestmark = pytest.mark.usefixtures("tidy")

SECOND, YEAR = 10**9, 365 * 86400 * 10**9
#: Values that jsm.go, with which all three tools create streams, always sends.
SENT: dict[str, Any] = {
    "retention": "limits",
    "discard": "old",
    "storage": "file",
    "max_consumers": -1,
    "max_msgs": -1,
    "max_bytes": -1,
    "max_msgs_per_subject": -1,
    "max_msg_size": -1,
    "max_age": 0,
    "num_replicas": 1,
    "consumer_limits": {},
}


def kv(bucket: str, history: int = 1, ttl: int = 0, **more: Any) -> dict[str, Any]:
    """Return the stream that clients create for a bucket."""
    return {
        "name": f"KV_{bucket}",
        "subjects": [f"$KV.{bucket}.>"],
        "max_msgs_per_subject": history,
        "max_age": ttl,
        "duplicate_window": min(120 * SECOND, ttl or 120 * SECOND),
        "discard": "new",
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "allow_direct": True,
        **more,
    }


def objects(bucket: str, **more: Any) -> dict[str, Any]:
    """Return the stream that clients create for an object bucket."""
    subjects = [f"$O.{bucket}.C.>", f"$O.{bucket}.M.>"]
    return {
        "name": f"OBJ_{bucket}",
        "subjects": subjects,
        "discard": "new",
        "allow_rollup_hdrs": True,
        "allow_direct": True,
        **more,
    }


Configured = tuple[list[dict[str, Any]], dict[str, list[dict[str, Any]]]]
#: The streams and consumers that the examples of three projects create, as the servers receive them.
PUBLIC: dict[str, Configured] = {
    "nack": (
        [
            {"name": "hourly", "subjects": ["hourly.*"], "max_age": 3600 * SECOND},
            {
                "name": "hourly-mirror",
                "mirror": {"name": "far", "external": {"api": "FAR.JS.API", "deliver": "FAR.DELIVER.MIRRORS"}},
            },
            {"name": "hourly-sources", "sources": [{"name": "m1"}, {"name": "m2"}]},
            {"name": "hourly-placed", "subjects": ["placed"], "placement": {"cluster": "", "tags": ["node:n1"]}},
            {"name": "trips", "subjects": ["trips.>"], "storage": "memory"},
            kv("made-by-operator", history=20, max_bytes=2048, compression="s2"),
            objects("made-by-operator", max_bytes=16 << 20, compression="s2"),
        ],
        {
            "hourly": [
                {
                    "durable_name": "pulls",
                    "deliver_policy": "all",
                    "filter_subject": "hourly.received",
                    "max_deliver": 20,
                    "ack_policy": "explicit",
                },
                {
                    "durable_name": "pushes",
                    "deliver_subject": "pushes.hourly",
                    "deliver_policy": "last",
                    "ack_policy": "none",
                    "replay_policy": "instant",
                    "description": "pushed",
                    "flow_control": True,
                    "idle_heartbeat": SECOND,
                },
            ]
        },
    ),
    "terraform": (
        [
            {"name": "SALES", "subjects": ["SALES.*"], "max_age": YEAR},
            {
                "name": "RENAMED",
                "subjects": ["RENAMED.*"],
                "subject_transform": {"src": "RENAMED.>", "dest": "NEWNAME.>"},
            },
            kv("TIMED", history=10, ttl=60 * SECOND, max_msg_size=1024, max_bytes=10240),
            objects("PACKED", description="payloads of any size", compression="s2"),
        ],
        {
            "SALES": [
                {
                    "durable_name": "NEW",
                    "deliver_policy": "all",
                    "filter_subject": "SALES.received",
                    "ack_policy": "explicit",
                    "ack_wait": 30 * SECOND,
                    "max_deliver": -1,
                    "sample_freq": "100%",
                },
                {
                    "durable_name": "WATCH",
                    "deliver_policy": "last",
                    "ack_policy": "explicit",
                    "max_ack_pending": 100,
                    "deliver_subject": "watch.SALES",
                },
            ]
        },
    ),
    "nats.docs": (
        [
            {"name": "SALES", "subjects": ["SALES.*"], "max_age": YEAR, "duplicate_window": 0},
            {"name": "first_steps", "subjects": ["first"], "duplicate_window": 120 * SECOND},
            {
                "name": "GATHERED",
                "subjects": ["one.ext.*", "two.ext.*"],
                "sources": [
                    {
                        "name": "ONE",
                        "filter_subject": "one.bar",
                        "opt_start_seq": 42,
                        "external": {"deliver": "", "api": "$JS.there.API"},
                    },
                    {"name": "TWO", "subject_transforms": [{"src": "two.bar", "dest": "two.ext.bar"}]},
                ],
            },
            kv("locks"),
            objects("files"),
        ],
        {
            "SALES": [
                {
                    "durable_name": "DISPATCH",
                    "ack_policy": "explicit",
                    "deliver_policy": "all",
                    "filter_subject": "SALES.processed",
                    "max_deliver": 20,
                    "sample_freq": "100",
                    "replay_policy": "instant",
                },
                {
                    "durable_name": "WATCH",
                    "deliver_subject": "watch.SALES",
                    "deliver_policy": "last",
                    "ack_policy": "none",
                    "replay_policy": "instant",
                },
                {
                    "durable_name": "SINCE",
                    "ack_policy": "none",
                    "deliver_policy": "by_start_time",
                    "opt_start_time": "2026-01-31T08:00:00.5Z",
                },
            ]
        },
    ),
}

Module = Callable[..., dict[str, Any]]
Changes = Callable[[dict[str, Any]], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def export(five: NatsProcesses, run_module: Runner) -> Module:
    def exported(document: str = "team", system: bool = False, **options: Any) -> dict[str, Any]:
        connection = five.app_connection()
        if system:
            connection = {**five.sys_connection(), "account_users": five.account_users()}
        return run_module("nats_assets_info", connection, account="APP", document=document, **options)

    return exported


@pytest.fixture(scope="module")
def changes(five: NatsProcesses, run_module: Runner) -> Changes:
    def planned(exported: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the assets of an exported document that its plan would change."""
        result = run_module("nats_assets_plan", five.app_connection(), documents=[exported["text"]])
        assert result["plan"]["problems"] == []
        rows = [row for row in result["plan"]["assets"] if row["document"] == exported["document"]["document"]]
        assert rows
        return [row for row in rows if row["state"] != "same"]

    return planned


def create_raw(api: JetStreamApi, configured: Configured) -> None:
    """Create streams and consumers as a client does."""
    streams, consumers = configured
    for config in streams:
        api.create_stream({**SENT, **config})

    def present() -> bool:
        return {config["name"] for config in streams} <= set(api.stream_names())

    assert wait_until(present, bool, 10).done
    for stream, configs in consumers.items():
        for config in configs:
            api.save_consumer(stream, {"name": config["durable_name"], **config}, "create")


def mark(api: JetStreamApi, text: str) -> None:
    """Mark the assets of a document as its own."""
    document = parse_document(text)
    for stream in document.streams.values():
        raw = api.stream(stream.name)["config"]
        for name in stream.consumers:
            config = api.consumer(stream.name, name)["config"]
            found = rules.normal_config(rules.CONSUMER_FIELDS, config)
            metadata = {**found["metadata"], **marks(document, rules.CONSUMER_FIELDS, found)}
            api.save_consumer(stream.name, {**config, "metadata": metadata}, "update")
        found = rules.normal_config(rules.STREAM_FIELDS, raw)
        metadata = {**found["metadata"], **marks(document, rules.STREAM_FIELDS, found)}
        api.update_stream({**raw, "metadata": {**(raw.get("metadata") or {}), **metadata}})


@pytest.mark.parametrize("system", [False, True])
def test_zoo_of_every_field_is_exported_as_it_was_declared(
    api: JetStreamApi, export: Module, changes: Changes, version: str, system: bool
) -> None:
    body = zoo(version)
    create(api, body)
    publish(api, kv_subject("settings", "rate"), b"10")
    found = export(streams=["*"], own_buckets=["settings"], system=system)
    assert found["omitted"] == [] and "adopt" not in found["document"], found
    assert changes(found) == []
    declared, exported = read_document({**HEAD, **body}), parse_document(found["text"])
    assert exported.streams.keys() == declared.streams.keys()
    assert found["document"]["kv"]["settings"].pop("entries") == {"rate": {"value": "10", "mode": "own"}}
    for section in ("streams", "mirrors", "kv", "objects"):
        for name, wanted in body[section].items():
            made = found["document"][section][name]
            assert made.keys() - {"duplicate_window"} <= wanted.keys(), name
            for consumer, settings in wanted.get("consumers", {}).items():
                assert made["consumers"][consumer].keys() <= settings.keys(), consumer
    assert found["document"]["streams"]["SOURCED"]["sources"][1] == "PLAIN"
    assert found["document"]["streams"]["FULL"]["max_bytes"] == "64MiB"


@pytest.mark.parametrize("project", PUBLIC)
def test_public_configuration_round_trips_to_an_empty_plan(
    api: JetStreamApi, export: Module, changes: Changes, project: str
) -> None:
    create_raw(api, PUBLIC[project])
    found = export()
    assert found["omitted"] == [], found["omitted"]
    assert all(only_marks(row) for row in changes(found))
    mark(api, found["text"])
    assert changes(found) == []
    again = export()
    assert {key: value for key, value in found["document"].items() if key != "adopt"} == again["document"]
    settings = [
        settings
        for section in ("streams", "mirrors", "kv", "objects")
        for settings in found["document"].get(section, {}).values()
    ]
    assert len(settings) == len(PUBLIC[project][0])
    assert not any({"duplicate_window", "max_msgs", "retention", "metadata"} & set(one) for one in settings)


def test_assets_of_others_are_named_and_left_alone(api: JetStreamApi, export: Module, changes: Changes) -> None:
    create(api, {"streams": {"OURS": {"consumers": {"c": {}}}}})
    for name, metadata in (
        ("THEIRS", {"managed-by": "terraform"}),
        ("SIBLING", {"managed-by": "natsops", "natsops.document": "other"}),
        ("UNMARKED", {"team": "b"}),
    ):
        create_raw(api, ([{"name": name, "metadata": metadata}], {name: [{"durable_name": "c"}]}))
    create_raw(api, ([kv("odd", discard="old")], {"OURS": [{"durable_name": "new", "metadata": {"managed-by": "x"}}]}))
    api.save_consumer("OURS", {"name": "brief", "inactive_threshold": 600 * SECOND}, "create")
    found = export()
    assert {(row["name"], row["reason"]) for row in found["omitted"]} == {
        ("THEIRS", "it belongs to terraform (metadata managed-by)"),
        ("SIBLING", "it belongs to document other"),
        ("OURS/new", "it belongs to x (metadata managed-by)"),
        ("odd", "a document would change it: discard: old → new"),
    }
    assert found["document"]["streams"]["OURS"] == {"consumers": {"c": {}}}
    assert found["document"]["adopt"] == ["UNMARKED"]
    assert found["summary"] == "2 streams, 2 consumers; 2 to adopt; 4 left out"
    assert {row["name"] for row in changes(found)} == {"UNMARKED", "UNMARKED/c"}
    selected = export(streams=["THEIRS", "SIB*"])
    assert selected["failed"] and selected["failure"]["code"] == "not_exported"
    assert "stream SIBLING: it belongs to document other" in selected["msg"]


def test_entries_are_exported_only_on_request_and_within_the_limits(
    api: JetStreamApi, export: Module, changes: Changes
) -> None:
    create_raw(api, ([kv("a", history=3), kv("b"), kv("many")], {}))
    values = {"a.motd": b"yes", "a.x.y": "ünïcode\n: {{ x }}".encode(), "a.big": b"x" * 2000, "a.raw": b"\xff"}
    for key, value in {**values, "a.gone": b"", "b.secret": b"s3cret"}.items():
        publish(api, f"$KV.{key}", value)
    api.purge_stream("KV_a", {"filter": "$KV.a.gone"})
    for number in range(5):
        publish(api, f"$KV.many.{number}", b"1")
    assert "s3cret" not in str(export()) and "entries" not in str(export()["document"])
    found = export(seed_buckets=["*"], own_buckets=["a"], streams=["KV_a", "KV_many"], max_entries=4)
    assert [(row["name"], row["reason"]) for row in found["omitted"]] == [
        ("a/raw", "its value is not text"),
        ("many/>", "it has 5 keys, more than 4"),
    ]
    found = export(own_buckets=["a"], max_entry_size="1KiB")
    assert [(row["name"], row["reason"]) for row in found["omitted"]] == [
        ("a/big", "it has 2000 bytes, more than 1024"),
        ("a/raw", "its value is not text"),
    ]
    assert found["document"]["kv"]["a"]["entries"] == {
        "motd": {"value": "yes", "mode": "own"},
        "x.y": {"value": "ünïcode\n: {{ x }}", "mode": "own"},
    }
    assert all(only_marks(row) for row in changes(found))


def test_export_changes_nothing_on_the_servers(api: JetStreamApi, export: Module) -> None:
    create_raw(api, PUBLIC["nack"])
    before = [(row["config"], row["created"]) for row in api.streams().rows]
    assert export(seed_buckets=["*"])["changed"] is False
    assert [(row["config"], row["created"]) for row in api.streams().rows] == before
