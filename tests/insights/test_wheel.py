# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The package that pip installs has the version of the collection and its requirements. test_connect.py runs its
command."""

from __future__ import annotations

from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import Requirement

# support.documents also defines this, but needs packages that Spark's environment lacks.
CHECKOUT = Path(__file__).parents[2]


def test_the_wheel_has_the_version_and_the_requirements(wheel: Path) -> None:
    (found,) = distributions(path=[str(wheel)])
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
