# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks from outside whether groups of replicas keep their quorum. The watch shares nothing with the system under
test: it has its own process and connections, and uses none of the collection's code.

Each server is queried over a separate connection, five times a second. Standard input has ``{"servers": {NAME: URL},
"user": …, "password": …}``; each line of the output is a sample, ``{"at": SECONDS, "away": {GROUP: [NAME, …]}}``: the
unavailable members of each group, the meta group's as META and a stream's as ACCOUNT/STREAM.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats
import nats.errors
from nats.aio.client import Client

META = "META"
INTERVAL = 0.2
#: Seconds that a server may take to respond when the machine is busy. A server that stops closes its connection at
#: once.
TIMEOUT = 2.0
#: The number of messages by which a replica may lag behind another one that was queried a moment earlier or later.
BEHIND = 50


@dataclass(frozen=True)
class View:
    """The reply of one server: whether it reports a leader of the meta group, and for each stream its last sequence and
    the servers of all its replicas."""

    has_meta_leader: bool
    last: Mapping[str, int] = field(default_factory=dict)
    members: Mapping[str, frozenset[str]] = field(default_factory=dict)


def view(jsz: Mapping[str, Any]) -> View:
    """Return the relevant values of a server's JSZ reply."""
    streams = {
        f"{account['name']}/{stream['name']}": stream
        for account in jsz.get("account_details") or ()
        for stream in account.get("stream_detail") or ()
    }
    groups = {name: stream.get("cluster") or {} for name, stream in streams.items()}
    return View(
        bool((jsz.get("meta_cluster") or {}).get("leader")),
        {name: stream["state"]["last_seq"] for name, stream in streams.items()},
        {
            name: frozenset({group.get("leader", ""), *(peer["name"] for peer in group.get("replicas") or ())}) - {""}
            for name, group in groups.items()
        },
    )


def away(groups: Mapping[str, frozenset[str]], views: Mapping[str, View]) -> dict[str, list[str]]:
    """Return the members of each group that cannot vote for new entries: those that did not respond, and those that lag
    behind."""
    found = {}
    for group, members in groups.items():
        newest = max((seen.last.get(group, 0) for seen in views.values()), default=0)
        found[group] = sorted(
            name
            for name in members
            if name not in views
            or (not views[name].has_meta_leader if group == META else views[name].last.get(group, -1) < newest - BEHIND)
        )
    return found


class Watch:
    """The servers, their last replies, and all groups in any reply."""

    def __init__(self, servers: Mapping[str, str], **login: str) -> None:
        self._servers = servers
        self._login: dict[str, Any] = dict(login)
        self._views: dict[str, View] = {}
        self._groups = {META: frozenset(servers)}

    async def run(self) -> None:
        """Print samples forever."""
        await asyncio.gather(self._sample(), *(self._follow(name, url) for name, url in self._servers.items()))

    async def _sample(self) -> None:
        while True:
            began = time.monotonic()
            for seen in self._views.values():
                # A follower that has just started may not list all other members yet.
                self._groups |= {group: members for group, members in seen.members.items() if len(members) > 2}
            print(json.dumps({"at": began, "away": away(self._groups, self._views)}), flush=True)
            await asyncio.sleep(began + INTERVAL - time.monotonic())

    async def _follow(self, name: str, url: str) -> None:
        while True:
            try:
                client = await nats.connect(url, **self._login, connect_timeout=1, allow_reconnect=False)
                try:
                    await self._ask(name, client)
                finally:
                    await client.close()
            except (nats.errors.Error, OSError, asyncio.TimeoutError):
                self._views.pop(name, None)
            await asyncio.sleep(INTERVAL)

    async def _ask(self, name: str, client: Client) -> None:
        subject = f"$SYS.REQ.SERVER.{client._server_info['server_id']}.JSZ"
        while True:
            began = time.monotonic()
            reply = await client.request(subject, b'{"accounts": true, "streams": true}', timeout=TIMEOUT)
            self._views[name] = view(json.loads(reply.data).get("data") or {})
            await asyncio.sleep(began + INTERVAL - time.monotonic())


@contextmanager
def watching(
    servers: Mapping[str, str],
    user: str,
    password: str,
    folder: Path,
    inside: Callable[[Sequence[str]], Sequence[str]] = list,
) -> Iterator[list[dict[str, Any]]]:
    """Start the watch and wait for the first sample without unavailable members; yield a list that contains the samples
    afterwards. `inside`: a wrapper for the command, which makes the watch run where the servers are."""
    found: list[dict[str, Any]] = []
    samples = folder / "samples.jsonl"
    with samples.open("w") as output, (folder / "errors").open("w") as errors:
        command = inside([sys.executable, __file__])
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=errors, text=True)
        try:
            assert process.stdin
            process.stdin.write(json.dumps({"servers": dict(servers), "user": user, "password": password}))
            process.stdin.close()
            began = time.monotonic()
            while not any(not any(sample["away"].values()) for sample in _written(samples)):
                assert time.monotonic() < began + 60, f"the watch reached no server: {(folder / 'errors').read_text()}"
                time.sleep(1)
            began = time.monotonic()
            yield found
            assert process.poll() is None, (folder / "errors").read_text()
        finally:
            process.kill()
            process.wait()
    found += [sample for sample in _written(samples) if sample["at"] >= began]


def _written(samples: Path) -> list[dict[str, Any]]:
    """Return the samples that were completely written."""
    return [json.loads(line) for line in samples.read_text().splitlines(keepends=True) if line.endswith("\n")]


if __name__ == "__main__":
    asyncio.run(Watch(**json.load(sys.stdin)).run())
