# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Restores many streams from a directory of backups, or one backup. All obstacles are found before the first stream is
created."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Callable, Optional

from ..nats.account_names import with_identities
from ..nats.accounts import Connections
from ..nats.client import NatsFailure
from ..progress import Progress
from ..screen import Page, problem_lines, some_names
from ..table import table_page
from ..units import counted, human_bytes
from ..waiting import ELECTION_SECONDS, wait_until
from .catalogue import stream_key
from .catalogue_file import choice_rows
from .encryption import Keys, only_passing
from .files import Backup, Unreadable, find_backups, read_backup
from .restore_rules import is_later, position, repeats_sources, sources_caveat
from .selection import SelectionError, asked_for, choose
from .store import PREFIX, BackupStore, DirectoryStore, written
from .stream_backup import StreamBackupRequest, back_up
from .stream_restore import ELECTED, StreamRestoreRequest, new_stream, restore
from .verify import CONTENTS
from .workers import Workers

#: How a restored stream is compared: by the state that servers report, or by reading back all of its messages.
STATE, READ_BACK = "state", "contents"
COMPARISONS = (STATE, READ_BACK)
#: Maximum number of streams restored at the same time. A restore mostly waits for elections and for replicas to
#: catch up.
AT_ONCE = 16
#: Failures of a run rather than of a stream.
_HOPELESS = ("unreachable", "authorization", "tls")
#: The possible treatments of existing streams that differ from the backup.
REFUSE, SKIP = "refuse", "skip"
EXISTING = (REFUSE, SKIP)


@dataclass(frozen=True)
class RestoreRequest:
    """The requested restores: the store, the streams and the procedure. `account`: the target account, None for each
    stream's own account; `names_accounts`: whether the connection has users of several accounts, or is itself a user of
    the owning account."""

    store: BackupStore
    request: Sequence[str]
    at: Optional[str]
    account: Optional[str]
    names_accounts: bool
    one: StreamRestoreRequest
    comparison: str
    existing: str


@dataclass(frozen=True)
class RestoreOutcome:
    """The result of a run. `result` has a row for each stream; `failure` is the reason why the run stopped."""

    result: dict[str, Any]
    failure: Optional[NatsFailure]


def restore_streams(
    connections: Connections, request: RestoreRequest, progress: Progress, check_mode: bool
) -> RestoreOutcome:
    """Restore every selected stream, many at a time; streams that copy others come last.

    A damaged backup affects only its own stream, and so does any failure after the stream was created. Raises
    NatsFailure before anything is created: invalid_option, or the code of the first stream that cannot be restored for
    a reason other than a damaged backup.
    """
    backups, damaged = _chosen(request, connections.names)
    _await_meta_leader(connections, request, backups)
    # A rate limit applies to the run as a total.
    with Workers(connections, 1 if request.one.pace.rate else AT_ONCE) as workers:
        planned = workers.map(lambda own, backup: _plan(own, request, backup), backups)
        refused = [row for row in planned if row["problem"] and row["code"] != "damaged"]
        if refused:
            head = f"{len(refused)} of {len(planned)} streams cannot be restored, nothing was changed"
            raise NatsFailure(refused[0]["code"], "\n".join([head, *problem_lines(refused)]))
        planned = _with_repetitions(connections, backups, planned)
        if check_mode:
            rows: list[dict[str, Any]] = [*planned, *damaged]
        else:
            rows = [
                *_RestoreRun(request, progress, len(planned)).restore(workers, list(zip(backups, planned))),
                *damaged,
            ]
    return RestoreOutcome(_result(request, rows, check_mode), _failure(rows, len(planned) + len(damaged), check_mode))


def restore_backup(
    connections: Connections, request: RestoreRequest, progress: Progress, check_mode: bool
) -> RestoreOutcome:
    """Restore the only backup of the store. Raises NatsFailure before anything is created."""
    backup = _only_backup(request.store)
    _await_meta_leader(connections, request, [backup])
    plan = _planned(connections, request, backup, _row(connections, request, backup))
    (row,) = _with_repetitions(connections, [backup], [plan])
    if check_mode:
        return RestoreOutcome(_result(request, [row], check_mode), None)
    run = _RestoreRun(request, progress, 1)
    row = run.restore_one(connections, (backup, row)) or row
    return RestoreOutcome(_result(request, [row], check_mode), run.failure)


def _only_backup(store: BackupStore) -> Backup:
    """Return the only backup of a store. Raises NatsFailure damaged, and invalid_option if there is none."""
    try:
        return read_backup(store)
    except Unreadable as failure:
        if failure.code == "invalid_option":
            failure.description = (
                f"path: {failure.description}. Set it to the directory of one backup, such as "
                "ORDERS@20261123T020000.123456Z, or use `directory` and `streams` with a directory of backups"
            )
        raise


def _await_meta_leader(connections: Connections, request: RestoreRequest, backups: Sequence[Backup]) -> None:
    """Wait until the streams of each account can be listed: the recent loss of a meta leader must not prevent a stream
    from being restored."""
    for account in {_account(connections, request, backup) for backup in backups}:
        if account is not None or not request.names_accounts:
            wait_until(connections.account(account).stream_names, lambda _names: True, ELECTION_SECONDS)


class _RestoreRun:
    """Restores streams concurrently, and counts the results. `failure`: the last one."""

    def __init__(self, request: RestoreRequest, progress: Progress, count: int) -> None:
        self._wanted, self._progress, self._count = request, progress, count
        self._lock = threading.Lock()
        self._restored = 0
        self._failed_in_a_row = 0
        self._given_up = False
        self.failure: Optional[NatsFailure] = None

    def restore(self, workers: Workers, pairs: Sequence[tuple[Backup, dict[str, Any]]]) -> list[dict[str, Any]]:
        """Return the rows of the streams whose restore began: first the originals, then the streams that copy others."""
        rows: list[dict[str, Any]] = []
        for copies in (False, True):
            some = [pair for pair in pairs if _is_copy(pair[0]) == copies]
            rows += [row for row in workers.map(self.restore_one, some) if row is not None]
        return rows

    def restore_one(self, own: Connections, pair: tuple[Backup, dict[str, Any]]) -> dict[str, Any] | None:
        """Return the row of a restored stream, or None if the run was given up before the stream's restore."""
        backup, plan = pair
        if plan["problem"] or self._given_up:
            return plan if plan["problem"] else None
        report = partial(self._report, plan)
        report(0)
        try:
            row = _restore(own, self._wanted, backup, plan, report)
        except NatsFailure as failure:
            with self._lock:
                self._failed_in_a_row += 1
                self._given_up = failure.code in _HOPELESS or self._failed_in_a_row >= AT_ONCE
                self.failure = failure
            return {**plan, "changed": True, "problem": failure.description, "code": failure.code}
        with self._lock:
            self._restored += 1
            self._failed_in_a_row = 0
        return row

    def _report(self, plan: Mapping[str, Any], sent: int) -> None:
        def line() -> str:
            done = f"{self._restored} of {self._count} streams restored"
            return f"{done}; {plan['label']}: {human_bytes(sent)} of {human_bytes(plan['bytes'])}"

        with self._lock:
            self._progress.report(line)


def _failure(rows: Sequence[Mapping[str, Any]], count: int, planned: bool) -> Optional[NatsFailure]:
    """Return the failure that lists the streams that were not restored, or None if all were."""
    failed = [row for row in rows if row["problem"]]
    if not failed:
        return None
    lines = problem_lines(failed)
    left = count - len(rows)
    lines += [f"not begun: {counted(left, 'stream')}"] if left else []
    done = f"{len(rows) - len(failed)} {'can be' if planned else 'are'}"
    head = f"{len(failed)} of {counted(count, 'stream')} {'cannot be' if planned else 'were not'} restored as saved; {done}"
    return NatsFailure(failed[0]["code"], "\n".join([head, *lines]), account=failed[0]["account"])


def _chosen(request: RestoreRequest, names: Mapping[str, str]) -> tuple[list[Backup], list[dict[str, Any]]]:
    """Return the backups to restore, originals before copies, and the rows of the streams whose newest backup cannot be
    read. `names`: account identity → name. Raises NatsFailure."""
    request.store.require()
    if not request.request:
        raise NatsFailure("invalid_option", "streams: select the streams to restore, such as APP/ORDERS, APP or *")
    backups, unreadable = find_backups(request.store)
    folders = {failure.folder: failure for failure in unreadable}
    try:
        texts = [text.partition("@") for text in request.request]
        whose = with_identities([pattern for pattern, _at, _time in texts], names)
        patterns = [f"{pattern}{at}{time}" for pattern, (_pattern, at, time) in zip(whose, texts)]
        hidden = asked_for([*folders, *(backup.folder for backup in backups)], patterns, request.at)
        hidden = {name: folder for name, folder in hidden.items() if folder in folders}
        places = choose(choice_rows(backups, names), [] if hidden and not backups else request.request, request.at)
    except SelectionError as error:
        unread = f" ({len(unreadable)} backups cannot be read: {unreadable[0].description})" if unreadable else ""
        raise NatsFailure("invalid_option", f"streams: {error}{unread}") from error
    # The keys are names of folders, in which long names are shortened.
    older = {name: folder.rpartition("@")[0] for name, folder in hidden.items()}
    chosen = [backups[place] for place in places if backups[place].folder.rpartition("@")[0] not in older.values()]
    rows = [_unread_row(name, folders[folder], request.store, names) for name, folder in hidden.items()]
    changes = request.one.changes
    if len(chosen) > 1 and (changes.stream is not None or changes.subjects is not None):
        some = some_names([stream_key(backup.manifest.account, backup.manifest.stream) for backup in chosen])
        raise NatsFailure("invalid_option", f"name, subjects: only for one stream, not for {len(chosen)} ({some})")
    return sorted(chosen, key=_is_copy), rows


def _unread_row(name: str, failure: Unreadable, store: BackupStore, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the row of a stream whose newest backup cannot be read. An older backup is not used instead."""
    account, _slash, stream = name.partition("/")
    label = stream_key(names.get(account, account), stream)
    problem = f"{failure.description}. To restore an earlier backup, add its time, such as {label}@2026-11-23"
    return {
        **_ROW,
        "name": name,
        "label": label,
        "account": account or None,
        "stream": stream,
        "path": store.place(failure.folder),
        "problem": problem,
        "code": "damaged",
    }


def _is_copy(backup: Backup) -> bool:
    return bool(backup.manifest.config.get("mirror") or backup.manifest.config.get("sources"))


def _account(connections: Connections, request: RestoreRequest, backup: Backup) -> str | None:
    account = request.account or backup.manifest.account
    return connections.identity(account) if request.names_accounts and account else None


#: The row for a stream before its restore.
_ROW: dict[str, Any] = {
    "taken": None,
    "changed": False,
    "skipped": False,
    "compared": {},
    "caveats": [],
    "messages": 0,
    "bytes": 0,
    "first_seq": 0,
    "last_seq": 0,
    "consumers": [],
    "recreated": [],
    "fewer_replicas": [],
    "state": None,
    "diff": {},
    "problem": "",
    "code": "",
}


#: The keys of a row that are results of `restore`.
_RESULTS = (
    *("changed", "messages", "bytes", "first_seq", "last_seq", "consumers", "recreated", "fewer_replicas", "state"),
    *("caveats", "diff"),
)


def _plan(connections: Connections, request: RestoreRequest, backup: Backup) -> dict[str, Any]:
    """Return the row for one of several streams to restore, with `problem` if restoring it is impossible."""
    row = _row(connections, request, backup)
    try:
        return _planned(connections, request, backup, row)
    except NatsFailure as failure:
        if failure.code in _HOPELESS:
            raise
        return {
            **row,
            "problem": failure.description.partition("nothing was restored: ")[2] or failure.description,
            "code": failure.code,
        }


def _row(connections: Connections, request: RestoreRequest, backup: Backup) -> dict[str, Any]:
    """Return the row for a stream before it is known whether it can be restored."""
    manifest, account = backup.manifest, _account(connections, request, backup)
    name = request.one.changes.stream or manifest.stream
    return {
        **_ROW,
        "name": stream_key(account, name),
        "label": stream_key(connections.label(account), name),
        "account": account,
        "stream": name,
        "path": backup.path,
        "taken": manifest.taken,
    }


def _planned(
    connections: Connections, request: RestoreRequest, backup: Backup, row: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the row with the results of a restore in check mode. Raises NatsFailure if restoring it is impossible."""
    account = row["account"]
    if request.names_accounts and account is None:
        raise NatsFailure("invalid_option", f"account: {backup.path} does not name its account; set one")
    try:
        result = restore(connections.client(account), connections.account(account), backup, request.one, True)
    except NatsFailure as failure:
        if failure.code == "exists" and request.existing == SKIP:
            return {**row, "skipped": True}
        raise
    return {**row, **{key: result[key] for key in _RESULTS}}


def _with_repetitions(
    connections: Connections, backups: Sequence[Backup], rows: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the rows with the number of messages that streams will copy again, because their sources are new: restored
    in this run, or created since the backup."""
    restored = {(row["account"], row["stream"]): row["messages"] for row in rows if row["changed"]}

    def again(backup: Backup, row: Mapping[str, Any]) -> dict[str, int]:
        """Return how many messages a stream copies again from each source."""
        sources = backup.manifest.config.get("sources") if row["changed"] else None
        if not sources or not repeats_sources(connections.client(row["account"]).server_version):
            return {}
        counts = {}
        for name in sorted({str(source.get("name")) for source in sources if not source.get("external")}):
            counts[name] = restored.get((row["account"], name)) or 0
            info = None if counts[name] else connections.account(row["account"]).find_stream(name)
            if info is not None and is_later(info["created"], backup.manifest.taken):
                counts[name] = info["state"]["messages"]
        return {name: count for name, count in counts.items() if count}

    return [
        {**row, "caveats": [*row["caveats"], *sources_caveat(again(backup, row))]} for backup, row in zip(backups, rows)
    ]


def _restore(
    connections: Connections,
    request: RestoreRequest,
    backup: Backup,
    plan: Mapping[str, Any],
    report: Callable[[int], None],
) -> dict[str, Any]:
    """Restore one stream and return its row with the comparison. Raises NatsFailure."""
    if plan["skipped"] or not plan["changed"]:
        return dict(plan)
    client, api = connections.client(plan["account"]), connections.account(plan["account"])
    result = restore(client, api, backup, replace(request.one, report=report), False)
    compared = wait_until(
        lambda: new_stream(lambda: _compared(connections, request, backup, plan)), lambda _found: True, ELECTION_SECONDS
    ).value
    caveats = list(dict.fromkeys([*plan["caveats"], *result["caveats"]]))
    done = {key: result[key] for key in ("recreated", "state", "seconds")}
    row = {**plan, **done, "caveats": caveats, "compared": compared}
    if compared["digest"] not in ("same", "not compared"):
        reason = f"stream {plan['label']} was restored, but its content differs from the backup: {compared['digest']}"
        raise NatsFailure("incomplete", reason, account=plan["account"])
    return row


def _compared(
    connections: Connections, request: RestoreRequest, backup: Backup, plan: Mapping[str, Any]
) -> dict[str, Any]:
    """Compare the restored stream with its backup: messages, sequences, gaps, digest and ack floors."""
    api, manifest = connections.account(plan["account"]), backup.manifest
    before = manifest.contents or manifest.state
    state = api.stream(plan["stream"])["state"]
    floors = {info["name"]: position(info) for info in api.consumers_soon(plan["stream"], ELECTED).rows}
    return {
        "messages": [before.get("messages", 0), state.get("messages", 0)],
        # An empty stream starts at sequence 0, but at 1 after a restore.
        "first_seq": [max(before.get("first_seq", 0), 1), max(state.get("first_seq", 0), 1)],
        "last_seq": [before.get("last_seq", 0), state.get("last_seq", 0)],
        "gaps": [_gaps(before), _gaps(state)],
        "ack_floors": {
            entry["name"]: [entry["ack_floor"]["stream_seq"], floors.get(entry["name"])]
            for entry in (manifest.consumers if request.one.changes.consumers else ())
        },
        "digest": _digest(connections, request, backup, plan, state),
    }


def _gaps(state: Mapping[str, Any]) -> int:
    """Return how many sequences between the first and the last have no message."""
    messages, first, last = (state.get(key) or 0 for key in ("messages", "first_seq", "last_seq"))
    return max(0, last - first + 1 - messages) if messages else 0


def _digest(
    connections: Connections,
    request: RestoreRequest,
    backup: Backup,
    plan: Mapping[str, Any],
    state: Mapping[str, Any],
) -> str:
    """Return `same`, `not compared`, or the difference between the contents, which are read back from the servers."""
    saved = backup.manifest.contents
    untouched = saved is not None and all(state.get(key) == saved.get(key) for key in ("messages", "last_seq"))
    if request.comparison == STATE or saved is None or not untouched:
        return "not compared"
    account = plan["account"]
    pace = replace(request.one.pace, consumers=False)
    work = workspace(request.store)
    with written(work), tempfile.TemporaryDirectory(prefix=PREFIX, dir=work) as folder:
        keys = Keys() if backup.manifest.encryption is None else only_passing()
        again = StreamBackupRequest(plan["stream"], DirectoryStore(Path(folder), keys), CONTENTS, pace)
        result = back_up(connections.client(account), connections.account(account), again, False)
    held = result["backup"]["contents"]
    if held["digest"] == saved["digest"]:
        return "same"
    if (held["messages"], held["last_seq"]) != (saved["messages"], saved["last_seq"]):
        return "not compared"
    return f"the digest of its messages is {held['digest'][:12]} instead of {saved['digest'][:12]}"


def workspace(store: BackupStore) -> Path:
    """Return the directory for a temporary copy of a restored stream: that of the backups, which has room for archives,
    unless it is in object storage or may only be read."""
    if store.local is not None and os.access(store.local, os.W_OK):
        return store.local
    return Path(tempfile.gettempdir())


def _result(request: RestoreRequest, rows: Sequence[Mapping[str, Any]], planned: bool) -> dict[str, Any]:
    changed = [row for row in rows if row["changed"]]
    return {
        "changed": bool(changed),
        "streams": list(rows),
        **restore_page(request, rows, planned).as_dict(),
        "diff": {
            "before": {row["name"]: row["diff"].get("before", {}) for row in changed},
            "after": {row["name"]: row["diff"].get("after", {}) for row in changed},
        },
    }


def restore_page(request: RestoreRequest, rows: Sequence[Mapping[str, Any]], planned: bool) -> Page:
    shown = [
        (
            row["label"],
            f"{row['taken'].partition('.')[0]}Z" if row["taken"] else "",
            row.get("messages", 0),
            human_bytes(row.get("bytes", 0)),
            _what(row, planned),
        )
        for row in rows
    ]
    title = f"{'To be restored' if planned else 'Restored'} from {request.store.place()}"
    changed = [row for row in rows if row["changed"] and not row["problem"]]
    messages, size = (sum(row.get(key, 0) for row in changed) for key in ("messages", "bytes"))
    others = [
        f"{sum(bool(row[key]) for row in rows):,} {word}"
        for key, word in (("problem", "failed"), ("skipped", "left unchanged"))
        if any(row[key] for row in rows)
    ]
    total = (f"{len(changed):,} of {len(rows):,}", "", messages, human_bytes(size), ", ".join(others))
    columns = ("Stream", "As of", "Messages", "Bytes", "Result")
    worst = {place for place, row in enumerate(rows) if row["problem"] or _deviates(row)}
    return table_page(title, columns, shown, [total] if len(rows) > 1 else (), worst)


def _what(row: Mapping[str, Any], planned: bool) -> str:
    if row["problem"]:
        return str(row["problem"]).partition("\n")[0]
    if row["skipped"]:
        return "exists and is left unchanged"
    if not row["changed"]:
        return "exists as saved"
    if planned:
        return "will be created"
    compared = row["compared"]
    other = _deviates(row)
    floors = sum(1 for before, after in compared["ack_floors"].values() if after is not None and after >= before)
    parts = other or ["messages, sequences and gaps as saved"]
    parts += [f"{floors} of {len(compared['ack_floors'])} ack floors"] if compared["ack_floors"] else []
    return ", ".join([*parts, f"contents {compared['digest']}"])


def _deviates(row: Mapping[str, Any]) -> list[str]:
    """Return the figures in which a restored stream differs from its backup."""
    compared = row["compared"]
    names = (("messages", "messages"), ("first_seq", "first"), ("last_seq", "last"), ("gaps", "gaps"))
    return [
        f"{name} {compared[key][1]} instead of {compared[key][0]}"
        for key, name in names
        if compared and compared[key][0] != compared[key][1]
    ]
