# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A test's access to a lab: runs playbooks against it and connects to its servers as a NATS client."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import binaries
import rootfs
from lab import Lab, enter_network
from support.clean_output import clean
from support.module_runs import run_in_process

_CHECKOUT = Path(__file__).resolve().parents[2]
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class TaskResult:
    """The result of one task on one host."""

    host: str
    task: str
    status: str
    """ok, failed, ignored (it failed, and was allowed to) or unreachable."""
    changed: bool
    msg: str
    covered: bool
    """Whether a gate relied on the previous one and took no sample."""


@dataclass
class Cost:
    """The cost of a run on one host, from the callback plugin lab_costs."""

    module_runs: int = 0
    tasks: int = 0


@dataclass(frozen=True)
class Step:
    """A task of a run, and the seconds until the next task began."""

    task: str
    action: str
    seconds: float


@dataclass(frozen=True)
class Run:
    """A playbook's run; `costs` are by host, including localhost if a play runs on it."""

    status: int
    output: str
    results: tuple[TaskResult, ...]
    seconds: float = 0.0
    costs: dict[str, Cost] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()

    @property
    def changed(self) -> list[tuple[str, str]]:
        """The host and the name of each task that changed something, or would have done so in check mode."""
        return sorted({(result.host, result.task) for result in self.results if result.changed})

    @property
    def errors(self) -> list[str]:
        """The messages of all failures."""
        return [result.msg for result in self.results if result.status in ("failed", "unreachable")]


def read_costs(record: Iterable[str]) -> tuple[dict[str, Cost], tuple[Step, ...]]:
    """Return the cost of each host, and the tasks in order, from the record of the callback plugin lab_costs."""
    entries = [json.loads(line) for line in record]
    costs: dict[str, Cost] = {}
    for entry in entries:
        if "host" in entry:
            cost = costs.setdefault(entry["host"], Cost())
            if "module" in entry:
                cost.module_runs += 1
            else:
                cost.tasks += 1
    moments = [entry for entry in entries if "at" in entry]
    steps = (
        Step(one["task"], one["action"], following["at"] - one["at"])
        for one, following in zip(moments, moments[1:], strict=False)
    )
    return costs, tuple(steps)


class Controller:
    """The controller of a lab, from which Ansible logs in to the hosts as the user `user`."""

    def __init__(self, lab: Lab, user: str = rootfs.USER) -> None:
        self.lab = lab
        self.user = user
        self._loop = asyncio.new_event_loop()
        entered = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(entered,), daemon=True)
        self._thread.start()
        entered.wait()

    def _serve(self, entered: threading.Event) -> None:
        # A network namespace belongs to a thread: the sockets of this thread are in the lab, those of the other tests
        # are not.
        try:
            enter_network(self.lab.name)
        finally:
            entered.set()
        self._loop.run_forever()

    def close(self) -> None:
        """End the thread in the lab's network."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, _Value], timeout: float = 60) -> _Value:
        """Run a coroutine inside the lab's network; return its result. ``timeout`` is in seconds."""
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, timeout), self._loop).result()

    def start(self, work: Coroutine[Any, Any, _Value]) -> Future[_Value]:
        """Start a coroutine inside the lab's network without waiting for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def address(self, host: str) -> str:
        """Return a host's address."""
        return self.lab.hosts[host].address

    def login(self, folder: Path) -> dict[str, str]:
        """Return the environment in which Ansible logs in to the hosts of a separate inventory.

        The sudo password is written to a file in the folder.
        """
        password = folder / "sudo-password"
        password.write_text(rootfs.PASSWORD)
        return {
            "ANSIBLE_SSH_COMMON_ARGS": f"-F {self.lab.inventory.with_name('ssh_config')}",
            "ANSIBLE_BECOME_PASSWORD_FILE": str(password),
        }

    def ssh(self, host: str, command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a shell command on a host; raise LabError if it fails and ``check`` is true."""
        return self.lab.ssh(host, command, check)

    def playbook(
        self,
        name: str | Path,
        *,
        hosts: Sequence[str] | None = None,
        groups: Mapping[str, Sequence[str]] | None = None,
        group_vars: Mapping[str, Any] | None = None,
        host_vars: Mapping[str, Mapping[str, Any]] | None = None,
        extra_vars: Mapping[str, Any] | None = None,
        limit: str | None = None,
        check: bool = False,
        diff: bool = False,
        timeout: float = 1800,
    ) -> Run:
        """Run a playbook of the collection by its name, or any playbook by its path, on an inventory with the group
        ``nats``.

        The group contains the given hosts, by default all hosts of the lab, and has the child groups ``groups``. A
        playbook that fails is a result, not an error.
        """
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            inventory = json.loads(self.lab.inventory.read_text())
            group = inventory["nats"]
            members = hosts or list(group["hosts"])
            group["hosts"] = {host: {**group["hosts"][host], **(host_vars or {}).get(host, {})} for host in members}
            group["vars"].update({"ansible_user": self.user, **(group_vars or {})})
            group["children"] = {name: {"hosts": dict.fromkeys(part)} for name, part in (groups or {}).items()}
            (work / "inventory.yml").write_text(json.dumps(inventory))
            (work / "extra.json").write_text(json.dumps(extra_vars or {}))
            playbook = str(name) if isinstance(name, Path) else f"natsops.jetstream.{name}"
            command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(work / "inventory.yml")]
            command += ["-e", f"@{work}/extra.json", playbook]
            command += ["--limit", limit] if limit else []
            command += [flag for flag, wanted in (("--check", check), ("--diff", diff)) if wanted]
            record, costs = work / "record.jsonl", work / "costs.jsonl"
            record.touch()
            costs.touch()
            environment = {
                **os.environ,
                "ANSIBLE_COLLECTIONS_PATH": os.environ.get("ANSIBLE_COLLECTIONS_PATH")
                or str(_CHECKOUT / ".cache" / "dev"),
                "ANSIBLE_CALLBACK_PLUGINS": str(Path(__file__).with_name("callback")),
                "ANSIBLE_CALLBACKS_ENABLED": "lab_record,lab_costs",
                "ANSIBLE_NOCOLOR": "1",
                "LAB_RECORD": str(record),
                "LAB_COSTS": str(costs),
            }
            begun = time.monotonic()
            status, output = _finish(command, environment, timeout)
            seconds = time.monotonic() - begun
            results = tuple(TaskResult(**json.loads(line)) for line in record.read_text().splitlines())
            host_costs, steps = read_costs(costs.read_text().splitlines())
        return Run(status, clean(output), results, seconds, host_costs, steps)

    def module(self, name: str, arguments: Mapping[str, Any]) -> Run:
        """Run one module of the collection in this process, inside the lab's network.

        A playbook for it would cost ten times the module's CPU time. `output` is the message of a failure, otherwise
        the result as JSON.
        """
        # The thread that runs the module is started by the one in the lab's network, and is in the same network.
        result = self.run(asyncio.to_thread(run_in_process, name, dict(arguments)), timeout=1800)
        failed, changed = bool(result.get("failed")), bool(result.get("changed"))
        msg = str(result.get("msg", ""))
        record = TaskResult("localhost", name, "failed" if failed else "ok", changed, msg, False)
        return Run(2 if failed else 0, msg if failed else json.dumps(result), (record,))


def _finish(command: Sequence[str], environment: Mapping[str, str], timeout: float) -> tuple[int, str]:
    """Run Ansible to its end and return its status and output. An interrupt or the timeout also ends Ansible."""
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            output, _nothing = process.communicate(timeout=timeout)
        except BaseException:
            # On this signal, Ansible ends its workers; if it were killed, they would keep running.
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=10)
            process.kill()
            raise
        return process.returncode, output


def download_wheels(directory: Path) -> Path:
    """Download the packages that the collection's programs need, for hosts without a package index; return the
    directory."""
    locks = _CHECKOUT / "roles/nats_program/files/locks"
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(directory)]
    for name in ("msgspec", "nats", "prometheus_client"):
        subprocess.run([*download, "--requirement", str(locks / f"{name}.txt")], check=True, capture_output=True)
    # pip needs this package to build nkeys.
    subprocess.run([*download, "setuptools"], check=True, capture_output=True)
    return directory


def file_install(version: str) -> dict[str, Any]:
    """Return the role's variables that install this version of nats-server from the controller's cache."""
    return {
        "nats_server_version": version,
        "nats_server_install_method": "file",
        "nats_server_file_src": str(binaries.nats_server(version)),
    }
