# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Spark session of the pipeline."""

from __future__ import annotations

import os
import shlex
import socket
import sys
import tempfile
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

#: What a lake of some minutes costs is planning and compiling, not rows: everything in one task, and no class made for any plan.
FOR_LITTLE = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Spark reads parts of a VARIANT by an expression that there is as generated code only (ScalarCastHelper).
    "spark.sql.variant.pushVariantIntoScan": "false",
}
#: The run is over before the optimising compiler pays off, which takes as long as all the rest. Without it the JVM
#: reserves 48 MB for code, which gold fills; then nothing is compiled any more.
_JAVA_FOR_SOON = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")
#: The JVM prints its own warnings to the standard output, where programs read what the jobs have done.
_JAVA = ("-XX:+DisplayVMOutputToStderr", "-Xlog:disable", "-Xlog:all=warning:stderr")
#: Where the user has options of the JVM.
_JAVA_OPTIONS = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")
#: What the pipeline relies on.
_MEANING = {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "true"}
#: Columns of counters, nearly each of whose values is another: a dictionary of them takes time and saves no space.
_COUNTERS = (
    *("messages", "bytes", "last_seq"),
    *("delivered_consumer_seq", "delivered_stream_seq", "ack_floor_consumer_seq", "ack_floor_stream_seq"),
)
#: What is chosen where the user has not.
_EVERYWHERE = {
    **{f"spark.hadoop.parquet.enable.dictionary#{name}": "false" for name in _COUNTERS},
    "spark.sql.parquet.compression.codec": "zstd",
    # As small as by the level that is the default, 3, and a tenth less CPU time in all of silver.
    "spark.hadoop.parquet.compression.codec.zstd.level": "1",
    # HotSpot never compiles a method of more than 8000 bytes: such a stage does better without one method for all of it.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # The hours of a table are written side by side: sorted by hour first, all rows of a task would have to be held.
    "spark.sql.maxConcurrentOutputFileWriters": "50",
    # So that of an hour's files only what may hold its last snapshot is read, also where 24 hours are asked for.
    "spark.sql.parquet.pushdown.inFilterThreshold": "100",
    "spark.ui.enabled": "false",
    # Each column would ask Java half a dozen times where in this program it was made.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
}
#: What is chosen that only the start of the JVM takes.
_AT_START = ("spark.driver.defaultJavaOptions",)
#: What PySpark asks Java for, by its last name or its whole one, with each column that it makes.
_USED_MOST = (
    "org.apache.spark.sql.functions",
    "org.apache.spark.api.python.PythonUtils",
    "org.apache.spark.sql.api.python.PythonSQLUtils",
)


class _Remembered:
    """A Java class whose methods are asked for once. Py4J asks Java for the class and then for its method at each call, which
    is half of what it costs to make a column."""

    def __init__(self, of: Any) -> None:
        self._of = of

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        setattr(self, name, found)
        return found


def connect_url(master: str | None) -> str:
    """Return the server of Spark Connect that `master` or SPARK_REMOTE names, such as ``sc://host:15002``; empty for none."""
    url = os.environ.get("SPARK_REMOTE", "") if master is None else master
    return url if url.startswith("sc://") else ""


def is_local(master: str | None) -> bool:
    """Return whether Spark runs in this process on this `master`: without one, unless spark-submit or SPARK_REMOTE says
    another."""
    if master is None:
        return "PYSPARK_GATEWAY_PORT" not in os.environ and not connect_url(master)  # which spark-submit sets
    return master.startswith("local")


def _of_the_same_meaning(active: SparkSession) -> SparkSession:
    """Return somebody's session, or one beside it where times or errors would mean something else in it: hours of other time
    zones would be written to, and found nowhere."""
    if all(active.conf.get(key) == value for key, value in _MEANING.items()):
        return active
    own = active.newSession()
    for key, value in _MEANING.items():
        own.conf.set(key, value)
    return own


def session(
    master: str | None = None,
    memory: str | None = None,
    little: bool = False,
    settings: Mapping[str, str] | None = None,
    soon: bool = False,
) -> SparkSession:
    """Return the session: the one that there is, or a new one on `master`, such as ``local[2]``, on what spark-submit says, or on
    this machine. ``sc://host:15002`` is a server of Spark Connect, to which SPARK_REMOTE may lead, too.

    `memory` is that of the driver, such as ``2g``: on a local master all there is, with Spark Connect the server's own choice.
    On a local master, `little`: whether what there is to read is so little that starting costs more than reading; `soon`: whether
    it is little enough for the run to be over soon. Results do not depend on either. `settings` are Spark's own; they and what
    spark-submit, its defaults or PYSPARK_SUBMIT_ARGS set win over what is chosen here.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return _of_the_same_meaning(active)
    if url := connect_url(master):
        return _connected(url, settings or {})
    # Workers must run the interpreter that has the packages, not whichever is first on their PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    wanted = dict(settings or {})
    if memory is not None:
        wanted["spark.driver.memory"] = memory
    chosen = _chosen(little, little or soon) if is_local(master) else dict(_EVERYWHERE)
    # The JVM is started with what only its start takes, and then knows what the user has set.
    at_start = {**{key: value for key, value in chosen.items() if key in _AT_START}, **wanted}
    SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(at_start.items())))
    known = dict(SparkConf().getAll())
    builder = SparkSession.builder.appName("jetstream-insights")
    if master is not None or (is_local(master) and "spark.master" not in known):
        builder = builder.master(master or "local[*]")
    free = {key: value for key, value in chosen.items() if key not in known}
    for key, value in {**free, **wanted, **_MEANING}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    jvm = spark.sparkContext._jvm
    for name in _USED_MOST:
        vars(jvm)[name] = vars(jvm)[name.rpartition(".")[2]] = _Remembered(getattr(jvm, name))
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _connected(url: str, settings: Mapping[str, str]) -> SparkSession:
    """Return a session on a server of Spark Connect, which was started with settings of its own. Raises OSError when nothing
    answers there."""
    where = urlsplit(url)
    try:
        # Spark's client would try it again for ten minutes.
        socket.create_connection((where.hostname, where.port or 15002), 10).close()
    except OSError as error:
        raise OSError(f"{url} does not answer: {error.strerror or error}") from error
    from google.protobuf.internal import api_implementation

    # A plan is one message in another, some hundred deep; protobuf by default reads no more than a hundred.
    api_implementation._c_module.SetAllowOversizeProtos(True)
    spark = SparkSession.builder.remote(url).getOrCreate()
    chosen = {key: value for key, value in _EVERYWHERE.items() if key.startswith("spark.sql.")}
    for key, value in {**chosen, **settings, **_MEANING}.items():
        spark.conf.set(key, value)
    return spark


def _library_directory() -> str:
    """Return the directory where the JVM unpacks the libraries that it loads: the temporary directory, or if that is mounted
    noexec, another one."""
    for directory in (tempfile.gettempdir(), "/var/tmp", os.path.expanduser("~")):
        if os.access(directory, os.W_OK) and not os.statvfs(directory).f_flag & os.ST_NOEXEC:
            return directory
    return tempfile.gettempdir()


def _chosen(little: bool, soon: bool) -> dict[str, str]:
    """Return the settings of a local master."""
    java = [*_JAVA, *(_JAVA_FOR_SOON if soon else ())]
    # Throughput is what counts, not short pauses: a tenth less CPU time than with the JVM's default collector. There may be
    # only one choice of it, and extraJavaOptions are the user's.
    if not any("GC" in os.environ.get(name, "") for name in _JAVA_OPTIONS):
        java.append("-XX:+UseSerialGC" if little else "-XX:+UseParallelGC")
    temporary = _library_directory()
    if temporary != "/tmp" and not any("java.io.tmpdir" in os.environ.get(name, "") for name in _JAVA_OPTIONS):
        java.append(f"-Djava.io.tmpdir={shlex.quote(temporary)}")
    return {
        **_EVERYWHERE,
        # Otherwise the host's name is looked up, which may be slow or point elsewhere.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # The default of 200 is for clusters; adaptive execution puts small ones together.
        "spark.sql.shuffle.partitions": "64",
        "spark.driver.defaultJavaOptions": " ".join(java),
        **(FOR_LITTLE if little else {}),
    }
