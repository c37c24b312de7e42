# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests nats_server_process and nats_server_host_info with one real server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from support.nats_processes import binary, free_ports


class Host:
    """This machine, with one server's files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.port, self.monitor = free_ports(2)
        self.config = folder / "nats-server.conf"
        self.binary = binary("2.10.27")
        self.config.write_text(f'port: {self.port}\nhttp: "127.0.0.1:{self.monitor}"\n')

    def module(self, name: str, check: bool = False, **arguments: Any) -> dict[str, Any]:
        """Run a module through Ansible and return its result."""
        command = [str(Path(sys.executable).with_name("ansible")), "localhost", "-m", f"natsops.jetstream.{name}"]
        command += ["-a", json.dumps({"config": str(self.config), **arguments}), *(["--check"] if check else [])]
        output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        result: dict[str, Any] = json.loads(output[output.index("=> {") + 3 :])
        return result

    def process(self, state: str, check: bool = False, **arguments: Any) -> dict[str, Any]:
        """Run nats_server_process."""
        return self.module("nats_server_process", check, state=state, binary=self.binary, **arguments)

    def info(self, **arguments: Any) -> dict[str, Any]:
        """Return the process, as read by nats_server_host_info."""
        process: dict[str, Any] = self.module("nats_server_host_info", **arguments)["process"]
        return process

    def loaded(self) -> str:
        """Return when the server last read its configuration."""
        with urlopen(f"http://127.0.0.1:{self.monitor}/varz") as reply:
            return str(json.load(reply)["config_load_time"])


def test_start_reload_and_stop(tmp_path: Path) -> None:
    host = Host(tmp_path)
    assert host.process("started", check=True)["changed"]
    assert not host.info()["running"]
    assert "nothing to reload" in host.process("reloaded")["msg"]
    try:
        started = host.process("started", ports=[host.port], start_timeout=10)
        assert started["changed"]
        assert started["seconds"] < 10
        info = host.info(ports=[host.port])
        assert (info["running"], info["pid"], info["missing_ports"]) == (True, started["pid"], [])
        assert started["process"].items() <= info.items()
        deaf = host.process("started", ports=[1], start_timeout=0.1)
        assert "is not listening on 1 after 0.1 s" in deaf["msg"]
        assert info["version"] == "2.10.27"
        assert info["config_changed"] == host.config.stat().st_mtime
        secrets = tmp_path / "secrets.conf"
        secrets.touch()
        assert host.info(includes=[str(secrets)])["config_changed"] == secrets.stat().st_mtime
        again = host.process("started")
        assert (again["changed"], again["pid"]) == (False, started["pid"])

        before = host.loaded()
        assert host.process("reloaded", check=True)["changed"]
        assert host.loaded() == before
        assert host.process("reloaded")["changed"]
        assert host.info(ports=[host.port])["pid"] == started["pid"]
        assert host.loaded() != before

        assert host.process("stopped", check=True)["changed"]
        assert host.info()["running"]
    finally:
        stopped = host.process("stopped")
    assert (stopped["changed"], stopped["killed"], stopped["process"]["running"]) == (True, False, False)
    assert stopped["ended"] - stopped["seconds"] > info["started"]
    assert not host.process("stopped")["changed"]

    index = tmp_path / "store/jetstream/$SYS/_js_/_meta_/msgs/index.db"
    index.parent.mkdir(parents=True)
    index.write_bytes(b"\x0b\x01")
    host.binary = binary("2.9.10")
    for check in (True, False):
        refused = host.process("started", check=check, store=str(tmp_path / "store"))
        assert "2.9.10 is not started with the newer files" in refused["msg"]
    assert not host.info()["running"]
