# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks a host's TLS files without moving the key off the host."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.host.certificate import read_certificate

#: An unprivileged user that every Debian system has.
USER = "daemon"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate with its key, and a second certificate with an encrypted key."""
    folder = tmp_path_factory.mktemp("files")
    folder.chmod(0o755)
    for name, secret in (("a", ["-nodes"]), ("b", ["-passout", "pass:secret"])):
        outputs = ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.crt")]
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-days", "2", "-subj", "/CN=n1", *secret, *outputs]
        subprocess.run(command, check=True, capture_output=True)
    (folder / "text").write_text("no certificate")
    return folder


@pytest.mark.parametrize(
    ("cert", "key", "ca", "reason"),
    [
        ("a.crt", "a.key", "a.crt", None),
        ("b.crt", "a.key", "a.crt", "a.key does not match the certificate"),
        ("b.crt", "b.key", "a.crt", "b.key is encrypted, which nats-server does not support"),
        ("text", "a.key", "a.crt", "cannot be read as a certificate and a key in PEM format"),
        ("a.crt", "text", "a.crt", "cannot be read as a certificate and a key in PEM format"),
        ("a.crt", "a.key", "text", "text does not contain a CA certificate"),
    ],
)
def test_the_files_are_checked(files: Path, cert: str, key: str, ca: str, reason: str | None) -> None:
    paths = {"cert_file": str(files / cert), "key_file": str(files / key), "ca_file": str(files / ca)}
    found = read_certificate(paths, "no-such-user")
    assert found["missing"] == [] and found["certificate"] == (files / cert).read_text()
    assert [text for text in found["reasons"] if reason is None or reason not in text] == []
    assert bool(found["reasons"]) == (reason is not None)


def test_missing_files_are_named(files: Path) -> None:
    paths = {name: str(files / "none") for name in ("cert_file", "key_file", "ca_file")}
    assert read_certificate(paths, "root")["missing"] == [str(files / "none")] * 3


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
def test_the_user_of_the_service_must_be_able_to_read_the_files() -> None:
    folder = Path("/var/tmp") / f"natsops-certificate-{os.getpid()}"
    folder.mkdir(mode=0o755)
    try:
        outputs = ["-keyout", str(folder / "key"), "-out", str(folder / "crt")]
        command = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-days",
            "2",
            "-subj",
            "/CN=n1",
            "-nodes",
            *outputs,
        ]
        subprocess.run(command, check=True, capture_output=True)
        paths = {"cert_file": str(folder / "crt"), "key_file": str(folder / "key"), "ca_file": str(folder / "crt")}
        for mode, readable in ((0o644, True), (0o600, False)):
            (folder / "key").chmod(mode)
            assert (read_certificate(paths, USER)["reasons"] == []) == readable
        assert f"the user {USER}, who runs nats-server, cannot read " in read_certificate(paths, USER)["reasons"][0]
        (folder / "key").chmod(0o644)
        folder.chmod(0o700)
        assert "Permission denied" in read_certificate(paths, USER)["reasons"][0]
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
