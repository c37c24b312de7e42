# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Backups on disk are found and verified, and incomplete backups are never visible."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.backup import store as backup_store
from ansible_collections.natsops.jetstream.plugins.module_utils.backup import verify as backup_verify
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.catalogue_file import load_catalogue
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.files import (
    Backup,
    find_backups,
    newest_backup,
    read_backup,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.run_backup import folder, hopeless
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.store import (
    PREFIX,
    DirectoryStore,
    name_part,
    staged_directory,
    written,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.verify import CHECKSUM, CONTENTS, LEVELS, verify
from ansible_collections.natsops.jetstream.plugins.module_utils.host.s2 import ArchiveError
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure
from ansible_collections.natsops.jetstream.plugins.modules.nats_backup_info import NONE, read
from hypothesis import given
from hypothesis import strategies as st
from support.manifests import change_manifest

ARCHIVES = Path(__file__).parents[1] / "backup" / "archives"
VERSIONS = ["2.10.27", "2.15.1"]


@pytest.fixture(params=VERSIONS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """The path of a backup that the test may change."""
    copy = tmp_path / "APP" / "S@then"
    shutil.copytree(ARCHIVES / f"backup-{request.param}", copy)
    yield copy


@pytest.mark.parametrize("level", LEVELS)
def test_complete_backup(path: Path, level: str) -> None:
    backup = read_backup(DirectoryStore(path))
    contents = verify(backup, level)
    assert (contents is None) == (level == CHECKSUM)
    assert contents is None or contents.as_dict() == backup.manifest.contents
    rows = read(DirectoryStore(path.parents[1]), None, level)["backups"]
    assert [(row["path"], row["problem"], row["backup"]["stream"]) for row in rows] == [(str(path), "", "S")]
    assert read(DirectoryStore(path.parents[1]), "OTHER", level)["backups"] == []


def test_messages_removed_by_the_restore_are_not_damage() -> None:
    """Before 2.15 the old values of a key stay in a block; without a valid index, only the server distinguishes them.
    This was seen with a 2.10.27 bucket that was restored and read back."""
    backup = read_backup(DirectoryStore(ARCHIVES / "backup-2.10.27"))
    contents = verify(backup, CONTENTS)
    assert contents is not None and (contents.exact, contents.first_seq, contents.last_seq) == (True, 2, 60)
    announced = replace(backup.manifest, state={"first_seq": 60, "last_seq": 60})
    backup_verify._require_plausible(announced, replace(contents, exact=False))
    for other in (contents, replace(contents, exact=False, last_seq=59)):
        with pytest.raises(ArchiveError, match="but the backup has 60 to 60"):
            backup_verify._require_plausible(announced, other)


def alter(path: Path, fault: str) -> None:
    archive = path / "stream.tar.s2"
    data = archive.read_bytes()
    if fault == "missing":
        archive.unlink()
    elif fault == "truncated":
        archive.write_bytes(data[:-1])
    elif fault == "flipped":
        archive.write_bytes(data[:900] + bytes([data[900] ^ 8]) + data[901:])
    elif fault == "swapped":
        other = next(folder for folder in ARCHIVES.iterdir() if (folder / archive.name).read_bytes() != data)
        archive.write_bytes((other / archive.name).read_bytes())


@pytest.mark.parametrize("fault", ["missing", "truncated", "flipped", "swapped"])
@pytest.mark.parametrize("level", LEVELS)
def test_a_damaged_backup(path: Path, fault: str, level: str) -> None:
    alter(path, fault)
    rows = read(DirectoryStore(path), None, level)["backups"]
    assert len(rows) == 1
    assert str(path) in rows[0]["problem"]
    assert rows[0]["contents"] is None


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_every_flipped_bit_and_every_truncation_is_found(version: str, data: st.DataObject) -> None:
    whole = (ARCHIVES / f"backup-{version}" / "stream.tar.s2").read_bytes()
    manifest = read_backup(DirectoryStore(ARCHIVES / f"backup-{version}")).manifest
    bit = data.draw(st.none() | st.integers(0, 8 * len(whole) - 1))
    damaged = bytearray(whole)
    if bit is None:
        del damaged[data.draw(st.integers(0, len(whole) - 1)) :]
    else:
        damaged[bit // 8] ^= 1 << bit % 8
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "stream.tar.s2").write_bytes(damaged)
        with pytest.raises(NatsFailure) as caught:
            verify(Backup(DirectoryStore(Path(folder)), "", manifest), CHECKSUM)
    assert caught.value.code == "damaged"


@pytest.mark.parametrize("fault", ["truncated", "flipped", "swapped"])
def test_a_damaged_backup_of_the_nats_cli(path: Path, fault: str) -> None:
    """The CLI's backup has no checksum: only its content can be checked."""
    told = json.loads((path / "backup.json").read_text())
    # This archive belongs to a different stream.
    config = {**told["config"], "name": "T"} if fault == "swapped" and told["format"] == "tar" else told["config"]
    state = {**told["state"], "last_seq": told["state"]["last_seq"] + (fault == "swapped")}
    (path / "backup.json").write_text(json.dumps({"config": config, "state": state}))
    if fault != "swapped":
        alter(path, fault)
    assert read(DirectoryStore(path), None, CHECKSUM)["backups"][0]["problem"] == ""
    assert "stream.tar.s2" in read(DirectoryStore(path), None, CONTENTS)["backups"][0]["problem"]


def test_manifest_that_contradicts_the_archive(path: Path) -> None:
    contents = read_backup(DirectoryStore(path)).manifest.contents or {}
    change_manifest(path, contents={**contents, "messages": contents["messages"] + 1})
    with pytest.raises(NatsFailure, match="its content differs from the backup record") as caught:
        verify(read_backup(DirectoryStore(path)), CONTENTS)
    assert caught.value.code == "damaged"


def test_a_manifest_that_cannot_be_read(path: Path) -> None:
    (path / "backup.json").write_text("{")
    found, failures = find_backups(DirectoryStore(path))
    assert (found, [failure.code for failure in failures]) == ([], ["damaged"])
    assert "backup.json: it is not JSON" in read(DirectoryStore(path), None, NONE)["backups"][0]["problem"]


def test_a_directory_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(NatsFailure, match="is not a directory"):
        read(DirectoryStore(tmp_path / "nowhere"), None, NONE)
    with pytest.raises(NatsFailure, match="no backup in"):
        read_backup(DirectoryStore(tmp_path))


def test_backup_gets_its_name_once_it_is_complete(path: Path, tmp_path: Path) -> None:
    directory = tmp_path / "new" / "deep"
    manifest = read_backup(DirectoryStore(path)).manifest
    store = DirectoryStore(directory)
    with store.staged("S", datetime(2026, 11, 23, 2, tzinfo=timezone.utc)) as staging:
        with staging.create("stream.tar.s2") as file:
            file.write((path / "stream.tar.s2").read_bytes())
        assert find_backups(store) == ([], [])
        made = directory / staging.publish(manifest.text())
    assert [entry.name for entry in directory.iterdir()] == ["S@20261123T020000.000000Z"]
    assert (made.stat().st_mode & 0o777, (made / "backup.json").stat().st_mode & 0o777) == (0o700, 0o600)
    assert read_backup(DirectoryStore(made)).manifest == manifest


def test_remains_of_killed_runs_are_removed_but_not_running_ones(tmp_path: Path) -> None:
    for name in ("S@killed", "T@killed"):
        (tmp_path / f"{PREFIX}{name}").mkdir()
        (tmp_path / f"{PREFIX}{name}" / "backup.json").write_text("{}")
    with staged_directory(tmp_path, "S") as one, staged_directory(tmp_path, "S") as two:
        assert {entry.name for entry in tmp_path.iterdir()} == {one.name, two.name, f"{PREFIX}T@killed"}
        assert find_backups(DirectoryStore(tmp_path)) == ([], [])
    assert [entry.name for entry in tmp_path.iterdir()] == [f"{PREFIX}T@killed"]


@pytest.mark.parametrize("stream", ["M" * 231, "é" * 120, "M" * 200, "S" * 255])
def test_a_long_name_of_a_stream_is_shortened(path: Path, tmp_path: Path, stream: str) -> None:
    """File systems and servers allow 255 bytes; the names of temporary and removed files are longer."""
    config = {**read_backup(DirectoryStore(path)).manifest.config, "name": stream}
    change_manifest(path, stream=stream, config=config)
    manifest = read_backup(DirectoryStore(path)).manifest
    store = DirectoryStore(tmp_path / "new")
    for other in (stream, stream[:-1] + "x"):
        with store.staged(other, datetime(2026, 11, 23, 2, tzinfo=timezone.utc)) as staging:
            with staging.create("stream.tar.s2") as file:
                file.write((path / "stream.tar.s2").read_bytes())
            text = replace(manifest, stream=other, config={**config, "name": other}).text()
            assert (tmp_path / "new" / staging.publish(text)).is_dir()
    newest = newest_backup(store, stream, None)
    assert newest is not None and newest.manifest.stream == stream
    store.remove(newest.folder)
    assert newest_backup(store, stream, None) is None and len(find_backups(store)[0]) == 1
    assert len(folder("é" * 120)) <= 200 < len("%C3%A9" * 120)


def test_a_name_that_the_disk_refuses_is_not_a_fault_of_the_disk(tmp_path: Path) -> None:
    with pytest.raises(NatsFailure, match="cannot write") as caught, written(tmp_path):
        raise OSError(errno.ENAMETOOLONG, "File name too long")
    assert caught.value.code == "invalid_name"


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ("write_failed", False),
        ("write_failed write_failed unreachable", True),
        ("write_failed write_failed write_failed ok", False),
        ("ok write_failed write_failed", False),
        ("damaged damaged damaged", False),
    ],
)
def test_when_a_run_gives_up(codes: str, expected: bool) -> None:
    """A fault of a single stream or account does not end a run."""
    assert hopeless([{"code": "" if code == "ok" else code} for code in codes.split()]) == expected


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="why"), staged_directory(tmp_path, "S") as staging:
        (staging / "stream.tar.s2").write_bytes(b"half")
        raise ValueError("why")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(NatsFailure, match="cannot write the backup to") as caught,
        staged_directory(tmp_path / "file" / "x", "S"),
    ):
        pass
    assert caught.value.code == "write_failed"


def test_the_newest_backup_of_a_stream(path: Path, tmp_path: Path) -> None:
    for name, taken, account, stream in (
        ("S@1", "2026-11-21", None, "S"),
        ("S@2", "2026-11-23", "OTHER", "S"),
        ("S@3", "2026-11-22", None, "S"),
        ("S@x@4", "2026-11-24", None, "S@x"),
        ("S@5", "", None, "S"),
    ):
        shutil.copytree(path, tmp_path / name)
        config = {**read_backup(DirectoryStore(path)).manifest.config, "name": stream}
        if taken:
            change_manifest(tmp_path / name, taken=taken, account=account, stream=stream, config=config)
        else:
            (tmp_path / name / "backup.json").write_text("{")
    newest = newest_backup(DirectoryStore(tmp_path), "S", None)
    assert newest is not None
    assert newest.folder == "S@3"
    assert newest_backup(DirectoryStore(tmp_path), "[S]", None) is None
    assert newest_backup(DirectoryStore(tmp_path / "nowhere"), "S", None) is None


@pytest.mark.parametrize("name", ["a\0b", "../../a", "a/b", "\x1b[2J", "\u202ecod", "..", "é" * 300, "-rf", "*"])
def test_a_stream_of_any_name_has_its_own_folder_within_the_directory(name: str, tmp_path: Path) -> None:
    """From 2.15, a memory stream may have any name without blanks, '.', '*', '>' and path separators."""
    store = DirectoryStore(tmp_path)
    with store.staged(name, datetime(2026, 11, 21, tzinfo=timezone.utc)) as staging:
        folder = staging.publish("{}")
    assert [path.name for path in tmp_path.iterdir()] == [folder]
    assert folder.isprintable()
    assert list(store.folders(f"{name_part(name)}@")) == [folder]
    assert name_part(name) != name_part(f"{name}\0")


@pytest.mark.parametrize("name", ["backup.json", "catalogue.json"])
@pytest.mark.parametrize("kind", ["pipe", "device", "sparse"])
def test_special_or_endless_files_are_separate_failures(
    name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ARCHIVES / "backup-2.15.1", tmp_path / "APP" / "S@20261121T020000Z")
    path = tmp_path / "APP" / "T@20261121T020000Z" / name if name == "backup.json" else tmp_path / name
    path.parent.mkdir(exist_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        monkeypatch.setattr(backup_store, "LARGEST_TEXT", 4 << 20)
        path.touch()
        os.truncate(path, 1 << 40)
    store = DirectoryStore(tmp_path)
    backups, failures = find_backups(store)
    assert [backup.folder for backup in backups] == ["APP/S@20261121T020000Z"]
    described = [failure.description for failure in failures]
    if name == "catalogue.json":
        with pytest.raises(NatsFailure, match="Move it away") as damaged:
            load_catalogue(store)
        described = [damaged.value.description]
    assert len(described) == 1
    assert ("larger than 4.0 MiB" if kind == "sparse" else "Not a regular file") in described[0]


def test_a_directory_that_cannot_be_read_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unreadable directory is not reported if it belongs to the file system or is hidden."""
    for name in ("APP", "lost+found", ".snapshot"):
        (tmp_path / name).mkdir()
    scan, opened = os.scandir, os.open

    def scandir(path: Path | str) -> Any:
        if Path(path) != tmp_path:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scan(path)

    def refuse(path: Any, *arguments: Any) -> int:
        if Path(path).parent != tmp_path:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *arguments)

    monkeypatch.setattr(os, "scandir", scandir)
    monkeypatch.setattr(os, "open", refuse)
    backups, failures = find_backups(DirectoryStore(tmp_path))
    assert not backups
    assert [one.description for one in failures] == [f"no backup in {tmp_path}/APP: Permission denied (backup.json)"]
