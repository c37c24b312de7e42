# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file in the repository that a tool generates from a table. The file is committed, and a test compares it with the
table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def anchor(heading: str) -> str:
    """Return the anchor of a Markdown heading, as GitHub derives it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def write_or_check(file: Path, text: str, arguments: Sequence[str]) -> int:
    """Write the file. With --check, write nothing and return 1 if the file is stale."""
    if "--check" not in arguments:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        return 0
    stale = not file.is_file() or file.read_text() != text
    if stale:
        print(f"{file.relative_to(ROOT)} is stale: run `make docs` and commit it.")
    return int(stale)
