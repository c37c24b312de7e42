# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each plugin has tests that contain its name, so a search finds them."""

from __future__ import annotations

import re
from pathlib import Path

from support.documents import CHECKOUT

PLUGINS = [
    *(
        path.stem
        for kind in ("action", "filter", "inventory", "lookup", "modules")
        for path in CHECKOUT.glob(f"plugins/{kind}/*.py")
    ),
    *(path.stem for path in CHECKOUT.glob("extensions/eda/plugins/event_source/*.py")),
]


def test_no_module_logs_secrets() -> None:
    """Ansible's own class logs secrets in lists and dictionaries, see module_utils/collection_module.py."""
    assert [path for path in CHECKOUT.glob("plugins/mod*/**/*.py") if "AnsibleModule(" in path.read_text()] == []


def test_each_plugin_is_named_in_a_test() -> None:
    words = {
        word
        for path in (CHECKOUT / "tests").rglob("test_*.py")
        if path != Path(__file__)
        for word in re.findall(r"\bnats_\w+", path.read_text())
    }
    assert len(PLUGINS) > 50
    assert sorted(set(PLUGINS) - words) == []
