# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  sample:
    description:
      - Seconds between the two samples from which the write rate of each stream is measured. With V(0), rates come only
        from O(rates_file); without that option, all rates are unknown.
    type: float
    default: 10
  rates_file:
    description:
      - C(report.json) of the playbook natsops.jetstream.insights, from the last seven days, on the host where the
        module runs. The daily write rate that the report contains for a stream takes precedence over O(sample).
    type: path
  rates_fleet:
    description:
      - Name of these servers in O(rates_file), if it contains more than one fleet.
    type: str
"""
