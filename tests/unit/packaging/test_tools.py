# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the parts of `make` other than the tests: the reference is up to date, and the totals of `make test` are
correct."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ansible
import pytest
from support.programs import tool

CHECKOUT = Path(__file__).resolve().parents[3]

FAKE_MAKEFILE = """\
good bad:
\t@test $@ = good
counted:
\t@printf '<a><testcase/><testcase/><testcase><skipped message="why"/></testcase></a>' > $(JUNIT)
broken:
\t@printf '<a><testcase/><testcase><error/></testcase></a>' > $(JUNIT); false
nothing-collected:
\t@printf '<a/>' > $(JUNIT); false
left right:
\t@echo $@ begins; touch $@.here; for try in $$(seq 300); do [ -e left.here -a -e right.here ] && break; sleep 0.1; done
\t@[ -e left.here -a -e right.here ] && echo $@ ends
first second:
\t@trap 'touch $@.interrupted; exit 3' INT; touch $@.here; for try in $$(seq 300); do sleep 0.1; done
only-skipped:
\t@printf '<a><testcase><skipped message="no host"/></testcase></a>' > $(JUNIT)
"""


@pytest.mark.skipif(not ansible.__version__.startswith("2.19"), reason="written with ansible-doc 2.19")
def test_reference_is_up_to_date() -> None:
    check = subprocess.run(
        [sys.executable, "tools/reference.py", "--check"], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    assert check.returncode == 0, check.stdout + check.stderr


Parts = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    """Run tools/run_parts.py with a small Makefile and a lab that cannot be built; return (status, output)."""
    (tmp_path / "Makefile").write_text(FAKE_MAKEFILE)
    (tmp_path / "tests/lab").mkdir(parents=True)
    (tmp_path / "tests/lab/lab.py").write_text("import sys; sys.exit('needs root')")

    def run(*arguments: str, ci: bool = False) -> tuple[int, list[str]]:
        environment = {key: value for key, value in os.environ.items() if key not in ("CI", "MAKEFLAGS", "MAKELEVEL")}
        done = subprocess.run(
            [sys.executable, str(CHECKOUT / "tools/run_parts.py"), *arguments],
            cwd=tmp_path,
            env={**environment, **({"CI": "true"} if ci else {})},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout.splitlines()

    return run


@pytest.mark.parametrize(
    "names, ci, status, last",
    [
        (["good", "counted"], True, 0, "3 passed, 0 failed, 1 skipped"),
        (["bad", "good"], False, 1, "1 passed, 1 failed, 0 skipped"),
        (["broken", "counted"], False, 1, "3 passed, 1 failed, 1 skipped"),
        (["nothing-collected"], False, 1, "0 passed, 1 failed, 0 skipped"),
        (["only-skipped", "good"], False, 0, "1 passed, 0 failed, 1 skipped"),
        (["only-skipped", "good"], True, 1, "1 passed, 1 failed, 0 skipped"),
        (["good", "--lab", "counted"], False, 0, "1 passed, 0 failed, 1 skipped"),
        (["good", "--lab", "counted"], True, 1, "1 passed, 1 failed, 0 skipped"),
        (["good", "--together", "counted", "bad", "broken"], True, 1, "4 passed, 2 failed, 1 skipped"),
        (["--lab", "bad", "--together", "counted", "--lab", "good"], False, 0, "2 passed, 0 failed, 3 skipped"),
    ],
)
def test_totals(parts: Parts, names: list[str], ci: bool, status: int, last: str) -> None:
    code, output = parts(*names, ci=ci)
    assert (code, output[-1]) == (status, last)


def test_parts_that_run_together_print_one_after_the_other(parts: Parts) -> None:
    """Each part waits until the other has started, so both run at the same time; the lines of each part stay
    together."""
    _status, output = parts("--together", "left", "right", "good")
    for name in ("left", "right"):
        place = output.index(f"=== make {name}")
        assert output[place + 1 : place + 3] == [f"{name} begins", f"{name} ends"]
    assert output[-1] == "3 passed, 0 failed, 0 skipped"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ("names", "running", "left"),
    [
        (["first", "second"], {"first"}, "second"),
        (["--together", "first", "second", "good"], {"first", "second"}, "good"),
    ],
)
def test_a_signal_reaches_the_parts_that_run_and_no_other_one_begins(
    parts: Parts, tmp_path: Path, number: signal.Signals, names: list[str], running: set[str], left: str
) -> None:
    command = [sys.executable, str(CHECKOUT / "tools/run_parts.py"), *names]
    environment = {key: value for key, value in os.environ.items() if key not in ("CI", "MAKEFLAGS", "MAKELEVEL")}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while {path.stem for path in tmp_path.glob("*.here")} != running:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(number)
        output = process.communicate(timeout=25)[0].splitlines()
    assert process.returncode == 128 + number
    assert {path.stem for path in tmp_path.glob("*.interrupted")} == running
    assert {path.stem for path in tmp_path.glob("*.here")} == running, "another part was begun"
    assert output[-1] == f"ended by {number.name}"
    assert any(line.startswith(left) and line.endswith("FAILED") for line in output), output


def test_lab_that_cannot_be_built_reports_the_reason(parts: Parts) -> None:
    _status, output = parts("--lab", "counted")
    assert any("NOTHING WAS RUN" in line and "needs root" in line for line in output)


def test_compiled_archives_match_their_content(tmp_path: Path) -> None:
    """A changed archive is detected, and cached code reports its current path."""
    keeper = CHECKOUT / "tests/lab/python"
    text = f"import sys\nprint(sys._getframe().f_code.co_filename, {tmp_path.name!r}, "
    for name, value in (("one", 1), ("two", 1), ("two", 2)):
        archive = tmp_path / f"{name}.zip"
        with zipfile.ZipFile(archive, "w") as zipped:
            zipped.writestr("result.py", f"{text}{value})")
        command = [sys.executable, "-c", "import zipimport, result; print(zipimport._compile_source.__module__)"]
        environment = {**os.environ, "PYTHONPATH": f"{keeper}:{archive}"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout == f"{archive}/result.py {tmp_path.name} {value}\nsitecustomize\n"


@pytest.mark.parametrize("mode", [None, 0o755, 0o775, 0o757, "file", "link"])
def test_compiled_code_is_not_kept_where_other_users_can_write(tmp_path: Path, mode: int | str | None) -> None:
    keeper, kept = CHECKOUT / "tests/lab/python/sitecustomize.py", tmp_path / "kept"
    if mode == "file":
        kept.touch()
    elif mode == "link":
        kept.symlink_to(tmp_path)
    elif mode is not None:
        kept.mkdir()
        kept.chmod(int(mode))
    source = keeper.read_text().replace('_OWN = f"/var/tmp/natsops-compiled-{os.getuid()}"', f'_OWN = "{kept}"')
    assert str(kept) in source
    (tmp_path / "sitecustomize.py").write_text(source)
    command = [sys.executable, "-c", "import zipimport; print(zipimport._compile_source.__module__)"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ("sitecustomize" if mode in (None, 0o755) else "zipimport")


def test_controller_cache_is_keyed_by_complete_source(tmp_path: Path) -> None:
    """A second run returns the result of the first; a changed expression, or different rules for backslashes, yields a
    new result."""
    (tmp_path / "ansible_collections/natsops/jetstream").mkdir(parents=True)
    (tmp_path / "ansible_collections/natsops/jetstream/MANIFEST.json").touch()
    play = tmp_path / "play.json"
    environment = {
        **os.environ,
        "PYTHONPATH": str(CHECKOUT / "tests/lab/python"),
        "ANSIBLE_COLLECTIONS_PATH": str(tmp_path),
    }

    def run(expression: str, condition: str) -> str:
        task = {"ansible.builtin.assert": {"that": [condition], "success_msg": f"<{{{{ {expression} }}}}>"}}
        ping: dict[str, Any] = {"ansible.builtin.ping": {}}
        again = {"ansible.builtin.debug": {"msg": f"<{{{{ {condition} }}}}>"}}
        play.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": [task, again, ping]}]))
        command = [str(Path(sys.executable).with_name("ansible-playbook")), str(play)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return " ".join(line.split('"msg": ')[1] for line in done.stdout.splitlines() if '"msg": ' in line)

    backslash = r"'a\\b' | length == 3"
    first = run("1 + 1", backslash)
    assert first.split()[0] == '"<2>"'
    made = list((tmp_path / ".kept").glob("*/modules/*"))
    times = [path.stat().st_mtime_ns for path in made]
    assert run("1 + 1", backslash) == first
    assert run("1 + 2", backslash).split()[0] == '"<3>"'
    # The other runs used the module that the first run built.
    assert list((tmp_path / ".kept").glob("*/modules/*")) == made
    assert "ping" in made[0].name and [path.stat().st_mtime_ns for path in made] == times


RESULT_MODULE = """
import os, sys
from ansible.module_utils.basic import AnsibleModule
forked = "nats" in sys.modules
module = AnsibleModule({"end": {"type": "str"}})
if module.params["end"] == "killed":
    os.kill(os.getpid(), 9)
if module.params["end"] == "raises":
    raise ValueError("the cause")
module.exit_json(result=[forked, os.getcwd(), os.environ["NAME"], sys.stdin.read(), os.getpid() == os.getsid(0)])
"""


def test_a_module_that_is_forked_behaves_like_one_that_is_started(tmp_path: Path) -> None:
    """A module with its own environment variables is started instead, because it must not find those of the
    controller."""
    (tmp_path / "library").mkdir()
    (tmp_path / "library/result.py").write_text(RESULT_MODULE)
    plain = {"result": {}, "register": "plain"}
    ends = [{"result": {"end": end}, "register": end, "ignore_errors": True} for end in ("killed", "raises")]
    started = {"result": {}, "register": "started", "environment": {"NAME": "task"}}
    results = "{{ [plain.result, started.result, killed.rc, raises.msg] }}"
    play = tmp_path / "play.json"
    tasks = [plain, *ends, started, {"ansible.builtin.debug": {"msg": results}}]
    play.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    environment = {
        **os.environ,
        "PYTHONPATH": str(CHECKOUT / "tests/lab/python"),
        "NAME": "a\u00e9=b",
        "ANSIBLE_PIPELINING": "true",
    }
    command = [str(Path(sys.executable).with_name("ansible-playbook")), str(play)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    shown = re.search(r'"msg": (\[.*?^    \])', done.stdout, re.DOTALL | re.MULTILINE)
    assert shown
    forked, alone, killed, raised = json.loads(shown[1])
    assert forked == [True, str(tmp_path), "a\u00e9=b", "", True]
    assert alone[:3] == [False, str(tmp_path), "task"]
    assert killed == 255
    assert "the cause" in raised


def test_documentation_markup_becomes_markdown() -> None:
    reference = tool("reference")
    assert reference.text(["See O(port) and C(a\\)b).", "B(Not) L(here,https://example.com)."]) == (
        "See `port` and `a)b`. **Not** [here](https://example.com)."
    )


DOCKERFILE = """ENV NATS_SERVER {version}
    aarch64) natsArch='arm64'; sha256='{arm64}' ;;
    x86_64) natsArch='amd64'; sha256='{amd64}' ;;
    s390x) natsArch='s390x'; sha256='{amd64}' ;;
"""


def test_checksums_of_releases_are_read_from_the_history(tmp_path: Path) -> None:
    """Old and unfinished releases do not count, and two checksums of one release are refused."""
    read_sums = tool("release_sums").read_sums

    def commit(version: str, first: str, folder: str = "2.x/alpine3.22") -> None:
        file = tmp_path / folder / "Dockerfile"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(DOCKERFILE.format(version=version, amd64=first * 64, arm64="f" * 64))
        for arguments in (["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", version]):
            subprocess.run(["git", "-C", tmp_path, *arguments], check=True)

    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for version, first in (("2.8.4", "8"), ("2.10.27", "a"), ("2.11.0-RC.1", "b"), ("2.9.10", "9")):
        commit(version, first)
    assert read_sums(str(tmp_path)) == {
        "2.9.10": {"amd64": "9" * 64, "arm64": "f" * 64},
        "2.10.27": {"amd64": "a" * 64, "arm64": "f" * 64},
    }
    commit("2.10.27", "0", "2.10.x/alpine3.21")
    with pytest.raises(ValueError, match=r"\(2, 10, 27\), amd64: the history has two checksums"):
        read_sums(str(tmp_path))
