# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests snapshots on disk, with replies that were recorded from clusters of three servers, and archives of `nats audit
gather`."""

from __future__ import annotations

import copy
import gzip
import json
import os
import zipfile
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import nkeys
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.expiry import Logins
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.model import Server
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.replies import parse_server
from ansible_collections.natsops.jetstream.plugins.module_utils.redaction import without_secrets
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.capture import import_archive
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.schema import TABLES, effective
from ansible_collections.natsops.jetstream.plugins.module_utils.telemetry.snapshot import (
    LAKE,
    Origin,
    SnapshotLine,
    SnapshotWriter,
    endpoint_rows,
    expiry_rows,
    message_origin,
    meta_members,
    servers_summary,
)
from support.credentials import make_jwt, new_key

REPLIES = Path(__file__).parents[3] / "support" / "replies"
STARTED = datetime(2026, 11, 21, 18, 41, 0, 123456, timezone.utc)
ORIGIN = Origin("NA", "n1", "C1", "2.15.1", "2026-11-21T18:41:00.200000Z")


def replies(version: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((REPLIES / f"{version}.json").read_text())
    return content


def lines(lake: Path, manifest: dict[str, Any], table: str) -> list[dict[str, Any]]:
    found = []
    for file in manifest["tables"].get(table, {"files": []})["files"]:
        with gzip.open(lake / "bronze" / file["path"], "rt") as stream:
            read = [json.loads(line) for line in stream]
        assert len(read) == file["rows"]
        found += read
    return found


def everything(lake: Path) -> list[str]:
    return sorted(str(path.relative_to(lake)) for path in lake.rglob("*") if path.is_file())


@pytest.mark.parametrize("version", ["2.9.10", "2.10.27", "2.15.1"])
def test_jsz_is_cut_without_losing_anything(version: str) -> None:
    for jsz in replies(version)["jsz"].values():
        rows = list(endpoint_rows("jsz", copy.deepcopy(jsz)))
        (whole,) = [row.data for row in rows if row.table == "jsz"]
        whole["account_details"] = [row.data for row in rows if row.table == "jsz_accounts"]
        for account in whole["account_details"]:
            mine = [row for row in rows if row.keys.get("account") == account["name"]]
            streams = [row.data for row in mine if row.table == "jsz_streams"]
            for stream in streams:
                consumers = [
                    row for row in mine if row.table == "jsz_consumers" and row.data["stream_name"] == stream["name"]
                ]
                if consumers:
                    stream["consumer_detail"] = [row.data for row in consumers]
                    assert {row.keys["stream_replicas"] for row in consumers} == {stream["config"]["num_replicas"]}
                groups = [{"name": row.data["name"], "raft_group": row.keys["raft_group"]} for row in consumers]
                if any(group["raft_group"] for group in groups):
                    stream["consumer_raft_groups"] = groups
            if streams:
                account["stream_detail"] = streams
        assert whole == jsz


def test_further_pages_bring_only_their_accounts() -> None:
    page = {"streams": 1, "account_details": [{"name": "APP", "stream_detail": [{"name": "S"}]}]}
    assert [row.table for row in endpoint_rows("jsz", page, first=False)] == ["jsz_accounts", "jsz_streams"]


def test_rows_have_the_identity_of_an_account_as_other_endpoints_do() -> None:
    stream = {"name": "S", "config": {}, "consumer_detail": [{"name": "C"}]}
    page = {"account_details": [{"name": "APP", "id": "AKEY", "stream_detail": [stream]}]}
    assert [row.keys["account"] for row in endpoint_rows("jsz", page, first=False)] == ["AKEY"] * 3


@pytest.mark.parametrize(
    ("endpoint", "answer", "keys"),
    [
        ("raftz", {"$SYS": {"_meta_": {"term": 3}}}, [{"account": "$SYS", "raft_group": "_meta_"}]),
        ("connz", {"connections": [{"cid": 1}, {"cid": 2}]}, [{}, {}]),
        ("leafz", {"leafnodes": 0}, []),
        ("accstatz", {"account_statz": [{"acc": "APP"}]}, [{"account": "APP"}]),
        ("varz", {"mem": 1}, [{}]),
        ("ipqueuesz", {"sendq": {"pending": 1}}, [{"queue": "sendq"}]),
        ("accountz", {"account_detail": {"account_name": "APP"}}, [{"account": "APP"}]),
        (
            "gatewayz",
            {
                "outbound_gateways": {"C2": {"configured": True, "connection": {"cid": 1}}},
                "inbound_gateways": {"C2": [{"connection": {"cid": 2}}, {}]},
            },
            [
                {"gateway": "C2", "direction": "outbound", "configured": True},
                {"gateway": "C2", "direction": "inbound", "configured": False},
                {"gateway": "C2", "direction": "inbound", "configured": False},
            ],
        ),
    ],
)
def test_rows_of_other_endpoints(endpoint: str, answer: dict[str, Any], keys: list[dict[str, Any]]) -> None:
    rows = list(endpoint_rows(endpoint, answer))
    assert [row.keys for row in rows] == keys
    assert {row.table for row in rows} <= {endpoint}


def test_secrets_are_left_out_wherever_they_are() -> None:
    told = {
        "jwt": "eyJ0",
        "authorized_user": "s3cret-token",
        "cluster": {"urls": ["nats://route:pw@10.0.0.1:6222", "10.0.0.2:6222"], "auth_timeout": 2},
        "trusted_operators_jwt": ["eyJ0"],
        "leaf": [{"nkey": "UA", "account": "APP"}],
    }
    assert without_secrets(told) == {
        "cluster": {"urls": ["nats://10.0.0.1:6222", "10.0.0.2:6222"], "auth_timeout": 2},
        "leaf": [{"account": "APP"}],
    }


def test_limits_of_a_jwt_are_kept() -> None:
    claim = {"jti": "J", "exp": 1800000000, "nats": {"limits": {"conn": 10}, "signing_keys": ["A"]}}
    answer = {"account_detail": {"account_name": "APP", "jwt": "eyJ0", "decoded_jwt": claim}}
    (row,) = endpoint_rows("accountz", answer)
    assert without_secrets(row.data) == {"account_name": "APP", "expires": 1800000000, "limits": {"conn": 10}}


def test_rows_of_jwts_have_names_public_keys_and_times_only() -> None:
    account, signer = (new_key(nkeys.PREFIX_BYTE_ACCOUNT, number) for number in (1, 2))
    user, now = new_key(nkeys.PREFIX_BYTE_USER, 3), 1_800_000_000
    logins = Logins()
    roles = [{"kind": "user_scope", "key": signer.public, "role": "app"}]
    logins.add_account(account.public, make_jwt(account, account.public, "SHOP", {"signing_keys": roles}))
    token = make_jwt(signer, user.public, "till", {}, top={"iat": now - 9 * 86400, "exp": now + 86400})
    logins.add_connection({"account": account.public, "jwt": token})
    (row,) = expiry_rows(logins, now)
    assert row == SnapshotLine(
        "jwts",
        {"account": account.public},
        {
            "kind": "user",
            "account_name": "SHOP",
            "role": "app",
            "subject": user.public,
            "name": "till",
            "connections": 1,
            "expires": "2027-01-16T08:00:00Z",
            "urgency": "warning",
            "text": "account SHOP: 1 connection of role app will be closed; logins with the same credentials fail "
            "(expires in 1d, 2027-01-16T08:00:00Z)",
        },
    )
    # The general redaction removes no column.
    assert without_secrets(row.data) == row.data
    assert {field.name for field in TABLES["jwts"].fields} == set(row.data)


def test_a_snapshot_appears_with_its_manifest(tmp_path: Path) -> None:
    with SnapshotWriter(tmp_path, "test", STARTED) as writer:
        writer.add(ORIGIN, SnapshotLine("varz", {}, {"mem": 1, "jwt": "eyJ0"}))
        writer.fail("varz", Origin("NB", "n2"), NatsFailure("timeout", "no reply", subject="S"))
        assert not [path for path in everything(tmp_path) if "_incoming" not in path]
        path, manifest = writer.publish(source="test")
    assert writer.name.startswith("20261121T184100.123456Z-")
    place = "date=2026-11-21/hour=18"
    assert everything(tmp_path) == [
        f"bronze/manifest/{place}/{writer.name}.json",
        f"bronze/varz/{place}/{writer.name}-0.jsonl.gz",
    ]
    assert json.loads(Path(path).read_text()) == manifest
    assert (manifest["failures"], manifest["quoted_failures"][0]["server"]) == (1, "n2")
    told, silent = lines(tmp_path, manifest, "varz")
    assert (told["snapshot"], told["fleet"], told["server"], told["data"]) == (writer.name, "test", "n1", {"mem": 1})
    assert (silent["server"], silent["failure"]["code"], "data" in silent) == ("n2", "timeout", False)
    assert {item.stat().st_mode & 0o777 for item in tmp_path.rglob("*") if item.is_file()} == {0o640}


def test_files_are_synced_before_their_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are synced first, so a power failure cannot leave a manifest with empty files."""
    synced: list[int] = []
    fsync = os.fsync

    def seen(descriptor: int) -> None:
        fsync(descriptor)
        synced.append(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", seen)
    with SnapshotWriter(tmp_path, "test", STARTED) as writer:
        for table in ("varz", "jsz_streams"):
            writer.add(ORIGIN, SnapshotLine(table, {}, {"mem": 1}))
        path, manifest = writer.publish()
    files = [tmp_path / "bronze" / file["path"] for table in manifest["tables"].values() for file in table["files"]]
    assert len(files) == 2
    assert sorted(synced[:-1]) == sorted(file.stat().st_ino for file in files)
    assert synced[-1] == Path(path).stat().st_ino


def test_a_snapshot_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> None:
        with SnapshotWriter(tmp_path, "test", STARTED) as writer:
            writer.add(ORIGIN, SnapshotLine("varz", {}, {}))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken()
    assert everything(tmp_path) == []


def test_disk_error_is_reported(tmp_path: Path) -> None:
    (tmp_path / "bronze").write_text("a file is in the way")
    with pytest.raises(NatsFailure) as refused, SnapshotWriter(tmp_path, "test", STARTED):
        pass
    assert refused.value.code == LAKE
    assert str(tmp_path / "bronze") in refused.value.description


def test_large_tables_are_several_files(tmp_path: Path) -> None:
    with SnapshotWriter(tmp_path, "test", STARTED) as writer:
        writer._file_size = 1000
        for number in range(100):
            writer.add(ORIGIN, SnapshotLine("jsz_streams", {"account": "APP"}, {"name": f"S{number}"}))
        _path, manifest = writer.publish()
    files = manifest["tables"]["jsz_streams"]["files"]
    assert len(files) > 10
    assert max(file["bytes"] for file in files) < 1000 + 300
    assert [line["data"]["name"] for line in lines(tmp_path, manifest, "jsz_streams")] == [f"S{n}" for n in range(100)]


def summary_servers(known: int, started: str = "2026-11-20T00:00:00Z") -> list[Server]:
    now = {"ver": "2.15.1", "time": "2026-11-20T12:00:00Z"}
    return [
        parse_server({"name": name, "id": f"N{name}", **now}, {"active_servers": known, "start": started}, 0.001)
        for name in ("n1", "n2")
    ]


def test_a_server_that_was_killed_and_started_again_does_not_count_twice() -> None:
    assert not servers_summary(summary_servers(3), (), 0)["complete"]
    assert servers_summary(summary_servers(3, started="2026-11-20T11:58:00Z"), (), 0)["complete"]


def configurations(version: str) -> set[str]:
    """Return the effective configurations that a version reports."""
    streams = [
        stream
        for server in replies(version)["jsz"].values()
        for account in server["account_details"]
        for stream in account.get("stream_detail") or ()
    ]
    consumers = [consumer for stream in streams for consumer in stream.get("consumer_detail") or ()]
    return {effective(json.dumps(one["config"], separators=(",", ":"))) for one in (*streams, *consumers)}


def test_newer_versions_do_not_change_effective_configurations() -> None:
    assert configurations("2.9.10") == configurations("2.10.27") == configurations("2.15.1") != set()
    hostile = r'{"description":"\"a\":0,,{},\"_nats.ver\":\"1\",","metadata":{"_nats.ver":"1","k":"v"},"limits":{"x":0,"y":{}}}'
    kept = r'{"description":"\"a\":0,,{},\"_nats.ver\":\"1\",","metadata":{"k":"v"}}'
    assert effective(hostile) == kept
    assert effective('{"max_age":0}') == effective('{"a":false,"b":[]}') == "{}"
    assert effective('{"max_age":1}') != effective("{}")


def test_members_of_the_meta_group_count_although_a_server_is_young() -> None:
    """n3 was killed and n1 restarted: the reported number of servers may include a process that has ended."""
    young = summary_servers(3, started="2026-11-20T11:58:00Z")
    unmet = {"name": "Server name unknown at this time", "peer": "S1Nunr6R"}
    jsz = {"meta_cluster": {"leader": "n1", "replicas": [{"name": "n2"}, {"name": "n3"}, unmet]}}
    members = meta_members(jsz, "n1")
    assert members == {"n1", "n2", "n3", "S1Nunr6R"}
    assert meta_members(jsz, "n2") == meta_members({"meta_cluster": "x"}, "n1") == set()
    found = servers_summary(young, (), 0, members - {"S1Nunr6R"})
    assert (found["servers_known"], found["complete"]) == (3, False)
    assert servers_summary(young, (), 0, {"n1", "n2"})["complete"]


def test_sequences_rise_although_the_clock_is_set_back(tmp_path: Path) -> None:
    noon = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
    found = []
    for seconds in (0, 90, 60, 60.0001, 200):
        started = noon + timedelta(seconds=seconds)
        with SnapshotWriter(tmp_path, "fleet", started) as writer:
            found.append(writer.sequence() - int(noon.timestamp() * 1e6))
    assert found == [0, 90_000_000, 90_000_001, 90_000_002, 200_000_000]


def test_reasons_for_an_incomplete_snapshot() -> None:
    servers = summary_servers(2)
    assert servers_summary(servers, (), 0)["complete"]
    assert not servers_summary(servers, ("n3",), 0)["complete"]
    assert not servers_summary(servers, (), 1)["complete"]
    assert not servers_summary(servers[:1], (), 0)["complete"]
    assert not servers_summary([], (), 0)["complete"]
    assert (message_origin(servers[0], "hub").server_id, message_origin(servers[0], "hub").domain) == ("Nn1", "hub")


def audit_archive(target: Path, version: str, broken: str = "") -> Path:
    """Write the recorded replies in the format of `nats audit gather`; `broken`: a server whose VARZ is cut off."""
    recorded = replies(version)
    tags: dict[str, list[dict[str, str]]] = {}
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as zipped:

        def add(server: dict[str, Any], kind: str, text: str, page: int = 1) -> None:
            path = f"capture/clusters/{server['cluster']}/{server['name']}/{kind}/{page:04}.json"
            named = {"cluster": server["cluster"], "server": server["name"], "artifact_type": kind}
            tags[path] = [{"Name": key, "Value": value} for key, value in named.items()]
            zipped.writestr(path, text)

        for item in recorded["statsz"]:
            server = item["server"]
            for page in (1, 2):  # 2.10 may repeat the accounts of page 1 on page 2
                add(
                    server,
                    "jetstream_info",
                    json.dumps({"server": server, "data": recorded["jsz"][server["id"]]}),
                    page,
                )
            add(server, "health", json.dumps({"server": server, "data": recorded["healthz"][server["id"]]}, indent=2))
            varz = json.dumps({"server": server, "data": {"mem": 1}})
            add(server, "variables", varz[:20] if server["name"] == broken else varz)
            add(server, "profile", "not JSON")
        special = "capture/misc/audit_gather_metadata.json"
        zipped.writestr(special, json.dumps({"capture_timestamp": "2026-11-20T10:00:00.5Z"}))
        tags[special] = [{"Name": "special", "Value": "audit_gather_metadata"}]
        zipped.writestr("capture/misc/manifest.json", json.dumps(tags))
    return target


def test_an_audit_archive_is_a_snapshot(tmp_path: Path) -> None:
    archive = audit_archive(tmp_path / "audit.zip", "2.10.27")
    path, manifest = import_archive(archive, tmp_path / "lake", "prod")
    assert (manifest["source"], manifest["servers"], manifest["started"]) == (
        "nats audit gather",
        3,
        "2026-11-20T10:00:00.500000Z",
    )
    assert manifest["complete"]
    recorded = replies("2.10.27")
    wanted = sum(len(list(endpoint_rows("jsz", jsz))) for jsz in copy.deepcopy(recorded["jsz"]).values())
    jsz = [name for name in manifest["tables"] if name.startswith("jsz")]
    assert sum(manifest["tables"][name]["rows"] for name in jsz) == wanted
    assert {line["server"] for line in lines(tmp_path / "lake", manifest, "jsz")} == {
        item["server"]["name"] for item in recorded["statsz"]
    }
    before = everything(tmp_path / "lake")
    assert import_archive(archive, tmp_path / "lake", "prod")[0] == path
    assert everything(tmp_path / "lake") == before
    # Jobs have read the first snapshot, and would not read it again.
    other = audit_archive(tmp_path / "other.zip", "2.10.27", broken="n1")
    assert import_archive(other, tmp_path / "lake", "prod")[0] != path
    # If only its fleet changed, jobs would not read a snapshot again either.
    before = everything(tmp_path / "lake")
    assert import_archive(archive, tmp_path / "lake", "stage")[0] != path
    assert set(before) < set(everything(tmp_path / "lake"))


def test_lines_of_an_archive_have_the_domain_that_their_server_belongs_to(tmp_path: Path) -> None:
    """Lines that are written before VARZ of the cluster with JetStream is read also have this domain."""
    told: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "n1": ({"cluster": "Z", "domain": "hub", "jetstream": True}, {}),
        "n2": ({"cluster": "Z"}, {}),
        "g1": ({"cluster": "A"}, {"gateway": {"name": "A", "gateways": [{"name": "Z"}]}}),
        "e1": ({"cluster": "E", "domain": "edge", "jetstream": True}, {}),
        "x1": ({"cluster": "X"}, {"gateway": []}),
    }
    tags = {}
    with zipfile.ZipFile(tmp_path / "audit.zip", "w") as zipped:
        for name, (info, data) in told.items():
            server = {"name": name, "id": f"N{name}", "ver": "2.15.1", "time": "2026-11-20T10:00:00Z", **info}
            for kind in ("health", "variables"):
                path = f"capture/clusters/{info['cluster']}/{name}/{kind}/0001.json"
                zipped.writestr(path, json.dumps({"server": server, "data": data if kind == "variables" else {}}))
                named = {"cluster": info["cluster"], "server": name, "artifact_type": kind}
                tags[path] = [{"Name": key, "Value": value} for key, value in named.items()]
        zipped.writestr("capture/misc/audit_gather_metadata.json", '{"capture_timestamp": "2026-11-20T10:00:00Z"}')
        zipped.writestr("capture/misc/manifest.json", json.dumps(tags))
    _path, manifest = import_archive(tmp_path / "audit.zip", tmp_path / "lake", "prod")
    assert manifest["domains"] == ["", "edge", "hub"]
    for table in ("servers", "healthz", "varz"):
        assert {line["server"]: line["domain"] for line in lines(tmp_path / "lake", manifest, table)} == {
            "n1": "hub",
            "n2": "hub",
            "g1": "hub",
            "e1": "edge",
            "x1": "",
        }


def test_a_broken_artifact_is_a_failure_of_its_server(tmp_path: Path) -> None:
    archive = audit_archive(tmp_path / "audit.zip", "2.15.1", broken="n2")
    _path, manifest = import_archive(archive, tmp_path / "lake", "prod")
    assert not manifest["complete"]
    (failure,) = manifest["quoted_failures"]
    assert (failure["endpoint"], failure["server"], failure["code"]) == ("varz", "n2", "bad_reply")


def test_unrelated_file_is_not_an_archive(tmp_path: Path) -> None:
    text = tmp_path / "text.zip"
    text.write_text("no")
    empty = tmp_path / "empty.zip"
    with zipfile.ZipFile(empty, "w") as zipped:
        zipped.writestr("a", "b")
    for path in (text, empty, tmp_path / "absent.zip"):
        with pytest.raises(NatsFailure) as refused:
            import_archive(path, tmp_path / "lake", "prod")
        assert refused.value.code == "invalid_option"
        assert str(path) in refused.value.description
    assert everything(tmp_path / "lake") == []
