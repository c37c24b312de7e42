# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the servers' connections and selects some of them."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from ..nats.account_names import GLOBAL_ACCOUNT
from ..nats.client import NatsFailure
from ..nats.model import Server
from ..nats.system_api import SystemApi
from ..times import parse_time
from ..units import duration_seconds
from ..versions import reported_version

#: The options that select connections, which are the same in every module; see doc_fragments/connections.py.
FILTER_SPEC: dict[str, dict[str, Any]] = {
    "server_names": {"type": "list", "elements": "str"},
    "cluster": {"type": "str"},
    "account": {"type": "str"},
    "auth_user": {"type": "str"},
    "name": {"type": "str"},
    "cid": {"type": "int"},
    "ip": {"type": "str"},
    "lang": {"type": "str"},
    "version": {"type": "str"},
    "idle": {"type": "float"},
    "pending_bytes": {"type": "int"},
    "subscriptions": {"type": "int"},
    "subject": {"type": "str"},
}

OPEN, CLOSED, ANY = "open", "closed", "any"
_STATES = {OPEN: 0, CLOSED: 1, ANY: 2}

#: Fields of a connection that contain no secrets (monitor.go ConnInfo). The field `jwt` is a secret.
_AS_REPORTED = (
    "cid",
    "type",
    "ip",
    "port",
    "name",
    "lang",
    "version",
    "pending_bytes",
    "in_msgs",
    "out_msgs",
    "in_bytes",
    "out_bytes",
    "subscriptions",
    "start",
    "last_activity",
    "stop",
    "reason",
    "tls_version",
    "tls_cipher_suite",
    "mqtt_client",
    "name_tag",
    "tags",
)

#: The account of clients that specify none (server.go globalAccountName); servers do not report it.

#: Up to this version, servers report a token as the user (client.go getRawAuthUser); only the global account has
#: tokens.
_TELLS_TOKENS = (2, 11, 3)


@dataclass(frozen=True)
class AffectedConnections:
    """The matching connections; the servers that reported their connections; the requested servers that are missing;
    and the failed requests."""

    connections: list[dict[str, Any]]
    servers: list[Server]
    missing: list[str]
    incomplete: list[dict[str, Any]]

    def missing_servers(self) -> list[str]:
        """Return a line for each server whose connections are unknown."""
        return [
            *(f"{name} did not answer" for name in self.missing),
            *(f"{item['server']} did not return them: {item['failure']['description']}" for item in self.incomplete),
        ]


def read_connections(
    api: SystemApi, params: Mapping[str, Any], kinds: Sequence[str], state: str = OPEN
) -> AffectedConnections:
    """Return the connections that match the options of FILTER_SPEC. Raises NatsFailure."""
    if params["subject"] is not None and (params["account"] is None or state != OPEN):
        raise NatsFailure(
            "invalid_option", "subject: servers search for a subject only among the open connections of one account"
        )
    network = _network(params["ip"])
    names = params["server_names"]
    discovery = api.discover(names or ())
    servers = [
        server
        for server in discovery.servers
        if params["cluster"] in (None, server.cluster) and (names is None or server.name in names)
    ]
    asked = {
        "acc": params["account"] and api.account_id(servers, params["account"]),
        "user": params["auth_user"],
        "cid": params["cid"],
        "filter_subject": params["subject"],
    }
    asked = {name: value for name, value in asked.items() if value is not None}
    answers = api.ask(servers, "CONNZ", {"auth": True, "state": _STATES[state], **asked})
    found: dict[tuple[str, int], dict[str, Any]] = {}
    incomplete, answered = [], []
    for server in servers:
        answer = answers[server.id]
        if isinstance(answer, NatsFailure):
            incomplete.append({"server": server.name, "endpoint": "connz", "failure": answer.as_dict()})
            continue
        answered.append(server)
        # If a connection ends while pages are being read, later connections move to pages that were already read.
        for item in answer.get("connections") or ():
            row = describe(server, item, answer["now"])
            if matches(row, params, kinds, network):
                found[server.id, row["cid"]] = row
    missing = sorted(set(names or ()) - {server.name for server in servers})
    return AffectedConnections(list(found.values()), answered, missing, incomplete)


def describe(server: Server, reported: Mapping[str, Any], now: str) -> dict[str, Any]:
    """Return a connection without its secrets; `uptime`, `idle` and `rtt` in seconds, `rtt` is null until measured."""
    row: dict[str, Any] = {"server": server.name, "server_id": server.id, "cluster": server.cluster}
    row.update({name: reported.get(name) for name in _AS_REPORTED})
    row["kind"] = str(reported.get("kind") or "Client").lower()
    row["account"] = reported.get("account") or GLOBAL_ACCOUNT
    hidden = row["account"] == GLOBAL_ACCOUNT and reported_version(server.version) <= _TELLS_TOKENS
    row["user"] = "(hidden)" if hidden and reported.get("authorized_user") else reported.get("authorized_user")
    row["state"] = CLOSED if reported.get("stop") else OPEN
    end = parse_time(str(reported.get("stop") or now))
    for name, since in (("uptime", reported["start"]), ("idle", reported["last_activity"])):
        row[name] = round(max((end - parse_time(since)).total_seconds(), 0.0), 3)
    rtt = duration_seconds(reported.get("rtt") or 0)
    row["rtt"] = rtt or None
    return row


def matches(
    row: Mapping[str, Any],
    params: Mapping[str, Any],
    kinds: Sequence[str],
    network: ipaddress.IPv4Network | ipaddress.IPv6Network | None,
) -> bool:
    """Return whether a connection passes the filters that are not part of the request to the servers."""
    if row["kind"] not in kinds:
        return False
    for name in ("name", "lang", "version"):
        if params[name] is not None and not fnmatchcase(row[name] or "", params[name]):
            return False
    for name in ("idle", "pending_bytes", "subscriptions"):
        if params[name] is not None and (row[name] or 0) < params[name]:
            return False
    if network is None:
        return True
    try:
        return ipaddress.ip_address(row["ip"] or "") in network
    except ValueError:
        return False


def _network(text: str | None) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return None if text is None else ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise NatsFailure("invalid_option", f"ip: {error}") from error
