# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every rule of every check fires, but none fires on a healthy cluster."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.expiry import Expiry
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.catalogue import Catalogue
from ansible_collections.natsops.jetstream.plugins.module_utils.health import asset_checks, check_result, checks
from ansible_collections.natsops.jetstream.plugins.module_utils.health.check_result import (
    ABOVE,
    AT_LEAST,
    AT_MOST,
    CRITICAL,
    EITHER,
    OK,
    STATUSES,
    UNKNOWN,
    WARNING,
    Bound,
    Result,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.health.checks import check_backup
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import (
    META,
    Cluster,
    MetaGroup,
    Peer,
    RaftGroup,
    Server,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.problem import ERROR
from ansible_collections.natsops.jetstream.plugins.modules.nats_check import SPECS
from hypothesis import given
from hypothesis import strategies as st

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)


def options(check: str, **own: Any) -> dict[str, Any]:
    """Return a check's options with the module's own defaults, as the module prepares them."""
    assert set(own) <= set(SPECS[check]), "an option that the module does not have"
    return check_result.prepare(check, {**{name: spec.get("default") for name, spec in SPECS[check].items()}, **own})


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def figures(result: Result) -> dict[str, float]:
    return {item.name: item.value for item in result.perfdata}


def peer(name: str = "n2", **state: Any) -> dict[str, Any]:
    return {"name": name, "current": True, "active": 200_000_000, **state}


# --- Thresholds -------------------------------------------------------------------------------------------------------

numbers = st.floats(0, 1e6, allow_nan=False)
bounds = st.sampled_from([AT_LEAST, ABOVE, AT_MOST])


@given(bounds, numbers, numbers, numbers, numbers)
def test_worse_values_never_get_a_better_status(
    bound: Bound, value: float, other: float, warning: float, critical: float
) -> None:
    if bound.refuses(warning, critical):
        return
    low, high = sorted((value, other))
    better, worse = (low, high) if bound.upper else (high, low)
    order = [STATUSES.index(bound.judge(item, warning, critical)) for item in (better, worse)]
    assert order == sorted(order)


@given(bounds, numbers, numbers)
def test_each_threshold_decides_at_its_value(bound: Bound, warning: float, critical: float) -> None:
    beyond = 1 if bound.upper else -1
    if bound.refuses(warning, critical):
        return
    assert bound.judge(critical + beyond, warning, critical) == CRITICAL
    assert (bound.judge(critical, None, critical) == CRITICAL) is bound.at
    assert bound.judge(critical - beyond, None, critical) == OK
    assert bound.judge(critical + beyond, None, None) == OK


@given(numbers, st.integers(1, 1000), st.integers(1, 1000))
def test_the_order_of_thresholds_decides_the_direction(value: float, warning: int, critical: int) -> None:
    bound = check_result.make_bound(EITHER, warning, critical)
    assert bound.refuses(warning, critical) is None
    bad = value <= critical if critical < warning else value >= critical
    assert (bound.judge(value, warning, critical) == CRITICAL) is bad


@given(st.lists(st.sampled_from(STATUSES), min_size=1))
def test_the_worst_status_wins(statuses: list[str]) -> None:
    found = check_result.worst(statuses)
    assert found in statuses
    assert all(STATUSES.index(found) >= STATUSES.index(status) for status in statuses)


def test_nothing_found_out_is_not_ok() -> None:
    assert (check_result.worst([]), Result("stream", "X").status) == (UNKNOWN, UNKNOWN)


@pytest.mark.parametrize(
    ("check", "own", "problem"),
    [
        ("connection", {"rtt_warn": "2s"}, "rtt_warn, rtt_critical: critical .1. is reached before warning .2."),
        ("connection", {"rtt_warn": "soon"}, "rtt_warn: 'soon' is not a duration"),
        ("connection", {"rtt_warn": "0"}, "0 is reached by every value"),
        ("meta", {"expect": 0}, "expect: must be at least 1"),
        ("meta", {"expect": 3, "lag_critical": -1}, "lag_critical: -1 is reached by every value"),
        ("jetstream", {"mem_warn": 95}, "mem_warn, mem_critical"),
        ("stream", {"stream": "S", "msgs_warn": 1, "msgs_critical": 2}, "critical .2. is reached before warning .1."),
        ("stream", {"stream": "S", "min_sources": 3, "max_sources": 2}, "the minimum 3 exceeds the maximum 2"),
        ("stream", {"stream": "S", "lag_critical": 0}, "lag_critical: 0 is reached"),
        ("stream", {"stream": "S", "peer_expect": 0}, "peer_expect: must be at least 1"),
        ("consumer", {"waiting_critical": 0}, "waiting_critical: 0 is reached"),
        ("last_message", {"content": "("}, "content: "),
        ("server", {"mem_warn": "much"}, "mem_warn: 'much' is not a size"),
        ("server", {"mem_warn": "2GB", "mem_critical": "1GB"}, "mem_warn, mem_critical"),
        ("server", {"uptime_warn": "1m", "uptime_critical": "1h"}, "uptime_warn, uptime_critical"),
        ("server", {"tls_cert_warn": "7d", "tls_cert_critical": "30d"}, "tls_cert_warn, tls_cert_critical"),
        ("request", {"match_payload": "["}, "match_payload: "),
        ("credential", {"validity_warn": "1d", "validity_critical": "2d"}, "validity_warn, validity_critical"),
    ],
)
def test_inconsistent_thresholds_are_refused(check: str, own: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        options(check, **own)


def test_every_threshold_of_the_module_is_known_to_its_judge() -> None:
    for check, spec in SPECS.items():
        named = {f"{stem}_{end}" for stem in check_result.PAIRS.get(check, {}) for end in ("warn", "critical")}
        named |= set(check_result.SINGLES.get(check, {}))
        assert {name for name in spec if name.endswith(("_warn", "_critical"))} == named


# --- Results ----------------------------------------------------------------------------------------------------------


def test_the_line_of_a_nagios_plugin() -> None:
    result = Result("stream", "ORDERS")
    for status in STATUSES:
        result.add(status, f"{status.lower()}\n a|b")
    result.measure("age", 1.23456, "s", 1, 2)
    result.measure("cpu", 4.6, "%", None, 90)
    result.measure("mem", 10, "B", 0)
    assert result.nagios == (
        "CRITICAL ORDERS Crit:critical a¦b Unknown:unknown a¦b Warn:warning a¦b OK:ok a¦b"
        " | age=1.2346s;1.0000;2.0000 cpu=5%;;90 mem=10B;0"
    )
    assert result.as_dict()["reasons"]["unknown"] == ["unknown a|b"]
    assert Result("meta", "X", [(OK, "fine")]).nagios == "OK X OK:fine"


# --- Connection, request ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "status"),
    [
        ((0.1, 0.1, 0.1), OK),
        ((0.5, 0, 0), WARNING),
        ((1, 0, 0), CRITICAL),
        ((0, 1, 0), CRITICAL),
        ((0, 0, 1), CRITICAL),
    ],
)
def test_connection(times: tuple[float, float, float], status: str) -> None:
    result = checks.check_connection(options("connection"), *times)
    assert result.status == status
    assert figures(result) == dict(zip(("connect_time", "rtt", "request_time"), times))


@pytest.mark.parametrize(
    ("own", "status"),
    [
        ({}, OK),
        ({"match_payload": "^he"}, OK),
        ({"match_payload": "lo"}, OK),
        ({"match_payload": "^lo"}, CRITICAL),
        ({"match_headers": {"Status": "fine"}}, OK),
        ({"match_headers": {"Status": "bad"}}, CRITICAL),
        ({"match_headers": {"Other": "fine"}}, CRITICAL),
        ({"response_warn": "0.2s"}, OK),
        ({"response_warn": "100ms"}, WARNING),
        ({"response_warn": "1ms", "response_critical": "100ms"}, CRITICAL),
    ],
)
def test_request(own: dict[str, Any], status: str) -> None:
    result = checks.check_request(options("request", subject="a.b", **own), b"hello", {"Status": "fine"}, 0.2)
    assert (result.status, result.name) == (status, "a.b")


# --- The meta group ---------------------------------------------------------------------------------------------------


def meta(
    peers: list[Peer], views: Mapping[str, str] | None = None, leaders: tuple[str, ...] = ("n1",), size: int = 3
) -> Cluster:
    names = ("n1", *(item.name for item in peers))
    group = RaftGroup(META, "meta group", size, leaders, tuple(peers) if leaders else (), names, names)
    known = dict.fromkeys(names, leaders[0] if leaders else "")
    servers = tuple(Server(name, name.upper(), jetstream=True) for name in names)
    return Cluster(servers, MetaGroup(group, views or known))


GOOD = [Peer("n2", current=True), Peer("n3", current=True)]


@pytest.mark.parametrize(
    ("cluster", "reason"),
    [
        (Cluster((Server("n1", "N1"),)), "no server that answered is in a JetStream meta group"),
        (meta(GOOD, leaders=()), "no meta leader"),
        (meta(GOOD, {"n1": "n1", "n2": "n1", "n3": ""}), "no meta leader on n3"),
        (meta(GOOD, {"n1": "n1", "n2": "n2", "n3": "n1"}), "different meta leaders"),
        (meta(GOOD[:1], size=2), "2 peers of expected 3"),
        (meta(GOOD, size=4), "has 4 members"),
        (meta([GOOD[0], Peer("n3", current=True, offline=True)]), "n3"),
        (meta([GOOD[0], Peer("n3", current=False)]), "n3"),
        (meta([GOOD[0], Peer("n3", current=True, active=5.1)]), "n3"),
        (meta([GOOD[0], Peer("n3", current=True, lag=201)]), "n3"),
    ],
)
def test_a_bad_meta_group(cluster: Cluster, reason: str) -> None:
    result = checks.check_meta(options("meta", expect=3), cluster)
    assert result.status == CRITICAL
    assert any(re.search(reason, text) for text in result.texts(CRITICAL)), result.reasons


def test_a_good_meta_group() -> None:
    behind = Peer("n3", current=False, lag=3, active=0.2)  # as happens under load
    result = checks.check_meta(options("meta", expect=3), meta([GOOD[0], behind]))
    assert result.nagios == (
        "OK JetStream Meta Cluster OK:3 peers led by n1"
        " | peers=3;3;3 peer_offline=0 peer_not_current=1 peer_inactive=0 peer_lagged=0"
    )


def test_a_busy_meta_leader_is_a_warning() -> None:
    cluster = meta(GOOD)
    assert cluster.meta
    busy = Cluster(cluster.servers, MetaGroup(cluster.meta.group, cluster.meta.views, pending=1000))
    assert checks.check_meta(options("meta", expect=3), busy).status == WARNING


# --- An account -------------------------------------------------------------------------------------------------------


def account(used: int, limit: int, tier: str | None = None) -> dict[str, Any]:
    limits = {"max_memory": limit, "max_storage": limit, "max_streams": limit, "max_consumers": limit}
    usage = {"memory": used, "storage": 0, "streams": 0, "consumers": 0}
    if tier:
        return {**usage, "limits": {"max_memory": 0}, "tiers": {tier: {**usage, "limits": limits}}}
    return {**usage, "limits": limits}


@pytest.mark.parametrize(
    ("info", "own", "status"),
    [
        (account(50, 100), {}, OK),
        (account(75, 100), {}, OK),
        (account(76, 100), {}, WARNING),
        (account(905, 1000), {}, CRITICAL),
        (account(101, 100), {"mem_warn": None, "mem_critical": None}, CRITICAL),
        (account(100, 100), {"mem_warn": None, "mem_critical": None}, OK),
        (account(100, 100), {"mem_warn": None}, CRITICAL),
        (account(100, -1), {}, OK),
        (account(76, 100, "R3"), {}, WARNING),
        (account(50, 100, "R3"), {}, OK),
    ],
)
def test_an_accounts_usage(info: dict[str, Any], own: dict[str, Any], status: str) -> None:
    assert checks.check_jetstream(options("jetstream", replicas=False, **own), info, (), {}).status == status


def test_tiers_have_figures_of_their_own() -> None:
    result = checks.check_jetstream(options("jetstream", replicas=False), account(76, 100, "R3"), (), {})
    assert figures(result)["memory_pct_R3"] == 76
    assert "memory_pct" not in figures(result)
    assert result.texts(WARNING) == ["76.0% R3 memory"]


def stream(peers: list[dict[str, Any]], leader: str = "n1", **more: Any) -> dict[str, Any]:
    config = {"name": "ORDERS", "num_replicas": 3, **more.pop("config", {})}
    state = {"messages": 5, "num_subjects": 2, **more.pop("state", {})}
    return {"config": config, "state": state, "cluster": {"leader": leader, "replicas": peers}, **more}


TWO = [peer("n2"), peer("n3")]
MIRROR = {"mirror": {"name": "M"}}


@pytest.mark.parametrize(
    ("info", "counter", "reason"),
    [
        (stream(TWO, leader=""), "no_leader", "ORDERS (no leader)"),
        (stream(TWO[:1]), "missing_replicas", "ORDERS (2 of 3 replicas)"),
        (stream([TWO[0], peer("n3", offline=True)]), "fail", "ORDERS (n3 not in step)"),
        (stream([TWO[0], peer("n3", active=6_000_000_000)]), "not_seen", "ORDERS (n3 not in step)"),
        (stream([TWO[0], peer("n3", lag=300)]), "lagged", "ORDERS (n3 not in step)"),
        (stream([TWO[0], peer("n3", current=False)]), "fail", "ORDERS (n3 not in step)"),
    ],
)
def test_an_accounts_streams(info: dict[str, Any], counter: str, reason: str) -> None:
    single = {"config": {"name": "ONE", "num_replicas": 1}}
    result = checks.check_jetstream(options("jetstream"), account(0, 100), [info, single], {})
    found = figures(result)
    assert (found.pop("replicas_ok"), found.pop(f"replicas_{counter}")) == (1, 1)
    assert not any(count for name, count in found.items() if name.startswith("replicas_"))
    assert result.texts(CRITICAL) == [f"1 unhealthy streams: {reason}"]


def test_a_stream_that_no_server_reported_is_not_overlooked() -> None:
    stub = stream([], leader="", config={"name": "LOST", "num_replicas": 1})  # as if all its servers were unavailable
    for told in ([stream(TWO)], [stream(TWO), stub]):
        result = checks.check_jetstream(
            options("jetstream"), account(0, 100), told, {"LOST": "no leader reported its state"}
        )
        assert result.texts(CRITICAL) == ["1 unhealthy streams: LOST (no leader reported its state)"]
        assert (figures(result)["replicas_no_leader"], figures(result)["replicas_ok"]) == (1, 1)


# --- Streams ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("info", "own", "status"),
    [
        (stream(TWO), {}, OK),
        (stream(TWO), {"peer_expect": 3}, OK),
        (stream(TWO), {"peer_expect": 5}, CRITICAL),
        (stream(TWO, leader=""), {}, CRITICAL),
        (stream([], leader="", config={"num_replicas": 1}), {}, CRITICAL),
        (stream([], config={"num_replicas": 1}), {"peer_expect": 1}, OK),
        ({"config": {"num_replicas": 1}}, {"peer_expect": 1}, OK),
        ({"config": {"num_replicas": 1}}, {"peer_expect": 3}, CRITICAL),
        (stream([TWO[0], peer("n3", offline=True)]), {}, CRITICAL),
        (stream([TWO[0], peer("n3", lag=201)]), {}, CRITICAL),
        (stream([TWO[0], peer("n3", lag=201)]), {"peer_lag_critical": 300}, OK),
        (stream([TWO[0], peer("n3", active=6_000_000_000)]), {}, CRITICAL),
        (stream([TWO[0], peer("n3", active=6_000_000_000)]), {"peer_seen_critical": "10s"}, OK),
        (stream(TWO), {"msgs_warn": 4}, OK),
        (stream(TWO), {"msgs_warn": 5}, WARNING),
        (stream(TWO), {"msgs_critical": 5}, CRITICAL),
        (stream(TWO, state={"messages": 0}), {"msgs_critical": 0}, CRITICAL),
        (stream(TWO), {"subjects_warn": 2}, WARNING),
        (stream(TWO), {"subjects_critical": 2}, CRITICAL),
        (stream(TWO), {"subjects_warn": 3, "subjects_critical": 4}, OK),
        (stream(TWO), {"subjects_warn": 4, "subjects_critical": 2}, CRITICAL),
        (stream(TWO), {"subjects_warn": 2, "subjects_critical": 1}, WARNING),
        (stream(TWO), {"min_sources": 1}, CRITICAL),
        (stream(TWO, sources=[{"name": "A"}, {"name": "B"}]), {"max_sources": 1}, CRITICAL),
        (stream(TWO, sources=[{"name": "A"}, {"name": "B"}]), {"min_sources": 2, "max_sources": 2}, OK),
        (stream(TWO, sources=[{"name": "A", "lag": 9}]), {"lag_critical": 10}, OK),
        (stream(TWO, sources=[{"name": "A", "lag": 10}]), {"lag_critical": 10}, CRITICAL),
        (stream(TWO, sources=[{"name": "A", "active": 2_000_000_000}]), {"seen_critical": "2s"}, CRITICAL),
        (stream(TWO, sources=[{"name": "A", "active": -1}]), {"seen_critical": "1h"}, CRITICAL),
        (stream(TWO, sources=[{"name": "A", "error": {"description": "no"}}]), {}, CRITICAL),
        (stream(TWO), {"lag_critical": 10}, CRITICAL),
        (stream(TWO, config=MIRROR, mirror={"name": "M", "lag": 9}), {"lag_critical": 10}, OK),
        (stream(TWO, config=MIRROR, mirror={"name": "M", "lag": 10}), {"lag_critical": 10}, CRITICAL),
        (stream(TWO, config=MIRROR, mirror={"name": "M", "active": 3_000_000_000}), {"seen_critical": "3s"}, CRITICAL),
        (stream(TWO, config=MIRROR, mirror={"name": "M", "active": -1}), {"seen_critical": "3s"}, CRITICAL),
        (stream(TWO, config=MIRROR, mirror={"name": "M", "error": {"description": "no"}}), {}, CRITICAL),
        (stream(TWO, config=MIRROR), {}, UNKNOWN),
        (stream(TWO, config=MIRROR), {"lag_critical": 1}, CRITICAL),
    ],
)
def test_stream(info: dict[str, Any], own: dict[str, Any], status: str) -> None:
    result = asset_checks.check_stream(options("stream", stream="ORDERS", **own), info)
    assert result.status == status, result.reasons


def with_metadata(**metadata: str) -> dict[str, Any]:
    return stream(
        TWO, config={"metadata": {f"io.nats.monitor.{key.replace('_', '-')}": text for key, text in metadata.items()}}
    )


@pytest.mark.parametrize(
    ("metadata", "own", "status"),
    [
        ({"msgs_critical": "10"}, {}, CRITICAL),
        ({"msgs_critical": "10"}, {"metadata": False}, OK),
        ({"msgs_critical": "1"}, {"msgs_critical": 10}, OK),
        ({"msgs_critical": "0"}, {"msgs_critical": 10}, OK),
        ({"msgs_warn": "10"}, {}, WARNING),
        ({"subjects_critical": "1"}, {}, CRITICAL),
        ({"subjects_warn": "1"}, {}, WARNING),
        ({"peer_expect": "5"}, {}, CRITICAL),
        ({"peer_expect": "-1"}, {"peer_expect": 5}, OK),
        ({"peer_lag_critical": "1", "peer_seen_critical": "100ms"}, {}, CRITICAL),
        ({"lag_critical": "1"}, {}, CRITICAL),
        ({"seen_critical": "1m"}, {}, CRITICAL),
        ({"min_sources": "1"}, {}, CRITICAL),
        ({"max_sources": "1"}, {}, OK),
        ({"enabled": "false"}, {}, OK),
        ({"enabled": "maybe"}, {}, UNKNOWN),
        ({"msgs_critical": "-1"}, {}, UNKNOWN),
        ({"msgs_critical": "many"}, {}, UNKNOWN),
        ({"peer_seen_critical": "5"}, {}, UNKNOWN),
        ({"peer_seen_critical": "-5s"}, {}, UNKNOWN),
        ({"msgs_warn": "1", "msgs_critical": "9"}, {}, UNKNOWN),
        ({"msgs_critical": "9"}, {"msgs_warn": 6}, UNKNOWN),
        ({"lag_crit": "9"}, {}, WARNING),
    ],
)
def test_a_streams_own_thresholds(metadata: dict[str, str], own: dict[str, Any], status: str) -> None:
    result = asset_checks.check_stream(options("stream", stream="ORDERS", **own), with_metadata(**metadata))
    assert result.status == status, result.reasons


def test_an_unreadable_value_does_not_switch_its_check_off() -> None:
    result = asset_checks.check_stream(
        options("stream", stream="ORDERS", msgs_critical=10), with_metadata(msgs_critical="many")
    )
    assert result.texts(CRITICAL) == ["5 messages"]
    assert result.texts(UNKNOWN) == ["metadata io.nats.monitor.msgs-critical: 'many' is not a number of 0 or more"]


# --- Consumers --------------------------------------------------------------------------------------------------------

WORKED = {"consumer_seq": 9, "last_active": ago(60)}


def consumer(**more: Any) -> dict[str, Any]:
    return {
        "config": {"durable_name": "worker", **more.pop("config", {})},
        "cluster": {"leader": more.pop("leader", "n1"), "replicas": more.pop("peers", TWO)},
        "num_ack_pending": 3,
        "num_waiting": 4,
        "num_pending": 5,
        "num_redelivered": 2,
        "delivered": WORKED,
        "ack_floor": WORKED,
        **more,
    }


PIN = {"config": {"priority_policy": "pinned_client", "priority_groups": ["a", "b"]}}


@pytest.mark.parametrize(
    ("info", "own", "status"),
    [
        (consumer(), {}, OK),
        (consumer(leader=""), {}, CRITICAL),
        (consumer(peers=TWO[:1]), {}, CRITICAL),
        (consumer(peers=[TWO[0], peer("n3", offline=True)]), {}, CRITICAL),
        (consumer(peers=[TWO[0], peer("n3", lag=201)]), {}, CRITICAL),
        (consumer(peers=[TWO[0], peer("n3", active=6_000_000_000)]), {}, CRITICAL),
        (consumer(), {"outstanding_ack_critical": 4, "waiting_critical": 5}, OK),
        (consumer(), {"unprocessed_critical": 6, "redelivery_critical": 3}, OK),
        (consumer(), {"outstanding_ack_critical": 3}, CRITICAL),
        (consumer(), {"waiting_critical": 4}, CRITICAL),
        (consumer(), {"unprocessed_critical": 5}, CRITICAL),
        (consumer(), {"redelivery_critical": 2}, CRITICAL),
        (consumer(), {"last_delivery_critical": "61s", "last_ack_critical": "61s"}, OK),
        (consumer(), {"last_delivery_critical": "1m"}, CRITICAL),
        (consumer(), {"last_ack_critical": "1m"}, CRITICAL),
        (consumer(ts=ago(30)), {"last_ack_critical": "31s"}, OK),
        (consumer(delivered={"consumer_seq": 0}), {"last_delivery_critical": "1h"}, CRITICAL),
        (consumer(ack_floor={"consumer_seq": 0}), {"last_ack_critical": "1h"}, CRITICAL),
        (consumer(delivered={"consumer_seq": 7}), {"last_delivery_critical": "1h"}, UNKNOWN),
        (consumer(ack_floor={"consumer_seq": 7}), {"last_ack_critical": "1h"}, UNKNOWN),
        (consumer(), {"pinned": True}, CRITICAL),
        (
            consumer(**PIN, priority_groups=[{"group": "a", "pinned_client_id": "x"}, {"group": "b"}]),
            {"pinned": True},
            CRITICAL,
        ),
        (consumer(**PIN, priority_groups=[{"group": "a"}, {"group": "b"}]), {}, OK),
        (consumer(**PIN, priority_groups=[{"pinned_client_id": "x"}, {"pinned_client_id": "y"}]), {"pinned": True}, OK),
        (consumer(config={"metadata": {"io.nats.monitor.unprocessed-critical": "5"}}), {}, CRITICAL),
        (consumer(config={"metadata": {"io.nats.monitor.unprocessed-critical": "5"}}), {"metadata": False}, OK),
        (consumer(config={"metadata": {"io.nats.monitor.outstanding-ack-critical": "1"}}), {}, CRITICAL),
        (consumer(config={"metadata": {"io.nats.monitor.waiting-critical": "-1"}}), {"waiting_critical": 1}, OK),
        (consumer(config={"metadata": {"io.nats.monitor.redelivery-critical": "1"}}), {}, CRITICAL),
        (consumer(config={"metadata": {"io.nats.monitor.last-delivery-critical": "1s"}}), {}, CRITICAL),
        (consumer(config={"metadata": {"io.nats.monitor.last-ack-critical": "1d"}}), {}, OK),
        (consumer(config={"metadata": {"io.nats.monitor.last-ack-critical": "tomorrow"}}), {}, UNKNOWN),
        (consumer(config={"metadata": {"io.nats.monitor.pinned": "true"}}), {}, CRITICAL),
        (consumer(config={"metadata": {"io.nats.monitor.pinned": "yes"}}), {}, UNKNOWN),
        (consumer(config={"metadata": {"io.nats.monitor.waiting-critical": "1.5"}}), {}, UNKNOWN),
    ],
)
def test_consumer(info: dict[str, Any], own: dict[str, Any], status: str) -> None:
    result = asset_checks.check_consumer(
        options("consumer", stream="S", consumer="C", **own), info, {"num_replicas": 3}, NOW
    )
    assert (result.status, result.name) == (status, "S_C"), result.reasons


# --- Messages, buckets ------------------------------------------------------------------------------------------------


def message(body: bytes = b"done", age: float = 60, headers: str = "") -> dict[str, Any]:
    data = base64.b64encode(body).decode()
    return {"subject": "a", "data": data, "time": ago(age), "hdrs": base64.b64encode(headers.encode()).decode()}


@pytest.mark.parametrize(
    ("stored", "own", "status"),
    [
        (None, {}, CRITICAL),
        (message(), {}, OK),
        (message(b""), {}, OK),
        (message(), {"age_warn": "1m"}, OK),
        (message(), {"age_warn": "59s"}, WARNING),
        (message(), {"age_warn": "1s", "age_critical": "59s"}, CRITICAL),
        (message(), {"content": "^do"}, OK),
        (message(), {"content": "^one"}, CRITICAL),
        (message(b"\xff\x00", 1), {"content": "x"}, CRITICAL),
        (
            message(str(int(NOW.timestamp()) - 10).encode() + b"\n", 900),
            {"body_timestamp": True, "age_critical": "11s"},
            OK,
        ),
        (message(str(int(NOW.timestamp()) - 10).encode(), 0), {"body_timestamp": True, "age_critical": "9s"}, CRITICAL),
        (message(b"1.5"), {"body_timestamp": True}, CRITICAL),
    ],
)
def test_message(stored: dict[str, Any] | None, own: dict[str, Any], status: str) -> None:
    assert asset_checks.check_message(options("last_message", stream="S", **own), stored, NOW).status == status


@pytest.mark.parametrize(
    ("own", "stored", "status"),
    [
        ({}, None, OK),
        ({"values_warn": 5}, None, WARNING),
        ({"values_critical": 5}, None, CRITICAL),
        ({"values_warn": 6, "values_critical": 5}, None, CRITICAL),
        ({"values_warn": 5, "values_critical": 4}, None, WARNING),
        ({"values_warn": 4, "values_critical": 3}, None, OK),
        ({"values_warn": 1, "values_critical": 0}, None, OK),
        ({"key": "k"}, None, CRITICAL),
        ({"key": "k"}, message(), OK),
        ({"key": "k"}, message(headers="NATS/1.0\r\nKV-Operation: PUT\r\n\r\n"), OK),
        ({"key": "k"}, message(headers="NATS/1.0\r\nKV-Operation: DEL\r\n\r\n"), CRITICAL),
        ({"key": "k"}, message(headers="NATS/1.0\r\nKV-Operation: PURGE\r\n\r\n"), CRITICAL),
        ({"key": "k"}, message(headers="NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\n\r\n"), CRITICAL),
    ],
)
def test_kv(own: dict[str, Any], stored: dict[str, Any] | None, status: str) -> None:
    result = asset_checks.check_kv(options("kv", bucket="B", **own), stream(TWO, state={"bytes": 7}), stored)
    assert result.status == status
    assert figures(result) == {"values": 5, "bytes": 7, "replicas": 3}


# --- Servers, credentials ---------------------------------------------------------------------------------------------


def varz(**more: Any) -> dict[str, Any]:
    figures = {"cpu": 50.0, "mem": 1000, "connections": 5, "subscriptions": 9}
    return {"version": "2.15.1", "now": ago(0), "start": ago(3600), **figures, **more}


SOON = (NOW + timedelta(days=10)).isoformat()


@pytest.mark.parametrize(
    ("data", "own", "status"),
    [
        (varz(), {}, OK),
        (varz(), {"cpu_warn": 50}, WARNING),
        (varz(), {"cpu_critical": 50}, CRITICAL),
        (varz(), {"cpu_warn": 51, "cpu_critical": 60}, OK),
        (varz(), {"mem_warn": "1K"}, WARNING),
        (varz(), {"mem_critical": "1K"}, CRITICAL),
        (varz(), {"mem_critical": "1KB"}, OK),
        (varz(), {"conn_warn": 5}, WARNING),
        (varz(), {"conn_critical": 5}, CRITICAL),
        (varz(), {"conn_warn": 9, "conn_critical": 5}, CRITICAL),
        (varz(), {"conn_warn": 5, "conn_critical": 4}, WARNING),
        (varz(), {"subs_warn": 10, "subs_critical": 9}, CRITICAL),
        (varz(), {"subs_critical": 10}, OK),
        (varz(), {"uptime_warn": "1h"}, WARNING),
        (varz(), {"uptime_critical": "61m"}, CRITICAL),
        (varz(), {"uptime_warn": "59m", "uptime_critical": "5m"}, OK),
        (varz(), {"auth_required": True}, CRITICAL),
        (varz(auth_required=True), {"auth_required": True}, OK),
        (varz(), {"tls_required": True}, CRITICAL),
        (varz(tls_required=True), {"tls_required": True}, OK),
        (varz(jetstream={}), {"js_required": True}, CRITICAL),
        (varz(jetstream={"config": {"max_memory": 1}}), {"js_required": True}, OK),
        (varz(), {"tls_cert_warn": "1d"}, CRITICAL),
        (varz(version="2.10.27"), {"tls_cert_warn": "1d"}, UNKNOWN),
        (varz(tls_cert_not_after=SOON), {"tls_cert_warn": "9d"}, OK),
        (varz(tls_cert_not_after=SOON), {"tls_cert_warn": "10d"}, WARNING),
        (varz(leaf={"tls_cert_not_after": SOON}), {"tls_cert_critical": "11d"}, CRITICAL),
        (varz(cluster={"tls_cert_not_after": ago(1)}), {"tls_cert_warn": "1d"}, CRITICAL),
    ],
)
def test_server(data: dict[str, Any], own: dict[str, Any], status: str) -> None:
    result = checks.check_server(options("server", server_name="n1", **own), data)
    assert result.status == status, result.reasons
    assert figures(result) == {"uptime": 3600, "cpu": 50, "mem": 1000, "connections": 5, "subscriptions": 9}


def creds(claims: Any) -> str:
    parts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({"typ": "JWT"}, claims)
    ]
    jwt = ".".join([*parts, "c2ln"])
    return (
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        "-----BEGIN USER NKEY SEED-----\nSUSECRET\n------END USER NKEY SEED------\n"
    )


@pytest.mark.parametrize(
    ("claims", "own", "status"),
    [
        ({"exp": 86400}, {}, OK),
        ({"exp": 86400}, {"validity_warn": "23h", "validity_critical": "1h"}, OK),
        ({"exp": 86400}, {"validity_warn": "1d"}, WARNING),
        ({"exp": 86400}, {"validity_warn": "2d", "validity_critical": "1d"}, CRITICAL),
        ({"exp": 0.5}, {}, OK),
        ({"exp": -1}, {}, CRITICAL),
        ({"exp": 86400, "nbf": 60}, {}, CRITICAL),
        ({"exp": 86400, "nbf": -60}, {}, OK),
        ({}, {}, CRITICAL),
        ({}, {"require_expiry": False, "validity_critical": "1d"}, OK),
    ],
)
def test_credential(claims: dict[str, float], own: dict[str, Any], status: str) -> None:
    moments = {name: NOW.timestamp() + offset for name, offset in claims.items()}
    read = checks.credential_claims(creds(moments))
    assert checks.check_credential(options("credential", credential="x.creds", **own), read, NOW).status == status


@pytest.mark.parametrize(
    "text", ["", "SUSECRET", "SUA.SECRET.B", creds("text"), creds({"exp": "soon"}), creds({}).replace(".", "")]
)
def test_an_unreadable_credential_is_not_quoted(text: str) -> None:
    with pytest.raises(ValueError, match="JWT") as refused:
        checks.credential_claims(text)
    assert "SECRET" not in str(refused.value)


def test_a_bare_jwt_is_a_credential() -> None:
    assert checks.credential_claims(creds({"exp": 5}).splitlines()[1] + "\n") == {"exp": 5}


# --- JWTs -------------------------------------------------------------------------------------------------------------

USER = Expiry("user", "ADLW5Q2H6YQO", "ORDERS", "app", "UDXB2VGZ", "shop", 1, 12, "warning", "ORDERS: closed")
ACCOUNT = replace(USER, kind="account", account_name="PAY", severity=ERROR, text="PAY: closed")
OPERATOR = replace(ACCOUNT, kind="operator", account="", account_name="", text="operator")
FAR = replace(USER, severity="", text="ORDERS: far away")


@pytest.mark.parametrize(
    ("rows", "unknown", "own", "status", "reasons"),
    [
        ([], [], {}, OK, ["no JWT expires"]),
        ([FAR], [], {}, OK, ["the first JWT expires: ORDERS: far away"]),
        ([FAR, USER], [], {}, WARNING, ["ORDERS: closed"]),
        ([USER, ACCOUNT], [], {}, CRITICAL, ["PAY: closed"]),
        ([USER, ACCOUNT], [], {"accounts": ["ORD*"]}, WARNING, ["ORDERS: closed"]),
        ([USER, OPERATOR], [], {"accounts": ["other"]}, CRITICAL, ["operator"]),
        ([FAR], ["n1 did not return CONNZ"], {}, UNKNOWN, ["n1 did not return CONNZ"]),
    ],
)
def test_jwts_that_expire(
    rows: list[Expiry], unknown: list[str], own: dict[str, Any], status: str, reasons: list[str]
) -> None:
    result = checks.check_expiry(options("expiry", **own), rows, unknown, operator_mode=True)
    assert (result.status, result.texts(status)) == (status, reasons)


def test_servers_without_an_operator_have_no_jwts() -> None:
    result = checks.check_expiry(options("expiry"), [], [], operator_mode=False)
    assert (result.status, result.reasons) == (OK, [(OK, "not in operator mode: there are no JWTs")])


# --- Backups ----------------------------------------------------------------------------------------------------------

SAVED = Catalogue().saved("APP/A", "2026-11-20T02:00:00Z").saved("APP/B", "2026-11-21T00:00:00Z")


def backup(catalogue: Catalogue, now: str = "2026-11-21T02:00:00+00:00", **options: Any) -> Result:
    given = {
        "directory": "/srv/backup",
        "streams": ["*"],
        "age_warn": "26h",
        "age_critical": "50h",
        "proof_warn": None,
        "proof_critical": None,
        **options,
    }
    return check_backup(check_result.prepare("backup", given), catalogue, datetime.fromisoformat(now))


def test_the_oldest_backup_counts() -> None:
    assert backup(SAVED).status == "OK"
    assert backup(SAVED).texts("OK") == ["APP/A was last saved 1d ago"]
    late = backup(SAVED, "2026-11-21T05:00:00+00:00")
    assert (late.status, late.texts("WARNING")) == ("WARNING", ["APP/A was last saved 1d3h ago"])
    assert backup(SAVED, "2026-11-21T05:00:00+00:00", streams=["APP/B"]).status == "OK"
    assert backup(SAVED, "2026-11-22T05:00:00+00:00").status == "CRITICAL"
    assert backup(SAVED, streams=["OTHER"]).status == "UNKNOWN"
    assert [(item.name, item.value) for item in backup(SAVED).perfdata] == [("streams", 2), ("age", 24 * 3600)]


def test_a_run_with_a_clock_that_was_ahead_does_not_count() -> None:
    row = {"account": "APP", "stream": "A", "path": "APP/A@20271120T020000", "taken": "2027-11-20T02:00:00Z"}
    ahead = replace(SAVED.saved("APP/A", "2027-11-20T02:00:00Z"), backups=(row,))
    found = backup(ahead)
    assert found.texts("CRITICAL") == ["never saved: APP/A"]
    assert found.texts("WARNING") == ["APP/A has a backup that is dated in the future: APP/A@20271120T020000"]


def test_unsaved_or_unproven_stream_is_critical() -> None:
    failed = SAVED.failed("APP/C", "it has no leader")
    assert backup(failed).texts("CRITICAL")[0] == "APP/C was not saved: it has no leader"
    assert "never saved: APP/C" in backup(failed).texts("CRITICAL")
    assert backup(failed, streams=["APP/A"]).status == "OK"
    unproven = SAVED.proven("APP/A", {"time": "2026-11-20T02:00:00Z", "ok": False, "reason": "3 messages are missing"})
    assert backup(unproven).texts("CRITICAL") == ["APP/A could not be restored in a drill: 3 messages are missing"]


def test_proofs_are_checked_on_request() -> None:
    proven = SAVED.proven("APP/A", {"time": "2026-11-20T02:00:00Z", "ok": True, "reason": ""})
    assert backup(proven).status == "OK"
    assert backup(proven, proof_warn="2d").texts("WARNING") == ["never proven: APP/B"]
    assert backup(proven, proof_critical="2d", streams=["APP/A"]).status == "OK"
    assert backup(proven, proof_critical="1h", streams=["APP/A"]).status == "CRITICAL"
    failed = {"time": "2026-11-21T01:59:00Z", "ok": False, "reason": "gone"}
    again = backup(proven.proven("APP/A", failed), proof_critical="1h", streams=["APP/A"])
    assert again.texts("CRITICAL") == [
        "APP/A could not be restored in a drill: gone",
        "APP/A was last proven 1d ago",
    ]
