# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_rescue_host
short_description: Return the state of a host for a rescue
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Converts the result of M(natsops.jetstream.nats_server_host_info) with the subset C(rescue), which may have failed,
    to an entry of the option O(natsops.jetstream.nats_rescue#module:hosts). Only the role
    C(natsops.jetstream.nats_cluster) needs this filter; its input may change in any release.
positional: _input
options:
  _input:
    description: The registered result of M(natsops.jetstream.nats_server_host_info) with the subset C(rescue).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Record the state of the host
  ansible.builtin.set_fact:
    rescue_host: "{{ store | natsops.jetstream.nats_rescue_host | combine({'server': 'n1'}) }}"
"""

RETURN = r"""
_value:
  description:
    - Whether the host was C(reached), its server is C(running), and its store is C(copied) and set C(aside); why the server is
      C(fenced), why a reachable host could not be read (C(failure)), and the C(streams) on its disk.
  type: dict
  sample: {reached: true, running: false, fenced: "", failure: "", streams: [], copied: false, aside: false}
"""

from collections.abc import Mapping
from typing import Any

from ..module_utils.rescue.rescue_state import host_state
from ..plugin_utils._filters import reports_problems


@reports_problems
def nats_rescue_host(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state; see DOCUMENTATION."""
    return host_state(found)


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_rescue_host": nats_rescue_host}
