# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sends the webhook of the report to a real server on loopback."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from jetstream_insights.report import webhook
from jetstream_insights.report.shape import BY_NAME, FORMAT, filled

SECRET = "T0K3N"


def content(*changes: dict[str, Any]) -> dict[str, Any]:
    """Return a report with a root cause for each of these changes, or with a single one."""
    table = BY_NAME["causes"]
    cause = {
        "fleet": "prod",
        "severity": "critical",
        "title": "n4 does not answer",
        "commands": ["systemctl status nats-server"],
        "findings": 7,
    }
    rows = [[{**cause, **change}.get(column.name) for column in table.columns] for change in changes or [{}]]
    tables = {"causes": filled(table, rows, len(rows))}
    return {
        "format": FORMAT,
        "title": "Fleet",
        "day": "2026-11-21",
        "generated": "2026-11-21T19:00:00Z",
        "tables": tables,
    }


class Listener:
    """A server that stores all posted content, and responds with a status."""

    def __init__(self) -> None:
        self.posted: list[Any] = []
        self.paths: list[str] = []
        self.status = 200
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                listener.paths.append(self.path)
                listener.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(listener.status)
                self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/{SECRET}"


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_the_summary_is_posted(listener: Listener, tmp_path: Path) -> None:
    file = tmp_path / "webhook"
    file.write_text(f"{listener.address}\n")
    assert webhook.post(file, content()) is None
    (posted,) = listener.posted
    assert posted["verdict"]["worst"] == "critical"
    assert posted["first_steps"][0]["commands"] == ["systemctl status nats-server"]
    assert posted["text"].splitlines() == [
        "Fleet, 2026-11-21: 1 critical, 0 warning, 0 info; 0 unknown results",
        "critical: n4 does not answer",
        "- systemctl status nats-server",
    ]


def test_chat_programs_neither_notify_a_channel_nor_show_a_link_of_a_name() -> None:
    title = 'User "<!channel> & <https://evil|click>"'
    posted = webhook.summary(
        content({"fleet": "prod", "title": title}, {"fleet": "lab", "title": "n1 does not answer"})
    )
    assert [line for line in posted["text"].splitlines() if line.startswith("critical")] == [
        'critical: prod: User "&lt;!channel&gt; &amp; &lt;https://evil|click&gt;"',
        "critical: lab: n1 does not answer",
    ]
    assert posted["first_steps"][0]["title"] == title


@pytest.mark.parametrize("status", [302, 307, 404, 500])
def test_unsuccessful_answer_is_reported_and_not_followed(listener: Listener, tmp_path: Path, status: int) -> None:
    listener.status = status
    file = tmp_path / "webhook"
    file.write_text(listener.address)
    problem = webhook.post(file, content())
    assert problem and str(status) in problem and SECRET not in problem
    assert listener.paths == [f"/{SECRET}"]


def test_unreachable_webhook_is_reported_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "TIMEOUT", 0.3)
    file = tmp_path / "webhook"
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections, but never responds
        file.write_text(f"http://127.0.0.1:{silent.getsockname()[1]}/{SECRET}")
        problem = webhook.post(file, content())
        assert problem and problem.startswith("no answer") and SECRET not in problem
    monkeypatch.undo()
    problem = webhook.post(file, content())  # the listener is closed
    assert problem and "refused" in problem and SECRET not in problem


@pytest.mark.parametrize("address", ["", f"file:///etc/{SECRET}", f"https://host/{SECRET}\nhttps://other"])
def test_only_an_address_is_one(tmp_path: Path, address: str) -> None:
    file = tmp_path / "webhook"
    file.write_text(address)
    problem = webhook.post(file, content())
    assert problem and SECRET not in problem
    assert "cannot be read" in (webhook.post(tmp_path / "missing", content()) or "")
