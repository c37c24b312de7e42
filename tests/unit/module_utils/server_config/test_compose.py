# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the composition of a configuration from the variables of the role nats_server."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import INBOX_PREFIX
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config import adoption
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.compose import (
    OPTIONS,
    HostInputs,
    compose,
    merged,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.metrics_user import METRICS_ACCOUNT
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.role_options import ROLE_OPTIONS
from ansible_collections.natsops.jetstream.plugins.module_utils.subjects import subject_matches
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.capture import ENDPOINTS as SNAPSHOT_ENDPOINTS
from support.documents import CHECKOUT, role_options

ROLE = CHECKOUT / "roles" / "nats_server"
SERVERS = [
    {"host": f"n{number}", "server_name": f"n{number}", "route_address": f"10.0.0.{number}", "cluster_port": 6222}
    for number in (1, 2, 3)
]
NO_INPUTS = HostInputs()
FILES = {"cert_file": "/tls/server.crt", "key_file": "/tls/server.key", "ca_file": "/tls/ca.crt"}
TLS: dict[str, Any] = {"tls_source": "ca", **{f"tls_{name}": path for name, path in FILES.items()}}


def made(topology: dict[str, Any] | None = None, host: HostInputs = NO_INPUTS, **options: Any) -> dict[str, Any]:
    """Return the keys of the configuration that are present."""
    composed = compose({"name": "n1", **options}, topology or {}, host)
    return {name: value for name, value in composed.items() if value is not None}


def test_the_role_hands_over_every_option() -> None:
    assert ROLE_OPTIONS["config"].keys() >= set(OPTIONS)
    assert {f"nats_server_{name}" for name in OPTIONS} <= role_options().keys()


def test_adopted_servers_have_the_defaults_of_the_role() -> None:
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
    assert {name: defaults[f"nats_server_{name}"] for name in adoption._DEFAULTS} == adoption._DEFAULTS


def test_an_empty_value_is_absent() -> None:
    assert made(port=4222, http="", listen=None, tags=[], log_file="") == {"server_name": "n1", "port": 4222}


@pytest.mark.parametrize(
    ("options", "host", "tags"),
    [
        ({}, HostInputs(), None),
        ({"tags": ["ssd"], "zone": "a", "zone_tag_prefix": "az:"}, HostInputs(), ["ssd", "az:a"]),
        ({"take_over": "yes"}, HostInputs(), ["node:n1"]),
        ({"take_over": True, "tags": ["node:n1"]}, HostInputs(), ["node:n1"]),
        ({"arbiter": True}, HostInputs(), ["!jetstream"]),
        ({}, HostInputs(leaving=True), ["!jetstream"]),
    ],
)
def test_tags(options: dict[str, Any], host: HostInputs, tags: list[str] | None) -> None:
    assert made(host=host, **options).get("server_tags") == tags


@pytest.mark.parametrize(("port", "left"), [(4222, None), ("4222", None), (4333, 4333)])
def test_a_default_port_does_not_contradict_a_listen_address(port: Any, left: Any) -> None:
    assert made(listen="10.0.0.1:4300", port=port).get("port") == left


def test_a_server_that_is_taken_over_has_the_pid_file_of_the_roles_unit() -> None:
    host = HostInputs(pid_file="/run/nats-server/nats-server.pid")
    assert made(host=host, take_over=True, pid_file="/run/foreign.pid")["pid_file"] == host.pid_file
    assert made(host=host, take_over=False, pid_file="/run/foreign.pid")["pid_file"] == "/run/foreign.pid"


@pytest.mark.parametrize(
    ("host", "flags"),
    [
        (HostInputs(loaded_flags={"js_raft_delete_range": False, "other": False}), {"js_raft_delete_range": False}),
        (HostInputs(loaded_flags={"js_raft_delete_range": False}, changes_version=True), None),
        (HostInputs(loaded_flags={"js_raft_delete_range": False}, common_flags=["js_raft_delete_range"]), None),
        (HostInputs(loaded_flags={"js_raft_delete_range": True}), None),
        (HostInputs(loaded_flags={"js_raft_delete_range": None}), None),
        (HostInputs(), None),
    ],
)
def test_flag_that_is_off_stays_off_until_the_version_changes_or_the_cluster_has_it(
    host: HostInputs, flags: dict[str, bool] | None
) -> None:
    assert made(host=host).get("feature_flags") == flags


def test_tls_serves_the_chosen_listeners() -> None:
    everywhere: dict[str, Any] = {**TLS, "tls_for_clients": True, "tls_for_cluster": True, "tls_for_monitoring": True}
    found = made({"servers": SERVERS}, **everywhere, clustered=True, http="127.0.0.1:8222", leafnodes={"port": 7422})
    assert found["tls"] == {**FILES, "verify": False}
    assert found["cluster"]["tls"] == found["leafnodes"]["tls"] == {**FILES, "verify": True}
    assert "http" not in found and found["https"] == "127.0.0.1:8222"
    plain = made({"servers": SERVERS}, **{**everywhere, "tls_source": "none"}, clustered=True, http="127.0.0.1:8222")
    assert "tls" not in plain and plain["cluster"]["tls"] is None and plain["http"] == "127.0.0.1:8222"
    assert made(**everywhere, tls_verify_clients="true", tls={"timeout": 5})["tls"] == {
        **FILES, "verify": True, "timeout": 5,
    }  # fmt: skip


def test_routes_come_from_the_inventory_unless_they_are_given() -> None:
    def routed(**options: Any) -> list[str]:
        return list(made({"servers": SERVERS}, clustered=True, **options)["cluster"]["routes"])

    assert routed() == [f"nats-route://10.0.0.{number}:6222" for number in (1, 2, 3)]
    assert routed(cluster_route_style="seeds", cluster_seeds=["n2"]) == ["nats-route://10.0.0.2:6222"]
    assert routed(cluster_authorization={"user": "u", "password": "p/"})[0] == "nats-route://u:p%2F@10.0.0.1:6222"
    assert routed(cluster_routes=[]) == []
    with pytest.raises(ValueError, match="nats_server_cluster_route_style is seeds, but"):
        routed(cluster_route_style="seeds")
    assert "cluster" not in made({"servers": SERVERS}, clustered=False)


def test_an_arbiter_has_a_small_store_unless_one_is_given() -> None:
    small = made(jetstream=True, arbiter=True, jetstream_max_file_store="2GB")["jetstream"]
    assert (small["max_memory_store"], small["max_file_store"]) == ("256MB", "2GB")
    assert made(jetstream=True)["jetstream"]["max_memory_store"] is None
    assert "jetstream" not in made(jetstream="no")


def test_a_gateway_lists_the_clusters_of_the_inventory() -> None:
    gateway = {"gateway_address": "10.0.0.1", "gateway_port": 7222, "cluster": "C1"}
    topology = {"clusters": [{"group": "c1", "servers": [{**SERVERS[0], **gateway}]}]}
    found = made(topology, cluster_name="C1", supercluster_groups=["c1"], gateway_port=7222, gateway={"advertise": "a"})
    assert found["gateway"]["gateways"] == [{"name": "C1", "urls": ["nats://10.0.0.1:7222"]}]
    assert (found["gateway"]["name"], found["gateway"]["advertise"]) == ("C1", "a")
    assert made(cluster_name="C1", gateway={"port": 7222})["gateway"] == {"name": "C1", "port": 7222}
    assert "gateway" not in made(cluster_name="C1", gateway_port=7222)


def test_a_system_account_at_the_hub_does_not_extend_the_meta_group() -> None:
    topology = {"hub": [{"leafnode_address": "h1", "leafnode_port": 7422}]}
    options: dict[str, Any] = {"jetstream": True, "system_account": "SYS", "leafnode_hub_group": "hub"}
    found = made(topology, **options, leafnode_remotes=[{"account": "SYS"}])
    assert found["leafnodes"]["remotes"] == [{"account": "SYS", "urls": ["nats-leaf://h1:7422"]}]
    assert found["jetstream"]["extension_hint"] == "no_extend"
    assert made(topology, **options, leafnode_remotes=[{"account": "APP"}])["jetstream"]["extension_hint"] is None
    assert "leafnodes" not in made(topology, **{**options, "leafnode_hub_group": ""}, leafnode_remotes=[{}])


def test_the_system_account_and_accounts_with_jetstream_get_their_operators() -> None:
    options: dict[str, Any] = {
        "accounts": {"APP": {"jetstream": True, "users": []}},
        "system_account": "SYS", "system_user": "sys", "system_password": "s",
        "account_operator_password": "o", "account_operator_prefix": "operator-",
    }  # fmt: skip

    def users(**more: Any) -> dict[str, list[str]]:
        found = made(**{**options, **more}).get("accounts", {})
        return {name: [user["user"] for user in account.get("users", ())] for name, account in found.items()}

    assert users() == {"SYS": ["sys"], "APP": ["operator-APP"]}
    replaced = {"system_previous_user": "old", "system_previous_password": "p",
                "account_operator_previous_password": "q", "account_operator_previous_prefix": "admin-"}  # fmt: skip
    assert users(**replaced) == {"SYS": ["sys", "old"], "APP": ["operator-APP", "admin-APP"]}
    configured = {"SYS": {"users": [{"user": "mine"}]}}
    # Without its own user, the modules could not log in after the reload.
    assert users(accounts=configured) == {"SYS": ["mine", "sys"]}
    assert users(accounts={"SYS": {"users": [{"user": "sys", "nkey": "U"}]}}) == {"SYS": ["sys"]}
    assert users(accounts=configured, system_password=None) == {"SYS": ["mine"]}
    assert users(operator="/etc/operator.jwt") == {"APP": []}
    assert users(system_password=None, accounts={}) == {}
    metrics = {"metrics_user": "metrics", "metrics_password": "m"}
    assert users(**metrics)["SYS"] == ["sys"]
    assert users(**metrics, system_password=None, accounts=configured) == {
        "SYS": ["mine"],
        METRICS_ACCOUNT: ["metrics"],
    }


def test_metrics_user_may_read_every_endpoint_of_a_snapshot_and_change_nothing() -> None:
    configured = {"$SYS": {"exports": [{"stream": "a"}]}, METRICS_ACCOUNT: {"users": [{"user": "mine"}]}}
    accounts = made(metrics_user="metrics", metrics_password="m", accounts=configured)["accounts"]
    first, *exports = accounts["$SYS"]["exports"]
    assert first == {"stream": "a"}
    assert {export["response_type"] for export in exports} == {"Stream"}
    assert {account for export in exports for account in export["accounts"]} == {METRICS_ACCOUNT}
    imports = [one["service"] for one in accounts[METRICS_ACCOUNT]["imports"]]
    assert imports == [{"account": "$SYS", "subject": export["service"]} for export in exports]
    mine, metrics = accounts[METRICS_ACCOUNT]["users"]
    assert mine == {"user": "mine"}
    permissions = metrics["permissions"]
    allowed = permissions["publish"]["allow"]
    endpoints = {subject.rpartition(".")[2] for subject in allowed if subject.startswith("$SYS.REQ.SERVER.*.")}
    # The statistics of accounts are requested from all servers at once.
    assert {name.upper() for name in SNAPSHOT_ENDPOINTS} - {"ACCSTATZ"} <= endpoints
    for changing in ("RELOAD", "LDM", "KICK", "PROFILEZ"):
        assert not any(subject_matches(subject, f"$SYS.REQ.SERVER.N1.{changing}") for subject in allowed)
    assert not any(subject_matches(subject, "$JS.API.META.LEADER.STEPDOWN") for subject in allowed)
    # The replies to the system user, such as those to a reload, stay private.
    assert not any(subject_matches(subject, f"{INBOX_PREFIX}.id.1") for subject in permissions["subscribe"]["allow"])


def test_a_recursive_combine() -> None:
    assert merged({"a": {"b": 1, "c": [1]}, "d": 1}, {"a": {"c": [2]}, "d": None}) == {
        "a": {"b": 1, "c": [2]},
        "d": None,
    }
