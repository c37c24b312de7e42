# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.accounts import as_user
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import ConnectionOptions, MintedLogin
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.inboxes import inboxes_of_claims, permitted_inboxes

USER = "UABC"
ALLOWED_ALONE = f"_INBOX.natsops.{USER}"


@pytest.mark.parametrize(
    ("permissions", "expected"),
    [
        ({}, "_INBOX.natsops"),
        ({"subscribe": {"deny": ["$JS.API.>", "_INBOX.natsops.>"]}}, "_INBOX"),
        ({"subscribe": ["orders.>", "_INBOX.>"]}, "_INBOX.natsops"),
        ({"subscribe": {"allow": "_INBOX.>", "deny": "_INBOX.natsops.>"}}, "_INBOX"),
        ({"subscribe": {"allow": ["orders.>", "_INBOX_app.>"]}}, "_INBOX_app"),
        # Without any permitted inbox, the error names the usual one; replies to a subject of messages would be stored.
        ({"subscribe": {"allow": ["orders.>"]}}, "_INBOX.natsops"),
        ({"subscribe": {"allow": ["_INBOX.natsops.>"], "deny": None}}, "_INBOX.natsops"),
    ],
)
def test_inbox_prefix_is_one_that_the_permissions_allow(permissions: dict[str, Any], expected: str) -> None:
    assert permitted_inboxes(permissions) == expected


@pytest.mark.parametrize(
    ("nats", "expected"),
    [
        # A user of a signing key with a role, whose permissions are not in the JWT.
        ({"pub": {}, "sub": {}, "issuer_account": "AABC"}, ALLOWED_ALONE),
        ({}, ALLOWED_ALONE),
        (None, ALLOWED_ALONE),
        ({"sub": {"allow": [f"{ALLOWED_ALONE}.>", "orders.>"]}}, ALLOWED_ALONE),
        ({"sub": {"allow": ["_INBOX.>"]}}, "_INBOX.natsops"),
        ({"sub": {"allow": ["_INBOX.>"], "deny": ["_INBOX.natsops.>"]}}, "_INBOX"),
        ({"sub": {"deny": ["_INBOX.natsops.>"]}}, "_INBOX"),
    ],
)
def test_inboxes_of_a_jwt_are_permitted_to_its_user(nats: Any, expected: str) -> None:
    assert inboxes_of_claims({"sub": USER, "nats": nats}) == expected


def creds(path: Path, claims: Any) -> str:
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    path.write_text(f"-----BEGIN NATS USER JWT-----\nhead.{payload}.sign\n------END NATS USER JWT------\n")
    return str(path)


def test_option_precedes_the_credentials(tmp_path: Path) -> None:
    path = creds(tmp_path / "one.creds", {"sub": USER, "nats": {}})
    options = ConnectionOptions(("nats://one",), credentials=path)
    assert options.inboxes == ALLOWED_ALONE
    assert as_user(options, {"credentials": path, "inbox_prefix": "_INBOX"}).inboxes == "_INBOX"
    assert as_user(options, {"user": "app", "password": "p"}).inboxes == "_INBOX.natsops"
    unreadable = (str(tmp_path / "none.creds"), creds(tmp_path / "list.creds", []))
    assert {ConnectionOptions(("nats://one",), credentials=one).inboxes for one in unreadable} == {"_INBOX.natsops"}


def test_account_user_does_not_get_the_inboxes_of_a_minted_user(tmp_path: Path) -> None:
    login = MintedLogin("minted", lambda _seconds: "", lambda _nonce: b"")
    own = ConnectionOptions(("nats://one",), minted=login, inbox_prefix="_INBOX.natsops.UXYZ")
    path = creds(tmp_path / "one.creds", {"sub": USER, "nats": {}})
    assert own.inboxes == "_INBOX.natsops.UXYZ"
    assert as_user(own, {"credentials": path}).inboxes == ALLOWED_ALONE
