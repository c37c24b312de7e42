# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The catalogue of a backup directory: the content of each backup, the result of each stream, and the drills. Pure.

Each run reads the rows of backups again from the `backup.json` next to each archive. The results of the last runs and
of the drills are stored nowhere else."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Optional

from .. import shapes
from ..shapes import count, flag, list_shape, members, moment, object_shape, optional, seconds
from .manifest import Manifest

SCHEMA, VERSION = "natsops.backup_catalogue", 1
FILE = "catalogue.json"


class CatalogueError(ValueError):
    """The file is not a catalogue that this version can read."""


@dataclass(frozen=True)
class StreamRecord:
    """The results of the last runs for one stream, each a time in UTC or None. `current`: when the stream last matched
    its newest backup, or was saved. `problem`: why the last run did not save it, otherwise empty. `proof`: the last
    drill; its `proven` is the time of the last successful drill."""

    current: Optional[str] = None
    problem: str = ""
    proof: Optional[Mapping[str, Any]] = None


@dataclass(frozen=True)
class Catalogue:
    """`backups`: a row for each, oldest first (`backup_row`); `streams`: by `ACCOUNT/STREAM`; `exclude`: the patterns
    of streams that the last run left out; `cluster`: a row for each backup of the cluster's own files, oldest first."""

    written: str = ""
    backups: tuple[Mapping[str, Any], ...] = ()
    streams: Mapping[str, StreamRecord] = field(default_factory=dict)
    exclude: tuple[str, ...] = ()
    cluster: tuple[Mapping[str, Any], ...] = ()

    def text(self) -> str:
        document = {"schema": SCHEMA, "version": VERSION, **asdict(self)}
        return json.dumps(document, indent=2, sort_keys=True) + "\n"

    def saved(self, stream: str, current: str) -> Catalogue:
        """Return the catalogue after a stream was saved, or was found to match its newest backup."""
        return self._with(stream, current=current, problem="")

    def failed(self, stream: str, problem: str) -> Catalogue:
        return self._with(stream, problem=problem)

    def proven(self, stream: str, proof: Mapping[str, Any]) -> Catalogue:
        before = self.streams.get(stream, StreamRecord()).proof or {}
        last = before.get("time") if before.get("ok") else before.get("proven")
        return self._with(stream, proof={**proof, "proven": proof["time"] if proof.get("ok") else last})

    def without(self, gone: Collection[str]) -> Catalogue:
        """Return the catalogue without the records of streams that no longer exist. The rows of their backups stay."""
        return replace(self, streams={name: record for name, record in self.streams.items() if name not in gone})

    def _with(self, stream: str, **changes: Any) -> Catalogue:
        record = replace(self.streams.get(stream, StreamRecord()), **changes)
        return replace(self, streams={**self.streams, stream: record})


def stream_key(account: str | None, stream: str) -> str:
    """Return `ACCOUNT/STREAM`, the name of a stream in a catalogue and in operators' options."""
    return f"{account or ''}/{stream}"


def account_names(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the names of accounts by identity. `rows`: backups with account and account_name; the last row of each
    account counts."""
    return {row["account"]: row.get("account_name") or row["account"] for row in rows if row.get("account")}


def backup_row(path: str, manifest: Manifest) -> dict[str, Any]:
    """Return the catalogue's row of a backup; `path` is relative to the catalogue's directory."""
    held = manifest.contents or manifest.state
    return {
        "path": path,
        "account": manifest.account,
        "account_name": manifest.account_name,
        "stream": manifest.stream,
        "taken": manifest.taken,
        "seconds": manifest.seconds,
        "server_version": manifest.server_version,
        "format": manifest.format,
        "size": manifest.size,
        "sha256": manifest.sha256,
        "encryption": manifest.encryption,
        **{key: held.get(key, 0) for key in ("messages", "bytes", "first_seq", "last_seq")},
        "digest": (manifest.contents or {}).get("digest"),
        "consumers": [entry["name"] for entry in manifest.consumers],
        "changed_meanwhile": dict(manifest.changed_meanwhile),
    }


def read_catalogue(text: str) -> Catalogue:
    """Read a catalogue. Raises CatalogueError."""
    try:
        document = shapes.read_json(text)
    except ValueError as error:
        raise CatalogueError(f"it is not JSON: {error}") from error
    return parse_catalogue(document)


def parse_catalogue(document: Any) -> Catalogue:
    """Parse the JSON document of a catalogue. Raises CatalogueError."""
    if not isinstance(document, dict):
        raise CatalogueError("it is not a JSON object")
    if (document.get("schema"), document.get("version")) != (SCHEMA, VERSION):
        raise CatalogueError(
            f"its schema is {document.get('schema')!r} {document.get('version')!r}; this release reads {SCHEMA} "
            f"{VERSION}"
        )
    if not document.get("cluster"):
        document = {**document, "cluster": []}
    if not document.get("exclude"):  # older catalogues do not have it
        document = {**document, "exclude": []}
    wrong = shapes.misshapen(document, _SHAPES)
    if wrong:
        raise CatalogueError(f"it has no valid {', '.join(wrong)}")
    names = StreamRecord.__dataclass_fields__
    unknown = sorted({key for record in document["streams"].values() for key in record if key not in names})
    if unknown:
        raise CatalogueError(f"the record of a stream has an unknown {', '.join(unknown)}")
    return Catalogue(
        document["written"],
        tuple(document["backups"]),
        {
            name: StreamRecord(**{**record, "problem": record.get("problem") or ""})
            for name, record in document["streams"].items()
        },
        tuple(document["exclude"]),
        tuple(document["cluster"]),
    )


_BACKUP = object_shape(
    {
        **members(shapes.text, "path", "stream"),
        **members(optional(shapes.text), "account", "account_name", "server_version", "format", "sha256", "digest"),
        "taken": optional(moment),
        **members(optional(count), "size", "messages", "bytes", "first_seq", "last_seq"),
        "seconds": optional(seconds),
        "consumers": optional(list_shape(shapes.text)),
        **members(optional(object_shape({})), "encryption", "changed_meanwhile"),
    }
)
_RECORD = object_shape(
    {
        "current": optional(moment),
        "problem": optional(shapes.text),
        "proof": optional(
            object_shape(
                {
                    "time": moment,
                    "proven": optional(moment),
                    "ok": optional(flag),
                    "reason": optional(shapes.text),
                    "seconds": optional(seconds),
                    **members(optional(count), "bytes", "messages"),
                    **members(optional(shapes.text), "path", "taken", "digest", "server_version"),
                }
            )
        ),
    }
)
_CLUSTER_FILES = object_shape(
    {
        **members(shapes.text, "path", "sha256", "digest"),
        "taken": moment,
        "size": count,
        "files": list_shape(shapes.text),
        "encryption": optional(object_shape({})),
    }
)
_SHAPES: dict[str, shapes.Shape] = {
    "written": shapes.text,
    "backups": list_shape(_BACKUP),
    "streams": object_shape({}, _RECORD),
    "exclude": list_shape(shapes.text),
    "cluster": list_shape(_CLUSTER_FILES),
}
