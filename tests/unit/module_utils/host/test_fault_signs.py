# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A log that cannot be read is unknown, and only recent warnings and errors of the server are returned."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.host import fault_signs
from ansible_collections.natsops.jetstream.plugins.module_utils.host.fault_signs import (
    LogOptions,
    disk_usage,
    read_fault_signs,
    recent_lines,
)


def log_lines(log: LogOptions, run_command: Any = None) -> Any:
    return read_fault_signs("", None, log, run_command)["log_lines"]


def stamp(ago: float, utc: bool = False) -> str:
    return time.strftime("%Y/%m/%d %H:%M:%S", (time.gmtime if utc else time.localtime)(time.time() - ago))


@pytest.mark.parametrize("utc", [False, True])
def test_recent_warnings_and_errors_of_the_file_are_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, utc: bool
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        recent = [f"[7] {stamp(60, utc)}.000000 [{level}] text" for level in ("WRN", "ERR", "FTL")]
        others = [
            f"[7] {stamp(60, utc)}.000000 [INF] text",
            f"[7] {stamp(7200, utc)}.000000 [ERR] old",
        ]
        path = tmp_path / "server.log"
        path.write_text("\n".join([*others, *recent]) + "\n")
        assert log_lines(LogOptions("nats", str(path), "", 3600, utc)) == recent
        assert log_lines(LogOptions("", "", str(path), 3600, utc)) == recent
    finally:
        monkeypatch.undo()
        time.tzset()


def test_only_the_last_lines_and_the_end_of_a_large_file_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "[7] 2026/11/30 11:00:00.000000 [ERR] {}"
    lines = [line.format(number) for number in range(fault_signs.LINES + 5)]
    assert recent_lines(lines, "2026/11/30 11:00:00") == lines[5:]
    assert recent_lines(lines, "2026/11/30 11:00:01") == []
    path = tmp_path / "server.log"
    path.write_text("\n".join(f"[7] {stamp(1)}.000000 [ERR] {number:04}" for number in range(1000)) + "\n")
    monkeypatch.setattr(fault_signs, "SEARCHED", path.stat().st_size // 2)
    found = log_lines(LogOptions("", str(path), "", 3600, False))
    assert found[-1].endswith("0999") and 490 < len(found) < 510


@pytest.mark.parametrize(
    ("reply", "lines"),
    [
        ((0, "[7] a [ERR] one\n-- No entries --\n", ""), ["[7] a [ERR] one"]),
        ((1, "-- No entries --\n", ""), []),
        ((1, "", "No journal files were opened due to insufficient permissions."), None),
        ((124, "", ""), None),
    ],
)
def test_journal_is_unknown_if_it_cannot_be_read(reply: tuple[int, str, str], lines: list[str] | None) -> None:
    commands = []

    def run(command: list[str], **_options: Any) -> tuple[int, str, str]:
        commands.append(command)
        return reply

    assert log_lines(LogOptions("nats", "", "/tmp/nats-server.out", 1800, False), run) == lines
    (command,) = commands
    assert {"--unit=nats.service", "--since=-1800s"} <= set(command)


def test_log_that_does_not_exist_is_unknown(tmp_path: Path) -> None:
    def run(_command: list[str], **_options: Any) -> tuple[int, str, str]:
        raise FileNotFoundError("timeout")

    assert log_lines(LogOptions("", str(tmp_path / "no.log"), "", 60, False)) is None
    assert log_lines(LogOptions("", "", "", 60, False)) is None
    assert log_lines(LogOptions("nats", "", "", 60, False), run) is None


def test_disk_usage_is_that_of_df(tmp_path: Path) -> None:
    output = subprocess.run(["df", "--output=pcent,target", str(tmp_path)], check=True, capture_output=True, text=True)
    percent, mount = output.stdout.splitlines()[-1].split()
    found = disk_usage(str(tmp_path))
    assert found["disk_mount"] == mount
    assert abs(found["disk_percent"] - int(percent.rstrip("%"))) <= 1
    for unknown in (None, str(tmp_path / "gone")):
        assert disk_usage(unknown) == {"disk_percent": None, "disk_mount": ""}
