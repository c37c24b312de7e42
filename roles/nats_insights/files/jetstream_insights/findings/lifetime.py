# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a finding lasts. A finding is what one check says of one subject: one row, however many looks saw it.

It is open until a look passes, or until its subject is gone from its fleet's last look. A look that cannot tell ends nothing.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from jetstream_insights.findings.registry import FAIL, PASS, UNKNOWN
from jetstream_insights.findings.subjects import SUBJECT
from jetstream_insights.keys import CLUSTER

OPEN, FIXED = "open", "fixed"
#: What makes two findings the same one.
IDENTITY = ("fleet", "check", "kind", *SUBJECT)
#: What a finding names beside the servers that may be silent.
_ASSETS = tuple(name for name in SUBJECT if name not in (*CLUSTER, "server"))


def findings(results: DataFrame, earlier: DataFrame | None = None) -> DataFrame:
    """Return what is not as it should be, what is not known, and what was fixed meanwhile, with its `state`.

    `since` is when it was seen first and `taken` when last; all else is of the last time. `earlier`: the findings of the day
    before, of which those that failed and were open go on.
    """
    looks = results.withColumn("identity", _identity())
    bad = looks.where(F.col("result") != PASS)
    if earlier is not None:
        going_on = earlier.where((F.col("state") == OPEN) & (F.col("result") == FAIL)).drop("state")
        known = results.select("check").distinct()
        bad = bad.unionByName(going_on.join(known, "check", "left_semi").withColumn("identity", _identity()))
    # Passes are by far the most, and hardly any is of a subject that was ever found at fault.
    passed = (
        looks.where(F.col("result") == PASS)
        .join(bad.select("identity").distinct(), "identity", "left_semi")
        .groupBy("identity")
        .agg(F.max("taken").alias("passed"))
    )
    last = looks.groupBy("fleet").agg(F.max("taken").alias("last"))
    of_one = Window.partitionBy("identity")
    lasting = (
        bad.join(passed, "identity", "left")
        .join(F.broadcast(last), "fleet", "left")
        .join(F.broadcast(_blind(looks, last)), ["fleet", "check"], "left")
        .withColumn("gone", (F.max("taken").over(of_one) < F.col("last")) & F.col("blind").isNull())
        .withColumn("over", (F.col("passed") >= F.col("taken")) | F.col("gone"))
        .withColumn("state", F.when(F.coalesce("over", F.lit(False)), FIXED).otherwise(OPEN))
        .where((F.col("state") == OPEN) | (F.col("result") == FAIL))
    )
    content = [name for name in results.columns if name not in (*IDENTITY, "since", "taken", "result")]
    one = lasting.groupBy("identity", *IDENTITY, "state", "result").agg(
        F.max_by(F.struct(*content), "taken").alias("content"),
        F.min("since").alias("since"),
        F.max("taken").alias("taken"),
    )
    # What fails now before what is not known now, and both before what failed once.
    rank = F.when(F.col("state") == FIXED, 2).when(F.col("result") == UNKNOWN, 1).otherwise(0)
    return (
        one.withColumn("first", F.row_number().over(of_one.orderBy(rank)))
        .where("first = 1")
        .select(*IDENTITY, "state", "result", "since", "taken", "content.*")
        .select(*results.columns, "state")
    )


def reasons(found: DataFrame) -> DataFrame:
    """Return why findings are not known: a row for each reason, with how many there are, of which checks and which servers."""
    return (
        found.where((F.col("result") == UNKNOWN) & (F.col("state") == OPEN))
        .groupBy("fleet", "text")
        .agg(
            F.count("*").alias("findings"),
            F.array_sort(F.collect_set("check")).alias("checks"),
            F.array_sort(F.collect_set("server")).alias("servers"),
            F.min("since").alias("since"),
        )
    )


def _identity() -> Column:
    """Return a key that is never null, so that it can be joined by."""
    return F.to_json(F.array(*IDENTITY))


def _blind(looks: DataFrame, last: DataFrame) -> DataFrame:
    """Return the checks that could not see all of their subjects in a fleet's last look: whoever is not there may be."""
    about_assets = F.coalesce(*_ASSETS).isNotNull()
    return (
        looks.where((F.col("result") == UNKNOWN) & ~about_assets)
        .join(F.broadcast(last), "fleet")
        .where(F.col("taken") == F.col("last"))
        .select("fleet", "check", F.lit(True).alias("blind"))
        .distinct()
    )
