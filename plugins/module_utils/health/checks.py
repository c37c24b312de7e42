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
from datetime import datetime
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from ..accounts.expiry import OPERATOR, Expiry, due
from ..backup.catalogue import Catalogue
from ..backup.protection import protections
from ..backup.selection import matches
from ..nats.model import Cluster, RaftGroup
from ..nats.replies import stream_group
from ..problem import ERROR, Problem
from ..times import certificate_days, certificate_ends, parse_time
from ..units import human_seconds
from ..versions import reported_version
from .asset_checks import TRANSIENT_CODES, add_problems, given_limits, measure_peers
from .check_result import CRITICAL, OK, UNKNOWN, WARNING, Options, Result, judge, measure_pair, result_name
from .rules import Expectations, Limits, group_problems, health_problems


def check_connection(options: Options, connect: float, rtt: float, round_trip: float) -> Result:
    """Check how many seconds it took to connect, to ping the server, and to send a message to oneself (connection.go)."""
    result = Result("connection", result_name("connection", options))
    for stem, name, value, text in (
        ("connect", "connect_time", connect, "connected in"),
        ("rtt", "rtt", rtt, "rtt time"),
        ("req", "request_time", round_trip, "round trip took"),
    ):
        measure_pair(result, options, stem, name, value, "s")
        judge(result, options, stem, value, f"{text} {human_seconds(value)}")
    result.ok_if_silent("connected")
    return result


def check_meta(options: Options, cluster: Cluster) -> Result:
    """Check the meta group (meta.go) as every server reports it; the nats CLI queries only the first leader that
    responds."""
    result = Result("meta", result_name("meta", options))
    limits = given_limits(options["lag_critical"], options["seen_critical"])
    if cluster.meta is None:
        result.add(CRITICAL, "no server that answered is in a JetStream meta group")
        return result
    group = cluster.meta.group
    problems = health_problems(cluster, Expectations(limits=limits))
    add_problems(result, [problem for problem in problems if problem.code.startswith("meta_")])
    if group.leader is not None:
        expected, peers = options["expect"], len(group.peers) + 1
        result.measure("peers", peers, "", expected, expected)
        measure_peers(result, group.peers, limits)
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
        measure_pair(result, options, stem, f"{name}_pct{suffix}", percent, "%")
        if percent > 100:
            result.add(CRITICAL, f"{label}{name}: {used} exceeds the limit of {limit}")
        else:
            judge(result, options, stem, percent, f"{percent:.1f}% {label}{name}{'' if limit > 0 else ' (no limit)'}")


def _judge_streams(
    result: Result, options: Options, streams: Sequence[Mapping[str, Any]], unknown: Mapping[str, str]
) -> None:
    limits = given_limits(options["replica_lag_critical"], options["replica_seen_critical"])
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
        problems = [problem for problem in group_problems(group, None, limits) if problem.code not in TRANSIENT_CODES]
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
        measure_pair(result, options, stem, name, value, unit)
        judge(result, options, stem, value, text)
    _judge_certificates(result, options, varz)
    result.ok_if_silent(f"{varz.get('server_name', '')} is up for {human_seconds(uptime)}")
    return result


def _judge_certificates(result: Result, options: Options, varz: Mapping[str, Any]) -> None:
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
    for part, days in certificate_days(varz).items():
        end, left = ends[part], days * 86400
        if left <= 0:
            result.add(CRITICAL, f"{part} TLS certificate expired ({end})")
        else:
            judge(result, options, "tls_cert", left, f"{part} TLS certificate expires in {human_seconds(left)} ({end})")


def check_request(options: Options, body: bytes, headers: Mapping[str, str], seconds: float) -> Result:
    """Check a service's reply (request.go). The nats CLI sends the headers that it should compare with those of the
    reply, and compares none of them."""
    result = Result("request", result_name("request", options))
    measure_pair(result, options, "response", "time", seconds, "s")
    judge(result, options, "response", seconds, f"response took {human_seconds(seconds)}")
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
    measure_pair(result, options, "validity", "expiry", left, "s")
    if left <= 0:
        result.add(CRITICAL, f"expired {human_seconds(-left)} ago")
    else:
        judge(result, options, "validity", left, f"expires in {human_seconds(left)}")
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
        measure_pair(result, options, stem, stem, age, "s")
        judge(result, options, stem, age, f"{name} was last {word} {human_seconds(age)} ago")
