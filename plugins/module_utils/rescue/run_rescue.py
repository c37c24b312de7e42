# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Carries out the steps from `rescue/rescue_plan`: elects a meta leader with fewer votes, removes the dead servers,
and compares the remaining data with the servers' earlier data.

The earlier data is kept in a file from the first step to the last, so a run that resumes an interrupted one compares
with the same data."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..health.problem_file import problem_folder, write_problem_file
from ..nats.account_names import account_id
from ..nats.accounts import Connections
from ..nats.client import NatsFailure
from ..nats.error_codes import MEMBER_CHANGE_IN_FLIGHT
from ..nats.meta_api import MetaApi
from ..nats.model import Cluster, peer_id
from ..nats.system_api import SystemApi
from ..screen import page, some_names
from ..units import counted
from ..waiting import POLL_SECONDS, is_transient, wait_until
from . import rescue_plan as rules
from .rescue_state import RescueHost, RescueOptions, RescuePlan, RescueStep, Sight, Stored

#: The prefix of the name of the file that keeps the servers' data.
_RECORD = "rescue-"
#: Seconds to wait for a connection to a server's port before the port counts as closed.
_CONNECT_SECONDS = 2.0
#: Seconds within which servers notice the loss of the meta leader or of the quorum.
_NOTICED_SECONDS = 20.0


@dataclass(frozen=True)
class RescueSettings:
    """The parameters of a rescue. `expected`: servers of the inventory; `observe`: seconds for which the state must be
    stable before anything is changed; `timeout`: seconds until the result of each step must be visible; `directory`:
    the directory of the record, None for the default."""

    expected: frozenset[str] = frozenset()
    observe: float = 10.0
    timeout: float = 120.0
    directory: str | None = None


class Rescue:
    """The rescue of one request. Uses the system account's connection, and a user of each account to read which streams
    and consumers existed."""

    def __init__(
        self,
        connections: Connections,
        request: RescueOptions,
        hosts: Mapping[str, RescueHost],
        settings: RescueSettings,
    ) -> None:
        self._connections = connections
        self._settings = settings
        self._hosts = hosts
        self._system = SystemApi(connections.own)
        self._meta = MetaApi(connections.own)
        self._record = self._read_record(request.dead)
        self._request = replace(request, begun=frozenset(self._record.get("dead") or ()))

    # --- Remaining data ----------------------------------------------------------------------------------------------

    def plan(self) -> RescuePlan:
        """Return the planned steps, from two samples with the same meta leader. The first one is repeated until the
        servers have noticed their losses. Raises NatsFailure."""
        early = wait_until(
            self.look, lambda sight: rules.is_settled(sight, self._request), _NOTICED_SECONDS, POLL_SECONDS
        ).value
        first = rules.plan(early, self._request)
        if not first.due:
            return first
        time.sleep(self._settings.observe)
        late = self.look()
        made = rules.plan(late, self._request)
        changed = rules.unsteady(early, late)
        if changed:
            return replace(
                made,
                refusals=(*made.refusals, changed),
                page=made.page + page(f"Refused: {changed}."),
            )
        return made

    def look(self) -> Sight:
        """Return all known data of the cluster. Raises NatsFailure."""
        dead = self._request.dead
        awaited = self._settings.expected - dead
        cluster = self._system.read_cluster(
            awaited=awaited, known_names={*self._settings.expected, *dead, *self._request.begun}, health=False
        )
        held, accounts = self._held(cluster)
        leader = cluster.meta.group.leader if cluster.meta else None
        assigned = self._assigned(accounts) if leader else None
        unasked = accounts - set(self._connections.accounts) if assigned is not None else set()
        return Sight(cluster, held, self._hosts, assigned, frozenset(unasked))

    def _held(self, cluster: Cluster) -> tuple[dict[tuple[str, str], dict[str, Stored]], set[str]]:
        """Return each server's reported data, and the identities of the accounts with JetStream."""
        held: dict[tuple[str, str], dict[str, Stored]] = {}
        accounts = set()
        servers = [server for server in cluster.servers if server.jetstream]
        for server, answer in self._system.pages(servers, "JSZ", {"accounts": True, "streams": True}):
            if isinstance(answer, NatsFailure):
                raise answer
            for account in answer.get("account_details") or ():
                accounts.add(account_id(account))
                for stream in account.get("stream_detail") or ():
                    state = stream.get("state") or {}
                    found = Stored(state.get("messages", 0), state.get("last_seq", 0))
                    held.setdefault((account_id(account), stream["name"]), {})[server.name] = found
        return held, accounts

    def _assigned(self, accounts: set[str]) -> frozenset[str] | None:
        """Return the names of the streams and consumers in the meta group's log, for the accounts that have a user;
        None if the meta leader does not respond. A leader steps down some seconds after losing its majority."""
        names: set[str] = set()
        try:
            for account in accounts.intersection(self._connections.accounts):
                api = self._connections.account(account)
                for stream in api.stream_names():
                    names.add(f"{account}/{stream}")
                    names.update(f"{account}/{stream}/{consumer}" for consumer in api.consumer_names(stream))
        except NatsFailure as failure:
            if is_transient(failure):
                return None
            raise
        return frozenset(names)

    # --- doing it -----------------------------------------------------------------------------------------------------

    def carry_out(self, plan: RescuePlan) -> list[dict[str, Any]]:
        """Execute the steps and return the observed result of each. Raises NatsFailure that has the completed steps in
        `done`."""
        done: list[dict[str, Any]] = []
        self._write_record(plan)
        try:
            for step, document in zip(plan.steps, plan.batches):
                seen = {rules.RESCUE: self._elect, rules.REMOVE: self._remove, rules.WAIT: self._wait}[step.kind](
                    step, plan
                )
                done.append({**document, "seen": seen})
        except NatsFailure as failure:
            raise RescueFailed(failure, done) from failure
        self._forget_record()
        return done

    def _elect(self, _step: RescueStep, plan: RescuePlan) -> str:
        leader = self._leader(plan)
        self._require_nothing_lost(plan)
        return f"{leader} leads the meta group"

    def _leader(self, plan: RescuePlan) -> str:
        """Return the meta leader; if there is none, make the survivors elect one with as many votes as there are
        survivors. Raises NatsFailure."""
        asked: list[str] = []

        def leader() -> str:
            cluster = self._cluster()
            meta = cluster.meta
            if meta is not None and meta.group.leader:
                # A leader that has just lost its majority continues to lead for some seconds.
                return meta.group.leader if meta.quorum_needed <= len(plan.survivors) else ""
            answers = self._meta.rescue(len(plan.survivors), len(plan.survivors))
            asked[:] = rules.applied_problems(answers, plan.survivors, len(plan.survivors))
            return ""

        seen = wait_until(leader, bool, self._settings.timeout, 2.0)
        if not seen.done:
            why = f": {'; '.join(asked)}" if asked else ""
            raise NatsFailure(
                "rescue_not_seen",
                f"no meta leader was elected within {self._settings.timeout:g} s{why}. Nothing was removed.",
            )
        return seen.value

    def _cluster(self) -> Cluster:
        known = {*self._settings.expected, *self._request.dead, *self._request.begun}
        return self._system.read_cluster(known_names=known, assets=False, health=False)

    def _require_nothing_lost(self, plan: RescuePlan) -> None:
        """Raise NatsFailure unless all losses were accepted; only now does a leader list the streams and consumers that
        existed."""
        sight = wait_until(
            self.look, lambda seen: seen.assigned is not None, self._settings.timeout, POLL_SECONDS
        ).value
        refusals = rules.removal_refusals(sight, self._request, plan)
        if refusals:
            raise NatsFailure(
                "rescue_refused",
                "Nothing was removed, and the meta group loses its leader again in five minutes: "
                f"{'; '.join(refusals)}.",
            )

    def _remove(self, step: RescueStep, plan: RescuePlan) -> str:
        self._leader(plan)
        (name,) = step.servers
        if name == plan.removals[0] and not any(item.kind == rules.RESCUE for item in plan.steps):
            self._require_nothing_lost(plan)
        identity = peer_id(name)

        def gone() -> bool:
            cluster = self._cluster()
            meta = cluster.meta
            if meta is None or meta.group.leader is None:
                self._leader(plan)
                return False
            if name not in meta.group.members:
                return True
            try:
                self._meta.remove_server(name, identity)
            except NatsFailure as failure:
                if failure.err_code != MEMBER_CHANGE_IN_FLIGHT and not is_transient(failure):
                    raise
            return False

        seen = wait_until(gone, bool, self._settings.timeout, POLL_SECONDS)
        if not seen.done:
            raise NatsFailure(
                "removal_not_seen",
                f"{name} is still a member of the meta group after {self._settings.timeout:g} s",
                server=name,
            )
        return f"{name} is no longer a member"

    def _wait(self, _step: RescueStep, plan: RescuePlan) -> str:
        before = {
            (item["account"], item["stream"]): item["last_seq"] for item in self._record["streams"] if item["holders"]
        }
        missing: list[str] = []

        def whole() -> bool:
            sight = self.look()
            missing[:] = _missing(sight, self._request.begun, before)
            return not missing

        seen = wait_until(whole, bool, self._settings.timeout, 1.0)
        if not seen.done:
            raise NatsFailure(
                "rescue_not_seen", f"after {self._settings.timeout:g} s: {some_names(missing, separator='; ')}"
            )
        return f"the meta group and {counted(len(before), 'stream')} have leaders, with all messages of the servers"

    # --- the record ---------------------------------------------------------------------------------------------------

    def _read_record(self, dead: frozenset[str]) -> dict[str, Any]:
        """Return the record of an interrupted rescue of some of the same servers, empty if there is none."""
        for path in sorted(Path(problem_folder(self._settings.directory)).glob(f"{_RECORD}*.json")):
            record = json.loads(path.read_text(encoding="utf-8"))
            if set(record["expected"]) == self._settings.expected and dead & set(record["dead"]):
                return {**record, "path": str(path)}
        return {}

    def _write_record(self, plan: RescuePlan) -> None:
        if self._record:
            return
        content = {
            "expected": sorted(self._settings.expected),
            "dead": sorted(self._request.dead),
            "lost": list(plan.lost),
            "streams": [fate.as_dict() for fate in plan.fates],
        }
        name = f"{_RECORD}{'-'.join(sorted(self._request.dead))}"[:100]
        path = write_problem_file(self._settings.directory, name, content)
        self._record = {**content, "path": path}
        self._request = replace(self._request, begun=self._request.dead)

    def _forget_record(self) -> None:
        with suppress(OSError):
            os.unlink(self._record["path"])


class RescueFailed(NatsFailure):
    """The failure of a rescue that ended early. `done`: the observed results of the completed steps."""

    def __init__(self, cause: NatsFailure, done: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(
            cause.code,
            cause.description,
            subject=cause.subject,
            server=cause.server,
            account=cause.account,
            err_code=cause.err_code,
        )
        self.done = list(done)


def _missing(sight: Sight, dead: frozenset[str], before: Mapping[tuple[str, str], int]) -> list[str]:
    """Return the deviations after the removals, for operators; empty if there are none."""
    meta = sight.cluster.meta
    if meta is None or meta.group.leader is None:
        return ["the meta group has no leader"]
    found = []
    counted = dead.intersection(meta.group.members)
    if counted:
        found.append(f"the meta group still counts {', '.join(sorted(counted))}")
    there = {(stream.account, stream.name): stream for stream in sight.cluster.streams}
    for key, last_seq in before.items():
        stream = there.get(key)
        label = sight.shown("/".join(key))
        if stream is None:
            found.append(f"stream {label} does not exist")
        elif stream.group.leader is None:
            found.append(f"stream {label} has no leader")
        else:
            led = sight.held.get(key, {}).get(stream.group.leader)
            if led is None or (led.last_seq or 0) < last_seq:
                found.append(
                    f"stream {label} ends at {led.last_seq if led else 'nothing'}, but a server had it up to {last_seq}"
                )
            found += [
                f"consumer {label}/{consumer.name} has no leader"
                for consumer in stream.consumers
                if consumer.group.leader is None
            ]
    return found


def probe(addresses: Mapping[str, Sequence[tuple[str, int]]]) -> dict[str, tuple[str, ...]]:
    """Return the open ports of each server."""

    def opens(address: tuple[str, int]) -> bool:
        try:
            socket.create_connection(address, _CONNECT_SECONDS).close()
        except OSError:
            return False
        return True

    asked = [(name, address) for name, found in addresses.items() for address in found]
    if not asked:
        return {}
    with ThreadPoolExecutor(min(len(asked), 32)) as pool:
        answers = list(pool.map(lambda item: opens(item[1]), asked))
    result: dict[str, tuple[str, ...]] = {}
    for (name, (host, port)), answer in zip(asked, answers):
        if answer:
            result[name] = (*result.get(name, ()), f"{host}:{port}")
    return result
