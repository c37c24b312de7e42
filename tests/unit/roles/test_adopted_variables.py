# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role renders the variables of an adopted server to the configuration that was adopted, value by value."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.adoption import Secret, adopt
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.command_line import loaded_config
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.reading import read_config
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.reload_rules import config_change
from support.foreign import discovered
from support.role_rendering import rendered

HASH = "$2a$11$abcdefghijklmnopqrstuuWpXw6dJQm5hF3rXQpQ0mXf9eYfYkC9u"
FORMS = {
    "a single server": "server_name: sNUMBER\njetstream { store_dir: /srv/nats }\nport: 4333\n",
    "defaults": f"""
server_name: dNUMBER
jetstream {{ store_dir: /srv/nats, max_mem: 1G, unique_tag: "az:" }}
server_tags: ["fast", "az:NUMBER"]
accounts {{ $SYS {{ users: [ {{ user: admin, password: {HASH} }} ] }}, APP {{ jetstream: true, users: [ {{ nkey: UABC }} ] }} }}
cluster {{ name: d, routes: [ "nats://h1:6222", "nats://h2:6222" ] }}
no_auth_user: admin
""",
    "tls, gateways and leafnodes": """
server_name: tNUMBER
listen: "[::]:4222"
https: "0.0.0.0:8222"
tls { cert_file: /t/c.pem, key_file: /t/k.pem, ca_file: /t/ca.pem, verify: true, timeout: 2.5 }
jetstream { store_dir: /x, domain: hub, key: "secret key", limits { max_ack_pending: 10 } }
cluster { name: T, listen: 10.0.0.NUMBER:6222, advertise: "h:6222", compression: s2_fast, pool_size: 5, accounts: [A]
  tls { cert_file: /t/c.pem, key_file: /t/k.pem, ca_file: /t/ca.pem }
  authorization { user: r, password: "p w", timeout: 3 }, routes: [ "nats://r:p%20w@h1:6222" ] }
gateway { name: T, port: 7222, gateways: [ { name: T, urls: ["nats://h1:7222"] }, { name: U, url: "nats://u:7222" } ] }
leafnodes { port: 7422, remotes: [ { url: "nats-leaf://a:b@far:7422", account: A } ] }
accounts { A { jetstream: { max_mem: 1G, max_file: 2G }
  users: [ { user: a, password: "{{ no }}", permissions: { publish: ">" } } ] } }
system_account: A
lame_duck_duration: 45s
log_file: /var/log/n.log
logtime_utc: true
mqtt { port: 1883 }
""",
    "a user": """
server_name: kNUMBER
authorization { user: u, password: p, timeout: 1 }
http_port: 8222
pid_file: /run/n/n.pid
""",
}


def variables(values: dict[str, Any], vault: dict[str, str]) -> dict[str, Any]:
    """Return variables as Ansible stores them: secrets are references, and no other string is a template."""

    def as_written(value: Any) -> Any:
        if isinstance(value, Secret):
            return f"{{{{ {value} }}}}"
        if isinstance(value, dict):
            return {name: as_written(item) for name, item in value.items()}
        return [as_written(item) for item in value] if isinstance(value, list) else value

    literal = {name: f"{{{{ {json.dumps(value)} }}}}" if "{{" in value else value for name, value in vault.items()}
    return {**as_written(values), **literal}


def content_text(folder: Path, host: str, path: str) -> str:
    """Return the file that was rendered for that path of a host."""
    rendered_as = {"nats.conf": "nats-server.conf", "nats-secrets.conf": "secrets.conf"}[Path(path).name]
    return (folder / f"{host}.{rendered_as}").read_text()


@pytest.mark.parametrize("form", FORMS)
def test_rendered_configuration_matches_the_adopted_one(tmp_path: Path, form: str) -> None:
    found = {f"h{number}": discovered(FORMS[form], number) for number in (1, 2)}
    if "cluster" not in FORMS[form]:
        found = {"h1": found["h1"]}
    adoption = adopt(found, {host: host for host in found})
    assert adoption.refusals == []
    hosts = {host: variables(adoption.hosts[host], adoption.host_vaults[host]) for host in found}
    rendered(tmp_path, variables(adoption.group, adoption.group_vault), hosts)
    for host, one in found.items():
        reading = read_config("/etc/nats.conf", partial(content_text, tmp_path, host), {})
        again = loaded_config(reading.config, []).config
        keys = config_change(one["config"], again, "2.15.1")["keys"]
        # A plain password that the server checks becomes a hash, and no other value differs.
        plain = {
            "a user": ["authorization.password", "authorization.user", "authorization.users"],
            "tls, gateways and leafnodes": ["accounts.A.users[a].password"],
        }
        assert keys == plain.get(form, [])
