# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_certificate_rotation
short_description: Plan the renewal of certificates or the change to another authority
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Compares the certificates that the hosts of a cluster have with those of the inventory, and returns the steps from one to the
    other, the files of each host after each step, and every reason not to begin.
positional: _input
extends_documentation_fragment:
  - natsops.jetstream.rotation
options:
  _input:
    description:
      - The hosts by name. C(installed), C(current) and C(new) are the C(ca) and the C(certificate) in PEM form that are on
        the host, that the inventory has, and that are to replace them (empty without another authority); C(bundle) holds
        both authorities.
      - C(source) is V(ca), V(files) or V(none); C(rotating), whether the inventory names another authority; C(running) and
        C(recorded), whether nats-server runs and its loaded configuration is known; C(files_changed_at) (epoch seconds) and
        C(config_load_time), when files and process last changed; C(will_change), whether this run would make other certificates;
        C(certificate_path), C(problems) and C(missing), what is wrong with files that the operator supplied.
    type: dict
    required: true
  stop_after:
    description: The last step of this run.
    type: str
    choices: [auto, trust_new_ca, new_certificates, remove_old_ca]
    default: auto
  clients_use_tls:
    description: Whether clients connect with TLS.
    type: bool
    default: false
  api_certificate:
    description: The certificate in PEM form with which the playbook connects, where the servers ask for one.
    type: str
    default: ""
  check_mode:
    description: Whether files that a run would make do not exist yet.
    type: bool
    default: false
requirements:
  - cryptography 40 or later
"""

EXAMPLES = r"""
- name: Show the steps
  ansible.builtin.debug:
    msg: "{{ (states | natsops.jetstream.nats_certificate_rotation(stop_after='trust_new_ca')).lines }}"
"""

RETURN = r"""
_value:
  description:
    - C(refusals), C(steps), C(left) (all steps to the end), C(expiry) and C(lines) (for people), and C(hosts), the C(ca)
      (V(current), V(both) or V(new)) and C(certificate) (V(current) or V(new)) of each host by step; the step C(keep)
      leaves a host where it is.
  type: dict
"""

from collections.abc import Mapping
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.certificate_rotation import (
    CertificateOptions,
    certificate_rotation,
)
from ansible_collections.natsops.jetstream.plugins.plugin_utils._filters import reports_problems, typed


@reports_problems
def nats_certificate_rotation(
    hosts: Mapping[str, Mapping[str, Any]], api_certificate: str | None = None, **options: Any
) -> dict[str, Any]:
    """Return the plan of a cluster; see DOCUMENTATION."""
    # Not above: Ansible loads all filters to find one, and cryptography takes longer than all the others.
    from ansible_collections.natsops.jetstream.plugins.plugin_utils._certificate_rotation import host_certificates

    read = {str(name): host_certificates(host, str(api_certificate or "")) for name, host in hosts.items()}
    return certificate_rotation(read, typed(CertificateOptions, options))


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_certificate_rotation": nats_certificate_rotation}
