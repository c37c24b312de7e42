# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The expected structure of JSON documents from files and servers. Each shape is a function that accepts or rejects a
value. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Callable

from .times import parse_time

Shape = Callable[[Any], bool]


def read_json(source: str) -> Any:
    """Return the value of a JSON text. Raises ValueError, also if the text is nested too deeply."""
    try:
        return json.loads(source)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def misshapen(document: Any, shapes: Mapping[str, Shape]) -> list[str]:
    """Return which of these members of an object do not have the expected shape."""
    return [name for name, fits in shapes.items() if not fits(document.get(name))]


def text(value: Any) -> bool:
    return isinstance(value, str)


def encodable(value: str) -> bool:
    """Accept a text that can be encoded as UTF-8. A JSON escape may stand for half of a surrogate pair."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def whole(value: Any) -> bool:
    """Accept an integer of at most 64 bits."""
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 64


def count(value: Any) -> bool:
    return whole(value) and value >= 0


def flag(value: Any) -> bool:
    return isinstance(value, bool)


def seconds(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e12


def moment(value: Any) -> bool:
    """Accept a time or a day in ISO 8601."""
    try:
        parse_time(value)
    except (TypeError, ValueError):
        return False
    return True


def optional(shape: Shape) -> Shape:
    return lambda value: value is None or shape(value)


def list_shape(shape: Shape) -> Shape:
    return lambda value: isinstance(value, list) and all(map(shape, value))


def object_shape(shapes: Mapping[str, Shape], others: Shape = lambda _value: True) -> Shape:
    """Return the shape of an object with these members, and with further members if `others` is set."""

    def fits(value: Any) -> bool:
        return (
            isinstance(value, dict)
            and all(shape(value.get(name)) for name, shape in shapes.items())
            and all(others(member) for name, member in value.items() if name not in shapes)
        )

    return fits


def members(shape: Shape, *names: str) -> dict[str, Shape]:
    """Return members that all have the same shape."""
    return dict.fromkeys(names, shape)
