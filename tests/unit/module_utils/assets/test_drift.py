# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drift: which assets of a plan differ from their documents, the file, and its problems."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.drift import (
    drift_content,
    drift_problems,
    is_drifting,
    read_drift,
)

CHECKED = "2026-11-29T02:00:00Z"
NOW = datetime(2026, 11, 29, 3, tzinfo=timezone.utc)
MARK = {"path": "metadata.managed-by", "from": None, "to": "natsops"}
AGE = {"path": "max_age", "from": "1d", "to": "7d"}


def row(state: str, *changes: dict[str, Any], document: str = "orders", **more: Any) -> dict[str, Any]:
    return {
        "account": "APP",
        "kind": "stream",
        "name": "S",
        "document": document,
        "state": state,
        "action": state if state in ("create", "change", "delete") else "",
        "changes": list(changes),
        "problems": [],
        "notes": [],
        **more,
    }


def plan(*rows: dict[str, Any], problems: tuple[str, ...] = ()) -> dict[str, Any]:
    documents = [{"id": name, "cluster": "C1", "account": "APP", "hash": ""} for name in ("orders", "billing")]
    return {"documents": documents, "assets": list(rows), "problems": list(problems)}


@pytest.mark.parametrize(
    ("asset", "drifting"),
    [
        (row("same"), False),
        (row("change", AGE), True),
        (row("change", MARK, AGE), True),
        (row("change", MARK), False),
        (row("create"), True),
        (row("delete"), True),
        (row("needs confirmation", AGE), True),
        (row("refused", problems=["its state is unknown: no leader"]), True),
        (row("foreign", notes=["it belongs to terraform"]), True),
        (row("foreign", document=""), False),
        (row("extra", document=""), False),
        (row("extra", notes=["it left the document, which never deletes"]), False),
    ],
)
def test_states_that_are_drift(asset: dict[str, Any], drifting: bool) -> None:
    assert is_drifting(asset) is drifting


def test_content_counts_and_describes_the_assets_of_each_document() -> None:
    refused = row("refused", problems=["it exists, but no document owns it"], name="T\nU")
    content = drift_content(
        plan(row("change", MARK, AGE), refused, row("same"), row("create", document="billing")), CHECKED
    )
    orders, billing = read_drift(json.dumps(content)).documents
    assert (orders.assets, orders.drifting, billing.assets, billing.drifting) == (3, 2, 1, 1)
    assert orders.differing == [
        "stream S: change: max_age: 1d → 7d",
        "stream T U: refused: it exists, but no document owns it",
    ]
    assert billing.reason == "different from the document: 1 of 1 asset: stream S: create"


def test_only_ten_assets_are_described() -> None:
    content = drift_content(plan(*(row("create", name=f"S{number}") for number in range(40))), CHECKED)
    orders = read_drift(json.dumps(content)).documents[0]
    assert (orders.drifting, len(orders.differing)) == (40, 10)


def test_problems_of_the_file() -> None:
    source = json.dumps(drift_content(plan(row("change", AGE)), CHECKED))
    (found,) = drift_problems(source, "drift.json", NOW)
    assert (found.code, found.subject) == ("drift", "document APP/orders")
    assert found.message == "different from the document: 1 of 1 asset: stream S: change: max_age: 1d → 7d"
    assert drift_problems(json.dumps(drift_content(plan(row("same")), CHECKED)), "drift.json", NOW) == []
    refused = json.dumps(drift_content(plan(row("same"), problems=("no room",)), CHECKED))
    assert [one.message for one in drift_problems(refused, "drift.json", NOW)] == ["no room", "no room"]


def test_missing_damaged_and_old_files_are_problems() -> None:
    source = json.dumps(drift_content(plan(row("same")), CHECKED))
    (old,) = drift_problems(source, "drift.json", NOW + timedelta(hours=26))
    assert old.code == "drift_unknown" and "1d3h ago" in old.message
    (missing,) = drift_problems(None, "drift.json", NOW)
    assert missing.message == "drift.json cannot be read: run the playbook assets_drift"
    for damaged in ("", "[]", "{}", '{"version": 2}', '{"version": 1, "checked": 5, "documents": [{}]}'):
        (found,) = drift_problems(damaged, "drift.json", NOW)
        assert found.code == "drift_unknown" and found.message.startswith("drift.json: "), damaged
