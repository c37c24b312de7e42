#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_stream_message_info
short_description: Read messages of a stream by sequence or subject
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Returns messages with their headers and content. No consumer is created, and the position of no consumer changes.
  - Needs a user of the owning account, or a user of the system account together with O(account) and O(account_users).
  - Messages may be secret; set C(no_log) on the task if they must not appear in the log.
extends_documentation_fragment:
  - natsops.jetstream.accounts
  - natsops.jetstream.accounts.account
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
  - natsops.jetstream.attributes.info_module
options:
  stream:
    description: Name of the stream.
    type: str
    required: true
  subject:
    description: Read only the messages of this subject, which may contain wildcards.
    type: str
    default: ">"
  first_sequence:
    description: Begin with this sequence, or with the next one that exists.
    type: int
    default: 1
  last_sequence:
    description: End with this sequence.
    type: int
  newest:
    description: Read only the newest message. Cannot be combined with sequences.
    type: bool
    default: false
  limit:
    description: Maximum number of messages, from 1 to 1000. Reading also ends after about 8 MiB.
    type: int
    default: 100
seealso:
  - module: natsops.jetstream.nats_stream_info
  - module: natsops.jetstream.nats_message_trace_info
"""

EXAMPLES = r"""
- name: Read the messages 10 to 20
  natsops.jetstream.nats_stream_message_info:
    stream: ORDERS
    first_sequence: 10
    last_sequence: 20
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"
  register: orders

- name: Read the newest order from Berlin
  natsops.jetstream.nats_stream_message_info:
    stream: ORDERS
    subject: orders.berlin.>
    newest: true
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"
"""

RETURN = r"""
messages:
  description:
    - The messages by sequence; deleted ones are missing. C(data) is null if the content is not text; C(data_base64) then
      contains it.
  returned: success
  type: list
  elements: dict
  sample:
    - sequence: 10
      subject: orders.berlin.1
      time: "2026-11-20T10:00:02Z"
      headers: {Nats-Msg-Id: ["4711"]}
      data: '{"item": 1}'
      data_base64: null
next_sequence:
  description: The sequence of the next message, if reading ended because of O(limit) or the size; otherwise null.
  returned: success
  type: int
  sample: 110
"""

from collections.abc import Mapping
from typing import Any

from ..module_utils.assets.run_messages import read_messages
from ..module_utils.collection_module import run
from ..module_utils.module import ACCOUNT_SPEC, make_module, with_accounts
from ..module_utils.nats.accounts import Connections


def read(connections: Connections, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result. Raises NatsFailure."""
    return read_messages(connections, params)


def main() -> None:
    module = make_module(
        {
            "stream": {"type": "str", "required": True},
            "subject": {"type": "str", "default": ">"},
            "first_sequence": {"type": "int", "default": 1},
            "last_sequence": {"type": "int"},
            "newest": {"type": "bool", "default": False},
            "limit": {"type": "int", "default": 100},
            **ACCOUNT_SPEC,
        }
    )
    run(module, with_accounts, lambda connections: read(connections, module.params))


if __name__ == "__main__":
    main()
