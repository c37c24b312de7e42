# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds the artifact reproducibly: equal sources give equal bytes.

    python tools/artifact.py FOLDER

`ansible-galaxy collection build` lists files in the order of the file system and records their times and the time of
the build. In this artifact the lists are sorted, and every time is SOURCE_DATE_EPOCH (seconds since 1970), by default
the start of 1980.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
START_OF_1980 = 315532800


def as_json(value: Any) -> bytes:
    """Return the JSON that ansible-galaxy would write."""
    return json.dumps(value, indent=True).encode()


def normalised(artifact: Path, when: int) -> bytes:
    """Return the artifact with its lists and members sorted and all times set to `when`, in seconds since 1970."""
    with tarfile.open(artifact) as source:
        members = {member.name: member for member in source.getmembers()}
        contents = {
            name: file.read() for name in members if members[name].isfile() and (file := source.extractfile(name))
        }
    listed = json.loads(contents["FILES.json"])
    listed["files"].sort(key=lambda entry: entry["name"])
    contents["FILES.json"] = as_json(listed)
    manifest = json.loads(contents["MANIFEST.json"])
    manifest["file_manifest_file"]["chksum_sha256"] = hashlib.sha256(contents["FILES.json"]).hexdigest()
    contents["MANIFEST.json"] = as_json(manifest)

    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as target:
        # The manifest comes first, where readers expect it.
        for name in sorted(members, key=lambda name: (name != "MANIFEST.json", name != "FILES.json", name)):
            member = members[name]
            member.mtime = when
            member.pax_headers = {}
            if name in contents:
                member.size = len(contents[name])
            target.addfile(member, io.BytesIO(contents[name]) if name in contents else None)
    return packed.getvalue()


def main(folder: Path) -> int:
    """Build the artifact in this folder, and print its path."""
    when = int(os.environ.get("SOURCE_DATE_EPOCH", START_OF_1980))
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        subprocess.run(
            [Path(sys.executable).with_name("ansible-galaxy"), "collection", "build", "--output-path", work],
            cwd=ROOT,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        (built,) = Path(work).glob("*.tar.gz")
        (folder / built.name).write_bytes(normalised(built, when))
    print(folder / built.name)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
