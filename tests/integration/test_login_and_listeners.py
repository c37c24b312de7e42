# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests accepted logins, presented certificates, and the effect of a reload of users on a login in progress."""

from __future__ import annotations

import hashlib
import signal
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.validation import config_problems
from support.credentials import make_certificates
from support.nats_processes import APP_PASSWORD, APP_USER, SYS_PASSWORD, SYS_USER, NatsProcesses, free_ports

Runner = Callable[..., dict[str, Any]]
MakeCluster = Callable[..., NatsProcesses]


def greeted(cluster: NatsProcesses) -> socket.socket:
    """Connect to the first server and read its greeting, without logging in; return the connection."""
    deadline = time.monotonic() + 10
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", cluster.ports[cluster.names[0]]), timeout=10)
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert connection.recv(4096).startswith(b"INFO")
    return connection


def test_logins_and_a_reload_of_users(make_cluster: MakeCluster, run_module: Runner) -> None:
    cluster = make_cluster(["n1"], cluster="")
    greeted(cluster).close()
    nobody = f"nats://127.0.0.1:{free_ports(1)[0]}"
    logins = [
        {"user": SYS_USER, "password": SYS_PASSWORD},
        {"user": APP_USER, "password": APP_PASSWORD},
        {"user": APP_USER, "password": "a wrong one"},
    ]
    result = run_module("nats_login_info", {"servers": [*cluster.urls, nobody]}, logins=logins)
    found = [(login["user"], login["accepted"], login["code"]) for login in result["logins"]]
    assert found[:3] == [(SYS_USER, True, None), (APP_USER, True, None), (APP_USER, False, "authorization")]
    assert [code for _user, _accepted, code in found[3:]] == ["unreachable"] * 3
    assert result["changed"] is False and "a wrong one" not in str(result)

    # On a reload, the server closes the connection of a client that could not log in again with the credentials that it
    # sent. This client has not sent any credentials.
    text = cluster.config_file("n1").read_text()
    cluster.config_file("n1").write_text(
        text.replace("users: [{user: app", "users: [{user: app2, password: x}, {user: app")
    )
    with greeted(cluster) as under_way:
        cluster.processes["n1"].send_signal(signal.SIGHUP)
        assert b"Authorization Violation" in under_way.recv(4096)
    again = run_module(
        "nats_login_info", {"servers": cluster.urls}, logins=[*logins[:2], {"user": "app2", "password": "x"}]
    )
    assert all(login["accepted"] for login in again["logins"])


def test_certificates_of_listeners(make_cluster: MakeCluster, run_module: Runner, tmp_path: Path) -> None:
    files = make_certificates(tmp_path)
    (tmp_path / "other").mkdir()
    stranger = make_certificates(tmp_path / "other")
    tls = f"tls {{ cert_file: '{files.cert}', key_file: '{files.key}', ca_file: '{files.ca}', verify: true }}"
    cluster = make_cluster(["n1"], cluster="", extra=tls)
    greeted(cluster).close()
    clients = {"host": "127.0.0.1", "port": cluster.ports["n1"]}
    own = {"tls_cert_file": str(files.cert), "tls_key_file": str(files.key)}
    result = run_module("nats_listener_info", {}, listeners=[clients], tls_ca_file=str(files.ca), **own)
    (seen,) = result["listeners"]
    presented = ssl.PEM_cert_to_DER_cert(files.cert.read_text())
    assert seen["accepted"] and seen["error"] is None
    assert seen["sha256"] == hashlib.sha256(presented).hexdigest()
    assert seen["not_after"].endswith("+00:00")

    closed = {"host": "127.0.0.1", "port": free_ports(1)[0], "tls_first": True}
    result = run_module("nats_listener_info", {}, listeners=[clients, closed], tls_ca_file=str(stranger.ca))
    untrusted, absent = result["listeners"]
    assert not untrusted["accepted"] and "CERTIFICATE_VERIFY_FAILED" in untrusted["error"]
    assert not absent["accepted"] and absent["sha256"] is None


def test_a_callout_without_its_service_locks_out_whom_the_preflight_names(
    make_cluster: MakeCluster, run_module: Runner
) -> None:
    """If the system user is one of the auth_users, the gate works while the service is down."""
    issuer = "ABJHLOVMPA4CI6R5KLNGOB4GSLNIY7IOUPAJC4YFNDLQVIOBYQGUWVLA"
    for passing, accepted in (("app", False), ("app, sys", True)):
        callout = f"authorization {{ auth_callout {{ issuer: {issuer}, account: APP, auth_users: [{passing}] }} }}"
        cluster = make_cluster(["n1"], extra=callout, cluster="")
        config = {
            "accounts": {
                name: {"users": [{"user": user, "password": "x"}]} for name, user in (("$SYS", "sys"), ("APP", "app"))
            },
            "authorization": {"auth_callout": {"issuer": issuer, "account": "APP", "auth_users": passing.split(", ")}},
        }
        problems = config_problems(config, {"own_users": {"system": SYS_USER}})
        assert any("lacks sys" in one["message"] for one in problems) is not accepted
        greeted(cluster).close()
        once = {"samples": 1, "span": 0, "interval": 0.3, "wait_timeout": 15}
        result = run_module("nats_cluster_health", cluster.sys_connection(), **once)
        assert result.get("healthy", False) is accepted
        assert accepted or result["failure"]["code"] == "authorization"
