# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests encrypted backups of real streams."""

from __future__ import annotations

import json
import os
import resource
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyrage
import pytest
from support.backup_site import Accounts, Record, Run, some_messages
from support.module_runs import form, run_in_process
from support.nats_processes import NatsProcesses
from support.nats_processes import binary as nats_server


@dataclass(frozen=True)
class Identity:
    """A recipient, the file with its identity, and the secret that must not appear anywhere."""

    recipient: str
    path: Path
    secret: str


def make_identity(path: Path) -> Identity:
    made = pyrage.x25519.Identity.generate()
    path.write_text(f"# public key: {made.to_public()}\n{made}\n")
    path.chmod(0o600)
    return Identity(str(made.to_public()), path, str(made))


@pytest.fixture
def identity(tmp_path: Path) -> Identity:
    return make_identity(tmp_path / "identity.txt")


@pytest.fixture(scope="module")
def cluster(version: str, tmp_path_factory: pytest.TempPathFactory, run_module: Run) -> Iterator[NatsProcesses]:
    accounts = {"APP": "app", "OTHER": "other"}
    made = NatsProcesses(version, tmp_path_factory.mktemp("target"), ["n1", "n2", "n3"], accounts=accounts)
    made.start()
    try:
        yield form(made, run_module)
    finally:
        made.kill()


@pytest.fixture
def accounts(cluster: NatsProcesses, tmp_path: Path, run_module: Run) -> Iterator[Accounts]:
    made = Accounts(cluster, run_module, tmp_path / "backup")
    yield made
    made.clear()
    for site in made.sites.values():
        site.client.close()


SECRET_WORDS = b"a secret of the orders " * 40


def fill(accounts: Accounts, stream: str = "ORDERS") -> dict[str, Record]:
    """Create a stream with a consumer in each account, and return their records."""
    records = {}
    for name, site in accounts.sites.items():
        site.add(stream, 1)
        site.cluster.add_consumer(stream, "worker", name)
        record = site.produce([*some_messages(stream, 40), (f"{stream}.secret", {}, SECRET_WORDS)])
        site.consume(stream, "worker", record, fetch=10, ack=6)
        # A deleted message makes the module read archives up to 2.14 a second time.
        site.api.call(f"STREAM.MSG.DELETE.{stream}", {"seq": 20})
        record.remove(20)
        records[f"{name}/{stream}"] = record
    return records


def test_encrypted_backups_come_back(accounts: Accounts, identity: Identity, version: str, tmp_path: Path) -> None:
    records = fill(accounts, "KEPT")
    results = [accounts.done("backup", encrypt_to=[identity.recipient])]
    # Without an identity, the run can still determine that nothing has changed.
    assert not accounts.done("backup", encrypt_to=[identity.recipient])["changed"]
    told = accounts.catalogue()
    assert [row["encryption"] for row in told["backups"]] == 2 * [{"method": "age", "recipients": [identity.recipient]}]
    for row in told["backups"]:
        assert sorted(os.listdir(accounts.directory / row["path"])) == ["backup.json", "stream.tar.s2.age"]
        archive = (accounts.directory / row["path"] / "stream.tar.s2.age").read_bytes()
        assert archive.startswith(b"age-encryption.org/v1\n")
        # Any other program for this format can extract the archive.
        opened = pyrage.decrypt(archive, [pyrage.x25519.Identity.from_str(identity.secret)])
        assert opened.startswith(b"\xff\x06\x00\x00S2sTwO")

    for site in accounts.sites.values():
        site.clear()
    why = accounts.refused("restore", "no_identity", streams=["*"])
    assert identity.recipient in why and "set `identity_file` to the file with its identity" in why
    wrong = make_identity(tmp_path / "wrong.txt")
    why = accounts.refused("restore", "no_identity", streams=["*"], identity_file=str(wrong.path))
    assert "wrong.txt has no matching identity" in why
    assert all(site.api.stream_names() == [] for site in accounts.sites.values())

    results.append(accounts.done("restore", streams=["*"], identity_file=str(identity.path)))
    assert {row["compared"]["digest"] for row in results[-1]["streams"]} == {"same"}
    for name, record in records.items():
        accounts.sites[name.partition("/")[0]].assert_restored("KEPT", record)
    results.append(verified(accounts.directory, identity.path))
    assert [row["problem"] for row in results[-1]["backups"]] == ["", ""]
    assert all("is encrypted to" in row["problem"] for row in verified(accounts.directory, None)["backups"])
    results.append(drilled(accounts.directory, version, identity.path))
    assert results[-1]["proof"]["ok"]
    assert all(secret not in json.dumps(results) for secret in (identity.secret, wrong.secret))


def verified(directory: Path, identity_file: Path | None) -> dict[str, Any]:
    options: dict[str, Any] = {"identity_file": str(identity_file)} if identity_file else {}
    return run_in_process("nats_backup_info", {}, path=str(directory), verify="contents", **options)


def drilled(directory: Path, version: str, identity_file: Path | None) -> dict[str, Any]:
    options: dict[str, Any] = {"identity_file": str(identity_file)} if identity_file else {}
    binary = nats_server(version)
    return run_in_process("nats_backup_drill", {}, directory=str(directory), binary=binary, **options)


def test_a_drill_without_the_identity_starts_nothing_and_records_no_proof(
    accounts: Accounts, identity: Identity, version: str, tmp_path: Path
) -> None:
    fill(accounts)
    accounts.done("backup", encrypt_to=[identity.recipient])
    for given in (None, make_identity(tmp_path / "wrong.txt").path):
        result = drilled(accounts.directory, version, given)
        assert result["failure"]["code"] == "no_identity", result
    assert all(record["proof"] is None for record in accounts.catalogue()["streams"].values())


def test_other_recipients_take_another_backup(accounts: Accounts, identity: Identity, tmp_path: Path) -> None:
    site = accounts.sites["APP"]
    site.add("S", 1)
    site.produce(some_messages("S", 5))
    other = make_identity(tmp_path / "other.txt")

    def reasons(*recipients: str) -> set[str]:
        return {row["reason"] for row in accounts.done("backup", encrypt_to=list(recipients))["streams"]}

    assert reasons() == {"there is no backup yet"}
    assert reasons(identity.recipient) == {"the last backup is not encrypted"}
    assert reasons(identity.recipient, other.recipient) == {"the last backup is encrypted to other recipients"}
    assert reasons(other.recipient, identity.recipient) == {""}
    assert reasons() == {"the last backup is encrypted to other recipients"}


def test_a_damaged_encrypted_backup(accounts: Accounts, identity: Identity) -> None:
    fill(accounts)
    accounts.done("backup", encrypt_to=[identity.recipient])
    for path in accounts.directory.glob("APP/*/stream.tar.s2.age"):
        data = bytearray(path.read_bytes())
        data[-100] ^= 1
        path.write_bytes(data)
    accounts.clear()
    assert "SHA-256" in accounts.refused("restore", "damaged", streams=["APP"], identity_file=str(identity.path))
    shutil.rmtree(accounts.directory)


def test_a_secret_key_in_place_of_a_recipient(accounts: Accounts, identity: Identity) -> None:
    fill(accounts)
    for check_mode in (True, False):
        result = accounts.run("backup", check_mode, encrypt_to=[identity.secret])
        assert result["failure"]["code"] == "invalid_option"
        assert "secret key" in result["msg"] and identity.secret not in json.dumps(result)
    assert not list(accounts.directory.glob("*/*@*"))


def test_files_of_the_cluster_that_cannot_be_saved_keep_no_stream_from_it(accounts: Accounts) -> None:
    fill(accounts)
    files = {"n1/nats-server.conf": "x" * 5_000_000}
    predicted = accounts.run("backup", check_mode=True, cluster_files=files)
    assert predicted["cluster"]["files"] == ["n1/nats-server.conf"] and not accounts.directory.exists()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, hard))
    try:
        result = accounts.run("backup", cluster_files=files)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert result["failure"]["code"] == "write_failed", result
    assert "the files of the cluster itself were not saved" in result["msg"]
    assert len(accounts.catalogue()["backups"]) == 2 and accounts.catalogue()["cluster"] == []
    saved = accounts.done("backup", cluster_files=files)
    assert saved["changed"] and {row["changed"] for row in saved["streams"]} == {False}
    assert [row["path"] for row in accounts.catalogue()["cluster"]] == [saved["cluster"]["path"]]
    # A run without cluster files does not remove any from the catalogue.
    assert not accounts.done("backup")["changed"] and len(accounts.catalogue()["cluster"]) == 1
    accounts.done("backup", cluster_files={**files, "servers.json": "[]"}, keep={"last": 1})
    assert [path.name for path in accounts.directory.glob("cluster@*")] == [accounts.catalogue()["cluster"][0]["path"]]
