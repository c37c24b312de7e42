# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sends the requests of `nats stream backup` and `nats stream restore`. The command itself is not in any package
registry.

From jsm.go snapshots.go (SnapshotToDirectory, RestoreSnapshotFromDirectory) and natscli cli/stream_command.go, of
summer 2026.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from nats.aio.client import Client as NatsPy
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

META, DATA = "backup.json", "stream.tar.s2"
_SNAPSHOT_CHUNK, _RESTORE_CHUNK = 128 << 10, 64 << 10
_CREATED = "io.nats.jetstream.api.v1.stream_create_response"


async def backup(connect: Callable[[], Awaitable[NatsPy]], stream: str, directory: Path) -> None:
    """Save a stream with its consumers as the command does."""
    directory.mkdir(mode=0o700, parents=True)
    client = await connect()
    try:
        inbox, parts, ended = client.new_inbox(), bytearray(), asyncio.get_running_loop().create_future()

        async def on_part(message: Msg) -> None:
            if not message.data:
                status = (message.headers or {}).get("Status", "")
                if not ended.done():
                    ended.set_result("" if not status or "204" in status else f"{status} {message.headers}")
                return
            if message.reply:
                await message.respond(b"")
            parts.extend(message.data)

        request = {
            "deliver_subject": inbox,
            "no_consumers": False,
            "jsck": True,
            "chunk_size": _SNAPSHOT_CHUNK,
        }
        subscription = await client.subscribe(inbox, cb=on_part, pending_msgs_limit=-1, pending_bytes_limit=-1)
        await client.flush()
        reply = await _asked(client, f"$JS.API.STREAM.SNAPSHOT.{stream}", json.dumps(request).encode())
        failed = await asyncio.wait_for(ended, 60)
        assert not failed, failed
        await subscription.unsubscribe()
        (directory / DATA).write_bytes(parts)
        meta = {"config": reply["config"], "state": reply["state"]}
        (directory / META).write_text(json.dumps(meta, indent=2))
    finally:
        await client.close()


async def restore(connect: Callable[[], Awaitable[NatsPy]], directory: Path) -> dict[str, Any]:
    """Restore the backup in a directory as the command does, and return the state that the server reports."""
    meta = json.loads((directory / META).read_text())
    # The command reads only these two keys.
    request = {"config": meta["config"], "state": meta["state"]}
    name = request["config"]["name"]
    client = await connect()
    try:
        reply = await _asked(client, f"$JS.API.STREAM.RESTORE.{name}", json.dumps(request).encode())
        with (directory / DATA).open("rb") as file:
            while chunk := file.read(_RESTORE_CHUNK):
                answer = await _sent(client, reply["deliver_subject"], chunk)
                assert not answer.data, answer.data
        answer = await client.request(reply["deliver_subject"], b"", timeout=120)
        found = json.loads(answer.data)
        assert found["type"] == _CREATED and "error" not in found, found
        return dict(found["state"])
    finally:
        await client.close()


async def _sent(client: NatsPy, subject: str, chunk: bytes) -> Msg:
    """Send a chunk. The restoring server's interest may reach the client's server after the reply that named the subject."""
    for _attempt in range(50):
        try:
            return await client.request(subject, chunk, timeout=20)
        except NoRespondersError:
            await asyncio.sleep(0.1)
    return await client.request(subject, chunk, timeout=20)


async def _asked(client: NatsPy, subject: str, body: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((await client.request(subject, body, timeout=20)).data)
    assert "error" not in found, found
    return found
