# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lag of a second site behind the origin of a stream, and the expected loss if the origin failed now. Pure.

A mirror without its origin reports a lag of 0 forever, and only the time since the last contact grows (stream.go
streamInfo). So the loss is known only while both sides respond."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Optional

from ..backup.selection import CLOCK_SKEW
from ..screen import Page, listing
from ..table import table_page
from ..times import parse_time
from ..units import counted, human_seconds
from .record import Checkpoint, Drill, Failover, is_fenced, saved_consumer

Info = Mapping[str, Any]

#: How the stream at the site copies messages.
MIRROR, SOURCES = "mirror", "sources"

#: The states: in step; messages are in transfer; the site receives nothing although the origin responds; the origin
#: does not respond; the site does not respond; the site has no stream, or one that copies a different stream; the site
#: has messages that the origin lacks; the site has replaced the origin.
FOLLOWING, BEHIND, DISCONNECTED, ORIGIN_SILENT = "following", "behind", "disconnected", "origin silent"
SITE_SILENT, MISSING, UNRELATED, DIVERGED, PROMOTED = "site silent", "missing", "unrelated", "diverged", "promoted"
IN_ORDER = (FOLLOWING, BEHIND, PROMOTED)

#: Seconds without a heartbeat, which is sent every second, after which a mirror has lost its origin.
SILENCE = 10.0


@dataclass(frozen=True)
class Protected:
    """A stream of the origin and its copy at the site. `account`: None for the account of the task's user. `promoted`:
    the name of the stream that replaces the origin if the copy itself cannot be promoted (before 2.12). `subjects`: the
    subjects at the site; empty for the subjects of the origin."""

    account: Optional[str]
    stream: str
    copy: str
    promoted: str = ""
    subjects: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.account}/{self.stream}" if self.account else self.stream


@dataclass(frozen=True)
class SideReading:
    """The data read from one side. `problem`: why the side did not respond, otherwise empty. `info`: its STREAM.INFO,
    None if the stream does not exist. `consumers`: their CONSUMER.INFO by name. `unknown`: consumers whose leader does
    not respond, with the reason.

    `position` (site only): the origin's sequence up to which the site has the messages, None if unknown. `oldest`
    (origin only): when the origin stored the first message that the site lacks, None if the site lacks none."""

    problem: str = ""
    info: Optional[Info] = None
    consumers: Mapping[str, Info] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    position: Optional[int] = None
    oldest: Optional[str] = None

    @property
    def last_seq(self) -> int:
        return int(self.info["state"]["last_seq"]) if self.info else 0

    @property
    def last_time(self) -> str:
        """Return when the newest message was stored, or an empty text if there is none."""
        return str(self.info["state"].get("last_ts") or "") if self.info and self.last_seq else ""


@dataclass(frozen=True)
class Loss:
    """The loss if the origin failed now. `known`: if true, `messages` is the maximum, otherwise the minimum. `seconds`:
    for how long the site has lacked messages, None if unknown. `since`: when the origin stored the newest message that
    the site has."""

    known: bool
    messages: int
    seconds: Optional[float]
    since: str
    text: str


@dataclass(frozen=True)
class ConsumerFloor:
    """The ack floor of a consumer: at the origin (None if the origin does not respond), and in the checkpoint (None if
    there is none)."""

    name: str
    origin: Optional[int]
    saved: Optional[int]


@dataclass(frozen=True)
class StreamStatus:
    """The state of one stream. `contact`: seconds since the site's last contact with the origin, None if not reported.
    `drill_age`: seconds since the last successful drill, None if there was none."""

    protected: Protected
    state: str
    position: Optional[int]
    behind: Optional[int]
    seconds_behind: Optional[float]
    contact: Optional[float]
    loss: Loss
    consumers: tuple[ConsumerFloor, ...]
    checkpoint_age: Optional[float]
    problems: tuple[str, ...]
    drill: Optional[Drill] = None
    drill_age: Optional[float] = None

    @property
    def in_order(self) -> bool:
        return self.state in IN_ORDER and not self.problems

    def as_dict(self) -> dict[str, Any]:
        row = asdict(self)
        protected = row.pop("protected")
        own = {"name": self.protected.name, "account": protected["account"], "stream": protected["stream"]}
        return {**own, "copy": protected["copy"], **row, "in_order": self.in_order}


@dataclass(frozen=True)
class RecoveryLimits:
    """The accepted loss, and the maximum age of a checkpoint and of the last successful drill; None for no limit."""

    messages: Optional[int] = None
    seconds: Optional[float] = None
    checkpoint: Optional[float] = None
    drill: Optional[float] = None


#: No limits are set.
ANY = RecoveryLimits()


def copy_kind(config: Info, stream: str) -> str:
    """Return the way in which this configuration copies `stream`: MIRROR, SOURCES, or an empty text if it does not."""
    if (config.get("mirror") or {}).get("name") == stream:
        return MIRROR
    return SOURCES if any(entry.get("name") == stream for entry in config.get("sources") or ()) else ""


def upstream(info: Info, stream: str) -> Info:
    """Return the site's report on the origin: lag, active (nanoseconds, -1 for never), error; empty if it reports
    nothing."""
    found = [info.get("mirror"), *(info.get("sources") or ())]
    return next((entry for entry in found if entry and entry.get("name") == stream), {})


def last_contact(info: Info, stream: str) -> Optional[float]:
    """Return the seconds since the site's last contact with the origin, None for never."""
    active = upstream(info, stream).get("active", -1)
    return None if active < 0 else active / 1e9


def judge(
    protected: Protected,
    origin: SideReading,
    site: SideReading,
    checkpoint: Optional[Checkpoint] = None,
    failover: Optional[Failover] = None,
    limits: RecoveryLimits = ANY,
    drill: Optional[Drill] = None,
    fenced: bool = False,
    serving: bool = False,
) -> StreamStatus:
    """Return the state of one stream. The site was read before the origin, so the real lag is not larger than the
    calculated one. `fenced`: an interrupted failback left the promoted stream without its subjects. `serving`: the
    promoted stream accepts messages."""
    promoted = failover is not None and (failover.done or serving)
    state = PROMOTED if promoted else _state(protected, origin, site)
    contact = last_contact(site.info, protected.stream) if site.info else None
    behind = _behind(origin, site) if state in (FOLLOWING, BEHIND, DISCONNECTED) else None
    seconds = _seconds_behind(origin) if behind is not None else None
    loss = _loss(protected, state, site, checkpoint, behind, seconds, contact)
    now = _now(site) or _now(origin)
    age = _age(now, checkpoint.taken if checkpoint else "")
    proven = _age(now, drill.proven if drill else "")
    if fenced:
        accepting = _accepting(protected, origin, False)
        problems = [f"the failback of stream {protected.stream} is unfinished, and {accepting}: run it again"]
    elif promoted and failover is not None:
        problems = _split_brain(protected, origin, failover)
    else:
        problems = _problems(protected, state, origin, site, loss, checkpoint, age, limits)
    if failover is not None and not failover.done:
        problems.append(_unfinished(protected, origin, serving))
    if not promoted:
        problems += _unproven(drill, proven, limits)
    floors = () if promoted else _floors(origin, checkpoint)
    return StreamStatus(
        protected, state, site.position, behind, seconds, contact, loss, floors, age, tuple(problems), drill, proven
    )


def _state(protected: Protected, origin: SideReading, site: SideReading) -> str:
    if site.problem:
        return SITE_SILENT
    if site.info is None:
        return MISSING
    if not copy_kind(site.info["config"], protected.stream) or site.position is None:
        return UNRELATED
    if origin.problem:
        return ORIGIN_SILENT
    if origin.info is None or site.position > origin.last_seq:
        return DIVERGED
    contact = last_contact(site.info, protected.stream)
    if contact is None or contact > SILENCE or upstream(site.info, protected.stream).get("error"):
        return DISCONNECTED
    return BEHIND if _behind(origin, site) else FOLLOWING


def _behind(origin: SideReading, site: SideReading) -> int:
    """Return the maximum number of messages that the site lacks; the true number may be smaller, because sequences may
    have gaps."""
    return 0 if origin.oldest is None else max(0, origin.last_seq - (site.position or 0))


def _seconds_behind(origin: SideReading) -> float:
    now = _now(origin)
    if origin.oldest is None or now is None:
        return 0.0
    return max(0.0, now - parse_time(origin.oldest).timestamp())


def _now(reading: SideReading) -> Optional[float]:
    """Return the time of the server that responded."""
    stamp = (reading.info or {}).get("ts")
    return parse_time(stamp).timestamp() if stamp else None


def _loss(
    protected: Protected,
    state: str,
    site: SideReading,
    checkpoint: Optional[Checkpoint],
    behind: Optional[int],
    seconds: Optional[float],
    contact: Optional[float],
) -> Loss:
    since = site.last_time
    if state == PROMOTED:
        return Loss(True, 0, 0.0, since, "nothing: the site serves the stream")
    if behind is not None:
        if not behind:
            return Loss(True, 0, 0.0, since, "nothing")
        text = f"at most {counted(behind, 'message')}, from the last {human_seconds(seconds or 0.0)}"
        return Loss(True, behind, seconds, since, text)
    if site.info is None:
        known = checkpoint.messages if checkpoint else 0
        return Loss(False, known, None, "", "unknown" if site.problem else "everything")
    position = site.position or 0
    reported = int(upstream(site.info, protected.stream).get("lag") or 0)
    least = max(reported, checkpoint.last_seq - position if checkpoint else 0, 0)
    text = f"unknown, at least {counted(least, 'message')}: those that the origin stored after sequence {position}"
    if since:
        text += f" of {since[:19]}Z"
    if contact is not None:
        text += f"; last contact {human_seconds(contact)} ago"
    return Loss(False, least, contact, since, text)


def _problems(
    protected: Protected,
    state: str,
    origin: SideReading,
    site: SideReading,
    loss: Loss,
    checkpoint: Optional[Checkpoint],
    age: Optional[float],
    limits: RecoveryLimits,
) -> list[str]:
    found = []
    if state == SITE_SILENT:
        found.append(f"the site does not answer for stream {protected.copy}: {site.problem}")
    elif state == MISSING:
        found.append(f"there is no stream {protected.copy} at the site; create it with `mirror` or `sources`")
    elif state == UNRELATED:
        found.append(f"stream {protected.copy} at the site is not a copy of {protected.stream} alone")
    elif state == DIVERGED:
        found.append(
            f"stream {protected.copy} has messages up to sequence {site.position}, the origin up to {origin.last_seq}: the "
            "origin was deleted, recreated or restored"
            if origin.info
            else f"the origin has no stream {protected.stream}"
        )
    elif state == DISCONNECTED:
        error = (upstream(site.info or {}, protected.stream).get("error") or {}).get("description")
        contact = last_contact(site.info or {}, protected.stream)
        seen = "no contact yet" if contact is None else f"last contact {human_seconds(contact)} ago"
        found.append(f"the site receives nothing from the origin, although the origin answers ({error or seen})")
    if origin.problem:
        found.append(f"the origin does not answer for stream {protected.stream}: {origin.problem}")
    if state == BEHIND or not loss.known:
        if limits.messages is not None and loss.messages > limits.messages:
            found.append(f"RPO exceeded: {counted(loss.messages, 'message')}, the limit is {limits.messages}")
        if limits.seconds is not None and (loss.seconds is None or loss.seconds > limits.seconds):
            seconds = "unknown" if loss.seconds is None else human_seconds(loss.seconds)
            found.append(f"RPO exceeded: {seconds}, the limit is {human_seconds(limits.seconds)}")
    if origin.unknown:
        found.append(f"consumers whose leader does not answer: {', '.join(sorted(origin.unknown))}")
    if checkpoint is None:
        if origin.consumers or origin.problem:
            found.append("there is no checkpoint: if the origin is lost, so are the positions of its consumers")
    elif _in_future(age):
        found.append(
            f"the checkpoint is dated in the future ({checkpoint.taken}): check the clocks, and save another one"
        )
    elif limits.checkpoint is not None and age is not None and age > limits.checkpoint:
        found.append(
            f"the checkpoint is {human_seconds(age)} old, the limit is {human_seconds(limits.checkpoint)}: consumers "
            "would receive again everything acknowledged since"
        )
    return found


def serves(protected: Protected, origin: SideReading) -> bool:
    """Return whether the origin is known to accept messages."""
    config = (origin.info or {}).get("config") or {}
    return bool(config) and not config.get("sealed") and not is_fenced(config, protected.stream)


def serves_promoted(config: Mapping[str, Any], failover: Failover) -> bool:
    """Return whether the stream with this configuration replaces the origin: it has the subjects and copies no other stream."""
    has_subjects = list(config.get("subjects") or ()) == list(failover.subjects)
    return has_subjects and not config.get("mirror") and not config.get("sources")


def _accepting(protected: Protected, origin: SideReading, serving: bool) -> str:
    """Return a clause that names the side that accepts messages. `serving`: whether the site accepts messages."""
    if serves(protected, origin):
        return "both sides accept messages" if serving else "the origin accepts messages"
    if serving:
        return "the site accepts messages"
    return "the origin does not answer" if origin.info is None else "neither side accepts messages"


def _unfinished(protected: Protected, origin: SideReading, serving: bool) -> str:
    accepting = _accepting(protected, origin, serving)
    return f"the failover of stream {protected.stream} is unfinished, and {accepting}: run it again"


def _split_brain(protected: Protected, origin: SideReading, failover: Failover) -> list[str]:
    """Return whether both sides accept messages: the site has taken over the stream, but the origin still serves it."""
    if not serves(protected, origin):
        return []
    only_there = counted(max(0, origin.last_seq - failover.position), "message")
    problem = f"split brain: the origin accepts messages for stream {protected.stream} again, and so does the site"
    return [
        f"{problem}. {only_there} of the origin did not reach the site. Keep clients away from the origin and fail back"
    ]


def _age(now: Optional[float], stamp: str) -> Optional[float]:
    return now - parse_time(stamp).timestamp() if stamp and now is not None else None


def _in_future(age: Optional[float]) -> bool:
    """Return whether a record is dated in the future because a clock was ahead: its age would not exceed any limit for
    a long time."""
    return age is not None and age < -CLOCK_SKEW.total_seconds()


def _unproven(drill: Optional[Drill], age: Optional[float], limits: RecoveryLimits) -> list[str]:
    if drill is not None and not drill.ok:
        return [f"the last drill of a failover failed: {drill.reason}"]
    if drill is not None and _in_future(age):
        return [f"the last drill is dated in the future ({drill.proven}): check the clocks, and run another one"]
    if limits.drill is None:
        return []
    if age is None:
        return ["no failover drill has succeeded yet"]
    if age > limits.drill:
        return [f"the last drill was {human_seconds(age)} ago, the limit is {human_seconds(limits.drill)}"]
    return []


def _floors(origin: SideReading, checkpoint: Optional[Checkpoint]) -> tuple[ConsumerFloor, ...]:
    now = {name: int(saved_consumer(info)["ack_floor"]["stream_seq"]) for name, info in origin.consumers.items()}
    saved = (
        {entry["name"]: int(entry["ack_floor"]["stream_seq"]) for entry in checkpoint.consumers} if checkpoint else {}
    )
    names = sorted(now if not origin.problem else saved)
    return tuple(ConsumerFloor(name, now.get(name), saved.get(name)) for name in names)


def status_page(origin: str, site: str, rows: Sequence[StreamStatus]) -> Page:
    """Return the status for operators."""
    columns = ["stream", "state", "behind", "would be lost now", "consumers", "checkpoint", "drill"]
    cells = [
        [
            row.protected.name,
            row.state,
            "" if row.behind is None else f"{row.behind} ({human_seconds(row.seconds_behind or 0.0)})",
            row.loss.text.partition(":")[0],
            _consumer_cell(row),
            "none" if row.checkpoint_age is None else f"{human_seconds(max(0.0, row.checkpoint_age))} old",
            _drill_cell(row),
        ]
        for row in rows
    ]
    worst = {place for place, row in enumerate(rows) if row.problems or not row.loss.known}
    lines = []
    for row in rows:
        lines += [f"{row.protected.name}: {problem}" for problem in row.problems]
        if not row.loss.known and ":" in row.loss.text:
            lines.append(f"{row.protected.name}: lost is {row.loss.text}")
    total = [f"{len(rows):,} streams", f"{len(worst):,} with problems", "", "", "", "", ""]
    found = table_page(f"{origin} → {site}", columns, cells, [total] if len(rows) > 1 else (), worst)
    return found + listing(lines, what="problem")


def _drill_cell(row: StreamStatus) -> str:
    if row.drill is None:
        return "never"
    if not row.drill.ok:
        return "failed"
    return "" if row.drill_age is None else f"{human_seconds(max(0.0, row.drill_age))} ago"


def _consumer_cell(row: StreamStatus) -> str:
    if not row.consumers:
        return "0"
    stale = sum(1 for one in row.consumers if one.saved is None or (one.origin is not None and one.saved < one.origin))
    return f"{len(row.consumers)}" + (f", {stale} ahead of the checkpoint" if stale else "")
