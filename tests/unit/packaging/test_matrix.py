# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/compatibility.md contains the tables of tools/matrix.py, and the roles list only the platforms on which the
tests ran."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import matrix
import yaml

CHECKOUT = Path(__file__).resolve().parents[3]


def test_document_contains_the_tables() -> None:
    """If this test fails, run `python tools/matrix.py document`."""
    told = {one.name: matrix.results(one) for one in matrix.SLICES}
    assert (CHECKOUT / "docs/compatibility.md").read_text() == "\n".join(matrix.document(told)) + "\n"


def test_each_row_has_a_known_state_and_existing_tests() -> None:
    rows = [row for support in matrix.SUPPORT.values() for row in support]
    assert [name for name, count in Counter(row.name for row in rows).items() if count > 1] == []
    assert {row.state for row in rows} == {matrix.RAN, matrix.WRITTEN, matrix.NOT_SUPPORTED}
    named = [path for row in rows for path in re.findall(r"`(tests/\S+)`", row.note)]
    assert named
    assert [path for path in named if not (CHECKOUT / path).exists()] == []


def test_the_roles_claim_the_releases_that_ran() -> None:
    for path in (CHECKOUT / "roles").glob("*/meta/main.yml"):
        platforms = yaml.safe_load(path.read_text())["galaxy_info"]["platforms"]
        assert platforms == [{"name": "Debian", "versions": list(matrix.RELEASES)}], path
