# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real nats-server processes on loopback: a cluster with a system account and an application account."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SYS_USER, SYS_PASSWORD = "sys", "sys-pass#$1"
APP_USER, APP_PASSWORD = "app", "app-pass"
#: The versions of nats-server that tests run: the oldest supported series and the newest.
VERSIONS = ["2.10.27", "2.15.1"]


@functools.cache
def binary(version: str) -> str:
    """Return the path of the nats-server of that version."""
    command = [sys.executable, str(ROOT / "tests" / "lab" / "binaries.py"), version]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def free_ports(count: int) -> list[int]:
    """Return ports that were free on loopback a moment ago, below those that outgoing connections take.

    The processes of a test run choose from different ports.
    """
    worker, workers = os.environ.get("PYTEST_XDIST_WORKER", "gw0"), os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")
    mine = range(10_000 + int(worker[2:]), 32_000, int(workers))
    with contextlib.ExitStack() as stack:
        ports: list[int] = []
        while len(ports) < count:
            item = stack.enter_context(socket.socket())
            port = random.choice(mine)
            with contextlib.suppress(OSError):
                item.bind(("127.0.0.1", port))
                ports.append(port)
        return ports


class NatsProcesses:
    """The servers of one cluster. `extra` is configuration text that every server gets; names not in `jetstream`
    (default: all) run without JetStream, as do `plain_accounts` (account to user). With an empty `cluster` there is none.
    `jetstream_options` is text for the block jetstream."""

    def __init__(
        self,
        version: str,
        directory: Path,
        names: list[str],
        *,
        cluster: str = "C1",
        extra: str = "",
        jetstream: list[str] | None = None,
        accounts: dict[str, str] | None = None,
        plain_accounts: dict[str, str] | None = None,
        jetstream_options: str = "",
    ) -> None:
        self.jetstream_options = jetstream_options
        self.version = version
        self.directory = directory
        self.names = names
        self.cluster = cluster
        self.extra = extra
        self.jetstream = names if jetstream is None else jetstream
        self.accounts = {"APP": APP_USER} if accounts is None else accounts
        self.plain_accounts = plain_accounts or {}
        self._binary = binary(version)
        ports = free_ports(2 * len(names))
        self.ports = dict(zip(names, ports))
        self.route_ports = dict(zip(names, ports[len(names) :]))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def url(self, name: str) -> str:
        return f"nats://127.0.0.1:{self.ports[name]}"

    @property
    def urls(self) -> list[str]:
        return [self.url(name) for name in self.names]

    def config_file(self, name: str) -> Path:
        return self.directory / f"{name}.conf"

    def write_config(self, name: str, extra: str = "") -> None:
        """Write a server's configuration; `extra` is text for this one server."""
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in self.route_ports.values())
        accounts = "\n".join(
            f"  {account} {{ jetstream: enabled, users: [{{user: {user}, password: {APP_PASSWORD!r}}}] }}"
            for account, user in self.accounts.items()
        )
        accounts += "\n".join(
            f"\n  {account} {{ users: [{{user: {user}, password: {APP_PASSWORD!r}}}] }}"
            for account, user in self.plain_accounts.items()
        )
        route_listen = f"127.0.0.1:{self.route_ports[name]}"
        cluster = (
            f'cluster {{ name: {self.cluster}, listen: "{route_listen}", routes: [{routes}] }}' if self.cluster else ""
        )
        options = f"max_file_store: 256MB, max_memory_store: 64MB\n{self.jetstream_options}"
        store = f'jetstream {{ store_dir: "{self.directory / name}", {options} }}'
        self.config_file(name).write_text(
            f"""server_name: "{name}"
listen: "127.0.0.1:{self.ports[name]}"
{store if name in self.jetstream else ""}
{cluster}
system_account: "$SYS"
accounts {{
  "$SYS" {{ users: [{{user: {SYS_USER}, password: {SYS_PASSWORD!r}}}] }}
{accounts}
}}
{self.extra}
{extra}
"""
        )

    def start(self, *names: str) -> None:
        """Start these servers, all by default."""
        for name in names or self.names:
            if not self.config_file(name).exists():
                self.write_config(name)
            with open(self.directory / f"{name}.log", "ab") as log:
                command = [self._binary, "-c", str(self.config_file(name))]
                self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self, *names: str) -> None:
        """Kill these servers as a crash would, all by default."""
        for name in names or list(self.processes):
            process = self.processes.pop(name)
            process.send_signal(signal.SIGKILL)
            process.wait(10)

    def stop(self, name: str) -> None:
        """Stop a server in order."""
        process = self.processes.pop(name)
        process.terminate()
        process.wait(20)

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def app_request(
        self, subject: str, body: dict[str, Any] | None = None, account: str = "APP", members: int = 1
    ) -> dict[str, Any]:
        """Return the reply to a JetStream API request of the application user.

        Retries for 15 s until it succeeds and, where it tells of a group, names as many members: a leader that was elected
        a moment ago may leave out one that it has not yet heard.
        """
        return asyncio.run(self._app_request(subject, body or {}, self.accounts[account], members))

    async def _app_request(self, subject: str, body: dict[str, Any], user: str, members: int) -> dict[str, Any]:
        import nats

        async def ignore(_error: Exception) -> None:
            """A server that is still starting refuses; another one or the next attempt takes over."""

        living = [self.url(name) for name in self.processes]
        connection = await nats.connect(living, user=user, password=APP_PASSWORD, error_cb=ignore)
        deadline = time.monotonic() + 15
        try:
            while True:
                try:
                    message = await connection.request(subject, json.dumps(body).encode(), timeout=2)
                    reply = json.loads(message.data)
                except (nats.errors.TimeoutError, nats.errors.NoRespondersError) as error:
                    reply = {"error": str(error)}
                named = 1 + len((reply.get("cluster") or {}).get("replicas") or ())
                if ("error" not in reply and named >= members) or time.monotonic() > deadline:
                    assert "error" not in reply and named >= members, reply
                    return reply
                await asyncio.sleep(0.3)
        finally:
            await connection.close()

    def add_stream(self, name: str, replicas: int, account: str = "APP", **config: Any) -> dict[str, Any]:
        body = {
            "name": name,
            "subjects": [f"{name}.>"],
            "num_replicas": replicas,
            "storage": "file",
            "retention": "limits",
            "discard": "old",
            **config,
        }
        return self.app_request(f"$JS.API.STREAM.CREATE.{name}", body, account, members=replicas)

    def add_consumer(self, stream: str, name: str, account: str = "APP", **config: Any) -> dict[str, Any]:
        body = {"stream_name": stream, "config": {"durable_name": name, "ack_policy": "explicit", **config}}
        return self.app_request(f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.{name}", body, account)

    def sys_connection(self) -> dict[str, Any]:
        """Return the connection options of the system user, as the modules take them."""
        return {"servers": self.urls, "user": SYS_USER, "password": SYS_PASSWORD}

    def account_users(self) -> list[dict[str, Any]]:
        """Return a user of each account, as the modules take them."""
        return [{"account": name, "user": user, "password": APP_PASSWORD} for name, user in self.accounts.items()]

    def app_connection(self) -> dict[str, Any]:
        return {"servers": self.urls, "user": APP_USER, "password": APP_PASSWORD}


def collections_path() -> str:
    return os.environ.get("ANSIBLE_COLLECTIONS_PATH", str(ROOT / ".cache" / "dev"))


def run_playbook(name: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a playbook, one of the collection by its short name. There is no inventory unless the arguments name one."""
    found = name if "." in name else f"natsops.jetstream.{name}"
    command = [str(Path(sys.executable).with_name("ansible-playbook")), found, *arguments]
    variables = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": collections_path(),
        "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
        "ANSIBLE_NOCOLOR": "true",
        **environment,
    }
    return subprocess.run(command, check=False, capture_output=True, text=True, env=variables, timeout=240)
