# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the load generator of the tests: its records must match the streams after a server dies, and must not match
after the records have been altered."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import nats
import nats.errors
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.server_versions import UNSTORED_ACKNOWLEDGED
from nats.js.errors import APIError
from support.load import Ledger, Load, LoadPlan, compare, publish_stored
from support.module_runs import Runner, form
from support.nats_processes import APP_PASSWORD, APP_USER, NatsProcesses

BOOK = Ledger("S", "s.p0", ["s.p0-0", "s.p0-1", "s.p0-2"])


@pytest.mark.parametrize(
    ("stored", "word"),
    [
        (["s.p0-0", "s.p0-2"], "1 of 3 acknowledged messages are lost, such as s.p0-1"),
        (["s.p0-0", "s.p0-1", "s.p0-1", "s.p0-2"], "more than once"),
        (["s.p0-1", "s.p0-0", "s.p0-2"], "out of order"),
        (["s.p0-0", "s.p0-1", "s.p0-2", "s.p0-3", "s.p0-4"], "unexpected messages"),
    ],
)
def test_books_that_do_not_balance(stored: list[str], word: str) -> None:
    assert any(word in problem for problem in compare(BOOK, stored))


def test_last_message_without_an_acknowledgement_is_not_a_fault() -> None:
    assert compare(BOOK, ["s.p0-0", "s.p0-1", "s.p0-2", "s.p0-3"]) == []


async def goes_on(load: Load) -> None:
    """Wait until every part of the load has done more work than was in flight."""
    before, end = load.report(), time.monotonic() + 30
    for what, least in (("acknowledged", 20), ("consumed", 20), ("counted", 3), ("answered", 3)):
        while getattr(load.report(), what) < getattr(before, what) + least:
            assert time.monotonic() < end, (what, load.report())
            await asyncio.sleep(0.05)


def test_the_books_balance_when_a_server_dies(make_cluster: Callable[..., NatsProcesses], run_module: Runner) -> None:
    cluster = form(make_cluster(["n1", "n2", "n3"]), run_module)

    async def work() -> None:
        load = Load(cluster.urls, APP_USER, APP_PASSWORD, LoadPlan(rate=100))
        await load.prepare()
        running = asyncio.create_task(load.run())
        await goes_on(load)
        cluster.kill("n2")
        await goes_on(load)
        cluster.start("n2")
        await asyncio.to_thread(form, cluster, run_module)
        await goes_on(load)
        load.stop()
        await running
        assert await load.verify() == []
        sealed = load.ledgers[0]
        load.ledgers[0] = replace(sealed, acknowledged=sealed.acknowledged[1:-1])
        assert any("unexpected messages" in problem for problem in await load.verify())

    asyncio.run(work())


class DeafLoad(Load):
    """A load in which one loop loses its cancellation."""

    async def _ask(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)


def test_failing_test_ends_its_load(make_cluster: Callable[..., NatsProcesses], run_module: Runner) -> None:
    cluster = form(make_cluster(["n1", "n2", "n3"]), run_module)

    async def work() -> None:
        load = DeafLoad(cluster.urls, APP_USER, APP_PASSWORD, LoadPlan(rate=100))
        await load.prepare()
        running = asyncio.create_task(load.run())
        while not load.report().acknowledged:
            await asyncio.sleep(0.05)
        raise RuntimeError(f"the test fails, and with it {running}")

    def run() -> None:
        with contextlib.suppress(RuntimeError):
            asyncio.run(work())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


def test_unstored_messages_are_not_recorded(make_cluster: Callable[..., NatsProcesses], run_module: Runner) -> None:
    """Without its followers, a stream's leader only proposes a message, and the publisher sends it again."""
    cluster = form(make_cluster(["n1", "n2", "n3"]), run_module)
    leader = cluster.add_stream("S", 3, subjects=["s"])["cluster"]["leader"]
    followers = [name for name in cluster.names if name != leader]

    async def publish() -> list[str]:
        connection = await nats.connect(cluster.url(leader), user=APP_USER, password=APP_PASSWORD)
        with contextlib.suppress(nats.errors.TimeoutError):
            await connection.request("s", b"x", timeout=0.5, headers={"Nats-Msg-Id": "1"})
        again = await connection.request("s", b"x", timeout=0.5, headers={"Nats-Msg-Id": "1"})
        with pytest.raises((nats.errors.TimeoutError, APIError)):
            await publish_stored(connection.jetstream(timeout=0.5), "s", b"x", "1")
        await connection.close()
        return [key for key in ("error", "duplicate") if key in json.loads(again.data)]

    for name in followers:
        cluster.processes[name].send_signal(signal.SIGSTOP)
    told = asyncio.run(publish())
    assert told == (["duplicate"] if UNSTORED_ACKNOWLEDGED.affects(cluster.version) else ["error"])
