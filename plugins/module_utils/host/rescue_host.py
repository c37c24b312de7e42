# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a host on which a rescue is based: its server could start or not, and the streams on its disk."""

from __future__ import annotations

import os
from typing import Any

from .observation import ObservedServer, fenced
from .store import ASIDE, stored_streams


def read_rescue_host(config: str, store_dir: str, copy: str | None, server: ObservedServer) -> dict[str, Any]:
    """Return the value of `rescue`, as documented by nats_server_host_info. Raises OSError."""
    return {
        "running": server.process["running"],
        "fenced": fenced(server.unit, server.properties, os.path.exists(config), server.mark),
        "copied": bool(copy) and os.path.isdir(os.path.join(copy or "", "jetstream")),
        "aside": os.path.isdir(os.path.join(store_dir, ASIDE)),
        "streams": [stream.as_dict() for stream in stored_streams(store_dir)],
    }
