# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  expected_servers:
    description:
      - Names of the servers that must be there. One that is missing and one that is not expected are problems.
      - By default whatever answers is taken, so that a dead server is noticed only through the groups it belongs to.
    type: list
    elements: str
  expected_jetstream_servers:
    description:
      - Names of the servers that must run JetStream and be members of the meta group. By default O(expected_servers).
    type: list
    elements: str
  expected_clusters:
    description:
      - The cluster of each server, by the server's name. A server that is in another one is a problem.
    type: dict
    default: {}
  cluster:
    description:
      - Judge only the servers and assets of the cluster with exactly this name. The meta group of a supercluster spans all
        its clusters and is judged whole, except for its size.
    type: str
  assets:
    description:
      - Whether streams and consumers are judged.
    type: bool
    default: true
  max_lag:
    description:
      - How many Raft entries a replica may be behind its leader. With V(0) a replica that is behind for a moment, as happens
        under load, counts as a problem.
    type: int
    default: 200
  max_active:
    description:
      - Seconds since a leader may last have heard of a replica. Servers send something every second.
    type: float
    default: 5
"""
