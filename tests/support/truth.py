# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A synthetic fleet whose true state is completely known: its planted faults determine which findings must exist, and
no others may.

The fleet also has conditions that are not faults (`STREAM_CONDITIONS`, `SERVER_CONDITIONS`, `Part`): servers that
respond up to half a minute apart, elections between two replies, streams that are recreated, bursts, messages with
their own TTL, overwritten keys, sealed streams, consumers with filters, short-lived consumers, restarts that the
journal announces, an upgrade from 2.10, accounts in operator mode, a server that was removed on purpose, incomplete
replies, a collector whose clock was set back, several JetStream domains.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import nkeys
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.expiry import Logins
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.account_names import account_id
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.snapshot import (
    SnapshotLine,
    expiry_rows,
    timestamp,
)
from support.credentials import make_jwt, new_key
from support.fleet import START, VERSION, Fleet, Outage, Stream, write

#: When the first snapshot is taken, in seconds after the fleet's start, and the interval between snapshots.
BEGIN, STEP = 6 * 3600.0, 600.0
FLEET = "truth"
GIB = 1 << 30
#: The healthy values of servers and streams; a fault changes them.
_POOL = 3
_FAST = 2000.0
_WAIT = 4 * 3600.0

Data = dict[str, Any]
Patch = Callable[[Data, float], None]
Subject = Mapping[str, str]


@dataclass(frozen=True)
class Fault:
    """A fault of a server or a stream. `checks`: the checks that must find it; `also`: the checks that may fail as a
    consequence.
    `tables`: a function that changes the servers' replies, given the replies and the seconds since the first snapshot.
    `becomes`: the changes to the stream. `consumer`: whether the fault concerns the stream's consumer. `hides`: the faults
    that its values hide on the same server."""

    name: str
    checks: tuple[str, ...]
    tables: Mapping[str, Patch]
    also: tuple[str, ...] = ()
    becomes: Mapping[str, Any] | None = None
    consumer: bool = False
    hides: tuple[str, ...] = ()


def _sets(**values: Any) -> Patch:
    return lambda data, _age: data.update(values)


def _counts(name: str, a_second: float) -> Patch:
    return lambda data, age: data.update({name: int(age * a_second)})


def _config(**values: Any) -> Patch:
    return lambda data, _age: data["config"].update(values)


def _state(**values: Any) -> Patch:
    return lambda data, _age: data["state"].update(values)


def _tells(text: str, many: int = 1) -> Patch:
    return lambda data, _age: data.setdefault("lines", []).extend(f"{text} {number}" for number in range(many))


def _shrinks(data: Data, age: float) -> None:
    data["config"]["max_storage"] = (1 << 40) - int(age) * 1000 - 1


def _fails(data: Data, age: float) -> None:
    data["api"] = {"level": 5, "total": int(age) + 1000, "errors": int(age / 2), "inflight": 0}


def _busy_api(data: Data, _age: float) -> None:
    data["api"]["inflight"] = 900


def _left(data: Data, age: float) -> None:
    data["connections"] = 1000 if age < 2 * STEP else 10


def _one_route_less(data: Data, _age: float) -> None:
    data["remotes"] -= 1


def _without_leader(data: Data, _age: float) -> None:
    for name in ("leader", "replicas"):
        data["cluster"].pop(name, None)


def _lags(data: Data, _age: float) -> None:
    for peer in data["cluster"].get("replicas", ())[:1]:
        peer.update({"current": False, "lag": 50_000})


def _lacks_a_peer(data: Data, _age: float) -> None:
    if data["cluster"].get("replicas"):
        data["cluster"]["replicas"].pop()


def _goes_back(data: Data, age: float) -> None:
    """The sequence goes back by more than is written until the last of fifteen snapshots, so this snapshot still shows
    the fault."""
    if age >= 3 * STEP:
        data["state"]["last_seq"] -= 300_000
        data["state"]["messages"] -= 300_000


def _nearly_full(data: Data, _age: float) -> None:
    data["config"]["max_bytes"] = int(data["state"]["bytes"] / 0.95)


def _cut_off(data: Data, _age: float) -> None:
    data["config"].update({"mirror": {"name": "ELSEWHERE"}, "subjects": []})
    data["mirror"] = {"name": "ELSEWHERE", "lag": 0, "active": -1}


def _remembers(data: Data, _age: float) -> None:
    data["config"]["duplicate_window"] = int(1e9 * 86400)


def _without_workers(data: Data, _age: float) -> None:
    data["config"]["retention"] = "workqueue"
    data["state"]["consumer_count"] = 0


def _temporary(data: Data, _age: float) -> None:
    data["jetstream"]["config"]["store_dir"] = "/tmp/nats"


def _ahead(data: Data, _age: float) -> None:
    for place in ("delivered", "ack_floor"):
        data[place]["stream_seq"] += 5_000_000


def _more_messages(data: Data, messages: int) -> None:
    """Add messages to the number that a stream stores, or to the number that its consumer received."""
    if "state" in data:
        data["state"]["last_seq"] += messages
        data["state"]["messages"] += messages
    else:
        for place in ("delivered", "ack_floor"):
            data[place]["stream_seq"] += messages
            data[place]["consumer_seq"] += messages


def _burst(begin: float) -> Patch:
    """A stream that has received a few messages a second since last year now receives 5,000 a second, and its consumer
    keeps up."""

    def patch(data: Data, age: float) -> None:
        _more_messages(data, 30_000_000 + int(5000 * max(0.0, age - begin)))
        if "state" in data:
            data["state"]["first_ts"] = timestamp(START - timedelta(days=300))
            data["config"]["max_age"] = int(400 * 86400e9)

    return patch


def _each_minute(data: Data, age: float) -> None:
    """Each minute 100,000 messages arrive at once, ten seconds after the first reply to a snapshot."""
    _burst(math.inf)(data, age)
    _more_messages(data, 100_000 * int((age + 50) // 60))


def _messages_with_ttl(data: Data, _age: float) -> None:
    """The first message never expires, and all others expire after the max_age of an hour."""
    data["config"].update({"max_age": int(3600e9), "allow_msg_ttl": True})
    last = data["state"]["last_seq"]
    data["state"].update({"messages": 72_001, "num_deleted": last - 72_001})


def _keys(data: Data, _age: float) -> None:
    """A bucket with a history of one: new values remove the old ones."""
    data["config"].update({"max_msgs_per_subject": 1, "max_age": 0, "discard": "new"})
    last = data["state"]["last_seq"]
    data["state"].update({"first_seq": last - 9, "messages": 10, "num_subjects": 10})


def _slow_watcher(data: Data, _age: float) -> None:
    for place in ("delivered", "ack_floor"):
        data[place]["stream_seq"] -= 400
    data["num_pending"] = 10


def _sealed(data: Data, _age: float) -> None:
    data["config"].update({"sealed": True, "max_age": 0, "deny_delete": True, "deny_purge": True})
    data["state"].update({"first_seq": 1, "last_seq": 1000, "messages": 1000, "last_ts": data["state"]["first_ts"]})


def _read_sealed(data: Data, _age: float) -> None:
    for place in ("delivered", "ack_floor"):
        data[place].update({"stream_seq": 1000, "consumer_seq": 1000, "last_active": timestamp(START)})


#: A consumer's messages per second: those that match its filter, and those that it acknowledges. Both rates begin this
#: many seconds before the first snapshot.
_MATCHING, _ACKNOWLEDGED, _BEFORE = 1.0, 0.5, 3600.0


def _two_hours(data: Data, age: float) -> None:
    data["config"]["max_age"] = int(7200e9)
    data["state"]["messages"] = int(7200 * _FAST)
    data["state"]["first_seq"] = data["state"]["last_seq"] - data["state"]["messages"] + 1
    data["state"]["first_ts"] = timestamp(START + timedelta(seconds=BEGIN + age - 7200))


def _falls_behind_with_a_filter(data: Data, age: float) -> None:
    """Half of the few messages that match the filter are acknowledged; their sequences in the stream are far apart."""
    acknowledged = int(_ACKNOWLEDGED * (age + _BEFORE))
    data["config"]["filter_subject"] = "rare"
    for place in ("delivered", "ack_floor"):
        data[place].update({"consumer_seq": acknowledged, "stream_seq": int(_FAST / _MATCHING * acknowledged) + 1000})
    data["num_pending"] = int((_MATCHING - _ACKNOWLEDGED) * (age + _BEFORE))


def _falls_within_a_start(data: Data, age: float) -> None:
    data["slow_consumers"] = 50 if age < 3 * STEP else 0


def _abandoned(data: Data, _age: float) -> None:
    data.update({"num_waiting": 0, "num_pending": 4000})
    for place in ("delivered", "ack_floor"):
        data[place].update({"last_active": timestamp(START), "stream_seq": 10, "consumer_seq": 10})


#: Faults of servers.
SERVER_FAULTS = (
    Fault("busy", ("SERVER_003", "SERVER_211"), {"varz": _sets(cpu=395.0)}),
    Fault("store below /tmp", ("SERVER_102",), {"varz": _temporary}),
    Fault("memory", ("SERVER_119", "CLUSTER_001"), {"varz": _sets(mem=31 * GIB // 4)}),
    Fault("monitoring open", ("SERVER_120",), {"varz": _sets(http_host="0.0.0.0")}),
    Fault("clients without TLS", ("SERVER_116",), {"varz": _sets(tls_required=False)}),
    Fault("clock", ("SERVER_109",), {"servers": _sets(clock_offset=3.0)}),
    Fault("API queue", ("SERVER_114",), {"jsz": _busy_api}),
    Fault("API errors", ("SERVER_204",), {"jsz": _fails}, hides=("API queue",)),
    Fault("slow readers", ("SERVER_004",), {"varz": _counts("slow_consumers", 0.01)}),
    Fault("publishers held up", ("SERVER_213",), {"varz": _counts("stalled_clients", 1)}),
    Fault("stale connections", ("SERVER_214",), {"varz": _counts("stale_connections", 1)}),
    Fault("clients left", ("SERVER_215",), {"varz": _left}, also=("CLUSTER_108",)),
    Fault("churn", ("SERVER_212",), {"varz": _counts("total_connections", 10)}),
    Fault("disk full", ("SERVER_221",), {"server_log": _tells("write error: no space left on device")}),
    Fault("broken blocks", ("SERVER_222",), {"server_log": _tells("Filestore corrupt block")}),
    Fault("log-ins fail", ("SERVER_223",), {"server_log": _tells("Authentication error", 30)}),
    Fault("limit shrinks", ("SERVER_209",), {"jsz": _shrinks}, also=("SERVER_103", "CAPACITY_202")),
    Fault("unhealthy", ("SERVER_001", "SERVER_207"), {"healthz": _sets(status="error", status_code=503, error="JetStream")}),
    Fault("route missing", ("SERVER_107",), {"varz": _one_route_less}),
    Fault("certificate ends", ("SERVER_008",), {"varz": _sets(tls_cert_not_after="2026-11-05T00:00:00Z")}),
    Fault("no memory limit", ("SERVER_105",), {"varz": _sets(gomemlimit=None)}, hides=("memory",)),
    Fault("storage reserved", ("SERVER_101",), {"jsz": _sets(reserved_storage=(1 << 40) - 1)}, also=("CAPACITY_203",)),
    Fault("client does not read", ("CONN_101",), {"connz": _sets(pending_bytes=32 << 20)}),
    Fault("route held up", ("ROUTE_102",), {"routez": _sets(pending_size=32 << 20)}),
    Fault("file not loaded", ("HOST_101",), {"hosts": _sets(config_digest="sha256:2")}),
    Fault("few files", ("HOST_102",), {"hosts": _sets(open_files=1024)}),
    Fault("passwords in the file", ("HOST_103",), {"hosts": _sets(plaintext_passwords=1)}),
    Fault("small disk", ("HOST_104",), {"hosts": _sets(disk_free=GIB)}),
    Fault("route breaks", ("ROUTE_201",), {"routez": _counts("rid", 1)}),
)  # fmt: skip
#: Faults of streams and of their consumers. All have three replicas and 20 messages a second.
STREAM_FAULTS = (
    Fault(
        "no leader", ("STREAM_101", "CONSUMER_101", "STREAM_203", "CONSUMER_208"),
        {"jsz_streams": _without_leader, "jsz_consumers": _without_leader},
    ),
    Fault("diverged", ("STREAM_117", "STREAM_207"), {}, becomes={"diverged": True}),
    Fault("replica behind", ("STREAM_104", "STREAM_106"), {"jsz_streams": _lags}, also=("CONSUMER_103",)),
    Fault(
        "replica lost", ("STREAM_105",), {"jsz_streams": _lacks_a_peer},
        also=("STREAM_104", "STREAM_106", "CONSUMER_103", "CONSUMER_104"),
    ),
    Fault("goes back", ("STREAM_202",), {"jsz_streams": _goes_back}, also=("CONSUMER_111", "STREAM_117", "STREAM_207")),
    Fault("nearly full", ("JETSTREAM_003",), {"jsz_streams": _nearly_full}, also=("STREAM_205", "CAPACITY_201")),
    Fault("no limits", ("STREAM_110",), {"jsz_streams": _config(max_age=0)}),
    Fault("needs a newer server", ("STREAM_122",), {"jsz_streams": _config(metadata={"_nats.req.level": "9"})}),
    Fault("lost messages", ("STREAM_107",), {"jsz_streams": _state(lost={"msgs": [1, 2], "bytes": 99})}),
    Fault("mirror cut off", ("STREAM_120",), {"jsz_streams": _cut_off}),
    Fault("many subjects", ("JETSTREAM_002",), {"jsz_streams": _state(num_subjects=2_000_000)}),
    Fault("duplicate window", ("STREAM_123",), {"jsz_streams": _remembers}, becomes={"rate": _FAST}),
    Fault("work queue without a worker", ("STREAM_124",), {"jsz_streams": _without_workers}),
    Fault("deleted inside", ("STREAM_108",), {"jsz_streams": _state(num_deleted=5_000_000)}),
    Fault("flaps", ("STREAM_201", "CONSUMER_201"), {}, becomes={"flaps": 450.0}, also=("STREAM_203", "CONSUMER_208")),
    Fault("stuck", ("CONSUMER_202",), {}, becomes={"stuck": BEGIN + STEP}, consumer=True, also=("CONSUMER_107",)),
    Fault("falls behind", ("CONSUMER_203",), {}, becomes={"slow": True}, consumer=True, also=("CONSUMER_209",)),
    Fault("loops", ("CONSUMER_206",), {}, becomes={"looping": BEGIN - 60}, consumer=True, also=("CONSUMER_202", "CONSUMER_114")),
    Fault("abandoned", ("CONSUMER_108",), {"jsz_consumers": _abandoned}, consumer=True),
    Fault("acks missing", ("CONSUMER_105",), {"jsz_consumers": _sets(num_ack_pending=990)}, consumer=True),
    Fault("redelivers", ("CONSUMER_106",), {"jsz_consumers": _sets(num_redelivered=300, num_ack_pending=400)}, consumer=True),
    Fault("paused", ("CONSUMER_109",), {"jsz_consumers": _sets(paused=True)}, consumer=True),
    Fault("ahead", ("CONSUMER_111",), {"jsz_consumers": _ahead}, consumer=True),
    Fault(
        "falls behind with a filter", ("CONSUMER_203", "CONSUMER_209"),
        {"jsz_streams": _two_hours, "jsz_consumers": _falls_behind_with_a_filter}, becomes={"rate": _FAST}, consumer=True,
    ),
)  # fmt: skip
#: Conditions of servers and streams that no check may report.
SERVER_CONDITIONS = (
    Fault("a counter fell within a start", (), {"varz": _falls_within_a_start}, hides=("slow readers",)),
)
STREAM_CONDITIONS = (
    *(
        Fault("burst", (), {"jsz_streams": _burst(begin), "jsz_consumers": _burst(begin)})
        for begin in (2.5 * STEP, 4.4 * STEP, 10.6 * STEP)
    ),
    Fault("a burst each minute", (), {"jsz_streams": _each_minute, "jsz_consumers": _each_minute}),
    Fault("messages with their own TTL", (), {"jsz_streams": _messages_with_ttl}),
    Fault("overwritten keys", (), {"jsz_streams": _keys, "jsz_consumers": _slow_watcher}),
    Fault("sealed", (), {"jsz_streams": _sealed, "jsz_consumers": _read_sealed}, becomes={"rate": 0.0}),
    Fault("created a minute ago", (), {}, becomes={"rate": 1000.0, "born": True}),
    Fault("consumers that live for a moment", (), {}, becomes={"ephemerals": 3}),
)
#: Checks that may fail for streams and consumers because of an unavailable replica.
_DEGRADED = (
    *(
        "JETSTREAM_001",
        "STREAM_101",
        "STREAM_104",
        "STREAM_106",
        "STREAM_117",
        "STREAM_201",
        "STREAM_203",
        "STREAM_207",
    ),
    *("STREAM_208", "CONSUMER_101", "CONSUMER_103", "CONSUMER_113", "CONSUMER_201", "CONSUMER_208"),
)
_AWAY = ("SERVER_002", "SERVER_201", "SERVER_208", "META_001", "META_103", "META_105", "CLUSTER_201")


#: The name that two accounts share in operator mode.
_TAG = "ORDERS"
#: The names of short-lived consumers begin with this prefix. The checks have no history of these consumers and report
#: nothing.
_BRIEF = "brief"


@dataclass(frozen=True)
class Asset(Stream):
    """A stream of the truth. `born`: when it was created, in seconds after the fleet's start; `ephemerals`: the number
    of short-lived consumers that are new in each snapshot."""

    born: float = 0.0
    ephemerals: int = 0


@dataclass(frozen=True)
class Part(Fleet):
    """A cluster with its own JetStream domain.

    `wrong_servers`, `wrong_streams`: faults and conditions, by the number of the server or stream. Some streams are
    `recreated` between snapshots, elect a new leader between two replies (`electing`), or have a consumer that reads
    few messages (`filtered`). Some servers stay down (`dead`), are up again (`crashed`), or were restarted as the
    journal records (`rolled`). Other servers are listed with the time of a change: they were restarted without
    JetStream (`disabled`), report only one account (`partial`), left the cluster (`removed`), or joined it (`added`).
    Removed and added servers have no streams and are the last servers; a renamed server appears as both. `operator`:
    accounts have public keys and share one name. `last_snapshots`: the times of the hours' last snapshots.
    """

    wrong_servers: tuple[tuple[int, Fault], ...] = ()
    wrong_streams: tuple[tuple[int, Fault], ...] = ()
    recreated: tuple[int, ...] = ()
    electing: tuple[int, ...] = ()
    filtered: tuple[int, ...] = ()
    dead: tuple[int, ...] = ()
    crashed: tuple[int, ...] = ()
    rolled: tuple[int, ...] = ()
    disabled: tuple[tuple[int, float], ...] = ()
    partial: tuple[tuple[int, float], ...] = ()
    removed: tuple[tuple[int, float], ...] = ()
    added: tuple[tuple[int, float], ...] = ()
    operator: bool = False
    last_snapshots: tuple[float, ...] = ()

    @cached_property
    def server_faults(self) -> dict[int, list[Fault]]:
        return _by_number(self.wrong_servers)

    @cached_property
    def stream_faults(self) -> dict[str, list[Fault]]:
        return {self.assets[number].name: faults for number, faults in _by_number(self.wrong_streams).items()}

    @cached_property
    def numbers(self) -> dict[str, int]:
        return {stream.name: number for number, stream in enumerate(self.assets)}

    @property
    def carriers(self) -> int:
        """Return how many servers have streams."""
        return self.servers - len(self.removed) - len(self.added)

    def members(self, at: float) -> Sequence[int]:
        absent = {server for server, since in self.removed if at >= since}
        absent |= {server for server, since in self.added if at < since}
        return [server for server in range(self.servers) if server not in absent]

    def serving(self, server: int, at: float) -> bool:
        return super().serving(server, at) and not self._since(self.disabled, server, at)

    def failures(self, server: int, at: float) -> Iterator[tuple[str, NatsFailure]]:
        if self._since(self.partial, server, at):
            yield "jsz", NatsFailure("deadline", "the snapshot's deadline came before the second page")

    @staticmethod
    def _since(times: Sequence[tuple[int, float]], server: int, at: float) -> bool:
        return any(server == one and at >= since for one, since in times)

    def _stream(self, number: int) -> Asset:
        none = {
            "purged": 0.0,
            "flaps": 0.0,
            "stuck": 0.0,
            "diverged": False,
            "resized": 0.0,
            "looping": 0.0,
            "slow": False,
        }
        made = super()._stream(number)
        faults = [fault for wrong, fault in self.wrong_streams if wrong == number]
        # Many writes between the servers' replies are not a fault.
        rate = 20.0 if faults else _FAST if number % 7 == 1 else made.rate
        purged = BEGIN + 1.5 * STEP if number % 7 == 2 and not faults else 0.0
        more = {name: value for fault in faults for name, value in (fault.becomes or {}).items()}
        # Streams are evenly spread, so only deliberate imbalances exist.
        replicas = tuple((number + other) % self.carriers for other in range(1 if number % 7 == 3 else 3))
        own = {"rate": rate, "purged": purged, "replicas": replicas, "size": 200}
        if more.get("born"):
            more["born"] = self.last_snapshots[-1] - 60
        return Asset(**{**vars(made), **none, **own, **more})

    def leader(self, stream: Stream, at: float) -> int | None:
        leader = super().leader(stream, at)
        if leader is None or self.numbers[stream.name] not in self.electing:
            return leader
        living = [server for server in stream.replicas if self.serving(server, at)]
        return living[sum(at >= look + self.apart / 2 for look in self.last_snapshots) % len(living)]

    # --- the servers' replies
    # -------------------------------------------------------------------------------------------

    def _rows(self, server: int, at: float, held: Mapping[str, int]) -> Iterator[SnapshotLine]:
        first = min((stream.account for stream in self.assets), default="")
        for row in (*super()._rows(server, at, held), *self._more(server, at)):
            assets = row.table in ("jsz_accounts", "jsz_streams", "jsz_consumers")
            if assets and self._since(self.disabled, server, at):
                continue
            if assets and self._since(self.partial, server, at) and row.keys["account"] != first:
                continue
            stream = self._find_stream(row)
            if stream and 0 < at < stream.born:
                continue
            told = self._with_faults(row, server, at)
            yield from self._ephemerals(told, stream, server, at)
            yield self._in_operator_mode(told)

    def _find_stream(self, row: SnapshotLine) -> Asset | None:
        """Return the stream that a JSZ row belongs to."""
        if row.table not in ("jsz_streams", "jsz_consumers"):
            return None
        stream = self.assets[self.numbers[row.data.get("stream_name", row.data["name"])]]
        assert isinstance(stream, Asset)
        return stream

    def _ephemerals(self, row: SnapshotLine, stream: Asset | None, server: int, at: float) -> Iterator[SnapshotLine]:
        """Yield the consumers of a stream that were created for one snapshot, as reported by the only server that has
        them."""
        if row.table != "jsz_consumers" or not stream or self.leader(stream, at) != server:
            return
        for number in range(stream.ephemerals):
            consumer = json.loads(json.dumps(row.data))
            del consumer["config"]["durable_name"]
            consumer["config"]["num_replicas"] = 1
            consumer.update(
                name=f"{_BRIEF}{(at - BEGIN) // STEP:.0f}x{number}",
                created=timestamp(START + timedelta(seconds=at - 5)),
                cluster={"name": self.cluster, "leader": self.name(server)},
                num_pending=50,
            )
            yield SnapshotLine("jsz_consumers", row.keys, consumer)

    def _key(self, account: str) -> str:
        """Return the public key of an account in operator mode."""
        return "A" + account.replace("0", "C").replace("1", "D") * 27 + "A"

    def _in_operator_mode(self, row: SnapshotLine) -> SnapshotLine:
        """Return the row as the collector writes it for accounts that share a name: with the account's public key."""
        if not self.operator or "account" not in {**row.keys, **row.data}:
            return row
        account = row.keys.get("account", row.data.get("account"))
        detail = {"name": _TAG, "id": self._key(account)}
        if row.table == "jsz_accounts":
            row.data.update(detail)
        if row.table == "connz":
            row.data["account"] = detail["id"]
        stream = self._find_stream(row)
        if stream:
            row.data["stream_name" if row.table == "jsz_consumers" else "name"] = self._name(stream)
        keys = {**row.keys, "account": account_id(detail)} if "account" in row.keys else row.keys
        return SnapshotLine(row.table, keys, row.data)

    def _name(self, stream: Stream) -> str:
        """Return the name of a stream; in operator mode all accounts have streams of the same names."""
        return f"STREAM-{self.numbers[stream.name] // self.accounts:06}" if self.operator else stream.name

    def _more(self, server: int, at: float) -> Iterator[SnapshotLine]:
        other = (server + 1) % self.carriers
        remote = {"remote_id": self.identity(other, at), "remote_name": self.name(other)}
        yield SnapshotLine("routez", {}, {"rid": 7, **remote, "rtt": "1ms", "pending_size": 0})
        own = {"config_digest": "sha256:1", "open_files": 1 << 20, "plaintext_passwords": 0, "disk_free": 2 << 40}
        yield SnapshotLine("hosts", {}, own)
        client = {"kind": "Client", "account": "A0", "lang": "go", "version": "1.40", "rtt": "1ms", "stalls": 0}
        for cid in (1, 2):
            yield SnapshotLine("connz", {}, {"cid": cid, **client, "pending_bytes": 0})
        if self.operator and server == 0:
            yield from expiry_rows(_logins(), START.timestamp() + at)
        yield SnapshotLine("server_log", {}, {"time": timestamp(START), "text": "Server is ready"})
        if self.server_faults.get(server):
            said: Data = {}
            for fault in self.server_faults[server]:
                fault.tables.get("server_log", _sets())(said, at - BEGIN)
            for text in said.get("lines", ()):
                yield SnapshotLine(
                    "server_log", {}, {"time": timestamp(START + timedelta(seconds=BEGIN)), "text": text}
                )

    def _with_faults(self, row: SnapshotLine, server: int, at: float) -> SnapshotLine:
        data, age = row.data, at - BEGIN
        healthy: Callable[[Data, int, float], None] | None = getattr(self, f"_healthy_{row.table}", None)
        if healthy:
            healthy(data, server, at)
        stream = data.get("stream_name", data.get("name", "")) if row.table in ("jsz_streams", "jsz_consumers") else ""
        faults = self.stream_faults.get(stream, ()) if stream else self.server_faults.get(server, ())
        for fault in faults:
            if row.table in fault.tables and row.table != "server_log":
                fault.tables[row.table](data, age)
        return row

    def _healthy_varz(self, data: Data, server: int, at: float) -> None:
        others = sum(not self.down(other, at) for other in self.members(at)) - 1
        up = at - self.started(server, at)
        data.update(
            {
                "cpu": 40.0,
                "gomaxprocs": 4,
                "gomemlimit": 8 * GIB,
                "max_payload": 1 << 20,
                "max_connections": 65536,
                "slow_consumers": 0,
                "stalled_clients": 0,
                "stale_connections": 0,
                "leafnodes": 0,
                "subscriptions": 50,
                "auth_required": True,
                "tls_required": True,
                "system_account": "SYS",
                "http_port": 8222,
                "http_host": "127.0.0.1",
                "tls_cert_not_after": "2029-01-01T00:00:00Z",
                "config_digest": "sha256:1",
                # Caches fill up after a start.
                "mem": int(1e8 + min(up, 7200) * 1e4),
                "now": timestamp(START + timedelta(seconds=at)),
                "total_connections": 100,
                "remotes": others,
                "routes": others * (_POOL + 1),
                "cluster": {"pool_size": _POOL, "cluster_port": 6222, "tls_required": True},
                "jetstream": {"config": {"store_dir": "/data", "sync_interval": 10**10}},
            }
        )
        if self._since(self.disabled, server, at):
            del data["jetstream"]

    def _healthy_servers(self, data: Data, server: int, at: float) -> None:
        data["jetstream"] = not self._since(self.disabled, server, at)

    def _healthy_jsz(self, data: Data, server: int, at: float) -> None:
        if self._since(self.disabled, server, at):
            data.clear()
            data.update({"disabled": True, "config": {}})
            return
        data.update(
            {
                "api": {"level": 5, "total": int(at), "errors": 0, "inflight": 0},
                "consumers": data["streams"],
                "limits": {"max_ha_assets": 5000},
            }
        )
        data["meta_cluster"].update({"quorum_needed": len(self.members(at)) // 2 + 1, "pending": 0})
        if self._is_old(server, at):
            del data["api"]["level"]

    def _is_old(self, server: int, at: float) -> bool:
        """Return whether a server runs 2.10."""
        return self.version(server, at).startswith("2.10")

    def _healthy_accstatz(self, data: Data, _server: int, _at: float) -> None:
        data.update({"num_subscriptions": 10, "slow_consumers": 0, "total_conns": 10})

    def _healthy_jsz_streams(self, data: Data, server: int, at: float) -> None:
        number = self.numbers[data["name"]]
        stream = self.assets[number]
        data["config"].update({"max_age": int(30 * 86400e9), "duplicate_window": int(120e9), "discard": "old"})
        begin = stream.purged if 0 < stream.purged <= at else 0.0
        times = {
            "first_ts": timestamp(START + timedelta(seconds=begin)),
            "last_ts": timestamp(START + timedelta(seconds=at)),
        }
        data["state"].update({**times, "num_subjects": 10, "num_deleted": 0, "consumer_count": 1})
        if not self._is_old(server, at):
            # 2.10 does not report any of these.
            fields = ("allow_msg_ttl", "allow_atomic", "allow_msg_counter", "allow_msg_schedules")
            data["config"].update(dict.fromkeys(fields, False))
        born = self._born(number)
        if born:
            self._begin_at(data, born, self.written(stream, born), stream.size)
        if number in self.recreated and at >= BEGIN + 3 * STEP:
            self._begin_at(data, BEGIN + 3 * STEP, self.written(stream, BEGIN + 3 * STEP), stream.size)
        if number in self.filtered:
            # The stream's max_age removes messages that its consumer's filter skips.
            data["config"].update(max_age=int(100e9 / stream.rate), duplicate_window=0)
            data["state"]["first_seq"] = max(1, data["state"]["last_seq"] - 100)
            data["state"]["messages"] = data["state"]["last_seq"] - data["state"]["first_seq"] + 1
            data["state"]["first_ts"] = timestamp(START + timedelta(seconds=max(0.0, at - 100 / stream.rate)))

    def _born(self, number: int) -> float:
        stream = self.assets[number]
        return stream.born if isinstance(stream, Asset) else 0.0

    @staticmethod
    def _begin_at(data: Data, at: float, before: int, size: int) -> None:
        """Make a stream begin at this moment, without the messages written `before`."""
        data["created"] = timestamp(START + timedelta(seconds=at))
        data["state"]["last_seq"] -= before
        data["state"].update(messages=data["state"]["last_seq"], bytes=data["state"]["last_seq"] * size)
        data["state"]["first_ts"] = data["created"]

    def _healthy_jsz_consumers(self, data: Data, server: int, at: float) -> None:
        number = self.numbers[data["stream_name"]]
        stream = self.assets[number]
        stopped = stream.stuck or stream.looping
        data["config"].update({"max_ack_pending": 1000, "max_deliver": 5, "max_waiting": 512})
        last = timestamp(START + timedelta(seconds=min(at, stopped) if stopped else at))
        for place in ("delivered", "ack_floor"):
            data[place]["last_active"] = last
        data["num_waiting"] = 1
        if self.first_version.startswith("2.10") and not self._is_old(server, at):
            # Each server that recovers a consumer of 2.10 sets its own creation time.
            data["created"] = timestamp(START + timedelta(milliseconds=3 * (server + 1)))
        born = self._born(number)
        if born:
            data["created"] = timestamp(START + timedelta(seconds=born))
            for place in ("delivered", "ack_floor"):
                data[place]["stream_seq"] -= self.written(stream, born)
                data[place]["consumer_seq"] = data[place]["stream_seq"]
        if number in self.recreated and at >= BEGIN + 3 * STEP:
            data["created"] = timestamp(START + timedelta(seconds=BEGIN + 3 * STEP))
            for place in ("delivered", "ack_floor"):
                data[place]["stream_seq"] -= self.written(stream, BEGIN + 3 * STEP)
        if number in self.filtered:
            data["config"]["filter_subject"] = f"{stream.name}.rare"
            for place in ("delivered", "ack_floor"):
                data[place].update({"stream_seq": 5, "consumer_seq": 5})
            data["num_pending"] = 0

    # --- the truth
    # ------------------------------------------------------------------------------------------------------

    def must(self) -> Iterator[tuple[str, Subject]]:
        """Yield the checks that must fail, and the subjects of their findings."""
        for number, fault in self.wrong_servers:
            for check in fault.checks:
                yield check, {"server": self.name(number)}
        for number, fault in self.wrong_streams:
            for check in fault.checks:
                yield check, self._about(number, fault.consumer or check.startswith("CONSUMER"))
        for number, stream in enumerate(self.assets):
            if len(stream.replicas) == 1 and not {*stream.replicas} & {*self.dead}:
                yield "STREAM_103", self._about(number)
            if {*stream.replicas} <= {*self.dead}:
                yield "STREAM_214", self._about(number)
            if number in self.recreated:
                yield "STREAM_205", self._about(number)
            if stream.purged:
                yield "STREAM_216", self._about(number)
            if len(stream.replicas) > 1 and {*stream.replicas} & {*self.dead}:
                for check in ("STREAM_104", "STREAM_106", "CONSUMER_103"):
                    yield check, self._about(number, check.startswith("CONSUMER"))
        for server in self.dead:
            for check in ("META_103", "META_105"):
                yield check, {"server": self.name(server)}
        for server in self.crashed:
            yield "SERVER_201", {"server": self.name(server)}
        for server, _since in self.disabled:
            yield "SERVER_210", {"server": self.name(server)}
            for number, stream in enumerate(self.assets):
                if stream.replicas == (server,):
                    yield "STREAM_214", self._about(number)
        if self.dead or self.partial:
            yield "FLEET_101", {}
        if self.dead and self.servers - len(self.dead) == self.servers // 2 + 1:
            yield "META_102", {"domain": self.domain}
        if self.servers == 3:
            yield "CLUSTER_101", {"cluster": self.cluster}
            yield "CAPACITY_206", {"cluster": self.cluster}
        if len(self.members(self.last_snapshots[-1])) % 2 == 0:
            yield "META_101", {"domain": self.domain}
        if self.removed:
            yield "META_203", {"domain": self.domain}
        if self.operator:
            yield "ACCOUNTS_108", {"account": self._key("A0"), "name": "user app"}

    def may(self) -> Iterator[tuple[str, Subject]]:
        """Yield the additional findings that may follow from the true state."""
        for number, fault in self.wrong_servers:
            for check in fault.also:
                yield check, {} if check.startswith("CAPACITY") else {"server": self.name(number)}
        for number, fault in self.wrong_streams:
            for check in (*fault.also, "CONSUMER_107", "STREAM_119"):
                yield check, self._about(number) if not check.startswith("CAPACITY") else {}
        gone = {*self.dead, *self.rolled, *self.crashed, *(server for server, _since in self.disabled)}
        for number, stream in enumerate(self.assets):
            if {*stream.replicas} & gone:
                for check in _DEGRADED:
                    yield check, self._about(number)
        for server in gone:
            for check in _AWAY:
                yield check, {"server": self.name(server)}
            for heir in (1, 2):
                yield "CLUSTER_105", {"server": self.name((server + heir) % self.carriers)}
        if gone:
            yield "FLEET_101", {}
        for server in self._overfull():
            yield "CLUSTER_107", {"server": self.name(server)}

    def _overfull(self) -> Iterator[int]:
        """Yield servers that by chance store more than twice the mean when the last snapshot of an hour is taken."""
        for look in self.last_snapshots:
            stored = dict.fromkeys(range(self.carriers), 0)
            for stream in self.assets:
                for server in stream.replicas:
                    stored[server] += self.written(stream, look) * stream.size
            mean = sum(stored.values()) / self.carriers
            yield from (server for server, held in stored.items() if held > 2 * mean)

    def _about(self, number: int, consumer: bool = False) -> Subject:
        stream = self.assets[number]
        account = self._key(stream.account) if self.operator else stream.account
        named = {"domain": self.domain, "account": account, "stream": self._name(stream)}
        return {**named, **({"consumer": "worker"} if consumer else {})}


def _logins() -> Logins:
    """Return the JWTs of the account A0: a connection of the role `app` has not renewed its JWT; those of the role
    `report` and the activation of an import expire much later."""
    account, app, report = (new_key(nkeys.PREFIX_BYTE_ACCOUNT, number) for number in (1, 2, 3))

    def times(days: float, lifetime: float) -> dict[str, int]:
        expires = START + timedelta(seconds=BEGIN, days=days)
        return {"iat": int((expires - timedelta(days=lifetime)).timestamp()), "exp": int(expires.timestamp())}

    activation = make_jwt(account, account.public, "pay", {"type": "activation"}, top=times(200, 365))
    keys = [{"key": key.public, "role": role} for key, role in ((app, "app"), (report, "report"))]
    claims = {"type": "account", "signing_keys": keys, "imports": [{"subject": "pay.api", "token": activation}]}
    found = Logins()
    found.add_account("A0", make_jwt(account, account.public, _TAG, claims))
    for signer, days in ((app, 5), (app, 25), (report, 25)):
        user = new_key(nkeys.PREFIX_BYTE_USER, days).public
        token = make_jwt(signer, user, "shop", {"type": "user", "issuer_account": account.public}, top=times(days, 30))
        found.add_connection({"account": "A0", "jwt": token})
    return found


def _by_number(wrong: Iterable[tuple[int, Fault]]) -> dict[int, list[Fault]]:
    found: dict[int, list[Fault]] = defaultdict(list)
    for number, fault in wrong:
        found[number].append(fault)
    return dict(found)


@dataclass(frozen=True)
class Other:
    """Another fleet of the same lake, and when its collector takes snapshots. `gap`: the collector stops for a time;
    otherwise it stops forever, and all findings stay open."""

    fleet: str
    part: Part
    moments: tuple[float, ...]
    gap: bool

    def must(self) -> Iterator[tuple[str, Subject]]:
        state = {} if self.gap else {"state": "open"}
        for check, subject in self.part.must():
            yield check, {"fleet": self.fleet, **state, **subject}
        if self.gap:
            yield "FLEET_201", {"fleet": self.fleet}

    def may(self) -> Iterator[tuple[str, Subject]]:
        for check, subject in self.part.may():
            yield check, {"fleet": self.fleet, **subject}


@dataclass(frozen=True)
class Truth:
    """The parts of a fleet, and when snapshots of it are taken, in seconds after its start. `clocks`: how far the
    collector's clock is ahead at some of them. `others`: further fleets."""

    parts: tuple[Part, ...]
    moments: tuple[float, ...]
    clocks: Mapping[float, float] = field(default_factory=dict)
    others: tuple[Other, ...] = ()

    @property
    def _fleets(self) -> tuple[Part | Other, ...]:
        return (*self.parts, *self.others)

    def must(self) -> Iterator[tuple[str, Subject]]:
        for part in self._fleets:
            yield from part.must()
        if {*self.clocks} & {*self.parts[0].last_snapshots}:
            yield "FLEET_102", {"fleet": FLEET}

    def may(self) -> Iterator[tuple[str, Subject]]:
        for part in self._fleets:
            yield from part.may()

    def write(self, lake: Path) -> None:
        """Write the snapshots, as nats_snapshot does."""
        for at in self.moments:
            write(self.parts, lake, at, FLEET, clock=self.clocks.get(at, 0.0))
            for other in self.others:
                if at in other.moments:
                    write([other.part], lake, at, other.fleet)

    def journal(self) -> Iterator[str]:
        """Yield the journal of operations: who was restarted on purpose."""
        for part in self.parts:
            for number, outage in enumerate(part.outages):
                if outage.server in part.rolled:
                    shared = {
                        "version": 1,
                        "run": f"r{number}",
                        "cluster": part.cluster,
                        "hosts": [part.name(outage.server)],
                    }
                    for event, at in (("batch_started", outage.begin - 5), ("batch_done", outage.end + 60)):
                        yield json.dumps({**shared, "time": timestamp(START + timedelta(seconds=at)), "event": event})


def planted(servers: int = 40, snapshots: int = 12, apart: float = 30.0, seed: int = 1) -> Truth:
    """Return a fleet of this many servers, three quarters of them in a hub and the others at an edge, with each fault
    once per 40 servers, but at least once."""
    moments = tuple(BEGIN + number * STEP for number in range(snapshots))
    last_snapshots = tuple(
        at for at, following in zip(moments, (*moments[1:], moments[-1] + 3600)) if at // 3600 < following // 3600
    )
    edge = max(5, servers // 4)
    sizes = {("hub", "h"): servers - edge, ("edge", "e"): edge}
    parts = []
    for number, ((domain, prefix), size) in enumerate(sizes.items()):
        hub = number == 0
        times = max(1, servers // 40) if hub else 1
        parts.append(_part(domain, prefix, size, apart, seed + number, times, last_snapshots, hub))
    parts.append(_upgraded(apart, seed + 2, last_snapshots))
    small = Part(3, 6, seed + 3, 2, prefix="g", apart=apart, last_snapshots=last_snapshots)
    outages = (Outage(2, BEGIN + STEP / 2, 1e9),)
    dead = Part(3, 6, seed + 4, 2, outages, prefix="d", apart=apart, last_snapshots=last_snapshots[:1], dead=(2,))
    others = (
        Other("with a gap", small, (*moments[:4], *moments[-2:]), gap=True),
        Other("dead", dead, tuple(at for at in moments if at <= last_snapshots[0]), gap=False),
    )
    # The name of the second of these snapshots sorts after the name of the next snapshot.
    return Truth(tuple(parts), moments, {last_snapshots[0]: 400.0, moments[8]: 1.2 * STEP}, others)


def _upgraded(apart: float, seed: int, last_snapshots: tuple[float, ...]) -> Part:
    """Return a cluster of three in operator mode that is upgraded from 2.10, one server after another."""
    times = [BEGIN + (1.3 + 2 * server) * STEP for server in range(3)]
    outages = tuple(Outage(server, at, at + 60, VERSION) for server, at in enumerate(times))
    return Part(
        *(3, 8, seed, 2, outages, "south", "SOUTH", "s", apart),
        first_version="2.10.27",
        rolled=(0, 1, 2),
        operator=True,
        last_snapshots=last_snapshots,
    )


def _part(
    domain: str,
    prefix: str,
    size: int,
    apart: float,
    seed: int,
    times: int,
    last_snapshots: tuple[float, ...],
    hub: bool,
) -> Part:
    """Return a part of the fleet. In the hub, one server dies, one crashes, two are restarted on purpose, one loses
    JetStream, one reports half of its accounts at the end, one is removed at the beginning, and one is added."""
    dead, rolled, crashed = ((size - 1,), (size - 2, size - 3), (size - 4,)) if hub else ((), (), ())
    disabled = ((size - 5, last_snapshots[-1] - 1800),) if hub else ()
    partial = ((size - 6, last_snapshots[-1] - 900),) if hub else ()
    removed = ((size, BEGIN + 1.5 * STEP),) if hub else ()
    added = ((size + 1, BEGIN + 2.5 * STEP),) if hub else ()
    outages = [Outage(server, BEGIN + STEP / 2, 1e9) for server in dead]
    # One server is down while the last snapshot of an hour is taken, the other between two snapshots.
    outages += [
        Outage(server, at, at + 90, "2.15.2")
        for server, at in zip(rolled, (last_snapshots[0] - 20, last_snapshots[-1] - 300))
    ]
    outages += [Outage(server, last_snapshots[-1] - 900, last_snapshots[-1] - 810) for server in crashed]
    outages += [Outage(server, at - 60, at) for server, at in disabled]
    # Half of the servers of a small hub are unhealthy at some time, so streams with planted faults must be on the other
    # half.
    streams = max((4 if hub else 2) * len(STREAM_FAULTS) * times, size * 3)
    bare = Part(
        *(size + len(removed) + len(added), streams, seed, 4, tuple(outages)),
        domain=domain,
        cluster=domain.upper(),
        prefix=prefix,
        apart=apart,
        dead=dead,
        crashed=crashed,
        rolled=rolled,
        disabled=disabled,
        partial=partial,
        removed=removed,
        added=added,
        last_snapshots=last_snapshots,
    )
    away = {*dead, *rolled, *crashed, *(server for server, _since in (*disabled, *partial))}
    whole = [
        number
        for number, stream in enumerate(bare.assets)
        if len(stream.replicas) == 3 and not {*stream.replicas} & away
    ]
    wanted = [fault for fault in (*STREAM_FAULTS, *(STREAM_CONDITIONS if hub else ())) for _time in range(times)]
    numbers = iter(whole)
    wrong_streams = tuple(zip(numbers, wanted))
    assert len(wrong_streams) == len(wanted), "too few streams with three replicas"
    others = [number for number in numbers if number % 7 > 2]
    servers = [number for number in range(size) if number not in away]
    faults = [fault for fault in SERVER_FAULTS for _time in range(times)]
    wrong_servers = _placed((*faults, *SERVER_CONDITIONS), servers)
    third = max(1, len(others) // 3)
    return replace(
        bare,
        wrong_servers=wrong_servers,
        wrong_streams=wrong_streams,
        recreated=tuple(others[:third][:20]),
        electing=tuple(others[third : 2 * third][: size // 2]),
        filtered=tuple(others[2 * third :][:20]),
    )


def _placed(faults: Sequence[Fault], servers: Sequence[int]) -> tuple[tuple[int, Fault], ...]:
    """Return the server of each fault: the one with the fewest faults so far, unless one of them hides the other."""
    placed: dict[int, list[Fault]] = {server: [] for server in servers}
    found = []
    for fault in faults:
        free = [server for server, there in placed.items() if not any(hide(fault, one) for one in there)]
        server = min(free, key=lambda server: len(placed[server]))
        placed[server].append(fault)
        found.append((server, fault))
    return tuple(found)


def hide(one: Fault, other: Fault) -> bool:
    """Return whether a server with both faults would show only one of them."""
    return one.name == other.name or one.name in other.hides or other.name in one.hides


# --- the findings ---------------------------------------------------------------------------------------------------


@dataclass
class Score:
    """For one check: the expected findings, those that were found, other findings that are true, and false findings."""

    planted: int = 0
    hit: int = 0
    follows: int = 0
    false: int = 0

    @property
    def precision(self) -> float | None:
        found = self.hit + self.follows + self.false
        return (self.hit + self.follows) / found if found else None

    @property
    def recall(self) -> float | None:
        return self.hit / self.planted if self.planted else None


@dataclass(frozen=True)
class Outcome:
    """The scores by check, the false findings, and the missing findings."""

    scores: Mapping[str, Score]
    false: Sequence[Mapping[str, Any]]
    missed: Sequence[tuple[str, Subject]]


def judged(truth: Truth, findings: Sequence[Mapping[str, Any]]) -> Outcome:
    """Return the comparison of the findings with the truth."""
    must, may = _known(truth.must()), _known(truth.may())
    scores: dict[str, Score] = defaultdict(Score)
    by_check: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    false, missed = [], []
    for row in findings:
        if row.get("result", "fail") == "fail":
            by_check[row["check"]].append(row)
        elif (row["consumer"] or "").startswith(_BRIEF):
            false.append(row)
    for check, subjects in must.items():
        for subject in subjects:
            hit = any(_names(row, subject) for row in by_check[check])
            scores[check].planted += 1
            scores[check].hit += hit
            if not hit:
                missed.append((check, subject))
    for check, rows in by_check.items():
        for row in rows:
            if any(_names(row, subject) for subject in must.get(check, ())):
                continue
            follows = any(_names(row, subject) for subject in may.get(check, ()))
            scores[check].follows += follows
            scores[check].false += not follows
            if not follows:
                false.append(row)
    return Outcome(dict(sorted(scores.items())), false, missed)


def _known(told: Iterable[tuple[str, Subject]]) -> dict[str, list[Subject]]:
    found: dict[str, list[Subject]] = defaultdict(list)
    for check, subject in told:
        if subject not in found[check]:
            found[check].append(subject)
    return found


def _names(row: Mapping[str, Any], subject: Subject) -> bool:
    return all((row[name] or "") == value for name, value in subject.items())


def table(scores: Mapping[str, Score]) -> Iterator[str]:
    """Yield a Markdown table, with sums, of the checks that have planted or false findings."""
    yield "| check | planted | found | follows | false | precision | recall |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    shown = {check: score for check, score in scores.items() if score.planted or score.false}
    total = Score(
        *(sum(getattr(score, name) for score in scores.values()) for name in ("planted", "hit", "follows", "false"))
    )
    for check, score in (*shown.items(), ("**all**", total)):
        shares = ("" if share is None else f"{share:.3f}" for share in (score.precision, score.recall))
        yield f"| {check} | {score.planted} | {score.hit} | {score.follows} | {score.false} | {' | '.join(shares)} |"
