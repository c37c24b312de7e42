# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluation of every check over the rows of its view. All checks of a view are evaluated in one pass.

There are three results: fail, pass and unknown. A result is unknown if its input was not reported: a null column, a missing
table, a server that did not answer, too few snapshots. Unknown is never a pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial, reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from jetstream_insights.fields import go_seconds
from jetstream_insights.findings.moment_views import rates
from jetstream_insights.findings.over_time import name_of_hours
from jetstream_insights.findings.registry import (
    CRITICAL,
    FAIL,
    MARGIN,
    MONITOR_METADATA,
    OWN_METADATA,
    PASS,
    SKIP_METADATA,
    UNKNOWN,
    WARNING,
    Check,
    CheckSettings,
    Registry,
    Threshold,
    View,
    addressed,
    literal,
    text_sql,
)
from jetstream_insights.findings.subjects import SUBJECT, VIEWS
from jetstream_insights.findings.view_rows import Tables
from jetstream_insights.findings.views import MAKE

_MOMENT = ("fleet", "snapshot", "taken", "since")
RESULTS = (*_MOMENT, "check", "severity", "result", "kind", *SUBJECT, "peer", "value", "threshold", "text", "remedy")
#: The columns of judged rows, which `single_results` turns into RESULTS.
JUDGED_ROWS = (*RESULTS, "passed")
_DURATION = r"^\s*([0-9.]+(ns|us|µs|ms|s|m|h|d|y))+\s*$"


@dataclass(frozen=True)
class Part:
    """The JUDGED_ROWS of some checks. `grave`: those among them whose failures depend on the previous snapshot."""

    rows: DataFrame
    grave: tuple[Check, ...] = ()
    #: Returns these results, in which failures of these checks depend on the previous snapshot.
    confirm: Callable[[DataFrame, Sequence[Check]], DataFrame] = lambda rows, _checks: rows


def judge(tables: Tables, snapshots: Sequence[str], registry: Registry, settings: CheckSettings) -> Iterator[Part]:
    """Yield the results of all checks, one part for each view: tasks of a single plan for all views would spend their time on
    reading that plan.

    `tables`: the silver tables of a period, including empty ones, and the available gold tables and `hosts`. Checks of one
    moment use these `snapshots`, the others the entire period.
    """
    yield from judge_moments(tables, snapshots, registry, settings)
    yield from judge_time(tables, registry, settings)


def judge_moments(
    tables: Tables, snapshots: Sequence[str], registry: Registry, settings: CheckSettings
) -> Iterator[Part]:
    """Yield the results of the checks of one moment. A critical result is a warning until the previous snapshot, if there is one,
    shows it as well: servers do not answer at the same time, and elections take a second. Most views have no such result, so the
    previous snapshot is read only to confirm one."""
    checks = enabled_checks(registry, settings, period=False)
    current = _at(tables, snapshots)
    pairs = _pairs(tables["snapshots"], snapshots)
    current |= rates(tables, pairs, "snapshot")
    moments = current["snapshots"].withColumn("since", F.col("taken"))

    @cache
    def before() -> Tables:
        return _at(tables, sorted({row["before"] for row in pairs.collect()})) | rates(tables, pairs, "before")

    def confirm(view: View, rows: DataFrame, of: Sequence[Check]) -> DataFrame:
        return _confirmed(rows, judged_rows(MAKE[view.name](before()), view, of, settings), pairs, of)

    for view, mine in _by_view(checks):
        if lacking := [name for name in view.tables if name not in tables]:
            yield Part(_missing(moments, view, mine, lacking))
        else:
            grave = tuple(check for check in mine if check.severity == CRITICAL or check.worse or check.twice)
            yield Part(judged_rows(MAKE[view.name](current), view, mine, settings), grave, partial(confirm, view))
    for frame in (*_silent(current, checks), *_unreported(current, checks, moments)):
        yield Part(frame)


def judge_time(tables: Tables, registry: Registry, settings: CheckSettings) -> Iterator[Part]:
    """Yield the results of the checks of an entire period."""
    checks = enabled_checks(registry, settings, period=True)
    spans = (
        tables["snapshots"]
        .groupBy("fleet")
        .agg(
            F.max("snapshot").alias("snapshot"),
            F.max("taken").alias("taken"),
            F.min("taken").alias("since"),
            F.when(F.bool_and(F.col("asked").isNotNull()), F.flatten(F.collect_set("asked"))).alias("asked"),
        )
    )
    for view, mine in _by_view(checks):
        if lacking := [name for name in view.tables if name not in tables]:
            yield Part(_missing(spans, view, mine, lacking))
        else:
            rows = MAKE[view.name](tables).join(F.broadcast(spans.drop("asked")), "fleet")
            yield Part(judged_rows(rows, view, mine, settings))
    for frame in _unreported(tables, checks, spans):
        yield Part(frame)


def enabled_checks(registry: Registry, settings: CheckSettings, period: bool) -> list[Check]:
    """Return the enabled checks, either of one moment or of a period."""
    wanted = (check for check in registry.checks.values() if check.code not in settings.skip)
    return [check for check in wanted if VIEWS[check.view].period == period]


def _by_view(checks: Sequence[Check]) -> Iterator[tuple[View, list[Check]]]:
    for view in VIEWS.values():
        if mine := [check for check in checks if check.view == view.name]:
            yield view, mine


def _at(tables: Tables, snapshots: Sequence[str]) -> dict[str, DataFrame]:
    return {
        name: frame.where(F.col("snapshot").isin(list(snapshots))) if "snapshot" in frame.columns else frame
        for name, frame in tables.items()
    }


def _pairs(snapshot_rows: DataFrame, snapshots: Sequence[str]) -> DataFrame:
    """Return these snapshots of each fleet with the previous one as `before`, if there is one."""
    in_order = Window.partitionBy("fleet").orderBy("taken", "snapshot")
    known = snapshot_rows.select("fleet", "snapshot", F.lag("snapshot").over(in_order).alias("before"))
    return known.where(F.col("snapshot").isin(list(snapshots)) & F.col("before").isNotNull())


def is_grave(checks: Iterable[Check]) -> Column:
    """Return whether a result is a failure that depends on the previous snapshot."""
    twice = [check.code for check in checks if check.twice]
    return (F.col("result") == FAIL) & (F.col("check").isin(twice) | (F.col("severity") == CRITICAL))


def _confirmed(results: DataFrame, earlier: DataFrame, pairs: DataFrame, checks: Sequence[Check]) -> DataFrame:
    """Return results in which a critical failure is a warning, and a failure that must occur twice a pass, unless the result
    for the previous snapshot was not a pass either. `checks`: those that have such failures."""
    about = F.to_json(F.array("check", *SUBJECT))
    twice = F.col("check").isin([check.code for check in checks if check.twice])
    shown = (
        earlier.where((F.col("result") != PASS) & (twice | (F.col("severity") == CRITICAL)))
        .select("fleet", F.col("snapshot").alias("before"), about.alias("about"), F.lit(True).alias("shown"))
        .distinct()
    )
    grave = is_grave(checks)
    known = results.join(F.broadcast(pairs), ["fleet", "snapshot"], "left").withColumn("about", F.when(grave, about))
    new = grave & F.col("before").isNotNull() & F.col("shown").isNull()
    return (
        known.join(shown, ["fleet", "before", "about"], "left")
        .withColumns(
            {
                "result": F.when(new & twice, PASS).otherwise(F.col("result")),
                "severity": F.when(new & (F.col("severity") == CRITICAL), WARNING).otherwise(F.col("severity")),
                "text": F.when(new, F.when(~twice, F.concat("text", F.lit("; not in the snapshot before")))).otherwise(
                    F.col("text")
                ),
                **{name: F.when(~(new & twice), F.col(name)) for name in ("peer", "remedy")},
            }
        )
        .select(*JUDGED_ROWS)
    )


def summary(results: DataFrame, registry: Registry) -> DataFrame:
    """Return the number of failures, passes and unknown results of each check, for each snapshot and for the entire period."""
    counts = {"failed": FAIL, "passed": PASS, "unknown": UNKNOWN}
    counted = results.groupBy("fleet", "snapshot", "taken", "check").agg(
        F.min("since").alias("since"),
        *(F.count_if(F.col("result") == result).alias(name) for name, result in counts.items()),
        F.count_if((F.col("result") == FAIL) & (F.col("severity") == "critical")).alias("critical"),
    )
    known = _values(
        results,
        [(check.code, check.severity, check.title) for check in registry.checks.values()],
        ("check", "severity", "title"),
    )
    return counted.join(F.broadcast(known), "check", "left").select(
        *_MOMENT, "check", "severity", "title", "failed", "critical", "unknown", "passed"
    )


# --- a view ---------------------------------------------------------------------------------------------------------------


def judged_rows(frame: DataFrame, view: View, checks: Sequence[Check], settings: CheckSettings) -> DataFrame:
    """Return the results of a view's checks: a row for each failure and unknown result, and one for all passes of a subject, with
    the codes of their checks in `passed`. Passes are by far the most frequent results. Only a value near its threshold has its
    own row (lifetime.py). Each call that adds columns analyses the plan of the view again, so few calls do."""
    steady = {check.code for check in checks if check.steady}
    if not view.overridden:
        # Each column takes time to plan, and constants make the plan smaller.
        checks = [check.with_numbers(settings.thresholds) for check in checks]
    thresholds = [
        f"{_threshold(check, threshold, settings)} AS `{check.name(threshold.key)}`"
        for check in checks
        for threshold in check.thresholds
    ]
    known = _with_numbers(frame).selectExpr("*", *thresholds) if thresholds else frame
    passes = {check.code: f"`{check.code}` = '{PASS}'" for check in checks}
    near = {check.code: f"{passes[check.code]} AND {_near(check)}" for check in checks if check.code in steady}
    shown = (
        f"CASE WHEN `{check.code}` <> '{PASS}'{f' OR {near[check.code]}' if check.code in near else ''} "
        f"THEN {_content(check, view)} END"
        for check in checks
    )
    passed = ", ".join(
        f"CASE {f'WHEN {near[code]} THEN NULL ' if code in near else ''}WHEN {condition} THEN '{code}' END"
        for code, condition in passes.items()
    )
    structs = ", ".join([*shown, _PASSES.format(passed=passed)])
    subject = (name if name in view.keys else f"CAST(NULL AS STRING) AS {name}" for name in SUBJECT)
    return known.selectExpr("*", *(f"{_result(check, view)} AS `{check.code}`" for check in checks)).selectExpr(
        *_MOMENT, f"{literal(view.kind)} AS kind", *subject, f"inline(array_compact(array({structs})))"
    )


#: The row of a subject's passes, as SQL.
_PASSES = (
    f"named_struct('check', CAST(NULL AS STRING), 'severity', CAST(NULL AS STRING), 'result', '{PASS}', "
    "'peer', CAST(NULL AS STRING), 'value', CAST(NULL AS DOUBLE), 'threshold', CAST(NULL AS DOUBLE), "
    "'text', CAST(NULL AS STRING), 'remedy', CAST(NULL AS STRING), 'passed', array_compact(array({passed})))"
)


def single_results(rows: DataFrame) -> DataFrame:
    """Return a row for each result, passes included."""
    code = F.explode(F.when(F.col("check").isNull(), F.col("passed")).otherwise(F.array("check"))).alias("check")
    return rows.select(*(code if name == "check" else name for name in RESULTS))


def is_near(value: str, threshold: str) -> str:
    """Return, as SQL, whether a value is too close to its threshold to end a finding."""
    return f"coalesce(abs(abs({value}) - {threshold}) < {MARGIN}D * {threshold}, false)"


def _near(check: Check) -> str:
    return is_near(f"CAST({check.sql(check.value)} AS DOUBLE)", f"CAST({check.sql(check.compared_with)} AS DOUBLE)")


#: The columns with the thresholds in the metadata of a row, by key: as plain numbers, and with durations in seconds.
_NUMBERS, _SECONDS = "_numbers", "_seconds"


def _with_numbers(frame: DataFrame) -> DataFrame:
    """Add the thresholds in the metadata of each row. A value that cannot be parsed is null. Parsing has a regular expression for
    each unit of time, so a plan that parses each threshold on its own takes much longer to build."""
    prefixes = (OWN_METADATA, MONITOR_METADATA)
    given = F.map_filter("metadata", lambda key, _text: reduce(Column.__or__, map(key.startswith, prefixes)))

    def number(text: Column) -> Column:
        # Java parses 8d and 8f as the number 8.
        return F.when(~text.rlike(r"[dDfF]\s*$"), text.try_cast("double"))

    def with_duration(text: Column) -> Column:
        return F.coalesce(number(text), F.when(text.rlike(_DURATION), go_seconds(text)))

    def numbers(parse: Callable[[Column], Column]) -> Column:
        parsed = F.transform_values(given, lambda _key, text: parse(text))
        # No value exceeds NaN or infinity: the check would always pass.
        return F.transform_values(parsed, lambda _key, value: F.when((value >= 0) & (value < math.inf), value))

    return frame.withColumns({_NUMBERS: numbers(number), _SECONDS: numbers(with_duration)})


def _threshold(check: Check, threshold: Threshold, settings: CheckSettings) -> str:
    """Return, as SQL, a threshold from the metadata of the stream or consumer, otherwise from the settings, or the default.
    Null if the metadata cannot be parsed."""
    name = check.name(threshold.key)

    def value(columns: str, key: str) -> str:
        return f"try_element_at({columns}, {literal(key)})"

    numbers, own = _SECONDS if threshold.unit == "s" else _NUMBERS, OWN_METADATA + name
    cases = f"WHEN {value('metadata', own)} IS NOT NULL THEN {value(numbers, own)}"
    if threshold.monitor:
        shared = MONITOR_METADATA + threshold.monitor
        number = value(numbers, shared)
        # In the shared key, 0 disables the threshold and is ignored.
        cases += f" WHEN {value('metadata', shared)} IS NOT NULL AND coalesce({number}, 1D) <> 0 THEN {number}"
    return f"CASE {cases} ELSE {float(settings.thresholds.get(name, threshold.default))!r}D END"


def _columns(check: Check) -> list[str]:
    return [check.sql(f":{threshold.key}") for threshold in check.thresholds]


def _result(check: Check, view: View) -> str:
    """Return a check's result for a row, as SQL; null if the row is outside its scope."""
    sql = check.sql
    applies = f"({sql(check.applies)})"
    if view.overridden:
        unwanted = f"split(try_element_at(metadata, {literal(SKIP_METADATA)}), ' *, *')"
        applies += f" AND NOT coalesce(array_contains({unwanted}, '{check.code}'), false)"
    needs = [f"{name} IS NOT NULL" for name in (*_columns(check), *check.needs)]
    known = " AND ".join([*needs, f"({sql(check.knows)})"] if check.knows else needs)
    fails = f"({sql(check.fails)})"
    return (
        f"CASE WHEN ({applies}) IS NOT TRUE THEN NULL WHEN ({known or 'true'}) IS NOT TRUE THEN '{UNKNOWN}' "
        # A second condition would be planned and computed again.
        f"ELSE coalesce(elt(2 - CAST({fails} AS INT), '{FAIL}', '{PASS}'), '{UNKNOWN}') END"
    )


def _content(check: Check, view: View) -> str:
    """Return the struct with the content of a result, as SQL. The result itself is in a column named after the check, because an
    expression would be planned and computed for each use. Texts are computed only for the results that show them."""
    sql, result = check.sql, f"`{check.code}`"
    columns = _columns(check)
    fails = f"({sql(check.fails)})"
    severity = f"'{check.severity}'"
    if check.worse:
        severity = f"CASE WHEN ({sql(check.worse)}) AND {fails} THEN 'critical' ELSE {severity} END"
    against = sql(check.compared_with) or "NULL"
    remedy = sql(text_sql(addressed(check.remedy, view.keys)))
    return (
        f"named_struct('check', '{check.code}', 'severity', {severity}, 'result', {result}, "
        f"'peer', {f'CASE WHEN {fails} THEN {sql(check.peer)} END' if check.peer else 'CAST(NULL AS STRING)'}, "
        f"'value', CAST({sql(check.value)} AS DOUBLE), 'threshold', CAST({against} AS DOUBLE), "
        f"'text', CASE {result} WHEN '{UNKNOWN}' THEN {_why_unknown(check, columns)} "
        f"WHEN '{FAIL}' THEN {sql(text_sql(check.text))} END, "
        f"'remedy', CASE WHEN {result} = '{FAIL}' THEN {remedy} END, 'passed', CAST(NULL AS ARRAY<STRING>))"
    )


def _why_unknown(check: Check, columns: Iterable[str]) -> str:
    """Return the reason for an unknown result, as SQL."""
    unreadable = ", ".join(f"CASE WHEN {name} IS NULL THEN {literal(name.strip('`'))} END" for name in columns)
    unreported = ", ".join(f"CASE WHEN {name} IS NULL THEN {literal(name)} END" for name in check.needs)
    missing = f"nullif(concat_ws(', ', {unreported}), '')" if unreported else "NULL"
    reason = f"concat('not reported: ', coalesce({missing}, 'a value that this check compares'))"
    if check.unknown:
        reason = check.sql(text_sql(check.unknown))
    if not unreadable:
        return reason
    wrong = f"concat_ws(', ', {unreadable})"
    return f"CASE WHEN {wrong} <> '' THEN concat('its metadata cannot be read: ', {wrong}) ELSE {reason} END"


# --- missing input --------------------------------------------------------------------------------------------------------------


def _values(any_frame: DataFrame, rows: Sequence[tuple[str, ...]], names: Sequence[str]) -> DataFrame:
    """Return constant rows of texts."""
    content = ", ".join("(" + ", ".join(literal(value) for value in row) + ")" for row in rows)
    return any_frame.sparkSession.sql(
        f"SELECT * FROM VALUES {content} AS known({', '.join(f'`{name}`' for name in names)})"
    )


def _unknown(frame: DataFrame, kind: Column, text: Column, server: Column | None = None) -> DataFrame:
    none = F.lit(None).cast("string")
    named = {"server": server} if server is not None else {}
    number = F.lit(None).cast("double")
    return frame.select(
        *_MOMENT,
        "check",
        "severity",
        F.lit(UNKNOWN).alias("result"),
        kind.alias("kind"),
        *(named.get(name, none).alias(name) for name in SUBJECT),
        none.alias("peer"),
        number.alias("value"),
        number.alias("threshold"),
        text.alias("text"),
        none.alias("remedy"),
        F.lit(None).cast("array<string>").alias("passed"),
    )


#: Reasons for missing tables that exist only on request.
_NOT_READ = {
    "advisories": "no advisories are captured (docs/insights.md)",
    "hosts": "no host was read (docs/insights.md)",
    "drift": "no comparison of assets with documents was read (docs/assets.md)",
}


def _missing(moments: DataFrame, view: View, checks: Sequence[Check], tables: Sequence[str]) -> DataFrame:
    """Return unknown results for checks whose tables are missing."""
    known = _values(moments, [(check.code, check.severity) for check in checks], ("check", "severity"))
    crossed = moments.select(*_MOMENT).crossJoin(F.broadcast(known))
    why = "; ".join(_NOT_READ.get(name, f"there is no table {name}") for name in tables)
    return _unknown(crossed, F.lit(view.kind), F.lit(why))


def _silent(tables: Tables, checks: Sequence[Check]) -> Iterator[DataFrame]:
    """Yield unknown results for servers that did not answer an endpoint of the checks."""
    asked = sorted(
        {(endpoint, check.code, check.severity) for check in checks for endpoint in _endpoints(VIEWS[check.view])}
    )
    if not asked:
        return
    known = _values(tables["failures"], asked, ("endpoint", "check", "severity"))
    failed = (
        tables["failures"]
        .groupBy("fleet", "snapshot", "taken", "server", "endpoint")
        .agg(F.min("description").alias("why"))
    )
    joined = (
        failed.join(F.broadcast(known), "endpoint")
        .groupBy("fleet", "snapshot", "taken", "server", "check", "severity")
        .agg(F.array_sort(F.collect_set("endpoint")).alias("endpoints"), F.min("why").alias("why"))
    )
    text = F.concat(
        F.lit("did not answer "), F.array_join("endpoints", ", "), F.lit(": "), F.coalesce("why", F.lit("?"))
    )
    yield _unknown(joined.withColumn("since", F.col("taken")), F.lit("server"), text, F.col("server"))


def _endpoints(view: View) -> tuple[str, ...]:
    return () if view.period or view.name == "snapshots" else ("servers", *view.endpoints)


#: Endpoints that are read if present, and never requested from servers.
_NOT_ASKED_OF_SERVERS = {"backups", "drift", "jwts"}


def _unreported(tables: Tables, checks: Sequence[Check], judged: DataFrame) -> Iterator[DataFrame]:
    """Yield unknown results for views without rows that should have some, or whose endpoints were not requested. `judged`: the
    snapshots of a moment, or the period of each fleet, with the endpoints in `asked`, null if unknown."""
    views = {
        check.view: view
        for check in checks
        if ((view := VIEWS[check.view]).reported or view.endpoints) and all(name in tables for name in view.tables)
    }
    if not views:
        return
    whole = all(view.period for view in views.values())
    key = ["fleet"] if whole else ["fleet", "snapshot"]
    presence = [
        tables.get(name_of_hours(name), tables[name]).select(*key).distinct().withColumn("table", F.lit(name))
        for name in sorted({view.tables[0] for view in views.values()})
    ]
    reported = (
        tables["servers"]
        .groupBy(*key)
        .agg(
            *(
                F.expr(f"bool_or(true) AND ({view.reported or 'false'})").alias(f"reported_{name}")
                for name, view in views.items()
            )
        )
    )
    wanted = judged.join(F.broadcast(reported), key, "left").select(
        *_MOMENT,
        "asked",
        F.inline(
            F.array(
                *(
                    F.struct(
                        F.lit(name).alias("view"),
                        F.lit(view.tables[0]).alias("table"),
                        F.lit(view.kind).alias("kind"),
                        F.array(*map(F.lit, sorted({*view.endpoints} - _NOT_ASKED_OF_SERVERS)))
                        .cast("array<string>")
                        .alias("endpoints"),
                        F.coalesce(F.col(f"reported_{name}"), F.lit(True)).alias("reported"),
                    )
                    for name, view in views.items()
                )
            )
        ),
    )
    known = _values(
        wanted,
        [(check.view, check.code, check.severity) for check in checks if check.view in views],
        ("view", "check", "severity"),
    )
    there = reduce(DataFrame.unionByName, presence)
    unasked = F.array_except("endpoints", F.coalesce("asked", "endpoints"))
    nothing = wanted.withColumn("unasked", unasked).where("reported OR size(unasked) > 0")
    absent = nothing.join(there, [*key, "table"], "left_anti").join(F.broadcast(known), "view")
    why = F.when(F.size("unasked") > 0, F.concat(F.lit("the snapshot did not request "), F.array_join("unasked", ", ")))
    held = F.concat(F.lit("no snapshot holds " if whole else "the snapshot holds no "), F.col("table"))
    yield _unknown(absent, F.col("kind"), F.coalesce(why, held))
