#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_message_trace_info
short_description: Trace the path that a message would take, without delivering it
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Sends a message that servers only trace. They neither deliver nor store it, and report through which servers,
    mappings, imports and exports it passes, which stream would store it, and which clients would receive it.
  - Use this module if messages do not arrive, for example because of a permission, a missing import, or an overlapping
    mapping.
  - Needs nats-server 2.11 on the connected server, and a user that may publish to O(subject) and to its own inbox,
    which the role C(natsops) of a signing key does not permit.
    An older server further along the path is reported as an error of the delivery to it.
extends_documentation_fragment:
  - natsops.jetstream.accounts
  - natsops.jetstream.accounts.account
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
  - natsops.jetstream.attributes.info_module
options:
  subject:
    description: Subject of the message, without wildcards.
    type: str
    required: true
seealso:
  - module: natsops.jetstream.nats_connection_info
  - module: natsops.jetstream.nats_traffic_info
"""

EXAMPLES = r"""
- name: Find out why orders do not arrive
  natsops.jetstream.nats_message_trace_info:
    subject: orders.berlin.1
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"
  register: path

- name: Show the path
  ansible.builtin.debug:
    var: path.lines
"""

RETURN = r"""
complete:
  description: Whether every server on the path has reported. V(false) if a server did not report in time.
  returned: success
  type: bool
  sample: true
hops:
  description:
    - The servers on the path. C(hop) is empty for the connected server; C(1.2) is the second server to which the server
      with the hop C(1) has forwarded the message.
    - C(kind) is V(client), V(route), V(gateway), V(leafnode), V(jetstream), V(account) or V(system). C(error) contains
      the reason if the message would not be delivered or stored.
  returned: success
  type: list
  elements: dict
  sample:
    - hop: ""
      server: n1-c1
      cluster: C1
      received_from: {kind: client, name: null, cid: 12, account: APP, subject: orders.berlin.1, error: null}
      mapped_to: null
      exports: []
      imports: []
      stream: {name: ORDERS, subject: orders.berlin.1, no_interest: false, error: null}
      deliveries:
        - {kind: route, name: n2-c1, cid: 7, account: null, subscription: null, queue: null, hop: "1", error: null}
    - hop: "1"
      server: n2-c1
      cluster: C1
      received_from: {kind: route, name: n1-c1, cid: 8, account: APP, subject: orders.berlin.1, error: null}
      mapped_to: null
      exports: []
      imports: []
      stream: null
      deliveries:
        - {kind: client, name: worker, cid: 31, account: null, subscription: orders.>, queue: null, hop: null, error: null}
lines:
  description: The path as text, one line for each server, stream and receiver.
  returned: success
  type: list
  elements: str
  sample: ["n1-c1 from client", "  stream ORDERS", "  n2-c1 from route n1-c1", "    client worker (orders.>)"]
receivers:
  description: Number of clients that would receive the message.
  returned: success
  type: int
  sample: 1
streams:
  description: The streams that would store the message.
  returned: success
  type: list
  elements: str
  sample: [ORDERS]
errors:
  description: The reasons why the message would not be delivered or stored.
  returned: success
  type: list
  elements: str
  sample: []
"""

import json
from collections.abc import Mapping
from typing import Any

from ..module_utils.collection_module import run
from ..module_utils.health.message_path import (
    TRACE_DESTINATION,
    TRACE_ONLY,
    TRACED_SINCE,
    is_complete,
    lines,
    read_hops,
    summary,
)
from ..module_utils.module import ACCOUNT_SPEC, make_module, with_accounts
from ..module_utils.nats.accounts import Connections
from ..module_utils.nats.client import Call, NatsFailure, Reply, refuse_constant
from ..module_utils.versions import reported_version


def read(connections: Connections, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result."""
    subject = params["subject"]
    if not subject or any(part in ("", "*", ">") for part in subject.split(".")) or any(map(str.isspace, subject)):
        raise NatsFailure("invalid_option", f"subject: {subject!r} is not the subject of one message")
    client = connections.client(params["account"])
    client.connect()
    if reported_version(client.server_version)[:2] < TRACED_SINCE:
        raise NatsFailure(
            "unsupported",
            f"tracing needs nats-server 2.11, and the connected server runs {client.server_version}, which would "
            "deliver the message; connect to an upgraded server",
        )
    events: list[dict[str, Any]] = []

    def on_reply(reply: Reply) -> bool:
        events.append(json.loads(reply.body, parse_constant=refuse_constant))
        return is_complete(events)

    try:
        client.gather(Call(subject, headers={TRACE_ONLY: "true"}, inbox_header=TRACE_DESTINATION), on_reply)
        hops = read_hops(events)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise NatsFailure("bad_reply", f"a trace event cannot be parsed: {error}", subject=subject) from error
    return {"changed": False, "complete": is_complete(events), "hops": hops, "lines": lines(hops), **summary(hops)}


def main() -> None:
    module = make_module({"subject": {"type": "str", "required": True}, **ACCOUNT_SPEC})
    run(module, with_accounts, lambda connections: read(connections, module.params))


if __name__ == "__main__":
    main()
