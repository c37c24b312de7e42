# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The headroom described in capacity.py: the servers and the space that remain after the failure of a server or a zone."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from jetstream_insights.gold.common import GoldSettings, at, union
from jetstream_insights.gold.forecast import ENOUGH
from jetstream_insights.gold.tables import MOMENT
from jetstream_insights.keys import CLUSTER, STREAM

_MOMENT = tuple(column.name for column in MOMENT)

#: The part of the bytes of streams without max_bytes that may have no slope yet: those of new streams.
_NEW = 0.1


def headroom(
    report_servers: DataFrame, stream_replicas: DataFrame, forecast_rows: DataFrame, settings: GoldSettings
) -> DataFrame:
    """Return for each server, and each zone, whether the rest of its cluster could take its data if it failed now."""
    servers = report_servers.where("answered AND jetstream").select(
        *_MOMENT, *CLUSTER, "server", "zone", "max_storage", "storage", "reserved_storage"
    )
    held = _held(at(stream_replicas, servers.select("fleet", "snapshot").distinct()), servers, forecast_rows)
    stored = held.groupBy("fleet", "snapshot", "server").agg(F.sum("size").alias("size"))
    taken = F.greatest("storage", "reserved_storage", F.coalesce("size", F.lit(0.0)))
    room = F.when(F.col("max_storage") > 0, F.greatest(F.col("max_storage") * F.lit(settings.fill) - taken, F.lit(0.0)))
    with_room = servers.join(F.broadcast(stored), on=["fleet", "snapshot", "server"], how="left").select(
        *_MOMENT, *CLUSTER, "server", "zone", room.alias("room")
    )
    everybody = with_room.groupBy(*_MOMENT, *CLUSTER).agg(
        F.collect_list(F.struct("server", "zone", "room")).alias("servers")
    )
    failing = union(
        [_failing(held, with_room, everybody, scope, name) for scope, name in (("server", "server"), ("zone", "zone"))]
    )
    joined = failing.join(F.broadcast(_growth(held)), on=["fleet", "snapshot", *CLUSTER], how="left")
    slope = F.when(F.coalesce("known", F.lit(True)), F.coalesce("grown", F.lit(0.0)) - F.col("ended"))
    after = F.col("free") - F.col("need")
    days = F.when(after < 0, 0.0).when(F.col("slope") > 0, after / F.col("slope"))
    has_space = (after >= 0) & (F.col("largest").isNull() | (F.col("largest") <= F.col("largest_free")))
    return joined.withColumn("slope", slope).withColumns(
        {"after": after, "has_space": has_space, "fits": has_space & (F.col("unplaced") == 0), "days": days}
    )


def _held(replicas: DataFrame, servers: DataFrame, forecast_rows: DataFrame) -> DataFrame:
    """Return the file replicas of the servers: their `size`, the number of `copies` and configured replicas of their stream, and
    the bytes a day by which each copy grows: 0 below max_bytes, which `size` contains, and null if unknown."""
    known = forecast_rows.where(f"scope = 'stream' AND resource = 'file' AND days_long >= {ENOUGH}")
    # A stream that moved to another cluster has two forecasts.
    slopes = known.groupBy("fleet", "domain", F.col("name").alias("asset")).agg(F.max("slope").alias("stream_slope"))
    limited = F.coalesce(F.col("max_bytes") > 0, F.lit(False))
    copies = F.count(F.lit(1)).over(Window.partitionBy("fleet", "snapshot", *STREAM))
    return (
        replicas.where(F.col("storage") == "file")
        .join(F.broadcast(servers.select("fleet", "snapshot", "server", "zone")), on=["fleet", "snapshot", "server"])
        .select(
            "fleet", "snapshot", *STREAM, "cluster", "server", "zone", limited.alias("limited"), "num_replicas",
            F.greatest(F.coalesce("bytes", F.lit(0)), F.coalesce("max_bytes", F.lit(0))).cast("double").alias("size"),
        )
        .withColumns({"copies": copies, "asset": F.concat_ws("/", "account", "stream")})
        .join(slopes, on=["fleet", "domain", "asset"], how="left")
        .withColumn("growth", F.when(F.col("limited"), F.lit(0.0)).otherwise(F.col("stream_slope")))
    )  # fmt: skip


def _growth(held: DataFrame) -> DataFrame:
    """Return the growth of all replicas of each cluster, and whether it is `known`."""
    unknown = F.coalesce(F.sum(F.when(F.col("growth").isNull(), F.col("size"))), F.lit(0.0))
    unlimited = F.coalesce(F.sum(F.when(~F.col("limited"), F.col("size"))), F.lit(0.0))
    return held.groupBy("fleet", "snapshot", *CLUSTER).agg(
        F.sum("growth").alias("grown"), (unknown <= unlimited * _NEW).alias("known")
    )


def _failing(held: DataFrame, servers: DataFrame, everybody: DataFrame, scope: str, name: str) -> DataFrame:
    """Return the data to rebuild and the data lost if each server or zone fails, and the space on the remaining servers."""
    key = ["fleet", "snapshot", *CLUSTER, name]
    left = F.filter("servers", lambda server: F.coalesce(server[name] != F.col(name), F.lit(True)))
    rooms = F.transform("left", lambda server: server["room"])
    units = (
        servers.where(F.col(name).isNotNull())
        .select(*_MOMENT, *CLUSTER, name)
        .distinct()
        .join(F.broadcast(everybody), on=[*_MOMENT, *CLUSTER])
        .withColumn("left", left)
        .withColumns({"rooms": rooms, "servers_left": F.size("left")})
    )
    sums = _replicas_of_failed(held, units.select(*key, "servers_left"), key)
    return units.join(sums, on=key, how="left").select(
        *_MOMENT,
        *CLUSTER,
        F.lit(scope).alias("scope"),
        F.col(name).alias("name"),
        "servers_left",
        *(F.coalesce(column, F.lit(0)).alias(column) for column in ("need", "replicas", "unplaced", "lost", "ended")),
        "largest",
        # Null as soon as one of them is unknown.
        F.aggregate("rooms", F.lit(0.0), lambda total, room: total + room).alias("free"),
        F.array_max("rooms").alias("largest_free"),
    )


def _replicas_of_failed(held: DataFrame, units: DataFrame, key: list[str]) -> DataFrame:
    """Return the sums over the replicas of each unit. `unplaced`: those whose stream needs more servers than remain. `ended`: the
    growth of those that are not rebuilt."""
    stream_rows = (
        held.where(F.col(key[-1]).isNotNull())
        .groupBy(*key, "account", "stream")
        .agg(
            F.count(F.lit(1)).alias("here"),
            F.max("copies").alias("copies"),
            F.max(F.greatest("num_replicas", F.lit(1))).alias("configured"),
            F.sum("size").alias("size"),
            F.max("size").alias("largest"),
            F.max("growth").alias("growth"),
        )
        .join(F.broadcast(units), on=key)
    )
    survives = F.col("here") < F.col("copies")
    unplaced = F.least(F.col("here"), F.greatest(F.col("configured") - F.col("servers_left"), F.lit(0)))
    rebuilt = F.col("here") - F.col("unplaced")

    def surviving(value: Column | str) -> Column:
        return F.when(survives, value if isinstance(value, Column) else F.col(value))

    return (
        stream_rows.withColumn("unplaced", unplaced)
        .groupBy(*key)
        .agg(
            F.sum(surviving(F.col("size") * rebuilt / F.col("here"))).alias("need"),
            F.sum(surviving("here")).alias("replicas"),
            F.sum(surviving("unplaced")).alias("unplaced"),
            F.max(surviving(F.when(rebuilt > 0, F.col("largest")))).alias("largest"),
            F.sum(F.when(~survives, F.col("largest"))).alias("lost"),
            F.sum(F.when(survives, F.col("unplaced")).otherwise(F.col("here")) * F.col("growth")).alias("ended"),
        )
    )
