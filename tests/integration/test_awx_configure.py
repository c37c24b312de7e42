# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/awx/configure.yml against a server that answers as AWX does."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from awx_server import PASSWORD, TOKEN, USER, AwxServer, serve
from nats_processes import ROOT, run_playbook

SETTINGS: dict[str, Any] = {
    "nats_awx_image": "ee:1",
    "nats_awx_insights_image": "ee-insights:1",
    "nats_awx_inventory_scm_url": "https://git.example.com/nats-inventory",
    "nats_awx_system_credential": "C1 sys",
    "nats_awx_credentials": ["C1 sys", "C1 operators"],
    "nats_awx_poll_seconds": 0.1,
}


def configure(awx: AwxServer, *arguments: str, token: str = TOKEN, **settings: Any) -> subprocess.CompletedProcess[str]:
    extra = json.dumps({"nats_awx_url": awx.url, **SETTINGS, **settings})
    return run_playbook("natsops.jetstream.awx.configure", "-e", extra, *arguments, CONTROLLER_OAUTH_TOKEN=token)


def changed(output: str) -> int:
    return int(re.findall(r"changed=(\d+)", output)[0])


@pytest.fixture(scope="module")
def awx() -> Iterator[AwxServer]:
    playbooks = [str(path.relative_to(ROOT)) for path in (ROOT / "playbooks").glob("*.yml")]
    with serve(AwxServer(playbooks)) as server:
        yield server


def test_everything_is_made_once_and_changed_only_where_it_differs(awx: AwxServer) -> None:
    first = configure(awx)
    assert first.returncode == 2
    assert "There is no credential C1 sys, C1 operators in" in first.stdout.replace("\n", " ")
    assert [item["name"] for item in awx.store["credential_types"]] == [
        "NATS system",
        "NATS account operators",
        "NATS account",
    ]
    for name in ("C1 sys", "C1 operators"):
        awx.add("credentials", {"name": name})

    made = configure(awx)
    assert made.returncode == 0, made.stdout + made.stderr
    assert TOKEN not in made.stdout + made.stderr
    restart = awx.named("job_templates", "NATS restart")
    assert restart["playbook"] == "playbooks/restart.yml"
    assert [item["name"] for item in restart["summary_fields"]["credentials"]] == ["C1 sys", "C1 operators"]
    assert restart["survey"]["spec"][0]["variable"] == "nats_server_restart_before"
    assert awx.named("job_templates", "NATS plan upgrade")["job_type"] == "check"
    workflow = awx.named("workflow_job_templates", "NATS rolling restart")
    nodes = {
        node["identifier"]: node
        for node in awx.store["workflow_job_template_nodes"]
        if node["workflow_job_template"] == workflow["id"]
    }
    ways = [
        (name, other)
        for name, way in (("plan", "success"), ("approve", "success"), ("roll", "success"), ("roll", "failure"))
        for other in nodes[name][f"{way}_nodes"]
    ]
    found = {node["id"]: name for name, node in nodes.items()}
    assert [f"{name} {found[other]}" for name, other in ways] == [
        "plan approve",
        "approve roll",
        "roll insights",
        "roll diagnose",
    ]
    assert nodes["approve"]["summary_fields"]["unified_job_template"]["timeout"] == 24 * 3600
    assert nodes["roll"]["unified_job_template"] == restart["id"]
    sources = {source["name"]: source for source in awx.store["inventory_sources"]}
    assert sources["NATS live"]["credential"] == awx.named("credentials", "C1 sys")["id"]
    assert sources["NATS"]["source_path"] == "inventory.yml"

    awx.written.clear()
    restart["description"] = restart["survey"]["spec"][0]["question_name"] = "changed by hand"
    nodes["approve"]["success_nodes"].clear()
    predicted = configure(awx, "--check")
    assert predicted.returncode == 0, predicted.stdout + predicted.stderr
    assert awx.written == []
    repaired = configure(awx)
    assert repaired.returncode == 0, repaired.stdout + repaired.stderr
    assert len(awx.written) == 3, awx.written
    for what in (
        "job_templates NATS restart: description",
        "NATS restart: survey",
        "NATS rolling restart, approve: success_nodes roll",
    ):
        assert what in predicted.stdout
        assert what in repaired.stdout


def test_check_mode_on_an_empty_awx_writes_nothing() -> None:
    with serve(AwxServer([])) as awx:
        login = {"token": "", "nats_awx_user": USER, "nats_awx_password": PASSWORD}
        predicted = configure(awx, "--check", nats_awx_credentials=[], nats_awx_system_credential="", **login)
        assert predicted.returncode == 0, predicted.stdout + predicted.stderr
        assert "job_templates NATS rotate certificates: new" in predicted.stdout
        assert "NATS rolling upgrade, approve: approval" in predicted.stdout
        assert awx.written == []


@pytest.mark.parametrize(
    "settings, why",
    [
        ({"nats_awx_organization": "Nobody"}, 'There is no organization "Nobody"'),
        ({"nats_awx_image": ""}, "the execution environment"),
        ({"token": "wrong"}, "401"),
        ({"nats_awx_snapshot_minutes": "often"}, "INTERVAL required"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(awx: AwxServer, settings: dict[str, Any], why: str) -> None:
    refused = configure(awx, **settings)
    assert refused.returncode != 0
    assert why in re.sub(r"\s+", " ", refused.stdout + refused.stderr)
    assert "wrong" not in refused.stdout
