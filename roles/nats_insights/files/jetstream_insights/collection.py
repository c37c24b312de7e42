# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Access to the pure module_utils of the collection, wherever this package is installed."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

_COLLECTION = "ansible_collections.natsops.jetstream"
#: Levels from this file up to the parent directory of ansible_collections.
_ABOVE = 7


def find() -> None:
    """Make the collection importable. The package that the role builds contains it; otherwise it is in a parent directory."""
    above = Path(__file__).absolute().parents
    try:
        found = importlib.util.find_spec(_COLLECTION) is not None
    except ModuleNotFoundError:
        found = False
    if not found and len(above) > _ABOVE:
        sys.path.append(str(above[_ABOVE]))
        importlib.invalidate_caches()


def module_util(name: str) -> Any:
    """Return a module of the collection's module_utils, such as health.causes, which is imported on first use."""
    return importlib.import_module(f"{_COLLECTION}.plugins.module_utils.{name}")
