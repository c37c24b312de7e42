# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A gate that waits says every ten seconds what is missing: at a terminal, in a log, and as events of a job."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ansible_runner
import pytest
from support.nats_processes import SYS_PASSWORD, SYS_USER, NatsProcesses, collections_path

#: Of a wait of 35 s.
LINE = re.compile(r"^[123]\d of 35 s: \d+ problems? left: n9 does not answer", re.MULTILINE)


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[dict[str, Any]]]:
    """A play that waits for a server which does not come."""
    cluster = NatsProcesses("2.15.1", tmp_path_factory.mktemp("waiting"), ["n1", "n2", "n3"])
    cluster.start()
    gate = {
        "servers": cluster.urls,
        "user": SYS_USER,
        "password": SYS_PASSWORD,
        "expected_servers": ["n1", "n2", "n3", "n9"],
        "wait_timeout": 35,
    }
    try:
        yield [
            {
                "hosts": "localhost",
                "gather_facts": False,
                "vars": {"ansible_python_interpreter": sys.executable},
                "tasks": [{"name": "Wait", "natsops.jetstream.nats_cluster_health": gate}],
            }
        ]
    finally:
        cluster.kill()


def test_lines_in_a_log(play: list[dict[str, Any]], tmp_path: Path) -> None:
    path = tmp_path / "play.yml"
    path.write_text(json.dumps(play))
    command = [str(Path(sys.executable).with_name("ansible-playbook")), str(path)]
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": collections_path(), "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 2
    assert len(LINE.findall(done.stderr)) == 3, done.stderr
    said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip() and not LINE.match(line)]
    failure = said[next(number for number, line in enumerate(said) if line.startswith("TASK")) :]
    assert len(failure) <= 25, "\n".join(failure)


def test_events_of_a_job(play: list[dict[str, Any]], tmp_path: Path) -> None:
    """As AWX runs it: whatever is shown while a task runs is an event at once."""
    lines: list[tuple[int, str]] = []

    def note(event: dict[str, Any]) -> bool:
        lines.extend((event["counter"], line) for line in event.get("stdout", "").splitlines())
        return True

    job = ansible_runner.interface.run(
        private_data_dir=str(tmp_path),
        playbook=play,
        envvars={"ANSIBLE_COLLECTIONS_PATH": collections_path(), "ANSIBLE_NOCOLOR": "1"},
        event_handler=note,
        quiet=True,
    )
    assert job.status == "failed"
    said = [(counter, line) for counter, line in lines if LINE.match(line)]
    assert len(said) == 3, lines
    end = next(counter for counter, line in lines if "is not healthy after" in line)
    assert all(counter < end for counter, _line in said)
