# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the playbook natsops.jetstream.capture_advisories against real clusters."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.nats_processes import APP_PASSWORD, ONE_VERSION, NatsProcesses, run_playbook

pytestmark = [pytest.mark.playbook, ONE_VERSION]


def play(tmp_path: Path, healthy: NatsProcesses, *arguments: str, **variables: Any) -> tuple[int, str]:
    """Run the playbook; return its exit status and output."""
    extra = tmp_path / "variables.json"
    small = {"nats_insights_capture_max_bytes": "8MiB", "nats_insights_capture_replicas": len(healthy.names)}
    extra.write_text(json.dumps({"nats_connection": healthy.sys_connection(), **small, **variables}))
    done = run_playbook("capture_advisories", "-e", f"@{extra}", *arguments)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def without_streams(healthy: NatsProcesses) -> Iterator[None]:
    """Remove the stream afterwards, because other tests count the streams of the cluster."""
    yield
    healthy.app_request("$JS.API.STREAM.DELETE.ADVISORIES")


@pytest.mark.usefixtures("without_streams")
def test_streams_capture_advisories(healthy: NatsProcesses, tmp_path: Path) -> None:
    users = [user for user in healthy.account_users() if user["account"] == "APP"]
    file = tmp_path / "streams.json"
    variables = {
        "nats_insights_account_users": users,
        "nats_insights_fleet": "test",
        "nats_insights_streams_file": str(file),
    }
    code, text = play(tmp_path, healthy, "--check", **variables)
    assert (code, bool(re.search(r"changed=[12] ", text))) == (0, True), text
    assert not file.exists()
    code, text = play(tmp_path, healthy, **variables)
    assert code == 0, text
    assert APP_PASSWORD not in text
    before = healthy.app_request("$JS.API.STREAM.INFO.ADVISORIES")
    assert before["config"]["num_replicas"] == len(healthy.names)
    healthy.add_stream("SEEN", 1)
    healthy.app_request("$JS.API.STREAM.DELETE.SEEN")
    state = healthy.app_request("$JS.API.STREAM.INFO.ADVISORIES", {"subjects_filter": ">"})["state"]
    assert "$JS.EVENT.ADVISORY.STREAM.CREATED.SEEN" in state["subjects"]
    assert not [subject for subject in state["subjects"] if subject.endswith(".API")]

    assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads(file.read_text()) == [
        {
            "fleet": "test",
            "account": "APP",
            "options": {
                "servers": ",".join(healthy.urls),
                "stream": "ADVISORIES",
                "user": users[0]["user"],
                "password": users[0]["password"],
            },
        }
    ]
    code, text = play(tmp_path, healthy, **variables)
    assert (code, "changed=0 " in text) == (0, True), text


def test_without_users_it_is_refused(healthy: NatsProcesses, tmp_path: Path) -> None:
    code, text = play(tmp_path, healthy)
    assert (code, "has no user for any account" in " ".join(text.split())) == (2, True), text
    accounts = {
        "nats_insights_capture_accounts": ["APP", "NONE"],
        "nats_insights_account_users": healthy.account_users(),
    }
    code, text = play(tmp_path, healthy, **accounts)
    assert (code, "has no user for NONE" in " ".join(text.split())) == (2, True), text
