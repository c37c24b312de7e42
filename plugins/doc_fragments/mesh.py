# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  mesh:
    description:
      - Also check that the servers are completely connected. Every pair of servers in a cluster must have all its routes,
        and every server a gateway connection to each other cluster. A missing connection has the code
        V(mesh_incomplete).
    type: dict
    suboptions:
      server_names:
        description: Names of the servers to check.
        type: list
        elements: str
        required: true
      clusters:
        description: Names of the expected clusters, in addition to those in the servers' configuration.
        type: list
        elements: str
        default: []
      pinned_accounts:
        description: Accounts with a dedicated route (C(cluster.accounts)), which the servers do not report.
        type: list
        elements: str
        default: []
      jetstream_servers:
        description: Names of the servers that must have JetStream enabled.
        type: list
        elements: str
        default: []
"""
