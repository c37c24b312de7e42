# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_wheels
short_description: Select the files that a host needs to install Python packages without a package index
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Selects the files of an offline bundle that pip needs to install the packages of a lock.
  - Only the roles and playbooks of this collection need this filter; it may change in any release.
positional: _input
options:
  _input:
    description: Paths of the files in the folder C(wheels) of the bundle.
    type: list
    elements: str
    required: true
  lock:
    description: The content of the requirements file.
    type: str
    required: true
  python:
    description: The host's version of Python, such as V(3.11).
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Show the files for a host with Debian 12
  ansible.builtin.debug:
    msg: "{{ query('ansible.builtin.fileglob', '/srv/wheels/*')
             | natsops.jetstream.nats_wheels(lookup('ansible.builtin.file', 'requirements.txt'), '3.11') }}"
"""

RETURN = r"""
_value:
  description: The selected paths. The first one is the wheel of pip, which Python can run without installing it.
  type: list
  elements: str
"""

from typing import Any

from ..module_utils.host.wheels import needed_files
from ..plugin_utils._filters import reports_problems


@reports_problems
def nats_wheels(paths: list[str], lock: str, python: str) -> list[str]:
    """Return the selected paths; see DOCUMENTATION."""
    return needed_files(paths, lock, python)


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_wheels": nats_wheels}
