# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Moves stream replicas off a server, copying their data first if possible.

Each decision is based on the stream's current state, so a later run can continue an interrupted one. A move is tracked
through the leaders of the stream and of its consumers until each group is complete without the server."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..health.rules import group_problems
from ..nats.accounts import Connections
from ..nats.client import NatsFailure
from ..nats.meta_api import MetaApi
from ..nats.model import LEVEL_2_15, Cluster, RaftGroup, Stream, peer_id
from ..nats.system_api import SystemApi
from ..progress import EVERY, Progress
from ..roll import leadership as leaders
from ..roll.step_down import StepDownJob as StepDown
from ..roll.step_down import step_down
from ..roll.step_down_assets import AssetGroups, StepDownAsset
from ..units import human_bytes
from ..waiting import ELECTION_SECONDS, POLL_SECONDS, is_transient, wait_until
from .cluster_reader import read_led_cluster
from .rules import PlacementResult, evaluate_candidates, own_tag, replica_requirements, simulate_move
from .stream_state import StreamState, problems, read_state, unsettled

REMOVE, EVACUATE = "remove", "evacuate"
#: Maximum number of progress samples kept for one run.
MAX_SAMPLES = 200
#: Maximum number of seconds during which no server may accept a connection: longer than a server takes to restart.
GRACE = 60


@dataclass(frozen=True)
class MoveRequest:
    """A requested move: the server to leave, the target (None: any), and the method.

    `method`: auto, remove or evacuate. `accept_loss`: whether streams and consumers whose only replica is on the server
    may be lost."""

    source: str
    target: str | None = None
    method: str = "auto"
    accept_loss: bool = False


@dataclass
class MoveJob:
    """A move of one stream. `source`: the server that gives up its replica. `target`: the server preferred by the meta
    leader or requested. `took`: seconds from the start of the move to its observed end."""

    state: StreamState
    source: str = ""
    target: str | None = None
    method: str | None = None
    started: bool = False
    settled: bool = False
    failure: NatsFailure | None = None
    began: float | None = None
    took: float = 0.0

    @property
    def key(self) -> tuple[str, str]:
        return self.state.stream.account, self.state.stream.name


@dataclass
class MovesProgress:
    """The progress of the jobs: samples, seconds waited, and the time of the last change."""

    jobs: list[MoveJob]
    progress: list[dict[str, Any]] = field(default_factory=list)
    waited: float = 0.0
    still: float = 0.0

    @property
    def pending(self) -> list[MoveJob]:
        return [job for job in self.jobs if not job.settled and job.failure is None]

    @property
    def failures(self) -> list[NatsFailure]:
        return [job.failure for job in self.jobs if job.failure is not None]


class Mover:
    """Moves the replicas of one request. Uses the system account's connection, and a user of each account that owns
    a stream.

    `known`: names of further servers that may be down; a leader that has had no contact with them since its start has
    only their IDs."""

    def __init__(self, connections: Connections, request: MoveRequest, known: Iterable[str] = ()) -> None:
        self._connections = connections
        self._request = request
        self._known = {request.source, *known}
        self._system = SystemApi(connections.own)
        self._meta = MetaApi(connections.own)
        self._names: dict[str, str] = {}
        self._answered = -math.inf

    def read_cluster(self, assets: bool = True, account: str | None = None) -> Cluster:
        """Return the cluster, with a meta leader (`read_led_cluster`), and store the names of its members."""
        cluster = read_led_cluster(self._system, self._known, assets, account)
        members = {name for stream in cluster.streams for name in stream.group.members}
        self._names.update({peer_id(name): name for name in cluster.names | members | {self._request.source}})
        return cluster

    def read(self, account: str, stream: str) -> StreamState:
        """Return the state of one stream. Raises NatsFailure."""
        return read_state(self._connections.account(account), stream, self._names)

    def prepare(self, cluster: Cluster, keys: Iterable[tuple[str, str]]) -> list[MoveJob]:
        """Return a job for each stream; a stream whose move cannot start has the failure.

        Capacities are reserved on the servers as replicas are planned. The function waits briefly for temporary states
        to end (elections, replicas that are a few entries behind)."""
        wanted = list(keys)
        seen = wait_until(
            lambda: self._prepare_once(cluster, wanted),
            lambda jobs: not any(job.failure and job.failure.code == "replicas_not_current" for job in jobs),
            ELECTION_SECONDS,
            POLL_SECONDS,
        )
        return seen.value

    def _prepare_once(self, cluster: Cluster, keys: Sequence[tuple[str, str]]) -> list[MoveJob]:
        jobs = [MoveJob(self.read(account, stream), self._request.source) for account, stream in keys]
        for job in sorted(jobs, key=lambda item: -replica_requirements(item.state.stream).bytes):
            if job.state.moving or not job.state.hosted_by(self._request.source):
                continue
            try:
                job.method, job.target = self._allow(cluster, job.state)
            except NatsFailure as refused:
                job.failure = refused
                continue
            if self._request.source in job.state.group.members:
                cluster = simulate_move(cluster, job.state.stream, self._request.source, job.target)
        return jobs

    def _allow(self, cluster: Cluster, state: StreamState) -> tuple[str, str]:
        """Return the method and the target server of the move. Raises NatsFailure with the reason if it is not
        allowed."""
        source = self._request.source
        behind = problems(state, cluster.names, source)
        if behind:
            raise self._refused("replicas_not_current", state, "; ".join(behind))
        method = self._method(cluster, state)
        if not self._request.accept_loss:
            self._refuse_loss(cluster, state, method)
        need = replica_requirements(state.stream)
        judgement = evaluate_candidates(cluster, need, state.group.members, [source])
        if not judgement.candidates:
            raise self._refused(
                "no_spare_server",
                state,
                f"no other server can take its replica on {source} (R{state.group.size} on "
                f"{', '.join(state.group.members)}): {judgement.reasons()}. Add a server or free space",
            )
        if self._request.target is None:
            return method, judgement.candidates[0]
        self._tags(cluster, state, judgement)
        if method == REMOVE:
            raise self._refused(
                "unsupported",
                state,
                f"only data that {source} itself transfers can be sent to a selected server, but it does not answer "
                "or is behind; remove it with state=absent, then move the new replica",
            )
        return method, self._request.target

    def _method(self, cluster: Cluster, state: StreamState) -> str:
        source = self._request.source
        in_step = source in cluster.names and not any(
            source in problem.servers for problem in group_problems(state.group, cluster.names)
        )
        if self._request.method == EVACUATE and source not in cluster.names:
            raise self._refused("server_missing", state, f"{source} does not answer, so its data cannot be moved first")
        if self._request.method == "auto":
            return EVACUATE if in_step else REMOVE
        return self._request.method

    def _refuse_loss(self, cluster: Cluster, state: StreamState, method: str) -> None:
        """Raise NatsFailure if messages or positions would be lost.

        PEER.REMOVE reports success although the only replica of an asset is lost. Up to 2.14, a single replica moves
        with its data, but a message that is acknowledged during the move may be lost (observed on 2.10.27, one in
        several hundred)."""
        source = self._request.source
        if method == EVACUATE:
            if source in state.group.members and state.group.size == 1 and cluster.api_level < LEVEL_2_15:
                raise self._refused(
                    "data_would_be_lost",
                    state,
                    "it has a single replica, and nats-server before 2.15 may lose messages published during the "
                    "move. Stop its producers and set accept_loss=true, or upgrade first",
                )
            return
        alone = [
            f"consumer {state.label}/{item.name}"
            for item in state.stream.consumers
            if item.group.members == (source,) and not item.group.ephemeral
        ]
        if source in state.group.members and state.group.size == 1:
            alone.insert(0, f"all {state.stream.messages} messages of stream {state.label}")
        alone += [f"consumer {state.label}/{name} (it has no leader)" for name in state.unknown]
        if alone:
            raise self._refused(
                "data_would_be_lost",
                state,
                f"{source} may have the only replica of: {', '.join(alone)}. If it is running, method=evacuate moves "
                "data and positions first; otherwise accept_loss=true",
            )

    def _tags(self, cluster: Cluster, state: StreamState, judgement: PlacementResult) -> list[str]:
        """Return the tags that restrict a move to the requested server. Raises NatsFailure if there are none."""
        target = self._request.target
        if target is None:
            return []
        if target not in judgement.candidates:
            reason = judgement.refused.get(
                target, "is already a member" if target in state.group.members else "is unknown"
            )
            raise self._refused("no_spare_server", state, f"{target} cannot take a replica of it: {target} {reason}")
        tag = own_tag(cluster, target, judgement.candidates)
        if tag is None and len(judgement.candidates) > 1:
            others = ", ".join(name for name in judgement.candidates if name != target)
            raise self._refused(
                "unsupported",
                state,
                f"the meta leader selects servers by tags, but {target} has no tag that distinguishes it from "
                f"{others}. Give every "
                "server its own tag, "
                f'such as server_tags: ["node:{target}"], and reload it',
            )
        return [tag] if tag else []

    def _refused(self, code: str, state: StreamState, reason: str) -> NatsFailure:
        return NatsFailure(
            code,
            f"stream {state.label}: {reason}. Nothing was changed.",
            server=self._request.source,
            account=state.stream.account,
        )

    # --- doing it -----------------------------------------------------------------------------------------------------

    def carry_out(
        self,
        jobs: list[MoveJob],
        timeout: float,
        concurrency: int,
        wait: bool = True,
        progress: Mapping[str, Any] | None = None,
    ) -> MovesProgress:
        """Start the moves and watch them; see the module's function `carry_out`."""
        return carry_out([(self, job) for job in jobs], timeout, concurrency, wait, progress)

    def begin(self) -> None:
        """Record that a server responds now; the time limit for silence starts again."""
        self._answered = time.monotonic()

    def advance(self, job: MoveJob, may_start: bool) -> None:
        """Read the stream again and take the next step of its move, if any."""
        try:
            job.state = self.read(*job.key)
        except NatsFailure as failure:
            gone = failure.code == "unreachable" and time.monotonic() - self._answered > GRACE
            if gone or not is_transient(failure):
                job.failure = failure
            return
        self._answered = time.monotonic()
        if job.started or job.state.moving or not job.state.hosted_by(self._request.source):
            job.settled = not unsettled(job.state, self._request.source)
            if job.state.short and not job.started:
                job.failure = short_failure(job.state)
            return
        if may_start:
            try:
                self._start(job)
            except NatsFailure as failure:
                job.failure = failure

    def _start(self, job: MoveJob) -> None:
        """Start the move after checking the servers' current state again. Raises NatsFailure."""
        cluster = self.read_cluster(assets=False)
        job.method, job.target = self._allow(cluster, job.state)
        self._hand_over(cluster, job.state)
        job.started = True
        try:
            self._ask(cluster, job)
        except NatsFailure as failure:
            self._raise_unless_started(job, failure)

    def _hand_over(self, cluster: Cluster, state: StreamState) -> None:
        """If the server leads the stream or its consumers, make another member lead them, and verify that it does."""
        account, stream, label = state.stream.account, state.stream.name, state.stream.account_name
        groups = {StepDownAsset(account, stream, None, label): state.group}
        groups.update({StepDownAsset(account, stream, item.name, label): item.group for item in state.stream.consumers})
        led = [asset for asset, group in groups.items() if group.leader == self._request.source and group.size > 1]
        constraints = leaders.LeaderConstraints(away_from=frozenset([self._request.source]))
        failed = move_leaders(self._connections, cluster, led, constraints, ELECTION_SECONDS)
        if failed:
            raise NatsFailure(
                "step_down_failed",
                f"{'; '.join(failed)}. No replica of stream {state.label} was moved.",
                server=self._request.source,
                account=account,
            )

    def _ask(self, cluster: Cluster, job: MoveJob) -> None:
        """Request the change from the meta leader: with PEER.EVACUATE (2.15) or MOVE (2.9), which copy the data first,
        or with PEER.REMOVE."""
        account, stream = job.key
        source, api = self._request.source, self._connections.account(account)
        if cluster.api_level >= LEVEL_2_15:
            api.renew_assignment(job.state.stream.info["config"])
        if job.method == REMOVE:
            api.remove_stream_peer(stream, source)
        elif self._request.target is None and cluster.api_level >= LEVEL_2_15:
            api.evacuate_stream_peer(stream, source)
        else:
            judgement = evaluate_candidates(
                cluster, replica_requirements(job.state.stream), job.state.group.members, [source]
            )
            self._meta.move_stream(account, stream, source, tags=self._tags(cluster, job.state, judgement))

    def _raise_unless_started(self, job: MoveJob, failure: NatsFailure) -> None:
        """Raise the failure together with the resulting state of the group, unless the change is in progress despite
        the failure.

        A request whose reply was lost may have been executed, and up to 2.14, a group may have lost its member despite
        error 10075 (jetstream_cluster.go remapStreamAssignment)."""
        before = job.state
        seen = wait_until(
            lambda: self.read(*job.key),
            lambda now: now.moving or now.short or self._request.source not in now.group.members,
            5.0,
        )
        job.state = now = seen.value
        if now.short:
            raise short_failure(now, failure) from failure
        if seen.done:
            return
        raise NatsFailure(
            failure.code,
            f"stream {now.label}: {failure.description}. Its group is unchanged: {', '.join(before.group.members)}",
            subject=failure.subject,
            server=self._request.source,
            account=before.stream.account,
            err_code=failure.err_code,
        ) from failure

    def repair(self, state: StreamState, cluster: Cluster, timeout: float) -> StreamState:
        """Restore the number of replicas of a group that lacks members, and return its state.

        num_replicas is set to the number of existing members and back: the meta leader then chooses new members, and no
        member loses data. The meta leader may choose a server that was just removed. Raises NatsFailure.
        """
        api, stream = self._connections.account(state.stream.account), state.stream
        wanted, there = state.group.size, len(state.group.members)
        behind = [
            problem.message for problem in group_problems(state.group) if not problem.code.endswith("_replica_count")
        ]
        if behind:
            raise self._refused("replicas_not_current", state, "; ".join(behind))
        judgement = evaluate_candidates(cluster, replica_requirements(stream), state.group.members)
        if len(judgement.candidates) < wanted - there:
            raise self._refused(
                "no_spare_server",
                state,
                f"{wanted - there} more server(s) must take a replica, but {len(judgement.candidates)} can: "
                f"{judgement.reasons()}",
            )
        config = stream.info["config"]
        api.update_stream({**config, "num_replicas": there})
        seen = wait_until(
            lambda: self.read(*state.key), lambda now: now.group.size == there and not unsettled(now), timeout
        )
        try:
            api.update_stream({**config, "num_replicas": wanted})
        except NatsFailure as failure:
            failure.description += (
                f". Stream {state.label} was set to num_replicas {there}: set it back to {wanted} later"
            )
            raise
        seen = wait_until(
            lambda: self.read(*state.key), lambda now: now.group.size == wanted and not unsettled(now), timeout
        )
        if not seen.done:
            raise NatsFailure(
                "repair_not_seen",
                f"stream {state.label} has num_replicas {wanted} again, but: {'; '.join(unsettled(seen.value))}",
                account=stream.account,
            )
        return seen.value


def carry_out(
    movers: Sequence[tuple[Mover, MoveJob]],
    timeout: float,
    concurrency: int,
    wait: bool = True,
    progress: Mapping[str, Any] | None = None,
) -> MovesProgress:
    """Start the moves, at most `concurrency` at once, and watch them until they are done or `timeout` seconds have
    passed.

    If `wait` is off, the function returns once as many moves as allowed have started. After a failure, no further move
    is started, and those in progress are watched until they end.
    """
    outcome = MovesProgress([job for _mover, job in movers])
    lines = Progress(progress, timeout)
    began = changed_at = time.monotonic()
    for mover, _job in movers:
        mover.begin()
    shown = dict.fromkeys([job.key for job in outcome.jobs], "")
    while True:
        for mover, job in movers:
            if job.settled or job.failure is not None:
                continue
            under_way = sum(1 for item in outcome.pending if item.started or item.state.moving)
            mover.advance(job, may_start=under_way < concurrency and not outcome.failures)
            if job.began is None and (job.started or job.state.moving):
                job.began = time.monotonic()
            if job.settled and job.began is not None:
                job.took = round(time.monotonic() - job.began, 3)
            sample = _sample(job)
            if shown[job.key] != str(sample):
                shown[job.key] = str(sample)
                changed_at = time.monotonic()
                sample["elapsed"] = round(changed_at - began, 1)
                outcome.progress = [*outcome.progress, sample][-MAX_SAMPLES:]
        outcome.waited = round(time.monotonic() - began, 3)
        outcome.still = round(time.monotonic() - changed_at, 1)
        lines.report(lambda: under_way_line(outcome))
        idle = not any(job.started or job.state.moving for job in outcome.pending)
        if not outcome.pending or (outcome.failures and idle) or outcome.waited > timeout or not wait:
            return outcome
        time.sleep(POLL_SECONDS)


def jobs_between(jobs: Sequence[MoveJob], source: str, target: str) -> list[MoveJob]:
    """Return the jobs that still have to move from one server to the other. Raises NatsFailure if the move is
    impossible."""
    needed = []
    for job in jobs:
        members = job.state.group.members
        if source not in members and target in members:
            continue
        if job.state.moving:
            needed.append(job)
            continue
        if source not in members or target in members:
            problem = f"{target} is already a member" if target in members else f"{source} is not a member"
            raise NatsFailure(
                "not_a_member",
                f"stream {job.state.label} cannot move from {source} to {target}: {problem} "
                f"(members: {', '.join(members)}). Nothing was changed.",
                server=source,
                account=job.state.stream.account,
            )
        needed.append(job)
    return needed


def wrong_target(job: MoveJob, target: str) -> NatsFailure | None:
    """Return the failure of a completed move that led to a different server than requested, otherwise None."""
    if target in job.state.group.members:
        return None
    description = f"stream {job.state.label} is now on {', '.join(job.state.group.members)}, not on {target}"
    return NatsFailure("wrong_target", description, server=target)


def hosted_streams(cluster: Cluster, server: str) -> list[Stream]:
    """Return the streams with a replica, or a consumer's replica, on the server, and those being moved."""
    return [
        stream
        for stream in cluster.streams
        if server in stream.group.members
        or any(server in consumer.group.members for consumer in stream.consumers)
        or stream.group.moving
        or len(stream.group.members) > stream.group.size
    ]


def require_leaders(connections: Connections, accounts: Iterable[str], server: str) -> None:
    """Raise NatsFailure if an account has a stream without a leader, because the server may have the stream's only
    replica.

    Servers do not report such a stream to the system account, but list its name in its own account."""
    for account in sorted(set(accounts)):
        unknown = connections.account(account).streams().unknown
        if unknown:
            raise NatsFailure(
                "stream_unknown",
                f"no leader for {', '.join(sorted(unknown))} of account {connections.label(account)}, so it is "
                f"unknown whether {server} has a replica. "
                "Start the server with the replica, or select other streams one by one",
                server=server,
                account=account,
            )


def move_leaders(
    connections: Connections,
    cluster: Cluster,
    assets: Sequence[StepDownAsset],
    constraints: leaders.LeaderConstraints,
    timeout: float,
    concurrency: int = 1,
    progress: Mapping[str, Any] | None = None,
) -> list[str]:
    """Make suitable members lead these streams and consumers, which must have suitable members; return those that
    failed, with the reasons."""
    if not assets:
        return []
    groups = AssetGroups(connections, cluster.servers)
    found = groups.named(assets)
    known = {asset: group for asset, group in found.items() if isinstance(group, RaftGroup)}
    plans = [leaders.plan_group(group, constraints, groups.servers) for group in known.values()]
    targeted = dict(
        zip(known, leaders.with_targets(plans, groups.supporting, [group.leader for group in known.values()]))
    )
    jobs = [StepDown(asset, plan) for asset, plan in targeted.items() if plan.action != leaders.FITS]
    step_down(groups, jobs, groups.servers, groups.supporting, timeout, concurrency, Progress(progress, timeout))
    failed = [
        f"{asset.label}: {reading.description}" for asset, reading in found.items() if isinstance(reading, NatsFailure)
    ]
    return failed + [f"{job.key.label}: {job.failed}" for job in jobs if job.failed]


def short_failure(state: StreamState, cause: NatsFailure | None = None) -> NatsFailure:
    """Return the failure with the actual size of the group and how to repair it."""
    there, wanted = len(state.group.members), state.group.size
    begun = (
        f"the server refused ({cause.description}) but removed the member" if cause else "the group has too few members"
    )
    return NatsFailure(
        "group_short",
        f"stream {state.label}: {begun}. It has {there} of {wanted} replicas now: {', '.join(state.group.members)}. "
        f"To repair it, set num_replicas to {there} and back to {wanted} (repair=true does so): that selects new "
        "members, and may select the removed server again",
        account=state.stream.account,
        err_code=cause.err_code if cause else None,
    )


def under_way_line(outcome: MovesProgress) -> str:
    """Return the progress of the moves, and the conditions for which the first ones are waiting."""
    pending = outcome.pending
    moving = [job for job in pending if job.started or job.state.moving]
    waiting = "; ".join(
        f"{job.state.label} ({human_bytes(job.state.stream.size)}): {', '.join(unsettled(job.state, job.source)) or 'begins'}"
        for job in (moving or pending)[:2]
    )
    still = f", no change for {outcome.still:.0f} s" if outcome.still >= EVERY else ""
    return f"{len(outcome.jobs) - len(pending)} of {len(outcome.jobs)} streams moved, {len(moving)} under way{still}. {waiting}"


def stalled_failure(outcome: MovesProgress, timeout: float) -> NatsFailure:
    """Return the failure with the conditions that were not met."""
    lines = [
        f"{job.state.label}: {'; '.join(unsettled(job.state, job.source))}"
        + (f" (server: {job.state.status})" if job.state.status else "")
        for job in outcome.pending
    ]
    return NatsFailure(
        "move_not_done",
        f"not done after {timeout:g} s, nothing changed in the last {outcome.still:g} s. {' | '.join(lines)}. Moves in "
        "progress "
        "continue; run this again to wait for them, or cancel a move with nats_stream_peer state=cancelled",
        server=outcome.pending[0].source,
    )


def joined(failures: Sequence[NatsFailure]) -> NatsFailure:
    """Return one failure for all failures: the first one, with the messages of the others."""
    first = failures[0]
    first.description = "\n".join(failure.description for failure in failures)
    return first


def predicted(job: MoveJob, source: str) -> dict[str, Any]:
    """Return the state in which a move should end, in the format of `StreamState.as_dict`; its leader cannot be predicted."""
    after = job.state.as_dict()
    if not job.target or not job.state.hosted_by(source):
        return after

    def exchanged(members: Iterable[str]) -> list[str]:
        return sorted(job.target if name == source and job.target else name for name in members)

    after["members"] = exchanged(after["members"])
    after["consumers"] = {name: exchanged(members) for name, members in after["consumers"].items()}
    if after["leader"] == source:
        after["leader"] = job.target if job.state.group.size == 1 else None
    return after


def _sample(job: MoveJob) -> dict[str, Any]:
    group = job.state.group
    return {
        "stream": job.state.label,
        "leader": group.leader,
        "members": list(group.members),
        "lag": {peer.name: peer.lag for peer in group.peers},
        "waiting_for": unsettled(job.state, job.source),
        "status": job.state.status,
        "done": job.settled,
    }
