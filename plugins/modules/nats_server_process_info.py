# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_server_process_info
short_description: Read the nats-server process of a host
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Finds the nats-server that runs with a given configuration file, from C(/proc) and, if a unit is specified, from
    systemd.
  - Runs on the managed host and needs no connection to NATS.
  - Reading the executable and the sockets of another user's process needs root.
extends_documentation_fragment:
  - natsops.jetstream.process
  - natsops.jetstream.attributes.plain_info_module
options:
  includes:
    description: The other configuration files, which O(config) includes.
    type: list
    elements: path
    default: []
  ports:
    description: TCP ports to wait for. The module waits until the process listens on all of them or has exited.
    type: list
    elements: int
    default: []
  timeout:
    description: Seconds to wait for O(ports). If the ports are not open within this time, the task does not fail; see
      RV(missing_ports).
    type: float
    default: 0
  members:
    description:
      - The servers of the inventory, as returned by P(natsops.jetstream.nats_topology#filter). The host tries to
        connect to the cluster ports of its own cluster and to the gateway ports of the other clusters; see
        RV(closed_ports).
    type: list
    elements: dict
    default: []
  server_name:
    description: Name of this host's server in O(members).
    type: str
"""

EXAMPLES = r"""
- name: Read the process
  natsops.jetstream.nats_server_process_info:
    config: /etc/nats-server/nats-server.conf
    unit: nats-server
  become: true
  register: result
"""

RETURN = r"""
running:
  description: Whether a nats-server is running with this configuration file.
  type: bool
  returned: always
pid:
  description: Process id of the server. 0 if no server is running.
  type: int
  returned: always
binary:
  description: The executable of the process with all links resolved, followed by C( (deleted\)) if the file has been
    replaced since the start.
  type: str
  returned: always
  sample: /opt/nats-server/2.10.27/bin/nats-server
version:
  description: Version of the running executable. Empty if the version cannot be read.
  type: str
  returned: always
  sample: 2.10.27
started:
  description: When the process was started, in epoch seconds by the host's clock.
  type: float
  returned: always
instance:
  description: Identifier of this process, unique among all processes of this host, even across reboots. Empty if no
    server is running.
  type: str
  returned: always
  sample: 2f0c9f3e-6a0f-4f0e-9a34-5a2b8c5c7d11/4711/90210
config_changed:
  description: Latest modification time of O(config) and O(includes), in epoch seconds by the host's clock. 0 if there
    are none.
  type: float
  returned: always
ports:
  description: TCP ports on which the process listens.
  type: list
  elements: int
  returned: always
missing_ports:
  description: The entries of O(ports) on which the process does not listen.
  type: list
  elements: int
  returned: always
closed_ports:
  description: >-
    Ports of O(members) to which this host cannot connect, each with C(server_name), C(listener) (V(cluster) or
    V(gateway)), C(host), C(port) and C(error).
  type: list
  elements: dict
  returned: always
  sample: [{server_name: n2, listener: cluster, host: 10.0.0.2, port: 6222, error: timed out}]
active_state:
  description: State of the unit in systemd's terms. Empty if O(unit) is not set.
  type: str
  returned: always
  sample: active
unit_changed_after_start:
  description: Whether a file that is read only at startup is newer than the process.
  type: bool
  returned: always
maintenance:
  description:
    - Who took the host out of service, with C(server), C(by), C(since) and C(until) (epoch seconds), C(reason), and
      C(held), which is whether the server is kept from starting. Null if the host is not in maintenance or
      O(maintenance) is not set.
  type: dict
  returned: always
  sample:
    server: n3-c1
    by: ops@ctl-1
    since: 1795529600.0
    until: 1795544000.0
    reason: new disk
    held: true
"""

from typing import Any

from ..module_utils.collection_module import CollectionModule
from ..module_utils.host.observation import PROCESS_SPEC, closed_ports, read_mark, read_process, unit_properties
from ..module_utils.host.process import ProcessError
from ..module_utils.server_config.topology import peer_ports


def read(module: CollectionModule) -> dict[str, Any]:
    """Return the module's result. Raises ProcessError."""
    properties = unit_properties(module.run_command, module.params["unit"]) if module.params["unit"] else {}
    wanted = {name: module.params[name] for name in ("config", "includes", "files", "ports", "timeout")}
    mark = read_mark(module.params["maintenance"])
    closed = closed_ports(peer_ports(module.params["members"], module.params["server_name"] or ""))
    return {"changed": False, **read_process(properties, **wanted), "maintenance": mark, "closed_ports": closed}


def main() -> None:
    module = CollectionModule(
        argument_spec={
            **PROCESS_SPEC,
            "includes": {"type": "list", "elements": "path", "default": []},
            "ports": {"type": "list", "elements": "int", "default": []},
            "timeout": {"type": "float", "default": 0},
            "members": {"type": "list", "elements": "dict", "default": []},
            "server_name": {"type": "str"},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**read(module))
    except ProcessError as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
