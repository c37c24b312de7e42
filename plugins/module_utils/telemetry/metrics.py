# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The metrics of the exporter: their names, and their values according to the collection's own rules. Pure.

The number of series depends on the number of servers and clusters, never on that of the streams, which are counted by
state. Individual streams and consumers have series while they are faulty (`FaultList`) or if they were selected, in
both cases up to a limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from ..accounts.expiry import Expiry
from ..assets.drift import Drift
from ..backup.catalogue import Catalogue
from ..backup.protection import protections
from ..backup.selection import matches, parse_taken
from ..dr.status import SILENCE
from ..health.cause import KINDS, RootCause
from ..health.diagnosis import server_findings
from ..health.rules import Limits, StopPolicy, members_in_step, stoppable_servers
from ..maintenance import Mark
from ..nats.model import CONSUMER, META, STREAM, Cluster, RaftGroup, Stream
from ..problem import ERROR, WARNING, Problem
from ..roll.journal import Journal
from ..times import certificate_ends, parse_time

COUNTER, GAUGE = "counter", "gauge"
#: The default limits of the health gate.
_LIMITS = Limits()


@dataclass(frozen=True)
class Metric:
    """A family of metrics. Each sample has the label `fleet`, followed by these labels."""

    name: str
    about: str
    labels: tuple[str, ...] = ()
    kind: str = GAUGE


#: Why the cluster could not be read: the first sweep has not ended, a code of NatsFailure (any other code is `other`),
#: or a defect of the exporter (`internal`).
REASONS = (
    "starting",
    "unreachable",
    "authorization",
    "tls",
    "timeout",
    "deadline",
    "connection_lost",
    "no_responders",
    "wrong_account",
    "permission",
    "bad_reply",
    "internal",
    "other",
)

#: States of a stream or consumer, the worst first: suffixes of the codes of the health rules, and the other states.
#: `tolerated`: the only missing servers are in maintenance or tolerated.
STATES = (
    "no_leader",
    "leader_disputed",
    "no_quorum",
    "unhealthy",
    "ghost",
    "replica_count",
    "replica_behind",
    "moving",
    "restored",
    "tolerated",
    "ok",
)
#: The tables of the insights report that are exported as series; the number of series depends on the servers and zones.
_FORECAST_SCOPES = ("cluster", "zone", "server")
_FORECASTS = (("p10", "full_p10"), ("p50", "full_p50"), ("p90", "full_p90"))

_CLUSTER = ("cluster",)
_JWT = ("kind", "account", "role")
_SERVER = ("cluster", "server")
_CLASS = ("cluster", "kind", "replicas")
_ASSET = ("cluster", "kind", "account", "stream", "consumer")
_STREAM = ("cluster", "account", "stream")

METRICS: tuple[Metric, ...] = (
    # The exporter itself.
    Metric("natsops_up", "Whether the last sweep could read the cluster."),
    Metric("natsops_failure", "Why the last sweep failed: 1 for the reason.", ("reason",)),
    Metric("natsops_sweep_interval_seconds", "Seconds between two sweeps; scrapes read the last one."),
    Metric("natsops_sweep_duration_seconds", "How long the last sweep took."),
    Metric("natsops_sweep_timestamp_seconds", "When the last sweep ended."),
    Metric("natsops_sweep_success_timestamp_seconds", "When the last sweep that could read the cluster ended."),
    Metric("natsops_sweeps_total", "Sweeps by result.", ("result",), COUNTER),
    Metric("natsops_input_readable", "Whether an input file of the exporter could be read.", ("input",)),
    Metric("natsops_series", "Exported series, excluding those of the process."),
    Metric("natsops_assets_shown", "Streams and consumers with separate series.", ("list",)),
    Metric("natsops_assets_omitted", "Streams and consumers omitted because the list was full.", ("list",)),
    Metric("natsops_assets_limit", "Size limit of a list.", ("list",)),
    # Results of the health rules.
    Metric("natsops_root_causes", "Root causes of problems, by kind and severity.", ("kind", "severity")),
    Metric("natsops_findings", "Findings besides the health rules.", ("cluster", "code", "severity")),
    # Servers.
    Metric("natsops_servers", "Servers by state: answered, missing (expected), maintenance.", ("cluster", "state")),
    Metric("natsops_servers_stoppable", "Servers that could stop now, one at a time.", _CLUSTER),
    Metric("natsops_server_up", "Whether an expected server or a member of a group answered.", _SERVER),
    Metric(
        "natsops_server_info", "Version and JetStream domain of a server; always 1.", (*_SERVER, "version", "domain")
    ),
    Metric("natsops_server_can_stop", "Whether the server could stop now without a group losing its quorum.", _SERVER),
    Metric(
        "natsops_server_healthy",
        "Whether the server reports itself healthy, disregarding single streams and consumers.",
        _SERVER,
    ),
    Metric("natsops_server_uptime_seconds", "Uptime of the server.", _SERVER),
    Metric("natsops_server_leaders", "Groups that the server leads.", (*_SERVER, "kind")),
    Metric("natsops_server_storage_used_bytes", "Used file storage of JetStream.", _SERVER),
    Metric("natsops_server_storage_reserved_bytes", "File storage reserved by the limits of streams.", _SERVER),
    Metric("natsops_server_storage_limit_bytes", "File storage that JetStream may use.", _SERVER),
    Metric(
        "natsops_server_certificate_expiry_timestamp_seconds",
        "Expiry time of a listener's certificate; reported by nats-server 2.11.12, 2.12.4 and later.",
        (*_SERVER, "listener"),
    ),
    Metric("natsops_server_config_load_timestamp_seconds", "When the server last loaded its configuration.", _SERVER),
    Metric(
        "natsops_server_config_info",
        "Digest of the loaded configuration; always 1. From nats-server 2.11.",
        (*_SERVER, "digest"),
    ),
    # JWTs, in operator mode.
    Metric(
        "natsops_jwt_expiry_timestamp_seconds",
        "Earliest expiry of the JWTs of a kind (operator, account, activation, user, credentials), account and role.",
        _JWT,
    ),
    Metric(
        "natsops_jwt_expiring_connections",
        "Connections that are closed when these JWTs expire, from the time at which the expiry is reported.",
        (*_JWT, "severity"),
    ),
    Metric("natsops_maintenance", "A server in maintenance, according to the journal.", ("server",)),
    Metric("natsops_maintenance_until_timestamp_seconds", "When maintenance of the server is due to end.", ("server",)),
    # Groups.
    Metric("natsops_groups", "Streams and consumers by state.", ("cluster", "kind", "state")),
    Metric("natsops_group_members", "Configured members of the groups of a class.", _CLASS),
    Metric("natsops_group_members_in_step", "Members in step.", _CLASS),
    Metric(
        "natsops_group_quorum_margin_min", "Members in step beyond the quorum, in the group with the fewest.", _CLASS
    ),
    Metric(
        "natsops_groups_without_margin",
        "Groups of three or more members that would lose their quorum with one more failure.",
        _CLASS,
    ),
    Metric("natsops_group_lag_max", "Raft entries that the last replica is behind its leader.", ("cluster", "kind")),
    Metric("natsops_meta_leader_known", "Whether all servers name the same meta leader."),
    Metric("natsops_meta_pending", "Pending JetStream API requests of the meta leader."),
    Metric("natsops_sources", "Mirrors and sources of streams by state: ok, silent, failing.", ("cluster", "state")),
    Metric("natsops_source_lag_max", "Messages by which the slowest mirror or source is behind its origin.", _CLUSTER),
    # Individual streams and consumers.
    Metric(
        "natsops_asset_at_fault",
        "A faulty stream or consumer: 1 while faulty, 0 for some time afterwards.",
        (*_ASSET, "state"),
    ),
    Metric("natsops_stream_messages", "Messages of a selected stream.", _STREAM),
    Metric("natsops_stream_size_bytes", "Size of a selected stream in bytes.", _STREAM),
    Metric("natsops_stream_limit_bytes", "Size limit of a selected stream, if it has a limit.", _STREAM),
    Metric("natsops_stream_quorum_margin", "Members in step beyond the quorum of a selected stream.", _STREAM),
    Metric(
        "natsops_stream_lag_max", "Raft entries by which the slowest replica of a selected stream is behind.", _STREAM
    ),
    Metric("natsops_consumer_pending", "Messages that a durable consumer has yet to deliver.", (*_STREAM, "consumer")),
    Metric("natsops_consumer_ack_pending", "Delivered messages not acknowledged yet.", (*_STREAM, "consumer")),
    # Operations, from their journal.
    Metric("natsops_roll_in_progress", "Whether an operation of this cluster is in progress.", _CLUSTER),
    Metric("natsops_roll_failed", "Whether the last operation failed.", _CLUSTER),
    Metric("natsops_roll_batch", "Latest batch of the last operation.", _CLUSTER),
    Metric("natsops_roll_batches", "Batches of the last operation.", _CLUSTER),
    Metric("natsops_roll_started_timestamp_seconds", "When the last operation began.", _CLUSTER),
    Metric("natsops_roll_event_timestamp_seconds", "When the last operation wrote its last event.", _CLUSTER),
    Metric("natsops_roll_left_seconds", "Estimated remaining time of the last operation.", _CLUSTER),
    # Backups, from their catalogue.
    Metric("natsops_backup_streams", "Streams by their backup: saved, failed, never, excluded.", ("state",)),
    Metric("natsops_backup_proofs", "Streams by their last drill: proven, failed, never.", ("state",)),
    Metric("natsops_backup_oldest_timestamp_seconds", "Last backup of the stream that has gone longest without one."),
    Metric("natsops_backup_newest_timestamp_seconds", "Time of the newest backup of a stream."),
    Metric(
        "natsops_backup_oldest_proof_timestamp_seconds",
        "Last proven restore of the stream that has gone longest without one.",
    ),
    Metric("natsops_backup_newest_proof_timestamp_seconds", "Time of the newest proven restore."),
    # Documents of assets, from their last comparison.
    Metric("natsops_assets_drifting", "Assets that differ from their document.", ("cluster", "account", "document")),
    Metric("natsops_assets_compared", "Assets that their document declares.", ("cluster", "account", "document")),
    Metric("natsops_assets_plan_refused", "Whether the plan of the documents cannot be carried out."),
    Metric("natsops_assets_compared_timestamp_seconds", "When documents and assets were last compared."),
    # Insights, from their last report.
    Metric("natsops_insights_report_timestamp_seconds", "When the report was created."),
    Metric(
        "natsops_insights_snapshots_stopped",
        "Whether the last snapshot was too old when the report was created.",
    ),
    Metric("natsops_insights_findings", "Findings of the last report.", ("check", "severity")),
    Metric(
        "natsops_insights_full_days",
        "Forecast days until a resource is full.",
        ("scope", "name", "resource", "quantile"),
    ),
)
BY_NAME = {metric.name: metric for metric in METRICS}

#: The lists of individual streams and consumers.
AT_FAULT, SELECTED = "at_fault", "selected"


#: Maximum number of accounts and roles with separate series of JWTs; the earliest expiries come first.
MAX_JWTS = 200


class Exposition:
    """Samples of METRICS, all with the label of this fleet."""

    def __init__(self, fleet: str) -> None:
        self.fleet = fleet
        self._samples: dict[str, dict[tuple[str, ...], float]] = {}

    def add(self, name: str, value: Optional[float], /, **labels: str) -> None:
        """Add a sample unless the value is unknown. Raises ValueError for labels that the metric does not have."""
        metric = BY_NAME[name]
        if set(labels) != set(metric.labels):
            raise ValueError(f"{name} has the labels {metric.labels}, not {tuple(labels)}")
        if value is not None:
            self._samples.setdefault(name, {})[tuple(labels[key] for key in metric.labels)] = float(value)

    def families(self) -> Iterator[tuple[Metric, list[tuple[tuple[str, ...], float]]]]:
        """Yield each metric that has samples, with the values of its labels after `fleet`, in a stable order."""
        for metric in METRICS:
            if metric.name in self._samples:
                yield metric, sorted(self._samples[metric.name].items())

    def take(self, other: Exposition) -> None:
        """Add the samples of another exposition of the same fleet."""
        for name, samples in other._samples.items():
            self._samples.setdefault(name, {}).update(samples)

    @property
    def series(self) -> int:
        """Return the number of samples."""
        return sum(map(len, self._samples.values()))


# --- individual streams and consumers at fault ------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """A stream or consumer and its worst state."""

    cluster: str
    kind: str
    account: str
    stream: str
    consumer: str
    state: str

    @property
    def order(self) -> tuple[Any, ...]:
        """Return the key by which a truncated list is sorted: the worst state first, streams before consumers, then by
        name."""
        return (
            STATES.index(self.state),
            self.kind != STREAM,
            self.cluster,
            self.account,
            self.stream,
            self.consumer,
        )


@dataclass
class _Seen:
    looks: int = 0
    last: float = 0.0
    shown: bool = False


class FaultList:
    """The faulty streams and consumers that have separate series, at most `limit`.

    An asset is added if two consecutive samples show the fault, so an election or a restart creates no series. The
    asset stays in the list for `linger` seconds after its repair, so its series ends with a good value."""

    def __init__(self, limit: int, linger: float = 600.0) -> None:
        self.limit = limit
        self._linger = linger
        self._seen: dict[Fault, _Seen] = {}

    def look(self, faults: Collection[Fault], now: float) -> tuple[list[tuple[Fault, bool]], int]:
        """Return the assets to show, each with its current state, and how many assets were omitted."""
        for fault in faults:
            seen = self._seen.setdefault(fault, _Seen())
            seen.looks, seen.last = seen.looks + 1, now
            seen.shown = seen.shown or seen.looks > 1
        present = set(faults)
        self._seen = {
            fault: seen
            for fault, seen in self._seen.items()
            if fault in present or (seen.shown and now - seen.last < self._linger)
        }
        rows = sorted(
            ((fault, fault in present) for fault, seen in self._seen.items() if seen.shown),
            key=lambda row: (not row[1], row[0].order),
        )
        return rows[: self.limit], max(0, len(rows) - self.limit)


# --- Content of a sweep -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sweep:
    """The servers' data from one sweep. `problems`: those found by the health rules, except `tolerated` ones.
    `expected`: server → its cluster, empty if unknown. `varz`: the VARZ of the servers that responded, by server ID.
    `selected`: the streams with separate series, as ACCOUNT/STREAM with * and ?."""

    cluster: Cluster
    problems: Sequence[Problem] = ()
    tolerated: Sequence[Problem] = ()
    expected: Mapping[str, str] = field(default_factory=dict)
    marks: Mapping[str, Mark] = field(default_factory=dict)
    varz: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    selected: Sequence[str] = ()
    limits: Limits = _LIMITS

    @property
    def clusters(self) -> list[str]:
        """Return the clusters that exist or are expected."""
        return sorted({server.cluster for server in self.cluster.servers} | set(self.expected.values()) - {""})

    def only_cluster(self) -> str:
        """Return the only cluster of the fleet, or an empty text if there are several: groups that span clusters belong
        to none."""
        clusters = self.clusters
        return clusters[0] if len(clusters) == 1 else ""


def cause_metrics(out: Exposition, causes: Iterable[RootCause]) -> None:
    """Add the number of root causes of each kind, including kinds that did not occur."""
    counts = Counter((cause.kind, cause.severity) for cause in causes)
    for kind in KINDS:
        for severity in (ERROR, WARNING):
            out.add("natsops_root_causes", counts[kind, severity], kind=kind, severity=severity)


def cluster_metrics(out: Exposition, reading: Sweep, faults: FaultList, now: float) -> None:
    """Add the metrics of servers, groups, and single streams and consumers. `now`: seconds of a monotonic clock."""
    states = group_states(reading)
    _servers(out, reading)
    _stops(out, reading)
    _states(out, reading, states)
    _classes(out, reading)
    _meta(out, reading)
    _sources(out, reading)
    _at_fault(out, states, faults, now)
    _selected(out, reading, faults.limit)


def group_states(reading: Sweep) -> dict[Fault, bool]:
    """Return each stream and consumer with its state, and whether a client recreates it. A ghost exists on no server;
    it is assigned to the cluster of the servers that report it."""
    worst: dict[str, str] = {}
    for problems, tolerated in ((reading.problems, False), (reading.tolerated, True)):
        for problem in problems:
            kind, _line, state = problem.code.partition("_")
            if kind in (STREAM, CONSUMER) and state in STATES:
                state = "tolerated" if tolerated else state
                before = worst.get(problem.subject, "ok")
                worst[problem.subject] = min(before, state, key=STATES.index)
    found: dict[Fault, bool] = {}
    for group in reading.cluster.groups():
        found[_fault(group.kind, group.subject, group.cluster, worst.pop(group.subject, "ok"))] = group.ephemeral
    places = {server.name: server.cluster for server in reading.cluster.servers}
    ghosts = {
        problem.subject: problem for problem in (*reading.problems, *reading.tolerated) if problem.subject in worst
    }
    for subject, problem in ghosts.items():
        where = next((places[name] for name in problem.servers if name in places), reading.only_cluster())
        found[_fault(problem.code.partition("_")[0], subject, where, worst[subject])] = False
    return found


def _fault(kind: str, subject: str, cluster: str, state: str) -> Fault:
    account, stream, consumer = (*subject.partition(" ")[2].split("/", 2), "", "")[:3]
    return Fault(cluster, kind, account, stream, consumer, state)


def _servers(out: Exposition, reading: Sweep) -> None:
    servers = reading.cluster.servers
    missing = {name: place for name, place in reading.expected.items() if name not in reading.cluster.names}
    for cluster in reading.clusters:
        answered = sum(server.cluster == cluster for server in servers)
        away = [name for name, place in missing.items() if place == cluster]
        excused = sum(name in reading.marks for name in away)
        for state, count in (("answered", answered), ("missing", len(away) - excused), ("maintenance", excused)):
            out.add("natsops_servers", count, cluster=cluster, state=state)
    for name, place in missing.items():
        out.add("natsops_server_up", 0, cluster=place, server=name)
    rows = []
    for server in servers:
        where = {"cluster": server.cluster, "server": server.name}
        out.add("natsops_server_up", 1, **where)
        out.add("natsops_server_info", 1, **where, version=server.version, domain=server.domain)
        out.add("natsops_server_uptime_seconds", server.uptime, **where)
        if server.health is not None:
            out.add("natsops_server_healthy", server.health.ok_but_for_assets, **where)
        if server.summary is not None:
            out.add("natsops_server_storage_used_bytes", server.summary.storage, **where)
            out.add("natsops_server_storage_reserved_bytes", server.summary.reserved_storage, **where)
            out.add("natsops_server_storage_limit_bytes", server.summary.max_storage or None, **where)
        varz = reading.varz.get(server.id)
        if varz is not None:
            _configuration(out, varz, where)
            rows.append({**server.as_dict(), "varz": varz})
        else:
            rows.append(server.as_dict())
    for name, mark in reading.marks.items():
        out.add("natsops_maintenance", 1, server=name)
        out.add("natsops_maintenance_until_timestamp_seconds", mark.until, server=name)
    for cluster in reading.clusters:
        mine = [row for row in rows if row["cluster"] == cluster]
        for (code, severity), count in Counter((one.code, one.severity) for one in server_findings(mine)).items():
            out.add("natsops_findings", count, cluster=cluster, code=code, severity=severity)


def _configuration(out: Exposition, varz: Mapping[str, Any], where: Mapping[str, str]) -> None:
    for listener, end in certificate_ends(varz).items():
        moment = parse_time(end).timestamp()
        out.add("natsops_server_certificate_expiry_timestamp_seconds", moment, **where, listener=listener)
    if varz.get("config_load_time"):
        loaded = parse_time(str(varz["config_load_time"])).timestamp()
        out.add("natsops_server_config_load_timestamp_seconds", loaded, **where)
    if varz.get("config_digest"):
        out.add("natsops_server_config_info", 1, **where, digest=str(varz["config_digest"]))


def jwt_metrics(out: Exposition, rows: Sequence[Expiry]) -> None:
    """Add the JWTs that expire first. `rows`: the result of `evaluate`, the earliest expiry first."""
    series: dict[tuple[str, str, str], list[Expiry]] = {}
    for row in rows:
        series.setdefault((row.kind, row.account_name, row.role), []).append(row)
    for (kind, account, role), group in list(series.items())[:MAX_JWTS]:
        labels = {"kind": kind, "account": account, "role": role}
        out.add("natsops_jwt_expiry_timestamp_seconds", group[0].expires, **labels)
        for severity in (ERROR, WARNING):
            due_rows = [row for row in group if row.severity == severity]
            if due_rows:
                count = sum(row.connections for row in due_rows)
                out.add("natsops_jwt_expiring_connections", count, **labels, severity=severity)


def _stops(out: Exposition, reading: Sweep) -> None:
    can_stop = stoppable_servers(reading.cluster, StopPolicy(limits=reading.limits))
    for server in reading.cluster.servers:
        out.add("natsops_server_can_stop", can_stop[server.name], cluster=server.cluster, server=server.name)
    for cluster in reading.clusters:
        free = sum(can_stop[name] for name in {server.name for server in reading.cluster.only(cluster).servers})
        out.add("natsops_servers_stoppable", free, cluster=cluster)


def _states(out: Exposition, reading: Sweep, states: Iterable[Fault]) -> None:
    counts = Counter((fault.cluster, fault.kind, fault.state) for fault in states)
    for cluster in sorted({*reading.clusters, *(cluster for cluster, _kind, _state in counts)}):
        for kind in (STREAM, CONSUMER):
            for state in STATES:
                out.add("natsops_groups", counts[cluster, kind, state], cluster=cluster, kind=kind, state=state)


@dataclass
class _Class:
    """The groups of one kind with the same number of replicas."""

    members: int = 0
    in_step: int = 0
    margins: list[int] = field(default_factory=list)


def _margin(group: RaftGroup, quorum: int, reading: Sweep) -> tuple[int, int]:
    """Return how many members are in step, and by how many they exceed the quorum."""
    in_step = len(members_in_step(group, reading.cluster.names, reading.limits) & reading.cluster.names)
    return in_step, in_step - quorum


def _lag(group: RaftGroup) -> int:
    return max((peer.lag for peer in group.peers), default=0)


def _classes(out: Exposition, reading: Sweep) -> None:
    """Add the quorums of each class, the lag of each kind, and the number of groups that each server leads."""
    classes: dict[tuple[str, str, int], _Class] = {}
    lags = {(cluster, kind): 0 for cluster in reading.clusters for kind in (STREAM, CONSUMER)}
    leaders: Counter[tuple[str, str]] = Counter()
    rated = [(group, group.cluster, group.quorum) for group in reading.cluster.groups()]
    meta = reading.cluster.meta
    if meta is not None:
        rated.append((meta.group, reading.only_cluster(), meta.quorum))
    for group, cluster, quorum in rated:
        one = classes.setdefault((cluster, group.kind, group.size), _Class())
        in_step, margin = _margin(group, quorum, reading)
        one.members += group.size
        one.in_step += in_step
        one.margins.append(margin)
        lags[cluster, group.kind] = max(lags.get((cluster, group.kind), 0), _lag(group))
        if group.leader is not None:
            leaders[group.leader, group.kind] += 1
    for (cluster, kind, size), one in classes.items():
        labels = {"cluster": cluster, "kind": kind, "replicas": str(size)}
        out.add("natsops_group_members", one.members, **labels)
        out.add("natsops_group_members_in_step", one.in_step, **labels)
        out.add("natsops_group_quorum_margin_min", min(one.margins), **labels)
        # Groups of one or two replicas cannot have a margin. So few replicas are a deliberate choice, which must not
        # make an alert fire forever.
        if size > 2:
            out.add("natsops_groups_without_margin", sum(margin < 1 for margin in one.margins), **labels)
    for (cluster, kind), lag in lags.items():
        out.add("natsops_group_lag_max", lag, cluster=cluster, kind=kind)
    for server in reading.cluster.servers:
        for kind in (META, STREAM, CONSUMER):
            led = leaders[server.name, kind]
            out.add("natsops_server_leaders", led, cluster=server.cluster, server=server.name, kind=kind)


def _meta(out: Exposition, reading: Sweep) -> None:
    meta = reading.cluster.meta
    if meta is not None:
        known = meta.group.leader is not None and set(meta.views.values()) == {meta.group.leader}
        out.add("natsops_meta_leader_known", known)
        out.add("natsops_meta_pending", meta.pending if meta.group.leader else None)


def _sources(out: Exposition, reading: Sweep) -> None:
    """Add mirrors and sources as reported by the leaders of their streams. If the origin is lost, a mirror or source is
    silent and has no lag."""
    counts: Counter[tuple[str, str]] = Counter()
    lags = dict.fromkeys(reading.clusters, 0)
    for stream in reading.cluster.streams:
        cluster = stream.group.cluster
        if stream.group.leader is None:
            continue
        for source in filter(None, (stream.info.get("mirror"), *(stream.info.get("sources") or ()))):
            active = source.get("active", -1)
            silent = active < 0 or active > SILENCE * 1e9
            counts[cluster, "failing" if source.get("error") else "silent" if silent else "ok"] += 1
            lags[cluster] = max(lags.get(cluster, 0), source.get("lag", 0))
    for cluster, lag in lags.items():
        out.add("natsops_source_lag_max", lag, cluster=cluster)
        for state in ("ok", "silent", "failing"):
            out.add("natsops_sources", counts[cluster, state], cluster=cluster, state=state)


def _list_metrics(out: Exposition, name: str, shown: int, omitted: int, limit: int) -> None:
    out.add("natsops_assets_shown", shown, list=name)
    out.add("natsops_assets_omitted", omitted, list=name)
    out.add("natsops_assets_limit", limit, list=name)


def _at_fault(out: Exposition, states: Mapping[Fault, bool], faults: FaultList, now: float) -> None:
    """Add the streams and consumers at fault, except those that a client recreates under a new name each time."""
    found = [fault for fault, passing in states.items() if not passing and fault.state not in ("ok", "tolerated")]
    rows, omitted = faults.look(found, now)
    for fault, present in rows:
        labels = {key: getattr(fault, key) for key in (*_ASSET, "state")}
        out.add("natsops_asset_at_fault", present, **labels)
    _list_metrics(out, AT_FAULT, len(rows), omitted, faults.limit)


def _selected(out: Exposition, reading: Sweep, limit: int) -> None:
    """Add the selected streams and their durable consumers, sorted by name."""
    chosen = [
        stream
        for stream in reading.cluster.streams
        if any(matches(account, stream.name, reading.selected) for account in (stream.account, stream.account_name))
    ]
    rows: list[tuple[Stream, Any]] = [
        (stream, item) for stream in chosen for item in (None, *(one for one in stream.consumers if one.durable))
    ]
    for stream, item in rows[:limit]:
        labels = {"cluster": stream.group.cluster, "account": stream.account_name, "stream": stream.name}
        # A group without a leader has no other values than its state.
        if item is not None:
            if item.group.leader is not None:
                out.add("natsops_consumer_pending", item.num_pending, **labels, consumer=item.name)
                out.add("natsops_consumer_ack_pending", item.num_ack_pending, **labels, consumer=item.name)
            continue
        out.add("natsops_stream_quorum_margin", _margin(stream.group, stream.group.quorum, reading)[1], **labels)
        if stream.group.leader is not None:
            out.add("natsops_stream_messages", stream.messages, **labels)
            out.add("natsops_stream_size_bytes", stream.size, **labels)
            out.add("natsops_stream_limit_bytes", stream.max_bytes or None, **labels)
            out.add("natsops_stream_lag_max", _lag(stream.group), **labels)
    _list_metrics(out, SELECTED, min(limit, len(rows)), max(0, len(rows) - limit), limit)


# --- Data from other sources ------------------------------------------------------------------------------------------


def journal_metrics(out: Exposition, journal: Journal, now: float) -> None:
    """Add the last operation of each cluster. `now`: seconds since 1970."""
    for cluster, run in journal.runs.items():
        out.add("natsops_roll_in_progress", run.running, cluster=cluster)
        out.add("natsops_roll_failed", run.state == "failed", cluster=cluster)
        out.add("natsops_roll_batch", run.batch, cluster=cluster)
        out.add("natsops_roll_batches", run.batches, cluster=cluster)
        out.add("natsops_roll_started_timestamp_seconds", run.started, cluster=cluster)
        out.add("natsops_roll_event_timestamp_seconds", run.last, cluster=cluster)
        out.add("natsops_roll_left_seconds", run.seconds_left(now), cluster=cluster)


def backup_metrics(out: Exposition, catalogue: Catalogue) -> None:
    """Add the protection of the streams in a catalogue; deliberately excluded streams are counted separately."""
    saved: Counter[str] = Counter()
    proofs: Counter[str] = Counter()
    taken, proven = [], []
    for one in protections(catalogue):
        if one.excluded:
            saved["excluded"] += 1
            continue
        saved["failed" if one.problem else "saved" if one.saved else "never"] += 1
        proofs["failed" if one.drill_problem else "proven" if one.proven else "never"] += 1
        taken += [parse_taken(one.saved).timestamp()] if one.saved else []
        proven += [parse_taken(one.proven).timestamp()] if one.proven else []
    for state in ("saved", "failed", "never", "excluded"):
        out.add("natsops_backup_streams", saved[state], state=state)
    for state in ("proven", "failed", "never"):
        out.add("natsops_backup_proofs", proofs[state], state=state)
    out.add("natsops_backup_oldest_timestamp_seconds", min(taken, default=None))
    out.add("natsops_backup_newest_timestamp_seconds", max(taken, default=None))
    out.add("natsops_backup_oldest_proof_timestamp_seconds", min(proven, default=None))
    out.add("natsops_backup_newest_proof_timestamp_seconds", max(proven, default=None))


def drift_metrics(out: Exposition, drift: Drift) -> None:
    """Add the last comparison of documents with their assets."""
    for one in drift.documents:
        labels = {"cluster": one.cluster, "account": one.account, "document": one.document}
        out.add("natsops_assets_drifting", one.drifting, **labels)
        out.add("natsops_assets_compared", one.assets, **labels)
    out.add("natsops_assets_plan_refused", any(one.problem for one in drift.documents))
    out.add("natsops_assets_compared_timestamp_seconds", drift.checked.timestamp())


def report_metrics(out: Exposition, report: Mapping[str, Any]) -> None:
    """Add the findings and forecasts of an insights report.json (jetstream_insights/report/shape.py), for this fleet
    only. Raises KeyError, TypeError or ValueError for any other content."""
    out.add("natsops_insights_report_timestamp_seconds", parse_time(str(report["generated"])).timestamp())
    stopped = any(row["kind"] == "snapshots_stopped" for row in _rows(report, "causes", out.fleet))
    out.add("natsops_insights_snapshots_stopped", stopped)
    # A check has a row for each snapshot; the last one counts.
    last = {
        str(row["check"]): row for row in sorted(_rows(report, "checks", out.fleet), key=lambda row: str(row["taken"]))
    }
    for check, row in last.items():
        failed, critical = int(row["failed"] or 0), int(row["critical"] or 0)
        counts = {"critical": failed} if row["severity"] == "critical" else {}
        counts = counts or {"critical": critical, str(row["severity"]): failed - critical}
        for severity, count in counts.items():
            out.add("natsops_insights_findings", count, check=check, severity=severity)
    for row in _rows(report, "capacity", out.fleet):
        if row["scope"] in _FORECAST_SCOPES:
            labels = {key: str(row[key]) for key in ("scope", "name", "resource")}
            for quantile, column in _FORECASTS:
                out.add("natsops_insights_full_days", row[column], **labels, quantile=quantile)


def _rows(report: Mapping[str, Any], name: str, fleet: str) -> list[dict[str, Any]]:
    table = report["tables"].get(name)
    if table is None:
        return []
    columns = [name for name, _title, _kind in table["columns"]]
    return [row for row in (dict(zip(columns, cells)) for cells in table["rows"]) if row["fleet"] == fleet]
