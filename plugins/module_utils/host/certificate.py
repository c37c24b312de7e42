# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""TLS files owned by a host, such as those of an ACME client, checked without copying the private key off the host."""

from __future__ import annotations

import os
import pwd
import ssl
import subprocess
from collections.abc import Mapping
from typing import Any


def read_certificate(files: Mapping[str, str], user: str) -> dict[str, Any]:
    """Return the certificate in `cert_file`, and why nats-server cannot use the three files.

    `missing` lists the files that do not exist, `certificate` is the PEM text, and `reasons` lists causes other than
    the dates and names in the certificate. `user` is the user that runs nats-server; access is not checked if that user
    does not exist yet. Raises OSError.
    """
    paths = [files[name] for name in ("cert_file", "key_file", "ca_file")]
    missing = [path for path in paths if not os.path.exists(path)]
    if missing:
        return {"missing": missing, "certificate": "", "reasons": []}
    with open(files["cert_file"], encoding="utf-8", errors="replace") as file:
        certificate = file.read()
    reasons = [
        *_pair(files["cert_file"], files["key_file"]),
        *_authorities(files["ca_file"]),
        *_unreadable(paths, user),
    ]
    return {"missing": [], "certificate": certificate, "reasons": reasons}


def _pair(cert_file: str, key_file: str) -> list[str]:
    """Compare the public keys of both files with OpenSSL, as Go does (crypto/tls, X509KeyPair)."""

    def encrypted() -> str:
        raise ValueError(f"the key {key_file} is encrypted, which nats-server does not support")

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert_file, key_file, encrypted)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            return [f"the key {key_file} does not match the certificate"]
        return [
            f"{cert_file} and {key_file} cannot be read as a certificate and a key in PEM format: {error.reason or error}"
        ]
    except ValueError as error:
        return [str(error)]
    return []


def _authorities(path: str) -> list[str]:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(path)
    except ssl.SSLError as error:
        return [f"{path} does not contain a CA certificate in PEM format: {error.reason or error}"]
    return []


def _unreadable(paths: list[str], user: str) -> list[str]:
    """Open the files as the user of the service, because a parent directory may also deny access."""
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        return []  # the role has not created the user yet
    if os.geteuid() != 0 or entry.pw_uid == 0:
        return []
    done = subprocess.run(
        ["cat", "--", *paths],
        user=entry.pw_uid,
        group=entry.pw_gid,
        extra_groups=os.getgrouplist(user, entry.pw_gid),
        cwd="/",
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    return [
        f"the user {user}, who runs nats-server, cannot read {line.removeprefix('cat: ')}"
        for line in done.stderr.splitlines()
    ]
