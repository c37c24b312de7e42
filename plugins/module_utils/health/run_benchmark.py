# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures how fast a temporary stream stores and delivers messages, and deletes the stream."""

from __future__ import annotations

import time
from secrets import token_hex
from typing import Any

from ..nats.client import Call, Client, NatsFailure, Reply
from ..nats.jetstream_api import JetStreamApi
from ..waiting import wait_until
from .benchmark import Load, figures
from .smoke_test import try_delete

#: The beginning of the stream's name and of its subject, which the role `natsops` permits.
_STREAM, _SUBJECT = "NATSOPS_BENCHMARK_", "natsops.smoke_test.benchmark."
_CONSUMER = "reader"
#: Seconds until all servers route requests to a new consumer.
_SUBSCRIPTION_SECONDS = 5.0


def run_benchmark(client: Client, api: JetStreamApi, load: Load, placement: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of both phases, with the server that led the stream. Raises NatsFailure; the stream is deleted
    in any case, and the message names it if its deletion failed."""
    name, subject = f"{_STREAM}{token_hex(4)}", f"{_SUBJECT}{token_hex(4)}"
    left = ""
    try:
        leader = _create(client, api, name, subject, load, placement)
        published, seconds, latencies = _publish(api, client, subject, load)
        info = api.stream(name)
        if info["state"]["messages"] != published:
            stored = info["state"]["messages"]
            raise NatsFailure("bad_reply", f"{name}: {published} messages were acknowledged, but {stored} are stored")
        consumed, reading = _consume(api, client, name, published, load)
    finally:
        left = try_delete(api, name, client.options.timeout)
    if left:
        raise NatsFailure("not_seen", left, account=api.account)
    return {
        "leader": leader,
        "publish": figures(published, load.size, seconds, latencies),
        "consume": figures(consumed, load.size, reading),
    }


def _create(
    client: Client, api: JetStreamApi, name: str, subject: str, load: Load, placement: dict[str, Any]
) -> str | None:
    """Create the stream, wait until it stores messages, and return its leader."""
    config: dict[str, Any] = {
        "name": name,
        "description": "benchmark; can be deleted",
        "subjects": [subject],
        "storage": load.storage,
        "retention": "limits",
        "discard": "new",
        "num_replicas": load.replicas,
        "max_bytes": load.max_bytes,
        "max_age": 3600 * 10**9,
    }
    api.create_stream({**config, "placement": placement} if placement else config)
    # The interest of a new stream may not have reached the connected server yet.
    wait_until(lambda: api.store(subject, b""), bool, client.options.timeout)
    api.purge_stream(name)
    leader = (api.stream(name).get("cluster") or {}).get("leader")
    return str(leader) if leader else None


def _publish(api: JetStreamApi, client: Client, subject: str, load: Load) -> tuple[int, float, list[float]]:
    """Return the number of acknowledged messages, the seconds that it took, and the latency of each message."""
    payload = b"x" * load.size
    latencies: list[float] = []
    started = time.monotonic()
    while len(latencies) < load.messages and time.monotonic() - started < load.seconds:
        number = min(load.window, load.messages - len(latencies))
        for outcome in client.request_many([Call(subject, payload)] * number):
            api.acknowledged(outcome)
            if isinstance(outcome, Reply):
                latencies.append(outcome.seconds)
    return len(latencies), time.monotonic() - started, latencies


def _consume(api: JetStreamApi, client: Client, name: str, expected: int, load: Load) -> tuple[int, float]:
    """Return the number of delivered messages, and the seconds that it took. Raises NatsFailure if messages are missing
    although there was time to deliver them."""
    config = {"name": _CONSUMER, "durable_name": _CONSUMER, "ack_policy": "none", "deliver_policy": "all"}
    api.save_consumer(name, config, "create")
    received = 0
    started = finished = time.monotonic()

    def on_reply(reply: Reply) -> bool:
        nonlocal received, finished
        if "Status" in reply.headers:
            return True
        received += 1
        finished = time.monotonic()
        return received == expected

    # A leader may confirm its consumer before all servers route requests to it.
    deadline = started + _SUBSCRIPTION_SECONDS
    while True:
        started = finished = time.monotonic()
        try:
            client.gather(api.next_messages(name, _CONSUMER, expected, load.seconds), on_reply, load.seconds)
            break
        except NatsFailure as failure:
            if failure.code != "no_responders" or received or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    if received < expected and finished - started < load.seconds / 2:
        raise NatsFailure(
            "timeout", f"{name}: only {received} of {expected} messages were delivered", account=api.account
        )
    return received, finished - started
