# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A failover drill: the configuration of a throw-away copy of the second site's copy, and the evaluation of the drill.
Pure.

The drill treats the origin as lost and never queries it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from ..nats.stored_message import SOURCE_HEADER, message_headers
from ..units import human_bytes, human_seconds
from .failover import END_MIRROR, END_SOURCES, MIRROR_CAN_END, TAKE_OVER, take_over_config
from .record import Drill
from .status import MIRROR, copy_kind

#: Metadata key of a throw-away copy; its value is the stream's name. Streams without it are never deleted.
MARK = "nats_dr_drill"

#: Settings that would reach clients, remove messages, or apply only to the copy itself.
_LEFT_OUT = (
    *("mirror", "mirror_direct", "sources", "subjects", "republish", "subject_transform", "metadata", "description"),
    *("max_age", "allow_msg_ttl", "subject_delete_marker_ttl", "deny_delete", "deny_purge"),
)

Message = Mapping[str, Any]


@dataclass(frozen=True)
class Counted:
    """The number of the copy's messages up to the last one that the drill copied: at most `before` at the start of the
    drill, and `after` at its end."""

    before: int
    after: int


def drill_name(stream: str) -> str:
    """Return the name of the throw-away copy of a stream."""
    return f"NATS_DR_DRILL_{stream}"


def drill_subject(stream: str) -> str:
    """Return the subject of the promoted throw-away copy, which clients do not use."""
    return f"nats_dr.drill.{stream}"


def is_left(config: Mapping[str, Any], stream: str) -> bool:
    """Return whether a stream is a throw-away copy of this one, for example one that a killed run left behind."""
    return bool((config.get("metadata") or {}).get(MARK) == stream)


def drill_method(copy: Mapping[str, Any], stream: str, release: tuple[int, int]) -> str:
    """Return the method of promoting the throw-away copy: the same as for the copy itself, if the servers can end a
    mirror."""
    if release < MIRROR_CAN_END:
        return TAKE_OVER
    return END_MIRROR if copy_kind(copy, stream) == MIRROR else END_SOURCES


def drill_config(copy: Mapping[str, Any], stream: str, method: str, first_seq: int) -> dict[str, Any]:
    """Return the configuration of the throw-away copy, which copies the messages of the copy at the site."""
    own = {key: value for key, value in copy.items() if key not in _LEFT_OUT}
    if method == TAKE_OVER:
        result = take_over_config(own, drill_name(stream), first_seq)
    else:
        result = {**own, "name": drill_name(stream), "mirror": {"name": copy["name"]}}
    return {**result, "metadata": {MARK: stream}, "description": f"Drill of a failover of {stream}; can be deleted"}


def isolated(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the origin's settings for the promoted throw-away copy, without settings that would affect clients."""
    return {key: value for key, value in config.items() if key not in _LEFT_OUT}


def isolated_consumer(config: Mapping[str, Any], stream: str) -> dict[str, Any]:
    """Return the configuration of a consumer of the throw-away copy. A push consumer gets an unused delivery subject,
    because its own would reach clients."""
    if not config.get("deliver_subject"):
        return dict(config)
    return {**config, "deliver_subject": f"{drill_subject(stream)}.deliver.{config['name']}"}


def no_room(account: Mapping[str, Any], config: Mapping[str, Any], size: int) -> str:
    """Return why the account has no room for another copy, or an empty text if it has room. `account`: its JetStream
    limits and usage."""
    replicas = config.get("num_replicas") or 1
    tiers = account.get("tiers") or {}
    tier = tiers.get(f"R{replicas}", account)
    kind = "memory" if config.get("storage") == "memory" else "storage"
    limit = (tier.get("limits") or {}).get(f"max_{kind}", -1)
    # A tier counts the stored bytes once; without tiers, each replica counts.
    needed = size if tiers else size * replicas
    free = limit - int(tier.get(kind) or 0)
    if limit is None or limit < 0 or needed <= free:
        return ""
    return (
        f"a throw-away copy needs {human_bytes(needed)} of {kind}, but the account has only "
        f"{human_bytes(max(0, free))} left"
    )


def sample(first: int, last: int, count: int) -> list[int]:
    """Return at most `count` sequences, evenly spread, including the first and the last."""
    total = last - first + 1
    if total <= count:
        return list(range(first, last + 1))
    if count < 2:
        return [last][:count]
    return sorted({first + round(number * (total - 1) / (count - 1)) for number in range(count)})


def miscounted(messages: int, counted: Counted) -> str:
    """Return why the number of messages is wrong, or an empty text if it is plausible. The site's copy changes during
    the drill."""
    if messages < counted.after:
        return (
            f"the throw-away copy has {messages} messages, but the site's copy has {counted.after} up to the same "
            "sequence"
        )
    if messages > counted.before:
        return f"the throw-away copy has {messages} messages, but the site's copy had at most {counted.before}"
    return ""


def another(copied: Message, drilled: Message) -> str:
    """Return the difference between a message of the throw-away copy and the same message of the copy, or an empty text
    if there is none."""
    for key in ("subject", "data"):
        if (copied.get(key) or "") != (drilled.get(key) or ""):
            return key
    one, other = (
        {name: values for name, values in message_headers(message).items() if name.lower() != SOURCE_HEADER.lower()}
        for message in (copied, drilled)
    )
    return "" if one == other else "headers"


def drill_lines(name: str, site: str, drill: Drill, compared: int) -> list[str]:
    """Return the result of a drill for operators."""
    if not drill.ok:
        return [f"{name}: the drill failed: {drill.reason}"]
    return [
        f"{name}: {site} can take over: served {human_seconds(drill.seconds)} after the promotion ({drill.method}), "
        f"with {drill.consumers} consumers at their floors",
        f"{name}: {drill.messages} messages, all that the site has up to the origin's sequence {drill.position}; "
        f"{compared} of them compared",
        f"{name}: the throw-away copy was filled in {human_seconds(drill.copied)} and has been removed",
    ]


def plan_line(name: str, site: str, method: str, size: int, replicas: int, consumers: Sequence[str]) -> str:
    """Return the plan of a drill for operators."""
    names = ", ".join(consumers) or "none"
    return (
        f"{name}: a throw-away copy of {human_bytes(size * replicas)} at {site} would be promoted ({method}) with the "
        f"consumers {names}, compared and removed"
    )


def stream_bytes(info: Optional[Mapping[str, Any]]) -> int:
    """Return the bytes of a stream."""
    return int(((info or {}).get("state") or {}).get("bytes") or 0)
