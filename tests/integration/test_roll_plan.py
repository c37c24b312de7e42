# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans for a real cluster."""

from __future__ import annotations

from conftest import Runner
from nats_processes import NatsProcesses


def test_batches_of_five_servers(five: NatsProcesses, run_module: Runner) -> None:
    five.add_stream("ROLL", 3)
    five.add_stream("SINGLE", 1)
    try:
        options = {"server_names": five.names, "expected_servers": five.names}
        one_by_one = run_module("nats_roll_plan", five.sys_connection(), **options)
        assert [len(batch) for batch in one_by_one["batches"]] == [1] * 5
        assert one_by_one["batches"][-1] == [one_by_one["meta_leader"]]
        assert [problem["code"] for problem in one_by_one["problems"]] == ["roll_few_replicas"]
        assert "SINGLE" in one_by_one["problems"][0]["subject"]

        info = run_module("nats_cluster_info", five.sys_connection())
        members = next(set(item["members"]) for item in info["streams"] if item["name"] == "ROLL")
        wide = run_module("nats_roll_plan", five.sys_connection(), **options, max_parallel=0, meta_spare=0)
        assert wide["lower_bound"] == len(wide["batches"]) == 3
        assert all(len(members.intersection(batch)) == 1 for batch in wide["batches"])
        assert len(run_module("nats_roll_plan", five.sys_connection(), **options, max_parallel=0)["batches"]) == 5
    finally:
        for name in ("ROLL", "SINGLE"):
            five.app_request(f"$JS.API.STREAM.DELETE.{name}")


def test_what_cannot_be_planned_is_refused(healthy: NatsProcesses, run_module: Runner) -> None:
    unknown = run_module("nats_roll_plan", healthy.sys_connection(), server_names=["n1", "n3"])
    assert unknown["failure"]["code"] == "server_missing"
    assert "nobody has heard of n3; there are: n1, n10, n2" in unknown["msg"]
    wrong = run_module("nats_roll_plan", healthy.sys_connection(), server_names=["n1"], members_down=0)
    assert wrong["failure"]["code"] == "invalid_option"
