# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A failure of any length becomes a message of one line and a few lines beside it."""

from __future__ import annotations

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.screen import (
    MAX_FAIL_LINES,
    MAX_LINES,
    MAX_MESSAGE,
    MAX_WIDTH,
    brief,
    cut,
    further_lines,
    listed,
    one_line,
    printable,
)
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("refused", "refused"),
        ("", ""),
        ("not healthy: 2 problems\n1. n3 does not answer\n   $ run", "not healthy: 2 problems; n3 does not answer"),
        (
            "2 of 9 streams were not saved:\n- APP/A: no space\n- APP/B: no space",
            "2 of 9 streams were not saved: APP/A: no space",
        ),
        ("It is refused.\nn3 is behind", "It is refused. n3 is behind"),
    ],
)
def test_the_message_is_what_was_refused_and_the_first_reason(text: str, message: str) -> None:
    assert one_line(text) == message


def test_what_does_not_fit_is_counted() -> None:
    text = "\n".join(["3 leaders stay", *(f"- {number}" for number in range(MAX_LINES))])
    assert further_lines(text) == [f"- {number}" for number in range(MAX_LINES)]
    assert further_lines(f"{text}\n- more")[-2:] == [f"- {MAX_LINES - 2}", "and 2 more lines, with -v all of them"]


def test_reasons_that_do_not_fit_are_counted_and_none_is_cut() -> None:
    reasons = [f"{number}: {'why ' * 99}" for number in range(MAX_FAIL_LINES)]
    assert listed([]) == ""
    assert listed(reasons[1:]).splitlines() == reasons[1:]
    assert listed(reasons).splitlines() == [*reasons[:-2], "and 2 more, with -v all of them"]
    assert len(f"head\n{listed(reasons)}".splitlines()) == MAX_FAIL_LINES


@given(st.text(st.characters(codec="utf-8")))
def test_any_text_fits(text: str) -> None:
    assert len(one_line(text)) <= MAX_MESSAGE and len(one_line(text).splitlines()) <= 1
    lines = further_lines(text)
    assert len(lines) <= MAX_LINES and all(len(line) <= MAX_WIDTH for line in lines)
    assert bool(lines) == (len(text.splitlines()) > 1)


def test_a_brief_result_has_what_programs_need() -> None:
    failure = {"code": "stuck", "description": "d", "server": None, "err_code": None}
    result = {
        "failed": True,
        "changed": False,
        "msg": "d",
        "failure": failure,
        "problems": [1] * 999,
        "problems_file": "/x",
    }
    short = brief({**result, "_ansible_parsed": True, "exception": "trace"}, ["problems_file"])
    assert short.pop("failure") == {"code": "stuck", "description": "d"}
    assert sorted(short) == ["_ansible_parsed", "changed", "exception", "failed", "msg", "problems_file"]
    assert "problems_file" not in brief(result)


def test_a_line_has_no_character_that_a_terminal_acts_on() -> None:
    """nats-server accepts a stream of this name."""
    assert cut("stream X\x1b[31mRED\x07\u202e") == "stream X\ufffd[31mRED\ufffd\ufffd"
    assert printable("größe 日本 😀\ttab\nline") == "größe 日本 😀\ttab\nline"
