# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the jobs that users run on real faults of real clusters of each server version.

``make bench BENCH=insights/faults``. The faults are those of tests/support/real_faults.py. The program ends with status
1 if a fault was not found, its report is wrong, or a critical cause has no fault.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from support.nats_processes import VERSIONS
from support.real_faults_report import capture_and_judge, problems, table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--versions", nargs="+", default=VERSIONS, metavar="VERSION")
    parser.add_argument(
        "--folder", type=Path, help="keep the lake and the report here; an existing lake is judged again"
    )
    given = parser.parse_args()
    scores = capture_and_judge(given.versions, given.folder)
    print("\n".join(table(scores)))
    found = [*problems(scores)]
    print("\n".join(found), file=sys.stderr)
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
