# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  server_names:
    description:
      - Select only connections to the servers with exactly these names.
    type: list
    elements: str
  cluster:
    description:
      - Select only connections to the servers of the cluster with exactly this name.
    type: str
  account:
    description:
      - Select only connections of this account, given by name or, in operator mode, by public key. A name shared by
        several accounts is refused with a list of their keys. V($G) is the account of connections that have no account.
    type: str
  auth_user:
    description:
      - Select only connections of this user, as specified at login, such as its name or the public key of its nkey.
    type: str
  name:
    description:
      - Select only connections with this client name, which may be a pattern with V(*) and V(?).
    type: str
  cid:
    description:
      - Select only the connection with this id. Each server numbers its connections independently.
    type: int
  ip:
    description:
      - Select only connections from this address or network, such as V(10.1.0.0/16).
    type: str
  lang:
    description:
      - Select only connections of this client library, such as V(go) or V(python3), which may be a pattern.
    type: str
  version:
    description:
      - Select only connections of this version of the client library, such as V(1.31.*).
    type: str
  idle:
    description:
      - Select only connections that have neither sent nor received anything for at least this many seconds.
    type: float
  pending_bytes:
    description:
      - Select only connections with at least this many bytes that the server has not been able to send yet.
    type: int
  subscriptions:
    description:
      - Select only connections with at least this many subscriptions.
    type: int
  subject:
    description:
      - Select only connections of O(account) with a subscription that can match this subject, which may contain
        wildcards.
    type: str
"""
