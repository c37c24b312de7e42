# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the exporter as its unit runs it: one file, in a separate process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.nats import system_api
from prometheus_client.parser import text_string_to_metric_families
from support.nats_processes import free_ports

#: The value of each series, by its name and its labels except `fleet`.
Series = dict[tuple[str, ...], float]


class Exporter:
    """An exporter with these settings in addition to the required ones."""

    def __init__(self, directory: Path, connection: dict[str, Any], **settings: Any) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self.port = free_ports(1)[0]
        content = {
            "connection": {"timeout": 2.0, **connection},
            "fleet": "test",
            "listen": f"127.0.0.1:{self.port}",
            "interval": 0.5,
            "deadline": 10.0,
            "max_assets": 20,
            **settings,
        }
        (directory / "settings.json").write_text(json.dumps(content))
        self._log = directory / "log"
        with self._log.open("wb") as log:
            command = [sys.executable, "-I", str(self._packed()), str(directory / "settings.json")]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def _packed(self) -> Path:
        collection = Path(system_api.__file__).parents[3]
        target = self._directory / "program.pyz"
        sources = [
            f"{collection}/plugins/module_utils=ansible_collections/natsops/jetstream/plugins/module_utils",
            f"{collection}/roles/nats_insights/files/exporter/export.py=__main__.py",
        ]
        pack = str(collection / "roles/nats_program/files/pack.py")
        subprocess.run([sys.executable, pack, str(target), *sources], check=True)
        return target

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def get(self, headers: dict[str, str] | None = None, path: str = "/metrics") -> str:
        """Return the response to a GET request. Raise OSError if the request fails or the status is an error."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers=headers or {})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return str(answer.read().decode())

    def series(self) -> Series:
        """Return the series that the exporter serves."""
        return parse_series(self.get())

    def until(self, holds: Callable[[Series], bool], seconds: float = 60) -> Series:
        """Return the series as soon as they meet this condition."""
        deadline = time.monotonic() + seconds
        while True:
            found: Series = {}
            try:
                found = self.series()
                if holds(found):
                    return found
            except OSError:
                assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, f"{found}\n{self.log}"
            time.sleep(0.1)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)

    @property
    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


def parse_series(text: str) -> Series:
    """Return the exporter's samples in the text format, with the labels sorted by name."""
    return {
        (sample.name, *(value for name, value in sorted(sample.labels.items()) if name != "fleet")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("natsops_")
    }
