# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests a second site with real servers: its state, checkpoints and failover."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.dr import run_drill as dr_drill
from ansible_collections.natsops.jetstream.plugins.module_utils.dr.reader import Records
from ansible_collections.natsops.jetstream.plugins.module_utils.dr.record import fenced_subject
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.jetstream_api import JetStreamApi
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from support.nats_processes import NatsProcesses, free_ports
from support.site_pair import STREAM, Producer, Run, SitePair


@pytest.fixture
def pair(version: str, tmp_path: Path, run_module: Run) -> Iterator[SitePair]:
    made = SitePair(version, tmp_path, run_module)
    try:
        made.start()
        yield made
    finally:
        made.kill()


def test_the_state_of_a_mirror(pair: SitePair) -> None:
    pair.add_stream()
    pair.add_consumer("worker")
    for number in range(20):
        pair.publish(pair.east, "orders.1", ident=f"m{number}")
    pair.in_step()
    wait_until(pair.status, lambda row: row["state"] == "following", 20)
    row = pair.status()
    assert (row["state"], row["position"], row["behind"]) == ("following", 20, 0)
    assert row["loss"]["known"] and row["loss"]["messages"] == 0
    # The consumers' positions have not been recorded yet.
    assert row["consumers"] == [{"name": "worker", "origin": 0, "saved": None}]
    assert not row["in_order"] and "no checkpoint" in row["problems"][0]

    pair.consume("worker", 10, lambda sequence: sequence <= 8)
    predicted = pair.run("nats_dr_checkpoint", check_mode=True)
    assert predicted["changed"] and pair.west_api.stream_names() == [STREAM]
    assert pair.done("nats_dr_checkpoint")["streams"][0]["consumers"] == 1
    assert not pair.done("nats_dr_checkpoint")["changed"]
    row = pair.status()
    assert row["consumers"] == [{"name": "worker", "origin": 8, "saved": 8}] and row["in_order"]
    (message, *_others) = pair.status(max_checkpoint_age=0.001)["problems"]
    assert "checkpoint is" in message

    # The mirror reports a lag of 0 indefinitely.
    pair.east.kill()
    wait_until(lambda: pair.west_api.stream(STREAM)["mirror"]["active"], lambda active: active > 2e9, 20)
    assert pair.west_api.stream(STREAM)["mirror"]["lag"] == 0
    row = pair.status(max_loss_seconds=1)
    assert (row["state"], row["behind"], row["loss"]["known"]) == ("origin silent", None, False)
    assert "unknown, at least 0 messages: those that the origin stored after sequence 20" in row["loss"]["text"]
    assert row["contact"] > 2 and not row["in_order"]
    assert any("RPO exceeded" in problem for problem in row["problems"])
    assert row["consumers"] == [{"name": "worker", "origin": None, "saved": 8}]
    failed = pair.run("nats_dr_checkpoint")
    assert failed["failed"] and "1 of 1 streams have no new checkpoint" in failed["msg"]


def test_missing_copy_is_reported(pair: SitePair) -> None:
    pair.add_stream()
    assert pair.status(streams=[{"stream": STREAM, "copy": "NONE"}])["state"] == "missing"
    pair.west_api.create_stream({"name": "OTHER", "subjects": ["other"], "storage": "file", "num_replicas": 1})
    assert pair.status(streams=[{"stream": STREAM, "copy": "OTHER"}])["state"] == "unrelated"
    pair.publish(pair.east, "orders.1")
    pair.publish(pair.east, "orders.1")
    pair.in_step()
    config = pair.east_api.stream(STREAM)["config"]
    pair.east_api.delete_stream(STREAM)
    assert pair.status()["state"] == "diverged"
    pair.east_api.create_stream(config)
    pair.publish(pair.east, "orders.1")
    row = pair.status()
    assert row["state"] == "diverged" and not row["loss"]["known"]
    assert "recreated" in row["problems"][0]


def fill(pair: SitePair, **config: Any) -> None:
    pair.add_stream(**config)
    pair.add_consumer("worker")
    for number in range(30):
        pair.publish(pair.east, f"orders.{number % 3}", f"m-{number}".encode(), ident=f"m-{number}")
    pair.add_consumer("fresh", deliver_policy="new")
    pair.consume("worker", 12, lambda sequence: sequence <= 8 or sequence == 11)
    pair.in_step()
    wait_until(pair.status, lambda row: row["state"] == "following", 20)


def pair_options(version: str) -> dict[str, Any]:
    """Return the options that name the destination of the messages: before 2.12, a different stream."""
    return {"streams": [{"stream": STREAM, **({} if version >= "2.12" else {"promoted": "SERVING"})}]}


def test_a_planned_failover_loses_nothing(pair: SitePair, version: str) -> None:
    fill(pair)
    stream = STREAM if version >= "2.12" else "SERVING"
    if version < "2.12":
        assert "name it with `promoted`" in pair.refused("nats_dr_failover", "needs_name", fence="subjects")
    assert "is not sealed" in pair.refused("nats_dr_failover", "not_fenced", fence="sealed", **pair_options(version))
    assert "answers" in pair.refused(
        "nats_dr_failover", "origin_answers", fence="dead", dead="east", **pair_options(version)
    )
    planned = pair.run("nats_dr_failover", check_mode=True, fence="subjects", **pair_options(version))
    assert planned["changed"] and "fence: the subjects of stream ORDERS of east are replaced by" in planned["lines"][0]
    assert pair.east_api.stream(STREAM)["config"]["subjects"] == ["orders.>"]

    done = pair.done("nats_dr_failover", fence="subjects", **pair_options(version))
    (row,) = done["streams"]
    assert row["complete"] and row["stream"] == stream and row["messages"] == 30
    info = pair.west_api.stream(stream)
    assert info["config"]["subjects"] == ["orders.>"] and not info["config"].get("mirror")
    assert not info["config"].get("sources")
    assert list(pair.stored(pair.west_api, stream).values()) == [f"m-{number}" for number in range(30)]
    floors = {one["name"]: (one["floor"], one["again"]) for one in row["consumers"]}
    assert floors == {"worker": (8, 4), "fresh": (30, 0)}
    # Clients of both sites reach the promoted stream, and the origin's stream receives no more.
    assert pair.publish(pair.west, "orders.1", ident="m-30") == {"stream": stream, "seq": 31, "duplicate": False}
    # The site may lack the ids of copied messages, except the ids of messages that arrived immediately before the
    # promotion.
    repeated = pair.publish(pair.west, "orders.1", ident="m-29")
    assert repeated == {
        "stream": stream,
        "seq": 30 if repeated["duplicate"] else 32,
        "duplicate": repeated["duplicate"],
    }
    assert pair.east_api.stream(STREAM)["state"]["last_seq"] == 30
    assert pair.west_api.consumer(stream, "fresh")["num_pending"] == (1 if repeated["duplicate"] else 2)

    again = pair.done("nats_dr_failover", fence="subjects", **pair_options(version))
    assert not again["changed"] and again["streams"][0]["last_copied"] == 30
    status = pair.status(**pair_options(version))
    assert (status["state"], status["problems"]) == ("promoted", [])


def test_predicted_loss_matches_the_producer_record(pair: SitePair, version: str) -> None:
    """Under load the link between the sites breaks, and later the origin dies."""
    fill(pair)
    producer = Producer(pair.east.url("e1"))
    producer.start()
    producer.wait_for(300)
    under_load = pair.status()
    assert under_load["loss"]["known"]
    pair.link.cut()
    count = len(producer.acknowledged)
    producer.wait_for(count + 300)
    pair.done("nats_dr_checkpoint")
    at_checkpoint = pair.status()
    producer.wait_for(len(producer.acknowledged) + 300)
    producer.stop()
    # Both sites still respond, so the loss is known although the mirror has no record of its origin.
    shown = wait_until(pair.status, lambda row: row["state"] == "disconnected", 30).value
    assert shown["state"] == "disconnected" and shown["loss"]["known"]
    assert "the site receives nothing from the origin, although" in shown["problems"][0]

    pair.east.kill()
    options = {**pair_options(version), "fence": "dead", "dead": "east"}
    assert "must be the lost origin" in pair.refused("nats_dr_failover", "not_fenced", **{**options, "dead": "west"})
    assert "may still be accepting" in pair.refused(
        "nats_dr_failover", "origin_silent", **{**options, "fence": "subjects"}
    )
    dead = pair.status(**pair_options(version))
    assert (dead["state"], dead["loss"]["known"]) == ("origin silent", False)
    assert "would be lost" in pair.refused("nats_dr_failover", "loss", max_loss_messages=10, **options)
    done = pair.done("nats_dr_failover", **options)
    (row,) = done["streams"]

    # The producer's record is authoritative.
    lost = {seq: ident for ident, seq in producer.acknowledged.items() if seq > row["position"]}
    kept = {seq: ident for ident, seq in producer.acknowledged.items() if seq <= row["position"]}
    stored = pair.stored(pair.west_api, row["stream"])
    assert kept.items() <= stored.items() and not set(lost.values()) & set(stored.values())
    assert len(stored) == row["messages"] == row["position"] == row["last_copied"] == shown["position"]
    assert shown["loss"]["messages"] == len(lost) > 600
    # After the origin's death, only the lower bound from the checkpoint is known.
    assert at_checkpoint["loss"]["messages"] <= len(lost)
    assert 300 <= row["promised"]["messages"] == dead["loss"]["messages"] <= len(lost)
    assert any("expected loss: unknown, at least" in line for line in done["lines"])
    print(
        f"{version}: {len(producer.acknowledged)} acknowledged; under load {under_load['loss']['text']}; "
        f"shown {shown['loss']['text']}; then {dead['loss']['text']}; lost {len(lost)}"
    )


def test_a_consumer_never_starts_after_messages_that_the_site_lost(pair: SitePair, version: str) -> None:
    """The origin acknowledged messages that the site never received; new messages at the site receive the same
    sequences."""
    fill(pair)
    pair.link.cut()
    for number in range(10):
        pair.publish(pair.east, "orders.1", f"lost-{number}".encode())
    pair.consume("fresh", 10)
    pair.done("nats_dr_checkpoint")
    assert {"name": "fresh", "origin": 40, "saved": 40} in pair.status()["consumers"]
    pair.east.kill()
    (row,) = pair.done("nats_dr_failover", fence="dead", dead="east", **pair_options(version))["streams"]
    assert row["position"] == 30
    assert {one["name"]: (one["origin_floor"], one["floor"]) for one in row["consumers"]}["fresh"] == (40, 30)
    assert pair.publish(pair.west, "orders.1")["seq"] == 31
    pending = wait_until(
        lambda: pair.west_api.consumer(row["stream"], "fresh")["num_pending"], lambda number: number == 1, 20
    )
    assert pending.done, pending.value


def test_an_origin_gets_its_subjects_back_when_the_site_does_not_catch_up(pair: SitePair, version: str) -> None:
    fill(pair)
    pair.link.cut()
    pair.publish(pair.east, "orders.1")
    options = {**pair_options(version), "fence": "subjects", "wait_timeout": 2}
    failed = pair.run("nats_dr_failover", **options)
    assert failed.get("failed"), failed
    assert failed["failure"]["code"] == "not_caught_up" and "has its subjects again (orders.>)" in failed["msg"]
    assert pair.publish(pair.east, "orders.1")["seq"] == 32
    assert pair.west_api.stream(STREAM)["config"]["mirror"]
    # The refused run leaves nothing behind, and the next run succeeds once the link is restored.
    pair.link.mend()
    (row,) = pair.done("nats_dr_failover", **{**options, "wait_timeout": 30})["streams"]
    assert row["complete"] and row["position"] == 32


def test_an_origin_whose_clients_still_publish_is_not_fenced(pair: SitePair, version: str) -> None:
    fill(pair)
    producer = Producer(pair.east.url("e1"))
    producer.start()
    producer.wait_for(50)
    failed = pair.run("nats_dr_failover", fence="permissions", watch=1, **pair_options(version))
    producer.stop()
    assert failed["failure"]["code"] == "not_fenced" and "within 1 seconds" in failed["msg"]
    assert pair.west_api.stream(STREAM)["config"]["mirror"]
    (row,) = pair.done("nats_dr_failover", fence="permissions", watch=1, **pair_options(version))["streams"]
    assert row["complete"]


def test_without_a_checkpoint_nothing_is_promoted_on_its_own_name(pair: SitePair, version: str) -> None:
    fill(pair)
    pair.east.kill()
    options = {**pair_options(version), "fence": "dead", "dead": "east"}
    assert "there is no checkpoint of it" in pair.refused("nats_dr_failover", "no_checkpoint", **options)
    options["streams"] = [{**options["streams"][0], "subjects": ["orders.>"]}]
    (row,) = pair.done("nats_dr_failover", **{**options, "consumers": False})["streams"]
    assert pair.west_api.stream(row["stream"])["config"]["subjects"] == ["orders.>"]


@pytest.mark.parametrize("records", [2, 3, 4])
def test_an_interrupted_failover_resumes(
    pair: SitePair, version: str, monkeypatch: pytest.MonkeyPatch, records: int
) -> None:
    """The failover is interrupted immediately after each of its steps, before it can record the step."""
    fill(pair)
    keep, kept = Records.keep, []

    def cut_off(self: Records, stream: str, copy: Any, record: Any) -> None:
        kept.append(record)
        if len(kept) == records:
            raise NatsFailure("connection_lost", "cut off")
        keep(self, stream, copy, record)

    options = {"fence": "subjects", **pair_options(version)}
    with monkeypatch.context() as patched:
        patched.setattr(Records, "keep", cut_off)
        assert pair.run("nats_dr_failover", **options)["failure"]["code"] == "connection_lost"
    accepting = "neither side accepts" if records == 2 else "the site accepts"
    problem = f"the failover of stream ORDERS is unfinished, and {accepting} messages: run it again"
    assert problem in pair.status(**pair_options(version))["problems"]
    assert pair.run("nats_dr_checkpoint", **pair_options(version))["failed"]  # a fenced origin has nothing to save
    (row,) = pair.done("nats_dr_failover", **options)["streams"]
    assert row["changed"] and row["complete"] and row["subjects"] == ["orders.>"] and row["last_copied"] == 30
    floors = {one["name"]: one["floor"] for one in row["consumers"]}
    assert floors == {"worker": 8, "fresh": 30}
    assert list(pair.stored(pair.west_api, row["stream"]).values()) == [f"m-{number}" for number in range(30)]
    assert not pair.done("nats_dr_failover", **options)["changed"]


def test_deleted_messages_move_the_floors_of_a_stream_that_takes_over(pair: SitePair, version: str) -> None:
    fill(pair)
    for sequence in (2, 3, 9, 20):
        pair.west_api.call(f"STREAM.MSG.DELETE.{STREAM}", {"seq": sequence})
    (row,) = pair.done("nats_dr_failover", fence="subjects", **pair_options(version))["streams"]
    stored = pair.stored(pair.west_api, row["stream"])
    assert len(stored) == 26 and "m-8" not in stored.values()
    client = pair.west_api.consumer(row["stream"], "worker")
    # The consumer acknowledged the first eight messages. Two of these have been deleted.
    assert client["num_pending"] == 20
    assert row["last_copied"] == (30 if version >= "2.12" else 26)


def untouched(pair: SitePair) -> tuple[Any, ...]:
    """Return everything that a drill must not change: the copy, the names of the streams, and their subjects."""
    info = pair.west_api.stream(STREAM)
    names = [name for name in pair.west_api.stream_names() if not name.startswith("NATS_DR_west")]
    return names, info["config"], info["state"]["messages"], info["state"]["consumer_count"]


def test_a_drill_proves_a_failover_and_leaves_nothing(pair: SitePair, version: str) -> None:
    """The origin is dead, so the drill cannot use it. The copy has a consumer that would push to a client."""
    fill(pair)
    pair.add_consumer("pushed", deliver_subject="to.clients", filter_subject="orders.2")
    for sequence in (2, 3, 20):
        pair.west_api.call(f"STREAM.MSG.DELETE.{STREAM}", {"seq": sequence})
    pair.done("nats_dr_checkpoint")
    before, options = untouched(pair), pair_options(version)
    pair.east.kill()
    planned = pair.run("nats_dr_drill", check_mode=True, **options)
    (line,) = planned["lines"]
    assert planned["changed"] and "would be promoted" in line and "fresh, pushed, worker" in line
    assert pair.status(max_drill_age=60, **options)["drill"] is None
    assert "no failover drill" in pair.status(max_drill_age=60, **options)["problems"][-1]

    with pair.listening(pair.west, "orders.>", "to.clients") as received:
        done = pair.done("nats_dr_drill", **options)
    (row,) = done["streams"]
    drill = row["drill"]
    assert (drill["ok"], drill["reason"], drill["messages"], drill["position"]) == (True, "", 27, 30)
    assert (row["compared"], drill["consumers"]) == (27, 3) and drill["proven"] == drill["time"]
    assert drill["method"] == ("end mirror" if version >= "2.12" else "take over")
    assert "west can take over" in done["lines"][0]
    assert received == []
    assert untouched(pair) == before
    shown = pair.status(max_drill_age=3600, **options)
    assert shown["drill"] == drill and shown["drill_age"] < 600
    assert not [one for one in shown["problems"] if "drill" in one]
    assert "the last drill was" in pair.status(max_drill_age=0.001, **options)["problems"][-1]
    # The drill does not affect a later failover.
    (served,) = pair.done("nats_dr_failover", fence="dead", dead="east", **options)["streams"]
    floors = {one["name"]: one["floor"] for one in served["consumers"]}
    assert (served["messages"], floors["worker"]) == (27, 8 if version >= "2.12" else 6)
    failed = pair.run("nats_dr_drill", **options)
    assert failed["failure"]["code"] == "not_proven" and "has replaced the origin" in failed["msg"]


def test_a_drill_during_load_compares_a_moving_stream(pair: SitePair, version: str) -> None:
    fill(pair)
    pair.done("nats_dr_checkpoint")
    producer = Producer(pair.east.url("e1"))
    producer.start()
    producer.wait_for(300)
    (row,) = pair.done("nats_dr_drill", **pair_options(version))["streams"]
    count = len(producer.acknowledged)
    producer.wait_for(count + 100)
    producer.stop()
    assert row["drill"]["ok"] and row["drill"]["messages"] >= 30 and row["compared"] >= 30
    pair.in_step()


def test_a_drill_that_fails_is_a_problem_until_one_succeeds(pair: SitePair, version: str) -> None:
    fill(pair)
    options = pair_options(version)
    # Without a checkpoint the failover would be refused.
    failed = pair.run("nats_dr_drill", **options)
    assert failed["failure"]["code"] == "not_proven" and "there is no checkpoint of it" in failed["msg"]
    pair.done("nats_dr_checkpoint")
    row = pair.status(**options)
    assert not row["in_order"] and "the last drill of a failover failed: " in row["problems"][0]
    assert not row["drill"]["ok"] and row["drill_age"] is None

    # The remains of a killed run are removed; a stream that no drill created stays.
    name = "NATS_DR_DRILL_ORDERS"
    pair.west_api.create_stream({"name": name, "subjects": ["mine"], "storage": "file", "num_replicas": 1})
    assert "was not created by a drill" in pair.run("nats_dr_drill", **options)["msg"]
    assert pair.west_api.stream(name)["config"]["subjects"] == ["mine"]
    pair.west_api.update_stream({**pair.west_api.stream(name)["config"], "metadata": {"nats_dr_drill": STREAM}})
    assert pair.done("nats_dr_drill", **options)["streams"][0]["drill"]["ok"]
    assert pair.west_api.find_stream(name) is None and pair.status(**options)["in_order"]


@pytest.mark.parametrize("fault", ["messages", "contents", "floor"])
def test_a_drill_finds_the_faults_of_a_copy(
    pair: SitePair, version: str, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Each fault is made in the throw-away copy before it is compared."""
    fill(pair)
    pair.done("nats_dr_checkpoint")
    name, run = "NATS_DR_DRILL_ORDERS", dr_drill._DrillRun
    promote, create, read = run._promote, run._create_consumers, run._messages

    def short(self: Any, record: Any) -> Any:
        result = promote(self, record)
        pair.west_api.call(f"STREAM.MSG.DELETE.{name}", {"seq": 7})
        return result

    def changed(self: Any, stream: str, sequences: Any) -> Any:
        found = read(self, stream, sequences)
        if stream == name and 12 in found:
            found[12] = {**found[12], "data": ""}
        return found

    def rewound(self: Any, record: Any) -> Any:
        result = create(self, record)
        config = pair.west_api.consumer(name, "worker")["config"]
        pair.west_api.delete_consumer(name, "worker")
        pair.west_api.save_consumer(name, {**config, "deliver_policy": "all", "opt_start_seq": 0}, "create")
        return result

    attribute, patched, expected = {
        "messages": ("_promote", short, "has 29 messages, but the site's copy has 30"),
        "contents": ("_messages", changed, "the data of message 12 differs"),
        "floor": ("_create_consumers", rewound, "consumer worker is at 0 instead of 8"),
    }[fault]
    monkeypatch.setattr(run, attribute, patched)
    failed = pair.run("nats_dr_drill", **pair_options(version))
    assert failed["failure"]["code"] == "not_proven", failed
    assert expected in failed["msg"]
    assert pair.west_api.find_stream(name) is None


def test_clusters_of_one_supercluster(version: str, tmp_path: Path, run_module: Run) -> None:
    """Both sites share a meta group and an account: the fence frees the subjects for the copy, even if the origin is
    dead."""
    gateways = dict(zip(("east", "west"), free_ports(2)))
    remotes = ", ".join(f'{{ name: {name}, url: "nats://127.0.0.1:{port}" }}' for name, port in gateways.items())
    clusters = {}
    for name, servers in (("east", ["e1"]), ("west", ["w1", "w2"])):
        (tmp_path / name).mkdir()
        clusters[name] = NatsProcesses(version, tmp_path / name, servers, cluster=name)
        for server in servers:
            port = gateways[name] if server in ("e1", "w1") else free_ports(1)[0]
            clusters[name].write_config(
                server, f'gateway {{ name: {name}, listen: "127.0.0.1:{port}", gateways: [{remotes}] }}'
            )
        clusters[name].start()
    west, east = clusters["west"], clusters["east"]
    try:
        for stream in ("ORDERS", "BILLS"):
            base: dict[str, Any] = {"placement": {"cluster": "east"}, "subjects": [f"{stream.lower()}.>"]}
            wait_until(lambda: west.add_stream(stream, 1, **base), bool, 30)  # noqa: B023
            copy: dict[str, Any] = {"placement": {"cluster": "west"}, "mirror": {"name": stream}, "subjects": []}
            west.add_stream(f"{stream}_WEST", 1, **copy)
            west.add_consumer(stream, "worker")

        def options(stream: str) -> dict[str, Any]:
            promoted = {} if version >= "2.12" else {"promoted": f"{stream}_SERVING"}
            return {
                "origin": {"name": "east"},
                "site": {"name": "west"},
                "streams": [{"account": "APP", "stream": stream, "copy": f"{stream}_WEST", **promoted}],
                "account_users": west.account_users(),
            }

        connection = {**west.sys_connection(), "timeout": 2}
        for stream in ("ORDERS", "BILLS"):
            seen = wait_until(
                lambda: run_module("nats_dr_info", connection, **options(stream)),  # noqa: B023
                lambda found: bool(found["streams"][0]["state"] == "following"),
                30,
            )
            assert seen.done, seen.value
            assert run_module("nats_dr_checkpoint", connection, **options(stream))["changed"]
        planned = run_module("nats_dr_failover", connection, **options("ORDERS"), fence="subjects")
        assert not planned.get("failed"), planned
        assert planned["streams"][0]["complete"]

        east.kill()
        # If the dead server led the meta group, the JetStream API does not respond until another leader is elected.
        elected = wait_until(
            lambda: (run_module("nats_cluster_info", connection).get("meta") or {}).get("leader"),
            lambda leader: leader in ("w1", "w2"),
            30,
        )
        assert elected.done, elected.value
        silent = run_module("nats_dr_info", connection, **options("BILLS"))["streams"][0]
        assert (silent["state"], silent["loss"]["known"]) == ("origin silent", False)
        lost = run_module("nats_dr_failover", connection, **options("BILLS"), fence="dead", dead="east")
        assert not lost.get("failed"), lost
        (row,) = lost["streams"]
        config = west.app_request(f"$JS.API.STREAM.INFO.{row['stream']}")["config"]
        assert config["subjects"] == ["bills.>"] and not config.get("mirror")
        assert [one["name"] for one in row["consumers"]] == ["worker"]
    finally:
        east.kill()
        west.kill()


# --- failback -----------------------------------------------------------------------------------------------------------


def test_only_messages_written_at_the_site_return(pair: SitePair, version: str) -> None:
    """Messages were lost, some exist only at the origin, and both sites have stored messages with the same ids."""
    fill(pair)
    assert "has not replaced the origin" in pair.refused("nats_dr_failback", "no_failback")
    pair.done("nats_dr_checkpoint")
    pair.link.cut()
    for number in range(5):
        pair.publish(pair.east, "orders.1", f"lost-{number}".encode(), ident=f"lost-{number}")
    pair.east.kill()
    options = pair_options(version)
    (row,) = pair.done("nats_dr_failover", fence="dead", dead="east", **options)["streams"]
    target = row["stream"]
    # The producer repeats unacknowledged messages, so both sites then have them. A promoted mirror may lack the ids of
    # copied messages, or may have read them from its store in the meantime.
    sent_again = ["m-29", "lost-4", "new-0", "new-1", "new-2"]
    written = [
        ident
        for ident in sent_again
        if not pair.publish(pair.west, "orders.1", ident.encode(), ident=ident)["duplicate"]
    ]
    assert set(sent_again) - set(written) <= {"m-29"}
    pair.consume("worker", 24, site=pair.west, stream=target)
    assert "the origin does not answer" in pair.refused("nats_dr_failback", "no_failback", **options)

    # The origin is running again, but the site cannot reach it.
    pair.east.start()
    wait_until(lambda: pair.east_api.stream(STREAM), bool, 20)
    (problem,) = pair.status(**options)["problems"]
    assert "split brain: the origin accepts messages" in problem and "5 messages of the origin did not" in problem
    failed = pair.run("nats_dr_failback", **options, wait_timeout=3)
    assert failed["failure"]["code"] == "not_caught_up", failed
    assert pair.publish(pair.west, "orders.1", b"new-3", ident="new-3")["stream"] == target
    pair.link.mend()
    planned = pair.run("nats_dr_failback", check_mode=True, **options)
    assert any("at most 5 messages exist only at the origin" in line for line in planned["lines"])
    done = pair.done("nats_dr_failback", **options)
    (row,) = done["streams"]
    stored = list(pair.stored(pair.east_api, STREAM).values())
    before = [f"m-{number}" for number in range(30)]
    lost = [f"lost-{number}" for number in range(5)]
    new = [*written, "new-3"]
    assert stored == before + lost + new
    twice = sorted({"m-29", "lost-4"} & set(written))
    assert (row["returned"], row["stranded"], row["twice"]) == (len(new), 5, twice)
    config = pair.east_api.stream(STREAM)["config"]
    assert config["subjects"] == ["orders.>"] and not config.get("sources")
    assert config["duplicate_window"] == 120_000_000_000
    assert pair.publish(pair.east, "orders.1", b"after")["seq"] == 36 + len(new)
    # The origin had 32 of the site's messages. The origin also has five messages that the site never received, so the
    # consumer receives everything after that point.
    floors = {one["name"]: (one["floor"], one["again"]) for one in row["consumers"]}
    assert floors == {"worker": (30, 2), "fresh": (30, 0)}
    pending = 6 + len(new)
    assert wait_until(
        lambda: pair.east_api.consumer(STREAM, "worker")["num_pending"], lambda number: number == pending, 20
    ).done
    assert "has not replaced the origin" in pair.refused("nats_dr_failback", "no_failback", **options)


def test_a_planned_failover_comes_back_under_load(pair: SitePair, version: str) -> None:
    fill(pair)
    options = pair_options(version)
    (row,) = pair.done("nats_dr_failover", fence="subjects", **options)["streams"]
    producer = Producer(pair.west.url("w1"))
    producer.start("new")
    producer.wait_for(300)
    (row,) = pair.done("nats_dr_failback", **options)["streams"]
    producer.stop()
    stored = list(pair.stored(pair.east_api, STREAM).values())
    acknowledged = sorted(producer.acknowledged, key=lambda ident: int(ident.partition("-")[2]))
    # Each acknowledged message is stored exactly once.
    assert stored[:30] == [f"m-{number}" for number in range(30)]
    assert sorted(stored) == sorted(set(stored)) and set(acknowledged) <= set(stored)
    assert not row["twice"] and not row["stranded"]
    print(f"{version}: {len(acknowledged)} acknowledged since the failover, {row['returned']} came back at the switch")


def test_failback_with_dropped_ids_keeps_the_site_serving(pair: SitePair, version: str) -> None:
    """The site stored an id twice, at an interval longer than its duplicate window; 2.15 drops the second message
    during the transfer."""
    fill(pair, duplicate_window=100_000_000)
    options = pair_options(version)
    (row,) = pair.done("nats_dr_failover", fence="subjects", **options)["streams"]
    first = pair.publish(pair.west, "orders.1", b"one", ident="twice")["seq"]
    seen = wait_until(
        lambda: pair.publish(pair.west, "orders.1", b"two", ident="twice"), lambda ack: ack["seq"] > first, 20
    )
    assert seen.done
    pair.publish(pair.west, "orders.1", b"three", ident="once")
    result = pair.run("nats_dr_failback", **options, wait_timeout=10)
    if version < "2.12":
        assert list(pair.stored(pair.east_api, STREAM).values())[-3:] == ["one", "two", "three"]
        return
    assert result["failure"]["code"] == "incomplete", result
    assert "did not reach the origin, such as sequence 32" in result["msg"]
    assert pair.publish(pair.west, "orders.1", b"four")["stream"] == row["stream"]


class Killed(BaseException):
    """Simulates that the controller is killed."""


@pytest.mark.parametrize("step", ["site fenced", "origin serves"])
def test_a_failback_that_was_killed_is_completed(
    pair: SitePair, version: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The failback is killed immediately after the site was fenced, or after the update that makes the origin serve
    again. The origin has a source."""
    pair.east_api.create_stream({"name": "FEED", "subjects": ["feed"], "storage": "file", "num_replicas": 1})
    fill(pair, sources=[{"name": "FEED"}])
    options = pair_options(version)
    pair.done("nats_dr_failover", fence="subjects", **options)
    pair.publish(pair.west, "orders.1", b"new", ident="new")
    update = JetStreamApi.update_stream

    def cut_off(self: JetStreamApi, config: Mapping[str, Any]) -> dict[str, Any]:
        answer = update(self, config)
        wanted = ("west", [fenced_subject(STREAM)]) if step == "site fenced" else ("east", ["orders.>"])
        if (self._client.options.jetstream_domain, config.get("subjects")) == wanted:
            raise Killed
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(JetStreamApi, "update_stream", cut_off)
        with pytest.raises(Killed):
            pair.run("nats_dr_failback", **options)
    (problem,) = pair.status(**options)["problems"]
    serving = "the origin accepts messages" if step == "origin serves" else "neither side accepts messages"
    assert problem == f"the failback of stream ORDERS is unfinished, and {serving}: run it again"
    planned = pair.run("nats_dr_failback", check_mode=True, **options)
    assert not any("only at the origin" in line for line in planned["lines"])
    if step == "origin serves":
        assert pair.publish(pair.east, "orders.1", b"after")["seq"] == 32
        assert planned["lines"] == ["ORDERS: ORDERS of east serves again; the record of the failover is removed"]
    pair.done("nats_dr_failback", **options)
    assert list(pair.stored(pair.east_api, STREAM).values())[30:] == ["new", "after"][: 1 + (step == "origin serves")]
    assert pair.east_api.stream(STREAM)["config"]["subjects"] == ["orders.>"]
    assert "has not replaced the origin" in pair.refused("nats_dr_failback", "no_failback", **options)
    pair.publish(pair.east, "feed", b"fed")
    last = wait_until(lambda: [*pair.stored(pair.east_api, STREAM).values()][-1], lambda body: body == "fed", 20)
    assert last.done, last.value
