# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The marks of documents in the metadata of their assets. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..documents import MANAGER, MARK_DOCUMENT, MARK_HASH, MARK_MANAGER, MARKS, unmarked
from .config import Config, ConfigKey, shown
from .document import AssetsDocument


def content_hash(content: Any) -> str:
    """Return the hash of a value."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def marks(document: AssetsDocument, fields: Sequence[ConfigKey], config: Config) -> dict[str, str]:
    """Return the metadata of an asset that a document owns."""
    content = {**shown(fields, config), "metadata": unmarked(config["metadata"])}
    return {MARK_MANAGER: MANAGER, MARK_DOCUMENT: document.id, MARK_HASH: content_hash(content)[:16]}


def own_changes(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the changes of a plan's row, except those that only mark the asset as owned by its document."""
    marked = [f"metadata.{mark}" for mark in MARKS]
    return [change for change in row["changes"] if change["path"] not in marked]


def only_marks(row: Mapping[str, Any]) -> bool:
    """Return whether the planned change of a row only marks the asset as owned by its document."""
    return row["state"] == "change" and not own_changes(row)
