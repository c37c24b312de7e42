# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check that tests apply to the output of each playbook run detects Ansible's real warnings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.clean_output import clean


def run(folder: Path, task: dict[str, Any], **variables: Any) -> str:
    play = {"hosts": "all", "gather_facts": False, "tasks": [task]}
    (folder / "play.yml").write_text(json.dumps([play]))
    inventory = {"all": {"hosts": {"n1": {"ansible_connection": "local", **variables}}}}
    (folder / "inventory.json").write_text(json.dumps(inventory))
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "inventory.json", "play.yml"],
        cwd=folder,
        # Use the real Python interpreter, not a wrapper that only selects another one.
        env={**os.environ, "ANSIBLE_HOME": str(folder / "home"), "PATH": "/usr/local/bin:/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_python_of_a_host_is_a_warning_unless_the_inventory_chooses_it(tmp_path: Path) -> None:
    ping: dict[str, Any] = {"ansible.builtin.ping": {}}
    with pytest.raises(AssertionError, match="is using the discovered Python interpreter"):
        clean(run(tmp_path, ping))
    clean(run(tmp_path, ping, ansible_python_interpreter="auto_silent"))


def test_deprecations_are_found(tmp_path: Path) -> None:
    plugin = """
from ansible.plugins.lookup import LookupBase
from ansible.utils.display import Display
class LookupModule(LookupBase):
    def run(self, terms, variables=None, **kwargs):
        Display().deprecated("it goes away", version="99.0")
        return terms
"""
    (tmp_path / "lookup_plugins").mkdir()
    (tmp_path / "lookup_plugins/old.py").write_text(plugin)
    with pytest.raises(AssertionError, match="it goes away"):
        clean(run(tmp_path, {"ansible.builtin.debug": {"msg": "{{ lookup('old', 'x') }}"}}))
