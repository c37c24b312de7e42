# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the pipeline shares with the collection: pure functions, asked for when they are needed."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any


def module_util(name: str) -> Any:
    """Return a module of the collection's module_utils, such as cluster.causes."""
    whole = f"ansible_collections.natsops.jetstream.plugins.module_utils.{name}"
    try:
        return importlib.import_module(whole)
    except ModuleNotFoundError as missing:
        # In the package that the role builds it lies beside this one. Run from the collection's folder it is further up.
        if not str(missing.name).startswith("ansible_collections"):
            raise
        sys.path.append(str(Path(__file__).absolute().parents[7]))
        return importlib.import_module(whole)
