# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A temporary nats-server on loopback that never outlives this process."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Callable, Optional

from ..host.process import ProcessError, read_version
from ..nats.client import ConnectionOptions, NatsFailure
from ..units import human_bytes

_NAME = "nats-server"
#: Where packages and administrators install nats-server, if PATH lacks these directories.
_PLACES = ("/usr/sbin", "/usr/local/bin")
_USER = "drill"
#: The server's only account.
ACCOUNT = "DRILL"
#: Bytes for a server's own files in addition to the streams.
SLACK = 64 << 20
#: Seconds until the server listens, until it responds, for a clean stop, and for a forced stop.
_START, _ANSWER, _STOP, _END = 60.0, 30.0, 10.0, 1.0
_LOG_LINES = 5
_PR_SET_PDEATHSIG = 1
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def find_binary(given: Optional[str]) -> tuple[str, str]:
    """Return the path of the nats-server to run, and its version. Raises NatsFailure invalid_option."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *_PLACES])
    binary = given or shutil.which(_NAME, path=path)
    if binary is None:
        reason = f"binary: no {_NAME} in PATH, {' or '.join(_PLACES)}; install it or set its path"
        raise NatsFailure("invalid_option", reason)
    try:
        return binary, read_version(binary)
    except ProcessError as error:
        raise NatsFailure("invalid_option", f"binary: {error}") from error


def nearest(directory: Path) -> Path:
    """Return the directory, or its nearest existing parent."""
    absolute = directory.absolute()
    return next(path for path in (absolute, *absolute.parents) if path.is_dir())


def require_room(directory: Path, needed: int, purpose: str) -> None:
    """Raise NatsFailure disk_full unless a directory, which may not exist yet, has this much free space."""
    existing = nearest(directory)
    free = shutil.disk_usage(existing).free
    if free < needed:
        reason = f"{existing} has {human_bytes(free)} free, but {human_bytes(needed)} are needed to {purpose}"
        raise NatsFailure("disk_full", f"{reason}: set another `work_directory`")


@contextlib.contextmanager
def throwaway_server(
    binary: str, directory: Path, options: Mapping[str, Any], store_bytes: int
) -> Iterator[ConnectionOptions]:
    """Run a server with JetStream in a private directory, and yield the connection options.

    `options`: additional keys of its configuration. If the server has ended, failures during its use include its last
    log lines. Raises NatsFailure not_started.
    """
    password = secrets.token_urlsafe(32)
    _write_config(directory, {**_config(password, store_bytes), **options})
    log = directory / "server.log"
    process = _start(binary, directory, log)
    try:
        address = _address(process, directory)
        if address is None:
            how = f"has ended with {process.returncode}" if process.poll() is not None else "is not listening"
            reason = f"{binary} {how} after its start:{_last_words(log, password)}"
            raise NatsFailure("not_started", reason)
        try:
            yield ConnectionOptions(servers=(address,), user=_USER, password=password, timeout=_ANSWER)
        except NatsFailure as failure:
            # The server's connections end a moment before its process does.
            with contextlib.suppress(subprocess.TimeoutExpired):
                ended = process.wait(_END)
                failure.description += f"; the throw-away server has ended with {ended}:{_last_words(log, password)}"
            raise
    finally:
        _stop(process)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Convert terminating signals to SystemExit, so cleanup runs."""

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    ignored = (signal.SIG_IGN, None)  # such as SIGHUP, when run by nohup
    before = {number: signal.signal(number, end) for number in _SIGNALS if signal.getsignal(number) not in ignored}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _config(password: str, store_bytes: int) -> dict[str, Any]:
    # Paths are relative to the server's directory, because nats-server's syntax has fewer escapes than JSON.
    return {
        "server_name": "drill",
        "host": "127.0.0.1",
        "port": -1,
        "ports_file_dir": ".",
        # The default is a fraction of the free space, which may be too little.
        "jetstream": {"store_dir": "store", "max_file_store": store_bytes, "max_memory_store": 64 << 20},
        "accounts": {ACCOUNT: {"jetstream": "enabled", "users": [{"user": _USER, "password": password}]}},
    }


def _write_config(directory: Path, config: Mapping[str, Any]) -> None:
    """Write the configuration as JSON, which nats-server accepts. Raises NatsFailure write_failed."""
    path = directory / "server.conf"
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump(config, file, indent=2)
    except OSError as error:
        raise NatsFailure("write_failed", f"cannot write {path}: {error.strerror}") from error


def _start(binary: str, directory: Path, log: Path) -> subprocess.Popen[bytes]:
    with log.open("xb") as output:
        try:
            return subprocess.Popen(  # pylint: disable=ansible-bad-function  # run_command would wait for its end
                [os.path.abspath(binary), "-c", "server.conf"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=directory,
                # Signals to the process group of this process are handled by this process only.
                start_new_session=True,
                umask=0o077,
                preexec_fn=_ends_with(os.getpid()),  # noqa: PLW1509  # a module has no threads that hold locks
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise NatsFailure("not_started", f"{binary} cannot be run: {error}") from error


def _ends_with(parent: int) -> Callable[[], None]:
    """Return a function for the child process that makes the kernel kill it when its parent ends."""
    prctl = ctypes.CDLL(None).prctl

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)  # the parent ended before the call

    return prepare


def _address(process: subprocess.Popen[bytes], directory: Path) -> Optional[str]:
    """Return the server's address from the file that it writes last during its start, or None if there is no address
    yet."""
    deadline = time.monotonic() + _START
    while process.poll() is None and time.monotonic() < deadline:
        for path in directory.glob("*.ports"):
            with contextlib.suppress(ValueError, LookupError):  # the file is being written
                return str(json.loads(path.read_text(encoding="utf-8"))["nats"][0])
        time.sleep(0.05)
    return None


def _last_words(log: Path, password: str) -> str:
    """Return the last lines of a log, each on a separate line."""
    text = log.read_text(encoding="utf-8", errors="replace").replace(password, "********")
    lines = [line[:300] for line in text.splitlines() if line.strip()][-_LOG_LINES:]
    return "".join(f"\n  {line}" for line in lines or ["(its log is empty)"])


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
