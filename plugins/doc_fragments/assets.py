# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  allow:
    description:
      - Accepted dangers. A change with a danger that is not listed fails with the code V(dangerous), and nothing is
        changed.
      - V(data_loss) accepts that stored messages are removed by a purge, by deleting an asset that contains messages,
        by limits lower than the stored amount, or by retention V(interest), and that a reset consumer skips messages.
      - V(fewer_replicas) accepts a lower number of replicas.
      - V(in_use) accepts that a deleted or reset asset has active consumers, or streams that mirror or source it, that
        a pinned client is replaced, and that a stream drops subjects with stored messages.
      - V(irreversible) accepts that a stream is sealed or stops being a mirror.
      - V(foreign) accepts that the asset belongs to a different owner. An asset belongs to a different owner if its
        name has the prefix of a bucket or of MQTT (C(KV_), C(OBJ_), C($MQTT_)), or if its metadata has C(managed-by),
        C(managed_by) or C(app.kubernetes.io/managed-by) with a value that differs from the task's metadata.
    type: list
    elements: str
    choices: [data_loss, fewer_replicas, in_use, irreversible, foreign]
    default: []
  wait_timeout:
    description:
      - Seconds to wait until the change is visible and every replica is in step. If the time limit is reached, the next
        run continues to wait.
    type: float
    default: 300
notes:
  - "Failures before anything is done have the codes V(immutable), V(dangerous), V(unsupported) and V(not_settled)."
  - "V(conflict) means that another client is changing the same asset. V(not_seen) means that the servers accepted a
    change that did not become visible in time. V(api_error) means that the servers refused the change; the failure
    includes their description."
"""
