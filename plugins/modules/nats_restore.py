#!/usr/bin/python
# Copyright (c) 2026, natsops maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nats_restore
short_description: Restore streams from a directory of backups, or from one backup
version_added: 0.1.0
author:
  - natsops maintainers (@natsops)
description:
  - With O(directory), restores one stream, several streams, or all streams of accounts from the backups of
    M(natsops.jetstream.nats_backup). With O(path), restores one backup. It may be from a server of any version, or from
    C(nats stream backup).
  - Every archive is verified and all conflicts are found before the first stream is created. Nothing is restored if an
    archive is not readable by the servers, or if an existing stream has the same name or subjects. If one of several
    backups is damaged, however, only its stream fails, after all other streams have been restored.
  - Consumers are restored at their ack floors. Consumers that the archive lacks are recreated at their ack floors, with
    a delivery policy by start sequence if they had acknowledged anything. A consumer with more replicas than its stream
    gets as many as the stream, because a server would otherwise refuse the complete archive.
  - Sixteen streams are restored at a time, each over its own connection. With O(rate_limit), only one stream is
    restored at a time. Streams that copy other streams (mirrors, sources) come last. The module waits until every
    replica is in step and every durable consumer exists, and compares each restored stream with its backup.
  - After the failed restore of a stream, the module removes everything that was created of it, because servers leave a
    partial stream behind. On 2.15 and later, such a stream accepts messages.
  - An existing stream is never written to. A stream that is identical to its backup remains unchanged, so an
    interrupted run can be repeated.
  - Needs a user of each owning account, either in O(account_users) or as the task's own user. The user must be allowed
    to publish to C($JS.API.STREAM.NAMES), C($JS.API.STREAM.{INFO,RESTORE,DELETE}.*),
    C($JS.API.CONSUMER.{LIST,INFO,CREATE}.>) and C($JS.SNAPSHOT.RESTORE.>), and to subscribe to the user's inbox.
    O(compare=contents) also needs the permissions for M(natsops.jetstream.nats_backup).
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
      - Either O(directory) or O(path) is required.
    type: path
  path:
    description:
      - Directory of one backup, on the host that runs the module, or a location in object storage as for O(directory).
    type: path
  streams:
    description:
      - Streams to restore from O(directory), each as C(ACCOUNT/STREAM@time), C(ACCOUNT/STREAM), C(ACCOUNT) or C(*),
        where C(*) matches any characters and C(?) exactly one. An account is specified by name or, in operator mode, by
        public key; in operator mode, wildcards match the public key.
      - The newest backup of each stream is restored. If an entry has a time, the newest backup taken up to that time is
        restored. The time is written as in C(APP/ORDERS@2026-11-23T02:00:00Z) or, in the format of the backup's
        directory, as in C(APP/ORDERS@20261123T020000.123456Z). A date such as C(2026-11-23) means the end of that day.
    type: list
    elements: str
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
      - Subjects to use instead of the original ones, for example to restore a copy next to the existing stream. They are
        allowed only if a single stream is restored. They apply to new messages only; the restored messages keep their
        subjects.
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
        already changed it. V(contents) temporarily needs room for the archive in O(directory) or O(path), or, with
        object storage or without permission to write there, in the directory for temporary files.
    type: str
    choices: [state, contents]
    default: contents
  verify:
    description:
      - How archives are verified before anything is created.
      - V(checksum) compares the size and SHA-256 of the archive with those recorded in the backup. An archive that has
        never been read back is read, as with V(contents).
      - V(contents) reads the complete archive, and V(records) also verifies the checksum of each message; see
        M(natsops.jetstream.nats_backup).
    type: str
    choices: [checksum, contents, records]
    default: checksum
  finish_timeout:
    description:
      - Seconds that the servers may take to finish restoring a stream after receiving its last byte. Servers before
        2.12.15 and 2.14.5 do not start restoring until they have received this byte.
    type: float
    default: 3600
  wait_timeout:
    description:
      - Seconds to wait until every replica of a stream is in step, every consumer exists, recreated consumers start at
        their positions, and all of them report their pending messages. After a failure, seconds to wait until the
        partially restored stream has been removed.
    type: float
    default: 300
notes:
  - "Failures before anything is created are V(damaged), V(exists), V(overlap), V(unfinished) (a stream of that name
    ends at a lower sequence than the backup, as after an interrupted restore) and V(unsupported). V(incomplete) and
    V(not_seen) mean that the stream exists; the message lists its missing parts."
  - On 2.15 and later, a restored stream no longer has the message ids of its duplicate window, and messages that were
    delivered but not acknowledged are delivered again. RV(streams[].caveats) lists both effects.
seealso:
  - module: natsops.jetstream.nats_backup
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

- name: Restore one backup
  natsops.jetstream.nats_restore:
    servers: [nats://n1.example.com:4222]
    user: app
    password: "{{ nats_app_password }}"
    path: /srv/before-upgrade/APP/ORDERS@20261123T020000.123456Z

- name: Restore a copy next to the stream, to inspect it
  natsops.jetstream.nats_restore:
    path: /srv/before-upgrade/APP/ORDERS@20261123T020000.123456Z
    name: ORDERS_LAST_NIGHT
    subjects: [last-night.>]
    num_replicas: 1
    consumers: false
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
      sample: 1000
    bytes:
      description: Number of bytes of the archive that were, or would be, sent to the server.
      type: int
      sample: 1048576
    first_seq:
      description: First sequence of the stream in the backup.
      type: int
      sample: 1
    last_seq:
      description: Last sequence of the stream in the backup.
      type: int
      sample: 1000
    consumers:
      description: Names of the consumers in the backup.
      type: list
      elements: str
      sample: [billing, shipping]
    recreated:
      description: Consumers that the archive lacks and that were, or would be, created at their ack floors.
      type: list
      elements: str
      sample: [billing]
    fewer_replicas:
      description: Consumers whose number of replicas is reduced to that of the stream.
      type: list
      elements: str
      sample: []
    state:
      description: State of the stream as reported by the servers after the restore. Null in check mode.
      type: dict
      sample: {messages: 1000, bytes: 152000, first_seq: 1, last_seq: 1000, consumer_count: 2}
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
      sample: ["messages delivered but not acknowledged are delivered again: billing (6)"]
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
from ..module_utils.backup.run_restore import (
    COMPARISONS,
    EXISTING,
    READ_BACK,
    REFUSE,
    RestoreRequest,
    restore_backup,
    restore_streams,
)
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
    is_one_backup = params["path"] is not None
    request = RestoreRequest(
        requested_store(params, "path" if is_one_backup else "directory"),
        params["streams"] or (),
        params["at"],
        params["account"],
        bool(connections.accounts or params["account"]),
        StreamRestoreRequest(changes, params["verify"], requested_pace(params), wait_timeout),
        params["compare"],
        params["existing"],
    )
    run_restore = restore_backup if is_one_backup else restore_streams
    outcome = run_restore(connections, request, Progress(params["progress"], None), module.check_mode)
    warn_of_caveats(module, outcome.result["streams"])
    if outcome.failure is not None:
        fail(module, outcome.failure, changed=outcome.result["changed"])
    return outcome.result


def main() -> None:
    placement = {"cluster": {"type": "str"}, "tags": {"type": "list", "elements": "str"}}
    module = make_module(
        {
            "directory": {"type": "path"},
            "path": {"type": "path"},
            "streams": {"type": "list", "elements": "str"},
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
        },
        required_one_of=[("directory", "path")],
        required_by={"directory": ["streams"]},
        mutually_exclusive=[("directory", "path"), ("path", "streams"), ("path", "at")],
    )
    run(module, with_accounts, lambda connections: ensure(module, connections))


if __name__ == "__main__":
    main()
