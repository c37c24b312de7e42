# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the path from a killed server to the pager with a real cluster, the exporter, and Debian's Prometheus and
Alertmanager."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import binaries
import pytest
import yaml
from support.alerts import SUITE, program, rules, runbook
from support.exporters import Exporter
from support.module_runs import Runner, form
from support.nats_processes import NatsProcesses, free_ports, listens

pytestmark = [pytest.mark.chaos, pytest.mark.parametrize("version", ["2.15.1"], indirect=True)]


class Pager:
    """Receives Alertmanager's notifications, as a webhook."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        calls = self.calls

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                calls.extend(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def wait_for(self, status: str, name: str, log: Callable[[], str], seconds: float = 120) -> dict[str, Any]:
        """Return the first notification with this status for this alert."""
        deadline = time.monotonic() + seconds
        while True:
            for call in self.calls:
                if (call["status"], call["labels"]["alertname"]) == (status, name):
                    return call
            assert time.monotonic() < deadline, f"{self.calls}\n{log()}"
            time.sleep(0.2)


@contextlib.contextmanager
def running(command: list[str], port: int, log: Path) -> Iterator[None]:
    """Run a program until the block ends; the block begins once the program listens."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=log.parent)
    try:
        deadline = time.monotonic() + 60
        while not listens(port):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(30)


def test_killed_server_pages_with_its_runbook(
    make_cluster: Callable[..., NatsProcesses], run_module: Runner, tmp_path: Path
) -> None:
    """The alert is resolved when the server runs again. The rules are the published ones, with five seconds instead of
    five minutes."""
    names = ["n1", "n2", "n3"]
    cluster = make_cluster(names)
    form(cluster, run_module)
    cluster.add_stream("ORDERS", 3)
    content = rules()
    for rule in content["groups"][0]["rules"]:
        rule["for"] = rule["for"].replace("5m", "5s")
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(content))
    prometheus_port, alertmanager_port = free_ports(2)
    exporter, pager = Exporter(tmp_path / "exporter", cluster.sys_connection(), expected_servers=names), Pager()
    (tmp_path / "alertmanager.yml").write_text(
        yaml.safe_dump(
            {
                "route": {"receiver": "pager", "group_by": ["alertname"], "group_wait": "0s", "group_interval": "1s"},
                "receivers": [{"name": "pager", "webhook_configs": [{"url": pager.url, "send_resolved": True}]}],
            }
        )
    )
    (tmp_path / "prometheus.yml").write_text(
        yaml.safe_dump(
            {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": ["rules.yml"],
                "scrape_configs": [
                    {"job_name": "nats", "static_configs": [{"targets": [f"127.0.0.1:{exporter.port}"]}]}
                ],
                "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{alertmanager_port}"]}]}]},
            }
        )
    )
    # Alertmanager reads its templates from /usr/share, but its package is only unpacked elsewhere. A mount namespace
    # puts the package's folder there.
    share = binaries.programs("prometheus-alertmanager", SUITE) / "usr/share"
    alertmanager = [
        "unshare",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        f"mount --bind {share} /usr/share && exec "
        f"{program('prometheus-alertmanager')} --config.file=alertmanager.yml --storage.path=alertmanager "
        f"--cluster.listen-address= --web.listen-address=127.0.0.1:{alertmanager_port}",
    ]
    prometheus = [
        program("prometheus"),
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=prometheus",
        f"--web.listen-address=127.0.0.1:{prometheus_port}",
    ]

    def log() -> str:
        return (tmp_path / "prometheus.log").read_text() + (tmp_path / "alertmanager.log").read_text() + exporter.log

    try:
        exporter.until(lambda found: found.get(("natsops_servers_stoppable", "C1")) == 3)
        with (
            running(alertmanager, alertmanager_port, tmp_path / "alertmanager.log"),
            running(prometheus, prometheus_port, tmp_path / "prometheus.log"),
        ):
            cluster.kill("n3")
            called = pager.wait_for("firing", "NatsopsServerDown", log)
            assert (called["labels"]["server"], called["labels"]["cluster"]) == ("n3", "C1")
            assert called["annotations"]["runbook_url"] == runbook("No server answers")
            assert called["annotations"]["description"] == "n3 of C1 does not answer."
            cluster.start("n3")
            over = pager.wait_for("resolved", "NatsopsServerDown", log)
            assert over["fingerprint"] == called["fingerprint"]
            # No quorum was lost, and no other alert was sent.
            assert {call["labels"]["alertname"] for call in pager.calls} == {"NatsopsServerDown"}
    finally:
        exporter.stop()
        pager.close()
