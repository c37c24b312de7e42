# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lake that an earlier version wrote is read, or refused with the command that rebuilds its tables."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jetstream_insights.cli import DONE, FAILED, main
from jetstream_insights.lake import SILVER_FORMAT
from support.lakes import DAY, SPAN, Golden, published_rows, write_golden

Output = pytest.CaptureFixture[str]


def findings(lake: Path) -> list[str]:
    return sorted(str(row) for row in published_rows(lake, "findings", DAY)["findings"])


def jobs(lake: Path, output: Output, *names: str) -> list[dict[str, Any]]:
    """Return the results of these jobs."""
    assert main([*names, "--lake", str(lake), *SPAN]) == DONE
    return [json.loads(line) for line in output.readouterr().out.splitlines() if line.startswith("{")]


def test_lake_of_an_earlier_version_is_read_or_refused_with_a_command(
    golden: Golden, tmp_path: Path, capsys: Output
) -> None:
    lake = tmp_path / "lake"
    write_golden(lake, tables=True)
    # The present version continues the lake. It made the golden lake from the same snapshots without older tables.
    silver, _gold, _findings = jobs(lake, capsys, "silver", "gold", "findings")
    assert (silver["made"], silver["fresh"]) == (1, 2)
    assert findings(lake) == findings(golden.path)
    # A newer version may need another format.
    for pointer in (lake / "silver" / "_published").rglob("hour=*.json"):
        pointer.write_text(json.dumps({**json.loads(pointer.read_text()), "format": SILVER_FORMAT - 1}))
        pointer.with_name(f".{pointer.name}.crc").unlink(missing_ok=True)
    assert main(["gold", "--lake", str(lake), *SPAN, "--force"]) == FAILED
    refusal = capsys.readouterr().err
    command = re.search(r"of an older version\. Run `(silver --from \S+ --to \S+)`", refusal)
    assert command, refusal
    assert main([*command[1].split(), "--lake", str(lake)]) == DONE
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["made"] == 3
