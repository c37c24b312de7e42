# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs make targets and prints a final line with the totals.

    python3 tools/run_parts.py [PART…] [--together PART…] [--lab PART…]
    python3 tools/run_parts.py --slowest N [PART…]

Each PART is a make target. A target that runs pytest leaves its counts in $JUNIT; any other target counts as one check.
Every part runs, even after failures: first the parts before any flag, one after the other, then the others, two at a
time in the order given. A part's output is shown when it has ended. Both flags may be repeated. The parts after --lab
need the lab of systemd hosts: if `tests/lab/lab.py check` reports that the lab cannot be built, these parts are
announced prominently and count as skipped. With CI=true, a part in which no test ran is a failure: a machine that
should run everything must not pass by skipping.

After everything else, the failed tests of each part run once more, one after the other, by the same make target. A test
that passes then is flaky: both outputs are printed, its JUnit case has `flakyFailure` instead of `failure`, and it
counts as passed. More than three flaky tests count as failed; the tests of a file whose shared setup failed count once.
Tests are not rerun if the part has no JUnit file (lint, sanity, molecule), if pytest ended before its last test, if a
file cannot be collected, or if more than twenty tests failed. Flaky tests are listed in tests/flaky.txt.

The duration of each test is in .cache/results/durations.json; `--slowest` prints the longest durations, either of the
named parts or of all parts.

SIGINT and SIGTERM end the run cleanly: each running part is interrupted, so pytest cleans up, no further part begins,
and the totals report the interruption. A second signal ends the parts at once.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any, NamedTuple
from xml.etree import ElementTree

RESULTS = Path(".cache/results")
DURATIONS = RESULTS / "durations.json"
FLAKY_LIST = Path("tests/flaky.txt")
#: The run fails if more flaky tests than this have faults of their own.
FLAKY_LIMIT = 3
#: If more tests failed than this, the cause is not chance, and rerunning them one after the other would take too long.
RERUN_LIMIT = 20
#: For a rerun: no pytest-xdist workers, and the output of passed tests.
RERUN_OPTIONS = "-o junit_log_passing_tests=true"
#: A closing line contains this many characters of a failure, because an assertion may print a complete reply.
REASON_LENGTH = 300
BOLD, PLAIN = ("\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "")


@dataclass
class Outcome:
    """The result of one part. `seconds` is wall-clock time. Flaky tests count as passed."""

    part: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    reason: str = ""
    flaky: int = 0


class Failure(NamedTuple):
    """The failure of a test. `fault`: equal for the tests of a file whose setup failed. `reason`: place and first line."""

    fault: str
    reason: str
    output: str


@dataclass(frozen=True)
class Flake:
    """A test that failed and then passed. `rerun`: the output of the run that passed."""

    part: str
    test: str
    failure: Failure
    rerun: str

    @property
    def function(self) -> str:
        """Return the test without its parameters, as tests/flaky.txt lists it."""
        return self.test.partition("[")[0]


@dataclass(frozen=True)
class Listed:
    """A line of tests/flaky.txt."""

    date: datetime.date
    test: str
    cause: str

    def __str__(self) -> str:
        return f"{self.date} | {self.test} | {self.cause}"


def listed_flakes(text: str) -> dict[str, Listed]:
    """Return the entries of tests/flaky.txt by test. Raise ValueError for a line in a different format."""
    entries = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        fields = [field.strip() for field in line.split(" | ", 2)]
        if len(fields) != 3 or not all(fields):
            raise ValueError(f"tests/flaky.txt: not `DATE | TEST | CAUSE`: {line}")
        entries[fields[1]] = Listed(datetime.date.fromisoformat(fields[0]), fields[1], fields[2])
    return entries


def read_counts(report: Path) -> tuple[int, int, int, str]:
    """Return (passed, failed, skipped, reason of the first skip) of a JUnit file."""
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    failed = sum(1 for case in cases if case.find("failure") is not None or case.find("error") is not None)
    skips = [case.find("skipped") for case in cases if case.find("skipped") is not None]
    reason = next((skip.get("message") or "" for skip in skips if skip is not None), "")
    return len(cases) - failed - len(skips), failed, len(skips), reason


def node_id(case: ElementTree.Element) -> str:
    """Return the name by which pytest runs a test of a JUnit file; empty if the case is not a test, such as a failed import."""
    words = (case.get("classname") or "").split(".")
    for end in range(len(words), 0, -1):
        path = "/".join(words[:end]) + ".py"
        if Path(path).is_file():
            return "::".join([path, *words[end:], case.get("name") or ""])
    return ""


def problems(case: ElementTree.Element) -> list[ElementTree.Element]:
    return [child for child in case if child.tag in ("failure", "error")]


def case_output(case: ElementTree.Element) -> str:
    """Return the reason of a failed test and its output."""
    tags = ("failure", "error", "system-out", "system-err")
    return "\n".join(child.text.strip() for child in case if child.tag in tags and child.text and child.text.strip())


def rerunnable(report: Path) -> list[str]:
    """Return the failed tests of a JUnit file; none if pytest ended before its last test."""
    if not report.is_file():
        return []
    root = ElementTree.parse(report).getroot()
    ran = {(case.get("classname"), case.get("name")) for case in root.iter("testcase")}
    collected = next((one.get("value") for one in root.iter("property") if one.get("name") == "collected"), None)
    if collected is None or int(collected) > len(ran):
        return []
    return list(dict.fromkeys(name for case in root.iter("testcase") if problems(case) and (name := node_id(case))))


def passed_tests(report: Path) -> dict[str, str]:
    """Return test → output for the passed tests of a JUnit file."""
    if not report.is_file():
        return {}
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    bad = {node_id(case) for case in cases if problems(case) or case.find("skipped") is not None}
    return {name: case_output(case) for case in cases if (name := node_id(case)) not in bad}


def fault(case: ElementTree.Element) -> str:
    """Return a name for the fault of a failed test: its own name or, if a fixture failed, that of its file."""
    errors = [child.get("message") or "" for child in case if child.tag == "error"]
    in_setup = any(message.startswith("failed on setup") for message in errors)
    return f"setup of {case.get('classname')}" if in_setup else node_id(case)


def reason(case: ElementTree.Element) -> str:
    """Return the first line of the failure, with the place that pytest names in the last line of its text."""
    first = problems(case)[0]
    lines, places = (first.get("message") or "").splitlines() or [""], (first.text or "").strip().splitlines() or [""]
    return f"{places[-1].rpartition(':')[0]}: {lines[0][:REASON_LENGTH]}"


def mark_flaky(report: Path, tests: set[str]) -> dict[str, Failure]:
    """Mark these tests as flaky in a JUnit file; return the failure of each."""
    tree = ElementTree.parse(report)
    found: dict[str, Failure] = {}
    first: dict[str, ElementTree.Element] = {}
    for suite in tree.getroot().iter("testsuite"):
        for case in [case for case in suite.iter("testcase") if problems(case)]:
            name = node_id(case)
            if name not in tests:
                continue
            before = found.get(name, Failure(fault(case), reason(case), ""))
            found[name] = before._replace(output="\n".join(filter(None, [before.output, case_output(case)])))
            for problem in problems(case):
                suite.set(f"{problem.tag}s", str(int(suite.get(f"{problem.tag}s", "1")) - 1))
                problem.tag = f"flaky{problem.tag.capitalize()}"
            # pytest writes a second case for a test that fails once more in its teardown.
            if name in first:
                first[name].extend(case)
                suite.remove(case)
                suite.set("tests", str(int(suite.get("tests", "1")) - 1))
            first.setdefault(name, case)
        suite.set("flakes", str(len(first)))
    tree.write(report, encoding="utf-8", xml_declaration=True)
    return found


class Parts:
    """The parts that are running, and the signals that this process has received."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self.signals: list[int] = []

    def call(self, command: Sequence[str], environment: dict[str, str], output: IO[str] | None) -> int | None:
        """Return the exit status of a command, or None if a signal arrived before it started."""
        with self._lock:
            if self.signals:
                return None
            process = subprocess.Popen(
                command,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT if output else None,
                # A separate process group, so make and its children receive each signal once.
                start_new_session=True,
            )
            self._running.add(process)
        try:
            return process.wait()
        finally:
            with self._lock:
                self._running.discard(process)

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        with self._lock:
            self.signals.append(number)
            for process in self._running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGINT if len(self.signals) == 1 else signal.SIGKILL)


PARTS = Parts()


def report_path(part: str) -> Path:
    return (RESULTS / f"{part}.xml").resolve()


def run(part: str, output: IO[str] | None = None, report: Path | None = None, variables: Sequence[str] = ()) -> Outcome:
    """Run one part and count its result; its output goes to `output`, or is shown as it arrives."""
    report = report or report_path(part)
    report.unlink(missing_ok=True)
    command = ["make", "--no-print-directory", part, *variables]
    status = PARTS.call(command, {**os.environ, "JUNIT": str(report)}, output)
    if status is None:
        return Outcome(part, failed=1, reason="not begun")
    if not report.is_file():
        return Outcome(part, passed=int(status == 0), failed=int(status != 0))
    passed, failed, skipped, reason = read_counts(report)
    if status and not failed:
        failed = 1  # pytest itself failed: it collected no tests, was interrupted, or reported a usage error
    return Outcome(part, passed, failed, skipped, reason=reason)


def lab_obstacle() -> str:
    """Return why no lab can be built on this machine, or an empty text if one can."""
    check = subprocess.run(
        [sys.executable, "tests/lab/lab.py", "check"], stderr=subprocess.PIPE, text=True, check=False
    )
    return check.stderr.strip() or f"lab.py check: exit status {check.returncode}" if check.returncode else ""


def judged(outcome: Outcome) -> Outcome:
    """Announce a part without any executed test; in CI, such a part counts as failed."""
    if not outcome.skipped or outcome.passed or outcome.failed:
        return outcome
    print(f"\n{BOLD}!!! {outcome.part}: NOTHING WAS RUN. {outcome.reason}{PLAIN}", flush=True)
    if os.environ.get("CI") == "true":
        print(f"{BOLD}!!! With CI=true that is a failure.{PLAIN}", flush=True)
        outcome.failed, outcome.skipped = outcome.skipped, 0
    return outcome


def announce(part: str) -> None:
    print(f"\n{BOLD}=== make {part}{PLAIN}", flush=True)


def timed(part: str, output: IO[str] | None = None) -> Outcome:
    """Run one part; return its result and duration."""
    started = time.monotonic()
    outcome = run(part, output)
    outcome.seconds = time.monotonic() - started
    return outcome


def run_alone(parts: Sequence[str]) -> Iterator[Outcome]:
    for part in parts:
        announce(part)
        yield timed(part)


def run_together(parts: Sequence[str]) -> Iterator[Outcome]:
    """Run the parts two at a time, for two cores; yield and show each part when it has ended."""
    printing = threading.Lock()

    def captured(part: str) -> tuple[Outcome, str]:
        with printing:
            print(f"--- {part} begins", flush=True)
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
            outcome = timed(part, output)
            output.seek(0)
            return outcome, output.read()

    with ThreadPoolExecutor(2) as pool:
        for done in as_completed([pool.submit(captured, part) for part in parts]):
            outcome, text = done.result()
            with printing:
                announce(outcome.part)
                print(text, end="", flush=True)
            yield outcome


def without_a_lab(parts: Sequence[str], obstacle: str) -> Iterator[Outcome]:
    for part in parts:
        announce(part)
        yield Outcome(part, skipped=1, reason=obstacle)


def rerun_failed(outcomes: Sequence[Outcome]) -> list[Flake]:
    """Rerun the failed tests after everything else; return those that pass, and count them in the outcome of their
    part."""
    failed = {
        outcome.part: tests
        for outcome in outcomes
        if outcome.failed and (tests := rerunnable(report_path(outcome.part)))
    }
    number = sum(map(len, failed.values()))
    if number > RERUN_LIMIT:
        print(f"\n{BOLD}{number} tests failed, more than {RERUN_LIMIT}: none is rerun.{PLAIN}", flush=True)
        return []
    flakes = []
    for outcome in outcomes:
        tests = failed.get(outcome.part, [])
        if tests and not PARTS.signals:
            print(f"\n{BOLD}=== make {outcome.part}, again, only the failed tests: {len(tests)}{PLAIN}", flush=True)
            flakes += rerun(outcome, tests)
    return flakes


def rerun(outcome: Outcome, tests: Sequence[str]) -> list[Flake]:
    """Rerun the failed tests of a part one after the other; return those that pass, and count them in the outcome."""
    report, again = report_path(outcome.part), report_path(f"{outcome.part}.rerun")
    # The arguments are passed in a file: the name of a test may contain any character, and make and the shell would
    # interpret some of them.
    names = RESULTS / f"{outcome.part}.rerun.txt"
    names.write_text("".join(f"{test}\n" for test in tests), encoding="utf-8")
    started = time.monotonic()
    second = run(outcome.part, report=again, variables=[f"TESTS=@{names}", f"PYTEST_OPTIONS={RERUN_OPTIONS}"])
    outcome.seconds += time.monotonic() - started
    passed = passed_tests(again)
    if second.failed and len(passed.keys() & set(tests)) == len(tests):
        return []  # pytest itself failed
    found = mark_flaky(report, passed.keys() & set(tests))
    outcome.passed, outcome.failed, outcome.skipped, _reason = read_counts(report)
    outcome.flaky = len(found)
    return [Flake(outcome.part, test, failure, passed[test]) for test, failure in found.items()]


def show_flakes(flakes: Sequence[Flake]) -> None:
    """Print the output of both runs of each flaky test, and its entry in tests/flaky.txt."""
    known = listed_flakes(FLAKY_LIST.read_text(encoding="utf-8")) if FLAKY_LIST.is_file() else {}
    for flake in flakes:
        print(f"\n{BOLD}!!! flaky: {flake.test} (make {flake.part}){PLAIN}")
        print(
            f"--- failed:\n{flake.failure.output}\n--- passed when it ran again, alone:\n{flake.rerun or '(it printed nothing)'}"
        )
        if flake.function in known:
            print(f"--- listed in {FLAKY_LIST}: {known[flake.function]}", flush=True)
        else:
            line = Listed(datetime.date.today(), flake.function, "CAUSE")
            print(f"--- not listed. Find the cause, or add this line to {FLAKY_LIST}:\n{line}", flush=True)


def write_durations(outcomes: Sequence[Outcome]) -> None:
    """Write the duration of each test of these parts, and keep the durations of other parts. A part without tests has
    one row."""
    rows = [row for row in read_durations() if row["part"] not in {outcome.part for outcome in outcomes}]
    for outcome in outcomes:
        report = report_path(outcome.part)
        cases = ElementTree.parse(report).getroot().iter("testcase") if report.is_file() else ()
        seconds: dict[str, float] = {}
        for case in cases:
            if name := node_id(case):
                seconds[name] = seconds.get(name, 0.0) + float(case.get("time", "0"))
        if not report.is_file():
            seconds[outcome.part] = round(outcome.seconds, 3)
        rows += [{"part": outcome.part, "test": name, "seconds": round(taken, 3)} for name, taken in seconds.items()]
    rows.sort(key=lambda row: -row["seconds"])
    written = DURATIONS.with_suffix(".new")
    written.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n", encoding="utf-8")
    written.replace(DURATIONS)


def read_durations() -> list[dict[str, Any]]:
    return json.loads(DURATIONS.read_text(encoding="utf-8")) if DURATIONS.is_file() else []


def show_slowest(number: int, parts: Sequence[str]) -> int:
    rows = [row for row in read_durations() if not parts or row["part"] in parts]
    if not rows:
        print(
            f"{DURATIONS} has no times of {', '.join(parts) or 'any part'}: run `make test` or tools/run_parts.py first."
        )
        return 1
    for row in rows[:number]:
        print(f"{row['seconds']:>8.1f} s  {row['part']:<16} {row['test']}")
    print(f"{min(number, len(rows))} of {len(rows)} tests, {sum(row['seconds'] for row in rows):.0f} s in all")
    return 0


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--slowest"]:
        return show_slowest(int(arguments[1]), arguments[2:])
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, PARTS.on_signal)
    RESULTS.mkdir(parents=True, exist_ok=True)
    chosen: dict[str, list[str]] = {"alone": [], "--together": [], "--lab": []}
    together: list[str] = []
    group = "alone"
    for word in arguments:
        if word in chosen:
            group = word
        else:
            chosen[group].append(word)
            together += [word] if group != "alone" else []
    outcomes = [judged(outcome) for outcome in run_alone(chosen["alone"])]
    if chosen["--lab"] and (obstacle := lab_obstacle()):
        outcomes += [judged(outcome) for outcome in without_a_lab(chosen["--lab"], obstacle)]
        together = chosen["--together"]
    outcomes += [judged(outcome) for outcome in run_together(together)]
    flakes = rerun_failed(outcomes)
    write_durations(outcomes)
    show_flakes(flakes)
    print(f"\n{BOLD}{'part':<24} {'passed':>7} {'failed':>7} {'flaky':>6} {'skipped':>8} {'seconds':>8}{PLAIN}")
    for one in outcomes:
        mark = "   FAILED" if one.failed else "   FLAKY" if one.flaky else ""
        print(
            f"{one.part:<24} {one.passed:>7} {one.failed:>7} {one.flaky:>6} {one.skipped:>8} {one.seconds:>8.0f}{mark}"
        )
    passed, failed, skipped = (sum(getattr(one, name) for one in outcomes) for name in ("passed", "failed", "skipped"))
    faults = len({(flake.part, flake.failure.fault) for flake in flakes})
    if faults > FLAKY_LIMIT:
        print(f"\n{BOLD}{faults} flaky tests, more than {FLAKY_LIMIT}: they count as failed.{PLAIN}")
        passed, failed = passed - len(flakes), failed + len(flakes)
    elif flakes:
        print(f"\n{BOLD}{len(flakes)} flaky, among the passed{PLAIN}")
    for flake in flakes:
        print(f"  {flake.test}\n    {flake.failure.reason}")
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped")
    if PARTS.signals:
        print(f"ended by {signal.Signals(PARTS.signals[0]).name}")
        return 128 + PARTS.signals[0]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
