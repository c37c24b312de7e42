# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nats_cluster_health accepts a healthy cluster and detects faults."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.health.diagnosis import diagnose
from ansible_collections.natsops.jetstream.plugins.module_utils.health.rules import election_problems
from ansible_collections.natsops.jetstream.plugins.module_utils.health.sampling import Sample, make_sampler
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import Client, ConnectionOptions
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.system_api import SystemApi
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from ansible_collections.natsops.jetstream.plugins.modules import nats_cluster_health
from support.credentials import make_certificates
from support.module_runs import Runner, form, gate_restarting_silent
from support.nats_processes import APP_PASSWORD, APP_USER, SYS_PASSWORD, NatsProcesses, free_ports

NOW = {"wait": False}


def passes(result: dict[str, Any]) -> None:
    """Run the gate; if it does not pass, fail with the gate's own reasons."""
    assert result["healthy"], result["msg"]


def codes(result: dict[str, Any], key: str = "problems") -> list[str]:
    return [problem["code"] for problem in result[key]]


def publish_many(cluster: NatsProcesses, subject: str, count: int, size: int) -> None:
    """Publish messages one after another, and wait for each acknowledgement."""

    async def publish() -> None:
        import nats

        urls = [cluster.url(name) for name in cluster.processes]
        async with await nats.connect(urls, user=APP_USER, password=APP_PASSWORD) as connection:
            for _number in range(count):
                await connection.jetstream().publish(subject, os.urandom(size), timeout=10)

    asyncio.run(publish())


def test_enough_good_samples_spanning_enough_time(healthy: NatsProcesses, run_module: Runner) -> None:
    began = time.monotonic()
    result = run_module(
        "nats_cluster_health", healthy.sys_connection(), expected_servers=healthy.names, samples=3, span=2, interval=0.5
    )
    assert (result["healthy"], result["problems"], result["changed"]) == (True, [], False)
    assert result["samples"] >= 5
    assert 2 <= result["waited"] <= time.monotonic() - began
    assert result["servers"] == ["n1", "n10", "n2"]
    assert result["meta_leader"] in healthy.names


def test_a_single_sample(healthy: NatsProcesses, run_module: Runner) -> None:
    result = run_module("nats_cluster_health", healthy.sys_connection(), expected_servers=healthy.names, **NOW)
    assert (result["healthy"], result["samples"]) == (True, 1)


def test_a_good_cluster_that_has_no_time_to_prove_it(healthy: NatsProcesses, run_module: Runner) -> None:
    options = {"samples": 9, "span": 0.5, "interval": 0.4, "wait_timeout": 1}
    result = run_module("nats_cluster_health", healthy.sys_connection(), **options)
    assert result["failed"]
    assert "not healthy for long enough" in result["msg"]


def test_impossible_options_are_refused_at_once(healthy: NatsProcesses, run_module: Runner) -> None:
    result = run_module("nats_cluster_health", healthy.sys_connection(), span=10, wait_timeout=10)
    assert result["failure"]["code"] == "invalid_option"
    assert "span" in result["msg"]


def test_servers_that_are_not_as_expected(healthy: NatsProcesses, run_module: Runner) -> None:
    result = run_module(
        "nats_cluster_health", healthy.sys_connection(), expected_servers=["n1", "n2", "n3"], timeout=1, **NOW
    )
    assert result["failed"]
    assert result["failure"]["code"] == "unhealthy"
    found = {(problem["code"], *problem["servers"]) for problem in result["problems"]}
    assert found == {
        ("server_missing", "n3"),
        ("server_unexpected", "n10"),
        ("meta_peer_missing", "n3"),
        ("meta_peer_unexpected", "n10"),
    }
    evidence = [message for cause in result["causes"] for message in cause["evidence"]]
    assert sorted(evidence) == sorted(problem["message"] for problem in result["problems"])
    assert f"   - {evidence[0]}" in result["msg"].splitlines()
    assert [(cause["kind"], cause["servers"]) for cause in result["causes"]] == [
        ("servers_down", ["n3"]),
        ("membership", ["n10"]),
    ]
    assert (result["problem_count"], result["problems_file"]) == (4, None)


def test_connections_between_the_servers_are_checked_after_the_gate(healthy: NatsProcesses, run_module: Runner) -> None:
    mesh: dict[str, Any] = {"server_names": healthy.names, "jetstream_servers": healthy.names}
    checked = run_module("nats_cluster_health", healthy.sys_connection(), mesh=mesh, **NOW)
    assert (checked["healthy"], checked["mesh_checked"]) == (True, True), checked
    assert run_module("nats_cluster_health", healthy.sys_connection(), **NOW)["mesh_checked"] is False
    missing = {"server_names": [*healthy.names, "n3"], "clusters": ["west"], "jetstream_servers": ["n3"]}
    refused = run_module("nats_cluster_health", healthy.sys_connection(), mesh=missing, **NOW)
    assert refused["failure"]["code"] == "mesh_incomplete", refused
    assert refused["msg"].startswith(
        "the cluster is incomplete: n3 did not answer; n1 has no gateway connection to west;"
    )
    assert refused["msg"].endswith("; JetStream is not enabled on n3")


def test_a_server_that_never_comes_is_a_stalled_wait(healthy: NatsProcesses, run_module: Runner) -> None:
    options = {"samples": 2, "span": 0.2, "interval": 0.2, "wait_timeout": 60, "stall_timeout": 1, "timeout": 1}
    result = run_module(
        "nats_cluster_health", healthy.sys_connection(), expected_servers=["n1", "n2", "n10", "n3"], **options
    )
    assert result["failure"]["code"] == "stalled"
    assert result["waited"] < 60
    assert "nothing has changed for" in result["msg"]
    assert "expected server n3 did not answer" in result["msg"]
    assert "continue on the servers" in result["msg"]
    for option in ("stall_timeout", "stuck_timeout"):
        refused = run_module("nats_cluster_health", healthy.sys_connection(), **{option: 0})
        assert refused["failure"]["code"] == "invalid_option"


def test_permanent_faults_are_refused_early(healthy: NatsProcesses, run_module: Runner) -> None:
    options = {"samples": 2, "span": 0.2, "interval": 0.2, "wait_timeout": 60, "stuck_timeout": 1, "timeout": 1}
    result = run_module(
        "nats_cluster_health", healthy.sys_connection(), expected_servers=["n1", "n2", "n10", "n3"], **options
    )
    assert result["failure"]["code"] == "stuck"
    assert result["waited"] < 60
    assert "waiting alone will not fix it" in result["msg"]
    assert result["msg"].splitlines()[1] == "1. n3 does not answer"


def test_a_long_list_is_in_a_file_and_returned_on_request(
    healthy: NatsProcesses, run_module: Runner, tmp_path: Path
) -> None:
    missing = [f"m{number}" for number in range(40)]
    asked = {"expected_servers": [*healthy.names, *missing], "timeout": 1, "problems_dir": str(tmp_path), **NOW}
    brief = run_module("nats_cluster_health", healthy.sys_connection(), **asked)
    assert (len(brief["problems"]), brief["problem_count"]) == (5, 80)
    assert brief["problem_codes"] == {"server_missing": 40, "meta_peer_missing": 40}
    lines = brief["msg"].splitlines()
    assert len(lines) <= 9
    assert lines[1] == "1. m0, m1, m10 and 37 more do not answer"
    assert lines[-1] == f"All 80 problems: {brief['problems_file']}"
    written = json.loads(Path(brief["problems_file"]).read_text())
    assert len(written["problems"]) == 80
    assert stat.S_IMODE(Path(brief["problems_file"]).stat().st_mode) == 0o600
    whole = run_module("nats_cluster_health", healthy.sys_connection(), **asked, problems="all")
    assert whole["problems"] == written["problems"]
    assert whole["problems_file"] is None


def test_a_ghost_consumer_is_named_and_blocks_no_server(
    make_cluster: Callable[..., NatsProcesses], run_module: Runner
) -> None:
    """The meta group's log contains a consumer that no server can create. nats-server#8123 leaves such consumers
    behind; here a file blocks the path of the consumer's directory on each server."""
    cluster = make_cluster(["n1", "n2", "n3"])
    connection = {**cluster.sys_connection(), "timeout": 1}
    soon = {"expected_servers": cluster.names, "samples": 1, "span": 0, "interval": 0.5}
    form(cluster, run_module)
    cluster.add_stream("ORDERS", 3)
    for name in ("worker", "fine"):
        cluster.add_consumer("ORDERS", name)
    passes(run_module("nats_cluster_health", connection, **soon, wait_timeout=30))
    for name in cluster.names:
        cluster.stop(name)
        store = cluster.directory / name / "jetstream" / "APP" / "streams" / "ORDERS" / "obs" / "worker"
        shutil.rmtree(store)
        store.write_text("in the way")
    cluster.start()
    early = run_module("nats_cluster_health", connection, **soon, wait_timeout=5)
    assert early["failed"], "a server that has just started may still create its assigned replicas"
    gate = gate_restarting_silent(cluster, connection, {**soon, "wait_timeout": 60}, run_module)
    passes(gate)
    healthz = run_module("nats_server_info", connection, endpoints=["healthz"])["servers"]
    assert [server["healthz"]["status"] for server in healthz] == ["unavailable"] * 3
    assert [(one["code"], one["subject"], one["servers"]) for one in gate["warnings_found"]] == [
        ("consumer_ghost", "consumer APP/ORDERS/worker", cluster.names)
    ]
    (cause,) = gate["causes"]
    assert (cause["kind"], cause["assets"]) == ("asset_fault", ["consumer APP/ORDERS/worker"])
    for name in cluster.names:
        passes(run_module("nats_cluster_health", connection, **soon, wait_timeout=10, stop_servers=[name]))
    two = run_module("nats_cluster_health", connection, **soon, wait=False, stop_servers=["n1", "n2"])
    assert set(codes(two)) == {"stop_breaks_quorum"}
    plan = run_module("nats_roll_plan", connection, server_names=cluster.names)
    assert (plan["asset_faults"], plan["refusal"]) == (["consumer APP/ORDERS/worker"], "")
    # The command for this cause deletes the consumer: no member has it, but it is removed from the log.
    cluster.app_request("$JS.API.CONSUMER.DELETE.ORDERS.worker")
    recovered = run_module("nats_cluster_health", connection, **soon, wait_timeout=30)
    assert (recovered["healthy"], recovered["warnings_found"]) == (True, [])


def test_gate_before_a_batch_relies_on_the_gate_after_the_last_one(healthy: NatsProcesses, run_module: Runner) -> None:
    plan = run_module("nats_roll_plan", healthy.sys_connection(), server_names=["n1", "n2"])
    first, second = (batch["gates"] for batch in plan["batches"])
    before = {name: second["before"][name] for name in ("stop_servers", "tolerate", "r1_policy", "previous")}
    common = {"expected_servers": healthy.names, "samples": 1, "span": 0}
    after = {name: first["after"][name] for name in ("stop_servers", "stop_policy", "tolerate", "r1_policy")}
    passed = run_module("nats_cluster_health", healthy.sys_connection(), **common, **after)
    assert (passed["covered"], passed["coverage"]) == (False, "")
    assert set(passed["gate"]["versions"]) == set(healthy.names)

    covered = run_module("nats_cluster_health", {}, **common, **before, previous_result=passed["gate"])
    assert (covered["healthy"], covered["covered"], covered["samples"]) == (True, True, 0)
    assert covered["gate"] == passed["gate"]

    other = {**before, "previous": {**before["previous"], "versions": dict.fromkeys(before["stop_servers"], "2.9.10")}}
    for options, reason in (
        ({**before, "previous_result": {}}, "no gate has passed since the last batch"),
        ({**other, "previous_result": passed["gate"]}, "sampled another version than the plan, or none, on "),
    ):
        sampled = run_module("nats_cluster_health", healthy.sys_connection(), **common, **options)
        assert (sampled["healthy"], sampled["covered"], sampled["samples"]) == (True, False, 1)
        assert reason in sampled["coverage"]


def test_stopping_more_than_a_quorum_can_spare(healthy: NatsProcesses, run_module: Runner) -> None:
    connection = healthy.sys_connection()
    assert run_module("nats_cluster_health", connection, stop_servers=["n1"], **NOW)["healthy"]
    result = run_module("nats_cluster_health", connection, stop_servers=["n1", "n2"], **NOW)
    assert set(codes(result)) == {"stop_breaks_quorum"}
    assert [problem["subject"] for problem in result["problems"]] == [
        "meta group",
        "stream APP/ORDERS",
        "consumer APP/ORDERS/worker",
    ]
    unknown = run_module("nats_cluster_health", connection, stop_servers=["n11"], timeout=1, **NOW)
    assert codes(unknown) == ["stop_unknown_server"]


def test_single_replicas(healthy: NatsProcesses, run_module: Runner) -> None:
    streams = run_module("nats_cluster_info", healthy.sys_connection(), account="APP")["streams"]
    host = next(stream["leader"] for stream in streams if stream["name"] == "EVENTS")
    asked = {"stop_servers": [host], **NOW}
    accepted = run_module("nats_cluster_health", healthy.sys_connection(), **asked)
    assert accepted["healthy"]
    assert "stream APP/EVENTS" in [problem["subject"] for problem in accepted["warnings_found"]]
    refused = run_module("nats_cluster_health", healthy.sys_connection(), **asked, r1_policy="fail")
    assert set(codes(refused)) == {"stop_r1"}
    assert run_module("nats_cluster_health", healthy.sys_connection(), **asked, r1_policy="fail", tolerate=["stop_r1"])[
        "healthy"
    ]


def test_a_server_without_jetstream(make_cluster: Callable[..., NatsProcesses], run_module: Runner) -> None:
    cluster = form(make_cluster(["n1", "n2", "n3", "n4"], jetstream=["n1", "n2", "n3"]), run_module)
    options = {"expected_servers": cluster.names, "samples": 1, "span": 0, "interval": 0.5}
    jetstream_servers = {"expected_jetstream_servers": ["n1", "n2", "n3"]}
    assert run_module("nats_cluster_health", cluster.sys_connection(), **options, **jetstream_servers)["healthy"]
    result = run_module("nats_cluster_health", cluster.sys_connection(), **{**options, **NOW})
    assert codes(result) == ["meta_peer_missing", "jetstream_disabled"]
    info = run_module("nats_cluster_info", cluster.sys_connection(), expected_servers=cluster.names)
    assert [server["js"] is None for server in info["servers"]] == [False, False, False, True]
    assert info["problems"] == []


def test_a_single_server_has_no_groups(make_cluster: Callable[..., NatsProcesses], run_module: Runner) -> None:
    cluster = make_cluster(["n1"])
    text = cluster.config_file("n1").read_text().splitlines()
    cluster.config_file("n1").write_text("\n".join(line for line in text if not line.startswith("cluster ")))
    cluster.kill()
    cluster.start()
    options = {"expected_servers": ["n1"], "samples": 1, "span": 0, "interval": 0.2}
    assert run_module("nats_cluster_health", cluster.sys_connection(), **options)["healthy"]
    cluster.add_stream("ORDERS", 1)
    cluster.add_consumer("ORDERS", "worker")
    result = run_module("nats_cluster_health", cluster.sys_connection(), **options, stop_servers=["n1"])
    assert codes(result, "warnings_found") == ["stop_r1", "stop_r1"]
    info = run_module("nats_cluster_info", cluster.sys_connection())
    assert (info["meta"], info["problems"]) == (None, [])
    assert info["streams"][0]["leader"] == "n1"

    # Storage is reserved up to a stream's limit, whether or not it is in use.
    cluster.add_stream("WIDE", 1, max_bytes=200 << 20)
    wanted = {"stream": "WIDER", "subjects": ["WIDER"], "max_bytes": 100 << 20, "storage": "file"}
    refused = run_module("nats_stream", cluster.app_connection(), **wanted)
    assert refused["failure"]["err_code"] in (10023, 10047), refused
    assert "max_bytes of all streams on a server count in full" in refused["msg"]
    info = run_module("nats_cluster_info", cluster.sys_connection())
    (finding,) = (one for one in diagnose(info)["findings"] if one["code"] == "storage")
    assert "n1 has reserved 78 % of its file storage" in finding["message"]


def test_the_gate_outlives_the_server_it_is_connected_to(
    make_cluster: Callable[..., NatsProcesses], run_module: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = form(make_cluster(["n1", "n2", "n3"]), run_module)
    connection = {**cluster.sys_connection(), "timeout": 1}
    looks: Queue[tuple[bool, float]] = Queue()

    def watched(api: SystemApi, params: Mapping[str, Any], **options: Any) -> Callable[[], Sample]:
        sample = make_sampler(api, params, **options)

        def look() -> Sample:
            begun, seen = time.monotonic(), sample()
            looks.put((not seen.errors, begun))
            return seen

        return look

    def wait_for_look(good: bool) -> None:
        while looks.get(timeout=30)[0] != good:
            pass

    monkeypatch.setattr(nats_cluster_health, "make_sampler", watched)
    options = {"expected_servers": cluster.names, "interval": 0.3, "samples": 1, "wait_timeout": 30, "span": 4}
    with ThreadPoolExecutor(1) as pool:
        gate = pool.submit(gate_restarting_silent, cluster, connection, options, run_module)
        wait_for_look(good=True)
        cluster.kill("n1")
        wait_for_look(good=False)
        cluster.start("n1")
        passes(gate.result(150))
    span = list(looks.queue)
    first_good = max((number for number, (good, _begun) in enumerate(span) if not good), default=-1) + 1
    assert span[-1][1] - span[first_good][1] >= 4, "the span must begin again after the bad samples"


def test_elections_between_all_samples_are_not_healthy(
    healthy: NatsProcesses, run_module: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stream_leader() -> str:
        return str(healthy.app_request("$JS.API.STREAM.INFO.ORDERS", members=3)["cluster"].get("leader") or "")

    def elect() -> None:
        before, end = stream_leader(), time.monotonic() + 30
        while stream_leader() in ("", before):
            healthy.app_request("$JS.API.STREAM.LEADER.STEPDOWN.ORDERS", members=0)
            assert time.monotonic() < end, f"{before} still leads ORDERS"

    def electing(*arguments: Any, **options: Any) -> Callable[[], Sample]:
        sample = make_sampler(*arguments, **options)

        def sample_after_election() -> Sample:
            elect()
            return sample()

        return sample_after_election

    options = {"expected_servers": healthy.names, "samples": 3, "span": 2, "interval": 0.5}
    with monkeypatch.context() as patch:
        patch.setattr(nats_cluster_health, "make_sampler", electing)
        result = run_module("nats_cluster_health", healthy.sys_connection(), **options, wait_timeout=8)
    assert result["failed"], result
    passes(run_module("nats_cluster_health", healthy.sys_connection(), **options, wait_timeout=60))


def test_an_election_that_the_same_server_won_is_seen_from_2_12_on(healthy: NatsProcesses, version: str) -> None:
    options = ConnectionOptions(tuple(healthy.urls), "sys", SYS_PASSWORD)
    with Client(options) as client:
        before = SystemApi(client).read_cluster()
        leader = healthy.app_request("$JS.API.STREAM.INFO.ORDERS", members=3)["cluster"]["leader"]
        for _election in range(40):
            healthy.app_request("$JS.API.STREAM.LEADER.STEPDOWN.ORDERS", members=0)
            if healthy.app_request("$JS.API.STREAM.INFO.ORDERS", members=3)["cluster"]["leader"] == leader:
                break
        found = election_problems(before, SystemApi(client).read_cluster())
    messages = [problem.message for problem in found if problem.subject == "stream APP/ORDERS"]
    seen = [f"has elected {leader} again since the last sample" in message for message in messages]
    assert seen == ([] if version == "2.10.27" else [True])


def test_servers_that_are_up_and_not_in_the_cluster(
    make_cluster: Callable[..., NatsProcesses], run_module: Runner
) -> None:
    """First one server is started with a different cluster name; then all servers are renamed."""
    cluster = form(make_cluster(["n1", "n2", "n3"]), run_module)
    cluster.add_stream("ORDERS", 3)
    config = cluster.config_file("n3").read_text()
    cluster.stop("n3")
    cluster.config_file("n3").write_text(config.replace("cluster { name: C1,", "cluster { name: C9,"))
    cluster.start("n3")
    connection = {**cluster.sys_connection(), "timeout": 1}
    n3_first = {**connection, "servers": [cluster.url(name) for name in ("n3", "n1", "n2")]}
    for given in (connection, n3_first):
        result = run_module("nats_cluster_health", given, expected_servers=cluster.names, **NOW)
        assert codes(result)[0] == "server_isolated", result["msg"]
        assert result["causes"][0]["title"].startswith(
            "n3 runs, but is isolated from the other servers: cluster.name is C9 there, and C1"
        )
    info = run_module("nats_cluster_info", connection, expected_servers=cluster.names)
    assert info["problems"][0]["code"] == "server_isolated"

    for name in cluster.names:
        cluster.stop(name)
        text = config if name == "n3" else cluster.config_file(name).read_text()
        cluster.config_file(name).write_text(text.replace(f'server_name: "{name}"', f'server_name: "p-{name}"'))
    cluster.start()
    renamed = [f"p-{name}" for name in cluster.names]
    asked = {
        "expected_servers": renamed,
        "interval": 0.3,
        "wait_timeout": 30,
        "stuck_timeout": 3,
        "samples": 1,
        "span": 0,
    }
    # 2.10 servers form a meta group of the old and the new members, which has no quorum. On a busy machine the first
    # gate may time out before the group forms.
    old = cluster.version == "2.10.27"
    expected = ("servers_down", []) if old else ("meta_group", renamed)
    end = time.monotonic() + 60
    while True:
        result = run_module("nats_cluster_health", connection, **asked)
        assert result["failure"]["code"] == "stuck", result["msg"]
        cause = result["causes"][0]
        if (cause["kind"], cause["servers"]) == expected:
            break
        assert time.monotonic() < end, result["msg"]
    assert ("3 members without a known name" if old else "its members have other names") in cause["title"]
    assert "scale_in" not in result["msg"] and "systemctl" not in result["msg"]


def test_a_server_whose_routes_are_refused(
    make_cluster: Callable[..., NatsProcesses], run_module: Runner, tmp_path: Path
) -> None:
    """n3 runs with a different route password or pool size, without TLS, or with an expired certificate; all three
    addresses are queried."""
    cluster = make_cluster(["n1", "n2", "n3"])
    for folder in ("current", "expired"):
        (tmp_path / folder).mkdir()
    current, expired = make_certificates(tmp_path / "current"), make_certificates(tmp_path / "expired", expired=True)
    authorities = tmp_path / "authorities.crt"
    authorities.write_text(current.ca.read_text() + expired.ca.read_text())
    password = "authorization { user: route, password: first-secret }"
    tls = f'tls {{ cert_file: "{current.cert}", key_file: "{current.key}", ca_file: "{authorities}", verify: true }}'
    for name in cluster.names:
        cluster.stop(name)
        text = cluster.config_file(name).read_text().replace('"nats://', '"nats://route:first-secret@')
        cluster.config_file(name).write_text(
            text.replace("cluster { name: C1,", f"cluster {{ name: C1, {password}, {tls},")
        )
    cluster.start()
    form(cluster, run_module)
    config = cluster.config_file("n3").read_text()
    connection = {**cluster.sys_connection(), "timeout": 1}
    old = cluster.version == "2.10.27"
    # 2.10 refuses routes with a different pool size and does not report when a certificate expires.
    faults = {
        "password": (config.replace("first-secret", "second-secret"), "route password"),
        "no TLS": (config.replace(f"{tls},", ""), "TLS of cluster is "),
        "expired": (
            config.replace(str(current.cert), str(expired.cert)).replace(str(current.key), str(expired.key)),
            "TLS, firewall" if old else "its certificate for routes has expired",
        ),
    }
    if old:
        faults["pool"] = (config.replace(password, f"pool_size: 9, {password}"), "cluster.pool_size is 9 there")
    for fault, (text, reason) in faults.items():
        assert text != config, fault
        cluster.stop("n3")
        cluster.config_file("n3").write_text(text)
        cluster.start("n3")
        result = run_module("nats_cluster_health", connection, expected_servers=cluster.names, **NOW)
        assert codes(result)[0] == "server_isolated", (fault, result["msg"])
        title = result["causes"][0]["title"]
        assert title.startswith("n3 runs, but is isolated from the other servers: ") and reason in title, (fault, title)
        assert "systemctl" not in result["msg"] and "scale_in" not in result["msg"], (fault, result["msg"])


def test_cluster_that_was_joined_to_a_foreign_one(
    make_cluster: Callable[..., NatsProcesses], run_module: Runner
) -> None:
    own, other = (make_cluster([f"{letter}{number}" for number in (1, 2, 3)]) for letter in "ab")
    for cluster in (own, other):
        form(cluster, run_module)
        cluster.add_stream("ORDERS", 3)
    config = own.config_file("a1").read_text()
    own.stop("a1")
    route = f'routes: ["nats://127.0.0.1:{other.route_ports["b1"]}", '
    own.config_file("a1").write_text(config.replace("routes: [", route))
    own.start("a1")
    deadline = time.monotonic() + 30
    while True:
        options = {"expected_servers": own.names, **NOW}
        result = run_module("nats_cluster_health", {**own.sys_connection(), "timeout": 1}, **options)
        first = result["causes"][0] if result["causes"] else {}
        if first.get("servers") == other.names and first["kind"] == "meta_group":
            break
        assert time.monotonic() < deadline, result["msg"]
    assert first["commands"][0].startswith("ansible-playbook natsops.jetstream.deploy")


def test_a_replica_that_lost_its_files_and_is_called_current(
    make_cluster: Callable[..., NatsProcesses], run_module: Runner
) -> None:
    """2.10 continues after a failed write: the server responds, and both it and its peers report the replica as
    current. 2.15 reports the failure."""
    cluster = form(make_cluster(["n1", "n2", "n3"]), run_module)
    leader = cluster.add_stream("ORDERS", 3, max_msg_size=600_000)["cluster"]["leader"]
    victim = next(name for name in cluster.names if name != leader)
    (cluster.directory / victim).rename(cluster.directory / "lost")
    connection = {**cluster.sys_connection(), "timeout": 1}
    publish_many(cluster, "ORDERS.a", 80, 500_000)
    asked = {"expected_servers": cluster.names, "samples": 3, "span": 4, "interval": 1, "wait_timeout": 15}
    result = run_module("nats_cluster_health", connection, **asked)
    assert result["failed"]
    assert any(victim in problem["servers"] for problem in result["problems"]), result["msg"]
    if cluster.version == "2.10.27":
        assert set(codes(result)) <= {"stream_replica_differs", "stream_replica_behind"}, result["msg"]
        assert run_module("nats_cluster_info", connection)["problems"], "a single sample found no problem"


def test_a_stream_on_servers_at_their_limit(make_cluster: Callable[..., NatsProcesses], run_module: Runner) -> None:
    cluster = make_cluster(["n1", "n2", "n3"], jetstream_options="max_file_store: 12MB")
    form(cluster, run_module)
    cluster.add_stream("ORDERS", 3)
    publish_many(cluster, "ORDERS.a", 26, 500_000)
    asked = {"expected_servers": cluster.names, "samples": 20, "span": 20, "interval": 0.5, "wait_timeout": 40}
    result = run_module("nats_cluster_health", {**cluster.sys_connection(), "timeout": 1}, **asked, stuck_timeout=2)
    assert result["failure"]["code"] == "stuck", result["msg"]
    (cause,) = result["causes"]
    assert cause["kind"] == "storage"
    assert cause["title"].startswith(
        "n1, n2 and n3 have reached a limit of JetStream (12.4 MiB of 12.0 MiB file storage)"
    )


def test_a_stream_without_quorum_that_healthz_does_not_see(
    make_cluster: Callable[..., NatsProcesses], run_module: Runner
) -> None:
    """In a cluster of five, two of the three peers of an R3 stream crash, while the meta group keeps its quorum."""
    cluster = make_cluster(["n1", "n2", "n3", "n4", "n5"])
    connection = {**cluster.sys_connection(), "timeout": 1}
    all_of_them = {"expected_servers": cluster.names}
    soon = {"samples": 1, "span": 0, "interval": 0.5}
    form(cluster, run_module)
    cluster.add_stream("ORDERS", 3)
    cluster.add_consumer("ORDERS", "worker")
    passes(run_module("nats_cluster_health", connection, **all_of_them, **soon))
    (stream,) = run_module("nats_cluster_info", connection)["streams"]
    first, second = [name for name in stream["members"] if name != stream["leader"]]

    refused = run_module("nats_cluster_health", connection, stop_servers=[first, second], **NOW)
    assert {problem["subject"] for problem in refused["problems"]} == {
        "stream APP/ORDERS",
        "consumer APP/ORDERS/worker",
    }

    cluster.kill(first)
    missing = run_module("nats_cluster_health", connection, **all_of_them, **NOW)
    assert "server_missing" in codes(missing)
    assert f"expected server {first} did not answer" in missing["msg"]
    assert run_module("nats_cluster_health", connection, **all_of_them, tolerate=[first], wait_timeout=30, **soon)[
        "healthy"
    ]
    refused = run_module(
        "nats_cluster_health", connection, **all_of_them, tolerate=[first], stop_servers=[second], **NOW
    )
    assert "stop_breaks_quorum" in codes(refused)
    assert stream["raft_group"] in refused["msg"]

    cluster.kill(second)
    survivors = [name for name in cluster.names if name not in (first, second)]
    deadline = time.monotonic() + 40
    while True:
        gate = run_module(
            "nats_cluster_health", connection, expected_servers=survivors, tolerate=["meta_size", first, second], **NOW
        )
        healthz = run_module("nats_server_info", connection, endpoints=["healthz"])["servers"]
        assert gate["failed"], "the gate passed although the stream lost its quorum"
        blind = sorted(server["name"] for server in healthz if server["healthz"]["status"] == "ok") == survivors
        if blind and "stream_no_leader" in codes(gate):
            break
        assert time.monotonic() < deadline, gate["msg"]
        time.sleep(0.5)
    lost = next(problem for problem in gate["problems"] if problem["code"] == "stream_no_leader")
    assert lost["subject"] == "stream APP/ORDERS"
    for named in (*stream["members"], stream["raft_group"]):
        assert named in lost["message"]
    assert "meta_no_leader" not in codes(gate)

    cluster.start(first, second)
    form(cluster, run_module)


def test_two_clusters_that_do_not_reach_each_other_are_seen_from_a_third(
    make_cluster: Callable[..., NatsProcesses], run_module: Runner
) -> None:
    """East requires TLS from west, which does not use it, so no connection from east to west is established."""
    ports = dict(zip(("north", "east", "west"), free_ports(3)))

    def gateway(own: str, spoilt: str = "") -> str:
        remotes = "\n".join(
            f'{{ name: {name}, url: "nats://127.0.0.1:{port}"{", tls { insecure: true }" if name == spoilt else ""} }}'
            for name, port in ports.items()
        )
        return f'gateway {{ name: {own}, listen: "127.0.0.1:{ports[own]}", gateways: [\n{remotes}\n] }}'

    north, east, west = (
        make_cluster([f"{name}1"], cluster=name, extra=gateway(name, "west" if name == "east" else ""))
        for name in ports
    )
    clusters = {f"{name}1": name for name in ports}
    asked = {"expected_servers": list(clusters), "expected_clusters": clusters}
    result = run_module("nats_cluster_health", north.sys_connection(), **asked, span=2, wait_timeout=25)
    assert result["failed"]
    (problem,) = (problem for problem in result["problems"] if problem["code"] == "gateway_missing")
    assert problem["servers"] == ["east1"]
    assert "east1 of east has no gateway connection to west" in result["msg"]

    east.stop("east1")
    east.extra = gateway("east")
    east.write_config("east1")
    east.start()
    # Any server may have been raft-silent from its start, which the earlier problems hid.
    options = {**asked, "wait_timeout": 60}
    passes(gate_restarting_silent(north, north.sys_connection(), options, run_module, others=(east, west)))


def test_leader_that_counts_too_few_members_is_not_a_problem(
    make_cluster: Callable[..., NatsProcesses], run_module: Runner
) -> None:
    """A 2.10.27 leader occasionally keeps counting too few members after its first start. A majority is still two of
    three."""
    cluster = form(make_cluster(["n1", "n2", "n3"]), run_module)
    for name in cluster.names:
        cluster.stop(name)
        (counted,) = (cluster.directory / name).glob("**/_meta_/peers.idx")
        counted.write_bytes((2).to_bytes(4, "little") + counted.read_bytes()[4:])
    cluster.start()
    form(cluster, run_module)

    def meta() -> dict[str, Any]:
        return run_module("nats_cluster_info", cluster.sys_connection())["meta"]

    assert (meta()["size"], len(meta()["members"])) == (2 if cluster.version == "2.10.27" else 3, 3)
    removed = next(name for name in cluster.names if name != meta()["leader"])
    cluster.stop(removed)
    done = run_module("nats_meta_peer", cluster.sys_connection(), server_name=removed, wait_timeout=20)
    assert sorted(done["after"]["members"].values()) == sorted(set(cluster.names) - {removed})
    assert done["after"]["cluster_size"] == 2


def test_a_stream_only_on_a_dead_server_has_no_leader(
    make_cluster: Callable[..., NatsProcesses], run_module: Runner
) -> None:
    cluster = form(make_cluster(["n1", "n2", "n3"]), run_module)
    leader = run_module("nats_cluster_info", cluster.sys_connection())["meta"]["leader"]
    dead = next(name for name in cluster.names if name != leader)
    cluster.add_stream("ORDERS", 3)
    single = next(
        name
        for name in (f"EVENTS{number}" for number in range(50))
        if cluster.add_stream(name, 1)["cluster"]["leader"] == dead
    )
    cluster.kill(dead)
    system = cluster.sys_connection()
    options = {"expected_servers": cluster.names}
    users = {"account_users": cluster.account_users()}
    subject = f"stream APP/{single}"

    def found(name: str, **extra: Any) -> dict[str, str]:
        result = run_module(name, system, **options, **extra)
        return {item["subject"]: item["message"] for item in result["problems"] if item["code"] == "stream_no_leader"}

    # The dead server may have led ORDERS. The system account alone does not see the other stream.
    assert wait_until(lambda: found("nats_cluster_info"), lambda left: not left, 60).done
    message = {subject: f"{subject} has no leader: its replicas are only on {dead}"}
    assert found("nats_cluster_health", problems="all", **NOW, **users) == message
    assert found("nats_cluster_info", **users) == message
    tolerant = run_module("nats_cluster_health", system, **options, **users, **NOW, tolerate=[dead])
    assert subject not in [problem["subject"] for problem in tolerant["problems"]]
    info = run_module("nats_cluster_info", system, **options, **users)
    row = next(stream for stream in info["streams"] if stream["name"] == single)
    assert (row["leader"], row["members"], row["num_replicas"], row["cluster"]) == (None, [dead], 1, "C1")
    diagnosis = diagnose(info)
    assert diagnosis["verdict"]["text"].startswith("BROKEN")
    wrong = [{**user, "password": "wrong"} for user in cluster.account_users()]
    refused = run_module("nats_cluster_info", system, **options, account_users=wrong)
    assert [item["severity"] for item in refused["problems"] if item["code"] == "streams_unlisted"] == ["warning"]
    cluster.start(dead)
    form(cluster, run_module)
    assert found("nats_cluster_info", **users) == {}
