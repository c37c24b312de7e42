# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests every way to connect, and the message of every failure."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Callable

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import (
    Call,
    Client,
    ConnectionOptions,
    FileContent,
)
from support.credentials import make_certificates, new_user, operator_setup
from support.module_runs import Runner
from support.nats_processes import APP_PASSWORD, SYS_PASSWORD, NatsProcesses, free_ports

MakeCluster = Callable[..., NatsProcesses]


@pytest.fixture
def names(run_module: Runner) -> Callable[[dict[str, Any]], list[str]]:
    """Return the names of the servers that respond over a connection. Waits for the first server to start."""

    def ask(connection: dict[str, Any]) -> list[str]:
        result: dict[str, Any] = {}
        for _attempt in range(30):
            result = run_module("nats_server_info", connection, endpoints=["varz"])
            if "servers" in result or result["failure"]["code"] != "unreachable":
                break
            time.sleep(0.1)
        assert "servers" in result, result
        return [server["name"] for server in result["servers"]]

    return ask


def test_wrong_password(healthy: NatsProcesses, run_module: Runner) -> None:
    result = run_module("nats_cluster_health", {**healthy.sys_connection(), "password": "wrong-password"})
    assert result["failure"]["code"] == "authorization"
    assert "user 'sys'" in result["msg"]
    assert "wrong-password" not in json.dumps(result)
    assert SYS_PASSWORD not in json.dumps(result)


@pytest.mark.parametrize("module", ["nats_cluster_health", "nats_cluster_info", "nats_server_info"])
def test_wrong_account(healthy: NatsProcesses, run_module: Runner, module: str) -> None:
    result = run_module(module, healthy.app_connection())
    assert result["failure"]["code"] == "wrong_account"
    assert result["failure"]["account"] == "APP"
    assert "system account" in result["msg"]


def test_a_failure_cannot_write_to_the_terminal(healthy: NatsProcesses, run_module: Runner) -> None:
    """nats-server accepts a stream whose name contains terminal control characters."""
    result = run_module("nats_stream_stepdown", healthy.app_connection(), stream="X\x1b[31mRED\x07", force=True)
    assert "X\ufffd[31mRED\ufffd" in result["msg"]
    assert result["msg"] == result["failure"]["description"]


def test_unreachable_server_is_reported(run_module: Runner) -> None:
    ports = free_ports(2)
    result = run_module("nats_server_info", {"servers": [f"nats://127.0.0.1:{port}" for port in ports]})
    assert result["failure"]["code"] == "unreachable"
    for port in ports:
        assert f"nats://127.0.0.1:{port}: connection refused" in result["msg"]


def test_the_next_server_is_tried(healthy: NatsProcesses, names: Callable[[dict[str, Any]], list[str]]) -> None:
    (port,) = free_ports(1)
    connection = healthy.sys_connection()
    connection["servers"].insert(0, f"nats://127.0.0.1:{port}")
    assert names(connection) == ["n1", "n10", "n2"]


def test_credentials_in_the_address(healthy: NatsProcesses, names: Callable[[dict[str, Any]], list[str]]) -> None:
    port = healthy.ports["n1"]
    assert len(names({"servers": [f"nats://sys:sys-pass%23%241@127.0.0.1:{port}"]})) == 3


def test_environment_and_context(
    healthy: NatsProcesses, run_module: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nats" / "context").mkdir(parents=True)
    context = {"url": ",".join(healthy.urls), "user": "sys", "password": SYS_PASSWORD}
    (tmp_path / "nats" / "context" / "c1-sys.json").write_text(json.dumps(context))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert len(run_module("nats_server_info", {"context": "c1-sys"})["servers"]) == 3
    monkeypatch.setenv("NATS_CONTEXT", "c1-sys")
    assert len(run_module("nats_server_info", {})["servers"]) == 3
    monkeypatch.setenv("NATS_USER", "app")
    monkeypatch.setenv("NATS_PASSWORD", APP_PASSWORD)
    result = run_module("nats_server_info", {})
    assert result["failure"]["code"] == "wrong_account"
    assert APP_PASSWORD not in json.dumps(result)


def test_tls_required_by_the_client_and_not_offered(healthy: NatsProcesses, run_module: Runner, tmp_path: Path) -> None:
    connection = {**healthy.sys_connection(), "tls_ca_file": str(make_certificates(tmp_path).ca)}
    result = run_module("nats_server_info", connection)
    assert result["failure"]["code"] == "tls"
    assert "does not offer it" in result["msg"]


@pytest.mark.parametrize("first", [False, True], ids=["tls", "tls_first"])
def test_mutual_tls(
    make_cluster: MakeCluster, names: Callable[..., list[str]], run_module: Runner, tmp_path: Path, first: bool
) -> None:
    files = make_certificates(tmp_path)
    handshake = "handshake_first: true" if first else ""
    cluster = make_cluster(
        ["n1"],
        extra=f"tls {{ cert_file: '{files.cert}', key_file: '{files.key}', ca_file: '{files.ca}', verify: true; {handshake} }}",
    )
    connection = {**cluster.sys_connection(), "tls_first": first, "timeout": 2}
    own = {"tls_cert_file": str(files.cert), "tls_key_file": str(files.key)}
    ca = {"tls_ca_file": str(files.ca)}
    assert names({**connection, **ca, **own}) == ["n1"]
    assert names({**connection, **ca, **own, "tls_server_name": "n1.test"}) == ["n1"]

    def code(**options: str) -> str:
        return run_module("nats_server_info", {**connection, **options})["failure"]["code"]

    assert code(**own) == "tls"
    assert code(**ca, **own, tls_server_name="other.test") == "tls"
    assert code(**ca) in ("tls", "unreachable")
    assert names({**connection, **own, "validate_certs": False}) == ["n1"]


def test_tls_next_to_plain_connections(
    make_cluster: MakeCluster, names: Callable[..., list[str]], tmp_path: Path
) -> None:
    files = make_certificates(tmp_path)
    tls = f"tls {{ cert_file: '{files.cert}', key_file: '{files.key}' }}\nallow_non_tls: true"
    cluster = make_cluster(["n1"], extra=tls)
    assert names({**cluster.sys_connection(), "tls_ca_file": str(files.ca)}) == ["n1"]
    assert names(cluster.sys_connection()) == ["n1"]


def test_nkey_and_token(make_cluster: MakeCluster, names: Callable[..., list[str]], tmp_path: Path) -> None:
    user = new_user()
    cluster = make_cluster(["n1"], accounts={})
    text = cluster.config_file("n1").read_text().replace("users: [", f"users: [{{nkey: {user.public}}}, ")
    cluster.config_file("n1").write_text(text)
    cluster.kill()
    cluster.start()
    assert names({"servers": cluster.urls, "nkey_seed": user.seed}) == ["n1"]
    seed_file = tmp_path / "user.nk"
    seed_file.write_text(user.seed + "\n")
    assert names({"servers": cluster.urls, "nkey_seed": str(seed_file)}) == ["n1"]


def test_creds_file(make_cluster: MakeCluster, names: Callable[..., list[str]], tmp_path: Path) -> None:
    config, creds = operator_setup(tmp_path)
    cluster = make_cluster(["n1"])
    cluster.kill()
    cluster.config_file("n1").write_text(f'server_name: n1\nlisten: "127.0.0.1:{cluster.ports["n1"]}"\n{config}')
    cluster.start()
    assert names({"servers": cluster.urls, "credentials": str(creds)}) == ["n1"]


def test_contents_replace_the_files_of_a_login(make_cluster: MakeCluster, tmp_path: Path) -> None:
    config, creds = operator_setup(tmp_path)
    files = make_certificates(tmp_path)
    cluster = make_cluster(["n1"])
    cluster.kill()
    tls = f"tls {{ cert_file: '{files.cert}', key_file: '{files.key}', ca_file: '{files.ca}', verify: true }}"
    cluster.config_file("n1").write_text(f'server_name: n1\nlisten: "127.0.0.1:{cluster.ports["n1"]}"\n{config}{tls}')
    cluster.start()
    contents = {
        "credentials": creds,
        "tls_ca_file": files.ca,
        "tls_cert_file": files.cert,
        "tls_key_file": files.key,
    }
    given: dict[str, Any] = {name: FileContent(path.read_text()) for name, path in contents.items()}
    options = ConnectionOptions(tuple(cluster.urls), **given)
    for path in contents.values():
        path.unlink()
    with Client(options) as client:
        user = json.loads(client.request(Call("$SYS.REQ.USER.INFO")).body)["data"]["user"]
    assert options.inboxes in ("_INBOX.natsops", f"_INBOX.natsops.{user}")


def test_bad_credential_files_are_named(run_module: Runner, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    connection = {"servers": [f"nats://127.0.0.1:{port}"]}
    for option in ("credentials", "nkey_seed", "tls_ca_file", "context"):
        result = run_module("nats_server_info", {**connection, option: str(tmp_path / "none.json")})
        assert result["failure"]["code"] == "invalid_option", result
        assert option in result["msg"]
