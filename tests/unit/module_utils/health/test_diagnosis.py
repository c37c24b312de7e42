# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every check of the diagnosis reports nothing on a healthy cluster, and reports its fault."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.health.cause import with_inventory
from ansible_collections.natsops.jetstream.plugins.module_utils.health.diagnosis import diagnose, host_evidence
from ansible_collections.natsops.jetstream.plugins.module_utils.health.diagnosis_page import diagnosis_page
from ansible_collections.natsops.jetstream.plugins.module_utils.health.log_kinds import log_kinds


def server(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "cluster": "C1",
        "version": "2.15.1",
        "uptime": 5.0,
        "rtt": 0.002,
        "clock_offset": 0.0,
        "cpu": 1.0,
        "mem": 1 << 20,
        "connections": 1,
        "slow_consumers": 0,
        "health": {"status": "ok"},
        "js": {"storage": 1, "max_storage": 100, "memory": 0, "max_memory": 100},
        **changes,
    }


def asked(name: str, others: list[str], varz: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    told = {
        "version": "2.15.1",
        "max_payload": 1,
        "now": "2026-11-20T00:00:00Z",
        "config_digest": "sha256:a",
        "jetstream": {"config": {"max_storage": 100}},
    }
    routes = [{"remote_name": other, "remote_id": other} for other in others] * 4
    return {
        "name": name,
        "id": name,
        "cluster": "C1",
        "version": "2.15.1",
        "varz": {**told, **(varz or {})},
        "routez": {"routes": routes},
        "gatewayz": {},
        "statsz": {},
        **changes,
    }


def host(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "server_name": name,
        "unreachable": False,
        "running": True,
        "pid": 1,
        "log_lines": [],
        "digest": "sha256:a",
        "closed_ports": [],
        "disk_percent": 10,
        "disk_mount": "/nats",
        **changes,
    }


def closed(name: str) -> dict[str, Any]:
    return {"server_name": name, "listener": "cluster", "host": "10.0.0.2", "port": 6222, "error": "timed out"}


def judge(
    servers: list[dict[str, Any]] | None = None,
    rows: list[dict[str, Any]] | None = None,
    hosts: list[dict[str, Any]] | None = None,
    **info: Any,
) -> dict[str, Any]:
    read = {
        "servers": servers or [server("n1"), server("n2")],
        "streams": [],
        "problems": [],
        "meta": {"leader": "n1", "size": 2, "quorum": 2, "members": ["n1", "n2"]},
        **info,
    }
    told = {"servers": rows or [asked("n1", ["n2"]), asked("n2", ["n1"])]}
    return diagnose(read, told, [host("n1"), host("n2")] if hosts is None else hosts)


def codes(data: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the kinds of the causes and the codes of the findings, each with its severity."""
    causes = [(cause["kind"], cause["severity"]) for cause in data["causes"]]
    return causes + [(finding["code"], finding["severity"]) for finding in data["findings"]]


def test_a_sound_cluster_has_no_finding_and_skipped_checks_are_named() -> None:
    data = judge(hosts=[])
    assert data["findings"] == []
    assert data["verdict"]["text"] == (
        "HEALTHY: no problems found. Not checked: maintenance, ports, logs, configuration loaded, disks, certificates, JWTs."
    )
    assert "8 of 8 routes of a full mesh" in diagnosis_page(json.loads(json.dumps(data))).text


@pytest.mark.parametrize("number", [2, 60])
def test_screen_shows_when_the_first_certificate_expires(number: int) -> None:
    """The screen lists the checks of a large cluster without findings by name only."""
    names = [f"n{index}" for index in range(1, number + 1)]
    later = {"tls_cert_not_after": "2027-11-20T00:00:00Z", "cluster": {"tls_cert_not_after": "2027-12-20T00:00:00Z"}}
    rows = [asked("n1", names[1:], {"tls_cert_not_after": "2028-01-01T00:00:00Z"})]
    rows += [asked(name, [other for other in names if other != name], later) for name in names[1:]]
    data = judge(servers=[server(name) for name in names], rows=rows, hosts=[host(name) for name in names])
    shown = "\n".join(diagnosis_page(json.loads(json.dumps(data))).screen)
    assert "the first expires in 365 days (n2, 2027-11-20)" in shown


@pytest.mark.parametrize("wrong, expected", [
    ({"servers": [server("n1", rtt=0.7), server("n2")]}, [("rtt", "warning")]),
    ({"servers": [server("n1", clock_offset=0.3), server("n2", clock_offset=-0.3)]}, [("clocks_differ", "warning")]),
    ({"servers": [server("n1", clock_offset=0.3, rtt=0.4), server("n2", clock_offset=-0.3)]}, []),
    ({"servers": [server("n1", version="2.15.2"), server("n2")]}, [("versions_differ", "warning")]),
    ({"servers": [server("n1", version="2.14.1"), server("n2", version="2.14.1")]},
     [("version_warning", "note"), ("version_warning", "note")]),
    ({"servers": [server("n1", slow_consumers=2), server("n2")]}, [("slow_consumers", "warning")]),
    ({"servers": [server("n1", js={"storage": 80, "max_storage": 100}), server("n2")]}, [("storage", "warning")]),
    (
        {"servers": [server("n1", js={"storage": 0, "reserved_storage": 300, "max_storage": 256}), server("n2")]},
        [("storage", "warning")],
    ),
    ({"servers": [server("n1", js={"storage": 95, "max_storage": 100}), server("n2")]}, [("storage", "critical")]),
    ({"servers": [server("n1")]}, [("servers_down", "critical")]),
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
    ({"hosts": [host("n1", log_lines=["[1] 2026/11/20 10:00:00.1 [ERR] x"])]}, [("logs", "warning")]),
    ({"hosts": [host("n1", log_lines=["[1] 2026/11/20 10:00:00.1 [WRN] x"])]}, [("logs", "note")]),
    ({"hosts": [host("n1", disk_percent=92)]}, [("disk", "critical")]),
    ({"hosts": [host("n1", closed_ports=[closed("n2")])]}, [("port_closed", "warning")]),
    ({"hosts": [host("n1", closed_ports=[closed("n9")])]}, []),
    ({"problems": [{"code": "stream_no_quorum", "severity": "error", "subject": "stream APP/A", "message": "m"}]},
     [("catching_up", "critical")]),
    ({"problems": [{"code": "server_unhealthy", "severity": "error", "subject": "n1", "message": "m"}]},
     [("server_fault", "warning")]),
    ({"problems": [{"code": "meta_no_leader", "severity": "error", "subject": "meta group", "message": "m"}]},
     [("meta_group", "critical")]),
    ({"problems": [{"code": "consumer_ghost", "severity": "warning", "subject": "consumer APP/A/B", "message": "m"}]},
     [("asset_fault", "warning")]),
])  # fmt: skip
def test_each_fault_is_found(wrong: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    data = judge(**wrong)
    assert codes(data) == expected
    assert all(finding["next"] for finding in data["findings"])
    status = "critical" if "critical" in dict(map(reversed, expected)) else "ok"  # type: ignore[arg-type]
    assert (data["verdict"]["status"] == "critical") == (status == "critical")


def test_a_gateway_that_is_not_connected_is_critical() -> None:
    far = {
        "n3": asked(
            "n3", [], cluster="C2", gatewayz={"name": "C2", "outbound_gateways": {"C1": {"connection": {"cid": 7}}}}
        )
    }
    near = asked("n1", [], gatewayz={"name": "C1", "outbound_gateways": {}})
    data = judge(
        [server("n1"), server("n3", cluster="C2")],
        [near, far["n3"]],
        meta={"leader": "n1", "size": 2, "quorum": 2, "members": ["n1", "n3"]},
    )
    assert [finding["message"] for finding in data["findings"]] == ["n1 has no gateway connection to C2"]


def test_a_dead_cluster_is_reported_with_the_state_of_its_hosts() -> None:
    hosts = [host("n1", running=False), host("n2", unreachable=True, running=None, log_lines=None)]
    hosts.append(host("n3", running=False, configured=False))
    hosts.append(host("n4", running=None, error="no sudo password", log_lines=None))
    data = diagnose({"msg": "cannot connect to any server"}, {"msg": "the same"}, hosts)
    assert data["verdict"]["status"] == "critical"
    (cause,) = data["causes"]
    assert cause["title"] == "the cluster cannot be queried: cannot connect to any server"
    assert cause["commands"][0].startswith("ansible-playbook natsops.jetstream.deploy ")
    assert cause["evidence"] == [
        "n1: its host is up, but nats-server is not running there",
        "n2: its host is also unreachable",
        "n3: its host is up, but nats-server is not deployed there",
        "n4: its host could not be read: no sudo password",
    ]
    assert data["next_steps"] == cause["commands"]
    assert diagnosis_page(data).text.splitlines()[-1].startswith("BROKEN: 1 critical")


def test_a_dead_server_is_the_first_cause_with_its_age_and_the_state_of_its_host() -> None:
    lost = [
        {"code": "server_missing", "severity": "error", "subject": "n3", "message": "expected server n3 did not answer",
         "servers": ["n3"], "absent": []},
        *({"code": "stream_replica_behind", "severity": "error", "subject": f"stream APP/S{number}", "message": "m",
           "servers": ["n3"], "absent": ["n3"]} for number in range(5000)),
        {"code": "server_unexpected", "severity": "error", "subject": "n9", "message": "n9 answered", "servers": ["n9"]},
    ]  # fmt: skip
    members = {"leader": "n1", "size": 3, "quorum": 2, "members": ["n1", "n2", "n3"]}
    log = [
        "[7] 2026/11/20 09:00:00.1 [FTL] a fault of the start",
        "[7] 2026/11/20 10:00:01.1 [FTL] no space left on device",
    ]
    hosts = [
        host("n1"),
        host("n3", running=False, pid=None, log_lines=log),
    ]
    data = judge(hosts=hosts, problems=lost, meta={**members, "replicas": [{"name": "n3", "active": 725.0}]})
    down, other = data["causes"]
    assert (down["kind"], down["servers"], down["severity"]) == ("servers_down", ["n3"], "critical")
    assert other["kind"] == "membership"
    text = diagnosis_page(data).text
    lines = text.splitlines()
    assert lines[1] == (
        "  1. critical: n3 does not answer (its host is up, but nats-server is not running there): "
        "5000 streams miss a replica (for 12m5s)"
    )
    assert "       n3 logged last: [FTL] no space left on device (at 2026/11/20 10:00:01.1)" in lines
    assert "     $ ansible-playbook natsops.jetstream.replace -e nats_cluster_replace=n3" in text
    assert "scale_in" not in text  # two servers remain
    assert any(line.startswith("     $ systemctl status nats-server") for line in lines)
    assert lines[-1].startswith(
        "DEGRADED: 1 critical, 2 warnings. The meta group has a quorum, but loses it if one more server fails."
    )
    assert len(lines) < 60


def test_the_commands_for_servers_that_never_return_fit_the_remaining_members() -> None:
    def missing(*names: str, **meta: Any) -> dict[str, Any]:
        members = [f"n{number}" for number in range(1, 6)]
        problems = [
            {"code": "server_missing", "severity": "error", "subject": name, "message": "m", "servers": [name]}
            for name in names
        ]
        lost = {"code": "meta_no_quorum", "severity": "error", "subject": "meta group", "message": "no meta leader",
                "servers": [], "absent": list(names)}  # fmt: skip
        alive = [name for name in members if name not in names]
        return judge(
            [server(name) for name in alive],
            [asked(name, []) for name in alive],
            problems=problems if meta["leader"] else [*problems, lost],
            meta={"size": 5, "quorum": 3, "members": members, **meta},
        )

    data = missing("n5", leader="n1")
    assert "; 1 more server may fail" in data["verdict"]["text"]
    assert data["causes"][0]["commands"][-2:] == [
        "ansible-playbook natsops.jetstream.replace -e nats_cluster_replace=n5  # only for a machine that never returns",
        'ansible-playbook natsops.jetstream.scale_in -e \'{"nats_server_cluster_leaving": ["n5"]}\'  # without a replacement',
    ]
    data = missing("n3", "n4", "n5", leader=None)
    assert data["verdict"]["text"].startswith("BROKEN: ")
    assert data["causes"][0]["commands"][-1] == (
        'ansible-playbook natsops.jetstream.rescue -e \'{"nats_cluster_rescue_dead": ["n3", "n4", "n5"]}\' --check'
        "  # only if the majority never returns"
    )
    sources = ["my hosts.yml"]
    assert with_inventory("systemctl status nats-server", sources) == "systemctl status nats-server"
    assert with_inventory("ansible-playbook natsops.jetstream.deploy  # starts them", sources) == (
        "ansible-playbook natsops.jetstream.deploy -i 'my hosts.yml'  # starts them"
    )
    assert not any("scale_in" in command or "replace" in command for command in data["next_steps"])


def test_the_page_counts_repeated_lines_and_lists_each_next_step_once() -> None:
    lines = [f"[1] 2026/11/20 10:00:{number:02} [ERR] error {number}" for number in range(15)]
    lines.append("[1] 2026/11/20 10:01:00 [WRN] slow")
    data = judge(hosts=[host("n1", log_lines=lines), host("n2", log_lines=lines)])
    text = diagnosis_page(data).text
    assert "  [ERR] error 14 (15 times, last at 2026/11/20 10:00:14)\n  [WRN] slow (at 2026/11/20 10:01:00)" in text
    assert "error 4 " not in text
    assert len(data["next_steps"]) == 1
    assert "  - Read the complete log" in text


def test_the_newest_line_of_each_address_is_shown_although_journalctl_prints_it_first() -> None:
    refused = "[8] 2026/11/20 10:{} [ERR] Error trying to connect to route (attempt {}): dial tcp {}: connect: connection refused"
    lines = [
        refused.format("09:01.5", 9, "10.0.0.12:6222"),
        refused.format("07:00.1", 1, "10.0.0.12:6222"),
        refused.format("05:00.1", 7, "10.0.0.11:6222"),
        "[8] 2026/11/20 10:01:00.1 [WRN] slow",
    ]
    errors = [kind for kind in log_kinds(lines, 8) if kind["level"] == "ERR"]
    found = [(kind["count"], kind["text"].partition("tcp ")[2][:9], kind["last"][-7:]) for kind in errors]
    assert found == [(2, "10.0.0.12", "09:01.5"), (1, "10.0.0.11", "05:00.1")]


def test_failed_routes_of_a_first_start_are_left_out() -> None:
    refused = "[ERR] Error trying to connect to route (attempt 1): dial tcp 10.0.0.12:6222: connect: connection refused"
    waiting = "[WRN] Waiting for routing to be established..."
    start = [f"[8] 2026/11/20 10:00:00.5 {refused}", f"[8] 2026/11/20 10:00:09.12345 {waiting}"]
    assert log_kinds(start, 8) == []
    assert [kind["count"] for kind in log_kinds([*start, f"[8] 2026/11/20 10:02:00.5 {refused}"], 8)] == [2]
    assert [kind["level"] for kind in log_kinds([*start, "[8] 2026/11/20 10:00:10 [WRN] slow"], 8)] == ["WRN"]


def test_lines_from_before_the_last_start_do_not_count() -> None:
    lines = [
        "[7] 2026/11/20 09:00:00 [ERR] old",
        "no line of nats-server",
        "[8] 2026/11/20 10:00:00 [WRN] JetStream cluster, consumer 'A > S > C1' of 3 behind",
        "[8] 2026/11/20 10:00:01 [FTL] gone",
        "[8] 2026/11/20 10:00:02 [WRN] JetStream cluster, consumer 'A > S > C2' of 4 behind",
    ]
    kinds = log_kinds(lines, 8)
    assert [(kind["level"], kind["count"], kind["first"][-2:], kind["last"][-2:]) for kind in kinds] == [
        ("FTL", 1, "01", "01"),
        ("WRN", 2, "00", "02"),
    ]
    # For a server that is no longer running, use the log of its last process.
    assert log_kinds(lines) == log_kinds(lines, None) == kinds
    assert log_kinds(lines, 9) == []


@pytest.mark.parametrize(
    ("found", "state"),
    [
        ({"unreachable": True, "msg": "timed out"}, {"unreachable": True, "error": "timed out"}),
        ({"failed": True, "msg": "no permission"}, {"error": "no permission"}),
        (
            {"process": {"running": False, "pid": 0, "config_changed": 0.0}, "closed_ports": [], "maintenance": None},
            {"running": False, "pid": 0, "configured": False, "closed_ports": []},
        ),
        (
            {
                "process": {"running": True, "pid": 7, "config_changed": 1.5},
                "closed_ports": [],
                "maintenance": {"server": "n1"},
                "diagnosis": {"digest": "sha256:a", "log_lines": [], "disk_percent": 7, "disk_mount": "/nats"},
            },
            {
                "running": True,
                "pid": 7,
                "closed_ports": [],
                "maintenance": {"server": "n1"},
                "digest": "sha256:a",
                "log_lines": [],
                "disk_percent": 7,
                "disk_mount": "/nats",
            },
        ),
    ],
)
def test_unread_part_of_a_host_is_unknown(found: dict[str, Any], state: dict[str, Any]) -> None:
    unknown = {
        "server_name": "n1",
        "unreachable": False,
        "error": "",
        "running": None,
        "pid": None,
        "configured": True,
        "maintenance": None,
        "closed_ports": None,
        "digest": "",
        "log_lines": None,
        "disk_percent": None,
        "disk_mount": "",
    }
    assert host_evidence("n1", found) == {**unknown, **state}
