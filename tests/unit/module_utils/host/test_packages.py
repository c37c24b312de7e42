# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.host.packages import packages

APT = """\
Reading package lists...
Inst nats-server [2.10.27-1] (2.12.0-1 Debian:13/stable [amd64])
Inst libc6 [2.41-12] (2.41-12+deb13u1 Debian:13/stable [amd64])
Conf nats-server (2.12.0-1 Debian:13/stable [amd64])
"""
DNF = """\

kernel.x86_64                    5.14.0-570.12.1.el9_6        baseos
nats-server.x86_64               2.12.0-1.el9                 epel
python3-libs.x86_64              3.9.21-2.el9                 baseos
Obsoleting Packages
"""


@pytest.mark.parametrize("manager, output", [("apt", APT), ("dnf", DNF), ("dnf5", DNF), ("yum", DNF)])
def test_updates_are_found_in_the_list_of_the_package_manager(manager: str, output: str) -> None:
    found = packages(manager)
    assert found.updates(output)
    assert found.updates(output, "nats-server")
    assert not found.updates(output, "nats")
    assert not found.updates(output, "server")
    assert not found.updates("")
    assert not found.updates("Last metadata expiration check: 0:01:02 ago on Sat 28 Nov 2026.\n")


def test_debian_needs_a_package_for_venv_and_the_others_do_not() -> None:
    assert packages("apt").venv == "python3-venv"
    assert [packages(manager).venv for manager in ("dnf", "zypper")] == ["", ""]
    assert all(packages(manager).java for manager in ("apt", "dnf", "zypper"))


@pytest.mark.parametrize("manager, shown", [("pacman", "pacman"), ("", "a host without a package manager")])
def test_an_unknown_manager_names_the_variables(manager: str, shown: str) -> None:
    with pytest.raises(ValueError, match=f"unknown for {shown}: install them yourself and set .*java_package"):
        packages(manager)
