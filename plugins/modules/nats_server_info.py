#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_server_info
short_description: Read the monitoring endpoints of one, some or all NATS servers
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Reads the servers' monitoring endpoints over NATS, without their HTTP port. Needs a user of the system account.
  - Server names match exactly on every server version. Long lists (connections, accounts, subscriptions) are read
    page by page and returned completely.
  - A requested server that did not respond is always listed in RV(missing).
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
  - natsops.jetstream.attributes.info_module
options:
  server_names:
    description:
      - Names of the servers to read. By default, all servers that respond.
    type: list
    elements: str
  cluster:
    description:
      - Read only the servers of the cluster with exactly this name.
    type: str
  endpoints:
    description:
      - Endpoints to read from each server.
      - V(healthz) needs nats-server 2.9, V(idz) and V(profilez) need 2.10, and V(expvarz), V(ipqueuesz) and V(raftz)
        need 2.10.26.
      - V(profilez) returns C(profile), the base64-encoded input of C(go tool pprof); O(options.profilez.name) selects
        the profile.
    type: list
    elements: str
    choices:
      - varz
      - connz
      - routez
      - gatewayz
      - leafz
      - subsz
      - jsz
      - accountz
      - healthz
      - statsz
      - idz
      - raftz
      - ipqueuesz
      - expvarz
      - profilez
    default: [varz]
  expected_servers:
    description:
      - Names of further servers that must respond, in addition to O(server_names). Servers that do not respond are
        listed in RV(missing).
    type: list
    elements: str
    default: []
  fail_on_missing:
    description:
      - Whether to fail if a server is missing or an endpoint could not be read, and with O(mesh) if connections are
        missing.
    type: bool
    default: false
  mesh:
    description:
      - Find missing routes and gateway connections between the servers that are read; see RV(mesh_problems).
      - Needs V(varz), V(routez) and V(gatewayz) in O(endpoints).
    type: dict
    suboptions:
      clusters:
        description: Names of the expected clusters, in addition to those in the servers' configuration.
        type: list
        elements: str
        default: []
      pinned_accounts:
        description: Accounts with a dedicated route (C(cluster.accounts)), which V(varz) does not show.
        type: list
        elements: str
        default: []
      jetstream_servers:
        description: Names of servers that must have JetStream enabled.
        type: list
        elements: str
        default: []
  options:
    description:
      - Options of the endpoints, with the names used by the servers' own monitoring.
    type: dict
    default: {}
    suboptions:
      connz:
        description: Options of V(connz).
        type: dict
        suboptions:
          sort:
            description: Order of the connections, such as V(cid), V(subs), V(pending), V(msgs_to), V(idle), V(uptime), V(rtt).
            type: str
          auth:
            description: Return the user and account of each connection.
            type: bool
          subscriptions:
            description: Return the subjects of each connection's subscriptions.
            type: bool
          subscriptions_detail:
            description: Return the details of each connection's subscriptions.
            type: bool
          state:
            description: Which connections to return.
            type: str
            choices: [open, closed, any]
          user:
            description: Return only connections of this user. Needs O(options.connz.auth).
            type: str
          account:
            description: Return only connections of this account.
            type: str
          filter_subject:
            description: Return only connections with a subscription on this subject.
            type: str
      routez:
        description: Options of V(routez).
        type: dict
        suboptions:
          subscriptions:
            description: Return the subjects of each route's subscriptions.
            type: bool
          subscriptions_detail:
            description: Return the details of each route's subscriptions.
            type: bool
      gatewayz:
        description: Options of V(gatewayz).
        type: dict
        suboptions:
          name:
            description: Return only the gateway to the cluster of this name.
            type: str
          accounts:
            description: Return the accounts of each gateway.
            type: bool
          account_name:
            description: Return only this account.
            type: str
      leafz:
        description: Options of V(leafz).
        type: dict
        suboptions:
          subscriptions:
            description: Return the subjects of each leaf node's subscriptions.
            type: bool
          account:
            description: Return only leaf nodes of this account.
            type: str
      subsz:
        description: Options of V(subsz).
        type: dict
        suboptions:
          subscriptions:
            description: Return the subscriptions.
            type: bool
          account:
            description: Return only subscriptions of this account.
            type: str
          test:
            description: Return only subscriptions that match this subject.
            type: str
      jsz:
        description: Options of V(jsz).
        type: dict
        suboptions:
          account:
            description: Return only this account.
            type: str
          accounts:
            description: Return each account.
            type: bool
          streams:
            description: Return each stream. Implies the accounts.
            type: bool
          consumers:
            description: Return each consumer. Implies the streams.
            type: bool
          config:
            description: Return the configurations.
            type: bool
          raft:
            description: Return the names of the Raft groups.
            type: bool
          leader_only:
            description: Read V(jsz) only from the meta leader. The other servers are returned without V(jsz).
            type: bool
      accountz:
        description: Options of V(accountz).
        type: dict
        suboptions:
          account:
            description: Return the details of this account.
            type: str
      healthz:
        description: Options of V(healthz).
        type: dict
        suboptions:
          details:
            description: Return every error instead of the first one. Needs nats-server 2.10.
            type: bool
          js_enabled_only:
            description: Check only whether JetStream is enabled.
            type: bool
          js_server_only:
            description: Check only the server, not streams and consumers.
            type: bool
          js_meta_only:
            description: Check only the server and the meta group. Needs nats-server 2.11.
            type: bool
          account:
            description: Check only this account.
            type: str
          stream:
            description: Check only this stream. Needs O(options.healthz.account).
            type: str
          consumer:
            description: Check only this consumer. Needs O(options.healthz.stream).
            type: str
      raftz:
        description: Options of V(raftz).
        type: dict
        suboptions:
          account:
            description: Return only the Raft groups of this account. Defaults to the system account.
            type: str
          group:
            description: Return only the Raft group of this name.
            type: str
      ipqueuesz:
        description: Options of V(ipqueuesz).
        type: dict
        suboptions:
          all:
            description: Also return empty queues.
            type: bool
          filter:
            description: Return only queues whose name contains this text.
            type: str
      profilez:
        description: Options of V(profilez).
        type: dict
        suboptions:
          name:
            description: Name of the profile, such as V(allocs), V(goroutine), V(mutex), V(block) or V(cpu). Defaults
              to V(heap).
            type: str
          debug:
            description: V(0) returns a profile, V(1) and V(2) return text.
            type: int
          duration:
            description: Seconds for which the profile V(cpu) is recorded, at most 15 and less than O(timeout).
            type: float
seealso:
  - module: natsops.jetstream.nats_cluster_info
  - module: natsops.jetstream.nats_cluster_health
"""

EXAMPLES = r"""
- name: Read version, configuration digest and load time of every server
  natsops.jetstream.nats_server_info:
    servers: [nats://n1.example.com:4222]
    user: sys
    password: "{{ nats_system_password }}"
    endpoints: [varz]
  register: servers

- name: Read the routes of two servers, and fail if one of them is unavailable
  natsops.jetstream.nats_server_info:
    server_names: [n1-c1, n2-c1]
    endpoints: [routez, healthz]
    options:
      healthz:
        details: true
    fail_on_missing: true
    context: c1-sys

- name: Find routes and gateway connections that are missing
  natsops.jetstream.nats_server_info:
    endpoints: [varz, routez, gatewayz]
    mesh:
      clusters: [east, west]
    context: c1-sys

- name: Read every stream of one account from all servers
  natsops.jetstream.nats_server_info:
    endpoints: [jsz]
    options:
      jsz:
        account: APP
        streams: true
        config: true
    context: c1-sys
"""

RETURN = r"""
servers:
  description:
    - The servers that responded, by name. Each server has one key for each endpoint; the key is absent if the endpoint
      could not be read.
    - C(rtt) is in seconds. C(clock_offset) is the number of seconds by which the server's clock is ahead of the
      controller's clock, plus or minus half of C(rtt).
  returned: success
  type: list
  elements: dict
  sample:
    - name: n1-c1
      id: NDHDGLW5VJ2JR3G5R5JJ6NGWSJ4XC3BIBVDIBAM6ROGHRGQQVHZQCL5O
      cluster: C1
      host: 10.0.0.11
      version: 2.10.27
      jetstream: true
      rtt: 0.0012
      clock_offset: 0.0001
      varz:
        server_name: n1-c1
        config_load_time: "2026-11-20T10:00:00Z"
missing:
  description: Names from O(server_names) and O(expected_servers) that did not respond.
  returned: always
  type: list
  elements: str
  sample: []
incomplete:
  description: Endpoints that a server did not return although it returned other endpoints, each with the reason.
  returned: always
  type: list
  elements: dict
  sample:
    - server: n2-c1
      endpoint: jsz
      failure: {code: timeout, description: no reply within 5 s, subject: $SYS.REQ.SERVER.ND.JSZ, server: n2-c1, account: null}
mesh_problems:
  description:
    - One sentence for each problem. A problem is a pair of servers of a cluster with fewer routes than their pool and
      O(mesh.pinned_accounts) need, a server that has no gateway connection to a cluster, a server whose connections
      are unknown, or a server of O(mesh.jetstream_servers) without JetStream.
  returned: with O(mesh)
  type: list
  elements: str
  sample: ["n1-c1 has 2 of 4 routes to n2-c1", "n1-c1 has no gateway connection to west"]
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.collection_module import run
from ..module_utils.health.routes import MESH_ENDPOINTS, MESH_SPEC, Mesh, mesh_problems, unread
from ..module_utils.health.run_mesh import mesh_failure
from ..module_utils.module import fail, make_module, with_client
from ..module_utils.nats.client import Client, NatsFailure
from ..module_utils.nats.model import Server
from ..module_utils.nats.system_api import Answer, SystemApi

_STRING: dict[str, Any] = {"type": "str"}
_BOOLEAN: dict[str, Any] = {"type": "bool"}

ENDPOINT_OPTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "connz": {
        "sort": _STRING,
        "auth": _BOOLEAN,
        "subscriptions": _BOOLEAN,
        "subscriptions_detail": _BOOLEAN,
        "state": {"type": "str", "choices": ["open", "closed", "any"]},
        "user": _STRING,
        "account": _STRING,
        "filter_subject": _STRING,
    },
    "routez": {"subscriptions": _BOOLEAN, "subscriptions_detail": _BOOLEAN},
    "gatewayz": {"name": _STRING, "accounts": _BOOLEAN, "account_name": _STRING},
    "leafz": {"subscriptions": _BOOLEAN, "account": _STRING},
    "subsz": {"subscriptions": _BOOLEAN, "account": _STRING, "test": _STRING},
    "jsz": {
        "account": _STRING,
        "accounts": _BOOLEAN,
        "streams": _BOOLEAN,
        "consumers": _BOOLEAN,
        "config": _BOOLEAN,
        "raft": _BOOLEAN,
        "leader_only": _BOOLEAN,
    },
    "accountz": {"account": _STRING},
    "healthz": {
        "details": _BOOLEAN,
        "js_enabled_only": _BOOLEAN,
        "js_server_only": _BOOLEAN,
        "js_meta_only": _BOOLEAN,
        "account": _STRING,
        "stream": _STRING,
        "consumer": _STRING,
    },
    "raftz": {"account": _STRING, "group": _STRING},
    "ipqueuesz": {"all": _BOOLEAN, "filter": _STRING},
    "profilez": {"name": _STRING, "debug": {"type": "int"}, "duration": {"type": "float"}},
}

#: Options whose name in the server's request differs from that in its HTTP monitoring.
WIRE_NAMES = {
    ("connz", "account"): "acc",
    ("jsz", "consumers"): "consumer",
    ("healthz", "js_enabled_only"): "js-enabled-only",
    ("healthz", "js_server_only"): "js-server-only",
    ("healthz", "js_meta_only"): "js-meta-only",
}
#: Request fields of nats-server that restrict a reply to one account.
ACCOUNT_OPTIONS = frozenset(("acc", "account", "account_name"))
CONNECTION_STATES = {"open": 0, "closed": 1, "any": 2}

ENDPOINTS = [
    "varz",
    "connz",
    "routez",
    "gatewayz",
    "leafz",
    "subsz",
    "jsz",
    "accountz",
    "healthz",
    "statsz",
    "idz",
    "raftz",
    "ipqueuesz",
    "expvarz",
    "profilez",
]


def wire_options(endpoint: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request of an endpoint with nats-server's field names, without options that are not set."""
    request = {
        WIRE_NAMES.get((endpoint, name), name): value
        for name, value in options.items()
        if value is not None and name != "leader_only"
    }
    if endpoint == "profilez":
        request.setdefault("name", "heap")
        if "duration" in request:
            request["duration"] = int(request["duration"] * 1e9)
    if endpoint == "connz" and "state" in request:
        request["state"] = CONNECTION_STATES[request["state"]]
    if endpoint == "jsz":
        request["streams"] = bool(request.get("streams") or request.get("consumer"))
        request["accounts"] = bool(request.get("accounts") or request["streams"])
    return request


def meta_leaders(api: SystemApi, servers: Sequence[Server]) -> list[Server]:
    """Return the servers that lead the meta group: one, or none."""
    answers = api.ask(servers, "JSZ")
    leaders = []
    for server in servers:
        answer = answers[server.id]
        meta = None if isinstance(answer, NatsFailure) else answer.get("meta_cluster")
        if meta and meta.get("leader") == server.name:
            leaders.append(server)
    return leaders


def describe(server: Server) -> dict[str, Any]:
    """Return the result's entry for a server that responded."""
    return {
        "name": server.name,
        "id": server.id,
        "cluster": server.cluster,
        "host": server.host,
        "version": server.version,
        "domain": server.domain,
        "tags": list(server.tags),
        "jetstream": server.jetstream,
        "rtt": server.rtt,
        "clock_offset": server.clock_offset,
    }


def caught_failure(endpoint: str, answer: Answer) -> NatsFailure | None:
    """Return why a server did not return an endpoint. PROFILEZ reports its failure inside the reply."""
    if isinstance(answer, NatsFailure):
        return answer
    refused = answer.get("error") if endpoint == "profilez" else None
    return NatsFailure("bad_reply", str(refused)) if refused else None


def read_servers(client: Client, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results `servers`, `missing` and `incomplete`."""
    api = SystemApi(client)
    names = params["server_names"]
    expected = {*(names or ()), *params["expected_servers"]}
    discovery = api.discover(expected)
    in_cluster = [server for server in discovery.servers if params["cluster"] in (None, server.cluster)]
    servers = [server for server in in_cluster if names is None or server.name in names]
    rows = {server.id: describe(server) for server in servers}
    incomplete = []
    for endpoint in params["endpoints"]:
        options = params["options"].get(endpoint) or {}
        asked = meta_leaders(api, servers) if options.get("leader_only") else servers
        request = wire_options(endpoint, options)
        for name in ACCOUNT_OPTIONS & request.keys():
            request[name] = api.account_id(servers, request[name])
        for server_id, answer in api.ask(asked, endpoint.upper(), request).items():
            failure = caught_failure(endpoint, answer)
            if failure is not None:
                row = {"server": rows[server_id]["name"], "endpoint": endpoint, "failure": failure.as_dict()}
                incomplete.append(row)
            else:
                rows[server_id][endpoint] = answer
    missing = sorted(expected - {server.name for server in in_cluster})
    return {"servers": list(rows.values()), "missing": missing, "incomplete": incomplete}


def refusal(result: Mapping[str, Any]) -> NatsFailure | None:
    """Return why an incomplete result is a failure; None if the result is complete."""
    holes = unread(result["missing"], result["incomplete"])
    if holes:
        return NatsFailure("server_missing", "; ".join(holes))
    return mesh_failure(result.get("mesh_problems", ()))


def read(client: Client, module: AnsibleModule) -> dict[str, Any]:
    """Return the module's result. Ends the module with a failure if replies are missing and `fail_on_missing` is set.

    Raises NatsFailure invalid_option for `mesh` without the endpoints that it needs.
    """
    mesh = module.params["mesh"]
    lacking = [name for name in MESH_ENDPOINTS if name not in module.params["endpoints"]] if mesh is not None else []
    if lacking:
        raise NatsFailure("invalid_option", f"mesh: requires {', '.join(lacking)} among the endpoints")
    result = read_servers(client, module.params)
    if mesh is not None:
        result["mesh_problems"] = mesh_problems(**result, mesh=Mesh(**mesh))
    failure = refusal(result) if module.params["fail_on_missing"] else None
    if failure is not None:
        fail(module, failure, **result)
    return {"changed": False, **result}


def main() -> None:
    module: AnsibleModule = make_module(
        {
            "server_names": {"type": "list", "elements": "str"},
            "cluster": {"type": "str"},
            "endpoints": {"type": "list", "elements": "str", "choices": ENDPOINTS, "default": ["varz"]},
            "expected_servers": {"type": "list", "elements": "str", "default": []},
            "fail_on_missing": {"type": "bool", "default": False},
            "mesh": {"type": "dict", "options": MESH_SPEC},
            "options": {
                "type": "dict",
                "default": {},
                "options": {name: {"type": "dict", "options": spec} for name, spec in ENDPOINT_OPTIONS.items()},
            },
        }
    )

    run(module, with_client, lambda client: read(client, module))


if __name__ == "__main__":
    main()
