#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_server_files_info
short_description: Read the files of a host that a backup of its cluster keeps
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Reads the configuration with its includes as one text, the certificates of the authorities that it names, and the JWTs of its
    resolver.
  - The text has no secrets, whoever wrote the files. In the place of each stands a variable; which they are is decided by
    the keys of the parsed configuration. A file that cannot be parsed is left out, and RV(problems) says so.
  - Runs on the managed host and needs no connection to NATS.
extends_documentation_fragment:
  - natsops.jetstream.attributes.plain_info_module
options:
  config:
    description: Path of the configuration file.
    type: path
    required: true
  prefix:
    description: What the names in RV(files) begin with, such as the name of the host.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Read the files of the cluster itself
  natsops.jetstream.nats_server_files_info:
    config: /etc/nats-server/nats-server.conf
  become: true
  register: own
"""

RETURN = r"""
files:
  description: The texts by the names of their files. Two of one name have their paths.
  type: dict
  returned: always
  sample:
    nats-server.conf: "server_name: n1\n"
    ca.crt: "-----BEGIN CERTIFICATE-----\n"
problems:
  description: What is not in RV(files), with the reason.
  type: list
  elements: str
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.natsops.jetstream.plugins.module_utils.host.own_files import own_files
from ansible_collections.natsops.jetstream.plugins.module_utils.host.process import ProcessError


def main() -> None:
    module = AnsibleModule(
        argument_spec={"config": {"type": "path", "required": True}, "prefix": {"type": "str", "default": ""}},
        supports_check_mode=True,
    )
    try:
        files, problems = own_files(module.params["config"])
    except (ProcessError, OSError) as error:
        module.fail_json(msg=f"The files of the server cannot be read: {error}")
    module.exit_json(
        changed=False, files={module.params["prefix"] + name: text for name, text in files.items()}, problems=problems
    )


if __name__ == "__main__":
    main()
