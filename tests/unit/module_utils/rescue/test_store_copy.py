# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests stores that cannot be loaded; tests/integration/test_store_loaded.py copies and loads the stores of real
servers."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Callable

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.host.highway import highwayhash64
from ansible_collections.natsops.jetstream.plugins.module_utils.rescue.store_copy import (
    StoreCopyRequest,
    StoreError,
    copy_store,
    load_alone,
)


def write(folder: Path, key: str) -> None:
    folder.mkdir(parents=True)
    content = json.dumps({"name": folder.name, "num_replicas": 3}).encode()
    (folder / "meta.inf").write_bytes(content)
    (folder / "meta.sum").write_text(highwayhash64(hashlib.sha256(key.encode()).digest(), content).hex())


@pytest.fixture
def store(tmp_path: Path) -> Path:
    streams = tmp_path / "store" / "jetstream" / "APP" / "streams"
    write(streams / "ALPHA", "ALPHA")
    write(streams / "ORDERS", "ORDERS")
    write(streams / "ORDERS" / "obs" / "worker", "ORDERS/worker")
    (streams / ".GONE").mkdir()
    (streams / ".GONE" / "meta.inf").write_text("half")
    return tmp_path / "store"


def replicas(store: Path) -> list[int]:
    paths = sorted((store / "jetstream/APP/streams").glob("[A-Z]*/**/meta.inf"))
    return [json.loads(path.read_bytes())["num_replicas"] for path in paths]


def test_streams_have_one_replica_and_consumers_those_of_their_stream(store: Path) -> None:
    assert load_alone(str(store)) == ["APP/ALPHA", "APP/ORDERS"]
    assert replicas(store) == [1, 1, 0]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda folder: (folder / "meta.key").touch(), "is encrypted"),
        (lambda folder: (folder / "meta.inf").write_text("{"), "not a readable configuration"),
        (lambda folder: (folder / "meta.sum").write_text("00"), "is damaged"),
        (lambda folder: (folder / "meta.sum").unlink(), "cannot read .*meta.sum: No such file"),
    ],
)
@pytest.mark.parametrize("inner", ["ORDERS", "ORDERS/obs/worker"])
def test_nothing_is_changed_where_one_cannot_be_loaded(
    store: Path, inner: str, damage: Callable[[Path], object], reason: str
) -> None:
    damage(store / "jetstream/APP/streams" / inner)
    with pytest.raises(StoreError, match=reason):
        load_alone(str(store))
    assert '"num_replicas": 3' in (store / "jetstream/APP/streams/ALPHA/meta.inf").read_text()


def test_a_copy_without_room_leaves_nothing(store: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no room for a copy"):
        copy_store(StoreCopyRequest(str(store), str(tmp_path / "copy"), 1 << 60))
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_a_store_that_is_not_there_is_not_an_empty_copy(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        copy_store(StoreCopyRequest(str(tmp_path / "other"), str(tmp_path / "copy"), 0))
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("running", [[True], [False, True]])
def test_store_of_a_running_server_is_not_copied(store: Path, tmp_path: Path, running: list[bool]) -> None:
    answers = iter(running)
    with pytest.raises(StoreError, match=r"nats-server runs on .*: stop it"):
        copy_store(StoreCopyRequest(str(store), str(tmp_path / "copy"), 0, lambda: next(answers)))
    assert not (tmp_path / "copy").exists()


def test_copy_is_made_once_and_remains_of_a_killed_run_are_replaced(store: Path, tmp_path: Path) -> None:
    wanted = StoreCopyRequest(str(store), str(tmp_path / "copy"), 0)
    assert copy_store(wanted, check_mode=True)
    assert not (tmp_path / "copy").exists()
    left = tmp_path / "copy.part" / "jetstream" / "LEFT"
    left.mkdir(parents=True)
    assert copy_store(wanted)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "store"]
    assert not (tmp_path / "copy/jetstream/LEFT").exists()
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o700
    assert not copy_store(StoreCopyRequest(str(store), str(tmp_path / "copy"), 1 << 60, lambda: True))


def test_another_directory_is_not_taken_for_a_copy_and_none_is_made_in_the_store(store: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a copy of a store"):
        copy_store(StoreCopyRequest(str(store), str(tmp_path), 0))
    with pytest.raises(StoreError, match="is inside the store"):
        copy_store(StoreCopyRequest(str(store), str(store / "jetstream" / "copy"), 0))


def test_nothing_is_left_to_a_stream_that_adds_or_removes_messages(store: Path) -> None:
    path = store / "jetstream/APP/streams/ORDERS/meta.inf"
    config = {"name": "ORDERS", "num_replicas": 3, "subjects": ["orders.>"], "max_age": 1, "mirror": {"name": "OTHER"}}
    content = json.dumps({**config, "allow_direct": True}).encode()
    path.write_bytes(content)
    (path.parent / "meta.sum").write_text(highwayhash64(hashlib.sha256(b"ORDERS").digest(), content).hex())
    load_alone(str(store))
    assert json.loads(path.read_bytes()) == {
        "name": "ORDERS",
        "num_replicas": 1,
        "allow_direct": True,
        "storage": "file",
    }
