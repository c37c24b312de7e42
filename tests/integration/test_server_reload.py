# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests nats_server_reload: it waits until the reload has taken effect, and reports a rejected reload without
secrets."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import Call, Client, ConnectionOptions
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.system_api import SystemApi
from support.module_runs import Runner, form
from support.nats_processes import SYS_PASSWORD, NatsProcesses, binary, free_ports


@pytest.fixture(scope="module")
def pair(version: str, tmp_path_factory: pytest.TempPathFactory, run_module: Runner) -> Iterator[NatsProcesses]:
    cluster = NatsProcesses(version, tmp_path_factory.mktemp("pair"), ["n1", "n10"])
    cluster.start()
    try:
        yield form(cluster, run_module)
    finally:
        cluster.kill()


def read_digest(version: str, config: Path) -> str | None:
    """Return the digest that the server prints for a file, or None before 2.11."""
    command = [binary(version), "-t", "-c", str(config)]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    words = (result.stdout + result.stderr).split()
    return next((word.strip("()") for word in words if "sha256:" in word), None)


def varz(run_module: Runner, cluster: NatsProcesses, name: str) -> dict[str, Any]:
    result = run_module("nats_server_info", cluster.sys_connection(), server_names=[name])
    return result["servers"][0]["varz"]


def test_reload_is_seen_and_unchanged_the_second_time(pair: NatsProcesses, version: str, run_module: Runner) -> None:
    pair.write_config("n1", "max_payload: 512KB")
    digest = read_digest(version, pair.config_file("n1"))
    assert (digest is None) == version.startswith("2.10.")
    asked = {"server_name": "n1", "config_digest": digest}
    before = varz(run_module, pair, "n1")

    predicted = run_module("nats_server_reload", pair.sys_connection(), check_mode=True, **asked)
    assert predicted["changed"]
    assert varz(run_module, pair, "n1")["config_load_time"] == before["config_load_time"]

    done = run_module("nats_server_reload", pair.sys_connection(), **asked)
    assert done["changed"]
    after = varz(run_module, pair, "n1")
    assert after["max_payload"] == 512 * 1024
    assert done["before"]["config_load_time"] == before["config_load_time"]
    assert done["after"]["config_load_time"] == after["config_load_time"] != before["config_load_time"]
    assert done["after"]["config_digest"] == predicted["after"]["config_digest"] == digest

    again = run_module("nats_server_reload", pair.sys_connection(), **asked)
    assert again["changed"] is (digest is None)


def test_refused_reload_hides_values(pair: NatsProcesses, run_module: Runner) -> None:
    (port,) = free_ports(1)
    gateway = f"name: C1, listen: '127.0.0.1:{port}', authorization {{ user: gw, password: gw-secret }}"
    pair.write_config("n10", f"gateway {{ {gateway} }}")
    loaded = varz(run_module, pair, "n10")["config_load_time"]
    result = run_module("nats_server_reload", pair.sys_connection(), server_name="n10")
    assert result["failure"]["code"] == "reload_rejected"
    assert result["failure"]["server"] == "n10"
    assert "Gateway" in result["msg"]
    assert "gw-secret" not in json.dumps(result)
    assert varz(run_module, pair, "n10")["config_load_time"] == loaded


def test_changed_key_is_not_disclosed(pair: NatsProcesses, run_module: Runner) -> None:
    config = pair.config_file("n10")
    pair.write_config("n10")
    config.write_text(config.read_text().replace("max_file_store", 'key: "jetstream-secret", max_file_store'))
    options = ConnectionOptions(servers=tuple(pair.urls), user="sys", password=SYS_PASSWORD)
    with Client(options) as client:
        server_id = SystemApi(client).discover().named("n10").id
        reply = client.request(Call(f"$SYS.REQ.SERVER.{server_id}.RELOAD"))
    assert b"jetstream-secret" in reply.body, "the server no longer returns the key: remove the masking"
    result = run_module("nats_server_reload", pair.sys_connection(), server_name="n10")
    assert result["failure"]["code"] == "reload_rejected"
    assert "jetstream-secret" not in json.dumps(result)


def test_broken_file_is_reported(pair: NatsProcesses, run_module: Runner) -> None:
    pair.write_config("n10", "max_payload: much")
    result = run_module("nats_server_reload", pair.sys_connection(), server_name="n10")
    assert result["failure"]["code"] == "reload_rejected"
    assert str(pair.config_file("n10")) in result["msg"]


def test_unexpected_configuration_file(pair: NatsProcesses, version: str, run_module: Runner) -> None:
    if version.startswith("2.10."):
        pytest.skip("servers before 2.11 report no digest")
    pair.write_config("n1")
    result = run_module(
        "nats_server_reload", pair.sys_connection(), server_name="n1", config_digest="sha256:00", wait_timeout=1
    )
    assert result["failure"]["code"] == "reload_not_seen"
    assert "sha256:00" in result["msg"]


def test_unknown_server(pair: NatsProcesses, run_module: Runner) -> None:
    result = run_module("nats_server_reload", {**pair.sys_connection(), "timeout": 1}, server_name="n")
    assert result["failure"]["code"] == "server_missing"
    assert "n1, n10" in result["msg"]


def test_server_without_the_api(tmp_path: Path, run_module: Runner) -> None:
    cluster = NatsProcesses("2.9.10", tmp_path, ["n1", "n2"])
    cluster.start()
    try:
        options = {"expected_servers": ["n1", "n2"], "samples": 1, "span": 0, "interval": 0.3}
        health = run_module("nats_cluster_health", cluster.sys_connection(), **options)
        assert health["healthy"], health["msg"]
        cluster.add_stream("ORDERS", 1)
        cluster.add_consumer("ORDERS", "worker")
        info = run_module("nats_cluster_info", cluster.sys_connection(), expected_servers=["n1", "n2"])
        assert [stream["name"] for stream in info["streams"]] == ["ORDERS"]
        assert info["problems"] == []
        result = run_module("nats_server_reload", cluster.sys_connection(), server_name="n1")
        assert result["failure"]["code"] == "unsupported"
        assert "2.10" in result["msg"]
    finally:
        cluster.kill()
