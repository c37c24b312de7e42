# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_server_discovery_info
short_description: Read a nats-server that was not deployed by this collection
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Finds the nats-server of a host by its process and reads the data that M(natsops.jetstream.nats_adoption) needs to
    adopt the server. This data consists of its version, its user, its unit, its loaded configuration, its store, and
    the servers at the other ends of its routes.
  - The configuration is read in the same way as by nats-server, with includes, variables, and the flags of the command
    line. From nats-server 2.11 on, the digest of the configuration must match the one that the process reports. On
    older servers, no configuration file may have changed since the process loaded it.
  - Runs on the managed host, as root or as the user of the server, and needs no connection to NATS. The module changes
    nothing.
  - The result contains passwords. Set C(no_log) for the task.
extends_documentation_fragment:
  - natsops.jetstream.attributes.plain_info_module
options:
  config:
    description: The configuration file of the server to read, if several are running.
    type: path
"""

EXAMPLES = r"""
- name: Read the running server
  natsops.jetstream.nats_server_discovery_info:
  become: true
  register: result
  no_log: true
"""

RETURN = r"""
found:
  description: Whether a server was found. If none was found, only RV(problem) and RV(contained) are returned.
  type: bool
  returned: always
problem:
  description: Why no server was found. Empty if a server was found.
  type: str
  returned: always
contained:
  description: Processes of nats-server that run in containers.
  type: list
  elements: int
  returned: always
process:
  description: >-
    The process, with C(pid), C(binary), C(version), C(started) (epoch seconds), C(instance), C(user) and C(group).
  type: dict
  returned: when found
unit:
  description: >-
    The systemd unit of the process, with C(name), C(fragment), C(enabled), C(settings), C(drop_ins) and C(environment).
    C(settings) are those in the unit's own file, each with its C(section), C(option) and C(value). Each of C(drop_ins)
    has its C(path) and the names of its C(options). C(environment) contains the variables that the unit gives to the
    process beyond those of the configuration. Empty if the process has no unit.
  type: dict
  returned: when found
config_path:
  description: The configuration file as specified on the command line. Empty if none is specified.
  type: str
  returned: when found
  sample: /etc/nats-server.conf
loaded:
  description: >-
    How the configuration was determined, with its C(files), the variables of the C(environment) and the C(flags) that
    it uses, the C(monitor_url), and C(proof). C(proof) is V(digest) or V(time), or empty if the loaded configuration is
    unknown; C(problem) then contains the reason.
  type: dict
  returned: when found
config:
  description: The loaded configuration, with nats-server's own keys. This configuration contains passwords.
  type: dict
  returned: when found
varz:
  description: The server's own C(/varz). Empty if its monitoring port does not respond.
  type: dict
  returned: when found
routes:
  description: Names of the servers at the other ends of the server's routes. Null if the monitoring port does not
    respond.
  type: list
  elements: str
  returned: when found
store:
  description: >-
    The store, with the configured C(path), the path C(reported) by the server, and whether the host sees the C(same)
    directory as the process. The two directories differ if the process has a private C(/tmp).
  type: dict
  returned: when found
  sample: {path: /var/lib/nats, reported: /var/lib/nats/jetstream, same: true}
tls_files:
  description: Certificates and keys to which the configuration refers, each with C(option), C(path) and C(exists).
  type: list
  elements: dict
  returned: when found
binary_link_free:
  description: Whether C(/usr/local/bin/nats-server) either is a link or does not exist.
  type: bool
  returned: when found
"""


from ..module_utils.collection_module import CollectionModule
from ..module_utils.host.discovery import discover
from ..module_utils.host.process import ProcessError


def main() -> None:
    module = CollectionModule(argument_spec={"config": {"type": "path"}}, supports_check_mode=True)
    try:
        found = discover(module.params["config"] or "", module.run_command)
    except (ProcessError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
