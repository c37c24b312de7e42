# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Traces messages through real servers: to a stream, to a client of a different server, and to a refused subject."""

from __future__ import annotations

import asyncio
from typing import Any

import nats
from support.application import application_api, new_streams_deleted
from support.asset_changes import Run
from support.nats_processes import NatsProcesses
from support.single_server import running

OLD, NEW = "2.10.27", "2.15.1"


def test_a_message_is_traced_but_neither_stored_nor_delivered(
    five: NatsProcesses, run_module: Run, version: str
) -> None:
    app = five.app_connection()
    with new_streams_deleted(app), application_api(app) as api:
        five.add_stream("TRACED", 3)
        first = {**app, "servers": [five.url("n1")]}

        async def traced() -> tuple[dict[str, Any], int]:
            client = await nats.connect(five.url("n2"), user=app["user"], password=app["password"], name="worker")
            received: list[Any] = []

            async def on_message(message: Any) -> None:
                received.append(message)

            await client.subscribe("TRACED.>", cb=on_message)
            await client.flush()
            result = {}
            for _attempt in range(50):
                result = await asyncio.to_thread(run_module, "nats_message_trace_info", first, subject="TRACED.a")
                if result.get("failed") or (result["receivers"] and result["streams"]):
                    break  # the interest of the subscriber and the stream has reached the other servers
                await asyncio.sleep(0.1)
            await client.flush()
            await client.close()
            return result, len(received)

        result, received = asyncio.run(traced())
        if version == OLD:
            assert result["failure"]["code"] == "unsupported"
            assert "which would deliver the message; connect to an upgraded server" in result["msg"]
        else:
            assert result["complete"], result
            assert (result["streams"], result["receivers"], result["errors"]) == (["TRACED"], 1, [])
            assert result["hops"][0]["server"] == "n1"
            assert "n2" in [hop["server"] for hop in result["hops"]]
            assert any(line.strip() == "client worker (TRACED.>)" for line in result["lines"])
        assert received == 0
        assert api.stream("TRACED")["state"]["messages"] == 0


def test_a_subject_that_no_message_can_have_is_refused(five: NatsProcesses, run_module: Run) -> None:
    for subject in ("", "a.*", "a..b", "a b"):
        told = run_module("nats_message_trace_info", five.app_connection(), subject=subject)
        assert told["failure"]["code"] == "invalid_option"
        assert "is not the subject of one message" in told["msg"]


def test_message_without_receivers_is_traced_to_the_connected_server(
    five: NatsProcesses, run_module: Run, version: str
) -> None:
    result = run_module("nats_message_trace_info", five.app_connection(), subject="nowhere")
    if version == OLD:
        assert result["failure"]["code"] == "unsupported"
        return
    assert (result["complete"], len(result["hops"]), result["receivers"], result["streams"]) == (True, 1, 0, [])


def test_mappings_imports_and_denials_are_part_of_the_path(run_module: Run) -> None:
    config = {
        "accounts": {
            "APP": {
                "users": [
                    {"user": "app", "password": "p-app", "permissions": {"publish": {"deny": ["secret"]}}},
                    {"user": "mute", "password": "p-mute", "permissions": {"publish": {"allow": ["old"]}}},
                ],
                "mappings": {"old": "new"},
                "imports": [{"service": {"account": "OTHER", "subject": "api"}, "to": "local"}],
            },
            "OTHER": {"users": [{"user": "other", "password": "p-other"}], "exports": [{"service": "api"}]},
        },
    }

    with running(NEW, config) as server:

        def trace(user: str, subject: str) -> dict[str, Any]:
            connection = {
                "servers": [f"nats://127.0.0.1:{server.port}"],
                "user": user,
                "password": f"p-{user}",
                "timeout": 2,
            }
            return run_module("nats_message_trace_info", connection, subject=subject)

        (hop,) = trace("app", "old")["hops"]
        assert (hop["mapped_to"], hop["received_from"]["account"]) == ("new", "APP")
        (hop,) = trace("app", "local")["hops"]
        assert hop["imports"] == [{"account": "OTHER", "from": "local", "to": "api"}]
        denied = trace("app", "secret")
        assert denied["errors"] == ['Permissions Violation for Publish to "secret"']
        mute = trace("mute", "old")
        assert mute["failure"]["code"] == "permission"
        assert "the user may not publish to _INBOX" in mute["msg"]
