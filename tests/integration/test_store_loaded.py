# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a survivor of a cluster held is loaded from a copy of its store by a server without a cluster."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest
from ansible_collections.natsops.jetstream.plugins.module_utils.host.store_copy import (
    StoreError,
    copy_store,
    load_alone,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import ConnectionOptions
from ansible_collections.natsops.jetstream.plugins.module_utils.operations.throwaway_server import throwaway_server
from support.module_runs import Runner, form
from support.nats_processes import APP_PASSWORD, APP_USER, NatsProcesses, binary

MESSAGES = 20


@pytest.fixture
def cluster(version: str, tmp_path: Path, run_module: Runner) -> Iterator[NatsProcesses]:
    directory = tmp_path / "cluster"
    directory.mkdir()
    made = NatsProcesses(version, directory, ["n1", "n2", "n3"])
    made.start()
    try:
        yield form(made, run_module)
    finally:
        made.kill()


async def fill(cluster: NatsProcesses) -> None:
    client = await nats.connect(cluster.urls, user=APP_USER, password=APP_PASSWORD)
    context = client.jetstream(timeout=10)
    for number in range(MESSAGES):
        await context.publish("ORDERS.new", str(number).encode())
    taken = await context.pull_subscribe_bind("worker", "ORDERS")
    for message in await taken.fetch(12, timeout=10):
        await message.ack_sync()
    await client.close()


async def loaded(options: ConnectionOptions) -> tuple[list[str], int | None]:
    client = await nats.connect(list(options.servers), user=options.user, password=options.password)
    context = client.jetstream(timeout=10)
    bodies = [((await context.get_msg("ORDERS", seq)).data or b"").decode() for seq in range(1, MESSAGES + 1)]
    floor = (await context.consumer_info("ORDERS", "worker")).ack_floor
    await client.close()
    return bodies, floor.stream_seq if floor else None


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and "_js_" not in path.parts
    }


@pytest.mark.parametrize("version", ["2.10.27", "2.15.1"], scope="session")
def test_a_server_without_a_cluster_loads_what_one_of_three_held(
    cluster: NatsProcesses, version: str, tmp_path: Path
) -> None:
    cluster.add_stream("ORDERS", 3)
    cluster.add_consumer("ORDERS", "worker")
    asyncio.run(fill(cluster))
    cluster.kill("n2", "n3")
    # A server writes how far its consumers are when it stops, and only now and then before.
    cluster.stop("n1")
    store = cluster.directory / "n1"
    before = digests(store / "jetstream")

    with pytest.raises(StoreError, match="no room for a copy"):
        copy_store(str(store), str(tmp_path / "refused"), reserve=1 << 60)
    assert not list(tmp_path.glob("refused*"))
    (tmp_path / "copy.part").mkdir()  # of a run that was killed
    copy = copy_store(str(store), str(tmp_path / "copy"), reserve=0)
    assert digests(copy / "jetstream") == before
    assert copy_store(str(store), str(tmp_path / "copy"), reserve=1 << 60) == copy

    drill = tmp_path / "drill"
    drill.mkdir()
    copy_store(str(copy), str(drill / "store"), reserve=0)
    # The account of the throw-away server has another name.
    assert load_alone(str(drill / "store")) == ["APP/ORDERS"]
    assert load_alone(str(drill / "store")) == ["APP/ORDERS"]
    (drill / "store/jetstream/APP").rename(drill / "store/jetstream/DRILL")
    with throwaway_server(binary(version), drill, {}, 1 << 30) as options:
        bodies, floor = asyncio.run(loaded(options))
    assert bodies == [str(number) for number in range(MESSAGES)]
    assert floor == 12
    assert digests(copy / "jetstream") == before == digests(store / "jetstream")
