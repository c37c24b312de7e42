#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_stream_peer
short_description: Remove a server from the group of a stream, or move its replica to another server
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Removes a server from the members of a stream, lets the meta leader choose a replacement, and waits until the stream
    and its consumers have all their replicas in step again, without that server.
  - A running server first hands over its data, so the number of replicas never falls. Only a server that is down or
    behind is removed immediately. From nats-server 2.15 on, a stream with a single replica is moved with its messages
    and consumers. On older servers, such a move may lose messages published during the move, and is refused (see
    O(accept_loss)).
  - Before anything is changed, the module verifies that the other replicas are in step and that another server may take
    the replica, by the rules of the meta leader (cluster, tags, unique_tag, C(!jetstream), max_bytes, max_ha_assets). A
    refusal gives the reason for each server.
  - A move in progress is never disturbed. The module waits until that move is complete and then makes the remaining
    changes, so the next run continues an interrupted run.
  - Connect as a user of the system account. O(account_users) must contain a user of the account that owns the stream,
    with permission to use C($JS.API.>) in that account.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.accounts
  - natsops.jetstream.progress
  - natsops.jetstream.attributes
attributes:
  check_mode:
    support: full
    details:
      - The predicted new member is the server that the meta leader would prefer now. In a real run, the meta leader may
        choose a different suitable server.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  state:
    description:
      - With V(absent), O(server_name) is removed from the group.
      - With V(moved), O(to) takes the replica of O(from). The meta leader chooses by tags, so O(to) needs a tag that
        no other eligible server has, such as C(node:n5).
      - With V(cancelled), a move in progress is cancelled, and the stream remains on its previous servers.
    type: str
    choices: [absent, moved, cancelled]
    default: absent
  stream:
    description:
      - Name of the stream. Without this option, O(state=absent) applies to every stream of the account on the server.
    type: str
  account:
    description:
      - Account that owns the stream.
    type: str
  all_accounts:
    description:
      - Whether to include the streams of all accounts. An account with streams on the server but without a user in
        O(account_users) is an error.
    type: bool
    default: false
  server_name:
    description:
      - Name of the server to remove, matched exactly. Required with O(state=absent).
    type: str
  from:
    description:
      - Name of the server from which the replica is moved. Required with O(state=moved).
    type: str
  to:
    description:
      - Name of the server to which the replica is moved. Required with O(state=moved).
    type: str
  method:
    description:
      - V(evacuate) moves the data before the server is removed, with C(STREAM.PEER.EVACUATE) from 2.15 on and with
        C(ACCOUNT.STREAM.MOVE) on older servers.
      - V(remove) removes the server immediately with C(STREAM.PEER.REMOVE), and the new member starts empty.
      - V(auto) uses V(evacuate) if the server responds and its replica is in step, otherwise V(remove).
    type: str
    choices: [auto, remove, evacuate]
    default: auto
  accept_loss:
    description:
      - Whether to continue although data may be lost in the cases listed here. The server itself reports success in
        these cases.
      - A removal loses data that only this server has, which means the messages of a stream with a single replica and
        the positions of consumers with a single replica.
      - Before nats-server 2.15, moving a stream with a single replica may lose messages published during the move.
        Nothing is lost if the producers are stopped.
    type: bool
    default: false
  repair:
    description:
      - Up to 2.14, a group may lose a member although the server refused the removal (error 10075). Such a group is
        always reported as a failure, with its actual size and members.
      - V(true) restores the replicas of the group by setting C(num_replicas) to the number of remaining members and
        back. The members keep their data. If the meta leader selects the removed server again, the module warns.
    type: bool
    default: false
  concurrency:
    description:
      - Maximum number of streams that move at the same time.
    type: int
    default: 2
  wait:
    description:
      - Whether to wait for the moves. With V(false), the module starts as many moves as O(concurrency) allows, and
        RV(moving) is true until all moves are complete. The next run continues, so a task with C(until) shows the
        progress of a long move.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds to wait for completion. For moves of large streams, increase this value, run the task with C(async), or
        use O(wait=false).
    type: float
    default: 600
seealso:
  - module: natsops.jetstream.nats_server_evacuate
  - module: natsops.jetstream.nats_meta_peer
  - module: natsops.jetstream.nats_cluster_info
"""

EXAMPLES = r"""
- name: Remove n3-c1, which is gone for good, from ORDERS
  natsops.jetstream.nats_stream_peer:
    account: APP
    stream: ORDERS
    server_name: n3-c1
    account_users:
      - {account: APP, user: ops, password: "{{ app_ops_password }}"}
    servers: [nats://n1.example.com:4222]
    user: sys
    password: "{{ nats_system_password }}"

- name: Move the replica of EVENTS from n1-c1 to n5-c1
  natsops.jetstream.nats_stream_peer:
    state: moved
    account: APP
    stream: EVENTS
    from: n1-c1
    to: n5-c1
    account_users: "{{ nats_account_users }}"

- name: Move all streams off n2-c1, and check the progress every half minute
  natsops.jetstream.nats_stream_peer:
    all_accounts: true
    server_name: n2-c1
    wait: false
    account_users: "{{ nats_account_users }}"
  register: cleared
  until: not cleared.moving
  retries: 240
  delay: 30
"""

RETURN = r"""
before:
  description: Leader and members of each stream before the run, by C(ACCOUNT/STREAM), and the members of its consumers.
  returned: when streams were read
  type: dict
  sample:
    APP/ORDERS: {leader: n3, members: [n1, n2, n3], num_replicas: 3, consumers: {worker: [n1, n2, n3]}}
after:
  description: Leader and members of each stream after the run, in the form of RV(before). In check mode, they include
    the server that the meta leader would choose.
  returned: when streams were read
  type: dict
  sample:
    APP/ORDERS: {leader: n1, members: [n1, n2, n4], num_replicas: 3, consumers: {worker: [n1, n2, n4]}}
methods:
  description: How each replica was removed, V(evacuate) or V(remove), by C(ACCOUNT/STREAM).
  returned: when streams were read
  type: dict
  sample: {APP/ORDERS: evacuate}
moving:
  description: Whether some moves are not complete yet. Can be true only with O(wait=false); otherwise, an incomplete
    move makes the module fail.
  returned: when streams were read
  type: bool
  sample: false
progress:
  description:
    - The changes during the wait, at most 200 samples. C(elapsed) is in seconds, C(lag) in Raft entries. C(status) is
      the server's own report of the step for which it is waiting (2.15 and later).
  returned: when streams were read
  type: list
  elements: dict
  sample:
    - stream: APP/ORDERS
      leader: n1
      members: [n1, n2, n3, n4]
      lag: {n2: 0, n3: 0, n4: 104}
      waiting_for: [stream APP/ORDERS (R3) is being moved or reconfigured (leader n1)]
      status: waiting for peer to catch up before adding it
      done: false
      elapsed: 0.5
repaired:
  description: Streams whose replicas were restored because of O(repair).
  returned: when streams were read
  type: list
  elements: str
  sample: []
waited:
  description: Seconds that the moves took.
  returned: when streams were read
  type: float
  sample: 2.1
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.collection_module import run
from ..module_utils.module import ACCOUNT_SPEC, fail, make_module, with_accounts
from ..module_utils.nats.accounts import Connections
from ..module_utils.nats.client import NatsFailure
from ..module_utils.nats.jetstream_api import require_name
from ..module_utils.nats.meta_api import MetaApi
from ..module_utils.nats.model import Cluster
from ..module_utils.placement.known_servers import known_servers, unknown_servers
from ..module_utils.placement.replica_moves import (
    MoveJob,
    Mover,
    MoveRequest,
    MovesProgress,
    hosted_streams,
    jobs_between,
    joined,
    predicted,
    require_leaders,
    short_failure,
    stalled_failure,
    wrong_target,
)
from ..module_utils.placement.stream_state import read_state, unsettled
from ..module_utils.progress import PROGRESS_SPEC
from ..module_utils.waiting import positive, wait_until


def streams_to_leave(connections: Connections, cluster: Cluster, params: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return account and name of the selected streams: one stream, or every stream that the server hosts or that is
    moving.

    Raises NatsFailure if an account has no user, or if no server reports the members of one of its streams.
    """
    account = None if params["all_accounts"] else connections.identity(params["account"])
    if params["stream"]:
        return [(str(account), require_name("stream", params["stream"]))]
    server = params["server_name"]
    hosted = [item for item in hosted_streams(cluster, server) if account in (None, item.account)]
    accounts = connections.accounts if account is None else (account,)
    require_leaders(connections, [*accounts, *(stream.account for stream in hosted)], server)
    return [(stream.account, stream.name) for stream in hosted]


def cancel(connections: Connections, params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Return the result of cancelling the stream's move, if there is one."""
    api = connections.account(params["account"])
    account, stream = connections.identity(params["account"]), require_name("stream", params["stream"])

    before = read_state(api, stream, {})
    if not before.moving:
        return result([], {before.label: before.as_dict()}, {before.label: before.as_dict()}, False)
    after, waited = before, 0.0
    if not check_mode:
        MetaApi(connections.own).cancel_move(account, stream)
        seen = wait_until(lambda: read_state(api, stream, {}), lambda now: not unsettled(now), params["wait_timeout"])
        after, waited = seen.value, seen.waited
        if not seen.done:
            raise NatsFailure(
                "move_not_done",
                f"the move of stream {after.label} was cancelled, but after {waited:g} s: {'; '.join(unsettled(after))}",
                account=account,
            )
    summary = result([], {before.label: before.as_dict()}, {after.label: after.as_dict()}, True)
    return {**summary, "waited": waited}


def result(
    jobs: Sequence[MoveJob], before: Mapping[str, Any], after: Mapping[str, Any], changed: bool
) -> dict[str, Any]:
    """Return the part of the result that every run returns."""
    return {
        "changed": changed,
        "before": dict(before),
        "after": dict(after),
        "diff": {"before": dict(before), "after": dict(after)},
        "methods": {job.state.label: job.method for job in jobs if job.method},
        "moving": False,
        "progress": [],
        "repaired": [],
        "waited": 0.0,
    }


def repair_short(
    module: AnsibleModule, mover: Mover, cluster: Cluster, short: Sequence[MoveJob], source: str
) -> list[str]:
    """Give streams with missing replicas all their replicas again; return their labels."""
    for job in short:
        job.state = mover.repair(job.state, cluster, module.params["wait_timeout"])
        if job.state.hosted_by(source):
            module.warn(
                f"stream {job.state.label} has its replicas again, one of them on {source}: no other server was selected"
            )
    return [job.state.label for job in short]


def repair_failed(mover: Mover, outcome: MovesProgress, timeout: float) -> list[str]:
    """Repair the streams that lost a replica during the move; return their labels."""
    repaired = []
    for job in outcome.jobs:
        if job.failure and job.failure.code == "group_short":
            job.state = mover.repair(job.state, mover.read_cluster(assets=False), timeout)
            job.failure.description += f" | It was repaired: its members are {', '.join(job.state.group.members)}"
            repaired.append(job.state.label)
    return repaired


def ensure(module: AnsibleModule, connections: Connections) -> dict[str, Any]:
    """Return the module's result. The result of a failure lists the completed steps."""
    params = module.params
    timeout = positive(params["wait_timeout"], "wait_timeout")
    if params["concurrency"] < 1:
        raise NatsFailure("invalid_option", f"concurrency: must be at least 1, not {params['concurrency']}")
    if params["state"] == "cancelled":
        return cancel(connections, params, module.check_mode)
    moved = params["state"] == "moved"
    source = params["from"] if moved else params["server_name"]
    request = MoveRequest(source, params["to"] if moved else None, params["method"], params["accept_loss"])
    mover = Mover(connections, request)
    cluster = mover.read_cluster(account=params["account"])
    unknown = unknown_servers([source, *([params["to"]] if moved else [])], known_servers(cluster))
    if unknown:
        raise NatsFailure("invalid_option", f"{'from, to' if moved else 'server_name'}: {unknown}")
    jobs = mover.prepare(cluster, streams_to_leave(connections, cluster, params))
    before = {job.state.label: job.state.as_dict() for job in jobs}
    needed = jobs_between(jobs, source, params["to"]) if moved else jobs
    failures = [job.failure for job in needed if job.failure]
    if failures:
        fail(module, joined(failures), **result(jobs, before, before, False))
    short = [job for job in jobs if job.state.short]
    if short and not params["repair"]:
        fail(module, joined([short_failure(job.state) for job in short]), **result(jobs, before, before, False))
    hosting = [job for job in needed if job.state.hosted_by(source)]
    if module.check_mode:
        return result(
            hosting, before, {job.state.label: predicted(job, source) for job in jobs}, bool(hosting or short)
        )

    began = time.monotonic()
    repaired = repair_short(module, mover, cluster, short, source)
    outcome = mover.carry_out(
        [job for job in needed if job not in short],
        timeout,
        params["concurrency"],
        params["wait"],
        params["progress"],
    )
    if params["repair"]:
        repaired += repair_failed(mover, outcome, timeout)
    after = {job.state.label: job.state.as_dict() for job in jobs}
    changed = before != after or any(job.started for job in jobs)
    summary = {
        **result(jobs, before, after, changed),
        "moving": bool(outcome.pending),
        "progress": outcome.progress,
        "repaired": repaired,
        "waited": round(time.monotonic() - began, 3),
    }
    if outcome.failures:
        fail(module, joined(outcome.failures), **summary)
    if params["wait"] and outcome.pending:
        fail(module, stalled_failure(outcome, timeout), **summary)
    if moved and not outcome.pending:
        elsewhere = [failure for job in jobs if (failure := wrong_target(job, params["to"])) is not None]
        if elsewhere:
            fail(module, joined(elsewhere), **summary)
    return summary


def main() -> None:
    module = make_module(
        {
            "state": {"type": "str", "choices": ["absent", "moved", "cancelled"], "default": "absent"},
            "stream": {"type": "str"},
            "all_accounts": {"type": "bool", "default": False},
            "server_name": {"type": "str"},
            "from": {"type": "str"},
            "to": {"type": "str"},
            "method": {"type": "str", "choices": ["auto", "remove", "evacuate"], "default": "auto"},
            "accept_loss": {"type": "bool", "default": False},
            "repair": {"type": "bool", "default": False},
            "concurrency": {"type": "int", "default": 2},
            "wait": {"type": "bool", "default": True},
            "wait_timeout": {"type": "float", "default": 600},
            **ACCOUNT_SPEC,
            **PROGRESS_SPEC,
        },
        required_if=[
            ("state", "absent", ["server_name"]),
            ("state", "moved", ["stream", "account", "from", "to"]),
            ("state", "cancelled", ["stream", "account"]),
        ],
        mutually_exclusive=[("account", "all_accounts")],
        required_one_of=[("account", "all_accounts")],
    )
    run(module, with_accounts, lambda connections: ensure(module, connections))


if __name__ == "__main__":
    main()
