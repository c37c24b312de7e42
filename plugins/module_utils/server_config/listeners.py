# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The addresses on which a server listens, from its structured configuration, and the ports of other servers to which
it connects. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

DEFAULT_PORTS = {"client": 4222, "cluster": 6222, "gateway": 7222, "leafnodes": 7422, "websocket": 8080, "mqtt": 1883}
_EVERYWHERE = {"", "0.0.0.0", "::", "[::]", None}


def split_address(value: Any, default_host: str = "") -> tuple[str, int]:
    """Return `host:port`, `:port` or a bare port as `(host, port)`; IPv6 hosts lose their brackets.

    Raises ValueError if the text has no port number.
    """
    text = str(value).strip()
    host, separator, port = text.rpartition(":")
    if not separator:
        host = default_host
    return host.strip("[]") or default_host, int(port)


def is_loopback(host: str) -> bool:
    """Return whether a host or an address is the machine itself."""
    return host in ("localhost", "::1") or host.startswith("127.")


def _reachable(host: Any, fallback: str = "127.0.0.1") -> str:
    return fallback if host in _EVERYWHERE else str(host)


def _listener(block: dict[str, Any], kind: str) -> tuple[str, int]:
    if block.get("listen"):
        return split_address(block["listen"])
    return str(block.get("host") or ""), int(block.get("port") or DEFAULT_PORTS[kind])


def bound(config: dict[str, Any]) -> list[tuple[str, str, int]]:
    """Return `(name, host, port)` of every listener as configured; an empty host stands for every address of the host.

    A port of -1 (chosen by the server) is omitted. Raises ValueError if an address has no port number.
    """
    found = [("client", _listener(config, "client"))]
    for kind in ("cluster", "gateway", "leafnodes", "websocket", "mqtt"):
        block = config.get(kind)
        # A leafnodes block without a port only connects to remotes.
        if isinstance(block, dict) and (kind != "leafnodes" or block.get("port") or block.get("listen")):
            found.append((kind, _listener(block, kind)))
    for key in ("http", "https", "http_port", "https_port"):
        if config.get(key):
            found.append(("monitoring", split_address(config[key])))
    return [(name, "" if host in _EVERYWHERE else host, port) for name, (host, port) in found if port > 0]


def listeners(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Return `[{name, host, port}]` of every listener, with an address to which the host itself can connect."""
    return [{"name": name, "host": _reachable(host), "port": port} for name, host, port in bound(config)]


def monitor_url(config: dict[str, Any]) -> str:
    """Return the base URL of the monitoring endpoint as seen from the host itself; empty if monitoring is off."""
    base = str(config.get("http_base_path") or "").strip("/")
    for key in ("http", "https", "http_port", "https_port"):
        if config.get(key):
            host, port = split_address(config[key])
            host = _reachable(host)
            host = f"[{host}]" if ":" in host else host
            return f"{key.partition('_')[0]}://{host}:{port}" + (f"/{base}" if base else "")
    return ""


def peer_ports(servers: Sequence[Mapping[str, Any]], own: str) -> list[dict[str, Any]]:
    """Return the ports of the other servers to which the server `own` connects, each with `server_name`, `listener`,
    `host` and `port`: the routes of its cluster, and the gateways of the other clusters. `servers`: as
    `topology.members` returns them; the result is empty if `own` is not among them."""
    home = next((server["cluster"] for server in servers if server["server_name"] == own), None)
    found = []
    for server in servers:
        if home is not None and server["server_name"] != own:
            listener, address, port = (
                ("cluster", "route_address", "cluster_port")
                if server["cluster"] == home
                else ("gateway", "gateway_address", "gateway_port")
            )
            ends = {"host": str(server[address]), "port": int(server[port])}
            found.append({"server_name": server["server_name"], "listener": listener, **ends})
    return found
