# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The root file systems that lab hosts boot from: built once per Debian release, kept in the cache, then read-only."""

from __future__ import annotations

import fcntl
import hashlib
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from binaries import cache_dir
from debian_mirror import mirrors

_DEBIANS = ("bookworm", "trixie")
#: Hosts of a minimal release have only the requirements of README.md.
RELEASES = (*_DEBIANS, *(f"{debian}-minimal" for debian in _DEBIANS))
_MINIMAL_PACKAGES = "openssh-server,python3,sudo,systemd,systemd-sysv"
_PACKAGES = (
    "dbus,e2fsprogs,iproute2,libpam-systemd,nftables,openssh-server,procps,python3,python3-apt,python3-venv,sudo,systemd,"
    "systemd-sysv"
)
#: The unprivileged user of each host, with the sudo rules of docs/security.md and this password.
USER, PASSWORD = "ops", "sudo'5 pässword"
# Each task that needs root checks the password; Debian's default hash takes forty times as long.
_CHPASSWD = ("chpasswd", "--crypt-method=SHA512", "--sha-rounds=1000")
SUDOERS = f"{USER} ALL=(root,nats-backup) /bin/sh\n"
_ENABLE = ("ssh.service", "systemd-networkd.service")
# Hosts have no access to the outside, so units that would connect to a mirror only fill the log.
_MASK = ("apt-daily.timer", "apt-daily-upgrade.timer", "e2scrub_all.timer", "e2scrub_reap.service")


class BuildError(Exception):
    """debootstrap failed; the message contains the end of its log."""


def base(release: str) -> Path:
    """Return the root file system of this release, building it if it is missing (about a minute); raise BuildError if
    that fails."""
    debian, _dash, minimal = release.partition("-")
    return _kept(debian, _MINIMAL_PACKAGES if minimal else _PACKAGES, _ENABLE, () if minimal else _MASK)


def bare(release: str) -> Path:
    """Return a root file system that has Python, and otherwise only essential packages."""
    return _kept(release, "python3,python3-venv", (), ())


def controller(release: str) -> Path:
    """Return a root file system with the requirements of this project's `make`."""
    return _kept(release, "ca-certificates,git,iproute2,make,openssh-client,procps,python3,python3-venv", (), ())


def inside(root: Path, folders: Iterable[Path], *command: str) -> list[str]:
    """Return the command that runs ``command`` in this root file system (root only).

    ``folders`` of this machine are mounted at the same paths. The mounts disappear with the last process.
    """
    named = shlex.join(["/proc", "/dev", *map(str, folders)])
    mounts = f'for folder in {named}; do mkdir -p "$0$folder"; mount --rbind "$folder" "$0$folder"; done'
    return ["unshare", "--mount", "sh", "-ec", f'{mounts}; exec chroot "$0" "$@"', str(root), *command]


def _kept(release: str, packages: str, enable: tuple[str, ...], mask: tuple[str, ...]) -> Path:
    store = cache_dir() / "lab"
    store.mkdir(parents=True, exist_ok=True)
    recipe = hashlib.sha256(repr((packages, enable, mask, USER, PASSWORD, _CHPASSWD, SUDOERS)).encode()).hexdigest()[:8]
    target = store / f"rootfs-{release}-{recipe}"
    with (store / f".lock-{release}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for half_built in store.glob(f".building-{release}-*"):
            shutil.rmtree(half_built)
        if not target.exists():
            _build(release, target, packages, {"enable": enable, "mask": mask})
    return target


def _build(release: str, target: Path, packages: str, units: dict[str, tuple[str, ...]]) -> None:
    mirror = mirrors()[0]
    work = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".building-{release}-"))
    try:
        command = ["debootstrap", "--variant=minbase", f"--include={packages}"]
        if mirror.signed_by.startswith("/"):
            command.append(f"--keyring={mirror.signed_by}")
        done = subprocess.run(
            [*command, release, str(work), mirror.http_uri()], capture_output=True, text=True, check=False
        )
        if done.returncode:
            tail = "\n  ".join((done.stdout + done.stderr).strip().splitlines()[-5:])
            raise BuildError(f"debootstrap {release} from {mirror.http_uri()} failed:\n  {tail}")
        for verb, names in units.items():
            if names:
                subprocess.run(
                    ["systemctl", "--quiet", f"--root={work}", verb, *names], check=True, capture_output=True
                )
        if "sudo" in packages.split(","):
            subprocess.run(["chroot", str(work), "useradd", "--create-home", "--shell=/bin/bash", USER], check=True)
            subprocess.run(["chroot", str(work), *_CHPASSWD], input=f"{USER}:{PASSWORD}", text=True, check=True)
            (work / "etc/sudoers.d" / USER).write_text(SUDOERS)
        for host_specific in [work / "etc/machine-id", *(work / "etc/ssh").glob("ssh_host_*")]:
            host_specific.unlink(missing_ok=True)
        for folder in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale", "usr/share/man"):
            shutil.rmtree(work / folder, ignore_errors=True)
        work.chmod(0o755)
        work.rename(target)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
