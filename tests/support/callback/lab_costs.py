# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the cost of a run as JSON lines to the file LAB_COSTS: a line for each task, for each host of the task, and
for each module execution.

Ansible starts a process for each task and host, including skipped tasks and includes, but not `meta`. A module
execution counts when a module is executed, on the host or delegated. An action with two modules, such as `copy`, counts
twice, and one without a module, such as `set_fact`, does not count.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: lab_costs
type: notification
short_description: Counts tasks and module runs for the tests
description: >-
  JSON objects with the keys task, action and at (a task begins, seconds of a monotonic clock), host (the task is for it),
  host and module (a module is executed), or only at (the end).
author: natsops maintainers
"""

_execute_module = ActionBase._execute_module


def _write(**entry: Any) -> None:
    # Worker processes also write: one short line in append mode is written in one piece.
    with open(os.environ["LAB_COSTS"], "a", encoding="utf-8") as record:
        record.write(json.dumps(entry) + "\n")


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "lab_costs"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._host = ""

        def execute(action: ActionBase, module_name: str | None = None, *others: Any, **named: Any) -> Any:
            _write(host=self._host, module=module_name or action._task.action)
            return _execute_module(action, module_name, *others, **named)

        ActionBase._execute_module = execute

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        _write(task=task.get_name(), action=task.action, at=time.monotonic())

    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        self.v2_playbook_on_task_start(task, False)

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        # The process of the task on this host is forked next. It attributes its module executions to this host.
        self._host = host.get_name()
        _write(host=self._host)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        _write(at=time.monotonic())
