# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  encrypt_to:
    description:
      - Whom archives are encrypted to, as recipients of age (C(age1...), or C(ssh-ed25519 ...) and C(ssh-rsa ...) keys).
        Each of them can open an archive. Recipients are public. By default archives are not encrypted.
      - What was written is read back and verified without their identities. What is beside the archives, such as
        configuration, subjects and consumers, is not encrypted.
      - Needs pyrage.
    type: list
    elements: str
    default: []
"""
