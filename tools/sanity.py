# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs `ansible-test sanity` on the current sources, with the ansible-core of the environment that runs this program.

    .cache/venv/bin/python tools/sanity.py [ansible-test sanity arguments]

ansible-test needs a git checkout below …/ansible_collections/natsops/jetstream, keeps its virtual environments in the
home directory, and downloads a script that installs pip into them. Here, the checkout is a copy of the files that git
tracks or does not ignore, the home directory is a folder in .cache, and pip comes from Python's ensurepip. So only a
package index is accessed over the network, and nothing is written outside the project.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import ansible
import ansible_test._internal.python_requirements as ansible_test_requirements

ROOT = Path(__file__).resolve().parent.parent
CORE = ".".join(ansible.__version__.split(".")[:2])
HOME = ROOT / ".cache" / f"sanity-{CORE}"
COPY = HOME / "ansible_collections" / "natsops" / "jetstream"

# Tests that do not apply here, with the reason.
SKIPPED_TESTS: dict[str, str] = {
    "pslint": "there is no PowerShell in the collection",
}

PIP_SCRIPT = """\
import ensurepip
ensurepip.bootstrap(upgrade=True, default_pip=True)
"""


def copy_sources() -> None:
    """Make COPY a git checkout of every file in ROOT that git does not ignore."""
    shutil.rmtree(COPY, ignore_errors=True)
    COPY.mkdir(parents=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout
    for name in sorted(set(os.fsdecode(listed).split("\0")) - {""}):
        source, target = ROOT / name, COPY / name
        if not source.is_symlink() and not source.is_file():
            continue  # deleted in the working tree
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target, follow_symlinks=False)
    subprocess.run(["git", "init", "--quiet"], cwd=COPY, check=True)
    subprocess.run(["git", "add", "--all"], cwd=COPY, check=True)


def provide_pip_scripts() -> None:
    """Put a pip script where ansible-test expects its download, for each version that ansible-test may need."""
    wanted = re.findall(r"\bpip='([\d.]+)'", Path(ansible_test_requirements.__file__).read_text())
    if not wanted:
        raise SystemExit(
            f"The pip version that ansible-test {ansible.__version__} needs is unknown: its source has changed."
        )
    cache = HOME / ".ansible" / "test" / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    for version in wanted:
        (cache / f"get_pip_{version.replace('.', '_')}.py").write_text(PIP_SCRIPT)


def provide_pip_configuration() -> None:
    """Write the effective pip configuration (from files and environment) to the home directory, because ansible-test
    passes it on only from there."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True
    ).stdout
    lines = ["[global]"]
    for line in listed.splitlines():
        key, value = line.split("=", maxsplit=1)
        scope, option = key.rsplit(".", maxsplit=1)
        if scope in ("global", "install", ":env:"):
            lines.append(f"{option} = {ast.literal_eval(value)}".replace("\n", "\n    "))
    target = HOME / ".config" / "pip" / "pip.conf"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.touch(mode=0o600)
    target.write_text("\n".join(dict.fromkeys(lines)) + "\n")


def main(arguments: list[str]) -> int:
    copy_sources()
    provide_pip_scripts()
    provide_pip_configuration()
    for test, reason in SKIPPED_TESTS.items():
        print(f"Skipping {test}: {reason}.", flush=True)
        arguments = ["--skip-test", test, *arguments]
    command = [
        os.path.join(os.path.dirname(sys.executable), "ansible-test"),
        "sanity",
        "--python",
        f"{sys.version_info.major}.{sys.version_info.minor}",
        "--color",
        "yes" if sys.stdout.isatty() else "no",
        *arguments,
    ]
    return subprocess.call(command, cwd=COPY, env={**os.environ, "HOME": str(HOME)})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
