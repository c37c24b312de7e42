# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the table of the hosts, with times in the reader's time zone."""

from __future__ import annotations

import time
from typing import Any

from ansible_collections.natsops.jetstream.plugins.filter.nats_maintenance_status import nats_maintenance_status


def test_a_host_is_overdue_by_the_clock() -> None:
    now = time.time()
    marks = [{"server": "n3", "by": "ops", "since": now - 60, "until": now + step} for step in (-1, 60)]
    hosts: dict[str, dict[str, Any]] = {
        "h1": {"process": {"running": False}, "maintenance": marks[0]},
        "h2": {"process": {"running": False}, "maintenance": marks[1]},
        "h3": {"unreachable": True},
    }
    lock = {"owner": "ops@ctl process 7", "purpose": "restart", "since": 0, "expires": now}
    locks: dict[str, dict[str, Any]] = {
        "h1": {"acquired": False, "holder": lock},
        "h2": {"acquired": True, "broken": None},
        "h3": {},
    }
    facts = {host: {"nats_cluster__process": hosts[host], "nats_cluster__seen_lock": locks[host]} for host in hosts}
    facts["h4"] = {}
    servers = [{"host": "h1", "server_name": "n1"}]
    told = nats_maintenance_status([*hosts], facts, servers, lock_hosts=[*hosts, "h4"])
    assert [line.partition(", since")[0] for line in told["locks"]] == ["Locked by ops@ctl process 7 for restart on h1"]
    assert told["locks"][0] in told["lines"] and told["locks"][0] in told["screen"]
    assert [row["state"] for row in told["hosts"]] == ["overdue", "in_maintenance", "unknown"]
    assert [row["server_name"] for row in told["hosts"]] == ["n1", "h2", "h3"]
    assert [finding.partition(":")[0] for finding in told["findings"]] == ["h1", "h3"]
