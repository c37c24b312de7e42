# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the playbook repair: its plan, its repairs, its journal, and its failure if problems remain."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import Client, ConnectionOptions
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.jetstream_api import JetStreamApi
from support.module_runs import form
from support.nats_processes import APP_PASSWORD, APP_USER, SYS_PASSWORD, SYS_USER, NatsProcesses, run_playbook

pytestmark = pytest.mark.playbook
NAMES = ["n1", "n2", "n3"]


@pytest.fixture(scope="module")
def version() -> str:
    """The version that can reset consumers, even to a position beyond the end of their stream."""
    return "2.15.1"


@pytest.fixture
def cluster(make_cluster: Callable[..., NatsProcesses]) -> NatsProcesses:
    return form(make_cluster(NAMES))


def run(cluster: NatsProcesses, root: Path, *arguments: str, fails: bool = False, **extra: Any) -> str:
    """Run the playbook on an inventory of these servers, and return its output as one line."""
    hosts = {
        name: {"nats_server_port": cluster.ports[name], "nats_server_config_dir": str(root / name)} for name in NAMES
    }
    for name in NAMES:
        (root / name).mkdir(exist_ok=True)
    variables = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "nats_server_become": False,
        "nats_server_address": "127.0.0.1",
        "nats_server_cluster_name": "C1",
        "nats_server_jetstream_store_dir": "/nowhere",
        "nats_server_system_user": SYS_USER,
        "nats_server_system_password": SYS_PASSWORD,
        "nats_cluster_account_users": cluster.account_users(),
        "nats_cluster_gate_span": 1,
        "nats_cluster_repair_observe": 1,
    }
    inventory = root / "inventory.json"
    inventory.write_text(json.dumps({"all": {"children": {"nats": {"hosts": hosts, "vars": variables}}}}))
    done = run_playbook("repair", "-i", str(inventory), *arguments, "-e", json.dumps(extra), ANSIBLE_PIPELINING="true")
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return " ".join(done.stdout.replace("\\n", " ").split())


def test_repair_by_the_playbook(cluster: NatsProcesses, tmp_path: Path) -> None:
    """Two consumers wait beyond the end of their stream; the position of one is known."""
    journal = tmp_path / "journal.jsonl"
    cluster.add_stream("ORDERS", 3)
    client = Client(ConnectionOptions(servers=tuple(cluster.urls), user=APP_USER, password=APP_PASSWORD))
    api = JetStreamApi(client)
    for name in ("known", "lost"):
        cluster.add_consumer("ORDERS", name)
        cluster.app_request(f"$JS.API.CONSUMER.RESET.ORDERS.{name}", {"seq": 999})
    asked: dict[str, Any] = {
        "nats_cluster_repair_floors": {"APP/ORDERS/known": 0},
        "nats_cluster_journal": str(journal),
    }
    plan = run(cluster, tmp_path, "--check", **asked)
    assert "consumer APP/ORDERS/known" in plan and "reset it at its ack floor 0" in plan
    assert not journal.exists()
    assert api.consumer("ORDERS", "known")["ack_floor"]["stream_seq"] == 998

    done = run(cluster, tmp_path, fails=True, **asked)
    assert "Not repaired: consumer APP/ORDERS/lost: its position is unknown" in done
    assert api.consumer("ORDERS", "known")["ack_floor"]["stream_seq"] == 0
    assert api.consumer("ORDERS", "lost")["ack_floor"]["stream_seq"] == 998
    (event,) = [json.loads(line) for line in journal.read_text().splitlines()]
    assert event["event"] == "repaired"
    assert [one["seen"] for one in event["data"]["done"]] == ["reset; it delivers from 1"]
    assert [path.read_text() for path in tmp_path.glob("n*/operation.lock") if path.read_text()] == []

    run(cluster, tmp_path, **asked, nats_cluster_repair_allow=["position_lost"])
    assert api.consumer("ORDERS", "lost")["ack_floor"]["stream_seq"] == 0
    assert "Nothing to repair." in run(cluster, tmp_path, **asked)
    client.close()
