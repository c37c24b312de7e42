# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public nkeys and signatures (nkeys/strkey.go). Pure; no function here accepts a seed.

A public key has 56 characters: a prefix byte, 32 bytes and their CRC-16/XMODEM, encoded in base32 without padding."""

from __future__ import annotations

import base64
import binascii
import traceback
from typing import Protocol

from ..nats.failures import MissingLibrary

OPERATOR, ACCOUNT, USER, SERVER, CLUSTER, CURVE = "operator", "account", "user", "server", "cluster", "curve"

#: The kinds of keys by prefix byte.
_KINDS = {14 << 3: OPERATOR, 0: ACCOUNT, 20 << 3: USER, 13 << 3: SERVER, 2 << 3: CLUSTER, 23 << 3: CURVE}
_LENGTH = 56


class Signer(Protocol):
    """A key that signs: a KeyPair of nkeys, or a device that never returns its seed."""

    @property
    def public(self) -> str: ...

    def sign(self, data: bytes) -> bytes: ...


def key_kind(text: object) -> str | None:
    """Return the kind of a public key, such as `account`, or None if the text is not a public key."""
    raw = _decoded(text)
    return None if raw is None else _KINDS.get(raw[0])


def is_valid_signature(public: str, data: bytes, signature: bytes) -> bool:
    """Return whether the owner of this public key signed the data. Raises MissingLibrary if PyNaCl, which nkeys
    requires, is not installed."""
    try:
        from nacl.exceptions import BadSignatureError
        from nacl.signing import VerifyKey
    except ImportError as error:
        raise MissingLibrary("nkeys", traceback.format_exc()) from error

    raw = _decoded(public)
    if raw is None or raw[0] not in _KINDS or len(signature) != 64:
        return False
    try:
        VerifyKey(raw[1:]).verify(data, signature)
    except BadSignatureError:
        return False
    return True


def _decoded(text: object) -> bytes | None:
    """Return the prefix byte and the key, or None if the checksum, length or alphabet is wrong."""
    if not isinstance(text, str) or len(text) != _LENGTH:
        return None
    try:
        raw = base64.b32decode(text)
    except (binascii.Error, ValueError):
        return None
    body, checksum = raw[:-2], raw[-2:]
    return body if binascii.crc_hqx(body, 0).to_bytes(2, "little") == checksum else None
