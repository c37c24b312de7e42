# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts Spark's own daemons on loopback: a standalone master with workers, and other services."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
from support.nats_processes import free_ports

BIN = Path(pyspark.__file__).parent / "bin"
ENVIRONMENT = {
    **{key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYSPARK_GATEWAY_PORT")},
    "PYSPARK_PYTHON": sys.executable,
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_NO_DAEMONIZE": "1",
}


@contextmanager
def daemon(log: Path, *arguments: str, memory: str = "256m") -> Iterator[None]:
    """Start a Spark process with this much memory, in a separate session."""
    with log.open("w") as output:
        command = [str(BIN / "spark-class"), *arguments]
        environment = {**ENVIRONMENT, "SPARK_DAEMON_MEMORY": memory}
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
    try:
        yield
    finally:
        end(process, signal.SIGTERM)


def end(process: subprocess.Popen[str] | subprocess.Popen[bytes], how: signal.Signals) -> None:
    """End a process and its children."""
    with ExitStack() as cleanup:
        cleanup.callback(process.wait, 60)
        try:
            os.killpg(process.pid, how)
        except ProcessLookupError:
            pass


def wait(what: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + 120
    while not what():
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.1)


@contextmanager
def resident(path: Path, *options: str) -> Iterator[int]:
    """Keep a session of the insights running in another process, whose id is yielded, until the context ends. `path`: its
    socket."""
    log = path.with_name(f"{path.name}.log")
    command = [sys.executable, "-m", "jetstream_insights", "session", "--session", str(path), *options]
    with log.open("w") as output:
        process = subprocess.Popen(command, stderr=output, start_new_session=True)
    try:
        wait(lambda: "waits for runs" in log.read_text() or process.poll() is not None, log)
        yield process.pid
    finally:
        end(process, signal.SIGTERM)


@contextmanager
def standalone(folder: Path, workers: int, memory: str) -> Iterator[str]:
    """Yield the URL of a master whose workers have one core and this much memory each; `folder` receives their logs and
    files."""
    (port,) = free_ports(1)
    log = folder / "master.log"
    with ExitStack() as running:
        where = ["--host", "127.0.0.1"]
        name = "org.apache.spark.deploy.master.Master"
        running.enter_context(daemon(log, name, *where, "--port", str(port), "--webui-port", str(*free_ports(1))))
        url = f"spark://127.0.0.1:{port}"
        wait(lambda: "New state: ALIVE" in log.read_text(), log)
        for number in range(workers):
            limits = ["--cores", "1", "--memory", memory, "--work-dir", str(folder / f"work{number}")]
            ports = ["--port", "0", "--webui-port", str(*free_ports(1))]
            name = "org.apache.spark.deploy.worker.Worker"
            running.enter_context(daemon(folder / f"worker{number}.log", name, *where, *ports, *limits, url))
        wait(lambda: log.read_text().count("Registering worker") == workers, log)
        yield url
