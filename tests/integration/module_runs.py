# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules run in this process with real arguments, and a cluster that is healthy by them."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
from typing import Any, Callable

import pytest
from ansible.module_utils import basic
from ansible.module_utils.common import warnings
from ansible.module_utils.common.text.converters import to_bytes
from nats_processes import NatsProcesses

MODULES = "ansible_collections.natsops.jetstream.plugins.modules"

Runner = Callable[..., dict[str, Any]]


def run_in_process(name: str, connection: dict[str, Any], /, check_mode: bool = False, **options: Any) -> dict[str, Any]:
    """Run a module's main() with these arguments as Ansible would pass them, and return its result."""
    arguments = {**connection, **options, "_ansible_check_mode": check_mode}
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


def form(cluster: NatsProcesses, run_module: Runner = run_in_process) -> NatsProcesses:
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
