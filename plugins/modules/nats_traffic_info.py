#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_traffic_info
short_description: Measure the messages between NATS servers by kind
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Counts the messages of the system account by kind for a limited time, as C(nats traffic) does, such as Raft appends
    and votes, JetStream API requests and the servers' gossip. The module also reads how much traffic each server
    received and sent during that time. Needs a user of the system account.
  - Only messages in the system account have kinds. Messages of clients in other accounts are neither received nor
    inspected, but the figures in RV(servers) include them.
  - Raft appends carry the replicated data of streams and consumers. Raft appends are not visible for accounts with
    C(cluster_traffic=owner) (2.11 and later), which are replicated in their own account.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
  - natsops.jetstream.attributes.info_module
options:
  duration:
    description:
      - Seconds during which messages are counted, 1 to 60.
    type: float
    default: 10
  max_messages:
    description:
      - Maximum number of messages to count. The module stops at this number, so its load remains small even on a busy
        cluster.
    type: int
    default: 500000
notes:
  - "The module itself causes load. While it counts, the servers send it a copy of every message of the system account
    through the server to which it is connected. RV(observed) returns the number and size of these messages. Messages
    are counted and discarded."
  - If the module cannot keep up, the server closes the connection, and the module fails with the code
    V(connection_lost). Reduce O(max_messages).
seealso:
  - module: natsops.jetstream.nats_server_info
"""

EXAMPLES = r"""
- name: Measure the messages between the servers
  natsops.jetstream.nats_traffic_info:
    servers: [nats://n1.example.com:4222]
    user: sys
    password: "{{ nats_system_password }}"
    duration: 10
  register: traffic

- name: Show the kinds, the busiest first
  ansible.builtin.debug:
    msg: "{{ item.kind }}: {{ item.msgs_per_second }} messages per second"
  loop: "{{ traffic.kinds | sort(attribute='msgs', reverse=true) }}"
  loop_control:
    label: "{{ item.kind }}"
"""

RETURN = r"""
kinds:
  description:
    - The observed messages, each kind with its group. Every kind is listed, even with a count of 0. Bytes count only
      the payload.
    - Group C(raft) is C(raft_append) (replication, and the leaders' heartbeats), C(raft_reply), C(raft_proposal), C(raft_vote),
      C(raft_catchup) and C(raft_remove_peer).
    - Group C(cluster) is C(stream_sync) (catching up of a stream's replica), C(stream_info) and C(consumer_info)
      (requests to leaders), C(usage_update) (usage of each account) and C(cluster_reply).
    - Group C(jetstream) is C(jetstream_api) and C(jetstream_ack), as far as these messages use the system account.
    - Group C(system) is C(gossip) (the servers' and accounts' regular figures, connects and disconnects),
      C(system_request), C(system_reply) and C(system_other). This group includes the module's own requests and their
      replies.
    - Group C(other) is C(client), which is any other message sent in the system account.
  returned: success
  type: list
  elements: dict
  sample:
    - {kind: raft_append, group: raft, msgs: 120, bytes: 14400, msgs_per_second: 12.0, bytes_per_second: 1440.0}
observed:
  description:
    - The total of the observed messages, with C(seconds) and the server to which the module was connected. C(complete)
      is false if the module stopped at O(max_messages).
  returned: success
  type: dict
  sample: {seconds: 10.0, msgs: 410, bytes: 60200, msgs_per_second: 41.0, bytes_per_second: 6020.0, server: n1-c1, complete: true}
servers:
  description:
    - Traffic per second into and out of each server, over all accounts, including traffic between servers. C(seconds)
      is the time between the two readings, which includes the time spent counting.
    - Rates with C(client) cover only clients. These rates are null for servers that do not count the traffic of clients
      separately, such as 2.10.
  returned: success
  type: list
  elements: dict
  sample:
    - {name: n1-c1, cluster: C1, seconds: 10.1, in_msgs_per_second: 52.1, out_msgs_per_second: 60.4, in_bytes_per_second: 8010.2,
       out_bytes_per_second: 9100.7, in_client_msgs_per_second: 3.2, out_client_msgs_per_second: 44.0,
       in_client_bytes_per_second: 100.0, out_client_bytes_per_second: 6400.0}
incomplete:
  description: Servers that did not return their figures at the beginning or at the end, or that restarted in between.
  returned: success
  type: list
  elements: dict
  sample:
    - server: n2-c1
      endpoint: varz
      failure: {code: timeout, description: no reply within 5 s, subject: $SYS.REQ.SERVER.ND.VARZ, server: n2-c1, account: null,
                err_code: null}
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..module_utils.collection_module import run
from ..module_utils.module import make_module, with_client
from ..module_utils.nats.client import Client, NatsFailure, Observed
from ..module_utils.nats.model import Server
from ..module_utils.nats.system_api import Answer, SystemApi
from ..module_utils.times import parse_time

MAX_DURATION = 60.0

#: Prefixes of subjects with their kind and group; the first matching prefix applies (server/raft.go,
#: jetstream_cluster.go, events.go; natscli cli/traffic_command.go).
SUBJECTS = (
    ("$NRG.AE.", "raft_append", "raft"),
    ("$NRG.R.", "raft_reply", "raft"),
    ("$NRG.P.", "raft_proposal", "raft"),
    ("$NRG.V.", "raft_vote", "raft"),
    ("$NRG.CR.", "raft_catchup", "raft"),
    ("$NRG.RP.", "raft_remove_peer", "raft"),
    ("$JSC.SYNC", "stream_sync", "cluster"),
    ("$JSC.SI.", "stream_info", "cluster"),
    ("$JSC.CI.", "consumer_info", "cluster"),
    ("$JSC.ARU.", "usage_update", "cluster"),
    ("$JSC.", "cluster_reply", "cluster"),
    ("$JS.API.", "jetstream_api", "jetstream"),
    ("$JS.ACK.", "jetstream_ack", "jetstream"),
    ("$SYS.REQ.", "system_request", "system"),
    ("$SYS._INBOX", "system_reply", "system"),
    ("_INBOX.", "system_reply", "system"),
    ("$SYS.SERVER.", "gossip", "system"),
    ("$SYS.ACCOUNT.", "gossip", "system"),
    ("$SYS.", "system_other", "system"),
    ("", "client", "other"),
)

_RATES = (
    "in_msgs",
    "out_msgs",
    "in_bytes",
    "out_bytes",
    "in_client_msgs",
    "out_client_msgs",
    "in_client_bytes",
    "out_client_bytes",
)


def subject_kind(subject: str) -> str:
    """Return the kind of a message of the system account."""
    return next(kind for beginning, kind, _group in SUBJECTS if subject.startswith(beginning))


class Counter:
    """Counts messages and their bytes by kind."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.msgs = 0
        self._counts = {kind: [0, 0] for _beginning, kind, _group in SUBJECTS}

    def __call__(self, message: Observed) -> bool:
        """Count a message and return whether enough messages have been counted."""
        count = self._counts[subject_kind(message.subject)]
        count[0] += 1
        count[1] += message.size
        self.msgs += 1
        return self.msgs >= self.most

    def kinds(self, seconds: float) -> list[dict[str, Any]]:
        """Return every kind with its messages, bytes and rates."""
        groups = {kind: group for _beginning, kind, group in SUBJECTS}
        return [
            {"kind": kind, "group": groups[kind], **with_rates({"msgs": msgs, "bytes": size}, seconds)}
            for kind, (msgs, size) in self._counts.items()
        ]


def with_rates(row: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Return the row with its messages and bytes per second."""
    return {**row, **{f"{name}_per_second": per_second(row[name], seconds) for name in ("msgs", "bytes")}}


def per_second(amount: float, seconds: float) -> float:
    return round(amount / seconds, 3) if seconds > 0 else 0.0


def server_rates(server: Server, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return a server's rates between two VARZ replies; null for counters that the server does not report."""
    seconds = (parse_time(after["now"]) - parse_time(before["now"])).total_seconds()
    rates = {
        f"{name}_per_second": per_second(after[name] - before[name], seconds) if name in after else None
        for name in _RATES
    }
    return {"name": server.name, "cluster": server.cluster, "seconds": round(seconds, 3), **rates}


def compare(
    servers: Sequence[Server], before: Mapping[str, Answer], after: Mapping[str, Answer]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rates of the servers, and the servers that did not respond both times."""
    rates, incomplete = [], []
    for server in servers:
        first, second = before[server.id], after[server.id]
        failure = next((answer for answer in (first, second) if isinstance(answer, NatsFailure)), None)
        if failure is not None:
            incomplete.append({"server": server.name, "endpoint": "varz", "failure": failure.as_dict()})
        elif isinstance(first, dict) and isinstance(second, dict):
            rates.append(server_rates(server, first, second))
    return rates, incomplete


def read(client: Client, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result."""
    duration = params["duration"]
    if not 1 <= duration <= MAX_DURATION:
        raise NatsFailure("invalid_option", f"duration: must be from 1 to {MAX_DURATION:g} seconds, not {duration:g}")
    if params["max_messages"] < 1:
        raise NatsFailure("invalid_option", "max_messages: must be 1 or more")
    api = SystemApi(client)
    servers = api.discover().servers
    before = api.ask(servers, "VARZ")
    counter = Counter(params["max_messages"])
    seconds = client.observe([">"], duration, counter)
    observer, _cid = client.identity
    after = api.ask(servers, "VARZ")
    kinds = counter.kinds(seconds)
    rates, incomplete = compare(servers, before, after)
    seen = {"msgs": counter.msgs, "bytes": sum(row["bytes"] for row in kinds)}
    return {
        "changed": False,
        "kinds": kinds,
        "observed": {
            "seconds": round(seconds, 3),
            **with_rates(seen, seconds),
            "server": next((server.name for server in servers if server.id == observer), None),
            "complete": counter.msgs < counter.most,
        },
        "servers": rates,
        "incomplete": incomplete,
    }


def main() -> None:
    module = make_module(
        {"duration": {"type": "float", "default": 10}, "max_messages": {"type": "int", "default": 500000}},
    )
    run(module, with_client, lambda client: read(client, module.params))


if __name__ == "__main__":
    main()
