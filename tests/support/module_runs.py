# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs modules in this process with real arguments, and prepares a cluster that these modules report as healthy."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
from collections.abc import Sequence
from typing import Any, Callable

import pytest
from ansible.module_utils import basic
from ansible.module_utils.common import warnings
from ansible.module_utils.common.text.converters import to_bytes
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.server_versions import RAFT_SILENT
from support.nats_processes import NatsProcesses

MODULES = "ansible_collections.natsops.jetstream.plugins.modules"

Runner = Callable[..., dict[str, Any]]


def run_in_process(
    name: str, connection: dict[str, Any], /, check_mode: bool = False, **options: Any
) -> dict[str, Any]:
    """Run a module's main() with these arguments as Ansible would pass them, and return its result."""
    arguments = {**connection, **options, "_ansible_check_mode": check_mode}
    module = importlib.import_module(f"{MODULES}.{name}")
    output = io.StringIO()
    # Ansible collects warnings per process, which is normally that of a single module.
    warnings._global_warnings.clear()
    warnings._global_deprecations.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(basic, "_ANSIBLE_ARGS", to_bytes(json.dumps({"ANSIBLE_MODULE_ARGS": arguments})))
        patch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)
        # A test that imports Ansible's controller code makes warnings go to the screen instead of the result.
        if hasattr(warnings, "_internal"):
            patch.setattr(warnings._internal, "is_controller", False)
        with contextlib.redirect_stdout(output), pytest.raises(SystemExit):
            module.main()
    return json.loads(output.getvalue().strip().splitlines()[-1])


def form(
    cluster: NatsProcesses, run_module: Runner = run_in_process, connection: dict[str, Any] | None = None
) -> NatsProcesses:
    """Return the cluster once the gate has found it healthy. `connection`: the login, by default the system user's."""
    members = {"expected_servers": cluster.names, "expected_jetstream_servers": cluster.jetstream}
    once = {**members, "samples": 1, "span": 0, "interval": 0.3, "wait_timeout": 15}
    login = {**(connection or cluster.sys_connection()), "timeout": 1}
    result = gate_restarting_silent(cluster, login, once, run_module, 20)
    assert result["healthy"], result["msg"]
    return cluster


def gate_restarting_silent(
    cluster: NatsProcesses,
    connection: dict[str, Any],
    options: dict[str, Any],
    run_module: Runner = run_in_process,
    silent_after: float = 60,
    others: Sequence[NatsProcesses] = (),
) -> dict[str, Any]:
    """Return the gate's result after restarting, at most three times, the servers that started raft-silent.

    Some versions have this defect (docs/health-gate.md), and a busy machine makes it likely. For all other versions, a
    server that does not join in time is a failure. If two of three servers are silent, there is no leader to identify
    them, so all servers named in the gate's problems are restarted. `others`: the other clusters of a supercluster.
    """
    owners = {name: one for one in (cluster, *others) for name in one.names}
    for _restart in range(3 if RAFT_SILENT.affects(cluster.version) else 0):
        result = run_module(
            "nats_cluster_health", connection, **{**options, "wait_timeout": min(silent_after, options["wait_timeout"])}
        )
        if result["healthy"]:
            return result
        silent = {
            name for one in result["problems"] if "although it answers" in one["message"] for name in one["servers"]
        }
        named = {name for one in result["problems"] for name in one["servers"]}
        for name in (silent or named or set(owners)).intersection(owners):
            owners[name].stop(name)
            owners[name].start(name)
    return run_module("nats_cluster_health", connection, **options)


def step_down(cluster: NatsProcesses, stream: str = "ORDERS") -> str:
    """Make the stream's leader step down, and return the new leader."""
    old = cluster.app_request(f"$JS.API.STREAM.INFO.{stream}")["cluster"]["leader"]
    done = run_in_process("nats_stream_stepdown", cluster.app_connection(), stream=stream, away_from=[old])
    assert done.get("changed"), done
    return str(cluster.app_request(f"$JS.API.STREAM.INFO.{stream}")["cluster"]["leader"])
