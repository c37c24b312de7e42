# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_certificates
short_description: Read the certificates in a PEM text
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Returns each certificate of a PEM text, such as the content of C(ca.crt) or C(server.crt), in the order of the text.
  - With O(key), it also returns the reasons why a server cannot present the first certificate. This certificate is
    checked against the key, the current time and the names under which the server is reached; its issuer is not
    checked.
  - Only the roles and playbooks of this collection need this filter; it may change in any release.
positional: _input
options:
  _input:
    description: The PEM text, which must not contain keys. An empty text contains no certificates, which is an error if
      O(key) is set.
    type: str
    required: true
  key:
    description: Private key of the first certificate in PEM form.
    type: str
  names:
    description: Host names and addresses to which clients and servers connect.
    type: list
    elements: str
    default: []
  mutual:
    description: Whether the server also presents the certificate on connections that it opens, as on connections
      between servers.
    type: bool
    default: false
requirements:
  - cryptography 40 or later (which ansible-core itself needs)
"""

EXAMPLES = r"""
- name: Show when an authority ends
  ansible.builtin.debug:
    msg: "{{ (lookup('ansible.builtin.file', 'ca.crt') | natsops.jetstream.nats_certificates | first).not_after }}"

- name: Insist on a certificate that can be presented
  ansible.builtin.assert:
    that: problems | length == 0
  vars:
    problems: >-
      {{ (certificate | natsops.jetstream.nats_certificates(key=key, names=['n1.example.com']) | first).problems }}
    certificate: "{{ lookup('ansible.builtin.file', 'n1.crt') }}"
    key: "{{ lookup('ansible.builtin.file', 'n1.key') }}"
  no_log: true
"""

RETURN = r"""
_value:
  description:
    - C(subject), C(not_after) in UTC, and the C(sha256) fingerprint of each certificate. With O(key), the first
      certificate also has C(problems), the reasons why it cannot be presented.
  type: list
  elements: dict
  sample: [{"subject": "CN=n1-c1", "not_after": "2027-12-21T10:00:00+00:00", "sha256": "5f1c0d3b"}]
"""

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from ..plugin_utils._filters import reports_problems


@reports_problems
def nats_certificates(
    pem: str, key: str | None = None, names: Sequence[str] = (), mutual: bool = False
) -> list[dict[str, Any]]:
    """Return the certificates; see DOCUMENTATION."""
    # Imported here because Ansible loads all filters to find a single one, and importing cryptography takes longer than
    # all other imports.
    from ..plugin_utils._certificates import certificates, problems

    found = certificates(str(pem or ""))
    if key is not None:
        why = problems(str(pem or ""), str(key), [str(name) for name in names], datetime.now(timezone.utc), mutual)
        found[0]["problems"] = why
    return found


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_certificates": nats_certificates}
