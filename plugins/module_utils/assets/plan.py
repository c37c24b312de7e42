# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The difference between documents of assets and the live assets of their accounts. Pure.

A plan never replaces an asset: a change that servers cannot make is refused."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..documents import MARK_HASH, owning_document
from ..nats.replies import consumer_group, stream_group
from ..screen import printable
from ..subjects import subjects_collide
from ..units import counted
from . import change_rules
from . import config as rules
from .change_rows import change_rows
from .costs import Cost, Counts, consumer_costs, consumer_deletion_costs, forgotten, lowered, stream_costs
from .document import (
    ABSENT,
    ALL,
    NEVER,
    OWN,
    STREAM,
    AssetsDocument,
    DesiredConsumer,
    DesiredEntry,
    DesiredStream,
    collisions,
    copied_streams,
    overlaps,
)
from .order import CHANGE, CONSUMER, CREATE, DELETE, ENTRY, PHASES, Action, ordered_steps, stream_name
from .ownership import content_hash, marks
from .room import Need, refusals, shortages

Info = Mapping[str, Any]
#: The format version of the plan.
VERSION = 1
SAME, EXTRA, FOREIGN, CONFIRM, REFUSED = "same", "extra", "foreign", "needs confirmation", "refused"
STATES = (REFUSED, CONFIRM, DELETE, CHANGE, CREATE, FOREIGN, EXTRA, SAME)
#: Largest share of a document's live assets that a plan deletes without the name of each.
_MOST_DELETED = 0.2
_RESERVED = ("KV_", "OBJ_", "$MQTT_")
#: Fields of a stream that each need an update of their own, in this order (10123).
OWN_UPDATES = ("placement", "num_replicas")


@dataclass(frozen=True)
class LiveEntry:
    """The last message of a key. `revision`: its sequence. `value`: None after a deletion."""

    revision: int
    value: bytes | None


@dataclass(frozen=True)
class LiveAssets:
    """The live assets of an account. `cluster`: of the connected server. `unknown`: streams without a leader and the
    reason; `unknown_consumers`: likewise, by STREAM/CONSUMER. `usage`: the reply to `$JS.API.INFO`. `entries`: by stream
    and key. `counts`: by stream. `servers`: name, cluster and tags of each server, None if they are unknown."""

    cluster: str
    release: rules.Release
    streams: Mapping[str, Info]
    consumers: Mapping[str, Mapping[str, Info]] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    unknown_consumers: Mapping[str, str] = field(default_factory=dict)
    usage: Info = field(default_factory=dict)
    entries: Mapping[tuple[str, str], LiveEntry] = field(default_factory=dict)
    counts: Mapping[str, Counts] = field(default_factory=dict)
    servers: Sequence[tuple[str, str, frozenset[str]]] | None = None


@dataclass
class PlanRow:
    """One asset of the plan. `action`: create, change, delete, or empty. `target`: the planned configuration of a stream
    or consumer, in normal form."""

    kind: str
    name: str
    document: str
    action: str = ""
    state: str = SAME
    changes: list[dict[str, Any]] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    revision: str | None = None
    phase: str = ""
    target: rules.Config | None = None

    def as_dict(self, account: str) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "name": printable(self.name),
            "account": account,
            "document": self.document,
            "state": self.state,
            "action": self.action,
            "changes": self.changes,
            "costs": [one.as_dict() for one in self.costs],
            "problems": [printable(one) for one in self.problems],
            "notes": [printable(one) for one in self.notes],
            "revision": self.revision,
        }


@dataclass(frozen=True)
class AccountPlan:
    """The plan of one account. `steps`: the accepted actions in their order."""

    rows: Sequence[PlanRow]
    steps: Sequence[dict[str, Any]]
    problems: Sequence[str]


def account_plan(
    documents: Sequence[AssetsDocument], live: LiveAssets, confirmed: Collection[str], deletable: Collection[str]
) -> AccountPlan:
    """Return the plan of the documents of one account. `confirmed`: names of assets whose costs are accepted;
    `deletable`: names of assets that may be deleted."""
    planner = _Planner(documents, live, confirmed, deletable)
    rows = planner.rows()
    return AccountPlan(rows, planner.steps, planner.problems)


def make_plan(
    documents: Sequence[AssetsDocument],
    lives: Mapping[str, LiveAssets],
    confirmed: Collection[str],
    deletable: Collection[str],
) -> dict[str, Any]:
    """Return the plan. `lives`: by account; the other arguments: as for `account_plan`."""
    return joined_plan(
        documents,
        {
            account: account_plan([one for one in documents if one.account == account], live, confirmed, deletable)
            for account, live in lives.items()
        },
    )


def joined_plan(documents: Sequence[AssetsDocument], accounts: Mapping[str, AccountPlan]) -> dict[str, Any]:
    """Return the plan of several accounts as a document."""
    problems = [*collisions(documents), *(one for found in accounts.values() for one in found.problems)]
    rows = [row.as_dict(account) for account, found in accounts.items() for row in found.rows]
    steps = [{**step, "account": account} for account, found in accounts.items() for step in found.steps]
    content = {
        "documents": [
            {"id": one.id, "cluster": one.cluster, "account": one.account, "hash": one.digest} for one in documents
        ],
        "assets": rows,
        "problems": [printable(one) for one in problems],
    }
    # Costs grow while messages arrive, so they are left out.
    seen = [{key: row[key] for key in ("account", "kind", "name", "state", "changes", "revision")} for row in rows]
    return {"version": VERSION, **content, "steps": steps, "fingerprint": content_hash([content["documents"], seen])}


def questions(documents: Sequence[AssetsDocument], live: LiveAssets) -> dict[str, tuple[bool, int]]:
    """Return the counts that the costs of an account's changes need: stream → whether its subjects must be counted, and
    the new max_age in nanoseconds if it becomes lower, otherwise 0."""
    planner = _Planner(documents, live, (), ())
    found = {}
    for document in documents:
        for stream in document.streams.values():
            info = live.streams.get(stream.name)
            if info is None or not (info.get("state") or {}).get("messages"):
                continue
            try:
                old, new = planner.stream_configs(document, stream, info)
            except rules.OptionError:
                continue
            age = new["max_age"] if lowered(old, new, "max_age") else 0
            if age or change_rules.asks_for_subjects(old, new):
                found[stream.name] = (change_rules.asks_for_subjects(old, new), age)
    return found


def revision(info: Info) -> str:
    """Return the revision of a live stream or consumer: its configuration, creation, and whether it has messages. The
    metadata of servers is only in some replies."""
    state = info.get("state") or {}
    return content_hash([rules.clean(info["config"]), info.get("created"), bool(state.get("messages"))])[:16]


class _Planner:
    """Compares the documents of one account with its live assets."""

    def __init__(
        self,
        documents: Sequence[AssetsDocument],
        live: LiveAssets,
        confirmed: Collection[str],
        deletable: Collection[str],
    ) -> None:
        self._documents = documents
        self._live = live
        self._confirmed = confirmed
        self._deletable = deletable
        self._desired = {
            name: (document, stream) for document in documents for name, stream in document.streams.items()
        }
        self._old: dict[str, rules.Config] = {}
        self._new: dict[str, rules.Config] = {}
        self.problems: list[str] = []
        self.steps: list[dict[str, Any]] = []

    def rows(self) -> list[PlanRow]:
        """Return the rows of all assets, and set `problems` and `steps`."""
        for document in self._documents:
            if document.cluster != self._live.cluster:
                self.problems.append(
                    f"document {document.id} is for cluster {document.cluster}, but the connected server is in "
                    f"{self._live.cluster or 'no cluster'}"
                )
        found: list[PlanRow] = []
        for document, stream in self._desired.values():
            row = self._stream_row(document, stream)
            found.append(row)
            found += self._consumer_rows(document, stream, row)
            found += self._entry_rows(document, stream, row)
        found += self._extra_streams()
        self._check_overlaps(found)
        self._check_room(found)
        for row in found:
            self._finish(row)
        self._check_deletions(found)
        self._order(found)
        found.sort(key=lambda row: (STATES.index(row.state), row.kind, row.name))
        return found

    # --- Streams ------------------------------------------------------------------------------------------------------

    def stream_configs(
        self, document: AssetsDocument, stream: DesiredStream, info: Info | None
    ) -> tuple[rules.Config, rules.Config]:
        """Return the current and the planned configuration of a stream. Raises OptionError if the server would override
        an option."""
        old = _live_config(info)
        new = stream.effective(old if info else None, self._live.release, self._origin_direct(stream))
        new["metadata"] = {**new["metadata"], **marks(document, rules.STREAM_FIELDS, new)}
        return old, new

    def _origin_direct(self, stream: DesiredStream) -> bool | None:
        name = rules.origin(stream.config)
        if name in self._desired:
            return bool(self._desired[name][1].config["allow_direct"])
        info = self._live.streams.get(name)
        return bool(info["config"].get("allow_direct")) if info else None

    def _stream_row(self, document: AssetsDocument, stream: DesiredStream) -> PlanRow:
        info = self._live.streams.get(stream.name)
        row = PlanRow(stream.kind, stream.label, document.id, revision=revision(info) if info else None)
        row.phase = _stream_phase(stream, info is not None)
        override = ""
        try:
            old, new = self.stream_configs(document, stream, info)
        except rules.OptionError as error:
            old, override = _live_config(info), str(error)
            new = old if info else stream.config
        self._old[stream.name], self._new[stream.name] = old, new
        row.target = new
        if stream.name in self._live.unknown:
            row.problems.append(f"its state is unknown: {self._live.unknown[stream.name]}")
            return row
        if override:
            row.problems.append(override)
            return row
        row.problems += self._too_new(rules.STREAM_FIELDS, {key: new[key] for key in stream.given})
        if info is None:
            row.action = CREATE
            row.changes = change_rows(rules.STREAM_FIELDS, None, rules.shown(rules.STREAM_FIELDS, new))
            row.problems += [] if not new["sealed"] else ["a new stream cannot be sealed: it could store no messages"]
            row.problems += self._misplaced(new)
            if self._live.cluster and "num_replicas" not in stream.given and new["num_replicas"] == 1:
                row.notes.append(
                    "it gets one replica and is lost with its server: set replicas to 3, or to 1 to accept this"
                )
            return row
        if self._foreign(
            row, document, old, stream.name, stream.name in document.adopt or stream.label in document.adopt
        ):
            return row
        keys = _differing(old, new)
        row.changes = change_rows(rules.STREAM_FIELDS, old, {key: new[key] for key in keys})
        if not keys:
            return row
        row.action = CHANGE
        fixed = change_rules.fixed_in_stream(old, {**old, **{key: new[key] for key in keys}}, self._live.release)
        row.problems += [f"{one}; a plan never replaces a stream" for one in fixed]
        if old["sealed"]:
            row.problems.append("the stream is sealed: set sealed: true in the document, or remove the stream from it")
        if set(keys) & set(OWN_UPDATES):
            reason = change_rules.unsettled(stream_group("", info), short=True)
            row.problems += [f"it cannot be scaled or moved now: {reason}"] if reason else []
            row.problems += self._misplaced(new)
        if set(OWN_UPDATES) <= set(keys):
            row.notes.append("placement and replicas change in two updates")
        consumers = list(self._live.consumers.get(stream.name, {}).values())
        row.costs = stream_costs(old, new, info, consumers, self._live.counts.get(stream.name, Counts()))
        if 0 < new["max_consumers"] < len(consumers):
            row.problems.append(
                f"max_consumers: {new['max_consumers']}, but it has {counted(len(consumers), 'consumer')}"
            )
        if old["metadata"].get(MARK_HASH) not in (None, marks(document, rules.STREAM_FIELDS, old)[MARK_HASH]):
            row.notes.append("it was changed outside the document")
        return row

    def _too_new(self, fields: Sequence[rules.ConfigKey], config: rules.Config) -> list[str]:
        release = self._live.release
        missing = rules.too_new(fields, config, release)
        return [f"{one}; the oldest server supports {release[0]}.{release[1]}" for one in missing]

    def _misplaced(self, new: rules.Config) -> list[str]:
        """Return why the servers cannot place a stream."""
        servers = self._live.servers
        if servers is None:
            return []
        placement = new["placement"] or {}
        cluster = placement.get("cluster") or self._live.cluster
        tags = set(placement.get("tags") or ())
        suitable = [name for name, home, own in servers if home == cluster and tags <= own]
        if len(suitable) >= new["num_replicas"]:
            return []
        what = f" with the tags {', '.join(sorted(tags))}" if tags else ""
        needed = counted(new["num_replicas"], "server")
        return [f"it needs {needed}{what} in cluster {cluster}, which has {len(suitable)}"]

    def _foreign(self, row: PlanRow, document: AssetsDocument, old: rules.Config, stream: str, adopted: bool) -> bool:
        """Return whether the document must not change an existing asset, and set the row's state."""
        metadata = old["metadata"]
        if owning_document(metadata) == document.id:
            return False
        whose = change_rules.owner("", old, {})
        if whose:
            row.state = FOREIGN
            row.notes.append(f"it belongs to {whose}")
            return True
        if not adopted:
            row.problems.append("it exists, but no document owns it; list it under adopt to take it over")
            return True
        row.notes.append("adopted")
        return False

    # --- Consumers ----------------------------------------------------------------------------------------------------

    def _consumer_rows(self, document: AssetsDocument, stream: DesiredStream, owner: PlanRow) -> Iterator[PlanRow]:
        live = self._live.consumers.get(stream.name, {})
        for consumer in stream.consumers.values():
            yield self._consumer_row(document, stream, consumer, live.get(consumer.name), owner)
        if stream.name not in self._live.streams or owner.state == FOREIGN:
            return
        kept = len(live)
        for name, info in live.items():
            if name in stream.consumers or is_ephemeral(info):
                continue
            row = PlanRow(CONSUMER, f"{stream.name}/{name}", "", revision=revision(info), phase=PHASES[0])
            old = rules.normal_config(rules.CONSUMER_FIELDS, info["config"])
            self._prune(row, old["metadata"], stream.name)
            if row.action == DELETE:
                kept -= 1
                messages = (self._live.streams[stream.name].get("state") or {}).get("messages", 0)
                row.costs += consumer_deletion_costs(info, self._old[stream.name], kept, messages)
            yield row

    def _consumer_row(
        self,
        document: AssetsDocument,
        stream: DesiredStream,
        consumer: DesiredConsumer,
        info: Info | None,
        owner: PlanRow,
    ) -> PlanRow:
        name = f"{stream.name}/{consumer.name}"
        row = PlanRow(CONSUMER, name, document.id, revision=revision(info) if info else None, phase=PHASES[3])
        if name in self._live.unknown_consumers or stream.name in self._live.unknown:
            row.problems.append(
                f"its state is unknown: {self._live.unknown_consumers.get(name, 'its stream has no leader')}"
            )
            return row
        if owner.state == FOREIGN or (owner.problems and not info):
            row.problems.append(f"its stream {stream.name} is {owner.state if owner.state == FOREIGN else REFUSED}")
            return row
        stream_config = self._new[stream.name]
        try:
            new = rules.expected_consumer(consumer.config, consumer.given, stream_config)
        except rules.OptionError as error:
            row.problems.append(str(error))
            return row
        old = rules.normal_config(rules.CONSUMER_FIELDS, info["config"] if info else {})
        # A pause is an operation and not part of the document, unless the document sets it.
        if "pause_until" not in consumer.given:
            new["pause_until"] = old["pause_until"]
        elif info and info.get("ts"):
            old, new = (rules.without_past_pause(one, info["ts"]) for one in (old, new))
        new["metadata"] = {**new["metadata"], **marks(document, rules.CONSUMER_FIELDS, new)}
        row.target = new
        row.problems += self._too_new(rules.CONSUMER_FIELDS, {key: new[key] for key in consumer.given})
        if info is None:
            row.action = CREATE
            row.changes = change_rows(rules.CONSUMER_FIELDS, None, rules.shown(rules.CONSUMER_FIELDS, new))
            return row
        adopted = bool({name, stream.name} & document.adopt)
        if self._foreign(row, document, old, name, adopted):
            return row
        keys = _differing(old, new)
        row.changes = change_rows(rules.CONSUMER_FIELDS, old, {key: new[key] for key in keys})
        if keys:
            row.action = CHANGE
            count = forgotten(info)
            row.problems += [
                f"{one}; a new consumer under this name would forget {counted(count, 'acknowledgement')}"
                for one in change_rules.fixed_in_consumer(old, new)
            ]
            row.costs = consumer_costs(old, new, info, stream_config)
            if "num_replicas" in keys:
                reason = change_rules.unsettled(
                    consumer_group("", info, self._live.streams[stream.name]["config"]), short=True
                )
                row.problems += [f"it cannot be scaled now: {reason}"] if reason else []
        return row

    # --- Entries ------------------------------------------------------------------------------------------------------

    def _entry_rows(self, document: AssetsDocument, stream: DesiredStream, owner: PlanRow) -> Iterator[PlanRow]:
        for entry in stream.entries.values():
            live = self._live.entries.get((stream.name, entry.key))
            row = PlanRow(ENTRY, f"{stream.label}/{entry.key}", document.id, phase=PHASES[6])
            row.revision = str(live.revision) if live else "0"
            if owner.state == FOREIGN or owner.problems:
                row.problems.append(
                    f"its bucket {stream.label} is {owner.state if owner.state == FOREIGN else REFUSED}"
                )
            else:
                _plan_entry(row, entry, live)
            yield row

    # --- Assets outside the documents ---------------------------------------------------------------------------------

    def _extra_streams(self) -> Iterator[PlanRow]:
        for name, info in self._live.streams.items():
            if name in self._desired:
                continue
            old = rules.normal_config(rules.STREAM_FIELDS, info["config"])
            row = PlanRow(STREAM, name, "", revision=revision(info), phase=PHASES[7])
            self._prune(row, old["metadata"], name)
            if row.action == DELETE:
                consumers = list(self._live.consumers.get(name, {}).values())
                others = [one["config"] for one in self._live.streams.values()]
                messages = (info.get("state") or {}).get("messages", 0)
                found = change_rules.deletion_dangers(old, messages, consumers, change_rules.dependents(name, others))
                row.costs += [
                    Cost(one.kind, one.message, messages if one.kind == change_rules.DATA_LOSS else None)
                    for one in found
                ]
            yield row
        for name, reason in self._live.unknown.items():
            if name not in self._desired:
                yield PlanRow(STREAM, name, "", state=EXTRA, notes=[f"its state is unknown: {reason}"])

    def _prune(self, row: PlanRow, metadata: Mapping[str, str], stream: str) -> None:
        """Decide whether an asset that no document declares is deleted."""
        row.state = EXTRA
        marked = owning_document(metadata)
        policies = {one.id: one.prune for one in self._documents}
        if marked:
            if marked not in policies:
                row.state = FOREIGN
                row.notes.append(f"it belongs to document {marked}, which is not part of this plan")
                return
            row.document = marked
            if policies[row.document] == NEVER:
                row.notes.append("it left the document, which never deletes (prune: never)")
                return
        else:
            whose = change_rules.owner("", {"metadata": metadata}, {})
            if whose:
                row.state = FOREIGN
                row.notes.append(f"it belongs to {whose}")
                return
            everything = [one for one, policy in policies.items() if policy == ALL]
            if not everything or (stream.startswith(_RESERVED) and row.name not in self._deletable):
                return
            row.document = everything[0]
            row.costs.append(Cost(change_rules.FOREIGN, "no document owns it (prune: all)"))
        row.state, row.action = SAME, DELETE

    # --- Checks -------------------------------------------------------------------------------------------------------

    def _check_overlaps(self, found: Sequence[PlanRow]) -> None:
        """Refuse subjects that another live stream stores."""
        rows = {row.name: row for row in found if row.kind == STREAM and row.document}
        outside = {
            name: rules.normal_config(rules.STREAM_FIELDS, info["config"])
            for name, info in self._live.streams.items()
            if name not in self._desired
        }
        others = [(name, subject) for name, config in outside.items() for subject in config["subjects"]]
        for name, (_document, stream) in self._desired.items():
            row = rows.get(stream.label)
            if row is None or not row.action:
                continue
            for text in overlaps([(name, one) for one in self._new[name]["subjects"]], others):
                row.problems.append(text)
            leaving = [
                one
                for one, config in outside.items()
                if row.action == CREATE and config["subjects"] and config["subjects"] == self._new[name]["subjects"]
            ]
            row.notes += [f"a stream cannot be renamed: {one} has the same subjects; copy it first" for one in leaving]

    def _order(self, found: Sequence[PlanRow]) -> None:
        """Set the steps, and report streams that exchange subjects."""
        positions = {name: place for place, name in enumerate(self._desired)}
        actions = []
        for row in found:
            stream = stream_name(row.kind, row.name)
            is_stream = row.kind not in (CONSUMER, ENTRY)
            old = self._old.get(stream, _live_config(self._live.streams.get(stream))) if is_stream else None
            new = self._new.get(stream) if is_stream else None
            actions.append(
                Action(
                    row.kind,
                    row.name,
                    row.action,
                    row.phase,
                    row.state in (CREATE, CHANGE, DELETE),
                    positions.get(stream, len(positions)),
                    frozenset(copied_streams(old) if old else ()),
                    frozenset(copied_streams(new) if new else ()),
                )
            )
        self.steps, blocked = ordered_steps([one for one in actions if one.action], self._waits())
        if blocked:
            self.problems.append(
                f"streams exchange subjects: {', '.join(blocked)}; remove the subjects in one plan and add them in the "
                "next"
            )

    def _waits(self) -> dict[str, set[str]]:
        """Return the streams that must give up subjects before a declared stream can store them."""
        moving = {name for name, old in self._old.items() if old["subjects"] != self._new[name]["subjects"]}
        waits: dict[str, set[str]] = {}
        for name in moving:
            for other in moving - {name}:
                held = [one for one in self._old[other]["subjects"] if one not in self._new[other]["subjects"]]
                if any(subjects_collide(mine, one) for mine in self._new[name]["subjects"] for one in held):
                    waits.setdefault(name, set()).add(other)
        return waits

    def _check_room(self, found: Sequence[PlanRow]) -> None:
        """Report limits of the account that the new streams exceed."""
        rows = {(row.kind, row.name): row for row in found}
        acting = []
        for name, (_document, stream) in self._desired.items():
            row = rows[(stream.kind, stream.label)]
            if row.action in (CREATE, CHANGE):
                acting.append((row, Need(self._new[name], self._old[name] if row.action == CHANGE else None)))
        needs = [need for _row, need in acting]
        for row, need in acting:
            row.problems += refusals(need, self._live.usage)
        self.problems += shortages(needs, self._live.usage)

    def _finish(self, row: PlanRow) -> None:
        """Set the state of a row."""
        if row.problems:
            row.state = REFUSED
        elif row.action == DELETE:
            row.state = DELETE if row.name in self._deletable or not row.costs else CONFIRM
        elif row.action:
            row.state = CONFIRM if row.costs and row.name not in self._confirmed else row.action

    def _check_deletions(self, found: Sequence[PlanRow]) -> None:
        """Refuse to delete more than a fifth of a document's assets, unless each name is given."""
        for document in self._documents:
            own = [row for row in found if row.document == document.id and row.kind != ENTRY and row.revision]
            gone = [row.name for row in own if row.action == DELETE and row.name not in self._deletable]
            if len(gone) > _MOST_DELETED * len(own):
                self.problems.append(
                    f"document {document.id} would delete {len(gone)} of its {counted(len(own), 'asset')}, more than "
                    f"20 %: {', '.join(sorted(gone)[:10])}; check the document, or list each name in confirm_delete"
                )


def is_ephemeral(info: Info) -> bool:
    """Return whether a consumer is temporary, or belongs to a mirror or source; plans never delete these."""
    config = info["config"]
    return not config.get("durable_name") or bool(config.get("direct"))


def _live_config(info: Info | None) -> rules.Config:
    """Return the configuration of a live stream in normal form; that of no stream has the defaults."""
    return rules.normal_config(rules.STREAM_FIELDS, info["config"] if info else {})


def _stream_phase(stream: DesiredStream, exists: bool) -> str:
    if stream.kind != STREAM:
        return PHASES[5]
    if exists:
        return PHASES[1]
    return PHASES[4] if stream.config["mirror"] or stream.config["sources"] else PHASES[2]


def _plan_entry(row: PlanRow, entry: DesiredEntry, live: LiveEntry | None) -> None:
    """Plan an entry. Values appear only as hashes, because they may be secret."""
    present = live.value if live else None
    if entry.mode == ABSENT:
        if present is not None:
            row.action = DELETE
            row.changes = [{"path": "value", "from": _hashed(present), "to": None}]
        return
    desired = (entry.value or "").encode()
    if present is None:
        row.action = CREATE
        row.changes = [{"path": "value", "from": None, "to": _hashed(desired)}]
    elif entry.mode == OWN and present != desired:
        row.action = CHANGE
        row.changes = [{"path": "value", "from": _hashed(present), "to": _hashed(desired)}]


def _hashed(value: bytes) -> str:
    return f"sha256:{hashlib.sha256(value).hexdigest()[:12]}"


def _differing(old: rules.Config, new: rules.Config) -> list[str]:
    """Return the fields that differ; a mark's hash alone is not a difference."""

    def comparable(key: str, value: Any) -> Any:
        return {name: one for name, one in value.items() if name != MARK_HASH} if key == "metadata" else value

    return [key for key in new if comparable(key, old[key]) != comparable(key, new[key])]
