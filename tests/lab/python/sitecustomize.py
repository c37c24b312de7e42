# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps what Python compiles out of archives.

An Ansible module arrives as an archive with all that it imports, and to compile that anew takes up to half of its processor
time. Python imports this file at its start where it finds it: in the tests' controllers by PYTHONPATH (see the Makefile), on
the hosts of the lab by a .pth file. What is kept is found by the version of Python and the whole source.
"""

from __future__ import annotations

import _imp
import marshal
import os
import sys
import zipimport
from types import CodeType

_KEPT = f"/var/tmp/natsops-compiled-{os.getuid()}/{sys.implementation.cache_tag}"
_compile = zipimport._compile_source  # type: ignore[attr-defined]


def _compile_once(path: str, source: bytes) -> CodeType:
    """Return the code of a source that stands at this path of an archive."""
    import hashlib

    kept = f"{_KEPT}/{hashlib.sha256(source).hexdigest()}"
    try:
        with open(kept, "rb") as found:
            code: CodeType = marshal.load(found)
        _imp._fix_co_filename(code, path)  # type: ignore[attr-defined]
        return code
    except (OSError, EOFError, ValueError, TypeError):
        code = _compile(path, source)
    try:
        os.makedirs(_KEPT, 0o700, exist_ok=True)
        with open(f"{kept}.{os.getpid()}", "wb") as file:
            marshal.dump(code, file)
        os.rename(file.name, kept)
    except OSError:
        pass  # a full or a read-only disk, which tests make
    return code


zipimport._compile_source = _compile_once  # type: ignore[attr-defined]
