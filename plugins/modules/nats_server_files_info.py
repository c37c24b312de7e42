#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_server_files_info
short_description: Read the files of a host that belong in a backup of its cluster
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Reads the configuration with its includes as one text, the certificates of the configured authorities, and the
    JWTs of its resolver.
  - The text contains no secrets, no matter how the files were written. Each secret is replaced by a variable; the keys
    of the parsed configuration determine which values are secrets. A file that cannot be parsed is omitted and listed
    in RV(problems).
  - Runs on the managed host and needs no connection to NATS.
extends_documentation_fragment:
  - natsops.jetstream.attributes.plain_info_module
options:
  config:
    description: Path of the configuration file.
    type: path
    required: true
  prefix:
    description: Prefix of the names in RV(files), such as the name of the host.
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
  description: The text of each file, by the name of the file. Files with the same name are listed with their paths.
  type: dict
  returned: always
  sample:
    nats-server.conf: "server_name: n1\n"
    ca.crt: "-----BEGIN CERTIFICATE-----\n"
problems:
  description: The files missing from RV(files), with the reasons.
  type: list
  elements: str
  returned: always
"""


from ..module_utils.collection_module import CollectionModule
from ..module_utils.host.own_files import own_files
from ..module_utils.host.process import ProcessError


def main() -> None:
    module = CollectionModule(
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
