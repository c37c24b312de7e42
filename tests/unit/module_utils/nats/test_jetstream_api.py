# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests replies of a server that has not yet enabled JetStream for an account, and of members that reply instead of a
leader."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats import api_requests, jetstream_api
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import ConnectionOptions, NatsFailure, Reply

NOT_ENABLED = {"error": {"code": 503, "err_code": 10039, "description": "JetStream not enabled for account"}}


class Server:
    """Returns the replies in order, then repeats the last one."""

    def __init__(self, *replies: dict[str, Any], **login: str) -> None:
        self.options = ConnectionOptions(servers=("nats://a",), **login)  # type: ignore[arg-type]
        self.replies = replies
        self.asked = 0

    def request_many(self, calls: list[Any], timeout: float | None) -> list[Reply]:
        reply = self.replies[min(self.asked, len(self.replies) - 1)]
        self.asked += 1
        return [Reply("subject", json.dumps(reply).encode(), 0.001) for _call in calls]


def test_an_account_of_a_jwt_is_given_time() -> None:
    server = Server(NOT_ENABLED, NOT_ENABLED, {"memory": 1}, credentials="app.creds")
    assert jetstream_api.JetStreamApi(server).info() == {"memory": 1}  # type: ignore[arg-type]
    assert server.asked == 3


def test_jwt_account_without_jetstream_is_reported_after_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jetstream_api, "_ACCOUNT_SECONDS", 0.15)
    server = Server(NOT_ENABLED, credentials="app.creds")
    with pytest.raises(NatsFailure, match="not enabled"):
        jetstream_api.JetStreamApi(server).info()  # type: ignore[arg-type]
    assert server.asked in (2, 3)


def test_an_account_of_the_configuration_is_known_at_once() -> None:
    server = Server(NOT_ENABLED, user="app", password="secret")
    with pytest.raises(NatsFailure, match="not enabled"):
        jetstream_api.JetStreamApi(server).info()  # type: ignore[arg-type]
    assert server.asked == 1


NO_STORE = {"error": {"code": 503, "err_code": 10049, "description": "error creating store for stream"}}
NO_SUBJECT = {"error": {"code": 500, "err_code": 10049, "description": "no subject"}}
CREATED = {"config": {"name": "A", "num_replicas": 1, "subjects": []}, "created": "2026-01-01T00:00:00Z", "state": {}}


@pytest.mark.parametrize(
    ("replies", "requests", "problem"),
    [
        ([NO_STORE, NO_STORE, CREATED], 3, ""),
        ([NO_STORE], 3, "error creating store for stream"),
        ([NO_SUBJECT, CREATED], 1, "no subject"),
    ],
)
def test_a_stream_without_a_store_is_requested_again(
    replies: list[dict[str, Any]], requests: int, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server removes the directories of the last stream of an account while it creates the next stream in them."""
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    server = Server(*replies)
    api = jetstream_api.JetStreamApi(server)  # type: ignore[arg-type]
    if problem:
        with pytest.raises(NatsFailure, match=problem):
            api.create_stream({"name": "A"})
    else:
        assert api.create_stream({"name": "A"}) == CREATED
    assert server.asked == requests


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"-ERR 'no space left on device'\r\n", "the server rejected a chunk: -ERR 'no space left on device'"),
        (b'{"error": {"err_code": 10062, "description": "restore failed"}}', "restore failed"),
        (b"\xff\x1b[31m", "the server rejected a chunk: "),
    ],
)
def test_the_reason_for_which_a_part_was_not_taken_is_the_servers_own(body: bytes, reason: str) -> None:
    api = jetstream_api.JetStreamApi(Server({}))  # type: ignore[arg-type]
    api._require_taken(Reply("subject", b"", 0.001))
    with pytest.raises(NatsFailure) as failure:
        api._require_taken(Reply("subject", body, 0.001))
    assert failure.value.description.startswith(reason) and "\x1b" not in failure.value.description


def test_a_restore_on_a_full_disk_names_the_disk() -> None:
    description = "restore failed: failed to store message sequence 116: expected sequence does not match store"
    error = {"error": {"code": 500, "err_code": 10062, "description": description}}
    with pytest.raises(NatsFailure, match=r"\(JetStream error 10062\): an earlier write failed; a disk may be full"):
        jetstream_api.JetStreamApi(Server(error)).call("SUBJECT")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("subject", "err_code", "named"),
    [
        ("$JS.API.STREAM.INFO.ORDERS", 10059, ": APP/ORDERS "),
        ("$JS.hub.API.STREAM.MSG.GET.ORDERS", 10059, ": APP/ORDERS "),
        ("$JS.API.CONSUMER.LEADER.STEPDOWN.ORDERS.worker", 10059, ": APP/ORDERS "),
        ("$JS.API.CONSUMER.LEADER.STEPDOWN.ORDERS.worker", 10014, ": APP/ORDERS/worker "),
        ("$JS.API.CONSUMER.CREATE.ORDERS.worker.orders.new", 10014, ": APP/ORDERS/worker "),
        ("$JS.API.STREAM.LIST", 10059, "not found "),
        ("$JS.API.STREAM.INFO.ORDERS", 10047, "not found "),
    ],
)
def test_a_missing_asset_is_named(subject: str, err_code: int, named: str) -> None:
    error = {"error": {"code": 404, "err_code": err_code, "description": "not found"}}
    api = jetstream_api.JetStreamApi(Server(error), "APP")  # type: ignore[arg-type]
    failure = api._answer(Reply(subject, json.dumps(error).encode(), 0.001))
    assert isinstance(failure, NatsFailure) and f"{named}(JetStream error {err_code})" in failure.description


@pytest.mark.parametrize("error", ["x", 7, ["a"], True])
def test_error_of_an_unexpected_type_is_a_bad_reply(error: Any) -> None:
    """Any client of the account may reply to a request to the JetStream API."""
    with pytest.raises(NatsFailure, match="an error that is not a JSON object") as failure:
        jetstream_api.JetStreamApi(Server({"error": error})).info()  # type: ignore[arg-type]
    assert (failure.value.code, failure.value.subject) == ("bad_reply", "subject")


def test_reply_contents_do_not_move_the_cursor() -> None:
    said = {"code": 1, "err_code": "x", "description": "\x1b]0;PWNED\x07\x1b[2J red\n[ERROR]: forged\r\x9b"}
    with pytest.raises(NatsFailure) as failure:
        jetstream_api.JetStreamApi(Server({"error": said})).info()  # type: ignore[arg-type]
    assert (
        failure.value.description == "\ufffd]0;PWNED\ufffd\ufffd[2J red [ERROR]: forged \ufffd (JetStream error None)"
    )
    assert failure.value.err_code is None


def test_a_reply_that_is_nested_without_an_end_is_a_bad_reply() -> None:
    api = jetstream_api.JetStreamApi(Server({}))  # type: ignore[arg-type]
    failure = api._answer(Reply("subject", b"[" * 200_000, 0.001))
    assert isinstance(failure, NatsFailure) and failure.code == "bad_reply"


STREAM = {"name": "w", "config": {"name": "ORDERS"}, "state": {"messages": 1}}


@pytest.mark.parametrize(
    "change, wrong",
    [
        ({"config": None}, "config"),
        ({"config": {"name": "A", "num_replicas": "3"}}, "config"),
        ({"config": {"name": "\ud800"}}, "config"),
        ({"state": None, "created": 7}, "state, created"),
        ({"state": {"messages": -1}}, "state"),
        ({"state": {"last_seq": 1 << 70}}, "state"),
        ({"cluster": {"leader": "n1", "replicas": ["n2"]}}, "cluster"),
        ({"cluster": {"leader": ["n1"]}}, "cluster"),
    ],
)
def test_a_stream_of_other_types_is_a_bad_reply(change: dict[str, Any], wrong: str) -> None:
    api = jetstream_api.JetStreamApi(Server({**STREAM, **change}))  # type: ignore[arg-type]
    with pytest.raises(NatsFailure, match=f"has no valid {wrong}; a client of the account may have sent it") as failure:
        api.stream("ORDERS")
    assert (failure.value.code, failure.value.subject) == ("bad_reply", "$JS.API.STREAM.INFO.ORDERS")
    with pytest.raises(NatsFailure, match="rows of the wrong type"):
        jetstream_api.JetStreamApi(Server({"streams": [{**STREAM, **change}]})).streams()  # type: ignore[arg-type]


@pytest.mark.parametrize("delivered", [7, {"stream_seq": None}, {"consumer_seq": 1, "stream_seq": "x"}])
def test_a_consumer_of_other_types_is_a_bad_reply(delivered: Any) -> None:
    api = jetstream_api.JetStreamApi(Server({**STREAM, "delivered": delivered}))  # type: ignore[arg-type]
    with pytest.raises(NatsFailure, match="has no valid delivered") as failure:
        api.consumer("ORDERS", "w")
    assert failure.value.code == "bad_reply"


@pytest.mark.parametrize("name", ["", "a b", "a.b", "*", "a\r\nPUB b 0\r\n", "\ud800", 7])
def test_a_listing_with_a_name_that_no_server_gives_is_a_bad_reply(name: Any) -> None:
    with pytest.raises(NatsFailure, match="rows of the wrong type"):
        listing({"streams": [name], "total": 1, "limit": 1024})


def test_a_restore_that_created_the_stream_without_its_archive_has_failed() -> None:
    """The empty stream is then removed. Such restores occur on 2.10.27 while the server that the meta leader chose for
    the stream is down."""
    api = jetstream_api.JetStreamApi(Server({**STREAM, "did_create": True}))  # type: ignore[arg-type]
    with pytest.raises(jetstream_api.RestoreFailed, match="does not accept its archive") as failure:
        api.restore_stream({"name": "ORDERS"}, {}, [], jetstream_api.TransferPace(1.0))
    assert failure.value.code == "interrupted"


def test_the_subjects_of_a_stream_end_with_as_many_as_the_first_page_promised() -> None:
    pages = [{"state": {"subjects": {"A": 1, "B": 2}}, "total": 3}, {"state": {"subjects": {"B": 2}}, "total": 9}]
    server = Server(*pages)
    assert jetstream_api.JetStreamApi(server).subject_counts("S") == {"A": 1, "B": 2}  # type: ignore[arg-type]
    assert server.asked == 2


def test_subjects_without_an_end_are_a_bad_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jetstream_api, "_LISTING_SECONDS", 0.05)
    server = Server({"state": {"subjects": {"A": 1}}, "total": 1 << 60})
    with pytest.raises(NatsFailure, match="of 1152921504606846976 subjects") as failure:
        jetstream_api.JetStreamApi(server).subject_counts("S")  # type: ignore[arg-type]
    assert failure.value.code == "bad_reply"


@pytest.mark.parametrize("reply", [{}, {"message": "x"}, {"message": {"subject": "S", "seq": "1", "time": "x"}}])
def test_a_message_of_other_types_is_a_bad_reply(reply: dict[str, Any]) -> None:
    api = jetstream_api.JetStreamApi(Server(reply))  # type: ignore[arg-type]
    for read in (api.last_message, api.first_message):
        with pytest.raises(NatsFailure, match="has no valid message"):
            read("S")
    with pytest.raises(NatsFailure, match="has no valid purged"):
        jetstream_api.JetStreamApi(Server({"purged": "all"})).purge_stream("S")  # type: ignore[arg-type]


def _info(messages: int, leader: str | None, *replicas: str) -> dict[str, Any]:
    view = {"name": "C1", "leader": leader, "replicas": [{"name": name} for name in replicas]}
    return {"name": "w", "config": {"name": "ORDERS"}, "state": {"messages": messages}, "cluster": view}


#: The views of n3 shortly after its start: before and after it has a leader (both were seen on 2.10.27).
MEMBER_REPLIES = [_info(6, None, "n1", "n2", "n3"), _info(6, "n1", "n1", "n2")]
LEADER_REPLY = _info(20, "n1", "n2", "n3")


@pytest.mark.parametrize("early", MEMBER_REPLIES)
def test_leader_is_queried_if_a_different_member_answers(early: dict[str, Any]) -> None:
    server = Server(early, early, LEADER_REPLY)
    assert jetstream_api.JetStreamApi(server).stream("ORDERS")["state"] == {"messages": 20}  # type: ignore[arg-type]
    assert server.asked == 3
    server = Server(early, LEADER_REPLY)
    assert jetstream_api.JetStreamApi(server).consumer("ORDERS", "w") == LEADER_REPLY  # type: ignore[arg-type]


@pytest.mark.parametrize("info", [LEADER_REPLY, _info(20, "n1"), {**_info(20, None), "cluster": None}])
def test_single_reply_is_accepted_at_once(info: dict[str, Any]) -> None:
    server = Server(info)
    assert jetstream_api.JetStreamApi(server).stream("ORDERS") == info  # type: ignore[arg-type]
    assert server.asked == 1


def test_a_group_without_a_leader_is_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jetstream_api, "_LEADER_SECONDS", 0.15)
    server = Server(MEMBER_REPLIES[0])
    assert jetstream_api.JetStreamApi(server).stream("ORDERS") == MEMBER_REPLIES[0]  # type: ignore[arg-type]
    assert server.asked in (2, 3)


def test_which_requests_only_read() -> None:
    reads = [
        "INFO",
        "STREAM.NAMES",
        "STREAM.LIST",
        "STREAM.INFO.S",
        "STREAM.MSG.GET.S",
        "CONSUMER.NAMES.S",
        "CONSUMER.INFO.S.C",
    ]
    acts = [
        "STREAM.CREATE.INFO",
        "STREAM.DELETE.INFO",
        "STREAM.MSG.DELETE.GET",
        "STREAM.INFOS",
        "CONSUMER.MSG.NEXT.S.C",
        "META.LEADER.STEPDOWN",
        "SERVER.REMOVE",
        "ACCOUNT.STREAM.MOVE.INFO.LIST",
    ]
    assert [subject for subject in reads + acts if api_requests._READS.match(subject)] == reads


def listing(*pages: dict[str, Any]) -> list[str]:
    return jetstream_api.JetStreamApi(Server(*pages)).stream_names()  # type: ignore[arg-type]


def test_a_listing_ends_with_the_rows_that_its_first_page_promised() -> None:
    first = {"streams": ["A"] * 1024, "total": 1025, "limit": 1024}
    assert len(listing(first, {"streams": ["B"], "total": 5000, "limit": 1024})) == 1025


@pytest.mark.parametrize(
    "page",
    [
        {"streams": ["A"], "total": 10**15, "limit": 1},
        {"streams": ["A"] * 256, "total": 10**15, "limit": 256},
        {"streams": [], "total": 5000, "limit": 256},
        {"streams": ["A"], "total": 5000, "limit": 1},
        {"streams": "A", "total": 5000, "limit": 256},
        {"streams": ["A"], "total": "many", "limit": 256},
        {"streams": ["A"], "total": 5000, "limit": [1]},
        {"streams": ["A"], "total": 5000, "limit": 256, "missing": 7},
        {"streams": [{"config": {}}], "total": 1, "limit": 256},
    ],
)
def test_pages_that_no_server_sends_are_a_bad_reply(page: dict[str, Any]) -> None:
    """Any client of the account may send such pages, in reply to any number of requests."""
    with pytest.raises(NatsFailure) as failure:
        listing(page)
    assert failure.value.code == "bad_reply"


def test_pages_that_take_too_long_are_a_bad_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jetstream_api, "_LISTING_SECONDS", 0.0)
    page = {"streams": ["A"] * 256, "total": 250_000, "limit": 256}
    with pytest.raises(NatsFailure, match="rows in 0 s"):
        listing(page)
