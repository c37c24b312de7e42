# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock of a cluster: one operation at a time.

Each host keeps one lock. An operation needs the locks of more than half of a cluster's hosts, so two operations can
never run at the same time. A lock is valid until it expires, or until the run that took it is proven to have ended.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Callable, Optional, Union

from ..maintenance import utc

#: The owner of a lock, see `host.controller`. Locks written by other programs may contain any text.
Owner = Union[Mapping[str, Any], str]
#: The content of a lock file: owner, purpose, since and expires (epoch seconds of the host), and resume, the variable
#: with which an interrupted run resumes, if it needs one; None if the lock is free.
Holder = Optional[Mapping[str, Any]]


@dataclass(frozen=True)
class LockRequest:
    """A request to acquire or release the lock of one host. `release`: release the lock instead of acquiring it.
    `resume`: the variable with which the run resumes. `break_foreign`: proceed even if a different owner holds the lock.
    `take_over_from`: an owner whose process has ended, so its lock is free.
    """

    owner: Owner
    purpose: str = ""
    ttl: int = 3600
    release: bool = False
    break_foreign: bool = False
    take_over_from: Owner | None = None
    resume: str = ""


@dataclass(frozen=True)
class LockDecision:
    """Whether the cluster is locked, the hosts that are locked, and why the operation is refused (empty if it is not)."""

    acquired: bool
    hosts: tuple[str, ...]
    refusal: str


def resolve_holder(held: Holder, request: LockRequest, now: float) -> Holder:
    """Return the holder of a host's lock after the request. `held`: the holder before the request, `now`: the time of
    the host's clock."""
    foreign = held is not None and held["owner"] != request.owner
    if foreign and not request.break_foreign and (held is None or held["owner"] != request.take_over_from):
        return held
    if request.release:
        return None
    since = held["since"] if held is not None and not foreign else int(now)
    resume = {"resume": request.resume} if request.resume else {}
    expires = int(now) + request.ttl
    return {"owner": request.owner, "purpose": request.purpose, "since": since, "expires": expires, **resume}


def may_take_over(holder: Owner, owner: Owner, running: bool | None) -> bool:
    """Return whether the lock of `holder` is free to take. `running`: whether its process is running, None if unknown.

    The lock is free if the process has ended; a running process always keeps its lock. If neither is known, the lock is
    free if both owners have the same name: that of a scheduler, which never runs an operation twice at the same time.
    """
    if running is not None:
        return not running
    if isinstance(holder, str) or isinstance(owner, str):
        return False
    return bool(owner.get("name")) and holder.get("name") == owner.get("name")


def resolve_lock(
    answers: Sequence[Mapping[str, Any]],
    members: Collection[str],
    now: float,
    is_running: Callable[[Owner], Optional[bool]] = lambda owner: None,
) -> LockDecision:
    """Return whether the `members` of a cluster are locked, which requires more than half of them.

    `answers`: results of nats_host_lock with the host as `item`; results without `acquired` are from hosts that could
    not be locked. `valid_until` is when an acquired lock ends, measured by the same clock as `now`. Only the latest
    result of a host counts. `is_running`: whether the process of an owner is running, None if unknown.
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
    unlocked = {host: latest.get(host, {}) for host in sorted(set(members).difference(locked))}
    holders = lock_holders({host: answer["holder"] for host, answer in unlocked.items() if _is_foreign(answer)})
    lines += [holder.line(is_running(holder.owner)) for holder in holders]
    lines += [_why_not(host, answer) for host, answer in unlocked.items() if not _is_foreign(answer)]
    if any(is_running(holder.owner) for holder in holders):
        lines.append("Wait until that operation has ended, and run the command again.")
    elif holders:
        lines.append(
            "Wait until that operation has ended. Only if its process is not running any more, break the lock with "
            "-e nats_cluster_lock_break=true: otherwise two operations change the cluster at the same time."
        )
    return LockDecision(False, locked, "\n".join(lines))


@dataclass(frozen=True)
class LockHolder:
    """An operation that holds the lock of `hosts`; times in epoch seconds of the hosts."""

    owner: Owner
    purpose: str
    since: float
    until: float
    hosts: tuple[str, ...]
    resume: str = ""

    def line(self, running: bool | None) -> str:
        """Return the holder as text for operators. `running`: whether its process is running, None if unknown."""
        if running is None:
            place = f" on {self.owner.get('controller') or '?'}" if not isinstance(self.owner, str) else ""
            state = f"whether its process is running can only be checked{place or ' where it was started'}"
        else:
            state = "its process is still running" if running else "its process has ended"
        if running is False:
            state += f". To resume it, run its command again{f' with -e {self.resume}' if self.resume else ''}"
        return (
            f"Locked by {owner_label(self.owner)} for {self.purpose} on {', '.join(self.hosts)}, since "
            f"{utc(self.since)}, until {utc(self.until)} at the latest; {state}."
        )


def lock_holders(held: Mapping[str, Mapping[str, Any]]) -> list[LockHolder]:
    """Return the operations that hold locks. `held`: host → the content of its lock file."""
    groups: dict[str, list[str]] = {}
    for host, holder in held.items():
        groups.setdefault(f"{owner_label(holder['owner'])} {holder['purpose']}", []).append(host)
    return [
        LockHolder(
            owner=held[hosts[0]]["owner"],
            purpose=held[hosts[0]]["purpose"],
            since=min(held[host]["since"] for host in hosts),
            until=max(held[host]["expires"] for host in hosts),
            hosts=tuple(hosts),
            resume=max(str(held[host].get("resume") or "") for host in hosts),
        )
        for hosts in groups.values()
    ]


def seen_holder(answer: Mapping[str, Any]) -> Holder:
    """Return who holds the lock of a host, from a result of nats_host_lock in check mode; None if the lock is free or
    unknown."""
    held: Holder = answer.get("broken") if answer.get("acquired") else answer.get("holder")
    return held


def lock_share(host: str, members: Sequence[str], play_hosts: Sequence[str], active: Collection[str]) -> list[str]:
    """Return the hosts that `host` locks: itself, and its share of the cluster's `members` outside the play.

    `play_hosts`: all hosts of the play; `active`: those that have not failed, which is empty after an error that is
    fatal for all hosts."""
    inside = [name for name in members if name in play_hosts]
    takers = [name for name in inside if name in active] or inside or list(play_hosts[:1])
    outside = [name for name in members if name not in play_hosts]
    return [host, *(outside[takers.index(host) :: len(takers)] if host in takers else [])]


def owner_label(owner: Owner) -> str:
    """Return an owner as text for operators, such as `nightly: ops@ctl process 4711`."""
    if isinstance(owner, str):
        return owner
    name = f"{owner['name']}: " if owner.get("name") else ""
    return f"{name}{owner.get('user') or '?'}@{owner.get('controller') or '?'} process {owner.get('pid') or '?'}"


def _is_foreign(answer: Mapping[str, Any]) -> bool:
    return bool(answer.get("holder")) and not answer.get("acquired")


def _why_not(host: str, answer: Mapping[str, Any]) -> str:
    if answer.get("acquired"):
        return f"The lock on {host} has expired."
    return f"{host}: {answer.get('msg') or 'no answer'}"
