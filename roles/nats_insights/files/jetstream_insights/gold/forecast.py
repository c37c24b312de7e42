# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The forecast described in capacity.py: slopes, spreads and bands, as expressions on the daily slopes of four weeks."""

from __future__ import annotations

import math

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jetstream_insights.gold import columns
from jetstream_insights.gold.common import middle
from jetstream_insights.gold.tables import ratio

KEY = ("fleet", *(column.name for column in columns.ASSET))

#: Days of the two windows, days with a slope needed for a forecast, and days needed for a spread of weeks.
LONG, SHORT, ENOUGH, WEEKS = 28, 7, 3, 14

#: Days ahead of the forecasts that are tested, the one shown with them, and the number of past days whose tests count.
HORIZONS, SHOWN, JUDGED = (1, 7, 30), 7, 28

#: A day's change is an exception if it is larger than this many times the median.
_JUMP = 6.0

#: The last week differs from those before: by this part of the larger slope, and by this many standard errors of the difference,
#: for days that are correlated like a first-order process with 0.3.
_UNLIKE, _ERRORS, _CORRELATED = 0.1, 3.0, 1.3 / 0.7

#: Number of non-overlapping errors for which their percentile is better than that of the normal distribution, and the latter.
_POOL, _NORMAL = 20, 1.2816

#: The largest power by which a spread grows with time (0.5: a random walk); the spread, as a part of the usage, that counts as 0.
_FASTEST, _NONE = 0.75, 1e-6

#: The part by which an actual value may be outside the band: rounding.
_TOLERANCE = 1e-9


def forecasts(growth_rows: DataFrame, past: DataFrame, due: DataFrame, past_due: DataFrame, day: Column) -> DataFrame:
    """Return the expected change of each asset from the end of the day on. `past`: growth of the previous days; `due`,
    `past_due`: backtests of the day, and of the previous days."""
    today = growth_rows.select(*KEY, "used", "reserved", "limit", "last_hour")
    days = growth_rows.unionByName(past).withColumn("age", F.date_diff(day, "day"))
    recent = F.col("age") < SHORT
    slopes = days.groupBy(*KEY).agg(
        F.count("slope").alias("days_long"),
        F.count(F.when(recent, F.col("slope"))).alias("days_short"),
        F.map_from_entries(F.collect_list(F.struct("age", "slope"))).alias("by_age"),
        F.percentile(F.abs("slope"), 0.5).alias("size"),
        F.bool_and(F.when(recent & F.col("slope").isNotNull(), F.coalesce("trimmed", F.lit(False)))).alias("trimmed"),
    )
    known = today.join(slopes, on=list(KEY), how="left").withColumn("day", day)
    banded = _with_spreads(_with_slope(known)).join(
        F.broadcast(_errors(due.unionByName(past_due))), on=["fleet", "scope", "resource"], how="left"
    )
    return banded.withColumns({name: made for days in HORIZONS for name, made in _band(days).items()})


def _band(days: int) -> dict[str, Column]:
    pooled = F.coalesce(F.col(f"errors_{days}") >= _POOL * days, F.lit(False))
    spread, expected = F.col(f"spread_{days}"), F.lit(float(days)) * F.col("slope")
    low = F.when(pooled, F.least(F.col(f"error_{days}")[0], F.lit(0.0))).otherwise(-_NORMAL)
    high = F.when(pooled, F.greatest(F.col(f"error_{days}")[1], F.lit(0.0))).otherwise(_NORMAL)
    return {
        f"change_{days}_p10": expected + low * spread,
        f"change_{days}_p90": expected + high * spread,
        f"errors_{days}": F.when(pooled, F.col(f"errors_{days}")).otherwise(0),
    }


def _errors(due: DataFrame) -> DataFrame:
    """Return the number of errors of each class over each horizon, and their 10th and 90th percentile."""
    columns_ = []
    for days in HORIZONS:
        error = F.when(F.col("horizon") == days, F.col("spreads"))
        columns_ += [
            F.count(error).alias(f"errors_{days}"),
            F.percentile(error, F.array(F.lit(0.1), F.lit(0.9))).alias(f"error_{days}"),
        ]
    return due.groupBy("fleet", "scope", "resource").agg(*columns_)


# Each further projection multiplies Spark's planning time, so there are as few as possible.
def _with_slope(known: DataFrame) -> DataFrame:
    """Add the slopes of both windows and the chosen one. `by_age`: the daily slopes by their age in days."""
    jumps = F.filter(F.map_values("by_age"), lambda step: F.abs(step) > F.col("size") * _JUMP)
    once = F.when(F.size(jumps) == 1, F.get(jumps, F.lit(0)))

    def step(age: Column) -> Column:
        found = F.try_element_at("by_age", age)
        return F.when(~found.eqNullSafe(F.col("once")), found)

    apart = F.zip_with(
        F.slice("kept", 1, LONG - SHORT),
        F.slice("kept", SHORT + 1, LONG - SHORT),
        lambda one, other: F.abs(one - other),
    )
    # For a normal distribution, the mean of |x - y| is 2 / sqrt(pi) standard deviations.
    noise = _mean(_known(apart)) * F.lit(math.sqrt(math.pi) / 2)
    error = noise * F.lit(math.sqrt(_CORRELATED * (1 / SHORT + 1 / (LONG - SHORT))))
    difference = F.abs(F.col("slope_short") - F.col("slope_before"))
    larger = F.greatest(F.abs("slope_short"), F.abs("slope_before"))
    unlike = F.coalesce((difference > larger * _UNLIKE) & (difference > error * _ERRORS), F.lit(False))
    return (
        known.withColumn("once", once)
        .withColumn("kept", F.transform(F.sequence(F.lit(0), F.lit(LONG - 1)), step))
        .withColumn("weekdays", _weekdays(F.col("kept")))
        .withColumns(
            {
                "days_long": F.coalesce("days_long", F.lit(0)),
                "days_short": F.coalesce("days_short", F.lit(0)),
                "slope_long": F.coalesce(_mean(F.col("weekdays")), middle(F.sort_array(_known(F.col("kept"))))),
                "slope_short": _mean(F.slice("kept", 1, SHORT)),
                "slope_before": _mean(_weekdays(F.slice("kept", SHORT + 1, LONG - SHORT))),
            }
        )
        .withColumns(
            {
                "basis": F.when(unlike, "short").otherwise("long"),
                "slope": F.when(unlike, F.col("slope_short")).otherwise(F.col("slope_long")),
            }
        )
    )


def _with_spreads(known: DataFrame) -> DataFrame:
    """Add the spread around the forecast of each horizon, and set a slope that is within its error to 0."""
    steps = _known(F.col("kept"))
    many = F.size(steps)
    squares = _mean(F.transform(steps, lambda step: F.pow(step - F.col("slope"), 2)))
    daily = F.sqrt(squares * many / F.greatest(many - 1, F.lit(1)))
    weeks = F.transform(
        F.sequence(F.lit(1), F.lit(LONG - SHORT + 1)), lambda begin: _sum(F.slice("kept", begin, F.lit(SHORT)))
    )
    squares = _mean(F.transform(_known(weeks), lambda week: F.pow(week - F.col("slope_long") * SHORT, 2)))
    # Overlapping sums are closer to their own mean than to the true one.
    weekly = F.when(F.col("days_long") >= WEEKS, F.sqrt(squares / (1 - F.lit(float(SHORT)) / F.col("days_long"))))
    # Without the weekly pattern, whose mean over four weeks absorbs a quarter of the residuals.
    residuals = F.transform("kept", lambda step, age: F.pow(step - F.get("weekdays", (age % SHORT).cast("int")), 2))
    random = F.sqrt(_mean(_known(residuals)) * (LONG / (LONG - SHORT)))
    measured = known.withColumns({"daily": daily, "weekly": weekly, "random": random})

    growing = F.log(F.try_divide("weekly", "random")) / math.log(SHORT)
    power = F.when(
        (F.col("random") > 0) & (F.col("weekly") > 0),
        F.least(F.greatest(growing, F.lit(0.0)), F.lit(_FASTEST)),
    ).otherwise(0.5)
    days = F.when(F.col("basis") == "short", F.lit(SHORT)).otherwise(F.greatest("days_long", F.lit(1)))
    week = F.coalesce(F.col("weekly"), F.col("daily") * math.sqrt(SHORT))
    error = week / F.sqrt(days * SHORT)
    none = F.greatest("used", F.lit(1.0)) * _NONE

    def spread(ahead: int) -> Column:
        found = F.col("daily") if ahead == 1 else week * F.pow(ahead / SHORT, power) * F.sqrt(1 + ahead / days)
        return F.when(found >= none, found).otherwise(0.0)

    return measured.withColumns(
        {
            **{f"spread_{ahead}": spread(ahead) for ahead in HORIZONS},
            "slope": F.when(F.abs("slope") < error, 0.0).otherwise(F.col("slope")),
        }
    )


def _known(values: Column) -> Column:
    return F.filter(values, lambda value: value.isNotNull())


def _sum(values: Column) -> Column:
    """Return the sum, null if one value is null."""
    return F.aggregate(values, F.lit(0.0), lambda total, value: total + value)


def _mean(values: Column) -> Column:
    """Return the mean, null if one value is null or there are none."""
    return F.try_divide(_sum(values), F.size(values))


def _weekdays(steps: Column) -> Column:
    """Return the mean of each weekday, that of the last day first, null if no such day is known."""

    def of(weekday: Column) -> Column:
        return _mean(_known(F.filter(steps, lambda _step, age: age % SHORT == weekday)))

    return F.transform(F.sequence(F.lit(0), F.lit(SHORT - 1)), of)


def backtests(growth_rows: DataFrame, past: DataFrame, day: Column) -> DataFrame:
    """Return the errors of earlier forecasts for the day. `past`: forecasts of the previous days."""

    def at_horizon(name: str) -> Column:
        return F.coalesce(*(F.when(F.col("horizon") == days, F.col(name.format(days))) for days in HORIZONS))

    made = (
        past.where((F.col("days_long") >= ENOUGH) & F.col("slope").isNotNull())
        .withColumn("horizon", F.date_diff(day, "day"))
        .where(F.col("horizon").isin(*HORIZONS))
        .select(
            *KEY, "horizon", "slope", "days_long", F.col("day").alias("origin"), F.col("used").alias("base"),
            F.col("limit").alias("most"), F.col("last_hour").alias("base_hour"), at_horizon("change_{}_p10").alias("low"),
            at_horizon("change_{}_p90").alias("high"), at_horizon("spread_{}").alias("spread"),
        )
    )  # fmt: skip
    actual = growth_rows.select(*KEY, F.col("used").alias("actual"), "last_hour")
    # The day may end at another hour than the day of the forecast.
    moved = F.col("slope") * (F.col("last_hour") - F.col("base_hour")) / F.lit(24.0)
    ahead = F.col("horizon") * F.col("slope")

    def value(change: Column) -> Column:
        grown = F.greatest(F.col("base") + change + moved, F.lit(0.0))
        return F.when(F.col("most").isNotNull(), F.least(grown, F.greatest("most", "base"))).otherwise(grown)

    slack = F.col("actual") * _TOLERANCE
    wrong = F.col("actual") - F.col("forecast_p50")
    return (
        actual.join(made, on=list(KEY))
        .withColumns(
            {
                "forecast_p10": value(F.col("low")),
                "forecast_p50": value(ahead),
                "forecast_p90": value(F.col("high")),
            }
        )
        .withColumns(
            {
                "error": ratio(F.col("forecast_p50") - F.col("actual"), F.col("actual")),
                "naive_error": ratio(F.col("base") - F.col("actual"), F.col("actual")),
                "covered": F.col("actual").between(F.col("forecast_p10") - slack, F.col("forecast_p90") + slack),
                "spreads": F.when(F.col("days_long") >= WEEKS, ratio(wrong, F.col("spread"))),
                "day": day,
            }
        )
    )
