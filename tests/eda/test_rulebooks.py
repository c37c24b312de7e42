# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs each rulebook of the collection in a real ansible-rulebook: with the events that trigger it, with others that do
not, and with its playbook."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jetstream_insights.report.shape import BY_NAME, FORMAT, filled
from support.module_runs import form, step_down
from support.nats_processes import VERSIONS, NatsProcesses
from support.role_cluster import RoleCluster
from support.rulebooks import Rulebook, Start

ROLES = Path(__file__).resolve().parents[2] / "roles"
#: The subjects that the playbook capture_advisories stores in a stream.
CAPTURED = yaml.safe_load((ROLES / "nats_insights/defaults/main.yml").read_text())["nats_insights_capture_subjects"]

NAMES = ["n1", "n2", "n3"]
RECORD = str(Path(__file__).parent / "playbooks" / "record_event.yml")
HEALTH = "nats_health - INFO - connected"
ADVISORIES = "nats_advisories - INFO - connected"


@pytest.fixture(params=VERSIONS)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NatsProcesses]:
    """A cluster that the test may break, with the stream ORDERS."""
    made = NatsProcesses(request.param, tmp_path, NAMES)
    made.start()
    try:
        form(made)
        made.add_stream("ORDERS", 3)
        yield form(made)
    finally:
        made.kill()


def ran(rulebook: Rulebook, play: str) -> str:
    """Wait until this play has completed without a failure, and return the entire output as one line."""
    rulebook.wait_for(r"PLAY RECAP \*+\s+\w+ +: ok=")
    output = " ".join(rulebook.output.split())
    assert not re.search(r"(failed|unreachable)=[1-9]", output), rulebook.output
    assert f"PLAY [{play}]" in output
    return output


@pytest.mark.parametrize("cluster", ["2.10.27"], indirect=True)
def test_leader_flapping(cluster: NatsProcesses, start: Start) -> None:
    """Four elections of the same stream do not trigger the rule, but the fifth does. In this test, the advisories come
    from a stream, which also shows which election was the fifth: a busy server may cause another one."""
    variables = {
        "nats_connection": cluster.sys_connection(),
        "nats_advisories_connection": cluster.app_connection(),
        "nats_advisories_stream": "ADVISORIES",
        "nats_leader_flapping_playbook": RECORD,
    }
    cluster.add_stream("OTHER", 3)
    cluster.add_stream("ADVISORIES", 3, subjects=CAPTURED)
    rulebook = start("natsops.jetstream.leader_flapping", variables)
    rulebook.wait_for(ADVISORIES)
    for _time in range(4):
        step_down(cluster, "OTHER")
        step_down(cluster)
    step_down(cluster)
    rulebook.wait_until(lambda: rulebook.recorded, "no event")
    first = rulebook.recorded[0]
    elections: Counter[str] = Counter()
    for sequence in range(1, first["event"]["nats"]["sequence"] + 1):
        stored = cluster.app_request("$JS.API.STREAM.MSG.GET.ADVISORIES", {"seq": sequence})["message"]
        if ".LEADER_ELECTED." in stored["subject"]:
            elections[str(json.loads(base64.b64decode(stored["data"])).get("stream"))] += 1
    [(stream, count)] = elections.most_common(1)
    assert (first["event"]["nats"]["asset"], count) == (f"APP/{stream}", 5)
    assert all(others < 5 for name, others in elections.items() if name != stream)
    assert first["variables"] == ["nats_connection"]


def test_quorum_lost(cluster: NatsProcesses, start: Start) -> None:
    """An election is not a loss of quorum. The leader that lost its quorum reports the loss; for a group without a
    leader, the health source reports it."""
    variables = {"nats_connection": cluster.sys_connection(), "nats_quorum_lost_seconds": 2}
    rulebook = start("natsops.jetstream.quorum_lost", {**variables, "nats_quorum_lost_playbook": RECORD})
    rulebook.wait_for(ADVISORIES)
    rulebook.wait_for(HEALTH)
    leader = step_down(cluster)
    cluster.kill(*(name for name in NAMES if name != leader))

    def recorded(by_health: bool) -> list[dict[str, Any]]:
        events = [run["event"]["nats"] for run in rulebook.recorded]
        return [event for event in events if ("code" in event) == by_health]

    rulebook.wait_until(lambda: recorded(by_health=False), "no event of the lost leader")
    rulebook.wait_until(lambda: recorded(by_health=True), "no health event")
    # Events are in order, so the earlier election did not trigger the rule.
    assert all(str(event["type"]).endswith("_quorum_lost") for event in recorded(by_health=False))
    event = recorded(by_health=True)[0]
    assert event["code"] in ("meta_no_leader", "stream_no_leader", "stream_no_quorum", "meta_no_quorum")
    assert event["seconds"] >= 2
    rulebook.stop()

    rulebook = start("natsops.jetstream.quorum_lost", variables)
    assert "stream APP/ORDERS" in ran(rulebook, "Diagnose the cluster")


@pytest.mark.parametrize("cluster", ["2.10.27"], indirect=True)
def test_disk_forecast(cluster: NatsProcesses, start: Start, tmp_path: Path) -> None:
    """The report has the same columns as one written by the insights."""
    folder = tmp_path / "report"
    folder.mkdir()
    growing = {"fleet": "test", "scope": "server", "resource": "file", "state": "growing"}
    harmless: list[dict[str, Any]] = [
        {**growing, "name": "late", "full_p10": 40.0, "full_p50": 60.0},
        {**growing, "name": "level", "state": "plateau"},
        {**growing, "name": "memory", "resource": "memory", "full_p10": 2.0},
        {**growing, "name": "account", "scope": "account", "full_p10": 2.0},
    ]
    variables = {"nats_connection": cluster.sys_connection(), "nats_insights_report_fetch": str(folder)}
    write_table(
        folder,
        "capacity",
        [*harmless, {**growing, "name": "soon", "full_p10": 9.5}, {**growing, "name": "now", "state": "full"}],
    )
    rulebook = start("natsops.jetstream.disk_forecast", {**variables, "nats_disk_forecast_playbook": RECORD})
    # The harmless row precedes the other one, so its event would come first.
    rulebook.wait_until(lambda: len(rulebook.recorded) == 2, "fewer than two events")
    assert [run["event"]["nats"]["row"]["name"] for run in rulebook.recorded] == ["soon", "now"]
    assert rulebook.recorded[0]["event"]["nats"]["row"] == {**growing, "name": "soon", "full_p10": 9.5}
    rulebook.stop()

    write_table(folder, "capacity", [{**growing, "name": "n1", "full_p10": 1.0}])
    rulebook = start("natsops.jetstream.disk_forecast", variables)
    assert "ORDERS" in ran(rulebook, "Report on the cluster")


def write_table(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    """Write an insights report in which this table has these rows."""
    table = BY_NAME[name]
    values = [[row.get(column.name) for column in table.columns] for row in rows]
    report = {"format": FORMAT, "title": "test", "day": "2026-11-21", "generated": "2026-11-22T00:10:00Z", "notes": []}
    (folder / "report.json").write_text(
        json.dumps({**report, "tables": {table.name: filled(table, values, len(values))}})
    )


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[RoleCluster]:
    """A cluster that the role deployed, with certificates that the role issued: valid for 20 days, on n3 for 10
    days."""
    made = RoleCluster(tmp_path, NAMES, "2.15.1")
    made.variables.update(nats_server_tls_source="ca", nats_server_tls_ca_dir=str(tmp_path / "ca"))
    made.variables.update(nats_server_tls_cert_days=20, nats_server_tls_renew_before_days=1)
    made.hosts["n3"]["nats_server_tls_cert_days"] = 10
    with made.deployed():
        yield made


def test_certificate_expiry_and_server_gone(hosts: RoleCluster, start: Start) -> None:
    """The real playbook renews certificates that expire soon; the real playbook for a lost server reports the next
    steps."""
    connection = {**hosts.system(), "tls_ca_file": str(hosts.root / "ca" / "ca.crt")}
    before = certificates(hosts)
    rulebook = start(
        "natsops.jetstream.certificate_expiry", {"nats_connection": connection, "nats_certificate_playbook": RECORD}
    )
    rulebook.wait_until(lambda: rulebook.recorded, "no event of a certificate that expires in 10 days")
    # The certificates of n1 and n2, which precede that of n3 in the same check, expire in more than two weeks.
    assert rulebook.recorded[0]["event"]["nats"]["server"] == "n3"
    rulebook.stop()
    del hosts.hosts["n3"]["nats_server_tls_cert_days"]
    hosts.variables["nats_server_tls_cert_days"] = 397
    hosts.inventory()
    rulebook = start(
        "natsops.jetstream.certificate_expiry", {"nats_connection": connection, "nats_certificate_days": 25}
    )
    ran(rulebook, "Rotate certificates")
    assert not set(certificates(hosts)) & set(before)
    rulebook.stop()

    # For an unbalanced cluster the playbook reports the moves without starting them.
    uneven = {"fleet": "test", "cluster": "C1", "scope": "server", "measure": "bytes", "distance": 0.8}
    rows = [{**uneven, "scope": "zone"}, {**uneven, "measure": "replicas"}, {**uneven, "distance": 0.2}, uneven]
    plan = hosts.root / "plan.json"
    write_table(hosts.root, "balance", rows)
    proposal = {"nats_insights_report_fetch": str(hosts.root), "nats_rebalance_plan_file": str(plan)}
    rulebook = start("natsops.jetstream.uneven_servers", {**proposal, "nats_rebalance_playbook": RECORD})
    rulebook.wait_until(lambda: rulebook.recorded, "no event of the uneven cluster")
    assert [run["event"]["nats"]["row"] for run in rulebook.recorded] == [uneven]
    rulebook.stop()
    rulebook = start("natsops.jetstream.uneven_servers", proposal)
    assert "No move would balance the servers further" in ran(rulebook, "Rebalance a NATS cluster")
    assert json.loads(plan.read_text())["cluster"] == "C1"
    rulebook.stop()

    hosts.add("n4")
    hosts.inventory()
    variables = {
        "nats_connection": connection,
        "nats_expected_servers": NAMES,
        "nats_cluster_replacement": "n4",
        "nats_server_gone_seconds": 5,
    }
    rulebook = start("natsops.jetstream.server_gone", variables)
    rulebook.wait_for(HEALTH)
    # Had the playbook been started for a running server, this first play would have failed.
    hosts.kill("n3")
    output = ran(rulebook, "Replace a NATS server")
    assert "n4 takes the place of n3" in output
    assert (hosts.pid("n4"), hosts.pid("n3")) == (0, 0)
    assert re.findall(r"changed=[1-9]", output) == []


def certificates(hosts: RoleCluster) -> list[bytes]:
    """Return the certificates that the servers have."""
    return [(Path(hosts.hosts[name]["nats_server_config_dir"]) / "tls" / "server.crt").read_bytes() for name in NAMES]
