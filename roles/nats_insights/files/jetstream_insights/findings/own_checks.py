# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The columns of the views, and the verification of the expressions of own checks on empty tables, before any job starts."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from difflib import get_close_matches

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jetstream_insights.findings.checks_file import EXPRESSIONS, ChecksFile, ChecksFileError
from jetstream_insights.findings.document import views_page
from jetstream_insights.findings.evaluate import judged_rows
from jetstream_insights.findings.over_time import KEPT, name_of_hours
from jetstream_insights.findings.registry import Check, CheckSettings, View, text_sql
from jetstream_insights.findings.subjects import VIEWS
from jetstream_insights.findings.views import MAKE
from jetstream_insights.lake import columns
from jetstream_insights.session import session
from jetstream_insights.silver import COLUMNS as SILVER

#: Columns that the judgement adds to the views of a day.
_MOMENT = {"snapshot": "string", "taken": "timestamp", "since": "timestamp"}


def empty_view(spark: SparkSession, view: View) -> DataFrame:
    """Return the view without rows, with its columns."""
    layers = {name: "silver" if name in SILVER else "gold" for name in ("servers", "snapshots", *view.tables)}
    tables = {name: spark.createDataFrame([], columns(layer, name)) for name, layer in layers.items()}
    tables |= {name_of_hours(name): spark.createDataFrame([], KEPT[name]) for name in KEPT}
    frame = MAKE[view.name](tables)
    added = {name: F.lit(None).cast(type_) for name, type_ in _MOMENT.items() if name not in frame.columns}
    return frame.withColumns(added) if added else frame


def verify(spark: SparkSession, given: ChecksFile) -> None:
    """Raise ChecksFileError, with the place of each expression that Spark does not accept."""
    # PySpark logs each refused expression with its plan, which is longer than all messages.
    log = logging.getLogger("SQLQueryContextLogger")
    before, log.disabled = log.disabled, True
    try:
        wrong = [problem for check in given.own for problem in _problems(spark, check, given)]
    finally:
        log.disabled = before
    if wrong:
        raise ChecksFileError("\n".join(wrong))


def _problems(spark: SparkSession, check: Check, given: ChecksFile) -> Iterator[str]:
    view = VIEWS[check.view]
    rows = empty_view(spark, view)
    frame = rows
    for threshold in check.thresholds:
        frame = frame.withColumn(check.name(threshold.key), F.lit(threshold.default))
    expressions = {
        "expression": check.sql(check.fails),
        "only": check.sql(check.applies),
        "value": f"CAST(({check.sql(check.value)}) AS DOUBLE) IS NULL",
        "text": f"{check.sql(text_sql(check.text))} IS NULL",
    }
    wrong = False
    for key in (*EXPRESSIONS, "text"):
        place = given.places.get((check.code, key))
        if place is None:
            continue
        try:
            # Only functions of one row can filter rows. The schema makes Spark Connect analyse the expression as well.
            _schema = frame.where(f"({expressions[key]}\n)").schema
        except PySparkException as error:
            wrong = True
            yield f"{place}: {key} of {check.code}: {_reason(error, frame, view)}"
    if not wrong:
        try:
            _schema = judged_rows(rows, view, [check], CheckSettings()).schema
        except PySparkException as error:
            yield f"{given.places[check.code, 'expression']}: {check.code}: {_reason(error, frame, view)}"


def _reason(error: PySparkException, frame: DataFrame, view: View) -> str:
    condition, named = error.getCondition() or "", error.getMessageParameters() or {}
    if condition.startswith(("UNRESOLVED_COLUMN", "UNRESOLVED_FIELD")):
        column = str(named.get("objectName") or named.get("fieldName")).strip("`")
        like = ", ".join(get_close_matches(column, frame.columns, 3))
        return (
            f"the view {view.name} has no column {column}{f' (similar: {like})' if like else ''}: "
            "see docs/reference/insights_views.md"
        )
    if condition == "DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN":
        return f"{named.get('filter')} is of the type {named.get('type')}: compare it with something"
    kind = "Spark cannot read it" if not isinstance(error, AnalysisException) else "Spark refuses it"
    return f"{kind}: {str(error).strip().splitlines()[0]}"


def columns_of_views(spark: SparkSession) -> dict[str, list[tuple[str, str]]]:
    """Return the columns of each view with their types."""
    return {
        view.name: [(field.name, field.dataType.simpleString()) for field in empty_view(spark, view).schema]
        for view in VIEWS.values()
    }


if __name__ == "__main__":
    print(views_page(columns_of_views(session("local[1]", little=True))), end="")
