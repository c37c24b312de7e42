# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Event source natsops.jetstream.nats_advisories; see DOCUMENTATION."""

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_advisories
short_description: Create events from the advisories of NATS servers, live or from a stream that stores them
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Without O(stream), the source subscribes to O(subjects). It misses advisories that are published while it is not
    connected.
  - With O(stream), the source reads the stream that stores the advisories through the durable consumer O(durable). The
    playbook C(natsops.jetstream.capture_advisories) creates such a stream in each account. An advisory is acknowledged
    once its event is on the queue of ansible-rulebook, so no advisory is lost in restarts or when the connection is
    lost.
  - Advisories are delivered at least once, so an advisory may create a second event after ansible-rulebook or its
    connection has failed. RV(nats.id) and C(meta.uuid) are then the same as in the first event.
  - Servers publish advisories about leaders and quorums in the account of the stream and in the system account,
    advisories about servers and the meta group in the system account, and all others in the account of the stream. The
    system account has no JetStream, so O(stream) cannot be used there.
  - The source keeps trying to reconnect, with pauses of 1 to 30 seconds.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.event_source
options:
  subjects:
    description:
      - Subjects of the advisories.
      - Without O(stream), the default is all advisories of JetStream except C($JS.EVENT.ADVISORY.API), which is
        published for each API request, and also C($SYS.SERVER.*.SHUTDOWN), C($SYS.SERVER.*.LAMEDUCK) and
        C($SYS.SERVER.*.CLIENT.AUTH.ERR), which only a user of the system account receives. With O(stream), the default
        is all advisories in the stream.
    type: list
    elements: str
  stream:
    description:
      - Stream that stores the advisories.
      - The stream must exist in the account of the user.
    type: str
  durable:
    description:
      - Durable consumer that stores the acknowledged position. The source creates the consumer if it does not exist.
      - Each rulebook needs a separate consumer.
      - The filters of an existing consumer must equal O(subjects); an acknowledgement policy other than V(explicit) is
        refused.
    type: str
  deliver_policy:
    description:
      - Whether a new durable consumer starts with new advisories or with all advisories in the stream.
    type: str
    choices: [new, all]
    default: new
  feedback:
    description:
      - Whether to acknowledge an advisory only after ansible-rulebook has confirmed that the rules have processed its
        event. ansible-rulebook confirms events if it runs with a C(--persistence-id).
      - Without this option, an event that is still on the queue is lost if ansible-rulebook is killed.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: advisories of all accounts, live
  natsops.jetstream.nats_advisories:
    servers: [tls://n1.example.com:4222, tls://n2.example.com:4222]
    user: sys
    password: "{{ nats_system_password }}"

- name: advisories of account APP, none lost
  natsops.jetstream.nats_advisories:
    context: app
    stream: ADVISORIES
    durable: eda_quorum_lost
    subjects: [$JS.EVENT.ADVISORY.*.QUORUM_LOST.>]
"""

RETURN = r"""
id:
  description: Id of the advisory. If the advisory has no id, its subject with its sequence in the stream, or with a
    digest.
  type: str
type:
  description: Last part of the advisory's type, such as V(stream_quorum_lost), V(stream_leader_elected) or
    V(server_out_of_space). For events of servers, V(shutdown) or V(lameduck).
  type: str
subject:
  description: Subject on which the advisory was published.
  type: str
time:
  description: When the advisory was published.
  type: str
account:
  description: Account of the advisory. Without O(stream), servers report it only to the system account.
  type: str
stream:
  description: Stream of the advisory.
  type: str
consumer:
  description: Consumer of the advisory.
  type: str
asset:
  description: Account, stream and consumer, such as V(APP/ORDERS/reader), or V(meta group).
  type: str
server:
  description: Name of the server.
  type: str
leader:
  description: Name of the new leader.
  type: str
sequence:
  description: Sequence of the advisory in the stream that stores it.
  type: int
deliveries:
  description: How often the stream has delivered the advisory.
  type: int
advisory:
  description: The complete advisory as published by the server.
  type: dict
"""

import asyncio
import hashlib
import json
import logging
import os
import sys
from collections.abc import Mapping
from typing import Any, Callable

# ansible-rulebook runs this file by its path and does not support collections. If the package `ansible` is installed,
# it contains a different ansible_collections.
_ROOT = os.path.abspath(__file__).rpartition(f"{os.sep}ansible_collections{os.sep}")[0]
sys.path.append(_ROOT)
import ansible_collections

ansible_collections.__path__ = [os.path.join(_ROOT, "ansible_collections"), *ansible_collections.__path__]

from ansible_collections.natsops.jetstream.plugins.module_utils.nats.client import (
    Client,
    ConnectionOptions,
    NatsFailure,
)
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.jetstream_api import JetStreamApi, require_name
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.listener import Listener, ReceivedMessage
from ansible_collections.natsops.jetstream.plugins.module_utils.nats.system_api import SystemApi
from ansible_collections.natsops.jetstream.plugins.plugin_utils._event_source import (
    EventEmitter,
    checked_with_connection,
    keep_trying,
)

LOGGER = logging.getLogger("natsops.jetstream.nats_advisories")

SUBJECTS = [
    "$JS.EVENT.ADVISORY.STREAM.>",
    "$JS.EVENT.ADVISORY.CONSUMER.>",
    "$JS.EVENT.ADVISORY.DOMAIN.>",
    "$JS.EVENT.ADVISORY.SERVER.>",
    "$JS.EVENT.ADVISORY.API.LIMIT_REACHED",
    "$SYS.SERVER.*.SHUTDOWN",
    "$SYS.SERVER.*.LAMEDUCK",
    "$SYS.SERVER.*.CLIENT.AUTH.ERR",
]

SPEC: dict[str, dict[str, Any]] = {
    "subjects": {"type": "list", "elements": "str"},
    "stream": {"type": "str"},
    "durable": {"type": "str"},
    "deliver_policy": {"type": "str", "choices": ["new", "all"], "default": "new"},
}

#: Seconds after which a server redelivers unacknowledged messages.
ACK_WAIT = 30.0


async def main(queue: Any, args: dict[str, Any]) -> None:
    """Put an event on the queue for each advisory, until cancelled. Raises ArgumentError if the arguments are
    invalid."""
    params, options = checked_with_connection(args, SPEC, required_together=[("stream", "durable")])
    emitter = EventEmitter(queue, args)
    last: tuple[Any, ...] | None = None
    account: str | None = None

    async def on_message(message: ReceivedMessage) -> None:
        nonlocal last
        this = (message.sequence, message.stored)
        if message.sequence is None or this != last:
            content = advisory_event(message, params["stream"], account)
            await emitter.put(content.pop("id"), content)
        # If the acknowledgement fails, the advisory is delivered again.
        last = this

    async def live(connected: Callable[[], None]) -> None:
        async with Listener(options) as listener:
            await listener.subscribe(params["subjects"] or SUBJECTS)
            connected()
            await listener.deliver(on_message)

    async def kept(connected: Callable[[], None]) -> None:
        nonlocal account
        ack_wait, account = await asyncio.to_thread(provide_consumer, options, params)
        async with Listener(options) as listener:
            connected()
            await listener.pull(params["stream"], params["durable"], ack_wait, on_message)

    await keep_trying(LOGGER, kept if params["stream"] else live)


def provide_consumer(options: ConnectionOptions, params: Mapping[str, Any]) -> tuple[float, str | None]:
    """Create the durable consumer unless it exists, and return its ack_wait in seconds and the account, if known.

    Raises NatsFailure invalid_option if the stream does not exist, or an existing consumer is unsuitable.
    """
    stream, durable = require_name("stream", params["stream"]), require_name("durable", params["durable"])
    subjects = sorted(params["subjects"] or ())
    with Client(options) as client:
        api = JetStreamApi(client)
        if api.find_stream(stream) is None:
            raise NatsFailure(
                "invalid_option",
                f"stream: there is no stream {stream} in the account of this user; the playbook "
                "natsops.jetstream.capture_advisories creates one that stores the advisories",
            )
        info = api.find_consumer(stream, durable) or api.save_consumer(
            stream,
            {
                "name": durable,
                "durable_name": durable,
                "description": "Event source nats_advisories of ansible-rulebook",
                "deliver_policy": params["deliver_policy"],
                "ack_policy": "explicit",
                "ack_wait": int(ACK_WAIT * 1e9),
                # Only one message is delivered at a time, so a redelivered message keeps its position.
                "max_ack_pending": 1,
                **({"filter_subject": subjects[0]} if len(subjects) == 1 else {"filter_subjects": subjects}),
            },
            "create",
        )
        account = SystemApi(client).own_account()
    config = info["config"]
    filters = sorted(config.get("filter_subjects") or filter(None, [config.get("filter_subject")]))
    if config.get("deliver_subject") or config["ack_policy"] != "explicit":
        wrong = "is not a pull consumer with ack_policy explicit"
    elif filters != subjects:
        wrong = f"has the subjects {', '.join(filters) or 'of the stream'}"
    else:
        return float(config["ack_wait"]) / 1e9, account
    raise NatsFailure(
        "invalid_option", f"durable: consumer {durable} of stream {stream} {wrong}: name another one, or delete it"
    )


def advisory_event(message: ReceivedMessage, kept_in: str | None, own_account: str | None) -> dict[str, Any]:
    """Return the content of an advisory's event. `kept_in`: the stream of `own_account` that stores the advisory.

    An advisory that is published in the account of its stream does not contain the account.
    """
    try:
        advisory = json.loads(message.body)
    except ValueError:
        advisory = None
    if not isinstance(advisory, dict):
        advisory = {"text": message.body.decode(errors="replace")}
    client = advisory.get("client") or {}
    account = _name(advisory.get("account")) or _name(client.get("acc")) or own_account
    stream, consumer = advisory.get("stream"), advisory.get("consumer")
    kind = _type(message.subject, advisory)
    asset = "meta group" if kind == "domain_leader_elected" else "/".join(filter(None, (account, stream, consumer)))
    number = f"{kept_in}/{message.sequence}" if kept_in else hashlib.sha256(message.body).hexdigest()[:32]
    # $SYS.SERVER.<id>.SHUTDOWN and LAMEDUCK are not advisories: they contain the server, and their id is the server's.
    typed = "type" in advisory
    server = advisory if not typed and "ver" in advisory else advisory.get("server")
    moment = advisory.get("timestamp") or (server.get("time") if isinstance(server, dict) else None)
    return {
        "id": (advisory.get("id") if typed else None) or f"{message.subject}/{number}",
        "subject": message.subject,
        "type": kind,
        "time": moment or (message.stored.isoformat() if message.stored else None),
        "account": account,
        "stream": stream,
        "consumer": consumer,
        "asset": asset or None,
        "server": _name(server),
        "leader": advisory.get("leader"),
        "sequence": message.sequence,
        "deliveries": message.deliveries if kept_in else None,
        "advisory": advisory,
    }


def _type(subject: str, advisory: Mapping[str, Any]) -> str:
    """Return the last part of the advisory's type, such as stream_quorum_lost, or that of its subject if it has no
    type."""
    kind = str(advisory.get("type") or "").rpartition(".")[2]
    return kind or "_".join(subject.split(".")[3:]).lower() or subject


def _name(value: Any) -> str | None:
    """Return the name from an advisory's field, which is either a name or an object with a name."""
    return value.get("name") if isinstance(value, Mapping) else value
