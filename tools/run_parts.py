# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run make targets and close with one line of totals.

    python3 tools/run_parts.py [PART…] [--together PART…] [--lab PART…]

Each PART is a make target. A target that runs pytest leaves its counts in $JUNIT; any other target counts as one check.
Every part runs, whatever the earlier ones did: first those before a flag, one after the other, then the others, two at a
time in the order given; what one of them prints is shown when it has ended. Both flags may come again. The parts after
--lab need the lab of systemd hosts: where `tests/lab/lab.py check` says that there can be none, they are announced loudly
and count as skipped. With CI=true a part of which nothing ran is a failure: a machine that is meant to run everything must
not pass by skipping.

SIGINT and SIGTERM end it in order: each part that runs is interrupted, so that pytest puts away what it has started, no other one
begins, and the totals say that it was. A second signal ends the parts at once.
"""

from __future__ import annotations

import contextlib
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
from typing import IO
from xml.etree import ElementTree

RESULTS = Path(".cache/results")
BOLD, PLAIN = ("\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "")


@dataclass
class Outcome:
    """What one part did; seconds is wall time."""

    part: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    reason: str = ""


def counts_of(report: Path) -> tuple[int, int, int, str]:
    """Return (passed, failed, skipped, reason of the first skip) of a JUnit file."""
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    failed = sum(1 for case in cases if case.find("failure") is not None or case.find("error") is not None)
    skips = [case.find("skipped") for case in cases if case.find("skipped") is not None]
    reason = next((skip.get("message") or "" for skip in skips if skip is not None), "")
    return len(cases) - failed - len(skips), failed, len(skips), reason


class Parts:
    """The parts that run, and the signals that this process got."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self.signals: list[int] = []

    def call(self, command: Sequence[str], environment: dict[str, str], output: IO[str] | None) -> int | None:
        """Return the exit status of a command, None where a signal came before it."""
        with self._lock:
            if self.signals:
                return None
            process = subprocess.Popen(
                command,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT if output else None,
                # A group of its own, so that make and all below it get what is passed on, each once.
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


def run(part: str, output: IO[str] | None = None) -> Outcome:
    """Make one part and count what it did; what it prints goes to `output`, or is shown as it comes."""
    report = (RESULTS / f"{part}.xml").resolve()
    report.unlink(missing_ok=True)
    command = ["make", "--no-print-directory", part]
    status = PARTS.call(command, {**os.environ, "JUNIT": str(report)}, output)
    if status is None:
        return Outcome(part, failed=1, reason="not begun")
    if not report.is_file():
        return Outcome(part, passed=int(status == 0), failed=int(status != 0))
    passed, failed, skipped, reason = counts_of(report)
    if status and not failed:
        failed = 1  # pytest itself failed: no tests collected, interrupted, a usage error
    return Outcome(part, passed, failed, skipped, reason=reason)


def lab_obstacle() -> str:
    """Return why no lab can be built here; empty when one can."""
    check = subprocess.run(
        [sys.executable, "tests/lab/lab.py", "check"], stderr=subprocess.PIPE, text=True, check=False
    )
    return check.stderr.strip() or f"lab.py check: exit status {check.returncode}" if check.returncode else ""


def judged(outcome: Outcome) -> Outcome:
    """Announce a part of which nothing ran; in CI that is a failure."""
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
    """Make one part; return what it did and how long it took."""
    started = time.monotonic()
    outcome = run(part, output)
    outcome.seconds = time.monotonic() - started
    return outcome


def run_alone(parts: Sequence[str]) -> Iterator[Outcome]:
    for part in parts:
        announce(part)
        yield timed(part)


def run_together(parts: Sequence[str]) -> Iterator[Outcome]:
    """Make the parts two at a time, for two cores; yield and show each when it has ended."""
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


def main(arguments: list[str]) -> int:
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
    print(f"\n{BOLD}{'part':<24} {'passed':>7} {'failed':>7} {'skipped':>8} {'seconds':>8}{PLAIN}")
    for one in outcomes:
        mark = "   FAILED" if one.failed else ""
        print(f"{one.part:<24} {one.passed:>7} {one.failed:>7} {one.skipped:>8} {one.seconds:>8.0f}{mark}")
    passed, failed, skipped = (sum(getattr(one, name) for one in outcomes) for name in ("passed", "failed", "skipped"))
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped")
    if PARTS.signals:
        print(f"ended by {signal.Signals(PARTS.signals[0]).name}")
        return 128 + PARTS.signals[0]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
