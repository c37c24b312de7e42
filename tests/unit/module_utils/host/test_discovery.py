# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the data that is read about a server that the role does not manage."""

from __future__ import annotations

from ansible_collections.natsops.jetstream.plugins.module_utils.host.discovery import own_environment


def test_environment_of_the_unit_is_kept() -> None:
    environment = {
        "PATH": "/bin",
        "INVOCATION_ID": "1",
        "LC_ALL": "C",
        "NAME": "n1",
        "GOGC": "50",
        "PROXY": "http://a:b@c",
    }
    assert own_environment(environment, ["NAME"]) == {"GOGC": "50", "PROXY": "http://a:b@c"}
