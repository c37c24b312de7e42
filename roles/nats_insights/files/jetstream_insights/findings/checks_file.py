# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The YAML file of --checks: additional checks, changed thresholds and severities, skipped checks and muted findings.

Errors name the file and the line. own_checks.py verifies the expressions, which requires Spark; nothing here imports it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timezone
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from jetstream_insights.findings import REGISTRY
from jetstream_insights.findings.registry import (
    SEVERITIES,
    Check,
    CheckSettings,
    Registry,
    Threshold,
    unknown_threshold,
)
from jetstream_insights.findings.subjects import SUBJECT, VIEWS

#: The parts of a check that are Spark SQL expressions.
EXPRESSIONS = ("expression", "only", "value")
_CODE = re.compile(r"[A-Z][A-Z0-9]*_[0-9]{3}")
_THRESHOLD = re.compile(r"(?<![\w:]):([A-Za-z_]\w*)")
#: The keys that a check must have.
REQUIRED = ("code", "title", "severity", "subject", "expression", "remedy")
#: The columns of a finding by which a mute selects.
MUTED_BY = ("fleet", *SUBJECT)
#: Errors of a file that fit on a screen.
_MOST_ERRORS = 10


class ChecksFileError(ValueError):
    """The file is invalid. The message names the file and the line of each error."""


@dataclass(frozen=True)
class Mute:
    """Findings that are not shown as faults until a time. `subject`: patterns by the names of a finding's columns."""

    check: str
    reason: str
    until: datetime
    subject: Mapping[str, str] = field(default_factory=dict)

    def covers(self, finding: Mapping[str, Any], names: Mapping[str, str], now: datetime) -> bool:
        """Return whether it mutes a finding at this time. `names`: those of accounts by public key."""
        if finding["check"] != self.check or now >= self.until:
            return False
        return all(_matches(str(finding.get(key) or ""), names, wanted) for key, wanted in self.subject.items())


def _matches(value: str, names: Mapping[str, str], pattern: str) -> bool:
    return fnmatchcase(value, pattern) or fnmatchcase(names.get(value, value), pattern)


@dataclass(frozen=True)
class ChecksFile:
    """The content of the file. `registry`: all checks with their severities; `places`: FILE:LINE of each expression of an own
    check, by code and key."""

    registry: Registry = field(default_factory=lambda: REGISTRY)
    settings: CheckSettings = field(default_factory=CheckSettings)
    mutes: tuple[Mute, ...] = ()
    places: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @property
    def own(self) -> list[Check]:
        """Return the checks that the file adds."""
        return [self.registry.checks[code] for code in dict.fromkeys(code for code, _key in self.places)]


def read_checks(path: Path | None) -> ChecksFile:
    """Return the content of the file, that of an empty one for None. Raises ChecksFileError."""
    if path is None:
        return ChecksFile()
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ChecksFileError(f"{path}{line}: not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise ChecksFileError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ChecksFileError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    reader = _NodeReader(path)
    found = reader.read(root)
    if reader.errors:
        more = len(reader.errors) - _MOST_ERRORS
        raise ChecksFileError(
            "\n".join([*reader.errors[:_MOST_ERRORS], *([f"and {more} more errors"] if more > 0 else [])])
        )
    return found


class _NodeReader:
    """Reads the nodes of a file and collects its errors."""

    def __init__(self, path: Path) -> None:
        self.errors: list[str] = []
        self._path = path

    def _place(self, node: yaml.Node) -> str:
        return f"{self._path}:{node.start_mark.line + 1}"

    def _wrong(self, node: yaml.Node, problem: str) -> None:
        self.errors.append(f"{self._place(node)}: {problem}")

    # --- nodes ---

    def _items(self, node: yaml.Node, title: str) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
        """Yield the entries of a mapping: the name with its node, and the node of the value."""
        if not isinstance(node, yaml.MappingNode):
            self._wrong(node, f"{title} must be a mapping of names and values")
            return
        seen = set()
        for key, value in node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else "?"
            if name in seen:
                self._wrong(key, f"{name} is given twice: remove one of them")
                continue
            seen.add(name)
            yield name, key, value

    def _list(self, node: yaml.Node, title: str) -> list[yaml.Node]:
        if isinstance(node, yaml.SequenceNode):
            return list(node.value)
        self._wrong(node, f"{title} must be a list")
        return []

    def _value(self, node: yaml.Node) -> Any:
        if not isinstance(node, yaml.ScalarNode):
            return None
        loader = yaml.SafeLoader("")
        try:
            return loader.construct_object(node)
        except (ValueError, yaml.YAMLError):
            return node.value
        finally:
            loader.dispose()

    def _text(self, node: yaml.Node, title: str) -> str:
        found = self._value(node)
        if isinstance(found, str) and found.strip():
            return found.strip()
        self._wrong(node, f"{title} must be a text that is not empty")
        return ""

    def _number(self, node: yaml.Node, title: str) -> float:
        found = self._value(node)
        if isinstance(found, (int, float)) and not isinstance(found, bool) and 0 <= found < math.inf:
            return float(found)
        self._wrong(node, f"{title} must be a number of at least 0, not {getattr(node, 'value', '') or 'a structure'}")
        return 0.0

    def _choice(self, node: yaml.Node, title: str, of: Mapping[str, Any] | tuple[str, ...]) -> str:
        found = str(self._value(node))
        if found not in of:
            known = ", ".join(of) if len(of) < 50 else "listed in docs/reference/insights_checks.md"
            self._wrong(node, f"{title} {found} does not exist. Known: {known}")
        return found

    # --- the file ---

    def read(self, root: yaml.Node | None) -> ChecksFile:
        if root is None:
            return ChecksFile()
        known = {"checks", "thresholds", "severities", "skip", "mute"}
        parts: dict[str, yaml.Node] = {}
        for name, key, node in self._items(root, "the file"):
            if name in known:
                parts[name] = node
            else:
                self._wrong(key, f"unknown key {name}. Known: {', '.join(sorted(known))}")
        checks = dict(REGISTRY.checks)
        places: dict[tuple[str, str], str] = {}
        for node in self._list(parts["checks"], "checks") if "checks" in parts else ():
            if (check := self._check(node, checks, places)) is not None:
                checks[check.code] = check
        if "severities" in parts:
            for code, key, node in self._items(parts["severities"], "severities"):
                severity = self._choice(node, "the severity", SEVERITIES)
                if code in checks:
                    checks[code] = replace(checks[code], severity=severity, worse="")
                else:
                    self._wrong(key, f"the check {code} does not exist, see docs/reference/insights_checks.md")
        registry = Registry(checks)
        thresholds = {}
        names = registry.thresholds()
        for name, key, node in self._items(parts["thresholds"], "thresholds") if "thresholds" in parts else ():
            thresholds[name] = self._number(node, name)
            if name not in names:
                self._wrong(key, unknown_threshold(name, names))
        skipped = self._list(parts["skip"], "skip") if "skip" in parts else []
        skip = frozenset(self._choice(node, "the check", checks) for node in skipped)
        muted = self._list(parts["mute"], "mute") if "mute" in parts else []
        mutes = [self._mute(node, checks) for node in muted]
        return ChecksFile(registry, CheckSettings(thresholds, skip), tuple(filter(None, mutes)), places)

    def _parts(
        self, node: yaml.Node, title: str, required: tuple[str, ...], optional: tuple[str, ...]
    ) -> dict[str, yaml.Node] | None:
        """Return the values of a mapping with these keys, None if there is an error."""
        before = len(self.errors)
        found = {}
        for name, key, value in self._items(node, title):
            if name in (*required, *optional):
                found[name] = value
            else:
                self._wrong(key, f"unknown key {name} of {title}. Known: {', '.join((*required, *optional))}")
        missing = [name for name in required if name not in found]
        if missing and isinstance(node, yaml.MappingNode):
            self._wrong(node, f"{title} lacks {', '.join(missing)}")
        return found if len(self.errors) == before else None

    def _check(self, node: yaml.Node, checks: Mapping[str, Check], places: dict[tuple[str, str], str]) -> Check | None:
        parts = self._parts(node, "a check", REQUIRED, ("threshold", "only", "value", "text"))
        if parts is None:
            return None
        before = len(self.errors)
        texts = {name: self._text(parts[name], name) for name in parts if name not in ("threshold", "severity")}
        code = texts["code"]
        if not _CODE.fullmatch(code):
            self._wrong(parts["code"], f"the code {code} must be capital letters, _ and three digits, such as OWN_001")
        elif code in checks:
            why = "is given twice" if (code, "expression") in places else "is the code of a built-in check"
            self._wrong(parts["code"], f"{code} {why}: choose another one, such as OWN_001")
        severity = self._choice(parts["severity"], "the severity", SEVERITIES)
        view = self._choice(parts["subject"], "the subject", VIEWS)
        thresholds: tuple[Threshold, ...] = ()
        if "threshold" in parts:
            default = self._number(parts["threshold"], "threshold")
            thresholds = (Threshold("threshold", default, "", texts["title"]),)
        used = set()
        for name in EXPRESSIONS:
            if name in parts:
                for found in _THRESHOLD.findall(_without_texts(texts[name])):
                    used.add(found)
                    if not thresholds or found != "threshold":
                        self._wrong(
                            parts[name], f":{found} is not a threshold: set the key threshold and write :threshold"
                        )
                if (problem := _forbidden(texts[name])) is not None:
                    self._wrong(parts[name], f"{name} {problem}")
        if thresholds and "threshold" not in used:
            self._wrong(parts["threshold"], "the threshold is not used: write :threshold in the expression")
        if len(self.errors) > before:
            return None
        places.update({(code, name): self._place(parts[name]) for name in (*EXPRESSIONS, "text") if name in parts})
        return Check(
            code=code,
            severity=severity,
            title=texts["title"],
            view=view,
            fails=f"({texts['expression']})",
            text=texts.get("text", texts["title"]),
            rationale=texts["title"],
            remedy=texts["remedy"],
            source=self._path.name,
            value=texts.get("value", "CAST(NULL AS DOUBLE)"),
            thresholds=thresholds,
            applies=texts.get("only", "true"),
        )

    def _mute(self, node: yaml.Node, checks: Mapping[str, Check]) -> Mute | None:
        parts = self._parts(node, "a mute", ("check", "reason", "until"), ("subject",))
        if parts is None:
            return None
        before = len(self.errors)
        check, reason = self._choice(parts["check"], "the check", checks), self._text(parts["reason"], "reason")
        until = _moment(self._value(parts["until"]))
        if until is None:
            self._wrong(parts["until"], "until must be a day or a time, such as 2026-12-31 or 2026-12-31T18:00:00Z")
        subject = {}
        for name, key, value in self._items(parts["subject"], "subject") if "subject" in parts else ():
            if name not in MUTED_BY:
                self._wrong(key, f"unknown key {name} of subject. Known: {', '.join(MUTED_BY)}")
            subject[name] = self._text(value, name)
        return Mute(check, reason, until, subject) if until and len(self.errors) == before else None


def _moment(value: Any) -> datetime | None:
    """Return the time in UTC; the end of a mute that is a day is the end of that day."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=timezone.utc) if value.tzinfo is None else value.astimezone(timezone.utc)
    if isinstance(value, date):
        return datetime.combine(value, time.max, timezone.utc)
    return None


def schema() -> dict[str, Any]:
    """Return the JSON schema of the file, for editors. read_checks verifies more, such as the names of thresholds."""
    text: dict[str, Any] = {"type": "string", "minLength": 1}
    number: dict[str, Any] = {"type": "number", "minimum": 0}
    severity: dict[str, Any] = {"enum": list(SEVERITIES)}
    code = {"type": "string", "pattern": f"^{_CODE.pattern}$"}

    def mapping(required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
        return {
            "type": "object",
            "additionalProperties": False,
            "properties": properties,
            **({"required": list(required)} if required else {}),
        }

    own = dict.fromkeys(("title", "expression", "remedy", "only", "value", "text"), text)
    kinds = {"code": code, "severity": severity, "subject": {"enum": list(VIEWS)}, "threshold": number}
    muted = mapping((), **dict.fromkeys(MUTED_BY, text))
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Own checks of the fleet insights",
        **mapping(
            (),
            checks={"type": "array", "items": mapping(REQUIRED, **own, **kinds)},
            thresholds={"type": "object", "additionalProperties": number},
            severities={"type": "object", "propertyNames": code, "additionalProperties": severity},
            skip={"type": "array", "items": code},
            mute={
                "type": "array",
                "items": mapping(("check", "reason", "until"), check=code, reason=text, until=text, subject=muted),
            },
        ),
    }


def schema_page() -> str:
    """Return docs/reference/insights_checks.schema.json."""
    return json.dumps(schema(), indent=2) + "\n"


# --- expressions -----------------------------------------------------------------------------------------------------------

_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`", re.DOTALL)
#: Functions that fail or run foreign code, or whose result differs from run to run, and words of subqueries and windows.
_FORBIDDEN = re.compile(
    r"\bselect\b|\bcurrent_(?:date|time|timestamp|timezone|user|database|catalog|schema)\b"
    r"|\b(?:over|raise_error|assert_true|(?:try_)?reflect|java_method|rand|randn|randstr|random|uuid|shuffle|uniform|now"
    r"|localtimestamp|monotonically_increasing_id|spark_partition_id|input_file_\w+|(?:session_)?window)\s*\(",
    re.IGNORECASE,
)


def _without_texts(expression: str) -> str:
    return _QUOTED.sub("''", expression)


def _forbidden(expression: str) -> str | None:
    """Return why an expression is refused before Spark analyses it."""
    plain = _without_texts(expression)
    found = re.search(r"--|/\*|;", plain)
    if found:
        return f"must not contain {found[0]}: remove the comment or the second statement"
    if (found := _FORBIDDEN.search(plain)) is not None:
        return f"must not use {found[0].rstrip('( ')}: an expression is a function of the columns of one row"
    return None
