# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the lists of the variables that inputs consist of, and the lookup that reads them."""

from __future__ import annotations

import dataclasses

import pytest
from ansible.errors import AnsibleLookupError
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.natsops.jetstream.plugins.lookup.nats_role_options import LookupModule
from ansible_collections.natsops.jetstream.plugins.module_utils.host.release import ReleaseOptions
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.connection import SystemLogins
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.role_options import ROLE_OPTIONS
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.tls_sources import TlsSourceOptions
from support.documents import role_options


def fields(options: type) -> set[str]:
    return {field.name for field in dataclasses.fields(options)}


def test_each_option_is_a_documented_variable() -> None:
    assert {name for options in ROLE_OPTIONS.values() for name in options.values()} <= role_options().keys()


def test_typed_inputs_receive_all_their_variables() -> None:
    assert ROLE_OPTIONS["tls_sources"].keys() == fields(TlsSourceOptions)
    assert ROLE_OPTIONS["system_logins"].keys() == fields(SystemLogins)
    assert ROLE_OPTIONS["release"].keys() == fields(ReleaseOptions) - {"machine", "origin"}


def lookup(*terms: str, **variables: object) -> list[dict[str, object]]:
    templar = Templar(loader=DataLoader(), variables=variables)
    return LookupModule(loader=DataLoader(), templar=templar).run(list(terms), variables)


def test_nats_role_options_reads_the_variables_by_option() -> None:
    variables: dict[str, object] = {
        "nats_server_cluster_name": "C1",
        "nats_server_supercluster_groups": [],
        "nats_server_gateway": None,
    }
    assert lookup("gateways", **variables) == [{"cluster_name": "C1", "supercluster_groups": [], "gateway": None}]


def test_nats_role_options_rejects_an_unknown_input() -> None:
    with pytest.raises(AnsibleLookupError, match="'gateway' is not one of"):
        lookup("gateway")
