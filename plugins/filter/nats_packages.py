# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_packages
short_description: Return the package names and commands of a package manager
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Returns names and commands that differ between distributions.
  - Only the roles of this collection need this filter; it may change in any release.
positional: _input
options:
  _input:
    description: The package manager, as in the fact C(pkg_mgr).
    type: str
    required: true
  output:
    description: The package manager's list of available updates, for C(updates) and C(updates_package).
    type: str
    default: ""
  package:
    description: The package for C(hold) and C(updates_package).
    type: str
    default: nats-server
"""

EXAMPLES = r"""
- name: Show the package with Java
  ansible.builtin.debug:
    msg: "{{ (ansible_facts['pkg_mgr'] | natsops.jetstream.nats_packages).java }}"
"""

RETURN = r"""
_value:
  description:
    - C(java) and C(venv), names of packages; C(hold), the command that keeps O(package) from being updated;
      C(reboot_command), which exits with 1 if earlier updates require a reboot; C(updates), whether O(output) lists any
      update; and C(updates_package), whether O(output) lists an update of O(package).
  type: dict
  sample:
    java: default-jre-headless
    venv: python3-venv
    hold: apt-mark hold nats-server
    reboot_command: []
    updates: false
    updates_package: false
"""

from typing import Any

from ..module_utils.host.packages import packages
from ..plugin_utils._filters import reports_problems


@reports_problems
def nats_packages(manager: str, output: str = "", package: str = "nats-server") -> dict[str, Any]:
    """Return the names and commands; see DOCUMENTATION."""
    found = packages(manager)
    return {
        "java": found.java,
        "venv": found.venv,
        "hold": found.hold.format(package),
        "reboot_command": list(found.reboot_command),
        "updates": found.updates(output),
        "updates_package": found.updates(output, package),
    }


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_packages": nats_packages}
