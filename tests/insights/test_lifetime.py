# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A finding is a single row, no matter how long it lasts, and is closed once the problem has ended."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from jetstream_insights.findings import REGISTRY
from jetstream_insights.findings.evaluate import RESULTS, summary
from jetstream_insights.findings.lifetime import findings, hourly_findings, reasons
from pyspark.sql import DataFrame, SparkSession

_DAY = datetime(2026, 11, 21)
_TYPES = {"taken": "timestamp", "since": "timestamp", "value": "double", "threshold": "double"}
_SCHEMA = ", ".join(f"`{name}` {_TYPES.get(name, 'string')}" for name in RESULTS)


def hour(number: int) -> datetime:
    return _DAY + timedelta(hours=number)


def look(at: int, result: str, stream: str | None = "S", **more: Any) -> dict[str, Any]:
    """Return a check's result for a stream in the snapshot of an hour."""
    row = {
        "fleet": "prod",
        "snapshot": f"{at:02}",
        "taken": hour(at),
        "since": hour(at),
        "check": "STREAM_101",
        "severity": "critical",
        "kind": "stream",
        "account": "A" if stream else None,
        "stream": stream,
        "text": f"{result} at {at}",
    }
    return {**row, "result": result, **more}


def results(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    return spark.createDataFrame([tuple(row.get(name) for name in RESULTS) for row in rows], _SCHEMA)


def judged_findings(rows: DataFrame, earlier: DataFrame | None = None, before: DataFrame | None = None) -> DataFrame:
    return findings(rows, summary(rows, REGISTRY), REGISTRY.checks, earlier, before)


def seen(frame: DataFrame) -> dict[str | None, tuple[Any, ...]]:
    """Return the state, the result, and the hours of the first and last sample, for each stream."""
    rows = frame.collect()
    found = {
        row["stream"]: (
            row["state"],
            row["result"],
            *((row[name] - _DAY).total_seconds() / 3600 for name in ("since", "taken")),
        )
        for row in rows
    }
    assert len(found) == len(rows), rows
    return found


def test_a_finding_is_one_row_until_it_is_over(spark: SparkSession) -> None:
    made = judged_findings(
        results(
            spark,
            *(look(at, "pass", "WELL") for at in range(4)),
            *(look(at, "fail", "LASTS") for at in range(4)),
            look(0, "fail", "MENDED"), look(1, "fail", "MENDED"), look(2, "pass", "MENDED"), look(3, "pass", "MENDED"),
            look(0, "fail", "AGAIN"), look(1, "pass", "AGAIN"), look(2, "fail", "AGAIN"), look(3, "fail", "AGAIN"),
            look(0, "fail", "UNSEEN"), look(1, "fail", "UNSEEN"), look(2, "unknown", "UNSEEN"), look(3, "unknown", "UNSEEN"),
            look(0, "unknown", "KNOWN"), look(1, "pass", "KNOWN"), look(2, "pass", "KNOWN"), look(3, "pass", "KNOWN"),
            look(0, "fail", "DELETED"), look(1, "fail", "DELETED"),
            look(1, "fail", "S", fleet="other"),
        )
    )  # fmt: skip
    assert tuple(made.columns) == (*RESULTS, "unit", "state")
    assert seen(made) == {
        "LASTS": ("open", "fail", 0, 3),
        "MENDED": ("fixed", "fail", 0, 1),
        "AGAIN": ("open", "fail", 2, 3),
        # No sample shows that the problem is over.
        "UNSEEN": ("open", "fail", 0, 1),
        "DELETED": ("fixed", "fail", 0, 1),
        # No later sample of this stream's own fleet exists.
        "S": ("open", "fail", 1, 1),
    }
    texts = {row["stream"]: row["text"] for row in made.collect()}
    assert texts["LASTS"] == "fail at 3" and texts["MENDED"] == "fail at 1"


@pytest.mark.parametrize(
    ("last", "state"),
    [
        # The last snapshot contains no streams at all, or lacks those of a server.
        (look(3, "unknown", None), "open"),
        (look(3, "unknown", None, server="n2", kind="server"), "open"),
        # The unknown result of another stream or check does not affect this finding.
        (look(3, "unknown", "OTHER"), "fixed"),
        (look(3, "unknown", None, check="SERVER_101"), "fixed"),
    ],
)
def test_absent_subject_is_not_fixed_if_the_sample_is_inconclusive(
    spark: SparkSession, last: dict[str, Any], state: str
) -> None:
    made = judged_findings(results(spark, look(1, "fail", "GONE"), look(3, "pass", "WELL"), last))
    assert seen(made)["GONE"] == (state, "fail", 1, 1)


def test_finding_continues_over_midnight(spark: SparkSession) -> None:
    yesterday = judged_findings(
        results(
            spark,
            *(look(-1, "fail", name) for name in ("LASTS", "MENDED", "DELETED")),
            look(-3, "fail", "OLD"),
            look(-1, "pass", "OLD"),
            look(-1, "unknown", "UNSEEN"),
            look(-1, "fail", "SKIPPED", check="STREAM_999"),
        )
    )
    today = results(
        spark, *(look(at, "fail", "LASTS") for at in range(2)), look(0, "pass", "MENDED"), look(1, "pass", "MENDED")
    )
    assert seen(judged_findings(today, yesterday)) == {
        "LASTS": ("open", "fail", -1, 1),
        "MENDED": ("fixed", "fail", -1, -1),
        "DELETED": ("fixed", "fail", -1, -1),
    }


def test_only_a_snapshot_of_its_own_fleet_ends_a_finding(spark: SparkSession) -> None:
    """Today the check does not apply to any consumer. The live fleet shows that the consumer no longer exists; the dead
    fleet shows nothing."""
    yesterday = judged_findings(
        results(
            spark,
            look(-1, "fail", "UNSEEN", fleet="dead", check="CONSUMER_209"),
            look(-1, "fail", "DELETED", check="CONSUMER_209"),
        )
    )
    assert seen(judged_findings(results(spark, look(1, "pass", "WELL")), yesterday)) == {
        "UNSEEN": ("open", "fail", -1, -1),
        "DELETED": ("fixed", "fail", -1, -1),
    }


def test_unknown_results_are_counted_by_reason(spark: SparkSession) -> None:
    silent = {"kind": "server", "server": "n2", "text": "did not answer jsz: no answer in time"}
    found = judged_findings(
        results(
            spark,
            *(look(0, "unknown", None, **silent, check=check) for check in ("STREAM_101", "STREAM_102")),
            look(0, "unknown", "S", text="not reported: lag"),
            look(0, "fail", "T"),
        )
    )
    assert {(row["text"], row["findings"], *row["checks"], *row["servers"]) for row in reasons(found).collect()} == {
        ("did not answer jsz: no answer in time", 2, "STREAM_101", "STREAM_102", "n2"),
        ("not reported: lag", 1, "STREAM_101"),
    }


def test_finding_belongs_to_one_domain(spark: SparkSession) -> None:
    """The streams have the same name; the healthy stream does not affect the other."""
    looks = [
        *(look(at, "fail", domain="hub") for at in range(3)),
        *(look(at, "fail" if at < 2 else "pass", domain="edge") for at in range(3)),
        *(look(at, "pass", domain="") for at in range(3)),
    ]
    found = judged_findings(results(spark, *looks)).collect()
    assert {row["domain"]: row["state"] for row in found} == {"hub": "open", "edge": "fixed"}


def used(at: int, days: float, name: str = "S", **more: Any) -> dict[str, Any]:
    """Return the result of CAPACITY_201 for a stream that will be full in this many days; fewer than 14 fail."""
    row = look(at, "fail" if days < 14 else "pass", name, check="CAPACITY_201", severity="warning")
    return {**row, "value": days, "threshold": 14.0, **more}


def test_a_finding_at_its_threshold_does_not_come_and_go(spark: SparkSession) -> None:
    """The finding ends once the value is a tenth of the threshold away from it; a check that never failed does not fail
    within this margin."""
    made = judged_findings(
        results(
            spark,
            used(0, 13.9, "FLAPS"), used(1, 14.1, "FLAPS"), used(2, 13.9, "FLAPS"), used(3, 14.1, "FLAPS"),
            used(0, 13.9, "CLEAR"), used(1, 14.1, "CLEAR"), used(2, 15.5, "CLEAR"), used(3, 14.1, "CLEAR"),
            *(used(at, 14.1, "WELL") for at in range(4)),
            used(0, 13.9, "GONE"), used(1, 14.1, "GONE"),
            # Raising the threshold ends it.
            used(0, 13.9, "RAISED", threshold=15.0), used(3, 14.1, "RAISED"),
            # Counts have no margin, so one leader fewer ends the finding.
            look(0, "fail", "COUNTED", value=99.0, threshold=100.0), look(3, "pass", "COUNTED", value=100.0, threshold=100.0),
        )
    )  # fmt: skip
    assert seen(made) == {
        "FLAPS": ("open", "fail", 0, 2),
        "CLEAR": ("fixed", "fail", 0, 0),
        "GONE": ("fixed", "fail", 0, 0),
        "RAISED": ("fixed", "fail", 0, 0),
        "COUNTED": ("fixed", "fail", 0, 0),
    }


def test_hour_stores_only_passes_that_may_close_a_finding(spark: SparkSession) -> None:
    made = results(
        spark,
        look(1, "pass", "WELL"),
        look(1, "fail", "FAILS"),
        look(1, "pass", "FAILED"),
        look(2, "pass", "FAILS"),
        used(2, 14.1, "NEAR"),
        used(2, 20.0, "CLEAR"),
    )
    others = results(spark, look(0, "fail", "FAILED"), *(used(0, 13.9, name) for name in ("NEAR", "CLEAR")))
    stored = hourly_findings(made, summary(made, REGISTRY), [others])
    assert sorted((row["stream"], row["taken"], row["value"]) for row in stored["passes"].collect()) == [
        ("CLEAR", hour(2), None),
        ("FAILED", hour(1), None),
        ("FAILS", hour(2), None),
        ("NEAR", hour(2), 14.1),
    ]
    assert {row["stream"] for row in stored["results"].collect()} == {"FAILS"}


def test_values_near_the_threshold_before_a_failure_do_not_affect_it(spark: SparkSession) -> None:
    run = judged_findings(results(spark, used(0, 14.1, "S"), used(1, 13.9, "S")))
    assert seen(run) == {"S": ("open", "fail", 1, 1)}
    # The last snapshot of that hour is another one now, so this day never had a failure.
    again = results(spark, used(0, 14.1, "S"), used(2, 16.0, "S"))
    assert seen(judged_findings(again, None, run)) == {}


def test_finding_at_its_threshold_continues_over_midnight_and_in_the_next_run(spark: SparkSession) -> None:
    yesterday = judged_findings(results(spark, used(-1, 13.9, "LASTS"), used(-1, 13.9, "OVER")))
    today = results(spark, used(1, 14.1, "LASTS"), used(1, 16.0, "OVER"))
    assert {row["unit"] for row in judged_findings(today, yesterday).collect()} == {"days"}
    assert seen(judged_findings(today, yesterday)) == {
        "LASTS": ("open", "fail", -1, -1),
        "OVER": ("fixed", "fail", -1, -1),
    }
    # A check of the complete day has one sample, which each run of the day replaces.
    run = judged_findings(
        results(spark, *(used(1, 13.9, name) for name in ("LASTS", "OVER", "RAISED", "GONE", "FAILS")))
    )
    again = results(
        spark,
        used(2, 14.1, "LASTS"),
        used(2, 16.0, "OVER"),
        used(2, 14.1, "RAISED", threshold=13.0),
        used(2, 13.0, "FAILS"),
        used(2, 14.1, "NEW"),
    )
    assert seen(judged_findings(again, None, run)) == {
        "LASTS": ("open", "fail", 1, 1),
        "FAILS": ("open", "fail", 2, 2),
    }
