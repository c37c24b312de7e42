# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the smoke test on a healthy cluster, and on clusters with the faults that it must detect."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from support.module_runs import Runner, form
from support.nats_processes import APP_PASSWORD, SYS_PASSWORD, NatsProcesses, free_ports

MakeCluster = Callable[..., NatsProcesses]
NAMES = ["n1", "n2", "n3"]


def smoke(run_module: Runner, cluster: NatsProcesses, **options: Any) -> dict[str, Any]:
    """Run the smoke test as a deployment does: as the system user, with the users of the accounts."""
    given = {"account_users": cluster.account_users(), "expected_servers": cluster.names, **options}
    return run_module("nats_cluster_smoke_test", cluster.sys_connection(), **given)


def connected(cluster: NatsProcesses, run_module: Runner) -> NatsProcesses:
    """Return the cluster once every server advertises all servers, which it does once its routes exist."""
    end = time.monotonic() + 20
    while True:
        info = run_module("nats_server_info", cluster.sys_connection(), endpoints=["varz"], timeout=1)
        rows = {row["name"]: row["varz"].get("connect_urls") or [] for row in info.get("servers", ())}
        if set(rows) == set(cluster.names) and all(len(urls) >= len(rows) for urls in rows.values()):
            return cluster
        assert time.monotonic() < end, rows
        time.sleep(0.1)


def streams(cluster: NatsProcesses) -> list[str]:
    return cluster.app_request("$JS.API.STREAM.NAMES").get("streams") or []


def connections_so_far(cluster: NatsProcesses, run_module: Runner) -> int:
    """Return how many connections the servers have accepted since they started."""
    info = run_module("nats_server_info", cluster.sys_connection(), endpoints=["varz"])
    return sum(row["varz"]["total_connections"] for row in info["servers"])


def test_a_good_cluster(healthy: NatsProcesses, run_module: Runner) -> None:
    before, had = streams(healthy), connections_so_far(healthy, run_module)
    result = smoke(run_module, healthy)
    took = connections_so_far(healthy, run_module) - had - 1
    assert result["ok"] and not result.get("failed"), result
    assert result["summary"] == (
        "6 pairs of 3 servers carry messages (app of account APP); a stream of 3 replica(s) was written, read and deleted"
    )
    assert result["servers"] == sorted(healthy.names)
    assert result["account"] == "APP"
    assert (result["not_tested"], result["failures"], result["addresses"]) == ([], [], [])
    assert result["changed"] is False
    assert streams(healthy) == before
    # The test opens one connection to each server, one that chose the user, and two for the stream.
    assert took <= len(healthy.names) + 3

    app = healthy.account_users()[0]
    required = [app, {**app, "password": "wrong"}, {**app, "account": "OTHER"}]
    rejected = smoke(run_module, healthy, required_users=required, stream=False)
    assert rejected["failed"] and rejected["rejected"] == rejected["failures"]
    assert rejected["failures"] == [
        "app of account APP: every server rejects this login",
        "app of account OTHER belongs to account APP",
    ], rejected
    assert "nats_cluster_account_users" in rejected["msg"] and "wrong" not in rejected["msg"]

    without = smoke(run_module, healthy, stream=False, required_users=[app])
    assert without["ok"] and without["stream"] == {"replicas": 0, "reason": "not requested"}
    assert APP_PASSWORD not in str(result) and SYS_PASSWORD not in str(result)


def test_check_mode_connects_and_sends_nothing(healthy: NatsProcesses, run_module: Runner) -> None:
    result = smoke(run_module, healthy, check_mode=True)
    assert result["ok"] and result["pairs"] == {"tested": 0, "broken": []}
    assert result["summary"] == "3 servers let sys in"
    assert result["not_tested"] == ["check mode: nothing was sent"]
    assert result["stream"]["replicas"] == 0


def test_a_wrong_client_advertise(make_cluster: MakeCluster, run_module: Runner, version: str) -> None:
    cluster = make_cluster(["n1"], cluster="")
    cluster.kill()
    wrong = f"127.0.0.1:{free_ports(1)[0]}"
    cluster = make_cluster(NAMES, jetstream=[])
    cluster.kill("n2")
    cluster.write_config("n2", f'client_advertise: "{wrong}"')
    cluster.start("n2")
    connected(cluster, run_module)
    result = smoke(run_module, cluster)
    assert result["failed"] and not result["ok"]
    assert result["failure"]["code"] == "smoke_test_failed"
    assert result["failures"] == [
        f"n2 advertises {wrong} to clients: connection refused: no process is listening there"
    ]
    assert len(result["msg"].splitlines()) == 3
    # A server of another cluster has taken the address.
    other = make_cluster(["x1"], cluster="", accounts={}, plain_accounts={"APP": "app"}, jetstream=[])
    other.kill("x1")
    other.ports["x1"] = int(wrong.rpartition(":")[2])
    other.write_config("x1")
    other.start("x1")
    end = time.monotonic() + 20
    while "no process is listening" in (result := smoke(run_module, cluster))["msg"] and time.monotonic() < end:
        time.sleep(0.1)
    assert result["failures"] == [f"{wrong} is advertised to clients but leads to x1, a server of another cluster"]


def test_an_advertised_address_is_used_like_a_server(make_cluster: MakeCluster, run_module: Runner) -> None:
    """The address belongs to a server that is known by a different name."""
    cluster = make_cluster(NAMES, jetstream=[])
    cluster.kill("n3")
    cluster.write_config("n3", f'client_advertise: "localhost:{cluster.ports["n3"]}"')
    cluster.start("n3")
    connected(cluster, run_module)
    result = smoke(run_module, cluster)
    assert result["ok"], result
    assert result["addresses"] == [{"address": f"localhost:{cluster.ports['n3']}", "server": "n3", "reason": ""}]
    # The server n3 is listed twice.
    assert result["pairs"] == {"tested": 12, "broken": []}
    # The last server is known only from the addresses that the other servers advertise.
    two = {**cluster.sys_connection(), "servers": cluster.urls[:1]}
    result = run_module(
        "nats_cluster_smoke_test", two, account_users=cluster.account_users(), expected_servers=[*NAMES, "n4"]
    )
    assert result["servers"] == NAMES
    assert result["failures"] == ["no address leads to n4"]


def restricted(make_cluster: MakeCluster, run_module: Runner, permissions: str) -> NatsProcesses:
    """Return a cluster whose user of the account APP has these permissions."""
    cluster = make_cluster(NAMES)
    cluster.kill()
    for name in NAMES:
        path = cluster.config_file(name)
        path.write_text(path.read_text().replace("{user: app,", f"{{permissions: {permissions}, user: app,"))
    cluster.start()
    return form(cluster, run_module)


def test_no_user_with_permission(make_cluster: MakeCluster, run_module: Runner) -> None:
    """If no user has the permission, the smoke test runs as the system user, and reports this user."""
    cluster = restricted(make_cluster, run_module, '{ publish: "orders.>", subscribe: "orders.>" }')
    result = smoke(run_module, connected(cluster, run_module))
    assert result["ok"], result
    assert result["account"] is None
    assert result["summary"] == "6 pairs of 3 servers carry messages (sys)"
    assert [text.partition(":")[0] for text in result["not_tested"]] == [
        "app of account APP was not used",
        "no user of an account may send messages",
        "no stream was tested",
    ]
    assert "permission denied: the user may not subscribe to natsops.smoke_test" in result["not_tested"][0]
    # One user cannot log in; the test finds one with permission, and another user of the same account manages the
    # stream.
    users = [
        {"account": "APP", "user": "app", "password": "wrong"},
        {"account": "APP", "user": "app", "password": APP_PASSWORD},
    ]
    result = smoke(run_module, cluster, account_users=users, subject="orders.smoke")
    assert result["ok"] and result["account"] == "APP", result
    assert "does not accept user 'app'" in result["not_tested"][0]
    assert result["stream"]["replicas"] == 0


def test_a_route_that_is_missing(make_cluster: MakeCluster, run_module: Runner) -> None:
    """For each other, n1 and n2 have an address on which nothing listens; both have routes to n3, which forwards
    nothing between them."""
    cluster = make_cluster(NAMES, accounts={}, plain_accounts={"APP": "app"}, jetstream=[])
    cluster.kill()
    nowhere = free_ports(1)[0]
    for name in NAMES:
        cluster.write_config(name)
        text = cluster.config_file(name).read_text()
        routes = text[text.index("routes: [") : text.index("]", text.index("routes: [")) + 1]
        to = "" if name == "n3" else f'"nats://127.0.0.1:{cluster.route_ports["n3"]}"'
        cluster.config_file(name).write_text(text.replace(routes, f'advertise: "127.0.0.1:{nowhere}", routes: [{to}]'))
    cluster.start()
    users = [{"account": "APP", "user": "app", "password": APP_PASSWORD}]
    end = time.monotonic() + 20
    while True:
        result = smoke(run_module, cluster, account_users=users, wait_timeout=2)
        if len(result["pairs"]["broken"]) == 2 or time.monotonic() > end:
            break
    assert result["failures"] == ["n1 and n2 exchange no messages"], result
    assert result["msg"].splitlines()[-1].startswith("$ ansible-playbook natsops.jetstream.diagnose")
    assert len(result["msg"].splitlines()) == 3
    cluster.kill("n2")
    result = smoke(run_module, cluster, account_users=users, wait_timeout=2)
    assert "no process is listening there" in result["failures"][0]
    assert result["failures"][0].startswith(cluster.url("n2"))


def test_a_stream_that_cannot_be_written_is_deleted(make_cluster: MakeCluster, run_module: Runner) -> None:
    allowed = '["natsops.smoke_test.*", "$JS.API.>"]'
    cluster = restricted(make_cluster, run_module, f'{{ publish: {allowed}, subscribe: ["natsops.>", "_INBOX.>"] }}')
    result = smoke(run_module, cluster)
    assert result["ok"] and result["account"] == "APP", result
    assert result["stream"]["replicas"] == 0
    assert "it cannot be written: permission denied: the user may not publish to " in result["stream"]["reason"]
    # A user with access to the complete account checks the result; each server deletes the stream at a different
    # moment.
    seen = wait_until(
        lambda: run_module("nats_stream_info", cluster.sys_connection())["streams"], lambda left: left == [], 20
    )
    assert seen.done, seen.value


def test_an_account_that_may_have_no_further_stream(make_cluster: MakeCluster, run_module: Runner) -> None:
    cluster = form(make_cluster(NAMES), run_module)
    for name in NAMES:
        path = cluster.config_file(name)
        path.write_text(path.read_text().replace("jetstream: enabled", "jetstream: {max_streams: 1}"))
        cluster.processes[name].send_signal(1)
    end = time.monotonic() + 20
    while not all("Reloaded server configuration" in cluster.log(name) for name in NAMES):
        assert time.monotonic() < end
        time.sleep(0.1)
    assert cluster.app_request("$JS.API.INFO")["limits"]["max_streams"] == 1
    cluster.add_stream("ORDERS", 3)
    result = smoke(run_module, cluster)
    assert result["ok"], result
    assert result["stream"]["replicas"] == 0
    assert "it cannot be created: maximum number of streams reached" in result["stream"]["reason"]
    assert streams(cluster) == ["ORDERS"]


def test_a_stream_that_takes_every_subject_keeps_nothing(make_cluster: MakeCluster, run_module: Runner) -> None:
    cluster = form(make_cluster(NAMES), run_module)
    cluster.add_stream("EVERYTHING", 1, subjects=["natsops.>"])
    result = smoke(run_module, cluster)
    assert result["ok"] and result["account"] is None, result
    assert "stream EVERYTHING stores the messages sent on natsops.smoke_test." in result["not_tested"][0]
    assert cluster.app_request("$JS.API.STREAM.INFO.EVERYTHING")["state"]["messages"] == 0


@pytest.mark.parametrize("wait_timeout", [0, -1])
def test_a_wrong_option(run_module: Runner, wait_timeout: float) -> None:
    result = run_module("nats_cluster_smoke_test", {"servers": ["nats://127.0.0.1:1"]}, wait_timeout=wait_timeout)
    assert result["failure"]["code"] == "invalid_option"


def test_user_without_the_usual_inbox_writes_with_another_prefix(make_cluster: MakeCluster, run_module: Runner) -> None:
    """docs/security.md denies the modules' inboxes to applications. Without a permitted prefix, the result names the
    subject and the remedy, and does not wait for a reply."""
    cluster = restricted(make_cluster, run_module, '{ subscribe: { deny: ["$JS.API.>", "_INBOX.natsops.>"] } }')
    connected(cluster, run_module)
    (user,) = [user for user in cluster.account_users() if user["user"] == "app"]
    result = smoke(run_module, cluster, account_users=[{**user, "inbox_prefix": "_INBOX"}])
    assert result["ok"] and result["stream"] == {"replicas": 3, "reason": ""}, result
    started = time.monotonic()
    denied = run_module("nats_stream_info", {**cluster.sys_connection(), **user, "account": None, "timeout": 30})
    assert time.monotonic() - started < 20
    assert denied["failure"]["code"] == "permission"
    assert "the user may not subscribe to _INBOX.natsops.>" in denied["msg"] and "inbox_prefix" in denied["msg"]
