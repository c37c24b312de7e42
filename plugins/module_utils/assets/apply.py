# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether an approved plan of assets still applies, which of its steps remain, and which of them may start. Pure.

A plan that was carried out in part still applies: its remaining changes are a part of the approved ones."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from ..screen import Page, fitting, listed, listing, page, paragraphs
from ..shapes import list_shape, members, misshapen, object_shape, optional, text
from ..table import table_page
from ..times import parse_time
from ..units import counted
from .change_rules import DATA_LOSS
from .order import CHANGE, CONSUMER, DELETE, ENTRY, stream_name
from .plan import SAME, VERSION

#: Account, kind and name of an asset.
Key = tuple[str, str, str]
Row = Mapping[str, Any]

DONE, FAILED, SKIPPED = "done", "failed", "skipped"
#: A stream with messages is deleted only if it has a backup that is not older.
BACKUP_AGE = timedelta(hours=24)

_KEY = members(text, "account", "kind", "name", "action")
_PLAN = {
    "problems": list_shape(text),
    "documents": list_shape(object_shape(members(text, "id", "hash"))),
    "steps": list_shape(object_shape(_KEY)),
    "assets": list_shape(
        object_shape(
            {
                **_KEY,
                **members(list_shape(object_shape({})), "changes", "costs"),
                "state": text,
                "revision": optional(text),
            }
        )
    ),
}


@dataclass(frozen=True)
class AssetsApproval:
    """The approved plan, as `nats_assets_plan` returned it; the names of the streams and buckets that may be deleted
    with their messages; and the names of those that need no recent backup."""

    plan: Mapping[str, Any]
    deletions: Collection[str] = ()
    without_backup: Collection[str] = ()

    def names(self, account: str) -> tuple[set[str], set[str]]:
        """Return the names of the account's assets whose changes, and whose deletions, the plan accepts."""
        mine = [step for step in self.plan["steps"] if step["account"] == account]
        deleted = {step["name"] for step in mine if step["action"] == DELETE}
        return {step["name"] for step in mine} - deleted, deleted


def plan_problems(plan: Mapping[str, Any]) -> list[str]:
    """Return why a value is not a plan that can be carried out."""
    if plan.get("version") != VERSION:
        return [f"the plan has version {str(plan.get('version'))[:20]}, and this collection needs {VERSION}"]
    wrong = misshapen(plan, _PLAN)
    return [f"the plan has no valid {', '.join(wrong)}"] if wrong else list(plan["problems"])


def stale_reasons(plan: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    """Return why an approved plan no longer applies: a document, an asset or a value has changed since, or a change now
    has a cost that the plan does not list. `current`: the plan of the present, which accepts the same names."""
    if plan["documents"] != current["documents"]:
        before = {one["id"]: one for one in plan["documents"]}
        differing = [one["id"] for one in current["documents"] if before.get(one["id"]) != one]
        gone = sorted(before.keys() - {one["id"] for one in current["documents"]})
        return [f"document {name} has changed" for name in differing] + [
            f"document {name} is missing" for name in gone
        ] or ["the documents are in a different order"]
    present = {_key(row): row for row in current["assets"]}
    approved = {_key(row): row for row in plan["assets"]}
    accepted = {_key(step) for step in plan["steps"]}
    found = [*current["problems"]]
    for key in [_key(row) for row in plan["assets"] if _key(row) in accepted]:
        reason = _stale(approved[key], present.get(key))
        found += [f"{_label(key)}: {reason}"] if reason else []
    for key, row in present.items():
        listed = approved.get(key)
        if row["action"] and key not in accepted and (listed is None or listed["action"] != row["action"]):
            found.append(f"{_label(key)}: the plan does not list the action {row['action']}")
    return found


def _stale(approved: Row, row: Row | None) -> str:
    """Return why an accepted action no longer applies, or an empty text, also if it has been done."""
    if row is None:
        return "" if approved["action"] == DELETE else "it is missing"
    if row["problems"]:
        return "; ".join(row["problems"])
    if not row["action"]:
        return "" if row["state"] == SAME else f"it is now {row['state']}"
    if row["action"] != approved["action"]:
        return f"the action is now {row['action']} instead of {approved['action']}"
    planned = {_text(one) for one in approved["changes"]}
    remaining = {_text(one) for one in row["changes"]}
    if not remaining <= planned or (remaining == planned and row["revision"] != approved["revision"]):
        return "it has changed since"
    if remaining != planned and (row["action"] != CHANGE or row["kind"] == ENTRY):
        return "it has changed since"
    known = {_cost(one) for one in approved["costs"]}
    new = [one["message"] for one in row["costs"] if _cost(one) not in known]
    if new:
        return f"the plan does not list that {'; '.join(new)}"
    if row["action"] == DELETE and row["kind"] != CONSUMER and _lost(row) > _lost(approved):
        return f"it has {counted(_lost(row), 'message')}, and the plan lists {_lost(approved)}"
    return ""


def _cost(cost: Row) -> tuple[str, str]:
    """Return the kind of a cost and the setting that causes it, without the numbers."""
    head, colon, _rest = str(cost.get("message")).partition(":")
    return str(cost.get("kind")), head if colon else ""


def _lost(row: Row) -> int:
    return sum(one.get("count") or 0 for one in row["costs"] if one.get("kind") == DATA_LOSS)


def remaining_steps(plan: Mapping[str, Any], current: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the accepted steps that have not been done, in their order, each with its changes and costs."""
    rows = {_key(row): row for row in current["assets"]}
    accepted = {_key(step) for step in plan["steps"]}
    return [
        {**step, **{part: rows[_key(step)][part] for part in ("changes", "costs")}}
        for step in current["steps"]
        if _key(step) in accepted
    ]


def deletion_refusals(
    steps: Iterable[Row],
    messages: Mapping[tuple[str, str], int],
    backups: Mapping[tuple[str, str], str],
    approval: AssetsApproval,
    now: datetime,
) -> list[str]:
    """Return why streams with messages must not be deleted. `messages`: by account and stream; `backups`: likewise, the
    time when the newest backup was last found to match the stream."""
    found = []
    for step in steps:
        stream = (step["account"], stream_name(step["kind"], step["name"]))
        count = messages.get(stream, 0)
        if step["action"] != DELETE or step["kind"] in (CONSUMER, ENTRY) or not count:
            continue
        label, name = _label(_key(step)), step["name"]
        if name not in approval.deletions:
            found.append(f"{label} has {counted(count, 'message')}: list {name} in confirm_delete")
        if name in approval.without_backup:
            continue
        saved = backups.get(stream)
        if saved is None:
            found.append(f"{label} has no backup: back it up, or list {name} in confirm_without_backup")
        elif now - parse_time(saved) > BACKUP_AGE:
            found.append(
                f"{label}: the last backup, of {saved}, is older than {BACKUP_AGE.total_seconds() / 3600:g} hours: "
                f"back it up, or list {name} in confirm_without_backup"
            )
    return found


@dataclass
class Course:
    """The steps of a run with their results. `open`: the actions that the run does not carry out, by account and label,
    with their state. `unreachable`: the accounts whose connection failed."""

    open: Mapping[tuple[str, str], str]
    rows: list[dict[str, Any]] = field(default_factory=list)
    unreachable: set[str] = field(default_factory=set)
    _results: dict[tuple[str, str], str] = field(default_factory=dict, repr=False)

    def obstacle(self, step: Row) -> str:
        """Return why a step must not start, or an empty text."""
        if step["account"] in self.unreachable:
            return "the connection has failed"
        for label in step["after"]:
            needed = (step["account"], label)
            if self._results.get(needed, DONE) != DONE:
                return f"it needs {label}, which was not changed"
            if needed in self.open:
                return f"it needs {label}, which is {self.open[needed]}"
        return ""

    def record(self, step: Row, result: str, reason: str = "") -> None:
        self._results[step["account"], f"{step['kind']} {step['name']}"] = result
        self.rows.append({**step, "result": result, "reason": reason})

    def named(self, *results: str) -> list[dict[str, Any]]:
        """Return the steps with these results."""
        return [row for row in self.rows if row["result"] in results]

    def failure(self) -> str:
        """Return the message about steps that failed, or an empty text."""
        failed, skipped = self.named(FAILED), self.named(SKIPPED)
        if not failed and not skipped:
            return ""
        reasons = [f"{_label(_key(row))}: {row['reason']}" for row in (*failed, *skipped)]
        return (
            f"{counted(len(failed), 'change')} failed, {len(skipped)} were skipped, and {len(self.named(DONE))} were "
            f"made. Fix the causes and run the same plan again\n{listed(reasons)}"
        )


def open_actions(current: Mapping[str, Any], steps: Iterable[Row]) -> dict[tuple[str, str], str]:
    """Return the actions that are not carried out, by account and label, with their state."""
    done = {_key(step) for step in steps}
    return {
        (row["account"], f"{row['kind']} {row['name']}"): row["state"]
        for row in current["assets"]
        if row["action"] and _key(row) not in done
    }


def difference(steps: Iterable[Row]) -> dict[str, dict[str, Any]]:
    """Return the changed values before and after, by asset, for Ansible's diff. Values of entries are hashes."""
    sides: dict[str, dict[str, Any]] = {"before": {}, "after": {}}
    for step in steps:
        for side, part in (("before", "from"), ("after", "to")):
            values = {one["path"]: one[part] for one in step["changes"] if one[part] is not None}
            if values:
                sides[side][_label(_key(step))] = values
        if step["action"] == DELETE:
            sides["before"].setdefault(_label(_key(step)), {})
    return sides


def steps_page(steps: Sequence[Row], others: Sequence[str] = ()) -> Page:
    """Return a table of the steps, and the actions that the plan leaves open, for operators."""
    if not steps and not others:
        return page("Nothing changes.")
    table = [(row["account"], row["kind"], row["name"], row["action"], len(row["changes"])) for row in steps]
    columns = ("account", "kind", "name", "action", "changes")
    return fitting(lambda most: paragraphs(list(_pages(columns, table, others, most))))


def _pages(columns: tuple[str, ...], table: list[tuple[Any, ...]], others: Sequence[str], most: int) -> Iterator[Page]:
    if table:
        yield table_page("Steps", columns, table, most=most)
    if others:
        yield page("Not part of the approved steps:") + listing(others, most=most)


def open_lines(current: Mapping[str, Any], steps: Iterable[Row]) -> list[str]:
    """Return the open actions for operators."""
    return [f"{account}: {label} is {state}" for (account, label), state in open_actions(current, steps).items()]


def _key(row: Row) -> Key:
    return str(row["account"]), str(row["kind"]), str(row["name"])


def _label(key: Key) -> str:
    account, kind, name = key
    return f"{kind} {name} of account {account}"


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
