# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests how the modules log in to the servers of the role."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.connection import connection, has_login
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.tls_sources import (
    TlsSourceOptions,
    tls_sources,
)

URLS = ["nats://n1:4222", "nats://n2:4222"]
PASSWORD: dict[str, Any] = {"user": "sys", "password": "secret"}
METRICS: dict[str, Any] = {"metrics_user": "metrics", "metrics_password": "read"}
AUTHORITY = {"source": "ca", "ca_dir": "/ca"}
ROTATION = {**AUTHORITY, "new_ca_dir": "/new"}


def made(
    files: Collection[str] = (), source: dict[str, str] | None = None, only_reads: bool = False, **options: Any
) -> dict[str, Any]:
    """Return the options other than the servers."""
    sources = tls_sources(TlsSourceOptions(**source or {}), "n1")
    found = connection({"delegate_to": "localhost", **options}, URLS, sources, files.__contains__, only_reads)
    assert found.pop("servers") == options.get("servers", URLS)
    return found


@pytest.mark.parametrize(
    ("options", "login"),
    [
        ({}, {}),
        ({"servers": ["nats://lb:4222"], "timeout": 5}, {"timeout": 5}),
        (PASSWORD, PASSWORD),
        ({"user": "sys", "password": None}, {}),
        ({"credentials": "/sys.creds", "nkey_seed": "SU", **PASSWORD}, {"credentials": "/sys.creds", **PASSWORD}),
        ({"nkey_seed": "SU", **PASSWORD}, {"nkey_seed": "SU"}),
        (
            {"account_seed": "SA", "account_key": "AB", "credentials": "/sys.creds", **PASSWORD},
            {"account_seed": "SA", "account_key": "AB"},
        ),
        ({"tls_first": True}, {"tls_first": True}),
    ],
)
def test_one_kind_of_login_is_used_and_unset_options_are_omitted(
    options: dict[str, Any], login: dict[str, Any]
) -> None:
    assert made(**options) == login


@pytest.mark.parametrize(
    ("options", "login"),
    [
        (METRICS, {"user": "metrics", "password": "read", "inbox_prefix": "_INBOX.natsops.metrics"}),
        ({**METRICS, "operator": "eyJ"}, PASSWORD),
        ({"metrics_user": "metrics", "metrics_password": None}, PASSWORD),
    ],
)
def test_reading_programs_have_their_own_login_without_an_operator(
    options: dict[str, Any], login: dict[str, Any]
) -> None:
    assert made(only_reads=True, **PASSWORD, **options) == login


def test_the_seed_of_an_account_does_not_leave_the_controller() -> None:
    with pytest.raises(ValueError, match="would run on jump, and no seed may leave the controller"):
        made(account_seed="SA", delegate_to="jump")
    assert made(account_seed="SA", delegate_to="jump", only_reads=True, **METRICS)["user"] == "metrics"
    assert made(account_seed="SA", delegate_to="127.0.0.1") == {"account_seed": "SA"}


@pytest.mark.parametrize(
    ("files", "source", "trusted"),
    [
        (["/ca/ca.crt"], AUTHORITY, "/ca/ca.crt"),
        ([], AUTHORITY, None),
        (["/ca/ca.crt"], {"source": "host"}, None),
        (["/ca/ca.crt", "/new/bundle.crt"], ROTATION, "/new/bundle.crt"),
        (["/ca/ca.crt"], ROTATION, "/ca/ca.crt"),
        (["/ca/ca.crt", "/new/bundle.crt"], AUTHORITY, "/ca/ca.crt"),
    ],
)
def test_the_authority_on_the_controller_is_trusted(
    files: list[str], source: dict[str, str], trusted: str | None
) -> None:
    assert made(files, source, uses_tls=True).get("tls_ca_file") == trusted
    assert made(files, source, uses_tls=False) == {}
    assert made(files, source, uses_tls=True, tls_ca_file="/own.crt")["tls_ca_file"] == "/own.crt"


@pytest.mark.parametrize(
    ("files", "source", "folder"),
    [([], AUTHORITY, "/ca"), ([], ROTATION, "/ca"), (["/new/client.crt"], ROTATION, "/new")],
)
def test_the_certificate_of_the_new_authority_is_shown_once_it_exists(
    files: list[str], source: dict[str, str], folder: str
) -> None:
    shown = {"tls_cert_file": f"{folder}/client.crt", "tls_key_file": f"{folder}/client.key"}
    assert made(files, source, shows_certificate=True) == shown
    own: dict[str, Any] = {"tls_cert_file": "/own.crt", "tls_key_file": "/own.key"}
    assert made(files, source, shows_certificate=True, **own) == own


@pytest.mark.parametrize(
    ("options", "environment", "expected"),
    [
        ({}, {}, False),
        ({"user": "sys", "password": ""}, {"NATS_USER": "sys", "NATS_CREDS": ""}, False),
        (PASSWORD, {}, True),
        ({"account_seed": "SA"}, {}, True),
        ({"tls_cert_file": "/own.crt"}, {}, True),
        ({"shows_certificate": "True"}, {}, True),
        ({"shows_certificate": False}, {"NATS_CONTEXT": "c1-sys"}, True),
    ],
)
def test_credentials_are_those_of_the_inventory_and_of_the_environment(
    options: dict[str, Any], environment: dict[str, str], expected: bool
) -> None:
    assert has_login(options, environment) is expected
