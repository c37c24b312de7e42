# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Availability of servers and Raft groups over the day, and the incidents with their likely causes.

The first half of the time between two snapshots has the state of the first, the second half that of the second; both belong
to the day of the second. A group without a report is leaderless if all servers that reported it are absent. An incident is a
series of consecutive snapshots with the same bad state; it ends with the day and continues on the next with `began_before`.
Causes are candidates, not proof: events of a member between the last good snapshot and the last bad one.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from jetstream_insights.gold import columns
from jetstream_insights.gold.common import SNAPSHOT_KEY, GoldSettings, in_maintenance
from jetstream_insights.gold.leadership import last_runs
from jetstream_insights.gold.tables import GROUP_KEY, GoldTable, not_negative, ratio
from jetstream_insights.keys import CONSUMER
from jetstream_insights.times import seconds

_BAD = ("no_leader", "no_quorum", "not_redundant")

#: Seconds before an incident in which an advisory or a log line may still explain it: they are written when the event happens,
#: not when a snapshot shows it.
_MARGIN = 60.0
_BEFORE = f"INTERVAL {int(_MARGIN)} SECONDS"
#: Maximum number of candidates of an incident.
_MOST = 10

#: Kinds of advisories about requests and deliveries, which do not explain the state of a group.
_BUSY = ("api_audit", "max_deliver", "nak", "terminated", "unreadable")

#: Kinds of lines in a server's log that may be causes, with their ranks: a disk error is first, as it explains a restart, too.
_LOGGED = {
    "no_space": 0,
    "storage": 0,
    "lame_duck": 3,
    "stopped": 3,
    "reloaded": 3,
    "route": 3,
    "catch_up": 4,
    "slow": 4,
}


def _started() -> Column:
    """Return the start of a server; without VARZ, computed from the uptime in STATSZ."""
    return F.coalesce("start", F.timestamp_micros(F.unix_micros("taken") - (F.col("uptime") * 1e6).cast("bigint")))


def restarts(answer_rows: DataFrame, past: DataFrame, settings: GoldSettings) -> DataFrame:
    """Return the starts of servers, by name. `past`: server_availability of the previous days, for each server's last answer.

    A name shared by two servers does not identify either, and is left out.
    """
    shared = ("fleet", "server", "server_id", "cluster", "version", "start", "taken")
    today = answer_rows.where("NOT namesakes").select("*", "identity.*")
    renamed = past.withColumn("taken", F.col("seen")).where(F.col("seen").isNotNull())
    before = renamed.groupBy("fleet", "server").agg(F.max_by(F.struct(*shared), "taken").alias("of")).select("of.*")
    rows = today.select(*shared, F.lit(True).alias("today")).unionByName(before.withColumn("today", F.lit(False)))
    server = Window.partitionBy("fleet", "server").orderBy("taken")
    old = {f"old_{name}": F.lag(name).over(server) for name in ("server_id", "version", "start", "taken")}
    later = F.col("start") > F.col("old_start") + F.expr("INTERVAL 1 SECOND")
    again = (F.col("server_id") != F.col("old_server_id")) | F.coalesce(later, F.lit(False))
    found = rows.withColumns(old).where(F.col("today") & again)
    return found.select(
        "fleet",
        F.to_date("taken").alias("day"),
        "server",
        "cluster",
        "taken",
        F.col("old_taken").alias("before"),
        "start",
        "old_start",
        not_negative(seconds(F.col("old_taken"), F.col("start"))).alias("down"),
        "old_version",
        "version",
        (F.col("version") != F.col("old_version")).alias("upgraded"),
        in_maintenance(settings, F.col("old_taken"), F.col("taken"), F.array("server")).alias("maintenance"),
    )


def availability(timeline_rows: DataFrame, past: DataFrame, settings: GoldSettings) -> DataFrame:
    """Return for each Raft group how long it had a leader, a quorum, and all its replicas.

    Between two snapshots half the time has the earlier and half the later state; beyond the longest gap the state is unknown.
    """
    shared = [name for name in timeline_rows.columns if name != "day"]
    runs = timeline_rows.unionByName(
        last_runs(past).select(*shared).withColumns({"run": F.lit(0), "day": F.lit(None).cast("date")})
    )
    group = Window.partitionBy("fleet", *GROUP_KEY).orderBy("run")
    timed = runs.withColumns(
        {
            "within": seconds(F.col("begin"), F.col("end")),
            "bridge": F.coalesce(seconds(F.col("before"), F.col("begin")), F.lit(0.0)),
            "gap": F.when(F.col("before").isNull(), seconds(F.lag("end").over(group), F.col("begin"))),
            "old_state": F.lag("state").over(group),
        }
    ).where(F.col("run") > 0)

    def spent(*states: str) -> Column:
        here = F.when(F.col("state").isin(*states), F.col("within") + F.col("bridge") / 2).otherwise(0.0)
        there = F.when(F.col("old_state").isin(*states), F.col("bridge") / 2).otherwise(0.0)
        return F.sum(here + there)

    known = ("ok", "not_redundant", "no_quorum", "no_leader")
    summed = timed.groupBy("fleet", "day", *GROUP_KEY).agg(
        F.max_by("cluster", "run").alias("cluster"),
        F.max_by("num_replicas", "run").alias("num_replicas"),
        spent(*known).alias("seconds"),
        (spent("unknown") + F.sum(F.coalesce("gap", F.lit(0.0)))).alias("unknown"),
        spent("ok", "not_redundant", "no_quorum").alias("with_leader"),
        spent("ok", "not_redundant").alias("with_quorum"),
        spent("ok").alias("redundant"),
    )
    quorum_share = ratio(F.col("with_quorum"), F.col("seconds"))
    return summed.withColumns(
        {
            "leader_ratio": ratio(F.col("with_leader"), F.col("seconds")),
            "quorum_ratio": quorum_share,
            "redundant_ratio": ratio(F.col("redundant"), F.col("seconds")),
            "slo": F.lit(settings.slo),
            "met": quorum_share >= F.lit(settings.slo),
            "budget_used": ratio(1 - quorum_share, F.lit(1 - settings.slo)),
        }
    )


def answers(servers: DataFrame) -> DataFrame:
    """Return the health, clock offset and identity of each server in each snapshot."""
    return servers.groupBy(*SNAPSHOT_KEY, "server", "taken").agg(
        F.min("cluster").alias("cluster"),
        F.min(F.when(F.col("health").isNotNull(), F.col("health") == "ok")).alias("healthy"),
        F.max("clock_offset").alias("ahead"),
        (F.min("server_id") != F.max("server_id")).alias("namesakes"),
        F.max(F.struct(_started().alias("start"), "server_id", "version")).alias("identity"),
    )


def presence(moment_rows: DataFrame, answer_rows: DataFrame) -> DataFrame:
    """Return a row for each server in each snapshot that it answered or should have answered."""
    number = F.broadcast(moment_rows.select(*SNAPSHOT_KEY, "number"))
    there = answer_rows.join(number, on=SNAPSHOT_KEY).drop("snapshot").withColumn("answered", F.lit(True))
    away = moment_rows.select(
        "fleet", F.explode("absent").alias("server"), "number", "taken", F.lit(False).alias("answered")
    )
    return there.unionByName(away, allowMissingColumns=True)


def server_availability(moment_rows: DataFrame, answer_rows: DataFrame, restart_rows: DataFrame) -> DataFrame:
    """Return for each server the number of snapshots in which it answered, and in which it was healthy."""
    key = ["fleet", "day", "server"]
    counted = (
        presence(moment_rows, answer_rows)
        .groupBy("fleet", F.to_date("taken").alias("day"), "server")
        .agg(
            F.max("cluster").alias("cluster"),
            F.count(F.lit(1)).alias("snapshots"),
            F.count_if("answered").alias("answered"),
            F.count_if("healthy").alias("healthy"),
            F.count("healthy").alias("judged"),
            F.max(F.when(F.col("answered"), F.col("taken"))).alias("seen"),
            F.max_by("identity", F.when(F.col("answered"), F.col("taken"))).alias("identity"),
        )
    )
    starts = restart_rows.groupBy(*key).agg(F.count(F.lit(1)).alias("restarts"))
    return (
        counted.join(starts, on=key, how="left")
        .select("*", "identity.*")
        .withColumns(
            {
                "restarts": F.coalesce("restarts", F.lit(0)),
                "answered_ratio": ratio(F.col("answered"), F.col("snapshots")),
                "healthy_ratio": ratio(F.col("healthy"), F.col("judged")),
            }
        )
    )


_INCIDENT_KEY = ("fleet", "incident", *GROUP_KEY, "server")
_INCIDENT = (*_INCIDENT_KEY, "begin")


def _group_incidents(timeline_rows: DataFrame) -> DataFrame:
    """Return each series of consecutive intervals with the same bad state as one incident."""
    group = Window.partitionBy("fleet", *GROUP_KEY).orderBy("run")
    goes_on = (F.lag("state").over(group) == F.col("state")) & F.col("before").isNotNull()
    marked = timeline_rows.withColumns(
        {
            "begins": F.when(F.coalesce(goes_on, F.lit(False)), 0).otherwise(1),
            "next": F.lead("begin").over(group),
        }
    ).withColumn("session", F.sum("begins").over(group.rowsBetween(Window.unboundedPreceding, Window.currentRow)))
    return (
        marked.where(F.col("state").isin(*_BAD))
        .groupBy("fleet", F.col("state").alias("incident"), *GROUP_KEY, F.lit("").alias("server"), "session")
        .agg(
            F.min_by("before", "run").alias("before"),
            F.min("begin").alias("begin"),
            F.max("end").alias("last"),
            F.max_by("next", "run").alias("end"),
            F.sum("snapshots").alias("snapshots"),
            (F.min("run") == 1).alias("first"),
            F.min_by("behind", "run").alias("behind"),
            F.array_distinct(F.flatten(F.collect_list("members"))).alias("servers"),
        )
        .drop("session")
    )


def _server_incidents(presence_rows: DataFrame) -> DataFrame:
    """Return the consecutive snapshots without a server's answer, or with an unhealthy server. A missing HEALTHZ is neither."""
    state = (
        F.when(~F.col("answered"), "server_missing")
        .when(~F.col("healthy"), "server_unhealthy")
        .when(F.col("healthy"), "ok")
    )
    known = presence_rows.withColumn("state", state).where(F.col("state").isNotNull())
    server = Window.partitionBy("fleet", "server").orderBy("number")
    goes_on = F.lag("state").over(server) == F.col("state")
    marked = known.withColumns(
        {
            "begins": F.when(F.coalesce(goes_on, F.lit(False)), 0).otherwise(1),
            "old": F.lag("taken").over(server),
            "next": F.lead("taken").over(server),
            "first": F.col("number") == 1,
        }
    ).withColumn("session", F.sum("begins").over(server.rowsBetween(Window.unboundedPreceding, Window.currentRow)))
    nobody = F.lit("").alias
    return marked.where(F.col("state") != "ok").groupBy(
        "fleet", F.col("state").alias("incident"), F.lit("server").alias("kind"), *map(nobody, CONSUMER), "server", "session",
    ).agg(
        F.min_by("old", "number").alias("before"),
        F.min("taken").alias("begin"),
        F.max("taken").alias("last"),
        F.max_by("next", "number").alias("end"),
        F.count(F.lit(1)).alias("snapshots"),
        F.max("first").alias("first"),
        F.array().cast("array<string>").alias("behind"),
        F.array(F.any_value("server")).alias("servers"),
    ).drop("session")  # fmt: skip


def _explanations(
    server_incidents: DataFrame, restart_rows: DataFrame, failures: DataFrame, moment_rows: DataFrame
) -> DataFrame:
    """Return the events of servers with their times: restarts, snapshots without any answer, and the same missing answers in
    consecutive snapshots."""
    started = restart_rows.select(
        "fleet", "server", F.when(F.col("upgraded"), "upgrade").otherwise("restart").alias("cause"), F.lit(1).alias("rank"),
        F.col("start").alias("at"), F.col("before").alias("since"), F.col("taken").alias("until"),
        F.when(F.col("upgraded"), F.concat_ws(" → ", "old_version", "version")).otherwise(F.lit("")).alias("detail"),
    )  # fmt: skip
    missing = server_incidents.where(F.col("incident") == "server_missing").select(
        "fleet",
        "server",
        F.lit("server_missing").alias("cause"),
        F.lit(2).alias("rank"),
        F.col("begin").alias("at"),
        F.coalesce("before", "begin").alias("since"),
        F.col("last").alias("until"),
        F.lit("").alias("detail"),
    )
    silent = (
        failures.where(F.col("code") != "server_missing")
        .groupBy("fleet", "server", "snapshot", "taken")
        .agg(F.array_join(F.sort_array(F.collect_set(F.concat_ws(": ", "endpoint", "code"))), ", ").alias("detail"))
        .join(F.broadcast(moment_rows.select(*SNAPSHOT_KEY, "number")), on=SNAPSHOT_KEY)
    )
    alike = Window.partitionBy("fleet", "server", "detail").orderBy("number")
    runs = (
        silent.withColumn("run", F.col("number") - F.row_number().over(alike))
        .groupBy("fleet", "server", "detail", "run")
        .agg(F.min("taken").alias("since"), F.max("taken").alias("until"))
        .select(
            "fleet",
            "server",
            F.lit("no_answer").alias("cause"),
            F.lit(4).alias("rank"),
            F.col("since").alias("at"),
            "since",
            "until",
            "detail",
        )
    )
    return started.unionByName(missing).unionByName(runs)


def _advised(advisories: DataFrame) -> DataFrame:
    """Return the advisories about streams and consumers, by their names."""
    return advisories.where(~F.col("kind").isin(*_BUSY)).select(
        F.col("fleet").alias("a_fleet"),
        F.coalesce("domain", F.lit("")).alias("a_domain"),
        F.col("account").alias("a_account"),
        F.col("stream").alias("a_stream"),
        F.coalesce("consumer", F.lit("")).alias("a_consumer"),
        F.col("time").alias("a_at"),
        F.col("kind").alias("a_kind"),
    )


def logged(server_events: DataFrame, answer_rows: DataFrame) -> DataFrame:
    """Return the log lines of servers that may explain an incident, each once, `at` by the collector's clock."""
    clocks = answer_rows.select("fleet", "snapshot", "server", "ahead")
    rank = F.coalesce(*(F.when(F.col("kind") == kind, F.lit(number)) for kind, number in _LOGGED.items()))
    ahead = F.coalesce("ahead", F.lit(0.0))
    telling = server_events.where(F.col("kind").isin(*_LOGGED))
    once = telling.groupBy("fleet", "server", "time", "kind", "text").agg(F.min("snapshot").alias("snapshot"))
    return (
        once.join(clocks, on=["fleet", "snapshot", "server"], how="left")
        .withColumns({"rank": rank, "at": F.timestamp_micros(F.unix_micros("time") - (ahead * 1e6).cast("bigint"))})
        .select("fleet", F.col("server").alias("member"), "kind", "rank", "at")
    )


def _candidate(rank: Column, cause: Column, server: Column, at: Column, detail: Column) -> Column:
    """Return a candidate cause with its fields in sort order."""
    parts = {"rank": rank, "cause": cause, "server": server, "at": at, "detail": detail}
    return F.struct(*(part.alias(name) for name, part in parts.items())).alias("of")


def _times(kind: str) -> Column:
    """Return the count and the kind as text, such as `3 × route`."""
    return F.concat(F.col("many").cast("string"), F.lit(" × "), F.col(kind))


def _within_spans(lines: DataFrame, spans: DataFrame) -> DataFrame:
    """Return the number of each member's log lines by kind, in parts of minutes in which no span begins or ends. The number of
    rows depends on minutes and snapshots, not on the number of lines in a storm."""
    minute = F.date_trunc("minute", "at").alias("minute")
    ends = spans.select("fleet", F.explode(F.array(F.col("from") - F.expr(_BEFORE), F.col("last"))).alias("at"))
    cuts = ends.groupBy("fleet", minute).agg(F.collect_set("at").alias("cuts"))
    # A line exactly at a cut belongs to the span that ends there and to the span that begins there.
    passed, reached = (
        F.coalesce(F.size(F.filter("cuts", lambda cut: cut < F.col("at"))), F.lit(0)).alias("passed"),
        F.coalesce(F.size(F.filter("cuts", lambda cut: cut <= F.col("at"))), F.lit(0)).alias("reached"),
    )
    return (
        lines.withColumn("minute", minute)
        .join(F.broadcast(cuts), on=["fleet", "minute"], how="left")
        .groupBy("fleet", "member", F.col("kind").alias("line"), "rank", "minute", passed, reached)
        .agg(F.min("at").alias("at"), F.max("at").alias("until"), F.count(F.lit(1)).alias("many"))
    )


def _join_events(members: DataFrame, reported: DataFrame, lines: DataFrame) -> DataFrame:
    """Return the events of members during their incidents, at most ten candidates each as `of`. A cause that affects many groups
    gives their incidents the same span, so each span is searched only once."""
    span = ["fleet", "member", "from", "last", "itself"]
    spans = members.select(*span).distinct()
    by_server = spans.join(reported.withColumnRenamed("server", "member"), on=["fleet", "member"]).where(
        (F.col("until") >= F.col("from")) & (F.col("since") <= F.col("last")) & (F.col("cause") != F.col("itself"))
    )
    # A server that never answered is a cause from the first snapshot of the span.
    seen = F.when(F.col("cause") == "no_answer", F.greatest("at", "from")).otherwise(F.col("at"))
    by_log = (
        spans.join(_within_spans(lines, spans), on=["fleet", "member"])
        .where((F.col("at") >= F.col("from") - F.expr(_BEFORE)) & (F.col("until") <= F.col("last")))
        .groupBy(*span, "line", "rank")
        .agg(F.min("at").alias("at"), F.sum("many").alias("many"))
    )
    found = (
        by_server.select(*span, _candidate(F.col("rank"), F.col("cause"), F.col("member"), seen, F.col("detail")))
        .unionByName(
            by_log.select(*span, _candidate(F.col("rank"), F.lit("log"), F.col("member"), F.col("at"), _times("line")))
        )
        .groupBy(*span)
        .agg(F.slice(F.array_sort(F.collect_set("of")), 1, _MOST).alias("first"))
    )
    return members.join(found, on=span).withColumn("of", F.explode("first"))


def _join_advisories(marked: DataFrame, advisories: DataFrame) -> DataFrame:
    """Return the kinds of advisories about the assets of incidents, shortly before and during each incident."""
    since = F.coalesce("before", "begin")
    advised = _advised(advisories)
    margin = F.expr(_BEFORE)
    return marked.join(
        advised,
        (F.col("fleet") == F.col("a_fleet")) & (F.col("domain") == F.col("a_domain"))
        & (F.col("account") == F.col("a_account")) & (F.col("stream") == F.col("a_stream"))
        & ((F.col("consumer") == F.col("a_consumer")) | (F.col("consumer") == "")),
    ).where((F.col("a_at") >= since - margin) & (F.col("a_at") <= F.col("last") + margin)).groupBy(*_INCIDENT, "a_kind").agg(
        F.min("a_at").alias("a_at"), F.count(F.lit(1)).alias("many")
    ).select(*_INCIDENT, _candidate(F.lit(3), F.lit("advisory"), F.lit(""), F.col("a_at"), _times("a_kind")))  # fmt: skip


def incidents(
    timeline_rows: DataFrame,
    moment_rows: DataFrame,
    answer_rows: DataFrame,
    failures: DataFrame,
    advisories: DataFrame,
    server_events: DataFrame,
    restart_rows: DataFrame,
    past: DataFrame,
    day: Column,
    settings: GoldSettings,
) -> DataFrame:
    """Return the incidents of the day with their candidate causes. `past`: the incidents of the previous day."""
    server_rows = _server_incidents(presence(moment_rows, answer_rows))
    found = _group_incidents(timeline_rows).unionByName(server_rows)
    last = moment_rows.groupBy("fleet").agg(F.max("taken").alias("last_of_fleet"))
    open_before = past.where("continues").select(*_INCIDENT_KEY, F.lit(True).alias("open")).distinct()
    key = [*_INCIDENT]
    since = F.coalesce("before", "begin")
    goes_on = F.col("first") & F.coalesce("open", F.lit(False))
    marked = (
        found.join(F.broadcast(last), on="fleet")
        .join(open_before, on=list(_INCIDENT_KEY), how="left")
        .withColumns(
            {
                "began_before": goes_on,
                "before": F.when(~goes_on, F.col("before")),
                "continues": F.col("last") == F.col("last_of_fleet"),
                "seconds": seconds(F.col("begin"), F.coalesce("end", "last")),
                "maintenance": in_maintenance(settings, since, F.col("begin"), F.col("servers")),
            }
        )
    )
    # A missing server explains every incident but its own.
    itself = F.when(F.col("kind") == "server", F.col("incident")).otherwise(F.lit("")).alias("itself")
    members = marked.select(*key, since.alias("from"), "last", itself, F.explode("servers").alias("member"))
    reported = _explanations(server_rows, restart_rows, failures, moment_rows)
    by_member = _join_events(members, reported, logged(server_events, answer_rows))
    out = marked.select(*key, F.explode("behind").alias("server_behind")).select(
        *key, _candidate(F.lit(5), F.lit("behind"), F.col("server_behind"), F.col("begin"), F.lit(""))
    )
    causes = (
        by_member.select(*key, "of")
        .unionByName(out)
        .unionByName(_join_advisories(marked, advisories))
        .groupBy(*key)
        .agg(F.slice(F.array_sort(F.collect_set("of")), 1, _MOST).alias("causes"))
    )
    reported_causes = F.transform(
        "causes",
        lambda of: F.struct(
            of["cause"].alias("cause"), of["server"].alias("server"), of["at"].alias("at"), of["detail"].alias("detail")
        ),
    )
    return marked.join(causes, on=key, how="left").withColumns(
        {
            "causes": F.coalesce(reported_causes, F.array().cast(columns.CAUSES)),
            "day": day,
        }
    )


_PRESENCE = ("gold.moments", "hours.answers")
FACTS = (GoldTable("answers", "server in a snapshot that it answered", columns.ANSWERS, ("silver.servers",), answers),)
TABLES = (
    GoldTable(
        "restarts",
        "start of a server",
        columns.RESTARTS,
        ("hours.answers", "past.server_availability:7", "settings"),
        restarts,
    ),
    GoldTable(
        "availability",
        "Raft group",
        columns.AVAILABILITY,
        ("gold.timeline", "past.timeline:1", "settings"),
        availability,
    ),
    GoldTable(
        "server_availability", "server", columns.SERVER_AVAILABILITY, (*_PRESENCE, "gold.restarts"), server_availability
    ),
    GoldTable(
        "incidents",
        "incident in the day",
        columns.INCIDENTS,
        (
            "gold.timeline",
            *_PRESENCE,
            "silver.failures",
            "silver.advisories",
            "silver.server_events",
            "gold.restarts",
            "past.incidents:1",
            "day",
            "settings",
        ),
        incidents,
    ),
)
