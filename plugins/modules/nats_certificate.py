# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_certificate
short_description: Keep a private certificate authority and the certificates of servers and clients
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Creates a key and a certificate, and recreates them only if they are about to expire or no longer match these
    options.
  - Run the module on the controller, where the private authority is kept. Each host receives only its own files.
  - A server's certificate is valid for both sides of a connection, as routes and gateways require.
requirements:
  - cryptography (which ansible-core itself needs)
options:
  purpose:
    description: Purpose of the certificate.
    type: str
    choices: [ca, server, client]
    required: true
  path:
    description: Path of the certificate.
    type: path
    required: true
  key_path:
    description: Path of the certificate's private key, which has mode 0600.
    type: path
    required: true
  ca_path:
    description: Path of the certificate of the signing authority. Not used with O(purpose=ca).
    type: path
  ca_key_path:
    description: Path of the private key of the signing authority. Not used with O(purpose=ca).
    type: path
  common_name:
    description: The common name in the subject of the certificate.
    type: str
    required: true
  subject_alt_names:
    description: Host names and IP addresses for which the certificate is valid.
    type: list
    elements: str
    default: []
  valid_days:
    description: Number of days for which a new certificate is valid. A certificate never outlives the certificate of
      its authority.
    type: int
    default: 397
  renew_before_days:
    description: Renew the certificate when it expires within this many days.
    type: int
    default: 30
attributes:
  check_mode:
    description: Can run in check mode and return the changed status prediction without writing anything.
    support: full
  diff_mode:
    description: Returns the properties of the certificate before and after the change. Keys are never shown.
    support: full
notes:
  - An authority that is about to expire is renewed with its own key, so the certificates it signed stay valid.
  - An authority's key is never replaced. To start over, remove both files of the authority.
"""

EXAMPLES = r"""
- name: Keep an authority
  natsops.jetstream.nats_certificate:
    purpose: ca
    path: pki/ca.crt
    key_path: pki/ca.key
    common_name: NATS cluster C1
    valid_days: 3650
  delegate_to: localhost

- name: Keep the certificate of a server
  natsops.jetstream.nats_certificate:
    purpose: server
    path: pki/n1.crt
    key_path: pki/n1.key
    ca_path: pki/ca.crt
    ca_key_path: pki/ca.key
    common_name: n1
    subject_alt_names: [n1.example.com, 192.0.2.11, localhost, 127.0.0.1]
  delegate_to: localhost
"""

RETURN = r"""
reasons:
  description: Why the certificate was recreated. Empty if nothing changed.
  type: list
  elements: str
  returned: always
  sample: ["the subject alternative names differ"]
not_after:
  description: When the certificate expires.
  type: str
  returned: always
  sample: "2027-12-21T10:00:00+00:00"
serial_number:
  description: The serial number in hexadecimal digits. Empty in check mode if a new certificate would be created.
  type: str
  returned: always
"""

import ipaddress
import os
import stat
import traceback
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Optional, Union

from ansible.module_utils.basic import missing_required_lib

from ..module_utils.collection_module import CollectionModule, failing_on, run

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    CRYPTOGRAPHY_ERROR = None
except ImportError:
    CRYPTOGRAPHY_ERROR = traceback.format_exc()

_CLOCK_SKEW = timedelta(hours=1)
"""A host's clock may be behind the controller's, so certificates are backdated slightly."""


class CertificateError(Exception):
    """Files are unusable or must not be replaced; the message contains the remedy."""


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


@dataclass(frozen=True)
class CertificateRequest:
    """The desired certificate; `authority`: its signer, None if it is self-signed."""

    purpose: str
    common_name: str
    names: frozenset[str]
    lifetime: timedelta
    renew_before: timedelta
    authority: Optional[KeyPair]


def normal_name(name: str) -> str:
    """Return an IP address in its shortest form, or a host name in lower case.

    Raises CertificateError for anything else."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        pass
    if not name.isascii() or not name or any(letter in name for letter in " /:@,"):
        raise CertificateError(f"subject_alt_names: {name!r} is neither a host name nor an IP address")
    return name.lower()


def names_in(certificate: x509.Certificate) -> frozenset[str]:
    """Return the DNS names and IP addresses for which a certificate is valid."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    addresses = [str(address) for address in extension.get_values_for_type(x509.IPAddress)]
    return frozenset([*extension.get_values_for_type(x509.DNSName), *addresses])


def get_common_name(certificate: x509.Certificate) -> str:
    """Return the common name in a certificate's subject; empty if there is none."""
    found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else ""


def expiry(certificate: x509.Certificate) -> datetime:
    """Return the certificate's expiry time in UTC. cryptography before 42 only provides a time without a zone."""
    aware = getattr(certificate, "not_valid_after_utc", None)
    return aware or certificate.not_valid_after.replace(tzinfo=timezone.utc)


def signed_by(certificate: x509.Certificate, authority: KeyPair) -> bool:
    """Return whether the authority's key signed the certificate."""
    algorithm = certificate.signature_hash_algorithm
    if certificate.issuer != authority.certificate.subject or algorithm is None:
        return False
    try:
        authority.key.public_key().verify(certificate.signature, certificate.tbs_certificate_bytes, ec.ECDSA(algorithm))
    except InvalidSignature:
        return False
    return True


def reasons_to_renew(pair: KeyPair, request: CertificateRequest, now: datetime) -> list[str]:
    """Return the reasons why the pair must be renewed; empty if there are none."""
    certificate = pair.certificate
    reasons = []
    if certificate.public_key() != pair.key.public_key():
        reasons.append("the certificate does not match the key")
    if get_common_name(certificate) != request.common_name:
        reasons.append("the common name differs")
    if names_in(certificate) != request.names:
        reasons.append("the subject alternative names differ")
    if request.authority and not signed_by(certificate, request.authority):
        reasons.append("it was not signed by this authority")
    remaining = expiry(certificate) - now
    if remaining <= timedelta(0):
        reasons.append("it has expired")
    elif remaining <= request.renew_before:
        reasons.append(f"it expires within {request.renew_before.days} days")
    return reasons


def new_key() -> ec.EllipticCurvePrivateKey:
    """Return a new key on the curve P-256."""
    return ec.generate_private_key(ec.SECP256R1())


def issue(request: CertificateRequest, key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    """Return a certificate for the key, signed by the authority or, without one, self-signed."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, request.common_name)])
    issuer, signing_key, end = subject, key, now + request.lifetime
    if request.authority:
        issuer, signing_key = request.authority.certificate.subject, request.authority.key
        end = min(end, expiry(request.authority.certificate))
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False)
        .add_extension(x509.BasicConstraints(*(False, None) if request.authority else (True, 0)), critical=True)
        .add_extension(_key_usage(authority=request.authority is None), critical=True)
    )
    if request.authority:
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if request.purpose == "server":
            usages.insert(0, ExtendedKeyUsageOID.SERVER_AUTH)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    if request.names:
        names = [_general_name(name) for name in sorted(request.names)]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(signing_key, hashes.SHA256())


def _key_usage(authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> Union[x509.IPAddress, x509.DNSName]:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def load_certificate(path: str) -> x509.Certificate:
    """Read a PEM certificate. Raises CertificateError if the file contains none."""
    try:
        return x509.load_pem_x509_certificate(Path(path).read_bytes())
    except ValueError as error:
        raise CertificateError(f"{path} does not contain a certificate in PEM format: {error}") from error


def load_key(path: str) -> ec.EllipticCurvePrivateKey:
    """Read a PEM private key. Raises CertificateError unless it is of the kind that this module creates."""
    try:
        key = serialization.load_pem_private_key(Path(path).read_bytes(), password=None)
    except (ValueError, TypeError) as error:
        raise CertificateError(f"{path} does not contain an unencrypted private key in PEM format: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError(
            f"{path} is not an elliptic curve key; for your own files use nats_server_tls_source: files"
        )
    return key


def load_authority(path: str, key_path: str) -> KeyPair:
    """Return the authority that signs.

    Raises CertificateError when it cannot sign.
    """
    for missing in (name for name in (path, key_path) if not os.path.exists(name)):
        raise CertificateError(f"{missing} is missing: the authority needs both of its files to sign")
    authority = KeyPair(load_certificate(path), load_key(key_path))
    if authority.certificate.public_key() != authority.key.public_key():
        raise CertificateError(f"{path} and {key_path} do not match: restore the authority's key")
    if expiry(authority.certificate) <= datetime.now(timezone.utc):
        raise CertificateError(f"{path}: the authority has expired")
    return authority


def key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return the key in PEM form (PKCS 8), without a passphrase."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def write(path: str, content: bytes, mode: int) -> None:
    """Write a file by rename, so it is never visible half written or with wider permissions."""
    temporary = f"{path}.new-{os.getpid()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(stream.fileno(), mode)
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise


def description(certificate: Optional[x509.Certificate]) -> dict[str, Any]:
    """Return a description of a certificate for operators; empty if there is none."""
    if certificate is None:
        return {}
    return {
        "common_name": get_common_name(certificate),
        "subject_alt_names": sorted(names_in(certificate)),
        "issuer": certificate.issuer.rfc4514_string(),
        "not_after": expiry(certificate).isoformat(),
        "serial_number": format(certificate.serial_number, "x"),
    }


def current(
    purpose: str, path: str, key_path: str
) -> tuple[Optional[x509.Certificate], Optional[ec.EllipticCurvePrivateKey]]:
    """Return the certificate and the key on disk, each None if missing or, for a server or client, unusable.

    Raises CertificateError if an authority's key is missing or wrong; it is never replaced by a new one."""
    if purpose == "ca":
        if os.path.exists(path) and not os.path.exists(key_path):
            raise CertificateError(
                f"{key_path}, the key of the authority, is missing, but {path} exists: restore the key, "
                "or remove the certificate too to create a new authority (every host then gets a new certificate)"
            )
        certificate = load_certificate(path) if os.path.exists(path) else None
        key = load_key(key_path) if os.path.exists(key_path) else None
        if certificate and key and certificate.public_key() != key.public_key():
            raise CertificateError(f"{path} and {key_path} do not match: restore the authority's key")
        return certificate, key
    try:
        return load_certificate(path), load_key(key_path)
    except (CertificateError, FileNotFoundError):
        return None, None


def parse_request(module: CollectionModule) -> CertificateRequest:
    """Return the requested certificate."""
    parameters = module.params
    is_authority = parameters["purpose"] == "ca"
    if parameters["valid_days"] <= parameters["renew_before_days"]:
        raise CertificateError(
            f"valid_days ({parameters['valid_days']}) must be more than renew_before_days "
            f"({parameters['renew_before_days']}): the certificate would be renewed at every run"
        )
    return CertificateRequest(
        purpose=parameters["purpose"],
        common_name=parameters["common_name"],
        names=frozenset(normal_name(name) for name in parameters["subject_alt_names"]),
        lifetime=timedelta(days=parameters["valid_days"]),
        renew_before=timedelta(days=parameters["renew_before_days"]),
        authority=None if is_authority else load_authority(parameters["ca_path"], parameters["ca_key_path"]),
    )


def ensure(module: CollectionModule) -> dict[str, Any]:
    """Return the module's result."""
    purpose, path, key_path = (module.params[name] for name in ("purpose", "path", "key_path"))
    certificate, key = current(purpose, path, key_path)
    now = datetime.now(timezone.utc)
    if module.check_mode and purpose != "ca" and not os.path.exists(module.params["ca_path"]):
        # In check mode, the authority that would sign has not been created.
        return {"changed": True, "reasons": ["the authority is created first"], "not_after": "", "serial_number": ""}
    request = parse_request(module)
    reasons = (
        reasons_to_renew(KeyPair(certificate, key), request, now) if certificate and key else ["it does not exist"]
    )
    mode_wrong = os.path.exists(key_path) and stat.S_IMODE(os.stat(key_path).st_mode) != 0o600
    before = description(certificate)
    if reasons:
        # An authority is renewed with its own key, so the certificates that it issued stay valid.
        key = key if purpose == "ca" and key is not None else new_key()
        certificate = issue(request, key, now)
        if not module.check_mode:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            write(key_path, key_bytes(key), 0o600)
            write(path, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    elif mode_wrong and not module.check_mode:
        os.chmod(key_path, 0o600)
    after = description(certificate)
    if reasons and module.check_mode:
        after["serial_number"] = ""
    return {
        "changed": bool(reasons) or mode_wrong,
        "reasons": reasons or (["other users can read the key"] if mode_wrong else []),
        "not_after": after["not_after"],
        "serial_number": after["serial_number"],
        "diff": {"before": before, "after": after},
    }


def main() -> None:
    module = CollectionModule(
        argument_spec={
            "purpose": {"type": "str", "choices": ["ca", "server", "client"], "required": True},
            "path": {"type": "path", "required": True},
            "key_path": {"type": "path", "required": True, "no_log": False},
            "ca_path": {"type": "path"},
            "ca_key_path": {"type": "path", "no_log": False},
            "common_name": {"type": "str", "required": True},
            "subject_alt_names": {"type": "list", "elements": "str", "default": []},
            "valid_days": {"type": "int", "default": 397},
            "renew_before_days": {"type": "int", "default": 30},
        },
        required_if=[
            ("purpose", "server", ["ca_path", "ca_key_path", "subject_alt_names"]),
            ("purpose", "client", ["ca_path", "ca_key_path"]),
        ],
        supports_check_mode=True,
    )
    if CRYPTOGRAPHY_ERROR:
        module.fail_json(msg=missing_required_lib("cryptography"), exception=CRYPTOGRAPHY_ERROR)
    run(module, failing_on(CertificateError, OSError), ensure)


if __name__ == "__main__":
    main()
