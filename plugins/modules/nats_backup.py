#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_backup
short_description: Save the streams of accounts with a catalogue, or one stream
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Saves streams, key-value buckets and object buckets with their consumers, using the servers' own snapshot function.
    Each backup has a separate directory with the archive as sent by the servers (C(stream.tar.s2)) and C(backup.json),
    which contains the data that the archive lacks. C(nats stream restore) can read both files.
  - With O(directory), saves the streams of one or more accounts, one at a time, into
    C(<directory>/<account>/<stream>@<time>). If a stream cannot be saved, all other streams are still saved. The module
    then fails and names the failed stream. The module removes old backups of the saved streams according to O(keep),
    and writes C(<directory>/catalogue.json). The catalogue lists every backup and records, for each stream, the problem
    of the last run, when the stream was last found unchanged, and when a restore of it was last proven. Only one run at
    a time can write to a directory.
  - With O(path), saves one stream into C(<path>/<stream>@<time>), without a catalogue. Runs do not lock each other out,
    and the stream's user does not need to list streams.
  - A stream is not saved again if its newest backup is intact and the stream, its configuration and its consumers have
    not changed since that backup, so the next run continues an interrupted run.
  - The archive is read back, which takes longer than the transfer, to determine its messages, their sequences and a
    digest. A backup is renamed into place only once it is complete. After a failure, such as a full disk, nothing is
    left behind.
  - Servers before 2.15 omit consumers that have no replica on the stream's leader, such as a consumer with a single
    replica on another server. C(backup.json) contains the positions and configurations of all consumers, from which
    M(natsops.jetstream.nats_restore) recreates them.
  - Archives are encrypted only with O(encrypt_to), even if the store of the servers is encrypted. Directories are
    created with mode 0700, files with mode 0600.
  - Needs a user of each owning account, either in O(account_users) or as the task's own user. The minimum permissions
    are to publish to C($JS.API.STREAM.INFO.*), C($JS.API.STREAM.SNAPSHOT.*), C($JS.API.CONSUMER.LIST.*) and
    C($JS.SNAPSHOT.ACK.>), with O(directory) also to C($JS.API.STREAM.NAMES), and to subscribe to the user's inbox.
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
      - Directory of the backups and their catalogue, on the host that runs the module.
      - Alternatively, a location in object storage, C(s3://BUCKET/PREFIX); see O(s3).
      - Either O(directory) or O(path) is required.
    type: path
  path:
    description:
      - Directory in which the backup of one stream gets its own directory, on the host that runs the module, or a
        location in object storage as for O(directory). RV(streams[].path) is the directory of the backup, the C(path) of
        M(natsops.jetstream.nats_restore). Use a separate O(path) for each account.
      - O(streams) must contain one stream without wildcards, as C(ACCOUNT/STREAM) or, without O(account_users), as
        C(STREAM). O(accounts), O(exclude), O(keep) and O(cluster_files) are only allowed with O(directory).
    type: path
  force:
    description:
      - Whether to take a new backup even if nothing has changed; only allowed with O(path).
    type: bool
    default: false
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
      - How each archive is verified before it is accepted as a backup.
      - V(contents) reads the complete archive and verifies its structure, its sizes and the checksum of each chunk.
      - V(records) also verifies the checksum that a server before 2.15 added to each message when it was stored, at
        about 3 MB per second. From 2.15 on, servers verify this checksum themselves.
      - V(checksum) does not read the archive back; the restore reads it instead.
    type: str
    choices: [checksum, contents, records]
    default: contents
notes:
  - "Failures before anything is saved have the codes V(locked), V(invalid_option) and V(damaged) (the catalogue cannot
    be read)."
  - "A stream is not transferred with V(unsupported) (a memory stream before 2.15) or V(leaderless) (the stream or a
    consumer without a leader). Later failures of a stream are V(interrupted) (the server sent an error instead of the
    remaining data), V(idle), V(connection_lost), V(damaged) and V(write_failed). If a leader was lost during the
    transfer, the module waits for an election and tries once more."
  - While a server before 2.15 writes a snapshot, messages of that stream cannot be deleted. Only one snapshot of a
    stream can be taken at a time.
seealso:
  - module: natsops.jetstream.nats_restore
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

- name: Save one stream
  natsops.jetstream.nats_backup:
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"
    streams: [ORDERS]
    path: /srv/before-upgrade/APP
  register: result

- name: Show the number of its messages
  ansible.builtin.debug:
    msg: "{{ result.streams[0].backup.contents.messages }} messages in {{ result.streams[0].path }}"
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
      description: Why a backup was taken. Empty if the newest backup is still up to date.
      type: str
      sample: messages were stored or removed since
    messages:
      description: Number of messages in the backup.
      type: int
    bytes:
      description: Size of the archive in bytes. In check mode, the size of the messages in the stream.
      type: int
    caveats:
      description: Possible side effects of taking a snapshot with the servers' version of nats-server.
      type: list
      elements: str
    diff:
      description: Messages, sequences and consumers of the previous backup and of the new one.
      type: dict
    backup:
      description: The content of C(backup.json). Null in check mode if a new backup would be taken.
      returned: with O(path)
      type: dict
      contains:
        stream:
          description: Name of the stream.
          type: str
        account:
          description: Identity of the account. Null for the account of the task's own user.
          type: str
        created:
          description: When the stream was created, which distinguishes streams of the same name.
          type: str
        taken:
          description: When the backup was started.
          type: str
          sample: "2026-11-23T02:00:00.123456Z"
        seconds:
          description: Seconds that the backup took, including reading it back.
          type: float
        server_version:
          description: Version of the server to which the module was connected.
          type: str
        config:
          description: The stream's configuration, with nats-server's own keys. Archives of 2.15 do not contain the
            configuration.
          type: dict
        state:
          description: The stream's state when the backup was started.
          type: dict
        archive:
          description: Name of the archive.
          type: str
        format:
          description: Format of the archive, V(tar) up to 2.14 and V(entries) from 2.15 on.
          type: str
        size:
          description: Size of the archive in bytes.
          type: int
        sha256:
          description: SHA-256 of the archive.
          type: str
        contents:
          description:
            - The contents of the archive. Null with O(verify=checksum).
            - RV(ignore:digest) is the SHA-256 over sequence, time, subject, headers and body of every message. The digest
              of a stream is the same in both archive formats.
          type: dict
          sample: {messages: 1000, bytes: 152000, largest: 100, first_seq: 1, last_seq: 1000, digest: 9228bdf7, exact: true}
        consumers:
          description: Configuration and position of each consumer, and whether the archive contains the consumer.
          type: list
          elements: dict
        changed_meanwhile:
          description: By how much the stream's messages and sequences changed during the backup.
          type: dict
          sample: {messages: 12, first_seq: 0, last_seq: 12, num_deleted: 0}
        caveats:
          description: The same list as RV(streams[].caveats).
          type: list
          elements: str
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
from ..module_utils.backup.run_backup import BackupRequest, save_stream, save_streams
from ..module_utils.backup.selection import SELECTION_SPEC, SelectionError, only_stream
from ..module_utils.backup.stream_backup import StreamBackupRequest
from ..module_utils.backup.target import WRITE_SPEC, misplaced_secrets, requested_store, require_suitable
from ..module_utils.backup.transfer import TRANSFER_SPEC, requested_pace
from ..module_utils.backup.verify import CONTENTS, LEVELS
from ..module_utils.collection_module import run
from ..module_utils.module import ACCOUNT_USERS_SPEC, fail, make_module, warn_of_caveats, with_accounts
from ..module_utils.nats.accounts import Connections
from ..module_utils.nats.client import NatsFailure
from ..module_utils.nats.jetstream_api import require_name
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
    require_suitable(params)
    if params["path"] is not None:
        return ensure_one(module, connections)
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


def ensure_one(module: AnsibleModule, connections: Connections) -> dict[str, Any]:
    """Return the module's result for the only stream, which is saved to `path`. Raises NatsFailure."""
    params = module.params
    try:
        account, stream = only_stream(params["streams"], bool(params["account_users"]))
    except SelectionError as error:
        raise NatsFailure("invalid_option", f"streams: {error}") from error
    request = StreamBackupRequest(
        require_name("streams", stream),
        requested_store(params, "path"),
        params["verify"],
        requested_pace(params),
        params["force"],
    )
    identity = connections.identity(account) if account else None
    result = save_stream(connections, identity, request, Progress(params["progress"], None), module.check_mode)
    warn_of_caveats(module, result["streams"])
    return result


def main() -> None:
    module = make_module(
        {
            "directory": {"type": "path"},
            "path": {"type": "path"},
            "force": {"type": "bool", "default": False},
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
        },
        required_one_of=[("directory", "path")],
        mutually_exclusive=[("directory", "path")],
    )
    module.no_log_values.update(misplaced_secrets(module.params))
    run(module, with_accounts, lambda connections: ensure(module, connections))


if __name__ == "__main__":
    main()
