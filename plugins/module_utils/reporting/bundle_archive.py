# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A bundle: a ZIP archive of limited size, without secrets, in the layout of `nats audit gather`.

The layout follows jsm.go audit/archive (SPEC.md, tag.go, reader.go), whose manifest lists every file with its tags and
contains nothing else. Therefore `capture/misc/bundle.json` has the checksums and lists the missing files, and files
from hosts are below `host/`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..nats.failures import NatsFailure
from ..redaction import Redactor
from ..units import human_bytes

SCHEMA, VERSION = "natsops.bundle", 1
ROOT, MISC = "capture", "capture/misc"
MANIFEST = f"{MISC}/manifest.json"
METADATA = f"{MISC}/audit_gather_metadata.json"
INDEX = f"{MISC}/bundle.json"
#: The cluster name of a server without a cluster.
UNCLUSTERED = "unclustered"
#: Maximum number of pages of one artifact, because their names have four digits.
_PAGES = 9999

#: The smallest size of a bundle: its index and its manifest must fit.
SMALLEST = 1 << 20
#: Bytes reserved for the index, the manifest and the ZIP's directory: a fixed number for each of these, and more for
#: each file.
_RESERVED, _PER_FILE = 64 << 10, 640


@dataclass(frozen=True)
class Missing:
    """A file that the bundle lacks or includes only partly (`cut`), with the server or host and the reason."""

    item: str
    reason: str
    server: str = ""

    def as_dict(self) -> dict[str, str]:
        """Return the entry as in the index and the module's result."""
        return {"server": self.server, "item": self.item, "reason": self.reason}


def component(value: str) -> str:
    """Return a value as one component of a path. Unsafe characters, which could lead outside the folder, are
    percent-encoded."""
    if value in ("", ".", "..") or "/" in value or "\\" in value or "\0" in value:
        return quote(value, safe="").replace(".", "%2E") or "%00"
    return value


def server_folder(tags: Mapping[str, str]) -> str:
    """Return the folder for the pages of an artifact (tag.go createFilenameFromTags)."""
    part = {name: component(value) for name, value in tags.items()}
    server = f"{part['cluster']}__{part['server']}"
    if "stream" in part:
        return f"{ROOT}/accounts/{part['account']}/streams/{part['stream']}/replicas/{server}/{part['artifact_type']}"
    if "account" in part:
        return f"{ROOT}/accounts/{part['account']}/servers/{server}/{part['artifact_type']}"
    return f"{ROOT}/clusters/{part['cluster']}/{part['server']}/{part['artifact_type']}"


def profile_path(tags: Mapping[str, str]) -> str:
    """Return the path of a profile, which has no pages."""
    part = {name: component(value) for name, value in tags.items()}
    return f"{ROOT}/profiles/{part['cluster']}/{part['server']}__{part['profile_name']}.prof"


class BundleWriter:
    """Writes a bundle, which becomes visible only when it is complete. A file that would exceed the limit, or that
    still contains a known secret, is omitted and listed as missing."""

    def __init__(self, path: Path, redactor: Redactor, max_size: int, taken: datetime) -> None:
        if max_size < SMALLEST:
            raise NatsFailure("invalid_option", f"max_size: a bundle needs at least {human_bytes(SMALLEST)}")
        self.path = path
        self.missing: list[Missing] = []
        self.cut: list[Missing] = []
        self._redactor = redactor
        self._max_size = max_size
        self._taken = taken
        self._incoming = path.with_name(f".{path.name}.partial")
        self._tags: dict[str, list[dict[str, str]]] = {}
        self._files: dict[str, dict[str, Any]] = {}
        self._pages: dict[str, int] = {}
        self._complete = False

    def __enter__(self) -> BundleWriter:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = os.fdopen(os.open(self._incoming, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b")
        except OSError as error:
            raise NatsFailure("bundle", f"{self._incoming} cannot be written: {error.strerror}") from error
        self._zip = zipfile.ZipFile(self._file, "w", zipfile.ZIP_DEFLATED)
        return self

    def __exit__(self, *exc_info: object) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._zip.close()
        self._file.close()
        if not self._complete:
            self._incoming.unlink(missing_ok=True)

    def page(self, tags: Mapping[str, str], document: Any) -> None:
        """Write a reply as the next page of its artifact."""
        folder = server_folder(tags)
        number = self._pages.get(folder, 0) + 1
        item = f"{tags['artifact_type']}{' of ' + tags['account'] if 'account' in tags else ''}"
        if number > _PAGES:
            self.cut.append(Missing(item, f"it has more than {_PAGES} pages", tags["server"]))
        elif self._json(f"{folder}/{number:04d}.json", document, tags, item, tags["server"]):
            self._pages[folder] = number

    def profile(self, tags: Mapping[str, str], content: bytes) -> None:
        """Write a profile; profiles with debug levels are texts."""
        name = tags["profile_name"]
        if content[:2] != b"\x1f\x8b":
            content = self._redactor.text(content.decode(errors="replace")).encode()
        named = {**tags, "artifact_type": "profile"}
        self._add(profile_path(named), content, _listed(named), f"profile {name}", tags["server"])

    def special(self, name: str, document: Any) -> None:
        """Write a document about the bundle itself below `capture/misc`."""
        self._json(f"{MISC}/{name}.json", document, {"special": name}, name, "")

    def text(self, path: str, text: str, item: str, server: str = "") -> None:
        """Write a text at any path."""
        special = path.rpartition(".")[0].replace("/", "__")
        content = self._redactor.text(text).encode()
        self._add(path, content, _listed({"special": special}), item, server)

    def miss(self, item: str, reason: str, server: str = "") -> None:
        """Record a missing file. The reason is external text, so it is redacted."""
        self.missing.append(Missing(item, self._redactor.text(reason), server))

    def note_cut(self, item: str, reason: str, server: str) -> None:
        """Record a file that is included only partly."""
        self.cut.append(Missing(item, self._redactor.text(reason), server))

    def publish(self, metadata: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
        """Write metadata, index and manifest, move the bundle into place, and return its index. Raises NatsFailure."""
        try:
            metadata = self._redactor.tree(dict(metadata))
            self._store(METADATA, _json(metadata), _listed({"special": "audit_gather_metadata"}))
            self._tags[INDEX] = _listed({"special": "bundle"})
            manifest = _json(dict(sorted(self._tags.items())))
            self._files[MANIFEST] = {"size": len(manifest), "sha256": hashlib.sha256(manifest).hexdigest()}
            index = self._redactor.tree(
                {
                    "schema": SCHEMA,
                    "version": VERSION,
                    "taken": self._taken.isoformat(),
                    **about,
                    "missing": [one.as_dict() for one in self.missing],
                    "cut": [one.as_dict() for one in self.cut],
                    "files": dict(sorted(self._files.items())),
                }
            )
            content = _json(index)
            for path, final in ((INDEX, content), (MANIFEST, manifest)):
                self._zip.writestr(self._entry(path), final)
                if self._redactor.finds(final):
                    raise NatsFailure("bundle", f"the name of a file in {path} contains a secret; nothing was written")
            self._zip.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            os.replace(self._incoming, self.path)
        except OSError as error:
            raise NatsFailure("bundle", f"{self.path} cannot be written: {error.strerror}") from error
        self._complete = True
        return index

    def _json(self, path: str, document: Any, tags: Mapping[str, str], item: str, server: str) -> bool:
        return self._add(path, _json(self._redactor.tree(document)), _listed(tags), item, server)

    def _add(self, path: str, content: bytes, tags: list[dict[str, str]], item: str, server: str) -> bool:
        """Write a file if permitted, and return whether it was written."""
        if self._redactor.finds(content) or self._redactor.finds(path.encode()):
            self.miss(item, "it was left out because it still contains a secret", server)
            return False
        if not self._has_room(content):
            reason = f"it was left out because the bundle would exceed {human_bytes(self._max_size)}"
            self.cut.append(Missing(item, reason, server))
            return False
        try:
            self._store(path, content, tags)
        except OSError as error:
            raise NatsFailure("bundle", f"{self.path} cannot be written: {error.strerror}") from error
        return True

    def _has_room(self, content: bytes) -> bool:
        room = self._max_size - self._file.tell() - _RESERVED - _PER_FILE * (len(self._files) + 1)
        # The content is compressed for this check only if it would not fit uncompressed.
        return len(content) <= room or len(zlib.compress(content)) <= room

    def _store(self, path: str, content: bytes, tags: list[dict[str, str]]) -> None:
        self._zip.writestr(self._entry(path), content)
        self._files[path] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        self._tags[path] = tags

    def _entry(self, path: str) -> zipfile.ZipInfo:
        moment = self._taken.astimezone(timezone.utc)
        entry = zipfile.ZipInfo(path, moment.timetuple()[:6])
        entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o600 << 16
        return entry


def _listed(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Name": name, "Value": value} for name, value in tags.items()]


def _json(document: Any) -> bytes:
    return json.dumps(document, indent=2, ensure_ascii=False).encode("utf-8", "surrogatepass")
