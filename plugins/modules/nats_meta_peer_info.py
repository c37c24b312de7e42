#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_meta_peer_info
short_description: Wait until the JetStream meta leader hears a server
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Tells whether the leader of the meta group has heard from a server since that was started, and waits for it.
  - A server that answers requests while the leader does not hear it is raft-silent. Some versions of nats-server now and
    then start so, and only another start helps.
  - It never fails because of what it finds, nor while the cluster cannot be asked, see RV(reason).
  - The connection must be that of a user of the system account.
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
      - Wait also until the server has caught up with the meta group. Meant for one that was down; under load the others are
        always a little behind.
    type: bool
    default: false
  wait_timeout:
    description: Seconds to wait at most; V(0) to look once.
    type: float
    default: 40
seealso:
  - module: natsops.jetstream.nats_cluster_health
  - module: natsops.jetstream.nats_meta_peer
"""

EXAMPLES = r"""
- name: Wait until the meta leader hears the server that was just started
  natsops.jetstream.nats_meta_peer_info:
    server_name: n1-c1
    context: c1-sys
  register: peer

- name: Say which server has to be restarted
  ansible.builtin.debug:
    msg: "{{ peer.reason }}"
  when: peer.raft_silent
"""

RETURN = r"""
joined:
  description: Whether the meta leader has heard from the server since it was started.
  returned: success
  type: bool
  sample: true
raft_silent:
  description: Whether the server answers requests, and the meta leader has not heard from it since it was started.
  returned: success
  type: bool
  sample: false
reason:
  description: Why it has not joined, or why that could not be read; empty if it has.
  returned: success
  type: str
  sample: n3-c1 answers requests, and the meta leader n1-c1 has not heard from it since it was started
waited:
  description: Seconds that the wait took.
  returned: success
  type: float
  sample: 1.2
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.cluster.raft_silence import MetaContact, meta_contact
from ansible_collections.natsops.jetstream.plugins.module_utils.module import make_module, run
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import Client, NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.system_api import SystemApi
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until

#: Seconds between two looks; servers send a heartbeat every second.
INTERVAL = 1.0


def wait_for_meta(client: Client, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result. Raises NatsFailure invalid_option for a time that is none."""
    name = params["server_name"]
    if params["wait_timeout"] < 0:
        raise NatsFailure("invalid_option", f"wait_timeout: must not be negative, not {params['wait_timeout']:g}")

    def read() -> MetaContact:
        try:
            cluster = SystemApi(client).read_cluster(known_names=(name,), assets=False, health=False)
        except NatsFailure as failure:
            return MetaContact(False, reason=failure.description)
        return meta_contact(cluster, name, params["in_step"])

    last = wait_until(read, lambda contact: contact.joined, params["wait_timeout"], INTERVAL)
    return {"changed": False, **asdict(last.value), "waited": last.waited}


def main() -> None:
    module = make_module(
        {
            "server_name": {"type": "str", "required": True},
            "in_step": {"type": "bool", "default": False},
            "wait_timeout": {"type": "float", "default": 40},
        }
    )
    run(module, lambda client: wait_for_meta(client, module.params))


if __name__ == "__main__":
    main()
