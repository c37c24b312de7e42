#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_replica_moves
short_description: Move replicas of JetStream streams between servers, several at a time
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Carries out moves such as those of M(natsops.jetstream.nats_rebalance_plan), in order, at most O(concurrency) at a
    time and one at a time for each stream. The data is copied before a replica is removed, as in
    M(natsops.jetstream.nats_stream_peer) with C(state=moved), and each move is checked again immediately before it
    starts. A move is complete when the stream and its consumers are in step without the former server.
  - The module skips completed moves and waits for moves in progress, so the next run continues an interrupted run.
  - If a move in the first round is impossible, the task fails before anything is changed. After a failure, no further
    moves are started.
  - Needs a user of the system account, and O(account_users) with a user of each account that owns one of the streams.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
  - natsops.jetstream.accounts
  - natsops.jetstream.progress
options:
  moves:
    description:
      - The moves, each with C(account), C(stream), C(from) and C(to). Other keys of a plan are ignored.
    type: list
    elements: dict
    required: true
  concurrency:
    description:
      - Maximum number of moves that run at the same time.
    type: int
    default: 1
  wait_timeout:
    description:
      - Seconds within which all moves must be complete. Moves that have started continue after this time.
    type: float
    default: 3600
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
seealso:
  - module: natsops.jetstream.nats_rebalance_plan
  - module: natsops.jetstream.nats_stream_peer
"""

EXAMPLES = r"""
- name: Move two replicas to n4-c1 at the same time
  natsops.jetstream.nats_replica_moves:
    moves:
      - {account: APP, stream: ORDERS, from: n1-c1, to: n4-c1}
      - {account: APP, stream: EVENTS, from: n2-c1, to: n4-c1}
    concurrency: 2
    account_users: "{{ nats_account_users }}"
    context: c1-sys
"""

RETURN = r"""
moved:
  description: The completed moves, or in check mode the planned ones, with the size of the stream in C(bytes) and the
    duration of the move in C(seconds).
  returned: when streams were read
  type: list
  elements: dict
  sample: [{account: APP, stream: ORDERS, from: n1-c1, to: n4-c1, bytes: 420000, seconds: 2.0}]
bytes_moved:
  description: Bytes copied by the completed moves.
  returned: when streams were read
  type: int
  sample: 420000
bytes_per_second:
  description: Bytes per second that one move copied; use this value for the option C(throughput) of a plan. V(0) if
    nothing moved.
  returned: when streams were read
  type: int
  sample: 210000
waited:
  description: Seconds that the moves took.
  returned: when streams were read
  type: float
  sample: 2.0
progress:
  description: The changes observed during the wait, in the same form as in M(natsops.jetstream.nats_stream_peer).
  returned: when streams were read
  type: list
  elements: dict
  sample: []
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.collection_module import run
from ..module_utils.module import ACCOUNT_USERS_SPEC, fail, make_module, with_accounts
from ..module_utils.nats.accounts import Connections
from ..module_utils.nats.client import NatsFailure
from ..module_utils.nats.jetstream_api import require_name
from ..module_utils.placement.rebalance import ReplicaMove, waves
from ..module_utils.placement.replica_moves import (
    MoveJob,
    Mover,
    MoveRequest,
    carry_out,
    jobs_between,
    joined,
    short_failure,
    stalled_failure,
    wrong_target,
)
from ..module_utils.progress import PROGRESS_SPEC
from ..module_utils.waiting import positive

_KEYS = ("account", "stream", "from", "to")


def ensure(module: AnsibleModule, connections: Connections) -> dict[str, Any]:
    """Return the module's result once all moves are done. The result of a failure lists the completed moves."""
    params = module.params
    timeout = positive(params["wait_timeout"], "wait_timeout")
    if params["concurrency"] < 1:
        raise NatsFailure("invalid_option", f"concurrency: must be at least 1, not {params['concurrency']}")
    moves = _moves(params["moves"])
    deadline = time.monotonic() + timeout
    run = _MovesRun()
    # One round never moves a stream twice, so each move is checked against the current state.
    for turn in waves(moves, max(1, len(moves))):
        pairs = _prepared(module, connections, turn, run)
        if module.check_mode:
            run.moved += [_done(move, job) for _mover, job, move in pairs]
        elif pairs:
            _carry_out(module, pairs, max(1.0, deadline - time.monotonic()), run)
    return run.result()


@dataclass
class _MovesRun:
    """The progress of a run's moves."""

    moved: list[dict[str, Any]] = field(default_factory=list)
    progress: list[dict[str, Any]] = field(default_factory=list)
    started: bool = False
    waited: float = 0.0

    def result(self) -> dict[str, Any]:
        size, seconds = (sum(move[key] for move in self.moved) for key in ("bytes", "seconds"))
        return {
            "changed": self.started or bool(self.moved),
            "moved": self.moved,
            "bytes_moved": size,
            "bytes_per_second": round(size / seconds) if seconds else 0,
            "waited": round(self.waited, 3),
            "progress": self.progress,
            "diff": {
                "before": {_label(move): move["from"] for move in self.moved},
                "after": {_label(move): move["to"] for move in self.moved},
            },
        }


def _moves(given: Sequence[Mapping[str, Any]]) -> list[ReplicaMove]:
    """Return the requested moves. Raises NatsFailure if one of them is incomplete."""
    moves = []
    for index, item in enumerate(given):
        missing = [key for key in _KEYS if not item.get(key)]
        if missing:
            raise NatsFailure("invalid_option", f"moves[{index}]: {', '.join(missing)} is missing")
        account, stream, source, target = (str(item[key]) for key in _KEYS)
        moves.append(ReplicaMove(account, require_name("stream", stream), source, target, 0))
    return moves


def _prepared(
    module: AnsibleModule, connections: Connections, turn: Sequence[ReplicaMove], run: _MovesRun
) -> list[tuple[Mover, MoveJob, ReplicaMove]]:
    """Return the moves to run, each with its mover and job. Ends the module with a failure if a move is impossible."""
    pairs = []
    failures: list[NatsFailure] = []
    planned = {(move["account"], move["stream"]) for move in run.moved} if module.check_mode else set()
    for move in turn:
        mover = Mover(connections, MoveRequest(move.source, move.target))
        cluster = mover.read_cluster(assets=False)
        (job,) = mover.prepare(cluster, [(move.account, move.stream)])
        if (move.account, move.stream) in planned:
            # In check mode the result of an earlier move of this stream does not exist yet, so it cannot be checked.
            pairs.append((mover, job, move))
            continue
        try:
            needed = jobs_between([job], move.source, move.target)
        except NatsFailure as failure:
            failures.append(failure)
            continue
        if needed and job.state.short:
            failures.append(short_failure(job.state))
        elif needed and job.failure is not None:
            failures.append(job.failure)
        elif needed:
            pairs.append((mover, job, move))
    if failures:
        fail(module, joined(failures), **run.result())
    return pairs


def _carry_out(
    module: AnsibleModule, pairs: Sequence[tuple[Mover, MoveJob, ReplicaMove]], timeout: float, run: _MovesRun
) -> None:
    """Carry out the moves and record the completed ones in `run`. Ends the module with a failure if a move fails."""
    params = module.params
    jobs = [(mover, job) for mover, job, _move in pairs]
    outcome = carry_out(jobs, timeout, params["concurrency"], progress=params["progress"])
    run.progress += outcome.progress
    run.waited += outcome.waited
    run.started = run.started or any(job.started for job in outcome.jobs)
    settled = [(job, move) for _mover, job, move in pairs if job.settled]
    elsewhere = [failure for job, move in settled if (failure := wrong_target(job, move.target)) is not None]
    run.moved += [_done(move, job) for job, move in settled if move.target in job.state.group.members]
    if outcome.failures or elsewhere:
        fail(module, joined([*outcome.failures, *elsewhere]), **run.result())
    if outcome.pending:
        fail(module, stalled_failure(outcome, timeout), **run.result())


def _done(move: ReplicaMove, job: MoveJob) -> dict[str, Any]:
    return {
        "account": move.account,
        "stream": move.stream,
        "from": move.source,
        "to": move.target,
        "bytes": job.state.stream.size,
        "seconds": job.took,
    }


def _label(move: Mapping[str, Any]) -> str:
    return f"{move['account']}/{move['stream']} ({move['from']})"


def main() -> None:
    module = make_module(
        {
            **ACCOUNT_USERS_SPEC,
            **PROGRESS_SPEC,
            "moves": {"type": "list", "elements": "dict", "required": True},
            "concurrency": {"type": "int", "default": 1},
            "wait_timeout": {"type": "float", "default": 3600},
        }
    )
    run(module, with_accounts, lambda connections: ensure(module, connections))


if __name__ == "__main__":
    main()
