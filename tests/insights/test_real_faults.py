# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real faults on real clusters: each fault is found and named, with its cause and first action, and no critical finding
is false."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from support.nats_processes import VERSIONS
from support.real_faults_report import capture_and_judge, problems


@pytest.mark.chaos
def test_reports_of_real_faults_are_right(spark: SparkSession) -> None:
    """`make bench BENCH=insights/faults` prints a table of the same scores."""
    assert not [*problems(capture_and_judge(VERSIONS))]
