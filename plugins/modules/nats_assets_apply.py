#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_assets_apply
short_description: Carry out an approved plan of streams, consumers and buckets
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Carries out the plan that M(natsops.jetstream.nats_assets_plan) made from the same documents. The plan is refused if
    a document, an asset or an entry has changed since, or if a change now has a cost that the plan does not list. Only
    the accepted changes are made.
  - Consumers that must go are deleted first. Then streams are updated and created, then consumers, mirrors, buckets and
    entries, and streams are deleted last. Each asset is read again immediately before its change, and the change is
    complete when its servers are in step.
  - After a failure, assets that do not depend on the failed one are still changed. An interrupted run is resumed with
    the same plan.
  - Streams and consumers are never deleted in order to create them differently. Entries are written only if their last
    revision is the planned one.
  - Needs a user of each account, or a user of the system account together with O(account_users). Only with a user of
    the system account, the module checks whether servers have room for additional replicas.
  - The playbook C(natsops.jetstream.assets_apply) reads the plan from a file.
extends_documentation_fragment:
  - natsops.jetstream.accounts
  - natsops.jetstream.backup_store
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details:
      - Values of entries are shown as hashes.
  idempotent:
    support: full
requirements:
  - PyYAML, for a document that is a text
options:
  documents:
    description:
      - The documents, each as YAML text or as a mapping, in the order in which they were planned.
    type: list
    elements: raw
    required: true
  plan:
    description:
      - The approved plan, RV(natsops.jetstream.nats_assets_plan#module:plan).
    type: dict
    required: true
  confirm_delete:
    description:
      - Names of the streams and buckets that may be deleted although they have messages.
    type: list
    elements: str
    default: []
  confirm_without_backup:
    description:
      - Names of the streams and buckets that may be deleted although no backup in O(backup_directory) is from the last
        24 hours.
    type: list
    elements: str
    default: []
  backup_directory:
    description:
      - The directory, or C(s3://BUCKET/PREFIX), of M(natsops.jetstream.nats_backup). Its catalogue proves that streams
        with messages have a recent backup.
    type: str
  wait_timeout:
    description:
      - Seconds that each change may take until it is complete.
    type: float
    default: 300
notes:
  - "Failures before anything is done have the codes V(stale), V(unconfirmed_deletion) and V(obstacle).
    V(not_applied) means that changes failed; RV(results) lists the result of each."
seealso:
  - module: natsops.jetstream.nats_assets_plan
  - module: natsops.jetstream.nats_stream
  - module: natsops.jetstream.nats_consumer
"""

EXAMPLES = r"""
- name: Carry out the approved plan
  natsops.jetstream.nats_assets_apply:
    documents:
      - "{{ lookup('ansible.builtin.file', 'orders.yml') }}"
    plan: "{{ lookup('ansible.builtin.file', 'assets_plan-C1.json') | from_json }}"
    confirm_delete: [ORDERS_OLD]
    backup_directory: /srv/nats-backups
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"
"""

RETURN = r"""
steps:
  description:
    - The changes in their order, as in C(steps) of RV(natsops.jetstream.nats_assets_plan#module:plan), with their values
      and costs. A plan that has been carried out before has none.
  returned: success
  type: list
  elements: dict
  sample:
    - phase: update streams
      kind: stream
      name: ORDERS
      account: APP
      action: change
      after: []
      changes: [{path: max_age, from: 1d, to: 7d}]
      costs: []
results:
  description: All steps, each with C(result) V(done), V(failed) or V(skipped), and the C(reason).
  returned: if a change failed
  type: list
  elements: dict
  sample: [{account: APP, kind: stream, name: ORDERS, action: change, result: failed, reason: no room}]
lines:
  description: The steps as readable text.
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

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.assets.apply import AssetsApproval
from ..module_utils.assets.run_apply import apply_plan
from ..module_utils.assets.run_read import desired_documents
from ..module_utils.backup.target import PLACE_SPEC, requested_store
from ..module_utils.collection_module import run
from ..module_utils.module import ACCOUNT_USERS_SPEC, fail, make_module, with_accounts
from ..module_utils.nats.accounts import Connections
from ..module_utils.waiting import positive


def ensure(module: AnsibleModule, connections: Connections) -> dict[str, Any]:
    """Return the module's result, or end the module with the failed steps."""
    params = module.params
    approval = AssetsApproval(params["plan"], params["confirm_delete"], params["confirm_without_backup"])
    store = requested_store(params, "backup_directory") if params["backup_directory"] else None
    wait_timeout = positive(params["wait_timeout"], "wait_timeout")
    documents = desired_documents(params["documents"])
    outcome = apply_plan(connections, documents, approval, store, wait_timeout, module.check_mode)
    if outcome.failure is not None:
        fail(module, outcome.failure, **outcome.result)
    return outcome.result


def main() -> None:
    module = make_module(
        {
            "documents": {"type": "list", "elements": "raw", "required": True},
            "plan": {"type": "dict", "required": True},
            "confirm_delete": {"type": "list", "elements": "str", "default": []},
            "confirm_without_backup": {"type": "list", "elements": "str", "default": []},
            "backup_directory": {"type": "str"},
            "wait_timeout": {"type": "float", "default": 300},
            **PLACE_SPEC,
            **ACCOUNT_USERS_SPEC,
        }
    )
    run(module, with_accounts, lambda connections: ensure(module, connections))


if __name__ == "__main__":
    main()
