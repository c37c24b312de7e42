# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the jobs from a package that pip installs, without Ansible and without the role."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import Requirement
from support.fleet import START, Fleet

# support.documents also defines this, but needs packages that Spark's environment lacks.
CHECKOUT = Path(__file__).parents[2]
PROJECT = CHECKOUT / "roles/nats_insights/files"


def test_the_command_of_the_wheel_makes_tables(tmp_path: Path) -> None:
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*install, "--no-build-isolation", "--target", str(tmp_path / "site"), str(PROJECT)], check=True)
    (found,) = distributions(path=[str(tmp_path / "site")])
    assert f"version: {found.version}\n" in (CHECKOUT / "galaxy.yml").read_text()
    wanted = [Requirement(text) for text in found.requires or []]
    assert {package.name for package in wanted if not package.marker} == {
        "deltalake",
        "nats-py",
        "pyarrow",
        "pyspark",
        "pyyaml",
    }
    assert {package.name for package in wanted if package.marker} == {"pandas", "pyspark"}

    Fleet(3, 2).write(tmp_path / "lake", 0.0)
    span = ["--from", f"{START:%Y-%m-%dT%H}", "--to", f"{START:%Y-%m-%d}T01"]
    command = [str(tmp_path / "site/bin/jetstream-insights"), "silver", "--lake", str(tmp_path / "lake"), *span]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["made"] == 1
