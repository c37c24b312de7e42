# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The path of a message through the servers, from their trace events. Pure: no I/O.

Sources: ADR-41, server/msgtrace.go (2.11).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..screen import printable

#: The headers of a message that servers only trace: they neither deliver nor store it.
TRACE_DESTINATION, TRACE_ONLY = "Nats-Trace-Dest", "Nats-Trace-Only"
#: The first release that traces messages; earlier ones ignore the headers and deliver the message.
TRACED_SINCE = (2, 11)

#: The kinds of connections (server/client.go).
_KINDS = {0: "client", 1: "route", 2: "gateway", 3: "system", 4: "leafnode", 5: "jetstream", 6: "account"}
#: The kinds that lead to a different server, which sends a trace event of its own.
_LINKS = ("route", "gateway", "leafnode")


def is_complete(events: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether every server that received the message has sent its event."""
    return bool(events) and len(events) >= 1 + sum(int(event.get("hops") or 0) for event in events)


def read_hops(events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one row for each server that received the message, in the order of their hops. Raises KeyError, TypeError,
    ValueError for events that no server sends."""
    hops = [_read_hop(event) for event in events]
    return sorted(hops, key=lambda hop: [int(part) for part in hop["hop"].split(".") if part])


def _read_hop(event: Mapping[str, Any]) -> dict[str, Any]:
    server = event["server"]
    header = (event.get("request") or {}).get("header") or {}
    hop: dict[str, Any] = {
        "hop": next(iter(header.get("Nats-Trace-Hop") or ()), ""),
        "server": str(server.get("name") or server.get("id")),
        "cluster": server.get("cluster"),
        "received_from": None,
        "mapped_to": None,
        "exports": [],
        "imports": [],
        "stream": None,
        "deliveries": [],
    }
    for item in event.get("events") or ():
        kind = item["type"]
        if kind == "in":
            hop["received_from"] = {
                **_party(item),
                "account": item.get("acc"),
                "subject": item.get("subj"),
                "error": item.get("error"),
            }
        elif kind == "sm":
            hop["mapped_to"] = item.get("to")
        elif kind == "se":
            hop["exports"].append({"account": item.get("acc"), "to": item.get("to")})
        elif kind == "si":
            hop["imports"].append({"account": item.get("acc"), "from": item.get("from"), "to": item.get("to")})
        elif kind == "js":
            hop["stream"] = {
                "name": item.get("stream"),
                "subject": item.get("subject"),
                "no_interest": bool(item.get("nointerest")),
                "error": item.get("error"),
            }
        elif kind == "eg":
            hop["deliveries"].append(
                {
                    **_party(item),
                    "account": item.get("acc"),
                    "subscription": item.get("sub"),
                    "queue": item.get("queue"),
                    "hop": item.get("hop"),
                    "error": item.get("error"),
                }
            )
    return hop


def _party(item: Mapping[str, Any]) -> dict[str, Any]:
    return {"kind": _KINDS.get(int(item["kind"]), "unknown"), "name": item.get("name"), "cid": item.get("cid")}


def lines(hops: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the path as one line for each server, stream and receiver, indented by the depth of the hop."""
    found = []
    for hop in hops:
        indent = "  " * (hop["hop"].count(".") + 1 if hop["hop"] else 0)
        source = hop["received_from"] or {}
        found.append(f"{indent}{hop['server']} from {source.get('kind')} {source.get('name') or ''}".rstrip())
        if source.get("error"):
            found.append(f"{indent}  rejected: {source['error']}")
        if hop["mapped_to"]:
            found.append(f"{indent}  mapped to {hop['mapped_to']}")
        found += [f"{indent}  service of account {item['account']}: {item['to']}" for item in hop["imports"]]
        found += [f"{indent}  stream import of account {item['account']}: {item['to']}" for item in hop["exports"]]
        if hop["stream"]:
            error = hop["stream"]["error"]
            found.append(f"{indent}  stream {hop['stream']['name']}" + (f": {error}" if error else ""))
        for item in hop["deliveries"]:
            if item["kind"] not in _LINKS or item["error"]:
                error = f": {item['error']}" if item["error"] else ""
                found.append(f"{indent}  {item['kind']} {item['name'] or item['cid']} ({item['subscription']}){error}")
    return [printable(line) for line in found]


def summary(hops: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the number of clients that would receive the message, the streams that would store it, and the errors."""
    deliveries = [item for hop in hops for item in hop["deliveries"]]
    streams = [hop["stream"] for hop in hops if hop["stream"]]
    errors = [
        *(hop["received_from"]["error"] for hop in hops if (hop["received_from"] or {}).get("error")),
        *(f"stream {stream['name']}: {stream['error']}" for stream in streams if stream["error"]),
        *(f"{item['kind']} {item['name'] or item['cid']}: {item['error']}" for item in deliveries if item["error"]),
    ]
    return {
        "receivers": sum(item["kind"] == "client" and not item["error"] for item in deliveries),
        "streams": sorted({str(stream["name"]) for stream in streams if not stream["error"]}),
        "errors": [printable(error) for error in errors],
    }
