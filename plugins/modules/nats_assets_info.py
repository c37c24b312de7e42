#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_assets_info
short_description: Read the streams, consumers and buckets of an account as a document
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Reads the streams, durable consumers and buckets of an account, and returns them as a document for
    M(natsops.jetstream.nats_assets_plan). The document is described in C(docs/assets.md). It states only values that
    differ from the defaults. The module changes nothing.
  - A plan of the document is empty, except that it adopts the assets that no document owns. The module checks this
    before it returns the document. RV(omitted) lists assets that belong to a different document or tool, and assets that
    no document can declare. Assets of the Kubernetes controller NACK carry no mark, so they appear under C(adopt); use
    O(streams) to select other assets.
  - The module fails if the state of a selected stream or consumer is unknown.
  - Needs a user of the account, or a user of the system account together with O(account_users).
extends_documentation_fragment:
  - natsops.jetstream.accounts
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
  - natsops.jetstream.attributes.info_module
requirements:
  - PyYAML
options:
  account:
    description:
      - Name of the account.
    type: str
    required: true
  document:
    description:
      - Name of the document. Assets that carry this name in their metadata belong to it.
    type: str
    required: true
  streams:
    description:
      - Patterns of the streams to export, such as V(ORDERS*), or V(KV_settings) for a bucket.
    type: list
    elements: str
    default: ['*']
  seed_buckets:
    description:
      - Patterns of the key-value buckets with entries to export. A plan creates these entries if they are absent.
      - The document and the result contain the values in clear text. Do not export buckets with secrets, and set
        C(no_log) if the values are confidential.
    type: list
    elements: str
    default: []
  own_buckets:
    description:
      - As O(seed_buckets), but a plan also corrects values that differ. Use it only for keys that no application writes.
    type: list
    elements: str
    default: []
  max_entries:
    description:
      - The entries of a bucket with more keys are omitted.
    type: int
    default: 1000
  max_entry_size:
    description:
      - Entries with larger values are omitted.
    type: str
    default: 64KiB
seealso:
  - module: natsops.jetstream.nats_assets_plan
"""

EXAMPLES = r"""
- name: Read the assets of an account
  natsops.jetstream.nats_assets_info:
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"
    account: APP
    document: orders
    streams: [ORDERS*, KV_settings]
  register: assets

- name: Write the document
  ansible.builtin.copy:
    content: "{{ assets.text }}"
    dest: orders.yml
    mode: "0600"
  delegate_to: localhost
"""

RETURN = r"""
document:
  description: The document as a mapping.
  returned: success
  type: dict
  sample:
    document: orders
    cluster: C1
    account: APP
    streams:
      ORDERS:
        subjects: [orders.>]
        replicas: 3
        max_age: 7d
        consumers:
          billing: {filter_subjects: [orders.created]}
    adopt: [ORDERS]
text:
  description: The document as YAML. Its first line names the JSON schema.
  returned: success
  type: str
  sample: "document: orders"
omitted:
  description: Assets that the document does not declare, with the reasons.
  returned: success
  type: list
  elements: dict
  sample:
    - {kind: stream, name: LEGACY, reason: it belongs to terraform (metadata managed-by)}
summary:
  description: The document in one line.
  returned: success
  type: str
  sample: 12 streams, 3 kv, 30 consumers; 45 to adopt; 1 left out
lines:
  description: RV(omitted) as readable text.
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
from typing import Any

from ..module_utils.assets.export import ExportRequest, export_page, export_summary
from ..module_utils.assets.run_export import run_export
from ..module_utils.collection_module import run
from ..module_utils.module import ACCOUNT_USERS_SPEC, make_module, with_accounts
from ..module_utils.nats.accounts import Connections
from ..module_utils.nats.failures import NatsFailure
from ..module_utils.units import size_bytes


def read(connections: Connections, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result."""
    request = ExportRequest(
        params["document"], params["account"], params["streams"], params["seed_buckets"], params["own_buckets"]
    )
    try:
        max_entry_size = size_bytes(params["max_entry_size"])
    except ValueError as error:
        raise NatsFailure("invalid_option", f"max_entry_size: {error}") from error
    found = run_export(connections, request, params["max_entries"], max_entry_size)
    return {
        "changed": False,
        "document": found.content,
        "text": found.text,
        "omitted": [one.as_dict() for one in found.omitted],
        "summary": export_summary(found),
        **export_page(found).as_dict(),
    }


def main() -> None:
    module = make_module(
        {
            "account": {"type": "str", "required": True},
            "document": {"type": "str", "required": True},
            "streams": {"type": "list", "elements": "str", "default": ["*"]},
            "seed_buckets": {"type": "list", "elements": "str", "default": []},
            "own_buckets": {"type": "list", "elements": "str", "default": []},
            "max_entries": {"type": "int", "default": 1000},
            "max_entry_size": {"type": "str", "default": "64KiB"},
            **ACCOUNT_USERS_SPEC,
        }
    )
    run(module, with_accounts, lambda connections: read(connections, module.params))


if __name__ == "__main__":
    main()
