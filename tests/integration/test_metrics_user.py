# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The user of nats_server_metrics_password: the exporter, snapshots and the health gate work with it, and it can neither
change the cluster nor read messages, also not through the subjects of replies. A request that its permissions lack is
named."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import (
    Call,
    Client,
    ConnectionOptions,
    NatsFailure,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.metrics_user import (
    METRICS_ACCOUNT,
    METRICS_INBOX,
    METRICS_PERMISSIONS,
    with_metrics_user,
)
from support.exporters import Exporter
from support.module_runs import Runner, form, gate_restarting_silent
from support.nats_processes import APP_PASSWORD, APP_USER, NatsProcesses, free_ports

NAMES = ["n1", "n2", "n3"]
ONCE = {"samples": 1, "span": 0, "wait": False}
LOGIN: dict[str, Any] = {"user": "metrics", "password": "m-pass", "inbox_prefix": METRICS_INBOX}


def write_permissions(cluster: NatsProcesses, permissions: dict[str, Any]) -> None:
    """Start the stopped cluster with the account of the user `metrics`."""
    accounts = with_metrics_user({}, "$SYS", LOGIN["user"], LOGIN["password"])
    account = {**accounts[METRICS_ACCOUNT]}
    account["users"] = [{**user, "permissions": permissions} for user in account["users"]]
    blocks = f'{METRICS_ACCOUNT} {json.dumps(account)}\n"$SYS" {{ exports: {json.dumps(accounts["$SYS"]["exports"])}, '
    for name in cluster.names:
        cluster.write_config(name)
        path = cluster.config_file(name)
        path.write_text(path.read_text().replace('"$SYS" { ', blocks))
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


def test_no_reply_to_the_metrics_user_changes_the_cluster(cluster: NatsProcesses, run_module: Runner) -> None:
    """Servers do not check the permission to publish to the subject of a reply."""
    subject = f"$SYS.REQ.SERVER.{run_module('nats_cluster_info', cluster.sys_connection())['servers'][0]['id']}.STATSZ"

    def streams_after_a_request_by(login: dict[str, Any]) -> list[str]:
        async def ask() -> None:
            client = await nats.connect(cluster.urls, user=login["user"], password=login["password"])
            await client.publish(subject, b"", reply="$JS.API.ACCOUNT.PURGE.APP")
            await client.flush()
            await client.close()

        asyncio.run(ask())
        time.sleep(2)
        found = run_module("nats_stream_info", cluster.sys_connection(), account="APP")
        return [stream["name"] for stream in found["streams"]]

    assert streams_after_a_request_by(LOGIN) == ["ORDERS"]
    # The request is one that would delete the streams.
    assert streams_after_a_request_by(cluster.sys_connection()) == []


def test_metrics_user_reads_all_clusters_of_a_supercluster(
    make_cluster: Callable[..., NatsProcesses], run_module: Runner, tmp_path: Path
) -> None:
    ports = dict(zip(("east", "west"), free_ports(2), strict=True))
    remotes = ", ".join(f'{{ name: {name}, url: "nats://127.0.0.1:{port}" }}' for name, port in ports.items())
    names = {f"{site}1": site for site in ports}
    clusters = []
    for name, site in names.items():
        listen = f'gateway {{ name: {site}, listen: "127.0.0.1:{ports[site]}", gateways: [{remotes}] }}'
        clusters.append(make_cluster([name], cluster=site, extra=listen))
    for one in clusters:
        one.kill()
        write_permissions(one, METRICS_PERMISSIONS)
    asked = {"expected_servers": list(names), "expected_clusters": names}
    options = {**asked, "wait_timeout": 60}
    gate = gate_restarting_silent(clusters[0], clusters[0].sys_connection(), options, run_module, others=clusters[1:])
    assert gate["healthy"], gate["msg"]
    own = {"servers": clusters[0].urls, **LOGIN}
    taken = run_module("nats_snapshot", own, lake=str(tmp_path / "lake"), fleet="test", expected_servers=list(names))
    assert taken["complete"] and json.loads(Path(taken["manifest"]).read_text())["failures"] == 0, taken


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
