# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The same job through spark-submit on a real cluster: a master and two workers of Spark's standalone mode, on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import jetstream_insights
import pyspark
import pytest
from support.fleet import START, Fleet
from support.nats_processes import free_ports

BIN = Path(pyspark.__file__).parent / "bin"
PACKAGE = Path(jetstream_insights.__file__).parent
ENVIRONMENT = {
    **{key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYSPARK_GATEWAY_PORT")},
    "PYSPARK_PYTHON": sys.executable,
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_NO_DAEMONIZE": "1",
}


@contextmanager
def daemon(log: Path, *arguments: str) -> Iterator[None]:
    """A process of Spark, in a session of its own."""
    with log.open("w") as output:
        command = [str(BIN / "spark-class"), *arguments]
        process = subprocess.Popen(command, env=ENVIRONMENT, stdout=output, stderr=output, start_new_session=True)
    try:
        yield
    finally:
        end(process, signal.SIGTERM)


def end(process: subprocess.Popen[str] | subprocess.Popen[bytes], how: signal.Signals) -> None:
    """End a process and what it started."""
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


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """Return the URL of a master that has two workers with one core each."""
    (port,) = free_ports(1)
    log = tmp_path / "master.log"
    with ExitStack() as running:
        where = ["--host", "127.0.0.1"]
        name = "org.apache.spark.deploy.master.Master"
        running.enter_context(daemon(log, name, *where, "--port", str(port), "--webui-port", str(*free_ports(1))))
        url = f"spark://127.0.0.1:{port}"
        wait(lambda: "New state: ALIVE" in log.read_text(), log)
        for number in range(2):
            limits = ["--cores", "1", "--memory", "512m", "--work-dir", str(tmp_path / f"work{number}")]
            ports = ["--port", "0", "--webui-port", str(*free_ports(1))]
            name = "org.apache.spark.deploy.worker.Worker"
            running.enter_context(daemon(tmp_path / f"worker{number}.log", name, *where, *ports, *limits, url))
        wait(lambda: log.read_text().count("Registering worker") == 2, log)
        yield url


@pytest.mark.chaos
def test_a_job_on_a_cluster_that_is_killed_and_comes_again(master: str, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    fleet = Fleet(3, 5)
    for minute in range(2):
        fleet.write(lake, minute * 60.0)
    package = tmp_path / "jetstream_insights.zip"
    subprocess.run([sys.executable, "-m", "zipfile", "-c", str(package), str(PACKAGE)], check=True)
    # The folder of the package itself is not there.
    main = tmp_path / "main.py"
    main.write_bytes((PACKAGE / "__main__.py").read_bytes())
    span = ["--from", f"{START:%Y-%m-%dT%H}", "--to", f"{START:%Y-%m-%d}T01"]
    settings = ["--executor-memory", "512m", "--driver-memory", "512m", "--conf", "spark.sql.shuffle.partitions=2"]
    job = [str(main), "silver", "--lake", str(lake), *span]
    command = [str(BIN / "spark-submit"), "--master", master, "--py-files", str(package), *settings, *job]
    log = tmp_path / "submit.log"
    with log.open("w") as output:
        killed = subprocess.Popen(
            command, env=ENVIRONMENT, stdout=output, stderr=output, start_new_session=True, cwd=tmp_path
        )
    try:
        wait(lambda: any(lake.glob("silver/*/run=*/date=*")) or killed.poll() is not None, log)
    finally:
        end(killed, signal.SIGKILL)
    assert killed.returncode == -signal.SIGKILL, log.read_text()[-3000:]
    assert not list(lake.glob("silver/_published/*/*"))

    done = subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["made"], result["quarantined"]) == (1, 0)
    (pointer,) = lake.glob("silver/_published/*/*.json")
    run = json.loads(pointer.read_text())["run"]
    assert list(lake.glob(f"silver/streams/run={run}/date=2026-11-01/hour=00/*.parquet"))
    executors = {path.name for number in range(2) for path in (tmp_path / f"work{number}").glob("app-*/*")}
    assert {"0", "1"} <= executors
