# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the commands that nats_server_process sends to systemd; a script replaces systemctl. tests/lab uses real
units."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.modules import nats_server_process
from support.module_runs import run_in_process

#: Reports the unit's state, and records all other calls. A start of a unit without its file fails.
SYSTEMCTL = """#!/bin/sh
case "$1" in
show) echo "ActiveState=$(cat {folder}/state)" ;;
*) echo "$*" >> {folder}/calls; [ "$1" != start ] || [ ! -e {folder}/broken ] || {{ echo 'Unit is broken.' >&2; exit 1; }} ;;
esac
"""


class Unit:
    """A unit that the fake systemctl reports in a fixed state."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        (folder / "systemctl").write_text(SYSTEMCTL.format(folder=folder))
        (folder / "systemctl").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        monkeypatch.setattr(nats_server_process, "_APPEARS", 0.0)

    def run(self, active_state: str, state: str, **options: Any) -> tuple[dict[str, Any], list[str]]:
        """Run the module; return its result and its calls of systemctl."""
        (self.folder / "state").write_text(active_state)
        (self.folder / "calls").write_text("")
        given = {"config": str(self.folder / "nats-server.conf"), "unit": "nats-server", "state": state}
        result = run_in_process("nats_server_process", given, **options)
        return result, (self.folder / "calls").read_text().splitlines()


@pytest.fixture
def unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Unit:
    return Unit(tmp_path, monkeypatch)


STARTING, STOPPING = ["daemon-reload", "start nats-server"], ["stop nats-server"]


@pytest.mark.parametrize("active_state, start, stop", [
    ("inactive", STARTING, []),
    ("failed", STARTING, []),
    ("active", [], STOPPING),
    ("activating", [], STOPPING),
    ("deactivating", STARTING, STOPPING),
    # There is no such unit.
    ("", STARTING, []),
])  # fmt: skip
def test_systemctl_is_called_only_for_changes(unit: Unit, active_state: str, start: list[str], stop: list[str]) -> None:
    for state, wanted in (("started", start), ("stopped", stop)):
        predicted, calls = unit.run(active_state, state, check_mode=True)
        assert (predicted["changed"], calls) == (bool(wanted), [])
        done, calls = unit.run(active_state, state)
        assert (done["changed"], calls) == (bool(wanted), wanted)
        assert done["process"]["active_state"] == active_state
        assert done["seconds"] >= 0


def test_failed_start_reports_its_reason(unit: Unit) -> None:
    (unit.folder / "broken").touch()
    failed, _calls = unit.run("inactive", "started")
    assert failed["failed"]
    assert failed["msg"].endswith("nats-server.conf: systemctl start nats-server: Unit is broken.")


def test_a_server_that_ends_after_its_start_is_a_failure(unit: Unit) -> None:
    failed, _calls = unit.run("inactive", "started", ports=[4222], start_timeout=30)
    assert (failed["failed"], failed["process"]["missing_ports"]) == (True, [4222])
    assert "exited right after its start" in failed["msg"]


def test_without_a_unit_a_start_needs_the_executable(unit: Unit) -> None:
    failed = run_in_process("nats_server_process", {"config": str(unit.folder / "nats-server.conf")})
    assert "state is started but any of the following are missing: binary, unit" in failed["msg"]
