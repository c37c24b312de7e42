# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines of a module that waits appear at the terminal while the module is waiting."""

from __future__ import annotations

from pathlib import Path
from queue import Queue
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.plugin_utils.waiting import BriefAction, follow


@pytest.mark.parametrize("verbosity", [0, 1])
def test_a_failure_cannot_write_to_the_terminal(verbosity: int) -> None:
    """A stream's name may contain terminal control characters."""
    shown: list[str] = []
    display = SimpleNamespace(verbosity=verbosity, display=lambda line, stderr: shown.append(line))
    name, clean = "stream X\x1b[31mRED\x07", "stream X\ufffd[31mRED\ufffd"
    action: Any = BriefAction.__new__(BriefAction)
    for text in (f"{name} is gone", f"refused:\n{name} is gone\nsee {name}"):
        failure = {"code": "gone", "description": text}
        result = action._on_a_screen({"failed": True, "msg": text, "failure": failure}, display)
        assert clean in result["msg"] and "\x1b" not in result["msg"]
    assert shown == [f"{clean} is gone", f"see {clean}"]
    assert "\n" not in result["failure"]["description"]


def test_lines_are_shown_complete_and_at_once(tmp_path: Path) -> None:
    path, ended = tmp_path / "lines", Event()
    path.touch()
    shown: Queue[str] = Queue()
    thread = Thread(target=follow, args=(path, ended, shown.put))
    thread.start()
    try:
        with path.open("a", encoding="utf-8", buffering=1) as file:
            file.write("10 of 120 s: first\n20 of")
            file.flush()
            assert shown.get(timeout=10) == "10 of 120 s: first"
            file.write(" 120 s: second\n")
            assert shown.get(timeout=10) == "20 of 120 s: second"
    finally:
        ended.set()
        thread.join()
    assert shown.empty()
