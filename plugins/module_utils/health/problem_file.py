# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes a list that is too long for a screen to a file: the problems behind a refusal, or every row of a result."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any

SCHEMA = 1


def problem_folder(directory: str | None) -> str:
    """Return the absolute path of the folder for such files. `directory`: None for `natsops` in Ansible's home
    directory."""
    home = os.environ.get("ANSIBLE_HOME") or "~/.ansible"
    return os.path.abspath(os.path.expanduser(directory or os.path.join(home, "natsops")))


def write_problem_file(directory: str | None, name: str, content: Mapping[str, Any]) -> str:
    """Write the content as JSON to a file that only its owner may read, replacing an existing one; return the path.
    Raises OSError.

    `directory`: as in `problem_folder`. `name` may contain characters that a file name may not.
    """
    path = _path(directory, f"{name}.json")
    write_json(path, {"schema": SCHEMA, **content})
    return path


def write_lines_file(directory: str | None, name: str, lines: Iterable[str]) -> str:
    """Write these lines as text, otherwise like `write_problem_file`."""
    path = _path(directory, f"{name}.txt")
    _write(path, "".join(f"{line}\n" for line in lines))
    return path


def write_json(path: str, content: Mapping[str, Any]) -> None:
    """Write the content as JSON to a file that only its owner may read, replacing an existing one. Raises OSError."""
    _write(path, f"{json.dumps(content, indent=1)}\n")


def _path(directory: str | None, name: str) -> str:
    folder = problem_folder(directory)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return os.path.join(folder, re.sub(r"[^A-Za-z0-9_.-]+", "_", name))


def _write(path: str, text: str) -> None:
    # mkstemp makes the file unreadable for others from the start. The renaming replaces the old file atomically, so
    # concurrent runs do not mix their content.
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".natsops-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
