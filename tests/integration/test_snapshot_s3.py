# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests snapshots of real clusters in object storage: the same files as in a directory, and the manifest last."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Callable

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats import system_api
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.failures import NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.object_storage import S3Bucket, S3Options
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry import lake_store
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.lake_store import LAKE, ObjectLake
from support.module_runs import Runner
from support.nats_processes import SYS_PASSWORD, NatsProcesses, run_playbook
from support.object_storage import BUCKET, ObjectStorage
from support.snapshots import HOUR, RECORDED, recorded, write_snapshot

PLACE = f"s3://{BUCKET}/lake"
COLLECTION = Path(system_api.__file__).parents[3]
COLLECTOR = COLLECTION / "roles/nats_insights/files/collector/collect.py"
#: A server that does not exist: a run that connects to it would fail with a different error.
NOWHERE = {"servers": ["nats://127.0.0.1:1"], "user": "sys", "password": "x"}


@pytest.fixture
def take(healthy: NatsProcesses, storage: ObjectStorage, run_module: Runner) -> Callable[..., dict[str, Any]]:
    """Run the module with the lake in object storage. No result contains the secret key."""

    def taken(check_mode: bool = False, **options: Any) -> dict[str, Any]:
        connection = options.pop("connection", healthy.sys_connection())
        given = {"lake": PLACE, "lake_s3": storage.options, "endpoints": ["varz", "jsz"], "fleet": "test", **options}
        result = run_module("nats_snapshot", connection, check_mode, **given)
        assert storage.options["secret_key"] not in json.dumps(result)
        return result

    return taken


def object_lake(storage: ObjectStorage, tmp_path: Path, seconds: float = 60.0) -> ObjectLake:
    found = lake_store.requested_lake(PLACE, S3Options(**storage.options), seconds, str(tmp_path))
    assert isinstance(found, ObjectLake)
    return found


def manifests(storage: ObjectStorage) -> list[dict[str, Any]]:
    """Return the manifests that a reader finds."""
    names = storage.names("lake/bronze/manifest/")
    return sorted((json.loads(storage.read(name)) for name in names), key=lambda found: found["started"])


def complete(storage: ObjectStorage, manifest: dict[str, Any]) -> bool:
    """Return whether all files that the manifest names exist with all their rows."""
    files = [file for table in manifest["tables"].values() for file in table["files"]]
    found = [gzip.decompress(storage.read(f"lake/bronze/{file['path']}")).splitlines() for file in files]
    return [len(lines) for lines in found] == [file["rows"] for file in files]


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the names of the objects in the order in which they are written."""
    names: list[str] = []
    put = S3Bucket.put

    def noted(self: S3Bucket, key: str, data: bytes, *arguments: Any, **options: Any) -> Any:
        names.append(key)
        return put(self, key, data, *arguments, **options)

    monkeypatch.setattr(S3Bucket, "put", noted)
    return names


def test_snapshot_equals_one_in_a_directory_file_by_file(storage: ObjectStorage, tmp_path: Path) -> None:
    name = f"{HOUR:%Y%m%dT%H%M%S.%fZ}-000001"
    for lake in (tmp_path / "lake", object_lake(storage, tmp_path)):
        write_snapshot(lake, recorded(RECORDED[-1]), name=name)
    names = storage.names("lake/")
    in_directory = sorted(path for path in (tmp_path / "lake").rglob("*") if path.is_file())
    assert names == [f"lake/{path.relative_to(tmp_path / 'lake')}" for path in in_directory]
    assert len(names) > 5
    for path, key in zip(in_directory, names):
        if "/manifest/" not in key:
            assert storage.read(key) == path.read_bytes(), key
    manifest = names.index(f"lake/bronze/manifest/date={HOUR:%Y-%m-%d}/hour={HOUR:%H}/{name}.json")
    left, right = json.loads(storage.read(names[manifest])), json.loads(in_directory[manifest].read_bytes())
    assert {**left, "ended": ""} == {**right, "ended": ""}
    assert [path.name for path in tmp_path.iterdir()] == ["lake"]


def test_live_snapshot_has_the_same_tables_as_one_in_a_directory(
    take: Callable[..., dict[str, Any]], storage: ObjectStorage, stored: list[str], tmp_path: Path
) -> None:
    every: dict[str, Any] = {"endpoints": ["jsz", "raftz", "varz", "healthz", "routez", "accountz"]}
    result, other = take(**every), take(lake=str(tmp_path), lake_s3={}, **every)
    assert (result.get("msg"), result["changed"], result["complete"], result["answered"]) == (None, True, True, 3)
    (manifest,) = manifests(storage)
    name = manifest["snapshot"]
    assert result["manifest"] == f"s3://{BUCKET}/{stored[-1]}" and stored[-1].endswith(f"/{name}.json")
    # The manifest is last, and the sequence was determined before it.
    assert stored[0] == "lake/bronze/_sequence" and sorted(stored) == storage.names("lake/")
    assert result["rows"] == other["rows"] and complete(storage, manifest)
    directory = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    names = {key.removeprefix("lake/").replace(name, "SNAPSHOT") for key in storage.names()}
    if Path(other["manifest"]).parent.name in result["manifest"]:  # unless the hour has changed
        assert names == {path.replace(other["snapshot"], "SNAPSHOT") for path in directory}
    assert SYS_PASSWORD.encode() not in b"".join(
        gzip.decompress(storage.read(key)) for key in stored if key[-3:] == ".gz"
    )


def test_failure_before_the_manifest_shows_no_part_of_the_snapshot(
    take: Callable[..., dict[str, Any]], storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = S3Bucket.put

    def refused(self: S3Bucket, key: str, data: bytes, *arguments: Any, **options: Any) -> Any:
        if "/manifest/" in key:
            raise NatsFailure("write_failed", f"s3://{self.name}/{key}: the quota is exceeded")
        return put(self, key, data, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(S3Bucket, "put", refused)
        result = take()
    assert result["failed"] and result["failure"]["code"] == LAKE
    assert "the quota is exceeded. No part of the snapshot was published." in result["msg"]
    assert manifests(storage) == []
    assert len(storage.names("lake/bronze/varz/")) == 1
    assert take()["complete"]
    (manifest,) = manifests(storage)
    assert complete(storage, manifest)


KILLED = """
import runpy, sys, time
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.lake_store import ObjectLake

store = ObjectLake.store

def stored(self, file, path):
    store(self, file, path)
    print(path, flush=True)
    time.sleep(600)

ObjectLake.store = stored
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def settings(healthy: NatsProcesses, storage: ObjectStorage, **more: Any) -> dict[str, Any]:
    """Return the collector's configuration, as the role writes it."""
    fixed = {
        "fleet": "test",
        "endpoints": ["varz"],
        "expected_servers": [],
        "deadline": 60.0,
        "backups": "",
        "drift": "",
    }
    lake = {"lake": PLACE, "lake_s3": storage.options}
    return {"connection": healthy.sys_connection(), **fixed, **lake, **more}


def test_kill_during_the_upload_leaves_only_files_without_a_manifest(
    healthy: NatsProcesses, take: Callable[..., dict[str, Any]], storage: ObjectStorage, tmp_path: Path
) -> None:
    (tmp_path / "settings.json").write_text(json.dumps(settings(healthy, storage)))
    (tmp_path / "temporary").mkdir()
    command = [sys.executable, "-c", KILLED, str(COLLECTOR), str(tmp_path / "settings.json")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path / "temporary")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        first = process.stdout.readline().strip()
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert storage.names("lake/") == ["lake/bronze/_sequence", f"lake/bronze/{first}"]
    assert manifests(storage) == [] and storage.uploads() == []
    # Only its owner can read the local copy, which systemd removes with the private /tmp.
    (copy,) = (tmp_path / "temporary").iterdir()
    assert copy.stat().st_mode & 0o777 == 0o700
    assert take()["complete"]
    (manifest,) = manifests(storage)
    assert complete(storage, manifest)
    assert first not in json.dumps(manifest) and f"lake/bronze/{first}" in storage.names("lake/")


def test_sequence_rises_although_the_clock_is_set_back(
    take: Callable[..., dict[str, Any]], storage: ObjectStorage, tmp_path: Path
) -> None:
    assert [object_lake(storage, tmp_path).next_sequence(number) for number in (9, 12, 3, 3, 40)] == [9, 12, 13, 14, 40]
    later = int((datetime.now(timezone.utc) + timedelta(days=1)).timestamp() * 1e6)
    storage.write("lake/bronze/_sequence", str(later).encode())
    results = [take(), take()]
    assert not any(result.get("failed") for result in results)
    assert [manifest["sequence"] for manifest in manifests(storage)] == [later + 1, later + 2]
    assert storage.read("lake/bronze/_sequence") == str(later + 2).encode()


@pytest.mark.parametrize("before", [b"", b"10"], ids=["first", "later"])
def test_sequence_is_higher_than_that_of_a_snapshot_that_was_faster(
    storage: ObjectStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bytes
) -> None:
    if before:
        storage.write("lake/bronze/_sequence", before)
    replace = S3Bucket.replace
    lost: list[bool] = []

    def second(self: S3Bucket, key: str, data: bytes, tag: str) -> bool:
        if not lost:
            storage.write(key, b"500")
        lost.append(replace(self, key, data, tag))
        return lost[-1]

    monkeypatch.setattr(S3Bucket, "replace", second)
    assert object_lake(storage, tmp_path).next_sequence(11) == 501
    assert lost == [False, True]


def test_sequence_that_others_keep_replacing_is_an_error_after_the_deadline(
    storage: ObjectStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(S3Bucket, "replace", lambda *_arguments: False)
    with pytest.raises(
        NatsFailure, match=r"lake/bronze/_sequence: other snapshots have replaced it for 0\.5 s"
    ) as refused:
        object_lake(storage, tmp_path, seconds=0.5).next_sequence(1)
    assert refused.value.code == LAKE


def test_lost_response_and_overload_are_repeated(
    storage: ObjectStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The storage writes the sequence, but the response is lost; then it is overloaded."""
    put = S3Bucket.put
    calls: list[str] = []

    def flaky(self: S3Bucket, key: str, data: bytes, *arguments: Any, **options: Any) -> Any:
        calls.append(key)
        if len(calls) == 1:
            put(self, key, data, *arguments, **options)
            error = self.errors.ReadTimeoutError(endpoint_url=storage.url)
            raise NatsFailure("unreachable", "no answer") from error
        if calls.count(key) == 1 and key.endswith("/file"):
            response = {"Error": {"Code": "SlowDown"}, "ResponseMetadata": {"HTTPStatusCode": 503}}
            raise NatsFailure("write_failed", "slow down") from self.errors.ClientError(response, "PutObject")
        return put(self, key, data, *arguments, **options)

    monkeypatch.setattr(S3Bucket, "put", flaky)
    lake = object_lake(storage, tmp_path)
    assert lake.next_sequence(7) == 8
    (tmp_path / "file").write_bytes(b"content")
    lake.store(tmp_path / "file", "varz/file")
    assert storage.read("lake/bronze/varz/file") == b"content"
    assert [key.rpartition("/")[2] for key in calls] == ["_sequence"] * 3 + ["file"] * 2


def test_upload_to_a_storage_that_stopped_ends_at_the_deadline(tmp_path: Path) -> None:
    storage = ObjectStorage(tmp_path)
    storage.start()
    try:
        lake = object_lake(storage, tmp_path, seconds=1.0)
        lake.require()
        assert lake.next_sequence(1) == 1
    finally:
        storage.kill()
    started = time.monotonic()
    (tmp_path / "file").write_bytes(b"content")
    with pytest.raises(NatsFailure, match=r"no answer from .* No part of the snapshot was published") as refused:
        lake.store(tmp_path / "file", "varz/file")
    assert refused.value.code == LAKE and time.monotonic() - started < 10


def test_unusable_storage_is_refused_before_a_server_is_queried(
    take: Callable[..., dict[str, Any]], storage: ObjectStorage
) -> None:
    wrong = {**storage.options, "secret_key": "not-the-secret-key"}
    for check_mode in (False, True):
        result = take(check_mode, connection=NOWHERE, lake="s3://missing/lake")
        assert result["failure"]["code"] == LAKE
        assert f"s3://missing/lake/bronze/_sequence: {storage.url} has no bucket missing" in result["msg"]
        assert "create it" in result["msg"]
        result = take(check_mode, connection=NOWHERE, lake_s3=wrong)
        assert result["failure"]["code"] == LAKE
        assert f"{PLACE}/bronze/_sequence: {storage.url} rejects the credentials" in result["msg"]
        assert "see `lake_s3`" in result["msg"] and "not-the-secret-key" not in json.dumps(result)
    unreachable = {**storage.options, "endpoint_url": "http://127.0.0.1:1"}
    result = take(connection=NOWHERE, lake_s3=unreachable, deadline=0.5)
    assert "no answer from http://127.0.0.1:1" in result["msg"]
    result = take(connection=NOWHERE, lake="s3a://backups/lake")
    assert (result["failure"]["code"], "s3://BUCKET/PREFIX" in result["msg"]) == ("invalid_option", True)
    assert storage.names() == []


def test_check_mode_writes_nothing(
    take: Callable[..., dict[str, Any]], storage: ObjectStorage, stored: list[str]
) -> None:
    result = take(True)
    assert (result["changed"], result["complete"], result["answered"], result["manifest"]) == (True, True, 3, "")
    assert storage.names() == stored == []


def test_collector_writes_to_object_storage_without_ansible(
    healthy: NatsProcesses, storage: ObjectStorage, tmp_path: Path
) -> None:
    """Runs the timer's command: a single file, without an installed collection."""
    prefix = "ansible_collections/natsops/jetstream/plugins/module_utils"
    pack = str(COLLECTION / "roles/nats_program/files/pack.py")
    sources = [f"{COLLECTION}/plugins/module_utils={prefix}", f"{COLLECTOR}=__main__.py"]
    subprocess.run([sys.executable, pack, str(tmp_path / "program.pyz"), *sources], check=True)

    def collected(**more: Any) -> subprocess.CompletedProcess[str]:
        (tmp_path / "settings.json").write_text(json.dumps(settings(healthy, storage, **more)))
        command = [sys.executable, "-I", str(tmp_path / "program.pyz"), str(tmp_path / "settings.json")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert storage.options["secret_key"] not in done.stdout + done.stderr
        return done

    done = collected()
    assert (done.returncode, done.stderr) == (0, "")
    (manifest,) = manifests(storage)
    assert complete(storage, manifest) and done.stdout.startswith(manifest["snapshot"])
    done = collected(lake_s3={**storage.options, "access_key": "unknown"}, connection=NOWHERE)
    assert done.returncode == 1
    assert done.stderr.startswith(f"no snapshot: {PLACE}/bronze/_sequence: {storage.url} rejects the credentials")
    assert len(manifests(storage)) == 1


def test_playbook_writes_to_object_storage_and_shows_no_secret(
    healthy: NatsProcesses, storage: ObjectStorage, tmp_path: Path
) -> None:
    variables = {
        "nats_connection": healthy.sys_connection(),
        "nats_expected_servers": healthy.names,
        "nats_insights_lake": PLACE,
        "nats_insights_lake_s3": storage.options,
        "nats_insights_endpoints": ["varz"],
    }
    extra = tmp_path / "variables.json"
    extra.write_text(json.dumps(variables))
    done = run_playbook("snapshot", "-vvv", "-e", f"@{extra}")
    assert done.returncode == 0, done.stdout + done.stderr
    (manifest,) = manifests(storage)
    assert complete(storage, manifest)
    assert f"3 servers answered all requests: {PLACE}/bronze/manifest/" in " ".join(done.stdout.split())
    assert storage.options["secret_key"] not in done.stdout + done.stderr


def test_collector_without_boto3_names_the_remedy(
    healthy: NatsProcesses,
    storage: ObjectStorage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spec = importlib.util.spec_from_file_location("collect", COLLECTOR)
    assert spec is not None and spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    (tmp_path / "settings.json").write_text(json.dumps(settings(healthy, storage, connection=NOWHERE)))
    monkeypatch.setitem(sys.modules, "boto3", None)
    assert program.main(str(tmp_path / "settings.json")) == 1
    assert capsys.readouterr().err == "no snapshot: the Python library boto3 is not installed: install it with pip\n"
