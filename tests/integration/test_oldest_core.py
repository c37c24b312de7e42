# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the main playbooks on the oldest supported ansible-core. All other playbook tests use one newer release, and
2.16 finds task files and templates values in different ways."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.documents import CHECKOUT
from support.role_cluster import RoleCluster

pytestmark = pytest.mark.playbook


class OldestCore(RoleCluster):
    def controller(self) -> tuple[list[str], dict[str, str]]:
        _command, environment = super().controller()
        return [str(CHECKOUT / ".cache/venv-2.16/bin/ansible-playbook")], environment


def test_a_cluster_is_deployed_and_restarted(tmp_path: Path) -> None:
    with OldestCore(tmp_path, ["n1", "n2", "n3"]).deployed() as cluster:
        cluster.deploy_changes_nothing()
        before = cluster.pids()
        cluster.playbook("restart")
        after = cluster.pids()
        assert all(after.values()) and not set(after.values()) & set(before.values())
        cluster.playbook("report")
        cluster.playbook("diagnose")
