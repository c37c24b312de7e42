# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the path from role variables to files with a real ansible-playbook: specification, composition,
nats_hash_passwords and templates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.documents import role_specs
from support.role_rendering import ROLE, render, rendered


def test_the_documented_cluster(tmp_path: Path) -> None:
    """The cluster C1 from the NATS documentation has three servers, a store directory, and a system user with a bcrypt
    password."""
    group = {
        "nats_server_cluster_name": "C1",
        "nats_server_jetstream_store_dir": "/nats/storage",
        "nats_server_jetstream_max_file_store": "{{ 5 * 2 }}GB",
        "nats_server_system_password": 'a very long s3cr3t! $password" # {x}',
    }
    hosts = {f"n{n}-c1": {"ansible_host": f"host_{letter}"} for n, letter in ((1, "a"), (2, "b"), (3, "c"))}
    text = rendered(tmp_path, group, hosts)["n2-c1"]
    assert (
        text
        == """\
# Ansible managed
# The configuration of the server n2-c1.
# Passwords, keys and URLs with credentials are variables, defined in this file:
include "secrets.conf"

# --- This server
server_name: "n2-c1"
server_tags: ["node:n2-c1"]

# --- Clients
port: 4222

# --- Monitoring
http: "127.0.0.1:8222"
pid_file: "/run/nats-server/nats-server.pid"

# --- Lame duck mode, by which a server is stopped
lame_duck_duration: "60s"
lame_duck_grace_period: "10s"

# --- JetStream
jetstream: {
  store_dir: "/nats/storage"
  max_file_store: 10GB
}

# --- Cluster
cluster: {
  name: "C1"
  port: 6222
  routes: ["nats-route://host_a:6222", "nats-route://host_b:6222", "nats-route://host_c:6222"]
}

# --- Accounts and users
system_account: "$SYS"
accounts: {
  $SYS: {
    users: [
      { user: "sys", password: $SECRET_accounts_SYS_users_sys_password_2d1ac9e9 }
    ]
  }
}
"""
    )
    secrets = (tmp_path / "n2-c1.secrets.conf").read_text()
    assert 'SECRET_accounts_SYS_users_sys_password_2d1ac9e9: "$2b$04$' in secrets
    assert "s3cr3t" not in secrets
    assert json.loads((tmp_path / "n2-c1.problems").read_text()) == []


def test_extra_files_cannot_replace_files_of_the_role(tmp_path: Path) -> None:
    own = ["nats-server.conf", "secrets.conf", "tls", "running.json", "firewall.json", "tuning.json", "environment"]
    own += ["maintenance.json", "maintenance.hold", "smoke_test.due", "operation.lock"]
    group = {"nats_server_extra_files": dict.fromkeys((*own, "hub.creds", "nats-server.pid"), "")}
    done = render(tmp_path, group, {"n1": {"ansible_host": "127.0.0.1"}})
    assert done.returncode == 0, done.stdout
    found = [one["message"] for one in json.loads((tmp_path / "n1.problems").read_text())]
    assert [text.partition(" is a file that the role")[0] for text in found if "is a file that" in text] == sorted(own)


def test_the_documented_supercluster(tmp_path: Path) -> None:
    """The supercluster from NATS by Example has three clusters of one server, which also have routes and gateways to
    themselves."""
    group = {
        "nats_server_supercluster_groups": ["east", "central", "west"],
        "nats_server_gateway_authorization": {"user": "gateway", "password": "p@ss"},
        "nats_server_tls_source": "files",
        "nats_server_tls_for_clients": False,
        "nats_server_gateway": {"reject_unknown_cluster": True},
    }
    clusters = {"east": "n1", "central": "n2", "west": "n3"}
    hosts: dict[str, dict[str, Any]] = {
        host: {
            "ansible_host": "127.0.0.1",
            "nats_server_port": 4221 + number,
            "nats_server_cluster_port": 6221 + number,
            "nats_server_gateway_port": 7221 + number,
        }
        for number, host in enumerate(clusters.values(), start=1)
    }
    texts = rendered(tmp_path, group, hosts, **{cluster: [host] for cluster, host in clusters.items()})
    for number, (cluster, host) in enumerate(clusters.items(), start=1):
        text = texts[host]
        assert f'cluster: {{\n  name: "{cluster}"\n  port: {6221 + number}\n' in text
        gateway = text[text.index("gateway: {") :]
        assert f'gateway: {{\n  name: "{cluster}"\n  port: {7221 + number}\n' in gateway
        assert "reject_unknown_cluster: true" in gateway
        assert "verify: true" in gateway
        assert gateway.count("urls: ") == 3
        secrets = (tmp_path / f"{host}.secrets.conf").read_text()
        for other in range(7222, 7225):
            assert f"nats://gateway:p%40ss@127.0.0.1:{other}" in secrets
        assert "p@ss" not in text
    near = ["nats://127.0.0.1:4223"]
    assert json.loads((tmp_path / "n2.servers").read_text()) == [
        near,
        [*near, "nats://127.0.0.1:4222", "nats://127.0.0.1:4224"],
    ]


def test_a_leafnode_and_its_hub(tmp_path: Path) -> None:
    group = {"nats_server_tls_source": "files", "nats_server_tls_for_clients": False}
    users = {"users": [{"user": "branch", "password": "p@ss", "account": "$G"}]}
    hosts: dict[str, dict[str, Any]] = {
        "h1": {"nats_server_cluster_group": "hub", "nats_server_leafnodes": {"port": 7400, "authorization": users}},
        "l1": {
            "nats_server_cluster_group": "branch",
            "nats_server_leafnode_hub_group": "hub",
            "nats_server_leafnode_remotes": [{"account": "$G", "user": "branch", "password": "p@ss"}],
        },
        "l2": {
            "nats_server_cluster_group": "other",
            "nats_server_leafnode_hub_group": "hub",
            "nats_server_leafnode_remotes": [{"account": "$SYS", "user": "branch", "password": "p@ss"}],
        },
    }
    texts = rendered(tmp_path, group, hosts, hub=["h1"], branch=["l1"], other=["l2"])
    for host in hosts:
        block = texts[host][texts[host].index("leafnodes: {") :]
        assert "verify: true" in block
        assert "p@ss" not in texts[host]
    assert "port: 7400" in texts["h1"]
    assert {host for host, text in texts.items() if 'extension_hint: "no_extend"' in text} == {"l2"}
    assert "nats-leaf://branch:p%40ss@l1" not in (tmp_path / "l1.secrets.conf").read_text()
    assert "nats-leaf://branch:p%40ss@h1:7400" in (tmp_path / "l1.secrets.conf").read_text()


def test_every_option_of_the_cluster_page_and_numbers_that_jinja_made_text(tmp_path: Path) -> None:
    group = {
        "nats_server_cluster_members": ["a", "b"],
        "nats_server_zone": "{{ inventory_hostname }}",
        "nats_server_tags": ["ssd"],
        "nats_server_port": "{{ 4000 + 333 }}",
        "nats_server_cluster_listen": "0.0.0.0:7333",
        "nats_server_cluster_advertise": "{{ inventory_hostname }}.example.com:7333",
        "nats_server_cluster_authorization": {"user": "route", "password": "p@ss/word", "timeout": "{{ 1 / 2 }}"},
        "nats_server_cluster_pool_size": "{{ 5 }}",
        "nats_server_cluster_accounts": ["APP"],
        "nats_server_tls_source": "ca",
        "nats_server_tls_for_monitoring": True,
        "nats_server_max_payload": "2MB",
        "nats_server_jetstream_encryption_key": "k",
        "nats_server_jetstream_limits": {"max_ha_assets": "{{ 10 * 2 }}"},
        "nats_server_accounts": {
            "APP": {"jetstream": {"max_streams": "{{ 7 }}"}, "users": [{"user": "app", "password": "12345"}]},
            "$SYS": {"exports": [{"service": "x"}]},
        },
        "nats_server_system_password": "s",
        "nats_server_config": {
            "lame_duck_duration": None,
            "debug": False,
            "cluster": {
                "ping_max": "{{ 3 }}",
                "no_advertise": "{{ 1 == 1 }}",
                "connect_retries": "{{ 1 + 2 }}",
                "compression": {"mode": "s2_auto", "rtt_thresholds": ["10ms", "50ms", "100ms"]},
            },
            "max_subs": 9,
            "new_key": 1,
        },
        "nats_server_config_host": {"debug": True},
    }
    hosts: dict[str, dict[str, Any]] = {
        "a": {"ansible_host": "10.0.0.1"},
        "b": {"ansible_host": "fd00::2", "nats_server_jetstream": False},
    }
    texts = rendered(tmp_path, group, hosts)
    for expected in (
        'server_tags: ["ssd", "az:a", "node:a"]',
        "port: 4333",
        'https: "127.0.0.1:8222"',
        'cert_file: "/etc/nats-server/tls/server.crt"',
        "debug: true",
        "max_payload: 2MB",
        "max_subscriptions: 9",
        'unique_tag: "az:"',
        "encryption_key: $SECRET_jetstream_encryption_key",
        "max_ha_assets: 20",
        'listen: "0.0.0.0:7333"',
        'advertise: "a.example.com:7333"',
        "no_advertise: true",
        "connect_retries: 3",
        "timeout: 0.5",
        "pool_size: 5",
        'accounts: ["APP"]',
        'rtt_thresholds: ["10ms", "50ms", "100ms"]',
        "ping_max: 3",
        "max_streams: 7",
        'service: "x"',
        "# --- Other options\nnew_key: 1",
    ):
        assert expected in texts["a"], texts["a"]
    assert "verify: true" in texts["a"].split("cluster: {")[1]
    assert "verify: false" in texts["a"].split("cluster: {")[0]
    for absent in ("lame_duck_duration", "http:", "6222", "port: 7333", "p@ss", "12345"):
        assert absent not in texts["a"]
    assert "jetstream: {" not in texts["b"].split("# --- Accounts")[0]
    secrets = (tmp_path / "b.secrets.conf").read_text()
    assert 'SECRET_cluster_routes_0: "nats-route://route:p%40ss%2Fword@10.0.0.1:7333"' in secrets
    assert 'SECRET_cluster_routes_1: "nats-route://route:p%40ss%2Fword@[fd00::2]:7333"' in secrets


def test_a_single_server_and_operator_mode(tmp_path: Path) -> None:
    group = {
        "nats_server_operator": "/etc/nats/op.jwt",
        "nats_server_config": {"resolver": "MEMORY"},
        "nats_server_system_password": "s",
    }
    text = rendered(tmp_path, group, {"only": {}})["only"]
    assert 'operator: "/etc/nats/op.jwt"' in text
    assert "cluster: {" not in text
    assert "accounts: {" not in text


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"nats_server_port": "many"}, "nats_server_port"),
        ({"nats_server_tls": {"certfile": "/x"}}, "certfile"),
        ({"nats_server_cluster_route_style": "mesh"}, "all, seeds"),
        ({"nats_server_cluster_members": ["only", "absent"]}, "absent, which is not in the inventory"),
    ],
)
def test_wrong_variables_are_refused(variables: dict[str, Any], message: str, tmp_path: Path) -> None:
    done = render(tmp_path, variables, {"only": {}})
    assert done.returncode == 2
    assert message in done.stdout


def test_the_sections_of_the_template_have_every_key() -> None:
    from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.schema import SCHEMA

    sections = yaml.safe_load((ROLE / "vars/main/config.yml").read_text())["nats_server__sections"]
    named = [key for section in sections for key in section["keys"]]
    assert len(named) == len(set(named))
    assert set(named) <= set(SCHEMA.children)


def test_every_entry_point_takes_every_variable() -> None:
    specs = role_specs(ROLE)
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
    for entry, spec in specs.items():
        # Values that only a caller can provide do not have a default.
        given = set(spec["options"]) - set(defaults)
        assert set(spec["options"]) - given == set(defaults), entry
        # All roles share nats_download_environment, so none of them may give it a default.
        callers = {"nats_server_load_config", "nats_server_mark", "nats_server_tls_step", "nats_download_environment"}
        assert given <= callers, entry
        for name, option in spec["options"].items():
            assert option.get("description") and option.get("type"), name
            # A null default would not be one of the choices.
            assert not option.get("choices") or defaults[name] is not None, name
