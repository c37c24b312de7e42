# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lake that an earlier version wrote is read, or refused with the command that rebuilds its tables."""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
from jetstream_insights.cli import DONE, FAILED, main
from jetstream_insights.lake import SILVER_FORMAT
from pyspark.sql import SparkSession
from support.fleet import Fleet
from support.lakes import DAY, published_rows

#: A lake that commit be24713d of 27 November 2026 wrote with tests/support/fleet.py: three servers with four streams at 00:00,
#: 00:10 and 01:00, and the tables of its jobs silver, gold and findings.
OLDER = Path(__file__).parents[1] / "support" / "lake_2026-11-27.tar.xz"
SPAN = ("--from", f"{DAY}T00", "--to", f"{DAY}T03")
Output = pytest.CaptureFixture[str]


def findings(lake: Path) -> list[str]:
    return sorted(str(row) for row in published_rows(lake, "findings", DAY)["findings"])


def jobs(lake: Path, output: Output, *names: str) -> list[dict[str, Any]]:
    """Return the results of these jobs."""
    assert main([*names, "--lake", str(lake), *SPAN]) == DONE
    return [json.loads(line) for line in output.readouterr().out.splitlines() if line.startswith("{")]


def test_lake_of_an_earlier_version_is_read_or_refused_with_a_command(
    spark: SparkSession, tmp_path: Path, capsys: Output
) -> None:
    lake = tmp_path / "lake"
    with tarfile.open(OLDER) as archive:
        archive.extractall(lake, filter="data")
    # The present version continues the lake.
    Fleet(3, 4).write(lake, 7200.0)
    silver, _gold, _findings = jobs(lake, capsys, "silver", "gold", "findings")
    assert (silver["made"], silver["fresh"]) == (1, 2)
    continued = findings(lake)
    jobs(lake, capsys, "silver", "gold", "findings", "--force")
    assert findings(lake) == continued
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
