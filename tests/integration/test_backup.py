# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Saves complete accounts with `nats_backup` and restores them with `nats_restore`, on real servers."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils import progress
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.restore_rules import RESTORE_AGAIN
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.store import REMOVED, DirectoryStore
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from support.backup_site import Accounts, Record, Run, some_messages
from support.manifests import change_manifest
from support.module_runs import form
from support.nats_processes import APP_PASSWORD, NatsProcesses

OLD = "2.10.27"


@pytest.fixture(scope="module")
def cluster(version: str, tmp_path_factory: pytest.TempPathFactory, run_module: Run) -> Iterator[NatsProcesses]:
    accounts = {"APP": "app", "OTHER": "other"}
    plain = {"PLAIN": "plain"}
    names = ["n1", "n2", "n3"]
    made = NatsProcesses(version, tmp_path_factory.mktemp("accounts"), names, accounts=accounts, plain_accounts=plain)
    made.start()
    try:
        yield form(made, run_module)
    finally:
        made.kill()


@pytest.fixture
def accounts(cluster: NatsProcesses, tmp_path: Path, run_module: Run) -> Iterator[Accounts]:
    made = Accounts(cluster, run_module, tmp_path / "backup")
    yield made
    made.clear()
    for site in made.sites.values():
        site.client.close()


def fill(accounts: Accounts, label: str) -> dict[str, Record]:
    """Create streams of different kinds and return their records by `ACCOUNT/STREAM`."""
    app, other = accounts.sites["APP"], accounts.sites["OTHER"]
    records: dict[str, Record] = {}
    for site, stream, replicas, config in (
        (app, f"{label}3", 3, {}),
        (app, f"{label}1", 1, {}),
        (app, f"{label}JOBS", 3, {"retention": "workqueue"}),
        (other, f"{label}3", 1, {}),
    ):
        site.add(stream, replicas, **config)
        site.cluster.add_consumer(stream, "worker", site.account)
        record = site.produce(some_messages(stream, 60))
        site.consume(stream, "worker", record, fetch=10, ack=6)
        if config:
            record.remove(*range(1, 7))
        else:
            site.api.call(f"STREAM.MSG.DELETE.{stream}", {"seq": 20})
            record.remove(20)
        records[f"{site.account}/{stream}"] = record
    mirror = f"A{label}MIRROR"  # the mirror's name sorts before that of its origin
    app.add(mirror, 1, mirror={"name": f"{label}3"}, subjects=[])
    copied = records[f"APP/{label}3"].messages
    assert wait_until(lambda: app.api.stream(mirror)["state"]["messages"], lambda count: count == 59, 30).done
    records[f"APP/{mirror}"] = Record(dict(copied))
    return records


def test_accounts_are_restored_completely(accounts: Accounts, version: str) -> None:
    records = fill(accounts, "ALL")
    predicted = accounts.run("backup", check_mode=True)
    assert {row["name"] for row in predicted["streams"]} == set(records)
    assert predicted["changed"] and not accounts.directory.exists()
    saved = accounts.done("backup")
    assert saved["diff"] == predicted["diff"]
    assert [row["changed"] for row in saved["streams"]] == [True] * 5
    assert not accounts.done("backup")["changed"]
    told = accounts.catalogue()
    assert {f"{row['account']}/{row['stream']}" for row in told["backups"]} == set(records) == set(told["streams"])
    assert all(record["current"] and not record["problem"] for record in told["streams"].values())
    assert (accounts.directory / "catalogue.json").stat().st_mode & 0o777 == 0o600
    for row in told["backups"]:
        assert row["messages"] == len(records[f"{row['account']}/{row['stream']}"].messages)
        assert (accounts.directory / row["path"] / "backup.json").is_file()

    # One existing stream prevents all streams from being restored.
    for site in accounts.sites.values():
        site.clear()
    accounts.sites["OTHER"].add("ALL3", 1)
    told_why = accounts.refused("restore", "unfinished", streams=["*"])
    assert "1 of 5 streams cannot be restored, nothing was changed" in told_why
    assert "OTHER/ALL3: stream ALL3 exists and ends at sequence 0, before the end of its backup" in told_why
    assert accounts.sites["APP"].api.stream_names() == []
    accounts.sites["OTHER"].clear()

    planned = accounts.run("restore", check_mode=True, streams=["*"])
    assert [row["name"] for row in planned["streams"]][-1] == "APP/AALLMIRROR"
    assert sum("will be created" in line for line in planned["lines"]) == 5
    restored = accounts.done("restore", streams=["*"])
    assert {row["compared"]["digest"] for row in restored["streams"]} <= {"same", "not compared"}
    by_name = {row["name"]: row["compared"] for row in restored["streams"]}
    assert by_name["APP/ALL3"]["digest"] == by_name["APP/AALLMIRROR"]["digest"] == "same"
    assert by_name["APP/ALL3"]["gaps"] == [1, 1]
    for name, record in records.items():
        account, _slash, stream = name.partition("/")
        accounts.sites[account].assert_restored(stream, record)
    again = accounts.done("restore", streams=["*"])
    assert not again["changed"]
    assert not list(accounts.directory.glob("*/.*")) and not list(accounts.directory.glob(".natsops-*"))


def test_one_stream_as_it_was_then_into_another_account(accounts: Accounts, version: str) -> None:
    app, other = accounts.sites["APP"], accounts.sites["OTHER"]
    app.add("THEN", 1)
    first = app.produce(some_messages("THEN", 20))
    accounts.done("backup", streams=["APP/THEN"])
    then = accounts.catalogue()["backups"][0]["taken"]
    app.produce([("THEN.x", {}, b"bad migration")])
    accounts.done("backup", streams=["APP/THEN"])
    assert len(accounts.catalogue()["backups"]) == 2
    result = accounts.done("restore", streams=[f"APP/THEN@{then}"], account="OTHER", num_replicas=3)
    assert [row["name"] for row in result["streams"]] == ["OTHER/THEN"]
    assert other.stored("THEN") == first.messages
    assert other.api.stream("THEN")["config"]["num_replicas"] == 3
    refusal = accounts.refused("restore", "invalid_option", streams=["APP/THEN@2020-01-01"])
    assert "the oldest one of APP/THEN was taken at" in refusal
    refusal = accounts.refused("restore", "invalid_option", streams=["APP/NONE"])
    assert refusal == "streams: there is no backup of APP/NONE; there are backups of APP/THEN"
    assert "select the streams to restore" in accounts.refused("restore", "invalid_option", streams=[])


def test_a_stream_with_newer_messages_is_skipped_on_request(accounts: Accounts) -> None:
    app = accounts.sites["APP"]
    for stream in ("AWAY", "LIVE"):
        app.add(stream, 1)
        app.produce(some_messages(stream, 5))
    accounts.done("backup")
    app.produce([("LIVE.x", {}, b"later")])
    app.api.delete_stream("AWAY")
    accounts.refused("restore", "exists", streams=["APP"])
    result = accounts.done("restore", streams=["APP"], existing="skip")
    assert {row["name"]: row["skipped"] for row in result["streams"]} == {"APP/AWAY": False, "APP/LIVE": True}
    assert app.api.stream("LIVE")["state"]["messages"] == 6
    assert app.api.stream("AWAY")["state"]["messages"] == 5


def test_a_stream_that_cannot_be_saved_keeps_no_other_from_it(accounts: Accounts, version: str) -> None:
    """A file at the path of one stream's backup directory affects only this stream."""
    app = accounts.sites["APP"]
    for stream in ("FIRST", "LAST"):
        app.add(stream, 1)
        app.produce(some_messages(stream, 5))
    app.add("MEMORY", 1, storage="memory")
    result = accounts.run("backup")
    if version != OLD:
        assert not result.get("failed")
        return
    assert result["failure"]["code"] == "unsupported"
    assert result["msg"].splitlines() == [
        "1 of 3 streams were not saved, 2 were; run this again for the others",
        "APP/MEMORY: stream MEMORY was not saved: nats-server 2.10.27 cannot back up a stream in memory; 2.15 can",
    ]
    told = accounts.catalogue()
    assert [row["stream"] for row in told["backups"]] == ["FIRST", "LAST"]
    assert "cannot back up a stream in memory" in told["streams"]["APP/MEMORY"]["problem"]
    assert not accounts.done("backup", exclude=["*/MEMORY"])["changed"]


def test_a_name_of_255_bytes_keeps_no_stream_from_being_saved(accounts: Accounts) -> None:
    """A long stream name used to end each run, so none of the streams after it was ever saved."""
    app = accounts.sites["APP"]
    names = ["BEFORE", "M" * 255, "NEXT"]
    for stream in names:
        app.add(stream, 1)
        app.produce([(f"{stream}.x", {}, b"1")])
    assert {row["stream"] for row in accounts.done("backup", keep={"last": 1})["streams"]} == set(names)
    for stream in names:
        app.produce([(f"{stream}.x", {}, b"2")])
    assert len(accounts.done("backup", keep={"last": 1})["removed"]) == 3
    assert not accounts.done("backup", keep={"last": 1})["changed"]
    app.clear()
    accounts.done("restore", streams=["*"])
    assert {name: app.api.stream(name)["state"]["messages"] for name in names} == dict.fromkeys(names, 2)


def test_a_long_transfer_shows_its_bytes(
    accounts: Accounts, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.5)
    app = accounts.sites["APP"]
    app.add("LONG", 1)
    app.produce([("LONG.x", {}, os.urandom(256 << 10)) for _number in range(8)])
    lines = tmp_path / "lines"
    accounts.done("backup", streams=["APP"], rate_limit="512KB", progress={"file": str(lines)})
    shown = lines.read_text().splitlines()
    assert len(shown) >= 3
    assert re.fullmatch(r"\d+ s: 0 of 1 streams saved; APP/LONG: [\d.]+ [KM]iB so far", shown[-1]), shown
    app.clear()
    lines.unlink()
    accounts.done("restore", streams=["APP"], rate_limit="512KB", progress={"file": str(lines)})
    shown = lines.read_text().splitlines()
    assert len(shown) >= 3
    assert re.fullmatch(r"\d+ s: 0 of 1 streams restored; APP/LONG: [\d.]+ [KM]iB of 2.0 MiB", shown[-1]), shown


def test_an_account_that_does_not_list_its_streams_keeps_no_other_from_being_saved(accounts: Accounts) -> None:
    """Examples of such accounts: one without JetStream, and one in which a client replies to the operator's requests
    with nonsense."""
    app = accounts.sites["APP"]
    app.add("SAVED", 1)
    app.produce(some_messages("SAVED", 5))
    accounts.done("backup")
    users = [*accounts.cluster.account_users(), {"account": "PLAIN", "user": "plain", "password": APP_PASSWORD}]
    app.produce([("SAVED.x", {}, b"later")])
    result = accounts.run("backup", account_users=users)
    assert result["failed"] and "PLAIN: its streams could not be listed: " in result["msg"]
    assert [row["messages"] for row in accounts.catalogue()["backups"]] == [5, 6]
    assert set(accounts.catalogue()["streams"]) == {"APP/SAVED"}
    alone = accounts.run("backup", account_users=users[-1:])
    assert alone["failed"] and alone["failure"]["code"] == "api_error"


def test_old_backups_go_and_the_newest_stays(accounts: Accounts) -> None:
    app = accounts.sites["APP"]
    app.add("KEPT", 1)
    for number in range(4):
        app.produce([("KEPT.x", {}, str(number).encode())])
        accounts.done("backup")
    paths = [row["path"] for row in accounts.catalogue()["backups"]]
    assert len(paths) == 4
    predicted = accounts.run("backup", check_mode=True, keep={"last": 2})
    assert predicted["removed"] == paths[:2] and (accounts.directory / paths[0]).is_dir()
    assert accounts.done("backup", keep={"last": 2})["removed"] == paths[:2]
    assert [row["path"] for row in accounts.catalogue()["backups"]] == paths[2:]
    assert sorted(path.name for path in (accounts.directory / "APP").iterdir()) == [
        Path(path).name for path in paths[2:]
    ]
    assert not accounts.done("backup", keep={"last": 2})["changed"]
    assert accounts.done("backup", keep={"daily": 1})["removed"] == paths[2:3]
    accounts.refused("backup", "invalid_option", keep={"last": -1})


def test_a_backup_that_cannot_be_removed_keeps_no_catalogue_from_being_written(accounts: Accounts) -> None:
    app = accounts.sites["APP"]
    app.add("IMMUTABLE", 1)
    for number in range(3):
        app.produce([("IMMUTABLE.x", {}, str(number).encode())])
        accounts.done("backup")
    paths = [row["path"] for row in accounts.catalogue()["backups"]]
    app.produce([("IMMUTABLE.x", {}, b"last")])
    # The temporary name of a backup that is being removed is occupied: without root's rights, an immutable folder
    # cannot be created.
    folder = accounts.directory / paths[0]
    taken = folder.with_name(f"{REMOVED}{folder.name}")
    (taken / "other").mkdir(parents=True)
    result = accounts.run("backup", keep={"last": 1})
    assert "1 of 1 streams are saved, but old backups could not be removed" in result["msg"], result
    assert f"{folder} cannot be removed: Directory not empty" in result["msg"]
    assert [row["path"] for row in accounts.catalogue()["backups"]][:-1] == paths[:1]
    # The cleanup has removed the obstructing folder.
    assert accounts.done("backup", keep={"last": 1})["removed"] == paths[:1]
    # Without space for the catalogue, the streams are still saved.
    app.produce([("IMMUTABLE.x", {}, b"more")])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tempfile, "mkstemp", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
        result = accounts.run("backup")
    assert "1 of 1 streams are saved, but" in result["msg"] and "No space left on device" in result["msg"]
    assert not accounts.done("backup")["changed"]


def test_a_restore_that_was_interrupted_is_neither_done_nor_skipped(accounts: Accounts) -> None:
    """The servers keep an empty stream that accepts messages; a stream with its own metadata is restored once and then
    left unchanged."""
    app = accounts.sites["APP"]
    for stream in ("TORN", "OWNED"):
        app.add(stream, 1, metadata={"owner": "me"})
        app.produce(some_messages(stream, 5))
    accounts.done("backup")
    app.api.delete_stream("OWNED")
    assert accounts.done("restore", streams=["APP/OWNED"])["changed"]
    assert not accounts.done("restore", streams=["APP/OWNED"])["changed"]
    app.api.delete_stream("TORN")
    app.add("TORN", 1, metadata={"owner": "me"})
    for existing in ("refuse", "skip"):
        refusal = accounts.refused("restore", "unfinished", streams=["APP/TORN"], existing=existing)
        assert "stream TORN exists and ends at sequence 0, before the end of its backup (5)" in refusal
    assert app.api.stream("TORN")["state"]["messages"] == 0
    # The stream receives as many messages as the backup has, and more.
    app.produce(some_messages("TORN", 6))
    refusal = accounts.refused("restore", "unfinished", streams=["APP/TORN"], existing="skip")
    assert "stream TORN exists, but its message 1 was stored after the backup, which also has that sequence" in refusal
    assert app.api.stream("TORN")["state"]["messages"] == 6


def test_a_restore_that_was_interrupted_before_its_data_is_named(accounts: Accounts) -> None:
    """The name exists in the meta group, but INFO does not find the stream, and the servers accept no further
    restore."""
    app = accounts.sites["APP"]
    app.add("SHELL", 1)
    record = app.produce(some_messages("SHELL", 5))
    accounts.done("backup")
    info = app.api.stream("SHELL")
    app.api.delete_stream("SHELL")
    # The meta leader may apply the deletion after another server has confirmed it.
    assert wait_until(app.api.stream_names, lambda names: "SHELL" not in names, 10).done
    app.api.call("STREAM.RESTORE.SHELL", {"config": info["config"], "state": info["state"]})
    result = accounts.run("restore", streams=["APP/SHELL"], existing="skip")
    assert result["failure"]["code"] == "unfinished", result
    assert "stream SHELL is listed, but no server has it" in result["msg"] and RESTORE_AGAIN in result["msg"]
    app.api.delete_stream("SHELL")
    accounts.done("restore", streams=["APP/SHELL"])
    app.assert_restored("SHELL", record)


def test_a_stream_with_a_first_sequence_is_restored_completely(accounts: Accounts, version: str) -> None:
    """nats-server 2.10.27 empties a stream with first_seq whenever it loads the stream, even during a restore."""
    app = accounts.sites["APP"]
    app.add("COUNTED", 1, first_seq=1000)
    record = app.produce([("COUNTED.x", {}, str(number).encode()) for number in range(9)])
    accounts.done("backup")
    plan = accounts.run("backup", check_mode=True)
    assert not plan["changed"]
    app.api.delete_stream("COUNTED")
    (row,) = accounts.done("restore", streams=["APP/COUNTED"])["streams"]
    assert row["compared"]["digest"] == "same"
    assert [text for text in row["caveats"] if "first_seq" in text] if version == "2.10.27" else True
    state = app.api.stream("COUNTED")["state"]
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (9, 1000, 1008)
    assert app.stored("COUNTED") == record.messages


def test_a_backup_from_the_future_does_not_displace_later_ones(accounts: Accounts) -> None:
    """The clock was once ahead. With a plain comparison of times, each later run would remove its own new backup, and a
    restore would use the old one."""
    app = accounts.sites["APP"]
    app.add("SEC", 1)
    app.produce([("SEC.x", {}, b"old")])
    (row,) = accounts.done("backup")["streams"]
    folder = Path(row["path"])
    ahead = folder.with_name("SEC@20991231T000000.000000Z")
    change_manifest(folder, taken="2099-12-31T00:00:00.000000Z")
    folder.rename(ahead)
    for number in range(2):
        app.produce([("SEC.x", {}, str(number).encode())])
        result = accounts.done("backup", keep={"last": 1})
        (row,) = result["streams"]
        assert row["changed"] and Path(row["path"]).is_dir()
        assert len(result["removed"]) == number
        assert result["future"] == [str(ahead)]
        assert [line for line in result["lines"] if "1 backup is dated in the future" in line]
    # The stream has not changed since the newest backup, which is not the one from the future.
    assert not accounts.done("backup", keep={"last": 1})["changed"]
    assert ahead.is_dir()
    app.api.delete_stream("SEC")
    restored = accounts.done("restore", streams=["APP/SEC"])
    assert [one["messages"] for one in restored["streams"]] == [3]


def test_a_stream_that_was_deleted_is_judged_no_more_and_its_backups_stay(accounts: Accounts) -> None:
    app = accounts.sites["APP"]
    for stream in ("HERE", "GONE"):
        app.add(stream, 1)
    accounts.done("backup")
    app.api.delete_stream("GONE")
    accounts.done("backup", keep={"last": 1})
    assert set(accounts.catalogue()["streams"]) == {"APP/HERE"}
    assert {row["stream"] for row in accounts.catalogue()["backups"]} == {"HERE", "GONE"}


def test_invalid_backups_are_refused_before_saving(accounts: Accounts) -> None:
    accounts.sites["APP"].add("S", 1)
    assert "no stream matches APP/X" in accounts.refused("backup", "invalid_option", streams=["APP/S", "APP/X"])
    assert "no user for account NONE" in accounts.refused("backup", "invalid_option", accounts=["NONE"])
    with DirectoryStore(accounts.directory).locked():
        result = accounts.run("backup")
    assert result["failure"]["code"] == "locked"
    assert f"another run is writing to {accounts.directory} (process {os.getpid()} since" in result["msg"]
    (accounts.directory / "catalogue.json").write_text("{")
    assert "not JSON" in accounts.refused("backup", "damaged")
    assert list(accounts.directory.glob("APP/*")) == []


def test_a_damaged_backup_keeps_no_other_stream_from_being_restored(accounts: Accounts) -> None:
    app = accounts.sites["APP"]
    for stream in ("EDITED", "GOOD", "HURT"):
        app.add(stream, 1)
        app.produce(some_messages(stream, 20))
    accounts.done("backup")
    app.produce([("EDITED.x", {}, b"later")])
    saved = {row["stream"]: Path(row["path"]) for row in accounts.done("backup")["streams"]}
    archive = saved["HURT"] / "stream.tar.s2"
    data = bytearray(archive.read_bytes())
    data[len(data) // 2] ^= 4
    archive.write_bytes(data)
    manifest = saved["EDITED"] / "backup.json"
    manifest.write_text(manifest.read_text().replace('"max_msgs": -1', '"max_msgs": 10'))
    app.clear()
    for check_mode in (True, False):
        result = accounts.run("restore", check_mode, streams=["*"])
        assert (result["failed"], result["failure"]["code"]) == (True, "damaged")
        head, hurt, edited = result["msg"].splitlines()
        assert head.startswith("2 of 3 streams ") and str(archive) in hurt
        # The previous backup is older than the stream at that time, so it is not restored as a substitute.
        assert f"APP/EDITED: {manifest}: its seal does not match" in edited and "add its time" in edited
        assert app.api.stream_names() == ([] if check_mode else ["GOOD"])
    taken = json.loads(
        next(path for path in accounts.directory.glob("APP/EDITED@*/backup.json") if path != manifest).read_text()
    )
    accounts.done("restore", streams=[f"APP/EDITED@{taken['taken']}"])
    assert app.api.stream("EDITED")["state"]["messages"] == 20
    # No messages are reported as unread if this was not requested.
    assert not accounts.done("restore", streams=["APP/GOOD"])["changed"]


def test_redeliveries_are_counted_beforehand(accounts: Accounts, version: str) -> None:
    """From 2.15 on, the only position of a replicated consumer that a restore keeps is its ack floor."""
    app = accounts.sites["APP"]
    app.add("AGAIN", 3)
    app.cluster.add_consumer("AGAIN", "c", app.account)
    record = app.produce(some_messages("AGAIN", 100))
    app.consume("AGAIN", "c", record, fetch=80, ack=80, skip=1)
    info = app.api.consumer("AGAIN", "c")
    assert (info["ack_floor"]["stream_seq"], info["num_ack_pending"]) == (0, 1)
    accounts.done("backup")
    app.clear()
    (planned,) = accounts.run("restore", check_mode=True, streams=["*"])["streams"]
    (row,) = accounts.done("restore", streams=["*"])["streams"]
    counted = "including acknowledged messages: c (up to 80)" if version != OLD else "are delivered again: c (1)"
    assert row["caveats"] == planned["caveats"] and any(caveat.endswith(counted) for caveat in row["caveats"]), row
    again = app.api.consumer("AGAIN", "c")
    assert again["num_pending"] + again["num_ack_pending"] == (100 if version != OLD else 21)


def test_duplicates_from_restored_sources_are_counted_beforehand(accounts: Accounts, version: str) -> None:
    """From 2.15 on, streams that copy a restored source treat it as a different stream."""
    app = accounts.sites["APP"]
    for stream, count in (("PART1", 30), ("PART2", 12)):
        app.add(stream, 1)
        app.produce(some_messages(stream, count))
    app.add("SUM", 1, sources=[{"name": "PART1"}, {"name": "PART2"}], subjects=[])
    assert wait_until(lambda: app.api.stream("SUM")["state"]["messages"], lambda count: count == 42, 30).done
    accounts.done("backup")
    app.clear()
    planned = {row["stream"]: row["caveats"] for row in accounts.run("restore", True, streams=["*"])["streams"]}
    rows = {row["stream"]: row["caveats"] for row in accounts.done("restore", streams=["*"])["streams"]}
    twice = ["up to 42 messages arrive twice, from sources that are also restored: PART1 (30), PART2 (12)"]
    assert [text for text in rows["SUM"] if "twice" in text] == (twice if version != OLD else [])
    assert planned == rows
    if version != OLD:
        assert wait_until(lambda: app.api.stream("SUM")["state"]["messages"], lambda count: count == 84, 30).done


def test_a_replica_whose_server_is_down_is_waited_for_by_no_restore(accounts: Accounts, cluster: NatsProcesses) -> None:
    app = accounts.sites["APP"]
    names = [f"WIDE{number}" for number in range(3)]
    for stream in names:
        app.add(stream, 3)
        app.produce(some_messages(stream, 20))
    accounts.done("backup")
    app.clear()
    cluster.kill("n3")
    try:
        # If the meta leader chooses n3 to lead a stream, the restore fails and removes that stream.
        seen = wait_until(
            lambda: accounts.run("restore", streams=["*"], wait_timeout=60, idle_timeout=5),
            lambda result: not result.get("failed") or "the partial stream has been removed" not in result["msg"],
            90,
        )
        assert seen.done and not seen.value.get("failed"), seen.value
        for row in seen.value["streams"]:
            assert (
                not row["changed"] or "n3 does not answer: its replica is copied when it returns" in row["caveats"]
            ), row
            assert not row["changed"] or row["compared"]["digest"] == "same"
    finally:
        cluster.start("n3")

    def copied() -> bool:
        infos = [app.api.stream(stream)["cluster"] for stream in names]
        return all(peer.get("current") for info in infos for peer in info["replicas"])

    assert wait_until(copied, bool, 60).done


def test_a_run_that_was_killed_continues(accounts: Accounts, tmp_path: Path) -> None:
    """The run is killed while it slowly saves the second stream; the first stream is not saved again."""
    app = accounts.sites["APP"]
    app.add("A", 1)
    app.produce(some_messages("A", 5))
    app.add("B", 1)
    app.produce([("B.x", {}, os.urandom(256 << 10)) for _number in range(12)])
    script = (
        "import json, sys\n"
        "from ansible_collections.natsops.jetstream.plugins.modules import nats_backup\n"
        "from ansible.module_utils import basic\n"
        "basic._ANSIBLE_ARGS = sys.stdin.buffer.read(); basic._ANSIBLE_PROFILE = 'legacy'\n"
        "nats_backup.main()\n"
    )
    arguments = {
        **accounts.cluster.app_connection(),
        "directory": str(accounts.directory),
        "rate_limit": "512KB",
    }
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps({"ANSIBLE_MODULE_ARGS": arguments}).encode())
    process.stdin.close()
    try:
        staged = wait_until(lambda: list(accounts.directory.glob("*/.natsops-backup-B@*")), bool, 30)
        assert staged.done
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
    result = accounts._run_module(
        "nats_backup", accounts.cluster.app_connection(), False, directory=str(accounts.directory)
    )
    assert not result.get("failed"), result
    assert {row["stream"]: row["changed"] for row in result["streams"]} == {"A": False, "B": True}
    assert not list(accounts.directory.glob("*/.natsops-*"))
    shutil.rmtree(accounts.directory)


def test_a_server_that_is_down_takes_only_its_own_streams_along(accounts: Accounts, cluster: NatsProcesses) -> None:
    """Streams that have other replicas elect a leader, and the run waits for the election; the other streams are
    reported without waiting for a timeout on each of them."""
    app = accounts.sites["APP"]
    lone = [f"LONE{number}" for number in range(6)]
    for stream in lone:
        app.add(stream, 1)
    for number in range(3):
        app.add(f"LED{number}", 3)
    held = {stream: app.api.stream(stream)["cluster"]["leader"] for stream in lone}
    victim = max(held.values(), key=list(held.values()).count)
    cluster.kill(victim)
    try:
        result = accounts.run("backup")
        down = {f"APP/{stream}" for stream, server in held.items() if server == victim}
        assert len(down) >= 2
        assert result["failure"]["code"] == "leaderless", result
        problems = {name: record["problem"] for name, record in accounts.catalogue()["streams"].items()}
        assert {name for name, problem in problems.items() if problem} == down, problems
        assert all("none of its replicas leads it" in problems[name] for name in down), problems
        assert all(problems[name].endswith(f"No answer from {victim}") for name in down), problems
    finally:
        cluster.start(victim)
    assert wait_until(lambda: accounts.run("backup"), lambda row: not row.get("failed"), 30).done
