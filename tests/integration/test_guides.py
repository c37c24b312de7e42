# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the commands and tasks of the guides verbatim on a cluster that the role deploys.

docs/administration.md is tested by test_administration.py, docs/getting-started.md by
tests/lab/test_getting_started.py, and README.md by tests/lab/test_readme.py.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.buckets import kv_subject
from ansible_collections.natsops.jetstream.plugins.module_utils.assets.drift import read_drift
from support import asset_documents
from support.application import application_api, new_streams_deleted
from support.documents import Command, Document, typed
from support.module_runs import Runner
from support.nats_processes import binary
from support.role_cluster import (
    APP_PASSWORD,
    APP_USER,
    OPERATOR_PASSWORD,
    SYSTEM_PASSWORD,
    RoleCluster,
    create,
    publish,
    words,
)

pytestmark = pytest.mark.playbook

NAMES = ["n1-c1", "n2-c1", "n3-c1"]
DEPLOY = "ansible-playbook natsops.jetstream.deploy -i inventory.yml"
#: The commands of these documents that are not run elsewhere change nothing.
LOOKING = ["docs/health-gate.md", "docs/security.md", "docs/sizing.md", "docs/troubleshooting.md"]
#: The blocks of these documents are tasks or plays, in an order in which each finds its preconditions.
TASKS = ["docs/credentials.md", "docs/checks.md", "docs/internals/quorum-planner.md", "docs/roll-journal.md"]
#: Replacements for the reader's own values in commands of docs/operations.md: the tests have no nats-server 2.11.
READERS = {"2.11.4": "2.15.1"}
HANDBOOK = "docs/operations.md"


class GuideCluster(RoleCluster):
    """The cluster that the guides describe: routes with TLS, and contexts in the operator's home directory, which is
    the inventory's folder."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, NAMES)
        versions = {version: binary(version) for version in ("2.10.27", "2.15.1")}
        self.variables.update(
            nats_server_file_src=f"{{{{ {versions!r}[nats_server_version] }}}}",
            nats_server_allow_skipped_minors=True,
            nats_server_tls_source="ca",
            nats_server_tls_ca_dir=str(root / "ca"),
            nats_server_tls_for_clients=False,
            nats_server_contexts_on="controller",
        )
        self.users = self.variables["nats_server_accounts"]["APP"]["users"]
        self.users.append({"user": "ops", "password": "ops-pass"})

    def controller(self) -> tuple[list[str], dict[str, str]]:
        command, environment = super().controller()
        return command, {**environment, "HOME": str(self.root)}

    def type(self, command: str) -> str:
        """Run a command in the folder of inventory.yml, and return its output."""
        shutil.copy(self.inventory(), self.root / "inventory.yml")
        environment = {
            **self.controller()[1],
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "ANSIBLE_NOCOLOR": "true",
            "ANSIBLE_PIPELINING": "true",
        }
        return typed(command, cwd=self.root, env=environment)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuideCluster]:
    """Three servers, deployed as in README.md; tests do not change them."""
    made = GuideCluster(tmp_path_factory.mktemp("guides"))
    try:
        made.type(DEPLOY)
        yield made
    finally:
        made.kill()


def commands(path: str) -> list[Command]:
    """Return the commands of a document, except those of make and those that prepare the controller."""
    found = [command for block in Document(path).of("sh", "shell") for command in block.commands]
    return [command for command in found if command.text.split()[0] not in ("make", "pip", "ansible-galaxy")]


@pytest.mark.parametrize("path", TASKS)
def test_tasks_of_a_guide_run(cluster: GuideCluster, path: str) -> None:
    variables = {
        "app_password": APP_PASSWORD,
        "nats_system_password": SYSTEM_PASSWORD,
        "nats_ops_password": "ops-pass",
        "nats_account_users": [{"account": "APP", "user": APP_USER, "password": APP_PASSWORD}],
        "nats_server_accounts": cluster.variables["nats_server_accounts"],
        "nats_server_account_operator_password": OPERATOR_PASSWORD,
    }
    (cluster.root / "variables.yml").write_text(yaml.safe_dump(variables))
    (cluster.root / "natsops").mkdir(exist_ok=True)
    app = {"servers": cluster.urls, "user": APP_USER, "password": APP_PASSWORD}
    # The next guides find the cluster without the streams of this one.
    with new_streams_deleted(app):
        for block in Document(path).of("yaml"):
            text = re.sub(r"nats://(n\d)\.example\.com:4222", lambda found: cluster.url(f"{found[1]}-c1"), block.text)
            plays = yaml.safe_load(text)
            if isinstance(plays, dict):
                continue  # inventory variables; test_system_logins.py deploys with them
            if "hosts" not in plays[0]:
                plays = [{"hosts": "localhost", "gather_facts": False, "tasks": plays}]
            (cluster.root / "play.yml").write_text(yaml.safe_dump(plays, sort_keys=False))
            output = cluster.type("ansible-playbook play.yml -i inventory.yml -e @variables.yml")
            assert output.count("TASK [") == sum(len(play["tasks"]) for play in plays), f"{block.where}\n{output}"


@pytest.mark.parametrize("path", LOOKING)
def test_reading_commands_change_nothing(cluster: GuideCluster, path: str) -> None:
    pids = cluster.pids()
    for command in commands(path):
        if command.text == DEPLOY:
            continue
        output = cluster.type(command.text)
        # A run in check mode reports the changes.
        assert "--check" in command.text or set(re.findall(r"changed=(\d+)", output)) <= {"0"}, (
            f"{command.where}\n{output}"
        )
    assert cluster.pids() == pids


def test_assets_are_planned_and_changed_as_the_guide_shows(cluster: GuideCluster) -> None:
    path = "docs/assets.md"
    (declared,) = [block.text for block in Document(path).of("yaml") if block.file == "orders.yml"]
    plan_command, apply_command, _export = [one.text for one in commands(path)]
    # The servers of the tests store at most 256 MB.
    (cluster.root / "orders.yml").write_text(declared.replace("max_bytes: 1GiB", "max_bytes: 100MiB"))
    output = cluster.type(plan_command)
    plan = json.loads((cluster.root / "assets_plan-C1.json").read_text())
    states = {row["name"]: row["state"] for row in plan["assets"] if row["document"] == "orders"}
    assert states == dict.fromkeys(
        ("ORDERS", "ORDERS/billing", "ORDERS_DR", "settings", "settings/rate", "reports"), "create"
    ), output
    app = {"servers": cluster.urls, "user": APP_USER, "password": APP_PASSWORD}
    # As in README.md, where the only user of the account is an application, which also writes the entries.
    plan_command, apply_command = (
        f"{command} -e nats_server_account_operator_password=" for command in (plan_command, apply_command)
    )
    with new_streams_deleted(app):
        predicted = cluster.type(f"{apply_command} --check --diff")
        applied = cluster.type(f"{apply_command} --diff")
        for line in ("stream ORDERS of account", "ORDERS/billing", "settings/rate"):
            assert line in predicted and line in applied
        assert "Nothing changes." in cluster.type(apply_command)
        assert "Nothing changes." in cluster.type(plan_command)
    (cluster.root / "orders.yml.j2").write_text("{% if false %}document: orders{% endif %}")
    options = '{"nats_cluster_assets_templates": ["orders.yml.j2"]}'
    with pytest.raises(AssertionError, match="the document is empty; if it is a template"):
        cluster.type(f"ansible-playbook natsops.jetstream.assets_plan -i inventory.yml -e '{options}'")


def test_assets_are_exported_as_the_guide_shows(cluster: GuideCluster) -> None:
    _plan, _apply, command = [one.text for one in commands("docs/assets.md")]
    app = {"servers": cluster.urls, "user": APP_USER, "password": APP_PASSWORD}
    file = cluster.root / "legacy.yml"
    with new_streams_deleted(app), application_api(app) as api:
        asset_documents.create(
            api, {"streams": {"OLD": {"max_age": "7d", "consumers": {"c": {}}}}, "kv": {"flags": {}}}, mark=False
        )
        asset_documents.publish(api, kv_subject("flags", "key"), b"c0nfidential")
        cluster.type(command)
        assert file.stat().st_mode & 0o777 == 0o600
        document = yaml.safe_load(file.read_text())
        assert document == {
            "document": "legacy",
            "cluster": "C1",
            "account": "APP",
            "streams": {"OLD": {"max_age": "7d", "consumers": {"c": {}}}},
            "kv": {"flags": {}},
            "adopt": ["OLD", "flags"],
        }
        assert set(re.findall(r"changed=(\d+)", cluster.type(command))) <= {"0"}
        file.write_text(file.read_text() + "# edited\n")
        with pytest.raises(AssertionError, match=r"legacy\.yml exists and differs"):
            cluster.type(command)
        options = {"nats_cluster_assets_export_own": ["flags"], "nats_cluster_assets_export_overwrite": True}
        assert "c0nfidential" not in cluster.type(f"{command} -e '{json.dumps(options)}' -vvv --diff")
        exported = yaml.safe_load(file.read_text())["kv"]["flags"]["entries"]
        assert exported == {"key": {"value": "c0nfidential", "mode": "own"}}
        with pytest.raises(AssertionError, match="NONE"):
            cluster.type(command.replace("=APP", "=NONE"))


def test_drift_of_assets_fails_and_is_written(cluster: GuideCluster) -> None:
    app = {"servers": cluster.urls, "user": APP_USER, "password": APP_PASSWORD}
    declared = {"streams": {"OLD": {"max_age": "7d"}}}
    (cluster.root / "old.yml").write_text(yaml.safe_dump({**asset_documents.HEAD, **declared}))
    options = {"nats_cluster_assets_documents": ["old.yml"], "nats_cluster_assets_drift": "drift.json"}
    command = f"ansible-playbook natsops.jetstream.assets_drift -i inventory.yml -e '{json.dumps(options)}'"
    with new_streams_deleted(app), application_api(app) as api:
        asset_documents.create(api, declared)
        cluster.type(command)
        assert read_drift((cluster.root / "drift.json").read_text()).documents[0].drifting == 0
        api.update_stream({**api.stream("OLD")["config"], "max_age": 86400 * 10**9})
        with pytest.raises(AssertionError, match=r"differ from their documents: 1\s+\(team\)"):
            cluster.type(command)
        (drift,) = read_drift((cluster.root / "drift.json").read_text()).documents
        assert drift.differing == ["stream OLD: change: max_age: 1d → 7d"]


def test_the_journal_is_read_by_grep(cluster: GuideCluster, run_module: Runner) -> None:
    journal = cluster.root / "natsops/C1.jsonl"
    journal.parent.mkdir(exist_ok=True)
    for number in range(6):
        run_module(
            "nats_roll_event", {}, event="batch_done", run="r", cluster="C1", batch=number + 1, journal=str(journal)
        )
    run_module(
        "nats_roll_event", {}, event="batch_failed", run="r", cluster="C1", reason="it burns", journal=str(journal)
    )
    done, failed = (cluster.type(command.text) for command in commands("docs/roll-journal.md"))
    assert done.count('"batch_done"') == len(done.splitlines()) == 5
    assert len(failed.splitlines()) == 1 and "it burns" in failed


# --- The handbook -------------------------------------------------------------------------------------------------------


def prepare_rotation(cluster: GuideCluster) -> None:
    cluster.variables["nats_server_version"] = "2.15.1"
    cluster.users.append({"user": "app-2", "password": "app-2-pass"})


def spare_this_machine(cluster: GuideCluster) -> None:
    """All hosts are this machine, which must not be updated or rebooted; tests/lab/test_chaos.py does both for real."""
    cluster.variables.update(nats_cluster_patch_packages=False, nats_cluster_patch_reboot="never")


def prepare_new_hosts(cluster: GuideCluster) -> None:
    cluster.variables["nats_server_tls_ca_dir"] = cluster.variables.pop("nats_server_tls_new_ca_dir")
    for name in ("n4-c1", "n5-c1"):
        cluster.add(name)


#: The sections in an order that a single cluster survives, and the reader's steps before each section.
STORY: dict[str, Callable[[GuideCluster], None]] = {
    "restart": lambda cluster: None,
    "reload": lambda cluster: None,
    "maintenance": lambda cluster: None,
    "maintenance_patch": spare_this_machine,
    "upgrade": lambda cluster: None,
    "rotate_credentials": prepare_rotation,
    "rotate_certificates": lambda cluster: None,
    "scale_out": prepare_new_hosts,
    "rebalance": lambda cluster: None,
    "replica_count": lambda cluster: None,
    "repair": lambda cluster: None,
    "scale_in": lambda cluster: None,
    "replace": lambda cluster: None,
}


def before_command(cluster: GuideCluster, text: str) -> None:
    """Carry out the manual steps that the guide describes around this command, or create its preconditions."""
    if "rotate_stop_after=trust_new_ca" in text:
        cluster.variables["nats_server_tls_new_ca_dir"] = str(cluster.root / "ca-2")
    if "nats_cluster_replace=n3-c1" in text:
        for name in ("n4-c1", "n5-c1"):
            cluster.hosts.pop(name, None)
        cluster.kill("n3-c1")
        if "replacement=n6-c1" in text:
            cluster.add("n6-c1")
        else:
            cluster.add("n3-c1", "n3-reinstalled")


@pytest.mark.chaos
def test_the_handbook_from_the_first_restart_to_the_last_replacement(tmp_path: Path) -> None:
    """Runs every command of the handbook for real. Failures have separate tests."""
    sections: dict[str, list[Command]] = {}
    for block in Document(HANDBOOK).of("sh"):
        sections.setdefault(block.heading.partition(":")[0], []).extend(block.commands)
    assert set(sections) == set(STORY)
    cluster = GuideCluster(tmp_path)
    try:
        cluster.type(DEPLOY)
        for name in ("ORDERS_NEW", "ORDERS_PAID", "EVENTS"):
            create(cluster, name, 3)
        for section, prepare in STORY.items():
            prepare(cluster)
            for command in sections[section]:
                text = command.text
                for theirs, ours in READERS.items():
                    text = text.replace(theirs, ours)
                before_command(cluster, text)
                before = cluster.pids()
                output = cluster.type(text)
                print(f"{command.where} {text}\n{words(output)[-300:]}")
                if "--check" in text:
                    assert cluster.pids() == before, command.where
        del cluster.hosts["n3-c1"]
        cluster.deploy_changes_nothing()
    finally:
        cluster.kill()


@pytest.mark.chaos
def test_cluster_is_rescued_by_the_guide(tmp_path: Path) -> None:
    """Three of five hosts lose all data, one of them does not respond, and new hosts replace them."""
    cluster = GuideCluster(tmp_path)
    for name in ("n4-c1", "n5-c1"):
        cluster.add(name)
    journal = tmp_path / "journal.jsonl"
    cluster.variables["nats_cluster_journal"] = str(journal)
    try:
        cluster.type(DEPLOY)
        # At least one of four replicas is on a remaining host, wherever they are placed.
        create(cluster, "ORDERS", 4, subjects=["orders.>"])
        publish(cluster, "orders.new", 20, 100)
        plan, run, grow = (command.text for command in commands("docs/rescue.md"))
        dead = ("n3-c1", "n4-c1", "n5-c1")
        cluster.kill(*dead)
        output = words(cluster.type(f"{plan} || true"))
        assert "n3-c1 is listed as dead but answers over SSH, and its server could start" in output
        for name in dead:
            shutil.rmtree(tmp_path / name)
        cluster.hosts["n5-c1"].update(ansible_connection="ssh", ansible_port=1)
        output = words(cluster.type(plan))
        assert "n3-c1: answers over SSH only, cannot start (it has no configuration file)" in output
        assert "n5-c1: answers neither over NATS nor over SSH" in output
        assert "stream APP/ORDERS (R4) has lost its majority" in output
        assert not journal.exists() or "rescued" not in journal.read_text()
        output = words(cluster.type(run))
        assert "n5-c1 is no longer a member" in output
        assert '"event":"rescued"' in journal.read_text().replace(" ", "")
        for name in dead:
            del cluster.hosts[name]
        for name in ("n6-c1", "n7-c1"):
            cluster.add(name)
        cluster.type(grow)
        # The gate of this run finds every stream with all its replicas.
        cluster.deploy_changes_nothing()
        report = cluster.type("ansible-playbook natsops.jetstream.repair -i inventory.yml --check")
        assert "Nothing to repair." in report
    finally:
        cluster.kill()
