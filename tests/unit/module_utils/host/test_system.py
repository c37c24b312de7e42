# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.host import tunings
from ansible_collections.natsops.jetstream.plugins.module_utils.host.system import (
    account,
    disks_under,
    filesystems,
    find_mount,
    is_ssd,
    memory_mb,
    mounts,
    rotating_disks,
    selinux_mode,
)

MOUNTINFO = r"""
22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw,errors=remount-ro
30 22 0:26 / /run rw,nosuid,nodev shared:12 - tmpfs tmpfs rw,size=800000k,mode=755
40 22 253:0 / /srv/nats\040data rw,noatime - xfs /dev/mapper/vg-data rw,attr2
41 40 0:50 / /srv/nats\040data/tmp rw - tmpfs tmpfs rw
42 41 0:51 / /srv/nats\040data/tmp rw - overlay overlay rw
""".strip()


def test_mode_of_selinux(tmp_path: Path) -> None:
    enforce = tmp_path / "fs/selinux/enforce"
    enforce.parent.mkdir(parents=True)
    assert selinux_mode(tmp_path) == ""
    for text, mode in (("1", "enforcing"), ("0", "permissive")):
        enforce.write_text(text)
        assert selinux_mode(tmp_path) == mode


def test_mounts() -> None:
    """In the list of mounts, spaces are escaped, some fields are optional, and mounts may be stacked."""
    every = mounts(MOUNTINFO)
    assert [(one.target, one.fstype) for one in every[:3]] == [
        ("/", "ext4"),
        ("/run", "tmpfs"),
        ("/srv/nats data", "xfs"),
    ]
    assert every[2].options == ("rw", "noatime", "attr2")

    def held_by(path: str) -> str:
        found = find_mount(path, every)
        assert found
        return f"{found.target} {found.fstype}"

    assert held_by("/var/lib/nats") == "/ ext4"
    assert held_by("/runner") == "/ ext4"
    assert held_by("/run/nats") == "/run tmpfs"
    assert held_by("/srv/nats data") == "/srv/nats data xfs"
    assert held_by("/srv/nats data/tmp/x") == "/srv/nats data/tmp overlay"
    assert find_mount("/a", []) is None


def test_this_host() -> None:
    found = filesystems(["/proc/no/such", "/"])
    assert [one["mount"] for one in found] == ["/", "/proc"]
    assert found[0]["size_total"] > found[0]["size_available"] > 0
    assert found[1]["size_available"] is None
    assert memory_mb() > 64
    assert account("root", "root")["user"]["home"] == "/root"
    assert account("no-such-user", "no-group") == {"user": {}, "group_exists": False}


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """An SSD that has a partition used by LVM, and a rotating disk."""
    devices = tmp_path / "devices"
    for disk, rotational, scheduler in (("sda", "1", "mq-deadline [bfq] none"), ("nvme0n1", "0", "[bfq] none")):
        (devices / disk / "queue").mkdir(parents=True)
        (devices / disk / "queue" / "rotational").write_text(f"{rotational}\n")
        (devices / disk / "queue" / "scheduler").write_text(f"{scheduler}\n")
    for partition in ("sda/sda2", "nvme0n1/nvme0n1p1"):
        (devices / partition).mkdir()
        (devices / partition / "partition").touch()
    (devices / "dm-0" / "slaves").mkdir(parents=True)
    (devices / "dm-0" / "slaves" / "nvme0n1p1").symlink_to(devices / "nvme0n1" / "nvme0n1p1")
    for folder, names in (("block", ("sda", "nvme0n1", "dm-0")), ("dev/block", ())):
        (tmp_path / folder).mkdir(parents=True)
        for name in names:
            (tmp_path / folder / name).symlink_to(devices / name)
    (tmp_path / "dev/block/8:2").symlink_to(devices / "sda/sda2")
    (tmp_path / "dev/block/253:0").symlink_to(devices / "dm-0")
    return tmp_path


def test_disks(sysfs: Path) -> None:
    root, _run, data, memory, _overlay = mounts(MOUNTINFO)
    # The devices of this machine have different names.
    root, data = replace(root, source="none"), replace(data, source="none")
    assert disks_under(root, sysfs) == ["sda"]
    assert disks_under(data, sysfs) == ["nvme0n1"]
    assert disks_under(memory, sysfs) == []
    assert (is_ssd("sda", sysfs), is_ssd("nvme0n1", sysfs)) == (False, True)
    assert (rotating_disks(root, sysfs), rotating_disks(data, sysfs)) == (["sda"], [])
    (sysfs / "devices/sda").rename(sysfs / "devices/vda")
    (sysfs / "dev/block/8:2").unlink()
    (sysfs / "dev/block/8:2").symlink_to(sysfs / "devices/vda/sda2")
    assert (disks_under(root, sysfs), rotating_disks(root, sysfs)) == (["vda"], [])
    assert tunings.scheduler(root, sysfs) == {"findings": [], "settable": True, "disks": [], "wrong": []}
    found = tunings.scheduler(data, sysfs)
    assert found["findings"] == ["scheduler: nvme0n1: neither none nor mq-deadline, which are suitable for SSDs"]
    assert (found["disks"], found["wrong"], found["settable"]) == (["nvme0n1"], ["nvme0n1"], True)
    (sysfs / "devices/nvme0n1/queue/scheduler").write_text("bfq [none]\n")
    assert tunings.scheduler(data, sysfs)["findings"] == []


def test_mount_options() -> None:
    root, run, data = mounts(MOUNTINFO)[:3]
    assert tunings.mount_options(root)["findings"] == [
        "mount options: / is mounted without noatime; it is shared with the system and not changed"
    ]
    assert not tunings.mount_options(root)["settable"]
    assert tunings.mount_options(data)["findings"] == tunings.mount_options(run)["findings"] == []
    without = tunings.mount_options(replace(data, options=("rw", "relatime")))
    assert (without["settable"], without["mount"]) == (True, "/srv/nats data")
    assert tunings.mount_options(None)["findings"] == []


def test_kernel_parameters(tmp_path: Path) -> None:
    (tmp_path / "sys/vm").mkdir(parents=True)
    (tmp_path / "sys/vm/swappiness").write_text("60\n")
    (tmp_path / "sys/vm/range").write_text("1\t2\n")
    wanted = {"vm.swappiness": 1, "vm.range": "1 2", "net.core.somaxconn": 4096}
    assert tunings.sysctl(wanted, tmp_path)["findings"] == [
        "sysctl: vm.swappiness is 60, expected 1",
        "sysctl: net.core.somaxconn is unknown to this kernel, expected 4096",
    ]


@pytest.mark.parametrize(
    ("text", "wrong", "known"), [("[always] madvise never", 1, 1), ("always [madvise] never", 0, 1), (None, 0, 0)]
)
def test_huge_pages(tmp_path: Path, text: str | None, wrong: int, known: int) -> None:
    if text:
        (tmp_path / "kernel/mm/transparent_hugepage").mkdir(parents=True)
        (tmp_path / "kernel/mm/transparent_hugepage/enabled").write_text(f"{text}\n")
    found = tunings.transparent_hugepages(tmp_path)
    assert (len(found["findings"]), found["settable"], found["wrong"]) == (wrong, bool(known), bool(wrong))


@pytest.mark.parametrize(
    ("synchronised", "units", "finding", "settable"),
    [
        ("yes", "", "", False),
        ("no", "inactive\nactive\ninactive\ninactive\ninactive", "chronyd is running, but has no source yet", False),
        ("no", "inactive\n" * 5, "set up chrony or systemd-timesyncd", True),
        (None, None, "set up chrony or systemd-timesyncd", True),
    ],
)
def test_the_clock(synchronised: str | None, units: str | None, finding: str, settable: bool) -> None:
    def run_command(command: list[str], **_options: Any) -> tuple[int, str, str]:
        said = synchronised if command[0] == "timedatectl" else units
        if said is None:
            raise FileNotFoundError
        return 0, said, ""

    found = tunings.time_sync(run_command)
    assert ("".join(found["findings"]).partition("; ")[2], found["settable"]) == (finding, settable)
