# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""run_parts.py reruns, reports and counts flaky tests; soak.py repeats a part while other processes keep the machine
busy."""

from __future__ import annotations

import ast
import datetime
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import ansible
import pytest
import run_parts
import soak

pytestmark = pytest.mark.skipif(not ansible.__version__.startswith("2.19"), reason="the same with each ansible-core")

CHECKOUT = Path(__file__).resolve().parents[3]
ENVIRONMENT = {
    key: value
    for key, value in os.environ.items()
    if key not in ("CI", "MAKEFLAGS", "MAKELEVEL", "ARGS", "TESTS", "PART") and not key.startswith("PYTEST_")
}
#: The same as in the checkout's Makefile, which test_parts_run_the_named_tests_alone checks.
MAKEFILE = f"""\
test-small test-other: PYTEST_OPTIONS = -n 2
test-small test-other:
\t@{sys.executable} -m pytest $(PYTEST_OPTIONS) --junit-xml="$(JUNIT)" $(ARGS) $(or $(TESTS),tests/$@)
lint:
\t@echo lint >>runs; false
"""
SETTINGS = """\
[pytest]
junit_logging = all
junit_log_passing_tests = false
"""
#: The first lines of each generated test file.
HELPERS = '''\
import os
import time
from pathlib import Path
import pytest

def runs(name):
    """Note one more run of this test and return their number."""
    with open("runs", "a") as lines:
        print(name, os.environ.get("PYTEST_XDIST_WORKER", "alone"), file=lines)
    return sum(line.split()[0] == name for line in open("runs"))

def fail_first(name):
    number = runs(name)
    print(f"{name} printed in run {number}")
    assert number > 1, f"{name} failed in run {number}"

'''


class Tree:
    """A small checkout with parts that run pytest."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "Makefile").write_text(MAKEFILE)
        (root / "pytest.ini").write_text(SETTINGS)
        (root / "tests").mkdir()
        (root / "tests/conftest.py").symlink_to(CHECKOUT / "tests/conftest.py")

    def write(self, part: str, text: str, name: str = "test_it") -> None:
        path = self.root / f"tests/{part}/{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(HELPERS + text)

    def tool(self, name: str, *arguments: str, **variables: str) -> tuple[int, list[str]]:
        done = subprocess.run(
            [sys.executable, str(CHECKOUT / f"tools/{name}.py"), *arguments],
            cwd=self.root,
            env={**ENVIRONMENT, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout.splitlines()

    def run(self, *parts: str, **variables: str) -> tuple[int, list[str]]:
        return self.tool("run_parts", *parts, **variables)

    @property
    def runs(self) -> list[str]:
        """Return the tests that ran, in order, with the pytest-xdist worker of each."""
        return (self.root / "runs").read_text().splitlines()

    def suite(self, part: str) -> ElementTree.Element:
        suite = ElementTree.parse(self.root / f".cache/results/{part}.xml").getroot().find("testsuite")
        assert suite is not None
        return suite


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_three_flaky_tests_leave_the_run_green(tree: Tree) -> None:
    """The test names contain every character that is special to make or a shell; one test fails in its teardown."""
    tree.write(
        "test-small",
        """
@pytest.mark.parametrize("text", ["a $(b) 'c' \\"d\\" #e | f::g[h] \\\\ ;%"])
def test_hostile(text):
    fail_first("hostile")

class TestGroup:
    def test_in_class(self):
        fail_first("in_class")

@pytest.fixture
def closing():
    yield
    assert runs("teardown") > 2, "teardown failed"

def test_teardown(closing):
    fail_first("teardown")

def test_good():
    runs("good")
""",
    )
    tree.write("test-other", "def test_last():\n    runs('last')\n")
    status, output = tree.run("test-small", "--together", "test-other")
    assert (status, output[-1]) == (0, "5 passed, 0 failed, 0 skipped"), output
    assert any("3 flaky, among the passed" in line for line in output)
    assert [line.split()[1:5] for line in output if line.startswith("test-small ")] == [["4", "0", "3", "0"]]

    # Failed tests ran once more, after everything else, without workers; passed tests did not.
    first, again = tree.runs[:6], tree.runs[6:]
    assert sorted(line.split()[0] for line in first) == ["good", "hostile", "in_class", "last", "teardown", "teardown"]
    assert "alone" not in {line.split()[1] for line in first}
    assert sorted(again) == ["hostile alone", "in_class alone", "teardown alone", "teardown alone"]

    text = "\n".join(output)
    for name in ("hostile", "in_class", "teardown"):
        reported = text[text.index("!!! flaky: ") :]
        assert f"{name} failed in run 1" in reported and f"{name} printed in run 1" in reported
        assert f"{name} printed in run {3 if name == 'teardown' else 2}" in reported
    assert "teardown failed" in text[text.index("!!! flaky: ") :]
    today = datetime.date.today()
    closing = "\n".join(output[-8:])
    for name in ("hostile", "in_class", "teardown"):
        assert f"    tests/test-small/test_it.py:15: AssertionError: {name} failed in run 1" in closing
    for name in ("test_hostile", "TestGroup::test_in_class", "test_teardown"):
        assert f"{today} | tests/test-small/test_it.py::{name} | CAUSE" in output

    suite = tree.suite("test-small")
    assert [suite.get(key) for key in ("tests", "failures", "errors", "flakes")] == ["4", "0", "0", "3"]
    marks = {
        case.get("name", "")[:12]: [child.tag for child in case if "system" not in child.tag]
        for case in suite.iter("testcase")
    }
    assert marks == {
        "test_hostile": ["flakyFailure"],
        "test_in_clas": ["flakyFailure"],
        "test_teardow": ["flakyFailure", "flakyError"],
        "test_good": [],
    }


def test_four_flaky_tests_fail_the_run(tree: Tree) -> None:
    tree.write(
        "test-small",
        "@pytest.mark.parametrize('number', range(4))\ndef test_it(number):\n    fail_first(f'n{number}')\n",
    )
    status, output = tree.run("test-small")
    assert (status, output[-1]) == (1, "0 passed, 4 failed, 0 skipped"), output
    assert any("4 flaky tests, more than 3: they count as failed" in line for line in output)


def test_tests_of_a_setup_that_failed_once_count_once(tree: Tree) -> None:
    tree.write(
        "test-small",
        """
@pytest.fixture(scope="module")
def cluster():
    assert "PYTEST_XDIST_WORKER" not in os.environ, "the cluster has not started"

@pytest.mark.parametrize("number", range(4))
def test_shared(cluster, number):
    pass

@pytest.mark.parametrize("number", range(2))
def test_own(number):
    fail_first(f"n{number}")
""",
    )
    status, output = tree.run("test-small")
    assert (status, output[-1]) == (0, "6 passed, 0 failed, 0 skipped"), output
    assert any("6 flaky, among the passed" in line for line in output), output
    listed = [line for line in output if line.startswith("  tests/")]
    assert sorted(listed) == sorted(
        [f"  tests/test-small/test_it.py::test_shared[{number}]" for number in range(4)]
        + [f"  tests/test-small/test_it.py::test_own[{number}]" for number in range(2)]
    )


def test_failure_fails_the_run_next_to_a_flaky_test(tree: Tree) -> None:
    """A test that fails again, or is skipped on its rerun, counts as failed; a part without tests is not rerun."""
    tree.write(
        "test-small",
        """
def test_flaky():
    fail_first("flaky")

def test_bad():
    runs("bad")
    assert False

def test_skipped():
    if runs("skipped") > 1:
        pytest.skip("no host")
    assert False
""",
    )
    status, output = tree.run("test-small", "lint")
    assert (status, output[-1]) == (1, "1 passed, 3 failed, 0 skipped"), output
    assert any("1 flaky, among the passed" in line for line in output)
    assert sorted(line.split()[0] for line in tree.runs) == ["bad"] * 2 + ["flaky"] * 2 + ["lint"] + ["skipped"] * 2


@pytest.mark.parametrize(
    ("text", "arguments", "last"),
    [
        (
            "def test_flaky():\n    fail_first('one')\ndef test_left():\n    pass\n",
            "-x -n 0",
            "0 passed, 1 failed, 0 skipped",
        ),
        ("runs('one')\nimport no_such_module\n", "-n 0", "0 passed, 1 failed, 0 skipped"),
        ("def test_crash():\n    runs('one')\n    os._exit(3)\n", "-n 0", "0 passed, 1 failed, 0 skipped"),
    ],
    ids=["stopped-early", "not-collected", "crashed"],
)
def test_incomplete_run_is_not_rerun(tree: Tree, text: str, arguments: str, last: str) -> None:
    tree.write("test-small", text)
    status, output = tree.run("test-small", ARGS=arguments)
    assert (status, output[-1]) == (1, last), output
    assert len(tree.runs) == 1


def test_many_failures_are_not_rerun(tree: Tree) -> None:
    tree.write(
        "test-small",
        "@pytest.mark.parametrize('number', range(21))\ndef test_it(number):\n    fail_first(f'n{number}')\n",
    )
    status, output = tree.run("test-small", ARGS="-n 0")
    assert (status, output[-1], len(tree.runs)) == (1, "0 passed, 21 failed, 0 skipped", 21)
    assert any("21 tests failed, more than 20: none is rerun" in line for line in output)


def test_signal_ends_the_run_before_a_rerun(tree: Tree) -> None:
    tree.write(
        "test-small",
        "def test_it():\n    runs('one')\n    Path('here').touch()\n    while True:\n        time.sleep(0.05)\n",
    )
    command = [sys.executable, str(CHECKOUT / "tools/run_parts.py"), "test-small"]
    with subprocess.Popen(
        command, cwd=tree.root, env={**ENVIRONMENT, "ARGS": "-n 0"}, stdout=subprocess.PIPE, text=True
    ) as process:
        wait_for((tree.root / "here").exists, process)
        process.terminate()
        process.communicate(timeout=60)
    assert (process.returncode, tree.runs) == (128 + signal.SIGTERM, ["one alone"])


def test_listed_flaky_test_is_printed_with_its_cause(tree: Tree) -> None:
    tree.write("test-small", "def test_it():\n    fail_first('one')\n")
    (tree.root / "tests/flaky.txt").write_text(
        "# comment\n\n2026-11-20 | tests/test-small/test_it.py::test_it | the leader is read too early\n"
    )
    status, output = tree.run("test-small", ARGS="-n 0")
    assert status == 0
    assert any(line.endswith("::test_it | the leader is read too early") for line in output)
    assert not any("CAUSE" in line for line in output)


def test_list_of_flaky_tests_names_tests_that_exist() -> None:
    for entry in run_parts.listed_flakes((CHECKOUT / "tests/flaky.txt").read_text()).values():
        path, *names = entry.test.split("::")
        module = ast.parse((CHECKOUT / path).read_text())
        assert names[-1] in {node.name for node in ast.walk(module) if isinstance(node, ast.FunctionDef)}, entry
        assert entry.date <= datetime.date.today()


@pytest.mark.parametrize(
    "line", ["tests/a.py::b", "2026-11-20 | tests/a.py::b | ", "yesterday | tests/a.py::b | cause"]
)
def test_list_of_flaky_tests_has_one_form(line: str) -> None:
    with pytest.raises(ValueError, match=r"DATE \| TEST \| CAUSE|isoformat"):
        run_parts.listed_flakes(line)


def test_durations_of_all_parts_are_kept(tree: Tree) -> None:
    tree.write("test-small", "def test_long():\n    time.sleep(0.3)\ndef test_short():\n    pass\n")
    tree.write("test-other", "def test_old():\n    pass\n")
    tree.run("test-small", "test-other", ARGS="-n 0")
    tree.write("test-other", "def test_new():\n    time.sleep(0.6)\n")
    tree.run("test-other", "lint", ARGS="-n 0")
    rows = json.loads((tree.root / ".cache/results/durations.json").read_text())
    assert {(row["part"], row["test"].partition("::")[2]) for row in rows} == {
        ("test-other", "test_new"),
        ("test-small", "test_long"),
        ("test-small", "test_short"),
        ("lint", ""),
    }
    status, output = tree.run("--slowest", "2")
    assert status == 0
    assert [line.rpartition("::")[2] for line in output[:2]] == ["test_new", "test_long"]
    assert output[2].startswith("2 of 4 tests")
    assert "test_long" in tree.run("--slowest", "1", "test-small")[1][0]
    assert tree.run("--slowest", "1", "test-none")[0] == 1


def test_parts_run_the_named_tests_alone() -> None:
    """Each target that runs pytest takes TESTS instead of its folder, and PYTEST_OPTIONS instead of its workers."""
    names = [
        "test-unit",
        "test-unit-2.16",
        "test-modules",
        "test-playbooks",
        "test-integration",
        "test-insights",
        "test-eda",
        "test-lab",
    ]
    command = [
        "make",
        "-n",
        "--no-print-directory",
        *names,
        "TESTS=@names",
        "PYTEST_OPTIONS=--alone",
        "JUNIT=/a b/x.xml",
    ]
    printed = subprocess.run(command, cwd=CHECKOUT, env=ENVIRONMENT, capture_output=True, text=True, check=True).stdout
    lines = [line for line in printed.splitlines() if " -m pytest " in line]
    assert len(lines) == len(names), printed
    for line in lines:
        assert (
            line.endswith(" @names")
            and " --alone " in line
            and '--junit-xml="/a b/x.xml"' in line
            and " -n " not in line
        )
        assert "tests/" not in line.partition(" -m pytest ")[2]


def wait_for(reached: Callable[[], object], process: subprocess.Popen[str] | None = None) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline and (process is None or process.poll() is None)
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False


def busy_processes(pid: int) -> list[int]:
    children = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return [child for child in children if b"getppid" in Path(f"/proc/{child}/cmdline").read_bytes()]


def test_soak_prints_the_failure_rate_of_each_test(tree: Tree) -> None:
    tree.write(
        "test-small",
        """
def test_every_second():
    number = runs("second")
    assert number % 2, f"failed in run {number}"

def test_good():
    runs("good")

def test_skipped():
    pytest.skip("no host")
""",
    )
    status, output = tree.tool("soak", "test-small", "--times", "4", "--load", "1", ARGS="-n 0")
    assert (status, output[-1]) == (1, "6 of 8 runs passed, 2 failed"), output
    rates = [line.split() for line in output if "::" in line and "%" in line]
    assert [(row[0], row[1], row[2], row[4].partition("::")[2]) for row in rates] == [
        ("50.0%", "2", "4", "test_every_second"),
        ("0.0%", "0", "4", "test_good"),
    ]
    assert any("failed in run 2" in line for line in output)
    assert not any("failed in run 4" in line for line in output)
    assert sorted(path.name for path in (tree.root / ".cache/results/soak/test-small").glob("round-*")) == [
        "round-2.txt",
        "round-4.txt",
    ]
    assert "failed in run 4" in (tree.root / ".cache/results/soak/test-small/round-4.txt").read_text()


def test_soak_reports_which_line_can_be_removed(tree: Tree) -> None:
    """A line can be removed after twenty runs per parameter without a failure, while four other processes are busy."""
    tree.write("test-small", "")
    names = ["test_stable[0]", "test_stable[1]", "test_flaky[0]", "test_flaky[1]"]
    cases = "".join(
        f'<testcase classname="tests.test-small.test_it" name="{name}" time="1"><!--{name}--></testcase>'
        for name in names
    )
    (tree.root / "cases.xml").write_text(f"<a>{cases}</a>")
    # The last of the four tests fails in its first run.
    first = "[ -e done ] || sed -i 's,<!--test_flaky.1.-->,<failure/>,' $(JUNIT); [ -e done ] || { touch done; false; }"
    (tree.root / "Makefile").write_text(f"test-small:\n\t@cp cases.xml $(JUNIT); {first}\n")
    lines = [f"2026-11-20 | tests/test-small/test_it.py::{name} | cause" for name in ("test_stable", "test_flaky")]
    (tree.root / "tests/flaky.txt").write_text("\n".join(lines))
    status, output = tree.tool("soak", "test-small", "--times", "20", "--load", "4")
    assert (status, output[-1]) == (1, "79 of 80 runs passed, 1 failed")
    assert lines[0] in output and lines[1] not in output
    status, output = tree.tool("soak", "test-small", "--times", "20", "--load", "4")
    assert status == 0 and set(lines) < set(output)
    for times, load in (("19", "4"), ("20", "3")):
        status, output = tree.tool("soak", "test-small", "--times", times, "--load", load)
        assert status == 0 and not set(lines) & set(output)


def test_soak_counts_a_part_without_tests_and_a_pytest_that_fails(tree: Tree) -> None:
    status, output = tree.tool("soak", "lint", "--times", "2", "--load", "0")
    assert (status, output[-1]) == (1, "0 of 2 runs passed, 2 failed")
    tree.write("test-small", "def test_it():\n    os._exit(3)\n")
    status, output = tree.tool("soak", "test-small", "--times", "1", "--load", "0", ARGS="-n 0")
    assert (status, output[-1]) == (1, "0 of 1 runs passed, 1 failed")
    tree.write("test-small", "def test_it():\n    pytest.skip('no host')\n")
    status, output = tree.tool("soak", "test-small", "--times", "1", "--load", "0", ARGS="-n 0")
    assert (status, output[-1]) == (1, "0 of 0 runs passed, 0 failed")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_soak_leaves_no_busy_process(tree: Tree, number: signal.Signals) -> None:
    tree.write(
        "test-small",
        """
def test_it():
    Path("here").write_text(str(os.getpid()))
    while not Path("go").exists():
        time.sleep(0.02)
""",
    )
    command = [sys.executable, str(CHECKOUT / "tools/soak.py"), "test-small", "--times", "3", "--load", "2"]
    with subprocess.Popen(
        command, cwd=tree.root, env={**ENVIRONMENT, "ARGS": "-n 0"}, stdout=subprocess.PIPE, text=True
    ) as process:
        here = tree.root / "here"
        wait_for(lambda: here.exists() and here.read_text(), process)
        busy = busy_processes(process.pid)
        assert len(busy) == 2 and all(map(is_running, busy))
        assert {os.getpriority(os.PRIO_PROCESS, pid) for pid in busy} == {os.getpriority(os.PRIO_PROCESS, 0)}
        process.send_signal(number)
        if number == signal.SIGKILL:
            (tree.root / "go").touch()
        output = process.communicate(timeout=60)[0].splitlines()
    wait_for(lambda: not any(map(is_running, [*busy, int(here.read_text())])))
    if number != signal.SIGKILL:
        assert (process.returncode, output[-1]) == (128 + number, f"ended by {number.name}")
        assert not any(line.startswith("round") for line in output)


@pytest.mark.parametrize("arguments", [["--load", "65"], ["--times", "1001"], ["--load", "-1"]])
def test_soak_bounds_its_load(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        soak.main(["test-small", *arguments])
    assert "is not between 0 and" in capsys.readouterr().err
