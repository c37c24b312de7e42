# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The archive of a nats-server release, and the checksum that it must have. Pure.

An attacker who replaces an archive can also replace the list of checksums next to it. Only a checksum from another
origin detects that: the administrator's, or the collection's, which comes from NATS's Docker images.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict

from ..problem import ERROR, WARNING, ConfigProblem

#: The upstream name of each architecture, by the name in Ansible's facts.
ARCHITECTURES = {
    "x86_64": "amd64",
    "amd64": "amd64",
    "aarch64": "arm64",
    "arm64": "arm64",
    "armv7l": "arm7",
    "armv6l": "arm6",
    "i386": "386",
    "i686": "386",
    "ppc64le": "ppc64le",
    "s390x": "s390x",
}
REFUSE = "refuse"


@dataclass(frozen=True)
class ReleaseOptions:
    """The role's variables of a release. `base_url`: the address of all releases; `origin`: the address to which the
    checksums of the collection apply, because a mirror may have its own builds; `checksum`: the administrator's;
    `unpinned`: warn or refuse."""

    version: str = ""
    machine: str = ""
    base_url: str = ""
    origin: str = ""
    archive_format: str = "tar.gz"
    checksum: str = ""
    unpinned: str = "warn"


class Release(TypedDict):
    """The archive to download, empty if there is none. `checksum`: in the form of the module get_url, which also
    accepts the address of a list."""

    file: str
    url: str
    checksum: str
    problems: list[ConfigProblem]


def release_archive(options: ReleaseOptions, known: Mapping[str, Mapping[str, str]]) -> Release:
    """Return the archive for a host. `known`: the checksums of the collection by version and architecture."""
    architecture = ARCHITECTURES.get(options.machine)
    if not architecture:
        return _refused(
            "nats_server_install_method",
            f"nats-server has no release for {options.machine}: set nats_server_install_method to file and "
            "nats_server_file_src to a binary for it.",
        )
    name = f"nats-server-v{options.version}-linux-{architecture}.{options.archive_format}"
    folder = f"{options.base_url}/v{options.version}"
    digest = re.sub("^sha256:", "", options.checksum.strip()).lower()
    if digest and not re.fullmatch("[0-9a-f]{64}", digest):
        return _refused(
            "nats_server_release_checksum",
            f"the checksum {options.checksum!r} is not a SHA-256, which has 64 hexadecimal digits.",
        )
    if not digest and options.base_url == options.origin and options.archive_format == "tar.gz":
        digest = known.get(options.version, {}).get(architecture, "")
    if digest:
        return Release(file=name, url=f"{folder}/{name}", checksum=f"sha256:{digest}", problems=[])
    refused = options.unpinned == REFUSE
    problem = ConfigProblem(
        severity=ERROR if refused else WARNING,
        option="nats_server_version",
        message=f"the collection has no checksum for {folder}/{name}"
        + (
            ", and nats_server_release_unpinned is refuse. "
            if refused
            else ". It is compared with SHA256SUMS of the same site, which detects damage but not a replaced release. "
        )
        + "Set nats_server_release_checksum to the archive's SHA-256.",
    )
    if refused:
        return Release(file="", url="", checksum="", problems=[problem])
    return Release(file=name, url=f"{folder}/{name}", checksum=f"sha256:{folder}/SHA256SUMS", problems=[problem])


def _refused(option: str, message: str) -> Release:
    problem = ConfigProblem(severity=ERROR, option=option, message=message)
    return Release(file="", url="", checksum="", problems=[problem])
