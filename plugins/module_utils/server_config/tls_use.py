# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The connections that use the TLS files of the role nats_server. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from .topology import boolean


class TlsUse(TypedDict):
    """`names`: the names that servers and clients use for this server over connections with the files. `between_servers`:
    whether the servers of the cluster use them. `listeners`: the addresses on which a connection shows the server's
    certificate, as options of the module nats_listener_info."""

    names: list[str]
    between_servers: bool
    listeners: list[dict[str, Any]]


def tls_use(options: Mapping[str, Any]) -> TlsUse:
    """Return the use of the files. `options`: the role's variables; a block `tls` of the user replaces the files for its
    connections."""
    for_clients = options.get("tls") in (None, "") and boolean(options["tls_for_clients"])
    own_block = "cert_file" in (options.get("cluster_tls") or {})
    between = boolean(options["clustered"]) and not own_block and boolean(options["tls_for_cluster"])
    route = options["cluster_route_address"]
    names = [options["address"]] if for_clients else []
    listeners = [{"host": options["address"], "port": options["port"]}] if for_clients else []
    if between:
        names.append(route)
        listeners.append({"host": route, "port": options["cluster_port"], "tls_first": True})
        if options.get("supercluster_groups") or isinstance(options.get("gateway"), Mapping):
            names.append(options["gateway_address"])
        if {"port", "listen"} & set(options.get("leafnodes") or {}):
            names.append(options["leafnode_address"])
    return {"names": list(dict.fromkeys(names)), "between_servers": between, "listeners": listeners}
