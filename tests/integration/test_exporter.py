# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the exporter against real servers: tests its series, and that it continues if a server, the password or the
cluster is missing."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.catalogue import Catalogue
from support.alerts import promtool
from support.credentials import make_certificates
from support.exporters import Exporter, parse_series
from support.module_runs import Runner, form
from support.nats_processes import NatsProcesses

pytestmark = pytest.mark.parametrize("version", ["2.15.1"], indirect=True)

Start = Callable[..., Exporter]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start exporters that end with the test."""
    started: list[Exporter] = []

    def run(connection: dict[str, object], **settings: object) -> Exporter:
        started.append(Exporter(tmp_path / f"exporter{len(started)}", connection, **settings))
        return started[-1]

    yield run
    for one in started:
        one.stop()


def test_a_server_dies_and_comes_back(
    make_cluster: Callable[..., NatsProcesses], run_module: Runner, start: Start
) -> None:
    names = ["n1", "n2", "n3"]
    cluster = make_cluster(names)
    form(cluster, run_module)
    cluster.add_stream("ORDERS", 3)
    cluster.add_consumer("ORDERS", "worker")
    exporter = start(cluster.sys_connection(), expected_servers=names, streams=["APP/*"])

    whole = exporter.until(lambda found: found.get(("natsops_servers_stoppable", "C1")) == 3)
    assert [whole["natsops_server_up", "C1", name] for name in names] == [1, 1, 1]
    assert whole["natsops_group_quorum_margin_min", "C1", "stream", "3"] == 1
    assert whole["natsops_group_quorum_margin_min", "C1", "meta", "3"] == 1
    assert whole["natsops_groups", "C1", "consumer", "ok"] == 1
    assert whole["natsops_stream_quorum_margin", "APP", "C1", "ORDERS"] == 1
    assert whole["natsops_consumer_pending", "APP", "C1", "worker", "ORDERS"] == 0
    assert {name for metric, *_labels in whole if metric == "natsops_server_config_info" for name in _labels[:1]} == {
        "C1"
    }
    assert sum(value for (metric, *_labels), value in whole.items() if metric == "natsops_root_causes") == 0

    cluster.kill("n3")
    away = exporter.until(lambda found: found.get(("natsops_server_up", "C1", "n3")) == 0)
    assert away["natsops_up",] == 1
    away = exporter.until(lambda found: found.get(("natsops_root_causes", "servers_down", "error")) == 1)
    assert away["natsops_servers", "C1", "missing"] == 1
    # The leaders of its groups still list the server for some seconds, but it did not respond.
    assert away["natsops_servers_stoppable", "C1"] == 0
    assert away["natsops_groups_without_margin", "C1", "stream", "3"] == 1
    named = exporter.until(
        lambda found: any(key[0] == "natsops_asset_at_fault" and value for key, value in found.items())
    )
    assert named["natsops_assets_omitted", "at_fault"] == 0

    cluster.start("n3")
    back = exporter.until(lambda found: found.get(("natsops_servers_stoppable", "C1")) == 3)
    assert back["natsops_root_causes", "servers_down", "error"] == 0
    # The series of assets that had a problem end with a good value.
    assert {value for key, value in back.items() if key[0] == "natsops_asset_at_fault"} == {0}

    # A server that is isolated from the others is queried at its own address.
    config = cluster.config_file("n3").read_text()
    cluster.stop("n3")
    cluster.config_file("n3").write_text(config.replace("cluster { name: C1,", "cluster { name: C9,"))
    cluster.start("n3")
    exporter.until(lambda found: found.get(("natsops_root_causes", "routes_cut", "error")) == 1)
    cluster.stop("n3")
    cluster.config_file("n3").write_text(config)
    cluster.start("n3")
    exporter.until(lambda found: found.get(("natsops_servers_stoppable", "C1")) == 3)

    cluster.kill("n1", "n2", "n3")
    gone = exporter.until(lambda found: found.get(("natsops_up",)) == 0)
    assert gone["natsops_root_causes", "cluster_unreachable", "error"] == 1
    assert not any(key[0].startswith(("natsops_server_", "natsops_group")) for key in gone)
    assert sum(value for key, value in gone.items() if key[0] == "natsops_failure") == 1
    assert "the cluster cannot be read: " in exporter.log
    cluster.start()
    exporter.until(lambda found: found.get(("natsops_servers_stoppable", "C1")) == 3)
    assert exporter.log.count("cluster: works again") == 1


def test_a_wrong_password_is_a_metric(healthy: NatsProcesses, start: Start) -> None:
    """The exporter also logs one line, which does not contain the password. The exporter leaves no connection open, no
    matter how often it retries."""
    exporter = start({**healthy.sys_connection(), "password": "a wrong one"}, interval=0.1)
    first = exporter.until(lambda found: found.get(("natsops_failure", "authorization")) == 1)
    assert first["natsops_up",] == 0
    files = exporter.open_files
    exporter.until(
        lambda found: found["natsops_sweeps_total", "failure"] > first["natsops_sweeps_total", "failure"] + 20
    )
    # A connection that the exporter is opening at this moment uses four files.
    assert exporter.open_files < files + 10
    assert exporter.log.count("the cluster cannot be read: ") == 1
    assert "a wrong one" not in exporter.log
    application = start(healthy.app_connection())
    wrong = application.until(lambda found: found.get(("natsops_sweeps_total", "failure"), 0) > 0)
    assert wrong["natsops_failure", "wrong_account"] + wrong["natsops_failure", "permission"] == 1


def test_silent_server_does_not_block_a_scrape(healthy: NatsProcesses, start: Start) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"nats://127.0.0.1:{silent.getsockname()[1]}"
        exporter = start({**healthy.sys_connection(), "servers": [url], "timeout": 1.0})
        exporter.until(lambda found: found.get(("natsops_failure", "starting")) == 1)
        begun = time.monotonic()
        exporter.series()
        assert time.monotonic() - begun < 5
        late = exporter.until(lambda found: found.get(("natsops_sweeps_total", "failure"), 0) > 0)
        assert late["natsops_up",] == 0


def test_scrapes_do_not_query_the_servers(healthy: NatsProcesses, start: Start) -> None:
    exporter = start(healthy.sys_connection(), interval=3600.0)
    first = exporter.until(lambda found: found.get(("natsops_up",)) == 1)
    took, every = first["natsops_sweep_duration_seconds",], first["natsops_sweep_interval_seconds",]
    assert 0 < took < every
    assert 0 <= first["natsops_sweep_timestamp_seconds",] - first["natsops_sweep_success_timestamp_seconds",] < took
    for _scrape in range(20):
        assert exporter.series()["natsops_sweeps_total", "success"] == 1
    assert first["natsops_series",] == len(first)
    linted = promtool("check", "metrics", text=exporter.get())
    assert (linted.returncode, linted.stdout + linted.stderr) == (0, "")
    openmetrics = exporter.get({"Accept": "application/openmetrics-text; version=1.0.0"})
    assert openmetrics.endswith("# EOF\n")


def test_exporter_reads_journal_catalogue_drift_and_report(
    healthy: NatsProcesses, start: Start, tmp_path: Path
) -> None:
    """A missing or invalid file sets a metric and is logged, and is read as soon as it is valid."""
    event = {"version": 1, "time": "2026-11-24T10:00:00Z", "run": "r", "cluster": "C1", "event": "run_started", "of": 3}
    report = tmp_path / "report.json"
    (tmp_path / "journal").write_text(json.dumps(event) + "\n")
    report.write_text("[]")
    catalogue = Catalogue().saved("APP/ORDERS", "2026-11-23T02:00:00Z")
    drift = tmp_path / "drift.json"
    files = {
        "journal": str(tmp_path / "journal"),
        "backups": str(tmp_path),
        "drift": str(drift),
        "report": str(report),
    }
    exporter = start(healthy.sys_connection(), **files)
    found = exporter.until(lambda found: found.get(("natsops_up",)) == 1)
    assert [found["natsops_input_readable", name] for name in files] == [1, 0, 0, 0]
    assert (found["natsops_roll_in_progress", "C1"], found["natsops_roll_batches", "C1"]) == (1, 3)
    assert exporter.log.count("report cannot be read: ") == 1
    (tmp_path / "catalogue.json").write_text(catalogue.text())
    report.write_text(json.dumps({"generated": "2026-11-24T00:00:00Z", "tables": {}}))
    found = exporter.until(lambda found: found["natsops_input_readable", "report"] == 1)
    found = exporter.until(lambda found: found["natsops_input_readable", "backups"] == 1)
    assert found["natsops_backup_streams", "saved"] == 1
    orders = {"document": "orders", "cluster": "C1", "account": "APP", "problem": "", "assets": 3, "drifting": 2}
    content = {"version": 1, "checked": "2026-11-24T02:00:00Z", "documents": [{**orders, "differing": []}]}
    drift.write_text(json.dumps(content))
    found = exporter.until(lambda found: found["natsops_input_readable", "drift"] == 1)
    assert found["natsops_assets_drifting", "APP", "C1", "orders"] == 2
    assert "report: works again" in exporter.log


def test_tls_and_a_password(healthy: NatsProcesses, start: Start, tmp_path: Path) -> None:
    """A silent client does not block others, and a renewed certificate is served without a restart."""
    made = make_certificates(tmp_path)
    files = {"cert_file": str(made.cert), "key_file": str(made.key)}
    users = {"prometheus": "s3cr3t: ü"}
    exporter = start(healthy.sys_connection(), users=users, tls=files)
    url = f"https://127.0.0.1:{exporter.port}/metrics"

    def status(password: str = "", path: str = "", ca: Path = made.ca) -> int:
        context = ssl.create_default_context(cafile=str(ca))
        given = base64.b64encode(f"prometheus:{password}".encode()).decode()
        request = urllib.request.Request(url + path, headers={"Authorization": f"Basic {given}"} if password else {})
        deadline = time.monotonic() + 30
        while True:
            try:
                with urllib.request.urlopen(request, timeout=10, context=context) as answer:
                    parse_series(answer.read().decode())
                    return int(answer.status)
            except urllib.error.HTTPError as error:
                return error.code
            except urllib.error.URLError as error:
                assert "refused" in str(error) and time.monotonic() < deadline, f"{error} {exporter.log}"
                time.sleep(0.05)

    assert status(users["prometheus"]) == 200
    assert [status(), status("wrong")] == [401, 401]
    assert status(users["prometheus"], "/else") == 404
    with socket.create_connection(("127.0.0.1", exporter.port)):
        assert status(users["prometheus"]) == 200
    with pytest.raises(OSError):
        exporter.get()
    other = tmp_path / "renewed"
    other.mkdir()
    renewed = make_certificates(other)
    for new, old in ((renewed.cert, made.cert), (renewed.key, made.key)):
        new.replace(old)
    assert status(users["prometheus"], ca=renewed.ca) == 200
    assert "s3cr3t" not in exporter.log


def test_settings_that_make_no_sense_end_it(healthy: NatsProcesses, start: Start) -> None:
    wrong: list[dict[str, object]] = [
        {"listen": "7777"},
        {"interval": 0},
        {"max_assets": None},
        {"tls": {"cert_file": "/none", "key_file": "/none"}},
    ]
    connection = healthy.sys_connection()
    for exporter in [start({}), *(start(connection, **settings) for settings in wrong)]:
        assert exporter.process.wait(60) == 2
        assert "the settings cannot be used: " in exporter.log
