# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests a drill's refusals before it starts a server, and how it records a failure."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.backup import drill as backup_drill
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.catalogue_file import load_catalogue
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.drill import BackupDrillOptions, drill
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.store import DirectoryStore
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.throwaway_server import find_binary
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import ConnectionOptions, NatsFailure
from support.manifests import change_manifest

ARCHIVES = Path(__file__).parents[1] / "backup" / "archives"


@pytest.fixture
def wanted(tmp_path: Path) -> BackupDrillOptions:
    """A drill of two archives of one stream, from 2.10 and 2.15, with a script that reports the version of nats-server
    2.15."""
    shutil.copytree(ARCHIVES, tmp_path / "backup")
    return BackupDrillOptions(
        DirectoryStore(tmp_path / "backup"), None, told_version(tmp_path, "2.15.1"), None, 10.0, 10.0
    )


def server_directory(wanted: BackupDrillOptions) -> Path:
    assert wanted.store.local is not None
    return wanted.store.local


def told_version(directory: Path, version: str) -> str:
    path = directory / f"nats-server-{version}"
    path.write_text(f"#!/bin/sh\necho nats-server: v{version}\n")
    path.chmod(0o755)
    return str(path)


def refused(wanted: BackupDrillOptions, code: str, **changes: Any) -> str:
    """Check that a drill refuses in check mode and for real, and return the reason."""
    reasons = set()
    for check_mode in (True, False):
        with pytest.raises(NatsFailure) as caught:
            drill(BackupDrillOptions(**{**wanted.__dict__, **changes}), check_mode)
        assert caught.value.code == code, caught.value
        reasons.add(caught.value.description)
    (reason,) = reasons
    return reason


def test_check_mode_starts_nothing_and_writes_nothing(wanted: BackupDrillOptions) -> None:
    before = sorted(server_directory(wanted).parent.rglob("*"))
    result = drill(wanted, True)
    assert (result["stream"], result["path"]) == ("/S", str(server_directory(wanted) / "backup-2.15.1"))
    assert result["room"] > result["bytes"] > 0
    assert (result["proof"], result["changed"], result["server_version"]) == (None, True, "2.15.1")
    assert sorted(server_directory(wanted).parent.rglob("*")) == before


def test_missing_backup_directory_is_refused(wanted: BackupDrillOptions, tmp_path: Path) -> None:
    assert "is not a directory" in refused(wanted, "invalid_option", store=DirectoryStore(tmp_path / "none"))
    (tmp_path / "empty").mkdir()
    assert "there is no backup in" in refused(wanted, "invalid_option", store=DirectoryStore(tmp_path / "empty"))
    (tmp_path / "empty" / "backup.json").write_text("{")
    reason = refused(wanted, "invalid_option", store=DirectoryStore(tmp_path / "empty"))
    assert "1 backups cannot be read" in reason and "not JSON" in reason


def test_ambiguous_or_missing_stream_is_refused(wanted: BackupDrillOptions) -> None:
    assert "there is no backup of OTHER/*" in refused(wanted, "invalid_option", stream="OTHER/*")
    other = server_directory(wanted) / "other"
    shutil.copytree(ARCHIVES / "backup-2.10.27", other)
    change_manifest(other, account="B")
    assert "matches 2 streams" in refused(wanted, "invalid_option", stream="*/S")


def test_a_server_that_is_older_than_the_archive(wanted: BackupDrillOptions, tmp_path: Path) -> None:
    old = told_version(tmp_path, "2.14.9")
    assert "cannot be read by 2.14.9" in refused(wanted, "unsupported", binary=old)
    assert load_catalogue(wanted.store).streams == {}


def test_no_server_to_run(wanted: BackupDrillOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cannot be run" in refused(wanted, "invalid_option", binary=str(tmp_path / "none"))
    monkeypatch.setenv("PATH", str(tmp_path))
    there = shutil.copy(wanted.binary or "", tmp_path / "nats-server")
    assert find_binary(None) == (str(there), "2.15.1")
    monkeypatch.setattr(shutil, "which", lambda *arguments, **options: None)
    assert "no nats-server in PATH" in refused(wanted, "invalid_option", binary=None)


def test_no_room(wanted: BackupDrillOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    room = drill(wanted, True)["room"]

    class Usage(NamedTuple):
        free: int

    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(room - 1))
    work = server_directory(wanted).parent / "not" / "yet"
    assert f"{server_directory(wanted).parent} has " in refused(wanted, "disk_full", work_directory=work)
    assert not work.exists()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(room))
    assert drill(wanted, True)["room"] == room


def test_no_work_among_the_backups(wanted: BackupDrillOptions) -> None:
    for work in (server_directory(wanted), server_directory(wanted) / "work"):
        assert "which is for backups only" in refused(wanted, "invalid_option", work_directory=work)


def test_a_damaged_archive_is_recorded(wanted: BackupDrillOptions) -> None:
    archive = server_directory(wanted) / "backup-2.15.1" / "stream.tar.s2"
    archive.write_bytes(archive.read_bytes()[:-1])
    reason = refused(wanted, "damaged")
    proof = load_catalogue(wanted.store).streams["/S"].proof
    assert proof is not None
    assert (proof["ok"], proof["reason"], proof["path"]) == (False, reason, "backup-2.15.1")


@pytest.mark.parametrize(
    ("code", "recorded"), [("incomplete", "not_proven"), ("api_error", "api_error"), ("not_started", "")]
)
def test_restore_failures_are_recorded_but_host_failures_are_not(
    wanted: BackupDrillOptions, monkeypatch: pytest.MonkeyPatch, code: str, recorded: str
) -> None:
    @contextmanager
    def server(*_arguments: Any) -> Iterator[ConnectionOptions]:
        yield ConnectionOptions(servers=("nats://127.0.0.1:1",))

    def restore(*_arguments: Any) -> None:
        raise NatsFailure(code, "stream S was restored, but differs from its backup")

    monkeypatch.setattr(backup_drill, "throwaway_server", server)
    monkeypatch.setattr(backup_drill, "restore", restore)
    with pytest.raises(NatsFailure, match="differs from its backup") as caught:
        drill(wanted, False)
    assert caught.value.code == (recorded or code)
    assert bool(load_catalogue(wanted.store).streams) == bool(recorded)
