# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real ansible-rulebook launches a workflow of a controller."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.module_runs import form
from support.nats_processes import NatsProcesses
from support.rulebooks import Start

TOKEN = "controller-token-1"
WORKFLOW: dict[str, Any] = {
    "id": 7,
    "type": "workflow_job_template",
    "name": "NATS approved replace",
    "summary_fields": {"organization": {"name": "Ops"}},
    "related": {"launch": "/api/v2/workflow_job_templates/7/launch/"},
    **{f"ask_{option}_on_launch": False for option in ("limit", "labels", "inventory", "variables")},
}


@pytest.fixture
def controller() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The address of a controller that has only this workflow, and the bodies of its launches."""
    launches: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            listed = {"count": 1, "next": None, "results": [WORKFLOW]}
            self._send({"version": "24.6.1", "status": "successful", "id": 8, "created": "", "artifacts": {}, **listed})

        def do_POST(self) -> None:
            if self.path == WORKFLOW["related"]["launch"]:
                launches.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self._send({"url": "/api/v2/workflow_jobs/8/", "id": 8})

        def _send(self, body: dict[str, Any]) -> None:
            content = json.dumps(body).encode()
            self.send_response(200 if self.headers["Authorization"] == f"Bearer {TOKEN}" else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_arguments: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", launches
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_missing_server_starts_the_approved_replacement(
    tmp_path: Path, start: Start, controller: tuple[str, list[dict[str, Any]]]
) -> None:
    url, launches = controller
    cluster = NatsProcesses("2.15.1", tmp_path, ["n1", "n2", "n3"])
    cluster.start()
    try:
        form(cluster)
        variables = {
            "nats_connection": cluster.sys_connection(),
            "nats_expected_servers": ["n1", "n2", "n3", "n9"],
            "nats_server_gone_seconds": 1,
            "nats_awx_organization": "Ops",
        }
        rulebook = start(
            "natsops.jetstream.controller", variables, "--controller-url", url, "--controller-token", TOKEN
        )
        rulebook.wait_until(lambda: launches, "no launch")
    finally:
        cluster.kill()
    assert launches == [{"extra_vars": {"nats_cluster_replace": "n9", "nats_cluster_lock_break": "false"}}]
