#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_store_copy
short_description: Copy the store of a stopped nats-server
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Copies the streams and consumers on the disk of a host, without the Raft groups of the system account.
  - Refuses the copy if the server is running, even if it was started during the copy, or if the disk has too little
    room.
  - The copy is published only after it is complete and synced. An existing copy is kept; an incomplete copy left by a
    killed run is replaced.
  - Runs on the managed host and needs no connection to NATS. The files belong to the server's user, so the module
    usually needs root.
  - Only the roles of this collection need this module; its options may change in any release.
options:
  config:
    description: Path of the configuration file on the server's command line. This path identifies the server.
    type: path
    required: true
  store_dir:
    description: Directory of the store, as in C(jetstream.store_dir) of the configuration.
    type: path
    required: true
  copy:
    description:
      - Directory for the copy; its parent must exist. Only the user that runs this module can read it.
    type: path
    required: true
  reserve:
    description: Space that must stay free on the disk, such as V(10GB). A bare number is in bytes.
    type: str
    default: 1GB
attributes:
  check_mode:
    description: Can run in check mode. Check mode refuses the copy in the same cases as a real run.
    support: full
  diff_mode:
    description: Returns no diff.
    support: none
  idempotent:
    description: Whether a second run changes nothing.
    support: full
seealso:
  - module: natsops.jetstream.nats_store_backup
  - module: natsops.jetstream.nats_server_host_info
"""

EXAMPLES = r"""
- name: Copy the store of a server that is stopped
  natsops.jetstream.nats_store_copy:
    config: /etc/nats-server/nats-server.conf
    store_dir: /var/lib/nats
    copy: /var/lib/nats-rescue
  become: true
"""

RETURN = r"""
copy:
  description: Directory of the copy.
  type: str
  returned: success
  sample: /var/lib/nats-rescue
streams:
  description: The streams that the copy contains, or would contain, in the form of C(streams) of
    RV(natsops.jetstream.nats_server_host_info#module:rescue).
  type: list
  elements: dict
  returned: success
  sample:
    - {account: APP, name: ORDERS, num_replicas: 3, first_seq: 1, last_seq: 1200, messages: 1200, encrypted: false}
"""

from typing import Any

from ..module_utils.collection_module import CollectionModule, failing_on, run
from ..module_utils.host.process import find_server
from ..module_utils.host.store import stored_streams
from ..module_utils.rescue.store_copy import StoreCopyRequest, StoreError, copy_store
from ..module_utils.units import size_bytes


def ensure(module: CollectionModule) -> dict[str, Any]:
    """Return the module's result. Raises StoreError, OSError, and ValueError for an invalid size."""
    given = module.params
    request = StoreCopyRequest(
        given["store_dir"],
        given["copy"],
        size_bytes(given["reserve"]),
        lambda: find_server(given["config"]) is not None,
    )
    changed = copy_store(request, module.check_mode)
    source = given["store_dir"] if changed and module.check_mode else given["copy"]
    streams = [stream.as_dict() for stream in stored_streams(source)]
    return {"changed": changed, "copy": given["copy"], "streams": streams}


def failure_message(error: Exception) -> str:
    """Return the message of the module's failure."""
    return f"The store is not copied: {error}" if isinstance(error, (StoreError, OSError)) else f"reserve: {error}"


def main() -> None:
    module = CollectionModule(
        argument_spec={
            "config": {"type": "path", "required": True},
            "store_dir": {"type": "path", "required": True},
            "copy": {"type": "path", "required": True},
            "reserve": {"type": "str", "default": "1GB"},
        },
        supports_check_mode=True,
    )
    run(module, failing_on(StoreError, OSError, ValueError, message=failure_message), ensure)


if __name__ == "__main__":
    main()
