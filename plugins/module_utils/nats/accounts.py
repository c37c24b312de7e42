# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One connection for each account that is worked on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import (
    Client,
    ConnectionOptions,
    NatsFailure,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.jetstream_api import JetStreamApi

#: The kinds of credentials, each with its options, in the order in which one is chosen within a source.
CREDENTIAL_KINDS = (("credentials",), ("nkey_seed",), ("user", "password"), ("token",))


class Connections:
    """The connections of one run: the task's own user, and a user of each account of `account_users`; made on first use."""

    def __init__(self, options: ConnectionOptions, users: Mapping[str, ConnectionOptions]) -> None:
        self._options = options
        self._users = users
        self._clients: dict[str | None, Client] = {}

    def __enter__(self) -> Connections:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for client in self._clients.values():
            client.close()

    @property
    def own(self) -> Client:
        """Return the connection of the task's own user."""
        return self._client(None, self._options)

    @property
    def accounts(self) -> tuple[str, ...]:
        """Return the names of the accounts that have a user."""
        return tuple(self._users)

    def account(self, name: str | None) -> JetStreamApi:
        """Return the JetStream API of an account, over the connection that `client` returns. Raises NatsFailure likewise."""
        return JetStreamApi(self.client(name), name)

    def client(self, name: str | None) -> Client:
        """Return the connection of an account's user, or for None that of the task's own user.

        Raises NatsFailure invalid_option when `account_users` names no user for it.
        """
        if name is None:
            return self.own
        if name not in self._users:
            there = ", ".join(self._users) or "none"
            raise NatsFailure(
                "invalid_option",
                f"account_users: no user for account {name} (there are users for: {there}); "
                "its streams and consumers can only be managed by one of its own users",
                account=name,
            )
        return self._client(name, self._users[name])

    def _client(self, key: str | None, options: ConnectionOptions) -> Client:
        if key not in self._clients:
            self._clients[key] = Client(options)
        return self._clients[key]


def account_users(own: ConnectionOptions, entries: Sequence[Mapping[str, Any]]) -> dict[str, ConnectionOptions]:
    """Return how each account's user connects: as the task's own user does, with other credentials."""
    users: dict[str, ConnectionOptions] = {}
    for entry in entries:
        if entry["account"] in users:
            raise NatsFailure("invalid_option", f"account_users: two users for account {entry['account']}")
        users[entry["account"]] = as_user(own, entry)
    return users


def as_user(own: ConnectionOptions, credentials: Mapping[str, Any]) -> ConnectionOptions:
    """Return the connection with these credentials in place of its own."""
    given: dict[str, Any] = {option: credentials.get(option) for kind in CREDENTIAL_KINDS for option in kind}
    return replace(own, **{**given, "nkey_seed": read_nkey(given["nkey_seed"])})


def read_nkey(value: str | None) -> str | None:
    """Return the nkey seed itself; the nats CLI passes the path of a file that holds it."""
    if value is None or (value.startswith("SU") and len(value) >= 58 and value.isalnum()):
        return value
    path = Path(os.path.expanduser(value))
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise NatsFailure(
            "invalid_option", "nkey_seed: neither the seed of a user (SU...) nor the path of a readable file with one"
        ) from error
    seeds = [line.strip() for line in text.splitlines() if line.strip().startswith("SU")]
    if not seeds:
        raise NatsFailure("invalid_option", f"nkey_seed: no seed of a user (SU...) in {path}")
    return seeds[0]
