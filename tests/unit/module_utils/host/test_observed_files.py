# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path
from typing import Any, Callable

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.host.files import PREFIX
from ansible_collections.natsops.jetstream.plugins.module_utils.host.observed_files import (
    is_as_desired,
    observe,
    observe_files,
    text_digest,
)

TRIAL = {
    "binary": "/opt/nats-server",
    "config": "/etc/nats-server.conf",
    "environment_sha256": text_digest(""),
    "digest": "sha256:1",
}


class Host:
    """A directory, a file, a secret file and a path without a file, as the role desires them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.user = pwd.getpwuid(os.geteuid()).pw_name
        self.group = grp.getgrgid(os.getegid()).gr_name
        folder.chmod(0o750)
        for name in ("nats-server.conf", "secrets.conf"):
            (folder / name).write_text(f"{name} é\n")
            (folder / name).chmod(0o640)
        self.options: dict[str, Any] = {
            "directories": [{"path": str(folder), "mode": "0750", "owner": self.user, "group": self.group}],
            "files": [self.file("nats-server.conf")],
            "secret_files": [self.file("secrets.conf")],
            "absent": [str(folder / "old.conf")],
            "trial": {name: TRIAL[name] for name in ("binary", "config")},
        }

    def file(self, name: str) -> dict[str, Any]:
        path = str(self.folder / name)
        return {"path": path, "mode": "0640", "owner": self.user, "group": None, "content": f"{name} é\n"}

    def is_as_desired(self, **options: Any) -> bool:
        names = ("", "nats-server.conf", "secrets.conf", "old.conf")
        paths = [str(self.folder / name) if name else str(self.folder) for name in names]
        return is_as_desired(observe_files(paths, TRIAL), {**self.options, **options})


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_identical_files_are_as_desired(host: Host) -> None:
    assert host.is_as_desired()
    assert host.is_as_desired(trial=None, absent=None, directories=None)


def dangling(folder: Path) -> None:
    (folder / "secrets.conf").unlink()
    (folder / "secrets.conf").symlink_to("/no/such/file")


CHANGES: dict[str, Callable[[Path], Any]] = {
    "content": lambda folder: (folder / "nats-server.conf").write_text("changed"),
    "content of a secret": lambda folder: (folder / "secrets.conf").write_text("changed"),
    "mode of a file": lambda folder: (folder / "secrets.conf").chmod(0o644),
    "mode of the directory": lambda folder: folder.chmod(0o755),
    "missing file": lambda folder: (folder / "secrets.conf").unlink(),
    "dangling link": dangling,
    "file that must be absent": lambda folder: (folder / "old.conf").write_text(""),
    "link that must be absent": lambda folder: (folder / "old.conf").symlink_to("/no/such/file"),
    "rest of a killed run": lambda folder: (folder / f"{PREFIX}0").write_text(""),
}


@pytest.mark.parametrize("change", CHANGES)
def test_difference_on_the_host_is_not_as_desired(host: Host, change: str) -> None:
    CHANGES[change](host.folder)
    assert not host.is_as_desired()


def test_other_desired_state_is_not_as_desired(host: Host) -> None:
    (config,) = host.options["files"]
    (folder,) = host.options["directories"]
    assert not host.is_as_desired(files=[{**config, "content": "changed"}])
    assert not host.is_as_desired(files=[{**config, "content": {"a": "value that the template engine has converted"}}])
    assert not host.is_as_desired(files=[{**config, "owner": "nobody"}])
    assert not host.is_as_desired(files=[config, {**config, "path": "/not/observed"}])
    assert not host.is_as_desired(directories=[{**folder, "path": "/not/observed"}])
    assert not host.is_as_desired(directories=[{**folder, "group": "nogroup"}])
    assert not host.is_as_desired(absent=["/not/observed"])


def test_directory_of_another_user_is_left(host: Host) -> None:
    (folder,) = host.options["directories"]
    foreign = {**folder, "owner": "nobody", "mode": "0700"}
    assert host.is_as_desired(directories=[{**foreign, "leave_foreign": True}])
    assert not host.is_as_desired(directories=[{**foreign, "leave_foreign": False}])


def test_configuration_must_have_been_tested_by_the_same_executable(host: Host) -> None:
    def tested(trial: dict[str, str] | None) -> bool:
        paths = [
            str(host.folder),
            *(str(host.folder / name) for name in ("nats-server.conf", "secrets.conf", "old.conf")),
        ]
        return is_as_desired(observe_files(paths, trial), host.options)

    assert tested(TRIAL)
    assert not tested(None)
    assert not tested({**TRIAL, "binary": "/opt/2.15.1/nats-server"})
    assert not tested({**TRIAL, "config": "/etc/other.conf"})
    assert not tested({**TRIAL, "environment_sha256": text_digest('{"A": 1}')})


def test_repeated_and_invalid_options_are_left_to_the_module(host: Host) -> None:
    (config,) = host.options["files"]
    assert not host.is_as_desired(absent=[config["path"]])
    assert not host.is_as_desired(files=[{**config, "content": "one"}, config])
    assert not host.is_as_desired(files=[{"path": config["path"], "mode": "0640"}])
    assert not host.is_as_desired(directories="[]")
    assert not is_as_desired({"paths": {}}, {})  # type: ignore[typeddict-item]


def test_unreadable_path_does_not_end_the_reading(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert observe(str(tmp_path / "loop"))["kind"] == "other"


def test_state_of_a_path(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert observe(str(file / "below"))["kind"] == "absent"
    assert observe("/dev/null")["kind"] == "other"
    os.chown(file, 54321, 54322) if os.geteuid() == 0 else pytest.skip("needs root")
    assert (observe(str(file))["owner"], observe(str(file))["group"]) == ("54321", "54322")
