# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Carries out the repairs from `rescue/repair_plan` one by one, each based on the current state of the servers, and
verifies each before the next one.

While a consumer is recreated, it briefly does not exist. A file keeps the consumer's data until it exists again, so the
next run can complete an interrupted one."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..backup.consumer_places import place_consumers
from ..backup.restore_rules import position, recreated_config
from ..health.problem_file import problem_folder, write_problem_file
from ..health.rules import Expectations, group_problems
from ..nats.account_names import account_labels
from ..nats.accounts import Connections
from ..nats.client import NatsFailure
from ..nats.error_codes import CONSUMER_NOT_FOUND
from ..nats.jetstream_api import JetStreamApi
from ..nats.meta_api import MetaApi
from ..nats.model import Cluster, Consumer
from ..nats.replies import consumer_group
from ..nats.system_api import SystemApi
from ..placement.known_servers import known_servers, unknown_servers
from ..placement.replica_moves import Mover, MoveRequest, stalled_failure
from ..placement.stream_state import read_state, unsettled
from ..waiting import wait_until
from . import repair_plan as rules
from .repair_plan import FaultEvidence, RepairFinding, RepairOptions, RepairStep

#: The prefix of the name of the file for a consumer that is being recreated.
_RECORD = "repair-"


@dataclass(frozen=True)
class RepairSettings:
    """The options of a repair. `observe`: seconds between the two samples; `timeout`: seconds until the result of each
    repair must be visible; `directory`: the directory of the records, None for the default."""

    expected: Expectations
    observe: float = 10.0
    timeout: float = 60.0
    directory: str | None = None


class Repair:
    """The repairs of one request. Uses the system account's connection, and a user of each account with faulty
    assets."""

    def __init__(self, connections: Connections, request: RepairOptions, settings: RepairSettings) -> None:
        self._connections = connections
        self._request = request
        self._settings = settings
        self._system = SystemApi(connections.own)
        self._last: Cluster | None = None

    # --- Findings and plan -------------------------------------------------------------------------------------------

    def look(self) -> Cluster:
        """Return the cluster with all its streams. Raises NatsFailure."""
        awaited = (self._settings.expected.servers or frozenset()) - self._request.dead
        return self._system.read_cluster(awaited=awaited, known_names={*awaited, *self._request.dead})

    def plan(self) -> list[RepairStep]:
        """Return the findings with their repairs, from two samples. Raises NatsFailure."""
        early = self.look()
        time.sleep(self._settings.observe)
        self._last = self.look()
        expected = self._settings.expected.servers or frozenset()
        unknown = unknown_servers(self._request.dead, known_servers(self._last) | expected)
        if unknown:
            raise NatsFailure("invalid_option", f"dead_servers: {unknown}")
        return self._plan(early, self._last)

    def _plan(self, early: Cluster, late: Cluster) -> list[RepairStep]:
        findings = rules.find(early, late, self._request, self._settings.expected)
        seen = {finding.name for finding in findings}
        records = self._records(late)
        for name, record in sorted(records.items()):
            if name not in seen and self._is_missing(record):
                message = "an interrupted repair has deleted it and not yet recreated it"
                where = record["account"], record["stream"], record["name"]
                shown = account_labels(late.accounts).get(record["account"], "")
                findings.append(RepairFinding(rules.CONSUMER_MISSING, message, *where, account_name=shown))
        findings = [finding for finding in findings if rules.matches(finding, self._request.assets)]
        evidence = {finding.key: self._evidence(finding, late, records.get(finding.name)) for finding in findings}
        return rules.plan(late, findings, evidence, self._request)

    def _evidence(self, finding: RepairFinding, cluster: Cluster, record: Mapping[str, Any] | None) -> FaultEvidence:
        try:
            if finding.consumer:
                return self._read_consumer(finding, cluster, record)
            if finding.stream:
                return self._read_stream(finding, cluster)
        except NatsFailure as failure:
            return FaultEvidence(failure=failure.description)
        return FaultEvidence()

    def _read_consumer(
        self, finding: RepairFinding, cluster: Cluster, record: Mapping[str, Any] | None
    ) -> FaultEvidence:
        api = self._connections.account(finding.account)
        stream = api.stream(finding.stream)
        config, state = stream.get("config") or {}, stream.get("state") or {}
        known = FaultEvidence(
            retention=config.get("retention", ""),
            first_seq=state.get("first_seq", 0),
            last_seq=state.get("last_seq", 0),
        )
        if finding.code == rules.CONSUMER_MISSING and record is not None:
            return replace(known, config=record["config"], floor=record["floor"], delivered=record["delivered"])
        views = self._replicas(finding, cluster)
        if views:
            # A replica's floor contains only acknowledgements that a majority has received, so the highest floor is
            # correct and lower ones are outdated.
            info = max(views, key=position)
            delivered = max(map(rules.delivered_seq, views))
            return replace(known, config=_complete(info, finding.consumer), floor=position(info), delivered=delivered)
        # A ghost exists on no server: the members reply with the assignment in the meta group's log, which has no
        # position.
        info = wait_until(lambda: api.consumer(finding.stream, finding.consumer), bool, 5).value
        return replace(known, config=_complete(info, finding.consumer))

    def _replicas(self, finding: RepairFinding, cluster: Cluster) -> list[Mapping[str, Any]]:
        """Return each server's report on its replica of a consumer."""
        consumer = _consumer(cluster, finding)
        if consumer is None:
            return []
        hosts = [server for server in cluster.servers if server.name in consumer.group.hosts]
        asked = {"accounts": True, "streams": True, "consumer": True, "config": True, "account": finding.account}
        views = []
        for answer in self._system.ask(hosts, "JSZ", asked).values():
            if isinstance(answer, NatsFailure):
                continue
            for account in answer.get("account_details") or ():
                for stream in account.get("stream_detail") or ():
                    if stream.get("name") == finding.stream:
                        views += [
                            item for item in stream.get("consumer_detail") or () if item["name"] == finding.consumer
                        ]
        return views

    def _read_stream(self, finding: RepairFinding, cluster: Cluster) -> FaultEvidence:
        api = self._connections.account(finding.account)
        if finding.code in (rules.REPLICA_BEHIND, rules.REPLICA_MISSING, rules.REPLICA_GONE):
            mover = Mover(self._connections, self._move(finding), self._request.dead)
            (job,) = mover.prepare(mover.read_cluster(account=finding.account), [(finding.account, finding.stream)])
            return FaultEvidence(refused=job.failure.description if job.failure else "")
        api.stream(finding.stream)
        return FaultEvidence()

    @staticmethod
    def _move(finding: RepairFinding) -> MoveRequest:
        return MoveRequest(finding.server, method="remove")

    # --- doing it -----------------------------------------------------------------------------------------------------

    def carry_out(self, step: RepairStep) -> str:
        """Repair one finding if it still exists, and return the observed result, or an empty text if there was nothing
        to do.

        The state that makes the repair safe is read immediately before it. Raises NatsFailure."""
        now = self.look()
        found = [item for item in self._plan(self._last or now, now) if item.finding.key == step.finding.key]
        if not found:
            return ""
        step = found[0]
        if step.refused:
            raise self._failure("repair_refused", step, f"{step.refused}. Nothing was changed")
        return {
            rules.RECREATE: self._recreate,
            rules.DELETE: self._delete,
            rules.RESET: self._reset,
            rules.REPLACE_REPLICA: self._replace,
            rules.REFILL: self._refill,
            rules.CANCEL_MOVE: self._cancel,
        }[step.fix](step)

    def _recreate(self, step: RepairStep) -> str:
        finding, api = step.finding, self._connections.account(step.finding.account)
        clusters = _clusters(self._last or self.look())
        record = {
            "clusters": clusters,
            "account": finding.account,
            "stream": finding.stream,
            "name": finding.consumer,
            "config": dict(step.config),
            "floor": step.floor,
            "delivered": step.floor or 0,
        }
        kept = write_problem_file(self._settings.directory, f"{_RECORD}{'-'.join(clusters)}-{finding.label}", record)
        if finding.code != rules.CONSUMER_MISSING:
            self._remove(api, step)
        stream = api.stream(finding.stream)
        retention = (stream.get("config") or {}).get("retention", "limits")
        entry = {"name": finding.consumer, "config": step.config, "ack_floor": {"stream_seq": step.floor or 0}}
        wanted = recreated_config(entry, retention)
        try:
            made = wait_until(
                lambda: api.save_consumer(finding.stream, wanted, "create"), bool, self._settings.timeout
            ).value
        except NatsFailure as failure:
            failure.description = (
                f"{finding.subject} was deleted and cannot be created again: {failure.description}. Its configuration "
                f"and ack floor are in {kept}; remove the obstacle and run this again"
            )
            raise
        self._verify_consumer(step)
        early = place_consumers(
            api,
            finding.stream,
            {finding.consumer: wanted},
            int(stream["state"]["last_seq"]),
            retention,
            self._settings.timeout,
        )
        if early:
            raise self._failure("repair_not_seen", step, f"it was recreated, but: {'; '.join(early)}")
        self._gone(step)
        with suppress(OSError):
            os.unlink(kept)
        changed = sorted(
            key
            for key, value in step.config.items()
            if key not in ("metadata", "name") and made["config"].get(key) != value
        )
        where = "according to its delivery policy" if step.floor is None else f"after {step.floor}"
        other = f" ({', '.join(changed)} changed to start there)" if changed else ""
        return f"recreated; it delivers {where}{other}"

    def _verify_consumer(self, step: RepairStep) -> None:
        """Wait until a consumer is complete and at its floor."""
        finding, api = step.finding, self._connections.account(step.finding.account)

        def wrong() -> list[str]:
            stream = api.stream(finding.stream)["config"]
            info = api.consumer(finding.stream, finding.consumer)
            group = consumer_group(finding.account_name or finding.account, info, stream)
            found = [problem.message for problem in group_problems(group)]
            if position(info) < (step.floor or 0):
                found.append(f"its ack floor is {position(info)}, not {step.floor}")
            return found

        seen = wait_until(wrong, lambda found: not found, self._settings.timeout)
        if not seen.done:
            raise self._failure("repair_not_seen", step, f"it was recreated, but: {'; '.join(seen.value)}")

    def _remove(self, api: JetStreamApi, step: RepairStep) -> None:
        """Delete a consumer and verify the deletion. For a ghost, no member of its group responds, or all members
        report it as missing."""
        finding = step.finding

        def gone() -> bool:
            try:
                api.delete_consumer(finding.stream, finding.consumer)
            except NatsFailure as failure:
                if failure.code != "timeout" and failure.err_code != CONSUMER_NOT_FOUND:
                    raise
            return finding.consumer not in api.consumer_names(finding.stream)

        seen = wait_until(gone, bool, self._settings.timeout)
        if not seen.done:
            raise self._failure("repair_not_seen", step, f"it still exists after {seen.waited:g} s")

    def _delete(self, step: RepairStep) -> str:
        self._remove(self._connections.account(step.finding.account), step)
        return "deleted; its client recreates it"

    def _reset(self, step: RepairStep) -> str:
        finding, api = step.finding, self._connections.account(step.finding.account)
        wanted = (step.floor or 0) + 1
        api.reset_consumer(finding.stream, finding.consumer, wanted)
        seen = wait_until(
            lambda: api.consumer(finding.stream, finding.consumer),
            lambda info: position(info) >= wanted - 1 and self._is_gone(step),
            self._settings.timeout,
        )
        if not seen.done:
            raise self._failure("repair_not_seen", step, "it was reset, but is not at the expected position")
        return f"reset; it delivers from {wanted}"

    def _replace(self, step: RepairStep) -> str:
        finding = step.finding
        mover = Mover(self._connections, self._move(finding), self._request.dead)
        jobs = mover.prepare(mover.read_cluster(account=finding.account), [(finding.account, finding.stream)])
        if jobs[0].failure:
            raise jobs[0].failure
        outcome = mover.carry_out(jobs, self._settings.timeout, 1)
        if outcome.failures:
            raise outcome.failures[0]
        if outcome.pending:
            raise stalled_failure(outcome, self._settings.timeout)
        self._gone(step)
        return f"its members are {', '.join(jobs[0].state.group.members)}"

    def _refill(self, step: RepairStep) -> str:
        finding = step.finding
        mover = Mover(self._connections, MoveRequest(""), self._request.dead)
        cluster = mover.read_cluster(account=finding.account)
        state = mover.repair(mover.read(finding.account, finding.stream), cluster, self._settings.timeout)
        self._gone(step)
        return f"its members are {', '.join(state.group.members)}"

    def _cancel(self, step: RepairStep) -> str:
        finding, api = step.finding, self._connections.account(step.finding.account)
        MetaApi(self._connections.own).cancel_move(finding.account, finding.stream)
        seen = wait_until(
            lambda: read_state(api, finding.stream, {}),
            lambda state: not unsettled(state),
            self._settings.timeout,
        )
        if not seen.done:
            raise self._failure(
                "repair_not_seen", step, f"its move was cancelled, but: {'; '.join(unsettled(seen.value))}"
            )
        return f"its members are {', '.join(seen.value.group.members)}"

    def _is_gone(self, step: RepairStep) -> bool:
        now = self.look()
        findings = rules.find(now, now, self._request, self._settings.expected)
        return step.finding.key not in {finding.key for finding in findings}

    def _gone(self, step: RepairStep) -> None:
        """Wait until the finding has disappeared. Raises NatsFailure."""
        if not wait_until(lambda: self._is_gone(step), bool, self._settings.timeout, 1.0).done:
            raise self._failure("repair_not_seen", step, "it was fixed, but the servers still report it")

    # --- records ------------------------------------------------------------------------------------------------------

    def _records(self, cluster: Cluster) -> dict[str, Mapping[str, Any]]:
        """Return the consumers of this cluster that earlier runs began to recreate, by name."""
        folder = Path(problem_folder(self._settings.directory))
        found = {}
        for path in sorted(folder.glob(f"{_RECORD}*.json")):
            record = json.loads(path.read_text(encoding="utf-8"))
            if record["clusters"] == _clusters(cluster):
                found["/".join((record["account"], record["stream"], record["name"]))] = record
        return found

    def _is_missing(self, record: Mapping[str, Any]) -> bool:
        try:
            api = self._connections.account(record["account"])
            return api.find_consumer(record["stream"], record["name"]) is None
        except NatsFailure:
            return False

    @staticmethod
    def _failure(code: str, step: RepairStep, reason: str) -> NatsFailure:
        return NatsFailure(code, f"{step.finding.subject}: {reason}.", account=step.finding.account or None)


def _clusters(cluster: Cluster) -> list[str]:
    return sorted({server.cluster for server in cluster.servers})


def _complete(info: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a consumer's configuration with its name, which 2.10 omits."""
    config = dict(info.get("config") or {})
    return {"name": name, **config} if config else {}


def _consumer(cluster: Cluster, finding: RepairFinding) -> Consumer | None:
    for stream in cluster.streams:
        if (stream.account, stream.name) == (finding.account, finding.stream):
            return next((item for item in stream.consumers if item.name == finding.consumer), None)
    return None


def carry_out_all(repair: Repair, steps: Sequence[RepairStep]) -> tuple[list[dict[str, Any]], NatsFailure | None]:
    """Perform the steps that are not refused until one fails; return the results and the failure."""
    done: list[dict[str, Any]] = []
    for step in steps:
        if step.refused:
            continue
        try:
            seen = repair.carry_out(step)
        except NatsFailure as failure:
            return done, failure
        done.append({**step.as_dict(), "seen": seen or "it no longer exists", "changed": bool(seen)})
    return done, None
