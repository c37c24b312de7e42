# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists, uploads, downloads and deletes the objects of object buckets."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Any, BinaryIO

from ..host.files import to_disk
from ..nats.client import NatsFailure
from ..nats.error_codes import MESSAGE_NOT_FOUND, WRONG_LAST_SEQUENCE
from ..nats.jetstream_api import JetStreamApi
from ..problem import Danger
from ..units import counted, human_bytes
from ..waiting import wait_until
from . import change_rules
from .buckets import is_object, object_stream, require_bucket
from .config import OptionError
from .objects import CHUNK, StoredObject, chunks_subject, description_subject, read_description, write_description
from .state import RunOptions, StreamAsset, asset_result, refuse

#: The largest number of objects that are listed.
LISTED_OBJECTS = 10_000

_ROLLUP = {"Nats-Rollup": "sub"}


@dataclass(frozen=True)
class ObjectContent:
    """The content of an object: a file, its size and its SHA-256, and the description of the object."""

    path: str
    size: int
    digest: str
    description: str


class ObjectBucket:
    """An object bucket that exists. Raises NatsFailure: invalid_option, not_found, not_a_bucket."""

    def __init__(self, api: JetStreamApi, name: str) -> None:
        try:
            require_bucket(name)
        except OptionError as problem:
            raise NatsFailure("invalid_option", str(problem)) from problem
        self.api = api
        self.name = name
        self.stream = object_stream(name)
        self.asset = StreamAsset(api, self.stream, f"object bucket {name}", fits=lambda found: is_object(name, found))
        info = self.asset.find()
        if info is None:
            raise self.asset.failure("not_found", "it does not exist")
        self.config = info["config"]

    def find(self, name: str) -> StoredObject | None:
        """Return the object with this name, also if it is deleted; None if it never existed."""
        message = self.api.last_message(self.stream, self.subject(name))
        return None if message is None else self._read(message)

    def subject(self, name: str) -> str:
        try:
            return description_subject(self.name, name)
        except OptionError as problem:
            raise NatsFailure("invalid_option", str(problem)) from problem

    def objects(self) -> list[StoredObject]:
        """Return the existing objects, sorted by name. Raises NatsFailure too_many."""
        subjects = self.api.subject_counts(self.stream, f"$O.{self.name}.M.>")
        if len(subjects) > LISTED_OBJECTS:
            number = counted(len(subjects), "object")
            raise self.asset.failure("too_many", f"it has {number}; at most {LISTED_OBJECTS} can be listed")
        requests = [(f"STREAM.MSG.GET.{self.stream}", {"last_by_subj": subject}) for subject in subjects]
        found = []
        for answer in self.api.call_many(requests):
            if not isinstance(answer, NatsFailure):
                found.append(self._read(answer["message"]))
            elif answer.err_code != MESSAGE_NOT_FOUND:
                raise answer
        return sorted((item for item in found if not item.deleted), key=lambda item: item.name)

    def _read(self, message: dict[str, Any]) -> StoredObject:
        try:
            return read_description(message)
        except (ValueError, TypeError, AttributeError) as error:
            raise self.asset.failure(
                "bad_reply", f"message {message['seq']} is not the description of an object: {error}"
            ) from error

    def save(self, item: StoredObject, revision: int) -> int:
        """Write the description of an object, unless it has changed since `revision`, and return the new revision."""
        try:
            return self.api.store(self.subject(item.name), write_description(self.name, item), _ROLLUP, revision)
        except NatsFailure as failure:
            if failure.err_code == WRONG_LAST_SEQUENCE:
                raise self.asset.failure(
                    "conflict", f"another client has changed {item.name} since; nothing was changed"
                ) from failure
            raise

    def remove_chunks(self, nuid: str) -> None:
        """Remove the chunks of an object."""
        self.api.purge_stream(self.stream, {"filter": chunks_subject(self.name, nuid)})

    def chunks(self, item: StoredObject) -> Iterator[bytes]:
        """Yield the content of an object. Raises NatsFailure interrupted if a chunk is missing."""
        seq, subject = 1, chunks_subject(self.name, item.nuid)
        for number in range(item.chunks):
            message = self.api.first_message(self.stream, subject, seq)
            if message is None:
                raise self.asset.failure(
                    "interrupted", f"chunk {number + 1} of {item.chunks} of {item.name} is missing"
                )
            seq = int(message["seq"]) + 1
            yield decoded(message)


def decoded(message: dict[str, Any]) -> bytes:
    """Return the data of a message."""
    return base64.b64decode(message.get("data") or "")


def file_digest(path: str) -> tuple[int, str]:
    """Return the size and the SHA-256 of a file. Raises OSError."""
    digest, size = hashlib.sha256(), 0
    with open(path, "rb") as file:
        for part in iter(lambda: file.read(CHUNK), b""):
            digest.update(part)
            size += len(part)
    return size, digest.hexdigest()


def ensure_object(bucket: ObjectBucket, name: str, upload: ObjectContent, run_options: RunOptions) -> dict[str, Any]:
    """Store a file as an object, unless the object has the same content; return the result. Raises NatsFailure:
    immutable, conflict, changed_file."""
    started = time.monotonic()
    old = bucket.find(name)
    current = old if old is not None and not old.deleted else None
    if current is not None and (current.digest, current.description) == (upload.digest, upload.description):
        return _result(False, current, current, started, [])
    if bucket.config.get("sealed"):
        raise bucket.asset.failure("immutable", "it is sealed and cannot store objects")
    chunks = -(-upload.size // CHUNK)
    new = StoredObject(name, token_hex(11), upload.size, chunks, upload.digest, upload.description)
    if not run_options.check_mode:
        try:
            _send(bucket, new, upload.path)
            revision = bucket.save(new, old.revision if old else 0)
        except (NatsFailure, OSError):
            with contextlib.suppress(NatsFailure):
                bucket.remove_chunks(new.nuid)
            raise
        _see(bucket, name, revision, run_options)
        if old is not None and old.nuid:
            bucket.remove_chunks(old.nuid)
    return _result(True, current, new, started, [])


def _see(bucket: ObjectBucket, name: str, revision: int, run_options: RunOptions) -> None:
    """Return once the bucket describes the object with this revision or a later one. Raises NatsFailure not_seen."""

    def done(found: StoredObject | None) -> bool:
        return found is not None and found.revision >= revision

    if not wait_until(lambda: bucket.find(name), done, run_options.wait_timeout).done:
        raise bucket.asset.failure("not_seen", f"{name} was written as revision {revision}, which cannot be read")


def _send(bucket: ObjectBucket, item: StoredObject, path: str) -> None:
    subject, digest = chunks_subject(bucket.name, item.nuid), hashlib.sha256()
    with open(path, "rb") as file:
        for part in iter(lambda: file.read(CHUNK), b""):
            digest.update(part)
            bucket.api.store(subject, part)
    if digest.hexdigest() != item.digest:
        raise bucket.asset.failure("changed_file", f"{path} changed while it was uploaded; nothing was changed")


def ensure_no_object(bucket: ObjectBucket, name: str, run_options: RunOptions) -> dict[str, Any]:
    """Delete an object, and return the result. Raises NatsFailure: dangerous, immutable, conflict."""
    started = time.monotonic()
    old = bucket.find(name)
    if old is None or old.deleted:
        return _result(False, None, None, started, [])
    forbidden = [key for key in ("sealed", "deny_purge") if bucket.config.get(key)]
    if forbidden:
        raise bucket.asset.failure("immutable", f"its objects cannot be deleted: {', '.join(forbidden)}")
    dangers = [Danger(change_rules.DATA_LOSS, f"object {name} ({human_bytes(old.size)}) is deleted")]
    refuse(bucket.asset, dangers, run_options)
    if not run_options.check_mode:
        revision = bucket.save(replace(old, size=0, chunks=0, digest="", deleted=True), old.revision)
        _see(bucket, name, revision, run_options)
        if old.nuid:
            bucket.remove_chunks(old.nuid)
    return _result(True, old, None, started, dangers)


def ensure_fetched(bucket: ObjectBucket, name: str, path: str, run_options: RunOptions) -> dict[str, Any]:
    """Write an object to a file, unless the file has the same content; return the result. Raises NatsFailure:
    not_found, unsupported, interrupted; OSError."""
    started = time.monotonic()
    item = bucket.find(name)
    if item is None or item.deleted:
        raise bucket.asset.failure("not_found", f"object {name} does not exist")
    if item.link:
        raise bucket.asset.failure("unsupported", f"object {name} is a link to {item.link}; fetch its target instead")
    old = file_digest(path)[1] if os.path.exists(path) else None
    if old != item.digest and not run_options.check_mode:
        _write(bucket, item, path)
    diff = ({path: old}, {path: item.digest}) if old != item.digest else ({}, {})
    return asset_result(old != item.digest, _stable(item), _stable(item), *diff, started, [])


def _write(bucket: ObjectBucket, item: StoredObject, path: str) -> None:
    """Write an object next to its destination, verify it, and rename it into place."""
    partial = f"{path}.{token_hex(4)}.part"
    try:
        with os.fdopen(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o640), "wb") as file:
            digest = _copy(bucket, item, file)
        if digest != item.digest:
            raise bucket.asset.failure(
                "interrupted", f"object {item.name} does not match its checksum; another client may have replaced it"
            )
        to_disk(partial)
        os.replace(partial, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial)


def _copy(bucket: ObjectBucket, item: StoredObject, file: BinaryIO) -> str:
    digest = hashlib.sha256()
    for part in bucket.chunks(item):
        digest.update(part)
        file.write(part)
    return digest.hexdigest()


def _result(
    changed: bool, old: StoredObject | None, new: StoredObject | None, started: float, dangers: list[Danger]
) -> dict[str, Any]:
    before, after = (_stable(item) for item in (old, new))
    diff = ({}, {}) if not changed else ({"object": before}, {"object": after})
    return asset_result(changed, before, after, *diff, started, dangers)


def _stable(item: StoredObject | None) -> dict[str, Any] | None:
    """Return an object for a result, without its time, which is unknown in check mode."""
    return None if item is None else {key: value for key, value in item.shown().items() if key != "modified"}
