# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which finding gets which cure, at what risk, and when none may be given. Pure.

`find` compares two looks at a cluster, `plan` says what would be done about each finding, with what its owner's account says of
it (`Evidence`). Nothing is cured whose state is unknown, whose quorum or messages a cure could cost, or of which somebody has to
say first that the risk is accepted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.cluster.health import (
    Expectations,
    Limits,
    different_replicas,
    group_problems,
    health_problems,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import (
    CONSUMER,
    META,
    STREAM,
    Cluster,
    Consumer,
    Peer,
    RaftGroup,
    Stream,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.screen import Page, listing, page
from ansible_collections.natsops.jetstream.plugins.module_utils.units import counted

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

#: The cures.
RECREATE, RESET, DELETE = "recreate", "reset", "delete"
REPLACE_REPLICA, REFILL, CANCEL_MOVE = "replace_replica", "refill", "cancel_move"
#: What a person has to do.
BY_HAND = "by_hand"
CURES = (RECREATE, RESET, DELETE, REPLACE_REPLICA, REFILL, CANCEL_MOVE)

#: What a cure may cost. Redelivery is what every consumer has to expect after a restart of its client; a lost position has to be
#: allowed.
NO_RISK, REDELIVERY, POSITION_LOST = "none", "redelivery", "position_lost"

#: The first release whose servers reset a consumer (ADR-60), as their API level tells.
LEVEL_RESET = 4


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with one stream, one consumer, or one server (`server`), and what is seen of it. `account_name`:
    how the account is displayed."""

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
        """Return how it is displayed without its kind, such as APP/ORDERS/worker."""
        return self._with_account(self.account_name or self.account)

    @property
    def name(self) -> str:
        """Return its name without its kind, by the account's identity."""
        return self._with_account(self.account)

    @property
    def names(self) -> tuple[str, str]:
        """Return by what a user may specify it: with the account's name, or its identity."""
        return self.label, self.name

    def _with_account(self, account: str) -> str:
        return "/".join(part for part in (account, self.stream, self.consumer) if part) or self.server

    @property
    def subject(self) -> str:
        """Return its name as the health gate has it, such as "consumer APP/ORDERS/worker"."""
        return self.server if self.kind == "server" else f"{self.kind} {self.label}"

    @property
    def key(self) -> tuple[str, str, str]:
        return self.code, self.name, self.server


@dataclass(frozen=True)
class Evidence:
    """What is known of a finding beside the cluster's state. `failure`: why nothing is known.

    Of a consumer: its configuration, the stream's retention, first and last sequence, its highest ack floor (None: nobody knows
    it), and the highest sequence that was delivered. Of a stream: what speaks against moving the replica (`refused`).
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
class Step:
    """A finding with its cure. `refused`: why the cure may not be given, empty when it may. `floor`: up to where the consumer has
    nothing to get again, None to begin where its delivery policy does. `subjects`: what the health gate speaks of meanwhile, of a
    stream also its consumers."""

    finding: Finding
    cure: str
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
            "cure": self.cure,
            "risk": self.risk,
            "does": self.does,
            "refused": self.refused,
            "floor": self.floor,
        }


@dataclass(frozen=True)
class Request:
    """What was asked for. `assets`: patterns of ACCOUNT/STREAM and ACCOUNT/STREAM/CONSUMER, none for all. `allow`: accepted
    risks. `floors`: ack floors that somebody knows, by ACCOUNT/STREAM/CONSUMER. `dead`: servers that never come back."""

    assets: Sequence[str] = ()
    cures: Collection[str] = CURES
    allow: Collection[str] = ()
    floors: Mapping[str, int] = field(default_factory=dict)
    dead: frozenset[str] = frozenset()


# --- what is wrong ----------------------------------------------------------------------------------------------------


def find(early: Cluster, late: Cluster, request: Request, expected: Expectations) -> list[Finding]:
    """Return the findings of the later look that the earlier one does not contradict, in the order in which they are cured.

    What passes by itself (an election, a replica that catches up, a move under way) is none: it has to be there in both looks,
    without any progress between them.
    """
    before = {(stream.account, stream.name): stream for stream in early.streams}
    failed = _write_errors(early).keys() & _write_errors(late).keys()
    found = list(_servers(late, expected, failed, request.assets))
    ghosts = {
        problem.subject: problem.message
        for problem in health_problems(late, expected)
        if problem.code == CONSUMER_GHOST
    }
    for subject, message in sorted(ghosts.items()):
        # The name of an account may hold a slash, those of streams and consumers may not.
        account, stream, name = subject.partition(" ")[2].rsplit("/", 2)
        identity = late.account_of(account)
        found.append(Finding(CONSUMER_GHOST, message, identity, stream, name, account_name=account))
    # The replicas of a server that does not write are behind for that reason.
    heard = _heard(late, expected.limits).difference(name for name, _subject in _write_errors(late))
    sight = _Sight(late.names, heard, _listing(early) & _listing(late) & heard, request.dead, expected.limits)
    for item in late.streams:
        earlier = before.get((item.account, item.name))
        if earlier is not None:
            shown = item.account_name
            found += [replace(finding, account_name=shown) for finding in _of_stream(earlier, item, sight)]
    return [finding for finding in found if matches(finding, request.assets)]


def matches(finding: Finding, patterns: Sequence[str]) -> bool:
    """Return whether a finding is one of those that are meant: a stream's pattern means its consumers, too, and what it takes
    for a server not to write any of them."""
    return finding.code == WRITE_ERROR or _meant(finding.names, bool(finding.consumer), patterns)


def _meant(names: Sequence[str], consumer: bool, patterns: Sequence[str]) -> bool:
    streams = [name.rpartition("/")[0] for name in names] if consumer else []
    return not patterns or any(fnmatchcase(name, pattern) for name in (*names, *streams) for pattern in patterns)


def _servers(
    cluster: Cluster, expected: Expectations, failed: Collection[tuple[str, str]], patterns: Sequence[str]
) -> Iterable[Finding]:
    wanted = expected.jetstream_servers or frozenset()
    errors = _write_errors(cluster)
    for server in cluster.servers:
        if server.name in wanted and not server.jetstream:
            yield Finding(
                JETSTREAM_DISABLED, f"{server.name} answers, but its JetStream is not running", server=server.name
            )
        stopped = sorted(subject for name, subject in failed if name == server.name)
        subjects = [
            f"{kind} {label}"
            for kind, _space, label in (subject.partition(" ") for subject in stopped)
            if _meant(_names_of(cluster, label), kind == CONSUMER, patterns)
        ]
        if subjects:
            reason = errors[server.name, subjects[0]]
            message = f"{server.name} has stopped writing {', '.join(subjects)}: {reason}"
            yield Finding(WRITE_ERROR, message, server=server.name)


def _names_of(cluster: Cluster, label: str) -> tuple[str, str]:
    """Return by what a user may specify the stream or consumer that is displayed like this."""
    account, slash, rest = label.partition("/")
    return label, f"{cluster.account_of(account)}{slash}{rest}"


def _write_errors(cluster: Cluster) -> dict[tuple[str, str], str]:
    """Return what servers say about streams and consumers that they do not write any more, by server and subject.

    Up to 2.12 a failed write ends JetStream; from 2.14 it may end the replica alone. Both last until the server restarts.
    """
    return {
        (server.name, error.subject): error.reason
        for server in cluster.servers
        for error in (server.health.asset_errors if server.health else ())
        if "write error" in error.reason
    }


def _heard(cluster: Cluster, limits: Limits) -> frozenset[str]:
    """Return the servers that answer and that the meta leader sees in step: what is wrong with a replica there is not theirs."""
    if cluster.meta is None:
        return frozenset()
    group = cluster.meta.group
    in_step = {*group.leaders, *(peer.name for peer in group.peers if limits.in_step(peer))}
    return cluster.names & in_step


def _listing(cluster: Cluster) -> frozenset[str]:
    """Return the servers that listed the streams that they hold."""
    return frozenset(server.name for server in cluster.servers if server.summary is not None)


@dataclass(frozen=True)
class _Sight:
    """What two looks say of the servers. `answered`: those that the later one saw; `heard`: as of `_heard`; `listing`: those of
    them that listed their streams in both; `dead`: those that never come back."""

    answered: frozenset[str]
    heard: frozenset[str]
    listing: frozenset[str]
    dead: frozenset[str]
    limits: Limits


def _of_stream(early: Stream, late: Stream, sight: _Sight) -> Iterable[Finding]:
    group, name, answered = late.group, (late.account, late.name), sight.answered
    if _leaderless(early.group, answered) and _leaderless(group, answered):
        message = f"{group.subject} has no leader although {_names(group.hosts)} of its {group.size} members answer: a majority"
        yield Finding(STREAM_LEADERLESS, message, *name)
        return
    yield from _of_members(early, late, sight)
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
            yield Finding(CONSUMER_LEADERLESS, message, *where)
        elif (
            delivered_seq(earlier.info) > max(late.last_seq, _begins_after(consumer))
            and group.leader
            and earlier.group.leader
        ):
            # The stream was read after the consumer, so that it cannot merely be older.
            message = (
                f"{consumer.group.subject} waits for messages after {delivered_seq(consumer.info)}, but its stream "
                f"ends at {late.last_seq}: it delivers nothing until then"
            )
            yield Finding(CONSUMER_AHEAD, message, *where)


def _of_members(early: Stream, late: Stream, sight: _Sight) -> Iterable[Finding]:
    group, name = late.group, (late.account, late.name)
    if group.leader is None:
        return
    if _moving(group):
        if _moving(early.group) and _progress(early) == _progress(late):
            message = f"the move of {group.subject} ({_names(group.members)}) made no progress between two samples"
            yield Finding(MOVE_STUCK, message, *name)
        return
    known = {peer.name: peer for peer in early.group.peers}
    differing = dict(different_replicas(early, late, sight.limits))
    for peer in group.peers:
        earlier = known.get(peer.name)
        if peer.name in sight.dead and peer.name not in sight.answered:
            message = f"{group.subject} has a replica on {peer.name}, which will not come back"
            yield Finding(REPLICA_GONE, message, *name, server=peer.name)
        elif earlier and peer.name in sight.listing.difference(early.group.hosts, group.hosts):
            message = f"{peer.name} is a member of {group.subject} and answers, but does not have its replica"
            yield Finding(REPLICA_MISSING, message, *name, server=peer.name)
        elif peer.name in sight.heard and earlier and _stays_behind(earlier, peer, sight.limits):
            message = (
                f"the replica of {group.subject} on {peer.name} is {peer.lag} entries behind and is not catching up"
            )
            yield Finding(REPLICA_BEHIND, message, *name, server=peer.name)
        elif peer.name in differing and peer.name in sight.heard:
            yield Finding(REPLICA_BEHIND, differing[peer.name], *name, server=peer.name)
    if len(group.members) < group.size and len(early.group.members) < early.group.size:
        message = f"{group.subject} has {len(group.members)} of {group.size} replicas: {_names(group.members)}"
        yield Finding(GROUP_SHORT, message, *name)


def _moving(group: RaftGroup) -> bool:
    """Return whether members are being exchanged, as the leader says: up to 2.14 it has more of them than replicas until then.
    A server that lost its membership a moment ago still names itself, and does not count."""
    return group.moving or len(group.peers) >= group.size


def _stays_behind(early: Peer, late: Peer, limits: Limits) -> bool:
    """Return whether a replica is not in step and comes no closer."""
    return late.lag >= early.lag and not limits.in_step(early) and not limits.in_step(late)


def _leaderless(group: RaftGroup, answered: frozenset[str]) -> bool:
    """Return whether a group has no leader although as many members are there as it takes to elect one."""
    return not group.leaders and len(answered.intersection(group.hosts)) >= group.quorum and group.size > 1


def _progress(stream: Stream) -> object:
    return (
        stream.group.members,
        stream.group.leaders,
        tuple((peer.name, peer.current, peer.lag) for peer in stream.group.peers),
    )


def _begins_after(consumer: Consumer) -> int:
    """Return the sequence after which the consumer was asked to begin, 0 for one that begins elsewhere."""
    config = consumer.info.get("config") or {}
    return int(config.get("opt_start_seq") or 1) - 1 if config.get("deliver_policy") == "by_start_sequence" else 0


def delivered_seq(info: Mapping[str, Any]) -> int:
    """Return the sequence after which a consumer delivers next: the last that it delivered."""
    return int((info.get("delivered") or {}).get("stream_seq") or 0)


# --- what is done about it --------------------------------------------------------------------------------------------


def plan(
    cluster: Cluster,
    findings: Sequence[Finding],
    evidence: Mapping[tuple[str, str, str], Evidence],
    request: Request,
) -> list[Step]:
    """Return the step for each finding, in their order. `evidence`: by `Finding.key`."""
    streams = {(stream.account, stream.name): stream for stream in cluster.streams}
    steps = []
    for finding in findings:
        known = evidence.get(finding.key, Evidence(failure="its state is unknown"))
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


def _not_asked(step: Step, request: Request) -> str:
    if step.cure not in request.cures:
        return f"the fix {step.cure} was not requested"
    if step.risk == POSITION_LOST and POSITION_LOST not in request.allow:
        return (
            f"its position is unknown. Set it from the last report or snapshot with floors ({step.finding.label}: "
            f"SEQUENCE), or accept with allow={POSITION_LOST} that everything is delivered again"
        )
    return ""


def _unsafe(cluster: Cluster, stream: Stream | None, finding: Finding) -> str:
    """Return why nothing may be changed in this state, empty when it may."""
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
    # For some seconds a leader counts a member as in step whose server holds nothing.
    empty = (_listing(cluster) & frozenset(stream.group.members)).difference(stream.group.hosts, [finding.server])
    return f"{_names(empty)} does not have its replica, which must be repaired first" if empty else ""


def _consumer_step(finding: Finding, known: Evidence, api_level: int, request: Request) -> Step:
    recreate = "recreate it with its configuration"
    if known.failure or not known.config:
        unknown = known.failure or "no server reports its configuration: recreate it from its source definition"
        return Step(finding, RECREATE, REDELIVERY, recreate, unknown)
    if not known.config.get("durable_name"):
        return Step(finding, DELETE, NO_RISK, "delete it; its client makes it again", config=known.config)
    floor = next((request.floors[given] for given in finding.names if given in request.floors), None)
    if floor is None and finding.code != CONSUMER_AHEAD:
        floor = known.floor
    reset = finding.code == CONSUMER_AHEAD and api_level >= LEVEL_RESET and known.config.get("deliver_policy") == "all"
    cure = RESET if reset else RECREATE
    if floor is None and known.retention == "workqueue":
        does = "reset it to the first message" if reset else f"{recreate}; acknowledgements are lost"
        return Step(finding, cure, REDELIVERY, does, floor=0, config=known.config)
    verb = "reset it" if reset else recreate
    refused = _loses_interest(finding, known)
    if floor is None:
        count = max(0, known.last_seq - max(known.first_seq, 1) + 1)
        does = f"{verb}, and deliver everything again: {count} messages from {known.first_seq} to {known.last_seq}"
        return Step(finding, cure, POSITION_LOST, does, refused, config=known.config)
    if floor > known.last_seq:
        refused = (
            f"the floor {floor} is beyond the end of its stream ({known.last_seq}): the server accepts that, but would "
            "skip all messages published until then"
        )
    pending = max(0, known.delivered - floor) if finding.code != CONSUMER_AHEAD else max(0, known.last_seq - floor)
    what = "messages delivered but not acknowledged" if not pending else f"up to {pending} messages after it"
    does = f"{verb} at its ack floor {floor}; redelivered: {what} (pending rolled back to the floor)"
    return Step(finding, cure, REDELIVERY, does, refused, floor, known.config)


def _loses_interest(finding: Finding, known: Evidence) -> str:
    """Return why a consumer must not be deleted: a stream of retention interest drops what no other consumer waits for
    (consumer.go stopWithFlags). A ghost is held by nobody, so that its deletion drops nothing."""
    if known.retention != "interest" or finding.code in (CONSUMER_GHOST, CONSUMER_MISSING):
        return ""
    return "its stream has retention interest, which drops the messages that only this consumer waits for when it is deleted"


def _stream_step(finding: Finding, stream: Stream | None, known: Evidence) -> Step:
    server, refused = finding.server, known.failure or known.refused
    if finding.code == REPLICA_BEHIND:
        does = f"replace the replica on {server}: another server takes it over from members in step"
        return Step(finding, REPLACE_REPLICA, NO_RISK, does, refused)
    if finding.code == REPLICA_MISSING:
        does = (
            f"remove {server}, whose log has the reason why it cannot create the replica; another server takes it over"
        )
        return Step(finding, REPLACE_REPLICA, NO_RISK, does, refused)
    if finding.code == REPLICA_GONE:
        return Step(finding, REPLACE_REPLICA, NO_RISK, f"remove {server}; another server takes it over", refused)
    if finding.code == GROUP_SHORT:
        does = (
            "set num_replicas to the number of existing members and back, which makes the meta leader choose the "
            "missing members"
        )
        return Step(finding, REFILL, NO_RISK, does, refused)
    if finding.code == MOVE_STUCK:
        return Step(finding, CANCEL_MOVE, NO_RISK, "cancel the move; the previous members stay", refused)
    hosts = _names(stream.group.hosts if stream is not None else ())
    return Step(
        finding,
        BY_HAND,
        NO_RISK,
        "restart its members one after another",
        f"no request fixes it. Restart its members ({hosts}) one after another with the playbook restart; the log of "
        "one member has a write error",
    )


def _server_step(finding: Finding) -> Step:
    why = (
        "A failed write, usually due to a full disk, stops the replica until its server restarts"
        if finding.code == WRITE_ERROR
        else "JetStream stops when a write fails, usually due to a full disk, and restarts only with its server"
    )
    return Step(
        finding,
        BY_HAND,
        NO_RISK,
        "free space and restart it",
        f"{why}. Find the failure in the log of {finding.server} (journalctl -u nats-server), check the disk of its "
        "store (df -h), free space, then restart only its host: ansible-playbook natsops.jetstream.restart --limit "
        "HOST. On 2.10 its replicas may lack messages afterwards: replace them (nats_stream_peer, method: remove)",
    )


def repair_page(steps: Sequence[Step]) -> Page:
    """Return the plan for people, a line for each finding: what is wrong, what is done, and at what risk."""
    if not steps:
        return page("Nothing to repair.")
    written = []
    for step in steps:
        done = f"refused: {step.refused}" if step.refused else f"{step.does} ({step.cure}, risk: {step.risk})"
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
