#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_fleet_run
short_description: Run a playbook once for each cluster of the inventory
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Runs C(ansible-playbook) on the controller once for each cluster, with the inventory, variables and options of the
    current run. A cluster that fails therefore stops neither the others nor this task.
  - A cluster consists of the hosts with the same C(nats_server_cluster_group), or with the same
    C(nats_server_supercluster_groups).
  - Prints a line when a cluster is complete. The output of each run is in a file that only its owner may read.
  - Passwords for which the current run has prompted are passed on in files that only the user may read, and that are
    removed at the end.
options:
  playbook:
    description: A playbook of this collection, such as V(deploy), a playbook of another collection, or a path.
    type: str
    required: true
  hosts:
    description: All hosts of the fleet.
    type: list
    elements: str
    required: true
  clusters:
    description: Names of the clusters. The name is that of the group; for a supercluster, the names of its groups
      joined with C(-). By default, all.
    type: list
    elements: str
    default: []
  parallel:
    description: Maximum number of clusters at the same time.
    type: int
    default: 4
  stop_after:
    description: No further cluster is started after so many have failed. With V(0), every cluster is started.
    type: int
    default: 0
  directory:
    description: Directory of the files on the controller. Defaults to the directory V(natsops) in Ansible's home
      directory (E(ANSIBLE_HOME), V(~/.ansible)).
    type: path
attributes:
  action:
    description: Runs only on the controller.
    support: full
  check_mode:
    description: The playbook also runs in check mode.
    support: full
  diff_mode:
    description: Diffs are in the output of each run.
    support: none
"""

EXAMPLES = r"""
- name: Deploy each cluster
  natsops.jetstream.nats_fleet_run:
    playbook: deploy
    hosts: "{{ groups['nats'] }}"
  register: fleet

- name: Stop because clusters failed
  ansible.builtin.fail:
    msg: "{{ fleet.refusal }}"
  when: fleet.refusal | length > 0
"""

RETURN = r"""
clusters:
  description: The outcome of each cluster, in the order of the inventory.
  type: list
  elements: dict
  returned: success
  contains:
    cluster: {description: Name., type: str}
    status: {description: 'C(succeeded), C(failed) or C(not started).', type: str}
    seconds: {description: Duration of the run., type: float}
    hosts: {description: Inventory hosts., type: list, elements: str}
    changed: {description: Changed tasks., type: int}
    cause: {description: The first failure and its host., type: str}
    log: {description: File with the output of the run., type: str}
refusal:
  description: The failed clusters. Empty if all succeeded.
  type: str
  returned: success
lines:
  description: The table of the outcomes and the causes.
  type: list
  elements: str
  returned: success
screen:
  description: As much of RV(lines) as fits on a screen, for M(natsops.jetstream.nats_show).
  type: list
  elements: str
  returned: success
"""
