# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Backs up the streams of accounts one after another to `<directory>/<account>/<stream>@<time>`, and lists them in a
catalogue; or backs up one stream to `<path>/<stream>@<time>`, without a catalogue."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from typing import Any, Callable, Optional
from urllib.parse import quote

from ..nats.account_names import with_identities
from ..nats.accounts import Connections
from ..nats.client import NatsFailure
from ..nats.jetstream_api import TransferPace
from ..nats.model import answered_by_leader
from ..nats.system_api import SystemApi
from ..progress import Progress
from ..screen import Page, names_line, page, problem_lines, some_names
from ..table import table_page
from ..units import counted, human_bytes
from ..waiting import is_transient
from .catalogue import Catalogue, stream_key
from .catalogue_file import load_catalogue, store_catalogue
from .cluster_files import expired_files, save_files, saved_files
from .files import Backup, find_backups
from .retention import Retention, expired
from .selection import is_future, matches, parse_taken
from .store import BackupStore, name_part, utc_now
from .stream_backup import RetryBudget, StreamBackupRequest, back_up

#: Failures of a run rather than of a stream, and how many of them in a row end the run.
_HOPELESS, _IN_A_ROW = ("write_failed", "unreachable", "authorization", "tls"), 3
#: Failures that occur because a leader disappeared during a snapshot; see also waiting.is_transient.
_LEADER_LOST = ("idle", "interrupted")


#: Account and name of a stream.
Stream = tuple[Optional[str], str]


@dataclass(frozen=True)
class BackupRequest:
    """The streams to back up, the destination, the settings, and the number of backups to keep. `accounts`: names, None
    for the user's own account. `files`: the cluster's own files, by name."""

    store: BackupStore
    accounts: Sequence[Optional[str]]
    streams: Sequence[str]
    exclude: Sequence[str]
    level: str
    pace: TransferPace
    keep: Retention
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BackupOutcome:
    """The result of a run. `rows`: one for each selected stream, with `problem` empty if it was saved."""

    result: dict[str, Any]
    failure: Optional[NatsFailure]


def save_streams(
    connections: Connections, request: BackupRequest, progress: Progress, check_mode: bool
) -> BackupOutcome:
    """Back up every selected stream; the failure of one stream does not stop the others.

    Raises NatsFailure (invalid_option, locked, damaged, write_failed) before anything is saved.
    """
    if check_mode:
        return _run(connections, request, progress, load_catalogue(request.store), True)
    with request.store.locked():
        catalogue = load_catalogue(request.store)
        return _run(connections, request, progress, catalogue, False)


def _run(
    connections: Connections, request: BackupRequest, progress: Progress, catalogue: Catalogue, check_mode: bool
) -> BackupOutcome:
    request = replace(
        request,
        streams=with_identities(request.streams, connections.names),
        exclude=with_identities(request.exclude, connections.names),
    )
    budget, leaderless = RetryBudget(), _Leaderless(connections)
    found, unlisted = _listed(connections, request.accounts, budget)
    labels = {account: connections.label(account) for account in request.accounts}
    chosen = chosen_streams(found, request.streams, request.exclude, bool(unlisted), labels)
    listed = [account for account in request.accounts if account not in unlisted]
    catalogue = replace(catalogue.without(_gone(catalogue, found, listed)), exclude=tuple(request.exclude))
    rows: list[dict[str, Any]] = []
    for account, stream in chosen:
        name = stream_key(account, stream)
        report = partial(_report, progress, rows, len(chosen), stream_key(labels[account], stream))
        store = request.store.below(folder(account))
        one = StreamBackupRequest(stream, store, request.level, request.pace, report=report, budget=budget)
        row = _row(connections, account, one, leaderless, check_mode)
        rows.append(row)
        catalogue = catalogue.failed(name, row["problem"]) if row["problem"] else catalogue.saved(name, utc_now())
        if hopeless(rows):
            break
    own = _save_own(request, catalogue, hopeless(rows), check_mode)
    left = [stream_key(labels[account], stream) for account, stream in chosen[len(rows) :]]
    rows += [_not_listed(account, labels[account], failure) for account, failure in unlisted.items()]
    tidied = _tidied(request, rows, own.catalogue, check_mode)
    removed = [*tidied.removed, *own.removed]
    result = _result(request.store, rows, removed, left, tidied.future, own.saved)
    return BackupOutcome(result, not_saved(rows, left) or own.failure or tidied.failure)


def save_stream(
    connections: Connections, account: str | None, request: StreamBackupRequest, progress: Progress, check_mode: bool
) -> dict[str, Any]:
    """Back up one stream and return the module's result, whose row also has the manifest of the backup. Streams are not
    listed, and the store has no catalogue and is not locked. `account`: the account's identity. Raises NatsFailure."""
    report = partial(_report, progress, (), 1, stream_key(connections.label(account), request.stream))
    saved = _saved(connections, account, replace(request, report=report), _Leaderless(connections), check_mode)
    return _result(request.store, [{**_names(connections, account, request.stream), **saved}])


def _result(
    store: BackupStore,
    rows: Sequence[dict[str, Any]],
    removed: Sequence[str] = (),
    left: Sequence[str] = (),
    future: Sequence[str] = (),
    own: Optional[Mapping[str, Any]] = None,
) -> dict[str, Any]:
    """Return the module's result. `own`: the saved files of the cluster itself."""
    return {
        "changed": any(row["changed"] for row in rows) or bool(removed) or own is not None,
        "streams": list(rows),
        "cluster": own,
        "left": list(left),
        "removed": list(removed),
        "future": list(future),
        **backup_page(store, rows, removed, left, future, own).as_dict(),
        "diff": {
            "before": {row["name"]: row["diff"]["before"] for row in rows if row["changed"]},
            "after": {row["name"]: row["diff"]["after"] for row in rows if row["changed"]},
        },
    }


def _listed(
    connections: Connections, accounts: Sequence[Optional[str]], budget: RetryBudget
) -> tuple[list[Stream], dict[Optional[str], NatsFailure]]:
    """Return the streams of the accounts, and the accounts that did not list their streams: clients of an account can
    disturb its replies, which must not prevent the backup of the other accounts. Raises NatsFailure if no account lists
    its streams."""
    found: list[Stream] = []
    unlisted: dict[Optional[str], NatsFailure] = {}
    for account in accounts:
        try:
            names = budget.wait(connections.account(account).stream_names, lambda _names: True)
            found += [(account, stream) for stream in sorted(names)]
        except NatsFailure as failure:
            if failure.code in ("unreachable", "tls", "invalid_option"):
                raise
            unlisted[account] = failure
    if unlisted and len(unlisted) == len(accounts):
        raise next(iter(unlisted.values()))
    return found, unlisted


def hopeless(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the last streams failed in a way in which the following streams would fail, too."""
    last = rows[-_IN_A_ROW:]
    return len(last) == _IN_A_ROW and all(row["code"] in _HOPELESS for row in last)


@dataclass(frozen=True)
class _Own:
    """The result for the cluster's own files: the catalogue that lists them, the saved and removed files, or the
    failure."""

    catalogue: Catalogue
    saved: Optional[Mapping[str, Any]] = None
    removed: tuple[str, ...] = ()
    failure: Optional[NatsFailure] = None


def _save_own(request: BackupRequest, catalogue: Catalogue, hopeless: bool, check_mode: bool) -> _Own:
    """Save the cluster's own files, unless saving is impossible."""
    if hopeless or not request.files:
        return _Own(catalogue)
    try:
        rows = saved_files(catalogue, request.store)
        saved = save_files(request.store, request.files, rows, check_mode)
    except NatsFailure as failure:
        failure.description = f"the files of the cluster itself were not saved: {failure.description}"
        return _Own(catalogue, failure=failure)
    rows += [saved] if saved is not None else []
    failures: list[NatsFailure] = []
    old = [
        row
        for row in expired_files(rows, request.keep, saved)
        if check_mode or _attempted(failures, request.store.discard, str(row["path"]))
    ]
    kept = tuple(row for row in rows if row not in old)
    removed = tuple(str(row["path"]) for row in old)
    return _Own(replace(catalogue, cluster=kept), saved, removed, failures[0] if failures else None)


def _report(progress: Progress, rows: Sequence[Mapping[str, Any]], count: int, name: str, size: int) -> None:
    progress.report(lambda: f"{len(rows)} of {count} streams saved; {name}: {human_bytes(size)} so far")


def _gone(catalogue: Catalogue, found: Sequence[Stream], accounts: Sequence[Optional[str]]) -> set[str]:
    """Return the saved streams of these accounts that no longer exist."""
    names = {account or "" for account in accounts}
    known = {name for name in catalogue.streams if name.partition("/")[0] in names}
    return known - {stream_key(*pair) for pair in found}


def chosen_streams(
    found: Sequence[Stream],
    streams: Sequence[str],
    exclude: Sequence[str],
    some_unlisted: bool = False,
    labels: Mapping[Optional[str], Optional[str]] | None = None,
) -> list[Stream]:
    """Return the selected streams. `labels`: display names of accounts, by identity. Raises NatsFailure invalid_option
    if a pattern matches nothing, unless the streams of some account could not be listed."""
    chosen = [pair for pair in found if matches(*pair, streams) and not matches(*pair, exclude)]
    unknown = [pattern for pattern in streams if not any(matches(*pair, [pattern]) for pair in found)]
    if unknown and list(streams) != ["*"] and not some_unlisted:
        shown = labels or {}
        there = some_names([stream_key(shown.get(account, account), stream) for account, stream in found], 10) or "none"
        raise NatsFailure(
            "invalid_option", f"streams: no stream matches {', '.join(unknown)}; the accounts have {there}"
        )
    return chosen


def _names(connections: Connections, account: str | None, stream: str) -> dict[str, Any]:
    """Return the keys of a row that identify its stream."""
    return {
        "name": stream_key(account, stream),
        "label": stream_key(connections.label(account), stream),
        "account": account,
        "stream": stream,
    }


def _row(
    connections: Connections,
    account: str | None,
    request: StreamBackupRequest,
    leaderless: _Leaderless,
    check_mode: bool,
) -> dict[str, Any]:
    """Back up one of several streams and return its row, with `problem` if it was not saved. The row has no manifest."""
    names = _names(connections, account, request.stream)
    try:
        saved = _saved(connections, account, request, leaderless, check_mode)
    except NatsFailure as failure:
        return {**names, **_NOTHING, "problem": failure.description, "code": failure.code}
    return {**names, **{key: value for key, value in saved.items() if key != "backup"}}


def _saved(
    connections: Connections,
    account: str | None,
    request: StreamBackupRequest,
    leaderless: _Leaderless,
    check_mode: bool,
) -> dict[str, Any]:
    """Back up one stream and return the keys of its row that describe the backup. Raises NatsFailure."""
    request.report(0)
    try:
        leaderless.require_led(account, request.stream)
        result = _with_elections(connections, account, request, check_mode)
    except NatsFailure as failure:
        raise leaderless.explained(failure, account, request.stream) from None
    messages = (result["diff"]["after"] or result["backup"]["state"]).get("messages", 0)
    kept = {key: result[key] for key in ("changed", "path", "reason", "bytes", "caveats", "diff", "backup")}
    return {**kept, "messages": messages, "problem": "", "code": ""}


def _with_elections(
    connections: Connections, account: str | None, request: StreamBackupRequest, check_mode: bool
) -> dict[str, Any]:
    """Return the result of `back_up`, which is repeated after the election of a new leader. Raises NatsFailure."""
    api = connections.account(account)
    try:
        return back_up(connections.client(account), api, request, check_mode)
    except NatsFailure as failure:
        if not (is_transient(failure) or failure.code in _LEADER_LOST) or request.budget.left <= 0:
            raise
        try:
            led = answered_by_leader(request.budget.wait(lambda: api.stream(request.stream), answered_by_leader))
        except NatsFailure:
            led = False
        if not led:
            raise
    return back_up(connections.client(account), api, request, check_mode)


class _Leaderless:
    """The streams whose leaders do not respond, by account, read after the first request to a stream without a leader.
    With this list, the many streams of a server that is down cost only one timeout."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._found: dict[Optional[str], Collection[str]] = {}
        self._silent = ""

    def require_led(self, account: str | None, stream: str) -> None:
        """Raise NatsFailure leaderless if the stream is known to have no leader."""
        if stream in self._found.get(account, ()):
            reason = (
                f"stream {stream} was not saved: none of its replicas leads it. The servers with its replicas, or the "
                f"majority of them, are down or cannot reach each other{self._silent}"
            )
            raise NatsFailure("leaderless", reason, account=account)

    def explained(self, failure: NatsFailure, account: str | None, stream: str) -> NatsFailure:
        """Return the failure of a stream, with its cause if the stream has no leader."""
        if not is_transient(failure) or failure.code in _HOPELESS:
            return failure
        try:
            self._found[account] = self._connections.account(account).streams().unknown.keys()
            self._silent = self._silent or self._silent_servers()
            self.require_led(account, stream)
        except NatsFailure as found:
            return found if found.code == "leaderless" else failure
        return failure

    def _silent_servers(self) -> str:
        """Return which servers do not respond; empty if the task's user is not in the system account."""
        if not self._connections.accounts:
            return ""
        try:
            cluster = SystemApi(self._connections.own).read_cluster(assets=False, health=False)
        except NatsFailure:
            return ""
        silent = sorted(cluster.meta_members - cluster.names)
        return f". No answer from {some_names(silent)}" if silent else ""


#: The row for a stream that was not saved.
_NOTHING: dict[str, Any] = {
    "changed": False,
    "path": None,
    "reason": "",
    "bytes": 0,
    "messages": 0,
    "caveats": [],
    "diff": {},
}


def _not_listed(account: str | None, label: str | None, failure: NatsFailure) -> dict[str, Any]:
    """Return the row of an account whose streams could not be listed."""
    problem = f"its streams could not be listed: {failure.description}"
    return {
        "name": account or "_",
        "label": label or "_",
        "account": account,
        "stream": "",
        **_NOTHING,
        "problem": problem,
        "code": failure.code,
    }


def folder(account: str | None) -> str:
    """Return the name of an account's directory."""
    return name_part(quote(account, safe="$ ").replace(".", "%2E")) if account else "_"


@dataclass(frozen=True)
class _Tidied:
    """The backups that were removed, those that are dated in the future, and the failure of a removal or of the catalogue."""

    removed: list[str]
    future: list[str]
    failure: Optional[NatsFailure] = None


def _future_lines(future: Sequence[str]) -> list[str]:
    if not future:
        return []
    what = "1 backup is" if len(future) == 1 else f"{len(future)} backups are"
    return [f"{what} dated in the future and neither restored by default nor removed: {future[0]}. Check the clock"]


def _tidied(request: BackupRequest, rows: Sequence[dict[str, Any]], catalogue: Catalogue, check_mode: bool) -> _Tidied:
    """Remove the expired backups of the saved streams, and write the catalogue.

    All backups of a stream that could not be saved are kept, and so are all backups of this run.
    """
    backups, _failures = find_backups(request.store)
    now = datetime.now(timezone.utc)
    own = {row["path"] for row in rows if row["changed"]}
    old = _expired(backups, request.keep, {row["name"] for row in rows if not row["problem"]}, own, now)
    failures: list[NatsFailure] = []
    removed = (
        old if check_mode else [backup for backup in old if _attempted(failures, request.store.remove, backup.folder)]
    )
    if not check_mode:
        kept = [backup for backup in backups if backup not in removed]
        _attempted(failures, request.store.sweep)
        _attempted(failures, store_catalogue, request.store, catalogue, kept)
    future = [backup.path for backup in backups if is_future(backup.manifest.taken, now)]
    return _Tidied([backup.folder for backup in removed], future, _not_tidied(rows, failures))


def _attempted(failures: list[NatsFailure], step: Callable[..., object], *arguments: object) -> bool:
    """Return whether a step succeeded; if not, add its failure to `failures`."""
    try:
        step(*arguments)
    except NatsFailure as failure:
        failures.append(failure)
        return False
    return True


def _not_tidied(rows: Sequence[Mapping[str, Any]], failures: Sequence[NatsFailure]) -> Optional[NatsFailure]:
    """Return the failure of a run that saved streams but could not remove old backups or write the catalogue."""
    if not failures:
        return None
    saved = sum(not row["problem"] for row in rows)
    more = f" and {len(failures) - 1} more" if len(failures) > 1 else ""
    done = (
        f"{saved} of {len(rows)} streams are saved, but old backups could not be removed or the catalogue not written"
    )
    return NatsFailure(failures[0].code, f"{done}: {failures[0].description}{more}")


def _expired(backups: Sequence[Backup], keep: Retention, saved: set[str], own: set[str], now: datetime) -> list[Backup]:
    by_stream: dict[str, list[Backup]] = {}
    for backup in backups:
        name = stream_key(backup.manifest.account, backup.manifest.stream)
        if name in saved and backup.manifest.taken:
            by_stream.setdefault(name, []).append(backup)
    found: list[Backup] = []
    for stream_backups in by_stream.values():
        taken = [parse_taken(backup.manifest.taken or "") for backup in stream_backups]
        places = [place for place, backup in enumerate(stream_backups) if backup.path in own]
        found += [stream_backups[place] for place in expired(taken, keep, now, places)]
    return found


def backup_page(
    store: BackupStore,
    rows: Sequence[dict[str, Any]],
    removed: Sequence[str],
    left: Sequence[str],
    future: Sequence[str],
    own: Optional[Mapping[str, Any]],
) -> Page:
    """Return the page for operators: the streams that were saved, those that failed, and the totals."""
    shown = [row for row in rows if row["changed"] or row["problem"]]
    cells = [
        (row["label"], row["messages"], human_bytes(row["bytes"]), row["problem"].partition("\n")[0] or row["reason"])
        for row in shown
    ]
    saved = [row for row in shown if not row["problem"]]
    messages, size = (sum(row[key] for row in saved) for key in ("messages", "bytes"))
    found = Page()
    if shown:
        found = table_page(
            f"Streams saved to {store.place()}",
            ("Stream", "Messages", "Bytes", "Why"),
            cells,
            [(f"{len(saved):,} saved", messages, human_bytes(size), "")] if len(shown) > 1 else (),
            {place for place, row in enumerate(shown) if row["problem"]},
        )
    same = len(rows) - len(shown)
    found += page(*[f"{counted(same, 'stream')} unchanged since the newest backup"] if same else [])
    found += page(*[f"{len(removed)} old backups removed"] if removed else [])
    found += names_line("not begun: ", left)
    found += page(*_future_lines(future))
    return found + page(*[f"{len(own['files'])} files of the cluster itself: {own['path']}"] if own is not None else [])


def not_saved(rows: Sequence[Mapping[str, Any]], left: Sequence[str] = ()) -> Optional[NatsFailure]:
    """Return the failure that lists the streams that were not saved, or None if all were saved."""
    failed = [row for row in rows if row["problem"]]
    if not failed:
        return None
    shown = problem_lines(failed, ", see catalogue.json")
    shown += [f"not begun: {counted(len(left), 'stream')}"] if left else []
    done = len(rows) - len(failed)
    head = (
        f"{len(failed)} of {len(rows) + len(left)} streams were not saved, {done} were; run this again for the others"
    )
    return NatsFailure(failed[0]["code"], "\n".join([head, *shown]))
