# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/molecule.md shows the project that `make test-molecule-consumer` runs."""

from __future__ import annotations

from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]
PROJECT = CHECKOUT / "tests/consumer/orders"


@pytest.mark.parametrize("path", sorted(PROJECT.rglob("*.yml")), ids=lambda path: str(path.relative_to(PROJECT)))
def test_the_guide_shows_the_example(path: Path) -> None:
    guide = (CHECKOUT / "docs/molecule.md").read_text()
    assert f"`{path.relative_to(PROJECT)}`" in guide or path.name == "destroy.yml"
    # destroy.yml differs from create.yml only in names.
    content = path.read_text().replace("Destroy", "Create").replace("destroy\n", "create\n")
    assert f"```yaml\n{content.removeprefix('---' + chr(10))}```" in guide
