# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  progress:
    description:
      - While the module waits, it prints the missing items, the time waited and the time limit every ten seconds.
      - The lines appear only if the module runs on the controller. C(ansible-playbook) prints these lines on stderr,
        and AWX shows them as events of the task. These options add details to the lines.
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
        description: Total number of steps.
        type: int
      file:
        description: File to which the lines are appended. On the controller, the action plugin sets this option.
        type: path
"""
