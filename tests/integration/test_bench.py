# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the benchmarks for reading and for backups to their end with little data, without judging their figures. The
benchmarks for rolls and operations take minutes, so only their arithmetic is tested."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench import backup, operations, roll
from support import controller, publishers
from support.nats_processes import ROOT, collections_path, run_playbook


def run_benchmark(name: str, *arguments: str) -> str:
    """Return the output of a benchmark against one version of nats-server."""
    command = [sys.executable, str(ROOT / "tests" / "bench" / f"{name}.py"), "--versions", "2.15.1", "--json"]
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), collections_path(), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [*command, *arguments], check=False, capture_output=True, text=True, timeout=120, env={**os.environ, **paths}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_benchmark_still_runs() -> None:
    result = json.loads(run_benchmark("assets", "--sizes", "5,20", "--repeat", "1"))
    measured = {(figure["operation"].split()[0], figure["streams"]) for figure in result["figures"]}
    assert measured == {
        (module, size) for module in ("nats_cluster_info", "nats_stream_info", "nats_consumer_info") for size in (5, 20)
    }
    for figure in result["figures"]:
        assert figure["rows"] == figure["streams"] * (2 if figure["operation"].startswith("nats_consumer") else 1)
        assert figure["parts"]["json"] > 0
        assert figure["parts"]["model"] > 0


def test_the_benchmark_of_backups_still_runs() -> None:
    result = json.loads(run_benchmark("backup", "--megabytes", "2"))
    figures = [backup.Figure(**figure) for figure in result["figures"]]
    assert [figure.what for figure in figures] == [
        "save, raw loop",
        "nats_backup, verify=checksum",
        "nats_backup, verify=contents",
        "restore, raw loop",
        "nats_restore, compare=state",
    ]
    assert all(figure.seconds > 0 for figure in figures)
    assert backup.markdown(figures, 2).count("| 2.15.1 |") == 5


def test_the_longest_gap_counts_the_ends_too() -> None:
    assert publishers.longest_gap([1.0, 1.2, 1.9, 2.0], 1.0, 2.1) == pytest.approx(0.7)
    assert publishers.longest_gap([1.0, 1.2], 1.0, 5.2) == pytest.approx(4.0)
    assert publishers.longest_gap([], 1.0, 5.0) == 4.0
    assert publishers.longest_gap([0.0, 9.0], 1.0, 5.0) == 4.0


def test_a_playbooks_journal_and_refusal_are_read(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    steps = {"gate": 11.0, "drain": 2.0, "stop": 4.0, "start": 2.0, "catch_up": 12.0}
    events = [
        {"event": "run_started"},
        *({"event": "batch_done", "steps": steps} for _batch in range(2)),
        {"event": "run_done"},
    ]
    journal.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    batches, found = roll.read_journal(journal)
    assert (batches, found["catch_up"]) == (2, 24.0) and roll.read_journal(journal) == (0, {})
    figures = roll.Figures("playbook", False, 2, 0.4, 0.2, 1, 100, [], 72.0, 16.0, [], "", batches, found)
    assert "32 s plus 40 s of settle windows, ×2.00 of stop, start and catch-up (16 s)" in roll.markdown([figures])
    assert "| playbook | - | 2 | 0.40 | ×2.0 | 1 | 100 | 0 | 72 | 16 | ×4.50 |" in roll.markdown([figures])
    output = (
        'ok: [n1]\nfatal: [n1]: FAILED! => {"changed": false, "msg": "not \\"complete\\":\\n- n5 did not answer"}\n'
    )
    assert roll.parse_refusal(output) == 'not "complete":\n- n5 did not answer'


def test_host_time_is_counted_by_task_and_module(tmp_path: Path) -> None:
    """The callback plugin counts a skipped task as a task, two modules for `copy`, none for `set_fact`, and no task
    for `meta`."""
    target = f"{tmp_path}/{{{{ inventory_hostname }}}}"
    tasks = [
        {"name": "Fact", "ansible.builtin.set_fact": {"x": 1}},
        {"name": "Never", "ansible.builtin.command": "true", "when": False},
        {"name": "Nothing", "ansible.builtin.meta": "noop"},
        {"name": "Ping", "ansible.builtin.ping": {}, "run_once": True},
        {"name": "Copy", "ansible.builtin.copy": {"content": "x", "dest": target, "mode": "0600"}},
    ]
    play, record = tmp_path / "play.yml", tmp_path / "costs"
    play.write_text(json.dumps([{"hosts": "all", "connection": "local", "gather_facts": False, "tasks": tasks}]))
    plugin = {
        "ANSIBLE_CALLBACK_PLUGINS": str(ROOT / "tests" / "support" / "callback"),
        "ANSIBLE_CALLBACKS_ENABLED": "lab_costs",
        "LAB_COSTS": str(record),
    }
    done = run_playbook(str(play), "-i", "a,b,", **plugin)
    assert done.returncode == 0, done.stdout + done.stderr
    costs, steps = controller.read_costs(record.read_text().splitlines())
    assert costs == {"a": controller.Cost(module_runs=3, tasks=4), "b": controller.Cost(module_runs=2, tasks=3)}
    # Ansible reports a `meta` task once for each host.
    assert [*dict.fromkeys(step.task for step in steps)] == ["Fact", "Never", "Nothing", "Ping", "Copy"]
    assert all(step.seconds >= 0 for step in steps)


def test_operations_are_reported_as_ratios() -> None:
    def run(seconds: float, modules: int, *gates: float) -> controller.Run:
        steps = tuple(controller.Step("Health gate", "natsops.jetstream.nats_cluster_health", gate) for gate in gates)
        other = controller.Step("Fact", "ansible.builtin.set_fact", 1.0)
        costs = {"n1": controller.Cost(modules, 9), "n2": controller.Cost(1, 1)}
        return controller.Run(0, "a\nb\n", (), seconds, costs, (*steps, other))

    assert operations.count_gates(run(9, 1, 2.0, 3.5)) == (2, 5.5)
    plays = [
        operations.figures("facts only", [run(2, 1), run(9, 1), run(3, 1)]),
        operations.figures("first", [run(33, 7)]),
    ]
    waits = publishers.Waits(gap=0.6, quiet=0.2, retries=7, acknowledged=100)
    ways = [
        operations.Restart("naive", 50, 0, 0, waits, 0, [], []),
        operations.Restart("playbook", 125, 6, 40, waits, 1, ["lost"], ["n2"]),
    ]
    report = operations.markdown(operations.Report("5 hosts", plays, ways), 100, 5)
    for line in (
        "| facts only | 3.0 | ×1.0 | 1 | 9 | 2 |",
        "| first | 33.0 | ×11.0 | 7 | 9 | 2 |",
        "| naive | 50 | ×1.0 | - | 0.60 | ×3.0 | 7 | 100 | 0 |",
        "| playbook | 125 | ×2.5 | 40 (6) | 0.60 | ×3.0 | 7 | 100 | 1 |",
        "playbook: lost",
        "playbook: had to be started again afterwards: n2",
    ):
        assert line in report.splitlines()
