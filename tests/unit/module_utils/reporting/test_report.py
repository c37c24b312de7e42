# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.catalogue import Catalogue
from ansible_collections.natsops.jetstream.plugins.module_utils.maintenance import Mark
from ansible_collections.natsops.jetstream.plugins.module_utils.reporting.report import report_data
from ansible_collections.natsops.jetstream.plugins.module_utils.reporting.report_page import report_page
from ansible_collections.natsops.jetstream.plugins.module_utils.table import table


def test_every_line_of_a_table_is_equally_wide_and_numbers_stand_on_the_right() -> None:
    text = table("A title that is wider than the table", ("Name", "Count"), [("n1", 5), ("n10", 12345)], [("", 12350)])
    lines = text.splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[5].rstrip(" │").endswith(" 5")
    assert lines[5].startswith("│ n1 ")


def server(name: str, jetstream: bool = True, **changes: Any) -> dict[str, Any]:
    held = ("streams", "consumers", "messages", "bytes", "memory", "storage", "api_total", "api_errors", "pending")
    js = dict.fromkeys(held, 2)
    return {
        "name": name,
        "cluster": "C1",
        "host": "10.0.0.1",
        "version": "2.10.27",
        "domain": "",
        "jetstream": jetstream,
        "connections": 1,
        "subscriptions": 60,
        "routes": 8,
        "gateways": 0,
        "inbound_gateways": 0,
        "mem": 1 << 24,
        "cpu": 1.5,
        "cores": 2,
        "slow_consumers": 0,
        "uptime": 12.5,
        "rtt": 0.002,
        "js": js if jetstream else None,
        **changes,
    }


def peers(leader: str, *others: str, away: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "id": "abc",
            "leader": name == leader,
            "current": name not in away,
            "online": True,
            "active": 0.4,
            "lag": 0,
        }
        for name in sorted((leader, *others))
    ]


def group(leader: str | None, *others: str, **changes: Any) -> dict[str, Any]:
    members = sorted({leader, *others} - {None})  # type: ignore[type-var]
    return {
        "leader": leader,
        "leaders": [leader] if leader else [],
        "members": members,
        "cluster": "C1",
        "replicas": peers(leader, *others) if leader else [],
        **changes,
    }


def stream(
    name: str, placed: dict[str, Any], consumers: tuple[dict[str, Any], ...] = (), account: str = "APP"
) -> dict[str, Any]:
    return {
        "account": account,
        "account_name": account,
        "name": name,
        "storage": "file",
        "messages": 10,
        "bytes": 100,
        "num_deleted": 1,
        "lost_messages": 0,
        "placement": {"cluster": "C1", "tags": ["az:a"]},
        "api_level": 0,
        **placed,
        "consumers": list(consumers),
    }


def consumer(name: str, placed: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "pull": True,
        "ack_policy": "explicit",
        "ack_wait": 30.0,
        "num_ack_pending": 1,
        "max_ack_pending": 1000,
        "num_waiting": 0,
        "paused": False,
        "num_redelivered": 0,
        "num_pending": 5,
        "ack_floor": 3,
        "api_level": 0,
        **placed,
    }


def info(**changes: Any) -> dict[str, Any]:
    meta = {**group("n2", "n1"), "size": 2, "quorum": 2}
    return {
        "servers": [server("n1"), server("n2"), server("n3", jetstream=False)],
        "meta": meta,
        "streams": [],
        "missing": [],
        "problems": [],
        **changes,
    }


def one_table(data: dict[str, Any], name: str) -> dict[str, Any]:
    return next(item for item in data["tables"] if item["name"] == name)


def test_the_meta_leader_is_marked_and_core_servers_are_left_out() -> None:
    data = report_data(info(), reports=["jetstream"])
    assert [row["server"] for row in one_table(data, "jetstream")["rows"]] == ["n1", "n2"]
    assert "n2*" in report_page(data).text


def test_reserved_bytes_are_listed_next_to_the_limit() -> None:
    """A server whose streams have reserved all of its storage accepts no further stream, although its disk is empty."""
    found = info()
    for one in found["servers"]:
        if one["jetstream"]:
            one["js"] = {**one["js"], "reserved_storage": 700 << 20, "max_storage": 1 << 30}
    data = report_data(found, reports=["jetstream"])
    rows = [*one_table(data, "jetstream")["rows"], one_table(data, "jetstream")["totals"][0]]
    assert [(row["reserved_storage"] >> 20, row["max_storage"] >> 20) for row in rows] == [
        (700, 1024),
        (700, 1024),
        (1400, 2048),
    ]
    text = report_page(data).text
    for shown in ("Reserved", "File Limit", "700.0 MiB", "1.0 GiB"):
        assert shown in text


def test_totals_count_each_stream_once_and_every_replica_and_are_labelled() -> None:
    streams = [stream("ORDERS", group("n1", "n2"), (consumer("NEW", group("n2", "n1")),))]
    data = report_data(info(streams=streams), reports=["jetstream", "streams"])
    replicas, once = one_table(data, "jetstream")["totals"]
    assert (replicas["server"], replicas["streams"], replicas["messages"]) == ("every replica", 4, 4)
    assert (once["server"], once["streams"], once["consumers"], once["bytes"]) == ("each stream once", 1, 1, 100)
    replicas, once = one_table(data, "streams")["totals"]
    assert (replicas["stream"], replicas["messages"], replicas["consumers"]) == (2, 20, 2)
    assert (once["stream"], once["messages"], once["consumers"]) == (1, 10, 1)


def test_a_consumer_is_counted_for_its_own_leader() -> None:
    streams = [stream("ORDERS", group("n1", "n2"), (consumer("NEW", group("n2", "n1")),))]
    rows = one_table(report_data(info(streams=streams), reports=["jetstream"]), "leaders")["rows"]
    assert [(row["server"], row["streams"], row["consumers"]) for row in rows] == [("n1", 1, 0), ("n2", 0, 1)]


def test_consumers_show_why_they_lag() -> None:
    paused = {**consumer("NEW", group("n1")), "paused": True, "num_waiting": 2}
    streams = [stream("ORDERS", group("n1"), (paused, consumer("OLD", group("n1"))))]
    table = one_table(report_data(info(streams=streams), reports=["consumers"]), "consumers")
    shown = [(row["mode"], row["num_ack_pending"], row["max_ack_pending"], row["num_waiting"]) for row in table["rows"]]
    assert shown == [("Pull, paused", 1, 1000, 2), ("Pull", 1, 1000, 0)]


def test_replicas_are_marked() -> None:
    streams = [
        stream("A", group("n1", replicas=peers("n1", "n2", "n3", away=("n3",)))),
        stream("B", group(None, "n1", "n2")),
        stream("C", group(None, "n1", "n2", leaders=["n1", "n2"])),
    ]
    data = report_data(info(streams=streams), reports=["streams", "jetstream"])
    assert [row["replicas"] for row in one_table(data, "streams")["rows"]] == [
        "n1*, n2, n3!",
        "NO LEADER: n1?, n2?",
        "2 LEADERS: n1?, n2?",
    ]
    assert "2 without a leader" in one_table(data, "streams")["notes"][1]
    assert one_table(data, "leaders")["totals"] == [{"server": "NO LEADER", "streams": 2, "consumers": 0}]


def test_servers_that_do_not_answer_are_rows() -> None:
    data = report_data(
        info(missing=["n9"], meta={**group("n2", "n1", "n4"), "size": 3, "quorum": 2}), reports=["servers"]
    )
    assert data["not_answering"] == ["n4", "n9"]
    text = report_page(data).text
    assert [line.split("│")[1].strip() for line in text.splitlines() if "NO ANSWER" in line] == ["n4", "n9"]
    assert "NOT ANSWERING: n4, n9" in text


def test_a_meta_group_without_leader_is_a_warning_and_its_members_are_listed() -> None:
    meta = {**group(None, "n1", "n2", "n7"), "size": 3, "quorum": 2}
    data = report_data(info(meta=meta), reports=["jetstream"])
    shown = one_table(data, "meta")
    assert [(row["name"], row["online"]) for row in shown["rows"]] == [("n1", True), ("n2", True), ("n7", False)]
    assert (
        "has no leader (no server leads it). It has 3 members, 2 of them answered, and 2 must be up"
        in report_page(data).text
    )


def test_reports_are_narrowed_by_cluster_server_and_account() -> None:
    streams = [
        stream("A", group("n1")),
        stream("B", group("n2"), account="OTHER"),
        stream("C", group("n2", cluster="C2")),
    ]
    whole = info(streams=streams, servers=[server("n1"), server("n2", cluster="C2")], missing=["n8", "n9"])

    def names(**options: Any) -> tuple[list[str], list[str], list[str]]:
        data = report_data(whole, reports=["streams"], **options)
        return data["servers"], [row["stream"] for row in one_table(data, "streams")["rows"]], data["not_answering"]

    assert names(cluster="C2") == (["n2"], ["C"], ["n8", "n9"])
    assert names(account="OTHER")[1] == ["B"]
    assert names(server_names=["n1", "n9"]) == (["n1"], ["A"], ["n9"])


def test_version_and_routes_that_differ_are_marked() -> None:
    servers = [server("n1"), server("n2", version="2.15.1", routes=4)]
    total = one_table(report_data(info(servers=servers), reports=["servers"]), "servers")["totals"][0]
    assert (total["version"], total["routes"], total["gateways"]) == ("differ", "differ", "")


def test_health_and_connections_come_from_the_endpoints() -> None:
    errors = [{"type": "STREAM", "error": f"error {number}"} for number in range(12)]
    open_connection = {"cid": 5, "account": "APP", "ip": "::1", "port": 4, "subscriptions": 3, "in_msgs": 7}
    answers = {
        "servers": [
            {
                "name": "n1",
                "healthz": {"status": "unavailable", "status_code": 503, "errors": errors},
                "connz": {"connections": [open_connection, {**open_connection, "account": "OTHER"}]},
            },
            {"name": "n2", "healthz": {"status": "ok", "status_code": 200}},
        ],
        "incomplete": [{"server": "n2", "endpoint": "connz"}],
    }
    data = report_data(info(), answers, ["health", "connections", "accounts"], account="APP")
    health = one_table(data, "health")
    assert len(health["rows"]) == 14
    assert health["rows"][-1]["status"] == "UNKNOWN"
    assert health["totals"][0]["status"] == "ok: 1 / not ok: 2"
    shown = report_page(data)
    assert "error 11" in shown.text
    screen = "\n".join(report_page(report_data(info(), answers, ["health"])).screen)
    assert "error 9" in screen and "error 10" not in screen and "… and 4 more rows, 3 of them with problems" in screen
    assert one_table(data, "connections")["rows"][0]["address"] == "[::1]:4"
    assert one_table(data, "accounts")["rows"] == [
        {
            "account": "APP",
            "connections": 1,
            "in_msgs": 7,
            "out_msgs": 0,
            "in_bytes": 0,
            "out_bytes": 0,
            "subscriptions": 3,
        }
    ]
    assert "n2, n3 did not return connz" in shown.text


def test_backups_are_those_of_the_streams_that_exist() -> None:
    catalogue = (
        replace(Catalogue(), exclude=("APP/SCRATCH",))
        .saved("APP/ORDERS", "2026-11-23T02:00:00Z")
        .proven("APP/ORDERS", {"time": "2026-11-22T03:00:00Z", "ok": True, "seconds": 2.5})
        .saved("APP/LATE", "2026-11-23T02:00:00Z")
        .failed("APP/LATE", "it has no leader")
        .saved("APP/GONE", "2026-11-23T02:00:00Z")
    )
    streams = [stream(name, group("n1")) for name in ("ORDERS", "LATE", "NEW", "SCRATCH")]
    data = report_data(info(streams=streams), reports=["backups"], catalogue=json.loads(catalogue.text()))
    found = one_table(data, "backups")
    assert [(row["stream"], row["saved"], row["proven"], row["problem"]) for row in found["rows"]] == [
        ("LATE", "2026-11-23T02:00:00Z", None, "it has no leader"),
        ("NEW", None, None, ""),
        ("ORDERS", "2026-11-23T02:00:00Z", "2026-11-22T03:00:00Z", ""),
        ("SCRATCH", None, None, "excluded from the backups"),
    ]
    assert found["notes"] == ["WARNING: 1 never saved: APP/NEW", "WARNING: 1 never proven to restore: APP/LATE"]
    text = report_page(data).text
    assert "Last Backup" in text and "Last Proven Restore" in text and "2.5" in text
    for catalogue_given, said in ((None, "needs the catalogue"), ({"schema": "other"}, "this release reads")):
        with pytest.raises(ValueError, match=said):
            report_data(info(), reports=["backups"], catalogue=catalogue_given)


def test_an_unknown_report_and_a_missing_endpoint_are_refused() -> None:
    with pytest.raises(ValueError, match="there is no report nope; there are: servers"):
        report_data(info(), reports=["nope"])
    with pytest.raises(ValueError, match="routez is missing"):
        report_data(info(), reports=["routes"])


def test_the_report_names_the_problems_and_its_data_is_json() -> None:
    assert report_page(report_data(info())).text.endswith("No problems found.")
    gone = {
        "code": "server_missing",
        "severity": "error",
        "subject": "n9",
        "message": "expected server n9 did not answer",
    }
    data = report_data(info(problems=[{**gone, "servers": ["n9"]}]))
    text = report_page(json.loads(json.dumps(data))).text
    assert "Problems (1 error), by root cause:\n  1. error: n9 does not answer\n" in text
    assert "       expected server n9 did not answer\n     $ systemctl status nats-server" in text


def test_servers_in_maintenance_are_named_and_one_that_was_forgotten_there_is_a_warning() -> None:
    away = {
        "code": "server_missing",
        "severity": "error",
        "subject": "n9",
        "message": "n9 did not answer",
        "servers": ["n9"],
    }
    forgotten = {"n9": Mark("n9", by="ops", since=0.0, until=60.0, reason="new disk")}
    data = report_data(info(missing=["n9"], problems=[away]), marks=forgotten)
    assert [(one["code"], one["severity"]) for one in data["problems"]] == [("maintenance_overdue", "warning")]
    assert "n9 is in maintenance since 1970-01-01T00:00:00Z by ops" in report_page(data).text
    assert "(new disk), which has expired" in report_page(data).text
    (known,) = report_data(info(missing=["n9"], problems=[away]), marks={"n9": Mark("n9", until=2.0**39)})["problems"]
    assert known["code"] == "maintenance"


def test_a_cluster_without_jetstream_is_reported_as_such() -> None:
    assert "No JetStream meta group" in report_page(report_data(info(meta=None))).text


def test_commands_of_a_report_name_the_inventory() -> None:
    missing = {"code": "server_missing", "severity": "error", "subject": "n9", "message": "gone", "servers": ["n9"]}
    data = report_data(info(problems=[missing]), inventory=["/etc/ansible/hosts", "lab.yml"])
    commands = [command for command in data["causes"][0]["commands"] if command.startswith("ansible-playbook")]
    assert commands and all(" -i lab.yml" in command and "/etc/" not in command for command in commands)
