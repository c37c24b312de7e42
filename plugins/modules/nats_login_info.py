#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_login_info
short_description: Test which users can log in to which NATS servers
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Logs in to each of O(servers) as each of O(logins), one at a time, and returns each server's response.
  - Refused logins and unreachable servers are returned as results and do not make the task fail.
  - The task's own user is not needed. The TLS options apply to all logins.
extends_documentation_fragment:
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
  - natsops.jetstream.attributes.info_module
options:
  logins:
    description:
      - The users to log in as.
    type: list
    elements: dict
    required: true
    suboptions:
      user:
        description: Name of the user.
        type: str
      password:
        description: The user's password.
        type: str
      token:
        description: A token, instead of user and password.
        type: str
      nkey_seed:
        description: The seed of a user's nkey, or the path of the file that contains it.
        type: str
      credentials:
        description: The path of a credentials file.
        type: path
seealso:
  - module: natsops.jetstream.nats_connection_info
"""

EXAMPLES = r"""
- name: Check whether every server accepts the new password, and still the old one
  natsops.jetstream.nats_login_info:
    servers: [nats://n1.example.com:4222, nats://n2.example.com:4222]
    logins:
      - {user: app, password: "{{ app_password }}"}
      - {user: app-2, password: "{{ app_2_password }}"}
  register: logins

- name: Insist on it
  ansible.builtin.assert:
    that: logins.logins | rejectattr('accepted') | list | length == 0
"""

RETURN = r"""
logins:
  description:
    - One entry for each server and user. C(code) is null for an accepted login, V(authorization) for a refused one,
      and any other value, such as V(unreachable) or V(tls), if the login was not attempted.
  returned: success
  type: list
  elements: dict
  sample:
    - {server: "nats://n1.example.com:4222", user: app, accepted: true, code: null, reason: null}
    - server: nats://n2.example.com:4222
      user: app
      accepted: false
      code: authorization
      reason: the server does not accept user 'app' (Authorization Violation)
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.collection_module import run
from ..module_utils.module import CREDENTIAL_SPEC, ONE_KIND_OF_CREDENTIALS, known_secrets, make_module, with_options
from ..module_utils.nats.accounts import as_user
from ..module_utils.nats.client import Client, ConnectionOptions, NatsFailure


def try_login(options: ConnectionOptions) -> NatsFailure | None:
    """Return why the server refused the login, or None if it accepted the login."""
    with Client(options) as client:
        try:
            client.connect()
        except NatsFailure as failure:
            if failure.code == "invalid_option":
                raise
            return failure
    return None


def attempts(own: ConnectionOptions, logins: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the outcome of each login at each server."""
    found = []
    for server in own.servers:
        for login in logins:
            failure = try_login(replace(as_user(own, login), servers=(server,)))
            found.append(
                {
                    "server": server,
                    "user": login["user"],
                    "accepted": failure is None,
                    "code": failure and failure.code,
                    "reason": failure and failure.description,
                }
            )
    return found


def read(own: ConnectionOptions, module: AnsibleModule) -> dict[str, Any]:
    """Return the module's result."""
    for login in module.params["logins"]:
        module.no_log_values.update(known_secrets(as_user(own, login)))
    return {"changed": False, "logins": attempts(own, module.params["logins"])}


def main() -> None:
    module = make_module(
        {
            "logins": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": CREDENTIAL_SPEC,
                "mutually_exclusive": [ONE_KIND_OF_CREDENTIALS],
                "required_one_of": [ONE_KIND_OF_CREDENTIALS],
            }
        }
    )

    run(module, with_options, lambda own: read(own, module))


if __name__ == "__main__":
    main()
