# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refuse the words that docs/glossary.md replaces by the field's own: `python tools/words.py`.

Looked at is what is published: code, task files, messages and documents that git knows. A part of an identifier counts as a word.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GLOSSARY = ROOT / "docs/glossary.md"
PUBLISHED = (
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    ".github",
    "docs",
    "extensions",
    "playbooks",
    "plugins",
    "roles",
)
#: Written from what is looked at anyway, or not ours.
GENERATED = ("docs/glossary.md", "docs/reference/")


def replaced_words(glossary: str) -> dict[str, str]:
    """Return the term for each word, from the rows `| concept | term | where | not |`."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in glossary.splitlines() if line.startswith("| ")
    ]
    return {word: row[1] for row in rows if len(row) == 4 for word in re.findall(r"`([^`]+)`", row[3])}


def found_in(text: str, terms: dict[str, str]) -> Iterator[tuple[int, str]]:
    """Return the line number and the word for each use of one of the words."""
    pattern = re.compile(rf"(?<![a-z])(?:{'|'.join(map(re.escape, terms))})(?![a-z])", re.IGNORECASE)
    for number, line in enumerate(text.splitlines(), 1):
        for match in pattern.finditer(line):
            yield number, match[0].lower()


def main() -> int:
    terms = replaced_words(GLOSSARY.read_text())
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *PUBLISHED],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\0")
    failed = False
    for name in sorted(filter(None, names)):
        if name.startswith(GENERATED) or not (ROOT / name).is_file():
            continue
        try:
            text = (ROOT / name).read_text()
        except UnicodeDecodeError:  # a picture
            continue
        for number, word in found_in(text, terms):
            print(f"{name}:{number}: '{word}': say {terms[word]} (docs/glossary.md)")
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
