# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the same job through spark-submit on a real cluster on loopback: a master and two workers in Spark's standalone
mode."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import jetstream_insights
import pytest
from support.fleet import START, Fleet
from support.spark_cluster import BIN, ENVIRONMENT, end, standalone, wait
from support.streams import running_site

PACKAGE = Path(jetstream_insights.__file__).parent
COLLECTION, UTILS = PACKAGE.parents[3], "plugins/module_utils"


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """Return the URL of a master that has two workers with one core each."""
    with standalone(tmp_path, 2, "512m") as url:
        yield url


def packed(folder: Path) -> Path:
    """Return the ZIP file that the role's `setup` makes for spark-submit."""
    found = folder / "jetstream_insights.zip"
    parts = {PACKAGE: "jetstream_insights", COLLECTION / UTILS: f"ansible_collections/natsops/jetstream/{UTILS}"}
    command = [sys.executable, str(COLLECTION / "roles/nats_program/files/pack.py"), str(found)]
    subprocess.run([*command, *(f"{source}={name}" for source, name in parts.items())], check=True)
    return found


READ = """
    import sys
    from jetstream_insights.session import session
    from jetstream_insights.source import JetStreamSource

    spark = session()
    spark.dataSource.register(JetStreamSource)
    frame = spark.read.format("jetstream").options(**dict(pair.split("=", 1) for pair in sys.argv[1:])).load()
    rows = frame.selectExpr("seq", "spark_partition_id() AS partition")
    print("rows:", rows.selectExpr("count(*)", "count(DISTINCT seq)", "count(DISTINCT partition)").first()[:])
"""


@pytest.mark.chaos
def test_executors_read_a_stream_with_the_packed_files(master: str, tmp_path: Path) -> None:
    """Neither the package nor the collection is installed for the executors."""
    main = tmp_path / "main.py"
    main.write_text(textwrap.dedent(READ))
    settings = ["--executor-memory", "512m", "--driver-memory", "512m", "--py-files", str(packed(tmp_path))]
    with running_site("2.15.1", tmp_path) as site:
        site.add_stream("ORDERS", allow_direct=True)
        site.publish("ORDERS", 1000)
        options = {"servers": site.servers.urls[0], "stream": "ORDERS", "partitions": "4", "user": site.login.user}
        pairs = [f"{name}={value}" for name, value in {**options, "password": site.login.password}.items()]
        command = [str(BIN / "spark-submit"), "--master", master, *settings, str(main), *pairs]
        done = subprocess.run(
            command, env=ENVIRONMENT, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=300
        )
    assert "rows: (1000, 1000, 4)" in done.stdout, done.stderr[-3000:]


@pytest.mark.chaos
def test_job_on_a_cluster_completes_after_a_kill(master: str, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    fleet = Fleet(3, 5)
    for minute in range(2):
        fleet.write(lake, minute * 60.0)
    package = packed(tmp_path)
    # The folder of the package itself does not exist on the workers.
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
