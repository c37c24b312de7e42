# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Provides one lab of five hosts for most tests in this folder, one of ten hosts in four sites, and their controllers.

``--lab NAME`` uses a lab that is already running.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lab as labs
import pytest
import rootfs
from support.controller import Controller

HOSTS = ("n1-c1", "n2-c1", "n3-c1", "n4-c1", "n5-c1")
MINIMAL = ("n1-c1@bookworm-minimal", "n2-c1@trixie-minimal", "n3-c1@trixie-minimal")
SITES = (
    "e1/east",
    "e2/east",
    "e3/east",
    "c1/central",
    "c2/central",
    "c3/central",
    "w1/west",
    "w2/west",
    "w3/west",
    "n1/north",
)


@pytest.fixture
def home() -> Iterator[Path]:
    """A home directory with a short path: that of an SSH connection's socket in it may have 107 bytes."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lab", metavar="NAME", help="use this running lab, and leave it up")
    parser.addoption(
        "--lab-user",
        choices=(rootfs.USER, "root"),
        default=rootfs.USER,
        help="the user that Ansible logs in as; all but root need sudo and its password",
    )


@contextmanager
def _lab(request: pytest.FixtureRequest, name: str, hosts: Sequence[str], boot: bool = True) -> Iterator[labs.Lab]:
    """Yield the lab that was named on the command line, or a new lab for this session with the given name and hosts.

    If no lab can be built, tests that need it are skipped; with CI=true, they fail.
    """
    running = request.config.getoption("--lab")
    if running:
        yield labs.get(running)
        return
    try:
        labs.check()
    except labs.LabUnavailableError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI=true, and no lab can be built: {error}")
        pytest.skip(f"NO LAB: {error}")
    labs.clear_dead("pytest")
    built = labs.up(name, hosts, boot=boot)
    try:
        yield built
    finally:
        labs.down(name)


@pytest.fixture(scope="session")
def lab(request: pytest.FixtureRequest) -> Iterator[labs.Lab]:
    """Five hosts, n1-c1 to n5-c1, which are off until a test renews those that it needs."""
    with _lab(request, f"pytest-{os.getpid()}", HOSTS, boot=False) as built:
        yield built


@contextmanager
def _switched_off(name: str) -> Iterator[None]:
    """Switch off the hosts of this lab, if it exists, inside the context: fifteen hosts would use up the 128 inotify
    instances that Linux allows a user."""
    idle = [labs.get(name)] if name in labs.labs() else []
    running = [(one, host) for one in idle for host in one.hosts if one.is_running(host)]
    for one, host in running:
        one.kill(host)
    try:
        yield
    finally:
        for one, host in running:
            one.start(host, wait=False)
        for one in idle:
            one.wait_for_boot([host for owner, host in running if owner is one])


@pytest.fixture(scope="module")
def site_controller(request: pytest.FixtureRequest) -> Iterator[Controller]:
    """The controller of ten hosts in four sites, in any state that earlier tests left the hosts in."""
    with _switched_off(f"pytest-{os.getpid()}"), _lab(request, f"pytest-{os.getpid()}-wan", SITES) as built:
        controller = Controller(built, request.config.getoption("--lab-user"))
        yield controller
        controller.close()


@pytest.fixture(scope="session")
def shared_controller(request: pytest.FixtureRequest, lab: labs.Lab) -> Iterator[Controller]:
    """The controller of the session's lab, in any state that earlier tests left the hosts in."""
    controller = Controller(lab, request.config.getoption("--lab-user"))
    yield controller
    controller.close()


@pytest.fixture
def controller(request: pytest.FixtureRequest, shared_controller: Controller) -> Controller:
    """The controller of newly installed hosts: empty disks, running, no faults.

    These are the first hosts of the lab, as many as the mark `hosts` of the test has, by default all five. The others
    are off.
    """
    mark = request.node.get_closest_marker("hosts")
    shared_controller.lab.renew_only(*HOSTS[: mark.args[0] if mark else None])
    return shared_controller


@pytest.fixture
def minimal_controller(request: pytest.FixtureRequest) -> Iterator[Controller]:
    """The controller of three hosts with nothing but the packages that README.md requires; see rootfs.py."""
    with _lab(request, f"pytest-{os.getpid()}-minimal", MINIMAL) as built:
        controller = Controller(built, request.config.getoption("--lab-user"))
        yield controller
        controller.close()


@pytest.fixture
def offline_controller(request: pytest.FixtureRequest) -> Iterator[Controller]:
    """Three minimal hosts, and a fourth one, `controller`, from which the test deploys them."""
    with _lab(request, f"pytest-{os.getpid()}-offline", (*MINIMAL, "controller@bookworm-minimal")) as built:
        controller = Controller(built, request.config.getoption("--lab-user"))
        yield controller
        controller.close()


@pytest.fixture
def intact_cluster(cluster: Any) -> Iterator[None]:
    """Check that every test of a module's cluster (lab_cluster.Cluster) leaves it healthy."""
    yield
    cluster.restore()
