# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules by which `nats audit analyze` accepts an archive. The command itself is not in any package registry.

From jsm.go of August 2026 (caea3c5): audit/archive/reader.go NewReader, tag.go createFilenameFromTags and
validatePathComponent, audit/archive/paged_writer.go, and the files that its checks load (audit/*_checks.go).
"""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

_DIMENSIONS = {"account", "cluster", "server", "stream", "artifact_type", "profile_name"}
_MANIFEST = "capture/misc/manifest.json"
_PAGE = re.compile(r"\d{4}\.json")
_METADATA = {
    "capture_timestamp",
    "connected_server_name",
    "connected_server_version",
    "connect_url",
    "user_name",
    "version",
}


class AuditArchive:
    """An archive as natscli opens it. Raises AssertionError if the archive is refused; `warnings` are the reader's
    complaints."""

    def __init__(self, path: Path) -> None:
        self._zip = zipfile.ZipFile(path)
        assert self._zip.testzip() is None
        names = self._zip.namelist()
        assert len(names) == len(set(names))
        assert _MANIFEST in names
        assert names[-1] == _MANIFEST
        found = json.loads(self._zip.read(_MANIFEST))
        for tags in found.values():
            assert isinstance(tags, list)
            # Go ignores unknown fields, and a missing field would be an empty string.
            assert all(set(tag) == {"Name", "Value"} and isinstance(tag["Value"], str) for tag in tags)
        self.tags = {path: {tag["Name"]: tag["Value"] for tag in tags} for path, tags in found.items()}
        assert all(len(tags) == len(found[path]) for path, tags in self.tags.items())
        assert set(self.tags) <= set(names), "a file of the manifest is not in the archive"
        self.warnings = [name for name in names if name not in self.tags and name != _MANIFEST]
        for name, tags in self.tags.items():
            self._check_place(name, tags)
        metadata = self.json("capture/misc/audit_gather_metadata.json")
        assert set(metadata) == _METADATA
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", metadata["capture_timestamp"])

    def json(self, path: str) -> Any:
        return json.loads(self._zip.read(path))

    def load(self, **wanted: str) -> list[Any]:
        """Return the pages with these tags in order (ForEachTaggedArtifact); the tag `artifact_type` is called `kind`
        here."""
        named = {"artifact_type" if name == "kind" else name: value for name, value in wanted.items()}
        paths = [path for path, tags in self.tags.items() if named.items() <= tags.items()]
        return [self.json(path) for path in sorted(paths) if _PAGE.fullmatch(path.rpartition("/")[2])]

    @property
    def cluster_servers(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for tags in self.tags.values():
            if "cluster" in tags and "server" in tags:
                found.setdefault(tags["cluster"], set()).add(tags["server"])
        return found

    def _check_place(self, path: str, tags: dict[str, str]) -> None:
        """Check that a file is at the path to which natscli would have written this artifact."""
        if "special" in tags:
            assert len(tags) == 1
            assert path.startswith(("capture/misc/", "host/")), path
            return
        assert set(tags) <= _DIMENSIONS
        assert {"artifact_type", "cluster", "server"} <= set(tags)
        assert all(value and "/" not in value and "\\" not in value and value != ".." for value in tags.values())
        server = f"{tags['cluster']}__{tags['server']}"
        if tags["artifact_type"] == "profile":
            profile = f"capture/profiles/{tags['cluster']}/{tags['server']}__{tags['profile_name']}.prof"
            assert path == profile
            return
        if "stream" in tags:
            folder = f"accounts/{tags['account']}/streams/{tags['stream']}/replicas/{server}"
        elif "account" in tags:
            folder = f"accounts/{tags['account']}/servers/{server}"
        else:
            folder = f"clusters/{tags['cluster']}/{tags['server']}"
        before, _slash, page = path.rpartition("/")
        assert before == f"capture/{folder}/{tags['artifact_type']}"
        assert _PAGE.fullmatch(page), path
