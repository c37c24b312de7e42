# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.host.files import (
    PREFIX,
    Directory,
    FilesError,
    ManagedFile,
    diff,
    leftovers,
    replace_all,
)

NAMES = ("secrets.conf", "nats-server.conf", "environment")


def wanted(folder: Path, text: str, mode: int = 0o640) -> list[ManagedFile]:
    return [ManagedFile(str(folder / name), mode, content=f"{text} {name}\n".encode()) for name in NAMES]


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.fixture
def old(tmp_path: Path) -> dict[str, str]:
    """The files, as an earlier transaction left them."""
    replace_all(wanted(tmp_path, "old"))
    return contents(tmp_path)


def test_all_are_written_and_nothing_else_stays(tmp_path: Path, old: dict[str, str]) -> None:
    assert old == {name: f"old {name}\n" for name in NAMES}
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o640}
    assert not any(file.differs() for file in wanted(tmp_path, "old"))
    gone = ManagedFile(str(tmp_path / "environment"), 0, content=None)
    assert gone.differs()
    replace_all([*wanted(tmp_path, "new")[:2], gone])
    assert contents(tmp_path) == {name: f"new {name}\n" for name in NAMES[:2]}
    assert not gone.differs()


def test_a_mode_alone_is_mended_without_a_new_time(tmp_path: Path, old: dict[str, str]) -> None:
    path = tmp_path / "environment"
    os.utime(path, (1, 1))
    path.chmod(0o644)
    files = [file for file in wanted(tmp_path, "old") if file.differs()]
    assert [file.path for file in files] == [str(path)]
    replace_all(files)
    assert (stat.S_IMODE(path.stat().st_mode), path.stat().st_mtime) == (0o640, 1)


def no_links(*_arguments: Any, **_options: Any) -> None:
    raise OSError(errno.EPERM, "Operation not permitted")


@pytest.mark.parametrize("call", ["replace", "fsync", "link_and_copy"])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_failure_leaves_all_as_it_was(
    tmp_path: Path, old: dict[str, str], monkeypatch: pytest.MonkeyPatch, call: str, which: int
) -> None:
    calls: list[Any] = []

    def fail(*arguments: Any, **_options: Any) -> None:
        # The rollback is called after the failure, and succeeds.
        calls.append(arguments)
        if len(calls) == which + 1:
            raise OSError(errno.EIO, "Input/output error")
        real(*arguments)

    if call == "link_and_copy":
        monkeypatch.setattr(os, "link", no_links)
        real: Any = shutil.copy2
        monkeypatch.setattr(shutil, "copy2", fail)
    else:
        real = getattr(os, call)
        monkeypatch.setattr(os, call, fail)
    with pytest.raises(FilesError, match="Input/output error"):
        replace_all(wanted(tmp_path, "new"))
    assert contents(tmp_path) == old


def test_links_are_not_needed(tmp_path: Path, old: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", no_links)
    replace_all(wanted(tmp_path, "new"))
    assert contents(tmp_path) == {name: f"new {name}\n" for name in NAMES}


@pytest.mark.parametrize("after", [0, 1, 2])
def test_kill_leaves_complete_files(tmp_path: Path, old: dict[str, str], after: int) -> None:
    """The process is killed between two renames, without a chance to clean up."""
    child = os.fork()
    if not child:
        real, done = os.replace, 0

        def replace(*arguments: Any) -> None:
            nonlocal done
            if done == after:
                os._exit(9)
            done += 1
            real(*arguments)

        os.replace = replace  # type: ignore[assignment]
        replace_all(wanted(tmp_path, "new"))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    found = contents(tmp_path)
    assert [found[name] for name in NAMES] == [
        f"{'new' if number < after else 'old'} {name}\n" for number, name in enumerate(NAMES)
    ]
    left = leftovers([str(tmp_path / name) for name in NAMES])
    assert left and all(Path(path).name.startswith(PREFIX) for path in left)
    assert all(stat.S_IMODE(os.stat(path).st_mode) & 0o007 == 0 for path in left)
    assert {path.name for path in tmp_path.iterdir()} - set(NAMES) == {Path(path).name for path in left}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("mounting needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_changes_nothing(small_disk: Path) -> None:
    replace_all(wanted(small_disk, "old"))
    files = [
        *wanted(small_disk, "new")[:2],
        ManagedFile(str(small_disk / "environment"), 0o640, content=b"x" * 100_000),
    ]
    with pytest.raises(FilesError, match="environment: No space left on device; nothing was changed"):
        replace_all(files)
    assert contents(small_disk) == {name: f"old {name}\n" for name in NAMES}


def test_conflicting_path_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(FilesError, match="folder exists and is not a file"):
        ManagedFile(str(tmp_path / "folder"), 0o640).differs()
    with pytest.raises(FilesError, match="file exists and is not a directory"):
        Directory(str(tmp_path / "file"), 0o750).differs()
    with pytest.raises(FilesError, match=r"name not found: 'no-such-user'; nothing was changed"):
        replace_all([ManagedFile(str(tmp_path / "new"), 0o640, owner="no-such-user")])
    assert sorted(folder_contents(tmp_path)) == ["file", "folder"]


def folder_contents(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_directories(tmp_path: Path) -> None:
    """New parent directories get the same mode and owner; a directory of another user may remain unchanged."""
    inner = Directory(str(tmp_path / "a/b"), 0o750)
    assert inner.differs()
    inner.make()
    assert not inner.differs()
    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "a/b")} == {0o750}
    assert Directory(inner.path, 0o700).differs()
    assert Directory(inner.path, 0o750, owner="no-such-user").differs()
    assert not Directory(inner.path, 0o700, owner="no-such-user", leave_foreign=True).differs()
    assert Directory(inner.path, 0o700, leave_foreign=True).differs()


def test_diff_hides_secrets_and_binary_content(tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    files = [
        ManagedFile(path, 0o640, content=b"new\n"),
        ManagedFile(f"{path}b", 0o640, content=b"s3cret", secret=True),
        ManagedFile(f"{path}c", 0o640, content=b"\xff"),
        ManagedFile(f"{path}d", 0o640, content=b"x" * 200_000),
        ManagedFile(f"{path}e", 0o640, content=None),
    ]
    shown = diff(files, {path: b"old\n", f"{path}e": b"gone\n"})
    assert shown[0] == {"before_header": path, "after_header": path, "before": "old\n", "after": "new\n"}
    assert [(one["before"], one["after"]) for one in shown[1:]] == [
        ("", "(not text)\n"),
        ("(too big)\n", "(too big)\n"),
        ("gone\n", ""),
    ]
