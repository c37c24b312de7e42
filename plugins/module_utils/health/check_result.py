# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of a check as monitoring plugins report it: a status, messages and performance data. Pure: no I/O."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Callable

from ..units import parse_duration, size_bytes

OK, WARNING, UNKNOWN, CRITICAL = "OK", "WARNING", "UNKNOWN", "CRITICAL"
#: The statuses from good to bad. An unknown state may be bad, so only a state known to be bad is worse.
STATUSES = (OK, WARNING, UNKNOWN, CRITICAL)
Options = Mapping[str, Any]


def worst(statuses: Collection[str]) -> str:
    """Return the worst of these statuses, or UNKNOWN if there are none."""
    return max(statuses, key=STATUSES.index) if statuses else UNKNOWN


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


def judge(result: Result, options: Options, stem: str, value: float, text: str) -> None:
    """Compare a value with its thresholds and add the result, even if it is OK; do nothing if neither threshold is set."""
    warning, critical = options.get(f"{stem}_warn"), options.get(f"{stem}_critical")
    if warning is not None or critical is not None:
        bound = make_bound(PAIRS[result.check][stem], warning, critical)
        result.add(bound.judge(value, warning, critical), text)


def measure_pair(result: Result, options: Options, stem: str, name: str, value: float, unit: str = "") -> None:
    result.measure(name, value, unit, options.get(f"{stem}_warn"), options.get(f"{stem}_critical"))


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


def judge_single(result: Result, options: Options, option: str, value: float, text: str) -> None:
    if options[option] is not None:
        result.add(SINGLES[result.check][option].judge(value, None, options[option]), text)


def _round(value: float) -> float | int:
    return value if isinstance(value, int) else round(value, 6)
