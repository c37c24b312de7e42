# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tables of reports, and the result of nats_cluster_info from which they are made. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..backup.catalogue import Catalogue

Row = dict[str, Any]


@dataclass(frozen=True)
class ReportColumn:
    """A column: the key of its values, its heading, and how a value is written (text, number, bytes, seconds, percent,
    bar). A `grouped` value is shown only if it differs from the row above."""

    key: str
    title: str
    unit: str = "text"
    grouped: bool = False

    def as_dict(self) -> dict[str, Any]:
        return {"key": self.key, "title": self.title, "unit": self.unit, "grouped": self.grouped}


@dataclass(frozen=True)
class ReportTable:
    """One table as data. Sizes are bytes, times seconds. `totals` are rows with a label in the first column, and
    `notes` are sentences below the table."""

    name: str
    title: str
    columns: Sequence[ReportColumn]
    rows: Sequence[Row]
    totals: Sequence[Row] = ()
    notes: Sequence[str] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "columns": [column.as_dict() for column in self.columns],
            "rows": list(self.rows),
            "totals": list(self.totals),
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class ReportSource:
    """The filtered input of the reports. `absent`: expected servers that did not respond. `endpoints`: server → its row
    of nats_server_info; `requested`: the requested endpoints. `catalogue`: the catalogue of the backups, None if it was
    not read. `route_compression`: the configuration of the servers."""

    info: Mapping[str, Any]
    servers: Sequence[Mapping[str, Any]]
    streams: Sequence[Mapping[str, Any]]
    absent: Sequence[str] = ()
    endpoints: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    requested: frozenset[str] = frozenset()
    account: str | None = None
    catalogue: Catalogue | None = None
    route_compression: str | Mapping[str, Any] | None = None

    @property
    def meta(self) -> Mapping[str, Any]:
        return self.info.get("meta") or {}

    @property
    def account_names(self) -> dict[str, str]:
        """Return account identity → display name for accounts with streams; other endpoints have only the identity."""
        return {stream["account"]: stream["account_name"] for stream in self.info.get("streams") or ()}

    @property
    def consumers(self) -> Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        """Yield each consumer with its stream."""
        for stream in self.streams:
            for consumer in stream["consumers"]:
                yield stream, consumer

    def read(self, endpoint: str) -> Iterable[tuple[Mapping[str, Any], Mapping[str, Any] | None]]:
        """Yield each server with its reply to one endpoint, or None if it has not replied.

        Raises ValueError if nats_server_info was not called with this endpoint."""
        if endpoint not in self.requested and self.servers:
            raise ValueError(
                f"{endpoint} is missing: server_info must be a result of nats_server_info with this endpoint"
            )
        for server in self.servers:
            yield server, self.endpoints.get(server["name"], {}).get(endpoint)

    def absent_rows(self, key: str = "server") -> list[Row]:
        return [{key: name, "answers": False} for name in self.absent]


def sums(rows: Iterable[Mapping[str, Any]], *keys: str) -> dict[str, Any]:
    kept = list(rows)
    return {key: sum(row.get(key) or 0 for row in kept) for key in keys}


def grouped(rows: Iterable[Mapping[str, Any]], key: str) -> dict[str, list[Mapping[str, Any]]]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row[key], []).append(row)
    return groups


def address(connection: Mapping[str, Any]) -> str:
    host = str(connection.get("ip", ""))
    return f"[{host}]:{connection.get('port', '')}" if ":" in host else f"{host}:{connection.get('port', '')}"


def silent_notes(source: ReportSource, endpoint: str) -> list[str]:
    names = [server["name"] for server, answer in source.read(endpoint) if answer is None]
    return [f"WARNING: {', '.join(names)} did not return {endpoint} and are not counted."] if names else []
