# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  account:
    description:
      - Read only this account, by name or, in operator mode, by public key. A name that several accounts have is refused with
        their keys. By default every account that the credentials reach is read.
    type: str
  stream:
    description:
      - Name of one stream. One that does not exist is not an error, and leaves the result empty.
    type: str
notes:
  - "The credentials decide by whose eyes the assets are seen, and RV(ignore:view) tells which it was. With O(account_users) a
    user of each account asks the JetStream API (V(account)). Otherwise the task's own user asks: one of an account for the
    assets of that account (V(account)), one of the system account for those of all accounts (V(system))."
  - In the view V(account) the meta leader names every asset, also those that no server can tell the state of, and the leader
    of each tells its state, or one of its replicas when they have no leader. Whether a replica is up is what the leader says.
  - In the view V(system) every server tells what it holds. An asset all of whose replicas are on servers that do not answer is
    not seen at all. A replica on a server that did not answer counts as behind, although its leader may not have noticed yet.
  - It never fails because of what it finds wrong. Durations are in seconds, sizes in bytes.
"""
