# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real systemd hosts on one machine, reachable over SSH, in their own network: ``lab.py up --hosts 3 --name demo``.

A lab is one network namespace with a bridge (10.77.0.1) and any number of systemd-nspawn hosts (from 10.77.0.11 up),
each on an overlay of a cached root file system. Nothing leaves the namespace: hosts are air-gapped. The lab's inventory
makes Ansible enter the namespace, for SSH and for modules on localhost; ``lab.py run --name NAME CMD`` runs any command
inside.

Hosts can be in sites: ``lab.py up --hosts a/east,b/east,c/west``. Each site has its own bridge and network
(10.77.1.0/24, 10.77.2.0/24, …), and the link between two sites can have a delay or be cut: ``lab.py link east west
0.04``. Processes that this machine runs inside the lab have no delay to any site. See wan.py.

Everything that belongs to a lab is identified by the lab's name: the network namespace, the control group of its
processes, and one work folder with its mounts and disks. So ``down`` does not need a record of ``up``, and also cleans
up after a crash.

Files of a lab, in /run/natsops-lab/NAME: inventory.yml, ssh_config, known_hosts, id_ed25519, state.json, log/HOST.log;
with sites also wan.sock and log/wan.log.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import rootfs
from debian_mirror import MirrorError

RUN_DIR = Path("/run/natsops-lab")
WORK_DIR = Path("/var/tmp/natsops-lab")
"""Where overlays and disks lie: not in /run, which is often a small memory file system."""
BOOT_TIMEOUT = 120
"""Seconds for all hosts of a lab to answer SSH with every service started."""

_TOOLS = {
    "debootstrap": "debootstrap",
    "systemd-nspawn": "systemd-container",
    "ssh": "openssh-client",
    "ip": "iproute2",
    "mkfs.ext4": "e2fsprogs",
    "losetup": "mount",
    "nsenter": "util-linux",
}
_CLONE_NEWNET = 0x40000000
_WAN_DEVICE = "wan"
_WAN_TABLE = "77"


class LabError(Exception):
    """An operation on a lab failed; the message contains the cause and the place."""


class LabUnavailableError(LabError):
    """No lab can be built on this machine; the message contains the reason."""


@dataclass(frozen=True)
class Host:
    """One host of a lab."""

    name: str
    address: str
    release: str
    machine: str
    """Its name in nspawn: short, unique on this machine, and the last part of its interface's name."""
    site: str = ""
    """Its site; a lab without sites is one network."""

    @property
    def interface(self) -> str:
        """Return the bridge's side of the host's virtual network cable, inside the lab's namespace."""
        return f"vb-{self.machine}"

    @property
    def network(self) -> Network:
        """Return the network that the host is connected to."""
        return Network(int(self.address.split(".")[2]), 24) if self.site else Network(0, 16)


@dataclass(frozen=True)
class Network:
    """A bridge of a lab with its addresses."""

    number: int
    prefix: int

    @property
    def bridge(self) -> str:
        return f"br{self.number}"

    @property
    def gateway(self) -> str:
        """Return the bridge's own address, which is also that of the controller."""
        return f"10.77.{self.number}.1"


class Lab:
    """A running lab. Use `up` or `get` to obtain a lab."""

    def __init__(self, name: str, hosts: Sequence[Host]) -> None:
        self.name = name
        self.hosts = {host.name: host for host in hosts}
        self.paths = _Paths(name)

    # --- from the outside -------------------------------------------------------------------------------------------

    @property
    def inventory(self) -> Path:
        """The path of the Ansible inventory: all hosts are in the group ``nats``, those of a site also in its group."""
        return self.paths.run / "inventory.yml"

    def inside(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs ``command`` on this machine, inside the lab's network."""
        return ["nsenter", f"--net={self.paths.netns}", "--", *command]

    def run(self, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command of this machine inside the lab's network; ``options`` are those of subprocess.run."""
        return subprocess.run(self.inside(command), text=True, check=False, **options)

    def ssh_command(self, host: str, *command: str) -> list[str]:
        """Return the command that runs ``command`` on the host over SSH."""
        return ["ssh", "-F", str(self.paths.run / "ssh_config"), self._host(host).name, *command]

    def ssh(self, host: str, command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a shell command on the host over SSH; raise LabError if it fails and ``check`` is true."""
        return _finished(self.ssh_command(host, command), f"{host}: {command}", check)

    def exec(self, host: str, command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a shell command on the host without SSH, which works despite a partition or a stopped sshd."""
        return _finished(self.exec_command(host, "sh", "-c", command), f"{host}: {command}", check)

    def exec_command(self, host: str, *command: str) -> list[str]:
        """Return the command that runs ``command`` in the host's own namespaces."""
        return ["nsenter", f"--target={self._init_pid(host)}", "--all", "--", *command]

    def is_running(self, host: str) -> bool:
        """Return whether the machine is switched on."""
        return bool(_group_pids(self.paths.group(self._host(host).machine)))

    @property
    def sites(self) -> dict[str, list[str]]:
        """Return the hosts of each site."""
        return _sites(self.hosts.values())

    # --- faults -----------------------------------------------------------------------------------------------------

    def link(self, one: str, other: str, delay: float | None) -> None:
        """Set the delay of the link between two sites to ``delay`` seconds each way; None cuts the link."""
        for site in (one, other):
            if site not in self.sites:
                raise LabError(f"lab {self.name} has no site {site!r}; it has {', '.join(self.sites) or 'none'}")
        numbers = [self.hosts[self.sites[site][0]].network.number for site in (one, other)]
        with socket.socket(socket.AF_UNIX) as wan:
            try:
                wan.connect(str(self.paths.run / "wan.sock"))
                wan.sendall(json.dumps({"sites": numbers, "delay": delay}).encode() + b"\n")
                answer = wan.recv(16)
            except OSError:
                answer = b""
        if answer != b"ok\n":
            raise LabError(f"no answer from the router between the sites; see {self.paths.run / 'log/wan.log'}")

    def kill(self, host: str) -> None:
        """Cut the power: every process of the machine ends at once. Its disks remain. See `start`."""
        self._forget_connection(host)
        _kill_group(self.paths.group(self._host(host).machine))

    def start(self, host: str, wait: bool = True) -> None:
        """Switch a killed machine on again, with the disks that it had."""
        if self.is_running(host):
            raise LabError(f"{host} is running already")
        _boot(self.paths, self._host(host))
        if wait:
            self.wait_for_boot([host])

    def reboot(self, host: str, wait: bool = True) -> None:
        """Reboot the machine gracefully; return once it responds again, or at once without ``wait``."""
        before = self.exec(host, "cat /proc/sys/kernel/random/boot_id").stdout
        self._forget_connection(host)
        self.exec(host, "systemctl --no-block reboot")
        if wait:
            deadline = time.monotonic() + BOOT_TIMEOUT
            while self.ssh(host, "cat /proc/sys/kernel/random/boot_id", check=False).stdout in ("", before):
                if time.monotonic() > deadline:
                    raise LabError(f"{host} did not come back within {BOOT_TIMEOUT} s of its reboot")
                time.sleep(0.5)
            self.wait_for_boot([host])

    def partition(self, *hosts: str) -> None:
        """Unplug the network cables of these hosts."""
        for host in hosts:
            self._forget_connection(host)
            _call(self.inside(["ip", "link", "set", self._host(host).interface, "down"]))

    def heal(self, *hosts: str) -> None:
        """Plug the hosts' network cables in again, and remove the effects of `netem` or `slow`."""
        for host in hosts:
            interface = self._host(host).interface
            _call(self.inside(["ip", "link", "set", interface, "up"]))
            subprocess.run(
                self.inside(["tc", "qdisc", "del", "dev", interface, "root"]), capture_output=True, check=False
            )

    def netem(self, host: str, *rule: str) -> None:
        """Impair the traffic to a host with a rule of tc-netem(8), such as ``delay 50ms loss 1%``.

        Raise LabUnavailableError if this machine's kernel has no netem. See `slow`, which most kernels support.
        """
        try:
            self._qdisc(host, "netem", *rule)
        except LabError as error:
            if "qdisc kind is unknown" in str(error):
                raise LabUnavailableError("this machine's kernel has no netem (CONFIG_NET_SCH_NETEM)") from error
            raise

    def slow(self, host: str, rate: str) -> None:
        """Limit the traffic to a host to ``rate``, in the notation of tc(8), such as ``1mbit``."""
        self._qdisc(host, "tbf", "rate", rate, "burst", "32kb", "latency", "400ms")

    def disk(self, host: str, path: str, size: str) -> None:
        """Mount a separate small disk (ext4) at ``path`` on a host. The disk survives `kill` and `reboot`.

        Raise LabUnavailableError if this machine has no loop devices.
        """
        image = self.paths.work / self._host(host).machine / f"disk-{path.strip('/').replace('/', '-')}.img"
        if image.exists():
            raise LabError(f"{host} has a disk at {path} already")
        _call(["truncate", f"--size={size}", str(image)])
        _call(["mkfs.ext4", "-q", "-m0", str(image)])
        try:
            _call(["losetup", "--find", str(image)])
        except LabError as error:
            raise LabUnavailableError(f"no disk of its own for {host}: {error}") from error
        device = _call(["losetup", "--associated", str(image), "--noheadings", "--output", "NAME"]).strip()
        # This mount is for the next boot, which takes over the mounts below the root; a running host does not see it.
        _call(["mount", "--mkdir", device, f"{self.paths.merged(self._host(host))}/{path.strip('/')}"])
        if self.is_running(host):
            number = os.stat(device).st_rdev
            # Only /dev among the host's file systems allows device nodes.
            node = f"/dev/lab-disk-{os.minor(number)}"
            make = f"mknod {node} b {os.major(number)} {os.minor(number)}"
            inner = f"{make} && mount --mkdir {node} {shlex.quote(path)}"
            _call(["nsenter", f"--target={self._init_pid(host)}", "--mount", "--", "sh", "-c", inner])

    def renew(self, *hosts: str) -> None:
        """Reset these hosts, by default all of them, to their state after `up`: new empty disks, running, no faults.

        Without names, the links between sites are reset as well.
        """
        if not hosts:
            for pair in combinations(self.sites, 2):
                self.link(*pair, 0)
        renewed = [self._host(host) for host in hosts or self.hosts]
        for host in renewed:
            self.kill(host.name)
            _discard(self.paths.work / host.machine)
            _prepare_root(self.paths, host, list(self.hosts.values()))
            _boot(self.paths, host)
        self.wait_for_boot([host.name for host in renewed])

    def renew_only(self, *hosts: str) -> None:
        """Reset these hosts as `renew` does, and cut the power of all others."""
        for host in self.hosts.keys() - set(hosts):
            self.kill(host)
        self.renew(*hosts)

    # --- inside -----------------------------------------------------------------------------------------------------

    def wait_for_boot(self, hosts: Sequence[str]) -> None:
        """Return once these hosts respond over SSH and have started their services; raise LabError after
        BOOT_TIMEOUT."""
        deadline = time.monotonic() + BOOT_TIMEOUT

        def wait(host: str) -> None:
            while True:
                done = self.ssh(host, "systemctl is-system-running --wait", check=False)
                if done.stdout.strip() in ("running", "degraded"):
                    return
                if time.monotonic() > deadline or not self.is_running(host):
                    log = self.paths.log(self._host(host))
                    tail = "\n  ".join(log.read_text(errors="replace").splitlines()[-10:])
                    raise LabError(f"{host} did not boot: {done.stderr.strip()}; its console ({log}) ends:\n  {tail}")
                time.sleep(0.3)

        with ThreadPoolExecutor(max_workers=8) as pool:
            list(pool.map(wait, hosts))

    def _host(self, name: str) -> Host:
        if name not in self.hosts:
            raise LabError(f"lab {self.name} has no host {name!r}; it has {', '.join(self.hosts)}")
        return self.hosts[name]

    def _qdisc(self, host: str, *rule: str) -> None:
        _call(self.inside(["tc", "qdisc", "replace", "dev", self._host(host).interface, "root", *rule]))

    def _init_pid(self, host: str) -> int:
        for pid in _group_pids(self.paths.group(self._host(host).machine)):
            if _pid_inside(pid) == 1:
                return pid
        raise LabError(f"{host} is not running")

    def _forget_connection(self, host: str) -> None:
        """End SSH's shared connection, which would otherwise hang for a while if the machine is unreachable."""
        control = self.ssh_command(host)
        subprocess.run([*control[:-1], "-O", "exit", control[-1]], capture_output=True, check=False)


class _Paths:
    """The paths of a lab's parts, all derived from its name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.netns_name = f"natsops-{name}"
        self.netns = Path("/run/netns") / self.netns_name
        self.run = RUN_DIR / name
        self.work = WORK_DIR / name

    def merged(self, host: Host) -> Path:
        return self.work / host.machine / "root"

    def log(self, host: Host) -> Path:
        return self.run / "log" / f"{host.name}.log"

    def group(self, part: str = "") -> list[Path]:
        """Return the control groups of the lab, or of a machine or another part of the lab: in systemd's v1 hierarchy,
        in v2, or in both."""
        return [root / f"natsops-lab-{self.name}" / part for root in _hierarchies()]


# --- all labs -------------------------------------------------------------------------------------------------------


def check() -> None:
    """Raise LabUnavailableError if no lab can be built on this machine. Install missing tools if apt can."""
    if os.geteuid() != 0:
        raise LabUnavailableError("a lab needs root (network namespaces, mounts, systemd-nspawn)")
    missing = [package for tool, package in _TOOLS.items() if not shutil.which(tool)]
    if missing:
        _install(missing)
    if not _hierarchies():
        raise LabUnavailableError(
            "no control group hierarchy is mounted that systemd could use (cgroup v2, or name=systemd)"
        )
    probe = f"natsops-probe-{os.getpid()}"
    try:
        _call(["ip", "netns", "add", probe])
        _call(["ip", "-n", probe, "link", "add", "br0", "type", "bridge"])
        for root in _hierarchies():
            (root / probe).mkdir()
            (root / probe).rmdir()
    except (LabError, OSError) as error:
        raise LabUnavailableError(f"network namespaces or control groups are not allowed here: {error}") from error
    finally:
        subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)


def up(name: str, hosts: Sequence[str], release: str = "bookworm", boot: bool = True) -> Lab:
    """Build a lab, boot it unless `boot` is false, and return it; the remains of an earlier lab of that name are removed
    first.

    A host is ``NAME`` or ``NAME@RELEASE``, optionally followed by ``/SITE``; links between sites have no delay yet, see
    `Lab.link`. Raise LabUnavailableError if this machine cannot build labs, LabError if the build fails. A failed or
    interrupted build leaves nothing behind.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,30}", name):
        raise LabError(f"a lab's name has up to 31 small letters, digits and dashes, not {name!r}")
    planned = _plan(name, hosts, release)
    check()
    with _lock(name):
        _down(name)
        lab = Lab(name, planned)
        try:
            _build(lab, boot)
        except BaseException:
            # The error contains the end of the console's log; the log itself is removed with the lab.
            _down(name)
            raise
    return lab


def get(name: str | None = None) -> Lab:
    """Return a running lab, by default the only one; raise LabError if there is none or more than one."""
    names = [name] if name else labs()
    if len(names) != 1:
        raise LabError("no lab is running" if not names else f"name one of the labs: {', '.join(names)}")
    try:
        state = json.loads((RUN_DIR / names[0] / "state.json").read_text())
    except FileNotFoundError as error:
        raise LabError(f"there is no lab {names[0]!r}; running: {', '.join(labs()) or 'none'}") from error
    return Lab(names[0], [Host(**host) for host in state["hosts"]])


def labs() -> list[str]:
    """Return the names of all labs, including incomplete ones."""
    return sorted({path.name for folder in (RUN_DIR, WORK_DIR) for path in folder.glob("*") if path.is_dir()})


def down(name: str) -> None:
    """Remove a lab completely, in any state; do nothing if it does not exist."""
    with _lock(name):
        _down(name)


def clear_dead(kind: str) -> None:
    """Remove the labs named KIND-PID or KIND-PID-… whose process has been killed."""
    for name in labs():
        found = re.fullmatch(rf"{kind}-(\d+)(-.*)?", name)
        if found and not Path("/proc", found.group(1)).exists():
            down(name)


@contextmanager
def _lock(name: str) -> Iterator[None]:
    RUN_DIR.mkdir(exist_ok=True)
    # A process that a killed process was just starting keeps its lock until it runs.
    end = time.monotonic() + 2
    with (RUN_DIR / f"{name}.lock").open("w") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if time.monotonic() > end:
                    raise LabError(f"lab {name} is being built or taken down by another process") from error
                time.sleep(0.05)
        yield


def _plan(name: str, hosts: Sequence[str], release: str) -> list[Host]:
    """Check the request, and return the hosts with their addresses and machine names."""
    token = hashlib.sha256(name.encode()).hexdigest()[:5]
    planned: list[Host] = []
    for index, wanted in enumerate(hosts):
        named, _sep, site = wanted.partition("/")
        host, _sep, host_release = named.partition("@")
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,62}", host) or host in (known.name for known in planned):
            raise LabError(f"host {host!r}: names have small letters, digits and dashes, and are distinct")
        if (host_release or release) not in rootfs.RELEASES:
            raise LabError(f"host {host}: release {host_release or release!r} is none of {', '.join(rootfs.RELEASES)}")
        if site:
            if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", site):
                raise LabError(
                    f"host {host}: a site's name has small letters, digits, dashes and underscores, not {site!r}"
                )
            sites = [*_sites(planned)]
            address = f"10.77.{1 + ([*sites, site]).index(site)}.{11 + index}"
        else:
            address = f"10.77.{index // 200}.{11 + index % 200}"
        planned.append(Host(host, address, host_release or release, f"{token}-{index + 1}", site))
    if not planned:
        raise LabError("a lab needs at least one host")
    if len({bool(host.site) for host in planned}) > 1:
        raise LabError("either all hosts of a lab have a site, or none")
    return planned


def _sites(hosts: Iterable[Host]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for host in hosts:
        if host.site:
            found.setdefault(host.site, []).append(host.name)
    return found


def _build(lab: Lab, boot: bool) -> None:
    paths, hosts = lab.paths, list(lab.hosts.values())
    for folder in (paths.run / "log", paths.run / "cm", paths.run / "host_keys", paths.work):
        folder.mkdir(parents=True)
    _make_overlays_possible(paths.work)
    _call(["ip", "netns", "add", paths.netns_name])
    ip = ["ip", "-n", paths.netns_name]
    _call([*ip, "link", "set", "lo", "up"])
    for network in dict.fromkeys(host.network for host in hosts):
        _call([*ip, "link", "add", network.bridge, "type", "bridge"])
        _call([*ip, "link", "set", network.bridge, "up"])
        _call([*ip, "address", "add", f"{network.gateway}/{network.prefix}", "dev", network.bridge])
    if lab.sites:
        _connect_sites(lab)
    _call(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"lab {lab.name}", "-f", str(paths.run / "id_ed25519")])
    for host in hosts:
        _make_host_key(paths, host)
        _prepare_root(paths, host, hosts)
    _write_files(lab)
    if boot:
        for host in hosts:
            _boot(paths, host)
        lab.wait_for_boot(list(lab.hosts))


def _connect_sites(lab: Lab) -> None:
    """Start the router between the sites, and route all traffic between them through it; see wan.py."""
    paths = lab.paths
    wan = [sys.executable, str(Path(__file__).with_name("wan.py")), _WAN_DEVICE, str(paths.run / "wan.sock")]
    _start(f"{_enter_group(paths, 'wan')}; exec {shlex.join(lab.inside(wan))}", paths.run / "log/wan.log")
    deadline = time.monotonic() + 10
    while not (paths.run / "wan.sock").exists():
        if time.monotonic() > deadline:
            raise LabError(f"no router between the sites: {(paths.run / 'log/wan.log').read_text().strip()}")
        time.sleep(0.02)
    settings = "echo 1 > ip_forward; echo 0 > conf/all/rp_filter; echo 0 > conf/wan/rp_filter"
    _call(lab.inside(["sh", "-ec", f"cd /proc/sys/net/ipv4; {settings}"]))
    ip = ["ip", "-n", paths.netns_name]
    _call([*ip, "link", "set", _WAN_DEVICE, "up"])
    # Without the router, no traffic passes between the sites.
    _call([*ip, "route", "add", "unreachable", "default", "metric", "2", "table", _WAN_TABLE])
    _call([*ip, "route", "add", "default", "dev", _WAN_DEVICE, "table", _WAN_TABLE])
    for host in {host.site: host for host in lab.hosts.values()}.values():
        _call([*ip, "rule", "add", "iif", host.network.bridge, "lookup", _WAN_TABLE])


def _make_overlays_possible(work: Path) -> None:
    """Mount a memory file system at ``work`` if the file system there cannot contain an overlay's upper layer, as in
    most containers."""
    with tempfile.TemporaryDirectory(dir=work) as probe:
        for folder in ("lower", "upper", "work", "root"):
            (Path(probe) / folder).mkdir()
        try:
            _mount_overlay(Path(probe) / "lower", Path(probe))
            _call(["umount", f"{probe}/root"])
        except LabError:
            _call(["mount", "-t", "tmpfs", "natsops-lab", str(work)])


def _mount_overlay(lower: Path, work: Path) -> None:
    layers = f"lowerdir={lower},upperdir={work}/upper,workdir={work}/work"
    _call(["mount", "-t", "overlay", "natsops-lab", "-o", layers, f"{work}/root"])


def _make_host_key(paths: _Paths, host: Host) -> None:
    """Create the key with which a host identifies itself to SSH; the key outlives the host's disks."""
    key = paths.run / "host_keys" / host.name
    _call(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", host.name, "-f", str(key)])
    with (paths.run / "known_hosts").open("a") as known:
        known.write(f"{host.address} {Path(f'{key}.pub').read_text()}")


def _prepare_root(paths: _Paths, host: Host, hosts: Sequence[Host]) -> None:
    """Give a host its root file system, name, address and keys."""
    work = paths.work / host.machine
    for folder in ("upper", "work", "root"):
        (work / folder).mkdir(parents=True)
    _mount_overlay(rootfs.base(host.release), work)
    root = paths.merged(host)
    (root / "etc/machine-id").write_text(f"{uuid.uuid4().hex}\n")
    (root / "etc/hostname").write_text(f"{host.name}\n")
    # As after Debian's installer, a minimal host's file contains only the host's own name.
    names = {"127.0.1.1": host.name} if "minimal" in host.release else {each.address: each.name for each in hosts}
    known = "".join(f"{address} {name}\n" for address, name in {"127.0.0.1": "localhost", **names}.items())
    (root / "etc/hosts").write_text(known)
    # The file sorts before the distribution's own 80-container-host0.network, which would request an address by DHCP.
    network = (
        f"[Match]\nName=host0\n\n[Network]\nAddress={host.address}/{host.network.prefix}\nLinkLocalAddressing=no\n"
    )
    if host.site:
        network += f"\n[Route]\nDestination=10.77.0.0/16\nGateway={host.network.gateway}\n"
    (root / "etc/systemd/network/10-host0.network").write_text(network)
    packages = root / "usr/lib/python3/dist-packages"
    shutil.copy(Path(__file__).parent / "python/sitecustomize.py", packages / "lab_compiled.py")
    (packages / "lab_compiled.pth").write_text("import lab_compiled\n")
    for home in (root / "root", root / "home" / rootfs.USER):
        (home / ".ssh").mkdir(mode=0o700, exist_ok=True)
        shutil.copyfile(paths.run / "id_ed25519.pub", home / ".ssh/authorized_keys")
        for path in (home / ".ssh", home / ".ssh/authorized_keys"):
            os.chown(path, home.stat().st_uid, home.stat().st_gid)
    for end in ("", ".pub"):
        shutil.copy(paths.run / "host_keys" / f"{host.name}{end}", root / f"etc/ssh/ssh_host_ed25519_key{end}")


def _write_files(lab: Lab) -> None:
    run = lab.paths.run
    enter = shlex.join(lab.inside([]))
    lines = [
        f"Host *\n  User root\n  IdentityFile {run}/id_ed25519\n  IdentitiesOnly yes",
        f"  UserKnownHostsFile {run}/known_hosts\n  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes",
        "  BatchMode yes\n  LogLevel ERROR",
        "  ServerAliveInterval 3\n  ServerAliveCountMax 3",
        f"  ProxyUseFdpass yes\n  ProxyCommand {enter} {sys.executable} -IS {Path(__file__).with_name('connect.py')} %h %p",
        f"  ControlMaster auto\n  ControlPersist 60s\n  ControlPath {run}/cm/%C",
    ]
    lines += [f"Host {host.name}\n  HostName {host.address}" for host in lab.hosts.values()]
    (run / "ssh_config").write_text("\n".join(lines) + "\n")
    variables = {
        "ansible_user": rootfs.USER,
        "ansible_become_password": rootfs.PASSWORD,
        "ansible_ssh_private_key_file": f"{run}/id_ed25519",
        # By default, Ansible would put the sockets where another lab with the same addresses finds them.
        "ansible_ssh_common_args": f"-F {run}/ssh_config -o ControlPath={run}/cm/%C",
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_pipelining": True,
    }
    hosts = {host.name: {"ansible_host": host.address} for host in lab.hosts.values()}
    # Modules that connect to the cluster run on this machine, and must run inside the lab's network.
    shell = run / "sh"
    shell.write_text(f'#!/bin/sh\nexec {enter} /bin/sh "$@"\n')
    shell.chmod(0o755)
    local = {
        "ansible_connection": "local",
        "ansible_shell_executable": str(shell),
        "ansible_python_interpreter": "{{ ansible_playbook_python }}",
    }
    group: dict[str, Any] = {"hosts": hosts, "vars": variables}
    if lab.sites:
        group["children"] = {site: {"hosts": dict.fromkeys(members)} for site, members in lab.sites.items()}
    inventory = {"nats": group, "ungrouped": {"hosts": {"localhost": local}}}
    # JSON is also YAML, and needs no library.
    lab.inventory.write_text(json.dumps(inventory, indent=2) + "\n")
    state = {"hosts": [asdict(host) for host in lab.hosts.values()]}
    (run / "state.json").write_text(json.dumps(state, indent=2) + "\n")


def _boot(paths: _Paths, host: Host) -> None:
    """Switch a machine on.

    The machine gets its own control group, because its systemd would otherwise share its services' groups with other
    hosts.
    """
    nspawn = [
        "systemd-nspawn",
        "--quiet",
        "--register=no",
        "--keep-unit",
        "--link-journal=no",
        "--resolv-conf=off",
        "--timezone=off",
        f"--directory={paths.merged(host)}",
        f"--machine={host.machine}",
        f"--hostname={host.name}",
        f"--network-bridge={host.network.bridge}",
        *_binds_of_compiled_code(paths, host),
        "--boot",
    ]
    # `ip netns exec` cannot be used: it remounts /sys, and nspawn then does not find the control groups. After a
    # machine has lost its power, the kernel removes its virtual cable only with a delay, and nspawn needs the cable's name.
    unplug = f"nsenter --net={paths.netns} ip link del {host.interface} 2>/dev/null || :"
    once = (
        f"{_enter_group(paths, f'{host.machine}/run')}; {unplug}; exec nsenter --net={paths.netns} {shlex.join(nspawn)}"
    )
    # With --keep-unit, nspawn leaves a reboot to its parent, and requests it by exit code 133.
    command = (
        f"{_enter_group(paths, f'{host.machine}/power')}; while sh -ec {shlex.quote(once)}; [ $? = 133 ]; do :; done"
    )
    _start(command, paths.log(host))


def _binds_of_compiled_code(paths: _Paths, host: Host) -> list[str]:
    """Return the options that mount the lab's code of modules, see python/sitecustomize.py, for root and for the user.

    Otherwise each host would compile the modules again after every `renew`.
    """
    binds = []
    for uid in (0, (paths.merged(host) / "home" / rootfs.USER).stat().st_uid):
        folder = paths.work / f"compiled-{uid}"
        folder.mkdir(mode=0o700, exist_ok=True)
        os.chown(folder, uid, uid)
        binds.append(f"--bind={folder}:/var/tmp/natsops-compiled-{uid}")
    return binds


def _start(command: str, log: Path) -> None:
    """Start a shell command that outlives this process."""
    with log.open("ab") as output:
        subprocess.Popen(
            ["sh", "-ec", command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            cwd="/",
        )


def _enter_group(paths: _Paths, part: str) -> str:
    """Create a control group below the lab's; return the shell command that enters it."""
    groups = paths.group(part)
    for group in groups:
        group.mkdir(parents=True, exist_ok=True)
    return "; ".join(f"echo $$ > {shlex.quote(str(group))}/cgroup.procs" for group in groups)


def _down(name: str) -> None:
    paths = _Paths(name)
    for control in (paths.run / "cm").glob("*"):
        subprocess.run(["ssh", "-S", str(control), "-O", "exit", "-"], capture_output=True, check=False)
    _kill_group(paths.group())
    _discard(paths.work)
    if paths.netns.exists():
        _call(["ip", "netns", "del", paths.netns_name])
    if paths.run.exists():
        shutil.rmtree(paths.run)


def _discard(work: Path) -> None:
    """Unmount everything below this folder, release its loop devices, and remove it."""
    if not work.exists():
        return
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for mounted in reversed([path for path in mounts if f"{path}/".startswith(f"{work}/")]):
        _call(["umount", "--lazy", mounted])
    for line in _call(["losetup", "--list", "--noheadings", "--raw", "--output", "NAME,BACK-FILE"]).splitlines():
        device, _space, backing = line.partition(" ")
        if backing.startswith(f"{work}/"):
            _call(["losetup", "--detach", device])
    shutil.rmtree(work)


# --- control groups and processes -----------------------------------------------------------------------------------


def _hierarchies() -> list[Path]:
    """Return the mount points of the hierarchies in which systemd manages services."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _dash, rest = line.partition(" - ")
        kind, _source, options = rest.split(" ", 2)
        if kind == "cgroup2" or (kind == "cgroup" and "name=systemd" in options.split(",")):
            found.append(Path(fields.split()[4]))
    return found


def _group_pids(groups: Sequence[Path]) -> set[int]:
    """Return the processes in these control groups and those below them, which may come and go during the call."""
    found: set[int] = set()
    for group in groups:
        for folder, _folders, _files in os.walk(group):
            try:
                found.update(int(pid) for pid in Path(folder, "cgroup.procs").read_text().split())
            except OSError:
                continue
    return found - {0}


def _kill_group(groups: Sequence[Path]) -> None:
    """Kill everything in these control groups and remove them; raise LabError if something remains after 30 s."""
    deadline = time.monotonic() + 30
    while any(group.exists() for group in groups):
        pids = _group_pids(groups)
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if not pids:
            _remove_groups(groups)
        if time.monotonic() > deadline:
            raise LabError(
                f"these control groups do not empty: {', '.join(map(str, groups))}; processes {sorted(pids)}"
            )
        time.sleep(0.02)


def _remove_groups(groups: Sequence[Path]) -> None:
    for group in groups:
        for folder, _folders, _files in os.walk(group, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:  # busy for a moment after its last process
                return


def _pid_inside(pid: int) -> int:
    """Return a process's id in its own pid namespace, or 0 if it has no separate namespace or no longer exists."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    ids = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[1:]
    return int(ids[-1]) if len(ids) > 1 else 0


def enter_network(name: str) -> None:
    """Move the calling thread, and all processes that it starts later, into a lab's network."""
    libc = ctypes.CDLL(None, use_errno=True)
    with _Paths(name).netns.open() as namespace:
        if libc.setns(namespace.fileno(), _CLONE_NEWNET):
            raise LabError(f"cannot enter the network of lab {name}: {os.strerror(ctypes.get_errno())}")


# --- commands of this machine ---------------------------------------------------------------------------------------


def _install(packages: Sequence[str]) -> None:
    if not shutil.which("apt-get"):
        raise LabUnavailableError(f"these packages are missing, and there is no apt-get: {', '.join(packages)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        done = subprocess.run(["apt-get", "-q", *command], env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LabUnavailableError(f"`apt-get {' '.join(command)}` failed: {done.stderr.strip()}")


def _call(command: Sequence[str]) -> str:
    return _finished(command, shlex.join(command), check=True).stdout


def _finished(command: Sequence[str], what: str, check: bool) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if check and done.returncode:
        raise LabError(f"`{what}` failed with {done.returncode}: {(done.stderr or done.stdout).strip()}")
    return done


# --- command line ---------------------------------------------------------------------------------------------------


def _cli_up(args: argparse.Namespace) -> None:
    hosts = [f"n{index + 1}" for index in range(int(args.hosts))] if args.hosts.isdigit() else args.hosts.split(",")
    # The remains of a build that was interrupted have no state.
    if (RUN_DIR / args.name / "state.json").exists():
        raise LabError(f"there is a lab {args.name}, with its data: `lab.py down --name {args.name}` removes it")
    started = time.monotonic()
    lab = up(args.name, hosts, args.release)
    print(f"lab {lab.name}: {len(lab.hosts)} hosts after {time.monotonic() - started:.0f} s")
    _show(lab)
    print(f"inventory {lab.inventory}")
    print(f"ansible -i {lab.inventory} all -m ansible.builtin.ping")


def _show(lab: Lab) -> None:
    for host in lab.hosts.values():
        state = "running" if lab.is_running(host.name) else "off"
        print(f"  {host.name:<20} {host.address:<14} {host.release:<10} {state:<8} {host.site}".rstrip())


def _cli_list(_args: argparse.Namespace) -> None:
    for name in labs():
        print(name)
        try:
            _show(get(name))
        except LabError:
            print(f"  incomplete: `{sys.argv[0]} down --name {name}` clears it away")


def _cli_down(args: argparse.Namespace) -> None:
    if args.all == bool(args.name):
        raise LabError("down: --name NAME or --all is required")
    for name in labs() if args.all else [args.name]:
        down(name)


def _replace_process(command: Sequence[str]) -> None:
    os.execvp(command[0], list(command))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    verbs = made.add_subparsers(required=True, metavar="VERB")

    def verb(name: str, text: str, action: Callable[[argparse.Namespace], None], host: bool = True) -> Any:
        one = verbs.add_parser(name, help=text, description=text)
        one.set_defaults(action=action)
        if host:
            one.add_argument("--name", metavar="LAB", help="the lab; not needed when only one is running")
            one.add_argument("host")
        return one

    verb("check", "print whether a lab can be built here; exit 3 with the reason if not", lambda _args: check(), False)
    one = verb("up", "build and boot a lab", _cli_up, False)
    one.add_argument("--name", required=True, metavar="LAB")
    one.add_argument(
        "--hosts", required=True, help="how many (n1, n2, …), or their names: a,b,c@trixie; in sites: a/east,b/west"
    )
    one.add_argument("--release", default="bookworm", choices=rootfs.RELEASES)
    verb("list", "show all labs and their hosts", _cli_list, False)
    one = verb("down", "take a lab away", _cli_down, False)
    one.add_argument("--name", metavar="LAB")
    one.add_argument("--all", action="store_true")
    one = verb(
        "run",
        "run a command of this machine in the lab's network",
        lambda a: _replace_process(get(a.name).inside(a.command[a.command[:1] == ["--"] :])),
        False,
    )
    one.add_argument("--name", metavar="LAB", help="the lab; not needed when only one is running")
    one.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND ...")
    one = verb(
        "ssh",
        "log in to a host, or run a command there, over SSH",
        lambda a: _replace_process(get(a.name).ssh_command(a.host, *a.command)),
    )
    one.add_argument("command", nargs="*")
    one = verb(
        "exec",
        "run a command on a host by its console, network or not",
        lambda a: _replace_process(get(a.name).exec_command(a.host, *a.command)),
    )
    one.add_argument("command", nargs="+")
    verb("kill", "cut a host's power", lambda a: get(a.name).kill(a.host))
    verb("start", "switch a killed host on", lambda a: get(a.name).start(a.host))
    verb("reboot", "reboot a host in an orderly way", lambda a: get(a.name).reboot(a.host))
    verb("renew", "give a host an empty disk and boot it", lambda a: get(a.name).renew(a.host))
    verb("partition", "pull a host's network cable", lambda a: get(a.name).partition(a.host))
    verb("heal", "plug it in again, and end netem and slow", lambda a: get(a.name).heal(a.host))
    one = verb(
        "netem",
        "spoil the traffic towards a host: netem n1 delay 50ms loss 1%%",
        lambda a: get(a.name).netem(a.host, *a.rule),
    )
    one.add_argument("rule", nargs="+")
    one = verb("slow", "limit the traffic towards a host: slow n1 1mbit", lambda a: get(a.name).slow(a.host, a.rate))
    one.add_argument("rate")
    one = verb(
        "link",
        "set the delay of one way between two sites: link east west 0.04, or cut",
        lambda a: get(a.name).link(a.one, a.other, None if a.delay == "cut" else float(a.delay)),
        False,
    )
    one.add_argument("--name", metavar="LAB", help="the lab; not needed when only one is running")
    for part in ("one", "other", "delay"):
        one.add_argument(part)
    one = verb("disk", "give a host a small disk of its own", lambda a: get(a.name).disk(a.host, a.path, a.size))
    one.add_argument("--path", required=True)
    one.add_argument("--size", required=True, help="as of truncate(1): 64M")
    return made


def main() -> int:
    """Run the command line; return 3 if no lab can be built here, 1 for other errors."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))
    signal.signal(signal.SIGHUP, lambda _number, _frame: sys.exit(129))
    args = parser().parse_args()
    try:
        args.action(args)
    except (LabUnavailableError, MirrorError, rootfs.BuildError) as error:
        print(f"lab.py: no lab can be built here: {error}", file=sys.stderr)
        return 3
    except LabError as error:
        print(f"lab.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
