# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the inventory plugin nats_cluster with real servers, as ansible-inventory uses the plugin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import pytest
import yaml
from ansible_collections.natsops.jetstream.plugins.inventory.nats_cluster import is_reserved
from support.module_runs import Runner, form
from support.nats_processes import SYS_PASSWORD, NatsProcesses, collections_path


def ansible_inventory(path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("ansible-inventory")), "-i", str(path), "--list"]
    variables = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": collections_path(),
        "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true",
        "ANSIBLE_NOCOLOR": "true",
        **environment,
    }
    return subprocess.run(command, check=False, capture_output=True, text=True, env=variables, timeout=60)


def plain(value: Any) -> Any:
    """Remove the marks that ansible-inventory adds to text that must not be a template."""
    if isinstance(value, dict):
        return (
            value["__ansible_unsafe"]
            if "__ansible_unsafe" in value
            else {key: plain(item) for key, item in value.items()}
        )
    return [plain(item) for item in value] if isinstance(value, list) else value


def hosts_and_groups(result: subprocess.CompletedProcess[str]) -> tuple[dict[str, Any], dict[str, list[str]]]:
    assert result.returncode == 0, result.stderr
    document = plain(json.loads(result.stdout))
    hosts = document.pop("_meta")["hostvars"]
    for variables in hosts.values():
        variables.pop("ansible_local", None)  # set by Ansible itself if facts are not injected
    return hosts, {name: group.get("hosts", []) for name, group in document.items()}


def write(path: Path, **options: Any) -> Path:
    path.write_text(yaml.safe_dump({"plugin": "natsops.jetstream.nats_cluster", **options}))
    return path


def test_groups_and_variables_of_a_live_cluster_and_its_cache(
    make_cluster: Callable[..., NatsProcesses], run_module: Runner, tmp_path: Path
) -> None:
    tags = 'server_tags: ["az:a", "{{ 1 + 1 }}"]'
    cluster = form(make_cluster(["n1", "n2", "n3", "core"], jetstream=["n1", "n2", "n3"], extra=tags), run_module)
    made = cluster.add_stream("ORDERS", 3)["cluster"]
    form(cluster, run_module)
    source = write(
        tmp_path / "c1.nats_cluster.yml",
        servers=cluster.urls,
        user="sys",
        # The value is a template, like a value from a vault. The test of a broken cluster uses the environment instead.
        password="{{ lookup('ansible.builtin.env', 'THE_PASSWORD') }}",
        expected_servers=["n9"],
        host_map={"n2": "n2.example.com"},
        timeout=2,
        cache=True,
        cache_plugin="ansible.builtin.jsonfile",
        cache_connection=str(tmp_path / "cache"),
        compose={"shown": "nats_name ~ '/' ~ nats_cluster | default('none')"},
        keyed_groups=[{"key": "nats_tags", "prefix": "own"}],
    )
    first = ansible_inventory(source, THE_PASSWORD=SYS_PASSWORD)
    hosts, groups = hosts_and_groups(first)
    assert sorted(groups["nats_servers"]) == ["core", "n1", "n2", "n3", "n9"]
    assert groups["nats_missing"] == ["n9"]
    assert groups["nats_unhealthy"] == ["n9"]
    assert groups["nats_core"] == ["core"]
    assert sorted(groups["nats_jetstream"]) == ["n1", "n2", "n3"]
    (leader,) = groups["nats_meta_leader"]
    assert leader in ("n1", "n2", "n3")
    version = f"nats_version_{cluster.version.replace('.', '_')}"
    for name in ("nats_cluster_C1", version, "nats_tag_az_a", "own_az_a"):
        assert sorted(groups[name]) == ["core", "n1", "n2", "n3"], name
    assert hosts["n1"]["nats_tags"] == ["az:a", "{{ 1 + 1 }}"]
    assert (hosts["n1"]["ansible_host"], hosts["n2"]["ansible_host"]) == ("127.0.0.1", "n2.example.com")
    assert len(hosts["n1"]["nats_id"]) == 56
    assert hosts["n1"]["shown"] == "n1/C1"
    assert hosts["n9"] == {"nats_name": "n9", "nats_answers": False, "nats_healthy": False, "shown": "n9/none"}
    assert made["leader"] in hosts

    # No secret appears anywhere, and the second result comes from the cache, without servers.
    (cached,) = (tmp_path / "cache").iterdir()
    for text in (first.stdout, first.stderr, cached.read_text()):
        assert SYS_PASSWORD not in text
    cluster.kill()
    assert ansible_inventory(source, THE_PASSWORD=SYS_PASSWORD).stdout == first.stdout

    # A name that belongs to another host, or to a group, is refused, even if it comes from the cache.
    content = cached.read_text()
    assert content.count("n9") == 1
    for name, reason in (
        ("localhost", "a server is named 'localhost', which Ansible interprets differently"),
        ("nats_missing", "a server is named 'nats_missing', which Ansible interprets differently"),
        ("n1", "2 servers are named 'n1' (127.0.0.1, no address)"),
    ):
        cached.write_text(content.replace("n9", name))
        refused = ansible_inventory(source, THE_PASSWORD=SYS_PASSWORD)
        assert refused.returncode != 0
        assert reason in " ".join(refused.stderr.split())


def test_a_server_on_every_address_is_found_by_its_routes_and_a_dead_one_is_unhealthy(
    make_cluster: Callable[..., NatsProcesses], run_module: Runner, tmp_path: Path
) -> None:
    cluster = form(make_cluster(["n1", "n2", "n3"]), run_module)
    cluster.add_stream("ORDERS", 3)
    form(cluster, run_module)
    cluster.stop("n1")
    cluster.write_config("n1", f'listen: "0.0.0.0:{cluster.ports["n1"]}"')
    cluster.start("n1")
    form(cluster, run_module)
    cluster.kill("n3")
    source = write(tmp_path / "nats_cluster.yaml", user="sys")
    environment = {"NATS_URL": ",".join(cluster.urls), "NATS_PASSWORD": SYS_PASSWORD}
    hosts, groups = hosts_and_groups(ansible_inventory(source, **environment))
    assert (hosts["n1"]["nats_host"], hosts["n1"]["ansible_host"]) == ("0.0.0.0", "127.0.0.1")
    assert "n3" in groups["nats_unhealthy"]
    assert groups["nats_missing"] == ["n3"]

    cluster.kill()
    dead = ansible_inventory(source, **environment)
    assert dead.returncode != 0
    assert "the cluster cannot be queried: cannot connect to any server" in " ".join(dead.stderr.split())
    assert SYS_PASSWORD not in dead.stderr


def test_the_wrong_account_and_the_wrong_file_are_refused(healthy: NatsProcesses, tmp_path: Path) -> None:
    application = write(tmp_path / "nats_cluster.yml", **healthy.app_connection())
    refused = ansible_inventory(application)
    assert refused.returncode != 0
    assert "Use the credentials of a user of the system account" in " ".join(refused.stderr.split())
    other_name = write(tmp_path / "other.yml", **healthy.sys_connection())
    refused = ansible_inventory(other_name, ANSIBLE_INVENTORY_ENABLED="natsops.jetstream.nats_cluster")
    assert refused.returncode != 0
    assert "Completely failed to parse inventory source" in refused.stderr


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST", "127.0.0.1", "::1", "-oProxyCommand", "all", "ungrouped"])
def test_names_that_mean_something_to_ansible_are_reserved(name: str) -> None:
    """A server with the name of the controller would receive the tasks that are delegated to the controller."""
    assert is_reserved(name)
    assert not is_reserved(f"n1-{name}")
