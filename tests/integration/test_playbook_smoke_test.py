# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the smoke test at the end of a deployment: when it runs, its output, and that its failure stops the run.
test_adopt_linked.py shows that check mode never runs the smoke test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from support.documents import CHECKOUT
from support.module_runs import Runner
from support.nats_processes import free_ports
from support.role_cluster import APP_PASSWORD, APP_USER, SMOKE_TEST, RoleCluster

pytestmark = pytest.mark.playbook

NAMES = ["n1", "n2", "n3"]
RESULT = re.compile(
    r"6 pairs of 3 servers carry messages \(app of account APP\); a stream of 3 replica\(s\) was written, read and deleted"
)


def test_a_deployment_ends_with_messages(tmp_path: Path, run_module: Runner) -> None:
    cluster = RoleCluster(tmp_path, NAMES)
    # The accounts of docs/security.md, which deny the modules' inboxes to applications.
    (block,) = re.findall(
        r"```yaml\n(nats_server_accounts:.*?)```", (CHECKOUT / "docs/security.md").read_text(), re.DOTALL
    )
    cluster.variables.update(yaml.safe_load(block), app_password=APP_PASSWORD)
    app = {"servers": cluster.urls, "user": APP_USER, "password": APP_PASSWORD, "inbox_prefix": "_INBOX"}
    try:
        # The servers start, but the gate fails, so the smoke test remains due for the next deployment.
        stopped = cluster.playbook("deploy", fails=True, nats_cluster_gate_timeout=2, nats_cluster_gate_span=30).output
        assert SMOKE_TEST not in stopped and min(cluster.pids().values()) > 0
        first = cluster.playbook("deploy")
        assert set(re.findall(r"changed=(\d+)", first.output)) == {"0"}, first.output
        assert first.output.count(SMOKE_TEST) == 1
        assert RESULT.search(first.output), first.output
        assert APP_PASSWORD not in first.output
        assert run_module("nats_stream_info", app)["streams"] == []

        # A reload counts as a change; this reload contains an error. A run without changes skips the smoke test
        # (`deploy_changes_nothing` in other files), unless the test is requested.
        wrong = f"127.0.0.1:{free_ports(1)[0]}"
        cluster.hosts["n2"]["nats_server_client_advertise"] = wrong
        assert SMOKE_TEST not in cluster.playbook("deploy", "--limit", "n2", nats_cluster_smoke_test="never").output
        failed = cluster.playbook(
            "deploy",
            fails=True,
            nats_cluster_smoke_test="always",
            nats_cluster_account_users=[{"account": "APP", "user": "ops", "password": "rejected-pass"}],
        ).output
        cause = f"n2 advertises {wrong} to clients: connection refused: no process is listening there"
        assert cause in failed, failed
        assert "nats_cluster : Stop because clients cannot use the cluster" in failed
        printed = failed[failed.index("Stop because clients cannot use the cluster") : failed.index("PLAY RECAP")]
        assert len(printed.splitlines()) <= 25, printed
        assert "ops of account APP: every server rejects this login" in failed, failed
        assert APP_PASSWORD not in failed and "rejected-pass" not in failed

        # If no user's password is known, the test runs as the system user.
        del cluster.hosts["n2"]["nats_server_client_advertise"]
        cluster.variables["nats_server_accounts"] = {"APP": {"jetstream": True, "users": []}}
        run = cluster.playbook("deploy")
        assert "6 pairs of 3 servers carry messages (sys)" in run.output, run.output
        assert "operator-APP of account APP was not used: " in run.output
    finally:
        cluster.kill()
