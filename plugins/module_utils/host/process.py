# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The nats-server processes of this host, read from /proc, which works without credentials and without a service
manager.

A server is recognised by the configuration file on its command line, never by a pid file alone: a pid file may be
stale, and a different process may have its number by now.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

_PROC = Path("/proc")
_CONFIG_FLAGS = ("-c", "-config", "--config")
# Invocations of the same binary that are not servers: a test of the configuration, and sending a signal.
_OTHER_USES = ("-t", "-sl", "-signal", "--signal", "-v", "--version", "-version", "--help", "-h")
_LISTEN = "0A"


class ProcessError(Exception):
    """The process cannot be read, controlled or identified."""


@dataclass(frozen=True)
class ServerProcess:
    """One running nats-server.

    `started` is in epoch seconds of the host's current clock, so it changes when that clock is set. `instance` is
    constant while the process lives and unique on this host, also after a reboot. `binary` is the kernel's path of the
    executable: resolved, and followed by ` (deleted)` if the file has been replaced or removed; empty if it may not be
    read.
    """

    pid: int
    binary: str
    started: float
    instance: str


@dataclass(frozen=True)
class RunningServer:
    """A nats-server with its command line and the directory in which it started. `contained`: its paths are those
    inside a container."""

    process: ServerProcess
    argv: tuple[str, ...]
    directory: str
    contained: bool

    @property
    def config(self) -> str:
        """Return the path of the server's configuration file; empty if it has none."""
        named = stored_config(list(self.argv))
        return os.path.join(self.directory, named) if named else ""


def stored_config(argv: list[str]) -> str | None:
    """Return the configuration file that a nats-server command line names, or None if the command line does not run a
    server.

    Go's flag package accepts `-c FILE`, `-c=FILE` and one or two dashes (nats-server main.go, server/opts.go).
    """
    config = None
    for position, argument in enumerate(argv[1:], start=1):
        name, equals, value = argument.partition("=")
        if name in _OTHER_USES:
            return None
        if name in _CONFIG_FLAGS:
            config = value if equals else argv[position + 1] if position + 1 < len(argv) else None
    return config


def find_server(config: str, proc: Path = _PROC) -> ServerProcess | None:
    """Return the running nats-server with this configuration file, or None. Raises ProcessError if several run with the
    same file."""
    wanted = os.path.realpath(config)
    found = [server for server, path in _servers(proc) if os.path.realpath(path) == wanted]
    if len(found) > 1:
        pids = ", ".join(str(server.pid) for server in found)
        raise ProcessError(f"several nats-server processes run with {config}: pids {pids}; stop all but one")
    return found[0] if found else None


def running_binaries(proc: Path = _PROC) -> set[str]:
    """Return the paths of the executables of all processes that may be read, including replaced files."""
    return {binary for pid in _pids(proc) if (binary := _link(proc / str(pid) / "exe").removesuffix(" (deleted)"))}


def wait_exit(server: ServerProcess, timeout: float, proc: Path = _PROC) -> bool:
    """Wait up to `timeout` seconds until this process has ended or is a zombie; return whether it has."""
    deadline = time.monotonic() + timeout
    while (ticks := _start_ticks(proc / str(server.pid))) is not None and _instance(
        server.pid, ticks, proc
    ) == server.instance:
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.1)
    return True


def wait_start(config: str, timeout: float, proc: Path = _PROC) -> bool:
    """Wait up to `timeout` seconds until a server is running with this configuration file; return whether it is."""
    deadline = time.monotonic() + timeout
    while find_server(config, proc) is None:
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return True


def read_version(binary: str) -> str:
    """Return the version that a nats-server binary reports, without the leading `v`.

    Raises ProcessError if it cannot be run or prints anything else.
    """
    try:
        # run_command has no timeout, and the file may be any program.
        done = subprocess.run(  # pylint: disable=ansible-bad-function
            [binary, "--version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ProcessError(f"{binary} cannot be run: {error}") from error
    match = re.search(r"nats-server: v(\S+)", done.stdout)
    if done.returncode or not match:
        said = (done.stdout + done.stderr).strip()[:200]
        raise ProcessError(f"{binary} is not a nats-server: --version returned rc {done.returncode}, {said!r}")
    return match.group(1)


def running_version(server: ServerProcess, proc: Path = _PROC) -> str:
    """Return the version of the image that the process runs, even if its file has been deleted; empty if it may not be
    run."""
    return executable_version(str(proc / str(server.pid) / "exe"))


def executable_version(binary: str) -> str:
    """Return the version of a nats-server binary; empty if there is none or it may not be run."""
    try:
        return read_version(binary)
    except ProcessError:
        return ""


def listening_ports(pid: int, proc: Path = _PROC) -> list[int]:
    """Return the TCP ports on which the process listens, sorted; empty if its descriptors may not be read."""
    base = proc / str(pid)
    inodes = set()
    try:
        for descriptor in (base / "fd").iterdir():
            match = re.fullmatch(r"socket:\[(\d+)]", _link(descriptor))
            if match:
                inodes.add(match.group(1))
    except OSError:
        return []
    ports = set()
    for table in ("tcp", "tcp6"):
        for fields in _rows(base / "net" / table):
            if fields[3] == _LISTEN and fields[9] in inodes:
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return sorted(ports)


def _pids(proc: Path) -> Iterator[int]:
    for entry in proc.iterdir():
        if entry.name.isdigit():
            yield int(entry.name)


def running_servers(proc: Path = _PROC) -> list[RunningServer]:
    """Return every nats-server that this host can see, including those in containers and those without a configuration
    file."""
    own_namespace = _link(proc / "self" / "ns" / "pid")
    found = []
    for pid in _pids(proc):
        base = proc / str(pid)
        argv = _argv(base)
        binary = _link(base / "exe")
        name = os.path.basename(binary.removesuffix(" (deleted)") or (argv[0] if argv else ""))
        if name != "nats-server" or any(word.partition("=")[0] in _OTHER_USES for word in argv[1:]):
            continue
        ticks = _start_ticks(base)
        if ticks is None:
            continue
        namespace = _link(base / "ns" / "pid")
        process = ServerProcess(pid, binary, _epoch(ticks), _instance(pid, ticks, proc))
        contained = bool(namespace and namespace != own_namespace)
        found.append(RunningServer(process, tuple(argv), _link(base / "cwd") or "/", contained))
    return found


def read_servers(config: str) -> list[RunningServer]:
    """Return the nats-servers that run with a configuration file, including those in containers; or all of them if no
    file is given."""
    return [one for one in running_servers() if not config or os.path.realpath(one.config) == os.path.realpath(config)]


def read_instance(instance: str) -> RunningServer | None:
    """Return the nats-server of a process that was read before; None if it has ended."""
    return next((one for one in running_servers() if one.process.instance == instance), None)


def _servers(proc: Path) -> Iterator[tuple[ServerProcess, str]]:
    """Return every nats-server of this host with the path of its configuration file.

    Processes of containers are visible here too, but their paths refer to different files, so processes of other PID
    namespaces are skipped.
    """
    for server in running_servers(proc):
        if server.config and not server.contained:
            yield server.process, server.config


def parse_environment(pid: int, proc: Path = _PROC) -> dict[str, str]:
    """Return the environment that a process was started with; empty if it may not be read."""
    try:
        lines = (proc / str(pid) / "environ").read_bytes().decode(errors="surrogateescape").split("\0")
    except OSError:
        return {}
    return dict(line.split("=", 1) for line in lines if "=" in line)


def _argv(base: Path) -> list[str]:
    try:
        return (base / "cmdline").read_bytes().decode(errors="surrogateescape").split("\0")[:-1]
    except OSError:
        return []


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _rows(path: Path) -> Iterator[list[str]]:
    try:
        for line in path.read_text().splitlines()[1:]:
            yield line.split()
    except OSError:
        return


def _start_ticks(base: Path) -> int | None:
    """Return the clock ticks from boot to the start of a process; None if it has ended or is a zombie (proc(5): stat,
    fields 3 and 22).
    """
    try:
        fields = (base / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    if fields[0] in "ZX":
        return None
    return int(fields[19])


def _epoch(ticks: int) -> float:
    return round(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK"), 2)


def _instance(pid: int, ticks: int, proc: Path) -> str:
    """Return a key that is unique among this host's processes: the boot, the process ID, and the start time."""
    return f"{(proc / 'sys/kernel/random/boot_id').read_text().strip()}/{pid}/{ticks}"


def launch(command: list[str], output: IO[bytes], environment: dict[str, str], **identity: Any) -> int:
    """Start a process that outlives this one and its session; return its ID.

    `output`: where its standard output and error are written `identity`: `user`, `group` and `extra_groups` of
    :class:`subprocess.Popen`.
    """
    return subprocess.Popen(  # pylint: disable=ansible-bad-function  # run_command would wait for its end
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        cwd="/",
        env=environment,
        start_new_session=True,
        umask=0o077,
        **identity,
    ).pid
