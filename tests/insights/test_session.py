# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of a session's JVM, and which session is used."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import textwrap
from typing import Any

import pytest
from jetstream_insights.cli import main
from jetstream_insights.session import _chosen, session
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

COLLECTORS = ("-XX:+UseSerialGC", "-XX:+UseParallelGC")
SCRIPT = """
    from jetstream_insights.session import session
    own = {"spark.sql.parquet.compression.codec": "snappy"}
    spark = session("local[1]", "600m", little=True, settings=own, resident=True)
    names = ("shuffle.partitions", "parquet.compression.codec", "session.timeZone", "codegen.hugeMethodLimit")
    print(*(spark.conf.get(f"spark.sql.{name}") for name in names), spark.conf.get("spark.driver.memory"))
    print(spark.conf.get("spark.sql.codegen.cache.maxEntries"))
    # Progress bars would hide the errors in a log file.
    print(spark.conf.get("spark.ui.showConsoleProgress"))
"""
SETTINGS = {
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.session.timeZone": "Europe/Berlin",
    "spark.driver.extraJavaOptions": "-XX:+PrintCodeCache",
}


@pytest.fixture(scope="module")
def started() -> subprocess.CompletedProcess[str]:
    """Return the output of a process that started a session for little data, with a user's settings."""
    own = {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"}
    given = " ".join(f"--conf {name}={value}" for name, value in SETTINGS.items())
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT)]
    variables = {**own, "PYSPARK_SUBMIT_ARGS": f"{given} pyspark-shell"}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=variables)


def test_jvm_output_is_not_among_the_results(started: subprocess.CompletedProcess[str]) -> None:
    """When it ends, the JVM reports the use of its code cache in the same way as it warns about a full one; without an
    optimising compiler there is only one cache."""
    assert len(started.stdout.splitlines()) == 3
    assert "CodeCache: size=245760Kb" in started.stderr


def test_user_settings_take_precedence(started: subprocess.CompletedProcess[str]) -> None:
    """Users cannot set the time zone, because it determines the rows: hours are in UTC."""
    assert started.stdout.split()[:5] == ["3", "snappy", "UTC", "8000", "600m"]


def test_a_resident_session_keeps_the_classes_of_an_hour(started: subprocess.CompletedProcess[str]) -> None:
    assert started.stdout.split()[5:] == ["5000", "false"]


def test_runs_that_end_soon_have_the_java_options_of_little_data() -> None:
    def options(little: bool, soon: bool) -> set[str]:
        return set(shlex.split(_chosen(little, soon)["spark.driver.defaultJavaOptions"])) - set(COLLECTORS)

    assert options(False, True) == options(True, True) > options(False, False)
    assert options(True, True) - options(False, False) == {"-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"}


def test_native_libraries_are_unpacked_on_an_executable_mount() -> None:
    """Parquet's zstd is such a library. The JVM ignores TMPDIR, and its default, /tmp, may be mounted noexec."""
    script = (
        "from jetstream_insights.session import _chosen; print(_chosen(True, True)['spark.driver.defaultJavaOptions'])"
    )
    noexec = 'mount --bind /tmp /tmp; mount -o remount,bind,noexec /tmp; exec "$@"'

    def temporary(*prefix: str, **variables: str) -> list[str]:
        own = {name: value for name, value in os.environ.items() if name not in ("TMPDIR", "JDK_JAVA_OPTIONS")}
        command = [*prefix, sys.executable, "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env={**own, **variables})
        return [word for word in shlex.split(done.stdout) if "java.io.tmpdir" in word]

    assert temporary(TMPDIR="/var/tmp") == ["-Djava.io.tmpdir=/var/tmp"]
    assert temporary(TMPDIR="/var/tmp", JDK_JAVA_OPTIONS="-Djava.io.tmpdir=/elsewhere") == []
    if os.geteuid() != 0:
        pytest.skip("NOT RUN: only root can mount /tmp noexec for this test")
    assert temporary("unshare", "--mount", "sh", "-ec", noexec, "sh") == ["-Djava.io.tmpdir=/var/tmp"]


def test_java_functions_are_resolved_once(spark: SparkSession) -> None:
    """Without a cache, PySpark would resolve a Java function whenever it creates a column."""
    jvm: Any = spark.sparkContext._jvm
    for name in ("functions", "org.apache.spark.sql.functions"):
        assert getattr(jvm, name).lit is getattr(jvm, name).lit
    assert jvm.PythonUtils.toSeq is jvm.PythonUtils.toSeq
    with pytest.raises(Py4JError, match="none_such does not exist"):
        jvm.functions.none_such()


@pytest.mark.parametrize("text", ["spark.ui.enabled", "ui=true"])
def test_invalid_spark_setting_is_rejected(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["silver", "--lake", "/nowhere", "--conf", text])
    assert "--conf" in capsys.readouterr().err


def test_session_in_a_different_time_zone_is_neither_changed_nor_used(spark: SparkSession) -> None:
    """A session in another time zone may belong to a notebook; with it, hours would be written to different folders
    from those that are read."""
    zone = "spark.sql.session.timeZone"
    assert session().conf.get(zone) == "UTC"
    spark.conf.set(zone, "Europe/Berlin")
    try:
        own = session()
        assert (own.conf.get(zone), spark.conf.get(zone)) == ("UTC", "Europe/Berlin")
        assert own.sql("SELECT hour(timestamp '2026-11-21 18:00:00Z') AS hour").collect()[0]["hour"] == 18
    finally:
        spark.conf.set(zone, "UTC")
