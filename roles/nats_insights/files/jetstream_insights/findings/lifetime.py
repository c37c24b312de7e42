# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lifetime of findings. A finding is the result of one check for one subject: a single row for any number of samples.

It is open until a sample passes, or until its subject is missing from its fleet's last sample. An inconclusive sample does not
close a finding, and neither does one that barely passes: a value that hovers at its threshold is one finding.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from jetstream_insights.findings import REGISTRY
from jetstream_insights.findings.evaluate import JUDGED_ROWS, RESULTS, is_near
from jetstream_insights.findings.registry import FAIL, PASS, UNKNOWN
from jetstream_insights.findings.subjects import SUBJECT
from jetstream_insights.keys import CLUSTER

OPEN, FIXED = "open", "fixed"
_NO_TEXTS = {
    **dict.fromkeys(("since", "taken"), "timestamp"),
    **dict.fromkeys(("value", "threshold"), "double"),
    "passed": "array<string>",
}
#: The columns that identify a finding.
IDENTITY = ("fleet", "check", "kind", *SUBJECT)


def _columns(*names: str) -> str:
    return ", ".join(f"{name} {_NO_TEXTS.get(name, 'string')}" for name in names)


#: A row of each table, for the reference.
ROWS = {
    "findings": "A row for each finding (`result` is `fail`) and for each unknown result (`result` is `unknown`), but none for a "
    "pass. `state` is `open` or `fixed` for findings, and null for unknown results. `since` and `taken` are the first and the "
    "last snapshot with this result; the subject has the given `kind`, and its other columns are null.",
    "findings_unknown": "A row for each reason of unknown results, with their number, checks and servers.",
    "findings_summary": "A row for each check and snapshot, with the number of results. `critical` counts the failures that are "
    "critical.",
}
#: The columns of the tables, as Spark SQL schemas.
COLUMNS = {
    "findings": _columns(*RESULTS, "unit", "state"),
    "findings_unknown": "fleet string, text string, findings bigint, checks array<string>, servers array<string>, "
    "since timestamp",
    "findings_summary": "fleet string, snapshot string, taken timestamp, since timestamp, check string, severity string, "
    "title string, failed bigint, critical bigint, unknown bigint, passed bigint",
}
#: The columns of the rows that only the running job reads.
DRAFT_COLUMNS = _columns(*JUDGED_ROWS)
#: The stored columns of an hour. Passes are stored only if they may close a finding, and need few columns.
HOURLY_COLUMNS = {
    "results": _columns(*RESULTS),
    "passes": _columns("taken", *IDENTITY, "value", "threshold"),
    "summary": COLUMNS["findings_summary"],
}
#: Columns of a subject apart from the servers that may be silent.
_ASSETS = tuple(name for name in SUBJECT if name not in (*CLUSTER, "server"))
_UNITS = {check.code: check.measured_in for check in REGISTRY.checks.values() if check.measured_in}
_STEADY = sorted(check.code for check in REGISTRY.checks.values() if check.steady)


def findings(
    results: DataFrame,
    counted: DataFrame,
    codes: Collection[str],
    earlier: DataFrame | None = None,
    before: DataFrame | None = None,
) -> DataFrame:
    """Return the open and fixed findings with their `state`, and the unknown results, whose state is null.

    `since` is the first sample that showed it and `taken` the last; all other columns are from the last. `counted`: the summary
    of the results. `codes`: the enabled checks, whether or not they apply to anything on this day. `earlier`: the findings of
    the last previous day that has any; open failures among them continue. `before`: the findings of the previous run on the
    same day, which matter only if a value has barely passed since.
    """
    samples = results.withColumn("identity", _identity())
    bad = samples.where(F.col("result") != PASS).withColumn("again", F.lit(False))
    for others, again in ((earlier, False), (before, True)):
        if others is not None:
            made = F.col("check").isin(*codes)
            going_on = open_failures(others.where(made)).drop("state", "unit")
            bad = bad.unionByName(going_on.withColumn("identity", _identity()).withColumn("again", F.lit(again)))
    # Hash collisions find no match in the join below.
    passed = (
        _select_passes(results, [bad])
        .groupBy(_identity().alias("identity"))
        .agg(
            F.max(F.when(~_barely(), F.col("taken"))).alias("passed"),
            F.max(F.when(_barely(), F.col("taken"))).alias("barely"),
            F.max_by(F.when(_barely(), F.col("threshold")), F.when(_barely(), F.col("taken"))).alias("barely_of"),
        )
    )
    held = F.coalesce(F.col("barely") >= F.col("taken"), F.lit(False)) & F.col("barely_of").eqNullSafe(
        F.col("threshold")
    )
    last = counted.groupBy("fleet").agg(F.max("taken").alias("last"))
    one_finding = Window.partitionBy("identity")
    lasting = (
        bad.join(passed, "identity", "left")
        .join(F.broadcast(last), "fleet", "left")
        .join(F.broadcast(_blind(samples, last)), ["fleet", "check"], "left")
        .where(~F.col("again") | held)
        .withColumn("seen", F.greatest(F.max("taken").over(one_finding), "barely"))
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
    # Rank: present failures, then present unknown results, then fixed failures.
    rank = F.when(F.col("state") == FIXED, 2).when(F.col("result") == UNKNOWN, 1).otherwise(0)
    return (
        one.withColumn("first", F.row_number().over(one_finding.orderBy(rank)))
        .where("first = 1")
        .select(*IDENTITY, "state", "result", "since", "taken", "content.*")
        .select(*results.columns, _unit().alias("unit"), F.when(F.col("result") == FAIL, F.col("state")).alias("state"))
    )


def _unit() -> Column:
    """Return the unit of a finding's value and threshold, null if it has none."""
    return F.try_element_at(
        F.create_map(*(F.lit(part) for pair in sorted(_UNITS.items()) for part in pair)), F.col("check")
    )


def hourly_findings(results: DataFrame, counted: DataFrame, others: Sequence[DataFrame]) -> dict[str, DataFrame]:
    """Return the stored rows of hours, from results and their summary. `others`: the findings and results that passes of these
    hours may close, in addition to the results of these hours."""
    bad = results.where(F.col("result") != PASS)
    near = (F.when(_barely(), F.col(name)).alias(name) for name in ("value", "threshold"))
    passes = _select_passes(results, [bad, *others]).select("taken", *IDENTITY, *near)
    return {"results": bad, "passes": passes, "summary": counted}


def _select_passes(results: DataFrame, bad: Sequence[DataFrame]) -> DataFrame:
    """Return the passes that have the identity of one of the `bad` rows. Passes are by far the most frequent results, and hardly
    any has such an identity: a broadcast hash filters them without a shuffle."""
    hashed = F.xxhash64(*IDENTITY).alias("hash")
    hashes = reduce(DataFrame.union, (rows.select(hashed) for rows in bad)).distinct()
    return results.where(F.col("result") == PASS).join(F.broadcast(hashes), hashed == F.col("hash"), "left_semi")


def open_failures(found: DataFrame) -> DataFrame:
    """Return the open findings, without unknown results."""
    return found.where((F.col("state") == OPEN) & (F.col("result") == FAIL))


def open_digest(found: DataFrame | None) -> str:
    """Return a digest of the identities of the open findings."""
    if found is None:
        return ""
    (row,) = open_failures(found).agg(F.count(F.lit(1)), F.bit_xor(F.xxhash64(*IDENTITY))).collect()
    return f"{row[0]}:{row[1]}"


def with_hours(results: DataFrame, counted: DataFrame, kept: Mapping[str, DataFrame]) -> tuple[DataFrame, DataFrame]:
    """Add the stored rows of hours to results and their summary."""
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
    """Return the reasons for unknown findings: a row for each reason, with the number of findings, their checks and servers."""
    return (
        found.where(F.col("result") == UNKNOWN)
        .groupBy("fleet", "text")
        .agg(
            F.count("*").alias("findings"),
            F.array_sort(F.collect_set("check")).alias("checks"),
            F.array_sort(F.collect_set("server")).alias("servers"),
            F.min("since").alias("since"),
        )
    )


def _barely() -> Column:
    """Return whether a passing value is too close to its threshold to end a finding."""
    return F.coalesce(F.col("check").isin(_STEADY) & F.expr(is_near("value", "threshold")), F.lit(False))


def _identity() -> Column:
    """Return a key for joins that is never null."""
    return F.to_json(F.array(*IDENTITY))


def _blind(samples: DataFrame, last: DataFrame) -> DataFrame:
    """Return the checks without a complete view of a fleet's last sample: a missing subject may still exist."""
    about_assets = F.coalesce(*_ASSETS).isNotNull()
    return (
        samples.where((F.col("result") == UNKNOWN) & ~about_assets)
        .join(F.broadcast(last), "fleet")
        .where(F.col("taken") == F.col("last"))
        .select("fleet", "check", F.lit(True).alias("blind"))
        .distinct()
    )
