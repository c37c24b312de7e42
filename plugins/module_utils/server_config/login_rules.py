# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about accounts, users and their passwords. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..nats.account_names import GLOBAL_ACCOUNT, SYSTEM_ACCOUNT
from ..problem import ConfigProblem
from ..units import counted
from .case import LISTENERS, Case, blocks, error, has_users, listed_users, other_accounts, warning
from .passwords import BcryptError, check_password, is_hash
from .syntax import leaves, show

CONNECTION_TYPES = {"STANDARD", "WEBSOCKET", "LEAFNODE", "LEAFNODE_WS", "MQTT", "MQTT_WS", "IN_PROCESS"}


def system_account(case: Case) -> Iterator[ConfigProblem]:
    """The system account must exist, be reachable and stay free of JetStream."""
    if "operator" in case.config:
        return
    name = case.system_account
    block = case.accounts.get(name)
    if name != SYSTEM_ACCOUNT and block is None:
        yield error("system_account", f"{name!r} is not among the accounts")
    elif not _operates(block, case) and _has_system_users(case.loaded):
        yield error(
            f"accounts.{name}.users",
            "would have no user that can operate the cluster, but the running server has such users: the playbooks and "
            "these users would lose their login. Set nats_server_system_password, or list the users",
        )
    elif not _operates(block, case):
        yield warning(
            f"accounts.{name}.users",
            "has no user that can operate the cluster, so neither the health gate nor reloads over NATS work "
            "(nats_server_system_password)",
        )
    if block and block.get("jetstream") not in (None, False, "disabled", "disable"):
        yield error(
            f"accounts.{name}.jetstream", "JetStream does not belong in the system account: use another account"
        )
    if (
        case.block("leafnodes") is not None
        and case.block("gateway") is not None
        and not case.config.get("system_account")
    ):
        yield error("system_account", "must be set explicitly when there are both leafnodes and a gateway")


def _operates(block: Mapping[str, Any] | None, case: Case) -> bool:
    """Return whether the system account has a user other than that of metrics, which may only read."""
    metrics = case.own_users.get("metrics")
    return any(not metrics or user.get("user") != metrics for user in blocks((block or {}).get("users")))


def _has_system_users(config: Mapping[str, Any]) -> bool:
    accounts = config.get("accounts")
    block = accounts.get(config.get("system_account") or SYSTEM_ACCOUNT) if isinstance(accounts, Mapping) else None
    return bool(isinstance(block, Mapping) and block.get("users"))


def users(case: Case) -> Iterator[ConfigProblem]:
    """Users need unique names, credentials, and passwords within bcrypt's limits."""
    seen: dict[str, str] = {}
    for where, user in listed_users(case):
        name = user.get("user") or user.get("nkey")
        if not name:
            yield error(where, "has neither user nor nkey")
            continue
        if name in seen:
            yield error(
                where, f"the name {name!r} is already used by {seen[name]}; names must be unique across accounts"
            )
        seen.setdefault(name, where)
        if user.get("user") and not user.get("password") and not _maps_certificates(case):
            yield error(where, "has no password: anyone could log in with this name")
        unknown = {str(kind).upper() for kind in user.get("allowed_connection_types") or []} - CONNECTION_TYPES
        if unknown:
            yield error(
                f"{where}.allowed_connection_types", f"nats-server does not support {', '.join(sorted(unknown))}"
            )
    block = case.block("authorization") or {}
    if block.get("user") or block.get("token"):
        what = "user" if block.get("user") else "token"
        if block.get("users") or any(account.get("users") for account in case.accounts.values()):
            yield error(
                f"authorization.{what}", "cannot be combined with users, neither in authorization nor in accounts"
            )


def auth_callout(case: Case) -> Iterator[ConfigProblem]:
    """The collection's own users must be able to log in without the auth callout service, which is a client of the
    cluster and starts after it.

    While the service is down, a server refuses all users except auth_users, either in all accounts or only in
    allowed_accounts (auth.go).
    """
    callout = (case.block("authorization") or {}).get("auth_callout")
    if not isinstance(callout, dict) or "operator" in case.config:
        return
    option = "authorization.auth_callout.auth_users"
    passing, scope = set(callout.get("auth_users") or ()), callout.get("allowed_accounts") or ()

    def refused(account: str) -> list[str]:
        named = [
            user.get("user") or user.get("nkey") for user in blocks((case.accounts.get(account) or {}).get("users"))
        ]
        return [str(name) for name in named if name not in passing] if not scope or account in scope else []

    system = refused(case.system_account)
    needed = case.own_users.get("system")
    every = len(system) == len(blocks((case.accounts.get(case.system_account) or {}).get("users")))
    if needed in system or (not needed and system and every):
        yield error(
            option,
            f"lacks {needed or ' and '.join(system)} of the system account: while the callout's service is down, and at each "
            "start of all servers, the health gate and every other playbook could not log in. Add it, or leave the account "
            "out of allowed_accounts",
        )
    metrics = case.own_users.get("metrics")
    if metrics in system and metrics != needed:
        yield warning(
            option,
            f"lacks {metrics} of the system account: while the callout's service is down, the exporter and the snapshot timer "
            "could not log in",
        )
    delegated = {name for account in case.accounts if account != case.system_account for name in refused(account)}
    operators = delegated & set(case.own_users.get("operators") or ())
    if operators:
        yield warning(
            option,
            f"lacks {', '.join(sorted(operators))}: while the callout's service is down, the playbooks cannot read, back up or "
            "restore the streams of these accounts",
        )
    if delegated - operators:
        yield warning(
            option,
            f"lacks {', '.join(sorted(delegated - operators))}: the callout's service decides on these logins, and passwords and "
            "permissions in the accounts have no effect",
        )


def own_users_behind_proxy(case: Case) -> Iterator[ConfigProblem]:
    """The collection's own users must log in to the servers directly, not through a proxy."""
    own = {case.own_users.get("system"), *(case.own_users.get("operators") or ())} - {None, ""}
    for where, user in listed_users(case):
        if user.get("proxy_required") and user.get("user") in own:
            yield error(
                f"{where}.proxy_required", "would lock out the playbooks, which connect to the servers without a proxy"
            )


def first_accounts(case: Case) -> Iterator[ConfigProblem]:
    """If no accounts are configured, every client uses the account $G, mostly without a user. Adding the first account
    takes JetStream away from $G, and adding the first user locks out clients without a user (server.go
    globalAccountOnly, auth.go configureAuthorization)."""
    if not case.loaded or "operator" in case.loaded or "operator" in case.config:
        return
    streams = int((case.store.get("accounts") or {}).get(GLOBAL_ACCOUNT) or 0)
    if streams and case.jetstream is not None and not other_accounts(case.loaded) and other_accounts(case.config):
        yield error(
            "accounts",
            "are the first, and JetStream then works only in them: no client could reach the "
            f"{counted(streams, 'stream')} of "
            "the account $G here, which would stay on the disk. Back them up (nats_backup, without a user), delete them, "
            "deploy, and restore them into an account (nats_restore with account)",
        )
    if not has_users(case.loaded) and has_users(case.config) and not case.config.get("no_auth_user"):
        connected = int(case.running.get("connections") or 0)
        now = f" ({counted(connected, 'client')} connected now)" if connected else ""
        yield warning(
            "accounts",
            f"have the first users: clients that log in without a user are then rejected{now}. Give them the rights of "
            "a "
            "user with nats_server_config: {no_auth_user: NAME}",
        )


def passwords(case: Case) -> Iterator[ConfigProblem]:
    """Passwords must be suitable for bcrypt; the messages do not contain them."""
    for leaf in leaves(case.config):
        if leaf.key is None or not leaf.key.bcrypt or is_hash(leaf.value):
            continue
        try:
            check_password(leaf.value)
        except BcryptError as problem:
            yield error(show(leaf.path), str(problem))


def no_auth_user(case: Case) -> Iterator[ConfigProblem]:
    """no_auth_user must be one of the users."""
    known = {user.get("user") for _where, user in listed_users(case)} | {
        user.get("nkey") for _where, user in listed_users(case)
    }
    for option, block in (("", case.config), ("websocket.", case.block("websocket")), ("mqtt.", case.block("mqtt"))):
        name = (block or {}).get("no_auth_user")
        if name and "operator" in case.config:
            yield error(f"{option}no_auth_user", "cannot be combined with an operator")
        elif name and name not in known:
            yield error(f"{option}no_auth_user", f"{name!r} is not a user of authorization or of an account")


def _maps_certificates(case: Case) -> bool:
    """Return whether a listener takes the user from a client certificate, so the user needs no password."""
    blocks: list[dict[str, Any]] = [case.config, *(case.block(name) or {} for name in LISTENERS)]
    listeners_tls = [block.get("tls") for block in blocks]
    return any(isinstance(tls, dict) and tls.get("verify_and_map") for tls in listeners_tls)
