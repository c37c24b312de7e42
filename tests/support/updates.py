# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Operating system updates for lab hosts: a package, and a repository on each host that offers newer versions of it."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Sequence
from pathlib import Path

from support.controller import Controller

PACKAGE = "lab-update"
#: Runs during the installation of the newer package to request a reboot.
ASK_FOR_REBOOT = "touch /run/reboot-required"

_CONTROL = (
    f"Package: {PACKAGE}\nVersion: {{}}\nArchitecture: all\nMaintainer: lab <lab@localhost>\nDescription: an update\n"
)


def have_package(controller: Controller, hosts: Sequence[str]) -> None:
    """Install version 1 of the package on each host, with the host's own repository as the only one."""
    files = {
        "/etc/apt/sources.list": b"deb [trusted=yes] file:/srv/repo ./\n",
        "/root/installed": f"{_CONTROL.format(1)}Status: install ok installed\n\n".encode(),
        f"/var/lib/dpkg/info/{PACKAGE}.list": b"",
    }
    for host in hosts:
        controller.ssh(host, "mkdir -p /var/lib/apt/lists/partial /srv/repo; rm -rf /etc/apt/sources.list.d")
        _write(controller, host, files)
        controller.ssh(host, "cat /root/installed >> /var/lib/dpkg/status")


def offer_update(
    controller: Controller, hosts: Sequence[str], folder: Path, version: int, script: str = ASK_FOR_REBOOT
) -> None:
    """Offer this version to the hosts. `script`: run during its installation; `folder`: where the package is built."""
    package = folder / f"package-{version}" / "DEBIAN"
    package.mkdir(parents=True)
    (package / "control").write_text(_CONTROL.format(version))
    (package / "postinst").write_text(f"#!/bin/sh\nset -e\n{script}\n")
    (package / "postinst").chmod(0o755)
    made = folder / f"{PACKAGE}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", str(package.parent), str(made)], check=True)
    content = made.read_bytes()
    entry = f"Filename: ./{PACKAGE}.deb\nSize: {len(content)}\nSHA256: {hashlib.sha256(content).hexdigest()}\n"
    files = {
        f"/srv/repo/{PACKAGE}.deb": content,
        "/srv/repo/Packages": f"{_CONTROL.format(version)}{entry}".encode(),
    }
    for host in hosts:
        _write(controller, host, files)


def versions(controller: Controller, hosts: Sequence[str]) -> dict[str, str]:
    """Return the package's status and version on each host, such as "ii 2"."""
    show = f"dpkg-query --show --showformat '${{db:Status-Abbrev}}${{Version}}' {PACKAGE}"
    return {host: controller.ssh(host, show).stdout.strip() for host in hosts}


def _write(controller: Controller, host: str, files: dict[str, bytes]) -> None:
    for path, content in files.items():
        subprocess.run(controller.lab.ssh_command(host, f"cat > {path}"), input=content, check=True)
