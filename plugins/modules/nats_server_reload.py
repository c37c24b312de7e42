#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_server_reload
short_description: Make a NATS server reload its configuration, and verify the reload
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Sends one server the request to reload its configuration file over NATS, reads the reply, and waits until the server
    reports a newer load time. Needs a user of the system account, and nats-server 2.10 or later.
  - A server accepts a new configuration completely or not at all. If the server rejects the configuration, for example
    because a changed option needs a restart, the module fails with the code V(reload_rejected) and the server's reason,
    and the server continues with its old configuration.
  - The server's reason may quote the old and new values of an option, such as C(jetstream.key) or a gateway password.
    The module masks these values, but the server sends them over NATS and may log them. For such a change, restart the
    server instead.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
attributes:
  check_mode:
    support: full
    details:
      - Without O(config_digest), and on servers before 2.11, check mode always predicts a change.
  diff_mode:
    support: none
  idempotent:
    support: partial
    details:
      - The module is idempotent with O(config_digest) on nats-server 2.11 and later. Otherwise, each run reloads the
        server.
options:
  server_name:
    description:
      - Name of the server, matched exactly.
    type: str
    required: true
  config_digest:
    description:
      - Digest that C(nats-server -t -c FILE) prints for the new configuration (V(sha256:...)).
      - A server that already runs a configuration with this digest is not reloaded. After a reload, the server must
        report this digest.
      - Servers before 2.11 report no digest, so the option is ignored for them.
    type: str
  wait_timeout:
    description:
      - Seconds to wait until the server reports the new configuration.
    type: float
    default: 30
seealso:
  - module: natsops.jetstream.nats_server_info
"""

EXAMPLES = r"""
- name: Reload n1-c1 and see that it runs the file that was just written
  natsops.jetstream.nats_server_reload:
    server_name: n1-c1
    config_digest: sha256:b55a810d55542ea22899e6c6d67f3fcf1545547f32c7be33a2d8a0d688f531ee
    servers: [nats://n1.example.com:4222]
    user: sys
    password: "{{ nats_system_password }}"
"""

RETURN = r"""
server:
  description: Name of the server.
  returned: success
  type: dict
  sample: {name: n1-c1, id: NDHDGLW5VJ2JR3G5R5JJ6NGWSJ4XC3BIBVDIBAM6ROGHRGQQVHZQCL5O, version: 2.15.1, cluster: C1}
before:
  description: Digest (null before 2.11) and load time of the configuration before the reload.
  returned: success
  type: dict
  sample: {config_digest: "sha256:5c1d", config_load_time: "2026-11-20T10:00:00.123Z"}
after:
  description: Digest and load time of the configuration after the reload. In check mode, the digest is the requested
    one, and the load time is unchanged.
  returned: success
  type: dict
  sample: {config_digest: "sha256:b55a", config_load_time: "2026-11-20T10:05:00.456Z"}
waited:
  description: Seconds that the reload took.
  returned: success
  type: float
  sample: 0.2
"""

import time
from collections.abc import Mapping
from typing import Any

from ..module_utils.collection_module import run
from ..module_utils.module import make_module, with_client
from ..module_utils.nats.client import Client, NatsFailure
from ..module_utils.nats.model import Server
from ..module_utils.nats.system_api import SystemApi
from ..module_utils.times import parse_time
from ..module_utils.versions import reported_version
from ..module_utils.waiting import positive

#: nats-server has supported $SYS.REQ.SERVER.<id>.RELOAD since this version (server/events.go).
FIRST_VERSION = (2, 10)

POLL_SECONDS = 0.2


def loaded_config(api: SystemApi, server: Server) -> dict[str, Any]:
    """Return the digest (None before 2.11) and the load time of the configuration that the server runs."""
    varz = api.ask_one(server, "VARZ")
    return {"config_digest": varz.get("config_digest"), "config_load_time": varz["config_load_time"]}


def require_reload_api(server: Server) -> None:
    """Raise NatsFailure unsupported if the server is too old to be reloaded over NATS."""
    if reported_version(server.version) < FIRST_VERSION:
        raise NatsFailure(
            "unsupported",
            f"{server.name} runs nats-server {server.version}, which cannot be reloaded over NATS; that needs 2.10. "
            "Send the process SIGHUP instead (nats-server --signal reload).",
            server=server.name,
        )


def wait_until_loaded(
    api: SystemApi, server: Server, before: Mapping[str, Any], digest: str | None, timeout: float
) -> dict[str, Any]:
    """Return the configuration that the server reports once its load time is newer and its digest is `digest`.

    Raises NatsFailure reload_not_seen if the server does not report it within `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while True:
        after = loaded_config(api, server)
        newer = parse_time(after["config_load_time"]) > parse_time(before["config_load_time"])
        expected = digest is None or after["config_digest"] in (None, digest)
        if newer and expected:
            return after
        if time.monotonic() > deadline:
            seen = f"its digest is {after['config_digest']}, not {digest}" if newer else "its load time did not move"
            raise NatsFailure(
                "reload_not_seen",
                f"{server.name} accepted the reload, but {seen} after {timeout:g} s",
                server=server.name,
            )
        time.sleep(POLL_SECONDS)


def ensure(client: Client, params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Reload the server if needed, and return the module's result."""
    timeout = positive(params["wait_timeout"], "wait_timeout")
    started = time.monotonic()
    api = SystemApi(client)
    server = api.discover([params["server_name"]]).named(params["server_name"])
    digest = params["config_digest"]
    before = loaded_config(api, server)
    changed = digest is None or before["config_digest"] != digest
    if changed:
        require_reload_api(server)
    after = before
    if changed and check_mode:
        after = {**before, "config_digest": digest if before["config_digest"] else None}
    elif changed:
        api.reload(server)
        after = wait_until_loaded(api, server, before, digest, timeout)
    return {
        "changed": changed,
        "server": {"name": server.name, "id": server.id, "version": server.version, "cluster": server.cluster},
        "before": before,
        "after": after,
        "waited": round(time.monotonic() - started, 3),
    }


def main() -> None:
    module = make_module(
        {
            "server_name": {"type": "str", "required": True},
            "config_digest": {"type": "str"},
            "wait_timeout": {"type": "float", "default": 30},
        }
    )
    run(module, with_client, lambda client: ensure(client, module.params, module.check_mode))


if __name__ == "__main__":
    main()
