# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules work in operator mode with users that they mint themselves, whose permissions are sufficient and minimal."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.accounts.minted_logins import (
    account_logins,
    system_login,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.nats import connection as nats_connection
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.accounts import Connections
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import (
    Call,
    Client,
    ConnectionOptions,
    Download,
    NatsFailure,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from support.minted_site import NATSOPS, Minted
from support.module_runs import Runner, form
from support.operator_site import NAMES, Site


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "strict"])
def site(
    version: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, run_module: Runner
) -> Iterator[Site]:
    found = Site(version, tmp_path_factory.mktemp("minted"), "full", 'interval: "1s"', strict=request.param)
    try:
        found.form(run_module)
        form(found.servers, run_module)
        found.servers.add_stream("FORMED", 3)
        yield found
    finally:
        found.servers.kill()


@pytest.fixture(scope="module")
def minted(site: Site, tmp_path_factory: pytest.TempPathFactory, run_module: Runner) -> Minted:
    found = Minted(site.operator, site.servers.urls, tmp_path_factory.mktemp("keys"), run_module)
    for account in ("SYS", "APP"):
        found.declare(account, NATSOPS)
    return found


@pytest.fixture
def ok(minted: Minted, run_module: Runner) -> Any:
    """Return a function that runs a module with minted users, and checks that it succeeds and returns no secret."""

    def run(module: str, **options: Any) -> dict[str, Any]:
        system_only = options.pop("system_only", False)
        found = run_module(module, minted.system() if system_only else minted.connection(), **options)
        assert not found.get("failed"), found
        return found

    return run


def test_assets_are_managed_and_backed_up(ok: Any, site: Site, tmp_path: Path) -> None:
    stream = {"account": "APP", "stream": "ORDERS"}
    assert ok("nats_stream", **stream, subjects=["orders.>"], num_replicas=3)["changed"]
    assert not ok("nats_stream", **stream, subjects=["orders.>"], num_replicas=3)["changed"]
    assert ok("nats_consumer", **stream, consumer="worker", ack_policy="explicit")["changed"]
    assert ok("nats_kv_bucket", account="APP", bucket="settings", num_replicas=3)["changed"]
    assert ok("nats_object_bucket", account="APP", bucket="files")["changed"]
    for number in range(20):
        site.servers.app_request("orders.new", {"number": number}, members=0)
    assert {row["name"] for row in ok("nats_stream_info")["streams"]} >= {"ORDERS", "KV_settings", "OBJ_files"}
    saved = ok("nats_backup", directory=str(tmp_path), streams=["APP/ORDERS"])
    assert saved["changed"]
    assert ok("nats_stream", **stream, state="absent", allow=["data_loss", "in_use"])["changed"]
    assert ok("nats_restore", directory=str(tmp_path), streams=["APP/ORDERS"])["changed"]
    assert site.servers.app_request("$JS.API.STREAM.INFO.ORDERS")["state"]["messages"] == 20


def test_single_operations_work_without_publishing_to_own_subjects(
    ok: Any, minted: Minted, run_module: Runner, site: Site, version: str, tmp_path: Path
) -> None:
    site.servers.add_stream("SINGLE", 3)
    site.servers.app_request("SINGLE.a", {"number": 1})
    single = {"account": "APP", "stream": "SINGLE"}
    (stream,) = ok("nats_stream_info", **single, details=["gaps", "subjects"])["streams"]
    assert (stream["gaps"], stream["subject_counts"]) == ([], {"SINGLE.a": 1})
    one = {"sequences": [1], "filter": "SINGLE.a", "expected": 1}
    assert ok("nats_stream", **single, state="purged", purge=one, allow=["data_loss"])["purged"] == 1
    ok("nats_consumer", **single, consumer="worker")
    if not version.startswith("2.10"):
        assert not ok("nats_consumer", **single, consumer="worker", state="reset")["changed"]
    assert ok("nats_stream_benchmark", account="APP", messages=10)["consume"]["messages"] == 10
    ok("nats_kv_bucket", account="APP", bucket="read")
    assert ok("nats_kv_entry_info", account="APP", bucket="read")["entries"] == []
    ok("nats_object_bucket", account="APP", bucket="read")
    assert ok("nats_object_info", account="APP", bucket="read")["objects"] == []
    (tmp_path / "file").write_text("1")
    writes = (
        ("nats_kv_entry", {"key": "a", "value": "1"}),
        ("nats_object", {"name": "a", "src": str(tmp_path / "file")}),
    )
    for module, options in writes:
        told = run_module(module, minted.connection(), account="APP", bucket="read", **options)
        assert told["failure"]["code"] == "permission"
        assert "use a user of the account that may publish there (the role natsops may not)" in told["msg"]


def test_purge_of_an_account_needs_more_than_the_role(minted: Minted, run_module: Runner, site: Site) -> None:
    purge = {"account": "APP", "streams": ["NOTHERE"], "allow": ["data_loss"], "timeout": 2}
    other = {"account": site.operator.keys["OTHER"], "streams": [], "unlisted": True, "allow": ["data_loss"]}
    told = run_module("nats_account_purge", minted.system(), **other)
    assert told["failure"]["code"] == "permission", told
    own_user = site.servers.sys_connection()
    told = run_module("nats_account_purge", own_user, **purge)
    assert "FORMED exists, but is not listed" in told["msg"]
    assert run_module("nats_account_purge", own_user, **other)["changed"]
    assert site.servers.app_request("$JS.API.STREAM.INFO.FORMED")["config"]["name"] == "FORMED"


def test_cluster_operations_work(ok: Any, site: Site) -> None:
    site.servers.add_stream("MOVED", 3)
    leader = site.servers.app_request("$JS.API.STREAM.INFO.MOVED")["cluster"]["leader"]
    assert ok("nats_stream_stepdown", account="APP", stream="MOVED", away_from=[leader])["changed"]
    leader = site.servers.app_request("$JS.API.STREAM.INFO.MOVED")["cluster"]["leader"]
    ok("nats_server_evacuate", server_name=leader)
    ok("nats_repair", check_mode=True, expected_servers=NAMES)
    ok("nats_leader_rebalance", check_mode=True, cluster="C1")
    ok("nats_meta_stepdown", system_only=True, force=True)
    ok("nats_cluster_info", system_only=True, expected_servers=NAMES)
    ok("nats_account_claims_info", system_only=True, expected_servers=NAMES)
    ok("nats_connection_info", system_only=True)
    assert ok("nats_cluster_health", system_only=True, expected_servers=NAMES, samples=1, span=0)["healthy"]
    tested = ok("nats_cluster_smoke_test", expected_servers=NAMES)
    assert (tested["account"], tested["stream"]["replicas"], tested["pairs"]["tested"]) == ("APP", 3, 6)


def own(minted: Minted) -> ConnectionOptions:
    options = ConnectionOptions(servers=tuple(minted.urls), timeout=3)
    return system_login(options, str(minted.seeds["SYS"]), minted.operator.keys["SYS"])


def app(minted: Minted) -> ConnectionOptions:
    logins = account_logins(own(minted), [{"account": "APP", "key_directory": str(minted.keys)}])
    return logins.users[minted.operator.keys["APP"]].options


DENIED_SYSTEM = ("$JS.API.ACCOUNT.PURGE.ACX", "$SYS.ACCOUNT.ACX.CONNECT", "orders.new")
DENIED_ACCOUNT = ("orders.new", "$KV.settings.key", "$O.files.C.x", "$SYS.REQ.SERVER.PING", "_INBOX.natsops.other")


@pytest.mark.parametrize("account", ["SYS", "APP"])
def test_other_subjects_are_denied(minted: Minted, account: str) -> None:
    with Client(own(minted) if account == "SYS" else app(minted)) as client:
        denied = DENIED_SYSTEM if account == "SYS" else DENIED_ACCOUNT
        refusals = client.publish([Call(subject) for subject in denied])
        assert [refusal and refusal.code for refusal in refusals] == ["permission"] * len(denied)
        # The private inbox of another user of the same role.
        for subject in ("_INBOX.>", "_INBOX.natsops.>", f"{app(minted).inbox_prefix}.>", "orders.>", ">"):
            with pytest.raises(NatsFailure) as refused:
                client.observe([subject], 0.05, lambda _message: False)
            assert refused.value.code == "permission", subject
        client.observe([f"{client.options.inbox_prefix}.>"], 0.05, lambda _message: False)


@pytest.mark.parametrize(
    ("role", "rules"),
    [("natsops", {"builtin": "natsops"}), ("own", {"allow": {"pub": ["$JS.API.>"], "sub": ["_INBOX.>"]}})],
)
def test_creds_of_a_role_need_no_inbox_prefix(
    role: str, rules: dict[str, Any], minted: Minted, run_module: Runner, tmp_path: Path
) -> None:
    seed = minted.seeds["APP"]
    minted.declare("APP", {**NATSOPS, role: rules})
    minted.seeds["APP"] = seed  # of the role natsops, not of the new role
    file = tmp_path / "team.creds"
    user = {"account": "APP", "name": "team", "role": role, "key_directory": str(minted.keys), "dest": str(file)}
    issued = run_module("nats_user_credentials", minted.system(), **user)
    assert not issued.get("failed"), issued
    login = {"servers": minted.urls, "credentials": str(file)}
    found = run_module("nats_stream_info", login, stream="FORMED")
    assert [one["name"] for one in found["streams"]] == ["FORMED"], found
    # The file of an account's user is read as well, next to a minted user of the system account.
    users = [{"account": "APP", "credentials": str(file)}]
    found = run_module("nats_stream_info", minted.system(), account="APP", account_users=users, stream="FORMED")
    assert [one["name"] for one in found["streams"]] == ["FORMED"], found
    denied = run_module("nats_stream_info", {**login, "inbox_prefix": "_INBOX_other"}, stream="FORMED")
    assert "the user may not subscribe to _INBOX_other.>" in denied["msg"]


def test_login_is_renewed_before_it_expires(minted: Minted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_connection, "LOGIN_SECONDS", 3.0)
    with Client(own(minted)) as client:
        identities = set()
        end = time.monotonic() + 8
        while time.monotonic() < end:
            # This request is not repeated if the connection is lost.
            client.request(Call("$SYS.REQ.SERVER.PING.STATSZ"))
            identities.add(client.identity)
        assert len(identities) >= 3
    with Client(own(minted)) as client:
        client.connect()
        before = client.identity
        # No call renews the login of an idle connection, so the server closes it.
        with pytest.raises(NatsFailure, match="user authentication expired"):
            client.observe([f"{client.options.inbox_prefix}.>"], 10, lambda _message: False)
        client.request(Call("$SYS.REQ.SERVER.PING.STATSZ"))
        assert client.identity != before


def test_transfer_may_take_longer_than_a_login(minted: Minted, monkeypatch: pytest.MonkeyPatch, site: Site) -> None:
    monkeypatch.setattr(nats_connection, "LOGIN_SECONDS", 2.0)
    site.servers.add_stream("LONG", 1)
    site.servers.app_request("LONG.x", {"data": base64.b64encode(os.urandom(20_000)).decode()}, members=0)
    with Connections(app(minted), {}) as connections:
        client = connections.own
        client.request(Call("$JS.API.INFO"))
        received: list[int] = []
        began = time.monotonic()
        client.download(
            Download(
                lambda inbox: Call(
                    "$JS.API.STREAM.SNAPSHOT.LONG", f'{{"deliver_subject": "{inbox}", "chunk_size": 1024}}'.encode()
                ),
                lambda _reply: None,
                lambda chunk: received.append(len(chunk)),
                3,
                3,
                rate=5000.0,
            )
        )
        assert time.monotonic() - began > 2.0 and sum(received) > 10_000


def test_expired_login_is_refused_with_its_causes(minted: Minted) -> None:
    login = own(minted).minted
    assert login is not None
    token = login.token(1)
    options = replace(own(minted), minted=replace(login, token=lambda _seconds: token))

    def failure() -> NatsFailure | None:
        with Client(options) as client:
            try:
                client.connect()
            except NatsFailure as refused:
                return refused
        return None

    refused = wait_until(failure, lambda found: found is not None and found.code == "authorization", 10).value
    assert refused is not None
    assert refused.code == "authorization", refused.description
    assert f"a short-lived user of account {minted.operator.keys['SYS']}" in refused.description
    assert "the clock of this host" in refused.description


def test_missing_role_names_account_and_remedy(minted: Minted, run_module: Runner, site: Site, tmp_path: Path) -> None:
    site.servers.add_stream("THEIRS", 1, "OTHER")
    connection = minted.connection()
    refused = run_module("nats_stream", connection, account="OTHER", stream="THEIRS", subjects=["THEIRS.>"])
    expected = (
        "account OTHER has no role natsops, so no user can be minted. Add signing_keys: {natsops: {builtin: natsops}}"
    )
    assert expected in refused["msg"], refused
    assert not run_module("nats_stream_info", connection, account="APP").get("failed")
    named = {**minted.system(), "account_users": [{"account": "OTHER", "key_directory": str(minted.keys)}]}
    assert expected in run_module("nats_stream_info", named)["msg"]
    empty = {**minted.system(), "account_users": [{"account": "*", "key_directory": str(tmp_path)}]}
    message = run_module("nats_stream_info", empty)["msg"]
    assert f"account APP: {tmp_path} does not have the seed of {minted.seeds['APP'].stem}" in message


def test_plain_signing_key_gives_its_user_the_same_permissions(minted: Minted, site: Site, run_module: Runner) -> None:
    seed = site.operator.user_signers["APP"].seed
    users = [{"account": "APP", "account_seed": seed}]
    found = run_module("nats_stream_info", {**minted.system(), "account_users": users})
    assert not found.get("failed"), found
    assert seed not in str(found)
    options = account_logins(own(minted), users).users[site.operator.keys["APP"]].options
    with Client(options) as client:
        assert client.request(Call("$JS.API.INFO")).body
        (refusal,) = client.publish([Call("orders.new")])
        assert refusal and refusal.code == "permission"
    foreign = [{"account": "OTHER", "account_seed": seed}]
    refused = run_module("nats_stream_info", {**minted.system(), "account_users": foreign})
    assert "which is not a signing key of the account" in refused["msg"]


def test_dropped_key_and_revoked_users_are_refused(minted: Minted, site: Site, run_module: Runner) -> None:
    before = minted.seeds["APP"]
    options = app(minted)
    minted.declare("APP", NATSOPS, revoke={"*": "2100-01-01T00:00:00Z"})
    refused = run_module("nats_stream_info", minted.connection(), account="APP")
    assert "revoked: the account accepts only JWTs issued after 2100-01-01T00:00:00Z" in refused["msg"]
    minted.declare("APP", {}, "drop_key")
    assert "account APP has no role natsops" in run_module("nats_stream_info", minted.connection())["msg"]
    with Client(options) as client, pytest.raises(NatsFailure) as left:
        client.connect()
    assert "Check that the account has this signing key" in left.value.description
    minted.declare("APP", NATSOPS)
    assert minted.seeds["APP"] != before
    assert not run_module("nats_stream_info", minted.connection(), account="APP").get("failed")


def test_wrong_options_are_refused(minted: Minted, run_module: Runner, tmp_path: Path) -> None:
    system = minted.system()
    without = run_module("nats_cluster_info", {**system, "account_key": "SYS"})
    assert without["msg"].startswith("account_key: must be the public key (A...)")
    absent = run_module("nats_cluster_info", {**system, "account_seed": str(tmp_path / "none.nk")})
    assert absent["msg"].startswith("account_seed: cannot read ")
