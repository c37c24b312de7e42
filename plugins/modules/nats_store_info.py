#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_store_info
short_description: Read the streams on the disk of a host, and whether its nats-server could start
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Reads the last sequence of each stream from the files of the store, whether or not the server is running.
  - Returns whether a server that is down could be started again. A server can be started if its configuration file and
    its unit exist, the unit is not masked, and no maintenance prevents the start.
  - Runs on the managed host and needs no connection to NATS. The files belong to the server's user, so the module
    usually needs root.
  - From an encrypted store, it returns only the names of the streams.
extends_documentation_fragment:
  - natsops.jetstream.process
  - natsops.jetstream.attributes.plain_info_module
options:
  store_dir:
    description: Directory of the store, as in C(jetstream.store_dir) of the configuration.
    type: path
    required: true
  copy:
    description: Directory of a copy of the store, as created by M(natsops.jetstream.nats_store_copy).
    type: path
seealso:
  - module: natsops.jetstream.nats_rescue
  - module: natsops.jetstream.nats_server_process_info
"""

EXAMPLES = r"""
- name: Read the streams on the disk of a host whose server is down
  natsops.jetstream.nats_store_info:
    config: /etc/nats-server/nats-server.conf
    unit: nats-server
    maintenance: /etc/nats-server/maintenance.json
    store_dir: /var/lib/nats
  become: true
  register: result
"""

RETURN = r"""
running:
  description: Whether a nats-server is running with this configuration file.
  type: bool
  returned: always
fenced:
  description: Why the server cannot start. Empty if the server could start.
  type: str
  returned: always
  sample: its unit nats-server is masked
copied:
  description: Whether the copy exists.
  type: bool
  returned: always
aside:
  description: Whether a rescue has renamed the store to C(jetstream.rescued). There may be a new store next to the
    renamed one.
  type: bool
  returned: always
streams:
  description:
    - The streams. If the files cannot be read, as in an encrypted store (C(encrypted) is true), C(num_replicas) is 0,
      and C(first_seq), C(last_seq) and C(messages) are null. C(messages) is also null if the index is not up to date,
      for instance after a crash.
  type: list
  elements: dict
  returned: always
  sample:
    - {account: APP, name: ORDERS, num_replicas: 3, first_seq: 1, last_seq: 1200, messages: 1200, encrypted: false}
"""

import os
from typing import Any

from ..module_utils.collection_module import CollectionModule
from ..module_utils.host.observation import PROCESS_SPEC, fenced, read_mark, read_process, unit_properties
from ..module_utils.host.process import ProcessError
from ..module_utils.host.store import ASIDE, stored_streams
from ..module_utils.host.system import has_systemd


def read(module: CollectionModule) -> dict[str, Any]:
    """Return the module's result. Raises ProcessError and OSError."""
    given = module.params
    unit = given["unit"] if given["unit"] and has_systemd() else ""
    properties = unit_properties(module.run_command, unit) if unit else {}
    return {
        "changed": False,
        "running": read_process(properties, given["config"])["running"],
        "fenced": fenced(unit, properties, os.path.exists(given["config"]), read_mark(given["maintenance"])),
        "copied": bool(given["copy"]) and os.path.isdir(os.path.join(given["copy"], "jetstream")),
        "aside": os.path.isdir(os.path.join(given["store_dir"], ASIDE)),
        "streams": [stream.as_dict() for stream in stored_streams(given["store_dir"])],
    }


def main() -> None:
    module = CollectionModule(
        argument_spec={
            **PROCESS_SPEC,
            "store_dir": {"type": "path", "required": True},
            "copy": {"type": "path"},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**read(module))
    except (ProcessError, OSError) as error:
        module.fail_json(msg=f"The store cannot be read: {error}")


if __name__ == "__main__":
    main()
