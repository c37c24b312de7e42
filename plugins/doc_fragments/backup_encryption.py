# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  encrypt_to:
    description:
      - Recipients of the archives, in the format of age (C(age1...), or C(ssh-ed25519 ...) and C(ssh-rsa ...) keys).
        Each recipient can decrypt the archives. Recipients are public keys. By default, archives are not encrypted.
      - Archives are read back and verified without the recipients' identities. The other files of the backup, which
        contain the configuration, subjects and consumers, are not encrypted.
      - Needs pyrage.
    type: list
    elements: str
    default: []
"""
