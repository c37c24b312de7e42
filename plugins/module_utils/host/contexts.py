# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Contexts of the nats command that follow the streams during a failover. Pure.

The previous values of a context are kept next to it, in a file that the nats command does not read as a context. A
failback restores them from there, and other writers of contexts leave these keys unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Optional

#: Suffix of the file name of a saved context; the nats command reads only `.json` (jsm.go natscontext).
SAVED = ".before_failover"

#: Keys of a context that a failover changes.
KEYS = ("url", "description", "jetstream_domain")

Context = Mapping[str, Any]


@dataclass(frozen=True)
class ContextSide:
    """The origin or the site: its name, the addresses of its servers, and its JetStream domain."""

    name: str
    servers: tuple[str, ...]
    domain: Optional[str] = None


@dataclass(frozen=True)
class Switch:
    """A context and its saved values, None if there are none."""

    context: dict[str, Any]
    saved: Optional[dict[str, Any]]


def address(url: str) -> str:
    """Return the host and port of a server's address; a missing port is replaced by the default port."""
    host = url.strip().rpartition("://")[2].rpartition("@")[2].rstrip("/").lower()
    bare = host.rpartition("]")[2] if host.startswith("[") else host
    return host if ":" in bare else f"{host}:4222"


def points_at(context: Context, side: ContextSide) -> bool:
    """Return whether a context has addresses and all of them belong to this side."""
    servers = {address(one) for one in side.servers}
    found = {address(one) for one in str(context.get("url") or "").split(",") if one.strip()}
    return bool(found) and found <= servers


def may_follow(
    name: str, context: Context, saved: Optional[Context], origin: ContextSide, left_alone: Collection[str]
) -> bool:
    """Return whether a context is for the origin's streams. `left_alone`: users whose contexts are for a cluster and
    not for its streams, such as the system user. A context with an nkey or credentials has no user entry, but its name
    ends with the user."""
    if saved is not None:
        return True
    user = context.get("user")
    is_left_alone = user in left_alone if user else any(name.endswith(f"-{one}") for one in left_alone)
    return points_at(context, origin) and not is_left_alone


def to_site(context: Context, saved: Optional[Context], origin: ContextSide, site: ContextSide) -> Switch:
    """Return a context of the origin that points at the site."""
    before = dict(saved) if saved is not None else {key: context[key] for key in KEYS if key in context}
    result = {**context, "url": ",".join(site.servers)}
    result["description"] = f"{before.get('description') or origin.name}, failed over to {site.name}"
    domain = before.get("jetstream_domain")
    if domain and domain == origin.domain:
        result["jetstream_domain"] = site.domain or ""
    return Switch(result, before)


def to_origin(context: Context, saved: Optional[Context], site: ContextSide) -> Switch:
    """Return a context as it was before the failover, unless its address has been changed since."""
    if saved is None or not points_at(context, site):
        return Switch(dict(context), None)
    result = {key: value for key, value in context.items() if key not in KEYS or key in saved}
    return Switch({**result, **saved}, None)


def content_text(content: Context) -> str:
    """Return the text of a file. The keys keep their order, or are sorted if all keys except new ones were sorted."""
    keys = [key for key in content if key not in KEYS]
    ordered = dict(sorted(content.items())) if keys == sorted(keys) else content
    return json.dumps(ordered, indent=2, ensure_ascii=False) + "\n"
