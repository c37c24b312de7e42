# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A waiting gate prints the missing conditions every ten seconds, and a failing one prints them on one screen.

The output is tested at a terminal, in a log, and as events of a job, with each installed ansible-core and with every
callback.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ansible_runner
import pytest
import yaml
from support.clean_output import clean
from support.nats_processes import ROOT, SYS_PASSWORD, SYS_USER, NatsProcesses, collections_path

#: This limit in seconds is enough for a wait of 62 s.
LINE = re.compile(r"^[1-6]\d of 62 s: 2 (?:of \d+ )?problems left: n9 does not answer", re.MULTILINE)
#: The number of lines of a terminal.
SCREEN = 25
#: The folders with the commands of ansible-core: of the release under test, and of the other releases that `make` has
#: installed, including the oldest.
CORES = list(dict.fromkeys([Path(sys.executable).parent, *sorted(ROOT.glob(".cache/venv-2.*/bin"))]))


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Return the options of a gate that waits for a server that does not start."""
    cluster = NatsProcesses("2.15.1", tmp_path_factory.mktemp("waiting"), ["n1", "n2", "n3"])
    cluster.start()
    try:
        yield {
            "servers": cluster.urls,
            "user": SYS_USER,
            "password": SYS_PASSWORD,
            "expected_servers": ["n1", "n2", "n3", "n9"],
            "wait_timeout": 62,
            # A single sample also waits this long for n9.
            "timeout": 1,
        }
    finally:
        cluster.kill()


def play(*tasks: dict[str, Any]) -> list[dict[str, Any]]:
    # The modules run with the Python under test, independent of the ansible-core.
    variables = {"ansible_python_interpreter": sys.executable}
    return [{"hosts": "localhost", "gather_facts": False, "vars": variables, "tasks": list(tasks)}]


def waiting(gate: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the play that waits and prints the version of ansible-core."""
    return play(
        {"name": "Show the version of Ansible", "ansible.builtin.debug": {"var": "ansible_version.full"}},
        {"name": "Wait", "natsops.jetstream.nats_cluster_health": gate},
    )


def read_version(core: Path) -> str:
    """Return the version of the ansible-core with its commands in this folder."""
    ask = "import ansible.release; print(ansible.release.__version__)"
    return subprocess.check_output([str(core / "python"), "-c", ask], text=True).strip()


def environ(core: Path, **more: str) -> dict[str, str]:
    return {
        **os.environ,
        "PATH": f"{core}{os.pathsep}{os.environ['PATH']}",
        "ANSIBLE_COLLECTIONS_PATH": collections_path(),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_INVENTORY_UNPARSED_WARNING": "false",
        **more,
    }


def in_a_log(core: Path, folder: Path, gate: dict[str, Any]) -> tuple[int, str]:
    """Return the exit status and everything that ansible-playbook printed."""
    folder.mkdir()
    (folder / "play.yml").write_text(json.dumps(waiting(gate)))
    command = [str(core / "ansible-playbook"), str(folder / "play.yml")]
    done = subprocess.run(
        command,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environ(core),
        timeout=240,
    )
    return done.returncode, clean(done.stdout)


def as_a_job(core: Path, folder: Path, gate: dict[str, Any]) -> tuple[str, list[tuple[int, str]]]:
    """Run the play as a job, as AWX does; return the job's status, and each line that its events contain."""
    folder.mkdir()
    lines: list[tuple[int, str]] = []

    def note(event: dict[str, Any]) -> bool:
        lines.extend((event["counter"], line) for line in event.get("stdout", "").splitlines())
        return True

    job = ansible_runner.interface.run(
        private_data_dir=str(folder),
        playbook=waiting(gate),
        envvars=environ(core),
        event_handler=note,
        quiet=True,
    )
    return job.status, lines


def test_lines_while_a_gate_waits(gate: dict[str, Any], tmp_path: Path) -> None:
    # All runs are started at once, because each of them waits a minute.
    with ThreadPoolExecutor(2 * len(CORES)) as pool:
        logs = [pool.submit(in_a_log, core, tmp_path / f"log{number}", gate) for number, core in enumerate(CORES)]
        jobs = [pool.submit(as_a_job, core, tmp_path / f"job{number}", gate) for number, core in enumerate(CORES)]
    for core, log, job in zip(CORES, logs, jobs):
        version = f'"ansible_version.full": "{read_version(core)}"'
        status, text = log.result()
        assert version in text
        assert status == 2 and len(LINE.findall(text)) >= 5, text
        said = LINE.sub("", text)
        assert len(failure(said)) <= SCREEN, said
        state, lines = job.result()
        shown = "\n".join(f"{counter}: {line}" for counter, line in lines)
        assert version in shown, shown
        said_at = [counter for counter, line in lines if LINE.match(line)]
        assert state == "failed" and len(said_at) >= 5, shown
        end = next(counter for counter, line in lines if "is not healthy after" in line)
        assert max(said_at) < end, "output of a running task becomes an event at once"


def failure(output: str, task: str = "Wait") -> list[str]:
    """Return the task's output, from its title to the next one."""
    (said,) = re.findall(rf"^TASK \[{task}\].*?(?=^PLAY RECAP|^TASK)", output, re.DOTALL | re.MULTILINE)
    return [line for line in said.strip().splitlines() if line != "...ignoring"]


@pytest.mark.parametrize("core", CORES, ids=lambda core: core.parent.name)
def test_a_refusal_fits_a_screen(core: Path, gate: dict[str, Any], tmp_path: Path) -> None:
    """The refusal is made by a role from a plan, with `fail`: every reason is on a separate line, except in JSON, which
    has no line breaks."""
    missing = [f"APP/S{number}" for number in range(500)]
    login = {key: gate[key] for key in ("servers", "user", "password")}
    streams = [{"account": "APP", "stream": name.partition("/")[2], "num_replicas": 3} for name in missing]
    plan = {
        "natsops.jetstream.nats_replica_count_plan": {**login, "streams": streams},
        "register": "nats_cluster__replica_count",
    }
    tasks = yaml.safe_load((ROOT / "roles/nats_cluster/tasks/replica_count.yml").read_text())
    (check,) = (task for task in tasks if task["name"] == "Check preconditions")
    path = tmp_path / "play.yml"
    path.write_text(yaml.safe_dump(play(plan, check), sort_keys=False))
    wanted = ["Nothing was changed.", *(f"No stream matches {name}." for name in missing[:5]), "and 495 more; use -v"]
    for result_format in ("json", "yaml"):
        done = subprocess.run(
            [str(core / "ansible-playbook"), str(path)],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environ(core, ANSIBLE_STDOUT_CALLBACK="default", ANSIBLE_CALLBACK_RESULT_FORMAT=result_format),
            timeout=120,
        )
        said = failure(done.stdout, "Check preconditions")
        assert done.returncode == 2 and len(said) <= SCREEN, done.stdout
        text = "\n".join(line.strip() for line in said)
        if result_format == "yaml":
            assert "\n".join(wanted) in text, text
        else:
            assert "\\n".join(wanted) in text, text


@pytest.mark.parametrize("core", CORES, ids=lambda core: core.parent.name)
def test_a_failure_fits_a_screen(core: Path, gate: dict[str, Any], tmp_path: Path) -> None:
    def asked(missing: int) -> dict[str, Any]:
        names = [*gate["expected_servers"][:3], *(f"m{number}" for number in range(missing))]
        return {**gate, "expected_servers": names, "wait": False, "timeout": 1, "problems_dir": str(tmp_path)}

    variables = {"ansible_python_interpreter": sys.executable, "few": asked(1), "many": asked(5_000)}
    path = tmp_path / "play.yml"
    # The text is written as in roles, because ansible-core 2.19 and later quotes it.
    path.write_text(
        "- hosts: localhost\n"
        "  gather_facts: false\n"
        "  ignore_errors: true\n"
        f"  vars: {json.dumps(variables)}\n"
        "  tasks:\n"
        "    - name: Few\n"
        "      natsops.jetstream.nats_cluster_health: '{{ few }}'\n\n"
        "    - name: Many\n"
        "      natsops.jetstream.nats_cluster_health: '{{ many }}'\n"
    )

    def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [str(core / "ansible-playbook"), str(path), *arguments]
        more = {"ANSIBLE_STDOUT_CALLBACK": "default", **more}
        # Both streams are combined, as at a terminal, unless a program reads standard output.
        errors = subprocess.PIPE if "json" in more["ANSIBLE_STDOUT_CALLBACK"] else subprocess.STDOUT
        done = subprocess.run(
            command,
            check=False,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environ(core, **more),
            timeout=120,
        )
        assert done.returncode == 0, done.stdout
        return done

    for result_format in ("json", "yaml"):
        output = run(ANSIBLE_CALLBACK_RESULT_FORMAT=result_format).stdout
        for task, problems, names in (("Few", 2, "m0 does"), ("Many", 10_000, "m0, m1, m10 and 4997 more do")):
            said = failure(output, task)
            text = "\n".join(said)
            assert len(said) <= SCREEN and max(map(len, said)) < 1000, text
            assert text.count("systemctl status nats-server") == 1, text
            words = f"not healthy after . s and 1 sample(s): {problems} problems; {names} not answer"
            assert re.search(re.escape(words).replace(r"\.", "."), " ".join(text.split())), text
            assert (str(tmp_path / "health-C1.json") in text) == (task == "Many"), text
    # The callback comes from ansible.posix, which only this environment contains.
    (posix,) = ROOT.glob(".cache/venv-awx/lib/python*/site-packages")
    paths = os.pathsep.join((collections_path(), str(posix)))
    done = run(ANSIBLE_STDOUT_CALLBACK="ansible.posix.json", ANSIBLE_COLLECTIONS_PATH=paths)
    for task in json.loads(done.stdout)["plays"][0]["tasks"]:
        assert len(json.dumps(task["hosts"], indent=4).splitlines()) <= SCREEN - 8, task
    assert len(done.stderr.strip().splitlines()) <= 2 * 8, done.stderr
    detailed = run("-v", ANSIBLE_CALLBACK_RESULT_FORMAT="yaml").stdout
    for key in ("causes", "evidence", "commands", "problem_codes", "problems"):
        assert re.search(rf"^ *(- )?{key}:", detailed, re.MULTILINE), detailed
    assert SCREEN < len(failure(detailed, "Few")) < 100, detailed
