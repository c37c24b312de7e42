# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prints the progress lines of a waiting module (`module_utils.progress`)."""

from __future__ import annotations

import tempfile
from pathlib import Path
from threading import Event, Thread
from typing import Any, Callable

from ansible.plugins.action.normal import ActionModule as NormalAction
from ansible.utils.display import Display

from ..module_utils.screen import brief, further_lines, one_line, printable

#: Seconds between two reads of the file.
INTERVAL = 0.5


class BriefAction(NormalAction):
    """Runs the module of the same name. If the module fails with many lines, they are printed instead of returned."""

    #: Keys of a failed task's result, in addition to `msg` and `failure`, that are returned without ``-v``.
    KEPT: frozenset[str] = frozenset()

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the module's result."""
        result = self._run_module(tmp, task_vars)
        # A `failed_when` may need any part of the result.
        if result.get("failed") and not self._task.failed_when:
            result = self._on_a_screen(result, Display())
        return result

    def _run_module(self, tmp: Any, task_vars: dict[str, Any] | None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        return result

    def _on_a_screen(self, result: dict[str, Any], display: Display) -> dict[str, Any]:
        """Print a failure of many lines; return its result with a message of one line and, without ``-v``, with few
        other keys."""
        text, failure = printable(str(result.get("msg"))), result.get("failure")
        if "\n" not in text or not isinstance(failure, dict):
            return {**result, "msg": text}
        detailed = display.verbosity > 0
        for line in text.splitlines()[1:] if detailed else further_lines(text):
            display.display(line, stderr=True)
        if printable(str(failure.get("description"))) == text:
            failure = {**failure, "description": one_line(text)}
        result = {**result, "msg": one_line(text), "failure": failure}
        # Since 2.19, ansible-core derives this key from the module's message; it will derive it again from the new
        # message.
        result.pop("exception", None)
        return result if detailed else brief(result, self.KEPT)


class WaitingAction(BriefAction):
    """Also prints the lines that the module writes while it waits.

    The lines go to stderr, so the output of a JSON callback remains intact. A module that is delegated to another
    machine prints no lines.
    """

    def _run_module(self, tmp: Any, task_vars: dict[str, Any] | None) -> dict[str, Any]:
        if self._connection.transport != "local" or self._task.async_val:
            return super()._run_module(tmp, task_vars)
        display = Display()
        arguments = self._task.args
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
                result = super()._run_module(tmp, task_vars)
            finally:
                ended.set()
                thread.join()
                self._task.args = arguments
        return result


def follow(path: Path, ended: Event, show: Callable[[str], None]) -> None:
    """Print new lines of the file as they arrive, until `ended` is set."""
    with path.open(encoding="utf-8") as file:
        rest, over = "", False
        while not over:
            # Read once more after the end, for the last lines.
            over = ended.wait(INTERVAL)
            *lines, rest = (rest + file.read()).split("\n")
            for line in lines:
                show(line)
