#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_object
short_description: Upload, download and delete an object of an object bucket
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Stores a file as an object, writes an object to a file, or deletes an object. An object or a file with the same
    checksum is not written again.
  - The upload is complete when its description is written, so clients see either the old or the new content. Chunks of
    a failed upload are removed. A download is verified by its checksum before it replaces the file.
  - Needs a user of the owning account that may publish to C($O.<bucket>.>), or a user of the system account together
    with O(account) and O(account_users). The role C(natsops) of a signing key permits only downloads.
extends_documentation_fragment:
  - natsops.jetstream.accounts
  - natsops.jetstream.accounts.account
  - natsops.jetstream.assets
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details:
      - Shows sizes and checksums.
  idempotent:
    support: full
options:
  bucket:
    description: Name of the bucket, which must exist.
    type: str
    required: true
  name:
    description: Name of the object.
    type: str
    required: true
  state:
    description:
      - V(present) stores the file O(src) as the object, V(fetched) writes the object to the file O(dest).
      - V(absent) deletes the object, and needs V(data_loss) in O(allow).
    type: str
    choices: [present, absent, fetched]
    default: present
  src:
    description: File on the host on which the module runs. Required if O(state=present).
    type: path
  dest:
    description: File on the host on which the module runs. A new file has the mode 0640. Required if O(state=fetched).
    type: path
  description:
    description: Purpose of the object.
    type: str
    default: ""
seealso:
  - module: natsops.jetstream.nats_object_info
  - module: natsops.jetstream.nats_object_bucket
"""

EXAMPLES = r"""
- name: Store the price list
  natsops.jetstream.nats_object:
    bucket: reports
    name: prices.csv
    src: /srv/prices.csv
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"

- name: Write the price list to a file
  natsops.jetstream.nats_object:
    bucket: reports
    name: prices.csv
    state: fetched
    dest: /srv/prices-copy.csv
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"

- name: Delete the price list
  natsops.jetstream.nats_object:
    bucket: reports
    name: prices.csv
    state: absent
    allow: [data_loss]
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"
"""

RETURN = r"""
before:
  description: The object before the change, null if it did not exist.
  returned: success
  type: dict
  sample: null
after:
  description: The object after the change, null if it is deleted.
  returned: success
  type: dict
  sample:
    name: prices.csv
    size: 310
    chunks: 1
    sha256: 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae
    description: ""
    link: null
dangers:
  description: Dangers of the change that O(allow) permitted.
  returned: success
  type: list
  elements: dict
  sample: [{kind: data_loss, message: object prices.csv (310 B) is deleted}]
waited:
  description: Seconds that the run took.
  returned: success
  type: float
  sample: 0.2
"""

from collections.abc import Mapping
from typing import Any

from ..module_utils.assets.run_objects import (
    ObjectBucket,
    ObjectContent,
    ensure_fetched,
    ensure_no_object,
    ensure_object,
    file_digest,
)
from ..module_utils.assets.state import COMMON_SPEC, RunOptions
from ..module_utils.collection_module import run
from ..module_utils.module import ACCOUNT_SPEC, make_module, with_accounts
from ..module_utils.nats.accounts import Connections
from ..module_utils.nats.client import NatsFailure


def ensure(connections: Connections, params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Return the module's result."""
    run_options = RunOptions.of(params, check_mode)
    bucket = ObjectBucket(connections.account(params["account"]), params["bucket"])
    try:
        if params["state"] == "absent":
            return ensure_no_object(bucket, params["name"], run_options)
        if params["state"] == "fetched":
            return ensure_fetched(bucket, params["name"], params["dest"], run_options)
        upload = ObjectContent(params["src"], *file_digest(params["src"]), params["description"])
        return ensure_object(bucket, params["name"], upload, run_options)
    except OSError as error:
        option = "dest" if params["state"] == "fetched" else "src"
        raise NatsFailure("invalid_option", f"{option}: {error.filename}: {error.strerror}") from error


def main() -> None:
    module = make_module(
        {
            "bucket": {"type": "str", "required": True},
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent", "fetched"], "default": "present"},
            "src": {"type": "path"},
            "dest": {"type": "path"},
            "description": {"type": "str", "default": ""},
            **COMMON_SPEC,
            **ACCOUNT_SPEC,
        },
        required_if=[("state", "present", ("src",)), ("state", "fetched", ("dest",))],
    )
    run(module, with_accounts, lambda connections: ensure(connections, module.params, module.check_mode))


if __name__ == "__main__":
    main()
