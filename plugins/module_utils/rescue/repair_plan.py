# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Assigns repairs to findings, with their risks and refusals. Pure.

`find` compares two samples of a cluster. `plan` assigns a repair to each finding, using the data of the owning account
(`FaultEvidence`). A repair is refused if the state is unknown, if the repair could cost a quorum or messages, or if its risk
has not been accepted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from ..health.rules import Expectations, Limits, different_replicas, group_problems, health_problems
from ..nats.model import CONSUMER, META, STREAM, Cluster, Consumer, Peer, RaftGroup, Stream
from ..screen import Page, listing, page
from ..units import counted

#: The findings.
CONSUMER_GHOST = "consumer_ghost"
CONSUMER_LEADERLESS = "consumer_leaderless"
CONSUMER_AHEAD = "consumer_ahead"
CONSUMER_MISSING = "consumer_missing"
REPLICA_BEHIND = "replica_behind"
REPLICA_MISSING = "replica_missing"
REPLICA_GONE = "replica_gone"
GROUP_SHORT = "group_short"
MOVE_STUCK = "move_stuck"
STREAM_LEADERLESS = "stream_leaderless"
JETSTREAM_DISABLED = "jetstream_disabled"
WRITE_ERROR = "write_error"

#: The repairs.
RECREATE, RESET, DELETE = "recreate", "reset", "delete"
REPLACE_REPLICA, REFILL, CANCEL_MOVE = "replace_replica", "refill", "cancel_move"
#: A step that an operator must perform.
BY_HAND = "by_hand"
FIXES = (RECREATE, RESET, DELETE, REPLACE_REPLICA, REFILL, CANCEL_MOVE)

#: The risk of a repair. Redelivery also happens after a restart of a consumer's client, so it needs no permission;
#: losing a position must be allowed explicitly.
NO_RISK, REDELIVERY, POSITION_LOST = "none", "redelivery", "position_lost"

#: The first API level whose servers can reset a consumer (ADR-60).
LEVEL_RESET = 4


@dataclass(frozen=True)
class RepairFinding:
    """A fault of one stream, one consumer, or one server (`server`), with its symptoms. `account_name`: display name
    of the account."""

    code: str
    message: str
    account: str = ""
    stream: str = ""
    consumer: str = ""
    server: str = ""
    account_name: str = ""

    @property
    def kind(self) -> str:
        if not self.stream:
            return "server"
        return CONSUMER if self.consumer else STREAM

    @property
    def label(self) -> str:
        """Return the asset's display name without the kind, such as APP/ORDERS/worker."""
        return self._with_account(self.account_name or self.account)

    @property
    def name(self) -> str:
        """Return the asset's name without the kind, with the identity of the account."""
        return self._with_account(self.account)

    @property
    def names(self) -> tuple[str, str]:
        """Return the names that select the asset: one with the account's name, one with its identity."""
        return self.label, self.name

    def _with_account(self, account: str) -> str:
        return "/".join(part for part in (account, self.stream, self.consumer) if part) or self.server

    @property
    def subject(self) -> str:
        """Return the asset's name as in the health gate, such as "consumer APP/ORDERS/worker"."""
        return self.server if self.kind == "server" else f"{self.kind} {self.label}"

    @property
    def key(self) -> tuple[str, str, str]:
        return self.code, self.name, self.server


@dataclass(frozen=True)
class FaultEvidence:
    """The evidence for a finding besides the cluster's state. `failure`: why there is none.

    For a consumer: its configuration, the stream's retention, first and last sequence, the consumer's highest ack floor
    (None if unknown), and the highest delivered sequence. For a stream: the reason not to move the replica (`refused`).
    """

    config: Mapping[str, Any] = field(default_factory=dict)
    retention: str = ""
    first_seq: int = 0
    last_seq: int = 0
    floor: int | None = None
    delivered: int = 0
    refused: str = ""
    failure: str = ""


@dataclass(frozen=True)
class RepairStep:
    """A finding with its repair. `refused`: the reason against the repair, empty if there is none. `floor`: the
    sequence after which the consumer resumes; None to follow its delivery policy. `subjects`: names that the health
    gate reports during the repair; for a stream, they include its consumers."""

    finding: RepairFinding
    fix: str
    risk: str
    does: str
    refused: str = ""
    floor: int | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    subjects: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the step for a module's result."""
        finding = self.finding
        return {
            "finding": finding.code,
            "asset": finding.label,
            "server": finding.server,
            "message": finding.message,
            "fix": self.fix,
            "risk": self.risk,
            "does": self.does,
            "refused": self.refused,
            "floor": self.floor,
        }


@dataclass(frozen=True)
class RepairOptions:
    """The options of a repair. `assets`: patterns of ACCOUNT/STREAM and ACCOUNT/STREAM/CONSUMER, empty for all.
    `allow`: accepted risks. `floors`: known ack floors by ACCOUNT/STREAM/CONSUMER. `dead`: servers that will not
    return."""

    assets: Sequence[str] = ()
    fixes: Collection[str] = FIXES
    allow: Collection[str] = ()
    floors: Mapping[str, int] = field(default_factory=dict)
    dead: frozenset[str] = frozenset()


# --- Findings ---------------------------------------------------------------------------------------------------------


def find(early: Cluster, late: Cluster, request: RepairOptions, expected: Expectations) -> list[RepairFinding]:
    """Return the findings of the later sample that the earlier sample does not contradict, in order of repair.

    Temporary states (an election, a replica that catches up, a move in progress) are excluded: a finding must be
    present in both samples, without progress between them."""
    before = {(stream.account, stream.name): stream for stream in early.streams}
    failed = _write_errors(early).keys() & _write_errors(late).keys()
    found = list(_servers(late, expected, failed, request.assets))
    ghosts = {
        problem.subject: problem.message
        for problem in health_problems(late, expected)
        if problem.code == CONSUMER_GHOST
    }
    for subject, message in sorted(ghosts.items()):
        # Account names may contain a slash; stream and consumer names may not.
        account, stream, name = subject.partition(" ")[2].rsplit("/", 2)
        identity = late.find_account(account)
        found.append(RepairFinding(CONSUMER_GHOST, message, identity, stream, name, account_name=account))
    # This finding also explains replicas that are behind on a server that cannot write.
    in_step = _in_step(late, expected.limits).difference(name for name, _subject in _write_errors(late))
    sight = _Sight(late.names, in_step, _listing(early) & _listing(late) & in_step, request.dead, expected.limits)
    for item in late.streams:
        earlier = before.get((item.account, item.name))
        if earlier is not None:
            shown = item.account_name
            found += [replace(finding, account_name=shown) for finding in _find_stream_faults(earlier, item, sight)]
    return [finding for finding in found if matches(finding, request.assets)]


def matches(finding: RepairFinding, patterns: Sequence[str]) -> bool:
    """Return whether a finding is selected: the pattern of a stream also selects its consumers, and any server that
    cannot write one of the selected assets."""
    return finding.code == WRITE_ERROR or _meant(finding.names, bool(finding.consumer), patterns)


def _meant(names: Sequence[str], consumer: bool, patterns: Sequence[str]) -> bool:
    streams = [name.rpartition("/")[0] for name in names] if consumer else []
    return not patterns or any(fnmatchcase(name, pattern) for name in (*names, *streams) for pattern in patterns)


def _servers(
    cluster: Cluster, expected: Expectations, failed: Collection[tuple[str, str]], patterns: Sequence[str]
) -> Iterable[RepairFinding]:
    wanted = expected.jetstream_servers or frozenset()
    errors = _write_errors(cluster)
    for server in cluster.servers:
        if server.name in wanted and not server.jetstream:
            yield RepairFinding(
                JETSTREAM_DISABLED, f"{server.name} answers, but its JetStream is not running", server=server.name
            )
        stopped = sorted(subject for name, subject in failed if name == server.name)
        subjects = [
            f"{kind} {label}"
            for kind, _space, label in (subject.partition(" ") for subject in stopped)
            if _meant(_list_names(cluster, label), kind == CONSUMER, patterns)
        ]
        if subjects:
            reason = errors[server.name, subjects[0]]
            message = f"{server.name} has stopped writing {', '.join(subjects)}: {reason}"
            yield RepairFinding(WRITE_ERROR, message, server=server.name)


def _list_names(cluster: Cluster, label: str) -> tuple[str, str]:
    """Return the names that select the stream or consumer with this display name."""
    account, slash, rest = label.partition("/")
    return label, f"{cluster.find_account(account)}{slash}{rest}"


def _write_errors(cluster: Cluster) -> dict[tuple[str, str], str]:
    """Return the write errors that servers report for streams and consumers, by server and subject.

    Up to 2.12 a failed write stops JetStream; from 2.14 it may stop only the replica. Either state lasts until the
    server restarts."""
    return {
        (server.name, error.subject): error.reason
        for server in cluster.servers
        for error in (server.health.asset_errors if server.health else ())
        if "write error" in error.reason
    }


def _in_step(cluster: Cluster, limits: Limits) -> frozenset[str]:
    """Return the servers that respond and that the meta leader reports as in step: they do not cause the faults of
    their replicas."""
    if cluster.meta is None:
        return frozenset()
    group = cluster.meta.group
    in_step = {*group.leaders, *(peer.name for peer in group.peers if limits.in_step(peer))}
    return cluster.names & in_step


def _listing(cluster: Cluster) -> frozenset[str]:
    """Return the servers that listed the streams that they have."""
    return frozenset(server.name for server in cluster.servers if server.summary is not None)


@dataclass(frozen=True)
class _Sight:
    """The servers in two samples. `answered`: those that responded in the later sample; `in_step`: see `_in_step`;
    `listing`: those that listed their streams in both samples; `dead`: those that will not return."""

    answered: frozenset[str]
    in_step: frozenset[str]
    listing: frozenset[str]
    dead: frozenset[str]
    limits: Limits


def _find_stream_faults(early: Stream, late: Stream, sight: _Sight) -> Iterable[RepairFinding]:
    group, name, answered = late.group, (late.account, late.name), sight.answered
    if _leaderless(early.group, answered) and _leaderless(group, answered):
        message = f"{group.subject} has no leader although {_names(group.hosts)} of its {group.size} members answer: a majority"
        yield RepairFinding(STREAM_LEADERLESS, message, *name)
        return
    yield from _find_member_faults(early, late, sight)
    consumers = {consumer.name: consumer for consumer in early.consumers}
    for consumer in late.consumers:
        earlier = consumers.get(consumer.name)
        if earlier is None:
            continue
        where = (*name, consumer.name)
        if _leaderless(earlier.group, answered) and _leaderless(consumer.group, answered):
            hosts = _names(consumer.group.hosts)
            message = (
                f"{consumer.group.subject} has no leader although {hosts} of its {consumer.group.size} members answer"
            )
            yield RepairFinding(CONSUMER_LEADERLESS, message, *where)
        elif (
            delivered_seq(earlier.info) > max(late.last_seq, _begins_after(consumer))
            and group.leader
            and earlier.group.leader
        ):
            # The stream was read after the consumer, so its state cannot be older.
            message = (
                f"{consumer.group.subject} waits for messages after {delivered_seq(consumer.info)}, but its stream "
                f"ends at {late.last_seq}: it delivers nothing until then"
            )
            yield RepairFinding(CONSUMER_AHEAD, message, *where)


def _find_member_faults(early: Stream, late: Stream, sight: _Sight) -> Iterable[RepairFinding]:
    group, name = late.group, (late.account, late.name)
    if group.leader is None:
        return
    if _moving(group):
        if _moving(early.group) and _progress(early) == _progress(late):
            message = f"the move of {group.subject} ({_names(group.members)}) made no progress between two samples"
            yield RepairFinding(MOVE_STUCK, message, *name)
        return
    known = {peer.name: peer for peer in early.group.peers}
    differing = dict(different_replicas(early, late, sight.limits))
    for peer in group.peers:
        earlier = known.get(peer.name)
        if peer.name in sight.dead and peer.name not in sight.answered:
            message = f"{group.subject} has a replica on {peer.name}, which will not come back"
            yield RepairFinding(REPLICA_GONE, message, *name, server=peer.name)
        elif earlier and peer.name in sight.listing.difference(early.group.hosts, group.hosts):
            message = f"{peer.name} is a member of {group.subject} and answers, but does not have its replica"
            yield RepairFinding(REPLICA_MISSING, message, *name, server=peer.name)
        elif peer.name in sight.in_step and earlier and _stays_behind(earlier, peer, sight.limits):
            message = (
                f"the replica of {group.subject} on {peer.name} is {peer.lag} entries behind and is not catching up"
            )
            yield RepairFinding(REPLICA_BEHIND, message, *name, server=peer.name)
        elif peer.name in differing and peer.name in sight.in_step:
            yield RepairFinding(REPLICA_BEHIND, differing[peer.name], *name, server=peer.name)
    if len(group.members) < group.size and len(early.group.members) < early.group.size:
        message = f"{group.subject} has {len(group.members)} of {group.size} replicas: {_names(group.members)}"
        yield RepairFinding(GROUP_SHORT, message, *name)


def _moving(group: RaftGroup) -> bool:
    """Return whether members are being exchanged: up to 2.14, the leader then lists more members than replicas. A
    server that has just lost its membership still lists itself and does not count."""
    return group.moving or len(group.peers) >= group.size


def _stays_behind(early: Peer, late: Peer, limits: Limits) -> bool:
    """Return whether a replica is out of step and is not catching up."""
    return late.lag >= early.lag and not limits.in_step(early) and not limits.in_step(late)


def _leaderless(group: RaftGroup, answered: frozenset[str]) -> bool:
    """Return whether a group has no leader although enough members for an election are available."""
    return not group.leaders and len(answered.intersection(group.hosts)) >= group.quorum and group.size > 1


def _progress(stream: Stream) -> object:
    return (
        stream.group.members,
        stream.group.leaders,
        tuple((peer.name, peer.current, peer.lag) for peer in stream.group.peers),
    )


def _begins_after(consumer: Consumer) -> int:
    """Return the sequence after which the consumer was configured to start, 0 for other delivery policies."""
    config = consumer.info.get("config") or {}
    return int(config.get("opt_start_seq") or 1) - 1 if config.get("deliver_policy") == "by_start_sequence" else 0


def delivered_seq(info: Mapping[str, Any]) -> int:
    """Return the last sequence that a consumer delivered; the consumer continues after it."""
    return int((info.get("delivered") or {}).get("stream_seq") or 0)


# --- Repairs ----------------------------------------------------------------------------------------------------------


def plan(
    cluster: Cluster,
    findings: Sequence[RepairFinding],
    evidence: Mapping[tuple[str, str, str], FaultEvidence],
    request: RepairOptions,
) -> list[RepairStep]:
    """Return the step for each finding, in the same order. `evidence`: by `RepairFinding.key`."""
    streams = {(stream.account, stream.name): stream for stream in cluster.streams}
    steps = []
    for finding in findings:
        known = evidence.get(finding.key, FaultEvidence(failure="its state is unknown"))
        stream = streams.get((finding.account, finding.stream))
        if finding.kind == CONSUMER:
            step = _consumer_step(finding, known, cluster.api_level, request)
        elif finding.kind == STREAM:
            step = _stream_step(finding, stream, known)
        else:
            step = _server_step(finding)
        refused = step.refused or _unsafe(cluster, stream, finding) or _not_asked(step, request)
        also = stream.consumers if stream is not None and finding.kind == STREAM else ()
        subjects = (finding.subject, *(consumer.group.subject for consumer in also))
        steps.append(replace(step, refused=refused, subjects=subjects))
    return steps


def _not_asked(step: RepairStep, request: RepairOptions) -> str:
    if step.fix not in request.fixes:
        return f"the fix {step.fix} was not requested"
    if step.risk == POSITION_LOST and POSITION_LOST not in request.allow:
        return (
            f"its position is unknown. Set it from the last report or snapshot with floors ({step.finding.label}: "
            f"SEQUENCE), or accept with allow={POSITION_LOST} that everything is delivered again"
        )
    return ""


def _unsafe(cluster: Cluster, stream: Stream | None, finding: RepairFinding) -> str:
    """Return why nothing may be changed in this state, or an empty text if changes are safe."""
    if finding.kind == "server":
        return ""
    meta = cluster.meta
    if meta is None or meta.group.leader is None:
        return "there is no meta leader to carry it out"
    lost = [problem for problem in group_problems(meta.group, cluster.names) if problem.code == f"{META}_no_quorum"]
    if lost:
        return lost[0].message
    if stream is None:
        return "no server reports the state of its stream"
    if finding.kind == CONSUMER:
        codes = ("_no_leader", "_no_quorum", "_leader_disputed")
        wrong = [item.message for item in group_problems(stream.group, cluster.names) if item.code.endswith(codes)]
        return f"its stream must be repaired first: {'; '.join(wrong)}" if wrong else ""
    if finding.code not in (REPLICA_BEHIND, REPLICA_MISSING, REPLICA_GONE, GROUP_SHORT):
        return ""
    # For some seconds, a leader may count a member as in step although its server has no replica.
    empty = (_listing(cluster) & frozenset(stream.group.members)).difference(stream.group.hosts, [finding.server])
    return f"{_names(empty)} does not have its replica, which must be repaired first" if empty else ""


def _consumer_step(finding: RepairFinding, known: FaultEvidence, api_level: int, request: RepairOptions) -> RepairStep:
    recreate = "recreate it with its configuration"
    if known.failure or not known.config:
        unknown = known.failure or "no server reports its configuration: recreate it from its source definition"
        return RepairStep(finding, RECREATE, REDELIVERY, recreate, unknown)
    if not known.config.get("durable_name"):
        return RepairStep(finding, DELETE, NO_RISK, "delete it; its client recreates it", config=known.config)
    floor = next((request.floors[given] for given in finding.names if given in request.floors), None)
    if floor is None and finding.code != CONSUMER_AHEAD:
        floor = known.floor
    reset = finding.code == CONSUMER_AHEAD and api_level >= LEVEL_RESET and known.config.get("deliver_policy") == "all"
    fix = RESET if reset else RECREATE
    if floor is None and known.retention == "workqueue":
        does = "reset it to the first message" if reset else f"{recreate}; acknowledgements are lost"
        return RepairStep(finding, fix, REDELIVERY, does, floor=0, config=known.config)
    verb = "reset it" if reset else recreate
    refused = _loses_interest(finding, known)
    if floor is None:
        count = max(0, known.last_seq - max(known.first_seq, 1) + 1)
        does = f"{verb}, and deliver everything again: {count} messages from {known.first_seq} to {known.last_seq}"
        return RepairStep(finding, fix, POSITION_LOST, does, refused, config=known.config)
    if floor > known.last_seq:
        refused = (
            f"the floor {floor} is beyond the end of its stream ({known.last_seq}): the server accepts that, but would "
            "skip all messages published until then"
        )
    pending = max(0, known.delivered - floor) if finding.code != CONSUMER_AHEAD else max(0, known.last_seq - floor)
    what = "messages delivered but not acknowledged" if not pending else f"up to {pending} messages after it"
    does = f"{verb} at its ack floor {floor}; redelivered: {what} (pending rolled back to the floor)"
    return RepairStep(finding, fix, REDELIVERY, does, refused, floor, known.config)


def _loses_interest(finding: RepairFinding, known: FaultEvidence) -> str:
    """Return the reason not to delete a consumer: a stream with interest retention drops the messages that no other
    consumer needs (consumer.go stopWithFlags). A ghost exists on no server, so deleting it drops nothing."""
    if known.retention != "interest" or finding.code in (CONSUMER_GHOST, CONSUMER_MISSING):
        return ""
    return (
        "its stream has retention interest, which drops the messages that no other consumer needs when this consumer "
        "is deleted"
    )


def _stream_step(finding: RepairFinding, stream: Stream | None, known: FaultEvidence) -> RepairStep:
    server, refused = finding.server, known.failure or known.refused
    if finding.code == REPLICA_BEHIND:
        does = f"replace the replica on {server}: another server takes it over from members in step"
        return RepairStep(finding, REPLACE_REPLICA, NO_RISK, does, refused)
    if finding.code == REPLICA_MISSING:
        does = (
            f"remove {server}, whose log has the reason why it cannot create the replica; another server takes it over"
        )
        return RepairStep(finding, REPLACE_REPLICA, NO_RISK, does, refused)
    if finding.code == REPLICA_GONE:
        return RepairStep(finding, REPLACE_REPLICA, NO_RISK, f"remove {server}; another server takes it over", refused)
    if finding.code == GROUP_SHORT:
        does = (
            "set num_replicas to the number of existing members and back, which makes the meta leader choose the "
            "missing members"
        )
        return RepairStep(finding, REFILL, NO_RISK, does, refused)
    if finding.code == MOVE_STUCK:
        return RepairStep(finding, CANCEL_MOVE, NO_RISK, "cancel the move; the previous members stay", refused)
    hosts = _names(stream.group.hosts if stream is not None else ())
    return RepairStep(
        finding,
        BY_HAND,
        NO_RISK,
        "restart its members one after another",
        f"no request fixes it. Restart its members ({hosts}) one after another with the playbook restart; the log of "
        "one member has a write error",
    )


def _server_step(finding: RepairFinding) -> RepairStep:
    why = (
        "A failed write, usually due to a full disk, stops the replica until its server restarts"
        if finding.code == WRITE_ERROR
        else "JetStream stops when a write fails, usually due to a full disk, and restarts only with its server"
    )
    return RepairStep(
        finding,
        BY_HAND,
        NO_RISK,
        "free space and restart it",
        f"{why}. Find the failure in the log of {finding.server} (journalctl -u nats-server), check the disk of its "
        "store (df -h), free space, then restart only its host: ansible-playbook natsops.jetstream.restart --limit "
        "HOST. On 2.10 its replicas may lack messages afterwards: replace them (nats_stream_peer, method: remove)",
    )


def repair_page(steps: Sequence[RepairStep]) -> Page:
    """Return the plan for operators, one line for each finding: the fault, the repair, and the risk."""
    if not steps:
        return page("Nothing to repair.")
    written = []
    for step in steps:
        done = f"refused: {step.refused}" if step.refused else f"{step.does} ({step.fix}, risk: {step.risk})"
        written.append(
            f"{step.finding.subject}: {step.finding.message.removeprefix(step.finding.subject + ' ')} → {done}"
        )
    refused = {place for place, step in enumerate(steps) if step.refused}
    found = listing(written, refused, what="finding")
    if found.screen == found.lines:
        return found
    return Page(screen=(f"{counted(len(steps), 'finding')}, {len(refused)} of them refused:",)) + found


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
