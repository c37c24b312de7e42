# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of alerts from tools/alert_rules.py, and Prometheus' own programs from Debian packages."""

from __future__ import annotations

import subprocess

import binaries
from alert_rules import ALERTS, CHECK_ALERTS, RULES, SILENT, Alert, rules, runbook
from generated import anchor

__all__ = ["ALERTS", "CHECK_ALERTS", "RULES", "SILENT", "Alert", "anchor", "program", "promtool", "rules", "runbook"]

SUITE = "trixie"


def program(name: str, package: str = "") -> str:
    """Return the path of a program of a Debian package, by default the package of the same name."""
    return str(binaries.programs(package or name, SUITE) / "usr/bin" / name)


def promtool(*arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program("promtool"), *arguments], input=text, capture_output=True, text=True, check=False)
