# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the lock of a host, with real files and real processes that compete for the lock."""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import time
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils import basic
from ansible_collections.natsops.jetstream.plugins.module_utils.roll.lock_rules import LockRequest, resolve_holder
from ansible_collections.natsops.jetstream.plugins.modules import nats_host_lock


def race(path: str, owner: str, together: float) -> str:
    """Take the lock at the given time; return who holds it then."""
    request = LockRequest(owner, ttl=100)
    time.sleep(max(0.0, together - time.time()))
    with nats_host_lock.opened(path) as descriptor:
        held = resolve_holder(nats_host_lock.read_holder(descriptor, time.time()), request, time.time())
        nats_host_lock.write(descriptor, held)
    assert held is not None
    return str(held["owner"])


def run(path: Path, owner: str, **options: Any) -> dict[str, Any]:
    """Run the module in this process, with arguments as Ansible would pass them."""
    arguments = json.dumps(
        {"ANSIBLE_MODULE_ARGS": {"path": str(path), "owner": {"user": owner} if owner else None, **options}}
    )
    output = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(basic, "_ANSIBLE_ARGS", arguments.encode())
        patch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)
        with contextlib.redirect_stdout(output), pytest.raises(SystemExit):
            nats_host_lock.main()
    return dict(json.loads(output.getvalue().strip().splitlines()[-1]))


def test_a_lock_is_taken_renewed_refused_broken_and_given_back(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    checked = run(path, "one", _ansible_check_mode=True)
    assert (checked["changed"], checked["acquired"], path.exists()) == (True, True, False)

    first = run(path, "one", purpose="roll", ttl=100, _ansible_diff=True)
    assert (first["changed"], first["acquired"], first["diff"]["before"]) == (True, True, {})
    renewed = run(path, "one", purpose="roll", ttl=200)
    assert renewed["holder"]["since"] == first["holder"]["since"]
    assert renewed["holder"]["expires"] > first["holder"]["expires"]

    for state in ("present", "absent"):
        refused = run(path, "two", state=state)
        assert (refused["changed"], refused["acquired"]) == (False, False)
        assert refused["holder"] == renewed["holder"]

    broken = run(path, "two", break_foreign=True)
    assert (broken["acquired"], broken["broken"]["owner"]) == (True, {"user": "one"})
    given = run(path, "two", state="absent")
    assert (given["changed"], given["holder"]) == (True, None)
    assert not run(path, "two", state="absent")["changed"]


def test_a_lock_is_taken_over_from_the_owner_that_has_ended_and_from_no_other(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    run(path, "one")
    assert not run(path, "three", take_over_from={"user": "two"})["acquired"]
    checked = run(path, "two", take_over_from={"user": "one"}, _ansible_check_mode=True)
    assert checked["acquired"] and json.loads(path.read_text())["owner"] == {"user": "one"}
    taken = run(path, "two", take_over_from={"user": "one"})
    assert (taken["acquired"], taken["broken"]["owner"]) == (True, {"user": "one"})
    path.write_text(json.dumps({**taken["holder"], "owner": "another program"}))
    assert not run(path, "two")["acquired"]
    assert run(path, "two", take_over_from="another program")["acquired"]


def test_a_lock_ends_with_its_time_and_with_its_contents(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    run(path, "one", ttl=100)
    held = json.loads(path.read_text())
    path.write_text(json.dumps({**held, "expires": held["since"] - 1}))
    assert run(path, "two")["acquired"]
    path.write_text('{"owner": "tw')
    assert run(path, "three")["acquired"]


def test_one_of_many_gets_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with multiprocessing.get_context("fork").Pool(4) as racers:
        entries = [(str(path), f"owner{number}", time.time() + 0.5) for number in range(4)]
        winners = set(racers.starmap(race, entries, chunksize=1))
    assert len(winners) == 1
    assert json.loads(path.read_text())["owner"] in winners


def test_bad_input(tmp_path: Path) -> None:
    assert "action plugin" in run(tmp_path / "lock", "")["msg"]
    for failed, word in (
        (run(tmp_path / "lock", "one", ttl=0), "ttl"),
        (run(tmp_path / "no" / "lock", "one"), "No such file"),
    ):
        assert failed["failed"]
        assert word in failed["msg"]
