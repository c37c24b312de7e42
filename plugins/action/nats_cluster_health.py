# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the module, prints a progress line every ten seconds while it waits, and limits a failure to one screen."""

from __future__ import annotations

from typing import Any

from ansible.utils.display import Display

from ..plugin_utils.waiting import WaitingAction


class ActionModule(WaitingAction):
    """See `WaitingAction`."""

    KEPT = frozenset(("problems_file",))

    def _on_a_screen(self, result: dict[str, Any], display: Display) -> dict[str, Any]:
        """Return the lists of problems in full if the task requests them."""
        return result if self._task.args.get("problems") else super()._on_a_screen(result, display)
