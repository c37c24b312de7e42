# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Problems of a cluster (with the servers at fault) and of a configuration (with the option at fault), and
dangers of a change. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

ERROR, WARNING = "error", "warning"


@dataclass(frozen=True)
class Problem:
    """One problem. `servers`: the servers at fault, empty if no single server explains the problem (so no server can be
    tolerated). `progress`: figures that change while the problem is being solved, such as the number of entries that a
    replica is behind. `absent`: the members of the group that are not available or not in step, and so explain the
    problem."""

    code: str
    severity: str
    subject: str
    message: str
    servers: tuple[str, ...] = ()
    progress: tuple[object, ...] = ()
    absent: tuple[str, ...] = ()

    @property
    def state(self) -> tuple[object, ...]:
        """Return the state that is compared with an earlier sample to detect progress; it excludes times that grow on
        their own."""
        return (self.code, self.subject, self.servers, self.progress)

    def as_dict(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "severity": self.severity,
            "subject": self.subject,
            "message": self.message,
            "servers": list(self.servers),
            "absent": list(self.absent),
        }


class ConfigProblem(TypedDict):
    """A problem with a configuration, or with the run that should write it. `option`: the option at fault."""

    severity: str
    option: str
    message: str


def option_lines(problems: Iterable[Mapping[str, Any]], severity: str) -> list[str]:
    """Return a line for each configuration problem of this severity, which names the option."""
    return [f"{problem['option']}: {problem['message']}" for problem in problems if problem["severity"] == severity]


@dataclass(frozen=True)
class Danger:
    """Why a change is refused unless `allow` contains its kind."""

    kind: str
    message: str

    def as_dict(self) -> dict[str, str]:
        return {"kind": self.kind, "message": self.message}


def refused_dangers(dangers: Iterable[Danger], allow: Collection[str]) -> str:
    """Return why a change with these dangers is refused, with the remedy, or an empty text."""
    found = list(dangers)
    kinds = sorted({one.kind for one in found})
    if set(kinds) <= set(allow):
        return ""
    # All of them, because `allow` must contain all kinds.
    reasons = "; ".join(f"{one.message} ({one.kind})" for one in found)
    return f"{reasons}. To proceed anyway: allow: [{', '.join(kinds)}]"
