# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The JSON schema of the insights' checks accepts the example and rejects misspelt keys, as an editor would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[3] / "docs"


WRONG = {
    "threshold: 3": ("limit: 3", "limit"),
    "severity: critical": ("severity: fatal", "fatal"),
    "server_003_cpu: 80": ("server_003_cpu: -1", "less than the minimum"),
    "    reason: test data, removed with the old cluster\n": ("", "'reason' is a required property"),
}


def test_schema_accepts_only_the_example(tmp_path: Path) -> None:
    example = DOCS / "examples/insights_checks.yml"
    files = [tmp_path / f"{number}.yml" for number in range(len(WRONG))]
    for file, (old, (new, _problem)) in zip(files, WRONG.items()):
        assert old in example.read_text()
        file.write_text(example.read_text().replace(old, new, 1))
    program = str(Path(sys.executable).with_name("check-jsonschema"))
    schema = str(DOCS / "reference/insights_checks.schema.json")
    done = subprocess.run(
        [program, "--schemafile", schema, str(example), *map(str, files)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and example.name not in done.stdout
    for file, (_new, problem) in zip(files, WRONG.values()):
        assert any(problem in part for part in done.stdout.split(f"{file}::")[1:]), done.stdout
