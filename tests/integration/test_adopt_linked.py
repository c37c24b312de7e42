# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A foreign cluster with mutual TLS, gateways and leafnodes is adopted and deployed without losing a process or a
connection, and each server's loaded configuration stays the same. Then the role takes over the cluster, and all links
of the cluster are established again."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.reload_rules import config_change
from support.foreign_cluster import LINK_SECRETS, NAMES, Linked
from support.module_runs import run_in_process
from support.role_cluster import APP_PASSWORD, APP_USER, SMOKE_TEST, SYSTEM_PASSWORD, load

pytestmark = pytest.mark.playbook


def loaded(cluster: Linked) -> dict[str, dict[str, Any]]:
    """Return each server's loaded configuration, verified by the digest that it reports, if it reports one."""
    proof = "time" if cluster.version.startswith("2.10") else "digest"
    found = {}
    for name in NAMES:
        config = cluster.hosts[name]["nats_cluster_adopt_config"]
        read = run_in_process("nats_server_host_info", {}, gather_subset=["adoption"], config=config)["adoption"]
        assert (read["loaded"]["proof"], read["loaded"]["problem"]) == (proof, "")
        found[name] = read["config"]
    return found


def linked(cluster: Linked) -> dict[str, list[Any]]:
    """Return the connections between the servers once all exist: to FAR in both directions, from each server to the
    hub, and from the edge to one server. The edge has learned the addresses of the other servers, and uses them when
    its server stops."""
    deadline = time.monotonic() + 30
    while True:
        links = cluster.links()
        kinds = {name: {kind for kind, *_rest in found} for name, found in links.items()}
        leaves = sorted(one[2] for found in links.values() for one in found if one[0] == "leaf")
        if leaves == ["BRIDGE", "BRIDGE", "BRIDGE", "EDGE"] and all(
            found == {"gateway", "leaf", "route"} for found in kinds.values()
        ):
            return links
        assert time.monotonic() < deadline, links
        time.sleep(0.3)


def keeps_secrets(cluster: Linked, directory: Path, kept: Sequence[str]) -> None:
    """Back up the adopted files before the first deployment: no secret is saved or shown."""
    user = {"account": "APP", "user": APP_USER, "password": APP_PASSWORD}
    options: dict[str, Any] = {"nats_cluster_backup_directory": str(directory), "nats_cluster_account_users": [user]}
    shown = cluster.playbook("backup", "-vvv", **options).output
    (own,) = directory.glob("cluster@*.json")
    files = json.loads(own.read_text())["files"]
    assert sorted(files) == [*(f"{name}/{file}" for name in NAMES for file in ("ca.crt", "nats.conf")), "servers.json"]
    assert not [text for text in kept for name in NAMES if text not in files[f"{name}/nats.conf"]]
    saved = b"".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())
    for secret in [*LINK_SECRETS.values(), APP_PASSWORD, SYSTEM_PASSWORD]:
        for form in (secret, quote(secret, safe=""), json.dumps(secret)[1:-1]):
            assert form.encode() not in saved and (form not in shown or secret in user.values()), form
    assert b"$2b$" not in saved


# In each `make test`, a cluster is adopted on the hosts of the lab (tests/lab/test_adopt.py), and test_discovery.py reads
# the loaded configuration of both versions.
@pytest.mark.chaos
@pytest.mark.parametrize("version", ["2.10.27", "2.15.1"])
def test_tls_gateways_and_leafnodes_are_adopted_as_they_are(tmp_path: Path, version: str) -> None:
    cluster = Linked(tmp_path, version)
    with cluster.by_hand(), load(cluster, streams={"LOAD3": 3}, tls=cluster.trust):
        pids, before, links = cluster.pids(), loaded(cluster), linked(cluster)
        shown = cluster.adopt()
        assert "The first deploy: 0 restarts, 3 reloads, 0 units, 0 binaries." in shown
        assert not [of for of, secret in LINK_SECRETS.items() if secret in shown]

        keeps_secrets(cluster, tmp_path / "backups", ["authorization", "leafnodes", "gateway", "$SECRET_"])
        predicted = cluster.playbook("deploy", "--check", "--diff", nats_cluster_smoke_test="always").output
        assert len(re.findall(r'"reload"', predicted)) == 3, predicted
        assert SMOKE_TEST not in predicted
        assert "$2b$" not in predicted and not [of for of, secret in LINK_SECRETS.items() if secret in predicted]
        assert (cluster.pids(), cluster.links()) == (pids, links)

        cluster.playbook("deploy")
        after = loaded(cluster)
        assert (cluster.pids(), linked(cluster)) == (pids, links)
        for name in NAMES:
            change = config_change(before[name], after[name], version)
            assert (change["action"], change["keys"]) == ("none", [])
        cluster.deploy_changes_nothing()

        cluster.playbook("deploy", nats_server_take_over=True)
        taken = cluster.pids()
        assert all(taken.values()) and not set(taken.values()) & set(pids.values())
        linked(cluster)
        cluster.deploy_changes_nothing(nats_server_take_over=True)
