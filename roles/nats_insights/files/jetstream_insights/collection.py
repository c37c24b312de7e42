# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the pipeline shares with the collection: its pure module_utils, found wherever the package is."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

_COLLECTION = "ansible_collections.natsops.jetstream"
#: Folders from this one to that of ansible_collections.
_ABOVE = 7


def find() -> None:
    """Let Python find the collection. In the package that the role builds it lies beside this one, otherwise it is further up."""
    above = Path(__file__).absolute().parents
    try:
        found = importlib.util.find_spec(_COLLECTION) is not None
    except ModuleNotFoundError:
        found = False
    if not found and len(above) > _ABOVE:
        sys.path.append(str(above[_ABOVE]))
        importlib.invalidate_caches()


def module_util(name: str) -> Any:
    """Return a module of the collection's module_utils, such as cluster.causes, which is imported when it is needed."""
    return importlib.import_module(f"{_COLLECTION}.plugins.module_utils.{name}")
