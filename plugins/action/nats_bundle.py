# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the module with its option `secrets` reduced to the values that are secrets.

Ansible masks every value of this option in all output, but the variables passed to it also contain names and sizes,
which are not secrets.
"""

from __future__ import annotations

from typing import Any

from ansible.plugins.action.normal import ActionModule as NormalAction

from ..module_utils.redaction import secrets_in


class ActionModule(NormalAction):
    """Passes on only the secrets of the option `secrets`."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the module's result."""
        arguments = self._task.args
        self._task.args = {**arguments, "secrets": sorted(secrets_in(arguments.get("secrets"), "secret"))}
        try:
            result: dict[str, Any] = super().run(tmp, task_vars)
        finally:
            self._task.args = arguments
        return result
