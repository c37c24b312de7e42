# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes results of nats_server_host_info (the value of `adoption`) for servers that the collection did not set up."""

from __future__ import annotations

from typing import Any

from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.command_line import loaded_config
from ansible_collections.natsops.jetstream.plugins.module_utils.server_config.reading import read_config


def discovered(text: str, number: int = 1, argv: tuple[str, ...] = (), **changes: Any) -> dict[str, Any]:
    """Return the module's result for a server with this configuration."""
    text = text.replace("NUMBER", str(number))
    reading = read_config("/etc/nats.conf", lambda _path: text, {"SERVER_NAME": f"nats-{number}"})
    loaded = loaded_config(reading.config, ["nats-server", "-c", "/etc/nats.conf", *argv])
    block = loaded.config.get("jetstream")
    store = block.get("store_dir", "") if isinstance(block, dict) else ""
    name = loaded.config.get("server_name")
    unit = {
        "name": "nats",
        "fragment": "/lib/systemd/system/nats.service",
        "drop_ins": [],
        "settings": [],
        "environment": {},
        "enabled": True,
    }
    found = {
        "found": True,
        "problem": "",
        "process": {"binary": "/usr/sbin/nats-server", "version": "2.10.27", "user": "nats", "group": "nats"},
        "unit": unit,
        "config_path": "/etc/nats.conf",
        "loaded": {"proof": "digest", "problem": ""},
        "config": loaded.config,
        "varz": {"server_name": name},
        "routes": [],
        "store": {"path": store, "reported": f"{store}/jetstream" if store else "/tmp/nats/jetstream", "same": True},
        "tls_files": [],
        "binary_link_free": True,
    }
    return {**found, **changes}
