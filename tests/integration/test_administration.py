# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs every block of docs/administration.md against five servers."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.documents import CHECKOUT, Document
from support.module_runs import Runner, form
from support.nats_processes import APP_PASSWORD, SYS_PASSWORD, SYS_USER, NatsProcesses, run_playbook

pytestmark = pytest.mark.playbook

GUIDE = Document("docs/administration.md")
NAMES = ["n1-c1", "n2-c1", "n3-c1", "n4-c1", "n5-c1"]

#: Tasks that must report a change on the first run.
CHANGE = {
    "Orders are on three servers",
    "Their consumer too",
    "Save the orders with their consumers",
    "Restore a copy next to the orders",
    "Let another server lead ORDERS",
    "Let another server lead its consumer NEW",
    "Let another server lead the meta group",
    "Forget n4-c1",
}

Tasks = list[dict[str, Any]]


def blocks(language: str) -> list[str]:
    return [block.text for block in GUIDE.of(language)]


def frame_and_tasks() -> tuple[str, list[Tasks]]:
    """Return the document's play and the blocks of tasks that it can import."""
    frame, *rest = blocks("yaml")
    return frame, [yaml.safe_load(text) for text in rest]


@pytest.fixture(scope="module")
def c1(tmp_path_factory: pytest.TempPathFactory, run_module: Runner) -> Iterator[NatsProcesses]:
    cluster = NatsProcesses("2.15.1", tmp_path_factory.mktemp("administration"), NAMES)
    cluster.start()
    try:
        yield form(cluster, run_module)
    finally:
        cluster.kill()


def run(cluster: NatsProcesses, folder: Path, frame: str, chosen: list[Tasks]) -> dict[str, dict[str, Any]]:
    """Run the blocks, in which every task runs twice unless it only reads or is forced. Return each task's result; the
    result of a second run has the key "again: …"."""
    tasks: Tasks = []
    for block in chosen:
        tasks += block
        tasks += [{**task, "name": f"again: {task['name']}"} for task in block if not (reads(task) or forced(task))]
    folder.mkdir()
    (folder / "play.yml").write_text(frame)
    (folder / "tasks.yml").write_text(yaml.safe_dump(tasks, sort_keys=False))
    variables = {"nats_urls": cluster.urls, "nats_system_password": SYS_PASSWORD, "nats_app_password": APP_PASSWORD}
    result = run_playbook(
        str(folder / "play.yml"),
        "-e",
        json.dumps(variables),
        ANSIBLE_CALLBACK_PLUGINS=str(CHECKOUT / "tests" / "support" / "callback"),
        ANSIBLE_CALLBACKS_ENABLED="lab_record",
        LAB_RECORD=str(folder / "record"),
    )
    assert result.returncode == 0, result.stdout + result.stderr
    done = [json.loads(line) for line in (folder / "record").read_text().splitlines()]
    assert len(done) == len(tasks)
    return {entry["task"]: entry for entry in done}


def reads(task: dict[str, Any]) -> bool:
    return any(
        name.endswith("_info") or name in ("ansible.builtin.debug", "natsops.jetstream.nats_check") for name in task
    )


def forced(task: dict[str, Any]) -> bool:
    return any(isinstance(options, dict) and options.get("force") for options in task.values())


def test_every_block_of_tasks_works_and_changes_nothing_the_second_time(c1: NatsProcesses, tmp_path: Path) -> None:
    frame, chosen = frame_and_tasks()
    last = next(index for index, block in enumerate(chosen) if "natsops.jetstream.nats_meta_peer" in block[0])
    done = run(c1, tmp_path / "living", frame, chosen[:last])
    # The last task is for a server that was permanently stopped.
    c1.stop("n4-c1")
    done.update(run(c1, tmp_path / "leaving", frame, chosen[last:]))
    assert {name for name, entry in done.items() if entry["status"] != "ok"} == set()
    assert {name for name, entry in done.items() if name.startswith("again: ") and entry["changed"]} == set()
    assert {name for name in CHANGE if not done[name]["changed"]} == set()


def test_every_command_works(c1: NatsProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = [shlex.split(line, comments=True) for text in blocks("sh") for line in text.splitlines()]
    assert {command[0] for command in commands} == {"ansible-playbook"}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWD", str(tmp_path))
    for _program, *arguments in commands:
        environment = {"NATS_URL": ",".join(c1.urls), "NATS_USER": SYS_USER, "NATS_PASSWORD": SYS_PASSWORD}
        result = run_playbook(*arguments, **environment)
        assert result.returncode == 0, result.stdout + result.stderr
    assert json.loads((tmp_path / "report.json").read_text())["tables"]
    assert json.loads((tmp_path / "diagnosis.json").read_text())["verdict"]
