# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs nats_server_files and nats_server_host_info with real executables of nats-server."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.module_runs import run_in_process
from support.nats_processes import binary, free_ports

VERSION = "2.15.1"
CONFIG = """\
include "secrets.conf"
listen: "127.0.0.1:{port}"
http: "127.0.0.1:{monitor}"
authorization {{ token: $token }}
{extra}
"""


class Site:
    """The folders of one server, and the intended content of its files."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "etc"
        self.port, self.monitor = free_ports(2)
        self.installed = root / "opt" / VERSION / "bin/nats-server"
        self.installed.parent.mkdir(parents=True)
        shutil.copy(binary(VERSION), self.installed)
        (self.installed.parents[1] / "source.sha256").write_text("ab" * 32)

    def write(self, extra: str = "", secret: str = "s3cret", check: bool = False, **options: Any) -> dict[str, Any]:
        config = CONFIG.format(port=self.port, monitor=self.monitor, extra=extra)
        wanted: dict[str, Any] = {
            "directories": [{"path": str(self.folder), "mode": "0750"}],
            "secret_files": [
                {"path": str(self.folder / "secrets.conf"), "mode": "0640", "content": f'token: "{secret}"\n'}
            ],
            "files": [{"path": str(self.folder / "nats-server.conf"), "mode": "0640", "content": config}],
            "trial": {"binary": str(self.installed), "config": str(self.folder / "nats-server.conf")},
        }
        return run_in_process("nats_server_files", {}, check, **{**wanted, **options, "_ansible_diff": True})

    def read(self, **options: Any) -> dict[str, Any]:
        paths = {
            "config": "etc/nats-server.conf",
            "secrets": "etc/secrets.conf",
            "record": "etc/running.json",
            "install_dir": "opt",
        }
        given: dict[str, Any] = {name: str(self.folder.parent / path) for name, path in paths.items()}
        given.update(gather_subset=["deployment"], version=VERSION, user="root", group="root")
        return run_in_process("nats_server_host_info", {}, **{**given, **options})

    def contents(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.folder.iterdir()}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_check_mode_predicts_and_a_second_run_changes_nothing(site: Site) -> None:
    predicted = site.write(check=True)
    assert predicted["changed"] and predicted["tried"] and not site.folder.exists()
    done = site.write()
    assert (done["changed_paths"], done["diff"]) == (predicted["changed_paths"], predicted["diff"])
    assert done["changed_paths"] == [f"{site.folder}{name}" for name in ("", "/secrets.conf", "/nats-server.conf")]
    assert {path.name: path.stat().st_mode & 0o777 for path in site.folder.iterdir()} == {
        "secrets.conf": 0o640,
        "nats-server.conf": 0o640,
    }
    again = site.write()
    assert (again["changed"], again["changed_paths"], again["digest"]) == (False, [], done["digest"])
    assert done["digest"].startswith("sha256:")


def test_secrets_are_in_no_output(site: Site) -> None:
    first = site.write(secret="one-secret")
    second = site.write(secret="two-secret", extra="max_connections: 10")
    assert "one-secret" not in json.dumps([first, second]) and "two-secret" not in json.dumps([first, second])
    assert [entry["after_header"] for entry in second["diff"]] == [str(site.folder / "nats-server.conf")]
    assert "max_connections" in second["diff"][0]["after"]


def test_rejected_configuration_changes_nothing(site: Site) -> None:
    site.write()
    before = site.contents()
    refused = site.write(extra='no_such_option: "x"', secret="other")
    assert refused["failed"]
    assert f"nats-server {VERSION} rejects the configuration; nothing was changed." in refused["msg"]
    assert 'unknown field "no_such_option"' in refused["msg"] and "/tmp" not in refused["msg"]
    mistyped = site.write(extra='max_paylod: "1"', secret="other")
    assert "\nmax_paylod: the nearest known key is max_payload" in mistyped["msg"]
    assert site.contents() == before


def test_a_trial_has_the_environment_which_no_output_shows(site: Site) -> None:
    trial = {"binary": str(site.installed), "config": str(site.folder / "nats-server.conf")}
    extra = "max_connections: $MOST"
    refused = site.write(extra=extra, trial=trial)
    assert "variable reference for 'MOST'" in refused["msg"]
    given = {**trial, "environment": json.dumps({"MOST": 4711, "TOKEN": "one-secret"})}
    done = site.write(extra=extra, trial=given)
    assert done["tried"] and "one-secret" not in json.dumps(done)
    # The files are already on the host, as they are when `diagnose` tests them.
    nothing: dict[str, Any] = {"directories": [], "secret_files": [], "files": []}
    assert site.write(check=True, trial=given, **nothing)["digest"] == done["digest"]
    for wrong in ('{"A\\nB": 1}', '{"A B": 1}', "[1]", "one-secret"):
        refused = site.write(check=True, trial={**trial, "environment": wrong})
        assert "trial.environment" in refused["msg"] and "one-secret" not in refused["msg"]


def test_a_trial_without_the_executable(site: Site) -> None:
    """The executable may be omitted only in check mode, where the version may not be installed yet."""
    trial = {"binary": "/no/such/nats-server", "config": str(site.folder / "nats-server.conf")}
    missing = site.write(trial=trial)
    assert missing["failed"] and "cannot be run: No such file or directory; nothing was changed" in missing["msg"]
    assert not site.folder.exists()
    left_out = site.write(check=True, trial={**trial, "optional": True})
    assert (left_out["changed"], left_out["tried"], left_out["digest"]) == (True, False, "")


@pytest.fixture
def small_disk(site: Site) -> Iterator[Path]:
    site.folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k,mode=750", "none", str(site.folder)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("mounting needs root")
    yield site.folder
    subprocess.run(["umount", str(site.folder)], check=True)


def test_a_full_disk_leaves_the_old_state(site: Site, small_disk: Path) -> None:
    site.write()
    before = site.contents()
    failed = site.write(extra="#" * 100_000, secret="other")
    assert failed["failed"]
    assert failed["msg"] == f"{site.folder}/nats-server.conf: No space left on device; nothing was changed"
    assert site.contents() == before
    assert site.write(secret="other")["changed"]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_reads_units_before_they_are_written(site: Site, tmp_path: Path) -> None:
    def write(unit: str, drop_in: str = "[Service]\nNice=1\n") -> dict[str, Any]:
        texts = {"one.service": unit, "one.service.d/natsops.conf": drop_in}
        files = [{"path": str(tmp_path / name), "mode": "0644", "content": text} for name, text in texts.items()]
        directories = [{"path": str(tmp_path / "one.service.d"), "mode": "0755"}]
        return run_in_process("nats_server_files", {}, directories=directories, files=files, unit="one")

    good = "[Service]\nExecStart=/bin/true\nOfTheFuture=yes\n"
    assert write(good)["unit_changed"]
    assert not write(good)["unit_changed"]
    assert "systemd rejects one.service; nothing was changed" in write("[Service]\nExecStart=bin/true\n")["msg"]
    assert "one.service.d/natsops.conf" in write(good, "[Service]\nOfTheFuture=yes\n")["msg"]
    assert (tmp_path / "one.service").read_text() == good


def test_all_of_a_host_in_one_run(site: Site) -> None:
    nothing = site.read(tunings=["mount_options", "scheduler", "sysctl", "transparent_hugepages", "time_sync"])
    assert (nothing["process"]["running"], nothing["varz"], nothing["record"], nothing["secrets"]) == (
        False,
        {},
        {},
        "",
    )
    assert sorted(nothing["tunings"]) == ["mount_options", "scheduler", "sysctl", "time_sync", "transparent_hugepages"]
    assert (nothing["installed"], nothing["installed_from"]) == (True, "ab" * 32)
    assert not site.read(version="1.0.0")["installed"]
    site.write()
    (site.folder / "running.json").write_text(json.dumps({"config": {"http": f"127.0.0.1:{site.monitor}"}}))
    os.utime(site.folder / "secrets.conf", (1, 1))
    server = subprocess.Popen([site.installed, "-c", site.folder / "nats-server.conf"], stderr=subprocess.DEVNULL)
    try:
        read = functools.partial(
            site.read, tls_files=[str(site.folder / "secrets.conf"), "/no/such"], paths=["/proc/x"]
        )
        deadline = time.monotonic() + 20
        while not (found := read())["varz"]:
            assert time.monotonic() < deadline
    finally:
        server.kill()
        server.wait()
    assert (found["process"]["pid"], found["process"]["version"], found["varz"]["version"]) == (
        server.pid,
        VERSION,
        VERSION,
    )
    assert found["process"]["config_changed"] == (site.folder / "nats-server.conf").stat().st_mtime
    assert (found["secrets"], found["tls_changed"]) == ('token: "s3cret"\n', 1.0)
    assert found["filesystems"] == [
        {"mount": "/proc", "fstype": "proc", "rotating_disks": [], "size_total": 0, "size_available": None}
    ]
    assert found["architecture"] == os.uname().machine
    (site.folder / "running.json").write_text("{half")
    assert "The host cannot be read" in site.read()["msg"]


def test_versions_are_installed_removed_and_refused_by_their_output(tmp_path: Path) -> None:
    folder, old, new = tmp_path / "opt", binary("2.10.27"), binary(VERSION)
    folder.mkdir()

    def ensure(check: bool = False, **options: Any) -> dict[str, Any]:
        return run_in_process("nats_server_binary", {}, check, install_dir=str(folder), **options)

    predicted = ensure(True, version="2.10.27", src=old)
    assert (predicted["changed"], predicted["installed"], predicted["diff"]["after"]) == (True, False, "2.10.27\n")
    assert list(folder.iterdir()) == []
    done = ensure(version="2.10.27", src=old)
    assert (done["changed"], done["installed"], done["versions"]) == (True, True, ["2.10.27"])
    assert done["diff"] == predicted["diff"]
    assert Path(done["path"]).read_bytes() == Path(old).read_bytes()
    assert not ensure(version="2.10.27", src=old)["changed"]
    assert not ensure(version="2.10.27", src=old, check=True)["changed"]

    refused = ensure(version="2.10.27", src=new)
    assert f"is nats-server {VERSION}, but nats_server_version is 2.10.27" in refused["msg"]
    assert "expected" in ensure(version=VERSION, src=new, checksum="sha256:" + "0" * 64)["msg"]
    assert ensure(version=VERSION)["installed"] is False
    assert sorted(path.name for path in folder.iterdir()) == ["2.10.27"]

    both = ensure(version=VERSION, src=new, keep=1)
    assert (both["versions"], both["removed"]) == ([VERSION], ["2.10.27"])
    assert ensure(True, state="absent")["changed"] and folder.exists()
    gone = ensure(state="absent")
    assert (gone["changed"], gone["removed"], folder.exists()) == (True, [VERSION], False)
    assert not ensure(state="absent")["changed"]


def test_tuning_is_refused_or_predicted_without_a_change(tmp_path: Path) -> None:
    """The lab tunes a separate host (test_deploy.py); here nothing may change."""
    record = tmp_path / "tuning.json"
    wanted = int(Path("/proc/sys/net/core/somaxconn").read_text()) + 1

    def tune(check: bool = False, **options: Any) -> dict[str, Any]:
        return run_in_process("nats_server_tuning", {}, check, record=str(record), service="natsops-test", **options)

    refused = tune(apply=["sysctl"], undo=["sysctl"])
    assert refused["msg"] == "apply and undo both list sysctl: remove it from one of them"
    found = tune(check=True, apply=["sysctl"], sysctls={"net.core.somaxconn": wanted, "net.no.such": 1})
    assert [(one["setting"], one["after"]) for one in found["changes"]] == [
        ("net.core.somaxconn", str(wanted)),
        ("/etc/sysctl.d/60-natsops-test.conf", "present"),
    ]
    (missing,) = found["findings"]
    assert missing.startswith("sysctl: net.no.such is unknown to this kernel, expected 1; the role cannot set it")
    assert int(Path("/proc/sys/net/core/somaxconn").read_text()) == wanted - 1
    assert not record.exists() and not Path("/etc/sysctl.d/60-natsops-test.conf").exists()
    record.write_text("[")
    assert f"{record}, which holds the previous values, cannot be read" in tune(undo=["sysctl"])["msg"]


def test_files_that_the_server_runs_with_are_tested_in_the_same_reading(site: Site) -> None:
    """The reading proves that nothing differs, with the digest that a comparison on the host would return."""
    done = site.write()
    config, secrets = str(site.folder / "nats-server.conf"), str(site.folder / "secrets.conf")
    managed = {"paths": [str(site.folder), config, secrets]}
    stopped = site.read(managed=managed)["managed"]
    assert stopped["trial"] is None and stopped["paths"][config]["kind"] == "file"
    server = subprocess.Popen([site.installed, "-c", config], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while not (found := site.read(managed=managed))["process"]["running"]:
            assert time.monotonic() < deadline
        own_image = site.read(managed={**managed, "take_over": False})["managed"]["trial"]
        Path(config).write_text("port: [\n")
        rejected = site.read(managed=managed)["managed"]["trial"]
        wrong = site.read(managed={**managed, "environment": "[]"})["msg"]
    finally:
        server.kill()
        server.wait()
    tested = {"binary": str(site.installed), "config": config, "digest": done["digest"]}
    assert found["managed"]["trial"] == {**tested, "environment_sha256": hashlib.sha256(b"").hexdigest()}
    assert found["managed"]["paths"][secrets]["mode"] == "0640"
    assert own_image["binary"] == f"/proc/{server.pid}/exe"
    assert rejected is None and "managed.environment is not a JSON object" in wrong
