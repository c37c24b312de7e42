# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares the collection's reading of nats-server's configuration with the digest that a real server reports for the
same files."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.reading import (
    ConfigSyntaxError,
    config_digest,
    read_config,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.syntax import quote
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.nats_processes import binary

HASH = "$2a$11$abcdefghijklmnopqrstuuWpXw6dJQm5hF3rXQpQ0mXf9eYfYkC9u"
ENVIRONMENT = {
    "SERVER_NAME": "nats-0",
    "PASSWORD": "se-cret",
    "LIMIT": "12",
    "QUOTED": '"1-b"',
    "ALIAS": "$LIMIT",
    "WORD": "8m4dwr",
}

# The files of each case by name; the first file is the configuration.
READ = {
    "Debian's": {"nats-server.conf": "host: 127.0.0.1\nport: 4222\n"},
    "by hand": {
        "c.conf": f"""\
ME = n1
server_name: $ME
port 4222
include ./limits.conf
jetstream {{ store_dir: "/tmp/x", max_file_store = 10Gi; max_memory_store 1gb }}
cluster: {{
  name: C1, listen: 0.0.0.0:6222
  routes = [
    nats-route://h1:6222  // one
    nats-route://h2:6222, 'nats://h3:6222'
  ]
  compression: {{ mode: s2_auto, rtt_thresholds: [ 10ms, 50ms ] }}
}}
write_deadline: "2m"
ping_interval: "30s"
lame_duck_duration: 30s
authorization {{ users = [
  {{user: a, password: {HASH}}}
  # another
  {{user: "b<>&é\\t\\x41\\"", password: $PASSWORD, permissions: {{ publish: ["a.>", ">"], subscribe: {{ deny: foo }} }}}} ] }}
max_payload: 1MB; max_connections: 1k
logtime: YES
no_auth_user: a
""",
        "limits.conf": "http: localhost:8222\nlim = 12\nmax_subscriptions: $lim\nserver_tags: ['az:a', b]\n",
    },
    "as the Helm chart renders it": {
        "nats.conf": """\
{
  "cluster": {
    "name": "nats",
    "no_advertise": true,
    "port": 6222,
    "routes": [
      "nats://nats-0.nats-headless:6222",
      "nats://nats-1.nats-headless:6222"
    ]
  },
  "http_port": 8222,
  "jetstream": {
    "max_file_store": 10Gi,
    "max_memory_store": 0,
    "store_dir": "/data"
  },
  "lame_duck_duration": "30s",
  "lame_duck_grace_period": "10s",
  "pid_file": "/var/run/nats/nats.pid",
  "port": 4222,
  include ./accounts.conf;
  "server_name": $SERVER_NAME
}
""",
        "accounts.conf": '{"accounts": {"A": {"users": [{"user": "u", "password": $PASSWORD}]}}}\n',
    },
    "variables": {
        "c.conf": "A: $LIMIT\nmax_connections: $A\nserver_name: $QUOTED\nmax_subscriptions: $ALIAS\n"
        "cluster { P: 7000, port: $P, name: x }\n"
    },
    "an include in a block, and one with a leading slash": {
        "c.conf": "port: 4222\ncluster {\n  include sub/c.conf\n  port: 6000 }\ninclude '/sub/d.conf'\n",
        "sub/c.conf": 'name: "C"\ninclude ./e.conf\n',
        "sub/d.conf": "debug: off\n",
        "sub/e.conf": "no_advertise: true",
    },
    "twice": {"c.conf": "cluster { name: a, port: 1 }\nport: 1\nPort: 2\nport: 3\ncluster { name: b }\n"},
    "numbers": {
        "c.conf": "server_tags: [ 10.0.0.1, 1x, 127.0.0.1:4222 # a comment\n 2]\n ]\nport: -1\nmax_payload: 5MiB\n"
        "max_pending: 10m; authorization { timeout: 1.5 }\njetstream { max_file_store: 1TB, max_mem: 2Ki }\n"
        "tls { timeout: 3.0 }\n",
    },
    "words that begin like a size": {
        "c.conf": "authorization { timeout: 1, users: [ {user: a, password: 5e7bcdabc10}, {user: b, password: -4e2}\n"
        "{user: c, password: 0K1abc}, {user: d, password: 12kib3}, {user: e, password: $WORD} ] }\n"
        "server_tags: [ 8m4dwr, 1e400\n 3k1\\x41, 10kb5]\nmax_payload: 5k\nmax_pending: 10MiB\n"
    },
    "a variable in the accounts": {
        "c.conf": "accounts { reader: { publish: { deny: '>' } }\n"
        "APP: { users: [ {user: app, password: p, permissions: $reader} ] } }\n"
    },
    "accounts without users": {"c.conf": 'accounts: [ synadia, "acme" ]\n'},
    "quoted sizes, and the store outside": {
        "c.conf": 'jetstream { max_mem: "64M", max_file: "1G" }\nstore_dir: "/tmp/x"\n'
    },
    "a text in parentheses": {"c.conf": "server_metadata {\n a: (\nfirst (line)\n  second)\n)\n}\n"},
    "quotes": {
        "c.conf": "\"port\": 1\nserver_metadata { 'a key': 'it \\n'\n'b': \"\\\\ \\\" \\t\"\nc: a\\tb\nd: don'\n}\n"
    },
    "spread": {"c.conf": "port\n:\t4222\ncluster\n{\nname:\n\nc\n}\n// end"},
}

REFUSED = {
    "no value": "port:\n",
    "an open block": "cluster { name: x\n",
    "an open list": "X: [ 1, \n",
    "an open text": 'X: "abc\n',
    "an unset variable": "port: $NOWHERE\n",
    "a cycle": "port: $ROUND\n",
    "a missing file": "include ./nowhere.conf\n",
    "another hash without quotes": f"X: {HASH.replace('$2a$', '$2b$')}\n",
    "no comma": "X: [ {a: 1} {b: 2} ]\n",
    "a bare date": "X: 2024-01-01\n",
    "an unknown escape": 'X: "\\q"\n',
    "a fraction without digits": "X: 1.\n",
    "digits of another script": "X: ٣\n",
}


def lay(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())
    return folder / next(iter(files))


def told(path: Path) -> str:
    """Return the digest that nats-server reports for a file, or its error message."""
    environment = {**os.environ, **ENVIRONMENT, "ROUND": "$ROUND"}
    command = [binary("2.15.1"), "-t", "-c", str(path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=20, env=environment)
    found = re.search("sha256:[0-9a-f]{64}", done.stdout + done.stderr)
    return found[0] if found else done.stdout + done.stderr


def ours(path: Path) -> str:
    return config_digest(read_config(str(path), lambda name: Path(name).read_bytes().decode(), ENVIRONMENT).config)


@pytest.mark.parametrize("case", READ)
def test_the_digest_is_the_servers(tmp_path: Path, case: str) -> None:
    path = lay(tmp_path, READ[case])
    digest = told(path)
    assert digest.startswith("sha256:"), digest
    assert ours(path) == digest


@pytest.mark.parametrize("case", REFUSED)
def test_configurations_that_the_server_rejects_are_refused(tmp_path: Path, case: str) -> None:
    path = lay(tmp_path, {"c.conf": REFUSED[case]})
    assert not told(path).startswith("sha256:")
    with pytest.raises(ConfigSyntaxError, match=re.escape(str(path)) + ", line [12]: |nowhere.conf: cannot be read"):
        ours(path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: " + "[" * 3000, "blocks and lists are nested more than 100 levels deep"),
        ("a { " * 3000, "blocks and lists are nested more than 100 levels deep"),
        ("a: " + "9" * 5000, "a number is beyond 64 bits"),
        ("a: $DEEP", "the environment variable DEEP is not a valid"),
    ],
)
def test_hostile_texts_have_an_end(tmp_path: Path, text: str, problem: str) -> None:
    path = lay(tmp_path, {"c.conf": text})
    with pytest.raises(ConfigSyntaxError, match=problem):
        read_config(str(path), lambda name: Path(name).read_text(), {"DEEP": "[" * 3000})


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(values=st.dictionaries(st.from_regex(r"[a-z]{1,6}", fullmatch=True), st.text(), min_size=1, max_size=8))
def test_any_text_is_read_as_the_server_reads_it(tmp_path: Path, values: dict[str, str]) -> None:
    pairs = ", ".join(f"k{name}: {quote(value)}" for name, value in values.items())
    path = lay(tmp_path, {"c.conf": f"server_metadata: {{ {pairs} }}\n"})
    assert ours(path) == told(path)
