# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each plugin has tests that contain its name, so a search finds them, and is either for users or marked as internal."""

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


def test_a_filter_without_a_guide_is_marked_as_internal() -> None:
    guides = " ".join(path.read_text() for path in CHECKOUT.glob("docs/*.md"))
    filters = list(CHECKOUT.glob("plugins/filter/*.py"))
    marked = {path.stem for path in filters if "may change in any release" in " ".join(path.read_text().split())}
    # This one is for templates of every configuration.
    named = {path.stem for path in filters if re.search(rf"\b{path.stem}\b", guides)} | {"nats_conf"}
    assert {"nats_lock_share", "nats_tls_use"} <= marked and "nats_accounts_document" in named
    assert sorted({path.stem for path in filters} - marked - named) == []
    assert sorted(marked & named) == []
