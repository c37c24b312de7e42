#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_backup_info
short_description: Read and verify backups of streams without a server
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Finds the backups in a directory and its subdirectories, returns their contents, and verifies their archives.
  - Reads backups of M(natsops.jetstream.nats_backup) and of C(nats stream backup), from servers of any version.
  - Needs no connection to NATS. The task does not fail if a backup is damaged; see RV(backups[].problem).
extends_documentation_fragment:
  - natsops.jetstream.backup_store
  - natsops.jetstream.backup_identity
  - natsops.jetstream.attributes.plain_info_module
options:
  path:
    description:
      - Directory of one backup, or a directory with backups in its subdirectories, on the host that runs the module.
      - Alternatively, a location in object storage, C(s3://BUCKET/PREFIX); see O(s3).
    type: path
    required: true
  stream:
    description:
      - Name of a stream. Backups of other streams are ignored.
    type: str
  verify:
    description:
      - How archives are verified.
      - V(none) reads only the files next to the archives, not the archives themselves.
      - V(checksum) compares the size and the SHA-256 digest of each archive with the values recorded by the backup,
        which finds every truncation and every flipped bit. The nats CLI does not record these values.
      - V(contents) also reads each archive completely, and verifies its structure, sizes and order, and the checksum
        of each chunk.
      - V(records) also verifies the checksum that a server before 2.15 computed for each message when storing it.
        This check finds messages that were damaged on the server's disk before the backup, and processes about 3 MB
        per second.
    type: str
    choices: [none, checksum, contents, records]
    default: checksum
seealso:
  - module: natsops.jetstream.nats_backup
  - module: natsops.jetstream.nats_restore
"""

EXAMPLES = r"""
- name: Verify every backup
  natsops.jetstream.nats_backup_info:
    path: /srv/backup
    verify: contents
  register: result
  failed_when: result.backups | selectattr('problem') | list | length > 0
"""

RETURN = r"""
backups:
  description: The readable backups, oldest first, followed by the backups that cannot be read.
  returned: success
  type: list
  elements: dict
  contains:
    path:
      description: Directory of the backup.
      type: str
      sample: /srv/backup/APP/ORDERS@20261123T020000.123456Z
    problem:
      description: The problem found in the backup. Empty if none was found.
      type: str
      sample: "stream.tar.s2: at byte 4711: the checksum of a chunk is wrong"
    backup:
      description:
        - The content of C(backup.json), as M(natsops.jetstream.nats_backup) returns it. Null if the file cannot
          be read.
      type: dict
    contents:
      description: The contents of the archive. Null unless O(verify) is V(contents) or V(records) and no problem was
        found in the archive.
      type: dict
      sample: {messages: 1000, bytes: 152000, largest: 100, first_seq: 1, last_seq: 1000, digest: 9228bdf7, exact: true}
catalogue:
  description:
    - The catalogue of the directory, for the report V(backups) of P(natsops.jetstream.nats_report#filter). Null if the
      directory has no catalogue or the catalogue cannot be read. RV(backups) lists an unreadable catalogue with the
      reason.
  returned: success
  type: dict
  sample:
    schema: natsops.backup_catalogue
    version: 1
    written: "2026-11-24T02:00:10.123456Z"
    exclude: []
    backups: []
    streams: {APP/ORDERS: {current: "2026-11-24T02:00:00.123456Z", problem: "", proof: null}}
"""

import json
from typing import Any

from ..module_utils.backup.catalogue import FILE
from ..module_utils.backup.catalogue_file import load_catalogue
from ..module_utils.backup.files import Backup, find_backups
from ..module_utils.backup.store import BackupStore
from ..module_utils.backup.target import READ_SPEC, requested_store
from ..module_utils.backup.verify import CHECKSUM, LEVELS, verify
from ..module_utils.collection_module import CollectionModule, run
from ..module_utils.module import without_connection
from ..module_utils.nats.client import NatsFailure

NONE = "none"


def read(store: BackupStore, stream: str | None, level: str) -> dict[str, Any]:
    """Return the module's result. Raises NatsFailure invalid_option if the location does not exist."""
    store.require()
    found, failures = find_backups(store, stream)
    rows = [_described(backup, level) for backup in found]
    rows += [{"path": None, "problem": failure.description, "backup": None, "contents": None} for failure in failures]
    catalogue = None
    try:
        if FILE in store.files(""):
            catalogue = json.loads(load_catalogue(store).text())
    except NatsFailure as failure:
        rows.append({"path": None, "problem": failure.description, "backup": None, "contents": None})
    return {"changed": False, "backups": rows, "catalogue": catalogue}


def _described(backup: Backup, level: str) -> dict[str, Any]:
    row: dict[str, Any] = {
        "path": backup.path,
        "problem": "",
        "backup": backup.manifest.as_dict(),
        "contents": None,
    }
    try:
        contents = None if level == NONE else verify(backup, level)
    except NatsFailure as failure:
        return {**row, "problem": failure.description}
    return row if contents is None else {**row, "contents": contents.as_dict()}


def main() -> None:
    module = CollectionModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "stream": {"type": "str"},
            "verify": {"type": "str", "choices": [NONE, *LEVELS], "default": CHECKSUM},
            **READ_SPEC,
        },
        supports_check_mode=True,
    )
    params = module.params
    run(
        module,
        without_connection,
        lambda _module: read(requested_store(params, "path"), params["stream"], params["verify"]),
    )


if __name__ == "__main__":
    main()
