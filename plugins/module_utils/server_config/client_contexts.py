# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The contexts of the nats command that the role nats_server writes. Pure.

There is one for the system user, and one for each of the configured contexts or, without a list, for each user of an
account whose password is known: a hash cannot be sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypedDict

from ..nats.credentials_file import is_seed
from .passwords import is_hash
from .topology import boolean


class ContextKey(TypedDict):
    """The key or the credentials of the system user, which the nats command reads from the file `path`. Their text is
    `text`, or the content of the file `source`. All are empty if the context has a password."""

    path: str
    text: str
    source: str


class ClientContexts(TypedDict):
    """The contexts, each with its `name` and its `settings` (jsm.go, natscontext/context.go), and the file next to
    them."""

    key: ContextKey
    contexts: list[dict[str, Any]]


def client_contexts(
    options: Mapping[str, Any],
    directory: str,
    topology: Mapping[str, Any],
    client_tls: Mapping[str, Any],
    connection: Mapping[str, Any] | None,
) -> ClientContexts:
    """Return the contexts for a `directory`. `options`: the role's variables; `client_tls`: how clients connect;
    `connection`: the login of the modules if the contexts are for the controller, otherwise they are for the host, whose
    TLS files they use."""
    kind = _key_kind(options)
    name = f"{options['cluster_name']}-{options['system_user']}"
    key = ContextKey(path="", text="", source="")
    first: list[dict[str, Any]] = []
    if kind:
        seed = str(options["api_nkey"]) if _has_seed(options) else ""
        source = "" if seed else str(options.get("api_credentials") or options["api_nkey"])
        key = ContextKey(path=f"{directory}/{name}.{kind}", text=seed, source=source)
        first = [{"name": name, kind: key["path"]}]
    elif options.get("system_password"):
        first = [{"user": options["system_user"], "password": options["system_password"]}]
    own = options.get("contexts") or list(_application_contexts(options))
    common = {
        "description": f"NATS cluster {options['cluster_name']}",
        **(_host_files(options, client_tls) if connection is None else _controller_files(connection)),
        **({"tls_first": True} if boolean(client_tls["tls_first"]) else {}),
    }
    urls = options.get("api_servers") or topology["client_urls"][: len(topology["servers"])]
    return {"key": key, "contexts": [_context(one, options["cluster_name"], common, urls) for one in [*first, *own]]}


def _context(given: Mapping[str, Any], cluster: str, common: Mapping[str, Any], urls: Any) -> dict[str, Any]:
    servers = given.get("servers", urls)
    settings = {
        **common,
        **{key: value for key, value in given.items() if key not in ("name", "servers")},
        "url": servers if isinstance(servers, str) else ",".join(servers),
    }
    return {"name": given.get("name", f"{cluster}-{given.get('user', '')}"), "settings": settings}


def _key_kind(options: Mapping[str, Any]) -> str:
    """Return the suffix of the file with the login of the system user.

    The nats command reads a key only from a file. The modules also accept the seed itself, and their file is on the host
    on which they run. If this is not the controller, there is no file to copy."""
    if options["api_delegate_to"] != "localhost" and not _has_seed(options):
        return ""
    return "creds" if options.get("api_credentials") else "nkey" if options.get("api_nkey") else ""


def _has_seed(options: Mapping[str, Any]) -> bool:
    return not options.get("api_credentials") and is_seed(str(options.get("api_nkey") or ""), "U")


def _application_contexts(options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name, account in (options.get("accounts") or {}).items():
        if name != options["system_account"]:
            for user in (account or {}).get("users") or ():
                if "password" in user and not is_hash(str(user["password"])):
                    yield {key: user[key] for key in ("user", "password") if key in user}


def _controller_files(connection: Mapping[str, Any]) -> dict[str, Any]:
    return {name: connection.get(f"tls_{name}_file") for name in ("ca", "cert", "key")}


def _host_files(options: Mapping[str, Any], client_tls: Mapping[str, Any]) -> dict[str, Any]:
    if not boolean(client_tls["uses_tls"]):
        return {}
    folder = options["tls_dir"]
    own = {"cert": f"{folder}/server.crt", "key": f"{folder}/server.key"}
    return {"ca": options["tls_ca_file"], **(own if boolean(options["tls_verify_clients"]) else {})}
