# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests how foreign clusters become inventories: the variables of each cluster, and unsupported settings."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.adoption import (
    Adoption,
    Secret,
    adopt,
    composed,
    difference,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.compose import merged
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.syntax import normalise
from hypothesis import given
from hypothesis import strategies as st
from support.foreign import discovered

HASH = "$2a$11$abcdefghijklmnopqrstuuWpXw6dJQm5hF3rXQpQ0mXf9eYfYkC9u"

DEBIAN = f"""
server_name: deb-NUMBER
listen: 0.0.0.0:4222
http: 8222
jetstream {{ store_dir: /srv/nats, max_file: 10GB }}
accounts {{
  $SYS {{ users: [ {{ user: admin, password: {HASH} }} ] }}
  APP {{ jetstream: enabled, users: [ {{ user: app, password: {HASH} }} ] }}
}}
cluster {{
  name: deb, listen: 0.0.0.0:6222
  routes: [ nats://ruser:rpass@deb-1:6222, nats://ruser:rpass@deb-2:6222 ]
  authorization {{ user: ruser, password: rpass }}
}}
"""
HELM = """
{ "cluster": { "name": "nats", "no_advertise": true, "port": 6222,
    "routes": [ "nats-route://nats-1:6222", "nats-route://nats-2:6222" ] },
  "http_port": 8222,
  "jetstream": { "max_file_store": 10Gi, "max_memory_store": 0, "store_dir": "/data", "unique_tag": "zone:" },
  "server_tags": [ "ssd", "zone:a" ],
  "lame_duck_duration": "30s", "lame_duck_grace_period": "10s",
  "pid_file": "/var/run/nats/nats.pid", "port": 4222, "server_name": $SERVER_NAME,
  "websocket": { "port": 8080, "no_tls": true } }
"""


def adopted(text: str, count: int = 2, prefix: str = "h", **changes: Any) -> Adoption:
    found = {f"{prefix}{number}": discovered(text, number, **changes) for number in range(1, count + 1)}
    return adopt(found, {host: host for host in found})


def resolved(adoption: Adoption, host: str) -> dict[str, Any]:
    """Return the variables of a host as Ansible resolves them, without the prefix of the role."""
    vault = {**adoption.group_vault, **adoption.host_vaults[host]}

    def plain_value(value: Any) -> Any:
        if isinstance(value, Secret):
            return vault[value]
        if isinstance(value, dict):
            return {name: plain_value(item) for name, item in value.items()}
        return [plain_value(item) for item in value] if isinstance(value, list) else value

    values = plain_value({**adoption.group, **adoption.hosts[host]})
    return {name.removeprefix("nats_server_"): value for name, value in values.items()}


def made(adoption: Adoption, host: str, members: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the configuration that results from the variables of a host."""
    variables = resolved(adoption, host)
    base = composed(variables, members)
    return normalise(merged(merged(base, variables.get("config", {})), variables.get("config_host", {})))


def test_debians_package() -> None:
    adoption = adopted(DEBIAN)
    assert adoption.refusals == []
    assert adoption.hosts["h1"] == {"nats_server_name": "deb-1"}
    group = adoption.group
    assert group["nats_server_listen"] == "0.0.0.0:4222"
    assert group["nats_server_jetstream_max_file_store"] == 10 * 1024**3
    assert group["nats_server_service_name"] == "nats"
    assert group["nats_server_system_user"] == "admin"
    assert group["nats_server_config_file"] == "/etc/nats.conf"
    assert group["nats_server_lame_duck_duration"] is None
    assert group["nats_server_take_over"] is False
    # Apart from the variables, the configuration contains only the role's own additions.
    assert group["nats_server_config"] == {"system_account": None}
    # Hashes remain unchanged, and the password of the routes is plain, as it must be.
    vault = adoption.group_vault
    assert vault["vault_nats_accounts_APP_users_app_password"] == HASH
    assert vault["vault_nats_cluster_authorization_password"] == "rpass"
    assert vault["vault_nats_system_password"] == ""
    assert not [line for line in adoption.page.lines if "rpass" in line or HASH in line]
    assert "The first deploy: 0 restarts, 2 reloads, 0 units, 0 binaries." in adoption.page.lines


def test_nkey_of_a_system_user_is_requested() -> None:
    adoption = adopted(DEBIAN.replace(f"user: admin, password: {HASH}", f"nkey: U{'A' * 55}"))
    assert adoption.refusals == []
    assert "vault_nats_system_password" not in adoption.group_vault
    assert "nats_server_system_password" not in adoption.group
    assert [line for line in adoption.page.lines if "set nats_server_api_nkey to the seed" in line]


def test_a_configuration_as_the_helm_chart_renders_it() -> None:
    adoption = adopted(HELM, prefix="nats-")
    assert adoption.refusals == []
    group = adoption.group
    assert (group["nats_server_zone"], group["nats_server_zone_tag_prefix"]) == ("a", "zone:")
    assert group["nats_server_tags"] == ["ssd"]
    assert group["nats_server_pid_file"] == "/var/run/nats/nats.pid"
    # These are the values that the role itself would generate.
    assert "nats_server_cluster_routes" not in group
    assert group["nats_server_config"]["websocket"] == {"port": 8080, "no_tls": True}
    assert group["nats_server_config"]["http_port"] == 8222
    assert group["nats_server_config"]["cluster"] == {"no_advertise": True}


@pytest.mark.parametrize(("text", "prefix"), [(DEBIAN, "deb-"), (HELM, "nats-")])
def test_the_variables_make_the_same_configuration(text: str, prefix: str) -> None:
    adoption = adopted(text, prefix=prefix)
    members = [{"route_address": f"{prefix}{number}", "cluster_port": 6222} for number in (1, 2)]
    for number in (1, 2):
        assert made(adoption, f"{prefix}{number}", members) == normalise(discovered(text, number)["config"])


def test_differing_values_become_host_variables() -> None:
    one, two = discovered(DEBIAN, 1), discovered(DEBIAN.replace("8222", "8333").replace("rpass", "other"), 2)
    two["config"]["max_subscriptions"] = 7
    adoption = adopt({"h1": one, "h2": two}, {"h1": "h1", "h2": "h2"})
    assert adoption.hosts["h1"]["nats_server_http"] == 8222
    assert adoption.hosts["h2"]["nats_server_http"] == 8333
    assert adoption.hosts["h2"]["nats_server_config_host"] == {"max_subscriptions": 7}
    assert adoption.group["nats_server_config"] == {"system_account": None}
    assert adoption.host_vaults["h1"]["vault_nats_cluster_authorization_password"] == "rpass"
    assert adoption.host_vaults["h2"]["vault_nats_cluster_authorization_password"] == "other"


def test_unknown_keys_are_kept_and_listed() -> None:
    one = discovered(DEBIAN)
    one["config"]["of_the_future"] = {"deep": [1]}
    adoption = adopt({"h1": one}, {"h1": "h1"})
    assert adoption.group["nats_server_config"]["of_the_future"] == {"deep": [1]}
    lines = adoption.page.lines
    assert lines[lines.index("Unknown to this collection, kept in nats_server_config:") + 1].startswith(
        "  of_the_future"
    )


def test_plain_passwords_become_hashes_as_far_as_a_reload_brings_them() -> None:
    plain = DEBIAN.replace(f"user: app, password: {HASH}", "user: app, password: secret")
    plain += "leafnodes { port: 7422, authorization { user: leaf, password: far-away } }\n"
    adoption = adopted(plain, count=1)
    assert [(one.action, one.reasons) for one in adoption.servers] == [
        (
            "reload",
            [
                "leafnodes.authorization.password stays in plain text until the server is taken over: a hash needs a restart",
                "accounts.APP.users[app].password becomes a hash",
            ],
        )
    ]
    assert adoption.group_vault["vault_nats_accounts_APP_users_app_password"] == "secret"
    old = {**discovered(plain), "process": {**discovered(plain)["process"], "version": "2.9.10"}}
    adoption = adopt({"h1": old}, {"h1": "h1"})
    assert [("stays in plain text" in reason) for reason in adoption.servers[0].reasons] == [True, True]
    assert "The first deploy: 0 restarts, 1 reloads, 0 units, 0 binaries." in adoption.page.lines


def test_variables_and_flags_are_not_keys() -> None:
    text = "NAME = n1\nserver_name: $NAME\nlisten: 10.0.0.1:4222\njetstream { store_dir: /x }\n"
    adoption = adopted(text, count=1, argv=("-p", "5222", "--http_port=8222", "-DV"))
    assert adoption.refusals == []
    assert made(adoption, "h1", []) == normalise(
        {"server_name": "n1", "host": "10.0.0.1", "port": 5222, "http_port": 8222, "debug": True, "trace": True,
         "jetstream": {"store_dir": "/x"}}
    )  # fmt: skip


def test_quoted_sizes_of_jetstream_are_binary() -> None:
    """nats-server reads "1G" in quotes as 1 GiB, and 1G without them as 10^9."""
    text = 'server_name: n1\njetstream { store_dir: /x, max_mem: "64M", max_file: 1G, max_outstanding_catchup: "2K" }\n'
    group = adopted(text, count=1).group
    assert group["nats_server_jetstream_max_memory_store"] == 64 * 1024**2
    assert group["nats_server_jetstream_max_file_store"] == 10**9
    assert group["nats_server_jetstream_max_outstanding_catchup"] == 2048
    limits = 'server_name: n1\naccounts { APP { jetstream: { max_file: 1T, max_mem: "1G" } } }\n'
    # For this option nats-server refuses a string, so there is nothing to translate.
    assert adopted(limits, count=1).group["nats_server_accounts"]["APP"]["jetstream"]["max_memory"] == "1G"


def test_a_store_outside_of_the_jetstream_block_is_the_store() -> None:
    for jetstream in ("enabled", "true", "{ max_file: 10GB }"):
        one = discovered(f"server_name: n1\njetstream: {jetstream}\nstore_dir: /srv/ts\n")
        assert one["store"]["path"] == "/srv/ts"
        adoption = adopt({"h1": one}, {"h1": "h1"})
        assert adoption.refusals == []
        assert adoption.group["nats_server_jetstream_store_dir"] == "/srv/ts"
        assert not [line for line in adoption.page.lines if "store_dir" in line]


def test_variables_in_the_accounts_block_are_not_accounts() -> None:
    text = """
server_name: n1
APP = secret
accounts {
  reader: { publish: { deny: ">" } }
  APP: { users: [ { user: app, password: $APP, permissions: $reader } ] }
}
"""
    adoption = adopted(text, count=1)
    assert list(adoption.group["nats_server_accounts"]) == ["APP"]
    user = adoption.group["nats_server_accounts"]["APP"]["users"][0]
    assert user["permissions"] == {"publish": {"deny": [">"]}}
    assert adoption.group_vault["vault_nats_accounts_APP_users_app_password"] == "secret"


def test_accounts_may_be_a_list_of_names() -> None:
    adoption = adopted('server_name: n1\naccounts: [ synadia, "acme" ]\n', count=1)
    assert adoption.refusals == []
    assert adoption.group["nats_server_accounts"] == {"synadia": {}, "acme": {}}


def test_a_single_user_becomes_one_of_a_list() -> None:
    adoption = adopted(
        "server_name: n1\nauthorization { user: app, password: p, permissions: { publish: a } }\n", count=1
    )
    users = {"users": [{"user": "app", "password": "vault_nats_authorization_users_app_password"}]}
    assert adoption.group["nats_server_config"]["authorization"] == users
    assert adoption.group_vault["vault_nats_authorization_users_app_password"] == "p"
    assert [(one.action, one.reasons[0]) for one in adoption.servers] == [
        ("reload", "authorization.user becomes the only entry of authorization.users")
    ]


def test_a_token_has_to_become_a_user_first() -> None:
    refusals = adopted("server_name: n1\nauthorization { token: t }\n", count=1).refusals
    assert [text.startswith("h1: authorization.token: nats-server accepts no token") for text in refusals] == [True]
    assert "reload the server, then adopt it" in refusals[0]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no process": ({"found": False, "problem": "no nats-server runs here"}, "no nats-server runs here"),
    "not understood": ({"loaded": {"proof": "", "problem": "another digest"}}, "another digest"),
    "no file": ({"config_path": ""}, "without a configuration file"),
    "another name": ({"varz": {"server_name": "other"}}, "it would be renamed: it runs as other"),
    "a private directory": (
        {"store": {"path": "/x", "reported": "", "same": False}},
        "/x is a different directory for the process",
    ),
    "no directory": ({"store": {"path": "", "reported": "/tmp/nats", "same": True}}, "the streams are in /tmp/nats"),
    "another directory": ({"store": {"path": "/x", "reported": "/y/jetstream", "same": True}}, "it is in /y/jetstream"),
    "an unlisted server": ({"routes": ["deb-9"]}, "not in the inventory: deb-9"),
    "a relative certificate": (
        {"tls_files": [{"option": "o", "path": "c.pem", "exists": True}]},
        "o: c.pem is relative to the directory that the server was started in",
    ),
    "a relative store": (
        {"store": {"path": "data", "reported": "data/jetstream", "same": False}},
        "jetstream.store_dir data is relative to the directory",
    ),
    "a missing certificate": (
        {"tls_files": [{"option": "o", "path": "/p", "exists": False}]},
        "o: /p no longer exists",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_adoption_gives_the_reason(case: str) -> None:
    changes, expected = REFUSED[case]
    adoption = adopt({"h1": discovered(DEBIAN, **changes)}, {"h1": "h1"})
    assert [text for text in adoption.refusals if expected in text], adoption.refusals
    assert not adoption.servers


def test_servers_without_names_of_one_name_and_of_two_clusters() -> None:
    unnamed = DEBIAN.replace("server_name: deb-NUMBER", "").replace("name: deb, ", "")
    refusals = adopt({"h1": discovered(unnamed)}, {"h1": "h1"}).refusals
    assert ["server_name is not set" in refusals[0], "cluster.name is not set" in refusals[1]] == [True, True]
    same = DEBIAN.replace("deb-NUMBER", "deb-1")
    assert "2 servers are named deb-1" in adopted(same).refusals[0]
    two = {"h1": discovered(DEBIAN, 1), "h2": discovered(DEBIAN.replace("name: deb", "name: bed"), 2)}
    assert "several clusters (bed, deb)" in adopt(two, {"h1": "h1", "h2": "h2"}).refusals[0]


def test_a_unit_with_drop_ins_and_a_replaced_binary_are_to_be_seen_to() -> None:
    one = discovered(DEBIAN)
    drop_ins = [
        {"path": "/etc/systemd/system/nats.service.d/limits.conf", "options": ["LimitNOFILE", "MemoryMax"]},
        {"path": "/etc/systemd/system/nats.service.d/start.conf", "options": ["ExecStart", "MemoryMax", "User"]},
    ]
    one["unit"] = {**one["unit"], "drop_ins": drop_ins}
    one["process"] = {**one["process"], "binary": "/usr/sbin/nats-server (deleted)"}
    todo = adopt({"h1": one}, {"h1": "h1"}).servers[0].todo
    expected = (
        "limits.conf sets LimitNOFILE, MemoryMax and still overrides",
        "start.conf sets ExecStart, User, which the role's unit also sets",
        "binary has been replaced",
    )
    assert [text in line for text, line in zip(expected, todo[1:], strict=True)] == [True] * 3


def test_unit_settings_go_to_the_inventory_and_secrets_to_the_vault() -> None:
    one = discovered(DEBIAN)
    settings = [("MemoryMax", "8G"), ("LimitNOFILE", "1000000"), ("ExecStartPre", "/bin/true")]
    one["unit"] |= {
        "settings": [{"section": "Service", "option": option, "value": value} for option, value in settings],
        "environment": {"GOGC": "50", "PROXY": "http://a:hunter2@c"},
        "enabled": False,
    }
    adoption = adopt({"h1": one}, {"h1": "h1"})
    group = adoption.group
    assert group["nats_server_service_overrides"] == {"Service": {"MemoryMax": "8G"}}
    assert group["nats_server_service_limit_nofile"] == 1000000
    assert group["nats_server_service_enabled"] is False
    assert group["nats_server_service_environment"] == {"GOGC": "50", "PROXY": "vault_nats_environment_PROXY"}
    assert isinstance(group["nats_server_service_environment"]["PROXY"], Secret)
    assert adoption.group_vault["vault_nats_environment_PROXY"] == "http://a:hunter2@c"
    lines = adoption.page.lines
    assert lines[lines.index("Kept from the unit in nats_server_service_overrides:") + 1] == "  MemoryMax"
    assert [line for line in lines if "sets ExecStartPre, which the role's unit does not have" in line]
    assert not [line for line in lines if "hunter2" in line]


def test_refusals_of_the_first_deploy_are_listed() -> None:
    for text in (DEBIAN, HELM):
        assert not [line for server in adopted(text).servers for line in server.todo if "refuses" in line]
    short = "server_name: n1\nlame_duck_duration: 10s\nlame_duck_grace_period: 5s\n"
    todo = adopted(short, count=1).servers[0].todo
    assert [text for text in todo if text.startswith("the first deploy refuses lame_duck_duration: ")], todo


_values = st.recursive(
    st.integers() | st.booleans() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=8,
)
_maps = st.dictionaries(st.sampled_from("abcd"), _values, max_size=4)


@given(wanted=_maps, base=_maps)
def test_the_difference_makes_one_of_the_other(wanted: dict[str, Any], base: dict[str, Any]) -> None:
    def without_nulls(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: without_nulls(item) for name, item in value.items() if item is not None}
        return value

    before = copy.deepcopy(base)
    assert without_nulls(merged(base, difference(wanted, base, None))) == wanted
    assert base == before
