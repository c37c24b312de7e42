# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the events that the module writes and publishes when Ansible runs it."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nats
import pytest
from ansible.module_utils.common import warnings
from support.module_runs import Runner
from support.nats_processes import APP_PASSWORD, APP_USER, NatsProcesses, free_ports

EVENT = {"event": "batch_done", "run": "r1", "cluster": "C1"}


def messages_received(cluster: NatsProcesses, subject: str, work: Callable[[], Any]) -> tuple[Any, list[str]]:
    """Return the work's result and the messages that the work published. The work publishes to the first server, where
    the subscription is already active, so all messages have arrived when the work ends."""

    async def listen() -> tuple[Any, list[str]]:
        connection = await nats.connect(cluster.urls[0], user=APP_USER, password=APP_PASSWORD)
        try:
            subscription = await connection.subscribe(subject)
            await connection.flush()
            result = await asyncio.get_running_loop().run_in_executor(None, work)
            await connection.flush()
            messages = []
            while subscription.pending_msgs:
                messages.append((await subscription.next_msg(timeout=1)).data.decode())
            return result, messages
        finally:
            await connection.close()

    return asyncio.run(listen())


def test_event_is_written_and_published(healthy: NatsProcesses, run_module: Runner, tmp_path: Path) -> None:
    journal = tmp_path / "new" / "C1.jsonl"
    options: dict[str, Any] = {
        **EVENT,
        "batch": 2,
        "of": 5,
        "hosts": ["n2"],
        "steps": {"stop": 1.3},
        "journal": str(journal),
    }
    options["data"] = {"note": f"login {APP_PASSWORD}"}

    def work() -> dict[str, Any]:
        first = {**healthy.app_connection(), "servers": healthy.urls[:1]}
        return run_module("nats_roll_event", first, **options, subjects=["ops.a", "ops.b"], _ansible_diff=True)

    result, messages = messages_received(healthy, "ops.>", work)
    line = journal.read_text()
    assert result["changed"] and result["published"] == ["ops.a", "ops.b"] and result["unpublished"] == []
    assert messages == [line.strip()] * 2
    assert result["diff"] == {"before": "", "after": line}
    assert json.loads(line) == result["event"]
    assert APP_PASSWORD not in line and APP_PASSWORD not in json.dumps(result)
    assert {"version": 1, "batch": 2, "steps": {"stop": 1.3}, "hosts": ["n2"]}.items() <= result["event"].items()


def test_check_mode_writes_and_publishes_nothing(healthy: NatsProcesses, run_module: Runner, tmp_path: Path) -> None:
    journal = tmp_path / "C1.jsonl"

    def work() -> dict[str, Any]:
        options = {**EVENT, "journal": str(journal), "subjects": ["ops.a"]}
        first = {**healthy.app_connection(), "servers": healthy.urls[:1]}
        return run_module("nats_roll_event", first, check_mode=True, **options)

    result, messages = messages_received(healthy, "ops.>", work)
    assert result["changed"] and messages == [] and not journal.exists()


def test_a_subject_that_the_user_may_not_use_is_a_warning(
    tmp_path: Path, run_module: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warning also appears after another test in this process has imported Ansible's controller code."""
    if hasattr(warnings, "_internal"):
        monkeypatch.setattr(warnings._internal, "is_controller", True)
    limited = {"OPS": 'ops, permissions: { publish: "ops.>" }'}
    server = NatsProcesses("2.10.27", tmp_path, ["n1"], cluster="", jetstream=[], accounts={}, plain_accounts=limited)
    server.start()
    try:
        connection = {"servers": server.urls, "user": "ops", "password": APP_PASSWORD}
        subjects = ["ops.a", "secret.b", "ops.c"]
        result = run_module("nats_roll_event", connection, **EVENT, subjects=subjects)
    finally:
        server.kill()
    assert result["changed"] and result["published"] == ["ops.a", "ops.c"]
    assert [(item["subject"], item["code"]) for item in result["unpublished"]] == [("secret.b", "permission")]
    assert "could not be published to secret.b: permission denied" in str(result["warnings"])


def test_servers_that_do_not_answer_are_a_warning_and_take_no_time(run_module: Runner, tmp_path: Path) -> None:
    journal = tmp_path / "C1.jsonl"
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        servers = [f"nats://127.0.0.1:{port}" for port in (*free_ports(1), silent.getsockname()[1])]
        connection = {"servers": servers, "user": "x", "password": "y-y-y"}
        started = time.monotonic()
        result = run_module(
            "nats_roll_event",
            connection,
            **EVENT,
            journal=str(journal),
            subjects=["ops.a", "ops.b"],
            publish_timeout=0.5,
        )
        assert time.monotonic() - started < 2
    assert result["changed"] and "failed" not in result
    assert len(journal.read_text().splitlines()) == 1
    assert [item["subject"] for item in result["unpublished"]] == ["ops.a", "ops.b"]
    assert {item["code"] for item in result["unpublished"]} == {"unreachable"}
    assert "could not be published to ops.b: cannot connect to any server" in str(result["warnings"])
    assert "connection refused" in str(result["warnings"]) and "no answer within 0.25 s" in str(result["warnings"])

    only = run_module("nats_roll_event", {**connection, "servers": servers[:1]}, **EVENT, subjects=["ops.a"])
    assert not only["changed"] and only["unpublished"][0]["code"] == "unreachable"


def test_without_journal_and_subjects_nothing_happens(run_module: Runner) -> None:
    result = run_module("nats_roll_event", {}, **EVENT)
    assert not result["changed"] and result["event"]["event"] == "batch_done"


@pytest.mark.parametrize("place", ["file/C1.jsonl", "."])
def test_a_journal_that_cannot_be_written_is_named(run_module: Runner, tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    result = run_module("nats_roll_event", {}, **EVENT, journal=str(tmp_path / place))
    assert result["failed"] and result["failure"]["code"] == "journal"
    assert result["msg"].startswith(f"the journal {tmp_path / place} cannot be written: ")


def test_a_wildcard_is_refused_before_anything_is_written(run_module: Runner, tmp_path: Path) -> None:
    journal = tmp_path / "C1.jsonl"
    result = run_module("nats_roll_event", {}, **EVENT, journal=str(journal), subjects=["ops.>"])
    assert result["failed"] and "'ops.>' is not a valid subject for publishing" in result["msg"]
    assert not journal.exists()
