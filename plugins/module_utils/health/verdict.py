# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict of a diagnosis: one word, the numbers of faults, and the servers that may still fail. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..problem import ERROR, Problem
from ..units import counted

CRITICAL, WARNING, NOTE = "critical", "warning", "note"
SEVERITIES = (CRITICAL, WARNING, NOTE)
OK = "ok"
#: Problems of groups that are out of service until they are repaired; other problems only reduce redundancy.
OUTAGES = ("_no_leader", "_no_quorum", "_leader_disputed")


def extent(problems: Iterable[Problem], info: Mapping[str, Any]) -> tuple[str, str]:
    """Return the first word of a critical verdict, and a sentence on the servers that may still fail, if known. `info`:
    the result of nats_cluster_info."""
    if "servers" not in info or any(one.severity == ERROR and one.code.endswith(OUTAGES) for one in problems):
        return "BROKEN", ""
    meta = info.get("meta") or {}
    answering = {server["name"] for server in info["servers"]}
    spare = len(answering & set(meta.get("members") or ())) - int(meta.get("quorum") or 0)
    if not meta.get("quorum") or spare < 0:
        return "DEGRADED", ""
    if spare:
        return "DEGRADED", f" The meta group has a quorum; {counted(spare, 'more server')} may fail."
    return "DEGRADED", " The meta group has a quorum, but loses it if one more server fails."


def verdict(
    severities: Sequence[str], skipped: Sequence[str], away: Sequence[str], critical: tuple[str, str]
) -> dict[str, str]:
    """Return `status` and `text`. `severities`: of all causes and findings. `skipped`: the checks that could not run.
    `away`: the servers in maintenance. `critical`: the `extent`."""
    counts = {severity: severities.count(severity) for severity in SEVERITIES}
    blind = f" Not checked: {', '.join(skipped)}." if skipped else ""
    if counts[CRITICAL]:
        word, margin = critical
        text = f"{word}: {counts[CRITICAL]} critical, {counts[WARNING]} warnings.{margin}{blind}"
        return {"status": CRITICAL, "text": text}
    if counts[WARNING]:
        return {"status": WARNING, "text": f"WORKING, with {counts[WARNING]} warnings.{blind}"}
    if away:
        return {"status": OK, "text": f"WORKING: in maintenance: {', '.join(away)}; no other problems found.{blind}"}
    return {"status": OK, "text": f"HEALTHY: no problems found.{blind}"}
