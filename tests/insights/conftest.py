# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Provides one small Spark session for all tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

# Small tests end before the optimising compiler and the parallel collector pay off. For each file and folder Hadoop runs
# `chmod`, which takes three times as long without VFORK.
os.environ.setdefault(
    "JDK_JAVA_OPTIONS",
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
    + (" -Djdk.lang.Process.launchMechanism=VFORK" if sys.platform == "linux" else ""),
)

from jetstream_insights.lake import Lake
from jetstream_insights.session import session
from support.lakes import Golden, shared_golden
from support.two_days import make_two_days

#: Without these settings, garbage collection takes a third of the time of small plans.
LEAN = {
    # Each aggregation and each sort allocates a page, which is 32 MB by default.
    "spark.buffer.pageSize": "1m",
    # Plans are only kept as text for the web pages, which are disabled.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.ui.retainedExecutions": "1",
    **{f"spark.ui.retained{name}": "1" for name in ("Jobs", "Stages", "Tasks")},
    "spark.driver.extraJavaOptions": "-Xms2g -Xmn1300m",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # test_side_by_side compares the tables with those made with different settings.
    made = session("local[1]", "2g", little=True, settings=LEAN)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def golden(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Golden:
    own = tmp_path_factory.getbasetemp()
    return shared_golden(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own)


@pytest.fixture(scope="session")
def two_days(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return make_two_days(spark, tmp_path_factory.mktemp("two_days"))


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder into which pip installed the package of the pipeline."""
    site, project = tmp_path_factory.mktemp("wheel"), Path(__file__).parents[2] / "roles/nats_insights/files"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*install, "--no-build-isolation", "--target", str(site), str(project)], check=True)
    return site


# --- two processes --------------------------------------------------------------------------------------------------------

#: Files whose tests share expensive fixtures, for one process.
TOGETHER = {
    "test_delta.py": "test_connect.py",
    "test_domains.py": "test_gold.py",
    "test_gold_report.py": "test_gold.py",
    "test_wheel.py": "test_connect.py",
}
#: The files that take longest according to `python3 tools/run_parts.py --slowest 40 test-insights`. These files start
#: first, so both processes end at about the same time.
LONGEST = (
    "test_connect.py", "test_gold.py", "test_findings.py", "test_silver.py", "test_facts.py", "test_gold_parts.py",
    "test_source.py", "test_judged_hours.py", "test_older_lake.py", "test_archive.py", "test_delta.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: Any, log: Any) -> Any:
    """Give each file to one process, because its tests share fixtures."""
    from xdist.scheduler import LoadScopeScheduling

    class OfFiles(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            name = Path(nodeid.partition("::")[0]).name
            return TOGETHER.get(name, name)

    return OfFiles(config, log)
