# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster that the collection's own playbooks deploy: each host is a folder, its server a process on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import grp
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import nats
import nats.js.errors
from nats.aio.client import Client
from support.clean_output import clean
from support.credentials import Operator
from support.load import Load, LoadPlan, LoadReport, patiently
from support.module_runs import Runner
from support.nats_processes import binary, collections_path, free_ports

SYSTEM_PASSWORD = "sys-pass#$1"
OPERATOR_PASSWORD = "operator pass"
APP_USER, APP_PASSWORD = "app", "app-pass"
#: The task of the smoke test.
SMOKE_TEST = "nats_cluster : Send messages between all servers"
TUNINGS = ("mount_options", "scheduler", "sysctl", "transparent_hugepages", "time_sync")


@dataclass(frozen=True)
class Run:
    """The result of a playbook: its exit status and output."""

    status: int
    output: str


class RoleCluster:
    """The hosts of an inventory group `nats`. `variables` are the group's; tests change them as an operator would."""

    def __init__(self, root: Path, names: Sequence[str], version: str = "2.15.1") -> None:
        self.root = root
        self.hosts: dict[str, dict[str, Any]] = {}
        #: Child groups of `nats`, with their hosts.
        self.groups: dict[str, list[str]] = {}
        self.variables: dict[str, Any] = {
            "ansible_connection": "local",
            "ansible_host": "127.0.0.1",
            "ansible_python_interpreter": sys.executable,
            "nats_server_become": False,
            "nats_server_user": getpass.getuser(),
            "nats_server_group": grp.getgrgid(os.getgid()).gr_name,
            "nats_server_manage_user": False,
            "nats_server_service_backend": "process",
            "nats_server_install_method": "file",
            "nats_server_cluster_name": "C1",
            "nats_server_host": "127.0.0.1",
            "nats_server_cluster_host": "127.0.0.1",
            "nats_server_jetstream_max_file_store": "256MB",
            "nats_server_jetstream_max_memory_store": "64MB",
            "nats_server_bcrypt_cost": 4,
            "nats_server_system_password": SYSTEM_PASSWORD,
            "nats_server_account_operator_password": OPERATOR_PASSWORD,
            "nats_server_accounts": {
                "APP": {"jetstream": True, "users": [{"user": APP_USER, "password": APP_PASSWORD}]}
            },
            "nats_cluster_gate_span": 2,
            **{f"nats_server_tuning_{part}": "off" for part in TUNINGS},
            **self.running(version),
        }
        for name in names:
            self.add(name)

    @staticmethod
    def running(version: str) -> dict[str, Any]:
        """Return the variables that select a version of nats-server."""
        return {"nats_server_version": version, "nats_server_file_src": binary(version)}

    def use_operator(self, operator: Operator, **resolver: Any) -> None:
        """Replace the static accounts by those of an operator. `resolver`: options of the full resolver of each host,
        whose JWTs are in the host's folder `jwt`."""
        for unwanted in (
            "nats_server_accounts",
            "nats_server_system_password",
            "nats_server_account_operator_password",
        ):
            del self.variables[unwanted]
        self.variables.update(
            nats_server_operator=operator.jwt,
            nats_server_system_account=operator.system_account,
            nats_server_config={"resolver_preload": operator.accounts},
            nats_server_api_credentials=str(operator.creds["SYS"]),
        )
        for name, own in self.hosts.items():
            used = {"type": "full", "dir": str(self.root / name / "jwt"), **resolver}
            own["nats_server_config_host"] = {"resolver": used}

    def add(self, name: str, folder: str = "") -> None:
        """Add a host to the inventory. `folder`: a folder to use instead of the one with the host's name, as for a host
        with a different disk."""
        client, route, monitor, gateway = free_ports(4)
        root = self.root / (folder or name)
        self.hosts[name] = {
            "nats_server_port": client,
            "nats_server_cluster_port": route,
            "nats_server_gateway_port": gateway,
            "nats_server_http": f"127.0.0.1:{monitor}",
            "nats_server_install_dir": str(root / "opt"),
            "nats_server_binary_link": str(root / "nats-server"),
            "nats_server_config_dir": str(root / "etc"),
            "nats_server_run_dir": str(root / "run"),
            "nats_server_jetstream_store_dir": str(root / "store"),
        }

    @property
    def urls(self) -> list[str]:
        """Return the client addresses of the hosts in the inventory."""
        return [self.url(name) for name in self.hosts]

    def url(self, name: str) -> str:
        tls = self.variables.get("nats_server_tls_source") and self.variables.get("nats_server_tls_for_clients", True)
        scheme = "tls" if tls else "nats"
        return f"{scheme}://127.0.0.1:{self.hosts[name]['nats_server_port']}"

    def system(self) -> dict[str, Any]:
        """Return the modules' connection options for the system user."""
        return {"servers": self.urls, "user": "sys", "password": SYSTEM_PASSWORD}

    def inventory(self) -> Path:
        """Write the inventory as it is now, and return its path."""
        path = self.root / "inventory.json"
        children = {name: {"hosts": dict.fromkeys(hosts)} for name, hosts in self.groups.items()}
        group = {"hosts": self.hosts, "vars": self.variables, "children": children}
        path.write_text(json.dumps({"all": {"children": {"nats": group}}}))
        return path

    def controller(self) -> tuple[list[str], dict[str, str]]:
        """Return the command that runs a playbook, and its environment."""
        return [str(Path(sys.executable).with_name("ansible-playbook"))], {
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": collections_path(),
        }

    def start_playbook(self, name: str, *arguments: str, **extra: Any) -> subprocess.Popen[str]:
        """Start a playbook of the collection, or a playbook file; `extra` are extra variables."""
        playbook = name if "/" in name else f"natsops.jetstream.{name}"
        command, environment = self.controller()
        environment = {
            **environment,
            "ANSIBLE_NOCOLOR": "true",
            "ANSIBLE_FORKS": "10",
            "ANSIBLE_PIPELINING": "true",
            "XDG_CACHE_HOME": str(self.root / "cache"),
        }
        return subprocess.Popen(
            [*command, playbook, "-i", str(self.inventory()), *arguments, "-e", json.dumps(extra)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )

    def playbook(self, name: str, *arguments: str, fails: bool = False, **extra: Any) -> Run:
        """Run a playbook to its end; `fails`: whether it must fail."""
        process = self.start_playbook(name, *arguments, **extra)
        # On a busy machine, a restart of three servers takes half of this time, with a gate of up to 120 s for each
        # server.
        output, _nothing = process.communicate(timeout=300)
        assert (process.returncode != 0) == fails, output
        return Run(process.returncode, clean(output))

    @contextlib.contextmanager
    def deployed(self) -> Iterator[Self]:
        """Deploy, and kill all servers at the end."""
        try:
            self.playbook("deploy")
            yield self
        finally:
            self.kill()

    def deploy_changes_nothing(self, **extra: Any) -> None:
        """Deploy, and check that no task changed anything, no server was restarted, and the smoke test was skipped."""
        pids = self.pids()
        output = self.playbook("deploy", **extra).output
        assert SMOKE_TEST not in output
        assert set(re.findall(r"changed=(\d+)", output)) == {"0"}, output
        assert self.pids() == pids

    def pid(self, name: str) -> int:
        """Return the process id of a host's server; 0 if it is not running."""
        try:
            pid = int((Path(self.hosts[name]["nats_server_run_dir"]) / "nats-server.pid").read_text())
            return pid if b"nats-server" in Path(f"/proc/{pid}/cmdline").read_bytes() else 0
        except (OSError, ValueError):
            return 0

    def pids(self) -> dict[str, int]:
        return {name: self.pid(name) for name in self.hosts}

    def kill(self, *names: str) -> None:
        """Kill these servers as a crash would; all by default."""
        for name in names or tuple(self.hosts):
            if pid := self.pid(name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def load(
    cluster: RoleCluster,
    user: str = APP_USER,
    password: str = APP_PASSWORD,
    streams: Mapping[str, int] | None = None,
    **login: Any,
) -> Iterator[list[LoadReport]]:
    """Produce, consume and request inside the context, then check that every acknowledged message is stored.

    Afterwards, the yielded list contains the report. `streams`: name → replicas; the default is one stream with three
    replicas.
    """
    plan = LoadPlan(streams=dict(streams or {"LOAD3": 3}), rate=20)
    work = Load(cluster.urls, user, password, plan, **login)
    reports: list[LoadReport] = []
    with contextlib.closing(asyncio.new_event_loop()) as loop, ThreadPoolExecutor(1) as thread:
        loop.run_until_complete(work.prepare())
        running = thread.submit(loop.run_until_complete, work.run())
        try:
            yield reports
        finally:
            loop.call_soon_threadsafe(work.stop)
            running.result()
        assert loop.run_until_complete(work.verify()) == []
    reports.append(work.report())
    assert reports[0].acknowledged > 50
    print(reports[0])


def under_load(cluster: RoleCluster, work: Callable[[], Any], **streams: int) -> LoadReport:
    """Run the work under such a load."""
    with load(cluster, streams=streams) as reports:
        work()
    return reports[0]


def create(cluster: RoleCluster, name: str, replicas: int, **config: Any) -> None:
    """Create a stream as the application's user. For some seconds after the first start of a cluster, the meta leader
    lacks the data of other servers and finds "no suitable peers"."""
    body = json.dumps({"name": name, "num_replicas": replicas, "storage": "file", **config}).encode()

    async def ask(client: Client) -> None:
        reply = json.loads((await client.request(f"$JS.API.STREAM.CREATE.{name}", body, timeout=10)).data)
        if "error" in reply:
            raise nats.js.errors.APIError.from_error(reply["error"])

    async def work() -> None:
        client = await nats.connect(cluster.urls, user=APP_USER, password=APP_PASSWORD)
        try:
            await patiently(partial(ask, client))
        finally:
            await client.close()

    asyncio.run(work())


def publish(cluster: RoleCluster, subject: str, count: int, size: int) -> None:
    """Publish messages of this size as the application's user, each acknowledged."""

    async def send() -> None:
        client = await nats.connect(cluster.urls, user=APP_USER, password=APP_PASSWORD)
        try:
            for _message in range(count):
                reply = await client.request(subject, b"x" * size, timeout=10)
                assert "error" not in json.loads(reply.data), reply.data
        finally:
            await client.close()

    asyncio.run(send())


def meta_members(run_module: Runner, cluster: RoleCluster) -> list[str]:
    """Return the members of the meta group as its leader lists them."""
    return sorted(run_module("nats_cluster_info", cluster.system(), detail="servers")["meta"]["members"])


def words(output: str) -> str:
    """Return Ansible's output as one line, undoing its line breaks and escaped quotes."""
    return " ".join(output.replace("\\n", " ").replace('\\"', '"').split())
