# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The findings: checks as data (*_checks.py), the rows that they test (subjects.py, *views.py), and the evaluation (evaluate.py).

Only view_rows.py, *views.py and evaluate.py import Spark.
"""

from __future__ import annotations

from jetstream_insights.findings import (
    asset_checks,
    asset_history_checks,
    backup_checks,
    capacity_checks,
    cluster_checks,
    consumer_checks,
    group_history_checks,
    server_checks,
    server_history_checks,
    stream_checks,
    traffic_checks,
)
from jetstream_insights.findings.registry import Registry

REGISTRY = Registry()
for _module in (
    server_checks,
    cluster_checks,
    stream_checks,
    consumer_checks,
    backup_checks,
    asset_checks,
    traffic_checks,
    server_history_checks,
    group_history_checks,
    asset_history_checks,
    capacity_checks,
):
    REGISTRY.add(*_module.CHECKS)
