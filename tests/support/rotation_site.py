# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Three servers whose credentials and certificates are rotated, clients that log in continuously, and runs that are
interrupted."""

from __future__ import annotations

import json
import re
import socket
import ssl
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.role_cluster import RoleCluster

NAMES = ("n1", "n2", "n3")


class Site(RoleCluster):
    """The servers n1, n2 and n3 with the users sys and app, whose passwords are sys-old and app-old."""

    def __init__(self, root: Path, version: str, **variables: Any) -> None:
        super().__init__(root, NAMES, version)
        self.variables.update(
            nats_server_system_password="sys-old",
            nats_server_accounts={"APP": {"jetstream": True, "users": [{"user": "app", "password": "app-old"}]}},
            **variables,
        )

    @property
    def users(self) -> list[dict[str, Any]]:
        """Return the users of the account APP in the inventory."""
        found: list[dict[str, Any]] = self.variables["nats_server_accounts"]["APP"]["users"]
        return found

    def port(self, name: str) -> int:
        return int(self.hosts[name]["nats_server_port"])

    def file(self, name: str, path: str) -> bytes:
        """Return the content of a file of a host's configuration."""
        return (Path(self.hosts[name]["nats_server_config_dir"]) / path).read_bytes()

    def contents(self) -> dict[str, bytes]:
        """Return the content of every file of the servers' configurations."""
        paths = [path for name in NAMES for path in (self.root / name / "etc").rglob("*") if path.is_file()]
        return {str(path): path.read_bytes() for path in paths}

    def cut_short(self, name: str, task: str, times: int = 1, **extra: Any) -> None:
        """Run a playbook and kill it when a task of a role has begun this many times; modules that are running
        finish."""
        process = self.start_playbook(name, **extra)
        printed = []
        for line in process.stdout or ():
            printed.append(line)
            times -= line.startswith("TASK [natsops.jetstream.") and f" : {task}]" in line
            if times == 0:
                process.kill()
                break
        process.communicate()
        assert times == 0, "".join(printed)


def changed(output: str) -> int:
    """The number of changed tasks in the recap."""
    return sum(int(number) for number in re.findall(r"changed=(\d+)", output))


@dataclass
class Seen:
    """The logins of a user that logs in continuously: the time of the first success, and each refusal with its time
    (monotonic)."""

    tries: int = 0
    first: float = 0.0
    refusals: list[tuple[float, str]] = field(default_factory=list)


class Watch:
    """Logs in to each server every 100 ms with each of `logins` (user to password), which may grow at any time.

    A reload of users refuses connections that have not logged in yet (server/reload.go, `reloadAuthorization`), so a
    refusal counts only if an attempt that began after it is refused too.
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
        """All refusals of all users."""
        return [refusal for seen in self.seen.values() for refusal in seen.refusals]

    def _run(self, name: str) -> None:
        while not self._stop.wait(0.1):
            for user, password in list(self.logins.items()):
                reply = login(self._site.port(name), user, password, self._tls)
                if reply != "PONG":
                    reply = login(self._site.port(name), user, password, self._tls)
                with self._lock:
                    seen = self.seen.setdefault(user, Seen())
                    seen.tries += 1
                    if reply == "PONG":
                        seen.first = seen.first or time.monotonic()
                    else:
                        seen.refusals.append((time.monotonic(), f"{name}: {user}: {reply}"))


def login(port: int, user: str, password: str, tls: ssl.SSLContext | None = None) -> str:
    """Log in once; return PONG, or the error of the server or the operating system."""
    try:
        connection = socket.create_connection(("127.0.0.1", port), timeout=5)
        with connection:
            _line(connection)  # INFO
            if tls:
                connection = tls.wrap_socket(connection, server_hostname="127.0.0.1")
            options = {
                "user": user,
                "pass": password,
                "verbose": False,
                "pedantic": False,
                "lang": "test",
                "name": "watch",
            }
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
