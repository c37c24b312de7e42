# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  progress:
    description:
      - While the module waits, it says every ten seconds what is still missing, how long it has waited and how long it may.
      - The lines are printed where the module runs on the controller, under C(ansible-playbook) on stderr and in AWX as events of
        the task. What is given here makes them tell more.
    type: dict
    suboptions:
      title:
        description: What the lines begin with, such as C(batch 3 of 9).
        type: str
      began:
        description: When the whole operation began, in seconds since 1970.
        type: float
      step:
        description: Which of its O(progress.steps) is under way, from 1 on, for an estimate of the time that is left.
        type: int
      steps:
        description: How many such steps there are.
        type: int
      file:
        description: File to which the lines are appended. On the controller the action plugin gives one.
        type: path
"""
