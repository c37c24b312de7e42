# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Obstacles to running a different version of nats-server.

Pure functions of a Cluster: the running versions, the desired one, and the requirements of the streams and
consumers. Sources: the upgrade guides of the NATS documentation (2.10, 2.12, 2.15), ADR-44, and the server's
jetstream_versioning.go and filestore.go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Union

from ..health.raft_features import RAFT_FEATURES, common_flags, enabled_flags, is_mostly_turned_off, streams_with
from ..nats.model import API_LEVELS, Cluster, Consumer, Server, Stream
from ..nats.server_versions import SERIES, parse_series
from ..problem import ERROR, WARNING, ConfigProblem, Problem
from ..screen import some_names
from ..versions import parse_version, reported_version

#: A version's three numbers, and whether it is a release: 2.15.0-RC.1 comes before 2.15.0.
Version = tuple[int, int, int, bool]

#: The spellings of true in nats-server's configuration.
_ON = ("true", "yes", "on")

#: A minor release that does not exist.
_MISSING_MINOR = 13

#: From this version on, a server puts assets offline that need a newer version (ADR-44).
_PUTS_OFFLINE = (2, 11, 9)

#: The settings for which an asset needs an API level (setStaticStreamMetadata, setStaticConsumerMetadata).
_STREAM_FEATURES = (
    "allow_msg_ttl",
    "subject_delete_marker_ttl",
    "allow_msg_counter",
    "allow_atomic",
    "allow_msg_schedules",
    "persist_mode",
    "allow_batched",
)
_CONSUMER_FEATURES = ("pause_until", "priority_policy", "priority_groups", "priority_timeout")


@dataclass(frozen=True)
class VersionRules:
    """The desired version, and the accepted deviations. `feature_flags`: the flags of the configuration with which a
    server of that version starts."""

    target: str
    allow_skipped_minors: bool = False
    allow_downgrade: bool = False
    feature_flags: Mapping[str, bool] = field(default_factory=dict)


def parse(text: str) -> Version:
    """Return a comparable version. Raises ValueError for anything else."""
    major, minor, patch = parse_version(text)
    return major, minor, patch, "-" not in text


def _reported(text: str) -> Version:
    """Return the version that a running server reports, which may be a custom build such as `2.15.1+fork`."""
    return (*reported_version(text), "-" not in text)


def api_level(version: str) -> int | None:
    """Return the JetStream API level of a version: 0 before 2.11, None for a newer unknown series."""
    numbers = parse(version)[:3]
    if numbers[:2] > SERIES[-1].numbers:
        return None
    return max((level for since, level in API_LEVELS if numbers >= since), default=0)


def skipped_minors(version: str, target: str) -> list[str]:
    """Return the minor releases between two versions, in ascending order."""
    start, end = _reported(version), parse(target)
    low, high = sorted((start[1], end[1]))
    between = [f"{end[0]}.{minor}" for minor in range(low + 1, high) if minor != _MISSING_MINOR]
    return between if start < end else between[::-1]


def version_problems(
    cluster: Cluster, chosen: Iterable[str], rules: VersionRules, stopped: Mapping[str, str] | None = None
) -> list[Problem]:
    """Return the obstacles to running `rules.target` on the `chosen` servers; empty if all of them already run it.

    `stopped`: the installed version of each server that is not running, empty for a new server. Raises ValueError if
    the target is not a version."""
    target = parse(rules.target)
    names = frozenset(chosen)
    starting = {name: version for name, version in (stopped or {}).items() if name in names - cluster.names}
    joining = frozenset(name for name, version in starting.items() if not version)
    is_oldest = any(target < _reported(server.version) for server in cluster.servers)
    installed = _installed(starting)
    cluster = replace(cluster, servers=(*cluster.servers, *installed))
    problems = []
    by_version: dict[str, list[str]] = {}
    for server in cluster.servers:
        if server.name in names:
            by_version.setdefault(server.version, []).append(server.name)
    silent = sorted(names - cluster.names - joining)
    if silent:
        message = (
            f"{_list(silent)} did not answer: the version that it would be upgraded from to {rules.target} is unknown"
        )
        problems.append(Problem("roll_version_unknown", WARNING, _list(silent), message, tuple(silent)))
    jumps: dict[Version, str] = {}
    for text, servers in sorted(by_version.items()):
        servers.sort()
        version = _reported(text)
        if version[0] != target[0]:
            reported = text or "no version"
            message = f"{_list(servers)} reports {reported}: the upgrade path from there to {rules.target} is unknown"
            problems.append(Problem("roll_version_unknown", ERROR, _list(servers), message, tuple(servers)))
        elif version != target:
            jumps[version] = text
            problems += _jump_problems(text, servers, rules)
    if jumps or joining:
        problems += _mixed(cluster, names, rules)
        problems += _unreadable_entries(cluster, names, rules)
    if any(version > target for version in jumps) or (joining and is_oldest):
        problems += _asset_problems(cluster, rules.target)
    problems += [_unread_problem(one, rules.target) for one in installed if _reported(one.version)[:2] > target[:2]]
    return problems


def flags_to_turn_off(
    cluster: Cluster,
    name: str,
    target: str,
    stopped: Mapping[str, str] | None = None,
    leaving: Iterable[str] = (),
) -> list[str]:
    """Return the feature flags that `target` enables by default and that the server `name` must disable.

    Some member may be too old to read the entries. A member that does not answer counts as too old, unless it is
    `leaving`, its version is known, or most of the others write the entries already. A server that joins or starts
    again also follows the others if they run with the flag off. `stopped`: as for `version_problems`. Raises ValueError.
    """
    known = stopped or {}
    servers = [*cluster.servers, *_installed(known)]
    versions = [reported_version(server.version) for server in servers if server.jetstream]
    members = (set(cluster.meta.group.members) if cluster.meta else set()) - set(leaving)
    if len({*(server.name for server in servers), *members, name}) < 2:
        return []
    parse(target)
    silent = members - cluster.names - set(known)
    common = common_flags(cluster)
    return [
        feature.flag
        for feature in RAFT_FEATURES
        if feature.is_written_by(target, {})
        and (
            any(one < feature.read_since for one in versions)
            or (silent and feature.flag not in common)
            or (name not in cluster.names and is_mostly_turned_off(feature, cluster))
        )
    ]


def flag_problems(config: Mapping[str, Any], servers: Iterable[Mapping[str, Any]]) -> Iterator[ConfigProblem]:
    """Yield the feature flags that a configuration turns on although some of the `servers` (name, version) cannot read their
    entries."""
    flags = config.get("feature_flags")
    on = (
        {str(flag) for flag, value in flags.items() if str(value).lower() in _ON}
        if isinstance(flags, Mapping)
        else set()
    )
    versions = {str(one["name"]): str(one.get("version") or "") for one in servers}
    for feature in RAFT_FEATURES:
        old = sorted(
            name for name, version in versions.items() if version and reported_version(version) < feature.read_since
        )
        if feature.flag in on and old:
            since = _text(feature.read_since)
            yield {
                "severity": "error",
                "option": f"feature_flags.{feature.flag}",
                "message": f"servers before {since} ({some_names(old)}) would {feature.effect} because of replicated "
                f"{feature.streams}. Turn it on once all servers run {since} or later.",
            }


def _installed(stopped: Mapping[str, str]) -> list[Server]:
    return [Server(name, "", version=version, jetstream=True) for name, version in stopped.items() if version]


def _unread_problem(server: Server, target: str) -> Problem:
    """Return the reason why a stopped server cannot be downgraded: its own streams and consumers are unknown."""
    message = (
        f"{server.name} is not running, so it is unknown whether {target} supports its streams and consumers: start it with "
        f"{server.version} first (deploy -e nats_server_version={server.version})"
    )
    return Problem("roll_version_unknown", ERROR, server.name, message, (server.name,))


def _jump_problems(version: str, servers: list[str], rules: VersionRules) -> Iterator[Problem]:
    have, want = _reported(version), parse(rules.target)
    subject, at_fault = _list(servers), tuple(servers)
    jump = f"{version} to {rules.target}"
    skipped = skipped_minors(version, rules.target)
    if skipped:
        severity = WARNING if rules.allow_skipped_minors else ERROR
        way = f"minor releases must be installed one by one: {', '.join(skipped)} first"
        accepted = (
            "accepted by allow_skipped_minors"
            if rules.allow_skipped_minors
            else "or accept it with allow_skipped_minors"
        )
        message = f"{subject}: {jump} skips {len(skipped)} minor release(s); {way}, {accepted}"
        yield Problem("roll_skipped_minor", severity, subject, message, at_fault)
    if have < want:
        series = parse_series(rules.target)
        start = series.best_start if series else ""
        if start and have[:2] != want[:2] and have[:3] < parse_version(start):
            message = f"{subject}: {jump}; the guide of {_text(want[:2])} recommends upgrading from {start} or later"
            yield Problem("roll_best_start", WARNING, subject, message, at_fault)
        return
    severity = WARNING if rules.allow_downgrade else ERROR
    accepted = (
        "accepted by allow_downgrade" if rules.allow_downgrade else "accept it with allow_downgrade if it is necessary"
    )
    message = f"{subject}: {jump} is a downgrade, which NATS supports only by one patch release; {accepted}"
    yield Problem("roll_downgrade", severity, subject, message, at_fault)
    left = [series for series in SERIES if have[:2] >= series.numbers > want[:2]]
    floors = [series for series in left if series.oldest_return and want[:3] < parse_version(series.oldest_return)]
    if floors:
        floor = floors[-1]
        message = (
            f"{subject}: {jump} is not possible, {floor.oldest_return} is the oldest version to return to: "
            f"{floor.because}"
        )
        yield Problem("roll_downgrade_floor", ERROR, subject, message, at_fault)
    known = parse_series(rules.target)
    if known and any(series.index_format > known.index_format for series in left):
        message = (
            f"{subject}: {jump} makes the first start slow, because it reads all messages to rebuild the streams' "
            "indexes"
        )
        yield Problem("roll_state_rebuild", WARNING, subject, message, at_fault)


def _mixed(cluster: Cluster, names: frozenset[str], rules: VersionRules) -> Iterator[Problem]:
    others = sorted(
        server.name for server in cluster.servers if server.name not in names and server.version != rules.target
    )
    if others:
        versions = sorted({server.version for server in cluster.servers if server.name in others})
        message = f"{_list(others)} would stay at {_list(versions)} while the others run {rules.target}"
        yield Problem("roll_mixed_versions", WARNING, _list(others), message, tuple(others))


def _unreadable_entries(cluster: Cluster, names: frozenset[str], rules: VersionRules) -> Iterator[Problem]:
    """Yield the Raft entries that some members would write and others could not read while both versions run."""
    members = [server for server in cluster.servers if server.jetstream]
    if len({one.name for one in members} | names) < 2:
        return
    unchanged = {one.name for one in cluster.servers if not one.jetstream or one.version == rules.target}
    changing = tuple(sorted(names - unchanged))
    for feature in RAFT_FEATURES:
        writers = {server.name for server in members if feature.is_written_by(server.version, enabled_flags(server))}
        old = {server.name for server in members if reported_version(server.version) < feature.read_since}
        mixed_already = bool(writers and old)
        writes = feature.is_written_by(rules.target, rules.feature_flags)
        reads = reported_version(rules.target) >= feature.read_since
        # Completing the roll ends an existing mix of versions: after it, no server is too old, or none writes these
        # entries.
        ends = mixed_already and reads and (not old - names or not (writes or writers - names))
        writers |= names if writes else set()
        old |= set() if reads else names
        if not writers or not old:
            continue
        streams = streams_with(feature, cluster)
        since = _text(feature.read_since)
        remedy = (
            "finish this roll at once"
            if ends
            else f"first set nats_server_config: {{feature_flags: {{{feature.flag}: false}}}}"
        )
        at_risk = (
            f"{_list(sorted(old))} by {some_names(streams)}"
            if streams
            else f"no stream yet; do not create any before all servers run {since}"
        )
        message = (
            f"replicated {feature.streams} make servers before {since} {feature.effect}: {remedy}; at risk: {at_risk}; "
            f"once all run {since}, a restart may remove the flag"
        )
        severity = ERROR if streams and not ends else WARNING
        yield Problem("roll_unreadable_entries", severity, feature.flag, message, changing)


def _asset_problems(cluster: Cluster, target: str) -> Iterator[Problem]:
    """Yield the streams and consumers that a server of the target version could not serve unchanged."""
    reported = (server.summary.api_level for server in cluster.servers if server.version == target and server.summary)
    level = max(reported, default=0) or api_level(target)
    for stream in cluster.streams:
        yield from _level_problem(stream, _STREAM_FEATURES, level, target)
        yield from _lost_problem(stream, _lost_by_stream(_config(stream)), target)
        for consumer in stream.consumers:
            yield from _level_problem(consumer, _CONSUMER_FEATURES, level, target)
            yield from _lost_problem(consumer, _lost_by_consumer(_config(consumer)), target)


def _level_problem(
    asset: Union[Stream, Consumer], features: Iterable[str], level: int | None, target: str
) -> Iterator[Problem]:
    if level is None or asset.api_level <= level:
        return
    config = _config(asset)
    used = [key for key in features if config.get(key)]
    if config.get("ack_policy") == "flow_control":
        used.append("ack_policy flow_control")
    because = f" ({', '.join(used)})" if used else ""
    since = next((first for first, its_level in API_LEVELS if its_level >= asset.api_level), None)
    at_least = f"nats-server {_text(since)} or later" if since else "a newer nats-server"
    then = (
        "would put it offline" if parse(target)[:3] >= _PUTS_OFFLINE else "would load it without the unsupported parts"
    )
    needs = f"{asset.group.subject} needs API level {asset.api_level}{because}, that is {at_least}"
    message = f"{needs}; {target} has level {level} and {then}"
    yield Problem("roll_api_level", ERROR, asset.group.subject, message)


def _lost_problem(asset: Union[Stream, Consumer], lost: Iterable[str], target: str) -> Iterator[Problem]:
    """Yield the problem of features of 2.10 that have no API level: 2.9 ignores these keys (guide of 2.10, downgrade
    warnings)."""
    reasons = list(lost)
    if reasons and parse(target)[:2] < (2, 10):
        message = f"{asset.group.subject}: {target} does not support its features: {'; '.join(reasons)}"
        yield Problem("roll_unknown_option", ERROR, asset.group.subject, message)


def _lost_by_stream(config: Mapping[str, Any]) -> Iterator[str]:
    if config.get("compression") not in (None, "", "none"):
        yield "compression, so its files could not be read"
    origins = [config.get("mirror") or {}, *(config.get("sources") or ())]
    if config.get("subject_transform") or any(origin.get("subject_transforms") for origin in origins):
        yield "subject transforms, which would not be applied"
    if config.get("consumer_limits"):
        yield "consumer_limits, which would not be applied"
    yield from _lost_metadata(config)


def _lost_by_consumer(config: Mapping[str, Any]) -> Iterator[str]:
    if config.get("filter_subjects"):
        yield "filter_subjects, without which it would deliver every message"
    yield from _lost_metadata(config)


def _lost_metadata(config: Mapping[str, Any]) -> Iterator[str]:
    if any(not key.startswith("_nats.") for key in config.get("metadata") or ()):
        yield "metadata, which would be lost"


def _config(asset: Union[Stream, Consumer]) -> Mapping[str, Any]:
    return asset.info.get("config") or {}


def _text(numbers: Iterable[int]) -> str:
    return ".".join(str(number) for number in numbers)


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)
