# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Five systemd hosts in operator mode: accounts are created from a document, changed, rotated, revoked and rolled back
while a load runs; a cluster with static accounts enters and leaves operator mode."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.claims import Claims
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.credentials import read_credentials
from nats.aio.client import Client
from nats.aio.msg import Msg
from support.controller import Controller, file_install
from support.credentials import Operator, make_operator
from support.lab_cluster import HOSTS, Cluster
from support.load import Load, LoadPlan

VERSIONS = ["2.15.1", "2.10.27"]
# tests/integration covers each step with processes: test_operator_mode.py, test_account_changes.py and
# test_signing_key_rotation.py.
pytestmark = pytest.mark.chaos
#: The subjects of the load.
LOAD = ["load3.>", "load.echo", "$KV.LOAD_KV.>", "$JS.API.>", "$JS.ACK.>", "_INBOX.>"]
ACCOUNTS: dict[str, Any] = {
    "ORDERS": {
        "limits": {"jetstream": {"R1": {"disk": "10MiB"}, "R3": {"disk": "100MiB", "streams": 10}}},
        "signing_keys": {
            "app": {"allow": {"pub": LOAD, "sub": LOAD}},
            "shop": {"allow": {"pub": ["orders.{{tag(team)}}.>"], "sub": ["_INBOX.>"]}},
        },
        "exports": [{"subject": "orders.events.>", "type": "stream", "to": ["BILLING"]}],
        "imports": [{"account": "PAY", "subject": "pay.quote", "type": "service", "local": "quote"}],
    },
    "BILLING": {
        "signing_keys": {"reader": {"allow": {"sub": ["orders.events.>", "_INBOX.>"]}}},
        "imports": [{"account": "ORDERS", "subject": "orders.events.>", "type": "stream"}],
    },
    "PAY": {"exports": [{"subject": "pay.quote", "type": "service"}]},
}


@dataclass
class Followed:
    """A client that does not reconnect. `closed`: when the server closed its connection, by time.time()."""

    client: Client
    closed: list[float] = field(default_factory=list)


class OperatorCluster(Cluster):
    """A cluster whose accounts are declared in a document. `directory`: files of the controller."""

    def __init__(self, controller: Controller, directory: Path, version: str) -> None:
        super().__init__(controller)
        self.directory = directory
        self.keys = directory / "keys"
        self.operator: Operator = make_operator(directory, strict=True)
        self.accounts: dict[str, Any] = copy.deepcopy(ACCOUNTS)
        self.followed: dict[str, list[Followed]] = {}
        seed = directory / "signing.nk"
        seed.write_text(self.operator.signing_key.seed)
        seed.chmod(0o600)
        for name in ("nats_server_accounts", "nats_server_system_password"):
            del self.variables[name]
        resolver = {"type": "full", "dir": "/nats/jwt", "allow_delete": True, "interval": "1s"}
        self.variables.update(
            **file_install(version),
            nats_server_operator=self.operator.jwt,
            nats_server_system_account=self.operator.system_account,
            nats_server_config={"resolver": resolver, "resolver_preload": self.operator.accounts},
            nats_server_api_credentials=str(self.operator.creds["SYS"]),
            nats_cluster_accounts_document=str(directory / "accounts.yml"),
            nats_cluster_accounts_plan=str(directory / "plan.json"),
            nats_cluster_accounts_seed_file=str(seed),
            nats_cluster_accounts_key_directory=str(self.keys),
            nats_cluster_accounts_sync_interval=2,
        )

    def apply(self) -> dict[str, Any]:
        """Plan and apply the document; return the plan's accounts by name."""
        rows = self.plan()
        run = self.play("accounts_apply")
        assert run.status == 0, run.output
        return rows

    def plan(self) -> dict[str, Any]:
        (self.directory / "accounts.yml").write_text(json.dumps({"accounts": self.accounts}))
        run = self.play("accounts_plan")
        assert run.status == 0, run.output
        plan = json.loads((self.directory / "plan.json").read_text())
        return {row["name"]: row for row in plan["accounts"]}

    def module(self, module_name: str, **options: Any) -> None:
        login = {"servers": self.urls(), "credentials": str(self.operator.creds["SYS"]), "expected_servers": HOSTS}
        run = self.controller.module(module_name, {**login, **options})
        assert run.status == 0, run.output

    def creds(self, account: str, role: str, name: str, tags: list[str] | None = None) -> Path:
        """Issue the credentials of a user, or issue them again if the role's key has changed."""
        dest = self.directory / f"{name}.creds"
        given = {"account": account, "role": role, "name": name, "tags": tags or [], "dest": str(dest)}
        self.module("nats_user_credentials", key_directory=str(self.keys), **given)
        return dest

    def follow(self, creds: Path) -> None:
        """Log a user in to every server."""

        async def log_in() -> list[Followed]:
            return [await self._log_in(creds, url) for url in self.urls()]

        self.followed[creds.stem] = self.controller.run(log_in())

    async def _log_in(self, creds: Path, url: str) -> Followed:
        moments: list[float] = []

        async def ignore(_error: Exception) -> None:
            """The server closes the connection."""

        async def note() -> None:
            moments.append(time.time())

        client = await nats.connect(
            url, user_credentials=str(creds), allow_reconnect=False, error_cb=ignore, closed_cb=note
        )
        return Followed(client, moments)

    def closed(self) -> dict[str, int]:
        """Return the number of closed connections of each user since the last call, and log these users in again."""
        found = {user: sum(bool(one.closed) for one in all_) for user, all_ in self.followed.items()}
        for user, number in found.items():
            if number:
                self.follow(self.directory / f"{user}.creds")
        return found

    def log_out(self, user: str) -> None:
        """Close the connections of a user."""

        async def close(followed: list[Followed]) -> None:
            for one in followed:
                await one.client.close()

        self.controller.run(close(self.followed.pop(user)))

    @contextmanager
    def watching_pushes(self) -> Iterator[list[float]]:
        """Yield the list of the times at which claims are pushed inside the context, by time.time()."""
        moments: list[float] = []

        async def note(message: Msg) -> None:
            if message.subject.endswith("CLAIMS.UPDATE"):
                moments.append(time.time())

        async def begin() -> Client:
            client = await nats.connect(self.urls(), user_credentials=str(self.operator.creds["SYS"]))
            await client.subscribe("$SYS.REQ.>", cb=note)
            await client.flush()
            return client

        client = self.controller.run(begin())
        try:
            yield moments
        finally:
            self.controller.run(client.close())


def user_claims(creds: Path) -> Claims:
    """Return the claims of the user in a .creds file."""
    found = read_credentials(creds.read_text())
    assert found is not None, creds
    return found.claims


@pytest.fixture(params=VERSIONS)
def cluster(request: pytest.FixtureRequest, controller: Controller, tmp_path: Path) -> Iterator[OperatorCluster]:
    made = OperatorCluster(controller, tmp_path, request.param)
    run = made.deploy()
    assert run.status == 0, run.output
    yield made

    for user in list(made.followed):
        made.log_out(user)


def test_accounts_are_created_changed_rotated_and_revoked_under_load(cluster: OperatorCluster) -> None:
    created = cluster.apply()
    assert {name: created[name]["state"] for name in ACCOUNTS} == dict.fromkeys(ACCOUNTS, "create")
    app = cluster.creds("ORDERS", "app", "app")
    shop = cluster.creds("ORDERS", "shop", "shop", ["team:berlin"])
    reader = cluster.creds("BILLING", "reader", "reader")
    disconnections = 0

    async def note() -> None:
        nonlocal disconnections
        disconnections += 1

    plan = LoadPlan(streams={"LOAD3": 3}, rate=20, timeout=5)
    load = Load(cluster.urls(), "", "", plan, user_credentials=str(app), disconnected_cb=note)
    cluster.controller.run(load.prepare(), timeout=90)
    # The client that prepared the load has disconnected.
    disconnections = 0
    with cluster.running(load):
        for creds in (shop, reader):
            cluster.follow(creds)

        wider = copy.deepcopy(cluster.accounts)
        wider["BILLING"]["signing_keys"]["reader"]["allow"]["sub"].append("billing.>")
        wider["ORDERS"]["limits"]["jetstream"]["R3"]["streams"] = 20
        cluster.accounts = wider
        changed = cluster.apply()
        assert {name: sum(one["count"] for one in changed[name]["closes"]) for name in ACCOUNTS} == {
            "ORDERS": 0,
            "BILLING": 5,
            "PAY": 0,
        }
        assert cluster.closed() == {"shop": 0, "reader": 5}

        before = {path.stem for path in cluster.keys.rglob("*.nk")}
        old = user_claims(reader).issuer
        rotation = {
            "account": "BILLING",
            "role": "reader",
            "signing_seed_file": cluster.variables["nats_cluster_accounts_seed_file"],
            "sync_interval": 2,
        }
        cluster.module("nats_signing_key_rotation", phase="add", key_directory=str(cluster.keys), **rotation)
        (new,) = {path.stem for path in cluster.keys.rglob("*.nk")} - before
        cluster.creds("BILLING", new, "reader")
        assert cluster.closed() == {"shop": 0, "reader": 0}
        cluster.log_out("reader")
        cluster.follow(reader)
        cluster.module("nats_signing_key_rotation", phase="drop", key=old, **rotation)
        assert cluster.closed() == {"shop": 0, "reader": 0}

        cluster.accounts["ORDERS"]["revoke"] = {user_claims(shop).subject: "2099-01-01T00:00:00Z"}
        with cluster.watching_pushes() as pushes:
            revoked = cluster.apply()
        assert [one["count"] for one in revoked["ORDERS"]["closes"]] == [5]
        moments = [moment for one in cluster.followed["shop"] for moment in one.closed]
        delays = [moment - pushes[0] for moment in moments]
        assert len(delays) == 5 and max(delays) < 1, (pushes, moments)
        print(f"the revoked user was disconnected from five servers within {max(delays):.3f} s")
        cluster.log_out("shop")

        cluster.accounts = copy.deepcopy(ACCOUNTS)
        back = cluster.apply()
        assert sum(one["count"] for one in back["ORDERS"]["closes"]) == 0
        assert sum(one["count"] for one in back["BILLING"]["closes"]) == 5
        assert cluster.closed() == {"reader": 5}
        assert {row["state"] for name, row in cluster.plan().items() if name in ACCOUNTS} == {"same"}
        # When the load ends, each of its clients disconnects.
        lost_connections = disconnections
    assert cluster.controller.run(load.verify(), timeout=300) == []
    report = load.report()
    print(report)
    assert report.acknowledged > 50
    # The changes closed no connection of the load, whose role stayed unchanged, and no message was sent twice.
    assert (lost_connections, report.retries) == (0, 0)


class MigratingCluster(Cluster):
    """A cluster with static accounts whose names are public keys. The login of the modules works in both modes."""

    def __init__(self, controller: Controller, directory: Path, version: str) -> None:
        super().__init__(controller)
        self.operator = make_operator(directory, "APP", strict=True)
        users = [{"user": user, "password": f"{user}-pass"} for user in ("app", "legacy")]
        self.static: dict[str, Any] = {
            "nats_server_accounts": {self.operator.keys["APP"]: {"jetstream": True, "users": users}}
        }
        resolver = {"type": "full", "dir": "/nats/jwt", "allow_delete": True, "interval": "1s"}
        self.with_operator: dict[str, Any] = {
            "nats_server_accounts": {},
            "nats_server_operator": self.operator.jwt,
            "nats_server_config": {"resolver": resolver, "resolver_preload": self.operator.accounts},
        }
        self.variables.update(
            **file_install(version),
            nats_server_system_account=self.operator.system_account,
            nats_server_api_credentials=str(self.operator.creds["SYS"]),
        )

    def migrate(self, variables: dict[str, Any]) -> str:
        """Deploy with these variables, which must restart every server; return the output."""
        before = self.pids()
        run = self.deploy(**variables)
        assert run.status == 0, run.output
        assert self.restarted(before) == set(self.hosts)
        return " ".join(run.output.split())

    def may_log_in(self, **login: Any) -> bool:
        async def log_in() -> bool:
            try:
                client = await nats.connect(self.urls(), allow_reconnect=False, connect_timeout=2, **login)
            except nats.errors.Error:
                return False
            await client.close()
            return True

        return self.controller.run(log_in())


@pytest.mark.parametrize("version", VERSIONS)
def test_static_accounts_enter_and_leave_operator_mode_under_load(
    controller: Controller, tmp_path: Path, version: str
) -> None:
    cluster = MigratingCluster(controller, tmp_path, version)
    run = cluster.deploy(**cluster.static)
    assert run.status == 0, run.output
    app = {"user": "app", "password": "app-pass", "user_credentials": str(cluster.operator.creds["APP"])}
    legacy = {"user": "legacy", "password": "legacy-pass"}
    load = Load(cluster.urls(), plan=LoadPlan(streams={"LOAD3": 3}, rate=20), **app)
    cluster.controller.run(load.prepare(), timeout=90)
    assert cluster.may_log_in(**legacy)
    with cluster.running(load):
        there = cluster.migrate(cluster.with_operator)
        assert "2 users can no longer log in without a JWT: app, legacy" in there
        assert not cluster.may_log_in(**legacy)
        assert cluster.may_log_in(**app)
        assert cluster.deploy(**cluster.with_operator).changed == []
        back = cluster.migrate(cluster.static)
        assert "no user with a JWT can log in any longer" in back
        assert cluster.may_log_in(**legacy)
        assert not cluster.may_log_in(user_credentials=app["user_credentials"])
    assert cluster.controller.run(load.verify(), timeout=300) == []
    print(load.report())
    assert load.report().acknowledged > 50
