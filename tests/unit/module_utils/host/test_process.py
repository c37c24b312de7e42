# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.host.process import (
    ProcessError,
    ServerProcess,
    find_server,
    read_version,
    stored_config,
    wait_exit,
)


@pytest.mark.parametrize(
    ("argv", "config"),
    [
        (["nats-server", "-c", "/a.conf"], "/a.conf"),
        (["nats-server", "--config=/a.conf", "-D"], "/a.conf"),
        (["nats-server", "-config", "/a.conf"], "/a.conf"),
        (["nats-server", "-t", "-c", "/a.conf"], None),
        (["nats-server", "-c", "/a.conf", "--signal=ldm"], None),
        (["nats-server", "-c"], None),
        (["nats-server"], None),
        ([], None),
    ],
)
def test_stored_config_from_arguments(argv: list[str], config: str | None) -> None:
    assert stored_config(argv) == config


def fake_proc(root: Path, pid: int, argv: list[str], *, binary: str = "/opt/x/nats-server", state: str = "S") -> None:
    """A process, in a directory with the structure of /proc, that was started one second after boot."""
    base = root / str(pid)
    base.mkdir()
    (base / "cmdline").write_bytes(b"".join(argument.encode() + b"\0" for argument in argv))
    (base / "stat").write_text(
        f"{pid} (nats) server) {state} " + " ".join(["0"] * 18) + f" {os.sysconf('SC_CLK_TCK')} 0"
    )
    (base / "exe").symlink_to(binary)
    (base / "cwd").symlink_to("/srv")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    root = tmp_path / "proc"
    boot_id = root / "sys/kernel/random/boot_id"
    boot_id.parent.mkdir(parents=True)
    boot_id.write_text("one-boot\n")
    return root


def test_finds_the_server_of_a_configuration_only(proc: Path) -> None:
    fake_proc(proc, 7, ["nats-server", "-c", "/etc/n1.conf"])
    fake_proc(proc, 8, ["nats-server", "-c", "n2.conf"])
    fake_proc(proc, 9, ["vi", "-c", "/etc/n3.conf"], binary="/usr/bin/vi")
    assert getattr(find_server("/etc/n1.conf", proc), "pid", None) == 7
    assert getattr(find_server("/srv/n2.conf", proc), "pid", None) == 8
    assert find_server("/etc/n3.conf", proc) is None


def test_a_clock_that_is_set_makes_no_other_instance(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_proc(proc, 7, ["nats-server", "-c", "/etc/n1.conf"])
    before = find_server("/etc/n1.conf", proc)
    monkeypatch.setattr("time.time", lambda: 0.0)
    after = find_server("/etc/n1.conf", proc)
    assert before and after
    assert before.started != after.started
    assert before.instance == after.instance == f"one-boot/7/{os.sysconf('SC_CLK_TCK')}"


def test_a_zombie_does_not_run(proc: Path) -> None:
    fake_proc(proc, 7, ["nats-server", "-c", "/etc/n1.conf"], state="Z")
    assert find_server("/etc/n1.conf", proc) is None


def test_a_replaced_binary_is_still_a_server(proc: Path) -> None:
    fake_proc(proc, 7, ["nats-server", "-c", "/etc/n1.conf"], binary="/opt/x/nats-server (deleted)")
    found = find_server("/etc/n1.conf", proc)
    assert found and found.binary == "/opt/x/nats-server (deleted)"


def test_two_servers_of_one_configuration_are_an_error(proc: Path) -> None:
    for pid in (7, 8):
        fake_proc(proc, pid, ["nats-server", "-c", "/etc/n1.conf"])
    with pytest.raises(ProcessError, match=r"pids [78], [78]"):
        find_server("/etc/n1.conf", proc)


def test_different_process_with_the_same_pid_is_not_alive() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        ticks = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19]
        itself = ServerProcess(child.pid, "", 0, f"{boot}/{child.pid}/{ticks}")
        assert not wait_exit(itself, 0.2)
        assert wait_exit(replace(itself, instance=f"{boot}/{child.pid}/{int(ticks) - 1}"), 0)
        assert wait_exit(replace(itself, instance=f"another-boot/{child.pid}/{ticks}"), 0)
    finally:
        child.kill()
    # The process has not been reaped yet; a zombie counts as ended.
    assert wait_exit(itself, 5)
    child.wait()


def test_version_of_something_else(tmp_path: Path) -> None:
    script = tmp_path / "nats-server"
    script.write_text("#!/bin/sh\necho something else\n")
    script.chmod(0o755)
    with pytest.raises(ProcessError, match="something else"):
        read_version(str(script))
    with pytest.raises(ProcessError, match="cannot be run"):
        read_version(str(tmp_path / "missing"))
