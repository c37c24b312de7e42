# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the streams of both sites: connections, stream states, and the records at the second site."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Callable, Optional

from ..accounts.minted_logins import account_logins
from ..backup.manifest import without_server_metadata
from ..module import ACCOUNT_USERS_SPEC
from ..nats.accounts import Connections
from ..nats.client import ConnectionOptions, NatsFailure
from ..nats.error_codes import MESSAGE_NOT_FOUND, STREAM_NOT_FOUND
from ..nats.jetstream_api import JetStreamApi
from ..nats.stored_message import SOURCE_HEADER, header_values
from .record import (
    Checkpoint,
    Drill,
    Failback,
    Failover,
    Record,
    RecordError,
    checkpoint_in,
    drill_in,
    failback_in,
    failover_in,
    record_config,
    record_stream,
    with_record,
    without_failover,
)
from .status import MIRROR, SOURCES, Protected, SideReading, copy_kind

_SIDE_SPEC: dict[str, Any] = {
    "type": "dict",
    "required": True,
    "options": {
        "name": {"type": "str", "required": True},
        "servers": {"type": "list", "elements": "str"},
        "jetstream_domain": {"type": "str"},
        **ACCOUNT_USERS_SPEC,
    },
}

#: The options of doc_fragments/dr.py.
DR_SPEC: dict[str, dict[str, Any]] = {
    "origin": _SIDE_SPEC,
    "site": _SIDE_SPEC,
    "streams": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "account": {"type": "str"},
            "stream": {"type": "str", "required": True},
            "copy": {"type": "str"},
            "promoted": {"type": "str"},
            "subjects": {"type": "list", "elements": "str"},
        },
    },
}


@dataclass(frozen=True)
class Side:
    """One side: its name, and its connections. `own_servers`: whether the side has its own addresses."""

    name: str
    connections: Connections
    own_servers: bool
    domain: Optional[str] = None

    def api(self, account: Optional[str]) -> JetStreamApi:
        return self.connections.account(account)


@dataclass(frozen=True)
class Pair:
    """The origin and the site."""

    origin: Side
    site: Side


@contextmanager
def connected(options: ConnectionOptions, params: Mapping[str, Any]) -> Iterator[Pair]:
    """Yield both sides. The connection options of each side override those of the task. Raises NatsFailure
    invalid_option."""
    if params["origin"]["name"] == params["site"]["name"]:
        raise NatsFailure("invalid_option", f"origin and site have the same name, {params['site']['name']}")
    try:
        record_stream(params["site"]["name"])
    except RecordError as error:
        raise NatsFailure("invalid_option", f"site: {error}") from error
    found = {name: _side(options, params[name], params) for name in ("origin", "site")}
    with found["origin"].connections, found["site"].connections:
        yield Pair(found["origin"], found["site"])


def _side(options: ConnectionOptions, given: Mapping[str, Any], params: Mapping[str, Any]) -> Side:
    servers = tuple(given["servers"] or ())
    own = replace(
        options,
        servers=servers or options.servers,
        jetstream_domain=given["jetstream_domain"] or options.jetstream_domain,
    )
    logins = account_logins(own, given["account_users"] or params.get("account_users") or ())
    connections = Connections(own, logins.users, logins.unusable)
    return Side(given["name"], connections, bool(servers), own.jetstream_domain)


def protected_streams(params: Mapping[str, Any]) -> list[Protected]:
    """Return the requested streams. Raises NatsFailure invalid_option."""
    found = [
        Protected(
            entry["account"],
            entry["stream"],
            entry["copy"] or entry["stream"],
            entry["promoted"] or "",
            tuple(entry["subjects"] or ()),
        )
        for entry in params["streams"]
    ]
    if not found:
        raise NatsFailure("invalid_option", "streams: the list is empty")
    twice = {one.name for one in found if sum(other.name == one.name for other in found) > 1}
    if twice:
        raise NatsFailure("invalid_option", f"streams: listed more than once: {', '.join(sorted(twice))}")
    return found


def read_pair(
    pair: Pair, account: Optional[str], streams: Sequence[Protected]
) -> list[tuple[SideReading, SideReading]]:
    """Return the readings of origin and site for each stream of an account. The site is read first, so the difference
    includes every message that the site lacks."""
    sites = read_site(pair.site, account, streams)
    origins = _infos(pair.origin, account, [one.stream for one in streams])
    if any(not reading.problem for reading in origins):
        origins = _with_consumers(pair.origin.api(account), streams, origins)
        origins = _with_oldest(pair.origin.api(account), streams, origins, sites)
    return list(zip(origins, sites))


def read_site(site: Side, account: Optional[str], streams: Sequence[Protected]) -> list[SideReading]:
    """Return the site's reading for each stream of an account."""
    readings = _infos(site, account, [one.copy for one in streams])
    return [_with_position(site, one, reading) for one, reading in zip(streams, readings)]


def _infos(side: Side, account: Optional[str], names: Sequence[str]) -> list[SideReading]:
    try:
        answers = side.api(account).call_many([(f"STREAM.INFO.{name}", None) for name in names])
    except NatsFailure as failure:
        if failure.code == "invalid_option":
            raise
        return [SideReading(problem=failure.description) for _name in names]
    return [_reading(answer) for answer in answers]


def _reading(answer: dict[str, Any] | NatsFailure) -> SideReading:
    if not isinstance(answer, NatsFailure):
        return SideReading(info=answer)
    return SideReading() if answer.err_code == STREAM_NOT_FOUND else SideReading(problem=answer.description)


def _with_position(side: Side, stream: Protected, reading: SideReading) -> SideReading:
    if reading.info is None:
        return reading
    config = reading.info["config"]
    kind = copy_kind(config, stream.stream)
    if kind == MIRROR:
        return replace(reading, position=reading.last_seq)
    if kind == SOURCES and len(config["sources"]) == 1 and not config.get("subjects"):
        try:
            return replace(reading, position=_last_sourced(side.api(stream.account), stream.copy))
        except NatsFailure as failure:
            return replace(reading, problem=failure.description, info=None)
    return reading


def _last_sourced(api: JetStreamApi, name: str) -> int:
    message = api.last_message(name)
    return 0 if message is None else source_sequence(message) or 0


def source_sequence(message: Mapping[str, Any]) -> Optional[int]:
    """Return a message's sequence in its source stream, or None if it was published directly to this stream."""
    parts = next(iter(header_values(message, SOURCE_HEADER)), "").split()
    return int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else None


def _with_consumers(api: JetStreamApi, streams: Sequence[Protected], readings: list[SideReading]) -> list[SideReading]:
    there = [index for index, reading in enumerate(readings) if reading.info is not None]
    result = list(readings)
    for index, listing in zip(there, api.list_consumers([streams[index].stream for index in there])):
        if isinstance(listing, NatsFailure):
            result[index] = replace(readings[index], unknown={"all": listing.description})
        else:
            rows = {row["name"]: row for row in listing.rows}
            result[index] = replace(readings[index], consumers=rows, unknown=listing.unknown)
    return result


def _with_oldest(
    api: JetStreamApi, streams: Sequence[Protected], origins: list[SideReading], sites: Sequence[SideReading]
) -> list[SideReading]:
    """Complete each reading of an origin with the time at which it stored the first message that the site lacks."""
    wanted = [
        (index, site)
        for index, (origin, site) in enumerate(zip(origins, sites))
        if origin.info is not None and site.position is not None and origin.last_seq > site.position
    ]
    requests: list[tuple[str, Mapping[str, Any] | None]] = [
        (
            f"STREAM.MSG.GET.{streams[index].stream}",
            {"seq": (site.position or 0) + 1, "next_by_subj": _filter(site, streams[index].stream)},
        )
        for index, site in wanted
    ]
    result = list(origins)
    for (index, _site), answer in zip(wanted, api.call_many(requests)):
        if not isinstance(answer, NatsFailure):
            result[index] = replace(origins[index], oldest=answer["message"]["time"])
        elif answer.err_code != MESSAGE_NOT_FOUND:
            result[index] = SideReading(problem=answer.description)
    return result


def _filter(site: SideReading, stream: str) -> str:
    config = (site.info or {}).get("config") or {}
    found = [entry for entry in (config.get("mirror"), *(config.get("sources") or ())) if entry]
    return next((str(entry.get("filter_subject") or ">") for entry in found if entry.get("name") == stream), ">")


# --- records ------------------------------------------------------------------------------------------------------------


class Records:
    """The records of one account at the site."""

    def __init__(self, side: Side, account: Optional[str]) -> None:
        self._side = side.name
        self._api = side.api(account)
        self._config: Optional[dict[str, Any]] = None
        self._metadata: dict[str, str] = {}
        info = self._api.find_stream(record_stream(self._side))
        if info is not None:
            self._config = info["config"]
            self._metadata = dict(info["config"].get("metadata") or {})

    def checkpoint(self, stream: str) -> Optional[Checkpoint]:
        """Return the checkpoint of a stream. Raises NatsFailure bad_record."""
        with _record_errors():
            return checkpoint_in(self._metadata, stream)

    def failover(self, stream: str) -> Optional[Failover]:
        """Return the failover of a stream. Raises NatsFailure bad_record."""
        with _record_errors():
            return failover_in(self._metadata, stream)

    def failback(self, stream: str) -> Optional[Failback]:
        """Return the failback of a stream. Raises NatsFailure bad_record."""
        with _record_errors():
            return failback_in(self._metadata, stream)

    def drill(self, stream: str) -> Optional[Drill]:
        """Return the last drill of a stream. Raises NatsFailure bad_record."""
        with _record_errors():
            return drill_in(self._metadata, stream)

    def forget_failover(self, stream: str) -> None:
        """Remove the record of a failover that changed nothing, or those of a failover and its failback. Raises
        NatsFailure."""
        if self._config is not None:
            self._store(self._config, without_failover(self._metadata, stream))

    def keep(self, stream: str, copy: Mapping[str, Any], record: Record) -> None:
        """Write a record and verify it. `copy`: configuration of the stream's copy. Raises NatsFailure."""
        with _record_errors():
            metadata = with_record(self._metadata, stream, record)
        if self._config is None:
            self._config = self._api.create_stream(record_config(self._side, copy, metadata))["config"]
            self._metadata = dict(self._config.get("metadata") or {})
        else:
            self._store(self._config, metadata)
        readers: dict[type, Callable[[str], Optional[Record]]] = {
            Checkpoint: self.checkpoint,
            Failover: self.failover,
            Failback: self.failback,
            Drill: self.drill,
        }
        if readers[type(record)](stream) != record:
            raise NatsFailure("bad_record", f"stream {record_stream(self._side)} does not have the stored record")

    def _store(self, config: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
        info = self._api.update_stream(without_server_metadata({**config, "metadata": dict(metadata)}))
        self._config = info["config"]
        self._metadata = dict(info["config"].get("metadata") or {})


@contextmanager
def _record_errors() -> Iterator[None]:
    try:
        yield
    except RecordError as error:
        raise NatsFailure("bad_record", str(error)) from error
