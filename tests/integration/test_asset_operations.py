# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the operations on messages and positions with real servers: each one is predicted, carried out once, and refused
if it is dangerous. nats_kv_entry_info, nats_object_info and nats_stream_message_info read the results."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any, Callable

import nats
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import Call, NatsFailure, Reply
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.jetstream_api import JetStreamApi
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from support.asset_changes import Run, changed, publish, refusal
from support.module_runs import form
from support.nats_processes import NatsProcesses

pytestmark = pytest.mark.usefixtures("tidy")

OLD = "2.10.27"


def with_client(five: NatsProcesses, work: Callable[[Any], Any]) -> None:
    """Run `work` with the JetStream context of nats-py."""

    async def connected() -> None:
        app = five.app_connection()
        client = await nats.connect(app["servers"], user=app["user"], password=app["password"])
        try:
            await work(client.jetstream())
        finally:
            await client.close()

    asyncio.run(connected())


def fetch(api: JetStreamApi, stream: str, consumer: str, count: int = 1, **request: Any) -> list[str]:
    """Request messages of a pull consumer without acknowledging them, and return their headers' pin IDs."""
    pins: list[str] = []

    def on_reply(reply: Reply) -> bool:
        pins.append(reply.headers.get("Nats-Pin-Id", ""))
        return len(pins) == count

    body = json.dumps({"batch": count, "expires": 5_000_000_000, **request}).encode()
    api._client.gather(Call(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", body), on_reply)
    return pins


# --- finding streams --------------------------------------------------------------------------------------------------


def test_streams_are_found_by_their_state(
    five: NatsProcesses, run: Run, run_module: Run, change: Run, api: JetStreamApi
) -> None:
    before = {row["name"] for row in run("stream_info")["streams"]}
    five.add_stream("FULL", 3)
    five.add_stream("EMPTY", 1)
    five.add_consumer("FULL", "worker")
    publish(api, "FULL.a", 2)
    assert wait_until(lambda: api.stream("FULL"), lambda info: info["state"]["consumer_count"] == 1, 30).done

    def names(connection: dict[str, Any], **options: Any) -> set[str]:
        return {row["name"] for row in run_module("nats_stream_info", connection, **options)["streams"]} - before

    system = {**five.sys_connection(), "account": "APP"}
    for connection in (five.app_connection(), {**system, "account_users": five.account_users()}, system):
        find = partial(names, connection)
        assert find(empty=True) == find(unused=True) == find(replicas=1) == {"EMPTY"}
        assert find(empty=False) == find(unused=False) == {"FULL"}
        assert find(replicas=3, empty=True) == find(idle="1h") == find(leaderless=True) == set()
        assert find(idle="0s", leaderless=False) == {"FULL", "EMPTY"}
    assert run("stream_info", idle="soon")["failure"]["code"] == "invalid_option"


def test_leaderless_stream_is_found(make_cluster: Callable[..., NatsProcesses], run_module: Run) -> None:
    cluster = form(make_cluster(["n1", "n2", "n3", "n4"]), run_module)
    cluster.add_stream("LED", 3)
    cluster.add_stream("LOST", 1)
    (lost,) = run_module("nats_stream_info", cluster.app_connection(), stream="LOST")["streams"]
    cluster.kill(lost["leader"])
    app = {**cluster.app_connection(), "servers": [cluster.url(name) for name in cluster.processes]}

    def leaderless() -> set[str]:
        result = run_module("nats_stream_info", app, leaderless=True, timeout=6)
        return {item["name"] for item in result.get("streams", ())} | {
            item["stream"] for item in result.get("unknown", ())
        }

    assert wait_until(leaderless, lambda names: names == {"LOST"}, 60).done
    led = run_module("nats_stream_info", app, leaderless=False)
    assert [row["name"] for row in led["streams"]] == ["LED"]
    system = {**cluster.sys_connection(), "servers": app["servers"]}
    told = run_module("nats_account_purge", system, account="APP", streams=["LED"], allow=["data_loss"])
    assert told["failure"]["code"] == "incomplete"
    assert f"these servers do not report their streams: {lost['leader']}" in told["msg"]


def test_gaps_and_subjects_are_read_by_the_account(
    five: NatsProcesses, run: Run, run_module: Run, api: JetStreamApi
) -> None:
    five.add_stream("HOLES", 3)
    publish(api, "HOLES.a", 5)
    publish(api, "HOLES.b", 3)
    for seq in (2, 3, 6):
        api.delete_message("HOLES", seq)
    options = {"stream": "HOLES", "details": ["gaps", "subjects"]}
    (stream,) = run("stream_info", **options)["streams"]
    assert stream["gaps"] == [[2, 3], [6, 6]]
    assert stream["subject_counts"] == {"HOLES.a": 3, "HOLES.b": 2}
    (stream,) = run("stream_info", **options, subject="*.b")["streams"]
    assert stream["subject_counts"] == {"HOLES.b": 2}
    system = {**five.sys_connection(), "account": "APP"}
    (other,) = run_module("nats_stream_info", {**system, "account_users": five.account_users()}, **options)["streams"]
    assert other["gaps"] == [[2, 3], [6, 6]]
    told = run_module("nats_stream_info", system, **options)
    assert "details: servers report them only to a user of the owning account" in told["msg"]


# --- messages ---------------------------------------------------------------------------------------------------------


def test_purge_predicts_its_number_and_refuses_a_different_one(
    refused: Run, run: Run, change: Run, five: NatsProcesses, api: JetStreamApi
) -> None:
    five.add_stream("DIRTY", 3)
    publish(api, "DIRTY.a", 4)
    publish(api, "DIRTY.b", 4)
    api.delete_message("DIRTY", 2)
    purged: dict[str, Any] = {"stream": "DIRTY", "state": "purged", "allow": ["data_loss"]}
    told = refused("stream", "dangerous", stream="DIRTY", state="purged")
    assert "it deletes 7 messages (all messages)" in told["msg"]
    for selection, number in (
        ({}, 7),
        ({"filter": "DIRTY.a"}, 3),
        ({"keep": 5}, 2),
        ({"filter": "DIRTY.b", "keep": 1}, 3),
        ({"seq": 4}, 2),
        ({"filter": "DIRTY.a", "seq": 4}, None),
    ):
        assert run("stream", check_mode=True, **purged, purge=selection)["purged"] == number
    told = refused("stream", "conflict", **purged, purge={"filter": "DIRTY.a", "expected": 4})
    assert "purge.expected: 3 messages match, not 4; nothing was deleted" in told["msg"]
    told = refused("stream", "conflict", **purged, purge={"filter": "DIRTY.a", "seq": 4, "expected": 2})
    assert "cannot be counted, not 2" in told["msg"]
    assert api.stream("DIRTY")["state"]["messages"] == 7
    assert change("stream", **purged, purge={"filter": "DIRTY.a", "expected": 3})["purged"] == 3
    assert change("stream", **purged, purge={"expected": 4})["purged"] == 4


def test_single_messages_are_deleted_if_their_subject_matches(
    change: Run, refused: Run, run: Run, five: NatsProcesses, api: JetStreamApi
) -> None:
    five.add_stream("DIRTY", 3)
    for subject in ("DIRTY.a", "DIRTY.b", "DIRTY.a"):
        publish(api, subject)
    wrong: dict[str, Any] = {"stream": "DIRTY", "state": "purged", "allow": ["data_loss"]}
    told = refused("stream", "invalid_option", **wrong, purge={"sequences": [1, 2], "filter": "DIRTY.a"})
    assert "message 2 has the subject DIRTY.b" in told["msg"]
    assert "filter" in run("stream", **wrong, purge={"sequences": [1]})["msg"]
    refused("stream", "invalid_option", **wrong, purge={"sequences": [], "filter": "DIRTY.a"})
    result = change("stream", **wrong, purge={"sequences": [1, 9], "filter": "DIRTY.a", "expected": 1})
    assert result["purged"] == 1
    first = api.first_message("DIRTY")
    assert first is not None and first["seq"] == 2
    change("stream", stream="DIRTY", deny_delete=True)
    told = refused("stream", "immutable", **wrong, purge={"sequences": [2], "filter": "DIRTY.b"})
    assert "it cannot be purged: deny_delete" in told["msg"]


# --- consumers --------------------------------------------------------------------------------------------------------


def test_consumer_is_reset_to_a_sequence_and_to_its_ack_floor(
    change: Run, refused: Run, run: Run, five: NatsProcesses, version: str, api: JetStreamApi
) -> None:
    five.add_stream("WORK", 3)
    worker = {"stream": "WORK", "consumer": "worker"}
    change("consumer", **worker, ack_wait="1h")
    if version == OLD:
        told = refused("consumer", "unsupported", **worker, state="reset")
        assert "needs nats-server 2.14; the servers run release 2.10; on older servers, create" in told["msg"]
        return
    assert run("consumer", **worker, state="reset")["changed"] is False
    publish(api, "WORK.a", 6)
    fetch(api, "WORK", "worker", 4)
    told = refused("consumer", "dangerous", **worker, state="reset")
    assert "4 messages delivered but not acknowledged (in_use)" in told["msg"]
    stale = {"reset": {"expected_delivered": 3}, "state": "reset", "allow": ["in_use"]}
    assert "is 4, not 3" in refused("consumer", "invalid_option", **worker, **stale)["msg"]
    result = change("consumer", **worker, state="reset", allow=["in_use"])
    assert result["diff"]["before"] == {"delivered": 4, "ack_floor": 0, "ack_pending": 4}
    assert result["reset_seq"] == 1
    info = api.consumer("WORK", "worker")
    assert (info["num_ack_pending"], info["num_pending"]) == (0, 6)

    forward = {"state": "reset", "reset": {"seq": 5}}
    assert (
        "unacknowledged messages of 1 to 4 (data_loss)" in refused("consumer", "dangerous", **worker, **forward)["msg"]
    )
    assert change("consumer", **worker, **forward, allow=["data_loss"])["reset_seq"] == 5
    assert api.consumer("WORK", "worker")["num_pending"] == 2
    assert change("consumer", **worker, state="reset", reset={"seq": 2})["diff"]["after"]["delivered"] == 1
    for seq in (0, 8):
        refused("consumer", "invalid_option", **worker, state="reset", reset={"seq": seq})
    change("consumer", stream="WORK", consumer="newest", deliver_policy="new")
    told = refused("consumer", "invalid_option", stream="WORK", consumer="newest", state="reset", reset={"seq": 1})
    assert "deliver_policy new allows only a reset to the ack floor" in told["msg"]
    refused("consumer", "not_found", stream="WORK", consumer="nothere", state="reset")


def test_pinned_client_is_unpinned(
    change: Run, refused: Run, run: Run, five: NatsProcesses, version: str, api: JetStreamApi
) -> None:
    five.add_stream("WORK", 3)
    pinned = {"stream": "WORK", "consumer": "pinned"}
    if version == OLD:
        change("consumer", **pinned)
        told = refused("consumer", "unsupported", **pinned, state="unpinned")
        assert "state: unpinned needs nats-server 2.11" in told["msg"]
        return
    group = {"priority_groups": ["workers"], "priority_policy": "pinned_client", "priority_timeout": "1h"}
    change("consumer", **pinned, **group)
    assert run("consumer", **pinned, state="unpinned")["unpinned"] == {}
    publish(api, "WORK.a", 2)
    (pin,) = fetch(api, "WORK", "pinned", group="workers")
    assert pin
    told = refused("consumer", "dangerous", **pinned, state="unpinned")
    assert f"client {pin} is pinned to group workers (in_use)" in told["msg"]
    other = run("consumer", **pinned, state="unpinned", unpin={"client": "other"}, allow=["in_use"])
    assert other["changed"] is False
    result = change("consumer", **pinned, state="unpinned", allow=["in_use"])
    assert result["unpinned"] == {"workers": pin}
    (second,) = fetch(api, "WORK", "pinned", group="workers")
    assert second not in ("", pin)
    once = run("consumer", **pinned, state="unpinned", unpin={"client": pin}, allow=["in_use"])
    assert once["changed"] is False
    told = refused("consumer", "invalid_option", **pinned, state="unpinned", unpin={"group": "x"})
    assert "x is not a priority group of the consumer: workers" in told["msg"]
    change("consumer", stream="WORK", consumer="plain")
    told = refused("consumer", "invalid_option", stream="WORK", consumer="plain", state="unpinned")
    assert "the policy is none" in told["msg"]


# --- key-value entries ------------------------------------------------------------------------------------------------


@pytest.fixture
def settings(change: Run, five: NatsProcesses) -> dict[str, Any]:
    change("kv_bucket", bucket="settings", history=3, num_replicas=3)
    return {"bucket": "settings"}


def test_messages_are_read_by_sequence_and_subject(change: Run, refused: Run, run: Run, five: NatsProcesses) -> None:
    change("stream", stream="ORDERS", subjects=["orders.>"], num_replicas=3)

    async def written(js: Any) -> None:
        for number in range(1, 13):
            headers = {"Nats-Msg-Id": str(number), "Colour": "red"} if number == 10 else None
            await js.publish(f"orders.{number % 2}", b"\xff" if number == 11 else str(number).encode(), headers=headers)
        await js.delete_msg("ORDERS", 7)

    with_client(five, written)

    def read(**options: Any) -> tuple[list[int], int | None]:
        found = run("stream_message_info", stream="ORDERS", **options)
        return [message["sequence"] for message in found["messages"]], found["next_sequence"]

    assert read(first_sequence=5, last_sequence=9) == ([5, 6, 8, 9], None)
    assert read(subject="orders.0", first_sequence=3) == ([4, 6, 8, 10, 12], None)
    assert read(first_sequence=6, limit=2) == ([6, 8], 9)
    assert read(newest=True, subject="orders.1") == ([11], None)
    assert read(newest=True, subject="orders.none") == read(first_sequence=13) == ([], None)
    ten, eleven = run("stream_message_info", stream="ORDERS", first_sequence=10, last_sequence=11)["messages"]
    assert (ten["data"], ten["data_base64"], ten["subject"]) == ("10", None, "orders.0")
    assert ten["headers"] == {"Nats-Msg-Id": ["10"], "Colour": ["red"]}
    assert (eleven["data"], eleven["data_base64"], eleven["headers"]) == (None, "/w==", {})
    for options, message in (
        ({"limit": 1001}, "limit: must be from 1 to 1000, not 1001"),
        ({"first_sequence": 9, "last_sequence": 8}, "must be at least 1, the first one first"),
        ({"newest": True, "last_sequence": 8}, "newest: selects one message"),
    ):
        assert message in refused("stream_message_info", "invalid_option", stream="ORDERS", **options)["msg"]


def entries(run: Run, **options: Any) -> list[tuple[str, str, str | None]]:
    """Return key, operation and value of the entries that nats_kv_entry_info returns."""
    found = run("kv_entry_info", bucket="settings", **options)["entries"]
    return [(entry["key"], entry["operation"], entry["value"]) for entry in found]


def test_an_entry_is_written_once_and_read_with_its_history(
    change: Run, refused: Run, run: Run, settings: dict[str, Any], five: NatsProcesses
) -> None:
    rate = {**settings, "key": "limits.rate"}
    first = change("kv_entry", **rate, value="10")
    assert (first["before"], first["revision"]) == (None, 1)
    assert first["diff"] == {
        "before": {"limits.rate": None},
        "after": {"limits.rate": "sha256:4a44dc15364204a8"},
    }
    told = refused("kv_entry", "conflict", **rate, value="20", expected_revision=0)
    assert "expected_revision: limits.rate has revision 1, not 0" in told["msg"]
    assert change("kv_entry", **rate, value="20", expected_revision=1)["revision"] == 2
    assert run("kv_entry", **rate, value="30", overwrite=False)["changed"] is False
    change("kv_entry", **settings, key="raw", value_base64="/w==")
    change("kv_entry", **settings, key="empty", value="")
    assert entries(run, keys="limits.>") == [("limits.rate", "put", "20")]
    assert entries(run, keys="limits.rate", history=True) == [
        ("limits.rate", "put", "10"),
        ("limits.rate", "put", "20"),
    ]
    (raw,) = run("kv_entry_info", **settings, keys="raw")["entries"]
    assert (raw["value"], raw["value_base64"]) == (None, "/w==")
    assert [entry[0] for entry in entries(run)] == ["empty", "limits.rate", "raw"]

    async def written(js: Any) -> None:
        bucket = await js.key_value("settings")
        assert (await bucket.get("limits.rate")).value == b"20"

    with_client(five, written)


def test_entries_are_deleted_with_and_without_their_history(
    change: Run, refused: Run, run: Run, settings: dict[str, Any]
) -> None:
    rate = {**settings, "key": "rate"}
    assert run("kv_entry", **rate, state="absent")["changed"] is False
    for value in ("10", "20"):
        run("kv_entry", **rate, value=value)
    change("kv_entry", **rate, state="absent")
    assert entries(run, history=True)[-1] == ("rate", "delete", None)
    assert change("kv_entry", **rate, value="40", overwrite=False)["revision"] == 4
    told = refused("kv_entry", "dangerous", **rate, state="purged")
    assert "the value of rate is deleted and no history is kept (data_loss)" in told["msg"]
    change("kv_entry", **rate, state="purged", allow=["data_loss"])
    assert entries(run, history=True) == [("rate", "purge", None)]
    change("kv_bucket", bucket="single")
    change("kv_entry", bucket="single", key="a", value="1")
    refused("kv_entry", "dangerous", bucket="single", key="a", state="absent")


def test_entries_that_cannot_be_written_are_refused(
    change: Run, refused: Run, run: Run, settings: dict[str, Any], version: str
) -> None:
    for key in ("a.*", "a..b", "", ">"):
        refused("kv_entry", "invalid_option", **settings, key=key, value="1")
    refused("kv_entry", "invalid_option", **settings, key="a", value_base64="?")
    refused("kv_entry", "not_found", bucket="nothere", key="a", value="1")
    told = refused("kv_entry", "unsupported", **settings, key="a", value="1", ttl="1h")
    assert "set limit_marker_ttl of the bucket" in told["msg"]
    assert "value" in run("kv_entry", **settings, key="a")["msg"]
    change("kv_bucket", bucket="copy", mirror={"name": "settings"})
    assert "read-only" in refused("kv_entry", "immutable", bucket="copy", key="a", value="1")["msg"]
    change("kv_entry", **settings, key="a", value="1")
    copied = partial(run, "kv_entry_info", bucket="copy")
    assert wait_until(copied, lambda result: [one["key"] for one in result["entries"]] == ["a"], 30).done
    if version != OLD:
        change("kv_bucket", bucket="expiring", limit_marker_ttl="1h")
        change("kv_entry", bucket="expiring", key="a", value="1", ttl="1s")
        expired = partial(run, "kv_entry_info", bucket="expiring")
        assert wait_until(expired, lambda result: result["entries"][0]["operation"] == "expired", 30).done


def test_concurrent_change_of_an_entry_is_not_overwritten(
    settings: dict[str, Any], run: Run, api: JetStreamApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("kv_entry", **settings, key="rate", value="10")
    store = JetStreamApi.store

    def after_another(self: JetStreamApi, subject: str, *arguments: Any) -> int:
        store(api, subject, b"99")
        return store(self, subject, *arguments)

    monkeypatch.setattr(JetStreamApi, "store", after_another)
    told = run("kv_entry", **settings, key="rate", value="20")
    assert told["failure"]["code"] == "conflict"
    assert "another client has changed rate since; nothing was changed" in told["msg"]
    assert entries(run) == [("rate", "put", "99")]


def test_bucket_is_compacted(change: Run, refused: Run, run: Run, settings: dict[str, Any], api: JetStreamApi) -> None:
    for key in ("kept", "deleted", "purged"):
        for value in ("1", "2"):
            run("kv_entry", **settings, key=key, value=value)
    run("kv_entry", **settings, key="deleted", state="absent")
    run("kv_entry", **settings, key="purged", state="purged", allow=["data_loss"])
    told = refused("kv_bucket", "dangerous", **settings, state="compacted")
    assert "it removes 2 messages of 1 deleted key (data_loss)" in told["msg"]
    compact = {**settings, "state": "compacted", "allow": ["data_loss"]}
    assert change("kv_bucket", **compact)["purged"] == 2
    assert [entry[0] for entry in entries(run, history=True)] == ["deleted", "kept", "kept", "purged"]
    done = change("kv_bucket", **compact, compact_older_than="0s")
    assert (done["purged"], done["diff"]) == (2, {"before": {"deleted_keys": 2}, "after": {"deleted_keys": 0}})
    assert [entry[0] for entry in entries(run, history=True)] == ["kept", "kept"]
    refused("kv_bucket", "invalid_option", **compact, compact_older_than="soon")


# --- objects ----------------------------------------------------------------------------------------------------------


def test_an_object_is_uploaded_fetched_and_deleted(
    change: Run, refused: Run, run: Run, five: NatsProcesses, api: JetStreamApi, tmp_path: Path
) -> None:
    change("object_bucket", bucket="reports", num_replicas=3)
    prices = {"bucket": "reports", "name": "prices/ä.csv"}
    source, copy = tmp_path / "prices.csv", tmp_path / "copy.csv"
    source.write_bytes(b"x" * 300_000)
    made = change("object", **prices, src=str(source))
    assert (made["before"], made["after"]["size"], made["after"]["chunks"]) == (None, 300_000, 3)
    assert change("object", **prices, state="fetched", dest=str(copy))["changed"]
    assert copy.read_bytes() == source.read_bytes()
    assert copy.stat().st_mode & 0o777 == 0o640

    async def got(js: Any) -> None:
        bucket = await js.object_store("reports")
        assert (await bucket.get("prices/ä.csv")).data == source.read_bytes()
        await bucket.put("client", b"from a client")

    with_client(five, got)
    assert [item["name"] for item in run("object_info", bucket="reports")["objects"]] == ["client", "prices/ä.csv"]
    change("object", bucket="reports", name="client", state="fetched", dest=str(copy))
    assert copy.read_bytes() == b"from a client"

    source.write_bytes(b"")
    change("object", **prices, src=str(source), description="none today")
    assert set(api.subject_counts("OBJ_reports", "$O.reports.C.>").values()) == {1}
    told = refused("object", "dangerous", **prices, state="absent")
    assert "object prices/ä.csv (0 B) is deleted (data_loss)" in told["msg"]
    change("object", **prices, state="absent", allow=["data_loss"])
    assert [item["name"] for item in run("object_info", bucket="reports")["objects"]] == ["client"]
    refused("object", "not_found", **prices, state="fetched", dest=str(copy))
    refused("object", "not_found", bucket="nothere", name="a", src=str(source))
    assert "src: " in refused("object", "invalid_option", **prices, src=str(tmp_path / "missing"))["msg"]
    refused("object", "invalid_option", bucket="reports", name="", src=str(source))


def test_damaged_object_does_not_replace_a_file(change: Run, run: Run, api: JetStreamApi, tmp_path: Path) -> None:
    change("object_bucket", bucket="reports")
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.write_bytes(b"x" * 300_000)
    copy.write_bytes(b"old")
    report = {"bucket": "reports", "name": "a"}
    change("object", **report, src=str(source))
    api.delete_message("OBJ_reports", 2)
    told = run("object", **report, state="fetched", dest=str(copy))
    assert (told["failure"]["code"], copy.read_bytes()) == ("interrupted", b"old")
    assert "chunk 3 of 3 of a is missing" in told["msg"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "source"]


def test_failed_upload_leaves_the_old_object_and_no_chunks(
    change: Run, run: Run, api: JetStreamApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change("object_bucket", bucket="reports")
    source = tmp_path / "source"
    source.write_bytes(b"old")
    report = {"bucket": "reports", "name": "a", "src": str(source)}
    change("object", **report)
    source.write_bytes(b"x" * 300_000)
    store, sent = JetStreamApi.store, []

    def failing(self: JetStreamApi, subject: str, payload: bytes, headers: Any = None) -> int:
        sent.append(subject)
        if len(sent) == 3:
            raise NatsFailure("timeout", "no reply")
        return store(self, subject, payload, headers)

    monkeypatch.setattr(JetStreamApi, "store", failing)
    assert run("object", **report)["failure"]["code"] == "timeout"
    (kept,) = run("object_info", bucket="reports")["objects"]
    assert kept["size"] == 3
    assert sum(api.subject_counts("OBJ_reports", "$O.reports.C.>").values()) == 1


# --- accounts ---------------------------------------------------------------------------------------------------------


def test_all_streams_of_an_account_are_deleted_by_name(five: NatsProcesses, run_module: Run) -> None:
    def run_as_system(name: str, /, check_mode: bool = False, **options: Any) -> dict[str, Any]:
        return run_module(f"nats_{name}", five.sys_connection(), check_mode, **options)

    for name in ("GONE", "LOST"):
        five.add_stream(name, 3, account="OTHER")
    five.add_stream("STAYS", 1)
    other: dict[str, Any] = {"account": "OTHER", "allow": ["data_loss"]}
    told = refusal(run_as_system, "account_purge", "conflict", **other, streams=["GONE", "STAYS"])
    assert "LOST exists, but is not listed" in told["msg"]
    assert "STAYS is listed, but does not exist" in told["msg"]
    told = refusal(run_as_system, "account_purge", "dangerous", account="OTHER", streams=["GONE", "LOST"])
    assert "2 streams with 0 messages are deleted (data_loss)" in told["msg"]
    purged = changed(run_as_system, "account_purge", **other, streams=["LOST", "GONE"])
    assert purged["diff"] == {"before": {"streams": ["GONE", "LOST"]}, "after": {"streams": []}}
    remains = [stream["name"] for stream in run_as_system("stream_info")["streams"]]
    assert "STAYS" in remains and not {"GONE", "LOST"} & set(remains)
    assert run_as_system("account_purge", **other, streams=[], unlisted=True)["changed"]
    refusal(run_as_system, "account_purge", "invalid_option", account="APP.x", streams=["STAYS"])
    told = run_module("nats_account_purge", five.app_connection(), **other, streams=[])
    assert told["failure"]["code"] == "wrong_account"


# --- benchmark --------------------------------------------------------------------------------------------------------


def test_benchmark_measures_and_leaves_nothing(
    five: NatsProcesses, run: Run, run_module: Run, api: JetStreamApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = api.stream_names()
    options = {"messages": 300, "message_size": "256", "replicas": 3}
    assert run("stream_benchmark", check_mode=True, **options)["publish"] is None
    result = run("stream_benchmark", **options)
    assert (result["changed"], result["publish"]["messages"], result["consume"]["messages"]) == (False, 300, 300)
    assert result["leader"] in five.processes
    assert 0 < result["publish"]["p50_ms"] <= result["publish"]["p99_ms"] <= result["publish"]["max_ms"]
    assert result["publish"]["messages_per_second"] > 0
    system = {**five.sys_connection(), "account": "APP", "account_users": five.account_users()}
    assert run_module("nats_stream_benchmark", system, messages=10, storage="memory")["consume"]["messages"] == 10
    assert run("stream_benchmark", messages=10**7)["failure"]["code"] == "invalid_option"
    assert run("stream_benchmark", messages=10, placement={"cluster": "NOWHERE"})["failure"]["code"] == "api_error"

    def failing(self: JetStreamApi, *arguments: Any) -> None:
        raise NatsFailure("timeout", "no reply")

    monkeypatch.setattr(JetStreamApi, "save_consumer", failing)
    assert run("stream_benchmark", messages=10)["failure"]["code"] == "timeout"
    assert wait_until(api.stream_names, lambda names: names == before, 30).done
