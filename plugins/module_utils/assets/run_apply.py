# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Carries out an approved plan of assets. Independent assets continue after a failure."""

from __future__ import annotations

import base64
import glob
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from ..backup.catalogue_file import load_catalogue
from ..backup.protection import protections
from ..backup.store import BackupStore
from ..nats.accounts import Connections
from ..nats.client import NatsFailure
from ..nats.error_codes import WRONG_LAST_SEQUENCE
from ..nats.jetstream_api import JetStreamApi
from ..nats.system_api import SystemApi
from ..placement.cluster_reader import read_led_cluster
from ..placement.replica_count import ReplicaCount, plan_replica_count, replica_count_refusals
from ..screen import listed, printable
from ..waiting import wait_until
from .apply import (
    DONE,
    FAILED,
    SKIPPED,
    AssetsApproval,
    Course,
    deletion_refusals,
    difference,
    open_actions,
    open_lines,
    plan_problems,
    remaining_steps,
    stale_reasons,
    steps_page,
)
from .buckets import kv_subject
from .change_rules import DANGERS
from .document import STREAM, AssetsDocument
from .entries import DELETION
from .listing import is_system_user, visible_servers
from .order import CHANGE, CONSUMER, CREATE, DELETE, ENTRY, stream_name
from .plan import AccountPlan, LiveAssets, PlanRow, account_plan, joined_plan, revision
from .run_read import account_apis, read_lives
from .state import Asset, ConsumerAsset, RunOptions, StreamAsset, ensure_absent, ensure_present

Info = Mapping[str, Any]
Step = Mapping[str, Any]

#: After these failures, no further step of the account can succeed.
_NO_CONNECTION = ("unreachable", "authorization", "tls")


@dataclass(frozen=True)
class ApplyOutcome:
    """The module's result, and the failure of its steps, None if none failed."""

    result: dict[str, Any]
    failure: NatsFailure | None = None


@dataclass(frozen=True)
class _Present:
    """The documents compared with the live assets, for one run."""

    documents: Sequence[AssetsDocument]
    apis: Mapping[str, JetStreamApi]
    lives: Mapping[str, LiveAssets]
    accounts: Mapping[str, AccountPlan]
    rows: Mapping[tuple[str, str, str], PlanRow]

    def row(self, step: Step) -> PlanRow:
        """Return the row of a step."""
        return self.rows[step["account"], step["kind"], step["name"]]


def apply_plan(
    connections: Connections,
    documents: Sequence[AssetsDocument],
    approval: AssetsApproval,
    store: BackupStore | None,
    wait_timeout: float,
    check_mode: bool,
) -> ApplyOutcome:
    """Carry out the remaining steps of a plan. `store`: the backups, None if they are unknown.

    Raises NatsFailure before anything is done: stale, unconfirmed_deletion, obstacle."""
    problems = plan_problems(approval.plan)
    if problems:
        raise NatsFailure("stale", f"the plan cannot be carried out; plan again\n{listed(problems)}")
    present = _read(connections, documents, approval)
    current = joined_plan(documents, present.accounts)
    reasons = stale_reasons(approval.plan, current)
    if reasons:
        raise NatsFailure("stale", f"the plan no longer applies; plan again. Nothing was changed\n{listed(reasons)}")
    steps = remaining_steps(approval.plan, current)
    _require_deletable(connections, present, steps, approval, store)
    _require_placeable(connections, present, steps)
    others = open_lines(current, steps)
    if check_mode or not steps:
        return ApplyOutcome(_result(steps, others))
    course = Course(open_actions(current, steps))
    run = _AssetsRun(present, RunOptions(check_mode=False, allow=frozenset(DANGERS), wait_timeout=wait_timeout))
    for step in steps:
        _take(run, course, step)
    message = course.failure()
    done = [{key: value for key, value in row.items() if key not in ("result", "reason")} for row in course.named(DONE)]
    if not message:
        return ApplyOutcome(_result(done, others))
    # Ansible prints the result of a failed task in full, and the message already lists the steps.
    shown = ("account", "kind", "name", "action", "result", "reason")
    results = [{key: row[key] for key in shown if key in row} for row in course.rows]
    return ApplyOutcome({"changed": bool(done), "results": results}, NatsFailure("not_applied", message))


def _result(steps: Sequence[Step], others: Sequence[str]) -> dict[str, Any]:
    return {
        "changed": bool(steps),
        "steps": list(steps),
        "diff": difference(steps),
        **steps_page(steps, others).as_dict(),
    }


def _read(connections: Connections, documents: Sequence[AssetsDocument], approval: AssetsApproval) -> _Present:
    servers = visible_servers(connections.own)
    apis = account_apis(connections, servers, documents)
    lives = read_lives(connections, servers, documents, apis)
    accounts = {
        account: account_plan([one for one in documents if one.account == account], live, *approval.names(account))
        for account, live in lives.items()
    }
    rows = {(account, row.kind, printable(row.name)): row for account, found in accounts.items() for row in found.rows}
    return _Present(documents, apis, lives, accounts, rows)


def _require_deletable(
    connections: Connections,
    present: _Present,
    steps: Sequence[Step],
    approval: AssetsApproval,
    store: BackupStore | None,
) -> None:
    deleted = [(step["account"], stream_name(step["kind"], step["name"])) for step in steps if step["action"] == DELETE]
    messages = {}
    for account, name in deleted:
        state = (present.lives[account].streams.get(name) or {}).get("state") or {}
        messages[account, name] = int(state.get("messages", 0))
    held = [key for key, count in messages.items() if count]
    backups: dict[tuple[str, str], str] = {}
    if held and store is not None:
        identities = {(connections.identity(account), name): (account, name) for account, name in held}
        for one in protections(load_catalogue(store), identities):
            if one.saved:
                backups[identities[one.account, one.stream]] = one.saved
    refusals = deletion_refusals(steps, messages, backups, approval, datetime.now(timezone.utc))
    if refusals:
        raise NatsFailure("unconfirmed_deletion", f"nothing was changed\n{listed(refusals)}")


def _require_placeable(connections: Connections, present: _Present, steps: Sequence[Step]) -> None:
    """Raise NatsFailure obstacle if the servers have no room for further replicas, or a group is not in step."""
    wanted = []
    for step in steps:
        paths = {one["path"] for one in step["changes"]}
        # The servers of a stream that also moves are not known yet.
        if step["kind"] in (CONSUMER, ENTRY) or step["action"] != CHANGE or "replicas" not in paths:
            continue
        if not any(path.startswith("placement") for path in paths):
            name = stream_name(step["kind"], step["name"])
            target = present.row(step).target or {}
            account = connections.identity(step["account"])
            wanted.append(ReplicaCount(account, glob.escape(name), target["num_replicas"]))
    if not wanted or not is_system_user(connections.own):
        return
    cluster = read_led_cluster(SystemApi(connections.own))
    refusals = replica_count_refusals(cluster, wanted, plan_replica_count(cluster, wanted))
    if refusals:
        raise NatsFailure("obstacle", f"nothing was changed\n{listed(refusals)}")


def _take(run: _AssetsRun, course: Course, step: Step) -> None:
    """Carry out a step, unless a step that it needs was not done."""
    obstacle = course.obstacle(step)
    if obstacle:
        course.record(step, SKIPPED, obstacle)
        return
    try:
        run.take(step)
    except NatsFailure as failure:
        course.record(step, FAILED, failure.description)
        if failure.code in _NO_CONNECTION:
            course.unreachable.add(step["account"])
    else:
        course.record(step, DONE)


class _AssetsRun:
    """The steps of one run. Each asset is read again immediately before it is changed."""

    def __init__(self, present: _Present, options: RunOptions) -> None:
        self._present = present
        self._options = options

    def take(self, step: Step) -> None:
        """Carry out a step. Raises NatsFailure."""
        row = self._present.row(step)
        api = self._present.apis[step["account"]]
        if row.kind == ENTRY:
            self._write(api, step["account"], row)
            return
        asset = _asset(api, row)
        require = _unchanged(row)
        try:
            if row.action == DELETE:
                ensure_absent(asset, {}, self._options, require)
            elif row.target is not None:
                ensure_present(asset, row.target, self._options, require)
        except NatsFailure as failure:
            # The result names the asset.
            failure.description = failure.description.removeprefix(f"{asset.label}: ")
            raise

    def _write(self, api: JetStreamApi, account: str, row: PlanRow) -> None:
        """Write an entry if its last message is still the planned one. Raises NatsFailure conflict."""
        bucket, _slash, key = row.name.partition("/")
        stream, subject = stream_name(row.kind, row.name), kv_subject(bucket, key)
        value = self._value(account, stream, key)
        headers = DELETION if row.action == DELETE else None
        expected = int(row.revision or 0)
        try:
            # A new stream needs a moment until it stores messages.
            wait_until(lambda: api.store(subject, value, headers, expected), bool, self._options.wait_timeout)
        except NatsFailure as failure:
            message = api.last_message(stream, subject)
            if message is not None and base64.b64decode(message.get("data") or "") == value and row.action != DELETE:
                return
            if failure.err_code == WRONG_LAST_SEQUENCE:
                raise NatsFailure("conflict", "another client has written it since", account=api.account) from failure
            raise

    def _value(self, account: str, stream: str, key: str) -> bytes:
        (entry,) = [
            one.streams[stream].entries[key]
            for one in self._present.documents
            if one.account == account and stream in one.streams
        ]
        return (entry.value or "").encode()


def _asset(api: JetStreamApi, row: PlanRow) -> Asset:
    name = stream_name(row.kind, row.name)
    if row.kind == CONSUMER:
        return ConsumerAsset(api, name, row.name.partition("/")[2])
    return StreamAsset(api, name, None if row.kind == STREAM else f"{row.kind} {row.name}")


def _unchanged(row: PlanRow) -> Callable[[Info | None], None]:
    """Return a check that an asset is still the planned one."""

    def require(info: Info | None) -> None:
        if info is None and row.action == CHANGE:
            raise NatsFailure("conflict", "it has been deleted since")
        if info is not None and row.action == CREATE:
            raise NatsFailure("conflict", "another client has created it since")
        if info is not None and revision(info) != row.revision:
            raise NatsFailure("conflict", "it has changed since")

    return require
