# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host whose Python is too old is reported as such, with the remedy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.natsops.jetstream.plugins.plugin_utils._host_python import REQUIRED, python_problem

CHECKOUT = Path(__file__).resolve().parents[3]

#: Replaces the Python 3.8 of a host: it reports that version, and cannot run a module.
OLD = """#!/bin/sh
if [ "$1" = -c ]; then echo "Last login: today"; echo "python 3.8"; exit; fi
echo "TypeError: 'type' object is not subscriptable" >&2
exit 1
"""


@pytest.mark.parametrize(
    ("output", "old"),
    [
        ("python 2.7\n", True),
        ("a banner\r\npython 3.8\r\n", True),
        ("python 3.9\n", False),
        ("python 3.14\n", False),
        ("", False),
        ("sh: 1: /usr/bin/python3: not found\n", False),
    ],
)
def test_the_version_is_compared(output: str, old: bool) -> None:
    assert (python_problem("/usr/bin/python3", output) is not None) == old


def test_the_required_version_is_the_one_that_sanity_checks() -> None:
    config = yaml.safe_load((CHECKOUT / "tests/config.yml").read_text())
    assert config["modules"]["python_requires"] == f">={REQUIRED[0]}.{REQUIRED[1]}"


def test_the_first_module_on_a_host_names_the_version_and_the_remedy(tmp_path: Path) -> None:
    python = tmp_path / "old python3"
    python.write_text(OLD)
    python.chmod(0o755)
    output = read_host({"ansible_connection": "local", "ansible_python_interpreter": str(python)})
    assert f"{python} is Python 3.8, and the modules require 3.9 or newer" in output
    assert "set ansible_python_interpreter" in output


def test_the_reason_is_shown_if_the_host_is_unreachable() -> None:
    where = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
    output = read_host(where)
    assert "UNREACHABLE" in output and "Connection refused" in output, output


def read_host(variables: dict[str, Any]) -> str:
    """Return the output of a module run that must fail, although its result would be secret."""
    command = [str(Path(sys.executable).with_name("ansible")), "localhost"]
    command += ["-m", "natsops.jetstream.nats_server_host_info", "-a", "gather_subset=adoption"]
    command += ["-e", json.dumps(variables)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    return done.stdout
