# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A resident session executes the runs of other processes with the results, messages and exit statuses of separate runs."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from jetstream_insights import cli
from jetstream_insights.files import LakeError
from jetstream_insights.findings import REGISTRY
from jetstream_insights.resident import ask, serve
from jetstream_insights.session import FOR_LITTLE, SizeSettings
from pyspark.sql import SparkSession
from support.fleet import START, Fleet
from support.lakes import published_rows
from support.spark_cluster import resident, wait

DAY = ["--from", "2026-11-01", "--to", "2026-11-02"]
#: All other checks are skipped: the results of each check are tested elsewhere.
KEPT = "SERVER_116"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with two equal lakes."""
    made = tmp_path_factory.mktemp("resident")
    for name in ("own", "session"):
        Fleet(3, 3).write(made / name, 300)
    (made / "thresholds.json").write_text(json.dumps({"skip": sorted(REGISTRY.checks.keys() - {KEPT})}))
    return made


@pytest.fixture(scope="module")
def path(folder: Path) -> Iterator[Path]:
    """Return the socket of a session in another process."""
    with resident(found := folder / "socket", "--master", "local[1]"):
        yield found


def test_a_run_in_the_session_has_the_results_of_a_run_of_its_own(
    folder: Path, path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    outputs = []
    for lake, options in (("own", []), ("session", ["--session", "socket"])):
        arguments = ["silver", "findings", *DAY, "--thresholds", "thresholds.json", "--lake", lake]
        assert cli.main([*arguments, *options]) == cli.DONE
        outputs.append(capfd.readouterr())
    assert outputs[0].out == outputs[1].out and len(outputs[1].out.splitlines()) == 2
    assert "findings" in outputs[1].err and "No session" not in outputs[1].err
    own, session = (published_rows(folder / lake, "findings", START.date()) for lake in ("own", "session"))
    assert own == session and own["findings_summary"]


def test_statuses_and_messages_reach_the_client(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["silver", "--lake", "/no/lake", "--session", str(path)]) == cli.FAILED
    assert "FAILED: silver: " in capfd.readouterr().err
    tmp_path.rmdir()
    monkeypatch.setattr(os, "getcwd", lambda: str(tmp_path))
    assert ask(path, ["verify"], cli.say) == cli.REFUSED
    assert f"the session cannot use {tmp_path}: No such file or directory" in capfd.readouterr().err
    monkeypatch.undo()
    assert ask(path, ["silver", "--no-such-option"], cli.say) == cli.REFUSED
    assert "unrecognized arguments" in capfd.readouterr().err
    assert cli.main(["verify", "--session", str(path)]) == cli.DONE
    assert json.loads(capfd.readouterr().out)["job"] == "verify"


def test_a_second_session_is_refused_and_a_client_that_ends_does_no_harm(
    path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(LakeError, match="another session already uses"):
        serve(path, lambda _arguments: 0, lambda: None, cli.say)
    for request in ("", "no JSON\n", json.dumps({"arguments": ["verify"], "directory": "/"}) + "\n"):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(request.encode())
    assert ask(path, ["verify"], cli.say) == cli.DONE


def test_without_a_session_spark_is_started_for_the_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    left = tmp_path / "left by a killed session"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(left))
    for path in (tmp_path / "missing", left):
        assert cli.main(["verify", "--session", str(path)]) == cli.DONE
        assert f"No session is running at {path}" in capfd.readouterr().err


@pytest.mark.parametrize(("answer", "status"), [(b"", None), (b'["err", "silver"]\n', 1), (b"no JSON\n", 1)])
def test_a_run_is_lost_with_its_session_only_after_it_began(
    tmp_path: Path, answer: bytes, status: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as session:
        session.bind(str(path))
        session.listen()

        def end_early() -> None:
            with session.accept()[0] as connection:
                connection.makefile().readline()
                connection.sendall(answer)

        thread = threading.Thread(target=end_early)
        thread.start()
        assert ask(path, ["silver"], cli.say) == status
        thread.join()
    assert ("ended before the run did" in capsys.readouterr().err) == (status == 1)


@pytest.mark.parametrize("arguments", [["session"], ["session", "--lake", "x"], ["session", "silver"]])
def test_a_session_without_a_socket_or_with_other_jobs_is_refused(arguments: Sequence[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        cli.main(arguments)
    assert refused.value.code == cli.REFUSED


def test_an_old_session_ends_and_each_run_is_followed_by_a_test_of_the_jvm(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    directories: list[str] = []

    def run(_arguments: Sequence[str]) -> int:
        directories.append(os.getcwd())
        return 3

    told: list[str] = []
    tests: list[None] = []
    before = os.getcwd()
    thread = threading.Thread(target=serve, args=(path, run, lambda: tests.append(None), told.append, 2))
    thread.start()
    try:
        wait(lambda: bool(told), path)
        assert ask(path, ["silver"], cli.say) == 3
    finally:
        thread.join(timeout=30)
        os.chdir(before)
    assert not thread.is_alive() and not path.exists() and directories == [before] and len(tests) == 1


def test_settings_follow_the_amount_of_data_and_the_users_own_stay(spark: SparkSession) -> None:
    names = sorted(FOR_LITTLE)
    before = {name: spark.conf.get(name, None) for name in names}
    sizes = SizeSettings(spark)
    own = {name for name in names if name not in sizes._usual}
    sizes.use(True)
    assert {name: spark.conf.get(name) for name in names if name not in own} == {
        name: value for name, value in FOR_LITTLE.items() if name not in own
    }
    sizes.use(False)
    assert {name: spark.conf.get(name, None) for name in names} == before
