# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds and reads the backups in a store."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import BinaryIO

from ..host.s2 import ArchiveError, PlainReader
from ..nats.failures import NatsFailure
from .archive import detect_format
from .encryption import decrypted
from .manifest import ARCHIVES, FILE, Manifest, ManifestError, read_manifest
from .selection import by_age
from .store import BackupStore, name_part


class Unreadable(NatsFailure):
    """A folder whose manifest cannot be read."""

    def __init__(self, folder: str, code: str, description: str) -> None:
        super().__init__(code, description)
        self.folder = folder


@dataclass(frozen=True)
class Backup:
    """One backup, and the folder of the store that contains it."""

    store: BackupStore
    folder: str
    manifest: Manifest

    @property
    def path(self) -> str:
        """Return the backup's location, for operators and results."""
        return self.store.place(self.folder)

    @property
    def archive(self) -> str:
        """Return the archive's location, for operators."""
        return self.store.place(self._archive)

    @property
    def _archive(self) -> str:
        return f"{self.folder}/{self.manifest.archive}" if self.folder else self.manifest.archive

    def size(self) -> int:
        """Return the size in bytes of the archive as stored. Raises OSError."""
        return self.store.size(self._archive)

    @contextlib.contextmanager
    def kept(self) -> Iterator[BinaryIO]:
        """Yield the archive as stored. Raises OSError."""
        file = self.store.open(self._archive)
        try:
            yield file
        finally:
            file.close()

    @contextlib.contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Yield the archive as the servers sent it. Raises OSError, ArchiveError, and NatsFailure no_identity if the
        archive is encrypted and its identity is missing."""
        with self.kept() as file:
            encryption = self.manifest.encryption
            if encryption is None:
                yield file
                return
            with decrypted(file, self.store.keys, encryption.get("recipients") or (), self.archive) as plain:
                yield plain


def read_backup(store: BackupStore, folder: str = "", files: frozenset[str] | None = None) -> Backup:
    """Return the backup in a folder. Raises Unreadable, with code invalid_option if there is no backup, otherwise
    damaged."""
    name = f"{folder}/{FILE}" if folder else FILE
    try:
        text = store.read(name)
        there = store.files(folder) if files is None else files
        return Backup(store, folder, read_manifest(text, [archive for archive in ARCHIVES if archive in there]))
    except OSError as error:
        reason = f"no backup in {store.place(folder)}: {error.strerror} ({FILE})"
        raise Unreadable(folder, "invalid_option", reason) from error
    except (ManifestError, UnicodeDecodeError) as error:
        raise Unreadable(folder, "damaged", f"{store.place(name)}: {error}") from error


def find_backups(store: BackupStore, stream: str | None = None) -> tuple[list[Backup], list[Unreadable]]:
    """Return the backups in a store, in the order of selection.by_age, and the backups that cannot be read. Raises
    NatsFailure."""
    found, failures = [], []
    for folder, files in store.folders().items():
        try:
            backup = read_backup(store, folder, files)
        except Unreadable as failure:
            failures.append(failure)
            continue
        if stream is None or backup.manifest.stream == stream:
            found.append(backup)
    now = datetime.now(timezone.utc)
    return sorted(found, key=lambda backup: (by_age(backup.manifest.taken, now), backup.folder)), failures


def newest_backup(store: BackupStore, stream: str, account: str | None) -> Backup | None:
    """Return the newest readable backup of a stream in a store, or None if there is none. Raises NatsFailure."""
    found = []
    for folder, files in store.folders(f"{name_part(stream)}@").items():
        try:
            backup = read_backup(store, folder, files)
        except Unreadable:
            continue
        if (backup.manifest.stream, backup.manifest.account) == (stream, account):
            found.append(backup)
    now = datetime.now(timezone.utc)
    return max(found, key=lambda backup: by_age(backup.manifest.taken, now), default=None)


def format_of_backup(backup: Backup) -> str:
    """Return the format of an archive. Raises NatsFailure damaged, or no_identity if the archive cannot be decrypted."""
    try:
        with backup.open() as file:
            return detect_format(PlainReader(file))[0]
    except (ArchiveError, OSError) as error:
        raise NatsFailure("damaged", f"{backup.archive}: {error}") from error


def require_opened(backup: Backup) -> None:
    """Raise NatsFailure no_identity for a backup that is encrypted and cannot be opened."""
    if backup.manifest.encryption is not None:
        format_of_backup(backup)
