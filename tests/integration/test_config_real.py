# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the collection's rendering of nats-server's configuration, and its rules for it, with real servers of three
versions."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.passwords import hash_passwords
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.reload_rules import config_change
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.schema import SCHEMA, Key
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.syntax import write
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.topology import routes
from ansible_collections.natsops.jetstream.plugins.module_utils.times import certificate_ends
from ansible_collections.natsops.jetstream.plugins.module_utils.units import size_bytes
from ansible_collections.natsops.jetstream.plugins.module_utils.versions import supports
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.credentials import make_certificates
from support.nats_processes import binary, free_ports
from support.single_server import Server, running, write_files

VERSIONS = ["2.9.10", "2.10.27", "2.15.1"]
RELOADABLE = ["2.10.27", "2.15.1"]
EVERY_VERSION = pytest.mark.parametrize("version", VERSIONS)

AWKWARD = [
    "plain", "123", "-5", "1e5", "10k", "10GB", "1_000", "0x10", "1.5", "true", "on", "yes", "No", "null",
    "2024-01-01", "2024-01-01T00:00:00Z", "127.0.0.1:4222", "$HOME", "$2x", "${A}", "a$b", "# no comment", "// neither",
    'a "word"', "it's", "back\\slash", "\\n", "ends with \\", "tab\there", "line\nbreak", "cr\rhere", " leading", "trailing ",
    " ", "a,b", "a;b", "a=b", "a:b", "{curly}", "[square]", "(round)\n)\n", "include", "include x", "é", "日本", "😀", "\u2028",
    "\x00nul", "\x01\x1f\x7f", "\u0085", "\ufeff", "%41", "a@b/c", "`x`",
]  # fmt: skip


def check(version: str, file: Path) -> str:
    """Return the output of ``nats-server -t``, which is empty if the server accepts the file."""
    done = subprocess.run(
        [binary(version), "-t", "-c", str(file)], check=False, capture_output=True, text=True, timeout=20
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def users(passwords: list[str]) -> list[dict[str, str]]:
    return [{"user": f"user{number}", "password": password} for number, password in enumerate(passwords)]


# --- The writer -----------------------------------------------------------------------------------------------------


@EVERY_VERSION
def test_any_password_logs_in(version: str) -> None:
    anything = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)

    @settings(max_examples=4, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(anything, min_size=40, max_size=80))
    def logs_in(generated: list[str]) -> None:
        passwords = AWKWARD + generated
        with running(version, {"accounts": {"APP": {"users": users(passwords)}}}) as server:
            for number, password in enumerate(passwords):
                assert server.login(user=f"user{number}", **{"pass": password}), repr(password)
            assert not server.login(user="user0", **{"pass": "wrong"})

    logs_in()


@EVERY_VERSION
def test_hashed_passwords_log_in(version: str) -> None:
    passwords = [password for password in AWKWARD if "\0" not in password]
    config = hash_passwords({"accounts": {"APP": {"users": users(passwords)}}}, cost=4)
    as_2y = hash_passwords({"authorization": {"token": "tok$en"}}, cost=4)
    as_2y["authorization"]["token"] = "$2y$" + as_2y["authorization"]["token"][4:]
    with running(version, config) as server:
        assert all(server.login(user=f"user{n}", **{"pass": password}) for n, password in enumerate(passwords))
        assert not server.login(user="user0", **{"pass": "wrong"})
    with running(version, as_2y) as server:
        assert server.login(auth_token="tok$en")
        assert not server.login(auth_token="wrong")


@EVERY_VERSION
def test_any_key_arrives(version: str) -> None:
    names = {name for name in AWKWARD if "\0" not in name} | {
        "$X",
        "a.b",
        "both \"and' quotes".replace(" ", "_"),
        "foo.>",
        "*",
    }
    with running(version, {"accounts": {name: {} for name in names}}) as server:
        assert set(server.get("accountz")["accounts"]) >= names


@EVERY_VERSION
def test_values_arrive_with_their_type(version: str, tmp_path: Path) -> None:
    config = {
        "server_name": "123",
        "server_tags": ["Az:1", "true", "#x"],
        "max_payload": "2MB",
        "max_control_line": "3K",
        "max_connections": "77",
        "ping_interval": "1m30s",
        "write_deadline": 7,
        "authorization": {"timeout": "1500ms", "user": "a", "password": "b"},
        "debug": "False",
        "logtime": False,
        "jetstream": {"store_dir": str(tmp_path / "it's # $HOME"), "max_file": "2GB", "max_mem": "5M", "domain": "hub"},
    }
    with running(version, config) as server:
        varz = server.get("varz")
        store = varz["jetstream"]["config"]
    assert varz["server_name"] == "123"
    assert sorted(varz["tags"]) == ["#x", "az:1", "true"]
    assert (varz["max_payload"], varz["max_control_line"], varz["max_connections"]) == (2 * 1024**2, 3000, 77)
    assert (varz["ping_interval"], varz["write_deadline"], varz["auth_timeout"]) == (90 * 10**9, 7 * 10**9, 1.5)
    assert (store["max_storage"], store["max_memory"]) == (2 * 1024**3, 5_000_000)
    assert store["store_dir"] == str(tmp_path / "it's # $HOME" / "jetstream")


@EVERY_VERSION
@pytest.mark.parametrize("size", ["7", "7k", "7KB", "7KiB", "7M", "7MB", "7g", "7GB", "7T", "7TB", "7TiB"])
def test_sizes_have_the_expected_values(version: str, size: str, tmp_path: Path) -> None:
    if version == "2.15.1" or size in ("7", "7GB", "7TB"):
        with running(version, {"jetstream": {"store_dir": str(tmp_path), "max_file_store": size}}) as server:
            assert server.get("varz")["jetstream"]["config"]["max_storage"] == size_bytes(size)
    else:
        assert check(version, write_files({"jetstream": {"max_file_store": size}}, tmp_path)) == ""


@contextmanager
def two_servers(
    version: str,
    directory: Path,
    authorization: dict[str, str],
    more: dict[str, Any],
    tls: dict[str, Any] | None = None,
) -> Iterator[list[Server]]:
    """Two servers that reach each other only by route URLs from the secrets file."""
    ports = free_ports(2)
    members = [{"host": f"n{i}", "route_address": "127.0.0.1", "cluster_port": port} for i, port in enumerate(ports)]
    with ExitStack() as stack:
        servers = []
        for number, port in enumerate(ports):
            folder = directory / f"n{number}"
            folder.mkdir(parents=True)
            cluster = {
                "name": "C1",
                "listen": f"127.0.0.1:{port}",
                "authorization": authorization,
                "routes": routes(members, authorization=authorization),
                **({"tls": tls} if tls else {}),
            }
            config = {"server_name": f"n{number}", "cluster": cluster, **more}
            config["jetstream"] = {"store_dir": str(folder), **more.get("jetstream", {})}
            servers.append(stack.enter_context(running(version, config, folder)))
        yield servers


def wait_for_routes(servers: list[Server]) -> None:
    deadline = time.monotonic() + 10
    while not all(server.get("routez")["num_routes"] for server in servers):
        assert time.monotonic() < deadline, (servers[0].directory / "log").read_text()
        time.sleep(0.05)


@EVERY_VERSION
def test_secrets_resolve_in_blocks_arrays_and_urls(version: str, tmp_path: Path) -> None:
    login = {"user": "route r", "password": 'p:/@#$ "x"'}
    more: dict[str, Any] = {
        "jetstream": {"encryption_key": 'k"e$y#'},
        "leafnodes": {"remotes": [{"urls": ["nats://u:p@127.0.0.1:1"], "account": "APP"}]},
        "accounts": {"$SYS": {"users": [{"user": "sys", "password": "s"}]}, "APP": {"users": users(["$x"])}},
    }
    with two_servers(version, tmp_path, login, more) as servers:
        for server in servers:
            text = write(server.config, reference=True)
            assert "route%20r" not in text and "k\\" not in text and "u:p@" not in text and "$x" not in text
            assert check(version, server.directory / "nats-server.conf") == ""
        assert all(server.login(user="user0", **{"pass": "$x"}) for server in servers)
        wait_for_routes(servers)


@EVERY_VERSION
def test_routes_are_identified_by_their_certificates(version: str, tmp_path: Path) -> None:
    """The servers use verify_and_map and a user named after the certificate; the URLs contain no password."""
    made = make_certificates(tmp_path)
    tls = {"cert_file": str(made.cert), "key_file": str(made.key), "ca_file": str(made.ca), "verify_and_map": True}
    with two_servers(version, tmp_path / "known", {"user": "n1.test"}, {}, tls) as servers:
        assert all("@" not in url for url in servers[0].config["cluster"]["routes"])
        wait_for_routes(servers)
    with two_servers(version, tmp_path / "unknown", {"user": "n9.test"}, {}, tls) as servers:
        deadline = time.monotonic() + 10
        while "Authorization Violation" not in (servers[0].directory / "log").read_text():
            assert time.monotonic() < deadline, (servers[0].directory / "log").read_text()
            time.sleep(0.05)
        # The soliciting server lists its route until the route is refused.
        listed = [route for server in servers for route in server.get("routez").get("routes", ())]
        assert all(route["did_solicit"] for route in listed), listed


@EVERY_VERSION
def test_a_configuration_without_secrets_is_accepted(version: str, tmp_path: Path) -> None:
    assert check(version, write_files({"port": 4222}, tmp_path)) == ""


# --- The schema -----------------------------------------------------------------------------------------------------

SAMPLE = {
    "string": "x", "strings": ["x"], "int": 1, "bool": True, "duration": "1s", "durations": ["1s"], "seconds": 1,
    "size": "1MB", "intstr": "x", "switch": "off", "any": True, "map": {}, "block": {}, "float": 1.5,
}  # fmt: skip
LISTS = {"users", "remotes", "gateways", "certs", "trusted", "imports", "exports"}
# If these keys are set alone, the server does not distinguish them from unknown keys.
NOT_TOLD_APART = {
    "resolver.hard_delete", "leafnodes.remotes.jetstream_cluster_migrate.leader_migrate_delay",
    "authorization.auth_callout.allowed_accounts",
}  # fmt: skip


def single_keys() -> Iterator[tuple[str, Key, dict[str, Any]]]:
    """Return each key of the schema, in a minimal configuration that sets it."""
    seen: set[int] = set()

    def walk(key: Key, path: tuple[str, ...]) -> Iterator[tuple[str, Key, tuple[str, ...]]]:
        for name, child in key.children.items():
            if id(child) not in seen and name != "*":
                seen.add(id(child))
                yield ".".join((*path, name)), child, (*path, name)
            yield from walk(child, (*path, name))

    for dotted, key, path in walk(SCHEMA, ()):
        value: Any = SAMPLE[key.types[0]]
        for name in reversed(path):
            if name in LISTS and isinstance(value, dict):
                value = [value]
            value = {"X" if name == "*" else name: value}
        yield dotted, key, value


@EVERY_VERSION
def test_each_key_is_supported_from_its_listed_release(version: str, tmp_path: Path) -> None:
    wrong = []
    for path, key, config in single_keys():
        output = check(version, write_files(config, tmp_path))
        field = re.search(r'unknown (?:configuration )?field [\["]+(\w+)', output)
        unknown = field is not None and field[1] in path.split(".")
        if unknown == supports(key.since, version) and path not in NOT_TOLD_APART:
            wrong.append(f"{path} (since {key.since or 'always'}): {output.strip() or 'accepted'}")
    assert wrong == []


# --- Reload or restart ----------------------------------------------------------------------------------------------

CALLOUT = {
    "issuer": "ABJHLOVMPA4CI6R5KLNGOB4GSLNIY7IOUPAJC4YFNDLQVIOBYQGUWVLA", "account": "APP", "auth_users": ["a", "sys"],
}  # fmt: skip
CHANGES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"debug": True}),
    ({}, {"max_payload": "2MB"}),
    ({}, {"max_connections": 10}),
    ({}, {"ping_interval": "30s"}),
    ({}, {"write_deadline": "5s"}),
    ({}, {"server_tags": ["a"]}),
    ({}, {"client_advertise": "10.0.0.1:4222"}),
    ({}, {"max_control_line": "8KB"}),
    ({}, {"connect_error_reports": 10}),
    ({}, {"logtime_utc": True}),
    ({"authorization": {"timeout": 2}}, {"authorization": {"timeout": 3}}),
    ({}, {"authorization": {"timeout": 3}}),
    ({}, {"authorization": {"auth_callout": CALLOUT}}),
    (
        {"authorization": {"auth_callout": CALLOUT}},
        {"authorization": {"auth_callout": {**CALLOUT, "auth_users": ["sys"]}}},
    ),
    ({}, {"authorization": {"proxy_required": True}}),
    ({}, {"max_pending": "32MB"}),
    ({}, {"max_subscriptions": 100}),
    ({}, {"max_closed_clients": 100}),
    ({}, {"lame_duck_duration": "40s"}),
    ({}, {"lame_duck_grace_period": "5s"}),
    ({}, {"http_base_path": "/x"}),
    ({}, {"disable_sublist_cache": True}),
    ({}, {"no_header_support": True}),
    ({}, {"server_name": "other"}),
    ({"jetstream": {"max_file_store": "100MB"}}, {"jetstream": {"max_file_store": "200MB"}}),
    ({"jetstream": {"max_file_store": "100MB"}}, {"jetstream": {"max_file_store": "50MB"}}),
    ({}, {"jetstream": {"domain": "hub"}}),
    ({}, {"jetstream": {"unique_tag": "az:"}}),
    ({"jetstream": {"limits": {"max_ha_assets": 5}}}, {"jetstream": {"limits": {"max_ha_assets": 10}}}),
    ({"jetstream": {"limits": {"default_max_consumers": 5}}}, {"jetstream": {"limits": {"default_max_consumers": 50}}}),
    ({}, {"cluster": {"no_advertise": True}}),
    ({}, {"cluster": {"pool_size": 5}}),
    ({}, {"cluster": {"accounts": ["APP"]}}),
    ({"cluster": {"compression": "s2_best"}}, {"cluster": {"compression": "s2_fast"}}),
    ({}, {"cluster": {"port": 0}}),
    ({}, {"accounts": {"APP": {"limits": {"max_connections": 5}}}}),
    ({}, {"accounts": {"NEW": {"jetstream": True, "users": [{"user": "n", "password": "n"}]}}}),
]  # fmt: skip


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    both = {**base, **over}
    return {
        k: merged(base[k], v) if isinstance(base.get(k), dict) and isinstance(v, dict) else v for k, v in both.items()
    }


@pytest.mark.parametrize("version", RELOADABLE)
def test_reload_accepts_the_listed_changes(version: str, tmp_path: Path) -> None:
    cluster_port, other_port = free_ports(2)
    base: dict[str, Any] = {
        "server_name": "n1",
        "jetstream": {"store_dir": str(tmp_path / "store")},
        "cluster": {"name": "C1", "host": "127.0.0.1", "port": cluster_port, "routes": ["nats://127.0.0.1:1"]},
        "accounts": {
            "$SYS": {"users": [{"user": "sys", "password": "s"}]},
            "APP": {"jetstream": True, "users": [{"user": "a", "password": "a"}]},
        },
    }

    async def reload(server: Server, config: dict[str, Any]) -> str:
        server.write(config)
        client = await nats.connect(f"nats://127.0.0.1:{server.port}", user="sys", password="s")
        try:
            reply = await client.request(f"$SYS.REQ.SERVER.{server.get('varz')['server_id']}.RELOAD", b"", timeout=5)
            return str((json.loads(reply.data).get("error") or {}).get("description", ""))
        finally:
            await client.close()

    wrong = []
    for fragment, change in CHANGES:
        old = merged(base, fragment)
        new = merged(old, change)
        if new["cluster"]["port"] == 0:
            new["cluster"]["port"] = other_port
        if check(version, write_files(new, tmp_path)):
            continue  # This version does not have the key.
        expected = config_change(old, new, version)
        with running(version, old) as server:
            error = asyncio.run(reload(server, new))
        if bool(error) != (expected["action"] == "restart"):
            wrong.append(f"{change}: expected {expected}, the server: {error or 'accepted'}")
    assert wrong == []


@pytest.mark.parametrize("version", RELOADABLE)
def test_a_single_user_becomes_one_of_a_list_by_a_reload(version: str, tmp_path: Path) -> None:
    """The first deployment of an adopted server makes this change to add a user to the system account."""
    single = {"authorization": {"user": "app", "password": "secret", "timeout": 1}}
    system = {"$SYS": {"users": [{"user": "sys", "password": "s"}]}}
    assert "single user" in check(version, write_files({**single, "accounts": system}, tmp_path))
    several = {"authorization": {"timeout": 1, "users": [{"user": "app", "password": "secret"}]}, "accounts": system}
    assert config_change(single, several, version)["action"] == "reload"
    with running(version, single) as server:
        server.reload(several)
        assert server.login(user="sys", **{"pass": "s"})
        assert server.login(user="app", **{"pass": "secret"})
        assert not server.login(user="app", **{"pass": "other"})


@pytest.mark.parametrize("version", RELOADABLE)
def test_a_refused_reload_would_print_the_key_that_we_restart_for(version: str, tmp_path: Path) -> None:
    """The server's message would contain the key, so config_change never allows a reload with a new encryption key."""
    old = {"jetstream": {"store_dir": str(tmp_path / "store"), "encryption_key": "first-key"}}
    new = {"jetstream": {"store_dir": str(tmp_path / "store"), "encryption_key": "second-key"}}
    assert config_change(old, new, version)["action"] == "restart"
    with running(version, old) as server:
        file = server.write(new)
        subprocess.run([binary(version), "--signal", f"reload={server_pid(server)}"], check=True, capture_output=True)
        deadline = time.monotonic() + 5
        while b"second-key" not in (file.parent / "log").read_bytes():
            assert time.monotonic() < deadline
            time.sleep(0.05)


def server_pid(server: Server) -> int:
    wanted = str(server.directory / "nats-server.conf").encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if wanted in (entry / "cmdline").read_bytes().split(b"\0"):
                    return int(entry.name)
            except OSError:
                continue
    raise AssertionError("the server is gone")


def test_reported_expiry_is_that_of_a_renewed_certificate(tmp_path: Path) -> None:
    """The files keep their paths, as they do when a host renews its own certificate."""
    files = make_certificates(tmp_path)
    config = {"tls": {"cert_file": str(files.cert), "key_file": str(files.key)}}
    with running("2.15.1", config) as server:
        before = certificate_ends(server.get("varz"))
        make_certificates(tmp_path, expired=True)
        server.reload(config)
        after = certificate_ends(server.get("varz"))
    assert before.keys() == after.keys() != set()
    assert all(after[listener] < end for listener, end in before.items())
