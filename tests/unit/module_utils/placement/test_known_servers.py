# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests names that do not match any server."""

from __future__ import annotations

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.placement.known_servers import unknown_servers

KNOWN = ["n3", "n1", "n2"]


@pytest.mark.parametrize("name", ["n9", "N1", "n1 ", "", "*", "n.*", "../n1"])
def test_an_unknown_name(name: str) -> None:
    assert unknown_servers(["n1", name], KNOWN) == f"{name!r} is not a server of the cluster, which has n1, n2, n3"


def test_names_that_are_known() -> None:
    assert unknown_servers(["n1", "n3"], KNOWN) == unknown_servers([], []) == ""
    many = unknown_servers(["b", "a"], [f"n{number:02}" for number in range(30)])
    assert many.startswith("'a', 'b' are not servers") and many.endswith("n19 and 10 more")
