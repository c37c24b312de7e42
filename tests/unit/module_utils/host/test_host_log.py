# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A log that cannot be read is unknown, only recent warnings and errors of the server are returned, and the last lines
show why it ended."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.host import server_log
from ansible_collections.natsops.jetstream.plugins.module_utils.host.server_log import (
    LogOptions,
    ending,
    last_lines,
    recent_lines,
    severe_lines,
)


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
        assert severe_lines(LogOptions("nats", str(path), "", utc), 3600, no_command) == recent
        assert severe_lines(LogOptions("", "", str(path), utc), 3600, no_command) == recent
    finally:
        monkeypatch.undo()
        time.tzset()


def test_only_the_last_lines_and_the_end_of_a_large_file_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "[7] 2026/11/30 11:00:00.000000 [ERR] {}"
    lines = [line.format(number) for number in range(server_log.SEVERE_LINES + 5)]
    assert recent_lines(lines, "2026/11/30 11:00:00") == lines[5:]
    assert recent_lines(lines, "2026/11/30 11:00:01") == []
    path = tmp_path / "server.log"
    path.write_text("\n".join(f"[7] {stamp(1)}.000000 [ERR] {number:04}" for number in range(1000)) + "\n")
    monkeypatch.setattr(server_log, "SEARCHED", path.stat().st_size // 2)
    found = severe_lines(LogOptions("", str(path), ""), 3600, no_command)
    assert found is not None
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

    assert severe_lines(LogOptions("nats", "", "/tmp/nats-server.out"), 1800, run) == lines
    (command,) = commands
    assert {"--unit=nats.service", "--since=-1800s"} <= set(command)


def test_log_that_does_not_exist_is_unknown(tmp_path: Path) -> None:
    def run(_command: list[str], **_options: Any) -> tuple[int, str, str]:
        raise FileNotFoundError("timeout")

    assert severe_lines(LogOptions("", str(tmp_path / "no.log"), ""), 60, no_command) is None
    assert severe_lines(LogOptions("", "", ""), 60, no_command) is None
    assert severe_lines(LogOptions("nats", "", ""), 60, run) is None


def no_command(_command: list[str], **_options: Any) -> tuple[int, str, str]:
    raise AssertionError("a log file needs no command")


INFO, ERROR = "[7] 2026/11/30 11:00:00.000000 [INF] Starting", "[7] 2026/11/30 11:00:00.000000 [FTL] no space"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([INFO, ERROR, INFO], [ERROR]),
        ([INFO, INFO, ""], [INFO, INFO]),
        # systemd's own line has no level.
        ([INFO, "nats.service: Main process exited"], ["nats.service: Main process exited"]),
        (
            [INFO, "panic: out of range", "", "goroutine 1 [running]:", "main.main()", "\t/src/main.go:7", ERROR],
            ["panic: out of range", ERROR],
        ),
        (["SIGSEGV: segmentation violation", "r12  0x0"], ["SIGSEGV: segmentation violation"]),
        ([f"{ERROR} {number}" for number in range(20)], [f"{ERROR} {number}" for number in range(12, 20)]),
        (["[7] [ERR] stream \x1b[31m\x07"], ["[7] [ERR] stream ?[31m?"]),
        ([], []),
    ],
)
def test_the_last_lines_show_why_a_server_ended(lines: list[str], expected: list[str]) -> None:
    assert ending(lines) == expected


def test_last_lines_are_those_of_the_journal_and_of_the_log_file(tmp_path: Path) -> None:
    def run(command: list[str], **_options: Any) -> tuple[int, str, str]:
        assert {"--unit=nats.service", "--output=cat"} <= set(command)
        return 0, "nats.service: Failed with result 'exit-code'.\n", ""

    file, output = tmp_path / "server.log", tmp_path / "output"
    file.write_text(f"{INFO}\n{ERROR}\n")
    output.write_text("panic: one\n")
    assert last_lines(LogOptions("nats", str(file), str(output)), run) == [
        "nats.service: Failed with result 'exit-code'.",
        ERROR,
    ]
    assert last_lines(LogOptions("", "", str(output)), no_command) == ["panic: one"]
    assert last_lines(LogOptions("", str(tmp_path / "absent"), ""), no_command) == []
