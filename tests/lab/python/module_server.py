# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Forks the modules that run on the controller itself from one process that has imported their common imports.

Starting Python and importing Ansible's own code takes most of a module's CPU time. Ansible's input, an archive with the
module and its parameters, still arrives on the standard input of a separate process, which exits with the module's
status.

The server is only for tests: sitecustomize starts it in ansible-playbook. Commands in any other form, and those with
`become`, `environment` or a different interpreter, run as usual.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

#: The imports of most modules. Each module still imports everything else, including all of the collection, from its own
#: archive.
_IMPORTED = ("ansible.module_utils.basic", "asyncio", "nats", "ssl", "zipfile")
_COMMAND = re.compile(r"/bin/sh -c '(?P<python>[\w./-]+)(?: (?P<file>[\w./-]+))? && sleep 0'")


class _Everywhere(list[str]):
    """The path of a package that exists in several places, including the module's archive, which is first in
    sys.path."""

    def __init__(self, package: str) -> None:
        self._folder = package.replace(".", "/")

    def __iter__(self) -> Iterator[str]:
        return iter([os.path.join(entry, self._folder) for entry in sys.path])


def _is_this(python: str) -> bool:
    """Return whether a command starts the interpreter of this process, in the same virtual environment."""
    return os.path.realpath(os.path.dirname(python)) == os.path.realpath(os.path.dirname(sys.executable))


def _run(file: str) -> int:
    """Run a script, or the standard input if it has no name, as `python` would, and return its exit status."""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    sys.argv = [file]
    try:
        if file:
            runpy.run_path(file, run_name="__main__")
        else:
            exec(compile(sys.stdin.buffer.read(), "<stdin>", "exec"), main.__dict__)
        status: object = 0
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if isinstance(status, str):
        print(status, file=sys.stderr)
    return int(status or 0) & 0xFF if isinstance(status, (int, type(None))) else 1


def _become(request: bytes, files: list[int]) -> NoReturn:
    """Become the process that the request describes; the files are its standard input, output and error, and the file
    to which its status is written."""
    directory, script, *environment = request.decode(errors="surrogateescape").split("\0")
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update((name, value) for name, _equals, value in (word.partition("=") for word in environment))
    status = 1
    try:
        os.chdir(directory)
        status = _run(script)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
    finally:
        os.write(files[3], bytes([status]))
        os._exit(status)


def _serve(requests: socket.socket) -> NoReturn:
    """Fork a process for each request until the controller and its workers are gone."""
    for name in _IMPORTED:
        with contextlib.suppress(ImportError):
            __import__(name)
    for name in ("ansible", "ansible.module_utils"):
        sys.modules[name].__path__ = _Everywhere(name)
    # Otherwise a reader of the controller's output would also wait for this process.
    with open(os.devnull, "r+b") as nothing:
        for number in range(3):
            os.dup2(nothing.fileno(), number)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.freeze()
    while True:
        request, files, _flags, _address = socket.recv_fds(requests, 1 << 20, 4)
        if not request:
            os._exit(0)
        if os.fork() == 0:
            requests.close()
            os.setsid()
            _become(request, files)
        for file in files:
            os.close(file)


class _Forked:
    """The part of subprocess.Popen that the connection plugin uses; the process starts once its input is known."""

    def __init__(self, requests: socket.socket, file: str, cwd: str | bytes | None) -> None:
        self._requests, self._request = requests, [os.fsdecode(cwd or os.getcwd()), file]
        self.returncode = -1

    def communicate(self, given: bytes | None) -> tuple[bytes, bytes]:
        (output, child_output), (errors, child_errors), (status, child_status) = (os.pipe() for _one in range(3))
        with tempfile.TemporaryFile() as file:
            file.write(given or b"")
            file.seek(0)
            request = "\0".join([*self._request, *(f"{name}={value}" for name, value in os.environ.items())])
            files = [file.fileno(), child_output, child_errors, child_status]
            socket.send_fds(self._requests, [request.encode(errors="surrogateescape")], files)
            for end in files[1:]:
                os.close(end)
        with (
            open(output, "rb") as out,
            open(errors, "rb") as err,
            open(status, "rb") as ended,
            ThreadPoolExecutor() as pool,
        ):
            both = tuple(pool.map(lambda stream: stream.read(), (out, err)))
            # A process that was ended by a signal writes no status.
            self.returncode = next(iter(ended.read(1)), 255)
        return both


def install() -> None:
    """Start the server, and make the connection plugin `local` use it. Call it before this process imports Ansible."""
    requests, served = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        requests.close()
        _serve(served)
    served.close()

    from ansible.plugins.connection import local

    def start(command: Any, **options: Any) -> Any:
        found = _COMMAND.fullmatch(command) if isinstance(command, str) else None
        if found and options["stdin"] == subprocess.PIPE and _is_this(found["python"]):
            return _Forked(requests, found["file"] or "", options["cwd"])
        return subprocess.Popen(command, **options)

    local.subprocess = types.SimpleNamespace(PIPE=subprocess.PIPE, Popen=start)
