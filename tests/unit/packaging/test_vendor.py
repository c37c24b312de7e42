# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Vendored files come only from the named package."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import io
import tarfile
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[3] / "tools/vendor.py"


def test_only_the_package_that_is_named_is_taken(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("vendor", TOOL)
    assert spec and spec.loader
    vendor = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(vendor)
    archive = tmp_path / "package.tgz"
    with tarfile.open(archive, "w:gz") as package:
        for member in vendor.FILES:
            info = tarfile.TarInfo(member)
            info.size = len(member)
            package.addfile(info, io.BytesIO(member.encode()))
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    taken = vendor.unpacked(archive, f"sha512-{digest}")
    assert taken == {name: member.encode() for member, name in vendor.FILES.items()}
    with pytest.raises(ValueError, match="not the reviewed package"):
        vendor.unpacked(archive, vendor.INTEGRITY)
    assert f"(v{vendor.VERSION})" in (vendor.FOLDER / "uPlot.iife.min.js").read_text()[:100]
