# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line: ``python -m jetstream_insights JOB --lake URI --from … --to …``.

Exit status: 0 done; 1 failed, nothing changed; 2 wrong arguments; 3 done, but something is in quarantine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

from jetstream_insights.jobs import make_silver
from jetstream_insights.lake import Lake, hours
from jetstream_insights.session import session

DONE, QUARANTINED = 0, 3


def moment(text: str) -> datetime:
    """Return an argument's moment in UTC: 2026-11-21, 2026-11-21T18, 2026-11-21T18:41Z. Raises ValueError."""
    found = datetime.fromisoformat(f"{text}:00" if len(text) == len("2026-11-21T18") else text.replace("Z", "+00:00"))
    return found.replace(tzinfo=timezone.utc) if found.tzinfo is None else found.astimezone(timezone.utc)


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="jetstream_insights", description=__doc__.split("\n", maxsplit=1)[0])
    found.add_argument("job", choices=["silver"], help="silver: typed tables from the snapshots")
    found.add_argument("--lake", required=True, help="directory or URI of the lake, such as hdfs://name/insights")
    found.add_argument("--from", dest="start", type=moment, help="first hour, in UTC; by default a day before --to")
    found.add_argument("--to", dest="end", type=moment, help="end, which is not part of it; by default now")
    found.add_argument("--master", help="Spark's master, such as local[2]; by default that of spark-submit, or local[*]")
    found.add_argument("--memory", help="memory of the driver, such as 4g")
    found.add_argument("--force", action="store_true", help="make the hours again that are up to date")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    end = given.end or datetime.now(timezone.utc)
    start = given.start or end - timedelta(days=1)
    if start >= end:
        parser().error("--from must be before --to")

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    spark = session(given.master, given.memory)
    outcome = make_silver(Lake(spark, given.lake), hours(start, end), say, given.force)
    print(f"{outcome.made} hours made, {outcome.fresh} were up to date, {outcome.quarantined} lines or files in quarantine")
    return QUARANTINED if outcome.quarantined else DONE
