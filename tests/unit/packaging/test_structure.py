# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The structure of the code stays within the limits of tools/structure.py."""

from __future__ import annotations

import structure
from support.documents import CHECKOUT


def test_every_measure_is_within_its_limit() -> None:
    beyond = [f"{one.name}: {one.value}, limit {one.limit}" for one in structure.measures() if one.value > one.limit]
    assert beyond == []


def test_architecture_lists_the_measures() -> None:
    text = (CHECKOUT / "docs/internals/architecture.md").read_text()
    for one in structure.measures():
        assert f"\n| {one.name} | " in text, one.name
