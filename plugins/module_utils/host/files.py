# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Replacement of all files of a host in one transaction: either all files or none.

New contents are written completely next to their targets before the first target is touched, so a full disk changes
nothing. Then the targets are replaced one by one by renaming, while a link keeps the previous content of each; after a
failure, the previous contents are restored. A process that is killed in between leaves complete files, some of them
new, and its temporary files, which the next transaction removes."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

PREFIX = ".natsops-"
#: As in Ansible's own diffs.
MAX_DIFF = 104448


class FilesError(Exception):
    """The files cannot be brought to the desired state; the message describes the resulting state."""


@dataclass(frozen=True)
class Owned:
    """The options that files and directories have in common; None leaves a value unchanged."""

    path: str
    mode: int
    owner: str | None = None
    group: str | None = None

    def ids(self) -> tuple[int, int]:
        """Return the numeric owner and group, -1 for one that stays unchanged. Raises FilesError if one does not exist."""
        try:
            uid = pwd.getpwnam(self.owner).pw_uid if self.owner else -1
            gid = grp.getgrnam(self.group).gr_gid if self.group else -1
        except KeyError as error:
            raise FilesError(f"{self.path}: {str(error.args[0]).partition('(): ')[2]}") from error
        return uid, gid

    def fits(self, found: os.stat_result) -> bool:
        """Return whether mode and owners are as desired."""
        try:
            wanted = self.ids()
        except FilesError:
            return False
        actual = (found.st_uid, found.st_gid)
        return stat.S_IMODE(found.st_mode) == self.mode and all(
            number in (-1, there) for number, there in zip(wanted, actual)
        )

    def grant(self, path: str) -> None:
        """Set mode and owners of a path. The mode is set last, because a change of owners clears bits."""
        uid, gid = self.ids()
        if (uid, gid) != (-1, -1):
            os.chown(path, uid, gid)
        os.chmod(path, self.mode)


@dataclass(frozen=True)
class Directory(Owned):
    """A directory that must exist. If `leave_foreign` is set, a directory of another user is left unchanged."""

    leave_foreign: bool = False

    def missing(self) -> bool:
        return not os.path.isdir(self.path)

    def differs(self) -> bool:
        """Return whether the directory differs from the desired state. Raises FilesError if the path is not a
        directory."""
        if self.missing():
            if os.path.lexists(self.path):
                raise FilesError(f"{self.path} exists and is not a directory")
            return True
        found = os.stat(self.path)
        return not (self.leave_foreign and self._foreign(found)) and not self.fits(found)

    def _foreign(self, found: os.stat_result) -> bool:
        try:
            own = self.ids()[0] if self.owner else os.geteuid()
        except FilesError:
            return True
        return found.st_uid != own

    def make(self) -> None:
        """Create the directory and its missing parents, and set the desired mode and owners on them."""
        made, path = [self.path], os.path.dirname(self.path)
        while not os.path.isdir(path):
            made.append(path)
            path = os.path.dirname(path)
        for missing in reversed(made):
            with contextlib.suppress(FileExistsError):
                os.mkdir(missing, 0o700)
            self.grant(missing)


@dataclass(frozen=True)
class ManagedFile(Owned):
    """A file that must have this content, or must not exist if the content is None. The content of a secret file never
    appears in a diff."""

    content: bytes | None = b""
    secret: bool = False

    def before(self) -> bytes | None:
        """Return the file's current content, or None if it does not exist. Raises FilesError if the path is not a file."""
        if os.path.lexists(self.path) and not os.path.isfile(self.path):
            raise FilesError(f"{self.path} exists and is not a file")
        try:
            with open(self.path, "rb") as stream:
                return stream.read()
        except FileNotFoundError:
            return None

    def differs(self) -> bool:
        """Return whether content, mode or owners differ from the desired state."""
        if self.content is None:
            return os.path.lexists(self.path)
        return self.before() != self.content or not self.fits(os.stat(self.path))


def leftovers(paths: Sequence[str]) -> list[str]:
    """Return the temporary files next to these files that a killed transaction has left."""
    found = []
    for folder in sorted({os.path.dirname(path) for path in paths}):
        with contextlib.suppress(OSError):
            found += [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.startswith(PREFIX)]
    return found


def replace_all(files: Sequence[ManagedFile]) -> None:
    """Bring all files to the desired state, in this order; on failure, leave all of them unchanged and raise
    FilesError."""
    staged: dict[str, str] = {}
    # If only the mode of a file differs, the file keeps its modification time, which shows whether a process has read
    # the file since its last change.
    only_granted = [file for file in files if file.content is not None and file.content == file.before()]
    replaced = [file for file in files if file not in only_granted]
    try:
        for file in replaced:
            if file.content is not None:
                staged[file.path] = _stage(file, file.content)
    except (OSError, FilesError) as error:
        _remove(staged.values())
        raise FilesError(f"{_reason(error)}; nothing was changed") from error
    kept: list[tuple[str, str]] = []
    try:
        for file in only_granted:
            file.grant(file.path)
        for file in replaced:
            kept.append((file.path, _keep(file.path)))
            if file.path in staged:
                os.replace(staged[file.path], file.path)
            else:
                os.unlink(file.path)
    except (OSError, FilesError) as error:
        _put_back(kept)
        _remove([*staged.values(), *(old for _path, old in kept)])
        raise FilesError(f"{_reason(error)}; every file is as it was") from error
    _remove(old for _path, old in kept)


def diff(files: Sequence[ManagedFile], before: dict[str, bytes | None]) -> list[dict[str, Any]]:
    """Return Ansible's diff of each file that is not secret; for a large or binary file, the diff contains only the
    names."""
    return [entry for file in files if not file.secret for entry in _diff(file, before.get(file.path))]


def _diff(file: ManagedFile, before: bytes | None) -> Iterator[dict[str, Any]]:
    texts = []
    for content in (before or b"", file.content or b""):
        try:
            texts.append(content.decode())
        except UnicodeDecodeError:
            texts.append("(not text)\n")
    if max(map(len, texts)) > MAX_DIFF:
        texts = ["(too big)\n", "(too big)\n"]
    headers = {"before_header": file.path, "after_header": file.path if file.content is not None else "(absent)"}
    yield {**headers, "before": texts[0], "after": texts[1]}


def to_disk(path: str | os.PathLike[str]) -> None:
    """Sync a file, or the entries of a directory, to the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _stage(file: ManagedFile, content: bytes) -> str:
    descriptor, path = tempfile.mkstemp(prefix=PREFIX, dir=os.path.dirname(file.path))
    try:
        with open(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            # Some file systems allocate the space only now, and a crash after the rename must not leave an empty file.
            os.fsync(stream.fileno())
        file.grant(path)
    except BaseException as error:
        _remove([path])
        if isinstance(error, OSError):
            raise FilesError(f"{file.path}: {error.strerror}") from error
        raise
    return path


def _keep(path: str) -> str:
    """Create a second name for the existing file and return it; return an empty text if the file does not exist."""
    if not os.path.lexists(path):
        return ""
    kept = os.path.join(os.path.dirname(path), f"{PREFIX}{token_hex(8)}")
    try:
        os.link(path, kept, follow_symlinks=False)
    except OSError:  # Not every file system supports links.
        shutil.copy2(path, kept, follow_symlinks=False)
    return kept


def _put_back(kept: Sequence[tuple[str, str]]) -> None:
    for path, old in reversed(kept):
        with contextlib.suppress(OSError):
            if old:
                os.replace(old, path)
            elif os.path.lexists(path):
                os.unlink(path)


def _remove(paths: Iterable[str]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            if path:
                os.unlink(path)


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
    return str(error)
