# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  server_names:
    description:
      - Only connections to the servers with exactly these names.
    type: list
    elements: str
  cluster:
    description:
      - Only connections to the servers of the cluster with exactly this name.
    type: str
  account:
    description:
      - Only connections of this account, by name or, in operator mode, by public key. A name shared by several
        accounts is refused with a list of their keys. V($G) is the account of connections without one.
    type: str
  auth_user:
    description:
      - Only connections of this user, as given at login, such as its name or the public key of its nkey.
    type: str
  name:
    description:
      - Only connections with this client name. It may be a pattern with V(*) and V(?).
    type: str
  cid:
    description:
      - Only the connection with this number. Each server has its own numbering.
    type: int
  ip:
    description:
      - Only connections from this address, or from this network such as V(10.1.0.0/16).
    type: str
  lang:
    description:
      - Only connections of this client library, such as V(go) or V(python3). It may be a pattern.
    type: str
  version:
    description:
      - Only connections of this version of the client library, such as V(1.31.*).
    type: str
  idle:
    description:
      - Only connections that sent and received nothing for at least this many seconds.
    type: float
  pending_bytes:
    description:
      - Only connections with at least this many bytes that the server has not been able to send yet.
    type: int
  subscriptions:
    description:
      - Only connections with at least this many subscriptions.
    type: int
  subject:
    description:
      - Only connections of O(account) with a subscription that can match this subject, which may hold wildcards.
    type: str
"""
