# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the inputs of a certificate rotation, read from real certificates, and the filter that turns certificate texts
into a plan."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.natsops.jetstream.plugins.filter.nats_rotation_plan import nats_rotation_plan
from ansible_collections.natsops.jetstream.plugins.plugin_utils._certificate_rotation import host_certificates
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)


class Authority:
    """A certificate authority and its certificates, as texts."""

    def __init__(self, name: str) -> None:
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.pem = self._sign(self.name, self.key, is_ca=True)

    def issue(self, name: str = "n1") -> str:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        return self._sign(subject, ec.generate_private_key(ec.SECP256R1()), is_ca=False)

    def _sign(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, is_ca: bool) -> str:
        builder = x509.CertificateBuilder(
            self.name, subject, key.public_key(), x509.random_serial_number(), BEGIN, BEGIN + timedelta(900)
        )
        constrained = builder.add_extension(x509.BasicConstraints(is_ca, None), critical=True)
        return constrained.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


OLD, NEW = Authority("old"), Authority("new")
OLD_FILES = {"ca": OLD.pem, "certificate": OLD.issue()}
NEW_FILES = {"ca": NEW.pem, "certificate": NEW.issue()}


def raw(installed: dict[str, str], **changes: Any) -> dict[str, Any]:
    """Return a host that takes part in a rotation, with the fields that the role passes."""
    return {
        "installed": installed,
        "current": OLD_FILES,
        "new": NEW_FILES,
        "bundle": OLD.pem + NEW.pem,
        "rotating": True,
        **changes,
    }


def test_fingerprints_show_the_progress_of_a_host() -> None:
    start = host_certificates(raw(OLD_FILES))
    assert (start.has_files, start.trusts_current, start.trusts_new, start.presents_new) == (True, True, False, False)
    middle = host_certificates(raw({"ca": OLD.pem + NEW.pem, "certificate": NEW_FILES["certificate"]}))
    assert (middle.trusts_current, middle.trusts_new, middle.presents_new) == (True, True, True)
    end = host_certificates(raw(NEW_FILES))
    assert (end.trusts_current, end.trusts_new, end.presents_new, end.trusts_neither) == (False, True, True, False)
    other = Authority("other")
    assert host_certificates(raw({"ca": other.pem, "certificate": other.issue()})).trusts_neither
    assert not host_certificates(raw({"ca": "", "certificate": ""})).has_files


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("bundle_complete", {}, {"bundle": NEW.pem}),
        ("issued_by_new_ca", {}, {"new": {"ca": NEW.pem, "certificate": OLD_FILES["certificate"]}}),
        ("same_ca", {"current": {"ca": OLD.pem, "certificate": OLD.issue()}}, {"current": NEW_FILES}),
        (
            "differs",
            {"current": {"ca": OLD.pem, "certificate": OLD.issue()}},
            {"current": {key: f"\n{pem}\n" for key, pem in OLD_FILES.items()}},
        ),
        ("differs", {"will_change": True}, {"will_change": "False"}),
        ("running", {}, {"running": False}),
        ("recorded", {}, {"recorded": "False"}),
        (
            "unloaded",
            {"config_load_time": "2026-01-01T00:00:00Z", "files_changed_at": BEGIN.timestamp() + 1},
            {"config_load_time": "2026-01-01T00:00:02.123456789Z", "files_changed_at": BEGIN.timestamp() + 1},
        ),
        (
            "unloaded",
            {"config_load_time": "2026-01-01T00:00:00Z", "files_changed_at": "1900000000.0"},
            {"files_changed_at": 1.0},
        ),
    ],
)
def test_each_judgement_by_real_certificates(field: str, good: dict[str, Any], bad: dict[str, Any]) -> None:
    assert getattr(host_certificates(raw(OLD_FILES, **good)), field)
    assert not getattr(host_certificates(raw(OLD_FILES, **bad)), field)


def test_the_playbooks_own_certificate_has_to_outlive_the_old_authority() -> None:
    assert host_certificates(raw(OLD_FILES), NEW.issue()).api_certificate_trusted
    assert not host_certificates(raw(OLD_FILES), OLD.issue()).api_certificate_trusted
    assert host_certificates(raw(OLD_FILES), "").api_certificate_trusted
    unmade = {"ca": "", "certificate": ""}
    assert host_certificates(raw(OLD_FILES, new=unmade), OLD.issue()).api_certificate_trusted


def test_the_filter_plans_from_texts() -> None:
    plan = nats_rotation_plan(
        {"n1": raw(OLD_FILES), "n2": raw(OLD_FILES)}, "certificates", stop_after="trust_new_ca", clients_use_tls=True
    )
    assert plan["refusals"] == [] and plan["steps"] == ["trust_new_ca"]
    assert plan["hosts"]["n2"]["trust_new_ca"] == {"ca": "both", "certificate": "current"}
    assert plan["expiry"][0] == "n1: the certificate expires 2028-06-19T00:00:00+00:00"
    unmade = {"ca": "", "certificate": ""}
    predicted = nats_rotation_plan(
        {"n1": raw(OLD_FILES, new=unmade, bundle="")}, "certificates", api_certificate=None, check_mode=True
    )
    assert len(predicted["steps"]) == 3


def test_a_private_key_among_the_certificates_is_an_error_without_its_text() -> None:
    files = {"ca": "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n", "certificate": ""}
    with pytest.raises(AnsibleFilterError, match="include a private key") as raised:
        nats_rotation_plan({"n1": raw(files)}, "certificates")
    assert "c2VjcmV0" not in str(raised.value)
