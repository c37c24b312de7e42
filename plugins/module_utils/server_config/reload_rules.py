# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a running nats-server can load a changed configuration: without any action, by a reload or by a restart. Pure: no
I/O.

A reload is all or nothing: nats-server rejects the entire reload if a single key cannot be reloaded (server/reload.go).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ..units import duration_seconds, size_bytes
from ..versions import supports
from .schema import SCHEMA, Key
from .syntax import Leaf, Path, identity, is_secret, normalise, show

RELOAD_OVER_NATS = ("2.10.0",)
GROWING_STORE = ("2.12.7", "2.14.0")
_ALL_SERVERS_AT_ONCE = {
    (
        "cluster",
        "accounts",
    ): "reload all servers of the cluster in quick succession: until both ends of a route have "
    "the same list, an account that was removed gets no messages",
    ("cluster", "pool_size"): "reload all servers of the cluster in quick succession: up to 2.11.1 servers with "
    "different pool sizes drop their routes",
}
#: Modes in which a server does not initiate compression; the default mode is `accept`.
_WITHOUT_COMPRESSION = {"off", "disabled", "false", "not supported", "not_supported", "accept"}
#: Seconds within which a gateway without TLS must log in (server/const.go AUTH_TIMEOUT). With TLS, one more second
#: would be allowed.
_GATEWAY_AUTH_TIMEOUT = 2
#: Options of tls that nats-server compares during a reload, or that make it close connections without TLS.
_TLS_WITH_THE_RESTART = ("timeout", "pinned_certs", "verify_cert_and_check_known_urls")


class Difference(NamedTuple):
    """A key with different values; `key` is None if it is not in the schema."""

    path: Path
    key: Key | None
    old: Any
    new: Any


def config_change(
    old: Mapping[str, Any], new: Mapping[str, Any], version: str, new_version: str | None = None
) -> dict[str, Any]:
    """Return `{action, keys, reasons}` for a server of `version` that loaded `old` and should run `new`.

    `action` is `none`, `reload` or `restart`; `keys` are the paths that differ; `reasons` never contain a value. If
    `new_version` differs from `version`, a restart is needed. On a server whose reported version is not known to
    support reloads, every change needs a restart. Raises ConfigError.
    """
    reasons = []
    restart = bool(new_version) and new_version != version
    if restart:
        reasons.append(f"nats-server {version} is replaced by {new_version}")
    differences = list(_compare(normalise(old), normalise(new), SCHEMA, ()))
    for difference in differences:
        obstacle = _obstacle(difference, version)
        restart = restart or obstacle is not None
        reasons.append(f"{show(difference.path)} {_what(difference)}{f': {obstacle}' if obstacle else ''}")
    if differences and not restart and not supports(RELOAD_OVER_NATS, version):
        restart = True
        reasons.append(
            f"nats-server {version} cannot be reloaded over NATS and does not report whether a reload worked"
        )
    if differences and not restart:
        reasons += [text for path, text in _ALL_SERVERS_AT_ONCE.items() if any(d.path[:2] == path for d in differences)]
    return {
        "action": "restart" if restart else "reload" if differences else "none",
        "keys": [show(difference.path) for difference in differences],
        "reasons": reasons,
    }


def gateway_tls_first(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with which a server that loaded `old` reloads the TLS that `new` adds to its gateway
    (and to its routes, if `new` adds TLS there, too); nothing else differs from `old`. Empty if `new` adds no TLS to a
    gateway.

    After this reload, each new connection uses TLS, while existing ones continue without it. So once all servers of all
    clusters have reloaded, they can be restarted one after another. A gateway can be reloaded only if TLS is the sole
    difference (server/reload.go diffOptions), so the login timeout, which TLS would change, is kept. Raises
    ConfigError.
    """
    before, after = normalise(old), normalise(new)
    tls = {
        part: {key: value for key, value in after[part]["tls"].items() if key not in _TLS_WITH_THE_RESTART}
        for part in ("gateway", "cluster")
        if part in before and "tls" not in before[part] and (after.get(part) or {}).get("tls")
    }
    if "gateway" not in tls:
        return {}
    authorization = {"timeout": _GATEWAY_AUTH_TIMEOUT, **(before["gateway"].get("authorization") or {})}
    blocks: dict[str, Any] = {part: {**before[part], "tls": block} for part, block in tls.items()}
    blocks["gateway"]["authorization"] = authorization
    return {**before, **blocks}


def is_reloadable(leaf: Leaf, version: str) -> bool:
    """Return whether a server of that version can reload a different value at this path."""
    other = Difference(leaf.path, leaf.key, leaf.value, leaf.value)
    return supports(RELOAD_OVER_NATS, version) and _obstacle(other, version) is None


def _compare(old: Any, new: Any, key: Key | None, path: Path) -> Iterator[Difference]:
    inside = key is not None and bool(key.children)
    if inside and isinstance(old, Mapping) and isinstance(new, Mapping):
        yield from _compare_members(old, new, key, path, old.keys() | new.keys())
    elif inside and isinstance(old, list) and isinstance(new, list):
        yield from _compare_lists(old, new, key, path)
    elif canonical(old, key) != canonical(new, key):
        yield Difference(path, key, old, new)


def _compare_members(
    old: Mapping[str, Any], new: Mapping[str, Any], key: Key | None, path: Path, names: Any
) -> Iterator[Difference]:
    for name in sorted(names):
        child = key.child(name) if key else None
        here = (*path, name)
        if name in old and name in new:
            yield from _compare(old[name], new[name], child, here)
        else:
            yield Difference(here, child, old.get(name), new.get(name))


def _compare_lists(old: list[Any], new: list[Any], key: Key | None, path: Path) -> Iterator[Difference]:
    """Compare two lists. Elements are matched by their identity, because the order of users, accounts' imports or
    gateways has no meaning."""
    before = {identity(item, index, key): item for index, item in enumerate(old)}
    after = {identity(item, index, key): item for index, item in enumerate(new)}
    for name in sorted(before.keys() | after.keys()):
        here = (*path, name)
        if name in before and name in after:
            yield from _compare(before[name], after[name], key, here)
        else:
            yield Difference(here, key, before.get(name), after.get(name))


def canonical(value: Any, key: Key | None) -> Any:
    """Return a value in a comparable format: sizes in bytes, durations in seconds."""
    if isinstance(value, list):
        return [canonical(item, key) for item in value]
    for kind, convert in (("size", size_bytes), ("duration", duration_seconds), ("durations", duration_seconds)):
        if key and kind in key.types and isinstance(value, (str, int)):
            try:
                return convert(value)
            except ValueError:
                return value
    return value


def _what(difference: Difference) -> str:
    return "is added" if difference.old is None else "is removed" if difference.new is None else "changes"


def _obstacle(difference: Difference, version: str) -> str | None:
    """Return why this difference cannot be reloaded, or None if it can."""
    if difference.key is None:
        return "an unknown key, so a restart is assumed"
    if difference.path == ("jetstream",) and difference.new is None:
        return "a reload would disable JetStream in the running server"
    if difference.path in (("cluster", "compression"), ("cluster", "compression", "mode")):
        return _obstacle_to_compression(difference)
    kind = difference.key.reload
    if kind == "never":
        return "it must never change; a peer of another name would be added"
    if kind == "grow":
        return _obstacle_to_growth(difference, version)
    if kind.startswith(">="):
        first = kind[2:]
        return (
            None
            if supports((first,), version)
            else f"nats-server {version} needs a restart for it; {first} and later need only a reload"
        )
    if kind == "Y":
        return _obstacle_inside(difference, version)
    if is_secret(Leaf(difference.path, difference.key, difference.new or difference.old)):
        return "needs a restart; a reload would be refused and print the secret into the server's log"
    return "needs a restart"


def _obstacle_inside(difference: Difference, version: str) -> str | None:
    """Return the first obstacle to a reload among the keys of an added or removed block."""
    key = difference.key
    block = difference.old if difference.new is None else difference.new if difference.old is None else None
    if key is None or not isinstance(block, Mapping):
        return None
    for name in sorted(block):
        child = key.child(name)
        sides = (None, block[name]) if difference.old is None else (block[name], None)
        obstacle = child and _obstacle(Difference((*difference.path, name), child, *sides), version)
        if obstacle:
            return f"{name}: {obstacle}"
    return None


def _obstacle_to_compression(difference: Difference) -> str | None:
    """Return the obstacle to reloading the compression of routes. Both ends of a route agree on its compression when it
    is established. Unless both modes compress, a reload closes all routes of the server (server/reload.go
    clusterOption.Apply), and all servers reload at the same time."""
    before, after = (
        str(value.get("mode") or "accept" if isinstance(value, Mapping) else value or "accept").lower()
        for value in (difference.old, difference.new)
    )
    if before == after or not {before, after} & _WITHOUT_COMPRESSION:
        return None
    return "a reload would close every route of every server at once, so the servers are restarted one after another"


def _obstacle_to_growth(difference: Difference, version: str) -> str | None:
    if not supports(GROWING_STORE, version):
        return "needs a restart"
    if difference.old is None or difference.new is None:
        return "needs a restart, as it was not set before" if difference.old is None else "needs a restart"
    grows = size_bytes(difference.new) >= size_bytes(difference.old)
    return None if grows else "needs a restart, as a reload only increases it"
