# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests the event sources without ansible-rulebook, called as ansible-rulebook calls them."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import nats
import pytest
import yaml
from ansible_collections.natsops.jetstream.plugins.module_utils.health.cause import ClusterContext
from ansible_collections.natsops.jetstream.plugins.module_utils.health.causes import root_causes
from ansible_collections.natsops.jetstream.plugins.module_utils.problem import Problem
from ansible_collections.natsops.jetstream.plugins.plugin_utils import _event_source
from support.credentials import make_certificates, make_jwt, new_user, write_creds
from support.module_runs import form, run_in_process
from support.nats_processes import VERSIONS, NatsProcesses
from support.operator_site import Site
from support.rulebooks import TIMEOUT, NextEvent, refusal, run_source, source, sources_folder

NAMES = ["n1", "n2", "n3"]
FRAGMENTS = "ansible_collections.natsops.jetstream.plugins.doc_fragments"


def test_it_listens_again_after_the_connection_was_lost(secure: Secure, caplog: pytest.LogCaptureFixture) -> None:
    arguments = {**secure.sys_connection(), "timeout": 1}

    async def work(event: NextEvent) -> None:
        def logged(text: str, times: int) -> Awaitable[None]:
            async def wait() -> None:
                deadline = time.monotonic() + TIMEOUT
                while caplog.text.count(text) < times:
                    assert time.monotonic() < deadline, caplog.text
                    await asyncio.sleep(0.05)

            return wait()

        await logged("connected", 1)
        tasks = len(asyncio.all_tasks())
        secure.kill()
        await logged("trying again in 2 s", 1)
        secure.start()
        await logged("connected again", 1)
        assert len(asyncio.all_tasks()) <= tasks
        await asyncio.to_thread(secure.stop, "n3")
        assert (await event(type="shutdown"))["server"] == "n3"

    with caplog.at_level(logging.INFO):
        run_source("nats_advisories", arguments, work)


@pytest.mark.parametrize("name", ["nats_advisories", "nats_health", "nats_insights"])
def test_each_option_is_described_as_it_is(name: str) -> None:
    module = source(name)
    described = yaml.safe_load(module["DOCUMENTATION"])
    options = dict(described["options"])
    for fragment in described.get("extends_documentation_fragment", ()):
        found = importlib.import_module(f"{FRAGMENTS}.{fragment.rpartition('.')[2]}").ModuleDocFragment
        options.update(yaml.safe_load(found.DOCUMENTATION)["options"])
    spec = {**(_event_source.CONNECTED_SPEC if "servers" in options else {}), **module["SPEC"]}
    assert sorted(options) == sorted(spec)
    for option, rule in spec.items():
        said = options[option]
        assert (said["type"], said.get("elements"), said.get("default"), said.get("choices"), said.get("required")) == (
            rule["type"],
            rule.get("elements"),
            rule.get("default"),
            rule.get("choices"),
            rule.get("required"),
        ), option
    for example in yaml.safe_load(module["EXAMPLES"]):
        assert set(example[f"natsops.jetstream.{name}"]) <= set(spec)


def test_empty_options_are_omitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NATS_URL", raising=False)
    connection = {"servers": ["n1"], "user": "app", "password": "p", "token": ""}
    arguments = {"connection": connection, "servers": "", "timeout": 2, "context": ""}
    _params, options = _event_source.checked_with_connection(arguments, {})
    assert (options.servers, options.user, options.password, options.timeout) == (("n1",), "app", "p", 2)


def test_event_sources_work_next_to_the_package_ansible(tmp_path: Path) -> None:
    """The package ansible contains a folder ansible_collections that is a Python package and hides all others."""
    package = tmp_path / "ansible_collections"
    package.mkdir()
    (package / "__init__.py").touch()
    command = [sys.executable, str(sources_folder() / "nats_health.py")]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_event_names_the_root_cause_of_its_problem() -> None:
    tracker = source("nats_health")["ProblemTracker"](min_duration=0, repeat=0)
    gone = Problem("server_missing", "error", "n3", "expected server n3 did not answer", ("n3",))
    lost = Problem("stream_no_leader", "error", "stream APP/ORDERS", "no leader", absent=("n3",))
    events = tracker.due_events([gone, lost], 0, root_causes([gone, lost], ClusterContext()))
    named = {"kind": "servers_down", "title": "n3 does not answer: stream APP/ORDERS has no quorum", "servers": ["n3"]}
    assert [event["cause"] for event in events] == [named, named]
    assert events[1]["absent"] == ["n3"]
    # When a problem ends, its event names the cause that explained it.
    assert [event["cause"] for event in tracker.due_events([], 1)] == [named, named]


def test_an_ongoing_problem_is_reported_when_it_is_due() -> None:
    tracker = source("nats_health")["ProblemTracker"](min_duration=10, repeat=100)
    gone = Problem("server_missing", "error", "n3", "expected server n3 did not answer", ("n3",))
    short = Problem("server_silent", "error", "n1", "n1 did not answer HEALTHZ", ("n1",))
    unreachable = Problem("unreachable", "error", "cluster", "cannot connect")

    def due(now: float, *problems: Problem) -> list[tuple[str, str, int]]:
        return [(event["code"], event["state"], event["seconds"]) for event in tracker.due_events(problems, now)]

    assert due(0, gone, short) == []
    assert due(9, gone) == []
    assert due(10, gone) == [("server_missing", "present", 10)]
    assert due(50, gone) == []
    assert due(110, gone) == [("server_missing", "present", 110)]
    assert due(120, unreachable) == []
    assert due(130, unreachable) == [("unreachable", "present", 10)]
    assert due(140, gone) == [("unreachable", "solved", 20)]
    assert due(150) == [("server_missing", "solved", 150)]
    assert due(160, gone) == []
    assert due(169, gone) == []


def test_without_repeat_it_is_reported_once() -> None:
    tracker = source("nats_health")["ProblemTracker"](min_duration=0, repeat=0)
    gone = Problem("server_missing", "error", "n3", "expected server n3 did not answer", ("n3",))
    assert [len(tracker.due_events([gone], now)) for now in (0, 1, 100_000)] == [1, 0, 0]


class Secure(NatsProcesses):
    """A cluster with certificates that expire in a day, and a user `narrow` with access to the JetStream API and
    nothing more."""

    def __init__(self, version: str, directory: Path) -> None:
        self.files = make_certificates(directory)
        tls = f'tls {{ cert_file: "{self.files.cert}", key_file: "{self.files.key}" }}'
        super().__init__(version, directory, NAMES, extra=tls)
        for name in NAMES:
            self.write_config(name)
            narrow = "{user: narrow, password: 'app-pass', permissions: {publish: '$JS.API.>', subscribe: '_INBOX.>'}}"
            config = self.config_file(name)
            config.write_text(config.read_text().replace("users: [{user: app,", f"users: [{narrow}, {{user: app,"))

    def sys_connection(self) -> dict[str, Any]:
        return {**super().sys_connection(), "tls_ca_file": str(self.files.ca)}

    def app_connection(self) -> dict[str, Any]:
        return {**super().app_connection(), "tls_ca_file": str(self.files.ca)}


@pytest.fixture(params=VERSIONS)
def secure(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Secure]:
    made = Secure(request.param, tmp_path)
    made.start()
    try:
        form(made)
        yield made
    finally:
        made.kill()


def test_health(secure: Secure) -> None:
    """A server stops and starts again, then all servers stop; certificates expire in a day, which old servers do not
    report."""
    arguments = {"connection": secure.sys_connection(), "expected_servers": NAMES, "certificate_days": 2}
    arguments.update(interval=0.5, timeout=1)

    async def work(event: NextEvent) -> None:
        if secure.version.startswith("2.10"):
            assert (await event(code="certificate_unknown", server="n2"))["severity"] == "warning"
        else:
            expiry = await event(code="certificate_expiring", server="n2")
            assert expiry["message"].startswith("the certificate of n2 (server) ends in 1.0 days")
        secure.kill("n3")
        first = await event(code="server_missing", state="present", server="n3")
        assert first["severity"] == "error"
        secure.start("n3")
        last = await event(code="server_missing", state="solved", server="n3")
        assert last["since"] == first["since"]
        secure.kill()
        assert "cannot connect" in (await event(code="unreachable", state="present"))["message"]
        secure.start()
        assert await event(code="unreachable", state="solved")

    run_source("nats_health", arguments, work)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_event_names_the_connections_that_an_expiry_closes(version: str, tmp_path: Path) -> None:
    site = Site(version, tmp_path, "full")
    now, user, file = int(time.time()), new_user(), tmp_path / "shop.creds"
    times = {"iat": now - 28 * 86400, "exp": now + 3 * 86400}
    claims = {"type": "user", **dict.fromkeys(("subs", "data", "payload"), -1)}
    write_creds(file, make_jwt(site.operator.user_signers["APP"], user.public, "shop", claims, top=times), user)
    arguments = {"connection": site.servers.sys_connection(), "expected_servers": NAMES, "interval": 0.5}

    async def work(event: NextEvent) -> None:
        client = await nats.connect(site.servers.url("n1"), user_credentials=str(file))
        first = await event(code="jwt_expiring", state="present")
        assert first["message"].startswith("account APP: 1 connection of user shop will be closed"), first
        assert (first["subject"], first["severity"]) == (f"user APP {user.public}", "warning")
        assert "eyJ" not in json.dumps(first)
        await client.close()
        assert await event(code="jwt_expiring", state="solved")

    try:
        form(site.servers)
        run_source("nats_health", {**arguments, "jwt_days": 14}, work)
    finally:
        site.servers.kill()


def test_health_reports_drift_until_it_is_gone(secure: Secure, tmp_path: Path) -> None:
    file = tmp_path / "drift.json"
    arguments = {"connection": secure.sys_connection(), "drift": str(file), "interval": 0.5, "assets": False}

    def write(drifting: int) -> None:
        now = datetime.now(timezone.utc).isoformat()
        document = {"document": "orders", "cluster": "C1", "account": "APP", "problem": "", "assets": 3}
        found = {**document, "drifting": drifting, "differing": ["stream S: change"] * drifting}
        file.with_suffix(".new").write_text(json.dumps({"version": 1, "checked": now, "documents": [found]}))
        file.with_suffix(".new").rename(file)

    async def work(event: NextEvent) -> None:
        assert "run the playbook assets_drift" in (await event(code="drift_unknown", state="present"))["message"]
        write(1)
        assert await event(code="drift_unknown", state="solved")
        found = await event(code="drift", state="present")
        assert (found["subject"], found["severity"]) == ("document APP/orders", "warning")
        assert found["message"] == "different from the document: 1 of 3 assets: stream S: change"
        write(0)
        assert await event(code="drift", state="solved")

    run_source("nats_health", arguments, work)


def test_health_refuses_a_user_of_another_account(secure: Secure) -> None:
    arguments = secure.app_connection()
    assert "Use the credentials of a user of the system account" in refusal("nats_health", **arguments)
    assert "interval: must be more than 0 seconds" in refusal("nats_health", **arguments, interval=-1)


def test_missing_permission_to_acknowledge_is_reported(secure: Secure, caplog: pytest.LogCaptureFixture) -> None:
    narrow = {**secure.app_connection(), "user": "narrow", "timeout": 1}

    def add(name: str, subject: str) -> int:
        """Create a stream, and return the number of messages that KEPT then has."""
        app = secure.app_connection()
        made = run_in_process("nats_stream", app, stream=name, subjects=[subject], num_replicas=1)
        assert made.get("changed"), made
        return int(run_in_process("nats_stream_info", app, stream="KEPT")["streams"][0]["state"]["messages"])

    add("KEPT", "$JS.EVENT.ADVISORY.STREAM.CREATED.>")
    # A server that has not received the interest of the stream does not forward the message.
    assert any(add(f"SEEN{number}", f"seen.{number}") for number in range(20))

    async def work(event: NextEvent) -> None:
        assert (await event())["type"] == "stream_action"
        deadline = time.monotonic() + TIMEOUT
        while "ermission" not in caplog.text and time.monotonic() < deadline:
            await asyncio.sleep(0.1)

    with caplog.at_level(logging.WARNING):
        run_source("nats_advisories", {**narrow, "stream": "KEPT", "durable": "d", "deliver_policy": "all"}, work)
    assert "permission denied: the user may not publish to $JS.ACK.KEPT.d" in caplog.text


def test_insights(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The source waits for a report, and emits events for each new one."""
    path = tmp_path / "report.json"

    def write(generated: str, *rows: list[Any], number: int = 1) -> None:
        findings = {"columns": [["check", "check", "text"], ["value", "value", "number"]], "rows": rows}
        report = {
            "format": number,
            "title": "t",
            "day": "2026-11-21",
            "generated": generated,
            "tables": {"findings": findings},
        }
        path.with_suffix(".new").write_text(json.dumps(report))
        path.with_suffix(".new").rename(path)

    async def work(event: NextEvent) -> None:
        while "No such file" not in caplog.text:
            await asyncio.sleep(0.05)
        write("1", ["CAPACITY_201", 9.5], ["META_101", None])
        first = await event()
        assert (first["table"], first["row"], first["day"]) == (
            "findings",
            {"check": "CAPACITY_201", "value": 9.5},
            "2026-11-21",
        )
        assert (await event())["row"] == {"check": "META_101"}
        write("2", ["CAPACITY_201", 9.0])
        again = await event()
        assert again["row"]["value"] == 9.0 and again["id"] != first["id"]

    with caplog.at_level(logging.WARNING):
        run_source("nats_insights", {"report": str(tmp_path), "interval": 0.1}, work)
    assert caplog.text.count("No such file") == 1
    write("3", number=2)
    assert "has format 2; this version of the collection reads format 1" in refusal("nats_insights", report=str(path))
    assert "missing required arguments: report" in refusal("nats_insights")
