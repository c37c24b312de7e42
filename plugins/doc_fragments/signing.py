# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  signing_seed:
    description:
      - Seed of one of the operator's signing keys or, unless the operator requires signing keys, of the operator
        itself. Use a vault variable or a lookup.
    type: str
  signing_seed_file:
    description:
      - Path of a file that contains the seed, instead of O(signing_seed).
    type: path
  wait_timeout:
    description:
      - Seconds to wait until all servers have applied the change.
    type: float
    default: 15
"""
