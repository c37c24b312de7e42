# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Launches the job templates of playbooks/awx as AWX launches them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.awx_job import Controller, Event
from support.awx_objects import Object, objects
from support.module_runs import Runner, form
from support.nats_processes import SYS_PASSWORD, SYS_USER, NatsProcesses
from support.role_cluster import OPERATOR_PASSWORD, SYSTEM_PASSWORD, RoleCluster, create, load

pytestmark = pytest.mark.playbook

VERSION = "2.15.1"
NAMES = ["n1", "n2", "n3"]


@pytest.fixture(scope="module")
def awx(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Object]]:
    return objects(tmp_path_factory.mktemp("awx"), nats_awx_insights_image="ee-insights:1")


def named(awx: dict[str, list[Object]], kind: str, name: str) -> Object:
    return next(item for item in awx[kind] if item["name"] == f"NATS {name}")


def test_no_job_template_is_sliced_or_runs_twice_at_once(awx: dict[str, list[Object]]) -> None:
    for template in awx["job_templates"]:
        assert template["job_slice_count"] == 1 and not template["allow_simultaneous"], template["name"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, run_module: Runner) -> Iterator[NatsProcesses]:
    cluster = NatsProcesses(VERSION, tmp_path_factory.mktemp("plain"), NAMES)
    cluster.start()
    try:
        yield form(cluster, run_module)
    finally:
        cluster.kill()


@pytest.fixture
def controller(plain: NatsProcesses, awx: dict[str, list[Object]], tmp_path: Path) -> Controller:
    """Return an inventory of that cluster that contains no secrets, and its credential."""
    hosts = {
        name: {"ansible_connection": "local", "nats_server_address": "127.0.0.1", "nats_server_port": plain.ports[name]}
        for name in NAMES
    }
    group = {"hosts": NAMES, "vars": {"nats_server_cluster_name": "C1", "nats_server_jetstream_store_dir": "/nowhere"}}
    inputs = {"url": ",".join(plain.urls), "user": SYS_USER, "password": SYS_PASSWORD, "creds": "", "ca": ""}
    inventory = {"nats": group, "_meta": {"hostvars": hosts}}
    return Controller(tmp_path, inventory, [(named(awx, "credential_types", "system"), inputs)])


def test_a_report_with_the_credential_and_a_limit(controller: Controller, awx: dict[str, list[Object]]) -> None:
    job = controller.launch(named(awx, "job_templates", "report"), {"report": "servers"}, limit="n1,n2")
    assert job.status == "successful", job.output
    tables = job.artifacts["nats_report"]
    assert [row for table in tables["tables"] for row in table["rows"]], tables
    assert "n2" in json.dumps(tables)
    assert SYS_PASSWORD not in json.dumps(job.events)
    assert job.events[-1]["event"] == "playbook_on_stats"


def test_an_answer_limits_a_job_to_one_of_many_clusters(controller: Controller, tmp_path: Path) -> None:
    groups, lake = ["eu", "us"], tmp_path / "lake"
    many = objects(tmp_path, nats_awx_cluster_groups=groups, nats_awx_lake=str(tmp_path))
    nats = {"children": groups, "vars": controller.inventory["nats"]["vars"]}
    controller.inventory = {
        **controller.inventory,
        "nats": nats,
        "eu": {"hosts": NAMES, "vars": {"nats_server_cluster_group": "eu"}},
        "us": {"hosts": ["u1"], "vars": {"nats_server_cluster_group": "us"}},
    }
    report = controller.launch(named(many, "job_templates", "report"), {"report": "servers", "nats_server_hosts": "eu"})
    snapshot = controller.launch(named(many, "job_templates", "snapshot"), {"nats_server_hosts": "eu"})
    for job in (report, snapshot):
        assert job.status == "successful", job.output
        assert "u1" not in {event.get("event_data", {}).get("host") for event in job.events}
    # Snapshots of different clusters have different names in the lake.
    assert [path for path in lake.rglob("*") if "eu" in path.name], sorted(lake.rglob("*"))


def test_a_slice_is_refused(controller: Controller, awx: dict[str, list[Object]]) -> None:
    template = named(awx, "job_templates", "plan restart")
    controller.inventory = {"nats": {"hosts": ["n1"]}}
    job = controller.launch(template, awx_workflow_job_name=template["name"])
    assert job.status == "failed"
    assert 'This is a slice of the job "NATS plan restart"' in job.failures[0]


def test_an_answer_of_the_wrong_form_is_refused(controller: Controller, awx: dict[str, list[Object]]) -> None:
    job = controller.launch(named(awx, "job_templates", "diagnose"), {"diagnose_since": "an hour"})
    assert job.status == "failed"
    assert "diagnose_since: 'an hour' is not like 4h" in job.failures[0]


def test_the_live_inventory_comes_from_the_credential(controller: Controller) -> None:
    found = controller.read_inventory("playbooks/awx/live.nats_cluster.yml")
    assert sorted(found["nats_cluster_C1"]["hosts"]) == NAMES
    assert SYS_PASSWORD not in json.dumps(found)


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoleCluster]:
    cluster = RoleCluster(tmp_path_factory.mktemp("deployed"), NAMES)
    # These variables come from credentials.
    for name in ("nats_server_system_password", "nats_server_account_operator_password"):
        del cluster.variables[name]
    try:
        yield cluster
    finally:
        cluster.kill()


@pytest.fixture(scope="module")
def operator(
    deployed: RoleCluster, awx: dict[str, list[Object]], tmp_path_factory: pytest.TempPathFactory
) -> Controller:
    """Launches jobs on those servers, each job under its own host name; the first job deployed them."""
    inventory = {"nats": {"hosts": NAMES, "vars": deployed.variables}, "_meta": {"hostvars": deployed.hosts}}
    credentials = [
        (named(awx, "credential_types", "system"), {"password": SYSTEM_PASSWORD}),
        (named(awx, "credential_types", "account operators"), {"password": OPERATOR_PASSWORD}),
    ]
    controller = Controller(tmp_path_factory.mktemp("operator"), inventory, credentials, pods=True)
    made = controller.launch(named(awx, "job_templates", "deploy"))
    assert made.status == "successful", made.output
    assert {need["action"] for need in made.artifacts["nats_deployment"].values()} == {"start"}
    assert secrets_in(made.events) == []
    create(deployed, "KEPT", 3)
    return controller


def secrets_in(events: list[Event]) -> list[str]:
    """Return the tasks and plays whose events contain a secret."""
    secrets = (SYSTEM_PASSWORD, OPERATOR_PASSWORD)
    return [
        str(event["event_data"].get("task", event["event"]))
        for event in events
        if any(secret in json.dumps(event) for secret in secrets)
    ]


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="host names of their own take root")


@needs_root
def test_a_canceled_roll_keeps_the_quorum_and_the_next_job_finishes_it(
    operator: Controller, deployed: RoleCluster, awx: dict[str, list[Object]]
) -> None:
    plan = operator.launch(
        named(awx, "job_templates", "plan restart"), {"nats_cluster_not_after": "2099-01-01T00:00:00Z"}
    )
    assert plan.status == "successful", plan.output
    assert sorted(host for batch in plan.artifacts["nats_plan"]["batches"] for host in batch) == NAMES
    before = deployed.pids()
    assert "nats_roll" not in plan.artifacts

    began, stopped = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), []

    def second_is_down(event: Event) -> bool:
        # A server that comes up raft-silent is stopped twice.
        if event["event"] == "runner_on_ok" and event["event_data"]["task"] == "Record that the server is stopped":
            stopped.append(event["event_data"]["host"])
        return len(set(stopped)) == 2

    restart = named(awx, "job_templates", "restart")
    with load(deployed):
        canceled = operator.launch(restart, stop_at=second_is_down)
        assert canceled.status == "canceled"
        # A process that the canceled job started on a host may still start the server there.
        after = {name: pid for name, pid in deployed.pids().items() if pid}
        assert len(after) >= 2
        assert after[stopped[0]] != before[stopped[0]]

        # AWX runs jobs in containers, so no process outside the container can check whether the job has ended.
        for host in deployed.hosts.values():
            lock = Path(host["nats_server_config_dir"]) / "operation.lock"
            held_by = json.loads(lock.read_text())
            held_by["owner"]["pid_namespace"] = "pid:[1]"
            lock.write_text(json.dumps(held_by))
        refused = operator.launch({**restart, "id": 99}, {"nats_cluster_restart_before": began})
        assert refused.status == "failed"
        held = f"Locked by AWX https://awx.example.com job template {restart['id']}: "
        assert any(held in failure for failure in refused.failures), refused.failures
        assert after.items() <= deployed.pids().items()

        finished = operator.launch(restart, {"nats_cluster_restart_before": began})
    assert finished.status == "successful", finished.output
    assert finished.artifacts["nats_roll"]["left"] == []
    assert stopped[0] not in finished.artifacts["nats_roll"]["restarted"]
    assert all(pid not in (0, before[name]) for name, pid in deployed.pids().items())
    assert secrets_in(canceled.events + finished.events) == []
    # The deployment records the loaded configuration of a server that supports this.
    assert operator.launch(named(awx, "job_templates", "deploy")).status == "successful"


@pytest.mark.chaos
@needs_root
@pytest.mark.parametrize(
    "name, answers, artifact, why",
    [
        ("deploy", {}, "nats_deployment", ""),
        ("plan upgrade", {"nats_server_version": VERSION}, "nats_deployment", ""),
        ("reload", {}, "nats_reload", ""),
        ("rotate credentials", {}, "nats_rotation", ""),
        ("rotate certificates", {}, "", "nats_server_tls_source is none"),
        ("scale out", {}, "nats_members", ""),
        ("scale in", {"nats_awx_leaving": "n3"}, "", "without n3 the meta group has 2 member(s)"),
        ("scale in", {"nats_awx_leaving": "n3", "nats_cluster_min_servers": 2}, "", "the next failure would stop it"),
        ("scale in", {"nats_awx_leaving": "n3, n9"}, "", "n9 is unknown to the inventory and the cluster"),
        ("replace", {"nats_cluster_replace": "n2"}, "nats_members", ""),
        (
            "replica count",
            {"nats_awx_account": "APP", "nats_awx_stream": "KEPT*", "nats_awx_replicas": 1},
            "nats_replicas",
            "",
        ),
        ("report", {"report": "all"}, "nats_report", ""),
        ("diagnose", {}, "nats_diagnosis", ""),
        ("capture advisories", {}, "nats_captured", ""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_survey_may_be_left_as_it_is(
    operator: Controller, awx: dict[str, list[Object]], name: str, answers: dict[str, Any], artifact: str, why: str
) -> None:
    """Runs every job template with the default answers, in check mode."""
    job = operator.launch({**named(awx, "job_templates", name), "job_type": "check"}, answers)
    assert job.status == ("failed" if why else "successful"), job.output
    assert why in "\n".join(job.failures)
    assert artifact in [*job.artifacts, ""], job.artifacts
    assert secrets_in(job.events) == []


@needs_root
@pytest.mark.parametrize("name", ["rotate credentials", "snapshot"])
def test_a_part_of_the_cluster_is_refused(operator: Controller, awx: dict[str, list[Object]], name: str) -> None:
    """test_membership_plan.py has the operations that change the members or replicas."""
    job = operator.launch(named(awx, "job_templates", name), limit="n1")
    assert job.status == "failed", job.output
    assert any("--limit" in failure or "part of" in failure or "excludes" in failure for failure in job.failures), (
        job.failures
    )
