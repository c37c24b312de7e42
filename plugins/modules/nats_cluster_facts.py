#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_cluster_facts
short_description: Gather the state of a NATS cluster or supercluster as facts
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Sets the fact C(nats_cluster) to the result of M(natsops.jetstream.nats_cluster_info), and returns nothing else.
  - Needs a user of the system account.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.cluster_info
  - natsops.jetstream.mesh
  - natsops.jetstream.accounts
  - natsops.jetstream.attributes
  - natsops.jetstream.attributes.info_module
  - natsops.jetstream.attributes.facts_module
seealso:
  - module: natsops.jetstream.nats_cluster_info
"""

EXAMPLES = r"""
- name: Gather the servers and the meta group as facts
  natsops.jetstream.nats_cluster_facts:
    detail: servers
    servers: [nats://n1.example.com:4222]
    user: sys
    password: "{{ nats_system_password }}"

- name: Show the meta leader
  ansible.builtin.debug:
    msg: "{{ ansible_facts['nats_cluster'].meta.leader }}"
"""

RETURN = r"""
ansible_facts:
  description: The facts.
  returned: success
  type: dict
  contains:
    nats_cluster:
      description:
        - The state of the cluster with the keys C(servers), C(meta), C(clusters), C(streams), C(raft_silent),
          C(common_flags), C(nameless), C(missing), C(problems) and C(healthy), as documented for
          M(natsops.jetstream.nats_cluster_info).
      returned: success
      type: dict
      sample:
        servers: [{name: n1-c1, cluster: C1, version: 2.10.27, jetstream: true}]
        meta: {leader: n1-c1, size: 3, quorum: 2}
        clusters: [{name: C1, servers: [n1-c1]}]
        streams: []
        raft_silent: []
        common_flags: []
        nameless: []
        missing: []
        problems: []
        healthy: true
"""

from collections.abc import Mapping
from typing import Any

from ..module_utils.collection_module import run
from ..module_utils.module import ACCOUNT_USERS_SPEC, ClientAndAccounts, make_module, with_client_and_accounts
from ..module_utils.reporting.cluster_info import CLUSTER_INFO_SPEC, read_cluster_info


def read(connected: ClientAndAccounts, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result. Raises NatsFailure."""
    return {"ansible_facts": {"nats_cluster": read_cluster_info(connected.client, params, connected.accounts)}}


def main() -> None:
    module = make_module({**CLUSTER_INFO_SPEC, **ACCOUNT_USERS_SPEC})
    run(module, with_client_and_accounts, lambda connected: read(connected, module.params))


if __name__ == "__main__":
    main()
