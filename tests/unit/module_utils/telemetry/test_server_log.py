# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.server_log import log_lines

BERLIN = {"localtime": "/usr/share/zoneinfo/Europe/Berlin", "offset": "+0100"}


def test_lines_of_the_journal_have_its_time(tmp_path: Path) -> None:
    path = tmp_path / "n1.jsonl"
    entry = {
        "__REALTIME_TIMESTAMP": "1795286460123456",
        "MESSAGE": "[7] 2026/11/21 18:41:00.123456 [INF] Server is ready",
    }
    binary = {**entry, "MESSAGE": [91, 255, 93]}
    path.write_text("\n".join([json.dumps(entry), json.dumps(binary), "plain", '{"no": "entry"}', '{"torn']) + "\n")
    told = list(log_lines(path))
    moment = "2026-11-21T18:41:00.123456Z"
    assert told[0] == {"time": moment, "text": entry["MESSAGE"]}
    assert told[1] == {"time": moment, "text": "[\ufffd]"}
    assert [line["text"] for line in told[2:]] == ["plain", '{"no": "entry"}', '{"torn']
    with pytest.raises(NatsFailure, match=r"logs: .*absent"):
        list(log_lines(tmp_path / "absent"))


def times(tmp_path: Path, clock: dict[str, Any], *moments: str) -> list[str | None]:
    """Return the times of lines that a server wrote at these times of its host's clock."""
    path = tmp_path / "n1.jsonl"
    path.write_text("".join(f"{line}\n" for line in (json.dumps(clock), *(f"[7] {at} [INF] x" for at in moments))))
    told = list(log_lines(path))
    assert [line["text"] for line in told] == [f"[7] {at} [INF] x" for at in moments]
    return [line.get("time") for line in told]


@pytest.mark.parametrize(
    ("clock", "moment"),
    [
        (BERLIN, "2026-11-21T17:41:00.123456Z"),
        ({"localtime": "UTC", "offset": "+0000"}, "2026-11-21T18:41:00.123456Z"),
        ({"localtime": "/usr/share/zoneinfo/Asia/Kolkata", "offset": "+0530"}, "2026-11-21T13:11:00.123456Z"),
        # A copied time zone file has no name, and neither does a zone that does not exist on this machine.
        ({"localtime": "/etc/localtime", "offset": "-0330"}, "2026-11-21T22:11:00.123456Z"),
        ({"localtime": "/usr/share/zoneinfo/Mars/Base", "offset": "+0100"}, "2026-11-21T17:41:00.123456Z"),
        ({"localtime": "x"}, None),
    ],
)
def test_lines_of_a_file_are_of_the_time_zone_of_its_host(
    tmp_path: Path, clock: dict[str, str], moment: str | None
) -> None:
    if moment is None:
        path = tmp_path / "n1.jsonl"
        path.write_text(f"{json.dumps(clock)}\n[7] 2026/11/21 18:41:00.123456 [INF] x\n")
        assert [line.get("time") for line in log_lines(path)] == [None, None]
    else:
        assert times(tmp_path, clock, "2026/11/21 18:41:00.123456") == [moment]


def test_each_line_has_the_offset_of_its_own_day(tmp_path: Path) -> None:
    """The offset is also correct in the hour that occurs twice when the clocks go back."""
    local = ("2026/10/24 12:00:00.000000", *(f"2026/10/25 {at}.000000" for at in ("02:10:00", "02:50:00", "02:10:00")))
    assert times(tmp_path, BERLIN, *local, "2026/10/25 03:00:00.000000") == [
        f"2026-10-{at}.000000Z" for at in ("24T10:00:00", "25T00:10:00", "25T00:50:00", "25T01:10:00", "25T02:00:00")
    ]


def test_the_last_lines_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "n1.jsonl"
    path.write_text(json.dumps(BERLIN) + "\n" + "".join(f"{number}\n" for number in range(10_001)))
    told = [line["text"] for line in log_lines(path)]
    assert (len(told), told[0], told[-1]) == (10_000, "1", "10000")
