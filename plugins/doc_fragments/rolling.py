# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  rolling:
    description: How the caller carries out the batches, for the gates in RV(batches).
    type: dict
    suboptions:
      drain:
        description: Whether leaders are moved off the servers before their stop.
        type: bool
        default: true
      drain_clients:
        description: Whether clients are disconnected from the servers before their stop.
        type: bool
        default: true
      restore_leaders:
        description: Whether leaders are restored to the servers after their restart.
        type: bool
        default: false
      hooks:
        description: Whether the operator's tasks or commands run before or after a batch.
        type: bool
        default: false
      samples:
        description: Number of good samples in a row that each gate requires.
        type: int
        default: 4
      span:
        description: Seconds that the samples span before the first batch and after the last one.
        type: float
        default: 10
      span_between:
        description: Seconds that the samples span between two batches.
        type: float
        default: 5
      tolerate:
        description: Problem codes, servers and assets that every gate accepts.
        type: list
        elements: str
        default: []
"""
