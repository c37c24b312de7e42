# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Carries out an approved plan of accounts step by step, and stops at the first failure."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..nats.client import ConnectionOptions, NatsFailure
from ..nats.system_api import SystemApi
from ..screen import listed
from ..units import counted
from .change import AccountChange, absent_change, present_change
from .claims import Claims
from .document import AccountsDocument
from .key_directory import KeyDirectory
from .plan import CHANGE, CREATE, DELETE, make_plan, matched_claims, matched_ids
from .role_probe import probe_roles
from .run_claims import AccountsState, Confirmation, apply_change, read_accounts, require_no_obstacles, require_writable
from .seeds import SeedKey
from .steps import PHASES, SIGN, ClaimsStep, next_step, planned_steps, stale_reasons


@dataclass(frozen=True)
class AccountsApproval:
    """The approved plan, as `nats_accounts_plan` returned it, and the names of the accounts that may be deleted."""

    plan: Mapping[str, Any]
    deletions: Collection[str]


@dataclass(frozen=True)
class Tools:
    """The means of a run: the key of the operator, the directory with the seeds of accounts, and the verification.
    `options`: the connection of users who test roles."""

    signer: SeedKey
    directory: KeyDirectory | None
    confirmation: Confirmation
    options: ConnectionOptions


def apply_document(
    api: SystemApi, document: AccountsDocument, approval: AccountsApproval, tools: Tools, check_mode: bool
) -> dict[str, Any]:
    """Carry out the plan of a document, and return the steps, the tested roles and the new keys.

    Raises NatsFailure: stale, obstacle or unconfirmed_deletion before anything is done, otherwise not_applied with the
    steps that were done."""
    state = read_accounts(api, tools.confirmation.expected, time.time())
    steps = planned_steps(document, state.evaluations)
    if not steps:
        return {"changed": False, "steps": [], "roles": [], "new_keys": []}
    require_writable(state, tools.signer.public)
    _require_approved(document, state, approval)
    _require_feasible(document, state, steps)
    if check_mode:
        return {"changed": True, "steps": [step.row() for step in steps], "roles": [], "new_keys": []}
    run = _AccountsRun(api, document, tools)
    try:
        run.all_steps(list(dict.fromkeys(step.name for step in steps if step.claims is not None)))
    except NatsFailure as failure:
        done = "; ".join(f"{row['name']}: {row['step']}" for row in run.rows) or "none"
        raise NatsFailure(
            failure.code, f"{failure.description}\nSteps done before: {done}. Plan again to continue"
        ) from failure
    return {"changed": True, "steps": run.rows, "roles": run.roles, "new_keys": run.new_keys}


def _require_approved(document: AccountsDocument, state: AccountsState, approval: AccountsApproval) -> None:
    current = make_plan(document, state.evaluations, state.trust, state.live, state.unread)
    reasons = [*stale_reasons(approval.plan, current), *current["problems"], *current["incomplete"]]
    if reasons:
        raise NatsFailure("stale", f"the plan no longer applies; plan again\n{listed(reasons)}")
    deleted = [row["name"] for row in current["accounts"] if row["state"] == DELETE]
    unconfirmed = sorted({*deleted} - {*approval.deletions})
    if unconfirmed:
        raise NatsFailure(
            "unconfirmed_deletion",
            f"the plan deletes {', '.join(unconfirmed)}; confirm each account by its name in confirm_delete",
        )


def _require_feasible(document: AccountsDocument, state: AccountsState, steps: Sequence[ClaimsStep]) -> None:
    """Raise NatsFailure obstacle if an account of the plan cannot be changed."""
    found = []
    for name in dict.fromkeys(step.name for step in steps):
        found += [f"account {name}: {one}" for one in _change(name, document, state).obstacles]
    if found:
        raise NatsFailure("obstacle", f"nothing was changed\n{listed(found)}")


def _change(name: str, document: AccountsDocument, state: AccountsState) -> AccountChange:
    account = document.accounts[name]
    if account.is_present:
        return present_change(name, document, state.evaluations, state.trust, state.live, time.time())
    return absent_change(account.id or name, state.evaluations, state.trust, state.live)


class _AccountsRun:
    """The steps of one run. Before each step, all accounts are read."""

    def __init__(self, api: SystemApi, document: AccountsDocument, tools: Tools) -> None:
        self._api = api
        self._document = document
        self._tools = tools
        self.rows: list[dict[str, Any]] = []
        self.roles: list[dict[str, Any]] = []
        self.new_keys: list[str] = []

    def all_steps(self, names: Sequence[str]) -> None:
        """Carry out the steps of these accounts, then the deletions."""
        for phase in PHASES:
            for name in names:
                while self._next(phase, name):
                    pass
        for step in planned_steps(self._document, self._read().evaluations):
            if step.phase not in (SIGN, DELETE):
                raise NatsFailure("not_applied", f"account {step.name} has been changed by a different user")
            state = self._read()
            change = _change(step.name, self._document, state)
            require_no_obstacles(change)
            self._apply(change, state)
            self.rows.append(step.row())
        self._confirm_later()

    def _read(self) -> AccountsState:
        state = read_accounts(self._api, self._tools.confirmation.expected, time.time())
        require_writable(state, self._tools.signer.public)
        return state

    def _next(self, phase: str, name: str) -> bool:
        """Carry out the next step of an account in a phase, and return whether there was one."""
        state = self._read()
        ids, _ambiguous = matched_ids(self._document, state.evaluations)
        account = self._document.accounts[name]
        before = next((one for one in state.evaluations if one.copies.account == ids.get(name)), None)
        actual = before.claims if before is not None else None
        step = next_step(phase, name, actual, matched_claims(account, self._document, ids, actual))
        if step is None or step.claims is None:
            return False
        require_no_obstacles(_change(name, self._document, state))
        kind = CREATE if actual is None else CHANGE
        change = AccountChange(name, ids.get(name, ""), kind, before, step.claims, step.changes)
        self._apply(change, state)
        self.rows.append(step.row())
        return True

    def _apply(self, change: AccountChange, state: AccountsState) -> None:
        tools = self._tools
        at_once = replace(tools.confirmation, sync_interval=0)
        live = [one for one in state.live.connections if one.account == change.account]
        tested: list[dict[str, Any]] = []

        def verify(claims: Claims) -> None:
            probes = probe_roles(tools.options, claims, tools.directory, state.trust.is_strict, len(live))
            tested.extend(one.row(change.name) for one in probes)

        done = apply_change(self._api, state, change, tools.signer, tools.directory, at_once, verify)
        self.new_keys += done["new_keys"]
        self.roles = [row for row in self.roles if row["account"] != change.name] + tested

    def _confirm_later(self) -> None:
        """Read all accounts once more after a synchronization interval. Raises NatsFailure not_applied."""
        interval = self._tools.confirmation.sync_interval
        if not interval:
            return
        time.sleep(interval)
        left = planned_steps(self._document, self._read().evaluations)
        if left:
            names = ", ".join(dict.fromkeys(step.name for step in left))
            raise NatsFailure(
                "not_applied", f"{interval:g} s after the last step, {counted(len(left), 'change')} reverted: {names}"
            )
