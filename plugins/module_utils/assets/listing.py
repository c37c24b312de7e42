# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads streams and consumers for the info modules, in one of two views.

The `account` view uses the JetStream API as a user of the account; the meta leader lists the assets, and each asset's
leader reports its state. The `system` view uses the servers' own reports, as a user of the system account. Both views
return the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

from ..health.rules import group_problems
from ..nats.account_names import account_id, account_labels
from ..nats.accounts import Connections
from ..nats.client import Client, NatsFailure
from ..nats.error_codes import CONSUMER_NOT_FOUND, NOT_ENABLED, STREAM_NOT_FOUND
from ..nats.jetstream_api import JetStreamApi, Listing, require_name
from ..nats.model import CONSUMER, STREAM, RaftGroup, Server
from ..nats.replies import consumer_group, stream_group
from ..nats.system_api import SystemApi
from ..problem import ERROR, Problem
from ..subjects import subjects_collide

ACCOUNT_VIEW, SYSTEM_VIEW = "account", "system"

#: Fields in nanoseconds, in configurations (stream.go StreamConfig, consumer.go ConsumerConfig) and infos.
_DURATIONS = frozenset(
    {
        "ack_wait",
        "active",
        "backoff",
        "duplicate_window",
        "idle_heartbeat",
        "inactive_threshold",
        "max_age",
        "max_expires",
        "pause_remaining",
        "priority_timeout",
        "subject_delete_marker_ttl",
    }
)

_STREAM_FACTS = ("created", "state", "mirror", "sources")
_CONSUMER_FACTS = (
    "created",
    "delivered",
    "ack_floor",
    "num_ack_pending",
    "num_redelivered",
    "num_waiting",
    "num_pending",
    "push_bound",
    "paused",
    "pause_remaining",
    "priority_groups",
)

#: JetStream errors for an asset that exists but whose state is unknown (server/errors.json): JetStream temporarily
#: unavailable; stream offline; consumer offline; stream and consumer offline with a reason (2.12).
_OFFLINE = (10008, 10118, 10119, 10194, 10195)


#: The servers that responded; if None, the replica states reported by an asset's leader are trusted.
Answered = Optional[frozenset[str]]


@dataclass(frozen=True)
class Unknown:
    """An asset whose state no leader reported, and the reason. `account`: the account's identity; `account_name`: its
    display name."""

    account: str | None
    account_name: str
    stream: str
    consumer: str | None
    reason: str

    def as_dict(self) -> dict[str, Any]:
        return {"account": self.account, "stream": self.stream, "consumer": self.consumer, "reason": self.reason}

    @property
    def label(self) -> str:
        """Return the asset's display name, such as APP/ORDERS/worker."""
        return "/".join((self.account_name, self.stream, *([] if self.consumer is None else [self.consumer])))

    def problem(self) -> Problem:
        kind = STREAM if self.consumer is None else CONSUMER
        subject = f"{kind} {self.label}"
        return Problem(f"{kind}_unknown", ERROR, subject, f"no leader reported the state of {subject}: {self.reason}")


@dataclass
class AssetListing:
    """The result of reading: rows as the modules return them, and the assets that no server reported. `view`: account
    or system. `unread_accounts`: accounts with JetStream that have no user in `account_users`, None if unknown."""

    view: str
    streams: list[dict[str, Any]] = field(default_factory=list)
    consumers: list[dict[str, Any]] = field(default_factory=list)
    unknown: list[Unknown] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    unread_accounts: list[str] | None = None

    def result(self, kind: str) -> dict[str, Any]:
        """Return the result of the module that lists the assets of this kind."""
        rows = self.streams if kind == STREAM else self.consumers
        rows.sort(key=lambda row: (row["account"] or "", row.get("stream", ""), row["name"]))
        return {
            "changed": False,
            "view": self.view,
            f"{kind}s": rows,
            "unknown": [item.as_dict() for item in self.unknown],
            "problems": [problem.as_dict() for problem in self.problems],
            "unread_accounts": self.unread_accounts,
        }

    def add_unknown(self, item: Unknown) -> None:
        self.unknown.append(item)
        self.problems.append(item.problem())

    def add(
        self, kind: str, account: str | None, info: Mapping[str, Any], group: RaftGroup, answered: Answered
    ) -> None:
        """Add the row of one asset. An asset without a leader is also listed as unknown, because its row was read from
        a single replica.

        A standalone server reports no group, so there are no group problems.
        """
        clustered = bool(info.get("cluster"))
        problems = group_problems(group, answered) if clustered else []
        self.problems += problems
        config = info.get("config") or {}
        stream: str = info.get("stream_name") or config.get("name") or info.get("name", "")
        consumer: str | None = None if kind == STREAM else info.get("name", "")
        account_name = group.subject.partition(" ")[2].rsplit("/", 1 if consumer is None else 2)[0]
        if clustered and group.leader is None:
            reasons = "; ".join(problem.message for problem in problems)
            self.unknown.append(Unknown(account, account_name, stream, consumer, reasons))
        identity = {"name": stream} if consumer is None else {"stream": stream, "name": consumer}
        shown = {"account": account, "account_name": account_name or None}
        row: dict[str, Any] = {**shown, **identity, "config": in_seconds(config)}
        facts = _STREAM_FACTS if kind == STREAM else _CONSUMER_FACTS
        row.update({name: in_seconds(info[name], name) for name in facts if info.get(name) is not None})
        row.update(group.as_dict())
        row["leader_since"] = (info.get("cluster") or {}).get("leader_since")
        row["problems"] = [problem.as_dict() for problem in problems]
        (self.streams if kind == STREAM else self.consumers).append(row)


def in_seconds(value: Any, name: str = "") -> Any:
    """Return the value with the server's nanoseconds converted to seconds; a duration below 0 ("never") becomes None.

    Only the keys listed here are durations; the `metadata` of an asset, which may have any keys, is left unchanged.
    """
    if name == "metadata":
        return value
    if isinstance(value, Mapping):
        return {key: in_seconds(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [in_seconds(item, name) for item in value]
    if name in _DURATIONS and isinstance(value, (int, float)) and not isinstance(value, bool):
        return value / 1e9 if value >= 0 else None
    return value


def visible_servers(client: Client) -> Sequence[Server] | None:
    """Return all servers, None if the connected user is not a user of the system account, whose requests servers
    answer. Raises NatsFailure."""
    try:
        return SystemApi(client).discover().servers
    except NatsFailure as failure:
        if failure.code in ("wrong_account", "permission"):
            return None
        raise


def is_system_user(client: Client) -> bool:
    """Return whether the connected user belongs to the system account, so servers respond to its requests."""
    return visible_servers(client) is not None


def own_account_api(connections: Connections, account: str | None) -> JetStreamApi:
    """Return the JetStream API of the task's own user, with its account if a server reports it (2.10).

    Raises NatsFailure wrong_account if the requested account, given by identity or name, is a different one.
    """
    names = SystemApi(connections.own).own_account_name()
    own, label = next(iter(names.items()), (None, ""))
    if account not in (None, own, label):
        raise NatsFailure(
            "wrong_account",
            f"the user is in account {own or 'of unknown name'}, not in {account}: connect with a user of {account} "
            "or of the system account, or set a user of it in account_users",
            account=account,
        )
    return JetStreamApi(connections.own, own, label)


def read_assets(connections: Connections, params: Mapping[str, Any], kind: str) -> AssetListing:
    """Return the streams that the options select, or their consumers if kind is `consumer`.

    If `account_users` is set, the assets are read as a user of each account (or only of `account`). Otherwise, the
    task's own user reads them, in the account view or, for a user of the system account, in the system view. Raises
    NatsFailure.
    """
    stream, consumer = params["stream"], params.get("consumer")
    for option, name in (("stream", stream), ("consumer", consumer)):
        if name is not None:
            require_name(option, name)
    account = params["account"]
    if connections.accounts:
        found = AssetListing(ACCOUNT_VIEW)
        for name in [account] if account else connections.accounts:
            _read_account(found, connections.account(name), params, kind)
        if account is None:
            found.unread_accounts = _unread_accounts(connections)
        return found
    if is_system_user(connections.own):
        return _read_system(connections.own, params, kind)
    found = AssetListing(ACCOUNT_VIEW)
    _read_account(found, own_account_api(connections, account), params, kind)
    return found


def _unread_accounts(connections: Connections) -> list[str] | None:
    """Return the display names of the accounts with JetStream for which no user is configured; None if the task's own
    user cannot list accounts."""
    if not is_system_user(connections.own):
        return None
    api = SystemApi(connections.own)
    names: dict[str, str] = {}
    for answer in api.ask(api.discover().servers, "JSZ", {"accounts": True}).values():
        if isinstance(answer, NatsFailure):
            raise answer
        names.update({account_id(item): item["name"] for item in answer.get("account_details") or ()})
    labels = account_labels(names)
    return sorted(labels[key] for key in names.keys() - set(connections.accounts))


# --- the account's view -----------------------------------------------------------------------------------------------


def _read_account(found: AssetListing, api: JetStreamApi, params: Mapping[str, Any], kind: str) -> None:
    listing = _streams(api, params["stream"], params.get("subject"))
    if kind == STREAM:
        for name, reason in listing.unknown.items():
            found.add_unknown(Unknown(api.account, api.label, name, None, reason))
        for info in listing.rows:
            if info["config"]["name"] not in listing.unknown:
                found.add(STREAM, api.account, info, stream_group(api.label, info), None)
        return
    configs = {info["config"]["name"]: info["config"] for info in listing.rows}
    names = [*configs, *listing.unknown]
    for name, consumers in zip(names, _consumers(api, names, params["consumer"])):
        if isinstance(consumers, NatsFailure):
            if consumers.err_code == STREAM_NOT_FOUND:
                continue  # deleted after it was listed
            raise consumers
        for consumer, reason in consumers.unknown.items():
            found.add_unknown(Unknown(api.account, api.label, name, consumer, reason))
        for info in consumers.rows:
            if info["name"] in consumers.unknown:
                continue
            if name not in configs:
                reason = f"the configuration of its stream is unknown ({listing.unknown[name]})"
                found.add_unknown(Unknown(api.account, api.label, name, info["name"], reason))
                continue
            group = consumer_group(api.label, info, configs[name])
            found.add(CONSUMER, api.account, info, group, None)


def _streams(api: JetStreamApi, name: str | None, subject: str | None) -> Listing:
    try:
        if name is None:
            return api.streams(subject)
        one = _one(name, lambda: api.stream(name), STREAM_NOT_FOUND)
    except NatsFailure as failure:
        if failure.err_code in NOT_ENABLED:
            failure.description += (
                ". A user of the system account can list all accounts, a user in account_users only its own."
            )
        raise
    stores = [item for info in one.rows for item in info["config"].get("subjects") or ()]
    wanted = subject is None or not one.rows or any(subjects_collide(subject, item) for item in stores)
    return one if wanted else Listing((), {})


def _consumers(api: JetStreamApi, streams: Sequence[str], name: str | None) -> Sequence[Listing | NatsFailure]:
    if name is None:
        return api.list_consumers(streams)
    return [_one(name, lambda stream=stream: api.consumer(stream, name), CONSUMER_NOT_FOUND) for stream in streams]  # type: ignore[misc]


def _one(name: str, read: Callable[[], dict[str, Any]], not_found: int) -> Listing:
    """Return the listing of a single asset; empty if the asset does not exist."""
    try:
        return Listing((read(),), {})
    except NatsFailure as failure:
        if failure.err_code == not_found:
            return Listing((), {})
        if failure.err_code in _OFFLINE or failure.code == "timeout":
            return Listing((), {name: failure.description})
        raise


# --- the system's view ------------------------------------------------------------------------------------------------


def _read_system(client: Client, params: Mapping[str, Any], kind: str) -> AssetListing:
    found = AssetListing(SYSTEM_VIEW)
    cluster = SystemApi(client).read_cluster(account=params["account"], consumers=kind == CONSUMER, health=False)
    for server in cluster.servers:
        if server.jetstream and server.summary is None:
            why = " (permission denied)" if "JSZ" in server.denied else ""
            message = f"{server.name} did not answer JSZ{why}: streams that only it has are missing"
            found.problems.append(Problem("server_silent", ERROR, server.name, message, (server.name,)))
    for stream in cluster.only(stream=params["stream"]).streams:
        if not _stores(stream.info, params.get("subject")):
            continue
        if kind == STREAM:
            found.add(STREAM, stream.account, stream.info, stream.group, cluster.names)
            continue
        for consumer in stream.consumers:
            if params["consumer"] in (None, consumer.name):
                found.add(CONSUMER, stream.account, consumer.info, consumer.group, cluster.names)
    return found


def _stores(info: Mapping[str, Any], subject: str | None) -> bool:
    subjects = (info.get("config") or {}).get("subjects") or ()
    return subject is None or any(subjects_collide(subject, item) for item in subjects)
