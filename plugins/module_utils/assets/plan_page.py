# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan of assets for people. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..screen import Page, fitting, listing, page, paragraphs, printable
from ..table import table_page
from .order import CHANGE, CREATE
from .plan import CONFIRM, EXTRA, FOREIGN, SAME, STATES


def summary(plan: Mapping[str, Any]) -> str:
    """Return the plan as one line."""
    states = [row["state"] for row in plan["assets"]]
    counts = [f"{states.count(state)} {state}" for state in STATES if state in states]
    lost = sum(one["count"] or 0 for row in plan["assets"] for one in row["costs"])
    found = ", ".join(counts) or "no assets"
    return f"{found}; loses {lost} messages or acknowledgements" if lost else found


def plan_page(plan: Mapping[str, Any]) -> Page:
    """Return a table of the assets that are not unchanged, then their changes, costs and problems."""
    return fitting(lambda most: _page(plan, most))


def _page(plan: Mapping[str, Any], most: int) -> Page:
    rows = [row for row in plan["assets"] if row["state"] not in (SAME, EXTRA)]
    found = []
    if plan["problems"]:
        found.append(page("The plan cannot be carried out:") + listing(plan["problems"], most=most))
    if rows:
        found.append(
            table_page(
                "Assets",
                ("account", "kind", "name", "state", "changes", "costs"),
                [
                    (row["account"], row["kind"], row["name"], _state(row), len(row["changes"]), len(row["costs"]))
                    for row in rows
                ],
                worst=[place for place, row in enumerate(rows) if row["state"] not in (CREATE, CHANGE, FOREIGN)],
                most=most,
            )
        )
        found.append(listing([line for row in rows for line in _details(row)], what="line", most=3 * most))
    if any(row["state"] == CONFIRM for row in rows):
        found.append(
            page(
                "To accept the costs, list the names in confirm, and deletions in confirm_delete (the playbook's variables "
                "are nats_cluster_assets_confirm and nats_cluster_assets_confirm_delete)."
            )
        )
    extra = [f"{row['kind']} {printable(row['name'])}" for row in plan["assets"] if row["state"] == EXTRA]
    if extra:
        found.append(page("No document declares these assets:") + listing(extra, most=most))
    return paragraphs(found) if found else page("Nothing changes.")


def _state(row: Mapping[str, Any]) -> str:
    """Return the state with the action that a confirmation would permit."""
    return f"{row['action']}, {CONFIRM}" if row["state"] == CONFIRM else str(row["state"])


def _details(row: Mapping[str, Any]) -> list[str]:
    changes = [] if row["action"] == CREATE else [change_text(one) for one in row["changes"]]
    lines = [*changes, *(one["message"] for one in row["costs"]), *row["problems"], *row["notes"]]
    return [f"{row['kind']} {row['name']}: {_state(row)}", *(f"  {printable(one)}" for one in lines)] if lines else []


def change_text(change: Mapping[str, Any]) -> str:
    """Return a change of a plan as one line."""
    old, new = (one if isinstance(one, str) and one else json.dumps(one) for one in (change["from"], change["to"]))
    return f"{change['path']}: {old} → {new}"
