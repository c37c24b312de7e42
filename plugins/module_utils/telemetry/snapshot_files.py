# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a snapshot's tables while they are being written. JSON lines are in this module, Parquet in
typed_columns."""

from __future__ import annotations

import gzip
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from . import json_text

#: Uncompressed bytes after which an endpoint's next file begins, because two tasks cannot read one gzip file at the
#: same time.
FILE_SIZE = 64 << 20
#: Compression level of JSON lines, and the number of bytes compressed at once.
_GZIP_LEVEL = 3
_BUFFER = 256 << 10


@dataclass(frozen=True)
class Origin:
    """The server that reported a row, its JetStream domain (empty if it has none), and when the reply arrived, by the
    collector's clock."""

    server_id: str
    server: str
    cluster: str = ""
    version: str = ""
    received: str = ""
    domain: str = ""


@dataclass
class SnapshotFile:
    """A file of a table: its path below bronze, and its numbers of lines and bytes."""

    path: str
    rows: int = 0
    size: int = 0


class SnapshotTable:
    """The files of one table of a snapshot while they are being written. `folder`: the folder that contains them until
    they are published; `place`: their directories and the beginning of their names below bronze."""

    def __init__(self, folder: Path, name: str, place: str, file_size: int) -> None:
        self.rows = 0
        self.failures = 0
        #: Number of rows that have data outside the columns, if known.
        self.unknown: int | None = None
        self.files: list[SnapshotFile] = []
        self._folder = folder
        self._name = name
        self._place = place
        self._file_size = file_size

    def add(self, origin: Origin, keys: Mapping[str, Any], data: Any) -> None:
        raise NotImplementedError

    def fail(self, origin: Origin, failure: Mapping[str, Any]) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Write the remaining data. This method may be called repeatedly."""
        raise NotImplementedError

    def draft(self, number: int) -> Path:
        """Return the path of a file until it is published."""
        return self._folder / f"{self._name}-{number}"

    def _new_file(self, suffix: str) -> IO[bytes]:
        number = len(self.files)
        self.files.append(SnapshotFile(f"{self._place}-{number}.{suffix}"))
        return create(self.draft(number))


class JsonLines(SnapshotTable):
    """JSON lines, compressed by gzip."""

    def __init__(self, envelope: Mapping[str, Any], *where: Any) -> None:
        super().__init__(*where)
        self._whole = json_text.encoded(envelope)[:-1]
        self._origin: Origin | None = None
        self._envelope = b""
        self._buffer: list[bytes] = []
        self._buffered = 0
        self._stream: gzip.GzipFile | None = None
        self._file: IO[bytes] | None = None

    def add(self, origin: Origin, keys: Mapping[str, Any], data: Any) -> None:
        text = bytes(data) if json_text.is_text(data) else json_text.encoded(data)
        own = b"," + json_text.encoded(keys)[1:-1] if keys else b""
        self._write(b'%b%b,"data":%b}\n' % (self._encode_origin(origin), own, text))
        self.rows += 1

    def fail(self, origin: Origin, failure: Mapping[str, Any]) -> None:
        self._write(b'%b,"failure":%b}\n' % (self._encode_origin(origin), json_text.encoded(failure)))
        self.failures += 1

    def _encode_origin(self, origin: Origin) -> bytes:
        """Return the beginning that all lines from one reply share, encoded once."""
        if origin is not self._origin:
            self._origin = origin
            self._envelope = self._whole + b"," + json_text.encoded(asdict(origin))[1:-1]
        return self._envelope

    def _write(self, line: bytes) -> None:
        if not self.files or self.files[-1].size >= self._file_size:
            self.close()
            self._file = self._new_file("jsonl.gz")
            self._stream = gzip.GzipFile(fileobj=self._file, mode="wb", compresslevel=_GZIP_LEVEL, filename="", mtime=0)
        file = self.files[-1]
        file.rows += 1
        file.size += len(line)
        self._buffer.append(line)
        self._buffered += len(line)
        if self._buffered >= _BUFFER:
            self._flush()

    def _flush(self) -> None:
        if self._stream is not None:
            lines, self._buffer, self._buffered = self._buffer, [], 0
            self._stream.write(b"".join(lines))

    def close(self) -> None:
        if self._stream is not None and self._file is not None:
            self._flush()
            self._stream.close()
            close_durably(self._file)
            self._stream = self._file = None


def create(path: Path) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640), "wb")


def write_durably(path: Path, content: bytes) -> None:
    file = create(path)
    file.write(content)
    close_durably(file)


def close_durably(file: IO[bytes]) -> None:
    """Sync and close a file, so no manifest lists a file that a power failure could have lost."""
    with file:
        file.flush()
        os.fsync(file.fileno())
