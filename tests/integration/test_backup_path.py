# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One stream is saved to `path` and restored from there, as a user of the system account, of the owning account, and of
this stream only. `test_stream_backup` compares the content of the streams."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.backup.store import DirectoryStore
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from support.backup_site import Accounts, Run, only_row, some_messages
from support.nats_processes import APP_PASSWORD, NatsProcesses

#: A user that may read one stream, but list none.
READER = f"""{{user: reader, password: {APP_PASSWORD!r}, permissions: {{
  publish: {{allow: [
    "$JS.API.STREAM.INFO.ORDERS", "$JS.API.STREAM.SNAPSHOT.ORDERS", "$JS.API.CONSUMER.LIST.ORDERS", "$JS.SNAPSHOT.ACK.>"
  ]}}
  subscribe: {{allow: ["_INBOX.>"]}}
}}}}"""


class OneStream(Accounts):
    """Saves and restores single streams, by default as a user of the system account with users of two accounts."""

    def run(self, name: str, /, check_mode: bool = False, **options: Any) -> dict[str, Any]:
        connection = {**self.cluster.sys_connection(), **options.pop("connection", {})}
        given = {"account_users": self.cluster.account_users(), **options}
        return self._run_module(f"nats_{name}", connection, check_mode, **given)


@pytest.fixture(scope="module")
def cluster(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsProcesses]:
    accounts = {"APP": "app", "OTHER": "other"}
    made = NatsProcesses(version, tmp_path_factory.mktemp("path"), ["n1"], cluster="", accounts=accounts)
    made.write_config("n1")
    config = made.config_file("n1").read_text()
    assert "[{user: app," in config
    made.config_file("n1").write_text(config.replace("[{user: app,", f"[{READER}, {{user: app,"))
    made.start()
    try:
        yield made
    finally:
        made.kill()


@pytest.fixture
def accounts(cluster: NatsProcesses, tmp_path: Path, run_module: Run) -> Iterator[OneStream]:
    made = OneStream(cluster, run_module, tmp_path / "backup")
    assert wait_until(made.sites["APP"].api.stream_names, lambda _names: True, 20).done
    yield made
    made.clear()
    for site in made.sites.values():
        site.client.close()


def test_a_stream_is_saved_and_restored_by_a_user_of_the_system_account(accounts: OneStream, tmp_path: Path) -> None:
    site = accounts.sites["APP"]
    site.add("SAVED")
    site.cluster.add_consumer("SAVED", "worker")
    record = site.produce(some_messages("SAVED", 30))
    site.consume("SAVED", "worker", record, fetch=5, ack=5)
    path = tmp_path / "backup"
    options: dict[str, Any] = {"streams": ["APP/SAVED"], "path": str(path)}
    predicted = only_row(accounts.run("backup", check_mode=True, **options))
    assert (predicted["changed"], predicted["path"], predicted["backup"]) == (True, None, None)
    assert not path.exists()
    saved = only_row(accounts.done("backup", **options))
    assert (saved["diff"], saved["reason"]) == (predicted["diff"], predicted["reason"])
    assert (saved["name"], saved["account"], saved["backup"]["account"]) == ("APP/SAVED", "APP", "APP")
    assert saved["backup"]["contents"]["messages"] == saved["messages"] == 30
    assert (saved["cluster"], saved["removed"], saved["future"]) == (None, [], [])
    # There is neither a catalogue nor a lock.
    assert [str(entry) for entry in path.iterdir()] == [saved["path"]]
    for check_mode in (True, False):
        again = only_row(accounts.run("backup", check_mode, **options))
        assert (again["changed"], again["path"], again["backup"]) == (False, saved["path"], saved["backup"])
    forced = only_row(accounts.run("backup", check_mode=True, force=True, **options))
    assert (forced["changed"], forced["reason"]) == (True, "requested by `force`")

    site.api.delete_stream("SAVED")
    planned = only_row(accounts.run("restore", check_mode=True, path=saved["path"]))
    assert (planned["changed"], planned["state"], planned["consumers"]) == (True, None, ["worker"])
    restored = only_row(accounts.done("restore", path=saved["path"]))
    assert restored["diff"] == planned["diff"] and restored["compared"]["digest"] == "same"
    assert (restored["first_seq"], restored["last_seq"], restored["state"]["messages"]) == (1, 30, 30)
    assert (restored["recreated"], restored["fewer_replicas"]) == ([], [])
    site.assert_restored("SAVED", record)
    for check_mode in (True, False):
        assert not accounts.run("restore", check_mode, path=saved["path"])["changed"]
    assert [str(entry) for entry in path.iterdir()] == [saved["path"]]

    site.produce([("SAVED.x", {}, b"later")])
    assert "last_seq is 31 instead of 30" in accounts.refused("restore", "exists", path=saved["path"])
    (skipped,) = accounts.done("restore", path=saved["path"], existing="skip")["streams"]
    assert (skipped["skipped"], skipped["changed"]) == (True, False)
    assert accounts.done("restore", path=saved["path"], account="OTHER", existing="skip")["changed"]
    accounts.sites["OTHER"].assert_restored("SAVED", record)


def test_a_user_who_may_only_read_one_stream_saves_it(accounts: OneStream, tmp_path: Path) -> None:
    site = accounts.sites["APP"]
    site.add("ORDERS")
    site.produce(some_messages("ORDERS", 5))
    login: dict[str, Any] = {
        "connection": {"user": "reader", "password": APP_PASSWORD, "timeout": 2},
        "account_users": [],
    }
    # This user cannot list streams.
    failed = accounts.run("backup", streams=["/ORDERS"], directory=str(tmp_path / "catalogue"), **login)
    assert failed.get("failed"), failed
    saved = only_row(accounts.done("backup", streams=["ORDERS"], path=str(tmp_path / "backup"), **login))
    assert (saved["messages"], saved["account"]) == (5, None)
    # The same stream with users of accounts, as that of the task's own user.
    login.pop("account_users")
    again = only_row(accounts.done("backup", streams=["/ORDERS"], path=str(tmp_path / "backup"), **login))
    assert (again["changed"], again["path"]) == (False, saved["path"])


def test_runs_do_not_lock_each_other_out(accounts: OneStream, tmp_path: Path) -> None:
    """A run over accounts has locked the parent directory, and a run of a different stream is writing to the same path."""
    site, path = accounts.sites["APP"], tmp_path / "one"
    site.add("ONE")
    site.produce(some_messages("ONE", 5))
    now = datetime.now(timezone.utc)
    with DirectoryStore(tmp_path).locked(), DirectoryStore(path).staged("TWO", now) as other:
        with other.create("stream.tar.s2") as file:
            file.write(b"half")
        saved = only_row(accounts.done("backup", streams=["APP/ONE"], path=str(path)))
        assert {entry.name for entry in path.iterdir()} == {Path(saved["path"]).name, other.folder}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"streams": ["APP/S"], "keep": {"last": 1}}, "keep: only with `directory`"),
        ({"streams": ["APP/S"], "accounts": ["APP"]}, "accounts: only with `directory`"),
        ({"streams": ["APP/S"], "exclude": ["APP/T"]}, "exclude: only with `directory`"),
        ({"streams": ["APP/S"], "cluster_files": {"a": "b"}}, "cluster_files: only with `directory`"),
        ({}, "streams: `path` saves exactly one stream, and * is a pattern: select one as ACCOUNT/STREAM"),
        ({"streams": ["APP/*"]}, "APP/* is a pattern"),
        ({"streams": ["APP/S", "APP/T"]}, "not 2 (APP/S, APP/T)"),
        ({"streams": ["APP"]}, "'APP' does not name one"),
        ({"streams": ["APP/a.b"]}, "streams: 'a.b' is not the name of one asset"),
        ({"streams": ["NONE/S"]}, "no user for account NONE"),
    ],
)
def test_unsuitable_options_are_refused(
    accounts: OneStream, tmp_path: Path, options: dict[str, Any], reason: str
) -> None:
    path = tmp_path / "backup"
    assert reason in accounts.refused("backup", "invalid_option", path=str(path), **options)
    assert not path.exists()


def test_either_a_directory_or_a_path_is_required(accounts: OneStream, tmp_path: Path) -> None:
    place, streams = str(tmp_path / "backup"), ["APP/S"]
    for name, options, reason in (
        ("backup", {"directory": place, "path": place}, "mutually exclusive: directory|path"),
        ("backup", {}, "one of the following is required: directory, path"),
        ("restore", {"directory": place, "path": place}, "mutually exclusive: directory|path"),
        ("restore", {"path": place, "streams": streams}, "mutually exclusive: path|streams"),
        ("restore", {"path": place, "at": "2026-11-23"}, "mutually exclusive: path|at"),
        ("restore", {"streams": streams}, "one of the following is required: directory, path"),
        ("restore", {"directory": place}, "missing parameter(s) required by 'directory': streams"),
    ):
        result = accounts.run(name, **options)
        assert result.get("failed") and reason in result["msg"], result
    assert "force: only with `path`" in accounts.refused("backup", "invalid_option", directory=place, force=True)
    assert not Path(place).exists()


def test_a_path_without_a_backup_is_refused(accounts: OneStream, tmp_path: Path) -> None:
    accounts.sites["APP"].add("KEPT")
    parent = tmp_path / "backup"
    accounts.done("backup", streams=["APP/KEPT"], path=str(parent))
    for path in (tmp_path / "missing", parent):
        told = accounts.refused("restore", "invalid_option", path=str(path))
        assert f"path: no backup in {path}" in told and "use `directory` and `streams`" in told
    assert not (tmp_path / "missing").exists()


def test_a_stream_that_does_not_exist_is_named(accounts: OneStream, tmp_path: Path) -> None:
    told = accounts.refused("backup", "api_error", streams=["APP/MISSING"], path=str(tmp_path / "backup"))
    assert "MISSING" in told
    assert not (tmp_path / "backup").exists()


def test_an_account_that_has_no_user_is_refused(accounts: OneStream, tmp_path: Path) -> None:
    """The task's own user must not get the stream of a different account."""
    accounts.sites["APP"].add("OWNED")
    saved = only_row(accounts.done("backup", streams=["APP/OWNED"], path=str(tmp_path)))
    login = {"connection": accounts.cluster.app_connection(), "account_users": []}
    told = accounts.refused("restore", "invalid_option", path=saved["path"], account="OTHER", **login)
    assert "no user for account OTHER" in told
    # A backup of the task's own account does not name its account.
    own = only_row(accounts.done("backup", streams=["OWNED"], path=str(tmp_path), **login))
    assert own["path"] != saved["path"]
    assert "does not name its account; set one" in accounts.refused("restore", "invalid_option", path=own["path"])
