# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The TLS files of a host on the controller: those of the inventory, and those of the authority that replaces the
current one. Pure: paths only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

#: The file on the host → the part of the variable nats_server_tls_PART_src, and the end of the file's name in the
#: directory of a private authority.
_FILES = {"ca.crt": "ca", "server.crt": "cert", "server.key": "key"}


@dataclass(frozen=True)
class TlsSourceOptions:
    """The role's variables nats_server_tls_NAME. A null is an empty text."""

    source: str = "none"
    ca_dir: str = ""
    ca_key_file: str = ""
    new_ca_dir: str = ""
    ca_src: str = ""
    cert_src: str = ""
    key_src: str = ""
    new_ca_src: str = ""
    new_cert_src: str = ""
    new_key_src: str = ""
    bundle_src: str = ""


def tls_sources(options: TlsSourceOptions, host: str) -> dict[str, Any]:
    """Return the paths on the controller.

    `installed`: whether the role copies files from the controller. `rotating`: whether the inventory names a new
    authority. `current`, `new`: the file on the host → the file of the current and of the new authority. `given`: the
    files of the inventory after a rotation. `complete`: whether the operator supplies all current files. `authorities`:
    the file ca.crt that trusts the `current`, the `new` or `both` authorities. `supplied`: the variable → the file that
    a rotation needs. `authority`, `issuer`: directory (`dir`) and `key` of the current private authority, and of the one
    that issues certificates during a rotation. `without_issue`: the steps of `nats_server_tls_step` that issue no
    certificates."""
    supplies = options.source == "files"
    rotating = bool(options.new_ca_src) if supplies else options.source == "ca" and bool(options.new_ca_dir)
    current = _files(options, host, "", options.ca_dir)
    new = _files(options, host, "new_", options.new_ca_dir)
    bundle = options.bundle_src if supplies else f"{options.new_ca_dir}/bundle.crt"
    authority = {"dir": options.ca_dir, "key": options.ca_key_file or f"{options.ca_dir}/ca.key"}
    return {
        "installed": options.source in ("files", "ca"),
        "rotating": rotating,
        "without_issue": ["renew"] if rotating else [],
        "current": current,
        "new": new,
        "given": new if rotating else current,
        "complete": supplies and all(current.values()),
        "authorities": {"current": current["ca.crt"], "new": new["ca.crt"], "both": bundle},
        "supplied": {
            **{f"nats_server_tls_new_{part}_src": new[name] for name, part in _FILES.items()},
            "nats_server_tls_bundle_src": bundle,
        },
        "authority": authority,
        "issuer": {"dir": options.new_ca_dir, "key": f"{options.new_ca_dir}/ca.key"} if rotating else authority,
    }


def _files(options: TlsSourceOptions, host: str, prefix: str, directory: str) -> dict[str, str]:
    if options.source == "files":
        return {name: getattr(options, f"{prefix}{part}_src") for name, part in _FILES.items()}
    return {
        "ca.crt": f"{directory}/ca.crt",
        "server.crt": f"{directory}/{host}.crt",
        "server.key": f"{directory}/{host}.key",
    }
