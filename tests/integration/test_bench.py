# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The benchmark runs to its end with a few streams. Its figures are not judged."""

from __future__ import annotations

import json
import subprocess
import sys

from nats_processes import ROOT


def test_the_benchmark_still_runs() -> None:
    script = ROOT / "tests" / "bench" / "assets.py"
    command = [sys.executable, str(script), "--sizes", "5,20", "--versions", "2.15.1", "--repeat", "1", "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    result = json.loads(done.stdout)
    measured = {(figure["what"].split()[0], figure["streams"]) for figure in result["figures"]}
    assert measured == {
        (what, size) for what in ("nats_cluster_info", "nats_stream_info", "nats_consumer_info") for size in (5, 20)
    }
    for figure in result["figures"]:
        assert figure["rows"] == figure["streams"] * (2 if figure["what"].startswith("nats_consumer") else 1)
        assert figure["parts"]["json"] > 0
        assert figure["parts"]["model"] > 0
