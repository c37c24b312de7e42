# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures the rows of stream replicas per second and core from bronze to the report, at growing sizes.

``make bench BENCH=insights/pipeline ARGS='--rows 1000000 10000000'``. A synthetic fleet writes a snapshot a minute
until it has that many rows, in as many files as a real fleet; writing is not measured. Each job is the command that
users run, on one core and on two, including its startup; the figures are wall time, CPU time, the peak memory of all
its processes, and Spark's peak disk use outside the lake. A job may use only the cores of its master: otherwise the
JVM's compiler and garbage collector would use the second core. With `--realistic`, documents are as large as recorded
ones, and two members of Raft groups are reported for each row. With ``--together``, the jobs share a session. With
``--resident``, further runs use a session that keeps running. With ``--tables``, the tasks' work is shown by the table
that they wrote. At the end, Spark, DuckDB and pandas compute one aggregate from the same bronze files, and their
results must be equal. The figures are ratios. With ``--lakes`` the bronze files are kept, and a later run uses them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from multiprocessing import Pool
from pathlib import Path

from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.snapshot import FORMATS, JSON
from bench.insights.events import by_table, settings
from bench.insights.processes import tree
from support.fleet import START, Fleet
from support.spark_cluster import resident

#: Rows that 1,000 servers with 50,000 streams write in a day, with a snapshot every minute.
DAY_OF_1000 = 50_000 * 2.5 * 1440
PLAIN = Path(__file__).with_name("plain.py")
JOBS = ("silver", "gold", "findings", "report", "maintain")
ENGINES = ("spark", "duckdb", "pandas")


@dataclass(frozen=True)
class Cost:
    """The cost of a command: elapsed seconds, seconds of CPU time, and the peak number of bytes in memory and in the
    watched folder."""

    wall: float
    cpu: float
    memory: int
    disk: int
    output: str


def folder_size(folder: Path) -> int:
    """Return the total size of all files of a folder. Files may disappear during the call."""
    found = 0
    for path, _folders, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                found += os.stat(f"{path}/{name}").st_size
    return found


def measure(command: Sequence[str], cores: int | None = None, watched: Path | None = None) -> Cost:
    """Run a command to its end on at most this many cores."""
    own = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        started = time.perf_counter()
        cpu: dict[int, float] = {}
        memory = disk = 0
        with subprocess.Popen(command, stdout=output, stderr=errors) as process:
            os.sched_setaffinity(process.pid, own[:cores])
            while process.poll() is None:
                now = tree(process.pid)
                cpu.update({pid: spent.cpu for pid, spent in now.items()})
                memory = max(memory, sum(spent.resident for spent in now.values()))
                disk = max(disk, folder_size(watched)) if watched else 0
                time.sleep(0.2)
        wall = time.perf_counter() - started
        errors.seek(0)
        if process.returncode:
            sys.exit(f"{' '.join(command)} ended with {process.returncode}:\n{errors.read()[-4000:]}")
        output.seek(0)
        return Cost(wall, sum(cpu.values()), memory, disk, output.read())


def _cores(master: str) -> int | None:
    """Return how many cores a local master has, or None for all cores."""
    found = re.fullmatch(r"local\[(\d+)\]", master)
    return int(found[1]) if found else None


def _write(fleet: Fleet, lake: Path, form: str, minute: int) -> int:
    return int(fleet.write(lake, minute * 60.0, form=form)["tables"]["jsz_streams"]["rows"])


def generate(fleet: Fleet, lake: Path, rows: int, form: str) -> tuple[int, int]:
    """Write a lake of at least this many rows, or reuse an existing one; return its number of rows and its number of
    minutes."""
    written = lake.with_suffix(".json")
    if not written.exists():
        shutil.rmtree(lake, ignore_errors=True)
        each = _write(fleet, lake, form, 0)
        minutes = -(-rows // each)
        with Pool(2) as pool:
            more = sum(pool.imap_unordered(partial(_write, fleet, lake, form), range(1, minutes), chunksize=4))
        written.write_text(json.dumps([each + more, minutes]))
    rows, minutes = json.loads(written.read_text())
    return rows, minutes


def show(what: str, rows: int, cost: Cost) -> str:
    return (
        f"| {what} | {rows:,} | {cost.wall:.0f} | {cost.cpu:.0f} | {rows / cost.cpu:,.0f} | {rows / cost.wall:,.0f} "
        f"| {cost.memory / (1 << 20):,.0f} | {cost.disk / (1 << 20):,.0f} |"
    )


def show_tables(logs: Path) -> None:
    """Print the work of a job's tasks by the table that they wrote, with the percentage of the CPU time for each
    table."""
    work = by_table(logs)
    whole = sum(one.cpu for one in work.values())
    print(f"\n| table, of {whole:.0f} CPU s of the tasks | part | MB shuffled | MB spilled |\n|---|---:|---:|---:|")
    for name, one in work.items():
        figures = (f"{value / 1e6:,.1f}" for value in (one.shuffled, one.spilled))
        print(f"| {name} | {one.cpu / whole:.0%} | {' | '.join(figures)} |")
    print(flush=True)


def resident_runs(command: Sequence[str], folder: Path, times: int) -> Iterator[float]:
    """Yield the wall seconds of each run of a command in a session that executes all of them."""
    if not times:
        return
    path = folder / "session"
    with resident(
        path, *(part for name in ("--master", "--memory") for part in (name, command[command.index(name) + 1]))
    ):
        for _time in range(times):
            start = time.monotonic()
            subprocess.run([*command, "--session", str(path)], check=True, capture_output=True)
            yield time.monotonic() - start


def run(lake: Path, rows: int, given: argparse.Namespace) -> tuple[int, float]:
    """Run the jobs; return the number of rows that they processed, and the CPU seconds of all jobs with the first
    master."""
    rows, minutes = generate(Fleet(given.servers, given.streams, realistic=given.realistic), lake, rows, given.format)
    size = folder_size(lake / "bronze")
    files = sum(1 for path in (lake / "bronze").rglob("*") if path.is_file() and path.suffix != ".json")
    print(f"\n{rows:,} rows of {minutes} snapshots: {files:,} files with {size / 1e6:,.0f} MB\n")
    print(
        "| job | rows | wall s | CPU s | rows per CPU s | rows per s | MiB at most | MiB on disk |\n"
        "|---|---:|---:|---:|---:|---:|---:|---:|"
    )
    to = f"{START + timedelta(minutes=minutes):%Y-%m-%dT%H:%M}"
    whole = 0.0
    for master in given.masters:
        for jobs in [given.jobs] if given.together else [[job] for job in given.jobs]:
            with tempfile.TemporaryDirectory(prefix="bench-", dir=lake.parent) as folder:
                logs, local, report = (Path(folder) / name for name in ("events", "local", "report"))
                logs.mkdir()
                # Only the files of completed days are compacted.
                until = f"{START + timedelta(days=3):%Y-%m-%d}" if "maintain" in jobs else to
                of = ["--lake", str(lake), "--from", f"{START:%Y-%m-%d}", "--to", until]
                how = ["--master", master, "--memory", given.memory, "--conf", f"spark.local.dir={local}"]
                of += ["--output", str(report)] if "report" in jobs else []
                logged = settings(logs) if given.tables else []
                command = [sys.executable, "-m", "jetstream_insights", *jobs, *of, *how, *logged, "--force"]
                cost = measure(command, _cores(master), local)
                whole += cost.cpu if master == given.masters[0] else 0
                print(show(f"{' '.join(jobs)}, {master}", rows, cost), flush=True)
                if given.tables:
                    show_tables(logs)
                for number, seconds in enumerate(resident_runs(command, Path(folder), given.resident), 1):
                    print(
                        f"{' '.join(jobs)}, {master}, run {number} in a resident session: {seconds:.1f} s", flush=True
                    )
    reported = []
    for engine in given.engines if given.format == JSON else ():
        spark = [sys.executable, given.masters[-1], given.memory]
        python, *more = spark if engine == "spark" else [given.bench_python]
        cost = measure([python, str(PLAIN), engine, str(lake), *more])
        reported.append(json.loads(cost.output.splitlines()[-1]))
        print(show(f"plain aggregate, {engine}", rows, cost), flush=True)
    if any(sums != reported[0] for sums in reported):
        sys.exit("the aggregates differ")
    return rows, whole


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--servers", type=int, default=30)
    parser.add_argument("--streams", type=int, default=5000, help="each of two and a half replicas, on average")
    parser.add_argument("--masters", nargs="+", default=["local[1]", "local[2]"])
    parser.add_argument("--memory", default="2g", help="memory of the driver")
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=JOBS)
    parser.add_argument("--together", action="store_true", help="run the jobs in one session, as playbook and timer do")
    parser.add_argument(
        "--resident", type=int, default=0, metavar="RUNS", help="also time as many runs in a resident session"
    )
    parser.add_argument("--tables", action="store_true", help="show the cost of the tasks by the table that they wrote")
    parser.add_argument("--realistic", action="store_true", help="documents as large as recorded ones, and Raft groups")
    parser.add_argument("--format", choices=FORMATS, default=JSON, help="how the snapshots are written")
    parser.add_argument(
        "--engines",
        nargs="*",
        default=ENGINES,
        choices=ENGINES,
        help="engines that compute the plain aggregate of JSON lines",
    )
    parser.add_argument("--lakes", type=Path, help="keep the bronze files in this folder")
    parser.add_argument("--bench-python", default=os.environ.get("BENCH_PYTHON"), help="Python with duckdb and pandas")
    given = parser.parse_args()
    if not given.bench_python:
        parser.error("--bench-python is missing: make bench sets it")
    made = []
    for rows in given.rows:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            name = f"{given.servers}-{given.streams}-{rows}-{given.format}{'-realistic' * given.realistic}"
            made.append(run((given.lakes or Path(folder)) / name, rows, given))
    for (few, less), (many, more) in zip(made, made[1:]):
        each = (more - less) / (many - few)
        print(
            f"\n{', '.join(given.jobs)} of {many:,} rows take {more / less:.1f} times the time of {few:,}: {each * 1e6:.0f} µs a "
            f"row more. A day of 1,000 servers with 50,000 streams by that: {each * DAY_OF_1000 / 3600:.1f} core hours"
        )


if __name__ == "__main__":
    main()
