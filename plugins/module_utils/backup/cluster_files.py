# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster's own files in a backup store, stored next to the streams: `cluster@<time>.json`, or `.json.age` if
encrypted."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, Optional

from ..nats.failures import NatsFailure
from .archive_contents import sha256_of
from .catalogue import Catalogue
from .encryption import METHOD, encrypted
from .retention import Retention, expired
from .selection import by_age, next_taken, parse_taken
from .store import BackupStore, backup_name

SCHEMA, VERSION = "natsops.cluster_files", 1
_NAME = re.compile(r"cluster@.*\.json(\.age)?")

Row = Mapping[str, Any]


def saved_files(catalogue: Catalogue, store: BackupStore) -> list[Row]:
    """Return the rows of the catalogue whose files exist, oldest first."""
    there = {name for name in store.files("") if _NAME.fullmatch(name)}
    now = datetime.now(timezone.utc)
    return sorted((row for row in catalogue.cluster if row["path"] in there), key=lambda row: by_age(row["taken"], now))


def save_files(store: BackupStore, files: Mapping[str, str], kept: list[Row], check_mode: bool) -> Optional[Row]:
    """Save the cluster's files unless they equal those saved last, and return the catalogue's row. Raises NatsFailure."""
    digest = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
    encryption = {"method": METHOD, "recipients": list(store.keys.recipients)} if store.keys.recipients else None
    if kept and (kept[-1]["digest"], kept[-1]["encryption"]) == (digest, encryption) and _whole(store, kept[-1]):
        return None
    taken = next_taken(kept[-1]["taken"] if kept else None, datetime.now(timezone.utc))
    text = taken.isoformat().replace("+00:00", "Z")
    document = {"schema": SCHEMA, "version": VERSION, "taken": text, "files": dict(files)}
    sealed = io.BytesIO()
    with encrypted(sealed, store.keys) as file:
        file.write((json.dumps(document, indent=2, sort_keys=True) + "\n").encode())
    name = f"{backup_name('cluster', taken)}.json{'.age' if encryption else ''}"
    row = {
        "path": name,
        "taken": text,
        "size": len(sealed.getvalue()),
        "sha256": hashlib.sha256(sealed.getvalue()).hexdigest(),
        "digest": digest,
        "encryption": encryption,
        "files": sorted(files),
    }
    if not check_mode:
        store.write(name, sealed.getvalue())
        if not _whole(store, row):
            raise NatsFailure("damaged", f"{store.place(name)}: its content has changed since it was written")
    return row


def _whole(store: BackupStore, row: Row) -> bool:
    """Return whether a file is unchanged since it was written."""
    try:
        with store.open(str(row["path"])) as file:
            return sha256_of(file) == row["sha256"]
    except FileNotFoundError:
        return False


def expired_files(rows: list[Row], keep: Retention, saved: Row | None) -> list[Row]:
    """Return the rows whose files have expired. `saved`: the row that this run has added."""
    taken = [parse_taken(str(row["taken"])) for row in rows]
    own = [place for place, row in enumerate(rows) if row is saved]
    return [rows[place] for place in expired(taken, keep, datetime.now(timezone.utc), own)]
