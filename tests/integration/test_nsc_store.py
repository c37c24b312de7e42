# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests that the plan of a document imported from an nsc store is empty on servers that have the same accounts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import nkeys
import pytest
from support.credentials import make_jwt, new_key, new_user
from support.module_runs import Runner
from support.nsc_stores import write_store
from support.operator_site import NAMES, Site


@pytest.fixture
def site(version: str, tmp_path: Path, run_module: Runner) -> Iterator[Site]:
    found = Site(version, tmp_path, "full", 'interval: "1s"', strict=True)
    try:
        found.form(run_module)
        yield found
    finally:
        found.servers.kill()


def test_plan_of_an_imported_store_is_empty(site: Site, tmp_path: Path, run_module: Runner) -> None:
    keys, signer = site.operator.keys, site.operator.signing_key
    role, plain = new_key(nkeys.PREFIX_BYTE_ACCOUNT), new_key(nkeys.PREFIX_BYTE_ACCOUNT)
    template = {"pub": {"allow": ["orders.{{tag(team)}}"]}, "sub": {"allow": ["_INBOX.>"]}, "subs": 9, "payload": -1}
    scope = {"kind": "user_scope", "key": role.public, "role": "app", "template": {**template, "data": -1}}
    activation = {"type": "activation", "subject": "pay.>", "kind": "stream", "issuer_account": keys["OTHER"]}
    token = make_jwt(site.operator.user_signers["OTHER"], keys["APP"], "pay", activation)
    tokens = dict(site.operator.accounts)
    tokens[keys["OTHER"]] = site.account(
        "OTHER",
        signer,
        signing_keys=[site.operator.user_signers["OTHER"].public],
        exports=[
            {"name": "pay", "subject": "pay.>", "type": "stream", "token_req": True},
            {
                "name": "api",
                "subject": "api.*",
                "type": "service",
                "response_type": "Chunked",
                "service_latency": {"sampling": 50, "results": "latency.api"},
            },
        ],
    )
    tokens[keys["APP"]] = site.account(
        "APP",
        signer,
        limits={
            **dict.fromkeys(("subs", "data", "payload", "imports", "exports", "leaf"), -1),
            "conn": 40,
            "wildcards": True,
            "tiered_limits": {"R1": {"disk_storage": 1 << 30, "streams": 5}, "R3": {"mem_storage": -1}},
        },
        signing_keys=[scope, plain.public],
        imports=[
            {
                "name": "pay",
                "subject": "pay.eu",
                "account": keys["OTHER"],
                "type": "stream",
                "token": token,
                "local_subject": "bills",
            },
            {"name": "api", "subject": "api.v1", "account": keys["OTHER"], "type": "service"},
        ],
        revocations={new_user().public: 1_700_000_000},
        default_permissions={"pub": {"deny": ["secret.>"]}},
        mappings={"a": [{"subject": "b", "weight": 60}, {"subject": "c", "weight": 40}]},
        tags=["region:eu"],
    )
    for name in ("OTHER", "APP"):
        site.push(tokens[keys[name]])
        assert site.row(run_module, name)["problems"] == []
    claims = {"type": "user", "issuer_account": keys["APP"], "tags": ["team:berlin"]}
    users = {"till": make_jwt(role, new_user().public, "till", claims)}
    store = write_store(
        tmp_path,
        site.operator.jwt,
        {name: (tokens[key], users if name == "APP" else {}) for name, key in keys.items()},
    )

    found = run_module("nats_nsc_store_info", {}, path=str(store))
    assert not found.get("failed") and found["notes"] == [], found
    connection = {**site.servers.sys_connection(), "timeout": 2}
    plan = run_module("nats_accounts_plan", connection, expected_servers=NAMES, document=found["document"])
    assert not plan.get("failed"), plan
    assert {row["name"]: (row["state"], row["changes"]) for row in plan["plan"]["accounts"]} == {
        name: ("same", []) for name in keys
    }
    assert plan["plan"]["problems"] == [] and plan["plan"]["operator"] == [], plan["plan"]
