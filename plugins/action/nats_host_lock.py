# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Acquires the lock of a host for this run. The plugin runs on the controller, because only the controller can identify
this run and detect that other runs have ended. The plugin also determines from the hosts' results whether a cluster is
locked."""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Mapping
from typing import Any

from ansible.plugins.action import ActionBase

from ..module_utils.host.controller import run_identity, run_is_alive
from ..module_utils.roll.lock_rules import may_take_over, resolve_lock

MODULE = "natsops.jetstream.nats_host_lock"


class ActionModule(ActionBase):
    """Runs the module with the owner filled in, and a second time if the lock's owner has ended."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the module's result, with `valid_until` by the controller's clock."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        if self._task.args.get("state") == "held":
            return {**result, **majority(self._task.args, time.time())}
        began = time.time()
        arguments = dict(self._task.args)
        # Each task runs in a child process of the run.
        arguments.setdefault("owner", run_identity(os.getppid(), _user(), str(arguments.get("name") or "")))
        result.update(self._execute_module(module_name=MODULE, module_args=arguments, task_vars=task_vars))
        held_by = (result.get("holder") or arguments)["owner"]
        if held_by != arguments["owner"] and may_take_over(held_by, arguments["owner"], run_is_alive(held_by)):
            # Take over the lock only from this owner, because a different run may have acquired it in the meantime.
            arguments["take_over_from"] = held_by
            result.update(self._execute_module(module_name=MODULE, module_args=arguments, task_vars=task_vars))
        result["valid_until"] = began + int(arguments.get("ttl") or 3600)
        return result


def majority(arguments: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Return whether the cluster is locked; the result is a failure if it is not."""
    if not arguments.get("members"):
        return {"failed": True, "msg": "members: the hosts of the cluster are required with state=held"}
    decision = resolve_lock(arguments.get("locks") or (), arguments["members"], now, run_is_alive)
    result = {"changed": False, "acquired": decision.acquired, "hosts": list(decision.hosts)}
    return result if decision.acquired else {**result, "failed": True, "msg": decision.refusal}


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container's user need not have a name.
        return str(os.getuid())
