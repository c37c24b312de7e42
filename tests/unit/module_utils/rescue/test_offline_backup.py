# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests which copies of stores are refused; tests/integration/test_store_backup.py saves real copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.host.store import StoredStream
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.jetstream_api import TransferPace
from ansible_collections.natsops.jetstream.plugins.module_utils.rescue import offline_backup as store_backup
from ansible_collections.natsops.jetstream.plugins.module_utils.rescue.offline_backup import StoreBackupRequest


def refusal(monkeypatch: pytest.MonkeyPatch, copies: dict[str, list[StoredStream]], **changes: Any) -> NatsFailure:
    """Return the reason for which these copies, given by server, are not saved."""
    monkeypatch.setattr(store_backup, "_stored", lambda server, _copy: copies[server])
    with pytest.raises(NatsFailure) as raised:
        store_backup._replicas(wanted(dict.fromkeys(copies, "/copy"), **changes))
    return raised.value


def wanted(copies: dict[str, str], **changes: Any) -> StoreBackupRequest:
    values = {"streams": ["*"], "exclude": [], "damaged": [], "undeleted": [], "held": [], **changes}
    return StoreBackupRequest(
        copies,
        store=None,  # type: ignore[arg-type]
        binary=None,
        work_directory=None,
        level="full",
        pace=TransferPace(idle=1.0),
        **values,
    )


def test_an_old_server_loads_no_newer_copy(tmp_path: Path) -> None:
    index = tmp_path / "jetstream/APP/streams/ORDERS/msgs/index.db"
    index.parent.mkdir(parents=True)
    (index.parents[1] / "meta.inf").write_text("{}")
    index.write_bytes(b"\x0b\x01")
    store_backup._require_readable(wanted({"n1": str(tmp_path)}), "2.9.22")
    with pytest.raises(NatsFailure) as raised:
        store_backup._require_readable(wanted({"n1": str(tmp_path)}), "2.9.10")
    assert raised.value.code == "unsupported"
    assert raised.value.description.startswith("nats-server 2.9.10 cannot load the copy of n1: servers before 2.9.22")


def test_encrypted_streams_are_refused_with_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    copies = {"n1": [StoredStream("APP", "SECRET", encrypted=True)], "n2": [StoredStream("APP", "OPEN", 1, 1, 20, 20)]}
    failure = refusal(monkeypatch, copies)
    assert failure.code == "unsupported"
    assert failure.description == "encrypted streams cannot be loaded without their key: APP/SECRET on n1"


def test_copies_that_hold_less_than_the_stores_did_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    held = [{"account": "APP", "name": "OPEN", "last_seq": 21}, {"account": "APP", "name": "GONE", "last_seq": 5}]
    failure = refusal(monkeypatch, {"n2": [StoredStream("APP", "OPEN", 1, 1, 20, 20)]}, held=held)
    assert failure.code == "incomplete"
    assert failure.description.endswith(
        "2 streams of the stores are missing, APP/GONE is in none, APP/OPEN ends before 21"
    )


def test_a_copy_that_cannot_be_copied(tmp_path: Path) -> None:
    stored = StoredStream("APP", "ORDERS", 1, 1, 20, 20)
    folder = tmp_path / "n1" / "jetstream" / "APP" / "streams" / "ORDERS"
    folder.mkdir(parents=True)
    (folder / "meta.inf").symlink_to("nowhere")
    work = tmp_path / "work"
    work.mkdir()
    replica = store_backup._Replica("n1", stored, {}, {"n1": folder}, 0)
    with pytest.raises(NatsFailure) as raised, store_backup._loaded(store_backup._Place("none", work), replica):
        pytest.fail("it is not loaded")
    assert raised.value.code == "write_failed"
    assert raised.value.description.startswith(f"{folder} cannot be copied to {work}")
    assert list(work.iterdir()) == []
