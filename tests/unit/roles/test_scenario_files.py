# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration files of every host of every scenario are byte-identical to those in the folder `rendered`.

To replace these files after an intended change, and review the difference in git:

    make test-unit TESTS=tests/unit/roles/test_scenario_files.py ARGS=--rewrite-rendered
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.scenario_rendering import render_scenario, scenarios

RENDERED = Path(__file__).with_name("rendered")


@pytest.mark.parametrize("scenario", scenarios())
def test_configuration_files_are_unchanged(scenario: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = RENDERED / f"{scenario}.txt"
    expected = path.read_text() if path.exists() else ""
    files = render_scenario(tmp_path, scenario, expected)
    if request.config.getoption("rewrite_rendered"):
        path.write_text(files)
    else:
        assert files == expected


def test_every_file_belongs_to_a_scenario() -> None:
    assert sorted(path.stem for path in RENDERED.iterdir()) == sorted(scenarios())
