# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One small Spark session for all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

# Small tests are over before the optimising compiler and the parallel collector pay off.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC")

from jetstream_insights.session import FOR_LITTLE, session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    made = session("local[1]", "1g")
    # test_side_by_side compares what comes of it with what any other way makes.
    for name, value in FOR_LITTLE.items():
        made.conf.set(name, value)
    yield made
    made.stop()
