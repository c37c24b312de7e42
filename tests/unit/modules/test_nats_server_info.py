# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.modules.nats_server_info import wire_options


@pytest.mark.parametrize(
    ("endpoint", "options", "request_body"),
    [
        ("varz", {}, {}),
        ("connz", {"state": "any", "account": "APP", "user": None}, {"state": 2, "acc": "APP"}),
        ("jsz", {"consumers": True, "leader_only": True}, {"consumer": True, "streams": True, "accounts": True}),
        ("jsz", {}, {"streams": False, "accounts": False}),
        ("healthz", {"js_enabled_only": True, "details": False}, {"js-enabled-only": True, "details": False}),
    ],
)
def test_options_in_the_servers_words(endpoint: str, options: dict[str, Any], request_body: dict[str, Any]) -> None:
    assert wire_options(endpoint, options) == request_body
