# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Credentials for tests: a private CA, nkeys, and an operator with a system account as JWTs."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import json
import os
import time
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import nkeys


@dataclass(frozen=True)
class Key:
    """An nkey: its seed and its public key."""

    seed: str
    public: str

    def sign(self, data: bytes) -> bytes:
        return nkeys.from_seed(bytearray(self.seed.encode())).sign(data)


def new_key(prefix: int, number: int | None = None) -> Key:
    """Return a new key; `prefix` is one of the nkeys.PREFIX_BYTE_… constants. `number`: the same number always gives
    the same key."""
    seed = nkeys.encode_seed(os.urandom(32) if number is None else bytes([number]) * 32, prefix)
    return Key(bytes(seed).decode(), nkeys.from_seed(bytearray(seed)).public_key.decode())


def new_user() -> Key:
    return new_key(nkeys.PREFIX_BYTE_USER)


def make_jwt(
    issuer: Key, subject: str, name: str, claims: dict[str, Any], audience: str = "", top: dict[str, Any] | None = None
) -> str:
    """Return claims signed by the issuer; `audience`: the audience of a response to an auth callout. `top`: other
    claims next to `nats`, such as `exp`."""

    def encode(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    body = {
        "iat": int(time.time()),
        "iss": issuer.public,
        "name": name,
        "sub": subject,
        "nats": {"version": 2, **claims},
        **({"aud": audience} if audience else {}),
        **(top or {}),
    }
    body["jti"] = base64.b32encode(hashlib.sha256(json.dumps(body).encode()).digest()).rstrip(b"=").decode()
    header = encode(json.dumps({"typ": "JWT", "alg": "ed25519-nkey"}).encode())
    signed = f"{header}.{encode(json.dumps(body).encode())}"
    return f"{signed}.{encode(issuer.sign(signed.encode()))}"


def write_creds(path: Path, token: str, user: Key) -> None:
    """Write the .creds file of a user with this JWT."""
    path.write_text(
        f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
    )


@dataclass(frozen=True)
class Operator:
    """An operator's JWT, its system account's public key, the account JWTs by public key, and the public key and a
    .creds file of each account by the name that the test uses. `key`: the operator's own key; `signing_key`: the key
    that signs accounts; `user_signers`: the key that signs the users of each account."""

    jwt: str
    system_account: str
    accounts: dict[str, str]
    creds: dict[str, Path]
    keys: dict[str, str]
    key: Key
    signing_key: Key
    user_signers: dict[str, Key]


def make_operator(
    directory: Path, *names: str, tags: dict[str, str] | None = None, strict: bool = False, signing: bool = False
) -> Operator:
    """Return an operator with the system account SYS and accounts of these names with JetStream, each with a user.
    `tags`: the name in an account's JWT, if it differs from the name that the test uses. `signing`: whether a signing key
    signs the accounts instead of the identity key. `strict`: whether the operator requires signing keys."""
    operator = new_key(nkeys.PREFIX_BYTE_OPERATOR)
    signing_key = new_key(nkeys.PREFIX_BYTE_OPERATOR) if strict or signing else operator
    keys = {name: new_key(nkeys.PREFIX_BYTE_ACCOUNT) for name in ("SYS", *names)}
    limits = {**dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1), "wildcards": True}
    storage = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)
    accounts, creds, user_signers = {}, {}, {}
    for name, account in keys.items():
        claims: dict[str, Any] = {"type": "account", "limits": limits if name == "SYS" else {**limits, **storage}}
        user_claims = {"type": "user", "subs": -1, "data": -1, "payload": -1}
        user_signers[name] = account
        if strict:
            user_signers[name] = new_key(nkeys.PREFIX_BYTE_ACCOUNT)
            claims["signing_keys"] = [user_signers[name].public]
            user_claims["issuer_account"] = account.public
        accounts[account.public] = make_jwt(signing_key, account.public, (tags or {}).get(name, name), claims)
        user = new_user()
        creds[name] = directory / f"{name.lower()}.creds"
        write_creds(creds[name], make_jwt(user_signers[name], user.public, name.lower(), user_claims), user)
    system = keys["SYS"].public
    own_claims: dict[str, Any] = {"type": "operator", "system_account": system}
    if signing_key != operator:
        own_claims.update(signing_keys=[signing_key.public], strict_signing_key_usage=strict)
    own = make_jwt(operator, operator.public, "test", own_claims)
    public = {name: key.public for name, key in keys.items()}
    return Operator(own, system, accounts, creds, public, operator, signing_key, user_signers)


def operator_setup(directory: Path) -> tuple[str, Path]:
    """Return (configuration text, path of a .creds file) for an operator that has only a system account with one
    user."""
    operator = make_operator(directory)
    ((account, account_jwt),) = operator.accounts.items()
    config = (
        f"operator: {operator.jwt}\nsystem_account: {account}\n"
        f"resolver: MEMORY\nresolver_preload {{ {account}: {account_jwt} }}\n"
    )
    return config, operator.creds["SYS"]


@dataclass(frozen=True)
class Certificates:
    """The paths of the CA and of a certificate for 127.0.0.1 that both servers and clients use."""

    ca: Path
    cert: Path
    key: Path


def make_certificates(directory: Path, *, expired: bool = False) -> Certificates:
    """Return a new private CA and a certificate signed by it, as files in `directory`. `expired`: whether the
    certificate has expired."""
    # Spark's environment does not have this package.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    ca_key, leaf_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test CA")])
    leaf_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.now(timezone.utc)

    def builder(
        subject: x509.Name, key: ec.EllipticCurvePrivateKey, end: timedelta = timedelta(days=1)
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(ca_name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + end)
        )

    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    ca = (
        builder(ca_name, ca_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    leaf = (
        builder(leaf_name, leaf_key, timedelta(minutes=-1) if expired else timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("n1.test")]),
            critical=False,
        )
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(authority, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    files = Certificates(directory / "ca.crt", directory / "leaf.crt", directory / "leaf.key")
    files.ca.write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    files.cert.write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
    files.key.write_bytes(
        leaf_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return files
