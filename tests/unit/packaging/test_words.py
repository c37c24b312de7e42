# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests tools/words.py, which checks the wording of code and documents."""

from __future__ import annotations

import pytest
import words

#: A rule, a text that breaks it, and a text that does not.
WORDINGS = [
    ("return-what", "Return what the server sends.", "Return the server's reply, and how many there are."),
    ("what", "It keeps what it read.", "What is the cause? See the set term what-if."),
    ("machine-verb", "The server tells its version.", "The server reports its version."),
    ("machine-verb", "The guides say which subjects remain.", "Say which subjects the messages keep."),
    ("nobody", "It runs when somebody asked.", "The service runs as user nobody."),
    ("of-which", "Of the rows, two are late.", "Of course, two rows are late."),
    ("is-no", "mode '0x' is no octal number", "the lock is no longer held"),
    ("is-no", "n2 is no leader", "there is no leader"),
    ("connective", "Meanwhile, the copy grows.", "Until then, the copy grows."),
    ("connective", "The copy grows meanwhile.", "The copy grows until then."),
    ("connective", "It waits as long as n1 is down.", "It takes three times as long as before."),
    ("cousin", "The archive is whole.", "The archive is intact."),
    ("goes-on", "The roll goes on.", "The roll continues."),
    ("look", "It looks at the disk.", "It looks up the name."),
    ("wanted", "The wanted version is running.", "WantedBy=multi-user.target"),
    ("away", "n2 is away.", "n2 is far away from n1."),
]


@pytest.mark.parametrize(("rule", "bad", "good"), WORDINGS)
def test_a_rule_of_wording_finds_its_habit_and_leaves_set_terms_alone(rule: str, bad: str, good: str) -> None:
    for path, source in (("a.py", '"""{}"""\n'), ("a.py", "# {}\n"), ("a.yml", "title: {}\n"), ("a.md", "{}\n")):
        assert rule in [found.name for found, _place in words.broken_rules(path, source.format(bad))]
        assert [found.name for found, _place in words.broken_rules(path, source.format(good))] == []
    assert words.broken_in_message(bad) and not words.broken_in_message(good)


def test_names_and_code_have_their_own_rules() -> None:

    def rules(path: str, source: str) -> list[tuple[str, int]]:
        return [(rule.name, place.line) for rule, place in words.broken_rules(path, source)]

    assert rules("a.py", "def path_of(told):\n    of_hours = out_of_time\n") == [("identifier", 1), ("identifier", 2)]
    private = "def _path_of(told):\n    _of_hours = _OF_DAY + _of(out_of_time)\n"
    assert rules("a.py", private) == [("identifier", 1), *[("identifier", 2)] * 3]
    assert rules("a.py", "class WantedRestore: pass\nclass Scene: pass\nWantedBy = 1\n") == [
        ("identifier", 1),
        ("identifier", 2),
    ]
    assert rules("test_a.py", "def test_nobody_answers(): pass\n") == [("test-name", 1)]
    assert rules("test_a.py", "def test_a_server_tells_its_age(): pass\ntest_age_is_unknown = 1\n") == [
        ("test-name", 1)
    ]
    assert rules("a.py", 'f"{wanted} is set"\n"{wanted} is set"\n') == [("wanted", 2)]
    assert rules("a.py", 'row["what"]\nf("what it is")\n') == [("what", 2)]
    assert rules("a.py", '"""Return `what`."""\n# `what` of what\n') == [("what", 2), ("of-which", 2)]
    assert rules("a.md", "`what`\n```\nwhat\n```\nwhat\n") == [("what", 5)]
    assert rules("a.md", "[causes](gate.md#what-fails)\n[what](gate.md)\n") == [("what", 2)]
    assert rules("a.md", "## What it creates\n[see](a.md#what-it-creates)\nWhat it creates is kept\n") == [("what", 3)]
    assert rules("a.sh", 'say "Java is missing."\n# It says so.\nsay "Nobody answers."\n') == [
        ("machine-verb", 2),
        ("nobody", 3),
    ]
    assert rules("a.yml", "a: '{{ what }}'\nb: what\n") == [("what", 2)]


def test_only_more_places_than_recorded_are_refused() -> None:
    now = {"docs": {"what": 2, "look": 1}, "plugins/modules": {"what": 1}}
    assert words.risen(now, {"docs": {"what": 1, "look": 4}}) == [
        ("docs", "what", 1, 2),
        ("plugins/modules", "what", 0, 1),
    ]
    assert words.risen(now, now) == []
    found = list(words.broken_rules("plugins/module_utils/nats/a.py", "# what\n# what\n"))
    assert words.counted(found) == {"plugins/module_utils/nats": {"what": 2}}


def test_words_that_the_glossary_replaces_are_found() -> None:
    table = "| concept | term | not |\n|---|---|---|\n| x | reports | `told`, `gone dark` |\n"
    terms = words.replaced_words(table)
    assert terms == {"told": "reports", "gone dark": "reports"}
    text = "untold stories\nWe are Told\nnats_told_by = 1, gone dark"
    assert list(words.found_in(text, terms)) == [(2, "told"), (3, "told"), (3, "gone dark")]
