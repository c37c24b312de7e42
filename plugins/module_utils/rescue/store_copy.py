# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copies the store of a stopped nats-server, and prepares a copy for a standalone server.

A standalone server skips streams with several replicas. The server loads such streams once `num_replicas` is 1 in their
configuration and 0 in the configurations of their consumers, with matching checksums. Sources: server/filestore.go
(checkMeta, writeStreamMeta), server/jetstream.go (enableJetStream).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from ..backup.restore_rules import isolated
from ..host.files import to_disk
from ..host.highway import highwayhash64
from ..units import human_bytes

#: The system account's directory, which contains the Raft groups; a standalone server has none.
_GROUPS = "_js_"
_UNFINISHED = ".part"


class StoreError(Exception):
    """The reason why a store cannot be copied or loaded."""


@dataclass(frozen=True)
class StoreCopyRequest:
    """The store to copy, and the destination. `reserve`: bytes that must stay free at the destination. `running`: a
    function that returns whether the server is running."""

    store_dir: str
    target: str
    reserve: int = 1 << 30
    running: Callable[[], bool] = lambda: False


def copy_store(request: StoreCopyRequest, check_mode: bool = False) -> bool:
    """Copy the streams of a stopped server, and return whether a copy had to be made. Raises StoreError.

    The copy is published only after it is complete and synced, so an existing copy is complete and never made again.
    """
    source, copy = Path(request.store_dir) / "jetstream", Path(request.target)
    if copy.exists():
        if not (copy / "jetstream").is_dir():
            raise StoreError(f"{copy} exists and is not a copy of a store: choose a different directory")
        return False
    unfinished = copy.with_name(copy.name + _UNFINISHED)
    try:
        _require_stopped(request)
        if copy.resolve().is_relative_to(source.resolve()):
            raise StoreError(f"{copy} is inside the store {source}: choose a different directory")
        _require_room(source, copy.parent, request.reserve)
        if check_mode:
            return True
        if unfinished.exists():
            shutil.rmtree(unfinished)
        unfinished.mkdir(mode=0o700)
        shutil.copytree(source, unfinished / "jetstream", ignore=shutil.ignore_patterns(_GROUPS), copy_function=_copied)
        for folder, _folders, _files in os.walk(unfinished):
            to_disk(folder)
        _require_stopped(request)
        unfinished.rename(copy)
        to_disk(copy.parent)
    except (OSError, shutil.Error) as error:
        raise StoreError(f"cannot copy {source} to {copy}: {error}") from error
    return True


def _require_stopped(request: StoreCopyRequest) -> None:
    if request.running():
        raise StoreError(
            f"nats-server runs on {request.store_dir}: stop it and keep it stopped before its store is copied"
        )


def _require_room(source: Path, directory: Path, reserve: int) -> None:
    needed = folder_bytes(source)
    free = shutil.disk_usage(directory).free
    if free < needed + reserve:
        raise StoreError(
            f"no room for a copy of {source} in {directory}: it needs {human_bytes(needed)} and must leave "
            f"{human_bytes(reserve)} free, but only {human_bytes(free)} are free"
        )


def folder_bytes(folder: Path) -> int:
    """Return the bytes of all files below a folder, which must exist. Raises OSError."""
    folder.stat()
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def load_alone(store_dir: str) -> list[str]:
    """Change the configurations in a copy to make a standalone server load its streams, and return ACCOUNT/STREAM of
    each. The streams keep their messages and lose all other settings, so no messages are added, expired or sent. All
    configurations are read before the first one is changed. Raises StoreError."""
    changes: list[tuple[Path, bytes, bytes]] = []
    names = []
    for path in sorted((Path(store_dir) / "jetstream").glob("*/streams/*/meta.inf")):
        folder = path.parent
        if folder.name.startswith("."):
            continue  # the stream is being deleted
        names.append(f"{folder.parent.parent.name}/{folder.name}")
        stream, config = _config(path, "")
        changes.append(_change(path, {**isolated(config), "num_replicas": 1}, stream))
        for inner in sorted(folder.glob("obs/*/meta.inf")):
            if not inner.parent.name.startswith("."):
                consumer, config = _config(inner, f"{stream}/")
                replicas = 1 if config.get("num_replicas") == 1 else 0  # 0: as many as its stream
                changes.append(_change(inner, {**config, "num_replicas": replicas}, consumer))
    for path, content, checksum in changes:
        try:
            path.write_bytes(content)
            path.with_suffix(".sum").write_bytes(checksum)
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror}") from error
    return names


def _config(path: Path, prefix: str) -> tuple[str, dict[str, object]]:
    """Return the input of a configuration's checksum, and the configuration. Raises StoreError."""
    if path.with_suffix(".key").exists():
        raise StoreError(f"{path.parent} is encrypted: its configuration cannot be changed without the key")
    try:
        content = path.read_bytes()
        checksum = path.with_suffix(".sum").read_bytes()
        config = json.loads(content)
    except OSError as error:
        raise StoreError(f"cannot read {error.filename}: {error.strerror}") from error
    except ValueError as error:
        raise StoreError(f"{path} is not a readable configuration: {error}") from error
    name = prefix + path.parent.name
    if checksum != _checksum(name, content):
        raise StoreError(f"{path} is damaged: its checksum in meta.sum does not match")
    return name, config


def _change(path: Path, config: Mapping[str, object], name: str) -> tuple[Path, bytes, bytes]:
    content = json.dumps(config, separators=(",", ":")).encode()
    return path, content, _checksum(name, content)


def _checksum(name: str, content: bytes) -> bytes:
    return highwayhash64(hashlib.sha256(name.encode()).digest(), content).hex().encode()


def _copied(source: str, target: str) -> None:
    """Copy a file with its owner, which is not root, and sync the copy to the disk."""
    shutil.copy2(source, target)
    found = os.stat(source)
    os.chown(target, found.st_uid, found.st_gid)
    to_disk(target)
