# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Opens a report in a real browser."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_CHROMIUM = Path(__file__).parents[2] / "tools/chromium.sh"
#: Seconds after which a browser, or a page that reports no result, has failed.
_PATIENCE = 120.0
#: Runs the test's script once the page is ready and has drawn its charts, and posts the result.
_REPORTING = """
  const root = document.documentElement;
  const report = async () => {
    const seen = {};
    @SCRIPT@
    fetch("@HERE@", { method: "POST", mode: "no-cors", body: JSON.stringify(seen) });
  };
  const check = () => { if (root.dataset.ready) { watch.disconnect(); setTimeout(report); } };
  const watch = new MutationObserver(check);
  watch.observe(root, { attributes: true });
  check();
"""


def browse(folder: Path, text: str, *options: str, begun: Callable[[int], None] = lambda _session: None) -> None:
    """Open a page in a browser, with an option that selects the browser's output. `begun` receives the id of the
    session in which the browser's processes run."""
    browser = subprocess.check_output([str(_CHROMIUM)], text=True).strip()
    (folder / "report.html").write_text(text, encoding="utf-8")
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--no-first-run",
        f"--user-data-dir={folder / 'profile'}",
        *options,
        (folder / "report.html").as_uri(),
    ]
    said = folder / "browser.log"
    with said.open("w") as log:
        # The browser runs in its own session, so all processes of this session belong to the browser.
        running = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        begun(running.pid)
        try:
            status = running.wait(_PATIENCE)
        finally:
            running.kill()
    assert status == 0, said.read_text()[-2000:]


class _Listener(ThreadingHTTPServer):
    """Receives the page's result. It delays an image until then, because the browser waits for the image before it
    closes."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.session = 0
        self.reported = threading.Event()
        self.seen: dict[str, Any] = {}


class _Answer(BaseHTTPRequestHandler):
    server: _Listener

    def do_GET(self) -> None:
        self.server.reported.wait(_PATIENCE)
        self.send_response(204)
        self.end_headers()

    def do_POST(self) -> None:
        cpu = _cpu_seconds(self.server.session)
        self.server.seen = {**json.loads(self.rfile.read(int(self.headers["Content-Length"]))), "cpu": cpu}
        self.send_response(204)
        self.end_headers()
        self.server.reported.set()

    def log_message(self, *_arguments: Any) -> None:
        pass


def _cpu_seconds(session: int) -> float:
    """Return the CPU time of the processes of a session and of their terminated children."""
    ticks = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def seen(folder: Path, text: str, script: str) -> dict[str, Any]:
    """Return the object `seen` that the test's script fills once the page is ready, and `cpu`: the browser's CPU
    seconds until then, which do not depend on the machine's load."""
    with _Listener() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        here = f"http://127.0.0.1:{server.server_port}/"
        own = _REPORTING.replace("@HERE@", here).replace("@SCRIPT@", script)
        # The page allows no other script and loads nothing. The test's script and address are allowed by name.
        text = text.replace("script-src 'sha256-", f"connect-src {here}; script-src 'nonce-test' 'sha256-")
        text = text.replace("img-src data:", f"img-src data: {here}")
        text = text.replace("</body>", f'<img id="held" src="{here}" hidden><script nonce="test">{own}</script></body>')
        picture = (f"--screenshot={folder / 'report.png'}", "--window-size=1280,800")
        try:
            browse(folder, text, *picture, begun=lambda session: setattr(server, "session", session))
        finally:
            server.reported.set()
            server.shutdown()
        assert server.seen, f"the page reported nothing:\n{(folder / 'browser.log').read_text()[-2000:]}"
        return server.seen
