# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Assets with known growth, and the pipeline's forecasts for them on many days at once."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from jetstream_insights.gold.capacity import growth
from jetstream_insights.gold.columns import BACKTESTS, FORECASTS, GROWTH, USAGE
from jetstream_insights.gold.forecast import HORIZONS, JUDGED, LONG, backtests, forecasts
from jetstream_insights.gold.tables import Col, schema
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

#: The first day of all series, a Monday, and the day to which every day is shifted, so one Spark job computes all
#: days.
START, TODAY = date(2026, 1, 5), date(2030, 1, 1)

#: The hours of a day that have reports.
HOURS = range(0, 24, 4)


@dataclass(frozen=True)
class Series:
    """An asset's size at the end of each day, or None if the size was not measured. `event`: the day on which its
    growth changed."""

    held: Sequence[float | None]
    event: int | None = None


def correlated(dice: random.Random, days: int, spread: float) -> list[float]:
    """Return noise in which each day correlates by 0.3 with the day before."""
    found = [dice.gauss(0, spread)]
    for _day in range(days - 1):
        found.append(0.3 * found[-1] + dice.gauss(0, spread * (1 - 0.3**2) ** 0.5))
    return found


def _sums(steps: Iterable[float], first: float) -> list[float]:
    held = [first]
    for step in steps:
        held.append(held[-1] + step)
    return held[1:]


def _steady(dice: random.Random, days: int, spread: float = 0.1) -> list[float]:
    rate = dice.uniform(5, 20)
    return [rate * (1 + noise) for noise in correlated(dice, days, spread)]


def _first(steps: Sequence[float]) -> float:
    return 50 * max(sum(steps) / len(steps), 1.0)


def steady(dice: random.Random, days: int) -> Series:
    steps = _steady(dice, days)
    return Series(_sums(steps, _first(steps)))


def noisy(dice: random.Random, days: int) -> Series:
    steps = _steady(dice, days, spread=1.0)
    return Series(_sums(steps, _first(steps)))


def compacted(dice: random.Random, days: int) -> Series:
    """The size is wrong by two days' growth on one day, and correct on the next."""
    rate = dice.uniform(5, 20)
    return Series([rate * (50 + day + dice.gauss(0, 2)) for day in range(days)])


def weekly(dice: random.Random, days: int) -> Series:
    """Nothing is written at weekends."""
    steps = [step * ((START + timedelta(days=day)).weekday() < 5) for day, step in enumerate(_steady(dice, days, 0.2))]
    return Series(_sums(steps, _first(steps)))


def gaps(dice: random.Random, days: int) -> Series:
    """The growth is weekly; one day in ten has no measurement, and two gaps last several days."""
    away = {day for day in range(days) if dice.random() < 0.1}
    for _time in range(2):
        begin = dice.randrange(days)
        away |= set(range(begin, begin + dice.randint(2, 5)))
    return Series([None if day in away else held for day, held in enumerate(weekly(dice, days).held)])


def sawtooth(dice: random.Random, days: int) -> Series:
    """All data is removed every 3 to 12 days; the interval is constant for a series."""
    every, held = dice.randint(3, 12), 0.0
    phase, found = dice.randrange(every), []
    steps = _steady(dice, days, 0.2)
    for day, step in enumerate(steps):
        held = 0.0 if day % every == phase else held + step
        found.append(_first(steps) + held)
    return Series(found)


def _make_event(change: Callable[[float, int], float]) -> Callable[[random.Random, int], Series]:
    """`change` receives the growth of a day and the number of days since the event."""

    def made(dice: random.Random, days: int) -> Series:
        steps, event = _steady(dice, days, 0.2), dice.randrange(days // 4, days - days // 4)
        return Series(_sums((change(step, day - event) for day, step in enumerate(steps)), _first(steps)), event)

    return made


def plateau(dice: random.Random, days: int) -> Series:
    """Retention sets in: apart from noise, as much is removed as is written."""
    rate, event = dice.uniform(5, 20), dice.randrange(days // 4, days - days // 4)
    noise = correlated(dice, days, 0.2)
    steps = [rate * (day < event) + rate * noise[day] for day in range(days)]
    return Series(_sums(steps, 50 * rate), event)


purge = _make_event(lambda step, ago: step - 15 * step * (ago == 0))
step = _make_event(lambda step, ago: step + 15 * step * (ago == 0))
doubled = _make_event(lambda step, ago: step * (1 + (ago >= 0)))

SCENARIOS: dict[str, Callable[[random.Random, int], Series]] = {
    "steady": steady, "noisy": noisy, "compacted": compacted, "weekly": weekly, "gaps": gaps, "sawtooth": sawtooth,
    "purge": purge, "step": step, "plateau": plateau, "doubled": doubled,
}  # fmt: skip


def all_series(scenarios: Iterable[str], assets: int, days: int) -> dict[tuple[str, str], Series]:
    """Return the series of each scenario, which are the same in every call."""
    return {
        (scenario, f"{number:03}"): SCENARIOS[scenario](random.Random(f"{scenario}:{number}"), days)
        for scenario in scenarios
        for number in range(assets)
    }


def usage(spark: SparkSession, series: dict[tuple[str, str], Series]) -> DataFrame:
    """Return the hourly size of assets in MB, with a daily swing. Each scenario is a separate fleet."""

    def rows() -> Iterator[tuple[object, ...]]:
        for (scenario, name), asset_series in series.items():
            for day, held in enumerate(asset_series.held):
                if held is None:
                    continue
                for hour in HOURS:
                    found = {
                        "fleet": scenario, "day": START + timedelta(days=day), "hour": hour, "scope": "stream",
                        "resource": "file", "name": name, "used": (held + abs(HOURS[-1] - hour) / 4) * 1e6,
                    }  # fmt: skip
                    yield tuple(found.get(col.name, "" if col.type == "string" else None) for col in USAGE)

    return spark.createDataFrame(list(rows()), schema(USAGE))


class Days:
    """Gold tables as they are published day by day. Each day is computed in a separate fleet, `FLEET@DAY`, in which it
    is TODAY."""

    def __init__(self, hourly_usage: DataFrame) -> None:
        self.grown = _kept(growth(hourly_usage, hourly_usage), GROWTH)
        nothing = hourly_usage.sparkSession.createDataFrame([], schema(BACKTESTS))
        self._due = nothing
        self._forecasts = self._made(None)
        self._due = self.judged(self._forecasts)

    def calibrated(self, days: Sequence[int]) -> DataFrame:
        """Return the forecasts of these days, with bands from the backtests of the preceding weeks."""
        return self._made(days)

    def judged(self, forecast_rows: DataFrame) -> DataFrame:
        """Return the backtests of forecasts."""
        past = _in_turn(forecast_rows, 1, max(HORIZONS))
        made = backtests(_in_turn(self.grown, 0, 0), past, F.lit(TODAY))
        origin = F.date_add("day", -F.col("horizon"))
        return _kept(_as_published(made).withColumn("origin", origin), BACKTESTS)

    def _made(self, days: Sequence[int] | None) -> DataFrame:
        def before(frame: DataFrame, first: int, last: int) -> DataFrame:
            return _in_turn(frame, first, last, days)

        made = forecasts(
            before(self.grown, 0, 0), before(self.grown, 1, LONG - 1), before(self._due, 0, 0),
            before(self._due, 1, JUDGED - 1), F.lit(TODAY),
        )  # fmt: skip
        return _kept(_as_published(made), FORECASTS)


def _in_turn(frame: DataFrame, first: int, last: int, days: Sequence[int] | None = None) -> DataFrame:
    """Return, for each day of `days` (all days by default), the rows from `first` to `last` days before it."""
    number = F.date_diff("day", F.lit(START))
    turns = frame.withColumn("at", F.explode(F.sequence(number + first, number + last)))
    if days is not None:
        turns = turns.where(F.col("at").isin(*days))
    ago = F.col("at") - number
    moved = {"fleet": F.concat_ws("@", "fleet", "at"), "day": F.date_sub(F.lit(TODAY), ago)}
    return turns.withColumns(moved).drop("at")


def _as_published(made: DataFrame) -> DataFrame:
    parts = F.split("fleet", "@")
    return made.withColumns({"day": F.date_add(F.lit(START), parts[1].cast("int")), "fleet": parts[0]})


def _kept(frame: DataFrame, columns: Sequence[Col]) -> DataFrame:
    return frame.select(*(F.col(col.name).cast(col.type).alias(col.name) for col in columns)).localCheckpoint()
