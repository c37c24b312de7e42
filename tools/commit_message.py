# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rejects commit messages with a long subject, without a blank line after it, without a body, or with wording that
tools/words.py rejects.

    python3 tools/commit_message.py FILE              the message in a file, as git passes it to the commit-msg hook
    python3 tools/commit_message.py --commits RANGE   the messages of all commits in a range such as main..HEAD

Merges, reverts and the commits that `git rebase --autosquash` absorbs (fixup!, squash!, amend!) keep the messages that git wrote.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import words

SUBJECT_LENGTH = 72
WRITTEN_BY_GIT = re.compile(
    r'Merge (?:branch|branches|commit|pull request|remote-tracking branch|tag) |Revert "|Reapply "|(?:fixup|squash|amend)! '
)
SCISSORS = "# ------------------------ >8 ------------------------"
#: A body that contains only trailers explains nothing.
TRAILER = re.compile(r"[A-Za-z][A-Za-z0-9-]*: \S|\(cherry picked from commit ")


def without_comments(text: str) -> str:
    """Return the message as git stores it: no comments, nothing below the scissors line, no blank lines at the ends."""
    lines = text.partition(SCISSORS)[0].splitlines()
    return "\n".join(line.rstrip() for line in lines if not line.startswith("#")).strip("\n")


def problems(message: str) -> list[str]:
    """Return every reason to reject a message, which must not contain comments."""
    subject, *rest = message.splitlines() or [""]
    if not subject.strip():
        return ["the message is empty"]
    if WRITTEN_BY_GIT.match(subject):
        return []
    found = []
    if len(subject) > SUBJECT_LENGTH:
        found.append(f"the subject has {len(subject)} characters; the limit is {SUBJECT_LENGTH}")
    if rest and rest[0]:
        found.append("the line after the subject is not blank")
    if not any(line.strip() and not TRAILER.match(line) for line in rest):
        found.append("the body is missing: explain why the change is made")
    return found + words.broken_in_message(message)


def messages(commits: str) -> dict[str, str]:
    """Return the messages of the commits in a range by abbreviated commit ID, oldest first."""
    command = ["git", "log", "--reverse", "--no-merges", "-z", "--format=%h %B", commits, "--"]
    log = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    entries = (entry.partition(" ") for entry in log.split("\0") if entry)
    return {name: message.strip("\n") for name, _space, message in entries}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check commit messages.")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("file", nargs="?", type=Path)
    source.add_argument("--commits", metavar="RANGE")
    options = parser.parse_args(arguments)
    if options.commits:
        checked = messages(options.commits)
    else:
        checked = {"commit message": without_comments(options.file.read_text(encoding="utf-8"))}
    found = [f"{name}: {problem}" for name, message in checked.items() for problem in problems(message)]
    print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
