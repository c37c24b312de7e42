# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Deployments whose modules log in to the system account with something other than a password, or with TLS before the
greeting."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.backup_site import timer_program
from support.credentials import new_user
from support.documents import CHECKOUT
from support.exporters import Exporter
from support.module_runs import Runner
from support.role_cluster import (
    APP_PASSWORD,
    APP_USER,
    OPERATOR_PASSWORD,
    SMOKE_TEST,
    RoleCluster,
    create,
    publish,
    words,
)

pytestmark = pytest.mark.playbook


OPS_PASSWORD = "ops-pass"


@pytest.fixture(scope="module")
def by_nkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RoleCluster, Path]]:
    """A server whose system user has an nkey, deployed with the seed in the environment, as AWX's credential sets it.
    Another system user has a password, which is not in the variables of the role."""
    root = tmp_path_factory.mktemp("nkey")
    user = new_user()
    seed = root / "sys.nk"
    seed.write_text(user.seed)
    seed.chmod(0o600)
    cluster = RoleCluster(root, ["n1"], "2.10.27")
    del cluster.variables["nats_server_system_password"]
    by_password = {"user": "ops", "password": OPS_PASSWORD}
    cluster.variables["nats_server_accounts"]["$SYS"] = {"users": [{"nkey": user.public}, by_password]}
    cluster.variables["nats_cluster_backup_directory"] = str(root / "backups")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("NATS_NKEY", str(seed))
        deployed = cluster.playbook("deploy")
        assert SMOKE_TEST in deployed.output, deployed.output
    try:
        yield cluster, seed
    finally:
        cluster.kill()


@pytest.mark.parametrize("form", ["nkey", "password", "context"])
def test_an_upgrade_is_checked_with_the_login_of_the_environment(
    by_nkey: tuple[RoleCluster, Path], monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    cluster, seed = by_nkey
    context = cluster.root / "ops.json"
    context.write_text(json.dumps({"user": "ops", "password": OPS_PASSWORD}))
    login = {
        "nkey": {"NATS_NKEY": str(seed)},
        "password": {"NATS_USER": "ops", "NATS_PASSWORD": OPS_PASSWORD},
        "context": {"NATS_CONTEXT": str(context)},
    }[form]
    for name, value in login.items():
        monkeypatch.setenv(name, value)
    refused = cluster.playbook("upgrade", "--check", fails=True, **cluster.running("2.15.1"))
    assert "2.10.27 to 2.15.1 skips" in words(refused.output)
    assert "nothing was changed" in refused.output


def test_an_upgrade_is_checked_with_a_certificate(tmp_path: Path) -> None:
    """The servers take the user from the certificate that the role issues for the modules. No user has a password."""
    cluster = RoleCluster(tmp_path, ["n1"], "2.10.27")
    for secret in ("nats_server_system_password", "nats_server_account_operator_password"):
        del cluster.variables[secret]
    cluster.variables.update(
        nats_server_accounts={"$SYS": {"users": [{"user": "CN=natsops"}]}},
        nats_server_tls_source="ca",
        nats_server_tls_ca_dir=str(tmp_path / "ca"),
        nats_server_tls_verify_clients=True,
        nats_server_tls={"verify_and_map": True},
    )
    with cluster.deployed():
        refused = cluster.playbook("upgrade", "--check", fails=True, **cluster.running("2.15.1"))
        assert "2.10.27 to 2.15.1 skips" in words(refused.output)
        assert "nothing was changed" in refused.output


def test_a_version_change_without_any_login_is_refused(
    by_nkey: tuple[RoleCluster, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, _seed = by_nkey
    monkeypatch.delenv("NATS_NKEY", raising=False)
    pids = cluster.pids()
    refused = cluster.playbook("upgrade", fails=True, **cluster.running("2.15.1"))
    assert "could not be checked against the streams: no login of a system user is configured" in refused.output
    assert cluster.pids() == pids


@pytest.mark.parametrize("form", ["seed", "path"])
def test_playbooks_log_in_with_the_nkey_of_the_inventory(
    by_nkey: tuple[RoleCluster, Path], monkeypatch: pytest.MonkeyPatch, run_module: Runner, form: str
) -> None:
    cluster, seed = by_nkey
    monkeypatch.delenv("NATS_NKEY", raising=False)
    wanted = cluster.running("2.15.1")
    if form == "seed":
        cluster.variables["nats_server_api_nkey"] = seed.read_text()
        refused = cluster.playbook("upgrade", "--check", "-vvv", fails=True, **wanted)
        assert "2.10.27 to 2.15.1 skips" in words(refused.output)
        assert seed.read_text() not in refused.output
        contexts = cluster.root / "nats" / "context"
        where: dict[str, Any] = {"nats_server_contexts_on": "controller", "nats_server_contexts_dir": str(contexts)}
        assert seed.read_text() not in cluster.playbook("deploy", "-vvv", **where).output
        cluster.deploy_changes_nothing(**where)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(cluster.root))
        assert run_module("nats_cluster_info", {"context": "C1-sys"})["servers"]
        assert {path.stat().st_mode & 0o777 for path in contexts.iterdir()} == {0o600}
        return
    cluster.variables["nats_server_api_nkey"] = str(seed)
    create(cluster, "ORDERS", 1, subjects=["ORDERS.>"])
    publish(cluster, "ORDERS.new", 20, 100)
    pid = cluster.pid("n1")
    cluster.variables["nats_server_config"] = {"write_timeout": "close"}
    output = cluster.playbook("upgrade", nats_server_allow_skipped_minors=True, **wanted).output
    assert "write_timeout" in (cluster.root / "n1/etc/nats-server.conf").read_text()
    assert "nats_server : Wait for contact between the server and the meta leader" in output
    assert cluster.pid("n1") not in (0, pid)
    cluster.variables.update(wanted)
    assert "APP/ORDERS" in cluster.playbook("backup").output
    app = {"servers": cluster.urls, "user": APP_USER, "password": APP_PASSWORD}
    assert run_module("nats_stream", app, stream="ORDERS", state="absent", allow=["data_loss"]).get("changed")
    cluster.playbook("restore", nats_cluster_restore_streams=["APP/ORDERS"])
    (stream,) = run_module("nats_cluster_info", {"servers": cluster.urls, "nkey_seed": str(seed)})["streams"]
    assert (stream["account"], stream["messages"]) == ("APP", 20)


def program_connections(cluster: RoleCluster) -> dict[str, Any]:
    """Return the connection options that the playbooks `exporter` and `backup_timer` write to the settings of their
    programs."""
    (timer,) = yaml.safe_load((CHECKOUT / "roles/nats_cluster/tasks/backup_timer.yml").read_text())[-1:]
    schedule = next(task for task in timer["block"] if "nats_program_settings" in task.get("vars", {}))
    exporter = yaml.safe_load((CHECKOUT / "playbooks/exporter.yml").read_text())[0]["tasks"][-1]["block"][0]
    content = {
        "timer": schedule["vars"]["nats_program_settings"]["connection"],
        "exporter": exporter["vars"]["nats_insights_connection"],
    }
    role = {"name": "natsops.jetstream.nats_server", "tasks_from": "members"}
    write = {"content": content, "dest": str(cluster.root / "connections.json"), "mode": "0600"}
    play = {
        "name": "Write the connections",
        "hosts": "nats",
        "gather_facts": False,
        "vars_files": [str(CHECKOUT / "playbooks/vars/connection.yml")],
        "tasks": [
            {"name": "Read the servers", "ansible.builtin.import_role": role},
            {"name": "Write", "ansible.builtin.copy": write, "run_once": True},
        ],
    }
    path = cluster.root / "connections.yml"
    path.write_text(yaml.safe_dump([play]))
    cluster.playbook(str(path))
    connections: dict[str, Any] = json.loads((cluster.root / "connections.json").read_text())
    return connections


def test_every_connection_starts_tls_before_the_greeting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_module: Runner, capsys: pytest.CaptureFixture[str]
) -> None:
    """The role uses the certificates from the source unchanged. The modules that verify, watch and test the server,
    reports, contexts, and the programs that run without Ansible start with TLS, using the settings from their
    playbooks."""
    cluster = RoleCluster(tmp_path, ["n1"], "2.15.1")
    cluster.variables.update(
        nats_server_tls_source="ca",
        nats_server_tls_ca_dir=str(tmp_path / "ca"),
        nats_server_tls={"handshake_first": True},
        nats_server_contexts_on="controller",
        nats_server_contexts_dir=str(tmp_path / "nats" / "context"),
        nats_server_metrics_password="metrics-pass",
    )
    try:
        deployed = cluster.playbook("deploy")
        assert SMOKE_TEST in deployed.output, deployed.output
        config = (tmp_path / "n1" / "etc" / "nats-server.conf").read_text()
        assert "handshake_first: true" in config and "cert_file: " in config
        cluster.deploy_changes_nothing()

        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        created = run_module("nats_stream", {"context": "C1-app"}, stream="ORDERS", subjects=["ORDERS.>"])
        assert created.get("changed"), created
        (server,) = run_module("nats_cluster_info", {"context": "C1-sys"})["servers"]
        assert server["name"] == "n1"
        assert "ORDERS" in cluster.playbook("report", report="streams").output
        assert "HEALTHY: " in cluster.playbook("diagnose").output

        connections = program_connections(cluster)
        assert connections["exporter"]["user"] == "metrics"
        exporter = Exporter(tmp_path / "exporter", connections["exporter"], expected_servers=["n1"])
        try:
            exporter.until(lambda found: found.get(("natsops_server_up", "", "n1")) == 1)
        finally:
            exporter.stop()
        settings = {
            "connection": connections["timer"],
            "account_users": [{"account": "APP", "user": "operator-APP", "password": OPERATOR_PASSWORD}],
            "directory": str(tmp_path / "backup"),
            "s3": {},
            "encrypt_to": [],
            "streams": ["*"],
            "exclude": [],
            "keep": {},
            "rate_limit": None,
            "verify": "checksum",
        }
        (tmp_path / "settings.json").write_text(json.dumps(settings))
        assert timer_program().main(str(tmp_path / "settings.json")) == 0, capsys.readouterr()
        assert [path.name.partition("@")[0] for path in (tmp_path / "backup" / "APP").glob("ORDERS@*")] == ["ORDERS"]

        cluster.variables["nats_server_tls_source"] = "none"
        refused = cluster.playbook("deploy", "--check", fails=True)
        assert "tls: has no certificate" in refused.output
    finally:
        cluster.kill()
