# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A clone works even if other users cannot read it, with any character in its path, with /tmp mounted noexec, and in
any locale."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import ansible
import pytest

pytestmark = pytest.mark.skipif(not ansible.__version__.startswith("2.19"), reason="the same with each ansible-core")

CHECKOUT = Path(__file__).resolve().parents[3]
#: Quick tests: they use files with special names, a program that a test writes to the temporary directory, and
#: non-ASCII text.
QUICK = (
    "tests/unit/module_utils/host/test_process.py",
    "tests/unit/packaging/test_flaky.py::test_list_of_flaky_tests_names_tests_that_exist",
    "tests/unit/packaging/test_tools.py::test_documentation_markup_becomes_markdown",
    "tests/unit/packaging/test_tools.py::test_compiled_archives_match_their_content",
)
LAB = "tests/lab/test_lab.py::test_check_reports_that_a_lab_needs_root"
#: Runs a command in an environment in which no file in /tmp can be executed.
NOEXEC = (
    "unshare",
    "--mount",
    "sh",
    "-ec",
    'mount --bind /tmp /tmp; mount -o remount,bind,noexec /tmp; exec "$@"',
    "sh",
)


def run_make(
    clone: Path, *goals: str, prefix: Sequence[str] = (), **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run make in the clone with the locale of these variables; return its result."""
    own = (
        "CI",
        "MAKEFLAGS",
        "MAKELEVEL",
        "ARGS",
        "TESTS",
        "PATH",
        "LANG",
        "LANGUAGE",
        "JUNIT",
        "ANSIBLE_COLLECTIONS_PATH",
        "PYTHONPATH",
    )
    kept = {key: value for key, value in os.environ.items() if key not in own and not key.startswith("LC_")}
    paths = [path for path in os.environ["PATH"].split(os.pathsep) if ".cache/venv" not in path]
    return subprocess.run(
        [*prefix, "make", "--no-print-directory", *goals],
        cwd=clone,
        env={**kept, "PATH": os.pathsep.join(paths), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )


@pytest.fixture(scope="module")
def clone() -> Iterator[Path]:
    """The files of this checkout with its environments, below a directory of mode 0700 with a path that make cannot split."""
    home = Path(tempfile.mkdtemp(prefix="natsops clone (é) ", dir="/var/tmp"))
    assert home.stat().st_mode & 0o777 == 0o700
    copied = home / "it's a $clone; #1"
    skipped = shutil.ignore_patterns(".git", ".cache", ".demo", "__pycache__", ".*_cache", ".hypothesis")
    # Copy the modification times as well: a newer lock file would rebuild the environments.
    shutil.copytree(CHECKOUT, copied, symlinks=True, ignore=skipped)
    subprocess.run(["git", "init", "--quiet"], cwd=copied, check=True)
    (copied / ".cache").mkdir()
    for name in ("venv", "downloads"):
        (copied / ".cache" / name).symlink_to((CHECKOUT / ".cache" / name).resolve())
    try:
        yield copied
    finally:
        link = subprocess.run(
            ["tools/places.sh"], cwd=copied, capture_output=True, text=True, check=True
        ).stdout.split()[0]
        Path(link).unlink()
        shutil.rmtree(home)


@pytest.mark.parametrize(
    "locale",
    [{}, {"LC_ALL": "C"}, {"LC_ALL": "de_DE.UTF-8", "LANGUAGE": "de"}, {"LANG": "tr_TR", "LC_CTYPE": "POSIX"}],
    ids=["unset", "C", "not-installed", "foreign"],
)
def test_cheap_parts_run_in_any_clone(clone: Path, locale: dict[str, str]) -> None:
    # Ansible rebuilds and reinstalls the artifact, which fails without an installed UTF-8 locale.
    (clone / "galaxy.yml").touch()
    done = run_make(clone, "lint-words", "test-unit", f"TESTS={' '.join(QUICK)}", **locale)
    assert done.returncode == 0, done.stdout
    assert re.search(r"^=+ \d+ passed in", done.stdout, re.M), done.stdout
    assert (clone / ".cache/collections/ansible_collections/natsops/jetstream/MANIFEST.json").is_file()


def test_other_user_needs_no_access_to_the_clone(clone: Path) -> None:
    done = run_make(clone, "test-lab", f"TESTS={LAB}")
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout


def can_mount() -> bool:
    return subprocess.run([*NOEXEC, "true"], capture_output=True, check=False).returncode == 0


def test_cheap_parts_run_with_tmp_mounted_noexec(clone: Path) -> None:
    if not can_mount():
        pytest.skip("NOT RUN: only root can mount /tmp noexec for this test")
    done = run_make(clone, "lint-words", "test-unit", f"TESTS={' '.join(QUICK)}", prefix=NOEXEC)
    assert done.returncode == 0, done.stdout
    assert re.search(r"^=+ \d+ passed in", done.stdout, re.M), done.stdout


def test_temporary_directory_that_can_be_executed_is_kept(tmp_path: Path) -> None:
    """A temporary directory in which nothing can be executed is replaced by a different one."""
    command = [str(CHECKOUT / "tools/places.sh")]
    program = 'mount -t tmpfs -o noexec tmpfs "$TMPDIR"; exec "$@"'
    for prefix, expected in (((), str(tmp_path)), (("unshare", "--mount", "sh", "-ec", program, "sh"), "/var/tmp")):
        if prefix and not can_mount():
            continue
        done = subprocess.run(
            [*prefix, *command],
            cwd=tmp_path,
            env={**os.environ, "TMPDIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        assert done.stdout.split()[1] == expected
    assert list(tmp_path.iterdir()) == []


def test_link_of_a_different_user_is_refused(tmp_path: Path) -> None:
    """The checkout's path has a space, and another user has left a file at the path of its link."""
    checkout = tmp_path / "a b"
    checkout.mkdir()

    def places() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(CHECKOUT / "tools/places.sh")], cwd=checkout, capture_output=True, text=True, check=False
        )

    link = Path(places().stdout.split()[0])
    try:
        assert link.readlink() == checkout
        assert places().stdout.split()[0] == str(link) and list(checkout.iterdir()) == []
        link.unlink()
        link.symlink_to(tmp_path)
        refused = places()
        assert (refused.returncode, "is not a link of this user" in refused.stderr, refused.stdout) == (1, True, "")
        if os.geteuid() == 0:
            link.unlink()
            link.symlink_to(checkout)
            os.lchown(link, 65534, 65534)
            assert places().returncode == 1
    finally:
        link.unlink()
