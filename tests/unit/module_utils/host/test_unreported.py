# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The reason names the servers among which an operator must choose, and containers, whose files are not read."""

from __future__ import annotations

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.host import unreported as tested
from ansible_collections.natsops.jetstream.plugins.module_utils.host.process import RunningServer, ServerProcess


def server(pid: int, config: str = "", contained: bool = False) -> RunningServer:
    argv = ("nats-server", *(("-c", config) if config else ()))
    return RunningServer(ServerProcess(pid, "/usr/bin/nats-server", 0.0, "i"), argv, "/", contained)


@pytest.mark.parametrize(
    ("config", "running", "problem"),
    [
        ("", [], "no nats-server is running on this host"),
        ("/n.conf", [], "no nats-server is running with /n.conf"),
        ("", [server(1, "/n.conf", True)], "the nats-server running on this host is in a container, where its files"),
        ("", [server(1, "/b.conf"), server(2), server(3, "/a.conf")], "(/a.conf, /b.conf, pid 2): select one with"),
        ("", [server(1, "/b.conf"), server(2, "/a.conf", True)], ""),
    ],
)
def test_the_reason_names_the_servers_of_a_host(
    monkeypatch: pytest.MonkeyPatch, config: str, running: list[RunningServer], problem: str
) -> None:
    monkeypatch.setattr(tested, "read_servers", {config: running}.__getitem__)
    monkeypatch.setattr(tested, "_properties", lambda found, _run: {"pid": found.process.pid})
    host, said = tested.unreported(config, lambda *_given, **_named: (0, "", ""))
    assert (host, said != "") == ({"pid": 1} if not problem else None, bool(problem))
    assert problem in said
