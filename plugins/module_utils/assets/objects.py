# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects of object buckets in terms of messages. Pure: no I/O.

Source: ADR-20 (object store), and its implementation in nats.go.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .config import OptionError

#: Bytes of one chunk, as in all clients.
CHUNK = 128 << 10

_DIGEST = "SHA-256="


@dataclass(frozen=True)
class StoredObject:
    """The description of an object. `revision`: the sequence of the message that contains it. `digest`: SHA-256 in
    hexadecimal digits. `link`: the target of a link, otherwise empty."""

    name: str
    nuid: str
    size: int
    chunks: int
    digest: str
    description: str = ""
    deleted: bool = False
    link: str = ""
    revision: int = 0
    time: str = ""

    def shown(self) -> dict[str, Any]:
        """Return the object for a result."""
        return {
            "name": self.name,
            "size": self.size,
            "chunks": self.chunks,
            "sha256": self.digest or None,
            "description": self.description,
            "link": self.link or None,
            "modified": self.time,
        }


def description_subject(bucket: str, name: str) -> str:
    """Return the subject that contains the description of an object. Raises OptionError for an empty name."""
    if not name:
        raise OptionError("name: an object needs a name")
    return f"$O.{bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"


def chunks_subject(bucket: str, nuid: str) -> str:
    """Return the subject of an object's chunks."""
    return f"$O.{bucket}.C.{nuid}"


def read_description(message: Mapping[str, Any]) -> StoredObject:
    """Return the object that a message describes. Raises ValueError for a message that no client writes."""
    found = json.loads(base64.b64decode(message.get("data") or ""))
    if not isinstance(found, dict):
        raise ValueError("the description of the object is not a JSON object")
    link = (found.get("options") or {}).get("link") or {}
    nuid = str(found.get("nuid") or "")
    if not nuid.isalnum() and not link and not found.get("deleted"):
        raise ValueError("the description of the object has no valid nuid")
    return StoredObject(
        name=str(found.get("name") or ""),
        nuid=nuid,
        size=int(found.get("size") or 0),
        chunks=int(found.get("chunks") or 0),
        digest=_read_digest(str(found.get("digest") or "")),
        description=str(found.get("description") or ""),
        deleted=bool(found.get("deleted")),
        link="/".join(str(link[key]) for key in ("bucket", "name") if link.get(key)),
        revision=int(message["seq"]),
        time=str(message["time"]),
    )


def _read_digest(digest: str) -> str:
    encoded = digest[len(_DIGEST) :] if digest.startswith(_DIGEST) else ""
    return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).hex()


def write_description(bucket: str, item: StoredObject) -> bytes:
    """Return the message that describes an object."""
    digest = f"{_DIGEST}{base64.urlsafe_b64encode(bytes.fromhex(item.digest)).decode()}" if item.digest else ""
    content: dict[str, Any] = {
        "name": item.name,
        "bucket": bucket,
        "nuid": item.nuid,
        "size": item.size,
        "mtime": "0001-01-01T00:00:00Z",  # clients use the time at which the server stored the message
        "chunks": item.chunks,
        "digest": digest,
        "options": {"max_chunk_size": CHUNK},
    }
    if item.description:
        content["description"] = item.description
    if item.deleted:
        content["deleted"] = True
    return json.dumps(content).encode()
