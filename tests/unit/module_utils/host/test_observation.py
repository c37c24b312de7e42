# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host says of its unit."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.natsops.jetstream.plugins.module_utils.host.observation import read_drop_ins


def test_of_drop_ins_the_options_are_read_and_no_values(tmp_path: Path) -> None:
    one, two = tmp_path / "10-limits.conf", tmp_path / "20-empty.conf"
    one.write_text(
        "# LimitCORE=0\n[Service]\nLimitNOFILE=1\nEnvironment=TOKEN=secret \\\n  A=b\n;User=x\n ExecStart=\nExecStart=/bin/x\n"
    )
    two.write_text("")
    assert read_drop_ins({"DropInPaths": f"{one} {two}"}) == [
        {"path": str(one), "options": ["Environment", "ExecStart", "LimitNOFILE"]},
        {"path": str(two), "options": []},
    ]
    assert read_drop_ins({}) == []
