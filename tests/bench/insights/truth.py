# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures the precision and recall of the checks on fleets whose true state is completely known.

``make bench BENCH=insights/truth ARGS='--servers 40 300'``. Each fleet has the faults of tests/support/truth.py, and
many conditions that are not faults. `planted`: findings that must exist; `found`: planted findings that exist;
`follows`: other findings that are true because of a fault; `false`: all other findings. The program ends with status 1
if a critical finding is false or a planted fault was not found.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

from jetstream_insights import cli
from jetstream_insights.lake import Lake
from pyspark.sql import SparkSession
from support.fleet import START
from support.truth import Outcome, Truth, judged, planted, table


def outcome(truth: Truth, folder: Path, *options: str) -> Outcome:
    """Write the fleet's snapshots and journal into a folder, run the jobs that users run, and return the score of
    their findings."""
    lake, journal = folder / "lake", folder / "journal.jsonl"
    truth.write(lake)
    journal.write_text("".join(f"{line}\n" for line in truth.journal()))
    day = START.date()
    span = ("--lake", str(lake), "--from", str(day), "--to", str(day + timedelta(days=1)), "--journal", str(journal))
    status = cli.main(["silver", "gold", "findings", *span, *options])
    if status:
        raise RuntimeError(f"the jobs ended with status {status}")
    spark = SparkSession.active()
    found = Lake(spark, str(lake)).read_days("findings", "findings", [day])
    assert found is not None, "the job findings wrote none"
    return judged(truth, [row.asDict() for row in found.where("result <> 'pass'").collect()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--servers", type=int, nargs="+", default=[40], metavar="N", help="sizes, from 20 to 1000")
    parser.add_argument("--apart", type=float, default=30.0, help="seconds within which servers answer")
    parser.add_argument("--snapshots", type=int, default=12, help="one every ten minutes, at least 12")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--memory", default="2g", help="of Spark")
    given = parser.parse_args()
    wrong = False
    for servers in given.servers:
        truth = planted(servers, given.snapshots, given.apart, given.seed)
        with tempfile.TemporaryDirectory() as folder:
            found = outcome(truth, Path(folder), "--memory", given.memory)
        print(f"\n{servers} servers, {sum(len(part.assets) for part in truth.parts)} streams, "
              f"{len(truth.moments)} snapshots, answers up to {given.apart:g} s apart\n")  # fmt: skip
        print("\n".join(table(found.scores)))
        for row in found.false:
            about = "/".join(row[name] for name in ("server", "account", "stream", "consumer", "name") if row[name])
            print(f"false: {row['severity']} {row['check']} {about}: {row['text']}", file=sys.stderr)
        for check, subject in found.missed:
            print(f"missed: {check} {dict(subject)}", file=sys.stderr)
        wrong |= bool(found.missed) or any(row["severity"] == "critical" for row in found.false)
    sys.exit(wrong)


if __name__ == "__main__":
    main()
