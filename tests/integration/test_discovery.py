# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests discovery on the hosts of single servers: the evidence for the loaded configuration, settings that cannot be
read on the host, and settings that no server reports."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.host.process import running_servers
from support.credentials import make_certificates
from support.module_runs import run_in_process
from support.nats_processes import binary, free_ports


def read_subset(subset: str, config: Path, **options: Any) -> dict[str, Any]:
    """Return a subset of the data of a host."""
    result = run_in_process("nats_server_host_info", {}, gather_subset=[subset], config=str(config), **options)
    assert set(result) - {"changed", "invocation"} == {subset}, result
    found: dict[str, Any] = result[subset]
    return found


class Started:
    """A server with a configuration file and command-line flags."""

    def __init__(self, folder: Path, version: str) -> None:
        self.port, self.monitor = free_ports(2)
        self.config = folder / "c.conf"
        self.version = version

    @contextlib.contextmanager
    def running(self, text: str, *flags: str, around: tuple[str, ...] = ()) -> Iterator[None]:
        self.config.write_text(f"server_name: n1\nhost: 127.0.0.1\nport: {self.port}\n{text}")
        command = [*around, binary(self.version), "-c", str(self.config), *flags]
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            self.wait(process)
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            # In a separate namespace the server is not a child of this process.
            deadline = time.monotonic() + 20
            while self.is_there():
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def wait(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + 20
        while not self.loaded():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)

    def loaded(self) -> bool:
        """Return whether the server has read its file and opened its client port."""
        if not self.is_there():
            return False
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    def is_there(self) -> bool:
        return any(one.config == str(self.config) for one in running_servers())

    def read(self) -> dict[str, Any]:
        return read_subset("adoption", self.config)

    @property
    def http(self) -> str:
        return f'http: "127.0.0.1:{self.monitor}"\n'


@pytest.mark.parametrize(("version", "proof"), [("2.10.27", "time"), ("2.15.1", "digest")])
def test_changed_file_is_not_evidence_until_it_is_reloaded(tmp_path: Path, version: str, proof: str) -> None:
    server = Started(tmp_path, version)
    with server.running(server.http):
        found = server.read()
        assert (found["loaded"]["proof"], found["loaded"]["problem"]) == (proof, "")
        assert (found["process"]["version"], found["varz"]["server_name"]) == (version, "n1")
        server.config.write_text(server.config.read_text() + "max_connections: 7\n")
        found = server.read()
        assert found["loaded"]["proof"] == ""
        assert "reload the server, or restore" in found["loaded"]["problem"]
        os.kill(found["process"]["pid"], signal.SIGHUP)
        deadline = time.monotonic() + 20
        while server.read()["loaded"]["proof"] != proof:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert server.read()["config"]["max_connections"] == 7


def test_executable_verifies_the_configuration_without_a_monitoring_port(tmp_path: Path) -> None:
    server = Started(tmp_path, "2.15.1")
    with server.running("max_payload: 2MB\n"):
        found = server.read()
        assert (found["loaded"]["proof"], found["routes"], found["varz"]) == ("time", None, {})
        assert found["config"]["max_payload"] == 2 * 1024**2
        server.config.write_text(server.config.read_text() + "max_connections: 7\n")
        assert "changed after the process loaded it" in server.read()["loaded"]["problem"]


def test_flags_come_before_the_file(tmp_path: Path) -> None:
    server = Started(tmp_path, "2.15.1")
    with server.running(server.http, "-n", "by-flag", "-js", "--store_dir", str(tmp_path / "data"), "-D"):
        found = server.read()
        assert found["varz"]["server_name"] == found["config"]["server_name"] == "by-flag"
        assert found["config"]["jetstream"] == {"enabled": True, "store_dir": str(tmp_path / "data")}
        assert found["store"] == {
            "path": str(tmp_path / "data"),
            "reported": str(tmp_path / "data" / "jetstream"),
            "same": True,
        }
        assert found["loaded"]["proof"] == "digest"


@pytest.mark.skipif(os.geteuid() != 0, reason="takes namespaces")
def test_a_store_that_only_the_process_sees_and_a_server_in_a_container(tmp_path: Path) -> None:
    server = Started(tmp_path, "2.15.1")
    store = tmp_path / "data"
    store.mkdir()
    text = f'{server.http}jetstream {{ store_dir: "{store}" }}\n'
    private = ("unshare", "--mount", "sh", "-c", f'mount -t tmpfs none "{store}" && exec "$@"', "sh")
    with server.running(text, around=private):
        assert server.read()["store"] == {"path": str(store), "reported": f"{store}/jetstream", "same": False}
    with server.running(text, around=("unshare", "--pid", "--fork")):
        found = server.read()
        assert (found["found"], len(found["contained"])) == (False, 1)
        assert "runs in a container" in found["problem"]
    assert server.read()["problem"].startswith(f"no nats-server is running with {server.config}: start it")


def test_the_files_of_a_host_are_read_without_secrets_while_the_server_runs_and_after(tmp_path: Path) -> None:
    server = Started(tmp_path, "2.15.1")
    authority = make_certificates(tmp_path).ca
    remote = f'url: "nats://127.0.0.1:1", tls {{ ca_file: "{authority}" }}'
    text = f"{server.http}X = hunter-22\nauthorization {{ token: $X }}\nleafnodes {{ remotes: [ {{ {remote} }} ] }}\n"
    with server.running(text):
        running = read_subset("backup_files", server.config, prefix="n1/")
    assert (sorted(running["content"]), running["problems"]) == (["n1/c.conf", f"n1/{authority.name}"], [])
    assert "hunter-22" not in str(running) and "$SECRET_authorization_token" in running["content"]["n1/c.conf"]
    assert read_subset("backup_files", server.config, prefix="n1/") == running


@pytest.mark.parametrize("version", ["2.10.27", "2.15.1"])
def test_discovery_without_server_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """The file's digest counts as the server's until the file is changed. No file contains a password from the
    environment."""
    server = Started(tmp_path, version)
    (tmp_path / "data").mkdir()
    hashed = f"$2a$11${'x' * 53}"
    users = ", ".join(
        f"{{ user: {name}, password: {word} }}"
        for name, word in (("a", "hunter-22"), ("b", f'"{hashed}"'), ("c", "$OF_ENVIRONMENT"))
    )
    text = f'{server.http}jetstream {{ store_dir: "{tmp_path}/data" }}\nauthorization {{ users: [ {users} ] }}\n'

    def read() -> dict[str, Any] | None:
        result = read_subset("unreported", server.config)
        assert "hunter-22" not in str(result)
        found: dict[str, Any] | None = result["host"]
        assert (found is None) == bool(result["problem"])
        return found

    monkeypatch.setenv("OF_ENVIRONMENT", "from-elsewhere")
    with server.running(text, around=("sh", "-c", 'ulimit -n 3000 && exec "$@"', "sh")):
        found = read()
        assert found is not None
        varz = server.read()["varz"]
        assert found["config_digest"] == varz.get("config_digest")
        assert (found["config_digest"] is None) == (version == "2.10.27")
        assert (found["server"], found["open_files"], found["plaintext_passwords"]) == ("n1", 3000, 1)
        free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
        assert abs(found["disk_free"] - free) < 1 << 30
        server.config.write_text(server.config.read_text() + "max_connections: 7\n")
        changed = read()
        assert changed is not None
        assert version == "2.10.27" or changed["config_digest"] not in (None, found["config_digest"])
    assert read() is None
