#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_replica_count_plan
short_description: Plan other numbers of replicas for streams and their consumers
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Finds the streams by patterns of their names, and returns for each that does not have the wanted number of replicas what has
    to be done, who would take the new replicas by the rules of the meta leader (cluster, tags, unique_tag, room), or why it
    cannot be.
  - All changes are judged together, those that free room first, so that the last one still finds room.
  - A stream any of whose replicas is not in step is refused, so that fewer replicas never take away the only good one.
  - It only plans. M(natsops.jetstream.nats_stream) and M(natsops.jetstream.nats_consumer) carry it out.
  - The connection must be that of a user of the system account.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
  - natsops.jetstream.attributes.info_module
options:
  streams:
    description:
      - What shall be. A stream that more than one entry matches belongs to the first of them.
    type: list
    elements: dict
    required: true
    suboptions:
      account:
        description: Account that owns the streams, by name or, in operator mode, by public key.
        type: str
        required: true
      stream:
        description: Name of the stream, in which V(*) and V(?) match any characters and any one.
        type: str
        required: true
      num_replicas:
        description: Number of replicas, 1 to 5.
        type: int
        required: true
      consumers:
        description:
          - What becomes of consumers that have a number of replicas of their own. With V(keep) it stays, but is never more than
            that of the stream. With V(follow) they follow their stream from now on. All others follow it in any case.
        type: str
        choices: [keep, follow]
        default: keep
  accounts:
    description:
      - Accounts whose streams can be changed because there is a user for them. A change in another one is refused. By default
        this is not judged.
    type: list
    elements: str
seealso:
  - module: natsops.jetstream.nats_stream
  - module: natsops.jetstream.nats_consumer
"""

EXAMPLES = r"""
- name: Plan three replicas for all streams of APP
  natsops.jetstream.nats_replica_count_plan:
    streams:
      - {account: APP, stream: "*", num_replicas: 3}
    context: c1-sys
  register: plan
"""

RETURN = r"""
refusals:
  description: Every reason for which the changes may not begin, and what to do about it. Empty when they may.
  returned: success
  type: list
  elements: str
  sample: [No stream matches APP/ORDER.]
refusal:
  description: The same for people, as much of it as fits a screen.
  returned: success
  type: str
  sample: No stream matches APP/ORDER.
lines:
  description: The changes for people.
  returned: success
  type: list
  elements: str
  sample: ['APP/ORDERS: R3 to R5 on n4-c1, n5-c1 or others that fit']
changes:
  description:
    - The changes that are needed, in their order. C(gains) are the servers that the meta leader would add, C(consumers) the new
      number of each consumer that has one of its own, 0 to follow. C(refused) says why it cannot be done, empty when it can.
  returned: success
  type: list
  elements: dict
  sample:
    - {account: APP, account_name: APP, stream: ORDERS, before: 3, after: 5, gains: [n4-c1, n5-c1], consumers: {}, bytes: 420000,
       refused: ''}
unmatched:
  description: Entries that no stream matches, as C(ACCOUNT/STREAM).
  returned: success
  type: list
  elements: str
  sample: []
"""

from collections.abc import Mapping
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.cluster.replica_count import (
    FOLLOW,
    KEEP,
    ReplicaCount,
    plan_replica_count,
    replica_count_lines,
    replica_count_refusals,
    unmatched,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.module import make_module, run_connected
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.account_names import one_account
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.accounts import Connections
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.system_api import SystemApi
from ansible_collections.natsops.jetstream.plugins.module_utils.operations.cluster_reader import read_led_cluster
from ansible_collections.natsops.jetstream.plugins.module_utils.screen import listed


def plan(connections: Connections, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result. Raises NatsFailure invalid_option."""
    for entry in params["streams"]:
        if not 1 <= entry["num_replicas"] <= 5:
            raise NatsFailure("invalid_option", f"num_replicas: must be 1 to 5, not {entry['num_replicas']}")
    cluster = read_led_cluster(SystemApi(connections.own))
    wanted = [
        ReplicaCount(
            one_account(cluster.accounts, entry["account"]), entry["stream"], entry["num_replicas"], entry["consumers"]
        )
        for entry in params["streams"]
    ]
    changes = plan_replica_count(cluster, wanted)
    refusals = replica_count_refusals(cluster, wanted, changes, params["accounts"])
    return {
        "changed": False,
        "refusals": refusals,
        "refusal": listed(refusals),
        "lines": replica_count_lines(changes),
        "changes": [
            {
                "account": change.account,
                "account_name": change.account_name or change.account,
                "stream": change.stream,
                "before": change.before,
                "after": change.after,
                "gains": list(change.gains),
                "consumers": dict(change.consumers),
                "bytes": change.size,
                "refused": change.refused,
            }
            for change in changes
        ],
        "unmatched": unmatched(cluster, wanted),
    }


def main() -> None:
    module = make_module(
        {
            "streams": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "account": {"type": "str", "required": True},
                    "stream": {"type": "str", "required": True},
                    "num_replicas": {"type": "int", "required": True},
                    "consumers": {"type": "str", "choices": [KEEP, FOLLOW], "default": KEEP},
                },
            },
            "accounts": {"type": "list", "elements": "str"},
        }
    )
    run_connected(module, lambda connections: plan(connections, module.params))


if __name__ == "__main__":
    main()
