# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gold tables: reports, histories and forecasts of a day, from the silver tables and the gold ones of the days before."""

from __future__ import annotations

from graphlib import TopologicalSorter

from jetstream_insights.gold import (
    accounts,
    activity,
    balance,
    capacity,
    changes,
    consumers,
    divergence,
    health,
    leadership,
    report,
)
from jetstream_insights.gold.tables import Table

#: The themes with their tables, in the order of docs/reference/insights_tables.md.
THEMES: dict[str, tuple[Table, ...]] = {
    "Report": report.TABLES,
    "Balance": balance.TABLES,
    "Leadership": leadership.TABLES,
    "Health": health.TABLES,
    "Consumers": consumers.TABLES,
    "Divergence": divergence.TABLES,
    "Changes": changes.TABLES,
    "Activity": activity.TABLES,
    "Accounts": accounts.TABLES,
    "Capacity": capacity.TABLES,
}


def made_before(table: Table) -> list[str]:
    """Return the gold tables of the day that a table is made from."""
    return [source.partition(".")[2] for source in table.of if source.startswith("gold.")]


def _in_order() -> dict[str, Table]:
    """Return all tables, each after those that it is made from."""
    tables = {table.name: table for of_theme in THEMES.values() for table in of_theme}
    needs = {name: made_before(table) for name, table in tables.items()}
    return {name: tables[name] for name in TopologicalSorter(needs).static_order()}


TABLES: dict[str, Table] = _in_order()
