# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster's own files are saved if one of them has changed, and are read back and kept until the backups expire."""

from __future__ import annotations

import json
from pathlib import Path

import pyrage
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.catalogue import Catalogue, read_catalogue
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.cluster_files import (
    expired_files,
    save_files,
    saved_files,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.encryption import Keys
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.retention import Retention
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.store import DirectoryStore

FILES = {"n1/nats-server.conf": "port: 4222\n", "servers.json": "[]"}


def test_files_are_saved_if_one_changed(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    row = save_files(store, FILES, [], True)
    assert row is not None and list(tmp_path.iterdir()) == []
    row = save_files(store, FILES, [], False)
    assert row is not None
    (path,) = tmp_path.iterdir()
    assert path.name == row["path"] and path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text())["files"] == FILES
    catalogue = read_catalogue(Catalogue(cluster=(row,)).text())
    assert saved_files(catalogue, store) == [row]
    assert save_files(store, FILES, [row], False) is None
    second = save_files(store, {**FILES, "servers.json": "[1]"}, [row], False)
    assert second is not None
    assert expired_files([row, second], Retention(last=1), second) == [row]
    assert expired_files([row, second], Retention(last=1), row) == []
    assert expired_files([row, second], Retention(), second) == []
    # The clock was once ahead, so the files are compared with the latest of the other backups.
    ahead = {**row, "taken": "2099-01-01T00:00:00Z"}
    assert saved_files(Catalogue(cluster=(second, ahead)), store) == [ahead, second]


def test_a_damaged_one_is_saved_again_and_a_missing_one_is_forgotten(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    row = save_files(store, FILES, [], False)
    assert row is not None
    (tmp_path / row["path"]).write_text("{}")
    assert save_files(store, FILES, [row], False) is not None
    store.discard(row["path"])
    store.discard(row["path"])
    assert row not in saved_files(Catalogue(cluster=(row,)), store)


def test_they_are_encrypted(tmp_path: Path) -> None:
    identity = pyrage.x25519.Identity.generate()
    plain, store = DirectoryStore(tmp_path), DirectoryStore(tmp_path, Keys((str(identity.to_public()),)))
    first = save_files(plain, FILES, [], False)
    assert first is not None
    row = save_files(store, FILES, [first], False)
    assert row is not None and row["path"].endswith(".json.age")
    data = (tmp_path / row["path"]).read_bytes()
    assert b"4222" not in data
    assert json.loads(pyrage.decrypt(data, [identity]))["files"] == FILES
    assert save_files(store, FILES, [row], False) is None


def test_a_catalogue_of_before_has_none() -> None:
    document = json.loads(Catalogue().text())
    del document["cluster"]
    assert read_catalogue(json.dumps(document)).cluster == ()
