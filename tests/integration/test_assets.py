# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules of streams, consumers and buckets against real servers: each change is predicted, made, and seen once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Callable

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils._client import Client, ConnectionOptions, NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils._jetstream import JetStreamApi
from nats_processes import NatsProcesses

Run = Callable[..., dict[str, Any]]
OLD = "2.10.27"


@pytest.fixture(scope="module")
def api(five: NatsProcesses) -> Iterator[JetStreamApi]:
    """The application's API; what a test made is removed afterwards."""
    app = five.app_connection()
    with Client(ConnectionOptions(tuple(app["servers"]), app["user"], app["password"], timeout=5)) as client:
        yield JetStreamApi(client, "APP")


@pytest.fixture(autouse=True)
def tidy(api: JetStreamApi) -> Iterator[None]:
    yield
    for name in api.stream_names():
        with contextlib.suppress(NatsFailure):
            api.delete_stream(name)


@pytest.fixture(scope="module")
def run(five: NatsProcesses, run_module: Run) -> Run:
    def runner(name: str, check_mode: bool = False, **options: Any) -> dict[str, Any]:
        return run_module(f"nats_{name}", five.app_connection(), check_mode, **options)

    return runner


@pytest.fixture(scope="module")
def change(run: Run) -> Run:
    """Run a module in check mode, for real, and once more: the prediction is what happens, and happens only once."""

    def changed(name: str, **options: Any) -> dict[str, Any]:
        predicted = run(name, check_mode=True, **options)
        assert predicted["changed"], predicted
        real = run(name, **options)
        assert real["changed"], real
        assert real["diff"] == predicted["diff"]
        assert real["before"] == predicted["before"]
        again = run(name, **options)
        assert again["changed"] is False, again
        assert again["diff"] == {"before": {}, "after": {}}
        assert again["after"] == again["before"] == real["after"]
        return real

    return changed


@pytest.fixture(scope="module")
def refused(run: Run) -> Run:
    """Run a module in check mode and for real, and return how both were refused."""

    def refusal(name: str, code: str, **options: Any) -> dict[str, Any]:
        results = [run(name, check_mode=check_mode, **options) for check_mode in (True, False)]
        for result in results:
            assert result.get("failed"), result
            assert result["failure"]["code"] == code, result
        assert results[0]["msg"] == results[1]["msg"]
        return results[1]

    return refusal


def publish(api: JetStreamApi, subject: str, count: int = 1) -> None:
    for _number in range(count):
        api._client.request_many([_call(subject)])


def _call(subject: str) -> Any:
    from ansible_collections.natsops.jetstream.plugins.module_utils._client import Call

    return Call(subject, b"x" * 100)


# --- streams ----------------------------------------------------------------------------------------------------------


def test_a_stream_from_its_creation_to_its_deletion(change: Run, run: Run, api: JetStreamApi) -> None:
    made = change(
        "stream",
        stream="ORDERS",
        subjects=["orders.b.>", "orders.a.>"],
        max_age="1d",
        max_bytes="64MiB",
        max_msg_size="1KB",
        num_replicas=3,
        description="all orders",
        metadata={"team": "shop", "tier": 1},
        consumer_limits={"max_ack_pending": 500, "inactive_threshold": "1h"},
        republish={"dest": "again.>"},
        compression="s2",
        placement={"cluster": "C1"},
    )
    assert made["before"] is None
    assert made["after"]["max_age"] == 86400 * 10**9
    assert made["after"]["metadata"] == {"team": "shop", "tier": "1"}
    assert len(api.stream("ORDERS")["cluster"]["replicas"]) == 2
    assert made["diff"]["after"]["max_bytes"] == 64 * 2**20
    assert "discard" not in made["diff"]["after"]

    updated = change(
        "stream",
        stream="ORDERS",
        max_age="48h",
        metadata={},
        republish={},
        consumer_limits={},
        placement={},
        subjects=["orders.a.>", "orders.b.>", "orders.c"],
        discard="new",
        duplicate_window="30s",
    )
    assert updated["diff"] == {
        "before": {
            "subjects": ["orders.a.>", "orders.b.>"],
            "max_age": 86400 * 10**9,
            "discard": "old",
            "duplicate_window": 120 * 10**9,
            "placement": {"cluster": "C1"},
            "republish": {"dest": "again.>"},
            "consumer_limits": {"inactive_threshold": 3600 * 10**9, "max_ack_pending": 500},
            "metadata": {"team": "shop", "tier": "1"},
        },
        "after": {
            "subjects": ["orders.a.>", "orders.b.>", "orders.c"],
            "max_age": 2 * 86400 * 10**9,
            "discard": "new",
            "duplicate_window": 30 * 10**9,
            "placement": None,
            "republish": None,
            "consumer_limits": None,
            "metadata": {},
        },
    }
    assert updated["after"]["max_bytes"] == 64 * 2**20
    # What is not given stays, and limits are taken back with 0 or -1.
    assert change("stream", stream="ORDERS", max_age="0", max_bytes=-1)["after"]["description"] == "all orders"

    gone = change_absent(run, "stream", stream="ORDERS")
    assert gone["before"]["name"] == "ORDERS"


def change_absent(run: Run, name: str, **options: Any) -> dict[str, Any]:
    predicted = run(name, check_mode=True, state="absent", **options)
    real = run(name, state="absent", **options)
    assert real["changed"], real
    assert predicted["changed"], predicted
    assert (predicted["diff"], predicted["before"]) == (real["diff"], real["before"])
    again = run(name, state="absent", **options)
    assert (again["changed"], again["before"], again["after"]) == (False, None, None)
    return real


def test_a_minimal_stream_gets_the_servers_defaults(change: Run) -> None:
    assert change("stream", stream="PLAIN")["after"]["subjects"] == ["PLAIN"]
    # A window that would outlast the messages follows them.
    assert change("stream", stream="PLAIN", max_age="1m")["diff"]["after"] == {
        "max_age": 60 * 10**9,
        "duplicate_window": 60 * 10**9,
    }


def test_replicas_grow_and_shrink_and_are_seen(change: Run, refused: Run, api: JetStreamApi) -> None:
    change("stream", stream="GROW", subjects=["grow.>"])
    publish(api, "grow.x", 5)
    change("stream", stream="GROW", num_replicas=3)
    assert [peer["current"] for peer in api.stream("GROW")["cluster"]["replicas"]] == [True, True]
    told = refused("stream", "dangerous", stream="GROW", num_replicas=1)
    assert "num_replicas: 3 → 1 (fewer_replicas)" in told["msg"]
    shrunk = change("stream", stream="GROW", num_replicas=1, allow=["fewer_replicas"])
    assert shrunk["dangers"] == [{"kind": "fewer_replicas", "message": "num_replicas: 3 → 1"}]
    assert not api.stream("GROW")["cluster"].get("replicas")
    assert api.stream("GROW")["state"]["messages"] == 5


def test_a_stream_is_moved_and_scaled_in_two_steps(change: Run, api: JetStreamApi) -> None:
    change("stream", stream="MOVE", subjects=["move.>"])
    change("stream", stream="MOVE", num_replicas=3, placement={"cluster": "C1"})
    assert len(api.stream("MOVE")["cluster"]["replicas"]) == 2


def test_what_the_servers_refuse_is_told_in_their_words(run: Run) -> None:
    result = run("stream", stream="NOWHERE", placement={"tags": ["moon"]})
    assert result["failure"]["err_code"] == 10005
    assert "tags not matched" in result["msg"]


def test_what_cannot_change_is_refused(change: Run, refused: Run, version: str, api: JetStreamApi) -> None:
    change("stream", stream="FIXED", subjects=["fixed.>"], deny_purge=True, first_seq=100, max_consumers=5)
    config = api.stream("FIXED")["config"]
    wish = {"storage": "memory", "retention": "workqueue", "deny_purge": False, "first_seq": 7, "mirror": {"name": "ORDERS"}}
    told = refused("stream", "immutable", stream="FIXED", description="new", **wish)
    for key in wish:
        assert f"{key}: " in told["msg"]
    assert "storage: file → memory" in told["msg"]
    if version == OLD:
        assert "max_consumers: 5 → 6" in refused("stream", "immutable", stream="FIXED", max_consumers=6)["msg"]
    else:
        change("stream", stream="FIXED", max_consumers=6)
        config["max_consumers"] = 6
    assert api.stream("FIXED")["config"] == config


def test_features_that_the_servers_do_not_know_are_refused(change: Run, refused: Run, version: str, api: JetStreamApi) -> None:
    new = {"allow_msg_ttl": True, "subject_delete_marker_ttl": "1m", "allow_atomic": True, "allow_batched": True}
    if version == OLD:
        told = refused("stream", "unsupported", stream="NEW", **new)
        assert "allow_msg_ttl needs nats-server 2.11" in told["msg"]
        assert "allow_batched needs nats-server 2.14" in told["msg"]
        assert api.find_stream("NEW") is None
        change("stream", stream="NEW", allow_msg_ttl=False, persist_mode="default")
        return
    made = change("stream", stream="NEW", **new)
    assert made["after"]["allow_rollup_hdrs"] is True
    assert made["diff"]["after"]["allow_rollup_hdrs"] is True
    back = refused("stream", "immutable", stream="NEW", allow_msg_ttl=False, subject_delete_marker_ttl="0")
    assert "allow_msg_ttl: True → False (cannot be taken back)" in back["msg"]
    contradiction = refused("stream", "invalid_option", stream="NEW", allow_rollup_hdrs=False)
    assert "allow_rollup_hdrs: with subject_delete_marker_ttl the server makes it True" in contradiction["msg"]
    change("stream", stream="COUNTERS", allow_msg_counter=True, allow_direct=True)
    change("stream", stream="FAST", persist_mode="async")
    change("stream", stream="LATER", allow_msg_schedules=True)


def test_changes_that_remove_messages_are_refused(change: Run, refused: Run, api: JetStreamApi) -> None:
    change("stream", stream="FULL", subjects=["full.>", "other"])
    publish(api, "full.a", 3)
    publish(api, "full.b", 2)
    publish(api, "other", 1)
    for wish, why in (
        ({"max_msgs": 4}, "max_msgs: 4 removes 2 of 6 messages"),
        ({"max_bytes": 300}, "max_bytes: 300 removes messages"),
        ({"max_msgs_per_subject": 2}, "max_msgs_per_subject: 2 removes messages, a subject holds 3"),
        ({"max_age": "100ms"}, "max_age: 0.1 s removes messages"),
        ({"retention": "interest"}, "retention interest removes messages"),
        ({"subjects": ["full.>"]}, "subjects that it would no longer take: other"),
    ):
        assert why in refused("stream", "dangerous", stream="FULL", **wish)["msg"]
    assert api.stream("FULL")["state"]["messages"] == 6
    change("stream", stream="FULL", max_msgs=6, max_bytes="1MB", max_msgs_per_subject=3, max_age="1h")
    change("stream", stream="FULL", subjects=["full.>", "*"])
    # A full stream that refuses new messages removes none.
    change("stream", stream="FULL", max_msgs=4, discard="new")
    assert api.stream("FULL")["state"]["messages"] == 6
    change("stream", stream="FULL", discard="old", allow=["data_loss"])
    assert api.stream("FULL")["state"]["messages"] == 4


def test_a_purge_removes_what_is_selected(change: Run, refused: Run, run: Run, api: JetStreamApi) -> None:
    change("stream", stream="DIRTY", subjects=["dirty.>"])
    assert run("stream", stream="DIRTY", state="purged")["changed"] is False
    publish(api, "dirty.a", 4)
    publish(api, "dirty.b", 4)
    assert "(data_loss)" in refused("stream", "dangerous", stream="DIRTY", state="purged")["msg"]
    purged = {"stream": "DIRTY", "state": "purged", "allow": ["data_loss"]}
    assert change("stream", **purged, purge={"filter": "dirty.a", "keep": 1})["purged"] == 3
    assert change("stream", **purged, purge={"seq": 6})["purged"] == 2
    assert change("stream", **purged, purge={"filter": "dirty.b", "seq": 7})["purged"] == 1
    assert change("stream", **purged, purge={"keep": 1})["purged"] == 1
    whole = change("stream", **purged)
    assert (whole["purged"], whole["diff"]) == (1, {"before": {"messages": 1}, "after": {"messages": 0}})
    assert run("stream", stream="NOTHERE", state="purged")["failure"]["err_code"] == 10059


def test_deletion_of_what_is_used_is_refused(change: Run, refused: Run, run: Run, api: JetStreamApi, five: NatsProcesses) -> None:
    change("stream", stream="ORIGIN", subjects=["origin.>"])
    change("stream", stream="COPY", mirror={"name": "ORIGIN"})
    change("stream", stream="SUM", sources=[{"name": "ORIGIN", "filter_subject": "origin.a"}])
    five.add_consumer("ORIGIN", "worker")
    publish(api, "origin.a")
    told = refused("stream", "dangerous", stream="ORIGIN", state="absent", allow=["foreign"])
    assert "it holds 1 messages (data_loss)" in told["msg"]
    assert "streams mirror or source it: COPY, SUM (in_use)" in told["msg"]
    assert "allow: [data_loss, in_use]" in told["msg"]
    assert refused("stream", "dangerous", stream="ORIGIN", state="absent", allow=["data_loss"])
    change_absent(run, "stream", stream="ORIGIN", allow=["data_loss", "in_use"])


def test_mirrors_and_sources(change: Run, refused: Run, version: str) -> None:
    change("stream", stream="A", subjects=["a.>"], allow_direct=True)
    transform = [{"src": "a.y.>", "dest": "y.>"}, {"src": "a.x.>", "dest": "x.>"}]
    mirror = {"name": "A", "opt_start_time": "2026-01-01 02:00:00+02:00", "subject_transforms": transform}
    assert change("stream", stream="M", mirror=mirror)["after"]["mirror_direct"] is True
    refused("stream", "invalid_option", stream="M", mirror_direct=False)
    sources = [
        {"name": "A", "filter_subject": "a.b", "opt_start_seq": 1},
        {"name": "B", "external": {"api": "$JS.hub.API"}},
    ]
    change("stream", stream="S", sources=sources)
    change("stream", stream="S", sources=sources[1:], subjects=["s.>"])
    assert "can only be ended" in refused("stream", "immutable", stream="M", mirror={"name": "S"})["msg"]
    if version == OLD:
        refused("stream", "immutable", stream="M", mirror={})
    else:
        assert "cannot be made a mirror again (irreversible)" in refused("stream", "dangerous", stream="M", mirror={})["msg"]
        ended = change("stream", stream="M", mirror={}, subjects=["m.>"], allow=["irreversible"])
        assert "mirror" not in ended["after"]


def test_a_sealed_stream_stays_as_it_is(change: Run, refused: Run, run: Run, api: JetStreamApi) -> None:
    assert "a new stream cannot be sealed" in refused("stream", "invalid_option", stream="SEALED", sealed=True)["msg"]
    change("stream", stream="SEALED", subjects=["sealed.>"], max_age="1h")
    publish(api, "sealed.a")
    refused("stream", "dangerous", stream="SEALED", sealed=True)
    sealed = change("stream", stream="SEALED", sealed=True, allow=["irreversible"])
    assert sealed["diff"]["after"]["discard"] == "new"
    assert "sealed: True → False (cannot be taken back)" in refused("stream", "immutable", stream="SEALED", sealed=False)["msg"]
    assert "with sealed the server makes it 0" in refused("stream", "invalid_option", stream="SEALED", max_age="1d")["msg"]
    assert run("stream", stream="SEALED", state="purged", allow=["data_loss"])["failure"]["err_code"] == 10109


def test_what_belongs_to_others_is_left_alone(change: Run, refused: Run) -> None:
    assert "belongs to a key-value bucket (foreign)" in refused("stream", "dangerous", stream="KV_config")["msg"]
    change("stream", stream="THEIRS", metadata={"managed-by": "terraform"})
    assert "belongs to terraform (metadata managed-by)" in refused("stream", "dangerous", stream="THEIRS", description="x")["msg"]
    refused("stream", "dangerous", stream="THEIRS", state="absent")
    change("stream", stream="THEIRS", description="x", metadata={"managed-by": "terraform"})
    change("stream", stream="THEIRS", description="y", allow=["foreign"])


def test_a_system_user_with_the_accounts_user(five: NatsProcesses, run_module: Run) -> None:
    connection = five.sys_connection()
    made = run_module("nats_stream", connection, stream="MINE", account="OTHER", account_users=five.account_users())
    assert made["changed"], made
    gone = run_module(
        "nats_stream", connection, stream="MINE", state="absent", account="OTHER", account_users=five.account_users()
    )
    assert gone["changed"], gone
    told = run_module("nats_stream", connection, stream="MINE", account="NOBODY", account_users=five.account_users())
    assert "no user for account NOBODY" in told["msg"]


def test_two_operators_at_once(
    five: NatsProcesses, run: Run, change: Run, api: JetStreamApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    change("stream", stream="SHARED", subjects=["shared.>"])
    theirs = iter(range(1, 100))
    find, update = JetStreamApi.find_stream, JetStreamApi.update_stream

    def interfering(self: JetStreamApi, name: str) -> Any:
        """Another operator is faster each time."""
        info = find(self, name)
        assert info is not None
        update(self, {**info["config"], "max_consumers": -1, "max_msgs": next(theirs)})
        return info

    with monkeypatch.context() as patch:
        patch.setattr(JetStreamApi, "find_stream", interfering)
        result = run("stream", stream="SHARED", description="mine")
    assert result["failure"]["code"] == "conflict", result
    assert "nothing was done" in result["msg"]
    assert "description" not in api.stream("SHARED")["config"]

    def overwriting(self: JetStreamApi, config: Any) -> Any:
        """Another operator has the last word."""
        update(self, config)
        return update(self, {**config, "description": "theirs"})

    with monkeypatch.context() as patch:
        patch.setattr(JetStreamApi, "update_stream", overwriting)
        result = run("stream", stream="SHARED", description="mine", wait_timeout=1)
    assert result["failure"]["code"] == "conflict", result
    assert "description is theirs, not mine" in result["msg"]
