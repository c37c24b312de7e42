# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A hub and two edges, whose leafnodes bind the hub's system account, are one fleet, in which all JetStream domains
have streams and accounts with the same names. Events in one domain do not affect another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jetstream_insights.findings import REGISTRY
from jetstream_insights.findings.registry import CheckSettings
from jetstream_insights.findings_job import make_findings
from jetstream_insights.lake import Lake
from jetstream_insights.report.content import make_report
from jetstream_insights.report.shape import dicts
from support.fleet import START
from support.lakes import published_rows
from support.two_days import DOMAIN_MOMENTS, DOMAINS, PARTS, quiet

#: Checks of a single domain's assets, and checks that compare servers.
CHECKS = {
    *("META_002", "META_103", "CLUSTER_105", "GATEWAY_101", "SERVER_107"),
    *("JETSTREAM_001", "STREAM_101", "STREAM_102", "STREAM_106", "STREAM_117", "CONSUMER_102", "CONSUMER_103"),
}


class Made:
    """The tables computed from the fleet."""

    def __init__(self, lake: Path, report: dict[str, Any]) -> None:
        self._report = report
        self._tables = {layer: published_rows(lake, layer, START.date()) for layer in ("gold", "findings")}

    def rows(self, layer: str, table: str) -> list[dict[str, Any]]:
        return [row for row in self._tables[layer][table] if row["fleet"] == DOMAINS]

    def reported(self, table: str) -> list[dict[str, Any]]:
        return [row for row in dicts(self._report, table) if row["fleet"] == DOMAINS]


@pytest.fixture(scope="module")
def made(two_days: Lake, tmp_path_factory: pytest.TempPathFactory) -> Made:
    wanted, folder = CheckSettings(skip=frozenset(set(REGISTRY.checks) - CHECKS)), tmp_path_factory.mktemp("domains")
    assert make_findings(two_days, [START.date()], quiet, False, wanted, None).made == 1
    make_report(two_days, START.date(), folder, "Fleet", quiet)
    return Made(Path(two_days.uri), json.loads((folder / "report.json").read_text()))


def leader(name: str, stream: str, at: float) -> str:
    part = PARTS[name]
    number = part.leader(next(one for one in part.assets if one.name == stream), at)
    assert number is not None
    return part.name(number)


def test_each_domain_has_its_meta_group_and_its_streams(made: Made) -> None:
    meta = {row["domain"]: (row["leaders"], row["size"], row["members"]) for row in made.rows("gold", "report_meta")}
    assert meta == {
        name: ([f"{name}-{2 if name == 'berlin' else 1}"], 3, [f"{name}-{number}" for number in (1, 2, 3)])
        for name in PARTS
    }
    (fleet,) = made.rows("gold", "report_fleet")
    assert (fleet["meta_leader"], fleet["streams"], fleet["leaderless_streams"]) == ("berlin-2, hub-1, oslo-1", 12, 0)
    assert {(row["domain"], row["stream"]): row["leader"] for row in made.rows("gold", "report_streams")} == {
        (name, stream.name): leader(name, stream.name, DOMAIN_MOMENTS[-1])
        for name, part in PARTS.items()
        for stream in part.assets
    }
    servers = {row["server"]: row for row in made.rows("gold", "report_servers")}
    assert {name for name, row in servers.items() if row["is_meta_leader"]} == {"hub-1", "berlin-2", "oslo-1"}


def test_availability_and_elections_are_computed_by_domain(made: Made) -> None:
    for row in made.rows("gold", "availability"):
        expected = (1.0, 1.0, row["domain"] != "berlin")
        assert (row["leader_ratio"], row["quorum_ratio"], row["redundant_ratio"] == 1.0) == expected, row
    moved = {
        ("berlin", stream.name)
        for stream in PARTS["berlin"].assets
        if leader("berlin", stream.name, 0.0) != leader("berlin", stream.name, 900.0)
    }
    changes = {(row["domain"], row["stream"]) for row in made.rows("gold", "leader_changes")}
    assert moved and changes == moved | {("berlin", "")}
    incidents = {(row["incident"], row["domain"], row["server"]) for row in made.rows("gold", "incidents")}
    assert incidents == {("not_redundant", "berlin", ""), ("server_missing", "", "berlin-1")}
    assert {row["domain"] for row in made.rows("gold", "account_usage")} == set(PARTS)
    assert not [row for row in made.rows("gold", "divergence") if row["diverged"] or row["behind"]]


def test_findings_of_domains_are_separate(made: Made) -> None:
    failed = [row for row in made.rows("findings", "findings") if row["result"] == "fail"]
    found = {(row["check"], row["domain"], row["stream"]) for row in failed if row["stream"] is not None}
    assert {(domain, stream) for check, domain, stream in found if check == "STREAM_106"} == {
        ("berlin", stream.name) for stream in PARTS["berlin"].assets
    }
    assert {domain for _check, domain, _stream in found} == {"berlin"}
    assert {row["check"] for row in failed} <= {"STREAM_106", "CONSUMER_103", "META_103"}
    assert {row["domain"] for row in failed} == {"berlin"}


def test_report_names_domains_if_there_are_several(made: Made) -> None:
    assert {row["domain"] for row in made.reported("streams")} == set(PARTS)
    (cause,) = made.reported("causes")
    assert (cause["kind"], cause["servers"]) == ("servers_down", ["berlin-1"])
    assert any("A0@berlin/" in line for line in cause["evidence"]), cause["evidence"]
