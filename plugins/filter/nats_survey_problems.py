# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_survey_problems
short_description: Check the answers to a survey of AWX
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Compares texts with regular expressions. AWX checks only the length of an answer.
  - Only the roles and playbooks of this collection need this filter; it may change in any release.
positional: _input, forms
options:
  _input:
    description: The answers by variable. Empty answers and values that are not texts are not checked.
    type: dict
    required: true
  forms:
    description: For each variable, the C(pattern) that the complete text must match, and an C(example).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the problems
  ansible.builtin.debug:
    msg: "{{ {'nats_server_version': '2.x'} | natsops.jetstream.nats_survey_problems(forms) }}"
  vars:
    forms: {nats_server_version: {pattern: '[0-9.]+', example: 2.11.4}}
"""

RETURN = r"""
_value:
  description: A sentence for each wrong answer.
  type: list
  elements: str
  sample: ["nats_server_version: '2.x' is not like 2.11.4"]
"""

from collections.abc import Mapping
from typing import Any

from ..module_utils.fleet.survey_answers import survey_problems


def nats_survey_problems(answers: Mapping[str, Any], forms: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the problems; see DOCUMENTATION."""
    return list(survey_problems(answers, forms))


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_survey_problems": nats_survey_problems}
