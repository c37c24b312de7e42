# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gold tables: reports, histories and forecasts of a day, from the silver tables and the gold tables of previous days."""

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
from jetstream_insights.gold.tables import GoldTable

#: The themes with their tables, in the order of docs/reference/insights_tables.md.
THEMES: dict[str, tuple[GoldTable, ...]] = {
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


#: Hourly aggregates: computed once from the silver rows of an hour, and combined by the tables of the day. `taken` gives the hour
#: of a row. Several hours are computed together, and no row may depend on another hour. `of`: `silver.NAME` and `settings`.
FACTS: dict[str, GoldTable] = {
    table.name: table
    for theme in (report, balance, leadership, health, consumers, divergence, changes, activity, accounts, capacity)
    for table in theme.FACTS
}


def made_before(table: GoldTable) -> list[str]:
    """Return the gold tables of the day that a table needs as input or to select the snapshots of its silver input."""
    layers = [source.partition(".")[::2] for source in table.of]
    telling = {"last": "moments", "edited": "states"}
    return [telling.get(layer, name) for layer, name in layers if layer in ("gold", *telling)]


def _in_order() -> dict[str, GoldTable]:
    """Return all tables, each after its inputs."""
    tables = {table.name: table for theme_tables in THEMES.values() for table in theme_tables}
    needs = {name: made_before(table) for name, table in tables.items()}
    return {name: tables[name] for name in TopologicalSorter(needs).static_order()}


TABLES: dict[str, GoldTable] = _in_order()
