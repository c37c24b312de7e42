# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_certificate_problems
short_description: Tell why a server cannot present a certificate
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Compares the first certificate of a PEM text with its private key, the time and the names under which the server is reached.
    Who issued it is told by P(natsops.jetstream.nats_certificate_trusted#filter).
positional: _input, key, names, mutual
options:
  _input:
    description: The certificate in PEM form.
    type: str
    required: true
  key:
    description: Its private key in PEM form.
    type: str
    required: true
  names:
    description: Host names and addresses that clients and servers connect to.
    type: list
    elements: str
    default: []
  mutual:
    description: Whether the server also presents the certificate where it connects itself, as servers do to each other.
    type: bool
    default: false
requirements:
  - cryptography 40 or later
"""

EXAMPLES = r"""
- name: Insist on a certificate that can be presented
  ansible.builtin.assert:
    that: certificate | natsops.jetstream.nats_certificate_problems(key, ['n1.example.com']) | length == 0
  vars:
    certificate: "{{ lookup('ansible.builtin.file', 'n1.crt') }}"
    key: "{{ lookup('ansible.builtin.file', 'n1.key') }}"
  no_log: true
"""

RETURN = r"""
_value:
  description: The reasons, for people; empty when there is none.
  type: list
  elements: str
  sample: [the key is not that of the certificate, it does not name n1.example.com]
"""

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from ansible_collections.natsops.jetstream.plugins.plugin_utils._filters import reports_problems


@reports_problems
def nats_certificate_problems(pem: str, key: str, names: Sequence[str] = (), mutual: bool = False) -> list[str]:
    """The reasons; see DOCUMENTATION."""
    # Not above: Ansible loads all filters to find one, and cryptography takes longer than all the others.
    from ansible_collections.natsops.jetstream.plugins.plugin_utils._certificates import problems

    return problems(str(pem or ""), str(key or ""), [str(name) for name in names], datetime.now(timezone.utc), mutual)


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_certificate_problems": nats_certificate_problems}
