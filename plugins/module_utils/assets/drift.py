# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drift: assets that differ from their documents. Pure.

The playbook assets_drift compares them and writes the result to a file; the exporter, the event source nats_health and
the snapshots read that file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..problem import WARNING, Problem
from ..screen import cut, some_names
from ..shapes import count, list_shape, members, misshapen, moment, object_shape, read_json, text
from ..thresholds import COMPARED_HOURS
from ..times import parse_time
from ..units import counted, human_seconds
from .ownership import only_marks, own_changes
from .plan import EXTRA, SAME
from .plan_page import change_text

#: The format version of the file.
VERSION = 1
#: Largest number of assets that a row describes.
_DESCRIBED = 10

_SHAPE = {
    "checked": moment,
    "documents": list_shape(
        object_shape(
            {
                **members(text, "document", "cluster", "account", "problem"),
                **members(count, "assets", "drifting"),
                "differing": list_shape(text),
            }
        )
    ),
}


@dataclass(frozen=True)
class DocumentDrift:
    """The comparison of one document. `assets`: the number of declared assets; `drifting`: of those that differ;
    `differing`: some of them, each with its difference. `problem`: why the plan cannot be carried out, otherwise empty."""

    document: str
    cluster: str
    account: str
    problem: str
    assets: int
    drifting: int
    differing: Sequence[str]

    @property
    def label(self) -> str:
        """Return the display name of the document."""
        return f"{self.account}/{self.document}"

    @property
    def reason(self) -> str:
        """Return the difference between the document and its assets, "" if there is none."""
        if self.drifting:
            names = some_names(self.differing, 3, "; ")
            return f"different from the document: {self.drifting} of {counted(self.assets, 'asset')}: {names}"
        return self.problem


@dataclass(frozen=True)
class Drift:
    """The comparison of documents with their assets. `checked`: the time of the comparison."""

    checked: datetime
    documents: Sequence[DocumentDrift]


def is_drifting(row: Mapping[str, Any]) -> bool:
    """Return whether an asset of a plan differs from its document. Assets that no document declares do not count, nor do
    those that only lack the marks of their document."""
    return bool(row["document"]) and row["state"] not in (SAME, EXTRA) and not only_marks(row)


def drift_content(plan: Mapping[str, Any], checked: str) -> dict[str, Any]:
    """Return the content of the file for a plan. `checked`: the time of the plan."""
    problem = cut("; ".join(plan["problems"]), 400)
    documents = []
    for document in plan["documents"]:
        key = (document["account"], document["id"])
        rows = [row for row in plan["assets"] if (row["account"], row["document"]) == key]
        drifting = [row for row in rows if is_drifting(row)]
        documents.append(
            {
                "document": document["id"],
                "cluster": document["cluster"],
                "account": document["account"],
                "problem": problem,
                "assets": len(rows),
                "drifting": len(drifting),
                "differing": [_difference(row) for row in drifting[:_DESCRIBED]],
            }
        )
    return {"version": VERSION, "checked": checked, "documents": documents}


def _difference(row: Mapping[str, Any]) -> str:
    changes = [change_text(one) for one in own_changes(row)] if row["action"] == "change" else []
    reasons = row["problems"] or changes or row["notes"]
    return cut(": ".join([f"{row['kind']} {row['name']}", row["state"], *filter(None, [", ".join(reasons)])]), 200)


def read_drift(source: str) -> Drift:
    """Return the content of the file. Raises ValueError."""
    found = read_json(source)
    if not isinstance(found, Mapping) or found.get("version") != VERSION:
        raise ValueError(f"it is not a file of assets_drift in version {VERSION}")
    wrong = misshapen(found, _SHAPE)
    if wrong:
        raise ValueError(f"{', '.join(wrong)}: not valid")
    names = DocumentDrift.__dataclass_fields__
    return Drift(
        parse_time(found["checked"]),
        [DocumentDrift(**{name: one[name] for name in names}) for one in found["documents"]],
    )


def drift_problems(
    source: str | None, path: str, now: datetime, max_age: float = COMPARED_HOURS * 3600.0
) -> list[Problem]:
    """Return the documents whose assets differ, and whether the comparison is missing, unreadable or too old. `source`:
    the text of the file at `path`, None if it cannot be read; `max_age`: in seconds."""
    if source is None:
        return [Problem("drift_unknown", WARNING, "assets", f"{path} cannot be read: run the playbook assets_drift")]
    try:
        found = read_drift(source)
    except ValueError as error:
        return [Problem("drift_unknown", WARNING, "assets", f"{path}: {error}; run the playbook assets_drift")]
    age = (now - found.checked).total_seconds()
    problems = [Problem("drift", WARNING, f"document {one.label}", one.reason) for one in found.documents if one.reason]
    if age > max_age:
        message = (
            f"assets were last compared with their documents {human_seconds(age)} ago: run the playbook assets_drift"
        )
        problems.append(Problem("drift_unknown", WARNING, "assets", message))
    return problems
