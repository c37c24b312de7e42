# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Convert certificates in PEM form for the rules of their rotation. Runs only on the controller, because it needs
cryptography."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean

from ..module_utils.server_config.certificate_rotation import Certificate, HostCertificates
from ..module_utils.server_config.required_action import epoch
from ._certificates import certificates, trusted


def host_certificates(host: Mapping[str, Any], api_certificate: str = "") -> HostCertificates:
    """Return the input of the rules for a host; the filter `nats_rotation_plan` describes the texts.

    `api_certificate`: the certificate with which the playbook connects, if the servers require one. Raises ValueError
    if a text cannot be read.
    """
    installed, current, new = (_texts(host, key) for key in ("installed", "current", "new"))
    old_ca, new_ca = _fingerprints(current["ca"]), _fingerprints(new["ca"])
    presented = _certificates(installed["certificate"])[:1]
    loaded_at = host.get("config_load_time")
    return HostCertificates(
        trusted=_certificates(installed["ca"]),
        presented=presented[0] if presented else None,
        current_ca=old_ca,
        new_ca=new_ca,
        new_certificate=next(iter(_fingerprints(new["certificate"])), None),
        source=str(host.get("source") or "ca"),
        rotating=boolean(host.get("rotating", False)),
        running=boolean(host.get("running", True)),
        recorded=boolean(host.get("recorded", True)),
        unloaded=bool(loaded_at) and epoch(str(loaded_at)) < float(host.get("files_changed_at") or 0),
        differs=boolean(host.get("will_change", False)) or installed != current,
        certificate_path=str(host.get("certificate_path") or ""),
        problems=list(host.get("problems") or ()),
        missing=dict(host.get("missing") or {}),
        bundle_complete={*old_ca, *new_ca} <= set(_fingerprints(str(host.get("bundle") or ""))),
        issued_by_new_ca=_trusts(new["ca"], new["certificate"]),
        same_ca=_trusts(installed["ca"], current["certificate"]) and _trusts(current["ca"], installed["certificate"]),
        api_certificate_trusted=not (api_certificate and new_ca) or _trusts(new["ca"], api_certificate),
    )


def first_expiry(pem: str) -> str:
    """Return when the first certificate of a text expires (ISO 8601), an empty text if there is none. Raises
    ValueError."""
    return next((certificate.not_after for certificate in _certificates(pem)), "")


def _texts(host: Mapping[str, Any], key: str) -> dict[str, str]:
    texts = host.get(key) or {}
    return {name: str(texts.get(name) or "").strip() for name in ("ca", "certificate")}


def _certificates(pem: str) -> list[Certificate]:
    return [Certificate(**found) for found in certificates(pem)]


def _fingerprints(pem: str) -> list[str]:
    return [certificate.sha256 for certificate in _certificates(pem)]


def _trusts(authorities: str, pem: str) -> bool:
    return bool(authorities and pem) and trusted(pem, authorities)
