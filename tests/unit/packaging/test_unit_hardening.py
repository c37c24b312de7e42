# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/security.md lists the hardening of each unit and its exposure, as measured by `systemd-analyze security`."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jinja2
import pytest
from ansible.plugins.test.core import regex, version_compare
from support.documents import CHECKOUT, Document

#: The variables of the templates, as on a host with the defaults of the roles.
SERVER: dict[str, Any] = {
    "nats_server_name": "n1",
    "nats_server_user": "nats",
    "nats_server_group": "nats",
    "nats_server_binary_link": "/usr/local/bin/nats-server",
    "nats_server_install_dir": "/opt/nats-server",
    "nats_server_config_dir": "/etc/nats-server",
    "nats_server_config_file": "/etc/nats-server/nats-server.conf",
    "nats_server_service_limit_nofile": 1048576,
    "nats_server_syslog": False,
    "nats_server_remote_syslog": "",
    "nats_server__paths": {"environment": "/etc/nats-server/environment", "hold": "/etc/nats-server/hold"},
    "nats_server__installed_version": "2.15.1",
    "nats_server__ports": [4222],
    "nats_server__stop_timeout": 180,
    "nats_server__tls_files": [],
    "nats_server__layout": {"runtime_directory": "nats-server", "writable": ["/var/lib/nats-server"]},
}
PROGRAM: dict[str, Any] = {
    "nats_program_description": "a program",
    "nats_program_groups": [],
    "nats_program_venv": "/opt/nats-exporter/venv",
    "nats_program_directory": "/opt/nats-exporter",
    "nats_program_scheduled": False,
    "nats_program_success_status": [],
    "nats_program_timeout": 60,
    "nats_program_user": "nats-exporter",
    "nats_program_writable": [],
}
SERVER_UNIT, PROGRAM_UNIT = "nats_server/templates/nats-server.service.j2", "nats_program/templates/program.service.j2"
UNITS: dict[str, tuple[str, dict[str, Any]]] = {
    "server": (SERVER_UNIT, SERVER),
    "server with a port below 1024": (SERVER_UNIT, {**SERVER, "nats_server__ports": [443, "4222"]}),
    "exporter": (PROGRAM_UNIT, PROGRAM),
    "timers": (PROGRAM_UNIT, {**PROGRAM, "nats_program_scheduled": True, "nats_program_writable": ["/var/lib/lake"]}),
}
#: Directives that restrict a process; the others describe its start and stop.
RESTRICTING = re.compile(
    r"^((?:Protect|Private|Restrict|SystemCall|Capability|Lock|MemoryDeny|NoNew|RemoveIPC|ProcSubset|UMask|Inaccessible)\w*)=",
    re.MULTILINE,
)


def rendered(unit: str) -> str:
    template, variables = UNITS[unit]
    environment = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined)
    environment.tests.update(match=lambda value, pattern: regex(value, pattern, match_type="match"))
    environment.tests.update(version=version_compare)
    return environment.from_string((CHECKOUT / "roles" / template).read_text()).render(**variables)


def documented() -> dict[str, float]:
    """Return the exposure of each unit in docs/security.md."""
    rows = re.findall(r"^\| ([\w ]+) \| (\d\.\d) \|$", Document("docs/security.md").text, re.MULTILINE)
    return {name: float(exposure) for name, exposure in rows}


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
@pytest.mark.parametrize("unit", UNITS)
def test_unit_is_at_most_as_exposed_as_documented(unit: str, tmp_path: Path) -> None:
    bound = documented()[unit]
    path = tmp_path / "unit.service"
    path.write_text(rendered(unit))
    command = [
        "systemd-analyze",
        "security",
        "--no-pager",
        "--offline=true",
        f"--threshold={bound * 10:.0f}",
        str(path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    measured = re.search(r"Overall exposure level for \S+: (\d\.\d)", done.stdout)
    assert measured, done.stderr
    # Newer versions of systemd weight some directives differently.
    assert done.returncode == 0 and bound - 0.5 <= float(measured[1]) <= bound, measured[0]


def test_documented_directives_are_those_of_the_units() -> None:
    section = Document("docs/security.md").text.partition("## The systemd units")[2].partition("\n## ")[0]
    all_units, server = (
        set(re.findall(r"`([A-Z][A-Za-z]+)(?:=[^`]*)?`", paragraph)) for paragraph in section.strip().split("\n\n")[:2]
    )
    used = {unit: set(RESTRICTING.findall(rendered(unit))) for unit in UNITS}
    assert all_units == used["exporter"] == used["timers"]
    assert server == used["server"] - all_units
    assert used["server with a port below 1024"] == used["server"] - {"PrivateUsers"}
