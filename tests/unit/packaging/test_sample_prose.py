# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the random sample of sentences that a reader grades."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

import sample_prose

MODULE = '''
DOCUMENTATION = """
description:
  - Restores a stream. The archive is verified before any change.
"""
EXAMPLES = """
- name: Not a sentence of the page
"""


def restore(name: str) -> None:
    """Restore one stream from its newest backup."""
    # The leader is read first,
    # because only it reports the position.
    raise ValueError(f"stream {name} has no leader: repair it first")
'''


def test_python_file_is_divided_by_kind() -> None:
    assert list(sample_prose.pages(MODULE)) == ["The archive is verified before any change."]
    assert list(sample_prose.messages(MODULE)) == ["stream ‹…› has no leader: repair it first"]
    assert list(sample_prose.comments(MODULE)) == [
        "Restore one stream from its newest backup.",
        "The leader is read first, because only it reports the position.",
    ]


def test_guide_is_drawn_without_code_headings_and_tables() -> None:
    code = "```sh\nansible-playbook deploy and three words\n```"
    text = f"# A heading of some words\n\n{code}\n\n| a | table of four words |\n\nRun it\nonce a day. Then stop.\n"
    assert list(sample_prose.guide(text)) == ["Run it once a day."]


def test_titles_show_values_as_placeholders() -> None:
    assert list(sample_prose.titles('- name: "Remove {{ item }} from the cluster" # noqa: x\n')) == [
        "Remove ‹…› from the cluster"
    ]


def test_same_seed_draws_same_sample_of_each_kind() -> None:
    drawn = sample_prose.sample(37, each=3)
    kinds = ("message", "page", "guide", "docstring")
    assert [kind for kind, _path, _text in drawn] == [kind for kind in kinds for _turn in range(3)]
    assert drawn == sample_prose.sample(37, each=3)
    assert not any(path.startswith(sample_prose.PIPELINE) for _kind, path, _text in drawn)
