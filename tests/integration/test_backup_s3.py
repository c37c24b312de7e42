# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests backups of real streams in object storage, and the remains of failed uploads."""

from __future__ import annotations

import contextlib
import gzip
import http.server
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyrage
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils import object_storage
from ansible_collections.natsops.jetstream.plugins.module_utils.backup import s3_store
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.object_storage import S3Bucket, S3Options
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from support.backup_site import Accounts, Run, some_messages
from support.module_runs import form, run_in_process
from support.nats_processes import NatsProcesses, free_ports
from support.nats_processes import binary as nats_server
from support.object_storage import BUCKET, ObjectStorage

PLACE = f"s3://{BUCKET}/nats"


@pytest.fixture(scope="module")
def cluster(version: str, tmp_path_factory: pytest.TempPathFactory, run_module: Run) -> Iterator[NatsProcesses]:
    accounts = {"APP": "app", "OTHER": "other"}
    made = NatsProcesses(version, tmp_path_factory.mktemp("s3"), ["n1", "n2", "n3"], accounts=accounts)
    made.start()
    try:
        yield form(made, run_module)
    finally:
        made.kill()


class InStorage(Accounts):
    """Two accounts whose backups are in object storage."""

    def __init__(self, cluster: NatsProcesses, run_module: Run, storage: ObjectStorage) -> None:
        super().__init__(cluster, run_module, Path("nowhere"))
        self.storage = storage

    def run(self, name: str, /, check_mode: bool = False, **options: Any) -> dict[str, Any]:
        return super().run(name, check_mode, **{"directory": PLACE, "s3": self.storage.options, **options})

    def catalogue(self) -> dict[str, Any]:
        return json.loads(self.storage.read("nats/catalogue.json"))


@pytest.fixture
def accounts(cluster: NatsProcesses, storage: ObjectStorage, run_module: Run) -> Iterator[InStorage]:
    made = InStorage(cluster, run_module, storage)
    yield made
    made.clear()
    for site in made.sites.values():
        site.client.close()


def backups_in(storage: ObjectStorage) -> list[str]:
    """Return the folders that contain an archive and its manifest."""
    found = storage.names()
    return [key.rpartition("/")[0] for key in found if key.endswith("/backup.json")]


def archives_in(storage: ObjectStorage) -> list[str]:
    return [key for key in storage.names() if "/stream.tar.s2" in key]


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_accounts_come_back(
    accounts: InStorage, storage: ObjectStorage, version: str, tmp_path: Path, encrypted: bool
) -> None:
    records, stream = {}, f"ORDERS{encrypted:d}"
    for name, site in accounts.sites.items():
        site.add(stream, 1)
        site.cluster.add_consumer(stream, "worker", name)
        record = site.produce(some_messages(stream, 40))
        site.consume(stream, "worker", record, fetch=10, ack=6)
        site.api.call(f"STREAM.MSG.DELETE.{stream}", {"seq": 20})
        record.remove(20)
        records[name] = record
    identity = pyrage.x25519.Identity.generate()
    file = tmp_path / "identity"
    file.write_text(str(identity))
    write: dict[str, Any] = {"encrypt_to": [str(identity.to_public())]} if encrypted else {}
    read: dict[str, Any] = {"identity_file": str(file)} if encrypted else {}

    predicted = accounts.run("backup", check_mode=True, **write)
    assert predicted["changed"] and storage.names() == []
    results = [accounts.done("backup", **write)]
    assert results[0]["diff"] == predicted["diff"]
    assert all(row["path"].startswith(f"{PLACE}/") for row in results[0]["streams"])
    assert not accounts.done("backup", **write)["changed"]
    # Neither a lock nor anything else is left.
    assert {key.rpartition("/")[2] for key in storage.names()} == {
        "catalogue.json",
        "backup.json",
        "stream.tar.s2.age" if encrypted else "stream.tar.s2",
    }
    assert storage.uploads() == []
    rows = accounts.catalogue()["backups"]
    assert [f"nats/{row['path']}" for row in rows] == sorted(
        backups_in(storage), key=lambda name: name.rpartition("@")[2]
    )

    s3 = storage.options
    results.append(run_in_process("nats_backup_info", {}, path=PLACE, s3=s3, verify="contents", **read))
    assert [row["problem"] for row in results[-1]["backups"]] == ["", ""]
    options: dict[str, Any] = {"directory": PLACE, "s3": s3, "work_directory": str(tmp_path / "work")}
    results.append(run_in_process("nats_backup_drill", {}, binary=nats_server(version), **options, **read))
    assert results[-1]["proof"]["ok"], results[-1]
    assert [record["proof"] is not None for _name, record in sorted(accounts.catalogue()["streams"].items())] == [
        True,
        False,
    ]
    checked = run_in_process(
        "nats_check", accounts.cluster.sys_connection(), checks=[{"backup": {"directory": PLACE, "s3": s3}}]
    )
    assert checked["status"] == "OK", checked

    accounts.clear()
    results.append(accounts.done("restore", streams=["*"], **read))
    assert {row["compared"]["digest"] for row in results[-1]["streams"]} == {"same"}
    for name, record in records.items():
        accounts.sites[name].assert_restored(stream, record)
    assert not any(s3["secret_key"] in json.dumps(result) for result in results)


def test_one_stream_by_its_place(accounts: InStorage, storage: ObjectStorage) -> None:
    site = accounts.sites["APP"]
    site.add("ONE", 1)
    record = site.produce(some_messages("ONE", 30))
    saved = site.done("backup", streams=["ONE"], path=f"{PLACE}/one", s3=storage.options)
    site.clear()
    site.done("restore", path=saved["path"], s3=storage.options)
    site.assert_restored("ONE", record)


def test_a_snapshot_takes_the_catalogue_along(
    accounts: InStorage, storage: ObjectStorage, run_module: Run, tmp_path: Path
) -> None:
    accounts.sites["APP"].add("ORDERS", 1)
    accounts.done("backup")
    options = {"lake": str(tmp_path), "endpoints": ["jsz"], "fleet": "test", "backups": PLACE, "s3": storage.options}
    taken = run_module("nats_snapshot", accounts.cluster.sys_connection(), **options)
    assert not taken.get("failed") and taken["complete"], taken
    (file,) = (tmp_path / "bronze" / "backups").rglob("*.jsonl.gz")
    (line,) = map(json.loads, gzip.decompress(file.read_bytes()).decode().splitlines())
    assert line["stream"] == "ORDERS" and line["data"]["saved"], line


def test_old_backups_go(accounts: InStorage, storage: ObjectStorage) -> None:
    site = accounts.sites["APP"]
    site.add("S", 1)
    for _time in range(3):
        site.produce(some_messages("S", 3))
        accounts.done("backup")
    before = backups_in(storage)
    assert len(before) == 3
    site.produce(some_messages("S", 3))
    result = accounts.done("backup", keep={"last": 2})
    assert [f"nats/{folder}" for folder in result["removed"]] == before[:2]
    assert len(backups_in(storage)) == len(archives_in(storage)) == len(accounts.catalogue()["backups"]) == 2


def test_a_damaged_archive_is_refused(accounts: InStorage, storage: ObjectStorage) -> None:
    site = accounts.sites["APP"]
    site.add("HURT", 1)
    site.produce(some_messages("HURT", 30))
    accounts.done("backup")
    (key,) = archives_in(storage)
    data = bytearray(storage.read(key))
    data[len(data) // 2] ^= 1
    storage.write(key, bytes(data))
    site.clear()
    assert f"s3://{BUCKET}/{key}: its SHA-256" in accounts.refused("restore", "damaged", streams=["*"])
    storage.write(key, bytes(data[:-1]))
    assert "bytes instead of" in accounts.refused("restore", "damaged", streams=["*"])


# --- failed uploads ---------------------------------------------------------------------------------------------------


def some_stream(accounts: InStorage) -> None:
    site = accounts.sites["APP"]
    site.add("S", 1)
    site.produce(some_messages("S", 20))


@pytest.mark.parametrize("wrong", ["secret_key", "access_key"])
def test_wrong_credentials(accounts: InStorage, storage: ObjectStorage, wrong: str) -> None:
    some_stream(accounts)
    given = {**storage.options, wrong: "AKIAWRONGWRONGWRONGW"}
    for name, options in (("backup", {}), ("restore", {"streams": ["*"]})):
        why = accounts.refused(name, "authorization", s3=given, **options)
        assert PLACE in why and "rejects the credentials" in why
    read = run_in_process("nats_backup_info", {}, path=PLACE, s3=given)
    assert read["failure"]["code"] == "authorization", read
    assert storage.names() == []


def test_no_credentials(
    accounts: InStorage, storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    why = accounts.refused("backup", "authorization", s3={"endpoint_url": storage.url})
    assert "no credentials for it" in why


def test_credentials_of_the_environment(
    accounts: InStorage, storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    some_stream(accounts)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", storage.options["access_key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", storage.options["secret_key"])
    assert accounts.done("backup", s3={"endpoint_url": storage.url})["changed"]


def test_an_endpoint_that_does_not_answer(accounts: InStorage) -> None:
    (port,) = free_ports(1)
    s3 = {**accounts.storage.options, "endpoint_url": f"http://127.0.0.1:{port}"}
    assert f"no answer from http://127.0.0.1:{port}" in accounts.refused("backup", "unreachable", s3=s3)


def test_a_bucket_that_is_not_there(accounts: InStorage) -> None:
    assert "has no bucket nothing" in accounts.refused("backup", "invalid_option", directory="s3://nothing/nats")
    assert "the bucket is missing" in accounts.refused("backup", "invalid_option", directory="s3://")


def test_a_bucket_with_object_lock(accounts: InStorage, storage: ObjectStorage) -> None:
    """The bucket rejects uploads without a checksum. Backups that retention removes remain as older object versions."""
    # The tests with the next version of nats-server use the same storage, and locked objects cannot be removed.
    client, bucket = storage.client, f"locked-{accounts.cluster.version}"
    client.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
    rule = {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 1}}
    client.put_object_lock_configuration(
        Bucket=bucket, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": rule}
    )
    site, options = accounts.sites["APP"], {"directory": f"s3://{bucket}/nats", "keep": {"last": 1}}
    site.add("LOCKED", 1)
    # The archive is larger than one upload part.
    record = site.produce([("LOCKED.x", {}, os.urandom(512 << 10)) for _number in range(20)])
    accounts.done("backup", **options)
    record = site.produce([("LOCKED.x", {}, b"later")], record)
    (removed,) = accounts.done("backup", **options)["removed"]
    assert not accounts.done("backup", **options)["changed"]
    versions = client.list_object_versions(Bucket=bucket, Prefix=f"nats/{removed}/")["Versions"]
    assert {version["Key"].rpartition("/")[2] for version in versions} == {"backup.json", "stream.tar.s2"}
    site.api.delete_stream("LOCKED")
    accounts.done("restore", directory=options["directory"], streams=["APP/LOCKED"])
    assert site.stored("LOCKED") == record.messages


class _Web(http.server.BaseHTTPRequestHandler):
    """A web console, or the login page of a network."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<html><body>Log in</body></html>")

    def log_message(self, *_arguments: Any) -> None:
        pass


def test_an_address_of_something_else(accounts: InStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_storage, "_FIRST_SECONDS", 0.5)
    with http.server.HTTPServer(("127.0.0.1", 0), _Web) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        options = {**accounts.storage.options, "endpoint_url": f"http://127.0.0.1:{web.server_port}"}
        result = accounts.run("backup", s3=options)
        web.shutdown()
    assert result["failure"]["code"] == "bad_reply", result
    assert "does not answer like S3" in result["msg"]
    # The listener accepts connections but never responds.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options["endpoint_url"] = f"http://127.0.0.1:{silent.getsockname()[1]}"
        started = time.monotonic()
        result = accounts.run("backup", s3=options)
    assert result["failure"]["code"] == "unreachable" and time.monotonic() - started < 10, result


_LISTING = (
    "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>nats/APP/S@1/backup.json</Key>"
    "<LastModified>not a time</LastModified></Contents></ListBucketResult>"
)
_ENDLESS = (
    "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>{}</NextContinuationToken><Contents>"
    "<Key>nats/a</Key><LastModified>2026-11-28T10:00:00Z</LastModified></Contents></ListBucketResult>"
)
_SKEWED = "<Error><Code>RequestTimeTooSkewed</Code><Message>The difference is too large</Message></Error>"


@pytest.mark.parametrize(
    ("status", "body", "code", "reason"),
    [
        (200, _LISTING, "bad_reply", "does not answer as S3 does"),
        (403, _SKEWED, "authorization", "the clock of this host differs from the one of"),
        (200, _ENDLESS, "bad_reply", "its listing of s3://backups never ends: a second page begins with nats/a"),
    ],
    ids=["time", "clock", "endless"],
)
def test_answers_that_are_not_those_of_s3(accounts: InStorage, status: int, body: str, code: str, reason: str) -> None:
    class Answer(_Web):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/xml")
            self.end_headers()
            self.wfile.write(body.format(next(tokens)).encode())

    tokens = itertools.count()
    with http.server.HTTPServer(("127.0.0.1", 0), Answer) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        options = {**accounts.storage.options, "endpoint_url": f"http://127.0.0.1:{web.server_port}"}
        result = accounts.run("restore", s3=options, streams=["*"])
        web.shutdown()
    assert result["failure"]["code"] == code and reason in result["msg"], result


def test_a_storage_that_leaves_out_the_etag(storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The storage omits the ETag in responses about an object, and about the lock of another run."""
    call = S3Bucket.call

    def without(self: Any, method: str, **arguments: Any) -> Any:
        answer = call(self, method, **arguments)
        if method == "get_object":
            del answer["ETag"]
        return answer

    storage.write("nats/catalogue.json", b"{}")
    store = s3_store.s3_store(PLACE, S3Options(**storage.options))
    with store.locked():
        monkeypatch.setattr(S3Bucket, "call", without)
        for read in (lambda: store.open("catalogue.json"), store.locked):
            with pytest.raises(NatsFailure, match=r"does not answer like S3: .* ETag") as caught, read():
                pass
            assert caught.value.code == "bad_reply"
        monkeypatch.undo()


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        ("Fri, 27 Nov 2026 23:00:00 GMT", 23),
        ("Fri, 27 Nov 2026 23:00:00 -0000", 23),
        ("Fri, 27 Nov 2026 23:00:00 GMT, Fri, 27 Nov 2026 23:00:00 GMT", 23),
        ("soon", None),
        (None, None),
    ],
)
def test_the_clock_of_a_storage(date: str | None, expected: int | None) -> None:
    found = s3_store.header_time(date)
    assert (found.hour if found else None) == expected
    assert found is None or found.tzinfo is not None


def large_stream(accounts: InStorage, megabytes: int) -> None:
    site = accounts.sites["APP"]
    site.add("LARGE", 1)
    site.produce([("LARGE.x", {}, os.urandom(512 << 10)) for _number in range(2 * megabytes)])


def test_a_full_storage_leaves_nothing(accounts: InStorage, tmp_path: Path) -> None:
    full = ObjectStorage(tmp_path, full=True)
    full.start()
    try:
        large_stream(accounts, 12)
        result = accounts.run("backup", s3=full.options)
        assert result["failure"]["code"] in ("write_failed", "unreachable"), result
        assert "APP/LARGE" in result["msg"] and f"s3://{BUCKET}" in result["msg"]
        assert backups_in(full) == [] == archives_in(full)
        told = json.loads(full.read("nats/catalogue.json"))
        assert told["backups"] == [] and told["streams"]["APP/LARGE"]["problem"]
    finally:
        full.kill()


def start_a_run(accounts: InStorage) -> subprocess.Popen[bytes]:
    """Start a slow run in a separate process, and return the process once it has begun to upload."""
    script = (
        "import json, sys\n"
        "from ansible_collections.natsops.jetstream.plugins.modules import nats_backup\n"
        "from ansible.module_utils import basic\n"
        "basic._ANSIBLE_ARGS = sys.stdin.buffer.read(); basic._ANSIBLE_PROFILE = 'legacy'\n"
        "nats_backup.main()\n"
    )
    connection = accounts.cluster.app_connection()
    arguments = {**connection, "directory": PLACE, "s3": accounts.storage.options, "rate_limit": "2MB"}
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps({"ANSIBLE_MODULE_ARGS": arguments}).encode())
    process.stdin.close()
    assert wait_until(accounts.storage.uploads, bool, 30).done
    return process


def test_a_run_that_was_killed(
    accounts: InStorage, storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch, run_module: Run
) -> None:
    large_stream(accounts, 20)
    process = start_a_run(accounts)
    try:
        options = {"directory": PLACE, "s3": storage.options}
        own = accounts.cluster.app_connection()
        other = run_module("nats_backup", own, False, **options)
        assert other["failure"]["code"] == "locked", other
        assert f"process {process.pid} on" in other["msg"]
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert backups_in(storage) == [] == archives_in(storage)
    assert storage.uploads() != []
    # The killed run's lock is valid for some minutes.
    assert run_module("nats_backup", own, False, **options)["failure"]["code"] == "locked"
    # The storage's times have a resolution of one second.
    time.sleep(1)
    monkeypatch.setattr(s3_store, "LOCK_SECONDS", 0.05)
    result = run_module("nats_backup", own, False, **options)
    assert not result.get("failed"), result
    assert [row["changed"] for row in result["streams"]] == [True]
    assert (len(backups_in(storage)), len(archives_in(storage)), storage.uploads()) == (1, 1, [])
    assert not [key for key in storage.names() if key.endswith(".lock")]


def test_a_storage_that_stops_during_a_backup(cluster: NatsProcesses, run_module: Run, tmp_path: Path) -> None:
    storage = ObjectStorage(tmp_path)
    storage.start()
    accounts = InStorage(cluster, run_module, storage)
    try:
        large_stream(accounts, 20)
        ended = threading.Timer(2.0, storage.kill)
        ended.start()
        result = accounts.run("backup", rate_limit="2MB")
        ended.join()
        assert result["failure"]["code"] == "unreachable", result
        assert f"no answer from {storage.url}" in result["msg"]
    finally:
        storage.kill()
        accounts.clear()
        for site in accounts.sites.values():
            site.client.close()


def test_old_partial_uploads_are_removed(
    accounts: InStorage, storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    some_stream(accounts)
    storage.write("nats/APP/GONE@20261101T020000.000000Z/stream.tar.s2", b"half")
    storage.client.create_multipart_upload(Bucket=BUCKET, Key="nats/APP/GONE@20261102T020000.000000Z/stream.tar.s2")
    accounts.done("backup")
    # Another run may be writing the upload. (moto dates uploads to 2010.)
    assert "GONE" in str(storage.names())
    assert "GONE" not in str(accounts.catalogue())
    monkeypatch.setattr(s3_store, "_LEFT_BEHIND", timedelta(0))
    accounts.done("backup")
    assert "GONE" not in str(storage.names()) and storage.uploads() == []
    assert len(backups_in(storage)) == 1


def test_a_lock_is_renewed_and_given_back(storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_store, "LOCK_SECONDS", 1.0)
    store = s3_store.s3_store(PLACE, S3Options(**storage.options))
    with store.locked():
        before = storage.client.head_object(Bucket=BUCKET, Key="nats/.lock")["LastModified"]

        def renewed() -> bool:
            return bool(storage.client.head_object(Bucket=BUCKET, Key="nats/.lock")["LastModified"] > before)

        assert wait_until(renewed, bool, 10).done
    assert storage.names() == []


@pytest.mark.parametrize("code", [None, "NotImplemented"], ids=["ignored", "refused"])
def test_a_lock_where_conditions_are_unknown(
    storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch, code: str | None
) -> None:
    """Some servers ignore conditional requests, others reject them."""
    put = S3Bucket.put

    def without(self: S3Bucket, key: str, data: bytes, **condition: str) -> Any:
        if condition and code:
            raise NatsFailure(code, "A header you provided implies functionality that is not implemented")
        return put(self, key, data)

    monkeypatch.setattr(S3Bucket, "put", without)
    store = s3_store.s3_store(PLACE, S3Options(**storage.options))
    with store.locked(), pytest.raises(NatsFailure, match="another run is writing to") as caught, store.locked():
        pass
    assert caught.value.code == "locked"
    assert storage.names() == []


def test_a_lost_connection_is_made_again(storage: ObjectStorage) -> None:
    storage.write("nats/large", bytes(range(256)) * 20_000)
    store = s3_store.s3_store(PLACE, S3Options(**storage.options))
    with store.open("large") as file:
        begin = file.read(10)
        raw: Any = file.raw  # type: ignore[attr-defined]
        raw._body._raw_stream.close()
        with contextlib.suppress(ValueError):
            assert begin + file.read() == bytes(range(256)) * 20_000
    shutil.rmtree("nowhere", ignore_errors=True)
