# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.backup import run_restore
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.store import DirectoryStore
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.target import require_suitable
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.failures import NatsFailure

NOTHING: dict[str, Any] = {
    "path": None,
    "force": False,
    "accounts": None,
    "exclude": [],
    "keep": None,
    "cluster_files": None,
}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"accounts": ["APP"], "exclude": ["APP/A"], "keep": {"last": 2}, "cluster_files": {"a": "b"}},
        {"path": "/b"},
        {"path": "/b", "force": True, "cluster_files": {}},
    ],
)
def test_options_that_belong_to_the_location_are_accepted(given: dict[str, Any]) -> None:
    require_suitable({**NOTHING, **given})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"force": True}, "force: only with `path`.*: remove `force`, or set `path`"),
        ({"path": "/b", "keep": {"last": 0}}, "keep: only with `directory`.*: remove keep, or set `directory`"),
        ({"path": "/b", "accounts": ["APP"], "exclude": ["B"]}, "^accounts, exclude: only with `directory`"),
        ({"path": "/b", "cluster_files": {"a": "b"}}, "cluster_files: only with `directory`"),
    ],
)
def test_options_of_the_other_location_are_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(NatsFailure, match=reason) as caught:
        require_suitable({**NOTHING, **given})
    assert caught.value.code == "invalid_option"


def test_a_restore_works_in_a_directory_that_it_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DirectoryStore(tmp_path)
    assert run_restore.workspace(store) == tmp_path
    monkeypatch.setattr(run_restore, "os", SimpleNamespace(access=lambda _path, _mode: False, W_OK=2))
    assert run_restore.workspace(store) == Path(tempfile.gettempdir())
