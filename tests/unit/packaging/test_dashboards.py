# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The dashboard queries existing metrics and labels."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.metrics import BY_NAME
from support.documents import CHECKOUT

FILE = CHECKOUT / "extensions/grafana/natsops.json"
PANELS: list[dict[str, Any]] = [panel for panel in json.loads(FILE.read_text())["panels"] if panel["type"] != "row"]


@pytest.mark.skipif(
    importlib.util.find_spec("grafana_foundation_sdk") is None, reason="written in the development environment"
)
def test_the_file_is_up_to_date() -> None:
    check = [sys.executable, "tools/dashboards.py", "--check"]
    done = subprocess.run(check, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: str(panel["title"]))
def test_panels_query_existing_metrics(panel: dict[str, Any]) -> None:
    assert panel["description"]
    assert panel["targets"]
    for target in panel["targets"]:
        used = re.findall(r"\b(natsops_\w+)\{([^}]*)\}", target["expr"])
        assert len(used) == len(re.findall(r"\bnatsops_\w+", target["expr"])) > 0, "each metric is selected by fleet"
        for name, matchers in used:
            labels = {"fleet", *BY_NAME[name].labels}
            assert matchers.startswith('fleet="$fleet"')
            assert set(re.findall(r"(\w+)[=!]", matchers)) <= labels
            assert set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat") or "")) <= labels
