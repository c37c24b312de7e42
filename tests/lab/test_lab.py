# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the lab itself: it produces every fault that tests rely on, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import math
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import lab as labs
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from support.controller import Controller, Run

HOSTS = ("n1-c1", "n2-c1", "n3-c1")
PLAYBOOK = """
- hosts: nats
  gather_facts: false
  become: true
  tasks:
    - name: Write a file
      ansible.builtin.copy:
        content: "{{ text }}"
        dest: /root/text
        mode: "0644"
    - name: Reach SSH from the controller
      ansible.builtin.wait_for:
        host: "{{ ansible_host }}"
        port: 22
        timeout: 2
      delegate_to: localhost
      become: false
"""


@pytest.fixture(scope="module")
def controller(shared_controller: Controller) -> Controller:
    """The controller of three running hosts. Each test removes its faults."""
    shared_controller.lab.renew_only(*HOSTS)
    return shared_controller


def remains(name: str) -> list[str]:
    """Return everything on this machine that belongs to a lab."""
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f"natsops-lab/{name}" in line]
    loops = subprocess.run(["losetup", "--list"], capture_output=True, text=True, check=True).stdout
    paths = [*Path("/run/netns").glob(f"natsops-{name}"), labs.RUN_DIR / name, labs.WORK_DIR / name]
    paths += Path("/sys/fs/cgroup").glob(f"**/natsops-lab-{name}")
    return mounts + [line for line in loops.splitlines() if f"/{name}/" in line] + [str(p) for p in paths if p.exists()]


def test_playbook_reaches_hosts_and_predicts(controller: Controller, tmp_path: Path) -> None:
    playbook = tmp_path / "play.yml"
    playbook.write_text(PLAYBOOK)
    hosts = ["n1-c1", "n2-c1"]

    def run(check: bool) -> Run:
        host_vars = {"n2-c1": {"text": "two"}}
        return controller.playbook(playbook, hosts=hosts, group_vars={"text": "all"}, host_vars=host_vars, check=check)

    foretold, done = run(check=True), run(check=False)
    assert done.status == 0, done.output
    assert done.changed == foretold.changed == [(host, "Write a file") for host in hosts]
    assert controller.ssh("n2-c1", "cat /root/text").stdout == "two"
    assert run(check=False).changed == []


def test_up_refuses_the_name_of_a_lab(controller: Controller) -> None:
    lab = controller.lab
    command = [sys.executable, labs.__file__, "up", "--name", lab.name, "--hosts", "1"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode != 0 and f"lab.py down --name {lab.name}" in refused.stderr
    assert all(lab.is_running(host) for host in HOSTS)


def test_partition_is_distinguished_from_failure(controller: Controller, tmp_path: Path) -> None:
    playbook = tmp_path / "play.yml"
    playbook.write_text(PLAYBOOK)
    controller.lab.partition("n3-c1")
    run = controller.playbook(playbook, hosts=["n3-c1"], group_vars={"text": "x"})
    assert [result.status for result in run.results] == ["unreachable"]
    assert controller.lab.exec("n3-c1", "hostname").stdout == "n3-c1\n"
    controller.lab.heal("n3-c1")
    assert controller.playbook(playbook, hosts=["n3-c1"], group_vars={"text": "x"}).status == 0


def test_full_disk(controller: Controller) -> None:
    lab = controller.lab
    try:
        lab.disk("n2-c1", "/nats", "32M")
    except labs.LabUnavailableError as error:
        pytest.skip(str(error))
    # Check the mount first: without it, the next command would fill the disk of the machine that runs the lab.
    fill = "mountpoint -q /nats && dd if=/dev/zero of=/nats/full bs=1M count=64"
    assert "No space left on device" in lab.ssh("n2-c1", fill, check=False).stderr
    lab.reboot("n2-c1")
    assert lab.ssh("n2-c1", "findmnt --noheadings --output FSTYPE /nats; ls /nats").stdout.split()[0::2] == [
        "ext4",
        "lost+found",
    ]


def test_slow_link(controller: Controller) -> None:
    def seconds() -> float:
        started = time.monotonic()
        controller.ssh("n3-c1", "true")
        subprocess.run(controller.lab.ssh_command("n3-c1", "cat >/dev/null"), input=bytes(250_000), check=True)
        return time.monotonic() - started

    fast = min(seconds() for _attempt in range(3))
    controller.lab.slow("n3-c1", "1mbit")
    # The transfer has 2 Mbit; no matter how busy this machine is, it cannot be faster.
    assert seconds() > max(1.5, fast)
    controller.lab.heal("n3-c1")


def test_client_is_inside_the_network(controller: Controller) -> None:
    async def banner() -> bytes:
        reader, writer = await asyncio.open_connection(controller.address("n3-c1"), 22)
        line = await reader.readline()
        writer.close()
        return line

    assert controller.run(banner()).startswith(b"SSH-2.0")
    with pytest.raises(OSError):
        asyncio.run(asyncio.wait_for(banner(), 2))


def test_kill_start_and_reboot_keep_the_disk(controller: Controller) -> None:
    """This test is the last one of the three hosts: it switches two of them off."""
    lab = controller.lab
    lab.ssh("n1-c1", "echo here > /root/file && sync")
    lab.kill("n1-c1")
    assert not lab.is_running("n1-c1")
    assert lab.ssh("n1-c1", "true", check=False).returncode == 255
    lab.start("n1-c1")
    assert lab.ssh("n1-c1", "cat /root/file").stdout == "here\n"
    before = lab.ssh("n1-c1", "cat /proc/sys/kernel/random/boot_id").stdout
    lab.reboot("n1-c1")
    assert lab.ssh("n1-c1", "cat /proc/sys/kernel/random/boot_id; cat /root/file").stdout.split()[1:] == ["here"]
    assert lab.ssh("n1-c1", "cat /proc/sys/kernel/random/boot_id").stdout != before
    lab.renew_only("n1-c1")
    assert [lab.is_running(host) for host in HOSTS] == [True, False, False]
    assert lab.ssh("n1-c1", "ls /root/file", check=False).returncode != 0


# test_readme.py also has a lab of both releases.
@pytest.mark.chaos
def test_mixed_releases(lab: labs.Lab) -> None:
    name = f"{lab.name}-x"
    other = labs.up(name, ["old", "new@trixie"])
    try:
        release = {host: other.ssh(host, "cat /etc/debian_version").stdout.split(".")[0] for host in other.hosts}
        assert release == {"old": "12", "new": "13"}
        other.disk("new", "/data", "8M")
    finally:
        labs.down(name)
    assert remains(name) == []
    assert lab.ssh("n1-c1", "true", check=False).returncode == 0, "another lab's end must not touch this one"


RECEIVE = """
import hashlib, socket
server = socket.create_server(("", 9000))
print("ready", flush=True)
print(hashlib.sha256(server.accept()[0].makefile("rb").read()).hexdigest())
"""
SEND = """
import hashlib, os, socket
data = os.urandom(20_000_000)
socket.create_connection(("c", 9000)).sendall(data)
print(hashlib.sha256(data).hexdigest())
"""
HANDSHAKE = """
import socket, time
began = time.monotonic()
socket.create_connection(("{}", 22), timeout=2)
print(time.monotonic() - began)
"""


def python(script: str) -> str:
    """Return the shell command that runs a Python script."""
    return shlex.join(["python3", "-c", script])


def test_delay_between_sites_is_that_of_their_link(lab: labs.Lab) -> None:
    name = f"{lab.name}-s"
    sites = labs.up(name, ["a/east", "b/central", "c/west"])

    def handshake(one: str, other: str, most: float = 0) -> float:
        """Return how many seconds the handshake of a connection takes, which is one round trip. On a busy machine some
        handshakes take longer, so retry until one takes less than `most`."""
        least = math.inf
        for _attempt in range(20 if most else 3):
            least = min(least, float(sites.ssh(one, python(HANDSHAKE.format(other))).stdout))
            if least < most:
                break
        return least

    try:
        groups = json.loads(sites.inventory.read_text())["nats"]["children"]
        assert {site: list(group["hosts"]) for site, group in groups.items()} == sites.sites
        sites.link("west", "east", 0.08)
        # No matter how busy this machine is, the handshake cannot be faster.
        assert handshake("a", "c") > 0.16
        assert handshake("a", "b", 0.16) < 0.16 > handshake("c", "b", 0.16)
        sites.link("east", "west", 0.01)
        assert 0.02 < handshake("c", "a", 0.16) < 0.16

        with subprocess.Popen(sites.ssh_command("c", python(RECEIVE)), stdout=subprocess.PIPE, text=True) as receiver:
            assert receiver.stdout and receiver.stdout.readline() == "ready\n"
            sent = sites.ssh("a", python(SEND)).stdout
            assert receiver.stdout.read() == sent

        sites.link("east", "west", None)
        with pytest.raises(labs.LabError, match="timed out"):
            handshake("a", "c")
        assert handshake("a", "b", 2) < 2 > handshake("c", "b", 2)
        sites.link("east", "west", 0)
        assert handshake("a", "c", 0.16) < 0.16
        with pytest.raises(labs.LabError, match="no site 'north'; it has east, central, west"):
            sites.link("east", "north", 0)
    finally:
        labs.down(name)
    assert remains(name) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_interrupted_up_leaves_nothing_for_long(lab: labs.Lab, number: int) -> None:
    name = f"{lab.name}-y"
    # A background job of a shell ignores the interrupt, and so do its children.
    command = ["env", "--default-signal=INT", sys.executable, labs.__file__, "up", "--name", name, "--hosts", "2"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        cgroups = Path("/sys/fs/cgroup")
        assert wait_until(lambda: list(cgroups.glob(f"**/natsops-lab-{name}/*/run")), bool, 30, 0.02).done
        process.send_signal(number)
    if number == signal.SIGKILL:
        assert remains(name), "killed too late for this test to show anything"
        labs.down(name)
    assert remains(name) == []


def test_up_that_fails_leaves_nothing(lab: labs.Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{lab.name}-z"
    monkeypatch.setattr(labs, "BOOT_TIMEOUT", 0)
    monkeypatch.setattr(labs, "_write_files", lambda _lab: None)
    with pytest.raises(labs.LabError, match="n1 did not boot"):
        labs.up(name, ["n1"])
    assert remains(name) == []


def test_down_twice_and_unknown_names(lab: labs.Lab) -> None:
    labs.down("never-was")
    with pytest.raises(labs.LabError, match="no host 'n9'; it has n1-c1"):
        lab.kill("n9")
    with pytest.raises(labs.LabError, match="there is no lab 'never-was'"):
        labs.get("never-was")
    with pytest.raises(labs.LabError, match="no site 'west'; it has none"):
        lab.link("west", "east", 0)
    with pytest.raises(labs.LabError, match="either all hosts"):
        labs.up("never-was", ["a/east", "b"])


def test_check_reports_that_a_lab_needs_root(tmp_path: Path) -> None:
    """The program becomes another user after its imports, because that user may not be allowed to read the checkout."""
    program = "import os, sys, lab; os.geteuid() or os.setgroups([]) or os.setuid(65534); sys.exit(lab.main())"
    environment = {"HOME": str(tmp_path), "PYTHONPATH": str(Path(labs.__file__).parent)}
    command = ["/usr/bin/python3", "-c", program, "check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, "needs root" in done.stderr) == (3, True), done.stderr
