# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Backups in S3-compatible object storage.

An object exists only when it is complete, and `backup.json` is written last: a folder without this file is not a
backup. The next run removes the remains of a killed run: incomplete uploads and such folders."""

from __future__ import annotations

import contextlib
import io
import os
import socket
import threading
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from typing import Any, BinaryIO, cast

from ..nats.failures import NatsFailure
from ..object_storage import RETRIES, SCHEME, S3Bucket, S3Options, bucket_and_prefix
from .encryption import NO_KEYS, Keys
from .manifest import FILE
from .store import BackupStore, Staging, another_run, backup_name, name_part, utc_now

#: Minimum size of a part of an upload, and the number of parts after which the size grows: the maximum of 10,000 parts
#: is enough for 440 GB.
PART, _GROWS_EVERY = 8 << 20, 1000
_MOST_PARTS = 10_000
#: Number of parts that are sent at the same time; number of parts in transit at which the NATS servers are slowed down;
#: and the maximum number in transit.
_SENDERS, _PENDING, _MOST_PENDING = 2, 3, 6
#: Bytes per second below which a server before 2.12.5 would give up, because it waits 2 s for an acknowledgement of 256
#: KB.
_SLOWEST = 256 << 10
#: Seconds without renewal after which a lock counts as left behind by a killed run.
LOCK_SECONDS = 300.0
_RENEWALS = 5
_LEFT_BEHIND = timedelta(days=1)
_PIECE = 1 << 20


def s3_store(url: str, options: S3Options, keys: Keys = NO_KEYS) -> S3Store:
    """Return the store `s3://BUCKET/PREFIX`. Raises NatsFailure invalid_option, MissingLibrary."""
    bucket, prefix = bucket_and_prefix(url)
    return S3Store(S3Bucket(bucket, options), prefix, keys)


class S3Store(BackupStore):
    """Backups below a prefix of a bucket."""

    def __init__(self, bucket: S3Bucket, prefix: str, keys: Keys) -> None:
        self._bucket, self._prefix, self.keys = bucket, prefix, keys

    def place(self, name: str = "") -> str:
        return f"{SCHEME}{self._bucket.name}/{self._prefix}{name}".rstrip("/")

    def below(self, name: str) -> S3Store:
        return S3Store(self._bucket, f"{self._prefix}{name}/", self.keys)

    def with_keys(self, keys: Keys) -> S3Store:
        return S3Store(self._bucket, self._prefix, keys)

    def require(self) -> None:
        self._bucket.call("list_objects_v2", Prefix=self._prefix, MaxKeys=1)

    def folders(self, prefix: str = "") -> Mapping[str, frozenset[str]]:
        found = self._grouped(prefix)
        return {folder: frozenset(names) for folder, names in sorted(found.items()) if FILE in names}

    def _grouped(self, prefix: str = "") -> dict[str, dict[str, datetime]]:
        """Return, for each folder whose name has this prefix, its files with their modification times."""
        found: dict[str, dict[str, datetime]] = {}
        for entry in self._bucket.entries("list_objects_v2", "Contents", Prefix=f"{self._prefix}{prefix}"):
            folder, _slash, name = entry["Key"][len(self._prefix) :].rpartition("/")
            found.setdefault(folder, {})[name] = entry["LastModified"]
        return found

    def files(self, folder: str) -> frozenset[str]:
        prefix = f"{self._prefix}{folder}/" if folder else self._prefix
        entries = self._bucket.entries("list_objects_v2", "Contents", Prefix=prefix, Delimiter="/")
        return frozenset(entry["Key"][len(prefix) :] for entry in entries)

    def size(self, name: str) -> int:
        return int(self._bucket.call("head_object", Key=self._prefix + name)["ContentLength"])

    def open(self, name: str) -> BinaryIO:
        return cast(BinaryIO, io.BufferedReader(_Object(self._bucket, self._prefix + name), _PIECE))

    def write(self, name: str, data: bytes) -> None:
        self._bucket.put(self._prefix + name, data)

    def discard(self, name: str) -> None:
        self._bucket.call("delete_object", Key=self._prefix + name)

    @contextlib.contextmanager
    def staged(self, stream: str, taken: datetime) -> Iterator[Staging]:
        with self._lock(f".{name_part(stream)}.lock"):
            self._tidy(f"{name_part(stream)}@", datetime.now(timezone.utc))
            staging = _StagedObjects(self._bucket, self._prefix, backup_name(stream, taken))
            try:
                yield staging
            finally:
                if not staging.published:
                    with contextlib.suppress(NatsFailure, OSError):
                        self.remove(staging.folder)

    def remove(self, folder: str) -> None:
        names = self.files(folder)
        # Without its manifest, the folder is no longer a backup, even if the removal is interrupted.
        for name in sorted(names, key=lambda name: name != FILE):
            self._bucket.call("delete_object", Key=f"{self._prefix}{folder}/{name}")

    def sweep(self) -> None:
        self._tidy("", datetime.now(timezone.utc) - _LEFT_BEHIND)

    def _tidy(self, prefix: str, before: datetime) -> None:
        """Remove incomplete uploads, and folders that are not backups, if they are from before this time."""
        for upload in self._bucket.entries("list_multipart_uploads", "Uploads", Prefix=f"{self._prefix}{prefix}"):
            if "@" in upload["Key"] and upload["Initiated"] <= before:
                with contextlib.suppress(FileNotFoundError):
                    self._bucket.call("abort_multipart_upload", Key=upload["Key"], UploadId=upload["UploadId"])
        for folder, names in self._grouped(prefix).items():
            if "@" in folder and FILE not in names and max(names.values()) <= before:
                self.remove(folder)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        with self._lock(".lock"):
            yield

    @contextlib.contextmanager
    def _lock(self, name: str) -> Iterator[None]:
        lock = _Lock(self._bucket, self._prefix + name, self.place())
        lock.take()
        try:
            yield
        finally:
            lock.release()


def header_time(date: str | None) -> datetime | None:
    """Return the time in a header, or None if it cannot be read, for example because a proxy has duplicated it."""
    try:
        found = parsedate_to_datetime(date or "")
    except (TypeError, ValueError, IndexError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)


class _Lock:
    """An object that only one run can create, renewed by a thread. A lock that is no longer renewed was left behind."""

    def __init__(self, bucket: S3Bucket, key: str, place: str) -> None:
        self._bucket, self._key, self._place = bucket, key, place
        self._body = f"process {os.getpid()} on {socket.gethostname()} since {utc_now()}, {uuid.uuid4()}\n"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True)

    def take(self) -> None:
        """Take the lock. Raises NatsFailure locked if another run has it."""
        # The lock is read first, although the conditional write would detect it: not every server supports the
        # condition, and some ignore unknown conditions.
        holder, age, tag = self._holder()
        if holder and age < LOCK_SECONDS:
            left = f"{holder.strip()}; the lock of a killed run expires in {LOCK_SECONDS - age:.0f} s"
            raise another_run(self._place, left)
        if not self._bucket.replace(self._key, self._body.encode(), tag if holder else ""):
            raise another_run(self._place, self._holder()[0].strip())
        found = self._holder()[0]
        if found != self._body:
            raise another_run(self._place, found.strip())
        self._thread.start()

    def _holder(self) -> tuple[str, float, str]:
        """Return the lock's content, the seconds since its last renewal, and its ETag."""
        try:
            answer = self._bucket.call("get_object", Key=self._key)
        except FileNotFoundError:
            return "", 0.0, ""
        # The storage's clock is used: if the local clock were minutes ahead, a held lock would appear to have expired.
        now = header_time(answer["ResponseMetadata"]["HTTPHeaders"].get("date")) or datetime.now(timezone.utc)
        text = self._bucket.translated(self._key, answer["Body"].read).decode(errors="replace")
        return text, (now - answer["LastModified"]).total_seconds(), answer["ETag"]

    def _renew(self) -> None:
        while not self._ended.wait(LOCK_SECONDS / _RENEWALS):
            with contextlib.suppress(NatsFailure, OSError):
                if self._holder()[0] != self._body:
                    return
                self._bucket.put(self._key, self._body.encode())

    def release(self) -> None:
        self._ended.set()
        self._thread.join()
        with contextlib.suppress(NatsFailure, OSError):
            if self._holder()[0] == self._body:
                self._bucket.call("delete_object", Key=self._key)


class _Object(io.RawIOBase):
    """An object that is read in order; after a lost connection, it is reopened at the same position."""

    def __init__(self, bucket: S3Bucket, key: str) -> None:
        self._bucket, self._key = bucket, key
        answer = bucket.call("get_object", Key=key)
        self._body, self._size, self._tag = answer["Body"], int(answer["ContentLength"]), answer["ETag"]
        self._at = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), self._size - self._at)
        if not wanted:
            return 0
        for attempt in range(RETRIES):
            try:
                data = self._bucket.translated(self._key, lambda: self._body.read(wanted))
                if data:
                    buffer[: len(data)] = data
                    self._at += len(data)
                    return len(data)
            except NatsFailure:
                if attempt + 1 == RETRIES:
                    raise
            answer = self._bucket.call("get_object", Key=self._key, Range=f"bytes={self._at}-", IfMatch=self._tag)
            self._body = answer["Body"]
        raise NatsFailure("unreachable", f"s3://{self._bucket.name}/{self._key}: it ends at byte {self._at}")

    def close(self) -> None:
        if not self.closed:
            self._body.close()
        super().close()


class _StagedObjects(Staging):
    def __init__(self, bucket: S3Bucket, prefix: str, folder: str) -> None:
        self._bucket, self._prefix, self.folder = bucket, prefix, folder
        self.published = False

    @contextlib.contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        upload = _Upload(self._bucket, f"{self._prefix}{self.folder}/{name}")
        try:
            yield cast(BinaryIO, upload)
            upload.complete()
        except BaseException:
            upload.abandon()
            raise

    def publish(self, manifest: str) -> str:
        self._bucket.put(f"{self._prefix}{self.folder}/{FILE}", manifest.encode())
        self.published = True
        return self.folder


class _Upload:
    """Sends an object in parts while it is being written."""

    def __init__(self, bucket: S3Bucket, key: str) -> None:
        self._bucket, self._key = bucket, key
        self._buffer = bytearray()
        self._senders = ThreadPoolExecutor(_SENDERS)
        self._parts: list[Future[dict[str, Any]]] = []
        self._flying: list[Future[dict[str, Any]]] = []
        self._id = str(bucket.call("create_multipart_upload", Key=key)["UploadId"])

    def write(self, data: bytes) -> int:
        self._buffer += data
        if len(self._buffer) >= PART * (1 + len(self._parts) // _GROWS_EVERY):
            self._send()
        pending = self._pending()
        if len(pending) >= _PENDING:
            # Wait no longer than a server waits for the acknowledgement of the next chunk.
            wait(pending, len(data) / _SLOWEST, FIRST_COMPLETED)
        return len(data)

    def flush(self) -> None:
        """Do nothing, because parts have a minimum size."""

    def _pending(self) -> list[Future[dict[str, Any]]]:
        """Return the parts in transit. Raises the error of a failed part."""
        for part in self._flying:
            if part.done():
                part.result()
        self._flying = [part for part in self._flying if not part.done()]
        return self._flying

    def _send(self) -> None:
        number, body = len(self._parts) + 1, bytes(self._buffer)
        self._buffer.clear()
        if number > _MOST_PARTS:
            raise NatsFailure(
                "write_failed", f"s3://{self._bucket.name}/{self._key}: it has more than {_MOST_PARTS} parts"
            )
        if len(self._pending()) >= _MOST_PENDING:
            slow = f"it accepts fewer than {_SLOWEST} bytes per second, too few for nats-server's timeout"
            raise NatsFailure("write_failed", f"s3://{self._bucket.name}/{self._key}: {slow}")
        part = self._senders.submit(self._send_part, number, body)
        self._parts.append(part)
        self._flying.append(part)

    def _send_part(self, number: int, body: bytes) -> dict[str, Any]:
        answer = self._bucket.put(self._key, body, "upload_part", UploadId=self._id, PartNumber=number)
        return {"ETag": answer["ETag"], "PartNumber": number}

    def complete(self) -> None:
        if self._buffer or not self._parts:
            self._send()
        parts = [part.result() for part in self._parts]
        self._bucket.call(
            "complete_multipart_upload", Key=self._key, UploadId=self._id, MultipartUpload={"Parts": parts}
        )
        self._senders.shutdown()

    def abandon(self) -> None:
        self._senders.shutdown(cancel_futures=True)
        with contextlib.suppress(NatsFailure, OSError):
            self._bucket.call("abort_multipart_upload", Key=self._key, UploadId=self._id)
