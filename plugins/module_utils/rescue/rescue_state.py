# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The data of a rescue: the hosts and streams, the operator's options, the fate of each stream, and the plan. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from ..batch import Batch, number_batches
from ..nats.account_names import account_labels
from ..nats.model import Cluster
from ..screen import Page

#: The steps for servers before 2.15; each is a task file of the role nats_cluster, in the folder rescue.
STOP, COPY, BRING, SAVE, START, RESTORE = "stop", "copy", "bring", "save", "start", "restore_streams"


@dataclass(frozen=True)
class Stored:
    """The data of a stream on one server, as reported by the server or read from its disk. `last_seq`: the last
    sequence, None if it cannot be read."""

    messages: int | None
    last_seq: int | None
    encrypted: bool = False


#: (account, stream) → server → stored data.
Holdings = Mapping[tuple[str, str], Mapping[str, Stored]]


@dataclass(frozen=True)
class RescueHost:
    """The state of a host, read over SSH. `fenced`: the reason why its server cannot start, empty if it can; `failure`:
    the reason why a reachable host could not be read. `listening`: ports of its server that accept connections from the
    controller. `copied`: whether its store has been copied to `copy`; `aside`: whether the store has been renamed.
    `host` is its name in the inventory."""

    server: str
    reached: bool = False
    running: bool = False
    fenced: str = ""
    failure: str = ""
    listening: tuple[str, ...] = ()
    streams: Mapping[tuple[str, str], Stored] = field(default_factory=dict)
    copied: bool = False
    aside: bool = False
    host: str = ""
    unit: str = ""
    config: str = "/etc/nats-server/nats-server.conf"
    store_dir: str = "/var/lib/nats"
    copy: str = "/var/lib/nats-rescue"

    @property
    def address(self) -> str:
        return self.host or self.server


def host_state(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of a host for the option `hosts` of the module nats_rescue. `found`: the result of the module
    nats_server_host_info with the subset `rescue`, which may have failed."""
    reached = not found.get("unreachable")
    state = found.get("rescue") or {}
    failed = reached and not state
    return {
        "reached": reached,
        "running": bool(state.get("running")),
        "fenced": str(state.get("fenced") or ""),
        "failure": str(found.get("msg") or "the module that reads it ended without a message") if failed else "",
        "streams": list(state.get("streams") or ()),
        "copied": bool(state.get("copied")),
        "aside": bool(state.get("aside")),
    }


@dataclass(frozen=True)
class RescueOptions:
    """The options of a rescue. `dead`: servers that will not return. `lost`: patterns of ACCOUNT/STREAM and
    ACCOUNT/STREAM/CONSUMER that may be lost. `begun`: the dead servers of an interrupted rescue, which may already have
    removed some of them. `copies`: the directory for the transferred copies of stores."""

    dead: frozenset[str]
    lost: Sequence[str] = ()
    begun: frozenset[str] = frozenset()
    copies: str = "/srv/nats-rescue"


@dataclass(frozen=True)
class Sight:
    """The known state of the cluster. `held`: the data of the responding servers. `assigned`: names of all streams and
    consumers in the meta group's log, None if there is no meta leader. `unasked`: accounts with JetStream that could
    not be queried."""

    cluster: Cluster
    held: Holdings
    hosts: Mapping[str, RescueHost] = field(default_factory=dict)
    assigned: frozenset[str] | None = None
    unasked: frozenset[str] = frozenset()

    @property
    def silent(self) -> tuple[str, ...]:
        """Return the servers that responded but did not report their streams."""
        return tuple(sorted(server.name for server in self.cluster.servers if server.jetstream and not server.summary))

    def shown(self, name: str) -> str:
        """Return the display name of an account, stream or consumer, given its name with the account's identity."""
        account, slash, rest = name.partition("/")
        return f"{account_labels(self.cluster.accounts).get(account, account)}{slash}{rest}"

    def is_lost(self, name: str, lost: Sequence[str]) -> bool:
        """Return whether a stream or consumer was named as lost, by its account's name or identity."""
        return any(fnmatchcase(text, pattern) for text in (name, self.shown(name)) for pattern in lost)


@dataclass(frozen=True)
class Fate:
    """The fate of a stream. `holders`: responding servers that have the stream, with the last sequence of each;
    `counts`: the numbers of messages on the most complete of them; `dead`: the other members. `stalled`: whether it has
    lost its majority."""

    account: str
    stream: str
    num_replicas: int
    holders: Mapping[str, int]
    counts: Mapping[str, int]
    dead: tuple[str, ...]
    stalled: bool
    in_memory: bool = False
    account_name: str = ""

    @property
    def name(self) -> str:
        return f"{self.account}/{self.stream}"

    @property
    def label(self) -> str:
        """Return the display name of the stream, such as APP/ORDERS."""
        return f"{self.account_name or self.account}/{self.stream}"

    @property
    def last_seq(self) -> int:
        """Return the last sequence that will be restored."""
        return max(self.holders.values(), default=0)

    @property
    def messages(self) -> int:
        """Return the maximum number of messages that will be restored."""
        return max(self.counts.values(), default=0)

    def as_dict(self) -> dict[str, Any]:
        """Return the fate for a module's result."""
        return {
            "account": self.account,
            "account_name": self.account_name or self.account,
            "stream": self.stream,
            "num_replicas": self.num_replicas,
            "holders": dict(self.holders),
            "messages": self.messages,
            "last_seq": self.last_seq,
            "dead": list(self.dead),
            "stalled": self.stalled,
        }


@dataclass(frozen=True)
class RescueStep:
    """One step: its `kind`, the servers that it concerns, the hosts that act in it, and the commands that perform it by
    hand."""

    kind: str
    does: str
    servers: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


@dataclass(frozen=True)
class RescuePlan:
    """The remaining data, the loss, the refusals of a rescue, and its steps. There are no steps if nothing has to be
    rescued. `fresh`: whether the data moves to a fresh cluster, because the servers are older than 2.15."""

    survivors: tuple[str, ...] = ()
    removals: tuple[str, ...] = ()
    quorum: int = 0
    size: int = 0
    fates: tuple[Fate, ...] = ()
    lost: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    steps: tuple[RescueStep, ...] = ()
    page: Page = field(default_factory=Page)
    fresh: bool = False

    @property
    def due(self) -> bool:
        """Return whether there are steps to take, and no refusals."""
        return bool(self.steps) and not self.refusals

    @property
    def batches(self) -> list[dict[str, Any]]:
        """Return the steps as documents, each with its `commands`."""
        return number_batches(
            [
                Batch(step.does, step.kind, step.hosts, step.servers, details={"commands": list(step.commands)})
                for step in self.steps
            ]
        )

    @property
    def next_step(self) -> str:
        """Return the operator's next action after the rescue."""
        replicas = (
            "then raise the replicas of the streams with replica_count, and delete the copies and the old stores"
            if self.fresh
            else "every stream then gets its missing replicas automatically"
        )
        return (
            "Next: fence or wipe the dead servers, remove them from the inventory, and add servers with scale_out "
            f"(docs/rescue.md); {replicas}."
        )
