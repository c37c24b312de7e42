# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts form a cluster, the command for each cluster, and the outcome that a run's output shows."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.fleet.clusters import (
    FAILED,
    NOT_STARTED,
    SUCCEEDED,
    ClusterOutcome,
    FleetCluster,
    answered,
    cluster_command,
    fleet_clusters,
    fleet_page,
    limit_refusal,
    outcome,
    prompts,
    refusal,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.fleet.run_fleet import password_files, run_fleet

C1, C2, C3 = (FleetCluster(name, name, (f"{name}-n1",)) for name in ("c1", "c2", "c3"))
RECAP = (
    "PLAY RECAP ****\nn1 : ok=9 changed=2 unreachable=0 failed=0 skipped=1\nn2 : ok=9 changed=1 unreachable=0 failed=1"
)


def group(name: str) -> dict[str, Any]:
    return {"nats_server_cluster_group": name}


def test_hosts_of_a_group_or_a_supercluster_are_one_cluster() -> None:
    wide: dict[str, Any] = {"nats_server_supercluster_groups": ["east", "west"]}
    hosts = {"a1": group("a"), "e1": {**wide, **group("east")}, "a2": group("a"), "w1": wide}
    assert fleet_clusters(hosts) == [
        FleetCluster("a", "a", ("a1", "a2")),
        FleetCluster("east-west", "east:west", ("e1", "w1")),
    ]
    assert [one.name for one in fleet_clusters(hosts, ["east-west"])] == ["east-west"]


def test_an_inventory_of_one_cluster_needs_no_group() -> None:
    assert fleet_clusters({"n1": {}, "n2": {}}) == [FleetCluster("nats", "nats", ("n1", "n2"))]


def test_hosts_without_a_cluster_are_refused_beside_clusters() -> None:
    with pytest.raises(ValueError, match=r"^n1, n2, n3, n4, n5 and 1 more: nats_server_cluster_group is not set"):
        fleet_clusters({"a1": group("a"), **{f"n{number}": {} for number in range(1, 7)}})
    with pytest.raises(ValueError, match=r"has no cluster b\. Its clusters: a$"):
        fleet_clusters({"a1": group("a")}, ["a", "b"])


@pytest.mark.parametrize(
    "arguments, expected",
    [
        ({"ask_pass": False, "vault_ids": ("prod@/etc/vault",)}, []),
        ({"become_ask_pass": True, "vault_ids": ("prod@prompt",)}, ["become", "vault prod"]),
        ({"ask_vault_pass": True, "ask_pass": True}, ["connection", "vault default"]),
        ({"vault_ids": ["prompt_ask_vault_pass", "other@/prompt/file"]}, ["vault default"]),
    ],
)
def test_options_that_prompt_are_found(arguments: dict[str, object], expected: list[str]) -> None:
    assert prompts(arguments) == expected


@pytest.mark.parametrize(
    "command, files, expected",
    [
        ("site.yml -i hosts --vault-id a@/f", {}, "site.yml -i hosts --vault-id a@/f"),
        ("-K site.yml -k", {"become": "/b", "connection": "/c"},
         "--become-password-file /b site.yml --connection-password-file /c"),
        ("--vault-id prod@prompt --vault-id=lab@prompt site.yml", {"vault prod": "/p", "vault lab": "/l"},
         "--vault-id prod@/p --vault-id lab@/l site.yml"),
        ("--ask-vault-pass site.yml", {"vault default": "/d"}, "--vault-password-file /d site.yml"),
    ],
)  # fmt: skip
def test_runs_of_clusters_read_the_passwords_from_files(command: str, files: dict[str, str], expected: str) -> None:
    assert answered(command.split(), files) == expected.split()


def test_a_combined_option_that_prompts_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^become: the option that prompts for this password cannot be"):
        answered(["-bK", "site.yml"], {"become": "/b"})


def test_files_of_passwords_are_private(tmp_path: Path) -> None:
    files = password_files({"become": "secret", "vault a": "other"}, str(tmp_path))
    assert [(Path(path).read_text(), Path(path).stat().st_mode & 0o777) for path in files.values()] == [
        ("secret", 0o600),
        ("other", 0o600),
    ]


def test_a_limit_is_refused() -> None:
    assert limit_refusal({"subset": None}) == ""
    assert limit_refusal({"subset": "c1:localhost"}).startswith("--limit c1:localhost: the run of each cluster")


def test_the_command_keeps_its_options_and_selects_the_cluster() -> None:
    command = ["ansible-playbook", "natsops.jetstream.fleet", "-i", "hosts", "-C", "-e", "x=1"]
    own = "natsops.jetstream.fleet"
    assert cluster_command(command, own, "deploy", C1) == [
        "ansible-playbook", "natsops.jetstream.deploy", "-i", "hosts", "-C", "-e", "x=1",
        "-e", json.dumps({"nats_server_hosts": "c1"}),
    ]  # fmt: skip
    assert cluster_command(command, own, "./site.yml", C1)[1] == "./site.yml"
    with pytest.raises(ValueError, match="exactly once: 2 found"):
        cluster_command([*command, own], own, "deploy", C1)


@pytest.mark.parametrize(
    "output, cause",
    [
        (
            'fatal: [n2]: FAILED! => {"changed": false, "msg": "2 problems:\\n1. a is missing"}',
            "n2: 2 problems: a is missing",
        ),
        (
            'fatal: [n1]: FAILED! => {"msg": "harmless"}\n...ignoring\n'
            'fatal: [n2]: UNREACHABLE! => {"skip_reason": "Host n2 is unreachable", "msg": "tolerated"}\n'
            'fatal: [n3 -> localhost]: FAILED! => {\n  "msg": [\n  "no quorum"]\n}',
            "n3: no quorum",
        ),
        ('failed: [n1] (item=x) => {"msg": "item"}', "n1: item"),
        ("[ERROR]: the playbook: x could not be found", "[ERROR]: the playbook: x could not be found"),
        ("fatal: [n1]: FAILED! => {cut", "exit status 2"),
    ],
)
def test_the_cause_is_the_first_failure_that_was_not_ignored(output: str, cause: str) -> None:
    found = outcome(C1, 2, f"{output}\n{RECAP}", 3.0, "/log")
    assert (found.status, found.cause, found.changed) == (FAILED, cause, 3)


def test_the_refusal_and_the_table_name_the_failed_clusters() -> None:
    outcomes = [
        ClusterOutcome(C1, SUCCEEDED, 65, 2, "", "/c1"),
        ClusterOutcome(C2, FAILED, 5, 0, "n1: no quorum", "/c2"),
        ClusterOutcome(C3, NOT_STARTED),
    ]
    assert refusal(outcomes[:1]) == ""
    assert refusal(outcomes).startswith("1 of 3 clusters failed: c2; 1 finished, 1 not started.")
    assert "; 1 finished. Fix the causes" in refusal(outcomes[:2])
    table = fleet_page(outcomes, "deploy").lines
    assert table[-1] == "c2: n1: no quorum (output: /c2)"
    assert [name for line in table for name in ("c1", "c2", "c3") if f" {name} " in line] == ["c2", "c3", "c1"]


def test_no_cluster_starts_after_the_allowed_failures(tmp_path: Path) -> None:
    def command(cluster: FleetCluster) -> list[str]:
        return [sys.executable, "-c", f"print('{cluster.name}'); raise SystemExit({cluster == C2})"]

    def log(cluster: FleetCluster) -> str:
        return str(tmp_path / "logs" / cluster.name)

    def statuses(stop_after: int) -> list[str]:
        found = {one.cluster: one.status for one in run_fleet([C1, C2, C3], command, log, 1, stop_after)}
        return [found[cluster] for cluster in (C1, C2, C3)]

    assert statuses(1) == [SUCCEEDED, FAILED, NOT_STARTED]
    assert statuses(0) == [SUCCEEDED, FAILED, SUCCEEDED]
    assert Path(log(C3)).read_text() == "c3\n"
    assert stat.S_IMODE(Path(log(C3)).stat().st_mode) == 0o600
