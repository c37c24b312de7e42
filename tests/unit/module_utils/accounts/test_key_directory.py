# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the files with seeds: their place, their mode, and files that are refused."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.key_directory import (
    KeyDirectory,
    given_seed,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.seeds import new_key
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure


def test_key_is_stored_where_nsc_has_it_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    directory, key = KeyDirectory(str(tmp_path / "store")), new_key("account")
    assert directory.find(key.public) is None
    directory.save(key)
    file = tmp_path / "store" / "keys" / "A" / key.public[1:3] / f"{key.public}.nk"
    # nsc compares the complete content with the seed (keys.go StoreKey).
    assert file.read_text() == key.seed
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    found = directory.find(key.public)
    assert found is not None and found.public == key.public


def test_file_of_a_different_key_is_refused(tmp_path: Path) -> None:
    directory, key, other = KeyDirectory(str(tmp_path)), new_key("account"), new_key("account")
    directory.save(key)
    file = tmp_path / "keys" / "A" / key.public[1:3] / f"{key.public}.nk"
    file.write_text(other.seed)
    with pytest.raises(NatsFailure, match=f"has the seed of {other.public}"):
        directory.find(key.public)


def test_existing_file_is_never_overwritten(tmp_path: Path) -> None:
    directory, key = KeyDirectory(str(tmp_path)), new_key("account")
    directory.save(key)
    with pytest.raises(NatsFailure, match="cannot write"):
        directory.save(key)


def test_option_and_its_file_give_the_same_key(tmp_path: Path) -> None:
    key = new_key("operator")
    file = tmp_path / "operator.nk"
    file.write_text(f"{key.seed}\n")
    assert given_seed(key.seed, None, ["operator"], "signing_seed").public == key.public
    assert given_seed(None, str(file), ["operator"], "signing_seed").public == key.public


def test_refused_seed_names_the_option_and_the_file(tmp_path: Path) -> None:
    key = new_key("account")
    file = tmp_path / "account.nk"
    file.write_text(key.seed)
    with pytest.raises(NatsFailure, match=r"signing_seed_file: .*account.nk: it is the seed of an account") as refused:
        given_seed(None, str(file), ["operator"], "signing_seed")
    assert key.seed not in refused.value.description
    with pytest.raises(NatsFailure, match="signing_seed: there is no seed"):
        given_seed("x", None, ["operator"], "signing_seed")
    with pytest.raises(NatsFailure, match=r"signing_seed_file: cannot read .*: No such file"):
        given_seed(None, str(tmp_path / "none"), ["operator"], "signing_seed")
