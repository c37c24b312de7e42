# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Workflows have only the necessary permissions, and run targets of `make`. `make lint-github` checks them against
their schema."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[3]
PATHS = sorted((CHECKOUT / ".github/workflows").glob("*.yml"))
#: The jobs that may write, and their permissions.
WRITERS = {
    ("release.yml", "build"): {"contents": "read", "id-token": "write", "attestations": "write"},
    ("release.yml", "publish"): {"contents": "write"},
    ("dependencies.yml", "lock"): {"contents": "write", "pull-requests": "write"},
}
MAKEFILE = (CHECKOUT / "Makefile").read_text()


def workflow(path: Path) -> dict[Any, Any]:
    return dict(yaml.safe_load(path.read_text()))


def steps(path: Path) -> Iterator[dict[str, Any]]:
    for job in workflow(path)["jobs"].values():
        yield from job["steps"]


def test_there_are_workflows_for_lint_tests_release_and_locks() -> None:
    assert {path.stem for path in PATHS} == {"dependencies", "lint", "nightly", "release", "test", "test-fast"}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_only_named_jobs_may_write(path: Path) -> None:
    assert workflow(path)["permissions"] == {"contents": "read"}
    granted = {
        (path.name, name): job["permissions"] for name, job in workflow(path)["jobs"].items() if "permissions" in job
    }
    assert granted == {key: rights for key, rights in WRITERS.items() if key[0] == path.name}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_actions_are_githubs_own_and_pinned_to_a_major_version(path: Path) -> None:
    used = [step["uses"] for step in steps(path) if "uses" in step]
    assert used
    assert [name for name in used if not re.fullmatch(r"actions/[a-z-]+@v\d+", name)] == []


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_no_expression_is_expanded_in_a_script(path: Path) -> None:
    """Expanding an expression in a script would execute shell commands in a branch name or title; environment variables
    do not."""
    assert [step["run"] for step in steps(path) if "${{" in step.get("run", "")] == []


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_each_job_has_a_time_limit(path: Path) -> None:
    assert [name for name, job in workflow(path)["jobs"].items() if "timeout-minutes" not in job] == []


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_every_target_of_make_exists(path: Path) -> None:
    commands = "\n".join(step.get("run", "") for step in steps(path))
    targets = re.findall(r"\bmake ([a-z][a-z-]+)", commands)
    if "make $PART" in commands:
        targets += [
            part.split()[0] for job in workflow(path)["jobs"].values() for part in job["strategy"]["matrix"]["part"]
        ]
        assert targets
    assert [name for name in targets if not re.search(rf"^{name}:.* ## ", MAKEFILE, re.MULTILINE)] == []


def test_the_complete_run_is_the_one_of_the_repository() -> None:
    """Every CI system calls .ci/run, as root, because the lab needs it."""
    (run,) = [
        step["run"] for step in steps(CHECKOUT / ".github/workflows/test.yml") if ".ci/run" in step.get("run", "")
    ]
    assert run.startswith("sudo ")
