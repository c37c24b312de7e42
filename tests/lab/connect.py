# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Connects SSH to a lab's network, as ProxyCommand with ProxyUseFdpass: ``connect.py ADDRESS PORT``.

The program runs inside the network, connects, and passes the open connection to the ssh process that waits outside.
"""

from __future__ import annotations

import socket
import sys


def main() -> int:
    """Pass the connection to standard output, a socket of ssh's; return 1 with the reason if it cannot connect."""
    address, port = sys.argv[1], int(sys.argv[2])
    try:
        connection = socket.create_connection((address, port), timeout=5)
    except OSError as error:
        print(f"connect to {address} port {port}: {error.strerror or error}", file=sys.stderr)
        return 1
    connection.settimeout(None)
    with socket.socket(fileno=1) as ssh:
        socket.send_fds(ssh, [b"\0"], [connection.fileno()])
    return 0


if __name__ == "__main__":
    sys.exit(main())
