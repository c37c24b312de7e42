# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The accounts of a server's configuration as a document of accounts, so static and operator mode have the same format.
Pure.

Source: server/opts.go parseAccounts and the functions that it calls. JetStream limits that a configuration omits are
unlimited; in the document, an omitted limit means no storage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..nats.account_names import SYSTEM_ACCOUNT
from ..server_config.account_admins import has_jetstream
from ..server_config.schema import SCHEMA, Key
from ..units import counted, duration_seconds, size_bytes
from .fields import JETSTREAM, LIMITS, UNLIMITED, ClaimField, in_words
from .keys import ACCOUNT, key_kind

#: The configuration's names of limits, and the document's.
_LIMITS = {
    "max_connections": "connections",
    "max_subscriptions": "subscriptions",
    "max_payload": "payload",
    "max_leafnodes": "leaf",
}
_JETSTREAM = {
    "max_store": "disk",
    "max_memory": "memory",
    "max_streams": "streams",
    "max_consumers": "consumers",
    "max_ack_pending": "max_ack_pending",
    "disk_max_stream_bytes": "disk_max_stream_bytes",
    "mem_max_stream_bytes": "memory_max_stream_bytes",
}
_RESPONSES = {"single": "Singleton", "singleton": "Singleton", "stream": "Stream", "chunked": "Chunked"}
_CONVERTED = {
    "limits",
    "jetstream",
    "default_permissions",
    "exports",
    "imports",
    "mappings",
    "msg_trace",
    "nkey",
    "users",
}


def document_from_static(
    accounts: Mapping[str, Any], system_account: str = SYSTEM_ACCOUNT
) -> tuple[dict[str, Any], list[str]]:
    """Return the document of accounts, and notes on the parts that it cannot declare. Raises ValueError for values that
    a server would reject."""
    notes: list[str] = []
    tree = _account_schema()
    found = {}
    for name, given in accounts.items():
        account = _canonical(tree, given or {})
        found[_named(name)] = _account(account, name, notes)
        users = account.get("users") or ()
        if users:
            notes.append(f"account {name}: {counted(len(users), 'user')}; in operator mode each needs a JWT")
        notes += [f"account {name}: {key} is not converted" for key in account if key not in _CONVERTED]
    document: dict[str, Any] = {"accounts": found}
    if system_account in accounts:
        document["system_account"] = _named(system_account)
    return document, notes


def _account_schema() -> Key:
    accounts = SCHEMA.children["accounts"]
    return accounts.children["*"]


def _canonical(key: Key | None, value: Any) -> Any:
    """Return a configuration in which each key has its main name."""
    if isinstance(value, list):
        return [_canonical(key, item) for item in value]
    if key is None or not isinstance(value, Mapping):
        return value
    named = ((key.canonical(str(name)), item) for name, item in value.items())
    return {name: _canonical(key.child(name), item) for name, item in named}


def _named(account: str) -> str:
    """Return the name of an account in the document; a public key, which static configurations use as a name, is
    shortened."""
    return f"account-{account[:10]}" if key_kind(account) == ACCOUNT else account


def _account(account: Mapping[str, Any], name: str, notes: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    key = account.get("nkey") or name
    if key_kind(key) == ACCOUNT:
        found["id"] = key
    limits = {
        theirs: _limit(LIMITS, theirs, account["limits"][ours])
        for ours, theirs in _LIMITS.items()
        if ours in (account.get("limits") or {})
    }
    if has_jetstream(account):
        limits["jetstream"] = _jetstream(account["jetstream"])
    if limits:
        found["limits"] = limits
    own = account["jetstream"] if isinstance(account.get("jetstream"), Mapping) else {}
    if own.get("cluster_traffic"):
        found["cluster_traffic"] = own["cluster_traffic"]
    if account.get("default_permissions"):
        found["default_permissions"] = _permissions(account["default_permissions"])
    if account.get("exports"):
        found["exports"] = [_export(item) for item in account["exports"]]
    if account.get("imports"):
        found["imports"] = [_import(item) for item in account["imports"]]
    if account.get("mappings"):
        found["mappings"] = {subject: _targets(item) for subject, item in account["mappings"].items()}
    trace = account.get("msg_trace")
    if trace:
        given = {"dest": trace} if isinstance(trace, str) else trace
        found["trace"] = {"subject": given["dest"], **_percent(given, "sampling")}
    return found


def _limit(fields: tuple[ClaimField, ...], name: str, value: Any) -> Any:
    """Return a limit in the document's words."""
    one = next(field for field in fields if field.name == name)
    number = size_bytes(value)
    return UNLIMITED if number < 0 or (number == 0 and one.zero == -1) else in_words(one, number)


def _jetstream(value: Any) -> dict[str, Any]:
    given = value if isinstance(value, Mapping) else {}
    found = {theirs: _limit(JETSTREAM, theirs, given.get(ours, -1)) for ours, theirs in _JETSTREAM.items()}
    return {**found, **({"require_max_bytes": True} if given.get("max_bytes_required") else {})}


def _subjects(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value or ())


def _permissions(given: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for ours, theirs in (("publish", "pub"), ("subscribe", "sub")):
        value = given.get(ours)
        both = value if isinstance(value, Mapping) else {"allow": value}
        for side in ("allow", "deny"):
            if both.get(side):
                found.setdefault(side, {})[theirs] = _subjects(both[side])
    responses = given.get("allow_responses")
    if responses:
        own = responses if isinstance(responses, Mapping) else {}
        number = own.get("max")
        found["responses"] = {
            **({"max": UNLIMITED if number < 0 else number} if number else {}),
            **({"ttl": _duration(own["expires"])} if own.get("expires") else {}),
        }
    return found


def _export(item: Mapping[str, Any]) -> dict[str, Any]:
    kind = "stream" if item.get("stream") else "service"
    latency = item.get("latency")
    latency = {"subject": latency} if isinstance(latency, str) else latency
    return {
        "subject": item[kind],
        "type": kind,
        **({"to": [_named(name) for name in item["accounts"]]} if item.get("accounts") else {}),
        **({"response_type": _RESPONSES[str(item["response_type"]).lower()]} if item.get("response_type") else {}),
        **({"response_threshold": _duration(item["threshold"])} if item.get("threshold") else {}),
        **({"latency": {"subject": latency["subject"], "sampling": 100, **_sampling(latency)}} if latency else {}),
        **{key: item[key] for key in ("account_token_position", "allow_trace") if item.get(key)},
    }


def _import(item: Mapping[str, Any]) -> dict[str, Any]:
    kind = "stream" if item.get("stream") else "service"
    source = item[kind]
    local = item.get("to")
    if item.get("prefix"):
        local = f"{item['prefix']}.{source['subject']}"
    return {
        "account": _named(source["account"]),
        "subject": source["subject"],
        "type": kind,
        **({"local": local} if local else {}),
        **{key: True for key in ("share", "allow_trace") if item.get(key)},
    }


def _targets(value: Any) -> list[dict[str, Any]]:
    items = value if isinstance(value, list) else [value]
    return [
        {"subject": item}
        if isinstance(item, str)
        else {
            "subject": item["destination"],
            **_percent(item, "weight"),
            **({"cluster": item["cluster"]} if item.get("cluster") else {}),
        }
        for item in items
    ]


def _percent(item: Mapping[str, Any], key: str) -> dict[str, int]:
    """Return a percentage, which the configuration writes as 50 or 50%."""
    return {key: int(str(item[key]).rstrip("%"))} if key in item else {}


def _sampling(item: Mapping[str, Any]) -> dict[str, Any]:
    return {"sampling": "headers"} if str(item.get("sampling")).lower() == "headers" else _percent(item, "sampling")


def _duration(value: Any) -> str:
    """Return a duration from the configuration; the smallest unit of the document is the nanosecond."""
    return f"{round(duration_seconds(value) * 10**9)}ns"
