# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Differences between distributions: the names of packages, and the commands of their package managers.

Only the Debian commands have been tested. The others follow the documentation of dnf (man dnf, needs-restarting), RHEL
9 and SLES 15.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Packages:
    """The packages and commands of a package manager.

    `java`: headless Java 17 or newer; `venv`: Python's venv, empty if the Python package contains it. `update_line`:
    the pattern of a line with an available update, with {} for the package. `hold`: the command that keeps a package
    from being updated. `reboot_command`: exits with 1 if earlier updates require a reboot; empty if only the file
    /run/reboot-required shows it.
    """

    java: str
    venv: str = ""
    update_line: str = ""
    hold: str = ""
    reboot_command: tuple[str, ...] = ()

    def updates(self, output: str, package: str = "") -> bool:
        """Return whether the list of updates contains a package, or any update if no package is given."""
        pattern = self.update_line.replace("{}", re.escape(package) if package else r"[\w.+:-]+?")
        return bool(self.update_line) and re.search(pattern, output, re.MULTILINE) is not None


_PACKAGES = {
    "apt": Packages(
        java="default-jre-headless",
        venv="python3-venv",
        # A line in the simulation of an upgrade.
        update_line=r"^Inst {} ",
        hold="apt-mark hold {}",
    ),
    "dnf": Packages(
        java="java-21-openjdk-headless",
        # A line of `dnf check-update`: name.architecture, version, repository.
        update_line=r"^{}\.\S+ +\S+ +\S+ *$",
        hold="dnf versionlock add {}",
        reboot_command=("dnf", "needs-restarting", "--reboothint"),
    ),
    "zypper": Packages(java="java-17-openjdk-headless"),
}
_ALIASES = {"dnf5": "dnf", "yum": "dnf", "apt-get": "apt"}


def packages(manager: str) -> Packages:
    """Return the packages of a package manager, identified as in Ansible's fact `pkg_mgr`. Raises ValueError for an
    unknown package manager."""
    try:
        return _PACKAGES[_ALIASES.get(manager, manager)]
    except KeyError:
        raise ValueError(
            f"the names of packages are unknown for {manager or 'a host without a package manager'}: install them yourself and"
            " set the variables nats_insights_java_package and nats_program_venv_package to ''"
        ) from None
