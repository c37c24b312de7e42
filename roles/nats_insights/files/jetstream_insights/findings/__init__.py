# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The findings: checks as data (of_*.py), the rows that they test (subjects.py, views.py), and their evaluation (evaluate.py).

Only views.py and evaluate.py import Spark.
"""

from __future__ import annotations

from jetstream_insights.findings import (
    of_backups,
    of_clusters,
    of_consumers,
    of_history,
    of_servers,
    of_streams,
    of_traffic,
)
from jetstream_insights.findings.registry import Registry

REGISTRY = Registry()
for _room in (of_servers, of_clusters, of_streams, of_consumers, of_backups, of_traffic, of_history):
    REGISTRY.add(*_room.CHECKS)
