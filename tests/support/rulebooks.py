# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts ansible-rulebook as its users do, and runs event sources as ansible-rulebook does."""

from __future__ import annotations

import asyncio
import json
import os
import re
import runpy
import subprocess
import sys
import time
from collections.abc import Awaitable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Callable

import pytest
import yaml
from support.nats_processes import collections_path

#: Seconds that an event or a playbook may take on a busy machine.
TIMEOUT = 120

#: Prints each event as a line of JSON after this marker.
MARK = "EVENT "


class Rulebook:
    """A running ansible-rulebook. `recorded` has the variables that the playbook record_event.yml received."""

    def __init__(self, folder: Path, rulebook: str, variables: Mapping[str, Any], *arguments: str) -> None:
        self.events_file = folder / "events"
        self.log = folder / "rulebook.log"
        # The output of an earlier rulebook does not count.
        for left in (self.events_file, self.log):
            left.unlink(missing_ok=True)
        (folder / "variables.yml").write_text(yaml.safe_dump(dict(variables)))
        inventory = folder / "inventory.json"
        if not inventory.exists():
            inventory.write_text(json.dumps({"all": {"hosts": {"localhost": {"ansible_connection": "local"}}}}))
        bin_folder = Path(sys.executable).parent
        environment = {
            **os.environ,
            "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
            "ANSIBLE_COLLECTIONS_PATH": collections_path(),
            "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
            "ANSIBLE_NOCOLOR": "true",
            "XDG_CACHE_HOME": str(folder / "cache"),
            "PYTHONUNBUFFERED": "1",
            "EVENTS_FILE": str(self.events_file),
        }
        command = [str(bin_folder / "ansible-rulebook"), "--rulebook", rulebook, "--inventory", str(inventory)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--vars", str(folder / "variables.yml"), "-v", *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=folder,
            )

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def recorded(self) -> list[dict[str, Any]]:
        return (
            [json.loads(line) for line in self.events_file.read_text().splitlines()]
            if self.events_file.exists()
            else []
        )

    @property
    def events(self) -> list[dict[str, Any]]:
        """Return the values of `event`, in order, that the rulebook from `printing` printed."""
        return [json.loads(line) for line in re.findall(f"{MARK}(.*) END", self.output)]

    def wait_until(self, what: Callable[[], Any], why: str) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not what():
            assert self.process.poll() is None, f"ansible-rulebook ended with {self.process.returncode}\n{self.output}"
            assert time.monotonic() < deadline, f"{why}\n{self.output}"
            time.sleep(0.2)

    def wait_for(self, pattern: str, times: int = 1) -> None:
        self.wait_until(
            lambda: len(re.findall(pattern, self.output)) >= times, f"the output lacks {times} times: {pattern}"
        )

    def end(self) -> int:
        """Wait until ansible-rulebook ends without being signalled; return its exit status."""
        return self.process.wait(TIMEOUT)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(20)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)


Start = Callable[..., Rulebook]

#: A function of an event source's test that returns the next event, or the next one with these values.
NextEvent = Callable[..., Awaitable[Any]]

Main = Callable[[Any, dict[str, Any]], Coroutine[Any, Any, None]]


def sources_folder() -> Path:
    return Path(collections_path(), "ansible_collections/natsops/jetstream/extensions/eda/plugins/event_source")


def source(name: str) -> dict[str, Any]:
    """Run the file of an event source as ansible-rulebook does, and return the names that it defines."""
    return runpy.run_path(str(sources_folder() / f"{name}.py"))


def run_source(name: str, arguments: dict[str, Any], work: Callable[[NextEvent], Awaitable[None]]) -> None:
    """Run a source during `work`, which receives a function that returns the next event, or the next event that
    matches."""

    async def both() -> None:
        queue: asyncio.Queue[Any] = asyncio.Queue(1)
        module = source(name)
        described = set(yaml.safe_load(module["RETURN"]))
        running = asyncio.ensure_future(module["main"](queue, arguments))

        async def event(**wanted: Any) -> Any:
            while True:
                getting = asyncio.ensure_future(queue.get())
                await asyncio.wait({getting, running}, timeout=TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
                assert getting.done(), running.result() if running.done() else f"no event of {wanted}"
                content = getting.result()["nats"]
                assert set(content) <= described
                if wanted.items() <= content.items():
                    return content

        try:
            await work(event)
        finally:
            running.cancel()

    asyncio.run(both())


def refusal(name: str, **arguments: Any) -> str:
    """Return a source's error message for unusable arguments."""
    main: Main = source(name)["main"]
    with pytest.raises(Exception) as caught:
        asyncio.run(asyncio.wait_for(main(asyncio.Queue(1), arguments), TIMEOUT))
    assert type(caught.value).__name__ == "ArgumentError", caught.value
    return str(caught.value)


def printing(folder: Path, source: str, **arguments: Any) -> str:
    """Return the path of a rulebook that prints each event of a source."""
    rule = {
        "name": "Print",
        "condition": "event.nats.id is defined",
        "action": {"debug": {"msg": MARK + "{{ event | tojson }} END"}},
    }
    sources = [{"name": "source", f"natsops.jetstream.{source}": arguments}]
    path = folder / "printing.yml"
    path.write_text(yaml.safe_dump([{"name": "Test", "hosts": "all", "sources": sources, "rules": [rule]}]))
    return str(path)
