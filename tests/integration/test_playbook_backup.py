# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the backup playbooks with encryption and object storage, and the program of the backup timer."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import nats
import pyrage
import pytest
from support.backup_site import timer_program
from support.load import patiently, publish_stored
from support.nats_processes import binary
from support.object_storage import BUCKET, ObjectStorage
from support.role_cluster import APP_PASSWORD, APP_USER, OPERATOR_PASSWORD, SYSTEM_PASSWORD, RoleCluster, create

pytestmark = pytest.mark.playbook

PLACE = f"s3://{BUCKET}/nats"


def publish(cluster: RoleCluster, count: int) -> None:
    async def work() -> None:
        connection = await nats.connect(cluster.urls, user=APP_USER, password=APP_PASSWORD)
        try:
            stream = connection.jetstream()
            for number in range(count):
                # Some servers may not have the interest of a new stream yet.
                await patiently(partial(publish_stored, stream, "ORDERS.a", b"message %d" % number, uuid.uuid4().hex))
        finally:
            await connection.close()

    asyncio.run(work())


def test_encrypted_in_object_storage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    storage = ObjectStorage(tmp_path)
    identity = pyrage.x25519.Identity.generate()
    (tmp_path / "identity.txt").write_text(str(identity))
    cluster = RoleCluster(tmp_path, ["n1"])
    # The cluster stays one server when the inventory has a second host.
    cluster.variables["nats_server_clustered"] = False
    cluster.variables.update(
        nats_cluster_backup_directory=PLACE,
        nats_cluster_backup_encrypt_to=[str(identity.to_public())],
        nats_cluster_backup_identity_file=str(tmp_path / "identity.txt"),
        nats_cluster_backup_drill_binary=binary("2.15.1"),
        nats_cluster_backup_drill_work_directory=str(tmp_path / "work"),
    )
    storage.start()
    cluster.variables["nats_cluster_backup_s3"] = storage.options
    try:
        with cluster.deployed():
            create(cluster, "ORDERS", 1, subjects=["ORDERS.>"])
            publish(cluster, 20)
            outputs = [cluster.playbook("backup", "-vvv").output]
            assert f"Streams saved to {PLACE}" in outputs[0]
            own = storage.read(f"nats/{json.loads(storage.read('nats/catalogue.json'))['cluster'][0]['path']}")
            files = json.loads(pyrage.decrypt(own, [identity]))["files"]
            assert set(files) == {f"{name}/nats-server.conf" for name in cluster.hosts} | {"servers.json"}
            assert all("APP" in files[f"{name}/nats-server.conf"] for name in cluster.hosts)
            assert [server["host"] for server in json.loads(files["servers.json"])] == list(cluster.hosts)
            assert not any(secret in str(files) for secret in (APP_PASSWORD, OPERATOR_PASSWORD, SYSTEM_PASSWORD, "$2"))
            assert "files of the cluster itself: " not in cluster.playbook("backup").output
            (archive,) = [name for name in storage.names() if name.endswith(".s2.age")]
            assert archive.startswith("nats/APP/ORDERS@")
            outputs.append(cluster.playbook("backup_drill", "-vvv").output)
            assert "is proven: 20 messages" in outputs[-1]
            outputs.append(cluster.playbook("restore", "-vvv", nats_cluster_restore_streams=["*"]).output)
            assert "exists as saved" in outputs[-1]
            assert not any(
                secret in output for output in outputs for secret in (storage.options["secret_key"], str(identity))
            )

            # A host that is down does not prevent any stream from being saved.
            cluster.add("n2")
            cluster.hosts["n2"].update(ansible_connection="ssh", ansible_port=1)
            assert "files of the cluster itself" in cluster.playbook("backup").output
            row = json.loads(storage.read("nats/catalogue.json"))["cluster"][-1]
            assert row["files"] == ["n1/nats-server.conf", "servers.json"]
            del cluster.hosts["n2"]

            # Run the timer's command with the timer's settings.
            publish(cluster, 5)
            user = {"account": "APP", "user": "operator-APP", "password": OPERATOR_PASSWORD}
            settings = {
                "connection": {"servers": cluster.urls},
                "account_users": [user],
                "directory": PLACE,
                "s3": storage.options,
                "encrypt_to": [str(identity.to_public())],
                "streams": ["*"],
                "exclude": [],
                "keep": {"last": 1},
                "rate_limit": None,
                "verify": "contents",
            }
            (tmp_path / "settings.json").write_text(json.dumps(settings))
            assert timer_program().main(str(tmp_path / "settings.json")) == 0
            assert "1 old backups removed" in capsys.readouterr().out
            assert len([name for name in storage.names() if name.endswith(".s2.age")]) == 1
            settings["s3"] = {**storage.options, "secret_key": "wrong"}
            (tmp_path / "settings.json").write_text(json.dumps(settings))
            assert timer_program().main(str(tmp_path / "settings.json")) == 1
            assert "rejects the credentials" in capsys.readouterr().err
    finally:
        storage.kill()


# On a busy disk, creating a thousand streams takes minutes.
@pytest.mark.parametrize("streams", [100, pytest.param(1000, marks=pytest.mark.chaos)])
def test_many_streams_fit_on_a_screen(streams: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests backup, report and restore; tests/unit/action/test_nats_show.py prints the output of all operations with a
    thousand streams."""
    monkeypatch.setenv("ANSIBLE_HOME", str(tmp_path / "home"))
    cluster = RoleCluster(tmp_path, ["n1"])
    cluster.variables.update(
        nats_cluster_backup_directory=str(tmp_path / "backup"), nats_cluster_backup_verify="checksum"
    )
    names = [f"S{number:04}" for number in range(streams)]

    def each(request: str, body: Callable[[str], dict[str, Any]]) -> None:
        async def ask() -> None:
            client = await nats.connect(cluster.urls, user=APP_USER, password=APP_PASSWORD)
            try:
                for name in names:
                    text = json.dumps(body(name)).encode()
                    reply = await client.request(f"$JS.API.STREAM.{request}.{name}", text, timeout=10)
                    assert "error" not in json.loads(reply.data), reply.data
            finally:
                await client.close()

        asyncio.run(ask())

    def listed(output: str, name: str) -> str:
        """Return the contents of the file in which a playbook wrote all lines."""
        path = tmp_path / "home" / "natsops" / f"{name}-C1.txt"
        frame = ("TASK [", "PLAY ", "ok: ", "changed: ", "included: ", "skipping: ", "localhost ", "n1 ")
        assert len([line for line in output.splitlines() if line and not line.startswith(frame)]) < 60, output
        assert "could not be read" not in output
        found = re.search(rf"All ([\d,]+) lines: {path}", output)
        assert found and 0 < int(found[1].replace(",", "")) - streams < 100, output
        assert path.stat().st_mode & 0o777 == 0o600
        text = path.read_text()
        assert all(stream in text for stream in names)
        return text

    with cluster.deployed():
        each("CREATE", lambda name: {"name": name, "subjects": [name], "storage": "file"})
        saved = cluster.playbook("backup").output
        assert "there is no backup yet" in listed(saved, "backup") and f"{streams:,} saved" in saved
        report = cluster.playbook("report", report="streams").output
        once = f"each stream once │ {streams:,}"
        assert all(re.search(rf"{once}\b", text) for text in (report, listed(report, "report")))
        each("DELETE", lambda _name: {})
        restored = cluster.playbook(
            "restore", nats_cluster_restore_streams=["*"], nats_cluster_restore_compare="state"
        ).output
        assert "messages, sequences and gaps as saved" in listed(restored, "restore")
        assert restored.count(f"{streams:,} of {streams:,}") == 2 and "[WARNING]" not in restored, restored
