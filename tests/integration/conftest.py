# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures: real clusters, and the modules run in this process with real arguments."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest
from ansible.module_utils import basic
from ansible.module_utils.common import warnings
from ansible.module_utils.common.text.converters import to_bytes

sys.path.insert(0, str(Path(__file__).parents[1] / "lab"))
sys.path.insert(0, str(Path(__file__).parent))

from nats_processes import NatsProcesses

# Its assertions are told in full, too.
pytest.register_assert_rewrite("role_cluster")

VERSIONS = ["2.10.27", "2.15.1"]
# Files whose tests share nothing that is costly, and take long.
ALONE = ["tests/integration/test_host_role.py", "tests/integration/test_config_real.py"]
MODULES = "ansible_collections.natsops.jetstream.plugins.modules"

Runner = Callable[..., dict[str, Any]]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand a worker of pytest-xdist what shares a cluster at once: the tests of a file with one version, or without any."""
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
    """Start a cluster of the test's own, which the test may break."""
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


def _run(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Run a module's main() with these arguments as Ansible would pass them, and return its result."""
    module = importlib.import_module(f"{MODULES}.{name}")
    output = io.StringIO()
    before, profile = basic._ANSIBLE_ARGS, getattr(basic, "_ANSIBLE_PROFILE", None)
    basic._ANSIBLE_ARGS = to_bytes(json.dumps({"ANSIBLE_MODULE_ARGS": arguments}))
    basic._ANSIBLE_PROFILE = "legacy"
    # Ansible collects warnings for the process, which elsewhere is the module's own.
    warnings._global_warnings.clear()
    warnings._global_deprecations.clear()
    try:
        with contextlib.redirect_stdout(output), pytest.raises(SystemExit):
            module.main()
    finally:
        basic._ANSIBLE_ARGS, basic._ANSIBLE_PROFILE = before, profile
    return json.loads(output.getvalue().strip().splitlines()[-1])


@pytest.fixture(scope="session")
def run_module() -> Runner:
    """Run a module in this process: run_module(name, connection, _check_mode=False, **options)."""

    def runner(name: str, connection: dict[str, Any], /, check_mode: bool = False, **options: Any) -> dict[str, Any]:
        return _run(name, {**connection, **options, "_ansible_check_mode": check_mode})

    return runner


def form(cluster: NatsProcesses, run_module: Runner) -> NatsProcesses:
    """Return the cluster once the gate has found it healthy.

    A server of 2.10.27 that starts on a busy machine now and then is mute in Raft until it is started again, see
    docs/health-gate.md; with two of three mute there is no leader that could tell which.
    """
    members = {"expected_servers": cluster.names, "expected_jetstream_servers": cluster.jetstream}
    once = {**members, "samples": 1, "span": 0, "interval": 0.3, "timeout": 1}
    for _attempt in range(4):
        result = run_module("nats_cluster_health", cluster.sys_connection(), **once, wait_timeout=15)
        if result["healthy"]:
            break
        suspects = {name for problem in result.get("problems", ()) for name in problem["servers"]}
        for name in suspects or cluster.names:
            cluster.stop(name)
            cluster.start(name)
    assert result["healthy"], result["msg"]
    return cluster


@pytest.fixture(scope="session")
def healthy(
    version: str, tmp_path_factory: pytest.TempPathFactory, run_module: Runner
) -> Iterator[NatsProcesses]:
    """The three servers of a healthy cluster C1 with streams and consumers; tests leave it as it is."""
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
def five(
    version: str, tmp_path_factory: pytest.TempPathFactory, run_module: Runner
) -> Iterator[NatsProcesses]:
    """Five healthy servers, each with a tag of its own, for tests that move leaders and replicas; a test removes the assets that
    it made."""
    names = [f"n{number}" for number in range(1, 6)]
    cluster = NatsProcesses(version, tmp_path_factory.mktemp("five"), names, accounts={"APP": "app", "OTHER": "other"})
    for name in names:
        cluster.write_config(name, f'server_tags: ["node:{name}"]')
    cluster.start()
    try:
        yield form(cluster, run_module)
    finally:
        cluster.kill()
