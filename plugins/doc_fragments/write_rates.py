# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  sample:
    description:
      - Seconds between the two looks that tell how much is written to each stream. With V(0) nothing is known of streams
        that O(rates_file) does not name, and of none without it.
    type: float
    default: 10
  rates_file:
    description:
      - C(report.json) of the playbook natsops.jetstream.insights, of the last seven days, on the host where the module
        runs. What it says is written to a stream over the day counts more than O(sample).
    type: path
  rates_fleet:
    description:
      - What these servers are called in O(rates_file), where that has more than one fleet.
    type: str
"""
