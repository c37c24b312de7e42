# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fetch the chart library of report.html from npm: `python tools/vendor.py` (`make vendor`).

Only the version and the integrity value in this file are accepted. To use a newer version, enter it here with the
output of `npm view uplot@VERSION dist.integrity`.
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE, VERSION = "uplot", "1.6.32"
INTEGRITY = "sha512-KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw=="
#: The destination of the package's files; the page contains all three.
FOLDER = ROOT / "roles/nats_insights/files/jetstream_insights/report/uplot"
FILES = {
    "package/dist/uPlot.iife.min.js": "uPlot.iife.min.js",
    "package/dist/uPlot.min.css": "uPlot.min.css",
    "package/LICENSE": "LICENSE",
}


def unpacked(archive: Path, integrity: str) -> dict[str, bytes]:
    """Return the needed files of a package by name. Raises ValueError if the package does not match its integrity
    value."""
    method, _dash, digest = integrity.partition("-")
    found = base64.b64encode(hashlib.new(method, archive.read_bytes()).digest()).decode()
    if found != digest:
        raise ValueError(f"{archive.name} is not the reviewed package: {method}-{found}, not {integrity}")
    with tarfile.open(archive) as package:
        members = {name: package.extractfile(member) for member, name in FILES.items()}
        return {name: member.read() for name, member in members.items() if member is not None}


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["npm", "pack", "--silent", f"{PACKAGE}@{VERSION}"], cwd=folder, check=True, stdout=subprocess.DEVNULL
        )
        try:
            files = unpacked(Path(folder) / f"{PACKAGE}-{VERSION}.tgz", INTEGRITY)
        except ValueError as error:
            print(error, file=sys.stderr)
            return 1
    for name, content in files.items():
        (FOLDER / name).write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
