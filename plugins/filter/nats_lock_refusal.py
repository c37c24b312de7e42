# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_lock_refusal
short_description: Tell why a cluster counts as not locked
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - An operation may begin when it holds the lock on more than half of a cluster's hosts. Hosts that could not be reached count as
    not locked.
  - Returns who holds it, for what and until when, or an empty text when the cluster is locked.
positional: _input, members
options:
  _input:
    description: Results of M(natsops.jetstream.nats_host_lock), each with the name of its host as C(item).
    type: list
    elements: dict
    required: true
  members:
    description: The cluster's hosts.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Take the lock on all hosts
  natsops.jetstream.nats_host_lock:
    path: /run/lock/natsops-C1.json
  delegate_to: "{{ item }}"
  loop: "{{ groups['nats'] }}"
  register: locks
  failed_when: false
  run_once: true

- name: Refuse a second operation at the same time
  ansible.builtin.fail:
    msg: "{{ locks.results | natsops.jetstream.nats_lock_refusal(groups['nats']) }}"
  when: locks.results | natsops.jetstream.nats_lock_refusal(groups['nats']) | length > 0
"""

RETURN = r"""
_value:
  description: Why the cluster counts as not locked, empty when it is locked.
  type: str
"""

import time
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.cluster.lock_rules import resolve_lock


def nats_lock_refusal(answers: list[dict[str, Any]], members: list[str]) -> str:
    """Filter form of :func:`resolve_lock`."""
    return resolve_lock(answers, members, time.time()).refusal


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_lock_refusal": nats_lock_refusal}
