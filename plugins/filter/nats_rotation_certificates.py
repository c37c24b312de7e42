# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_rotation_certificates
short_description: Tell how far a host is in a change of the authority
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Compares the files of a host with the old and the new authority and the new certificate, by fingerprints.
positional: _input, leaf, old, new, new_leaf
options:
  _input:
    description: Content of C(ca.crt) on the host.
    type: str
    required: true
  leaf:
    description: Content of C(server.crt) on the host.
    type: str
    required: true
  old:
    description: The old authorities in PEM form.
    type: str
    required: true
  new:
    description: The new authorities in PEM form; empty while they are not made yet.
    type: str
    required: true
  new_leaf:
    description: The certificate that the host shall have; empty while it is not made yet.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Read how far the host is
  ansible.builtin.set_fact:
    state: "{{ ca | natsops.jetstream.nats_rotation_certificates(server, old_ca, new_ca, new_server) }}"
"""

RETURN = r"""
_value:
  description: C(there), C(old), C(new), C(foreign) and C(leaf).
  type: dict
  sample: {"there": true, "old": true, "new": true, "foreign": false, "leaf": false}
"""

from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils._rotation import certificate_state
from ansible_collections.natsops.jetstream.plugins.plugin_utils._filters import reports_problems


@reports_problems
def nats_rotation_certificates(ca: str, leaf: str, old: str, new: str, new_leaf: str) -> dict[str, bool]:
    """The state; see DOCUMENTATION."""
    # Not above: Ansible loads all filters to find one, and cryptography takes longer than all the others.
    from ansible_collections.natsops.jetstream.plugins.plugin_utils._certificates import certificates

    def prints(pem: str) -> list[str]:
        return [str(certificate["sha256"]) for certificate in certificates(str(pem or ""))]

    def first(pem: str) -> str | None:
        return next(iter(prints(pem)), None)

    return certificate_state(prints(ca), first(leaf), prints(old), prints(new), first(new_leaf))


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_rotation_certificates": nats_rotation_certificates}
