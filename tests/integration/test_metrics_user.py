# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The user of nats_server_metrics_password: the exporter, snapshots and the health gate work with it, and it can neither
change the cluster nor read messages. A request that its permissions lack is named."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import (
    Call,
    Client,
    ConnectionOptions,
    NatsFailure,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.metrics_user import (
    METRICS_INBOX,
    METRICS_PERMISSIONS,
)
from support.exporters import Exporter
from support.module_runs import Runner, form
from support.nats_processes import APP_PASSWORD, APP_USER, NatsProcesses

NAMES = ["n1", "n2", "n3"]
ONCE = {"samples": 1, "span": 0, "wait": False}
LOGIN: dict[str, Any] = {"user": "metrics", "password": "m-pass", "inbox_prefix": METRICS_INBOX}


def write_permissions(cluster: NatsProcesses, permissions: dict[str, Any]) -> None:
    """Start the stopped cluster with a user `metrics` of the system account."""
    user = json.dumps({"user": LOGIN["user"], "password": LOGIN["password"], "permissions": permissions})
    for name in cluster.names:
        cluster.write_config(name)
        path = cluster.config_file(name)
        path.write_text(path.read_text().replace('"$SYS" { users: [', f'"$SYS" {{ users: [{user}, '))
    cluster.start()


@pytest.fixture
def cluster(make_cluster: Callable[..., NatsProcesses], run_module: Runner) -> NatsProcesses:
    made = make_cluster(NAMES)
    made.kill()
    write_permissions(made, METRICS_PERMISSIONS)
    form(made, run_module)
    made.add_stream("ORDERS", 3)
    return made


@pytest.fixture
def exporter(cluster: NatsProcesses, tmp_path: Path) -> Iterator[Exporter]:
    one = Exporter(tmp_path / "exporter", {"servers": cluster.urls, **LOGIN}, expected_servers=NAMES)
    yield one
    one.stop()


def test_metrics_user_reads_everything_and_changes_nothing(
    cluster: NatsProcesses, exporter: Exporter, run_module: Runner, tmp_path: Path
) -> None:
    own = {"servers": cluster.urls, **LOGIN}
    health = run_module("nats_cluster_health", own, expected_servers=NAMES, **ONCE)
    assert health["healthy"], health["msg"]
    taken = run_module("nats_snapshot", own, lake=str(tmp_path / "lake"), fleet="test", expected_servers=NAMES)
    assert taken["complete"] and json.loads(Path(taken["manifest"]).read_text())["failures"] == 0, taken
    found = exporter.until(lambda series: series.get(("natsops_servers_stoppable", "C1")) == 3)
    assert sum(value for (metric, *_labels), value in found.items() if metric == "natsops_root_causes") == 0

    refused: dict[str, dict[str, Any]] = {
        "nats_meta_stepdown": {"force": True},
        "nats_connection_kick": {"account": "APP"},
        "nats_server_reload": {"server_name": "n1"},
    }
    with Client(ConnectionOptions((cluster.url("n1"),), user=APP_USER, password=APP_PASSWORD)) as application:
        application.connect()
        for module, options in refused.items():
            result = run_module(module, {**own, "timeout": 2}, **options)
            assert result.get("failed") and "permission denied" in result["msg"], (module, result)

    with Client(ConnectionOptions(tuple(cluster.urls), **LOGIN)) as client:
        server = run_module("nats_cluster_info", own)["servers"][0]["id"]
        changing = [f"$SYS.REQ.SERVER.{server}.{name}" for name in ("RELOAD", "KICK", "LDM", "PROFILEZ")]
        subjects = [*changing, "$JS.API.STREAM.MSG.GET.ORDERS", "ORDERS.new"]
        failures = client.publish([Call(subject) for subject in subjects])
        assert [failure.code if failure else "" for failure in failures] == ["permission"] * len(subjects)
    for subject in (">", "ORDERS.>", "_INBOX.natsops.>", "$SYS.ACCOUNT.>"):
        with Client(ConnectionOptions(tuple(cluster.urls), **LOGIN)) as client, pytest.raises(NatsFailure) as denied:
            client.observe([subject], 0, lambda _message: True)
        assert denied.value.code == "permission"


def test_missing_permission_is_named_instead_of_an_overload(cluster: NatsProcesses, run_module: Runner) -> None:
    cluster.kill()
    allowed = [subject for subject in METRICS_PERMISSIONS["publish"]["allow"] if "HEALTHZ" not in subject]
    write_permissions(cluster, {**METRICS_PERMISSIONS, "publish": {"allow": allowed}})
    form(cluster, run_module)
    own = {"servers": cluster.urls, **LOGIN}
    health = run_module("nats_cluster_health", own, expected_servers=NAMES, **ONCE)
    assert not health["healthy"]
    assert "permission denied for $SYS.REQ.SERVER.*.HEALTHZ" in health["msg"]
    assert "overloaded" not in health["msg"]
