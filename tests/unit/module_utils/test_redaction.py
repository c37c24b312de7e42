# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import gzip
import json
from urllib.parse import quote

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.redaction import (
    MARK,
    Redactor,
    configuration,
    secrets_in,
)
from hypothesis import given
from hypothesis import strategies as st

HASH = "$2a$11$" + "abcdefghijklmnopqrstu" + "A" * 32
SEED = "SUA" + "B7" * 27 + "Q"
PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQ\n-----END PRIVATE KEY-----"


@pytest.mark.parametrize("before", ["", "a", "ab", "abc", "user:"])
@given(secret=st.text(st.characters(min_codepoint=33, max_codepoint=0x2FFF), min_size=6, max_size=30))
def test_known_secret_is_redacted_in_each_form(before: str, secret: str) -> None:
    redactor = Redactor([secret])
    encoded = base64.b64encode(f"{before}{secret}@".encode()).decode()
    for text in (secret, json.dumps(secret), json.dumps(secret, ensure_ascii=False), quote(secret, safe=""), encoded):
        line = f"[INF] {text} follows"
        assert redactor.finds(line.encode()), text
        assert redactor.finds(gzip.compress(line.encode())), text
        assert not redactor.finds(redactor.text(line).encode()), text
    assert redactor.tree({secret: [secret, 1, None]}) == {MARK: [MARK, 1, None]}


def test_the_longer_secret_is_taken_out_first() -> None:
    assert Redactor(["pass", "pass-and-more"]).text("=pass-and-more=pass=") == f"={MARK}={MARK}="


def test_a_secret_that_is_too_short_is_counted_and_left_alone() -> None:
    redactor = Redactor(["abc", "", "abcd"])
    assert redactor.too_short == 1
    assert redactor.text("abc") == "abc"
    assert not redactor.finds(b"abc")


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"stored {HASH}", HASH),
        (f"seed {SEED} of", SEED),
        (PEM, "MIIEvQ"),
        (PEM.partition("-----END")[0], "MIIEvQ"),
        ("eyJ0eXAiOiJKV1QifQ.eyJqdGkiOiI0In0.c2ln", "c2ln"),
        ("nats://app:hunter22@n1:4222", "hunter22"),
        ("nats-server --pass hunter22 -c x", "hunter22"),
        ('CONNECT {"pass":"hunter22","user":"a"}', "hunter22"),
        ("auth_token=hunter22,", "hunter22"),
        ("password: 'hunter 22'", "hunter 22"),
    ],
)
def test_texts_in_the_form_of_a_secret_are_redacted(text: str, secret: str) -> None:
    assert secret not in Redactor().text(text)


@pytest.mark.parametrize(
    "text",
    [
        "[ERR] authentication error - User app",
        "client_pings, tokens and secrets of life",
        "# Passwords, keys and URLs with credentials are variables",
        "password: $SECRET_accounts_APP_users_app_password",
        "https://nats.io/documentation",
        "Client TLS key_file: /etc/nats-server/tls/server.key",
    ],
)
def test_other_text_stays(text: str) -> None:
    assert configuration(Redactor().text(text)) == text


def test_a_configuration_written_by_hand_loses_its_secrets() -> None:
    text = """
    accounts { APP { users: [{user: app, password: "app pass"}, {user: b, pass: 'hunter22'}] } }
    authorization { token hunter23 }
    jetstream { store_dir: "/data", key: hunter24, prev_key: "hunter25", cipher: aes }
    tls { cert_file: "/etc/c.crt", key_file: "/etc/c.key" }
    remotes = [{nkey: "hunter26", credentials = "/etc/leaf.creds", url: "nats://leaf:hunter27@hub"}]
    """
    cleaned = Redactor().text(configuration(text))
    assert not any(secret in cleaned for secret in ("app pass", *(f"hunter{number}" for number in range(22, 28))))
    assert all(kept in cleaned for kept in ("user: app", "/data", "cipher: aes", "/etc/c.key", "@hub"[1:]))


def test_the_environment_of_a_unit_is_left_out() -> None:
    text = 'Environment="HUB_LOGIN=hunter22"\nEnvironment=GOMEMLIMIT=1GiB\nLimitNOFILE=100000\n'
    assert configuration(text) == f'Environment="HUB_LOGIN={MARK}\nEnvironment=GOMEMLIMIT={MARK}\nLimitNOFILE=100000\n'


def test_secrets_are_found_among_variables() -> None:
    variables = {
        "nats_server_accounts": {"APP": {"users": [{"user": "app", "password": "one"}, {"nkey": "UABC"}]}},
        "encryption_key": ["two", None],
        "config": {"authorization": {"token": "three"}, "tls": {"key_file": "/etc/key"}, "jetstream": {"key": "four"}},
        "remotes": [{"url": "nats://leaf:five@hub"}, {"urls": ["nats://six@hub"]}, {"seed": "seven"}],
        "password": [None, "", 8888],
        "enabled": True,
    }
    assert secrets_in(variables) == {"one", "two", "three", "four", "five", "six", "seven", "8888"}
