# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests a cluster with one server that has static accounts and one server in operator mode: the login with a creds file
and a password, and the comparison of the accounts in force (nats_account_parity_info)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import nats
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from support.credentials import Operator, make_jwt, make_operator, new_user
from support.module_runs import Runner
from support.nats_processes import NatsProcesses

FREE = {**dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1), "wildcards": True}
STATIC = """
system_account: {SYS}
accounts {{
  {SYS} {{ users: [{{user: sys, password: sys-pass}}, {{nkey: {nkey}}}] }}
  {PAY} {{
    exports: [
      {{ stream: "ledger.>" }}
      {{ stream: "audit.*", accounts: [{APP}] }}
      {{ service: "pay" }}
      {{ service: "refund.*", accounts: [{APP}], response_type: stream }}
    ]
    users: [{{user: pay, password: pay-pass}}]
  }}
  {APP} {{
    imports: [
      {{ stream: {{account: {PAY}, subject: "ledger.>"}}, prefix: "bank" }}
      {{ stream: {{account: {PAY}, subject: "audit.*"}}, to: "checks.*" }}
      {{ service: {{account: {PAY}, subject: "pay"}} }}
      {{ service: {{account: {PAY}, subject: "refund.*"}}, to: "give.*" }}
    ]
    mappings: {{
      "old.*": "new.$1"
      "split": [{{destination: "a", weight: 60%}}, {{destination: "b", weight: 40%}}]
      "half": [
        {{destination: "a", weight: 50%}}, {{destination: "b", weight: 50%}}
        {{destination: "c", weight: 100%, cluster: C1}}, {{destination: "d", weight: 100%, cluster: C2}}
      ]
    }}
    users: [{{user: app, password: app-pass}}]
  }}
}}
"""


def claims(operator: Operator) -> dict[str, dict[str, Any]]:
    """Return the claims that equal the static accounts PAY and APP."""
    pay, app = operator.keys["PAY"], operator.keys["APP"]

    def activation(subject: str, kind: str) -> str:
        own = {"type": "activation", "subject": subject, "kind": kind}
        return make_jwt(operator.user_signers["PAY"], app, subject, own)

    return {
        "PAY": {
            "exports": [
                {"name": "ledger", "subject": "ledger.>", "type": "stream"},
                {"name": "audit", "subject": "audit.*", "type": "stream", "token_req": True},
                {"name": "pay", "subject": "pay", "type": "service"},
                {
                    "name": "refund",
                    "subject": "refund.*",
                    "type": "service",
                    "token_req": True,
                    "response_type": "Stream",
                },
            ]
        },
        "APP": {
            "imports": [
                {
                    "name": "ledger",
                    "subject": "ledger.>",
                    "account": pay,
                    "type": "stream",
                    "local_subject": "bank.ledger.>",
                },
                {
                    "name": "audit",
                    "subject": "audit.*",
                    "account": pay,
                    "type": "stream",
                    "local_subject": "checks.*",
                    "token": activation("audit.*", "stream"),
                },
                {"name": "pay", "subject": "pay", "account": pay, "type": "service"},
                {
                    "name": "refund",
                    "subject": "refund.*",
                    "account": pay,
                    "type": "service",
                    "local_subject": "give.*",
                    "token": activation("refund.*", "service"),
                },
            ],
            "mappings": {
                "old.*": [{"subject": "new.$1"}],
                "split": [{"subject": "a", "weight": 60}, {"subject": "b", "weight": 40}],
                "half": [
                    {"subject": "d", "weight": 100, "cluster": "C2"},
                    {"subject": "c", "weight": 100, "cluster": "C1"},
                    {"subject": "b", "weight": 50},
                    {"subject": "a", "weight": 50},
                ],
            },
        },
    }


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return make_operator(tmp_path, "PAY", "APP")


@pytest.fixture
def start(version: str, operator: Operator, tmp_path: Path) -> Iterator[Callable[[dict[str, Any]], NatsProcesses]]:
    """Start a server with static accounts and a server in operator mode, in which PAY and APP have the given claims."""
    made: list[NatsProcesses] = []

    def start(own: dict[str, Any]) -> NatsProcesses:
        signed = {
            operator.keys[name]: make_jwt(
                operator.signing_key, operator.keys[name], name, {"type": "account", "limits": FREE, **fields}
            )
            for name, fields in own.items()
        }
        mode = replace(operator, accounts={**operator.accounts, **signed})
        directory = tmp_path / f"cluster{len(made)}"
        directory.mkdir()
        servers = NatsProcesses(version, directory, ["operator", "static"], operator=mode, jetstream=[])
        made.append(servers)
        servers.write_config("static")
        file = servers.config_file("static")
        static = STATIC.format(**operator.keys, nkey=new_user().public)
        file.write_text(file.read_text()[: file.read_text().index("operator: ")] + static)
        servers.start()
        return servers

    yield start
    for servers in made:
        servers.kill()


def login(servers: NatsProcesses, operator: Operator, user: str, *names: str) -> dict[str, Any]:
    """Return a login that each kind of server accepts."""
    return {
        "servers": [servers.url(name) for name in names or servers.names],
        "credentials": str(operator.creds[user.upper()]),
        "user": user,
        "password": f"{user}-pass",
    }


def compare(servers: NatsProcesses, operator: Operator, run_module: Runner) -> dict[str, Any]:
    """Load the accounts on the server in operator mode, and compare them with the static accounts."""

    async def load() -> None:
        for name in ("PAY", "APP"):
            connection = await nats.connect(servers.url("operator"), user_credentials=str(operator.creds[name]))
            await connection.close()

    asyncio.run(load())

    def parity() -> dict[str, Any]:
        both = login(servers, operator, "sys")
        return run_module("nats_account_parity_info", both, expected_servers=servers.names)

    # The servers answer as soon as their route exists.
    return wait_until(parity, lambda found: not any("did not answer" in one for one in found["problems"]), 20).value


def test_equal_imports_exports_and_mappings_show_no_difference(
    start: Callable[[dict[str, Any]], NatsProcesses], operator: Operator, run_module: Runner
) -> None:
    found = compare(start(claims(operator)), operator, run_module)
    assert found["problems"] == []
    assert found["compared"] == sorted(operator.keys[name] for name in ("PAY", "APP"))


def test_each_different_import_export_and_mapping_is_found(
    start: Callable[[dict[str, Any]], NatsProcesses], operator: Operator, run_module: Runner
) -> None:
    own = claims(operator)
    pay, app = own["PAY"], own["APP"]
    del pay["exports"][1]["token_req"]  # a private stream becomes public
    pay["exports"][2]["token_req"] = True  # a public service becomes private
    pay["exports"].pop(0)
    app["imports"][1]["local_subject"] = "other.*"
    app["imports"].pop(2)
    app["mappings"]["old.*"] = [{"subject": "newer.$1"}]
    app["mappings"]["split"][0]["weight"] = 50
    servers = start(own)
    found = compare(servers, operator, run_module)["problems"]
    text = "\n".join(found)
    for part in (
        f"account {operator.keys['PAY']}: exports differs between static",
        "stream ledger.>",
        "stream audit.* (private)",
        "service pay (private)",
        f"account {operator.keys['APP']}: imports differs between static",
        "as checks.*",
        "as other.*",
        f"service pay of {operator.keys['PAY']} as pay",
        f"account {operator.keys['APP']}: mappings differs between static",
        "old.* to new.$1 100%, split to a 60% and b 40% and old.* to newer.$1 100%, split to a 50% and b 40% and split 10%",
    ):
        assert part in text, found


def test_login_with_creds_file_and_password_works_on_servers_with_nkey_users(
    start: Callable[[dict[str, Any]], NatsProcesses], operator: Operator, run_module: Runner
) -> None:
    """The static server also has a user with an nkey, so both servers send a nonce."""
    servers = start(claims(operator))
    for name in servers.names:
        both = login(servers, operator, "sys", name)
        assert run_module("nats_server_info", both)["changed"] is False
        refused = run_module("nats_server_info", {**both, "password": "wrong"})
        assert ("failure" in refused) == (name == "static"), refused
