# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock of a cluster: one operation at a time.

Each host keeps one lock. Whoever holds it on more than half of a cluster's hosts may operate the cluster, so that two operations
never can at the same time. A lock counts until it expires, or until it is proven that the run which took it has ended.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

#: Who takes a lock, see `host.controller`. One that another program wrote may be any text.
Owner = Union[Mapping[str, Any], str]
#: What the file of a lock holds: owner, purpose, since and expires (epoch seconds of the host); None for nobody's.
Holder = Optional[Mapping[str, Any]]


@dataclass(frozen=True)
class LockRequest:
    """What is asked of the lock of one host. `release`: give it back. `break_foreign`: whoever holds it. `take_over_from`: an
    owner that is known to have ended, so that its lock is nobody's."""

    owner: Owner
    purpose: str = ""
    ttl: int = 3600
    release: bool = False
    break_foreign: bool = False
    take_over_from: Owner | None = None


@dataclass(frozen=True)
class LockDecision:
    """Whether the cluster is locked, the hosts on which it is, and why the operation is refused (empty when it is not)."""

    acquired: bool
    hosts: tuple[str, ...]
    refusal: str


def resolve_holder(held: Holder, request: LockRequest, now: float) -> Holder:
    """Return who holds the lock of a host afterwards. `held`: who did, `now`: the host's clock."""
    foreign = held is not None and held["owner"] != request.owner
    if foreign and not request.break_foreign and (held is None or held["owner"] != request.take_over_from):
        return held
    if request.release:
        return None
    since = held["since"] if held is not None and not foreign else int(now)
    return {"owner": request.owner, "purpose": request.purpose, "since": since, "expires": int(now) + request.ttl}


def may_take_over(holder: Owner, owner: Owner, running: bool | None) -> bool:
    """Return whether the lock of `holder` is nobody's. `running`: whether its process runs, None where that cannot be known.

    It is when its process has ended, or when it was taken under the name of `owner`: that of a scheduler which never starts an
    operation twice at a time. A process that is seen to run keeps its lock in any case.
    """
    if running is not None:
        return not running
    if isinstance(holder, str) or isinstance(owner, str):
        return False
    return bool(owner.get("name")) and holder.get("name") == owner.get("name")


def resolve_lock(answers: Sequence[Mapping[str, Any]], members: Collection[str], now: float) -> LockDecision:
    """Return whether the `members` of a cluster are locked.

    `answers`: results of nats_host_lock with the host as `item`; those without `acquired` are of hosts that could not be locked,
    `valid_until` is when a lock that was acquired ends, by the clock of `now`. Where a host was asked more than once, its latest
    answer counts. More than half of the members are needed.
    """
    latest: dict[str, Mapping[str, Any]] = {}
    for answer in sorted(answers, key=lambda one: one.get("valid_until", 0)):
        if answer["item"] in members:
            latest[answer["item"]] = answer
    locked = tuple(
        host for host in sorted(latest) if latest[host].get("acquired") and latest[host].get("valid_until", 0) > now
    )
    if len(locked) * 2 > len(members):
        return LockDecision(True, locked, "")
    lines = [
        f"The cluster could not be locked; nothing was changed. Locked hosts: {len(locked)} of {len(members)}; more "
        "than half are needed."
    ]
    for host in sorted(set(members).difference(locked)):
        line = _why_not(host, latest.get(host, {}))
        if line not in lines:
            lines.append(line)
    lines.append("If that operation has ended, break the lock with -e nats_cluster_lock_break=true.")
    return LockDecision(False, locked, "\n".join(lines))


def owner_label(owner: Owner) -> str:
    """Return an owner for people, such as `nightly: ops@ctl process 4711`."""
    if isinstance(owner, str):
        return owner
    name = f"{owner['name']}: " if owner.get("name") else ""
    return f"{name}{owner.get('user') or '?'}@{owner.get('controller') or '?'} process {owner.get('pid') or '?'}"


def _why_not(host: str, answer: Mapping[str, Any]) -> str:
    holder = answer.get("holder")
    if answer.get("acquired"):
        return f"The lock on {host} has expired."
    if holder:
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(holder["expires"]))
        return f"It is locked by {owner_label(holder['owner'])} for {holder['purpose']} until {until}."
    return f"{host}: {answer.get('msg') or 'no answer'}"
