# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes assets while an independent application publishes and consumes: nothing is lost that the plan did not
announce."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import threading
from collections import defaultdict
from functools import partial

import nats
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.jetstream_api import JetStreamApi
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from nats.aio.client import Client
from support.asset_team import Document, Result, Team
from support.load import patiently, publish_stored
from support.nats_processes import NatsProcesses

pytestmark = pytest.mark.usefixtures("tidy")

#: Messages that must be acknowledged before a change begins, and again after it.
SOME = 40


class Application(threading.Thread):
    """Publishes numbered messages to subjects in turn, and counts the acknowledged ones. With a consumer, it also
    receives and acknowledges messages. `acknowledged`, `received`: the numbers by subject."""

    def __init__(self, servers: NatsProcesses, *subjects: str, consumer: tuple[str, str] | None = None) -> None:
        super().__init__()
        self._login = servers.app_connection()
        self._subjects = subjects
        self._consumer = consumer
        self._ended = threading.Event()
        self._all_published = False
        self.acknowledged: dict[str, list[int]] = defaultdict(list)
        self.received: dict[str, list[int]] = defaultdict(list)
        self.error: BaseException | None = None

    def __enter__(self) -> Application:
        self.start()
        self.publish_some()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.publish_some()
        self._ended.set()
        self.join(60)
        assert not self.is_alive() and self.error is None, self.error

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def publish_some(self) -> None:
        """Wait until further messages are acknowledged."""
        before = self.count
        assert wait_until(lambda: self.count, lambda count: count >= before + SOME or bool(self.error), 60).done

    def run(self) -> None:
        try:
            asyncio.run(self._work())
        except BaseException as error:
            self.error = error

    async def _work(self) -> None:
        client = await nats.connect(**self._login)
        try:
            work = [self._publish(client)]
            if self._consumer:
                work.append(self._receive(client, *self._consumer))
            await asyncio.gather(*work)
        finally:
            await client.close()

    async def _publish(self, client: Client) -> None:
        jetstream = client.jetstream(timeout=2)
        number = 0
        while not self._ended.is_set():
            number += 1
            subject = self._subjects[number % len(self._subjects)]
            send = partial(publish_stored, jetstream, subject, str(number).encode(), f"{subject}-{number}")
            await patiently(send)
            self.acknowledged[subject].append(number)
            await asyncio.sleep(0.002)
        self._all_published = True

    async def _receive(self, client: Client, stream: str, name: str) -> None:
        """Receive until the last message was published and the consumer has neither undelivered nor unacknowledged
        messages."""
        jetstream = client.jetstream(timeout=2)
        subscription = await patiently(partial(jetstream.pull_subscribe_bind, name, stream))
        while True:
            ended = self._all_published
            try:
                messages = await subscription.fetch(20, timeout=1)
            # nats-py raises asyncio's own error if the time ends between its two requests.
            except (nats.errors.Error, nats.js.errors.Error, asyncio.TimeoutError):
                consumer = await patiently(partial(jetstream.consumer_info, stream, name))
                if ended and not consumer.num_pending and not consumer.num_ack_pending:
                    return
                continue
            for message in messages:
                self.received[message.subject].append(int(message.data))
                # A message that was delivered again in the meantime is acknowledged by its next delivery.
                with contextlib.suppress(nats.errors.Error):
                    await message.ack_sync(timeout=2)


def stored(api: JetStreamApi, stream: str) -> dict[str, list[int]]:
    """Return the numbers of the stored messages by subject, in their order."""
    state = api.stream(stream)["state"]
    requests = [(f"STREAM.MSG.GET.{stream}", {"seq": seq}) for seq in range(state["first_seq"], state["last_seq"] + 1)]
    found: dict[str, list[int]] = defaultdict(list)
    for answer in api.call_many(requests):
        assert not isinstance(answer, NatsFailure), answer
        message = answer["message"]
        found[message["subject"]].append(int(base64.b64decode(message["data"])))
    return found


def messages_in(api: JetStreamApi, stream: str) -> int:
    return int(api.stream(stream)["state"]["messages"])


def costs(plan: Result, name: str) -> list[tuple[str, int | None]]:
    return [(one["message"], one["count"]) for row in plan["assets"] if row["name"] == name for one in row["costs"]]


def test_lowered_limit_deletes_only_the_oldest_messages(api: JetStreamApi, five: NatsProcesses, team: Team) -> None:
    team.make({"streams": {"S": {"replicas": 3}}})
    limited: Document = {"streams": {"S": {"replicas": 3, "max_msgs": 25}}}
    with Application(five, "S") as application:
        plan = team.plan(limited, confirm=["S"])
        ((message, count),) = costs(plan, "S")
        assert count is not None and count >= SOME - 25 and message.startswith("max_msgs: 25 deletes")
        announced = application.count - 25
        team.done(plan, limited)
    acknowledged = application.acknowledged["S"]
    assert announced >= count - 1
    assert stored(api, "S")["S"] == acknowledged[-25:]


def test_extended_subjects_lose_nothing(api: JetStreamApi, five: NatsProcesses, team: Team) -> None:
    team.make({"streams": {"S": {"subjects": ["a.*"], "replicas": 3}}})
    wider: Document = {"streams": {"S": {"subjects": ["a.*", "b.*"], "replicas": 3}}}
    with Application(five, "a.1", "a.2") as first:
        plan = team.plan(wider)
        assert costs(plan, "S") == []
        team.done(plan, wider)
        with Application(five, "b.1") as second:
            pass
    assert stored(api, "S") == {**first.acknowledged, **second.acknowledged}


def test_more_replicas_lose_nothing(api: JetStreamApi, five: NatsProcesses, team: Team) -> None:
    team.make({"streams": {"S": {"consumers": {"c": {}}}}})
    scaled: Document = {"streams": {"S": {"replicas": 3, "consumers": {"c": {}}}}}
    with Application(five, "S", consumer=("S", "c")) as application:
        plan = team.plan(scaled)
        assert costs(plan, "S") == []
        team.done(plan, scaled)
    assert len(api.stream("S")["cluster"]["replicas"]) == 2
    assert stored(api, "S") == application.acknowledged
    assert sorted(set(application.received["S"])) == application.acknowledged["S"]


def test_promoted_mirror_keeps_every_copied_message(
    api: JetStreamApi, five: NatsProcesses, team: Team, version: str
) -> None:
    streams = {"ORIGIN": {"subjects": ["o.*"], "replicas": 3}}
    team.make({"streams": streams, "mirrors": {"M": {"of": "ORIGIN", "replicas": 3}}})
    promoted: Document = {"streams": {**streams, "M": {"subjects": ["m.*"], "replicas": 3}}}
    with Application(five, "o.1") as application:
        plan = team.plan(promoted, confirm=["M"])
        (row,) = [one for one in plan["assets"] if one["name"] == "M"]
        if version.startswith("2.10"):
            assert "mirror: " in row["problems"][0] and "only on 2.12 and later" in row["problems"][0]
            assert team.done(plan, promoted)["changed"] is False
        else:
            assert costs(plan, "M") == [("a promoted mirror cannot become a mirror again", None)]
            before = application.count
            assert wait_until(partial(messages_in, api, "M"), lambda count: count >= before, 30).done
            team.done(plan, promoted)
            with Application(five, "m.1") as direct:
                pass
    assert stored(api, "ORIGIN") == application.acknowledged
    if version.startswith("2.10"):
        return
    copied = stored(api, "M")
    assert len(copied["o.1"]) >= before
    assert copied["o.1"] == application.acknowledged["o.1"][: len(copied["o.1"])]
    assert copied["m.1"] == direct.acknowledged["m.1"]


def test_changed_filter_delivers_every_selected_message(api: JetStreamApi, five: NatsProcesses, team: Team) -> None:
    def filtered(*subjects: str) -> Document:
        consumers = {"c": {"filter_subjects": list(subjects), "ack_wait": "5s"}}
        return {"streams": {"S": {"subjects": ["s.*"], "replicas": 3, "consumers": consumers}}}

    team.make(filtered("s.1"))
    with Application(five, "s.1", "s.2", consumer=("S", "c")) as application:
        plan = team.plan(filtered("s.1", "s.2"))
        assert costs(plan, "S/c") == []
        team.done(plan, filtered("s.1", "s.2"))
        at_change = application.count
        application.publish_some()
    assert stored(api, "S") == application.acknowledged
    assert sorted(set(application.received["s.1"])) == application.acknowledged["s.1"]
    later = [number for number in application.acknowledged["s.2"] if number > at_change + 1]
    assert later and set(later) <= set(application.received["s.2"])
