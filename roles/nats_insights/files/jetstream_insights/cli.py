# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line: `python -m jetstream_insights JOB … --lake URI --from … --to …`.

The jobs run in this order, in one Spark session, until one fails. The result of each is a JSON object on a line of standard
output; progress and errors go to standard error.
Exit status: 0 done; 1 a job failed and changed nothing; 2 a wrong argument or file, no job was started; 3 done, but something is
in quarantine; 4 done, and the report has a root cause as severe as --fail-on.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime, time, timedelta, timezone
from pathlib import Path
from typing import Any, cast

from ansible_collections.natsops.jetstream.plugins.module_utils.times import parse_time
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from jetstream_insights.advisories import make_advisories, read_captures
from jetstream_insights.catalogue import write_catalogue
from jetstream_insights.collection import module_util
from jetstream_insights.compaction import RetentionTimes, maintain
from jetstream_insights.delta import describe
from jetstream_insights.files import LakeError
from jetstream_insights.findings.checks_file import ChecksFileError, read_checks
from jetstream_insights.findings.own_checks import verify
from jetstream_insights.findings.registry import SEVERITIES
from jetstream_insights.findings_job import make_findings, read_hosts, read_thresholds
from jetstream_insights.gold.common import GoldSettings, Maintenance
from jetstream_insights.gold_job import HISTORY, days, make_gold
from jetstream_insights.lake import SOON, Lake, hours, is_little, last_published
from jetstream_insights.report.causes import STOPPED
from jetstream_insights.report.content import Present, make_report
from jetstream_insights.report.shape import dicts
from jetstream_insights.resident import ask, serve
from jetstream_insights.session import SizeSettings, connect_url, is_local, session
from jetstream_insights.silver_job import make_silver
from jetstream_insights.stream_connection import SourceError

DONE, FAILED, REFUSED, QUARANTINED, FOUND = 0, 1, 2, 3, 4
_WITHOUT_CONNECTOR = (
    "Spark lacks Hadoop's connector for object storage: add hadoop-aws to spark.jars.packages, see docs/insights.md"
)
#: The jobs that read only the given days.
DAILY_JOBS = {"silver", "gold", "findings", "report"}
#: The job that only verifies the options' files, without a lake.
VERIFY = "verify"
#: The job that keeps Spark running and executes the runs of other processes.
SESSION = "session"
#: The jobs that write files into the directory of --output.
WRITING = {"report", "catalogue"}
#: The jobs that publish tables, each in a layer of its name.
PUBLISHING = ("silver", "gold", "findings")


def moment(text: str) -> datetime:
    """Return the time of an argument in UTC. Raises ArgumentTypeError."""
    try:
        return parse_time(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def setting(text: str) -> tuple[str, str]:
    """Return the Spark setting of an argument. Raises ValueError."""
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("spark."):
        raise ValueError(f"{text!r} is not spark.NAME=VALUE")
    return name, value


def maintenance(text: str) -> Maintenance:
    """Return the window of an argument: BEGIN/END, or BEGIN/END/SERVER,SERVER. Raises ArgumentTypeError and ValueError."""
    begin, end, *servers = text.split("/")
    if moment(begin) >= moment(end):
        raise argparse.ArgumentTypeError(f"{text!r} ends before it begins")
    return Maintenance(moment(begin), moment(end), tuple(name for part in servers for name in part.split(",") if name))


def objective(text: str) -> float:
    """Return the share of an argument, above 0 and at most 1. Raises ArgumentTypeError and ValueError."""
    found = float(text)
    if not 0 < found <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share above 0 and up to 1")
    return found


def day_count(text: str) -> int:
    """Return the number of days of an argument. Raises ArgumentTypeError and ValueError."""
    found = int(text)
    if found < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is negative")
    return found


def gold_day_count(text: str) -> int:
    """Return the number of days of an argument. Raises ArgumentTypeError and ValueError."""
    found = day_count(text)
    if 0 < found <= HISTORY:
        raise argparse.ArgumentTypeError(f"{text!r} is too short: forecasts read the last {HISTORY} days")
    return found


def hour_count(text: str) -> float:
    """Return the number of hours of an argument. Raises ArgumentTypeError and ValueError."""
    found = float(text)
    if not 0 <= found < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return found


def journal_windows(journal: Path | None) -> Sequence[Any]:
    """Return the windows of a journal (roll/journal.py), none if it does not exist yet. Raises LakeError."""
    if journal is None:
        return ()
    try:
        lines = journal.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        say(f"There is no journal {journal} yet.")
        return ()
    except OSError as error:
        raise LakeError(f"--journal: {error}") from error
    windows: Sequence[Any] = module_util("roll.journal").windows(lines)
    return windows


def maintenance_window(window: Any) -> Maintenance:
    begin, end = (datetime.fromtimestamp(moment, timezone.utc) for moment in (window.begin, window.end))
    return Maintenance(begin, end, window.servers)


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="jetstream_insights", description=__doc__.split("\n", maxsplit=1)[0])
    jobs = (
        "silver: typed tables from the snapshots; advisories: a table of captured advisories; "
        "gold: daily reports, histories and forecasts from those; findings: the problems of the fleet; "
        "report: HTML, JSON, Markdown and CSV of the last day; maintain: join small files, remove expired and replaced "
        "files; delta: Delta Lake logs that list the published files, for other engines; "
        "catalogue: descriptions of the tables for metastores (SQL), dbt and data contracts, and a notebook; "
        "verify: nothing, only the files of --checks, --thresholds, --hosts and --journal are verified; "
        "session: nothing, it keeps Spark running for the runs of others with the same --session"
    )
    names = ["silver", "advisories", "gold", "findings", "report", "maintain", "delta", "catalogue", VERIFY, SESSION]
    found.add_argument("jobs", nargs="+", choices=names, metavar="JOB", help=jobs)
    found.add_argument(
        "--lake", help="directory or URI of the lake, such as hdfs://name/insights; not for verify and session"
    )
    found.add_argument(
        "--from",
        dest="start",
        type=moment,
        help="first hour, in UTC; by default one day before --to, or for silver the start of that day",
    )
    found.add_argument("--to", dest="end", type=moment, help="end, exclusive; by default now")
    found.add_argument(
        "--master",
        help="Spark's master, such as local[2] or sc://HOST:15002 (Connect); by default that of spark-submit, or local[*]",
    )
    found.add_argument("--memory", help="memory of the driver, such as 4g")
    found.add_argument(
        "--conf",
        action="append",
        type=setting,
        default=[],
        metavar="NAME=VALUE",
        help="a Spark setting, unless spark-submit started it; may be given more than once",
    )
    found.add_argument(
        "--session",
        type=Path,
        metavar="SOCKET",
        help="execute the jobs in this session, if the job session keeps it running; Spark's settings are those of that job",
    )
    found.add_argument("--force", action="store_true", help="also recompute hours or days that are up to date")
    _add_options_of_tables(found)
    _add_options_of_findings(found)
    _add_options_of_maintain(found)
    return found


def _add_options_of_tables(found: argparse.ArgumentParser) -> None:
    captured = found.add_argument_group("advisories")
    captured.add_argument(
        "--streams", metavar="FILE", help="JSON list of the streams that capture them, see docs/insights.md"
    )
    meant = found.add_argument_group("gold and report")
    meant.add_argument(
        "--journal",
        type=Path,
        metavar="FILE",
        help="the journal of operations: events during rolls and maintenance are treated as planned",
    )
    daily = found.add_argument_group("gold")
    daily.add_argument(
        "--maintenance",
        action="append",
        type=maintenance,
        default=[],
        metavar="BEGIN/END[/SERVER,…]",
        help="a window in which elections and restarts are treated as planned; may be given more than once",
    )
    daily.add_argument(
        "--slo",
        type=objective,
        default=GoldSettings.slo,
        help="the objective for the share of time with quorum, such as 0.999",
    )


def _add_options_of_findings(found: argparse.ArgumentParser) -> None:
    judged = found.add_argument_group("findings")
    judged.add_argument(
        "--thresholds", type=Path, metavar="FILE", help="JSON object of thresholds by name, and checks to skip"
    )
    judged.add_argument("--hosts", type=Path, metavar="FILE", help="JSON list of figures about the hosts, by server")
    fleets = found.add_argument_group("findings and report")
    fleets.add_argument(
        "--checks",
        type=Path,
        metavar="FILE",
        help="YAML file of own checks, thresholds, severities, skipped checks and muted findings, see docs/insights.md",
    )
    fleets.add_argument(
        "--retired",
        action="append",
        default=[],
        metavar="FLEET",
        help="a decommissioned fleet: it needs no fresh snapshot, and its findings end; may be given more than once",
    )
    shown = found.add_argument_group("report")
    shown.add_argument(
        "--output", type=Path, metavar="DIRECTORY", help="local directory for its files and those of catalogue"
    )
    shown.add_argument("--title", default="NATS JetStream fleet", help="its title")
    shown.add_argument(
        "--webhook-file",
        type=Path,
        metavar="FILE",
        help="file with the address to which its verdict and first steps are posted",
    )
    shown.add_argument("--fail-on", choices=SEVERITIES, help="exit status 4 if a root cause is at least this severe")


def _add_options_of_maintain(found: argparse.ArgumentParser) -> None:
    keep = found.add_argument_group("maintain")
    keep.add_argument(
        "--keep-bronze", type=day_count, default=0, metavar="DAYS", help="days to keep snapshots, by default forever"
    )
    keep.add_argument(
        "--keep-silver", type=day_count, default=0, metavar="DAYS", help="days to keep the tables, by default forever"
    )
    keep.add_argument(
        "--keep-gold",
        type=gold_day_count,
        default=0,
        metavar="DAYS",
        help=f"days to keep histories and findings, by default forever; at least {HISTORY + 1}, for the forecasts",
    )
    keep.add_argument(
        "--unused",
        type=hour_count,
        default=24.0,
        metavar="HOURS",
        help="how long readers may still use replaced files",
    )


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _given(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the arguments. Ends the program with exit status 2 if they contradict each other."""
    given = parser().parse_args(arguments)
    given.end = given.end or datetime.now(timezone.utc)
    given.begin = given.start or given.end - timedelta(days=1)
    if given.begin >= given.end:
        parser().error("--from must be before --to")
    alone = not {VERIFY, SESSION}.isdisjoint(given.jobs)
    if (given.lake is None) != alone or (alone and len(given.jobs) > 1):
        names = f"{VERIFY} and {SESSION}"
        parser().error(f"all jobs except {names} require --lake, and {names} run without a lake and other jobs")
    if SESSION in given.jobs and (given.session is None or not is_local(given.master)):
        parser().error("the job session requires --session, and a --master on this machine")
    if WRITING.isdisjoint(given.jobs) == (given.output is not None):
        parser().error("the jobs report and catalogue require --output, and no other job accepts it")
    if (given.fail_on or given.webhook_file) and "report" not in given.jobs:
        parser().error("--fail-on and --webhook-file require the job report")
    if given.memory and connect_url(given.master):
        parser().error("--memory is set when a Spark Connect server starts, and cannot be changed here")
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    given = _given(arguments)
    if SESSION in given.jobs:
        return _keep_session(given)
    if given.session:
        status = ask(given.session, arguments, say)
        if status is not None:
            return status
        say(f"No session is running at {given.session}: Spark is started for this run.")
    return run_jobs(given)


def _keep_session(given: argparse.Namespace) -> int:
    """Execute the runs of other processes. Returns 0 when the session is old."""
    try:
        spark = session(given.master, given.memory, settings=dict(given.conf), resident=True)
        sizes, jvm = SizeSettings(spark), cast(Any, spark.sparkContext._jvm)

        def run(arguments: Sequence[str]) -> int:
            return run_jobs(_given(arguments), sizes)

        serve(given.session, run, jvm.java.lang.System.nanoTime, say)
    except (LakeError, Py4JError, OSError) as error:
        say(f"FAILED: {SESSION}: {error}")
        return FAILED
    return DONE


def run_jobs(given: argparse.Namespace, size_settings: SizeSettings | None = None) -> int:
    """Run the jobs and return the exit status. `size_settings`: those of a resident session."""
    given.size_settings = size_settings
    start, end = given.begin, given.end
    severe = SEVERITIES[: SEVERITIES.index(given.fail_on) + 1] if given.fail_on else ()
    status = DONE
    try:
        given.own = read_checks(given.checks)
        given.settings, given.facts = read_thresholds(given.thresholds, given.own), read_hosts(given.hosts)
        given.meant = journal_windows(given.journal)
        _choose_session(given)
        if given.own.own and not {"findings", VERIFY}.isdisjoint(given.jobs):
            verify(open_session(given), given.own)
    except (LakeError, ChecksFileError) as error:
        for line in str(error).splitlines():
            say(f"FAILED: no job was started: {line}")
        return REFUSED
    except OSError as error:
        say(f"FAILED: no job was started: {error}")
        return FAILED
    for job in given.jobs:
        try:
            result = run(job, given, start, end)
        except (LakeError, SourceError, OSError) as error:
            say(f"FAILED: {job}: {error}")
            return FAILED
        except (Py4JError, PySparkException) as error:
            say(f"FAILED: {job}: {reason(error)}")
            return FAILED
        print(json.dumps({"job": job, **result}), flush=True)
        if result.get("quarantined"):
            status = QUARANTINED
        if result.get("worst") in severe:
            status = FOUND
            say(_found(given.output))
    return status


def _found(folder: Path) -> str:
    """Return the reason for exit status 4: the worst root cause of the report."""
    cause, *_others = dicts(json.loads((folder / "report.json").read_text(encoding="utf-8")), "causes")
    return f"FOUND: {cause['severity']} root cause of fleet {cause['fleet']}: {cause['title']}; read {folder / 'report.html'}"


def _choose_session(given: argparse.Namespace) -> None:
    """Set whether Spark is started for little data, and for a run that ends soon."""
    # The other jobs also read data of other days.
    known = set(given.jobs) <= DAILY_JOBS and is_local(given.master)
    selected_days = [*days(given.begin, given.end)]
    given.little = given.soon = given.lake is None or (known and is_little(given.lake, selected_days))
    if known and not given.little:
        layers = [job for job in PUBLISHING if job in given.jobs]
        made = 0.0 if given.force else last_published(given.lake, layers, selected_days)
        given.soon = is_little(given.lake, selected_days, SOON, made)


def open_session(given: argparse.Namespace) -> SparkSession:
    spark = session(given.master, given.memory, given.little, dict(given.conf), given.soon)
    if given.size_settings:
        given.size_settings.use(given.little)
    return spark


def run(job: str, given: argparse.Namespace, start: datetime, end: datetime) -> dict[str, Any]:
    """Run a job and return its result."""
    if job == VERIFY:
        settings = given.settings
        return {"checks": len(given.own.own), "thresholds": len(settings.thresholds), "skip": len(settings.skip)}
    lake = Lake(open_session(given), given.lake, given.little)
    if job == "catalogue":
        return write_catalogue(lake, given.output)
    if job == "advisories":
        reported = make_advisories(lake, read_captures(given.streams), say)
        return {**asdict(reported), "quarantined": reported.unreadable}
    lake.check()
    if job == "findings":
        return asdict(
            make_findings(
                lake,
                days(start, end),
                say,
                given.force,
                given.settings,
                given.facts,
                given.retired,
                given.own.registry,
            )
        )
    if job == "report":
        return _report(lake, given, start, end)
    if job == "maintain":
        keep = RetentionTimes(given.keep_bronze, given.keep_silver, given.keep_gold, timedelta(hours=given.unused))
        return asdict(maintain(lake, end, keep, say))
    if job == "delta":
        return asdict(describe(lake, say))
    if job == "gold":
        windows = [*given.maintenance, *(maintenance_window(window) for window in given.meant)]
        settings = GoldSettings(maintenance=tuple(windows), slo=given.slo)
        return asdict(make_gold(lake, days(start, end), say, given.force, settings))
    return _silver(lake, given, start, end)


def period(start: datetime, end: datetime) -> str:
    return f"{start:%Y-%m-%dT%H:%MZ} to {end:%Y-%m-%dT%H:%MZ}"


def _report(lake: Lake, given: argparse.Namespace, start: datetime, end: datetime) -> dict[str, Any]:
    """Write the report of the last day with tables. Unless the period ended more than an hour ago, it is a report of the present:
    the time since the last snapshot is measured until now, not until --to."""
    made = [day for day in days(start, end) if lake.pointer("findings", day) or lake.pointer("gold", day)]
    now = datetime.now(timezone.utc)
    present = Present(given.retired) if (now - end).total_seconds() < STOPPED else None
    if present and not made:
        # The last day with findings; its causes name the fleets without fresh snapshots.
        made = lake.published_days("findings")[-1:]
    if not made:
        raise LakeError(
            f"there is nothing to report for {period(start, end)}. If there are snapshots of this time, run the jobs "
            "silver, gold and findings first"
        )
    span = (start, end) if start.date() <= made[-1] else None
    if present and span is None:
        shown = f"this report shows {made[-1]}, the last day with findings."
        note = f"There are no findings of {period(start, end)}: {shown}"
        say(note)
        present = replace(present, notes=(note,))
    return make_report(
        lake,
        made[-1],
        given.output,
        given.title,
        say,
        given.meant,
        given.webhook_file,
        present,
        given.own.mutes,
        span,
    )


def _silver(lake: Lake, given: argparse.Namespace, start: datetime, end: datetime) -> dict[str, Any]:
    """Make the silver tables of the hours, and report the days with snapshots outside of them."""
    counted = module_util("units").counted
    later = [day for day in lake.days("bronze/manifest") if day >= end]
    # An earlier --to leaves out later days on purpose.
    future = [day for day in later if day >= datetime.now(timezone.utc)]
    if future:
        say(
            f"There are snapshots of {counted(len(future), 'day')} in the future, the first of {future[0]:%Y-%m-%d}: check "
            "whether the collector's clock is ahead"
        )
    earlier = [f"{day:%Y-%m-%d}" for day in lake.unread_days(start.date())]
    if earlier:
        say(
            f"No job has read the snapshots of {counted(len(earlier), 'day')} before --from, so fleets without newer "
            f"snapshots are missing; to include them, add: --from {earlier[0]}"
        )
    # The tables of a day are made from all of its hours.
    begin = given.start or datetime.combine(start.date(), time(), timezone.utc)
    outcome = make_silver(lake, hours(begin, end), say, given.force)
    return {**asdict(outcome), "later_days": [f"{day:%Y-%m-%d}" for day in later], "earlier_days": earlier}


def reason(error: Exception) -> str:
    """Return the innermost cause of an error of Spark or Hadoop, in one line."""
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        line = f"{cause.getClass().getSimpleName()}: {cause.getMessage()}".splitlines()[0]
        # If the session began with a lake on a local disk, Hadoop lacks the settings of this scheme, too.
        lacks_connector = "S3AFileSystem not found" in line or 'FileSystem for scheme "s3a"' in line
        return f"{line}. {_WITHOUT_CONNECTOR}" if lacks_connector else line
    return str(error).strip().splitlines()[0]
