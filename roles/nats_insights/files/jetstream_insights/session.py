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

#: Rules of the optimizer that take a quarter of the time of planning, and save time only with many rows.
_FOR_MANY_ROWS = (
    *("BooleanSimplification", "FoldablePropagation", "PruneFilters", "RemoveRedundantAliases"),
    *("ReorderAssociativeOperator", "SimplifyBinaryComparison", "SimplifyConditionals"),
)
#: A lake of some minutes spends its time on planning and compiling, not on rows: use one task, and compile no class for a plan.
FOR_LITTLE = {
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.optimizer.excludedRules": ",".join(
        f"org.apache.spark.sql.catalyst.optimizer.{name}" for name in _FOR_MANY_ROWS
    ),
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Spark reads parts of a VARIANT with an expression that exists only as generated code (ScalarCastHelper).
    "spark.sql.variant.pushVariantIntoScan": "false",
}
#: A short run ends before the optimising compiler pays off: it would double the run time. Without it the JVM reserves 48 MB for
#: code, which gold fills; after that nothing is compiled any more.
_JAVA_FOR_SOON = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")
#: A resident session makes the same plans every hour. By default Spark keeps 100 generated classes, far fewer than an hour needs,
#: so the JVM would compile and optimize the same classes every hour.
_FOR_RESIDENT = {"spark.sql.codegen.cache.maxEntries": "5000"}
#: By default the JVM prints its own warnings to the standard output, where programs read the results of the jobs.
_JAVA = ("-XX:+DisplayVMOutputToStderr", "-Xlog:disable", "-Xlog:all=warning:stderr")
#: Variables with the user's options of the JVM.
_JAVA_OPTIONS = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")
#: Settings on which the results depend.
_MEANING = {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "true"}
#: Columns of counters, in which nearly every value is distinct: a dictionary of them takes time and saves no space.
_COUNTERS = (
    *("messages", "bytes", "last_seq"),
    *("delivered_consumer_seq", "delivered_stream_seq", "ack_floor_consumer_seq", "ack_floor_stream_seq"),
)
#: Defaults for settings that the user has not set.
_EVERYWHERE = {
    **{f"spark.hadoop.parquet.enable.dictionary#{name}": "false" for name in _COUNTERS},
    "spark.sql.parquet.compression.codec": "zstd",
    # Files are as small as with the default level, 3, and all of silver takes a tenth less CPU time.
    "spark.hadoop.parquet.compression.codec.zstd.level": "1",
    # HotSpot never compiles a method of more than 8000 bytes: such a stage is faster without a single method for all of it.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # Write the hours of a table concurrently: sorting by hour first would hold all rows of a task in memory.
    "spark.sql.maxConcurrentOutputFileWriters": "50",
    # Even for 24 hours, read only the row groups of an hour's files that may have its last snapshot.
    "spark.sql.parquet.pushdown.inFilterThreshold": "100",
    "spark.ui.enabled": "false",
    # Otherwise each column calls Java half a dozen times to record its place in this program.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
}
#: Defaults that take effect only at the start of the JVM. PySpark starts a shell, for which Spark would enable the progress bar.
_AT_START = ("spark.driver.defaultJavaOptions", "spark.ui.showConsoleProgress")
#: Java classes that PySpark calls for each column, by their last name or their full one.
_USED_MOST = (
    "org.apache.spark.sql.functions",
    "org.apache.spark.api.python.PythonUtils",
    "org.apache.spark.sql.api.python.PythonSQLUtils",
)

#: Hadoop's settings of other file systems, of network services and of MapReduce, by prefix. A local master with a lake on a local
#: disk uses none of them.
_REMOTE = (
    *("yarn.", "ipc.", "rpc.", "ha.", "net.", "dfs.", "ftp."),
    *(f"fs.{name}." for name in ("adl", "azure", "ftp", "gs", "s3a", "viewfs")),
    *(f"hadoop.{name}." for name in ("http", "kerberos", "registry", "rpc", "security", "ssl", "zk")),
    *(f"mapreduce.{name}." for name in ("client", "cluster", "job", "jobhistory", "map", "reduce", "shuffle", "task")),
)


class _Remembered:
    """A Java class that caches its methods. Py4J requests the class and then its method from Java at each call, which is half
    of the cost of a column."""

    def __init__(self, of: Any) -> None:
        self._wrapped = of

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._wrapped, name)
        setattr(self, name, found)
        return found


def connect_url(master: str | None) -> str:
    """Return the Spark Connect server in `master` or SPARK_REMOTE, such as ``sc://host:15002``; empty for none."""
    url = os.environ.get("SPARK_REMOTE", "") if master is None else master
    return url if url.startswith("sc://") else ""


def is_local(master: str | None) -> bool:
    """Return whether Spark runs in this process with this `master`: without one it does, unless spark-submit or SPARK_REMOTE set
    another."""
    if master is None:
        return "PYSPARK_GATEWAY_PORT" not in os.environ and not connect_url(master)  # which spark-submit sets
    return master.startswith("local")


def _match_session(active: SparkSession) -> SparkSession:
    """Return an existing session, or a new one next to it if its time zone or error handling differs: it would write hours of
    other time zones, where no reader finds them."""
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
    resident: bool = False,
) -> SparkSession:
    """Return the session: the existing one, or a new one on `master`, such as ``local[2]``, on the master of spark-submit, or on
    this machine. ``sc://host:15002`` is a Spark Connect server, which SPARK_REMOTE may name as well.

    `memory` is that of the driver, such as ``2g``: on a local master the total, with Spark Connect set on the server instead.
    On a local master, `little`: whether the input is so small that starting costs more than reading; `soon`: whether it is small
    enough for the run to end soon. `resident`: whether the session executes further runs. None of them changes results.
    `settings` are Spark's own; they, and the settings of spark-submit, its defaults or PYSPARK_SUBMIT_ARGS, override the defaults
    here.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return _match_session(active)
    if url := connect_url(master):
        return _connected(url, settings or {})
    # Workers must run the interpreter that has the packages, not the first one on their PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    wanted = dict(settings or {})
    if memory is not None:
        wanted["spark.driver.memory"] = memory
    chosen = _chosen(little, little or soon) if is_local(master) else dict(_EVERYWHERE)
    if resident:
        chosen |= _FOR_RESIDENT
    # Start the JVM with the settings that must be given at the start; then read the user's settings from it.
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
    if little and is_local(master):
        _forget_remote(jvm, spark.sparkContext._jsc.hadoopConfiguration())
    return spark


class SizeSettings:
    """The settings of a session on this machine that executes runs with little and with more data. The user's own stay."""

    def __init__(self, spark: SparkSession) -> None:
        own = dict(SparkConf().getAll())
        self._spark = spark
        self._usual = {name: spark.conf.get(name, None) for name in FOR_LITTLE.keys() - own.keys()}

    def use(self, little: bool) -> None:
        """Set the settings for little data, or for more."""
        for name, usual in self._usual.items():
            value = FOR_LITTLE[name] if little else usual
            if value is None:
                self._spark.conf.unset(name)
            else:
                self._spark.conf.set(name, value)


def _forget_remote(jvm: Any, hadoop: Any) -> None:
    """Remove most of Hadoop's settings, which are about other machines: for each table that is read or written, Spark copies all
    settings several times and compresses them one by one."""
    jvm.org.apache.hadoop.mapred.JobConf()  # which loads those of YARN and MapReduce
    for prefix in _REMOTE:
        for name in list(hadoop.getPropsWithPrefix(prefix)):
            hadoop.unset(prefix + name)


def _connected(url: str, settings: Mapping[str, str]) -> SparkSession:
    """Return a session on a Spark Connect server, which has its own start settings. Raises OSError if it does not answer."""
    where = urlsplit(url)
    try:
        # Spark's client would retry for ten minutes.
        socket.create_connection((where.hostname, where.port or 15002), 10).close()
    except OSError as error:
        raise OSError(f"{url} does not answer: {error.strerror or error}") from error
    from google.protobuf.internal import api_implementation

    # A plan is a message nested several hundred levels deep; protobuf by default reads no more than a hundred.
    api_implementation._c_module.SetAllowOversizeProtos(True)
    spark = SparkSession.builder.remote(url).getOrCreate()
    chosen = {key: value for key, value in _EVERYWHERE.items() if key.startswith("spark.sql.")}
    for key, value in {**chosen, **settings, **_MEANING}.items():
        spark.conf.set(key, value)
    return spark


def _library_directory() -> str:
    """Return the directory where the JVM unpacks the libraries that it loads: the temporary directory, or another one if that is
    mounted noexec."""
    for directory in (tempfile.gettempdir(), "/var/tmp", os.path.expanduser("~")):
        if os.access(directory, os.W_OK) and not os.statvfs(directory).f_flag & os.ST_NOEXEC:
            return directory
    return tempfile.gettempdir()


def _chosen(little: bool, soon: bool) -> dict[str, str]:
    """Return the settings of a local master."""
    java = [*_JAVA, *(_JAVA_FOR_SOON if soon else ())]
    # Throughput matters, not short pauses: a tenth less CPU time than with the JVM's default collector. Only one collector may
    # be selected, and extraJavaOptions belong to the user.
    if not any("GC" in os.environ.get(name, "") for name in _JAVA_OPTIONS):
        java.append("-XX:+UseSerialGC" if little else "-XX:+UseParallelGC")
    temporary = _library_directory()
    if temporary != "/tmp" and not any("java.io.tmpdir" in os.environ.get(name, "") for name in _JAVA_OPTIONS):
        java.append(f"-Djava.io.tmpdir={shlex.quote(temporary)}")
    return {
        **_EVERYWHERE,
        # Otherwise Spark resolves the host's name, which may be slow or return another address.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # The default of 200 is for clusters; adaptive execution merges small partitions.
        "spark.sql.shuffle.partitions": "64",
        "spark.driver.defaultJavaOptions": " ".join(java),
        **(FOR_LITTLE if little else {}),
    }
