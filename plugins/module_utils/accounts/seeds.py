# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Seeds of nkeys, and the keys that sign JWTs with them (nkeys/strkey.go, keypair.go). Pure.

A seed has 58 characters: two prefix bytes, 32 secret bytes and their CRC-16/XMODEM, encoded in base32 without padding.
No error message and no representation of an object contains a seed."""

from __future__ import annotations

import base64
import binascii
import re
import secrets
import traceback
from collections.abc import Collection
from typing import Any

from ..nats.failures import MissingLibrary
from .keys import ACCOUNT, OPERATOR, USER, key_kind

_SEED = re.compile(r"\bS[AOU][A-Z2-7]{56}\b")
_PREFIXES = {OPERATOR: "PREFIX_BYTE_OPERATOR", ACCOUNT: "PREFIX_BYTE_ACCOUNT", USER: "PREFIX_BYTE_USER"}


class InvalidSeed(ValueError):
    """A text without a usable seed; the message contains the reason, but not the text."""


class SeedKey:
    """A key with its seed. The key signs, and shows only its public half."""

    def __init__(self, seed: str) -> None:
        self._pair = _library().from_seed(bytearray(seed.encode()))
        self._seed = seed
        self.public: str = self._pair.public_key.decode()

    def __repr__(self) -> str:
        return f"SeedKey({self.public})"

    @property
    def seed(self) -> str:
        """Return the secret, to store it or to hand it to the owner of the key."""
        return self._seed

    def sign(self, data: bytes) -> bytes:
        return bytes(self._pair.sign(data))


def read_seed(text: str, kinds: Collection[str]) -> SeedKey:
    """Return the key of the only seed in a text: the seed itself, or the content of a file such as those of nsc.

    `kinds`: the kinds of keys that are accepted. Raises InvalidSeed, and MissingLibrary if nkeys is not installed.
    """
    found = _SEED.findall(text)
    if len(found) != 1:
        raise InvalidSeed("there is no seed (S, then 57 characters)" if not found else f"there are {len(found)} seeds")
    raw = base64.b32decode(found[0] + "=" * (-len(found[0]) % 8))
    if binascii.crc_hqx(raw[:-2], 0).to_bytes(2, "little") != raw[-2:]:
        raise InvalidSeed("the checksum of the seed is wrong")
    key = SeedKey(found[0])
    kind = key_kind(key.public)
    if kind not in kinds:
        raise InvalidSeed(f"it is the seed of {_with_article(str(kind))}, not of {_with_article(' or '.join(kinds))}")
    return key


def new_key(kind: str) -> SeedKey:
    """Return a new random key of this kind: operator, account or user. Raises MissingLibrary."""
    library = _library()
    seed = library.encode_seed(secrets.token_bytes(32), getattr(library, _PREFIXES[kind]))
    return SeedKey(bytes(seed).decode())


def _with_article(noun: str) -> str:
    return f"{'a' if noun.startswith(USER) else 'an'} {noun}"


def _library() -> Any:
    try:
        import nkeys
    except ImportError as error:
        raise MissingLibrary("nkeys", traceback.format_exc()) from error
    return nkeys
