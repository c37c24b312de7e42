# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster that the role deploys, by default on five hosts in zones 2-2-1, with helpers for tests."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partialmethod
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client
from support.controller import Controller, Run, file_install
from support.load import Load, LoadPlan

ZONES = {"n1-c1": "a", "n2-c1": "a", "n3-c1": "b", "n4-c1": "b", "n5-c1": "c"}
HOSTS = list(ZONES)
SYSTEM_PASSWORD = "s3cr3t! $SYS # 'very' \"long\""
TUNINGS = [
    f"nats_server_tuning_{what}"
    for what in ("mount_options", "scheduler", "sysctl", "transparent_hugepages", "time_sync")
]
# Each of these strings would be read as something other than a string if it were written to the configuration without
# quotes.
AWKWARD = {
    "number": "1e5",
    "variable": "$PATH",
    "bcrypt_like": "2a$11$x",
    "comment": "a#b//c",
    "quotes": "'\"`",
    "backslash": "a\\nb\\",
    "unicode": "pässwörd ☃",
    "bool": "true",
    "braces": "{}[];,=:",
    "spaces": " in and around ",
}


# This script makes a start of the server raft-silent, a defect of some versions: the server responds to clients but
# sends nothing to its Raft peers. A configuration that forbids the server to send Raft messages to its peers has the same
# effect until the process ends. The script restores the content and modification time of the configuration file once
# the server listens.
MUTE = r"""#!/bin/sh
conf=/etc/nats-server/nats-server.conf
left=$(cat /root/mute-starts)
if [ "$1" = before ] && [ "$left" -gt 0 ]; then
  echo $((left - 1)) > /root/mute-starts
  cp -p $conf $conf.kept
  sed -i 's/^cluster: {/& permissions: {export: {deny: ["$NRG.>"]}}/' $conf
elif [ "$1" = after ] && [ -e $conf.kept ]; then
  until python3 -c 'import socket; socket.create_connection(("127.0.0.1", 4222))' 2>/dev/null; do sleep 0.1; done
  mv $conf.kept $conf
fi
"""
MUTE_UNIT = "[Service]\nExecStartPre=+/root/mute before\nExecStartPost=+/root/mute after\n"


class Cluster:
    """The cluster under test, with the variables that its next deployment uses."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.host_variables: dict[str, dict[str, Any]] = {
            host: {"nats_server_zone": zone} for host, zone in ZONES.items()
        }
        #: Groups of the inventory, with their hosts.
        self.groups: dict[str, list[str]] = {}
        self.variables: dict[str, Any] = {
            **file_install("2.10.27"),
            "nats_server_cluster_name": "C1",
            "nats_server_jetstream_store_dir": "/nats/storage",
            "nats_server_jetstream_max_file_store": "256MB",
            "nats_server_system_password": SYSTEM_PASSWORD,
            "nats_server_bcrypt_cost": 4,
            # The default of 10 s is for real hosts; test_cluster_health.py tests how the gate uses this setting.
            "nats_cluster_gate_span": 3,
            # The tuning of hosts is tested in molecule's scenarios.
            **dict.fromkeys(TUNINGS, "off"),
            "nats_server_accounts": {
                "APP": {
                    "jetstream": True,
                    "users": [{"user": user, "password": password} for user, password in AWKWARD.items()],
                }
            },
        }

    @property
    def hosts(self) -> list[str]:
        """The hosts of the inventory."""
        return list(self.host_variables)

    def urls(self, *hosts: str) -> list[str]:
        """The client addresses of these hosts, by default of all hosts."""
        return [f"nats://{self.controller.address(host)}:4222" for host in hosts or self.hosts]

    def play(
        self,
        playbook: str | Path,
        hosts: list[str] | None = None,
        host_vars: dict[str, dict[str, Any]] | None = None,
        limit: str | None = None,
        check: bool = False,
        extra_vars: dict[str, Any] | None = None,
        **changes: Any,
    ) -> Run:
        """Run a playbook of the collection by its name, or any playbook by its path; ``changes`` apply to this run
        only."""
        per_host = {host: {**own, **(host_vars or {}).get(host, {})} for host, own in self.host_variables.items()}
        return self.controller.playbook(
            playbook,
            hosts=hosts or self.hosts,
            groups=self.groups,
            group_vars={**self.variables, **changes},
            host_vars=per_host,
            limit=limit,
            check=check,
            extra_vars=extra_vars,
        )

    deploy = partialmethod(play, "deploy")

    def deploy_unchanged(self, **changes: Any) -> Run:
        """Deploy an unchanged configuration, which may change nothing. The returned run contains its cost."""
        run = self.deploy(**changes)
        assert run.status == 0, run.output
        assert run.changed == []
        return run

    def restore(self) -> None:
        """Power on killed hosts, remove all network faults, and wait until the gate passes. A test that failed may leave a
        raft-silent server, which is repaired for the next test."""
        lab = self.controller.lab
        killed = [host for host in self.hosts if not lab.is_running(host)]
        for host in killed:
            lab.start(host, wait=False)
        lab.wait_for_boot(killed)
        lab.heal(*self.hosts)
        self.wait_after_start(*self.hosts)

    @contextmanager
    def load(
        self,
        *hosts: str,
        user: str = "number",
        password: str = AWKWARD["number"],
        streams: Sequence[str] = ("LOAD3", "MORE3"),
    ) -> Iterator[Load]:
        """Run messages, requests and counters inside the context, then check that everything acknowledged is stored.

        The clients connect to these hosts, by default to all hosts. The streams have three replicas.
        """
        load = Load(self.urls(*hosts), user, password, LoadPlan(streams=dict.fromkeys(streams, 3), rate=20))
        self.controller.run(load.prepare(), timeout=90)
        with self.running(load):
            yield load
        assert self.controller.run(load.verify(), timeout=300) == []
        assert load.report().acknowledged > 50
        print(load.report())

    @contextmanager
    def running(self, load: Load) -> Iterator[None]:
        """Run a prepared load inside the context."""
        running = self.controller.start(load.run())

        async def stop() -> None:
            load.stop()

        try:
            yield
        finally:
            self.controller.run(stop())
            running.result(timeout=30)

    def pids(self) -> dict[str, str]:
        """Return the process id of each server, which changes with every restart."""
        return {
            host: self.controller.ssh(host, "systemctl show -P MainPID nats-server").stdout.strip()
            for host in self.hosts
        }

    def boots(self) -> dict[str, str]:
        """Return the boot id of each host."""
        return {
            host: self.controller.ssh(host, "cat /proc/sys/kernel/random/boot_id").stdout.strip() for host in self.hosts
        }

    def restarted(self, before: dict[str, str]) -> set[str]:
        """Return the hosts on which the server's process has changed."""
        return {host for host, pid in self.pids().items() if pid != before[host]}

    def files(self) -> dict[str, str]:
        """Return a digest of each host's configuration files."""
        return {
            host: self.controller.ssh(host, "cat /etc/nats-server/*.conf | sha256sum").stdout for host in self.hosts
        }

    def varz(self, host: str) -> dict[str, Any]:
        """Return a server's VARZ."""
        read = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8222/varz').read().decode())"
        result: dict[str, Any] = json.loads(self.controller.ssh(host, f'python3 -c "{read}"').stdout)
        return result

    @asynccontextmanager
    async def client(
        self, *hosts: str, user: str = "number", password: str = AWKWARD["number"], reconnect: bool = False
    ) -> AsyncIterator[Client]:
        """Yield a connection to one of the hosts."""
        login = {"user": user, "password": password}
        connection = await nats.connect(self.urls(*hosts), **login, connect_timeout=2, allow_reconnect=reconnect)
        try:
            yield connection
        finally:
            await connection.close()

    @contextmanager
    def mute(self, host: str) -> Iterator[Callable[[int], None]]:
        """Yield a function that makes the given number of the host's next starts raft-silent."""
        drop_in = "/etc/systemd/system/nats-server.service.d"

        def starts(count: int) -> None:
            self.controller.ssh(host, f"echo {count} > /root/mute-starts")

        files = {"/root/mute": MUTE, f"{drop_in}/mute.conf": MUTE_UNIT}
        write = " && ".join(f"printf %s {shlex.quote(text)} > {path}" for path, text in files.items())
        starts(0)
        self.controller.ssh(host, f"mkdir -p {drop_in} && {write} && chmod +x /root/mute && systemctl daemon-reload")
        try:
            yield starts
        finally:
            self.controller.ssh(host, f"rm -r {drop_in} && systemctl daemon-reload")

    def fill(self, streams: int) -> None:
        """Create this many streams with three replicas, which the meta leader spreads over all servers."""

        async def make() -> None:
            async with self.client() as client:
                for first in range(0, streams, 20):
                    bodies = {
                        f"S{number}": json.dumps({"name": f"S{number}", "num_replicas": 3, "subjects": [f"s.{number}"]})
                        for number in range(first, min(first + 20, streams))
                    }
                    replies = await asyncio.gather(
                        *(
                            client.request(f"$JS.API.STREAM.CREATE.{name}", body.encode(), timeout=30)
                            for name, body in bodies.items()
                        )
                    )
                    for reply in replies:
                        assert "error" not in json.loads(reply.data), reply.data

        self.controller.run(make(), timeout=600)

    def health(self, *arguments: str) -> Run:
        """Run the health gate once, with additional options as ``name=value``."""
        return self.controller.module(
            "nats_cluster_health",
            {
                "servers": self.urls(),
                "expected_servers": self.hosts,
                "wait": False,
                # Callers search the complete message.
                "problems": "first",
                "user": "sys",
                "password": self.variables.get("nats_server_system_password"),
                **dict(argument.split("=", 1) for argument in arguments),
            },
        )

    def wait_until_healthy(self, deadline: float = 60) -> None:
        """Wait until the health gate passes, using the same module as the role."""
        end = time.monotonic() + deadline
        while (run := self.health()).status:
            assert time.monotonic() < end, run.output
            time.sleep(1)

    def wait_after_start(self, *hosts: str) -> None:
        """Wait for the gate after the servers of these hosts were started without the role, as a boot does.

        A 2.10.27 server is sometimes raft-silent after its start; this must be the only problem. A deployment repairs
        such a server; if only a stream's group is silent, a restart does. On a busy machine, a host boots for most of
        a minute, so the silence counts from the first report of it.
        """
        repairs, silent, end = 0, 0.0, time.monotonic() + 60
        while (run := self.health()).status:
            now = time.monotonic()
            mute = next((host for host in hosts if self.is_mute(host, run)), None)
            silent = (silent or now) if mute else 0.0
            if mute and now - silent > 30 and repairs < 3:
                in_meta = any("the meta group: replica" in error for error in run.errors)
                assert self.mended(mute, "deploy" if in_meta else "restart") == {mute}
                repairs, silent, end = repairs + 1, 0.0, time.monotonic() + 60
            assert now < end or (silent and repairs < 3), run.output
            time.sleep(1)

    def mended(self, host: str, playbook: str = "deploy") -> set[str]:
        """Run the playbook for a host whose server is raft-silent, and return the hosts on which it restarted the
        server."""
        pids = self.pids()
        run = self.play(playbook, limit=host)
        assert run.status == 0, run.output
        return self.restarted(pids)

    def is_mute(self, host: str, run: Run) -> bool:
        """Return whether the gate reports this server, and no other, as silent although it responds."""
        # Read the titles of the causes, and the problems below them.
        lines = [line for error in run.errors for line in error.splitlines() if re.match(r" *(-|\d+\.) ", line)]
        return any(f"replica {host} " in line and "although it answers" in line for line in lines) and all(
            host in line for line in lines
        )

    def wait_for_mute(self, host: str, deadline: float = 60) -> None:
        """Wait until the gate reports this server, and no other, as silent although it responds."""
        end = time.monotonic() + deadline
        while not self.is_mute(host, run := self.health()):
            assert time.monotonic() < end, run.output
            time.sleep(1)


def refusal(run: Run) -> list[str]:
    """Return the output of the failed task, from its title to the next one, which must fit on a screen of 25 lines."""
    assert run.status != 0
    parts = re.split(r"^(?=(?:TASK|PLAY RECAP) )", run.output, flags=re.MULTILINE)
    failing = [part for part in parts if re.search(r"^(?:\[ERROR\]|fatal: )", part, re.MULTILINE)]
    lines = [line for line in failing[0].splitlines() if line.strip()]
    assert len(lines) <= 25 and len(failing[0]) < 10_000, failing[0]
    return lines
