# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A disabled health gate does nothing, unless a plan requires it: joining servers are always awaited."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.natsops.jetstream.plugins.module_utils.batch import BatchGate

GATE = Path(__file__).resolve().parents[3] / "roles/nats_cluster/tasks/health/gate.yml"
PLAYBOOK = Path(sys.executable).parent / "ansible-playbook"
REQUIRED, OPTIONAL = BatchGate(required=True).as_dict(), BatchGate().as_dict()


def test_disabled_gate_runs_only_if_the_plan_requires_it(tmp_path: Path) -> None:
    (gate,) = yaml.safe_load(GATE.read_text())
    cases: list[tuple[Any, dict[str, Any], bool]] = [
        (False, REQUIRED, True),
        (False, OPTIONAL, False),
        (False, {}, False),
        (True, REQUIRED, True),
        (True, OPTIONAL, True),
        # Extra variables are texts.
        ("False", {}, False),
    ]
    tasks = [
        {
            "ansible.builtin.debug": {"msg": f"case {number} runs"},
            "when": gate["when"],
            "vars": {"nats_cluster__gate_enabled": enabled, "nats_cluster__gate_request": request},
        }
        for number, (enabled, request, _runs) in enumerate(cases)
    ]
    play = tmp_path / "play.yml"
    play.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    done = subprocess.run([PLAYBOOK, "-i", "localhost,", play], capture_output=True, text=True, check=True)
    assert [f"case {number} runs" in done.stdout for number in range(len(cases))] == [case[2] for case in cases]
