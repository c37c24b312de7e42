# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests a removal that must wait for another one; tests/integration/test_peers.py tests removals that need not wait."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.error_codes import MEMBER_CHANGE_IN_FLIGHT
from ansible_collections.natsops.jetstream.plugins.modules import nats_meta_peer
from support.clusters import cluster


class Busy:
    """A meta leader that is currently adding or removing another member."""

    def __init__(self, _client: Any) -> None:
        self.remove_server = self._refuse

    def _refuse(self, _name: str, _peer: str) -> None:
        raise NatsFailure("api_error", "member change in flight", err_code=MEMBER_CHANGE_IN_FLIGHT)


def test_pending_change_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_meta_peer, "MetaApi", Busy)
    meta = cluster(["n1", "n2", "n3"]).meta
    assert meta is not None
    (peer,) = [one for one, name in nats_meta_peer.member_names(meta).items() if name == "n3"]
    with pytest.raises(NatsFailure) as raised:
        nats_meta_peer.remove(None, meta, peer, 0.0)  # type: ignore[arg-type]
    assert raised.value.code == "member_change_in_flight"
    assert raised.value.description.endswith("was in progress for 0 s; n3 was not removed")


@pytest.mark.parametrize(
    ("server_name", "peer", "reason"),
    [("", None, "server_name is empty"), (" ", None, "server_name is empty"), (None, "xx", "'xx' is not a peer id"),
     (None, "", "'' is not a peer id"), (None, "../../..", "is not a peer id")],
)  # fmt: skip
def test_invalid_peer_ids_are_refused(server_name: str | None, peer: str | None, reason: str) -> None:
    with pytest.raises(NatsFailure, match=reason) as raised:
        nats_meta_peer.wanted_peer({"server_name": server_name, "peer_id": peer})
    assert raised.value.code == "invalid_option"
    assert nats_meta_peer.wanted_peer({"server_name": "n1", "peer_id": None}) == "fjFyEjc1"
    assert nats_meta_peer.wanted_peer({"server_name": None, "peer_id": "fjFyEjc1"}) == "fjFyEjc1"
