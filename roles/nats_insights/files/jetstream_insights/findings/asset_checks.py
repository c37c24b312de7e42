# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of the documents of assets.

The playbook assets_drift compares documents with the live assets (module_utils/assets/drift.py); the checks evaluate its
last result.
"""

from __future__ import annotations

from ansible_collections.natsops.jetstream.plugins.module_utils.thresholds import COMPARED_HOURS

from jetstream_insights.findings.registry import WARNING, Check, Threshold

_SOURCE = "module_utils/assets/drift.py; docs/assets.md"

CHECKS = (
    Check(
        code="ASSETS_101",
        severity=WARNING,
        title="Assets differ from their document",
        view="documents",
        needs=("reason",),
        fails="reason <> ''",
        value="CAST(drifting AS DOUBLE)",
        unit="assets",
        text="{reason}",
        rationale="The next plan of the document reverts changes that were made without it.",
        remedy="playbook `assets_plan` with document `{name}`: carry out the plan, or change the document",
        source=_SOURCE,
    ),
    Check(
        code="ASSETS_102",
        severity=WARNING,
        title="A document has not been compared with its assets",
        view="documents",
        thresholds=(Threshold("age", COMPARED_HOURS * 3600, "s", "since the last comparison"),),
        fails="checked_age > :age",
        value="checked_age",
        text="it was last compared with its assets {checked_age|seconds} ago",
        rationale="Changes that were made without the document since then are unknown.",
        remedy="playbook `assets_drift` with document `{name}`, every night",
        source=_SOURCE,
    ),
)
