# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every check of the diagnosis: silent on a sound cluster, and fires on what it is for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils._diagnosis import diagnose, diagnosis_text, next_step


def server(name: str, **changes: Any) -> dict[str, Any]:
    return {"name": name, "cluster": "C1", "version": "2.15.1", "uptime": 5.0, "rtt": 0.002, "clock_offset": 0.0, "cpu": 1.0,
            "mem": 1 << 20, "connections": 1, "slow_consumers": 0, "health": {"status": "ok"},
            "js": {"storage": 1, "max_storage": 100, "memory": 0, "max_memory": 100}, **changes}


def asked(name: str, others: list[str], varz: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    told = {"version": "2.15.1", "max_payload": 1, "now": "2026-11-20T00:00:00Z", "config_digest": "sha256:a",
            "jetstream": {"config": {"max_storage": 100}}}
    routes = [{"remote_name": other, "remote_id": other} for other in others] * 4
    return {"name": name, "id": name, "cluster": "C1", "version": "2.15.1", "varz": {**told, **(varz or {})},
            "routez": {"routes": routes}, "gatewayz": {}, "statsz": {}, **changes}


def host(name: str, **changes: Any) -> dict[str, Any]:
    return {"server_name": name, "unreachable": False, "running": True, "log_lines": [], "digest": "sha256:a",
            "disk_percent": 10, "disk_mount": "/nats", **changes}


def judge(
    servers: list[dict[str, Any]] | None = None,
    rows: list[dict[str, Any]] | None = None,
    hosts: list[dict[str, Any]] | None = None,
    **info: Any,
) -> dict[str, Any]:
    read = {"servers": servers or [server("n1"), server("n2")], "streams": [], "problems": [],
            "meta": {"leader": "n1", "size": 2, "quorum": 2, "members": ["n1", "n2"]}, **info}
    told = {"servers": rows or [asked("n1", ["n2"]), asked("n2", ["n1"])]}
    return diagnose(read, told, [host("n1"), host("n2")] if hosts is None else hosts)


def codes(data: dict[str, Any]) -> list[tuple[str, str]]:
    return [(finding["code"], finding["severity"]) for finding in data["findings"]]


def test_a_sound_cluster_has_no_finding_and_what_was_not_looked_at_is_named() -> None:
    data = judge(hosts=[])
    assert data["findings"] == []
    assert data["verdict"]["text"] == (
        "HEALTHY: nothing wrong was found. Not looked at: logs, configuration loaded, disks, certificates."
    )
    assert "8 of 8 for a full mesh" in diagnosis_text(json.loads(json.dumps(data)))


@pytest.mark.parametrize("wrong, expected", [
    ({"servers": [server("n1", rtt=0.7), server("n2")]}, [("rtt", "warning")]),
    ({"servers": [server("n1", clock_offset=0.3), server("n2", clock_offset=-0.3)]}, [("clocks_differ", "warning")]),
    ({"servers": [server("n1", clock_offset=0.3, rtt=0.4), server("n2", clock_offset=-0.3)]}, []),
    ({"servers": [server("n1", version="2.10.27"), server("n2")]}, [("versions_differ", "warning")]),
    ({"servers": [server("n1", slow_consumers=2), server("n2")]}, [("slow_consumers", "warning")]),
    ({"servers": [server("n1", js={"storage": 80, "max_storage": 100}), server("n2")]}, [("storage", "warning")]),
    ({"servers": [server("n1", js={"storage": 95, "max_storage": 100}), server("n2")]}, [("storage", "critical")]),
    ({"servers": [server("n1")]}, [("server_missing", "critical")]),
    ({"rows": [asked("n1", []), asked("n2", ["n1"])]}, [("routes_missing", "warning")]),
    ({"rows": [asked("n1", ["n2"], {"max_payload": 2}), asked("n2", ["n1"])]}, [("config_differs", "warning")]),
    ({"rows": [asked("n1", ["n2"], {"jetstream": {"config": {"max_storage": 2}}}), asked("n2", ["n1"])]},
     [("config_differs", "note")]),
    ({"rows": [asked("n1", ["n2"], {"jetstream": {}}), asked("n2", ["n1"])]}, []),
    ({"rows": [asked("n1", ["n2"], {"config_digest": "sha256:b"}), asked("n2", ["n1"])]}, [("config_not_loaded", "warning")]),
    ({"rows": [asked("n1", ["n2"], {"tls_cert_not_after": "2026-12-01T00:00:00Z"}), asked("n2", ["n1"])]},
     [("certificate", "warning")]),
    ({"rows": [asked("n1", ["n2"], {"cluster": {"tls_cert_not_after": "2026-11-19T00:00:00Z"}}), asked("n2", ["n1"])]},
     [("certificate", "critical")]),
    ({"hosts": [host("n1", log_lines=["[1] 2026/11/20 [ERR] x"])]}, [("logs", "warning")]),
    ({"hosts": [host("n1", log_lines=["[1] 2026/11/20 [WRN] x"])]}, [("logs", "note")]),
    ({"hosts": [host("n1", disk_percent=92)]}, [("disk", "critical")]),
    ({"problems": [{"code": "stream_no_quorum", "severity": "error", "subject": "stream APP/A", "message": "m"}]},
     [("stream_no_quorum", "critical")]),
    ({"problems": [{"code": "server_unhealthy", "severity": "error", "subject": "n1", "message": "m"}]},
     [("server_unhealthy", "warning")]),
    ({"problems": [{"code": "meta_no_leader", "severity": "error", "subject": "meta group", "message": "m"}]},
     [("meta_no_leader", "critical")]),
])  # fmt: skip
def test_each_fault_is_found(wrong: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    data = judge(**wrong)
    assert codes(data) == expected
    assert all(finding["next"] for finding in data["findings"])
    status = "critical" if "critical" in dict(map(reversed, expected)) else "ok"  # type: ignore[arg-type]
    assert (data["verdict"]["status"] == "critical") == (status == "critical")


def test_a_gateway_that_is_not_connected_is_critical() -> None:
    far = {"n3": asked("n3", [], cluster="C2", gatewayz={"name": "C2", "outbound_gateways": {"C1": {"connection": {"cid": 7}}}})}
    near = asked("n1", [], gatewayz={"name": "C1", "outbound_gateways": {}})
    data = judge([server("n1"), server("n3", cluster="C2")], [near, far["n3"]],
                 meta={"leader": "n1", "size": 2, "quorum": 2, "members": ["n1", "n3"]})
    assert [finding["message"] for finding in data["findings"]] == ["n1 has no gateway connection to C2"]


def test_a_dead_cluster_is_told_with_the_state_of_its_hosts() -> None:
    hosts = [host("n1", running=False), host("n2", unreachable=True, running=None, log_lines=None)]
    data = diagnose({"msg": "cannot connect to any server"}, {"msg": "the same"}, hosts)
    assert data["verdict"]["status"] == "critical"
    assert [finding["message"] for finding in data["findings"]] == [
        "the cluster cannot be asked: cannot connect to any server",
        "n1: its host is up, nats-server does not run there",
        "n2: its host cannot be reached either",
    ]
    assert data["next_steps"] == [next_step("unreachable")]
    assert "BROKEN: 3 critical" in diagnosis_text(data)


def test_the_page_shows_the_last_lines_of_a_log_and_the_next_steps_once() -> None:
    lines = [f"[1] 2026/11/20 [ERR] error {number}" for number in range(15)]
    data = judge(hosts=[host("n1", log_lines=lines), host("n2", log_lines=lines)])
    text = diagnosis_text(data)
    assert "error 14" in text
    assert "error 4\n" not in text
    assert len(data["next_steps"]) == 1
    assert "  1. Read them in full" in text
