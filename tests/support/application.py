# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The JetStream API of the account APP of running servers, and the removal of its streams after a test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import (
    Client,
    ConnectionOptions,
    NatsFailure,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.jetstream_api import JetStreamApi
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until


@contextlib.contextmanager
def application_api(app: Mapping[str, Any]) -> Iterator[JetStreamApi]:
    """Log in with the servers, user and password of the application."""
    with Client(ConnectionOptions(tuple(app["servers"]), app["user"], app["password"], timeout=5)) as client:
        yield JetStreamApi(client, "APP")


@contextlib.contextmanager
def new_streams_deleted(app: Mapping[str, Any]) -> Iterator[None]:
    """Delete the streams that the block has created in the account; others, which further tests share, stay."""
    with application_api(app) as api:
        before = set(api.stream_names())
    yield
    with application_api(app) as api:

        def new() -> list[str]:
            return [name for name in api.stream_names() if name not in before]

        for name in new():
            with contextlib.suppress(NatsFailure):
                api.delete_stream(name)
        # The meta leader, which lists the streams, may apply a change after the server that has answered.
        assert wait_until(new, lambda names: not names, 10).done
