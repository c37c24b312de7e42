# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tests the certificates as nats-server will see them: the module makes them, and code independent of openssl checks
them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.modules import nats_certificate
from ansible_collections.natsops.jetstream.plugins.plugin_utils import _certificates
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID


class Controller:
    """Runs the module in a directory, as Ansible does: arguments on standard input, the result on standard output."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def run(self, purpose: str, name: str, *, check: bool = False, **options: Any) -> dict[str, Any]:
        arguments = {
            "purpose": purpose,
            "path": f"{self.directory}/{name}.crt",
            "key_path": f"{self.directory}/{name}.key",
            "common_name": name,
            "valid_days": 400,
            "_ansible_check_mode": check,
            **options,
        }
        if purpose != "ca":
            arguments |= {"ca_path": f"{self.directory}/ca.crt", "ca_key_path": f"{self.directory}/ca.key"}
        done = subprocess.run(
            [sys.executable, "-m", nats_certificate.__name__],
            input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            capture_output=True,
            text=True,
            check=False,
        )
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    def server(self, *names: str, check: bool = False, **options: Any) -> dict[str, Any]:
        return self.run("server", "n1", check=check, subject_alt_names=names or ("n1", "127.0.0.1"), **options)

    def certificate(self, name: str) -> x509.Certificate:
        return x509.load_pem_x509_certificate((self.directory / f"{name}.crt").read_bytes())


@pytest.fixture
def controller(tmp_path: Path) -> Controller:
    return Controller(tmp_path / "pki")


@pytest.fixture
def ready(controller: Controller) -> Controller:
    """A controller with an authority and the certificate of a server."""
    assert controller.run("ca", "ca")["changed"]
    assert controller.server()["changed"]
    return controller


def test_a_second_run_changes_nothing(ready: Controller) -> None:
    before = {path.name: path.read_bytes() for path in ready.directory.iterdir()}
    assert not ready.run("ca", "ca")["changed"]
    assert not ready.server("127.0.0.1", "N1")["changed"]
    assert {path.name: path.read_bytes() for path in ready.directory.iterdir()} == before


def test_a_server_certificate_serves_both_sides_of_a_route(ready: Controller) -> None:
    extensions = ready.certificate("n1").extensions
    usages = set(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    assert usages == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["n1"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    ready.certificate("n1").verify_directly_issued_by(ready.certificate("ca"))


def test_a_client_certificate_cannot_pose_as_a_server(ready: Controller) -> None:
    assert ready.run("client", "client")["changed"]
    usages = ready.certificate("client").extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usages) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert not ready.run("client", "client")["changed"]


def test_keys_are_for_the_owner_only(ready: Controller) -> None:
    for name in ("ca.key", "n1.key"):
        assert (ready.directory / name).stat().st_mode & 0o777 == 0o600
    (ready.directory / "n1.key").chmod(0o644)
    assert ready.server(check=True)["changed"]
    assert ready.server()["reasons"] == ["other users can read the key"]
    assert (ready.directory / "n1.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"names": ("n1", "10.0.0.1")}, "the subject alternative names differ"),
        ({"common_name": "other"}, "the common name differs"),
        ({"renew_before_days": 400, "valid_days": 500}, "it expires within 400 days"),
    ],
)
def test_renewed_for_a_reason(ready: Controller, options: dict[str, Any], reason: str) -> None:
    names = options.pop("names", ())
    before = ready.certificate("n1").serial_number
    predicted = ready.server(*names, check=True, **options)
    assert predicted["changed"] and predicted["reasons"] == [reason]
    assert ready.certificate("n1").serial_number == before
    assert ready.server(*names, **options)["reasons"] == [reason]
    assert ready.certificate("n1").serial_number != before


def test_renewed_with_a_foreign_key(ready: Controller) -> None:
    (ready.directory / "n1.key").write_bytes((ready.directory / "ca.key").read_bytes())
    assert ready.server()["reasons"] == ["the certificate does not match the key"]
    assert not ready.server()["changed"]


def test_renewed_under_a_different_authority(ready: Controller) -> None:
    for name in ("ca.crt", "ca.key"):
        (ready.directory / name).unlink()
    assert ready.run("ca", "ca")["changed"]
    assert ready.server()["reasons"] == ["it was not signed by this authority"]


def test_an_authority_is_renewed_with_its_own_key(ready: Controller) -> None:
    key = (ready.directory / "ca.key").read_bytes()
    assert ready.run("ca", "ca", renew_before_days=450, valid_days=800)["changed"]
    assert (ready.directory / "ca.key").read_bytes() == key
    ready.certificate("n1").verify_directly_issued_by(ready.certificate("ca"))
    assert not ready.server()["changed"]


def test_a_certificate_never_outlives_its_authority(ready: Controller) -> None:
    ready.run("client", "client", valid_days=9000)
    assert ready.certificate("client").not_valid_after_utc == ready.certificate("ca").not_valid_after_utc


@pytest.mark.parametrize(
    ("breakage", "message"),
    [
        (lambda pki: (pki / "ca.key").unlink(), "ca.key, the key of the authority, is missing"),
        (lambda pki: (pki / "ca.key").write_bytes((pki / "n1.key").read_bytes()), "do not match"),
        (lambda pki: (pki / "ca.crt").write_text("nothing"), "ca.crt does not contain a certificate"),
    ],
)
def test_an_authority_is_never_replaced(ready: Controller, breakage: Any, message: str) -> None:
    breakage(ready.directory)
    failed = ready.run("ca", "ca")
    assert failed["failed"] and message in failed["msg"]


def test_errors_for_options(ready: Controller) -> None:
    assert "neither a host name nor an IP address" in ready.server("n1 x")["msg"]
    assert "must be more than renew_before_days" in ready.server(renew_before_days=400)["msg"]


def test_check_mode_before_anything_exists(controller: Controller) -> None:
    assert controller.run("ca", "ca", check=True)["changed"]
    assert controller.server(check=True)["changed"]
    assert not controller.directory.exists()


def test_the_difference_shows_names_but_no_key(ready: Controller) -> None:
    shown = ready.server("n1", "n9")["diff"]
    assert "n9" in shown["after"]["subject_alt_names"] and "n9" not in shown["before"]["subject_alt_names"]
    assert "PRIVATE" not in json.dumps(shown)


def test_unusable_certificates_have_reasons(ready: Controller) -> None:
    ready.run("client", "client")
    texts = {name: (ready.directory / name).read_text() for name in ("n1.crt", "n1.key", "client.crt", "client.key")}

    def problems(
        certificate: str = "n1.crt", key: str = "n1.key", *names: str, days: int = 0, mutual: bool = False
    ) -> list[str]:
        now = datetime.now(timezone.utc) + timedelta(days=days)
        return _certificates.problems(texts[certificate], texts[key], names, now, mutual)

    assert problems("n1.crt", "n1.key", "N1", "127.0.0.1") == []
    assert problems(key="client.key") == ["the key does not match the certificate"]
    assert problems(key="n1.crt")[0].startswith("the key cannot be read")
    assert problems(days=500)[0].startswith("it ended 2")
    assert problems(days=-500)[0].startswith("it begins 2")
    assert problems("n1.crt", "n1.key", "n1.example.com", "::1", "n1") == ["it lacks the name n1.example.com, ::1"]
    assert problems(mutual=True) == []
    assert problems("client.crt", "client.key", "n1", mutual=True) == [
        "its extended key usage lacks serverAuth",
        "it lacks the name n1",
    ]
    ready.server("*.example.com")
    texts |= {name: (ready.directory / name).read_text() for name in ("n1.crt", "n1.key")}
    assert problems("n1.crt", "n1.key", "n1.example.com", "a.n1.example.com") == ["it lacks the name a.n1.example.com"]
