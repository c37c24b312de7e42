# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Promotion of the copy of a stream, and its refusals. Pure.

A promotion while the origin accepts messages splits the stream into two that cannot be merged. So nothing is promoted
unless the origin was observed to accept no messages, or the operator declares the origin dead by giving its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Optional

from ..units import human_seconds
from .record import Checkpoint, Failover, fenced_subject, is_fenced, saved_consumer
from .status import (
    DIVERGED,
    MIRROR,
    MISSING,
    SITE_SILENT,
    UNRELATED,
    Loss,
    Protected,
    SideReading,
    StreamStatus,
    copy_kind,
)

#: How the origin is fenced: its stream gets an unused subject; the stream is sealed; clients may not publish to it; or
#: the origin is dead.
SUBJECTS, SEALED, PERMISSIONS, DEAD = "subjects", "sealed", "permissions", "dead"
FENCES = (SUBJECTS, SEALED, PERMISSIONS, DEAD)

#: How a copy is promoted: its mirror is ended; its sources are removed; or another stream takes over its messages.
END_MIRROR, END_SOURCES, TAKE_OVER = "end mirror", "end sources", "take over"

#: The first version in which an update may end a mirror (nats-server#7171).
MIRROR_CAN_END = (2, 12)

#: Settings that clients rely on and that a mirror does not copy from its origin.
_CLIENT_SETTINGS = (
    "allow_atomic",
    "allow_direct",
    "allow_msg_ttl",
    "allow_rollup_hdrs",
    "duplicate_window",
    "max_msg_size",
    "republish",
    "subject_transform",
)

#: The shortest duplicate window in nanoseconds: the messages taken over were already stored at the origin, so none may
#: be dropped as a duplicate.
SHORTEST_WINDOW = 100_000_000


class FailoverRefusal(Exception):
    """A reason against a failover. `code` is for programs."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True)
class FailoverOptions:
    """The options of a failover. `dead`: the name of the origin if the operator declares it dead. `allow_loss`:
    continue if the site does not catch up. `max_loss`: maximum number of lost messages, None for any number."""

    fence: str
    dead: str = ""
    allow_loss: bool = False
    max_loss: Optional[int] = None
    consumers: bool = True


@dataclass(frozen=True)
class FailoverPlan:
    """The steps of a failover for one stream."""

    protected: Protected
    fence: str
    method: str
    target: str
    subjects: tuple[str, ...]
    promised: Loss
    consumers: tuple[dict[str, Any], ...]
    origin_config: dict[str, Any]
    caveats: tuple[str, ...]


def plan_failover(
    status: StreamStatus,
    origin: SideReading,
    site: SideReading,
    checkpoint: Optional[Checkpoint],
    release: tuple[int, int],
    origin_name: str,
    wanted: FailoverOptions,
) -> FailoverPlan:
    """Return the steps for one stream. `release` is the version of the site's servers. Raises FailoverRefusal."""
    protected = status.protected
    _require_copy(status)
    require_fence(protected, origin, origin_name, wanted)
    config = _origin_config(protected, origin, checkpoint, wanted)
    subjects = protected.subjects or tuple(config.get("subjects") or ())
    if not subjects or list(subjects) == [fenced_subject(protected.stream)]:
        raise FailoverRefusal(
            "no_subjects",
            f"the subjects of {protected.stream} are unknown; set them with `subjects`, otherwise its copy would only "
            "accept messages on its own name",
        )
    if wanted.max_loss is not None and status.loss.messages > wanted.max_loss:
        raise FailoverRefusal(
            "loss", f"{status.loss.text} would be lost; the limit is {wanted.max_loss} messages (max_loss_messages)"
        )
    method = promotion(site.info["config"] if site.info else {}, protected.stream, release)
    target = _target(protected, method)
    consumers = _consumers(origin, checkpoint) if wanted.consumers else ()
    caveats = _caveats(config, method, target, consumers, origin, checkpoint, status)
    return FailoverPlan(
        protected, wanted.fence, method, target, subjects, status.loss, consumers, config, tuple(caveats)
    )


def _require_copy(status: StreamStatus) -> None:
    if status.state in (SITE_SILENT, MISSING, UNRELATED, DIVERGED):
        raise FailoverRefusal("no_copy", status.problems[0])


def require_fence(protected: Protected, origin: SideReading, origin_name: str, wanted: FailoverOptions) -> None:
    """Raise FailoverRefusal unless the origin accepts no messages, as far as that can be checked before anything is changed."""
    if wanted.fence == DEAD:
        if wanted.dead != origin_name:
            raise FailoverRefusal(
                "not_fenced", f"dead: must be the lost origin, {origin_name}, not {wanted.dead or 'empty'}"
            )
        if not origin.problem:
            raise FailoverRefusal(
                "origin_answers",
                f"{origin_name} is declared dead but answers for stream {protected.stream}. Stop its servers, or "
                "fence it with `fence: subjects`",
            )
        return
    if origin.problem:
        raise FailoverRefusal(
            "origin_silent",
            f"{origin_name} does not answer ({origin.problem}), so it may still be accepting messages. Once its "
            f"servers are stopped and cannot start by themselves, confirm it: `fence: dead` with `dead: {origin_name}`",
        )
    if origin.info is None:
        raise FailoverRefusal("no_copy", f"{origin_name} has no stream {protected.stream}")
    if wanted.fence == SEALED and not origin.info["config"].get("sealed"):
        raise FailoverRefusal(
            "not_fenced", f"stream {protected.stream} of {origin_name} is not sealed and accepts messages"
        )


def require_still(before: int, after: int, protected: Protected, seconds: float) -> None:
    """Raise FailoverRefusal if the origin stored messages while it was being watched."""
    if after != before:
        raise FailoverRefusal(
            "not_fenced",
            f"stream {protected.stream} received {after - before} messages within {seconds:g} seconds; revoke its "
            "clients' permission to publish, or fence it with `fence: subjects`",
        )


def _origin_config(
    protected: Protected, origin: SideReading, checkpoint: Optional[Checkpoint], wanted: FailoverOptions
) -> dict[str, Any]:
    if origin.info is not None and not is_fenced(origin.info["config"], protected.stream):
        return dict(origin.info["config"])
    if checkpoint is not None:
        return dict(checkpoint.config)
    if protected.subjects and not wanted.consumers:
        return {"subjects": list(protected.subjects)}
    raise FailoverRefusal(
        "no_checkpoint",
        f"the origin of {protected.stream} does not answer and there is no checkpoint of it: its subjects and "
        "consumers are unknown. Set `subjects`, and `consumers: false`; clients then create their consumers "
        "themselves",
    )


def promotion(config: Mapping[str, Any], stream: str, release: tuple[int, int]) -> str:
    """Return the method by which servers of a release can promote a copy."""
    if copy_kind(config, stream) != MIRROR:
        return END_SOURCES
    return END_MIRROR if release >= MIRROR_CAN_END else TAKE_OVER


def _target(protected: Protected, method: str) -> str:
    if method != TAKE_OVER:
        return protected.copy
    target = protected.promoted or protected.stream
    if target == protected.copy:
        raise FailoverRefusal(
            "needs_name",
            "before nats-server 2.12 a mirror cannot be promoted, so another stream must take over the messages of "
            f"{protected.copy}: name it with `promoted`",
        )
    return target


def _consumers(origin: SideReading, checkpoint: Optional[Checkpoint]) -> tuple[dict[str, Any], ...]:
    """Return the consumers and their positions, from the origin if it responds, otherwise from the checkpoint."""
    saved = {entry["name"]: entry for entry in checkpoint.consumers} if checkpoint else {}
    if origin.problem or origin.info is None:
        return tuple(saved.values())
    lost = [name for name in origin.unknown if name not in saved]
    if lost:
        raise FailoverRefusal(
            "leaderless",
            f"consumers that have no checkpoint and whose leader does not answer: {', '.join(sorted(lost))}. Restore "
            "the leaders, or delete these consumers",
        )
    found = {name: saved_consumer(info) for name, info in origin.consumers.items()}
    found.update({name: saved[name] for name in origin.unknown})
    return tuple(found[name] for name in sorted(found))


def durable(consumers: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the consumers that are created at the site; clients create the others themselves."""
    return [entry for entry in consumers if entry["config"].get("durable_name")]


def floor_at(entry: Mapping[str, Any], position: int) -> int:
    """Return the ack floor for a consumer, in the origin's sequences.

    The floor is never above the site's last sequence: the next messages there get the sequences of the lost messages,
    and a consumer that started after those sequences would skip the new messages."""
    return min(int(entry["ack_floor"]["stream_seq"]), position)


def again(entry: Mapping[str, Any], position: int) -> int:
    """Return the maximum number of messages delivered again to a consumer: those delivered above its ack floor."""
    return max(0, min(int(entry["delivered"]["stream_seq"]), position) - floor_at(entry, position))


def promoted_config(config: Mapping[str, Any], plan: FailoverPlan | Failover) -> dict[str, Any]:
    """Return the configuration with which a stream serves at the site: no mirror or sources, and always with subjects.
    Without subjects, a server would use the stream's name as its subject."""
    result = {key: value for key, value in config.items() if key not in ("mirror", "mirror_direct", "sources")}
    result.update({key: plan.origin_config[key] for key in _CLIENT_SETTINGS if plan.origin_config.get(key)})
    result["subjects"] = list(plan.subjects)
    return result


def take_over_config(config: Mapping[str, Any], target: str, first_seq: int) -> dict[str, Any]:
    """Return the configuration of a stream that takes over the messages of a mirror, beginning with the same sequence."""
    result = {key: value for key, value in config.items() if key not in ("mirror", "mirror_direct", "subjects")}
    result.update(name=target, sources=[{"name": config["name"]}], duplicate_window=SHORTEST_WINDOW)
    if first_seq > 1:
        result["first_seq"] = first_seq
    return result


def _caveats(
    config: Mapping[str, Any],
    method: str,
    target: str,
    consumers: Sequence[Mapping[str, Any]],
    origin: SideReading,
    checkpoint: Optional[Checkpoint],
    status: StreamStatus,
) -> list[str]:
    found = []
    window = (config.get("duplicate_window") or 0) / 1e9
    if window:
        found.append(
            f"{target} has no complete record of message ids: a message resent within the duplicate window of "
            f"{human_seconds(window)} may be stored again"
        )
    if method != END_MIRROR:
        found.append("messages carry the time of their arrival at the site, and max_age counts from it")
    retention = config.get("retention", "limits")
    if retention != "limits":
        found.append(
            f"the origin has the retention {retention}, but its copy at the site has the retention limits: "
            "acknowledged messages are not deleted"
        )
    if origin.problem and checkpoint is not None and consumers:
        age = "" if status.checkpoint_age is None else f", {human_seconds(max(0.0, status.checkpoint_age))} ago"
        found.append(f"consumers resume at their checkpoint positions{age}")
    left = sorted(entry["name"] for entry in consumers if not entry["config"].get("durable_name"))
    if left:
        found.append(f"ephemeral consumers must be recreated by their clients: {', '.join(left)}")
    return found


def plan_lines(plan: FailoverPlan, origin: str, site: str) -> list[str]:
    """Return the planned steps for operators."""
    stream = plan.protected.name
    at_origin = f"stream {plan.protected.stream} of {origin}"
    fences = {
        SUBJECTS: f"the subjects of {at_origin} are replaced by {fenced_subject(plan.protected.stream)}",
        SEALED: f"{at_origin} is sealed",
        PERMISSIONS: f"{at_origin} is watched and must not accept a message",
        DEAD: f"{origin} is declared dead and does not answer",
    }
    promotions = {
        END_MIRROR: f"{plan.target} of {site} stops mirroring",
        END_SOURCES: f"{plan.target} of {site} removes its sources",
        TAKE_OVER: f"{plan.target} of {site} is created and takes over the messages of {plan.protected.copy}",
    }
    names = ", ".join(entry["name"] for entry in durable(plan.consumers)) or "none"
    return [
        f"{stream}: fence: {fences[plan.fence]}",
        f"{stream}: promote: {promotions[plan.method]} and accepts messages on {', '.join(plan.subjects)}",
        f"{stream}: consumers: {names}",
        f"{stream}: loss if it failed over now: {plan.promised.text}",
        *(f"{stream}: note: {caveat}" for caveat in plan.caveats),
    ]


def promise(loss: Loss) -> dict[str, Any]:
    """Return the part of the expected loss that is stored."""
    return asdict(loss)
