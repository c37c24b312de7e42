# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a check is. A check is data: Spark SQL expressions over the columns of one view, so that all checks of a view are judged
in one pass over it, and so that the documentation shows the very rule that is applied. Nothing here imports Spark.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

CRITICAL, WARNING, INFO = "critical", "warning", "info"
FAIL, UNKNOWN, PASS = "fail", "unknown", "pass"

#: Metadata of streams and consumers: thresholds of ours, what `nats server check` reads, and checks that are not wanted.
OWN_METADATA, MONITOR_METADATA = "natsops.insights.", "io.nats.monitor."
SKIP_METADATA = f"{OWN_METADATA}skip"

#: How far from its threshold, as a part of it, a value must be to end a finding: it would come and go where it hovers there.
MARGIN = 0.1
#: Units of what changes bit by bit. What is counted changes by one, and its next value may already be as it should be.
_MEASURED = {"%", "×", "s", "h", "days", "bytes"}

#: A threshold in an expression, such as :cpu. Not after a word or another colon.
_THRESHOLD = re.compile(r"(?<![\w:]):([a-z_]+)")
#: In a text: {expression} or {expression|format}.
_PART = re.compile(r"\{([^{}|]+)(?:\|(\w+))?\}")

_SCALE = {
    "bytes": (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)),
    "seconds": (("days", 86400), ("h", 3600), ("min", 60), ("s", 1)),
}


class ThresholdError(ValueError):
    """Thresholds that were given are not those of any check."""


@dataclass(frozen=True)
class Threshold:
    """A named number that a check compares with. `monitor`: the key below io.nats.monitor that means the same in a stream's or
    consumer's metadata. In seconds (unit `s`), metadata may say 5m."""

    key: str
    default: float
    unit: str
    meaning: str
    monitor: str = ""


@dataclass(frozen=True)
class Check:
    """A rule about the rows of a view.

    `applies`: which rows it judges. `needs`: columns without which a row is unknown, and `knows`: what else must hold for it to
    be known. `fails`: the rule. `value`: what is compared, with the first threshold unless `against` says another. `text`:
    what is wrong, for people; `remedy`: what to do about it; `unknown`: why it is not known. `worse`: when a failure is
    critical whatever the severity. `peer`: who is at fault, beside the subject. Expressions are Spark SQL, with thresholds as
    :key. `twice`: a failure passes as long as the snapshot before passed: it compares what servers tell one after the other.
    `configured`: the value is somebody's choice, which stays where it was put.
    """

    code: str
    severity: str
    title: str
    view: str
    fails: str
    text: str
    rationale: str
    remedy: str
    source: str
    value: str = "CAST(NULL AS DOUBLE)"
    thresholds: tuple[Threshold, ...] = ()
    against: str = ""
    applies: str = "true"
    needs: tuple[str, ...] = ()
    knows: str = ""
    unknown: str = ""
    worse: str = ""
    peer: str = ""
    twice: bool = False
    configured: bool = False

    @property
    def steady(self) -> bool:
        """Return whether a finding ends only when its value is MARGIN away from the threshold: where all that the rule compares
        with is measured, rather than counted or configured, and the finding tells that value and that threshold."""
        compared = set(_THRESHOLD.findall(self.fails))
        units = {threshold.unit for threshold in self.thresholds if threshold.key in compared}
        against = self.against.removeprefix(":") or next((threshold.key for threshold in self.thresholds), "")
        return not self.configured and len(units) == 1 and units <= _MEASURED and against in compared

    def name(self, key: str) -> str:
        """Return how a threshold is called outside of the check, as `nats audit analyze` calls its own: server_003_cpu."""
        return f"{self.code.lower()}_{key}"

    def sql(self, expression: str) -> str:
        """Return an expression with the columns of the thresholds put in."""
        names = {threshold.key: f"`{self.name(threshold.key)}`" for threshold in self.thresholds}
        return _THRESHOLD.sub(lambda match: names[match[1]], expression)


@dataclass(frozen=True)
class View:
    """Rows to be judged. `kind` and `keys`: what a row is about. `endpoints`: the questions of which the answers are made;
    a server that did not answer one of them is unknown to all checks of a view of moments. `tables`: what it is made of;
    there is nothing to judge where the first is empty. `period`: whether a row is about all snapshots of the time that is
    judged, rather than about one. `reported`: in terms of the silver table servers, whether the first table must have rows;
    nothing where it may have none. `overridden`: rows have metadata.
    """

    name: str
    kind: str
    keys: tuple[str, ...]
    tables: tuple[str, ...]
    endpoints: tuple[str, ...]
    period: bool = False
    reported: str = ""
    overridden: bool = False


@dataclass
class Registry:
    """All checks, by code."""

    checks: dict[str, Check] = field(default_factory=dict)

    def add(self, *checks: Check) -> None:
        for check in checks:
            if check.code in self.checks:
                raise ValueError(f"there are two checks {check.code}")
            self.checks[check.code] = check

    def thresholds(self) -> dict[str, tuple[Check, Threshold]]:
        return {check.name(item.key): (check, item) for check in self.checks.values() for item in check.thresholds}


@dataclass(frozen=True)
class Settings:
    """What is not as by default: thresholds by name, and checks that are not made."""

    thresholds: Mapping[str, float] = field(default_factory=dict)
    skip: frozenset[str] = frozenset()


def settings(registry: Registry, content: Any) -> Settings:
    """Return the settings of a JSON object such as {"server_003_cpu": 80, "skip": ["STREAM_103"]}. Raises ThresholdError."""
    if not isinstance(content, dict):
        raise ThresholdError("thresholds are an object of names and numbers")
    known = registry.thresholds()
    skip = content.get("skip", [])
    if not isinstance(skip, list) or not set(map(str, skip)) <= set(registry.checks):
        raise ThresholdError(f"skip: {skip} are not codes of checks")
    given = {name: value for name, value in content.items() if name != "skip"}
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise ThresholdError(f"no check has the thresholds {', '.join(unknown)}")
    wrong = sorted(name for name, value in given.items() if not _is_threshold(value))
    if wrong:
        raise ThresholdError(f"not a number of at least 0: {', '.join(wrong)}")
    return Settings({name: float(value) for name, value in given.items()}, frozenset(skip))


def _is_threshold(value: Any) -> bool:
    """Return whether a value can be compared. JSON of Python has NaN, which is greater than every number in Spark."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf


# --- texts ----------------------------------------------------------------------------------------------------------------


def literal(text: str) -> str:
    """Return a text as a literal of Spark SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _formatted(expression: str, how: str | None) -> str:
    number = f"CAST({expression} AS DOUBLE)"
    if how is None:
        return f"CAST({expression} AS STRING)"
    if how == "list":
        return f"array_join({expression}, ', ')"
    if how == "percent":
        return f"format_string('%.1f %%', 100 * {number})"
    if how == "count":
        return f"format_number({number}, 0)"
    if how == "number":
        return f"format_string('%.1f', {number})"
    cases = " ".join(
        f"WHEN abs({number}) >= {factor} THEN format_string('%.1f {unit}', {number} / {factor})"
        for unit, factor in _SCALE[how][:-1]
    )
    smallest = "%.3f s" if how == "seconds" else "%.0f B"
    return f"CASE {cases} ELSE format_string('{smallest}', {number}) END"


#: What names the subject of a finding to modules (options) and playbooks (variables).
_STREAM_OPTIONS = "account: {account}, stream: {stream}"
_CONSUMER_OPTIONS = f"{_STREAM_OPTIONS}, consumer: {{consumer}}"
_SERVER_OPTION = "server_name: {server}"
NAMING = {
    "nats_account_info": "account: {account}",
    "nats_consumer": _CONSUMER_OPTIONS,
    "nats_consumer_stepdown": _CONSUMER_OPTIONS,
    "nats_meta_peer": _SERVER_OPTION,
    "nats_rebalance_plan": "cluster: {cluster}",
    "nats_server_evacuate": _SERVER_OPTION,
    "nats_server_info": "server_names: [{server}]",
    "nats_stream": _STREAM_OPTIONS,
    "nats_stream_peer": _STREAM_OPTIONS,
    "nats_stream_stepdown": _STREAM_OPTIONS,
    "replace": "nats_cluster_replace: {server}",
}
_MENTION = re.compile(r"`([a-z_]+)`")


def addressed(remedy: str, keys: Collection[str]) -> str:
    """Return a remedy in which each module or playbook is followed by what names the subject to it, where it is mentioned first.
    `keys`: what the finding names."""
    seen: set[str] = set()

    def with_options(match: re.Match[str]) -> str:
        options = NAMING.get(match[1], "")
        known = options and match[1] not in seen and {part[1] for part in _PART.finditer(options)} <= {*keys}
        seen.add(match[1])
        return f"{match[0]} (`{options}`)" if known else match[0]

    return _MENTION.sub(with_options, remedy)


def text_sql(template: str) -> str:
    """Return a text for people as an expression: {expression} is its value, {expression|format} with bytes, seconds, percent,
    count, number or list. What is null reads as a question mark."""
    parts: list[str] = []
    end = 0
    for match in _PART.finditer(template):
        if match.start() > end:
            parts.append(literal(template[end : match.start()]))
        parts.append(f"coalesce({_formatted(match[1], match[2])}, '?')")
        end = match.end()
    if end < len(template):
        parts.append(literal(template[end:]))
    return f"concat({', '.join(parts)})" if parts else "''"
