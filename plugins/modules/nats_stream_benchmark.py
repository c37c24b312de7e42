#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_stream_benchmark
short_description: Measure how fast a temporary stream stores and delivers messages
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Creates a stream, publishes messages and waits for their acknowledgements, reads them back with a pull consumer, and
    deletes the stream. Nothing is left behind, even after a failure.
  - Existing streams stay unused. To measure the settings of one of them, copy its number of replicas, storage
    and placement from M(natsops.jetstream.nats_stream_info).
  - The figures include the client, a Python program on the host of the module, which is slower than most servers. Use
    them to compare replicas, storage, placements and servers, not as the limit of a cluster.
  - Both phases end after O(max_duration), and the stream can occupy at most 4 GiB on all replicas together. The servers
    refuse it if they do not have enough room.
  - Needs a user of the account that may manage streams and publish below C(natsops.smoke_test.benchmark), such as one
    with the role C(natsops), or a user of the system account together with O(account) and O(account_users).
extends_documentation_fragment:
  - natsops.jetstream.accounts
  - natsops.jetstream.accounts.account
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
attributes:
  check_mode:
    support: full
    details:
      - Validates the options, and does not create the stream.
  diff_mode:
    support: none
  idempotent:
    support: full
    details:
      - The module never reports a change, because it leaves nothing behind.
options:
  messages:
    description: Number of messages, at most 1,000,000.
    type: int
    default: 10000
  message_size:
    description: Size of a message, such as V(256) or V(16KB). A bare number is in bytes.
    type: str
    default: 1KB
  window:
    description: Number of messages that are published before the acknowledgements of the first ones are awaited. With
      V(1), the latencies are those of single messages.
    type: int
    default: 100
  max_duration:
    description: Maximum duration of each phase, such as V(30s). A bare number is in seconds.
    type: str
    default: 30s
  replicas:
    description: Number of replicas of the stream.
    type: int
    default: 1
  storage:
    description: Where the stream stores the messages.
    type: str
    choices: [file, memory]
    default: file
  placement:
    description: Where the replicas are placed.
    type: dict
    suboptions:
      cluster:
        description: Name of the cluster.
        type: str
      tags:
        description: Tags that every server must have.
        type: list
        elements: str
seealso:
  - module: natsops.jetstream.nats_cluster_smoke_test
  - module: natsops.jetstream.nats_traffic_info
"""

EXAMPLES = r"""
- name: Measure the latency of single messages with three replicas
  natsops.jetstream.nats_stream_benchmark:
    messages: 1000
    window: 1
    replicas: 3
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"
  register: benchmark
"""

RETURN = r"""
leader:
  description: The server that led the stream. Null without a cluster and in check mode.
  returned: success
  type: str
  sample: n2-c1
publish:
  description: The published and acknowledged messages. C(p50_ms), C(p99_ms) and C(max_ms) are latencies until the
    acknowledgement, in milliseconds. Null in check mode.
  returned: success
  type: dict
  sample: {messages: 1000, seconds: 0.81, messages_per_second: 1234.6, bytes_per_second: 1264230, p50_ms: 0.74,
           p99_ms: 2.1, max_ms: 9.3}
consume:
  description: The messages that the pull consumer delivered. Null in check mode.
  returned: success
  type: dict
  sample: {messages: 1000, seconds: 0.05, messages_per_second: 20000.0, bytes_per_second: 20480000}
"""

from collections.abc import Mapping
from typing import Any

from ..module_utils.collection_module import run
from ..module_utils.health.benchmark import read_load
from ..module_utils.health.run_benchmark import run_benchmark
from ..module_utils.module import ACCOUNT_SPEC, make_module, with_accounts
from ..module_utils.nats.accounts import Connections
from ..module_utils.nats.client import NatsFailure


def ensure(connections: Connections, params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Return the module's result."""
    try:
        load = read_load(params)
    except ValueError as error:
        raise NatsFailure("invalid_option", str(error)) from error
    if check_mode:
        return {"changed": False, "leader": None, "publish": None, "consume": None}
    account = params["account"]
    placement = {key: value for key, value in (params["placement"] or {}).items() if value}
    measured = run_benchmark(connections.client(account), connections.account(account), load, placement)
    return {"changed": False, **measured}


def main() -> None:
    module = make_module(
        {
            "messages": {"type": "int", "default": 10000},
            "message_size": {"type": "str", "default": "1KB"},
            "window": {"type": "int", "default": 100},
            "max_duration": {"type": "str", "default": "30s"},
            "replicas": {"type": "int", "default": 1},
            "storage": {"type": "str", "choices": ["file", "memory"], "default": "file"},
            "placement": {
                "type": "dict",
                "options": {"cluster": {"type": "str"}, "tags": {"type": "list", "elements": "str"}},
            },
            **ACCOUNT_SPEC,
        }
    )
    run(module, with_accounts, lambda connections: ensure(connections, module.params, module.check_mode))


if __name__ == "__main__":
    main()
