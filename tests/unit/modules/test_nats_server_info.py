# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.modules.nats_server_info import (
    refusal,
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


def test_missing_connections_are_a_failure_on_request() -> None:
    found = {"missing": [], "incomplete": [], "mesh_problems": ["n1 has 2 of 4 routes to n2"]}
    failure = refusal(found)
    assert failure is not None and failure.code == "mesh_incomplete"
    assert failure.description == "the cluster is incomplete: n1 has 2 of 4 routes to n2"
    assert refusal({**found, "mesh_problems": []}) is None
    failure = refusal({**found, "missing": ["n4"]})
    assert failure is not None and failure.code == "server_missing"
