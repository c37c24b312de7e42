# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which steps lead from loaded credentials and certificates to wanted ones. PRIVATE to the collection. Pure: no I/O.

nats-server knows one password for each user name (server/auth.go, `s.users`), and a reload disconnects whoever could not log
in again with what it connected with (`reloadAuthorization`). Two passwords at once are therefore two users of one account.
Routes have one user and password, and no list; without `authorization` a server accepts every route (`isRouterAuthorized`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from ansible_collections.natsops.jetstream.plugins.module_utils._config_rules import config_change

#: The account of users that are listed outside accounts (server/const.go, DEFAULT_GLOBAL_ACCOUNT).
GLOBAL_ACCOUNT = "$G"


def user_lists(config: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each account's name with the mapping that holds its list `users`, whether there is a list or not."""
    if isinstance(config.get("authorization"), dict):
        yield GLOBAL_ACCOUNT, config["authorization"]
    for name, account in (config.get("accounts") or {}).items():
        if isinstance(account, dict):
            yield name, account


def users_of(config: Mapping[str, Any]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return account and entry of each user by its name, or the public key of its nkey."""
    return {
        str(entry.get("user") or entry.get("nkey")): (account, entry)
        for account, holder in user_lists(config)
        for entry in holder.get("users") or ()
    }


def user_plan(
    loaded: Mapping[str, Any],
    wanted: Mapping[str, Any],
    plain: Mapping[str, Any],
    retire: Sequence[str],
    same_password: Callable[[str, str], bool],
) -> dict[str, Any]:
    """Return what the change of users is, and the configurations of its two phases.

    :param loaded: the configuration that the server runs
    :param wanted: the configuration of the inventory, with hashes
    :param plain: the same with the passwords as they were given
    :param retire: users that go although the inventory still has them
    :param same_password: whether a hash is one of a password
    :returns: ``added``, ``removed``, ``changed`` (the name stays, the password differs), as lists of account and user; ``other``,
        the paths of everything else that differs; ``add`` and ``drop``, the configurations with the users of both sides and
        without the old ones; ``loaded``, ``during`` and ``after``, the names of the users in each; ``known``, account, user and
        password of those whose password is known
    """
    before, after, given = users_of(loaded), users_of(wanted), users_of(plain)
    retired = set(retire)
    leaving = [name for name in before if name not in after or name in retired]
    add, drop = copy.deepcopy(dict(wanted)), copy.deepcopy(dict(wanted))
    for account, holder in user_lists(add):
        entries = [entry for entry in holder.get("users") or () if _name(entry) not in retired - before.keys()]
        kept = [before[name][1] for name in leaving if name not in after and before[name][0] == account]
        _set_users(holder, [*entries, *kept])
    for _account, holder in user_lists(drop):
        _set_users(holder, [entry for entry in holder.get("users") or () if _name(entry) not in retired])

    def told(names: Sequence[str], source: Mapping[str, tuple[str, dict[str, Any]]]) -> list[dict[str, str]]:
        return [{"account": source[name][0], "user": name} for name in names]

    staying = [name for name in before if name in after]
    other = [
        f"{after[name][0]}: {name}"
        for name in staying
        if before[name][0] != after[name][0] or _rights(before[name][1]) != _rights(after[name][1])
    ]
    return {
        "added": told([name for name in after if name not in before and name not in retired], after),
        "removed": told(leaving, before),
        "changed": told(
            [name for name in staying if _changed(before[name][1], after[name][1], given[name][1], same_password)], after
        ),
        "other": _others(loaded, wanted) + other,
        "add": add,
        "drop": drop,
        "loaded": list(before),
        "during": list(users_of(add)),
        "after": list(users_of(drop)),
        "known": [
            {"account": account, "user": name, "password": entry["password"]}
            for name, (account, entry) in given.items()
            if _can_be_tried(entry)
        ],
    }


def route_plan(loaded: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return how the routes' credentials of one server differ, and the configurations on the way.

    :returns: ``credentials`` is ``same``, ``open`` (the server asks for none now) or ``other``; ``urls`` is ``same`` or
        ``other``; ``unknown_routes``, whether more than the credentials in the URLs differs; ``open``, ``urls_new`` and
        ``close``, the configurations of the three steps
    """
    now, then = loaded.get("cluster") or {}, wanted.get("cluster") or {}
    asked, asks = now.get("authorization"), then.get("authorization")
    opened = {key: value for key, value in then.items() if key != "authorization"}
    keep_urls = {"routes": now["routes"]} if "routes" in now else {}
    return {
        "credentials": "same" if asked == asks else "other" if asked else "open",
        "urls": "same" if _routes(now) == _routes(then) else "other",
        "unknown_routes": sorted(map(_place, _routes(now))) != sorted(map(_place, _routes(then))),
        "open": {**wanted, "cluster": {**opened, **keep_urls}},
        "urls_new": {**wanted, "cluster": opened},
        "close": dict(wanted),
    }


def route_steps(plans: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the steps that the servers with these plans still have to take, in order; all of them take each.

    `open` lets every route in and disturbs none; `urls` makes the routes anew with the new credentials, server by server;
    `close` asks for the new credentials, which every route then was made with.
    """
    steps = []
    if any(plan["credentials"] == "other" for plan in plans):
        steps.append("open")
    if any(plan["urls"] == "other" for plan in plans):
        steps.append("urls")
    if steps or any(plan["credentials"] == "open" for plan in plans):
        steps.append("close")
    return steps


def _name(entry: Mapping[str, Any]) -> str:
    return str(entry.get("user") or entry.get("nkey"))


def _can_be_tried(entry: Mapping[str, Any]) -> bool:
    """Whether one can log in as the user over the clients' port: its password is known, and no other transport asked for."""
    transports = entry.get("allowed_connection_types")
    known = bool(entry.get("password")) and not str(entry["password"]).startswith("$2")
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
    """Whether the password differs. A hash of another cost is another hash of the same password."""
    old, new, plain = (str(entry.get("password") or "") for entry in (before, after, given))
    return old != new and not (old and plain and same_password(plain, old))


def _others(loaded: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """The paths that differ beside users and the credentials of routes."""

    def rest(config: Mapping[str, Any]) -> dict[str, Any]:
        stripped = copy.deepcopy(dict(config))
        for _account, holder in user_lists(stripped):
            holder.pop("users", None)
        for key in ("authorization", "routes"):
            if isinstance(stripped.get("cluster"), dict):
                stripped["cluster"].pop(key, None)
        return stripped

    return list(config_change(rest(loaded), rest(wanted), "2.10.0")["keys"])


def _routes(cluster: Mapping[str, Any]) -> list[str]:
    return sorted(str(url) for url in cluster.get("routes") or ())


def _place(url: str) -> str:
    """Where a route goes, without the credentials."""
    return urlsplit(url).netloc.rpartition("@")[2]


# --- Certificates -----------------------------------------------------------------------------------------------------


def certificate_state(
    bundle: Sequence[str], leaf: str | None, old: Sequence[str], new: Sequence[str], new_leaf: str | None
) -> dict[str, bool]:
    """Return how far a host is, from fingerprints: of the authorities it trusts, of its certificate, of the old and new
    authorities, and of the certificate that it shall have.

    :returns: ``there`` (it has files at all), ``old`` and ``new`` (it trusts all of those authorities), ``foreign`` (it trusts
        only others), ``leaf`` (it has the new certificate)
    """
    trusted = set(bundle)
    only_old = set(old) - set(new)
    return {
        "there": bool(trusted) and leaf is not None,
        "old": bool(only_old) and only_old <= trusted,
        "new": bool(new) and set(new) <= trusted,
        "foreign": bool(trusted) and not trusted & (set(old) | set(new)),
        "leaf": leaf is not None and leaf == new_leaf,
    }


def certificate_steps(states: Sequence[Mapping[str, bool]]) -> list[str]:
    """Return the steps that the hosts with these states still have to take, in order.

    `trust` has every host trust the old authority and the new one; only then may a host present a certificate of the new one
    (`leaves`), and only when all do may the old authority be forgotten (`drop`).
    """
    steps = []
    old_leaves = not all(state["leaf"] for state in states)
    if not all(state["new"] for state in states) or (old_leaves and not all(state["old"] for state in states)):
        steps.append("trust")
    if old_leaves:
        steps.append("leaves")
    if steps or any(state["old"] for state in states):
        steps.append("drop")
    return steps


def certificate_choice(state: Mapping[str, bool], states: Sequence[Mapping[str, bool]], step: str) -> dict[str, str]:
    """Return which authorities (``old``, ``both`` or ``new``) and which certificate (``old`` or ``new``) a host has after a step.

    The step `keep` leaves a host where it is; one without files gets what all others accept and trusts whatever they have.
    """
    if step in ("trust", "leaves", "drop"):
        leaf = "old" if step == "trust" and not state["leaf"] else "new"
        return {"bundle": "new" if step == "drop" else "both", "leaf": leaf}
    if not state["there"]:
        others = [other for other in states if other["there"]]
        accepted = bool(others) and all(other["new"] for other in others)
        return {"bundle": "both" if any(other["new"] for other in others) else "old", "leaf": "new" if accepted else "old"}
    bundle = "both" if state["new"] and state["old"] else "new" if state["new"] else "old"
    return {"bundle": bundle, "leaf": "new" if state["leaf"] else "old"}
