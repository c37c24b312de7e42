# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Comparison of subjects with the wildcards * and > (server/sublist.go). Pure."""

from __future__ import annotations


def subject_matches(pattern: str, subject: str) -> bool:
    """Return whether a subject, which may itself have wildcards, lies within a pattern with the wildcards * and >."""
    wanted, found = pattern.split("."), subject.split(".")
    for index, token in enumerate(wanted):
        if token == ">":
            return len(found) > index
        if index >= len(found) or found[index] == ">" or (token not in ("*", found[index])):
            return False
    return len(wanted) == len(found)


def subjects_collide(one: str, other: str) -> bool:
    """Return whether one subject can match both filters, which may contain wildcards."""
    mine, theirs = one.split("."), other.split(".")
    for left, right in zip(mine, theirs):
        if ">" in (left, right):
            return True
        if left != right and "*" not in (left, right):
            return False
    return len(mine) == len(theirs)
