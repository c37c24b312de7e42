# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Restores the servers' own MQTT streams to empty disks: sessions, undelivered messages and retained messages."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from paho.mqtt.enums import CallbackAPIVersion
from support.backup_site import Accounts, Run
from support.module_runs import form
from support.nats_processes import APP_PASSWORD, APP_USER, NatsProcesses, free_ports


class Device:
    """A connected MQTT client whose session the servers keep."""

    def __init__(self, port: int, name: str) -> None:
        self.received: list[bytes] = []
        self.resumed = False
        connected, self._subscribed = threading.Event(), threading.Event()
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=name, clean_session=False)
        self.client.username_pw_set(APP_USER, APP_PASSWORD)

        def on_connect(_client: object, _data: object, flags: mqtt.ConnectFlags, *_more: object) -> None:
            self.resumed = flags.session_present
            connected.set()

        self.client.on_connect = on_connect
        self.client.on_message = lambda _client, _data, message: self.received.append(bytes(message.payload))
        self.client.on_subscribe = lambda *_arguments: self._subscribed.set()
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        assert connected.wait(30) and self.client.is_connected()

    def subscribe(self, topic: str, qos: int) -> None:
        self._subscribed.clear()
        self.client.subscribe(topic, qos=qos)
        assert self._subscribed.wait(30)

    def publish(self, topic: str, payload: bytes, qos: int, retain: bool = False) -> None:
        self.client.publish(topic, payload, qos=qos, retain=retain).wait_for_publish(30)

    def has_received(self, *payloads: bytes) -> bool:
        return wait_until(lambda: sorted(self.received), sorted(payloads).__eq__, 20).done

    def end(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


@pytest.fixture
def cluster(version: str, tmp_path: Path, run_module: Run, port: int) -> Iterator[NatsProcesses]:
    made = NatsProcesses(version, tmp_path, ["n1", "n2", "n3"])
    made.write_config("n1", f"mqtt {{ listen: '127.0.0.1:{port}' }}")
    made.start()
    try:
        yield form(made, run_module)
    finally:
        made.kill()


def test_a_session_and_its_messages_come_back_on_empty_disks(
    cluster: NatsProcesses, run_module: Run, port: int, tmp_path: Path
) -> None:
    for qos in (1, 2):
        device = Device(port, f"display{qos}")
        device.subscribe("plant/+", qos)
        device.end()
    sensor = Device(port, "sensor")
    for qos in (1, 2):
        sensor.publish("plant/temperature", b"%d" % qos, qos)
    sensor.publish("plant/state", b"on", 1, retain=True)
    sensor.end()
    accounts = Accounts(cluster, run_module, tmp_path / "backup")
    saved = {row["name"] for row in accounts.done("backup")["streams"]}
    assert {"APP/$MQTT_sess", "APP/$MQTT_msgs", "APP/$MQTT_rmsgs", "APP/$MQTT_out"} <= saved, saved

    cluster.kill()
    for name in cluster.names:
        shutil.rmtree(cluster.directory / name)
    cluster.start()
    form(cluster, run_module)
    restored = accounts.done("restore", streams=["*"])
    assert {row["name"] for row in restored["streams"] if row["changed"]} == saved

    for qos in (1, 2):
        device = Device(port, f"display{qos}")
        assert device.resumed
        assert device.has_received(b"1", b"2", b"on"), device.received
        device.end()
        device = Device(port, f"display{qos}")
        device.end()
        assert device.received == []
    late = Device(port, "late")
    late.subscribe("plant/state", 1)
    assert late.has_received(b"on"), late.received
    late.end()
