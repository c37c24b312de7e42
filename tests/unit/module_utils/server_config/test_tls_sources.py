# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the paths of a host's TLS files on the controller."""

from __future__ import annotations

import pytest
from ansible_collections.natsops.jetstream.plugins.filter.nats_tls_sources import nats_tls_sources
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.tls_sources import (
    TlsSourceOptions,
    tls_sources,
)

SUPPLIED = {"source": "files", "ca_src": "/ca", "cert_src": "/cert", "key_src": "/key"}
NEW = {"new_ca_src": "/ca2", "new_cert_src": "/cert2", "new_key_src": "/key2", "bundle_src": "/both"}


def test_private_authority_has_a_certificate_and_a_key_for_each_host() -> None:
    found = tls_sources(TlsSourceOptions(source="ca", ca_dir="/pki"), "n1")
    files = {"ca.crt": "/pki/ca.crt", "server.crt": "/pki/n1.crt", "server.key": "/pki/n1.key"}
    assert (found["installed"], found["rotating"], found["complete"]) == (True, False, False)
    assert found["current"] == found["given"] == files and found["without_issue"] == []
    assert found["authority"] == found["issuer"] == {"dir": "/pki", "key": "/pki/ca.key"}


def test_new_private_authority_issues_the_certificates_with_its_own_key() -> None:
    options = TlsSourceOptions(source="ca", ca_dir="/pki", ca_key_file="/vault/ca.key", new_ca_dir="/pki2")
    found = tls_sources(options, "n1")
    assert (found["rotating"], found["without_issue"]) == (True, ["renew"])
    assert found["authority"] == {"dir": "/pki", "key": "/vault/ca.key"}
    assert found["issuer"] == {"dir": "/pki2", "key": "/pki2/ca.key"}
    assert found["given"] == found["new"]
    assert found["authorities"] == {"current": "/pki/ca.crt", "new": "/pki2/ca.crt", "both": "/pki2/bundle.crt"}


def test_supplied_files_are_those_of_the_variables() -> None:
    found = tls_sources(TlsSourceOptions(**SUPPLIED, **NEW), "n1")
    assert (found["installed"], found["rotating"], found["complete"]) == (True, True, True)
    assert found["current"] == {"ca.crt": "/ca", "server.crt": "/cert", "server.key": "/key"}
    assert found["new"] == {"ca.crt": "/ca2", "server.crt": "/cert2", "server.key": "/key2"}
    assert found["authorities"]["both"] == "/both"
    assert found["supplied"] == {
        "nats_server_tls_new_ca_src": "/ca2",
        "nats_server_tls_new_cert_src": "/cert2",
        "nats_server_tls_new_key_src": "/key2",
        "nats_server_tls_bundle_src": "/both",
    }


@pytest.mark.parametrize("missing", ["ca_src", "cert_src", "key_src"])
def test_operator_supplies_all_files_or_the_set_is_incomplete(missing: str) -> None:
    assert not tls_sources(TlsSourceOptions(**{**SUPPLIED, missing: ""}), "n1")["complete"]


@pytest.mark.parametrize(
    ("options", "rotating"),
    [
        ({"source": "files", "new_ca_dir": "/pki2"}, False),
        ({"source": "files", "new_ca_src": "/ca2"}, True),
        ({"source": "ca", "new_ca_src": "/ca2"}, False),
        ({"source": "ca", "new_ca_dir": "/pki2"}, True),
        ({"source": "host", "new_ca_dir": "/pki2", "new_ca_src": "/ca2"}, False),
        ({"source": "none", "new_ca_dir": "/pki2", "new_ca_src": "/ca2"}, False),
    ],
)
def test_only_the_variables_of_the_source_replace_the_authority(options: dict[str, str], rotating: bool) -> None:
    assert tls_sources(TlsSourceOptions(**options), "n1")["rotating"] == rotating
    assert nats_tls_sources({**options, "ca_dir": None}, "n1")["rotating"] == rotating
