# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Three servers on loopback that the role deployed, an inventory to change, and clients that log in all the time."""

from __future__ import annotations

import asyncio
import getpass
import grp
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nats_processes import binary, free_ports, run_playbook

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
from load import Load, LoadPlan, LoadReport

NAMES = ("n1", "n2", "n3")


class Site:
    """The servers n1, n2 and n3 as the inventory group nats; `variables` are the group's and may be changed between runs."""

    def __init__(self, root: Path, version: str, **variables: Any) -> None:
        self.root = root
        self.ports = dict(zip(NAMES, free_ports(3), strict=True))
        self.route_ports = dict(zip(NAMES, free_ports(3), strict=True))
        self.http_ports = dict(zip(NAMES, free_ports(3), strict=True))
        self.variables: dict[str, Any] = {
            "ansible_connection": "local",
            "ansible_host": "127.0.0.1",
            "ansible_python_interpreter": sys.executable,
            "nats_server_become": False,
            "nats_server_user": getpass.getuser(),
            "nats_server_group": grp.getgrgid(os.getgid()).gr_name,
            "nats_server_manage_user": False,
            "nats_server_service_backend": "process",
            "nats_server_version": version,
            "nats_server_install_method": "file",
            "nats_server_file_src": binary(version),
            "nats_server_cluster_name": "C1",
            "nats_server_host": "127.0.0.1",
            "nats_server_cluster_host": "127.0.0.1",
            "nats_server_jetstream_max_memory_store": "64MB",
            "nats_server_jetstream_max_file_store": "256MB",
            "nats_server_lame_duck_duration": "30s",
            "nats_server_lame_duck_grace_period": "1s",
            "nats_server_bcrypt_cost": 4,
            "nats_server_system_password": "sys-old",
            "nats_server_accounts": {"APP": {"jetstream": True, "users": [{"user": "app", "password": "app-old"}]}},
            **{f"nats_server_tuning_{part}": "off" for part in TUNINGS},
            **variables,
        }

    def play(self, name: str, *arguments: str, fails: bool = False) -> str:
        """Run a playbook on the inventory as it is now; return what it printed."""
        inventory = self.root / "inventory.json"
        hosts = {
            name: {
                "nats_server_port": self.ports[name],
                "nats_server_cluster_port": self.route_ports[name],
                "nats_server_http": f"127.0.0.1:{self.http_ports[name]}",
                "nats_server_install_dir": str(self.root / name / "opt"),
                "nats_server_binary_link": str(self.root / name / "nats-server"),
                "nats_server_config_dir": str(self.root / name / "etc"),
                "nats_server_run_dir": str(self.root / name / "run"),
                "nats_server_jetstream_store_dir": str(self.root / name / "store"),
            }
            for name in NAMES
        }
        inventory.write_text(json.dumps({"nats": {"hosts": hosts, "vars": self.variables}}))
        settings = {"ANSIBLE_DISPLAY_SKIPPED_HOSTS": "false", "ANSIBLE_PIPELINING": "true"}
        done = run_playbook(name, "-i", str(inventory), *arguments, **settings)
        output = done.stdout + done.stderr
        assert (done.returncode != 0) == fails, output[-6000:]
        return output

    @property
    def urls(self) -> list[str]:
        scheme = "tls" if self.variables.get("nats_server_tls_source") else "nats"
        return [f"{scheme}://127.0.0.1:{port}" for port in self.ports.values()]

    def pids(self) -> dict[str, int]:
        """The servers' processes."""
        return {name: int((self.root / name / "run/nats-server.pid").read_text()) for name in NAMES}

    def contents(self) -> dict[str, bytes]:
        """Every file of the servers' configuration."""
        paths = [path for name in NAMES for path in (self.root / name / "etc").rglob("*") if path.is_file()]
        return {str(path): path.read_bytes() for path in paths}

    def stop(self) -> None:
        for name in NAMES:
            found = subprocess.run(
                ["pgrep", "-f", "--", f"-c {self.root}/{name}/etc/nats-server.conf"], capture_output=True, text=True, check=False
            ).stdout
            for pid in found.split():
                os.kill(int(pid), signal.SIGKILL)


TUNINGS = ("mount_options", "scheduler", "sysctl", "transparent_hugepages", "time_sync")


def changed(output: str) -> int:
    """How many tasks changed something, by the recap."""
    return sum(int(number) for number in re.findall(r"changed=(\d+)", output))


@dataclass
class Seen:
    """What a user met that logs in all the time: when it was let in first, and each refusal with its time (monotonic)."""

    tries: int = 0
    first: float = 0.0
    refusals: list[tuple[float, str]] = field(default_factory=list)


class Watch:
    """Logs in every 50 ms to each server with each of `logins` (user to password), to which more may be added under way.

    A reload of users refuses whoever is greeted and has not logged in yet (server/reload.go, `reloadAuthorization`), so that a
    refusal counts when an attempt that began after it is refused too.
    """

    def __init__(self, site: Site, logins: dict[str, str], tls: ssl.SSLContext | None = None) -> None:
        self.logins = dict(logins)
        self.seen: dict[str, Seen] = {}
        self._site = site
        self._tls = tls
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(name,)) for name in NAMES]

    def __enter__(self) -> Watch:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    @property
    def refusals(self) -> list[tuple[float, str]]:
        """Every refusal of everybody."""
        return [refusal for seen in self.seen.values() for refusal in seen.refusals]

    def _run(self, name: str) -> None:
        while not self._stop.wait(0.05):
            for user, password in list(self.logins.items()):
                reply = login(self._site.ports[name], user, password, self._tls)
                if reply != "PONG":
                    reply = login(self._site.ports[name], user, password, self._tls)
                with self._lock:
                    seen = self.seen.setdefault(user, Seen())
                    seen.tries += 1
                    if reply == "PONG":
                        seen.first = seen.first or time.monotonic()
                    else:
                        seen.refusals.append((time.monotonic(), f"{name}: {user}: {reply}"))


def login(port: int, user: str, password: str, tls: ssl.SSLContext | None = None) -> str:
    """Log in once; PONG, or what the server or the system said instead."""
    try:
        connection = socket.create_connection(("127.0.0.1", port), timeout=5)
        with connection:
            _line(connection)  # INFO
            if tls:
                connection = tls.wrap_socket(connection, server_hostname="127.0.0.1")
            options = {"user": user, "pass": password, "verbose": False, "pedantic": False, "lang": "test", "name": "watch"}
            connection.sendall(b"CONNECT " + json.dumps(options).encode() + b"\r\nPING\r\n")
            answer = _line(connection)
            connection.close()
            return answer
    except OSError as error:
        return str(error)


def _line(connection: socket.socket) -> str:
    found = b""
    while not found.endswith(b"\r\n"):
        part = connection.recv(1)
        if not part:
            return found.decode() or "closed"
        found += part
    return found.decode().strip()


@contextmanager
def load(site: Site, user: str, password: str, **login: Any) -> Iterator[list[LoadReport]]:
    """Produce and consume meanwhile; afterwards nothing acknowledged is missing. The report is in the list then."""
    work = Load(site.urls, user, password, LoadPlan(rate=20), **login)
    asyncio.run(work.prepare())
    thread = threading.Thread(target=lambda: asyncio.run(work.run()))
    thread.start()
    reports: list[LoadReport] = []
    try:
        yield reports
    finally:
        work.stop()
        thread.join(30)
    reports.append(work.report())
    assert asyncio.run(work.verify()) == []
