# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines of a module that waits come to the terminal while it waits."""

from __future__ import annotations

from pathlib import Path
from queue import Queue
from threading import Event, Thread

from ansible_collections.natsops.jetstream.plugins.plugin_utils.waiting import follow


def test_lines_are_shown_whole_and_at_once(tmp_path: Path) -> None:
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
