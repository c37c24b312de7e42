# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs playbooks/awx/configure.yml, with the modules of awx.awx, against a server that responds like AWX."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pytest
import yaml
from support.awx_server import PASSWORD, TOKEN, USER, AwxServer, serve
from support.documents import Document
from support.nats_processes import ROOT, collections_path, run_playbook

pytestmark = pytest.mark.playbook

WEBHOOK = "webhook-secret-1"
WITHOUT_CHANNELS = {"name": "n", "notification_type": "slack", "notification_configuration": {"token": WEBHOOK}}
#: The example of docs/awx.md.
EXAMPLE: dict[str, Any] = next(
    yaml.safe_load(block.text) for block in Document("docs/awx.md").of("yaml") if block.file == "awx.yml"
)
CREDENTIALS: dict[str, str] = EXAMPLE["nats_awx_credentials"]
READER = EXAMPLE["nats_awx_playbook_credentials"]["report"]["object storage"]
SETTINGS: dict[str, Any] = {
    **EXAMPLE,
    "nats_awx_insights_image": "ee-insights:1",
    "nats_awx_drift_documents": "assets.yml",
    "nats_awx_lake": "/var/lib/lake",
    "nats_awx_notifications": [
        {
            "name": "NATS on call",
            "notification_type": "webhook",
            "notification_configuration": {"url": "https://chat.example.com", "headers": {"Authorization": WEBHOOK}},
        }
    ],
}
WITHOUT: dict[str, Any] = {
    "nats_awx_credentials": {},
    "nats_awx_playbook_credentials": {},
    "nats_awx_team_names": {},
}
BY_TOKEN: Mapping[str, str] = MappingProxyType({"CONTROLLER_OAUTH_TOKEN": TOKEN})


def configure(
    awx: AwxServer, *arguments: str, login: Mapping[str, str] = BY_TOKEN, **settings: Any
) -> subprocess.CompletedProcess[str]:
    # The tests use a separate environment that contains awx.awx.
    (modules,) = ROOT.glob(".cache/venv-awx/lib/python*/site-packages")
    return run_playbook(
        "natsops.jetstream.awx.configure",
        "-e",
        json.dumps({**SETTINGS, **settings}),
        *arguments,
        ANSIBLE_COLLECTIONS_PATH=f"{collections_path()}:{modules}",
        ANSIBLE_PIPELINING="true",
        CONTROLLER_HOST=awx.url,
        # Otherwise each of more than a thousand requests would load all certificate authorities that the machine
        # trusts, even for plain HTTP.
        SSL_CERT_FILE=os.devnull,
        **login,
    )


def changed(output: str) -> list[str]:
    return re.findall(r"^changed: \[localhost\] => \(item=(.*)\)", output, re.MULTILINE)


def playbooks() -> list[str]:
    return [str(path.relative_to(ROOT)) for path in (ROOT / "playbooks").glob("*.yml")]


@pytest.fixture(scope="module")
def awx() -> Iterator[AwxServer]:
    with serve(AwxServer(playbooks())) as server:
        yield server


def allowed(awx: AwxServer, kind: str, name: str) -> dict[str, list[str]]:
    """Return the teams with each role of an object."""
    roles = awx.named(kind, name)["summary_fields"]["object_roles"]
    found = {key: [awx.find("teams", team)["name"] for team in role["teams"]] for key, role in roles.items()}
    return {key: sorted(teams) for key, teams in found.items() if teams}


def attached(awx: AwxServer, name: str) -> set[str]:
    """Return the names of the credentials of a job template."""
    return {awx.find("credentials", number)["name"] for number in awx.named("job_templates", name)["credentials"]}


def check_people(awx: AwxServer) -> None:
    """Check the permissions, labels, notifications and schedules."""
    readers, operators, approvers = "NATS readers", "on-call", "NATS approvers"
    assert sorted(team["name"] for team in awx.store["teams"]) == [approvers, readers, operators]
    assert allowed(awx, "job_templates", "NATS report") == {"execute_role": [readers, operators]}
    assert allowed(awx, "job_templates", "NATS plan scale in") == {
        "execute_role": [readers, operators],
        "read_role": [approvers],
    }
    assert allowed(awx, "job_templates", "NATS scale in") == {}
    assert allowed(awx, "workflow_job_templates", "NATS approved scale in") == {
        "execute_role": [operators],
        "approval_role": [approvers],
    }
    label, notification = awx.named("labels", "NATS")["id"], awx.named("notification_templates", "NATS on call")["id"]
    for kind, name in (("job_templates", "NATS restart"), ("workflow_job_templates", "NATS rolling restart")):
        assert awx.named(kind, name)["labels"] == [label]
        assert awx.named(kind, name)["notification_templates_error"] == [notification]
    assert awx.named("workflow_job_templates", "NATS approved rescue")["notification_templates_approvals"] == [
        notification
    ]
    enabled = {schedule["name"]: schedule["rrule"] for schedule in awx.store["schedules"] if schedule["enabled"]}
    assert enabled == {
        "NATS snapshot": "DTSTART:20260101T000000Z RRULE:FREQ=MINUTELY;INTERVAL=15",
        "NATS insights": "DTSTART:20260101T000000Z RRULE:FREQ=DAILY;INTERVAL=1;BYHOUR=0;BYMINUTE=30",
        "NATS back up": "DTSTART:20260101T000000Z RRULE:FREQ=DAILY;INTERVAL=1;BYHOUR=2;BYMINUTE=0",
        "NATS drill": "DTSTART:20260101T000000Z RRULE:FREQ=WEEKLY;INTERVAL=1;BYDAY=SA",
        "NATS certificates": "DTSTART:20260101T000000Z RRULE:FREQ=WEEKLY;INTERVAL=1;BYDAY=MO;BYHOUR=5;BYMINUTE=0",
        "NATS drift of assets": "DTSTART:20260101T000000Z RRULE:FREQ=DAILY;INTERVAL=1;BYHOUR=6;BYMINUTE=0",
    }
    assert awx.named("schedules", "NATS drift of assets")["extra_data"] == {"nats_awx_assets_documents": "assets.yml"}
    assert awx.named("schedules", "NATS certificates")["extra_data"] == {
        "nats_cluster_rotate_stop_after": "renew",
        "nats_server_tls_renew_before_days": 30,
    }
    assert "NATS checkpoint" in [schedule["name"] for schedule in awx.store["schedules"]]


def test_everything_is_made_once_and_changed_only_where_it_differs(awx: AwxServer) -> None:
    make_and_repair(awx)


# Each complete run configures two hundred objects.
@pytest.mark.chaos
def test_check_mode_predicts_the_changes() -> None:
    with serve(AwxServer(playbooks())) as fresh:
        make_and_repair(fresh, predicts=True)


def make_and_repair(awx: AwxServer, predicts: bool = False) -> None:
    """Configure an empty AWX, change three objects by hand, and configure it again; `predicts`: first in check mode."""
    first = configure(awx)
    assert first.returncode == 2
    assert "There is no team on-call in Default: create it" in re.sub(r"\s+", " ", first.stdout + first.stderr)
    awx.add("teams", {"name": "on-call", "organization": awx.named("organizations", "Default")["id"]})
    first = configure(awx)
    assert first.returncode == 2
    absent = re.search(r"AWX has no credential (.*?)\. The", re.sub(r"\s+", " ", first.stdout + first.stderr))
    assert absent and {*absent[1].split(", ")} == {*CREDENTIALS.values(), READER}
    assert [item["name"] for item in awx.store["credential_types"]] == [
        "NATS system",
        "NATS operator key",
        "NATS operator identity",
        "NATS account operators",
        "NATS account",
        "NATS object storage",
        "NATS backup identity",
        "NATS private CA",
    ]
    for name in (*CREDENTIALS.values(), READER):
        awx.add("credentials", {"name": name})

    made = configure(awx)
    assert made.returncode == 0, made.stdout + made.stderr
    assert TOKEN not in made.stdout + made.stderr and WEBHOOK not in made.stdout + made.stderr
    restart = awx.named("job_templates", "NATS restart")
    assert restart["playbook"] == "playbooks/restart.yml"
    for name, kinds in {
        "restart": ["machine", "system", "account operators"],
        "plan restore": ["machine", "system", "account operators", "object storage"],
        "rotate certificates": ["machine", "system", "account operators", "private CA"],
        "diagnose": ["machine", "system"],
    }.items():
        assert attached(awx, f"NATS {name}") == {CREDENTIALS[kind] for kind in kinds}
    assert attached(awx, "NATS report") == {CREDENTIALS["machine"], CREDENTIALS["system"], READER}
    assert restart["survey"]["spec"][0]["variable"] == "nats_cluster_restart_before"
    assert awx.named("job_templates", "NATS plan upgrade")["job_type"] == "check"
    workflow = awx.named("workflow_job_templates", "NATS rolling restart")
    nodes = {
        node["identifier"]: node
        for node in awx.store["workflow_job_template_nodes"]
        if node["workflow_job_template"] == workflow["id"]
    }
    names = {node["id"]: name for name, node in nodes.items()}
    links = [
        f"{name} {link} {names[other]}"
        for name in ("plan", "approve", "roll")
        for link in ("success_nodes", "failure_nodes")
        for other in nodes[name][link]
    ]
    assert links == [
        "plan success_nodes approve",
        "approve success_nodes roll",
        "roll success_nodes insights",
        "roll failure_nodes diagnose",
    ]
    approval = awx.find("workflow_approval_templates", nodes["approve"]["unified_job_template"])
    assert approval["timeout"] == 24 * 3600
    assert nodes["roll"]["unified_job_template"] == restart["id"]
    sources = {source["name"]: source for source in awx.store["inventory_sources"]}
    assert sources["NATS live"]["credential"] == awx.named("credentials", "C1 sys")["id"]
    assert sources["NATS"]["source_path"] == "inventory.yml"
    check_people(awx)

    awx.written.clear()
    restart["description"] = "changed by hand"
    awx.named("job_templates", "NATS upgrade")["survey"]["spec"][0]["question_name"] = "changed by hand"
    nodes["approve"]["success_nodes"].clear()
    differing = ["NATS restart", "NATS upgrade", "NATS rolling restart, approve"]
    if predicts:
        predicted = configure(awx, "--check")
        assert predicted.returncode == 0, predicted.stdout + predicted.stderr
        assert awx.written == [] and changed(predicted.stdout) == differing
    repaired = configure(awx)
    assert repaired.returncode == 0, repaired.stdout + repaired.stderr
    assert len(awx.written) == 3, awx.written
    assert changed(repaired.stdout) == differing


def test_check_mode_on_an_empty_awx_writes_nothing() -> None:
    """The run ends at the first object that refers to another object."""
    with serve(AwxServer([])) as awx:
        login = {"CONTROLLER_USERNAME": USER, "CONTROLLER_PASSWORD": PASSWORD}
        predicted = configure(awx, "--check", login=login, **WITHOUT)
        assert "NATS inventory" in changed(predicted.stdout), predicted.stdout + predicted.stderr
        assert "The specified inventory" in predicted.stdout + predicted.stderr
        assert PASSWORD not in predicted.stdout + predicted.stderr
        assert awx.written == []


def test_a_project_that_awx_cannot_fetch_is_refused() -> None:
    with serve(AwxServer([])) as awx:
        refused = configure(awx, **WITHOUT)
    assert refused.returncode != 0
    assert "Project update failed" in refused.stdout + refused.stderr


@pytest.mark.parametrize(
    "settings, why",
    [
        ({"nats_awx_organization": "Absent"}, 'There is no organization "Absent"'),
        ({"nats_awx_image": ""}, "the execution environment"),
        ({"nats_awx_team_names": {"operator": "on-call"}}, "operator: the names are readers, operators, approvers"),
        (
            {"nats_awx_team_names": {"operators": "on-call", "approvers": ["on-call"]}},
            "on-call would approve its own plans",
        ),
        ({"login": {"CONTROLLER_OAUTH_TOKEN": "wrong"}}, "HTTP 401"),
        ({"nats_awx_prefix": "x" * 513}, "is not a valid choice"),
        ({"nats_awx_notifications": [WITHOUT_CHANNELS]}, "n: Unable to create notification_template n"),
    ],
)
def test_impossible_settings_are_refused_with_the_reason(awx: AwxServer, settings: dict[str, Any], why: str) -> None:
    """test_awx_templates.py refuses unknown types of credentials and unknown schedules."""
    refused = configure(awx, **settings)
    assert refused.returncode != 0
    assert why in re.sub(r"\s+", " ", refused.stdout + refused.stderr)
    assert "wrong" not in refused.stdout and WEBHOOK not in refused.stdout + refused.stderr
