# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the module and adds the checksum of the file on the controller from which the host's nats-server is
installed. The result of a subset with secrets is not printed, except for a failure."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.utils.hashing import secure_hash

from ..module_utils.host.subsets import SUBSETS, requested_subsets
from ..plugin_utils._host_python import HostModuleAction

NO_MESSAGE = "The module that reads the host ended without a message."


class ActionModule(HostModuleAction):
    """Adds `src_sha256` to a result with the subset `deployment`; it is empty if the file does not exist."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the module's result. A result with secrets is not printed; its failure has only a message."""
        requested = requested_subsets(self._task.args.get("gather_subset"))
        # The module refuses an unknown subset.
        secret = [SUBSETS[name] for name in requested if name in SUBSETS and SUBSETS[name].has_secrets]
        if not secret:
            return super().run(tmp, task_vars)
        result = self._run_privately(tmp, task_vars)
        if any(subset.key not in result for subset in secret):
            return {
                "failed": True,
                "changed": False,
                "msg": result.get("msg") or result.get("module_stderr") or NO_MESSAGE,
            }
        if "deployment" in requested:
            source = os.path.expanduser(str(self._task.args.get("src") or ""))
            result["src_sha256"] = secure_hash(source, hashlib.sha256) or "" if os.path.isfile(source) else ""
        return {**result, "_ansible_no_log": True}

    def _run_privately(self, tmp: Any, task_vars: dict[str, Any] | None) -> dict[str, Any]:
        """Return the module's result. Unlike a task with no_log, this one still reports why it cannot connect."""
        try:
            with self._hidden():
                result: dict[str, Any] = super().run(tmp, task_vars)
        except AnsibleConnectionFailure:
            # With no_log, the connection hides why it failed. This command fails for the same reason.
            self._low_level_execute_command("true")
            raise
        return result

    @contextmanager
    def _hidden(self) -> Iterator[None]:
        """Keep the connection from printing results with -vvv, and the host from logging options."""
        # The connection has its own copy of the play's context.
        task, context = self._task, self._connection._play_context
        asked = task.no_log, context.no_log
        task.no_log = context.no_log = True
        try:
            yield
        finally:
            task.no_log, context.no_log = asked
