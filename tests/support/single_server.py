# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One nats-server with a configuration that the collection's writer wrote."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.syntax import write, write_secrets
from support.nats_processes import binary, free_ports


class Server:
    """A running nats-server with monitoring."""

    def __init__(self, config: dict[str, Any], directory: Path, port: int, http: int) -> None:
        self.config = config
        self.directory = directory
        self.port = port
        self.http = http
        self.pid = 0

    def reload(self, config: dict[str, Any]) -> None:
        """Write the configuration, and return once the server has loaded it and reports a later load time."""
        loaded = self.get("varz")["config_load_time"]
        self.write(config)
        os.kill(self.pid, signal.SIGHUP)
        deadline = time.monotonic() + 15
        while self.get("varz")["config_load_time"] == loaded:
            assert time.monotonic() < deadline, (self.directory / "log").read_text()
            time.sleep(0.02)

    def write(self, config: dict[str, Any]) -> Path:
        whole = {"port": self.port, "host": "127.0.0.1", "http": f"127.0.0.1:{self.http}", **config}
        return write_files(whole, self.directory)

    def get(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/{path}", timeout=5) as answer:
            return dict(json.load(answer))

    def login(self, **credentials: str) -> bool:
        """Return whether the server accepts these credentials, using the bare protocol."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            stream = connection.makefile("rwb")
            stream.readline()
            options = json.dumps({"verbose": False, "pedantic": False, "lang": "test", "version": "0", **credentials})
            stream.write(f"CONNECT {options}\r\nPING\r\n".encode())
            stream.flush()
            return stream.readline() == b"PONG\r\n"


def write_files(config: dict[str, Any], directory: Path) -> Path:
    (directory / "secrets.conf").write_text(write_secrets(config) + "\n")
    main = directory / "nats-server.conf"
    main.write_text('include "secrets.conf"\n' + write(config, reference=True) + "\n")
    return main


@contextmanager
def running(version: str, config: dict[str, Any], directory: Path | None = None) -> Iterator[Server]:
    with ExitStack() as stack:
        folder = directory or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = Server(config, folder, *free_ports(2))
        file = server.write(config)
        log = stack.enter_context((folder / "log").open("wb"))
        process = subprocess.Popen([binary(version), "-c", str(file)], stdout=log, stderr=log)
        server.pid = process.pid
        try:
            deadline = time.monotonic() + 15
            while True:
                try:
                    # Wait for the client port first, which opens after JetStream has started. If VARZ is requested
                    # earlier, the server never adds the configuration of JetStream to it.
                    socket.create_connection(("127.0.0.1", server.port), timeout=1).close()
                    server.get("varz")
                    break
                except OSError:
                    assert process.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
                    time.sleep(0.02)
            yield server
        finally:
            process.kill()
            process.wait()
