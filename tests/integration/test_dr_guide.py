# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the commands of docs/disaster_recovery.md verbatim on two sites."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.waiting import wait_until
from support.documents import Document, typed
from support.nats_processes import APP_PASSWORD, APP_USER, SYS_PASSWORD, collections_path
from support.site_pair import STREAM, Run, SitePair

pytestmark = pytest.mark.playbook

GUIDE = "docs/disaster_recovery.md"


@pytest.fixture
def make_pair(tmp_path: Path, run_module: Run) -> Iterator[Callable[[str], SitePair]]:
    made: list[SitePair] = []

    def make(name: str) -> SitePair:
        pair = SitePair("2.15.1", tmp_path / name, run_module)
        made.append(pair)
        pair.start()
        pair.add_stream()
        pair.add_consumer("worker")
        for number in range(20):
            pair.publish(pair.east, "orders.1", ident=f"m-{number}")
        pair.consume("worker", 8)
        pair.in_step()
        wait_until(pair.status, lambda row: row["state"] == "following", 20)
        return pair

    yield make
    for pair in made:
        pair.kill()


def inventory(pair: SitePair, folder: Path) -> None:
    """Write the inventory of the site as its operator would."""
    folder.mkdir(exist_ok=True)
    variables = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "nats_server_become": False,
        "nats_server_cluster_name": "west",
        "nats_server_host": "127.0.0.1",
        "nats_server_port": pair.west.ports["w1"],
        "nats_server_system_password": SYS_PASSWORD,
        "nats_server_contexts_on": "controller",
        "nats_server_contexts_dir": str(folder / "contexts"),
        "nats_cluster_account_users": [{"account": "APP", "user": APP_USER, "password": APP_PASSWORD}],
        "nats_cluster_dr": {
            "origin": {"name": "east", "servers": pair.east.urls, "jetstream_domain": "east"},
            "site": {"name": "west", "servers": pair.west.urls, "jetstream_domain": "west"},
            "streams": [{"account": "APP", "stream": STREAM}],
        },
    }
    groups = {"all": {"children": {"nats": {"hosts": {"w1": {}}, "vars": variables}}}}
    (folder / "inventory.yml").write_text(json.dumps(groups))
    (folder / "contexts").mkdir(exist_ok=True)
    for user in ("app", "sys"):
        context = {"url": ",".join(pair.east.urls), "user": user, "password": APP_PASSWORD}
        (folder / f"contexts/east-{user}.json").write_text(json.dumps(context))


def contexts_at(folder: Path) -> list[str]:
    """Return the URLs in the contexts of the application and of the system user."""
    return [json.loads((folder / f"contexts/east-{user}.json").read_text())["url"] for user in ("app", "sys")]


def run_command(command: str, folder: Path) -> str:
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": collections_path(),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "ANSIBLE_NOCOLOR": "true",
    }
    return typed(command, cwd=folder, env=environment)


def test_the_commands_from_the_first_checkpoint_to_the_failover(
    make_pair: Callable[[str], SitePair], tmp_path: Path
) -> None:
    planned = make_pair("planned")
    inventory(planned, tmp_path / "guide")
    commands = [command.text for block in Document(GUIDE).of("shell") for command in block.commands]
    assert len(commands) == 10
    for command in commands[:7]:
        output = run_command(command, tmp_path / "guide")
        if "dr_status" in command:
            assert "│ APP/ORDERS │ following │ 0 (0s) │ nothing" in output
        if "dr_drill" in command and "--check" in command:
            assert "a throw-away copy of" in output and planned.status()["drill"] is None
        elif "dr_drill" in command:
            assert "west can take over" in output and "with 1 consumers at their floors" in output
            assert planned.status()["drill"]["ok"]
        elif "--check" in command:
            assert "fence: the subjects of stream ORDERS of east are replaced by nats_dr.fenced.ORDERS" in output
            assert contexts_at(tmp_path / "guide") == planned.east.urls * 2
            assert planned.east_api.stream(STREAM)["config"]["subjects"] == ["orders.>"]
    assert "nothing is lost: the site has all messages of its fenced origin" in output
    assert contexts_at(tmp_path / "guide") == planned.west.urls + planned.east.urls
    assert planned.publish(planned.west, "orders.1")["seq"] == 21
    assert "receives the messages of ORDERS of west after sequence 20" in run_command(commands[8], tmp_path / "guide")
    assert "1 messages returned; ORDERS serves with 21" in run_command(commands[9], tmp_path / "guide")
    assert contexts_at(tmp_path / "guide") == planned.east.urls * 2
    assert planned.publish(planned.east, "orders.1")["seq"] == 22

    lost = make_pair("lost")
    inventory(lost, tmp_path / "guide")
    run_command(commands[0], tmp_path / "guide")
    lost.east.kill()
    failed = run_command("ansible-playbook natsops.jetstream.dr_status -i inventory.yml", tmp_path / "guide")
    assert "origin silent" in failed and "unknown, at least 0 messages" in failed
    output = run_command(commands[7], tmp_path / "guide")
    assert "all that the origin stored up to sequence 20" in output
    assert lost.west_api.consumer(STREAM, "worker")["num_pending"] == 12
