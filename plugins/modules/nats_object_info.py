#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_object_info
short_description: List the objects of an object bucket
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Returns the name, size and checksum of each object, at most 10,000. The module does not read their content.
  - Needs a user of the owning account, or a user of the system account together with O(account) and O(account_users).
extends_documentation_fragment:
  - natsops.jetstream.accounts
  - natsops.jetstream.accounts.account
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
  - natsops.jetstream.attributes.info_module
options:
  bucket:
    description: Name of the bucket.
    type: str
    required: true
seealso:
  - module: natsops.jetstream.nats_object
"""

EXAMPLES = r"""
- name: List all reports
  natsops.jetstream.nats_object_info:
    bucket: reports
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"
  register: reports
"""

RETURN = r"""
objects:
  description: The objects, sorted by name. C(link) is the target of a link, such as C(bucket/name).
  returned: success
  type: list
  elements: dict
  sample:
    - name: prices.csv
      size: 310
      chunks: 1
      sha256: 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae
      description: ""
      link: null
      modified: "2026-11-20T10:00:02Z"
"""

from collections.abc import Mapping
from typing import Any

from ..module_utils.assets.run_objects import ObjectBucket
from ..module_utils.collection_module import run
from ..module_utils.module import ACCOUNT_SPEC, make_module, with_accounts
from ..module_utils.nats.accounts import Connections


def read(connections: Connections, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result."""
    bucket = ObjectBucket(connections.account(params["account"]), params["bucket"])
    return {"changed": False, "objects": [item.shown() for item in bucket.objects()]}


def main() -> None:
    module = make_module({"bucket": {"type": "str", "required": True}, **ACCOUNT_SPEC})
    run(module, with_accounts, lambda connections: read(connections, module.params))


if __name__ == "__main__":
    main()
