# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Versions of nats-server installed side by side in one directory: `<install_dir>/<version>/bin/nats-server`.

With SELinux, systemd can change to a service's domain only for files of type bin_t, which the policy assigns to
/opt/**/bin.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from .process import ProcessError, read_version

NAME = "nats-server"
_SOURCE = "source.sha256"


class InstallError(Exception):
    """The source is not a valid executable or archive."""


def binary_path(install_dir: str, version: str) -> Path:
    """Return the path of this version's executable."""
    return version_dir(install_dir, version) / "bin" / NAME


def version_dir(install_dir: str, version: str) -> Path:
    """Return the directory of a version."""
    return Path(install_dir) / version


def source_digest(install_dir: str, version: str) -> str:
    """Return the SHA-256 of the file from which this version was installed; empty if it was not recorded."""
    try:
        return (version_dir(install_dir, version) / _SOURCE).read_text().strip()
    except OSError:
        return ""


def is_installed(install_dir: str, version: str, digest: str = "") -> bool:
    """Return whether the executable exists, can be run, has that version and, if a digest is given, was installed from
    that source."""
    path = binary_path(install_dir, version)
    if not path.is_file() or (digest and source_digest(install_dir, version) != digest):
        return False
    try:
        return read_version(str(path)) == version
    except ProcessError:
        return False


def sha256(path: str) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def versions(install_dir: str) -> list[str]:
    """Return the installed versions, most recently installed first."""
    found = [
        path.parents[1] for path in Path(install_dir).glob(f"*/bin/{NAME}") if not path.parents[1].name.startswith(".")
    ]
    return [path.name for path in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)]


def unpack(source: str, target: IO[bytes]) -> None:
    """Extract the nats-server executable from a bare binary, a .tar.gz, .zip or .deb file; the format is detected from
    the content, not the name. Raises InstallError if there is none."""
    with open(source, "rb") as stream:
        magic = stream.read(8)
    if magic.startswith(b"\x7fELF"):
        with open(source, "rb") as stream:
            shutil.copyfileobj(stream, target)
    elif magic.startswith(b"PK"):
        _from_zip(source, target)
    elif magic == b"!<arch>\n":
        with _deb_data(source) as data:
            _from_tar(source, data, target)
    else:
        with open(source, "rb") as stream:
            _from_tar(source, stream, target)


def store(staged: str, install_dir: str, version: str, digest: str) -> None:
    """Rename a tested executable into place and record the digest of its source."""
    folder, target = version_dir(install_dir, version), binary_path(install_dir, version)
    for directory in (folder, target.parent):
        directory.mkdir(mode=0o755, exist_ok=True)
        directory.chmod(0o755)
    os.chmod(staged, 0o755)
    os.replace(staged, target)
    marker = folder / _SOURCE
    marker.write_text(digest + "\n")
    marker.chmod(0o644)
    os.utime(folder)


def superfluous(installed: list[str], keep: int, needed: set[str]) -> list[str]:
    """Return the versions to remove if at most `keep` versions, including all needed ones, should remain. `installed`:
    newest first."""
    room = max(keep - len(needed & set(installed)), 0)
    return [version for version in installed if version not in needed][room:]


def installed_versions(install_dir: str, paths: set[str]) -> set[str]:
    """Return the versions whose executables are among these paths."""
    root = Path(os.path.realpath(install_dir))
    folders = [Path(path).parent for path in paths]
    return {folder.parent.name for folder in folders if folder.name == "bin" and folder.parent.parent == root}


def _from_zip(source: str, target: IO[bytes]) -> None:
    try:
        with zipfile.ZipFile(source) as archive:
            for member in archive.infolist():
                if os.path.basename(member.filename) == NAME:
                    with archive.open(member) as stream:
                        shutil.copyfileobj(stream, target)
                    return
    except zipfile.BadZipFile as error:
        raise InstallError(f"{source} is damaged: {error}") from error
    raise InstallError(f"{source} contains no {NAME}")


def _from_tar(source: str, stream: IO[bytes], target: IO[bytes]) -> None:
    try:
        with tarfile.open(fileobj=stream, mode="r:*") as archive:
            for member in archive:
                content = (
                    archive.extractfile(member) if member.isfile() and os.path.basename(member.name) == NAME else None
                )
                if content:
                    shutil.copyfileobj(content, target)
                    return
    except (tarfile.TarError, EOFError, OSError, lzma.LZMAError) as error:
        raise InstallError(f"{source} is damaged, or is not a binary, .tar.gz, .zip or .deb file: {error}") from error
    raise InstallError(f"{source} contains no {NAME}")


@contextmanager
def _deb_data(source: str) -> Iterator[IO[bytes]]:
    """Return the data archive inside a Debian package (deb(5): ar members with 60 byte headers, padded to even sizes)."""
    with open(source, "rb") as stream, tempfile.TemporaryFile() as data:
        stream.seek(8)
        while len(header := stream.read(60)) == 60:
            name, size = header[:16].decode().strip().rstrip("/"), int(header[48:58])
            if name.startswith("data.tar"):
                if name.endswith(".zst"):
                    _dpkg_data(source, data)
                else:
                    data.write(stream.read(size))
                data.seek(0)
                yield data
                return
            stream.seek(size + size % 2, os.SEEK_CUR)
    raise InstallError(f"{source} is not a Debian package: it has no data archive")


def _dpkg_data(source: str, data: IO[bytes]) -> None:
    """Extract with dpkg-deb: Zstandard is not in the standard library before Python 3.14, and hosts that use such
    packages have dpkg-deb."""
    try:
        # run_command would keep the entire archive in memory, as text.
        command = ["dpkg-deb", "--fsys-tarfile", source]
        subprocess.run(command, stdout=data, check=True, timeout=120)  # pylint: disable=ansible-bad-function
    except (OSError, subprocess.SubprocessError) as error:
        raise InstallError(f"{source} is packed with zstd and needs dpkg-deb on the host: {error}") from error
