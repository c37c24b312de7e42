# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  account_users:
    description:
      - Users of the accounts whose streams and consumers are processed, one for each account. A server accepts requests
        for an asset only from users of the owning account and refuses users of the system account.
      - All other connection options are taken from the task.
    type: list
    elements: dict
    suboptions:
      account:
        description:
          - The account, by name or, in operator mode, by public key. With O(account_users[].credentials), the account
            is the one that issued the credentials.
          - With O(account_users[].key_directory), V(*) stands for all accounts with JetStream that have no other entry.
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
        description:
          - Directory on the controller with the seeds of signing keys, in the layout of the key store of nsc, as
            M(natsops.jetstream.nats_account_claims) writes it. The module reads the claims of the accounts as the
            task's own user, which must be in the system account, and mints a user with the role C(natsops) of the
            account. The user exists only in memory, and its login expires after 15 minutes, or after 24 hours for
            backups and restores. The module renews the login while it runs.
          - If an account has no role C(natsops), or the directory does not have its seed, only requests to this account
            fail.
        type: path
      inbox_prefix:
        description: Prefix of the subjects for replies, if different from that of the task.
        type: str
      account_seed:
        description:
          - Seed of a signing key of the account (V(SA...)), or the path of a file that contains it, with which the module
            mints a user as with O(account_users[].key_directory). If the key has no role, the module gives the user the
            permissions of the role C(natsops).
        type: str
"""

    ACCOUNT = r"""
options:
  account:
    description:
      - Account that owns the asset, by name or, in operator mode, by public key. A name shared by several accounts is
        refused with a list of their keys. The account's user comes from O(account_users); the task's own user must be a
        user of the system account.
      - By default, the asset belongs to the account of the task's own user.
    type: str
"""
