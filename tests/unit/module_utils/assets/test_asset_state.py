# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A creation is finished when the meta leader lists the asset, not when the asset's own leader confirms it."""

from __future__ import annotations

from typing import Any, cast

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.state import (
    ConsumerAsset,
    RunOptions,
    StreamAsset,
    ensure_present,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.jetstream_api import JetStreamApi

CLUSTER = {"leader": "n1", "replicas": []}
STREAM = {"name": "ORDERS", "subjects": ["orders.>"], "num_replicas": 1}


class LateMetaLeader:
    """The API of a cluster whose meta leader lists a created asset only after `late` listings."""

    account = "APP"

    def __init__(self, late: int) -> None:
        self.late = late
        self.streams: dict[str, Any] = {}
        self.saved: dict[str, Any] = {}

    def release(self) -> tuple[int, int]:
        return 2, 10

    def find_stream(self, name: str) -> dict[str, Any] | None:
        return self.streams.get(name)

    def stream(self, name: str) -> dict[str, Any]:
        return cast("dict[str, Any]", self.streams[name])  # a consumer reads its stream

    def create_stream(self, config: dict[str, Any]) -> None:
        state = {"messages": 0, "consumer_count": 0}
        self.streams[config["name"]] = {"config": config, "created": "now", "state": state, "cluster": CLUSTER}

    def find_consumer(self, _stream: str, name: str) -> dict[str, Any] | None:
        return self.saved.get(name)

    def save_consumer(self, _stream: str, config: dict[str, Any], _action: str) -> None:
        self.saved[config["name"]] = {"config": config, "created": "now", "cluster": CLUSTER}

    def _listed(self, assets: dict[str, Any]) -> list[str]:
        self.late -= 1
        return list(assets) if self.late < 0 else []

    def stream_names(self, subject: str | None = None) -> list[str]:
        assert subject == "orders.>"
        return self._listed(self.streams)

    def consumer_names(self, _stream: str) -> list[str]:
        return self._listed(self.saved)


def create(kind: str, late: int, wait_timeout: float) -> tuple[dict[str, Any], int]:
    """Create an asset; return the result, and how many listings are still missing."""
    meta = LateMetaLeader(late)
    api = cast(JetStreamApi, meta)
    options = RunOptions(False, frozenset(), wait_timeout)
    if kind == "stream":
        result = ensure_present(StreamAsset(api, "ORDERS"), {"subjects": ["orders.>"]}, options)
    else:
        meta.create_stream(STREAM)
        result = ensure_present(ConsumerAsset(api, "ORDERS", "billing"), {}, options)
    return result, meta.late


@pytest.mark.parametrize("kind", ["stream", "consumer"])
def test_a_creation_waits_until_the_meta_leader_lists_it(kind: str) -> None:
    result, left = create(kind, late=2, wait_timeout=5)
    assert (result["changed"], left) == (True, -1)


@pytest.mark.parametrize("kind", ["stream", "consumer"])
def test_a_creation_that_the_meta_leader_does_not_list_is_an_error(kind: str) -> None:
    with pytest.raises(NatsFailure, match=r"created, but the meta leader does not list it after 0\.3 s") as caught:
        create(kind, late=1000, wait_timeout=0.3)
    assert caught.value.code == "not_seen"
