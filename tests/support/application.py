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


def delete_streams(api: JetStreamApi) -> None:
    """Delete all streams of the account."""
    for name in api.stream_names():
        with contextlib.suppress(NatsFailure):
            api.delete_stream(name)
    # The meta leader, which lists the streams, may apply a change after the server that has answered.
    assert wait_until(api.stream_names, lambda names: not names, 10).done
