# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_certificates
short_description: Tell the certificates in a PEM text
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Returns each certificate of a PEM text, such as the content of C(ca.crt) or C(server.crt), in its order.
positional: _input
options:
  _input:
    description: The text. Keys in it are an error. An empty text holds no certificates.
    type: str
    required: true
requirements:
  - cryptography (which ansible-core itself needs)
"""

EXAMPLES = r"""
- name: Show when the certificate ends
  ansible.builtin.debug:
    msg: "{{ (lookup('ansible.builtin.file', 'server.crt') | natsops.jetstream.nats_certificates | first).not_after }}"
"""

RETURN = r"""
_value:
  description: Subject, end in UTC, and the SHA-256 fingerprint of each certificate.
  type: list
  elements: dict
  sample: [{"subject": "CN=n1-c1", "not_after": "2027-12-21T10:00:00+00:00", "sha256": "5f1c0d3b"}]
"""

from typing import Any

from ansible_collections.natsops.jetstream.plugins.plugin_utils._filters import reports_problems


@reports_problems
def nats_certificates(pem: str) -> list[dict[str, Any]]:
    """The certificates; see DOCUMENTATION."""
    # Not above: Ansible loads all filters to find one, and cryptography takes longer than all the others.
    from ansible_collections.natsops.jetstream.plugins.plugin_utils._certificates import certificates

    return certificates(str(pem or ""))


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_certificates": nats_certificates}
