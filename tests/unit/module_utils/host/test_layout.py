# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests which files and directories the role has on a host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.natsops.jetstream.plugins.filter.nats_host_layout import nats_host_layout
from ansible_collections.natsops.jetstream.plugins.lookup.nats_rendered_files import LookupModule

PATHS = {name: f"/{name}" for name in ("environment", "unit", "drop_ins", "overrides")}
OPTIONS: dict[str, Any] = {
    "take_over": True,
    "become": True,
    "user": "nats",
    "group": "nats",
    "install_dir": "/opt",
    "config_dir": "/etc/nats",
    "config_file": "/etc/nats/nats.conf",
    "secrets_file": "/etc/nats/secrets.conf",
    "run_dir": "/run/nats",
    "log_file": None,
    "jetstream": True,
    "jetstream_store_dir": "/store",
    "config": {},
    "config_host": {},
    "tls_source": "none",
    "service_name": "nats",
    "service_environment": {},
    "service_overrides": {},
}
LINK, SERVICE, PATH = (
    "/etc/systemd/system/multi-user.target.wants/nats-tls.path",
    "/etc/systemd/system/nats-tls.service",
    "/etc/systemd/system/nats-tls.path",
)


def layout(systemd: bool = True, with_service: bool = True, unrecorded: bool = False, **options: Any) -> Any:
    return nats_host_layout({**OPTIONS, **options}, PATHS, systemd, with_service, unrecorded)


def paths(files: list[dict[str, Any]]) -> list[str]:
    return [one["path"] for one in files]


@pytest.mark.parametrize(
    ("systemd", "options", "directories"),
    [
        (True, {}, ["/opt", "/etc/nats", "/store"]),
        (False, {}, ["/opt", "/etc/nats", "/store", "/run/nats"]),
        (True, {"run_dir": "/srv/run"}, ["/opt", "/etc/nats", "/store", "/srv/run"]),
        (True, {"log_file": "/var/log/nats.log", "jetstream": "False"}, ["/opt", "/etc/nats", "/var/log"]),
        (True, {"log_file": "nats.log"}, ["/opt", "/etc/nats", "/store"]),
        (True, {"service_overrides": {"Service": {}}}, ["/opt", "/etc/nats", "/store", "/drop_ins"]),
        (False, {"service_overrides": {"Service": {}}}, ["/opt", "/etc/nats", "/store", "/run/nats"]),
        (True, {"take_over": False, "log_file": "/var/log/nats.log"}, ["/etc/nats"]),
        (True, {"config": {"resolver": {"dir": "/jwt"}}}, ["/opt", "/etc/nats", "/store", "/jwt"]),
        (True, {"config_host": {"resolver": "MEMORY"}}, ["/opt", "/etc/nats", "/store"]),
    ],
)
def test_directories(systemd: bool, options: dict[str, Any], directories: list[str]) -> None:
    assert paths(layout(systemd, **options)["directories"]) == directories


def test_directory_of_the_log_may_belong_to_another_user() -> None:
    (log,) = [one for one in layout(log_file="/var/log/x")["directories"] if one["path"] == "/var/log"]
    assert log == {"path": "/var/log", "owner": "nats", "group": "nats", "mode": "0750", "leave_foreign": True}


@pytest.mark.parametrize(
    ("systemd", "options", "secret_files", "files"),
    [
        (True, {}, [], ["/environment", "/unit"]),
        (False, {}, [], ["/environment"]),
        (True, {"service_environment": {"A": "b"}}, ["/environment"], ["/unit"]),
        (True, {"service_overrides": {"Unit": {}}}, [], ["/environment", "/unit", "/overrides"]),
        (True, {"tls_source": "host"}, [], ["/environment", "/unit", SERVICE, PATH]),
        (False, {"tls_source": "host"}, [], ["/environment"]),
        (True, {"take_over": False, "service_environment": {"A": "b"}}, [], []),
    ],
)
def test_files_of_the_service(
    systemd: bool, options: dict[str, Any], secret_files: list[str], files: list[str]
) -> None:
    found = layout(systemd, **options)
    assert paths(found["service_secret_files"]) == secret_files
    assert paths(found["service_files"]) == files
    assert paths(found["secret_files"]) == ["/etc/nats/secrets.conf", *secret_files]
    assert paths(found["files"]) == ["/etc/nats/nats.conf", *files]


@pytest.mark.parametrize(
    ("systemd", "options", "absent"),
    [
        (True, {}, ["/overrides", LINK, SERVICE, PATH]),
        (True, {"service_overrides": {"Unit": {}}}, [LINK, SERVICE, PATH]),
        (True, {"tls_source": "host"}, ["/overrides"]),
        (True, {"take_over": False}, []),
        (False, {}, []),
    ],
)
def test_files_that_must_not_exist(systemd: bool, options: dict[str, Any], absent: list[str]) -> None:
    assert layout(systemd, **options)["absent"] == absent


def test_configuration_alone_needs_no_directory_and_no_unit() -> None:
    found = layout(with_service=False)
    assert (found["directories"], found["absent"]) == ([], [])
    assert paths(found["secret_files"] + found["files"]) == ["/etc/nats/secrets.conf", "/etc/nats/nats.conf"]


def test_files_from_outside_the_role_are_not_shown() -> None:
    found = layout(unrecorded=True)
    assert paths(found["secret_files"]) == ["/etc/nats/secrets.conf", "/etc/nats/nats.conf"]
    assert paths(found["files"]) == ["/environment", "/unit"]


def test_owner_is_not_changed_without_privileges() -> None:
    found = layout(become="False")
    assert {(one["owner"], one["group"]) for one in found["secret_files"]} == {(None, None)}
    assert {one["owner"] for one in found["directories"]} == {None}


def test_nats_rendered_files_have_content_instead_of_a_template(tmp_path: Path) -> None:
    (tmp_path / "motd.j2").write_text("Welcome to {{ name }}\n")
    variables = {"name": "n1", "ansible_search_path": [str(tmp_path)]}
    templar = Templar(loader=DataLoader(), variables=variables)
    lookup = LookupModule(loader=DataLoader(), templar=templar)
    found = lookup.run([{"path": "/etc/motd", "template": "motd.j2", "mode": "0644"}], variables)
    assert found == [{"path": "/etc/motd", "content": "Welcome to n1\n", "mode": "0644"}]
