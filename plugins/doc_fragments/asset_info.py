# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  account:
    description:
      - Read only this account, given by name or, in operator mode, by public key. A name shared by several accounts is
        refused with a list of their keys. By default, all accounts to which the credentials give access are read.
    type: str
  stream:
    description:
      - Name of one stream. If it does not exist, the result is empty and the task does not fail.
    type: str
notes:
  - "The credentials determine which view is returned; see RV(ignore:view). With O(account_users), a user of each
    account queries the JetStream API (V(account)). Otherwise, the task's own user sends the queries. A user of an
    account reads the assets of that account (V(account)), and a user of the system account reads the assets of all
    accounts (V(system))."
  - In the view V(account), the meta leader lists every asset, including those whose state no server can report. The
    state comes from the asset's leader or, if it has none, from one of its replicas. The leader reports whether a
    replica is up.
  - In the view V(system), every server reports the assets that have a replica on it. An asset with replicas only on
    servers that do not respond is missing from the result. A replica on a server that did not respond counts as behind,
    although its leader may not have detected this yet.
  - Faults found by the module never make the task fail. Durations are in seconds, sizes in bytes.
"""
