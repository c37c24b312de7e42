# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the module unless the observed state of the host proves that the module would change nothing."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action.normal import ActionModule as NormalAction

from ..module_utils.host.observed_files import is_as_desired


class ActionModule(NormalAction):
    """Returns the result of the module, or the same result from `observed`."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the result; see RETURN of the module."""
        arguments = self._task.args
        observed = arguments.get("observed")
        if observed and is_as_desired(observed, arguments):
            tried = bool(arguments.get("trial"))
            digest = observed["trial"]["digest"] if tried else ""
            return {"changed": False, "changed_paths": [], "unit_changed": False, "tried": tried, "digest": digest}
        # The host and its log must not receive the digests of files with secrets.
        self._task.args = {name: value for name, value in arguments.items() if name != "observed"}
        try:
            result: dict[str, Any] = super().run(tmp, task_vars)
        finally:
            self._task.args = arguments
        return result
