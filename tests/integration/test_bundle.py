# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the playbook natsops.jetstream.bundle on a cluster of three with one dead host."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shlex
import tarfile
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from support.audit_archive import AuditArchive
from support.documents import Document
from support.module_runs import Runner
from support.nats_processes import VERSIONS, NatsProcesses
from support.role_cluster import (
    APP_PASSWORD,
    OPERATOR_PASSWORD,
    SYSTEM_PASSWORD,
    RoleCluster,
    Run,
    create,
    publish,
)

pytestmark = pytest.mark.playbook

GUIDE = "docs/bundle.md"

ENCRYPTION_KEY = "encryption-key-of-the-store"
ROUTE_PASSWORD = "route/pass&word"
TOKEN = "somebodys-token-0123"
PAYLOAD = "x" * 64


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoleCluster]:
    """A cluster with secrets of each kind. The server of n3 is dead, and its host cannot be reached."""
    cluster = RoleCluster(tmp_path_factory.mktemp("bundle"), ["n1", "n2", "n3"], VERSIONS[-1])
    cluster.variables |= {
        "nats_server_jetstream_encryption_key": ENCRYPTION_KEY,
        "nats_server_cluster_authorization": {"user": "route", "password": ROUTE_PASSWORD},
        "nats_server_tls_source": "ca",
        "nats_server_tls_ca_dir": str(cluster.root / "ca"),
        "nats_server_tls_for_clients": False,
        "nats_server_log_file": "{{ nats_server_run_dir }}/nats-server.log",
    }
    with cluster.deployed():
        create(cluster, "ORDERS", 3)
        create(cluster, "EVENTS", 1)
        publish(cluster, "ORDERS", 20, 64)
        cluster.kill("n3")
        for name in ("n1", "n2"):
            # These log lines contain secrets.
            with (Path(cluster.hosts[name]["nats_server_run_dir"]) / "nats-server.log").open("a") as log:
                log.write(
                    f'[1] 2026/11/25 07:00:00.000000 [TRC] CONNECT {{"pass":"{APP_PASSWORD}"}} {SYSTEM_PASSWORD}\n'
                )
                log.write(
                    f"[1] nats://app:{APP_PASSWORD}@127.0.0.1 {quote(ROUTE_PASSWORD, safe='')} auth_token: {TOKEN}\n"
                )
        cluster.hosts["n3"] |= {"ansible_connection": "ssh", "ansible_port": 1}
        yield cluster


def run_bundle(cluster: RoleCluster, folder: Path, *arguments: str, **extra: Any) -> tuple[Run, Path | None]:
    """Run the playbook; return its output and the archive."""
    done = cluster.playbook("bundle", *arguments, nats_cluster_bundle_directory=str(folder), **extra)
    found = list(folder.iterdir()) if folder.is_dir() else []
    assert len(found) < 2
    return done, found[0] if found else None


@pytest.fixture(scope="module")
def bundle(broken: RoleCluster, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path]:
    journal = broken.root / "journal.jsonl"
    journal.write_text('{"event": "run_started"}\n')
    (command,) = [command for block in Document(GUIDE).of("sh") for command in block.commands]
    program, playbook, _option, _inventory, *arguments = shlex.split(command.text)
    assert (program, playbook) == ("ansible-playbook", "natsops.jetstream.bundle")
    assert arguments
    done, path = run_bundle(broken, tmp_path_factory.mktemp("out"), *arguments, nats_cluster_journal=str(journal))
    assert path is not None
    return done, path


def contents(path: Path) -> dict[str, bytes]:
    """Return every file of an archive, and also the content of compressed files."""
    with zipfile.ZipFile(path) as zipped:
        found = {name: zipped.read(name) for name in zipped.namelist()}
    plain = {f"{name} decompressed": gzip.decompress(data) for name, data in found.items() if data[:2] == b"\x1f\x8b"}
    return {**found, **plain}


def known_secrets(cluster: RoleCluster) -> dict[str, str]:
    """Return every secret of the deployment by its kind, from the inventory and from the hosts' files."""
    found = {
        "system": SYSTEM_PASSWORD,
        "operator": OPERATOR_PASSWORD,
        "app": APP_PASSWORD,
        "store": ENCRYPTION_KEY,
        "routes": ROUTE_PASSWORD,
        "token": TOKEN,
        "message": PAYLOAD,
    }
    for name, host in cluster.hosts.items():
        etc = Path(host["nats_server_config_dir"])
        text = (etc / "secrets.conf").read_text()
        values = re.findall(r'^SECRET_\w+: "(.*)"$', text, re.MULTILINE)
        assert sum(value.startswith("$2") for value in values) >= 3
        found |= {f"{name} {number}": value for number, value in enumerate(values)}
    # Files of the store also end in .key, so only private keys are selected.
    keys = [path for path in cluster.root.rglob("*.key") if b"PRIVATE KEY" in path.read_bytes()]
    assert len(keys) >= 4
    found |= {f"{key}": key.read_text().splitlines()[1] for key in keys}
    return found


def test_index_lists_contents_and_omissions(bundle: tuple[Run, Path], broken: RoleCluster) -> None:
    done, path = bundle
    assert path.stat().st_mode & 0o777 == 0o600
    assert "2 of 3 servers answered; 2 of 3 hosts did" in done.output
    assert "missing: host of n3: the host cannot be reached" in done.output
    assert "missing: server of n3: it did not answer" in done.output
    shown = re.search(r'"msg": \[(.*?)\]', done.output, re.DOTALL)
    assert shown
    assert 3 < len(shown[1].strip().splitlines()) <= 25
    assert not any(secret in done.output for secret in known_secrets(broken).values())
    index = AuditArchive(path).json("capture/misc/bundle.json")
    assert (index["servers"], index["expected"]) == (["n1", "n2"], ["n1", "n2", "n3"])
    # No file was left out because the short route password could not be redacted.
    assert [row for row in index["missing"] if "still contains a secret" in row["reason"]] == []
    assert {row["reason"] for row in index["missing"]} == {row["reason"] for row in index["missing"] if row["reason"]}
    files = contents(path)
    for name, listed in index["files"].items():
        assert (len(files[name]), hashlib.sha256(files[name]).hexdigest()) == (listed["size"], listed["sha256"])
    plain = {name for name in files if not name.endswith(" decompressed")}
    assert set(index["files"]) == plain - {"capture/misc/bundle.json"}


def test_no_secret_of_the_deployment_is_in_it(bundle: tuple[Run, Path], broken: RoleCluster) -> None:
    found = {
        (name, what)
        for name, data in contents(bundle[1]).items()
        for what, secret in known_secrets(broken).items()
        for form in (secret, json.dumps(secret)[1:-1], quote(secret, safe=""))
        if form.encode() in data
    }
    assert found == set()
    # The original log did contain the secrets.
    log = contents(bundle[1])["host/n1/server.log"].decode()
    assert log.count("[redacted]") >= 4
    assert "[INF]" in log


def test_a_profile_and_the_evidence_of_hosts_are_there(bundle: tuple[Run, Path]) -> None:
    files = contents(bundle[1])
    for server in ("n1", "n2"):
        assert b"goroutine profile: total" in files[f"capture/profiles/C1/{server}__goroutine_1.prof"]
        assert files[f"capture/profiles/C1/{server}__heap.prof decompressed"]
        limits = files[f"host/{server}/process/limits.txt"].decode()
        assert "Max open files" in limits
        assert "$SECRET_" in files[f"host/{server}/configuration/nats-server.conf"].decode()
        listing = files[f"host/{server}/store.txt"].decode()
        assert "jetstream/" in listing
        assert re.search(r"^ +\d+ \d{4}-\d\d-\d\dT", listing)
        assert b"Filesystem" in files[f"host/{server}/disks/space.txt"]
    assert not any(name.startswith("host/n3/") for name in files)
    assert b"run_started" in files["capture/misc/roll_journal.jsonl"]
    problems = json.loads(files["capture/misc/findings.json"])["problems"]
    assert any("n3" in str(problem) for problem in problems)


def test_natscli_would_read_it(bundle: tuple[Run, Path]) -> None:
    archive = AuditArchive(bundle[1])
    assert archive.warnings == []
    assert archive.cluster_servers == {"C1": {"n1", "n2"}}
    for server in ("n1", "n2"):
        answers_for_all(archive, server, VERSIONS[-1])
        (replica,) = archive.load(cluster="C1", server=server, account="APP", stream="ORDERS", kind="stream_info")
        assert (replica["name"], replica["state"]["messages"]) == ("ORDERS", 20)


def answers_for_all(archive: AuditArchive, server: str, version: str) -> None:
    """Check that the archive has the server's reply for each of its endpoints."""
    for kind in ("variables", "health", "jetstream_info", "gateways", "leafs", "connections", "accounts"):
        pages = archive.load(cluster="C1", server=server, kind=kind)
        assert len(pages) == 1, (server, kind)
        assert pages[0]["server"]["name"] == server
        assert pages[0]["server"]["ver"] == version
        assert pages[0]["data"]
    (raft,) = archive.load(server=server, account="APP", kind="account_raftz")
    assert set(raft["data"]) == {"APP"}
    assert archive.load(server=server, kind="account_ipqueues")
    (expvars,) = archive.load(server=server, kind="exp_variables")
    assert "cmdline" not in expvars["data"]
    assert expvars["data"]["memstats"]


def test_servers_of_each_version_answer_for_all(
    run_module: Runner, healthy: NatsProcesses, version: str, tmp_path: Path
) -> None:
    path = tmp_path / "bundle.zip"
    result = run_module(
        "nats_bundle", healthy.sys_connection(), path=str(path), expected_servers=healthy.names, secrets=[APP_PASSWORD]
    )
    assert (sorted(result["answered"]), result["missing"]) == (sorted(healthy.names), [])
    archive = AuditArchive(path)
    for server in healthy.names:
        answers_for_all(archive, server, version)


def test_the_import_of_the_insights_reads_it(bundle: tuple[Run, Path], run_module: Runner, tmp_path: Path) -> None:
    (block,) = Document(GUIDE).of("yaml")
    (task,) = yaml.safe_load(block.text)
    options = {**task["natsops.jetstream.nats_snapshot"], "archive": str(bundle[1]), "lake": str(tmp_path)}
    result = run_module("nats_snapshot", {}, **options)
    assert (result.get("msg"), result["answered"], result["failures"]) == (None, 2, [])
    path = Path(result["manifest"])
    manifest = json.loads(path.read_text())
    assert (manifest["servers"], manifest["failures"]) == (2, 0)
    bronze = path.parents[3]

    def rows(table: str) -> list[dict[str, Any]]:
        files = manifest["tables"][table]["files"]
        text = "".join(gzip.decompress((bronze / file["path"]).read_bytes()).decode() for file in files)
        return [json.loads(line) for line in text.splitlines()]

    streams = {(row["account"], row["data"]["name"], row["server"]) for row in rows("jsz_streams")}
    assert {("APP", "ORDERS", "n1"), ("APP", "ORDERS", "n2")} <= streams
    assert {row["server"] for row in rows("varz")} == {"n1", "n2"}
    assert {row["account"] for row in rows("raftz")} >= {"$SYS", "APP"}
    assert "_meta_" in {row["raft_group"] for row in rows("raftz")}
    for table in ("healthz", "connz", "routez", "servers", "jsz"):
        assert rows(table), table


def test_check_mode_lists_the_files_and_writes_nothing(broken: RoleCluster, tmp_path: Path) -> None:
    done, path = run_bundle(broken, tmp_path / "none", "--check")
    assert path is None
    assert not (tmp_path / "none").exists()
    assert "2 of 3 servers and 3 hosts would be queried" in done.output
    assert "changed=0" in done.output.partition("n2 ")[2]


def test_bundle_without_a_running_server_has_the_hosts_data(
    run_module: Runner, broken: RoleCluster, tmp_path: Path
) -> None:
    nobody = {"servers": ["nats://127.0.0.1:1"], "user": "sys", "password": SYSTEM_PASSWORD, "timeout": 1}
    told = run_module(
        "nats_host_bundle",
        {},
        config=f"{broken.hosts['n1']['nats_server_config_dir']}/nats-server.conf",
        store_dir=broken.hosts["n1"]["nats_server_jetstream_store_dir"],
        directory=str(tmp_path),
    )
    assert Path(told["path"]).stat().st_mode & 0o777 == 0o600
    Path(told["path"]).rename(tmp_path / "n1.tar.gz")
    path = tmp_path / "dead.zip"
    result = run_module(
        "nats_bundle",
        nobody,
        path=str(path),
        hosts=[{"server": "n1"}],
        work_directory=str(tmp_path),
        expected_servers=["n1"],
    )
    assert (result["changed"], result["answered"]) == (True, [])
    assert any(row["item"] == "servers" and "cannot be queried" in row["reason"] for row in result["missing"])
    assert "host/n1/process/limits.txt" in AuditArchive(path).tags


def test_bundle_has_no_secret_of_a_manual_configuration(run_module: Runner, tmp_path: Path) -> None:
    """The parser's keys identify the secrets, and a file that cannot be parsed is left out."""
    config, log = tmp_path / "hand.conf", tmp_path / "server.log"
    log.write_text("login with hunter-22\n")

    def collected(text: str) -> tuple[dict[str, str], list[dict[str, str]]]:
        config.write_text(text)
        options = {"log_file": str(log), "directory": str(tmp_path), "timeout": 2.0}
        told = run_module("nats_host_bundle", {}, config=str(config), **options)
        with tarfile.open(told["path"]) as archive:
            return {one.name: archive.extractfile(one).read().decode() for one in archive}, told["missing"]  # type: ignore[union-attr]

    files, _missing = collected("ANYTHING = hunter-22\nport: 4222\nauthorization { token: $ANYTHING }\n")
    assert "port: 4222" in files["configuration/hand.conf"] and "login with" in files["server.log"]
    assert "hunter-22" not in str(files)
    files, missing = collected("ANYTHING = hunter-22\nauthorization { token: $ANYTHING")
    assert "configuration/hand.conf" not in files
    assert "its secrets are unknown" in next(row["reason"] for row in missing if "hand.conf" in row["item"])


def test_size_limit_is_kept_and_omitted_files_are_named(
    run_module: Runner, broken: RoleCluster, tmp_path: Path
) -> None:
    """The files of one host alone exceed the limit for all, and cannot be compressed."""
    work = tmp_path / "work"
    work.mkdir()
    with tarfile.open(work / "n1.tar.gz", "w:gz") as archive:
        for name, size in (("small.txt", 1000), ("large.txt", 3 << 20)):
            member = tarfile.TarInfo(name)
            content = os.urandom(size).hex().encode()
            member.size = len(content)
            archive.addfile(member, BytesIO(content))
    path = tmp_path / "small.zip"
    result = run_module(
        "nats_bundle",
        {**broken.system(), "servers": [broken.url("n1")]},
        path=str(path),
        max_size="1MiB",
        hosts=[{"server": "n1"}],
        work_directory=str(work),
    )
    assert result["answered"] == ["n1", "n2"]
    assert path.stat().st_size <= 1 << 20
    named = [row for row in result["cut"] if row["item"] == "large.txt"]
    assert named == [
        {"server": "n1", "item": "large.txt", "reason": "it was left out because the bundle would exceed 1.0 MiB"}
    ]
    tags = AuditArchive(path).tags
    assert "host/n1/small.txt" in tags
    assert "host/n1/large.txt" not in tags
    refused = run_module("nats_bundle", broken.system(), path=str(path), max_size="1000")
    assert "at least 1MiB" in refused["msg"]
