# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The description of a backup, stored next to its archive. Pure.

A backup is a directory with the archive and `backup.json`, with the names and layout of the nats CLI (jsm.go
snapshots.go). The nats CLI reads and writes only `config` and `state`, and ignores the rest. Every `backup.json` not
written by the nats CLI has a seal, the SHA-256 of all its values: it reveals modifications and damage, unless the seal
was modified, too."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Optional

from .. import shapes
from ..nats.info_shapes import CONSUMER_CONFIG, POSITION, SERVER_METADATA, STATE_COUNTS, STREAM_CONFIG, STREAM_STATE
from ..screen import some_names
from ..shapes import count, flag, list_shape, members, moment, object_shape, optional, seconds, whole
from .archive_contents import ArchiveContents, ArchivedConsumer

SCHEMA, VERSION = "natsops.stream_backup", 1
FILE = "backup.json"
#: The collection writes the first name, which the nats CLI 0.4.0 reads. The nats CLI will use the second name for
#: archives of 2.15.
PLAIN_ARCHIVES = ("stream.tar.s2", "stream.arc.s2")
#: The name of an encrypted archive, which `age --decrypt` turns into the first of these names.
ENCRYPTED_ARCHIVE = f"{PLAIN_ARCHIVES[0]}.age"
ARCHIVES = (*PLAIN_ARCHIVES, ENCRYPTED_ARCHIVE)

Info = Mapping[str, Any]


class ManifestError(Exception):
    """The file next to an archive does not describe a backup."""


@dataclass(frozen=True)
class Manifest:
    """The data about a backup. `created`: the creation time of the stream, which distinguishes two streams with the
    same name. `contents`: the verified content of the archive, None if it was not read back. `size` and `sha256` are
    those of the stored archive; None if the nats CLI took the backup. `crashed`: whether it comes from the store of a
    server that did not stop cleanly. `encryption`: `method` and `recipients` of an encrypted archive, None for a plain
    one."""

    stream: str
    config: Mapping[str, Any]
    state: Mapping[str, Any]
    archive: str
    account: Optional[str] = None
    account_name: Optional[str] = None
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
        """Return the content of `backup.json`."""
        return {"schema": SCHEMA, "version": VERSION, **asdict(self)}

    def text(self) -> str:
        return sealed_text(self.as_dict())


def sealed_text(document: Mapping[str, Any]) -> str:
    """Return the text of a manifest with its seal."""
    return json.dumps({**document, "seal": _seal(document)}, indent=2, sort_keys=True) + "\n"


def _seal(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def read_manifest(text: str, archives: Sequence[str]) -> Manifest:
    """Parse `backup.json`; `archives`: names of the archives next to it. Raises ManifestError."""
    try:
        document = shapes.read_json(text)
    except ValueError as error:
        raise ManifestError(f"it is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ManifestError("it is not a JSON object")
    schema, version = document.get("schema"), document.get("version")
    if schema is None and "config" in document and "state" in document:
        _require(document, {"config": STREAM_CONFIG, "state": STREAM_STATE})
        if len(archives) != 1:
            raise ManifestError(f"there must be exactly one archive next to it: {', '.join(archives) or 'none'}")
        return Manifest(document["config"]["name"], document["config"], document["state"], archives[0])
    if (schema, version) != (SCHEMA, VERSION):
        raise ManifestError(f"its schema is {schema!r} {version!r}; this release reads {SCHEMA} {VERSION}")
    if document.pop("seal", None) != _seal(document):
        raise ManifestError("its seal does not match: it was modified or damaged after the backup")
    _require(document, _SHAPES)
    known = {name: document[name] for name in Manifest.__dataclass_fields__ if name in document}
    if known["config"]["name"] != known["stream"]:
        raise ManifestError(
            f"it names stream {known['stream']}, but contains the configuration of {known['config']['name']}"
        )
    if bool(known.get("encryption")) != (known["archive"] == ENCRYPTED_ARCHIVE):
        raise ManifestError(
            f"its archive {known['archive']!r} is {'' if known.get('encryption') else 'not '}recorded as encrypted"
        )
    if known["archive"] not in archives:
        raise ManifestError(f"its archive {known['archive']!r} does not exist")
    return Manifest(**{**known, "consumers": tuple(known["consumers"]), "caveats": tuple(known["caveats"])})


def _require(document: Mapping[str, Any], wanted: Mapping[str, shapes.Shape]) -> None:
    wrong = shapes.misshapen(document, wanted)
    if wrong:
        raise ManifestError(f"it has no valid {', '.join(wrong)}")


# --- the structure of a manifest, which may be untrusted --------------------------------------------------------------

_CONSUMER = object_shape(
    {
        "name": shapes.text,
        "config": CONSUMER_CONFIG,
        "in_archive": optional(flag),
        **members(count, "num_ack_pending", "redelivered"),
        **members(POSITION, "delivered", "ack_floor"),
    }
)
_SHAPES: dict[str, shapes.Shape] = {
    **members(shapes.text, "stream", "archive"),
    "config": STREAM_CONFIG,
    "state": STREAM_STATE,
    "consumers": list_shape(_CONSUMER),
    "caveats": list_shape(shapes.text),
    "changed_meanwhile": object_shape({}, whole),
    "crashed": flag,
    "contents": optional(
        object_shape(
            {
                **members(count, "messages", "bytes", "largest", "first_seq", "last_seq"),
                "digest": shapes.text,
                "exact": flag,
            }
        )
    ),
    "encryption": optional(object_shape({"method": shapes.text, "recipients": list_shape(shapes.text)})),
    "taken": moment,
    "seconds": optional(seconds),
    "size": count,
    "sha256": shapes.text,
    **members(optional(shapes.text), "account", "account_name", "created", "server_version", "format"),
}


def consumer_entries(infos: Sequence[Info], contents: ArchiveContents | None) -> tuple[dict[str, Any], ...]:
    """Return the manifest's data of each consumer: the servers' reports from before the snapshot, and the positions in
    the archive if it has any. `in_archive`: None if the archive was not read back. `redelivered`: the maximum number of
    messages that the consumer delivers again after a restore."""
    there = {consumer.name: consumer for consumer in contents.consumers} if contents else {}
    names = sorted({*there, *(info["name"] for info in infos)})
    by_name = {info["name"]: info for info in infos}
    return tuple(_consumer_entry(name, by_name.get(name), there.get(name), contents is not None) for name in names)


def _consumer_entry(name: str, info: Info | None, archived: ArchivedConsumer | None, known: bool) -> dict[str, Any]:
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
    return {
        "name": name,
        **found,
        "config": without_server_metadata(found["config"]),
        **positions,
        "redelivered": _redelivered(found["num_ack_pending"], info, archived),
        "in_archive": archived is not None if known else None,
    }


def _redelivered(pending: int, info: Info | None, archived: ArchivedConsumer | None) -> int:
    """Return the number of messages that a consumer delivers again after a restore. In a cluster, an archive of 2.15
    contains only the consumer's ack floor, so messages acknowledged above it are also delivered again (observed on
    2.15.1)."""
    delivered = _pair((info or {}).get("delivered"))["consumer_seq"]
    if archived is None:
        floor = _pair((info or {}).get("ack_floor"))["consumer_seq"]
    elif archived.delivered["consumer_seq"] < delivered:
        floor = archived.ack_floor["consumer_seq"]
    else:
        return archived.pending
    return max(pending, delivered - floor) if pending else 0


def _pair(value: Any) -> dict[str, int]:
    return {key: int((value or {}).get(key) or 0) for key in ("consumer_seq", "stream_seq")}


def without_server_metadata(config: Info) -> dict[str, Any]:
    """Return a configuration without the metadata that servers add themselves."""
    metadata = {
        key: value for key, value in (config.get("metadata") or {}).items() if not key.startswith(SERVER_METADATA)
    }
    kept = {key: value for key, value in config.items() if key != "metadata"}
    return {**kept, "metadata": metadata} if metadata else kept


def archive_differences(manifest: Manifest, contents: ArchiveContents) -> list[str]:
    """Return the differences between an archive that was read back and its manifest."""
    found = [] if contents.as_dict() == manifest.contents else ["its content differs from the backup record"]
    described = {entry["name"]: _positions(entry) for entry in manifest.consumers if entry["in_archive"]}
    there = {consumer.name: (consumer.delivered, consumer.ack_floor) for consumer in contents.consumers}
    names = sorted(name for name in {*described, *there} if described.get(name) != there.get(name))
    found += [f"its consumers {some_names(names)} differ from the backup"] if names else []
    return found


def _positions(entry: Info) -> tuple[Any, Any]:
    return entry["delivered"], entry["ack_floor"]


def outdated(manifest: Manifest, account: str | None, info: Info, consumers: Sequence[Info] | None) -> str:
    """Return the reason why a backup is outdated, empty if it is not. `consumers`: None if they are excluded."""
    if manifest.account != account or manifest.created != info.get("created"):
        return "the stream was deleted and recreated under the same name"
    if without_server_metadata(manifest.config) != without_server_metadata(info["config"]):
        return "its configuration has changed"
    state = info.get("state") or {}
    if any((manifest.state.get(key) or 0) != (state.get(key) or 0) for key in STATE_COUNTS) or any(
        manifest.changed_meanwhile.values()
    ):
        return "messages have been stored or deleted since"
    if consumers is None:
        return "the backup has consumers" if manifest.consumers else ""
    before = {entry["name"]: _position(entry) for entry in manifest.consumers}
    if before != {found["name"]: _position(found) for found in consumers}:
        return "consumers have changed or made progress since"
    return ""


def _position(consumer: Info) -> tuple[Any, ...]:
    config = without_server_metadata(consumer["config"])
    return config, _pair(consumer.get("ack_floor")), consumer.get("num_ack_pending", 0)


def changes(before: Info, after: Info) -> dict[str, int]:
    """Return the changes of a stream's state during the backup: 0 for unchanged values."""
    return {
        key: (after.get(key) or 0) - (before.get(key) or 0)
        for key in ("messages", "first_seq", "last_seq", "num_deleted")
    }
