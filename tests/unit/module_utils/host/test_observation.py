# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests a host's report about its nats-server unit."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.host.loaded import file_flags
from ansible_collections.natsops.jetstream.plugins.module_utils.host.observation import (
    read_drop_ins,
    read_endpoint,
    version_change,
)


def modules_after(imported: str) -> set[str]:
    """Return the modules that a new Python process has loaded after an import. `imported`: names below `plugins`;
    `{0}` is the prefix of further names."""
    plugins = "ansible_collections.natsops.jetstream.plugins."
    code = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    code += f"import {plugins}{imported.format(plugins)}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(sys.path)], check=True, capture_output=True, text=True
    )
    return set(done.stdout.split())


def test_options_of_drop_ins_are_read_without_values(tmp_path: Path) -> None:
    one, two = tmp_path / "10-limits.conf", tmp_path / "20-empty.conf"
    one.write_text(
        "# LimitCORE=0\n[Service]\nLimitNOFILE=1\nEnvironment=TOKEN=secret \\\n  A=b\n;User=x\n ExecStart=\nExecStart=/bin/x\n"
    )
    two.write_text("")
    assert read_drop_ins({"DropInPaths": f"{one} {two}"}) == [
        {"path": str(one), "options": ["Environment", "ExecStart", "LimitNOFILE"]},
        {"path": str(two), "options": []},
    ]
    assert read_drop_ins({}) == []


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, b'{"port": 1}', {"port": 1}),
        (200, b"[1]", {}),
        (200, b"no JSON", {}),
        (404, b'{"port": 1}', {}),
        (0, b"", {}),
    ],
)
def test_an_endpoint_that_does_not_answer_as_it_should_is_empty(
    status: int, body: bytes, expected: dict[str, Any]
) -> None:
    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not status:
                self.wfile.write(b"not HTTP\r\n")
            else:
                self.send_response(status if self.path == "/base/varz" else 500)
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_message: Any) -> None:
            """Log nothing."""

    with HTTPServer(("127.0.0.1", 0), Server) as server:
        answering = threading.Thread(target=server.handle_request)
        answering.start()
        assert read_endpoint(f"http://127.0.0.1:{server.server_port}/base", "varz") == expected
        answering.join()
    for url in (f"http://127.0.0.1:{server.server_port}", "http://127.0.0.1:none", ""):
        assert read_endpoint(url, "varz") == {}


@pytest.mark.parametrize(
    "imported",
    [
        # The import of nats_server_host_info for a deployment.
        "modules.nats_server_host_info, {0}module_utils.host.deployment",
        "modules.nats_host_lock",
        "modules.nats_server_process",
        "modules.nats_cluster_health",
    ],
)
def test_a_module_imports_nothing_heavy_that_it_may_not_need(imported: str) -> None:
    """Each of these imports took a third of the run time of a module that only reads."""
    found = modules_after(imported)
    assert not {"ansible.module_utils.urls", "cryptography", "nkeys"} & found


def test_reading_a_process_imports_no_code_of_other_subsets() -> None:
    """The import takes longer than the reading, and a deployment reads each process several times."""
    found = {name.rpartition(".")[2] for name in modules_after("modules.nats_server_host_info") if "natsops" in name}
    assert "observation" in found
    assert not {"deployment", "discovery", "own_files", "rescue_host", "schema", "store", "unreported"} & found


def test_the_flags_of_the_next_start_are_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "nats-server.conf"
    assert file_flags(str(path)) == {}
    path.write_text("feature_flags { js_raft_delete_range: false }\nsystem_account: $ACCOUNT\ninclude secrets.conf")
    assert file_flags(str(path)) == {}
    (tmp_path / "secrets.conf").write_text("port: $PORT")
    assert file_flags(str(path)) == {"js_raft_delete_range": False}
    path.write_text("feature_flags: 1")
    assert file_flags(str(path)) == {}


@pytest.mark.parametrize(
    ("running", "streams", "version"), [("2.10.27", 0, "2.10.27"), ("", 3, "2.10.26"), ("", 0, "")]
)
def test_a_stopped_server_without_streams_has_no_version_to_change(running: str, streams: int, version: str) -> None:
    process = {"running": bool(running), "version": running}
    found = version_change(process, "2.10.26", "2.10.27", {"streams": streams, "groups": ["S-R3F-x"], "peers": []})
    assert found == {
        "running": bool(running),
        "version": version,
        "target": "2.10.27",
        "changes": version != "2.10.27",
        "streams": streams,
        "groups": ["S-R3F-x"],
        "in_meta_group": True,
    }
    assert not version_change(process, "", "2.10.27", {})["in_meta_group"]
