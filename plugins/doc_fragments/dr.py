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
        description: Addresses of the servers of this side. Without this option, requests go through the task's
          servers, which fails if the link between the sides is broken.
        type: list
        elements: str
      jetstream_domain:
        description: JetStream domain of this side, if leaf nodes connect the sides.
        type: str
      account_users:
        description: Users of the accounts on this side. These users replace O(account_users).
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
            description: Seed of the user's nkey, or the path of a file that contains it.
            type: str
          credentials:
            description: Path of a C(.creds) file with the user's JWT and seed.
            type: path
          key_directory:
            description: Directory on the controller with the seeds of signing keys, from which the module mints a user with
              the role C(natsops) of the account. The account V(*) stands for all accounts with JetStream.
            type: path
          inbox_prefix:
            description: Prefix of the subjects for replies, if different from that of the task.
            type: str
          account_seed:
            description: Seed of a signing key of the account, or the path of a file that contains it, from which the module
              mints a user.
            type: str
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
        description: Account of the stream and its copy. The account's users come from O(account_users). Without this
          option, the task's own user must belong to the account.
        type: str
      stream:
        description: Name of the stream at the origin.
        type: str
        required: true
      copy:
        description: Name of the stream's copy at the site. The copy has O(streams[].stream) as its C(mirror) or as the
          only entry in its C(sources). Defaults to the name of the stream, for sites with a separate JetStream.
        type: str
      promoted:
        description: Name of the stream that replaces the origin on servers before 2.12, which cannot turn a mirror into
          a stream. Defaults to O(streams[].stream), unless the copy has that name.
        type: str
      subjects:
        description: Subjects of the stream at the site. Defaults to its subjects at the origin.
        type: list
        elements: str
"""
