# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The records at a stream's second site: the last checkpoint of the origin, and the progress of a failover. Pure.

The records are stored in the metadata of one stream. Metadata needs no permissions beyond those for managing streams,
is stored next to the copies, and outlives the controller. Servers accept 128 KiB of metadata (stream.go
JSMaxMetadataLen).
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Optional, Union

SCHEMA = 1

#: Maximum total bytes of the entries, below the servers' limit.
MAX_BYTES = 120 << 10

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_CHECKPOINT, _FAILOVER, _FAILBACK, _DRILL = "checkpoint.", "failover.", "failback.", "drill."

#: Maximum length of the recorded reason for a drill's failure.
_REASON = 300


class RecordError(ValueError):
    """A record that cannot be read or written."""


@dataclass(frozen=True)
class Checkpoint:
    """The state of the origin when it last responded. `taken`: the time. `config`: the stream's configuration.
    `consumers`: name, config, ack_floor, delivered, num_ack_pending of each consumer."""

    taken: str
    last_seq: int
    messages: int
    config: dict[str, Any]
    consumers: tuple[dict[str, Any], ...]


#: The next step of a failover: fence the origin, promote the copy, create its consumers; or none.
FENCE, PROMOTE, CONSUMERS, DONE = "fence", "promote", "consumers", "done"


def fenced_subject(stream: str) -> str:
    """Return the subject that a stream of the origin has while it is fenced."""
    return f"nats_dr.fenced.{stream}"


def is_fenced(config: Mapping[str, Any], stream: str) -> bool:
    """Return whether the stream has only its fencing subject, which clients do not use."""
    return list(config.get("subjects") or ()) == [fenced_subject(stream)]


@dataclass(frozen=True)
class Failover:
    """A failover of a stream to its site. `phase`: the next step. `promised`: the loss that the status predicted.
    `position`: the origin's sequence of the last copied message; `last_copied`: that message's sequence in the stream
    `target`, after which the site's own writes begin. `origin_config`: the origin's configuration before it was fenced.
    `complete`: whether the site was observed to have everything that the fenced origin has."""

    phase: str
    started: str
    fence: str
    method: str
    target: str
    subjects: tuple[str, ...]
    promised: dict[str, Any]
    position: int
    last_copied: int
    consumers: tuple[dict[str, Any], ...]
    origin_config: dict[str, Any]
    complete: bool = False
    finished: str = ""

    @property
    def done(self) -> bool:
        return self.phase == DONE


@dataclass(frozen=True)
class Failback:
    """The return of a stream to its origin. `origin_last`: the last sequence there before the site's messages.
    `floors`: the ack floor of each consumer at the origin. `twice`: IDs of messages that both sides stored after the
    failover."""

    started: str
    origin_last: int
    floors: dict[str, int]
    twice: tuple[str, ...]


@dataclass(frozen=True)
class Drill:
    """The result of the last failover drill. `seconds`: from the promotion until the stream served with its consumers;
    `copied`: seconds for creating the throw-away copy before the promotion. `proven`: time of the last successful
    drill, empty if there was none."""

    time: str
    ok: bool
    reason: str
    method: str
    messages: int
    position: int
    consumers: int
    copied: float
    seconds: float
    proven: str = ""


Record = Union[Checkpoint, Failover, Failback, Drill]


def record_stream(site: str) -> str:
    """Return the name of the stream that contains the records of a site. Raises RecordError if the site's name contains
    characters that stream names may not contain."""
    if not _NAME.fullmatch(site):
        raise RecordError(f"{site!r} is not the name of a site: letters, digits, '_' and '-' only")
    return f"NATS_DR_{site}"


def record_config(site: str, copy: Mapping[str, Any], metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return the configuration of the stream for the records: it stores no messages, and has the number of replicas and
    the placement of a copy."""
    own = {key: copy[key] for key in ("num_replicas", "placement") if copy.get(key)}
    return {
        "name": record_stream(site),
        "description": "Checkpoints and failovers of natsops.jetstream; in its metadata",
        "subjects": [f"nats_dr.{site}"],
        "storage": "file",
        "retention": "limits",
        "discard": "old",
        "max_msgs": 1,
        **own,
        "metadata": dict(metadata),
    }


def checkpoint_in(metadata: Mapping[str, str], stream: str) -> Optional[Checkpoint]:
    """Return the checkpoint of a stream, or None if there is none. Raises RecordError if the checkpoint cannot be read."""
    found = _decode(metadata, _CHECKPOINT + stream)
    return None if found is None else Checkpoint(**{**found, "consumers": tuple(found["consumers"])})


def failover_in(metadata: Mapping[str, str], stream: str) -> Optional[Failover]:
    """Return the failover of a stream, or None if there is none. Raises RecordError if the record cannot be read."""
    found = _decode(metadata, _FAILOVER + stream)
    if found is None:
        return None
    return Failover(**{**found, "subjects": tuple(found["subjects"]), "consumers": tuple(found["consumers"])})


def with_record(metadata: Mapping[str, str], stream: str, record: Record) -> dict[str, str]:
    """Return the metadata with this record. Raises RecordError if the metadata would exceed the servers' limit."""
    prefixes = {Checkpoint: _CHECKPOINT, Failover: _FAILOVER, Failback: _FAILBACK, Drill: _DRILL}
    key = prefixes[type(record)] + stream
    packed = zlib.compress(json.dumps({"schema": SCHEMA, **asdict(record)}, sort_keys=True).encode(), 9)
    result = {**metadata, key: base64.b64encode(packed).decode()}
    size = sum(len(name) + len(value) for name, value in result.items())
    if size > MAX_BYTES:
        raise RecordError(
            f"the records of the site would be {size} bytes, but the servers accept {MAX_BYTES} (metadata of a "
            "stream); protect fewer streams of this account, or use a different site name for some of them"
        )
    return result


def without_failover(metadata: Mapping[str, str], stream: str) -> dict[str, str]:
    """Return the metadata without the failover and the failback of a stream."""
    gone = (_FAILOVER + stream, _FAILBACK + stream)
    return {key: value for key, value in metadata.items() if key not in gone}


def failback_in(metadata: Mapping[str, str], stream: str) -> Optional[Failback]:
    """Return the failback of a stream, or None if there is none. Raises RecordError if the record cannot be read."""
    found = _decode(metadata, _FAILBACK + stream)
    return None if found is None else Failback(**{**found, "twice": tuple(found["twice"])})


def drill_in(metadata: Mapping[str, str], stream: str) -> Optional[Drill]:
    """Return the last drill of a stream, or None if there is none. Raises RecordError if the record cannot be read."""
    found = _decode(metadata, _DRILL + stream)
    return None if found is None else Drill(**found)


def next_drill(before: Optional[Drill], drill: Drill) -> Drill:
    """Return the record of a drill, with the time of the last success and a shortened reason."""
    proven = drill.time if drill.ok else before.proven if before else ""
    return replace(drill, reason=drill.reason[:_REASON], proven=proven)


def saved_consumer(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checkpoint of a consumer.

    In 2.10, a consumer without deliveries has an ack floor of 0, regardless of where it starts; the delivered sequence
    that it reports is then that of the message before its start (consumer.go selectStartingSeqNo).
    """
    floor, delivered = info["ack_floor"].get("stream_seq", 0), info.get("delivered") or {}
    reached = delivered.get("stream_seq", 0)
    if not delivered.get("consumer_seq"):
        floor = max(floor, reached)
    return {
        "name": info["name"],
        "config": dict(info["config"]),
        "ack_floor": {"stream_seq": floor},
        "delivered": {"stream_seq": max(floor, reached)},
        "num_ack_pending": info.get("num_ack_pending", 0),
    }


def same_consumers(left: Sequence[Mapping[str, Any]], right: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether two lists contain the same consumers at the same positions, in any order."""
    return sorted(left, key=_by_name) == sorted(right, key=_by_name)


def _by_name(entry: Mapping[str, Any]) -> str:
    return str(entry["name"])


def _decode(metadata: Mapping[str, str], key: str) -> Optional[dict[str, Any]]:
    packed = metadata.get(key)
    if packed is None:
        return None
    try:
        found = json.loads(zlib.decompress(base64.b64decode(packed, validate=True)))
        schema = found.pop("schema")
    except (ValueError, zlib.error, KeyError, AttributeError) as error:
        raise RecordError(f"{key} in the metadata of the site's records cannot be parsed: {error}") from error
    if schema != SCHEMA:
        raise RecordError(f"{key} has schema {schema}; this release supports {SCHEMA}")
    return dict(found)
