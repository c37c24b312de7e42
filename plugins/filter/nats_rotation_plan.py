# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_rotation_plan
short_description: Plan the rotation of the credentials or the certificates of a cluster
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Compares the servers of a cluster with the inventory, and returns the steps from the current to the desired state,
    the state of each host after each step, and every reason that prevents the rotation.
  - V(credentials) rotates users and the credentials of routes. A server accepts a single password for each user name,
    so the rotation uses a second user of the same account to replace a password without refusing a login. The plan
    contains secrets.
  - V(certificates) renews certificates or replaces their authority.
  - Only the roles and playbooks of this collection need this filter; it may change in any release.
positional: _input, subject
options:
  _input:
    description:
      - The hosts by name.
      - For V(credentials), each host has C(running), C(loaded), C(desired), C(given) and C(restart_pending). C(loaded)
        is the structured configuration that the process has loaded, empty if unknown. C(desired) is the configuration
        in the inventory with hashed passwords, and C(given) is the same configuration with the original passwords.
        C(restart_pending) is whether the service definition is newer than the process.
      - For V(certificates), C(installed) describes the certificates on the host, C(current) those in the inventory, and
        C(new) the planned replacements (empty unless the authority changes). Each contains a C(ca) and a C(certificate)
        in PEM form. C(bundle) contains both authorities. C(source) is V(ca), V(files) or V(none). C(rotating) is
        whether the inventory specifies a different authority. C(running) is whether nats-server is running, and
        C(recorded) is whether its loaded configuration is recorded. C(files_changed_at) and C(config_load_time) (epoch
        seconds) are when the files changed and when the process loaded them. C(will_change) is whether this run would
        create different certificates. C(certificate_path), C(problems) and C(missing) describe problems with files that
        the operator supplied.
    type: dict
    required: true
  subject:
    description: Whether to rotate credentials or certificates.
    type: str
    choices: [credentials, certificates]
    required: true
  cluster:
    description: Name of the cluster, for messages.
    type: str
    default: ""
  missing_hosts:
    description: Hosts of the cluster that are not part of the run.
    type: list
    elements: str
    default: []
  phase:
    description: For V(credentials), whether to add new users, remove old users, or both.
    type: str
    choices: [auto, add, remove]
    default: auto
  window:
    description: For V(credentials), how long both users are accepted during the run, such as V(15m).
    type: str
    default: ""
  remove_users:
    description: For V(credentials), names of users to remove even though they are still in the inventory.
    type: list
    elements: str
    default: []
  disconnect_clients:
    description: For V(credentials), whether clients with old credentials may be disconnected.
    type: bool
    default: false
  routes:
    description: For V(credentials), how the credentials of routes are changed; see C(nats_cluster_rotate_routes) of the
      role.
    type: str
    choices: [guarded, open, at_once]
    default: guarded
  explicit_routes:
    description: For V(credentials), whether each server has a URL for every other server, so gossip creates no routes.
    type: bool
    default: true
  stop_after:
    description: For V(certificates), the last step of this run. V(renew) refuses a change of the authority.
    type: str
    choices: [auto, renew, trust_new_ca, new_certificates, remove_old_ca]
    default: auto
  clients_use_tls:
    description: For V(certificates), whether clients connect with TLS.
    type: bool
    default: false
  api_certificate:
    description: For V(certificates), the certificate in PEM form with which the playbook connects, if the servers
      require one.
    type: str
    default: ""
  controller_certificate:
    description: For V(certificates), the client certificate of the controller in PEM form, whose expiry is shown.
    type: str
    default: ""
  check_mode:
    description: Whether the task runs in check mode. For V(certificates), files may then be missing because they were
      not created.
    type: bool
    default: false
requirements:
  - libpass, or passlib, or bcrypt on the controller for V(credentials)
  - cryptography 40 or later for V(certificates)
"""

EXAMPLES = r"""
- name: Plan the rotation of credentials
  ansible.builtin.set_fact:
    plan: "{{ hosts | natsops.jetstream.nats_rotation_plan('credentials', phase='add') }}"
  no_log: true

- name: Show the steps to a different authority
  ansible.builtin.debug:
    msg: "{{ (states | natsops.jetstream.nats_rotation_plan('certificates', stop_after='trust_new_ca')).lines }}"
"""

RETURN = r"""
_value:
  description:
    - C(refusals), C(steps), C(lines) (the steps as human-readable lines), and C(hosts), which is the state of each host
      after each step. C(predicts_change) is whether O(check_mode) is set and a real run would take a step.
    - C(batches) contains the batches of the steps in order, in the form that M(natsops.jetstream.nats_roll_plan)
      returns. Each also has its C(step), the C(entry_point) of the role
      C(natsops.jetstream.nats_server) that these hosts run, its argument C(tls_step), and the tasks
      before and after it (C(wait_seconds), C(removed), C(issues_client_certificate), C(checks_logins)).
    - For V(credentials), C(hosts) contains the C(configurations) and the expected C(logins) of each host. The result
      also has C(remaining) (the remaining work as human-readable text) and C(removed) (the removed users).
    - For V(certificates), C(hosts) contains the C(ca) (V(current), V(both) or V(new)) and the C(certificate)
      (V(current) or V(new)) of each host; the step C(keep) leaves a host unchanged. The result also has C(refusal) (the
      refusals that fit on a screen), C(left) (all remaining steps) and C(expiry) (as human-readable text).
  type: dict
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..module_utils.server_config.certificate_rotation import CertificateOptions, certificate_rotation
from ..module_utils.server_config.credential_rotation import CredentialOptions, credential_rotation
from ..plugin_utils._credential_rotation import host_credentials, same_password
from ..plugin_utils._filters import reports_problems, typed


@reports_problems
def nats_rotation_plan(hosts: Mapping[str, Mapping[str, Any]], subject: str, **options: Any) -> dict[str, Any]:
    """Return the plan of a cluster; see DOCUMENTATION."""
    if subject == "credentials":
        credentials = {str(name): host_credentials(host) for name, host in hosts.items()}
        return credential_rotation(credentials, typed(CredentialOptions, options), same_password)
    if subject == "certificates":
        # Imported here because Ansible loads all filters to find a single one, and importing cryptography takes longer
        # than all other imports.
        from ..plugin_utils._certificate_rotation import first_expiry, host_certificates

        own = str(options.pop("api_certificate", None) or "")
        certificates = {str(name): host_certificates(host, own) for name, host in hosts.items()}
        controller = first_expiry(str(options.pop("controller_certificate", None) or ""))
        given = replace(typed(CertificateOptions, options), controller_expires=controller)
        return certificate_rotation(certificates, given)
    raise ValueError(f"subject: must be credentials or certificates, not {subject!r}")


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_rotation_plan": nats_rotation_plan}
