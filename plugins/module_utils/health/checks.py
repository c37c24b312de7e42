# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks of `nats server check`: thresholds applied to values. Pure: no I/O.

Rules, perfdata names and units are those of the nats CLI (jsm.go monitor/*.go), except where the CLI overlooks a
problem or is wrong; a comment marks each such place, and docs/checks.md lists them. Groups are evaluated by the rules
of the health gate (`health`). Options have durations in seconds and sizes in bytes (see `prepare`); None disables a
threshold."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Callable

from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.expiry import OPERATOR, Expiry, due
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.catalogue import Catalogue
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.protection import protections
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.selection import matches
from ansible_collections.natsops.jetstream.plugins.module_utils.health.rules import (
    Expectations,
    Limits,
    group_problems,
    health_problems,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import Cluster, Peer, RaftGroup
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.replies import consumer_group, stream_group
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.times import certificate_ends, parse_time
from ansible_collections.natsops.jetstream.plugins.module_utils.problem import ERROR, Problem
from ansible_collections.natsops.jetstream.plugins.module_utils.units import human_seconds, parse_duration, size_bytes
from ansible_collections.natsops.jetstream.plugins.module_utils.versions import reported_version

OK, WARNING, UNKNOWN, CRITICAL = "OK", "WARNING", "UNKNOWN", "CRITICAL"
#: The statuses from good to bad. An unknown state may be bad, so only a state known to be bad is worse.
STATUSES = (OK, WARNING, UNKNOWN, CRITICAL)

Options = Mapping[str, Any]

#: Temporary problems of groups; the gate still waits for them to end.
_TRANSIENT_CODES = ("meta_pending", "stream_moving", "consumer_moving")
_NO_LIMIT = 2**63


def worst(statuses: Collection[str]) -> str:
    """Return the worst of these statuses, or UNKNOWN if there are none."""
    return max(statuses, key=STATUSES.index) if statuses else UNKNOWN


# --- Results ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PerfData:
    """One figure. `unit` is that of Nagios: s, B, % or none."""

    name: str
    value: float
    unit: str = ""
    warning: float | None = None
    critical: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the figure as the module returns it."""
        return {
            "name": self.name,
            "value": _round(self.value),
            "unit": self.unit,
            "warning": None if self.warning is None else _round(self.warning),
            "critical": None if self.critical is None else _round(self.critical),
        }

    def __str__(self) -> str:
        """Return the value in Nagios' form (perfdata.go): seconds with four digits, all others as integers."""
        digits = 4 if self.unit == "s" else 0
        text = f"{self.name}={self.value:.{digits}f}{self.unit}"
        if self.warning is not None or self.critical is not None:
            text += ";" if self.warning is None else f";{self.warning:.{digits}f}"
        return text if self.critical is None else f"{text};{self.critical:.{digits}f}"


@dataclass
class Result:
    """The result of one check. `name` is the checked object."""

    check: str
    name: str
    reasons: list[tuple[str, str]] = field(default_factory=list)
    perfdata: list[PerfData] = field(default_factory=list)

    def add(self, status: str, text: str) -> None:
        """Add a reason for this status."""
        self.reasons.append((status, " ".join(text.split())))

    def ok_if_silent(self, text: str) -> None:
        """Add a reason for OK if there is none yet, so a check without thresholds has a result, too."""
        if not self.reasons:
            self.add(OK, text)

    def measure(
        self, name: str, value: float, unit: str = "", warning: float | None = None, critical: float | None = None
    ) -> None:
        """Add a figure."""
        self.perfdata.append(PerfData(name, value, unit, warning, critical))

    @property
    def status(self) -> str:
        """Return the worst reason's status; UNKNOWN if there is no reason, because the check was inconclusive."""
        return worst([status for status, _text in self.reasons])

    def texts(self, status: str) -> list[str]:
        """Return the reasons for this status."""
        return [text for found, text in self.reasons if found == status]

    @property
    def nagios(self) -> str:
        """Return the line of a Nagios plugin (result.go renderNagios). `|` is replaced, because it would start the
        perfdata."""
        marks = ((CRITICAL, "Crit"), (UNKNOWN, "Unknown"), (WARNING, "Warn"), (OK, "OK"))
        parts = [f"{mark}:{text}" for status, mark in marks for text in self.texts(status)]
        line = " ".join([self.status, self.name, *parts]).replace("|", "¦")
        return f"{line} | {' '.join(str(item) for item in self.perfdata)}" if self.perfdata else line

    def as_dict(self) -> dict[str, Any]:
        """Return the result as the module returns it."""
        return {
            "check": self.check,
            "name": self.name,
            "status": self.status,
            "reasons": {status.lower(): self.texts(status) for status in reversed(STATUSES)},
            "perfdata": [item.as_dict() for item in self.perfdata],
            "nagios": self.nagios,
        }


def result_name(check: str, options: Options) -> str:
    """Return the name of the checked object, as in the nats CLI."""
    fixed = {
        "connection": "Connection",
        "meta": "JetStream Meta Cluster",
        "jetstream": "JetStream",
        "expiry": "JWT Expiry",
    }
    if check in fixed:
        return fixed[check]
    keys = {
        "stream": ("stream",),
        "consumer": ("stream", "consumer"),
        "last_message": ("stream", "subject"),
        "server": ("server_name",),
        "kv": ("bucket",),
        "request": ("subject",),
        "credential": ("credential",),
        "backup": ("directory",),
    }
    return "_".join(str(options[key]) for key in keys[check])


# --- Thresholds -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bound:
    """The condition under which a value has reached a threshold. `upper`: whether high values are bad; `at`: whether a
    value equal to the threshold counts."""

    upper: bool = True
    at: bool = True

    def reached(self, value: float, threshold: float | None) -> bool:
        """Return whether the value is at least as bad as the threshold; False if either is None."""
        if threshold is None:
            return False
        if value == threshold:
            return self.at
        return value > threshold if self.upper else value < threshold

    def judge(self, value: float, warning: float | None, critical: float | None) -> str:
        """Return OK, WARNING or CRITICAL."""
        if self.reached(value, critical):
            return CRITICAL
        return WARNING if self.reached(value, warning) else OK

    def refuses(self, warning: float | None, critical: float | None) -> str | None:
        """Return the problem with these thresholds, or None if they are consistent."""
        for threshold in (warning, critical):
            if threshold is not None and (threshold < 0 or (threshold == 0 and self.upper and self.at)):
                return f"{threshold:g} is reached by every value: raise it, or omit it to disable the check"
        if warning is None or critical is None:
            return None
        if (warning > critical) if self.upper else (warning < critical):
            return f"critical ({critical:g}) is reached before warning ({warning:g})"
        return None


AT_LEAST, ABOVE, AT_MOST = Bound(), Bound(at=False), Bound(upper=False)
#: High values are bad unless the critical threshold is below the warning threshold.
EITHER = None


def make_bound(kind: Bound | None, warning: float | None, critical: float | None) -> Bound:
    """Return the direction of these thresholds; for EITHER, their order determines it."""
    if kind is not EITHER:
        return kind
    return AT_MOST if warning is not None and critical is not None and critical < warning else AT_LEAST


#: The pairs of thresholds of each check: the options are STEM_warn and STEM_critical.
PAIRS: dict[str, dict[str, Bound | None]] = {
    "connection": {"connect": AT_LEAST, "rtt": AT_LEAST, "req": AT_LEAST},
    "jetstream": {"mem": ABOVE, "store": ABOVE, "streams": ABOVE, "consumers": ABOVE},
    "stream": {"msgs": AT_MOST, "subjects": EITHER},
    "last_message": {"age": ABOVE},
    "server": {
        "cpu": AT_LEAST,
        "mem": AT_LEAST,
        "conn": EITHER,
        "subs": EITHER,
        "uptime": AT_MOST,
        "tls_cert": AT_MOST,
    },
    "kv": {"values": EITHER},
    "request": {"response": ABOVE},
    "credential": {"validity": AT_MOST},
    "backup": {"age": ABOVE, "proof": ABOVE},
}

#: The thresholds without a warning level.
SINGLES: dict[str, dict[str, Bound]] = {
    "meta": {"lag_critical": ABOVE, "seen_critical": ABOVE},
    "jetstream": {"replica_lag_critical": ABOVE, "replica_seen_critical": ABOVE},
    "stream": {
        "lag_critical": AT_LEAST,
        "seen_critical": AT_LEAST,
        "peer_lag_critical": ABOVE,
        "peer_seen_critical": ABOVE,
    },
    "consumer": {
        "outstanding_ack_critical": AT_LEAST,
        "waiting_critical": AT_LEAST,
        "unprocessed_critical": AT_LEAST,
        "last_delivery_critical": AT_LEAST,
        "last_ack_critical": AT_LEAST,
        "redelivery_critical": AT_LEAST,
        "peer_lag_critical": ABOVE,
        "peer_seen_critical": ABOVE,
    },
}

_DURATIONS = {
    "connection": ("connect_warn", "connect_critical", "rtt_warn", "rtt_critical", "req_warn", "req_critical"),
    "meta": ("seen_critical",),
    "jetstream": ("replica_seen_critical",),
    "stream": ("seen_critical", "peer_seen_critical"),
    "consumer": ("last_delivery_critical", "last_ack_critical", "peer_seen_critical"),
    "last_message": ("age_warn", "age_critical"),
    "server": ("uptime_warn", "uptime_critical", "tls_cert_warn", "tls_cert_critical"),
    "request": ("response_warn", "response_critical"),
    "credential": ("validity_warn", "validity_critical"),
    "backup": ("age_warn", "age_critical", "proof_warn", "proof_critical"),
}
_BYTES = {"server": ("mem_warn", "mem_critical")}
_PATTERNS = {"last_message": ("content",), "request": ("match_payload",)}
_AT_LEAST_ONE = {"meta": ("expect",), "stream": ("peer_expect",)}


def prepare(check: str, given: Options) -> dict[str, Any]:
    """Return a check's options with seconds, bytes and compiled patterns. Raises a ValueError that names the option."""
    options = dict(given)
    for option, value in given.items():
        try:
            if value is not None and option in _DURATIONS.get(check, ()):
                options[option] = parse_duration(value)
            elif value is not None and option in _BYTES.get(check, ()):
                options[option] = size_bytes(value)
            elif value is not None and option in _PATTERNS.get(check, ()):
                options[option] = re.compile(value.encode())
        except (ValueError, re.error) as error:
            raise ValueError(f"{option}: {error}") from error
    for option in _AT_LEAST_ONE.get(check, ()):
        if options.get(option) is not None and options[option] < 1:
            raise ValueError(f"{option}: must be at least 1, not {options[option]}")
    for named, problem in refusals(check, options).items():
        raise ValueError(f"{', '.join(named)}: {problem}")
    return options


def refusals(check: str, options: Options) -> dict[tuple[str, ...], str]:
    """Return the problems with a check's options: thresholds that always fire or are in the wrong order."""
    found: dict[tuple[str, ...], str | None] = {}
    for stem, kind in PAIRS.get(check, {}).items():
        named = (f"{stem}_warn", f"{stem}_critical")
        warning, critical = (options.get(option) for option in named)
        found[named] = make_bound(kind, warning, critical).refuses(warning, critical)
    for option, bound in SINGLES.get(check, {}).items():
        found[option,] = bound.refuses(None, options.get(option))
    if check == "stream":
        few, many = options.get("min_sources"), options.get("max_sources")
        found["min_sources", "max_sources"] = (
            f"the minimum {few} exceeds the maximum {many}"
            if few is not None and many is not None and few > many
            else None
        )
    return {named: problem for named, problem in found.items() if problem}


def _judge(result: Result, options: Options, stem: str, value: float, text: str) -> None:
    """Compare a value with its thresholds and add the result, even if it is OK; do nothing if neither threshold is set."""
    warning, critical = options.get(f"{stem}_warn"), options.get(f"{stem}_critical")
    if warning is not None or critical is not None:
        bound = make_bound(PAIRS[result.check][stem], warning, critical)
        result.add(bound.judge(value, warning, critical), text)


def _measure_pair(result: Result, options: Options, stem: str, name: str, value: float, unit: str = "") -> None:
    result.measure(name, value, unit, options.get(f"{stem}_warn"), options.get(f"{stem}_critical"))


# --- Thresholds in an asset's metadata --------------------------------------------------------------------------------

METADATA_PREFIX = "io.nats.monitor."


def _count(text: str) -> int | None:
    if not re.fullmatch(r"\d+", text):
        raise ValueError(f"{text!r} is not a number of 0 or more")
    return int(text) or None


def _integer(text: str) -> int | None:
    if not re.fullmatch(r"[+-]?\d+", text):
        raise ValueError(f"{text!r} is not an integer")
    return int(text) if int(text) > 0 else None


def _duration(text: str) -> float | None:
    return parse_duration(text, bare=False) or None


def _boolean(text: str) -> bool:
    """Return a boolean as Go's strconv.ParseBool does."""
    if text in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if text in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise ValueError(f"{text!r} is neither true nor false")


#: How each key is parsed (stream.go, consumer.go). 0, and a negative value where one is allowed, disables the
#: threshold.
METADATA: dict[str, dict[str, Callable[[str], Any]]] = {
    "stream": {
        "enabled": _boolean,
        "lag-critical": _count,
        "seen-critical": _duration,
        "min-sources": _integer,
        "max-sources": _integer,
        "peer-expect": _integer,
        "peer-lag-critical": _count,
        "peer-seen-critical": _duration,
        "msgs-warn": _count,
        "msgs-critical": _count,
        "subjects-warn": _integer,
        "subjects-critical": _integer,
    },
    "consumer": {
        "enabled": _boolean,
        "outstanding-ack-critical": _integer,
        "waiting-critical": _integer,
        "unprocessed-critical": _integer,
        "last-delivery-critical": _duration,
        "last-ack-critical": _duration,
        "redelivery-critical": _integer,
        "pinned": _boolean,
    },
}


def with_metadata(result: Result, options: Options, metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return the options with the values from the asset's metadata.

    An unreadable value is UNKNOWN, and the option keeps its own value; inconsistent thresholds are UNKNOWN and
    disabled; a key that belongs to no check may be a typing error and is a WARNING. `enabled` is ignored, because it is
    for tools that search for assets to check: an asset named in the options is always checked."""
    merged = dict(options)
    if not options["metadata"]:
        return merged
    readers = METADATA[result.check]
    for key, text in sorted(metadata.items()):
        name = key[len(METADATA_PREFIX) :]
        if not key.startswith(METADATA_PREFIX):
            continue
        if name not in readers:
            result.add(WARNING, f"metadata {key} is not a threshold of a {result.check} check")
            continue
        try:
            value = readers[name](text)
        except ValueError as error:
            result.add(UNKNOWN, f"metadata {key}: {error}")
            continue
        if name != "enabled":
            merged[name.replace("-", "_")] = value
    for named, problem in refusals(result.check, merged).items():
        result.add(UNKNOWN, f"{' and '.join(named)} (with the asset's metadata): {problem}")
        merged.update(dict.fromkeys(named))
    return merged


# --- Groups -----------------------------------------------------------------------------------------------------------


def _limits(lag: int | None, seen: float | None) -> Limits:
    return Limits(_NO_LIMIT if lag is None else lag, float(_NO_LIMIT) if seen is None else seen)


def _add_problems(result: Result, problems: Sequence[Problem]) -> None:
    for problem in problems:
        transient = problem.code in _TRANSIENT_CODES or problem.severity != ERROR
        result.add(WARNING if transient else CRITICAL, problem.message)


def _measure_peers(result: Result, peers: Sequence[Peer], limits: Limits) -> None:
    result.measure("peer_offline", sum(peer.offline for peer in peers))
    result.measure("peer_not_current", sum(not peer.current for peer in peers))
    result.measure("peer_inactive", sum(peer.active > limits.max_active for peer in peers))
    result.measure("peer_lagged", sum(peer.lag > limits.max_lag for peer in peers))


def _judge_group(result: Result, group: RaftGroup, clustered: bool, options: Options) -> None:
    """Check the replicas of one stream or consumer.

    The nats CLI interprets a missing peer-expect as 0 and so reports every replicated stream as faulty. The nats CLI
    never checks the replicas of consumers, nor whether a stream with one replica has a leader. `offline` only becomes
    true some 150 s after a crash, so the options `peer_*_critical` have defaults."""
    if not clustered:
        if group.size > 1:
            result.add(CRITICAL, f"{group.subject} is not clustered, but {group.size} replicas are expected")
        return
    limits = _limits(options.get("peer_lag_critical"), options.get("peer_seen_critical"))
    if not group.leaders:
        result.add(CRITICAL, f"No leader for {group.subject}: it cannot be written to or queried")
        return
    result.measure("peers", len(group.peers) + 1, "", group.size, group.size)
    _measure_peers(result, group.peers, limits)
    problems = group_problems(group, None, limits)
    _add_problems(result, problems)
    if not problems:
        result.add(OK, f"{len(group.peers) + 1} peers led by {group.leader}")


# --- The checks -------------------------------------------------------------------------------------------------------


def check_connection(options: Options, connect: float, rtt: float, round_trip: float) -> Result:
    """Check how many seconds it took to connect, to ping the server, and to send a message to oneself (connection.go)."""
    result = Result("connection", result_name("connection", options))
    for stem, name, value, text in (
        ("connect", "connect_time", connect, "connected in"),
        ("rtt", "rtt", rtt, "rtt time"),
        ("req", "request_time", round_trip, "round trip took"),
    ):
        _measure_pair(result, options, stem, name, value, "s")
        _judge(result, options, stem, value, f"{text} {human_seconds(value)}")
    result.ok_if_silent("connected")
    return result


def check_meta(options: Options, cluster: Cluster) -> Result:
    """Check the meta group (meta.go) as every server reports it; the nats CLI queries only the first leader that
    responds."""
    result = Result("meta", result_name("meta", options))
    limits = _limits(options["lag_critical"], options["seen_critical"])
    if cluster.meta is None:
        result.add(CRITICAL, "no server that answered is in a JetStream meta group")
        return result
    group = cluster.meta.group
    problems = health_problems(cluster, Expectations(limits=limits))
    _add_problems(result, [problem for problem in problems if problem.code.startswith("meta_")])
    if group.leader is not None:
        expected, peers = options["expect"], len(group.peers) + 1
        result.measure("peers", peers, "", expected, expected)
        _measure_peers(result, group.peers, limits)
        if peers != expected:
            result.add(CRITICAL, f"{peers} peers of expected {expected}")
        elif cluster.meta.miscounted or cluster.meta.size != expected:
            result.add(CRITICAL, f"the meta group has {group.size} members, {expected} are expected")
        result.ok_if_silent(f"{peers} peers led by {group.leader}")
    return result


def check_jetstream(
    options: Options, account: Mapping[str, Any], streams: Sequence[Mapping[str, Any]], unknown: Mapping[str, str]
) -> Result:
    """Check an account's usage against its limits, and the replicas of its streams (js_account.go).

    `account`: its $JS.API.INFO; `streams`: every STREAM.INFO; `unknown`: existing streams that no leader reported, with
    the reason. The nats CLI does not see these streams, nor the limits of tiers (R1, R3), nor a critical threshold
    without a warning one.
    """
    result = Result("jetstream", result_name("jetstream", options))
    tiers = account.get("tiers") or {}
    _judge_usage(result, options, account, "", judged=not tiers)
    for tier in sorted(tiers):
        _judge_usage(result, options, tiers[tier], tier)
    if options["replicas"]:
        _judge_streams(result, options, streams, unknown)
    result.ok_if_silent("usage is within the thresholds")
    return result


#: Option stem, perfdata name, unit, key of the limit, key of the usage.
_RESOURCES = (
    ("mem", "memory", "B", "max_memory", "memory"),
    ("store", "storage", "B", "max_storage", "storage"),
    ("streams", "streams", "", "max_streams", "streams"),
    ("consumers", "consumers", "", "max_consumers", "consumers"),
)


def _judge_usage(result: Result, options: Options, usage: Mapping[str, Any], tier: str, judged: bool = True) -> None:
    """Check the usage of an account or of one of its tiers; resources without a limit are at 0 %."""
    limits = usage.get("limits") or {}
    suffix = f"_{tier}" if tier else ""
    label = f"{tier} " if tier else ""
    for stem, name, unit, limit_key, usage_key in _RESOURCES:
        used, limit = usage.get(usage_key, 0), limits.get(limit_key, 0)
        result.measure(f"{name}{suffix}", used, unit)
        if not judged:
            continue
        percent = 100 * used / limit if limit > 0 else 0.0
        _measure_pair(result, options, stem, f"{name}_pct{suffix}", percent, "%")
        if percent > 100:
            result.add(CRITICAL, f"{label}{name}: {used} exceeds the limit of {limit}")
        else:
            _judge(result, options, stem, percent, f"{percent:.1f}% {label}{name}{'' if limit > 0 else ' (no limit)'}")


def _judge_streams(
    result: Result, options: Options, streams: Sequence[Mapping[str, Any]], unknown: Mapping[str, str]
) -> None:
    limits = _limits(options["replica_lag_critical"], options["replica_seen_critical"])
    bad: dict[str, str] = {}
    counts = dict.fromkeys(("no_leader", "missing_replicas", "lagged", "not_seen", "fail"), 0)
    for name, reason in unknown.items():
        counts["no_leader"] += 1
        bad[name] = reason
    # An offline stream is in both lists.
    reported = [info for info in streams if info["config"]["name"] not in unknown]
    for info in reported:
        if not info.get("cluster"):
            continue
        group = stream_group("", info)
        problems = [problem for problem in group_problems(group, None, limits) if problem.code not in _TRANSIENT_CODES]
        if problems:
            counts[_kind_of_trouble(group, limits)] += 1
            bad[info["config"]["name"]] = _trouble(group, problems)
    result.measure("replicas_ok", len(reported) + len(unknown) - len(bad))
    for name, count in counts.items():
        result.measure(f"replicas_{name}", count)
    if bad:
        reasons = ", ".join(f"{name} ({reason})" for name, reason in sorted(bad.items()))
        result.add(CRITICAL, f"{len(bad)} unhealthy streams: {reasons}")
    else:
        result.add(OK, f"{len(streams)} streams have all their replicas")


def _kind_of_trouble(group: RaftGroup, limits: Limits) -> str:
    """Return the nats CLI's counter for a stream; like the CLI, use the first condition that matches."""
    if not group.leaders:
        return "no_leader"
    if len(group.peers) != group.size - 1:
        return "missing_replicas"
    if any(peer.offline for peer in group.peers):
        return "fail"
    if any(peer.active > limits.max_active for peer in group.peers):
        return "not_seen"
    return "lagged" if any(peer.lag > limits.max_lag for peer in group.peers) else "fail"


def _trouble(group: RaftGroup, problems: Sequence[Problem]) -> str:
    if not group.leaders:
        return "no leader"
    servers = sorted({server for problem in problems for server in problem.servers})
    if servers:
        return f"{', '.join(servers)} not in step"
    return f"{len(group.peers) + 1} of {group.size} replicas"


def check_stream(options: Options, info: Mapping[str, Any]) -> Result:
    """Check one stream by its STREAM.INFO: replicas, messages, subjects, sources and mirror (stream.go)."""
    result = Result("stream", result_name("stream", options))
    config, state = info.get("config") or {}, info.get("state") or {}
    options = with_metadata(result, options, config.get("metadata") or {})
    group = stream_group("", info)
    if options["peer_expect"] is not None:
        group = replace(group, size=options["peer_expect"])
    _judge_group(result, replace(group, subject=f"stream {options['stream']}"), bool(info.get("cluster")), options)
    for stem, name, value in (
        ("msgs", "messages", state.get("messages", 0)),
        ("subjects", "subjects", state.get("num_subjects", 0)),
    ):
        _measure_pair(result, options, stem, name, value)
        _judge(result, options, stem, value, f"{value} {name}")
    _judge_sources(result, options, info)
    _judge_mirror(result, options, info)
    result.ok_if_silent("the stream answers")
    return result


def _judge_sources(result: Result, options: Options, info: Mapping[str, Any]) -> None:
    sources = info.get("sources") or []
    count = len(sources)
    few, many = options["min_sources"], options["max_sources"]
    result.measure("sources", count, "", few, many)
    if few is not None or many is not None:
        bad = (few is not None and count < few) or (many is not None and count > many)
        result.add(CRITICAL if bad else OK, f"{count} sources")
    if not sources:
        return
    lagged = [item["name"] for item in sources if AT_LEAST.reached(item.get("lag", 0), options["lag_critical"])]
    inactive = [item["name"] for item in sources if _unseen(item, options["seen_critical"])]
    result.measure("sources_lagged", len(lagged))
    result.measure("sources_inactive", len(inactive))
    for names, what, limit in ((lagged, "lagged", "lag_critical"), (inactive, "inactive", "seen_critical")):
        if names:
            result.add(CRITICAL, f"{len(names)} of {count} sources are {what}: {', '.join(names)}")
        elif options[limit] is not None:
            result.add(OK, f"{count} sources, none {what}")
    for item in sources:
        _judge_origin_error(result, item, "source")


def _judge_mirror(result: Result, options: Options, info: Mapping[str, Any]) -> None:
    """Check a mirror. If the stream copies no other stream, the thresholds are set on the wrong stream, so the result
    is critical."""
    state = info.get("mirror")
    wanted = options["lag_critical"] is not None or options["seen_critical"] is not None
    if not (info.get("config") or {}).get("mirror"):
        if wanted and not info.get("sources"):
            result.add(CRITICAL, "the stream has neither a mirror nor sources, although thresholds for these are set")
        return
    if not state:
        result.add(CRITICAL if wanted else UNKNOWN, "the stream is a mirror, but the state of its origin is unknown")
        return
    lag, active = state.get("lag", 0), state.get("active", 0) / 1e9
    result.measure("lag", lag, "", None, options["lag_critical"])
    if active >= 0:
        result.measure("active", active, "s", None, options["seen_critical"])
    _judge_origin_error(result, state, "mirror")
    lagged = AT_LEAST.reached(lag, options["lag_critical"])
    if lagged:
        result.add(CRITICAL, f"Mirror Lag {lag}")
    unseen = _unseen(state, options["seen_critical"])
    if unseen:
        result.add(CRITICAL, "Mirror never seen" if active < 0 else f"Mirror Seen {human_seconds(active)} ago")
    if wanted and not lagged and not unseen:
        result.add(OK, f"Mirror {state.get('name', '')}")


def _unseen(origin: Mapping[str, Any], limit: float | None) -> bool:
    """Return whether a source or mirror was not seen within the limit. A source that was never seen reports -1
    (stream.go sourceInfo), which the nats CLI treats as very recent."""
    active = origin.get("active", 0)
    return limit is not None and (active < 0 or active / 1e9 >= limit)


def _judge_origin_error(result: Result, origin: Mapping[str, Any], kind: str) -> None:
    """Add the server's reason why a source or mirror does not work; the nats CLI ignores it."""
    error = origin.get("error")
    if error:
        result.add(CRITICAL, f"{kind} {origin.get('name', '')}: {error.get('description', 'unknown error')}")


def check_consumer(
    options: Options, info: Mapping[str, Any], stream_config: Mapping[str, Any], now: datetime
) -> Result:
    """Check one consumer by its CONSUMER.INFO (consumer.go). `now`: used if a server does not report its time (before
    2.10)."""
    result = Result("consumer", result_name("consumer", options))
    config = info.get("config") or {}
    options = with_metadata(result, options, config.get("metadata") or {})
    group = replace(consumer_group("", info, stream_config), subject=f"consumer {options['consumer']}")
    _judge_group(result, group, bool(info.get("cluster")), options)
    for option, name, key, text in (
        ("outstanding_ack_critical", "ack_pending", "num_ack_pending", "Ack Pending"),
        ("waiting_critical", "pull_waiting", "num_waiting", "Waiting Pulls"),
        ("unprocessed_critical", "pending", "num_pending", "Unprocessed Messages"),
        ("redelivery_critical", "redelivered", "num_redelivered", "Redelivered"),
    ):
        value = info.get(key, 0)
        result.measure(name, value, "", None, options[option])
        _judge_single(result, options, option, value, f"{text}: {value}")
    moment = info_time(info, now)
    _judge_last(
        result, options, "last_delivery", info.get("delivered") or {}, moment, ("Last delivery", "No deliveries")
    )
    _judge_last(result, options, "last_ack", info.get("ack_floor") or {}, moment, ("Last ack", "No acks"))
    _judge_pinned(result, options, info)
    result.ok_if_silent("the consumer answers")
    return result


def _judge_single(result: Result, options: Options, option: str, value: float, text: str) -> None:
    if options[option] is not None:
        result.add(SINGLES[result.check][option].judge(value, None, options[option]), text)


def _judge_last(
    result: Result, options: Options, name: str, sequence: Mapping[str, Any], now: datetime, texts: tuple[str, str]
) -> None:
    """Check the time since the last event.

    Each server keeps this time in memory only (consumer.go ldt, lat): if a consumer has been active before but its
    leader was restarted since, the result is UNKNOWN; the nats CLI reports CRITICAL.
    """
    option = f"{name}_critical"
    said, never = texts
    if sequence.get("last_active"):
        seconds = max(0.0, (now - parse_time(sequence["last_active"])).total_seconds())
        result.measure(name, seconds, "s", None, options[option])
        _judge_single(result, options, option, seconds, f"{said} {human_seconds(seconds)} ago")
    elif options[option] is not None and sequence.get("consumer_seq", 0) > 0:
        result.add(UNKNOWN, f"{said}: its leader started later and has no record of the time")
    elif options[option] is not None:
        result.add(CRITICAL, never)


def _judge_pinned(result: Result, options: Options, info: Mapping[str, Any]) -> None:
    config = info.get("config") or {}
    groups = config.get("priority_groups") or []
    pinned = sum(bool(group.get("pinned_client_id")) for group in info.get("priority_groups") or ())
    by_pin = config.get("priority_policy") == "pinned_client"
    if by_pin:
        result.measure("pinned_groups", pinned)
        result.measure("groups", len(groups))
    if not options["pinned"]:
        return
    if not by_pin or not groups:
        result.add(CRITICAL, "Not pinned client priority mode")
    else:
        result.add(OK if pinned == len(groups) else CRITICAL, f"{pinned} / {len(groups)} pinned clients")


def check_message(options: Options, message: Mapping[str, Any] | None, now: datetime) -> Result:
    """Check the newest message of a subject (stream_msg.go). `now`: the time of the stream's leader, so the client's
    clock does not matter."""
    result = Result("last_message", result_name("last_message", options))
    if message is None:
        result.add(CRITICAL, f"no message found on {options['subject']}")
        return result
    body = base64.b64decode(message.get("data") or "")
    result.measure("size", len(body), "B")
    age: float | None = None
    if not options["body_timestamp"]:
        age = max(0.0, (now - parse_time(message["time"])).total_seconds())
    elif re.fullmatch(rb"[+-]?\d{1,18}", body.strip()):
        age = now.timestamp() - int(body)
    else:
        result.add(CRITICAL, "invalid timestamp body: it is not a number of seconds since 1970")
    if age is not None:
        _measure_pair(result, options, "age", "age", age, "s")
        _judge(result, options, "age", age, f"{human_seconds(age)} old")
    if options["content"] is not None and not options["content"].search(body):
        result.add(CRITICAL, f"does not match regex: {options['content'].pattern.decode()}")
    result.ok_if_silent(f"Valid message on {options['stream']} > {message.get('subject', options['subject'])}")
    return result


def check_server(options: Options, varz: Mapping[str, Any]) -> Result:
    """Check one server by its VARZ (server.go). CPU is in percent of one core, as the server reports it."""
    result = Result("server", result_name("server", options))
    jetstream = bool((varz.get("jetstream") or {}).get("config"))
    for option, holds, what in (
        ("js_required", jetstream, ("JetStream enabled", "JetStream not enabled")),
        ("tls_required", bool(varz.get("tls_required")), ("TLS required", "TLS not required")),
        ("auth_required", bool(varz.get("auth_required")), ("Authentication required", "Authentication not required")),
    ):
        if options[option]:
            result.add(OK if holds else CRITICAL, what[0] if holds else what[1])
    now = parse_time(varz["now"])
    uptime = (now - parse_time(varz["start"])).total_seconds()
    for stem, name, value, unit, text in (
        ("uptime", "uptime", uptime, "s", f"Up {human_seconds(uptime)}"),
        ("cpu", "cpu", varz.get("cpu", 0.0), "%", f"CPU {varz.get('cpu', 0.0):.2f}"),
        ("mem", "mem", varz.get("mem", 0), "B", f"Memory {varz.get('mem', 0)}"),
        ("conn", "connections", varz.get("connections", 0), "", f"Connections {varz.get('connections', 0)}"),
        ("subs", "subscriptions", varz.get("subscriptions", 0), "", f"Subscriptions {varz.get('subscriptions', 0)}"),
    ):
        _measure_pair(result, options, stem, name, value, unit)
        _judge(result, options, stem, value, text)
    _judge_certificates(result, options, varz, now)
    result.ok_if_silent(f"{varz.get('server_name', '')} is up for {human_seconds(uptime)}")
    return result


def _judge_certificates(result: Result, options: Options, varz: Mapping[str, Any], now: datetime) -> None:
    """Check the validity of the server's certificates by the server's clock; servers report the expiry from 2.12.4 on."""
    if options["tls_cert_warn"] is None and options["tls_cert_critical"] is None:
        return
    ends = certificate_ends(varz)
    if not ends:
        reported = reported_version(varz.get("version", "")) >= (2, 12, 4)
        result.add(
            CRITICAL if reported else UNKNOWN,
            "thresholds for TLS certificates are set, but the server has no certificate"
            if reported
            else f"nats-server {varz.get('version')} does not report when its certificates expire (2.12.4 and later do)",
        )
    for part, end in ends.items():
        left = (parse_time(end) - now).total_seconds()
        if left <= 0:
            result.add(CRITICAL, f"{part} TLS certificate expired ({end})")
        else:
            _judge(
                result, options, "tls_cert", left, f"{part} TLS certificate expires in {human_seconds(left)} ({end})"
            )


def check_kv(options: Options, info: Mapping[str, Any], key_message: Mapping[str, Any] | None) -> Result:
    """Check a key-value bucket by the STREAM.INFO of its stream and the newest message of the key (kv.go).

    The number of `values` is that of the stream's messages, including old revisions and deletion markers.
    """
    result = Result("kv", result_name("kv", options))
    state = info.get("state") or {}
    result.add(OK, f"bucket {options['bucket']}")
    values = state.get("messages", 0)
    _measure_pair(result, options, "values", "values", values)
    result.measure("bytes", state.get("bytes", 0), "B")
    result.measure("replicas", (info.get("config") or {}).get("num_replicas", 1))
    _judge(result, options, "values", values, f"{values} values")
    if options["key"] is not None:
        key = options["key"]
        marker = None if key_message is None else _deletion(key_message)
        if key_message is None:
            result.add(CRITICAL, f"key {key} not found")
        elif marker:
            result.add(CRITICAL, f"key {key} is deleted ({marker})")
        else:
            result.add(OK, f"key {key} found")
    return result


def _deletion(message: Mapping[str, Any]) -> str | None:
    """Return the marker with which a message deletes its key (ADR-8, ADR-43), or None if the message is a value."""
    head = base64.b64decode(message.get("hdrs") or "").decode(errors="replace")
    for line in head.splitlines():
        name, _colon, value = line.partition(":")
        if name in ("KV-Operation", "Nats-Marker-Reason") and value.strip() != "PUT":
            return f"{name}: {value.strip()}"
    return None


def kv_subject(bucket: str, key: str, config: Mapping[str, Any]) -> str:
    """Return the subject that contains a key; the keys of a mirror keep the name of their original bucket."""
    origin = (config.get("mirror") or {}).get("name", "")
    return f"$KV.{origin[3:] if origin.startswith('KV_') else bucket}.{key}"


def check_request(options: Options, body: bytes, headers: Mapping[str, str], seconds: float) -> Result:
    """Check a service's reply (request.go). The nats CLI sends the headers that it should compare with those of the
    reply, and compares none of them."""
    result = Result("request", result_name("request", options))
    _measure_pair(result, options, "response", "time", seconds, "s")
    _judge(result, options, "response", seconds, f"response took {human_seconds(seconds)}")
    if options["match_payload"] is not None and not options["match_payload"].search(body):
        result.add(CRITICAL, f"response does not match regex: {options['match_payload'].pattern.decode()}")
    for name, wanted in (options["match_headers"] or {}).items():
        if headers.get(name) != wanted:
            result.add(CRITICAL, f"invalid header {name!r} = {headers.get(name)!r}, expected {wanted!r}")
    result.ok_if_silent("Valid response")
    return result


_DECORATED = re.compile(r"-{3,}[^\n]*JWT[^\n]*-{3,}\r?\n([\w.=-]+)\r?\n-{3,}")


def credential_claims(text: str) -> dict[str, Any]:
    """Return the claims of a .creds file's JWT without verifying its signature. Raises ValueError, whose text quotes no
    part of the file."""
    found = _DECORATED.search(text)
    token = found[1] if found else text.strip()
    parts = token.split(".")
    if len(parts) != 3:
        raise ValueError("it does not contain a JWT")
    try:
        payload = parts[1] + "=" * (-len(parts[1]) % 4)
        claims = json.loads(base64.b64decode(payload, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError):
        raise ValueError("its JWT cannot be decoded") from None
    if not isinstance(claims, dict) or not all(isinstance(claims.get(key, 0), (int, float)) for key in ("exp", "nbf")):
        raise ValueError("its JWT has no claims")
    return claims


def check_credential(options: Options, claims: Mapping[str, Any], now: datetime) -> Result:
    """Check the remaining validity of a credential (credentials.go).

    The nats CLI compares seconds with nanoseconds, so every threshold fires; without a threshold it accepts an
    expired credential."""
    result = Result("credential", result_name("credential", options))
    moment, expires = now.timestamp(), claims.get("exp", 0)
    if claims.get("nbf", 0) > moment:
        result.add(CRITICAL, f"is not valid yet; it becomes valid in {human_seconds(claims['nbf'] - moment)}")
    if not expires:
        result.add(CRITICAL if options["require_expiry"] else OK, "never expires")
        return result
    left = expires - moment
    _measure_pair(result, options, "validity", "expiry", left, "s")
    if left <= 0:
        result.add(CRITICAL, f"expired {human_seconds(-left)} ago")
    else:
        _judge(result, options, "validity", left, f"expires in {human_seconds(left)}")
    result.ok_if_silent(f"expires in {human_seconds(left)}")
    return result


def check_expiry(options: Options, rows: Collection[Expiry], unknown: Collection[str], operator_mode: bool) -> Result:
    """Check the JWTs in use by the rule of accounts/expiry.py. The nats CLI has no such check."""
    result = Result("expiry", result_name("expiry", options))
    if not operator_mode:
        result.add(OK, "not in operator mode: there are no JWTs")
        return result
    found = [
        one
        for one in rows
        if one.kind == OPERATOR or any(map(partial(fnmatchcase, one.account_name), options["accounts"]))
    ]
    result.measure("expiring", len(due(found)))
    for one in found:
        if one.severity:
            result.add(CRITICAL if one.severity == ERROR else WARNING, one.text)
    for line in unknown:
        result.add(UNKNOWN, line)
    result.ok_if_silent(f"the first JWT expires: {found[0].text}" if found else "no JWT expires")
    return result


def check_backup(options: Options, catalogue: Catalogue, now: datetime) -> Result:
    """Check the age of the backup and of the last successful drill for each stream in a backup directory.

    The worst stream counts. `age` counts from the last run that saved the stream or found it unchanged, `proof` from
    the last successful drill.
    """
    result = Result("backup", result_name("backup", options))
    found = [
        one
        for one in protections(catalogue, now=now)
        if any(matches(account, one.stream, options["streams"]) for account in (one.account, one.account_name))
    ]
    result.measure("streams", len(found))
    if not found:
        result.add(UNKNOWN, f"the catalogue has no stream named {', '.join(options['streams'])}")
        return result
    for one in found:
        if one.problem:
            result.add(CRITICAL, f"{one.label} was not saved: {one.problem}")
        if one.drill_problem:
            result.add(CRITICAL, f"{one.label} could not be restored in a drill: {one.drill_problem}")
        if one.future_backup:
            result.add(WARNING, f"{one.label} has a backup that is dated in the future: {one.future_backup}")
    _judge_oldest(result, options, "age", now, {one.label: one.saved for one in found}, "saved")
    _judge_oldest(result, options, "proof", now, {one.label: one.proven for one in found}, "proven")
    result.ok_if_silent(f"{len(found)} streams")
    return result


def _judge_oldest(
    result: Result, options: Options, stem: str, now: datetime, times: Mapping[str, str | None], word: str
) -> None:
    """Compare the age of the oldest time with the thresholds. A missing time is treated as exceeding the highest
    threshold."""
    never = [name for name, time in times.items() if not time]
    wanted = options.get(f"{stem}_critical") is not None or options.get(f"{stem}_warn") is not None
    if never and wanted:
        status = WARNING if options.get(f"{stem}_critical") is None else CRITICAL
        more = f" and {len(never) - 1} more" if len(never) > 1 else ""
        result.add(status, f"never {word}: {never[0]}{more}")
    ages = {name: (now - parse_time(time)).total_seconds() for name, time in times.items() if time}
    if ages:
        name, age = max(ages.items(), key=lambda pair: pair[1])
        _measure_pair(result, options, stem, stem, age, "s")
        _judge(result, options, stem, age, f"{name} was last {word} {human_seconds(age)} ago")


# --- Helpers ----------------------------------------------------------------------------------------------------------


def info_time(info: Mapping[str, Any], otherwise: datetime) -> datetime:
    """Return the time at which a leader reported an info (2.10+), or the value `otherwise` if it did not report one."""
    return parse_time(info["ts"]) if info.get("ts") else otherwise


def _round(value: float) -> float | int:
    return value if isinstance(value, int) else round(value, 6)
