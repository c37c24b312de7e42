#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_cluster_health
short_description: Wait until a NATS JetStream cluster is healthy, or fail with every reason
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - The gate to pass before and after anything that stops a server. Needs a user of the system account.
  - It looks at the servers by name, at the meta group (one leader that all agree on, its size, every member in step), at
    each server's own health, and at every stream and consumer as its leader sees it (one leader, all replicas, all in step).
  - It sees what the servers' own /healthz does not, such as a stream that lost its quorum, which nobody leads.
  - Healthy means O(samples) good samples in a row that span at least O(span) seconds. A single good sample can be luck, since
    a server takes up to ten seconds to notice that it lost its peers.
  - Assets all of whose replicas are on servers that do not answer cannot be seen. Give O(expected_servers), so that such
    servers are noticed.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.health
  - natsops.jetstream.attributes
  - natsops.jetstream.attributes.info_module
options:
  wait:
    description:
      - Whether to wait for a healthy cluster. With V(false) one sample is taken and judged.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds after which a cluster that is not healthy is a failure. Must be more than O(span).
    type: float
    default: 120
  interval:
    description:
      - Seconds between the starts of two samples.
    type: float
    default: 2
  samples:
    description:
      - How many good samples in a row are needed.
    type: int
    default: 4
  span:
    description:
      - Seconds that the good samples must span.
    type: float
    default: 10
  stop_servers:
    description:
      - Names of servers that are about to be stopped together. Every group that would lose its quorum by that is a problem.
    type: list
    elements: str
    default: []
  r1_policy:
    description:
      - Whether streams and consumers with a single replica on one of O(stop_servers) are a problem (V(fail)) or only
        a warning (V(accept)). They are away while their server is. Ephemeral consumers are only ever a warning.
    type: str
    choices: [accept, fail]
    default: accept
  tolerate:
    description:
      - Codes of problems that are acceptable, and names of servers that may be missing or behind.
      - A server's name excuses the problems that only this server causes; a group without a leader or without quorum is never
        excused by it.
        It does not count as up for O(stop_servers) either.
    type: list
    elements: str
    default: []
seealso:
  - module: natsops.jetstream.nats_cluster_info
"""

EXAMPLES = r"""
- name: Wait until all three servers, their meta group, streams and consumers are healthy
  natsops.jetstream.nats_cluster_health:
    servers: [nats://n1.example.com:4222, nats://n2.example.com:4222]
    user: sys
    password: "{{ nats_system_password }}"
    expected_servers: [n1-c1, n2-c1, n3-c1]

- name: Ask whether n2-c1 can be stopped now, without waiting
  natsops.jetstream.nats_cluster_health:
    expected_servers: [n1-c1, n2-c1, n3-c1]
    stop_servers: [n2-c1]
    r1_policy: fail
    wait: false
    context: c1-sys

- name: Wait until three clusters and their common meta group are healthy
  natsops.jetstream.nats_cluster_health:
    expected_servers: [n1, n2, n3]
    expected_clusters: {n1: east, n2: central, n3: west}
    context: east-sys

- name: Wait for the rest while n3-c1 is being repaired
  natsops.jetstream.nats_cluster_health:
    expected_servers: [n1-c1, n2-c1, n3-c1]
    tolerate: [n3-c1]
    context: c1-sys
"""

RETURN = r"""
problems:
  description:
    - What is wrong in the last sample, except for what O(tolerate) covers. Empty on success.
    - Codes of the servers are V(unreachable), V(cluster_missing), V(server_missing), V(server_unexpected),
      V(server_wrong_cluster), V(server_duplicate), V(server_silent), V(server_unhealthy) and V(jetstream_disabled).
    - V(gateway_missing) is a server that has no gateway connection to another cluster of its supercluster, of which a server
      answered.
    - Codes of the meta group are V(meta_no_leader), V(meta_leader_disputed), V(meta_no_quorum), V(meta_size),
      V(meta_peer_missing), V(meta_peer_unexpected), V(meta_replica_behind) and V(meta_pending).
    - Codes of streams are V(stream_no_leader), V(stream_leader_disputed), V(stream_no_quorum), V(stream_replica_count),
      V(stream_replica_behind) and V(stream_moving), and the same for consumers with C(consumer).
    - Codes of O(stop_servers) are V(stop_breaks_quorum), V(stop_r1) and V(stop_unknown_server).
  returned: always
  type: list
  elements: dict
  sample:
    - code: stream_no_leader
      severity: error
      subject: stream APP/ORDERS
      message: >-
        stream APP/ORDERS (R3, S-R3F-vJPJ0ZU5) has no leader: 2 of 3 members must be up, 1 answered (n1-c1);
        members: n1-c1, n2-c1, n3-c1
      servers: []
warnings_found:
  description: What is worth knowing, but does not fail, in the same form as RV(problems).
  returned: always
  type: list
  elements: dict
  sample: []
tolerated:
  description: Problems that O(tolerate) covers, in the same form as RV(problems).
  returned: always
  type: list
  elements: dict
  sample: []
healthy:
  description: Whether the cluster is healthy.
  returned: always
  type: bool
  sample: true
samples:
  description: How many samples were taken.
  returned: always
  type: int
  sample: 6
waited:
  description: Seconds that it took.
  returned: always
  type: float
  sample: 10.4
servers:
  description: Names of the servers that answered the last sample.
  returned: always
  type: list
  elements: str
  sample: [n1-c1, n2-c1, n3-c1]
meta_leader:
  description: Name of the meta leader, null when there is none.
  returned: always
  type: str
  sample: n2-c1
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Callable

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.natsops.jetstream.plugins.module_utils._api import SystemApi
from ansible_collections.natsops.jetstream.plugins.module_utils._client import Client, NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils._model import Cluster
from ansible_collections.natsops.jetstream.plugins.module_utils._module import fail, make_module, positive, run
from ansible_collections.natsops.jetstream.plugins.module_utils._quorum import (
    ERROR,
    Expectations,
    Limits,
    Problem,
    StopPolicy,
    health_problems,
    split_tolerated,
    stop_problems,
)

#: Failures that a restart under way explains; any other one will not go away by waiting.
TRANSIENT = ("unreachable", "timeout", "connection_lost", "bad_reply")

#: What the judgement of one sample needs, beside the servers to stop.
SAMPLE_SPEC: dict[str, dict[str, Any]] = {
    "expected_servers": {"type": "list", "elements": "str"},
    "expected_jetstream_servers": {"type": "list", "elements": "str"},
    "expected_clusters": {"type": "dict", "default": {}},
    "cluster": {"type": "str"},
    "assets": {"type": "bool", "default": True},
    "max_lag": {"type": "int", "default": 200},
    "max_active": {"type": "float", "default": 5},
    "tolerate": {"type": "list", "elements": "str", "default": []},
}

#: How many reasons the message spells out; all of them are in `problems`.
SHOWN = 20


@dataclass(frozen=True)
class Sample:
    """One look at the cluster; `cluster` is None when it could not be reached at all."""

    cluster: Cluster | None
    errors: tuple[Problem, ...]
    warnings: tuple[Problem, ...]
    tolerated: tuple[Problem, ...]


@dataclass(frozen=True)
class Outcome:
    """What the gate decided: the last sample, the number of samples, the seconds it took."""

    healthy: bool
    last: Sample
    samples: int
    waited: float

    def as_dict(self) -> dict[str, Any]:
        cluster = self.last.cluster
        meta = cluster.meta if cluster else None
        return {
            "healthy": self.healthy,
            "problems": [problem.as_dict() for problem in self.last.errors],
            "warnings_found": [problem.as_dict() for problem in self.last.warnings],
            "tolerated": [problem.as_dict() for problem in self.last.tolerated],
            "samples": self.samples,
            "waited": round(self.waited, 3),
            "servers": sorted(cluster.names) if cluster else [],
            "meta_leader": meta.group.leader if meta else None,
        }


def judge(cluster: Cluster, params: Mapping[str, Any]) -> Sample:
    """Return the sample for a cluster that was read."""
    limits = Limits(params["max_lag"], params["max_active"])
    servers = params["expected_servers"]
    jetstream_servers = params["expected_jetstream_servers"]
    if jetstream_servers is None:
        jetstream_servers = servers
    problems = health_problems(
        cluster,
        Expectations(
            servers=None if servers is None else frozenset(servers),
            jetstream_servers=None if jetstream_servers is None else frozenset(jetstream_servers),
            cluster=params["cluster"],
            limits=limits,
            clusters=params["expected_clusters"],
        ),
    )
    problems += stop_problems(cluster, params["stop_servers"], StopPolicy(params["r1_policy"], limits))
    return sorted_sample(cluster, problems, params)


def sorted_sample(cluster: Cluster | None, problems: list[Problem], params: Mapping[str, Any]) -> Sample:
    """Return the sample with its problems parted into errors, warnings and what is tolerated."""
    remaining, tolerated = split_tolerated(problems, params["tolerate"])
    return Sample(
        cluster,
        tuple(problem for problem in remaining if problem.severity == ERROR),
        tuple(problem for problem in remaining if problem.severity != ERROR),
        tuple(tolerated),
    )


def make_sampler(api: SystemApi, params: Mapping[str, Any]) -> Callable[[], Sample]:
    """Return a function that reads the cluster once and judges it.

    A cluster that cannot be reached is a problem. Credentials that do not work are a failure, unless they worked before:
    then it is a server on its way down that refuses them.
    """
    known = {
        *(params["expected_servers"] or ()),
        *(params["expected_jetstream_servers"] or ()),
        *params["stop_servers"],
    }
    awaited = known - set(params["tolerate"])
    worked = False

    def sample() -> Sample:
        nonlocal worked
        try:
            cluster = api.read_cluster(awaited=awaited, known_names=known, assets=params["assets"])
        except NatsFailure as failure:
            if not worked and failure.code not in TRANSIENT:
                raise
            return sorted_sample(None, [Problem("unreachable", ERROR, "cluster", failure.description)], params)
        worked = True
        return judge(cluster, params)

    return sample


def wait_for_health(sample: Callable[[], Sample], params: Mapping[str, Any]) -> Outcome:
    """Return the outcome of sampling until enough good samples in a row span enough time, or until the time is over."""
    started = time.monotonic()
    needed, span = (params["samples"], params["span"]) if params["wait"] else (1, 0)
    good_since: float | None = None
    good = taken = 0
    while True:
        begun = time.monotonic()
        last = sample()
        taken += 1
        if last.errors:
            good, good_since = 0, None
        else:
            good += 1
            good_since = begun if good_since is None else good_since
        if good_since is not None and good >= needed and begun - good_since >= span:
            return Outcome(True, last, taken, time.monotonic() - started)
        following = max(begun + params["interval"], time.monotonic())
        if not params["wait"] or following - started > params["wait_timeout"]:
            return Outcome(False, last, taken, time.monotonic() - started)
        time.sleep(max(0.0, following - time.monotonic()))


def message(outcome: Outcome) -> str:
    """Return the failure for people: one line for each reason."""
    after = f"after {outcome.waited:.0f} s and {outcome.samples} sample(s)"
    errors = outcome.last.errors
    if not errors:
        return f"the cluster was not healthy for long enough {after}; the last sample was good"
    lines = [f"- {problem.message}" for problem in errors[:SHOWN]]
    if len(errors) > SHOWN:
        lines.append(f"- and {len(errors) - SHOWN} more, see problems")
    return "\n".join([f"the cluster is not healthy {after}:", *lines])


def check_options(params: Mapping[str, Any]) -> None:
    """Raise NatsFailure invalid_option for values that can never be satisfied."""
    for name in ("wait_timeout", "interval", "max_active"):
        positive(params[name], name)
    if params["samples"] < 1:
        raise NatsFailure("invalid_option", f"samples: must be at least 1, not {params['samples']}")
    if params["wait"] and params["span"] >= params["wait_timeout"]:
        raise NatsFailure(
            "invalid_option",
            f"span ({params['span']:g} s) must be less than wait_timeout ({params['wait_timeout']:g} s)",
        )


def main() -> None:
    module: AnsibleModule = make_module(
        {
            **SAMPLE_SPEC,
            "wait": {"type": "bool", "default": True},
            "wait_timeout": {"type": "float", "default": 120},
            "interval": {"type": "float", "default": 2},
            "samples": {"type": "int", "default": 4},
            "span": {"type": "float", "default": 10},
            "stop_servers": {"type": "list", "elements": "str", "default": []},
            "r1_policy": {"type": "str", "choices": ["accept", "fail"], "default": "accept"},
        }
    )

    def work(client: Client) -> dict[str, Any]:
        check_options(module.params)
        outcome = wait_for_health(make_sampler(SystemApi(client), module.params), module.params)
        if not outcome.healthy:
            fail(module, NatsFailure("unhealthy", message(outcome)), **outcome.as_dict())
        return {"changed": False, **outcome.as_dict()}

    run(module, work)


if __name__ == "__main__":
    main()
