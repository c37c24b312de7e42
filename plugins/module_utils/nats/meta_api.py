# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of the JetStream API that the system account uses: the meta group, its servers, and moves of streams."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .api_requests import ApiRequests
from .client import Progress, Reply, refuse_constant


class MetaApi(ApiRequests):
    """Operations on the meta group, by a user of the system account. Only the meta leader replies to these requests."""

    silence = "no meta leader, or the wrong account (this requires a user of the system account)"

    def step_down(self, body: Mapping[str, Any] | None = None) -> None:
        """Request a step-down from the meta leader. The reply precedes the election; `body` is a
        JSApiLeaderStepdownRequest, which servers use from 2.11 on."""
        self.call("META.LEADER.STEPDOWN", body)

    def remove_server(self, name: str, peer_id: str = "") -> None:
        """Remove a server from the meta group. If both are given, `peer_id` takes precedence over the name."""
        self.call("SERVER.REMOVE", {"peer": name, **({"peer_id": peer_id} if peer_id else {})})

    def rescue(self, quorum: int, servers: int) -> list[dict[str, Any]]:
        """Make every server of the system account that receives the request elect a meta leader with `quorum` votes for
        five minutes (2.15, ADR-61), and return the reply of each, with `server` and `new_quorum` or `error`. `servers`:
        the expected number of replies.

        The request cannot be sent to selected servers only. Raises NatsFailure if there is no reply."""
        answers: list[dict[str, Any]] = []

        def on_reply(reply: Reply) -> Progress:
            try:
                answer = json.loads(reply.body, parse_constant=refuse_constant)
            except (ValueError, RecursionError):
                answer = None
            answers.append(answer if isinstance(answer, dict) else {"error": {"description": "not a JSON object"}})
            # Any further reply would come from an unexpected server; the call waits for such replies.
            return False if len(answers) < servers else None

        self._client.gather(self._call("META.RESCUE", {"quorum_needed": quorum}), on_reply)
        return answers

    def move_stream(
        self, account: str, stream: str, server: str | None = None, cluster: str | None = None, tags: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Move a stream off a server, to a cluster or to servers with these tags (2.9); return the new STREAM.INFO."""
        placement = {"server": server, "cluster": cluster, "tags": list(tags)}
        return self.call(
            f"ACCOUNT.STREAM.MOVE.{account}.{stream}", {key: value for key, value in placement.items() if value}
        )

    def purge_account(self, account: str) -> None:
        """Delete all streams of an account, given by identity. The reply precedes the deletion."""
        self.call(f"ACCOUNT.PURGE.{account}")

    def cancel_move(self, account: str, stream: str) -> dict[str, Any]:
        """Cancel a move in progress and return the STREAM.INFO."""
        return self.call(f"ACCOUNT.STREAM.CANCEL_MOVE.{account}.{stream}")
