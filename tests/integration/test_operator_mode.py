# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbooks deploy, upgrade, back up and restore a cluster with .creds files; its accounts are JWTs of an operator, and
it uses the full resolver of nats-server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats
import pytest
import yaml
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.credentials import read_credentials
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.seeds import read_seed
from support.credentials import Operator, make_operator
from support.documents import Document, typed
from support.module_runs import Runner
from support.role_cluster import SMOKE_TEST, RoleCluster, words

pytestmark = pytest.mark.playbook

NAMES = ["n1", "n2", "n3"]


@dataclass(frozen=True)
class Deployed:
    """The hosts, and the credentials of the users who may log in."""

    hosts: RoleCluster
    operator: Operator
    backups: Path

    def as_user(self, account: str) -> dict[str, Any]:
        return {"servers": self.hosts.urls, "credentials": str(self.operator.creds[account])}

    def publish(self, account: str, count: int) -> None:
        async def send() -> None:
            client = await nats.connect(self.hosts.urls, user_credentials=str(self.operator.creds[account]))
            try:
                for number in range(count):
                    await client.jetstream(timeout=10).publish("ORDERS.new", str(number).encode())
            finally:
                await client.close()

        asyncio.run(send())


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory, run_module: Runner) -> Iterator[Deployed]:
    root = tmp_path_factory.mktemp("operator")
    tags = {"TWIN1": "TWIN", "TWIN2": "TWIN"}
    operator = make_operator(root, "APP", *tags, tags=tags, signing=True)
    (root / "operator.jwt").write_text(operator.jwt)
    hosts = RoleCluster(root, NAMES, "2.10.27")
    hosts.use_operator(operator, allow_delete=False, interval="2m")
    hosts.variables.update(
        nats_server_operator=f"{{{{ lookup('file', '{root}/operator.jwt') }}}}",
        nats_cluster_account_users=[
            {"account": account, "credentials": str(operator.creds[name])}
            for name, account in (("APP", "APP"), ("TWIN1", "TWIN"), ("TWIN2", "TWIN"))
        ],
        nats_cluster_backup_directory=str(root / "backups"),
    )
    try:
        assert SMOKE_TEST in hosts.playbook("deploy").output
        # The role creates this directory for the server's user, before the configuration test would create it for root.
        assert {stat.S_IMODE((root / name / "jwt").stat().st_mode) for name in NAMES} == {0o750}
        found = Deployed(hosts, operator, root / "backups")
        for account, messages in (("APP", 30), ("TWIN1", 10), ("TWIN2", 20)):
            made = run_module(
                "nats_stream", found.as_user(account), stream="ORDERS", subjects=["ORDERS.>"], num_replicas=3
            )
            assert made.get("changed"), made
            found.publish(account, messages)
        yield found
    finally:
        hosts.kill()


def test_a_second_deployment_changes_nothing(deployed: Deployed) -> None:
    deployed.hosts.deploy_changes_nothing()


def test_accounts_are_planned_and_changed_as_the_guide_shows(deployed: Deployed, tmp_path: Path) -> None:
    path = "docs/accounts.md"
    (declared,) = [block.text for block in Document(path).of("yaml") if block.file == "accounts.yml"]
    plan_command, apply_command, issue_command, replace_command = [
        command.text for block in Document(path).of("sh") for command in block.commands
    ]
    (tmp_path / "accounts.yml").write_text(declared)
    seed = deployed.operator.signing_key.seed
    (tmp_path / "operator-signing.nk").write_text(seed)
    shutil.copy(deployed.hosts.inventory(), tmp_path / "inventory.yml")
    stored = {"accounts_seed_file": tmp_path / "operator-signing.nk", "accounts_key_directory": tmp_path / "keys"}
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "nats.yml").write_text(
        yaml.safe_dump({f"nats_cluster_{name}": str(value) for name, value in stored.items()})
    )
    environment = {
        **deployed.hosts.controller()[1],
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "ANSIBLE_NOCOLOR": "true",
    }
    output = typed(plan_command, cwd=tmp_path, env=environment)
    file = tmp_path / "accounts_plan-C1.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    plan = json.loads(file.read_text())
    rows = {row["account"] or row["name"]: row for row in plan["accounts"]}
    keys = deployed.operator.keys
    assert {name: row["state"] for name, row in rows.items()} == {
        keys["SYS"]: "change",
        "ORDERS": "create",
        "BILLING": "create",
        **{keys[name]: "not in document" for name in ("APP", "TWIN1", "TWIN2")},
    }
    assert [one["path"] for one in plan["operator"]] == ["operator.name", "operator.strict_signing_keys"]
    assert "limits.connections: unlimited → 1000" in words(output)
    assert "1 change, 2 create, 3 not in document; closes 0 connections" in words(output)

    def apply(*options: str) -> str:
        """Run the command of the guide without the wait for the resolvers, whose interval is two minutes here."""
        quick = " ".join([apply_command, "-e nats_cluster_accounts_sync_interval=0", *options])
        found = typed(quick, cwd=tmp_path, env=environment)
        assert seed not in found and not re.search(r"eyJ|S[UAO][A-Z2-7]{56}", found)
        return found

    predicted = apply("--check")
    assert not (tmp_path / "keys").exists()
    done = apply("-vvv", "--diff")
    steps = r"│ (SYS|ORDERS|BILLING) │ ([^│]+?) │ (\d+) │"
    assert set(re.findall(steps, words(predicted))) == set(re.findall(steps, words(done)))
    assert {(name, step) for name, step, _changes in re.findall(steps, words(done))} == {
        ("ORDERS", "create"),
        ("BILLING", "create"),
        ("BILLING", "imports"),
        ("SYS", "the remaining changes"),
    }
    assert "1 role tested with a user" in words(done)
    assert len(list((tmp_path / "keys").rglob("*.nk"))) == 3
    assert set(re.findall(r"changed=(\d+)", apply())) == {"0"}
    _users_get_credentials(deployed, tmp_path, environment, issue_command, replace_command)
    # The templates of a role pass through the plan and the playbook unchanged. test_accounts_apply.py refuses the plan
    # of a document that has changed since.
    (tmp_path / "accounts.yml").write_text(declared.replace("orders.{{tag(team)}}.>", "orders.{{tag(team)}}.new.>"))
    typed(plan_command, cwd=tmp_path, env=environment)
    assert "orders.{{tag(team)}}.new.>" in file.read_text()
    assert "roles" in words(apply())


def _users_get_credentials(
    deployed: Deployed, folder: Path, environment: dict[str, str], issue_command: str, replace_command: str
) -> None:
    """Issue the credentials of the guide's document, log in, and replace the key of their role."""
    creds = folder / "shop.creds"

    def secretless(command: str, *options: str) -> str:
        found = typed(" ".join([command, "-vvv --diff", *options]), cwd=folder, env=environment)
        assert not re.search(r"eyJ|S[UAO][A-Z2-7]{56}", found)
        return found

    def is_connected() -> bool:
        async def connect() -> None:
            client = await nats.connect(
                deployed.hosts.urls, user_credentials=str(creds), allow_reconnect=False, max_reconnect_attempts=1
            )
            await client.close()

        try:
            asyncio.run(connect())
        except nats.errors.Error:
            return False
        return True

    assert "1 issue" in words(secretless(issue_command, "--check")) and not creds.exists()
    assert "1 issue" in words(secretless(issue_command))
    assert stat.S_IMODE(creds.stat().st_mode) == 0o600 and is_connected()
    first = creds.read_text()
    again = secretless(issue_command)
    assert "1 same" in words(again) and set(re.findall(r"changed=(\d+)", again)) == {"0"}
    # A user on a host of the inventory, in a second document.
    web = folder / "web.creds"
    delivery = json.dumps(
        {"key": "app", "tags": ["team:web"], "deliver": {"host": "n2", "file": str(web), "mode": "0400"}}
    )
    (folder / "more.yml").write_text(f"{(folder / 'accounts.yml').read_text()}  ORDERS/web: {delivery}\n")
    more = secretless(issue_command.replace("=accounts.yml", "=more.yml"))
    assert "1 issue, 1 same" in words(more) and creds.read_text() == first
    assert stat.S_IMODE(web.stat().st_mode) == 0o400
    (role,) = [path.stem for path in (folder / "keys").rglob("*.nk") if path.stem in decoded_issuer(first)]
    command = re.sub(r"replaced=A[A-Z2-7]{55}", f"replaced={role}", replace_command)
    command += " -e nats_cluster_accounts_sync_interval=0"
    # A run that ends after the new credentials were issued is continued by the next one.
    assert "1 renew" in words(secretless(command, "-e nats_cluster_signing_key_stop_after=issue"))
    assert role not in decoded_issuer(creds.read_text()) and is_connected()
    second = creds.read_text()
    assert "1 same" in words(secretless(command))
    assert is_connected()
    creds.write_text(first)
    assert not is_connected()
    creds.write_text(second)
    done = secretless(command)
    assert set(re.findall(r"changed=(\d+)", done)) == {"0"}, done
    assert len(list((folder / "keys").rglob("*.nk"))) == 4


def decoded_issuer(creds: str) -> str:
    """Return the public key that signed the JWT of a .creds file."""
    found = read_credentials(creds)
    assert found is not None
    return found.claims.issuer


def test_an_upgrade_is_checked_with_the_creds_of_the_environment(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NATS_CREDS", str(deployed.operator.creds["SYS"]))
    refused = deployed.hosts.playbook(
        "upgrade", "--check", fails=True, nats_server_api_credentials="", **deployed.hosts.running("2.15.1")
    )
    assert "2.10.27 to 2.15.1 skips" in words(refused.output)


def test_an_upgrade_is_checked_and_gated_with_the_credentials_of_the_system_account(
    deployed: Deployed, run_module: Runner
) -> None:
    hosts = deployed.hosts
    pids = hosts.pids()
    wanted = hosts.running("2.15.1")
    refused = hosts.playbook("upgrade", "--check", fails=True, **wanted)
    assert "nothing was changed" in refused.output and "minor release(s)" in words(refused.output), refused.output
    output = hosts.playbook("upgrade", nats_server_allow_skipped_minors=True, **wanted).output
    hosts.variables.update(wanted)
    assert "batch 3 of 3" in output
    assert "nats_server : Wait for contact between the server and the meta leader" in output
    assert all(hosts.pid(name) not in (0, pid) for name, pid in pids.items())
    info = run_module("nats_cluster_info", deployed.as_user("SYS"), expected_servers=NAMES)
    assert info["problems"] == []
    held = {stream["account"]: stream["messages"] for stream in info["streams"]}
    keys = deployed.operator.keys
    assert held == {keys["APP"]: 30, keys["TWIN1"]: 10, keys["TWIN2"]: 20}


def test_streams_are_saved_by_key_and_restored_by_name(deployed: Deployed, run_module: Runner) -> None:
    hosts, keys = deployed.hosts, deployed.operator.keys
    output = hosts.playbook("backup").output
    assert "APP/ORDERS" in output
    catalogue = json.loads((deployed.backups / "catalogue.json").read_text())
    assert set(catalogue["streams"]) == {f"{keys[name]}/ORDERS" for name in ("APP", "TWIN1", "TWIN2")}
    for account in ("APP", "TWIN1", "TWIN2"):
        gone = {"stream": "ORDERS", "state": "absent", "allow": ["data_loss"]}
        assert run_module("nats_stream", deployed.as_user(account), **gone).get("changed")
    both = hosts.playbook("restore", fails=True, nats_cluster_restore_streams=["TWIN/ORDERS"]).output
    assert "2 accounts are named TWIN" in words(both) and keys["TWIN1"] in both and keys["TWIN2"] in both
    hosts.playbook("restore", nats_cluster_restore_streams=["APP/ORDERS", f"{keys['TWIN2']}/ORDERS"])
    info = run_module("nats_cluster_info", deployed.as_user("SYS"), expected_servers=NAMES)
    assert info["problems"] == []
    assert {stream["account"]: stream["messages"] for stream in info["streams"]} == {keys["APP"]: 30, keys["TWIN2"]: 20}


def test_operator_key_is_replaced_by_a_run_that_was_killed_and_repeated(
    deployed: Deployed, tmp_path: Path, run_module: Runner
) -> None:
    hosts, old = deployed.hosts, deployed.operator.signing_key.public
    (tmp_path / "identity.nk").write_text(deployed.operator.key.seed)
    given: dict[str, Any] = {
        "nats_cluster_operator_jwt_file": str(deployed.backups.parent / "operator.jwt"),
        "nats_cluster_operator_identity_seed_file": str(tmp_path / "identity.nk"),
        "nats_cluster_operator_replaced_key": old,
        "nats_cluster_operator_new_seed_file": str(tmp_path / "new.nk"),
    }

    def signers() -> set[str]:
        found = run_module("nats_account_claims_info", deployed.as_user("SYS"), expected_servers=NAMES)
        assert not found.get("failed") and all(not row["problems"] for row in found["accounts"]), found
        return {str(row["issuer"]) for row in found["accounts"]}

    assert signers() == {old}
    pids = hosts.pids()
    process = hosts.start_playbook("operator_key", **given, nats_cluster_accounts_sync_interval=0)
    end = time.monotonic() + 200
    while hosts.pids() == pids:
        assert process.poll() is None and time.monotonic() < end, "no server was restarted"
        time.sleep(0.05)
    process.kill()
    killed, _nothing = process.communicate()
    output = hosts.playbook("operator_key", **given, nats_cluster_accounts_sync_interval=0).output
    new = read_seed((tmp_path / "new.nk").read_text(), ["operator"]).public
    assert not re.search(r"S[UAO][A-Z2-7]{56}", killed + output)
    assert signers() == {new} and new != old
    assert all(hosts.pid(name) not in (0, pid) for name, pid in pids.items())
    assert "Done: nothing. Next: restart" in words(output)
    assert "Done: sign the accounts, drop the key. Next: restart" in words(output)
    assert "Done: nothing. Next: done" in words(output)
    info = run_module("nats_account_claims_info", deployed.as_user("SYS"), expected_servers=NAMES)
    assert {tuple(one["signing_keys"]) for one in info["operators"]} == {(new,)}
