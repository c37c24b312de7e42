# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A copy of what the store of a stopped nats-server holds, and a copy of that which a server without a cluster loads.

A server without a cluster skips streams with several replicas. They are loaded once `num_replicas` is 1 in their configuration
and 0 in those of their consumers, and the checksums beside these fit. Sources: server/filestore.go (checkMeta, writeStreamMeta),
server/jetstream.go (enableJetStream).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

from ansible_collections.natsops.jetstream.plugins.module_utils.backup.highway import highwayhash64

#: The system account's directory, which holds the Raft groups: a server without a cluster has none.
_GROUPS = "_js_"
_UNFINISHED = ".part"


class StoreError(Exception):
    """Why a store cannot be copied, or cannot be loaded."""


def copy_store(store_dir: str, target: str, reserve: int = 1 << 30) -> Path:
    """Copy the streams below `store_dir` to `target`, and leave at least `reserve` bytes free. The server must be stopped.

    A copy has its name only when it is whole and on the disk, so that one that is there is not made again. Raises StoreError.
    """
    source, copy = Path(store_dir) / "jetstream", Path(target)
    if copy.exists():
        return copy
    unfinished = copy.with_name(copy.name + _UNFINISHED)
    try:
        if unfinished.exists():
            shutil.rmtree(unfinished)
        needed = sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
        free = shutil.disk_usage(copy.parent).free
        if free < needed + reserve:
            raise StoreError(
                f"no room for a copy of {source} in {copy.parent}: it needs {needed} bytes, {reserve} must stay free, "
                f"and {free} are"
            )
        shutil.copytree(source, unfinished / "jetstream", ignore=shutil.ignore_patterns(_GROUPS), copy_function=_copied)
        for folder, _folders, _files in os.walk(unfinished):
            _to_disk(Path(folder))
        unfinished.rename(copy)
        _to_disk(copy.parent)
    except (OSError, shutil.Error) as error:
        raise StoreError(f"cannot copy {source} to {copy}: {error}") from error
    return copy


def load_alone(store_dir: str) -> list[str]:
    """Change the configurations in a copy so that a server without a cluster loads its streams, and return ACCOUNT/STREAM of
    each. All are read before one is changed. Raises StoreError."""
    changes: list[tuple[Path, bytes, bytes]] = []
    names = []
    for path in sorted((Path(store_dir) / "jetstream").glob("*/streams/*/meta.inf")):
        folder = path.parent
        if folder.name.startswith("."):
            continue  # it is being deleted
        names.append(f"{folder.parent.parent.name}/{folder.name}")
        stream, config = _config(path, "")
        changes.append(_change(path, config, stream, 1))
        for inner in sorted(folder.glob("obs/*/meta.inf")):
            if not inner.parent.name.startswith("."):
                consumer, config = _config(inner, f"{stream}/")
                changes.append(_change(inner, config, consumer, 0))
    for path, content, checksum in changes:
        try:
            path.write_bytes(content)
            path.with_suffix(".sum").write_bytes(checksum)
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror}") from error
    return names


def _config(path: Path, prefix: str) -> tuple[str, dict[str, object]]:
    """Return what the checksum of a configuration is made with, and the configuration. Raises StoreError."""
    if path.with_suffix(".key").exists():
        raise StoreError(f"{path.parent} is encrypted: its configuration cannot be changed without the key")
    try:
        content = path.read_bytes()
        checksum = path.with_suffix(".sum").read_bytes()
        config = json.loads(content)
    except OSError as error:
        raise StoreError(f"cannot read {error.filename}: {error.strerror}") from error
    except ValueError as error:
        raise StoreError(f"{path} is no configuration that can be read: {error}") from error
    name = prefix + path.parent.name
    if checksum != _checksum(name, content):
        raise StoreError(f"{path} is damaged: its checksum in meta.sum is another one")
    return name, config


def _change(path: Path, config: dict[str, object], name: str, replicas: int) -> tuple[Path, bytes, bytes]:
    content = json.dumps({**config, "num_replicas": replicas}, separators=(",", ":")).encode()
    return path, content, _checksum(name, content)


def _checksum(name: str, content: bytes) -> bytes:
    return highwayhash64(hashlib.sha256(name.encode()).digest(), content).hex().encode()


def _copied(source: str, target: str) -> None:
    """Copy a file with its owner, which is not root's, and have it on the disk."""
    shutil.copy2(source, target)
    found = os.stat(source)
    os.chown(target, found.st_uid, found.st_gid)
    _to_disk(Path(target))


def _to_disk(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
