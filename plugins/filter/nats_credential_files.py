# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nats_credential_files
short_description: List the files with the credentials of a document's users, by host
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Lists the files that the users of a document of accounts name in C(deliver), grouped by host. The result contains no
    secret.
  - Only the roles and playbooks of this collection need this filter; it may change in any release.
positional: _input
options:
  _input:
    description: The document of accounts as YAML text.
    type: str
    required: true
  directory:
    description: Absolute directory of relative paths on the controller.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Show the files
  ansible.builtin.debug:
    msg: "{{ lookup('ansible.builtin.file', 'accounts.yml') | natsops.jetstream.nats_credential_files('/srv/nats') }}"
"""

RETURN = r"""
_value:
  description: One entry per host, with the files in the form of M(natsops.jetstream.nats_credential_files).
  type: list
  elements: dict
  sample:
    - host: localhost
      files:
        - {user: ORDERS/shop, path: /srv/nats/shop.creds, mode: "0600"}
"""

import os
from typing import Any

from ansible.errors import AnsibleFilterError

from ..module_utils.accounts.document import CONTROLLER, Delivery, parse_document
from ..module_utils.documents import InvalidDocument


def _file(user: str, deliver: Delivery, directory: str) -> dict[str, str]:
    path = deliver.path
    if deliver.host == CONTROLLER:
        path = os.path.normpath(os.path.join(directory, os.path.expanduser(path)))
    owners = {key: value for key, value in (("owner", deliver.owner), ("group", deliver.group)) if value}
    return {"user": user, "path": path, "mode": deliver.mode, **owners}


def nats_credential_files(document: str, directory: str) -> list[dict[str, Any]]:
    """Return the files by host; see DOCUMENTATION."""
    try:
        users = parse_document(document).users
    except InvalidDocument as error:
        raise AnsibleFilterError(f"nats_credential_files: {error}") from error
    hosts: dict[str, list[dict[str, str]]] = {}
    for user in users:
        if user.deliver is not None:
            hosts.setdefault(user.deliver.host, []).append(_file(user.label, user.deliver, directory))
    return [{"host": host, "files": files} for host, files in sorted(hosts.items())]


class FilterModule:
    """The filters defined in this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"nats_credential_files": nats_credential_files}
