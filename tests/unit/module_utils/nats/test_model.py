# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the parsing of replies that were recorded from clusters of three servers (replies/VERSION.json)."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.health.cause import build_context, scene_of_info
from ansible_collections.natsops.jetstream.plugins.module_utils.health.causes import root_causes
from ansible_collections.natsops.jetstream.plugins.module_utils.health.rules import (
    Expectations,
    StopPolicy,
    health_problems,
    stop_problems,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.account_names import account_labels
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure, Reply
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import (
    Cluster,
    Server,
    domains,
    for_domain,
    peer_id,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.replies import (
    build_cluster,
    parse_health,
    parse_server,
    parse_summary,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.system_api import _parse_statsz
from ansible_collections.natsops.jetstream.plugins.module_utils.problem import ERROR
from support import clusters
from support.hostile import mutated

REPLIES = Path(__file__).parents[3] / "support" / "replies"
VERSIONS = sorted(path.stem for path in REPLIES.glob("*.json"))


@pytest.fixture(params=VERSIONS)
def replies(request: pytest.FixtureRequest) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((REPLIES / f"{request.param}.json").read_text())
    return {**content, "version": request.param}


def build(replies: dict[str, Any], expected: tuple[str, ...] = ()) -> Cluster:
    servers = [parse_server(item["server"], item["statsz"], 0.001) for item in replies["statsz"]]
    return build_cluster(servers, replies["jsz"], replies["healthz"], expected)


def leader_view(replies: dict[str, Any], stream: str) -> dict[str, Any]:
    """Return the stream's detail in the reply of its leader, which a test can change."""
    names = {item["server"]["id"]: item["server"]["name"] for item in replies["statsz"]}
    for server_id, jsz in replies["jsz"].items():
        for detail in jsz["account_details"][0].get("stream_detail", ()):
            if detail["name"] == stream and detail["cluster"]["leader"] == names[server_id]:
                found: dict[str, Any] = detail
                return found
    raise AssertionError(f"no server leads {stream}")


def without(replies: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the replies as if this server had not responded."""
    gone = next(item["server"]["id"] for item in replies["statsz"] if item["server"]["name"] == name)
    return {
        "statsz": [item for item in replies["statsz"] if item["server"]["id"] != gone],
        "jsz": {key: value for key, value in replies["jsz"].items() if key != gone},
        "healthz": {key: value for key, value in replies["healthz"].items() if key != gone},
    }


def test_versions_are_recorded() -> None:
    assert VERSIONS == ["2.10.27", "2.15.1", "2.9.10"]


def test_a_healthy_cluster(replies: dict[str, Any]) -> None:
    cluster = build(replies)
    names = frozenset({"n1", "n2", "n3"})
    assert cluster.names == names
    assert health_problems(cluster, Expectations(names, names)) == []
    for server in cluster.servers:
        assert (server.version, server.cluster, server.jetstream) == (replies["version"], "C1", True)
        assert server.uptime > 0
        assert server.summary is not None
        assert server.summary.max_storage == 256 * 1024 * 1024
    assert cluster.meta is not None
    assert (cluster.meta.group.size, cluster.meta.quorum, len(cluster.meta.group.peers)) == (3, 2, 2)
    events, orders = cluster.streams
    assert (events.name, events.group.size, len(events.group.members)) == ("EVENTS", 1, 1)
    assert (orders.name, orders.group.size, orders.group.members) == ("ORDERS", 3, ("n1", "n2", "n3"))
    by_size = {consumer.group.size: consumer for consumer in orders.consumers}
    assert (by_size[3].name, by_size[3].durable, by_size[3].group.ephemeral) == ("worker", True, False)
    assert (by_size[1].durable, by_size[1].group.ephemeral) == (False, True)
    raft_names = (orders.group.raft_name, by_size[3].group.raft_name)
    expected = ("", "") if replies["version"] == "2.9.10" else ("S-R3F", "C-R3F")
    assert tuple(name[:5] for name in raft_names) == expected


def test_only_the_leader_is_believed(replies: dict[str, Any]) -> None:
    """Only the leader's report counts, because followers report the other followers as not current."""
    detail = leader_view(replies, "ORDERS")
    detail["cluster"]["replicas"][0].update({"current": False, "active": 31_000_000_000, "lag": 0})
    behind = detail["cluster"]["replicas"][0]["name"]
    (problem,) = health_problems(build(replies), Expectations())
    assert (problem.code, problem.servers) == ("stream_replica_behind", (behind,))
    assert "31 s" in problem.message


def test_a_leader_that_did_not_answer_leads_nothing(replies: dict[str, Any]) -> None:
    leader = leader_view(replies, "ORDERS")["cluster"]["leader"]
    orders = build(without(replies, leader)).streams[-1]
    assert orders.name == "ORDERS"
    assert (orders.group.leader, len(orders.group.hosts), len(orders.group.members)) == (None, 2, 3)


def test_a_claim_without_replicas_counts_only_alone(replies: dict[str, Any]) -> None:
    """A server whose Raft node is not running reports itself as the leader, with no replicas."""
    leader = leader_view(replies, "ORDERS")["cluster"]["leader"]
    other = next(name for name in ("n1", "n2", "n3") if name != leader)
    other_id = next(item["server"]["id"] for item in replies["statsz"] if item["server"]["name"] == other)
    for detail in replies["jsz"][other_id]["account_details"][0]["stream_detail"]:
        if detail["name"] == "ORDERS":
            detail["cluster"] = {"name": "C1", "leader": other}
    assert build(replies).streams[-1].group.leaders == (leader,)
    assert build(without(replies, leader)).streams[-1].group.leaders == (other,)


def test_a_server_that_did_not_answer_is_unknown(replies: dict[str, Any]) -> None:
    server_id = replies["statsz"][0]["server"]["id"]
    del replies["jsz"][server_id], replies["healthz"][server_id]
    cluster = build(replies)
    (silent,) = [server for server in cluster.servers if server.id == server_id]
    assert (silent.summary, silent.health) == (None, None)
    assert {problem.code for problem in health_problems(cluster, Expectations())} >= {"server_silent"}


def test_an_unknown_peer_has_the_name_that_an_option_or_another_server_gives_it_or_its_id(
    replies: dict[str, Any],
) -> None:
    detail = leader_view(replies, "ORDERS")
    peer = detail["cluster"]["replicas"][0]
    name, identity = peer["name"], peer["peer"]
    less = without(replies, name)
    for group in groups_with(less, identity):
        group["name"] = f"Server name unknown at this time (peerID: {identity})"
    assert name in [item.name for item in build(less, expected=(name,)).streams[-1].group.peers]
    cluster = build(less)
    assert identity in [item.name for item in cluster.streams[-1].group.peers]
    assert cluster.nameless == {identity}
    groups_with(less, identity)[0]["name"] = name
    assert name in [item.name for item in build(less).streams[-1].group.peers]
    assert build(less).nameless == frozenset()


def groups_with(replies: dict[str, Any], identity: str) -> list[dict[str, Any]]:
    """Return every view of the peer with this id in the groups that servers report; a test can change these views."""
    views = [jsz.get("meta_cluster") or {} for jsz in replies["jsz"].values()]
    for jsz in replies["jsz"].values():
        for account in jsz["account_details"]:
            for stream in account.get("stream_detail") or ():
                views += [stream.get("cluster") or {}]
                views += [consumer.get("cluster") or {} for consumer in stream.get("consumer_detail") or ()]
    return [peer for view in views for peer in view.get("replicas") or () if peer.get("peer") == identity]


def meta_view(name: str, others: dict[str, str], leader: str = "", size: int = 3) -> tuple[Server, dict[str, Any]]:
    """Return a server with its view of the meta group. `others`: peer id → name, which is empty for a peer that the
    server never met."""
    replicas = [
        {"name": other or f"Server name unknown at this time (peerID: {identity})", "peer": identity}
        for identity, other in others.items()
    ]
    jsz = {"meta_cluster": {"name": "C1", "leader": leader, "cluster_size": size, "replicas": replicas}}
    return Server(name, f"N{name}", "C1", jetstream=True), jsz


def with_meta(*views: tuple[Server, dict[str, Any]], expected: tuple[str, ...] = ()) -> Cluster:
    return build_cluster(
        [server for server, _jsz in views], {server.id: jsz for server, jsz in views}, {}, expected=expected
    )


def other_names(names: list[str], own: str) -> dict[str, str]:
    return {peer_id(name): name for name in names if name != own}


def test_renamed_servers_are_not_members_of_their_meta_group() -> None:
    ids = dict.fromkeys(map(peer_id, ("n1", "n2", "n3")), "")
    cluster = with_meta(*(meta_view(f"p-n{number}", ids) for number in (1, 2, 3)))
    assert cluster.meta is not None
    assert cluster.meta.outsiders == {"p-n1", "p-n2", "p-n3"}
    assert set(cluster.meta.group.members) == cluster.nameless == set(ids)
    problems = health_problems(cluster, Expectations(frozenset(["p-n1", "p-n2", "p-n3"])))
    found = {problem.code: problem for problem in problems}
    assert found["meta_outsider"].servers == ("p-n1", "p-n2", "p-n3")
    assert "0 answered (none)" in found["meta_no_leader"].message
    assert "an unknown server (id 44jzkV9D)" in found["meta_outsider"].message


def test_a_member_is_not_an_outsider_if_it_answers_alone_or_its_leader_counts_too_few() -> None:
    names = ["n1", "n2", "n3"]
    alone = with_meta(meta_view("n1", {peer_id("n2"): "n2", peer_id("n3"): ""}))
    miscounted = with_meta(*(meta_view(name, other_names(names, name), "n1", size=2) for name in names))
    for cluster in (alone, miscounted):
        assert cluster.meta is not None and cluster.meta.outsiders == frozenset()


@pytest.mark.parametrize("leader", ["b1", "a1"])
def test_foreign_meta_group_is_distinguished_from_the_own(leader: str) -> None:
    """The leader of the server's own group may already have counted all members; the other servers count only
    themselves."""
    own, foreign = ["a1", "a2", "a3"], ["b1", "b2", "b3"]
    known = own if leader == "b1" else [*own, *foreign]
    views = [meta_view(name, other_names(known, name), "a1", len(known)) for name in own]
    views += [meta_view(name, other_names(foreign, name), leader) for name in foreign]
    for expected in (tuple(own), ()):
        meta = with_meta(*views, expected=expected).meta
        assert meta is not None
        assert (meta.group.leader, meta.foreign) == ("a1", (frozenset(foreign),))
        assert set(meta.views) == set(own)


@pytest.mark.parametrize("part", ["statsz", "jsz", "healthz"])
def test_a_reply_of_wrong_types_is_the_fault_of_its_server_alone(replies: dict[str, Any], part: str) -> None:
    chance = random.Random(7)
    named = 0
    for number in range(250):
        key = chance.choice(list(replies[part] if part != "statsz" else range(3)))
        broken = copy.deepcopy(replies)
        broken[part][key] = mutated(broken[part][key], chance, [number])
        try:
            cluster = read_as_the_client_does(broken)
        except NatsFailure as failure:
            assert failure.code == "bad_reply"
            continue
        problems = health_problems(cluster, Expectations())
        scene_of_info(json.loads(json.dumps(cluster.as_dict(), allow_nan=False)))
        root_causes(problems, build_context(cluster, {}))
        unreadable = [server.name for server in cluster.servers if server.unreadable]
        named += len(unreadable)
        assert len(unreadable) <= 1
        assert {problem.subject for problem in problems} >= set(unreadable)
    assert named or part == "healthz"


def read_as_the_client_does(replies: dict[str, Any]) -> Cluster:
    servers = [_parse_statsz(Reply("S", json.dumps(item).encode(), 0.001)) for item in replies["statsz"]]
    objects = [{key: one for key, one in replies[part].items() if isinstance(one, dict)} for part in ("jsz", "healthz")]
    try:
        return build_cluster(servers, *objects)
    except ValueError as error:
        raise NatsFailure("bad_reply", str(error)) from error


def test_peer_ids() -> None:
    assert [peer_id(name) for name in ("n1", "n2", "n3", "n10")] == ["fjFyEjc1", "44jzkV9D", "BXScrY9i", "xeKPO8o9"]


def test_the_filter_matches_exactly(replies: dict[str, Any]) -> None:
    cluster = build(replies)
    assert [stream.name for stream in cluster.only(account="APP", stream="ORDERS").streams] == ["ORDERS"]
    assert cluster.only(stream="ORDER").streams == ()
    assert cluster.only(cluster="C").servers == ()
    assert cluster.only(cluster="C1") == cluster


def test_results_are_json(replies: dict[str, Any]) -> None:
    assert json.loads(json.dumps(build(replies).as_dict()))["streams"][1]["consumers"]


def test_a_server_without_jetstream(replies: dict[str, Any]) -> None:
    """A server that has lost JetStream counts as a server without JetStream: its JSZ reply counts, not the announcement
    that it made at its start."""
    assert parse_summary({"disabled": True, "server_id": "N"}) is None
    server_id = replies["statsz"][0]["server"]["id"]
    replies["jsz"][server_id] = {"disabled": True, "server_id": server_id}
    assert [server.jetstream for server in build(replies).servers if server.id == server_id] == [False]


def test_health_errors() -> None:
    assert parse_health({"status": "ok"}).ok
    assert parse_health({"status": "unavailable", "error": "no leader"}).errors == ("no leader",)
    details = {"status": "error", "status_code": 503, "errors": [{"type": "STREAM", "error": "a"}, {"error": "b"}]}
    assert parse_health(details).errors == ("a", "b")


def test_clusters_of_another_domain_are_left_out_with_their_servers_without_jetstream() -> None:
    hub = (clusters.server("n1", domain="hub"), clusters.server("core", jetstream=False))
    leafs = (
        clusters.server("l1", cluster="LEAF", domain="leaf"),
        clusters.server("lcore", cluster="LEAF", jetstream=False),
    )
    alone = clusters.server("edge", cluster="", domain="edge")
    arbiter = clusters.server("w1", cluster="W", domain="hub")
    everybody = (*hub, *leafs, alone, arbiter)
    assert for_domain(everybody, "hub") == (*hub, arbiter)
    assert for_domain(everybody, "leaf") == leafs
    assert for_domain(everybody, "edge") == (alone,)
    assert for_domain(everybody, None) == everybody


def test_servers_without_jetstream_belong_to_the_domain_of_their_cluster_or_supercluster() -> None:
    hub = (clusters.server("n1", domain="hub"), clusters.server("core", jetstream=False, domain="of no meaning"))
    alone = clusters.server("edge", cluster="", domain="edge")
    clients = clusters.server("g1", cluster="CLIENTS", jetstream=False, reaches=("C1",))
    between = clusters.server("x1", cluster="X", jetstream=False, reaches=("C1", "E"))
    nobody = clusters.server("y1", cluster="", jetstream=False, domain="of no meaning")
    plain = clusters.server("e1", cluster="E")
    everybody = (*hub, alone, clients, between, nobody, plain)
    assert domains(everybody) == {
        "Nn1": "hub",
        "Ncore": "hub",
        "Nedge": "edge",
        "Ng1": "hub",
        "Nx1": "",
        "Ny1": "",
        "Ne1": "",
    }


KEYS = [f"A{letter * 55}" for letter in "BCD"]


def with_keys(replies: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """Return the replies as in operator mode: account APP appears under each of the keys, with these names."""
    for jsz in replies["jsz"].values():
        (app,) = (account for account in jsz["account_details"] if account["name"] == "APP")
        jsz["account_details"] = [{**app, "id": key, "name": name} for key, name in names.items()]
    return replies


def test_an_account_is_its_key_and_displayed_by_name(replies: dict[str, Any]) -> None:
    cluster = build(with_keys(replies, dict(zip(KEYS, ["APP", "TWIN", "TWIN"]))))
    by_account = {key: [stream for stream in cluster.streams if stream.account == key] for key in KEYS}
    for key, label in zip(KEYS, ["APP", *KEYS[1:]]):
        assert {stream.account_name for stream in by_account[key]} == {label}
        assert all(stream.group.subject == f"stream {label}/{stream.name}" for stream in by_account[key])
        assert all(stream.group.leader for stream in by_account[key])
    assert len({stream.label for stream in cluster.streams}) == len(cluster.streams)
    assert cluster.displayed(f"consumer {KEYS[0]}/S/C") == "consumer APP/S/C"
    assert [cluster.displayed(text) for text in ("n1", "stream APP/S")] == ["n1", "stream APP/S"]
    assert [cluster.find_account(label) for label in ("APP", KEYS[1], "TWIN")] == [KEYS[0], KEYS[1], "TWIN"]


def test_healthz_errors_are_joined_with_their_streams(replies: dict[str, Any]) -> None:
    replies = with_keys(replies, {KEYS[0]: "APP"})
    stream = next(stream for stream in build(replies).streams if stream.group.size == 3 and stream.group.leader)
    broken, other = (name for name in stream.group.members if name != stream.group.leader)
    place = next(item["server"]["id"] for item in replies["statsz"] if item["server"]["name"] == broken)
    error = f"JetStream stream '{KEYS[0]} > {stream.name}' is not current: group node missing"
    replies["healthz"][place] = {"status": "unavailable", "status_code": 503, "errors": [{"error": error}]}
    cluster = build(replies)
    assert [problem.code for problem in health_problems(cluster, Expectations()) if "ghost" in problem.code] == []
    harmed = {problem.subject for problem in stop_problems(cluster, [other], StopPolicy()) if problem.severity == ERROR}
    assert stream.group.subject in harmed


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        ({"APP": "APP", "$G": "$G"}, {"APP": "APP", "$G": "$G"}),
        ({KEYS[0]: "APP", KEYS[1]: ""}, {KEYS[0]: "APP", KEYS[1]: KEYS[1]}),
        # A JWT may have any name, such as another account's key or a name with terminal control characters.
        ({KEYS[0]: KEYS[1], KEYS[1]: "APP"}, {KEYS[0]: KEYS[0], KEYS[1]: "APP"}),
        ({KEYS[0]: "A\nB\x1b", KEYS[1]: "A B\ufffd"}, {KEYS[0]: KEYS[0], KEYS[1]: KEYS[1]}),
    ],
)
def test_no_two_accounts_are_displayed_alike(names: dict[str, str], labels: dict[str, str]) -> None:
    assert account_labels(names) == labels
