# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks texts that users enter in the surveys of AWX. AWX itself checks only their length. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..screen import cut

_MAX_ANSWER = 60


def survey_problems(answers: Mapping[str, Any], forms: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yield a sentence for each answer that does not match its pattern. `forms`: the `pattern` and an `example` for
    each variable. Empty answers and values that are not texts are not checked."""
    for name, form in forms.items():
        answer = answers.get(name)
        if isinstance(answer, str) and answer and not re.fullmatch(form["pattern"], answer.strip()):
            yield f"{name}: '{cut(answer, _MAX_ANSWER)}' is not like {form['example']}"
