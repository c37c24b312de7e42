#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_account_info
short_description: Read the usage and the limits of accounts
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Returns accounts in the same form for a user of the account and for a user of the system account. Values that the
    user cannot read are null.
  - A user of an account (view V(account)) gets the JetStream usage, limits, tiers and API level of the account from
    the JetStream API.
  - A user of the system account (view V(system)) gets the connections, traffic, JetStream usage and reservations of all
    accounts. Usage and reservations are returned in two forms, one that counts each stream once and one that counts
    every replica.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.accounts
  - natsops.jetstream.attributes
  - natsops.jetstream.attributes.info_module
options:
  account:
    description:
      - Read only this account, by name or, in operator mode, by public key. If several accounts share the name, the
        module fails and lists their keys. For a user of the system account, the result is empty if the account does
        not exist.
    type: str
notes:
  - If O(account_users) is set and O(account) is not, the requests for each account are sent by its user in
    O(account_users).
seealso:
  - module: natsops.jetstream.nats_stream_info
  - module: natsops.jetstream.nats_connection_info
"""

EXAMPLES = r"""
- name: Read all accounts
  natsops.jetstream.nats_account_info:
    servers: [nats://n1.example.com:4222]
    user: sys
    password: "{{ nats_system_password }}"
  register: all_accounts

- name: Show who stores most
  ansible.builtin.debug:
    msg: "{{ item.name }} stores {{ item.jetstream.usage.replicas.storage | human_readable }} on disk"
  loop: >-
    {{ all_accounts.accounts | selectattr('jetstream')
       | sort(attribute='jetstream.usage.replicas.storage', reverse=true) }}
  loop_control:
    label: "{{ item.name }}"

- name: Read the limits of one account by its own user
  natsops.jetstream.nats_account_info:
    context: app
"""

RETURN = r"""
view:
  description: The view in which the accounts were read, V(account) or V(system).
  returned: success
  type: str
  sample: system
accounts:
  description:
    - The accounts, sorted by name. C(account) is the identity of the account, which is its public key in operator
      mode. C(name) is the name of the account, or its key if another account has the same name.
    - C(network) is the sum over all servers; it is null in the view V(account). A message that passes through two
      servers is counted by both. Servers before 2.11 omit traffic over routes. C(system) is true for the system
      account.
    - C(jetstream) is null for an account without JetStream. C(usage) and C(reserved) (from C(max_bytes) of the
      streams) are in bytes; C(once) counts each stream once, and C(replicas) counts each of its replicas.
    - In C(limits), V(-1) means no limit. C(tiers) contains the limits of each tier; it is empty if the account has no
      tiers, and null in the view V(system).
    - C(api_level) is the lowest API level of the queried servers, and 0 for servers before 2.11.
  returned: success
  type: list
  elements: dict
  sample:
    - name: APP
      account: APP
      system: false
      network: {connections: 3, total_connections: 12, leafnodes: 0, subscriptions: 40, slow_consumers: 0,
                in_msgs: 1200, in_bytes: 120000, out_msgs: 1100, out_bytes: 98000}
      jetstream:
        streams: 2
        consumers: 1
        messages: 20
        api_level: 5
        usage:
          once: {memory: 0, storage: 2760}
          replicas: {memory: 0, storage: 8280}
        reserved:
          once: {memory: 0, storage: 1000000}
          replicas: {memory: 0, storage: 3000000}
        limits: {max_memory: -1, max_storage: -1, max_streams: null, max_consumers: null, max_ack_pending: null,
                 memory_max_stream_bytes: null, storage_max_stream_bytes: null, max_bytes_required: null}
        tiers: null
incomplete:
  description: Servers that did not answer a request. If any server is listed, the figures are too low. Empty in the
    view V(account).
  returned: success
  type: list
  elements: dict
  sample:
    - server: n2-c1
      endpoint: jsz
      failure: {code: timeout, description: no reply within 5 s, subject: $SYS.REQ.SERVER.ND.JSZ, server: n2-c1, account: null,
                err_code: null}
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..module_utils.assets.listing import ACCOUNT_VIEW, SYSTEM_VIEW, is_system_user, own_account_api
from ..module_utils.collection_module import run
from ..module_utils.module import ACCOUNT_SPEC, make_module, with_accounts
from ..module_utils.nats.account_names import account_id, account_labels
from ..module_utils.nats.accounts import Connections
from ..module_utils.nats.client import Client, NatsFailure
from ..module_utils.nats.error_codes import NOT_ENABLED
from ..module_utils.nats.jetstream_api import JetStreamApi
from ..module_utils.nats.model import Cluster, Server
from ..module_utils.nats.replies import build_cluster
from ..module_utils.nats.system_api import Answer, SystemApi

_LIMITS = (
    "max_memory",
    "max_storage",
    "max_streams",
    "max_consumers",
    "max_ack_pending",
    "memory_max_stream_bytes",
    "storage_max_stream_bytes",
    "max_bytes_required",
)

#: The network figures, each with the path of its field in a server's AccountStat (events.go).
_NETWORK = {
    "connections": ("conns",),
    "total_connections": ("total_conns",),
    "leafnodes": ("leafnodes",),
    "subscriptions": ("num_subscriptions",),
    "slow_consumers": ("slow_consumers",),
    "in_msgs": ("received", "msgs"),
    "in_bytes": ("received", "bytes"),
    "out_msgs": ("sent", "msgs"),
    "out_bytes": ("sent", "bytes"),
}


def reported_jetstream(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JetStream part from `$JS.API.INFO` (jetstream.go JetStreamAccountStats).

    The server counts the usage of every replica, but the reservation of each stream only once.
    """
    return {
        "streams": info.get("streams", 0),
        "consumers": info.get("consumers", 0),
        "messages": None,
        "api_level": (info.get("api") or {}).get("level") or 0,
        "usage": {"once": None, "replicas": {"memory": info.get("memory", 0), "storage": info.get("storage", 0)}},
        "reserved": {
            "once": {"memory": info.get("reserved_memory", 0), "storage": info.get("reserved_storage", 0)},
            "replicas": None,
        },
        "limits": {name: (info.get("limits") or {}).get(name) for name in _LIMITS},
        "tiers": info.get("tiers") or {},
    }


def seen_jetstream(cluster: Cluster, account: str, details: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the JetStream part, summed from the servers' reports; `details`: the account's JSZ detail on each server.

    A stream is counted with the figures of its leader. Each replica is counted with its own figures, if a server
    reported them.
    """
    streams = [stream for stream in cluster.streams if stream.account == account]
    once = {"memory": 0, "storage": 0}
    reserved = {"memory": 0, "storage": 0}
    reserved_replicas = {"memory": 0, "storage": 0}
    for stream in streams:
        kind = "memory" if stream.storage == "memory" else "storage"
        once[kind] += stream.size
        most = max((stream.info.get("config") or {}).get("max_bytes", 0), 0)
        reserved[kind] += most
        reserved_replicas[kind] += most * stream.group.size
    replicas = {"memory": 0, "storage": 0}
    for detail in details:
        for held in detail.get("stream_detail") or ():
            kind = "memory" if (held.get("config") or {}).get("storage") == "memory" else "storage"
            replicas[kind] += (held.get("state") or {}).get("bytes", 0)
    limits: dict[str, Any] = dict.fromkeys(_LIMITS)
    # The `reserved` fields of monitor.go accountDetail contain the account's limits; -1 is sent as an unsigned number.
    for name, field in (("max_memory", "reserved_memory"), ("max_storage", "reserved_storage")):
        limit = details[0].get(field, 0)
        limits[name] = -1 if limit >= 1 << 63 else limit
    levels = [server.summary.api_level for server in cluster.servers if server.summary]
    return {
        "streams": len(streams),
        "consumers": sum((stream.info.get("state") or {}).get("consumer_count", 0) for stream in streams),
        "messages": sum(stream.messages for stream in streams),
        "api_level": min(levels, default=0),
        "usage": {"once": once, "replicas": replicas},
        "reserved": {"once": reserved, "replicas": reserved_replicas},
        "limits": limits,
        "tiers": None,
    }


def add_network(total: dict[str, int], stat: Mapping[str, Any]) -> None:
    """Add one server's figures of an account to the account's total."""
    for name, path in _NETWORK.items():
        value: Any = stat
        for key in path:
            value = (value or {}).get(key)
        total[name] = total.get(name, 0) + int(value or 0)


def read_account(api: JetStreamApi) -> dict[str, Any]:
    """Return an account as reported to its own user."""
    try:
        jetstream = reported_jetstream(api.info())
    except NatsFailure as failure:
        if failure.err_code not in NOT_ENABLED:
            raise
        jetstream = None
    return {"name": api.label or None, "account": api.account, "system": False, "network": None, "jetstream": jetstream}


def read_system(client: Client, account: str | None) -> dict[str, Any]:
    """Return the accounts as reported to the system account."""
    api = SystemApi(client)
    servers = api.discover().servers
    account = api.account_id(servers, account) if account else None
    options = {"accounts": True, "streams": True, "config": True, **({"account": account} if account else {})}
    jsz = api.ask([server for server in servers if server.jetstream], "JSZ", options)
    statistics = api.account_statistics(servers, account)
    details: dict[str, list[Mapping[str, Any]]] = {}
    names: dict[str, str] = {}
    for answer in _data(jsz):
        for detail in answer.get("account_details") or ():
            details.setdefault(account_id(detail), []).append(detail)
            names[account_id(detail)] = detail["name"]
    network: dict[str, dict[str, int]] = {}
    for answer in _data(statistics):
        for stat in answer.get("account_statz") or ():
            # nats-server 2.15.1 reports the name in an account's JWT here; 2.10.27 does not.
            names.setdefault(stat["acc"], stat.get("name") or stat["acc"])
            add_network(network.setdefault(stat["acc"], {}), stat)
    cluster = build_cluster(servers, {key: value for key, value in jsz.items() if isinstance(value, dict)}, {})
    own, labels = api.own_account() or "", account_labels(names)
    return {
        "view": SYSTEM_VIEW,
        "accounts": [
            {
                "name": labels[key],
                "account": key,
                "system": key == own,
                "network": network.get(key),
                "jetstream": seen_jetstream(cluster, key, details[key]) if key in details else None,
            }
            for key in sorted({*network, *details}, key=lambda key: (labels[key], key))
        ],
        "incomplete": _incomplete(servers, {"jsz": jsz, "statz": statistics}),
    }


def _data(answers: Mapping[str, Answer]) -> list[dict[str, Any]]:
    return [answer for answer in answers.values() if not isinstance(answer, NatsFailure)]


def _incomplete(servers: Sequence[Server], asked: Mapping[str, Mapping[str, Answer]]) -> list[dict[str, Any]]:
    return [
        {"server": server.name, "endpoint": endpoint, "failure": answer.as_dict()}
        for endpoint, answers in asked.items()
        for server in servers
        for answer in (answers.get(server.id),)
        if isinstance(answer, NatsFailure)
    ]


def read_view(connections: Connections, account: str | None) -> dict[str, Any]:
    """Return the accounts in the view that the credentials allow. Raises NatsFailure."""
    if connections.accounts:
        users = [connections.account(name) for name in ([account] if account else connections.accounts)]
        return {"view": ACCOUNT_VIEW, "accounts": [read_account(api) for api in users], "incomplete": []}
    if is_system_user(connections.own):
        return read_system(connections.own, account)
    return {"view": ACCOUNT_VIEW, "accounts": [read_account(own_account_api(connections, account))], "incomplete": []}


def read(connections: Connections, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result. Raises NatsFailure."""
    return {"changed": False, **read_view(connections, params["account"])}


def main() -> None:
    module = make_module(ACCOUNT_SPEC)
    run(module, with_accounts, lambda connections: read(connections, module.params))


if __name__ == "__main__":
    main()
