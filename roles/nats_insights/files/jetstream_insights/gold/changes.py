# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes between two snapshots: of configurations, versions, members and limits, additions and removals.

Configurations are compared by hash, then field by field. An asset is `removed` when a server that reported it answers and no
longer reports it; assets on unavailable servers are not. A server is removed when it is no longer expected. Ephemeral
consumers are left out.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from jetstream_insights.fields import effective
from jetstream_insights.gold import columns
from jetstream_insights.gold.common import BLOCK, SNAPSHOT_KEY, another_life, bit, in_blocks, union, whole_hour
from jetstream_insights.gold.report import meta_groups, moments
from jetstream_insights.gold.tables import GoldTable
from jetstream_insights.keys import ACCOUNT, CONSUMER, DOMAIN, STREAM

_NAMES = ("server", *CONSUMER)
_THING = ("fleet", "object", *_NAMES)

#: Property of a state → kind of its change.
_WHAT = {
    "version": "version",
    "domain": "domain",
    "members": "members",
    "size": "members",
    "config_load_time": "reload",
    "max_storage": "limits",
    "max_memory": "limits",
    "max_ha_assets": "limits",
    "max_connections": "limits",
    "max_payload": "limits",
}

#: Seconds before the previous snapshot in which an asset may have been created and still be new: clocks differ.
_NEW = 60


#: Replaces the time if the configuration was loaded at the start of the server.
_AT_START = "at start"


#: Properties of a state that are lists.
_LISTS = ("members", "tags")


def _things(
    object_: str,
    places: DataFrame,
    frame: DataFrame,
    hosts: Column,
    state: dict[str, Column],
    known: Column | None = None,
    **names: Column,
) -> DataFrame:
    """Return objects as uniform rows, one for all snapshots of a block with the same report: names, reporting servers, creation
    time, and state as text, null if it is not `known`: such a row only shows that the object exists. `places`: the snapshots in
    blocks."""
    shown = F.struct(*(value.alias(name) for name, value in state.items()))
    each = frame.join(F.broadcast(places), on=SNAPSHOT_KEY).select(
        "fleet",
        "taken",
        *BLOCK,
        "place",
        *(names.get(name, F.lit("")).alias(name) for name in _NAMES),
        F.array_sort(hosts).alias("hosts"),
        (F.col("created") if "created" in frame.columns else F.lit(None)).cast("timestamp").alias("created"),
        (shown if known is None else F.when(known, shown)).alias("shown"),
    )
    alike = each.groupBy("fleet", *BLOCK, *_NAMES, "hosts", "created", "shown").agg(
        F.max("taken").alias("taken"), F.bit_or(bit()).alias("bits")
    )

    def text(name: str) -> Column:
        value = F.col("shown")[name]
        return F.to_json(value) if name in _LISTS else value.cast("string")

    texts = F.create_map(*(item for name in state for item in (F.lit(name), text(name))))
    return alike.withColumns(
        {
            "object": F.lit(object_),
            "state": F.when(F.col("shown").isNotNull(), texts),
            "alike": F.when(F.col("shown").isNotNull(), F.xxhash64("shown")),
        }
    ).drop("shown", "whole_hour")


def things(
    snapshots: DataFrame,
    servers: DataFrame,
    meta_peers: DataFrame,
    streams: DataFrame,
    consumers: DataFrame,
    accounts: DataFrame,
) -> DataFrame:
    """Return all objects whose changes are recorded: servers, meta group, streams, durable consumers, JetStream accounts."""
    places = in_blocks(snapshots).select(*SNAPSHOT_KEY, *BLOCK, "place")
    # A start loads the configuration as well; that is not a reload.
    reloaded = F.col("config_load_time") > F.col("start") + F.expr("INTERVAL 5 SECONDS")
    loaded = F.when(reloaded, F.col("config_load_time").cast("string")).when(
        F.col("config_load_time").isNotNull(), _AT_START
    )
    same = ("version", "cluster", "domain", "config_digest", "max_connections", "max_payload")
    server_state = {
        **{name: F.col(name) for name in same},
        **{name: F.col(f"js_{name}") for name in ("max_storage", "max_memory", "max_ha_assets")},
        "tags": F.array_sort("tags"),
        "config_load_time": loaded,
    }
    members, hosts, led = {"members": F.col("members")}, F.col("hosts"), F.col("leader").isNotNull()
    asset_state = {**members, "config": F.col("config_hash")}
    domain, account, stream = ({name: F.col(name) for name in key} for key in (DOMAIN, ACCOUNT, STREAM))
    durable = consumers.where("durable")
    hosting = (
        accounts.where(F.col("js_storage").isNotNull())
        .groupBy(*SNAPSHOT_KEY, "taken", *ACCOUNT)
        .agg(F.collect_set("server").alias("hosts"), F.max("account_name").alias("account_name"))
    )
    return union([
        _things("server", places, servers, F.array("server"), server_state, server=F.col("server")),
        _things("meta", places, meta_groups(servers, meta_peers), hosts, {**members, "size": F.col("size")}, led, **domain),
        _things("stream", places, streams, hosts, asset_state, led, **stream),
        _things("consumer", places, durable, hosts, asset_state, led, **stream, consumer=F.col("consumer")),
        _things("account", places, hosting, hosts, {"name": F.coalesce("account_name", "account")}, **account),
    ])  # fmt: skip


def states(
    snapshot_rows: DataFrame, object_rows: DataFrame, looks_before: DataFrame, things_before: DataFrame, day: Column
) -> DataFrame:
    """Return the states of objects that differ between snapshots. The frames `…_before` hold the last hour before the day."""
    fleet_window = Window.partitionBy("fleet").orderBy("number")
    all_snapshots = in_blocks(moments(snapshot_rows.unionByName(looks_before))).select(
        *SNAPSHOT_KEY,
        "number",
        "taken",
        *BLOCK,
        "place",
        "silent",
        F.lag("taken").over(fleet_window).alias("previous"),
        F.lag("silent").over(fleet_window).alias("previous_silent"),
        F.lead("taken").over(fleet_window).alias("following"),
        F.lead("silent").over(fleet_window).alias("following_silent"),
    )
    found = (
        suspects(object_rows.unionByName(things_before), all_snapshots)
        .withColumn("whole_hour", whole_hour())
        .drop("taken")
    )
    every = found.join(F.broadcast(all_snapshots), on=["fleet", *BLOCK])
    return every.where(F.getbit("bits", F.col("place")) == 1).withColumn("day", day)


def _in_order(state_rows: DataFrame) -> DataFrame:
    """Return the states, each with the previous one of the same object."""
    one = Window.partitionBy(*_THING).orderBy("number")
    earlier = one.rowsBetween(Window.unboundedPreceding, -1)
    known = F.col("state").isNotNull()
    old = {
        f"old_{name}": F.last(F.when(known, F.col(name)), ignorenulls=True).over(earlier)
        for name in ("state", "taken", "snapshot")
    }
    return state_rows.withColumns(
        {
            **old,
            "old_created": F.lag("created").over(one),
            "first": F.lag("number").over(one).isNull(),
            "next": F.lead("number").over(one),
        }
    )


def _changed(seen: DataFrame, day: Column) -> DataFrame:
    """Return the states of the day that differ from the previous one, once for each `field`."""
    recreated = another_life(F.col("created"), F.col("old_created"))

    def differs(name: Column) -> Column:
        new, before = F.col("state")[name], F.col("old_state")[name]
        # A property that one of the two did not report is not a change.
        return F.coalesce((new != before) & (new != _AT_START), F.lit(False))

    fields = F.when(recreated, F.array(F.lit("created"))).otherwise(F.filter(F.map_keys("state"), differs))
    known = F.col("state").isNotNull() & F.col("old_state").isNotNull()
    return seen.where((F.to_date("taken") == day) & known).withColumn("field", F.explode(fields))


def _configured() -> Column:
    """Return whether a change is a difference between two configurations."""
    return (F.col("field") == "config") & F.col("object").isin("stream", "consumer")


def edits(state_rows: DataFrame, day: Column) -> DataFrame:
    """Return the snapshots with the configurations before and after a change, with the silver table that has them."""
    changed = _changed(_in_order(state_rows), day).where(_configured())
    old = (F.col(f"old_{name}").alias(name) for name in ("snapshot", "taken"))
    both = F.array(F.struct("snapshot", "taken"), F.struct(*old))
    return changed.select(F.concat("object", F.lit("s")).alias("table"), F.inline(both)).distinct()


def changes(state_rows: DataFrame, streams: DataFrame, consumers: DataFrame, day: Column) -> DataFrame:
    """Return the changes of the day, in order. `streams`, `consumers`: from the snapshots of `edits`."""
    seen = _in_order(state_rows)
    changed = _changed(seen, day)
    what = F.coalesce(
        F.create_map(*(F.lit(text) for pair in _WHAT.items() for text in pair))[F.col("field")], F.lit("config")
    )
    plain = changed.where(~_configured()).select(
        *_THING, "taken", F.col("old_taken").alias("before"),
        F.when(F.col("field") == "created", "recreated").otherwise(what).alias("what"), "field",
        F.when(F.col("field") == "created", F.col("old_created").cast("string")).otherwise(F.col("old_state")[F.col("field")])
        .alias("old"),
        F.when(F.col("field") == "created", F.col("created").cast("string")).otherwise(F.col("state")[F.col("field")])
        .alias("new"),
    )  # fmt: skip
    configurations = _configurations(changed.where(_configured()), streams, consumers)
    came = _came(seen.where(F.to_date("taken") == day))
    moved = plain.where("object = 'server' AND field = 'domain'").select("fleet", "taken", "old", "new")
    events = [_in_other_domains(came, moved, "new"), _in_other_domains(_went(seen, day), moved, "old")]
    return union([plain, configurations, *events]).withColumn("day", day)


def _in_other_domains(events: DataFrame, moved: DataFrame, side: str) -> DataFrame:
    """Return the additions or removals, except those in domains that servers left or joined at that moment: such an event is
    a change of these servers."""
    renamed = moved.select("fleet", "taken", F.col(side).alias("domain")).distinct()
    return events.join(F.broadcast(renamed), on=["fleet", "taken", "domain"], how="left_anti")


def suspects(object_rows: DataFrame, all_snapshots: DataFrame) -> DataFrame:
    """Return the rows of objects that may have been added, removed or changed: few, so sorting them is cheap. An object that was
    not reported because all its servers were silent is not a suspect; a server may be."""
    silences = (
        all_snapshots.select("fleet", "number", F.explode("silent").alias("host"))
        .groupBy("fleet", "host")
        .agg(F.collect_list("number").alias("numbers"))
        .groupBy("fleet")
        .agg(F.map_from_entries(F.collect_list(F.struct("host", "numbers"))).alias("silences"))
    )
    fleets = (
        all_snapshots.groupBy("fleet")
        .agg(F.count(F.lit(1)).alias("many"), F.min("taken").alias("began"))
        .join(silences, on="fleet", how="left")
    )
    counted = object_rows.groupBy(*_THING).agg(
        F.sum(F.bit_count("bits")).alias("reported"),
        F.array_distinct(F.flatten(F.collect_set("hosts"))).alias("hosts"),
        F.max("created").alias("created"),
        (F.min("alike") != F.max("alike")).alias("differs"),
        another_life(F.min("created"), F.max("created")).alias("again"),
    )
    never = F.array().cast("array<int>")
    silent = F.transform("hosts", lambda host: F.coalesce(F.try_element_at("silences", host), never))
    all_silent = F.aggregate(silent, F.get(silent, F.lit(0)), F.array_intersect)
    unseen = F.coalesce(F.when(F.col("object") != "server", F.size(all_silent)), F.lit(0))
    new = F.unix_seconds("created") >= F.unix_seconds("began") - _NEW  # before the first report
    suspect = (F.col("reported") + unseen != F.col("many")) | F.coalesce(
        F.col("differs") | F.col("again") | (new & (unseen > 0)), F.lit(False)
    )
    found = counted.join(F.broadcast(fleets), on="fleet").where(suspect).select(*_THING)
    return object_rows.join(F.broadcast(found), on=list(_THING), how="left_semi")


def _configurations(changed: DataFrame, streams: DataFrame, consumers: DataFrame) -> DataFrame:
    """Return the top-level fields that differ between configurations."""
    key = ["fleet", "snapshot", *CONSUMER]
    every = union([streams.withColumn("consumer", F.lit("")).select(*key, "config"), consumers.select(*key, "config")])
    sides = {"old_snapshot": "old_fields", "snapshot": "new_fields"}
    # Both sides in one pass, because reading silver is the expensive part.
    both = F.array(
        *(F.struct(F.col(name).alias("snapshot"), F.lit(side).alias("side")) for name, side in sides.items())
    )
    one = (*_THING, "taken", "before")
    wanted = changed.select(*_THING, "taken", F.col("old_taken").alias("before"), F.inline(both))

    def fields(side: str) -> Column:
        config = F.first(F.when(F.col("side") == side, F.col("config")), ignorenulls=True)
        return F.from_json(effective(config), "map<string,string>").alias(side)

    joined = every.join(F.broadcast(wanted), on=key).groupBy(*one).agg(*map(fields, sides.values()))
    names = F.array_union(F.map_keys("old_fields"), F.map_keys("new_fields"))
    differ = F.filter(names, lambda name: ~F.col("old_fields")[name].eqNullSafe(F.col("new_fields")[name]))
    return joined.withColumn("field", F.explode(differ)).select(
        *one, F.lit("config").alias("what"), "field",
        F.col("old_fields")[F.col("field")].alias("old"), F.col("new_fields")[F.col("field")].alias("new"),
    )  # fmt: skip


def _event(what: str) -> tuple[Column, ...]:
    nothing = F.lit(None).cast("string")
    return F.lit(what).alias("what"), F.lit("").alias("field"), nothing.alias("old"), nothing.alias("new")


def _came(seen: DataFrame) -> DataFrame:
    """Return the objects that the previous snapshot did not have, without those that it only failed to report."""
    new = F.coalesce(F.unix_seconds("created") >= F.unix_seconds("previous") - _NEW, F.lit(True))
    unreported = F.size(F.array_except("hosts", "previous_silent")) == 0
    return seen.where(
        F.col("first") & F.col("previous").isNotNull() & new & ~(unreported & F.col("created").isNull())
    ).select(*_THING, "taken", F.lit(None).cast("timestamp").alias("before"), *_event("added"))


def _went(seen: DataFrame, day: Column) -> DataFrame:
    """Return the objects that the next snapshot no longer shows although a server that had reported them answered. A server is
    removed when it is no longer expected."""
    reported = F.size(F.array_except("hosts", "following_silent")) > 0
    return seen.where(F.col("next").isNull() & reported & (F.to_date("following") == day)).select(
        *_THING, F.col("following").alias("taken"), F.col("taken").alias("before"), *_event("removed")
    )


_ASSETS = ("streams", "consumers")
FACTS = (
    GoldTable(
        "things",
        "server, meta group, account, stream and durable consumer, for the snapshots with the same report of it",
        columns.THINGS,
        tuple(f"silver.{name}" for name in ("snapshots", "servers", "meta_peers", *_ASSETS, "accounts")),
        things,
    ),
)
TABLES = (
    GoldTable(
        "states",
        "server, meta group, account, stream and durable consumer that differs between snapshots, in each of them",
        columns.STATES,
        ("hours.looks", "hours.things", "before.looks", "before.things", "day"),
        states,
    ),
    GoldTable(
        "changes",
        "change between two snapshots",
        columns.CHANGES,
        ("gold.states", *(f"edited.{name}" for name in _ASSETS), "day"),
        changes,
    ),
)
