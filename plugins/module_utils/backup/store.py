# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The interface of backup stores, and the store in a directory.

Names are relative to a store, with `/` between their parts. A folder is a backup once it contains `backup.json`, which
is published last: in a directory by renaming the finished folder, so every folder with a backup's name is complete.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import hashlib
import os
import shutil
import stat
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import BinaryIO, Optional

from ..host.files import to_disk
from ..nats.failures import NatsFailure
from ..units import human_bytes
from .encryption import NO_KEYS, Keys
from .manifest import FILE

PREFIX = ".natsops-backup-"
#: Prefix that the name of a backup has while the backup is being removed.
REMOVED = f"{PREFIX}removed-"
_LOCK = ".lock"
#: Maximum bytes of a stream's or an account's part of a folder's name. A file system allows 255 for the complete name,
#: which has an additional prefix and suffix while a backup is written or removed.
_LONGEST_PART = 200
#: Maximum bytes of a manifest or a catalogue. A catalogue has about 600 bytes for each backup.
LARGEST_TEXT = 256 << 20
_PIECE = 1 << 20
#: Errors that the file system raises for an invalid name.
_NAME_REFUSED = (errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL)


class Staging(ABC):
    """A backup that is being written. `folder`: its location until it is published."""

    folder: str

    @abstractmethod
    def create(self, name: str) -> contextlib.AbstractContextManager[BinaryIO]:
        """Yield a new file of the backup; its content is durable once the block has ended. Raises NatsFailure."""

    @abstractmethod
    def publish(self, manifest: str) -> str:
        """Write the manifest, rename the backup into place, and return its name. Raises NatsFailure."""


class BackupStore(ABC):
    """A store of backups, with the keys that decrypt its archives and encrypt new ones."""

    keys: Keys
    #: The directory, if the store is a directory.
    local: Optional[Path] = None

    @abstractmethod
    def place(self, name: str = "") -> str:
        """Return the location of a name, for operators and results."""

    @abstractmethod
    def below(self, name: str) -> BackupStore:
        """Return the store for a subfolder."""

    @abstractmethod
    def with_keys(self, keys: Keys) -> BackupStore:
        """Return the same store with different keys."""

    @abstractmethod
    def require(self) -> None:
        """Raise NatsFailure if the store does not exist."""

    @abstractmethod
    def folders(self, prefix: str = "") -> Mapping[str, frozenset[str]]:
        """Return the folders with a manifest whose names begin with the prefix, sorted by name, each with the names of
        its files."""

    @abstractmethod
    def files(self, folder: str) -> frozenset[str]:
        """Return the names of the files in one folder."""

    @abstractmethod
    def size(self, name: str) -> int:
        """Return the bytes of a file. Raises OSError."""

    @abstractmethod
    def open(self, name: str) -> BinaryIO:
        """Return a file to read in order. Raises OSError."""

    def read(self, name: str) -> str:
        """Return the text of a manifest or a catalogue. Raises OSError, also for a file of more than LARGEST_TEXT
        bytes, or UnicodeDecodeError."""
        data = bytearray()
        with self.open(name) as file:
            while piece := file.read(_PIECE):
                data += piece
                if len(data) > LARGEST_TEXT:
                    raise OSError(errno.EFBIG, f"larger than {human_bytes(LARGEST_TEXT)}", self.place(name))
        return data.decode()

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Write a file atomically. Raises NatsFailure."""

    @abstractmethod
    def discard(self, name: str) -> None:
        """Remove one file if it exists. Raises NatsFailure."""

    @abstractmethod
    def staged(self, stream: str, taken: datetime) -> contextlib.AbstractContextManager[Staging]:
        """Yield a staging area for a new backup, which is removed unless it was published. Raises NatsFailure."""

    @abstractmethod
    def remove(self, folder: str) -> None:
        """Remove a backup. As soon as its removal begins, the folder no longer counts as a backup. Raises NatsFailure."""

    @abstractmethod
    def sweep(self) -> None:
        """Remove the leftovers of interrupted removals and killed runs."""

    @abstractmethod
    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Hold the lock for writing a catalogue or the backups that the catalogue lists. Raises NatsFailure locked."""


def name_part(name: str) -> str:
    """Return a stream's or an account's part of the name of a folder. If the name is long, or has characters that are
    not allowed in a path or not visible on a terminal, the part is its beginning and a digest. The manifest contains
    the complete name."""
    shown = "".join(letter if letter.isprintable() and letter != "/" else "~" for letter in name)
    encoded = shown.encode()
    if shown == name and len(encoded) <= _LONGEST_PART:
        return name
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:16]
    return f"{encoded[: _LONGEST_PART - len(digest) - 1].decode(errors='ignore')}~{digest}"


def backup_name(stream: str, taken: datetime) -> str:
    return f"{name_part(stream)}@{taken:%Y%m%dT%H%M%S.%fZ}"


def utc_now() -> str:
    """Return the current time in the format of catalogues and manifests."""
    return datetime.now(timezone.utc).isoformat().replace("+00:00", "Z")


@contextlib.contextmanager
def written(place: object) -> Iterator[None]:
    """Convert errors of the file system to NatsFailure: write_failed, or invalid_name for an invalid name."""
    try:
        yield
    except OSError as error:
        reason = f"cannot write the backup to {place}: {error.strerror}; no partial files remain"
        raise NatsFailure("invalid_name" if error.errno in _NAME_REFUSED else "write_failed", reason) from error


@contextlib.contextmanager
def _removing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise NatsFailure("write_failed", f"{path} cannot be removed: {error.strerror}") from error


# --- a directory --------------------------------------------------------------------------------------------------------


class DirectoryStore(BackupStore):
    """Backups in a directory."""

    def __init__(self, directory: Path, keys: Keys = NO_KEYS) -> None:
        self.local = self.directory = directory
        self.keys = keys

    def place(self, name: str = "") -> str:
        return str(self.directory / name)

    def below(self, name: str) -> DirectoryStore:
        return DirectoryStore(self.directory / name, self.keys)

    def with_keys(self, keys: Keys) -> DirectoryStore:
        return DirectoryStore(self.directory, keys)

    def require(self) -> None:
        if not self.directory.is_dir():
            raise NatsFailure("invalid_option", f"directory: {self.directory} is not a directory")

    def folders(self, prefix: str = "") -> Mapping[str, frozenset[str]]:
        pattern = f"{glob.escape(prefix)}*/{FILE}"
        paths = self.directory.glob(pattern) if prefix else _manifests_below(self.directory)
        found = sorted(path.parent for path in paths) if self.directory.is_dir() else []
        names = {path: str(path.relative_to(self.directory)) for path in found if not path.name.startswith(PREFIX)}
        return {"" if name == "." else name: self.files(name) for name in names.values()}

    def files(self, folder: str) -> frozenset[str]:
        path = self.directory / folder
        try:
            return frozenset(entry.name for entry in path.iterdir() if entry.is_file())
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return frozenset()

    def size(self, name: str) -> int:
        return (self.directory / name).stat().st_size

    def open(self, name: str) -> BinaryIO:
        path = self.directory / name
        # Opening a pipe would wait for its writer, and a device may have no end.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "Not a regular file", str(path))
        return open(descriptor, "rb")

    def discard(self, name: str) -> None:
        path = self.directory / name
        with _removing(path):
            path.unlink(missing_ok=True)

    def write(self, name: str, data: bytes) -> None:
        with written(self.directory):
            descriptor, temporary = tempfile.mkstemp(prefix=f".{name}-", dir=self.directory)
            try:
                with open(descriptor, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.rename(temporary, self.directory / name)
            except BaseException:
                os.unlink(temporary)
                raise

    @contextlib.contextmanager
    def staged(self, stream: str, taken: datetime) -> Iterator[Staging]:
        with staged_directory(self.directory, stream) as path:
            yield _StagedDirectory(self.directory, path.name, backup_name(stream, taken))

    def remove(self, folder: str) -> None:
        # After the renaming, the folder is no longer a backup, even if the removal is interrupted.
        path = self.directory / folder
        hidden = path.with_name(f"{REMOVED}{path.name}")
        with _removing(path):
            path.rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)

    def sweep(self) -> None:
        for hidden in self.directory.glob(f"*/{REMOVED}*"):
            shutil.rmtree(hidden, ignore_errors=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """The lock ends with the process. Raises NatsFailure locked or write_failed."""
        with written(self.directory):
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self.directory / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                holder = os.read(lock, 200).decode(errors="replace").strip()
                raise another_run(self.place(), holder) from error
            with written(self.directory):
                os.truncate(lock, 0)
                os.pwrite(lock, f"process {os.getpid()} since {utc_now()}\n".encode(), 0)
            yield
        finally:
            os.close(lock)


def _manifests_below(directory: Path) -> Iterator[Path]:
    """Yield each manifest below a directory and, for each unreadable directory, the path that its manifest would have."""
    unreadable: list[Path] = []

    def note(error: OSError) -> None:
        folder = Path(error.filename)
        if isinstance(error, PermissionError) and folder.name != "lost+found" and not folder.name.startswith("."):
            unreadable.append(folder)

    for folder, _folders, files in os.walk(directory, onerror=note):
        if FILE in files:
            yield Path(folder, FILE)
    yield from (folder / FILE for folder in unreadable)


def another_run(place: str, holder: str) -> NatsFailure:
    """Return the failure for a lock held by a different run."""
    return NatsFailure(
        "locked", f"another run is writing to {place} ({holder}): wait for it or stop it, then run this again"
    )


class _StagedDirectory(Staging):
    def __init__(self, directory: Path, folder: str, name: str) -> None:
        self._directory, self.folder, self._name = directory, folder, name

    @contextlib.contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        path = self._directory / self.folder / name
        with written(self._directory), open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())

    def publish(self, manifest: str) -> str:
        staging = self._directory / self.folder
        with self.create(FILE) as file:
            file.write(manifest.encode())
        with written(self._directory):
            to_disk(staging)
            os.rename(staging, self._directory / self._name)
            to_disk(self._directory)
        return self._name


@contextlib.contextmanager
def staged_directory(directory: Path, stream: str) -> Iterator[Path]:
    """Yield a locked directory for a new backup, which is removed unless it was renamed. Raises NatsFailure."""
    with written(directory):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_leftovers(directory, stream)
        path, lock = _locked(directory, stream)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _locked(directory: Path, stream: str) -> tuple[Path, int]:
    """Create a directory and return it with its lock."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{name_part(stream)}@", dir=directory))
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(path, os.O_RDONLY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if path.is_dir():
                return path, lock
            # A different run mistook the directory for a leftover and removed it before this run had locked it.
            os.close(lock)


def _remove_leftovers(directory: Path, stream: str) -> None:
    """Remove the leftovers of killed runs; those of a running one are locked."""
    for path in directory.glob(f"{PREFIX}{glob.escape(name_part(stream))}@*"):
        with contextlib.suppress(OSError):
            lock = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)
