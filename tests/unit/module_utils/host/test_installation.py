# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests whether a host needs the user or the desired version."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.filter.nats_installation import nats_installation
from ansible_collections.natsops.jetstream.plugins.module_utils.host.installation import (
    USER,
    InstallOptions,
    installation,
)

HOST: dict[str, Any] = {
    "installed": True,
    "installed_from": "aa",
    "src_sha256": "aa",
    "group_exists": True,
    "user": {"group": "nats", **USER},
    "process": {"running": True},
}


@pytest.mark.parametrize(
    ("options", "host", "due"),
    [
        ({}, {}, False),
        ({}, {"installed": False}, True),
        ({}, {"process": {"running": False}}, True),
        ({"install_method": "package"}, {}, True),
        ({"install_method": "file"}, {}, False),
        ({"install_method": "file"}, {"src_sha256": "bb"}, True),
        ({"install_method": "file", "file_checksum": "sha256:AA"}, {}, False),
        ({"install_method": "file", "file_checksum": "bb"}, {}, True),
        ({}, {"group_exists": False}, True),
        ({}, {"user": {"group": "other", **USER}}, True),
        ({"manage_user": False}, {"group_exists": False}, False),
        ({"become": False}, {"group_exists": False}, False),
        ({"take_over": False}, {"installed": False}, False),
    ],
)
def test_installation_is_due(options: dict[str, Any], host: dict[str, Any], due: bool) -> None:
    given = InstallOptions(**{"group": "nats", **options})
    assert installation(given, {**HOST, **host})["due"] == due


@pytest.mark.parametrize(("checksum", "accepted"), [(None, ["aa"]), ("sha256:BB", ["bb"]), ("BB", ["bb"])])
def test_file_may_have_any_checksum_unless_one_is_configured(checksum: str | None, accepted: list[str]) -> None:
    options = {"install_method": "file", "file_checksum": checksum, "group": "nats"}
    assert nats_installation(options, HOST)["accepted_sums"] == accepted


def test_missing_file_has_no_accepted_checksum() -> None:
    assert nats_installation({"install_method": "file"}, {**HOST, "src_sha256": ""})["accepted_sums"] == []
