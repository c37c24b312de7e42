# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  origin:
    description:
      - The side on which the streams are written. Omitted options are taken from the task.
    type: dict
    required: true
    suboptions: &side
      name:
        description: Name of the side, such as that of its cluster; letters, digits, C(_) and C(-).
        type: str
        required: true
      servers:
        description: Addresses of its servers. Without them, requests go through the task's servers, which fails if
          the link between the sides is broken.
        type: list
        elements: str
      jetstream_domain:
        description: Its JetStream domain, if leaf nodes connect the sides.
        type: str
      account_users:
        description: Its users of the accounts, instead of O(account_users).
        type: list
        elements: dict
        suboptions:
          account:
            description: The account, by name or, in operator mode, by public key.
            type: str
            required: true
          user:
            description: User name.
            type: str
          password:
            description: Password of the user.
            type: str
          token:
            description: Token.
            type: str
          nkey_seed:
            description: Seed of the user's nkey, or the path of a file that holds it.
            type: str
          credentials:
            description: Path of a C(.creds) file with the user's JWT and seed.
            type: path
  site:
    description:
      - The side with the copies. Omitted options are taken from the task.
    type: dict
    required: true
    suboptions: *side
  streams:
    description:
      - The streams that the site protects.
    type: list
    elements: dict
    required: true
    suboptions:
      account:
        description: Account of the stream and its copy. Its users come from O(account_users). Without it, the task's
          own user belongs to this account.
        type: str
      stream:
        description: Name of the stream at the origin.
        type: str
        required: true
      copy:
        description: Name of its copy at the site, a stream with O(streams[].stream) as its C(mirror), or as its only
          entry in C(sources). Defaults to the same name, for sites with their own JetStream.
        type: str
      promoted:
        description: Name of the stream that replaces the origin before nats-server 2.12, which cannot turn a mirror
          into a stream. Defaults to O(streams[].stream), unless that is the copy.
        type: str
      subjects:
        description: Its subjects at the site. Defaults to its subjects at the origin.
        type: list
        elements: str
"""
