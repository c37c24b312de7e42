# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a lake in any storage: list, read, replace, join, rename, remove.

A session in this process reads any URI that Hadoop supports, through Hadoop's own client, like its tasks. A Spark Connect session
has no local JVM: pyarrow reads local folders, shared folders and object stores instead.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from pyarrow import fs
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote


class LakeError(Exception):
    """The lake is in an unexpected state; the text is for users."""


class Files(Protocol):
    """Files below the URI of a lake, by their names relative to it."""

    def names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder; none if it does not exist."""

    def exists(self, name: str) -> bool:
        """Return whether a file or a folder exists."""

    def size(self, name: str) -> tuple[int, int]:
        """Return the number of files in a folder (1 for a file) and their bytes."""

    def read_text(self, name: str) -> str:
        """Return the content of a file."""

    def replace_text(self, name: str, text: str) -> None:
        """Replace a file in one step: at any moment readers find the old content or the new one."""

    def concatenate(self, sources: Iterable[str], target: str) -> int:
        """Write files one after the other into a new one; return its bytes. This is valid for gzip files."""

    def move(self, source: str, target: str) -> None:
        """Rename a file or a folder to a free name; do nothing if it does not exist."""

    def delete(self, name: str) -> None:
        """Remove a file, or a folder with its content, if it exists."""


def store_uri(uri: str) -> str:
    """Return the URI of a lake in the form that programs without Hadoop expect."""
    scheme = urlsplit(uri).scheme
    return {"s3a": "s3", "s3n": "s3"}.get(scheme, scheme) + uri[len(scheme) :] if scheme else f"file://{uri}"


def absolute_uri(spark: SparkSession, uri: str) -> str:
    """Return the URI of a lake with an absolute path. A relative path belongs to Hadoop's default file system, like an absolute
    one; the programs of store_uri have no working directory."""
    if urlsplit(uri).scheme or uri.startswith("/"):
        return uri
    if not is_remote():
        jvm: Any = spark.sparkContext._jvm
        hadoop = jvm.org.apache.hadoop.fs
        files = hadoop.FileSystem.get(spark.sparkContext._jsc.hadoopConfiguration())
        if files.getScheme() != "file":
            return str(files.makeQualified(hadoop.Path(uri)).toString())
    return os.path.abspath(uri)


def lake_files(spark: SparkSession, uri: str) -> Files:
    """Return the files of a lake. Raises LakeError for a URI that Spark Connect does not support."""
    return ArrowFiles(uri) if is_remote() else HadoopFiles(spark, uri)


class HadoopFiles:
    """Files that Hadoop's client reads in the JVM of this process."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        self._uri = uri
        self._jvm: Any = spark.sparkContext._jvm
        self._gateway: Any = spark.sparkContext._gateway
        self._conf: Any = spark.sparkContext._jsc.hadoopConfiguration()

    def names(self, folder: str) -> list[str]:
        path = self._path(folder)
        files = path.getFileSystem(self._conf)
        if not files.exists(path):
            return []
        return sorted(status.getPath().getName() for status in files.listStatus(path))

    def exists(self, name: str) -> bool:
        path = self._path(name)
        return bool(path.getFileSystem(self._conf).exists(path))

    def size(self, name: str) -> tuple[int, int]:
        path = self._path(name)
        summary = path.getFileSystem(self._conf).getContentSummary(path)
        return summary.getFileCount(), summary.getLength()

    def read_text(self, name: str) -> str:
        path = self._path(name)
        stream = path.getFileSystem(self._conf).open(path)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode()
        finally:
            stream.close()

    def replace_text(self, name: str, text: str) -> None:
        target = self._path(name)
        scheme = target.toUri().getScheme()
        if scheme == "file":
            _replace_on_this_disk(Path(target.toUri().getPath()), text)
        elif scheme in _RENAMES_ATOMICALLY:
            draft = self._path(_draft(name))
            self._write(draft, text)
            rename = getattr(self._jvm.org.apache.hadoop.fs, "Options$Rename")
            overwrite = self._gateway.new_array(rename, 1)
            overwrite[0] = rename.OVERWRITE
            self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(draft.toUri(), self._conf).rename(
                draft, target, overwrite
            )
        else:
            # An object store renames by copying, and replaces an object only after the new one is complete.
            self._write(target, text)

    def _write(self, path: Any, text: str) -> None:
        stream = path.getFileSystem(self._conf).create(path, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def concatenate(self, sources: Iterable[str], target: str) -> int:
        path = self._path(target)
        out = path.getFileSystem(self._conf).create(path, True)
        try:
            for name in sources:
                source = self._path(name)
                stream = source.getFileSystem(self._conf).open(source)
                self._jvm.org.apache.hadoop.io.IOUtils.copyBytes(stream, out, _AT_ONCE, False)
                stream.close()
            return int(out.getPos())
        finally:
            out.close()

    def move(self, source: str, target: str) -> None:
        start, end = self._path(source), self._path(target)
        files = start.getFileSystem(self._conf)
        if files.exists(start):
            files.mkdirs(end.getParent())
            if not files.rename(start, end):
                raise LakeError(f"{start} cannot be renamed to {end}")

    def delete(self, name: str) -> None:
        path = self._path(name)
        path.getFileSystem(self._conf).delete(path, True)

    @cached_property
    def _new_path(self) -> Any:
        # Py4J searches all jars for each part of this name as a class: do this once instead of for each path.
        return self._jvm.org.apache.hadoop.fs.Path

    def _path(self, name: str) -> Any:
        path = self._new_path(f"{self._uri}/{name}")
        return path.getFileSystem(self._conf).makeQualified(path)


class ArrowFiles:
    """Files that pyarrow reads: a folder shared by Spark's server and this program, or an object store, with the credentials that
    its own tools take from the environment.

    Hadoop's client keeps the checksum of a local file in a hidden file next to it, and rejects the file as corrupt if another
    program has written it since: the checksum is removed with the old content.
    """

    def __init__(self, uri: str) -> None:
        scheme = urlsplit(uri).scheme
        if scheme in ("hdfs", "viewfs"):
            raise LakeError(
                f"{uri}: HDFS requires a local Spark process; run the jobs with spark-submit, not with Connect"
            )
        try:
            self._files, self._root = fs.FileSystem.from_uri(store_uri(uri))
        except (OSError, ValueError) as error:
            raise LakeError(f"{uri}: {error}") from error
        #: In an object store, an object exists only after it has been written completely.
        self._objects = self._files.type_name != "local"

    def names(self, folder: str) -> list[str]:
        found = self._files.get_file_info(fs.FileSelector(self._path(folder), allow_not_found=True))
        return sorted(info.base_name for info in found if not _is_sum(info))

    def exists(self, name: str) -> bool:
        return bool(self._info(name).type != fs.FileType.NotFound)

    def size(self, name: str) -> tuple[int, int]:
        if self._info(name).is_file:
            return 1, int(self._info(name).size)
        found = self._files.get_file_info(fs.FileSelector(self._path(name), recursive=True))
        sizes = [info.size for info in found if info.is_file and not _is_sum(info)]
        return len(sizes), sum(sizes)

    def read_text(self, name: str) -> str:
        with self._files.open_input_stream(self._path(name)) as stream:
            return bytes(stream.read()).decode()

    def replace_text(self, name: str, text: str) -> None:
        if self._objects:
            with self._create(name) as stream:
                stream.write(text.encode())
        else:
            _replace_on_this_disk(Path(self._path(name)), text)

    def concatenate(self, sources: Iterable[str], target: str) -> int:
        with self._create(target) as out:
            for name in sources:
                with self._files.open_input_stream(self._path(name), compression=None) as stream:
                    while chunk := stream.read(_AT_ONCE):
                        out.write(chunk)
            return int(out.tell())

    def move(self, source: str, target: str) -> None:
        if not self.exists(source):
            return
        start, end = self._path(source), self._path(target)
        if self._objects and not self._info(source).is_file:
            # An object store has no folders to rename, only files with a common prefix.
            for info in self._files.get_file_info(fs.FileSelector(start, recursive=True)):
                if info.is_file:
                    self._files.move(info.path, end + info.path[len(start) :])
            return
        self._files.create_dir(end.rpartition("/")[0])
        self._forget_sum(source)
        self._files.move(start, end)

    def delete(self, name: str) -> None:
        info = self._info(name)
        if info.is_file:
            self._forget_sum(name)
            self._files.delete_file(info.path)
        elif info.type == fs.FileType.Directory:
            self._files.delete_dir(info.path)

    def _create(self, name: str) -> Any:
        self._files.create_dir(self._path(name).rpartition("/")[0])
        self._forget_sum(name)
        return self._files.open_output_stream(self._path(name), compression=None)

    def _forget_sum(self, name: str) -> None:
        folder, _slash, base = name.rpartition("/")
        info = self._info(f"{folder}/.{base}.crc")
        if info.is_file and not self._objects:
            self._files.delete_file(info.path)

    def _info(self, name: str) -> Any:
        return self._files.get_file_info(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


#: Bytes copied in one step.
_AT_ONCE = 1 << 20

#: The file systems whose rename replaces a file in one step. Hadoop's default, also for local disks, deletes the old file first.
_RENAMES_ATOMICALLY = ("hdfs", "webhdfs", "viewfs", "ofs")


def _is_sum(info: fs.FileInfo) -> bool:
    return bool(info.base_name.startswith(".") and info.base_name.endswith(".crc"))


def _replace_on_this_disk(path: Path, text: str) -> None:
    """Replace a file in one step. Hadoop's checksum of the old content is removed first: Hadoop does not verify a file without
    a checksum, but would reject the new content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(_draft(path.name))
    try:
        draft.write_bytes(text.encode())
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _draft(name: str) -> str:
    return f"{name}.{secrets.token_hex(4)}.tmp"
