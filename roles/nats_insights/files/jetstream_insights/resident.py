# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A resident session: a process in which Spark keeps running and executes the runs of other processes, one after another.

A run without it spends most of its time on starting Spark and compiling, if there is little data.

A client sends one JSON object, `arguments` (list of strings) and `directory` (the client's working directory), on a line to
a Unix socket that only its owner may use. The answer is lines of [name, text]: the output of the run (`out` or `err`), then
`status` with its exit status.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import TextIOBase
from pathlib import Path
from typing import Any

from jetstream_insights.files import LakeError

#: Seconds after which the session ends between two runs, for systemd to start another one: the memory of a JVM only grows.
LIFETIME = 24 * 60 * 60
#: Runs that may wait for the one that is executed.
_WAITING = 16
#: Seconds in which a client must send its request, or read the output of its run.
_TIMEOUT = 60

Run = Callable[[Sequence[str]], int]
Say = Callable[[str], None]


class _Output(TextIOBase):
    """Sends text to the client. Raises OSError if the client has ended, which stops the run at its next message."""

    def __init__(self, name: str, connection: socket.socket, turn: threading.Lock) -> None:
        self._name, self._connection, self._turn = name, connection, turn

    def write(self, text: str) -> int:
        with self._turn:  # jobs print from several threads
            self._connection.sendall(_line(self._name, text))
        return len(text)


def _line(name: str, content: Any) -> bytes:
    return f"{json.dumps([name, content])}\n".encode()


def serve(path: Path, run: Run, call_jvm: Callable[[], object], say: Say, lifetime: float = LIFETIME) -> None:
    """Execute the runs of clients of the socket `path` until the session is older than `lifetime` (seconds). `run` executes
    a command line. Raises LakeError if another session already uses the socket or the directory cannot be used, and after a
    run the error of `call_jvm`, for example because the JVM had too little memory and has ended."""
    end = time.monotonic() + lifetime
    with _listener(path) as listener:
        say(f"The session waits for runs at {path}.")
        while (left := end - time.monotonic()) > 0:
            listener.settimeout(left)
            try:
                connection, _address = listener.accept()
            except TimeoutError:
                break
            with connection:
                connection.settimeout(_TIMEOUT)
                _serve_one(connection, run, say)
            call_jvm()
        path.unlink(missing_ok=True)


def _listener(path: Path) -> socket.socket:
    """Return a socket that listens at `path`. The file of a session that was killed is replaced."""
    if (other := _connected(path)) is not None:
        other.close()
        raise LakeError(f"--session: another session already uses {path}")
    found = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        path.unlink(missing_ok=True)
        found.bind(str(path))
        found.listen(_WAITING)
    except OSError as error:
        found.close()
        raise LakeError(f"--session: {path}: {error.strerror or error}") from error
    finally:
        os.umask(before)
    return found


def _serve_one(connection: socket.socket, run: Run, say: Say) -> None:
    """Execute the run that a client requests."""
    turn = threading.Lock()
    try:
        with connection.makefile("r", encoding="utf-8") as lines:
            line = lines.readline()
        if not line:
            return  # another session tests whether this one is running
        asked = json.loads(line)
        arguments, directory = asked["arguments"], asked["directory"]
        say(f"Run: {' '.join(arguments)}")
        output = _Output("out", connection, turn), _Output("err", connection, turn)
        with redirect_stdout(output[0]), redirect_stderr(output[1]):
            status = _status(run, arguments, directory)
        connection.sendall(_line("status", status))
    except OSError as error:
        say(f"The client has ended, and with it its run: {error}")
    except (ValueError, KeyError, TypeError):
        say("A client sent no request.")


def _status(run: Run, arguments: Sequence[str], directory: str) -> int:
    """Return the exit status of a run. Raises OSError if its client has ended."""
    try:
        os.chdir(directory)
    except OSError as error:
        print(f"FAILED: no job was started: the session cannot use {directory}: {error.strerror}", file=sys.stderr)
        return 2
    try:
        return run(arguments)
    except SystemExit as ended:  # argparse refused an argument
        return ended.code if isinstance(ended.code, int) else 1
    except OSError:
        raise
    except Exception:
        traceback.print_exc()
        return 1


def ask(path: Path, arguments: Sequence[str], say: Say) -> int | None:
    """Execute a command line in the session of the socket `path`, print its output, and return its exit status: 1 if the session
    ends before the run. None if there is no session, or if it ends before the run begins."""
    connection = _connected(path)
    if connection is None:
        return None
    begun, reason = False, "its log has the reason"
    streams = {"out": sys.stdout, "err": sys.stderr}
    with connection, connection.makefile("r", encoding="utf-8") as lines:
        request = {"arguments": list(arguments), "directory": os.getcwd()}
        try:
            connection.sendall(f"{json.dumps(request)}\n".encode())
            for line in lines:
                begun = True
                name, content = json.loads(line)
                if name == "status":
                    return int(content)
                print(content, end="", file=streams[name], flush=True)
        except (OSError, ValueError) as error:
            reason = str(error)
    if not begun:
        return None
    say(f"FAILED: the session {path} ended before the run did: {reason}")
    return 1


def _connected(path: Path) -> socket.socket | None:
    """Return a connection to the session of the socket, None without one."""
    found = socket.socket(socket.AF_UNIX)
    try:
        found.connect(str(path))
    except OSError:
        found.close()
        return None
    return found
