# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A drain of many leaders reports its progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import NatsFailure
from ansible_collections.natsops.jetstream.plugins.module_utils.progress import Progress
from ansible_collections.natsops.jetstream.plugins.module_utils.roll import step_down as operation
from ansible_collections.natsops.jetstream.plugins.module_utils.roll.leadership import LeaderConstraints, plan_group
from ansible_collections.natsops.jetstream.plugins.module_utils.roll.step_down import Reading, StepDownJob, step_down
from support.clusters import group, server

NAMES = ["n1", "n2", "n3"]


class Clock:
    """A clock that advances only with each election."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Every wait of the operation counts as one election."""
        self.now += 3.0


class Site:
    """Groups that n1 leads. Each group changes its leader after a request and one wait."""

    def __init__(self, clock: Clock, keys: Sequence[str]) -> None:
        self.clock = clock
        self.groups = {key: group("stream", f"stream APP/{key}", NAMES) for key in keys}
        self.asked: dict[str, float] = {}

    def read(self, keys: Sequence[str]) -> list[Reading]:
        for key in keys:
            if key in self.asked and self.clock.now > self.asked[key]:
                peers = tuple(
                    replace(peer, name="n1" if peer.name == "n2" else peer.name) for peer in self.groups[key].peers
                )
                self.groups[key] = replace(self.groups[key], leaders=("n2",), peers=peers)
        return [self.groups[key] for key in keys]

    def ask(self, requests: Sequence[tuple[str, Mapping[str, Any]]]) -> list[NatsFailure | None]:
        self.asked.update({key: self.clock.now for key, _body in requests})
        return [None for _request in requests]


def test_lines_while_leaders_step_down(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clock, lines = Clock(), tmp_path / "lines"
    monkeypatch.setattr(operation, "time", clock)
    keys = [f"S{number}" for number in range(10)]
    site, servers = Site(clock, keys), {name: server(name) for name in NAMES}
    away = LeaderConstraints(away_from=frozenset(["n1"]))
    jobs = [StepDownJob(key, plan_group(site.groups[key], away, servers)) for key in keys]
    step_down(site, jobs, servers, (), 60, 1, Progress({"file": str(lines)}, 60, clock.monotonic))
    assert all(job.done for job in jobs)
    assert lines.read_text().splitlines() == [
        "12 of 60 s: 4 of 10 leaders have changed, 0 elections under way",
        "24 of 60 s: 8 of 10 leaders have changed, 0 elections under way",
    ]
