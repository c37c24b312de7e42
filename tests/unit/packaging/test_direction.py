# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls go one way: playbook, nats_cluster, nats_server; modules and event sources import module_utils only."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[3]
PLUGINS = "ansible_collections.natsops.jetstream.plugins"


def tasks(role: str) -> list[Path]:
    return sorted(
        path for part in ("tasks", "vars", "defaults") for path in (CHECKOUT / "roles" / role / part).rglob("*.yml")
    )


def test_no_role_reads_a_private_variable_of_another() -> None:
    for role, other in (
        ("nats_cluster", "nats_server"),
        ("nats_server", "nats_cluster"),
        ("nats_insights", "nats_cluster"),
    ):
        for path in tasks(role):
            assert f"{other}__" not in path.read_text(), path


def test_the_role_of_one_host_calls_no_other_role() -> None:
    for path in tasks("nats_server"):
        assert re.findall(r"_role:", path.read_text()) == [], path


def test_playbooks_act_through_the_role_of_the_cluster() -> None:
    """What changes servers is its business; `members` asks nobody, and `remove` ends the demo."""
    allowed = {"members", "remove"}
    for path in (CHECKOUT / "playbooks").glob("*.yml"):
        assert "nats_server__" not in path.read_text(), path
        for play in yaml.safe_load(path.read_text()):
            assert "natsops.jetstream.nats_server" not in [role["role"] for role in play.get("roles", [])], path
        entries = re.findall(r"name: natsops\.jetstream\.nats_server\n +tasks_from: (\w+)", path.read_text())
        assert set(entries) <= allowed, path


@pytest.mark.parametrize("folder", ["plugins/modules", "extensions/eda/plugins/event_source"])
def test_modules_and_event_sources_import_no_module(folder: str) -> None:
    for path in (CHECKOUT / folder).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PLUGINS):
                assert (node.module or "").split(".")[4] in {"module_utils", "plugin_utils"}, path
