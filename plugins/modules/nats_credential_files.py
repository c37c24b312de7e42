#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_credential_files
short_description: Read and write the credential files of a host in one step
version_added: 0.1.0
author: natsops maintainers (@natsops)
description:
  - Reads the C(.creds) files of a host, and replaces those with new content in one transaction. If a file cannot be
    written, all files remain unchanged.
  - Files without new content keep their content, and get the mode and the owners.
  - Runs on the managed host and needs no connection to NATS.
options:
  files:
    description: The files.
    type: list
    elements: dict
    required: true
    suboptions:
      user:
        description: The user, as C(ACCOUNT/NAME).
        type: str
        required: true
      path:
        description: Absolute path. The directory of the file must exist.
        type: path
        required: true
      mode:
        description: Permissions, such as C("0600").
        type: str
        default: "0600"
      owner:
        description: Name of the owning user. Unchanged by default.
        type: str
      group:
        description: Name of the owning group. Unchanged by default.
        type: str
  contents:
    description: New content of files, by the user.
    type: dict
    default: {}
  read_only:
    description: Whether to change nothing and to return the contents of the files. Set C(no_log) for the task.
    type: bool
    default: false
attributes:
  check_mode:
    description: Can run in check mode and predict the changes without making them.
    support: full
  diff_mode:
    description: Files with credentials have no diff.
    support: none
  idempotent:
    description: When run twice in a row with the same options, the second run changes nothing.
    support: full
seealso:
  - module: natsops.jetstream.nats_document_credentials
"""

EXAMPLES = r"""
- name: Read the credentials on the host
  natsops.jetstream.nats_credential_files:
    files:
      - {user: ORDERS/shop, path: /etc/shop/shop.creds, owner: shop}
    read_only: true
  register: present
  no_log: true
"""

RETURN = r"""
current:
  description: The content of each existing file, by the user. Secret.
  returned: with O(read_only)
  type: dict
  sample: {}
"""

from typing import Any

from ..module_utils.collection_module import CollectionModule, failing_on, run
from ..module_utils.host.files import FilesError, ManagedFile, replace_all


def ensure(module: CollectionModule) -> dict[str, Any]:
    """Return the module's result. Raises FilesError."""
    contents: dict[str, Any] = module.params["contents"]
    current: dict[str, str] = {}
    desired = []
    for one in module.params["files"]:
        found = ManagedFile(one["path"], 0).before()
        if found is not None:
            current[one["user"]] = found.decode("utf-8", errors="replace")
        content = str(contents[one["user"]]).encode() if one["user"] in contents else found
        if content is not None:
            file = ManagedFile(one["path"], int(one["mode"], 8), one["owner"], one["group"], content, secret=True)
            desired += [file] if file.differs() else []
    if module.params["read_only"]:
        return {"changed": False, "current": current}
    if not module.check_mode:
        replace_all(desired)
    return {"changed": bool(desired)}


def main() -> None:
    file = {
        "user": {"type": "str", "required": True},
        "path": {"type": "path", "required": True},
        "mode": {"type": "str", "default": "0600"},
        "owner": {"type": "str"},
        "group": {"type": "str"},
    }
    module = CollectionModule(
        argument_spec={
            "files": {"type": "list", "elements": "dict", "required": True, "options": file},
            "contents": {"type": "dict", "default": {}, "no_log": True},
            "read_only": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    run(module, failing_on(FilesError, OSError, ValueError), ensure)


if __name__ == "__main__":
    main()
