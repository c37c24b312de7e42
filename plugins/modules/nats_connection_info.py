#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_connection_info
short_description: Read the connections to NATS servers
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Returns the connections of clients and leafnodes to all servers, or only those that match every given filter, with
    their figures, and the totals for each server. Needs a user of the system account.
  - Secrets such as JWTs are left out. The user of a connection to the account V($G) is hidden on servers before
    2.11.4, because such a server reports a token instead.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.connections
  - natsops.jetstream.attributes
  - natsops.jetstream.attributes.info_module
options:
  kind:
    description:
      - Return only connections of these kinds.
    type: list
    elements: str
    choices: [client, leafnode]
    default: [client, leafnode]
  state:
    description:
      - Whether to return open connections, closed ones, or both. A server keeps the last 10000 closed connections, each
        with the time and the reason of its end.
    type: str
    choices: [open, closed, any]
    default: open
  sort:
    description:
      - Sort key. Names and V(start) are sorted in ascending order, figures in descending order, and V(stop) with the
        latest first.
    type: str
    choices: [server, cid, name, account, start, stop, uptime, idle, rtt, subscriptions, pending_bytes, in_msgs, out_msgs,
              in_bytes, out_bytes]
    default: server
  limit:
    description:
      - Maximum number of connections to return. The totals count all matching connections.
    type: int
seealso:
  - module: natsops.jetstream.nats_connection_kick
  - module: natsops.jetstream.nats_account_info
"""

EXAMPLES = r"""
- name: Read the ten clients for which most data is waiting
  natsops.jetstream.nats_connection_info:
    servers: [nats://n1.example.com:4222]
    user: sys
    password: "{{ nats_system_password }}"
    sort: pending_bytes
    limit: 10

- name: See why the clients of an account were disconnected
  natsops.jetstream.nats_connection_info:
    context: c1-sys
    account: APP
    state: closed
    sort: stop

- name: Find old client libraries
  natsops.jetstream.nats_connection_info:
    context: c1-sys
    lang: go
    version: "1.1?.*"
"""

RETURN = r"""
connections:
  description:
    - The connections. C(uptime), C(idle) and C(rtt) are in seconds, and C(rtt) is null until it is measured. A value
      that a server does not report is null.
  returned: success
  type: list
  elements: dict
  sample:
    - server: n1-c1
      server_id: NDHDGLW5VJ2JR3G5R5JJ6NGWSJ4XC3BIBVDIBAM6ROGHRGQQVHZQCL5O
      cluster: C1
      cid: 42
      kind: client
      type: nats
      account: APP
      user: app
      name: orders-worker
      ip: 10.0.1.7
      port: 51234
      lang: go
      version: 1.31.0
      state: open
      start: "2026-11-20T10:00:00Z"
      last_activity: "2026-11-20T11:00:00Z"
      uptime: 3605.2
      idle: 5.2
      rtt: 0.00046
      pending_bytes: 0
      in_msgs: 1200
      out_msgs: 1100
      in_bytes: 120000
      out_bytes: 98000
      subscriptions: 3
      stop: null
      reason: null
      tls_version: "1.3"
      tls_cipher_suite: TLS_AES_128_GCM_SHA256
      mqtt_client: null
      name_tag: APP
      tags: null
servers:
  description: The servers that reported their connections, each with the totals of its matching connections.
  returned: success
  type: list
  elements: dict
  sample:
    - {name: n1-c1, id: NDHDGLW5VJ2JR3G5R5JJ6NGWSJ4XC3BIBVDIBAM6ROGHRGQQVHZQCL5O, cluster: C1, connections: 1, subscriptions: 3,
       pending_bytes: 0, in_msgs: 1200, out_msgs: 1100, in_bytes: 120000, out_bytes: 98000}
total:
  description: Number of matching connections, even if O(limit) returns fewer.
  returned: success
  type: int
  sample: 1
missing:
  description: Servers in O(server_names) that did not answer.
  returned: success
  type: list
  elements: str
  sample: []
incomplete:
  description: Servers that answered, but did not return their connections.
  returned: success
  type: list
  elements: dict
  sample: []
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..module_utils.assets.connections import ANY, CLOSED, FILTER_SPEC, OPEN, read_connections
from ..module_utils.collection_module import run
from ..module_utils.module import make_module, with_client
from ..module_utils.nats.client import Client, NatsFailure
from ..module_utils.nats.system_api import SystemApi

_UPWARDS = ("server", "cid", "name", "account", "start")
_FIGURES = ("subscriptions", "pending_bytes", "in_msgs", "out_msgs", "in_bytes", "out_bytes")
_DOWNWARDS = ("stop", "uptime", "idle", "rtt", *_FIGURES)


def sort_rows(rows: Sequence[Mapping[str, Any]], by: str) -> list[Mapping[str, Any]]:
    """Return the connections in the requested order. Unknown values come last; ties are sorted by server and number."""
    known = sorted((row for row in rows if row[by] is not None), key=lambda row: (row["server"], row["cid"]))
    known.sort(key=lambda row: row[by], reverse=by in _DOWNWARDS)
    return [*known, *(row for row in rows if row[by] is None)]


def read(client: Client, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result."""
    if params["limit"] is not None and params["limit"] < 1:
        raise NatsFailure("invalid_option", "limit: must be 1 or more")
    reading = read_connections(SystemApi(client), params, params["kind"], params["state"])
    servers = []
    for server in reading.servers:
        mine = [row for row in reading.connections if row["server_id"] == server.id]
        totals = {name: sum(row[name] or 0 for row in mine) for name in _FIGURES}
        servers.append(
            {"name": server.name, "id": server.id, "cluster": server.cluster, "connections": len(mine), **totals}
        )
    return {
        "changed": False,
        "connections": sort_rows(reading.connections, params["sort"])[: params["limit"]],
        "servers": servers,
        "total": len(reading.connections),
        "missing": reading.missing,
        "incomplete": reading.incomplete,
    }


def main() -> None:
    module = make_module(
        {
            **FILTER_SPEC,
            "kind": {
                "type": "list",
                "elements": "str",
                "choices": ["client", "leafnode"],
                "default": ["client", "leafnode"],
            },
            "state": {"type": "str", "choices": [OPEN, CLOSED, ANY], "default": OPEN},
            "sort": {"type": "str", "choices": [*_UPWARDS, *_DOWNWARDS], "default": "server"},
            "limit": {"type": "int"},
        },
    )
    run(module, with_client, lambda client: read(client, module.params))


if __name__ == "__main__":
    main()
