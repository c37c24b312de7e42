#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_connection_kick
short_description: Close client connections, or spread them evenly across the servers
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Closes the connections that match every given filter or, with O(balance), only each server's surplus above its
    even share. Needs a user of the system account, and nats-server 2.10 or later.
  - Connections of the system account, including the module's own, and those of routes and gateways are never closed.
  - A connection counts as closed when its server no longer lists it.
  - If a server does not return its connections, nothing is closed.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.connections
  - natsops.jetstream.attributes
attributes:
  check_mode:
    support: full
    details:
      - In check mode, RV(kicked) lists the connections that would be closed.
  diff_mode:
    support: full
  idempotent:
    support: partial
    details:
      - Nothing is closed if no connection matches. However, clients reconnect, and their new connections may match
        again.
options:
  kind:
    description:
      - Kinds of connections that may be closed.
    type: list
    elements: str
    choices: [client, leafnode]
    default: [client]
  balance:
    description:
      - For each server, close only the matching connections above the even share of its cluster. The even share is the
        number of matching connections in the cluster divided by the number of its servers, rounded up. All servers of
        the cluster are counted, so use this option only after all of them are back. Connections with the least pending
        data are closed first and, among those, the ones that have been idle longest.
    type: bool
    default: false
  max_kicks:
    description:
      - Maximum number of connections to close in this run.
    type: int
  rounds:
    description:
      - Maximum number of rounds, one second apart. Each round closes the connections that match at that time; the
        module stops when none match. Some clients first reconnect to the same server before they choose a different
        one.
    type: int
    default: 1
  rate:
    description:
      - Number of connections to close per second. This limits how many clients reconnect at the same time.
    type: float
    default: 10
  notice:
    description:
      - Seconds between the notification of a client and the end of its connection. The notification announces that
        the server enters lame duck mode, although the server does not. Clients that support this notification leave
        by themselves. V(0) sends no notification.
    type: float
    default: 0
  wait_timeout:
    description:
      - Seconds to wait until the servers no longer list the closed connections.
    type: float
    default: 60
notes:
  - Without O(balance), at least one filter besides O(kind) is required. O(cid) requires exactly one server in
    O(server_names).
  - "Clients notice that their connection is closed. The official client libraries reconnect by themselves, mostly to a
    different known server. Until a client has reconnected, its published messages are buffered or rejected, depending
    on the client's settings, its requests in progress fail, and core NATS messages for the client are lost. Messages
    that were delivered but not acknowledged are delivered again after the consumer's C(ack_wait). A client that is
    configured not to reconnect stays disconnected."
  - With O(balance), the disconnected clients choose their next server themselves, so a second run may find a smaller
    surplus.
seealso:
  - module: natsops.jetstream.nats_connection_info
"""

EXAMPLES = r"""
- name: Close connections that were idle for a day
  natsops.jetstream.nats_connection_kick:
    servers: [nats://n1.example.com:4222]
    user: sys
    password: "{{ nats_system_password }}"
    account: APP
    idle: 86400

- name: Close one connection
  natsops.jetstream.nats_connection_kick:
    context: c1-sys
    server_names: [n2-c1]
    cid: 42

- name: Drain client connections of a server, each notified five seconds before
  natsops.jetstream.nats_connection_kick:
    context: c1-sys
    server_names: [n2-c1]
    notice: 5

- name: Spread the clients evenly after a rolling restart, about 5 per second
  natsops.jetstream.nats_connection_kick:
    context: c1-sys
    cluster: C1
    balance: true
    rate: 5
"""

RETURN = r"""
kicked:
  description:
    - The connections that were closed, or would be closed in check mode, in the form of
      M(natsops.jetstream.nats_connection_info).
    - C(reason) is the reason that the server reports for the end of the connection. C(reason) is null in check mode, or
      if the server has already forgotten the connection.
  returned: success
  type: list
  elements: dict
  sample:
    - {server: n2-c1, cid: 42, cluster: C1, kind: client, account: APP, user: app, name: orders-worker, ip: 10.0.1.7,
       idle: 90000.5, pending_bytes: 0, reason: Kicked}
left:
  description: Number of the chosen connections that ended by themselves before they were closed.
  returned: success
  type: int
  sample: 0
servers:
  description:
    - The servers, each with the number of its matching connections that may be closed, counted before the first
      connection was closed. C(share) is the even share, and null without O(balance).
  returned: success
  type: list
  elements: dict
  sample:
    - {name: n1-c1, cluster: C1, connections: 10, share: 20}
    - {name: n2-c1, cluster: C1, connections: 30, share: 20}
waited:
  description: Seconds until no server listed any of the closed connections.
  returned: success
  type: float
  sample: 0.01
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..module_utils.assets.connections import CLOSED, FILTER_SPEC, OPEN, AffectedConnections, read_connections
from ..module_utils.collection_module import run
from ..module_utils.module import make_module, with_client
from ..module_utils.nats.client import Client, NatsFailure
from ..module_utils.nats.model import Server
from ..module_utils.nats.system_api import SystemApi
from ..module_utils.waiting import positive, wait_until

KIND_SPEC: dict[str, Any] = {
    "type": "list",
    "elements": "str",
    "choices": ["client", "leafnode"],
    "default": ["client"],
}

#: Lowest rate of kicks per second that keeps the module's own connection alive between two of them.
_LEAST_RATE = 0.1
#: Seconds between two rounds.
_BETWEEN = 1.0

Row = Mapping[str, Any]
Key = tuple[str, int]


def shares(rows: Sequence[Row], servers: Sequence[Server]) -> dict[str, int]:
    """Return the even share of each server by its id: the number of connections in its cluster divided by the number of
    the cluster's servers, rounded up (jsm.go connbalancer)."""
    even: dict[str, int] = {}
    for server in servers:
        size = sum(1 for other in servers if other.cluster == server.cluster)
        total = sum(1 for row in rows if row["cluster"] == server.cluster)
        even[server.id] = -(-total // size)
    return even


def surplus(rows: Sequence[Row], even: Mapping[str, int]) -> list[Row]:
    """Return the connections above each server's share: those with the least pending data and the longest idle time."""
    chosen: list[Row] = []
    for server_id, share in even.items():
        mine = [row for row in rows if row["server_id"] == server_id]
        mine.sort(key=lambda row: (row["pending_bytes"] or 0, -row["idle"], row["cid"]))
        chosen += mine[: max(len(mine) - share, 0)]
    return chosen


def key(row: Row) -> Key:
    return row["server_id"], row["cid"]


def line(row: Row) -> str:
    """Return a connection as a line of a diff."""
    return f"{row['server']} cid {row['cid']} {row['account']} {row['user'] or '-'} {row['name'] or '-'} {row['ip']}\n"


def check_options(params: Mapping[str, Any]) -> None:
    """Raise NatsFailure invalid_option for options that are out of range or could close unintended connections."""
    if params["rate"] < _LEAST_RATE:
        raise NatsFailure("invalid_option", f"rate: must be {_LEAST_RATE} per second or more")
    if params["notice"] < 0:
        raise NatsFailure("invalid_option", "notice: must be 0 seconds or more")
    if params["rounds"] < 1:
        raise NatsFailure("invalid_option", "rounds: must be 1 or more")
    if params["max_kicks"] is not None and params["max_kicks"] < 1:
        raise NatsFailure("invalid_option", "max_kicks: must be 1 or more")
    positive(params["wait_timeout"], "wait_timeout")
    if params["cid"] is not None and len(params["server_names"] or ()) != 1:
        raise NatsFailure("invalid_option", "cid: every server counts its own, so name the one server in server_names")
    if params["balance"]:
        if params["server_names"]:
            raise NatsFailure(
                "invalid_option", "balance: all servers of a cluster take part; use cluster, not server_names"
            )
    elif not any(params[name] for name in FILTER_SPEC):
        raise NatsFailure("invalid_option", f"at least one filter is required, of: {', '.join(FILTER_SPEC)}")


def kick(api: SystemApi, servers: Mapping[str, Server], chosen: Sequence[Row], rate: float, notice: float) -> set[Key]:
    """Close the connections one by one, each `notice` seconds after its client was notified, and return those that had
    not ended by themselves. Raises NatsFailure with the number of connections closed before the failure."""
    closed: set[Key] = set()
    ends = [(number / rate + notice, False, row) for number, row in enumerate(chosen)]
    notices = [(end - notice, True, row) for end, _tell, row in ends] if notice else []
    began = time.monotonic()
    for moment, tell, row in sorted(notices + ends, key=lambda step: step[0]):
        time.sleep(max(0.0, began + moment - time.monotonic()))
        try:
            if tell:
                api.announce_lame_duck(servers[row["server_id"]], row["cid"])
            elif api.kick(servers[row["server_id"]], row["cid"]):
                closed.add(key(row))
        except NatsFailure as failure:
            failure.description += f" (connections closed before: {len(closed)} of {len(chosen)})"
            raise
    return closed


def ensure(client: Client, params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Close the chosen connections and return the module's result."""
    check_options(params)
    api = SystemApi(client)
    began, waited = time.monotonic(), 0.0
    first = found = find(api, client, params)
    kicked: list[Row] = []
    left = 0
    for number in range(1 if check_mode else params["rounds"]):
        if number:
            time.sleep(_BETWEEN)
            found = find(api, client, params)
        chosen = found.chosen[: None if params["max_kicks"] is None else params["max_kicks"] - len(kicked)]
        if not chosen:
            break
        ended = [{**row, "reason": None} for row in chosen] if check_mode else close(api, found.servers, chosen, params)
        waited = 0.0 if check_mode else round(time.monotonic() - began, 3)
        kicked += ended
        left += len(chosen) - len(ended)
    return {
        "changed": bool(kicked),
        "kicked": kicked,
        "left": left,
        "servers": [
            {
                "name": server.name,
                "cluster": server.cluster,
                "connections": sum(1 for row in first.rows if row["server_id"] == server.id),
                "share": first.even.get(server.id),
            }
            for server in first.servers
        ],
        "waited": waited,
        "diff": {"before": "".join(line(row) for row in kicked), "after": ""},
    }


@dataclass(frozen=True)
class FoundConnections:
    """The queried servers, their connections that match and may be closed, each server's even share, and the
    connections chosen for closing."""

    servers: Sequence[Server]
    rows: Sequence[Row]
    even: Mapping[str, int]
    chosen: Sequence[Row]


def find(api: SystemApi, client: Client, params: Mapping[str, Any]) -> FoundConnections:
    """Return the connections to close. Raises NatsFailure when a server's connections or this user's account are
    unknown."""
    reading = read_connections(api, params, params["kind"])
    if reading.missing_servers():
        raise NatsFailure(
            "server_missing", f"not all connections are known, none was closed: {'; '.join(reading.missing_servers())}"
        )
    system, own = api.own_account(), client.identity
    if system is None:
        raise NatsFailure(
            "unsupported", f"{client.url} does not report this user's account; that needs nats-server 2.10"
        )
    rows = [row for row in reading.connections if row["account"] != system and key(row) != own]
    even = shares(rows, reading.servers) if params["balance"] else {}
    return FoundConnections(reading.servers, rows, even, surplus(rows, even) if params["balance"] else rows)


def close(api: SystemApi, servers: Sequence[Server], chosen: Sequence[Row], params: Mapping[str, Any]) -> list[Row]:
    """Close these connections, wait until they are gone, and return those that had not ended by themselves, with the
    server's reason for their end."""
    closed = kick(api, {server.id: server for server in servers}, chosen, params["rate"], params["notice"])
    wait_until_gone(api, chosen, params)
    reasons = {key(row): row["reason"] for row in read_ended(api, chosen, params["kind"], CLOSED).connections}
    return [{**row, "reason": reasons.get(key(row))} for row in chosen if key(row) in closed]


def read_ended(api: SystemApi, chosen: Sequence[Row], kinds: Sequence[str], state: str) -> AffectedConnections:
    """Return the connections in this state on the servers on which connections were closed."""
    nothing = dict.fromkeys(FILTER_SPEC)
    return read_connections(api, {**nothing, "server_names": sorted({row["server"] for row in chosen})}, kinds, state)


def wait_until_gone(api: SystemApi, chosen: Sequence[Row], params: Mapping[str, Any]) -> None:
    """Wait until no server lists the chosen connections.

    Raises NatsFailure kick_not_seen when a connection is still listed, or a server does not reply, after
    `wait_timeout`.
    """
    keys = {key(row) for row in chosen}

    def still_there() -> list[str]:
        reading = read_ended(api, chosen, params["kind"], OPEN)
        return reading.missing_servers() + [line(row).strip() for row in reading.connections if key(row) in keys]

    seen = wait_until(still_there, lambda lines: not lines, params["wait_timeout"])
    if not seen.done:
        still = "; ".join(seen.value)
        raise NatsFailure("kick_not_seen", f"still listed {params['wait_timeout']:g} s after being closed: {still}")


def main() -> None:
    module = make_module(
        {
            **FILTER_SPEC,
            "kind": KIND_SPEC,
            "balance": {"type": "bool", "default": False},
            "max_kicks": {"type": "int"},
            "rounds": {"type": "int", "default": 1},
            "rate": {"type": "float", "default": 10},
            "notice": {"type": "float", "default": 0},
            "wait_timeout": {"type": "float", "default": 60},
        }
    )
    run(module, with_client, lambda client: ensure(client, module.params, module.check_mode))


if __name__ == "__main__":
    main()
