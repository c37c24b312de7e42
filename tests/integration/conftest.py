# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures that provide real clusters, and run modules in this process with real arguments."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.jetstream_api import JetStreamApi
from support.application import application_api, new_streams_deleted
from support.asset_changes import Run, changed, refusal
from support.asset_team import Team
from support.module_runs import Runner, form, run_in_process
from support.nats_processes import VERSIONS, NatsProcesses

if TYPE_CHECKING:
    from support.object_storage import ObjectStorage

# Tests in these files share nothing that is expensive to set up, and take long.
ALONE = ["tests/integration/test_host_role.py", "tests/integration/test_config_real.py"]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each worker of pytest-xdist all tests that share a cluster: those of a file with one version, or without
    a version."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduler(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path, _colons, test = nodeid.partition("::")
            found = [version for version in VERSIONS if version in test.partition("[")[2]]
            return "@".join([path, *found]) if path not in ALONE else nodeid

    return Scheduler(config, log)


@pytest.fixture(scope="session", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def make_cluster(version: str, tmp_path: Path) -> Iterator[Callable[..., NatsProcesses]]:
    """Start a separate cluster for one test, which the test may break."""
    made: list[NatsProcesses] = []

    def make(names: list[str], **options: Any) -> NatsProcesses:
        directory = tmp_path / f"cluster{len(made)}"
        directory.mkdir()
        cluster = NatsProcesses(version, directory, names, **options)
        made.append(cluster)
        cluster.start()
        return cluster

    yield make
    for cluster in made:
        cluster.kill()


@pytest.fixture(scope="session")
def run_module() -> Runner:
    """Run a module in this process: run_module(name, connection, check_mode=False, **options)."""
    return run_in_process


@pytest.fixture(scope="session")
def healthy(version: str, tmp_path_factory: pytest.TempPathFactory, run_module: Runner) -> Iterator[NatsProcesses]:
    """The three servers of a healthy cluster C1 with streams and consumers; tests leave it unchanged."""
    accounts = {"APP": "app", **{f"EXTRA{number}": f"extra{number}" for number in range(4)}}
    cluster = NatsProcesses(version, tmp_path_factory.mktemp("c1"), ["n1", "n2", "n10"], accounts=accounts)
    cluster.start()
    try:
        form(cluster, run_module)
        cluster.add_stream("ORDERS", 3)
        cluster.add_consumer("ORDERS", "worker")
        cluster.add_stream("EVENTS", 1)
        for number in range(4):
            cluster.add_stream(f"LOG{number}", 1, account=f"EXTRA{number}")
        yield form(cluster, run_module)
    finally:
        cluster.kill()


@pytest.fixture(scope="session")
def five(version: str, tmp_path_factory: pytest.TempPathFactory, run_module: Runner) -> Iterator[NatsProcesses]:
    """Five healthy servers, each with its own tag, for tests that move leaders and replicas; a test removes the assets
    that it created."""
    names = [f"n{number}" for number in range(1, 6)]
    cluster = NatsProcesses(version, tmp_path_factory.mktemp("five"), names, accounts={"APP": "app", "OTHER": "other"})
    for name in names:
        cluster.write_config(name, f'server_tags: ["node:{name}"]')
    cluster.start()
    try:
        yield form(cluster, run_module)
    finally:
        cluster.kill()


# --- Tests of assets in the account APP of the five servers -----------------------------------------------------------


@pytest.fixture(scope="module")
def api(five: NatsProcesses) -> Iterator[JetStreamApi]:
    with application_api(five.app_connection()) as found:
        yield found


@pytest.fixture
def tidy(five: NatsProcesses) -> Iterator[None]:
    """Delete the streams that the test has created."""
    with new_streams_deleted(five.app_connection()):
        yield


@pytest.fixture(scope="module")
def run(five: NatsProcesses, run_module: Runner) -> Run:
    def runner(name: str, /, check_mode: bool = False, **options: Any) -> dict[str, Any]:
        return run_module(f"nats_{name}", five.app_connection(), check_mode, **options)

    return runner


@pytest.fixture(scope="module")
def change(run: Run) -> Run:
    return partial(changed, run)


@pytest.fixture(scope="module")
def refused(run: Run) -> Run:
    return partial(refusal, run)


@pytest.fixture(scope="module")
def team(five: NatsProcesses, run_module: Runner) -> Team:
    return Team(five, run_module)


@pytest.fixture(scope="module")
def running_storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStorage]:
    """Object storage that the tests of a file share."""
    # Only the tests of object storage import boto3, which takes a while.
    from support.object_storage import ObjectStorage

    made = ObjectStorage(tmp_path_factory.mktemp("storage"))
    made.start()
    try:
        yield made
    finally:
        made.kill()


@pytest.fixture
def storage(running_storage: ObjectStorage) -> Iterator[ObjectStorage]:
    """The object storage of the file's tests, empty at first."""
    yield running_storage
    running_storage.clear()
