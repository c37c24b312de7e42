# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The version of the wheel, which is that of the collection; hatchling reads it (pyproject.toml)."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def collection_version(root: Path) -> str:
    """Return the version of the collection in this folder: a checkout has galaxy.yml, an installation MANIFEST.json."""
    manifest = root / "MANIFEST.json"
    if manifest.is_file():
        return str(json.loads(manifest.read_text(encoding="utf-8"))["collection_info"]["version"])
    return re.findall(r"^version: (\S+)$", (root / "galaxy.yml").read_text(encoding="utf-8"), re.MULTILINE)[0]


__version__ = collection_version(ROOT)
