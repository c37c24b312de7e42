# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests seeds: keys sign with them, defective seeds are refused, and no message contains a seed."""

from __future__ import annotations

import nkeys
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.keys import is_valid_signature, key_kind
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.seeds import InvalidSeed, new_key, read_seed
from support import credentials

OPERATOR = credentials.new_key(nkeys.PREFIX_BYTE_OPERATOR, 1)
USER = credentials.new_key(nkeys.PREFIX_BYTE_USER, 1)


@pytest.mark.parametrize("kind", ["operator", "account", "user"])
def test_new_key_signs_and_is_read_back_from_its_seed(kind: str) -> None:
    key = new_key(kind)
    assert key_kind(key.public) == kind
    assert is_valid_signature(key.public, b"data", key.sign(b"data"))
    again = read_seed(f"# {kind}\n{key.seed}\n", [kind])
    assert again.public == key.public
    assert key.seed not in repr(key) and new_key(kind).public != key.public


def test_seed_of_a_different_kind_is_refused() -> None:
    with pytest.raises(InvalidSeed, match="it is the seed of a user, not of an operator") as refused:
        read_seed(USER.seed, ["operator"])
    assert USER.seed not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "there is no seed"),
        (OPERATOR.public, "there is no seed"),
        (OPERATOR.seed[:-1], "there is no seed"),
        (f"{OPERATOR.seed}\n{USER.seed}", "there are 2 seeds"),
        (OPERATOR.seed[:-4] + ("AAAA" if OPERATOR.seed[-4:] != "AAAA" else "BBBB"), "checksum"),
    ],
)
def test_defective_seed_is_refused_without_showing_it(text: str, reason: str) -> None:
    with pytest.raises(InvalidSeed, match=reason) as refused:
        read_seed(text, ["operator"])
    assert OPERATOR.seed[2:20] not in str(refused.value)
