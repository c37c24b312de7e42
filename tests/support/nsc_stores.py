# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The store of an operator in the layout of nsc (nsc/cmd/store/store.go CreateStore, StoreRaw)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_store(
    directory: Path, operator: str, accounts: Mapping[str, tuple[str, Mapping[str, str]]], **info: Any
) -> Path:
    """Write the JWTs of an operator ACME and its accounts, each with the JWTs of its users by name; return the
    directory of the operator. `info`: values of the file .nsc that differ from those of a new store."""
    root = directory / "stores" / "ACME"
    described = {"managed": False, "name": "ACME", "kind": "operator", "version": "1", **info}
    files = {".nsc": json.dumps(described), "ACME.jwt": operator}
    for name, (token, users) in accounts.items():
        files[f"accounts/{name}/{name}.jwt"] = token
        files.update({f"accounts/{name}/users/{user}.jwt": own for user, own in users.items()})
    for path, content in files.items():
        (root / path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        (root / path).write_text(content)
    return root
