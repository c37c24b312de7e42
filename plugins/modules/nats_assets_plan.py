#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_assets_plan
short_description: Compare documents of streams, consumers and buckets with the live assets
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Compares the streams, consumers, buckets and entries that documents declare with the live assets of their accounts.
    Returns the changes with old and new values, and the cost of each change, counted on the live assets. The module
    changes nothing.
  - The documents are described in C(docs/assets.md).
  - Needs a user of each account, or a user of the system account together with O(account_users). Only with a user of
    the system account, the plan considers the release of every server and whether enough servers can hold the replicas.
  - The playbook C(natsops.jetstream.assets_plan) shows the plan and writes it to a file.
extends_documentation_fragment:
  - natsops.jetstream.accounts
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
  - natsops.jetstream.attributes.info_module
requirements:
  - PyYAML, for a document that is a text
options:
  documents:
    description:
      - The documents, each as YAML text or as a mapping. All errors are reported at once, each with the path of its key.
    type: list
    elements: raw
    required: true
  confirm:
    description:
      - Names of assets whose changes may have costs, such as V(ORDERS) for a stream or bucket, or V(ORDERS/billing) for
        a consumer.
    type: list
    elements: str
    default: []
  confirm_delete:
    description: Names of assets that may be deleted with their messages.
    type: list
    elements: str
    default: []
seealso:
  - module: natsops.jetstream.nats_stream
  - module: natsops.jetstream.nats_consumer
  - module: natsops.jetstream.nats_kv_bucket
  - module: natsops.jetstream.nats_object_bucket
"""

EXAMPLES = r"""
- name: Plan the assets of two teams
  natsops.jetstream.nats_assets_plan:
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"
    documents:
      - "{{ lookup('ansible.builtin.file', 'orders.yml') }}"
      - "{{ lookup('ansible.builtin.template', 'billing.yml.j2') }}"
  register: assets

- name: Show the plan
  natsops.jetstream.nats_show:
    name: assets_plan
    lines: "{{ assets.lines }}"
    screen: "{{ assets.screen }}"
"""

RETURN = r"""
plan:
  description:
    - The plan. C(fingerprint) changes whenever a document, the configuration of an asset or a value changes.
    - C(state) of an asset is V(same), V(create), V(change), V(delete), V(extra) (live, but in no document), V(foreign)
      (owned by a different document or tool), V(needs confirmation) or V(refused). C(action) is the planned action.
    - C(changes) lists the changes in the terms of the document. C(from) is null for a new asset. Values of entries are
      hashes.
    - C(costs) lists the losses and dangers of the change. C(count) is the number of messages or acknowledgements that it loses.
    - C(revision) identifies the state of the asset that the plan is based on.
    - C(steps) lists the accepted changes in the order in which they must be made.
    - C(problems) lists the reasons why the plan cannot be carried out.
  returned: success
  type: dict
  sample:
    version: 1
    documents: [{id: orders, cluster: C1, account: APP, hash: 7d1f0c2a9b3e}]
    assets:
      - kind: stream
        name: ORDERS
        account: APP
        document: orders
        state: needs confirmation
        action: change
        changes: [{path: max_msgs, from: -1, to: 10}]
        costs: [{kind: data_loss, message: "max_msgs: 10 deletes 990 of 1000 messages: …", count: 990}]
        problems: []
        notes: []
        revision: 5d0c3f0a9e1b2c3d
    problems: []
    steps: []
    fingerprint: 1c2d3e4f5a6b
drift:
  description:
    - The assets that differ from their documents, counted for each document. C(differing) describes the first ten. Assets
      that no document declares do not count, nor do those that only lack the marks of their document.
  returned: success
  type: dict
  sample:
    version: 1
    checked: "2026-11-29T02:00:00Z"
    documents:
      - document: orders
        cluster: C1
        account: APP
        problem: ""
        assets: 12
        drifting: 1
        differing: ["stream ORDERS: change: max_age: 1d → 7d"]
summary:
  description: The plan in one line.
  returned: success
  type: str
  sample: 1 needs confirmation, 4 same; loses 990 messages or acknowledgements
lines:
  description: The plan as readable text.
  returned: success
  type: list
  elements: str
  sample: []
screen:
  description: As much of RV(lines) as fits on a screen, for M(natsops.jetstream.nats_show).
  returned: success
  type: list
  elements: str
  sample: []
"""

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from ..module_utils.assets.drift import drift_content
from ..module_utils.assets.listing import visible_servers
from ..module_utils.assets.plan import make_plan
from ..module_utils.assets.plan_page import plan_page, summary
from ..module_utils.assets.run_read import account_apis, desired_documents, read_lives
from ..module_utils.collection_module import run
from ..module_utils.module import ACCOUNT_USERS_SPEC, make_module, with_accounts
from ..module_utils.nats.accounts import Connections


def plan(connections: Connections, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result."""
    documents = desired_documents(params["documents"])
    servers = visible_servers(connections.own)
    lives = read_lives(connections, servers, documents, account_apis(connections, servers, documents))
    found = make_plan(documents, lives, params["confirm"], params["confirm_delete"])
    now = f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
    return {
        "changed": False,
        "plan": found,
        "drift": drift_content(found, now),
        "summary": summary(found),
        **plan_page(found).as_dict(),
    }


def main() -> None:
    module = make_module(
        {
            "documents": {"type": "list", "elements": "raw", "required": True},
            "confirm": {"type": "list", "elements": "str", "default": []},
            "confirm_delete": {"type": "list", "elements": "str", "default": []},
            **ACCOUNT_USERS_SPEC,
        }
    )
    run(module, with_accounts, lambda connections: plan(connections, module.params))


if __name__ == "__main__":
    main()
