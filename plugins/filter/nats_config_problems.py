# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_config_problems
short_description: List all problems of a configuration
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Returns all problems of a configuration at once, including problems that C(nats-server -t) finds late or not at all.
  - An error prevents the server from starting or working. A warning is only informational.
  - Only the roles and playbooks of this collection need this filter; it may change in any release.
positional: _input, context
options:
  _input:
    description: The configuration, with nats-server's own keys and the original passwords.
    type: dict
    required: true
  context:
    description: Information on the environment of the configuration. Checks that need missing values are skipped.
    type: dict
    default: {}
    suboptions:
      version:
        description: The nats-server version to run.
        type: str
      versions:
        description:
          - The versions that the servers run, and those that they should run. A warning is returned for each series
            without support and for each known defect, with the version that fixes it.
        type: list
        elements: str
      members:
        description: The cluster's servers, in the form of C(servers) returned by
          P(natsops.jetstream.nats_topology#filter).
        type: list
        elements: dict
      cluster_size:
        description: The expected number of members.
        type: int
      filesystems:
        description: The host's mounts, with C(mount), C(fstype), C(size_total) in bytes, and C(rotating_disks).
        type: list
        elements: dict
      selinux:
        description: The value of RV(natsops.jetstream.nats_server_host_info#module:selinux), with C(install_dir).
        type: dict
      memtotal:
        description: The host's memory in bytes.
        type: int
      running:
        description: The C(/varz) of the running server. Empty if no server is running.
        type: dict
      loaded:
        description: The configuration that the running server has loaded. Empty if that configuration is unknown.
        type: dict
      own_users:
        description:
          - The users with which the collection logs in, C(system) (a name, empty for a login without a name), C(operators)
            (a list of names) and C(metrics) (a name, empty without such a user).
        type: dict
      extra_files:
        description: Names of the files that the inventory adds to the directory of the configuration.
        type: list
        elements: str
      role_files:
        description: Names of the files that the role itself writes to that directory.
        type: list
        elements: str
      take_over:
        description: Whether the role manages unit and binary. V(false) for an adopted server.
        type: bool
        default: true
      process_runs:
        description: Whether the server is running.
        type: bool
        default: true
      config_file:
        description: The path of the configuration file on the host, for messages.
        type: str
      require_mount:
        description: Whether the store directory must not be on the root file system.
        type: bool
      service_backend:
        description: How the server is run, V(systemd) or V(process).
        type: str
      store:
        description: The content of C(jetstream.store_dir) on the disk, as returned by
          M(natsops.jetstream.nats_server_host_info).
        type: dict
      loaded_store:
        description: The content of the store directory of the loaded configuration, in the form of C(store) and with
          its C(path). Empty if that directory is the one in C(store).
        type: dict
      live_members:
        description: The names of the members of the running meta group; empty if unknown.
        type: list
        elements: str
      drop_ins:
        description: The drop-ins of the unit that the role does not manage, each with C(path) and C(options).
        type: list
        elements: dict
      gateway:
        description: Whether the server has a gateway, which makes the cluster part of a supercluster.
        type: bool
      hub:
        description: The servers to which this server connects as a leafnode, in the form of C(members).
        type: list
        elements: dict
      supercluster:
        description: The servers of all clusters of the supercluster, in the form of C(members).
        type: list
        elements: dict
      tls_files:
        description:
          - Files with the certificate that the server should present, on the controller or on the host.
          - C(host) and C(path) are used only in the text of the problems. C(missing) lists files that do not exist.
            C(certificate) and C(key) are PEM texts, C(names) lists the names under which clients and servers connect to
            the server, and C(mutual) is whether the server also presents the certificate to other servers.
          - Files of the host have no C(key), and C(reasons) lists why nats-server cannot use them.
        type: dict
      tls_authority:
        description:
          - The authority of the inventory, and the certificate that the host presents. If the server is C(running), the
            authority must have issued this certificate.
          - C(host), C(source) (V(ca) or V(files)) and C(path) are used only in the text of the problem. C(authorities)
            and C(presented) are PEM texts, empty if the file does not exist.
        type: dict
      run:
        description:
          - The hosts of a run, compared with the inventory and the live cluster. The comparison finds runs that would
            start a new cluster in parts, and inventories that list fewer servers than the cluster has.
          - The keys are C(cluster) (name), C(hosts) of the run, C(running) (whether a server of one of these hosts is
            running), C(route_style), C(live) servers, C(live_error), C(login) (whether modules can log in), and
            C(versions) of the hosts. Each entry of C(versions) has C(name), C(version) (running or installed, empty for
            a new server), C(target), C(running), C(streams) (the number in its store) and C(in_meta_group) (whether its
            store has a meta group).
        type: dict
"""

EXAMPLES = r"""
- name: Show the problems
  ansible.builtin.debug:
    msg: "{{ config | natsops.jetstream.nats_config_problems({'version': '2.10.27'}) }}"
  vars:
    config: {port: 4222, lame_duck_duration: 20s}
"""

RETURN = r"""
_value:
  description: The problems, each with C(severity) (V(error) or V(warning)), C(option) and C(message). Problems of
    C(run) come last.
  type: list
  elements: dict
  sample:
    - severity: error
      option: lame_duck_duration
      message: 20s is less than the 30s that nats-server requires
"""

from datetime import datetime, timezone
from typing import Any

from ..module_utils.accounts.migration import migration_problems
from ..module_utils.nats.server_versions import version_warnings
from ..module_utils.placement.membership_plan import membership_problems
from ..module_utils.problem import ConfigProblem
from ..module_utils.roll.version_rules import flag_problems
from ..module_utils.server_config.case import error, warning
from ..module_utils.server_config.validation import config_problems
from ..module_utils.versions import parse_version
from ..plugin_utils._filters import reports_problems


@reports_problems
def nats_config_problems(config: dict[str, Any], context: dict[str, Any] | None = None) -> list[ConfigProblem]:
    """Return all problems; see DOCUMENTATION."""
    known = dict(context or {})
    run, tls_files, authority = (known.pop(key, None) for key in ("run", "tls_files", "tls_authority"))
    found = config_problems(config, known)
    if "version" in known:
        found = [*_version_problems(known["version"]), *found]
    found += [warning("nats_server_version", line) for line in version_warnings(known.get("versions") or (), config)]
    found += migration_problems(known.get("loaded") or {}, config)
    if tls_files or authority:
        # Imported here because Ansible loads all filters to find a single one, and importing cryptography takes longer
        # than all other imports.
        from ..plugin_utils import _certificates

        found += _certificates.file_problems(tls_files, datetime.now(timezone.utc)) if tls_files else []
        found += _certificates.authority_problems(authority) if authority else []
    if run:
        found += membership_problems({**run, "members": known.get("members") or []})
        found += flag_problems(config, [*(run.get("live") or ()), *(run.get("versions") or ())])
    return found


def _version_problems(version: Any) -> list[ConfigProblem]:
    try:
        parse_version(version)
    except ValueError as refused:
        return [error("nats_server_version", str(refused))]
    return []


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_config_problems": nats_config_problems}
