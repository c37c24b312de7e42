#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_meta_peer_info
short_description: Wait until the JetStream meta leader receives data from a server
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Returns whether the leader of the meta group has received data from a server since the server started, and waits
    until it has.
  - A server that answers requests while the leader receives nothing from it is raft-silent. Some versions of
    nats-server occasionally start in this state, and only another restart fixes it.
  - The task does not fail because of the server's state or because the cluster cannot be read; see RV(reason).
  - Connect as a user of the system account.
  - Only the roles of this collection need this module; its options may change in any release.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
  - natsops.jetstream.attributes.info_module
options:
  server_name:
    description: Name of the server, matched exactly.
    type: str
    required: true
  in_step:
    description:
      - Also wait until the server has caught up with the meta group. Use this option for a server that was down;
        under load, the other servers are always slightly behind.
    type: bool
    default: false
  wait_timeout:
    description: Maximum number of seconds to wait. With V(0), the module checks only once.
    type: float
    default: 40
seealso:
  - module: natsops.jetstream.nats_cluster_health
  - module: natsops.jetstream.nats_meta_peer
"""

EXAMPLES = r"""
- name: Wait until the meta leader receives data from the server that was just started
  natsops.jetstream.nats_meta_peer_info:
    server_name: n1-c1
    context: c1-sys
  register: peer

- name: Check whether the server must be restarted
  ansible.builtin.debug:
    msg: "{{ peer.reason }}"
  when: peer.raft_silent
"""

RETURN = r"""
joined:
  description: Whether the meta leader has received data from the server since it started.
  returned: success
  type: bool
  sample: true
raft_silent:
  description: Whether the server answers requests although the meta leader has received nothing from it since it
    started.
  returned: success
  type: bool
  sample: false
reason:
  description: Why the server has not joined, or why its state could not be read. Empty if the server has joined.
  returned: success
  type: str
  sample: n3-c1 answers requests, but the meta leader n1-c1 has received nothing from it since its start
waited:
  description: Seconds waited.
  returned: success
  type: float
  sample: 1.2
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ..module_utils.collection_module import run
from ..module_utils.health.raft_silence import MetaContact, meta_contact
from ..module_utils.module import make_module, with_client
from ..module_utils.nats.client import Client, NatsFailure
from ..module_utils.nats.system_api import SystemApi
from ..module_utils.waiting import wait_until

#: Seconds between two samples; servers send a heartbeat every second.
INTERVAL = 1.0


def read(client: Client, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result. Raises NatsFailure invalid_option for an invalid time."""
    name = params["server_name"]
    if params["wait_timeout"] < 0:
        raise NatsFailure("invalid_option", f"wait_timeout: must not be negative, not {params['wait_timeout']:g}")

    def sample() -> MetaContact:
        try:
            cluster = SystemApi(client).read_cluster(known_names=(name,), assets=False, health=False)
        except NatsFailure as failure:
            return MetaContact(False, reason=failure.description)
        return meta_contact(cluster, name, params["in_step"])

    last = wait_until(sample, lambda contact: contact.joined, params["wait_timeout"], INTERVAL)
    return {"changed": False, **asdict(last.value), "waited": last.waited}


def main() -> None:
    module = make_module(
        {
            "server_name": {"type": "str", "required": True},
            "in_step": {"type": "bool", "default": False},
            "wait_timeout": {"type": "float", "default": 40},
        }
    )
    run(module, with_client, lambda client: read(client, module.params))


if __name__ == "__main__":
    main()
