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
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import answered_by_leader
from support.clean_output import clean

if TYPE_CHECKING:
    from support.credentials import Operator

ROOT = Path(__file__).resolve().parents[2]
SYS_USER, SYS_PASSWORD = "sys", "sys-pass#$1"
APP_USER, APP_PASSWORD = "app", "app-pass"
#: The versions of nats-server that tests run: the oldest and the newest supported series.
VERSIONS = ["2.10.27", "2.15.1"]
#: Marks tests of playbooks whose result does not depend on the server version: the modules are tested with each
#: version.
ONE_VERSION = pytest.mark.parametrize("version", VERSIONS[-1:], indirect=True, scope="session")


@functools.cache
def binary(version: str) -> str:
    """Return the path of the nats-server of that version."""
    command = [sys.executable, str(ROOT / "tests" / "lab" / "binaries.py"), version]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


class _Ports:
    """Loopback ports below the ephemeral range. Each is allocated to only one process of all test runs on this machine.

    Ports come in blocks. The process that has bound the first port of a block, without listening, owns the block. The
    kernel grants that port to one process and releases it when the process ends.
    """

    BLOCK = 50
    BLOCKS = range(10_000, 32_000, BLOCK)

    def __init__(self) -> None:
        self._held: list[socket.socket] = []
        self._left: list[int] = []

    def take(self) -> int:
        while True:
            if not self._left:
                self._left = self._claim()
            port = self._left.pop()
            # An unrelated program may be using the port.
            with contextlib.suppress(OSError), socket.socket() as item:
                item.bind(("127.0.0.1", port))
                return port

    def _claim(self) -> list[int]:
        for first in random.sample(self.BLOCKS, len(self.BLOCKS)):
            item = socket.socket()
            try:
                item.bind(("127.0.0.1", first))
            except OSError:
                item.close()
                continue
            self._held.append(item)
            return list(range(first + 1, first + self.BLOCK))
        raise RuntimeError("every block of ports on loopback is taken")


_PORTS = _Ports()


def free_ports(count: int) -> list[int]:
    """Return unused ports of loopback that no other test gets."""
    return [_PORTS.take() for _number in range(count)]


def listens(port: int) -> bool:
    """Return whether a process listens on this port of loopback or of all addresses, without connecting to it."""
    tables = [path.read_text() for path in map(Path, ("/proc/net/tcp", "/proc/net/tcp6")) if path.exists()]
    sockets = [line.split() for table in tables for line in table.splitlines()]
    return any(found[1].endswith(f":{port:04X}") and found[3] == "0A" for found in sockets)


class NatsProcesses:
    """The servers of one cluster. `extra` is configuration text that every server gets; servers that are not named in
    `jetstream` (default: all are) run without JetStream. `plain_accounts` (account to user) have no JetStream. With an
    empty `cluster` the servers form no cluster. `jetstream_options` is text for the block jetstream, `account_limits`
    for that of an account. With an `operator` the accounts are its JWTs, and users log in with .creds files;
    `resolver`: where servers keep these JWTs, MEMORY, full or cache; `resolver_options`: text for its block."""

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
        account_limits: dict[str, str] | None = None,
        operator: Operator | None = None,
        resolver: str = "MEMORY",
        resolver_options: str = "",
    ) -> None:
        self.jetstream_options = jetstream_options
        self.account_limits = account_limits or {}
        self.operator = operator
        self.resolver = resolver
        self.resolver_options = resolver_options
        self.version = version
        self.directory = directory
        self.names = names
        self.cluster = cluster
        self.extra = extra
        self.jetstream = names if jetstream is None else jetstream
        if accounts is None:
            accounts = {name: "" for name in operator.keys if name != "SYS"} if operator else {"APP": APP_USER}
        self.accounts = accounts
        self.plain_accounts = plain_accounts or {}
        self._binary = binary(version)
        ports = free_ports(2 * len(names))
        self.ports = dict(zip(names, ports))
        self.route_ports = dict(zip(names, ports[len(names) :]))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        #: Account and name of each stream that was restored on these servers, see backup_site.Site.
        self.restored: set[tuple[str, str]] = set()

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
{self._account_config(name)}
{self.extra}
{extra}
"""
        )

    def _account_config(self, name: str) -> str:
        if self.operator is not None:
            resolver = self.resolver
            if resolver != "MEMORY":
                resolver = f'{{ type: {resolver}, dir: "{self.directory / name}-jwt", {self.resolver_options} }}'
            jwts = "\n".join(f"  {key}: {jwt}" for key, jwt in self.operator.accounts.items())
            return (
                f"operator: {self.operator.jwt}\nsystem_account: {self.operator.system_account}\n"
                f"resolver: {resolver}\nresolver_preload {{\n{jwts}\n}}"
            )
        accounts = "\n".join(
            f"  {account} {{ jetstream: {self.account_limits.get(account, 'enabled')}, "
            f"users: [{{user: {user}, password: {APP_PASSWORD!r}}}] }}"
            for account, user in self.accounts.items()
        )
        accounts += "\n".join(
            f"\n  {account} {{ users: [{{user: {user}, password: {APP_PASSWORD!r}}}] }}"
            for account, user in self.plain_accounts.items()
        )
        system = f'"$SYS" {{ users: [{{user: {SYS_USER}, password: {SYS_PASSWORD!r}}}] }}'
        return f'system_account: "$SYS"\naccounts {{\n  {system}\n{accounts}\n}}'

    def _login(self, account: str) -> dict[str, Any]:
        """Return the login options of an account's user for nats.connect."""
        if self.operator is not None:
            return {"user_credentials": str(self.operator.creds[account])}
        if account == "SYS":
            return {"user": SYS_USER, "password": SYS_PASSWORD}
        return {"user": self.accounts[account], "password": APP_PASSWORD}

    def start(self, *names: str) -> None:
        """Start these servers, all by default, and return once they listen."""
        for name in names or self.names:
            if not self.config_file(name).exists():
                self.write_config(name)
            with open(self.directory / f"{name}.log", "ab") as log:
                command = [self._binary, "-c", str(self.config_file(name))]
                self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        for name in names or self.names:
            while not listens(self.ports[name]):
                assert self.processes[name].poll() is None and time.monotonic() < deadline, self.log(name)
                time.sleep(0.01)

    def kill(self, *names: str) -> None:
        """Kill these servers as a crash would, all by default."""
        for name in names or list(self.processes):
            process = self.processes.pop(name)
            process.send_signal(signal.SIGKILL)
            process.wait(10)

    def stop(self, name: str) -> None:
        """Stop a server gracefully."""
        process = self.processes.pop(name)
        process.terminate()
        process.wait(20)

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def app_request(
        self,
        subject: str,
        body: dict[str, Any] | None = None,
        account: str = "APP",
        members: int = 1,
        seconds: float = 60,
    ) -> dict[str, Any]:
        """Return the reply to a JetStream API request, or to a message, of the application user.

        Retries until the request succeeds and, for a group, the reply names a leader and this many members: a newly
        elected leader may omit members that have not contacted it yet. A message is stored only once, and a repeated
        delete succeeds if the object no longer exists.
        """
        return asyncio.run(self._app_request(subject, body or {}, account, members, seconds))

    async def _app_request(
        self, subject: str, body: dict[str, Any], account: str, members: int, seconds: float
    ) -> dict[str, Any]:
        import nats

        async def ignore(_error: Exception) -> None:
            """A server that is still starting refuses the request; the next attempt or another server succeeds."""

        living = [self.url(name) for name in self.processes]
        connection = await nats.connect(living, **self._login(account), error_cb=ignore)
        deadline = time.monotonic() + seconds
        # With this id a message that is sent again is stored once.
        headers = None if subject.startswith("$JS.API.") else {"Nats-Msg-Id": uuid.uuid4().hex}
        unanswered = False
        try:
            while True:
                try:
                    message = await connection.request(subject, json.dumps(body).encode(), timeout=2, headers=headers)
                    reply = json.loads(message.data)
                    if reply.get("seq") == 0 and reply.get("duplicate"):
                        reply = {"error": "sent again, and not stored yet"}
                except (nats.errors.TimeoutError, nats.errors.NoRespondersError) as error:
                    reply = {"error": str(error)}
                    unanswered = unanswered or isinstance(error, nats.errors.TimeoutError)
                if unanswered and ".DELETE." in subject and "not found" in str(reply.get("error")):
                    return {"success": True}
                # A member that is not the leader may also respond, with the messages that it has so far.
                replicas = (reply.get("cluster") or {}).get("replicas") or ()
                named = len(replicas) + 1 if answered_by_leader(reply) else 0
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
        reply = self.app_request(f"$JS.API.STREAM.CREATE.{name}", body, account, members=replicas)
        if body["subjects"] and not body.get("no_ack"):
            asyncio.run(self._until_known(body["subjects"][0], account))
        return reply

    async def _until_known(self, subject: str, account: str) -> None:
        """Return once every living server has a responder for this subject. Some servers receive the interest only
        after the stream's leader has replied."""
        import nats

        one = ".".join("0" if token in ("*", ">") else token for token in subject.split("."))

        async def known(name: str) -> None:
            async with await nats.connect(self.url(name), **self._login(account)) as connection:
                deadline = time.monotonic() + 60
                while True:
                    try:
                        # The leader refuses this message, which expects another stream, before its group receives it.
                        await connection.request(one, headers={"Nats-Expected-Stream": "none"}, timeout=2)
                        return
                    except (nats.errors.TimeoutError, nats.errors.NoRespondersError):
                        assert time.monotonic() < deadline, f"{name} has no route to a subscriber of {one}"
                    await asyncio.sleep(0.05)

        await asyncio.gather(*(known(name) for name in self.processes))

    def add_consumer(self, stream: str, name: str, account: str = "APP", **config: Any) -> dict[str, Any]:
        if config.get("deliver_policy", "all") not in ("all", "by_start_sequence"):
            asyncio.run(self._in_step(stream, account))
        body = {"stream_name": stream, "config": {"durable_name": name, "ack_policy": "explicit", **config}}
        return self.app_request(f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.{name}", body, account)

    async def _in_step(self, stream: str, account: str) -> None:
        """Return once every replica has stored the messages that the stream has now. A consumer's leader starts at the
        messages of its own replica, and the stream's leader acknowledges a message that a replica has yet to store."""
        import nats

        async def stored(name: str) -> int | None:
            """Return the last sequence on this server; None without a replica."""
            async with await nats.connect(self.url(name), **self._login("SYS")) as connection:
                subject = f"$SYS.REQ.SERVER.{connection._server_info['server_id']}.JSZ"
                reply = await connection.request(subject, b'{"accounts": true, "streams": true}', timeout=10)
            details = [one for one in json.loads(reply.data)["data"]["account_details"] if one["name"] == account]
            streams = [one for one in details[0]["stream_detail"] if one["name"] == stream] if details else []
            return int(streams[0]["state"]["last_seq"]) if streams else None

        deadline, goal = time.monotonic() + 60, 0
        while True:
            found = await asyncio.gather(*(stored(name) for name in self.processes))
            last = [sequence for sequence in found if sequence is not None]
            goal = goal or max(last)
            if min(last) >= goal:
                return
            assert time.monotonic() < deadline, f"the replicas of {stream} have the last sequences {last}"
            await asyncio.sleep(0.05)

    def sys_connection(self) -> dict[str, Any]:
        """Return the connection options of the system user, as the modules take them."""
        if self.operator is not None:
            return {"servers": self.urls, "credentials": str(self.operator.creds["SYS"])}
        return {"servers": self.urls, "user": SYS_USER, "password": SYS_PASSWORD}

    def account_users(self) -> list[dict[str, Any]]:
        """Return a user of each account, as the modules take them."""
        if self.operator is not None:
            return [{"account": name, "credentials": str(self.operator.creds[name])} for name in self.accounts]
        return [{"account": name, "user": user, "password": APP_PASSWORD} for name, user in self.accounts.items()]

    def app_connection(self) -> dict[str, Any]:
        if self.operator is not None:
            return {"servers": self.urls, "credentials": str(self.operator.creds["APP"])}
        return {"servers": self.urls, "user": APP_USER, "password": APP_PASSWORD}


def collections_path() -> str:
    return os.environ.get("ANSIBLE_COLLECTIONS_PATH", str(ROOT / ".cache" / "dev"))


def run_playbook(name: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a playbook, given by its short name if it belongs to the collection. The arguments may name an inventory."""
    found = name if "." in name else f"natsops.jetstream.{name}"
    command = [str(Path(sys.executable).with_name("ansible-playbook")), found, *arguments]
    variables = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": collections_path(),
        "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
        "ANSIBLE_NOCOLOR": "true",
        **environment,
    }
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=variables, timeout=240)
    clean(done.stdout + done.stderr)
    return done
