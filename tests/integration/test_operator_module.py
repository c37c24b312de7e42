# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster begins in operator mode with the files of `nats_operator` alone: no other tool makes a key or a JWT."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path
from typing import Any

import nats
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.operator import first_document
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.seeds import read_seed
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from support.credentials import Key, Operator
from support.load import patiently, publish_stored
from support.module_runs import Runner, form
from support.nats_processes import NatsProcesses

NAMES = ["n1", "n2", "n3"]


def files(directory: Path) -> dict[str, int]:
    """Return the files of a directory with their modes."""
    return {str(path.relative_to(directory)): path.stat().st_mode & 0o777 for path in directory.rglob("*")}


def key(path: Path) -> Key:
    seed = read_seed(path.read_text(), ["operator"])
    return Key(seed.seed, seed.public)


def test_cluster_begins_with_a_new_operator(version: str, tmp_path: Path, run_module: Runner) -> None:
    home = tmp_path / "operator"
    options = {"name": "ACME", "directory": str(home)}
    predicted = run_module("nats_operator", {}, check_mode=True, **options)
    assert (predicted["changed"], predicted["variables"], home.exists()) == (True, {}, False)
    made = run_module("nats_operator", {}, **options)
    assert made["created"] == predicted["created"] and made["changed"]
    again = run_module("nats_operator", {}, **options)
    assert (again["changed"], again["created"], again["variables"]) == (False, [], made["variables"])
    variables = made["variables"]
    assert all(mode == 0o600 for name, mode in files(home).items() if name.endswith(".nk"))
    assert all(mode == 0o700 for name, mode in files(home).items() if (home / name).is_dir())
    system = variables["nats_server_system_account"]
    operator = Operator(
        jwt=variables["nats_server_operator"],
        system_account=system,
        accounts=variables["nats_server_config"]["resolver_preload"],
        creds={},
        keys={"SYS": system},
        key=key(home / "operator.nk"),
        signing_key=key(home / "operator-signing.nk"),
        user_signers={},
    )
    # The seed of the identity key is needed only to change the operator.
    os.rename(home / "operator.nk", tmp_path / "safe.nk")
    assert run_module("nats_operator", {}, **options)["changed"] is False

    servers = NatsProcesses(version, tmp_path, NAMES, operator=operator, resolver="full")
    try:
        servers.start()
        login = {"servers": servers.urls, "account_seed": variables["nats_server_api_account_seed"],
                 "account_key": system, "timeout": 3, "expected_servers": NAMES}  # fmt: skip
        form(servers, run_module, login)
        document: dict[str, Any] = first_document("ACME", "SYS")
        ready = wait_until(
            lambda: run_module("nats_accounts_plan", login, document=document),
            lambda plan: not plan.get("failed") and not plan.get("unread"),
            60,
        )
        assert ready.done, ready.value
        assert ready.value["changed"] is False, ready.value["lines"]

        document["accounts"]["APP"] = {
            "limits": {"jetstream": {"disk": "1GiB"}},
            "signing_keys": {"app": {"allow": {"pub": [">"], "sub": [">"]}}},
        }
        declared = run_module(
            "nats_account_claims", login, account="APP", document=document, sync_interval=0,
            signing_seed_file=variables["nats_cluster_accounts_seed_file"],
            key_directory=variables["nats_cluster_accounts_key_directory"],
        )  # fmt: skip
        assert declared["changed"] and not declared.get("failed"), declared
        creds = tmp_path / "app.creds"
        issued = run_module(
            "nats_user_credentials", login, account="APP", name="shop", role="app", dest=str(creds),
            key_directory=variables["nats_cluster_accounts_key_directory"],
        )  # fmt: skip
        assert issued["changed"] and not issued.get("failed"), issued

        async def publish() -> int:
            client = await nats.connect(servers.urls, user_credentials=str(creds))
            try:
                jetstream = client.jetstream(timeout=10)
                # The servers may still be electing a meta leader.
                await patiently(partial(jetstream.add_stream, name="S", subjects=["s"], num_replicas=3))
                return (await patiently(partial(publish_stored, jetstream, "s", b"1", "1"))).seq
            finally:
                await client.close()

        assert asyncio.run(publish()) == 1
    finally:
        servers.kill()


def test_operator_of_another_name_is_not_replaced(tmp_path: Path, run_module: Runner) -> None:
    options = {"name": "ACME", "directory": str(tmp_path)}
    run_module("nats_operator", {}, **options)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for other in ({"name": "OTHER"}, {"system_account": "ADMIN"}):
        refused = run_module("nats_operator", {}, **{**options, **other})
        assert refused["failed"] and "use another directory" in refused["msg"]
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    (tmp_path / "system_account.jwt").unlink()
    assert "system_account.jwt" in run_module("nats_operator", {}, **options)["msg"]


def test_an_interrupted_run_keeps_the_keys_that_it_made(tmp_path: Path, run_module: Runner) -> None:
    options = {"name": "ACME", "directory": str(tmp_path)}
    run_module("nats_operator", {}, **options)
    seeds = {name: (tmp_path / name).read_bytes() for name in ("operator.nk", "operator-signing.nk")}
    for name in ("operator.jwt", "system_account.jwt"):
        (tmp_path / name).unlink()
    repeated = run_module("nats_operator", {}, **options)
    assert {os.path.basename(path) for path in repeated["created"]} == {"operator.jwt", "system_account.jwt"}
    assert {name: (tmp_path / name).read_bytes() for name in seeds} == seeds
