# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the hashes of passwords with each library that may be installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config import passwords
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.passwords import (
    BcryptError,
    hash_password,
    hash_passwords,
    is_hash,
    verify_password,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.syntax import ConfigError, write_secrets
from hypothesis import given, settings
from hypothesis import strategies as st

CONFIG = {
    "authorization": {"token": "t"},
    "accounts": {"APP": {"users": [{"user": "a", "pass": "one"}, {"user": "b", "password": "two"}, {"nkey": "UAAA"}]}},
    "leafnodes": {"authorization": {"user": "l", "password": "leaf"}, "remotes": [{"url": "nats://u:remote@h"}]},
    "cluster": {"authorization": {"user": "r", "password": "route"}, "routes": ["nats://r:route@h"]},
    "gateway": {"authorization": {"user": "g", "password": "gate"}},
    "jetstream": {"key": "key"},
}


def test_compared_passwords_are_hashed_but_sent_ones_are_not() -> None:
    hashed = hash_passwords(CONFIG, cost=4)
    first, second, third = hashed["accounts"]["APP"]["users"]
    compared = {
        "t": hashed["authorization"]["token"],
        "one": first["password"],
        "two": second["password"],
        "leaf": hashed["leafnodes"]["authorization"]["password"],
    }
    assert all(verify_password(password, value) for password, value in compared.items())
    assert third == {"nkey": "UAAA"}
    assert hashed["cluster"]["authorization"]["password"] == "route"
    assert hashed["gateway"]["authorization"]["password"] == "gate"
    assert hashed["leafnodes"]["remotes"] == [{"url": "nats://u:remote@h"}]
    assert hashed["jetstream"]["encryption_key"] == "key"


def test_a_second_run_changes_nothing_and_a_new_password_or_cost_only_its_hash() -> None:
    first = hash_passwords(CONFIG, cost=4)
    on_host = write_secrets(first)
    assert hash_passwords(CONFIG, previous=on_host, cost=4) == first
    assert hash_passwords(first, previous=on_host, cost=4) == first
    dearer = hash_passwords(CONFIG, previous=on_host, cost=5)
    assert dearer["authorization"]["token"].startswith("$2b$05$")
    users = [{"user": "b", "password": "two"}, {"user": "a", "pass": "changed"}]
    changed = hash_passwords({**CONFIG, "accounts": {"APP": {"users": users}}}, previous=on_host, cost=4)
    assert changed["accounts"]["APP"]["users"][0] == first["accounts"]["APP"]["users"][1]
    assert verify_password("changed", changed["accounts"]["APP"]["users"][1]["password"])


def test_passwords_stay_plain_without_a_restart() -> None:
    kept = hash_passwords(CONFIG, cost=4, reloadable="2.15.1")
    assert kept["leafnodes"]["authorization"]["password"] == "leaf"
    assert is_hash(kept["authorization"]["token"]) and is_hash(kept["accounts"]["APP"]["users"][0]["password"])
    assert hash_passwords(CONFIG, cost=4, reloadable="2.9.10")["authorization"]["token"] == "t"
    # Once a password has a hash, the hash does not change.
    taken_over = hash_passwords(CONFIG, cost=4)
    assert hash_passwords(CONFIG, write_secrets(taken_over), cost=4, reloadable="2.15.1") == taken_over


@settings(max_examples=30, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=18))
def test_only_the_right_password_verifies(password: str) -> None:
    made = hash_password(password, 4)
    assert re.fullmatch(r"\$2[abxy]\$04\$[./A-Za-z0-9]{53}", made)
    assert verify_password(password, made)
    assert not verify_password(password + "x", made)
    for kind in "axy":
        assert verify_password(password, f"$2{kind}{made[3:]}")


def test_ready_made_hashes_pass() -> None:
    made = "$2y$" + hash_password("x", 4)[4:]
    assert hash_password(made, 11) == made


@pytest.mark.parametrize(
    ("password", "cost", "message"),
    [
        ("é" * 37, 4, "74 bytes"),
        ("a\0b", 4, "NUL"),
        ("\ud800", 4, "Unicode"),
        ("$2b$11$tooshort", 4, "has the form of a bcrypt hash"),
        ("x", 3, "outside 4 to 31"),
        ("x", 32, "outside 4 to 31"),
    ],
)
def test_limits_of_bcrypt_are_refused(password: str, cost: int, message: str) -> None:
    with pytest.raises(BcryptError, match=message):
        hash_password(password, cost)
    with pytest.raises(ConfigError, match=r"accounts.A.users\[u\].password: .*") as error:
        hash_passwords({"accounts": {"A": {"users": [{"user": "u", "password": password}]}}}, cost=cost)
    assert password not in str(error.value) or len(password) < 5


def test_exactly_72_bytes_are_fine() -> None:
    assert is_hash(hash_password("é" * 36, 4))


@pytest.mark.parametrize("loader", ["_passlib", "_bcrypt"])
def test_both_ways_make_hashes_of_each_other(loader: str) -> None:
    backend = getattr(passwords, loader)()
    made = backend.hash("pass wörd", 4)
    assert is_hash(made)
    assert passwords._passlib().verify("pass wörd", made)
    assert passwords._bcrypt().verify("pass wörd", made)


@pytest.mark.installs
@pytest.mark.parametrize(
    "packages", [["passlib==1.7.4", "bcrypt==5.0.0"], ["bcrypt==5.0.0"], ["passlib==1.7.4", "bcrypt==4.0.1"]]
)
def test_every_pair_of_libraries_works(packages: list[str], tmp_path: Path) -> None:
    """passlib 1.7.4 raises an error in its own self-test with a newer bcrypt; in that case, the bcrypt library is used
    directly."""
    venv.create(tmp_path, with_pip=True)
    python = tmp_path / "bin" / "python"
    installed = subprocess.run(
        [python, "-m", "pip", "install", "-q", *packages], check=False, capture_output=True, text=True
    )
    if installed.returncode:
        pytest.skip(f"pip cannot install {packages}: {installed.stderr.strip()[-200:]}")
    root = next(
        os.path.abspath(entry)
        for entry in sys.path
        if (Path(entry) / "ansible_collections/natsops/jetstream/plugins").is_dir()
    )
    code = (
        "from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.passwords import *\n"
        "made = hash_password('pass', 4)\n"
        "assert verify_password('pass', made) and not verify_password('other', made)\n"
        "assert hash_password('pass', 4, made) == made and verify_password('pass', '$2y$' + made[4:])\n"
    )
    environment = {**os.environ, "PYTHONPATH": root, "PYTHONWARNINGS": "error"}
    done = subprocess.run([python, "-c", code], check=False, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
