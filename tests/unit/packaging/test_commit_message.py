# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commit messages have a short subject and a body; the hooks run the same checks as `make lint`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import commit_message
import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[3]
TOOL = CHECKOUT / "tools/commit_message.py"
LONGEST = "x" * 72
GOOD = f"{LONGEST}\n\nThe reason.\n"


@pytest.mark.parametrize(
    "message",
    [
        GOOD,
        f"{LONGEST}\n\n\nThe reason after two blank lines.",
        "Drop a column\n\nThe reason.\n\nSigned-off-by: A <a@example.org>",
        "Merge branch 'main' into " + LONGEST,
        "Merge pull request #1 from someone/branch",
        'Revert "' + LONGEST + '"',
        "fixup! " + LONGEST,
        "squash! Drop a column",
        "amend! Drop a column",
    ],
)
def test_message_is_accepted(message: str) -> None:
    assert commit_message.problems(message) == []


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("", ["the message is empty"]),
        (LONGEST + "x\n\nThe reason.", ["the subject has 73 characters; the limit is 72"]),
        ("Drop a column\nThe reason.", ["the line after the subject is not blank"]),
        ("Drop a column", ["the body is missing: explain why the change is made"]),
        ("Drop a column\n\n \n", ["the body is missing: explain why the change is made"]),
        (
            "Drop a column\n\nSigned-off-by: A <a@example.org>\n(cherry picked from commit 1234567)",
            ["the body is missing: explain why the change is made"],
        ),
        ("Merge the two readers of snapshots", ["the body is missing: explain why the change is made"]),
        ("Revert to one reader of snapshots", ["the body is missing: explain why the change is made"]),
    ],
)
def test_message_is_refused(message: str, found: list[str]) -> None:
    assert commit_message.problems(message) == found


def test_every_problem_is_reported_at_once() -> None:
    assert len(commit_message.problems(LONGEST + "x\nSigned-off-by: A <a@example.org>")) == 3


def git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
    return subprocess.run(
        ["git", *identity, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose commit-msg hook is the tool."""
    assert git(tmp_path, "init").returncode == 0
    hook = tmp_path / ".git/hooks/commit-msg"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{TOOL}" "$1"\n')
    hook.chmod(0o755)
    return tmp_path


def test_git_refuses_the_commit_and_prints_the_reason(repository: Path) -> None:
    refused = git(repository, "commit", "--allow-empty", "--message", "Drop a column")
    assert refused.returncode != 0
    assert refused.stderr == "commit message: the body is missing: explain why the change is made\n"
    assert git(repository, "commit", "--allow-empty", "--message", "Drop a column", "--message", "Why.").returncode == 0


def test_comments_and_the_verbose_diff_are_not_a_body(repository: Path) -> None:
    (repository / "file").write_text("content")
    git(repository, "add", "file")
    subject = (
        f"{sys.executable} -c \"import sys; p = sys.argv[1]; t = open(p).read(); open(p, 'w').write('Subject\\n' + t)\""
    )
    edit = ["-c", f"core.editor={subject}", "commit", "--verbose"]
    refused = git(repository, *edit)
    assert refused.returncode != 0
    assert "the body is missing" in refused.stderr


def test_commits_of_a_range_are_named(repository: Path) -> None:
    hooks = ["-c", "core.hooksPath=/nonexistent"]
    for message in ("First\n\nWhy.", "Second", "Third\n\nWhy."):
        assert git(repository, *hooks, "commit", "--allow-empty", "--message", message).returncode == 0
    second = git(repository, "rev-parse", "--short", "HEAD~1").stdout.strip()

    def check(commits: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, TOOL, "--commits", commits], cwd=repository, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stderr

    assert check("HEAD~1..HEAD") == (0, "")
    assert check("HEAD") == (1, f"{second}: the body is missing: explain why the change is made\n")


def test_hooks_run_parts_of_make_lint_and_the_quick_ones_before_each_commit() -> None:
    (repository,) = yaml.safe_load((CHECKOUT / ".pre-commit-config.yaml").read_text())["repos"]
    makefile = (CHECKOUT / "Makefile").read_text()

    def parts(variable: str) -> set[str]:
        found = re.search(rf"^{variable} := (.*)$", makefile, re.MULTILINE)
        assert found
        return set(found[1].split())

    run_before = {
        hook["entry"].removeprefix("make "): hook.get("stages", ["pre-commit"]) for hook in repository["hooks"]
    }
    assert run_before.pop("python3 tools/commit_message.py") == ["commit-msg"]
    assert set(run_before) <= parts("LINT_PARTS")
    assert {part for part, stages in run_before.items() if stages == ["pre-commit"]} == parts("QUICK_PARTS")
