# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes lakes from replies that were recorded from real clusters."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import Cluster, domains, peer_id
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.replies import build_cluster, parse_server
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.lake_store import LakeStore
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.snapshot import (
    SnapshotLine,
    SnapshotWriter,
    endpoint_rows,
    message_origin,
    servers_summary,
)

REPLIES = Path(__file__).with_name("replies")
#: The versions of nats-server whose replies were recorded.
RECORDED = sorted(path.stem for path in REPLIES.glob("*.json"))
HOUR = datetime(2026, 11, 21, 18, tzinfo=timezone.utc)
#: Fields that the recorded replies do not contain.
MORE: dict[str, Any] = {
    "varz": {"mem": 1000, "jetstream": {"config": {"sync_interval": 120000000000}}, "new": {"a": 1}},
    "routez": {"routes": [{"rid": 7, "remote_name": "n2", "rtt": "350µs", "in_msgs": 5}]},
    "connz": {"connections": [{"cid": cid, "account": "APP", "lang": "go", "in_msgs": cid + 1} for cid in (1, 1, 2)]},
    "accstatz": {"account_statz": [{"acc": "APP", "conns": 2, "sent": {"msgs": 9, "bytes": 90}}]},
    "raftz": {
        "$SYS": {
            "_meta_": {
                "id": "fjFyEjc1",
                "state": "LEADER",
                "leader": peer_id("n2"),
                "committed": 9,
                "applied": 8,
                "system_account": True,
                "traffic_account": "SYS",
                "wal": {
                    "messages": 2,
                    "bytes": 100,
                    "first_seq": 1,
                    "first_ts": "2026-11-21T17:47:04.180491785Z",
                    "last_seq": 2,
                    "last_ts": "2026-11-21T17:47:04.187760532Z",
                    "consumer_count": 0,
                },
                "peers": {peer_id("n1"): {"name": "", "known": True, "last_seen": "1.5s"}, "unheard0": {"name": "n8"}},
            }
        },
        "APP": {
            "S-R3F": {
                "id": "fjFyEjc1",
                "leader": "unheard0",
                "voted_for": "fjFyEjc1",
                "peers": {"unheard0": {"name": "n8"}},
            },
            "S-R1F": {
                "id": "fjFyEjc1",
                "leader": "",
                "voted_for": peer_id("n2"),
                "peers": {peer_id("n1"): {"name": "Server name unknown at this time"}},
            },
        },
    },
    "ipqueuesz": {"sendq": {"pending": 3}},
    "accountz": {
        "account_detail": {
            "account_name": "APP",
            "jetstream_enabled": True,
            "decoded_jwt": {
                "exp": 1795286460,
                "nats": {"limits": {"conn": 10, "disk_storage": -1, "tiered_limits": {"R3": {}}}},
            },
        }
    },
    "server_log": {
        "time": "2026-11-21T18:00:00.5Z",
        "text": "[7] 2026/11/21 19:00:00.123456 [WRN] Slow Consumer Detected",
    },
    "gatewayz": {"outbound_gateways": {"C2": {"configured": True, "connection": {"cid": 3, "rtt": "1.5ms"}}}},
    "leafz": {"leafs": [{"id": 9, "name": "l1", "account": "APP", "rtt": "2s"}]},
    "hosts": {"config_digest": "sha256:1", "open_files": 65536, "plaintext_passwords": 0, "disk_free": 1 << 40},
    "drift": {"checked": "2026-11-21T02:00:00Z", "assets": 12, "drifting": 1, "reason": "stream S: change"},
    "backups": {"excluded": False, "saved": "2026-11-21T02:00:00.5Z", "problem": "", "drill_problem": ""},
    "jwts": {"kind": "user", "role": "app", "connections": 2, "expires": "2026-11-22T02:00:00Z", "urgency": "error"},
}


def raft_member(leader: str, others: Sequence[str], last: int) -> dict[str, Any]:
    """Return a member's RAFTZ entry for its Raft group (monitor.go RaftzGroup of 2.15). `others`: the other members;
    `last`: its last entry."""
    moment = "2026-11-21T07:47:35.447895516Z"
    return {
        "id": peer_id(leader),
        "state": "FOLLOWER",
        "size": len(others) + 1,
        "quorum_needed": (len(others) + 1) // 2 + 1,
        "committed": last,
        "applied": last,
        "leader": peer_id(leader),
        "leader_since": moment,
        "ever_had_leader": True,
        "term": last % 50,
        "voted_for": peer_id(leader),
        "pterm": last % 50,
        "pindex": last,
        "system_account": True,
        "traffic_account": "$SYS",
        "ipq_proposal_len": 0,
        "ipq_entry_len": 0,
        "ipq_resp_len": 0,
        "ipq_apply_len": 0,
        "wal": {
            "messages": 10,
            "bytes": last * 100 % 10**6,
            "first_seq": last - 10,
            "first_ts": moment,
            "last_seq": last,
            "last_ts": moment,
            "consumer_count": 0,
        },
        "peers": {
            peer_id(other): {
                "name": other,
                "known": True,
                "last_replicated_index": last,
                "last_seen": f"{last % 10**6 / 1e3}ms",
            }
            for other in others
        },
    }


def recorded(version: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((REPLIES / f"{version}.json").read_text())
    return content


def snapshot_lines(manifest: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the lines of a snapshot by table."""
    bronze = manifest.parents[3]
    return {
        name: [
            json.loads(line)
            for file in table["files"]
            for line in gzip.decompress((bronze / file["path"]).read_bytes()).splitlines()
        ]
        for name, table in json.loads(manifest.read_text())["tables"].items()
    }


def live_cluster(replies: Mapping[str, Any]) -> Cluster:
    """Return the cluster that the live modules build from the replies."""
    servers = [parse_server(item["server"], item["statsz"], 0.001) for item in replies["statsz"]]
    return build_cluster(servers, replies["jsz"], replies["healthz"])


def write_snapshot(
    lake: Path | LakeStore,
    replies: Mapping[str, Any],
    started: datetime = HOUR,
    fleet: str = "test",
    form: str = "json",
    name: str | None = None,
) -> dict[str, Any]:
    """Write the replies as nats_snapshot does, and return the manifest."""
    with SnapshotWriter(lake, fleet, started, name, form) as writer:
        servers = [parse_server(item["server"], item["statsz"], 0.001) for item in replies["statsz"]]
        domain_names = domains(servers)
        for server in servers:
            origin = replace(
                message_origin(server, domain_names[server.id]), received=started.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            )
            reported = {**server.as_dict(), "clock_offset": 0.25}
            del reported["js"], reported["health"]
            writer.add(origin, SnapshotLine("servers", {}, reported))
            for row in endpoint_rows("jsz", copy.deepcopy(replies["jsz"][server.id])):
                writer.add(origin, row)
            writer.add(origin, SnapshotLine("healthz", {}, replies["healthz"][server.id]))
            for endpoint, answer in replies.get("more", {}).items():
                for row in endpoint_rows(endpoint, copy.deepcopy(answer)):
                    writer.add(origin, row)
        asked = dict.fromkeys(("jsz", "healthz", *replies.get("more", ())), 0.0)
        summary = servers_summary(servers, (), writer.failures)
        _path, manifest = writer.publish(source="test", **summary, seconds=asked)
    return manifest
