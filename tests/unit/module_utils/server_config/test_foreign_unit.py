# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of a foreign unit are carried over, replaced by the role's unit, or reported."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.natsops.jetstream.plugins.module_utils.host.observation import read_settings
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.foreign_unit import (
    DECIDED,
    FILES,
    Carried,
    carry_over,
    may_be_secret,
    notes,
)
from support.documents import CHECKOUT

ROLE = CHECKOUT / "roles/nats_server"


def carried(tmp_path: Path, text: str) -> Carried:
    path = tmp_path / "nats.service"
    path.write_text(text)
    return carry_over(read_settings(str(path)))


def test_limits_logs_and_dependencies_are_carried_over(tmp_path: Path) -> None:
    found = carried(
        tmp_path,
        """\
[Unit]
Description=ours
After=network.target srv-nats.mount \\
# why
  ntp.service
Wants=network-online.target
Requires=srv-nats.mount
[Service]
User=nats
LimitNOFILE=65536
LimitMEMLOCK=infinity
MemoryMax=8G
CPUAffinity=0 1
CPUAffinity=4
OOMScoreAdjust=-500
StandardOutput=append:/var/log/nats.out
# Nice=5
Environment=TOKEN=secret
ExecStart=/usr/bin/nats-server -c /etc/nats.conf
Restart=always
[Install]
WantedBy=multi-user.target
""",
    )
    assert found.overrides == {
        "Unit": {"After": "srv-nats.mount ntp.service", "Requires": "srv-nats.mount"},
        "Service": {
            "LimitMEMLOCK": "infinity",
            "MemoryMax": "8G",
            "CPUAffinity": ["0 1", "4"],
            "OOMScoreAdjust": "-500",
            "StandardOutput": "append:/var/log/nats.out",
        },
    }
    assert (found.files, found.lost) == (None, ())


@pytest.mark.parametrize(
    ("value", "files", "overrides"),
    [
        ("1024", None, {}),
        (str(FILES), None, {}),
        ("1000000", 1000000, {}),
        ("infinity", None, {"Service": {"LimitNOFILE": "infinity"}}),
    ],
)
def test_open_files_are_never_fewer(
    tmp_path: Path, value: str, files: int | None, overrides: dict[str, dict[str, str]]
) -> None:
    found = carried(tmp_path, f"[Service]\nLimitNOFILE={value}\n")
    assert (found.files, found.overrides) == (files, overrides)


def test_lost_unit_settings_are_named(tmp_path: Path) -> None:
    found = carried(
        tmp_path, "[Service]\nExecStartPre=/bin/mount --token=secret\nSecureBits=keep-caps\nNice=5\nNice=\n"
    )
    assert (found.overrides, found.lost) == ({}, ("ExecStartPre", "SecureBits"))
    unit = {"name": "nats", "fragment": "/etc/systemd/system/nats.service", "enabled": False}
    lost, disabled = notes(unit, found)
    assert lost.startswith(
        "/etc/systemd/system/nats.service sets ExecStartPre, SecureBits, which the role's unit does not have"
    )
    assert "secret" not in lost
    assert disabled.startswith("nats is not enabled")
    assert notes({**unit, "enabled": True}, Carried()) == []


def test_a_file_that_is_not_there_has_no_options(tmp_path: Path) -> None:
    assert carry_over(read_settings(str(tmp_path / "gone"))) == Carried()


def test_variables_of_the_go_runtime_are_not_secret() -> None:
    assert [name for name in ("GOGC", "GOMEMLIMIT", "PROXY", "GOOD_KEY") if may_be_secret(name)] == [
        "PROXY",
        "GOOD_KEY",
    ]


def test_settings_of_the_roles_unit_are_recognized() -> None:
    template = (ROLE / "templates/nats-server.service.j2").read_text()
    options = set(re.findall(r"^([A-Z]\w+)=", template, re.MULTILINE))
    assert options - DECIDED == {"After", "AssertPathExists", "Wants", "RequiresMountsFor", "LimitNOFILE"}
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
    assert defaults["nats_server_service_limit_nofile"] == FILES
