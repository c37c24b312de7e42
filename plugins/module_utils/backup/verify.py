# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verifies the archive of a backup against its manifest."""

from __future__ import annotations

from ..host.s2 import ArchiveError
from ..nats.failures import NatsFailure
from .archive import ENTRIES
from .archive_contents import ArchiveContents, read_contents, sha256_of
from .files import Backup
from .manifest import Manifest, archive_differences

#: How an archive is verified: its size and SHA-256 against the manifest; its entire content; and the checksum of each
#: message as well.
CHECKSUM, CONTENTS, RECORDS = "checksum", "contents", "records"
LEVELS = (CHECKSUM, CONTENTS, RECORDS)


def verify(backup: Backup, level: str) -> ArchiveContents | None:
    """Verify an archive and return its contents, or None at the level `checksum`. Raises NatsFailure damaged."""
    manifest = backup.manifest
    try:
        have = backup.size()
        if manifest.size is not None and have != manifest.size:
            raise ArchiveError(f"it has {have} bytes instead of {manifest.size}")
        with backup.kept() as file:
            if manifest.sha256 is not None and sha256_of(file) != manifest.sha256:
                raise ArchiveError("its SHA-256 does not match the backup")
        if level == CHECKSUM:
            return None
        contents = read_contents(backup.open, level == RECORDS)
        if contents.config is not None and contents.config.get("name") != manifest.stream:
            raise ArchiveError(f"it contains stream {contents.config.get('name')}, not {manifest.stream}")
        if manifest.contents is None:
            _require_plausible(manifest, contents)
        elif archive_differences(manifest, contents):
            raise ArchiveError("; ".join(archive_differences(manifest, contents)))
    except (ArchiveError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise NatsFailure("damaged", f"{backup.archive}: {reason}") from error
    return contents


def _require_plausible(manifest: Manifest, contents: ArchiveContents) -> None:
    """Raise ArchiveError unless the archive matches the state that the server announced for it."""
    state = manifest.state
    first, last = state.get("first_seq") or 0, state.get("last_seq") or 0
    # Messages may have been added or removed since; for an archive of 2.15, the nats CLI records the state at its
    # start.
    exact = contents.format == ENTRIES and manifest.taken is None
    # An inexact archive still contains removed messages, such as old values of a key; the server drops them during a
    # restore.
    early = contents.exact and contents.first_seq < first
    if contents.last_seq < last or early or (exact and contents.last_seq != last):
        raise ArchiveError(
            f"it has messages {contents.first_seq} to {contents.last_seq}, but the backup has {first} to {last}"
        )
