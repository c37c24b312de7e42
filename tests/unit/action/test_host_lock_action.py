# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the requests that the lock's action sends to a host; a plain function replaces the module with the lock."""

from __future__ import annotations

import os
import subprocess
import time
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.natsops.jetstream.plugins.action import nats_host_lock
from ansible_collections.natsops.jetstream.plugins.module_utils.host.controller import run_identity
from ansible_collections.natsops.jetstream.plugins.module_utils.roll.lock_rules import LockRequest, resolve_holder


class Host(nats_host_lock.ActionModule):
    """The action on a host that holds this lock; it counts the module's runs."""

    def __init__(self, held: Any, **arguments: Any) -> None:
        self.held, self.runs = held, 0
        self._task = SimpleNamespace(args={"path": "/run/lock", "ttl": "100", **arguments})

    def _execute_module(self, module_args: dict[str, Any], **_other: Any) -> dict[str, Any]:
        self.runs += 1
        request = LockRequest(module_args["owner"], ttl=100, take_over_from=module_args.get("take_over_from"))
        self.held = resolve_holder(self.held, request, time.time())
        return {"acquired": self.held["owner"] == request.owner, "holder": self.held}


@pytest.fixture(autouse=True)
def no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ActionBase, "run", lambda *_arguments: {})


def lock(held_by: Any, **arguments: Any) -> tuple[dict[str, Any], int]:
    host = Host(held_by and {"owner": held_by, "purpose": "", "since": 1, "expires": time.time() + 60}, **arguments)
    return host.run(task_vars={}), host.runs


def test_a_free_lock_is_taken_by_the_run_whose_child_this_is() -> None:
    result, runs = lock(None, name="nightly")
    assert result["acquired"] and runs == 1
    owner = result["holder"]["owner"]
    assert (owner["pid"], owner["name"]) == (os.getppid(), "nightly")
    assert 95 < result["valid_until"] - time.time() <= 100
    again, runs = lock(owner, name="nightly")
    assert (again["acquired"], again["holder"]["since"], runs) == (True, 1, 1)


def test_a_lock_is_taken_over_only_from_a_run_that_has_ended() -> None:
    with subprocess.Popen(["sleep", "100"]) as process:
        owner = run_identity(process.pid, "ops", "nightly")
        for name in ("", "nightly"):
            result, runs = lock(owner, name=name)
            assert (result["acquired"], result["holder"]["owner"], runs) == (False, owner, 1)
        process.kill()
    result, runs = lock(owner)
    assert (result["acquired"], runs) == (True, 2)
    elsewhere = {**owner, "boot": "another machine"}
    assert lock(elsewhere)[0]["acquired"] is False
    assert lock(elsewhere, name="weekly")[0]["acquired"] is False
    assert lock(elsewhere, name="nightly")[0]["acquired"] is True
    assert lock("another program", name="nightly")[0]["acquired"] is False


def test_a_host_that_fails_has_no_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Host, "_execute_module", lambda *_self, **_arguments: {"failed": True, "msg": "no such folder"})
    result, _runs = lock(None)
    assert result["msg"] == "no such folder" and "acquired" not in result and result["valid_until"] > time.time()


def test_a_cluster_is_locked_by_a_majority_of_its_members() -> None:
    members, until = ["n1", "n2", "n3"], time.time() + 60
    locks = [{"item": name, "acquired": True, "valid_until": until} for name in members]
    held, runs = lock(None, state="held", members=members, locks=locks[:2])
    assert (held["acquired"], held["hosts"], held["changed"], runs) == (True, ["n1", "n2"], False, 0)
    assert "failed" not in held
    for answers in ([], locks[:1], [{**one, "valid_until": time.time() - 1} for one in locks]):
        refused, runs = lock(None, state="held", members=members, locks=answers)
        assert (refused["failed"], refused["acquired"], runs) == (True, False, 0)
        assert "of 3; more than half are needed" in refused["msg"]
    assert lock(None, state="held", locks=locks)[0]["msg"].startswith("members: ")
