# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Certificates in PEM form, for the filters. Used only on the controller, because it needs cryptography."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from ..module_utils.problem import ConfigProblem
from ..module_utils.server_config.case import error

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.x509.oid import ExtendedKeyUsageOID

    HAS_CRYPTOGRAPHY = True
except ImportError:
    HAS_CRYPTOGRAPHY = False

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


def parse(pem: str) -> list[x509.Certificate]:
    """Return the certificates in a text. Raises ValueError if the text contains a key or an unreadable certificate."""
    if not HAS_CRYPTOGRAPHY:
        raise ValueError(
            "the Python package cryptography, which ansible-core itself needs, is missing on the controller"
        )
    if "PRIVATE KEY-----" in pem:
        raise ValueError("the certificates include a private key")
    return [x509.load_pem_x509_certificate(text.encode()) for text in _PEM.findall(pem)]


def certificates(pem: str) -> list[dict[str, Any]]:
    """Return the subject, the expiry in UTC and the fingerprint of each certificate in a text."""
    return [
        {
            "subject": certificate.subject.rfc4514_string(),
            "not_after": _end(certificate).isoformat(),
            "sha256": certificate.fingerprint(hashes.SHA256()).hex(),
        }
        for certificate in parse(pem)
    ]


def trusted(pem: str, authorities: str) -> bool:
    """Return whether a chain of signatures leads from the first certificate, through the others in the text, to an
    authority."""
    chain, roots = parse(pem), parse(authorities)
    if not chain:
        raise ValueError("the text contains no certificate")
    current, rest = chain[0], chain[1:]
    while not any(current == root or _signed(current, root) for root in roots):
        issuer = next((other for other in rest if _signed(current, other)), None)
        if issuer is None:
            return False
        rest = [other for other in rest if other != issuer]
        current = issuer
    return True


def problems(pem: str, key: str | None, names: Sequence[str], now: datetime, mutual: bool = False) -> list[str]:
    """Return why a server cannot present the first certificate of a text to clients that use one of the names; empty if
    it can. If no key is given, none is compared.

    `mutual`: the server also presents the certificate as a client, as between servers; Go requires the extended key
    usage for each role.

    Go, and therefore nats-server, does not fall back on the subject of a certificate that has no names (crypto/x509,
    VerifyHostname).
    """
    chain = parse(pem)
    if not chain:
        raise ValueError("the text contains no certificate")
    leaf, found = chain[0], []
    try:
        if key is not None and _public(key) != leaf.public_key():
            found.append("the key does not match the certificate")
    except (ValueError, TypeError) as unreadable:
        found.append(f"the key cannot be read: {unreadable}")
    if _end(leaf) <= now:
        found.append(f"it ended {_end(leaf).isoformat()}")
    if _begin(leaf) > now:
        found.append(f"it begins {_begin(leaf).isoformat()}")
    usages = (
        ("serverAuth", ExtendedKeyUsageOID.SERVER_AUTH, True),
        ("clientAuth", ExtendedKeyUsageOID.CLIENT_AUTH, mutual),
    )
    unusable = [usage for usage, oid, wanted in usages if wanted and not _may_be_used(leaf, oid)]
    if unusable:
        found.append(f"its extended key usage lacks {' and '.join(unusable)}")
    missing = [name for name in names if not _covers(leaf, name)]
    if missing:
        found.append(f"it lacks the name {', '.join(missing)}")
    return found


def file_problems(given: Mapping[str, Any], now: datetime) -> list[ConfigProblem]:
    """Return the problems of a server's new certificate files; see `tls_files` of the filter nats_config_problems."""
    on_host = given.get("key") is None
    if given["missing"]:
        where = given["host"] if on_host else "the controller"
        absent = [f"{path} does not exist on {where}" for path in given["missing"]]
        return [error("nats_server_tls_source", message) for message in absent]
    reasons = list(given.get("reasons") or [])
    try:
        reasons += problems(given["certificate"], given.get("key"), given["names"], now, given["mutual"])
    except ValueError as unreadable:
        reasons.append(str(unreadable))
    option = "nats_server_tls_cert_file" if on_host else "nats_server_tls_cert_src"
    return [error(option, f"{given['host']} cannot present {given['path']}: {reason}") for reason in reasons]


def authority_problems(given: Mapping[str, Any]) -> list[ConfigProblem]:
    """Return an error if a running server presents a certificate of another authority than the inventory's; see
    `tls_authority` of the filter nats_config_problems. Clients and servers that trust only the old authority would
    refuse new certificates, so only a rotation may replace it."""
    if not given["running"] or not given["presented"]:
        return []
    try:
        if given["authorities"] and trusted(given["presented"], given["authorities"]):
            return []
    except ValueError as unreadable:
        return [error("nats_server_tls_source", f"{given['path']}: {unreadable}")]
    path, host = given["path"], given["host"]
    found = (
        f"{path} did not issue the certificate that {host} presents"
        if given["authorities"]
        else f"{path} does not exist, but {host} presents a certificate"
    )
    option, source, new = (
        ("nats_server_tls_ca_dir", "Copy the directory from the controller that deployed the cluster", "new_ca_dir")
        if given["source"] == "ca"
        else ("nats_server_tls_ca_src", "Set it to the authority that issued the certificate", "new_ca_src")
    )
    message = (
        f"{found}; clients and servers that trust its authority would refuse certificates of another one. {source}, or"
        f" change the authority with nats_server_tls_{new} and the playbook rotate_certificates"
    )
    return [error(option, message)]


def _public(key: str) -> Any:
    return serialization.load_pem_private_key(key.encode(), password=None).public_key()


def _may_be_used(certificate: x509.Certificate, usage: Any) -> bool:
    """A certificate without the extension may be used for everything (crypto/x509, VerifyOptions.KeyUsages)."""
    try:
        held = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    return usage in held or ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in held


def _covers(certificate: x509.Certificate, name: str) -> bool:
    try:
        held = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    try:
        return ipaddress.ip_address(name) in held.get_values_for_type(x509.IPAddress)
    except ValueError:
        wildcard = "*." + name.partition(".")[2]
        return bool({name.lower(), wildcard.lower()} & {dns.lower() for dns in held.get_values_for_type(x509.DNSName)})


def _signed(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _end(certificate: x509.Certificate) -> datetime:
    """Return the expiry with its time zone, which cryptography before 42 omits."""
    aware = getattr(certificate, "not_valid_after_utc", None)
    return aware or certificate.not_valid_after.replace(tzinfo=timezone.utc)


def _begin(certificate: x509.Certificate) -> datetime:
    aware = getattr(certificate, "not_valid_before_utc", None)
    return aware or certificate.not_valid_before.replace(tzinfo=timezone.utc)
