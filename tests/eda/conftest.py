# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts ansible-rulebook, and ends it with its test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.rulebooks import Rulebook, Start


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start ansible-rulebook: start(rulebook, variables, *arguments)."""
    made: list[Rulebook] = []

    def starter(rulebook: str, variables: Mapping[str, Any], *arguments: str) -> Rulebook:
        made.append(Rulebook(tmp_path, rulebook, variables, *arguments))
        return made[-1]

    yield starter
    for rulebook in made:
        rulebook.kill()
