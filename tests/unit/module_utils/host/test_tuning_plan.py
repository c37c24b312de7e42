# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.host.tuning_plan import (
    TunedHost,
    TuningStep,
    apply_steps,
    findings_left,
    new_record,
    undo_steps,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.host.tunings import PARTS

MOUNTS = """
22 1 8:2 / / rw,relatime - ext4 none rw
40 22 253:0 / /srv/nats\\040data rw,relatime - xfs none rw
"""
FSTAB = """# <file system> <mount point>
/dev/sda2 / ext4 defaults 0 1
/dev/vg/data /srv/nats\\040data xfs defaults,nofail 0 2
"""
STORE = "/srv/nats data"
SOMAXCONN, SCHEDULER = "/proc/sys/net/core/somaxconn", "/sys/block/nvme0n1/queue/scheduler"
HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage/enabled"


def write(root: Path, path: str, text: str) -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def no_time_service(command: list[str], **_options: Any) -> tuple[int, str, str]:
    return 0, "no" if command[0] == "timedatectl" else "inactive\n" * 5, ""


@pytest.fixture
def host(tmp_path: Path) -> TunedHost:
    """A host without any tuning."""
    write(tmp_path, "/proc/self/mountinfo", MOUNTS.strip())
    write(tmp_path, "/etc/fstab", FSTAB)
    write(tmp_path, SOMAXCONN, "128\n")
    write(tmp_path, SCHEDULER, "none [bfq]\n")
    write(tmp_path, "/sys/block/nvme0n1/queue/rotational", "0\n")
    write(tmp_path, HUGE_PAGES, "[always] madvise never\n")
    (tmp_path / "sys/dev/block").mkdir(parents=True)
    (tmp_path / "sys/dev/block/253:0").symlink_to(tmp_path / "sys/block/nvme0n1")
    return TunedHost(tmp_path, STORE, {"net.core.somaxconn": "4096"}, "nats-server", True, no_time_service)


def carry_out(host: TunedHost, steps: list[TuningStep], undone: list[str] | None = None) -> TunedHost:
    """Change the files as the module and the kernel would, and return the host with its new record."""
    for step in steps:
        path = step.switch or step.file
        if step.file and step.after is None:
            (host.root / path.lstrip("/")).unlink()
        elif path:
            write(host.root, path, f"[{step.after}] more" if path.startswith("/sys") else step.after or "")
        elif step.command[0] == "mount":
            option = step.command[2].partition(",")[2]
            now = (host.text("/proc/self/mountinfo") or "").splitlines()
            write(host.root, "/proc/self/mountinfo", f"{now[0]}\n{now[1].replace(step.before or '', option)}")
    return replace(host, record=new_record(host, steps, undone or []))


def test_each_setting_is_changed_once_and_restored(host: TunedHost) -> None:
    steps = apply_steps(host, list(PARTS))
    assert [(step.setting, step.before, step.after) for step in steps if not step.file] == [
        (STORE, "relatime", "noatime"),
        ("nvme0n1", "bfq", "none"),
        ("net.core.somaxconn", "128", "4096"),
        ("enabled", "always", "madvise"),
        ("systemd-timesyncd", "off", "on"),
    ]
    tuned = replace(carry_out(host, steps), run_command=lambda command, **_options: (0, "yes", ""))
    assert (tuned.text("/etc/fstab") or "").splitlines()[2].split()[3] == "defaults,nofail,noatime"
    assert apply_steps(tuned, list(PARTS)) == []
    assert set(tuned.record) == set(PARTS)

    undo = undo_steps(tuned, list(PARTS))
    assert undo[-1].command == ("systemctl", "disable", "--now", "systemd-timesyncd")
    untuned = carry_out(tuned, undo, list(PARTS))
    assert (untuned.text("/etc/fstab"), untuned.text("/proc/self/mountinfo")) == (FSTAB, MOUNTS.strip())
    assert (untuned.text(SOMAXCONN), untuned.text(SCHEDULER), untuned.text(HUGE_PAGES)) == (
        "128",
        "[bfq] more",
        "[always] more",
    )
    assert [path for path in (untuned.root / "etc").rglob("*") if path.is_file()] == [untuned.root / "etc/fstab"]
    assert (untuned.record, undo_steps(untuned, list(PARTS))) == ({}, [])


def test_a_later_run_keeps_the_first_value(host: TunedHost) -> None:
    """A complete run follows a run that was killed after it wrote the record. Later runs change the parameter and then
    drop it."""
    steps = apply_steps(host, ["sysctl"])
    killed = replace(host, record=new_record(host, steps, []))
    write(host.root, SOMAXCONN, "4096\n")
    tuned = carry_out(killed, apply_steps(killed, ["sysctl"]))
    higher = carry_out(tuned, apply_steps(replace(tuned, sysctls={"net.core.somaxconn": "8192"}), ["sysctl"]))
    assert higher.record["sysctl"]["net.core.somaxconn"] == {"before": "128", "after": "8192"}
    without = replace(higher, sysctls={})
    without = carry_out(without, apply_steps(without, ["sysctl"]))
    assert (without.text(SOMAXCONN), "net.core.somaxconn" in without.record["sysctl"]) == ("128", False)


def by_hand(host: TunedHost) -> None:
    write(host.root, SOMAXCONN, "1024\n")


def by_its_former_value(host: TunedHost) -> None:
    write(host.root, SOMAXCONN, "128\n")


@pytest.mark.parametrize("change", [by_hand, by_its_former_value])
def test_a_later_change_by_another_user_is_left_alone(host: TunedHost, change: Callable[[TunedHost], None]) -> None:
    tuned = carry_out(host, apply_steps(host, ["sysctl"]))
    change(tuned)
    assert [step.file for step in undo_steps(tuned, ["sysctl"])] == ["/etc/sysctl.d/60-nats-server.conf"]


def test_an_existing_file_is_restored(host: TunedHost) -> None:
    write(host.root, "/etc/sysctl.d/60-nats-server.conf", "vm.swappiness = 10\n")
    tuned = carry_out(host, apply_steps(host, ["sysctl"]))
    carry_out(tuned, undo_steps(tuned, ["sysctl"]), ["sysctl"])
    assert host.text("/etc/sysctl.d/60-nats-server.conf") == "vm.swappiness = 10\n"


def test_problems_without_a_step_are_reported(host: TunedHost) -> None:
    """A store on the root file system, and a host without systemd, are problems for which the plan has no step."""
    shared = replace(host, store="/var/lib/nats", systemd=False)
    assert apply_steps(shared, ["mount_options", "time_sync"]) == []
    mount, clock = findings_left(shared, ["mount_options", "time_sync"])
    assert "/ is mounted without noatime; it is shared with the system and not changed" in mount
    assert "set up chrony or systemd-timesyncd" in clock
    assert findings_left(host, list(PARTS)) == []
