# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the first module on a host. If the host's Python is too old for the module, the error contains both versions.

ansible-core 2.16 also manages hosts with Python 2.7 and 3.6, where the collection's modules end with a SyntaxError.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

from ansible.plugins.action.normal import ActionModule as NormalAction

#: The oldest Python on managed hosts, as in tests/config.yml.
REQUIRED = (3, 9)

_PROBE = "import sys; print('python %d.%d' % sys.version_info[:2])"


def python_problem(interpreter: str, output: str) -> str | None:
    """Return why modules cannot run with this interpreter; None if its version is sufficient or unknown.

    `output`: the output of the probe, possibly among other lines such as a login banner.
    """
    found = re.search(r"^python (\d+)\.(\d+)\s*$", output, re.MULTILINE)
    if found is None or (int(found[1]), int(found[2])) >= REQUIRED:
        return None
    required = ".".join(map(str, REQUIRED))
    return (
        f"The host's {interpreter} is Python {found[1]}.{found[2]}, and the modules require {required} or newer."
        f" Install a newer Python on the host and set ansible_python_interpreter to its path."
    )


class HostModuleAction(NormalAction):
    """Runs the module, and checks the host's Python if it fails."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the module's result."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        interpreter = self._interpreter(task_vars or {}) if result.get("failed") else ""
        if interpreter:
            probe = self._low_level_execute_command(f"{shlex.quote(interpreter)} -c {shlex.quote(_PROBE)}")
            if problem := python_problem(interpreter, probe.get("stdout", "")):
                # Remove the traceback, which ansible-core would otherwise print instead of the message.
                result = {"failed": True, "changed": False, "msg": problem}
        return result

    def _interpreter(self, task_vars: dict[str, Any]) -> str:
        """Return the path with which the module was run: the configured interpreter, otherwise the discovered one."""
        configured = str(self._templar.template(task_vars.get("ansible_python_interpreter") or "auto"))
        if not configured.startswith("auto"):
            return configured
        facts = task_vars.get("ansible_facts") or {}
        return str(getattr(self, "_discovered_interpreter", None) or facts.get("discovered_interpreter_python") or "")
