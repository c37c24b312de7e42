# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The streams and consumers in silver: one row for each group of replicas, from the reports of its members."""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.schema import STRINGS
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from jetstream_insights.keys import SNAPSHOT

#: Claims of a replica to lead, the strongest first: it leads and lists replicas, it leads, it does not lead.
_BACKED, _UNBACKED, _NO_CLAIM = 0, 1, 2


#: Groups whose members disagree are recorded by hash slot, few enough for every executor to hold them. Other groups in the same
#: slot are compared without need.
_SLOTS = 1 << 21
_MEMBER_COLUMNS = (
    "server_id",
    "version",
    "received",
    "extra",
    "is_leader",
    "is_backed",
    "server",
    "leader",
    "cluster",
    "peers",
)


def groups(replicas: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """Return one row for each group of replicas: its figures from its leader, otherwise from the first server by name.

    `leaders`: the servers that count as leader, see docs/internals/lake.md. `members`: every server that any member lists.
    `hosts`: the servers that reported the group. `views`: the distinct leaders that the members name.

    If the members agree, the leader's row has everything, and is not shuffled. Only the members of other groups are compared.
    """
    group_key = (*SNAPSHOT, *key)
    figures = [name for name in replicas.columns if name not in (*group_key, *_MEMBER_COLUMNS)]
    slotted = replicas.withColumn("_slot", F.xxhash64(*group_key).bitwiseAND(F.lit(_SLOTS - 1)))
    disputed = F.broadcast(_disputed(slotted, group_key))
    agreed = _as_the_leader_tells(slotted.join(disputed, on="_slot", how="left_anti"), group_key, figures)
    compared = _as_members_tell(slotted.join(disputed, on="_slot", how="left_semi"), group_key, figures)
    return agreed.unionByName(compared).withColumn("quorum", F.floor(F.col("num_replicas") / 2) + 1)


def _names_of_peers() -> Column:
    return F.coalesce(F.col("peers")["name"], F.array().cast(STRINGS))


def _disputed(replicas: DataFrame, group_key: Sequence[str]) -> DataFrame:
    """Return the slots of disputed groups: those without exactly one leader, without agreement on it, or with other members than
    those that reported. Members are counted and the hashes of their names added up, which needs no lists and no sorting."""
    leads, peers = F.col("is_leader"), F.coalesce(F.size("peers"), F.lit(0))
    # Shorter hashes prevent an overflow of a group's sum.
    hashed = F.shiftrightunsigned(F.xxhash64("server"), 8)
    known = F.aggregate(_names_of_peers(), hashed, lambda sum_, name: sum_ + F.shiftrightunsigned(F.xxhash64(name), 8))
    return (
        replicas.select(
            "_slot",
            F.xxhash64(*group_key).alias("group"),
            "is_leader",
            (~leads & (peers > 0)).alias("knows_too"),
            (F.lit(1) - F.when(leads, peers + 1).otherwise(0)).alias("absent"),
            (hashed - F.when(leads, known).otherwise(F.lit(0))).alias("other"),
            F.xxhash64(F.coalesce("leader", F.lit("")), "cluster").alias("view"),
        )
        .groupBy("_slot", "group")
        .agg(
            F.count_if("is_leader").alias("leading"),
            F.bool_or("knows_too").alias("knows_too"),
            F.sum("absent").alias("absent"),
            F.sum("other").alias("other"),
            (F.min("view") == F.max("view")).alias("one_view"),
        )
        .where(
            ~F.coalesce(
                (F.col("leading") == 1)
                & ~F.col("knows_too")
                & (F.col("absent") == 0)
                & (F.col("other") == 0)
                & F.col("one_view"),
                F.lit(False),
            )
        )
        .select("_slot")
        .distinct()
    )


def _as_the_leader_tells(replicas: DataFrame, group_key: Sequence[str], figures: Sequence[str]) -> DataFrame:
    """Return the rows of groups whose members agree, from the leader's report."""
    hosts = F.array_sort(F.array_distinct(F.concat(F.array("server"), _names_of_peers())))
    named = F.coalesce("leader", F.lit(""))
    return replicas.where("is_leader").select(
        *group_key,
        "cluster",
        F.col("server").alias("leader"),
        F.array("server").alias("leaders"),
        hosts.alias("hosts"),
        F.array_remove(hosts, "").alias("members"),
        F.when(named != "", F.array(named)).otherwise(F.array().cast(STRINGS)).alias("views"),
        *figures,
        "peers",
    )


def _as_members_tell(replicas: DataFrame, group_key: Sequence[str], figures: Sequence[str]) -> DataFrame:
    """Return the rows of any groups, from the reports of all members."""
    claim = F.when(F.col("is_backed"), _BACKED).when(F.col("is_leader"), _UNBACKED).otherwise(_NO_CLAIM)
    member = F.struct("_claim", "server", "cluster", "leader", _names_of_peers().alias("peers"))
    # One window with one list: an aggregate for each figure takes twice the time. Lambdas run after reducing to one row.
    by_claim = Window.partitionBy(*group_key).orderBy("_claim", "server", "server_id")
    everybody = by_claim.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    ranked = replicas.withColumn("_claim", claim).withColumns(
        {"_number": F.row_number().over(by_claim), "_all": F.collect_list(member).over(everybody)}
    )
    claims, servers = F.col("_all")["_claim"], F.col("_all")["server"]
    claiming = F.size(claims) - F.size(F.array_remove(claims, claims[0]))
    led = ranked.withColumns(
        {
            "leaders": F.when(claims[0] < _NO_CLAIM, F.array_distinct(F.slice(servers, 1, claiming))).otherwise(
                F.array()
            ),
            "_first": F.array_position(servers, F.array_min(servers)).cast("int"),
        }
    )
    sole = F.size("leaders") == 1
    known = F.flatten(F.array(F.flatten(F.col("_all")["peers"]), servers, F.col("_all")["leader"]))
    return led.where(F.col("_number") == F.when(F.size("leaders") > 1, F.col("_first")).otherwise(F.lit(1))).select(
        *group_key,
        F.col("_all")["cluster"][F.col("_first") - F.lit(1)].alias("cluster"),
        F.when(sole, F.col("leaders")[0]).alias("leader"),
        "leaders",
        F.array_sort(F.array_distinct(servers)).alias("hosts"),
        F.array_sort(F.array_distinct(F.filter(known, lambda name: name != ""))).alias("members"),
        F.filter(F.array_distinct(F.col("_all")["leader"]), lambda name: name != "").alias("views"),
        *figures,
        F.when(sole, F.col("peers")).alias("peers"),
    )
