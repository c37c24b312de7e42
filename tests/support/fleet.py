# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A synthetic fleet whose true state is known: it writes the snapshots that nats_snapshot would have written, at any
size.

Everything is a pure function of the seed and the moment, so any span can be written in any order, reproducibly and in
constant memory. Some faults are deliberate; `Fleet.truth` lists them.

    PYTHONPATH=.cache/dev:tests python tests/support/fleet.py LAKE --servers 9 --streams 300 --minutes 60
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import peer_id
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.snapshot import (
    JSON,
    Origin,
    SnapshotLine,
    SnapshotWriter,
    timestamp,
)
from support.snapshots import raft_member, recorded

START = datetime(2026, 11, 1, tzinfo=timezone.utc)
VERSION = "2.15.1"
#: The limit of an account across all servers.
ACCOUNT_LIMIT = 1 << 50
MAX_STORAGE = 1 << 40
#: The max_bytes of a stream that was resized.
RESIZED = 1 << 30
_ACK_WAIT = 30.0
_DAY = 86400.0


@dataclass(frozen=True)
class Stream:
    """A stream and its true state. `rate`: messages per second, on average over a day; `size`: bytes of a message.

    The following are seconds after the fleet's start, 0 for never. `purged`: all its messages were purged; `resized`:
    its max_bytes was set; `stuck`: its consumer stopped acknowledging; `looping`: its consumer began to receive the
    same message again and again. `flaps`: seconds between changes of its leader. `diverged`: its last replica lost a
    tenth of its messages. `slow`: its consumer handles half of the messages.
    """

    name: str
    account: str
    replicas: tuple[int, ...]
    rate: float
    size: int
    purged: float = 0.0
    flaps: float = 0.0
    stuck: float = 0.0
    diverged: bool = False
    resized: float = 0.0
    looping: float = 0.0
    slow: bool = False


@dataclass(frozen=True)
class Outage:
    """A server that was down between two moments, in seconds after the fleet's start. `version`: its version
    afterwards. `last_words`: the last line of its log, which each snapshot of the following hour reports."""

    server: int
    begin: float
    end: float
    version: str = ""
    last_words: str = ""


@dataclass(frozen=True)
class Fleet:
    """A fleet in one cluster, with a zone for each third of its servers. `prefix`: the beginning of the servers' names.
    `apart`: seconds within which the servers respond, one after another. `realistic`: streams and consumers have all
    recorded fields, including the members of their Raft groups. `first_version`: the version of servers without an
    outage that changed it."""

    servers: int = 3
    streams: int = 10
    seed: int = 1
    accounts: int = 2
    outages: tuple[Outage, ...] = ()
    domain: str = ""
    cluster: str = "C1"
    prefix: str = "n"
    apart: float = 0.0
    realistic: bool = False
    first_version: str = VERSION

    @cached_property
    def assets(self) -> tuple[Stream, ...]:
        return tuple(self._stream(number) for number in range(self.streams))

    def truth(self) -> dict[str, Any]:
        """Return the true state of the fleet, against which findings are compared."""
        return {**asdict(self), "assets": [asdict(stream) for stream in self.assets]}

    def name(self, server: int) -> str:
        return f"{self.prefix}{server + 1}"

    def _stream(self, number: int) -> Stream:
        dice = random.Random(f"{self.seed}:stream:{number}")
        replicas = tuple(dice.sample(range(self.servers), min(dice.choice((1, 3, 3, 3)), self.servers)))
        fault = dice.randrange(20)  # one in three streams has a fault
        return Stream(
            name=f"STREAM-{number:06}",
            account=f"A{number % self.accounts}",
            replicas=replicas,
            rate=math.exp(dice.gauss(0, 1.5)),
            size=dice.choice((200, 1000, 10_000)),
            purged=dice.uniform(0.3, 3) * _DAY if fault == 0 else 0.0,
            flaps=dice.uniform(60, 900) if fault == 1 and len(replicas) > 1 else 0.0,
            stuck=dice.uniform(0.1, 1) * _DAY if fault == 2 else 0.0,
            diverged=fault == 3 and len(replicas) > 1,
            resized=dice.uniform(0.1, 1) * _DAY if fault == 4 else 0.0,
            looping=dice.uniform(0.1, 1) * _DAY if fault == 5 else 0.0,
            slow=fault == 6,
        )

    # --- the state at a moment, `at` in seconds after the start -----------------------------------------------------------

    def down(self, server: int, at: float) -> bool:
        return any(outage.server == server and outage.begin <= at < outage.end for outage in self.outages)

    def members(self, _at: float) -> Sequence[int]:
        """Return the servers that belong to the cluster."""
        return range(self.servers)

    def serving(self, server: int, at: float) -> bool:
        """Return whether a server runs JetStream."""
        return not self.down(server, at)

    def started(self, server: int, at: float) -> float:
        """Return when a server last started: an hour before the fleet's start, or at the end of its last outage."""
        return max([-3600.0, *(item.end for item in self.outages if item.server == server and item.end <= at)])

    def version(self, server: int, at: float) -> str:
        """Return a server's version: the one that its last completed outage installed."""
        ended = [item for item in self.outages if item.server == server and item.end <= at and item.version]
        return max(ended, key=lambda item: item.end).version if ended else self.first_version

    def meta_leader(self, at: float) -> int | None:
        """Return the server that leads the meta group: the first running server, if a majority is running."""
        members = self.members(at)
        living = [server for server in members if self.serving(server, at)]
        return living[0] if len(living) > len(members) // 2 else None

    @staticmethod
    def written(stream: Stream, at: float) -> int:
        """Return how many messages have been written to a stream, whose rate varies by half over the day."""
        swing = 0.5 * _DAY / (2 * math.pi) * (1 - math.cos(2 * math.pi * at / _DAY))
        return int(stream.rate * (at + swing))

    def leader(self, stream: Stream, at: float) -> int | None:
        """Return the server that leads a stream, or None without a quorum."""
        living = [server for server in stream.replicas if self.serving(server, at)]
        if len(living) <= len(stream.replicas) // 2:
            return None
        turn = int(at // stream.flaps) if stream.flaps else 0
        preferred = stream.replicas[turn % len(stream.replicas)]
        return preferred if preferred in living else living[0]

    def detail(self, stream: Stream, server: int, at: float) -> dict[str, Any]:
        """Return a server's JSZ entry for its replica of a stream, including the consumer."""
        last = self.written(stream, at)
        first = self.written(stream, stream.purged) + 1 if 0 < stream.purged <= at else 1
        messages = last - first + 1
        if stream.diverged and server == stream.replicas[-1]:
            messages -= messages // 10
        leader = self.leader(stream, at)
        cluster: dict[str, Any] = {"name": self.cluster, "raft_group": f"S-R{len(stream.replicas)}F-{stream.name[-6:]}"}
        if leader is not None:
            cluster["leader"] = self.name(leader)
        if leader == server:
            cluster["replicas"] = self._peers([other for other in stream.replicas if other != server], at)
        stopped = stream.stuck or stream.looping
        acknowledged = self.written(stream, min(at, stopped)) if stopped else last // 2 if stream.slow else last
        again = int((at - stream.looping) // _ACK_WAIT) if 0 < stream.looping <= at else 0
        consumer = {
            "stream_name": stream.name,
            "name": "worker",
            "created": timestamp(START),
            "config": {"durable_name": "worker", "ack_policy": "explicit", "ack_wait": int(_ACK_WAIT * 1e9)},
            "delivered": {"consumer_seq": acknowledged + again, "stream_seq": acknowledged},
            "ack_floor": {"consumer_seq": acknowledged, "stream_seq": acknowledged},
            "num_ack_pending": int(again > 0),
            "num_redelivered": int(again > 0),
            "num_pending": last - max(acknowledged, first - 1),
            "cluster": cluster,
        }
        detail = {
            "name": stream.name,
            "created": timestamp(START),
            "cluster": cluster,
            "config": {
                "name": stream.name,
                "subjects": [f"{stream.name}.>"],
                "num_replicas": len(stream.replicas),
                "storage": "file",
                "retention": "limits",
                "max_bytes": RESIZED if 0 < stream.resized <= at else -1,
            },
            "state": {"messages": messages, "bytes": messages * stream.size, "first_seq": first, "last_seq": last},
            "consumer_detail": [consumer],
        }
        return _as_recorded(detail, timestamp(START + timedelta(seconds=at))) if self.realistic else detail

    def _peers(self, others: Sequence[int], at: float) -> list[dict[str, Any]]:
        """Return a leader's view of the other members."""
        return [
            {
                "name": self.name(other),
                "peer": peer_id(self.name(other)),
                "current": self.serving(other, at),
                "active": 350_000_000,
            }
            for other in others
        ]

    def traffic(self, account: str, server: int, at: float) -> int:
        """Return how many messages a server has received from the clients of an account since it started. The number
        per second is the length of the account's name."""
        return int((at - self.started(server, at)) * len(account))

    # --- writing ------------------------------------------------------------------------------------------------------------

    def write(self, lake: Path, at: float, fleet: str = "synthetic", form: str = JSON) -> dict[str, Any]:
        """Write the snapshot of a moment and return its manifest."""
        return write([self], lake, at, fleet, form)

    def failures(self, _server: int, _at: float) -> Iterator[tuple[str, NatsFailure]]:
        """Yield the endpoints to which a server did not respond completely, with the failure."""
        yield from ()

    def write_servers(self, writer: SnapshotWriter, at: float, clock: float = 0.0) -> tuple[list[str], list[str]]:
        """Write the servers' replies at a moment; return the versions of the servers that respond, and the names of the
        others. `clock`: how far the collector's clock is ahead."""
        held = self.held(at)
        versions, missing = [], []
        for server in self.members(at):
            told = at + random.Random(f"{self.seed}:{self.prefix}:{server}:{at}").uniform(0, self.apart)
            moment = timestamp(START + timedelta(seconds=told + clock))
            name, version = self.name(server), self.version(server, told)
            if self.down(server, told):
                missing.append(name)
                failure = NatsFailure("server_missing", f"expected server {name} did not answer")
                writer.fail("servers", Origin("", name, received=moment), failure)
                continue
            versions.append(version)
            origin = Origin(self.identity(server, told), name, self.cluster, version, moment, self.domain)
            for row in self._rows(server, told, held):
                if row.table == "servers":
                    row.data["clock_offset"] -= clock
                writer.add(origin, row)
            for table, failure in self.failures(server, told):
                writer.fail(table, origin, failure)
        return versions, missing

    def identity(self, server: int, at: float) -> str:
        """Return a server's id, which is new at each start."""
        return f"N{self.name(server)}-{self.started(server, at):.0f}"

    def held(self, at: float) -> dict[str, int]:
        """Return the bytes that each account stores on all servers; every server reports them."""
        totals: Counter[str] = Counter()
        for stream in self.assets:
            totals[stream.account] += self.detail(stream, stream.replicas[0], at)["state"]["bytes"] * len(
                stream.replicas
            )
        return totals

    def _rows(self, server: int, at: float, held: Mapping[str, int]) -> Iterator[SnapshotLine]:
        zone = "abc"[server % 3]
        known = {"tags": [f"az:{zone}"], "domain": self.domain, "jetstream": True, "rtt": 0.001, "clock_offset": 0.0}
        yield SnapshotLine("servers", {}, known)
        details = [(stream, self.detail(stream, server, at)) for stream in self.assets if server in stream.replicas]
        used = sum(detail["state"]["bytes"] for _stream, detail in details)
        up = at - self.started(server, at)
        start = timestamp(START + timedelta(seconds=self.started(server, at)))
        yield SnapshotLine(
            "varz", {}, {"start": start, "mem": 100_000_000, "cores": 4, "in_msgs": int(up * 1000), "connections": 10}
        )
        yield SnapshotLine("healthz", {}, {"status": "ok", "status_code": 200})
        for outage in self.outages:
            if outage.server == server and outage.last_words and outage.end <= at < outage.end + 3600:
                line = {"time": timestamp(START + timedelta(seconds=outage.begin - 1)), "text": outage.last_words}
                yield SnapshotLine("server_log", {}, line)
        members = self.members(at)
        meta: dict[str, Any] = {"cluster_size": len(members)}
        leader = self.meta_leader(at)
        if leader is not None:
            meta["leader"] = self.name(leader)
        if leader == server:
            meta["replicas"] = self._peers([other for other in members if other != server], at)
        yield SnapshotLine(
            "jsz",
            {},
            {
                "storage": used,
                "reserved_storage": sum(max(detail["config"]["max_bytes"], 0) for _stream, detail in details),
                "streams": len(details),
                "ha_assets": sum(1 for stream, _detail in details if len(stream.replicas) > 1),
                "config": {"max_storage": MAX_STORAGE},
                "meta_cluster": meta,
            },
        )
        for account in sorted({stream.account for stream, _detail in details}):
            got = self.traffic(account, server, at)
            size = {"msgs": got, "bytes": got * 100}
            yield SnapshotLine(
                "jsz_accounts", {"account": account}, {"storage": held[account], "reserved_storage": ACCOUNT_LIMIT}
            )
            yield SnapshotLine("accstatz", {"account": account}, {"conns": 2, "sent": size, "received": size})
        for stream, detail in details:
            keys = {"account": stream.account}
            consumers = detail.pop("consumer_detail")
            yield SnapshotLine("jsz_streams", keys, detail)
            more = {"stream_replicas": len(stream.replicas), "stream_retention": "limits"}
            for consumer in consumers:
                yield SnapshotLine("jsz_consumers", {**keys, **more}, consumer)
            if self.realistic:
                others = [self.name(other) for other in stream.replicas if other != server]
                member = raft_member(detail["cluster"].get("leader", ""), others, detail["state"]["last_seq"])
                for kind in "SC":
                    yield SnapshotLine(
                        "raftz", {**keys, "raft_group": kind + detail["cluster"]["raft_group"][1:]}, member
                    )


@cache
def recorded_stream() -> dict[str, Any]:
    """Return a stream as a real server reported it."""
    (jsz, *_others) = recorded(VERSION)["jsz"].values()
    stream = next(stream for account in jsz["account_details"] for stream in account.get("stream_detail", ()))
    return {name: value for name, value in stream.items() if name != "consumer_raft_groups"}


def _as_recorded(detail: Mapping[str, Any], moment: str) -> dict[str, Any]:
    """Return a server's reply about a stream at a moment, with all other fields as recorded."""
    known = recorded_stream()
    stream = {**known, **detail}
    for name in ("config", "state"):
        stream[name] = {**known[name], **detail[name]}
    stream["state"].update(first_ts=timestamp(START), last_ts=moment)
    consumer_reply = known["consumer_detail"][0]
    stream["consumer_detail"] = [
        {**consumer_reply, **consumer, "config": {**consumer_reply["config"], **consumer["config"]}, "ts": moment}
        for consumer in detail["consumer_detail"]
    ]
    return stream


def write(
    parts: Sequence[Fleet], lake: Path, at: float, fleet: str = "synthetic", form: str = JSON, clock: float = 0.0
) -> dict[str, Any]:
    """Write the snapshot of a moment, treating several clusters as one fleet, and return its manifest. `clock`: how far
    the collector's clock is ahead."""
    moment = START + timedelta(seconds=at + clock)
    with SnapshotWriter(lake, fleet, moment, f"{moment:%Y%m%dT%H%M%S.%fZ}-{parts[0].seed:06x}", form) as writer:
        found = [part.write_servers(writer, at, clock) for part in parts]
        versions = [version for answered, _missing in found for version in answered]
        missing = [name for _answered, absent in found for name in absent]
        _path, manifest = writer.publish(
            source="synthetic",
            ended=timestamp(moment + timedelta(seconds=max(part.apart for part in parts))),
            servers=len(versions),
            servers_known=len(versions) + len(missing),
            missing=missing,
            complete=not missing and not writer.failures,
            versions=dict(Counter(versions)),
            clock_offset={"min": -clock, "median": -clock, "max": -clock},
            sequence=int((START + timedelta(seconds=at)).timestamp() * 1e6),
            slowest_rtt=0.001,
        )
    return manifest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("lake", type=Path)
    parser.add_argument("--servers", type=int, default=9)
    parser.add_argument("--streams", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=int, default=60, help="the time of the snapshots")
    parser.add_argument("--every", type=int, default=1, help="minutes from one snapshot to the next")
    parser.add_argument("--restart", type=int, help="minute at which the first server is down, for 20 minutes")
    given = parser.parse_args()
    outages = () if given.restart is None else (Outage(0, (given.restart - 10) * 60.0, (given.restart + 10) * 60.0),)
    fleet = Fleet(given.servers, given.streams, given.seed, outages=outages)
    rows = 0
    for minute in range(0, given.minutes, given.every):
        rows += fleet.write(given.lake, minute * 60.0)["tables"]["jsz_streams"]["rows"]
    (given.lake / "truth.json").write_text(json.dumps(fleet.truth()))
    print(f"{rows} rows of stream replicas")


if __name__ == "__main__":
    main()
