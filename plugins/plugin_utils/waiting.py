# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows what a module waits for while it waits (`module_utils.progress`)."""

from __future__ import annotations

import tempfile
from pathlib import Path
from threading import Event, Thread
from typing import Any, Callable

from ansible.plugins.action.normal import ActionModule as NormalAction
from ansible.release import __version__ as core_version
from ansible.utils.display import Display
from ansible_collections.natsops.jetstream.plugins.module_utils.versions import parse_version

#: Seconds between two looks at the file.
INTERVAL = 0.5


class WaitingAction(NormalAction):
    """Runs the module of the same name, and prints the lines that it writes.

    They go to stderr, so that a callback that prints JSON stays whole. A module that is delegated to another machine prints none.
    """

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the module's result."""
        if self._connection.transport != "local" or self._task.async_val:
            result: dict[str, Any] = super().run(tmp, task_vars)
            return result
        arguments = self._task.args
        display = Display()
        with tempfile.TemporaryDirectory(prefix="nats-progress-") as folder:
            path = Path(folder) / "lines"
            path.touch(mode=0o600)
            self._task.args = {**arguments, "progress": {**(arguments.get("progress") or {}), "file": str(path)}}
            ended = Event()
            thread = Thread(
                target=follow, args=(path, ended, lambda line: display.display(line, stderr=True)), daemon=True
            )
            thread.start()
            try:
                result = super().run(tmp, task_vars)
            finally:
                ended.set()
                thread.join()
                self._task.args = arguments
        # Before 2.19 ansible-core prints a message of many lines as one line of JSON.
        unreadable = "\n" in str(result.get("msg")) and parse_version(core_version) < (2, 19)
        if result.get("failed") and unreadable and self._task.failed_when != [False]:
            display.display(str(result["msg"]), stderr=True)
        return result


def follow(path: Path, ended: Event, show: Callable[[str], None]) -> None:
    """Show the lines of the file as they come, until `ended`."""
    with path.open(encoding="utf-8") as file:
        rest, over = "", False
        while not over:
            # What was written right before the end is read, too.
            over = ended.wait(INTERVAL)
            *lines, rest = (rest + file.read()).split("\n")
            for line in lines:
                show(line)
