#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_maintenance_info
short_description: List the hosts in maintenance and the hosts that need attention
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Returns the state of each host, a table of the states, and the hosts that need attention. A host needs attention
    if its maintenance is past its end time, if it is marked although its server is running, if its server is stopped
    but the host is not marked, or if its state could not be read.
  - The module evaluates data that the hosts have already reported, so run it once, on the controller. The playbook
    C(natsops.jetstream.maintenance_status) shows the result.
extends_documentation_fragment:
  - natsops.jetstream.attributes.plain_info_module
options:
  hosts:
    description:
      - Each host with its result of M(natsops.jetstream.nats_server_process_info). The module uses C(running) and
        C(maintenance). The state is unknown if C(running) is missing, as for an unreachable host.
    type: dict
    required: true
  server_names:
    description: Inventory hosts, each with the name of its server.
    type: dict
    default: {}
  locks:
    description:
      - Each host with its result of M(natsops.jetstream.nats_host_lock) in check mode, for RV(locks).
    type: dict
    default: {}
seealso:
  - module: natsops.jetstream.nats_host_lock
  - module: natsops.jetstream.nats_maintenance_plan
"""

EXAMPLES = r"""
- name: Read the host
  natsops.jetstream.nats_server_process_info:
    config: /etc/nats-server/nats-server.conf
    maintenance: /etc/nats-server/maintenance.json
  become: true
  register: process

- name: Report the state of the hosts
  natsops.jetstream.nats_maintenance_info:
    hosts: "{{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, 'process'))) }}"
  delegate_to: localhost
  run_once: true
  register: maintenance
"""

RETURN = r"""
hosts:
  description:
    - The hosts with their states. States are V(in_service), V(in_maintenance), V(overdue), V(running), V(stopped) and
      V(unknown).
  returned: success
  type: list
  elements: dict
  sample: [{host: n3, server_name: n3-c1, state: in_service, maintenance: null}]
findings:
  description: The hosts that need attention, as readable text.
  returned: success
  type: list
  elements: str
  sample: ["n3: in maintenance, overdue"]
locks:
  description:
    - The operations that hold the lock, each with its hosts, start, end, and whether its process is running, as
      readable text.
  returned: success
  type: list
  elements: str
  sample: ["Locked by ops@ctl-1 process 4711 for restart on n1, n2, since 2026-11-29T18:00:00Z, until
    2026-11-29T18:30:00Z at the latest; its process is still running."]
lines:
  description: A table of the hosts, followed by RV(findings) and RV(locks).
  returned: success
  type: list
  elements: str
  sample: []
screen:
  description: As much of RV(lines) as fits on a screen, for M(natsops.jetstream.nats_show).
  returned: success
  type: list
  elements: str
"""

import time

from ..module_utils.collection_module import CollectionModule
from ..module_utils.host.controller import run_is_alive
from ..module_utils.roll.lock_rules import lock_holders, seen_holder
from ..module_utils.roll.maintenance import status


def main() -> None:
    module = CollectionModule(
        argument_spec={
            "hosts": {"type": "dict", "required": True},
            "server_names": {"type": "dict", "default": {}},
            "locks": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    params = module.params
    seen = {host: seen_holder(answer) for host, answer in params["locks"].items()}
    holders = lock_holders({host: holder for host, holder in seen.items() if holder})
    locks = [holder.line(run_is_alive(holder.owner)) for holder in holders]
    module.exit_json(changed=False, **status(params["hosts"], params["server_names"], time.time(), locks))


if __name__ == "__main__":
    main()
