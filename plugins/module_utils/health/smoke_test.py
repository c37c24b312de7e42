# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests a cluster as a client would: sends messages between all servers, then writes and reads a stream.

There is one connection to each server, and one to each further address advertised to clients. Everything created is
deleted.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ipaddress
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Union
from urllib.parse import urlsplit

from ..nats.account_names import is_account_key
from ..nats.client import Call, Client, ConnectionOptions, NatsFailure
from ..nats.error_codes import NOT_ENABLED, STREAM_NOT_FOUND
from ..nats.jetstream_api import JetStreamApi
from ..nats.listener import Listener, ReceivedMessage
from ..nats.system_api import SystemApi
from ..waiting import is_transient, wait_until
from .message_flow import Address, Announcement, Flow, StreamTest, addresses_to_try

#: Seconds between two rounds of messages, because interest takes a moment to spread between servers.
_ROUND = 0.2
#: Seconds to wait for a reply from the API; a user without permission receives none.
_PROBE = 2.0
#: Maximum number of concurrent connection attempts.
_CONCURRENT = 32
#: There are not enough servers for the number of replicas (JSClusterNoPeersErr), or there is no cluster.
_FEWER_REPLICAS = (10005, 10074)
#: The account may not have another stream of this kind (errors.json: limits and resources).
_LIMITS = (10002, 10023, 10026, 10027, 10028, 10035, 10047, 10120, 10122)
_DEFAULT_PORT = 4222


@dataclass(frozen=True)
class User:
    """A user of an account; the account is empty for the task's own user."""

    account: str
    options: ConnectionOptions

    @property
    def name(self) -> str:
        """Return the user's display name."""
        kinds = {"a short-lived user": self.options.minted, "the user of a credentials file": self.options.credentials}
        return self.options.user or next((name for name, given in kinds.items() if given), "the user")


@dataclass(frozen=True)
class Choice:
    """The user who sends the messages, the user who manages the stream (None if there is none), and why other users
    were skipped."""

    sender: User | None = None
    manager: User | None = None
    reasons: tuple[str, ...] = ()


def choose_users(users: Sequence[User], subject: str) -> Choice:
    """Return the first user that may publish and subscribe to the subject, and the user of the same account that may
    manage streams."""
    reasons: list[str] = []
    for account in dict.fromkeys(user.account for user in users):
        sender: User | None = None
        manager: User | None = None
        for user in (one for one in users if one.account == account):
            with Client(user.options) as client:
                try:
                    if manager is None and _manages_streams(client, user, subject):
                        manager = user
                    if sender is None:
                        _require_messages(client, subject)
                        sender = user
                except NatsFailure as failure:
                    where = f" of account {account}" if account else ""
                    reasons.append(f"{user.name}{where} was not used: {failure.description}")
            if sender and manager:
                break
        if sender:
            return Choice(sender, manager, tuple(reasons))
    return Choice(reasons=tuple(reasons))


def login_failures(users: Sequence[User]) -> list[str]:
    """Return a reason for each user that a server rejects, or that belongs to a different account than specified.
    Servers before 2.10 do not report accounts, and 2.10 reports only the public key in operator mode; in these cases,
    the accounts are not compared."""
    failures = []
    for user in users:
        with Client(user.options) as client:
            try:
                client.connect()
            except NatsFailure as failure:
                rejected = failure.code == "authorization"
                reason = "every server rejects this login" if rejected else failure.description
                failures.append(f"{user.name} of account {user.account}: {reason}")
                continue
            names = SystemApi(client).own_account_name()
        known = {*names, *names.values()}
        comparable = is_account_key(user.account) or not all(map(is_account_key, known))
        if known and comparable and user.account not in known:
            failures.append(f"{user.name} of account {user.account} belongs to account {next(iter(names.values()))}")
    return failures


def _manages_streams(client: Client, user: User, subject: str) -> bool:
    """Return whether JetStream responds to this user. Raises NatsFailure if a stream of the account would store the
    messages."""
    try:
        found = JetStreamApi(client, user.account).call("STREAM.NAMES", {"subject": subject}, _PROBE).get("streams")
    except NatsFailure as failure:
        if failure.err_code in NOT_ENABLED or failure.code in ("timeout", "no_responders", "permission"):
            return False
        raise
    if found:
        raise NatsFailure("invalid_option", f"stream {found[0]} stores the messages sent on {subject}", subject=subject)
    return True


def _require_messages(client: Client, subject: str) -> None:
    """Raise NatsFailure if the user may not subscribe to the subject or publish to it."""
    client.observe([subject], 0, lambda _message: True)
    (failure,) = client.publish([Call(subject)])
    if failure:
        raise failure


class _Endpoint:
    """A connection that sends and receives the messages of one run."""

    def __init__(self, label: str, listener: Listener) -> None:
        self.label = label
        self.listener = listener
        self.received: set[str] = set()


async def exchange(options: ConnectionOptions, expected: frozenset[str], subject: str, timeout: float) -> Flow:
    """Return the received messages by endpoint and sender, at most `timeout` seconds after all endpoints have
    connected. The endpoints are the servers in the options and the further addresses advertised to clients. The subject
    is unique to this run. If there is no subject, nothing is sent, and every message counts as received."""
    async with contextlib.AsyncExitStack() as stack:
        limit = asyncio.Semaphore(_CONCURRENT)

        async def connect(where: ConnectionOptions) -> Union[Listener, NatsFailure]:
            async with limit:
                try:
                    return await stack.enter_async_context(Listener(where))
                except NatsFailure as failure:
                    return failure

        tried = await asyncio.gather(*(connect(replace(options, servers=(url,))) for url in options.servers))
        reached = {url: one for url, one in zip(options.servers, tried) if isinstance(one, Listener)}
        unreached = {
            _without_user(url): _plain(one) for url, one in zip(options.servers, tried) if isinstance(one, NatsFailure)
        }
        endpoints: dict[str, _Endpoint] = {}
        for url, listener in reached.items():
            name = _announcement(listener).name
            # Two addresses of one server count as two ways for clients to connect.
            label = name if name not in endpoints else f"{name} at {_host_port(url)}"
            endpoints[label] = _Endpoint(label, listener)
        announced = {announcement.name: announcement for announcement in map(_announcement, reached.values())}
        addresses = addresses_to_try(list(announced.values()), {_host_port(url) for url in options.servers})
        others = await asyncio.gather(*(connect(_at(options, address)) for address in addresses))
        led = []
        for address, other in zip(addresses, others):
            if isinstance(other, NatsFailure):
                led.append(Address(address, reason=_plain(other)))
                continue
            name = _announcement(other).name
            led.append(Address(address, name))
            if name in expected | set(announced):
                label = name if name not in endpoints else f"{name} at {address}"
                endpoints[label] = _Endpoint(label, other)
                announced.setdefault(name, _announcement(other))
        await _talk(list(endpoints.values()), subject, timeout)
        return Flow(
            expected,
            tuple(announced.values()),
            unreached,
            tuple(led),
            tuple(endpoints),
            {label: frozenset(endpoint.received) for label, endpoint in endpoints.items()},
        )


async def _talk(endpoints: Sequence[_Endpoint], subject: str, timeout: float) -> None:
    """Publish from each endpoint until all endpoints have received all messages, or for `timeout` seconds."""
    complete = asyncio.Event()
    labels = {endpoint.label for endpoint in endpoints}
    waiting = set(labels)
    if not subject:
        for endpoint in endpoints:
            endpoint.received.update(labels)
        return

    async def listen(endpoint: _Endpoint) -> None:
        async def note(message: ReceivedMessage) -> None:
            endpoint.received.add(message.body.decode(errors="replace"))
            if labels <= endpoint.received:
                waiting.discard(endpoint.label)
            if not waiting:
                complete.set()

        with contextlib.suppress(NatsFailure):  # a failed publish shows up as a missing message
            await endpoint.listener.subscribe([subject])
            await endpoint.listener.deliver(note)

    async def send(endpoint: _Endpoint) -> None:
        with contextlib.suppress(NatsFailure):
            await endpoint.listener.publish(Call(subject, endpoint.label.encode()))

    loop = asyncio.get_running_loop()
    end = loop.time() + timeout
    listening = [asyncio.ensure_future(listen(endpoint)) for endpoint in endpoints]
    try:
        while endpoints and not complete.is_set() and loop.time() < end:
            await asyncio.gather(*map(send, endpoints))
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(complete.wait(), min(_ROUND, max(0.01, end - loop.time())))
    finally:
        for task in listening:
            task.cancel()
        await asyncio.gather(*listening, return_exceptions=True)


def try_stream(
    manager: Client, sender: Client, account: str, name: str, subject: str, replicas: int, timeout: float
) -> StreamTest:
    """Create a stream, write and read a message, and delete the stream. A missing permission or an account limit does
    not count as a failure."""
    api = JetStreamApi(manager, account or None)
    try:
        replicas = _create(api, name, subject, replicas, timeout)
    except NatsFailure as failure:
        refused = failure.code == "permission" or failure.err_code in (*_LIMITS, *NOT_ENABLED)
        # If the reply was lost, the stream may exist.
        left = try_delete(api, name, timeout) if is_transient(failure) else ""
        reason = f"it cannot be created: {failure.description}{f'; {left}' if left else ''}"
        return StreamTest(0 if refused else replicas, reason)
    left = ""
    try:
        outcome = _write_and_read(api, sender, name, subject, replicas, timeout)
    finally:
        left = try_delete(api, name, timeout)
    return StreamTest(replicas, left) if left else outcome


def _write_and_read(
    api: JetStreamApi, sender: Client, name: str, subject: str, replicas: int, timeout: float
) -> StreamTest:
    body = f"a message of {name}".encode()
    try:
        sequence = _write(sender, Call(subject, body, {"Nats-Msg-Id": name}), timeout)
    except NatsFailure as failure:
        refused = failure.code == "permission"
        return StreamTest(0 if refused else replicas, f"it cannot be written: {failure.description}")
    try:
        read = wait_until(lambda: api.call(f"STREAM.MSG.GET.{name}", {"seq": sequence}), lambda _reply: True, timeout)
    except NatsFailure as failure:
        return StreamTest(replicas, f"it cannot be read: {failure.description}")
    same = base64.b64decode(read.value["message"].get("data") or "") == body
    return StreamTest(replicas, "" if same else "it returned a different message from the written one")


def _create(api: JetStreamApi, name: str, subject: str, replicas: int, timeout: float) -> int:
    """Create the stream with as many of the replicas as the servers allow; return their number."""
    config: dict[str, Any] = {
        "name": name,
        "description": "smoke test; can be deleted",
        "subjects": [subject],
        "storage": "file",
        "retention": "limits",
        "discard": "old",
        "num_replicas": replicas,
        "max_msgs": 10,
        "max_bytes": 1024 * 1024,
        "max_age": 300 * 10**9,
    }
    while True:
        try:
            wait_until(lambda: api.create_stream(config), lambda _reply: True, timeout)
            return int(config["num_replicas"])
        except NatsFailure as failure:
            if failure.err_code not in _FEWER_REPLICAS or config["num_replicas"] == 1:
                raise
            config["num_replicas"] = 1


def _write(sender: Client, message: Call, timeout: float) -> int:
    """Store the message and return its sequence. Raises NatsFailure. A message that arrives twice is stored once.

    Before 2.11, a leader acknowledges a repeated message that it has not stored yet with the sequence 0.
    """

    def publish() -> dict[str, Any]:
        reply = json.loads(sender.request(message).body)
        error = reply.get("error")
        if error:
            raise NatsFailure("api_error", str(error.get("description")), err_code=error.get("err_code"))
        if not reply["seq"]:
            raise NatsFailure("timeout", "no leader has stored it yet")
        return dict(reply)

    return int(wait_until(publish, lambda _reply: True, timeout).value["seq"])


def try_delete(api: JetStreamApi, name: str, timeout: float) -> str:
    """Delete the stream and return why the deletion failed, if it did."""
    try:
        wait_until(lambda: api.call(f"STREAM.DELETE.{name}"), lambda _reply: True, timeout)
    except NatsFailure as failure:
        if failure.err_code != STREAM_NOT_FOUND:
            return f"{name} could not be deleted, delete it by hand: {failure.description}"
    return ""


def _announcement(listener: Listener) -> Announcement:
    info = listener.info
    host, port = str(info.get("host") or ""), info.get("port")
    own = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return Announcement(
        str(info.get("server_name") or info.get("server_id") or ""),
        own,
        tuple(info.get("connect_urls") or ()),
        bool(info.get("jetstream")),
    )


def _at(options: ConnectionOptions, address: str) -> ConnectionOptions:
    """Return the options for connecting to an advertised address, as for the server that advertises it. For a numeric
    address, the certificate must match the name of that server, as clients require."""
    first = urlsplit(options.servers[0] if "://" in options.servers[0] else f"nats://{options.servers[0]}")
    name = options.tls_server_name
    if options.wants_tls and not name and _is_ip(address.rpartition(":")[0].strip("[]")):
        name = first.hostname
    return replace(options, servers=(f"{first.scheme}://{address}",), tls_server_name=name)


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _host_port(url: str) -> str:
    parts = urlsplit(url if "://" in url else f"nats://{url}")
    host = parts.hostname or ""
    return f"[{host}]:{parts.port or _DEFAULT_PORT}" if ":" in host else f"{host}:{parts.port or _DEFAULT_PORT}"


def _without_user(url: str) -> str:
    parts = urlsplit(url if "://" in url else f"nats://{url}")
    return f"{parts.scheme}://{_host_port(url)}"


def _plain(failure: NatsFailure) -> str:
    """Return why the connection to one address failed, without the address."""
    text = failure.description
    start = f"cannot connect: {failure.server}: "
    return text[len(start) :] if text.startswith(start) else text
