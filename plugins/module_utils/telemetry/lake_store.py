# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lake to which snapshots are written: a directory, or a prefix of a bucket.

Readers open only the files that a manifest names, and the manifest is stored last. Files without a manifest, such as
those of a killed run, are ignored until the job `maintain` deletes them."""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Callable, TypeVar

from ..nats.failures import NatsFailure
from ..object_storage import SCHEME, S3Bucket, S3Options, bucket_and_prefix

T = TypeVar("T")

#: The code of the failure if the lake cannot be written.
LAKE = "lake"

#: The file with the last sequence.
_SEQUENCE = "_sequence"
_LONGEST_SEQUENCE = 64
#: Seconds for which the check of the bucket is repeated, and the first and the longest pause before a repetition.
_CHECK_SECONDS = 10.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
_UNPUBLISHED = "No part of the snapshot was published."
_BUCKET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{2,254}")


class LakeStore(ABC):
    """The bronze layer of a lake; paths are relative to it. Methods raise OSError for errors of a local disk, and
    NatsFailure with the code LAKE for those of object storage. `local`: the local directory that is written to."""

    local: Path

    @abstractmethod
    def place(self, path: str) -> str:
        """Return the path or the URL of a file, for people."""

    @abstractmethod
    def require(self) -> None:
        """Check, without writing anything, that object storage can be reached and has the bucket."""

    @abstractmethod
    def staging(self, snapshot: str) -> Path:
        """Create a local directory for the files of a snapshot until they are stored; the caller removes it."""

    @abstractmethod
    def store(self, file: Path, path: str) -> None:
        """Store a complete file of the staging directory, replacing an earlier one."""

    @abstractmethod
    def next_sequence(self, minimum: int) -> int:
        """Return a number that is at least `minimum` and higher than all numbers that this method has returned for this
        lake."""


def requested_lake(place: str, options: S3Options, seconds: float, temporary: str | None = None) -> LakeStore:
    """Return the lake in a directory or in `s3://BUCKET/PREFIX`. `seconds`: how long a failed upload is repeated;
    `temporary`: the local directory for snapshots until they are uploaded, by default that of the system. Raises
    NatsFailure invalid_option, MissingLibrary."""
    if place.startswith(SCHEME):
        bucket, prefix = bucket_and_prefix(place)
        if not _BUCKET_NAME.fullmatch(bucket):
            raise NatsFailure("invalid_option", f"lake: {place}: {bucket} is not a valid name of a bucket")
        if any(part in ("", ".", "..") for part in prefix[:-1].split("/") if prefix):
            raise NatsFailure("invalid_option", f"lake: {place}: the prefix has an empty part, '.' or '..'")
        folder = Path(temporary or tempfile.gettempdir())
        return ObjectLake(S3Bucket(bucket, options, patient=False), prefix, seconds, folder)
    if "://" in place:
        reason = "snapshots can be written to a directory or to s3://BUCKET/PREFIX"
        raise NatsFailure("invalid_option", f"lake: {place}: {reason}")
    if options != S3Options(option=options.option):
        reason = f"{place} is a directory: {options.option} requires s3://BUCKET/PREFIX"
        raise NatsFailure("invalid_option", f"lake: {reason}")
    return DirectoryLake(Path(place))


class DirectoryLake(LakeStore):
    """A lake in a directory, which is created if it does not exist."""

    def __init__(self, directory: Path) -> None:
        self.local = directory / "bronze"

    def place(self, path: str) -> str:
        return str(self.local / path)

    def require(self) -> None:
        """Do nothing: the directory is created if it does not exist."""

    def staging(self, snapshot: str) -> Path:
        path = self.local / "_incoming" / snapshot
        path.mkdir(mode=0o750, parents=True)
        return path

    def store(self, file: Path, path: str) -> None:
        target = self.local / path
        target.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        os.replace(file, target)

    def next_sequence(self, minimum: int) -> int:
        with (self.local / _SEQUENCE).open("a+", encoding="ascii") as file:
            # If this file system has no locks, two snapshots that end at the same time may have the same number.
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            number = _higher(file.read(), minimum)
            file.truncate(0)
            file.write(str(number))
        return number


class ObjectLake(LakeStore):
    """A lake below a prefix of a bucket. Each file is uploaded with one request, so an object is either complete or
    does not exist."""

    def __init__(self, bucket: S3Bucket, prefix: str, seconds: float, temporary: Path) -> None:
        self._bucket, self._prefix, self._seconds = bucket, f"{prefix}bronze/", seconds
        self._deadline: float | None = None
        self.local = temporary

    def place(self, path: str) -> str:
        return f"{SCHEME}{self._bucket.name}/{self._prefix}{path}"

    def require(self) -> None:
        self._repeated(self._last_sequence, time.monotonic() + min(_CHECK_SECONDS, self._seconds))

    def staging(self, snapshot: str) -> Path:
        self._deadline = None
        return Path(tempfile.mkdtemp(prefix="nats-snapshot-", dir=self.local))

    def store(self, file: Path, path: str) -> None:
        # A file has at most FILE_SIZE bytes and one row.
        data, deadline = file.read_bytes(), self._upload_deadline()
        if time.monotonic() > deadline:
            reason = (
                f"the upload has taken longer than {self._seconds:g} s: allow more time, or collect fewer endpoints"
            )
            raise NatsFailure(LAKE, f"{self.place(path)}: {reason}. {_UNPUBLISHED}")
        self._repeated(lambda: self._bucket.put(self._prefix + path, data), deadline)

    def next_sequence(self, minimum: int) -> int:
        """The object is replaced only if it still has the content from which the number was computed, so two runs never
        receive the same number. If the response is lost, the repeated request finds the number of this run in the
        object, and uses the next one."""
        deadline, pause = self._upload_deadline(), _FIRST_PAUSE
        while True:
            last, tag = self._repeated(self._last_sequence, deadline)
            number = _higher(last, minimum)
            content = str(number).encode()
            if self._repeated(self._replacement(content, tag), deadline):
                return number
            if time.monotonic() >= deadline:
                reason = (
                    f"other snapshots have replaced it for {self._seconds:g} s, or the storage does not compare ETags"
                )
                raise NatsFailure(LAKE, f"{self.place(_SEQUENCE)}: {reason}. {_UNPUBLISHED}")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _replacement(self, content: bytes, tag: str) -> Callable[[], bool]:
        return lambda: self._bucket.replace(self._prefix + _SEQUENCE, content, tag)

    def _last_sequence(self) -> tuple[str, str]:
        """Return the content and the ETag of the object with the last sequence; both are empty if it does not exist."""
        try:
            answer = self._bucket.call("get_object", Key=self._prefix + _SEQUENCE)
        except FileNotFoundError:
            return "", ""
        body = self._bucket.translated(self.place(_SEQUENCE), lambda: answer["Body"].read(_LONGEST_SEQUENCE))
        return body.decode("ascii", "replace"), answer["ETag"]

    def _upload_deadline(self) -> float:
        """Return the deadline of the upload, which begins with the first call."""
        if self._deadline is None:
            self._deadline = time.monotonic() + self._seconds
        return self._deadline

    def _repeated(self, request: Callable[[], T], deadline: float) -> T:
        """Return the response to a request, which is repeated until the deadline while its failure may be temporary."""
        pause = _FIRST_PAUSE
        while True:
            try:
                return request()
            except FileNotFoundError as error:
                raise NatsFailure(LAKE, f"{error.filename}: {error.strerror}. {_UNPUBLISHED}") from error
            except NatsFailure as failure:
                if not self._bucket.is_transient(failure) or time.monotonic() + pause > deadline:
                    raise NatsFailure(LAKE, f"{failure.description}. {_UNPUBLISHED}") from failure
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _higher(last: str, minimum: int) -> int:
    return max(minimum, int(last) + 1 if last.isdigit() else 0)
