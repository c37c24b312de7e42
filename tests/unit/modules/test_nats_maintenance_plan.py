# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the allowed durations of a maintenance, and invalid durations."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.roll.batches import ROLLING_SPEC
from ansible_collections.natsops.jetstream.plugins.modules.nats_maintenance_plan import parse_request, planned
from support.clusters import cluster, stream

#: 2026-11-24T16:00:00Z.
NOW = 1795536000.0


def asked(**changes: Any) -> dict[str, Any]:
    return {
        "by": "ops",
        "reason": "",
        "until": None,
        "duration": "4h",
        "r1_policy": "accept",
        "accept_loss": [],
        **changes,
    }


def test_duration_of_the_maintenance() -> None:
    assert (parse_request(asked(), NOW).until, parse_request(asked(), NOW).renew) == (NOW + 4 * 3600, False)
    # The time is in the form in which YAML writes a time that it has read.
    for text in ("2026-11-24T20:00:00Z", "2026-11-24 20:00:00+00:00"):
        request = parse_request(asked(until=text), NOW)
        assert (request.until, request.renew) == (NOW + 4 * 3600, True)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"until": "2026-11-24T15:59:59Z"}, "until: 2026-11-24T15:59:59Z is in the past: set how long"),
        ({"until": "this evening"}, "until: "),
        ({"duration": "0s"}, "duration: 2026-11-24T16:00:00Z is in the past"),
        ({"until": "soon"}, "until: 'soon' is not a time such as 2026-11-23T02:00:00Z"),
        ({"duration": "long"}, "duration: 'long' is not a duration such as 4h"),
        ({"duration": "9999999999d"}, "duration: 9999999999d is more than a hundred years in the future"),
    ],
)
def test_invalid_maintenance_times_are_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(NatsFailure) as refused:
        parse_request(asked(**changes), NOW)
    assert refused.value.code == "invalid_option" and refused.value.description.startswith(reason)


def test_single_replicas_are_moved_by_the_same_playbook() -> None:
    """The command in the refusal limits the playbook to all hosts of the request."""
    names = ["n1", "n2", "n3"]
    state = cluster(names, stream("ORDERS", names), stream("LOGS", ["n1"]))
    rolling = {name: option.get("default") for name, option in ROLLING_SPEC["rolling"]["options"].items()}
    request = {**asked(r1_policy="fail"), "maintenance": [], "gate": True, "rolling": rolling}
    made = planned(state, {**request, "hosts": {"h1": "n1"}, "running": ["h1"]})
    command = "maintenance_enter --limit h1 -e nats_cluster_gate_r1_policy=move  # moves them first"
    assert not made["ok"] and command in made["refusal"]
    (batch,) = made["batches"]
    assert (batch["hosts"], batch["gates"]["before"]["r1_policy"]) == (["h1"], "fail")
    (result,) = made["result"]
    assert result.startswith("n1 is out of service until 2") and "`maintenance_leave --limit h1`" in result
