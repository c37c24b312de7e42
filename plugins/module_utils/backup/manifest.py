# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The description of a backup, next to its archive. Pure.

A backup is a directory with the archive and `backup.json`, named and laid out as the nats CLI does (jsm.go snapshots.go), which
reads `config` and `state` and ignores the rest. The nats CLI writes only these two. Every other `backup.json` has a seal, the
SHA-256 of all its values: it shows what was edited or damaged, though not an edit that computes a new seal.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Optional

from ansible_collections.natsops.jetstream.plugins.module_utils import shapes
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.config import SERVER_METADATA
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.verify import Consumer, Contents
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.info_shapes import (
    CONSUMER_CONFIG,
    POSITION,
    STATE_COUNTS,
    STREAM_CONFIG,
    STREAM_STATE,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.screen import some_names
from ansible_collections.natsops.jetstream.plugins.module_utils.shapes import (
    count,
    flag,
    list_shape,
    members,
    moment,
    object_shape,
    optional,
    seconds,
    whole,
)

SCHEMA, VERSION = "natsops.stream_backup", 1
FILE = "backup.json"
#: The first is the name that is written, and that the nats CLI 0.4.0 reads; it will call archives of 2.15 by the second one.
PLAIN_ARCHIVES = ("stream.tar.s2", "stream.arc.s2")
#: What an encrypted one is called: `age --decrypt` makes the first one of it.
ENCRYPTED_ARCHIVE = f"{PLAIN_ARCHIVES[0]}.age"
ARCHIVES = (*PLAIN_ARCHIVES, ENCRYPTED_ARCHIVE)

Info = Mapping[str, Any]


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
        """Return what is written to `backup.json`."""
        return {"schema": SCHEMA, "version": VERSION, **asdict(self)}

    def text(self) -> str:
        return sealed_text(self.as_dict())


def sealed_text(document: Mapping[str, Any]) -> str:
    """Return the text of a manifest with its seal."""
    return json.dumps({**document, "seal": _seal(document)}, indent=2, sort_keys=True) + "\n"


def _seal(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def read_manifest(text: str, archives: Sequence[str]) -> Manifest:
    """Return what `backup.json` says; `archives`: names of the archives beside it. Raises ManifestError."""
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
            f"it names stream {known['stream']}, but its configuration is that of {known['config']['name']}"
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


# --- the shape of a manifest, which may come from anywhere ----------------------------------------------------------------

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


def consumer_entries(infos: Sequence[Info], contents: Contents | None) -> tuple[dict[str, Any], ...]:
    """Return what a manifest keeps of each consumer: what the servers said before the snapshot, and the positions that its
    archive has where there are any. `in_archive`: None where the archive was not read back. `redelivered`: the messages that
    the consumer delivers again once it is restored, at most."""
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
    return {
        "name": name,
        **found,
        "config": without_server_metadata(found["config"]),
        **positions,
        "redelivered": _redelivered(found["num_ack_pending"], info, archived),
        "in_archive": archived is not None if known else None,
    }


def _redelivered(pending: int, info: Info | None, archived: Consumer | None) -> int:
    """Return how many messages a consumer delivers again after a restore. Where it is led by a cluster, an archive of 2.15 has
    its ack floor alone: what was acknowledged above comes again, too (seen on 2.15.1)."""
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
    """Return a configuration without what servers add to its metadata themselves."""
    metadata = {
        key: value for key, value in (config.get("metadata") or {}).items() if not key.startswith(SERVER_METADATA)
    }
    kept = {key: value for key, value in config.items() if key != "metadata"}
    return {**kept, "metadata": metadata} if metadata else kept


def archive_differences(manifest: Manifest, contents: Contents) -> list[str]:
    """Return in which way an archive that was read back is not what its manifest describes."""
    found = [] if contents.as_dict() == manifest.contents else ["its content differs from the backup record"]
    described = {entry["name"]: _positions(entry) for entry in manifest.consumers if entry["in_archive"]}
    there = {consumer.name: (consumer.delivered, consumer.ack_floor) for consumer in contents.consumers}
    names = sorted(name for name in {*described, *there} if described.get(name) != there.get(name))
    found += [f"its consumers {some_names(names)} differ from the backup"] if names else []
    return found


def _positions(entry: Info) -> tuple[Any, Any]:
    return entry["delivered"], entry["ack_floor"]


def outdated(manifest: Manifest, account: str | None, info: Info, consumers: Sequence[Info] | None) -> str:
    """Return why a backup is not what the stream is now, empty when it is. `consumers`: None where they are left out."""
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
    """Return how a stream's state changed while it was saved: 0 for what did not."""
    return {
        key: (after.get(key) or 0) - (before.get(key) or 0)
        for key in ("messages", "first_seq", "last_seq", "num_deleted")
    }
