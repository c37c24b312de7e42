# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The catalogue of a store, `catalogue.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..nats.failures import NatsFailure
from .catalogue import FILE, Catalogue, CatalogueError, backup_row, read_catalogue
from .files import Backup
from .store import BackupStore, utc_now


def load_catalogue(store: BackupStore) -> Catalogue:
    """Return the catalogue of a store, or an empty one if there is none. Raises NatsFailure damaged."""
    try:
        return read_catalogue(store.read(FILE))
    except FileNotFoundError:
        return Catalogue()
    except (OSError, UnicodeDecodeError, CatalogueError) as error:
        reason = (
            f"{store.place(FILE)}: {error}. Move it away: a new one is created from the backups, without the results "
            "of drills"
        )
        raise NatsFailure("damaged", reason) from error


def store_catalogue(store: BackupStore, catalogue: Catalogue, backups: Sequence[Backup]) -> Catalogue:
    """Write the catalogue of these backups atomically, and return it. Raises NatsFailure write_failed."""
    rows = tuple(backup_row(backup.folder, backup.manifest) for backup in backups)
    catalogue = replace(catalogue, written=utc_now(), backups=rows)
    store.write(FILE, catalogue.text().encode())
    return catalogue


def choice_rows(backups: Sequence[Backup], names: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Return the rows for `backup.selection.choose`. `names`: account identity → name, in addition to the names in the
    backups."""
    known = names or {}
    return [
        {
            "account": manifest.account,
            "account_name": known.get(manifest.account or "", manifest.account_name),
            "stream": manifest.stream,
            "taken": manifest.taken,
        }
        for manifest in (backup.manifest for backup in backups)
    ]
