# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lake with two days of several fleets, for tests that assert the values of gold: one computation of a day costs half a
minute for any number of fleets."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from jetstream_insights.gold.common import GoldSettings, Maintenance
from jetstream_insights.gold_job import make_gold
from jetstream_insights.lake import Lake, day_hours
from jetstream_insights.silver_job import make_silver
from pyspark.sql import SparkSession
from support.fleet import START, Fleet, Outage, write
from support.snapshots import RECORDED, recorded, write_snapshot

HOUR = 3600.0
DAY = 24 * HOUR
BOTH = [START.date(), (START + timedelta(days=1)).date()]

# --- a fleet of one cluster, with a restart and an upgrade over midnight ------------------------------------------------

ONE_CLUSTER = "synthetic"
STEP = 600.0
#: Snapshots are ten minutes apart, from 20:00 to 01:00.
MOMENTS = [20 * HOUR + number * STEP for number in range(30)]
NEWER = "2.15.2"
#: n2 is down for half an hour, n3 over midnight, and returns with a newer version.
DISK_FULL = "[7] 2026/11/01 21:04:59.000000 [FTL] JetStream failed to store: write: no space left on device"
FLEET = Fleet(
    5,
    40,
    129,
    outages=(
        Outage(1, 21 * HOUR + 300, 21.5 * HOUR + 300, last_words=DISK_FULL),
        Outage(2, 23.7 * HOUR, 24.4 * HOUR, NEWER),
    ),
)
UPGRADE = Maintenance(START + timedelta(hours=23.6), START + timedelta(hours=24.6), ("n3",))

# --- a fleet of three domains ------------------------------------------------------------------------------------------

DOMAINS = "domains"
DOMAIN_MOMENTS = [0.0, 300.0, 600.0, 900.0]
#: Seeds with which the streams have three replicas and no fault.
SEEDS = {"hub": 8, "berlin": 13, "oslo": 57}
PARTS = {
    name: Fleet(3, 4, seed, domain=name, cluster="EDGE" if name != "hub" else "HUB", prefix=f"{name}-")
    for name, seed in SEEDS.items()
}
#: One server of this domain goes down, and its leaderships move to other servers.
PARTS["berlin"] = replace(PARTS["berlin"], outages=(Outage(0, 600.0, 3600.0),))

# --- a recorded cluster of each version, at noon of the first day, as a fleet with the name of the version -----------------

NOON = START + timedelta(hours=12)


def quiet(_text: str) -> None:
    """Discard the message."""


def make_two_days(spark: SparkSession, path: Path) -> Lake:
    """Make silver and gold of both days."""
    for at in MOMENTS:
        FLEET.write(path, at, ONE_CLUSTER)
    for at in DOMAIN_MOMENTS:
        write(list(PARTS.values()), path, at, DOMAINS)
    for version in RECORDED:
        write_snapshot(path, recorded(version), NOON, version)
    lake = Lake(spark, str(path), little=True)
    assert make_silver(lake, [hour for day in BOTH for hour in day_hours(day)], quiet).quarantined == 0
    assert make_gold(lake, BOTH, quiet, settings=GoldSettings(maintenance=(UPGRADE,))).made == 2
    return lake
