# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The changed keys of a configuration as rows of a plan, in the words of the document. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..units import exact_duration, exact_size
from . import config as rules


def change_rows(fields: Sequence[rules.ConfigKey], old: rules.Config | None, new: rules.Config) -> list[dict[str, Any]]:
    """Return the changed fields with their old and new values, in the words of a document."""
    by_name = {one.name: one for one in fields}
    found = []
    for key, value in new.items():
        name = "replicas" if key == "num_replicas" else key
        if key == "metadata":
            before = (old or {}).get(key) or {}
            found += [
                {"path": f"metadata.{one}", "from": before.get(one), "to": value.get(one)}
                for one in sorted({*before, *value})
                if before.get(one) != value.get(one)
            ]
            continue
        item = by_name[key]
        found.append(
            {"path": name, "from": None if old is None else in_words(item, old[key]), "to": in_words(item, value)}
        )
    return found


def in_words(item: rules.ConfigKey, value: Any) -> Any:
    """Return a value in normal form as a document states it."""
    if item.kind == "size":
        return exact_size(value) if value > 0 else value
    if item.kind == "duration":
        return exact_duration(value) if value > 0 else value
    if item.kind == "durations":
        return [exact_duration(one) for one in value]
    if item.kind == "percent" and value:
        return f"{value}%"
    if item.kind == "objects":
        return [in_words(replace(item, kind="object"), one) for one in value]
    if item.kind == "object" and value:
        return {key: in_words(part, value[key]) for part in item.fields for key in (part.name,) if key in value}
    return value
