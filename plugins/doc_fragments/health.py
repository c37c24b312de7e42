# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  expected_servers:
    description:
      - Names of all expected servers. A missing or unexpected server is a problem.
      - By default, any server that responds is accepted, so a dead server is detected only through its groups.
    type: list
    elements: str
  expected_jetstream_servers:
    description:
      - Names of the servers that must run JetStream and be members of the meta group. Defaults to O(expected_servers).
    type: list
    elements: str
  expected_clusters:
    description:
      - The cluster of each server, by the server's name. A server in a different cluster is a problem.
    type: dict
    default: {}
  cluster:
    description:
      - Check only the servers and assets of the cluster with exactly this name. The meta group of a supercluster spans
        all its clusters, so the complete meta group is checked, except for its size.
    type: str
  assets:
    description:
      - Whether streams and consumers are checked.
    type: bool
    default: true
  max_lag:
    description:
      - Maximum number of Raft entries by which a replica may be behind its leader. With V(0), even a replica that is
        briefly behind, which is normal under load, is a problem.
    type: int
    default: 200
  max_active:
    description:
      - Maximum number of seconds since a leader last received data from a replica. Servers send data every second.
    type: float
    default: 5
"""
