# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Publish messages to a replicated stream and read them back, as an application would; exit with status 1 if this
fails.

The user's password is taken from NATS_PASSWORD.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import ssl
import sys

import nats
from nats.js.api import StreamConfig


async def roundtrip(args: argparse.Namespace) -> str:
    """Return a line about the received message; raise any error."""
    tls = None
    if args.ca:
        tls = ssl.create_default_context(cafile=args.ca)
        if args.certificate:
            tls.load_cert_chain(args.certificate, args.key)
    login = (
        {"user_credentials": args.creds} if args.creds else {"user": args.user, "password": os.environ["NATS_PASSWORD"]}
    )
    client = await nats.connect(
        args.server,
        **login,
        tls=tls,
        allow_reconnect=False,
        connect_timeout=5,
    )
    try:
        jetstream = client.jetstream(timeout=10, domain=args.domain)
        info = await jetstream.add_stream(
            StreamConfig(name="MOLECULE", subjects=["molecule"], num_replicas=args.replicas)
        )
        sent = [f"message {number}".encode() for number in range(100)]
        acks = [await jetstream.publish("molecule", payload) for payload in sent]
        read = [(await jetstream.get_msg("MOLECULE", ack.seq)).data for ack in acks]
        if read != sent:
            raise ValueError("the messages read differ from the acknowledged ones")
        cluster = info.cluster
        peers = ["one server"]
        if cluster:
            peers = sorted([cluster.leader or "?", *(peer.name or "?" for peer in cluster.replicas or [])])
        await jetstream.delete_stream("MOLECULE")
        return f"{len(read)} messages through {' '.join(peers)}"
    finally:
        await client.close()


def main() -> int:
    """Print the result or the reason for a failure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", action="append", required=True)
    parser.add_argument("--user")
    parser.add_argument("--creds", help="a file with the user's credentials, instead of --user")
    parser.add_argument("--domain", help="the JetStream domain of the stream")
    parser.add_argument("--replicas", type=int, default=3)
    for name in ("--ca", "--certificate", "--key"):
        parser.add_argument(name)
    try:
        print(asyncio.run(asyncio.wait_for(roundtrip(parser.parse_args()), 60)))
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
