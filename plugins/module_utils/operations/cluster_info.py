# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nats_cluster_info and nats_cluster_facts have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.cluster.health import Expectations, health_problems
from ansible_collections.natsops.jetstream.plugins.module_utils.cluster.raft_silence import raft_silent_servers
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import Client
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.system_api import SystemApi

CLUSTER_INFO_SPEC: dict[str, dict[str, Any]] = {
    "detail": {"type": "str", "choices": ["servers", "assets"], "default": "assets"},
    "expected_servers": {"type": "list", "elements": "str"},
    "cluster": {"type": "str"},
    "account": {"type": "str"},
    "stream": {"type": "str"},
}


def read_cluster_info(client: Client, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the filtered model of the cluster with what is wrong with it: servers, meta, clusters, streams,
    raft_silent, missing, problems. Raises NatsFailure when the cluster cannot be asked."""
    names = params["expected_servers"]
    expected = None if names is None else frozenset(names)
    cluster = SystemApi(client).read_cluster(
        awaited=expected or (),
        known_names=expected or (),
        assets=params["detail"] == "assets",
        account=params["account"],
    )
    selected = cluster.only(account=params["account"], stream=params["stream"])
    whole = params["detail"] == "assets" and params["account"] is None and params["stream"] is None
    problems = health_problems(selected, Expectations(servers=expected, cluster=params["cluster"], assets=whole))
    shown = selected.only(cluster=params["cluster"])
    return {
        **shown.as_dict(),
        "raft_silent": raft_silent_servers(shown),
        "missing": sorted((expected or frozenset()) - shown.names),
        "problems": [problem.as_dict() for problem in problems],
    }
