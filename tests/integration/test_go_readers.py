# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests that the libraries of nsc and natscli read the accounts, keys and credentials that the collection creates.

The libraries come from Debian, where nsc and natscli are not packaged."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.module_runs import Runner
from support.operator_site import NAMES, issuing

SOURCE = Path(__file__).parents[1] / "support" / "nats_reader"
PACKAGES = Path("/usr/share/gocode/src/github.com/nats-io")
DOCUMENT: dict[str, Any] = {
    "limits": {"connections": 50, "leaf": "none", "payload": "1MiB", "jetstream": {"R1": {"disk": "1GiB"}}},
    "signing_keys": {
        "app": {"allow": {"pub": ["orders.{{tag(team)}}"], "sub": ["_INBOX.>"]}, "responses": {"max": 3, "ttl": "5s"}},
        "plain": {},
    },
    "exports": [
        {"subject": "events.>", "type": "stream", "to": ["BILLING"]},
        {"subject": "api.*", "type": "service", "response_type": "Chunked", "latency": {"subject": "l", "sampling": 9}},
    ],
    "revoke": {"*": "2020-01-01T00:00:00Z"},
    "default_permissions": {"deny": {"pub": ["secret.>"]}},
    "mappings": {"a": [{"subject": "b", "weight": 60}, {"subject": "c", "weight": 40}]},
    "tags": ["region:eu"],
    "description": "shops",
}
BILLING = {"imports": [{"account": "SHOP", "subject": "events.eu", "type": "stream", "local": "shop.events"}]}


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the program nats_reader, built with Debian's packages."""
    missing = [name for name in ("jwt/v2", "nats.go", "nkeys") if not (PACKAGES / name).is_dir()]
    if not shutil.which("go") or missing:
        pytest.skip("needs the Debian packages golang-go, golang-github-nats-io-jwt-dev and -go-nats-dev")
    program = tmp_path_factory.mktemp("go") / "nats_reader"
    environment = {**os.environ, "GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOFLAGS": ""}
    environment["GOCACHE"] = str(program.parent / "cache")
    subprocess.run(["go", "build", "-o", program, "."], cwd=SOURCE, env=environment, check=True)
    return program


def read(program: Path, *arguments: str) -> list[list[str]]:
    found = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    return [line.split(" ", 1) for line in found.stdout.splitlines()]


def payload(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    return dict(json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))))


def signing_key(entry: Any) -> str:
    """Return the public key of a signing key with or without a scope."""
    return str(entry["key"] if isinstance(entry, dict) else entry)


def lost(written: Any, read_back: Any, path: str = "") -> list[str]:
    """Return the paths of values that a library does not return as they were written."""
    if isinstance(written, dict) and isinstance(read_back, dict):
        return [one for key, value in written.items() for one in lost(value, read_back.get(key), f"{path}.{key}")]
    if path.endswith(".signing_keys"):
        # The library keeps them in a map, so their order is random.
        written, read_back = ({signing_key(one): one for one in keys} for keys in (written, read_back))
        return lost(written, read_back, path + "[]")
    if isinstance(written, list) and isinstance(read_back, list) and len(written) == len(read_back):
        return [
            one for index, pair in enumerate(zip(written, read_back)) for one in lost(*pair, path=f"{path}[{index}]")
        ]
    # Go omits empty texts.
    return (
        []
        if written == read_back or (written, read_back) == ("", None)
        else [f"{path}: {written!r} was read as {read_back!r}"]
    )


def test_libraries_of_nsc_and_natscli_read_every_output(
    version: str, tmp_path: Path, run_module: Runner, reader: Path
) -> None:
    with issuing(version, tmp_path, run_module) as issuer:
        document = {"accounts": {"SHOP": DOCUMENT, "BILLING": BILLING}}
        for account in ("SHOP", "BILLING"):
            done = issuer.run_module(
                "nats_account_claims",
                account=account,
                document=document,
                signing_seed=issuer.site.operator.signing_key.seed,
                sync_interval=0,
            )
            assert not done.get("failed"), done
        creds = tmp_path / "till.creds"
        issuer.ok(dest=str(creds), expires="1h", renew_before="5m")

        ids = [issuer.site.row(run_module, name)["account"] for name in ("SHOP", "BILLING")]
        jwts = [next((tmp_path / f"{NAMES[0]}-jwt").rglob(f"{one}.jwt")) for one in ids]
        keys = sorted(issuer.keys.rglob("*.nk"))
        assert len(keys) == 4
        url = issuer.site.servers.url(NAMES[0])
        found = read(
            reader,
            *(f"jwt={path}" for path in jwts),
            *(f"key={path}" for path in keys),
            f"creds={creds}",
            f"login={url}",
        )
    tokens = [*(path.read_text().strip() for path in jwts), creds.read_text().splitlines()[1]]
    returned = [json.loads(text) for kind, text in found if kind == "jwt"]
    for token, one in zip(tokens, returned, strict=True):
        assert lost(payload(token), one) == []
    # nsc finds a key by its public key: keys/A/CX/ACX….nk.
    assert [text for kind, text in found if kind == "key"] == [path.stem for path in keys]
    for path in keys:
        assert path.relative_to(issuer.keys).parts == ("keys", path.stem[0], path.stem[1:3], path.name)
    assert [kind for kind, _text in found][-2:] == ["creds", "login"]


def test_reader_refuses_credentials_of_a_different_key(tmp_path: Path, reader: Path) -> None:
    broken = tmp_path / "x.creds"
    broken.write_text("-----BEGIN NATS USER JWT-----\na.b.c\n------END NATS USER JWT------\n")
    found = subprocess.run([reader, f"creds={broken}"], capture_output=True, text=True, check=False)
    assert found.returncode == 1 and found.stdout.startswith("error")
