# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests which run holds a lock, and whether this run is still running: with real processes, and with a /proc that lacks
some entries."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.host import controller
from ansible_collections.natsops.jetstream.plugins.module_utils.host.controller import run_identity, run_is_alive


def test_a_run_is_alive_until_its_process_ends() -> None:
    with subprocess.Popen(["sleep", "100"]) as process:
        owner = run_identity(process.pid, "ops", "nightly")
        assert (owner["pid"], owner["user"], owner["name"]) == (process.pid, "ops", "nightly")
        assert owner["controller"] == os.uname().nodename
        assert owner == run_identity(process.pid, "ops", "nightly")
        assert run_is_alive(owner) is True
        assert run_is_alive({**owner, "started": owner["started"] + 1}) is False, (
            "another process has its number by now"
        )
        process.kill()
        # The process is a zombie until its parent waits for it.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert run_is_alive(owner) is False
    assert run_is_alive(owner) is False


@pytest.mark.parametrize(
    "change",
    [{"boot": "another"}, {"boot": ""}, {"pid_namespace": "pid:[1]"}, {"pid_namespace": ""}, {"pid": 0}, {"pid": -1},
     {"pid": "1"}, {"started": 0}],
)  # fmt: skip
def test_process_outside_this_controller_has_an_unknown_state(change: dict[str, Any]) -> None:
    owner = run_identity(os.getpid(), "ops")
    assert run_is_alive({**owner, **change}) is None


def test_owner_with_a_different_program_has_unknown_state() -> None:
    assert run_is_alive("ops@elsewhere process 1") is None
    assert run_is_alive({}) is None


def test_a_process_that_may_not_be_seen_is_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With hidepid=2, /proc has no folder for a process of another user."""
    owner = run_identity(os.getpid(), "ops")
    hidden = tmp_path / "proc"
    (hidden / "sys/kernel/random").mkdir(parents=True)
    (hidden / "sys/kernel/random/boot_id").write_text(owner["boot"])
    (hidden / "self/ns").mkdir(parents=True)
    (hidden / "self/ns/pid").symlink_to(owner["pid_namespace"])
    assert run_is_alive(owner, hidden) is True
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert run_is_alive({**owner, "pid": process.pid}, hidden) is False

    def forbidden(_self: Path) -> str:
        raise PermissionError

    monkeypatch.setattr(controller, "_boot", lambda _proc: owner["boot"])
    monkeypatch.setattr(Path, "read_text", forbidden)
    assert run_is_alive(owner) is True


def test_without_proc_it_is_unknown_whether_a_run_is_alive(tmp_path: Path) -> None:
    owner = run_identity(os.getpid(), "ops", proc=tmp_path)
    assert (owner["boot"], owner["pid_namespace"], owner["started"]) == ("", "", 0)
    assert run_is_alive(owner, tmp_path) is None
    assert run_is_alive(run_identity(os.getpid(), "ops"), tmp_path) is None
