# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests leaders that do not end up on their planned servers; tests/integration tests those that do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.placement.leader_rebalance import STREAMS
from ansible_collections.natsops.jetstream.plugins.modules import nats_leader_rebalance
from support.clusters import cluster, stream
from support.module_runs import run_in_process

NAMES = ["n1", "n2", "n3"]


def test_leaders_that_did_not_move_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    among = cluster(NAMES, *(stream(f"S{number}", NAMES) for number in range(3)))

    def stuck(_groups: Any, jobs: list[Any], *_rest: Any) -> None:
        first, *others = jobs
        first.attempts, first.failed = 3, "n1 still leads"
        for job in others:
            job.attempts, job.done = 1, True

    monkeypatch.setattr(nats_leader_rebalance, "read_with_rates", lambda *_arguments: (among, {}, ""))
    monkeypatch.setattr(
        nats_leader_rebalance, "AssetGroups", lambda *_arguments: SimpleNamespace(servers={}, supporting=frozenset())
    )
    monkeypatch.setattr(nats_leader_rebalance, "step_down", stuck)
    connection = {"servers": ["nats://127.0.0.1:1"], "user": "sys", "password": "secret"}
    users = [{"account": "APP", "user": "app", "password": "secret"}]
    told = run_in_process(
        "nats_leader_rebalance", connection, account_users=users, cluster="C1", groups=[STREAMS], wait_timeout=1
    )
    assert told["failure"]["code"] == "step_down_failed", told
    assert told["msg"].startswith("1 of 2 leaders differ from the plan, such as stream S")
    assert told["msg"].endswith(": n1 still leads. Run it again")
    assert (told["changed"], list(told["missed"].values())) == (True, ["n1 still leads"])
