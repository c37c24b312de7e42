# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  encrypt_to:
    description:
      - Recipients of the archives, in the form of age (C(age1...), or C(ssh-ed25519 ...) and C(ssh-rsa ...) keys).
        Each of them can decrypt an archive. Recipients are public. By default archives are not encrypted.
      - Archives are read back and verified without the recipients' identities. Other files of the backup, with
        configuration, subjects and consumers, are not encrypted.
      - Needs pyrage.
    type: list
    elements: str
    default: []
"""
