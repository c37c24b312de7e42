# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  progress:
    description:
      - While the module waits, it prints every ten seconds the missing items, the time waited and the time limit.
      - The lines appear if the module runs on the controller, under C(ansible-playbook) on stderr and in AWX as
        events of the task. These options add details to the lines.
    type: dict
    suboptions:
      title:
        description: Prefix of the lines, such as C(batch 3 of 9).
        type: str
      began:
        description: Start of the complete operation, in seconds since 1970.
        type: float
      step:
        description: The current step of O(progress.steps), starting at 1, to estimate the remaining time.
        type: int
      steps:
        description: Number of steps.
        type: int
      file:
        description: File to which the lines are appended. On the controller the action plugin sets it.
        type: path
"""
