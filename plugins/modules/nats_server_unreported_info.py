# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_server_unreported_info
short_description: Read data that a nats-server does not report itself
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Reads data on a host that the checks of the insights need but that the server's endpoints do not report.
    O(natsops.jetstream.nats_snapshot#module:hosts) adds this data to a snapshot.
  - Runs on the managed host, as root or as the user of the server, and needs no connection to NATS. The module changes
    nothing, and returns no secrets.
extends_documentation_fragment:
  - natsops.jetstream.attributes.plain_info_module
options:
  config:
    description: The configuration file of the server to read, if several are running.
    type: path
seealso:
  - module: natsops.jetstream.nats_snapshot
"""

EXAMPLES = r"""
- name: Read the data that no server reports
  natsops.jetstream.nats_server_unreported_info:
    config: /etc/nats-server/nats-server.conf
  become: true
  register: result
"""

RETURN = r"""
host:
  description: The data. Null if no server is running, or if several are running and O(config) does not select one.
  returned: always
  type: dict
  contains:
    server:
      description: Name of the server. Empty if neither its configuration file nor its monitoring port provides the
        name.
      type: str
      sample: n1-c1
    config_digest:
      description: >-
        Digest of the current configuration file on disk, from C(nats-server -t) of the running executable. Null before
        nats-server 2.11 or if the file is not valid.
      type: str
      sample: sha256:4f6f0a1d2c
    open_files:
      description: Maximum number of open files of the process. Null if there is no limit.
      type: int
      sample: 1048576
    plaintext_passwords:
      description: >-
        Number of passwords and tokens in the configuration that could be hashes but are not, except those that come
        from the environment. Null if the file cannot be read.
      type: int
      sample: 0
    disk_free:
      description: Free bytes on the file system of the store. Null if the server has no store.
      type: int
      sample: 912680550400
problem:
  description: Why RV(host) is null. Empty if it is not.
  returned: always
  type: str
  sample: no nats-server is running with /etc/nats-server/nats-server.conf
"""


from ..module_utils.collection_module import CollectionModule
from ..module_utils.host.process import ProcessError
from ..module_utils.host.unreported import unreported


def main() -> None:
    module = CollectionModule(argument_spec={"config": {"type": "path"}}, supports_check_mode=True)
    try:
        host, problem = unreported(module.params["config"] or "", module.run_command)
    except (ProcessError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, host=host, problem=problem)


if __name__ == "__main__":
    main()
