# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host's part of an incident bundle: outputs of commands and files, each limited in seconds and bytes, in one tar
archive.

Nothing is changed on the host. Parts that are missing, too slow or too large are recorded with the reason."""

from __future__ import annotations

import io
import json
import os
import selectors
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

from ..redaction import Redactor, configuration
from ..units import human_bytes
from .server_log import journal
from .system import disks_under, find_mount, mounts

#: The archive member that lists the missing parts.
INDEX = "evidence.json"

#: Maximum bytes of an output, counted from its end; logs may be as large as the archive.
_OUTPUT = 2 << 20
#: Maximum number of entries in the listing of the store.
_LISTED = 50_000
_CHUNK = 1 << 16

_PROCESS_FILES = ("limits", "status", "io", "cgroup", "oom_score", "oom_score_adj", "smaps_rollup", "numa_maps")
_SYSTEM_FILES = (
    "/etc/os-release", "/proc/meminfo", "/proc/loadavg", "/proc/cpuinfo", "/proc/vmstat", "/proc/diskstats",
    "/proc/pressure/cpu", "/proc/pressure/io", "/proc/pressure/memory", "/proc/cmdline",
    "/sys/kernel/mm/transparent_hugepage/enabled",
)  # fmt: skip
_SYSCTLS = (
    "fs.file-max", "fs.file-nr", "kernel.hung_task_timeout_secs", "net.core.netdev_max_backlog", "net.core.rmem_max",
    "net.core.somaxconn", "net.core.wmem_max", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_max_syn_backlog", "net.ipv4.tcp_retries2", "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem", "vm.dirty_background_bytes", "vm.dirty_background_ratio", "vm.dirty_bytes", "vm.dirty_ratio",
    "vm.max_map_count", "vm.overcommit_memory", "vm.swappiness",
)  # fmt: skip


@dataclass(frozen=True)
class Subject:
    """The server to collect evidence for. `unit` is empty if systemd does not run the server, and `pid` is 0 if the
    server is not running. `since`: the period of the logs in seconds. `files`: configuration files, which are redacted.
    `left_out`: files that must not be read, with the reason."""

    unit: str = ""
    pid: int = 0
    store_dir: str = ""
    since: int = 7200
    log_file: str = ""
    files: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CollectionBounds:
    """`command`: seconds for each command, `total`: for all commands. `size`: bytes of everything that is kept."""

    command: float = 20.0
    total: float = 120.0
    size: int = 64 << 20


@dataclass(frozen=True)
class Probe:
    """A command whose output becomes the archive member `name`. `limit`: the maximum bytes; a longer output loses its
    beginning. `statuses`: the exit statuses with which the output is complete."""

    name: str
    argv: tuple[str, ...]
    limit: int = _OUTPUT
    statuses: Collection[int] = (0,)


@dataclass(frozen=True)
class Output:
    """The end of a command's output. `reason`: why it is incomplete or unusable, otherwise empty. `dropped`: number of
    bytes removed."""

    text: bytes
    reason: str = ""
    dropped: int = 0


@dataclass
class HostEvidence:
    """The collected parts and the missing ones."""

    files: list[str] = field(default_factory=list)
    missing: list[dict[str, str]] = field(default_factory=list)
    cut: list[dict[str, Any]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the evidence in the format of the archive and of the module."""
        return {"files": self.files, "missing": self.missing, "cut": self.cut}


def probes(subject: Subject, disks: Sequence[str], logs: int) -> list[Probe]:
    """Return the commands to run, most important first. `logs`: maximum bytes of a log."""
    since = f"--since=-{subject.since}s"
    systemd_directives = (
        [
            Probe("journal.log", tuple(journal(subject.unit, since, *_JOURNAL)), logs),
            Probe("kernel.log", ("journalctl", "--dmesg", since, *_JOURNAL, "--no-pager"), logs // 4),
            Probe("unit/show.txt", ("systemctl", "show", "--no-pager", f"{subject.unit}.service")),
            Probe("unit/files.txt", ("systemctl", "cat", "--no-pager", f"{subject.unit}.service")),
            Probe(
                "unit/status.txt",
                ("systemctl", "status", "--no-pager", "--lines=0", f"{subject.unit}.service"),
                statuses=(0, _NOT_RUNNING),
            ),
            Probe("unit/failed.txt", ("systemctl", "list-units", "--failed", "--no-pager")),
        ]
        if subject.unit
        else [Probe("kernel.log", ("dmesg", "--time-format=iso"), logs // 4)]
    )
    return [
        *systemd_directives,
        Probe("disks/space.txt", ("df", "--print-type", "--portability")),
        Probe("disks/inodes.txt", ("df", "--inodes", "--portability")),
        Probe("disks/mounts.txt", ("findmnt", "--real")),
        Probe("disks/devices.txt", ("lsblk", "--output-all", "--json")),
        # iostat's first report covers the time since the boot, so it is omitted.
        Probe("disks/latencies.txt", ("iostat", "-x", "-t", "-y", "1", "3")),
        *(
            Probe(f"disks/smart-{disk}.txt", ("smartctl", "--xall", f"/dev/{disk}"), statuses=_DISK_READ)
            for disk in disks
        ),
        Probe("network/sockets.txt", ("ss", "--tcp", "--all", "--numeric", "--processes", "--info", "--memory")),
        Probe("network/summary.txt", ("ss", "--summary")),
        Probe("network/addresses.txt", ("ip", "-statistics", "address")),
        Probe("network/routes.txt", ("ip", "route")),
        Probe("clock/timedatectl.txt", ("timedatectl", "show", "--no-pager")),
        Probe("clock/tracking.txt", ("chronyc", "-n", "tracking")),
        Probe("clock/sources.txt", ("chronyc", "-n", "sources")),
        Probe("system/kernel.txt", ("uname", "--all")),
        Probe("system/uptime.txt", ("uptime",)),
        Probe("system/memory.txt", ("vmstat", "1", "3")),
        Probe("system/processes.txt", ("top", "-b", "-n", "1", "-w", "160")),
    ]


#: The exit status of systemctl status for a stopped unit.
_NOT_RUNNING = 3
#: Exit statuses of smartctl: only the two lowest bits mean that the disk was not read; the others describe its health.
_DISK_READ = tuple(status for status in range(256) if not status & 3)
_JOURNAL = ("--quiet", "--output=short-iso-precise")


def run(argv: Sequence[str], seconds: float, limit: int, statuses: Collection[int] = (0,)) -> Output:
    """Run a command for at most this long and return the last `limit` bytes of its output; its child processes end with
    the command. `statuses`: as in Probe."""
    if shutil.which(argv[0]) is None:
        return Output(b"", f"{argv[0]} is not installed")
    environment = {**os.environ, "LC_ALL": "C", "TZ": "UTC"}
    try:
        # run_command has no timeout and keeps output of any size in memory.
        process = subprocess.Popen(  # pylint: disable=ansible-bad-function,consider-using-with
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        return Output(b"", f"{argv[0]} cannot be run: {error.strerror}")
    kept, dropped, ended = _read(process, time.monotonic() + seconds, limit)
    try:
        if not ended:
            return Output(kept, f"{argv[0]} was ended after {seconds:.3g} s", dropped)
        status = process.wait(1)
    except subprocess.TimeoutExpired:
        return Output(kept, f"{argv[0]} closed its output but did not end", dropped)
    finally:
        _end(process)
    return Output(kept, f"{argv[0]} ended with status {status}" if status not in statuses else "", dropped)


def _read(process: subprocess.Popen[bytes], deadline: float, limit: int) -> tuple[bytes, int, bool]:
    """Return the end of a process's output, the bytes before it, and whether it closed its output in time."""
    if process.stdout is None:
        raise AssertionError("the process has a pipe")
    kept, dropped = bytearray(), 0
    with selectors.DefaultSelector() as selector, process.stdout as stream:
        selector.register(stream, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            if not selector.select(left):
                break
            chunk = os.read(stream.fileno(), _CHUNK)
            if not chunk:
                return bytes(kept), dropped, True
            kept += chunk
            if len(kept) > limit:
                dropped += len(kept) - limit
                del kept[: len(kept) - limit]
    return bytes(kept), dropped, False


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    try:
        process.wait(1)
    except subprocess.TimeoutExpired:
        # The process hangs in the kernel, for example on a dead disk; waiting for it would hang, too.
        pass


def find_disks(store_dir: str) -> list[str]:
    """Return the names of the disks below the store, or below the root if there is no store."""
    mount = find_mount(store_dir or "/", mounts(Path("/proc/self/mountinfo").read_text(encoding="utf-8")))
    return disks_under(mount) if mount else []


class Collector:
    """Writes the evidence of a host into an archive. `redactor` contains the secrets of the host's own configuration."""

    def __init__(self, archive: tarfile.TarFile, redactor: Redactor, bounds: CollectionBounds) -> None:
        self._archive = archive
        self._redactor = redactor
        self._bounds = bounds
        self._deadline = time.monotonic() + bounds.total
        self._left = bounds.size
        self.evidence = HostEvidence()

    def collect(self, subject: Subject) -> HostEvidence:
        """Collect all parts; return those that were collected and those that are missing."""
        disks = find_disks(subject.store_dir)
        for path in subject.files:
            name = f"configuration/{os.path.basename(path)}"
            if path in subject.left_out:
                self._miss(name, subject.left_out[path])
            else:
                self._file(name, path, _OUTPUT, configuration)
        if subject.pid:
            for name in _PROCESS_FILES:
                self._file(f"process/{name}.txt", f"/proc/{subject.pid}/{name}")
            self._descriptors(subject.pid)
        else:
            self._miss("process", "no nats-server is running with this configuration file")
        if subject.log_file:
            self._file("server.log", subject.log_file, self._bounds.size // 2)
        for probe in probes(subject, disks, self._bounds.size // 2):
            self._probe(probe)
        for disk in disks:
            for name in ("scheduler", "rotational", "write_cache", "nr_requests", "read_ahead_kb"):
                self._file(f"disks/{disk}-{name}.txt", f"/sys/block/{disk}/queue/{name}")
        for path in _SYSTEM_FILES:
            self._file(f"system/{path.strip('/').replace('/', '-')}.txt", path)
        values = [f"{name} = {_line(Path('/proc/sys', *name.split('.')))}\n" for name in _SYSCTLS]
        self._add("system/sysctl.txt", "".join(values))
        if subject.store_dir:
            self._listing(subject.store_dir)
        content = json.dumps(self.evidence.as_dict(), indent=2).encode()
        self._write(INDEX, content)
        return self.evidence

    def _probe(self, probe: Probe) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            self._miss(probe.name, f"the host's {self._bounds.total:.3g} s limit was reached")
            return
        limit = min(probe.limit, self._left)
        if limit <= 0:
            self._miss(probe.name, f"the host's limit of {human_bytes(self._bounds.size)} was reached")
            return
        output = run(probe.argv, min(self._bounds.command, left), limit, probe.statuses)
        if output.reason:
            said = output.text.decode(errors="replace").strip().splitlines()
            failed = f"{output.reason}: {self._redactor.text(said[-1])[:200]}" if said else output.reason
            self._miss(probe.name, failed)
        if output.text:
            self._add(probe.name, _whole_lines(output), configuration if probe.name.startswith("unit/") else None)
        if output.dropped:
            self._cut(probe.name, len(output.text), output.dropped)

    def _file(self, name: str, path: str, limit: int = _OUTPUT, clean: Callable[[str], str] | None = None) -> None:
        limit = min(limit, self._left)
        try:
            with open(path, "rb") as file:
                # The kernel's own files report a page or nothing as their size.
                size = 0 if path.startswith(("/proc/", "/sys/")) else os.fstat(file.fileno()).st_size
                if size > limit:
                    file.seek(size - limit)
                content = file.read(limit)
        except OSError as error:
            self._miss(name, f"{path}: {error.strerror}")
            return
        dropped = max(0, size - limit)
        self._add(name, _whole_lines(Output(content, dropped=dropped)), clean)
        if dropped:
            self._cut(name, len(content), dropped)

    def _descriptors(self, pid: int) -> None:
        """Count the open files by kind, such as sockets, and regular files by folder."""
        counts: dict[str, int] = {}
        try:
            for entry in os.scandir(f"/proc/{pid}/fd"):
                try:
                    target = os.readlink(entry.path)
                except OSError:
                    continue
                kind = target.partition(":")[0] if not target.startswith("/") else os.path.dirname(target)
                counts[kind] = counts.get(kind, 0) + 1
        except OSError as error:
            self._miss("process/files.txt", f"/proc/{pid}/fd: {error.strerror}")
            return
        lines = [f"{count}\t{kind}\n" for kind, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
        self._add("process/files.txt", "".join(lines))

    def _listing(self, store_dir: str) -> None:
        """List the files of the store with size and time, never with their content."""
        lines: list[str] = []
        whole = True
        for line in store_listing(store_dir):
            if len(lines) >= _LISTED or time.monotonic() > self._deadline:
                whole = False
                break
            lines.append(line)
        if not lines:
            self._miss("store.txt", f"{store_dir} is empty or cannot be read")
            return
        self._add("store.txt", "".join(lines))
        if not whole:
            self.evidence.cut.append({"item": "store.txt", "reason": f"it has more than {len(lines)} files"})

    def _add(self, name: str, text: str, clean: Callable[[str], str] | None = None) -> None:
        content = self._redactor.text(clean(text) if clean else text).encode()
        if len(content) > self._left:
            self._miss(name, f"the host's limit of {human_bytes(self._bounds.size)} was reached")
            return
        self._left -= len(content)
        self._write(name, content)
        self.evidence.files.append(name)

    def _write(self, name: str, content: bytes) -> None:
        member = tarfile.TarInfo(name)
        member.size, member.mode, member.mtime = len(content), 0o600, int(time.time())
        self._archive.addfile(member, io.BytesIO(content))

    def _miss(self, item: str, reason: str) -> None:
        self.evidence.missing.append({"item": item, "reason": reason})

    def _cut(self, item: str, kept: int, dropped: int) -> None:
        reason = f"the last {human_bytes(kept)} of {human_bytes(kept + dropped)} are kept"
        self.evidence.cut.append({"item": item, "reason": reason})


def store_listing(store_dir: str) -> Iterator[str]:
    """Yield a line for each file below a directory: its size, the time of its last change in UTC, and its path."""
    for folder, folders, files in os.walk(store_dir):
        folders.sort()
        for name in sorted(files):
            path = os.path.join(folder, name)
            try:
                found = os.lstat(path)
            except OSError:
                continue
            changed = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(found.st_mtime))
            yield f"{found.st_size:>12} {changed} {os.path.relpath(path, store_dir)}\n"


def _whole_lines(output: Output) -> str:
    """Return the text from its first complete line on if its beginning is lost, because half a secret would not be
    recognised."""
    text = output.text.decode(errors="replace")
    return text.partition("\n")[2] if output.dropped else text


def _line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return "?"
