# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The usage of the disk of a store."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ansible_collections.natsops.jetstream.plugins.module_utils.host.fault_signs import disk_usage


def test_disk_usage_is_that_of_df(tmp_path: Path) -> None:
    output = subprocess.run(["df", "--output=pcent,target", str(tmp_path)], check=True, capture_output=True, text=True)
    percent, mount = output.stdout.splitlines()[-1].split()
    found = disk_usage(str(tmp_path))
    assert found["disk_mount"] == mount
    assert abs(found["disk_percent"] - int(percent.rstrip("%"))) <= 1
    for unknown in (None, str(tmp_path / "gone")):
        assert disk_usage(unknown) == {"disk_percent": None, "disk_mount": ""}
