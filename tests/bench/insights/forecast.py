# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures how accurate the capacity forecasts are on series whose growth is known.

``make bench BENCH=insights/forecast ARGS='--assets 20'``. Each scenario is a fleet, calibrated by its own backtests of four
weeks; `mixed` is a fleet of all of them. The tables are made by the pipeline's functions, the series from fixed seeds.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence

from jetstream_insights.gold.forecast import HORIZONS, JUDGED, LONG
from jetstream_insights.session import session
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from support.forecasting import SCENARIOS, START, Days, Series, all_series, usage

#: Days of data before the first calibrated 30-day forecast; the number of days with evaluated forecasts, which include
#: all weekdays.
WARM = LONG + max(HORIZONS) + JUDGED
JUDGED_DAYS = range(WARM, WARM + 35, 3)
DAYS = JUDGED_DAYS[-1] + max(HORIZONS) + 1

#: How long after an event the forecasts may be wrong.
SETTLED = 14


def known(row: Row, series: Series) -> bool:
    """Return whether the forecast was possible: there is no event until the forecast day, and there was none just
    before the forecast was made."""
    made = (row["origin"] - START).days
    return series.event is None or not made - SETTLED < series.event <= made + row["horizon"]


def cells(rows: Sequence[Row], grows: bool) -> Iterator[str]:
    """Return the bias, the error relative to the naive forecast, and the coverage of some forecasts over one
    horizon."""
    wrong = sum(row["forecast_p50"] - row["actual"] for row in rows)
    held = sum(row["actual"] for row in rows)
    grown = held - sum(row["actual"] * (1 + row["naive_error"]) for row in rows)
    yield f"{100 * wrong / held:+.1f} %"
    yield f"{100 * wrong / grown:+.1f} %" if grows else "-"
    error, naive = (statistics.median(abs(row[name]) for row in rows) for name in ("error", "naive_error"))
    yield f"×{error / naive:.2f}" if naive else "-"
    yield f"{statistics.mean(row['covered'] for row in rows):.2f}"


def line(name: str, rows: Sequence[Row], grows: bool) -> str:
    found = [
        " / ".join(of)
        for of in zip(*(cells([row for row in rows if row["horizon"] == days], grows) for days in HORIZONS))
    ]
    return f"| {name} | {' | '.join(found)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--assets", type=int, default=60, help="of each scenario")
    parser.add_argument("--scenarios", nargs="+", default=list(SCENARIOS), choices=list(SCENARIOS))
    parser.add_argument("--memory", default="3g")
    given = parser.parse_args()
    spark = session("local[2]", given.memory)
    spark.conf.set("spark.sql.shuffle.partitions", "8")
    series = all_series(given.scenarios, given.assets, DAYS)
    hourly_usage = usage(spark, series).localCheckpoint()
    print("| scenario | bias / usage | bias / growth | error / naive error | in the band |", flush=True)
    print("|---|---:|---:|---:|---:|", flush=True)
    found = judged(hourly_usage)
    by_scenario = defaultdict(list)
    for row in found:
        if known(row, series[row["fleet"], row["name"]]):
            by_scenario[row["fleet"]].append(row)
    for name, rows in by_scenario.items():
        print(line(name, rows, name not in ("sawtooth", "plateau")), flush=True)
    together = hourly_usage.withColumns({"name": F.concat_ws("/", "fleet", "name"), "fleet": F.lit("mixed")})
    print(line("mixed, with all events", judged(together), True), flush=True)


def judged(hourly_usage: DataFrame) -> list[Row]:
    days = Days(hourly_usage)
    return days.judged(days.calibrated(JUDGED_DAYS)).collect()


if __name__ == "__main__":
    main()
