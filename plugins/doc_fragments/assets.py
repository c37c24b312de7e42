# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  allow:
    description:
      - Accepted dangers. Without them a dangerous change fails with the code V(dangerous), and nothing is done.
      - V(data_loss) accepts that stored messages are removed by a purge, by deleting an asset that holds messages, by
        limits lower than the stored amount, or by retention V(interest).
      - V(fewer_replicas) accepts a lower number of replicas.
      - V(in_use) accepts that a deleted asset has active consumers, or streams that mirror or source it, and that a
        stream drops subjects with stored messages.
      - V(irreversible) accepts that a stream is sealed or stops being a mirror.
      - V(foreign) accepts that the asset belongs to a different owner. It is a stream of a bucket or of MQTT by its
        name (C(KV_), C(OBJ_), C($MQTT_)), or its metadata has C(managed-by), C(managed_by) or
        C(app.kubernetes.io/managed-by) with a value that differs from the task's metadata.
    type: list
    elements: str
    choices: [data_loss, fewer_replicas, in_use, irreversible, foreign]
    default: []
  wait_timeout:
    description:
      - Seconds to wait until the change is visible and every replica is in step. Another run continues to wait.
    type: float
    default: 300
notes:
  - "Failures before anything is done have the codes V(immutable), V(dangerous), V(unsupported) and V(not_settled)."
  - "V(conflict) means that another client is changing the same asset, V(not_seen) that the servers accepted a change
    that was not visible in time, and V(api_error) that the servers refused it, with their description."
"""
