# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real streams are saved one by one by `nats_backup`, deleted, restored by `nats_restore`, and compared with the
producer's record."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import nats
import pyrage
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.backup import restore_rules
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.archive_contents import ArchiveContents
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.files import read_backup
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.store import DirectoryStore
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.verify import CONTENTS, verify
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import (
    Call,
    Download,
    NatsFailure,
    Upload,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.jetstream_api import (
    JetStreamApi,
    RestoreFailed,
    TransferPace,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from nats.aio.client import Client as NatsPy
from support import natscli
from support.backup_site import Record, Run, Site, some_messages
from support.load import patiently
from support.manifests import change_manifest
from support.module_runs import form
from support.nats_processes import APP_PASSWORD, NatsProcesses, collections_path
from support.object_storage import BUCKET, ObjectStorage

OLD, NEW = "2.10.27", "2.15.1"
ARCHIVE = "stream.tar.s2"
FIXTURES = Path(__file__).parents[1] / "unit" / "module_utils" / "backup" / "archives"


@pytest.fixture(scope="module")
def site(version: str, tmp_path_factory: pytest.TempPathFactory, run_module: Run) -> Iterator[Site]:
    cluster = NatsProcesses(version, tmp_path_factory.mktemp("saved"), ["n1", "n2", "n3"])
    cluster.start()
    made = Site(cluster, run_module)
    try:
        form(cluster, run_module)
        yield made
    finally:
        made.client.close()
        cluster.kill()


@pytest.fixture(autouse=True)
def tidy(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "site" in request.fixturenames:
        request.getfixturevalue("site").clear()


@pytest.fixture
def save(site: Site, tmp_path: Path) -> Callable[..., Path]:
    """Save a stream three times: in check mode, for real, and again without a change."""

    def saved(stream: str, **options: Any) -> Path:
        options = {"streams": [stream], "path": str(tmp_path / "backup"), **options}
        predicted = site.run("backup", check_mode=True, **options)
        assert (predicted["changed"], predicted["path"]) == (True, None), predicted
        assert not list((tmp_path / "backup").glob(f"{stream}@*"))
        real = site.done("backup", **options)
        assert real["changed"] and real["reason"] == predicted["reason"] == "there is no backup yet"
        assert real["diff"] == predicted["diff"]
        again = site.done("backup", **options)
        assert (again["changed"], again["path"], again["reason"]) == (False, real["path"], ""), again
        path = Path(real["path"])
        assert (path.stat().st_mode & 0o777, (path / ARCHIVE).stat().st_mode & 0o777) == (0o700, 0o600)
        assert (path / "backup.json").stat().st_mode & 0o777 == 0o600
        return path

    return saved


def read_manifest(path: Path) -> dict[str, Any]:
    return json.loads((path / "backup.json").read_text())


@pytest.mark.parametrize("replicas", [1, 3])
def test_every_message_and_position_comes_back(
    site: Site, save: Callable[..., Path], version: str, replicas: int
) -> None:
    name = f"ORDERS{replicas}"
    site.add(name, replicas, subjects=[f"{name}.>"])
    for consumer, options in (("all", {}), ("three", {"filter_subject": f"{name}.3"}), ("idle", {})):
        site.cluster.add_consumer(name, consumer, **options)
    record = site.produce(some_messages(name))
    for sequence in (1, 2, 50, 120):
        site.api.call(f"STREAM.MSG.DELETE.{name}", {"seq": sequence})
    record.remove(1, 2, 50, 120)
    # The consumer's leader may receive the acknowledgements after the stream's leader.
    pending = wait_until(lambda: site.api.consumer(name, "all")["num_pending"], lambda number: number == 116, 20)
    assert pending.done, pending.value
    site.consume(name, "all", record, fetch=20, ack=20)
    site.consume(name, "three", record, f"{name}.3", fetch=4, ack=3)
    site.consume(name, "idle", record)
    path = save(name)
    told = read_manifest(path)
    assert told["contents"]["messages"] == len(record.messages) == 116
    assert told["contents"]["last_seq"] == 120
    record.assert_positions(told["consumers"])
    assert bool(told["caveats"]) == (version == OLD and replicas == 3)

    assert site.done("restore", path=str(path))["changed"] is False
    site.produce([(f"{name}.x", {}, b"later")])
    assert "last_seq is 121 instead of 120" in site.refused("restore", "exists", path=str(path))
    site.api.delete_stream(name)
    predicted = site.run("restore", check_mode=True, path=str(path))
    assert (predicted["changed"], predicted["bytes"]) == (True, (path / ARCHIVE).stat().st_size)
    assert site.api.find_stream(name) is None
    real = site.done("restore", path=str(path))
    assert real["diff"] == predicted["diff"]
    site.assert_restored(name, record)
    # Unacknowledged messages are redelivered, even if the server has lost the record of their delivery.
    assert any("delivered again: three (1)" in caveat for caveat in real["caveats"])
    left = [seq for seq, message in record.messages.items() if message[0] == f"{name}.3"][3:]
    three = wait_until(
        lambda: site.api.consumer(name, "three"),
        lambda info: info["num_pending"] + info["num_ack_pending"] == len(left),
        20,
    )
    assert three.done and len(left) == 8, three.value
    assert site.done("restore", path=str(path))["changed"] is False
    config = site.api.stream(name)["config"]
    assert (config["num_replicas"], config["subjects"]) == (replicas, [f"{name}.>"])
    # The next message does not reuse the sequence of a deleted message.
    assert set(site.produce([(f"{name}.x", {}, b"next")]).messages) == {121}


def add_stream_with_deletions(site: Site, name: str) -> Record:
    """Add a stream with a consumer that has a position; its first messages and two others are deleted, with or without
    erasing their content."""
    site.add(name, 1, subjects=[f"{name}.>"])
    site.cluster.add_consumer(name, "all")
    record = site.produce(some_messages(name))
    for sequence, no_erase in ((1, False), (2, True), (50, False), (60, True)):
        site.api.call(f"STREAM.MSG.DELETE.{name}", {"seq": sequence, "no_erase": no_erase})
    record.remove(1, 2, 50, 60)
    site.consume(name, "all", record, fetch=20, ack=20)
    return record


def test_2_9_is_saved_and_restored(tmp_path: Path, run_module: Run) -> None:
    """2.9 archives have an index for each block, which is the only record of deletions that did not erase the
    message."""
    cluster = NatsProcesses("2.9.10", tmp_path, ["n1", "n2", "n3"])
    cluster.start()
    try:
        site = Site(form(cluster, run_module), run_module)
        record = add_stream_with_deletions(site, "S")
        saved = site.done("backup", streams=["S"], path=str(tmp_path / "backup"))
        held = saved["backup"]["contents"]
        assert (held["messages"], held["first_seq"], held["last_seq"], held["exact"]) == (116, 3, 120, True)
        restore(site, Path(saved["path"]), "S")
        site.assert_restored("S", record)
        # The server rebuilds the index of a block whose last message was erased.
        site.api.call("STREAM.MSG.DELETE.S", {"seq": 120})
        again = site.done("backup", streams=["S"], path=str(tmp_path / "backup"))
        assert again["changed"] and not again["backup"]["contents"]["exact"]
        site.client.close()
    finally:
        cluster.kill()


@pytest.fixture(scope="session")
def of_2_9(tmp_path_factory: pytest.TempPathFactory, run_module: Run) -> tuple[dict[str, Path], Record]:
    """Backups of a stream on a nats-server 2.9.10: with a current index, and with an index that is behind its block."""
    root = tmp_path_factory.mktemp("of_2_9")
    cluster = NatsProcesses("2.9.10", root, ["n1"], cluster="")
    cluster.start()
    try:
        site = Site(cluster, run_module)
        seen = wait_until(lambda: site.api.info().get("limits"), lambda limits: limits is not None, 20)
        assert seen.done
        record = add_stream_with_deletions(site, "OLD")
        current = site.done("backup", streams=["OLD"], path=str(root / "backup"))["path"]
        site.api.call("STREAM.MSG.DELETE.OLD", {"seq": 120})
        stale = site.done("backup", streams=["OLD"], path=str(root / "backup"))
        assert not stale["backup"]["contents"]["exact"]
        site.client.close()
    finally:
        cluster.kill()
    return {"current": Path(current), "stale": Path(stale["path"])}, record


@pytest.mark.parametrize("index", ["current", "stale"])
def test_a_backup_of_2_9_is_restored_by_newer_servers(
    site: Site, of_2_9: tuple[dict[str, Path], Record], index: str
) -> None:
    paths, record = of_2_9
    record = copy.deepcopy(record)
    if index == "stale":
        record.remove(120)
    result = site.done("restore", path=str(paths[index]), num_replicas=3)
    assert (result["changed"], result["stream"]) == (True, "OLD"), result
    site.assert_restored("OLD", record)
    info = site.api.stream("OLD")
    assert info["config"]["num_replicas"] == 3
    assert (info["state"]["messages"], info["state"]["last_seq"]) == (len(record.messages), 120)
    # Each replica has these deletions, no matter which member leads.
    for _step in range(2):
        site.api.call("STREAM.LEADER.STEPDOWN.OLD")
        site.cluster.app_request("$JS.API.STREAM.INFO.OLD", members=3)
        site.assert_restored("OLD", record)


def restore(site: Site, path: Path, stream: str, **options: Any) -> dict[str, Any]:
    """Delete a stream, restore it, and return the result."""
    site.api.delete_stream(stream)
    wait_until(lambda: site.api.find_stream(stream), lambda found: found is None, 20)
    return site.done("restore", path=str(path), **options)


@pytest.mark.parametrize("messages", [0, 5])
def test_empty_stream_continues_its_sequences(site: Site, save: Callable[..., Path], messages: int) -> None:
    site.add(f"EMPTY{messages}", 1)
    record = site.produce(some_messages(f"EMPTY{messages}", messages))
    site.api.purge_stream(f"EMPTY{messages}")
    path = save(f"EMPTY{messages}")
    restore(site, path, f"EMPTY{messages}")
    assert site.done("restore", path=str(path))["changed"] is False
    assert site.stored(f"EMPTY{messages}") == {}
    assert set(site.produce([(f"EMPTY{messages}.a", {}, b"next")], record).messages) == set(range(1, messages + 2))


@pytest.mark.parametrize("replicas", [1, 3])
def test_work_queue_keeps_unacknowledged_messages(site: Site, save: Callable[..., Path], replicas: int) -> None:
    name = f"JOBS{replicas}"
    site.add(name, replicas, retention="workqueue")
    site.cluster.add_consumer(name, "worker")
    record = site.produce(some_messages(name))
    site.consume(name, "worker", record, fetch=30, ack=20)
    record.remove(*range(1, 21))
    wait_until(lambda: site.api.stream(name)["state"]["messages"], lambda count: count == 100, 60)
    path = save(name)
    caveats = restore(site, path, name)["caveats"]
    assert any("delivered again: worker (10)" in caveat for caveat in caveats), caveats
    site.assert_restored(name, record)
    # The ten messages that were delivered but not acknowledged are delivered again, at the latest after the ack wait.
    assert site.api.consumer(name, "worker")["ack_floor"]["stream_seq"] == 20


def test_buckets_come_back(site: Site, save: Callable[..., Path], version: str) -> None:
    content = bytes(range(256)) * 2000

    async def fill() -> None:
        connection = await site.connect()
        try:
            stream = connection.jetstream(timeout=10)
            values = await stream.create_key_value(bucket="SETTINGS", history=3, replicas=3)
            for number in range(20):
                await values.put(f"key.{number % 5}", f"value {number}".encode())
            await values.delete("key.1")
            await values.purge("key.2")
            objects = await stream.create_object_store(bucket="FILES", config=nats.js.api.ObjectStoreConfig(replicas=1))
            await objects.put("report.bin", content)
        finally:
            await connection.close()

    async def read() -> tuple[dict[str, bytes], bytes]:
        connection = await site.connect()
        try:
            stream = connection.jetstream(timeout=10)
            values = await stream.key_value("SETTINGS")
            # On 2.10 the reply may come from a follower that is catching up.
            keys = await patiently(values.keys)
            found = {key: (await values.get(key)).value or b"" for key in keys}
            return found, (await (await stream.object_store("FILES")).get("report.bin")).data or b""
        finally:
            await connection.close()

    asyncio.run(fill())
    before = {stream: site.stored(stream) for stream in ("KV_SETTINGS", "OBJ_FILES")}
    paths = {stream: save(stream) for stream in before}
    for stream, path in paths.items():
        assert read_manifest(path)["contents"]["messages"] == len(before[stream])
        restore(site, path, stream)
        assert site.stored(stream) == before[stream]
    assert asyncio.run(read()) == (
        {"key.0": b"value 15", "key.3": b"value 18", "key.4": b"value 19"},
        content,
    )


@pytest.mark.parametrize("replicas", [1, 3])
def test_backup_under_load_is_a_prefix_of_the_stored_messages(site: Site, tmp_path: Path, replicas: int) -> None:
    name = f"LOADED{replicas}"
    site.add(name, replicas)
    record, stop = Record(), threading.Event()
    thread = site.produce_until(stop, f"{name}.a", record)
    try:
        assert wait_until(lambda: len(record.messages), lambda count: count > 300, 60).done
        saved = site.done("backup", streams=[name], path=str(tmp_path), rate_limit="512KB")
        after = len(record.messages)
        assert wait_until(lambda: len(record.messages), lambda count: count > after + 50, 60).done
    finally:
        stop.set()
        thread.join()
    told = saved["backup"]
    assert told["changed_meanwhile"]["messages"] > 0
    assert told["contents"]["messages"] == told["contents"]["last_seq"] < len(record.messages)
    restore(site, Path(saved["path"]), name)
    last = told["contents"]["last_seq"]
    assert site.stored(name) == {sequence: record.messages[sequence] for sequence in range(1, last + 1)}


def test_a_stream_in_memory_from_2_15(site: Site, save: Callable[..., Path], version: str, tmp_path: Path) -> None:
    site.add("FAST", 1, storage="memory")
    record = site.produce(some_messages("FAST"))
    if version == OLD:
        directory = tmp_path / "backup"
        assert "in memory" in site.refused("backup", "unsupported", streams=["FAST"], path=str(directory))
        assert not directory.exists()
        return
    restore(site, save("FAST"), "FAST")
    site.assert_restored("FAST", record)
    assert site.api.stream("FAST")["config"]["storage"] == "memory"


def test_consumers_that_the_archive_lacks_are_recreated(site: Site, save: Callable[..., Path], version: str) -> None:
    """Before 2.15, a server saves only the consumers that have a replica on it."""
    site.add("EVENTS", 3)
    record = site.produce(some_messages("EVENTS"))
    for number in range(6):
        site.cluster.add_consumer("EVENTS", f"c{number}", num_replicas=1)
        site.consume("EVENTS", f"c{number}", record, fetch=10 + number, ack=number * 2)
    leader = site.api.stream("EVENTS")["cluster"]["leader"]
    elsewhere = {row["name"] for row in site.api.consumers("EVENTS").rows if row["cluster"]["leader"] != leader}
    path = save("EVENTS")
    missing = {row["name"] for row in read_manifest(path)["consumers"] if not row["in_archive"]}
    assert missing == (elsewhere if version == OLD else set())
    assert set(restore(site, path, "EVENTS")["recreated"]) == missing
    site.assert_restored("EVENTS", record)
    pending = {row["name"]: row["num_pending"] for row in site.api.consumers("EVENTS").rows}
    for name in missing:
        assert pending[name] == len([sequence for sequence in record.messages if sequence >= record.positions[name][1]])


def test_consumers_are_recreated_while_replicas_are_copied(site: Site, save: Callable[..., Path], version: str) -> None:
    """A replica reports itself as current before it has the messages, and a consumer that this server leads would begin
    at the end of the stream."""
    site.add("BULK", 3)
    record = site.produce([("BULK.x", {}, random.Random(number).randbytes(700_000)) for number in range(100)])
    for number in range(6):
        site.cluster.add_consumer(
            "BULK", f"c{number}", num_replicas=1, deliver_policy="by_start_sequence", opt_start_seq=61
        )
    restored = restore(site, save("BULK"), "BULK")
    assert bool(restored["recreated"]) is (version == OLD)
    rows = list(site.api.consumers("BULK").rows)
    assert {row["name"]: (row["delivered"]["stream_seq"], row["num_pending"]) for row in rows} == {
        f"c{number}": (60, 40) for number in range(6)
    }
    for row in rows:
        site.consume("BULK", row["name"], Record({seq: record.messages[seq] for seq in range(61, 101)}), fetch=2)
    assert site.stored("BULK") == record.messages


def test_consumers_of_new_messages_get_no_old_ones(site: Site, save: Callable[..., Path]) -> None:
    """On 2.10, some of the six consumers are missing from the archive and report an ack floor of 0."""

    def nothing_pends() -> None:
        # A newly elected leader counts from the beginning until it has read its consumer's state.
        pending = wait_until(
            lambda: [row["num_pending"] for row in site.api.consumers("NEWS").rows], lambda seen: seen == [0] * 6, 20
        )
        assert pending.done, pending.value

    site.add("NEWS", 3)
    site.produce(some_messages("NEWS"))
    for number in range(6):
        site.cluster.add_consumer("NEWS", f"c{number}", num_replicas=1, deliver_policy="new")
    nothing_pends()
    restore(site, save("NEWS"), "NEWS")
    nothing_pends()


@pytest.mark.parametrize("retention", ["limits", "interest"])
@pytest.mark.parametrize("stored", [0, 20])
def test_messages_before_the_first_delivery_stay_pending(
    site: Site, save: Callable[..., Path], retention: str, stored: int
) -> None:
    """An archive of 2.10 has no position for consumers that were created on an empty stream."""
    name = f"FRESH{stored}{retention}"
    site.add(name, 3, retention=retention)
    site.produce(some_messages(name, stored))
    policies = ["new"] if stored else ["new", "last"]
    for policy in policies:
        site.cluster.add_consumer(name, policy, deliver_policy=policy)
    site.produce([(f"{name}.new", {}, b"x")] * 5)

    def pending() -> dict[str, int]:
        return {row["name"]: row["num_pending"] for row in site.api.consumers(name).rows}

    wanted = dict.fromkeys(policies, 5)
    assert wait_until(pending, wanted.__eq__, 20).done, pending()
    restore(site, save(name), name)
    assert wait_until(pending, wanted.__eq__, 20).done, pending()


def test_copy_next_to_the_original(site: Site, save: Callable[..., Path], version: str) -> None:
    site.add("ORIGINAL", 1)
    site.cluster.add_consumer("ORIGINAL", "worker")
    record = site.produce(some_messages("ORIGINAL"))
    path = save("ORIGINAL")
    if version == OLD:
        told = site.refused("restore", "unsupported", path=str(path), name="COPY", subjects=["copy.>"])
        assert "can only be restored under its own name ORIGINAL" in told
        assert site.api.stream_names() == ["ORIGINAL"]
        return
    assert "ORIGINAL" in site.refused("restore", "overlap", path=str(path), name="COPY")
    site.done("restore", path=str(path), name="COPY", subjects=["copy.>"], num_replicas=3, consumers=False)
    site.assert_restored("COPY", record)
    config = site.api.stream("COPY")["config"]
    assert (config["subjects"], config["num_replicas"]) == (["copy.>"], 3)
    assert site.stored("ORIGINAL") == record.messages


def test_a_consumer_with_more_replicas_than_its_stream(site: Site, save: Callable[..., Path]) -> None:
    """A server would refuse the complete restore (10126); from 2.15 it would also leave a partial stream behind."""
    site.add("FITTED", 3)
    site.cluster.add_consumer("FITTED", "three", num_replicas=3)
    site.cluster.add_consumer("FITTED", "any")
    record = site.produce(some_messages("FITTED"))
    site.consume("FITTED", "three", record, fetch=9, ack=9)
    site.consume("FITTED", "any", record, fetch=5, ack=4)
    result = restore(site, save("FITTED"), "FITTED", num_replicas=1)
    assert result["fewer_replicas"] == ["three"]
    site.assert_restored("FITTED", record)
    assert site.api.stream("FITTED")["config"]["num_replicas"] == 1


def test_restored_stream_has_no_message_ids_from_2_15(site: Site, save: Callable[..., Path], version: str) -> None:
    site.add("DEDUPED", 1)
    site.produce([("DEDUPED.a", {"Nats-Msg-Id": "1"}, b"once")])
    result = restore(site, save("DEDUPED"), "DEDUPED")
    again = site.produce([("DEDUPED.a", {"Nats-Msg-Id": "1"}, b"once")])
    assert set(again.messages) == ({1} if version == OLD else {2})
    assert any("duplicate window of 2m" in caveat for caveat in result["caveats"]) == (version == NEW)


def test_a_new_backup_only_where_something_is_new(site: Site, save: Callable[..., Path]) -> None:
    site.add("NEWEST", 1)
    site.cluster.add_consumer("NEWEST", "worker")
    record = site.produce(some_messages("NEWEST", 20))
    first = save("NEWEST")
    options = {"streams": ["NEWEST"], "path": str(first.parent)}

    def reason(**more: Any) -> str:
        result = site.done("backup", **{**options, **more})
        assert result["changed"] and result["path"] != str(first)
        return result["reason"]

    site.consume("NEWEST", "worker", record, fetch=3, ack=3)
    assert reason() == "consumers have changed or made progress since"
    site.produce([("NEWEST.a", {}, b"more")])
    assert reason() == "messages have been stored or deleted since"
    site.api.update_stream({**site.api.stream("NEWEST")["config"], "description": "all orders"})
    assert reason() == "its configuration has changed"
    newest = Path(site.done("backup", **options)["path"])
    (newest / ARCHIVE).write_bytes((newest / ARCHIVE).read_bytes()[:-1])
    assert "the last backup is damaged" in reason()
    assert reason(force=True) == "requested by `force`"
    site.api.delete_stream("NEWEST")
    site.add("NEWEST", 1)
    assert reason() == "the stream was deleted and recreated under the same name"


@pytest.mark.parametrize("fault", ["truncated", "flipped", "swapped"])
def test_a_damaged_archive_is_refused_before_anything_is_created(
    site: Site, save: Callable[..., Path], fault: str
) -> None:
    site.add("DAMAGED", 1)
    site.add("OTHERS", 1)
    site.produce(some_messages("DAMAGED"))
    site.produce(some_messages("OTHERS"))
    path, other = save("DAMAGED"), save("OTHERS")
    archive = path / ARCHIVE
    data = bytearray(archive.read_bytes())
    if fault == "truncated":
        del data[-20:]
    elif fault == "flipped":
        data[len(data) // 2] ^= 4
    else:
        data = bytearray((other / ARCHIVE).read_bytes())
    archive.write_bytes(data)
    site.api.delete_stream("DAMAGED")
    assert str(archive) in site.refused("restore", "damaged", path=str(path))
    # The nats CLI leaves a backup like this, without a checksum.
    told = read_manifest(path)
    state = {**told["state"], "last_seq": told["state"]["last_seq"] + (fault == "swapped")}
    (path / "backup.json").write_text(json.dumps({"config": told["config"], "state": state}))
    site.refused("restore", "damaged", path=str(path))
    assert site.api.stream_names() == ["OTHERS"]


@pytest.mark.parametrize("replicas", [1, 3])
def test_backup_of_the_nats_cli_is_restored(site: Site, tmp_path: Path, version: str, replicas: int) -> None:
    """The CLI saves the configuration and the state next to the archive, and nothing else."""
    name = f"CLI{replicas}"
    site.add(name, replicas)
    # The archive contains the data that the server sends; before 2.15 it includes only the consumers held by the
    # stream's leader.
    site.cluster.add_consumer(name, "worker", num_replicas=replicas)
    record = site.produce(some_messages(name))
    site.consume(name, "worker", record, fetch=7, ack=6)
    path = tmp_path / "cli"

    def saved_anew() -> ArchiveContents:
        shutil.rmtree(path, ignore_errors=True)
        asyncio.run(natscli.backup(site.connect, name, path))
        contents = verify(read_backup(DirectoryStore(path)), CONTENTS)
        assert contents is not None
        return contents

    # A member other than the consumer's leader receives an acknowledgement later than the client.
    saved = wait_until(
        saved_anew, lambda contents: all(one.ack_floor["stream_seq"] >= 6 for one in contents.consumers), 20
    ).value
    there = [consumer.name for consumer in saved.consumers]
    result = restore(site, path, name)
    assert (result["messages"], result["consumers"]) == (120, there) and there in ([], ["worker"])
    if version == NEW or replicas == 3:
        assert there == ["worker"]
        site.assert_restored(name, record)
    else:
        assert site.stored(name) == record.messages


@pytest.mark.parametrize("replicas", [1, 3])
def test_nats_cli_restores_our_backups(site: Site, save: Callable[..., Path], replicas: int) -> None:
    name = f"HERE{replicas}"
    site.add(name, replicas)
    site.cluster.add_consumer(name, "worker", num_replicas=replicas)
    record = site.produce(some_messages(name))
    site.consume(name, "worker", record, fetch=7, ack=6)
    path = save(name)
    site.api.delete_stream(name)
    wait_until(lambda: site.api.find_stream(name), lambda found: found is None, 20)
    assert asyncio.run(natscli.restore(site.connect, path))["messages"] == 120
    assert site.stored(name) == record.messages
    told = {entry["name"]: entry for entry in read_manifest(path)["consumers"]}
    if told["worker"]["in_archive"]:  # otherwise only this collection would recreate it
        assert wait_until(lambda: site.api.consumers(name).rows, bool, 20).done
        record.assert_positions(list(site.api.consumers(name).rows))


def test_the_nats_command_itself_where_it_is_installed(site: Site, save: Callable[..., Path], tmp_path: Path) -> None:
    """No package registry offers the nats CLI; for the tests above, `support.natscli` sends the same requests."""
    if shutil.which("nats") is None:
        pytest.skip("there is no `nats` on the PATH (natscli): its archives are only tried request by request")
    environment = {
        **os.environ,
        "NATS_URL": site.cluster.urls[0],
        "NATS_USER": site.user,
        "NATS_PASSWORD": APP_PASSWORD,
    }

    def command(*words: str) -> None:
        done = subprocess.run(
            ["nats", "stream", *words, "--no-progress"],
            check=False,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    site.add("COMMAND", 3)
    site.cluster.add_consumer("COMMAND", "worker", num_replicas=3)
    record = site.produce(some_messages("COMMAND"))
    site.consume("COMMAND", "worker", record, fetch=7, ack=6)
    command("backup", "COMMAND", str(tmp_path / "cli"), "--consumers")
    restore(site, tmp_path / "cli", "COMMAND")
    site.assert_restored("COMMAND", record)
    path = save("COMMAND")
    site.api.delete_stream("COMMAND")
    wait_until(lambda: site.api.find_stream("COMMAND"), lambda found: found is None, 20)
    command("restore", str(path))
    assert wait_until(lambda: site.api.consumers("COMMAND").rows, bool, 20).done
    site.assert_restored("COMMAND", record)


@pytest.mark.parametrize("sealed", [False, True], ids=["open", "sealed"])
def test_a_restored_stream_moves(
    site: Site, save: Callable[..., Path], run_module: Run, version: str, sealed: bool
) -> None:
    """A stream that another tool restored can also be moved. The meta leader is on another server, so it has no record
    of the restore."""
    name = f"MOVED{sealed:d}"
    site.add(name, 1)
    record = site.produce(some_messages(name))
    if sealed:
        site.api.update_stream({**site.api.stream(name)["config"], "sealed": True})
    path = save(name)
    system = site.cluster.sys_connection()

    def replica() -> str:
        return str(site.api.stream(name)["cluster"].get("leader") or "")

    def move() -> None:
        home = replica()
        users = site.cluster.account_users()
        options = {"stream": name, "server_name": home, "accept_loss": version == OLD}
        moved = run_module("nats_stream_peer", system, account="APP", account_users=users, **options)
        assert not moved.get("failed"), moved
        assert replica() != home
        site.assert_restored(name, record)

    restore(site, path, name)
    stepped = run_module("nats_meta_stepdown", system, away_from=[replica()])
    assert not stepped.get("failed"), stepped
    home = replica()
    if version == NEW:
        site.api.evacuate_stream_peer(name, home)
        assert wait_until(replica, lambda leader: leader not in ("", home), 20).done
    move()
    site.api.delete_stream(name)
    told = read_manifest(path)
    site.api.restore_stream(told["config"], told["state"], [(path / ARCHIVE).read_bytes()], TransferPace(idle=20))
    move()


def test_an_archive_of_2_10_is_restored_by_2_15_and_not_the_other_way_round(
    site: Site, save: Callable[..., Path], version: str
) -> None:
    other = OLD if version == NEW else NEW
    path = FIXTURES / f"backup-{other}"
    told = read_manifest(path)
    if version == OLD:
        assert f"cannot be read by {OLD}" in site.refused("restore", "unsupported", path=str(path))
        assert site.api.stream_names() == []
        return
    result = site.done("restore", path=str(path))
    assert (result["stream"], result["messages"]) == ("S", told["contents"]["messages"])
    again = read_manifest(save("S"))
    assert (again["format"], told["format"]) == ("entries", "tar")
    # Compare the sequences, times, subjects, headers and bodies of all messages.
    assert again["contents"]["digest"] == told["contents"]["digest"]
    floors = {row["name"]: row["ack_floor"]["stream_seq"] for row in told["consumers"]}
    assert {row["name"]: row["ack_floor"]["stream_seq"] for row in site.api.consumers("S").rows} == floors


def test_a_consumer_without_a_leader_is_named(broken: Site, version: str, tmp_path: Path) -> None:
    """From 2.15 the consumer would make the snapshot fail; before, the consumer would be missing from the snapshot, and
    its position from the backup."""
    for number in range(6):
        broken.cluster.add_consumer("ORDERS", f"c{number}", num_replicas=1)
    leader = broken.api.stream("ORDERS")["cluster"]["leader"]
    alone = {
        row["name"]: row["cluster"]["leader"] for row in broken.api.consumers("ORDERS").rows if row["name"] != "worker"
    }
    victim = next(server for server in alone.values() if server != leader)
    broken.cluster.kill(victim)
    gone = {name for name, server in alone.items() if server == victim}
    options: dict[str, Any] = {"streams": ["ORDERS"], "path": str(tmp_path / "backup")}

    def refusal() -> str:
        result = broken.run("backup", **options)
        return result["msg"] if (result.get("failure") or {}).get("code") == "leaderless" else ""

    seen = wait_until(refusal, lambda told: all(name in told for name in gone) and "worker" not in told, 60)
    assert seen.done, seen.value
    assert not (tmp_path / "backup").exists()
    result = broken.done("backup", **options, consumers=False)
    assert (result["backup"]["contents"]["messages"], result["backup"]["consumers"]) == (30, [])


def test_a_message_larger_than_the_servers_take(site: Site, save: Callable[..., Path], version: str) -> None:
    site.add("LARGE", 1)
    record = site.produce([("LARGE.a", {}, random_bytes(5000, 1))])
    path = save("LARGE")
    told = read_manifest(path)
    site.api.delete_stream("LARGE")
    small = NatsProcesses(version, path.parent, ["small"], cluster="", extra="max_payload: 4096")
    small.start()
    try:
        there = Site(small, site._run_module)
        wait_until(there.api.stream_names, lambda names: True, 30)
        if version == OLD:
            # Archives of this version are restored as files.
            there.done("restore", path=str(path))
            assert there.stored("LARGE") == record.messages
        else:
            largest = f"a message of {told['contents']['largest']} bytes"
            assert largest in there.refused("restore", "unsupported", path=str(path))
            assert there.api.stream_names() == []
        there.client.close()
    finally:
        small.kill()


# --- faults -------------------------------------------------------------------------------------------------------------


def test_a_full_disk_leaves_nothing(site: Site, tmp_path: Path) -> None:
    site.add("FULL", 1)
    site.produce([("FULL.a", {}, random_bytes(200_000, number)) for number in range(20)])
    directory = tmp_path / "backup"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        result = site.run("backup", streams=["FULL"], path=str(directory))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert result["failure"]["code"] == "write_failed", result
    assert str(directory) in result["msg"]
    assert list(directory.iterdir()) == []
    # The server has noticed that the client no longer listens, and serves another snapshot.
    assert wait_until(lambda: site.run("backup", streams=["FULL"], path=str(directory)), succeeded, 20).done


def succeeded(result: dict[str, Any]) -> bool:
    return not result.get("failed")


def random_bytes(size: int, seed: int) -> bytes:
    """Return bytes that cannot be compressed."""
    return random.Random(seed).randbytes(size)


def kill_when(cluster: NatsProcesses, name: str, ready: Callable[[], bool]) -> threading.Thread:
    """Kill a server as soon as a condition is met."""

    def work() -> None:
        if wait_until(ready, bool, 60, 0.02).done:
            cluster.kill(name)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


@pytest.fixture
def broken(make_cluster: Callable[..., NatsProcesses], run_module: Run) -> Iterator[Site]:
    """A cluster of three that a test may break, with a stream of 12 MB, whose transfer takes a while at the lowest
    rate."""
    made = Site(form(make_cluster(["n1", "n2", "n3"]), run_module), run_module)
    try:
        made.add("ORDERS", 3)
        made.cluster.add_consumer("ORDERS", "worker")
        made.produce([("ORDERS.a", {}, random_bytes(400_000, number)) for number in range(30)])
        yield made
    finally:
        made.client.close()


def test_a_server_killed_during_a_backup(broken: Site, tmp_path: Path) -> None:
    directory = tmp_path / "backup"

    def some_of_it() -> bool:
        return any(path.stat().st_size > 1_000_000 for path in directory.glob(f".*/{ARCHIVE}"))

    options: dict[str, Any] = {"streams": ["ORDERS"], "path": str(directory)}
    leader = broken.api.stream("ORDERS")["cluster"]["leader"]
    thread = kill_when(broken.cluster, leader, some_of_it)
    result = broken.run("backup", **options, rate_limit="1MB", idle_timeout=6)
    thread.join()
    # A different server leads now. Unless the module was connected to the killed server, it has tried again.
    if result.get("failed"):
        assert result["failure"]["code"] in ("idle", "connection_lost", "interrupted"), result
        assert "stream ORDERS was not saved" in result["msg"]
        assert list(directory.iterdir()) == []
    else:
        assert [str(path) for path in directory.iterdir()] == [result["path"]]
    assert wait_until(lambda: broken.run("backup", **options), succeeded, 60).done
    assert len(list(directory.iterdir())) == 1


def test_a_server_killed_during_a_restore(broken: Site, tmp_path: Path) -> None:
    path = Path(broken.done("backup", streams=["ORDERS"], path=str(tmp_path / "backup"))["path"])
    before = broken.stored("ORDERS")
    broken.api.delete_stream("ORDERS")
    leader: list[str] = []

    def under_way() -> bool:
        """Return whether a server is receiving the upload, which only this server logs; at this rate the upload takes
        ten more seconds."""
        leader[:] = [name for name in broken.cluster.names if "Starting restore for stream" in broken.cluster.log(name)]
        return bool(leader)

    def kill() -> None:
        assert wait_until(under_way, bool, 60, 0.02).done
        broken.cluster.kill(leader[0])

    thread = threading.Thread(target=kill)
    thread.start()
    result = broken.run("restore", path=str(path), rate_limit="1MB", idle_timeout=6, wait_timeout=90)
    thread.join()
    assert result.get("failed"), result
    assert result["failure"]["code"] in ("idle", "connection_lost", "interrupted"), result
    assert "the partial stream has been removed" in result["msg"], result
    assert broken.api.stream_names() == []
    broken.cluster.start(leader[0])
    assert wait_until(lambda: broken.run("restore", path=str(path)), succeeded, 60).done
    assert broken.stored("ORDERS") == before


def test_a_lone_server_killed_during_a_restore_and_started_again(
    make_cluster: Callable[..., NatsProcesses], run_module: Run, tmp_path: Path
) -> None:
    """From 2.15, the server starts with the messages stored so far, and accepts new ones."""
    site = Site(make_cluster(["n1"], cluster=""), run_module)
    try:
        wait_until(site.api.stream_names, lambda names: True, 30)
        site.add("ALONE", 1)
        site.produce([("ALONE.a", {}, random_bytes(400_000, number)) for number in range(20)])
        before = site.stored("ALONE")
        path = Path(site.done("backup", streams=["ALONE"], path=str(tmp_path / "backup"))["path"])
        site.api.delete_stream("ALONE")

        def kill() -> None:
            assert wait_until(lambda: "Starting restore for stream" in site.cluster.log("n1"), bool, 60, 0.02).done
            site.cluster.kill("n1")
            site.cluster.start("n1")

        thread = threading.Thread(target=kill)
        thread.start()
        result = site.run("restore", path=str(path), rate_limit="1MB", idle_timeout=6, wait_timeout=90)
        thread.join()
        # `unreachable`: the server had not started again when the client tried to reconnect.
        assert result["failure"]["code"] in ("idle", "connection_lost", "interrupted", "unreachable"), result
        assert "the partial stream has been removed" in result["msg"], result
        assert site.api.stream_names() == []
        site.done("restore", path=str(path))
        assert site.stored("ALONE") == before
    finally:
        site.client.close()


def test_a_failed_restore_leaves_no_part_of_the_stream(site: Site, save: Callable[..., Path], version: str) -> None:
    """The archive is altered after its verification: from 2.15 a server has already stored the messages before the
    fault."""
    site.add("FAILED", 3)
    site.cluster.add_consumer("FAILED", "worker")
    record = site.produce(some_messages("FAILED"))
    site.consume("FAILED", "worker", record)
    path = save("FAILED")
    archive = path / ARCHIVE
    whole = archive.read_bytes()
    altered = bytearray(whole)
    altered[len(whole) - 40] ^= 1
    archive.write_bytes(altered)
    told = change_manifest(path, sha256=hashlib.sha256(altered).hexdigest())
    site.api.delete_stream("FAILED")
    result = site.run("restore", path=str(path))
    assert result["failure"]["err_code"] == 10062, result
    assert "the partial stream has been removed" in result["msg"]
    assert site.api.stream_names() == []
    archive.write_bytes(whole)
    change_manifest(path, **told)
    site.done("restore", path=str(path))
    site.assert_restored("FAILED", record)


@pytest.mark.parametrize("reason", ["in use", "silent"])
def test_failed_restore_keeps_the_stream_of_a_different_client(
    site: Site, save: Callable[..., Path], version: str, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """Reproduces the failures of two of three concurrent restores on 2.10.27, which deleted the stream of the third."""
    name = f"FOREIGN{len(reason)}"
    site.add(name)
    site.produce(some_messages(name, 5))
    path = save(name)
    site.api.delete_stream(name)

    def taken(self: JetStreamApi, *_arguments: object) -> dict[str, Any]:
        site.add(name)
        site.produce([(f"{name}.x", {}, b"theirs")])
        if reason == "in use":
            failure = NatsFailure("api_error", "stream name already in use, cannot restore", err_code=10130)
            raise RestoreFailed(failure, self.account)
        raise NatsFailure("timeout", "no reply within 30 s")

    with monkeypatch.context() as patched:
        patched.setattr(JetStreamApi, "restore_stream", taken)
        result = site.run("restore", path=str(path))
    assert "created a stream of this name in the meantime, and it was not deleted" in result["msg"], result
    assert site.stored(name) == {1: (f"{name}.x", {}, b"theirs")}


class Peer:
    """The other side of a transfer, played by a test."""

    def __init__(self, site: Site, subject: str, on_message: Callable[[NatsPy, Any], Any], wait: float = 0) -> None:
        self._ready = threading.Event()
        self._done = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._play(site, subject, on_message, wait)))

    async def _play(self, site: Site, subject: str, on_message: Callable[[NatsPy, Any], Any], wait: float) -> None:
        connection = await site.connect()
        if not wait:
            await self._subscribe(connection, subject, on_message)
            await self._known(site, connection, connection.new_inbox())
        self._ready.set()
        await asyncio.sleep(wait)
        if wait:
            await self._subscribe(connection, subject, on_message)
        await asyncio.get_running_loop().run_in_executor(None, self._done.wait, 30)
        await connection.close()

    async def _subscribe(self, connection: NatsPy, subject: str, on_message: Callable[[NatsPy, Any], Any]) -> None:
        async def take(message: Any) -> None:
            await on_message(connection, message)

        await connection.subscribe(subject, cb=take)
        await connection.flush()

    async def _known(self, site: Site, connection: NatsPy, probe: str) -> None:
        """Wait until each server forwards messages to this connection; routes transmit subscriptions in order."""
        await self._subscribe(connection, probe, lambda _connection, message: message.respond(b""))
        for name in site.cluster.processes:
            other = await nats.connect(site.cluster.url(name), user=site.user, password=APP_PASSWORD)
            try:
                for _attempt in range(50):
                    try:
                        await other.request(probe, timeout=10)
                        break
                    except nats.errors.NoRespondersError:
                        await asyncio.sleep(0.1)
                else:
                    raise AssertionError(f"{name} lacks the subscription after 5 s")
            finally:
                await other.close()

    def __enter__(self) -> None:
        self._thread.start()
        assert self._ready.wait(30)

    def __exit__(self, *exc_info: object) -> None:
        self._done.set()
        self._thread.join()


def test_late_receiver_gets_everything_in_order(site: Site) -> None:
    """The other servers may learn of a receiver's subscription only after the receiver's reply has arrived."""
    seen: list[bytes] = []

    async def take(_connection: NatsPy, message: Any) -> None:
        seen.append(message.data)
        await message.respond(b"" if message.data else b"complete")

    chunks = [bytes([number]) * 10 for number in range(40)]
    with Peer(site, "late.chunks", take, wait=0.7):
        reply = site.client.upload("late.chunks", chunks, Upload(lambda reply: None, idle=10, finish=10))
    assert (seen, reply.body) == ([*chunks, b""], b"complete")
    nobody = Upload(lambda reply: None, idle=0.5, finish=1)
    with pytest.raises(NatsFailure, match="no longer accepts the chunks"):
        site.client.upload("no.subscriber", chunks, nobody)


def test_sender_without_interest_gets_another_request(site: Site) -> None:
    asked: list[str] = []

    async def send(connection: NatsPy, message: Any) -> None:
        inbox = message.data.decode()
        asked.append(inbox)
        await message.respond(b"{}")
        if len(asked) < 3:
            await connection.publish(inbox, b"", headers={"Status": "408", "Description": "No Interest"})
            return
        await connection.publish(inbox, b"all")
        await connection.publish(inbox, b"", headers={"Status": "204"})

    got: list[bytes] = []
    download = Download(lambda inbox: Call("late.sender", inbox.encode()), lambda reply: None, got.append, 10, 10)
    with Peer(site, "late.sender", send):
        site.client.download(download)
    assert (got, len(set(asked))) == ([b"all"], 3)


def test_sender_error_replaces_the_remaining_chunks(site: Site) -> None:
    async def send(connection: NatsPy, message: Any) -> None:
        await message.respond(b"{}")
        await connection.publish(message.data.decode(), b"some")
        status = {"Status": "500", "Description": "could not load"}
        await connection.publish(message.data.decode(), b"", headers=status)

    download = Download(
        lambda inbox: Call("bad.sender", inbox.encode()), lambda reply: None, lambda chunk: None, 10, 10
    )
    with Peer(site, "bad.sender", send), pytest.raises(NatsFailure, match="early: 500 could not load") as caught:
        site.client.download(download)
    assert caught.value.code == "interrupted"


def test_chunks_without_an_end_fail_the_backup(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any client of the account can read the request for a snapshot and send to its subject."""
    site.add("FLOOD")

    async def answer(connection: NatsPy, message: Any) -> None:
        is_snapshot = ".STREAM.SNAPSHOT." in message.subject
        real = message.subject.replace("$JS.flood.", "$JS.").replace(".SNAPSHOT.", ".INFO.")
        found = await connection.request(real, b"" if is_snapshot else message.data)
        await message.respond(found.data)
        if is_snapshot:
            inbox = json.loads(message.data)["deliver_subject"]
            while not connection.is_closed:
                await connection.publish(inbox, bytes(1 << 17))
                await connection.flush()

    monkeypatch.setattr(restore_rules, "GIB", 1 << 20)
    with Peer(site, "$JS.flood.API.>", answer):
        options: dict[str, Any] = {"streams": ["FLOOD"], "path": str(tmp_path), "jetstream_domain": "flood"}
        failed = site.run("backup", **options)
    assert failed["failure"]["code"] == "bad_reply", failed
    assert (
        "stream FLOOD was not saved: more than 1.0 MiB arrived, and no archive of this stream can be that large"
        in failed["msg"]
    )
    assert not list(tmp_path.glob("FLOOD@*"))


# --- memory -------------------------------------------------------------------------------------------------------------

MEASURE = """
import json, re, sys
from support.module_runs import run_in_process
name, connection, options = json.loads(sys.argv[1])
result = run_in_process(name, connection, **options)
assert not result.get("failed"), result
# getrusage reports at least the memory that the parent had when it forked.
peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024
(row,) = result["streams"]
print(json.dumps([peak, row["path"], row["bytes"]]))
"""


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, dict[str, Any]]]:
    """Return the options with which a stream is saved to a place, and those with which it is restored from there."""
    identity = pyrage.x25519.Identity.generate()
    (tmp_path / "identity").write_text(str(identity))
    if request.param == "plain":
        yield {"backup": {"path": str(tmp_path)}, "restore": {}}
        return
    write, read = {"encrypt_to": [str(identity.to_public())]}, {"identity_file": str(tmp_path / "identity")}
    if request.param == "encrypted":
        yield {"backup": {"path": str(tmp_path), **write}, "restore": read}
        return
    storage = ObjectStorage(tmp_path)
    storage.start()
    try:
        s3 = {"s3": storage.options}
        yield {"backup": {"path": f"s3://{BUCKET}/nats", **write, **s3}, "restore": {**read, **s3}}
    finally:
        storage.kill()


# `more` is in MiB: parts that are being uploaded to object storage are 8 MiB each, and the small stream has only one.
@pytest.mark.parametrize(("place", "more"), [("plain", 16), ("encrypted", 16), ("s3", 72)], indirect=["place"])
def test_memory_does_not_grow_with_the_stream(
    site: Site, tmp_path: Path, place: dict[str, dict[str, Any]], more: int
) -> None:
    def measured(name: str, **options: Any) -> tuple[int, str, int]:
        arguments = json.dumps([f"nats_{name}", site.cluster.app_connection(), options])
        environment = {"PYTHONPATH": f"{Path(__file__).parents[1]}:{collections_path()}", "PATH": "/usr/bin:/bin"}
        command = [sys.executable, "-c", MEASURE, arguments]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, timeout=240)
        return tuple(json.loads(done.stdout.splitlines()[-1]))

    peaks: dict[int, list[int]] = {}
    for size in (6, 60):
        stream = f"S{size}"
        site.add(stream, 1)
        site.produce([(f"{stream}.a", {}, random_bytes(500_000, number)) for number in range(2 * size)])
        saving, path, _bytes = measured("backup", streams=[stream], **place["backup"])
        site.api.delete_stream(stream)
        restoring, _path, bytes_sent = measured("restore", path=path, **place["restore"])
        assert bytes_sent > size * 1_000_000 * 0.99
        peaks[size] = [saving, restoring]
        site.api.delete_stream(stream)
    for small, large in zip(*peaks.values()):
        assert large < 200 << 20, peaks
        assert large - small < more << 20, peaks
    print(peaks)
