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
  - Finds the nats-server that runs with a given configuration file, from C(/proc) and, where a unit is named, from systemd.
  - Runs on the managed host and needs no connection to NATS.
  - Reading the executable and the sockets of another user's process needs root.
options:
  config:
    description: Path of the configuration file on the server's command line. It identifies the server.
    type: path
    required: true
  includes:
    description: The other configuration files, which O(config) includes.
    type: list
    elements: path
    default: []
  unit:
    description: Name of the systemd unit that should run it. Leave out where systemd is not used.
    type: str
  files:
    description:
      - Files that the process read only when it started, such as its environment file.
      - With O(unit), the unit, its drop-ins and its environment files are added.
    type: list
    elements: path
    default: []
  ports:
    description: Wait until the process listens on all of these TCP ports, or is gone.
    type: list
    elements: int
    default: []
  timeout:
    description: Seconds to wait for O(ports). It is no failure when they pass; see RV(missing_ports).
    type: float
    default: 0
attributes:
  check_mode:
    description: Can run in check mode and then does the same, since it only reads.
    support: full
  diff_mode:
    description: Nothing is changed.
    support: none
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
  description: Whether a nats-server runs with this configuration file.
  type: bool
  returned: always
pid:
  description: Its process id, 0 when none runs.
  type: int
  returned: always
binary:
  description: Its executable with all links resolved, followed by C( (deleted\)) when the file was replaced since.
  type: str
  returned: always
  sample: /opt/nats-server/2.10.27/nats-server
version:
  description: Version of the executable that runs. Empty when it may not be read.
  type: str
  returned: always
  sample: 2.10.27
started:
  description: When it was started, in epoch seconds by the host's clock.
  type: float
  returned: always
instance:
  description: Tells this process from every other one of this host, also after a reboot. Empty when none runs.
  type: str
  returned: always
  sample: 2f0c9f3e-6a0f-4f0e-9a34-5a2b8c5c7d11/4711/90210
config_changed:
  description: When O(config) or one of O(includes) was written last, in epoch seconds by the host's clock. 0 when there is none.
  type: float
  returned: always
ports:
  description: TCP ports on which it listens.
  type: list
  elements: int
  returned: always
missing_ports:
  description: Those of O(ports) on which it does not listen.
  type: list
  elements: int
  returned: always
active_state:
  description: State of the unit in systemd's words. Empty without O(unit).
  type: str
  returned: always
  sample: active
unit_changed_after_start:
  description: Whether one of the files that are read only at the start is newer than the process.
  type: bool
  returned: always
"""

import os
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.natsops.jetstream.plugins.module_utils._process import (
    ProcessError,
    ServerProcess,
    find_server,
    listening_ports,
    running_version,
)

_PROPERTIES = ("ActiveState", "FragmentPath", "DropInPaths", "EnvironmentFiles")


def unit_properties(module: AnsibleModule, unit: str) -> dict[str, str]:
    """What systemd knows of the unit; empty values for a unit that does not exist."""
    wanted = ",".join(_PROPERTIES)
    _rc, out, _err = module.run_command(["systemctl", "show", f"--property={wanted}", f"{unit}.service"], check_rc=True)
    return dict(line.split("=", 1) for line in out.splitlines() if "=" in line)


def newest(files: list[str]) -> float:
    """The newest modification time of the files that exist, in epoch seconds; 0 when none does."""
    return max((os.stat(path).st_mtime for path in files if os.path.exists(path)), default=0.0)


def unit_files(properties: dict[str, str]) -> list[str]:
    """The files that systemd read for the unit. EnvironmentFiles has the form ``PATH (ignore_errors=yes)``."""
    environment = properties.get("EnvironmentFiles", "").partition(" (")[0]
    paths = [properties.get("FragmentPath", ""), environment, *properties.get("DropInPaths", "").split()]
    return [path for path in paths if path]


def wait(config: str, wanted: list[int], timeout: float) -> tuple[ServerProcess | None, list[int]]:
    """The server and its ports: as soon as all wanted ones are there, when it is gone, or after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        server = find_server(config)
        ports = listening_ports(server.pid) if server else []
        if not server or set(wanted) <= set(ports) or time.monotonic() >= deadline:
            return server, ports
        time.sleep(0.2)


def read(module: AnsibleModule) -> dict[str, Any]:
    """The return values of the module."""
    properties = unit_properties(module, module.params["unit"]) if module.params["unit"] else {}
    server, ports = wait(module.params["config"], module.params["ports"], module.params["timeout"])
    result: dict[str, Any] = {
        "running": server is not None,
        "pid": server.pid if server else 0,
        "binary": server.binary if server else "",
        "version": running_version(server) if server else "",
        "started": server.started if server else 0.0,
        "instance": server.instance if server else "",
        "config_changed": newest([module.params["config"], *module.params["includes"]]),
        "ports": ports,
        "missing_ports": sorted(set(module.params["ports"]) - set(ports)),
        "active_state": properties.get("ActiveState", ""),
        "unit_changed_after_start": False,
    }
    if server:
        files = module.params["files"] + unit_files(properties)
        result["unit_changed_after_start"] = newest(files) > server.started
    return result


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "config": {"type": "path", "required": True},
            "includes": {"type": "list", "elements": "path", "default": []},
            "unit": {"type": "str"},
            "files": {"type": "list", "elements": "path", "default": []},
            "ports": {"type": "list", "elements": "int", "default": []},
            "timeout": {"type": "float", "default": 0},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(changed=False, **read(module))
    except ProcessError as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
