# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Restoring many streams from a directory of backups: all that could keep one from it is seen before the first is created."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Callable, Optional

from ansible_collections.natsops.jetstream.plugins.module_utils.backup.catalogue import stream_key
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.restore_rules import position
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.selection import SelectionError, choose
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.accounts import Connections
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.operations.backup_files import (
    CONTENTS,
    Backup,
    find_backups,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.operations.backup_store import (
    PREFIX,
    DirectoryStore,
    Store,
    written,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.operations.catalogue_file import choice_rows
from ansible_collections.natsops.jetstream.plugins.module_utils.operations.encryption import Keys, only_passing
from ansible_collections.natsops.jetstream.plugins.module_utils.operations.stream_backup import WantedBackup, back_up
from ansible_collections.natsops.jetstream.plugins.module_utils.operations.stream_restore import WantedRestore, restore
from ansible_collections.natsops.jetstream.plugins.module_utils.progress import Progress
from ansible_collections.natsops.jetstream.plugins.module_utils.table import table
from ansible_collections.natsops.jetstream.plugins.module_utils.units import human_bytes

#: How a restored stream is compared: what the servers say of it, or all that it holds, read back.
STATE, READ_BACK = "state", "contents"
COMPARISONS = (STATE, READ_BACK)
#: What is done about streams that exist and are not what was saved.
REFUSE, SKIP = "refuse", "skip"
EXISTING = (REFUSE, SKIP)


@dataclass(frozen=True)
class WantedRestores:
    """What is restored, from where and how. `account`: the one to restore into, None for each stream's own; `names_accounts`:
    whether the connection has users of accounts, or is itself one of the owning account."""

    store: Store
    wanted: Sequence[str]
    at: Optional[str]
    account: Optional[str]
    names_accounts: bool
    one: WantedRestore
    comparison: str
    existing: str


@dataclass(frozen=True)
class Outcome:
    """`result` has a row for each stream; `failure` is what stopped the run."""

    result: dict[str, Any]
    failure: Optional[NatsFailure]


def restore_streams(connections: Connections, wanted: WantedRestores, progress: Progress, check_mode: bool) -> Outcome:
    """Restore every stream that is asked for, those first that are no copies of others.

    Raises NatsFailure, before anything is created: invalid_option, and the code of the first stream that cannot be restored.
    """
    backups = _chosen(wanted, connections.names)
    planned = [_plan(connections, wanted, backup) for backup in backups]
    refused = [row for row in planned if row["problem"]]
    if refused:
        lines = [f"{row['label']}: {row['problem']}" for row in refused[:8]]
        lines += [f"and {len(refused) - 8} more"] if len(refused) > 8 else []
        head = f"{len(refused)} of {len(planned)} streams cannot be restored, and nothing was changed"
        raise NatsFailure(refused[0]["code"], "\n".join([head, *lines]))
    if check_mode:
        return Outcome(_result(wanted, planned, True), None)
    rows: list[dict[str, Any]] = []
    for place, (backup, plan) in enumerate(zip(backups, planned)):
        report = partial(_report, progress, f"{place} of {len(backups)} streams are restored; {plan['label']}", plan)
        report(0)
        try:
            rows.append(_restore(connections, wanted, backup, plan, report))
        except NatsFailure as failure:
            left = [row["label"] for row in planned[place + 1 :]]
            failure.description += f"\n{place} of {len(backups)} streams are restored" + (
                f", not begun: {', '.join(left[:10])}{f' and {len(left) - 10} more' if len(left) > 10 else ''}"
                if left
                else ""
            )
            rows.append({**plan, "changed": True, "problem": failure.description, "code": failure.code})
            return Outcome(_result(wanted, rows, False), failure)
    return Outcome(_result(wanted, rows, False), None)


def _report(progress: Progress, begin: str, plan: Mapping[str, Any], sent: int) -> None:
    progress.report(lambda: f"{begin}: {human_bytes(sent)} of {human_bytes(plan['bytes'])}")


def _chosen(wanted: WantedRestores, names: Mapping[str, str]) -> list[Backup]:
    """Return the backups to restore, originals before copies. `names`: of accounts by identity. Raises NatsFailure."""
    wanted.store.require()
    if not wanted.wanted:
        raise NatsFailure("invalid_option", "streams: say what is to be restored, such as APP/ORDERS, APP or *")
    backups, damaged = find_backups(wanted.store)
    try:
        places = choose(choice_rows(backups, names), wanted.wanted, wanted.at)
    except SelectionError as error:
        unread = f" ({len(damaged)} backups cannot be read: {damaged[0].description})" if damaged else ""
        raise NatsFailure("invalid_option", f"streams: {error}{unread}") from error
    chosen = [backups[place] for place in places]
    changes = wanted.one.changes
    if len(chosen) > 1 and (changes.stream is not None or changes.subjects is not None):
        some = ", ".join(stream_key(backup.manifest.account, backup.manifest.stream) for backup in chosen[:5])
        raise NatsFailure("invalid_option", f"name, subjects: for one stream, not for {len(chosen)} ({some})")
    return sorted(chosen, key=_is_copy)


def _is_copy(backup: Backup) -> bool:
    return bool(backup.manifest.config.get("mirror") or backup.manifest.config.get("sources"))


def _account(connections: Connections, wanted: WantedRestores, backup: Backup) -> str | None:
    account = wanted.account or backup.manifest.account
    return connections.identity(account) if wanted.names_accounts and account else None


def _plan(connections: Connections, wanted: WantedRestores, backup: Backup) -> dict[str, Any]:
    """Return the row of a stream that is to be restored, with `problem` where it cannot be."""
    manifest, account = backup.manifest, _account(connections, wanted, backup)
    name = wanted.one.changes.stream or manifest.stream
    row: dict[str, Any] = {
        "name": stream_key(account, name),
        "label": stream_key(connections.label(account), name),
        "account": account,
        "stream": name,
        "path": backup.path,
        "taken": manifest.taken,
        "changed": False,
        "skipped": False,
        "compared": {},
        "caveats": [],
        "problem": "",
        "code": "",
    }
    try:
        if wanted.names_accounts and account is None:
            raise NatsFailure("invalid_option", f"account: {backup.path} does not say of which account it is; name one")
        result = restore(connections.client(account), connections.account(account), backup, wanted.one, True)
    except NatsFailure as failure:
        if failure.code == "exists" and wanted.existing == SKIP:
            return {**row, "skipped": True, "messages": 0, "bytes": 0, "diff": {}}
        return {
            **row,
            "problem": failure.description.partition("nothing was restored: ")[2] or failure.description,
            "code": failure.code,
        }
    kept = {key: result[key] for key in ("changed", "messages", "bytes", "caveats", "diff")}
    return {**row, **kept}


def _restore(
    connections: Connections,
    wanted: WantedRestores,
    backup: Backup,
    plan: Mapping[str, Any],
    report: Callable[[int], None],
) -> dict[str, Any]:
    """Restore one stream and return its row with what was compared. Raises NatsFailure."""
    if plan["skipped"] or not plan["changed"]:
        return dict(plan)
    client, api = connections.client(plan["account"]), connections.account(plan["account"])
    result = restore(client, api, backup, replace(wanted.one, report=report), False)
    compared = _compared(connections, wanted, backup, plan)
    row = {**plan, "seconds": result["seconds"], "caveats": result["caveats"], "compared": compared}
    if compared["digest"] not in ("same", "not compared"):
        reason = f"stream {plan['label']} was restored, but it does not hold what was saved: {compared['digest']}"
        raise NatsFailure("incomplete", reason, account=plan["account"])
    return row


def _compared(
    connections: Connections, wanted: WantedRestores, backup: Backup, plan: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what the restored stream has beside what was saved: messages, sequences, gaps, digest and ack floors."""
    api, manifest = connections.account(plan["account"]), backup.manifest
    before = manifest.contents or manifest.state
    state = api.stream(plan["stream"])["state"]
    floors = {info["name"]: position(info) for info in api.consumers(plan["stream"]).rows}
    return {
        "messages": [before.get("messages", 0), state.get("messages", 0)],
        # Of a stream that never had a message it is 0, and 1 once that was restored.
        "first_seq": [max(before.get("first_seq", 0), 1), max(state.get("first_seq", 0), 1)],
        "last_seq": [before.get("last_seq", 0), state.get("last_seq", 0)],
        "gaps": [_gaps(before), _gaps(state)],
        "ack_floors": {
            entry["name"]: [entry["ack_floor"]["stream_seq"], floors.get(entry["name"])]
            for entry in (manifest.consumers if wanted.one.changes.consumers else ())
        },
        "digest": _digest(connections, wanted, backup, plan, state),
    }


def _gaps(state: Mapping[str, Any]) -> int:
    """Return how many sequences between the first and the last one have no message."""
    messages, first, last = (state.get(key) or 0 for key in ("messages", "first_seq", "last_seq"))
    return max(0, last - first + 1 - messages) if messages else 0


def _digest(
    connections: Connections,
    wanted: WantedRestores,
    backup: Backup,
    plan: Mapping[str, Any],
    state: Mapping[str, Any],
) -> str:
    """Return `same`, `not compared`, or how the contents differ, read back from the servers."""
    saved = backup.manifest.contents
    untouched = saved is not None and all(state.get(key) == saved.get(key) for key in ("messages", "last_seq"))
    if wanted.comparison == STATE or saved is None or not untouched:
        return "not compared"
    account = plan["account"]
    pace = replace(wanted.one.pace, consumers=False)
    work = wanted.store.local or tempfile.gettempdir()
    with written(work), tempfile.TemporaryDirectory(prefix=PREFIX, dir=work) as folder:
        keys = Keys() if backup.manifest.encryption is None else only_passing()
        again = WantedBackup(plan["stream"], DirectoryStore(Path(folder), keys), CONTENTS, pace)
        result = back_up(connections.client(account), connections.account(account), again, False)
    held = result["backup"]["contents"]
    if held["digest"] == saved["digest"]:
        return "same"
    if (held["messages"], held["last_seq"]) != (saved["messages"], saved["last_seq"]):
        return "not compared"
    return f"the digest of its messages is {held['digest'][:12]} instead of {saved['digest'][:12]}"


def _result(wanted: WantedRestores, rows: Sequence[Mapping[str, Any]], planned: bool) -> dict[str, Any]:
    changed = [row for row in rows if row["changed"]]
    return {
        "changed": bool(changed),
        "streams": list(rows),
        "lines": _lines(wanted, rows, planned),
        "diff": {
            "before": {row["name"]: row["diff"].get("before", {}) for row in changed},
            "after": {row["name"]: row["diff"].get("after", {}) for row in changed},
        },
    }


def _lines(wanted: WantedRestores, rows: Sequence[Mapping[str, Any]], planned: bool) -> list[str]:
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
    title = f"{'To be restored' if planned else 'Restored'} from {wanted.store.place()}"
    return table(title, ("Stream", "As of", "Messages", "Bytes", "What"), shown).splitlines()


def _what(row: Mapping[str, Any], planned: bool) -> str:
    if row["problem"]:
        return str(row["problem"]).partition("\n")[0]
    if row["skipped"]:
        return "exists, and is left as it is"
    if not row["changed"]:
        return "is there, just as saved"
    if planned:
        return "will be created"
    compared = row["compared"]
    names = (("messages", "messages"), ("first_seq", "first"), ("last_seq", "last"), ("gaps", "gaps"))
    other = [
        f"{name} {compared[key][1]} instead of {compared[key][0]}"
        for key, name in names
        if compared[key][0] != compared[key][1]
    ]
    floors = sum(1 for before, after in compared["ack_floors"].values() if after is not None and after >= before)
    parts = other or ["messages, sequences and gaps as saved"]
    parts += [f"{floors} of {len(compared['ack_floors'])} ack floors"] if compared["ack_floors"] else []
    return ", ".join([*parts, f"contents {compared['digest']}"])
