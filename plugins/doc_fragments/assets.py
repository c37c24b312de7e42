# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  allow:
    description:
      - Dangers that are accepted. Without them a dangerous change fails with the code V(dangerous), and nothing is done.
      - V(data_loss) accepts that stored messages are removed, by a purge, by deleting what holds messages, by limits that are
        lower than what is stored, or by retention V(interest).
      - V(fewer_replicas) accepts that there are fewer replicas than before.
      - V(in_use) accepts that what is deleted has active consumers, or streams that mirror or source it, and that a stream no
        longer takes subjects of which it holds messages.
      - V(irreversible) accepts that a stream is sealed or stops being a mirror.
      - V(foreign) accepts that the asset belongs to somebody else. It is a bucket's or MQTT's stream by its name (C(KV_),
        C(OBJ_), C($MQTT_)), or its metadata has C(managed-by), C(managed_by) or C(app.kubernetes.io/managed-by) and the
        task's metadata does not say the same.
    type: list
    elements: str
    choices: [data_loss, fewer_replicas, in_use, irreversible, foreign]
    default: []
  wait_timeout:
    description:
      - Seconds to wait until the change is seen and every replica is in step. A further run goes on waiting.
    type: float
    default: 300
notes:
  - "Failures that come before anything is done have the codes V(immutable), V(dangerous), V(unsupported) and V(not_settled)."
  - "V(conflict) means that somebody else changes the same asset at the same time, V(not_seen) that the servers accepted a
    change which was not seen in time, and V(api_error) is the servers' own refusal, with their description."
"""
