#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_listener_info
short_description: Read the certificates that the listeners of a NATS server present
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Opens a TLS connection to each listener, as a client or another server would, and returns the certificate that the
    listener presents and whether that certificate is trusted. The module needs no NATS credentials, and only Python
    on the host where it runs.
  - The host name is not compared with the names in the certificate. The task does not fail if a listener does not
    answer.
options:
  listeners:
    description: The listeners to connect to.
    type: list
    elements: dict
    required: true
    suboptions:
      host:
        description: Address of the listener.
        type: str
        required: true
      port:
        description: Port of the listener.
        type: int
        required: true
      tls_first:
        description:
          - Whether the connection begins with TLS, as it does for routes, gateways, and clients of a server with
            C(handshake_first). To all other clients, the server first sends a greeting in plaintext.
        type: bool
        default: false
  tls_ca_file:
    description: File with the certificates of the trusted authorities.
    type: path
    required: true
  tls_cert_file:
    description: File with the certificate to present to listeners that require one.
    type: path
  tls_key_file:
    description: File with the private key of O(tls_cert_file).
    type: path
  timeout:
    description: Timeout of each connection in seconds.
    type: float
    default: 5
attributes:
  check_mode:
    description: Can run in check mode, because the module only reads.
    support: full
  diff_mode:
    description: The module changes nothing.
    support: N/A
"""

EXAMPLES = r"""
- name: Read the certificates of the clients' and the routes' port
  natsops.jetstream.nats_listener_info:
    listeners:
      - {host: n1.example.com, port: 4222}
      - {host: n1.example.com, port: 6222, tls_first: true}
    tls_ca_file: /etc/nats-server/tls/ca.crt
    tls_cert_file: /etc/nats-server/tls/server.crt
    tls_key_file: /etc/nats-server/tls/server.key
"""

RETURN = r"""
listeners:
  description:
    - One entry for each listener. C(sha256) is the fingerprint of the certificate, or null if none was presented.
      C(accepted) is true if both sides trusted each other, that is, if the handshake succeeded and, on a port that
      begins with TLS, the server's greeting arrived after the handshake.
  returned: always
  type: list
  elements: dict
  sample:
    - {host: n1.example.com, port: 6222, accepted: true, error: null, not_after: "2027-12-21T10:00:00+00:00",
       sha256: 5f1c0d3b4b1c6d9f0b3fd7a1c3c0f5f1c0d3b4b1c6d9f0b3fd7a1c3c0f5aa01b}
"""

import hashlib
import socket
import ssl
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, Optional

from ..module_utils.collection_module import CollectionModule, failing_on, run


def read_line(connection: socket.socket) -> bytes:
    """Return the next line from the peer. Raises OSError when the connection ends first."""
    line = b""
    while not line.endswith(b"\n"):
        byte = connection.recv(1)
        if not byte:
            raise OSError("the server closed the connection")
        line += byte
    return line


def trusting(ca_file: str, cert_file: Optional[str], key_file: Optional[str]) -> ssl.SSLContext:
    """Return the TLS context of a client that trusts these authorities. Raises OSError for files that cannot be
    used."""
    context = ssl.create_default_context(cafile=ca_file)
    context.check_hostname = False
    if cert_file:
        context.load_cert_chain(cert_file, key_file)
    return context


def look(listener: Mapping[str, Any], context: ssl.SSLContext, timeout: float) -> dict[str, Any]:
    """Return whether a listener accepts the TLS connection, and the certificate that it presents."""
    found: dict[str, Any] = {
        "host": listener["host"],
        "port": listener["port"],
        "accepted": False,
        "error": None,
        "sha256": None,
        "not_after": None,
    }
    try:
        with socket.create_connection((listener["host"], listener["port"]), timeout=timeout) as plain:
            if not listener["tls_first"]:
                read_line(plain)
            with context.wrap_socket(plain, server_hostname=listener["host"]) as secure:
                found["sha256"] = hashlib.sha256(secure.getpeercert(binary_form=True) or b"").hexdigest()
                end = ssl.cert_time_to_seconds(str((secure.getpeercert() or {})["notAfter"]))
                found["not_after"] = datetime.fromtimestamp(end, timezone.utc).isoformat()
                if listener["tls_first"]:
                    read_line(secure)
                found["accepted"] = True
    except OSError as error:
        found["error"] = str(error)
    return found


def read(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's result. Raises OSError for TLS files that cannot be used."""
    context = trusting(params["tls_ca_file"], params["tls_cert_file"], params["tls_key_file"])
    return {
        "changed": False,
        "listeners": [look(listener, context, params["timeout"]) for listener in params["listeners"]],
    }


def main() -> None:
    module = CollectionModule(
        argument_spec={
            "listeners": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "host": {"type": "str", "required": True},
                    "port": {"type": "int", "required": True},
                    "tls_first": {"type": "bool", "default": False},
                },
            },
            "tls_ca_file": {"type": "path", "required": True},
            "tls_cert_file": {"type": "path"},
            "tls_key_file": {"type": "path", "no_log": False},
            "timeout": {"type": "float", "default": 5},
        },
        required_together=[("tls_cert_file", "tls_key_file")],
        supports_check_mode=True,
    )
    frame = failing_on(OSError, message=lambda error: f"the TLS files cannot be used: {error}")
    run(module, frame, lambda module: read(module.params))


if __name__ == "__main__":
    main()
