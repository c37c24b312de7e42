# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The secrets in a host's own files are redacted by their parsed keys, in any style and by any author."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.host.own_files import own_config, own_files
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.reading import (
    ConfigSyntaxError,
    read_config,
)

SECRETS = {
    "in a block without separators": "hunter one",
    "by a variable of any name": "hunter-two",
    "in an included file": "hunter%three",
    "in JSON on one line": 'hunter"four',
    "of a route": "hunter%205",
    "of an unknown key": "hunter-six",
    "repeated where no secret belongs": "hunter-seven",
    "of an encrypted store": "hunter-eight",
    "in a comment": "hunter-nine",
}
MAIN = """\
# the old one was hunter-nine
server_name: n1, listen: 127.0.0.1:4222
ANYTHING = hunter-two
authorization { user joe, password "hunter one" }
leafnodes { port: 7422, authorization { user: leaf, password: $ANYTHING } }
cluster { name: C, port: 6222, routes: [ "nats://r:hunter%205@h:6222" ] }
jetstream { store_dir: /srv, key = hunter-eight }
new_feature { secret: hunter-six }
websocket { port: 8080, no_tls: true, token: "hunter-seven" }
server_tags: [ "see:hunter-seven" ]
include ./parts/more.conf
max_connections: $NOT_IN_THE_ENVIRONMENT
max_payload: 1MB
"""
MORE = """\
{"gateway": {"name": "C", "port": 7222, "authorization": {"user": "g", "password": "hunter%three"}},
 "mqtt": {"port": 1883, "authorization": {"username": "m", "password": "hunter\\"four"}}}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "more.conf").write_text(MORE)
    path = tmp_path / "hand.conf"
    path.write_text(MAIN)
    return path


def test_no_secret_is_in_the_text_and_all_else_is(config: Path) -> None:
    own = own_config(str(config))
    assert [where for where, secret in SECRETS.items() if secret in own.text] == []
    known = {secret for where, secret in SECRETS.items() if where not in ("in a comment", "of a route")}
    assert known | {"nats://r:hunter%205@h:6222"} == own.secrets
    values = {f"SECRET_{name}": "x" for name in re.findall(r"\$SECRET_(\w+)", own.text)}
    again = read_config("/c", lambda _path: own.text, values).config
    assert (again["server_name"], again["max_payload"]) == ("n1", 1024**2)
    assert again["mqtt"]["authorization"] == {"user": "m", "password": "x"}
    assert again["server_tags"] == ["[redacted]"]
    assert own.unread == ("max_connections",)


def test_the_files_that_it_names_come_along(config: Path, tmp_path: Path) -> None:
    (tmp_path / "jwt" / "A").mkdir(parents=True)
    (tmp_path / "jwt" / "A" / "AB.jwt").write_text("eyJ0eXAiOiJKV1QifQ.claims.signature")
    (tmp_path / "ca.crt").write_text("certificate\n-----BEGIN PRIVATE KEY-----\nxyz\n-----END PRIVATE KEY-----\n")
    config.write_text(
        MAIN + 'tls { ca_file: "ca.crt", cert_file: c, key_file: k }\nresolver { type: full, dir: jwt }\n'
    )
    files, problems = own_files(str(config))
    assert sorted(files) == ["AB.jwt", "ca.crt", "hand.conf"]
    assert files["AB.jwt"].startswith("eyJ")
    assert files["ca.crt"].startswith("certificate") and "xyz" not in files["ca.crt"]
    assert problems == [f"{config}: max_connections was not recognised and was left out"]


def test_unparsable_keys_are_left_out(config: Path) -> None:
    config.write_text("authorization { password: hunter-two")
    with pytest.raises(ConfigSyntaxError):
        own_config(str(config))
    files, problems = own_files(str(config))
    assert files == {}
    assert "hand.conf, line 1" in problems[0] and "left out" in problems[0]
    assert own_files(str(config) + ".gone") == ({}, [f"{config}.gone does not exist"])
