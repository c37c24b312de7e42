# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests how long a backup waits for consumers that are electing a leader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.encryption import Keys
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.files import read_backup
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.store import DirectoryStore
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.stream_backup import (
    RetryBudget,
    StreamBackupRequest,
    _consumers,
    _require_readable,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.jetstream_api import (
    JetStreamApi,
    Listing,
    TransferPace,
)

LED = Listing(({"name": "worker"},), {})
ELECTING = Listing((), {"worker": "no leader reported its state"})


class Api:
    """Returns the given lists of a stream's consumers in order, then repeats the last one."""

    account = "APP"

    def __init__(self, *listings: Listing) -> None:
        self._listings = list(listings)
        self.read = 0

    def consumers(self, _stream: str) -> Listing:
        self.read += 1
        return self._listings.pop(0) if len(self._listings) > 1 else self._listings[0]


def consumers(api: Api, budget: RetryBudget, asked: bool = True) -> Sequence[Any] | None:
    wanted = StreamBackupRequest(
        "ORDERS",
        DirectoryStore(Path("nowhere"), Keys()),
        "checksum",
        TransferPace(idle=10, consumers=asked),
        budget=budget,
    )
    return _consumers(cast(JetStreamApi, api), wanted, "2.15.1", {"config": {}})


def test_streams_with_leaders_are_read_once() -> None:
    api, budget = Api(LED), RetryBudget()
    assert (consumers(api, budget), api.read, budget.left) == (LED.rows, 1, RetryBudget().left)


def test_an_election_is_waited_for() -> None:
    api, budget = Api(ELECTING, ELECTING, LED), RetryBudget(60)
    assert (consumers(api, budget), api.read) == (LED.rows, 3)
    assert 0 < budget.left < 60


def test_those_that_stay_without_a_leader_are_refused_and_wait_together() -> None:
    budget = RetryBudget(0.3)
    for reads in (True, False):
        api = Api(ELECTING)
        with pytest.raises(NatsFailure, match="consumers without a leader: worker") as refused:
            consumers(api, budget)
        assert refused.value.code == "leaderless"
        assert (api.read > 1) == reads, "the second stream waited again"
    assert budget.left <= 0


def test_unrequested_consumers_are_not_awaited() -> None:
    api = Api(ELECTING)
    assert (consumers(api, RetryBudget(), asked=False), api.read) == (None, 0)


def test_a_backup_that_no_restore_could_read_is_refused() -> None:
    folder = Path(__file__).parents[1] / "backup" / "archives" / "backup-2.15.1"
    manifest = read_backup(DirectoryStore(folder)).manifest
    _require_readable(manifest.text(), manifest.archive, manifest.stream)
    other = replace(manifest, config={**manifest.config, "name": "OTHER"})
    with pytest.raises(NatsFailure, match="contains the configuration of OTHER"):
        _require_readable(other.text(), manifest.archive, manifest.stream)
