# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prints as many lines of a result as fit on a screen, and writes all of them to a file on the controller."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ..module_utils.health.problem_file import write_lines_file
from ..module_utils.problem import ERROR, WARNING, option_lines
from ..module_utils.screen import Page, flat, page, printable

ARGUMENTS: dict[str, dict[str, Any]] = {
    "name": {"type": "str", "required": True},
    "lines": {"type": "list", "elements": "str", "required": True},
    "screen": {"type": "list", "elements": "str"},
    "notes": {"type": "list", "elements": "str", "default": []},
    "problems": {"type": "list", "elements": "dict", "default": []},
    "directory": {"type": "path"},
}


class ActionModule(ActionBase):
    """See modules/nats_show.py."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the printed lines, and the path of the file with all lines."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validation, options = self.validate_argument_spec(ARGUMENTS)
        if errors := option_lines(options["problems"], ERROR):
            return {
                **result,
                "failed": True,
                "msg": "\n".join([f"{len(errors)} problem(s); nothing was changed.", *errors]),
            }
        lines = tuple(options["lines"])
        shown = flat(lines) if options["screen"] is None else Page(lines, tuple(options["screen"]))
        shown += page(*options["notes"], *option_lines(options["problems"], WARNING))
        path: str | None = None
        hint: list[str] = []
        if shown.screen != shown.lines:
            path, hint = _written(options["directory"], options["name"], shown)
        whole = Display().verbosity > 0
        msg = [printable(line) for line in [*(shown.lines if whole else shown.screen), *hint]]
        return {**result, "changed": False, "msg": msg, "file": path, "_ansible_verbose_always": bool(msg)}


def _written(directory: str | None, name: str, shown: Page) -> tuple[str | None, list[str]]:
    """Write all lines to a file. Returns its path and the lines to print about it. A full disk does not make the task
    fail."""
    try:
        path = write_lines_file(directory, name, map(printable, shown.lines))
    except OSError as error:
        return None, [f"The complete list could not be written: {error}. With -v it is shown here."]
    return path, [f"All {len(shown.lines):,} lines: {path}"]
