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
from support.lakes import Golden, make_golden

#: A third of the time of small plans went into collecting garbage.
LEAN = {
    # Each aggregation and each sort takes a page, by default of 32 MB.
    "spark.buffer.pageSize": "1m",
    # Plans as texts, for web pages that are off.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.ui.retainedExecutions": "1",
    **{f"spark.ui.retained{name}": "1" for name in ("Jobs", "Stages", "Tasks")},
    "spark.driver.extraJavaOptions": "-Xms1g -Xmn600m",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    made = session("local[1]", "1g", settings=LEAN)
    # test_side_by_side compares what comes of it with what any other way makes.
    for name, value in FOR_LITTLE.items():
        made.conf.set(name, value)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def golden(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Golden:
    return make_golden(tmp_path_factory.mktemp("golden"))
