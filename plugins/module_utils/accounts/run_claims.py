# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes the claims of one account on every server: sign, push, verify, and on failure sign the previous claims again.

A server confirms every JWT that it can parse, even one that it does not trust. So the result is read back: the copy that
each server stores, and the copy in force. After a synchronization interval of the resolvers, the copies are read once
more, because servers exchange their copies and the newest one wins."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..documents import InvalidDocument
from ..nats.account_names import is_account_key, one_account
from ..nats.client import NatsFailure
from ..nats.model import Server
from ..nats.system_api import Answer, SystemApi
from ..screen import listed
from ..units import counted
from ..waiting import wait_until
from .change import AccountChange, keyless, missing_activations, next_issue_time, with_keys
from .checks import account_problems, signer_problem, trusted_keys
from .claims import Claims, decode_claims, encode_claims, import_key
from .copies import Copies, Evaluation, Trust, digest, read_trust
from .document import AccountsDocument, parse_document, read_document
from .fields import Normal
from .key_directory import KeyDirectory, given_seed
from .keys import ACCOUNT, OPERATOR
from .plan import CHANGE, DELETE
from .run_copies import CopiesReading, read_copies, read_live
from .seeds import SeedKey, new_key
from .token import ACTIVATION, InvalidToken, deletion_request, sign_again
from .use import AccountUse


@dataclass(frozen=True)
class AccountsState:
    """The accounts of all servers, and their connections and streams."""

    reading: CopiesReading
    trust: Trust
    evaluations: tuple[Evaluation, ...]
    live: AccountUse

    @property
    def servers(self) -> tuple[Server, ...]:
        return self.reading.servers

    @property
    def unread(self) -> list[str]:
        """Return the names of the servers whose copies are unknown."""
        return sorted({*self.reading.missing, *(row["server"] for row in self.reading.incomplete)})


@dataclass(frozen=True)
class Confirmation:
    """How a change is verified. `expected`: names of all servers. `timeout`: seconds until all servers have the new
    claims. `sync_interval`: seconds until the copies are read once more, 0 for never."""

    expected: Collection[str]
    timeout: float
    sync_interval: float


#: The options of a module that signs claims, see the documentation fragment `signing`.
SIGNING_SPEC: dict[str, dict[str, Any]] = {
    "signing_seed": {"type": "str", "no_log": True},
    "signing_seed_file": {"type": "path", "no_log": False},
    "key_directory": {"type": "path", "no_log": False},
    "expected_servers": {"type": "list", "elements": "str", "default": []},
    "wait_timeout": {"type": "float", "default": 15},
    "sync_interval": {"type": "float", "default": 65},
}
SIGNING_RULES: dict[str, Any] = {
    "mutually_exclusive": [("signing_seed", "signing_seed_file")],
    "required_one_of": [("signing_seed", "signing_seed_file")],
}


def signing_means(params: Mapping[str, Any]) -> tuple[SeedKey, KeyDirectory | None, Confirmation]:
    """Return the key of the operator, the directory with the seeds of accounts, and how changes are verified, from the
    options of SIGNING_SPEC. Raises NatsFailure invalid_option."""
    return (
        given_seed(params["signing_seed"], params["signing_seed_file"], [OPERATOR], "signing_seed"),
        KeyDirectory(params["key_directory"]) if params["key_directory"] else None,
        Confirmation(params["expected_servers"], params["wait_timeout"], params["sync_interval"]),
    )


def desired_document(given: Any) -> AccountsDocument:
    """Return the document of an option. Raises NatsFailure invalid_option with its errors."""
    try:
        return parse_document(given) if isinstance(given, str) else read_document(given)
    except InvalidDocument as error:
        count = counted(len(error.problems), "error")
        raise NatsFailure("invalid_option", f"document: {count}\n{listed(error.problems)}") from error


def read_accounts(api: SystemApi, expected: Collection[str], now: float) -> AccountsState:
    """Return the accounts of all servers. Raises NatsFailure."""
    reading = read_copies(api, expected)
    return AccountsState(reading, *reading.evaluated(now), read_live(api, reading.servers))


def account_in_force(api: SystemApi, account: str, expected: Collection[str]) -> tuple[Claims, bool]:
    """Return the claims of an account, given by name or public key, and whether the operator requires signing keys.

    Raises NatsFailure no_account, account_ambiguous, or disagreement if the servers have different copies."""
    reading = read_copies(api, expected, account if is_account_key(account) else None)
    trust, evaluations = reading.evaluated(time.time())
    found = {one.copies.account: one for one in evaluations}
    evaluation = found.get(one_account({key: one.name or "" for key, one in found.items()}, account))
    if evaluation is None or evaluation.claims is None:
        raise NatsFailure("no_account", f"account {account}: no server returned its claims", account=account)
    if evaluation.doubts:
        raise NatsFailure("disagreement", f"account {account}: {'; '.join(evaluation.doubts)}", account=account)
    return evaluation.claims, trust.is_strict


def require_writable(state: AccountsState, signer: str) -> None:
    """Refuse to push claims unless all servers have answered, store claims, and trust the public key `signer`. Raises
    NatsFailure incomplete, operator, untrusted_signer or unsupported_resolver."""
    if state.unread:
        raise NatsFailure(
            "incomplete",
            f"{', '.join(state.unread)}: no complete answer. A server that misses a change may restore the previous "
            "claims on all servers, so start it first, or remove it from expected_servers",
        )
    if state.trust.problems or not state.trust.claims:
        raise NatsFailure("operator", "; ".join(state.trust.problems) or "no server has an operator")
    if signer not in trusted_keys(state.trust.claims):
        problem = signer_problem(Claims(ACCOUNT, "", "", {}, issuer=signer), state.trust.claims)
        raise NatsFailure(
            "untrusted_signer",
            f"signing_seed: the claims would be {problem}. Servers would store them and lock the account out at their "
            "next restart; use the seed of one of the operator's signing keys",
        )
    without = sorted({server.name for server in state.servers} - {*state.reading.stores})
    if without:
        raise NatsFailure(
            "unsupported_resolver",
            f"{', '.join(without)}: the resolver is MEMORY or URL and stores no claims. Change resolver_preload or the "
            "web server instead; nats_accounts_plan shows the differences",
        )


def require_no_obstacles(change: AccountChange) -> None:
    """Raise NatsFailure obstacle if the account cannot be changed."""
    if change.obstacles:
        raise NatsFailure("obstacle", f"account {change.name}: {'; '.join(change.obstacles)}", account=change.name)


def require_full_resolvers(api: SystemApi, state: AccountsState, account: str) -> None:
    """Refuse unless every server returns its stored claims. Raises NatsFailure unsupported_resolver."""
    returned = len(api.stored_claims(account, len(state.servers)))
    if returned < len(state.servers):
        raise NatsFailure(
            "unsupported_resolver",
            f"{returned} of {counted(len(state.servers), 'server')} returned the copy that they store. A cache resolver "
            "does not, so a change cannot be verified; use the resolver type full",
        )


def apply_change(
    api: SystemApi,
    state: AccountsState,
    change: AccountChange,
    signer: SeedKey,
    directory: KeyDirectory | None,
    confirmation: Confirmation,
    verify: Callable[[Claims], None] | None = None,
) -> dict[str, Any]:
    """Carry out a change that has no obstacles, and return the account's public key and the new keys. `verify` tests
    the claims once they are in force; if it raises NatsFailure, the previous claims are restored.

    Raises NatsFailure: invalid_option (a key has nowhere to be stored; nothing was changed), not_applied (after the
    previous claims were restored, as far as possible).
    """
    if change.state == DELETE:
        _delete(api, state, change, signer, confirmation)
        return {"account": change.account, "new_keys": []}
    if change.desired is None:
        raise ValueError(f"{change.state}: a change without claims")
    created = _new_keys(change)
    account = change.account or created[0].public
    require_full_resolvers(api, state, account)
    names = keyless(change.desired)
    signing_keys = {name: key.public for name, key in zip(names, created[len(created) - len(names) :])}
    desired = with_keys(change.desired, account, signing_keys, {})
    desired = with_keys(desired, account, {}, _activations(state, change, desired, directory))
    issued_at = next_issue_time(change.before.newest if change.before is not None else 0, time.time())
    token = _signed(desired, state.trust, signer, issued_at)
    if created:
        if directory is None:
            raise NatsFailure(
                "invalid_option",
                f"key_directory: not set, but {counted(len(created), 'key')} must be created: "
                f"{', '.join([*([] if change.account else ['the account']), *names])}. Set the directory that will store "
                "the seeds, or give the public keys in the document",
            )
        for key in created:
            directory.save(key)
    _push(api, state, change, token, signer, confirmation, verify)
    return {"account": account, "new_keys": [key.public for key in created]}


def sign_account_again(
    api: SystemApi, state: AccountsState, before: Evaluation, signer: SeedKey, confirmation: Confirmation
) -> None:
    """Give an account the same claims, signed with this key. Raises NatsFailure as apply_change does."""
    require_full_resolvers(api, state, before.copies.account)
    change = AccountChange(before.label, before.copies.account, CHANGE, before, before.claims)
    token = sign_again(before.token, signer, next_issue_time(before.newest, time.time()))
    _push(api, state, change, token, signer, confirmation, None)


def _new_keys(change: AccountChange) -> list[SeedKey]:
    """Return new keys: one for the account, unless it has a key, and one for each signing key without a key."""
    count = len(keyless(change.desired)) if change.desired is not None else 0
    return [new_key(ACCOUNT) for _number in range(count + (not change.account))]


def _activations(
    state: AccountsState, change: AccountChange, desired: Claims, directory: KeyDirectory | None
) -> dict[str, str]:
    """Return the activations of the private imports: the servers' valid ones, and new ones signed with a key of the
    exporting account. Raises NatsFailure invalid_option if `directory` has no such key."""
    now = time.time()
    actual = change.before.claims if change.before is not None else None
    needed = missing_activations(desired, actual, now)
    found = {} if actual is None else dict(actual.activations)
    found.update({import_key(item): _activation(state, item, desired, directory, int(now)) for item in needed})
    used = {import_key(item) for item in desired.fields["imports"] if item["activation"]}
    return {key: token for key, token in found.items() if key in used}


def _activation(
    state: AccountsState, item: Normal, desired: Claims, directory: KeyDirectory | None, issued_at: int
) -> str:
    exporter = item["account"]
    claims = next((one.claims for one in state.evaluations if one.copies.account == exporter), None)
    keys = [] if claims is None else [key for key, scope in claims.fields["signing_keys"].items() if not scope["role"]]
    candidates = [directory.find(key) for key in (*keys, exporter)] if directory is not None else []
    key = next((one for one in candidates if one is not None), None)
    if key is None:
        raise NatsFailure(
            "invalid_option",
            f"imports: {item['subject']} of account {claims.name if claims is not None else exporter} needs an "
            "activation, and key_directory has neither the seed of that account nor of its signing keys without a role",
        )
    fields = {"subject": item["subject"], "type": item["type"], "issuer_account": "", "tags": []}
    if key.public != exporter:
        fields["issuer_account"] = exporter
    return encode_claims(Claims(ACTIVATION, desired.subject, item["subject"], fields), key, issued_at)


def _signed(desired: Claims, trust: Trust, signer: SeedKey, issued_at: int) -> str:
    """Return the claims as a JWT, after the checks that a server would make. Raises NatsFailure refused_claims."""
    try:
        token = encode_claims(desired, signer, issued_at)
        problems = account_problems(decode_claims(token), trust.claims, time.time())
    except InvalidToken as error:
        problems = [str(error)]
    if problems:
        raise NatsFailure("refused_claims", f"servers would refuse the claims: {'; '.join(problems)}")
    return token


# --- Push and verify --------------------------------------------------------------------------------------------------


def _push(
    api: SystemApi,
    state: AccountsState,
    change: AccountChange,
    token: str,
    signer: SeedKey,
    confirmation: Confirmation,
    verify: Callable[[Claims], None] | None,
) -> None:
    account = decode_claims(token)
    try:
        _require_confirmed(state.servers, api.push_claims(state.servers, token))
        _confirm(lambda: _unconfirmed(api, state.servers, token, confirmation.expected), confirmation)
        if verify is not None:
            verify(account)
    except NatsFailure as failure:
        restored = _restore(api, state, change, signer, account.issued_at, confirmation)
        raise NatsFailure("not_applied", f"account {change.name}: {failure.description}. {restored}") from failure


def _restore(
    api: SystemApi,
    state: AccountsState,
    change: AccountChange,
    signer: SeedKey,
    newest: int,
    confirmation: Confirmation,
) -> str:
    """Sign the previous claims again with a later issue time, push them to the servers that still answer, and return
    the outcome as a sentence. The previous JWT itself would lose against the newer one at the next synchronization."""
    before = change.before
    if before is None or before.claims is None:
        return "The account is new, so there are no previous claims; the next run continues"
    if before.signer_problem:
        return "The previous claims were not trusted by the servers, so they were not restored"
    token = sign_again(before.token, signer, next_issue_time(newest, time.time()))
    try:
        servers = api.discover().servers
        _require_confirmed(servers, api.push_claims(servers, token))
        at_once = replace(confirmation, expected=(), sync_interval=0)
        _confirm(lambda: _unconfirmed(api, servers, token, ()), at_once)
    except NatsFailure as failure:
        return f"Restoring the previous claims failed, too: {failure.description}"
    names = [server.name for server in servers]
    absent = sorted({server.name for server in state.servers} - {*names})
    rest = f"; {', '.join(absent)} will copy them when it is back" if absent else ""
    return f"The previous claims were signed again and restored on {', '.join(names)}{rest}"


def _require_confirmed(servers: Sequence[Server], answers: dict[str, Answer]) -> None:
    """Raise NatsFailure not_applied unless every server has confirmed that it stored the JWT."""
    failed = []
    for server in servers:
        answer = answers[server.id]
        if isinstance(answer, NatsFailure):
            failed.append(f"{server.name}: {answer.description}")
        elif answer.get("code") != 200:
            failed.append(f"{server.name}: {answer.get('message') or 'an unexpected reply'}")
    if failed:
        raise NatsFailure("not_applied", f"{len(failed)} of {len(servers)} servers refused: {'; '.join(failed)}")


def _confirm(unconfirmed: Callable[[], str], confirmation: Confirmation) -> None:
    """Wait until all servers have the result, and once more after a synchronization interval. Raises NatsFailure
    not_applied with the difference."""
    for delay in (0.0, confirmation.sync_interval):
        if delay:
            time.sleep(delay)
        seen = wait_until(unconfirmed, lambda difference: not difference, confirmation.timeout)
        if not seen.done:
            when = f" {delay:g} s after the change" if delay else ""
            raise NatsFailure("not_applied", f"not in force on all servers{when}: {seen.value}")


def _copies(
    api: SystemApi, servers: Sequence[Server], account: str, expected: Collection[str]
) -> tuple[Copies, Trust, str]:
    """Return the copies of an account, the operators, and which of these servers did not answer, if any."""
    reading = read_copies(api, expected, account)
    copies = next((one for one in reading.accounts if one.account == account), Copies(account, (), {}, {}))
    gone = sorted({server.name for server in servers} - {*reading.stores} | {*reading.missing})
    trust = read_trust(reading.operators, time.time())
    return copies, trust, f"{', '.join(gone)} did not answer" if gone else ""


def _unconfirmed(api: SystemApi, servers: Sequence[Server], token: str, expected: Collection[str]) -> str:
    """Return the difference between the copies of these servers and the pushed one, or an empty text."""
    claims, desired = decode_claims(token), digest(token)
    copies, trust, silent = _copies(api, servers, claims.subject, expected)
    if silent:
        return silent
    stored = [digest(one) for one in copies.stored]
    if stored.count(desired) < len(servers):
        return f"{stored.count(desired)} of {counted(len(servers), 'server')} store the new copy"
    differing = sorted(name for name, loaded in copies.loaded.items() if digest(loaded) != desired)
    if differing:
        return f"{', '.join(differing)} still use a different copy"
    # A restart with a different operator would make the new claims untrusted.
    return signer_problem(claims, trust.claims)


def _delete(
    api: SystemApi, state: AccountsState, change: AccountChange, signer: SeedKey, confirmation: Confirmation
) -> None:
    def existing() -> str:
        copies, _trust, silent = _copies(api, state.servers, change.account, confirmation.expected)
        names = [name for name, stored in copies.listed.items() if stored]
        return silent or (f"still stored on {', '.join(names)}" if names else "")

    require_full_resolvers(api, state, change.account)
    token = deletion_request([change.account], signer, int(time.time()))
    answers = api.delete_claims(state.servers, token)
    try:
        _require_confirmed(state.servers, answers)
        _confirm(existing, confirmation)
    except NatsFailure as failure:
        raise NatsFailure(
            "not_applied",
            f"account {change.name}: {failure.description}. A server that still stores the account restores it on all "
            "servers; repeat the deletion when all of them answer",
        ) from failure
