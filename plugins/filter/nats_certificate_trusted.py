# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_certificate_trusted
short_description: Tell whether a certificate is trusted by those who know certain authorities
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Follows the signatures from the first certificate of a PEM text, over intermediate ones that come after it, to one of the
    authorities. Dates and names are not looked at.
positional: _input, authorities
options:
  _input:
    description: The certificate, and the intermediate ones that are presented with it, in PEM form.
    type: str
    required: true
  authorities:
    description: The trusted certificates in PEM form.
    type: str
    required: true
requirements:
  - cryptography 40 or later
"""

EXAMPLES = r"""
- name: Insist that the hosts trust the new certificate before they present it
  ansible.builtin.assert:
    that: certificate | natsops.jetstream.nats_certificate_trusted(authorities)
  vars:
    certificate: "{{ lookup('ansible.builtin.file', 'n1.crt') }}"
    authorities: "{{ lookup('ansible.builtin.file', 'ca.crt') }}"
"""

RETURN = r"""
_value:
  description: Whether it is trusted.
  type: bool
"""

from typing import Any

from ansible_collections.natsops.jetstream.plugins.plugin_utils._filters import reports_problems


@reports_problems
def nats_certificate_trusted(pem: str, authorities: str) -> bool:
    """Whether it is trusted; see DOCUMENTATION."""
    # Not above: Ansible loads all filters to find one, and cryptography takes longer than all the others.
    from ansible_collections.natsops.jetstream.plugins.plugin_utils._certificates import trusted

    return trusted(str(pem or ""), str(authorities or ""))


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_certificate_trusted": nats_certificate_trusted}
