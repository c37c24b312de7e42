# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The network between the sites of a lab: a router that delays or drops packets. ``wan.py DEVICE SOCKET``.

The kernel's own netem is missing on many machines. Here the lab's namespace routes packets from one site to another
into a tun device; this process delays them by the delay of that pair of sites, and writes them to the same device, from
which the kernel forwards them to the other site. A site's number is the third number of its addresses.

The socket accepts one link per line, ``{"sites": [1, 2], "delay": 0.02}``, and replies once it is set. The delay is
one-way, in seconds; null cuts the link. Sites without a link have no delay.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import struct
import sys

_TUNSETIFF, _TUNSETOFFLOAD = 0x400454CA, 0x400454D0
_IFF_TUN, _IFF_NO_PI, _IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
_TUN_F_CSUM, _TUN_F_TSO4 = 0x01, 0x02
# Each packet begins with a header about its remaining processing, such as segmentation. The header is returned
# unchanged, so packets of up to 64 KiB pass in one piece.
_VNET_HEADER = 10
_SOURCE_SITE, _TARGET_SITE = _VNET_HEADER + 14, _VNET_HEADER + 18
_LARGEST = _VNET_HEADER + 65535


class Wan:
    """The links between sites, and the packets that are in transit on them."""

    def __init__(self, device: str) -> None:
        self._tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(
            self._tun, _TUNSETIFF, struct.pack("16sH22x", device.encode(), _IFF_TUN | _IFF_NO_PI | _IFF_VNET_HDR)
        )
        fcntl.ioctl(self._tun, _TUNSETOFFLOAD, _TUN_F_CSUM | _TUN_F_TSO4)
        self._delays: dict[frozenset[int], float | None] = {}

    async def serve(self, socket: str) -> None:
        """Forward packets, and set the links that the socket's clients request."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._tun, self._forward)
        async with await asyncio.start_unix_server(self._take_links, socket) as server:
            await server.serve_forever()

    async def _take_links(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            link = json.loads(line)
            self._delays[frozenset(link["sites"])] = link["delay"]
            writer.write(b"ok\n")
        writer.close()

    def _forward(self) -> None:
        try:
            while packet := os.read(self._tun, _LARGEST):
                delay = self._delays.get(frozenset((packet[_SOURCE_SITE], packet[_TARGET_SITE])), 0.0)
                if delay is not None:
                    self._loop.call_later(delay, self._deliver, packet)
        except BlockingIOError:
            return

    def _deliver(self, packet: bytes) -> None:
        try:
            os.write(self._tun, packet)
        except OSError:
            return  # drop the packet, as any real network may


if __name__ == "__main__":
    asyncio.run(Wan(sys.argv[1]).serve(sys.argv[2]))
