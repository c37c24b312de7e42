# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The benchmark of reading runs to its end with a few streams, its figures are not judged. Of the benchmark of rolls, which
takes minutes, the arithmetic is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from nats_processes import ROOT

sys.path.insert(0, str(ROOT / "tests" / "bench"))

import roll


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


def test_the_longest_gap_counts_the_ends_too() -> None:
    assert roll.longest_gap([1.0, 1.2, 1.9, 2.0], 1.0, 2.1) == pytest.approx(0.7)
    assert roll.longest_gap([1.0, 1.2], 1.0, 5.2) == pytest.approx(4.0)
    assert roll.longest_gap([], 1.0, 5.0) == 4.0
    assert roll.longest_gap([0.0, 9.0], 1.0, 5.0) == 4.0


def test_a_playbooks_journal_and_refusal_are_read(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    steps = {"gate": 11.0, "drain": 2.0, "stop": 4.0, "start": 2.0, "catch_up": 12.0}
    events = [{"event": "run_started"}, *({"event": "batch_done", "steps": steps} for _batch in range(2)), {"event": "run_done"}]
    journal.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    batches, found = roll.read_journal(journal)
    assert (batches, found["catch_up"]) == (2, 24.0) and roll.read_journal(journal) == (0, {})
    figures = roll.Figures("playbook", False, 2, 0.4, 0.2, 1, 100, [], 72.0, 16.0, [], "", batches, found)
    assert "32 s beside 40 s of settle windows, ×2.00 of stop, start and catch-up (16 s)" in roll.markdown([figures])
    assert "| playbook | - | 2 | 0.40 | ×2.0 | 1 | 100 | 0 | 72 | 16 | ×4.50 |" in roll.markdown([figures])
    output = 'ok: [n1]\nfatal: [n1]: FAILED! => {"changed": false, "msg": "not \\"whole\\":\\n- n5 did not answer"}\n'
    assert roll.refusal_of(output) == 'not "whole":\n- n5 did not answer'
