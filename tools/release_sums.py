# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the checksums of the releases of nats-server, roles/nats_server/files/release_sums.json.

    python tools/release_sums.py CLONE      reads a clone of github.com/nats-io/nats-docker, whose history has them

The release page of nats-server has the same checksums next to the files; a second origin makes a replaced release visible.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "roles/nats_server/files/release_sums.json"
#: The oldest minor release from which the collection supports upgrades.
OLDEST = (2, 9, 0)
ARCHITECTURES = ("amd64", "arm64")
_VERSION = re.compile(r"^ENV NATS_SERVER[ =](\d+)\.(\d+)\.(\d+)$", re.MULTILINE)
_SUM = re.compile(r"natsArch='(\w+)'; sha256='([0-9a-f]{64})'")


def git(clone: str, *arguments: str) -> str:
    """Return the output of a git command."""
    return subprocess.run(["git", "-C", clone, *arguments], check=True, capture_output=True, text=True).stdout


def read_sums(clone: str) -> dict[str, dict[str, str]]:
    """Return the checksum of each architecture's tarball by version, oldest first. Raises ValueError if a tarball has
    two different checksums."""
    found: dict[tuple[int, ...], dict[str, str]] = {}
    files = set(re.findall(r"(\w{40})\t\S*alpine[^/]*/Dockerfile$", objects(clone), re.MULTILINE))
    for file in sorted(files):
        text = git(clone, "cat-file", "-p", file)
        match = _VERSION.search(text)
        version = tuple(map(int, match.groups())) if match else ()
        if version < OLDEST:
            continue
        for architecture, value in _SUM.findall(text):
            if architecture in ARCHITECTURES and found.setdefault(version, {}).setdefault(architecture, value) != value:
                raise ValueError(f"{version}, {architecture}: the history has two checksums")
    return {".".join(map(str, version)): dict(sorted(sums.items())) for version, sums in sorted(found.items())}


def objects(clone: str) -> str:
    """Return the trees of all commits, one line for each file."""
    return "".join(git(clone, "ls-tree", "-r", commit) for commit in git(clone, "log", "--format=%H").split())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    TARGET.write_text(json.dumps(read_sums(sys.argv[1]), indent=1) + "\n", encoding="utf-8")
