# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path
from typing import Literal

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.host.install import (
    InstallError,
    installed_versions,
    superfluous,
    unpack,
)

BINARY = b"\x7fELF nats"


def tar(compression: Literal["gz", "xz"], *names: str) -> bytes:
    content = io.BytesIO()
    mode: Literal["w:gz", "w:xz"] = "w:gz" if compression == "gz" else "w:xz"
    with tarfile.open(fileobj=content, mode=mode) as archive:
        directory = tarfile.TarInfo("./share/nats-server")
        directory.type = tarfile.DIRTYPE
        archive.addfile(directory)
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(BINARY)
            archive.addfile(member, io.BytesIO(BINARY))
    return content.getvalue()


def deb(compression: Literal["gz", "xz"]) -> bytes:
    """Return a Debian package in the format of ar(5), whose first member has an odd size."""
    parts = [("debian-binary", b"2.0"), (f"data.tar.{compression}", tar(compression, "./usr/sbin/nats-server"))]
    result = b"!<arch>\n"
    for name, data in parts:
        result += (
            f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode() + data + b"\n" * (len(data) % 2)
        )
    return result


def zipped(name: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("nats-server-v2/README.md", "text")
        archive.writestr(name, BINARY)
    return content.getvalue()


@pytest.mark.parametrize(
    "content",
    [BINARY, tar("gz", "nats-server-v2/nats-server"), zipped("nats-server-v2/nats-server"), deb("xz"), deb("gz")],
    ids=["binary", "tar.gz", "zip", "deb with xz", "deb with gz"],
)
def test_unpack_goes_by_the_content(tmp_path: Path, content: bytes) -> None:
    source = tmp_path / "archive"
    source.write_bytes(content)
    target = io.BytesIO()
    unpack(str(source), target)
    assert target.getvalue() == BINARY


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (tar("gz", "nats"), "contains no nats-server"),
        (zipped("nats"), "contains no nats-server"),
        (tar("gz", "nats-server")[:60], "is damaged"),
        (zipped("nats-server")[:60], "is damaged"),
        (b"!<arch>\n", "no data archive"),
        (b"<html>404</html>", "not a binary"),
        (b"", "not a binary"),
    ],
    # An archive contains the time at which it was made, but pytest-xdist needs the same parameter names in all
    # processes.
    ids=["tar.gz with another file", "zip with another file", "cut tar.gz", "cut zip", "cut deb", "web page", "empty"],
)
def test_unpack_reports_the_error(tmp_path: Path, content: bytes, message: str) -> None:
    source = tmp_path / "archive"
    source.write_bytes(content)
    with pytest.raises(InstallError, match=message):
        unpack(str(source), io.BytesIO())


@pytest.mark.parametrize(
    ("keep", "needed", "removed"),
    [
        (3, {"4"}, ["1"]),
        (1, {"4"}, ["3", "2", "1"]),
        (1, {"4", "1"}, ["3", "2"]),
        (0, {"2"}, ["4", "3", "1"]),
        (9, set(), []),
    ],
)
def test_superfluous_versions(keep: int, needed: set[str], removed: list[str]) -> None:
    assert superfluous(["4", "3", "2", "1"], keep, needed) == removed


def test_versions_of_ignores_other_directories(tmp_path: Path) -> None:
    paths = {f"{tmp_path}/2.10.27/bin/nats-server", f"{tmp_path}/2.10.27/nats-server", "/usr/sbin/nats-server"}
    assert installed_versions(str(tmp_path), paths) == {"2.10.27"}
