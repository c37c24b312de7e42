# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Deletes all streams of an account as a user of the system account, without a user of the account itself.

Source: server/jetstream_api.go jsLeaderAccountPurgeRequest (2.9); the request also deletes the streams of accounts that
still exist, and the meta leader confirms it before anything is deleted."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ..nats.client import Client, NatsFailure
from ..nats.jetstream_api import require_name
from ..nats.meta_api import MetaApi
from ..nats.model import Cluster
from ..nats.system_api import SystemApi
from ..problem import Danger, refused_dangers
from ..screen import listed
from ..units import counted
from ..waiting import wait_until
from . import change_rules
from .state import RunOptions, asset_result


class AccountPurge:
    """The streams of one account, as all servers report them."""

    def __init__(self, client: Client, account: str) -> None:
        self._api = SystemApi(client)
        self._meta = MetaApi(client)
        self._name = account
        identity = self._api.account_id(self._api.discover().servers, account)
        # Servers use only the part of the name before the first dot.
        self.account = require_name("account", identity)

    def streams(self) -> dict[str, int]:
        """Return stream → number of messages. Raises NatsFailure incomplete if a server does not report its streams."""
        cluster = self._api.read_cluster(account=self.account, consumers=False, health=False)
        silent = _silent(cluster)
        if silent:
            raise self.failure(
                "incomplete",
                f"these servers do not report their streams: {', '.join(silent)}; start them, because streams that only "
                "they have cannot be listed",
            )
        found: dict[str, int] = {}
        for stream in cluster.streams:
            messages = int((stream.info.get("state") or {}).get("messages") or 0)
            found[stream.name] = max(messages, found.get(stream.name, 0))
        return found

    def request(self) -> None:
        self._meta.purge_account(self.account)

    def failure(self, code: str, description: str) -> NatsFailure:
        return NatsFailure(code, f"account {self._name}: {description}", account=self.account)


def _silent(cluster: Cluster) -> list[str]:
    """Return the servers with JetStream, and the members of the meta group, that did not report their streams."""
    without = {server.name for server in cluster.servers if server.jetstream and server.summary is None}
    return sorted(without | (cluster.meta_members - cluster.names))


def ensure_account_purged(
    purge: AccountPurge, expected: Sequence[str], unlisted: bool, run_options: RunOptions
) -> dict[str, Any]:
    """Delete all streams of an account, whose names must be the `expected` ones, and return the result. `unlisted`:
    whether to send the request although no server reports a stream. Raises NatsFailure: incomplete, conflict, dangerous,
    not_seen."""
    started = time.monotonic()
    found = purge.streams()
    if not found and not unlisted:
        return asset_result(False, {}, {}, {}, {}, started, [])
    differing = [
        *(f"{name} exists, but is not listed" for name in sorted(found.keys() - set(expected))),
        *(f"{name} is listed, but does not exist" for name in sorted(set(expected) - found.keys())),
    ]
    if differing:
        raise purge.failure(
            "conflict",
            f"streams: the list differs from the streams of the account; nothing was deleted:\n{listed(differing)}",
        )
    messages = sum(found.values())
    dangers = [
        Danger(
            change_rules.DATA_LOSS, f"{counted(len(found), 'stream')} with {counted(messages, 'message')} are deleted"
        )
    ]
    if not found:
        dangers = [Danger(change_rules.DATA_LOSS, "streams that no server reports are deleted")]
    refused = refused_dangers(dangers, run_options.allow)
    if refused:
        raise purge.failure("dangerous", refused)
    if not run_options.check_mode:
        purge.request()
        seen = wait_until(purge.streams, lambda left: not left, run_options.wait_timeout)
        if not seen.done:
            left = ", ".join(sorted(seen.value))
            raise purge.failure("not_seen", f"the purge was accepted, but these streams still exist: {left}")
    return asset_result(True, found, {}, {"streams": sorted(found)}, {"streams": []}, started, dangers)
