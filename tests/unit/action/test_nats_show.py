# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The output for a thousand streams has fewer than 60 lines, and a file contains all streams."""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.utils.display import Display
from ansible_collections.natsops.jetstream.plugins.action.nats_show import ActionModule
from ansible_collections.natsops.jetstream.plugins.filter.nats_diagnosis import nats_diagnosis
from ansible_collections.natsops.jetstream.plugins.filter.nats_report import nats_report
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.catalogue import Catalogue
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.run_backup import backup_page
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.run_restore import restore_page
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.store import DirectoryStore
from ansible_collections.natsops.jetstream.plugins.module_utils.dr.drill import drill_lines
from ansible_collections.natsops.jetstream.plugins.module_utils.dr.record import Drill
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import JetStreamSummary
from ansible_collections.natsops.jetstream.plugins.module_utils.placement.leader_rebalance import (
    STREAMS as STREAM_LEADERS,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.placement.leader_rebalance import (
    leader_page,
    plan_leaders,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.placement.rebalance import (
    RebalanceOptions,
    plan_rebalance,
    rebalance_page,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.screen import blocks
from support.clusters import cluster, stream

SCREEN = 60
STREAMS = [f"S{number:04}" for number in range(1000)]


def show(**arguments: Any) -> dict[str, Any]:
    action = ActionModule.__new__(ActionModule)
    action._connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir="/nowhere"))
    action._task = SimpleNamespace(args=arguments, async_val=0, check_mode=True, diff=False)
    return action.run(task_vars={})


def printed(result: Mapping[str, Any]) -> list[str]:
    """Return the lines that the default callback prints for the result."""
    shown = {key: value for key, value in result.items() if not key.startswith("_")}
    return json.dumps(shown, indent=4).splitlines()


def shown(folder: Path, page: Mapping[str, Any]) -> list[str]:
    """Return the lines shown for a result about a thousand streams, after checking the size of the output and the
    file."""
    result = show(name="all/C1", directory=str(folder), lines=page["lines"], screen=page["screen"])
    assert len(printed(result)) < SCREEN, result["msg"]
    path = Path(result["file"])
    assert path == folder / "all_C1.txt" and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().splitlines() == page["lines"]
    # The last stream is of the same kind as the others, so only the file contains it.
    assert "S0999" in path.read_text() and not any("S0999" in line for line in result["msg"])
    assert result["msg"][-1] == f"All {len(page['lines']):,} lines: {path}"
    return list(result["msg"])


def row(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": f"APP/{name}",
        "label": f"APP/{name}",
        "changed": True,
        "skipped": False,
        "messages": 10,
        "bytes": 1024,
        "taken": "2026-11-23T02:00:00.1Z",
        "reason": "there is no backup",
        "problem": "",
        "compared": {},
        **changes,
    }


def test_backup(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "backup")
    rows = [row(name) for name in STREAMS[:-1]] + [row("S0998b", problem="no space\nleft", changed=False)]
    found = backup_page(
        store, [*rows, row(STREAMS[-1])], ["old"] * 1000, [f"LATER{name}" for name in STREAMS], [], None
    )
    lines = shown(tmp_path / "show", found.as_dict())
    assert "S0998b" in lines[5] and "no space" in lines[5], "the failed stream is in the first row"
    assert any("1,000 saved" in line and "10000" in line and "1000.0 KiB" in line for line in lines), lines
    assert "… and 991 more rows" in lines and "1000 old backups removed" in lines
    assert "not begun: LATERS0000, LATERS0001, LATERS0002, LATERS0003, LATERS0004 and 995 more" in lines


@pytest.mark.parametrize("planned", [True, False])
def test_restore(tmp_path: Path, planned: bool) -> None:
    equal = {
        **{key: [1, 1] for key in ("messages", "first_seq", "last_seq", "gaps")},
        "ack_floors": {},
        "digest": "same",
    }
    rows = [row(name, compared={} if planned else equal) for name in STREAMS]
    rows[500] = row(STREAMS[500], skipped=True, changed=False)
    if not planned:
        rows[700] = row(STREAMS[700], compared={**equal, "messages": [10, 9]})
    wanted = SimpleNamespace(store=DirectoryStore(tmp_path / "backup"))
    lines = shown(tmp_path / "show", restore_page(wanted, rows, planned).as_dict())  # type: ignore[arg-type]
    assert any("999 of 1,000" in line and "1 left unchanged" in line for line in lines), lines
    assert planned or "messages 9 instead of 10" in lines[5]


def info(leader: str | None = "n1") -> dict[str, Any]:
    servers = []
    for name in ("n1", "n2", "n3"):
        held = dict.fromkeys(("streams", "consumers", "messages", "bytes", "memory", "storage"), 1000)
        js = {
            **held,
            **dict.fromkeys(("api_total", "api_errors", "pending"), 1),
            "max_storage": 1 << 40,
            "max_memory": 1,
        }
        one = {
            "name": name,
            "cluster": "C1",
            "host": "h",
            "version": "2.15.1",
            "domain": "",
            "jetstream": True,
            "js": js,
        }
        numbers = ("connections", "subscriptions", "routes", "gateways", "inbound_gateways", "mem", "cpu", "cores")
        zeros = dict.fromkeys((*numbers, "slow_consumers", "uptime", "rtt", "clock_offset"), 0)
        servers.append({**one, **zeros, "health": {"status": "ok"}})
    peers = [
        {"name": name, "id": name, "leader": name == leader, "current": True, "online": True, "active": 0.1, "lag": 0}
        for name in ("n1", "n2", "n3")
    ]
    group = {
        "leader": leader,
        "quorum": 2,
        "leaders": [],
        "members": ["n1", "n2", "n3"],
        "replicas": peers,
        "api_level": 0,
    }
    config = {
        "account": "APP",
        "account_name": "APP",
        "storage": "file",
        "messages": 1,
        "bytes": 1,
        "num_deleted": 0,
        "lost_messages": 0,
    }
    consumer = {
        **group,
        "name": "C",
        "pull": True,
        "ack_policy": "explicit",
        "ack_wait": 30.0,
        **dict.fromkeys(("num_ack_pending", "num_redelivered", "num_pending", "ack_floor"), 0),
        "max_ack_pending": 1000,
        "num_waiting": 0,
        "paused": False,
    }
    streams = [
        {**group, **config, "name": name, "placement": {}, "cluster": "C1", "consumers": [consumer]} for name in STREAMS
    ]
    broken = [
        {
            "code": "stream_no_leader",
            "severity": "error",
            "subject": f"stream APP/{name}",
            "message": f"stream APP/{name} has no leader",
            "servers": [],
        }
        for name in STREAMS
    ]
    meta = {"leader": "n1", "size": 3, "quorum": 2, "members": ["n1", "n2", "n3"], "replicas": peers}
    return {"servers": servers, "streams": streams, "meta": meta, "problems": [] if leader else broken, "missing": []}


@pytest.mark.parametrize("leader", ["n1", None])
@pytest.mark.parametrize("reports", [["streams"], ["consumers"], ["backups"]])
def test_report_of_streams(tmp_path: Path, reports: list[str], leader: str | None) -> None:
    catalogue = json.loads(Catalogue().text())
    page = nats_report(info(leader), reports=reports, output="page", catalogue=catalogue)
    assert isinstance(page, dict)
    lines = shown(tmp_path / "show", page)
    assert any("… and 990 more rows" in line for line in lines), lines
    if leader is None and reports == ["streams"]:
        assert "… and 990 more rows, 990 of them with problems" in lines
        assert "WARNING: 1000 without a leader: they accept and deliver no messages." in lines


@pytest.mark.parametrize("leader", ["n1", None])
def test_report_and_diagnosis_output_is_independent_of_stream_count(tmp_path: Path, leader: str | None) -> None:
    healthz = [{"name": name, "healthz": {"status": "ok", "status_code": 200}} for name in ("n1", "n2", "n3")]
    data = nats_report(info(leader), {"servers": healthz}, ["servers", "jetstream", "health"], output="page")
    varz = [
        {
            "name": one["name"],
            "cluster": "C1",
            "version": "2.15.1",
            "varz": {"version": "2.15.1", "now": "2026-11-20T00:00:00Z"},
        }
        for one in healthz
    ]
    diagnosis = nats_report(nats_diagnosis(info(leader), {"servers": varz}), output="page")
    for page in (data, diagnosis):
        assert isinstance(page, dict)
        result = show(name="page", directory=str(tmp_path), **page)
        assert len(printed(result)) < SCREEN, result["msg"]


def test_rebalance(tmp_path: Path) -> None:
    room = JetStreamSummary(max_storage=10**12, max_memory=10**9)
    streams = [replace(stream(name, ["n1", "n2", "n3"]), size=100, storage="file") for name in STREAMS]
    among = cluster([f"n{number}" for number in range(1, 31)], *streams)
    among = replace(
        among, servers=tuple(replace(one, summary=room, tags=(f"node:{one.name}",)) for one in among.servers)
    )
    plan = plan_rebalance(among, "C1", RebalanceOptions(tolerance=0.0, max_moves=1500))
    assert len(plan.moves) > 500
    page = rebalance_page(plan).as_dict()
    result = show(name="rebalance", directory=str(tmp_path), **page)
    assert len(printed(result)) < SCREEN, result["msg"]
    assert f"… and {len(plan.moves) - 10:,} more moves" in result["msg"] and "… and 20 more servers" in result["msg"]
    assert Path(result["file"]).read_text().count(" moves from ") == len(plan.moves)
    leaders = leader_page(plan_leaders(among, "C1", [STREAM_LEADERS], {}, {}, ["APP"]))
    assert len(leaders.screen) < 20 < len(leaders.lines)


def test_drill_of_a_failover(tmp_path: Path) -> None:
    done = Drill("2026-11-23T02:00:00Z", True, "", "end_mirror", 10, 10, 1, 1.0, 1.0)
    drills = dict.fromkeys(STREAMS, done)
    drills["S0500"] = replace(done, ok=False, reason="the copy did not fill")
    found = blocks([drill_lines(f"APP/{name}", "west", one, 10) for name, one in drills.items()], {500})
    lines = shown(tmp_path, found.as_dict())
    assert lines[:2] == [
        "1,000 streams, 1 of them with problems:",
        "APP/S0500: the drill failed: the copy did not fill",
    ]


def test_lines_without_a_structure_are_cut_only_if_they_are_many(tmp_path: Path) -> None:
    few = show(name="plan", lines=[f"batch {number}" for number in range(20)], directory=str(tmp_path), notes=["why"])
    assert (few["msg"][-2:], few["file"], list(tmp_path.iterdir())) == (["batch 19", "why"], None, [])
    many = show(name="plan", lines=[f"batch {number}" for number in range(300)], directory=str(tmp_path), notes=["why"])
    assert many["msg"][9:] == ["batch 9", "… and 290 more lines", "why", f"All 301 lines: {many['file']}"]
    assert Path(many["file"]).read_text().splitlines()[-2:] == ["batch 299", "why"]


def test_details_are_all_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Display(), "verbosity", 1)
    result = show(name="plan", lines=[f"batch {number}" for number in range(300)], directory=str(tmp_path))
    assert len(result["msg"]) == 301 and Path(result["file"]).exists()


def test_a_disk_that_is_full_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = show(name="plan", lines=["x"] * 300, directory=str(tmp_path / "file"))
    assert result["file"] is None and not result.get("failed")
    assert result["msg"][-1].startswith("The complete list could not be written: ")
    assert result["msg"][-1].endswith("With -v it is shown here.")


def test_a_stream_name_moves_no_cursor(tmp_path: Path) -> None:
    result = show(name="plan", lines=["X\x1b[31mRED"] * 30, directory=str(tmp_path))
    assert result["msg"][0] == "X\ufffd[31mRED" and "\x1b" not in Path(result["file"]).read_text()


def test_warnings_are_printed_and_errors_make_the_task_fail() -> None:
    warning = {"severity": "warning", "option": "port", "message": "is below 1024"}
    error = {"severity": "error", "option": "no_such_option", "message": "is not known"}
    result = show(name="preflight", lines=[], problems=[warning])
    assert result["msg"] == ["port: is below 1024"] and not result.get("failed")
    result = show(name="preflight", lines=[], problems=[error, warning, error])
    assert result["failed"]
    assert result["msg"].splitlines() == ["2 problem(s); nothing was changed.", *["no_such_option: is not known"] * 2]


def test_nothing_to_print_takes_no_space() -> None:
    assert not show(name="preflight", lines=[])["_ansible_verbose_always"]
