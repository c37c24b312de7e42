#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_server_evacuate
short_description: Move all leaders, and optionally all replicas, off a NATS server
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - With O(state=absent), the server afterwards leads neither the meta group nor any stream or consumer with more than
    one replica. With O(replicas=true), the server also has no replicas of streams or consumers left. The module
    succeeds once the servers report this state.
  - The module first checks that everything selected can move. Members that are in step must be available to lead, and
    the other servers together must be allowed to take all of the replicas by the rules of the meta leader (see
    M(natsops.jetstream.nats_stream_peer)). Otherwise, the module changes nothing, and reports the groups that cannot
    move, with the reasons.
  - Replicas are moved one stream at a time, and each new replica is filled before the old one is removed, so no group
    is ever short of a member. C(SERVER.EVACUATE) of nats-server 2.15 is not used, because it leaves groups short if
    there is no spare server.
  - If a run is interrupted, the next run continues it.
  - Connect as a user of the system account. O(account_users) must have a user of every account whose streams or
    consumers must move. Otherwise, the task fails and names the account, unless O(allow_partial) is set.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.accounts
  - natsops.jetstream.progress
  - natsops.jetstream.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  server_name:
    description:
      - Name of the server, matched exactly.
    type: str
    required: true
  state:
    description:
      - With V(absent), all leaders are moved off the server and, with O(replicas), all replicas as well.
      - With V(present), leaders are moved back. The server takes over leaders until it leads its share of the groups of
        which it is a member (of groups with three members, for instance, one third, rounded down). Replicas are not
        moved back; move them with M(natsops.jetstream.nats_stream_peer) and C(state=moved).
      - On nats-server 2.10, a step-down cannot request a particular leader, so the group repeats its election until
        this server is elected.
    type: str
    choices: [absent, present]
    default: absent
  replicas:
    description:
      - Whether the replicas are moved as well. Allowed only with O(state=absent).
    type: bool
    default: false
  r1_policy:
    description:
      - How to treat streams and consumers whose only replica is on this server, if O(replicas) is not set. No other
        server can lead them.
      - V(accept) leaves them on the server. V(fail) makes the task fail before anything is changed. V(move) moves these
        streams with their data and their consumers.
    type: str
    choices: [accept, fail, move]
    default: accept
  accept_loss:
    description:
      - Whether to move streams with a single replica even on nats-server before 2.15, where messages published during
        the move may be lost. The option also permits removing replicas from a server that is down or behind, even if
        the server has the only replica of an asset. See M(natsops.jetstream.nats_stream_peer).
      - Without this option, a stream without a leader makes the task fail, because a server that is down may have its
        only replica. M(natsops.jetstream.nats_membership_plan) lists such streams.
    type: bool
    default: false
  allow_partial:
    description:
      - Whether to move as much as possible if some assets cannot move, for instance those of an account without a user
        in O(account_users). RV(stuck) lists the groups that remain.
    type: bool
    default: false
  avoid_servers:
    description:
      - Servers that get leaders only if no other member of the group can lead, such as servers that restart next and
        would have to hand the leadership over again. Allowed only with O(state=absent).
      - Before nats-server 2.11, a step-down cannot name a successor, so this option has no effect on groups that such a
        server leads.
    type: list
    elements: str
    default: []
  concurrency:
    description:
      - Maximum number of groups that elect a leader or are moved at the same time.
    type: int
    default: 2
  wait_timeout:
    description:
      - Seconds to wait for completion.
    type: float
    default: 1800
notes:
  - An evacuated server may be chosen for new streams. To keep the server empty, first give it the tag C(!jetstream)
    (C(server_tags)) and reload it. The module warns if O(replicas) is set and the tag is missing.
seealso:
  - module: natsops.jetstream.nats_stream_peer
  - module: natsops.jetstream.nats_meta_stepdown
  - module: natsops.jetstream.nats_meta_peer
"""

EXAMPLES = r"""
- name: Move the leaders off n1-c1 before it is restarted
  natsops.jetstream.nats_server_evacuate:
    server_name: n1-c1
    account_users: "{{ nats_account_users }}"
    servers: [nats://n2.example.com:4222]
    user: sys
    password: "{{ nats_system_password }}"

- name: Empty n1-c1 before it is decommissioned
  natsops.jetstream.nats_server_evacuate:
    server_name: n1-c1
    replicas: true
    account_users: "{{ nats_account_users }}"

- name: Give n1-c1 its share of the leaders back
  natsops.jetstream.nats_server_evacuate:
    server_name: n1-c1
    state: present
    account_users: "{{ nats_account_users }}"
"""

RETURN = r"""
before:
  description: The groups that the server led and hosted before the run.
  returned: when the cluster was read
  type: dict
  sample: {meta_leader: true, leaders: [stream APP/ORDERS], replicas: [stream APP/EVENTS, stream APP/ORDERS]}
after:
  description: The groups that the server leads and hosts after the run.
  returned: when the cluster was read
  type: dict
  sample: {meta_leader: false, leaders: [], replicas: []}
stuck:
  description: The groups that cannot move, with the reasons.
  returned: when the cluster was read
  type: list
  elements: dict
  sample: []
methods:
  description: How each replica was removed, by C(ACCOUNT/STREAM); see M(natsops.jetstream.nats_stream_peer).
  returned: when the cluster was read
  type: dict
  sample: {APP/ORDERS: evacuate}
members:
  description: The new members of each stream whose replica was removed, by C(ACCOUNT/STREAM).
  returned: when the cluster was read
  type: dict
  sample: {APP/EVENTS: [n5-c1]}
progress:
  description: The changes observed while the replicas were moved; see M(natsops.jetstream.nats_stream_peer).
  returned: when the cluster was read
  type: list
  elements: dict
  sample: []
waited:
  description: Seconds that the run took.
  returned: when the cluster was read
  type: float
  sample: 12.5
"""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Optional

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.collection_module import run
from ..module_utils.module import ACCOUNT_USERS_SPEC, fail, make_module, with_accounts
from ..module_utils.nats.accounts import Connections
from ..module_utils.nats.client import NatsFailure
from ..module_utils.nats.model import Cluster, RaftGroup, Stream
from ..module_utils.nats.system_api import SystemApi
from ..module_utils.placement.cluster_reader import read_led_cluster
from ..module_utils.placement.replica_moves import (
    MoveJob,
    Mover,
    MoveRequest,
    hosted_streams,
    joined,
    move_leaders,
    require_leaders,
    stalled_failure,
)
from ..module_utils.placement.rules import DRAIN_TAG
from ..module_utils.progress import PROGRESS_SPEC
from ..module_utils.roll.leadership import REFUSED, LeaderConstraints, leader_by_majority, plan_group
from ..module_utils.roll.step_down_assets import StepDownAsset
from ..module_utils.roll.step_down_meta import move_meta_leader
from ..module_utils.waiting import ELECTION_SECONDS, positive, wait_until

#: The name of the meta group in `RaftGroup.subject`.
META_SUBJECT = "meta group"


def leading(subject: str) -> str:
    """Return the label of a group that the server leads."""
    return f"{subject} (leader)"


def hosting(subject: str) -> str:
    """Return the label of a group with a replica on the server."""
    return f"{subject} (replica)"


def led_groups(cluster: Cluster) -> list[tuple[StepDownAsset, RaftGroup]]:
    """Return every stream's and consumer's group with its address."""
    found = []
    for stream in cluster.streams:
        shown = stream.account_name
        found.append((StepDownAsset(stream.account, stream.name, None, shown), stream.group))
        found += [
            (StepDownAsset(stream.account, stream.name, item.name, shown), item.group) for item in stream.consumers
        ]
    return found


def holds(cluster: Cluster, server: str) -> dict[str, Any]:
    """Return the server's leaders and replicas, for the module's result."""
    return {
        "meta_leader": cluster.meta is not None and cluster.meta.group.leader == server,
        "leaders": sorted(group.subject for group in cluster.groups() if group.leader == server),
        "replicas": sorted(group.subject for group in cluster.groups() if server in group.members),
    }


@dataclass(frozen=True)
class Scope:
    """The groups to move off the server: `streams` with their replicas and consumers, and all leaders of groups with
    other members."""

    server: str
    replicas: bool
    r1_policy: str
    #: Restricts the scope to the assets of these accounts; None for all.
    accounts: Optional[frozenset[str]] = None

    def _owned(self, account: Optional[str]) -> bool:
        return self.accounts is None or account in self.accounts

    def streams(self, cluster: Cluster) -> list[Stream]:
        """Return the streams whose replica must be moved off the server."""
        hosted = [stream for stream in hosted_streams(cluster, self.server) if self._owned(stream.account)]
        if self.replicas:
            return hosted
        alone = [item for item in hosted if item.group.size == 1 and self.server in item.group.members]
        return alone if self.r1_policy == "move" else []

    def led(self, cluster: Cluster) -> list[tuple[StepDownAsset, RaftGroup]]:
        """Return the groups that another member can and should lead."""
        return [
            (asset, group)
            for asset, group in led_groups(cluster)
            if group.leader == self.server and group.size > 1 and self._owned(asset.account)
        ]

    def alone(self, cluster: Cluster) -> list[RaftGroup]:
        """Return the groups in scope with a single replica, which remain on the server."""
        moving = {(stream.account, stream.name) for stream in self.streams(cluster)}
        return [
            group
            for asset, group in led_groups(cluster)
            if group.leader == self.server and group.size == 1 and not group.ephemeral
            if (asset.account, asset.stream) not in moving
        ]

    def left(self, cluster: Cluster, apart: Collection[str]) -> list[str]:
        """Return the groups that must still be moved off the server, such as `stream APP/ORDERS (leader)`, except those
        in `apart`."""
        found = [leading(META_SUBJECT)] if holds(cluster, self.server)["meta_leader"] else []
        found += [leading(group.subject) for _asset, group in self.led(cluster)]
        for stream in self.streams(cluster):
            found += [hosting(group.subject) for group in stream.groups if self.server in group.members]
        return [item for item in found if item not in apart]


def within_reach(connections: Connections, cluster: Cluster, scope: Scope) -> tuple[Scope, dict[str, str]]:
    """Return the scope without the accounts that have no user, and the groups that therefore remain on the server, each
    with the reason."""
    near = replace(scope, accounts=frozenset(connections.accounts))
    items = set(scope.left(cluster, ())) - set(near.left(cluster, ()))
    return near, dict.fromkeys(items, "its account has no user in account_users")


def require_users(connections: Connections, cluster: Cluster, scope: Scope) -> None:
    """Raise a NatsFailure that names every account that has assets to move but no user."""
    accounts = {stream.account: stream.account_name for stream in scope.streams(cluster)}
    accounts.update({str(asset.account): str(asset.account_name) for asset, _group in scope.led(cluster)})
    absent = sorted(name or account for account, name in accounts.items() if account not in connections.accounts)
    if absent:
        raise NatsFailure(
            "invalid_option",
            f"account_users: no user for {', '.join(absent)}, whose streams or consumers {scope.server} leads or hosts. "
            "Nothing was changed.",
            server=scope.server,
        )


def require_server(cluster: Cluster, server: str) -> None:
    """Raise NatsFailure unknown_name if neither a running server nor one that is down has this name."""
    members = {name for group in cluster.groups() for name in group.members}
    if cluster.meta is not None:
        members |= set(cluster.meta.group.members)
    if server not in cluster.names | members:
        there = ", ".join(sorted(cluster.names | members))
        raise NatsFailure("unknown_name", f"no server is named {server}; there are: {there}")


def leaders_stuck(cluster: Cluster, scope: Scope) -> tuple[dict[str, str], bool]:
    """Return the groups that no other member can lead, or whose single replica violates the policy, each with the
    reason, and whether some of these problems may be temporary."""
    servers = {server.name: server for server in cluster.servers}
    constraints = LeaderConstraints(away_from=frozenset([scope.server]))
    led = [group for _asset, group in scope.led(cluster)]
    if cluster.meta is not None and cluster.meta.group.leader == scope.server:
        led.append(leader_by_majority(cluster.meta))
    plans = {group.subject: plan_group(group, constraints, servers) for group in led}
    stuck = {leading(subject): plan.reason for subject, plan in plans.items() if plan.action == REFUSED}
    if scope.r1_policy == "fail":
        stuck.update({hosting(group.subject): "is the only replica" for group in scope.alone(cluster)})
    return stuck, any(plan.transient for plan in plans.values())


def infeasible(server: str, stuck: Mapping[str, str]) -> NatsFailure:
    """Return the failure that lists the groups that cannot move."""
    lines = "".join(f"\n- {item}: {reason}" for item, reason in sorted(stuck.items()))
    return NatsFailure("infeasible", f"{server} cannot be evacuated, nothing was changed:{lines}", server=server)


def evacuate(module: AnsibleModule, connections: Connections) -> dict[str, Any]:
    """Return the module's result once nothing in scope is left on the server."""
    params, server = module.params, module.params["server_name"]
    scope = Scope(server, params["replicas"], params["r1_policy"])
    mover = Mover(connections, MoveRequest(server, accept_loss=params["accept_loss"]))
    cluster = mover.read_cluster()
    require_server(cluster, server)
    unreachable: dict[str, str] = {}
    if params["allow_partial"]:
        scope, unreachable = within_reach(connections, cluster, scope)
    require_users(connections, cluster, scope)
    if params["replicas"] and not params["accept_loss"]:
        require_leaders(connections, connections.accounts, server)
    seen = wait_until(lambda: leaders_stuck(mover.read_cluster(), scope), lambda found: not found[1], ELECTION_SECONDS)
    jobs = mover.prepare(cluster, [(stream.account, stream.name) for stream in scope.streams(cluster)])
    stuck = {**unreachable, **seen.value[0]}
    for job in jobs:
        if job.failure:
            stuck[hosting(job.state.group.subject)] = job.failure.description
            with_it = [item.group for item in job.state.stream.consumers if server in item.group.members]
            stuck.update({hosting(group.subject): f"stays with stream {job.state.label}" for group in with_it})
    before = holds(cluster, server)
    summary = result(before, before, stuck, jobs)
    if stuck and not params["allow_partial"]:
        fail(module, infeasible(server, stuck), **summary)
    advise(module, cluster, server)
    movable = [job for job in jobs if job.failure is None]
    left = scope.left(cluster, stuck)
    if module.check_mode:
        return {**result(before, predicted(before, left), stuck, movable), "changed": bool(left)}
    if not left and not any(job.state.moving for job in movable):
        return summary
    return carry_out(module, connections, mover, scope, movable, stuck, before)


def carry_out(
    module: AnsibleModule,
    connections: Connections,
    mover: Mover,
    scope: Scope,
    jobs: list[MoveJob],
    stuck: Mapping[str, str],
    before: Mapping[str, Any],
) -> dict[str, Any]:
    """Move leaders and then replicas, and return the result. The result of a failure lists the remaining groups."""
    params, server = module.params, scope.server
    began = time.monotonic()
    deadline = began + params["wait_timeout"]

    def remaining() -> float:
        return max(1.0, deadline - time.monotonic())

    away = LeaderConstraints(away_from=frozenset([server]), avoid=frozenset(params["avoid_servers"]))
    failures: list[str] = []

    def step_leaders_down() -> Cluster:
        """Make every leader on the server step down and return the cluster; elections may have made the server a leader
        again."""
        now = mover.read_cluster()
        if holds(now, server)["meta_leader"]:
            move_meta_leader(connections.own, away, remaining())
        led = [asset for asset, group in scope.led(now) if leading(group.subject) not in stuck]
        failures[:] = move_leaders(connections, now, led, away, remaining(), params["concurrency"], params["progress"])
        return mover.read_cluster() if led else now

    step_leaders_down()
    summary: dict[str, Any] = result(before, holds(mover.read_cluster(), server), stuck, jobs)
    if not failures:
        outcome = mover.carry_out(jobs, remaining(), params["concurrency"], progress=params["progress"])
        seen = wait_until(step_leaders_down, lambda now: not scope.left(now, stuck), min(ELECTION_SECONDS, remaining()))
        summary.update(result(before, holds(seen.value, server), stuck, jobs), progress=outcome.progress)
        summary["waited"] = round(time.monotonic() - began, 3)
        if outcome.failures:
            fail(module, joined(outcome.failures), **summary)
        if outcome.pending:
            fail(module, stalled_failure(outcome, params["wait_timeout"]), **summary)
        failures = [] if seen.done else failures or scope.left(seen.value, stuck)
    if failures:
        what = f"{server} is not fully evacuated: {'; '.join(failures)}. Run it again to continue"
        fail(module, NatsFailure("evacuation_not_done", what, server=server), **summary)
    return summary


def predicted(before: Mapping[str, Any], left: Collection[str]) -> dict[str, Any]:
    """Return the expected leaders and replicas of the server after a run that leaves only the groups in `left`."""
    return {
        "meta_leader": before["meta_leader"] and leading(META_SUBJECT) not in left,
        "leaders": [item for item in before["leaders"] if not {leading(item), hosting(item)} & set(left)],
        "replicas": [item for item in before["replicas"] if hosting(item) not in left],
    }


def advise(module: AnsibleModule, cluster: Cluster, server: str) -> None:
    """Warn if the evacuated server could be chosen for new replicas, or if a server that leads again accepts none."""
    tags = {tag.lower() for item in cluster.servers if item.name == server for tag in item.tags}
    if module.params["replicas"] and server in cluster.names and DRAIN_TAG not in tags:
        module.warn(
            f'{server} may be selected for new streams: server_tags: ["{DRAIN_TAG}"] and a reload keep it empty'
        )
    if module.params["state"] == "present" and DRAIN_TAG in tags:
        module.warn(f"{server} has the tag {DRAIN_TAG}: it leads again, but accepts no new replicas")


def to_take_over(cluster: Cluster, server: str) -> list[tuple[StepDownAsset, RaftGroup]]:
    """Return the groups that the server should lead to reach its share, from the servers that most exceed theirs."""
    groups = [(asset, group) for asset, group in led_groups(cluster) if group.size > 1 and group.leader is not None]
    share: dict[str, float] = {}
    leading: dict[str, int] = {}
    for _asset, group in groups:
        leading[str(group.leader)] = leading.get(str(group.leader), 0) + 1
        for name in group.members:
            share[name] = share.get(name, 0.0) + 1 / len(group.members)
    mine = [(asset, group) for asset, group in groups if server in group.members and group.leader != server]
    chosen: list[tuple[StepDownAsset, RaftGroup]] = []

    def surplus(item: tuple[StepDownAsset, RaftGroup]) -> tuple[float, tuple[str, ...]]:
        leader = str(item[1].leader)
        return share[leader] - leading[leader], item[0].order

    while mine and leading.get(server, 0) + len(chosen) < int(share.get(server, 0.0) + 1e-9):
        taken = min(mine, key=surplus)
        mine.remove(taken)
        chosen.append(taken)
        leading[str(taken[1].leader)] -= 1
    return chosen


def present(module: AnsibleModule, connections: Connections) -> dict[str, Any]:
    """Return the module's result once the server leads its share."""
    params, server = module.params, module.params["server_name"]
    cluster = read_led_cluster(SystemApi(connections.own), known_names=[server])
    require_server(cluster, server)
    advise(module, cluster, server)
    chosen = to_take_over(cluster, server)
    if params["allow_partial"]:
        chosen = [(asset, group) for asset, group in chosen if asset.account in connections.accounts]
    absent = sorted({str(asset.account_name) for asset, _group in chosen if asset.account not in connections.accounts})
    if absent:
        what = f"account_users: no user for {', '.join(absent)}. Nothing was changed."
        raise NatsFailure("invalid_option", what, server=server)
    before = holds(cluster, server)
    after = {**before, "leaders": sorted([*before["leaders"], *(group.subject for _asset, group in chosen)])}
    if module.check_mode or not chosen:
        return {**result(before, after, {}, []), "changed": bool(chosen)}
    began = time.monotonic()
    constraints = LeaderConstraints(preferred=server)
    assets = [asset for asset, _group in chosen]
    failed = move_leaders(
        connections, cluster, assets, constraints, params["wait_timeout"], params["concurrency"], params["progress"]
    )
    summary = result(before, holds(read_led_cluster(SystemApi(connections.own), known_names=[server]), server), {}, [])
    summary["waited"] = round(time.monotonic() - began, 3)
    if failed:
        what = f"{server} does not lead its share: {'; '.join(failed)}"
        fail(module, NatsFailure("step_down_failed", what, server=server), **summary)
    return summary


def result(
    before: Mapping[str, Any], after: Mapping[str, Any], stuck: Mapping[str, str], jobs: Collection[MoveJob]
) -> dict[str, Any]:
    """Return the part of the result that every run returns."""
    return {
        "changed": before != after,
        "before": dict(before),
        "after": dict(after),
        "diff": {"before": dict(before), "after": dict(after)},
        "stuck": [{"asset": item, "reason": reason} for item, reason in sorted(stuck.items())],
        "methods": {job.state.label: job.method for job in jobs if job.method},
        "members": {job.state.label: list(job.state.group.members) for job in jobs if job.method},
        "progress": [],
        "waited": 0.0,
    }


def ensure(module: AnsibleModule, connections: Connections) -> dict[str, Any]:
    """Return the module's result."""
    params = module.params
    positive(params["wait_timeout"], "wait_timeout")
    if params["concurrency"] < 1:
        raise NatsFailure("invalid_option", f"concurrency: must be at least 1, not {params['concurrency']}")
    if params["state"] == "absent":
        return evacuate(module, connections)
    if params["replicas"] or params["accept_loss"] or params["r1_policy"] != "accept" or params["avoid_servers"]:
        raise NatsFailure("invalid_option", "replicas, r1_policy, accept_loss and avoid_servers are for state=absent")
    return present(module, connections)


def main() -> None:
    module = make_module(
        {
            "server_name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["absent", "present"], "default": "absent"},
            "replicas": {"type": "bool", "default": False},
            "r1_policy": {"type": "str", "choices": ["accept", "fail", "move"], "default": "accept"},
            "accept_loss": {"type": "bool", "default": False},
            "allow_partial": {"type": "bool", "default": False},
            "avoid_servers": {"type": "list", "elements": "str", "default": []},
            "concurrency": {"type": "int", "default": 2},
            "wait_timeout": {"type": "float", "default": 1800},
            **ACCOUNT_USERS_SPEC,
            **PROGRESS_SPEC,
        }
    )
    run(module, with_accounts, lambda connections: ensure(module, connections))


if __name__ == "__main__":
    main()
