# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.host.release import ReleaseOptions, release_archive

ORIGIN = "https://upstream.example.com"
KNOWN = {"2.10.27": {"amd64": "a" * 64}}
AMD64 = ReleaseOptions(version="2.10.27", machine="x86_64", base_url=ORIGIN, origin=ORIGIN)
LIST = f"sha256:{ORIGIN}/v2.10.27/SHA256SUMS"


def test_known_release_has_the_checksum_of_the_collection() -> None:
    found = release_archive(AMD64, KNOWN)
    assert found["url"] == f"{ORIGIN}/v2.10.27/nats-server-v2.10.27-linux-amd64.tar.gz"
    assert (found["checksum"], found["problems"]) == (f"sha256:{'a' * 64}", [])


@pytest.mark.parametrize("given", ["b" * 64, f"sha256:{'B' * 64} "])
def test_checksum_of_the_administrator_replaces_that_of_the_collection(given: str) -> None:
    for options in (AMD64, replace(AMD64, base_url="file:///srv/mirror"), replace(AMD64, version="2.99.0")):
        found = release_archive(replace(options, checksum=given, unpinned="refuse"), KNOWN)
        assert (found["checksum"], found["problems"]) == (f"sha256:{'b' * 64}", [])


@pytest.mark.parametrize(
    "options",
    [
        replace(AMD64, version="2.99.0"),
        replace(AMD64, machine="s390x"),
        replace(AMD64, archive_format="zip"),
        replace(AMD64, base_url="https://mirror.example.com"),
    ],
)
def test_release_without_a_checksum_causes_a_warning_or_a_refusal(options: ReleaseOptions) -> None:
    found = release_archive(options, KNOWN)
    folder = f"{options.base_url}/v{options.version}"
    assert found["checksum"] == f"sha256:{folder}/SHA256SUMS"
    (warning,) = found["problems"]
    assert (warning["severity"], warning["option"]) == ("warning", "nats_server_version")
    assert (
        f"no checksum for {folder}/{found['file']}. It is compared with SHA256SUMS of the same site"
        in warning["message"]
    )
    refused = release_archive(replace(options, unpinned="refuse"), KNOWN)
    (error,) = refused["problems"]
    assert (refused["url"], refused["checksum"], error["severity"]) == ("", "", "error")
    assert error["message"].endswith(
        "and nats_server_release_unpinned is refuse. Set nats_server_release_checksum to the archive's SHA-256."
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (replace(AMD64, machine="riscv64"), "nats-server has no release for riscv64: set nats_server_install_method"),
        (replace(AMD64, checksum="sha256:0123…"), "the checksum 'sha256:0123…' is not a SHA-256"),
        (replace(AMD64, checksum="a" * 40), "is not a SHA-256"),
    ],
)
def test_unsuitable_options_are_an_error(options: ReleaseOptions, message: str) -> None:
    found = release_archive(options, KNOWN)
    (error,) = found["problems"]
    assert (found["url"], error["severity"]) == ("", "error")
    assert message in error["message"]
