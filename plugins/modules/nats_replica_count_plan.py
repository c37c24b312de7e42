#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_replica_count_plan
short_description: Plan a change of the number of replicas of streams and their consumers
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Finds the streams by name patterns. For each stream without the desired number of replicas, it returns the required
    steps, or the reason why the change is impossible. The module also returns the servers that would take the new
    replicas by the rules of the meta leader (cluster, tags, unique_tag, room).
  - All changes are checked together, starting with the changes that free room, so there is enough room even for the
    last change.
  - Changes to a stream with a replica that is not in step are refused, so a reduction never removes the only good
    replica.
  - This module only plans. M(natsops.jetstream.nats_stream) and M(natsops.jetstream.nats_consumer) carry out the
    changes.
  - Connect as a user of the system account.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
  - natsops.jetstream.attributes.info_module
options:
  streams:
    description:
      - The desired state. The first entry that matches a stream applies.
    type: list
    elements: dict
    required: true
    suboptions:
      account:
        description: Account that owns the streams, by name or, in operator mode, by public key.
        type: str
        required: true
      stream:
        description: Name of the stream, where V(*) matches any characters and V(?) exactly one.
        type: str
        required: true
      num_replicas:
        description: Number of replicas, 1 to 5.
        type: int
        required: true
      consumers:
        description:
          - How to treat consumers with their own number of replicas. With V(keep), these consumers keep their number,
            but never have more replicas than the stream. With V(follow), these consumers follow their stream from now
            on. All other consumers always follow their stream.
        type: str
        choices: [keep, follow]
        default: keep
  accounts:
    description:
      - Accounts whose streams can be changed because C(account_users) has a user for them. A change in any other
        account is refused. By default, this is not checked.
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
  description: Every reason that prevents the changes, with its remedy. Empty if the changes may begin.
  returned: success
  type: list
  elements: str
  sample: [No stream matches APP/ORDER.]
refusal:
  description: The content of RV(refusals) as human-readable text, limited to one screen.
  returned: success
  type: str
  sample: No stream matches APP/ORDER.
lines:
  description: The changes as human-readable lines.
  returned: success
  type: list
  elements: str
  sample: ['APP/ORDERS: R3 to R5 on n4-c1, n5-c1 or others that fit']
changes:
  description:
    - The required changes in order. C(gains) lists the servers that the meta leader would add. C(consumers) contains
      the new number of replicas of each consumer that has its own number; 0 means that it follows the stream.
      C(refused) is the reason why the change is impossible; empty if it is possible.
  returned: success
  type: list
  elements: dict
  sample:
    - {account: APP, account_name: APP, stream: ORDERS, before: 3, after: 5, gains: [n4-c1, n5-c1], consumers: {}, bytes: 420000,
       refused: ''}
unmatched:
  description: Entries of O(streams) that match no stream, as C(ACCOUNT/STREAM).
  returned: success
  type: list
  elements: str
  sample: []
"""

from collections.abc import Mapping
from typing import Any

from ..module_utils.collection_module import run
from ..module_utils.module import make_module, with_accounts
from ..module_utils.nats.account_names import one_account
from ..module_utils.nats.accounts import Connections
from ..module_utils.nats.client import NatsFailure
from ..module_utils.nats.system_api import SystemApi
from ..module_utils.placement.cluster_reader import read_led_cluster
from ..module_utils.placement.replica_count import (
    FOLLOW,
    KEEP,
    ReplicaCount,
    plan_replica_count,
    replica_count_lines,
    replica_count_refusals,
    unmatched,
)
from ..module_utils.screen import listed


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
    run(module, with_accounts, lambda connections: plan(connections, module.params))


if __name__ == "__main__":
    main()
