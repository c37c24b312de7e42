# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and return the changes without making them.
  diff_mode:
    description: Returns the changes that were made or are predicted in C(diff_mode).
  idempotent:
    description: A second run with the same options on an unchanged cluster changes nothing.
  action_group:
    description: Supports C(module_defaults) of the group C(natsops.jetstream.nats).
    support: full
    membership:
      - natsops.jetstream.nats
"""

    INFO_MODULE = r"""
options: {}
attributes:
  check_mode:
    support: full
    details:
      - The module only reads, and behaves in the same way in check mode.
  diff_mode:
    support: N/A
    details:
      - The module changes nothing.
  idempotent:
    support: full
    details:
      - The module changes nothing.
"""

    PLAIN_INFO_MODULE = r"""
options: {}
attributes:
  check_mode:
    description: Can run in check mode, where it behaves in the same way because it only reads.
    support: full
  diff_mode:
    description: Nothing is changed.
    support: none
"""

    FACTS_MODULE = r"""
options: {}
attributes:
  facts:
    description: Sets C(ansible_facts).
    support: full
"""
