# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes replies that no server sends, by changing real replies."""

from __future__ import annotations

import random
from typing import Any

WRONG = [None, "x", -1, float("nan"), [], [7], {}, {"x": 1}, 5, True]


def mutated(value: Any, chance: random.Random, place: list[int]) -> Any:
    """Return a copy of the reply in which leaf number `place` has a different value."""
    place[0] -= 1
    if place[0] < 0 and (not isinstance(value, (dict, list)) or place[0] == -1):
        place[0] = 1 << 30
        return chance.choice(WRONG)
    if isinstance(value, dict):
        return {key: mutated(item, chance, place) for key, item in value.items()}
    return [mutated(item, chance, place) for item in value] if isinstance(value, list) else value
