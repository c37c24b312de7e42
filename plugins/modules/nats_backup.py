#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_backup
short_description: Save the streams of accounts, and keep a catalogue of the backups
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Saves streams, key-value buckets and object buckets of one or more accounts, one at a time, into
    C(<directory>/<account>/<stream>@<time>), each in the format of M(natsops.jetstream.nats_stream_backup).
  - A stream that has not changed since its newest backup is not saved again, so the next run continues an interrupted
    run. If a stream cannot be saved, all other streams are still saved. The module then fails and names the failed
    stream, and the catalogue records the problem of that stream.
  - Removes old backups of the saved streams according to O(keep), and writes C(<directory>/catalogue.json). The
    catalogue lists every backup and records, for each stream, when the stream was last found unchanged and when a
    restore of it was last proven.
  - Only one run at a time can write to a directory.
extends_documentation_fragment:
  - natsops.jetstream.accounts
  - natsops.jetstream.stream_selection
  - natsops.jetstream.backup_store
  - natsops.jetstream.backup_encryption
  - natsops.jetstream.transfer
  - natsops.jetstream.progress
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
attributes:
  check_mode:
    support: full
    details:
      - In check mode, RV(streams[].bytes) is the size of the messages in the stream. The archive will be smaller,
        because it is compressed.
  diff_mode:
    support: full
    details:
      - For each stream, shows the messages, sequences and consumers of its previous backup and of the new one.
  idempotent:
    support: full
options:
  directory:
    description:
      - Directory of the backups, on the host that runs the module.
      - Alternatively, a location in object storage, C(s3://BUCKET/PREFIX); see O(s3).
    type: path
    required: true
  accounts:
    description:
      - Accounts to save. Defaults to all accounts in O(account_users) or, if that option is not set, to the account
        of the task's own user.
    type: list
    elements: str
  keep:
    description:
      - Number of backups of each stream to keep. Days, weeks and months are counted in UTC. If no number is set, all
        backups are kept.
      - The newest backup is always kept, and so are all backups of a stream that could not be saved or was deleted.
    type: dict
    suboptions:
      last:
        description: Number of newest backups to keep.
        type: int
        default: 0
      daily:
        description: Keep the newest backup of each of this many days. Days without a backup are not counted.
        type: int
        default: 0
      weekly:
        description: Keep the newest backup of each of this many weeks. Weeks without a backup are not counted.
        type: int
        default: 0
      monthly:
        description: Keep the newest backup of each of this many months. Months without a backup are not counted.
        type: int
        default: 0
  cluster_files:
    description:
      - The cluster's own files, such as configuration without secrets, JWTs of accounts, and CA certificates, as a
        mapping of each file name to its text. If one of these files has changed since the last backup, all of them are
        saved together as C(cluster@<time>.json).
    type: dict
  consumers:
    description:
      - Whether consumers are saved as well.
    type: bool
    default: true
  verify:
    description:
      - How each archive is verified before the backup is accepted; see M(natsops.jetstream.nats_stream_backup).
    type: str
    choices: [checksum, contents, records]
    default: contents
notes:
  - "Failures before anything is saved have the codes V(locked), V(invalid_option) and V(damaged) (the catalogue cannot
    be read)."
seealso:
  - module: natsops.jetstream.nats_restore
  - module: natsops.jetstream.nats_stream_backup
  - module: natsops.jetstream.nats_backup_info
"""

EXAMPLES = r"""
- name: Save all streams of an account
  natsops.jetstream.nats_backup:
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"
    directory: /srv/backup

- name: Save two accounts, except streams that can be recomputed
  natsops.jetstream.nats_backup:
    account_users:
      - {account: APP, user: operator-APP, password: "{{ nats_operator_password }}"}
      - {account: BILLING, user: operator-BILLING, password: "{{ nats_operator_password }}"}
    directory: /srv/backup
    exclude: [APP/CACHE_*, "*/KV_sessions"]
    keep: {last: 2, daily: 7, weekly: 4, monthly: 12}
    rate_limit: 50MB
"""

RETURN = r"""
streams:
  description: The streams, in the order in which they were saved.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: C(ACCOUNT/STREAM), where C(ACCOUNT) is the identity of the account, which is its public key in
        operator mode.
      type: str
      sample: APP/ORDERS
    label:
      description: Display name of the stream, with the account's name.
      type: str
      sample: APP/ORDERS
    account:
      description: Identity of the account. Null for the account of the task's own user.
      type: str
    stream:
      description: Name of the stream.
      type: str
    changed:
      description: Whether a backup was, or would be, taken.
      type: bool
    path:
      description: Directory of the stream's newest backup. Null in check mode if a new one would be taken.
      type: str
      sample: /srv/backup/APP/ORDERS@20261123T020000.123456Z
    reason:
      description: Why a backup was taken.
      type: str
      sample: messages were stored or removed since
    messages:
      description: Number of messages in the backup.
      type: int
    bytes:
      description: Size of the archive in bytes.
      type: int
    caveats:
      description: Possible side effects of taking a snapshot with the servers' version of nats-server.
      type: list
      elements: str
    diff:
      description: Messages, sequences and consumers of the previous backup and of the new one.
      type: dict
cluster:
  description: The backup of the cluster's own files that was, or would be, taken. Null if all are unchanged.
  returned: success
  type: dict
  sample: {path: "cluster@20261123T020000.123456Z.json", files: [n1/nats-server.conf, servers.json]}
removed:
  description: Directories, below O(directory), of the backups that were, or would be, removed.
  returned: success
  type: list
  elements: str
  sample: [APP/ORDERS@20261101T020000.123456Z]
future:
  description:
    - Backups in O(directory) that are dated in the future, because the clock was wrong when they were taken. These
      backups are never removed, are not counted by O(keep), and are restored only if they are named or no other
      backup exists.
  returned: success
  type: list
  elements: str
  sample: []
lines:
  description: The result as readable text.
  returned: success
  type: list
  elements: str
  sample: [12 streams unchanged since the newest backup]
screen:
  description: As much of RV(lines) as fits on a screen, for M(natsops.jetstream.nats_show).
  returned: success
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.backup.retention import Retention
from ..module_utils.backup.run_backup import BackupRequest, save_streams
from ..module_utils.backup.selection import SELECTION_SPEC
from ..module_utils.backup.target import WRITE_SPEC, misplaced_secrets, requested_store
from ..module_utils.backup.transfer import TRANSFER_SPEC, requested_pace
from ..module_utils.backup.verify import CONTENTS, LEVELS
from ..module_utils.collection_module import run
from ..module_utils.module import ACCOUNT_USERS_SPEC, fail, make_module, warn_of_caveats, with_accounts
from ..module_utils.nats.accounts import Connections
from ..module_utils.nats.client import NatsFailure
from ..module_utils.progress import PROGRESS_SPEC, Progress

PERIODS = ("last", "daily", "weekly", "monthly")


def parse_keep(option: dict[str, int] | None) -> Retention:
    """Return the numbers of backups to keep. Raises NatsFailure invalid_option."""
    numbers = option or {}
    wrong = [f"{name} is {number}" for name, number in numbers.items() if number < 0]
    if wrong:
        raise NatsFailure("invalid_option", f"keep: must not be negative: {', '.join(wrong)}")
    return Retention(**numbers)


def ensure(module: AnsibleModule, connections: Connections) -> dict[str, Any]:
    """Return the module's result. A backup that fails ends the module with its failure. Raises NatsFailure."""
    params = module.params
    request = BackupRequest(
        requested_store(params),
        [connections.identity(account) for account in params["accounts"] or connections.accounts] or (None,),
        params["streams"],
        params["exclude"],
        params["verify"],
        requested_pace(params),
        parse_keep(params["keep"]),
        params["cluster_files"] or {},
    )
    outcome = save_streams(connections, request, Progress(params["progress"], None), module.check_mode)
    warn_of_caveats(module, outcome.result["streams"])
    if outcome.failure is not None:
        fail(module, outcome.failure, changed=outcome.result["changed"])
    return outcome.result


def main() -> None:
    module = make_module(
        {
            "directory": {"type": "path", "required": True},
            "accounts": {"type": "list", "elements": "str"},
            **SELECTION_SPEC,
            "keep": {"type": "dict", "options": {name: {"type": "int", "default": 0} for name in PERIODS}},
            "cluster_files": {"type": "dict"},
            "consumers": {"type": "bool", "default": True},
            "verify": {"type": "str", "choices": list(LEVELS), "default": CONTENTS},
            **WRITE_SPEC,
            **TRANSFER_SPEC,
            **PROGRESS_SPEC,
            **ACCOUNT_USERS_SPEC,
        }
    )
    module.no_log_values.update(misplaced_secrets(module.params))
    run(module, with_accounts, lambda connections: ensure(module, connections))


if __name__ == "__main__":
    main()
