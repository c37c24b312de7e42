# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rotation of a cluster's loaded users and route credentials to those in the inventory. Pure: no I/O.

nats-server has one password for each user name (server/auth.go, `s.users`), and a reload disconnects every client that
could not log in again with its credentials (`reloadAuthorization`). Two passwords that are valid at the same time
therefore require two users of one account. Routes have a single user and password; if `authorization` is not set, a
server accepts every route (`isRouterAuthorized`)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any
from urllib.parse import urlsplit

from ..batch import number_batches
from ..nats.account_names import GLOBAL_ACCOUNT
from ..nats.model import CLIENT_NAME
from ..units import duration_seconds
from .passwords import is_hash
from .reload_rules import config_change
from .rotation_batches import RotationBatch

_NOTHING_TO_DO = "There is nothing to do: the servers have the credentials of the inventory."
_BEFORE_THE_FIRST_STEP = "The inventory and the server disagree, or the server is not reachable. Nothing was changed."
_ROUTE_LINES = {
    "open_routes": "open_routes: accept routes without credentials",
    "renew_routes": "renew_routes: reconnect the routes with the new credentials, one host at a time",
    "close_routes": "close_routes: require the new credentials from routes",
}


@dataclass(frozen=True)
class HostCredentials:
    """The loaded and the desired configuration of one host.

    `running`: whether its nats-server is running.
    `loaded`: the configuration that the running process has loaded; None if unknown.
    `desired`: the configuration of the inventory, with hashed passwords.
    `given`: the same with the original passwords.
    `restart_pending`: whether the service definition is newer than the process.
    """

    running: bool
    loaded: Mapping[str, Any] | None
    desired: Mapping[str, Any]
    given: Mapping[str, Any]
    restart_pending: bool = False


@dataclass(frozen=True)
class CredentialOptions:
    """The operator's options.

    `cluster`: the cluster's name, for messages.
    `missing_hosts`: hosts of the cluster that are not part of the run.
    `phase`: `add`, `remove` or `auto` (both).
    `window`: how long both users are accepted within one run, such as 15m; empty for no window.
    `remove_users`: users to remove although the inventory still has them.
    `disconnect_clients`: whether clients with old credentials may be disconnected.
    `routes`: `guarded`, `open` or `at_once`.
    `explicit_routes`: whether each server has a URL for every other one, so no route depends on gossip.
    `check_mode`: whether this run changes nothing.
    """

    cluster: str = ""
    missing_hosts: Sequence[str] = ()
    phase: str = "auto"
    window: str = ""
    remove_users: Sequence[str] = ()
    disconnect_clients: bool = False
    routes: str = "guarded"
    explicit_routes: bool = True
    check_mode: bool = False


@dataclass(frozen=True)
class CredentialChanges:
    """The differences of all hosts combined; users are mappings of account and user."""

    added: Sequence[Mapping[str, str]]
    removed: Sequence[Mapping[str, str]]
    changed: Sequence[Mapping[str, str]]
    route_steps: Sequence[str]
    other: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def users(self) -> list[Mapping[str, str]]:
        """Return all users that differ."""
        return [*self.added, *self.removed, *self.changed]


def credential_rotation(
    hosts: Mapping[str, HostCredentials], options: CredentialOptions, same_password: Callable[[str, str], bool]
) -> dict[str, Any]:
    """Return the plan of a run for the credentials of a cluster.

    `same_password(password, hash)` returns whether the hash belongs to the password.

    The keys of the plan are as follows. `refusals`: the reasons not to start. `steps`: the steps in order. `lines`: the
    steps for operators. `remaining`: notes for operators after the last step. `removed`: account and name of the users
    that the run removes. `hosts`: for each host, its `configurations` by step, and its `logins` by step and for
    `start`. `logins`: the names that the server must have `accepted` and `refused`, the credentials to `attempt`, and
    the `remedy` for a difference. `batches`: see
    `step_batches`. `predicts_change`: whether this is check mode and a real run would take a step.
    """
    users, routes = {}, {}
    for name, host in hosts.items():
        if host.running and host.loaded is not None:
            users[name] = user_plan(host.loaded, host.desired, host.given, options.remove_users, same_password)
            routes[name] = route_plan(host.loaded, host.desired)
    changes = CredentialChanges(
        added=_unique(user for plan in users.values() for user in plan["added"]),
        removed=_unique(user for plan in users.values() for user in plan["removed"]),
        changed=_unique(user for plan in users.values() for user in plan["changed"]),
        route_steps=_route_steps(list(routes.values()), options),
        other={
            name: [*users[name]["other"], *(["cluster.routes"] if routes[name]["unknown_routes"] else [])]
            for name in users
        },
    )
    wait_seconds = ceil(duration_seconds(options.window or "0s"))
    steps = [*_user_steps(changes, options, wait_seconds), *changes.route_steps]
    removed = list(changes.removed) if "remove_users" in steps else []
    accounts = {user["account"] for user in changes.users}
    return {
        "refusals": _refusals(hosts, changes, options, wait_seconds),
        "steps": steps,
        "lines": _lines(steps, changes, options),
        "remaining": _remaining(changes, removed),
        "removed": removed,
        "batches": step_batches(steps, list(users), removed, wait_seconds),
        "predicts_change": options.check_mode and bool(steps),
        "hosts": {
            name: {
                "configurations": {step: {**users[name], **routes[name]}[step] for step in steps if step != "wait"},
                "logins": _logins(users[name], removed, accounts),
            }
            for name in users
        },
    }


def step_batches(
    steps: Sequence[str], hosts: Sequence[str], removed: Sequence[Mapping[str, str]], wait_seconds: int
) -> list[dict[str, Any]]:
    """Return the batches of a run as documents. A server reconnects each route whose URL changes, so the hosts take
    turns in the step renew_routes; the other steps disturb no route and change all hosts at once."""
    batches = []
    for number, step in enumerate(steps, 1):
        removes = step == "remove_users"
        batches += [
            RotationBatch(
                step,
                batch,
                "load",
                wait_seconds=wait_seconds if removes and "wait" in steps else 0,
                removed=list(_connections(removed)) if removes else [],
                checks_logins=step in ("add_users", "remove_users"),
            ).numbered(number, len(steps))
            for batch in ([[host] for host in hosts] if step == "renew_routes" else [list(hosts)])
            if step != "wait"
        ]
    return number_batches(batches)


def _connections(users: Sequence[Mapping[str, str]]) -> Iterator[dict[str, str]]:
    """Yield the kinds of connections that users may have. Leafnodes are listed by account only."""
    for user in users:
        yield {"kind": "client", "user": user["user"], "account": ""}
        yield {"kind": "leafnode", "user": user["user"], "account": user["account"]}


# --- The cluster ------------------------------------------------------------------------------------------------------


def _user_steps(changes: CredentialChanges, options: CredentialOptions, wait_seconds: int) -> list[str]:
    steps = []
    if options.phase != "remove" and (changes.added or changes.changed):
        steps.append("add_users")
    if options.phase != "add" and changes.removed:
        steps += ["wait", "remove_users"] if wait_seconds else ["remove_users"]
    return steps


def _route_steps(plans: Sequence[Mapping[str, Any]], options: CredentialOptions) -> list[str]:
    steps = route_steps(plans)
    return ["close_routes"] if steps and options.routes == "at_once" else steps


def _lines(steps: Sequence[str], changes: CredentialChanges, options: CredentialOptions) -> list[str]:
    """Return the steps of the run for operators."""
    lines = []
    for step in steps:
        if step == "add_users":
            beside = f", alongside {_names(changes.removed)}" if changes.removed else ""
            if changes.added:
                lines.append(f"add_users: accept {_names(changes.added)} on every server{beside}")
            if changes.changed:
                lines.append(
                    f"add_users: replace the password of {_names(changes.changed)}; the old one is refused from then on"
                )
        elif step == "wait":
            lines.append(f"wait: accept both for {options.window}")
        elif step == "remove_users":
            lines.append(f"remove_users: refuse {_names(changes.removed)}")
        else:
            lines.append(_ROUTE_LINES[step])
    if lines:
        return lines
    return [f"There is nothing to do for the phase {options.phase}." if changes.users else _NOTHING_TO_DO]


def _remaining(changes: CredentialChanges, removed: Sequence[Mapping[str, str]]) -> list[str]:
    if changes.removed and not removed:
        return [
            f"Still accepted: {_names(changes.removed)}. At the end of the window run this again with"
            " nats_cluster_rotate_phase=remove."
        ]
    return ["The servers have the credentials of the inventory."]


def _refusals(
    hosts: Mapping[str, HostCredentials], changes: CredentialChanges, options: CredentialOptions, wait_seconds: int
) -> list[str]:
    """Return every reason not to start, in complete sentences."""
    return [
        *_state_refusals(hosts, changes, options),
        *_user_refusals(changes, options, wait_seconds),
        *_route_refusals(hosts, changes, options),
    ]


def _state_refusals(
    hosts: Mapping[str, HostCredentials], changes: CredentialChanges, options: CredentialOptions
) -> Iterator[str]:
    if options.missing_hosts:
        yield (
            f"All servers of {options.cluster} share their credentials: run without --limit and job slicing."
            f" Missing: {', '.join(options.missing_hosts)}."
        )
    stopped = [name for name, host in hosts.items() if not host.running]
    if stopped:
        yield (
            f"nats-server is not running on {', '.join(stopped)}. Start it, or remove it from the cluster, before its"
            " credentials change."
        )
    unknown = [name for name, host in hosts.items() if host.running and host.loaded is None]
    if unknown:
        yield (
            f"No record exists of the configuration that nats-server has loaded on {', '.join(unknown)}. Run the "
            "playbook"
            " deploy first."
        )
    others = {key for keys in changes.other.values() for key in keys}
    if others:
        where = ", ".join(name for name, keys in changes.other.items() if keys)
        yield (
            f"On {where} the inventory changes more than users and route credentials: {', '.join(sorted(others))}. Deploy"
            " that first."
        )
    pending = [name for name, host in hosts.items() if host.restart_pending]
    if pending:
        yield (
            f"nats-server needs a restart on {', '.join(pending)}: its service definition is newer than the process. Run"
            " the playbook deploy first."
        )


def _user_refusals(changes: CredentialChanges, options: CredentialOptions, wait_seconds: int) -> Iterator[str]:
    if changes.route_steps and changes.users:
        yield "The inventory changes both users and route credentials. Rotate one of them, then change the other."
    if changes.changed and not options.disconnect_clients:
        yield (
            f"The inventory and the servers have different passwords for {_names(changes.changed)}. A server has one "
            "password"
            " for each user name, so it would reject the old one from the reload on. If it was mistyped, correct"
            " it. To replace it without an interruption, keep the user and add a second one to the account, with a "
            "different name"
            " and the new password; to end with the same name, rotate twice. nats_cluster_rotate_disconnect_clients=true"
            " replaces it at once and disconnects its clients."
        )
    if not (changes.added and changes.removed) or options.phase == "add":
        return
    if options.phase == "remove":
        cause = f"{_names(changes.added)} is not accepted on every server yet."
    elif not wait_seconds:
        cause = f"{_names(changes.added)} would be added and {_names(changes.removed)} removed at the same moment."
    else:
        return
    yield (
        f"{cause} Run with nats_cluster_rotate_phase=add now, and with nats_cluster_rotate_phase=remove at the end of the window;"
        " or set nats_cluster_rotate_window, such as 15m, and one run does both."
    )


def _route_refusals(
    hosts: Mapping[str, HostCredentials], changes: CredentialChanges, options: CredentialOptions
) -> Iterator[str]:
    without_tls = [
        name
        for name, host in hosts.items()
        if host.loaded is not None and not (host.loaded.get("cluster") or {}).get("tls")
    ]
    if "open_routes" in changes.route_steps and options.routes != "open" and without_tls:
        yield (
            "A server has a single user and password for all routes. To accept the old and the new password, it accepts "
            f"every route for some seconds, even without a certificate on {', '.join(without_tls)} (no cluster.tls). If a "
            "firewall protects the route port, run with nats_cluster_rotate_routes=open; otherwise with "
            "nats_cluster_rotate_routes=at_once, which interrupts each route until both of its ends have changed."
        )
    if changes.route_steps and not options.explicit_routes:
        yield (
            "Routes that were discovered by gossip do not take new credentials. Set nats_server_cluster_route_style to all and"
            " nats_server_cluster_routes to null, deploy (which only reloads), then rotate."
        )


def _logins(
    plan: Mapping[str, Any], removed: Sequence[Mapping[str, str]], accounts: set[str]
) -> dict[str, dict[str, Any]]:
    """Return the logins that a server must accept and refuse, before the first step and after each step that changes
    users."""
    going = [user["user"] for user in removed]
    changing = [user["user"] for user in plan["changed"]]
    # Users that this run removes are excluded: an interrupted run may have removed them already without recording it.
    expected = {
        "start": ([name for name in plan["loaded"] if name not in [*changing, *going]], []),
        "add_users": (plan["during"], []),
        "remove_users": (plan["after"], [name for name in going if name not in plan["after"]]),
    }
    remedy = "Run this again; completed steps are skipped."
    return {
        step: {
            "accepted": accepted,
            "refused": refused,
            "remedy": _BEFORE_THE_FIRST_STEP if step == "start" else remedy,
            "attempt": [
                {"user": login["user"], "password": login["password"]}
                for login in plan["known"]
                if login["account"] in accounts and login["user"] in [*accepted, *refused]
            ],
        }
        for step, (accepted, refused) in expected.items()
    }


def _names(users: Sequence[Mapping[str, str]]) -> str:
    return ", ".join(user["user"] for user in users)


def _unique(users: Iterator[Mapping[str, str]]) -> list[Mapping[str, str]]:
    found: list[Mapping[str, str]] = []
    for user in users:
        if user not in found:
            found.append(user)
    return found


# --- The reports of the servers between the steps ------------------------------------------------------------------


def login_refusal(attempts: Sequence[Mapping[str, Any]], expected: Mapping[str, Any], server: str) -> str:
    """Return why the accepted users of a server differ from the plan; empty if they do not.

    `attempts`: the result of the module nats_login_info for this server. `expected`: the entry in `logins` of the plan.
    A failure other than a rejected login proves nothing about a removed user."""
    problems = []
    refused = [each for each in attempts if each["user"] in expected["accepted"] and not each["accepted"]]
    if refused:
        problems.append(f"{server} does not accept {_names(refused)}: {_reasons(refused)}.")
    accepted = [each for each in attempts if each["user"] in expected["refused"] and each["code"] != "authorization"]
    if accepted:
        reasons = _reasons(accepted)
        problems.append(f"{server} did not reject {_names(accepted)}{f': {reasons}' if reasons else ''}.")
    return " ".join([*problems, expected["remedy"]]) if problems else ""


def _reasons(attempts: Sequence[Mapping[str, Any]]) -> str:
    return "; ".join(dict.fromkeys(each["reason"] for each in attempts if each["reason"]))


def removal_refusal(lists: Sequence[Mapping[str, Any]], disconnect_clients: bool) -> str:
    """Return why the old users must not be removed yet; empty if they may.

    `lists`: results of the module nats_connection_info for these users. The modules' own connections end with their
    task and do not count. Some versions, such as 2.10.27, permanently keep clients in an account's list if they left
    while a reload was checking them; leafnodes appear in no other list."""
    silent = dict.fromkeys(name for each in lists for name in [*each["missing"], *each["incomplete"]])
    if silent:
        return f"Connections are unknown: {', '.join(silent)} did not list all connections. No user was removed."
    clients = [client for each in lists for client in each["connections"] if client["name"] != CLIENT_NAME]
    if not clients or disconnect_clients:
        return ""
    return "\n".join(
        [
            f"{len(clients)} client(s) are still connected as a user to be removed",
            "and would be disconnected:",
            *(
                f"{client['user']}: {client['name'] or 'without a name'} ({client['lang']} {client['version']}) from "
                f"{client['ip']} at {client['server']}"
                for client in clients[:20]
            ),
            "Move them to the new user, then run this again with nats_cluster_rotate_phase=remove;",
            "nats_cluster_rotate_disconnect_clients=true disconnects them. No user was removed, so both are accepted.",
        ]
    )


# --- The users of one server ------------------------------------------------------------------------------------------


def user_lists(config: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each account's name with the mapping that contains the account's list `users`, whether the list exists or
    not."""
    if isinstance(config.get("authorization"), dict):
        yield GLOBAL_ACCOUNT, config["authorization"]
    for name, account in (config.get("accounts") or {}).items():
        if isinstance(account, dict):
            yield name, account


def configured_users(config: Mapping[str, Any]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return account and entry of each user by the user's name, or by the public key of its nkey."""
    return {
        _name(entry): (account, entry) for account, holder in user_lists(config) for entry in holder.get("users") or ()
    }


def user_plan(
    loaded: Mapping[str, Any],
    desired: Mapping[str, Any],
    given: Mapping[str, Any],
    remove: Sequence[str],
    same_password: Callable[[str, str], bool],
) -> dict[str, Any]:
    """Return the differences between the users of one server, and its configuration after each step.

    `remove`: users to remove although the inventory still has them.

    The keys of the result are as follows. `added`, `removed`, `changed`: lists of account and user; the name of a
    changed user stays, and its password differs. `other`: the paths of all other differences. `add_users`: the
    configuration with the users of both sides. `remove_users`: the configuration without the old users. `loaded`,
    `during`, `after`: the names of the users before, between and after these two steps. `known`: account, user and
    password of each user whose password is known.
    """
    before, after, plain = configured_users(loaded), configured_users(desired), configured_users(given)
    named = set(remove)
    leaving = [name for name in before if name not in after or name in named]
    both, new = copy.deepcopy(dict(desired)), copy.deepcopy(dict(desired))
    for account, holder in user_lists(both):
        entries = [entry for entry in holder.get("users") or () if _name(entry) not in named - before.keys()]
        kept = [before[name][1] for name in leaving if name not in after and before[name][0] == account]
        _set_users(holder, [*entries, *kept])
    for _account, holder in user_lists(new):
        _set_users(holder, [entry for entry in holder.get("users") or () if _name(entry) not in named])

    def listed(names: Sequence[str], source: Mapping[str, tuple[str, dict[str, Any]]]) -> list[dict[str, str]]:
        return [{"account": source[name][0], "user": name} for name in names]

    staying = [name for name in before if name in after]
    other = [
        f"{after[name][0]}: {name}"
        for name in staying
        if before[name][0] != after[name][0] or _rights(before[name][1]) != _rights(after[name][1])
    ]
    return {
        "added": listed([name for name in after if name not in before and name not in named], after),
        "removed": listed(leaving, before),
        "changed": listed(
            [name for name in staying if _changed(before[name][1], after[name][1], plain[name][1], same_password)],
            after,
        ),
        "other": _other_changes(loaded, desired) + other,
        "add_users": both,
        "remove_users": new,
        "loaded": list(before),
        "during": list(configured_users(both)),
        "after": list(configured_users(new)),
        "known": [
            {"account": account, "user": name, "password": entry["password"]}
            for name, (account, entry) in plain.items()
            if _can_log_in(entry)
        ],
    }


def _name(entry: Mapping[str, Any]) -> str:
    return str(entry.get("user") or entry.get("nkey"))


def _can_log_in(entry: Mapping[str, Any]) -> bool:
    """Return whether the run can log in as the user: its password is known, and it may use the client port."""
    transports = entry.get("allowed_connection_types")
    known = bool(entry.get("password")) and not is_hash(str(entry["password"]))
    return known and (transports is None or "STANDARD" in [str(name).upper() for name in transports])


def _set_users(holder: dict[str, Any], entries: list[dict[str, Any]]) -> None:
    if entries or "users" in holder:
        holder["users"] = entries


def _rights(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "password"}


def _changed(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    given: Mapping[str, Any],
    same_password: Callable[[str, str], bool],
) -> bool:
    """Return whether the password differs. A hash with a different cost may still be a hash of the same password."""
    old, new, plain = (str(entry.get("password") or "") for entry in (before, after, given))
    return old != new and not (old and plain and same_password(plain, old))


def _other_changes(loaded: Mapping[str, Any], desired: Mapping[str, Any]) -> list[str]:
    """Return the paths that differ, except those of users and route credentials."""

    def rest(config: Mapping[str, Any]) -> dict[str, Any]:
        stripped = copy.deepcopy(dict(config))
        for _account, holder in user_lists(stripped):
            holder.pop("users", None)
        for key in ("authorization", "routes"):
            if isinstance(stripped.get("cluster"), dict):
                stripped["cluster"].pop(key, None)
        return stripped

    return list(config_change(rest(loaded), rest(desired), "2.10.0")["keys"])


# --- The routes of one server -----------------------------------------------------------------------------------------


def route_plan(loaded: Mapping[str, Any], desired: Mapping[str, Any]) -> dict[str, Any]:
    """Return the differences between the route credentials of one server, and its configuration after each step.

    The keys of the result are as follows. `credentials`: `same`, `open` (the server requires no credentials at present)
    or `other`. `urls`: `same` or `other`. `unknown_routes`: whether more than the credentials in the URLs differs.
    `open_routes`, `renew_routes`, `close_routes`: the configurations of the three steps.
    """
    now, then = loaded.get("cluster") or {}, desired.get("cluster") or {}
    asked, asks = now.get("authorization"), then.get("authorization")
    opened = {key: value for key, value in then.items() if key != "authorization"}
    keep_urls = {"routes": now["routes"]} if "routes" in now else {}
    return {
        "credentials": "same" if asked == asks else "other" if asked else "open",
        "urls": "same" if _routes(now) == _routes(then) else "other",
        "unknown_routes": sorted(map(_place, _routes(now))) != sorted(map(_place, _routes(then))),
        "open_routes": {**desired, "cluster": {**opened, **keep_urls}},
        "renew_routes": {**desired, "cluster": opened},
        "close_routes": dict(desired),
    }


def route_steps(plans: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the remaining steps of servers with these plans, in order; every server takes each of them.

    `open_routes` accepts every route and disconnects none; `renew_routes` reconnects the routes with the new
    credentials, server by server; `close_routes` requires the new credentials, which every route now has.
    """
    steps = []
    if any(plan["credentials"] == "other" for plan in plans):
        steps.append("open_routes")
    if any(plan["urls"] == "other" for plan in plans):
        steps.append("renew_routes")
    if steps or any(plan["credentials"] == "open" for plan in plans):
        steps.append("close_routes")
    return steps


def _routes(cluster: Mapping[str, Any]) -> list[str]:
    return sorted(str(url) for url in cluster.get("routes") or ())


def _place(url: str) -> str:
    """Return the target of a route, without the credentials."""
    return urlsplit(url).netloc.rpartition("@")[2]
