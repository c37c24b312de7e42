# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The alerts fit the metrics, the root causes and the sections of docs/troubleshooting.md. tests/integration runs
promtool."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.health.cause import KINDS
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.metrics import BY_NAME
from support.alerts import ALERTS, CHECK_ALERTS, SILENT, Alert, anchor
from support.documents import CHECKOUT


def test_the_file_is_up_to_date() -> None:
    check = [sys.executable, "tools/alert_rules.py", "--check"]
    done = subprocess.run(check, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_kind_of_root_cause_has_an_alert_or_a_reason_for_none() -> None:
    told = {kind for alert in ALERTS for kind in alert.causes}
    assert told | set(SILENT) == set(KINDS)
    assert told & set(SILENT) == set()


@pytest.mark.parametrize("alert", [*ALERTS, *CHECK_ALERTS], ids=lambda alert: alert.name)
def test_alert_names_existing_metrics_and_sections(alert: Alert) -> None:
    used = set(re.findall(r"\bnatsops_\w+", alert.expr))
    assert used
    assert used <= set(BY_NAME)
    labels = {"fleet", *(label for name in used for label in BY_NAME[name].labels)}
    named = set(re.findall(r"\$labels\.(\w+)", alert.description))
    # The file is a template: Prometheus would show other braces and variables as they are.
    assert not re.search(r"[{}$]", re.sub(r"\{\{[^{}]*\}\}", "", alert.summary + alert.description))
    grouped = re.search(r"sum by \(([^)]*)\)", alert.expr)
    assert named <= (set(grouped[1].split(", ")) if grouped else labels)
    for _name, values in re.findall(r'(\w+)=~?"([^"]*)"', alert.expr):
        assert re.fullmatch(r"[\w|]+", values)
    headings = re.findall(r"^##+ (.*)$", (CHECKOUT / "docs/troubleshooting.md").read_text(), re.MULTILINE)
    assert alert.section in headings
    assert re.fullmatch(r"[a-z-]+", anchor(alert.section).replace(",", ""))


def test_names_are_used_once() -> None:
    every = [*ALERTS, *CHECK_ALERTS]
    assert len({alert.name for alert in every}) == len(every)


def test_alert_of_a_check_links_to_its_reference() -> None:
    headings = re.findall(r"^### (\w+)$", (CHECKOUT / "docs/reference/insights_checks.md").read_text(), re.MULTILINE)
    for alert in CHECK_ALERTS:
        assert alert.check in headings
        assert alert.runbook.endswith(f"/docs/reference/insights_checks.md#{alert.check.lower()}")
        assert not re.search(r"\{\w", alert.description)
    # Use a check that only reports notes, and a check that is critical from a threshold on.
    codes = {alert.check for alert in CHECK_ALERTS}
    assert "SERVER_001" not in codes and "BACKUP_103" in codes
