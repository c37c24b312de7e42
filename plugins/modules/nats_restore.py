#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_restore
short_description: Restore streams from a directory of backups
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - Restores one stream, several streams, or all streams of accounts from the backups of
    M(natsops.jetstream.nats_backup), each in the same way as M(natsops.jetstream.nats_stream_restore).
  - Every archive is verified and all conflicts are found before the first stream is created. If any stream cannot be
    restored, for example because its name already exists, none is restored. If a backup is damaged, however, only its
    stream fails, after all other streams have been restored.
  - Sixteen streams are restored at a time, each over its own connection. With O(rate_limit), only one stream is
    restored at a time. Streams that copy other streams (mirrors, sources) come last. Each restored stream is compared
    with its backup.
  - An existing stream is never written to. A stream that is identical to its backup remains unchanged.
extends_documentation_fragment:
  - natsops.jetstream.accounts
  - natsops.jetstream.backup_store
  - natsops.jetstream.backup_identity
  - natsops.jetstream.transfer
  - natsops.jetstream.progress
  - natsops.jetstream.connection
  - natsops.jetstream.attributes
attributes:
  check_mode:
    support: full
    details:
      - Verifies the archives and checks for conflicts. Limits and available servers are checked only in a real run.
  diff_mode:
    support: full
    details:
      - Shows the configuration, messages, sequences and consumers after the restore.
  idempotent:
    support: full
options:
  directory:
    description:
      - Directory of the backups, on the host that runs the module.
      - Alternatively, a location in object storage (C(s3://BUCKET/PREFIX)); see O(s3).
    type: path
    required: true
  streams:
    description:
      - Streams to restore, each as C(ACCOUNT/STREAM@time), C(ACCOUNT/STREAM), C(ACCOUNT) or C(*), where C(*) matches
        any characters and C(?) exactly one. An account is specified by name or, in operator mode, by public key; in
        operator mode, wildcards match the public key.
      - The newest backup of each stream is restored. If an entry has a time, the newest backup taken up to that time is
        restored. The time is written as in C(APP/ORDERS@2026-11-23T02:00:00Z) or, in the format of the backup's
        directory, as in C(APP/ORDERS@20261123T020000.123456Z). A date such as C(2026-11-23) means the end of that day.
    type: list
    elements: str
    required: true
  at:
    description:
      - Time for entries of O(streams) that do not specify a time.
    type: str
  account:
    description:
      - Account to restore into, which must be one of O(account_users). Defaults to the original account of each stream.
    type: str
  name:
    description:
      - A different name for the restored stream, allowed only if a single stream is restored. Archives from servers
        before 2.15 can only be restored under their original name.
    type: str
  subjects:
    description:
      - Subjects to use instead of the original ones, allowed only if a single stream is restored.
    type: list
    elements: str
  num_replicas:
    description:
      - Number of replicas to use instead of the original number.
    type: int
  max_replicas:
    description:
      - Maximum number of replicas of a stream, such as the number of remaining servers. Streams with fewer replicas
        keep their number of replicas.
    type: int
  placement:
    description:
      - Placement to use instead of the original one; an empty dictionary removes the placement.
    type: dict
    suboptions:
      cluster:
        description: Name of the cluster.
        type: str
      tags:
        description: Tags that every server must have.
        type: list
        elements: str
  existing:
    description:
      - How to treat an existing stream that differs from its backup. V(refuse) fails before anything is created.
        V(skip) leaves the existing stream unchanged; use it to continue a restore after clients have started writing
        again.
      - With either choice, a stream fails with V(unfinished) if its last sequence is below that of its backup, if it
        has stored different messages under the backup's sequences, or if it lacks a durable consumer of the backup, as
        after an interrupted restore.
    type: str
    choices: [refuse, skip]
    default: refuse
  consumers:
    description:
      - Whether consumers are restored as well.
    type: bool
    default: true
  compare:
    description:
      - How each restored stream is compared. V(state) compares messages, sequences and ack floors as reported by the
        servers. V(contents) also reads the stream back and compares the digest of all its messages, unless clients have
        already changed it. V(contents) temporarily needs room for the archive in O(directory), or, with object storage,
        in the directory for temporary files.
    type: str
    choices: [state, contents]
    default: contents
  verify:
    description:
      - How archives are verified before anything is created; see M(natsops.jetstream.nats_stream_restore).
    type: str
    choices: [checksum, contents, records]
    default: checksum
  finish_timeout:
    description:
      - Seconds that the servers may take to finish restoring a stream after receiving its last byte.
    type: float
    default: 3600
  wait_timeout:
    description:
      - Seconds to wait until every replica of a stream is in step and every consumer exists.
    type: float
    default: 300
seealso:
  - module: natsops.jetstream.nats_backup
  - module: natsops.jetstream.nats_stream_restore
  - module: natsops.jetstream.nats_backup_info
"""

EXAMPLES = r"""
- name: Restore a stream as it was on a day
  natsops.jetstream.nats_restore:
    servers: [nats://n1.example.com:4222]
    account_users:
      - {account: APP, user: operator-APP, password: "{{ nats_operator_password }}"}
    directory: /srv/backup
    streams: [APP/ORDERS@2026-11-23]

- name: Show the plan to restore everything
  natsops.jetstream.nats_restore:
    directory: /srv/backup
    streams: ["*"]
  check_mode: true
"""

RETURN = r"""
streams:
  description: The streams, in the order in which they are restored.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: C(ACCOUNT/STREAM) at the destination, with the identity of the account (in operator mode its public
        key).
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
    path:
      description: Directory of the backup.
      type: str
      sample: /srv/backup/APP/ORDERS@20261123T020000.123456Z
    taken:
      description: When the backup was started.
      type: str
      sample: "2026-11-23T02:00:00.123456Z"
    changed:
      description: Whether the stream was, or would be, created.
      type: bool
    skipped:
      description: Whether the stream was left unchanged because of O(existing=skip).
      type: bool
    messages:
      description: Number of messages in the backup.
      type: int
    bytes:
      description: Size of the archive in bytes.
      type: int
    seconds:
      description: Seconds that the restore of the stream took, if it was restored.
      type: float
    compared:
      description:
        - The values of C(messages), C(first_seq), C(last_seq), C(gaps) and C(ack_floors) in the backup and in the
          restored stream, each as a pair, and C(digest), which is V(same) or V(not compared).
      type: dict
      sample: {messages: [10, 10], first_seq: [1, 1], last_seq: [12, 12], gaps: [2, 2], ack_floors: {w: [4, 4]}, digest: same}
    caveats:
      description: Information that the restored stream has lost, and deliveries that it repeats.
      type: list
      elements: str
    diff:
      description: The stream after the restore.
      type: dict
lines:
  description: The results as human-readable lines.
  returned: success
  type: list
  elements: str
screen:
  description: As much of RV(lines) as fits on a screen, for M(natsops.jetstream.nats_show).
  returned: success
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.backup.restore_rules import RestoreChanges
from ..module_utils.backup.run_restore import COMPARISONS, EXISTING, READ_BACK, REFUSE, RestoreRequest, restore_streams
from ..module_utils.backup.stream_restore import StreamRestoreRequest, require_replicas
from ..module_utils.backup.target import READ_SPEC, requested_store
from ..module_utils.backup.transfer import TRANSFER_SPEC, requested_pace
from ..module_utils.backup.verify import CHECKSUM, LEVELS
from ..module_utils.collection_module import run
from ..module_utils.module import ACCOUNT_USERS_SPEC, fail, make_module, warn_of_caveats, with_accounts
from ..module_utils.nats.accounts import Connections
from ..module_utils.nats.jetstream_api import require_name
from ..module_utils.progress import PROGRESS_SPEC, Progress
from ..module_utils.waiting import positive


def ensure(module: AnsibleModule, connections: Connections) -> dict[str, Any]:
    """Return the module's result. A restore that fails ends the module with its failure. Raises NatsFailure."""
    params = module.params
    if params["name"] is not None:
        require_name("stream", params["name"])
    changes = RestoreChanges(
        params["name"],
        params["subjects"],
        params["num_replicas"],
        params["placement"],
        params["consumers"],
        max_replicas=params["max_replicas"],
    )
    require_replicas(changes)
    wait_timeout = positive(params["wait_timeout"], "wait_timeout")
    request = RestoreRequest(
        requested_store(params),
        params["streams"],
        params["at"],
        params["account"],
        bool(connections.accounts),
        StreamRestoreRequest(changes, params["verify"], requested_pace(params), wait_timeout),
        params["compare"],
        params["existing"],
    )
    outcome = restore_streams(connections, request, Progress(params["progress"], None), module.check_mode)
    warn_of_caveats(module, outcome.result["streams"])
    if outcome.failure is not None:
        fail(module, outcome.failure, changed=outcome.result["changed"])
    return outcome.result


def main() -> None:
    placement = {"cluster": {"type": "str"}, "tags": {"type": "list", "elements": "str"}}
    module = make_module(
        {
            "directory": {"type": "path", "required": True},
            "streams": {"type": "list", "elements": "str", "required": True},
            "at": {"type": "str"},
            "account": {"type": "str"},
            "name": {"type": "str"},
            "subjects": {"type": "list", "elements": "str"},
            "num_replicas": {"type": "int"},
            "max_replicas": {"type": "int"},
            "placement": {"type": "dict", "options": placement},
            "existing": {"type": "str", "choices": list(EXISTING), "default": REFUSE},
            "consumers": {"type": "bool", "default": True},
            "compare": {"type": "str", "choices": list(COMPARISONS), "default": READ_BACK},
            "verify": {"type": "str", "choices": list(LEVELS), "default": CHECKSUM},
            "finish_timeout": {"type": "float", "default": 3600.0},
            "wait_timeout": {"type": "float", "default": 300.0},
            **READ_SPEC,
            **TRANSFER_SPEC,
            **PROGRESS_SPEC,
            **ACCOUNT_USERS_SPEC,
        }
    )
    run(module, with_accounts, lambda connections: ensure(module, connections))


if __name__ == "__main__":
    main()
