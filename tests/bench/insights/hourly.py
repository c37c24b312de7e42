# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures the cost of one more hour of gold and findings, as a fraction of the cost of a day.

``make bench BENCH=insights/hourly ARGS='--streams 600 --every 4'``. A synthetic fleet writes the snapshots of a day. A
job computes the last hour after all others have been computed; the figure is its CPU time divided by that of the same
job when it computes all hours (`--force`). Each run is the command that users run, including Spark's startup, which is
measured by a run that has nothing to do; with ``--together`` one command runs all jobs, as the role does. With
``--resident`` the last hours are computed one after another in a session that keeps running. With ``--lake`` the
snapshots are kept, and a later run uses them.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from multiprocessing import Pool
from pathlib import Path

from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.snapshot import PARQUET
from bench.insights.pipeline import measure
from bench.insights.processes import tree
from support.fleet import START, Fleet
from support.spark_cluster import resident

JOBS = ("gold", "findings")
_DAY = 24 * 60


def _write(fleet: Fleet, lake: Path, minute: int) -> None:
    fleet.write(lake, minute * 60.0, form=PARQUET)


def write(fleet: Fleet, lake: Path, minutes: Iterable[int]) -> None:
    """Write the snapshots that are taken at these minutes."""
    with Pool(2) as pool:
        pool.map(partial(_write, fleet, lake), minutes, chunksize=4)


def resident_hours(
    lake: Path, jobs: Sequence[str], spark: Sequence[str], hours: Sequence[int]
) -> Iterator[tuple[int, float, float]]:
    """Compute hours one after another in one session. Yield each hour, and the CPU seconds and wall seconds of its jobs
    after silver."""

    def run(*names: str, hour: int) -> None:
        end = START + timedelta(hours=hour + 1)
        span = ["--from", f"{START:%Y-%m-%d}", "--to", f"{end:%Y-%m-%dT%H}"]
        command = [sys.executable, "-m", "jetstream_insights", *names, "--lake", str(lake), *span]
        subprocess.run([*command, *spark, "--session", str(path)], check=True, capture_output=True)

    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        path = Path(folder) / "session"
        with resident(path, *spark) as session:
            for hour in hours:
                run("silver", hour=hour)
                spent, started = sum(one.cpu for one in tree(session).values()), time.monotonic()
                run(*jobs, hour=hour)
                wall = time.monotonic() - started
                yield hour, sum(one.cpu for one in tree(session).values()) - spent, wall


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--servers", type=int, default=30)
    parser.add_argument("--streams", type=int, default=600)
    parser.add_argument("--every", type=int, default=4, metavar="MINUTES", help="between two snapshots")
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=JOBS)
    parser.add_argument("--together", action="store_true", help="all jobs in one session")
    parser.add_argument("--resident", type=int, default=0, metavar="HOURS", help="the last hours in one session")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--memory", default="3g", help="memory of the driver")
    parser.add_argument("--lake", type=Path, help="keep the snapshots in this folder")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        lake = given.lake or Path(folder) / "lake"
        spark = ["--master", given.master, "--memory", given.memory]
        span = ["--lake", str(lake), "--from", f"{START:%Y-%m-%d}", "--to", f"{START + timedelta(days=1):%Y-%m-%d}"]

        def cost(*jobs: str, more: tuple[str, ...] = ()) -> float:
            return measure([sys.executable, "-m", "jetstream_insights", *jobs, *span, *spark, *more]).cpu

        if not (lake / "bronze").exists():
            write(Fleet(given.servers, given.streams), lake, range(0, _DAY, given.every))
        for layer in ("silver", *JOBS):
            shutil.rmtree(lake / layer, ignore_errors=True)
        before = START + timedelta(hours=24 - max(given.resident, 1))
        cost("silver", *given.jobs, more=("--to", f"{before:%Y-%m-%dT%H}"))
        if given.resident:
            print(f"| hour, in one session | {', '.join(given.jobs)}, CPU s | wall s |\n|---:|---:|---:|")
            for hour, cpu, wall in resident_hours(lake, given.jobs, spark, range(24 - given.resident, 24)):
                print(f"| {hour} | {cpu:.0f} | {wall:.0f} |", flush=True)
            return
        cost("silver")
        print(
            "| job | the entire day, CPU s | a further hour, CPU s | nothing to do, CPU s | of the day | less the start |"
        )
        print("|---|---:|---:|---:|---:|---:|")
        for jobs in [given.jobs] if given.together else [[job] for job in given.jobs]:
            further, start = cost(*jobs), cost(*jobs)
            whole = cost(*jobs, more=("--force",))
            ratios = f"×{further / whole:.2f} | ×{(further - start) / (whole - start):.2f}"
            print(f"| {', '.join(jobs)} | {whole:.0f} | {further:.0f} | {start:.0f} | {ratios} |", flush=True)


if __name__ == "__main__":
    main()
