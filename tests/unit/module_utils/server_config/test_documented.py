# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every option in the documents that docs/from-the-nats-docs.md follows is supported by name, accepts the documented
values, and is refused only if the documents refuse it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.command_line import loaded_config
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.reading import read_config
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.syntax import examine, leaves, show
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.validation import config_problems

# The options of the block `cluster`, each with a value from its document, and with a second form if it has two.
OPTIONS: list[dict[str, Any]] = [
    {"host": "0.0.0.0"},
    {"port": 6222},
    {"name": "C1"},
    {"listen": "0.0.0.0:6222"},
    {"listen": 6222},
    {"tls": {"cert_file": "/c", "key_file": "/k", "ca_file": "/a", "verify": True, "timeout": 2}},
    {
        "tls": {"cert_file": "/c", "key_file": "/k", "ca_file": "/a", "verify_and_map": True},
        "authorization": {"user": "cn"},
    },
    {"advertise": "nat.example.com:6222"},
    {"cluster_advertise": "nat.example.com:6222"},
    {"no_advertise": True},
    {"routes": ["nats-route://host_b:6222", "nats://user:secret@host_c:6222"]},
    {"connect_retries": 10},
    {"authorization": {"user": "route", "password": "secret", "timeout": 0.5}},
    {"authorization": {"username": "route", "password": "secret"}},
    {"pool_size": 5},
    {"pool_size": -1},
    {"accounts": ["APP", "$SYS"]},
    *({"compression": mode} for mode in ("off", "accept", "s2_fast", "s2_better", "s2_best", "s2_auto")),
    {"compression": {"mode": "s2_auto", "rtt_thresholds": ["10ms", "50ms", "100ms"]}},
]

JETSTREAM = """\
server_name=n1-c1
listen=4222
jetstream {
   store_dir=/nats/storage
}
cluster {
  name: C1
  listen: localhost:6222
  routes: [
    nats-route://host_b:6222
    nats-route://host_c:6222
  ]
}
"""
SUPERCLUSTER = """\
port: 4222
http_port: 8222
server_name: n1
include sys.conf
jetstream: {
  store_dir: /nats/storage/n1
}
cluster: {
  name: east,
  port: 6222,
  routes: [
    "nats-route://0.0.0.0:6222"
  ],
}
gateway: {
  name: "east",
  port: 7222,
  gateways: [
    {name: "east", urls: ["nats://0.0.0.0:7222"]},
    {name: "central", urls: ["nats://0.0.0.0:7223"]},
    {name: "west", urls: ["nats://0.0.0.0:7224"]},
  ]
}
"""
SYSTEM = "accounts: {\n  $SYS: {\n    users: [{user: sys, password: pass}]\n  }\n}\n"


def stored_config(cluster: dict[str, Any]) -> dict[str, Any]:
    block = {"name": "C1", "routes": ["nats://h:6222"], **cluster}
    return {"server_name": "n1", "cluster": block, "accounts": {"APP": {}}, "jetstream": {"store_dir": "/srv/nats"}}


@pytest.mark.parametrize("option", OPTIONS, ids=str)
def test_an_option_of_the_cluster_block(option: dict[str, Any]) -> None:
    config, notes = examine(stored_config(option))
    assert [note for note in notes if note.is_error] == []
    assert [show(leaf.path) for leaf in leaves(config) if leaf.key is None] == []
    refused = config_problems(stored_config(option), {"version": "2.15.1"})
    assert [one for one in refused if one["severity"] == "error" and one["option"].startswith("cluster")] == []


@pytest.mark.parametrize("option", [{"users": [{"user": "a", "password": "b"}]}, {"token": "t"}], ids=str)
def test_configurations_that_prevent_a_start_are_refused(option: dict[str, Any]) -> None:
    problems = config_problems(stored_config({"authorization": option}), {"version": "2.15.1"})
    assert [one for one in problems if one["severity"] == "error" and "authorization" in one["option"]]


def test_accounts_without_a_pool_are_refused() -> None:
    problems = config_problems(stored_config({"pool_size": -1, "accounts": ["APP"]}), {"version": "2.15.1"})
    assert [one for one in problems if one["severity"] == "error" and "pool" in one["message"] + one["option"]]


@pytest.mark.parametrize("text", [JETSTREAM, SUPERCLUSTER])
def test_the_documents_examples_are_understood(text: str) -> None:
    files = {"/etc/c.conf": text, "/etc/sys.conf": SYSTEM}
    reading = read_config("/etc/c.conf", files.__getitem__, {})
    loaded = loaded_config(reading.config, [])
    assert [note for note in loaded.notes if note.is_error] == []
    assert [show(leaf.path) for leaf in leaves(loaded.config) if leaf.key is None] == []
    assert [one for one in config_problems(loaded.config, {"version": "2.10.1"}) if one["severity"] == "error"] == []
