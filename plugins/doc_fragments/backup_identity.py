# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  identity_file:
    description:
      - File, on the host that runs the module, with the identities that decrypt archives. The file is either written by
        C(age-keygen) or an SSH key without a passphrase. Needs pyrage.
    type: path
"""
