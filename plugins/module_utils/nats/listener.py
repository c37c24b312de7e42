# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A NATS connection for asynchronous code that receives messages from subscriptions and from a pull consumer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Callable

from .connection import Call, Connection, Session, reply_status
from .failures import NatsFailure

#: Seconds for which a pull request waits in the server for a message.
PULL_EXPIRES = 20.0


@dataclass(frozen=True)
class ReceivedMessage:
    """A received message. A message from a stream also has its `sequence` in the stream, the time it was `stored`, and
    the number of its `deliveries` so far."""

    subject: str
    body: bytes
    sequence: int | None = None
    stored: datetime | None = None
    deliveries: int = 1


class Listener(Session):
    """A connection for asynchronous code that receives messages until it is lost. Used as an asynchronous context
    manager.

    Every method raises NatsFailure connection_lost as soon as the connection is lost. The caller must then handle
    missed messages and reconnect.
    """

    # A server that vanished is detected within half a minute.
    _ping_interval = 10

    async def __aenter__(self) -> Listener:
        self._waiting: asyncio.Queue[Any] = asyncio.Queue()
        self._connection = await self._connect()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._disconnect()

    async def subscribe(self, subjects: Sequence[str]) -> None:
        """Subscribe to these subjects; their messages wait in memory for `deliver`. Raises NatsFailure permission if
        the user may not subscribe."""
        connection = self._connected()
        names = ", ".join(subjects)
        for subject in subjects:
            await connection.subscribe(subject, self._waiting.put)
        await connection.ping(self.options.timeout, names)
        denial = connection.denials.find(subjects)
        if denial:
            raise denial

    @property
    def info(self) -> Mapping[str, Any]:
        """Return the last announcement (INFO) of the server."""
        return self._connected().info

    async def publish(self, call: Call) -> None:
        """Return once the server has received a message. Raises NatsFailure permission if the user may not publish it."""
        failure = await self._publish_one(self._connected(), call)
        if failure:
            raise failure

    async def deliver(self, on_message: Callable[[ReceivedMessage], Awaitable[None]]) -> None:
        """Pass each message of the subscriptions to `on_message`, one at a time, until NatsFailure connection_lost."""
        connection = self._connected()
        while True:
            if self._waiting.empty():
                message = await connection.complete(self._waiting.get(), None, None)
            else:
                message = self._waiting.get_nowait()  # including messages from before the connection was lost
            await on_message(ReceivedMessage(message.subject, message.data))

    async def pull(
        self, stream: str, consumer: str, ack_wait: float, on_message: Callable[[ReceivedMessage], Awaitable[None]]
    ) -> None:
        """Pass each message of a pull consumer to `on_message`, one at a time, and acknowledge each message once
        `on_message` has returned.

        Until then, the server is kept from delivering the message again, which it would do after `ack_wait` seconds.
        Ends only with a NatsFailure: connection_lost, timeout, no_responders if the consumer has no leader or does not
        exist, and api_error for any other status that the server sends instead of a message. If `on_message` raises an
        exception, the message is not acknowledged.
        """
        connection = self._connected()
        domain = f"{self.options.jetstream_domain}." if self.options.jetstream_domain else ""
        subject = f"$JS.{domain}API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        request = Call(subject, json.dumps({"batch": 1, "expires": int(PULL_EXPIRES * 1e9)}).encode())
        inbox = connection.new_inbox()
        subscription = await connection.subscribe(inbox)
        while True:
            since = connection.denials.count
            await connection.publish(request, reply=inbox)
            message = await connection.receive(subscription, subject, PULL_EXPIRES + self.options.timeout, since)
            status = reply_status(message)
            if status is None:
                await self._work_on(message, ack_wait, on_message)
            elif status not in ("404", "408"):  # no message arrived in time
                code = "no_responders" if status == "503" else "api_error"
                reason = (message.headers or {}).get("Description") or "the consumer has no leader or no longer exists"
                raise NatsFailure(code, f"consumer {consumer} of stream {stream}: {reason}", subject=subject)

    async def _work_on(
        self, message: Any, ack_wait: float, on_message: Callable[[ReceivedMessage], Awaitable[None]]
    ) -> None:
        connection = self._connected()
        work = asyncio.ensure_future(on_message(_stored_message(message)))
        try:
            while not (await asyncio.wait({work}, timeout=ack_wait / 3))[0]:
                await connection.complete(message.in_progress(), message.reply, None)
            work.result()
        finally:
            work.cancel()
        await connection.complete(message.ack_sync(self.options.timeout + 1), message.reply, self.options.timeout)

    def _connected(self) -> Connection:
        if self._connection is None:
            raise NatsFailure("connection_lost", "not connected")
        return self._connection


def _stored_message(message: Any) -> ReceivedMessage:
    """Return a message that a consumer delivered. Raises NatsFailure bad_reply for any other message."""
    try:
        metadata = message.metadata
    except Exception as error:  # pylint: disable=broad-except  # nats-py parses the reply subject
        raise NatsFailure("bad_reply", f"this is not a consumer message: {error}", subject=message.subject) from error
    sequence = metadata.sequence.stream
    return ReceivedMessage(message.subject, message.data, sequence, metadata.timestamp, metadata.num_delivered)
