# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_duration_seconds
short_description: Convert a nats-server duration to seconds
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Parses the durations of nats-server's configuration, such as V(1m30s). A bare number means seconds.
  - Only the roles and playbooks of this collection need this filter; it may change in any release.
positional: _input
options:
  _input:
    description: The duration.
    type: raw
    required: true
"""

EXAMPLES = r"""
- name: Wait for the duration of lame duck mode
  ansible.builtin.pause:
    seconds: "{{ '1m30s' | natsops.jetstream.nats_duration_seconds | int }}"
"""

RETURN = r"""
_value:
  description: The number of seconds.
  type: float
  sample: 90.0
"""

from typing import Any

from ..module_utils.units import duration_seconds
from ..plugin_utils._filters import reports_problems


@reports_problems
def nats_duration_seconds(duration: Any) -> float:
    """Return the number of seconds; see DOCUMENTATION."""
    return duration_seconds(duration)


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_duration_seconds": nats_duration_seconds}
