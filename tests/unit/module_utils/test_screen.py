# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A failure of any length is shown as a message of one line and a few further lines."""

from __future__ import annotations

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.screen import (
    MAX_FAIL_LINES,
    MAX_LINES,
    MAX_MESSAGE,
    MAX_ROWS,
    MAX_WIDTH,
    Page,
    blocks,
    brief,
    counted_warnings,
    cut,
    further_lines,
    hidden_rest,
    listed,
    listing,
    names_line,
    one_line,
    printable,
    shown_rows,
    some_names,
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
def test_message_names_the_refusal_and_its_first_reason(text: str, message: str) -> None:
    assert one_line(text) == message


def test_hidden_lines_are_counted() -> None:
    text = "\n".join(["3 leaders stay", *(f"- {number}" for number in range(MAX_LINES))])
    assert further_lines(text) == [f"- {number}" for number in range(MAX_LINES)]
    assert further_lines(f"{text}\n- more")[-2:] == [
        f"- {MAX_LINES - 2}",
        "and 2 more lines; use -v to see all of them",
    ]


def test_reasons_that_do_not_fit_are_counted_and_none_is_cut() -> None:
    reasons = [f"{number}: {'why ' * 99}" for number in range(MAX_FAIL_LINES)]
    assert listed([]) == ""
    assert listed(reasons[1:]).splitlines() == reasons[1:]
    assert listed(reasons).splitlines() == [*reasons[:-2], "and 2 more; use -v to see all of them"]
    assert len(f"head\n{listed(reasons)}".splitlines()) == MAX_FAIL_LINES


@given(st.text(st.characters(codec="utf-8")))
def test_any_text_fits(text: str) -> None:
    assert len(one_line(text)) <= MAX_MESSAGE and len(one_line(text).splitlines()) <= 1
    lines = further_lines(text)
    assert len(lines) <= MAX_LINES and all(len(line) <= MAX_WIDTH for line in lines)
    assert bool(lines) == (len(text.splitlines()) > 1)


def test_brief_result_has_the_machine_readable_values() -> None:
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
    """nats-server accepts a stream whose name contains terminal control characters."""
    assert cut("stream X\x1b[31mRED\x07\u202e") == "stream X\ufffd[31mRED\ufffd\ufffd"
    assert printable("größe 日本 😀\ttab\nline") == "größe 日本 😀\ttab\nline"
    assert listed(["X\x1b", "Y"]) == "X\ufffd\nY"
    assert counted_warnings([("X\x1b", "lags")]) == ["stream X\ufffd: lags"]


def test_a_list_of_one_more_than_fits_is_not_cut() -> None:
    """The line that announces one more entry would take as much space as the entry."""
    rows = [f"row {number}" for number in range(MAX_ROWS + 2)]
    assert listing(rows[:-1]).screen == listing(rows[:-1]).lines == tuple(rows[:-1])
    assert listing(rows).screen == (*rows[:MAX_ROWS], "… and 2 more lines")
    assert listing([]) == Page()


def test_the_worst_rows_are_shown_first_and_hidden_ones_are_counted() -> None:
    rows = [f"row {number}" for number in range(1000)]
    few = listing(rows, {999, 7}, "row")
    assert few.screen == ("row 7", "row 999", *rows[:7], "row 8", "… and 990 more rows")
    many = listing(rows, range(500, 512), "row")
    assert many.screen == (*rows[500:510], "… and 990 more rows, 2 of them with problems")
    assert few.lines == many.lines == tuple(rows)


@given(count=st.integers(0, 50), worst=st.sets(st.integers(0, 49)))
def test_every_row_is_shown_or_counted(count: int, worst: set[int]) -> None:
    worst = {place for place in worst if place < count}
    shown = shown_rows(count, worst)
    assert len(set(shown)) == len(shown) <= MAX_ROWS + 1 and set(shown) <= set(range(count))
    assert worst <= set(shown) or len(worst) > MAX_ROWS
    assert bool(hidden_rest(count, shown)) == (len(shown) < count)


def test_several_lines_for_each_thing_are_shown_together_or_not_at_all() -> None:
    found = [[f"{name}: plan", f"{name}: loss", f"{name}: consumers"] for name in range(100)]
    shown = blocks(found, {42})
    assert shown.screen[:4] == ("100 streams, 1 of them with problems:", *found[42])
    assert len(shown.screen) == 1 + 6 * 3 + 1 and shown.screen[-1] == "… and 94 more streams"
    assert len(shown.lines) == 300
    assert blocks(found[:6]).screen == blocks(found[:6]).lines
    assert blocks([["long"] * 50, ["other"]]).screen == ("2 streams:", *["long"] * 50, "… and 1 more stream")


def test_names_that_do_not_fit_are_counted() -> None:
    names = [f"S{number}" for number in range(1000)]
    shown = names_line("not begun: ", names)
    assert shown.screen == ("not begun: S0, S1, S2, S3, S4 and 995 more",)
    assert shown.lines == (f"not begun: {', '.join(names)}",)
    assert some_names(names[:6]) == "S0, S1, S2, S3, S4, S5"
    assert names_line("not begun: ", []) == Page()


def test_one_warning_for_each_text() -> None:
    found = [(f"APP/S{number}", "it has no message ids") for number in range(1005)] + [("APP/ODD", "it crashed")]
    assert counted_warnings(found) == [
        "1,005 streams APP/S0, APP/S1, APP/S2, APP/S3, APP/S4 and 1,000 more: it has no message ids",
        "stream APP/ODD: it crashed",
    ]
    different = counted_warnings([(f"APP/S{number}", f"floor {number}") for number in range(1005)])
    assert len(different) == MAX_ROWS + 1 and different[-1].startswith("995 more warnings")
    assert counted_warnings([]) == []
