# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the event source nats_advisories in a real ansible-rulebook, which takes seconds to start, against one version, and
alone against each version."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.credentials import make_certificates, make_operator
from support.module_runs import form, run_in_process, step_down
from support.nats_processes import VERSIONS, NatsProcesses
from support.rulebooks import TIMEOUT, NextEvent, Rulebook, Start, printing, refusal, run_source

NAMES = ["n1", "n2", "n3"]
#: The number of the last advisory of a test.
LAST = -1


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsProcesses]:
    """A cluster whose stream ADVISORIES stores the advisories of account APP."""
    made = NatsProcesses(request.param, tmp_path_factory.mktemp("cluster"), NAMES)
    made.start()
    try:
        form(made)
        made.add_stream("ADVISORIES", 3, subjects=["$JS.EVENT.ADVISORY.STREAM.>", "$JS.EVENT.ADVISORY.CONSUMER.>"])
        made.add_stream("ORDERS", 3)
        yield form(made)
    finally:
        made.kill()


def typed_events(rulebook: Rulebook, kind: str) -> list[dict[str, Any]]:
    return [event["nats"] for event in rulebook.events if event["nats"]["type"] == kind]


def kept(cluster: NatsProcesses, durable: str, **options: Any) -> dict[str, Any]:
    """Return the arguments of a source that reads the stream."""
    return {"connection": cluster.app_connection(), "stream": "ADVISORIES", "durable": durable, **options}


def make_assets(cluster: NatsProcesses, *names: str) -> None:
    for name in names:
        cluster.add_stream(name, 1)


def created(rulebook: Rulebook) -> list[str]:
    """Return the streams whose creation was reported, in order."""
    return [
        event["stream"] for event in typed_events(rulebook, "stream_action") if event["advisory"]["action"] == "create"
    ]


#: Once this line has been logged, no advisory is missed.
LISTENS = "nats_advisories - INFO - connected"


@pytest.mark.parametrize("cluster", ["2.15.1"], indirect=True)
def test_a_step_down_reaches_an_action(cluster: NatsProcesses, start: Start, tmp_path: Path) -> None:
    rulebook = start(printing(tmp_path, "nats_advisories", connection="{{ nats }}"), {"nats": cluster.sys_connection()})
    rulebook.wait_for(LISTENS)
    leader = step_down(cluster)
    rulebook.wait_until(lambda: typed_events(rulebook, "stream_leader_elected"), "no event of the election")
    event = typed_events(rulebook, "stream_leader_elected")[-1]
    assert (event["account"], event["stream"], event["asset"], event["leader"]) == (
        "APP",
        "ORDERS",
        "APP/ORDERS",
        leader,
    )
    assert event["subject"] == "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.ORDERS"
    assert event["id"] == event["advisory"]["id"]
    assert event["time"] == event["advisory"]["timestamp"]
    assert "sequence" not in event


@pytest.mark.parametrize("cluster", ["2.10.27"], indirect=True)
def test_none_is_missed_while_it_is_stopped(cluster: NatsProcesses, start: Start, tmp_path: Path) -> None:
    book = printing(tmp_path, "nats_advisories", **kept(cluster, "restarted"))
    rulebook = start(book, {})
    rulebook.wait_for(LISTENS)
    make_assets(cluster, "BEFORE1", "BEFORE2")

    def all_received() -> bool:
        """Return whether all stored advisories were received and acknowledged: nothing is in flight when the
        rulebook stops."""
        info = cluster.app_request("$JS.API.CONSUMER.INFO.ADVISORIES.restarted")
        left = info["num_pending"] + info["num_ack_pending"]
        return len(created(rulebook)) == 2 and not left and len(rulebook.events) == info["delivered"]["consumer_seq"]

    rulebook.wait_until(all_received, "fewer than two stream events")
    rulebook.stop()
    first = rulebook.events
    make_assets(cluster, "WHILE1", "WHILE2", "WHILE3")
    rulebook = start(book, {})
    make_assets(cluster, "AFTER")
    rulebook.wait_until(lambda: "AFTER" in created(rulebook), "no event of the last stream")
    assert created(rulebook) == ["WHILE1", "WHILE2", "WHILE3", "AFTER"]
    events = [*first, *rulebook.events]
    sequences = [event["nats"]["sequence"] for event in events]
    assert sequences == list(range(sequences[0], sequences[0] + len(sequences)))
    assert {event["nats"]["deliveries"] for event in events} == {1}
    assert len({event["meta"]["uuid"] for event in events}) == len(events)


def test_none_is_missed_while_the_connection_is_lost(cluster: NatsProcesses, caplog: pytest.LogCaptureFixture) -> None:
    """Each server is killed in turn, including the server to which the source is connected and the leader of its
    consumer.

    Servers do not repeat an advisory that the stream could not store, so the test publishes its advisories with an
    acknowledgement.
    """
    cluster.add_stream("FEED", 3)
    arguments = {"connection": cluster.app_connection(), "stream": "FEED", "durable": "reconnected"}
    numbers = iter(range(100))
    stored: dict[int, int] = {}
    received: dict[int, int] = {}

    def publish(times: int) -> None:
        for _time in range(times):
            number = next(numbers)
            answer = cluster.app_request("FEED.x", {"type": "io.test.number", "number": number})
            stored[answer["seq"]] = number

    def break_each_server() -> None:
        for name in NAMES:
            publish(3)
            cluster.kill(name)
            try:
                publish(3)
            finally:
                cluster.start(name)
                form(cluster)

    async def work(event: NextEvent) -> None:
        async def receive() -> None:
            while (one := await event(type="number"))["advisory"]["number"] != LAST:
                assert one["sequence"] not in received, "repeated, though only the connection was lost"
                received[one["sequence"]] = one["advisory"]["number"]

        receiving = asyncio.ensure_future(receive())
        async with asyncio.timeout(TIMEOUT):
            while "connected" not in caplog.messages:
                await asyncio.sleep(0.05)
        await asyncio.to_thread(break_each_server)
        await asyncio.to_thread(cluster.app_request, "FEED.x", {"type": "io.test.number", "number": LAST})
        await receiving

    with caplog.at_level(logging.INFO):
        run_source("nats_advisories", arguments, work)
    assert stored.items() <= received.items()
    assert list(received) == sorted(received), "not in order"
    assert "connected again" in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("cluster", ["2.15.1"], indirect=True)
def test_a_wrong_password_is_named(cluster: NatsProcesses, start: Start, tmp_path: Path) -> None:
    rulebook = start(printing(tmp_path, "nats_advisories", **{**cluster.sys_connection(), "password": "wrong"}), {})
    assert rulebook.end() != 0
    assert "the server does not accept user 'sys' (Authorization Violation)" in rulebook.output


def test_arguments_that_cannot_work_are_named(cluster: NatsProcesses) -> None:
    def why(**arguments: Any) -> str:
        return refusal("nats_advisories", **arguments)

    cluster.add_consumer("ADVISORIES", "unfit", ack_policy="none")
    cluster.add_consumer("ADVISORIES", "other", filter_subject="$JS.EVENT.ADVISORY.STREAM.>")
    app = cluster.app_connection()
    assert "there is no stream NONE in the account of this user" in why(**kept(cluster, "d", stream="NONE"))
    assert "is not a pull consumer with ack_policy explicit" in why(**kept(cluster, "unfit"))
    assert "has the subjects $JS.EVENT.ADVISORY.STREAM.>" in why(**kept(cluster, "other"))
    assert "required together: stream, durable" in why(**app, stream="ADVISORIES")
    assert "durable: 'a b' is not the name of one asset" in why(**kept(cluster, "a b"))
    assert "sevrers: unknown option; the options are" in why(sevrers=["n1"])
    assert "connection: unknown option usr" in why(connection={"usr": "app"})
    assert "connection: must be a dictionary" in why(connection="app")
    assert "mutually exclusive: nkey_seed|user|token" in why(**app, token="t")
    assert "required together: tls_cert_file, tls_key_file" in why(**app, tls_cert_file="/none")
    assert "deliver_policy must be one of: new, all" in why(**app, deliver_policy="last")
    assert "timeout: must be more than 0" in why(**{**app, "timeout": -1})
    assert "credentials: cannot read /none" in why(servers=app["servers"], credentials="/none")
    assert "feedback: this ansible-rulebook does not confirm events" in why(**app, feedback=True)


@pytest.mark.parametrize("cluster", ["2.15.1"], indirect=True)
def test_events_are_acknowledged_once_the_rules_processed_them(
    cluster: NatsProcesses, start: Start, tmp_path: Path
) -> None:
    arguments = kept(cluster, "confirmed", subjects=["$JS.EVENT.ADVISORY.STREAM.CREATED.>"], feedback=True)
    rulebook = start(printing(tmp_path, "nats_advisories", **arguments), {}, "--persistence-id", "1")
    rulebook.wait_for(LISTENS)
    names = [f"CONFIRMED{number}" for number in range(5)]
    make_assets(cluster, *names)
    rulebook.wait_until(lambda: created(rulebook) == names, "events of some streams are missing")
    floor = rulebook.events[-1]["nats"]["sequence"]

    def acknowledged() -> bool:
        info = cluster.app_request("$JS.API.CONSUMER.INFO.ADVISORIES.confirmed")
        return bool(info["ack_floor"]["stream_seq"] == floor and info["num_ack_pending"] == 0)

    rulebook.wait_until(acknowledged, "the last event was not acknowledged")


def test_by_tls_and_credentials(start: Start, tmp_path: Path) -> None:
    """An operator's cluster that requires client certificates: a .creds file, with TLS from the first byte."""
    files, operator = make_certificates(tmp_path), make_operator(tmp_path, "APP")
    certificate_files = f'cert_file: "{files.cert}", key_file: "{files.key}", ca_file: "{files.ca}"'
    config = tmp_path / "n1.conf"
    accounts = "".join(f"{account}: {jwt}\n" for account, jwt in operator.accounts.items())
    server = NatsProcesses(VERSIONS[0], tmp_path, ["n1"], cluster="")
    config.write_text(
        f"""server_name: n1
listen: "127.0.0.1:{server.ports["n1"]}"
jetstream {{ store_dir: "{tmp_path}/store", max_file_store: 64MB, max_memory_store: 64MB }}
operator: {operator.jwt}
system_account: {operator.system_account}
resolver: MEMORY
resolver_preload {{ {accounts} }}
tls {{ {certificate_files}, verify: true, handshake_first: true }}
"""
    )
    server.start()
    login = {
        "tls_ca_file": str(files.ca),
        "tls_cert_file": str(files.cert),
        "tls_key_file": str(files.key),
        "tls_first": True,
    }
    login = {**login, "servers": [f"tls://127.0.0.1:{server.ports['n1']}"]}
    app, system = ({**login, "credentials": str(operator.creds[name])} for name in ("APP", "SYS"))
    try:
        rulebook = start(printing(tmp_path, "nats_advisories", **system), {})
        rulebook.wait_for(LISTENS)
        made = run_in_process("nats_stream", app, stream="SEEN", subjects=["seen"], num_replicas=1)
        assert made.get("changed"), made
        server.stop("n1")
        rulebook.wait_until(lambda: typed_events(rulebook, "shutdown"), "no event of the shutdown")
        assert typed_events(rulebook, "shutdown")[0]["server"] == "n1"
    finally:
        server.kill()
