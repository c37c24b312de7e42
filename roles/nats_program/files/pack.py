# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packs Python files into a ZIP file from which Python can import; equal files give equal bytes.

    python pack.py OUT FOLDER=PREFIX [FILE=NAME …]

All files of a FOLDER, including its subfolders, are added below PREFIX; a FILE is added as NAME. With __main__.py as
NAME, Python can run the ZIP.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path, PurePosixPath


def pack(target: Path, sources: dict[str, str]) -> None:
    """Write the ZIP file, without compiled and hidden files."""
    found: dict[str, Path] = {}
    for source, name in sources.items():
        path = Path(source)
        inside = [path] if path.is_file() else [item for item in path.rglob("*") if item.is_file()]
        for file in inside:
            parts = file.relative_to(path).parts
            if not any(part.startswith(".") or part == "__pycache__" for part in parts):
                found["/".join((name, *parts))] = file
    # Before 3.13, Python finds a package without __init__.py only if its folder has a separate entry.
    folders = {f"{folder}/" for name in found for folder in PurePosixPath(name).parents if folder.name}
    with zipfile.ZipFile(target, "w") as zipped:
        for name in sorted((*found, *folders)):
            content = found[name].read_bytes() if name in found else b""
            zipped.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    pack(Path(sys.argv[1]), dict(argument.split("=", 1) for argument in sys.argv[2:]))
