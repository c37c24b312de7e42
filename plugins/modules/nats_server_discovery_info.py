# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_server_discovery_info
short_description: Read a nats-server that somebody else set up
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Finds the nats-server of a host by its process and reads what M(natsops.jetstream.nats_adoption) needs to adopt it. That is
    its version, its user, its unit, what it has loaded, its store, and the servers at the other ends of its routes.
  - The configuration is read as nats-server reads it, with includes, variables, and the flags of the command line. From
    nats-server 2.11 on, its digest must be the one that the process reports. Before, no file may have changed since the process
    loaded it.
  - Runs on the managed host, as root or as the user of the server, and needs no connection to NATS. It changes nothing.
  - The result holds passwords. Use it with C(no_log).
extends_documentation_fragment:
  - natsops.jetstream.attributes.plain_info_module
options:
  config:
    description: The configuration file of the server that is meant, where several run.
    type: path
"""

EXAMPLES = r"""
- name: Read the server that runs
  natsops.jetstream.nats_server_discovery_info:
  become: true
  register: result
  no_log: true
"""

RETURN = r"""
found:
  description: Whether a server was found. Without one, only RV(problem) and RV(contained) are returned.
  type: bool
  returned: always
problem:
  description: Why none was found. Empty otherwise.
  type: str
  returned: always
contained:
  description: Processes of nats-servers that run in containers.
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
    The systemd unit of the process, with C(name), C(fragment), C(enabled), the C(settings) of its own file, each with its
    C(section), C(option) and C(value), C(drop_ins), each with its C(path) and the names of its C(options), and the
    C(environment) that it gives to the process beside what the configuration uses. Empty when it has none.
  type: dict
  returned: when found
config_path:
  description: The configuration file, as the command line names it. Empty without one.
  type: str
  returned: when found
  sample: /etc/nats-server.conf
loaded:
  description: >-
    How the configuration is known, with its C(files), the variables of the C(environment) and the C(flags) that it uses, the
    C(monitor_url), and C(proof). That is V(digest) or V(time), or empty where C(problem) says why it is not known what the
    process has loaded.
  type: dict
  returned: when found
config:
  description: What the process has loaded, in nats-server's own words. It holds passwords.
  type: dict
  returned: when found
varz:
  description: What the server reports of itself. Empty when its monitoring port does not answer.
  type: dict
  returned: when found
routes:
  description: Names of the servers at the other ends of its routes. Null when the monitoring port does not answer.
  type: list
  elements: str
  returned: when found
store:
  description: >-
    The store, with its C(path) by the configuration, the one that the server C(reported), and whether the host sees the C(same)
    directory as the process. A private C(/tmp) is another one.
  type: dict
  returned: when found
  sample: {path: /var/lib/nats, reported: /var/lib/nats/jetstream, same: true}
tls_files:
  description: Certificates and keys that the configuration names, each with C(option), C(path) and C(exists).
  type: list
  elements: dict
  returned: when found
binary_link_free:
  description: Whether C(/usr/local/bin/nats-server) is a link, or not there.
  type: bool
  returned: when found
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.natsops.jetstream.plugins.module_utils.host.discovery import discover
from ansible_collections.natsops.jetstream.plugins.module_utils.host.process import ProcessError


def main() -> None:
    module = AnsibleModule(argument_spec={"config": {"type": "path"}}, supports_check_mode=True)
    try:
        found = discover(module.params["config"] or "", module.run_command)
    except (ProcessError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
