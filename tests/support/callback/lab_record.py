# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the result of every task on every host as JSON lines to the file LAB_RECORD, which tests check."""

from __future__ import annotations

import json
import os
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: lab_record
type: notification
short_description: Records task results for the tests
description: One JSON object per task and host, with the keys host, task, status, changed, msg and covered.
author: natsops maintainers
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "lab_record"
    CALLBACK_NEEDS_ENABLED = True

    def _record(self, status: str, result: Any) -> None:
        entry = {
            "host": result._host.get_name(),
            "task": result._task.get_name(),
            "status": status,
            "changed": bool(result._result.get("changed")),
            "msg": str(result._result.get("msg", "")),
            "covered": bool(result._result.get("covered")),
        }
        with open(os.environ["LAB_RECORD"], "a", encoding="utf-8") as record:
            record.write(json.dumps(entry) + "\n")

    def v2_runner_on_ok(self, result: Any) -> None:
        self._record("ok", result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._record("ignored" if ignore_errors else "failed", result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._record("unreachable", result)
