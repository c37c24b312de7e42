# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the comparison of subjects with wildcards."""

from __future__ import annotations

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.subjects import subject_matches, subjects_collide
from hypothesis import example, given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("pattern", "subject", "within"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("a.*", "a", False),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        (">", "a.b", True),
        ("a.*", "a.>", False),
        ("a.*", "a.*", True),
        ("a.b", "a.*", False),
        ("*.>", "a.>", True),
    ],
)
def test_subjects_within_patterns(pattern: str, subject: str, within: bool) -> None:
    assert subject_matches(pattern, subject) is within


@pytest.mark.parametrize(
    ("one", "other", "collide"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.c", False),
        ("a.*", "a.c", True),
        ("*.b", "a.*", True),
        ("a", "a.b", False),
        ("a.>", "a", False),
        ("a.>", "a.b.c", True),
        (">", "a.b", True),
        ("a.*.c", "a.b.>", True),
        ("a.*.c", "a.b.d", False),
    ],
)
def test_subjects_collide_as_on_the_server(one: str, other: str, collide: bool) -> None:
    for pair in ((one, other), (other, one)):
        assert subjects_collide(*pair) is collide


_SUBJECTS = st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=4).flatmap(
    lambda tokens: st.sampled_from([".".join(tokens), ".".join([*tokens, ">"])])
)
_LITERALS = st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=5).map(".".join)


@given(_SUBJECTS, _SUBJECTS, _LITERALS)
@example("b.>", "b.*", "b.a.a")
def test_contained_subject_matches_nothing_that_the_other_does_not(subject: str, other: str, literal: str) -> None:
    if subject_matches(other, subject) and subject_matches(subject, literal):
        assert subject_matches(other, literal)
    assert subject_matches(subject, subject)
