# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests step-downs of the leaders of streams and consumers, in one or more accounts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Union

from ansible.module_utils.basic import AnsibleModule

from ..module import ACCOUNT_SPEC, fail
from ..nats.accounts import Connections
from ..nats.client import NatsFailure
from ..nats.error_codes import STREAM_NOT_FOUND
from ..nats.jetstream_api import JetStreamApi, require_name
from ..nats.model import CONSUMER, STREAM, RaftGroup, Server, peer_id
from ..nats.replies import consumer_group, stream_group
from ..nats.system_api import SystemApi, read_servers
from ..waiting import is_transient, positive, wait_until
from .leadership import (
    REFUSED,
    SINGLE,
    STEP_DOWN,
    LeaderConstraints,
    LeadershipPlan,
    plan_group,
    supports_placement,
    with_targets,
)
from .step_down import (
    CONSTRAINTS_SPEC,
    SETTLE_SECONDS,
    Reading,
    StepDownJob,
    leader_text,
    outcome,
    refuse,
    requested_constraints,
    require_known,
    step_down,
)

ASSET_SPEC: dict[str, dict[str, Any]] = {
    **CONSTRAINTS_SPEC,
    **ACCOUNT_SPEC,
    "all_accounts": {"type": "bool", "default": False},
    "concurrency": {"type": "int", "default": 8},
    "r1": {"type": "str", "choices": ["skip", "fail"]},
    "stream": {"type": "str"},
    "streams": {"type": "list", "elements": "str"},
    "consumer": {"type": "str"},
    "consumers": {"type": "list", "elements": "str"},
    "all_consumers": {"type": "bool", "default": False},
}

#: Seconds to wait for the state of a group; a group without a leader does not respond.
READ_SECONDS = 1.0

_NO_JETSTREAM = 10039


@dataclass(frozen=True)
class StepDownAsset:
    """A stream, or a consumer of the stream. `account` is None for the account of the task's own user; `account_name`:
    its display name."""

    account: str | None
    stream: str
    consumer: str | None = None
    account_name: str | None = field(default=None, compare=False)

    @property
    def label(self) -> str:
        owner = f" (account {self.account_name or self.account})" if self.account else ""
        consumer = f"consumer {self.consumer} of " if self.consumer is not None else ""
        return f"{consumer}stream {self.stream}{owner}"

    @property
    def order(self) -> tuple[str, ...]:
        return (self.account or "", self.stream, self.consumer or "")

    @property
    def kind(self) -> str:
        return "STREAM" if self.consumer is None else "CONSUMER"

    @property
    def tokens(self) -> str:
        return self.stream if self.consumer is None else f"{self.stream}.{self.consumer}"


class AssetGroups:
    """The Raft groups of streams and consumers, for `step_down`. `servers`: the available ones, by name. `supporting`:
    the names of the servers that support a preferred successor."""

    def __init__(self, connections: Connections, servers: Sequence[Server]) -> None:
        self._connections = connections
        self._ids = {peer_id(server.name): server.name for server in servers}
        self.servers = {server.name: server for server in servers}
        self._stream_configs: dict[tuple[str | None, str], Mapping[str, Any]] = {}

    @property
    def supporting(self) -> frozenset[str]:
        # A server before 2.11 rejects a request with a body, even if it does not lead the group.
        supporting = supports_placement(self.servers.values())
        return supporting if len(supporting) == len(self.servers) else frozenset()

    def assume_present(self, groups: Sequence[RaftGroup]) -> None:
        """Treat the groups' members as available servers of unknown versions."""
        for group in groups:
            for name in group.members:
                self.servers.setdefault(name, Server(name, "", group.cluster))

    def api(self, account: str | None) -> JetStreamApi:
        return self._connections.account(account)

    def read(self, keys: Sequence[StepDownAsset]) -> list[Reading]:
        answers = self._call(keys, [(f"{key.kind}.INFO.{key.tokens}", None) for key in keys], READ_SECONDS)
        return [self._reading(key, answer) for key, answer in zip(keys, answers)]

    def ask(self, requests: Sequence[tuple[StepDownAsset, Mapping[str, Any]]]) -> list[NatsFailure | None]:
        subjects = [(f"{key.kind}.LEADER.STEPDOWN.{key.tokens}", body) for key, body in requests]
        answers = self._call([key for key, _body in requests], subjects)
        return [answer if isinstance(answer, NatsFailure) else None for answer in answers]

    def named(self, assets: Sequence[StepDownAsset]) -> dict[StepDownAsset, Reading]:
        """Return the state of these assets. Raises NatsFailure if an asset does not exist, or if it cannot be queried."""
        streams = list(dict.fromkeys(replace(item, consumer=None) for item in assets))
        readings = dict(zip(streams, self.read(streams)))
        consumers = [asset for asset in assets if asset.consumer is not None]
        readings.update(zip(consumers, self.read(consumers)))
        for asset in [*streams, *assets]:
            reading = readings[asset]
            if isinstance(reading, NatsFailure) and not is_transient(reading):
                raise _with_context(asset, reading)
        return {asset: readings[asset] for asset in assets}

    def streams(self, account: str | None, stream: str | None) -> dict[StepDownAsset, Reading]:
        """Return the state of the account's streams, or only of the given stream."""
        if stream is not None:
            return self.named([StepDownAsset(account, stream, None, self._connections.label(account))])
        try:
            listing = self.api(account).streams()
        except NatsFailure as failure:
            raise _with_context(None, failure) from failure
        label = self._connections.label(account)
        found: dict[StepDownAsset, Reading] = {
            StepDownAsset(account, name, None, label): _unknown(why) for name, why in listing.unknown.items()
        }
        for info in listing.rows:
            asset = StepDownAsset(account, info["config"]["name"], None, label)
            found[asset] = self._reading(asset, info)
        return found

    def consumers(self, account: str | None, stream: str | None) -> dict[StepDownAsset, Reading]:
        """Return the state of the consumers of the account's streams, or only of the given stream."""
        names = [asset.stream for asset in self.streams(account, stream)]
        label = self._connections.label(account)
        found: dict[StepDownAsset, Reading] = {}
        for name, listing in zip(names, self.api(account).list_consumers(names)):
            if isinstance(listing, NatsFailure):
                if listing.err_code == STREAM_NOT_FOUND:  # deleted after the streams were listed
                    continue
                raise listing
            found.update(
                {
                    StepDownAsset(account, name, missing, label): _unknown(why)
                    for missing, why in listing.unknown.items()
                }
            )
            for info in listing.rows:
                asset = StepDownAsset(account, name, info["name"], label)
                found[asset] = self._reading(asset, info)
        return found

    def _reading(self, asset: StepDownAsset, answer: Union[Mapping[str, Any], NatsFailure]) -> Reading:
        """Return the group described by an info. The group's size is the configured one, or larger while the group is
        being moved."""
        if isinstance(answer, NatsFailure):
            return answer
        key = (asset.account, asset.stream)
        if asset.consumer is None:
            self._stream_configs[key] = answer["config"]
            group = stream_group(asset.account_name or asset.account or "", answer, self._ids)
        else:
            config = self._stream_configs.get(key, {})
            group = consumer_group(asset.account_name or asset.account or "", answer, config, self._ids)
        return replace(group, size=max(group.size, len(group.peers) + 1))

    def _call(
        self,
        assets: Sequence[StepDownAsset],
        requests: Sequence[tuple[str, Mapping[str, Any] | None]],
        timeout: float | None = None,
    ) -> list[Union[dict[str, Any], NatsFailure]]:
        """Return the reply to each request, sent as a user of each asset's account."""
        answers: dict[int, Union[dict[str, Any], NatsFailure]] = {}
        for account in dict.fromkeys(asset.account for asset in assets):
            mine = [index for index, asset in enumerate(assets) if asset.account == account]
            answers.update(zip(mine, self.api(account).call_many([requests[index] for index in mine], timeout)))
        return [answers[index] for index in range(len(assets))]


@dataclass(frozen=True)
class _Scope:
    """The selected assets: the `named` ones, or all assets in the accounts (and in the stream, if set) that are led by
    the servers to avoid."""

    kind: str
    accounts: tuple[str | None, ...]
    named: tuple[StepDownAsset, ...]
    stream: str | None

    def read(self, groups: AssetGroups) -> dict[StepDownAsset, Reading]:
        """Return the state of the assets that may be selected, sorted by name."""
        if self.named:
            return groups.named(self.named)
        found: dict[StepDownAsset, Reading] = {}
        for account in self.accounts:
            read = groups.streams if self.kind == STREAM else groups.consumers
            found.update(read(account, self.stream))
        return dict(sorted(found.items(), key=lambda item: item[0].order))

    def means(self, reading: Reading, constraints: LeaderConstraints) -> bool:
        """Return whether this asset is selected; an asset whose leader is unknown counts as selected."""
        if self.named or isinstance(reading, NatsFailure) or reading.leader is None:
            return True
        return reading.leader in constraints.away_from


def step_down_assets(module: AnsibleModule, connections: Connections) -> dict[str, Any]:
    """Return the module's result once every selected asset has a suitable leader. Raises NatsFailure."""
    params = module.params
    timeout = positive(params["wait_timeout"], "wait_timeout")
    if params["concurrency"] < 1:
        raise NatsFailure("invalid_option", f"concurrency: must be at least 1, not {params['concurrency']}")
    constraints = requested_constraints(params)
    scope = _scope(params, connections)

    def plan() -> tuple[AssetGroups, dict[StepDownAsset, LeadershipPlan]]:
        groups = AssetGroups(connections, _servers(connections, system=scope.accounts != (None,)))
        readings = scope.read(groups)
        known = [reading for reading in readings.values() if isinstance(reading, RaftGroup)]
        if scope.accounts == (None,) and len(groups.servers) == 1 and connections.own.addresses > 1:
            _require_no_tags(constraints, groups.servers.values())
            groups.assume_present(known)
        require_known(constraints, groups.servers.values(), known)
        meant = {asset: reading for asset, reading in readings.items() if scope.means(reading, constraints)}
        plans = [_plan(asset, reading, constraints, groups.servers) for asset, reading in meant.items()]
        return groups, dict(zip(meant, with_targets(plans, groups.supporting, (group.leader for group in known))))

    def settled(found: tuple[AssetGroups, dict[StepDownAsset, LeadershipPlan]]) -> bool:
        return not any(item.transient for item in found[1].values())

    seen = wait_until(plan, settled, min(timeout, SETTLE_SECONDS))
    groups, plans = seen.value
    skip = params["r1"] == "skip" or (params["r1"] is None and not scope.named)
    refused = {
        asset: item for asset, item in plans.items() if item.action == REFUSED or (item.action == SINGLE and not skip)
    }
    jobs: dict[StepDownAsset, StepDownJob[StepDownAsset]] = {}
    if not refused and not module.check_mode:
        jobs = {asset: StepDownJob(asset, item) for asset, item in plans.items() if item.action == STEP_DOWN}
        step_down(
            groups, list(jobs.values()), groups.servers, groups.supporting, timeout - seen.waited, params["concurrency"]
        )
    results = [
        _result(asset, item, asset in refused, jobs.get(asset), module.check_mode) for asset, item in plans.items()
    ]
    whole = {
        "changed": any(item["changed"] for item in results),
        "results": results,
        "totals": _totals(results),
        "waited": max((job.waited for job in jobs.values()), default=0.0),
    }
    if refused:
        refuse(module, [f"{asset.label}: {item.reason}" for asset, item in refused.items()], whole)
    if module._diff:
        whole["diff"] = _diff(results)
    failed = [f"{asset.label}: {job.failed}" for asset, job in jobs.items() if job.failed is not None]
    if failed:
        message = f"{len(failed)} of {len(jobs)} {scope.kind}s have no suitable leader: {'; '.join(failed)}"
        fail(module, NatsFailure("step_down_failed", message), **whole)
    return whole


def _scope(params: Mapping[str, Any], connections: Connections) -> _Scope:
    """Return the assets that the options select. Raises NatsFailure invalid_option."""
    names = _consumers(params)
    kind, one, many = (STREAM, "stream", "streams") if names is None else (CONSUMER, "consumer", "consumers")
    stream = params["stream"] if names is not None else None
    if names is None:
        names = [params[one]] if params[one] is not None else list(dict.fromkeys(params[many] or ()))
    for option, name in [*((one, name) for name in names), *([("stream", stream)] if stream is not None else [])]:
        require_name(option, name)
    if params[many] == []:
        raise NatsFailure(
            "invalid_option", f"{many}: the list is empty; omit it to select everything that away_from leads"
        )
    if not names and not params["away_from"]:
        raise NatsFailure(
            "invalid_option", f"without {one} or {many}, away_from must name the servers whose leaders step down"
        )
    if not params["all_accounts"]:
        account = connections.identity(params["account"]) if params["account"] else None
        label = connections.label(account)
        named = [
            StepDownAsset(account, name, None, label)
            if kind == STREAM
            else StepDownAsset(account, stream or "", name, label)
            for name in names
        ]
        return _Scope(kind, (account,), tuple(named), stream)
    if names or stream is not None or params["account"] is not None:
        raise NatsFailure("invalid_option", f"all_accounts: excludes account and the name of a stream or {one}")
    if not connections.accounts:
        raise NatsFailure("invalid_option", "all_accounts: account_users has no account")
    return _Scope(kind, connections.accounts, (), None)


def _consumers(params: Mapping[str, Any]) -> list[str] | None:
    """Return the names of the selected consumers, which are empty for all of them, or None if streams are selected.
    Raises NatsFailure invalid_option."""
    others = [name for name in ("streams", "consumer", "consumers") if params[name] is not None]
    if params["all_consumers"]:
        if others:
            raise NatsFailure("invalid_option", f"all_consumers: excludes {', '.join(others)}")
        return []
    if params["consumer"] is not None:
        return [params["consumer"]]
    return None if params["consumers"] is None else list(dict.fromkeys(params["consumers"]))


def _require_no_tags(constraints: LeaderConstraints, servers: Iterable[Server]) -> None:
    """Raise NatsFailure wrong_account if placement uses tags but the servers' tags are unknown."""
    if constraints.tags:
        names = ", ".join(server.name for server in servers)
        raise NatsFailure(
            "wrong_account",
            f"placement: only {names} reports its tags to a user of the owning account. Connect as a user of the "
            "system account with account and account_users",
        )


def _servers(connections: Connections, system: bool) -> tuple[Server, ...]:
    """Return the servers that respond to the task's user, a user of the system account or of the owning account.

    After a reload, a server may forward only one reply to a user of the owning account, usually its own (observed on
    2.10.27 and 2.15.1); the result then contains only that server, although it reports the addresses of others.
    """
    if system:
        return SystemApi(connections.own).discover().servers
    try:
        return read_servers(connections.own)
    except NatsFailure as failure:
        failure.description = (
            f"cannot read the servers: {failure.description}. The user must be allowed to publish to "
            f"{failure.subject}, or "
            "connect as a user of the system account with account and account_users"
        )
        raise


def _plan(
    asset: StepDownAsset, reading: Reading, constraints: LeaderConstraints, servers: Mapping[str, Server]
) -> LeadershipPlan:
    """Return the plan for an asset; a missing reply may be transient."""
    if isinstance(reading, NatsFailure):
        unknown = RaftGroup(kind=STREAM if asset.consumer is None else CONSUMER, subject=asset.label, size=0)
        return LeadershipPlan(
            REFUSED,
            constraints,
            unknown,
            reason=f"no leader answers: {reading.description}",
            transient=is_transient(reading),
        )
    return plan_group(reading, constraints, servers)


def _unknown(why: str) -> NatsFailure:
    return NatsFailure("timeout", why)


def _with_context(asset: StepDownAsset | None, failure: NatsFailure) -> NatsFailure:
    """Return the failure with the asset's name and, for an account without JetStream, the remedy."""
    if asset is not None:
        failure.description = f"{asset.label}: {failure.description}"
    if failure.err_code == _NO_JETSTREAM:
        failure.description += (
            ". The user's account has no JetStream: a user of the system account selects the owning account with "
            "account and sets a user of it in account_users"
        )
    return failure


def _result(
    asset: StepDownAsset, plan: LeadershipPlan, refused: bool, job: StepDownJob[StepDownAsset] | None, check_mode: bool
) -> dict[str, Any]:
    """Return the result for one asset."""
    return {
        "account": asset.account,
        "account_name": asset.account_name,
        "stream": asset.stream,
        **({"consumer": asset.consumer} if asset.consumer is not None else {}),
        **outcome(plan, job, check_mode and not refused),
        "skipped": plan.reason if plan.action == SINGLE and not refused else None,
        "refused": plan.reason if refused else None,
        "failed": job.failed if job is not None else None,
    }


def _totals(results: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the number of selected assets, and of each outcome."""
    totals = {key: sum(1 for item in results if item[key]) for key in ("changed", "skipped", "refused", "failed")}
    return {"groups": len(results), **totals}


def _diff(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the leaders of the changed assets, before and after."""
    changed = [item for item in results if item["changed"]]
    return {
        when: {
            StepDownAsset(
                item["account"], item["stream"], item.get("consumer"), item["account_name"]
            ).label: leader_text(item, when)
            for item in changed
        }
        for when in ("before", "after")
    }
