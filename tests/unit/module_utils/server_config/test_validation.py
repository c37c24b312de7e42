# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each rule fires on its error, and a valid configuration has no problems."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.case import make_case
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.schema import hints
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.validation import RULES, config_problems

HASH = "$2b$04$" + "a" * 53
GIB = 1024**3


def member(name: str, number: int, **more: Any) -> dict[str, Any]:
    address = f"10.0.0.{number}"
    return {
        "host": name,
        "server_name": name,
        "cluster": "C1",
        "address": address,
        "route_address": address,
        "cluster_port": 6222,
        "gateway_address": address,
        "gateway_port": 7222,
        "client_port": 4222,
        "jetstream": True,
        "domain": None,
        "arbiter": False,
        "zone": None,
        "unique_tag": None,
        "pool_size": None,
        **more,
    }


def zoned(zones: str) -> list[dict[str, Any]]:
    """Return a server for each letter, which is the server's zone; "-" means no zone."""
    return [
        member(f"n{number}", number, zone=None if zone == "-" else zone, unique_tag="az:")
        for number, zone in enumerate(zones, 1)
    ]


MEMBERS = [member(f"n{number}", number) for number in (1, 2, 3)]
OTHERS = [member(f"m{number}", 10 + number, cluster="C2") for number in (1, 2, 3)]
TAGGED: dict[str, Any] = {"jetstream": {"unique_tag": "az:"}, "server_tags": ["az:a"]}
SOUND: dict[str, Any] = {
    "server_name": "n1",
    "port": 4222,
    "http": "127.0.0.1:8222",
    "write_deadline": "10s",
    "lame_duck_duration": "60s",
    "lame_duck_grace_period": "10s",
    "jetstream": {"store_dir": "/nats/storage", "max_file_store": "10GB", "max_memory_store": "1GB"},
    "cluster": {"name": "C1", "port": 6222, "routes": [f"nats-route://10.0.0.{n}:6222" for n in (1, 2, 3)]},
    "system_account": "$SYS",
    "accounts": {
        "$SYS": {"users": [{"user": "sys", "password": "secret"}]},
        "APP": {"jetstream": True, "users": [{"user": "app", "password": HASH}]},
    },
}
CONTEXT: dict[str, Any] = {
    "version": "2.10.27",
    "members": MEMBERS,
    "cluster_size": "3",
    "filesystems": [
        {"mount": "/", "fstype": "ext4", "size_total": 5 * GIB},
        {"mount": "/nats", "fstype": "xfs", "size_total": 100 * GIB},
    ],
    "memtotal": 4 * GIB,
    "running": {"server_name": "n1", "cluster": {"name": "C1"}},
    "require_mount": True,
    "service_backend": "systemd",
    "gateway": False,
}


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    result = copy.deepcopy(base)
    for name, value in over.items():
        if isinstance(value, dict) and isinstance(result.get(name), dict):
            result[name] = merged(result[name], value)
        else:
            result[name] = value
    return result


def found(config: dict[str, Any], context: dict[str, Any] | None = None) -> list[tuple[str, str, str]]:
    problems = config_problems(merged(SOUND, config), {**CONTEXT, **(context or {})})
    return [(problem["severity"], problem["option"], problem["message"]) for problem in problems]


def test_a_sound_configuration_has_no_problem() -> None:
    assert found({}) == []


def test_a_sound_configuration_of_everything_has_no_problem() -> None:
    tls = {"cert_file": "/c", "key_file": "/k", "ca_file": "/ca"}
    config = {
        "listen": "0.0.0.0:4222",
        "tls": tls,
        "http": None,
        "https": 8222,
        "max_payload": "8MB",
        "no_auth_user": "app",
        "server_tags": ["AZ:a"],
        "jetstream": {"domain": "hub", "unique_tag": "az:", "extension_hint": "no_extend", "prev_key": "a", "key": "b"},
        "cluster": {
            "listen": "10.0.0.1:6222",
            "host": "10.0.0.1",
            "pool_size": 4,
            "accounts": ["APP"],
            "compression": {"mode": "s2_auto", "rtt_thresholds": ["0s", "10ms", "50ms"]},
            "authorization": {"user": "r", "password": "p"},
        },
        "gateway": {"name": "C1", "port": 7222, "gateways": [{"name": "C2", "url": "nats://h:7222"}]},
        "leafnodes": {"port": 7422, "remotes": [{"url": "nats://h:7422", "account": "APP"}], "compression": "off"},
        "mqtt": {"port": 1883},
        "websocket": {"port": 8080, "tls": tls},
    }
    tagged = [{**m, "unique_tag": "az:"} for m in MEMBERS]
    assert found(config, {"members": tagged, "gateway": True}) == []


#: The store of n1 in a cluster, and n1's configuration if the store is encrypted.
STORE: dict[str, Any] = {"streams": 2, "accounts": {"APP": 2}, "peers": ["fjFyEjc1"], "system_accounts": ["$SYS"]}
EMPTY_STORE: dict[str, Any] = {"streams": 0, "accounts": {}, "peers": None, "system_accounts": []}
OLD_STORE = {**STORE, "path": "/old"}
OLD_ACCOUNT = {**STORE, "accounts": {"OLD": 1}}
PUBLIC_KEY = "A" * 56
ENCRYPTED = {**SOUND, "jetstream": {"store_dir": "/nats/storage", "encryption_key": "k1"}}


WEB: dict[str, Any] = {"port": 8443, "no_tls": True}


def remote(**keys: Any) -> dict[str, Any]:
    return {"leafnodes": {"remotes": [keys]}}


def proxied(proxy: str, url: str, **keys: Any) -> dict[str, Any]:
    return remote(url=url, proxy={"url": proxy, **keys})


MUTUAL: dict[str, Any] = {"cert_file": "/c", "key_file": "/k", "ca_file": "/ca"}
VERIFIED: dict[str, Any] = {**MUTUAL, "verify": True}

BAD: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    # unknown and new keys
    ({"max_paylod": 1}, {}, "warning max_paylod", "nearest known key is max_payload"),
    ({"cluster": {"zzz": 1}}, {}, "warning cluster.zzz", "not a known key"),
    ({"jetstream": {"strict": True}}, {}, "error jetstream.strict", "2.11.0"),
    ({"write_timeout": "close"}, {"version": "2.12.0"}, "error write_timeout", "2.11.11 or 2.12.2"),
    ({"proxy_protocol": True}, {}, "error proxy_protocol", "needs nats-server 2.12.2 or newer, the version is 2.10.27"),
    ({"proxies": {"trusted": []}}, {}, "error proxies", "needs nats-server 2.12.0 or newer, the version is 2.10.27"),
    ({"mqtt": {"port": 1883, "consumer_replicas": 1}}, {}, "error mqtt.consumer_replicas", "deprecated"),
    ({}, {"extra_files": ["../hub.creds"]}, "error nats_server_extra_files", "is not a file name"),
    ({}, {"extra_files": ["tls"], "role_files": ["tls"]}, "error nats_server_extra_files", "tls is a file that the role"),
    # values
    ({"debug": "perhaps"}, {}, "error debug", "neither true nor false"),
    ({"write_deadline": 5}, {}, "warning write_deadline", "'5s'"),
    ({"pid_file": "a", "pidfile": "b"}, {}, "error pid_file", "twice"),
    # names
    ({"server_name": "n 1"}, {"running": {}}, "error server_name", "white space"),
    ({"cluster": {"name": "C 1"}}, {"running": {}}, "error cluster.name", "white space"),
    ({"server_name": None}, {}, "error server_name", "required for JetStream"),
    ({"cluster": {"name": None}}, {}, "error cluster.name", "required for JetStream"),
    ({"gateway": {"name": "X", "port": 1}}, {}, "error gateway.name", "must be equal"),
    ({"gateway": {"port": 1}}, {}, "error gateway.name", "required"),
    ({"gateway": {"name": "C1"}}, {}, "error gateway.port", "required"),
    ({"gateway": {"name": "C1", "port": 1, "gateways": [{"name": "Z"}]}}, {}, "error gateway.gateways[Z]", "no url"),
    ({"server_name": "new"}, {}, "error server_name", "running server is named 'n1'"),
    ({"cluster": {"name": "C2"}}, {}, "error cluster.name", "running server belongs to 'C1'"),
    (
        {"cluster": {"name": "C2"}},
        {"running": {}, "store": STORE, "loaded": {"cluster": {"name": "C1"}}},
        "error cluster.name",
        "the store belongs to 'C1'",
    ),
    (
        {},
        {"take_over": False, "process_runs": False, "config_file": "/etc/n.conf"},
        "error nats_server_take_over",
        "Start its own unit with /etc/n.conf",
    ),
    (
        {},
        {"drop_ins": [{"path": "/etc/a.conf", "options": ["ExecStop", "LimitNOFILE", "User"]}]},
        "error nats_server_service_overrides",
        "/etc/a.conf sets ExecStop, User over the role's unit",
    ),
    # the owner of the store: fjFyEjc1, 44jzkV9D and BXScrY9i are n1, n2 and n3
    # the content of the store
    ({}, {"loaded_store": OLD_STORE, "store": EMPTY_STORE}, "error jetstream.store_dir", "/old holds 2 streams"),
    ({}, {"loaded_store": OLD_STORE, "store": STORE}, "error jetstream.store_dir", "/old holds 2 streams"),
    ({}, {"loaded_store": {**EMPTY_STORE, "path": "/old", "peers": []}}, "error jetstream.store_dir", "meta group"),
    ({"jetstream": False}, {"loaded_store": OLD_STORE}, "error jetstream", "/old holds 2 streams"),
    ({"system_account": "SYS"}, {"store": STORE}, "error system_account", "deletes all streams after 30 seconds"),
    ({}, {"store": OLD_ACCOUNT}, "error accounts.OLD", "is not configured, but this server has 1 stream of it"),
    ({}, {"store": OLD_ACCOUNT, "loaded": SOUND}, "warning accounts.OLD", "is not configured"),
    ({"accounts": {"APP": {"jetstream": False}}}, {"store": STORE, "loaded": SOUND}, "error accounts.APP", "no JetStream"),
    ({"operator": "/o.jwt"}, {"store": STORE, "loaded": SOUND}, "error accounts.APP", "2 streams"),
    ({}, {"store": {"accounts": {PUBLIC_KEY: 1}}, "loaded": {"operator": "/o.jwt"}}, f"error accounts.{PUBLIC_KEY}", "1 "),
    ({}, {"store": STORE, "loaded": ENCRYPTED}, "error jetstream.encryption_key", "is removed"),
    ({"jetstream": {"key": "k2"}}, {"store": STORE, "loaded": ENCRYPTED}, "error jetstream.encryption_key", "changes"),
    ({}, {"store": {"streams": 1, "peers": None}}, "error jetstream.store_dir", "has run standalone and has 1 stream in"),
    (
        {},
        {"store": {"streams": 2, "peers": ["44jzkV9D", "BXScrY9i"]}},
        "error jetstream.store_dir",
        "belongs to another server of this cluster (n1 is not a member",
    ),
    (
        {},
        {"store": {"streams": 2, "peers": ["aaaaaaaa"]}},
        "error jetstream.store_dir",
        "belongs to another cluster",
    ),
    (
        {},
        {"store": {"streams": 0, "peers": ["aaaaaaaa"]}},
        "error jetstream.store_dir",
        "has its members, which the cluster would wait for. If it was renamed, restore its old name (nats_server_name)",
    ),
    (
        {},
        {"process_runs": False, "version": "2.9.10", "store": {**STORE, "index_format": 1}},
        "error jetstream.store_dir",
        "files of nats-server 2.10 or later, but 2.9.10 would start with them: servers before 2.9.22 load 2.10's tombstones",
    ),
    (
        {},
        {"process_runs": False, "version": "2.10.27", "store": {**EMPTY_STORE, "index_format": 9}},
        "error jetstream.store_dir",
        "files of a newer nats-server, but 2.10.27 would start with them: it is unknown whether this version supports",
    ),
    (
        {},
        {"process_runs": False, "store": STORE, "live_members": ["n2", "n3"]},
        "error jetstream.store_dir",
        "n1 is not a member of the running one (n2, n3), and has 2 streams in its store",
    ),
    (
        {},
        {"process_runs": False, "store": {**EMPTY_STORE, "peers": []}, "live_members": ["n2", "n3"]},
        "error jetstream.store_dir",
        "n1 is not a member of the running one (n2, n3), and has its members, which the cluster would wait for. Move",
    ),
    (
        {"cluster": {"name": "C2"}},
        {"running": {}, "process_runs": False, "store": {**STORE, "clusters": ["C1"]}},
        "error cluster.name",
        "the store belongs to 'C1'",
    ),
    # members
    ({}, {"members": [*MEMBERS[:2], member("n1", 3)]}, "error server_name", "several servers"),
    ({}, {"members": [*MEMBERS[:2], member("n 3", 3)]}, "error server_name", "white space"),
    ({}, {"cluster_size": 5}, "error nats_server_cluster_size", "is 5, but the inventory has 3"),
    ({}, {"members": [*MEMBERS, member("n4", 4)], "cluster_size": 4}, "warning nats_server_cluster_members", "need 3"),
    ({}, {"members": MEMBERS[:2], "cluster_size": 2}, "warning nats_server_cluster_members", "at least 3"),
    ({}, {"members": [*MEMBERS[:2], member("n3", 2)]}, "error client_port", "10.0.0.2:4222"),
    ({}, {"members": [*MEMBERS[:2], member("n3", 3, client_port=6222)]}, "error cluster_port", "10.0.0.3:6222"),
    ({"cluster": {"listen": "localhost:6222"}}, {}, "error cluster.listen", "n2, n3 must connect"),
    ({"cluster": {"host": "127.0.0.1"}}, {}, "error cluster.host", "n2, n3 must connect"),
    # sites
    ({}, {"supercluster": [*MEMBERS, *OTHERS]}, "warning nats_server_supercluster_groups", "6 JetStream servers need 4"),
    ({}, {"supercluster": [*MEMBERS, *OTHERS]}, "warning nats_server_supercluster_groups", "cluster C2 (3 of 6 JetStream"),
    ({}, {"supercluster": [*MEMBERS, *OTHERS[:2]]}, "warning nats_server_supercluster_groups", "cluster C1 (3 of 5 JetStream"),
    ({}, {"members": zoned("aab")}, "warning nats_server_zone", "zone a of C1 (2 of 3 JetStream servers) leaves 1"),
    ({}, {"supercluster": [*MEMBERS, *OTHERS[:1]]}, "warning nats_server_supercluster_groups", "C2 has 1 JetStream server: a"),
    (TAGGED, {"members": zoned("abb-c"), "cluster_size": 5}, "error nats_server_zone", "not set for n4"),
    (TAGGED, {"members": zoned("aabbb"), "cluster_size": 5}, "warning nats_server_zone", "in 2 zones (a, b)"),
    (TAGGED, {"members": zoned("aAb")}, "error nats_server_zone", "A, a, b: nats-server reads tags in lower case"),
    (TAGGED, {"supercluster": [*zoned("abc"), *OTHERS]}, "error jetstream.unique_tag", "m1 none"),
    ({}, {"supercluster": [*MEMBERS, member("m1", 1, client_port=1, cluster_port=2)]}, "error gateway_port", "10.0.0.1:7222"),
    # hub
    ({"jetstream": {"domain": "d"}}, {"hub": [member("n1", 9, cluster="H")]}, "error nats_server_leafnode_hub_group", "n1 would"),
    ({"jetstream": {"domain": "d"}}, {"hub": [member("h1", 9)]}, "error cluster.name", "'C1' is also the cluster of the hub"),
    ({}, {"hub": [member("h1", 9, cluster="H")]}, "error jetstream.domain", "neither this server nor the hub"),
    (
        {"jetstream": {"domain": "d"}},
        {"hub": [member("h1", 9, cluster="H", domain="d")]},
        "error jetstream.domain",
        "'d' is also the domain of h1",
    ),
    # routes
    ({"cluster": {"routes": []}}, {}, "error cluster.routes", "needs a route"),
    ({"cluster": {"routes": ["nats://10.0.0.1:6222"]}}, {}, "warning cluster.routes", "1 of 3"),
    ({"cluster": {"pool_size": -1, "accounts": ["APP"]}}, {}, "error cluster.pool_size", "negative"),
    ({"cluster": {"accounts": ["APP", "APP"]}}, {}, "error cluster.accounts", "twice"),
    ({"cluster": {"accounts": ["NONE"]}}, {}, "error cluster.accounts", "does not exist"),
    ({}, {"members": [*MEMBERS[:2], member("n3", 3, pool_size=5)]}, "error cluster.pool_size", "differs"),
    ({"cluster": {"authorization": {"users": []}}}, {}, "error cluster.authorization.users", "one user"),
    ({"cluster": {"authorization": {"token": "t"}}}, {}, "error cluster.authorization.token", "one user"),
    ({"cluster": {"authorization": {"user": "r", "password": HASH}}}, {}, "error cluster.authorization.password", "plain"),
    (
        {"cluster": {"authorization": {"user": "r", "password": HASH}, "routes": [f"nats://r:p@h{n}:1" for n in range(3)]}},
        {},
        "warning cluster.authorization.password",
        "gossip",
    ),
    ({"client_advertise": "n1:4222", "cluster": {"no_advertise": True}}, {}, "warning client_advertise", "no_advertise keeps"),
    # listeners
    ({"listen": "0.0.0.0:4333"}, {}, "error listen", "port 4222 contradict"),
    ({"cluster": {"listen": "10.0.0.1:6222", "host": "10.0.0.9"}}, {}, "error cluster.listen", "host '10.0.0.9'"),
    ({"https": 8223, "tls": {"cert_file": "/c"}}, {}, "error https", "both"),
    ({"tls": {"handshake_first": True}}, {}, "error tls", "no certificate"),
    ({"tls": {"cert_file": "/c"}}, {}, "error tls", "no certificate"),
    ({"cluster": {"tls": {"ca_file": "/ca", "verify": True}}}, {}, "error cluster.tls", "no certificate"),
    ({"gateway": {"name": "C1", "tls": {"timeout": 5}}}, {}, "error gateway.tls", "no certificate"),
    ({"leafnodes": {"port": 7422, "tls": {"ca_file": "/ca"}}}, {}, "error leafnodes.tls", "no certificate"),
    ({"mqtt": {"port": 1883, "tls": {"verify": True}}}, {}, "error mqtt.tls", "no certificate"),
    ({"websocket": {"port": 8080, "tls": {"key_file": "/k"}}}, {}, "error websocket.tls", "no certificate"),
    ({"http": None, "https": 8223}, {}, "error https", "top-level tls"),
    ({"lame_duck_duration": "20s"}, {}, "error lame_duck_duration", "30s"),
    ({"lame_duck_duration": "30s", "lame_duck_grace_period": "30s"}, {}, "error lame_duck_grace_period", "less than"),
    ({"max_payload": "65MB"}, {}, "error max_payload", "max_pending"),
    ({"max_payload": "9MB"}, {}, "warning max_payload", "discouraged"),
    ({"cluster": {"compression": "zip"}}, {}, "error cluster.compression", "'zip'"),
    (
        {"cluster": {"compression": {"mode": "s2_auto", "rtt_thresholds": ["50ms", "10ms"]}}},
        {},
        "error cluster.compression.rtt_thresholds",
        "ascend",
    ),
    (
        {"cluster": {"compression": {"mode": "s2_auto", "rtt_thresholds": ["1ms", "2ms", "3ms", "4ms", "5ms"]}}},
        {},
        "error cluster.compression.rtt_thresholds",
        "1 to 4",
    ),
    # JetStream
    ({"jetstream": {"domain": "a.b"}}, {}, "error jetstream.domain", "may not contain"),
    ({"leafnodes": {"port": 7422}}, {}, "warning jetstream.domain", "leafnodes"),
    ({"jetstream": {"extension_hint": "maybe"}}, {}, "error jetstream.extension_hint", "neither"),
    ({"jetstream": {"prev_key": "x"}}, {}, "error jetstream.prev_encryption_key", "without"),
    ({"store_dir": "/x"}, {}, "error store_dir", "accepts only one"),
    ({"jetstream": {"store_dir": None}}, {}, "error jetstream.store_dir", "required"),
    ({"jetstream": {"store_dir": "nats"}}, {}, "error jetstream.store_dir", "absolute"),
    ({"jetstream": {"store_dir": "/tmp/nats", "max_file": "1GB", "max_file_store": None}}, {"require_mount": False},
     "error jetstream.store_dir", "private /tmp"),
    ({"jetstream": {"store_dir": "/var/lib/nats", "max_file_store": "1GB"}}, {}, "error jetstream.store_dir", "root file"),
    ({}, {"filesystems": [{"mount": "/nats", "fstype": "tmpfs"}]}, "error jetstream.store_dir", "in memory"),
    ({}, {"filesystems": [{"mount": "/nats", "rotating_disks": ["sda"]}]}, "warning jetstream.store_dir", "a rotating disk"),
    ({}, {"filesystems": [{"mount": "/nats", "fstype": "nfs4"}]}, "warning jetstream.store_dir", "a network file system (nfs4)"),
    ({}, {"filesystems": [{"mount": "/nats", "fstype": "fuse.sshfs"}]}, "warning jetstream.store_dir", "Use a local SSD"),
    ({}, {"filesystems": [{"mount": "/", "fstype": "ext4"}], "require_mount": False},
     "warning jetstream.store_dir", "root file system: a full store"),
    ({}, {"selinux": {"mode": "enforcing", "binary_type": "usr_t", "install_dir": "/srv/nats"}},
     "error nats_server_install_dir", "semanage fcontext -a -t bin_t '/srv/nats/[^/]+/bin(/.*)?'"),
    ({"jetstream": {"max_file_store": "101GB"}}, {}, "error jetstream.max_file_store", "/nats"),
    ({"jetstream": {"max_file_store": None}}, {}, "warning jetstream.max_file_store", "75 %"),
    ({"jetstream": {"max_memory_store": "5GB"}}, {}, "error jetstream.max_memory_store", "memory"),
    ({}, {"members": [*MEMBERS[:2], member("n3", 3, unique_tag="az:")]}, "error jetstream.unique_tag", "the same"),
    ({"jetstream": {"unique_tag": "az:"}, "server_tags": ["rack:1"]}, {}, "error jetstream.unique_tag", "no tag"),
    # accounts
    ({"system_account": "OPS"}, {}, "error system_account", "not among"),
    ({"accounts": {"$SYS": {"users": []}}}, {}, "warning accounts.$SYS.users", "no user that can operate"),
    ({"accounts": {"$SYS": {"users": [{"user": "metrics", "password": "m"}]}}}, {"own_users": {"metrics": "metrics"}},
     "warning accounts.$SYS.users", "no user that can operate"),
    ({"accounts": {"$SYS": {"users": [{"user": "metrics", "password": "m"}]}}},
     {"own_users": {"metrics": "metrics"}, "loaded": SOUND}, "error accounts.$SYS.users", "would lose their login"),
    ({"authorization": {"auth_callout": {"auth_users": ["sys"], "issuer": "A"}},
      "accounts": {"$SYS": {"users": [{"user": "sys", "password": "s"}, {"user": "metrics", "password": "m"}]}}},
     {"own_users": {"system": "sys", "metrics": "metrics"}}, "warning authorization.auth_callout.auth_users", "exporter"),
    (
        {"accounts": {"$SYS": {"users": []}}},
        {"loaded": {"accounts": {"$SYS": {"users": [{"user": "sys", "password": "p"}]}}}},
        "error accounts.$SYS.users",
        "would lose their login",
    ),
    ({"accounts": {"$SYS": {"jetstream": True}}}, {}, "error accounts.$SYS.jetstream", "another account"),
    (
        {"system_account": None, "leafnodes": {"port": 1}, "gateway": {"name": "C1", "port": 2}},
        {},
        "error system_account",
        "explicitly",
    ),
    ({"accounts": {"APP": {"users": [{"user": "app"}]}}}, {}, "error accounts.APP.users[app]", "no password"),
    ({"accounts": {"APP": {"users": [{"password": "x"}]}}}, {}, "error accounts.APP.users[0]", "neither user nor nkey"),
    ({"accounts": {"B": {"users": [{"user": "app", "password": "x"}]}}}, {}, "error accounts.B.users[app]", "already used"),
    (
        {"accounts": {"APP": {"users": [{"user": "a", "password": "b", "allowed_connection_types": ["WS"]}]}}},
        {},
        "error accounts.APP.users[a].allowed_connection_types",
        "WS",
    ),
    ({"authorization": {"user": "a", "password": "b"}}, {}, "error authorization.user", "cannot be combined with users"),
    ({"authorization": {"token": "a"}}, {}, "error authorization.token", "cannot be combined with users"),
    (
        {"accounts": {"APP": {"users": [{"user": "a", "password": "é" * 37}]}}},
        {},
        "error accounts.APP.users[a].password",
        "74 bytes",
    ),
    (
        {"accounts": {"APP": {"users": [{"user": "a", "password": "$2b$11$short"}]}}},
        {},
        "error accounts.APP.users[a].password",
        "is invalid",
    ),
    ({"no_auth_user": "absent"}, {}, "error no_auth_user", "not a user"),
    (
        {"authorization": {"auth_callout": {"issuer": "A", "auth_users": ["app"]}}},
        {},
        "error authorization.auth_callout.auth_users",
        "lacks sys of the system account",
    ),
    (
        {"authorization": {"auth_callout": {"issuer": "A", "auth_users": ["sys"]}}},
        {},
        "warning authorization.auth_callout.auth_users",
        "lacks app: the callout's service decides",
    ),
    ({}, {"loaded": {"port": 4222}}, "warning accounts", "have the first users"),
    ({"no_auth_user": "app", "operator": "/jwt"}, {}, "error no_auth_user", "operator"),
    ({"websocket": {"port": 1, "no_tls": True, "no_auth_user": "absent"}}, {}, "error websocket.no_auth_user", "not a"),
    ({"websocket": {"port": 1}}, {}, "error websocket.tls", "required"),
    ({"websocket": {"port": 1, "no_tls": True, "authorization": {"user": "a"}}}, {}, "error websocket.authorization", "own"),
    ({"mqtt": {"port": 1}, "server_name": None}, {}, "error server_name", "required for MQTT"),
    ({"mqtt": {"port": 1}, "jetstream": None, "cluster": None}, {}, "error mqtt", "needs JetStream"),
    ({"mqtt": {"port": 1}, "accounts": {"APP": {"jetstream": False}}}, {}, "error mqtt", "needs an account with JetStream"),
    ({"mqtt": {"port": 1}, "cluster": {"routes": ["nats-route://10.0.0.1:6222"]}}, {}, "warning mqtt.stream_replicas", "to 3"),
    ({"websocket": {"port": 4222, "no_tls": True}}, {}, "error websocket.port", "4222 is also the port of the listener client"),
    ({"http": "127.0.0.1:6222"}, {}, "error monitoring", "port of the listener cluster"),
    ({"websocket": {**WEB, "allowed_origins": ["a.example.com"]}}, {}, "error websocket.allowed_origins", "not a URL"),
    ({"websocket": {**WEB, "jwt_cookie": "c"}}, {}, "error websocket.jwt_cookie", "needs an operator"),
    ({"websocket": {**WEB, "headers": {"Sec-WebSocket-Key": "x"}}}, {}, "error websocket.headers", "handshake"),
    (
        {"accounts": {"$SYS": {"users": [{"user": "sys", "password": HASH, "proxy_required": True}]}}},
        {"own_users": {"system": "sys"}, "version": "2.14.0"},
        "error accounts.$SYS.users[sys].proxy_required",
        "lock out the playbooks",
    ),
    (remote(urls=["ws://h", "nats://h"]), {}, "error leafnodes.remotes[0].urls", "mix ws://"),
    (proxied("socks5://p:1", "ws://h"), {}, "error leafnodes.remotes[0].proxy.url", "not a URL"),
    (proxied("http://p:1", "nats://h"), {}, "error leafnodes.remotes[0].proxy", "is used only for ws://"),
    (proxied("http://p:1", "wss://h"), {}, "error leafnodes.remotes[0].tls", "is required for a wss:// URL"),
    (proxied("http://p:1", "ws://h", username="u"), {}, "error leafnodes.remotes[0].proxy", "both username and password"),
    (
        {"leafnodes": {"port": 1, "remotes": [{"url": "nats://h", "account": "NO"}]}},
        {},
        "error leafnodes.remotes[0].account",
        "does not exist",
    ),
    (
        {"leafnodes": {"authorization": {"user": "a", "password": "b", "users": [{"user": "c", "password": "d"}]}}},
        {},
        "error leafnodes.authorization",
        "both",
    ),
    ({"tls": VERIFIED, "cluster": {"tls": VERIFIED}}, {}, "warning cluster.authorization", "join as a server"),
    ({"tls": {**MUTUAL, "verify_and_map": True}, "gateway": {"name": "C1", "port": 7222, "tls": VERIFIED}}, {},
     "warning gateway.authorization", "nats_server_gateway_authorization"),
    ({"websocket": {"port": 8443, "tls": VERIFIED}, "cluster": {"tls": VERIFIED}}, {},
     "warning cluster.authorization", "join as a server"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("clients", "routes"),
    [
        ({**MUTUAL, "verify": False}, {"tls": VERIFIED}),
        (VERIFIED, {"tls": {**VERIFIED, "ca_file": "/routes.pem"}}),
        (VERIFIED, {"tls": {**VERIFIED, "pinned_certs": ["a" * 64]}}),
        (VERIFIED, {"tls": {**VERIFIED, "verify_cert_and_check_known_urls": True}}),
        (VERIFIED, {"tls": VERIFIED, "authorization": {"user": "r", "password": "p"}}),
        (VERIFIED, {}),
    ],
)
def test_protected_routes_are_not_reported(clients: dict[str, Any], routes: dict[str, Any]) -> None:
    assert found({"tls": clients, "cluster": routes}) == []


@pytest.mark.parametrize(
    ("config", "context", "where", "text"), BAD, ids=[f"{n}-{bad[2]}" for n, bad in enumerate(BAD)]
)
def test_a_problem_is_found(config: dict[str, Any], context: dict[str, Any], where: str, text: str) -> None:
    problems = found(config, context)
    assert any(f"{severity} {option}" == where and text in message for severity, option, message in problems), problems


def test_all_problems_come_at_once_and_errors_first() -> None:
    problems = found({"debug": "x", "lame_duck_duration": "1s", "max_paylod": 1, "http": 1, "https": 2})
    assert [severity for severity, _option, _message in problems] == ["error"] * 5 + ["warning"]


def test_every_rule_has_a_case_in_which_it_fires() -> None:
    fired = set()
    for config, context, _where, _text in BAD:
        case, _notes = make_case(merged(SOUND, config), {**CONTEXT, **context})
        fired |= {rule.__name__ for rule in RULES if list(rule(case))}
    assert {rule.__name__ for rule in RULES} - fired == set()


def test_no_password_is_ever_in_a_message() -> None:
    config = {
        "accounts": {
            "APP": {"users": [{"user": "a", "password": "hunter2" * 20}, {"user": "b", "password": {"x": "hunter2"}}]}
        },
        "cluster": {"authorization": "hunter2", "routes": {"x": "hunter2"}},
        "authorization": {"token": ["hunter2"]},
    }
    problems = found(config)
    assert len(problems) >= 4
    assert "hunter2" not in str(problems)


@pytest.mark.parametrize(
    ("one", "other"), [("n2.example", "N2.Example."), ("fd00::2", "[FD00:0::2]"), ("10.0.0.2", "10.0.0.2")]
)
def test_two_inventory_names_of_one_address_are_refused(one: str, other: str) -> None:
    members = [MEMBERS[0], {**MEMBERS[1], "address": one}, {**member("n3", 3), "host": "alias", "address": other}]
    problems = [
        problem for problem in config_problems(SOUND, {"members": members}) if problem["option"] == "client_port"
    ]
    assert len(problems) == 1 and problems[0]["severity"] == "error"
    assert (
        f"the client port of {MEMBERS[1]['server_name']} and the client port of n3 (host alias)"
        in problems[0]["message"]
    )
    apart = [MEMBERS[0], {**MEMBERS[1], "address": one}, {**members[2], "client_port": 4333}]
    assert [row for row in config_problems(SOUND, {"members": apart}) if row["option"] == "client_port"] == []


@pytest.mark.parametrize(
    "selinux",
    [
        {"mode": "enforcing", "binary_type": "bin_t"},
        {"mode": "permissive", "binary_type": "usr_t"},
        {"mode": "enforcing", "binary_type": ""},
        {"mode": "", "binary_type": ""},
    ],
)
def test_binary_that_selinux_lets_systemd_start_is_accepted(selinux: dict[str, str]) -> None:
    assert found({}, {"selinux": {**selinux, "install_dir": "/opt/nats-server"}}) == []


def test_unknown_context_is_not_checked() -> None:
    assert config_problems(SOUND, {}) == []
    assert config_problems(SOUND, {"version": "latest", "cluster_size": "", "running": {}, "filesystems": []}) == []


def test_a_supercluster_is_not_judged_by_one_of_its_clusters() -> None:
    gateway = {"name": "C1", "port": 7222}
    context = {"members": MEMBERS[:2], "cluster_size": None, "gateway": gateway}
    assert found({"gateway": gateway}, context) == []


def test_leafnode_with_its_own_domain_is_valid() -> None:
    hub = [member("h1", 9, cluster="H", domain="hub"), member("h2", 10, cluster="H", jetstream=False)]
    assert found({"jetstream": {"domain": "leaf"}}, {"hub": hub}) == []


def test_three_clusters_of_three_outlive_each_and_two_with_an_arbiter_too() -> None:
    arbiter = member("w1", 31, cluster="C3", arbiter=True)
    third = [member(f"w{number}", 30 + number, cluster="C3") for number in (1, 2, 3)]
    for rest in ([arbiter], third):
        assert found({}, {"supercluster": [*MEMBERS, *OTHERS, *rest]}) == []


def test_five_servers_in_three_zones_outlive_each_zone() -> None:
    routed = {"cluster": {"routes": [f"nats://10.0.0.{number}:6222" for number in range(1, 6)]}}
    assert found({**TAGGED, **routed}, {"members": zoned("aabbc"), "cluster_size": 5}) == []


def test_an_arbiter_takes_no_replicas_so_that_its_zone_counts_for_the_quorum_only() -> None:
    three = [*zoned("ab"), member("n3", 3, zone="c", arbiter=True, unique_tag="az:")]
    assert found(TAGGED, {"members": three}) == []


def test_pool_sizes_may_differ_from_2_11_2_on() -> None:
    differing = [*MEMBERS[:2], member("n3", 3, pool_size=5)]
    assert found({}, {"members": differing, "version": "2.11.2"}) == []


@pytest.mark.parametrize(
    ("config", "store"),
    [
        ({}, {"streams": 2, "peers": ["44jzkV9D", "BXScrY9i", "fjFyEjc1"]}),
        # A store without streams, an unreadable list of peers, and a server outside any cluster.
        ({}, {"streams": 0, "peers": None}),
        ({}, {"streams": 2, "peers": []}),
        ({"cluster": None}, {"streams": 2, "peers": None}),
        ({}, {"index_format": 1}),
        ({}, {**STORE, "clusters": ["C1"]}),
        ({}, {**STORE, "clusters": ["C2", "C3"]}),
    ],
)
def test_a_store_that_is_the_servers_own(config: dict[str, Any], store: dict[str, Any]) -> None:
    problems = config_problems(
        {**SOUND, **config}, {**CONTEXT, "store": store, "process_runs": False, "live_members": ["n1"]}
    )
    assert [one for one in problems if "store" in one["option"] and one["severity"] == "error"] == []


#: The account of the callout service, the system user, and an application account with an operator.
CALLOUT_ACCOUNTS: dict[str, Any] = {
    "$SYS": {"users": [{"user": "sys", "password": HASH}]},
    "APP": {"users": [{"user": "app", "password": HASH}, {"user": "operator-APP", "password": HASH}]},
    "AUTH": {"users": [{"user": "callout", "password": HASH}]},
}
OWN_USERS = {"system": "sys", "operators": ["operator-APP"]}
OPERATOR_REFUSED, APP_DELEGATED = ("warning", "lacks operator-APP"), ("warning", "lacks app")


@pytest.mark.parametrize(
    ("callout", "own_users", "found"),
    [
        ({"auth_users": ["callout"]}, OWN_USERS, [("error", "lacks sys"), OPERATOR_REFUSED, APP_DELEGATED]),
        ({"auth_users": ["callout"]}, {}, [("error", "lacks sys"), ("warning", "lacks app, operator-APP")]),
        ({"auth_users": ["callout", "sys"]}, OWN_USERS, [OPERATOR_REFUSED, APP_DELEGATED]),
        ({"auth_users": ["callout", "sys", "operator-APP"]}, OWN_USERS, [APP_DELEGATED]),
        ({"auth_users": ["callout", "sys", "operator-APP", "app"]}, OWN_USERS, []),
        ({"auth_users": ["callout"], "allowed_accounts": ["AUTH"]}, OWN_USERS, []),
        ({"auth_users": ["callout"], "allowed_accounts": ["$SYS"]}, OWN_USERS, [("error", "lacks sys")]),
        ({"auth_users": ["callout"], "allowed_accounts": ["APP"]}, OWN_USERS, [OPERATOR_REFUSED, APP_DELEGATED]),
    ],
)
def test_an_auth_callout_that_locks_out_the_collection(
    callout: dict[str, Any], own_users: dict[str, Any], found: list[tuple[str, str]]
) -> None:
    block = {"auth_callout": {"issuer": "A" * 56, "account": "AUTH", **callout}}
    config = {**SOUND, "accounts": CALLOUT_ACCOUNTS, "authorization": block}
    problems = config_problems(config, {**CONTEXT, "own_users": own_users})
    named = [one for one in problems if one["option"].endswith("auth_users")]
    assert [(one["severity"], one["message"].split(" of the")[0].split(":")[0]) for one in named] == found


SYSTEM_ONLY: dict[str, Any] = {"$SYS": {"users": [{"user": "sys", "password": HASH}]}}
WITH_USERS: dict[str, Any] = {**SYSTEM_ONLY, "APP": {"users": [{"user": "app", "password": HASH}]}}


@pytest.mark.parametrize(
    ("config", "loaded", "streams", "severities"),
    [
        ({"accounts": WITH_USERS}, {"accounts": SYSTEM_ONLY}, 1, ["error", "warning"]),
        ({"accounts": WITH_USERS}, {"accounts": SYSTEM_ONLY}, 0, ["warning"]),
        ({"accounts": WITH_USERS, "no_auth_user": "app"}, {"accounts": SYSTEM_ONLY}, 1, ["error"]),
        ({"accounts": {**SYSTEM_ONLY, "APP": {}}}, {"port": 4222}, 1, ["error"]),
        ({"accounts": WITH_USERS}, {"accounts": WITH_USERS}, 1, []),
        ({"accounts": WITH_USERS}, {"authorization": {"token": "t"}}, 0, []),
        ({"accounts": WITH_USERS}, {}, 1, []),
        ({"accounts": SYSTEM_ONLY}, {"port": 4222}, 1, []),
    ],
)
def test_first_accounts_lock_out_users_without_one(
    config: dict[str, Any], loaded: dict[str, Any], streams: int, severities: list[str]
) -> None:
    context = {**CONTEXT, "loaded": loaded, "store": {"accounts": {"$G": streams}}, "running": {"connections": 3}}
    problems = [one for one in config_problems({**SOUND, **config}, context) if one["option"] == "accounts"]
    assert [one["severity"] for one in problems] == severities


@pytest.mark.parametrize(
    ("config", "context"),
    [
        ({}, {"store": STORE, "loaded": SOUND}),
        # The store was moved or copied while the server was stopped, or is empty.
        ({}, {"loaded_store": OLD_STORE, "store": STORE, "process_runs": False}),
        ({}, {"loaded_store": {**EMPTY_STORE, "path": "/old"}, "store": EMPTY_STORE}),
        ({"operator": "/o.jwt"}, {"store": {**STORE, "accounts": {PUBLIC_KEY: 1}}, "loaded": {"operator": "/o.jwt"}}),
        ({"jetstream": {"key": "k2", "prev_key": "k1"}}, {"store": STORE, "loaded": ENCRYPTED}),
        ({"jetstream": {"key": "k1"}}, {"store": STORE, "loaded": SOUND}),
        ({}, {"store": EMPTY_STORE, "loaded": ENCRYPTED}),
    ],
)
def test_configuration_that_keeps_the_content_of_the_store(config: dict[str, Any], context: dict[str, Any]) -> None:
    assert found(config, context) == []


def test_unknown_field_of_the_server_is_named_with_the_nearest_key() -> None:
    said = 'nats-server: n.conf:3:5: unknown field "max_subscription"\nn.conf:9:1: unknown field "qqqqqqqq"'
    assert hints(said) == ["max_subscription: the nearest known key is max_subscriptions"]


def test_servers_on_one_machine_need_different_monitoring_ports() -> None:
    same = [{**member(f"n{one}", 1), "client_port": 4221 + one, "cluster_port": 6221 + one} for one in (1, 2, 3)]
    ports = ["127.0.0.1:8222", "8222", "127.0.0.1:8223"]
    shared = {"members": [{**one, "monitoring": port} for one, port in zip(same, ports)], "service_backend": "process"}
    ((severity, _option, message),) = [one for one in found({}, shared) if one[1] == "http"]
    assert severity == "warning" and message.startswith(
        "n1 and n2 have the address 10.0.0.1 and the monitoring port 8222"
    )
    off = {**shared, "members": [{**one, "monitoring": ""} for one in same]}
    for context in (off, {**shared, "service_backend": "systemd"}):
        assert [one for one in found({}, context) if one[1] == "http"] == []
