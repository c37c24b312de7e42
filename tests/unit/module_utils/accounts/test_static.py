# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the conversion of the accounts in a server's configuration to a document of accounts."""

from __future__ import annotations

from typing import Any

import nkeys
import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.natsops.jetstream.plugins.filter.nats_accounts_document import nats_accounts_document
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.document import read_document
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.fields import Normal
from support.credentials import new_key

KEY = new_key(nkeys.PREFIX_BYTE_ACCOUNT, 1).public


def fields(account: dict[str, Any]) -> Normal:
    """Return the normal form of a configured account APP next to an account PAY."""
    exports = [{"service": "pay.*"}, {"stream": "ev.>"}]
    document = nats_accounts_document({"APP": account, "PAY": {"exports": exports}})["document"]
    return read_document(document).accounts["APP"].fields


def test_account_without_options_is_unlimited_in_both_languages() -> None:
    assert fields({}) == read_document({"accounts": {"A": {}}}).accounts["A"].fields


@pytest.mark.parametrize(
    ("account", "name", "value"),
    [
        ({"limits": {"max_conn": 5}}, "limits.connections", 5),
        ({"limits": {"max_connections": 0}}, "limits.connections", 0),
        ({"limits": {"max_subs": -1}}, "limits.subscriptions", -1),
        ({"limits": {"max_payload": "1MB"}}, "limits.payload", 2**20),
        ({"limits": {"max_leafnodes": 3}}, "limits.leaf", 3),
        ({"jetstream": False}, "limits.jetstream", {}),
        ({"jetstream": {"cluster_traffic": "owner"}}, "cluster_traffic", "owner"),
        ({"maps": {"a": "b"}}, "mappings", {"a": [{"subject": "b", "weight": 100, "cluster": ""}]}),
        (
            {"mappings": {"a": [{"dest": "b", "weight": "30%"}, {"destination": "c", "weight": 70, "cluster": "C1"}]}},
            "mappings",
            {"a": [{"cluster": "", "subject": "b", "weight": 30}, {"cluster": "C1", "subject": "c", "weight": 70}]},
        ),
        ({"msg_trace": {"dest": "t", "sampling": "20%"}}, "trace", {"subject": "t", "sampling": 20}),
        ({"default_permissions": {"pub": "a", "sub": {"deny": ["b"]}}}, "default_permissions.allow.pub", ["a"]),
        ({"default_permissions": {"pub": "a", "sub": {"deny": ["b"]}}}, "default_permissions.deny.sub", ["b"]),
        (
            {"default_permissions": {"allow_responses": {"max": -1, "expires": "1m"}}},
            "default_permissions.responses",
            {"max": -1, "ttl": 60 * 10**9},
        ),
        (
            {"default_permissions": {"allow_responses": True}},
            "default_permissions.responses",
            {"max": 1, "ttl": 120 * 10**9},
        ),
    ],
)
def test_configured_value_means_the_same_in_the_document(account: dict[str, Any], name: str, value: Any) -> None:
    assert fields(account)[name] == value


@pytest.mark.parametrize("enabled", [True, "enabled", {}])
def test_jetstream_without_limits_is_unlimited(enabled: Any) -> None:
    tier = fields({"jetstream": enabled})["limits.jetstream"][""]
    assert set(tier.values()) == {-1, False}


def test_jetstream_limits_that_are_omitted_are_unlimited() -> None:
    found = fields({"jetstream": {"max_file": "1GB", "max_streams": 5, "max_consumers": 0, "max_bytes": True}})
    assert found["limits.jetstream"][""] == {
        "disk": 2**30,
        "memory": -1,
        "streams": 5,
        "consumers": -1,
        "max_ack_pending": -1,
        "disk_max_stream_bytes": -1,
        "memory_max_stream_bytes": -1,
        "require_max_bytes": True,
    }


def test_exports_and_imports_are_converted() -> None:
    found = fields(
        {
            "exports": [
                {"stream": "a.>", "accounts": ["PAY"]},
                {
                    "service": "b.*",
                    "response": "chunked",
                    "threshold": "2s",
                    "latency": "l",
                    "account_token_position": 2,
                },
            ],
            "imports": [
                {"stream": {"account": "PAY", "subject": "ev.>"}, "prefix": "in"},
                {"service": {"account": "PAY", "subject": "pay.*"}, "to": "p.*", "share": True},
            ],
        }
    )
    exports = {one["subject"]: one for one in found["exports"]}
    assert (exports["a.>"]["to"], exports["a.>"]["private"]) == (["PAY"], True)
    service = exports["b.*"]
    assert (service["response_type"], service["response_threshold"], service["account_token_position"]) == (
        "Chunked",
        2 * 10**9,
        2,
    )
    assert (service["latency.subject"], service["latency.sampling"]) == ("l", "100")
    assert {(one["subject"], one["local"], one["share"]) for one in found["imports"]} == {
        ("ev.>", "in.ev.>", False),
        ("pay.*", "p.*", True),
    }


def test_users_and_the_system_account_are_noted() -> None:
    accounts = {"$SYS": {"users": [{"user": "sys"}]}, "APP": {"users": [{"user": "a"}, {"user": "b"}], "odd": 1}}
    found = nats_accounts_document(accounts)
    assert found["document"] == {"system_account": "$SYS", "accounts": {"$SYS": {}, "APP": {}}}
    assert found["notes"] == [
        "account $SYS: 1 user; in operator mode each needs a JWT",
        "account APP: 2 users; in operator mode each needs a JWT",
        "account APP: odd is not converted",
    ]


def test_account_named_by_its_public_key_keeps_it_as_id() -> None:
    imports = [{"stream": {"account": KEY, "subject": "a"}}]
    found = nats_accounts_document({KEY: {"exports": [{"stream": "a"}]}, "APP": {"imports": imports}})["document"]
    (name,) = (name for name, account in found["accounts"].items() if account.get("id") == KEY)
    assert found["accounts"]["APP"]["imports"][0]["account"] == name


@pytest.mark.parametrize(
    ("account", "reason"),
    [
        ({"imports": [{"stream": {"account": "NONE", "subject": "a"}}]}, "NONE is not an account"),
        ({"limits": {"max_payload": "big"}}, "'big' is not a size"),
        ({"exports": [{"accounts": ["A"]}]}, "'service' is missing"),
        (5, "has no attribute"),
    ],
)
def test_configuration_that_a_server_refuses_is_an_error(account: Any, reason: str) -> None:
    with pytest.raises(AnsibleFilterError, match=reason):
        nats_accounts_document({"A": account})
