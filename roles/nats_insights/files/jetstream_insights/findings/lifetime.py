# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a finding lasts. A finding is what one check says of one subject: one row, however many looks saw it.

It is open until a look passes, or until its subject is gone from its fleet's last look. A look that cannot tell ends nothing,
and neither does one that barely passes: a value that hovers at its threshold is one finding.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from jetstream_insights.findings import REGISTRY
from jetstream_insights.findings.evaluate import RESULTS
from jetstream_insights.findings.registry import FAIL, MARGIN, PASS, UNKNOWN
from jetstream_insights.findings.subjects import SUBJECT
from jetstream_insights.keys import CLUSTER

OPEN, FIXED = "open", "fixed"
_NO_TEXTS = {"since": "timestamp", "taken": "timestamp", "value": "double", "threshold": "double"}
#: What makes two findings the same one.
IDENTITY = ("fleet", "check", "kind", *SUBJECT)


def _columns(*names: str) -> str:
    return ", ".join(f"{name} {_NO_TEXTS.get(name, 'string')}" for name in names)


#: The columns of the tables, as Spark SQL schemas.
COLUMNS = {
    "findings": _columns(*RESULTS, "state"),
    "findings_unknown": "fleet string, text string, findings bigint, checks array<string>, servers array<string>, "
    "since timestamp",
    "findings_summary": "fleet string, snapshot string, taken timestamp, since timestamp, check string, severity string, "
    "title string, failed bigint, critical bigint, unknown bigint, passed bigint",
}
#: The columns of what is kept of an hour. Passes are by far the most, and of them little matters.
OF_HOURS = {
    "results": _columns(*RESULTS),
    "passes": _columns("taken", *IDENTITY, "value", "threshold"),
    "summary": COLUMNS["findings_summary"],
}
#: What a finding names beside the servers that may be silent.
_ASSETS = tuple(name for name in SUBJECT if name not in (*CLUSTER, "server"))
_STEADY = sorted(check.code for check in REGISTRY.checks.values() if check.steady)


def findings(
    results: DataFrame,
    counted: DataFrame,
    codes: Collection[str],
    earlier: DataFrame | None = None,
    before: DataFrame | None = None,
) -> DataFrame:
    """Return what is not as it should be, what is not known, and what was fixed meanwhile, with its `state`.

    `since` is when it was seen first and `taken` when last; all else is of the last time. `counted`: the summary of the results.
    `codes`: the checks that are made, whether or not they apply to anything on this day. `earlier`: the findings of the last day
    before that has any, of which those that failed and were open go on. `before`: those of the run before on the same day, which
    matter only where a value has barely passed since.
    """
    looks = results.withColumn("identity", _identity())
    bad = looks.where(F.col("result") != PASS).withColumn("again", F.lit(False))
    for others, again in ((earlier, False), (before, True)):
        if others is not None:
            made = F.col("check").isin(*codes)
            going_on = others.where(made & (F.col("state") == OPEN) & (F.col("result") == FAIL)).drop("state")
            bad = bad.unionByName(going_on.withColumn("identity", _identity()).withColumn("again", F.lit(again)))
    # Passes are by far the most, and hardly any is of a subject that was ever found at fault: the hash tells, without a shuffle.
    # What only shares a hash finds nothing to join below.
    hashed = F.xxhash64(*IDENTITY).alias("hash")
    passed = (
        results.where(F.col("result") == PASS)
        .join(F.broadcast(bad.select(hashed).distinct()), hashed == F.col("hash"), "left_semi")
        .groupBy(_identity().alias("identity"))
        .agg(
            F.max(F.when(~_barely(), F.col("taken"))).alias("passed"),
            F.max(F.when(_barely(), F.col("taken"))).alias("barely"),
            F.max_by(F.when(_barely(), F.col("threshold")), F.when(_barely(), F.col("taken"))).alias("barely_of"),
        )
    )
    held = F.col("barely").isNotNull() & F.col("barely_of").eqNullSafe(F.col("threshold"))
    last = counted.groupBy("fleet").agg(F.max("taken").alias("last"))
    of_one = Window.partitionBy("identity")
    lasting = (
        bad.join(passed, "identity", "left")
        .join(F.broadcast(last), "fleet", "left")
        .join(F.broadcast(_blind(looks, last)), ["fleet", "check"], "left")
        .where(~F.col("again") | held)
        .withColumn("seen", F.greatest(F.max("taken").over(of_one), "barely"))
        .withColumn("gone", (F.col("seen") < F.col("last")) & F.col("blind").isNull())
        .withColumn("passed", F.greatest("passed", F.when(~held, F.col("barely"))))
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


def of_hours(results: DataFrame, counted: DataFrame) -> dict[str, DataFrame]:
    """Return what is kept of hours, of results and their summary."""
    near = (F.when(_barely(), F.col(name)).alias(name) for name in ("value", "threshold"))
    passes = results.where(F.col("result") == PASS).select("taken", *IDENTITY, *near)
    return {"results": results.where(F.col("result") != PASS), "passes": passes, "summary": counted}


def with_hours(results: DataFrame, counted: DataFrame, kept: Mapping[str, DataFrame]) -> tuple[DataFrame, DataFrame]:
    """Add what is kept of hours to results and their summary."""
    none = F.lit(None).cast("string")
    if "results" in kept:
        results = results.unionByName(kept["results"])
    if "passes" in kept:
        known = {
            "result": F.lit(PASS),
            **{name: F.col(name) for name in kept["passes"].columns},
            "since": F.col("taken"),
        }
        results = results.unionByName(kept["passes"].select(*(known.get(name, none).alias(name) for name in RESULTS)))
    return results, counted.unionByName(kept["summary"]) if "summary" in kept else counted


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


def _barely() -> Column:
    """Return whether a value that passes is too near to its threshold to end a finding."""
    near = F.abs(F.abs("value") - F.col("threshold")) < MARGIN * F.col("threshold")
    return F.coalesce(F.col("check").isin(_STEADY) & near, F.lit(False))


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
