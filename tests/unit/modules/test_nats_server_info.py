# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.modules.nats_server_info import (
    mesh_problems,
    wire_options,
)


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


def test_routes_and_gateways_are_missing_together_and_a_server_that_cannot_be_judged_is_named() -> None:
    servers = [
        {"name": name, "id": name, "cluster": "C1", "varz": {"version": "2.10.27"}, "routez": {}, "gatewayz": {}}
        for name in ("n1", "n2")
    ]
    failure = {"description": "no reply within 5 s"}
    incomplete = [{"server": "n3", "endpoint": name, "failure": failure} for name in ("routez", "healthz")]
    found = {
        "servers": [*servers, {"name": "n3", "id": "n3", "cluster": "C1", "varz": {}}],
        "missing": ["n4"],
        "incomplete": incomplete,
    }
    assert mesh_problems(found, ["C1", "west"], []) == [
        "n4 did not answer",
        "n3 did not return routez: no reply within 5 s",
        "n1 has 0 of 4 routes to n2",
        "n2 has 0 of 4 routes to n1",
        "n1 has no gateway connection to west",
        "n2 has no gateway connection to west",
    ]
    assert mesh_problems({"servers": servers[:1], "missing": [], "incomplete": []}, [], []) == []
