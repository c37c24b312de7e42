# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Repeat a part next to busy processes and print how often each test failed (`make soak`).

    python3 tools/soak.py PART [--times 20] [--load 4]

The output of failed rounds is in .cache/results/soak/PART, and the rates of all tests are in rates.txt there. The exit
status is 1 if a test failed or none ran. A test of tests/flaky.txt that passed 20 times next to at least four busy
processes is reported: its line can be removed. SIGINT and SIGTERM end the current round and the busy processes, and the
rates so far are printed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from run_parts import FLAKY_LIST, PARTS, RESULTS, case_output, listed_flakes, node_id, problems, run

#: The condition for removing a test from tests/flaky.txt: this many runs without a failure, next to this many busy
#: processes.
PROOF_RUNS, PROOF_LOAD = 20, 4
MOST_RUNS, MOST_LOAD = 1000, 64
SHOWN_TESTS, SHOWN_LINES = 10, 40
#: The process ends by itself if this program was killed.
BUSY = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    for _ in range(1_000_000):
        pass
"""


@dataclass
class Rate:
    """How often a test ran and failed, its longest duration, and the output of its first failure."""

    test: str
    runs: int = 0
    failed: int = 0
    longest: float = 0.0
    output: str = ""

    def add(self, failed: bool, seconds: float, output: str) -> None:
        self.runs += 1
        self.failed += failed
        self.longest = max(self.longest, seconds)
        self.output = self.output or output

    def __str__(self) -> str:
        return f"{self.failed / self.runs:>6.1%} {self.failed:>6} {self.runs:>5} {self.longest:>8.1f}  {self.test}"


HEADING = f"{'rate':>6} {'failed':>6} {'runs':>5} {'longest':>8}  test"


@contextlib.contextmanager
def busy_processes(number: int) -> Iterator[None]:
    """Keep processes of normal priority busy. The processes run in separate sessions, so Ctrl-C in a terminal ends the
    part first."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for _number in range(number):
            command = [sys.executable, "-c", BUSY, str(os.getpid())]
            processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True))
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def add_round(part: str, directory: Path, number: int, rates: dict[str, Rate]) -> str:
    """Run the part once, add its tests to the rates, and return a line about the round; empty if a signal arrived
    before it."""
    report, printed = directory / "round.xml", directory / f"round-{number}.txt"
    started = time.monotonic()
    with printed.open("w", encoding="utf-8") as output:
        outcome = run(part, output, report.resolve())
    seconds = time.monotonic() - started
    if PARTS.signals:
        return ""
    failed: dict[str, str] = {}
    taken: dict[str, float] = {}
    for case in ElementTree.parse(report).getroot().iter("testcase") if report.is_file() else ():
        if case.find("skipped") is None:
            test = node_id(case) or case.get("name") or part
            taken[test] = taken.get(test, 0.0) + float(case.get("time", "0"))
            if problems(case):
                failed[test] = "\n".join(filter(None, [failed.get(test), case_output(case)]))
    if (outcome.failed and not failed) or not report.is_file():
        # The part has no test cases, or pytest itself failed.
        taken[part] = seconds
        if outcome.failed:
            failed[part] = f"see {printed}"
    for test, duration in taken.items():
        rates.setdefault(test, Rate(test)).add(test in failed, duration, failed.get(test, ""))
    if not failed:
        printed.unlink()
    passed = len(taken) - len(failed)
    return f"{passed} passed, {len(failed)} failed, {outcome.skipped} skipped, {seconds:.0f} s" + "".join(
        f"\n    {test}" for test in failed
    )


def show(rates: Sequence[Rate], directory: Path) -> None:
    """Print the failed tests with the output of their first failure, and the longest of the others; write all rates to
    a file."""
    ordered = sorted(rates, key=lambda rate: (-rate.failed / rate.runs, -rate.longest))
    table = directory / "rates.txt"
    table.write_text("\n".join([HEADING, *map(str, ordered)]) + "\n", encoding="utf-8")
    failed = [rate for rate in ordered if rate.failed]
    for rate in failed[:SHOWN_TESTS]:
        lines = rate.output.splitlines()
        print(f"\n--- first failure of {rate.test}:", *lines[-SHOWN_LINES:], sep="\n")
    print(f"\n{HEADING}", *ordered[: max(SHOWN_TESTS, len(failed))], f"all: {table}", sep="\n", flush=True)


def show_proofs(rates: dict[str, Rate], load: int) -> None:
    """Print the lines of tests/flaky.txt that can be removed after these rounds."""
    known = listed_flakes(FLAKY_LIST.read_text(encoding="utf-8")) if FLAKY_LIST.is_file() else {}
    for name, entry in known.items():
        runs = [rate for test, rate in rates.items() if test.partition("[")[0] == name]
        if runs and load >= PROOF_LOAD and all(rate.runs >= PROOF_RUNS and not rate.failed for rate in runs):
            print(f"\n{runs[0].runs} runs without a failure: remove this line from {FLAKY_LIST}\n{entry}")


def bounded(most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not 0 <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text} is not between 0 and {most}")
        return int(text)

    return number


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("part")
    parser.add_argument("--times", type=bounded(MOST_RUNS), default=PROOF_RUNS)
    parser.add_argument("--load", type=bounded(MOST_LOAD), default=PROOF_LOAD)
    options = parser.parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, PARTS.on_signal)
    directory = RESULTS / "soak" / options.part
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    rates: dict[str, Rate] = {}
    with busy_processes(options.load):
        for turn in range(1, options.times + 1):
            line = add_round(options.part, directory, turn, rates)
            if PARTS.signals:
                break
            print(f"round {turn} of {options.times}, load {options.load}: {line}", flush=True)
    if not rates:
        print("no test ran")
    else:
        show(list(rates.values()), directory)
        show_proofs(rates, options.load)
    runs, failed = (sum(getattr(rate, name) for rate in rates.values()) for name in ("runs", "failed"))
    print(f"\n{runs - failed} of {runs} runs passed, {failed} failed")
    if PARTS.signals:
        print(f"ended by {signal.Signals(PARTS.signals[0]).name}")
        return 128 + PARTS.signals[0]
    return 1 if failed or not runs else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
