# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of a backup, beside its archive. Pure.

A backup is a directory with the archive and `backup.json`, named and laid out as the nats CLI does (jsm.go snapshots.go), which
reads `config` and `state` and ignores the rest. What the nats CLI wrote has only these two.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Optional

from ansible_collections.natsops.jetstream.plugins.module_utils.assets.config import SERVER_METADATA
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.verify import Consumer, Contents

SCHEMA, VERSION = "natsops.stream_backup", 1
FILE = "backup.json"
#: The first is the name that is written, and that the nats CLI 0.4.0 reads; it will call archives of 2.15 by the second one.
PLAIN_ARCHIVES = ("stream.tar.s2", "stream.arc.s2")
#: What an encrypted one is called: `age --decrypt` makes the first one of it.
ENCRYPTED_ARCHIVE = f"{PLAIN_ARCHIVES[0]}.age"
ARCHIVES = (*PLAIN_ARCHIVES, ENCRYPTED_ARCHIVE)

Info = Mapping[str, Any]

#: What of a stream's state shows that nothing was stored or removed since.
_STATE = ("messages", "bytes", "first_seq", "last_seq", "num_deleted")


class ManifestError(Exception):
    """The file beside an archive is not one that describes a backup."""


@dataclass(frozen=True)
class Manifest:
    """What is known of a backup. `created`: the stream's, by which two streams of one name differ. `contents`: what the
    archive was seen to hold, None where it was not read back. `size` and `sha256` are those of the archive as it is kept; None
    where the nats CLI took the backup. `crashed`: whether it is from the store of a server that had not stopped in order.
    `encryption`: `method` and `recipients` of an encrypted archive, None for a plain one."""

    stream: str
    config: Mapping[str, Any]
    state: Mapping[str, Any]
    archive: str
    account: Optional[str] = None
    created: Optional[str] = None
    taken: Optional[str] = None
    seconds: Optional[float] = None
    server_version: Optional[str] = None
    format: Optional[str] = None
    size: Optional[int] = None
    sha256: Optional[str] = None
    contents: Optional[Mapping[str, Any]] = None
    consumers: tuple[Mapping[str, Any], ...] = ()
    changed_meanwhile: Mapping[str, int] = field(default_factory=dict)
    caveats: tuple[str, ...] = ()
    crashed: bool = False
    encryption: Optional[Mapping[str, Any]] = None

    def as_dict(self) -> dict[str, Any]:
        """Return what is written to `backup.json`."""
        return {"schema": SCHEMA, "version": VERSION, **asdict(self)}

    def text(self) -> str:
        return json.dumps(self.as_dict(), indent=2, sort_keys=True) + "\n"


def read_manifest(text: str, archives: Sequence[str]) -> Manifest:
    """Return what `backup.json` says; `archives`: names of the archives beside it. Raises ManifestError."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ManifestError(f"it is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ManifestError("it is not a JSON object")
    schema, version = document.pop("schema", None), document.pop("version", None)
    if schema is None and isinstance(document.get("config"), dict) and isinstance(document.get("state"), dict):
        if len(archives) != 1:
            raise ManifestError(f"there is not one archive beside it: {', '.join(archives) or 'none'}")
        return Manifest(str(document["config"].get("name")), document["config"], document["state"], archives[0])
    if (schema, version) != (SCHEMA, VERSION):
        raise ManifestError(f"its schema is {schema!r} {version!r}; {SCHEMA} {VERSION} is read here")
    known = {name: document[name] for name in Manifest.__dataclass_fields__ if name in document}
    wanted = {"stream": str, "config": dict, "state": dict, "archive": str, "consumers": list}
    wrong = [name for name, kind in wanted.items() if not isinstance(known.get(name), kind)]
    if wrong:
        raise ManifestError(f"it has no {', '.join(wrong)}")
    if bool(known.get("encryption")) != (known["archive"] == ENCRYPTED_ARCHIVE):
        raise ManifestError(
            f"its archive {known['archive']!r} is {'' if known.get('encryption') else 'not '}said to be encrypted"
        )
    if known["archive"] not in archives:
        raise ManifestError(f"its archive {known['archive']!r} is not there")
    return Manifest(**{**known, "consumers": tuple(known["consumers"]), "caveats": tuple(known.get("caveats", ()))})


def consumer_entries(infos: Sequence[Info], contents: Contents | None) -> tuple[dict[str, Any], ...]:
    """Return what a manifest keeps of each consumer: what the servers said before the snapshot, and the positions that its
    archive has where there are any. `in_archive`: None where the archive was not read back."""
    there = {consumer.name: consumer for consumer in contents.consumers} if contents else {}
    names = sorted({*there, *(info["name"] for info in infos)})
    by_name = {info["name"]: info for info in infos}
    return tuple(_consumer_entry(name, by_name.get(name), there.get(name), contents is not None) for name in names)


def _consumer_entry(name: str, info: Info | None, archived: Consumer | None, known: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if info is not None:
        found = {"config": info["config"], "num_ack_pending": info.get("num_ack_pending", 0)}
    elif archived is not None:
        found = {"config": archived.config, "num_ack_pending": archived.pending}
    positions = (
        {"delivered": archived.delivered, "ack_floor": archived.ack_floor}
        if archived is not None
        else {key: _pair((info or {}).get(key)) for key in ("delivered", "ack_floor")}
    )
    config = without_server_metadata(found["config"])
    return {"name": name, **found, "config": config, **positions, "in_archive": archived is not None if known else None}


def _pair(value: Any) -> dict[str, int]:
    return {key: int((value or {}).get(key) or 0) for key in ("consumer_seq", "stream_seq")}


def without_server_metadata(config: Info) -> dict[str, Any]:
    """Return a configuration without what servers add to its metadata themselves."""
    metadata = {
        key: value for key, value in (config.get("metadata") or {}).items() if not key.startswith(SERVER_METADATA)
    }
    kept = {key: value for key, value in config.items() if key != "metadata"}
    return {**kept, "metadata": metadata} if metadata else kept


def outdated(manifest: Manifest, account: str | None, info: Info, consumers: Sequence[Info] | None) -> str:
    """Return why a backup is not what the stream is now, empty when it is. `consumers`: None where they are left out."""
    if manifest.account != account or manifest.created != info.get("created"):
        return "the stream is another one of the same name"
    if without_server_metadata(manifest.config) != without_server_metadata(info["config"]):
        return "its configuration is another"
    state = info.get("state") or {}
    if any((manifest.state.get(key) or 0) != (state.get(key) or 0) for key in _STATE) or any(
        manifest.changed_meanwhile.values()
    ):
        return "messages were stored or removed since"
    if consumers is None:
        return "the backup has consumers" if manifest.consumers else ""
    before = {entry["name"]: _position(entry) for entry in manifest.consumers}
    if before != {found["name"]: _position(found) for found in consumers}:
        return "consumers were changed or moved on since"
    return ""


def _position(consumer: Info) -> tuple[Any, ...]:
    config = without_server_metadata(consumer["config"])
    return config, _pair(consumer.get("ack_floor")), consumer.get("num_ack_pending", 0)


def changes(before: Info, after: Info) -> dict[str, int]:
    """Return how a stream's state changed while it was saved: 0 for what did not."""
    return {
        key: (after.get(key) or 0) - (before.get(key) or 0)
        for key in ("messages", "first_seq", "last_seq", "num_deleted")
    }
