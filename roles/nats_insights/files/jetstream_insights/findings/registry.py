# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The declaration of checks. A check is data: Spark SQL expressions over the columns of one view. So all checks of a view are
evaluated in one pass, and the documentation shows the rule that is applied. Nothing here imports Spark.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

CRITICAL, WARNING, INFO = "critical", "warning", "info"
#: Severities, the worst first.
SEVERITIES = (CRITICAL, WARNING, INFO)
FAIL, UNKNOWN, PASS = "fail", "unknown", "pass"

#: Metadata of streams and consumers: thresholds of this collection, keys of `nats server check`, and checks to skip.
OWN_METADATA, MONITOR_METADATA = "natsops.insights.", "io.nats.monitor."
SKIP_METADATA = f"{OWN_METADATA}skip"

#: Distance from its threshold, as a part of it, that a value needs to end a finding: otherwise the finding would come and go.
MARGIN = 0.1
#: Units of values that change gradually. A count changes by one, and its next value may already be good.
_MEASURED = {"%", "×", "s", "h", "days", "bytes"}

#: The fields of a check with expressions, apart from `against`.
_EXPRESSIONS = ("fails", "text", "remedy", "value", "applies", "knows", "unknown", "worse", "peer")
#: The value of a check that compares none.
NO_VALUE = "CAST(NULL AS DOUBLE)"

#: A threshold in an expression, such as :cpu. It does not follow a word or another colon.
_THRESHOLD = re.compile(r"(?<![\w:]):([a-z_]+)")
#: A placeholder in a text: {expression}, {expression|format} or {expression|count nouns}.
_PART = re.compile(r"\{([^{}|]+)(?:\|(\w+(?: \w+)?))?\}")

_SCALE = {
    "bytes": (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)),
    "seconds": (("days", 86400), ("h", 3600), ("min", 60), ("s", 1)),
}


class ThresholdError(ValueError):
    """The given thresholds do not belong to any check. `name`: the first of them, empty for another problem."""

    def __init__(self, text: str, name: str = "") -> None:
        super().__init__(text)
        self.name = name


@dataclass(frozen=True)
class Threshold:
    """A named number that a check compares with. `monitor`: the key below io.nats.monitor with the same meaning in a stream's or
    consumer's metadata. With the unit `s`, metadata may use durations such as 5m."""

    key: str
    default: float
    unit: str
    meaning: str
    monitor: str = ""


@dataclass(frozen=True)
class Check:
    """A rule about the rows of a view.

    `applies`: the rows in its scope. `needs`: columns without which a row is unknown, and `knows`: a further condition for a
    known result. `fails`: the rule. `value`: the compared value; it is compared with the first threshold unless `against` gives
    another. `unit`: that of both, if the threshold has none. `text`: the finding, for users; `remedy`: the actions to take;
    `unknown`: the reason for an unknown result. `worse`: the condition under which a failure is critical regardless of the
    severity. `peer`: the cause, if it is not the subject.
    Expressions are Spark SQL, with thresholds as :key. `twice`: a failure counts only if the previous snapshot failed, too,
    because the rule compares answers given one after the other. `configured`: the value is a setting, which does not fluctuate.
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
    value: str = NO_VALUE
    unit: str = ""
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
    def compared_with(self) -> str:
        """Return the expression with which the value is compared: the first threshold unless the check names another one.
        Empty without thresholds."""
        return self.against or next((f":{item.key}" for item in self.thresholds), "")

    @property
    def steady(self) -> bool:
        """Return whether a finding ends only when its value is MARGIN away from the threshold: if everything that the rule
        compares is measured, rather than counted or configured, and the finding shows that value and that threshold."""
        compared = set(_THRESHOLD.findall(self.fails))
        units = {threshold.unit for threshold in self.thresholds if threshold.key in compared}
        shown = self.compared_with.removeprefix(":")
        return not self.configured and len(units) == 1 and units <= _MEASURED and shown in compared

    @property
    def measured_in(self) -> str:
        """Return the unit of the value and the threshold of a finding: that of the compared threshold unless the check names
        one."""
        shown = self.compared_with.removeprefix(":")
        return self.unit or next((item.unit for item in self.thresholds if item.key == shown), "")

    def name(self, key: str) -> str:
        """Return the name of a threshold outside of the check, in the style of `nats audit analyze`: server_003_cpu."""
        return f"{self.code.lower()}_{key}"

    def sql(self, expression: str) -> str:
        """Return an expression with the columns of the thresholds inserted."""
        names = {threshold.key: f"`{self.name(threshold.key)}`" for threshold in self.thresholds}
        return _THRESHOLD.sub(lambda match: names[match[1]], expression)

    def with_numbers(self, given: Mapping[str, float]) -> Check:
        """Return the check with its thresholds inserted as numbers. `given`: those that differ from the defaults."""
        numbers = {item.key: f"{float(given.get(self.name(item.key), item.default))!r}D" for item in self.thresholds}
        expressions = {**{name: getattr(self, name) for name in _EXPRESSIONS}, "against": self.compared_with}
        changed: dict[str, Any] = {
            name: _THRESHOLD.sub(lambda match: numbers[match[1]], text) for name, text in expressions.items()
        }
        return replace(self, thresholds=(), **changed)


@dataclass(frozen=True)
class View:
    """Rows to evaluate. `kind` and `keys`: the subject of a row. `endpoints`: the endpoints of the underlying answers; for a view
    of moments, a server that did not answer one of them is unknown to all checks. `tables`: the input tables; without rows in
    the first one there is nothing to evaluate. `period`: whether a row covers all snapshots of the evaluated period instead of
    one. `reported`: a condition on the silver table servers under which the first table must have rows; empty if it may always
    be empty. `overridden`: rows have metadata.
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
class CheckSettings:
    """The settings that differ from the defaults: thresholds by name, and checks to skip."""

    thresholds: Mapping[str, float] = field(default_factory=dict)
    skip: frozenset[str] = frozenset()


def unknown_threshold(name: str, known: Iterable[str]) -> str:
    """Return the error for a name that is not in the reference, with similar names."""
    similar = get_close_matches(name, [*known], 3)
    hint = f" (similar: {', '.join(similar)})" if similar else ""
    return f"no check has the threshold {name}{hint}, see docs/reference/insights_checks.md"


def settings(registry: Registry, content: Any) -> CheckSettings:
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
        raise ThresholdError("; ".join(unknown_threshold(name, known) for name in unknown), unknown[0])
    wrong = sorted(name for name, value in given.items() if not _is_threshold(value))
    if wrong:
        raise ThresholdError(f"not a number of at least 0: {', '.join(wrong)}")
    return CheckSettings({name: float(value) for name, value in given.items()}, frozenset(skip))


def _is_threshold(value: Any) -> bool:
    """Return whether a value can be compared. Python's JSON has NaN, which is greater than every number in Spark."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf


# --- texts ----------------------------------------------------------------------------------------------------------------


def literal(text: str) -> str:
    """Return a text as a Spark SQL literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _formatted(expression: str, how: str | None) -> str:
    number = f"CAST({expression} AS DOUBLE)"
    if how is None:
        return f"CAST({expression} AS STRING)"
    if how == "list":
        return f"CASE WHEN size({expression}) = 0 THEN 'none' ELSE array_join({expression}, ', ') END"
    if how == "percent":
        return f"format_string('%.1f %%', 100 * {number})"
    if how == "count":
        return f"format_number({number}, 0)"
    if how.startswith("count "):
        nouns = how.removeprefix("count ")
        one = re.sub("ies$", "y", nouns).removesuffix("s")
        return f"concat(format_number({number}, 0), CASE WHEN {number} = 1 THEN ' {one}' ELSE ' {nouns}' END)"
    if how == "number":
        return f"format_string('%.1f', {number})"
    cases = " ".join(
        f"WHEN abs({number}) >= {factor} THEN format_string('%.1f {unit}', {number} / {factor})"
        for unit, factor in _SCALE[how][:-1]
    )
    smallest = "%.3f s" if how == "seconds" else "%.0f B"
    return f"CASE {cases} ELSE format_string('{smallest}', {number}) END"


#: The options of modules, and variables of playbooks, that name the subject of a finding. The first of several that names only
#: columns of the subject is used.
_STREAM_OPTIONS = "account: {account}, stream: {stream}"
_CONSUMER_OPTIONS = f"{_STREAM_OPTIONS}, consumer: {{consumer}}"
_SERVER_OPTION = "server_name: {server}"
NAMING = {
    "nats_account_info": ("account: {account}",),
    "nats_consumer": (_CONSUMER_OPTIONS,),
    "nats_meta_peer": (_SERVER_OPTION,),
    "nats_rebalance_plan": ("cluster: {cluster}",),
    "nats_server_evacuate": (_SERVER_OPTION,),
    "nats_server_info": ("server_names: [{server}]",),
    "nats_stream": (_STREAM_OPTIONS,),
    "nats_stream_peer": (_STREAM_OPTIONS,),
    "nats_stream_stepdown": (_CONSUMER_OPTIONS, _STREAM_OPTIONS),
    "replace": ("nats_cluster_replace: {server}",),
}
_MENTION = re.compile(r"`([a-z_]+)`")


def addressed(remedy: str, keys: Collection[str]) -> str:
    """Return a remedy in which the first mention of each module or playbook is followed by the options that name the subject.
    `keys`: the columns of the subject in the finding."""
    seen: set[str] = set()

    def with_options(match: re.Match[str]) -> str:
        choices = () if match[1] in seen else NAMING.get(match[1], ())
        seen.add(match[1])
        known = (options for options in choices if {part[1] for part in _PART.finditer(options)} <= {*keys})
        options = next(known, "")
        return f"{match[0]} (`{options}`)" if options else match[0]

    return _MENTION.sub(with_options, remedy)


def text_sql(template: str) -> str:
    """Return a text as an expression: {expression} inserts its value, {expression|format} formats it as bytes, seconds, percent,
    count, number or list, `count streams` as 1 stream or 2 streams. Null becomes a question mark."""
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
